"""What ragged edges cost at least: rows of a joint program between whole numbers (joint_program).

**Leaves.** A tile of t cuts a rank of D into n pieces that cover it, each of so many leaves of u. Where t lies between two whole numbers of
leaves, (q - 1) u < t1 <= t <= q u, pieces have q leaves, or q - 1 whole ones: leaves are no fewer than
(D / u) (q u / t) (D / (n t))^B with B = log(q u / t1) / log(t1 / ((q - 1) u)): exact where all pieces are full (n t = D), D / u where all
are of q - 1 leaves, and concave in log n between. Of more pieces than D / u it says less than that they are leaves.

**Rounds.** A fan deals out tiles of y in groups of a parts. What the fullest instance gets of e in all is the part of [0, e) below y
modulo a y, and no less however e was cut before. With h rounds, y between D / (h a + 1) and D / ((h - 1) a + 1), that is h y, or
D - h (a - 1) y where y < D / (h a): concave in log y, so no less than its chord (D / a) (D / (h a y))^s,
s = log((h + 1) a / (h a + 1)) / log(1 + 1 / (h a)), which grows with h and a. Derivation: docs/nest_theory.md, section 6.
"""

from __future__ import annotations

from math import ceil, log

from rackmodel.nests.searchers.bounds.joint_ranges import Key, Range

Line = tuple[dict[Key, float], float]
"""Factors of logarithms by key, and what their sum is at most."""


def leaves_row(keys: tuple[Key, Key, Key], size: int, u: int, ends: Range) -> Line | None:
    """The row of the leaves of a rank under a tile between two ends; None where these are not within a leaf. keys: of the tile, its pieces,
    the leaves."""
    tile, pieces, leaves = keys
    q = ceil(ends[1] / u)
    if q < 2 or ends[0] <= (q - 1) * u or ends[0] >= q * u:
        return None
    power = log(q * u / ends[0]) / log(ends[0] / ((q - 1) * u))
    return {leaves: -1.0, tile: -1.0 - power, pieces: -power}, -(log(size / u) + log(q * u) + power * log(size))


def least_leaves(size: int, u: int, most: Range, least: int) -> int:
    """Leaves of a rank in no more pieces, of no larger tiles, than `most` (pieces, tile), the tile no smaller than `least`."""
    pieces, tile = most
    q = ceil(tile / u)
    cells = -(-size // u)
    if q < 2 or least <= (q - 1) * u:
        return cells
    whole = pieces * (q - 1)
    return max(cells, whole + ceil((size - whole * u) / (tile - (q - 1) * u)))


def round_rows(keys: tuple[Key, Key, Key], cover: Key | None, size: int, rounds: Range, parts: Range) -> list[Line]:
    """Rows of the rounds of a rank. keys: of the rounds h, the parts a, the tile y · cover: of what the fullest instance gets, if that
    counts · size: of the rank · rounds, parts: their ends."""
    h, a, y = keys
    s = log((rounds[0] + 1) * parts[0] / (rounds[0] * parts[0] + 1)) / log(1 + 1 / (rounds[0] * parts[0]))
    most = rounds[0] * parts[1] / ((rounds[0] - 1) * parts[1] + 1)
    found: list[Line] = [
        ({h: -1.0, a: -1.0, y: -1.0}, -log(size) + log(1 + 1 / (rounds[0] * parts[0]))),
        ({h: 1.0, a: 1.0, y: 1.0}, log(size) + log(most)),
    ]
    if cover is not None:
        found.append(({h: 1.0, y: 1.0, cover: -1.0}, 0.0))
        found.append(({a: -1.0 - s, h: -s, y: -s, cover: -1.0}, -(1 + s) * log(size)))
    return found
