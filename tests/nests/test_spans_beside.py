"""Loops around some members of a region, beside one another: against runs of every mapping."""

import random
from dataclasses import replace

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.region_loops import RegionLoops, every_nesting
from rackmodel.nests.region_mapping import price_region
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.regions.ragged_candidates import mapping_of
from rackmodel.nests.searchers.regions.ragged_descent import Known, improve
from rackmodel.nests.searchers.regions.ragged_orders import reordered
from rackmodel.nests.searchers.regions.region_bound import least_of_region
from rackmodel.nests.searchers.regions.region_parts import parts_of, searched
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from tests import samples
from tests.nests.brute_region import least
from tests.nests.four_members import region, two_pairs
from tests.nests.random_regions import check_counted, region_mapping, roomy
from tests.nests.test_nest_regions import AIMS
from tests.nests.test_region_again import check_cuts

ENERGY, ANY = NestObjective("energy"), (float("inf"), float("inf"))
BESIDE = ((0, 3), (0, 1), (2, 3))


@pytest.mark.parametrize("seed", [7, 79, *(n for n in range(200) if n not in (7, 79))][: samples.cases(2, 120)])
def test_no_run_of_four_is_better(seed):
    one, aim = region(random.Random(seed)), AIMS[seed % 4]
    expected = least(one, one.machines[0], 2, aim.key)
    if expected is None:
        with pytest.raises(InfeasibleError):
            solve_region(one, objective=aim, around_some=True)
        return
    found = solve_region(one, objective=aim, around_some=True)
    assert aim.key(found.energy_j, found.latency_s)[0] == pytest.approx(expected[0], rel=1e-9)
    assert found.certificate.proven


def test_loops_beside_one_another_are_better_than_any_within_one_another():
    one = two_pairs(5, 5, 4)
    every = {spans: least(one, one.machines[0], 2, ENERGY.key, spans) for spans in every_nesting(4)}
    beside, others = every.pop(BESIDE)[0], [key[0] for key in every.values() if key is not None]
    assert beside < 0.5 * min(others)
    found = solve_region(one, objective=ENERGY, around_some=True)
    assert found.energy_j == pytest.approx(beside, rel=1e-9)
    assert found.certificate.proven


def test_what_lives_around_two_spans_takes_room_as_long_as_either_runs():
    loops = RegionLoops(two_pairs(3, 4, 9), BESIDE, again=True)
    assert loops.paths == [(0,), (0, 1), (0, 2)]
    assert loops.lives == {"A": 1, "B": 0, "C": 2}
    assert [loops.live(i) for i in range(4)] == [["A", "B"], ["A", "B"], ["B", "C"], ["B", "C"]]
    assert [sorted(ranks) for ranks in loops.cuts] == [["g", "m"], ["f", "m"], ["g", "m"]]


@pytest.mark.parametrize("seed", range(samples.cases(12, 300)))
def test_loops_may_cut_what_leaves_every_tile_complete_when_it_is_read(seed):
    one = region(random.Random(seed), sizes=(2,))
    for spans in every_nesting(4):
        check_cuts(one, spans, one.sizes)


@pytest.mark.parametrize("seed", range(samples.cases(12, 200)))
def test_every_member_is_counted_as_its_loops_run(seed):
    rng = random.Random(seed)
    one = roomy(region(rng, sizes=(1, 2, 3, 4, 5)))
    check_counted(one, region_mapping(rng, one))


@pytest.mark.parametrize("seed", range(samples.cases(3, 60)))
def test_random_mappings_of_any_tiles_are_never_below_the_bound(seed):
    rng = random.Random(seed)
    one, aim, keys = region(rng, sizes=(1, 2, 3), rooms=(0.5, 1.0)), AIMS[seed % 4], []
    for _ in range(30):
        try:
            made = price_region(one, region_mapping(rng, one))
        except InfeasibleError:
            continue
        keys.append(aim.key(made.energy_j, made.latency_s)[0])
    far = (10 * max(keys, default=1.0), float("inf"))
    bound = least_of_region(one, aim, far, parts_of(one, around_some=True), SharedTables(), Effort())
    assert min(keys, default=bound) >= bound * (1 - 1e-9)


def test_divisors_of_two_pairs_are_a_mapping_of_any_tiles_which_steps_keep_one():
    one = two_pairs(4, 4, 4)
    best = searched(one, ENERGY, Effort(), ANY, parts_of(one, around_some=True), SharedTables())
    chosen = mapping_of(best.where)
    assert chosen.spans == BESIDE
    assert price_region(one, chosen).energy_j == pytest.approx(best.key[0], rel=1e-12)
    known = Known(one, ENERGY, (best.key[0] * (1 + 1e-9), float("inf")))
    assert known.take(chosen)
    improve(known, Effort())
    assert known.tried > 10
    for other in reordered(chosen, roomy(one)):
        price_region(roomy(one), other)
    found = solve_region(one, objective=ENERGY, factors="ceil", around_some=True)
    assert found.certificate.bound <= found.energy_j <= best.key[0] * (1 + 1e-12)


def test_loops_of_one_span_may_not_cut_what_the_other_s_may():
    one = two_pairs(3, 4, 99)
    chosen = mapping_of(searched(one, ENERGY, Effort(), ANY, parts_of(one, around_some=True), SharedTables()).where)
    beside = replace(chosen, spans=BESIDE, nodes=())
    core = chosen.nodes[0]._replace(tensor="", tile=one.sizes)
    nodes = (core._replace(span=0), core._replace(span=1, tile={**one.sizes, "g": 2}), core._replace(span=2))
    with pytest.raises(RackmodelError, match="loops around one, two may not cut g"):
        price_region(one, replace(beside, nodes=nodes))
