"""Pipeline schedules: the one table that files, orders, memory, bounds and the clock read.

Of p stages, m micro-batches, v chunks at stage i; what `lead` and `delay` mean, and whose schedules these are:
cost/step/clock/pipeline_orders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

Weave = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class ScheduleRow:
    """lead: forward passes before the first backward pass · delay: backward passes a weight gradient waits · splits: weight gradients are
    passes of their own · chunked: a stage holds several chunks · folded: it holds two, one on the way down the stages, one on the way
    back up: stage i of p has virtual stages i and 2p - 1 - i · forwards_first: every forward pass comes before a backward pass ·
    plain: the schedule that it is with one chunk · fewest: micro-batches, at least · groups: they come in groups of so many."""

    lead: Weave
    delay: Weave = lambda p, m, v, i: 0 * i
    splits: bool = False
    chunked: bool = False
    folded: bool = False
    forwards_first: bool = False
    plain: str = ""
    fewest: Callable[[int], int] = lambda p: 1
    groups: Callable[[int], int] = lambda p: 1

    def takes(self, stages: int, micro_batches: Any) -> Any:
        """Whether there is an order of so many micro-batches, or of each of an array."""
        return (micro_batches >= self.fewest(stages)) & (micro_batches % self.groups(stages) == 0)


TABLE: dict[str, ScheduleRow] = {
    "gpipe": ScheduleRow(lead=lambda p, m, v, i: m * v, forwards_first=True),
    "1f1b": ScheduleRow(lead=lambda p, m, v, i: p - i),
    "interleaved": ScheduleRow(lead=lambda p, m, v, i: 2 * (p - 1 - i) + (v - 1) * p + 1, chunked=True, plain="1f1b", groups=lambda p: p),
    "zb_h1": ScheduleRow(lead=lambda p, m, v, i: p - i, delay=lambda p, m, v, i: i, splits=True),
    "zb_h2": ScheduleRow(lead=lambda p, m, v, i: 2 * (p - 1 - i) + 1, delay=lambda p, m, v, i: 2 * i, splits=True),
    "zb_v": ScheduleRow(lead=lambda p, m, v, i: 2 * p + 0 * i, splits=True, folded=True),
    "dualpipe_v": ScheduleRow(lead=lambda p, m, v, i: 2 * p + 0 * i, splits=True, folded=True, fewest=lambda p: 2 * p),
}
"""Every schedule, by the name that files say."""

SCHEDULES = tuple(TABLE)
SPLIT = frozenset(name for name, row in TABLE.items() if row.splits)
CHUNKED = frozenset(name for name, row in TABLE.items() if row.chunked)
"""Schedules in which a stage holds several chunks of layers, as many as are asked for."""
FOLDED = frozenset(name for name, row in TABLE.items() if row.folded)
FOLDS = 2  # chunks of a stage whose schedule is folded

if TYPE_CHECKING:
    Schedule = str
else:
    Schedule = Literal[SCHEDULES]
"""What a file may say: the names of the table."""


def runs_as(schedule: str, chunks: int) -> str:
    """The schedule that stages of `chunks` chunks run: a chunked one with one chunk is a plain one."""
    return TABLE[schedule].plain if chunks == 1 and TABLE[schedule].plain else schedule


def chunk_counts(schedule: str, interleave: Any) -> list[int]:
    """Chunks that a stage of a pipeline may hold under a schedule, of those that are asked for."""
    row = TABLE[schedule]
    return [FOLDS] if row.folded else [v for v in interleave if v > 1] if row.chunked else [1]


def lane_of(way: Any, virtual: Any, schedule: str, stages: int) -> Any:
    """To whom a virtual stage hands what it makes: 0 to the next stage, 1 to the one before. way: 0 forward in the model, 1 back."""
    return way if not TABLE[schedule].folded else way ^ (virtual >= stages)


def device_of(virtual: Any, schedule: str, stages: int) -> Any:
    """The stage that runs a virtual stage, or each of an array of them."""
    turn = virtual % stages
    return turn if not TABLE[schedule].folded else turn + (virtual // stages) * (stages - 1 - 2 * turn)
