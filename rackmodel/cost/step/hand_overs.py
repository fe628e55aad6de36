"""What stages of a pipeline hand over: the residual stream from each to the next, and gradients of weights that the ends share.

A hand-over is some messages one after another: the stream itself, or under a profile that scatters it a part from each of the ranks that
hold the same, put together where it arrives. Its seconds, joules and ledger rows are those of these messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.tasks import Task, Volume, local
from rackmodel.cost.program.tied import tied_weights
from rackmodel.cost.program.wanted import sharded_over
from rackmodel.cost.step.bounds.bound import Sends
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.tasks.link_arrays import LinkArrays
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.layout import REPLICATE
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

Place = tuple[int, int]


@dataclass(frozen=True)
class Message:
    """links: what carries it · mean, fullest: [n] bytes of an accelerator in the mean, and of the one that has most · action: as a ledger
    has it."""

    links: LinkArrays
    mean: Array
    fullest: Array
    action: str


@dataclass(frozen=True)
class HandOver:
    """One direction, one micro-batch, from all accelerators of a stage."""

    messages: tuple[Message, ...]

    @property
    def seconds(self) -> Array:
        """[n]."""
        return np.asarray(sum(one.links.seconds(one.fullest) for one in self.messages))

    @property
    def joules(self) -> Array:
        """[n]."""
        return np.asarray(sum(one.links.joules(one.mean) for one in self.messages))


def hand_over(pricer: Pricer, workload: Workload, plan: Plan, links: LinkArrays, profile: ProfileSpec) -> HandOver:
    """The stream over some links between stages: under a profile that scatters it, ranks that hold the same part of it send it in parts,
    and gather them after; what the host takes that nothing hides is a part of the sends."""
    scattered, links = profile.hand_over == "scattered", links.later(profile.host.hand_over_s)
    mean, volume = stream_volume(workload, plan).both(pricer.degrees)
    same = _same(workload, plan) if scattered else []
    parts = pricer.degrees[:, same].prod(axis=1)
    sent = Message(links, np.asarray(mean / parts), np.asarray(volume / parts), "send")
    if not same:
        return HandOver((sent,))
    task = Task("collective", "forward", "", _stream(workload), 0, "all_gather", (), axes=tuple(same), volume=Volume(1.0))
    return HandOver((sent, Message(pricer.links(task, volume), np.asarray(mean), np.asarray(volume), "all_gather")))


def sends_of(pricer: Pricer, workload: Workload, plans: Sequence[Plan], profile: ProfileSpec) -> Sends:
    """What the residual stream's hand-over costs, and the sum of gradients of weights that two sections share. A cut below the layer
    hands over by tasks of its own. profile: as of `hand_over`."""
    if plans[0].stage_count > 1 or not bool((pricer.stages > 1).any()):
        none = np.zeros((len(plans), pricer.n))
        return Sends(seconds=none, joules=none, tied=none, tied_joules=none)
    near, far = pricer.between_stages(far=False), pricer.between_stages(far=True)
    seconds, joules, tied, tied_joules = [], [], [], []
    first, of = np.unique(first_said(handed_alike(workload, plans)), return_inverse=True)
    for plan in (plans[number] for number in first):
        one = hand_over(pricer, workload, plan, near, profile)
        seconds.append(one.seconds)
        joules.append(one.joules if workload.backward else one.joules / 2.0)
        both = summed(pricer, workload, plan, far)
        tied.append(both[0])
        tied_joules.append(both[1])
    found = Sends(seconds=np.stack(seconds), joules=np.stack(joules), tied=np.stack(tied), tied_joules=np.stack(tied_joules))
    return found.plans(of)


Handed = Mapping[Place, HandOver]
"""(0 to the next stage, 1 to the one before; stage) → its hand-over."""


def sends_between(handed: Handed, cut: Cut, tied: Array, tied_joules: Array, *, backward: bool) -> Sends:
    """Of one plan whose stages' hand-overs differ: the least seconds of any of them, their mean joules. backward: whether there are
    backward passes."""
    times = cut.hand_overs(0) + cut.hand_overs(1) * backward
    seconds = np.stack([one.seconds for place, one in handed.items() if times[place]])
    joules = sum((one.joules * (times[place] / (2.0 * cut.hops)) for place, one in handed.items()), np.zeros(1))
    return Sends(seconds=seconds.min(axis=0)[None], joules=joules[None], tied=tied[None], tied_joules=tied_joules[None])


def in_places(handed: Handed, one: Array) -> Array:
    """[2, stages, n] seconds of hand-overs in all places, in their order. one: [n] ones."""
    return np.stack([hop.seconds * one for hop in handed.values()]).reshape(2, -1, len(one))


def summed(pricer: Pricer, workload: Workload, plan: Plan, far: LinkArrays) -> tuple[Array, Array]:
    """(seconds, joules), [n], of summing the gradients of weights that the first and the last stage share, over the links between them."""
    shared = tied_volumes(workload, plan)
    joint = sum((one.at(pricer.degrees) for one in shared), np.zeros(pricer.n))
    busiest = sum((one.fullest(pricer.degrees) for one in shared), np.zeros(pricer.n))
    return np.where((joint > 0) & (pricer.stages > 1), far.seconds(busiest), 0.0), 2.0 * far.joules(joint)


def handed_alike(workload: Workload, plans: Sequence[Plan]) -> list[Hashable]:
    """What each plan's hand-overs follow from: these very choices and boundary, and where shared weights are kept."""
    tied = tied_weights(workload)
    return [(id(plan.choices), id(plan.boundary), tuple((plan.home(name).at, _shards(plan, name)) for name in tied)) for plan in plans]


def first_said(keys: Sequence[Hashable]) -> Ints:
    """Where each was said first."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, number) for number, key in enumerate(keys)], dtype=np.int64)


def _same(workload: Workload, plan: Plan) -> list[int]:
    """Axes whose ranks hold the same part of the residual stream."""
    name = _stream(workload)
    return [axis for axis, placed in enumerate(plan.boundary[name][: plan.spatial]) if placed == REPLICATE] if name else []


def _stream(workload: Workload) -> str:
    """What layers take and hand on; '' where there are none, or a graph starts from what costs nothing."""
    return workload.first_layer.stream_in if workload.first_layer else ""


def stream_volume(workload: Workload, plan: Plan) -> Volume:
    """Bytes of the residual stream that one accelerator hands over."""
    first, name = workload.first_layer, _stream(workload)
    if first is None or not name:
        return Volume(0.0)
    stream = first.workload.tensors[name]
    return local(stream.bytes, plan.boundary[name], stream, plan)


def tied_volumes(workload: Workload, plan: Plan) -> list[Volume]:
    """Gradients of shared weights on one accelerator, as they rest there when those of all micro-batches are reduced."""
    found: list[Volume] = []
    if not workload.backward:
        return found
    for name in tied_weights(workload):
        if plan.home(name).at is not None:
            continue  # summed there
        section = next(s for s in workload.sections if name in s.workload.weights)
        weight = section.workload.tensors[name]
        if not weight.trained:
            continue
        op = section.workload.ops[section.workload.readers[name][0]]
        position = next(i for i, access in enumerate(op.ins) if access.tensor == name)
        layout = sharded_over(plan.needs(op, position, section.workload), _shards(plan, name), plan.axes)
        found.append(local(weight.elements * workload.gradient_bits / 8, layout, weight, plan))
    return found


def _shards(plan: Plan, weight: str) -> tuple[str, ...]:
    """Axes over which a weight's gradient rests in shards (ZeRO 2 and 3)."""
    home = plan.home(weight)
    return tuple(home.axes) if home.grad == "shard" else ()
