"""Random steps for the clock: layer passes with jobs on any lane, waiting for anything that docs/clock.md lets them wait for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.clock.clock import StepJobs
from rackmodel.cost.step.tasks.jobs import DEVICE, HOME, PASSES, REDUCTIONS, SPREAD, UP, WEIGHTS, LaneJob, LayerPass
from rackmodel.model.schedules import FOLDED, SCHEDULES, TABLE

SIDE = (WEIGHTS, REDUCTIONS, UP, HOME)


class Maker:
    """One random step of n mappings. whole: small whole seconds, where many ways are equally long; members are numbered from 0."""

    def __init__(self, seed: int, n: int) -> None:
        self.random, self.n, self.members = np.random.default_rng(seed), n, 0
        self.whole = self.chance(0.3)
        self.side = [lane for lane in SIDE if self.chance(0.6)] if self.chance(0.85) else []
        self.spreads, self.limited, self.hosted, self.gathers = (self.chance(p) for p in (0.4, 0.6, 0.3, 0.7))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def seconds(self, scale: float = 1.0) -> NDArray[np.float64]:
        if self.chance(0.1):
            return np.zeros(self.n)
        if self.whole:
            return np.asarray(self.random.integers(0, 5, self.n) * np.ceil(scale), dtype=float)
        return np.asarray(self.random.exponential(scale, self.n))

    def some(self, count: int, share: float) -> tuple[int, ...]:
        return tuple(k for k in range(count) if self.chance(share))

    def job(self, lane: str, before: int, ahead: int | None) -> LaneJob:
        seconds, member = self.seconds(), self.members
        self.members += 1
        after = self.some(before, 0.3)
        if ahead is None:
            return LaneJob(lane=lane, seconds=seconds, members=(member,), after=after)
        feeds, reduces = self.limited and self.chance(0.25), self.limited and lane != DEVICE and self.chance(0.5)
        needs = self.some(ahead, 0.4)
        return LaneJob(lane=lane, seconds=seconds, members=(member,), after=after, needs=needs, feeds=feeds, reduces=reduces)

    def layer_pass(self, name: str) -> LayerPass:
        gathers = [lane for lane in self.side if lane != HOME]
        early: list[LaneJob] = []
        if gathers and self.gathers and self.chance(0.7):
            early = [self.job(str(self.random.choice(gathers)), k, None) for k in range(self.random.integers(1, 4))]
        body: list[LaneJob] = []
        if name == "first" and self.spreads and self.chance(0.8):
            body = [self.job(SPREAD, 0, None) for _ in range(self.random.integers(1, 4))]
        if not self.chance(0.1):
            for k in range(len(body), len(body) + self.random.integers(0, 6)):
                lane = DEVICE if not self.side or self.chance(0.6) else str(self.random.choice(self.side))
                body.append(self.job(lane, k, len(early)))
        host = float(self.seconds(2.0)[0]) if self.hosted and self.chance(0.5) else 0.0
        return LayerPass(name=name, ahead=tuple(early), body=tuple(body), host_s=host)

    def step(self, schedule: str = "") -> StepJobs:
        schedule = schedule or str(self.random.choice(SCHEDULES))
        stages, m = int(self.random.integers(1, 5)), int(self.random.integers(1, 9))
        folded = schedule in FOLDED
        chunks = int(self.random.integers(2, 4)) if schedule == "interleaved" else 2 if folded else 1
        if schedule == "interleaved":
            m = max(1, m // stages) * stages
        m = max(m, TABLE[schedule].fewest(stages))
        sections = int(self.random.integers(1, 4))
        counts = self.random.integers(0 if self.chance(0.3) else 1, 5, (stages * chunks, sections))
        return StepJobs(
            sections=tuple({name: self.layer_pass(name) for name in PASSES} for _ in range(sections)),
            counts=counts,
            schedule=schedule,
            stages=stages,
            chunks=chunks,
            micro_batches=m,
            backward=self.chance(0.8),
            send_s=self.seconds(),
            sends_overlap=self.chance(0.5),
            update_s=tuple(self.seconds(3.0) for _ in range(sections)),
            tied_s=self.seconds() if self.chance(0.5) else np.zeros(self.n),
            hops_s=np.stack([[self.seconds() for _ in range(stages)] for _ in range(2)]) if self.chance(0.4) else None,
        )
