"""Regions whose tiles are bounded by energy and time together: what is dropped is never the optimum, a budget of work ends honestly."""

import numpy as np
import pytest

from rackmodel.nests import Region, solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.regions.fusion import NothingBetter
from rackmodel.nests.searchers.regions.region_below import RegionBest
from rackmodel.nests.searchers.regions.region_branch import Above, Branch, CaseKeys
from rackmodel.nests.searchers.regions.region_lines import SliceLines
from rackmodel.nests.searchers.regions.region_search import RegionSearch
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.regions.region_tiles import PrefixTiles
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from tests import samples
from tests.nests.machines import level
from tests.nests.test_nest_regions import crossed, gated, scores

SIZES = {"m": 2, "p": 4, "f": 2, "n": 2}
POWER = NestObjective("energy", static_w=0.3)
LEVELS = (
    level("DRAM", None, 10, 1e9),
    level("GLB", 16 * 16, 1, 3e9, NestFan(3, linear=True, multicast_width=2)),
    level("RF", 16 * 10, 0.1, 3e9, NestFan(2)),
    level("acc", 16 * 4, 0.01, 3e9),
)


def region(make, memories):
    parts, held = make(SIZES)
    machine = NestMachine("m", LEVELS[:memories], NestCompute(1e9, 5e-13))
    return Region(tuple(parts), (machine,) * len(parts), held)


@pytest.mark.parametrize(
    ("make", "memories", "aim"),
    [
        (scores, 3, POWER),
        (scores, 4, NestObjective("latency")),
        (crossed, 2, NestObjective("weights", 1.0, 0.1)),
        (gated, 2, NestObjective("latency")),
    ][:: samples.cases(2, 1)],
)
def test_what_is_dropped_is_never_the_optimum(make, memories, aim, monkeypatch):
    """Against a search that looks into every tile whose energy and compute are low enough, one prefix as well as another."""
    asked = region(make, memories)
    found = solve_region(asked, objective=aim)
    monkeypatch.setattr(SliceLines, "_of_line", lambda *of: -float("inf"))
    monkeypatch.setattr(SliceLines, "_of_tables", lambda *of: -float("inf"))
    monkeypatch.setattr(SliceLines, "closer", lambda *of: False)
    monkeypatch.setattr(PrefixTiles, "distinct", lambda self: self.ones.astype(bool))
    monkeypatch.setattr(Branch, "best", lambda self, above, aim, _, most: self._search(above, aim, float("inf")))
    plain = solve_region(asked, objective=aim)
    assert aim.key(found.energy_j, found.latency_s) == pytest.approx(aim.key(plain.energy_j, plain.latency_s), rel=1e-12)
    assert found.certificate.proven


@samples.audited
def test_a_region_ends_where_its_work_does_and_says_how_far_it_may_be_from_the_best():
    asked, every = region(scores, 3), Effort()
    best = solve_region(asked, objective=POWER, effort=every).certificate.objective[0]
    gaps = []
    for part in (0.3, 0.6, 0.9):
        try:
            once, again = (solve_region(asked, objective=POWER, effort=Effort(every.spent * part)) for _ in range(2))
        except Exhausted:
            continue
        sheet = once.certificate
        assert sheet.bound <= best * (1 + 1e-12) <= sheet.objective[0] * (1 + 2e-12)
        assert (sheet.objective, sheet.bound, once.mappings) == (again.certificate.objective, again.certificate.bound, again.mappings)
        gaps.append(sheet.gap)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0


def test_what_is_asked_for_in_vain_leaves_a_bound():
    asked, every = region(scores, 3), Effort()
    best = solve_region(asked, objective=POWER, effort=every).certificate.objective[0]
    with pytest.raises(NothingBetter) as nothing:
        solve_region(asked, objective=POWER, effort=Effort(every.spent * 0.3), below=best * (1 - 1e-6))
    assert 0 < nothing.value.bound < best


@pytest.mark.parametrize("aim", [POWER, NestObjective("latency")])
def test_what_undercuts_what_was_asked_for_is_found_and_nothing_is_spelled_out_where_none_does(aim, monkeypatch):
    asked = region(crossed, 2)
    best = solve_region(asked, objective=aim).certificate.objective
    assert solve_region(asked, objective=aim, below=best[0] * (1 + 1e-6)).certificate.objective == pytest.approx(best, rel=1e-12)
    monkeypatch.setattr(Branch, "of_least_energy", lambda *of: pytest.fail("a mapping was spelled out to begin with"))
    with pytest.raises(NothingBetter) as nothing:
        solve_region(asked, objective=aim, below=best[0])
    assert nothing.value.bound == best[0]


@pytest.mark.parametrize("aim", [POWER, NestObjective("latency")])
def test_a_member_is_bounded_in_one_region_by_blends_of_another_and_its_best_stays(aim):
    first, tables, made = region(crossed, 2), SharedTables(), []
    roomier = Region(
        first.members,
        (NestMachine("m", (LEVELS[0], level("GLB", 16 * 24, 1, 3e9, LEVELS[1].fan)), NestCompute(1e9, 5e-13)),) * 2,
        first.held,
    )
    for asked in (first, roomier):
        alone, beside = Effort(), Effort()
        best = solve_region(asked, objective=aim, effort=alone).certificate.objective
        assert solve_region(asked, objective=aim, effort=beside, tables=tables).certificate.objective == pytest.approx(best, rel=1e-12)
        made.append(beside.spent < alone.spent)
    assert made == [False, True]


@pytest.mark.parametrize("aim", [POWER, NestObjective("latency")])
def test_no_tile_of_a_member_is_below_its_floor_or_below_what_is_known_of_larger_ones(aim):
    """Floors of all tiles at once, and keys taken over from other cases, against a search below each tile by itself."""
    asked, tables = region(scores, 3), SharedTables()
    best = solve_region(asked, objective=aim, tables=tables).certificate.objective[0]
    space = RegionSpace(asked)
    search, nothing = RegionSearch(space, aim, Effort(), RegionBest((np.inf, np.inf)), tables=tables), ((),)
    closer = 0
    for branch in search.branches:
        free, ports = (0.0,) * len(branch.ports), tuple((port.name, 0.0) for port in branch.ports)
        shape = [len(axis) for axis in space.axes]
        floor = branch.floor(nothing, aim, space.resident_bits, free, np.full(shape, best))
        apart = np.broadcast_to(aim.key(branch.least(nothing, space.resident_bits), branch.seconds)[0], shape)
        closer += int((floor > apart * (1 + 1e-9)).sum())
        known = CaseKeys()
        for cell in sorted(np.ndindex(*shape), key=lambda cell: -sum(cell)):
            tile = tuple(int(axis.tile[n]) for axis, n in zip(space.axes, cell, strict=True))
            above = Above(nothing, (tile,), space.resident_bits, 0.0, ports)
            found, case = branch._search(above, aim, np.inf), branch._case(above, space.resident_bits)
            exact = np.inf if found is None else aim.key(found.cost.energy_j, found.cost.latency_s)[0]
            assert max(floor[cell], known.least(case, aim)) <= exact * (1 + 1e-9)
            known.add(case, aim, float(exact))
    assert closer
