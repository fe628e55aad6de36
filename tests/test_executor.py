"""Random layouts, executed on virtual devices, give what the unsharded workload gives: outputs and every gradient.

Every plan chooses for every operation and axis one of the legal choices, edges at random, the copies to save, what is
recomputed and where weights live. Besides the numbers, the collectives that had to be executed are those that the cost
model derives for the plan, in kind, group and bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.program.derive import derive
from rackmodel.model import layout as layout_rules
from rackmodel.model.conversion import Step, convert
from rackmodel.model.layout import REPLICATE, legal_choices, shard
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.workload import Workload
from tests import executor, samples
from tests.executor import Executor
from tests.layout_cases import ATTENTION, FFN, LLAMA, make

MIXTURE = {
    "dispatch": "D[b,s,x,d] = dispatch(X[b,s,d], G[b,s,x])",
    "fc1": "H[b,s,x,f] = D[b,s,x,d] * W1[x,d,f]",
    "fc2": "E[b,s,x,d] = H[b,s,x,f] * W2[x,f,d]",
    "combine": "Y[b,s,d] = E[b,s,x,d] * G[b,s,x]",
}
DENSE = {**MIXTURE, "dispatch": "D[b,s,x,d] = X[b,s,d] * M[b,s,x]"}
CHAIN = {
    "up": "H[b,s,f] = X[b,s,d] * W1[d,f]",
    "scale": "HS[b,s,f] = scale(H[b,s,f])",
    "down": "O[b,s,d] = HS[b,s,f] * W2[f,d]",
    "add": "R[b,s,d] = add(X[b,s,d], O[b,s,d], WB[d])",
    "again": "J[b,s,f] = R[b,s,d] * W3[d,f]",
    "both": "K[b,s,f] = add(J[b,s,f], HS[b,s,f])",
    "gate": "M[b,s,f] = multiply(K[b,s,f], J[b,s,f])",
    "relu": "N[b,s,f] = relu(M[b,s,f])",
    "square": "Q[b,s,f] = multiply(N[b,s,f], N[b,s,f])",
    "out": "Y[b,s,d] = Q[b,s,f] * W4[f,d]",
    "three": "Z[b,s] = R[b,s,d] * O[b,s,d] * WV[d]",
}
TIED = {
    "embed": "E[b,s,d] = I[b,s,f] * WE[f,d]",
    "up": "H[b,s,g] = E[b,s,d] * W1[d,g]",
    "down": "R[b,s,d] = H[b,s,g] * W2[g,d]",
    "logits": "L[b,s,f] = R[b,s,d] * WE[f,d]",
}
REPEATED = {
    **{name: ATTENTION[name] for name in "QKV"},
    "repeatK": "KX[b,s,g,q,e] = repeat(K[b,s,g,e])",
    "repeatV": "VX[b,s,g,q,e] = repeat(V[b,s,g,e])",
    "QK": "A[b,g,q,s,t] = Q[b,s,g,q,e] * KX[b,t,g,q,e]",
    "AV": "Z[b,s,g,q,e] = P[b,g,q,s,t] * VX[b,t,g,q,e]",
    "O": ATTENTION["O"],
}
GRAPHS = {"ffn": FFN, "attention": ATTENTION, "dispatch": MIXTURE, "dense": DENSE, "chain": CHAIN, "tied": TIED, "llama": LLAMA}
GRAPHS["repeated"] = REPEATED
EVERY = {"ffn": 400, "attention": 400, "dispatch": 130, "dense": 130, "chain": 200, "tied": 100, "llama": 60, "repeated": 100}
PLANS = {graph: samples.cases(plans // 4, plans) for graph, plans in EVERY.items()}
BLOCK = 20  # plans in one test
MESHES = [(2,), (3,), (4,), (1, 2), (2, 2), (2, 3), (3, 2), (2, 2, 2)]
HOMES = [{}, {"state": "shard"}, {"grad": "shard", "state": "shard"}, {"param": "shard", "grad": "shard", "state": "shard"}]


@cache
def _case(graph: str, devices: int, wide: frozenset[str]) -> tuple[Workload, dict[str, Any], dict[str, Any], dict[Any, Any]]:
    """Workload in which the ranks in `wide` can be split, whole values, arriving gradients, and the unsharded run."""
    sizes: dict[str, Any] = {index: max(devices, 2) if index in wide else 2 for index in "bsdfgqex"}
    load = make(GRAPHS[graph], sizes | {"t": "s"}, gradient=32, more=["optimizer"] * (devices % 2 == 0))  # nothing is updated by three
    draw = np.random.default_rng(devices)
    values = {name: draw.standard_normal(load.tensors[name].sizes) for name in (*load.inputs, *load.weights)}
    for mask in {"G", "M"} & set(load.inputs):
        values[mask] *= draw.random(values[mask].shape) < 0.6
    arriving = {name: draw.standard_normal(load.tensors[name].sizes) for name in load.outputs}
    return load, values, arriving, Executor(load, _whole(load), (1,), values, arriving).run().seen


def _whole(load: Workload) -> Plan:
    """Nothing is split."""
    edges = dict.fromkeys((*load.inputs, *load.outputs), (REPLICATE,))
    choices = dict.fromkeys(load.ops, (None,))
    return Plan(axes=(MICRO,), choices=choices, boundary=edges, stages=dict.fromkeys(load.ops, 0), homes={}, save={})


def _random_plan(load: Workload, degrees: tuple[int, ...], pick: random.Random) -> Plan:
    """One of the plans of a workload on a mesh: any legal choice of an index that the mesh divides."""
    axes, devices = tuple(f"axis{number}" for number in range(len(degrees))), prod(degrees)

    def choice(op: Any) -> str | None:
        return pick.choice([c for c in legal_choices(op, load) if c is None or c[0] == "+" or load.sizes[c] % devices == 0])

    def edge(name: str) -> str:
        tensor = load.tensors[name]
        ranks = [shard(rank) for rank, size in zip(tensor.ranks, tensor.sizes, strict=True) if size % devices == 0]
        return pick.choice([REPLICATE, *ranks])

    choices = {op.name: (*(choice(op) for _ in axes), None) for op in load.ops.values()}
    boundary = {name: (*(edge(name) for _ in axes), REPLICATE) for name in (*load.inputs, *load.outputs)}
    homes = {}
    for name in load.weights:
        row = pick.choice(HOMES)
        cut = sum(size % devices == 0 for size in load.tensors[name].sizes)
        if row and cut >= len(load.readers[name]):  # a flat shard must not coincide with the shard that another reader wants
            homes[name] = HomeSpec(axes=pick.sample(axes, pick.randint(1, len(axes))), **row)
    save = {name: pick.choice(["shard", "gathered"]) for name in load.tensors}
    recompute = pick.choice(["none", "none", "selective", "full"])
    return Plan(
        axes=(*axes, MICRO),
        choices=choices,
        boundary=boundary,
        stages=dict.fromkeys(load.ops, 0),
        homes=homes,
        save=save,
        recompute=recompute,
        rerun=pick.choice(["region", "slice"]),
    )


def _problem(graph: str, seed: int) -> tuple[tuple[int, ...], Plan, Any]:
    pick = random.Random(f"{graph} {seed}")
    degrees = pick.choice(MESHES if graph != "llama" else MESHES[:5])
    devices = prod(degrees)
    indices = sorted({index for text in GRAPHS[graph].values() for index in text if index in "bsdfgqex"})
    wide = indices if devices <= 4 else pick.sample(indices, 3)
    case = _case(graph, devices, frozenset(wide))
    return (*degrees, 1), _random_plan(case[0], degrees, pick), case


def _derived(load: Workload, plan: Plan, degrees: tuple[int, ...]) -> Counter[Any]:
    """(phase, tensor, collective, group, bytes) of the collectives that the cost model derives."""
    mesh = np.array([degrees])
    return Counter(
        (task.phase, task.tensor, task.action, task.axes, float(task.volume.at(mesh)[0]))
        for task in derive(load, plan).tasks
        if task.kind == "collective"
    )


BLOCKS = [(graph, block) for graph, plans in PLANS.items() for block in samples.some(range(-(-plans // BLOCK)), 2)]


@pytest.mark.parametrize(("graph", "block"), BLOCKS)
def test_random_layouts_compute_what_the_unsharded_workload_computes(graph: str, block: int) -> None:
    for seed in range(block * BLOCK, min((block + 1) * BLOCK, PLANS[graph])):
        degrees, plan, (load, values, arriving, truth) = _problem(graph, seed)
        run = Executor(load, plan, degrees, values, arriving, truth).run()
        assert run.seen.keys() == truth.keys()
        executed = Counter((move.phase, move.tensor, move.collective, move.axes, move.bytes) for move in run.moves)
        assert executed == _derived(load, plan, degrees), f"{graph} {seed}: the cost model derives other collectives"


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_unsharded_gradients_are_slopes(graph: str) -> None:
    """The yardstick itself: a small step along a random direction changes the loss as the gradients say."""
    load, values, arriving, seen = _case(graph, 2, frozenset("bsdfgqex"))
    draw, step = np.random.default_rng(7), 1e-5
    ways = {name: draw.standard_normal(value.shape) * (value != 0) for name, value in values.items()}

    def loss(sign: int) -> float:
        moved = {name: value + sign * step * ways[name] for name, value in values.items()}
        there = Executor(load, _whole(load), (1,), moved, arriving).run().seen
        return sum(float((there["value", name] * arriving[name]).sum()) for name in load.outputs)

    slope = sum(float((seen["gradient", name] * way).sum()) for name, way in ways.items())
    assert (loss(1) - loss(-1)) / (2 * step) == pytest.approx(slope, rel=1e-6)


def _never_partial(access: Any, choice: Any, load: Workload) -> str:
    return layout_rules.need(access, choice, load)


def _merge_keeps_the_first(contributions: Any) -> Any:
    return [(contributions[0], tuple(range(len(contributions))))]


def _gather_only(source: Any, target: Any) -> Any:
    return tuple(step for step in convert(source, target) if step.collective != "all_reduce")


def _reduce_axis_by_axis(source: Any, target: Any) -> Any:
    return tuple(Step(step.collective, (axis,), step.shape, step.other) for step in convert(source, target) for axis in step.axes)


WRONG = {
    "an operand's gradient is never a Partial": ("grad_leaves", _never_partial),
    "the output's gradient arrives as if nothing were split": ("grad_need", lambda op, choice: REPLICATE),
    "contributions are all added to the first": ("merged", _merge_keeps_the_first),
    "Partials are not reduced": ("convert", _gather_only),
    "axes of one conversion are not one group": ("convert", _reduce_axis_by_axis),
    "the backward pass may read nothing": ("backward_reads", lambda op, workload: ()),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor is not satisfied by anything: each of these makes one of a few plans fail."""
    problems = [_problem("attention", seed) for seed in range(10)]
    name, wrong = WRONG[rule]
    monkeypatch.setattr(executor, name, wrong)
    noticed = 0
    for degrees, plan, (load, values, arriving, truth) in problems:
        try:
            run = Executor(load, plan, degrees, values, arriving, truth).run()
        except (AssertionError, TypeError, ValueError):
            noticed += 1
        else:
            noticed += Counter((m.phase, m.tensor, m.collective, m.axes, m.bytes) for m in run.moves) != _derived(load, plan, degrees)
    assert noticed > 0
