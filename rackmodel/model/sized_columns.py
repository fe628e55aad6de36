"""Workloads of one graph that differ in sizes alone, as one whose sizes are columns: what is priced on arrays of meshes is priced on arrays
of models by the same lines.

A size that all of them have is a number, any other an array [n]; so is what follows from it of a tensor (its extents, its density), and how
many layers a section has.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.model.workload import Section, Tensor, Workload


def graph_key(workload: Workload, free: frozenset[str]) -> Hashable:
    """What workloads of one graph must share to be columns of one. free: sizes that may differ, and with them those that take theirs."""
    pinned = tuple((name, size) for name, size in workload.sizes.items() if not {name, workload.aliases.get(name)} & free)
    tensors = workload.tensors.items()
    densities = tuple((name, tensor.said, tensor.density < 1, tensor.crowded) for name, tensor in tensors)  # at sizes, what these come to
    return workload.unsized, pinned, densities


def as_columns(workloads: Sequence[Workload], which: Ints) -> Workload:
    """The workload whose column i has the sizes of workloads[which[i]]. All of them have one `graph_key`."""
    if len(workloads) == 1:
        return workloads[0]
    first = workloads[0]
    sizes = {name: _column([one.sizes[name] for one in workloads], which) for name in first.sizes}
    return replace(
        first,
        sizes=sizes,
        tensors=_tensors(workloads, sizes, which),
        sections=tuple(_section([one.sections[x] for one in workloads], sizes, which) for x in range(len(first.sections))),
    )


def _section(sections: Sequence[Section], sizes: dict[str, Any], which: Ints) -> Section:
    layers = _column([one.repeat for one in sections], which)
    own = [one.workload for one in sections]
    return replace(sections[0], workload=replace(own[0], sizes=sizes, tensors=_tensors(own, sizes, which)), repeat=layers)


def _tensors(workloads: Sequence[Workload], sizes: dict[str, Any], which: Ints) -> dict[str, Tensor]:
    """Tensors at sizes that are columns: of a rank that is an index of the workload the very array of that index."""
    found = {}
    for name, tensor in workloads[0].tensors.items():
        extents = list(zip(*(one.tensors[name].sizes for one in workloads), strict=True))
        found[name] = replace(
            tensor,
            sizes=tuple(sizes[r] if r in sizes else _column(own, which) for r, own in zip(tensor.ranks, extents, strict=True)),
            density=_column([one.tensors[name].density for one in workloads], which),
        )
    return found


def _column(values: Sequence[float], which: Ints) -> Any:
    """Values of some workloads over the columns; one number where they agree."""
    return values[0] if len(set(values)) == 1 else np.array(values, dtype=np.float64)[which]
