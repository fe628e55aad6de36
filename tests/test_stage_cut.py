"""Uneven pipeline cuts: against every cut and every mix simulated, against CP-SAT, and worked by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.cost.step.pipeline import StageTimes, simulate
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.stages import timed
from rackmodel.mapper.stages.stage_cut import CutAnswer, CutProblem, Ends, best_cut, cut_by_cpsat

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


def some_problem(seed: int) -> CutProblem:
    """Small whole numbers, so that ties abound: at most 4 stages, 8 layers of 2 kinds, 2 policies."""
    rng = np.random.default_rng(seed)
    stages = int(rng.integers(1, 5))
    layers = int(rng.integers(stages, 9 if stages < 4 else 8))
    forward = np.repeat(rng.integers(1, 4, (2, 1)), 2, axis=1).astype(float)
    backward = rng.integers(1, 6, (2, 1)) + np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1))
    saved = rng.integers(3, 9, (2, 1)) - np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1))
    ends = [Ends(*(float(x) for x in rng.integers(0, 5, 5))) if rng.random() < 0.5 else Ends() for _ in range(2)]
    return CutProblem(
        kinds=tuple(int(k) for k in (np.sort(rng.integers(0, 2, layers)) if rng.random() < 0.5 else rng.integers(0, 2, layers))),
        forward_s=forward,
        backward_s=backward,
        saved_bytes=saved,
        state_bytes=rng.integers(0, 6, 2).astype(float),
        stages=stages,
        micro_batches=int(rng.integers(1, 9)),
        working_bytes=rng.integers(0, 4, (2, 2)).astype(float),
        joules=None if rng.random() < 0.5 else rng.integers(1, 9, (2, 1)) + np.array([[0.0, 1.0]]) * rng.integers(0, 4, (2, 1)),
        capacity_bytes=float(rng.integers(25, 110)) if rng.random() < 0.8 else math.inf,
        first=ends[0],
        last=ends[1],
        send_s=float(rng.integers(0, 3)) if rng.random() < 0.5 else 0.0,
        sends_overlap=bool(rng.random() < 0.5),
        schedule="1f1b" if rng.random() < 0.9 else "gpipe",
        fewest=int(rng.random() < 0.8),
    )


def stage_choices(one: CutProblem, stage: int, run: tuple[int, ...], *, fitting: bool) -> list[tuple[float, float, float, float]]:
    """(forward, backward, joules, bytes) of every mix of policies of a run of layers, by the definitions alone."""
    m, p = one.micro_batches, one.stages
    flying = m if one.schedule == "gpipe" else min(m, p - stage)
    joules = one.forward_s + one.backward_s if one.joules is None else one.joules
    working = np.zeros_like(one.saved_bytes) if one.working_bytes is None else one.working_bytes
    wait = one.send_s if p > 1 and not one.sends_overlap else 0.0
    ends = [(one.first, flying)] * (stage == 0) + [(one.last, m if one.schedule == "gpipe" else 1)] * (stage == p - 1)
    found = []
    counts = [run.count(kind) for kind in range(2)]
    for full in itertools.product(*(range(n + 1) for n in counts)):
        use = np.array([[n - x, x] for n, x in zip(counts, full, strict=True)])
        held = float((use.sum(axis=1) * one.state_bytes).sum() + flying * (use * one.saved_bytes).sum())
        held += sum(end.state_bytes + copies * end.saved_bytes for end, copies in ends)
        held += max([0.0, *working[use > 0], *(end.working_bytes for end, _ in ends)])
        forward = float((use * one.forward_s).sum()) + wait + sum(end.forward_s for end, _ in ends)
        backward = float((use * one.backward_s).sum()) + wait + sum(end.backward_s for end, _ in ends)
        if held <= one.capacity_bytes or not fitting:
            found.append((forward, backward, float((use * joules).sum()), held))
    return found


def cuts(one: CutProblem) -> list[tuple[int, ...]]:
    """Every cut."""
    every = itertools.product(range(one.fewest, len(one.kinds) + 1), repeat=one.stages)
    return [layers for layers in every if sum(layers) == len(one.kinds)]


def brute_force(one: CutProblem) -> tuple[float, float, int] | None:
    """(seconds, joules, Σ layers²) of the best of all cuts and mixes, simulated; None where none fits."""
    passes, ties = [], []
    for layers in cuts(one):
        edges = np.concatenate([[0], np.cumsum(layers)]).tolist()
        runs = [one.kinds[a:b] for a, b in itertools.pairwise(edges)]
        for mix in itertools.product(*(stage_choices(one, i, run, fitting=True) for i, run in enumerate(runs))):
            passes.append([stage[:2] for stage in mix])
            ties.append((sum(stage[2] for stage in mix), sum(n * n for n in layers)))
    if not passes:
        return None
    times = np.array(passes)  # [n, p, 2]
    send = one.send_s if one.sends_overlap else 0.0
    stage_times = StageTimes(times[:, :, 0].T, times[:, :, 1].T, 0.0, send, send)
    seconds = simulate(one.schedule, stage_times, micro_batches=one.micro_batches).finish_s
    return min((float(t), *tie) for t, tie in zip(seconds, ties, strict=True))


def least_need(one: CutProblem) -> float:
    """The least capacity for which a cut exists, by trying all."""
    needs = []
    for layers in cuts(one):
        edges = np.concatenate([[0], np.cumsum(layers)]).tolist()
        runs = [one.kinds[a:b] for a, b in itertools.pairwise(edges)]
        needs.append(max(min(choice[3] for choice in stage_choices(one, i, run, fitting=False)) for i, run in enumerate(runs)))
    return min(needs)


def check_answer(one: CutProblem, answer: CutAnswer) -> None:
    """The answer is what it says: whole, in memory, and its seconds are those of its mixes."""
    assert sum(answer.layers) == len(one.kinds)
    assert answer.mixes.sum(axis=(1, 2)).tolist() == list(answer.layers)
    edges = np.concatenate([[0], np.cumsum(answer.layers)]).tolist()
    for i, (a, b) in enumerate(itertools.pairwise(edges)):
        assert answer.mixes[i].sum(axis=1).tolist() == [one.kinds[a:b].count(kind) for kind in range(len(one.state_bytes))]
    assert (answer.held_bytes <= one.capacity_bytes).all()
    assert answer.bound <= answer.seconds


# --- every cut


@pytest.mark.parametrize("block", range(8))
def test_the_answer_is_the_best_of_all_cuts_and_mixes(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        one = some_problem(seed)
        best = brute_force(one)
        if best is None:
            with pytest.raises(InfeasibleError) as caught:
                best_cut(one)
            assert caught.value.need == pytest.approx(least_need(one), rel=1e-12), seed
            continue
        answer = best_cut(one)
        check_answer(one, answer)
        assert answer.proven, seed
        assert answer.seconds == pytest.approx(best[0], rel=1e-12), seed


@pytest.mark.parametrize("seed", range(0, 400, 10))
def test_the_integer_program_finds_the_same_bound(seed: int) -> None:
    one = some_problem(seed)
    try:
        answer = best_cut(one)
    except InfeasibleError as error:
        with pytest.raises(InfeasibleError) as caught:
            cut_by_cpsat(one)
        assert caught.value.need == error.need
        return
    other = cut_by_cpsat(one)
    check_answer(one, other)
    assert other.bound <= answer.bound * (1 + 1e-12)  # a search after the bound may raise it
    assert other.seconds >= answer.seconds * (1 - 1e-12)
    if answer.simulated == 2:
        assert other.bound == pytest.approx(answer.bound, rel=1e-12)


def test_ties_go_to_least_joules_then_to_the_most_even_cut() -> None:
    for seed in range(0, 400, 4):
        one = some_problem(seed)
        best = brute_force(replace(one, joules=None))
        if best is None:
            continue
        answer = best_cut(replace(one, joules=None))
        assert answer.joules == pytest.approx(best[1] * one.micro_batches, rel=1e-12), seed
        assert sum(n * n for n in answer.layers) == best[2], seed


def test_a_search_that_gives_up_claims_no_proof_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "OPENED", 6)
    open_answers = 0
    for seed in range(400):
        one = some_problem(seed)
        best = brute_force(one) if one.stages > 2 and one.send_s and one.sends_overlap else None
        if best is None:
            continue
        answer = best_cut(one)
        assert answer.bound <= best[0] * (1 + 1e-12), seed
        assert answer.seconds >= best[0] * (1 - 1e-12), seed
        assert not answer.proven or answer.seconds == pytest.approx(best[0], rel=1e-9), seed
        open_answers += not answer.proven
    assert open_answers


def test_policies_of_different_forward_time_are_bounded_but_proven_only_where_the_bound_is_met() -> None:
    for seed in range(0, 400, 3):
        one = some_problem(seed)
        one = replace(one, forward_s=one.forward_s + np.array([[0.0, 1.0]]), joules=None)
        best = brute_force(one)
        if best is None:
            continue
        answer = best_cut(one)
        assert answer.bound <= best[0] * (1 + 1e-12), seed
        assert answer.seconds >= best[0] * (1 - 1e-12), seed
        assert not answer.proven or answer.seconds == pytest.approx(best[0], rel=1e-9), seed


# --- by hand


def test_equal_layers_that_divide_are_cut_evenly() -> None:
    answer = best_cut(problem(12, 4, 8))
    assert answer.layers == (3, 3, 3, 3)
    assert answer.seconds == pytest.approx((8 + 4 - 1) * 9.0)
    assert answer.proven


def test_an_embedding_and_a_head_worth_a_layer_each_take_one_layer_from_the_first_and_the_last_stage() -> None:
    layer = Ends(1.0, 2.0)
    answer = best_cut(problem(126, 16, 32, first=layer, last=layer))  # Llama 3 405B: one layer less on both (paper, section 3.3.2)
    assert answer.layers == (7, *[8] * 14, 7)
    assert answer.seconds == pytest.approx((32 + 15) * 24.0)
    assert answer.proven


def test_a_head_worth_two_layers_moves_a_layer_off_the_last_stage() -> None:
    answer = best_cut(problem(8, 2, 4, last=Ends(2.0, 4.0)))
    assert answer.layers == (5, 3)
    assert answer.seconds == pytest.approx((4 + 1) * 15.0)


def test_memory_that_binds_on_the_first_stage_makes_it_alone_recompute() -> None:
    answer = best_cut(problem(4, 2, 4, capacity_bytes=17.0))
    # stage 0: 2 of state + 2 in flight × (4 + 4) = 18 do not fit, 2 + 2 × (4 + 1) = 12 do; stage 1: 2 + 1 × 8 = 10
    assert answer.layers == (2, 2)
    assert answer.mixes[:, 0].tolist() == [[1, 1], [2, 0]]
    assert answer.held_bytes.tolist() == [12.0, 10.0]
    # stage 0: forward 2 and backward 5, four times; it waits 6 - 2 for its first backward and 6 - 5 for its last
    assert answer.seconds == pytest.approx(4 * 7 + 4 + 1)


def test_without_recompute_the_first_stages_hold_fewer_layers_down_to_the_least_capacity() -> None:
    one = problem(6, 3, 6, capacity_bytes=18.0)
    one = replace(one, forward_s=np.array([[1.0, np.inf]]))  # no recompute: n layers on stage i hold n + (3 - i) × 4 n
    assert best_cut(one).layers == (1, 2, 3)  # 13, 18, 15; (1, 1, 4) would need 20, (2, 1, 3) 26
    with pytest.raises(InfeasibleError, match="stage 1 \\(2 layers\\)") as caught:
        best_cut(replace(one, capacity_bytes=17.0))
    assert (caught.value.need, caught.value.have, caught.value.unit) == (18.0, 17.0, "byte")


def test_the_largest_workspace_used_is_charged_once_a_stage() -> None:
    one = problem(2, 1, 1, capacity_bytes=9.0, working_bytes=np.array([[0.0, 3.0]]))
    # saved 4 + 4 + state 2 = 10; one recomputed 4 + 1 + 2 + 3 = 10; both 1 + 1 + 2 + 3 = 7
    assert best_cut(one).mixes[0].tolist() == [[0, 2]]
    assert best_cut(one).held_bytes.tolist() == [7.0]
    assert best_cut(replace(one, capacity_bytes=10.0)).mixes[0].tolist() == [[2, 0]]


def test_sends_are_waited_for_or_fill_the_pipeline() -> None:
    one = problem(4, 2, 4, send_s=0.5)
    assert best_cut(replace(one, sends_overlap=False)).seconds == pytest.approx((4 + 1) * (6.0 + 2 * 0.5))
    assert best_cut(one).seconds == pytest.approx(_by_steps(2.0, 4.0, 0.5, 4))


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
    answer = best_cut(one)
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
    answer = best_cut(one)
    check_answer(one, answer)
    assert answer.proven == proven
    assert answer.mixes[:, :, 1:].any()  # memory binds
    assert answer.simulated < 50


@given(seed=st.integers(0, 10_000), more=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_more_memory_is_never_slower(seed: int, more: int) -> None:
    one = some_problem(seed)
    try:
        answer = best_cut(one)
    except InfeasibleError:
        return
    assert best_cut(replace(one, capacity_bytes=one.capacity_bytes + more)).seconds <= answer.seconds * (1 + 1e-12)


def test_the_same_problem_gives_the_same_answer() -> None:
    first, second = (best_cut(large(61, 8, 32, 150e9)) for _ in range(2))
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
        best_cut(replace(problem(4, 2, 4), **change))


def test_more_stages_than_layers_do_not_fit() -> None:
    with pytest.raises(InfeasibleError) as caught:
        best_cut(problem(3, 4, 4))
    assert (caught.value.need, caught.value.have) == (4.0, 3.0)
    assert sum(best_cut(problem(3, 4, 4, fewest=0)).layers) == 3
