"""CP-SAT: the layout problem as an integer program, for what couples the whole graph (memory), and as an oracle.

x[v, i]: variable v takes its value i. For each table a Boolean for every class of cells that cost the same, with the
marginals of its variables (the local polytope, tight for trees). Costs are scaled to integers here and nowhere else:
9e15 over the sum of the largest cells, so 1e-12 relative or better. Lexicographic: the tie-break is solved with the
first objective held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.search.factors import Factor, Factors
from rackmodel.search.objective import Weights

SCALE = 2.0**46
SECONDS = 120.0


@dataclass(frozen=True)
class Solved:
    """chosen: variable → position, None = infeasible · bound: proven lower bound of the first objective."""

    chosen: dict[str, int] | None
    bound: float
    optimal: bool


def solve_cpsat(factors: Factors, weights: Weights, *, seconds: float = SECONDS) -> Solved:
    """Least weighted sum under the memory capacity, ties by the second one."""
    first = _Problem(factors)
    unit = first.minimise(weights.latency, weights.energy)
    answer = first.run(seconds)
    if answer is None:
        return Solved(None, float("inf"), first.status != "UNKNOWN")
    bound, optimal = first.solver.best_objective_bound * unit, first.status == "OPTIMAL"
    if optimal and (weights.tie_latency or weights.tie_energy):
        second = _Problem(factors)
        second.hold(weights.latency, weights.energy, round(first.solver.objective_value))
        second.minimise(weights.tie_latency, weights.tie_energy)
        second.hint(answer)
        answer = second.run(seconds) or answer
    return Solved(answer, bound, optimal)


class _Problem:
    def __init__(self, factors: Factors) -> None:
        from ortools.sat.python import cp_model

        self.factors, self.model, self.solver = factors, cp_model.CpModel(), cp_model.CpSolver()
        self.status = ""
        self.x: dict[str, list[Any]] = {
            v: [self.model.new_bool_var(f"{v}={i}") for i in range(len(values))] for v, values in factors.strategies.items()
        }
        for literals in self.x.values():
            self.model.add_exactly_one(literals)
        self.cells = [(factor, *self._cells(factor)) for factor in factors.factors]
        self._capacity()

    def _cells(self, factor: Factor) -> tuple[list[Any], NDArray[np.int64]]:
        """One Boolean for each distinct (cell costs, variables) class, tied to its variables."""
        stacked = np.stack([factor.latency, factor.energy, factor.memory], axis=-1).reshape(-1, 3)
        if len(factor.variables) == 1:
            return self.x[factor.variables[0]], np.arange(len(stacked))
        literals = [self.model.new_bool_var(f"{factor.name}#{cell}") for cell in range(len(stacked))]
        self.model.add_exactly_one(literals)
        grid = np.arange(len(stacked)).reshape(factor.latency.shape)
        for position, variable in enumerate(factor.variables):
            for value, literal in enumerate(self.x[variable]):
                inside = np.take(grid, value, axis=position).reshape(-1)
                self.model.add(sum(literals[cell] for cell in inside) == literal)
        return literals, np.arange(len(stacked))

    def _capacity(self) -> None:
        if self.factors.capacity is None:
            return
        terms = [(literals[c], int(np.ceil(m))) for f, literals, _ in self.cells for c, m in enumerate(f.memory.reshape(-1)) if m > 0]
        limit = int(self.factors.capacity)
        held = sum(literal * size for literal, size in terms)
        for name, sizes in self.factors.working.items():
            self.model.add(held + sum(x * int(np.ceil(s)) for x, s in zip(self.x[name], sizes, strict=True)) <= limit)
        if not self.factors.working:
            self.model.add(held <= limit)

    def _terms(self, latency: float, energy: float) -> tuple[Any, float]:
        tables = [(latency * f.latency + energy * f.energy).reshape(-1) for f, *_ in self.cells]
        scale = sum(float(t.max(initial=0.0)) for t in tables)
        unit = scale / SCALE if scale > 0 else 1.0
        terms = []
        for (_, literals, _), table in zip(self.cells, tables, strict=True):
            terms += [literals[c] * round(value / unit) for c, value in enumerate(table) if round(value / unit)]
        return sum(terms), unit

    def minimise(self, latency: float, energy: float) -> float:
        """Set the objective; returns the unit of its integers."""
        terms, unit = self._terms(latency, energy)
        self.model.minimize(terms)
        return unit

    def hold(self, latency: float, energy: float, value: int) -> None:
        """Keep a first objective at its optimum."""
        self.model.add(self._terms(latency, energy)[0] <= value)

    def hint(self, chosen: dict[str, int]) -> None:
        """Start from a known assignment."""
        for variable, position in chosen.items():
            self.model.add_hint(self.x[variable][position], True)

    def run(self, seconds: float) -> dict[str, int] | None:
        """Solve, deterministically; None where nothing was found."""
        self.solver.parameters.num_workers = 1
        self.solver.parameters.random_seed = 0
        self.solver.parameters.max_deterministic_time = seconds
        self.status = self.solver.status_name(self.solver.solve(self.model))
        if self.status not in ("OPTIMAL", "FEASIBLE"):
            return None
        return {v: next(i for i, literal in enumerate(ls) if self.solver.boolean_value(literal)) for v, ls in self.x.items()}
