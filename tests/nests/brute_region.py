"""Every fused mapping of a small region on a memory, a buffer and a row of units, priced by running it: words are counted as they move.

No lemma and no rule: loops around all members and around any within them cut any rank; whether what a member reads is there, complete, is
seen by running (Members). Nodes in any order, those of a branch too; capacity is that of the moment.
"""

from functools import cache
from itertools import combinations, permutations, product
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


def spans_within(first, last):
    """Every set of runs of two and more neighbouring members, all of them among these, no two that overlap without one holding the other;
    each after those that hold it."""
    runs = [(a, b) for a in range(first, last) for b in range(a + 1, last + 1) if (a, b) != (first, last)]
    found = []
    for size in range(len(runs) + 1):
        for some in combinations(runs, size):
            if not any(a < c <= b < d for a, b in some for c, d in some):
                found.append(((first, last), *sorted(some, key=lambda run: (run[0] - run[1], run))))
    return found


def holds(outer, inner):
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def around(spans, run):
    """The numbers of the spans that hold a run of members, the widest first."""
    return [k for k, one in enumerate(spans) if holds(one, run)]


def visits(chain, sizes, over=None):
    """Origins of the tiles of the last node of a chain, as they are run; loops along `over` innermost above every node."""
    ranks = sorted(sizes, key=lambda r: r == over)

    def walk(j, outer, origin):
        if j == len(chain):
            yield origin
            return
        for steps in product(*(range(0, outer[r], chain[j][r]) for r in ranks)):
            yield from walk(j + 1, chain[j], {r: origin[r] + s for r, s in zip(ranks, steps, strict=True)})

    yield from walk(0, sizes, dict.fromkeys(sizes, 0))


class Members:
    """The members run in the loops around them, element by element: what is read must be there, complete, and not yet used up."""

    def __init__(self, region, spans):
        self.region, self.spans = region, spans
        self.sums, self.used_up = {name: {} for name in region.held}, {name: set() for name in region.held}
        self.made, self.scaled = {}, {}  # how often a place was begun; of sums of carried rows: how often these were

    def runs(self, cores, sizes):
        """Whether the members may run with these tiles at the cores of the spans."""
        try:
            self._span(0, cores, sizes, dict.fromkeys(sizes, 0))
        except ValueError:
            return False
        return True

    def _span(self, k, cores, outer, origin):
        ranks, tile = list(outer), cores[k]
        within = {one[0]: j for j, one in enumerate(self.spans) if around(self.spans, one)[-2:-1] == [k]}
        for steps in product(*(range(0, outer[r], tile[r]) for r in ranks)):
            at = {r: origin[r] + s for r, s in zip(ranks, steps, strict=True)}
            i, last = self.spans[k]
            while i <= last:
                if i in within:
                    self._span(within[i], cores, tile, at)
                    i = self.spans[within[i]][1]
                else:
                    self._member(i, tile, at)
                i += 1

    def _member(self, i, tile, at):
        p = self.region.members[i]
        ranks = list(p.sizes)
        touched = {t.name: set() for t in p.tensors}
        for steps in product(*(range(tile[r]) for r in ranks)):
            point = {r: at[r] + s for r, s in zip(ranks, steps, strict=True)}
            for t in p.tensors:
                place = tuple(point[r] for r in t.ranks)
                if t.is_output and t.name in self.sums:
                    self._add(p, t, place, tuple(point.values()))
                touched[t.name].add(place)
            self._scale(i, p, point)
        for t in p.tensors:
            if t.name in self.sums and not t.is_output:
                self._read(t, touched[t.name])
        name = p.output.name
        if name in self.sums and self.region.held[name] == (i, i):
            self._use_up(i, name, touched[name])

    def _add(self, p, t, place, point):
        """One product more of a sum; all over again where it was complete."""
        whole = p.macs // prod(p.sizes[r] for r in t.ranks)
        mine = self.sums[t.name].setdefault(place, set())
        if point in mine:
            if len(mine) < whole:
                raise ValueError
            mine.clear()
            self.used_up[t.name].discard(place)
        if not mine:
            self.made[t.name, place] = self.made.get((t.name, place), 0) + 1
            self.scaled.pop((t.name, place), None)
        mine.add(point)

    def _scale(self, i, p, point):
        """What a member sums of carried rows is scaled for one time that they are made."""
        for one in self.region.running:
            if self.region.held[one.of][1] == i:
                made = self.made.get((one.of, tuple(point[r] for r in p.tensor(one.of).ranks)))
                place = tuple(point[r] for r in p.output.ranks)
                if self.scaled.setdefault((p.output.name, place), made) != made:
                    raise ValueError

    def _complete(self, name, place):
        p = next(p for p in self.region.members if p.output.name == name)
        return len(self.sums[name].get(place, ())) == p.macs // prod(p.sizes[r] for r in p.output.ranks)

    def _read(self, t, wanted):
        at_once = [made for made, used in self.region.held.values() if made == used]
        in_place = any(self.region.held[t.name][0] < i <= self.region.held[t.name][1] for i in at_once)
        for place in wanted:
            if not self._complete(t.name, place) or (in_place and place not in self.used_up[t.name]):
                raise ValueError

    def _use_up(self, i, name, made):
        """The operation on what member i has made and on what was made before, which it overwrites."""
        others = [n for n, (first, last) in self.region.held.items() if n != name and first <= i <= last]
        for place in made:
            if not self._complete(name, place):
                raise ValueError
            for other in others:
                if not self._complete(other, place) or place in self.used_up[other]:
                    raise ValueError
                self.used_up[other].add(place)


def carried(region, chain, one):
    """(rows held, the span whose members find them held, further tiles) of statistics: a row is held from its first to its last tile.

    chain: [(span, tile)] of all nodes down to the core of its intermediate."""
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    maker = next(p for p in region.members if p.output.name == one.of)
    kept = [r for r in maker.output.ranks if r != one.over]
    lacked = [r for r in sizes if r not in maker.sizes]
    tiles = [tile for _, tile in chain]
    met = {}
    for time, at in enumerate(visits(tiles, sizes, one.over)):
        again = tuple(at[r] // tiles[-1][r] for r in lacked)
        for steps in product(*(range(tiles[-1][r]) for r in kept)):
            met.setdefault((again, tuple(at[r] + s for r, s in zip(kept, steps, strict=True))), []).append(time)
    ends = [(times[0], times[-1]) for times in met.values() if len(times) > 1]
    held = max((sum(a <= t <= b for a, b in ends) for t, _ in ends), default=0)
    further = sum(len(times) - 1 for times in met.values()) / prod(sizes[r] for r in kept)
    cut = next((k for k, tile in chain if tile[one.over] < sizes[one.over]), None)
    return held, cut, further


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


def least(region, machine, fan, key, spans=None):
    """The least key(joules, seconds) of every fused mapping, None where none fits. Keys add up over the members. spans: of loops around
    members, if not all."""
    found = [_least(region, machine, fan, key, one) for one in ([spans] if spans else spans_within(0, len(region.members) - 1))]
    return min((one for one in found if one is not None), default=None)


def _least(region, machine, fan, key, spans):
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    best, outer = None, [n for n in region.outer if n not in region.resident]

    @cache
    def branches(i, core, on_chip):
        return branch_runs(region, machine, i, dict(core), on_chip, fan)

    @cache
    def above(name, *cuts):
        return above_run(region, name, [{**sizes, **dict(cut)} for cut in cuts])

    @cache
    def may(*cores):
        return Members(region, spans).runs([dict(core) for core in cores], sizes)

    ranks = sorted(r for r in sizes if r not in region.whole)
    for places_ in product(*(apart(spans, region.outer[n][1]) for n in outer)):
        sets = [[n for n, mine in zip(outer, places_, strict=True) if span in mine] for span in range(len(spans))]
        ends = [sum(len(s) + 1 for s in sets[: k + 1]) - 1 for k in range(len(spans))]
        before = []
        for k, (one, names) in enumerate(zip(spans, sets, strict=True)):
            before += [ends[around(spans, one)[-2]] if k else None, *range(ends[k] - len(names), ends[k])]
        for tiles in trees(sizes, ranks, before):
            if not may(*(tuple(tiles[e].items()) for e in ends)):
                continue
            for orders in product(*(permutations(names) for names in sets)):
                nodes = [(k, name) for k, names in enumerate(orders) for name in (*names, None)]
                runs = [
                    None if name is None else above(name, *(tuple((r, tiles[up][r]) for r in ranks) for up in path(before, j)))
                    for j, (_, name) in enumerate(nodes)
                ]
                found = fused(region, machine, (spans, nodes, tiles, runs), branches, key)
                if found is not None and (best is None or found < best):
                    best = found
    return best


def apart(spans, users):
    """Every set of spans that a tensor may lie in at once: a user in each, none of them in another."""
    used = [k for k, (a, b) in enumerate(spans) if any(a <= i <= b for i in users)]
    every = [some for size in range(len(used) + 1) for some in combinations(used, size)]
    return [some for some in every if not any(holds(spans[a], spans[b]) for a in some for b in some if a != b)]


def trees(sizes, ranks, before):
    """Every list of tiles of which each, cut over `ranks`, is within the one at `before` (None: whole)."""

    def grow(tiles):
        if len(tiles) == len(before):
            yield tiles
            return
        up = before[len(tiles)]
        for (tile,) in chains(sizes if up is None else tiles[up], ranks, 1):
            yield from grow((*tiles, tile))

    yield from grow(())


def path(before, j):
    """The nodes down to one."""
    return [*([] if before[j] is None else path(before, before[j])), j]


def live(region, spans, i):
    """Intermediates in level 1 while member i runs, and their spans: from when they are made to when they are read for the last time."""
    found = []
    for name, (made, read) in region.held.items():
        home = around(spans, (made, read))[-1]
        for a, b in spans:  # loops within its span repeat all of their members while one writes or reads it
            if holds(spans[home], (a, b)) and not holds((a, b), spans[home]):
                made, read = (min(a, made) if a <= made <= b else made), (max(b, read) if a <= read <= b else read)
        if made <= i <= read:
            found.append((name, home))
    return found


def fused(region, machine, place, branches, key):
    spans, nodes, tiles, above = place
    sizes = {r: n for p in region.members for r, n in p.sizes.items()}
    level, core = machine.levels[1], {k: tile for (k, name), tile in zip(nodes, tiles, strict=True) if name is None}
    held = sum(level.bits(region.outer[n][0]) * words(region.outer[n][0], sizes) for n in region.resident)
    total, rows = [0.0, 0.0], [0.0] * len(spans)

    def spend(joules, seconds):
        cost = key(joules, seconds)
        total[:] = [total[0] + cost[0], total[1] + cost[1]]

    for one in region.running:
        read = region.held[one.of][1]
        held_in = around(spans, region.held[one.of])
        home = held_in[-1]
        chain = [(k, tile) for (k, _), tile in zip(nodes, tiles, strict=True) if k in held_in]
        mine, cut_in, further = carried(region, chain, one)
        rows = [now + one.bits * mine * (cut_in in around(spans, spans[k])) for k, now in enumerate(rows)]
        spend(further * one.joules, further * one.seconds)
        cut = sizes[one.over] // core[home][one.over]
        scalings = (cut - 1) * prod(sizes[r] // core[home][r] for r in sizes if r not in region.members[read].sizes)
        spend(scalings * one.scaled[0], scalings * one.scaled[1])
    for i, p in enumerate(region.members):
        inside = around(spans, (i, i))
        span = inside[-1]
        times = prod(sizes[r] // core[span][r] for r in sizes if r not in p.sizes)
        if p.output.name in region.between:
            joules, seconds = region.between[p.output.name]
            spend((times - 1) * joules, (times - 1) * seconds)
        room, mine, chip = held + rows[span], [], set(region.resident) | set(region.held)
        for (k, name), tile, moved in zip(nodes, tiles, above, strict=True):
            if name is not None and k in inside:
                room += level.bits(region.outer[name][0]) * words(region.outer[name][0], tile)
                chip.add(name)
                first, last = spans[k]
                if next(u for u in region.outer[name][1] if first <= u <= last) == i:
                    mine.append(moved)
        for name, home in live(region, spans, i):
            room += level.bits(region.intermediate(name)) * words(region.intermediate(name), core[home])
        on_chip = frozenset(t.name for t in p.tensors if t.name in chip)
        start = tuple(sorted((r, core[span][r]) for r in p.sizes))
        keys = [
            key(*figures(machine, p, [tuple(times * w for w in moved), *mine], cycles, times))
            for moved, bits, cycles in branches(i, start, on_chip)
            if room + bits <= level.capacity_bits
        ]
        if not keys:
            return None
        spend_keys = min(keys)
        total[:] = [total[0] + spend_keys[0], total[1] + spend_keys[1]]
    return tuple(total)


def figures(machine, p, moved, cycles, times):
    """(joules, seconds) of words [read 0, read 1, written 0, written 1]; the products are run so many times."""
    width = p.tensors[0].bits
    total = [sum(m[k] for m in moved) * width for k in range(4)]
    joules = p.macs * times * machine.compute.j_per_mac
    seconds = [cycles * times / machine.compute.macs_per_s]
    for k, v in enumerate(machine.levels):
        joules += total[k] * v.read_j_per_bit + total[k + 2] * v.write_j_per_bit
        seconds.append((total[k] + total[k + 2]) / v.bandwidth_bits_per_s)
    return joules, max(seconds)
