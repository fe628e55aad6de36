"""What a published config says: its keys as the numbers that its family's expressions name, and the keys that are refused.

Every key is used, known to change nothing, or absent in effect (null, false, 0, empty); another is refused by name, as it may change what
is computed. A number that is written as something else is refused, too: an expression that passed over it would take another key for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from rackmodel.errors import InputError, Where, together
from rackmodel.inputs.library import names
from rackmodel.inputs.load import load
from rackmodel.inputs.marked import Marked, place_of, short
from rackmodel.inputs.problems import build
from rackmodel.model.family import Expression, FamilySpec
from rackmodel.model.sizes import array_value, size_names

HARMLESS = re.compile(
    r"_name_or_path|architectures|attention_(bias|dropout)|_?attn_implementation(_autoset)?|auto_map|bos_token_id|eos_token_id|pad_token_id|dtype|"
    r"torch_dtype|initializer_range|initializer_factor|layer_norm_eps(ilon)?|layernorm_epsilon|max_position_embeddings|model_max_length|"
    r"mlp_bias|model_type|norm_eps|norm_topk_prob|original_max_position_embeddings|output_router_logits|partial_rotary_factor|"
    r"pretraining_tp|quantization_config|rms_norm_eps|rope_\w+|router_(aux_loss_coef|jitter_noise)|input_jitter_noise|"
    r"transformers_version|transformers\.js_config|use_cache|"
    r"(hidden|attention|resid|embd|embed|attn|classifier)_?(dropout|pdrop)(_prob)?|lm_head_bias|\w+_dropout|\w+_token_(id|index)|"
    r"torchscript|use_bfloat16|return_dict|output_(attentions|hidden_states|past)|id2label|label2id|vision_\w+|"
    r"rotary_\w+|tie_word_embeddings|hidden_act|tf_legacy_loss|pruned_heads|num_labels|tokenizer_class|task_specific_params|"
    r"(max|min)_length|num_beams|num_beam_groups|num_return_sequences|temperature|top_[kp]|typical_p|\w+_penalty|chunk_size_feed_forward"
)
"""Keys that change neither sizes nor operations (those of generation among them), or that families read where they do."""

OUTSIDE = re.compile(
    r"\w*(vision|image|video|audio|media|projector|multimodal|mm|spatial)\w*|ignore_index|language_model_only|"
    r"im_(start|end|patch)_token|patch_token_len|downsample_(ratio|factor)|ps_version|select_layer|template|use_(backbone|llm)_lora|"
    r"use_thumbnail|pad2square|(max|min)_dynamic_patch|alignment_intermediate_size|adapter_layer_norm_eps|tile_size|(max|min)_tiles|"
    r"encoder_patch_size|max_pixels_tolerance"
)
"""Keys beside a decoder's own config: of encoders and of what joins them to it, which are left out."""

PARTS = ("text_config", "llm_config", "language_config")
"""Keys of models of text and more under which the language model has a config, with a model_type of its own."""
THINKER = "thinker_config"
"""The part of a model that answers in speech, too (Qwen Omni), which makes the text."""

POSITIONS = ("model_max_length", "max_position_embeddings", "n_positions")
"""Keys of a config, of which the first that it has counts."""

LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
"""Keys that say how many layers a model has: the first counts, with or without an expression of a family."""


UNEXPRESSED = {
    "diffllama": ("lambda_std_dev", "differences of two attentions"),
    "doge": ("keep_window_size", "masks that values choose, and experts that are looked up"),
    "jetmoe": ("kv_channels", "experts of attention"),
    "kimi_k3": ("attn_res_block_size", "attention over what earlier layers made"),
    "laguna": ("num_attention_heads_per_layer", "layers whose numbers of heads differ one by one"),
    "minimax_m3_vl": ("sparse_attention_config", "attention over blocks of tokens that an indexer picks"),
    "minimax_m3_vl_text": ("sparse_attention_config", "attention over blocks of tokens that an indexer picks"),
    "mllama": ("cross_attention_layers", "attention over what an encoder of images made"),
    "mllama_text_model": ("cross_attention_layers", "attention over what an encoder of images made"),
    "recurrent_gemma": ("lru_width", "gated linear recurrences of channels"),
    "rwkv": ("attention_hidden_size", "RWKV-4's mixing of tokens by decays alone"),
    "xlstm": ("qk_dim_factor", "matrices that gates of exponentials write"),
    "zamba": ("attn_layer_offset", "layers that share their weights"),
    "zamba2": ("num_mem_blocks", "layers that share their weights, with adapters of their own"),
}
"""model_type that no family expresses → key that asks for what is missing, what that is. RECALLED: their configuration files."""


@dataclass(frozen=True)
class Config:
    """A config and its family. numbers: key → number, words counted · node: with the places of its keys."""

    family: FamilySpec
    node: Marked
    numbers: dict[str, float]

    @property
    def layers(self) -> int:
        """How many it has, as it says; 0: it does not."""
        return next((int(self.numbers[key]) for key in LAYERS if key in self.numbers), 0)

    def knows(self, said: Expression | list[Expression]) -> bool:
        """Whether the config says what an index needs; one that no block uses may be missing."""
        return any(size_names(text) <= set(self.numbers) for text in options(said))

    def whole(self, said: Expression | list[Expression], path: str) -> int:
        """The first expression whose keys are all there, as a whole number of at least 0. Raises InputError."""
        text = next((one for one in options(said) if size_names(one) <= set(self.numbers)), None)
        if text is None:
            missing = [sorted(size_names(one) - set(self.numbers)) for one in options(said)]
            fact = f"no {', nor '.join(', '.join(keys) for keys in missing)}, which family {self.family.name} needs"
            raise InputError(fact, where=self.node.where, path=missing[0][0])
        value = float(array_value(text, self.numbers, path))
        if value != round(value):
            raise InputError(f"{text} is {value:g}, not a whole number", where=self._place(text), path=path)
        if value < 0:
            raise InputError(f"{text} is {value:g}: want 0 or more", where=self._place(text), path=path)
        return round(value)

    def _place(self, text: Expression) -> Where:
        """Of the first key of an expression that the config has."""
        return next((child.where for key, child in self.node.mapping.items() if key in size_names(text)), self.node.where)


def _of_wrapper(root: Marked, families: Mapping[str, FamilySpec]) -> tuple[str, FamilySpec] | None:
    """The part of a model of text and more that is its language model, and its family, where its model_type is another's."""
    outer = root.child("model_type")
    own = families.get(outer.text or "") if outer is not None else None
    for key in PARTS:
        part = root.child(key)
        said = part.child("model_type") if part is not None and part.mapping else None
        family = families.get(said.text or "") if said is not None else None
        if family is not None and family is not own:
            return key, family
    return None


def _known_inside(root: Marked, families: Mapping[str, FamilySpec]) -> str:
    """Which part of the config is of a model_type that is known, as language models within others have one; '' = none."""
    for key in root.value if isinstance(root.value, dict) else ():
        part = root.child(key)
        said = part.child("model_type") if part is not None and isinstance(part.value, dict) else None
        if said is not None and said.text in families:
            return f"; its {key} is a {said.text}: import that part as a file of its own"
    return ""


def read_config(root: Marked) -> Config:
    """A config and its family. Raises InputError for an unknown model_type and for keys that may matter and are not understood."""
    model_type = root.child("model_type")
    if model_type is None or not model_type.text:
        raise InputError("no model_type: is it the config.json of a model?", where=root.where, path="model_type")
    families = {word: family for family in map(family_called, names("family")) for word in family.models}
    thinker = root.child(THINKER)
    if thinker is not None and thinker.mapping:
        return read_config(thinker)
    if model_type.text in UNEXPRESSED:
        raise _unexpressed(root, model_type.text)
    wrapped = _of_wrapper(root, families)
    if model_type.text not in families and wrapped is None:
        fact = f"unknown model_type '{short(model_type.text)}'{_known_inside(root, families)}"
        raise InputError(fact, where=model_type.where, path="model_type", known=sorted(families), given=model_type.text)
    family = families[model_type.text] if wrapped is None else wrapped[1].model_copy(update={"inside": wrapped[0]})
    node, problems = _decoder(root, family)
    problems += refused(node, family)
    if problems:
        raise together(problems)
    config = Config(family, node, dict(_numbers(node, family)))
    config.numbers.update(_crossed(config))
    for name, said in family.counts.items():
        config.numbers[name] = config.whole(said, name)
    return config


def _unexpressed(root: Marked, model_type: str) -> InputError:
    """What to say of a model whose layers no block computes: at the key that asks for it, else at its model_type."""
    key, what = UNEXPRESSED[model_type]
    inner = root.child("text_config")
    part = next((one for one in (root, inner) if one is not None and one.child(key) is not None), None)
    where = place_of(root, ["model_type"]) if part is None else part.keys.get(key, part.where)
    return InputError(f"layers of {model_type} are not expressed here: {what}", where=where, path="model_type" if part is None else key)


@cache
def family_called(name: str) -> FamilySpec:
    """A family of the library. Raises InputError."""
    return build(FamilySpec, load("family", name))


def options(said: Expression | list[Expression]) -> list[Expression]:
    """Expressions of which the first counts whose keys are there."""
    return said if isinstance(said, list) else [said]


def _decoder(root: Marked, family: FamilySpec) -> tuple[Marked, list[InputError]]:
    """A decoder's own config, with what its model says of it (whether embeddings are tied), and what is wrong beside it."""
    inner = root.child(family.inside) if family.inside else None
    if family.inside is None or inner is None or inner.value is None:
        return _spread(root, family), []
    if not inner.mapping:
        return root, [InputError("want the decoder's own config, a mapping", where=inner.where, path=family.inside)]
    node, problems, read = inner, [], _read_keys(family)
    for key, child in root.mapping.items():
        where = root.keys.get(key, child.where)
        if key in _number_keys(family):
            mine = inner.child(key)
            if mine is None:
                node = node.having(key, child, where)
            elif mine.plain() != child.plain():
                fact = f"{short(str(child.plain()))} here, {short(str(mine.plain()))} in {family.inside}"
                problems.append(InputError(fact, where=where, path=key))
        elif not (_inert(child) or key in read or HARMLESS.fullmatch(key) or OUTSIDE.fullmatch(key)):
            problems.append(_unknown_key(key, where, family))
    return _spread(node, family), problems


def _spread(node: Marked, family: FamilySpec) -> Marked:
    """A config whose nested mappings stand beside its own keys, as KEY__ENTRY."""
    for key in family.nested:
        inner = node.child(key)
        for entry, child in inner.mapping.items() if inner is not None else ():
            node = node.having(f"{key}__{entry}", child, inner.keys.get(entry, child.where))  # type: ignore[union-attr]
        node = node.without(key) if inner is not None and inner.mapping else node
    return node


def _numbers(node: Marked, family: FamilySpec) -> Iterator[tuple[str, float]]:
    yield from ((key, float(value)) for key, value in family.defaults.items())
    yield from numbers_of(node, family)


def numbers_of(node: Marked, family: FamilySpec) -> Iterator[tuple[str, float]]:
    """What a config, or one of its layers, says itself: key → number, words counted."""
    named = _named(family)
    yield from ((f"{key}__{word}", 0.0) for key, words in family.words.items() for word in words if f"{key}__{word}" in named)
    for key, child in node.mapping.items():
        if key in family.listed and (layers := _layer_numbers(child)):
            yield f"{key}__length", float(len(layers))
        elif key in family.counted or key in family.letters:
            if words := Counter(_words_of_layers(node, family, key, child)):
                yield from ((f"{key}__{word}", float(words[word])) for word in _layer_words(family, key))
        elif (number := _number(child)) is not None:
            yield key, number
        if key in family.words:
            yield f"{key}__{child.value}", 1.0


def _number(child: Marked) -> float | None:
    """A number, or what a list says of every layer; None: neither."""
    value = child.value
    if child.items and len({str(item.value) for item in child.items}) == 1:
        value = child.items[0].value
    return float(value) if isinstance(value, bool | int | float) else None


BOTH = "__and__"
"""Between words of a layer that are both counted."""


def _crossed(config: Config) -> dict[str, float]:
    """Layers that are of several sorts at once: KEY__WORD__and__OTHER__WORD → how many."""
    crossed = {name for name in _expressed(config.family) if BOTH in name}
    kinds = dict(_kinds_of_layers(config)) if crossed else {}
    parts = {name: [_parted(part, config.family) for part in name.split(BOTH)] for name in crossed}
    return {
        name: float(sum(map(all, zip(*([kind == word for kind in kinds[key]] for key, word in said), strict=True))))
        for name, said in parts.items()
        if all(key in kinds for key, _ in said)
    }


def _kinds_of_layers(config: Config) -> Iterator[tuple[str, list[str]]]:
    """Key, or name of `first` → a word for each layer, where the config says it."""
    family, layers = config.family, config.layers
    for key in (*family.counted, *family.letters):
        child = config.node.child(key)
        if child is not None and (words := list(_words_of_layers(config.node, family, key, child))):
            yield key, words
    for key in family.listed:
        child = config.node.child(key)
        if child is not None and child.value is not None:
            numbers = {number - (key in family.from_one) for number in _layer_numbers(child)}
            yield key, ["in" if number in numbers else "out" for number in range(layers)]
    for name, said in family.first.items():
        if config.knows(said):
            count = config.whole(said, name)
            yield name, ["first" if number < count else "rest" for number in range(layers)]


def _expressed(family: FamilySpec) -> set[str]:
    """What the expressions of a family name, but for names of its own."""
    kinds = (*family.layers, *([family.mtp] if family.mtp else []))
    said = [*family.sizes.values(), *family.counts.values(), *family.first.values(), *(kind.count for kind in kinds)]
    said += [own for kind in kinds for own in kind.sizes.values()]
    return {name for one in said for text in options(one) for name in size_names(text)} - set(family.counts)


def _named(family: FamilySpec) -> set[str]:
    """The same, of layers that are of several sorts each by its own."""
    return {part for name in _expressed(family) for part in name.split(BOTH)}


def _parted(name: str, family: FamilySpec) -> tuple[str, str]:
    """Key and word of KEY__WORD; a number has no word."""
    keys = (*family.words, *family.counted, *family.letters, *family.listed, *family.first)
    key = next((key for key in sorted(keys, key=len, reverse=True) if name.startswith(f"{key}__")), None)
    return (name, "") if key is None else (key, name.removeprefix(f"{key}__"))


def _layer_words(family: FamilySpec, key: str) -> list[str]:
    """Words of layers that a family's expressions know by a key."""
    return sorted(word for name in _named(family) for own, word in [_parted(name, family)] if own == key)


def _number_keys(family: FamilySpec) -> set[str]:
    """Keys whose values are read as numbers."""
    words = {*family.words, *family.counted, *family.letters, *family.listed}
    return {key for key, word in (_parted(name, family) for name in _named(family)) if not word}.union(family.defaults) - words


def _read_keys(family: FamilySpec) -> set[str]:
    read = {_parted(name, family)[0] for name in _named(family)} - set(family.first)
    said = {*family.defaults, *family.words, *family.counted, *family.letters, *family.listed, *family.same, *family.ignored}
    return {*read, *said, *family.nested, family.inside or "model_type", family.each or "model_type"}


def _layer_numbers(child: Marked) -> list[int]:
    """Layers by their numbers, of a list or of a text."""
    return [int(word) for word, _ in _listed(child) if word.isdecimal()]


def _listed(child: Marked) -> Iterator[tuple[str, Marked]]:
    """(word, where it stands) of a list, or of a text with commas."""
    if isinstance(child.value, str):
        yield from ((word.strip(), child) for word in child.value.split(",") if word.strip())
    else:
        yield from ((str(item.value), item) for item in child.items)


def _layers_and_modules(node: Marked, family: FamilySpec) -> tuple[int, int]:
    """How many layers a config says that it has, and modules that predict tokens further; -1 = it does not say."""
    keys = next((key for key in LAYERS if node.child(key) is not None), LAYERS[0]), str(family.mtp.count) if family.mtp else ""
    said = [child.value if child is not None else -1 for child in map(node.child, keys)]
    layers, modules = (value if isinstance(value, int) and not isinstance(value, bool) else -1 for value in said)
    return layers, modules


def _words_of_layers(node: Marked, family: FamilySpec, key: str, child: Marked) -> list[str]:
    """A word for each layer: of a list, or of a text's letters. Those that follow are of modules that predict tokens further."""
    words = [str(item.value) for item in child.items]
    if key in family.letters:
        words = [family.letters[key].get(letter, letter) for letter in str(child.value or "")]
    layers, modules = _layers_and_modules(node, family)
    return words[:layers] if min(layers, modules) >= 0 and len(words) == layers + modules else words


def _inert(child: Marked) -> bool:
    """Whether a value asks for nothing."""
    return child.value is None or child.value is False or child.value == 0 or child.value in ([], {})


def _unknown_key(key: str, where: Where, family: FamilySpec) -> InputError:
    fact = f"unknown key: family {family.name} does not say whether it changes what is computed"
    return InputError(fact, where=where, path=key, known=sorted(_read_keys(family)), given=key)


def refused(node: Marked, family: FamilySpec) -> list[InputError]:
    """Keys of a config, or of one of its layers, that may matter and are not understood, and those that are no number."""
    return [*_refused(node, family), *_no_numbers(node, family)]


def _refused(node: Marked, family: FamilySpec) -> Iterator[InputError]:
    known = _read_keys(family)
    for key, child in node.mapping.items():
        value, where = child.value, node.keys.get(key, child.where)
        if key in family.counted or key in family.letters:
            yield from _refused_layers(node, family, key, child)
        elif key in family.listed:
            yield from _refused_numbers(node, family, key, child)
        elif key in family.words:
            if value is not None and str(value) not in family.words[key]:
                fact = f"'{short(str(child.plain()))}' is not what the blocks of family {family.name} compute"
                yield InputError(fact, where=child.where, path=key, known=family.words[key], given=str(value))
        elif key in family.empty and not _inert(child):
            yield InputError(f"family {family.name} has no layers such as {key} asks for", where=where, path=key)
        elif key in family.same and (other := node.child(family.same[key])) is not None and not (_inert(child) or _alike(child, other)):
            said, beside = short(str(child.plain())), f"{family.same[key]} is {short(str(other.plain()))}"
            fact = f"{said} where {beside}: family {family.name} has no projections between"
            yield InputError(fact, where=child.where, path=key)
        elif key in family.ones and value != 1:
            yield InputError(f"family {family.name} knows no other {key} than 1", where=where, path=key)
        elif not (_inert(child) or key in known or key in (*family.empty, *family.ones, LAYERS[0]) or HARMLESS.fullmatch(key)):
            yield _unknown_key(key, where, family)


def _alike(one: Marked, other: Marked) -> bool:
    """Whether two keys say one number, each of all layers or of every one."""
    return one.plain() == other.plain() or (_number(one) is not None and _number(one) == _number(other))


def _refused_layers(node: Marked, family: FamilySpec, key: str, child: Marked) -> Iterator[InputError]:
    """Layers of kinds that the family does not have, and a list that is not of all layers."""
    words = _words_of_layers(node, family, key, child)
    known = _layer_words(family, key)
    for word in dict.fromkeys(words):
        if word not in known:
            fact = f"family {family.name} has no layers such as '{short(word)}'"
            yield InputError(fact, where=child.where, path=key, known=known, given=word)
    said = node.child("num_hidden_layers")
    layers = said.value if said is not None and isinstance(said.value, int | float) else len(words)
    if words and len(words) != layers:
        yield InputError(f"says {len(words)} layers, num_hidden_layers {layers:g}", where=child.where, path=key)


def _refused_numbers(node: Marked, family: FamilySpec, key: str, child: Marked) -> Iterator[InputError]:
    """What a list of layers has that is no number of one."""
    first, (layers, modules) = int(key in family.from_one), _layers_and_modules(node, family)
    last = first + layers + max(modules, 0) - 1
    for word, item in _listed(child):
        number = int(word) if word.isdecimal() else -1
        if number < first or (layers > 0 and number > last):
            fact = f"'{short(word)}' is no layer" + (f" of {layers}, whose first is {first}" if layers > 0 else "")
            yield InputError(fact, where=item.where, path=key)


def _no_numbers(node: Marked, family: FamilySpec) -> Iterator[InputError]:
    """Keys that are read as numbers, and say something else."""
    switches = {key for key, value in family.defaults.items() if isinstance(value, bool)}
    counted = _named(family) - switches
    for key in sorted({*_number_keys(family), *POSITIONS} & set(node.mapping), key=list(node.mapping).index):
        child = node.mapping[key]
        if child.value is None:
            continue
        number, shown = _number(child), short(str(child.plain()))
        if key in switches and number not in (0, 1):
            fact = f"{shown}: want true or false"
        elif number is None:
            fact = f"{shown}: layers that differ are not expressed here" if child.items else f"'{shown}' is no number"
        elif number < 0:
            fact = f"{shown}: want 0 or more"
        elif key in counted and child.value is True:
            fact = "true: want a number"
        elif key in POSITIONS and number != round(number):
            fact = f"{shown}: want a whole number"
        else:
            continue
        yield InputError(fact, where=child.where, path=key)
