"""Random small problems: the exact search equals brute force, in every objective, with its tie-break."""

import os
import random

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from tests import samples
from tests.nests.brute_nest import Brute, estimate, optimum
from tests.nests.random_nests import MORE_SHAPES, SHAPES, machine, problem, with_more

SEED = int(os.environ.get("NEST_SEED", "0"))
GROUPS = 30
COUNT = int(os.environ.get("NEST_COUNT", samples.cases(2, 18)))  # problems a group
OBJECTIVES = {"energy": "energy", "latency": "latency", "edp": "edp", "sum": {"energy": 0.3, "latency": 2.0}}


def cases(group, count=COUNT, limit=60_000):
    """`count` random (problem, machine) small enough to enumerate."""
    rng = random.Random(1000 * SEED + group)
    found = []
    while len(found) < count:
        more = rng.random() < 0.5
        p = problem(rng, shapes=SHAPES + MORE_SHAPES if more else SHAPES)
        m = machine(rng, p, options=rng.random() < 0.5)
        p, m = with_more(rng, p, m) if more else (p, m)
        if estimate(p, m) <= limit:
            found.append((p, m))
    return found


@pytest.mark.parametrize("group", samples.some(range(GROUPS), 3))
def test_search_equals_brute_force(group):
    for p, m in cases(group):
        arrays = list(Brute(p, m).all())
        if not any(np.isfinite(e).any() for e, _ in arrays):
            with pytest.raises(InfeasibleError):
                solve_nest(p, m, factors="perfect")
            continue
        for name, objective in OBJECTIVES.items():
            primary, tie = optimum(arrays, name)
            found = solve_nest(p, m, objective=objective, factors="perfect").certificate.objective
            assert found[0] == pytest.approx(primary, rel=1e-9), (name, p, m)
            assert found[1] == pytest.approx(tie, rel=1e-9), (name, p, m)
