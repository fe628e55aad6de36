"""The mapspace: every mesh with a pipeline, every micro-batch, every plan that a mapper declares for a workload.

A mapper's axes, one of which may be a pipeline, give degrees whose product is the accelerators, and an order, which gives strides.
Meshes whose axes factor alike (tp, or tp_g and tp_q where heads are shared) form a group and are priced together: its columns are
meshes x micro-batches, its variants the plans. Where choices are left free each mesh and micro-batch is a layout problem of its own
(mapper/layouts), whose best plan becomes a group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cycles import rarely_looked_for
from rackmodel.errors import InputError
from rackmodel.mapper.layouts.problem import LayoutProblem, OpenMesh
from rackmodel.mapper.listed_choices import degrees_of, home_sets, laid_out, listed, parted, policies_of, strides_of, words
from rackmodel.mapper.relevance import check_mapper
from rackmodel.mapper.replicas import with_replicas
from rackmodel.mapper.rules import (
    Factors,
    Flat,
    axis_factors,
    divisors,
    domain,
    left_free,
    of_any_degree,
    run_of,
    saves_of,
    stages_of,
    stream_layout,
)
from rackmodel.mapper.shared_out import AlikeLayouts, SharedOut, uneven_share
from rackmodel.model.layout import Choice, batch_choice, index_split
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.schedules import chunk_counts
from rackmodel.model.workload import Workload
from rackmodel.once import once

Splits: TypeAlias = dict[tuple[tuple[str, ...], tuple[int, ...]], str]

PLAIN = "1f1b"  # of one stage, and where a mapper lists schedules that need more than there is
MICRO_BATCH = "micro-batch that does not divide"
"""Why a mesh is left out: no micro-batch that the mapper lists divides the batch of a rank."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One plan of a group: what the mapper leaves open besides mesh and micro-batch."""

    layout: str
    recompute: str
    home: int
    offload: tuple[str, ...]
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Group:
    """Meshes whose axes factor alike, the plans on them. parents: sub-axis → axis of the mapper · found: whether its plans are some of free
    layouts, which are counted apart · solver: what found them · pattern: groups of one number have the same axes, and their plans are from
    one list."""

    columns: Columns
    parents: tuple[str, ...]
    variants: tuple[Variant, ...]
    found: bool = False
    solver: str = ""
    pattern: int = 0


@dataclass(frozen=True, kw_only=True)
class Mapspace:
    """Everything a mapper declares for a workload on N accelerators. problems: layouts to be found · skipped: meshes left out, by reason ·
    note: what a person should know of the space."""

    mapper: MapperSpec
    workload: Workload
    accelerators: int
    groups: tuple[Group, ...]
    problems: tuple[LayoutProblem, ...]
    skipped: dict[str, float]
    interleave: tuple[int, ...]
    schedules: tuple[str, ...]
    note: str = ""

    @property
    def meshes(self) -> int:
        """Distinct placed meshes."""
        placed = sum(
            len(np.unique(np.column_stack([g.columns.degrees[:, :-1], g.columns.strides[:, :-1], g.columns.stages]), axis=0))
            for g in self.groups
        )
        return placed + len({(p.mesh.degrees[:-1], p.mesh.strides[:-1]) for p in self.problems})

    @property
    def even(self) -> bool:
        """Whether every stage has as many layers, all of one policy: neither the cut nor each layer's policy is open."""
        return self.mapper.cut != "free" and self.mapper.recompute != "per layer"

    def pipelines(self, stages: int) -> list[tuple[str, int]]:
        """(schedule, chunks of a stage) of a pipeline of so many stages; one for no pipeline."""
        if stages == 1:
            return [(PLAIN, 1)]
        found = [(schedule, chunks) for schedule in self.schedules for chunks in chunk_counts(schedule, self.interleave)]
        return found or [(PLAIN, 1)]

    @property
    def size(self) -> float:
        """Points: layouts where they are free, else plans x columns (times overlaps and schedules, which the search counts)."""
        fixed = sum(float(len(group.variants)) * len(group.columns) for group in self.groups)
        return fixed + sum(problem.size for problem in self.problems)


@rarely_looked_for()
def build_mapspace(mapper: MapperSpec, workload: Workload, accelerators: int, hosts: frozenset[str] = frozenset()) -> Mapspace:
    """The space. hosts: levels of which several instances are in use: what has its home at one of them is kept by each accelerator for
    itself, at the instance above it. Raises InputError where the file contradicts the workload or the machine."""
    check_mapper(mapper, workload)
    return MeshBuilder(with_replicas(mapper, workload), workload, accelerators, hosts).build()


Placed = tuple[dict[str, int], dict[str, int]]  # degrees and strides by axis


class MeshBuilder:
    """Meshes of a mapper, and the plans on them."""

    def __init__(self, mapper: MapperSpec, workload: Workload, accelerators: int, hosts: frozenset[str]) -> None:
        self.mapper, self.workload, self.accelerators, self.hosts = mapper, workload, accelerators, hosts
        cut = [name for name, axis in mapper.axes.items() if axis.stages is not None]
        if len(cut) > 1:
            raise InputError("only one axis can be the pipeline", path=f"axes.{cut[1]}.stages")
        self.pipeline = next((name for name in cut if mapper.axes[name].stages == "layers"), "")
        self.below = next((name for name in cut if name != self.pipeline), "")
        if self.below and len(workload.sections) > 1:
            raise InputError("a model of several sections is cut by layers: want stages: layers", path=f"axes.{self.below}.stages")
        self.stages = stages_of(mapper, workload)
        self.count = max(self.stages.values(), default=0) + 1
        if accelerators % self.count:
            known = [f"accelerators={self.count * max(1, accelerators // self.count)}"]
            raise InputError(f"{self.count} pipeline stages do not divide {accelerators} accelerators", path="axes", known=known)
        if self.count > 1 and workload.sections[0].repeat > 1:
            raise InputError("a cut below the layer is of one layer: this graph repeats", path=f"axes.{self.below}.stages")
        self.names = [name for name in mapper.axes if name not in cut]
        self.skipped: dict[str, float] = {}
        self.first: InputError | None = None
        self.known: dict[tuple[str, int], Factors] = {}
        self._batches: dict[int, tuple[list[tuple[int, int]], str]] = {}

    def build(self) -> Mapspace:
        """Every mesh, in groups."""
        patterns: dict[object, list[Placed]] = {}
        each = self.accelerators // self.count
        axes = [name for name in self.mapper.axes if name != self.below]
        for degrees in degrees_of(self.mapper, axes, each, self.pipeline, self.workload.layers):
            try:
                key = tuple((name, self.factored(name, degrees[name])) for name in self.names)
            except InputError as problem:
                self._skip("uneven split", problem)
                continue
            shape = tuple((name, tuple((sub, index) for sub, _, index in factors)) for name, factors in key)
            for strides in strides_of(self.mapper, axes, degrees):
                patterns.setdefault(shape, []).append((degrees, strides))
        groups: list[Group] = []
        problems: list[LayoutProblem] = []
        for pattern, meshes in enumerate(patterns.values()):
            if self.is_open():
                problems += self._problems(meshes)
            else:
                groups += self._groups(meshes, pattern)
        if not groups and not problems:
            raise self._nothing()
        layers = self.workload.layers
        chunks = divisors(layers) if self.mapper.interleave == "free" else listed(self.mapper.interleave)
        return Mapspace(
            mapper=self.mapper,
            workload=self.workload,
            accelerators=self.accelerators,
            groups=tuple(groups),
            problems=tuple(problems),
            skipped=self.skipped,
            interleave=tuple(chunks),
            schedules=tuple(words(self.mapper.schedule)),
        )

    def _nothing(self) -> InputError:
        """Why no mesh is left: of one mesh its own reason, of several how many each left out and the first one's reason."""
        if self.first is not None and sum(self.skipped.values()) == 1:
            return self.first
        why = ", ".join(f"{v:g} by {k}" for k, v in self.skipped.items()) or "none tried"
        such = "" if self.first is None else f"; {self.first.message}"
        fact = f"no mesh of {self.accelerators} accelerators divides this model's sizes and batch ({why}{such})"
        return InputError(fact, path="micro_batch" if set(self.skipped) == {MICRO_BATCH} else "axes")

    def _skip(self, why: str, problem: InputError | None = None) -> None:
        self.skipped[why] = self.skipped.get(why, 0.0) + 1
        self.first = self.first or problem

    def factored(self, axis: str, degree: int) -> Factors:
        """axis_factors of this mapper and workload, remembered."""
        return once(self.known, (axis, degree), lambda: axis_factors(self.mapper, self.workload, axis, degree))

    def is_open(self) -> bool:
        """Whether some choice of an operation, copy or home is to be found. Raises InputError where those are not searched."""
        path = next(left_free(self.mapper), "")
        if path and self.count > 1:
            raise InputError("free choices on a pipeline are not searched yet: fix them in `split` or `choose`", path=path)
        if path and (self.pipeline or len(self.workload.sections) > 1):
            fact = "of a model of several sections or on a pipeline one axis can be free, in `split` or in a layout's, and nothing else"
            raise InputError(fact, path=path)
        return bool(path)

    # -- fixed choices ---------------------------------------------------------------------------------------------------

    def subs(self, degrees: Mapping[str, int]) -> list[tuple[str, Flat, str]]:
        return [(sub, index, name) for name in self.names for sub, _, index in self.factored(name, degrees[name])]

    def _groups(self, meshes: Sequence[Placed], pattern: int) -> Iterator[Group]:
        """Meshes of one pattern, by the layouts that divide on them and by the axes that those split the batch over."""
        axes, parents, flat, variants = self.plans_on(meshes[0][0])
        kinds = self._kinds(variants, axes, flat)
        rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        shared: dict[tuple[int, ...], dict[int, SharedOut]] = {}  # by degrees: which kinds do not divide, and what of them
        for degrees, strides in meshes:
            own, gaps = self.placed(degrees, strides)
            key = tuple(own)
            if key not in shared:
                shared[key] = {number: one for number, kind in enumerate(kinds) if (one := uneven_share(kind.shares, own)) is not None}
            uneven = shared[key]
            if uneven:
                why = "uneven split" if len(uneven) == len(kinds) else "uneven split of some layouts"
                self._skip(why, self.first or next(iter(uneven.values())).problem(own, parents))
            fitting: dict[frozenset[int], tuple[str, ...]] = {}
            for number, kind in enumerate(kinds):
                if number not in uneven:
                    fitting[kind.over_batch] = (*fitting.get(kind.over_batch, ()), *kind.layouts)
            stages, stride = (degrees[self.pipeline], strides[self.pipeline]) if self.pipeline else (1, 1)
            for over_batch, layouts in fitting.items():
                for size, count in self._micro_batches(prod(own[a] for a in over_batch)):
                    rows.setdefault(layouts, []).append(([*own, count], [*gaps, 1], stages, stride, size, count))
        names = ("degrees", "strides", "stages", "stage_strides", "micro_batch", "micro_batches")
        for layouts, some in rows.items():
            arrays = {name: np.array(column, dtype=np.int64) for name, column in zip(names, zip(*some, strict=True), strict=True)}
            arrays |= {name: arrays[name].reshape(len(some), len(axes)) for name in ("degrees", "strides")}
            on = tuple(variant for variant in variants if variant.layout in layouts)
            yield Group(columns=Columns(axes=axes, **arrays), parents=parents, variants=on, pattern=pattern)

    def _kinds(self, variants: Sequence[Variant], axes: Sequence[str], flat: dict[str, tuple[str, ...]]) -> list[AlikeLayouts]:
        """Layouts that split the same sizes over the same axes."""
        found: dict[object, AlikeLayouts] = {}
        for layout, one in {variant.layout: variant for variant in reversed(variants)}.items():
            splits = splits_of(self.workload, [one], flat)
            over_batch = frozenset(axis for (own, on) in splits if own == (self.workload.batch,) for axis in on if axis < len(axes) - 1)
            shares = self.shared_out(splits, axes, flat)
            key = over_batch, tuple((share.size, share.axes) for share in shares)
            known = found.get(key, AlikeLayouts((), shares, over_batch))
            found[key] = known._replace(layouts=(layout, *known.layouts))
        return list(reversed(found.values()))

    def placed(self, degrees: dict[str, int], strides: dict[str, int]) -> tuple[list[int], list[int]]:
        """Degrees and strides of the sub-axes."""
        own, gaps = [], []
        for name in self.names:
            parts = self.factored(name, degrees[name])
            inner = prod(d for _, d, _ in parts)
            for _, degree, _ in parts:
                inner //= degree
                own.append(degree)
                gaps.append(strides[name] * inner)
        return own, gaps

    def _micro_batches(self, ranks: int) -> list[tuple[int, int]]:
        """(samples of one rank that run together, how many such runs) that the mapper allows on `ranks` ranks of the batch. Remembered;
        where there are none, that counts each time."""
        found, why = once(self._batches, ranks, lambda: self._batched(ranks))
        if why:
            self._skip(why)
        return found

    def _batched(self, ranks: int) -> tuple[list[tuple[int, int]], str]:
        """(the same, why there are none)."""
        said, batch = self.mapper.micro_batch, self.workload.batch
        if not batch:
            if said not in ("whole", "free"):
                raise InputError("this workload has no batch that micro-batches could split", path="micro_batch")
            return [(1, 1)], ""
        local, rest = divmod(self.workload.sizes[batch], ranks)
        if rest:
            fullest = local + 1  # samples of the rank that has most: it runs them together
            if self.mapper.may_be_uneven(batch) and (isinstance(said, str) or fullest in listed(said)):
                return [(fullest, 1)], ""
            return [], "batch does not divide"
        sizes = [local] if said == "whole" else divisors(local) if said == "free" else [s for s in listed(said) if local % s == 0]
        return [(size, local // size) for size in sizes], "" if sizes else MICRO_BATCH

    def shared_out(self, splits: Splits, axes: Sequence[str], flat: dict[str, tuple[str, ...]]) -> list[SharedOut]:
        """What has to divide, where an uneven share is an error, and what an operation has of a flattening: parts of heads that begin
        inside a group, whose keys and values several ranks then need, are not priced."""
        if self.mapper.uneven == "ceil":
            return []
        found: dict[tuple[int, tuple[int, ...]], SharedOut] = {}
        for (own, on), op in splits.items():
            whole = next((said for a in on if own[0] in (said := flat.get(axes[a], ()))), own)
            reaches = prod(self.workload.sizes[i] for i in whole if i not in own) > 1
            if self.mapper.may_be_uneven(*own) and not reaches:
                continue
            size = prod(self.workload.sizes[i] for i in own)
            what = f"{' x '.join(own)} = {size} of {op}"
            found.setdefault((size, on), SharedOut(size, tuple(a for a in on if a < len(axes) - 1), on[0], what, whole if reaches else ()))
        return list(found.values())

    def plans_on(
        self, degrees: Mapping[str, int]
    ) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, tuple[str, ...]], tuple[Variant, ...]]:
        """What meshes that factor alike share: axes and the mapper's axes that they are of, micro-batches last, the indices of those that
        split flattened ones, and plans."""
        subs = self.subs(degrees)
        axes, parents = (*(sub for sub, *_ in subs), MICRO), (*(name for *_, name in subs), MICRO)
        flat = {sub: run for sub, index, _ in subs if len(run := run_of(index)) > 1}
        return axes, parents, flat, self._variants(axes, parents, [index for _, index, _ in subs], flat)

    def _variants(
        self, axes: tuple[str, ...], parents: tuple[str, ...], indices: Sequence[Flat], flat: dict[str, tuple[str, ...]]
    ) -> tuple[Variant, ...]:
        mapper, workload = self.mapper, self.workload
        layouts = {name: laid_out(mapper, said) for name, said in mapper.layouts.items()} or {"": mapper}
        known: dict[Any, Any] = {}  # layouts differ in some operations: the others' passes are the same
        variants = []
        for name, own in layouts.items():
            choices: dict[str, tuple[Choice, ...]] = {}
            asked = of_any_degree(own)
            for op in workload.ops.values():
                spatial = (domain(asked, workload, op, p, i, 2)[0] for p, i in zip(parents[:-1], indices, strict=True))
                choices[op.name] = (*spatial, batch_choice(op, workload))
            stream = stream_layout(own, workload, choices, parents)
            for recompute, (number, home) in itertools.product(policies_of(mapper), enumerate(home_sets(mapper))):
                here, parked = parted(home, self.hosts)
                plan = Plan(
                    axes=axes,
                    choices=choices,
                    boundary=stream,
                    stages=self.stages,
                    homes={w: h.on(lambda said: under(axes, parents, said)) for w, h in here.items()},
                    handover=dict(mapper.handover),
                    save=saves_of(own),
                    recompute=recompute,
                    rerun=mapper.rerun,
                    uneven=mapper.unevenly,
                    flat=flat,
                    known=known,
                )
                for offload in mapper.offload or [[]]:
                    kept = tuple(dict.fromkeys((*offload, *parked)))
                    variants.append(Variant(layout=name, recompute=recompute, home=number, offload=kept, plan=plan))
        return tuple(variants)

    # -- free choices ------------------------------------------------------------------------------------------------------

    def _problems(self, meshes: Sequence[Placed]) -> Iterator[LayoutProblem]:
        """One layout problem a mesh, micro-batch and policy of recompute. Raises InputError where a mapper lists homes of a weight."""
        for name, said in self.mapper.homes.items():
            if isinstance(said, list) and len(said) > 1:
                raise InputError("where layouts are free a home is given or free, not a list", path=f"homes.{name}")
        for degrees, strides in meshes:
            subs = self.subs(degrees)
            own, gaps = self.placed(degrees, strides)
            over_batch = [d for d, (_, _, name) in zip(own, subs, strict=True) if self._splits_batch(name)]
            for (_, count), recompute in itertools.product(self._micro_batches(prod(over_batch)), policies_of(self.mapper)):
                try:
                    mesh = OpenMesh.of(self.mapper, self.workload, subs, own, gaps, count)
                except InputError as problem:
                    self._skip("uneven split", problem)
                    break
                yield LayoutProblem(self.mapper, self.workload, mesh, recompute)

    def _splits_batch(self, axis: str) -> bool:
        said = self.mapper.split.get(axis, [])
        return isinstance(said, list) and self.workload.batch in said


def splits_of(workload: Workload, variants: Sequence[Variant], flat: dict[str, tuple[str, ...]]) -> Splits:
    """(indices that an operation has of what axes split together, the axes) → the first operation that does so, over all plans."""
    found: Splits = {}
    for variant in variants:
        for name, choices in variant.plan.choices.items():
            for index in dict.fromkeys(index for c in choices[:-1] if (index := index_split(c)) is not None):
                on = tuple(a for a, c in enumerate(choices) if c == index and a < len(choices) - 1)
                whole = next((said for a in on if index in (said := flat.get(variant.plan.axes[a], ()))), (index,))
                found.setdefault((tuple(i for i in whole if i in workload.ops[name].indices), on), name)
    return dict(sorted(found.items()))


def under(axes: Sequence[str], parents: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Sub-axes of some axes of the mapper."""
    return [sub for sub, parent in zip(axes, parents, strict=True) if parent in wanted]
