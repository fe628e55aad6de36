"""The spatial vectors of a fanout: how many neighbouring tiles of each rank run side by side.

X and Y of a two-dimensional fanout each hold a vector with product <= their size; only the product per rank matters
to cost, so one pair (x, y) is kept per product. A linear fan takes any vector: its instances come in waves.
"""

from bisect import bisect_right
from collections.abc import Container, Sequence
from functools import lru_cache
from itertools import combinations
from math import inf

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.nests.problem import NestFan

Vector = dict[str, int]  # rank → parts, ranks at 1 left out


def vectors(options: dict[str, list[int]], limit: float) -> list[Vector]:
    """Every choice of one option per rank with product <= limit, in a fixed order; ranks at 1 are left out."""
    found: list[tuple[Vector, int]] = [({}, 1)]
    for rank, choices in options.items():
        found = [({**v, rank: c} if c > 1 else v, p * c) for v, p in found for c in choices if p * c <= limit]
    return [v for v, _ in found]


def spatial_set(
    fan: NestFan, choices: dict[str, list[int]], allowed_x: Container[str], allowed_y: Container[str]
) -> list[tuple[Vector, Vector, Vector]]:
    """[(s, x, y)] distinct products s (rank → parts, ranks at 1 left out) with one way to lay each on X and Y.

    choices: rank → sorted parts it may be cut into (their products must be in the list to count).
    allowed_x, allowed_y: ranks allowed on that dimension. Order: as met, X outer; fixed.
    """
    sides = (frozenset(r for r in choices if r in allowed) for allowed in (allowed_x, allowed_y))
    return _spatial_set(fan, tuple((r, tuple(parts)) for r, parts in choices.items()), *sides)


@lru_cache(maxsize=64)
def _spatial_set(
    fan: NestFan, parts: tuple[tuple[str, tuple[int, ...]], ...], allowed_x: frozenset[str], allowed_y: frozenset[str]
) -> list[tuple[Vector, Vector, Vector]]:
    """Remembered: searches of a fused pair ask for the same sets again and again. Not to be changed by who reads it."""
    choices = {r: list(every) for r, every in parts}
    if fan.linear:
        options = {r: c if r in allowed_x else [1] for r, c in choices.items()}
        return [(v, v, {}) for v in vectors(options, float("inf"))]

    def side(ranks: Container[str], limit: int) -> list[Vector]:
        return vectors({r: [c for c in cs if c <= limit] if r in ranks else [1] for r, cs in choices.items()}, limit)

    xs, ys = side(allowed_x, fan.x), side(allowed_y, fan.y)
    x, y = (np.array([[v.get(r, 1) for r in choices] for v in some], dtype=np.int64).reshape(len(some), len(choices)) for some in (xs, ys))
    number: Ints = np.zeros(len(xs) * len(ys), dtype=np.int64)  # of what is laid out in all: each as soon as it is met
    on = np.ones(len(number), dtype=bool)
    for i, legal in enumerate(choices.values()):
        parts_of = np.multiply.outer(y[:, i], x[:, i]).ravel()
        among = np.zeros(fan.x * fan.y + 1, dtype=bool)
        among[[1, *(n for n in legal if n < len(among))]] = True
        on &= among[parts_of]
        if int(number.max(initial=0) + 1) * len(among) >= 2**62:
            number = np.unique(number, return_inverse=True)[1]
        number = number * len(among) + parts_of
    met = np.flatnonzero(on)
    met = met[np.sort(np.unique(number[met], return_index=True)[1])]
    laid = (y[met // len(xs)] * x[met % len(xs)]).tolist()
    of = ({r: n for r, n in zip(choices, row, strict=True) if n > 1} for row in laid)
    return [(v, xs[i % len(xs)], ys[i // len(xs)]) for v, i in zip(of, met.tolist(), strict=True)]


def every_vector(fan: NestFan, sizes: list[int], allowed: list[list[bool]], most: int) -> tuple[Ints, Ints, Ints, bool]:
    """(s, x, y, complete): [S, ranks] int arrays, s = x * y distinct, any parts <= sizes (no divisibility), or the fewest that hold all of
    a rank where no layout has just as many (5 in 3 x 2: one idles).

    complete is False where there would be more than `most` pairs: then only parts ceil(size / n) are tried.
    """
    sides = _sides(fan, [range(1, n + 1) for n in sizes], allowed, most)
    complete = sides is not None
    if sides is None:
        sides = _sides(fan, [sorted({-(-size // n) for n in range(1, size + 1)}) for size in sizes], allowed, inf)
    assert sides is not None
    return *_distinct(fan, sizes, *sides), complete


def whole_vectors(fan: NestFan, sizes: list[int], most: int) -> Ints | None:
    """[S, ranks] the s of `every_vector` where any rank may lie on X and on Y; None where there would be more than `most` pairs."""
    sides = _sides(fan, [range(1, n + 1) for n in sizes], [[True] * len(sizes)] * 2, most)
    return None if sides is None else _distinct(fan, sizes, *sides)[0]


def _distinct(fan: NestFan, sizes: list[int], xs: Ints, ys: Ints) -> tuple[Ints, Ints, Ints]:
    """(s, x, y) of every product s = x * y that a rank can have, each as it is met first, X outer."""
    x, y = np.repeat(xs, len(ys), axis=0), np.tile(ys, (len(xs), 1))
    s = x * y
    fits = ((s <= sizes) | (((x - 1) * y < sizes) & (x * (y - 1) < sizes))).all(axis=1)
    x, y, s = x[fits], y[fits], s[fits]
    base = np.array([fan.size + 1] * len(sizes), dtype=float) ** np.arange(len(sizes))
    if base[-1] * fan.size < 2**53:
        _, first = np.unique(s @ base.astype(np.int64), return_index=True)
    else:
        _, first = np.unique(s, axis=0, return_index=True)
    first = np.sort(first)
    return s[first], x[first], y[first]


def at_work(laid: Ints, most: int) -> Ints | None:
    """[vectors, 3] numbers of parts that may be at work where `laid` are laid out: fewer than any of them, where no layout has just as
    many (3 of 2 x 2). None where there would be more than `most` pairs of the first two."""
    high = laid.max(axis=0)
    if high[0] * high[1] > most:
        return None
    third = np.zeros((high[0] + 1, high[1] + 1), dtype=np.int64)
    np.maximum.at(third, (laid[:, 0], laid[:, 1]), laid[:, 2])
    for axis in (0, 1):
        third = np.flip(np.maximum.accumulate(np.flip(third, axis), axis=axis), axis)
    first, second = np.nonzero(third[1:, 1:])
    number = third[1:, 1:][first, second]
    last = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
    return np.stack([np.repeat(first, number), np.repeat(second, number), last], axis=1) + 1


def idle_vectors(laid: Ints, most: int) -> tuple[Ints, Bools] | None:
    """([n, ranks] parts at work that no layout has just as many of, [n, ranks] ranks of which more are laid out), the fewest such ranks
    there may be: 3 of 2 x 2. None where they would be more than `most`."""
    ranks = range(laid.shape[1])
    found, more, known = [laid[:0]], [np.zeros((0, len(ranks)), dtype=bool)], [(frozenset[int](), laid)]
    for some in (frozenset(c) for n in ranks for c in combinations(ranks, n + 1)):
        parts = laid
        for r in sorted(some):
            parts = _fewer(parts, r)
            if len(parts) > most:
                return None
        for within, there in known:
            if within < some:
                parts = parts[~_among(parts, there)]
        known.append((some, parts))
        found.append(parts)
        more.append(np.tile([r in some for r in ranks], (len(parts), 1)))
    every = np.concatenate(found)
    return None if len(every) > most else (every, np.concatenate(more))


def _fewer(vectors: Ints, rank: int) -> Ints:
    """Those and all with fewer parts of a rank, each once."""
    others = vectors.copy()
    others[:, rank] = 0
    (kind,) = _codes(others)
    order = np.lexsort((vectors[:, rank], kind))
    top = vectors[order[np.r_[kind[order[1:]] != kind[order[:-1]], True]]]
    number = top[:, rank]
    rows = np.repeat(top, number, axis=0)
    rows[:, rank] = np.arange(1, number.sum() + 1) - np.repeat(np.cumsum(number) - number, number)
    return rows


def _among(rows: Ints, others: Ints) -> Bools:
    """[rows] whether each is one of the others."""
    some, known = _codes(rows, others)
    return np.asarray(np.isin(some, known))


def _codes(*several: Ints) -> list[Ints]:
    """[rows] of each a number, the same for the same row alone."""
    most = [int(n) + 1 for n in np.max([rows.max(axis=0, initial=0) for rows in several], axis=0)]
    step = np.cumprod([1, *most], dtype=object)
    if step[-1] < 2**63:
        return [rows @ step[:-1].astype(np.int64) for rows in several]
    kinds = np.unique(np.concatenate(several), axis=0, return_inverse=True)[1].ravel()
    return np.split(kinds, np.cumsum([len(rows) for rows in several])[:-1])


def layout_of(laid: Ints, parts: Ints, rank: int) -> tuple[int, bool]:
    """(number of the smallest layout with so many parts at work, whether it has more of a rank); as many of that rank where that can be."""
    over = (laid >= parts).all(axis=1)
    same = over & (laid[:, rank] == parts[rank])
    on = same if same.any() else over
    return int(np.flatnonzero(on)[np.argmin(np.prod(laid[on], axis=1))]), not same.any()


def more_pairs(fan: NestFan, parts: list[list[int]], allowed: list[list[bool]], most: int) -> bool:
    """Whether a fan of two dimensions has more than `most` pairs of vectors, one on X and one on Y. parts: of each rank, from 1 upwards."""
    return not fan.linear and _sides(fan, parts, allowed, most) is None


def _sides(fan: NestFan, parts: Sequence[Sequence[int]], allowed: list[list[bool]], most: float) -> tuple[Ints, Ints] | None:
    """Every vector on X and on Y of parts of each rank; None, before they are all made, where there are more than `most` pairs.
    parts: from 1 upwards."""
    sides: list[Ints] = []
    others = max((bisect_right(choices, fan.y) for choices, can in zip(parts, allowed[1], strict=True) if can), default=1)  # on Y at least
    for limit, on in zip((fan.x, fan.y), allowed, strict=True):
        found: list[tuple[tuple[int, ...], int]] = [((), 1)]
        for choices, can in zip(parts, on, strict=True):
            top = limit if can else 1
            found = [((*v, c), p * c) for v, p in found for c in choices[: bisect_right(choices, min(top, limit // p))]]
            if len(found) * others > most:  # each has a part of every further rank
                return None
        others = len(found)
        sides.append(np.array([v for v, _ in found], dtype=np.int64).reshape(-1, len(parts)))
    return sides[0], sides[1]
