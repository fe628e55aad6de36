"""How many tiles of a rank there are, and how much they cover, at each point of a chain of splits.

A rank of size D is cut by a chain of splits, outer → inner. A split in time to tile t turns a tile of extent e into
floor(e/t) tiles of t and one of e mod t (ragged tiles are not padded). A split in space does the same over instances.
Either kind can be read as "all" (sum over the pieces) or "first" (the largest piece alone): a multicast serves the
instances of a fan at once, so the parent sees the first; the fullest instance is the first.
Nested counts follow: D → t → u gives floor(D/t) ceil(t/u) + ceil((D mod t)/u). Derivation: docs/nest_theory.md, section 6.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """One split of a rank: tile size below it, and the fanout (index) that makes it, None for a loop in time."""

    tile: int
    fan: int | None = None


def histogram(size: int, chain: list[Split], first_fans: frozenset[int], first_time: bool = False) -> dict[int, int]:
    """Extents of the pieces after `chain` → how many; `first_fans` are read as "first", the loops too if first_time."""
    pieces = {size: 1}
    for split in chain:
        first = first_time if split.fan is None else split.fan in first_fans
        new: dict[int, int] = {}
        for extent, count in pieces.items():
            if first:
                e = min(extent, split.tile)
                new[e] = new.get(e, 0) + count
                continue
            full, rest = divmod(extent, split.tile)
            if full:
                new[split.tile] = new.get(split.tile, 0) + full * count
            if rest:
                new[rest] = new.get(rest, 0) + count
        pieces = new
    return pieces


def count_and_cover(pieces: dict[int, int]) -> tuple[int, int]:
    """(number of pieces, sum of their extents)."""
    return sum(pieces.values()), sum(e * n for e, n in pieces.items())
