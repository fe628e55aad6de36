"""Uneven pipeline cuts: against every cut and every mix simulated, against CP-SAT, and worked by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.stages import cut_order
from rackmodel.mapper.stages.cut_problem import CutProblem, Ends
from tests import samples
from tests.cut_integer_program import cut_by_cpsat
from tests.one_cut import CutAnswer
from tests.open_cut_cases import best, brute_force, clock_of, least_need, some_problem

NONE, FULL = 0, 1


def problem(layers: int, stages: int, micro_batches: int, **more: Any) -> CutProblem:
    """Equal layers, forward 1 s, backward 2 s, full recompute 1 s more; 4 bytes saved a micro-batch, 1 with recompute; 1 of state."""
    return CutProblem(
        kinds=(0,) * layers,
        forward_s=np.array([[1.0, 1.0]]),
        backward_s=np.array([[2.0, 3.0]]),
        saved_bytes=np.array([[4.0, 1.0]]),
        state_bytes=np.array([1.0]),
        stages=stages,
        micro_batches=micro_batches,
        **more,
    )


def check_answer(one: CutProblem, answer: CutAnswer) -> None:
    """The answer is what it says: whole, in memory, and its seconds are those of its mixes."""
    assert sum(answer.layers) == len(one.kinds)
    assert answer.mixes.sum(axis=(1, 2)).tolist() == list(answer.layers)
    edges = np.concatenate([[0], np.cumsum(answer.layers)]).tolist()
    for i, (a, b) in enumerate(itertools.pairwise(edges)):
        assert answer.mixes[i].sum(axis=1).tolist() == [one.kinds[a:b].count(kind) for kind in range(len(one.state_bytes))]
    assert (answer.held_bytes <= one.capacity_bytes).all()
    assert answer.bound <= answer.seconds


@cache
def least_of(seed: int) -> tuple[float, float, int] | None:
    """The best of all cuts and mixes of a problem."""
    return brute_force(some_problem(seed))


# --- every cut


@pytest.mark.parametrize("block", range(samples.cases(2, 8)))
def test_the_answer_is_the_best_of_all_cuts_and_mixes(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        one, least = some_problem(seed), least_of(seed)
        if least is None:
            with pytest.raises(InfeasibleError) as caught:
                best(one)
            assert caught.value.need == pytest.approx(least_need(one), rel=1e-12), seed
            continue
        answer = best(one)
        check_answer(one, answer)
        assert answer.proven, seed
        assert answer.seconds == pytest.approx(least[0], rel=1e-12), seed


@pytest.mark.parametrize("seed", samples.some(range(0, 400, 10), 2))
def test_the_integer_program_finds_the_same_bound(seed: int) -> None:
    one = some_problem(seed)
    try:
        answer = best(one)
    except InfeasibleError as error:
        with pytest.raises(InfeasibleError) as caught:
            cut_by_cpsat(one)
        assert caught.value.need == error.need
        return
    other = cut_by_cpsat(one)
    assert other.bound <= answer.bound * (1 + 1e-12)  # a search after the bound may raise it
    assert clock_of(one).time(other.mixes).seconds >= answer.seconds * (1 - 1e-12)
    if answer.timed == 2:
        assert other.bound == pytest.approx(answer.bound, rel=1e-12)


def test_ties_go_to_least_joules_then_to_the_most_even_cut() -> None:
    for seed in range(0, 400, 4):
        one = some_problem(seed)
        least = brute_force(replace(one, joules=None))
        if least is None:
            continue
        answer = best(replace(one, joules=None))
        assert answer.joules == pytest.approx(least[1] * one.micro_batches, rel=1e-12), seed
        assert sum(n * n for n in answer.layers) == least[2], seed


def test_a_search_that_gives_up_claims_no_proof_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_order, "OPENED", 6)
    open_answers = 0
    for seed in range(400):
        one = some_problem(seed)
        least = least_of(seed) if one.stages > 2 and one.send_s and one.sends_overlap else None
        if least is None:
            continue
        answer = best(one)
        assert answer.bound <= least[0] * (1 + 1e-12), seed
        assert answer.seconds >= least[0] * (1 - 1e-12), seed
        assert not answer.proven or answer.seconds == pytest.approx(least[0], rel=1e-9), seed
        open_answers += not answer.proven
    assert open_answers


@samples.audited
def test_policies_of_different_forward_time_are_bounded_but_proven_only_where_the_bound_is_met() -> None:
    for seed in range(0, 400, 3):
        one = some_problem(seed)
        one = replace(one, forward_s=one.forward_s + np.array([[0.0, 1.0]]), joules=None)
        least = brute_force(one)
        if least is None:
            continue
        answer = best(one)
        assert answer.bound <= least[0] * (1 + 1e-12), seed
        assert answer.seconds >= least[0] * (1 - 1e-12), seed
        assert not answer.proven or answer.seconds == pytest.approx(least[0], rel=1e-9), seed


# --- by hand


def test_equal_layers_that_divide_are_cut_evenly() -> None:
    answer = best(problem(12, 4, 8))
    assert answer.layers == (3, 3, 3, 3)
    assert answer.seconds == pytest.approx((8 + 4 - 1) * 9.0)
    assert answer.proven


def test_an_embedding_and_a_head_worth_a_layer_each_take_one_layer_from_the_first_and_the_last_stage() -> None:
    layer = Ends(1.0, 2.0)
    answer = best(problem(126, 16, 32, first=layer, last=layer))  # Llama 3 405B: one layer less on both (paper, section 3.3.2)
    assert answer.layers == (7, *[8] * 14, 7)
    assert answer.seconds == pytest.approx((32 + 15) * 24.0)
    assert answer.proven


def test_a_head_worth_two_layers_moves_a_layer_off_the_last_stage() -> None:
    answer = best(problem(8, 2, 4, last=Ends(2.0, 4.0)))
    assert answer.layers == (5, 3)
    assert answer.seconds == pytest.approx((4 + 1) * 15.0)


def test_memory_that_binds_on_the_first_stage_makes_it_alone_recompute() -> None:
    answer = best(problem(4, 2, 4, capacity_bytes=17.0))
    # stage 0: 2 of state + 2 in flight × (4 + 4) = 18 do not fit, 2 + 2 × (4 + 1) = 12 do; stage 1: 2 + 1 × 8 = 10
    assert answer.layers == (2, 2)
    assert answer.mixes[:, 0].tolist() == [[1, 1], [2, 0]]
    assert answer.held_bytes.tolist() == [12.0, 10.0]
    # stage 0: forward 2 and backward 5, four times; it waits 6 - 2 for its first backward and 6 - 5 for its last
    assert answer.seconds == pytest.approx(4 * 7 + 4 + 1)


def test_without_recompute_the_first_stages_hold_fewer_layers_down_to_the_least_capacity() -> None:
    one = problem(6, 3, 6, capacity_bytes=18.0)
    one = replace(one, forward_s=np.array([[1.0, np.inf]]))  # no recompute: n layers on stage i hold n + (3 - i) × 4 n
    assert best(one).layers == (1, 2, 3)  # 13, 18, 15; (1, 1, 4) would need 20, (2, 1, 3) 26
    with pytest.raises(InfeasibleError, match="stage 1 \\(2 layers\\)") as caught:
        best(replace(one, capacity_bytes=17.0))
    assert (caught.value.need, caught.value.have, caught.value.unit) == (18.0, 17.0, "byte")


def test_the_largest_workspace_used_is_charged_once_a_stage() -> None:
    one = problem(2, 1, 1, capacity_bytes=9.0, working_bytes=np.array([[0.0, 3.0]]))
    # saved 4 + 4 + state 2 = 10; one recomputed 4 + 1 + 2 + 3 = 10; both 1 + 1 + 2 + 3 = 7
    assert best(one).mixes[0].tolist() == [[0, 2]]
    assert best(one).held_bytes.tolist() == [7.0]
    assert best(replace(one, capacity_bytes=10.0)).mixes[0].tolist() == [[2, 0]]


def test_sends_are_waited_for_or_fill_the_pipeline() -> None:
    one = problem(4, 2, 4, send_s=0.5)
    assert best(replace(one, sends_overlap=False)).seconds == pytest.approx((4 + 1) * (6.0 + 2 * 0.5))
    assert best(one).seconds == pytest.approx(_by_steps(2.0, 4.0, 0.5, 4))


def _by_steps(forward: float, backward: float, send: float, micro_batches: int) -> float:
    """Two equal 1f1b stages, pass by pass."""
    first, last, arrived = 0.0, 0.0, [0.0] * (micro_batches + 2)
    sent = []
    for _ in range(min(2, micro_batches)):
        first += forward
        sent.append(first + send)
    for k in range(micro_batches):
        last = max(last, sent[k]) + forward + backward
        arrived[k] = last + send
        first = max(first, arrived[k]) + backward
        if k + 2 < micro_batches:
            first += forward
            sent.append(first + send)
    return max(first, last)


def test_a_kind_of_heavy_layers_at_the_start_gets_fewer_on_a_stage() -> None:
    one = replace(problem(8, 2, 8), kinds=(1, 1, *[0] * 6), forward_s=np.array([[1.0], [3.0]]), backward_s=np.array([[2.0], [6.0]]))
    one = replace(one, saved_bytes=np.zeros((2, 1)), state_bytes=np.zeros(2))
    answer = best(one)
    assert answer.layers == (2, 6)  # 2 × 9 s against 6 × 3 s
    assert answer.seconds == pytest.approx(9 * 18.0)


def large(layers: int, stages: int, micro_batches: int, capacity_bytes: float = math.inf, dense: int = 3) -> CutProblem:
    """Dense layers, then expert layers; none, selective and full recompute. ASSUMED sizes of the order of a 600 B model's."""
    return CutProblem(
        kinds=(0,) * dense + (1,) * (layers - dense),
        forward_s=np.array([[0.8, 0.8, 0.8], [1.0, 1.0, 1.0]]),
        backward_s=np.array([[1.6, 1.7, 2.4], [2.0, 2.13, 3.0]]),
        saved_bytes=np.array([[2.0, 1.1, 0.2], [3.0, 1.5, 0.2]]) * 1e9,
        working_bytes=np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 3.0]]) * 1e9,
        state_bytes=np.array([1.5e9, 2e9]),
        stages=stages,
        micro_batches=micro_batches,
        capacity_bytes=capacity_bytes,
        first=Ends(0.1, 0.1, 2e9, 0.1e9),
        last=Ends(1.1, 2.2, 2e9, 1e9, 2e9),
    )


@pytest.mark.parametrize(
    ("one", "proven"),
    [
        (large(61, 16, 64, 80e9), True),
        (large(126, 16, 32, 100e9, dense=0), True),
        (large(128, 64, 128, 60e9), True),
        (replace(large(128, 64, 128, 60e9), send_s=0.02), True),
    ],
    ids=["61 on 16", "126 on 16", "128 on 64", "128 on 64, sends"],
)
def test_large_models_are_cut_with_proof(one: CutProblem, proven: bool) -> None:
    answer = best(one)
    check_answer(one, answer)
    assert answer.proven == proven
    assert answer.mixes[:, :, 1:].any()  # memory binds
    assert answer.timed < 50


@given(seed=st.integers(0, 10_000), more=st.integers(1, 40))
@settings(max_examples=60)
def test_more_memory_is_never_slower(seed: int, more: int) -> None:
    one = some_problem(seed)
    try:
        answer = best(one)
    except InfeasibleError:
        return
    assert best(replace(one, capacity_bytes=one.capacity_bytes + more)).seconds <= answer.seconds * (1 + 1e-12)


def test_the_same_problem_gives_the_same_answer() -> None:
    first, second = (best(large(61, 8, 32, 150e9)) for _ in range(2))
    assert first.layers == second.layers
    assert (first.mixes == second.mixes).all()


# --- refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schedule": "interleaved"}, "no cut for schedule"),
        ({"schedule": "zb_h1"}, "no cut for schedule"),
        ({"micro_batches": 0}, "at least 1"),
        ({"kinds": (0, 1)}, "kind must be one"),
        ({"backward_s": np.array([[2.0]])}, "one \\[kinds, policies\\] shape"),
        ({"saved_bytes": np.array([[-1.0, 0.0]])}, "must not be negative"),
        ({"saved_bytes": np.array([[np.inf, 0.0]])}, "may be infinite"),
        ({"forward_s": np.array([[np.inf, np.inf]])}, "no policy"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        best(replace(problem(4, 2, 4), **change))


def test_more_stages_than_layers_do_not_fit() -> None:
    with pytest.raises(InfeasibleError) as caught:
        best(problem(3, 4, 4))
    assert (caught.value.need, caught.value.have) == (4.0, 3.0)
    assert sum(best(problem(3, 4, 4, fewest=0)).layers) == 3
