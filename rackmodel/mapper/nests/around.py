"""What a loop nest depends on beside its own operation: the other operations of its plan, and what links carry between them.

A fused region keeps on chip what its operations hand on. What a collective or a send moves in between lies in the memory that links read
and write, and all of it is there before the next operation begins: no region holds it. Nor does one hold what the backward pass reads,
also where it is made again for it: that is the same operation, whose result is written then.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

from rackmodel.cost.program.contents import content
from rackmodel.cost.program.tasks import LocalOp, Task

NestKey = tuple[str, tuple[tuple[str, int], ...], int | None]
"""A contraction, index → size of its share, and number of what is around it where it may be fused."""


class Around:
    """The forward operations of a plan, numbered by what they are at a mesh's degrees: shares of all and what is off the chip."""

    def __init__(self) -> None:
        self.local_ops: tuple[LocalOp, ...] = ()
        self.moved: frozenset[tuple[str, tuple[int, ...]]] = frozenset()
        self.saved: frozenset[str] = frozenset()
        self.plan = 0
        self.plans: dict[Hashable, int] = {}
        self.numbers: dict[Hashable, int] = {}
        self.known: dict[Hashable, int] = {}

    def set_plan(self, local_ops: Sequence[LocalOp], tasks: Sequence[Task]) -> None:
        """Know a plan's forward operations and all its tasks."""
        self.local_ops = tuple(local_ops)
        moving = [task for task in tasks if task.phase == "forward" and task.kind in ("collective", "send")]
        self.moved = frozenset((task.tensor, task.axes) for task in moving)
        later = [task.local_op for task in tasks if task.phase == "backward" and task.local_op is not None]
        self.saved = frozenset(flow.name for local_op in later for flow in local_op.reads)
        self.plan = self.plans.setdefault((*map(content, local_ops), self.moved, self.saved), len(self.plans))

    def off_chip(self, degrees: Any) -> dict[str, str]:
        """Tensor that lies in the accelerator's memory at one mesh's degrees → why: a link carries it (a collective of one rank is none, a
        send always is one), or the backward pass reads it."""
        moved = {tensor for tensor, axes in self.moved if not axes or prod(int(degrees[axis]) for axis in axes) > 1}
        return dict.fromkeys(self.saved, "the backward pass reads it") | dict.fromkeys(moved, "a link carries it")

    def number(self, degrees: Any) -> int:
        """Of the shares of all operations, and of what is off the chip, at one mesh's degrees."""
        at = (self.plan, *(int(degree) for degree in degrees))
        if at not in self.known:
            shares = tuple((one.written, tuple(share_of(one, degrees).items())) for one in self.local_ops)
            self.known[at] = self.numbers.setdefault((shares, frozenset(self.off_chip(degrees))), len(self.numbers))
        return self.known[at]


def share_of(local_op: LocalOp, degrees: Any) -> dict[str, int]:
    """Index → size on the fullest accelerator."""
    return {index: int(-(-size // prod(int(degrees[axis]) for axis in axes))) for index, size, axes in local_op.space}
