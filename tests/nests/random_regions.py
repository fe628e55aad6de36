"""Random mappings of a region, tiles of any size, and walks of their members' loops; all from a random.Random."""

from dataclasses import replace
from math import prod

import pytest

from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.region_loops import RegionLoops, every_nesting
from rackmodel.nests.region_mapping import RegionMapping, RegionNode, price_region
from tests.nests.loop_walker import Walker


def shrink(rng, tile, ranks, perfect=False, atom=None):
    """A smaller tile: each of some ranks cut with a chance of a half. perfect: divisors, of whole atoms."""
    new, atom = dict(tile), atom or {}
    for r in ranks:
        if rng.random() < 0.5:
            leaf = atom.get(r, 1)
            sizes = [n for n in range(min(leaf, tile[r]), tile[r] + 1) if not perfect or (tile[r] % n == 0 and n % leaf == 0)]
            new[r] = rng.choice(sizes or [tile[r]])
    return new


def region_mapping(rng, region, some=True, perfect=False):
    """Any spans, prefixes, tiles, orders and spatial vectors; capacities are not looked at. perfect: divisors alone."""
    atom = {r: n for m in region.machines for r, n in m.compute.atom.items()}
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    spans = rng.choice(every_nesting(len(region.members))) if some else every_nesting(len(region.members))[0]
    loops = RegionLoops(region, spans, again=True)
    free, nodes, cores = [n for n in region.outer if n not in region.resident], [], {}
    for k, (first, last) in enumerate(spans):
        may = sorted(loops.cuts[k] | (region.shared if not k else frozenset()))
        left = [n for n in free if not any(node.tensor == n and node.span in loops.paths[k] for node in nodes)]
        here = [n for n in left if any(first <= i <= last for i in region.outer[n][1]) and rng.random() < 0.4]
        rng.shuffle(here)
        now = cores[loops.paths[k][-2]] if k else sizes
        for name in (*here, ""):
            now = shrink(rng, now, may, perfect, atom)
            nodes.append(RegionNode(k, name, now))
        cores[k] = now
    branches = tuple(branch(rng, region, loops, nodes, i, perfect) for i in range(len(region.members)))
    return RegionMapping(spans, tuple(nodes), branches)


def branch(rng, region, loops, nodes, i, perfect=False):
    """What lies below a member's core."""
    p, m = region.members[i], region.machines[i]
    above = [node for node in nodes if node.span in loops.around(i)]
    on_chip = {*region.held, *region.resident, *(node.tensor for node in above)}
    now = {r: above[-1].tile[r] for r in p.sizes}
    whole = tuple(StorageNode(t.name, dict(p.sizes)) for t in p.tensors)
    levels = [LevelMapping(m.levels[0].name, whole)]
    for number, v in enumerate(m.levels[1:], 1):
        order = [t.name for t in p.tensors if t.name not in on_chip or number > 1]
        order = [n for n in order if n not in v.bypass and (v.must_keep(n) or rng.random() < 0.5)]
        rng.shuffle(order)
        made = []
        for name in order:
            now = shrink(rng, now, p.sizes, perfect, m.compute.atom)
            made.append(StorageNode(name, now))
        x, y = {}, {}
        for vector, limit in ((x, v.fan.x * (3 if v.fan.linear else 1)), (y, v.fan.y)):  # in a line: of up to three waves
            for r in p.sizes:
                whole = x.get(r, 1) * m.compute.atom.get(r, 1) if perfect else 1
                counts = range(1, limit // prod(vector.values()) + 1)
                n = rng.choice([c for c in counts if (now[r] % (c * whole) == 0 if perfect else c <= now[r])] or [1])
                if n > 1:
                    vector[r] = n
        now = {r: -(-n // (x.get(r, 1) * y.get(r, 1))) for r, n in now.items()}
        levels.append(LevelMapping(v.name, tuple(made), x, y))
    return NestMapping(p.name, m.name, tuple(levels))


class RegionWalker(Walker):
    """Walks a region's loops around one member, over all ranks of the region: nodes of others cut, what a member makes again is another
    result each time."""

    def __init__(self, region, mapping, i):
        p, branch = region.members[i], mapping.branches[i]
        loops, sizes = RegionLoops(region, mapping.spans, again=True), region.sizes
        lacked = [r for r in sizes if r not in p.sizes]
        tensors = tuple(replace(t, indices=(*t.indices, *((r,) for r in lacked))) if t.is_output else t for t in p.tensors)
        nodes = [StorageNode(name, sizes) for name in sorted(region.resident) if name in {t.name for t in tensors}]
        for node in mapping.nodes:
            if node.span in loops.around(i):
                names = [node.tensor] if node.tensor else [n for n, k in loops.lives.items() if k == node.span]
                mine = [n for n in names if n in {t.name for t in tensors}]
                nodes += [StorageNode(n, dict(node.tile)) for n in mine or [""]]
        whole = tuple(StorageNode(t.name, dict(sizes)) for t in tensors)
        below = [LevelMapping(v.level, tuple(_widened(n, lacked, sizes) for n in v.nodes), v.x, v.y) for v in branch.levels[1:]]
        first = replace(below[0], nodes=(*nodes, *below[0].nodes))
        self.lacked = lacked
        # a running is one product, however many places of the ranks that it lacks a tile has
        problem = replace(p, sizes=dict(sizes), tensors=tensors)
        atom = {**region.machines[i].compute.atom, **{r: sizes[r] for r in lacked}}
        machine = replace(region.machines[i], compute=replace(region.machines[i].compute, atom=atom))
        levels = (LevelMapping(branch.levels[0].level, whole), first, *below[1:])
        super().__init__(problem, machine, NestMapping(p.name, branch.machine, levels))
        for events in self.moves.values():
            events[:] = [(path, time, {r: (a, a + 1) if r in lacked else (a, b) for r, (a, b) in at.items()}) for path, time, at in events]

    def leaves(self):
        """Products of the busiest unit, those of an instruction's whole tile."""
        return self.cycles() // prod(self.leaf[r] for r in self.lacked)


def _widened(node, lacked, sizes):
    return StorageNode(node.tensor, {**node.tile, **{r: sizes[r] for r in lacked}})


def roomy(one):
    """The same region where every level holds all there is."""
    machines = (replace(m, levels=tuple(replace(v, capacity_bits=None) for v in m.levels)) for m in one.machines)
    return replace(one, machines=tuple(machines))


def check_counted(one, chosen):
    """Words and multiplications of every member, as its loops run."""
    found = price_region(one, chosen)
    for i, (cost, inside) in enumerate(zip(found.costs, found.inside, strict=True)):
        walker = RegionWalker(one, chosen, i)
        total, _ = walker.traffic()
        levels = [v.name for v in one.machines[i].levels]
        for access in cost.accesses:
            if access.tensor not in inside:
                assert (access.read_bits, access.write_bits) == tuple(16 * n for n in total[levels.index(access.level), access.tensor])
        assert cost.times_s["compute"] == pytest.approx(walker.leaves() / one.machines[i].compute.macs_per_s)
