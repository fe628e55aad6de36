"""The mapspace of a training step: every mesh with a pipeline, every micro-batch, every plan a mapper declares.

A mapper's axes, one of which may be a pipeline over layers, give degrees whose product is the accelerators, and an order,
which gives strides. Meshes whose axes factor alike (tp, or tp_g and tp_q where heads are shared) form a group and are
priced together; a column of a group is one mesh with one micro-batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.network.algorithms import ALGORITHMS
from rackmodel.cost.step.step_price import Columns
from rackmodel.errors import InputError
from rackmodel.model.layout import Choice, Layout
from rackmodel.model.mapping import HomeSpec, MapperSpec
from rackmodel.model.plan import Plan, default_boundary
from rackmodel.model.workload import Workload
from rackmodel.search.mapspace import axis_factors, boundary_edge, choice_domain, divisors

Ints = NDArray[np.int64]
Factors = list[tuple[str, int, tuple[str, ...]]]
MICRO = "micro"
POLICIES = ("none", "selective", "full")


@dataclass(frozen=True)
class Variant:
    """One plan of a group: what the mapper leaves open besides mesh and micro-batch."""

    layout: str
    recompute: str
    home: int
    offload: tuple[str, ...]
    plan: Plan


@dataclass(frozen=True)
class Group:
    """Meshes whose axes factor alike, the plans on them. parents: sub-axis → axis of the mapper · flat: as in a Plan."""

    columns: Columns
    parents: tuple[str, ...]
    flat: dict[str, tuple[str, ...]]
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class StepSpace:
    """Everything a mapper declares for a model on N accelerators. skipped: meshes left out, by reason."""

    mapper: MapperSpec
    workload: Workload
    accelerators: int
    groups: tuple[Group, ...]
    skipped: dict[str, float]
    interleave: tuple[int, ...]
    schedules: tuple[str, ...]


def build_step_space(mapper: MapperSpec, workload: Workload, accelerators: int) -> StepSpace:
    """The space. Raises InputError where the file contradicts the workload or the machine."""
    pipeline = [name for name, axis in mapper.axes.items() if axis.stages is not None]
    for name in pipeline:
        if mapper.axes[name].stages != "layers":
            raise InputError("a model in sections is cut by layers: want stages: layers", path=f"axes.{name}.stages")
    if len(pipeline) > 1:
        raise InputError("only one axis can be the pipeline", path=f"axes.{pipeline[1]}.stages")
    layers = sum(section.repeat for section in workload.sections if section.layer)
    skipped: dict[str, float] = {}
    patterns: dict[object, list[tuple[dict[str, int], dict[str, int]]]] = {}
    factored = _factored(mapper, workload)
    for degrees in _degrees(mapper, accelerators, pipeline, layers):
        try:
            key = tuple((name, factored(name, d)) for name, d in degrees.items() if name not in pipeline)
        except InputError:
            skipped["uneven split"] = skipped.get("uneven split", 0.0) + 1
            continue
        shape = tuple((name, tuple((sub, index) for sub, _, index in factors)) for name, factors in key)
        for strides in _strides(mapper, degrees):
            patterns.setdefault(shape, []).append((degrees, strides))
    groups = [_group(mapper, workload, meshes, pipeline, skipped, factored) for meshes in patterns.values()]
    found = tuple(group for group in groups if group is not None)
    if not found:
        raise InputError(
            f"no mesh of {accelerators} accelerators divides this model's sizes and batch "
            f"({', '.join(f'{v:g} by {k}' for k, v in skipped.items()) or 'none tried'})",
            path="axes",
        )
    chunks = divisors(layers) if mapper.interleave == "free" else _listed(mapper.interleave)
    return StepSpace(mapper, workload, accelerators, found, skipped, tuple(chunks), tuple(_words(mapper.schedule)))


def _factored(mapper: MapperSpec, workload: Workload) -> Callable[[str, int], Factors]:
    """axis_factors of this mapper and workload, remembered."""
    known: dict[tuple[str, int], Factors] = {}

    def factors(axis: str, degree: int) -> Factors:
        key = (axis, degree)
        if key not in known:
            known[key] = axis_factors(mapper, workload, axis, degree)
        return known[key]

    return factors


def _listed(said: int | list[int] | str) -> list[int]:
    return [said] if isinstance(said, int) else [int(value) for value in said]


def _words(said: str | Sequence[str]) -> list[str]:
    return [said] if isinstance(said, str) else list(said)


def _degrees(mapper: MapperSpec, total: int, pipeline: Sequence[str], layers: int) -> Iterator[dict[str, int]]:
    """Degrees of every axis whose product is `total`; a pipeline has at most as many stages as there are layers."""
    names = list(mapper.axes)
    rests = [name for name in names if mapper.axes[name].degree == "rest"]
    if len(rests) > 1:
        raise InputError("only one axis can take the rest", path=f"axes.{rests[1]}.degree")
    open_axes = [name for name in names if name not in rests]
    found = False

    def walk(position: int, left: int, chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        if position == len(open_axes):
            if rests:
                yield {name: chosen.get(name, left) for name in names}
            elif left == 1:
                yield {name: chosen[name] for name in names}
            return
        name = open_axes[position]
        said = mapper.axes[name].degree
        options = divisors(left) if said == "free" else [total] if said == "all" else _listed(said)
        for degree in options:
            if left % degree == 0 and not (name in pipeline and degree > layers):
                yield from walk(position + 1, left // degree, {**chosen, name: degree})

    for degrees in walk(0, total, {}):
        if all(degrees[name] <= layers for name in pipeline):
            found = True
            yield degrees
    if not found:
        said = ", ".join(f"{name}: {mapper.axes[name].degree}" for name in names) or "no axes"
        raise InputError(f"no mesh of {total} accelerators: the product of the degrees ({said}) must be {total}", path="axes")


def _strides(mapper: MapperSpec, degrees: dict[str, int]) -> Iterator[dict[str, int]]:
    """Strides for every order the mapper allows, each distinct placement once: `outer` axes, then listed and free ones, then `inner`."""
    rank = {"outer": 0, None: 1, "inner": 2}
    names = list(mapper.axes)
    fixed = sorted((n for n in names if mapper.axes[n].place != "free"), key=lambda n: rank.get(mapper.axes[n].place, 1))
    free = [n for n in names if mapper.axes[n].place == "free" and degrees[n] > 1]
    alone = [n for n in names if mapper.axes[n].place == "free" and degrees[n] == 1]
    held = [n for n in fixed if degrees[n] > 1]
    for order in itertools.permutations([*held, *free]) if free else [tuple(held)]:
        ends = [rank.get(mapper.axes[n].place, 1) for n in order]
        if [n for n in order if n not in free] != held or ends != sorted(ends):
            continue
        stride, strides = 1, {}
        for name in reversed(order):
            strides[name] = stride
            stride *= degrees[name]
        yield {**dict.fromkeys((*fixed, *alone), 1), **strides}


def _group(
    mapper: MapperSpec,
    workload: Workload,
    meshes: Sequence[tuple[dict[str, int], dict[str, int]]],
    pipeline: Sequence[str],
    skipped: dict[str, float],
    factored: Callable[[str, int], Factors],
) -> Group | None:
    names = [name for name in mapper.axes if name not in pipeline]
    factors = {name: factored(name, meshes[0][0][name]) for name in names}
    subs = [(sub, index, name) for name in names for sub, _, index in factors[name]]
    axes = (*(sub for sub, *_ in subs), MICRO)
    flat = {sub: index for sub, index, _ in subs if len(index) > 1}
    parents = (*(name for *_, name in subs), MICRO)
    variants = _variants(mapper, workload, axes, parents, [index for _, index, _ in subs], flat)
    batch = workload.sizes[workload.batch]
    splits = _splits(workload, variants)
    over_batch = next((axes_of for index, axes_of in splits if index == workload.batch), ())
    rows = []
    for degrees, strides in meshes:
        own, gaps = [], []
        for name in names:
            stride = strides[name]
            parts = factored(name, degrees[name])
            inner = prod(d for _, d, _ in parts)
            for _, degree, _ in parts:
                inner //= degree
                own.append(degree)
                gaps.append(stride * inner)
        if any(workload.sizes[index] % prod(own[a] for a in on if a < len(own)) for index, on in splits) and mapper.uneven == "error":
            skipped["uneven split"] = skipped.get("uneven split", 0.0) + 1
            continue
        ranks = prod(own[a] for a in over_batch if a < len(own))
        if batch % ranks:
            skipped["batch does not divide"] = skipped.get("batch does not divide", 0.0) + 1
            continue
        local = batch // ranks
        sizes = divisors(local) if mapper.micro_batch == "free" else [s for s in _listed(mapper.micro_batch) if local % s == 0]
        stages, stage_stride = (degrees[pipeline[0]], strides[pipeline[0]]) if pipeline else (1, 1)
        rows += [([*own, local // size], [*gaps, 1], stages, stage_stride, size, local // size) for size in sizes]
    if not rows:
        return None
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    return Group(Columns(axes, *columns), parents, flat, variants)


def _splits(workload: Workload, variants: Sequence[Variant]) -> list[tuple[str, tuple[int, ...]]]:
    """(index, axes that split it together) over all operations and plans."""
    found: dict[tuple[str, tuple[int, ...]], None] = {}
    for variant in variants:
        for choices in variant.plan.choices.values():
            for index in dict.fromkeys(c for c in choices if c is not None and c[0] != "+"):
                found[index, tuple(a for a, c in enumerate(choices) if c == index)] = None
    return sorted(found)


def _variants(
    mapper: MapperSpec,
    workload: Workload,
    axes: tuple[str, ...],
    parents: tuple[str, ...],
    indices: Sequence[tuple[str, ...]],
    flat: dict[str, tuple[str, ...]],
) -> tuple[Variant, ...]:
    layouts = {name: _laid_out(mapper, said) for name, said in mapper.layouts.items()} or {"": mapper}
    homes = home_sets(mapper)
    variants = []
    for name, own in layouts.items():
        choices: dict[str, tuple[Choice, ...]] = {}
        for op in workload.ops.values():
            spatial = []
            for parent, index in zip(parents[:-1], indices, strict=True):
                domain = choice_domain(own, workload, op, parent, index)
                if len(domain) > 1:
                    raise InputError("free choices inside a model are found with `layouts`", path=f"split.{parent}")
                spatial.append(domain[0])
            choices[op.name] = (*spatial, workload.batch if workload.batch in op.indices else None)
        stream = stream_layout(own, workload, choices, parents)
        known: dict[Any, Any] = {}
        for recompute in policies_of(mapper):
            for number, home in enumerate(homes):
                for offload in mapper.offload or [[]]:
                    plan = Plan(
                        axes,
                        choices,
                        stream,
                        dict.fromkeys(workload.ops, 0),
                        {w: h.model_copy(update={"axes": _under(axes, parents, h.axes)}) for w, h in home.items()},
                        _saves(own),
                        recompute,
                        mapper.rerun,
                        mapper.uneven,
                        flat,
                        temporal=True,
                        known=known,
                    )
                    variants.append(Variant(name, recompute, number, tuple(offload), plan))
    return tuple(variants)


def policies_of(mapper: MapperSpec) -> list[str]:
    """The recompute policies a mapper allows."""
    return list(POLICIES) if mapper.recompute == "per layer" else _words(mapper.recompute)


def algorithms_of(mapper: MapperSpec) -> list[str]:
    """The collectives' algorithms a mapper allows; `best` is all there are."""
    said = _words(mapper.algorithms)
    return list(ALGORITHMS) if "best" in said else said


def home_sets(mapper: MapperSpec) -> list[dict[str, HomeSpec]]:
    """Every combination of the homes a mapper lists."""
    lists = []
    for name, said in mapper.homes.items():
        if isinstance(said, str):
            raise InputError("free homes are for a single graph: list them for a model in sections", path=f"homes.{name}")
        lists.append([(name, home) for home in ([said] if isinstance(said, HomeSpec) else said)])
    return [dict(combination) for combination in itertools.product(*lists)]


def _laid_out(mapper: MapperSpec, said: object) -> MapperSpec:
    update = {}
    for key in ("split", "choose", "boundary", "save"):
        value = getattr(said, key)
        if value:
            update[key] = {**getattr(mapper, key), **value} if isinstance(value, dict) and isinstance(getattr(mapper, key), dict) else value
    return mapper.model_copy(update=update)


def _saves(mapper: MapperSpec) -> dict[str, str]:
    said = mapper.save
    if isinstance(said, str):
        if said == "free":
            raise InputError("list what is saved under `layouts` for a model in sections", path="save")
        return {} if said == "shard" else {"*": said}
    return {str(name): str(copy) for name, copy in said.items()}


def _under(axes: Sequence[str], parents: Sequence[str], wanted: Sequence[str]) -> list[str]:
    return [sub for sub, parent in zip(axes, parents, strict=True) if parent in wanted]


def stream_layout(
    mapper: MapperSpec, workload: Workload, choices: dict[str, tuple[Choice, ...]], parents: Sequence[str]
) -> dict[str, Layout]:
    """Layouts in which tensors cross the sections' edges: the residual stream as the first layer reads it, or as the mapper says."""
    first = next(section for section in workload.sections if section.layer)
    stream = default_boundary(first.stream_in, first.workload, choices)
    found: dict[str, Layout] = {}
    for section in workload.sections:
        for tensor in (*section.workload.inputs, *section.workload.outputs):
            crosses = tensor == section.stream_in or (tensor == section.stream_out and section is not workload.sections[-1])
            layout = stream if crosses else default_boundary(tensor, section.workload, choices)
            said = mapper.boundary.get(tensor, {})
            found[tensor] = tuple(
                boundary_edge(workload, tensor, parent, said[parent]) if parent in said else p
                for parent, p in zip(parents, layout, strict=True)
            )
    return found


__all__ = ["MICRO", "Group", "StepSpace", "Variant", "build_step_space", "stream_layout"]
