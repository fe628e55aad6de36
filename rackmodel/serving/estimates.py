"""Admission by an estimate of what the requests that run will add, and the retraction of some when it was too low: SGLang's.

    admitted     P + min(O, CLIP) < free - r sum of min(what is left, CLIP)      of those that run; those admitted beside it count whole
    r            FIRST, less a step (FIRST - LEAST) / STEPS for each step of decodes, LEAST at least; FIRST again once nobody is there
    retracted    where the next tokens of all do not fit: who has fewest tokens, of these the longest prompt, till they do; behind all that
                 wait, with all of it to be computed again; and r = (tokens made + AHEAD each) / (tokens asked for + 1) of those left
    room         n (P + O (1 + LEAST) / 2) = cache - (P + O)  n of random moments, where the next one finds just no room and nobody was
                 retracted for STEPS; who waits for more than that is run (drawn_runs.py)

Source: sgl-project/sglang, srt/managers/schedule_policy.py (PrefillAdder: rem_total_tokens, add_one_req), schedule_batch.py
(retract_decode), scheduler.py (update_running_batch, _extend_requests_to_queue), environ.py (the constants). What of a retracted prompt is
still found as a prefix is not counted: full caches drop it.
Against requests run token by token: tests/test_serving_estimates.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array

FIRST, LEAST, STEPS = 0.7, 0.7 * 0.14, 600
AHEAD, CLIP = 20.0, 4096.0


@dataclass
class Estimate:
    """r of an engine that runs."""

    ratio: float = FIRST

    def decoded(self, steps: int) -> None:
        """After so many steps in which nobody was retracted."""
        self.ratio = self.after(float(steps))

    def after(self, steps: float) -> float:
        """r after so many more steps."""
        return max(self.ratio - (FIRST - LEAST) / STEPS * steps, LEAST)

    def retracted(self, made: Array, asked: Array) -> None:
        """Once some are out. made, asked: [n] tokens of those left."""
        self.ratio = min(float((made + AHEAD).sum() / (asked.sum() + 1.0)), 1.0)

    def steps_to(self, free: float, left: Array, grows: Array, most: int) -> int:
        """Steps of decodes, `most` at most, until `free` tokens are more than what those that run are expected to add. free: of the cache,
        less what the next request takes · left: [n] tokens that they make yet · grows: [n] of the cache for each."""
        steps = np.arange(1.0, most + 1.0)
        within = left <= CLIP
        owed = (grows * np.minimum(left, CLIP)).sum() - steps * grows[within].sum()
        ratios = np.maximum(self.ratio - (FIRST - LEAST) / STEPS * steps, LEAST)
        fits = free - steps * grows.sum() - ratios * owed > 0.0
        return int(np.argmax(fits)) + 1 if fits.any() else most
