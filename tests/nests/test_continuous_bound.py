"""The bound of real sizes: no mapping, ragged or not, is below it, and it is near the optimum of a large nest."""

import contextlib
import random
from itertools import product
from math import prod

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.searchers.bounds.continuous_bound import ContinuousNest
from rackmodel.nests.searchers.mapspace.list_axes import ListAxis
from rackmodel.nests.searchers.mapspace.prices import energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from tests.nests.machines import edge3, gemm
from tests.nests.random_nests import divisible_mapping, machine, mapping, problem


def energies(rng, p, m, count):
    """Of random mappings, ragged ones among them, without the MACs."""
    for _ in range(count):
        for make in (lambda: mapping(rng, p, m), lambda: mapping(rng, p, m, perfect=False), lambda: divisible_mapping(rng, p, m)):
            with contextlib.suppress(InfeasibleError):
                yield evaluate(p, m, make()).energy_j - p.macs * m.compute.j_per_mac


def bound(p, m, known):
    axes = [ListAxis(n, 2, m.compute.atom.get(r, 1)) for r, n in p.sizes.items()]
    return ContinuousNest(Space(p, m, keep_masks(p, m, NestConstraints())[0], NestConstraints(), axes=axes), energy_prices(m)).bound(known)


@pytest.mark.parametrize("seed", range(6))
def test_no_mapping_is_below_the_bound(seed):
    rng = random.Random(seed)
    p = problem(rng, limit=400, choices=(1, 2, 3, 5, 6, 7, 12))
    m = machine(rng, p, inner=1 + seed % 2, options=seed % 3 > 0)
    found = list(energies(rng, p, m, 60))
    with contextlib.suppress(InfeasibleError):
        sheet = solve_nest(p, m, factors="perfect").certificate
        found.append(sheet.objective[0] - p.macs * m.compute.j_per_mac)
    if found:
        assert bound(p, m, min(found) * 1.5) <= min(found) * (1 + 1e-9)


def test_the_bound_of_a_large_nest_is_near_its_optimum():
    p, m = gemm(2048, 4096, 14336), edge3()
    constant = p.macs * m.compute.j_per_mac
    assert 0.4856 < bound(p, m, 0.4928407863296 - constant) + constant < 0.4928407863296


@pytest.mark.parametrize("widths", [(1, 2), (3, None)])
@pytest.mark.parametrize("capacity", [None, 9 * 16])
def test_parts_that_idle_are_served_nothing(widths, capacity):
    """Every spatial vector within the fan with every tile, those with fewer tiles than parts among them."""
    p = gemm(3, 2, 2)
    fan = NestFan(4, multicast_width=widths[0], reduction_width=widths[1])
    m = NestMachine("idle", (NestLevel("M", None, 1.0, 1.0, fan=fan), NestLevel("B", capacity)), NestCompute(1e9))
    costs = list(idle_costs(p, m))
    least = bound(p, m, min(costs) * 1.5)
    assert least <= min(costs) * (1 + 1e-9)
    assert solve_nest(p, m).certificate.bound <= min(costs) * (1 + 1e-9)
    assert min(costs) >= 16 * (3 * 2 + 2 * 2 + 3 * 2), "every word moves once"


def idle_costs(p, m):
    whole = tuple(StorageNode(t.name, dict(p.sizes)) for t in p.tensors)
    for parts, tile in product(product((1, 2, 4), repeat=3), product(*(range(1, n + 1) for n in p.sizes.values()))):
        x, size = dict(zip(p.sizes, parts, strict=True)), dict(zip(p.sizes, tile, strict=True))
        inner = LevelMapping("B", tuple(StorageNode(t.name, size) for t in p.tensors))
        if prod(parts) <= 4:
            with contextlib.suppress(InfeasibleError):
                yield evaluate(p, m, NestMapping(p.name, m.name, (LevelMapping("M", whole, x), inner))).energy_j
