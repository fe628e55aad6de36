"""What a mapping is priced in: a machine, what prices operations in an accelerator, and how collectives run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rackmodel.arrays import Array, Bools
from rackmodel.cost.going_on import MostSummed
from rackmodel.cost.inside.roofline import LocalPricer, roofline_rows
from rackmodel.cost.network.asked import plainly
from rackmodel.cost.network.calls import MachineCalls
from rackmodel.model.architecture import Architecture


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a mapping is priced in. inside: what a pass of an operation costs in one accelerator · algorithms: of collectives, the
    fastest for each · calls: of a library, in their place where they are known · called: [n] on which columns, None = all ·
    variation, library, links: of a profile · ask: puts a question to the networks above · pooled: whether the architecture is one pool of
    a machine with several, whose accelerators have stages of a pipeline to themselves · most_summed: of LocalOp.starts."""

    architecture: Architecture
    inside: LocalPricer = roofline_rows
    algorithms: tuple[str, ...] = ("ring",)
    calls: MachineCalls | None = None
    called: Bools | None = None
    variation: Array | float = 0.0
    library: Array | float = 1.0
    links: Array | float = 1.0
    ask: Callable[..., Any] = plainly
    pooled: bool = False
    most_summed: MostSummed | None = None

    @property
    def waiting_watts(self) -> Any:
        """W beside static power that an accelerator counts for in every second of a step, less what its kernels take off."""
        told = getattr(self.inside, "waiting_watts", None)
        return 0.0 if told is None else told(self.architecture)
