"""The clock: how long a step takes, exactly, and which tasks its critical path runs (docs/clock.md).

The state of a stage is the ends of its lanes, of the gathers under way and of the last two layers' reductions; a layer's pass maps it
to the next by max and + alone, so that it is a matrix over (max, +):

    exit_j = max_i (entry_i + M_ij)        L equal layers: M^L        a pass: a product        a pipeline: a product a pass

Arrays are [state, state, n] over n mappings of one structure. A matrix remembers what it was made of, so that the path behind any
of its entries can be read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.jobs import DEVICE, LANES, PORT, Job, LayerPass
from rackmodel.cost.step.pipeline_orders import BACKWARD, FORWARD, order, waves

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
NEVER = -np.inf
HOST, SEND, UPDATE, TIED = "host", "send", "update", "tied"
Step = tuple[int, str]  # section, name of the pass
Path = Counter[tuple[Step, int]]  # (pass of a section's layer, task number or -1: the host) → times on the path


@dataclass(frozen=True, kw_only=True)
class StepJobs:
    """A step of n mappings of one structure. sections: each one's passes by name · counts: [stages x chunks, sections] layers ·
    backward: whether there are backward passes · send_s: [n] of one hand-over · update_s: of a layer of each section, [n] ·
    tied_s: [n] summing shared weights between the first and the last stage."""

    sections: tuple[dict[str, LayerPass], ...]
    counts: Ints
    schedule: str
    stages: int
    chunks: int
    micro_batches: int
    backward: bool
    send_s: Array
    sends_overlap: bool
    update_s: tuple[Array, ...]
    tied_s: Array

    @property
    def n(self) -> int:
        """Mappings."""
        return int(np.size(self.send_s))


# -- matrices that remember ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Matrix:
    """value: [state, state, n] · parts: the two it is the product of, or the layer pass (and the one after it) it was run from."""

    value: Array
    parts: tuple[Matrix, Matrix] | None = None
    ran: tuple[Step, Step | None] | None = None
    known: dict[tuple[int, int], Path] = field(default_factory=dict)


def product(first: Matrix, second: Matrix) -> Matrix:
    """First one, then the other."""
    a, b = first.value, second.value
    value = a[:, 0, None] + b[None, 0]
    for middle in range(1, a.shape[0]):
        np.maximum(value, a[:, middle, None] + b[None, middle], out=value)
    return Matrix(value, (first, second))


def power(base: Matrix, times: int) -> Matrix | None:
    """The same `times` times over; None for none."""
    found: Matrix | None = None
    while times:
        if times & 1:
            found = base if found is None else product(found, base)
        times >>= 1
        if times:
            base = product(base, base)
    return found


def chain(matrices: Sequence[Matrix | None]) -> Matrix | None:
    """One after another; Nones are left out."""
    found: Matrix | None = None
    for matrix in matrices:
        if matrix is not None:
            found = matrix if found is None else product(found, matrix)
    return found


# -- one layer ---------------------------------------------------------------------------------------------------------------


class _Stage:
    """The state's places, and how a layer's pass changes it."""

    def __init__(self, sections: Sequence[dict[str, LayerPass]]) -> None:
        passes = [one for section in sections for one in section.values()]
        jobs = [job for one in passes for job in (*one.ahead, *one.body)]
        used = {job.lane for job in jobs} | {DEVICE}
        if any(job.port_s is not None for job in jobs):
            used.add(PORT)
        self.lanes = [lane for lane in LANES if lane in used]
        self.limited = any(job.reduces for job in jobs)
        self.gathers = max((len(one.ahead) for one in passes), default=0)
        self.size = len(self.lanes) + 2 * self.limited + self.gathers
        self.at = {lane: k for k, lane in enumerate(self.lanes)}
        self.reduced = len(self.lanes)  # ends of the reductions of the last layer, and of the one before
        self.gathered = self.reduced + 2 * self.limited

    def ahead(self, state: list[Array], jobs: Sequence[Job], ready: Array) -> list[Array]:
        """Issue gathers, which may start at `ready`; their ends."""
        ends: list[Array] = []
        for job in jobs:
            start = ready
            for before in job.after:
                start = np.maximum(start, ends[before])
            ends.append(self._run(state, job, start))
        return ends

    def _run(self, state: list[Array], job: Job, start: Array) -> Array:
        lane = self.at[job.lane]
        start = np.maximum(start, state[lane])
        if job.port_s is not None:
            start = np.maximum(start, state[self.at[PORT]])
            state[self.at[PORT]] = start + job.port_s
        state[lane] = start + job.seconds
        return state[lane]

    def run(self, state: list[Array], one: LayerPass, following: LayerPass | None) -> list[Array]:
        """The state after a layer's pass, the gathers of the one that follows issued."""
        state = list(state)
        entry = state[0]
        gathered = state[self.gathered :]
        coming = self.ahead(state, following.ahead, entry) if following is not None else []
        ends: list[Array] = []
        last: Array | None = None
        for job in one.body:
            start = state[self.at[job.lane]]
            for before in job.after:
                start = np.maximum(start, ends[before])
            for need in job.needs:
                start = np.maximum(start, gathered[need])
            if job.feeds:
                start = np.maximum(start, state[self.reduced + 1])
            ends.append(self._run(state, job, start))
            if job.reduces:
                last = ends[-1] if last is None else np.maximum(last, ends[-1])
        if one.host_s:
            state[0] = np.maximum(state[0], entry + one.host_s)
        if last is not None:
            state[self.reduced + 1], state[self.reduced] = state[self.reduced], last
        never = np.full_like(entry, NEVER)
        state[self.gathered :] = [*coming, *[never] * (self.gathers - len(coming))]
        return state

    def matrix(self, one: LayerPass, following: LayerPass | None, n: int) -> Array:
        """[state, state, n] of a layer's pass."""
        k = self.size
        units = np.full((k, k, n), NEVER)
        units[np.arange(k), np.arange(k)] = 0.0
        return np.stack(self.run([units[:, j] for j in range(k)], one, following), axis=1)


# -- a whole step --------------------------------------------------------------------------------------------------------------


def step_seconds(jobs: StepJobs) -> Array:
    """[n] seconds of the step."""
    return _Clock(jobs).seconds()


def critical_path(jobs: StepJobs) -> tuple[float, Path, Counter[str]]:
    """Of one mapping: (seconds, times each task is on the critical path, times 'send', 'update' of section x as 'update x', 'tied')."""
    assert jobs.n == 1
    return _Clock(jobs).path()


class _Clock:
    def __init__(self, jobs: StepJobs) -> None:
        self.jobs, self.stage = jobs, _Stage(jobs.sections)
        self.steps = {(x, name): one for x, section in enumerate(jobs.sections) for name, one in section.items()}
        self.layers: dict[tuple[Step, Step | None], Matrix] = {}
        self.runs: dict[object, Matrix | None] = {}
        self.order = order(jobs.schedule, jobs.stages, jobs.micro_batches, jobs.chunks)
        self.split = bool((self.order.kind == 2).any())
        self.total = waves(jobs.schedule, jobs.stages, jobs.micro_batches, jobs.chunks)

    # -- passes ----------------------------------------------------------------------------------------------------------

    def _names(self, kind: int, micro_batch: int) -> str:
        if kind == FORWARD:
            return "first" if micro_batch == 0 else "forward"
        last = micro_batch == self.jobs.micro_batches - 1
        if kind == BACKWARD:
            return "last" if last else "backward"
        return "last weight" if last else "weight"

    def _steps(self, virtual: int, kind: int, micro_batch: int) -> tuple[tuple[Step, int], ...]:
        """(layer pass, times) of a pass, in the order in which it runs them."""
        if kind != FORWARD and not self.jobs.backward:
            return ()
        name, counts = self._names(kind, micro_batch), self.jobs.counts[virtual]
        sections = range(len(counts)) if kind == FORWARD else range(len(counts) - 1, -1, -1)
        return tuple(((x, name), int(counts[x])) for x in sections if counts[x] and self.steps[(x, name)])

    def _layer(self, step: Step, following: Step | None) -> Matrix:
        """The matrix of one layer's pass; passes alike share it."""
        ahead = following if following is not None and self.steps[following].ahead else None
        key = (step, ahead)
        if key not in self.layers:
            then = self.steps[ahead] if ahead is not None else None
            self.layers[key] = Matrix(self.stage.matrix(self.steps[step], then, self.jobs.n), ran=(step, ahead))
        return self.layers[key]

    def _pass(self, steps: tuple[tuple[Step, int], ...], following: Step | None) -> Matrix | None:
        """The matrix of a pass whose next one on this device begins with `following`; None for one that does nothing."""
        following = following if following is not None and self.steps[following].ahead else None
        key = (steps, following)
        if key not in self.runs:
            parts: list[Matrix | None] = []
            for number, (step, times) in enumerate(steps):
                then = steps[number + 1][0] if number + 1 < len(steps) else following
                parts += [power(self._layer(step, step), times - 1), self._layer(step, then)]
            self.runs[key] = chain(parts)
        return self.runs[key]

    def _matrices(self) -> tuple[list[Matrix | None], list[Step | None]]:
        """The matrix of every pass, in the order of the waves, and the first layer pass of each stage."""
        total, own = self.total, self.order
        rank = {
            (int(d), int(k), int(b), int(v)): i
            for i, (d, k, b, v) in enumerate(zip(total.device, total.kind, total.micro_batch, total.virtual, strict=True))
        }
        found: list[Matrix | None] = [None] * total.kind.size
        starts: list[Step | None] = []
        for device in range(self.jobs.stages):
            following: Step | None = None
            for at in range(own.kind.shape[1] - 1, -1, -1):
                kind, micro_batch = int(own.kind[device, at]), int(own.micro_batch[device, at])
                virtual = int(own.chunk[device, at]) * self.jobs.stages + device
                steps = self._steps(virtual, kind, micro_batch)
                found[rank[(device, kind, micro_batch, virtual)]] = self._pass(steps, following)
                following = steps[0][0] if steps else following
            starts.append(following)
        return found, starts

    def _start(self, first: Step | None) -> list[Array]:
        """The state of a stage before its first pass, the first gathers issued."""
        zero, never = np.zeros(self.jobs.n), np.full(self.jobs.n, NEVER)
        state = [zero] * self.stage.gathered + [never] * self.stage.gathers
        if first is not None:
            ends = self.stage.ahead(state, self.steps[first].ahead, zero)
            state[self.stage.gathered : self.stage.gathered + len(ends)] = ends
        return state

    # -- the pipeline ------------------------------------------------------------------------------------------------------

    def _simulated(self, *, keep: bool) -> tuple[Array, list[Array], Array, list[Matrix | None], list[Step | None]]:
        """([stages, state, n] final states, entry states of every pass if kept, [passes + 1, n] arrivals, matrices, first steps)."""
        jobs, total, k = self.jobs, self.total, self.stage.size
        matrices, starts = self._matrices()
        identity = np.full((k, k, jobs.n), NEVER)
        identity[np.arange(k), np.arange(k)] = 0.0
        distinct: dict[int, int] = {}
        stack: list[Array] = []
        which = np.empty(len(matrices), dtype=np.int64)
        for number, matrix in enumerate(matrices):
            key = id(matrix)
            if key not in distinct:
                distinct[key] = len(stack)
                stack.append(identity if matrix is None else matrix.value)
            which[number] = distinct[key]
        values = np.stack(stack)
        state = np.stack([np.stack(self._start(first)) for first in starts])
        arrival = np.zeros((len(matrices) + 1, jobs.n))
        sent = np.zeros((2, jobs.stages, jobs.n))
        entries: list[Array] = [np.empty(0)] * len(matrices) if keep else []
        hop = jobs.send_s if jobs.stages > 1 else np.zeros(jobs.n)
        for low, high in zip(total.bounds, total.bounds[1:], strict=False):
            here = slice(low, high)
            device, kind = total.device[here], total.kind[here]
            now = state[device]
            np.maximum(now[:, 0], arrival[total.feeds[here]], out=now[:, 0])
            if keep:
                for number in range(low, high):
                    entries[number] = now[number - low]
            now = _applied(now, values[which[here]])
            moves = (kind == FORWARD) | ((kind == BACKWARD) & jobs.backward)
            if jobs.sends_overlap:
                way = np.minimum(kind, 1)
                ends = np.maximum(now[:, 0], sent[way, device]) + hop
                sent[way[moves], device[moves]] = ends[moves]
                arrival[here] = ends
            else:
                now[:, 0] += np.where(moves[:, None], hop, 0.0)
                arrival[here] = now[:, 0]
            state[device] = now
        return state, entries, arrival, matrices, starts

    def _ends(self, state: Array) -> Array:
        """[stages, n] when all lanes of a stage are done."""
        return np.asarray(state[:, : len(self.stage.lanes)].max(axis=1))

    def _updates(self) -> Array:
        """[stages, n] seconds of the optimizer."""
        busy = self.jobs.counts.reshape(self.jobs.chunks, self.jobs.stages, -1).sum(axis=0)
        each = np.stack([np.broadcast_to(seconds, (self.jobs.n,)) for seconds in self.jobs.update_s])
        return np.asarray(busy.astype(float) @ each)

    def seconds(self) -> Array:
        """[n] seconds of the step."""
        ends = self._alone_state()[None] if self._alone() else self._simulated(keep=False)[0]
        done = self._ends(ends)
        if self.jobs.stages > 1:
            both = np.maximum(done[0], done[-1]) + self.jobs.tied_s
            done[0], done[-1] = both, both
        return np.asarray((done + self._updates()).max(axis=0))

    # -- one stage: rounds of a forward and a backward pass are a power --------------------------------------------------------

    def _alone(self) -> bool:
        return self.jobs.stages == 1 and self.jobs.chunks == 1 and self.jobs.schedule == "1f1b"

    def _rounds(self) -> tuple[Matrix | None, Step | None]:
        """The matrix of all passes of a single stage, and its first layer pass."""
        m = self.jobs.micro_batches

        def steps(kind: int, micro_batch: int) -> tuple[tuple[Step, int], ...]:
            return self._steps(0, kind, micro_batch)

        def head(*options: tuple[tuple[Step, int], ...]) -> Step | None:
            return next((option[0][0] for option in options if option), None)

        def both(forward: int, backward: int, following: Step | None) -> Matrix | None:
            ahead, behind = steps(FORWARD, forward), steps(BACKWARD, backward)
            return chain([self._pass(ahead, head(behind) or following), self._pass(behind, following)])

        start = head(steps(FORWARD, 0), steps(BACKWARD, 0))
        if m == 1:
            return both(0, 0, None), start
        again = head(steps(FORWARD, 1), steps(BACKWARD, min(1, m - 2)))
        middle = both(1, min(1, m - 2), again) if m > 2 else None
        before_last = both(1, m - 2, head(steps(FORWARD, 1), steps(BACKWARD, m - 1))) if m > 2 else None
        parts = [both(0, 0 if m > 1 else m - 1, again)]
        if m > 2:
            parts += [power(middle, m - 3) if middle is not None else None, before_last]
        return chain([*parts, both(1, m - 1, None)]), start

    def _alone_state(self) -> Array:
        matrix, first = self._rounds()
        state = np.stack(self._start(first))
        return state if matrix is None else _applied(state[None], matrix.value[None])[0]

    # -- the critical path -------------------------------------------------------------------------------------------------------

    def path(self) -> tuple[float, Path, Counter[str]]:
        """See `critical_path`."""
        path: Path = Counter()
        other: Counter[str] = Counter()
        if self._alone():
            matrix, first = self._rounds()
            entry = np.stack(self._start(first))
            state = entry if matrix is None else _applied(entry[None], matrix.value[None])[0]
            end = int(np.argmax(state[: len(self.stage.lanes), 0]))
            if matrix is not None:
                source = int(np.argmax(entry[:, 0] + matrix.value[:, end, 0]))
                path.update(self.between(matrix, source, end))
            else:
                source = end
            self._from_start(path, first, source)
            total = float(state[end, 0]) + float(self._updates()[0, 0])
            self._updated(other, 0)
            return total, path, other
        return self._pipeline_path(path, other)

    def _updated(self, other: Counter[str], device: int) -> None:
        busy = self.jobs.counts.reshape(self.jobs.chunks, self.jobs.stages, -1).sum(axis=0)
        for x, count in enumerate(busy[device]):
            if count:
                other[f"{UPDATE} {x}"] += int(count)

    def _pipeline_path(self, path: Path, other: Counter[str]) -> tuple[float, Path, Counter[str]]:
        state, entries, arrival, matrices, starts = self._simulated(keep=True)
        done = self._ends(state)[:, 0]
        p, updates, tied = self.jobs.stages, self._updates()[:, 0], float(self.jobs.tied_s.reshape(-1)[0])
        ends = done.copy()
        if p > 1:
            ends[0] = ends[-1] = max(done[0], done[-1]) + tied
        device = int(np.argmax(ends + updates))
        total = float(ends[device] + updates[device])
        self._updated(other, device)
        if p > 1 and device in (0, p - 1):
            other[TIED] += 1
            device = 0 if done[0] >= done[-1] else p - 1
        at = int(np.argmax(state[device, : len(self.stage.lanes), 0]))
        self._walk(path, other, device, at, entries, arrival, matrices, starts)
        return total, path, other

    def _walk(
        self,
        path: Path,
        other: Counter[str],
        device: int,
        at: int,
        entries: list[Array],
        arrival: Array,
        matrices: list[Matrix | None],
        starts: list[Step | None],
    ) -> None:
        """Back from the end of `device`'s lane `at` to the start."""
        total, jobs = self.total, self.jobs
        hop = jobs.stages > 1 and bool(jobs.send_s.reshape(-1)[0] > 0)
        before_on = total.before
        number = int(total.last[device])
        while True:
            moves = total.kind[number] == FORWARD or (total.kind[number] == BACKWARD and jobs.backward)
            if at == 0 and moves and hop and not jobs.sends_overlap:
                other[f"{SEND} {int(total.kind[number])}"] += 1
            matrix, entry = matrices[number], entries[number]
            source = at if matrix is None else int(np.argmax(entry[:, 0] + matrix.value[:, at, 0]))
            if matrix is not None:
                path.update(self.between(matrix, source, at))
            feed, before = int(total.feeds[number]), int(before_on[number])
            if source == 0 and feed < total.kind.size and entry[0, 0] > 0 and entry[0, 0] == arrival[feed, 0]:
                number, at = self._sender(other, feed, arrival), 0
                continue
            if before >= total.kind.size:
                self._from_start(path, starts[int(total.device[number])], source)
                return
            number, at = before, source

    def _sender(self, other: Counter[str], feed: int, arrival: Array) -> int:
        """The pass at whose end the path takes to the links; its sends are counted."""
        total, jobs = self.total, self.jobs
        if not jobs.sends_overlap:
            return feed
        kind, hop = int(total.kind[feed]), float(jobs.send_s.reshape(-1)[0])
        while True:
            other[f"{SEND} {kind}"] += 1
            start = float(arrival[feed, 0]) - hop
            earlier = int(total.before[feed])
            while earlier < total.kind.size and total.kind[earlier] != kind:
                earlier = int(total.before[earlier])
            if earlier < total.kind.size and hop > 0 and abs(arrival[earlier, 0] - start) <= 1e-12 * max(start, 1e-300):
                feed = earlier
                continue
            return feed

    def _from_start(self, path: Path, first: Step | None, at: int) -> None:
        """What the path runs before the first pass: gathers issued at 0."""
        if first is None or at == 0:
            return
        jobs = self.steps[first].ahead
        state = [np.zeros(1)] * self.stage.gathered + [np.full(1, NEVER)] * self.stage.gathers
        ends = self.stage.ahead(list(state), jobs, np.zeros(1))
        number = at - self.stage.gathered if at >= self.stage.gathered else len(jobs) - 1
        starts = [end - job.seconds for end, job in zip(ends, jobs, strict=True)]
        while number >= 0:
            path.update({(first, member): 1 for member in jobs[number].members})
            start = float(starts[number].reshape(-1)[0])
            number = next((k for k in range(number - 1, -1, -1) if start > 0 and float(ends[k].reshape(-1)[0]) == start), -1)

    def between(self, matrix: Matrix, source: int, target: int) -> Path:
        """The tasks on the longest way from a place of the entry state to one of the exit."""
        key = (source, target)
        if key not in matrix.known:
            if matrix.parts is not None:
                first, second = matrix.parts
                middle = int(np.argmax(first.value[source, :, 0] + second.value[:, target, 0]))
                matrix.known[key] = self.between(first, source, middle) + self.between(second, middle, target)
            else:
                assert matrix.ran is not None
                matrix.known[key] = _Trace(self, matrix.ran).between(source, target)
        return matrix.known[key]


def _applied(state: Array, matrix: Array) -> Array:
    """[w, state, n] after [w, state, state, n]."""
    found = state[:, 0, None] + matrix[:, 0]
    for source in range(1, state.shape[1]):
        np.maximum(found, state[:, source, None] + matrix[:, source], out=found)
    return np.asarray(found)


class _Trace:
    """One layer's pass run again from one place, every end with what it waited for."""

    def __init__(self, clock: _Clock, ran: tuple[Step, Step | None]) -> None:
        self.stage, self.step, self.after = clock.stage, ran[0], ran[1]
        self.one = clock.steps[ran[0]]
        self.coming = clock.steps[ran[1]].ahead if ran[1] is not None else ()

    def between(self, source: int, target: int) -> Path:
        """Tasks on the longest way from `source` to `target`."""
        stage = self.stage
        ends = [NEVER] * stage.size
        ends[source] = 0.0
        paths: list[Path] = [Counter() for _ in range(stage.size)]
        entry, entry_path = ends[0], paths[0]
        old = list(zip(ends[stage.gathered :], paths[stage.gathered :], strict=True))

        def run(job: Job, step: Step, waits: list[tuple[float, Path]]) -> tuple[float, Path]:
            lane = stage.at[job.lane]
            waits = [*waits, (ends[lane], paths[lane])]
            if job.port_s is not None:
                waits.append((ends[stage.at[PORT]], paths[stage.at[PORT]]))
            start, path = max(waits, key=lambda wait: wait[0])
            mine = path + Counter({(step, member): 1 for member in job.members})
            if job.port_s is not None:
                ends[stage.at[PORT]], paths[stage.at[PORT]] = start + float(job.port_s.reshape(-1)[0]), mine
            ends[lane], paths[lane] = start + float(job.seconds.reshape(-1)[0]), mine
            return ends[lane], paths[lane]

        coming: list[tuple[float, Path]] = []
        for job in self.coming:
            assert self.after is not None
            coming.append(run(job, self.after, [(entry, entry_path), *(coming[b] for b in job.after)]))
        done: list[tuple[float, Path]] = []
        last: tuple[float, Path] | None = None
        for job in self.one.body:
            waits = [*(done[b] for b in job.after), *(old[need] for need in job.needs)]
            if job.feeds:
                waits.append((ends[stage.reduced + 1], paths[stage.reduced + 1]))
            done.append(run(job, self.step, waits))
            if job.reduces:
                last = done[-1] if last is None or done[-1][0] >= last[0] else last
        if self.one.host_s and entry + self.one.host_s > ends[0]:
            ends[0], paths[0] = entry + self.one.host_s, entry_path + Counter({(self.step, -1): 1})
        if last is not None:
            ends[stage.reduced + 1], paths[stage.reduced + 1] = ends[stage.reduced], paths[stage.reduced]
            ends[stage.reduced], paths[stage.reduced] = last
        for place in range(stage.gathers):
            ends[stage.gathered + place], paths[stage.gathered + place] = coming[place] if place < len(coming) else (NEVER, Counter())
        assert ends[target] > NEVER
        return paths[target]
