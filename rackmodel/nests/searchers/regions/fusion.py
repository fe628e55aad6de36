"""A region of einsums fused: what lies between them lives in level 1 and never meets level 0.

  energy = sum over the prefix of words x price + sum over the members of times x V[tile] + statistics - fresh outputs
The space is searched in parts, each with loops around other members (region_loops): first around all of them over ranks that every
intermediate has, where nothing is made twice, then with tiles made again, then, if asked, with loops around some members within those.
Each part starts from the best of those before (region_search). Seconds: the members run one after another, each as slow as its slowest
component. Derivation: docs/nest_theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from time import process_time
from typing import Any

import numpy as np

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import Key, NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops, Span
from rackmodel.nests.region_mapping import PricedRegion
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.prices import components, energy_prices
from rackmodel.nests.searchers.mapspace.space import OnChip, Space
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.regions.ragged_region import NOTE, solve_ragged
from rackmodel.nests.searchers.regions.region_parts import parts_of, searched
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.tables.backtrack import optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.searchers.tables.slices import SliceSearch
from rackmodel.nests.solution import NestCertificate, gap_of


@dataclass(frozen=True)
class RegionSolution(PricedRegion):
    """A region as it was found, with its certificate."""

    certificate: NestCertificate


class NothingBetter(Exception):
    """No mapping of a region that is below what was asked for was found. bound: what none is below."""

    def __init__(self, bound: float) -> None:
        super().__init__(bound)
        self.bound = bound


def solve_region(
    region: Region,
    *,
    objective: NestObjective | None = None,
    factors: str = "perfect",
    effort: Effort | None = None,
    below: float = np.inf,
    around_some: bool | Collection[Span] = False,
    tables: SharedTables | None = None,
) -> RegionSolution:
    """The best of a region. Perfect factors: exact over every prefix, tile and loop around all members, tiles made again among them. Ceil:
    tiles of any size, with a bound of all of them (ragged_region); never worse than perfect factors.

    objective: energy (if none), latency, or a weighted sum, with or without static power; not EDP, which is no sum over members. effort:
    where it ends first, the best found with its bound · below: what the objective must be less than, else NothingBetter is raised (also
    where nothing fits, or the effort ended before) · around_some: whether loops may lie around some members, too, within those around all
    (many more prefixes), or the spans around which they may · tables: shared with searches of other regions.
    Errors: RackmodelError if the members ask for what is not searched, InfeasibleError if nothing fits, Exhausted if nothing was found
    before the effort ended.
    """
    began, aim = process_time(), objective or NestObjective("energy")
    if aim.name == "edp":
        raise RackmodelError("fused: EDP is no sum over the members; search weighted sums of energy and latency")
    parts, limit = parts_of(region, around_some=around_some), (below, np.inf if below == np.inf else -np.inf)
    search = _ragged if factors == "ceil" else _perfect
    found = search(region, aim, effort or Effort(), limit, parts, tables or SharedTables())
    return replace(found, certificate=replace(found.certificate, seconds=process_time() - began))


def _perfect(
    region: Region, aim: NestObjective, effort: Effort, below: Key, parts: Sequence[RegionLoops], tables: SharedTables
) -> RegionSolution:
    best = searched(region, aim, effort, below, parts, tables)
    if best.where is None:
        raise _infeasible(region) if below[0] == np.inf else NothingBetter(min(below[0], best.left))
    made, said = best.where.search.made(best.where), best.key
    problems, mappings, costs, inside = zip(*made, strict=True)
    priced = PricedRegion(problems, mappings, costs, inside, best.where.candidate.running)
    key = aim.key(priced.energy_j, priced.latency_s)
    if abs(key[0] - said[0]) > 1e-9 * abs(said[0]):
        raise AssertionError(f"fused search says {said[0]}, the recount says {key[0]}")
    bound = min(key[0], best.left)
    notes = (f"{best.prefixes} ordered prefixes above {', '.join(region.held)}",)
    pruned = {"full-capacity bound": best.bounded}
    sheet = NestCertificate(float(best.candidates), best.tried, pruned, key, bound, gap_of(key[0], bound), "fusion dp", notes=notes)
    return RegionSolution(**vars(priced), certificate=sheet)


def _ragged(
    region: Region, aim: NestObjective, effort: Effort, below: Key, parts: Sequence[RegionLoops], tables: SharedTables
) -> RegionSolution:
    best = solve_ragged(region, aim, effort, below, parts, tables)
    priced = best.known.priced
    if priced is None:
        raise _infeasible(best.divisible) if below[0] == np.inf else NothingBetter(best.bound)
    key = best.known.key
    sheet = NestCertificate(np.inf, best.known.tried, {}, key, best.bound, gap_of(key[0], best.bound), "fusion ceil", notes=(NOTE,))
    return RegionSolution(**vars(priced), certificate=sheet)


def _infeasible(region: Region) -> InfeasibleError:
    """What level 1 needs at least; another level, or tiles of the fan, where that is not it."""
    space = RegionSpace(region)
    names, machine = " + ".join(p.name for p in region.members), region.machines[0]
    need, name, have = space.least_bits(), space.level.name, space.level.capacity_bits
    what = f"{names} on {machine.name}: no fused mapping fits {name}"
    if have is None or need <= have:
        return InfeasibleError(f"{what} and the levels below it", resource=name)
    change = f"a capacity of {need:g} bits"
    return InfeasibleError(f"{what}: it needs {need:g} bits, has {have:g}", resource=name, need=need, have=have, unit="bits", change=change)


def least_on_chip(
    problem: NestProblem, machine: NestMachine, inside: frozenset[str], effort: Effort | None = None, tables: SharedTables | None = None
) -> float:
    """Joules of an einsum at least, perfect factors, where the tensors `inside` live in level 1 and take no room there.

    Any fused mapping of the einsum is one of these: loops of its neighbours cut none of its own tiles, and run it no less than once. inf
    where nothing fits. Raises Exhausted.
    """
    spaces = [
        Space(problem, machine, kept, NestConstraints(), on_chip=OnChip(inside)) for kept in keep_masks(problem, machine, NestConstraints())
    ]
    prices = energy_prices(machine)
    return min(optimum(CostTable(space, prices, effort=effort, tables=tables)) for space in spaces) + machine.compute.joules(problem)


class _Fastest(NestObjective):
    """Latency without its tie-break."""

    def key(self, energy: Any, latency: Any) -> tuple[Any, Any]:
        return latency, np.zeros(np.shape(latency))


def ports_on_chip(problem: NestProblem, machine: NestMachine, inside: frozenset[str], effort: Effort, tables: SharedTables | None) -> float:
    """Seconds of an einsum at least, of the same mappings as `least_on_chip`: of each port by itself, all units at work. inf where nothing
    fits. Raises Exhausted."""
    found = np.inf
    for kept in keep_masks(problem, machine, NestConstraints()):
        space = Space(problem, machine, kept, NestConstraints(), on_chip=OnChip(inside))
        every: list[CostTable] = []
        seconds = problem.macs * problem.density / (machine.compute.macs_per_s * machine.units)
        for port in components(machine):
            every.append(CostTable(space, port.prices(space.depth), like=every[0] if every else None, effort=effort, tables=tables))
            seconds = max(seconds, optimum(every[-1]) / (port.bandwidth * prod(v.fan.size for v in machine.levels[: port.level])))
        found = min(found, seconds)
    return found


def fastest_on_chip(
    problem: NestProblem, machine: NestMachine, inside: frozenset[str], effort: Effort, tables: SharedTables | None = None
) -> float:
    """Seconds of an einsum at least, of the same mappings as `least_on_chip`: the optimum by latency, or what holds of all that is open
    where the effort ends. inf where nothing fits."""
    roomy = replace(machine, levels=tuple(replace(v, capacity_bits=None) for v in machine.levels))  # what is inside takes none
    found = np.inf
    for kept in keep_masks(problem, machine, NestConstraints()):
        space = Space(problem, machine, kept, NestConstraints(), on_chip=OnChip(inside))
        search = SliceSearch(space, _Fastest("latency"), effort=effort.part(), tables=tables)
        search.entry = replace(search.entry, machine=roomy)
        with suppress(InfeasibleError):
            with suppress(Exhausted):
                search.run()
                search.open = [np.inf]
            found = min(found, search.bound)
    return found
