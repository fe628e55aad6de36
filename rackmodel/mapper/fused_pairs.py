"""Pairs of contractions fused on one accelerator: what a pair saves, and which pairs save most together (found_fusion)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from math import inf
from typing import TYPE_CHECKING, Any

from rackmodel.cost.inside.nest_view import nest_machine, nest_name, nest_problem
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.found_fusion import Region, most_saved
from rackmodel.mapper.nested import Fused, Nested, sheet_of
from rackmodel.model.architecture import Architecture
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.rank_names import apart, renamed_mapping, renamed_problem
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.fusion import least_on_chip

if TYPE_CHECKING:
    from rackmodel.mapper.loop_nests import NestInside


class FusedPairs:
    """Pairs of local operations at one mesh's degrees, fused. nests: of the pairs that were solved, with the makers of what stays."""

    def __init__(self, inside: NestInside, architecture: Architecture, degrees: Any) -> None:
        self.inside, self.architecture, self.degrees = inside, architecture, degrees
        self.least: dict[tuple[str, frozenset[str]], float] = {}  # joules of an operation whose tensors are on chip for nothing
        self.nests: dict[Fused, dict[tuple[str, tuple[tuple[str, int], ...]], Nested]] = {}

    def best(self, pairs: Sequence[Fused]) -> list[Fused]:
        """The pairs that save most together."""
        named = {Region(*astuple(pair)): pair for pair in pairs if self._fits(pair)}
        return [named[r] for r in most_saved(list(named), lambda r: self.hope(named[r]), lambda r: self.gain(named[r]))]

    def hope(self, pair: Fused) -> float:
        """Joules that a pair saves at most. Raises Exhausted."""
        on_chip = frozenset((pair.first, *pair.resident))
        least = 0.0
        for one in self._ops(pair):
            problem, machine = self._asked(one)
            inside = on_chip & {t.name for t in problem.tensors}
            if (problem.name, inside) not in self.least:
                self.least[problem.name, inside] = least_on_chip(problem, machine, inside, Effort(ends=self.inside.watch.ends))
            least += self.least[problem.name, inside]
        return self._alone(pair) - least

    def gain(self, pair: Fused) -> float:
        """Joules that a pair saves; -inf where it does not fit."""
        first, second, *makers = self._ops(pair)
        alone = self._alone(pair)
        try:
            nests = [*self._solve(first, second, pair), *(self._maker(one, pair.resident) for one in makers)]
        except InfeasibleError:
            if self.inside.spec.fuse != "free":
                raise
            return -inf
        ops = (first, second, *makers)
        self.nests[pair] = {
            (nest_name(one), tuple(self.inside.sizes(one, self.degrees).items())): nest for one, nest in zip(ops, nests, strict=True)
        }
        return alone - sum(nest.cost.energy_j for nest in nests)

    def _ops(self, pair: Fused) -> list[LocalOp]:
        """The two of a pair, then what makes its residents."""
        return [self.inside.local_ops[n] for n in (pair.first, pair.second, *pair.resident) if n in self.inside.local_ops]

    def _asked(self, one: LocalOp) -> tuple[NestProblem, NestMachine]:
        problem = nest_problem(one, self.inside.sizes(one, self.degrees))
        return problem, nest_machine(self.architecture, one, problem)

    def _alone(self, pair: Fused) -> float:
        """Joules of the pair and the makers, each on its own."""
        return sum(self.inside.plain(self.architecture, one, self.degrees).cost.energy_j for one in self._ops(pair))

    def _fits(self, pair: Fused) -> bool:
        """Whether a pair that was found shares one tensor alone, indexed alike, and what stays has room."""
        (first, machine), (second, _) = (self._asked(one) for one in self._ops(pair)[:2])
        common = {t.name for t in first.tensors} & {t.name for t in second.tensors}
        if common != {pair.first} or second.tensor(pair.first).indices != first.output.indices:
            return False
        room = machine.levels[1].capacity_bits if len(machine.levels) > 1 else 0.0
        held = [(p, t) for p in (first, second) for t in p.tensors if t.name in pair.resident]
        return room is None or sum(machine.levels[1].bits(t) * t.tile_words(p.sizes) for p, t in held) <= room

    def _maker(self, one: LocalOp, resident: tuple[str, ...]) -> Nested:
        """The nest of the operation that makes a tensor which stays on chip."""
        from rackmodel.nests import solve_nest

        problem, machine = self._asked(one)
        kept = tuple(name for name in resident if name in {t.name for t in problem.tensors})
        effort = Effort(ends=self.inside.watch.ends)
        found = solve_nest(problem, machine, objective="energy", factors="perfect", resident=kept, effort=effort)
        return Nested(problem, machine, found.mapping, found.cost, sheet_of(found.certificate, problem, found.mapping), kept)

    def _solve(self, one: LocalOp, two: LocalOp, pair: Fused) -> list[Nested]:
        from rackmodel.nests import solve_fused

        problems, machine = [self._asked(one)[0], self._asked(two)[0]], self._asked(one)[1]
        effort = Effort(ends=self.inside.watch.ends)
        named = apart(problems[1], set(problems[0].sizes) - set(problems[0].output.ranks))
        found = solve_fused(problems[0], renamed_problem(problems[1], named), machine, resident=pair.resident, effort=effort)
        sheet = sheet_of(found.certificate, problems[0], found.first)
        back = {new: old for old, new in named.items()}
        nests = []
        for problem, mapping, cost in zip(problems, (found.first, renamed_mapping(found.second, back)), found.costs, strict=True):
            names = {tensor.name for tensor in problem.tensors}
            kept = tuple(sorted(({pair.first} | set(pair.resident)) & names))
            nests.append(Nested(problem, machine, mapping, cost, sheet, kept))
        return nests
