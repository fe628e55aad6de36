"""Fused pairs: solved cases, agreement with brute force on tiny pairs, refusals."""

import random
from dataclasses import replace
from itertools import permutations, product
from math import prod

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import LevelMapping, NestMapping, StorageNode
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from tests.nests.machines import attention, edge3, einsum, ffn, glb_pe, level, solve_fused


def test_fused_ffn():
    found = solve_fused(*ffn(), glb_pe())
    assert found.energy_j == pytest.approx(1.607458619392, rel=1e-12)
    assert found.certificate.proven


@pytest.mark.parametrize(("resident", "energy"), [((), 0.803225993216), (("V",), 0.80262201344)])
def test_attention_with_a_fused_pair(resident, energy):
    parts = attention()
    fused = solve_fused(parts[3], parts[4], glb_pe(), resident=resident)
    rest = [solve_nest(p, glb_pe(), factors="perfect", resident=resident if p.name == "V" else ()) for p in (*parts[:3], parts[5])]
    assert fused.energy_j + sum(r.cost.energy_j for r in rest) == pytest.approx(energy, rel=1e-10)


def test_fusion_pays_for_attention_on_three_levels():
    parts = attention()
    alone = sum(solve_nest(p, edge3(), factors="perfect").cost.energy_j for p in parts[3:5])
    assert solve_fused(parts[3], parts[4], edge3()).energy_j < 0.8 * alone


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def brute_fused(first, second, machine):
    """Least energy over every node order and every tile: no lemma, priced by the (walked) evaluation."""
    x, best = first.output, float("inf")
    shared = list(x.ranks)
    glb, runs = machine.levels[1], Runs(machine, x.name)
    names = [[t.name for t in p.tensors if t.name != x.name] for p in (first, second)]
    for size in range(len(names[0] + names[1]) + 1):
        for prefix in permutations(names[0] + names[1], size):
            for chain in chains([{r: first.sizes[r] for r in shared}], shared, size + 1):
                energy, top = 0.0, 0.0
                for p, mine in zip((first, second), names, strict=False):
                    above = [(n, t) for n, t in zip((*prefix, x.name), chain, strict=False) if n in (*mine, x.name)]
                    below = [n for n in mine if n not in prefix]
                    top_p = sum(16 * p.tensor(n).tile_words({**p.sizes, **t}) for n, t in above)
                    q, theirs = (second, names[1]) if p is first else (first, names[0])
                    other = sum(16 * q.tensor(n).tile_words({**q.sizes, **t}) for n, t in zip(prefix, chain, strict=False) if n in theirs)
                    least = branch(runs, p, above, below, glb.capacity_bits - other)
                    energy += least
                    top = max(top, top_p)
                best = min(best, energy)
    return best


def chains(start, ranks, length):
    found = [(start[0],)]
    for _ in range(length):
        found = [(*c, dict(zip(ranks, t, strict=True))) for c in found for t in product(*(divisors(c[-1][r]) for r in ranks))]
    return [c[1:] for c in found]


def branch(runs, p, above, below, capacity):
    """Least energy of one einsum given the nodes above its branch, of all that lies below it and fits."""
    key = (p.name, tuple((n, *t.items()) for n, t in above), tuple(below))
    if key not in runs.known:
        runs.known[key] = list(runs.below(p, above, below))
    return min((energy for bits, energy in runs.known[key] if bits <= capacity), default=float("inf"))


class Runs:
    """Every branch of an einsum, evaluated once: other nodes of the buffer only leave it more room or less."""

    def __init__(self, machine, x):
        self.machine, self.x, self.known = machine, x, {}

    def below(self, p, above, below):
        """(bits of all its nodes, energy) of every order, tile and spatial vector below the nodes above a branch."""
        fan = self.machine.levels[1].fan
        whole = tuple(StorageNode(t.name, dict(p.sizes)) for t in p.tensors)
        fixed = tuple(StorageNode(n, {**p.sizes, **t}) for n, t in above)
        ranks = list(p.sizes)
        for order in permutations(below):
            for tiles in chains([fixed[-1].tile], ranks, len(order)):
                nodes = fixed + tuple(StorageNode(n, t) for n, t in zip(order, tiles, strict=False))
                bits = sum(16 * p.tensor(n.tensor).tile_words(n.tile) for n in nodes)
                if bits > self.machine.levels[1].capacity_bits:
                    continue
                for r in [None, *ranks]:
                    if r is not None and nodes[-1].tile[r] % fan.x:
                        continue
                    side = {} if r is None else {r: fan.x}
                    mapping = NestMapping(p.name, "m", (LevelMapping("DRAM", whole), LevelMapping("GLB", nodes, side)))
                    yield bits, evaluate(p, self.machine, mapping, frozenset({self.x})).energy_j


@pytest.mark.parametrize("seed", range(3))
def test_fused_pair_equals_brute_force(seed):
    rng = random.Random(seed)
    sizes = {"m": 2, "f": rng.choice([2, 3]), "e": rng.choice([1, 2])}
    first = einsum("Up", ("H", "m f"), [("I", "m"), ("W", "f")], sizes)
    second = einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], sizes)
    words = sum(prod(sizes[r] for r in t.ranks) for p in (first, second) for t in p.tensors)
    machine = NestMachine(
        "m", (level("DRAM", None, 10, 1e9), level("GLB", 16 * (words // 2 + 1), 1, 1e9, NestFan(2))), NestCompute(1e9, 0.5e-12)
    )
    expected = brute_fused(first, second, machine)
    if expected == float("inf"):
        with pytest.raises(InfeasibleError):
            solve_fused(first, second, machine)
        return
    assert solve_fused(first, second, machine).energy_j == pytest.approx(expected, rel=1e-9)


def test_pairs_that_do_not_chain_are_refused():
    parts = attention()
    with pytest.raises(RackmodelError, match="to fuse"):
        solve_fused(parts[0], parts[1], glb_pe())
    with pytest.raises(RackmodelError, match="resident"):
        solve_fused(parts[3], parts[4], glb_pe(), resident=("nothing",))


def test_what_fusion_does_not_take_is_named_and_what_does_not_fit_says_need_and_have():
    first, second = ffn(4, 2, 6)
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", 1e6, 1, 1e9)), NestCompute(1e9))
    for wrong, fact in (
        (replace(machine, levels=(replace(machine.levels[0], fan=NestFan(2)), machine.levels[1])), "fan .* above the second memory"),
        (replace(machine, levels=(machine.levels[0], replace(machine.levels[1], bypass=("WU",)))), "does not store every tensor"),
        (replace(machine, levels=machine.levels[:1]), "a machine of one memory"),
    ):
        with pytest.raises(RackmodelError, match=fact):
            solve_fused(first, second, wrong)
    small = replace(machine, levels=(machine.levels[0], replace(machine.levels[1], capacity_bits=40)))
    with pytest.raises(InfeasibleError, match="GLB") as caught:
        solve_fused(first, second, small)
    assert (caught.value.need, caught.value.have) == (48, 40)
