"""Nests that differ in names alone are one question, and its answer holds in the names of each."""

import random
from dataclasses import replace

import pytest

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests import solve_nest
from rackmodel.nests.canonical import canonical
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.rank_names import renamed_problem
from tests.nests import random_nests
from tests.nests.machines import einsum


def exchanged(rng, problem, machine):
    """The same einsum: operands in another order, other names."""
    named = renamed_problem(problem, {r: f"{r}{rng.randint(0, 99)}" for r in problem.sizes})
    new = {t.name: f"T{rng.randint(0, 9999)}{t.name}" for t in problem.tensors}
    tensors = [replace(t, name=new[t.name], indices=t.indices[::-1]) for t in named.tensors]
    rng.shuffle(tensors)
    sizes = dict(rng.sample(list(named.sizes.items()), len(named.sizes)))
    levels = tuple(replace(v, bits_per_tensor={new[t]: n for t, n in v.bits_per_tensor.items()}) for v in machine.levels)
    return NestProblem("other", sizes, tuple(tensors), problem.density), replace(machine, levels=levels, name="same")


@pytest.mark.parametrize("seed", range(30))
def test_the_same_einsum_under_other_names_is_the_same_question(seed):
    rng = random.Random(seed)
    problem = random_nests.problem(rng, limit=150, shapes=random_nests.SHAPES[:-1])
    machine = random_nests.machine(rng, problem, inner=1)
    one, two = canonical(problem, machine), canonical(*exchanged(rng, problem, machine))
    assert one.question() == two.question()
    try:
        found = solve_nest(one.problem, one.machine, factors="perfect")
    except InfeasibleError:
        return
    cost = evaluate(problem, machine, one.original(found.mapping))
    assert cost.energy_j == pytest.approx(found.cost.energy_j, rel=1e-12)
    assert cost.energy_j == pytest.approx(solve_nest(problem, machine, factors="perfect").cost.energy_j, rel=1e-12)


def test_an_index_that_is_a_sum_keeps_its_names():
    rng = random.Random(1)
    problem = random_nests.problem(rng, shapes=random_nests.SHAPES[-1:])
    machine = random_nests.machine(rng, problem)
    assert canonical(problem, machine).question() == (problem, machine)


def test_ranks_of_one_are_left_out_and_come_back():
    """A batch of one makes no other question, unless an instruction has more of it."""
    rng = random.Random(3)
    plain = einsum("plain", ("C", "m n"), [("A", "m k"), ("B", "k n")], {"m": 6, "n": 5, "k": 4})
    batched = einsum("batched", ("C", "b m n"), [("A", "b m k"), ("B", "k n")], {"b": 1, "m": 6, "n": 5, "k": 4})
    machine = random_nests.machine(rng, plain, inner=1)
    asked = canonical(batched, machine)
    assert asked.question() == canonical(plain, machine).question()
    found = solve_nest(asked.problem, asked.machine, factors="ceil")
    mapping = asked.original(found.mapping)
    assert {node.tile["b"] for level in mapping.levels for node in level.nodes} == {1}
    assert evaluate(batched, machine, mapping).energy_j == pytest.approx(found.cost.energy_j, rel=1e-12)
    large = replace(machine, compute=replace(machine.compute, atom={"b": 2}))
    assert 1 in canonical(batched, large).problem.sizes.values()


def test_a_tensor_keeps_a_rank():
    p = einsum("outer", ("C", "m b"), [("A", "m"), ("B", "b")], {"m": 6, "b": 1})
    machine = random_nests.machine(random.Random(3), p, inner=1)
    assert list(canonical(p, machine).problem.sizes.values()) == [6, 1]


def test_projections_to_heads_and_from_heads_are_one_question_of_divisors():
    sizes = {"s": 6, "d": 16, "g": 4, "q": 2, "e": 2}
    to = einsum("to", ("Q", "s g q e"), [("X", "s d"), ("W", "d g q e")], sizes)
    of = einsum("of", ("Y", "s d"), [("Z", "s g q e"), ("W", "g q e d")], sizes)
    machine = random_nests.machine(random.Random(3), to, inner=1)
    machine = replace(machine, levels=tuple(replace(v, bits_per_tensor={}) for v in machine.levels))
    assert canonical(to, machine, merged=True).question() == canonical(of, machine, merged=True).question()
    assert canonical(to, machine).question() != canonical(of, machine).question()


@pytest.mark.parametrize("seed", range(24))
def test_merged_ranks_cost_what_they_cost_apart(seed):
    """Of divisors: by energy, by time, with an atom in one part or in two that stay apart, or in one that it does not divide."""
    rng = random.Random(seed)
    sizes = {r: rng.choice((1, 2, 3, 4)) for r in "sdgqe"}
    ins = [("X", "s d"), ("W", "d g q e")] if seed % 2 else [("X", "s d g"), ("W", "d g q e")]
    problem = einsum("p", ("Q", "s q e g" if seed % 4 else "s q e"), ins, sizes)
    machine = random_nests.machine(rng, problem, inner=1 + seed % 2)
    some = rng.sample(sorted(problem.sizes), rng.randint(0, 2))
    machine = replace(machine, compute=replace(machine.compute, atom={r: rng.choice((2, 3)) for r in some}))
    asked = canonical(problem, machine, merged=True)
    for goal in ("energy", "latency"):
        try:
            alone = solve_nest(problem, machine, objective=goal, factors="perfect")
        except RackmodelError as why:
            with pytest.raises(type(why)):
                solve_nest(asked.problem, asked.machine, objective=goal, factors="perfect")
            continue
        found = solve_nest(asked.problem, asked.machine, objective=goal, factors="perfect")
        cost = evaluate(problem, machine, asked.original(found.mapping))
        for one in (found.cost, cost):
            assert one.energy_j == pytest.approx(alone.cost.energy_j, rel=1e-9)
            assert one.latency_s == pytest.approx(alone.cost.latency_s, rel=1e-9)
