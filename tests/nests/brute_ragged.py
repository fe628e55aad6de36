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
    """[(three tiles at the buffer, three at the registers, tiles at each buffer node, groups, tiles at each register node, copies)]."""
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
        found.append((*tiles, *counts, *inner, *served, copies))
    return np.unique(np.array(found, dtype=float), axis=0)


def least_energy(p, m):
    """Least energy of any mapping; inf where none fits."""
    ranks = list(p.sizes)
    fan = m.levels[1].fan
    sides = [[v for v in product(*(range(1, p.sizes[r] + 1) for r in ranks)) if prod(v) <= n] for n in (fan.x, fan.y)]
    vectors = sorted({tuple(a * b for a, b in zip(x, y, strict=True)) for x in sides[0] for y in sides[1]})
    best = np.inf
    for s in vectors:
        if any(n > p.sizes[r] for n, r in zip(s, ranks, strict=True)):
            continue
        rows = [chains(p.sizes[r], n) for r, n in zip(ranks, s, strict=True)]
        for outer, inner in product(permutations(range(3)), repeat=2):
            best = min(best, energy(p, m, rows, (outer, inner)))
    return best


def energy(p, m, rows, orders):
    """Least energy of one choice of orders."""

    def along(r, column):
        return rows[r][:, column].reshape([-1 if i == r else 1 for i in range(3)])

    ranks, total, legal = list(p.sizes), p.macs * m.compute.j_per_mac, True
    for level in (1, 2):
        v, used = m.levels[level], 0.0
        for at, t in enumerate(orders[level - 1]):
            has = [ranks.index(r) for r in p.tensors[t].ranks]
            used = used + v.buffers * v.bits(p.tensors[t]) * prod(along(r, 3 * (level - 1) + at) for r in has)
        legal = legal & (used <= v.capacity_bits)
    if not np.any(legal):
        return np.inf
    for t, tensor in enumerate(p.tensors):
        (lacked,) = (i for i, r in enumerate(ranks) if r not in tensor.ranks)
        words, (v0, v1, v2) = prod(p.sizes[r] for r in tensor.ranks), m.levels
        at1, at2 = orders[0].index(t), orders[1].index(t)
        n1, n2, served, copies = (along(lacked, c) for c in (6 + at1, 9 + at2, 12 + at2, 15))
        b0, b1, b2 = (v.bits(tensor) for v in m.levels)
        leaf = p.sizes[ranks[lacked]]
        if not tensor.is_output:
            each = n1 * (b0 * v0.read_j_per_bit + b1 * v1.write_j_per_bit)
            each = each + b1 * v1.read_j_per_bit * served + b2 * v2.write_j_per_bit * n2 + b2 * v2.read_j_per_bit * leaf
        else:
            each = b0 * (v0.write_j_per_bit * n1 + v0.read_j_per_bit * (n1 - 1))
            each = each + b1 * (v1.read_j_per_bit * n1 + v1.write_j_per_bit * (n1 - 1))
            each = each + b1 * (v1.write_j_per_bit * served + v1.read_j_per_bit * (served - 1))
            each = each + b2 * (v2.read_j_per_bit * n2 + v2.write_j_per_bit * (n2 - copies))
            each = each + b2 * (v2.write_j_per_bit * leaf + v2.read_j_per_bit * (leaf - copies))
        total = total + words * each
    return float(np.where(legal, total, np.inf).min())
