"""Which operations to fuse, found: every set of neighbouring pairs that do not overlap, each with at most one tensor made beforehand that
stays whole on chip (its maker runs just before the pair).

What a pair saves is solved exactly only where that may decide: first a bound, then the best set under the bounds, whose pairs are solved,
until the best set holds solved pairs alone. Nothing else can save more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rackmodel.model.workload import Workload


class Region(NamedTuple):
    """Two operations to fuse, by the tensors they write, and at most one tensor made before them that stays."""

    first: str
    second: str
    resident: tuple[str, ...] = ()

    @property
    def members(self) -> frozenset[str]:
        """What its operations write: no other region may hold one of them."""
        return frozenset((self.first, self.second, *self.resident))


def regions(workload: Workload) -> list[Region]:
    """Every pair of contractions of which the second alone reads what the first writes; alone, and with one tensor that they alone read."""
    einsums = {op.out.tensor: op for op in workload.ops.values() if op.kind.name == "einsum"}

    def only_reader(tensor: str) -> str | None:
        readers = workload.readers.get(tensor, ())
        return workload.ops[readers[0]].out.tensor if len(readers) == 1 else None

    found = []
    for first in einsums:
        second = only_reader(first)
        if second not in einsums:
            continue
        found.append(Region(first, second))
        read = dict.fromkeys(access.tensor for op in (einsums[first], einsums[second]) for access in op.ins)
        stays = [name for name in read if name in einsums and name != first and only_reader(name) in (first, second)]
        found += [Region(first, second, (name,)) for name in stays]
    return found


def most_saved(options: Sequence[Region], hope: Callable[[Region], float], gain: Callable[[Region], float]) -> list[Region]:
    """The disjoint regions that save most together. hope: at most what one saves · gain: what it saves, solved (it may be negative)."""
    saves = {option: hope(option) for option in options}
    solved: set[Region] = set()
    while True:
        best = _best_set([option for option in options if saves[option] > 0], saves)
        open_ = [option for option in best if option not in solved]
        if not open_:
            return best
        one = max(open_, key=lambda option: saves[option])
        saves[one] = min(saves[one], gain(one))
        solved.add(one)


def _best_set(options: Sequence[Region], saves: Mapping[Region, float]) -> list[Region]:
    """Disjoint options of the largest sum; the first met of equal ones."""
    best: tuple[float, list[Region]] = (0.0, [])

    def grow(start: int, taken: list[Region], used: frozenset[str], total: float) -> None:
        nonlocal best
        if total > best[0]:
            best = total, taken
        for i in range(start, len(options)):
            if not options[i].members & used and total + sum(saves[o] for o in options[i:]) > best[0]:
                grow(i + 1, [*taken, options[i]], used | options[i].members, total + saves[options[i]])

    grow(0, [], frozenset(), 0.0)
    return best[1]
