"""A layer as the clock sees it: jobs on lanes, made of a program's priced tasks (docs/clock.md, rules 2 to 8).

A layer has up to six passes: 'first' (forward of the step's first micro-batch, which also gathers what the optimizer left
sharded), 'forward', 'backward', 'last' (backward of the last micro-batch, which also reduces what was summed over them), and,
where a schedule moves weight gradients, 'weight' and 'last weight'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.cost.step.tasks.timed_task import TimedTask
from rackmodel.model.profile import Overlap, ProfileSpec

DEVICE, WEIGHTS, REDUCTIONS, UP, HOME = "device", "weights", "reductions", "up", "home"
SPREAD = "spread"  # the head of the lane of weights: what is gathered there once, before all else (rule 6)
LANES = (DEVICE, WEIGHTS, REDUCTIONS, UP, HOME, SPREAD)
PASSES = ("first", "forward", "backward", "last", "weight", "last weight")
BACK = ("backward", "last")
REDUCE = ("reduce_scatter", "all_reduce", "all_to_all")


def picked(figure: Array | float, which: Ints) -> Array:
    """A figure of some mappings: one for each, or one for all."""
    values = np.asarray(figure, dtype=np.float64)
    return values[which] if values.size > 1 else values


@dataclass(frozen=True, kw_only=True)
class LaneJob:
    """Seconds on a lane. members: numbers of the tasks that it stands for; tasks in a row on the device are one job · after: jobs of the
    same list it waits for · needs: of a body job, the jobs of `ahead` it waits for · feeds: waits for the reductions of the layer with
    any executed two before · reduces: such a reduction. One on the lane `spread` waits for those before it there alone."""

    lane: str
    seconds: Array
    members: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    needs: tuple[int, ...] = ()
    feeds: bool = False
    reduces: bool = False

    def pick(self, which: Ints) -> LaneJob:
        """The same of some mappings (what `replace` does, quickly: there are many)."""
        return LaneJob(
            lane=self.lane,
            seconds=picked(self.seconds, which),
            members=self.members,
            after=self.after,
            needs=self.needs,
            feeds=self.feeds,
            reduces=self.reduces,
        )


@dataclass(frozen=True, kw_only=True)
class LayerPass:
    """One pass over one layer. ahead: jobs issued a layer ahead · body: the others, in issue order · host_s: least seconds on the
    device · stretch: [n] seconds of device tasks here over their seconds alone (contention) · stream_stretch: the same of streams
    beside the device that share a home's port."""

    name: str
    ahead: tuple[LaneJob, ...] = ()
    body: tuple[LaneJob, ...] = ()
    host_s: Array | float = 0.0
    stretch: Array | float = 1.0
    stream_stretch: Array | float = 1.0

    def slowed(self, lane: str, *, port: bool) -> Array | float:
        """Seconds of a task on a lane over its seconds alone. port: whether it shares a home's port."""
        return self.stretch if lane == DEVICE else self.stream_stretch if port else 1.0

    def __bool__(self) -> bool:
        return bool(self.ahead or self.body or np.any(self.host_s))

    def pick(self, which: Ints, known: dict[int, tuple[LaneJob, ...]]) -> LayerPass:
        """The same of some mappings. known: lists of jobs that were picked, which passes that share them go on sharing."""

        def some(jobs: tuple[LaneJob, ...]) -> tuple[LaneJob, ...]:
            if id(jobs) not in known:
                known[id(jobs)] = tuple(job.pick(which) for job in jobs)
            return known[id(jobs)]

        stretch, streams, host = (picked(figure, which) for figure in (self.stretch, self.stream_stretch, self.host_s))
        return replace(self, ahead=some(self.ahead), body=some(self.body), host_s=host, stretch=stretch, stream_stretch=streams)


def launches(task: Task, pricer: Pricer, profile: ProfileSpec) -> Array | float:
    """What the host launches for a task: kernels, for each expert where a profile says so, or a collective; each counts as many times as
    the machine's host takes longer for it than a profile says."""
    local_op, longer = task.local_op, pricer.architecture.launching
    if local_op is None:
        return longer if task.kind == "collective" else 0
    own: Array | float = local_op.starts(pricer.degrees, pricer.setting.most_summed) + pricer.quantises(local_op)
    if local_op.each:  # (`grouped` is of all columns, or of each)
        each = np.asarray(profile.grouped) == "each"
        one = own * profile.host.expert if local_op.macs else own
        own = np.where(each, one * local_op.experts(pricer.degrees), own) if each.any() else own
    if local_op.prompted != local_op.kernels:
        own = own + np.where(pricer.prompting, float(local_op.prompted - local_op.kernels), 0.0)
    return own if longer == 1.0 else own * longer


@dataclass(frozen=True)
class Lanes:
    """Which lane gathers, reductions and streams up run on, and how much the device slows beside them."""

    gather: str
    reduce: str
    up: str
    home: str
    contention: Array | float

    def of(self, role: str) -> str:
        """The lane of a role."""
        if role in ("gather", "spread"):
            return self.gather
        return {"reduce": self.reduce, "tail": self.reduce, "up": self.up, "home": self.home}.get(role, DEVICE)

    def timed(self, role: str) -> str:
        """A role as the clock has it: what is reduced or gathered once a step on the device itself is done with the update (rule 10)."""
        return "update" if role in ("tail", "spread") and self.of(role) == DEVICE else role


def lanes_of(overlap: Overlap, *, hide: bool) -> Lanes:
    """Lanes under a profile. hide: whether the mapping uses its overlap of weights and gradients."""
    weights, gradients = hide and overlap.weights, hide and overlap.hides_gradients
    reduce = (REDUCTIONS if weights and overlap.channels == "separate" else WEIGHTS) if gradients else DEVICE
    return Lanes(
        WEIGHTS if weights else DEVICE,
        reduce,
        UP if gradients else DEVICE,
        HOME if weights and gradients else DEVICE,
        overlap.contention if hide else 0.0,
    )


def roles_of(tasks: Iterable[Task]) -> list[str]:
    """The role of each task of a layer, in their order."""
    roles: list[str] = []
    gathers: set[int] = set()  # and joins that wait for gathers alone
    for number, task in enumerate(tasks):
        roles.append(_role(task, gathers))
        if roles[-1] == "gather" or (task.joins and task.after and set(task.after) <= gathers):
            gathers.add(number)
    return roles


def _role(task: Task, ahead: Collection[int]) -> str:
    """'device', 'gather', 'spread', 'reduce', 'tail', 'up', 'home' or 'update'. ahead: numbers of the gathers before it."""
    if task.channel == "home":
        return "home"
    if task.phase == "optimizer":
        return "update" if task.kind in ("op", "load", "store") else "spread"
    if task.channel == "gradients":
        return "up"
    if task.channel != "weights":
        return "device"
    if task.action in REDUCE or any(before not in ahead for before in task.after):
        return "tail" if task.once else "reduce"
    return "gather"


def layer_passes(timed: Sequence[TimedTask], profile: ProfileSpec, lanes: Lanes, *, layer: bool, split: bool) -> dict[str, LayerPass]:
    """The passes of one layer. layer: whether the host's time of a layer applies · split: weight gradients are passes of their own."""
    return _Layer(timed, profile, lanes, layer, split).passes()


def stage_passes(
    timed: Sequence[TimedTask], profile: ProfileSpec, lanes: Lanes, *, layer: bool, split: bool, stages: int
) -> tuple[dict[str, LayerPass], ...]:
    """The passes of each stage of a cut below the layer: what lies on a stage is a layer of its own to the host (rule 8) and to contention
    (rule 7); its hand-overs are tasks beside it (rule 11)."""
    whole = _Layer(timed, profile, lanes, layer, split)
    return tuple(whole.passes({n for n, one in enumerate(timed) if one.task.stage == s and one.task.kind != "send"}) for s in range(stages))


class _Layer:
    def __init__(self, timed: Sequence[TimedTask], profile: ProfileSpec, lanes: Lanes, layer: bool, split: bool) -> None:
        self.timed, self.profile, self.lanes, self.split = timed, profile, lanes, split
        self.layer = layer
        self.roles = [lanes.timed(role) for role in roles_of(one.task for one in timed)]
        self.real: list[tuple[int, ...]] = []  # each task, or what a join stands for (joins take no time and no lane)
        for number, one in enumerate(timed):
            through = (real for before in one.task.after for real in self.real[before])
            self.real.append(tuple(dict.fromkeys(through)) if one.task.joins else (number,))
        self.spread: dict[str, list[int]] = {}  # reader of a weight → what brings it there again after the update (rule 6)
        for number, role in enumerate(self.roles):
            if role == "spread":
                self.spread.setdefault(timed[number].task.einsum, []).append(number)
        self.moved = self._weight_side() if split else set()

    def _weight_side(self) -> set[int]:
        """What makes weight gradients, and all that follows from it alone."""
        moved: set[int] = set()
        for number, one in enumerate(self.timed):
            if one.weight or self.roles[number] in ("reduce", "tail", "up", "home"):
                moved.add(number)
        return moved

    def passes(self, own: Collection[int] | None = None) -> dict[str, LayerPass]:
        """Every pass of the layer, by name. own: the tasks that are meant, absent = all."""
        mine = [n for n in range(len(self.timed)) if self.roles[n] != "update" and (own is None or n in own)]
        forward = [n for n in mine if self.timed[n].task.phase == "forward"]
        backward = [n for n in mine if self.timed[n].task.phase in ("backward", "recompute") or self.roles[n] == "home"]
        spread = [n for n in mine if self.roles[n] == "spread"]
        each = [n for n in backward if not self.timed[n].task.once]
        steady = [n for n in forward if not self.timed[n].task.once]
        found = self._pair("first", [*spread, *forward], "forward", steady)
        found |= self._pair("backward", [n for n in each if n not in self.moved], "last", [n for n in backward if n not in self.moved])
        weights = [n for n in each if n in self.moved], [n for n in backward if n in self.moved]
        return found | self._pair("weight", weights[0], "last weight", weights[1], host=False)

    def _pair(self, name: str, numbers: list[int], other: str, others: list[int], *, host: bool = True) -> dict[str, LayerPass]:
        """Two passes; where they run the same they share their jobs."""
        one = self._pass(name, numbers, host=host)
        return {name: one, other: replace(one, name=other) if numbers == others else self._pass(other, others, host=host)}

    def _pass(self, name: str, numbers: Sequence[int], *, host: bool = True) -> LayerPass:
        numbers = sorted((n for n in numbers if not self.timed[n].task.joins), key=lambda n: not _copied_in(self.timed[n].task))
        lane = {n: self.lanes.of(self.roles[n]) for n in numbers}
        launched: Array | float = sum((self.timed[n].launches for n in numbers if self.roles[n] == DEVICE), 0)
        host_s = self.profile.host.seconds(launched, backward=name in BACK) if host and numbers and self.layer else 0.0
        found = LayerPass(name=name, host_s=host_s, stream_stretch=self._stream_stretch(numbers))
        found = replace(found, stretch=self._stretch(found, lane))
        early = [n for n in numbers if self.roles[n] == "gather" and lane[n] != DEVICE]
        late = [n for n in numbers if n not in set(early)]
        first = {n: k for k, n in enumerate(early)}
        ahead = [LaneJob(lane=lane[n], seconds=self._seconds(found, n, lane[n]), members=(n,), after=self._among(n, first)) for n in early]
        limited = [n for n in late if self.roles[n] in ("reduce", "up") and lane[n] != DEVICE]
        feeding = {real for n in limited for before in self.timed[n].task.after for real in self.real[before]}
        place = {n: k for k, n in enumerate(late)}
        body = [
            LaneJob(
                lane=SPREAD if self.roles[n] == "spread" and lane[n] != DEVICE else lane[n],
                seconds=self._seconds(found, n, lane[n]),
                members=(n,),
                after=self._among(n, place),
                needs=self._among(n, first),
                feeds=n in feeding,
                reduces=n in set(limited),
            )
            for n in late
        ]
        return replace(found, ahead=tuple(ahead), body=merged(body))

    def _seconds(self, where: LayerPass, number: int, lane: str) -> Array:
        """[n] of a task in a pass."""
        one = self.timed[number]
        slowed = where.slowed(lane, port=one.waits_for_port)
        return one.seconds if isinstance(slowed, float) and slowed == 1.0 else np.asarray(one.seconds * slowed)

    def _among(self, number: int, place: dict[int, int]) -> tuple[int, ...]:
        """Places of what a task waits for; an operation's forward pass waits for its weight, if this pass spreads it (after the update
        of the step before: what that waited for is over)."""
        task = self.timed[number].task
        waits = {real for before in task.after for real in self.real[before]}
        if task.phase == "forward" and task.local_op is not None:
            waits |= set(self.spread.get(task.einsum, ()))
        if self.roles[number] == "spread":
            waits = {real for real in waits if self.roles[real] == "spread"}
        return tuple(sorted(place[real] for real in waits if real in place))

    def _stream_stretch(self, numbers: Iterable[int]) -> Array | float:
        """How much longer streams take whose reads and writes share a home's port (rule 7)."""
        moved = [n for n in numbers if self.roles[n] in ("gather", "up")]
        busy = [n for n in numbers if self.roles[n] in ("gather", "up", "home")]
        port = [one.port_s for one in (self.timed[n] for n in busy) if one.port_s is not None]
        if not port or not moved:
            return 1.0
        busiest = _busiest((self.roles[n], self.timed[n].seconds) for n in moved)
        longest = np.maximum(sum(port), busiest)
        return np.divide(longest, busiest, out=np.ones_like(longest), where=busiest > 0)

    def _stretch(self, where: LayerPass, lane: dict[int, str]) -> Array | float:
        """How much longer device tasks take beside the busiest other lane (rule 7), streams slowed."""
        if not np.any(self.lanes.contention):
            return 1.0
        loads = [(lane[n], self._seconds(where, n, lane[n])) for n in lane]
        device, other = (_busiest(load for load in loads if (load[0] == DEVICE) == on) for on in (True, False))
        share = np.divide(other, device, out=np.zeros_like(other + device), where=device > 0)
        return np.asarray(1.0 + self.lanes.contention * np.minimum(1.0, share))


def _busiest(loads: Iterable[tuple[str, Array]]) -> Array:
    """Seconds of the busiest of some lanes; 0 where there are none."""
    busy: dict[str, Array] = {}
    for lane, seconds in loads:
        busy[lane] = busy[lane] + seconds if lane in busy else seconds
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(np.zeros(1), *busy.values())))


def _copied_in(task: Task) -> bool:
    """Whether it copies in what a pass begins with."""
    return task.kind == "load" and task.channel == "weights"


def merged(body: Sequence[LaneJob]) -> tuple[LaneJob, ...]:
    """Jobs in a row on the device as one, where nothing looks between them: only its first waits, only its last is waited for."""
    waited = {before for job in body if job.lane != DEVICE for before in job.after}
    found: list[list[LaneJob]] = []
    where: dict[int, int] = {}
    joinable = False
    for number, job in enumerate(body):
        outside = tuple(where[b] for b in job.after if body[b].lane != DEVICE or job.lane != DEVICE)
        free = job.lane == DEVICE and not job.needs and not outside and not job.feeds
        if joinable and free:
            found[-1].append(job)
        else:
            after = tuple(dict.fromkeys(outside))
            found.append([job if job.after == after else replace(job, after=after)])
        where[number] = len(found) - 1
        joinable = job.lane == DEVICE and number not in waited
    return tuple(jobs[0] if len(jobs) == 1 else _joined(jobs) for jobs in found)


def _joined(jobs: Sequence[LaneJob]) -> LaneJob:
    """Jobs one after another as one, which waits as the first does."""
    seconds = jobs[0].seconds
    for job in jobs[1:]:
        seconds = seconds + job.seconds
    return replace(jobs[0], seconds=seconds, members=tuple(member for job in jobs for member in job.members))
