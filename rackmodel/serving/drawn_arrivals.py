"""Requests that come at random where no chain of batches says what they meet (random_arrivals.py): to a pipeline, whose batches hold one
another up, and to an engine whose prompts wait for company or a look. They are drawn and run one by one, step by step (trace.py), the same
ones every time and at every rate, whose gaps scale.

    count     BATCHES, over those of a request: of its own steps, or the fewer where it shares them; FEWEST to MOST, and no fewer than
              RUNS times those that are there at once
    read      all but the first, which find an engine that fills, and the last, behind whom nobody comes
    growing   seconds to a first token that grow by more than a GROWTH-th of the seconds in which they come: more comes than is served
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.serving.admission import LATEST_S, Trace
from rackmodel.serving.requests import Requests, Schedule
from rackmodel.serving.steps import Served
from rackmodel.serving.trace import simulate

Array = NDArray[np.float64]
BATCHES = 30_000
FEWEST, MOST, LONGEST = 100, 6_000, 16_000
"""Requests of a run; the longest where many are there at once."""
RUNS = 6
GROWTH = 0.02


@dataclass(frozen=True, kw_only=True)
class DrawnRuns:
    """n runs, [n] each: means of requests. first_s: to a first token · decoding_s: from there to the last · queue_s: of the former, before
    its own batch · watts: of the replica all the time · growing: whether more comes than is served."""

    first_s: Array
    decoding_s: Array
    queue_s: Array
    watts: Array
    growing: NDArray[np.bool_]


def drawn_arrivals(
    model: Served, requests: Requests, schedule: Schedule, rate: Array, room: Array, expected: tuple[Array, Array]
) -> DrawnRuns:
    """Runs of n engines. rate: requests a second · room: that are held at once · expected: seconds of a decode step, and of a request."""
    step_s, whole_s = expected
    shared = schedule.stages / (step_s * rate)
    own = schedule.decoding_steps(requests) + np.ceil(requests.fresh / np.maximum(schedule.token_budget, 1.0))
    there = np.ceil(rate * whole_s)
    count = np.clip(BATCHES / np.minimum(shared, own), FEWEST, MOST)
    count = np.maximum(count, np.minimum(RUNS * there, LONGEST)).astype(np.int64)
    found = [_run(model, requests, schedule, at, count[at], rate[at], room[at], there[at]) for at in range(len(rate))]
    first, decoding, queue, watts, growing = (np.array(part) for part in zip(*found, strict=True))
    return DrawnRuns(first_s=first, decoding_s=decoding, queue_s=queue, watts=watts, growing=growing > 0)


def _run(
    model: Served, requests: Requests, schedule: Schedule, at: int, count: int, rate: float, room: float, there: float
) -> tuple[float, float, float, float, bool]:
    """The fields of DrawnRuns of one point. there: requests at once, about."""
    asked, own = requests.at([at]), schedule.at([at])
    draw = np.random.default_rng(0)
    arrivals = np.cumsum(draw.exponential(1.0, count)) / max(rate, 4.0 * count / LATEST_S)  # (at which nobody meets another)
    prompts, outputs = (_lengths(draw, mean, asked.variation, count) for mean in (asked.prompt, asked.output))
    trace = Trace(arrival_s=arrivals, prompt=prompts, output=outputs, reused=float(asked.reused[0]))
    run = simulate(model, trace, own, float(room), None, np.ones_like)
    edge = int(np.clip(there, count // 10, count // 4))
    middle = slice(edge, count - edge // 2)
    several = outputs[middle] > 1
    decoding = (run.tpot_s[middle][several] * asked.gaps).mean() if several.any() else 0.0
    slope = np.polyfit(arrivals[middle], run.ttft_s[middle], 1)[0]
    return run.ttft_s[middle].mean(), decoding, run.queue_s[middle].mean(), run.joules / run.seconds, bool(slope > GROWTH)


def _lengths(draw: np.random.Generator, mean: Array, variation: Array, count: int) -> Array:
    """Whole ones, even around their mean; of a mean between two whole numbers both, so that it stays."""
    wide = mean * np.minimum(np.sqrt(3.0) * variation, 1.0)
    about = draw.uniform(mean - wide, mean + wide, count)
    return np.maximum(np.floor(about + (0.5 if float(mean[0]).is_integer() else draw.uniform(0.0, 1.0, count))), 1.0)
