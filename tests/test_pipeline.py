"""Pipeline schedules against hand-drawn timelines, published bubbles, a simulator of one event at a time, and what must hold."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rackmodel as rm
from rackmodel.cost.step.clock.pipeline_orders import STEADY, fullest_moments, held, in_flight, order
from rackmodel.errors import InputError
from rackmodel.model.schedules import FOLDED, SCHEDULES, SPLIT
from tests import samples
from tests.pipeline_forms import StageTimes, closed_form, lower_bound, simulate, timeline

Array = NDArray[np.float64]
WOVEN = [s for s in SCHEDULES if s not in FOLDED]  # (of the others: test_folded_schedules)
ONE_CHUNK = [s for s in WOVEN if s != "interleaved"]
SETTINGS = [(s, p, m, 1) for s in ONE_CHUNK for p in (1, 2, 3, 4, 8) for m in (1, 2, 4, 5, 16)]
SETTINGS += [("interleaved", p, p * groups, v) for p in (1, 2, 4, 8) for groups in (1, 2, 5) for v in (2, 3, 4)]


def equal(stages: int, chunks: int, forward: float, backward: float, weight: float = 0.0) -> StageTimes:
    """A device's seconds, spread over its chunks."""
    return StageTimes(*(np.full((stages * chunks, 1), x / chunks) for x in (forward, backward, weight)))


def fills(schedule: str, stages: int, micro_batches: int) -> bool:
    """Whether the closed form claims to be exact."""
    return micro_batches >= {"zb_h1": stages, "zb_h2": 2 * stages - 1}.get(schedule, 1)


def words(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> list[str]:
    """Each stage's order as one line: F0.1 is the forward of micro-batch 0 through chunk 1."""
    plan = order(schedule, stages, micro_batches, chunks)
    name = "{}{}" if chunks == 1 else "{}{}.{}"
    return [
        " ".join(name.format("FBW"[k], m, c) for k, m, c in zip(*rows, strict=True))
        for rows in zip(plan.kind, plan.micro_batch, plan.chunk, strict=True)
    ]


def one_by_one(schedule: str, times: StageTimes, micro_batches: int, chunks: int) -> Array:
    """Finish of the same graph, one event and one dictionary entry at a time."""
    kinds = times.passes(schedule)
    virtual, n = kinds.shape[1:]
    stages = virtual // chunks
    plan = order(schedule, stages, micro_batches, chunks)
    sends = [np.broadcast_to(x if stages > 1 else 0.0, (virtual - 1, n)) for x in (times.send_forward_s, times.send_backward_s)]
    done: dict[tuple[int, int, int], Array] = {}
    free, following = [np.zeros(n) for _ in range(stages)], [0] * stages
    while any(at < plan.kind.shape[1] for at in following):
        moved = False
        for i in range(stages):
            while following[i] < plan.kind.shape[1]:
                kind, k, chunk = (int(x[i, following[i]]) for x in (plan.kind, plan.micro_batch, plan.chunk))
                s = chunk * stages + i
                source, need = {0: (s - 1, s > 0), 1: (s + 1, s + 1 < virtual), 2: (s, False)}[kind]
                if need and (kind, k, source) not in done:
                    break
                arrived = done[kind, k, source] + sends[kind][min(s, source)] if need else np.zeros(n)
                assert kind == 0 or (kind - 1, k, s) in done, "a backward before its forward"
                free[i] = done[kind, k, s] = np.maximum(free[i], arrived) + kinds[kind, s]
                following[i] += 1
                moved = True
        assert moved, "deadlock"
    return np.max(free, axis=0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, StageTimes, int, int]:
    """Any schedule, unequal stages, sends, passes of no time."""
    schedule = draw(st.sampled_from(WOVEN))
    stages, chunks = draw(st.integers(1, 6)), draw(st.integers(2, 4)) if schedule == "interleaved" else 1
    micro_batches = draw(st.integers(1, 12)) if chunks == 1 else stages * draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread, quiet = draw(st.sampled_from([0.1, 1.0, 3.0])), draw(st.sampled_from([0.0, 0.7, 1.0]))
    virtual, n = stages * chunks, 40

    def some(rows: int, zero: float) -> Array:
        return np.exp(rng.normal(0, spread, (rows, n))) * (rng.random((rows, n)) >= zero)

    backward = some(virtual, 0.1)
    weight = backward * rng.random((virtual, n))
    return (
        schedule,
        StageTimes(some(virtual, 0.2), backward, weight, some(virtual - 1, quiet), some(virtual - 1, quiet)),
        micro_batches,
        chunks,
    )


# --- orders


def test_1f1b_warms_up_then_alternates_then_drains() -> None:
    assert words("1f1b", 2, 3) == ["F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"]


def test_gpipe_runs_all_forwards_first() -> None:
    assert words("gpipe", 2, 2) == ["F0 F1 B0 B1"] * 2


def test_interleaved_is_megatrons_order() -> None:
    assert words("interleaved", 2, 2, 2) == [
        "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0",  # warm-up (2-1-0)*2 + (2-1)*2 = 4, all of them
        "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0",  # warm-up 0 + 2
    ]


def test_zero_bubble_delays_weight_gradients_by_the_stage_number() -> None:
    assert words("zb_h1", 2, 3) == ["F0 F1 B0 W0 F2 B1 W1 B2 W2", "F0 B0 F1 B1 W0 F2 B2 W1 W2"]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SETTINGS)
def test_every_stage_runs_every_pass_once_and_never_a_backward_before_its_forward(schedule: str, p: int, m: int, v: int) -> None:
    plan = order(schedule, p, m, v)
    kinds = 3 if schedule in SPLIT else 2
    for rows in zip(plan.kind, plan.micro_batch, plan.chunk, strict=True):
        events = list(zip(*(x.tolist() for x in rows), strict=True))
        place = {event: at for at, event in enumerate(events)}
        assert set(place) == {(k, b, c) for k in range(kinds) for b in range(m) for c in range(v)}
        assert len(events) == kinds * m * v
        assert all(place[k, b, c] > place[k - 1, b, c] for k, b, c in events if k)


@pytest.mark.parametrize(
    ("schedule", "m", "v", "what"),
    [
        ("interleaved", 6, 2, "multiple"),
        ("interleaved", 8, 1, "at least 2 chunks"),
        ("1f1b", 8, 2, "one chunk"),
        ("gpipe", 0, 1, "at least 1"),
        ("zbh1", 8, 1, "did you mean 'zb_h1'"),
    ],
)
def test_what_has_no_order_is_refused(schedule: str, m: int, v: int, what: str) -> None:
    with pytest.raises(InputError, match=what):
        in_flight(schedule, 4, m, v)
    with pytest.raises(InputError, match=what):
        simulate(schedule, equal(4, max(v, 1), 1.0, 2.0), micro_batches=m, chunks=v)


# --- what is held


def test_activations_held_are_the_published_counts() -> None:
    p, m, v = 4, 16, 2
    assert in_flight("gpipe", p, m).tolist() == [m] * p
    assert in_flight("1f1b", p, m).tolist() == [4, 3, 2, 1]
    assert in_flight("interleaved", p, m, v)[0] / v == p * (1 + (p - 1) / (p * v))  # Calculon: 5.5 micro-batches
    assert in_flight("interleaved", p, m, v).tolist() == [11, 9, 7, 5]
    assert in_flight("zb_h1", p, m).tolist() == [p] * p
    assert in_flight("zb_h2", p, m).tolist() == [2 * p - 1] * p
    assert in_flight("1f1b", p, 2).tolist() == [2, 2, 2, 1]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SETTINGS)
def test_activations_held_are_those_counted_in_the_timeline(schedule: str, p: int, m: int, v: int) -> None:
    drawn = timeline(schedule, equal(p, v, 1.0, 2.5, 1.2), micro_batches=m, chunks=v)
    for i in range(p):
        kind = drawn.kind[drawn.device == i]  # by start; a device runs one pass at a time
        ends = 2 if schedule in SPLIT else 1
        now = np.cumsum(kind == 0) - np.cumsum(np.concatenate([[0], kind[:-1] == ends]))
        assert now.max() == in_flight(schedule, p, m, v)[i]
        there, most = np.zeros(v), np.zeros(v + 2)  # by chunk, and of chunks that hold unlike amounts
        weights = np.vstack([np.eye(v), np.arange(v) ** 2.0, np.arange(v)[::-1] ** 2.0])
        for which, virtual in zip(kind, drawn.virtual[drawn.device == i], strict=True):
            there[virtual // p] += {0: 1, ends: -1}.get(int(which), 0)
            most = np.maximum(most, weights @ there)
        steady = min(m, STEADY * p) if v > 1 else m
        assert (weights @ fullest_moments(schedule, p, steady, v, i).T).max(axis=1).tolist() == most.tolist()


def test_activations_held_come_for_many_mappings_at_once() -> None:
    p, m, stage = np.array([4, 4, 8]), np.array([16, 2, 8]), np.array([0, 0, 3])
    assert held("1f1b", p, m, 1, stage).tolist() == [4, 2, 5]


# --- equal stages


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SETTINGS)
def test_equal_stages_take_the_closed_form(schedule: str, p: int, m: int, v: int) -> None:
    rng = np.random.default_rng(0)
    f, b = 10 ** rng.uniform(-1, 1, (2, 50))
    w = b * rng.random(50)
    times = StageTimes(*(np.broadcast_to(x / v, (p * v, 50)) for x in (f, b, w)))
    finish = simulate(schedule, times, micro_batches=m, chunks=v).finish_s
    formula = closed_form(schedule, p, m, v, forward_s=f, backward_s=b, weight_s=w)
    if fills(schedule, p, m):
        np.testing.assert_allclose(finish, formula, rtol=1e-12)
        np.testing.assert_allclose(lower_bound(schedule, times, micro_batches=m, chunks=v), finish, rtol=1e-11)
    assert (formula <= finish * (1 + 1e-12)).all()


def test_bubbles_are_the_published_ones() -> None:
    p, m, f, b, w = 4, 8, 1.0, 2.0, 1.0
    ideal = m * (f + b)

    def bubble(schedule: str, v: int = 1) -> float:
        return float(simulate(schedule, equal(p, v, f, b, w), micro_batches=m, chunks=v).finish_s[0] - ideal)

    assert bubble("gpipe") / (ideal + bubble("gpipe")) == pytest.approx((p - 1) / (m + p - 1))
    assert bubble("1f1b") / ideal == pytest.approx((p - 1) / m)
    assert bubble("interleaved", 2) / ideal == pytest.approx((p - 1) / m / 2)
    assert bubble("zb_h1") == pytest.approx((p - 1) * (f + b - 2 * w))
    assert bubble("zb_h1") / ideal == pytest.approx((p - 1) / (3 * m))


def test_zero_bubble_two_is_idle_nowhere_between_a_stages_first_and_last_pass() -> None:
    drawn = timeline("zb_h2", equal(4, 1, 1.0, 2.0, 1.0), micro_batches=8)
    for i in range(4):
        mine = drawn.device == i
        assert drawn.end_s[mine].max() - drawn.start_s[mine].min() == pytest.approx(8 * 3.0)


def test_a_long_weight_gradient_does_not_shorten_the_wait_for_the_first_backward() -> None:
    # F 1, Bi 2, W 4, p 2, m 2: stage 0 holds 2 forwards, ends them at 2, gets B0 at 1+1+2 = 4; (p-1)(F+Bi-W) would be negative
    assert simulate("zb_h1", equal(2, 1, 1.0, 6.0, 4.0), micro_batches=2).finish_s[0] == 2 * 7 + 2


# --- unequal stages and sends, worked by hand


def test_two_unequal_stages_by_hand() -> None:
    times = StageTimes([[1.0], [2.0]], [[2.0], [3.0]])
    # stage 1: F0 1-3, B0 3-6, F1 6-8, B1 8-11; stage 0: F0 0-1, F1 1-2, B0 6-8, B1 11-13
    run = simulate("1f1b", times, micro_batches=2)
    assert run.finish_s.tolist() == [13.0]
    assert run.device_finish_s.tolist() == [[13.0], [11.0]]
    assert run.busy_s.tolist() == [[6.0], [10.0]]
    assert run.idle_s.tolist() == [[7.0], [3.0]]
    drawn = timeline("1f1b", times, micro_batches=2)
    mine = drawn.device == 0
    assert list(zip(drawn.kind[mine], drawn.micro_batch[mine], drawn.start_s[mine], drawn.end_s[mine], strict=True)) == [
        (0, 0, 0.0, 1.0),
        (0, 1, 1.0, 2.0),
        (1, 0, 6.0, 8.0),
        (1, 1, 11.0, 13.0),
    ]


def test_sends_delay_by_their_latency_without_holding_a_device() -> None:
    times = StageTimes([[1.0], [2.0]], [[2.0], [3.0]], 0.0, 0.5, 0.25)
    run = simulate("1f1b", times, micro_batches=2)
    assert run.finish_s.tolist() == [13.75]  # the stages above, F0 sent in 0.5, B1 back in 0.25
    assert run.busy_s.tolist() == [[6.0], [10.0]]


def test_zero_bubble_by_hand() -> None:
    times = StageTimes([[1.0], [2.0]], [[2.0], [3.0]], 1.0)
    # stage 1: F0 1-3 B0 3-5 F1 5-7 B1 7-9 W0 9-10 W1 10-11; stage 0: F0 0-1 F1 1-2 B0 5-6 W0 6-7 B1 9-10 W1 10-11
    assert simulate("zb_h1", times, micro_batches=2).device_finish_s.tolist() == [[11.0], [11.0]]


def test_unhidden_sends_stretch_the_period_of_1f1b_by_one_send() -> None:
    # two stages commute: two micro-batches cost 2 (F + B) + one send there, one back
    times = StageTimes(np.ones((2, 1)), np.ones((2, 1)), 0.0, 1.0, 1.0)
    finish = {m: simulate("1f1b", times, micro_batches=m).finish_s[0] for m in (40, 42)}
    assert finish[42] - finish[40] == 2 * 2 + 2
    assert lower_bound("1f1b", times, micro_batches=42)[0] >= 0.95 * finish[42]


def test_one_device_sends_nothing_to_itself() -> None:
    times = StageTimes(np.ones((2, 1)), np.ones((2, 1)), 0.0, 9.0, 9.0)
    assert simulate("interleaved", times, micro_batches=3, chunks=2).finish_s[0] == 3 * 4


def test_impossible_times_are_a_bug() -> None:
    with pytest.raises(AssertionError, match="weight"):
        simulate("zb_h1", equal(2, 1, 1.0, 1.0, 2.0), micro_batches=2)


# --- what must hold for any stages


@settings(max_examples=60)
@given(cases())
def test_waves_agree_with_one_event_at_a_time(case: tuple[str, StageTimes, int, int]) -> None:
    schedule, times, m, v = case
    np.testing.assert_allclose(simulate(schedule, times, micro_batches=m, chunks=v).finish_s, one_by_one(schedule, times, m, v), rtol=1e-13)


@settings(max_examples=samples.cases(100, 300))
@given(cases())
def test_the_bound_is_never_above_the_simulation(case: tuple[str, StageTimes, int, int]) -> None:
    schedule, times, m, v = case
    finish = simulate(schedule, times, micro_batches=m, chunks=v).finish_s
    bound = lower_bound(schedule, times, micro_batches=m, chunks=v)
    assert (bound <= finish).all()
    if schedule == "gpipe":
        np.testing.assert_allclose(bound, finish, rtol=1e-11)


@settings(max_examples=100)
@given(cases())
def test_the_bound_is_not_below_any_stages_fill_work_and_drain(case: tuple[str, StageTimes, int, int]) -> None:
    schedule, times, m, _ = case
    if schedule not in {"gpipe", "1f1b"}:
        return
    both = times.passes(schedule).sum(axis=0)
    plain = (np.cumsum(both, axis=0) + (m - 1) * both).max(axis=0)  # max_j sum_{i<j} (f_i + b_i) + m (f_j + b_j)
    assert (lower_bound(schedule, times, micro_batches=m) >= plain * (1 - 1e-11)).all()


@pytest.mark.parametrize(("heavy", "most", "mean"), [("last", 1e-11, 1e-11), ("first", 0.05, 0.01)])
@pytest.mark.parametrize(("schedule", "p", "v"), [("1f1b", 8, 1), ("zb_h1", 8, 1), ("interleaved", 4, 2)])
def test_the_bound_is_tight_when_one_end_of_the_model_is_heavier(
    schedule: str, p: int, v: int, heavy: str, most: float, mean: float
) -> None:
    forward = np.ones((p * v, 200))
    forward[-1 if heavy == "last" else 0] += np.linspace(0, 1, 200)
    times = StageTimes(forward, 2 * forward, 0.8 * forward)
    gap = np.concatenate(
        [
            1 - lower_bound(schedule, times, micro_batches=m, chunks=v) / simulate(schedule, times, micro_batches=m, chunks=v).finish_s
            for m in (p, 2 * p, 8 * p)
        ]
    )
    assert gap.max() <= most
    assert gap.mean() <= mean


@settings(max_examples=60)
@given(cases(), st.integers(0, 2**16))
def test_more_time_anywhere_never_ends_sooner(case: tuple[str, StageTimes, int, int], seed: int) -> None:
    schedule, times, m, v = case
    f, b, w, there, back = (
        np.array(x) for x in (times.forward_s, times.backward_s, times.weight_s, times.send_forward_s, times.send_backward_s)
    )
    before = simulate(schedule, times, micro_batches=m, chunks=v).finish_s
    s = seed % len(f)
    f[s] += 1.0
    assert (simulate(schedule, StageTimes(f, b, w, there, back), micro_batches=m, chunks=v).finish_s >= before - 1e-12 * before).all()
    b[s] += 1.0
    there += 0.5
    assert (simulate(schedule, StageTimes(f, b, w, there, back), micro_batches=m, chunks=v).finish_s >= before - 1e-12 * before).all()


@settings(max_examples=60)
@given(cases())
def test_more_micro_batches_never_end_sooner(case: tuple[str, StageTimes, int, int]) -> None:
    schedule, times, m, v = case
    step = 1 if v == 1 else np.shape(times.forward_s)[0] // v
    finish = [simulate(schedule, times, micro_batches=m + more * step, chunks=v).finish_s for more in range(3)]
    assert all((late >= soon * (1 - 1e-12)).all() for soon, late in pairwise(finish))


@settings(max_examples=60)
@given(cases())
def test_a_device_runs_one_pass_at_a_time_and_is_busy_or_idle(case: tuple[str, StageTimes, int, int]) -> None:
    schedule, times, m, v = case
    drawn, run = timeline(schedule, times, micro_batches=m, chunks=v, mapping=3), simulate(schedule, times, micro_batches=m, chunks=v)
    for i in range(len(run.busy_s)):
        start, end = (x[drawn.device == i] for x in (drawn.start_s, drawn.end_s))
        assert (start[1:] >= end[:-1]).all()
        assert end[-1] == run.device_finish_s[i, 3]
        assert (end - start).sum() == pytest.approx(run.busy_s[i, 3])
    assert (run.idle_s >= -1e-12 * run.finish_s).all()


def test_blocks_of_mappings_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    times = StageTimes(*rng.random((2, 4, 17)))
    whole = simulate("1f1b", times, micro_batches=6).finish_s
    monkeypatch.setattr("tests.pipeline_forms.BLOCK", 200)
    assert (simulate("1f1b", times, micro_batches=6).finish_s == whole).all()


@pytest.mark.bench
def test_sixteen_stages_of_four_chunks_take_less_than_a_second() -> None:
    times = StageTimes(*np.random.default_rng(0).random((2, 64, 200)))
    begin = time.perf_counter()
    simulate("interleaved", times, micro_batches=128, chunks=4)
    assert time.perf_counter() - begin < 1.0


BY_HAND = """workload: two_products
phases: [forward, backward, optimizer]
sizes: {b: 512, d: 8192, f: 32768, layers: 8}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit, state: 96 bit}
sections:
  block:
    repeat: layers
    einsums:
      up: H[b,f] = X[b,d] * W1[d,f]
      down: Y[b,d] = H[b,f] * W2[f,d]
"""
FOUR_STAGES = """mapper: four_stages
axes: {pp: {degree: 4, stages: layers}, dp: {degree: 2, place: inner}}
split: {dp: [b]}
micro_batch: [32]
schedule: 1f1b
profile: serial
"""


def _drained(forward: float, backward: list[float], stages: int) -> float:
    """Seconds from the start of 1F1B until the first stage has run its last pass, in the order of each stage's passes."""
    batches = len(backward)
    orders = []
    for stage in range(stages):
        lead = min(batches, stages - 1 - stage)
        rest = [pair for k in range(batches) for pair in ((("F", lead + k),) if lead + k < batches else ()) + (("B", k),)]
        orders.append([*(("F", k) for k in range(lead)), *rest])
    done: dict[tuple[str, int, int], float] = {}
    free, place = [0.0] * stages, [0] * stages
    while any(place[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while place[stage] < len(orders[stage]):
                way, k = orders[stage][place[stage]]
                before = (way, k, stage - 1) if way == "F" else (way, k, stage + 1) if stage < stages - 1 else ("F", k, stage)
                if before[2] >= 0 and before not in done:
                    break
                free[stage] = max(free[stage], done.get(before, 0.0)) + (forward if way == "F" else backward[k])
                done[way, k, stage] = free[stage]
                place[stage] += 1
    return free[0]


def test_a_step_of_1f1b_is_what_a_hand_makes_of_its_bytes_and_links() -> None:
    """Two layers a stage, all bound by memory: bytes over bandwidth, a ring of two, sends that hold the device."""
    found = rm.search("dgx_h100", BY_HAND, FOUR_STAGES, set={"accelerators": 8}).result
    machine = rm.read("dgx_h100")
    memory = machine.level("gpu").memory.bandwidth_bytes_per_s
    node = machine.level("node").network
    link = float(node.bandwidth_bytes_per_s) * float(node.sustained)
    x, h, w = 32 * 8192 * 2, 32 * 32768 * 2, 8192 * 32768 * 2
    hand_over = x / link + float(node.latency_s)
    forward = 2 * 2 * (x + w + h) / memory + hand_over
    operands = 2 * (2 * (x + w + h) + 2 * (x + h))  # of the products that make gradients of inputs and of weights, in two layers
    summed = 2 * 2 * 2 * w  # gradients of 32 bit, written once
    reduced = 4 * (2 * 0.5 * 2 * w / link + float(node.start_s) + 2 * float(node.latency_s))
    updated = 2 * 2 * 8192 * 32768 * (4 + 12 + 12 + 2) / memory
    tail = reduced + updated

    def step(reads: list[float]) -> float:
        return _drained(forward, [(operands + (1 + read) * summed) / memory + hand_over for read in reads], 4) + tail

    assert found.latency_s == pytest.approx(step([7 / 8] * 8), rel=1e-9)
    assert found.latency_s == pytest.approx(step([0.0] + [1.0] * 7), rel=0.008)  # as docs/clock.md has it: all at the mean
