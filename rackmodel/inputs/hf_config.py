"""A published config.json (Hugging Face) → the workload of a decoder's step, or of a training step, by its family's file (specs/families).

Keys are read, and refused, in hf_keys.py. No network: what the config does not say, the family's `defaults` do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackmodel.errors import InputError, Where
from rackmodel.inputs.decoders import LayerCount, active_parameters, compose_decoder, parameters
from rackmodel.inputs.graph import build_graph
from rackmodel.inputs.hf_keys import LAYERS, POSITIONS, Config, read_config
from rackmodel.inputs.hf_layers import layers_one_by_one
from rackmodel.inputs.hf_precision import EXPERTS, Quantised, quantised
from rackmodel.inputs.marked import Marked, place_of, short
from rackmodel.inputs.trained import PRECISION, trained_step
from rackmodel.inputs.yaml_marks import compose, read_text
from rackmodel.model.family import LayerKind
from rackmodel.model.sizes import size_names


@dataclass(frozen=True)
class ImportedModel:
    """A workload file: its name, text, family, how many weights it has, and by how many a token is multiplied."""

    name: str
    text: str
    family: str
    parameters: float
    active: float


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
    config = read_config(root)
    sizes = {index: config.whole(said, f"sizes.{index}") for index, said in config.family.sizes.items() if config.knows(said)}
    layers = _layers(config)
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


def _layers(config: Config) -> list[LayerCount]:
    """Layers of each kind that there are. Raises InputError where they are not as many as the config says."""
    if config.family.each is not None:
        return layers_one_by_one(config, config.family.each)
    layers = [
        LayerCount(kind.name, kind.blocks, config.whole(kind.count, f"layers.{kind.name}"), _own_sizes(config, kind))
        for kind in config.family.layers
    ]
    total, said = sum(kind.count for kind in layers), config.family.total or next((key for key in LAYERS if key in config.numbers), None)
    if not total:
        raise InputError("has no layers", where=config.node.where)
    if said is not None and config.knows(said) and total != (whole := config.whole(said, "total")):
        kinds = " and ".join(f"{kind.count} {kind.name}" for kind in layers if kind.count)
        key = next(iter(sorted(size_names(said))))
        fact = f"{whole:g}, and its kinds of layers are {total}: {kinds}"
        raise InputError(fact, where=place_of(config.node, [key]), path=key)
    return [kind for kind in layers if kind.count]


def _own_sizes(config: Config, kind: LayerKind) -> dict[str, int]:
    return {index: config.whole(said, f"sizes.{index}") for index, said in kind.sizes.items() if config.knows(said)}


def _positions(config: Config) -> dict[str, int]:
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


def _routing(config: Config) -> dict[str, Any]:
    """Groups of experts that a token's are chosen from, where a router keeps to some of them."""
    groups, kept = (int(config.numbers.get(key, 1)) for key in ("n_group", "topk_group"))
    method = config.node.child("topk_method")
    if kept > groups > 0:
        raise InputError(f"{kept} of {groups} groups (n_group)", where=place_of(config.node, ["topk_group"]), path="topk_group")
    limited = 0 < kept < groups and "x" in config.family.sizes and (method is None or method.value != "greedy")
    return {"routing": {"x": {"groups": groups, "kept": kept}}} if limited else {}


def _module(config: Config) -> LayerCount | None:
    """The layer of what predicts one token further. (Where there are several of them, servers run the first again and again.)"""
    kind = config.family.mtp
    if kind is None or not config.knows(kind.count) or not config.whole(kind.count, "mtp"):
        return None
    return LayerCount(kind.name, kind.blocks, 1)


def _trained_module(config: Config) -> LayerCount:
    """The same, where it is asked for. Raises InputError where there is none, or are several."""
    module, kind = _module(config), config.family.mtp
    if module is None or kind is None:
        raise InputError(f"a model of family {config.family.name} without a layer that predicts one token further", where=config.node.where)
    if (count := config.whole(kind.count, "mtp")) > 1:
        raise InputError(f"predicts {count} tokens further: training is put together with one", where=config.node.where)
    return module


def _checked_sizes(config: Config, data: dict[str, Any]) -> dict[str, Any]:
    """Raise InputError for an index that operations use and the config does not give."""
    used = {name for part in ("sections", "mtp") for said in data.get(part, {}).values() for name in _indices(said)}
    for index in sorted(used - set(data["sizes"])):
        if index in config.family.sizes:
            config.whole(config.family.sizes[index], f"sizes.{index}")
    return data


def _indices(section: dict[str, Any]) -> Iterator[str]:
    for text in section["einsums"].values():
        for inside in re.findall(r"\[([^\]]*)\]", text):
            yield from (index.strip() for index in inside.split(","))


def _quantised(root: Marked, config: Config) -> Quantised | None:
    """What a config says of quantised weights, of the model or of its inner config; None: nothing."""
    inner = root.child("text_config")
    said = [one.child("quantization_config") for one in (root, inner, config.node) if one is not None]
    found = next((one for one in said if one is not None and one.value), None)
    layers = next((int(config.numbers[key]) for key in LAYERS if key in config.numbers), 1)
    experts = config.node.child("expert_dtype")
    apart = EXPERTS.get(str(experts.value), "") if experts is not None else ""
    if experts is not None and apart and found is None:
        raise InputError("experts narrower than weights of which no quantization_config says", where=experts.where, path="expert_dtype")
    return replace(quantised(found, layers), apart=apart) if found is not None else None


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


def _written(label: str, data: dict[str, Any], config: Config, precision: dict[str, str], file: str) -> ImportedModel:
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
