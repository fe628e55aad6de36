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
