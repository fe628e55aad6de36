"""One layer of a model alone: with other sizes, and every layout open over one axis."""

from __future__ import annotations

from dataclasses import replace

from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Op, Section, Workload, one_section


def one_axis(mapper: MapperSpec, axis: str, degree: int, layer: Workload) -> MapperSpec:
    """A mapper that opens every layout of a layer over one axis, and its saved copies where it has a backward pass."""
    said = {"mapper": mapper.name, "axes": {axis: {"degree": degree}}, "split": {axis: "free"}, "minimize": "latency"}
    return MapperSpec.model_validate({**said, **({"save": "free"} if layer.backward else {})})


def resized(section: Section, sizes: dict[str, int]) -> Workload:
    """One layer with other sizes of some of its indices."""
    workload = section.workload
    now = {**workload.sizes, **sizes}
    ops = {name: Op(name, op.statement, now) for name, op in workload.ops.items()}
    tensors = {
        name: replace(t, sizes=tuple(sizes.get(rank, size) for rank, size in zip(t.ranks, t.sizes, strict=True)))
        for name, t in workload.tensors.items()
    }
    return one_section(replace(workload, ops=ops, tensors=tensors, sizes=now))
