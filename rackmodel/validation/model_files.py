"""Workloads of models that are trained, as rows name them: files of the library, or a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rackmodel.errors import InputError
from rackmodel.inputs.problems import build
from rackmodel.inputs.published import load
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import SectionSpec, WorkloadSpec
from rackmodel.validation.words import Refused

ENDS = ("embed", "head")
"""Sections of the library's models that are no layers."""


@cache
def spec_of(name: str) -> WorkloadSpec:
    """The file of a workload, by its name or path. Raises InputError."""
    return build(WorkloadSpec, load("workload", name))


def layer_sections(spec: WorkloadSpec) -> list[SectionSpec]:
    """The sections of a model that are its layers: all but the embedding and the head."""
    return [section for name, section in spec.sections.items() if name not in ENDS]


def depth_of(spec: WorkloadSpec, sizes: Mapping[str, int | str]) -> int:
    """Layers of a model, of all its kinds. sizes: in place of its file's."""
    counts = [str(section.repeat) for section in layer_sections(spec)]
    return sum(int(sizes.get(count, spec.sizes.get(count, count))) for count in counts)


def stated_sizes(name: str, sizes: Mapping[str, int | str]) -> dict[str, int]:
    """Column of a row → what a model's file has there, as far as its sizes are called as the library's. sizes: in place of its file's.
    Raises Refused where it is no model that is trained."""
    try:
        spec, own = spec_of(name), workload_of(name).sizes | {size: int(number) for size, number in sizes.items()}
    except InputError as problem:
        raise Refused(f"{name}: {problem.message}") from None
    if not spec.sections:
        raise Refused(f"{name} is a graph of operations, no model: it has no sections")
    if "backward" not in spec.phases:
        raise Refused(f"{name} is not trained: it has no backward pass")
    found = {"layers": depth_of(spec, sizes)} | {column: own[size] for column, size in (("hidden", "d"), ("ffn", "f")) if size in own}
    if {"g", "q"} <= set(own):
        return found | {"heads": own["g"] * own["q"], "kv_heads": own["g"]}
    return found | ({"heads": own["h"], "kv_heads": own["h"]} if "h" in own else {})


def is_gated(name: str) -> bool:
    """Whether layers of a model have a gate beside what they widen."""
    return any("swiglu(" in text for section in layer_sections(spec_of(name)) for text in section.einsums.values())


def own_vocabulary(name: str) -> int:
    """Words of a model's vocabulary as its file has them."""
    return workload_of(name).sizes.get("v", 0)


@cache
def workload_of(name: str) -> Workload:
    """The workload as its file says it. Raises InputError."""
    return build_workload(spec_of(name))
