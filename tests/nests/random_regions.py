"""Random mappings of a region, tiles of any size, and walks of their members' loops; all from a random.Random."""

from math import prod

from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.region_loops import RegionLoops, every_nesting
from rackmodel.nests.region_mapping import RegionMapping, RegionNode


def shrink(rng, tile, ranks, perfect=False):
    """A smaller tile: each of some ranks cut with a chance of a half."""
    new = dict(tile)
    for r in ranks:
        if rng.random() < 0.5:
            new[r] = rng.choice([n for n in range(1, tile[r] + 1) if not perfect or tile[r] % n == 0])
    return new


def region_mapping(rng, region, some=True):
    """Any spans, prefixes, tiles, orders and spatial vectors; capacities are not looked at."""
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    spans = rng.choice(every_nesting(len(region.members))) if some else every_nesting(len(region.members))[0]
    loops = RegionLoops(region, spans, again=True)
    left, nodes, now = [n for n in region.outer if n not in region.resident], [], sizes
    for k, (first, last) in enumerate(spans):
        may = sorted(loops.cuts[k] | (region.shared if not k else frozenset()))
        here = [n for n in left if any(first <= i <= last for i in region.outer[n][1]) and rng.random() < 0.4]
        rng.shuffle(here)
        left = [n for n in left if n not in here]
        for name in (*here, ""):
            now = shrink(rng, now, may)
            nodes.append(RegionNode(k, name, now))
    branches = tuple(branch(rng, region, loops, nodes, i) for i in range(len(region.members)))
    return RegionMapping(spans, tuple(nodes), branches)


def branch(rng, region, loops, nodes, i):
    """What lies below a member's core."""
    p, m = region.members[i], region.machines[i]
    above = [node for node in nodes if node.span <= loops.span_of[i]]
    on_chip = {*region.held, *region.resident, *(node.tensor for node in above)}
    now = {r: above[-1].tile[r] for r in p.sizes}
    whole = tuple(StorageNode(t.name, dict(p.sizes)) for t in p.tensors)
    levels = [LevelMapping(m.levels[0].name, whole)]
    for number, v in enumerate(m.levels[1:], 1):
        order = [t.name for t in p.tensors if number > 1 or t.name not in on_chip]
        rng.shuffle(order)
        made = []
        for name in order:
            now = shrink(rng, now, p.sizes)
            made.append(StorageNode(name, now))
        x, y = {}, {}
        for vector, limit in ((x, v.fan.x), (y, v.fan.y)):
            for r in p.sizes:
                n = rng.choice([c for c in range(1, limit // prod(vector.values()) + 1) if c <= now[r]])
                if n > 1:
                    vector[r] = n
        now = {r: -(-n // (x.get(r, 1) * y.get(r, 1))) for r, n in now.items()}
        levels.append(LevelMapping(v.name, tuple(made), x, y))
    return NestMapping(p.name, m.name, tuple(levels))
