"""Operations fused on one accelerator: what a region saves, and which regions save most together (found_fusion).

The operations between its contractions run on tiles in place: what they read and write moves at the first on-chip memory alone. A softmax
whose rows are cut carries a maximum and a sum of each row (running_rows); both are priced here for the search and for the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

import numpy as np

from rackmodel.cost.inside.nest_view import nest_machine, nest_problem
from rackmodel.cost.inside.roofline import Row, roofline_rows
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.nests.around import NestKey, share_of
from rackmodel.mapper.nests.found_fusion import Fused, Joint, cheapest_set, operations, rivals, rivals_of
from rackmodel.mapper.nests.late_bounds import surely
from rackmodel.mapper.nests.layer_nests import LayerNests
from rackmodel.mapper.nests.nested import Nested, least_part, sheet_of
from rackmodel.model.architecture import Architecture
from rackmodel.nests.canonical import canonical
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor
from rackmodel.nests.rank_names import apart, renamed_mapping, renamed_problem, renamed_tensors
from rackmodel.nests.region import Region, RunningRows
from rackmodel.nests.region_loops import again_in
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.regions.fusion import NothingBetter, fastest_on_chip, least_on_chip, ports_on_chip
from rackmodel.nests.searchers.regions.ragged_resident import fastest_beside, least_beside, ragged_resident
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.solution import gap_of
from rackmodel.once import once

View = tuple[str, tuple[tuple[str, ...], ...], tuple[int, ...]]
"""A tensor as a member reads it: by which indices, and how much of each. Read by others, or in another share, it is another tensor: no tile
of it serves both."""
STATISTICS = 2, 32  # of a row: a maximum and a sum, bits of each
REGION_CELLS = 1e9
"""That the search of a region may price, all of its tiles together: the first of attention on h100 takes 18 M, those after it less."""
NEST_CELLS = 20e6
"""That the bound of one operation's seconds may price."""
Solved = dict[NestKey, Nested]
Seconds = Callable[[NestProblem, NestMachine, frozenset[str]], float]
"""Of an operation whose tensors of some names are on chip for nothing, at least."""


@dataclass(frozen=True)
class Carrying:
    """What each further tile of every row costs one accelerator: bits of statistics that are read and that are written, elements of the
    sums so far, which are scaled."""

    bits: float
    elements: float

    def rows(self, architecture: Architecture, tensor: str, tiles: float) -> list[Row]:
        """Charges of so many further tiles: one after another, beside nothing."""
        level, memory, _ = architecture.memories[1]
        found = []
        for action, energy in (("read", memory.read_j_per_byte), ("write", memory.write_j_per_byte)):
            size = tiles * self.bits / 8
            split = memory.ports == "split" and action == "write"
            bandwidth = memory.write_port_bytes_per_s if split else memory.bandwidth_bytes_per_s
            seconds = size / bandwidth if bandwidth else 0.0
            found.append(Row(tensor, level.name, "memory", action, size, "byte", size * energy, seconds, seconds))
        units = next((one, n) for one, n in reversed(architecture.inside) if one.compute is not None)
        rate = units[0].compute.vector if units[0].compute is not None else None
        if rate is not None:
            flops = tiles * self.elements
            seconds = flops / (rate.rate_flop_per_s * units[1])
            found.append(Row(tensor, units[0].name, "compute", "vector", flops, "flop", flops * rate.energy_j_per_flop, seconds, seconds))
        return found


def carrying(rows: float, reader: LocalOp, sizes: dict[str, int], runs: int = 1) -> Carrying:
    """Of so many rows (of every time that they are made), and what the contraction after them sums, each of its `runs`."""
    assert reader.result is not None
    return Carrying(rows * STATISTICS[0] * STATISTICS[1], float(runs * prod(sizes[index] for index in reader.result.access.names)))


def taken_in_part(inside: LayerNests, one: Fused, degrees: Any) -> list[str]:
    """What lies between contractions of a region of which one makes more, or another operation takes more, than its reader reads."""
    found = []
    for joint in one.joints:
        ops = [inside.local_ops[name] for name in (joint.reader, *joint.makers)]
        ops += [inside.vectors[joint.read]] if joint.read in inside.vectors else []
        shares = [share_of(op, degrees) for op in ops]
        names = next(operand for operand in ops[0].operands if operand.name == joint.read).access.names
        if any(len({share.get(index, 1) for share in shares}) > 1 for index in names):
            found.append(joint.read)
    return found


def _view(problem: NestProblem, tensor: NestTensor) -> View:
    return tensor.name, tensor.indices, tuple(problem.sizes[rank] for rank in tensor.ranks)


def _apart(name: str, views: Mapping[View, str]) -> str:
    """The name of a further view of a tensor: its own for the first."""
    return name + "'" * sum(view[0] == name for view in views)


def _spent(rows: Sequence[Row]) -> tuple[float, float]:
    """Joules and seconds of charges, one after another."""
    return float(sum(np.asarray(row.joules).item() for row in rows)), float(sum(np.asarray(row.seconds).item() for row in rows))


class FusedRegions:
    """Regions of local operations at one mesh's degrees, fused. nests: of the regions that were solved, with the makers of what stays."""

    def __init__(
        self, inside: LayerNests, architecture: Architecture, degrees: Any, watts: float, tables: SharedTables | None = None
    ) -> None:
        self.inside, self.architecture, self.degrees = inside, architecture, degrees
        self.aim = replace(inside.aim, static_w=watts)
        self.nests: dict[Fused, Solved] = {}
        self.makers: dict[tuple[str, tuple[str, ...]], Nested] = {}  # of what stays on chip, by what stays
        self.tables = tables or SharedTables()

    def best(self, options: Sequence[Fused]) -> list[Fused]:
        """The regions that, with all other operations by themselves, take least."""
        return cheapest_set([one for one in options if self.fits(one)], self)

    def alike(self, one: Fused) -> bool:
        """Whether what stays on chip is one tensor to all that use it: of the same indices and shares."""
        read = {_view(p, t) for op in self._members(one) for p, _ in [self._asked(op)] for t in p.tensors if t.name in one.resident}
        return len(read) == len({name for name, *_ in read}) and not taken_in_part(self.inside, one, self.degrees)

    def figure(self, joules: float, seconds: float) -> float:
        """What is minimised."""
        return float(self.aim.key(joules, seconds)[0])

    def hope_of(self, one: Fused, least: Mapping[str, tuple[float, float]]) -> float:
        """What a region saves at most, of what its operations take at least."""
        return self._alone(one) - self._least_of(least)

    def _least_of(self, least: Mapping[str, tuple[float, float]]) -> float:
        return sum((self.figure(*each) for each in least.values()), 0.0)

    def at_least(self, one: Fused, seconds: Seconds | None = None) -> dict[str, tuple[float, float]]:
        """What each operation of a region writes → the joules and seconds that it takes at least there, the latter by the optimum of its
        nest, if not by others. Raises Exhausted."""
        on_chip, fetched = one.between | frozenset(one.resident), set[str]()
        least = {name: self._vector(name, one.between) for name in one.vectors}
        for op in self._ops(one):
            problem, machine = self._asked(op)
            names = {t.name for t in problem.tensors}
            made = op.result is not None and op.result.name in one.resident  # before the region, by itself but for what stays
            inside = frozenset(names & {*one.resident} if made else names & (on_chip | fetched))  # an earlier member may have read it
            least[op.written] = self._least(problem, machine, inside, seconds or self._fastest)
            fetched |= names
        return least

    def _least_on_chip(self, problem: NestProblem, machine: NestMachine, inside: frozenset[str]) -> float:
        """Joules of an operation at least whose tensors `inside` are on chip for nothing. Raises Exhausted."""
        if self.inside.spec.factors == "ceil":
            return least_beside(problem, machine, inside, self.tables)
        return least_on_chip(problem, machine, inside, Effort(ends=self.inside.watch.ends), self.tables)

    # -- what operations cost by themselves, and regions (found_fusion.Costs)
    def least_apart(self, name: str) -> float:
        """What the operation that writes a tensor takes by itself, at least. Raises Exhausted."""
        if self.inside.spec.factors == "ceil":
            return self.alone(name)
        least = self.figure(*self._least(*self._asked(self.inside.local_ops[name]), frozenset(), self._ports))
        return least if least < inf else self.alone(name)

    def alone(self, name: str) -> float:
        """The same, solved; by how much it may exceed what it takes at least is remembered of all regions that it may be in."""
        op = self.inside.local_ops[name]
        nest, figure = self.inside.plain(self.architecture, op, self.degrees, self.aim.static_w), self._figure_alone(op)
        for one in rivals_of(self.inside.fused, name):
            self._left_open(one, figure, figure * least_part([nest]))
        return figure

    def least_together(self, one: Fused) -> float:
        """What a region takes at least, less what `_beside` says. Raises Exhausted."""
        return self._least_of(self.at_least(one, self._ports)) - self._beside(one)

    def together(self, one: Fused, below: float) -> float:
        """The same, solved; `below` or more where it takes no less, or it is too late to look, inf where it does not fit. Raises
        Exhausted."""
        beside = self._beside(one)
        if self.inside.watch.over():
            self._left_open(one, below + beside if below < inf else self._alone(one), self._least_of(self.at_least(one, self._ports)))
            return below
        try:
            after = self._after(one, below + beside)
        except InfeasibleError:
            return inf
        except NothingBetter:
            return below
        except Exhausted:
            if below < inf:
                raise
            found = self.together(one, self._alone(one) - beside)
            return found if one in self.nests else inf
        return after - beside

    def _beside(self, one: Fused) -> float:
        """What operations between contractions take by themselves, and launches that one kernel saves."""
        launches = self.inside.launch_s * (len(operations(one)) - 1)  # of one kernel each, less that of one for all
        return self._vectors(one, frozenset()) + self.figure(0.0, launches)

    def gain(self, one: Fused, need: float = 0.0) -> float:
        """What a region saves; no more than `need` where it saves no more, or it is too late to look, -inf where it does not fit."""
        alone, beside = self._alone(one), self._beside(one)
        found = self.together(one, alone - beside - need)
        if found == inf or found >= alone - beside - need:
            return -inf if found == inf else need
        self._alone_open(one, found + beside)
        return alone - beside - found

    def saves(self, one: Fused) -> bool:
        """Whether a declared region is better than its operations alone, which are solved only where what they cost at least does not say.
        Raises InfeasibleError where it does not fit."""
        after = self._after(one)
        if after < self._alone_least(one):
            return True
        self._alone_open(one, after)
        return after < self._alone(one)

    def _alone_open(self, one: Fused, after: float) -> None:
        """Remember by how much what was found may exceed what the operations of a region take at least, each on its own; where some may be
        on their own beside another region, each of them."""
        nests = [self.inside.plain(self.architecture, op, self.degrees, self.aim.static_w) for op in self._ops(one)]
        alone = [self.figure(nest.cost.energy_j, nest.cost.latency_s) for nest in nests]
        least = [figure * least_part([nest]) for figure, nest in zip(alone, nests, strict=True)]
        whole = self._alone(one)
        self._left_open(one, min(after, whole), whole - sum(alone) + sum(least))
        if len(rivals_of(self.inside.fused, one.members[0])) > 1:
            for figure, bound in zip(alone, least, strict=True):
                self._left_open(one, figure, bound)

    def _after(self, one: Fused, below: float = inf) -> float:
        """What a region and the makers of what stays cost, less than `below`. Raises NothingBetter, InfeasibleError, Exhausted."""
        region, names = self._region(one)
        makers = [op for op in self._ops(one) if op.result is not None and op.result.name in one.resident]
        made = [self._maker(op, one.resident) for op in makers]
        for nest in made:
            self._left_open(one, self.figure(nest.cost.energy_j, nest.cost.latency_s), nest.certificate["bound"])
        most = below - sum(self.figure(nest.cost.energy_j, nest.cost.latency_s) for nest in made) - self._vectors(one, one.between)
        try:
            fused = self._solve(one, region, names, most)
        except NothingBetter as nothing:
            self._left_open(one, most, self._at_least_there(one, nothing.bound))
            raise
        nests, ops = [*fused, *made], [*self._members(one), *makers]
        self.nests[one] = {self.inside.key(op, self.degrees): nest for op, nest in zip(ops, nests, strict=True)}
        there = sum(self.figure(nest.cost.energy_j, nest.cost.latency_s) for nest in fused) + self.figure(*self.running)
        self._left_open(one, min(there, most), self._at_least_there(one, fused[0].certificate["bound"]))
        after = sum(self.figure(nest.cost.energy_j, nest.cost.latency_s) for nest in nests) + self._vectors(one, one.between)
        return after + self.figure(*self.running)

    def _at_least_there(self, one: Fused, bound: float) -> float:
        """What the contractions of a region take at least: as its search says, or where the clock ended that, as each does by itself."""
        if self.inside.watch.over():
            with suppress(Exhausted):
                least = self.at_least(one, self._ports)
                return max(bound, sum(self.figure(*least[name]) for name in one.members))
        return bound

    def _left_open(self, one: Fused, found: float, bound: float) -> None:
        """Remember by how much what was found, fused or not, may exceed what a region takes at least."""
        if found < inf:
            self.inside.left(self.inside.around.number(self.degrees), one, gap_of(found, bound))

    def unsolved(self, options: Sequence[Fused]) -> None:
        """Remember by how much operations, each on its own, may exceed what they take however those are fused that the clock left."""
        for group in rivals([one for one in options if self.fits(one)]):
            ops = {op.written: op for one in group for op in self._ops(one)}
            vectors = list(dict.fromkeys(name for one in group for name in one.vectors))
            read = Counter(t.name for op in ops.values() for t in self._asked(op)[0].tensors)
            on_chip = frozenset(n for n, times in read.items() if times > 1).union(*(one.between | {*one.resident} for one in group))
            alone = [self.inside.plain(self.architecture, op, self.degrees, self.aim.static_w).cost for op in ops.values()]
            launches = self.figure(0.0, self.inside.launch_s * (len(ops) + len(vectors) - 1))
            found = sum(self.figure(c.energy_j, c.latency_s) for c in alone) + launches
            least = sum(self.figure(*self._surely(op, on_chip)) for op in ops.values())
            apart, fused = (sum(self.figure(*self._vector(n, there)) for n in vectors) for there in (frozenset(), on_chip))
            for one in group:
                self._left_open(one, found + apart, least + fused)

    def _surely(self, op: LocalOp, on_chip: frozenset[str]) -> tuple[float, float]:
        problem, machine = self._asked(op)
        return surely(problem, machine, frozenset(t.name for t in problem.tensors) & on_chip, self.inside.spec.factors, self.tables)

    def _members(self, one: Fused) -> list[LocalOp]:
        return [self.inside.local_ops[name] for name in one.members]

    def _ops(self, one: Fused) -> list[LocalOp]:
        """The contractions of a region, then what makes its residents."""
        return [self.inside.local_ops[n] for n in (*one.members, *one.resident) if n in self.inside.local_ops]

    def _asked(self, op: LocalOp) -> tuple[NestProblem, NestMachine]:
        problem = nest_problem(op, share_of(op, self.degrees))
        return problem, nest_machine(self.architecture, op, problem)

    def _alone(self, one: Fused) -> float:
        """What the region and the makers cost, each on its own, with the launches that one kernel saves."""
        return sum(map(self._figure_alone, self._ops(one))) + self._beside(one)

    def _figure_alone(self, op: LocalOp) -> float:
        cost = self.inside.plain(self.architecture, op, self.degrees, self.aim.static_w).cost
        return self.figure(cost.energy_j, cost.latency_s)

    def _alone_least(self, one: Fused) -> float:
        """What they cost at least, each on its own, of perfect factors."""
        if self.inside.spec.factors == "ceil":
            return -inf
        return self._beside(one) + sum(self.figure(*self._least(*self._asked(op), frozenset(), self._fastest)) for op in self._ops(one))

    def _least(self, problem: NestProblem, machine: NestMachine, inside: frozenset[str], seconds: Seconds) -> tuple[float, float]:
        """Joules and seconds of an operation at least whose tensors `inside` are on chip for nothing. Raises Exhausted."""
        known, key = self.inside.known_regions.least, (problem.name, tuple(problem.sizes.items()), inside)
        if key not in known:
            known[key] = self._least_on_chip(problem, machine, inside)
        return known[key], seconds(problem, machine, inside)

    def _ports(self, problem: NestProblem, machine: NestMachine, inside: frozenset[str]) -> float:
        """Seconds of an operation at least whose tensors `inside` are on chip for nothing: on all units, and where time counts of each port
        by itself."""
        if self.aim.energy_only or self.inside.spec.factors == "ceil":
            return self._fastest(problem, machine, inside)
        known, key = self.inside.known_regions.ports, (problem.name, tuple(problem.sizes.items()), inside)
        return once(known, key, lambda: ports_on_chip(problem, machine, inside, Effort(ends=self.inside.watch.ends), self.tables))

    def _fastest(self, problem: NestProblem, machine: NestMachine, inside: frozenset[str]) -> float:
        """Seconds of an operation at least whose tensors `inside` are on chip for nothing: on all units, and where time counts what its
        ports leave."""
        units = problem.macs * problem.density / (machine.compute.macs_per_s * machine.units)
        if self.aim.energy_only:
            return units
        known, key = self.inside.known_regions.fastest, (problem.name, tuple(problem.sizes.items()), inside)
        if key not in known and self.inside.spec.factors == "ceil":
            known[key] = fastest_beside(problem, machine, inside, self.tables)
        elif key not in known:
            known[key] = fastest_on_chip(problem, machine, inside, Effort(NEST_CELLS, self.inside.watch.ends), self.tables)
        return max(units, known[key])

    def _vectors(self, one: Fused, on_chip: frozenset[str]) -> float:
        """What the operations between cost, with these tensors on chip."""
        return sum((self.figure(*self._vector(name, on_chip)) for name in one.vectors), 0.0)

    def _vector(self, name: str, on_chip: frozenset[str]) -> tuple[float, float]:
        """Joules and seconds of an operation that is no contraction, by the tensor it writes."""
        rows, seconds = roofline_rows(self.architecture, self.inside.vectors[name], np.asarray([self.degrees]), on_chip)
        return float(sum(np.asarray(row.joules).item() for row in rows)), float(seconds[0])

    def fits(self, one: Fused) -> bool:
        """Whether all of a region that was found is there, one after another on one accelerator, and what stays has room."""
        if not set(one.vectors) <= set(self.inside.vectors):
            return False
        asked = [self._asked(op) for op in self._members(one)]
        if len(asked[0][1].levels) < 2:
            return False
        level, held = asked[0][1].levels[1], {t.name: (p, t) for p, _ in asked for t in p.tensors if t.name in one.resident}
        return level.capacity_bits is None or sum(level.bits(t) * t.tile_words(p.sizes) for p, t in held.values()) <= level.capacity_bits

    # -- a region in the nest's words
    def _region(self, one: Fused) -> tuple[Region, list[dict[str, str]]]:
        """The region, and new → old name of the ranks of each member."""
        lies = {joint.read: joint.makers[0] for joint in one.joints}  # what an operation writes lies where its first operand lay
        taken, views = set[str](), dict[View, str]()
        problems, machines, names = [], [], []
        whole = frozenset(index for joint in one.joints for index in joint.whole)
        for op in self._members(one):
            problem, machine = self._asked(op)
            new = apart(problem, taken & (set(problem.sizes) - self._linked(one, problem)))
            taken |= {new.get(rank, rank) for rank in problem.sizes}
            held_as = {t.name: lies.get(t.name) or views.setdefault(_view(problem, t), _apart(t.name, views)) for t in problem.tensors}
            as_held = tuple(replace(t, name=held_as[t.name]) for t in problem.tensors)
            problems.append(renamed_problem(replace(problem, tensors=as_held), new))
            atom = {new.get(rank, rank): n for rank, n in machine.compute.atom.items()}
            levels = tuple(replace(v, **self._as_held(v, held_as)) for v in machine.levels)
            machines.append(replace(machine, levels=levels, compute=replace(machine.compute, atom=atom)))
            names.append({renamed: old for old, renamed in new.items()})
        rows = tuple(self._running(joint, problems, one) for joint in one.joints if joint.over)
        held, between = self._held(one), {joint.makers[0]: self._vector(joint.read, one.between) for joint in one.joints if joint.vector}
        return Region(tuple(problems), tuple(machines), held, frozenset(one.resident), rows, whole, between), names

    @staticmethod
    def _as_held(level: Any, held_as: dict[str, str]) -> dict[str, Any]:
        """Lists of a level's tensors, what lies between under the name that it is held by."""

        def named(names: Any) -> Any:
            return None if names is None else tuple(dict.fromkeys(held_as.get(n, n) for n in names))

        bits = {held_as.get(name, name): n for name, n in level.bits_per_tensor.items()}
        return {"keep": named(level.keep), "bypass": named(level.bypass), "bits_per_tensor": bits}

    def _linked(self, one: Fused, problem: NestProblem) -> set[str]:
        """Ranks of a member that are those of another: of what lies between, and of what both read alike."""
        others = [other for op in self._members(one) if (other := self._asked(op)[0]).name != problem.name]
        read = {_view(other, t) for other in others for t in other.tensors}
        return {r for t in problem.tensors if t.name in one.between or _view(problem, t) in read for r in t.ranks}

    @staticmethod
    def _held(one: Fused) -> dict[str, tuple[int, int]]:
        """What lies between → first and last member that runs while its tile takes room."""
        held = {}
        for joint in one.joints:
            first, *others = joint.makers
            last = max(one.members.index(name) for name in joint.makers)
            held[first] = (one.members.index(first), one.members.index(joint.reader))
            held |= {name: (one.members.index(name), last) for name in others}
        return held

    def _running(self, joint: Joint, problems: Sequence[NestProblem], one: Fused) -> RunningRows:
        problem = problems[one.members.index(joint.makers[0])]
        rows = float(prod(problem.sizes[r] for r in problem.output.ranks if r != joint.over))
        reader = self.inside.local_ops[joint.reader]
        both = carrying(rows, reader, share_of(reader, self.degrees))
        statistics, scaled = (
            one.rows(self.architecture, joint.read, 1.0) for one in (replace(both, elements=0.0), replace(both, bits=0.0))
        )
        return RunningRows(joint.makers[0], joint.over, float(prod(STATISTICS)), *_spent(statistics), _spent(scaled))

    # -- nests
    def _maker(self, op: LocalOp, resident: tuple[str, ...]) -> Nested:
        """The nest of the operation that makes a tensor which stays on chip, whatever the region."""
        problem, _ = self._asked(op)
        kept = tuple(name for name in resident if name in {t.name for t in problem.tensors})
        return once(self.makers, (problem.name, kept), lambda: self._made(op, kept))

    def _made(self, op: LocalOp, kept: tuple[str, ...]) -> Nested:
        problem, machine = self._asked(op)
        if self.inside.spec.factors == "ceil":
            effort = Effort(ends=self.inside.watch.ends)
            found = ragged_resident(problem, machine, self.aim, kept, effort, self.tables)
            return Nested(problem, machine, found.mapping, found.cost, sheet_of(found.certificate, problem, found.mapping), kept)
        asked = canonical(problem, machine, merged=True)
        stays = tuple(sorted(new for new, old in asked.tensors.items() if old in kept)) or kept
        answer = self.inside.beside(asked, self.aim.static_w, stays)
        mapping = asked.original(NestMapping.from_dict(answer["mapping"]))
        return Nested(problem, machine, mapping, evaluate(problem, machine, mapping, frozenset(kept)), answer["certificate"], kept)

    def _solve(self, one: Fused, region: Region, names: Sequence[dict[str, str]], below: float) -> list[Nested]:
        effort = Effort(REGION_CELLS, self.inside.watch.ends)
        asked: dict[str, Any] = {"objective": self.aim, "factors": self.inside.spec.factors, "around_some": one.around_some}
        found = self.inside.known_regions.solve(region, asked, below, effort, self.tables)
        self.running = found.running
        nests = []
        for number, (op, mapping, back) in enumerate(zip(self._members(one), found.mappings, names, strict=True)):
            once, machine = self._asked(op)
            again = {r: n for r, n in found.problems[number].sizes.items() if r not in region.members[number].sizes}
            problem = again_in(once, again)
            views = {t.name: real.name for t, real in zip(region.members[number].tensors, once.tensors, strict=True)}
            own = views | {joint.makers[0]: joint.read for joint in one.joints if joint.reader == one.members[number]}
            own_mapping = renamed_tensors(renamed_mapping(mapping, back), own)
            mine = {t.name for t in problem.tensors}
            kept = mine & {*one.between, *one.resident, *(views.get(name, name) for name in found.inside[number])}
            cost = evaluate(problem, machine, own_mapping, frozenset(kept))
            sheet = sheet_of(found.certificate, problem, mapping) if not number else {}
            nests.append(Nested(problem, machine, own_mapping, cost, sheet, tuple(sorted(kept)), again=again))
        return nests
