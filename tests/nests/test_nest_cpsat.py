"""CP-SAT, built without the lemmas, agrees with the dynamic programming."""

import random

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from tests.nests.machines import attention, edge3, gemm, glb_pe, rack8, tiny
from tests.nests.random_nests import machine, problem

QK, AV = attention()[3:5]


@pytest.mark.parametrize(
    ("p", "m", "energy"),
    [
        (gemm(64, 64, 64), tiny(), 9.240576e-6),
        (gemm(48, 96, 36), tiny(), 5.76e-6),
        (gemm(2048, 4096, 14336), glb_pe(), 0.803561537536),
        (gemm(2048, 4096, 14336), rack8(), 0.830673518592),
        (QK, glb_pe(), 0.13035896832),
        (AV, edge3(), 0.08707375104),
        (gemm(2048, 4096, 14336), edge3(), 0.4928407863296),
    ],
)
def test_known_optima(p, m, energy):
    found = solve_nest(p, m, factors="perfect", solver="cpsat")
    assert found.cost.energy_j == pytest.approx(energy, rel=1e-9)
    assert found.certificate.proven


def four_levels():
    """HBM → L2 → 132-wide grid → shared memory → 4 sub-cores → registers."""
    return NestMachine(
        "four",
        (
            NestLevel("HBM", None, 5e-12, 5e-12, 2.6e13),
            NestLevel("L2", 50e6 * 8, 1.2e-12, 1.2e-12, 4e13, fan=NestFan(12, 11)),
            NestLevel("SMEM", 228e3 * 8, 0.3e-12, 0.3e-12, 1e12, fan=NestFan(4)),
            NestLevel("RF", 64e3 * 8, 0.05e-12, 0.05e-12),
        ),
        NestCompute(4e11, 0.4e-12),
    )


@pytest.mark.parametrize("n", [256, 1024])
def test_four_levels(n):
    energies = [solve_nest(gemm(n, n, n), four_levels(), factors="perfect", solver=s).cost.energy_j for s in ("dp", "cpsat")]
    assert energies[0] == pytest.approx(energies[1], rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_agree(seed):
    rng = random.Random(seed)
    p = problem(rng, biggest=12, limit=3000)
    m = machine(rng, p, options=seed % 2 == 0)
    try:
        expected = solve_nest(p, m, factors="perfect").cost.energy_j
    except InfeasibleError:
        with pytest.raises((InfeasibleError, RackmodelError)):
            solve_nest(p, m, factors="perfect", solver="cpsat")
        return
    try:
        found = solve_nest(p, m, factors="perfect", solver="cpsat")
    except RackmodelError as e:
        assert "multicast width" in str(e)
        return
    assert found.cost.energy_j == pytest.approx(expected, rel=1e-6)
