"""Nests that differ in names alone are one question, and its answer holds in the names of each."""

import random
from dataclasses import replace

import pytest

from rackmodel.errors import InfeasibleError
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
