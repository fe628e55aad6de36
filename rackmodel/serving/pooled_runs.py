"""Requests of a closed loop run one by one through pools of prompts and of decodes: the groups that they stay in, the steps that bring
together again who parted, and chance, which no mean says (pools.py). Event by event, steps of decodes in strides.

    prompts      a worker takes what waits, up to a full batch, f + p b seconds of b prompts; requests are dealt to workers in turn
    transfers    of a worker one after the other, K each, asked for when the worker of decodes looks, or at once where it set room aside
    decodes      dealt in turn; a worker of n sequences goes t(n) a step, and looks, and lets in and out, between two steps alone: from
                 one who comes or leaves to the next one all steps are alike, so that they are one stride
    read         waves after the first: those that were run, and for all later ones the mean of the last quarter of these

A loop is run for no more than MOST requests (UNLIKE of unlike lengths, whose chance evens out), or for as many waves as part groups (EACH),
up to LONGEST; WAVES of each client at most, where these are FEWEST waves at least; no longer than FIRST waves where the LAST of these are
alike.
Against runs step by step: tests/pooled_loops.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

import numpy as np

from rackmodel.arrays import Array
from rackmodel.serving.kept_drafts import run_steps

MOST, UNLIKE, LONGEST = 4_000, 1_500, 12_000
WAVES, FIRST, LAST, SETTLED = 32, 16, 6, 1e-3
FEWEST, EACH = 4, 6
_HARDLY = 1e-9
"""Of a step: what rounding leaves of times that are the same."""
ARRIVES, BEGINS, ENDS, HANDED, STEPS = range(5)


@dataclass(frozen=True, kw_only=True)
class PooledLoop:
    """One loop. most: prompts of a full batch · floor_s, each_s: seconds of a batch, and of a prompt in it · later_s: from its end to the
    cache (stages of a pipeline) · moving_s: of a cache · asking_s: of the server, before a prompt's queue · step_s: of 0, 1, 2 ...
    sequences of a worker of decodes · room: that it holds · ahead: steps scheduled ahead · polled: steps from a look to the next ·
    asks_first, first_again: whether it sets room aside before the prompt, and computes the first token once more · waves: requests that
    each client sends · count: requests that are run · lengths, drafts: of `drawn_requests`."""

    clients: int
    prompts: int
    decodes: int
    most: float
    floor_s: float
    each_s: float
    later_s: float
    moving_s: float
    asking_s: float
    step_s: tuple[float, ...]
    room: float
    ahead: int
    polled: int
    asks_first: bool
    first_again: bool
    waves: float
    count: int
    lengths: tuple[float, float, float]
    drafts: tuple[int, float]


@dataclass(frozen=True)
class PooledFigures:
    """Means of requests. first_s: to a first token · step_s: of a step of decoding · burst_s: to a first token of those that all send at
    once."""

    first_s: float
    step_s: float
    burst_s: float


def even_lengths(draw: np.random.Generator, mean: float, variation: float, count: int) -> Array:
    """[count] whole lengths in a drawn order: every one of so many that are evenly apart around their mean is there."""
    wide = mean * min(3.0**0.5 * variation, 1.0)
    return np.asarray(np.maximum(np.round(draw.permutation(mean + wide * np.linspace(-1.0, 1.0, 2 * count + 1)[1::2])), 1.0))


def waves_run(clients: int, waves: float, unlike: bool) -> int:
    """Waves of a loop that are run; 0 where fewer than FEWEST of those that it has would be."""
    count = int(min(waves, WAVES, max((UNLIKE if unlike else MOST) // clients, min(LONGEST // clients, EACH))))
    return count if count >= min(waves, FEWEST) and count > 2 else 0


def whole_numbers(clients: float) -> list[tuple[int, float]]:
    """(whole numbers of clients that loops have which have so many in the mean, share of the loops), the larger one first."""
    few = max(int(clients), 1)
    more = max(clients - few, 0.0)
    return ([(few + 1, more)] if more > 0 else []) + [(few, 1.0 - more)]


def mixed(runs: list[tuple[int, float, PooledFigures]], steps: float) -> PooledFigures:
    """What requests meet in loops of unlike numbers of clients: a loop has as many of them as it ends. runs: clients, share of the loops,
    and what each meets · steps: of decoding."""
    ended = [share * clients / (one.first_s + steps * one.step_s) for clients, share, one in runs]
    whole = sum(ended)
    first, step, burst = (
        sum(share * figure for share, figure in zip(ended, figures, strict=True)) / whole
        for figures in zip(*((one.first_s, one.step_s, one.burst_s) for *_, one in runs), strict=True)
    )
    return PooledFigures(first, step, burst)


@lru_cache(maxsize=64)
def drawn_requests(count: int, lengths: tuple[float, float, float], drafts: tuple[int, float]) -> tuple[list[float], list[int]]:
    """So many requests: prompts over their mean, and steps of decoding, each request's. lengths: mean prompt and output, tokens, and their
    variation · drafts: how many a step, and how probably one is kept."""
    prompt, output, variation = lengths
    draw = np.random.default_rng(0)
    prompts, outputs = (even_lengths(draw, mean, variation, count) for mean in (prompt, output))
    return (prompts / prompt).tolist(), run_steps(draw, *drafts, outputs - 1.0).astype(np.int64).tolist()


@lru_cache(maxsize=1024)
def pooled_run(loop: PooledLoop) -> PooledFigures:
    """What requests meet. Work: about ten microseconds a request; none of a loop that was run: published rows repeat, and those that have
    no drafts are asked once more with each share of drafts that others keep."""
    run, clients = _Run(loop), loop.clients
    alike = len(set(run.lasting)) == 1 and len(set(run.sizes)) == 1
    if alike and loop.count > FIRST * clients:
        run.until(FIRST * clients)
        first, step = run.waves(FIRST - 2)
        if all(np.ptp(one[-LAST:]) <= SETTLED * one[-1] for one in (first, step)):
            return PooledFigures(_mean(first[1:], loop.waves - 2.0), _mean(step[1:], loop.waves - 2.0), float(first[0]))
    run.until(inf)
    first, step = run.waves(loop.count // clients)
    return PooledFigures(_mean(first[1:-1], loop.waves - 2.0), _mean(step[1:-1], loop.waves - 2.0), float(first[0]))


def _mean(waves: Array, count: float) -> float:
    """Of so many waves: those that were run, and for the others the last quarter of these."""
    tail = float(waves[-max(len(waves) // 4, 1) :].mean())
    return float(waves.sum() + max(count - len(waves), 0.0) * tail) / max(count, len(waves))


class _Decoder:
    """A worker of decodes. told: requests that it has not looked at, and the worker that did their prompts (-1: none yet) · waiting: when a
    cache came, and whose · leaving: the step that one ends after, and its number · base_s: of step `taken`, from which on steps are alike,
    each `step_s` · due_s: when something is next."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.waiting: deque[tuple[float, int]] = deque()
        self.leaving: list[tuple[int, int]] = []
        self.taken = 0
        self.base_s, self.step_s, self.due_s = 0.0, 1e-300, -1.0

    def edge(self, now: float, least: int = 1) -> int:
        """Steps from the base to the first end of one that is not before now."""
        return max(ceil((now - self.base_s) / self.step_s - _HARDLY), least)

    def next_s(self, now: float, loop: PooledLoop) -> float:
        """When one leaves, it looks, or one joins: the first of these ends of steps."""
        steps = self.leaving[0][0] - self.taken
        if self.told:
            look = self.edge(now)
            steps = min(steps, look + -(self.taken + look) % loop.polled)
        if self.waiting and len(self.leaving) < loop.room:
            steps = min(steps, max(self.edge(self.waiting[0][0], 0) + loop.ahead, self.edge(now)))
        return self.base_s + steps * self.step_s


class _Run:
    """A loop that runs, event by event. sizes: of prompts, over the mean one · lasting: steps of decoding, each request's."""

    def __init__(self, loop: PooledLoop) -> None:
        self.loop, self.count = loop, loop.count
        self.sizes, self.lasting = drawn_requests(loop.count, loop.lengths, loop.drafts)
        self.asked, self.first, self.ended = ([0.0] * self.count for _ in range(3))
        self.sent = self.dealt = self.passed_on = 0
        self.own: dict[int, int] = {}
        self.lines: list[deque[list[float]]] = [deque() for _ in range(loop.prompts)]
        self.under_way: list[list[int] | None] = [None] * loop.prompts
        self.link_free = [0.0] * loop.prompts
        self.decoders = [_Decoder() for _ in range(loop.decodes)]
        self.events: list[tuple[float, int, int]] = []
        for _ in range(min(loop.clients, self.count)):
            self._send(0.0)

    def until(self, sent: float) -> None:
        """Run until so many requests are sent, or all have ended."""
        take = self._arrives, self._begins, self._ends, self._handed, self._steps
        while self.events and self.sent < sent:
            now, kind, which = heapq.heappop(self.events)
            take[kind](now, which)

    def waves(self, count: int) -> tuple[Array, Array]:
        """[count] mean seconds to a first token, and of a step after it, wave by wave."""
        some = slice(0, count * self.loop.clients)
        every = self.asked, self.first, self.ended, self.lasting
        asked, first, ended, steps = (np.array(one[some], dtype=np.float64).reshape(count, -1) for one in every)
        return (first - asked).mean(axis=1), ((ended - first) / np.maximum(steps, 1.0)).mean(axis=1)

    def _at(self, now: float, kind: int, which: int) -> None:
        heapq.heappush(self.events, (now, kind, which))

    def _send(self, now: float) -> None:
        if self.sent >= self.count:
            return
        number = self.sent
        self.asked[number] = now
        self.sent += 1
        if self.loop.asks_first:
            self._tell(now, number, -1)
        else:
            self._at(now + self.loop.asking_s, ARRIVES, number)

    def _tell(self, now: float, number: int, prompts: int) -> None:
        """A request comes to the worker of decodes whose turn it is."""
        to = self.own[number] = self.passed_on % self.loop.decodes
        self.passed_on += 1
        self.decoders[to].told.append((number, prompts))
        if self.decoders[to].leaving:
            self._goes_on(now, to)
        else:
            self._looks(now, self.decoders[to])

    def _looks(self, now: float, decoder: _Decoder) -> None:
        told, decoder.told = decoder.told, []
        for number, prompts in told:
            if prompts < 0:
                self._at(now + self.loop.asking_s, ARRIVES, number)
            else:
                self._hands_on(now, number, prompts)

    def _arrives(self, now: float, number: int) -> None:
        worker = self.dealt % self.loop.prompts
        self.dealt += 1
        self.lines[worker].append([number, self.sizes[number]])
        if self.under_way[worker] is None:
            self.under_way[worker] = []
            self._at(now, BEGINS, worker)

    def _begins(self, now: float, worker: int) -> None:
        room, line, whole = self.loop.most, self.lines[worker], list[int]()
        while line and room > _HARDLY:
            part = min(line[0][1], room)
            room, line[0][1] = room - part, line[0][1] - part
            if line[0][1] <= _HARDLY:
                whole.append(int(line.popleft()[0]))
        took = self.loop.most - room
        self.under_way[worker] = whole if took > 0 else None
        if took > 0:
            self._at(now + self.loop.floor_s + took * self.loop.each_s, ENDS, worker)

    def _ends(self, now: float, worker: int) -> None:
        for number in self.under_way[worker] or ():
            if self.loop.asks_first:
                self._hands_on(now, number, worker)
            else:
                self._tell(now, number, worker)
        self._begins(now, worker)

    def _hands_on(self, now: float, number: int, worker: int) -> None:
        ready = now + self.loop.later_s
        self.link_free[worker] = max(ready, self.link_free[worker]) + self.loop.moving_s * self.sizes[number]
        self._at(self.link_free[worker], HANDED, number)

    def _handed(self, now: float, number: int) -> None:
        worker = self.own.pop(number)
        decoder = self.decoders[worker]
        decoder.waiting.append((now, number))
        if decoder.leaving:
            self._goes_on(now, worker)
        elif len(decoder.waiting) == 1:
            decoder.base_s, decoder.due_s = now, now
            self._at(now, STEPS, worker)

    def _goes_on(self, now: float, worker: int) -> None:
        decoder = self.decoders[worker]
        due = decoder.next_s(now, self.loop)
        if due != decoder.due_s:
            decoder.due_s = due
            self._at(due, STEPS, worker)

    def _steps(self, now: float, worker: int) -> None:
        decoder, loop = self.decoders[worker], self.loop
        if now != decoder.due_s:  # something came before
            return
        leaving, waiting = decoder.leaving, decoder.waiting
        seen = now - (loop.ahead - _HARDLY) * decoder.step_s if leaving else now
        decoder.taken += round((now - decoder.base_s) / decoder.step_s) if leaving else 0
        while leaving and leaving[0][0] <= decoder.taken:
            number = heapq.heappop(leaving)[1]
            self.ended[number] = now
            self._send(now)
        decoder.base_s, decoder.due_s = now, -1.0
        if not leaving or decoder.taken % loop.polled == 0:
            self._looks(now, decoder)
        while waiting and len(leaving) < loop.room and (waiting[0][0] <= seen or not leaving):
            self._joins(now, waiting.popleft()[1], decoder)
        if leaving:
            decoder.step_s = loop.step_s[len(leaving)]
            self._goes_on(now, worker)

    def _joins(self, now: float, number: int, decoder: _Decoder) -> None:
        again = self.loop.first_again
        self.first[number] = now + (self.loop.step_s[len(decoder.leaving) + 1] if again else 0.0)
        heapq.heappush(decoder.leaving, (decoder.taken + self.lasting[number] + again, number))
