"""Energy and time bounded together: no line is above a mapping, and what the lines drop is never the optimum."""

import random
from dataclasses import replace

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import Region, solve_nest, solve_region
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.searchers.mapspace.prices import energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.regions.region_lines import SliceLines
from rackmodel.nests.searchers.tables.backtrack import optimum
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.price_blends import Blend, BlendLine, shares_of
from rackmodel.nests.searchers.tables.slices import SliceSearch
from tests import samples
from tests.nests import brute_nest
from tests.nests.machines import gemm, level
from tests.nests.random_nests import machine, problem
from tests.nests.test_nest_regions import crossed, scores

BINDING = [10004, 10010, 10014, 10023, 10027, 10033]  # ports bind, and seconds cost much


def asked(seed):
    """A small question of which energy, time and static power all matter."""
    rng = random.Random(seed)
    p, m = problem(rng, 6, 100), None
    m = machine(rng, p)
    return p, replace(m, compute=replace(m.compute, macs_per_s=rng.choice([0.2, 1.0, 5.0]))), rng.choice([0, 3.0, 30.0])


@pytest.mark.parametrize("seed", samples.some(BINDING, 2))
@pytest.mark.parametrize("goal", ["energy", "latency", "edp"])
def test_what_is_dropped_is_never_the_optimum(seed, goal):
    p, m, static = asked(seed)
    if brute_nest.estimate(p, m) > 1e6:
        pytest.skip("too many mappings")
    best = brute_nest.optimum([(e + static * t if static else e, t) for e, t in brute_nest.Brute(p, m).all()], goal)
    try:
        sheet = solve_nest(p, m, objective=NestObjective(goal, static_w=static), factors="perfect").certificate
    except InfeasibleError:
        assert best is None
        return
    assert sheet.proven
    assert sheet.objective[0] == pytest.approx(best[0], rel=1e-9)


def test_a_line_is_below_every_mapping_of_its_slice():
    p, m, _ = asked(10010)
    space = Space(p, m, keep_masks(p, m, NestConstraints())[0], NestConstraints())
    search = SliceSearch(space, NestObjective("latency"))
    joules, ports = energy_prices(m), [c for c, _ in search.ports]
    widest = (0,) * space.depth
    scales = [search.scale(c, widest) for c in ports]
    blend = Blend(1.0, tuple(3.0 * k for k in scales))
    table = CostTable(space, blend.prices(joules, ports))
    line = BlendLine(blend, table, optimum(table) + search.constant)
    a, b = blend.energy, blend.seconds(scales)
    for energy, seconds in brute_nest.Brute(p, m).all():
        inside = np.isfinite(energy)
        assert (a * energy + b * seconds)[inside].min(initial=np.inf) >= line.least * (1 - 1e-12)


@pytest.mark.parametrize(("make", "aim"), [(scores, NestObjective("energy", static_w=0.3)), (crossed, NestObjective("latency"))])
def test_lines_of_branches_change_no_region(make, aim, monkeypatch):
    """A fused region on three memories, its branches searched by lines that they share, and by energy and every port alone."""
    parts, held = make({"m": 4, "p": 4, "f": 4, "n": 2})
    levels = (
        level("DRAM", None, 10, 1e9),
        level("GLB", 16 * 60, 1, 3e9, NestFan(4)),
        level("RF", 16 * 16, 0.1, 3e9, NestFan(2)),
    )
    region = Region(tuple(parts), (NestMachine("m", levels, NestCompute(1e9, 5e-13)),) * len(parts), held)
    made, line = [], SliceLines._of_line
    monkeypatch.setattr(SliceLines, "_of_line", lambda self, *of: made.append(of) or line(self, *of))
    found = solve_region(region, objective=aim)
    assert made
    monkeypatch.setattr(SliceLines, "_of_line", lambda self, *of: -float("inf"))
    monkeypatch.setattr(SliceSearch, "_lines", lambda self, *of: [])
    plain = solve_region(region, objective=aim)
    assert aim.key(found.energy_j, found.latency_s) == pytest.approx(aim.key(plain.energy_j, plain.latency_s), rel=1e-12)
    assert found.certificate.proven
    assert plain.certificate.proven


def test_weights_move_to_the_ports_that_bind():
    assert shares_of([1.0, 4.0, 2.0], [1 / 3] * 3, 2.0)[1] > 0.5
    assert sum(shares_of([1.0, 4.0, 2.0], [0.2, 0.3, 0.5], 2.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["energy", "latency", "edp", "weights"])
def test_the_weights_of_an_objective_are_its_slope(name):
    goal = NestObjective(name, 2.0 * (name == "weights"), 3.0 * (name == "weights"), static_w=5.0)
    at, step = (7.0, 11.0), 1e-6
    rise = [float(goal.key(at[0] + step * i, at[1] + step * (1 - i))[0] - goal.key(*at)[0]) / step for i in (1, 0)]
    assert goal.weights(*at) == pytest.approx(rise, rel=1e-5)


@pytest.mark.parametrize("aim", [NestObjective("energy"), NestObjective("edp"), NestObjective("weights", 1.0, 0.0)])
def test_where_nothing_draws_anything_the_least_is_nothing(aim):
    """A machine whose file says no joules: lines of 0 are no share of one another, which was a division by zero."""
    levels = (level("DRAM", None, 0, 1e9), level("GLB", 16 * 60, 0, 3e9, NestFan(4)))
    found = solve_nest(gemm(4, 4, 4), NestMachine("m", levels, NestCompute(1e9)), objective=aim, factors="perfect")
    assert found.certificate.objective[0] == 0.0
    assert found.certificate.proven


def test_what_fits_nowhere_is_dearest_by_any_weights():
    """Joules without an end times no weight are no number."""
    fits_not = np.array([np.inf])
    assert NestObjective("weights", 0.0, 1.0).key(fits_not, np.array([3.0]))[0] == 3.0
    assert NestObjective("weights", 1.0, 0.0).key(np.array([3.0]), fits_not)[0] == 3.0
    assert NestObjective("weights", 2.0, 1.0).key(fits_not, np.array([3.0]))[0] == np.inf
