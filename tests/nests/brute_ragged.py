"""Brute force over every tile, ragged or not, of a small matrix product on a memory, a buffer, a fan and registers: no lemma.

Every chain of tiles of every rank (one a node, falling), every order of both levels, every spatial vector. A rank's tiles are cut piece by
piece; only what a rank gives a tensor is kept of its chain, so chains that give the same are one.
"""

from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import prod

import numpy as np


@cache
def pieces(extents, tile):
    """Extents of all pieces after a cut, falling."""
    found = [x for e in extents for x in [tile] * (e // tile) + ([e % tile] if e % tile else [])]
    return tuple(found)


@cache
def chains(size, parts):
    """[(three tiles at the buffer, three at the registers, tiles at each buffer node, tiles at each register node, the same of the
    fullest instance alone, its cycles, copies)]."""
    found = []
    for tiles in combinations_with_replacement(range(size, 0, -1), 6):
        counts, now = [], (size,)
        for tile in tiles[:3]:
            now = pieces(now, tile)
            counts.append(len(now))
        groups = pieces(now, tiles[3] * parts)
        copies = max(-(-g // tiles[3]) for g in groups)
        inner, served, now, first = [], [], pieces(groups, tiles[3]), tuple(min(g, tiles[3]) for g in groups)
        for tile in tiles[3:]:
            now, first = pieces(now, tile), pieces(first, tile)
            inner.append(len(now))
            served.append(len(first))
        found.append((*tiles, *counts, *inner, *served, sum(min(g, tiles[3]) for g in groups), copies))
    return np.unique(np.array(found, dtype=float), axis=0)


def least_energy(p, m):
    """Least energy of any mapping; inf where none fits."""
    return least(p, m, lambda energy, time: (energy, energy))[0]


def least(p, m, key):
    """Least (primary, secondary) of any mapping, key: (energy, seconds) -> both; (inf, inf) where none fits."""
    ranks = list(p.sizes)
    fan = m.levels[1].fan
    sides = [[v for v in product(*(range(1, p.sizes[r] + 1) for r in ranks)) if prod(v) <= n] for n in (fan.x, fan.y)]
    vectors = sorted({tuple(a * b for a, b in zip(x, y, strict=True)) for x in sides[0] for y in sides[1]})
    best = (np.inf, np.inf)
    for s in vectors:
        rows = [chains(p.sizes[r], n) for r, n in zip(ranks, s, strict=True)]
        for outer, inner in product(permutations(range(3)), repeat=2):
            found = costs(p, m, rows, (outer, inner))
            if found is not None:
                first, second = (np.broadcast_to(k, found[0].shape) for k in key(*found))
                low = first.min()
                if low <= best[0] * (1 + 1e-12):
                    tied = second[first <= low * (1 + 1e-12)].min()
                    best = (low, tied if low < best[0] * (1 - 1e-12) else min(tied, best[1]))
    return best


def costs(p, m, rows, orders):
    """(energy, seconds) of every mapping of one choice of orders that fits; None where none does."""
    at = lambda column: [rows[r][:, column].reshape([-1 if i == r else 1 for i in range(3)]) for r in range(3)]  # noqa: E731
    ranks, legal = list(p.sizes), True
    for level in (1, 2):
        v, used = m.levels[level], 0.0
        for place, t in enumerate(orders[level - 1]):
            tiles = at(3 * (level - 1) + place)
            used = used + v.buffers * v.bits(p.tensors[t]) * prod(tiles[ranks.index(r)] for r in p.tensors[t].ranks)
        legal = legal & (used <= v.capacity_bits)
    if not np.any(legal):
        return None
    cycles = at(15)
    every = cycles[0] * cycles[1] * cycles[2]
    energy, port = p.macs * m.compute.j_per_mac, [[0.0, 0.0] for _ in m.levels]
    for t, tensor in enumerate(p.tensors):
        (lacked,) = (i for i, r in enumerate(ranks) if r not in tensor.ranks)
        words = prod(p.sizes[r] for r in tensor.ranks)
        n1, n2, full = at(6 + orders[0].index(t))[lacked], at(9 + orders[1].index(t))[lacked], at(12 + orders[1].index(t))[lacked]
        copies, served, own = at(16)[lacked], full, every / cycles[lacked]
        moved = _words(tensor, words, (n1, served, n2, p.sizes[ranks[lacked]]), copies)
        fullest = _words(tensor, own, (0, 0, full, cycles[lacked]), 1)
        for level, (v, both, alone) in enumerate(zip(m.levels, moved, fullest, strict=True)):
            bits = v.bits(tensor)
            energy = energy + bits * (both[0] * v.read_j_per_bit + both[1] * v.write_j_per_bit)
            for kind in (0, 1):
                port[level][kind] = port[level][kind] + bits * (alone if level == 2 else both)[kind]
    time = every / m.compute.macs_per_s
    for v, (reads, writes) in zip(m.levels, port, strict=True):
        if v.write_bandwidth_bits_per_s is None:
            time = np.maximum(time, (reads + writes) / v.bandwidth_bits_per_s)
        else:
            time = np.maximum(time, np.maximum(reads / v.bandwidth_bits_per_s, writes / v.write_bandwidth_bits_per_s))
    legal = np.broadcast_to(legal, np.broadcast_shapes(np.shape(energy), np.shape(time), np.shape(legal)))
    return tuple(np.broadcast_to(x, legal.shape)[legal] for x in (energy, time))


def _words(tensor, words, counts, own):
    """[(read, written)] of memory, buffer and registers; counts: tiles at the buffer, served by it, at the registers, MACs a word;
    own: copies of the output that start afresh."""
    n1, served, n2, macs = counts
    if not tensor.is_output:
        return (words * n1, 0), (words * served, words * n1), (words * macs, words * n2)
    return (
        (words * (n1 - 1), words * n1),
        (words * (n1 + served - 1), words * (n1 - 1 + served)),
        (words * (n2 + macs - own), words * (n2 - own + macs)),
    )
