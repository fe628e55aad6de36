"""Properties of the layout rule that hold for every layout, choice and plan, tried exhaustively where that is small."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.traffic import merged
from rackmodel.model.conversion import convert, effort, kind_of
from rackmodel.model.copies import plan_copies, resolved, saved_copy
from rackmodel.model.layout import (
    FLAT,
    PARTIAL,
    REPLICATE,
    Layout,
    grad_leaves,
    grad_need,
    is_shard,
    leaves,
    legal_choices,
    merge,
    need,
    shard,
)
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.workload import Workload
from tests.layout_cases import gpt3, head, llama, moe, traffic

PLACEMENTS = (REPLICATE, PARTIAL, "S:a", "S:b", FLAT)
LAYOUTS: list[Layout] = list(itertools.product(PLACEMENTS, repeat=2))
PAIRS = list(itertools.product(LAYOUTS, repeat=2))
WORKLOADS = {"llama": llama(), "moe": moe(), "head": head(), "gpt": gpt3()}


# -- conversions ---------------------------------------------------------------------------------------------------------


def test_a_layout_converts_to_itself_for_nothing() -> None:
    for layout in itertools.product(PLACEMENTS, repeat=3):
        assert convert(layout, layout) == ()


def test_replicated_to_anything_and_anything_to_partial_is_free() -> None:
    for layout in LAYOUTS:
        assert convert((REPLICATE,) * 2, layout) == ()
        assert convert(layout, (PARTIAL,) * 2) == ()


def test_every_axis_that_must_move_is_in_exactly_one_step_of_its_kind() -> None:
    for source, target in PAIRS:
        steps = convert(source, target)
        moving = sorted((axis, step.collective) for step in steps for axis in step.axes)
        kinds = [(axis, kind_of(a, b)) for axis, (a, b) in enumerate(zip(source, target, strict=True))]
        assert moving == [(axis, kind) for axis, kind in kinds if kind]
        assert len({step.collective for step in steps}) == len(steps)  # axes with the same conversion are one group


def test_messages_are_never_larger_than_the_larger_end() -> None:
    def shards(layout: Layout) -> int:
        return sum(map(is_shard, layout))

    for source, target in PAIRS:
        for step in convert(source, target):
            assert shards(step.shape) >= min(shards(source), shards(target))


# -- gradients -----------------------------------------------------------------------------------------------------------


def test_merge_is_symmetric_and_moves_nothing() -> None:
    for first, second in PAIRS:
        both = merge(first, second)
        assert both == merge(second, first)
        if both is not None:
            assert convert(first, both) == convert(second, both) == ()
            assert merge(both, first) == merge(both, second) == both
        else:
            assert any(is_shard(a) and is_shard(b) and a != b for a, b in zip(first, second, strict=True))


def test_merged_contributions_are_each_summed_once() -> None:
    pick = random.Random(0)
    for _ in range(500):
        contributions = [pick.choice(LAYOUTS) for _ in range(pick.randint(1, 6))]
        sums = merged(contributions)
        assert sorted(number for _, which in sums for number in which) == list(range(len(contributions)))
        for layout, which in sums:
            assert not any(convert(contributions[number], layout) for number in which)


# -- copies --------------------------------------------------------------------------------------------------------------


def test_each_distinct_copy_is_made_once_from_one_that_is_there() -> None:
    pick = random.Random(1)
    for _ in range(1000):
        present = [pick.choice(LAYOUTS) for _ in range(pick.randint(1, 2))]
        wanted = [pick.choice(LAYOUTS) for _ in range(pick.randint(1, 6))]
        plan, there = plan_copies(present, wanted), set(present)
        for layout, source in plan.items():
            assert source in there
            assert layout not in there
            there.add(layout)
        assert there == {*present, *wanted}


def test_a_replicated_copy_makes_shards_free() -> None:
    whole, part = (REPLICATE,), ("S:b",)
    assert plan_copies([("S:a",)], [part, whole]) == {whole: ("S:a",), part: whole}


def test_what_is_resolved_has_no_partial_and_keeps_the_rest() -> None:
    for produced, wanted in PAIRS:
        for placement, was in zip(resolved(produced, [wanted]), produced, strict=True):
            assert placement != PARTIAL
            assert was in (placement, PARTIAL)


def test_the_saved_shard_is_at_most_as_large_as_any_copy_there_is() -> None:
    """A Partial is as large as a replica: only shards make a saved copy small."""
    for produced, wanted in PAIRS:
        saved = saved_copy("shard", produced, [wanted], [wanted])
        there = [resolved(produced, [wanted]), wanted]
        most = max(sum(map(is_shard, layout)) for layout in there)
        assert sum(map(is_shard, saved)) == most
        assert effort(saved, wanted) <= min(effort(layout, wanted) for layout in there if sum(map(is_shard, layout)) == most)


def test_what_was_sent_to_experts_is_kept_there_and_gathered_from_there_again() -> None:
    """Tokens on (tp, ep), dispatched from (their sequence, their batch) to (whole, their experts): the backward pass gathers them over tp
    and does not send them over ep again."""
    sent, used = ("S:s", "S:b"), (REPLICATE, "S:x")
    assert saved_copy("shard", sent, [used], [used]) == ("S:s", "S:x")
    assert saved_copy("gathered", sent, [used], [used]) == used


def test_a_gathered_copy_is_one_that_the_backward_pass_reads() -> None:
    for first, second in PAIRS:
        saved = saved_copy("gathered", ("S:a", "S:a"), [], [first, second])
        assert saved in (first, second)
        assert saved.count(REPLICATE) == max(first.count(REPLICATE), second.count(REPLICATE))


# -- choices -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_legal_choices_are_closed_under_the_four_functions(name: str) -> None:
    load = WORKLOADS[name]
    for op in load.ops.values():
        out = {shard(rank) for rank in load.tensors[op.out.tensor].ranks}
        for choice in legal_choices(op, load):
            assert leaves(op, choice) in {REPLICATE, PARTIAL, *out}
            assert grad_need(op, choice) in {REPLICATE, *out}
            for access in op.ins:
                ranks = {shard(rank) for rank in load.tensors[access.tensor].ranks}
                wanted, gradient = need(access, choice, load), grad_leaves(access, choice, load)
                assert wanted in {REPLICATE, PARTIAL, *ranks}
                if is_shard(wanted):
                    assert gradient == wanted
                elif wanted == PARTIAL:
                    assert (choice or "")[0] == "+"
                    assert gradient == REPLICATE
                else:
                    assert gradient == (REPLICATE if choice is None else PARTIAL)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_choice_means_everything_replicated(name: str) -> None:
    load = WORKLOADS[name]
    for op in load.ops.values():
        assert leaves(op, None) == grad_need(op, None) == REPLICATE
        assert all(need(access, None, load) == grad_leaves(access, None, load) == REPLICATE for access in op.ins)


# -- axes of degree 1 ----------------------------------------------------------------------------------------------------


def _plan(load: Workload, pick: random.Random) -> Plan:
    choices = {op.name: (pick.choice(legal_choices(op, load)), None) for op in load.ops.values()}
    edges = {t: (pick.choice([REPLICATE, *map(shard, load.tensors[t].ranks)]), REPLICATE) for t in (*load.inputs, *load.outputs)}
    return Plan(axes=("tp", MICRO), choices=choices, boundary=edges, stages=dict.fromkeys(load.ops, 0), homes={}, save={})


def _bytes(load: Workload, plan: Plan, degrees: tuple[int, ...]) -> list[float]:
    mesh = np.array([degrees])
    group = [(task, prod(degrees[axis] for axis in task.axes)) for task in derive(load, plan).tasks if task.kind == "collective"]
    return [float(task.volume.at(mesh)[0]) * (p - 1) / p for task, p in group]


@pytest.mark.parametrize("name", WORKLOADS)
def test_axes_of_degree_1_cost_nothing(name: str) -> None:
    load = WORKLOADS[name]
    for seed in range(20):
        plan = _plan(load, random.Random(seed))
        assert sum(_bytes(load, plan, (1, 1))) == 0
        idle = replace(
            plan,
            axes=("tp", "dp", MICRO),
            choices={op: (choice[0], None, None) for op, choice in plan.choices.items()},
            boundary={tensor: (layout[0], REPLICATE, REPLICATE) for tensor, layout in plan.boundary.items()},
        )
        assert _bytes(load, idle, (2, 1, 1)) == _bytes(load, plan, (2, 1))


def test_an_axis_of_degree_1_that_splits_the_batch_changes_no_byte() -> None:
    tensor = {"tp": {"degree": 2}}
    split = {"tp": ["f", ["g", "q"], "s"]}
    alone = traffic(llama(), {"axes": tensor, "split": split}, 2)
    both = traffic(llama(), {"axes": {"dp": {"degree": 1}, **tensor}, "split": {"dp": ["b"], **split}}, 2)
    moved = {key[:3]: 0.0 for key in both.sent}
    for key, volume in both.sent.items():
        moved[key[:3]] += volume
    assert {key: volume for key, volume in moved.items() if volume} == {key[:3]: volume for key, volume in alone.sent.items()}
    assert (both.saved, both.weight_home) == (alone.saved, alone.weight_home)


def test_an_axis_of_degree_1_that_splits_the_sequence_sends_no_token_twice() -> None:
    sent = {key: {"ep": "b"} for key in ("router", "gate", "dispatch", "combine")}
    experts = {"axes": {"ep": {"degree": 2}}, "split": {"ep": ["x", "b"]}, "choose": sent}
    alone = traffic(moe(), experts, 2)
    both = traffic(moe(), {**experts, "axes": {"tp": {"degree": 1}, **experts["axes"]}, "split": {"tp": ["f", "s"], **experts["split"]}}, 2)
    moved: dict[tuple[str, ...], float] = {}
    for key, volume in both.sent.items():
        moved[key[:3]] = moved.get(key[:3], 0.0) + volume
    assert {key: volume for key, volume in moved.items() if volume} == {key[:3]: volume for key, volume in alone.sent.items()}
    assert (both.saved, both.weight_home) == (alone.saved, alone.weight_home)
