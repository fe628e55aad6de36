"""The best cut of a model into pipeline stages when layers need not divide, and when each may recompute in its own way.

A stage holds a run of layers, each under one policy (none, selective, full, ...). Its micro-batch takes t_i = f_i + b_i seconds,
a hand-over s each way, c_i forwards run before the first backward (p - i in 1f1b); stages are counted from 0:

    step      >= max_i [ P_i + m t_i + max(0, S_i - (c_i - 1) f_i) + max(0, S_i - (c_i - 1) b_i) + R_i ]
                 P_i = Σ_{j<i} (t_j + 2 s)  before i      S_i = Σ_{j>i} (t_j + 2 s)  the way to the last stage and back
                 R_i = ⌊(m - c_i - 1) / (p - i)⌋ max(0, S_i - (p - 1 - i) t_i)    round trips in the steady state (1f1b)
    memory_i   = state of its layers + in_flight_i Σ saved + largest workspace it uses  <=  capacity

(DERIVED, paths of the graph in cost/pipeline; both waits at once need m > c_i.) Every term grows with t_i at equal f_i, so a stage
runs the fastest mix that fits: a knapsack, solved by fronts of (bytes, seconds). U_i(n), the bound of stages i.. with the layers
from n on, is a recursion from the last stage, over the c layers that stage i takes:

    U_i(n) = max(i's terms without P_i, t_i + 2 s + U_{i+1}(n + c))        S_i(n) = t_{i+1} + 2 s + S_{i+1}(n + c)

Exact with fronts of (S, U) at every (i, n); first in arrays with the least S alone, which bounds what can still be best. The cut of
least bound is then simulated (cost/pipeline); where it takes longer, cuts are simulated in the order of their bounds until none left
can be better. Seconds and bytes become integers in `_whole` alone, so ties are exact and the CP-SAT oracle solves the same numbers.

Ties: least step, least joules, least Σ layers² (most even), then a fixed order. Sources: Narayanan 2021 (1F1B), Korthikanti 2022
(recompute). Not interleaved: the chunks of a device share its memory and time, which no recursion along the layers sees.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.pipeline import StageTimes, lower_bound, simulate
from rackmodel.cost.pipeline_orders import check, in_flight, weave
from rackmodel.errors import InfeasibleError, InputError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
CAN = ("1f1b", "gpipe")
NEVER = 1 << 60  # a stage that does not fit
SECONDS_SCALE = 2.0**53  # integers in a step run on one device
JOULES_SCALE = 2.0**40
BYTE = 1024  # shares of an uneven split are fractions of a byte
TIGHT = 1e-9  # a simulated step this near its bound is optimal
SIMULATED = 256  # cuts simulated before the search gives up proving
BATCH = 32  # of them at once
OPENED = 20_000  # partial cuts opened, at most


@dataclass(frozen=True)
class Ends:
    """What the first or the last stage runs besides its layers: an embedding, a head; seconds of a micro-batch, bytes once.

    state_bytes: weights, gradients, optimizer · saved_bytes: of a micro-batch; an embedding keeps them for every micro-batch in
    flight, a head for one (its backward follows at once), for all under gpipe · working_bytes: workspace."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    state_bytes: float = 0.0
    saved_bytes: float = 0.0
    working_bytes: float = 0.0


@dataclass(frozen=True)
class CutProblem:
    """L layers of K kinds under Q policies, on one column (mesh, micro-batch), one accelerator's share of everything.

    How `cost/step.Figures` of one plan and column fill it, one section a kind, one plan a policy:

        kinds            [L] kind of each layer, first to last: a section's number, `repeat` times
        forward_s        [K, Q] s, one layer, one micro-batch: Passes.forward (inf: this kind has no such policy)
        backward_s       [K, Q] s, with recompute and what is gathered for it: Passes.backward
        saved_bytes      [K, Q] kept for one micro-batch of one layer: held["activations"]
        working_bytes    [K, Q] once a stage, the largest used counts: held["working"] + held["remade"] + 2 held["gathered"]
        state_bytes      [K] of one layer: held["weights"] + held["gradients"] + held["optimizer"]
        joules           [K, Q] one layer, one micro-batch; breaks ties. None: seconds stand for them (least recompute)
        capacity_bytes   of one accelerator (inf: never binds)
        first, last      the sections before and after the layers
        send_s           s, one hand-over between stages, one direction: Sends.seconds
        sends_overlap    False: sender and receiver wait for it (profile.overlap.sends)
        schedule         1f1b or gpipe
        fewest           layers every stage holds at least
    """

    kinds: tuple[int, ...]
    forward_s: Array
    backward_s: Array
    saved_bytes: Array
    state_bytes: Array
    stages: int
    micro_batches: int
    working_bytes: Array | None = None
    joules: Array | None = None
    capacity_bytes: float = math.inf
    first: Ends = field(default_factory=Ends)
    last: Ends = field(default_factory=Ends)
    send_s: float = 0.0
    sends_overlap: bool = True
    schedule: str = "1f1b"
    fewest: int = 1


@dataclass(frozen=True)
class CutAnswer:
    """layers: [stages] of each stage · mixes: [stages, K, Q] of them, by kind and policy · seconds: simulated
    pipeline of a step · bound: no cut is faster · proven: this one is the fastest (to 1e-9) · joules: of the layers, a step (recomputed as
    seconds where none were given) · held_bytes: [stages] · simulated: cuts tried."""

    layers: tuple[int, ...]
    mixes: Ints
    seconds: float
    bound: float
    proven: bool
    joules: float
    held_bytes: Array
    simulated: int


def best_cut(problem: CutProblem) -> CutAnswer:
    """The fastest cut and mixes of policies. InputError where the problem is ill-formed, InfeasibleError where no cut fits.

    The latter's need is the least capacity for which a cut exists, met by the stage named.
    """
    whole = _whole(problem)
    length = len(problem.kinds)
    fastest = np.where(whole.allowed, whole.seconds, NEVER).min(axis=1)
    before = np.concatenate([[0], np.cumsum(fastest[np.asarray(problem.kinds)])])
    width = min(length, max(-(-length // problem.stages) + 2, problem.fewest))
    while True:
        tables = _tables(problem, whole, width)
        bounds = _bounds(problem, whole, tables)
        if bounds.least >= NEVER:
            if width == length:
                raise _misses(problem, tables)
            width = min(length, 2 * width)
            continue
        layers = _seed(problem, whole, bounds)
        seconds = _simulate(problem, [tables.mixes(layers)])[0]
        most = int(seconds * (1 + TIGHT) / whole.unit) // problem.micro_batches  # longer runs of layers take longer than this cut
        needed = int((np.searchsorted(before, before + most, side="right") - 1 - np.arange(length + 1)).max())
        if needed <= width:
            break
        width = needed
    least, _ = _exact(problem, whole, tables, bounds, int(seconds * (1 + TIGHT) / whole.unit), ties=False)
    _, layers = _exact(problem, whole, tables, bounds, least, ties=True)
    found = _Found(layers, _simulate(problem, [tables.mixes(layers)])[0], least * whole.unit, 2)
    if not found.proven:
        found = _search(problem, whole, tables, bounds, found)
    return _answer(problem, whole, tables.mixes(found.layers), found)


# -- integers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Whole:
    """The problem in integers. unit: seconds · seconds, joules, saved, working, allowed: [K, Q] · forward: [2, K] least and most ·
    state: [K] · extra: [3, p] seconds, of them forward (twice) of the ends · hop: seconds from stage to stage and back ·
    fixed, space: [p] bytes of the ends · flying: [p] micro-batches · ceiling: none holds more ·
    runs: [L + 1, K] layers of each kind before a layer.
    Bytes are in 1 / BYTE."""

    unit: float
    seconds: Ints
    forward: Ints
    joules: Ints
    allowed: NDArray[np.bool_]
    saved: Ints
    working: Ints
    state: Ints
    extra: Ints
    hop: int
    fixed: Ints
    space: Ints
    flying: Ints
    capacity: int
    ceiling: int
    runs: Ints


def _whole(problem: CutProblem) -> _Whole:
    """Check and scale: the only place where numbers are rounded."""
    p, m = problem.stages, problem.micro_batches
    if problem.schedule not in CAN:
        raise InputError(f"no cut for schedule {problem.schedule!r}", path="schedule", known=CAN, given=problem.schedule)
    check(problem.schedule, p, m)
    forward, backward, saved = (np.asarray(x, dtype=float) for x in (problem.forward_s, problem.backward_s, problem.saved_bytes))
    working = np.zeros_like(saved) if problem.working_bytes is None else np.asarray(problem.working_bytes, dtype=float)
    seconds, state = forward + backward, np.asarray(problem.state_bytes, dtype=float)
    joules = seconds if problem.joules is None else np.asarray(problem.joules, dtype=float)
    _check(problem, forward, [backward, saved, working, joules], state)
    allowed = np.isfinite(seconds)
    forward = np.stack([np.where(allowed, forward, np.inf).min(axis=1), np.where(allowed, forward, 0.0).max(axis=1)])
    seconds, joules, saved, working = (np.where(allowed, x, 0.0) for x in (seconds, joules, saved, working))
    kinds, ends, length = np.asarray(problem.kinds, dtype=np.int64), (problem.first, problem.last), len(problem.kinds)
    waits = 0.0 if problem.sends_overlap or p == 1 else problem.send_s
    hop = 2.0 * problem.send_s if problem.sends_overlap else 0.0
    extra = np.array([2.0, 1.0, 1.0])[:, None] * np.full(p, waits)
    for stage, end in zip((0, -1), ends, strict=True):
        extra[:, stage] += np.array([end.forward_s + end.backward_s, end.forward_s, end.forward_s])
    most = (m + 1) * (seconds[kinds].max(axis=1).sum() + extra[0].sum() + hop * p)
    unit = 2.0 ** math.ceil(math.log2(most / SECONDS_SCALE)) if most > 0 else 1.0
    heat = joules[kinds].max(axis=1).sum()
    heat = 2.0 ** math.ceil(math.log2(heat / JOULES_SCALE)) if heat > 0 else 1.0
    flying = in_flight(problem.schedule, p, m)
    fixed, space = _held_by_ends(problem, flying)
    whole_saved, whole_working, whole_state = _up(saved), _up(working), _up(state)
    ceiling = (whole_state[kinds] + whole_saved[kinds].max(axis=1) * int(flying.max())).sum() + whole_working.max()
    ceiling += fixed.sum() + space.max()
    capacity = int(min(problem.capacity_bytes * BYTE, float(ceiling)))
    runs = np.zeros((length + 1, len(state)), dtype=np.int64)
    runs[1:] = np.cumsum(kinds[:, None] == np.arange(len(state)), axis=0)
    return _Whole(
        unit,
        np.rint(seconds / unit).astype(np.int64),
        np.rint(forward / unit).astype(np.int64),
        np.rint(joules / heat).astype(np.int64),
        allowed,
        whole_saved,
        whole_working,
        whole_state,
        np.rint(extra / unit).astype(np.int64),
        round(hop / unit),
        fixed,
        space,
        flying,
        capacity,
        int(ceiling),
        runs,
    )


def _held_by_ends(problem: CutProblem, flying: Ints) -> tuple[Ints, Ints]:
    """([p], [p]) bytes and workspace of the embedding and the head."""
    fixed, space = np.zeros(problem.stages), np.zeros(problem.stages)
    copies = (int(flying[0]), int(flying[-1]) if problem.schedule == "gpipe" else 1)
    for stage, end, times in zip((0, -1), (problem.first, problem.last), copies, strict=True):
        fixed[stage] += end.state_bytes + times * end.saved_bytes
        space[stage] = max(space[stage], end.working_bytes)
    return _up(fixed), _up(space)


def _up(values: Array) -> Ints:
    return np.ceil(values * BYTE).astype(np.int64)


def _check(problem: CutProblem, forward: Array, others: Sequence[Array], state: Array) -> None:
    length, least = len(problem.kinds), problem.stages * problem.fewest
    if forward.ndim != 2 or any(x.shape != forward.shape for x in others) or state.shape != forward.shape[:1]:
        raise InputError(f"figures of one [kinds, policies] shape expected, forward_s has {forward.shape}", path="cut")
    if not problem.kinds or min(problem.kinds) < 0 or max(problem.kinds) >= len(state):
        raise InputError(f"each layer's kind must be one of the {len(state)} given", path="cut.kinds")
    numbers = [problem.capacity_bytes, problem.send_s, problem.fewest, *vars(problem.first).values(), *vars(problem.last).values()]
    runs: NDArray[np.bool_] = np.isfinite(np.add(forward, others[0]))
    if any(not (x >= 0).all() for x in (forward, *others, state)) or not all(x >= 0 for x in numbers):
        raise InputError("seconds, bytes, joules and layers must not be negative", path="cut")
    if not all(np.isfinite(x[runs]).all() for x in others) or not np.isfinite([*state, *numbers[1:]]).all():
        raise InputError("only the capacity, and the seconds of a policy that a kind does not have, may be infinite", path="cut")
    if not all(runs[kind].any() for kind in set(problem.kinds)):
        raise InputError("a kind of layer has no policy of finite seconds", path="cut.forward_s")
    if least > length:
        raise InfeasibleError(
            f"{problem.stages} pipeline stages need {least} layers ({problem.fewest} each), the model has {length}",
            resource="layers",
            need=float(least),
            have=float(length),
            unit="layer",
        )


# -- one stage: the fastest mix that fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Front:
    """Mixes of policies for a run of layers, fastest first, each with fewer bytes than all before: [n], mix [n, K · Q]."""

    bytes: Ints
    seconds: Ints
    joules: Ints
    mix: Ints


@dataclass(frozen=True)
class _Tables:
    """Every run of at most `width` layers on every stage. which: [L + 1, width + 1] its number (-1: beyond the model, too few) ·
    seconds (NEVER: does not fit), joules, need: [p, runs] · forward: [2, runs] · mix: [p, runs, K · Q]."""

    width: int
    which: Ints
    seconds: Ints
    forward: Ints
    joules: Ints
    need: Ints
    mix: Ints
    shape: tuple[int, int]

    def at(self, what: Ints, stage: int) -> Ints:
        """[L + 1, width + 1] of `what` for one stage, NEVER where there is no such run."""
        return np.where(self.which < 0, NEVER, what[stage, self.which])

    def mixes(self, layers: Sequence[int]) -> Ints:
        """[p, K, Q] of a cut."""
        starts = np.concatenate([[0], np.cumsum(layers)[:-1]])
        runs = self.which[starts, list(layers)]
        return self.mix[np.arange(len(runs)), runs].reshape(-1, *self.shape)


def _tables(problem: CutProblem, whole: _Whole, width: int) -> _Tables:
    length, p, shape = len(problem.kinds), problem.stages, whole.seconds.shape
    start, size = np.arange(length + 1)[:, None], np.arange(width + 1)
    inside: NDArray[np.bool_] = np.logical_and(start + size <= length, size >= problem.fewest)
    counts = whole.runs[np.minimum(start + size, length)] - whole.runs[start]  # [L + 1, width + 1, K]
    vectors, number = np.unique(counts[inside], axis=0, return_inverse=True)
    which = np.full(inside.shape, -1, dtype=np.int64)
    which[inside] = number.reshape(-1)
    seconds, need = np.full((p, len(vectors)), NEVER), np.full((p, len(vectors)), NEVER)
    joules, mix = np.zeros_like(seconds), np.zeros((p, len(vectors), shape[0] * shape[1]), dtype=np.int64)
    for level in np.unique(whole.working[whole.allowed]):
        fronts = _Fronts(whole, whole.allowed & (whole.working <= level))
        space = np.maximum(whole.space, level)
        for x, vector in enumerate(vectors):
            front = fronts.of(tuple(int(n) for n in vector))
            if not len(front.bytes):
                continue
            always = whole.fixed + (space if vector.any() else whole.space) + int(vector @ whole.state)
            need[:, x] = np.minimum(need[:, x], always + whole.flying * front.bytes[-1])
            first = np.searchsorted(-front.bytes, -((whole.capacity - always) // whole.flying))
            fits = first < len(front.bytes)
            first = np.minimum(first, len(front.bytes) - 1)
            own, heat = front.seconds[first] + whole.extra[0], front.joules[first]
            better = fits & ((own < seconds[:, x]) | ((own == seconds[:, x]) & (heat < joules[:, x])))
            seconds[better, x], joules[better, x], mix[better, x] = own[better], heat[better], front.mix[first[better]]
    return _Tables(width, which, seconds, whole.forward @ vectors.T, joules, need, mix, (shape[0], shape[1]))


class _Fronts:
    """Fronts of every count of layers by kind, each from the one with a layer less (a part of a best mix is a best mix)."""

    def __init__(self, whole: _Whole, allowed: NDArray[np.bool_]) -> None:
        kinds, policies = allowed.shape
        none = np.zeros(1, dtype=np.int64)
        self.known = {(0,) * kinds: _Front(none, none, none, np.zeros((1, kinds * policies), dtype=np.int64))}
        self.layer = []
        for kind in range(kinds):
            use = np.flatnonzero(allowed[kind])
            one = np.eye(kinds * policies, dtype=np.int64)[kind * policies + use]
            self.layer.append(_Front(whole.saved[kind, use], whole.seconds[kind, use], whole.joules[kind, use], one))

    def of(self, counts: tuple[int, ...]) -> _Front:
        """The front of a run of so many layers of each kind."""
        missing: list[tuple[tuple[int, ...], int]] = []
        while counts not in self.known:
            kind = max(k for k, n in enumerate(counts) if n)
            missing.append((counts, kind))
            counts = (*counts[:kind], counts[kind] - 1, *counts[kind + 1 :])
        front = self.known[counts]
        for longer, kind in reversed(missing):
            front = self.known[longer] = _join(front, self.layer[kind])
        return front


def _join(run: _Front, layer: _Front) -> _Front:
    """A run and one more layer under each of its policies; of equal time and joules, the one with fewest bytes."""
    saved, seconds, joules = (
        np.add.outer(a, b).reshape(-1) for a, b in ((layer.bytes, run.bytes), (layer.seconds, run.seconds), (layer.joules, run.joules))
    )
    order = np.lexsort((saved, joules, seconds))
    least = np.minimum.accumulate(saved[order])
    kept = order[np.concatenate([[True], least[1:] < least[:-1]])[: len(order)]]
    mix = layer.mix[kept // len(run.bytes)] + run.mix[kept % len(run.bytes)] if len(kept) else layer.mix[:0]
    return _Front(saved[kept], seconds[kept], joules[kept], mix)


# -- all stages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bounds:
    """least: no cut is faster, NEVER where none fits · through: [p, L + 1, width + 1] U_i(n) with c layers, at the least S ·
    seconds: [p, L + 1, width + 1] t_i; NEVER."""

    least: int
    through: Ints
    seconds: Ints


@dataclass(frozen=True)
class _Terms:
    """The bound's terms of one stage: everything but what goes before it. lead, last_lead: c of it and of the last stage."""

    micro_batches: int
    lead: int
    last_lead: int

    def of(self, own: Ints, forward: Ints, far: Ints) -> Ints:
        """own: seconds of a micro-batch · forward: [2, ...] its least and most seconds of it · far: S; all broadcast."""
        at_start = np.maximum(far - (self.lead - 1) * forward[1], 0)
        at_end = np.maximum(far - (self.lead - 1) * (own - forward[0]), 0)
        ends = at_start + at_end if self.micro_batches > self.lead else np.maximum(at_start, at_end)
        return np.asarray(self.micro_batches * own + ends + self.rounds * np.maximum(far - self.others * own, 0))

    @property
    def others(self) -> int:
        """Stages that a round trip to the last one visits."""
        return self.lead - self.last_lead

    @property
    def rounds(self) -> int:
        """Round trips in the steady state."""
        return max(self.micro_batches - self.lead - 1, 0) // (self.others + 1)


def _terms(problem: CutProblem) -> list[_Terms]:
    lead = weave(problem.schedule, problem.stages, problem.micro_batches, 1, np.arange(problem.stages))[0].tolist()
    return [_Terms(problem.micro_batches, c, lead[-1]) for c in lead]


def _bounds(problem: CutProblem, whole: _Whole, tables: _Tables) -> _Bounds:
    length, p, width, terms = len(problem.kinds), problem.stages, tables.width, _terms(problem)
    value, rest = np.full((p + 1, length + 1), NEVER), np.full((p + 1, length + 1), NEVER)  # rest: least Σ t + hops
    value[p, length] = rest[p, length] = 0
    seconds, through = (np.empty((p, length + 1, width + 1), dtype=np.int64) for _ in range(2))
    after = np.minimum(np.arange(length + 1)[:, None] + np.arange(width + 1), length)
    for i in range(p - 1, -1, -1):
        seconds[i] = tables.at(tables.seconds, i)
        never = (seconds[i] >= NEVER) | (value[i + 1][after] >= NEVER)
        hop = whole.hop if i < p - 1 else 0
        own, far, then = (np.where(never, 0, x) for x in (seconds[i], hop + rest[i + 1][after], value[i + 1][after]))
        forward = tables.forward[:, tables.which] + whole.extra[1, i]
        through[i] = np.where(never, NEVER, np.maximum(terms[i].of(own, forward, far), own + hop + then))
        value[i] = through[i].min(axis=1)
        rest[i] = np.where(never, NEVER, own + far).min(axis=1)
    return _Bounds(int(value[0, 0]), through, seconds)


def _misses(problem: CutProblem, tables: _Tables) -> InfeasibleError:
    """No cut fits: the cut whose fullest stage needs least, and that stage."""
    length, p = len(problem.kinds), problem.stages
    after = np.minimum(np.arange(length + 1)[:, None] + np.arange(tables.width + 1), length)
    value = np.full((p + 1, length + 1), NEVER)
    value[p, length] = 0
    need = [tables.at(tables.need, i) for i in range(p)]
    for i in range(p - 1, -1, -1):
        value[i] = np.maximum(need[i], value[i + 1][after]).min(axis=1)
    at, held = 0, []
    for i in range(p):
        count = int(np.maximum(need[i][at], value[i + 1][after[at]]).argmin())
        held.append((int(need[i][at, count]), -i, count))
        at += count
    most, stage, layers = max(held)
    return _infeasible(problem, -stage, f"{layers} layers", most / BYTE)


def _infeasible(problem: CutProblem, stage: int, holds: str, need: float) -> InfeasibleError:
    have = problem.capacity_bytes
    return InfeasibleError(
        f"memory: of all cuts into {problem.stages} stages the smallest still needs {need / 1e9:.4g} GB on stage {stage} ({holds}), "
        f"an accelerator has {have / 1e9:.4g}; short by {(need - have) / 1e9:.4g} GB",
        resource=f"stage {stage} memory",
        need=need,
        have=have,
        unit="byte",
    )


def _seed(problem: CutProblem, whole: _Whole, bounds: _Bounds) -> tuple[int, ...]:
    """A good cut: at each stage the layers of least bound, nearest to an even cut."""
    length, p = len(problem.kinds), problem.stages
    before, at, layers = 0, 0, []
    for i in range(p):
        sizes = np.flatnonzero(bounds.through[i, at] < NEVER)
        most = np.maximum(before + bounds.through[i, at, sizes], bounds.least)
        size = int(sizes[np.lexsort((np.abs(p * (at + sizes) - length * (i + 1)), most))[0]])
        before += int(bounds.seconds[i, at, size]) + whole.hop
        at += size
        layers.append(size)
    return tuple(layers)


@dataclass(frozen=True)
class _States:
    """Ways to run stages i.. on the layers from n on, none better in all: far, most: U with its true S · price: ties · layers: theirs."""

    far: Ints
    most: Ints
    price: Ints
    layers: list[tuple[int, ...]]


def _exact(problem: CutProblem, whole: _Whole, tables: _Tables, bounds: _Bounds, limit: int, *, ties: bool) -> tuple[int, tuple[int, ...]]:
    """(U, layers) of the cut of least U among those of at most `limit`; with `ties` the first in their order of all within it."""
    length, p, terms = len(problem.kinds), problem.stages, _terms(problem)
    earliest, latest = _reach(problem, whole, bounds, limit)
    zero = np.zeros(1, dtype=np.int64)
    states = {length: _States(zero, zero, zero, [()])}
    for i in range(p - 1, -1, -1):
        hop, found = whole.hop if i < p - 1 else 0, {}
        for n in np.flatnonzero(earliest[i] < NEVER).tolist():
            sizes = np.flatnonzero(earliest[i, n] + bounds.through[i, n] <= limit).tolist()
            sizes = [size for size in sizes if n + size in states]
            if not sizes:
                continue
            rest = [states[n + size] for size in sizes]
            which = np.repeat(np.arange(len(sizes)), [len(one.far) for one in rest])
            run = tables.which[n, sizes][which]
            far, then, price = (np.concatenate(x) for x in zip(*((one.far, one.most, one.price) for one in rest), strict=True))
            own, far = tables.seconds[i, run], far + hop
            most = np.maximum(terms[i].of(own, tables.forward[:, run] + whole.extra[1, i], far), own + hop + then)
            if ties:
                most = np.maximum(most, limit - latest[i, n])  # no prefix is longer: below this, all are the same
                price = price + tables.joules[i, run] * (length * length + 1) + np.square(sizes)[which]
            kept = _undominated(price, own + far, most, earliest[i, n] + most <= limit)
            if len(kept):
                first = np.cumsum([0] + [len(one.far) for one in rest])
                layers = [(sizes[which[x]], *rest[which[x]].layers[x - first[which[x]]]) for x in kept]
                found[n] = _States((own + far)[kept], most[kept], price[kept], layers)
        states = found
    best = states[0]
    chosen = int(np.lexsort((best.most, best.price))[0])
    return int(best.most[chosen]), best.layers[chosen]


def _reach(problem: CutProblem, whole: _Whole, bounds: _Bounds, limit: int) -> tuple[Ints, Ints]:
    """[p + 1, L + 1] least (NEVER: not reached) and most seconds before stage i starts at layer n, by cuts of bound `limit`."""
    length, p = len(problem.kinds), problem.stages
    earliest, latest = np.full((p + 1, length + 1), NEVER), np.full((p + 1, length + 1), -1)
    earliest[0, 0] = latest[0, 0] = 0
    for i in range(p):
        hop = whole.hop if i < p - 1 else 0
        for size in range(problem.fewest, bounds.through.shape[2]):
            n = np.flatnonzero(np.minimum(earliest[i], limit + 1) + bounds.through[i, :, size] <= limit)
            more = bounds.seconds[i, n, size] + hop
            earliest[i + 1, n + size] = np.minimum(earliest[i + 1, n + size], earliest[i, n] + more)
            latest[i + 1, n + size] = np.maximum(latest[i + 1, n + size], latest[i, n] + more)
    return earliest, latest


def _undominated(price: Ints, far: Ints, most: Ints, within: NDArray[np.bool_]) -> Ints:
    """Entries that no other equals or beats in all three figures, by price."""
    order = np.lexsort((most, far, price))
    order = order[within[order]]
    kept, stair = [], ([-1], [NEVER])  # of those kept: far ascending, most descending
    for x, one_far, one_most in zip(order.tolist(), far[order].tolist(), most[order].tolist(), strict=True):
        at = bisect_right(stair[0], one_far)
        if stair[1][at - 1] <= one_most:
            continue
        end = at
        while end < len(stair[0]) and stair[1][end] >= one_most:
            end += 1
        stair[0][at:end], stair[1][at:end] = [one_far], [one_most]
        kept.append(x)
    return np.array(kept, dtype=np.int64)


# -- exact times -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """layers of the best simulated cut, its seconds, the bound on all cuts, how many were simulated."""

    layers: tuple[int, ...]
    seconds: float
    bound: float
    simulated: int

    @property
    def proven(self) -> bool:
        """Whether the bound meets the seconds."""
        return self.seconds <= self.bound * (1 + TIGHT)


def _search(problem: CutProblem, whole: _Whole, tables: _Tables, bounds: _Bounds, found: _Found) -> _Found:
    """Simulate cuts in the order of their bounds until none left can beat the best, at most SIMULATED of them.

    Complete where a layer's forward takes as long under every policy: then a stage's fastest mix is the fastest in both passes.
    """
    cuts, best, tried = (
        _in_order(problem, whole, tables, bounds),
        (_rank(found.seconds), NEVER, found.layers, found.seconds),
        found.simulated,
    )
    open_from, gave_up = 0.0, False
    while open_from <= best[3] * (1 + TIGHT) and tried < SIMULATED and not gave_up:
        batch = list(islice(cuts, BATCH))
        gave_up = bool(batch) and not batch[-1][2]
        open_from = batch[-1][0] * whole.unit if len(batch) == BATCH or gave_up else math.inf
        left = [one for one in batch if one[2] and one[0] * whole.unit <= best[3] * (1 + TIGHT)]
        if left:
            times = _stage_times(problem, [tables.mixes(layers) for _, _, layers in left])
            least = lower_bound(problem.schedule, times, micro_batches=problem.micro_batches)
            left = [left[x] for x in np.flatnonzero(least <= best[3] * (1 + TIGHT))]
        if left:
            took = _simulate(problem, [tables.mixes(layers) for _, _, layers in left])
            best = min([best, *((_rank(t), price, layers, t) for (_, price, layers), t in zip(left, took, strict=True))])
            tried += len(left)
    alike = bool((whole.forward[0] == whole.forward[1]).all())
    return _Found(best[2], best[3], max(found.bound, min(open_from, best[3])) if alike else found.bound, tried)


def _rank(seconds: float) -> float:
    """Equal steps whose sums were rounded differently are one rank."""
    return float(f"{seconds:.10e}")


def _in_order(problem: CutProblem, whole: _Whole, tables: _Tables, bounds: _Bounds) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(bound, price, layers) of every cut, by bound: best first over partial cuts. No layers: given up, what is left has that bound."""
    p, scale = problem.stages, len(problem.kinds) ** 2 + 1
    heap: list[tuple[int, int, int, int, int, tuple[int, ...]]] = [(bounds.least, 0, 0, 0, 0, ())]
    for opened in count(1):
        if not heap:
            return
        floor, depth, price, before, n, layers = heapq.heappop(heap)
        i = -depth
        if i == p:
            yield floor, price, layers
            continue
        if opened > OPENED:
            yield floor, 0, ()
            return
        hop, through = whole.hop if i < p - 1 else 0, bounds.through[i, n]
        for size in np.flatnonzero(through < NEVER).tolist():
            then = before + int(bounds.seconds[i, n, size]) + hop
            more = price + int(tables.joules[i, tables.which[n, size]]) * scale + size * size
            heapq.heappush(heap, (max(floor, before + int(through[size])), depth - 1, more, then, n + size, (*layers, size)))


def _stage_times(problem: CutProblem, mixes: Sequence[Ints]) -> StageTimes:
    """Of cuts, each [S, K, Q] layers."""
    counts = np.stack(mixes, axis=1).astype(float)  # [S, n, K, Q]
    wait = 0.0 if problem.sends_overlap or problem.stages == 1 else problem.send_s
    first, last, both = problem.first, problem.last, []
    allowed = np.isfinite(np.asarray(problem.forward_s) + problem.backward_s)
    for layer, ends in ((problem.forward_s, (first.forward_s, last.forward_s)), (problem.backward_s, (first.backward_s, last.backward_s))):
        seconds = np.einsum("snkq,kq->sn", counts, np.where(allowed, layer, 0.0)) + wait
        seconds[0] += ends[0]
        seconds[-1] += ends[1]
        both.append(seconds)
    send = problem.send_s if problem.sends_overlap else 0.0
    return StageTimes(both[0], both[1], 0.0, send, send)


def _simulate(problem: CutProblem, mixes: Sequence[Ints]) -> list[float]:
    """Simulated seconds of cuts."""
    times = _stage_times(problem, mixes)
    return [float(t) for t in simulate(problem.schedule, times, micro_batches=problem.micro_batches).finish_s]


def _answer(problem: CutProblem, whole: _Whole, mixes: Ints, found: _Found) -> CutAnswer:
    """What a cut is and holds."""
    held = whole.fixed + mixes.sum(axis=2) @ whole.state + whole.flying * (mixes * whole.saved).sum(axis=(1, 2))
    held = held + np.maximum(whole.space, np.where(mixes > 0, whole.working, 0).max(axis=(1, 2)))
    price = np.asarray(problem.forward_s) + problem.backward_s if problem.joules is None else np.asarray(problem.joules)
    joules = float((mixes.sum(axis=0) * np.where(whole.allowed, price, 0.0)).sum()) * problem.micro_batches
    bound = min(found.bound, found.seconds)
    return CutAnswer(found.layers, mixes, found.seconds, bound, found.proven, joules, held / BYTE, found.simulated)


# -- the same by CP-SAT ------------------------------------------------------------------------------------------------


def cut_by_cpsat(problem: CutProblem, *, seconds: float = 60.0) -> CutAnswer:
    """The cut of least bound, ties by joules: an oracle for `best_cut`.

    seconds: of the solver's deterministic time. bound: the solver's; proven where the simulation meets it.
    Errors as `best_cut`; where time ran out, InfeasibleError says that none was found.
    """
    whole = _whole(problem)
    model = _Model(problem, whole, whole.capacity)
    status = model.minimise(model.step, seconds)
    if status == "INFEASIBLE":
        model = _Model(problem, whole, whole.ceiling)
        model.minimise(model.fullest, seconds)
        need = [model.solver.value(held) for held in model.held]
        raise _infeasible(problem, need.index(max(need)), "all of it", max(need) / BYTE)
    if status not in ("OPTIMAL", "FEASIBLE"):
        raise InfeasibleError(f"no cut found in {seconds:g} s of the solver", resource="solver time", have=seconds, unit="s")
    bound, mixes = model.solver.best_objective_bound * whole.unit, model.mixes()
    if status == "OPTIMAL":
        model.hold(mixes)
        if model.minimise(model.joules, seconds) in ("OPTIMAL", "FEASIBLE"):
            mixes = model.mixes()
    layers = tuple(int(n) for n in mixes.sum(axis=(1, 2)))
    return _answer(problem, whole, mixes, _Found(layers, _simulate(problem, [mixes])[0], bound, 1))


class _Model:
    """layers[s, k, q]: of kind k under policy q · held[i], fullest: bytes · step: seconds."""

    def __init__(self, problem: CutProblem, whole: _Whole, capacity: int) -> None:
        from ortools.sat.python import cp_model

        self.model, self.solver, self.shape = cp_model.CpModel(), cp_model.CpSolver(), whole.seconds.shape
        self.length, self.stages = len(problem.kinds), problem.stages
        cells = [(int(k), int(q)) for k, q in np.argwhere(whole.allowed)]
        self.layers = {(s, k, q): self._layers(f"layers {s} {k} {q}") for s in range(self.stages) for k, q in cells}
        self.step, self.fullest = self.model.new_int_var(0, NEVER, "step"), self.model.new_int_var(0, capacity, "fullest")
        self._edges(problem, whole)
        self.held = [self._bytes(whole, i, capacity) for i in range(self.stages)]
        self._step(problem, whole, cells)
        self.joules = sum(variable * int(whole.joules[k, q]) for (_, k, q), variable in self.layers.items())

    def _step(self, problem: CutProblem, whole: _Whole, cells: list[tuple[int, int]]) -> None:
        """The bound of the module's docstring: each max is a constraint for each of its sides."""
        p, terms, extra = self.stages, _terms(problem), whole.extra.tolist()
        own = [sum(self.layers[s, k, q] * int(whole.seconds[k, q]) for k, q in cells) for s in range(self.stages)]
        forward = [
            [sum(self.layers[i, k, q] * int(whole.forward[side, k]) for k, q in cells) + extra[1][i] for i in range(p)] for side in range(2)
        ]
        turn, first = round(2.0 * problem.send_s / whole.unit), round((problem.first.forward_s + problem.first.backward_s) / whole.unit)
        for i in range(p):
            before = sum(own[:i]) + i * turn + (first if i else 0)
            busy = own[i] + extra[0][i]
            far = sum(own[j] + extra[0][j] + whole.hop for j in range(i + 1, p))
            one = terms[i]
            at_start, at_end = far - (one.lead - 1) * forward[1][i], far - (one.lead - 1) * (busy - forward[0][i])
            ends = [0, at_start, at_end] + ([at_start + at_end] if one.micro_batches > one.lead else [])
            trips = [0, one.rounds * (far - one.others * busy)]
            for end in ends:
                for trip in trips:
                    self.model.add(self.step >= before + problem.micro_batches * busy + end + trip)

    def _layers(self, name: str) -> Any:
        return self.model.new_int_var(0, self.length, name)

    def _edges(self, problem: CutProblem, whole: _Whole) -> None:
        edge = [self._layers(f"edge {s}") for s in range(self.stages + 1)]
        self.model.add(edge[0] == 0)
        self.model.add(edge[-1] == self.length)
        for s in range(self.stages):
            self.model.add(edge[s + 1] - edge[s] >= problem.fewest)
        for k in range(self.shape[0]):
            upto = [self._layers(f"of kind {k} before {s}") for s in range(self.stages + 1)]
            for s in range(self.stages + 1):
                self.model.add_element(edge[s], whole.runs[:, k].tolist(), upto[s])
            for s in range(self.stages):
                mine = [self.layers[s, k, q] for q in range(self.shape[1]) if whole.allowed[k, q]]
                self.model.add(sum(mine) == upto[s + 1] - upto[s])

    def _bytes(self, whole: _Whole, device: int, capacity: int) -> Any:
        """Bytes on a device: the workspace is at least that of every policy that it uses."""
        held = self.model.new_int_var(0, capacity, f"held {device}")
        kept = int(whole.fixed[device])
        for k, q in np.argwhere(whole.allowed).tolist():
            here = self.layers[device, k, q]
            kept = kept + here * int(whole.saved[k, q] * whole.flying[device] + whole.state[k])
        self.model.add(held >= kept + int(whole.space[device]))
        for k, q in np.argwhere(whole.allowed & (whole.working > whole.space[device])).tolist():
            used = self.model.new_bool_var(f"{device} uses {k} {q}")
            self.model.add(self.layers[device, k, q] <= self.length * used)
            self.model.add(held >= kept + int(whole.working[k, q])).only_enforce_if(used)
        self.model.add(self.fullest >= held)
        return held

    def minimise(self, what: Any, seconds: float) -> str:
        """Solve, deterministically; the status."""
        self.model.minimize(what)
        self.solver.parameters.num_workers, self.solver.parameters.random_seed = 1, 0
        self.solver.parameters.max_deterministic_time = seconds
        return str(self.solver.status_name(self.solver.solve(self.model)))

    def hold(self, mixes: Ints) -> None:
        """Keep the step just found, and start from its cut."""
        self.model.add(self.step <= round(self.solver.objective_value))
        for key, variable in self.layers.items():
            self.model.add_hint(variable, int(mixes[key]))

    def mixes(self) -> Ints:
        """[S, K, Q] of the solution."""
        found = np.zeros((self.stages, *self.shape), dtype=np.int64)
        for key, variable in self.layers.items():
            found[key] = self.solver.value(variable)
        return found
