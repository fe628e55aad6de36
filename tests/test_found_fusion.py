"""What to fuse, found: against every set of pairs, and against what is declared."""

import random
from itertools import combinations

import pytest

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.mapper.found_fusion import Region, most_saved, regions
from rackmodel.nests import solve_fused
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.searchers.fusion import least_on_chip
from tests.nests.machines import attention, einsum, level

SMALL = ["accelerators=1", "b=1", "s=16", "d=24", "g=1", "q=2", "e=8", "phases=[forward]", "glb.memory.capacity=1 KiB"]


def inside(fuse):
    return f"inside={{model: loopnest, factors: perfect, fuse: {fuse}}}"


def energy(fuse):
    return api.search("glb_pe", "attention", "loopnest_fused", sets=[*SMALL, inside(fuse)]).result


@pytest.mark.parametrize("seed", range(40))
def test_the_set_that_saves_most_is_that_of_all_sets(seed):
    rng = random.Random(seed)
    names = "abcdefg"
    options = []
    for _ in range(rng.randint(1, 7)):
        first, second, *more = rng.sample(names, rng.choice([2, 2, 3]))
        options.append(Region(first, second, tuple(more)))
    options = list(dict.fromkeys(options))
    gain = {o: rng.choice([-1.0, 0.5, 1.0, 2.0, 3.5]) for o in options}
    solved = []
    hope = {o: max(0.0, gain[o]) + rng.choice([0.0, 0.0, 1.0, 4.0]) for o in options}

    def solve(option):
        solved.append(option)
        return gain[option]

    found = most_saved(options, hope.__getitem__, solve)
    sets = [s for k in range(len(options) + 1) for s in combinations(options, k)]
    free = [s for s in sets if sum(len(o.members) for o in s) == len(frozenset().union(*(o.members for o in s)))]
    assert sum(gain[o] for o in found) == pytest.approx(max(sum(gain[o] for o in s) for s in free))
    assert len(solved) == len(set(solved))


def test_pairs_of_the_attention_block_are_those_of_one_reader():
    names = {(r.first, r.second, r.resident) for r in regions(read_workload("attention"))}
    assert {("Q", "A", ()), ("Q", "A", ("K",)), ("A", "Z", ("V",)), ("Z", "Y", ()), ("Z", "Y", ("V",))} <= names
    assert ("V", "A", ()) not in names


def test_what_is_found_is_no_worse_than_what_is_declared():
    found = energy("free")
    assert found.certificate.proven
    for declared in ("[]", "[{einsums: [QK, AV]}]", "[{einsums: [QK, AV], resident: [V]}]", "[{einsums: [Q, QK]}, {einsums: [AV, O]}]"):
        assert found.energy_j <= energy(declared).energy_j * (1 + 1e-12)
    assert found.energy_j < energy("[]").energy_j * (1 - 1e-3)


def test_a_backward_pass_keeps_its_tensors():
    with pytest.raises(InputError, match="forward pass"):
        api.search("glb_pe", "attention", "loopnest_fused", sets=[*SMALL[:-2], inside("free")])


@pytest.mark.parametrize("seed", range(4))
def test_no_fused_einsum_takes_less_than_with_its_tensor_on_chip_for_nothing(seed):
    rng = random.Random(seed)
    sizes = {"m": rng.choice([4, 6]), "f": rng.choice([4, 8]), "e": rng.choice([2, 3]), "d": rng.choice([2, 4])}
    first = einsum("Up", ("H", "m f"), [("I", "m d"), ("W", "d f")], sizes)
    second = einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], sizes)
    room = 16 * rng.choice([24, 40, 80])
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", room, 1, 1e9, NestFan(2))), NestCompute(1e9, 0.5e-12))
    found = solve_fused(first, second, machine)
    for problem, cost in zip((first, second), found.costs, strict=True):
        assert least_on_chip(problem, machine, frozenset({"H"})) <= cost.energy_j * (1 + 1e-12)


def test_what_stays_takes_its_room():
    qk, av = attention(s=16, d=24, h=1, g=2, e=8)[3:5]
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", 16 * 600, 1, 1e9)), NestCompute(1e9, 0.5e-12))
    alone, kept = (solve_fused(qk, av, machine, resident=names) for names in ((), ("V",)))
    assert kept.energy_j < alone.energy_j
