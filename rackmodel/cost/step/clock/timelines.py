"""Steps of many mappings run side by side, those that are alike to the clock once.

A pipeline's mappings know nothing of each other, and what columns differ in need not reach the clock: a fact that no task of a step reads
leaves its column as it was. So each pipeline runs for those of its mappings that differ in a matrix, a first state or a link; those whose
runs paths are read back from keep them, and of the others the ends alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.cost.step.clock.clock import Clock, Timeline, pieces, run_size
from rackmodel.cost.step.clock.wave_run import Waiting, run_together

MOST = 500_000  # passes that run together, and whose states are kept: about a hundred bytes each
WIDE = 1024  # passes of a wave that run together: there are as many waves as in the longest of them


def timelines(clocks: Sequence[Clock], keeps: Sequence[int]) -> list[Timeline]:
    """Each step as it ran. keeps: of how many of its mappings, the first, each keeps what paths are read back from."""
    found = {number: clock.run() for number, clock in enumerate(clocks) if clock.alone}
    piped = [number for number in range(len(clocks)) if number not in found]
    apart = [_apart(clocks[number].waiting(), keeps[number]) for number in piped]
    sizes = [run_size(clocks[number].jobs, one.n) for number, (one, _) in zip(piped, apart, strict=True)]
    for some in pieces(sizes, MOST, WIDE):
        own = [apart[place] for place in some]
        most = max(keeps[piped[place]] for place in some)
        keep = most if len({one.n for one, _ in own}) == 1 else min(most, 1)
        for place, ended in zip(some, run_together([one for one, _ in own], keep), strict=True):
            number = piped[place]
            found[number] = clocks[number].timeline(ended, ended.state[..., apart[place][1]])
    return [found[number] for number in range(len(clocks))]


def _apart(one: Waiting, kept: int) -> tuple[Waiting, Ints]:
    """(the mappings of a pipeline that are like none before them, and the first so many in any case; which of those each mapping is)."""
    figures = [one.state.reshape(-1, one.n), one.values.reshape(-1, one.n), one.link_s.reshape(-1, one.n)]
    every = np.ascontiguousarray(np.concatenate(figures).T)
    known, first, place = dict[bytes, int](), list(range(kept)), np.arange(one.n)
    for column in range(one.n):
        told = every[column].tobytes()
        if column >= kept:
            if told not in known:
                known[told] = len(first)
                first.append(column)
            place[column] = known[told]
        else:
            known[told] = column
    return replace(one, state=one.state[..., first], values=one.values[..., first], link_s=one.link_s[..., first]), place
