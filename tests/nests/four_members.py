"""Random regions of four small einsums, of every way in which one may feed another; all from a random.Random."""

from math import prod

from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.region import Region, RunningRows
from tests.nests.machines import einsum, level

FEEDS = (  # intermediate → first and last member that it is held for, members that read it
    {"A": ((0, 1), (1,)), "B": ((1, 2), (2,)), "C": ((2, 3), (3,))},  # one after another
    {"A": ((0, 2), (2,)), "B": ((1, 1), ()), "C": ((2, 3), (3,))},  # two, of which one is used up in place, then another
    {"A": ((0, 2), (1, 2)), "B": ((1, 3), (3,)), "C": ((2, 3), (3,))},  # two that read the first
    {"A": ((0, 1), (1,)), "B": ((1, 3), (3,)), "C": ((2, 3), (3,))},  # two into the last
    {"A": ((0, 3), (3,)), "B": ((1, 2), (2,)), "C": ((2, 3), (3,))},
)


def two_pairs(f, g, room):
    """Two pairs, each with a tile between that the whole machine does not hold; what goes from pair to pair is one word."""
    s = {"m": 1, "f": f, "g": g}
    parts = [
        einsum("one", ("A", "m f"), [("X", "m")], s),
        einsum("two", ("B", "m"), [("A", "m f")], s),
        einsum("three", ("C", "m g"), [("B", "m"), ("X", "m")], s),
        einsum("four", ("O", "m"), [("C", "m g")], s),
    ]
    return Region(tuple(parts), (_machine(room, 2, 1e9, 1e-12),) * 4, {"A": (0, 1), "B": (1, 2), "C": (2, 3)})


def _machine(words, fan, rate, joules):
    buffer = level("GLB", 16 * words, 1e12 * joules, 1e10, NestFan(fan))
    return NestMachine("m", (level("DRAM", None, 10, 1e9), buffer), NestCompute(rate, 5e-13))


def region(rng, sizes=(1, 2), rooms=(0.3, 0.5, 1.0)):
    """Any of them: ranks of the intermediates, operands beside them, room, and rows of a softmax are drawn."""
    feeds, s = rng.choice(FEEDS), {r: rng.choice(sizes) for r in "mfg"}
    ranks = {name: sorted(rng.sample("mfg", rng.choice([1, 2, 2]))) for name in feeds}
    for name, (held, _) in feeds.items():
        if held[0] == held[1]:  # as large as what it is multiplied with
            ranks[name] = ranks[next(other for other, ((a, b), _) in feeds.items() if a < held[0] <= b and other != name)]
    parts, shared = [], rng.choice(["X", None])
    for i in range(4):
        made = next((name for name, (held, _) in feeds.items() if held[0] == i), "O")
        reads = [(name, " ".join(ranks[name])) for name, (_, readers) in feeds.items() if i in readers]
        out = ranks[made] if made in ranks else sorted(rng.sample("mfg", 1))
        has = sorted({*out, *(r for _, each in reads for r in each.split())})
        more = [("X", "m")] if shared and "m" in has and rng.random() < 0.6 else []
        if not reads or (rng.random() < 0.3 and not any("W" in t.name for p in parts for t in p.tensors)):
            more = more or [(f"W{i}", " ".join(sorted(rng.sample(has, rng.choice([1, len(has)])))))]
        parts.append(einsum(f"e{i}", (made, " ".join(out)), [*reads, *more], s))
    held = {name: at for name, (at, _) in feeds.items()}
    words = sum(prod(p.sizes[r] for r in t.ranks) for p in parts for t in p.tensors)
    m = _machine(max(3, int(words * rng.choice(rooms))), 2, rng.choice([1e8, 1e9]), rng.choice([1e-12, 3e-12]))
    rows = tuple(_rows(rng, parts, held))
    between = {name: (rng.choice([0.0, 2e-12]), 1e-9) for name in held if rng.random() < 0.3}
    return Region(tuple(parts), (m,) * 4, held, running=rows, between=between)


def _rows(rng, parts, held):
    """Of at most one intermediate that a later member alone sums over."""
    for name, (made, used) in held.items():
        readers = [p for p in parts[made + 1 :] if any(t.name == name for t in p.tensors)]
        summed = [r for r in parts[made].output.ranks if len(readers) == 1 and r not in readers[0].output.ranks]
        if made < used and len(summed) == 1 and len(parts[made].output.ranks) > 1 and rng.random() < 0.5:
            yield RunningRows(name, summed[0], rng.choice([4, 16]), rng.choice([0.0, 1e-11]), 1e-9, (3e-12, 1e-10))
            return
