"""CP-SAT: the layout problem as an integer program, for what couples the whole graph (memory), and as an oracle.

x[v, i]: variable v takes its value i; y[v, c] = Σ x of the values in class c. A table with several variables has a Boolean for
each cell over classes, with the y as marginals (the local polytope, tight for trees). Costs are scaled to integers here and
nowhere else: 2^46 over the sum of the largest cells, so 1e-12 relative or better. Lexicographic: the tie-break is solved with
the first objective held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.mapper.layouts.factors import Cap, Factor, Factors
from rackmodel.mapper.layouts.interfaces import Index
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import Weights
from rackmodel.watch import UNWATCHED, Watch

SCALE = 2.0**46
SECONDS = 120.0
CELLS = 3e5  # of one table


@dataclass(frozen=True)
class CpSatSolution:
    """chosen: variable → position, None = infeasible · bound: proven lower bound of the first objective."""

    chosen: dict[str, int] | None
    bound: float
    optimal: bool


def solve_cpsat(factors: Factors, weights: Weights, *, seconds: float = SECONDS, watch: Watch = UNWATCHED) -> CpSatSolution:
    """Least weighted sum under the memory capacity and the caps, ties by the second one. Raises TooLarge."""
    first = _Problem(factors, watch)
    unit = first.minimise(weights.latency, weights.energy)
    answer = first.run(seconds)
    if answer is None:
        return CpSatSolution(None, float("inf"), first.status != "UNKNOWN")
    bound, optimal = first.solver.best_objective_bound * unit, first.status == "OPTIMAL"
    if optimal and (weights.tie_latency or weights.tie_energy):
        second = _Problem(factors, watch)
        second.hold(weights.latency, weights.energy, round(first.solver.objective_value))
        second.minimise(weights.tie_latency, weights.tie_energy)
        second.hint(answer)
        answer = second.run(seconds) or answer
    return CpSatSolution(_tidy(factors, answer), bound, optimal)


def _tidy(factors: Factors, chosen: dict[str, int]) -> dict[str, int]:
    """The same assignment with each variable at the first of its values that cost the same: the solver's ties have no order."""
    for variable, position in chosen.items():
        mine = [f for f in factors.factors if variable in f.variables]
        working = factors.working.get(variable)
        here = [f.at(chosen) for f in mine]
        for earlier in range(position):
            same = working is None or working[earlier] == working[position]
            if same and [f.at({**chosen, variable: earlier}) for f in mine] == here:
                chosen = {**chosen, variable: earlier}
                break
    return chosen


class _Problem:
    def __init__(self, factors: Factors, watch: Watch) -> None:
        from ortools.sat.python import cp_model

        self.watch = watch
        self.factors, self.model, self.solver = factors, cp_model.CpModel(), cp_model.CpSolver()
        self.status = ""
        self.x: dict[str, list[Any]] = {
            v: [self.model.new_bool_var(f"{v}={i}") for i in range(count)] for v, count in factors.counts.items()
        }
        for literals in self.x.values():
            self.model.add_exactly_one(literals)
        self.groups: dict[tuple[str, bytes], list[Any]] = {}
        self.cells = [(factor, self._cells(factor)) for factor in factors.factors]
        self._capacity()
        for cap in factors.caps:
            self._cap(cap)

    def _classes(self, variable: str, which: Index) -> list[Any]:
        """A Boolean for each class of values of a variable."""
        literals = self.x[variable]
        count = int(which.max()) + 1
        if count == len(literals) and (which == np.arange(count)).all():
            return literals
        key = (variable, which.tobytes())
        if key not in self.groups:
            group = [self.model.new_bool_var(f"{variable} in {c}") for c in range(count)]
            for c, literal in enumerate(group):
                self.model.add(sum(literals[i] for i in np.flatnonzero(which == c)) == literal)
            self.groups[key] = group
        return self.groups[key]

    def _cells(self, factor: Factor) -> list[Any]:
        """One Boolean for each cell of a table, tied to the classes of its variables."""
        groups = [self._classes(v, which) for v, which in zip(factor.variables, factor.classes, strict=True)]
        if len(groups) == 1:
            return groups[0]
        count = factor.seconds.size
        if count > CELLS:
            raise TooLarge(f"{factor.name} has {count:.3g} cells, CP-SAT takes {CELLS:.0g}")
        literals = [self.model.new_bool_var(f"{factor.name}#{cell}") for cell in range(count)]
        self.model.add_exactly_one(literals)
        grid = np.arange(count).reshape(factor.seconds.shape)
        for position, group in enumerate(groups):
            for value, literal in enumerate(group):
                inside = np.take(grid, value, axis=position).reshape(-1)
                self.model.add(sum(literals[cell] for cell in inside) == literal)
        return literals

    def _capacity(self) -> None:
        if self.factors.capacity is None:
            return
        tables = [(literals, f.bytes.reshape(-1)) for f, literals in self.cells]
        tables = [(literals, sizes) for literals, sizes in tables if sizes.any()]
        working = {name: sizes for name, sizes in self.factors.working.items() if sizes.any()}
        every = np.concatenate([*(sizes for _, sizes in tables), *working.values(), np.zeros(1)])
        fine = 1.0 if (every == np.rint(every)).all() else 1024.0  # shares of an uneven split are fractions of a byte
        unit = int(np.gcd.reduce(np.ceil(every * fine).astype(np.int64))) or 1

        def held(literals: list[Any], sizes: Array) -> Any:
            return sum(x * (int(np.ceil(s * fine)) // unit) for x, s in zip(literals, sizes, strict=True) if s > 0)

        limit, always = int(self.factors.capacity * fine) // unit, sum(held(*table) for table in tables)
        for name, sizes in working.items():
            self.model.add(always + held(self.x[name], sizes) <= limit)
        if not working and tables:
            self.model.add(always <= limit)

    def _cap(self, cap: Cap) -> None:
        """A limit, its terms rounded down and what they may sum to up: nothing that keeps it is lost."""
        tables = [(cap.latency * f.seconds + cap.energy * f.joules).reshape(-1) for f, _ in self.cells]
        scale = sum(float(np.abs(t).max(initial=0.0)) for t in tables)
        unit = max(scale, abs(cap.most)) / SCALE
        terms = [
            literals[c] * int(np.floor(value / unit))
            for (_, literals), table in zip(self.cells, tables, strict=True)
            for c, value in enumerate(table)
        ]
        if unit > 0:
            self.model.add(sum(terms) <= int(np.ceil(cap.most / unit)))

    def _terms(self, latency: float, energy: float) -> tuple[Any, float]:
        tables = [(latency * f.seconds + energy * f.joules).reshape(-1) for f, _ in self.cells]
        scale = sum(float(np.abs(t).max(initial=0.0)) for t in tables)
        unit = scale / SCALE if scale > 0 else 1.0
        terms = []
        for (_, literals), table in zip(self.cells, tables, strict=True):
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
        if self.watch.limited:
            self.solver.parameters.max_time_in_seconds = max(0.1, self.watch.left)
        self.status = self.solver.status_name(self.solver.solve(self.model))
        if self.status not in ("OPTIMAL", "FEASIBLE"):
            return None
        return {v: next(i for i, literal in enumerate(ls) if self.solver.boolean_value(literal)) for v, ls in self.x.items()}
