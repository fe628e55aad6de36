"""Random small problems, machines and mappings, all from a random.Random."""

from dataclasses import replace
from math import inf, prod

from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from tests.nests.machines import einsum

SHAPES = [
    (("C", "m n"), [("A", "m k"), ("B", "k n")]),
    (("C", "m n"), [("A", "m k"), ("B", "k n")]),
    (("C", "b m n"), [("A", "b m k"), ("B", "b k n")]),
    (("C", "b m n"), [("A", "b m k"), ("B", "k n")]),
    (("C", "m h"), [("A", "m"), ("B", "h")]),
    (("C", "m"), [("A", "m k"), ("B", "k")]),
    (("O", "f p"), [("I", "c p+r"), ("W", "f c r")]),
]


def problem(rng, biggest=12, limit=700, shapes=SHAPES, choices=(1, 2, 3, 4, 6, 8, 12)):
    output, inputs = rng.choice(shapes)
    ranks = sorted({r for _, i in [output, *inputs] for r in i.replace("+", " ").split()})
    while True:
        sizes = {r: rng.choice([c for c in choices if c <= biggest]) for r in ranks}
        if prod(sizes.values()) <= limit:
            return einsum("random", output, inputs, sizes)


def machine(rng, p, inner=None, options=True):
    """2 or 3 memory levels; fans, unequal ports, mixed precision, tight capacities, hops, widths, bypass."""
    names = [t.name for t in p.tensors]
    count = inner or rng.choice([1, 1, 2])
    levels = []
    for i in range(count + 1):
        fan = NestFan()
        if rng.random() < 0.6:
            fan = NestFan(
                rng.choice([2, 3, 4]),
                rng.choice([1, 2, 4]),
                hop_j_per_bit=rng.choice([0, 0, 0.7]) if options else 0,
                multicast_width=rng.choice([None, None, 1, 2]) if options else None,
                reduction_width=rng.choice([None, None, 1, 2]) if options else None,
            )
        words = sum(prod(p.sizes[r] for r in t.ranks) for t in p.tensors)
        levels.append(
            NestLevel(
                f"L{i}",
                None if i == 0 or rng.random() < 0.15 else 16 * max(4, int(words * rng.uniform(0.1, 0.9))),
                rng.choice([1.0, 3.0, 8.0]),
                rng.choice([1.0, 2.0, 8.0]),
                rng.choice([0.5, 2.0, 8.0, float("inf")]),
                rng.choice([None, None, 1.0]) if options else None,
                {names[-1]: 32} if options and rng.random() < 0.3 else {},
                2 if options and rng.random() < 0.15 else 1,
                fan=fan,
            )
        )
    return NestMachine("random", tuple(levels), NestCompute(rng.choice([0.02, 0.2, 5.0]), 0.5))


MORE_SHAPES = [
    (("C", "m n"), [("A", "m k"), ("B", "k n"), ("D", "m")]),
    (("C", "m n"), [("A", "m k j"), ("B", "j k n")]),
    (("O", "f p"), [("I", "2*p+r"), ("W", "f r")]),
    (("O", "p"), [("I", "2*p"), ("W", "p")]),
    (("C", "m"), [("A", "m")]),
]


def with_more(rng, p, m):
    """The same with what `problem` and `machine` leave out, any of it together: links, waves, atoms, widths of words, a share of the MACs,
    ports and units without an end, and a machine that says no joules at all."""
    silent, levels = rng.random() < 0.1, []
    for v in m.levels:
        fan = replace(v.fan, link_bits_per_s=rng.choice([inf, inf, 0.5, 4.0]))
        if rng.random() < 0.25:
            fan = replace(fan, y=1, linear=True)
        own = {t.name: rng.choice([8, 32]) for t in p.tensors if rng.random() < 0.2}
        v = replace(v, fan=fan, bits_per_tensor=own, bandwidth_bits_per_s=rng.choice([v.bandwidth_bits_per_s, inf]))
        if silent:
            v = replace(v, read_j_per_bit=0.0, write_j_per_bit=0.0, fan=replace(fan, hop_j_per_bit=0.0))
        levels.append(v)
    atom = {r: rng.choice([d for d in range(1, n + 1) if n % d == 0]) for r, n in p.sizes.items() if rng.random() < 0.3}
    compute = replace(m.compute, j_per_mac=0.0 if silent else rng.choice([0.0, m.compute.j_per_mac]), atom=atom)
    tensors = tuple(replace(t, bits=rng.choice([16, 16, 4, 8, 32])) for t in p.tensors)
    return replace(p, tensors=tensors, density=rng.choice([1.0, 0.3])), replace(m, levels=tuple(levels), compute=compute)


def mapping(rng, p, m, perfect=True):
    """A random legal mapping (capacity not looked at): random orders, tiles and spatial vectors."""
    now, levels = dict(p.sizes), []
    nodes = tuple(StorageNode(t.name, dict(now)) for t in p.tensors)
    for i, v in enumerate(m.levels):
        if i:
            order = [t.name for t in p.tensors]
            rng.shuffle(order)
            made = []
            for name in order:
                now = {r: shrink(rng, n, perfect) for r, n in now.items()}
                made.append(StorageNode(name, dict(now)))
            nodes = tuple(made)
        x, y = {}, {}
        for vector, limit in ((x, v.fan.x), (y, v.fan.y)):
            for r in p.sizes:
                left = limit // prod(vector.values())
                n = rng.choice([c for c in range(1, left + 1) if (not perfect and c <= now[r]) or now[r] % c == 0])
                if n > 1:
                    vector[r] = n
                    now[r] = -(-now[r] // n)
        levels.append(LevelMapping(v.name, nodes, x, y))
        nxt = now
        now = dict(nxt)
    return NestMapping(p.name, m.name, tuple(levels))


def shrink(rng, n, perfect):
    if rng.random() < 0.5:
        return n
    return rng.choice([d for d in range(1, n + 1) if not perfect or n % d == 0])


def divisible_mapping(rng, p, m):
    """A random mapping of the divisible-inner space: the first cut of a rank may be ragged, later tiles divide it."""
    now, levels = dict(p.sizes), []
    ragged = set(p.sizes)
    nodes = tuple(StorageNode(t.name, dict(now)) for t in p.tensors)

    def cut(r):
        tile = shrink(rng, now[r], r not in ragged)
        if tile < now[r]:
            ragged.discard(r)
        now[r] = tile

    for i, v in enumerate(m.levels):
        if i:
            order = [t.name for t in p.tensors]
            rng.shuffle(order)
            made = []
            for name in order:
                for r in now:
                    cut(r)
                made.append(StorageNode(name, dict(now)))
            nodes = tuple(made)
        x, y = {}, {}
        for vector, limit in ((x, v.fan.x), (y, v.fan.y)):
            for r in p.sizes:
                left = limit // prod(vector.values())
                if r in ragged:
                    n = rng.choice([c for c in range(1, left + 1) if c <= now[r]])
                else:
                    n = rng.choice([c for c in range(1, left + 1) if now[r] % c == 0])
                if n > 1 and not (r in x and vector is y and r in ragged):
                    vector[r] = n
        for r in p.sizes:
            s = x.get(r, 1) * y.get(r, 1)
            if r in ragged:
                if s > 1:
                    fits = [e for e in range(1, now[r] + 1) if (s - 1) * e < now[r]]
                    if not fits:
                        x.pop(r, None)
                        y.pop(r, None)
                        continue
                    now[r] = rng.choice(fits)
                    ragged.discard(r)
            elif now[r] % s == 0:
                now[r] //= s
            else:
                y.pop(r)
                now[r] //= x.get(r, 1)
        levels.append(LevelMapping(v.name, nodes, x, y))
    return NestMapping(p.name, m.name, tuple(levels))
