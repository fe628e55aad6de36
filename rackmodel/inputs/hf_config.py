"""A published config.json (Hugging Face) → the workload of a decoder's step, or of a training step, by its family's file (specs/families).

Every key is used, known to change nothing, or absent in effect (null, false, 0, empty); another is refused by name, as it may change what
is computed. No network: what the config does not say, the family's `defaults` do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rackmodel.errors import InputError, Where, together
from rackmodel.inputs.decoders import LayerCount, active_parameters, compose_decoder, parameters
from rackmodel.inputs.graph import build_graph
from rackmodel.inputs.hf_precision import Quantised, quantised
from rackmodel.inputs.library import names
from rackmodel.inputs.load import load
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.problems import build
from rackmodel.inputs.trained import PRECISION, trained_step
from rackmodel.inputs.yaml_marks import compose, read_text
from rackmodel.model.family import Expression, FamilySpec
from rackmodel.model.sizes import array_value, size_names

HARMLESS = re.compile(
    r"_name_or_path|architectures|attention_(bias|dropout)|auto_map|bos_token_id|eos_token_id|pad_token_id|dtype|torch_dtype|"
    r"initializer_range|initializer_factor|layer_norm_eps(ilon)?|layernorm_epsilon|max_position_embeddings|model_max_length|mlp_bias|"
    r"model_type|norm_eps|norm_topk_prob|original_max_position_embeddings|output_router_logits|partial_rotary_factor|pretraining_tp|"
    r"quantization_config|rms_norm_eps|rope_\w+|router_(aux_loss_coef|jitter_noise)|input_jitter_noise|transformers_version|use_cache|"
    r"(hidden|attention|resid|embd|embed|attn|classifier)_?(dropout|pdrop)(_prob)?|lm_head_bias|\w+_dropout|\w+_token_(id|index)|"
    r"torchscript|use_bfloat16|return_dict|output_(attentions|hidden_states|past)|id2label|label2id|vision_\w+|"
    r"rotary_\w+|tie_word_embeddings|hidden_act|tf_legacy_loss|pruned_heads|num_labels|tokenizer_class|task_specific_params|"
    r"(max|min)_length|num_beams|num_beam_groups|num_return_sequences|temperature|top_[kp]|typical_p|\w+_penalty|chunk_size_feed_forward"
)
"""Keys that change neither sizes nor operations (those of generation among them), or that families read where they do."""

POSITIONS = ("model_max_length", "max_position_embeddings", "n_positions")
"""Keys of a config, of which the first that it has counts."""


@dataclass(frozen=True)
class ImportedModel:
    """A workload file: its name, text, family, how many weights it has, and by how many a token is multiplied."""

    name: str
    text: str
    family: str
    parameters: float
    active: float


@dataclass(frozen=True)
class _Config:
    """A config and its family. numbers: key → number, words counted · node: with the places of its keys."""

    family: FamilySpec
    node: Marked
    numbers: dict[str, float]


def import_config(path: str | Path, *, name: str | None = None, training: bool = False, mtp: bool = False) -> ImportedModel:
    """The workload of a config.json, of a server's step or of a training step. mtp: of training, with what predicts one token further.
    Raises InputError for an unknown model_type, a key that may matter, or a size that is not there."""
    shown = str(path)
    text = read_text(Path(path), shown)
    try:
        json.loads(text)
    except json.JSONDecodeError as problem:
        raise InputError(f"is no JSON: {short(problem.msg, 120)}", where=Where(shown, problem.lineno, problem.colno))
    except (ValueError, RecursionError) as problem:
        raise InputError(f"is no JSON: {short(problem, 120)}", where=Where(shown))
    root = compose(text, shown)
    config = _config(root)
    problems = list(_refused(config))
    if problems:
        raise together(problems)
    sizes = {index: _whole(config, said, f"sizes.{index}") for index, said in config.family.sizes.items() if _known(config, said)}
    layers = [LayerCount(kind.name, kind.blocks, _whole(config, kind.count, f"layers.{kind.name}")) for kind in config.family.layers]
    layers = [kind for kind in layers if kind.count > 0]
    if not layers:
        raise InputError("has no layers", where=root.where)
    tied = bool(config.numbers.get("tie_word_embeddings", 0))
    label = name or _label(Path(path))
    if training:
        module = _trained_module(config) if mtp else None
        made = compose_decoder(config.family, sizes, layers, tied=tied, module=module, ends="trained_")
        step = trained_step(_checked_sizes(config, made), most_tokens=_positions(config).get("positions"))
        return _written(label, step | _routing(config), config, PRECISION, Path(path).name)
    data = compose_decoder(config.family, sizes, layers, tied=tied, module=_module(config))
    data["serving"] |= _positions(config)
    data = _checked_sizes(config, data) | _routing(config)
    found = _quantised(root, config)
    if found is not None:
        data = _left_as_they_are(data, found)
    precision = found.precision() if found is not None else {"activation": "bf16", "weight": "bf16"}
    return _written(label, data, config, precision, Path(path).name)


def _positions(config: _Config) -> dict[str, int]:
    """Most tokens of a request, where a config says it: its positions, which YaRN stretches by a factor from those it was trained on.

    Source: vllm-project/vllm, vllm/config/model.py, _get_and_verify_max_len, which refuses a larger max_model_len.
    """
    known = config.numbers
    most = next((known[key] for key in POSITIONS if known.get(key, 0) > 0), 0.0)
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.node.child(key)
        said = {name: child.value for name, child in scaling.mapping.items()} if scaling is not None else {}
        first, factor = said.get("original_max_position_embeddings"), said.get("factor")
        if "yarn" in (said.get("rope_type"), said.get("type")) and isinstance(first, int | float) and isinstance(factor, int | float):
            most = max(most, first * factor)
    return {"positions": int(most)} if most >= 1 else {}


def _routing(config: _Config) -> dict[str, Any]:
    """Groups of experts that a token's are chosen from, where a router keeps to some of them."""
    groups, kept = (int(config.numbers.get(key, 1)) for key in ("n_group", "topk_group"))
    method = config.node.child("topk_method")
    limited = 0 < kept < groups and "x" in config.family.sizes and (method is None or method.value != "greedy")
    return {"routing": {"x": {"groups": groups, "kept": kept}}} if limited else {}


def _module(config: _Config) -> LayerCount | None:
    """The layer of what predicts one token further. (Where there are several of them, servers run the first again and again.)"""
    kind = config.family.mtp
    if kind is None or not _known(config, kind.count) or not _whole(config, kind.count, "mtp"):
        return None
    return LayerCount(kind.name, kind.blocks, 1)


def _trained_module(config: _Config) -> LayerCount:
    """The same, where it is asked for. Raises InputError where there is none, or are several."""
    module, kind = _module(config), config.family.mtp
    if module is None or kind is None:
        raise InputError(f"a model of family {config.family.name} without a layer that predicts one token further", where=config.node.where)
    if (count := _whole(config, kind.count, "mtp")) > 1:
        raise InputError(f"predicts {count} tokens further: training is put together with one", where=config.node.where)
    return module


def _config(root: Marked) -> _Config:
    model_type = root.child("model_type")
    if model_type is None or not model_type.text:
        raise InputError("no model_type: is it the config.json of a model?", where=root.where, path="model_type")
    families = {word: family for family in map(family_called, names("family")) for word in family.models}
    if model_type.text not in families:
        fact = f"unknown model_type '{short(model_type.text)}'"
        raise InputError(fact, where=model_type.where, path="model_type", known=sorted(families), given=model_type.text)
    family = families[model_type.text]
    inner = root.child(family.inside) if family.inside else None
    node = inner if inner is not None and inner.mapping else root
    return _Config(family, node, dict(_numbers(node, family)))


@cache
def family_called(name: str) -> FamilySpec:
    """A family of the library. Raises InputError."""
    return build(FamilySpec, load("family", name))


def _numbers(node: Marked, family: FamilySpec) -> Iterator[tuple[str, float]]:
    yield from ((key, float(value)) for key, value in family.defaults.items())
    named = _named(family)
    for key, child in node.mapping.items():
        value = child.value
        each = {str(item.value) for item in child.items}
        if key in family.counted or key in family.letters:
            counts = Counter(_words_of_layers(family, key, child))
            yield from ((name, float(counts[name.removeprefix(f"{key}__")])) for name in named if name.startswith(f"{key}__"))
        elif isinstance(value, bool | int | float):
            yield key, float(value)
        elif len(each) == 1 and isinstance(child.items[0].value, int | float):  # of every layer the same
            yield key, float(child.items[0].value)


def _named(family: FamilySpec) -> set[str]:
    """What the expressions of a family name."""
    said = [*family.sizes.values(), *(kind.count for kind in (*family.layers, *([family.mtp] if family.mtp else [])))]
    return {name for one in said for text in _options(one) for name in size_names(text)}


def _words_of_layers(family: FamilySpec, key: str, child: Marked) -> Iterator[str]:
    """A word for each layer: of a list, or of a text's letters."""
    if key in family.letters:
        yield from (family.letters[key].get(letter, letter) for letter in str(child.value or ""))
    else:
        yield from (str(item.value) for item in child.items)


def _refused(config: _Config) -> Iterator[InputError]:
    """Keys that may matter and are not understood."""
    family, known = config.family, _read_keys(config.family)
    for key, child in config.node.mapping.items():
        value, where = child.value, config.node.keys.get(key, child.where)
        inert = value is None or value is False or value == 0 or value in ([], {})
        if key in family.counted or key in family.letters:
            yield from _refused_layers(config, key, child)
        elif key in family.words:
            if value is not None and str(value) not in family.words[key]:
                fact = f"'{short(str(value))}' is not what the blocks of family {family.name} compute"
                yield InputError(fact, where=child.where, path=key, known=family.words[key], given=str(value))
        elif key in family.empty and not inert:
            yield InputError(f"family {family.name} has no layers such as {key} asks for", where=where, path=key)
        elif key in family.ones and value != 1:
            yield InputError(f"family {family.name} knows no other {key} than 1", where=where, path=key)
        elif not (inert or key in known or key in family.empty or key in family.ones or HARMLESS.fullmatch(key)):
            fact = f"unknown key: family {family.name} does not say whether it changes what is computed"
            yield InputError(fact, where=where, path=key, known=sorted(known), given=key)


def _refused_layers(config: _Config, key: str, child: Marked) -> Iterator[InputError]:
    """Layers of kinds that the family does not have, and a list that is not of all layers."""
    family, words = config.family, list(_words_of_layers(config.family, key, child))
    known = sorted(name.removeprefix(f"{key}__") for name in _named(family) if name.startswith(f"{key}__"))
    for word in dict.fromkeys(words):
        if word not in known:
            fact = f"family {family.name} has no layers such as '{short(word)}'"
            yield InputError(fact, where=child.where, path=key, known=known, given=word)
    layers = config.numbers.get("num_hidden_layers", len(words))
    if words and len(words) != layers:
        yield InputError(f"says {len(words)} layers, num_hidden_layers {layers:g}", where=child.where, path=key)


def _read_keys(family: FamilySpec) -> set[str]:
    read = {name.partition("__")[0] for name in _named(family)}
    return {*read, *family.defaults, *family.words, *family.counted, *family.letters, *family.ignored, family.inside or "model_type"}


def _known(config: _Config, said: Expression | list[Expression]) -> bool:
    """Whether the config says what an index needs; one that no block uses may be missing."""
    return any(size_names(text) <= set(config.numbers) for text in _options(said))


def _options(said: Expression | list[Expression]) -> list[Expression]:
    return said if isinstance(said, list) else [said]


def _whole(config: _Config, said: Expression | list[Expression], path: str) -> int:
    """The first expression whose keys are all there, as a whole number. Raises InputError."""
    options = _options(said)
    text = next((one for one in options if size_names(one) <= set(config.numbers)), None)
    if text is None:
        missing = [sorted(size_names(one) - set(config.numbers)) for one in options]
        for key in (key for keys in missing for key in keys):
            wrong = config.node.child(key)
            if wrong is not None and wrong.value is not None:
                raise InputError(f"'{short(str(wrong.value))}' is no number", where=wrong.where, path=key)
        fact = f"no {', nor '.join(', '.join(keys) for keys in missing)}, which family {config.family.name} needs"
        raise InputError(fact, where=config.node.where, path=missing[0][0])
    value = float(array_value(text, config.numbers, path))
    if value != round(value):
        raise InputError(f"{text} is {value:g}, not a whole number", where=config.node.where, path=path)
    return round(value)


def _checked_sizes(config: _Config, data: dict[str, Any]) -> dict[str, Any]:
    """Raise InputError for an index that operations use and the config does not give."""
    used = {name for part in ("sections", "mtp") for said in data.get(part, {}).values() for name in _indices(said)}
    for index in sorted(used - set(data["sizes"])):
        if index in config.family.sizes:
            _whole(config, config.family.sizes[index], f"sizes.{index}")
    return data


def _indices(section: dict[str, Any]) -> Iterator[str]:
    for text in section["einsums"].values():
        for inside in re.findall(r"\[([^\]]*)\]", text):
            yield from (index.strip() for index in inside.split(","))


def _quantised(root: Marked, config: _Config) -> Quantised | None:
    """What a config says of quantised weights, of the model or of its inner config; None: nothing."""
    inner = root.child("text_config")
    said = [one.child("quantization_config") for one in (root, inner, config.node) if one is not None]
    found = next((one for one in said if one is not None and one.mapping), None)
    layers = next((int(config.numbers[key]) for key in ("num_hidden_layers", "n_layer") if key in config.numbers), 1)
    return quantised(found, layers) if found is not None else None


def _left_as_they_are(data: dict[str, Any], found: Quantised) -> dict[str, Any]:
    """Weights that the checkpoint does not quantise say so."""
    operands = {name for part in ("sections", "mtp") for said in data.get(part, {}).values() for name in _weights(said)}
    for name in sorted(operands):
        if "precision" not in data["tensors"].get(name, {}) and found.leaves(name):
            data["tensors"].setdefault(name, {})["precision"] = "bf16"
    return data


def _weights(section: dict[str, Any]) -> Iterator[str]:
    for text in (*section["einsums"].values(), *filter(None, section.get("prompts", {}).values())):
        yield from re.findall(r"\bW\w*(?=\[)", text)


def _label(path: Path) -> str:
    stem = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    clean = re.sub(r"\W+", "_", stem.removesuffix(".config"), flags=re.A).strip("_").lower() or "model"
    return clean if not clean[0].isdigit() else f"_{clean}"


def _written(label: str, data: dict[str, Any], config: _Config, precision: dict[str, str], file: str) -> ImportedModel:
    source = f"imported from {file} as family {config.family.name}: {config.family.source}"
    body = render(label, data, precision, source, config.family.note)
    try:
        graph = build_graph(compose(body, f"<{label}>"))
    except InputError as problem:  # what the config says is impossible: of its file, not of a text that nobody has seen
        raise InputError(f"makes no workload: {problem.message}", where=config.node.where, path=problem.path)
    count, active = parameters(graph), active_parameters(graph)
    said = f"{count / 1e9:.4g} billion weights, {active / 1e9:.4g} billion for a token"
    step = "a decoder's step as a server takes it" if "serving" in data else "a training step"
    head = f"# {label}: {said}, {step}; by `rackmodel import`.\n"
    return ImportedModel(label, head + body, config.family.name, count, active)


def render(label: str, data: dict[str, Any], precision: dict[str, str], source: str, note: str | None) -> str:
    """The text of a workload file. data: as `compose_decoder` makes it."""
    return "\n".join(_lines(label, data, precision, source, note)) + "\n"


def _lines(label: str, data: dict[str, Any], precision: dict[str, str], source: str, note: str | None) -> Iterator[str]:
    """The file, a line an operation and a tensor."""
    yield f"workload: {label}"
    yield from (f"{key}: {_flow(data[key])}" for key in ("phases", "serving", "routing") if key in data)
    yield from (f"sizes: {_flow(data['sizes'])}", f"precision: {_flow(precision)}")
    for part in ("sections", "mtp"):
        if part in data:
            yield from (f"{part}:", *_sections(data[part]))
    yield "tensors:"
    yield from (f"  {name}: {_flow(said)}" for name, said in data["tensors"].items() if said)
    yield from (f"{key}: {json.dumps(text, ensure_ascii=False)}" for key, text in (("source", source), ("note", note)) if text)


def _sections(sections: dict[str, Any]) -> Iterator[str]:
    for name, section in sections.items():
        yield f"  {name}:"
        if "repeat" in section:
            yield f"    repeat: {section['repeat']}"
        for table in ("einsums", "prompts"):
            if table in section:
                yield f"    {table}:"
                yield from (f"      {op}: {text or ''}".rstrip() for op, text in section[table].items())


def _flow(value: Any) -> str:
    """A value in one line: text is quoted where it is more than a word or two."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    plain = re.fullmatch(r"[A-Za-z0-9_]+( bit)?", str(value))
    return str(value) if plain else json.dumps(str(value))
