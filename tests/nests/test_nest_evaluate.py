"""The evaluation equals a counter that walks the loops."""

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode, print_nest
from tests.nests.loop_walker import Walker
from tests.nests.machines import edge3, gemm, glb_pe
from tests.nests.random_nests import machine, mapping, problem


def plain(m):
    """No capacities, widths or hops: what the walker knows."""
    return replace(
        m,
        levels=tuple(
            replace(v, capacity_bits=None, fan=replace(v.fan, multicast_width=None, reduction_width=None, hop_j_per_bit=0.0))
            for v in m.levels
        ),
    )


@pytest.mark.parametrize("perfect", [True, False])
@pytest.mark.parametrize("seed", range(150))
def test_traffic_and_time_equal_the_walked_loops(seed, perfect):
    rng = random.Random(seed)
    p = problem(rng, limit=300, choices=(1, 2, 3, 4, 5, 6, 7, 8))
    m = plain(machine(rng, p))
    chosen = mapping(rng, p, m, perfect)
    cost, walker = evaluate(p, m, chosen), Walker(p, m, chosen)
    total, instance = walker.traffic()
    for a in cost.accesses:
        level = next(i for i, v in enumerate(m.levels) if v.name == a.level)
        bits = m.levels[level].bits(p.tensor(a.tensor))
        reads, writes = total[level, a.tensor]
        assert (a.read_bits, a.write_bits) == (reads * bits, writes * bits), (a.level, a.tensor)
    assert cost.times_s["compute"] == pytest.approx(walker.cycles() / m.compute.macs_per_s)
    ports = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for (level, name, path), moved in instance.items():
        for kind in (0, 1):
            ports[level][path][kind] += moved[kind] * m.levels[level].bits(p.tensor(name))
    for i, v in enumerate(m.levels):
        if v.write_bandwidth_bits_per_s is None:
            fullest = max(sum(rw) for rw in ports[i].values())
            assert cost.times_s[v.name] == pytest.approx(fullest / v.bandwidth_bits_per_s)
        else:
            assert cost.times_s[f"{v.name} write"] == pytest.approx(max(rw[1] for rw in ports[i].values()) / v.write_bandwidth_bits_per_s)


def hand_mapping():
    """[X] = tensor X stored: n8 [C] k256 [A] n224 [B] m256 · Y: n8 k4 · X: m8 k4 (conformance README)."""
    whole = {"m": 2048, "k": 4096, "n": 14336}
    c, a, b = ({"m": 2048, "k": 4096, "n": 1792}, {"m": 2048, "k": 16, "n": 1792}, {"m": 2048, "k": 16, "n": 8})
    return NestMapping(
        "gemm",
        "glb_pe",
        (
            LevelMapping("DRAM", tuple(StorageNode(t, dict(whole)) for t in "ABC")),
            LevelMapping(
                "GlobalBuffer", (StorageNode("C", c), StorageNode("A", a), StorageNode("B", b)), {"m": 8, "k": 4}, {"n": 8, "k": 4}
            ),
        ),
    )


def test_the_mapping_derived_by_hand_costs_what_it_should():
    cost = evaluate(gemm(2048, 4096, 14336), glb_pe(), hand_mapping())
    assert cost.energy_j == pytest.approx(0.803561537536, rel=1e-12)
    assert cost.latency_s == pytest.approx(0.117440512, rel=1e-12)
    assert cost.utilisation == pytest.approx(1.0)


def test_mapping_round_trips_and_prints():
    chosen = hand_mapping()
    assert NestMapping.from_dict(chosen.to_dict()) == chosen
    text = print_nest(chosen, {"m": 2048, "k": 4096, "n": 14336})
    assert "[GlobalBuffer] holds A" in text
    assert "parallel-for n in 0..8" in text
    assert "for k in 0..256" in text


def test_wrong_mappings_are_refused():
    p, good = gemm(2048, 4096, 14336), hand_mapping()
    with pytest.raises(RackmodelError, match="levels"):
        evaluate(p, edge3(), good)
    small = replace(glb_pe(), levels=tuple(replace(v, capacity_bits=1000) if i else v for i, v in enumerate(glb_pe().levels)))
    with pytest.raises(InfeasibleError, match="GlobalBuffer"):
        evaluate(p, small, good)
    wide = replace(good, levels=(good.levels[0], replace(good.levels[1], x={"m": 64})))
    with pytest.raises(RackmodelError, match="exceeds the fanout"):
        evaluate(p, glb_pe(), wide)
    with pytest.raises(RackmodelError, match="unknown key"):
        NestMapping.from_dict({"problem": "x", "levels": []})


def small_nest(m, stored, x=None):
    """4 x 4 x 4 whole at both memories of a machine; stored: at the inner one."""
    whole = {"m": 4, "k": 4, "n": 4}
    outer, inner = (tuple(StorageNode(t, whole) for t in names) for names in ("ABC", stored))
    return NestMapping("gemm", m.name, (LevelMapping(m.levels[0].name, outer), LevelMapping(m.levels[1].name, inner, x or {})))


def test_what_a_level_must_store_is_stored_and_what_it_bypasses_is_not():
    """No search has such a mapping. Where the machine has no list of what is kept, rules may let A pass."""
    p, m = gemm(4, 4, 4), glb_pe()

    def told(keep, bypass=()):
        return replace(m, levels=(m.levels[0], replace(m.levels[1], keep=keep, bypass=bypass)))

    for free in (told(None), told(()), told(("B",))):
        assert evaluate(p, free, small_nest(m, "BC")).energy_j > 0
    past = solve_nest(p, m, constraints=NestConstraints(bypass={"GlobalBuffer": ("A",)})).mapping
    assert [n.tensor for n in past.levels[1].nodes if n.tensor == "A"] == []
    with pytest.raises(RackmodelError, match="GlobalBuffer must store A: the machine keeps it there"):
        evaluate(p, told(("A",)), small_nest(m, "BC"))
    with pytest.raises(RackmodelError, match="GlobalBuffer cannot store B: the machine bypasses it"):
        evaluate(p, told((), ("A", "B")), small_nest(m, "BC"))


@pytest.mark.parametrize("parts", [0, -2])
def test_parts_of_a_fan_are_one_at_least(parts):
    with pytest.raises(RackmodelError, match="fewer than one part"):
        evaluate(gemm(4, 4, 4), glb_pe(), small_nest(glb_pe(), "ABC", {"m": parts}))


@pytest.mark.parametrize(("tile", "fine"), [(1, False), (2, True)])
def test_a_tile_below_the_atom_is_refused(tile, fine):
    """No search lists one and no bound covers it: an instruction of two rows is never handed a single one."""
    atomic = replace(glb_pe(), compute=replace(glb_pe().compute, atom={"m": 2}))
    whole = {"m": 4, "k": 4, "n": 4}
    inner = {**whole, "m": tile}
    outer, below = (v.name for v in atomic.levels)
    nest = NestMapping(
        "gemm",
        atomic.name,
        (
            LevelMapping(outer, tuple(StorageNode(t, whole) for t in "ABC")),
            LevelMapping(below, tuple(StorageNode(t, inner) for t in "ABC")),
        ),
    )
    if fine:
        assert evaluate(gemm(4, 4, 4), atomic, nest).energy_j > 0
    else:
        with pytest.raises(RackmodelError, match=f"{below}, A: tile smaller .* m is 1, at least 2 is allowed"):
            evaluate(gemm(4, 4, 4), atomic, nest)


def test_a_size_below_the_atom_is_one_instruction():
    """A product with one row on an instruction of two: its only tile is the size itself, rounded up when it runs."""
    atomic = replace(glb_pe(), compute=replace(glb_pe().compute, atom={"m": 2}))
    tile = {"m": 1, "k": 4, "n": 4}
    nest = NestMapping("gemm", atomic.name, tuple(LevelMapping(v.name, tuple(StorageNode(t, tile) for t in "ABC")) for v in atomic.levels))
    assert evaluate(gemm(1, 4, 4), atomic, nest).energy_j > 0
