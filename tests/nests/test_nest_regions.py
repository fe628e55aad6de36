"""Fused regions of two and three einsums: against runs of every mapping, and against each other."""

import random
from dataclasses import replace
from math import inf, prod

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import Region, solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.region import RunningRows
from tests import samples
from tests.nests.brute_region import least
from tests.nests.machines import einsum, level

AIMS = (NestObjective("energy"), NestObjective("latency"), NestObjective("weights", 2.0, 0.5), NestObjective("energy", static_w=3e-3))


def gated(s):
    """Gate, up and down; the activation lies where the gate's result was, the up's result is gone when down runs."""
    parts = [
        einsum("gate", ("G", "m f"), [("I", "m"), ("WG", "f")], s),
        einsum("up", ("U", "m f"), [("I", "m"), ("WU", "f")], s),
        einsum("down", ("O", "m"), [("G", "m f"), ("WD", "f")], s),
    ]
    return parts, {"G": (0, 2), "U": (1, 1)}


def scores(s):
    """QK, softmax over p, AV."""
    parts = [
        einsum("QK", ("A", "m p"), [("Q", "m"), ("K", "p")], s),
        einsum("AV", ("Z", "m f"), [("A", "m p"), ("V", "p f")], s),
    ]
    return parts, {"A": (0, 1)}


def crossed(s):
    """Two that merge other ranks each than both together: m with n in the first, n with p in the second."""
    parts = [
        einsum("one", ("A", "m n p"), [("I", "m n"), ("W1", "p")], s),
        einsum("two", ("O", "m"), [("A", "m n p"), ("W2", "n p")], s),
    ]
    return parts, {"A": (0, 1)}


def chain(s):
    """Three in a row: rows stay, what they hold between does not."""
    parts = [
        einsum("one", ("A", "m j"), [("I", "m"), ("W1", "j")], s),
        einsum("two", ("B", "m k"), [("A", "m j"), ("W2", "j k")], s),
        einsum("three", ("O", "m"), [("B", "m k"), ("W3", "k")], s),
    ]
    return parts, {"A": (0, 1), "B": (1, 2)}


def summed(s):
    """The second reads and writes nothing but what lies between members."""
    parts = [
        einsum("one", ("A", "m k"), [("I", "m"), ("W1", "k")], s),
        einsum("two", ("B", "m"), [("A", "m k")], s),
        einsum("three", ("O", "m f"), [("B", "m"), ("W3", "f")], s),
    ]
    return parts, {"A": (0, 1), "B": (1, 2)}


def problem(seed, make):
    """A small region on a small machine."""
    rng = random.Random(seed)
    sizes = {"m": 2, "p": rng.choice([2, 4]), "f": 2 if make is not gated else 1, "j": 1, "k": 2, "n": 2}
    parts, held = make(sizes)
    words = sum(prod(sizes[r] for r in t.ranks) for p in parts for t in p.tensors)
    capacity = 16 * rng.choice([words // 3 + 2, words // 2 + 1, words])
    buffer = level("GLB", capacity, 1, rng.choice([3e9, 1e10, 3e10]), NestFan(2))
    machine = NestMachine("m", (level("DRAM", None, 10, rng.choice([1e9, 4e9])), buffer), NestCompute(rng.choice([1e8, 1e9]), 5e-13))
    region = Region(tuple(parts), (machine,) * len(parts), held)
    if make is scores:
        region = replace(region, running=(RunningRows("A", "p", 32, rng.choice([0.0, 1e-10]), 1e-9),))
    return region, machine


@pytest.mark.parametrize(
    ("seed", "make"),
    [(1, scores), (2, chain), (3, gated), (21, crossed), (4, scores), (7, scores), (11, chain), (3, crossed)][: samples.cases(3, 8)],
)
def test_no_run_of_a_region_is_better(seed, make):
    region, machine = problem(seed, make)
    aim = AIMS[seed // 3 % 4]
    expected = least(region, machine, 2, aim.key, ((0, len(region.members) - 1),))
    if expected is None:
        with pytest.raises(InfeasibleError):
            solve_region(region, objective=aim)
        return
    found = solve_region(region, objective=aim)
    key = aim.key(found.energy_j, found.latency_s)
    assert key[0] == pytest.approx(expected[0], rel=1e-9)
    assert found.certificate.proven
    if aim.name != "energy":
        assert key[1] == pytest.approx(expected[1], rel=1e-9)


@pytest.mark.parametrize("aim", AIMS[1:])
def test_a_member_without_traffic_runs_from_a_buffer_of_any_bandwidth(aim):
    """Its ports take no time; shares of that were no numbers, so that regions ended in a TypeError or were called infeasible."""
    parts, held = summed({"m": 2, "k": 2, "f": 2})
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", 16 * 8, 1, inf, NestFan(2))), NestCompute(1e9, 5e-13))
    region = Region(tuple(parts), (machine,) * 3, held)
    found, expected = solve_region(region, objective=aim), least(region, machine, 2, aim.key, ((0, 2),))
    assert aim.key(found.energy_j, found.latency_s) == pytest.approx(expected, rel=1e-9)
    assert found.certificate.proven


@pytest.mark.parametrize("aim", AIMS[1:])
def test_a_region_that_no_loop_cuts_is_a_region(aim):
    """Tables without an axis are numbers, which nothing is written into: where rows stay whole and nothing else is shared, a TypeError."""
    parts, held = summed({"m": 1, "k": 2, "f": 2})
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", 16 * 8, 1, 3e9, NestFan(2))), NestCompute(1e9, 5e-13))
    region = Region(tuple(parts), (machine,) * 3, held, whole=frozenset({"k", "f"}))
    found, expected = solve_region(region, objective=aim), least(region, machine, 2, aim.key, ((0, 2),))
    assert aim.key(found.energy_j, found.latency_s) == pytest.approx(expected, rel=1e-9)
    assert found.certificate.proven
