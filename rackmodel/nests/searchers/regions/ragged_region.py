"""A region of einsums fused, tiles of any size.

The nodes above the members, the cores and the members' own nodes may have tiles of any size, ragged at the edges and counted as they run
(region_mapping). Mappings come from divisors of the sizes and of sizes a little larger (ragged_candidates), then from changing one tile
after another (ragged_descent): never worse than perfect factors. The bound is of every mapping there is (region_bound); the gap between the
two is reported. Derivation: docs/nest_theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from rackmodel.nests.objective import TIE, Key, NestObjective
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.regions.ragged_candidates import cut_off, mapping_of, padded, resized
from rackmodel.nests.searchers.regions.ragged_descent import Known, improve
from rackmodel.nests.searchers.regions.ragged_orders import reordered
from rackmodel.nests.searchers.regions.region_bound import least_of_region
from rackmodel.nests.searchers.regions.region_parts import searched
from rackmodel.nests.searchers.tables.shared_tables import SharedTables

NOTE = "tiles of divisors of the sizes and of larger ones, then changed one after another; bound over tiles of any size"

TRIED, CELLS = 100, 10e6  # tiles of larger sizes that are tried, cells that they may take
REORDERED, EACH = 1_500, 60  # mappings priced in other orders, together and for each
NEAR = 1.5  # times the best that a mapping in another order may cost to begin with


@dataclass(frozen=True)
class RaggedBest:
    """known: the best mapping (none where nothing better than what was asked for was found) · bound: what none is below · divisible: the
    region with sizes that divisors are searched for."""

    known: Known
    bound: float
    divisible: Region


def solve_ragged(
    region: Region, aim: NestObjective, effort: Effort, below: Key, parts: Sequence[RegionLoops], tables: SharedTables
) -> RaggedBest:
    """The best mapping found of any tiles that is better than `below`, and a bound of all. parts: loops around members that are tried.
    Raises Exhausted where the effort ended before anything was found."""
    known, late = Known(region, aim, below), False
    every = [resized(region, sizes) for sizes in padded(region, aim)]
    for larger in every:
        more = sum(p.macs for p in larger.members) / sum(p.macs for p in region.members)
        real = larger == region
        start, most = (below, inf) if real else ((known.key[0] * more, inf), TRIED)
        try:
            best = searched(larger, aim, effort if real else Effort(CELLS, effort.ends), start, parts, tables, most)
        except Exhausted:
            late = late or real or effort.over
            continue
        if best.where is not None:
            known.take(cut_off(mapping_of(best.where), region.sizes))
    if late and known.mapping is None:
        raise Exhausted
    improve(known, effort)
    bound = 0.0
    with suppress(Exhausted):
        bound = least_of_region(region, aim, known.key, parts, tables, effort)
    if known.key[0] > bound * (1 + TIE):
        _rearrange(known, effort)
    return RaggedBest(known, min(bound, known.key[0]), every[0])


def _rearrange(known: Known, effort: Effort) -> None:
    """Other orders of the nodes, each improved for a while, as long as that is better."""
    last, again = known.tried + REORDERED, known.mapping is not None
    while again and known.mapping is not None:
        again = False
        for other in reordered(known.mapping, known.region):
            if known.tried >= last or effort.over:
                return
            trial = Known(known.region, known.aim, (known.key[0] * NEAR, inf))
            trial.take(other)
            improve(trial, effort, EACH)
            known.tried += trial.tried
            if trial.mapping is not None and known.take(trial.mapping):
                again = True
                break
