"""Brute force over every perfect-factor mapping of a small problem, with its own cost formulas and no lemma.

All orders, all tile chains (one tile per rank and node), all spatial vectors; vectorised over the chains of the ranks.
"""

from functools import cache
from itertools import pairwise, permutations, product
from math import inf, prod

import numpy as np

from rackmodel.nests.problem import index_term


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def side(sizes, limit):
    """All vectors (tuples) of divisors with product <= limit."""
    found = [()]
    for n in sizes:
        found = [(*v, d) for v in found for d in divisors(n) if prod(v) * d <= limit]
    return found


def spatial(sizes, fan):
    if fan.linear:  # parts are dealt in waves
        return sorted(side(sizes, prod(sizes)))
    pairs = {tuple(a * b for a, b in zip(x, y, strict=False)) for x in side(sizes, fan.x) for y in side(sizes, fan.y)}
    return sorted(s for s in pairs if all(n % d == 0 for n, d in zip(sizes, s, strict=False)))


@cache
def chains(size, nodes_per_level, parts, leaf):
    """All tile chains of one rank: tiles at the nodes of level 1, level 2, ...; parts[l] below level l."""
    found = [((), size)]
    for level, nodes in enumerate(nodes_per_level):
        found = [(c, n // parts[level]) for c, n in found if n % parts[level] == 0]
        for _ in range(nodes):
            found = [((*c, d), d) for c, n in found for d in divisors(n)]
    last = parts[len(nodes_per_level)] * leaf
    rows = [c for c, n in found if n % last == 0]
    return np.array(rows, dtype=float).reshape(len(rows), sum(nodes_per_level))


class Brute:
    def __init__(self, problem, machine, kept=None):
        self.p, self.m = problem, machine
        self.ranks = list(problem.sizes)
        self.sizes = [problem.sizes[r] for r in self.ranks]
        self.leaf = [machine.compute.atom.get(r, 1) for r in self.ranks]
        self.kept = kept or [[t.name for t in problem.tensors]] * len(machine.levels)
        self.count = 0

    def all(self):
        """Yields (energy, latency) arrays for each order and spatial choice."""
        inner = range(1, len(self.m.levels))
        per_level = tuple(len(self.kept[i]) for i in inner)
        for s in product(*(spatial(self.sizes, v.fan) for v in self.m.levels)):
            tiles = [chains(n, per_level, tuple(v[r] for v in s), self.leaf[r]) for r, n in enumerate(self.sizes)]
            if any(len(t) == 0 for t in tiles):
                continue
            for order in product(*(permutations(self.kept[i]) for i in inner)):
                yield self.costs(s, order, tiles)

    def costs(self, s, order, tiles):
        dims = len(self.ranks)

        def at(node):
            return [t[:, node].reshape([-1 if i == r else 1 for i in range(dims)]) for r, t in enumerate(tiles)]

        node, place, legal = 0, {}, True
        for i, names in enumerate(order, start=1):
            v = self.m.levels[i]
            used = 0.0
            for name in names:
                place[i, name] = at(node)
                used = used + v.buffers * v.bits(self.p.tensor(name)) * self.extent(self.p.tensor(name), at(node))
                node += 1
            if v.capacity_bits is not None:
                legal = legal & (used <= v.capacity_bits)
        energy, ports, links = self.traffic(s, place)
        time = self.p.macs * self.p.density / (self.m.compute.macs_per_s * self.together(s, len(s)))
        for i, v in enumerate(self.m.levels):
            instances = self.together(s, i)
            reads, writes = ports[i]
            if v.fan.link_bits_per_s < inf:
                time = np.maximum(time, links[i] / v.fan.link_bits_per_s / self.together(s, i + 1))
            if v.write_bandwidth_bits_per_s is None:
                time = np.maximum(time, (reads + writes) / v.bandwidth_bits_per_s / instances)
            else:
                time = np.maximum(time, np.maximum(reads / v.bandwidth_bits_per_s, writes / v.write_bandwidth_bits_per_s) / instances)
        shape = [len(t) for t in tiles]
        self.count += prod(shape)
        energy = np.where(legal, np.broadcast_to(energy, shape), np.inf)
        return energy, np.where(legal, np.broadcast_to(time, shape), np.inf)

    def together(self, s, level):
        """Parts above a level over the waves that they take: by how much a total is less for its fullest instance."""
        fans = [v.fan for v in self.m.levels]
        return prod((prod(x) / (-(-prod(x) // fan.size) if fan.linear else 1) for x, fan in zip(s[:level], fans, strict=False)), start=1.0)

    def extent(self, t, tile):
        total = 1.0
        for index in t.indices:
            total = total * (1 + sum(c * (tile[self.ranks.index(r)] - 1) for c, r in map(index_term, index)))
        return total

    def traffic(self, s, place):
        energy, links = self.p.macs * self.p.density * self.m.compute.j_per_mac, [0.0] * len(self.m.levels)
        ports = [[0.0, 0.0] for _ in self.m.levels]
        depth = len(self.m.levels)

        def add(level, kind, bits):
            nonlocal energy
            v = self.m.levels[level]
            ports[level][kind] = ports[level][kind] + bits
            energy = energy + bits * (v.write_j_per_bit if kind else v.read_j_per_bit)

        for t in self.p.tensors:
            held = [0] + [i for i in range(1, depth) if (i, t.name) in place] + [depth]
            lacks = [r for r, n in enumerate(self.ranks) if n not in t.ranks]
            copies = [prod(v[r] for r in lacks) for v in s]
            whole = prod(n for n, r in zip(self.sizes, self.ranks, strict=False) if r in t.ranks)
            for p, c in pairwise(held):
                tile = place[c, t.name] if c < depth else [np.array(float(x)) for x in self.leaf]
                words = self.extent(t, tile) * prod((n / x for n, x in zip(self.sizes, tile, strict=False)), start=1.0)
                width = [
                    (self.m.levels[f].fan.reduction_width if t.is_output else self.m.levels[f].fan.multicast_width) or 10**9
                    for f in range(depth)
                ]
                served = prod(min(copies[f], width[f]) for f in range(p, c))
                bp = self.m.levels[p].bits(t)
                bc = self.m.levels[c].bits(t) if c < depth else 0

                def sig(level, whole=whole, copies=copies):
                    return whole * prod(copies[:level])

                up = words / served
                for f in range(p, c):
                    crossing = words / prod(min(copies[g], width[g]) for g in range(f + 1, c))
                    moved = 2 * crossing - sig(f + 1) if t.is_output else crossing
                    energy = energy + moved * bp * self.m.levels[f].fan.hop_j_per_bit
                    links[f] = links[f] + moved * bp
                if t.is_output:
                    add(p, 1, up * bp)
                    add(p, 0, (up - sig(p)) * bp)
                    if c < depth:
                        add(c, 0, words * bc)
                        add(c, 1, (words - sig(c)) * bc)
                else:
                    add(p, 0, up * bp)
                    if c < depth:
                        add(c, 1, words * bc)
        return energy, ports, links


def optimum(arrays, objective):
    """(primary, tie) over all arrays; primaries equal within 1e-10 count as equal."""
    best = None
    for e, t in arrays:
        if not np.isfinite(e).any():
            continue
        keys = {"energy": (e, t), "latency": (t, e), "edp": (e * t, e), "sum": (0.3 * e + 2.0 * t, e)}
        first, second = keys[objective]
        least = first[np.isfinite(e)].min()
        if best is not None and least > best[0] * (1 + 1e-10):
            continue
        tie = second[(first <= least * (1 + 1e-10)) & np.isfinite(e)].min()
        best = (least, tie) if best is None or least < best[0] * (1 - 1e-10) else (min(best[0], least), min(best[1], tie))
    return best


def estimate(problem, machine):
    """Rough number of mappings, to skip what is too large."""
    from math import comb

    from rackmodel.nests.searchers.mapspace.divisor_axis import factorize

    nodes = 3 * (len(machine.levels) - 1)
    splits = prod(comb(e + nodes, nodes) for n in problem.sizes.values() for _, e in factorize(n))
    orders = 6 ** (len(machine.levels) - 1)
    return splits * orders * prod(len(spatial(list(problem.sizes.values()), v.fan)) for v in machine.levels) / 2
