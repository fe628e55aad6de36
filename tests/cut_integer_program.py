"""The cut of least bound by an integer program, which CP-SAT solves: an oracle built differently, on the same integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.stages.bounds import terms_of
from rackmodel.mapper.stages.cut_problem import FIRST, LAST, UPDATE, CutProblem
from rackmodel.mapper.stages.integers import BYTE, NEVER, IntegerProblem, integers_of
from rackmodel.mapper.stages.needs import NoCutFits


@dataclass(frozen=True)
class Solved:
    """mixes: [S, K, Q] of the cut · bound: the solver's; no cut's is less."""

    mixes: Ints
    bound: float


def cut_by_cpsat(problem: CutProblem, *, seconds: float = 60.0) -> Solved:
    """The cut of least bound, ties by joules: an oracle for `best_cut` of problems whose lanes of weights do nothing.

    seconds: of the solver's deterministic time.
    Errors as `best_cut`; where time ran out, InfeasibleError says that none was found.
    """
    whole = integers_of(problem)
    model = _Model(problem, whole, whole.capacity)
    status = model.minimise(model.step, seconds)
    if status == "INFEASIBLE":
        model = _Model(problem, whole, np.full_like(whole.capacity, whole.ceiling))
        model.minimise(model.fullest, seconds)
        need = [model.solver.value(held) / BYTE for held in model.held]
        raise NoCutFits(problem, need, model.mixes().sum(axis=(1, 2)).tolist())
    if status not in ("OPTIMAL", "FEASIBLE"):
        raise InfeasibleError(f"no cut found in {seconds:g} s of the solver", resource="solver time", have=seconds, unit="s")
    bound, mixes = model.solver.best_objective_bound * whole.unit, model.mixes()
    if status == "OPTIMAL":
        model.hold(mixes)
        if model.minimise(model.joules, seconds) in ("OPTIMAL", "FEASIBLE"):
            mixes = model.mixes()
    return Solved(mixes, bound)


class _Model:
    """layers[s, k, q]: of kind k under policy q · held[i], fullest: bytes · step: seconds."""

    def __init__(self, problem: CutProblem, whole: IntegerProblem, capacity: Ints) -> None:
        from ortools.sat.python import cp_model

        self.model, self.solver, self.shape = cp_model.CpModel(), cp_model.CpSolver(), whole.seconds.shape
        self.length, self.stages = len(problem.kinds), problem.stages
        cells = [[(int(k), int(q)) for k, q in np.argwhere(own)] for own in whole.uses]
        self.layers = {(s, k, q): self._layers(f"layers {s} {k} {q}") for s in range(self.stages) for k, q in cells[s]}
        self.step, self.fullest = self.model.new_int_var(0, NEVER, "step"), self.model.new_int_var(0, int(capacity.max()), "fullest")
        self._edges(problem, whole)
        self.held = [self._bytes(whole, i, int(capacity[i])) for i in range(self.stages)]
        self._step(problem, whole, cells)
        self.joules = sum(variable * int(whole.joules[k, q]) for (_, k, q), variable in self.layers.items())

    def _step(self, problem: CutProblem, whole: IntegerProblem, cells: list[list[tuple[int, int]]]) -> None:
        """The bound of stage_cut's docstring: each max is a constraint for each of its sides."""
        p, terms, extra = self.stages, terms_of(problem), whole.extra.tolist()
        own = [sum(self.layers[s, k, q] * int(whole.seconds[k, q]) for k, q in cells[s]) + extra[0][s] for s in range(self.stages)]

        def each(figures: Ints, more: Any) -> list[Any]:
            return [sum(self.layers[s, k, q] * int(figures[s, k]) for k, q in cells[s]) + int(more[s]) for s in range(p)]

        forward = [each(whole.forward[side], extra[1]) for side in range(2)]
        first, last, update = (each(whole.once[what], whole.extra_once[what]) for what in (FIRST, LAST, UPDATE))
        for i in range(p):
            before = sum(own[j] + first[j] + last[j] + int(whole.hop[j]) for j in range(i)) + update[0] + whole.tied
            far = sum(own[j] + int(whole.hop[j - 1]) for j in range(i + 1, p))
            one = terms[i]
            at_start = far + sum(first[i + 1 :]) - (one.lead - 1) * forward[1][i]
            at_end = far + sum(last[i + 1 :]) - (one.lead - 1) * (own[i] - forward[0][i])
            ends = [0, at_start, at_end] + ([at_start + at_end] if one.micro_batches > one.lead else [])
            trips = [0, one.rounds * (far - one.others * own[i])]
            for end in ends:
                for trip in trips:
                    self.model.add(self.step >= before + problem.micro_batches * own[i] + first[i] + last[i] + end + trip)

    def _layers(self, name: str) -> Any:
        return self.model.new_int_var(0, self.length, name)

    def _edges(self, problem: CutProblem, whole: IntegerProblem) -> None:
        edge = [self._layers(f"edge {s}") for s in range(self.stages + 1)]
        self.model.add(edge[0] == 0)
        self.model.add(edge[-1] == self.length)
        for s in range(self.stages):
            self.model.add(edge[s + 1] - edge[s] >= problem.fewest)
        for k in range(self.shape[0]):
            upto = [self._layers(f"of kind {k} before {s}") for s in range(self.stages + 1)]
            for s in range(self.stages + 1):
                self.model.add_element(edge[s], whole.runs[:, k].tolist(), upto[s])
            for s in range(self.stages):
                mine = [self.layers[s, k, q] for q in range(self.shape[1]) if whole.uses[s, k, q]]
                self.model.add(sum(mine) == upto[s + 1] - upto[s])

    def _bytes(self, whole: IntegerProblem, device: int, capacity: int) -> Any:
        """Bytes on a device: workspace and buffers are at least those of every policy that it uses."""
        held = self.model.new_int_var(0, capacity, f"held {device}")
        kept = int(whole.fixed[device])
        for k, q in np.argwhere(whole.uses[device]).tolist():
            here = self.layers[device, k, q]
            kept = kept + here * int(whole.saved[k, q] * whole.flying[device] + whole.state[device, k])
        zero = np.zeros_like(whole.buffers)  # gathered: the largest layer, and beside it as much again, or what an end gathers
        parts = (whole.space, whole.working), (zero, whole.gathered), (whole.buffers, whole.gathered)
        for name, (ends, layers) in zip(("space", "gathered", "beside"), parts, strict=True):
            largest = self.model.new_int_var(int(ends[device]), max(int(ends[device]), int(layers.max())), f"{name} {device}")
            for k, q in np.argwhere(whole.uses[device] & (layers > ends[device])).tolist():
                used = self.model.new_bool_var(f"{device} uses {k} {q} for {name}")
                self.model.add(self.layers[device, k, q] <= self.length * used)
                self.model.add(largest >= int(layers[k, q])).only_enforce_if(used)
            kept = kept + largest
        self.model.add(held >= kept)
        self.model.add(self.fullest >= held)
        return held

    def minimise(self, what: Any, seconds: float) -> str:
        """Solve, deterministically; the status."""
        self.model.minimize(what)
        self.solver.parameters.num_workers, self.solver.parameters.random_seed = 1, 0
        self.solver.parameters.max_deterministic_time = seconds
        return str(self.solver.status_name(self.solver.solve(self.model)))

    def hold(self, mixes: Ints) -> None:
        """Keep the step just found, and start from its cut."""
        self.model.add(self.step <= round(self.solver.objective_value))
        for key, variable in self.layers.items():
            self.model.add_hint(variable, int(mixes[key]))

    def mixes(self) -> Ints:
        """[S, K, Q] of the solution."""
        found = np.zeros((self.stages, *self.shape), dtype=np.int64)
        for key, variable in self.layers.items():
            found[key] = self.solver.value(variable)
        return found
