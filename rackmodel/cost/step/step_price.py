"""Prices a group of meshes: every section's layer under every plan, and the hand-over between pipeline stages.

What comes out are the arrays a step is composed of (cost/step) and, for one point, its exact time (cost/pipeline).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import LegPricer
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.program.tasks import Program
from rackmodel.cost.step.cut import Cut, cut, even_cut
from rackmodel.cost.step.offload import host_of, offloaded
from rackmodel.cost.step.pipeline import StageTimes, simulate
from rackmodel.cost.step.price import LinkArrays
from rackmodel.cost.step.sections import LayerCost, SectionPricer
from rackmodel.cost.step.step import Figures, Sends, Step, compose, figures, join, passes
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import is_shard
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Section, Workload

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
PIECE = 8192  # columns priced at once, with all their rows in memory


@dataclass(frozen=True)
class Columns:
    """Meshes and micro-batches priced together. axes: spatial axes, then the micro-batches · degrees, strides: [n, axes] ·
    stages, stage_strides: [n] the pipeline · micro_batch, micro_batches: [n] samples of one rank, and how many."""

    axes: tuple[str, ...]
    degrees: Ints
    strides: Ints
    stages: Ints
    stage_strides: Ints
    micro_batch: Ints
    micro_batches: Ints

    def __len__(self) -> int:
        return len(self.stages)

    def pick(self, which: Ints) -> Columns:
        """Some of them."""
        return Columns(self.axes, *(value[which] for name, value in self.__dict__.items() if name != "axes"))


@dataclass(frozen=True)
class GroupPrice:
    """costs: [sections][plans] · sections: their stacked figures · sends: of each plan · hand_over: to the next stage, and
    between the first and the last · volumes, shared: [plans] of [n] bytes that they carry · host_bytes: capacity of the
    host level for one accelerator · home: level → [plans] bytes of the model that live there."""

    columns: Columns
    costs: tuple[tuple[LayerCost, ...], ...]
    sections: tuple[Figures, ...]
    sends: Sends
    hand_over: tuple[LinkArrays, LinkArrays]
    volumes: tuple[Array, ...]
    shared: tuple[Array, ...]
    repeats: tuple[int, ...]
    layers: tuple[bool, ...]
    host_bytes: float
    home: dict[str, Array]


def price_group(
    architecture: Architecture,
    workload: Workload,
    columns: Columns,
    plans: Sequence[Plan],
    profile: ProfileSpec,
    inside: LegPricer,
    algorithms: Sequence[str],
    offload: Sequence[Sequence[str]] = (),
    host: str | None = None,
) -> GroupPrice:
    """Price every plan (all of the same axes) on every column. offload: what each plan keeps at the host level.

    Many columns are priced in pieces, of which only the figures are kept: `costs` and what a ledger needs are then empty.
    """
    place = host_of(architecture, host) if any(offload) else None
    programs: dict[object, Program] = {}

    def piece(which: Ints) -> GroupPrice:
        some = columns.pick(which)
        pricer = SectionPricer(
            architecture,
            workload,
            plans[0],
            some.degrees,
            some.strides,
            profile,
            inside,
            pipeline=(some.stages, some.stage_strides),
            algorithms=algorithms,
            programs=programs,
        )
        costs = tuple(_costs(pricer, section, plans, profile) for section in workload.sections)
        if place is not None:
            costs = tuple(
                tuple(
                    offloaded(cost, what, place, pricer.per_stage) if what and cost.section.layer else cost
                    for cost, what in zip(own, offload, strict=True)
                )
                for own in costs
            )
        links, sends, volumes, shared = _sends(architecture, pricer, workload, some, plans)
        return GroupPrice(
            some,
            costs,
            tuple(figures(own) for own in costs),
            sends,
            links,
            volumes,
            shared,
            tuple(section.repeat for section in workload.sections),
            tuple(section.layer for section in workload.sections),
            place.capacity_bytes if place is not None else float("inf"),
            _at_home(workload, costs),
        )

    if len(columns) <= PIECE:
        return piece(np.arange(len(columns)))
    parts = []
    for first in range(0, len(columns), PIECE):
        part = piece(np.arange(first, min(first + PIECE, len(columns))))
        parts.append(replace(part, costs=(), volumes=(), shared=()))
    sections = tuple(join([part.sections[x] for part in parts]) for x in range(len(workload.sections)))
    sends = Sends(*(np.concatenate(side, axis=1) for side in zip(*(part.sends.__dict__.values() for part in parts), strict=True)))
    return replace(parts[0], columns=columns, sections=sections, sends=sends)


def _at_home(workload: Workload, costs: Sequence[Sequence[LayerCost]]) -> dict[str, Array]:
    """Level → [plans] bytes of the whole model that live there, which no mesh changes."""
    levels = dict.fromkeys(level for own in costs for cost in own for level in cost.home)
    return {
        level: np.array(
            [
                sum(s.repeat * float(np.max(own[plan].home.get(level, 0.0))) for s, own in zip(workload.sections, costs, strict=True))
                for plan in range(len(costs[0]))
            ]
        )
        for level in levels
    }


def _costs(pricer: SectionPricer, section: Section, plans: Sequence[Plan], profile: ProfileSpec) -> tuple[LayerCost, ...]:
    """One cost a plan; plans that are the same to a section share it. Only layers are recomputed.

    A plan that both recomputes and shards its parameters is put together of one that does the first and one the second.
    """
    known: dict[object, LayerCost] = {}

    def cost(plan: Plan) -> LayerCost:
        if plan.key not in known:
            homes = plan.homes.values()  # what is run again needs streamed weights once more: no two plans to put together
            plain = plan.recompute == "none" or any(home.at for home in homes) or not any(home.axes for home in homes)
            known[plan.key] = (
                pricer.layer(section, plan) if plain else cost(replace(plan, homes={})).with_weights(cost(replace(plan, recompute="none")))
            )
        return known[plan.key]

    return tuple(cost(fuse(section.workload, plan if section.layer else replace(plan, recompute="none"), profile)) for plan in plans)


def _sends(
    architecture: Architecture, pricer: SectionPricer, workload: Workload, columns: Columns, plans: Sequence[Plan]
) -> tuple[tuple[LinkArrays, LinkArrays], Sends, tuple[Array, ...], tuple[Array, ...]]:
    """What the residual stream's hand-over costs, and the sum of gradients of weights that two sections share."""
    first = next(section for section in workload.sections if section.layer)
    stream = first.workload.tensors[first.stream_in]
    near = pricer.between_stages(architecture, far=False)
    far = pricer.between_stages(architecture, far=True)
    seconds, joules, tied, tied_joules = [], [], [], []
    volumes, totals = [], []
    for plan in plans:
        volume = stream.bytes / _share(plan, stream.name, columns)
        volumes.append(volume)
        seconds.append(_time(near, volume))
        joules.append((near.joules_per_byte * volume).sum(axis=0))
        shared = _tied_bytes(workload, plan, columns)
        totals.append(shared)
        tied.append(np.where(shared > 0, _time(far, shared), 0.0))
        tied_joules.append(2.0 * (far.joules_per_byte * shared).sum(axis=0))
    sends = Sends(*(np.stack(column) for column in (seconds, joules, tied, tied_joules)))
    return (near, far), sends, tuple(volumes), tuple(totals)


def _time(links: LinkArrays, volume: Array) -> Array:
    return np.asarray((links.seconds_per_byte * volume + links.latency_s).sum(axis=0))


def _share(plan: Plan, tensor: str, columns: Columns) -> Ints:
    """[n] parts into which a tensor is split as it crosses from stage to stage."""
    axes = [axis for axis, p in enumerate(plan.boundary[tensor]) if is_shard(p)]
    return np.asarray(columns.degrees[:, axes].prod(axis=1))


def tied_weights(workload: Workload) -> tuple[str, ...]:
    """Weights that more than one section reads."""
    uses = [name for section in workload.sections for name in section.workload.weights]
    return tuple(name for name in dict.fromkeys(uses) if uses.count(name) > 1)


def _tied_bytes(workload: Workload, plan: Plan, columns: Columns) -> Array:
    """[n] gradient bytes of shared weights on one accelerator, summed over the micro-batches."""
    total = np.zeros(len(columns))
    for name in tied_weights(workload):
        if plan.home(name).at is not None:
            continue  # summed there
        section = next(s for s in workload.sections if name in s.workload.weights)
        op = section.workload.ops[section.workload.readers[name][0]]
        position = next(i for i, access in enumerate(op.ins) if access.tensor == name)
        layout = plan.needs(op, position, section.workload)
        axes = [axis for axis, p in enumerate(layout) if is_shard(p)]
        elements = section.workload.tensors[name].elements
        total = total + elements * workload.gradient_bits / 8 / columns.degrees[:, axes].prod(axis=1)
    return total


def step_of(
    price: GroupPrice, made: Cut, schedule: str, profile: ProfileSpec, hide: tuple[int, int], plan: int, column: int
) -> tuple[tuple[Figures, ...], Step]:
    """One point composed alone: its sections' figures and its step, every array [1, 1, 1]."""
    which = np.array([column])
    own = tuple(one.columns(which).plans(np.array([plan])) for one in price.sections)
    sends = price.sends.columns(which).plans(np.array([plan]))
    on = (np.array([float(hide[0])]), np.array([float(hide[1])]))
    return own, compose(own, sends, made, schedule, price.columns.micro_batches[which], profile, *on)


def cut_of(price: GroupPrice, stages: int, chunks: int, layers: Sequence[int] = ()) -> Cut | None:
    """The cut of a model: even, or as `layers` says."""
    if layers:
        return cut(price.repeats, price.layers, stages, chunks, tuple(layers))
    return even_cut(price.repeats, price.layers, stages, chunks)


def exact_pipeline_seconds(
    own: Sequence[Figures], sends: float, made: Cut, schedule: str, micro_batches: int, profile: ProfileSpec, hide: tuple[int, int]
) -> float:
    """Simulated time of the pipeline of one point. sends: seconds of one hand-over."""
    runs = [passes(one, profile, np.array([float(hide[0])]), np.array([float(hide[1])])) for one in own]
    per_layer = np.array([[float(side.reshape(-1)[0]) for side in (run.forward, run.backward, run.weight)] for run in runs])
    times = made.counts @ per_layer  # [virtual stages, 3]
    link = 0.0
    if made.stages > 1:
        if profile.overlap.sends:
            link = sends
        else:
            times[:, :2] += sends  # a device sends and receives at once, and waits for it
            link = 0.0
    weight = times[:, 2:] if schedule in ("zb_h1", "zb_h2") else 0.0
    stage_times = StageTimes(times[:, :1], times[:, 1:2], weight, link, link)
    return float(simulate(schedule, stage_times, micro_batches=micro_batches, chunks=made.chunks).finish_s[0])
