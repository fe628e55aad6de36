"""Ceil factors, exact, for a memory above one buffer above an array: tiles of any size, ragged at the edges.

Order (T1, T2, T3) of the buffer's nodes. A class of ranks (those that index the same tensors) is cut once to a tile a
when some later node lacks it (it is priced there), else straight to what the array takes, s u (s parts of leaf u).
Per rank the chain D → a → s u is three numbers: tile a, tiles n = ceil(D / a), leaves L = floor(D/a) ceil(a / su) +
ceil((D mod a) / su). Only Pareto triples matter: for every n, tiles from ceil(D/n) to the next multiple of su.
Memory words of T = |T| prod n, buffer words to the array = |T| prod L, over classes T lacks; cycles = prod L.
Spatial vectors are taken best bound first: F(E, T) with L = ceil(D / su) and the least memory traffic of any vector.
Source: reference loop_nests, sec. 6.
"""

from itertools import permutations
from math import prod
from time import process_time

import numpy as np

from rackmodel.nests.ceil_lists import Choice, combine, rank_tiles
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.objective import TIE, better
from rackmodel.nests.spatial import every_vector

VECTORS = 400_000  # spatial vectors beyond which only parts ceil(D / n) are tried


def applies(problem, machine, masks, constraints) -> bool:
    """True where this exact search covers the question."""
    if len(machine.levels) != 2 or len(masks) != 1 or len(problem.tensors) > 3 or constraints.tiles:
        return False
    outer, inner = machine.levels[0].fan, machine.levels[1].fan
    plain = not inner.linear and not inner.hop_j_per_bit and inner.multicast_width is inner.reduction_width is None
    return (
        plain
        and outer.size == 1
        and all(len(k) == len(problem.tensors) for k in masks[0])
        and not outer.hop_j_per_bit
        and not any(t.affine_ranks for t in problem.tensors)
    )


class TwoLevel:
    """The search. `best`: (key, mapping, cost)."""

    def __init__(self, problem, machine, constraints, objective):
        self.p, self.m, self.constraints, self.objective = problem, machine, constraints, objective
        self.best: tuple | None = None
        self.ranks = list(problem.sizes)
        self.leaf = [min(machine.compute.atom.get(r, 1), 10**9) for r in self.ranks]
        signature = {r: tuple(r in t.ranks for t in problem.tensors) for r in self.ranks}
        self.classes = list(dict.fromkeys(signature.values()))
        self.members = [[i for i, r in enumerate(self.ranks) if signature[r] == c] for c in self.classes]
        self.words = [float(prod(problem.sizes[r] for r in t.ranks)) for t in problem.tensors]
        self.orders = [
            o
            for o in permutations(range(len(problem.tensors)))
            if constraints.allows_order(machine.levels[1].name, tuple(problem.tensors[i].name for i in o))
        ]
        self.vectors, self.x, self.y, self.complete = self._vectors()
        self.cells = self.tried = 0
        self.cache: dict = {}

    def _vectors(self):
        fan, limits = self.m.levels[1].fan, self.constraints.spatial
        name = self.m.levels[1].name
        sizes = [-(-self.p.sizes[r] // u) for r, u in zip(self.ranks, self.leaf, strict=True)]
        allowed = [[r in limits.get((name, d), self.ranks) for r in self.ranks] for d in "XY"]
        return every_vector(fan, sizes, allowed, VECTORS)

    # -- prices
    def _per_bit(self):
        """Per tensor: joules and bits at each port for a word memory → buffer, and a word buffer → array."""
        memory, buffer = self.m.levels
        rows = []
        for t in self.p.tensors:
            b0, b1 = memory.bits(t), buffer.bits(t)
            rw0, rw1 = (memory.read_j_per_bit, memory.write_j_per_bit), (buffer.read_j_per_bit, buffer.write_j_per_bit)
            if t.is_output:
                rows.append((b0 * sum(rw0) + b1 * sum(rw1), b1 * sum(rw1), [b0, b0, b1, b1], [b1, b1]))
            else:
                rows.append((b0 * rw0[0] + b1 * rw1[1], b1 * rw1[0], [b0, 0, 0, b1], [b1, 0]))
        return rows

    def _fresh(self):
        """Output's fresh words: joules saved, and bits saved at (memory read, buffer write, buffer read)."""
        memory, buffer = self.m.levels
        i = next(k for k, t in enumerate(self.p.tensors) if t.is_output)
        w, b0, b1 = self.words[i], memory.bits(self.p.tensors[i]), buffer.bits(self.p.tensors[i])
        saved = w * (b0 * memory.read_j_per_bit + b1 * buffer.write_j_per_bit + b1 * buffer.read_j_per_bit)
        return saved, w * b0, w * b1, w * b1

    def cost(self, memory_words, array_words, leaves):
        """(energy, latency) of words per tensor (arrays) and the product of leaf counts."""
        energy = self.p.macs * self.p.density * self.m.compute.j_per_mac
        ports = [0.0, 0.0, 0.0, 0.0]  # memory read, write, buffer read, write
        for (up, down, bits_up, bits_down), a, b in zip(self._per_bit(), memory_words, array_words, strict=True):
            energy = energy + up * a + down * b
            ports = [p + k * a for p, k in zip(ports, bits_up, strict=True)]
            ports[2] = ports[2] + bits_down[0] * b
            ports[3] = ports[3] + bits_down[1] * b
        saved, memory_read, buffer_write, buffer_read = self._fresh()
        ports[0], ports[3], ports[2] = ports[0] - memory_read, ports[3] - buffer_write, ports[2] - buffer_read
        time = leaves * prod(self.leaf) * self.p.density / self.m.compute.macs_per_s
        for v, reads, writes in ((self.m.levels[0], *ports[:2]), (self.m.levels[1], *ports[2:])):
            if v.write_bandwidth_bits_per_s is None:
                time = np.maximum(time, (reads + writes) / v.bandwidth_bits_per_s)
            else:
                time = np.maximum(time, np.maximum(reads / v.bandwidth_bits_per_s, writes / v.write_bandwidth_bits_per_s))
        return energy - saved, time

    # -- one order under one vector
    def kind(self, c: tuple[bool, ...], order) -> str:
        """Where class c is cut: "tile" (priced at a later node) or "leaf" (straight to the array's parts)."""
        at = [j for j, t in enumerate(order) if c[t]]
        priced = any(not c[t] for t in order[at[0] + 1 :])
        return "tile" if priced else "leaf"

    def choice(self, k: int, vector, kind: str) -> Choice:
        """Tiles of class k for the spatial vector."""
        group = tuple(int(vector[i]) * self.leaf[i] for i in self.members[k])
        key = (k, group, kind)
        if key not in self.cache:
            sizes = [self.p.sizes[self.ranks[i]] for i in self.members[k]]
            if kind == "leaf":
                tiles = [min(n, g) for n, g in zip(sizes, group, strict=True)]
                leaves = float(prod(-(-n // g) for n, g in zip(sizes, group, strict=True)))
                self.cache[key] = Choice(
                    np.array([float(prod(tiles))]), np.array([leaves]), np.array([leaves]), np.array([tiles], dtype=float)
                )
            else:
                parts = []
                for i, n, g in zip(self.members[k], sizes, group, strict=True):
                    least = min(n, g - self.leaf[i] + 1)
                    one = (i, g)
                    if one not in self.cache:
                        self.cache[one] = rank_tiles(n, g, max(1, least))
                    parts.append(self.cache[one])
                self.cache[key] = combine(parts, self._most(k))
        return self.cache[key]

    def _most(self, k: int) -> float:
        """Largest tile of class k that the capacity could take."""
        v = self.m.levels[1]
        if v.capacity_bits is None:
            return np.inf
        bits = [v.buffers * v.bits(t) for t, on in zip(self.p.tensors, self.classes[k], strict=True) if on]
        return v.capacity_bits / min(bits)

    def joint(self, vector, order):
        """(choices, footprint bits, memory words, array words, leaves) with one axis per class."""
        dims, n = len(self.classes), len(order)
        choices = [self.choice(k, vector, self.kind(c, order)) for k, c in enumerate(self.classes)]
        least = [self.choice(k, vector, "leaf") for k in range(dims)]
        used: np.ndarray | float = 0.0
        memory, array = [np.zeros(1)] * n, [np.zeros(1)] * n
        for j, t in enumerate(order):
            v = self.m.levels[1]
            words = np.full((1,) * dims, float(v.buffers * v.bits(self.p.tensors[t])))
            memory[t] = array[t] = np.full((1,) * dims, self.words[t])
            for k, c in enumerate(self.classes):
                shape = [-1 if i == k else 1 for i in range(dims)]
                if c[t]:
                    recut = j and any(c[o] for o in order[:j]) and not c[order[j - 1]]
                    words = words * (least[k] if recut else choices[k]).tile.reshape(shape)
                else:
                    if any(c[o] for o in order[:j]):
                        memory[t] = memory[t] * choices[k].count.reshape(shape)
                    array[t] = array[t] * choices[k].leaves.reshape(shape)
            used = used + words
        leaves = np.full((1,) * dims, 1.0)
        for k in range(dims):
            leaves = leaves * choices[k].leaves.reshape([-1 if i == k else 1 for i in range(dims)])
        return choices, used, memory, array, leaves

    def best_of(self, vector, order):
        """(key, choices, cell) of the least key for one vector and order, None if nothing fits."""
        choices, used, memory, array, leaves = self.joint(vector, order)
        shape = tuple(len(c.tile) for c in choices)
        if 0 in shape:
            return None
        capacity = self.m.levels[1].capacity_bits
        fits = np.broadcast_to(used <= (np.inf if capacity is None else capacity), shape)
        self.cells += prod(shape)
        if not fits.any():
            return None
        energy, time = self.cost(memory, array, leaves)
        first, second = self.objective.key(energy, time)
        first = np.where(fits, first, np.inf)
        low = float(first.min())
        if self.best is not None and low > self.best[0][0] * (1 + TIE):
            return None
        tied = np.where(first <= low + TIE * abs(low), np.broadcast_to(second, shape), np.inf)
        cell = np.unravel_index(int(tied.argmin()), shape)
        return (float(first[cell]), float(tied[cell])), choices, cell

    # -- the search
    def bounds(self):
        """Lower bounds (energy [S], latency [S]) of every spatial vector."""
        ones = np.ones(len(self.ranks), dtype=int)
        fewest: list[float] = [np.inf, np.inf]
        for order in self.orders:
            choices, used, memory, _, _ = self.joint(ones, order)
            shape = tuple(len(c.tile) for c in choices)
            capacity = self.m.levels[1].capacity_bits
            fits = np.broadcast_to(used <= (np.inf if capacity is None else capacity), shape)
            energy, time = self.cost(memory, [np.zeros(1)] * len(memory), np.zeros(1))
            for i, value in enumerate((energy, time)):
                fewest[i] = min(fewest[i], float(np.where(fits, value, np.inf).min()))
        groups = self.vectors * np.array(self.leaf)
        sizes = np.array([self.p.sizes[r] for r in self.ranks])
        leaves = -(-sizes // groups)
        array = [
            self.words[t] * np.prod(leaves[:, [r not in x.ranks for r in self.ranks]], axis=1, dtype=float)
            for t, x in enumerate(self.p.tensors)
        ]
        energy, time = self.cost(self.words, array, np.prod(leaves, axis=1, dtype=float))
        base, _ = self.cost([0.0] * len(array), array, 0.0)
        none, _ = self.cost([0.0] * len(array), [0.0] * len(array), 0.0)
        self.fewest = fewest[0]
        return np.maximum(energy, base - none + fewest[0]), np.maximum(time, fewest[1])

    def run(self) -> None:
        energy, time = self.bounds()
        first, second = self.objective.key(energy, time)
        for i in np.lexsort((np.arange(len(first)), second, first)):
            if not np.isfinite(first[i]):
                break
            if self.best is not None:
                if first[i] > self.best[0][0] * (1 + TIE):
                    break
                if not better((first[i], second[i]), self.best[0]):
                    continue
            self.tried += 1
            for order in self.orders:
                found = self.best_of(self.vectors[i], order)
                if found and (self.best is None or better(found[0], self.best[0])):
                    mapping = self.mapping(i, order, found[1], found[2])
                    cost = evaluate(self.p, self.m, mapping)
                    self.best = (self.objective.key(cost.energy_j, cost.latency_s), mapping, cost)

    def mapping(self, i: int, order, choices, cell) -> NestMapping:
        now = dict(self.p.sizes)
        nodes = []
        for j, t in enumerate(order):
            for k, c in enumerate(self.classes):
                if not c[t]:
                    continue
                first = not any(c[o] for o in order[:j])
                if first:
                    for r, tile in zip(self.members[k], choices[k].picks[cell[k]], strict=True):
                        now[self.ranks[r]] = int(tile)
                elif not c[order[j - 1]]:
                    for r in self.members[k]:
                        now[self.ranks[r]] = min(now[self.ranks[r]], int(self.vectors[i][r]) * self.leaf[r])
            nodes.append(StorageNode(self.p.tensors[t].name, dict(now)))
        x, y = ({r: int(n) for r, n in zip(self.ranks, v[i], strict=True) if n > 1} for v in (self.x, self.y))
        whole = tuple(StorageNode(t.name, dict(self.p.sizes)) for t in self.p.tensors)
        outer, inner = self.m.levels
        return NestMapping(self.p.name, self.m.name, (LevelMapping(outer.name, whole), LevelMapping(inner.name, tuple(nodes), x, y)))


def solve_two(problem, machine, constraints, objective, began):
    """(best, certificate parts) of the exact two-level search; best None if nothing fits."""
    search = TwoLevel(problem, machine, constraints, objective)
    search.run()
    pruned = {"bound of the spatial vector": len(search.vectors) - search.tried}
    note = "every spatial vector" if search.complete else "spatial parts ceil(D/n)"
    return search.best, search.cells, pruned, (note, f"{process_time() - began:.3g} CPU s")
