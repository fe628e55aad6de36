"""Brute force with tensors at home: a memory, a fan, cores; every tile chain of any size, counted on intervals one by one.

Own formulas, no lemma. Per rank and chain the intervals are cut literally; the joint cost is an outer product.
"""

from itertools import permutations, product
from math import ceil, prod

import numpy as np


def cut(interval, tile):
    lo, hi = interval
    return [(a, min(hi, a + tile)) for a in range(lo, hi, tile)]


def chains(size, parts, nodes, perfect, idle=False):
    """[(tiles, tiles of all cores per node, with the fan counted once, extent the first core works through)]. idle: more parts are laid out
    than work, so that there is one group."""
    found = []

    def extend(tiles):
        if len(tiles) == nodes:
            found.append(tiles)
            return
        for t in range(1, tiles[-1] + 1):
            if not perfect or tiles[-1] % t == 0:
                extend((*tiles, t))

    for t in range(1, size + 1):
        whole = size % (parts * t) == 0 if perfect else (parts - 1) * t < size
        if whole and (not idle or parts * t >= size):
            extend((t,))
    rows = []
    for tiles in found:
        groups = [cut(g, tiles[0]) for g in cut((0, size), parts * tiles[0])]
        every, first, counts = [p for g in groups for p in g], [g[0] for g in groups], []
        cover = sum(hi - lo for lo, hi in first)
        for t in tiles:
            every, first = ([q for p in ps for q in cut(p, t)] for ps in (every, first))
            counts.append((len(every), len(first)))
        rows.append((tiles, [c[0] for c in counts], [c[1] for c in counts], cover))
    return rows


def vectors(sizes, limit):
    found = [()]
    for n in sizes:
        found = [(*v, d) for v in found for d in range(1, n + 1) if prod(v) * d <= limit]
    return found


class BruteHome:
    def __init__(self, problem, machine, home, perfect):
        self.p, self.m, self.home, self.perfect = problem, machine, home, perfect
        self.sizes = list(problem.sizes.values())
        self.ranks = list(problem.sizes)

    def all(self):
        fan = self.m.levels[0].fan
        pairs = product(vectors(self.sizes, fan.x), vectors(self.sizes, fan.y))
        laid = sorted({tuple(a * b for a, b in zip(x, y, strict=True)) for x, y in pairs})
        options = ([[(k, False), *self.fewer(k, n)] for k, n in zip(s, self.sizes, strict=True)] for s in laid)
        for some in sorted({some for each in options for some in product(*each)}):
            lists = [chains(n, k, len(self.p.tensors), self.perfect, idle) for n, (k, idle) in zip(self.sizes, some, strict=True)]
            if all(lists):
                for order in permutations(self.p.tensors):
                    yield self.costs([k for k, _ in some], order, lists)

    def fewer(self, laid, size):
        """Fewer parts at work than are laid out, of a rank that is one group."""
        return [] if self.perfect else [(k, True) for k in range(2, min(laid - 1, size) + 1)]

    def costs(self, s, order, lists):
        dims, outer, inner = len(self.ranks), *self.m.levels

        def along(r, values):
            return np.array(values, dtype=float).reshape([-1 if a == r else 1 for a in range(dims)])

        cycles = prod(along(r, [c[3] for c in rows]) for r, rows in enumerate(lists))
        macs = prod(self.sizes)
        energy, used = macs * self.m.compute.j_per_mac, 0.0
        load = dict.fromkeys(("edge r", "edge w", "core r", "core w", "link"), 0.0)
        joules = {
            "edge r": outer.read_j_per_bit,
            "edge w": outer.write_j_per_bit,
            "core r": inner.read_j_per_bit,
            "core w": inner.write_j_per_bit,
            "link": outer.fan.hop_j_per_bit,
        }

        def charge(port, bits, everywhere, fullest):
            nonlocal energy
            energy = energy + bits * everywhere * joules[port]
            load[port] = load[port] + bits * fullest

        for j, t in enumerate(order):
            own = [r for r, name in enumerate(self.ranks) if name in t.ranks]
            lacks = [r for r in range(dims) if r not in own]
            q = prod(s[r] for r in lacks)
            size = prod(self.sizes[r] for r in own)
            tile = prod((along(r, [c[0][j] for c in lists[r]]) for r in own), start=1.0)
            mine = prod((along(r, [c[3] for c in lists[r]]) for r in own), start=1.0)
            every = size * prod((along(r, [c[1][j] for c in lists[r]]) for r in lacks), start=1.0)
            rounds = prod((along(r, [c[2][j] for c in lists[r]]) for r in lacks), start=1.0)
            once, first = size * rounds, mine * rounds
            b0, b1 = outer.bits(t), inner.bits(t)
            at_home = t.name in self.home
            words = inner.buffers * tile
            used = used + b1 * (np.minimum(mine, np.ceil(mine / q) + words) if at_home else words)
            if t.is_output:  # operands and results of the compute
                charge("core w", b1, macs, cycles)
                charge("core r", b1, macs - size * q, cycles - mine)
            else:
                charge("core r", b1, macs, cycles)
            if at_home and q > 1:
                charge("link", b1, every * (q - 1) / q, first * (q - 1) / q)
                if t.is_output:
                    charge("core r", b1, every, first)
                    charge("core r", b1, once - size, (first - mine) / q)
                    charge("core w", b1, once, first / q)
                else:
                    charge("core r", b1, once, first / q)
                    charge("core w", b1, every * (q - 1) / q, first * (q - 1) / q)
            elif not at_home and t.is_output:
                charge("edge w", b0, once, once)
                charge("edge r", b0, once - size, once - size)
                charge("core r", b1, every, first)
                charge("core w", b1, every - size * q, first - mine)
                charge("link", b0, 2 * every - size * q, 2 * first - mine)
            elif not at_home:
                charge("edge r", b0, once, once)
                charge("core w", b1, every, first)
                charge("link", b0, every, first)
        time = cycles / self.m.compute.macs_per_s
        for name, v in (("edge", outer), ("core", inner)):
            if v.write_bandwidth_bits_per_s is None:
                time = np.maximum(time, (load[f"{name} r"] + load[f"{name} w"]) / v.bandwidth_bits_per_s)
            else:
                time = np.maximum(time, load[f"{name} r"] / v.bandwidth_bits_per_s)
                time = np.maximum(time, load[f"{name} w"] / v.write_bandwidth_bits_per_s)
        time = np.maximum(time, load["link"] / outer.fan.link_bits_per_s)
        shape = [len(rows) for rows in lists]
        legal = np.broadcast_to(used <= (inner.capacity_bits or np.inf), shape)
        return np.where(legal, np.broadcast_to(energy, shape), np.inf), np.where(legal, np.broadcast_to(time, shape), np.inf)


def estimate(problem, machine, perfect):
    """Rough number of mappings."""
    sizes, nodes = list(problem.sizes.values()), len(problem.tensors)
    each = [len(chains(n, 1, nodes, perfect)) for n in sizes]
    fan = machine.levels[0].fan
    return prod(each) * len(vectors(sizes, fan.x)) * len(vectors(sizes, fan.y)) * ceil(prod(range(1, nodes + 1)) / 4)
