"""One member of a region below the intermediates' tile: its tables, and its best nest where some bits of level 1 are left.

What is below one tile is that tile's table of costs (cost_table), with the intermediates, the residents and the prefix's tensors on chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import TIE, NestObjective
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.busy_units import most_busy
from rackmodel.nests.searchers.mapspace.fan_state import start
from rackmodel.nests.searchers.mapspace.mapping_steps import NodeAbove, NodesAbove, build_mapping
from rackmodel.nests.searchers.mapspace.prices import components, energy_prices
from rackmodel.nests.searchers.mapspace.rank_merging import merged_ranks
from rackmodel.nests.searchers.mapspace.space import OnChip, Space
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.searchers.regions.region_lines import MemberBlends, Met, SliceLines, Spent, fastest, least_of
from rackmodel.nests.searchers.regions.region_prefixes import Prefix
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.tables.backtrack import best_path, optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.price_blends import Blend
from rackmodel.nests.searchers.tables.remade import Remade
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.searchers.tables.slices import Entry, SliceSearch
from rackmodel.nests.searchers.tables.tile_options import Tile
from rackmodel.nests.solution import Best
from rackmodel.once import once

ENERGY = NestObjective("energy")
SLACK = 1e-9  # of a key, by which what was found may be missed when it is looked for again


class Above(NamedTuple):
    """What lies above a member's branch: prefix, tile sizes of the shared ranks at each of its nodes and cores, bits of level 1 that are
    taken, joules and bits of every port on account of the member's prefix tensors."""

    prefix: Prefix
    tiles: tuple[tuple[int, ...], ...]
    taken: float
    joules: float
    bits: tuple[tuple[str, float], ...]


class Made(NamedTuple):
    """A member as it runs, again and again where loops around it say so: the einsum, its mapping, its cost, tensors it finds on chip."""

    problem: NestProblem
    mapping: NestMapping
    cost: NestCost
    inside: frozenset[str]


class Case(NamedTuple):
    """What the cost of a branch depends on: tensors on chip, the tile of the ranks of its tables that enters, how often it runs, what is
    spent above by one running, bits of level 1 that are taken."""

    on_chip: frozenset[str]
    tile: tuple[int, ...]
    runs: int
    spent: Spent
    taken: float

    def above(self, other: Case) -> bool:
        """Whether its branch costs no less than that of another case of the same tensors and runs: its tile divides the other's, no less is
        spent above but for joules, no less is taken."""
        bits = zip(self.spent.bits, other.spent.bits, strict=True)
        return (
            self.taken >= other.taken
            and all(mine >= theirs for mine, theirs in bits)
            and all(theirs % mine == 0 for mine, theirs in zip(self.tile, other.tile, strict=True))
        )


class CaseKeys:
    """Keys that branches of one member are known not to be below, by case."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], dict[Case, float]] = {}

    def add(self, case: Case, aim: NestObjective, key: float) -> None:
        """Remember a key, joules above apart."""
        known = self.known.setdefault((case.on_chip, case.runs, aim), {})
        known[case] = max(known.get(case, -np.inf), key - self._above(case, aim))

    def least(self, case: Case, aim: NestObjective) -> float:
        """The key that a case is known not to be below."""
        least = -np.inf
        for one, key in self.known.get((case.on_chip, case.runs, aim), {}).items():
            if key > least and case.above(one):
                least = key
        return least + self._above(case, aim)

    @staticmethod
    def _above(case: Case, aim: NestObjective) -> float:
        return float(aim.key(case.spent.joules * case.runs, 0.0)[0])


class Asked(NamedTuple):
    """What lines said of a case: the blends that there were (each list of them is a new one), up to which key, the least and the number of
    the search that has it."""

    blends: list[Blend]
    most: float
    met: Met
    number: int


class Floored(NamedTuple):
    """What lines said of every tile of the shared ranks: the blends that there were, the least, and up to which key it was asked for."""

    blends: list[Blend]
    least: Array
    most: Array


class Branch:
    """Member number i of a region. ranks: those that the region merges → their parts. Its tables are in ranks of its own, merged where none
    of its tensors tells them apart (lemma L1), which are no finer; they are shared by what is on chip and the bits taken, `like` a branch
    of the same member with other loops, and by members of other regions that are alike."""

    def __init__(self, space: RegionSpace, i: int, effort: Effort, tables: SharedTables, like: Branch | None = None) -> None:
        self.space, self.i, self.effort, self.tables = space, i, effort, tables
        self.problem, self.machine, self.ranks = space.region.members[i], space.region.machines[i], space.groups[i]
        self.span, self.around, self.times = space.loops.span_of[i], space.loops.around(i), space.times(i)
        self.seconds = self._seconds()
        self.ports, self.energy = components(self.machine), energy_prices(self.machine)
        first, level, *inner = self.machine.levels
        self.roomy = replace(self.machine, levels=(first, replace(level, capacity_bits=None), *inner))  # what lies above is checked apart
        self.constant = self.machine.compute.joules(self.problem)
        self.searches: dict[object, list[SliceSearch]] = like.searches if like is not None else {}
        self.below: dict[object, Array] = {}
        self.merged = merged_ranks(self.problem, (), self.machine.compute.atom, self.ranks)
        self.whole = {g: prod(self.problem.sizes[r] for r in parts) for g, parts in self.ranks.items()}
        self.own = [[n for n, parts in enumerate(self.ranks.values()) if parts[0] in merged] for merged in self.merged.values()]
        asked = tables.of("cases", repr((self.problem, self.machine)), *map(tuple, self.merged.values()))  # in other regions as well
        self.found: dict[tuple[Case, NestObjective], Made | None] = asked.setdefault("found", {})
        self.beyond: CaseKeys = asked.setdefault("beyond", CaseKeys())
        self.spaces: list[Space] = asked.setdefault("spaces", [])
        self.lines: dict[object, list[SliceLines]] = like.lines if like is not None else {}
        self.met: dict[tuple[Case, NestObjective], Asked] = like.met if like is not None else {}
        self.floors: dict[object, Floored] = {}  # by tensors on chip and bits above: of many sets of prefix tensors
        self.leasts: dict[object, float] = {}  # joules of any tile, by tensors on chip and bits taken
        self.there: dict[Prefix, frozenset[str]] = {}  # of a prefix, its tensors on chip
        self.charges: dict[Prefix, list[tuple[int, str]]] = {}  # of a prefix, its tensors on the member's account
        self.blends: dict[NestObjective, MemberBlends] = {}

    def _seconds(self) -> Array:
        """[tiles of the shared ranks] least seconds of the compute, of all runnings below a core's tile."""
        p, compute, space = self.problem, self.machine.compute, self.space
        own = [r for r in range(len(space.axes)) if r not in space.lacks[self.i]]
        whole = prod(p.sizes.values()) / prod(compute.atom.get(rank, 1) for rank in p.sizes)
        atoms = whole / prod((space.counts[r] for r in own), start=np.ones_like(self.times))
        busy = most_busy(self.machine, np.maximum(np.floor(atoms), 1.0))
        return p.macs * p.density * self.times / (compute.macs_per_s * busy)

    def on_chip(self, prefix: Prefix) -> frozenset[str]:
        """Its tensors that its branch finds in level 1."""
        if prefix not in self.there:
            names = {t.name for t in self.problem.tensors}
            above = {n for k in self.around for n in prefix[k]}
            self.there[prefix] = frozenset(names & {*above, *self.space.region.held, *self.space.region.resident})
        return self.there[prefix]

    def _searches(self, prefix: Prefix, reserved: float) -> list[SliceSearch]:
        """With the tables of every choice of stored tensors, `reserved` bits of level 1 taken."""
        key = (self.on_chip(prefix), reserved)
        if key not in self.searches:
            spaces = [self._space(kept, OnChip(*key)) for kept in self.space.masks[self.i]]
            self.searches[key] = [SliceSearch(space, ENERGY, effort=self.effort, tables=self.tables) for space in spaces]
        return self.searches[key]

    def _space(self, kept: Stored, on_chip: OnChip) -> Space:
        """A space of the member; all have the spatial vectors of the first."""
        first = self.spaces[0] if self.spaces else None
        space = Space(self.problem, self.machine, kept, NestConstraints(), groups=self.merged, on_chip=on_chip, like=first)
        self.spaces[:] = self.spaces or [space]
        return space

    def least(self, prefix: Prefix, reserved: float, port: int | None = None) -> Array:
        """[tiles of the shared ranks] least joules of all runnings below a core's tile, private ranks whole; or bits of a port."""
        key = (self.on_chip(prefix), reserved, port)
        if key not in self.below:
            found = self._searches(prefix, reserved)
            once = np.minimum.reduce([self._values(one.energy if port is None else one.ports[port][1]) for one in found])
            self.below[key] = (once + (self.constant if port is None else 0.0)) * self.times
        return self.below[key]

    def least_of_all(self, prefix: Prefix, reserved: float) -> float:
        """The least of these joules, whatever the tile."""
        return once(self.leasts, (self.on_chip(prefix), reserved), lambda: float(self.least(prefix, reserved).min()))

    def _values(self, table: CostTable) -> Array:
        """[tiles of the shared ranks, 1 of those it lacks] a table's values, private ranks whole; inf where a tile leaves less of a rank
        than an instruction needs, which the product that the table merges it into does not say."""
        found: Array = table.value(1, start(table.space))[self._cells(table.space)]
        region, atom = self.space, self.machine.compute.atom
        for g, axis, count in zip(region.shared, region.axes, region.counts, strict=True):
            needs = prod(atom.get(rank, 1) for rank in self.ranks.get(g, ()))
            if needs > 1:
                found = np.where(np.reshape(axis.tile, count.shape) % needs == 0, found, np.inf)
        return found

    def _cells(self, space: Space) -> tuple[Ints, ...]:
        """Per rank of its own: numbers of the tiles that those of the shared ranks make, [tiles of the shared ranks]."""
        region = self.space
        grid = dict(zip(region.shared, (np.reshape(a.tile, c.shape) for a, c in zip(region.axes, region.counts, strict=True)), strict=True))
        return self._numbers(space, {g: grid.get(g, whole) for g, whole in self.whole.items()}, [1] * len(region.axes))

    def _numbers(self, space: Space, sizes: Mapping[str, Any], shape: Sequence[int] = ()) -> tuple[Ints, ...]:
        """Per rank of its own: number of the tile where the region's merged ranks have these sizes, whole numbers or arrays."""
        one: Ints = np.ones(shape, dtype=np.int64)
        within = ([sizes[g] for g, own in self.ranks.items() if own[0] in parts] for parts in space.groups.values())
        return tuple(axis.numbers(prod(each, start=one)) for axis, each in zip(space.divisor_axes, within, strict=True))

    @cached_property
    def bandwidth(self) -> list[float]:
        """[ports] bits a second, of all instances of a port's level on the whole machine."""
        return [port.bandwidth * prod(level.fan.size for level in self.machine.levels[: port.level]) for port in self.ports]

    # -- below one tile
    def _case(self, above: Above, taken: float) -> Case:
        """What a branch's cost depends on, so many bits of level 1 taken."""
        core = above.tiles[-1]
        runs = prod(self.space.axes[r].size // core[r] for r in self.space.lacks[self.i])
        sizes = self._full(core)
        own = tuple(prod(sizes[n] for n in numbers) for numbers in self.own)
        spent = Spent(above.joules / runs, tuple(bits / runs for _, bits in above.bits))
        return Case(self.on_chip(above.prefix), own, runs, spent, taken)

    def _lines(self, prefix: Prefix, taken: float, aim: NestObjective) -> list[SliceLines]:
        key = (self.on_chip(prefix), taken, aim)
        if key not in self.lines:
            blends = self._blends(aim)
            self.lines[key] = [SliceLines(search, aim, blends) for search in self._searches(prefix, taken)]
        return self.lines[key]

    def _blends(self, aim: NestObjective) -> MemberBlends:
        """The member's, in other regions, too: whatever a blend was made for, nothing is below its line."""
        if aim in self.blends:
            return self.blends[aim]
        ports, fans = tuple((c.name, c.level) for c in self.ports), tuple(level.fan for level in self.machine.levels)
        found = self.tables.of("blends", self.problem.name, tuple(self.problem.sizes.values()), ports, fans, aim)
        blends: MemberBlends = found.setdefault("of", MemberBlends())
        self.blends[aim] = blends
        return blends

    def _met(self, above: Above, case: Case, aim: NestObjective, most: float) -> tuple[Met, int]:
        """What lines say of a branch up to `most`, and the number of the search that has it: tiles of many prefixes have one case, which is
        asked again only for more."""
        blends = self._blends(aim).blends
        known = self.met.get((case, aim))
        if known is None or known.blends is not blends or (known.met.key == np.inf and most > known.most):
            lines = self._lines(above.prefix, case.taken, aim)
            tiles = [self._tile(one.search.space, above) for one in lines]
            known = self.met[case, aim] = Asked(blends, most, *least_of(lines, tiles, case.spent, most / case.runs))
        if known.met.key > most / case.runs:
            return Met(np.inf, None), 0
        return known.met, known.number

    def bound(self, above: Above, aim: NestObjective, taken: float, most: float) -> float:
        """Key that no branch below what is above is below, all runnings together; how far it is beyond `most` does not matter."""
        case = self._case(above, taken)
        known = self.beyond.least(case, aim)
        return known if known > most else max(known, self._met(above, case, aim, most)[0].key * case.runs)

    def floor(self, prefix: Prefix, aim: NestObjective, taken: float, once: tuple[float, ...], most: Array) -> Array:
        """[tiles of the shared ranks] key that no branch below a core's tile is below, all runnings together, joules above left out; as
        close as lines are where it is no more than `most`, -inf where that is. once: bits of every port above at least."""
        bits, blends = tuple(0.0 for _ in once) if self.space.lacks[self.i] else once, self._blends(aim).blends
        key = (self.on_chip(prefix), taken, aim, bits)
        known = self.floors.get(key)
        if known is None or known.blends is not blends:
            known = self.floors[key] = Floored(blends, np.full(most.shape, -np.inf), np.full(most.shape, -np.inf))
        near = np.isfinite(most) & (most > known.most)
        if near.any():
            runs, least = np.broadcast_to(self.times, most.shape)[near], np.full(int(near.sum()), np.inf)
            for lines in self._lines(prefix, taken, aim):
                tiles = tuple(np.broadcast_to(cells, most.shape)[near] for cells in self._cells(lines.search.space))
                least = np.minimum(least, lines.floor(tiles, Spent(0.0, bits), most[near] / runs))
            known.least[near], known.most[near] = least * runs, most[near]
        return np.where(np.isfinite(most), known.least, -np.inf)

    def prime(self, above: Above, aim: NestObjective, taken: float) -> None:
        """Make the member's first blends below a tile, if there are none yet."""
        for lines in self._lines(above.prefix, taken, aim) if not self._blends(aim).blends else ():
            entry = self._entry(lines.search.space, above)
            lines.first(lines.below(entry), Spent(entry.joules, tuple(entry.bits.values())))

    def closer(self, above: Above, aim: NestObjective, taken: float, most: float) -> bool:
        """Look for a blend that bounds the branch more closely; whether one was found."""
        met, number = self._met(above, self._case(above, taken), aim, most)
        if met.slice_ is None:
            return False
        lines = self._lines(above.prefix, taken, aim)[number]
        entry = self._entry(lines.search.space, above)
        return lines.closer(met.slice_, Spent(entry.joules, tuple(entry.bits.values())), lines.below(entry))

    def best(self, above: Above, aim: NestObjective, coarse: Sequence[float], most: float = np.inf) -> Made | None:
        """The nest below what is above that is best for an aim; None where none fits, or none is as good as `most`, all runnings together.
        coarse: no more than the bits taken, rising: what is best there and fits is best."""
        for taken in coarse:
            if taken < above.taken:
                loose = self._best(above, aim, taken, most)
                if loose is None or self._fits(loose, above):
                    return loose
        return self._best(above, aim, above.taken, most)

    def _fits(self, made: Made, above: Above) -> bool:
        """Whether a nest that was found with fewer bits taken has room."""
        level, own = self.machine.levels[1], made.mapping.levels[1].nodes[len(self._nodes(above)) :]
        room = sum(level.buffers * level.bits(t) * t.tile_words(node.tile) for node in own for t in (self.problem.tensor(node.tensor),))
        return level.capacity_bits is None or above.taken + room <= level.capacity_bits

    def _best(self, above: Above, aim: NestObjective, taken: float, most: float) -> Made | None:
        case = self._case(above, taken)
        if (case, aim) not in self.found:
            if self.beyond.least(case, aim) >= most * (1 + TIE / 2):  # equal ones may have a lower tie-break
                return None
            made = self._search(above._replace(taken=taken), aim, most)
            key = most * (1 + TIE) if made is None else float(aim.key(made.cost.energy_j, made.cost.latency_s)[0])
            self.beyond.add(case, aim, key)
            if made is None and most < np.inf:
                return None
            self.found[case, aim] = made
        return self.found[case, aim]

    def made(self, above: Above, aim: NestObjective, coarse: Sequence[float]) -> Made | None:
        """As `best`, below the very tiles that lie above: a branch of the same cost that was found may lie below others."""
        most = np.inf
        for taken in (*coarse, above.taken):
            known = self.found.get((self._case(above, taken), aim))
            if known is not None:
                most = float(aim.key(known.cost.energy_j, known.cost.latency_s)[0]) * (1 + SLACK)
            made = self._search(above._replace(taken=taken), aim, most)
            if made is None or self._fits(made, above):
                break
        return None if made is None else made._replace(cost=evaluate(made.problem, self.machine, made.mapping, made.inside))

    def of_least_energy(self, above: Above, aim: NestObjective) -> Made | None:
        """The nest below what is above that takes least energy, or least of the slice of the fastest compute, where that is better; None
        where none fits."""
        found = []
        for search in self._searches(above.prefix, above.taken):
            entry = self._entry(search.space, above)
            tables = [search.energy] if np.isfinite(optimum(search.energy, entry.tile)) else []
            if tables and not aim.energy_only:
                tables += [search.restricted(search.energy, slice_) for slice_ in fastest(search, entry.tile)]
            for table in tables:
                found.append(self._made(build_mapping(search.space, best_path(table, entry.tile), entry.above), entry))
        return min(found, key=lambda made: aim.key(made.cost.energy_j, made.cost.latency_s), default=None)

    def _search(self, above: Above, aim: NestObjective, most: float) -> Made | None:
        if aim.energy_only:
            return self.of_least_energy(above, aim)
        best: Best | None = None
        for lines in self._lines(above.prefix, above.taken, aim):
            entry = self._entry(lines.search.space, above)
            best = lines.search_below(entry, most / entry.remade.runs, best)
        return None if best is None else self._made(best.mapping, self._entry(lines.search.space, above))

    def _made(self, mapping: NestMapping, entry: Entry) -> Made:
        problem, whole = entry.remade.problem(self.problem), entry.remade.mapping(mapping)
        return Made(problem, whole, evaluate(problem, self.roomy, whole, entry.inside), entry.inside)

    def _tile(self, space: Space, above: Above) -> Tile:
        sizes = dict(zip(self.ranks, self._full(above.tiles[-1]), strict=True))
        return tuple(int(n) for n in self._numbers(space, sizes))

    def charged(self, prefix: Prefix) -> list[tuple[int, str]]:
        """Prefix tensors whose words are on its account, with their span: it is the first within that span that uses them."""
        if prefix not in self.charges:
            here = [(k, name) for k in self.around for name in prefix[k]]
            mine = [(k, name) for k, name in here if self.i in self.space.users[name] and self.space.user(name, k) == self.i]
            self.charges[prefix] = mine
        return self.charges[prefix]

    def _charged(self, prefix: Prefix) -> frozenset[str]:
        return frozenset(name for _, name in self.charged(prefix))

    def _above(self, prefix: Prefix) -> list[str]:
        """What has nodes before its own, residents apart: prefix and cores, as they lie."""
        found = []
        for k in self.around:
            found += [*prefix[k], *(name for name, span in self.space.loops.lives.items() if span == k)]
        return found

    def _nodes(self, above: Above) -> list[str]:
        """Its tensors with nodes of level 1 before its own: residents, prefix, intermediates."""
        mine = {t.name for t in self.problem.tensors}
        return [n for n in (*sorted(self.space.region.resident), *self._above(above.prefix)) if n in mine]

    def _entry(self, space: Space, above: Above) -> Entry:
        """Residents, prefix and intermediates, then the branch."""
        region, numbers = self.space.region, {t.name: k for k, t in enumerate(space.tensors)}
        whole = tuple(self.space.sizes.values())
        nodes: list[NodeAbove] = [(numbers[n], self._full(whole)) for n in sorted(region.resident) if n in numbers]
        cuts: list[tuple[int, ...]] = [whole] * len(nodes)
        tiles = iter(above.tiles)
        for k in self.around:
            inner = [(name, next(tiles)) for name in above.prefix[k]]
            core = next(tiles)
            inner += [(name, core) for name, span in self.space.loops.lives.items() if span == k]
            nodes += [(numbers.get(name), self._full(tile)) for name, tile in inner]
            cuts += [tile for _, tile in inner]
        nodes, cuts = [*nodes, (None, self._full(above.tiles[-1]))], [*cuts, above.tiles[-1]]
        inside = frozenset(numbers) & {*region.held, *region.resident, *self._above(above.prefix)} - self._charged(above.prefix)
        remade = self._remade([tile for (number, _), tile in zip(nodes, cuts, strict=True) if number is not None], above.tiles[-1])
        bits = {name: n / remade.runs for name, n in above.bits}
        where = NodesAbove(self.ranks, tuple(nodes))
        return Entry(self._tile(space, above), where, inside, above.joules / remade.runs, bits, remade, self.roomy)

    def _remade(self, nodes: Sequence[tuple[int, ...]], core: tuple[int, ...]) -> Remade:
        """Ranks that it lacks, of which loops around it cut the whole to a core's tile; nodes: tiles of the shared ranks at those above."""
        times, tiles = {}, {}
        for r in self.space.lacks[self.i]:
            if (count := self.space.axes[r].size // core[r]) > 1:
                name = f"again_{self.space.parts[self.space.shared[r]][0]}"
                times[name] = count
                tiles[name] = tuple(tile[r] // core[r] for tile in nodes)
        return Remade(times, tiles)

    def _full(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Of a tile of the shared ranks, that of every merged rank of the member, private ones whole."""
        sizes = dict(zip(self.space.shared, tile, strict=True))
        return tuple(sizes.get(g, whole) for g, whole in self.whole.items())
