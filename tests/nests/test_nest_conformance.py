"""Every visible conformance point: energy, latency, EDP of small GEMMs that were solved by brute force elsewhere."""

import pytest

from rackmodel.nests import solve_nest
from tests.nests.machines import attention, edge3, ffn, gemm, glb_pe, rack8, tiny, tiny_cb

# (machine, m, k, n) → objective → (energy J, latency s), from conformance/accelforge/gemm_cases.json
POINTS = {
    ("tiny", 64, 64, 64): {
        "energy": (9.240575999999999e-06, 5.0688e-05),
        "latency": (9.240575999999999e-06, 5.0688e-05),
        "edp": (9.240575999999999e-06, 5.0688e-05),
    },
    ("tiny", 48, 96, 36): {
        "energy": (5.76e-06, 3.2112e-05),
        "latency": (5.76e-06, 3.2112e-05),
        "edp": (5.76e-06, 3.2112e-05),
    },
    ("tiny_cb", 27, 64, 9): {
        "energy": (9.083519999999999e-07, 2.592e-05),
        "latency": (9.80928e-07, 1.944e-05),
        "edp": (9.80928e-07, 1.944e-05),
    },
}

OPTIMA = [
    (glb_pe, gemm(2048, 4096, 14336), 0.803561537536, 0.117440512),
    (edge3, gemm(2048, 4096, 14336), 0.4928407863296, 0.117440512),
    (rack8, gemm(2048, 4096, 14336), 0.830673518592, None),
]


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("objective", ["energy", "latency", "edp"])
def test_conformance_point_is_met(point, objective):
    machine, *sizes = point
    cost = solve_nest(gemm(*sizes), {"tiny": tiny, "tiny_cb": tiny_cb}[machine](), objective=objective, factors="perfect").cost
    energy, latency = POINTS[point][objective]
    assert cost.energy_j == pytest.approx(energy, rel=1e-6)
    assert cost.latency_s == pytest.approx(latency, rel=1e-6)


@pytest.mark.parametrize(("machine", "problem", "energy", "latency"), OPTIMA)
def test_large_gemm_optimum(machine, problem, energy, latency):
    solution = solve_nest(problem, machine(), factors="perfect")
    assert solution.cost.energy_j == pytest.approx(energy, rel=1e-9)
    assert latency is None or solution.cost.latency_s == pytest.approx(latency, rel=1e-9)
    assert solution.certificate.proven
    assert solution.certificate.bound == solution.certificate.objective[0]


@pytest.mark.parametrize("objective", ["latency", "edp"])
def test_edge3_gemm_latency_and_edp_share_the_energy_optimum(objective):
    cost = solve_nest(gemm(2048, 4096, 14336), edge3(), objective=objective, factors="perfect").cost
    assert (cost.energy_j, cost.latency_s) == pytest.approx((0.4928407863296, 0.117440512), rel=1e-9)


def test_rack_of_eight_latency():
    cost = solve_nest(gemm(2048, 4096, 14336), rack8(), objective="latency", factors="perfect").cost
    assert (cost.energy_j, cost.latency_s) == pytest.approx((0.834431614976, 0.014680064), rel=1e-9)


@pytest.mark.parametrize(
    ("machine", "batch", "objective", "energy", "latency"),
    [
        (glb_pe, 1, "energy", 0.84188069888, None),
        (glb_pe, 16, "energy", 13.47009118208, None),
        (edge3, 1, "energy", 0.5294620934144, None),
        (edge3, 1, "latency", 0.5294688043008, 0.117440512),
        (edge3, 1, "edp", 0.5294688043008, 0.117440512),
        (edge3, 16, "energy", 8.45488471, 2.147483648),
    ],
)
def test_attention_of_six_einsums(machine, batch, objective, energy, latency):
    costs = [solve_nest(p, machine(), objective=objective, factors="perfect").cost for p in attention(batch)]
    assert sum(c.energy_j for c in costs) == pytest.approx(energy, rel=1e-9 if batch < 16 else 1e-8)
    assert latency is None or sum(c.latency_s for c in costs) == pytest.approx(latency, rel=1e-9)


@pytest.mark.parametrize(("machine", "energy"), [(glb_pe, 1.611686477824), (edge3, 0.9867217600512)])
def test_ffn_unfused(machine, energy):
    total = sum(solve_nest(p, machine(), factors="perfect").cost.energy_j for p in ffn())
    assert total == pytest.approx(energy, rel=1e-9)
