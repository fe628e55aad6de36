"""Every fused mapping of a small region on a memory, a buffer and a row of units, priced by running it: words are counted as they move.

No lemma: nodes above the intermediates may cut any shared rank, those of a branch any rank; every order; capacity is that of the moment.
"""

from functools import cache
from itertools import permutations, product
from math import prod


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def chains(tile, ranks, length):
    """Every list of `length` nested tiles within `tile`, which cut `ranks` only."""
    if not length:
        return [()]
    found = []
    for cut in product(*(divisors(tile[r]) for r in ranks)):
        inner = {**tile, **dict(zip(ranks, cut, strict=True))}
        found += [(inner, *rest) for rest in chains(inner, ranks, length - 1)]
    return found


def places(tiles, sizes):
    """Where each node of a list of nested tiles is visited: [(node, {rank: first index})], in the order of the run."""
    if not tiles:
        return
    ranks = list(sizes)

    def walk(j, outer, origin):
        if j == len(tiles):
            yield None, origin
            return
        for steps in product(*(range(0, outer[r], tiles[j][r]) for r in ranks)):
            here = {r: origin[r] + s for r, s in zip(ranks, steps, strict=True)}
            yield j, here
            yield from walk(j + 1, tiles[j], here)

    yield from walk(0, sizes, dict.fromkeys(ranks, 0))


def words(tensor, tile):
    return prod(tile[r] for r in tensor.ranks)


class Run:
    """Words read and written at the memory (0) and at the buffer (1)."""

    def __init__(self):
        self.read, self.written = [0, 0], [0, 0]

    def fetch(self, n):
        self.read[0] += n
        self.written[1] += n

    def leave(self, n):
        self.read[1] += n
        self.written[0] += n

    def moved(self):
        return tuple(self.read) + tuple(self.written)


def visit(run, tensor, tile, at, seen):
    """A node's tile enters the buffer (and what it sums leaves it again)."""
    n = words(tensor, tile)
    if not tensor.is_output:
        run.fetch(n)
        return
    place = tuple(at[r] for r in tensor.ranks)
    if place in seen:
        run.fetch(n)
    seen.add(place)
    run.leave(n)


def above_run(region, name, tiles):
    """Words moved by a prefix tensor whose node is the last of `tiles`."""
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    run, seen, tensor = Run(), set(), region.outer[name][0]
    for node, at in places(tiles, sizes):
        if node == len(tiles) - 1:
            visit(run, tensor, tiles[-1], at, seen)
    return run.moved()


def carried(region, chain, one):
    """(rows held, further tiles of a row) of running statistics: of the first node that cuts the rank, loops along rows innermost."""
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    now = sizes[one.over]
    rows = 0
    for tile in chain:
        if tile[one.over] < now and not rows:
            rows = prod(tile[r] for r in region.intermediate(one.of).ranks if r != one.over)
    return rows, sizes[one.over] // chain[-1][one.over] - 1


def branch_runs(region, machine, i, core, on_chip, fan):
    """[(words moved, bits of the branch, cycles)] of every branch of member i, run over the whole of its sizes."""
    p = region.members[i]
    mine = [t for t in p.tensors if t.name not in on_chip]
    ranks, found = list(p.sizes), []
    start = {r: core.get(r, n) for r, n in p.sizes.items()}
    for order in permutations(mine):
        for tiles in chains(start, ranks, len(order)):
            last = tiles[-1] if tiles else start
            for side in [None, *(r for r in ranks if fan > 1 and last[r] % fan == 0)]:
                found.append(run_branch(p, machine, start, (order, tiles, last, side), fan))
    return found


def run_branch(p, machine, start, nest, fan):
    order, tiles, last, side = nest
    run, seen = Run(), {t.name: set() for t in p.tensors}
    for node, at in places((start, *tiles), p.sizes):
        if node is None:
            multiply(run, p, last, at, (side, fan), seen)
        elif node:
            visit(run, order[node - 1], tiles[node - 1], at, seen[order[node - 1].name])
    bits = sum(machine.levels[1].bits(t) * words(t, tile) for t, tile in zip(order, tiles, strict=True))
    cycles = p.macs / (fan if side else 1)
    return run.moved(), bits, cycles


def multiply(run, p, tile, at, spread, seen):
    """Every product of a tile: operands are read once for units that share them, sums read and written, the first not read."""
    side, fan = spread
    ranks = list(p.sizes)
    sums = seen.setdefault("sums", set())
    for steps in product(*(range(0, tile[r], fan if r == side else 1) for r in ranks)):
        here = {r: at[r] + s for r, s in zip(ranks, steps, strict=True)}
        units = [{**here, side: here[side] + u} for u in range(fan)] if side else [here]
        for t in p.tensors:
            touched = {tuple(unit[r] for r in t.ranks) for unit in units}
            if t.is_output:
                run.written[1] += len(touched)
                run.read[1] += len(touched & sums)
                sums |= touched
            else:
                run.read[1] += len(touched)


def least(region, machine, fan, key):
    """The least key(joules, seconds) of every fused mapping, None where none fits. Keys add up over the members."""
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    shared, best = sorted(region.shared), None
    outer = [n for n in region.outer if n not in region.resident]
    held = sum(machine.levels[1].bits(region.outer[n][0]) * words(region.outer[n][0], sizes) for n in region.resident)

    @cache
    def branches(i, core, on_chip):
        return branch_runs(region, machine, i, dict(core), on_chip, fan)

    @cache
    def above(name, *cuts):
        return above_run(region, name, [{**sizes, **dict(cut)} for cut in cuts])

    for size in range(len(outer) + 1):
        for chain in chains(sizes, shared, size + 1):
            cuts = [tuple((r, tile[r]) for r in shared) for tile in chain]
            for prefix in permutations(outer, size):
                runs = [above(name, *cuts[: j + 1]) for j, name in enumerate(prefix)]
                found = fused(region, machine, (prefix, chain, runs), held, branches, key)
                if found is not None and (best is None or found < best):
                    best = found
    return best


def fused(region, machine, place, held, branches, key):
    prefix, chain, above = place
    core = tuple(sorted((r, chain[-1][r]) for r in region.shared))
    level = machine.levels[1]
    taken = held + sum(level.bits(region.outer[n][0]) * words(region.outer[n][0], tile) for n, tile in zip(prefix, chain, strict=False))
    total = [0.0, 0.0]
    for one in region.running:
        rows, further = carried(region, chain, one)
        taken += rows * one.bits
        joules, seconds = key(further * one.joules, further * one.seconds)
        total = [total[0] + joules, total[1] + seconds]
    for i, p in enumerate(region.members):
        now = [n for n, (first, last) in region.held.items() if first <= i <= last]
        room = taken + sum(level.bits(region.intermediate(n)) * words(region.intermediate(n), {**p.sizes, **chain[-1]}) for n in now)
        on_chip = frozenset(t.name for t in p.tensors if t.name in prefix or t.name in region.held or t.name in region.resident)
        mine = [run for name, run in zip(prefix, above, strict=True) if region.outer[name][1][0] == i]
        keys = [
            key(*figures(machine, p, [moved, *mine], cycles))
            for moved, bits, cycles in branches(i, core, on_chip)
            if room + bits <= level.capacity_bits
        ]
        if not keys:
            return None
        joules, seconds = min(keys)
        total = [total[0] + joules, total[1] + seconds]
    return tuple(total)


def figures(machine, p, moved, cycles):
    """(joules, seconds) of words [read 0, read 1, written 0, written 1]."""
    width = p.tensors[0].bits
    total = [sum(m[k] for m in moved) * width for k in range(4)]
    joules = p.macs * machine.compute.j_per_mac
    seconds = [cycles / machine.compute.macs_per_s]
    for k, v in enumerate(machine.levels):
        joules += total[k] * v.read_j_per_bit + total[k + 2] * v.write_j_per_bit
        seconds.append((total[k] + total[k + 2]) / v.bandwidth_bits_per_s)
    return joules, max(seconds)
