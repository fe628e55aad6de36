"""The loop nest in the roofline's place: same local operations in, same rows out, tiles and loop order searched exactly.

Each distinct contraction (local sizes, machine, objective) is solved once and remembered on disk. Latency is the slowest
of compute and each level's traffic; the binding one's rows carry the exposed seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.nest_view import nest_machine, nest_name, nest_problem
from rackmodel.cost.inside.roofline import Row, roofline_rows
from rackmodel.cost.program.tasks import Degrees, LocalOp, Task
from rackmodel.cost.step.tasks.fused_kernels import numbered
from rackmodel.cost.step.tasks.layer_inside import PricedLayer
from rackmodel.cost.step.tasks.windows import Kernels
from rackmodel.errors import InfeasibleError, InputError, RackmodelError
from rackmodel.mapper.nests.around import share_of
from rackmodel.mapper.nests.found_fusion import CARRIED, Fused, as_declared, check_apart, regions, rivals_of, unruled
from rackmodel.mapper.nests.fused_regions import FusedRegions, carrying, taken_in_part
from rackmodel.mapper.nests.given_nests import check_given
from rackmodel.mapper.nests.late_bounds import bounded_late
from rackmodel.mapper.nests.layer_nests import LayerNests
from rackmodel.mapper.nests.nest_demands import check_demands, demands_on
from rackmodel.mapper.nests.nest_fronts import NestFront
from rackmodel.mapper.nests.nest_rows import nest_rows, repeated, side_by_side
from rackmodel.mapper.nests.nested import Nested, least_part, sheet_of
from rackmodel.mapper.nests.nests_remembered import plain_data, remembered
from rackmodel.mapper.nests.one_kernel import firsts_of, in_place, might_be_shorter
from rackmodel.mapper.rules import left_free
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Workload
from rackmodel.nests.canonical import Canonical, as_it_is, canonical
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
    fused = unruled(workload, fused, mapper.inside.rules, found=mapper.inside.fuse == "free")
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


class NestInside(LayerNests):
    """A local_op pricer that searches (or is given) the loop nest of every contraction; vector operations stay at the roofline."""

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

    def __call__(self, architecture: Architecture, local_op: LocalOp, degrees: Degrees) -> tuple[list[Row], Array]:
        """Rows and duration [n] of a local operation on one accelerator."""
        if not local_op.macs or local_op.result is None:
            if not self.local_ops or (not self.fused and self.given is None):
                return roofline_rows(architecture, local_op, degrees)
            found = [self._between(architecture, local_op, row) for row in degrees]
            return side_by_side([rows for rows, _ in found]), np.concatenate([np.atleast_1d(seconds) for _, seconds in found])
        if self.given is not None and nest_name(local_op) not in self.given:
            raise InputError(f"no loop nest for '{nest_name(local_op)}'", path="nests", known=list(self.given), given=nest_name(local_op))
        rows = side_by_side([self._nest_rows(architecture, local_op, row) for row in degrees])  # (fused on some meshes, it has fewer there)
        return rows, np.asarray(sum(row.exposed for row in rows))

    def _nest_rows(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> list[Row]:
        """Rows of a contraction at one mesh's degrees."""
        rows = nest_rows(self.nest(architecture, local_op, degrees), self.share(local_op, degrees))
        return [repeated(row, self._part(architecture, local_op, degrees)) for row in rows] if self.at_least else rows

    def _part(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> float:
        """What is left of the cost of an operation where it takes what it does at least. What may be fused is fused one way or another: all
        of it is as far below what was found as any of it may be, alone or fused."""
        together = rivals_of(self.fused, local_op.written)
        names = {name for one in together for name in one.taken}
        ops = [op for op in self.contractions if op.result is not None and op.result.name in names] if together else [local_op]
        least = least_part([self.nest(architecture, op, degrees) for op in ops if op.macs])
        number = self.around.number(degrees)
        return min([least, *(1 - self.left_open.get((number, one), 0.0) for one in together)])

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
                watts, home = self.watts(architecture) / self.share(local_op, degrees), self.home(local_op, problem)
                self.solved[key] = (
                    self._search(problem, machine, watts, home) if home else self.plain(architecture, local_op, degrees, watts)
                )
        return self.solved[key]

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
        shares = [self.share(one, degrees) for one in (*self.local_ops.values(), *self.vectors.values())]
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
        merged = self.spec.factors == "perfect" and self.spec.solver != "cpsat"  # which is to be another opinion
        asked = canonical(problem, machine, merged=merged) if rules is None and not home else as_it_is(problem, machine)
        self.watch.say(f"loop nest of {problem.name}")
        question, aim = self._question(asked, watts, rules, home), replace(self.aim, static_w=watts)
        front = self.fronts.setdefault(json.dumps(question | {"objective": []}), NestFront())
        before, kept = front.before(aim) if self.goes_on else (), front if self.goes_on or aim.name == "edp" else None
        asks = question | {"after": plain_data([asdict(one) for one in before])} if before else question
        given = asked.problem, asked.machine, rules, watts, home
        answer = remembered(asks, lambda effort: self._solve(*given, effort, (), before, kept), self.watch)
        if kept is not None:
            kept.opened(aim, before, answer["certificate"]["gap"])
        found = NestMapping.from_dict(answer["mapping"])
        cost = evaluate(asked.problem, asked.machine, found, home=frozenset(home))
        best, certificate = front.record(aim, found, cost, answer["certificate"])
        mapping = asked.original(best)
        cost = evaluate(problem, machine, mapping, home=frozenset(home))
        return Nested(problem, machine, mapping, cost, certificate, home=home)

    def beside(self, asked: Canonical, watts: float, resident: tuple[str, ...]) -> dict[str, Any]:
        """The mapping and certificate of the best nest of a contraction some of whose tensors stay on chip (CP-SAT takes none). watts:
        static power. Raises InfeasibleError."""
        given = asked.problem, asked.machine, None, watts, ()
        return remembered(self._question(asked, watts, resident=resident), lambda effort: self._solve(*given, effort, resident), self.watch)

    def _question(
        self,
        asked: Canonical,
        watts: float,
        rules: NestConstraints | None = None,
        home: tuple[str, ...] = (),
        resident: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """All that is asked of a nest. watts: static power · resident: what stays on chip."""
        what, where = asked.question()
        return {
            "problem": plain_data(asdict(what)),
            "machine": plain_data(asdict(where)),
            "objective": [self.aim.name, watts, self.aim.energy_weight, self.aim.latency_weight],
            "factors": self.spec.factors,
            "solver": self.spec.solver,
            "rules": repr(rules),
            "home": list(home),
            "resident": list(resident),
        }

    def _ruled(self, problem: NestProblem) -> str:
        """The operation whose rules a contraction's nest is under; '*': those of all."""
        return next((op for op, tensor in self.written.items() if tensor == problem.output.name and tensor in self.rules), "*")

    def _solve(
        self,
        problem: NestProblem,
        machine: NestMachine,
        rules: NestConstraints | None,
        watts: float,
        home: tuple[str, ...],
        effort: Effort,
        resident: tuple[str, ...] = (),
        before: tuple[NestObjective, ...] = (),
        front: NestFront | None = None,
    ) -> dict[str, Any]:
        """The mapping and certificate of the best nest. before: aims whose searches this one goes on with · front: what these left, and
        where what this one leaves is kept."""
        from rackmodel.nests import NestSolution, solve_nest

        def solved(aim: NestObjective, begun: NestSolution | None) -> NestSolution:
            return solve_nest(
                problem,
                machine,
                objective=aim,
                factors=self.spec.factors,
                solver="auto" if resident else self.spec.solver,
                constraints=rules,
                home=home,
                resident=resident,
                effort=effort,
                begun=begun,
            )

        aim = replace(self.aim, static_w=watts)
        found = solved(aim, None if front is None else front.begun(before, solved))
        if front is not None:
            front.keep(before, aim, found)
        certificate = sheet_of(found.certificate, problem, found.mapping)
        return {"mapping": found.mapping.to_dict(), "certificate": certificate}
