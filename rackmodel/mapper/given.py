"""Meshes that are given, not searched: the columns of many at once, beside the plan that they share.

Where `mapspace` lists what a mapper allows, this places what is asked for: degrees and micro-batches of each mesh are known, and
the batch of the workload is any multiple of what all of them run, so that steps of unequal batches share their arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.errors import InputError
from rackmodel.mapper.listed_choices import strides_of
from rackmodel.mapper.mapspace import MeshBuilder, splits_of
from rackmodel.mapper.shared_out import SharedOut, uneven_share
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload


@dataclass(frozen=True)
class GivenMesh:
    """degrees: of every axis of the mapper, the pipeline too (their product is the accelerators) · micro_batch, micro_batches: samples of a
    rank that run together, and how many such runs a step has."""

    degrees: Mapping[str, int]
    micro_batch: int
    micro_batches: int


@dataclass(frozen=True)
class GivenColumns:
    """Meshes whose axes factor alike. numbers: which of those asked for, a column each."""

    numbers: tuple[int, ...]
    columns: Columns
    plan: Plan


@dataclass(frozen=True)
class GivenShape:
    """How the axes of a mapper factor: sub-axes, their parents, what they flatten, and the plan on them."""

    axes: tuple[str, ...]
    parents: tuple[str, ...]
    shares: list[SharedOut]
    over_batch: frozenset[int]
    plan: Plan


def given_columns(
    mapper: MapperSpec, workload: Workload, meshes: Sequence[GivenMesh], known: dict[object, GivenShape] | None = None
) -> tuple[list[GivenColumns], dict[int, InputError]]:
    """The columns of the meshes by how their axes factor, and why the others cannot be. The mapper leaves nothing else open. known: plans
    that meshes of this mapper and workload have, by how their axes factor.

    Raises InputError where the mapper contradicts the workload.
    """
    builder = MeshBuilder(mapper, workload, max(prod(mesh.degrees.values()) for mesh in meshes), frozenset())
    shapes = {} if known is None else known
    rows: dict[object, list[tuple[int, tuple[list[int], ...]]]] = {}
    refused: dict[int, InputError] = {}
    for number, mesh in enumerate(meshes):
        try:
            key = tuple((sub, index) for name in builder.names for sub, _, index in builder.factored(name, mesh.degrees[name]))
            if key not in shapes:
                shapes[key] = _shape(builder, mesh)
            placed = _row(builder, shapes[key], mesh)
            rows.setdefault(key, []).append((number, placed))
        except InputError as problem:
            refused[number] = problem
    found = []
    for pattern, own in rows.items():
        shape, parts = shapes[pattern], list(zip(*(row for _, row in own), strict=True))
        degrees, strides = (np.array(part, dtype=np.int64).reshape(len(own), -1) for part in parts[:2])
        stages, gaps, size, count = np.array([row[2] for _, row in own], dtype=np.int64).T
        columns = Columns(
            axes=shape.axes, degrees=degrees, strides=strides, stages=stages, stage_strides=gaps, micro_batch=size, micro_batches=count
        )
        plan = replace(shape.plan, known={})  # what a plan knows of operations is of the profile and sizes that it was asked for
        found.append(GivenColumns(tuple(number for number, _ in own), columns, plan))
    return found, refused


def _shape(builder: MeshBuilder, mesh: GivenMesh) -> GivenShape:
    """What the meshes that factor as this one share."""
    axes, parents, flat, variants = builder.plans_on(mesh.degrees)
    if len(variants) != 1:
        raise InputError(f"{len(variants)} plans where one is meant: the mapper leaves a choice open", path="layouts")
    splits = splits_of(builder.workload, variants, flat)
    over_batch = frozenset(axis for own, on in splits if own == (builder.workload.batch,) for axis in on)
    return GivenShape(axes, parents, builder.shared_out(splits, axes, flat), over_batch, variants[0].plan)


def _row(builder: MeshBuilder, shape: GivenShape, mesh: GivenMesh) -> tuple[list[int], list[int], list[int]]:
    """(degrees with the micro-batches behind them, strides, [stages, their stride, micro-batch, micro-batches]) of one mesh. Raises
    InputError where it does not divide."""
    strides = next(iter(strides_of(builder.mapper, list(builder.mapper.axes), dict(mesh.degrees))))
    own, gaps = builder.placed(dict(mesh.degrees), strides)
    uneven = uneven_share(shape.shares, own)
    if uneven is not None:
        raise uneven.problem(own, shape.parents)
    samples = prod(own[axis] for axis in shape.over_batch if axis < len(own)) * mesh.micro_batch
    runs, rest = divmod(builder.workload.sizes[builder.workload.batch], samples)
    if rest:
        raise InputError(f"{samples} samples do not divide the batch", path="micro_batch")
    stages, stride = (mesh.degrees[builder.pipeline], strides[builder.pipeline]) if builder.pipeline else (1, 1)
    return [*own, runs, mesh.micro_batches], [*gaps, 1], [stages, stride, mesh.micro_batch, mesh.micro_batches]
