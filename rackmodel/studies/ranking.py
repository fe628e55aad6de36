"""How sure a ranking is: the share of samples in which one answer beats another, and the value at which the two change places.

    n samples   a Latin hypercube over every range that a file states: even, or every factor alike where a range is wide (10 times)
    share       samples in which the first is less, of n; in each, the best mapping of either side is searched again under all numbers that
                it states, for one that moves nothing alone (links that a slower unit hides) may where others are moved; a side that none
                moves is searched once
    flip        one number moved alone, the others as the files have them: halved between there and the end where the order is another

A number that both sides read at one place of one file (a part, a profile) is one number: it has one value for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackmodel.inputs.ranged import Fact
from rackmodel.studies.plan import latin_hypercube
from rackmodel.studies.study import RangeSpec
from rackmodel.studies.varied import Amount, amount

CLOSE = 1e-3
SAME = 1e-9
WIDE = 10.0
Place = tuple[str, int, int]
"""File, line and column at which a number is written."""
Values = Mapping[Place, Amount]
"""Of some numbers, the others as the files have them."""
Judge = Callable[[Values], Sequence[float]]
"""Values → what each side is ranked by, of which less is better; inf: nothing fits."""
Jury = Callable[[Sequence[Values], str], Sequence[Sequence[float]]]
"""The same of many at once, in their order; what for, in words."""


@dataclass(frozen=True)
class RangedNumber:
    """One number with a range. place: where it is written, which tells it from all others · low, mid, high: in one unit · status: ASSUMED,
    SOURCED ... or ''."""

    place: Place
    name: str
    low: Amount
    mid: Amount
    high: Amount
    status: str = ""

    def at(self, share: float) -> Amount:
        """Its value at a share of its range."""
        low, high = self.low.number, self.high.number
        wide = low > 0 and high / low > WIDE
        return Amount(low * (high / low) ** share if wide else low + (high - low) * share, self.mid.unit)


Group = Sequence[RangedNumber]


@dataclass(frozen=True)
class OrderFlip:
    """A number that alone turns a ranking: beyond `value`, on the side of `end`, the second is less."""

    name: str
    value: str
    here: str
    end: str
    status: str

    def words(self) -> str:
        """'gpu.memory.bandwidth <= 1.2 TB/s (SOURCED 3.35 TB/s)'."""
        return f"{self.name} {self.end} {self.value} ({f'{self.status} ' if self.status else ''}{self.here})"


@dataclass(frozen=True)
class RankedPair:
    """Two sides, the first of which is less as the files are. won, even, lost: samples in which the first is less, neither, more."""

    first: str
    second: str
    won: int
    even: int
    lost: int
    flips: Sequence[OrderFlip] = field(default=())

    @property
    def share(self) -> float:
        """Share of the samples in which the first beats the second."""
        return self.won / (self.won + self.even + self.lost)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**self.__dict__, "share": self.share, "flips": [dict(one.__dict__) for one in self.flips]}


def ranged_number(fact: Fact, place: Place) -> RangedNumber | None:
    """A number that is written with its ends, in one unit whatever each is written in; None where those are of another dimension."""
    low, mid, high = (amount(text, fact.path) for text in (fact.low, fact.text, fact.high))
    unit = mid.unit if mid.number else high.unit
    ends = low.written_as(unit), high.written_as(unit)
    if ends[0] is None or ends[1] is None:
        return None
    return RangedNumber(place, fact.path, ends[0], Amount(mid.number, unit), ends[1], fact.status)


def ranking(
    names: Sequence[str],
    numbers: Sequence[RangedNumber],
    judge: Judge,
    samples: int,
    seed: int,
    jury: Jury | None = None,
    stated: Sequence[Container[Place]] = (),
) -> list[RankedPair]:
    """The best side against each other. names: of the sides, in the order of the judge's figures · jury: what the judge says of many ·
    stated: of each side the numbers that it reads; absent = all of them."""
    here = judge({})
    order = sorted(range(len(names)), key=lambda side: (here[side], side))
    every = jury or (lambda many, what: [judge(values) for values in many])
    alone = moving(numbers, every)
    drawn = every(_samples(_beside(alone, numbers, stated), samples, seed), f"{samples:,} samples")
    numbers = alone
    both = every([{number.place: end} for number in numbers for end in (number.low, number.high)], "the ends of ranges")
    ends = {one.place: list(zip((one.low, one.high), both[2 * n : 2 * n + 2], strict=True)) for n, one in enumerate(numbers)}
    first, *others = order
    return [_pair(names, (first, other), drawn, _flips(numbers, ends, (first, other), judge)) for other in others]


def _beside(alone: Sequence[RangedNumber], numbers: Sequence[RangedNumber], stated: Sequence[Container[Place]]) -> list[RangedNumber]:
    """Numbers that move a figure alone, and behind them the others of the sides that these are of."""
    kept = [one.place for one in alone]
    moved = [side for side in stated if any(place in side for place in kept)]
    others = [one for one in numbers if one.place not in kept and (any(one.place in side for side in moved) or not stated)]
    return [*alone, *(others if alone else [])]


def moving(numbers: Sequence[RangedNumber], jury: Jury) -> list[RangedNumber]:
    """Those of some numbers that move a figure alone, in their order: a group that changes no figure, all at their low ends and all at
    their high ends, is left out, any other is parted. Numbers of one kind (energies, capacities) are asked together; groups are, side by
    side."""
    what, kept = f"which of {len(numbers)} ranges count", set[Place]()
    (here,) = jury([{}], what)
    groups: list[Group] = [sorted(numbers, key=_kind)] if numbers else []
    while groups:
        moved = _moved(groups, list(here), jury, what)
        kept |= {group[0].place for group in moved if len(group) == 1}
        groups = [part for group in moved if len(group) > 1 for part in _parted(group)]
    return [one for one in numbers if one.place in kept]


def _kind(number: RangedNumber) -> str:
    """'latency' of node.network.latency."""
    return number.name.rpartition(".")[2]


def _moved(groups: Sequence[Group], here: list[float], jury: Jury, what: str) -> list[Group]:
    """Groups that change a figure at either end; those that do at the low one are not asked for the high one."""
    lows = jury([{one.place: one.low for one in group} for group in groups], what)
    found = [group for group, figures in zip(groups, lows, strict=True) if list(figures) != here]
    left = [group for group in groups if group not in found]
    highs = jury([{one.place: one.high for one in group} for group in left], what)
    return found + [group for group, figures in zip(left, highs, strict=True) if list(figures) != here]


def _parted(group: Group) -> tuple[Group, Group]:
    """Two parts of a group, in the middle between two kinds where it has several."""
    between = [n for n in range(1, len(group)) if _kind(group[n - 1]) != _kind(group[n])] or range(1, len(group))
    cut = min(between, key=lambda n: abs(2 * n - len(group)))
    return group[:cut], group[cut:]


def _samples(numbers: Sequence[RangedNumber], samples: int, seed: int) -> list[Values]:
    if not numbers:
        return [{}] * samples
    shares = latin_hypercube({str(n): RangeSpec(uniform=(0, 1)) for n in range(len(numbers))}, samples, seed)
    return [{number.place: number.at(float(row[str(n)])) for n, number in enumerate(numbers)} for row in shares]


def _side(first: float, second: float) -> int:
    """-1 where the first is less, 0 where neither is, 1 where it is more."""
    if first == second or math.isclose(first, second, rel_tol=SAME):
        return 0
    return -1 if first < second else 1


def _pair(names: Sequence[str], pair: tuple[int, int], drawn: Sequence[Sequence[float]], flips: Sequence[OrderFlip]) -> RankedPair:
    sides = [_side(row[pair[0]], row[pair[1]]) for row in drawn]
    return RankedPair(names[pair[0]], names[pair[1]], sides.count(-1), sides.count(0), sides.count(1), tuple(flips))


def _flips(
    numbers: Sequence[RangedNumber], ends: Mapping[Place, Sequence[tuple[Amount, Sequence[float]]]], pair: tuple[int, int], judge: Judge
) -> list[OrderFlip]:
    """Numbers that alone turn a pair, in the order of the files."""
    found = []
    for number in numbers:
        for end, at_end in ends[number.place]:
            if _side(at_end[pair[0]], at_end[pair[1]]) > 0:
                value = _turns_at(number, end, pair, judge)
                way = "<=" if end.number < number.mid.number else ">="
                found.append(OrderFlip(number.name, value.short(), number.mid.short(), way, number.status))
    return found


def _turns_at(number: RangedNumber, end: Amount, pair: tuple[int, int], judge: Judge) -> Amount:
    """Between the files' value and an end at which the second is less: where it begins to be, by halving."""
    good, bad = number.mid.number, end.number
    while abs(good - bad) > CLOSE * max(abs(good), abs(bad)):
        wide = good > 0 and bad > 0 and not 1 / 4 < good / bad < 4
        middle = math.sqrt(good * bad) if wide else (good + bad) / 2
        figures = judge({number.place: Amount(middle, end.unit)})
        good, bad = (good, middle) if _side(figures[pair[0]], figures[pair[1]]) > 0 else (middle, bad)
    return Amount((good + bad) / 2, end.unit)
