"""Drawn loops of clients: the law of the steady state against requests that are run one by one, priced by the same engine.

    python -m tests.served_loops [COUNT] [SEED]      how far apart they are, by stages, answers and drafts

A loop is a model, machine, engine and deployment, lengths and clients, what a step may hold, a reused prefix and drafts, all drawn by its
number. Each client sends WAVES requests, one after the other, of which the first, that all send at once, and the last are not read.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.requests import Requests
from rackmodel.serving.steady import closed_loop
from rackmodel.serving.steps import Deployment
from rackmodel.serving.trace import drawn_trace, simulate

MACHINES, ENGINES = ("dgx_h100", "dgx_h200", "dgx_b200"), ("vllm", "trtllm", "sglang")
DENSE = {"llama3_8b_decoder": (1, 2, 4, 8), "llama3_70b_decoder": (2, 4, 8)}
MIXTURES = {"gpt_oss_120b_decoder": (1, 2, 4, 8), "mixtral_8x7b_decoder": (2, 4, 8), "qwen3_30b_a3b_decoder": (1, 2, 4)}
MOST = 8  # accelerators of a replica
WAVES, FEWEST, MANY = 24, 60, 12_000  # of clients; requests of a run
Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What is asked. least: the shortest length over the longest · budget: tokens of a step; 0: the engine's own."""

    model: str
    machine: str
    engine: str
    deployment: Deployment
    weights: str
    prompt: int
    output: int
    least: float
    clients: int
    budget: int
    reused: float
    drafts: int
    accepted: float

    @property
    def settings(self) -> dict[str, float]:
        """What replaces facts of the engine."""
        said = {"drafted": float(self.drafts), "accepted": self.accepted}
        return said | ({"token_budget": float(self.budget)} if self.budget else {})

    @property
    def count(self) -> int:
        """Requests of a run."""
        return int(np.clip(WAVES * self.clients, FEWEST, max(MANY, 9 * self.clients)))

    def served(self) -> ServingEngine:
        """Its engine. Raises InfeasibleError or InputError where its model cannot be served so."""
        found = _served(self.model, self.machine, self.engine, self.deployment, self.weights)
        found.check_one_fits(2 * self.prompt + 2 * self.output)
        return found

    def law(self) -> Figures:
        """What the law of the steady state says."""
        served = self.served()
        variation = (1.0 - self.least) / (1.0 + self.least) / 3**0.5
        said = {"reused": self.reused, "variation": variation, "waves": self.count / self.clients}
        requests = Requests.of(prompt=self.prompt, output=self.output, **said)
        schedule = served.scheduled(1, self.settings)
        found = closed_loop(served, requests, schedule, np.array([float(self.clients)]), served.room(requests, schedule))
        return {"requests/s": float(found.requests_per_s[0]), "TTFT": float(found.ttft_s[0]), "TPOT": float(found.tpot_s[0])}

    def trace(self) -> Figures:
        """What requests that are run one by one meet, in the middle of the run."""
        served = self.served()
        trace = replace(drawn_trace(self.count, (self.prompt, self.output, self.least), None, 1), reused=self.reused)
        found = simulate(served, trace, served.scheduled(1, self.settings), served.cache_tokens, self.clients, served.held_tokens)
        middle = slice(self.clients, self.count - self.clients)
        several = trace.output[middle] > 1
        tpot = float(found.tpot_s[middle][several].mean()) if several.any() else 0.0
        return {"requests/s": self.clients / float(found.total_s[middle].mean()), "TTFT": float(found.ttft_s[middle].mean()), "TPOT": tpot}

    def gaps(self) -> Figures:
        """The law over the trace, less one. Of answers of one token there is no TPOT."""
        law, trace = self.law(), self.trace()
        return {name: law[name] / value - 1.0 for name, value in trace.items() if value > 0}


@cache
def _served(model: str, machine: str, engine: str, deployment: Deployment, weights: str) -> ServingEngine:
    service = service_of(machine, model, (), engine, (1024, 1024, 0.0), accelerators=deployment.accelerators)
    return engine_of(service, deployment, Widths(weights, ""))


def drawn(number: int) -> Loop:
    """The loop of that number."""
    pick = random.Random(f"loop {number}")
    model = pick.choice([*DENSE, *MIXTURES])
    short = pick.random() < 0.25
    drafts = pick.choice([0, 0, 0, 0, 1, 3])
    return Loop(
        model=model,
        machine=pick.choice(MACHINES),
        engine=pick.choice(ENGINES),
        deployment=_deployment(model, pick),
        weights=pick.choice(["", "", "fp8"]),
        prompt=round(10 ** pick.uniform(1.5, 4.2)),
        output=pick.choice([1, 2, 3, 4, 8, 16, 32]) if short else round(10 ** pick.uniform(0, 3.3)),
        least=pick.choice([1.0, 0.8, 0.5]),
        clients=round(10 ** pick.uniform(0, 2.9)),
        budget=pick.choice([0, 0, 512, 2048, 8192]),
        reused=pick.choice([0.0, 0.0, 0.0, 0.3, 0.8]),
        drafts=drafts,
        accepted=round(pick.uniform(0.4, 0.9), 2) if drafts else 0.0,
    )


def _deployment(model: str, pick: random.Random) -> Deployment:
    """Degrees of at most MOST accelerators."""
    tensor = pick.choice((DENSE | MIXTURES)[model])
    stages = pick.choice([one for one in (1, 1, 2, 4) if one * tensor <= MOST])
    ranks = pick.choice([1, *(one for one in (1, 2, 4) if one * tensor * stages <= MOST)]) if model in MIXTURES else 1
    expert = pick.choice([one for one in (1, 2, 4, 8) if tensor * ranks % one == 0]) if model in MIXTURES else 1
    return Deployment(tensor=tensor, pipeline=stages, attention_data=ranks, expert=expert, expert_tensor=tensor * ranks // expert)


def answered(count: int, seed: int) -> dict[Loop, Figures]:
    """Gaps of the first `count` loops from a number on that can be served."""
    found: dict[Loop, Figures] = {}
    while len(found) < count:
        loop = drawn(seed)
        seed += 1
        try:
            found[loop] = loop.gaps()
        except (InfeasibleError, InputError):
            continue
    return found


KINDS: dict[str, Callable[[Loop], bool]] = {
    "all": lambda one: True,
    "1 stage, 32 or more tokens out": lambda one: one.deployment.pipeline == 1 and one.output >= 32,
    "1 stage, 4 to 31": lambda one: one.deployment.pipeline == 1 and 4 <= one.output < 32,
    "1 stage, 1 to 3": lambda one: one.deployment.pipeline == 1 and one.output < 4,
    "2 or 4 stages, 32 or more": lambda one: one.deployment.pipeline > 1 and one.output >= 32,
    "2 or 4 stages, 4 to 31": lambda one: one.deployment.pipeline > 1 and 4 <= one.output < 32,
    "2 or 4 stages, 1 to 3": lambda one: one.deployment.pipeline > 1 and one.output < 4,
    "no more clients than stages": lambda one: 1 < one.clients <= one.deployment.pipeline,
    "drafts": lambda one: one.drafts > 0,
}


def shown(found: dict[Loop, Figures]) -> str:
    """A line for each kind: how many, and of each figure the median and 90th percentile of |law - trace| and the mean of law - trace, %."""
    lines = [f"{'%':32}{'n':>4}" + "".join(f"{name:>12}  50    90  mean" for name in ("requests/s", "TTFT", "TPOT"))]
    for kind, holds in KINDS.items():
        some = [gaps for loop, gaps in found.items() if holds(loop)]
        cells = []
        for name in ("requests/s", "TTFT", "TPOT"):
            gaps = 100.0 * np.array([one[name] for one in some if name in one])
            middle, far = np.percentile(np.abs(gaps), [50, 90]) if len(gaps) else (0.0, 0.0)
            cells.append(f"{middle:16.1f}{far:6.1f}{gaps.mean() if len(gaps) else 0.0:+6.1f}")
        lines.append(f"{kind:32}{len(some):4}" + "".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    asked = [int(one) for one in sys.argv[1:]]
    print(shown(answered(*(asked + [200, 0][len(asked) :]))))
