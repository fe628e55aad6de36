"""Fused regions with tiles of any size: the count against walked loops, search and bound against brute force and random mappings."""

import random
from dataclasses import replace
from math import prod

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import Region, solve_nest, solve_region
from rackmodel.nests.mapping import StorageNode
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.region import RunningRows
from rackmodel.nests.region_mapping import RegionMapping, RegionNode, price_region
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.regions.ragged_candidates import mapping_of
from rackmodel.nests.searchers.regions.region_bound import least_of_region
from rackmodel.nests.searchers.regions.region_parts import parts_of, searched
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from tests import samples
from tests.nests.brute_ragged_region import least
from tests.nests.machines import ffn, gemm, glb_pe, level
from tests.nests.random_regions import check_counted, region_mapping, roomy
from tests.nests.test_nest_regions import AIMS, chain, crossed, gated, scores
from tests.nests.test_region_again import up_down

ENERGY, ANY = NestObjective("energy"), (float("inf"), float("inf"))


def machine(rng, words, deep=False):
    fan = NestFan(rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3]))
    buffer = level("GLB", 16 * rng.choice([words // 4 + 8, words // 2 + 4, words]), rng.choice([0.5, 1, 3]), rng.choice([3e9, 3e10]), fan)
    inner = (level("RF", 16 * rng.choice([3, 6, 20]), 0.1, rng.choice([1e9, 1e10])),) if deep else ()
    return NestMachine("m", (level("DRAM", None, 10, rng.choice([1e9, 4e9])), buffer, *inner), NestCompute(rng.choice([1e8, 1e9]), 5e-13))


def region(rng, deep=False, sizes=(1, 2, 3, 5, 7, 9, 12)):
    """A region of two or three members; of a softmax between, rows are carried."""
    make = rng.choice([scores, chain, gated, crossed])
    parts, held = make({r: rng.choice(sizes) for r in "mpfjkn"})
    m = machine(rng, sum(prod(p.sizes[r] for r in t.ranks) for p in parts for t in p.tensors), deep)
    one = Region(tuple(parts), (m,) * len(parts), held)
    if make is scores:
        rows = RunningRows("A", "p", rng.choice([4, 32]), rng.choice([0.0, 1e-10]), 1e-9, (1e-12, 1e-10))
        one = replace(one, running=(rows,), between={"A": (2e-12, 1e-10)})
    return one


@pytest.mark.parametrize("seed", range(samples.cases(60, 400)))
def test_every_member_is_counted_as_its_loops_run(seed):
    rng = random.Random(seed)
    one = region(rng, seed % 2 == 1, (1, 2, 3, 4, 5, 6))
    one = roomy(one)
    check_counted(one, region_mapping(rng, one))


def test_the_cut_of_a_neighbour_s_node_is_counted():
    """18 cut to 9 and to 2 is 10 tiles, to 2 at once 9: the middle cut is at a node that this member knows nothing of."""
    parts, m = up_down(18, 1, 1), machine(random.Random(1), 99)
    one = Region(tuple(parts), (m,) * 2, {"H": (0, 1)})
    sizes = one.sizes

    def tiles_of(middle):
        nodes = (RegionNode(0, "WD", {**sizes, "m": middle}), RegionNode(0, "", {**sizes, "m": 2}))
        branches = mapping_of(searched(one, ENERGY, Effort(), ANY, parts_of(one, around_some=False), SharedTables()).where).branches
        bare = [replace(b, levels=(b.levels[0], replace(b.levels[1], nodes=(), x={}, y={}))) for b in branches]
        made = price_region(
            replace(one, machines=(replace(m, levels=(m.levels[0], replace(m.levels[1], capacity_bits=None))),) * 2),
            RegionMapping(((0, 1),), nodes, tuple(_own(b, {**sizes, "m": 2}, p) for b, p in zip(bare, parts, strict=True))),
        )
        w = next(a for a in made.costs[0].accesses if (a.level, a.tensor) == ("DRAM", "W"))
        return w.read_bits / 16, [n.tensor for n in made.mappings[0].levels[1].nodes]

    assert tiles_of(9) == (10, ["", "H", "I", "W"])
    assert tiles_of(18) == (9, ["H", "I", "W"])


def _own(branch, tile, p):
    names = [t.name for t in p.tensors if t.name not in ("H", "WD")]
    nodes = tuple(StorageNode(n, {r: tile[r] for r in p.sizes}) for n in names)
    return replace(branch, levels=(branch.levels[0], replace(branch.levels[1], nodes=nodes)))


@pytest.mark.parametrize("seed", range(samples.cases(6, 40)))
def test_random_mappings_are_never_below_the_bound(seed):
    rng = random.Random(1000 + seed)
    one, aim, keys = region(rng, seed % 3 == 2), AIMS[seed % 4], []
    for _ in range(40):
        try:
            made = price_region(one, region_mapping(rng, one))
        except InfeasibleError:
            continue
        keys.append(aim.key(made.energy_j, made.latency_s)[0])
    far = (10 * max(keys, default=1.0), float("inf"))
    bound = least_of_region(one, aim, far, parts_of(one, around_some=True), SharedTables(), Effort())
    assert min(keys, default=bound) >= bound * (1 - 1e-9)


def pair(seed):
    """A small pair on a small machine."""
    rng = random.Random(seed)
    m, p, f = rng.choice([1, 2, 3, 5]), rng.choice([2, 3, 5]), rng.choice([1, 2, 3])
    parts, name = rng.choice([(up_down(m, p, f), "H"), (_scores(m, p, f), "A")])
    words = sum(prod(q.sizes[r] for r in t.ranks) for q in parts for t in q.tensors)
    room, fan = 16 * rng.choice([words // 4 + 4, words // 3 + 3, words // 2]), NestFan(rng.choice([1, 2, 3]))
    buffer = level("GLB", room, rng.choice([0.5, 1, 3]), 1e10, fan)
    one = NestMachine("m", (level("DRAM", None, 10, rng.choice([1e9, 4e9])), buffer), NestCompute(rng.choice([1e8, 1e9]), 5e-13))
    return Region(tuple(parts), (one, one), {name: (0, 1)}), one


def _scores(m, p, f):
    return scores({"m": m, "p": p, "f": f})[0]


@pytest.mark.parametrize("seed", [20, 21, 22, 23, *range(24, 60)][: samples.cases(4, 40)])
def test_no_mapping_of_any_tiles_is_below_the_bound_and_what_is_proven_is_best(seed):
    one, m = pair(seed)
    aim = AIMS[seed % 4]
    best = least(one, m, aim.key)
    try:
        sheet = solve_region(one, objective=aim, factors="ceil").certificate
    except InfeasibleError:
        assert best == float("inf")
        return
    assert sheet.bound <= best * (1 + 1e-9)
    assert sheet.objective[0] >= best * (1 - 1e-9)
    if sheet.proven:
        assert sheet.objective[0] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", [0, 12, 30, 54, 8][: samples.cases(3, 5)])
def test_any_tiles_are_never_worse_than_divisors(seed):
    one, aim = region(random.Random(seed)), AIMS[seed // 2 % 4]
    try:
        perfect = solve_region(one, objective=aim).certificate.objective[0]
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            solve_region(one, objective=aim, factors="ceil")
        return
    found = solve_region(one, objective=aim, factors="ceil")
    assert found.certificate.bound <= found.certificate.objective[0] <= perfect * (1 + 1e-12)
    assert aim.key(found.energy_j, found.latency_s)[0] == pytest.approx(found.certificate.objective[0], rel=1e-12)


def test_a_prime_number_of_rows_is_fused_as_well_as_one_more():
    pairs = {m: Region.of(ffn(m), glb_pe()) for m in (2039, 2048)}
    ragged = solve_region(pairs[2039], factors="ceil")
    assert ragged.energy_j < 0.4 * solve_region(pairs[2039]).energy_j
    assert ragged.energy_j < solve_region(pairs[2048]).energy_j
    assert ragged.certificate.gap < 0.02


def test_loops_may_not_cut_what_must_stay_whole_and_tiles_must_nest():
    one = Region(tuple(up_down(4, 4, 2)), (machine(random.Random(1), 999),) * 2, {"H": (0, 1)}, whole=frozenset({"m"}))
    best = searched(one, ENERGY, Effort(), ANY, parts_of(one, around_some=False), SharedTables())
    chosen = mapping_of(best.where)
    for tile, fact in (({**one.sizes, "m": 2}, "may not cut m"), ({**one.sizes, "f": 5}, "does not fit into 4")):
        with pytest.raises(RackmodelError, match=fact):
            price_region(one, replace(chosen, nodes=(RegionNode(0, "", tile),)))


def test_units_that_idle_are_laid_out_too():
    """Five rows on three by two units: one idles, and no layout has just five."""
    buffer = level("GLB", 1e6, 1, 1e12, NestFan(3, 2))
    m = NestMachine("m", (level("DRAM", None, 10, 1e12), buffer), NestCompute(1e9, 5e-13))
    found = solve_nest(gemm(5, 1, 1), m, objective="latency")
    assert found.cost.latency_s == pytest.approx(1e-9)
    assert found.certificate.proven
