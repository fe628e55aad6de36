"""The loop nest in the roofline's place: same local operations in, same rows out, tiles and loop order searched exactly.

Each distinct contraction (local sizes, machine, objective) is solved once and remembered on disk. Latency is the slowest
of compute and each level's traffic; the binding one's rows carry the exposed seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from math import prod
from typing import Any

import numpy as np

from rackmodel.cost.inside.nest_view import nest_machine, nest_name, nest_problem, resting
from rackmodel.cost.inside.roofline import Array, Row, roofline_rows
from rackmodel.cost.program.tasks import Degrees, LocalOp, Task
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.tasks.fused_kernels import numbered
from rackmodel.cost.step.tasks.layer_inside import LayerInside, PricedLayer
from rackmodel.cost.step.tasks.windows import Kernels
from rackmodel.errors import InfeasibleError, InputError, RackmodelError
from rackmodel.mapper.nests.around import Around, NestKey, share_of
from rackmodel.mapper.nests.found_fusion import CARRIED, Fused, as_declared, check_apart, regions, rivals_of
from rackmodel.mapper.nests.fused_regions import FusedRegions, carrying, taken_in_part
from rackmodel.mapper.nests.given_nests import check_given
from rackmodel.mapper.nests.known_regions import KnownRegions
from rackmodel.mapper.nests.late_bounds import bounded_late
from rackmodel.mapper.nests.nest_demands import check_demands, demands_on
from rackmodel.mapper.nests.nest_fronts import NestFront
from rackmodel.mapper.nests.nest_rows import nest_rows, repeated, side_by_side, stacked
from rackmodel.mapper.nests.nested import Nested, least_part, sheet_of
from rackmodel.mapper.nests.nests_remembered import plain_data, remembered
from rackmodel.mapper.nests.one_kernel import firsts_of, in_place, might_be_shorter
from rackmodel.mapper.rules import left_free
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import InsideSpec, MapperSpec, NestRules
from rackmodel.model.resources import KINDS, ROLES
from rackmodel.model.workload import Workload
from rackmodel.nests.canonical import as_it_is, canonical
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.region_loops import again_in
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.watch import UNWATCHED, Watch


def nest_inside(mapper: MapperSpec, workload: Workload, aim: tuple[NestObjective, float | None], watch: Watch = UNWATCHED) -> NestInside:
    """The loop-nest search of a mapper. aim: as of nest_aims. Raises InputError for rules of no operation."""
    for name in mapper.inside.rules:
        if name != "*" and name not in workload.ops:
            raise InputError(f"no operation '{name}'", path=f"inside.rules.{name}", known=["*", *workload.ops], given=name)
        if name != "*" and workload.ops[name].kind.name != "einsum":
            known = ["*", *(op.name for op in workload.ops.values() if op.kind.name == "einsum")]
            raise InputError(f"{name} is no contraction and has no loop nest", path=f"inside.rules.{name}", known=known)
    rules = {(workload.ops[name].out.tensor if name != "*" else "*"): said for name, said in mapper.inside.rules.items()}
    fused = [as_declared(workload, said, number) for number, said in enumerate(mapper.inside.fuse if mapper.inside.fuse != "free" else ())]
    check_apart(fused)
    if mapper.inside.fuse == "free":
        if workload.phases != ("forward",):
            raise InputError("what to fuse is found for a forward pass: a backward pass reads the tensor between", path="inside.fuse")
        fused = regions(workload)
    written = {op.name: op.out.tensor for op in workload.ops.values()}
    return NestInside(
        mapper.inside,
        aim[0],
        second_j=aim[1],
        rules=rules,
        fused=fused,
        written=written,
        open_=any(left_free(mapper)),
        watch=watch,
    )


class NestInside(LayerInside):
    """A local_op pricer that searches (or is given) the loop nest of every contraction; vector operations stay at the roofline.

    given: contraction → nest of a mapping file, instead of a search · rules: result tensor of a forward contraction → demands ·
    written: operation → the tensor it writes, for messages · second_j: joules that a second counts for, None = the static power · open_:
    whether layouts are free.
    """

    def __init__(
        self,
        spec: InsideSpec,
        aim: NestObjective,
        *,
        second_j: float | None = None,
        given: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Mapping[str, NestRules] | None = None,
        fused: Sequence[Fused] = (),
        written: Mapping[str, str] | None = None,
        open_: bool = False,
        watch: Watch = UNWATCHED,
    ) -> None:
        self.watch, self.open = watch, open_
        self.spec, self.given, self.rules, self.fused = spec, given, dict(rules or {}), tuple(fused)
        self.written = dict(written or {})
        if spec.home and spec.fuse:
            raise InputError("fused pairs and tensors at home are not searched together; drop one of the two", path="inside.home")
        self.local_ops: dict[str, LocalOp] = {}
        self.vectors: dict[str, LocalOp] = {}  # that are no contractions, by the tensor they write
        self.ranks: set[str] = set()
        self.aim, self.second_j = aim, second_j
        self.basis = self  # whose nests have each its own least of what the step is to have least
        self.ragged = False  # whether an accelerator's share is less than the fullest one's
        self.hidden = False  # whether other lanes, other stages, windows or the host may hide seconds of a nest
        self.unlike = 0.0  # by how much shares of operations that may be fused differ, of the largest
        self.around = Around()  # what else the operations of a plan are, and what links carry between them
        self.fused_at: set[tuple[object, ...]] = set()  # of them (and the region, where it is declared), where what to fuse was found
        self.unfused = False  # whether time or effort ended before a pair was tried
        self.not_fused = 0.0  # gap of what was found, of any region that was looked at, to what that region could take
        self.left_open: dict[tuple[int, Fused], float] = {}  # the same of one region, by the number of what is around its nests
        self.at_least = False  # whether nests are priced as what they cost at least
        self.shorter = 0.0  # by how much of itself a layer might be, whose host or windows hide seconds of its nests (of least latency)
        self.charge = 0.0  # joules that are added for each second of an accelerator's device
        self.launch_s = 0.0  # what a launch saved counts for where regions are compared
        self.settled: float | None = None  # the gap, where another search told it
        self.solved: dict[NestKey, Nested] = {}
        self.known_regions = KnownRegions()
        self.known_alone: dict[tuple[object, ...], Nested] = {}  # nests of operations on their own, by sizes and aim
        self.fronts: dict[str, NestFront] = {}  # of nests by all that is asked of them but the aim
        self.no_room: dict[Fused, InfeasibleError | None] = {}  # declared regions under layouts that are free; None: under some it has room

    @property
    def widest_gap(self) -> float:
        """The largest gap of all nests solved, of their figures; 1 where a pair was not fused for want of time."""
        if self.settled is not None:
            return self.settled
        return 1.0 - (1.0 - self.nests_gap) * (1.0 - self.shorter) if self.shorter else self.nests_gap

    @property
    def nests_gap(self) -> float:
        """The same of the sum of nests, whatever hides their seconds."""
        if self.unfused:
            return 1.0
        gaps = (float(nest.certificate.get("gap", 0.0)) for nest in self.solved.values() if nest.certificate)
        widest = max(gap / (1 + gap) for gap in (*gaps, self.not_fused))
        return 1.0 - (1.0 - widest) * (1.0 - self.unlike) if self.unlike and self.aim.name != "latency" else widest

    @property
    def plan(self) -> int:
        """Number of the plan whose operations it knows."""
        return self.around.plan

    @property
    def contractions(self) -> list[LocalOp]:
        """Those of the operations it knows."""
        return [op for op in self.local_ops.values() if op.macs]

    def aimed(self, aim: NestObjective, launch_s: float = 0.0, *, second_j: float | None = None) -> NestInside:
        """The same search of nests, for another aim. launch_s: what a launch saved counts for where regions are compared · second_j: joules
        that a second counts for."""
        other = copy(self)
        other.second_j, other.hidden, other.unlike, other.charge = second_j, False, 0.0, 0.0
        other.shorter, other.launch_s, other.settled = 0.0, launch_s, None
        other.aim, other.solved, other.fused_at, other.basis, other.not_fused = aim, {}, set(), self.basis, 0.0
        other.around, other.left_open = copy(self.around), {}
        return other

    def apart_from_others(self) -> NestInside:
        """The same search of nests, of operations of which none is fused."""
        other = copy(self)
        other.fused, other.local_ops, other.vectors = (), {}, {}
        return other

    def of_region(self, one: Fused) -> NestInside:
        """The same search of nests, of a region's operations."""
        other = self.aimed(self.aim, self.launch_s, second_j=self.second_j)
        other.fused, other.around, other.fused_at = (one,), Around(), set()
        return other

    def told_by(self, other: NestInside) -> None:
        """Know what gaps the nests of another search of the same aim have."""
        self.unfused = self.unfused or other.unfused
        self.unlike = max(self.unlike, other.unlike)
        gaps = (float(nest.certificate.get("gap", 0.0)) for nest in other.solved.values())
        self.not_fused = max([self.not_fused, other.not_fused, *gaps])

    def charging(self, architecture: Architecture) -> NestInside:
        """The same nests, each second of the device charged with the joules that it counts for: the very sum that they have least."""
        other = copy(self)
        other.charge = self.watts(architecture)
        return other

    def lessened(self) -> NestInside:
        """The same nests, each priced as what it costs at least: what a step of such prices takes, no step of true ones is below."""
        other = copy(self)
        other.at_least = True
        return other

    @property
    def second_charge(self) -> float:
        """Joules that are added for each second of an accelerator's device."""
        return self.charge

    def prepare(self, tasks: Iterable[Task]) -> None:
        """Know the forward tasks of a plan: the operations of a fused region and what links carry between them, which tensors are weights,
        and every name."""
        tasks = list(tasks)
        every = [task.local_op for task in tasks if task.local_op is not None and task.phase == "forward"]
        self.around.told(every, tasks)
        self.local_ops = {local_op.result.name: local_op for local_op in every if local_op.result is not None}
        self.vectors = {local_op.written: local_op for local_op in every if not local_op.macs and local_op.writes}
        names = {operand.name for local_op in self.local_ops.values() for operand in local_op.operands} | set(self.local_ops)
        self.ranks = {index for local_op in self.local_ops.values() for index, _, _ in local_op.space}
        known = [*KINDS, *ROLES, *sorted(names)]
        for word in self.spec.home:
            if word not in known and word not in {f"d{name}" for name in names}:
                raise InputError(f"no tensor '{word}'", path="inside.home", known=known, given=word)

    def apart(self, degrees: Any) -> tuple[str, ...]:
        """What a mapper asks to fuse and is not at one mesh's degrees, and why."""
        if self.spec.fuse == "free":
            return ()
        why = self.around.off_chip(degrees)
        for one in self.fused:
            if set(one.members) <= set(self.local_ops):
                why = dict.fromkeys(taken_in_part(self, one, degrees), "it is made whole and taken in part") | why
        found = {name: why[name] for one in self.fused for name in (*sorted(one.between), *one.resident) if name in why}
        return tuple(f"fuse: {name} does not stay on chip: {reason}" for name, reason in found.items())

    def home(self, local_op: LocalOp, problem: NestProblem) -> tuple[str, ...]:
        """Tensors of a local operation that are at home in the innermost memory."""
        weights = [operand.name for other in self.local_ops.values() for operand in other.operands if operand.weight]
        return resting(local_op, problem, self.spec.home, weights) if self.spec.home else ()

    def __call__(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> tuple[list[Row], Array]:
        """Rows and duration [n] of a local operation on one accelerator."""
        if not local_op.macs or local_op.result is None:
            if not self.local_ops or (not self.fused and self.given is None):
                return roofline_rows(architecture, local_op, degrees)
            found = [self._between(architecture, local_op, row) for row in degrees]
            return side_by_side([rows for rows, _ in found]), np.concatenate([np.atleast_1d(seconds) for _, seconds in found])
        if self.given is not None and nest_name(local_op) not in self.given:
            raise InputError(f"no loop nest for '{nest_name(local_op)}'", path="nests", known=list(self.given), given=nest_name(local_op))
        each = [self._nest_rows(architecture, local_op, row) for row in degrees]
        rows = [stacked([one[position] for one in each]) for position in range(len(each[0]))]
        return rows, np.asarray(sum(row.exposed for row in rows))

    def _nest_rows(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> list[Row]:
        """Rows of a contraction at one mesh's degrees."""
        rows = nest_rows(self.nest(architecture, local_op, degrees), self._share(local_op, degrees))
        return [repeated(row, self._part(architecture, local_op, degrees)) for row in rows] if self.at_least else rows

    def _part(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> float:
        """What is left of the cost of an operation where it takes what it does at least. What may be fused is fused one way or another: all
        of it is as far below what was found as any of it may be, alone or fused."""
        together = rivals_of(self.fused, local_op.written)
        names = {name for one in together for name in one.taken}
        ops = [op for op in self.contractions if op.result is not None and op.result.name in names] if together else [local_op]
        least = least_part([self.nest(architecture, op, degrees) for op in ops if op.macs])
        number = self.around.number(degrees)
        return min([least, *(1 / (1 + self.left_open.get((number, one), 0.0)) for one in together)])

    def left(self, number: int, one: Fused, gap: float) -> None:
        """Remember the gap of what was found, fused or not, to what a region takes at least."""
        self.not_fused = max(self.not_fused, gap)
        self.left_open[number, one] = max(self.left_open.get((number, one), 0.0), gap)

    def _share(self, local_op: LocalOp, degrees: Any) -> float:
        """What an accelerator does of what the fullest one does, in the mean."""
        here = np.asarray([degrees], dtype=np.int64)
        share = float(local_op.exact(here)[0] / local_op.fullest(here)[0])
        self.basis.ragged |= share < 1
        return share

    def nest(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> Nested:
        """The nest of a local operation at one mesh's degrees."""
        key = self.key(local_op, degrees)
        if key not in self.solved:
            problem = nest_problem(local_op, share_of(local_op, degrees))
            machine = nest_machine(architecture, local_op, problem)
            if self.given is None and self.fused:
                self._fuse(architecture, local_op, degrees)
            if self.given is not None:
                self.solved[key] = self._given(problem, machine, self.around.off_chip(degrees))
            elif key not in self.solved:
                watts, home = self.watts(architecture) / self._share(local_op, degrees), self.home(local_op, problem)
                self.solved[key] = (
                    self._search(problem, machine, watts, home) if home else self.plain(architecture, local_op, degrees, watts)
                )
        return self.solved[key]

    def watts(self, architecture: Architecture) -> float:
        """Joules that a second of an accelerator counts for."""
        return static_watts(architecture) / architecture.used if self.second_j is None else self.second_j

    def key(self, local_op: LocalOp, degrees: Any) -> NestKey:
        """By what the nest of a local operation is known: its sizes, and where it may be fused those of all others and what links carry."""
        alone = local_op.result is None or all(local_op.result.name not in one.taken for one in self.fused)
        return nest_name(local_op), tuple(share_of(local_op, degrees).items()), None if alone else self.around.number(degrees)

    def _fuse(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> None:
        """Solve the declared region that a local operation is in, and keep it where it is better than its nests alone; where regions are to
        be found, all that save most together."""
        assert local_op.result is not None
        there = self.may_fuse(architecture, degrees)
        mine = [f for f in there if local_op.result.name in f.taken]
        if not mine or self.aim.name == "edp":  # EDP is no sum over nests: weighted sums are searched for it (nest_trades)
            return
        at = (self.around.number(degrees), *(() if self.spec.fuse == "free" else mine[0].members))
        if at in self.fused_at:
            return
        self.fused_at.add(at)
        search = self.fusing(architecture, degrees)
        try:
            chosen = search.best(there) if self.spec.fuse == "free" else [f for f in mine[:1] if self._saves(search, f)]
        except Exhausted:
            self.watch.over()
            search.unsolved(there if self.spec.fuse == "free" else mine[:1])
            return
        for one in chosen:
            self.solved.update(search.nests[one])

    def fusing(self, architecture: Architecture, degrees: Any, tables: SharedTables | None = None) -> FusedRegions:
        """What says what regions save at one mesh's degrees. tables: shared with searches of other regions."""
        shares = [self._share(one, degrees) for one in (*self.local_ops.values(), *self.vectors.values())]
        self.unlike = max(self.unlike, 1 - min(shares) / max(shares))
        return FusedRegions(self, architecture, degrees, self.watts(architecture) / max(shares), tables)

    def _saves(self, search: FusedRegions, one: Fused) -> bool:
        """Whether a declared region is better than its operations alone. Raises InfeasibleError where it has no room, but for layouts that
        are free: others may leave it some."""
        try:
            saves = search.saves(one)
        except InfeasibleError as problem:
            if not self.open:
                raise
            self.no_room.setdefault(one, problem)
            return False
        self.no_room[one] = None
        return saves

    def check_room(self) -> None:
        """Raise InfeasibleError where a declared region has no room under any layout that was looked at."""
        for problem in self.no_room.values():
            if problem is not None:
                raise problem

    def may_fuse(self, architecture: Architecture, degrees: Any) -> list[Fused]:
        """The regions that may be fused at one mesh's degrees."""
        off_chip = self.around.off_chip(degrees)
        there = [f for f in self.fused if set(f.members) <= set(self.local_ops) and not off_chip.keys() & {*f.between, *f.resident}]
        alike = FusedRegions(self, architecture, degrees, 0.0).alike
        return [f for f in there if alike(f)]

    def kernels(self, architecture: Architecture, tasks: Sequence[Task], degrees: Degrees) -> Kernels:
        """Which tasks of a layer run as one kernel."""
        firsts = [self.firsts(architecture, row) for row in degrees]
        return numbered(tasks, firsts) if any(firsts) else {}

    def firsts(self, architecture: Architecture, degrees: Any) -> dict[str, str]:
        """What each fused operation writes → what the first of its kernel writes, at one mesh's degrees."""
        return firsts_of(self, architecture, degrees) if self.fused or self.given is not None else {}

    def came_to(self, layer: PricedLayer) -> None:
        """Remember by how much a layer might be shorter whose host or windows hide seconds of its nests; of nests that were given, check
        that they agree."""
        if self.given is not None:
            check_given(self)
        if self.given is None and not layer.device_alone:
            self.hidden = True
            self.shorter = max(self.shorter, might_be_shorter(self, layer)) if self.aim.name == "latency" else 0.0

    def _between(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> tuple[list[Row], Array]:
        """Rows and duration of an operation that is no contraction: on tiles in place where the contractions around it are fused."""
        here = np.asarray([degrees], dtype=np.int64)
        around, nests = in_place(self, architecture, local_op, degrees)
        part = self._part(architecture, local_op, degrees) if self.at_least else 1.0
        if not around:
            rows, seconds = roofline_rows(architecture, local_op, here)
            return [repeated(row, part) for row in rows], seconds * part
        reader, names = around[0], {local_op.written, *(flow.name for flow in local_op.reads)}
        once, seconds = roofline_rows(architecture, local_op, here, frozenset(names))
        rows, seconds = [repeated(row, nests[1].runs) for row in once], seconds * nests[1].runs
        further, held = self._further_tiles(nests[1], reader)
        if local_op.kind in CARRIED:
            carried = carrying(held, reader, share_of(reader, degrees), nests[0].runs)
            more = carried.rows(architecture, local_op.written, further)
            rows, seconds = [*rows, *more], seconds + sum(row.exposed for row in more)
        return [repeated(row, part) for row in rows], seconds * part

    @staticmethod
    def _further_tiles(nest: Nested, reader: LocalOp) -> tuple[float, float]:
        """(tiles of a row beyond the first, rows) of what a nest writes and a reader sums; rows are whole where it sums over more."""
        assert reader.result is not None
        output = nest.problem.output
        along = [r for r in output.ranks if r not in reader.result.access.names and r not in nest.again]
        tiles = float(nest.tiles_of(output.name, along[0])) if len(along) == 1 else 1.0
        return tiles - 1.0, prod(float(nest.problem.sizes[r]) for r in output.ranks if r not in along)

    def plain(self, architecture: Architecture, local_op: LocalOp, degrees: Any, watts: float) -> Nested:
        """The nest of a local operation on its own."""
        sizes = share_of(local_op, degrees)
        key = (nest_name(local_op), tuple(sizes.items()), self.aim, watts)
        if key not in self.known_alone:
            problem = nest_problem(local_op, sizes)
            nest = self._search(problem, nest_machine(architecture, local_op, problem), watts)
            late = nest.certificate["gap"] > 0 and self.watch.over()
            self.known_alone[key] = bounded_late(nest, replace(self.aim, static_w=watts), self.spec.factors) if late else nest
        return self.known_alone[key]

    def _given(self, problem: NestProblem, machine: NestMachine, off_chip: Mapping[str, str]) -> Nested:
        assert self.given is not None
        try:
            said = json.loads(json.dumps(self.given[problem.name]))
            resident, home, again = tuple(said.pop("resident", ())), tuple(said.pop("home", ())), said.pop("again", {})
            for key, name in (("problem", problem.name), ("machine", machine.name)):
                if said[key] != name:
                    raise RackmodelError(f"{key} is '{said[key]}', this is of '{name}'")
            for name in resident:
                if name in off_chip and (name == problem.output.name or not self._fetched(name)):
                    raise RackmodelError(f"resident {name}: {off_chip[name]}, so that it does not stay on chip")
            if again and (problem.output.name not in resident or set(again) & set(problem.sizes)):
                raise RackmodelError(f"again {again}: expected ranks it does not have, and {problem.output.name} resident")
            problem = again_in(problem, again)
            mapping = NestMapping.from_dict(said)
            cost = evaluate(problem, machine, mapping, frozenset(resident), frozenset(home))
        except (RackmodelError, KeyError, TypeError) as wrong:
            raise InputError(str(wrong), path=f"nests.{problem.name}")
        return Nested(problem, machine, mapping, cost, {}, resident, home, again)

    def _fetched(self, name: str) -> bool:
        """Whether a nest of a mapping file brings a tensor on chip, where others then find it."""
        assert self.given is not None
        reading = [op for op in self.local_ops.values() if any(operand.name == name for operand in op.operands)]
        return any(name not in self.given.get(nest_name(op), {}).get("resident", ()) for op in reading)

    def _search(self, problem: NestProblem, machine: NestMachine, watts: float, home: tuple[str, ...] = ()) -> Nested:
        rules = demands_on(problem, self.rules, self.ranks)
        if rules is not None:
            check_demands(rules, problem, machine, self._ruled(problem))
        asked = canonical(problem, machine) if rules is None and not home else as_it_is(problem, machine)
        what, where = asked.question()
        question = {
            "problem": plain_data(asdict(what)),
            "machine": plain_data(asdict(where)),
            "objective": [self.aim.name, watts, self.aim.energy_weight, self.aim.latency_weight],
            "factors": self.spec.factors,
            "solver": self.spec.solver,
            "rules": repr(rules),
            "home": list(home),
        }
        self.watch.say(f"loop nest of {problem.name}")
        answer = remembered(question, lambda effort: self._solve(asked.problem, asked.machine, rules, watts, home, effort), self.watch)
        front = self.fronts.setdefault(json.dumps(question | {"objective": []}), NestFront())
        found = NestMapping.from_dict(answer["mapping"])
        cost = evaluate(asked.problem, asked.machine, found, home=frozenset(home))
        best, certificate = front.told(replace(self.aim, static_w=watts), found, cost, answer["certificate"])
        mapping = asked.original(best)
        cost = evaluate(problem, machine, mapping, home=frozenset(home))
        return Nested(problem, machine, mapping, cost, certificate, home=home)

    def _ruled(self, problem: NestProblem) -> str:
        """The operation whose rules a contraction's nest is under; '*': those of all."""
        return next((op for op, tensor in self.written.items() if tensor == problem.output.name and tensor in self.rules), "*")

    def _solve(
        self, problem: NestProblem, machine: NestMachine, rules: NestConstraints | None, watts: float, home: tuple[str, ...], effort: Effort
    ) -> dict[str, Any]:
        from rackmodel.nests import solve_nest

        found = solve_nest(
            problem,
            machine,
            objective=replace(self.aim, static_w=watts),
            factors=self.spec.factors,
            solver=self.spec.solver,
            constraints=rules,
            home=home,
            effort=effort,
        )
        certificate = sheet_of(found.certificate, problem, found.mapping)
        return {"mapping": found.mapping.to_dict(), "certificate": certificate}
