"""Which numbers of a machine move the answer: each at both ends of its range, the others as they are, the best mapping searched again.

A range is that of the machine's file, else a factor either way. Rows go by how far the objective swings, largest first: a tornado.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.report.svg import SIZE, bar, label, width_of
from rackmodel.report.tables import format_objective
from rackmodel.units import Quantity

FACTOR = 1.25
SMALLEST = 6.0  # points of letters
_FORM = re.compile(r"([0-9_.]+(?:[eE][+-]?[0-9]+)?)\s*(.*)")
Search = Callable[..., tuple[float, str]]
"""Settings → (objective, words of the best mapping) under all of them. Raises InfeasibleError, InputError."""


@dataclass(frozen=True)
class Swing:
    """One number. low, high: as --set says its ends · stated: whether its file states the range · at_low, at_high: the objective there,
    None where nothing fits · mapping_low, mapping_high: where another mapping is the best there, '' where it stays."""

    path: str
    low: str
    high: str
    stated: bool
    at_low: float | None
    at_high: float | None
    mapping_low: str = ""
    mapping_high: str = ""

    def width(self, base: float) -> float:
        """How far it moves the objective, over the objective; an end where nothing fits moves it beyond all."""
        ends = [float("inf") if end is None else end for end in (self.at_low, self.at_high)]
        return max(abs(end - base) for end in ends) / base if base else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def ends_of(value: Quantity) -> tuple[str, str, bool]:
    """(low, high, whether they are stated) of a quantity, as --set takes them."""
    number, unit = _FORM.fullmatch(value.text.strip()).groups()  # type: ignore[union-attr]
    stated = value.low < value.high and bool(value)
    low, high = (value.low / value, value.high / value) if stated else (1 / FACTOR, FACTOR)
    written = [f"{float(number) * factor:.6g}{f' {unit}' if unit else ''}" for factor in (low, high)]
    return written[0], written[1], stated


def tornado(
    numbers: Sequence[tuple[str, Quantity]], base: tuple[float, str], search: Search, priced: Callable[..., float] | None = None
) -> list[Swing]:
    """Numbers that move the objective, the widest swing first. numbers: (path, value) · base: (objective, words) of the answer · priced:
    settings → a figure of the answer's own mapping under them, sooner had than a search: what moves that is not asked in groups."""
    # nothing times a factor is nothing: such numbers are not varied
    varied = [_Varied(path, value) for path, value in numbers if value and _FORM.fullmatch(value.text.strip()) is not None]
    own = [] if priced is None or isnan(priced()) else _moving(varied, lambda settings: priced(*settings) == priced())
    rest = _moving([one for one in varied if one not in own], lambda settings: _same(search, settings, base))
    found = []
    for one in (*own, *rest):
        (low, at_low, map_low), (high, at_high, map_high) = (_at(search, one, end, base) for end in one.ends)
        found.append(Swing(one.path, low, high, one.stated, at_low, at_high, map_low, map_high))
    moved = [one for one in found if one.width(base[0]) > 1e-9]
    return sorted(moved, key=lambda one: (-one.width(base[0]), one.path))


class _Varied:
    """A number and its ends. near: the ends, but 1 where it lies between (a share that would be above 1, a factor that would be below) ·
    stays: the number itself as --set says it."""

    def __init__(self, path: str, value: Quantity) -> None:
        self.path = path
        *self.ends, self.stated = ends_of(value)
        number, unit = _FORM.fullmatch(value.text.strip()).groups()  # type: ignore[union-attr]
        plain = float(number)
        self.near = ["1" if not unit and min(plain, float(end)) < 1 < max(plain, float(end)) else end for end in self.ends if not unit]
        self.near = self.near or self.ends
        self.stays = f"{plain:.6g}{f' {unit}' if unit else ''}"


def _moving(numbers: Sequence[_Varied], same: Callable[[Sequence[str]], bool]) -> list[_Varied]:
    """Those that may move the answer: of many that change nothing, all together at their low and at their high ends, none does. same:
    whether settings change nothing."""
    if not numbers or all(same([f"{one.path}={one.near[side]}" for one in numbers]) for side in (0, -1)):
        return []
    if len(numbers) == 1:
        return list(numbers)
    middle = len(numbers) // 2
    return [*_moving(numbers[:middle], same), *_moving(numbers[middle:], same)]


def _same(search: Search, settings: Sequence[str], base: tuple[float, str]) -> bool:
    try:
        return search(*settings) == base
    except (InfeasibleError, InputError):
        return False


def _at(search: Search, number: _Varied, end: str, base: tuple[float, str]) -> tuple[str, float | None, str]:
    """(end, objective, words of another mapping) at an end; where no file could say that, at 1 on the way there, else at the number."""
    if end == number.stays:
        return end, base[0], ""
    for value in dict.fromkeys((end, number.near[number.ends.index(end)])):
        try:
            objective, words = search(f"{number.path}={value}")
        except InfeasibleError:
            return value, None, ""
        except InputError:
            continue
        return value, objective, words if words != base[1] else ""
    return number.stays, base[0], ""


def sketch(swings: Sequence[Swing], base: float, goal: str, width: float) -> tuple[str, float]:
    """(inside of an SVG, height): a bar a number from the objective at its low to that at its high, the answer's own in the middle."""
    named = min(0.5 * width, max((width_of(one.path) for one in swings), default=0.0) + 8.0)
    widest = max((width_of(one.path) for one in swings), default=1.0)
    size = max(SMALLEST, min(SIZE, 0.999 * SIZE * (named - 4.0) / widest))  # a long path in smaller letters, none cut
    room = width - named - 4.0
    ends = [end for one in swings for end in (one.at_low, one.at_high) if end is not None]
    least, most = min([base, *ends]), max([base, *ends])
    scale = room / (most - least) if most > least else 0.0
    parts: list[str] = []
    y = 0.0
    for one in swings:
        parts.append(label(one.path, 0.0, y + 10.0, named - 4.0, size=size))
        for end, at, kind in ((one.low, one.at_low, "k0"), (one.high, one.at_high, "k1")):
            if at is not None:
                x, wide = named + (min(at, base) - least) * scale, abs(at - base) * scale
                parts.append(bar(x, y + 1.0, wide, 11.0, kind, f"{one.path} = {end}: {format_objective(at, goal)}"))
        y += 16.0
    middle = named + (base - least) * scale
    parts.append(bar(middle - 0.4, 0.0, 0.8, y, "k3", f"as it is: {format_objective(base, goal)}"))
    parts.append(label(format_objective(least, goal), named, y + 10.0, room / 2, kind="soft"))
    parts.append(label(format_objective(most, goal), width, y + 10.0, room / 2, kind="soft", anchor="end"))
    parts += [bar(0.0, y + 18.0, 8.0, 8.0, "k0"), label("at its low end", 12.0, y + 26.0, 90.0)]
    parts += [bar(110.0, y + 18.0, 8.0, 8.0, "k1"), label("at its high end", 122.0, y + 26.0, 90.0)]
    return "".join(parts), y + 30.0
