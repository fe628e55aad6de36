"""Brute force over every tile, ragged or not, of a small fused region on a memory, a buffer and a row of units: no lemma.

Every ordered prefix, every order of a member's own nodes, every rank that the row may be dealt, every chain of tiles of every rank, cut
piece by piece. Only what a rank gives the nodes is kept of its chains, and of those that give no less anywhere the least: words, room and
cycles grow with all of it. Loops lie around all members.
"""

from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import prod

import numpy as np

from rackmodel.nests.region_loops import RegionLoops
from tests.nests.brute_ragged import pieces


def least(region, machine, key):
    """The least primary key of every mapping; inf where none fits. Keys add up over the members."""
    (span,) = [(0, len(region.members) - 1)]
    may = RegionLoops(region, (span,), again=True).cuts[0] | region.shared
    outer, best = [n for n in region.outer if n not in region.resident], np.inf
    for size in range(len(outer) + 1):
        for prefix in permutations(outer, size):
            own = [[t for t in p.tensors if t.name not in (*prefix, *region.held)] for p in region.members]
            for orders in product(*(list(permutations(mine)) for mine in own)):
                for dealt in product(*([None, *p.sizes] if machine.levels[1].fan.x > 1 else [None] for p in region.members)):
                    best = min(best, _least(region, machine, (prefix, orders, dealt, may), key))
    return best


def _least(region, machine, structure, key):
    prefix, orders, _, may = structure
    sizes = region.sizes
    columns = [_columns(region, machine, structure, r, r in may) for r in sizes]
    at = lambda name: [_along(rows[name], k, len(sizes)) for k, rows in enumerate(columns)]  # noqa: E731
    ranks, total, legal = list(sizes), 0.0, True
    level = machine.levels[1]

    def times(names, lacked):
        return prod(column for column, r in zip(at(names), ranks, strict=True) if r in lacked)

    for i, p in enumerate(region.members):
        runs = times(("n", "core"), set(ranks) - set(p.sizes))
        read, written, room = [0.0, 0.0], [0.0, 0.0], 0.0
        moved = [(region.outer[n][0], ("n", j), ("tile", j)) for j, n in enumerate(prefix)]
        mine = [(t, ("n", i, k), ("tile", i, k)) for k, t in enumerate(orders[i])]
        for t, n, tile in (*moved, *mine):
            room = room + level.bits(t) * times(tile, set(t.ranks))
            if (t, n, tile) in moved and region.outer[t.name][1][0] != i:
                continue
            words = t.tile_words(sizes) * times(n, set(ranks) - set(t.ranks))
            if t.is_output:
                first = t.tile_words(sizes)
                read, written = [read[0] + words - first, read[1] + words], [written[0] + words, written[1] + words - first]
            else:
                read[0], written[1] = read[0] + words, written[1] + words
        for name, (made, used) in region.held.items():
            if made <= i <= used:
                room = room + level.bits(region.intermediate(name)) * times(("tile", "core"), set(region.intermediate(name).ranks))
        for t in p.tensors:
            words = t.tile_words(sizes) * times(("leaf", i), set(ranks) - set(t.ranks))
            read[1] = read[1] + words - (t.tile_words(sizes) * runs if t.is_output else 0.0)
            written[1] = written[1] + (words if t.is_output else 0.0)
        legal = legal & (room <= level.capacity_bits)
        width, cycles = p.tensors[0].bits, times(("leaf", i), set(ranks))
        joules = p.macs * runs * machine.compute.j_per_mac
        seconds = cycles / machine.compute.macs_per_s
        for v, r, w in zip(machine.levels, read, written, strict=True):
            joules = joules + width * (r * v.read_j_per_bit + w * v.write_j_per_bit)
            seconds = np.maximum(seconds, width * (r + w) / v.bandwidth_bits_per_s)
        total = total + key(joules, seconds)[0]
    return float(np.where(legal, total, np.inf).min())


def _along(values, k, dims):
    return values.reshape([-1 if i == k else 1 for i in range(dims)])


def _columns(region, machine, structure, r, may):
    """Name → values over the chains of a rank that matter."""
    prefix, orders, dealt, _ = structure
    above = tuple(r in region.outer[n][0].ranks for n in prefix)
    core = any(r in region.intermediate(n).ranks for n in region.held)
    fan = machine.levels[1].fan.x
    members = tuple(
        (tuple(r in t.ranks for t in order), fan if side == r else 1) if r in p.sizes else (len(order), 0)
        for p, order, side in zip(region.members, orders, dealt, strict=True)
    )
    names, rows = _chains(region.sizes[r], above, core, members, may)
    return dict(zip(names, rows.T, strict=True))


@cache
def _chains(size, above, core, members, may):
    """(names of the columns, [chains, columns]); members: (has it, of each own node; parts), or (own nodes, 0) where they lack the rank."""
    names, rows = [], []
    for tiles in combinations_with_replacement(range(size, 0, -1), len(above) + 1) if may else [(size,) * (len(above) + 1)]:
        now, row = (size,), {}
        for j, (tile, has) in enumerate(zip(tiles, (*above, core), strict=True)):
            now = pieces(now, tile)
            place = j if j < len(above) else "core"
            row["tile", place] = tile if has or (place == "core" and core) else 0
            row["n", place] = len(now) if not has or place == "core" else 0
        parts = [_own(now, tiles[-1], i, *member) for i, member in enumerate(members)]
        for mine in product(*parts):
            whole = dict(row)
            for one in mine:
                whole |= one
            names = list(whole)
            rows.append(list(whole.values()))
    return names, least_rows(np.unique(np.array(rows, dtype=float), axis=0))


@cache
def _own(start, core, i, own, parts):
    """Columns of a member below a core, for each of its chains."""
    if not parts:
        n = len(start)
        return [{**{("tile", i, k): 1 for k in range(own)}, **{("n", i, k): n for k in range(own)}, ("leaf", i): n}]
    found = []
    for tiles in combinations_with_replacement(range(core, 0, -1), len(own)):
        now, row = start, {}
        for k, (tile, has) in enumerate(zip(tiles, own, strict=True)):
            now = pieces(now, tile)
            row["tile", i, k], row["n", i, k] = (tile, 0) if has else (0, len(now))
        row["leaf", i] = len(pieces(now, parts))
        found.append(row)
    kept = least_rows(np.unique(np.array([list(row.values()) for row in found], dtype=float), axis=0))
    return [dict(zip(found[0], values, strict=True)) for values in kept]


def least_rows(rows):
    """Rows that no other is below or equal to everywhere."""
    kept = []
    for row in rows[np.argsort(rows.sum(axis=1), kind="stable")]:
        if not kept or not (np.array(kept) <= row).all(axis=1).any():
            kept.append(row)
    return np.array(kept)
