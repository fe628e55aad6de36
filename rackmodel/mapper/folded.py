"""What schedules of several chunks a stage (of which zb_v and dualpipe_v hold one down the stages and one back up) are not for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackmodel.cost.program.tied import tied_weights
from rackmodel.errors import InputError
from rackmodel.model.schedules import CHUNKED, FOLDED
from rackmodel.model.workload import Workload


def fold_problems(workload: Workload, schedules: Sequence[object], *, below: bool, path: str) -> Iterator[InputError]:
    """Of schedules that are asked for. below: whether the cut is below the layer."""
    for name in (name for name in schedules if name in FOLDED or (below and name in CHUNKED)):
        if below:
            chunks = "two chunks" if name in FOLDED else "several chunks"
            yield InputError(f"{name} has {chunks} of layers a stage: a cut below the layer has none", path=path, given=str(name))
        elif tied := tied_weights(workload):
            fact = f"{name} has both ends of the model on its first stage: one weight that both read, {tied[0]}, is not priced there"
            yield InputError(fact, path=path, given=str(name))
