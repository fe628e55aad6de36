"""Bypass, constraints, linear fans, atoms, widths, infeasible questions."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import FixedTile, NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import NestMapping, print_nest
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from tests import samples
from tests.nests.brute_nest import Brute, estimate, optimum
from tests.nests.machines import attention, edge3, einsum, gemm, glb_pe, tiny
from tests.nests.random_nests import machine, problem


@pytest.mark.parametrize("seed", range(1, samples.cases(2, 5)))
def test_free_bypass_equals_brute_force_over_every_mask(seed):
    rng = random.Random(seed)
    while True:
        p = problem(rng, biggest=6, limit=100)
        m = machine(rng, p, inner=2, options=seed % 2 == 0)
        if estimate(p, m) <= 8_000:
            break
    names = [t.name for t in p.tensors]
    free = replace(m, levels=(m.levels[0], *(replace(v, keep=()) for v in m.levels[1:])))
    masks = [
        [names, *choice]
        for choice in product(
            [[n for n, on in zip(names, bits, strict=False) if on] for bits in product((True, False), repeat=3)], repeat=2
        )
    ]
    arrays = [x for kept in masks for x in Brute(p, m, kept).all()]
    for objective in ("energy", "edp"):
        best = optimum(arrays, objective)
        found = solve_nest(p, free, objective=objective, factors="perfect")
        assert found.certificate.objective == pytest.approx(best, rel=1e-9)


def test_bypass_lists_and_constraints_are_obeyed_or_refused():
    p = gemm(256, 256, 256)
    free = replace(edge3(), levels=tuple(replace(v, keep=()) if i == 2 else v for i, v in enumerate(edge3().levels)))
    forced = solve_nest(p, free, factors="perfect", constraints=NestConstraints(keep={"RegFile": ("C",)}, bypass={"RegFile": ("A", "B")}))
    assert [n.tensor for n in forced.mapping.levels[2].nodes] == ["C"]
    assert forced.cost.energy_j >= solve_nest(p, free, factors="perfect").cost.energy_j
    fixed = replace(edge3(), levels=(*edge3().levels[:2], replace(edge3().levels[2], bypass=("A",))))
    with pytest.raises(RackmodelError, match="bypasses"):
        solve_nest(p, fixed, factors="perfect", constraints=NestConstraints(keep={"RegFile": ("A",)}))
    with pytest.raises(RackmodelError, match="no tensor"):
        solve_nest(p, edge3(), constraints=NestConstraints(stationary={"RegFile": "Q"}))
    with pytest.raises(RackmodelError, match="known"):
        solve_nest(p, edge3(), constraints=NestConstraints(spatial={("RegFile", "X"): ("q",)}))


@pytest.mark.parametrize("factors", ["perfect", "ceil"])
@pytest.mark.parametrize("make", samples.some([glb_pe, edge3], 2))
def test_order_stationarity_and_spatial_ranks(make, factors):
    p, m = gemm(192, 320, 256), make()
    best = solve_nest(p, m, factors=factors).cost.energy_j
    limits = NestConstraints(
        order={"GlobalBuffer": ("B", "A")},
        stationary={"GlobalBuffer": "C"},
        spatial={("GlobalBuffer", "X"): ("m",), ("GlobalBuffer", "Y"): ("n",)},
    )
    found = solve_nest(p, m, factors=factors, constraints=limits)
    level = found.mapping.levels[1]
    assert [n.tensor for n in level.nodes] == ["C", "B", "A"]
    assert set(level.x) <= {"m"}
    assert set(level.y) <= {"n"}
    assert found.cost.energy_j >= best * (1 - 1e-12)


@pytest.mark.parametrize("tensor", [None, "A"])
def test_fixed_tiles(tensor):
    p, m = gemm(64, 64, 64), edge3(2048)
    limits = NestConstraints(tiles=(FixedTile("RegFile", "k", 8, tensor), FixedTile("GlobalBuffer", "m", 16)))
    found = [solve_nest(p, m, factors="perfect", solver=s, constraints=limits) for s in ("dp", "cpsat")]
    for f in found:
        for node in f.mapping.levels[2].nodes:
            if "k" in p.tensor(node.tensor).ranks and tensor in (None, node.tensor):
                assert node.tile["k"] == 8
        for node in f.mapping.levels[1].nodes:
            assert "m" not in p.tensor(node.tensor).ranks or node.tile["m"] == 16
    assert found[0].cost.energy_j == pytest.approx(found[1].cost.energy_j, rel=1e-9)
    for solver in ("dp", "cpsat"):
        with pytest.raises(InfeasibleError, match="fixed tile k = 7 at RegFile does not divide 64"):
            solve_nest(p, m, factors="perfect", solver=solver, constraints=NestConstraints(tiles=(FixedTile("RegFile", "k", 7),)))


def test_a_tile_fixed_twice_is_refused():
    two = NestConstraints(tiles=(FixedTile("GlobalBuffer", "m", 16), FixedTile("GlobalBuffer", "m", 32)))
    with pytest.raises(RackmodelError, match="fixed tile m at GlobalBuffer: both 16 and 32"):
        solve_nest(gemm(64, 64, 64), edge3(), constraints=two)


@pytest.mark.parametrize(
    "demand",
    [
        {"order": {"GlobalBuffer": ("A", "B")}},
        {"stationary": {"GlobalBuffer": "B"}},
        {"bypass": {"GlobalBuffer": ("B",)}},
        {"tiles": (FixedTile("GlobalBuffer", "k", 8),)},
        {"tiles": (FixedTile("GlobalBuffer", "k", 8, "B"),)},
    ],
)
def test_nothing_is_demanded_of_a_tensor_that_stays_whole_on_chip(demand):
    with pytest.raises(RackmodelError, match="GlobalBuffer keeps B whole"):
        solve_nest(gemm(64, 64, 64), edge3(), factors="perfect", constraints=NestConstraints(**demand), resident=("B",))
    elsewhere = NestConstraints(tiles=(FixedTile("GlobalBuffer", "m", 8, "A"),), stationary={"RegFile": "B"})
    assert solve_nest(gemm(64, 64, 64), edge3(), factors="perfect", constraints=elsewhere, resident=("B",)).certificate.proven


def test_infeasible_names_level_need_and_capacity():
    with pytest.raises(InfeasibleError, match="RegFile") as caught:
        solve_nest(gemm(8, 8, 8), edge3(rf_bits=40), factors="perfect")
    assert (caught.value.need, caught.value.have) == (48, 40)
    with pytest.raises(InfeasibleError):
        solve_nest(gemm(8, 8, 8), edge3(rf_bits=40))
    with pytest.raises(InfeasibleError):
        solve_nest(gemm(8, 8, 8), tiny(glb_bits=40))


def test_room_for_a_tile_that_is_fixed_further_in_is_said():
    """A[m, k] fixed at 5 of k in the file: tiles around it have 5 of k, so the buffer holds 5 words of A, 5 of B[k, n] and one of C."""
    levels = NestLevel("memory", None, 8.0, 8.0), NestLevel("buffer", 100, 1.0, 1.0), NestLevel("file", 16 * 20, 0.1, 0.1)
    m, five = NestMachine("small", levels, NestCompute(1.0)), NestConstraints(tiles=(FixedTile("file", "k", 5, "A"),))
    for factors in ("perfect", "ceil"):
        with pytest.raises(InfeasibleError, match="buffer needs 176 bits") as caught:
            solve_nest(gemm(7, 5, 4), m, factors=factors, constraints=five)
        assert (caught.value.need, caught.value.have) == (16 * 11, 100)
        roomy = replace(m, levels=(levels[0], replace(levels[1], capacity_bits=16 * 11), levels[2]))
        assert solve_nest(gemm(7, 5, 4), roomy, factors=factors, constraints=five).cost.used_bits["buffer"] == 16 * 11


def test_room_beside_what_stays_whole_is_said():
    """B[k, n] of 8 x 8 stays whole: 64 words, and one each of A and C."""
    m = glb_pe()
    small = replace(m, levels=(m.levels[0], replace(m.levels[1], capacity_bits=16 * 65)))
    with pytest.raises(InfeasibleError, match="GlobalBuffer needs 1056 bits") as caught:
        solve_nest(gemm(8, 8, 8), small, factors="perfect", resident=("B",))
    assert (caught.value.need, caught.value.have) == (16 * 66, 16 * 65)


def streaming(units):
    """HBM → L2 → `units` in a line → shared memory → atom."""
    return NestMachine(
        "line",
        (
            NestLevel("HBM", None, 4e-12, 4e-12, 2e13),
            NestLevel("L2", 4e8, 1e-12, 1e-12, 4e13, fan=NestFan(units, linear=True, multicast_width=1, reduction_width=1)),
            NestLevel("SMEM", 1.8e6, 2e-13, 2e-13, 1e13, buffers=2),
        ),
        NestCompute(5e11, 4e-13, {"m": 16, "n": 8, "k": 16}),
    )


def test_linear_fan_counts_waves():
    p = gemm(512, 256, 512)
    found = solve_nest(p, streaming(12), objective="latency", factors="perfect")
    parts = np.prod([found.mapping.levels[1].spatial(r) for r in p.sizes])
    waves = -(-parts // 12)
    assert found.cost.times_s["compute"] == pytest.approx(p.macs / parts * waves / 5e11)
    one = solve_nest(p, streaming(1), objective="latency", factors="perfect").cost
    assert found.cost.latency_s < one.latency_s / 8
    wider = solve_nest(p, streaming(16), objective="latency", factors="perfect").cost
    assert wider.latency_s <= found.cost.latency_s


@pytest.mark.parametrize("factors", ["perfect", "ceil"])
def test_atom_is_the_leaf(factors):
    m = streaming(4)
    found = solve_nest(gemm(64, 64, 64), m, factors=factors)
    smem = found.mapping.levels[2].nodes[-1].tile
    assert all(smem[r] % u == 0 for r, u in m.compute.atom.items())
    reads = {a.tensor: a.read_bits for a in found.cost.accesses if a.level == "SMEM"}
    assert reads["A"] == 16 * 64 * 64 * 64 / 8


def test_what_no_atom_divides_takes_whole_atoms():
    m = streaming(4)
    ragged = solve_nest(gemm(60, 60, 60), m)
    assert ragged.cost.times_s["compute"] >= 64**3 / 4 / 5e11 * (1 - 1e-12)
    with pytest.raises(RackmodelError, match="ceil"):
        solve_nest(gemm(60, 60, 60), m, factors="perfect")


@pytest.mark.parametrize("size", [16, 32, 48])
def test_a_fan_of_more_parts_than_a_rank_has_atoms(size):
    """The parts of a rank hold whole atoms, however wide the fan is."""
    levels = NestLevel("memory", None, 2.0, 2.0, 1.0), NestLevel("buffer", 16 * 200, 1.0, 1.0, fan=NestFan(4, 2))
    m = NestMachine("atoms", levels, NestCompute(1.0, 1.0, {"m": 16}))
    p = gemm(size, 4, 2)
    for goal, force in (("energy", solve_nest(p, m, factors="perfect", solver="cpsat").cost.energy_j), ("latency", None)):
        found = solve_nest(p, m, objective=goal, factors="perfect")
        assert found.certificate.proven
        assert force is None or found.cost.energy_j == pytest.approx(force, rel=1e-9)
        assert solve_nest(p, m, objective=goal).certificate.objective[0] <= found.certificate.objective[0] * (1 + 1e-12)


@pytest.mark.parametrize("objective", samples.some(["edp", "energy", "latency"], 3))
def test_more_capacity_bandwidth_or_fanout_never_costs_more(objective):
    p, rng = gemm(24, 48, 18), random.Random(3)
    for _ in range(samples.cases(1, 3)):
        m = machine(rng, p, inner=2, options=False)
        m = replace(m, levels=tuple(replace(v, capacity_bits=v.capacity_bits and v.capacity_bits + 200) for v in m.levels))
        base = solve_nest(p, m, objective=objective, factors="perfect").certificate.objective[0]
        for i, v in enumerate(m.levels):
            for more in (
                {"capacity_bits": v.capacity_bits and 2 * v.capacity_bits},
                {"bandwidth_bits_per_s": 2 * v.bandwidth_bits_per_s},
                {"fan": NestFan(2 * v.fan.x, v.fan.y)},
            ):
                other = replace(m, levels=tuple(replace(w, **more) if w is v else w for w in m.levels))
                found = solve_nest(p, other, objective=objective, factors="perfect").certificate.objective[0]
                assert found <= base * (1 + 1e-9), (i, more)


HALO = einsum("conv", ("O", "f p q"), [("I", "c p+r q+s"), ("W", "f c r s")], {"f": 8, "c": 8, "p": 14, "q": 14, "r": 3, "s": 3})


def test_convolution_with_halo():
    found = [solve_nest(HALO, glb_pe(), factors="perfect", solver=s) for s in ("dp", "cpsat")]
    assert found[0].cost.energy_j == pytest.approx(found[1].cost.energy_j, rel=1e-9)
    whole = {a.tensor: a.read_bits for a in found[0].cost.accesses if a.level == "DRAM"}
    assert whole["I"] == 8 * 16 * 16 * 16  # read once, halo included


@samples.audited
def test_any_tile_of_a_convolution_is_never_above_divisors():
    found = [solve_nest(HALO, glb_pe(), **more).cost.energy_j for more in ({}, {"factors": "perfect"})]
    assert found[0] <= found[1] * (1 + 1e-12)


def test_solution_round_trips_prints_and_is_deterministic():
    p = attention()[3]
    one, two = (solve_nest(p, edge3(), factors="perfect") for _ in range(2))
    assert one.mapping == two.mapping == NestMapping.from_dict(one.mapping.to_dict())
    assert evaluate(p, edge3(), one.mapping) == one.cost
    assert "[RegFile] holds QK" in print_nest(one.mapping, p.sizes)


@pytest.mark.parametrize(
    "wrong", [{"objective": "speed"}, {"factors": "half"}, {"solver": "magic"}, {"objective": {"carbon": 1.0}}, {"solver": "cpsat"}]
)
def test_unknown_words_are_refused(wrong):
    with pytest.raises(RackmodelError):
        solve_nest(gemm(8, 8, 8), tiny(), **wrong)
