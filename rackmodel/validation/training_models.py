"""Models of training rows as workloads: a file of the library with a row's sizes, its widths and what its kernels skip."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import cache

from rackmodel.cost.program.fusion import scores
from rackmodel.errors import InputError
from rackmodel.model.resources import width
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import TensorSpec, WorkloadSpec
from rackmodel.validation.model_files import depth_of, layer_sections, spec_of, workload_of
from rackmodel.validation.training import ModelKey, TrainingCase

GRADIENT = "16 bit"
"""Of activations: products of low precision write their results, gradients among them, at 16 bit, and cast what they read (SOURCED:
pytorch/ao 024fe94, torchao/float8/float8_linear.py: grad_input is the high-precision result of torch.mm)."""
TWO_DEEP = 2


def layers_of(case: TrainingCase) -> int:
    """Layers of a case's model, of all its kinds."""
    if case.layers:
        return case.layers
    return depth_of(spec_of(case.key.model.workload), dict(case.key.model.sizes))


@cache
def _scores(name: str) -> frozenset[str]:
    """Attention's scores of a workload of the library."""
    return frozenset(tensor for section in workload_of(name).sections for tensor in scores(section.workload))


@cache
def _attended(name: str) -> frozenset[str]:
    """Queries, keys and values of a workload of the library, as its attention reads them."""
    core = _scores(name)
    ops = (op for section in workload_of(name).sections for op in section.workload.ops.values())
    inside = [op for op in ops if core & {op.out.tensor, *(access.tensor for access in op.ins)}]
    return frozenset(access.tensor for op in inside for access in op.ins) - core


@cache
def layer_kinds(name: str) -> frozenset[str]:
    """Kinds of the operations in layers of a workload of the library."""
    layers = (section for section in workload_of(name).sections if section.layer)
    return frozenset(op.kind.name for section in layers for op in section.workload.ops.values())


_FIRST: dict[Hashable, str] = {}
"""Graph of a workload → the first of those asked for that have it."""


@cache
def graph_of(name: str) -> str:
    """The first of the workloads asked for that are of one graph, whatever their sizes."""
    return _FIRST.setdefault(workload_of(name).unsized, name)


def model_of(key: ModelKey, batch: int, layers: int = TWO_DEEP, *, masked: bool = False) -> Workload:
    """The workload of a model, so many layers deep. masked: of its scores, half are made: models that predict the next token see what
    came before it, and fused kernels skip the blocks that a causal mask hides (Dao 2023, section 3.1), while products of unfused ones
    make them all. A file whose scores have a density by the length of the sequence, as imported ones do, says so itself."""
    spec = spec_of(key.workload)
    tensors = dict(spec.tensors)
    for name in _scores(key.workload):
        said = tensors.get(name, TensorSpec())
        tensors[name] = said.model_copy(update={"density": _seen(str(said.density), spec, masked=masked)})
    if key.width != "16 bit":
        for name in _operands(text for section in layer_sections(spec) for text in section.einsums.values()):
            if name in spec.tensors and spec.tensors[name].precision is not None:
                continue  # (its recipe keeps it so)
            gradient = None if _weight(name) or width(key.width) >= width(GRADIENT) else GRADIENT
            tensors[name] = tensors.get(name, TensorSpec()).model_copy(update={"precision": key.width, "gradient": gradient})
    for name in _attended(key.workload) if key.attention else ():
        tensors[name] = tensors.get(name, TensorSpec()).model_copy(update={"precision": key.attention, "gradient": GRADIENT})
    sections, phases = dict(spec.sections), spec.phases
    if key.alone and "block" not in sections:
        raise InputError(f"one layer of {key.workload}, which has several kinds")
    if key.alone:
        sections = {"block": spec.sections["block"].model_copy(update={"repeat": 1})}
        phases = ("forward", "backward")
        text = " ".join(sections["block"].einsums.values())
        tensors = {name: said for name, said in tensors.items() if f"{name}[" in text}
    sizes = {**spec.sizes, **dict(key.sizes), "b": batch} | ({"layers": layers} if "layers" in spec.sizes else {})
    update: dict[str, object] = {"sizes": sizes, "tensors": tensors, "sections": sections, "phases": phases}
    if key.gradient:
        update["precision"] = spec.precision.model_copy(update={"gradient": key.gradient})
    return build_workload(spec.model_copy(update=update))


def _seen(density: str, spec: WorkloadSpec, *, masked: bool) -> str:
    """Share of the scores that are made. density: as a model's file says it."""
    if set(re.findall(r"[A-Za-z]\w*", density)) & set(spec.sizes):
        return density if masked else "1"
    return f"({density})/2" if masked else density


def _operands(einsums: Iterable[str]) -> list[str]:
    """Operands of products with weights, the router apart: what a low-precision recipe casts."""
    products = (re.findall(r"(\w+)\[", text.partition("=")[2]) for text in einsums if "*" in text)
    return list(dict.fromkeys(name for pair in products if any(_weight(name) for name in pair) for name in pair))


def _weight(name: str) -> bool:
    """Whether the library's models call a layer's weight so."""
    return name.startswith("W") and name != "WR"
