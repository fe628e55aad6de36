"""A nest search that may price few cells, or has no time left, answers with a mapping and a bound that holds."""

import random
from itertools import product

import pytest

from rackmodel.errors import RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.divisor_axis import DivisorAxis, coarse_factors
from tests import samples
from tests.nests import random_nests


@pytest.mark.parametrize(("factors", "objective"), samples.some(product(["ceil", "perfect"], ["edp", "latency", "energy"]), 3))
def test_a_stopped_search_has_a_bound_that_no_mapping_beats(objective, factors):
    for seed in range(6):
        rng = random.Random(seed)
        problem = random_nests.problem(rng)
        machine = random_nests.machine(rng, problem)
        try:
            best = solve_nest(problem, machine, objective=objective, factors=factors).certificate
        except RackmodelError:  # nothing fits: another test's subject
            continue
        for effort in (Effort(0), Effort(300), Effort(ends=0.0)):
            found = solve_nest(problem, machine, objective=objective, factors=factors, effort=effort)
            assert evaluate(problem, machine, found.mapping) == found.cost
            assert found.certificate.space > 0
            assert found.certificate.bound <= best.objective[0] * (1 + 1e-9)
            assert found.certificate.objective[0] >= best.bound * (1 - 1e-9)


def test_coarse_tiles_are_divisors_with_one_and_the_whole():
    for size, most in ((720720, 24), (4096, 6), (97, 4), (1, 3), (30030, 9)):
        factors = coarse_factors(size, most)
        axis = DivisorAxis(size, factors)
        assert {1, size} <= set(axis.tile.tolist())
        assert all(size % tile == 0 for tile in axis.tile.tolist())
