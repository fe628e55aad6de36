"""Sizes of models whose single operations were measured: as words say them, else of the model's published config."""

from __future__ import annotations

from rackmodel.inputs.library import DECODER
from rackmodel.validation.kernel_words import HeadWords, LayerModelWords
from rackmodel.validation.model_files import workload_of
from rackmodel.validation.words import Refused, look_up, words

GROUPED = ("d", "g", "q", "e")
"""Sizes of decoders whose queries share heads of keys and values: hidden, those heads, queries of each, elements of one."""


def layer_model(word: str) -> LayerModelWords:
    """Sizes of a model by the letters of specs/validation/layers. Raises Refused with the nearest word that is known."""
    try:
        return look_up(words().layer_models, "model", word, "model")
    except Refused:
        own = _of_config(word)
        if not own:
            raise
    sizes = {"d": own["d"], "h": own["g"] * own["q"], "g": own["g"], "e": own["e"], "v": own["v"]}
    inside = own.get("f", own.get("y"))
    return LayerModelWords(words=[word], sizes=sizes | ({"f": inside} if inside else {}))


def heads_of(word: str) -> HeadWords:
    """Heads of a model. Raises Refused with the nearest word that is known."""
    try:
        return look_up(words().attention_heads, "heads of a model", word, "model")
    except Refused:
        own = _of_config(word)
        if not own:
            raise
    return HeadWords(words=[word], heads=own["g"] * own["q"], kv_heads=own["g"], head=own["e"])


def _of_config(word: str) -> dict[str, int]:
    """Sizes of the decoder that a model's published config makes, of grouped queries; none where there is no such config.

    Raises Refused where its attention is of another kind."""
    config = words().config(word)
    if config is None:
        return {}
    sizes = workload_of(f"{config.config}_{DECODER}").sizes
    if not set(GROUPED) <= set(sizes):
        raise Refused(f"'{word}' has no grouped queries, whose sizes these operations are told by")
    return sizes
