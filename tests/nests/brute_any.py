"""Brute force over every ragged mapping of a small einsum on any machine: no lemma, no bound, priced by the functions of `evaluate`.

Every chain of tiles of every rank (one a node, falling), every layout on both sides of every fan, every order of every level. What a
rank's chains give is an array along an axis of its own, so that the sums of `evaluate` are those of all mappings at once.
"""

from itertools import combinations_with_replacement, permutations, product
from math import comb, inf, prod

import numpy as np

from rackmodel.nests import evaluate
from rackmodel.nests.split_chains import Chains

MOST = 3_000_000  # mappings of all orders, chains of a rank


class Values(np.ndarray):
    """An array that += and *= broadcast."""

    def __iadd__(self, other):
        return self + other

    def __imul__(self, other):
        return self * other


class RankChains:
    """Every chain of one rank; splits: [(tile [chains], fan or None)]. None of these where they are too many."""

    def __init__(self, p, m, rank, nodes):
        size, leaf, depth = p.sizes[rank], m.compute.atom.get(rank, 1), len(m.levels)
        least, self.size = min(leaf, size), size
        sides = [(range(1, (size if f.linear else min(f.x, size)) + 1), range(1, min(f.y, size) + 1)) for f in (v.fan for v in m.levels)]
        every = [list(product(x, y)) for x, y in sides]
        self.many = comb(size - least + sum(nodes), sum(nodes)) * prod(map(len, every))
        if self.many > MOST / 100:
            return
        tiles = list(combinations_with_replacement(range(size, least - 1, -1), sum(nodes)))
        both = list(product(tiles, product(*every)))
        self.tiles = np.array([t for t, _ in both], dtype=np.int64).reshape(len(both), sum(nodes))
        self.parts = np.array([s for _, s in both], dtype=np.int64)
        inside = iter(self.tiles.T)
        columns = [[next(inside) for _ in range(n)] for n in nodes]
        handed = [np.full(len(both), leaf)]
        for level in range(depth - 1, 0, -1):
            handed.insert(0, columns[level][0] if columns[level] else handed[0] * self.parts[:, level].prod(axis=1))
        self.splits, legal, now = [], np.ones(len(both), dtype=bool), np.full(len(both), size)
        for level in range(depth):
            for tile in columns[level]:
                self.splits.append((tile, None))
                legal, now = legal & (tile <= now), np.minimum(now, tile)
            self.splits += [(handed[level] * self.parts[:, level].prod(axis=1), None), (handed[level], level)]
            if level == depth - 1 or columns[level + 1]:
                legal &= (handed[level] <= now) | ((handed[level] == leaf) & bool(m.compute.atom))
            now = np.minimum(now, handed[level])
        self._only(np.flatnonzero(legal))
        self.known = {}

    def _only(self, rows):
        self.tiles, self.parts = self.tiles[rows], self.parts[rows]
        self.splits = [(tile[rows], fan) for tile, fan in self.splits]

    def pieces(self, depth, first, time):
        """[chains, extents] how many pieces of each extent there are after so many splits."""
        key = depth, frozenset(fan for _, fan in self.splits[:depth] if fan in first), time
        if key not in self.known:
            now = np.zeros((len(self.tiles), self.size + 1), dtype=np.int64)
            now[:, self.size] = 1
            if depth:
                before, now = self.pieces(depth - 1, first, time), np.zeros_like(now)
                (tile, fan), row = self.splits[depth - 1], np.arange(len(now))
                for extent in range(1, self.size + 1):
                    if time if fan is None else fan in first:
                        now[row, np.minimum(extent, tile)] += before[:, extent]
                    else:
                        now[row, np.where(extent >= tile, tile, 0)] += extent // tile * before[:, extent]
                        now[row, extent % tile] += before[:, extent]
                now[:, 0] = 0
            self.known[key] = now
        return self.known[key]


class ArrayChains(Chains):
    """Chains of all mappings of one choice of orders: counts are arrays with an axis a rank."""

    def __init__(self, p, m, rows, orders):
        self.problem, self.machine, self.rows = p, m, rows
        self.leaf = {r: m.compute.atom.get(r, 1) for r in p.sizes}
        self.mapping, self.position, self.after_fan, self.end, self._indexed = m, {}, [], 0, {}
        for level, names in enumerate(orders):
            for name in names:
                self.end += level > 0
                self.position[level, name] = self.end
            self.end += 2
            self.after_fan.append(self.end)

    def along(self, rank, values):
        return values.reshape([-1 if r == rank else 1 for r in self.problem.sizes]).view(Values)

    def stats(self, rank, depth, first, first_time=False):
        pieces = self.rows[rank].pieces(depth, first, first_time)
        return self.along(rank, pieces.sum(axis=1)), self.along(rank, pieces @ np.arange(pieces.shape[1]))


def served(chains, tensor, parent, child, depth, first):
    """Words the parent moves; a width counts where there are more copies than that."""
    once, wide, found = [], [], 0.0
    for f in range(parent, child):
        fan = chains.machine.levels[f].fan
        width = fan.reduction_width if tensor.is_output else fan.multicast_width
        lacked = [r for r in chains.problem.sizes if r not in tensor.ranks]
        copies = prod((chains.along(r, chains.rows[r].parts[:, f].prod(axis=1)) for r in lacked), start=np.ones(1))
        once += [f] if width is None else []
        wide += [] if width is None else [(f, width, copies > width)]
    for chosen in product((True, False), repeat=len(wide)):
        whole = frozenset([*once, *(f for (f, _, _), on in zip(wide, chosen, strict=True) if not on)])
        some = [one for one, on in zip(wide, chosen, strict=True) if on]
        words = chains.words(tensor, depth, first, whole) / prod(width for _, width, _ in some)
        found = np.maximum(found, np.where(prod((over for _, _, over in some), start=np.ones(1)), words, 0.0))
    return np.asarray(found).view(Values)  # of ranks of one, no axis of which counts, too


def fits(chains, orders):
    p, m, found, at = chains.problem, chains.machine, np.ones(1, dtype=bool), 0
    for level, (v, names) in enumerate(zip(m.levels, orders, strict=True)):
        for side, most in () if v.fan.linear else ((0, v.fan.x), (1, v.fan.y)):
            found = found & (prod(chains.along(r, rows.parts[:, level, side]) for r, rows in chains.rows.items()) <= most)
        used = 0.0
        for name in names if level else ():
            tile = {r: chains.along(r, rows.tiles[:, at]) for r, rows in chains.rows.items()}
            used, at = used + v.bits(p.tensor(name)) * v.buffers * p.tensor(name).tile_words(tile), at + 1
        found = found & (used <= (inf if v.capacity_bits is None else v.capacity_bits))
    return found


def least(p, m, mask, keys, monkeypatch):
    """[(primary, secondary)] of the best mapping by each of `keys`, (energy, seconds) → both; None where there are too many mappings."""
    choices = list(product(*(list(permutations(sorted(names))) for names in mask[1:])))
    nodes = [0, *map(len, mask[1:])]
    rows = {r: RankChains(p, m, r, nodes) for r in p.sizes}
    if any(one.many > MOST / 100 for one in rows.values()) or prod(len(one.tiles) for one in rows.values()) * len(choices) > MOST:
        return None
    monkeypatch.setattr(evaluate, "_served", served)
    best = [(inf, inf)] * len(keys)
    for orders in choices:
        orders = ([t.name for t in p.tensors], *orders)
        chains = ArrayChains(p, m, rows, orders)
        counts, legal = evaluate._counted(chains, frozenset(), frozenset()), fits(chains, orders)
        energy = p.macs * m.compute.j_per_mac + sum(a.energy_j for a in counts.accesses())
        energy = energy + sum(sum(counts.hop_bits[v.name].values()) * v.fan.hop_j_per_bit for v in m.levels)
        time = np.max(np.broadcast_arrays(*evaluate._times(p, m, chains, counts).values()), axis=0)
        energy, time, legal = np.broadcast_arrays(energy, time, legal)
        for k, key in enumerate(keys if legal.any() else ()):
            first, second = key(np.asarray(energy[legal]), np.asarray(time[legal]))
            low = float(first.min())
            best[k] = min(best[k], (low, float(second[first <= low * (1 + 1e-12)].min())))
    monkeypatch.undo()
    return best
