"""Tiles made again instead of kept, and loops around some members only: against runs of every mapping."""

import pytest

from rackmodel.errors import RackmodelError
from rackmodel.nests import Region, solve_region
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.region import RunningRows
from rackmodel.nests.region_loops import RegionLoops, again_in, every_nesting
from rackmodel.nests.searchers.effort import Effort, Exhausted
from tests import samples
from tests.nests.brute_region import Members, around, least, spans_within
from tests.nests.loop_walker import Walker
from tests.nests.machines import einsum, level

ENERGY = NestObjective("energy")


def machine(words, *, mac=5e-13, buffer=1.0):
    glb = level("GLB", 16 * words, buffer, 1e10, NestFan(2))
    return NestMachine("m", (level("DRAM", None, 10, 1e9), glb), NestCompute(1e9, mac))


def region(parts, held, words, **more):
    return Region(tuple(parts), (machine(words),) * len(parts), held, **more)


def up_down(m, f, e):
    s = {"m": m, "f": f, "e": e}
    return [einsum("Up", ("H", "m f"), [("I", "m"), ("W", "f")], s), einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], s)]


def scores(m, p, f):
    s = {"m": m, "p": p, "f": f}
    return [einsum("QK", ("A", "m p"), [("Q", "m"), ("K", "p")], s), einsum("AV", ("Z", "m f"), [("A", "m p"), ("V", "p f")], s)]


def gated(m, f, n):
    s = {"m": m, "f": f, "n": n}
    return [
        einsum("gate", ("G", "m f"), [("I", "m"), ("WG", "f")], s),
        einsum("up", ("U", "m f"), [("I", "m"), ("WU", "f")], s),
        einsum("down", ("O", "m n"), [("G", "m f"), ("WD", "f n")], s),
    ]


def three(m, e, p, f):
    s = {"m": m, "e": e, "p": p, "f": f}
    return [
        einsum("Q", ("Q", "m e"), [("X", "m"), ("WQ", "e")], s),
        einsum("QK", ("A", "m p"), [("Q", "m e"), ("K", "p e")], s),
        einsum("AV", ("Z", "m f"), [("A", "m p"), ("V", "p f")], s),
    ]


GATED, THREE = {"G": (0, 2), "U": (1, 1)}, {"Q": (0, 1), "A": (1, 2)}
RESTORED = {"A": (1e-12, 0.0)}  # joules of a softmax, each time it runs again
ROWS = (RunningRows("A", "p", 8, 1e-12, scaled=(3e-12, 0.0)),)
PAIRS = [
    region(up_down(1, 3, 4), {"H": (0, 1)}, 4),
    region(up_down(1, 4, 2), {"H": (0, 1)}, 4),
    region(scores(1, 4, 2), {"A": (0, 1)}, 4, running=ROWS, between=RESTORED),
    region(scores(2, 2, 3), {"A": (0, 1)}, 7, running=ROWS, between=RESTORED),
]


@pytest.mark.parametrize("one", PAIRS[: samples.cases(3, 4)])
def test_no_run_of_a_pair_is_better_with_tiles_made_again(one):
    found = solve_region(one, objective=ENERGY)
    assert found.energy_j == pytest.approx(least(one, one.machines[0], 2, ENERGY.key)[0], rel=1e-9)
    assert found.certificate.proven


@pytest.mark.parametrize(
    "one",
    [region(three(1, 2, 2, 1), THREE, 5), region(gated(1, 2, 1), GATED, 4), region(three(2, 1, 2, 1), THREE, 5)][: samples.cases(1, 3)],
)
def test_no_run_of_three_is_better_with_loops_around_some(one):
    found = solve_region(one, objective=ENERGY, around_some=True)
    assert found.energy_j == pytest.approx(least(one, one.machines[0], 2, ENERGY.key)[0], rel=1e-9)
    assert found.certificate.proven


def test_a_tile_made_again_is_better_than_one_kept_and_a_loop_around_two_of_three_than_none():
    made = solve_region(PAIRS[0], objective=ENERGY)
    assert made.problems[0].sizes == {"m": 1, "f": 3, "again_e": 4}
    assert made.problems[1] == PAIRS[0].members[1]
    one = region(three(2, 1, 2, 1), THREE, 5)
    around_all, around_some = (solve_region(one, objective=ENERGY, around_some=some) for some in (False, True))
    assert around_some.energy_j < around_all.energy_j * (1 - 1e-3)


def test_what_runs_again_is_counted_as_the_loops_run():
    found, m = solve_region(PAIRS[0], objective=ENERGY), PAIRS[0].machines[0]
    for p, mapping, cost, inside in zip(found.problems, found.mappings, found.costs, found.inside, strict=True):
        total, _ = Walker(p, m, mapping).traffic()
        for access in cost.accesses:
            if access.tensor not in inside:
                reads, writes = total[[v.name for v in m.levels].index(access.level), access.tensor]
                assert (access.read_bits, access.write_bits) == (16 * reads, 16 * writes)


def test_three_runs_cost_three_times_one():
    p, m = up_down(2, 4, 2)[0], machine(64)
    once, inside = [("H", {"m": 2, "f": 4}), ("I", {"m": 2, "f": 2}), ("W", {"m": 1, "f": 2})], frozenset({"H"})

    def cost(problem, more):
        whole = tuple(StorageNode(t.name, dict(problem.sizes)) for t in problem.tensors)
        nodes = tuple(StorageNode(name, {**tile, **more}) for name, tile in once)
        return evaluate(problem, m, NestMapping(p.name, "m", (LevelMapping("DRAM", whole), LevelMapping("GLB", nodes))), inside)

    assert cost(again_in(p, {"again_e": 3}), {"again_e": 1}).energy_j == pytest.approx(3 * cost(p, {}).energy_j)


CUT = [
    (three(2, 2, 2, 2), THREE, ROWS),
    (gated(2, 2, 2), GATED, ()),
    (up_down(2, 2, 2), {"H": (0, 1)}, ()),
    (scores(2, 2, 2), {"A": (0, 1)}, ROWS),
    ([*scores(2, 2, 2)[:1], einsum("AV", ("Z", "m"), [("A", "m p"), ("V", "p f")], {"m": 2, "p": 2, "f": 2})], {"A": (0, 1)}, ROWS),
]


@pytest.mark.parametrize(("parts", "held", "rows"), CUT)
def test_loops_may_cut_what_leaves_every_tile_complete_when_it_is_read(parts, held, rows):
    one, sizes = region(parts, held, 99, running=rows), {r: n for p in parts for r, n in p.sizes.items()}
    for spans in every_nesting(len(parts)):
        check_cuts(one, spans, sizes)


def check_cuts(one, spans, sizes):
    loops, parts = RegionLoops(one, spans, again=True), one.members
    for k, (first, last) in enumerate(spans):
        stays = {name for name, held in one.held.items() if k in around(spans, held)}
        for rank in {r for p in parts[first : last + 1] for r in p.sizes}:
            cores = [{**sizes, rank: 1} if k in around(spans, run) else sizes for run in spans]
            runs = Members(one, spans).runs(cores, sizes)
            leaves_twice = any(rank not in p.sizes for p in parts[first : last + 1] if p.output.name not in stays)
            assert (rank in loops.cuts[k]) == (runs and not leaves_twice), (spans, k, rank)


def test_more_members_have_more_nestings():
    assert every_nesting(2) == [((0, 1),)]
    assert set(every_nesting(3)) == {((0, 2),), ((0, 2), (0, 1)), ((0, 2), (1, 2))}
    assert {frozenset(spans) for spans in every_nesting(4)} == {frozenset(spans) for spans in spans_within(0, 3)}
    assert [len(every_nesting(n)) for n in range(2, 7)] == [1, 3, 11, 45, 197]  # the little Schroeder numbers


def test_what_lives_around_loops_takes_room_as_long_as_they_run():
    loops = RegionLoops(region(three(2, 2, 2, 2), THREE, 99), ((0, 2), (0, 1)), again=True)
    assert [loops.live(i) for i in range(3)] == [["Q", "A"], ["Q", "A"], ["A"]]


def test_edp_of_a_region_is_refused():
    with pytest.raises(RackmodelError, match="EDP is no sum"):
        solve_region(PAIRS[0], objective=NestObjective("edp"))


class Calls(Effort):
    """Ends after so many questions, whatever they cost."""

    def spend(self, cells):
        self.spent += 1
        if self.spent > self.cells:
            raise Exhausted


def test_a_search_that_ends_early_has_a_bound():
    aim, every = NestObjective("latency"), Calls()
    best, found = solve_region(PAIRS[0], objective=aim, effort=every).latency_s, []
    for calls in range(10, every.spent + 1, samples.cases(max(10, every.spent // 8), 10)):
        try:
            found.append(solve_region(PAIRS[0], objective=aim, effort=Calls(calls)))
        except Exhausted:
            continue
    for one in found:
        assert 0 < one.certificate.bound <= best * (1 + 1e-12)
        assert one.latency_s >= best * (1 - 1e-12)
    assert any(not one.certificate.proven for one in found)
