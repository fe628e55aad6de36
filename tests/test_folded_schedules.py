"""zb_v and dualpipe_v against their papers' figures and a walk of DualPipe itself: two directions, two copies of every stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.step.clock.clock import StepJobs, step_seconds
from rackmodel.cost.step.clock.critical_path import critical_path
from rackmodel.cost.step.clock.pipeline_orders import held, order
from rackmodel.cost.step.clock.schedule import schedule_of
from rackmodel.cost.step.cut import cut
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.jobs import DEVICE, PASSES, LaneJob, LayerPass
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.schedules import FOLDED
from tests.events import simulate
from tests.samples import cases
from tests.step_cases import Maker

ONE = (1.0, 1.0, 1.0)


def step(schedule: str, stages: int, micro_batches: int, seconds: Sequence[float], chunk: float = 1.0) -> StepJobs:
    """Chunks of one layer whose forward, input-gradient and weight-gradient passes take so long."""
    forward, backward, weight = (np.array([chunk * one]) for one in seconds)
    each = {name: forward if name in ("first", "forward") else weight if "weight" in name else backward for name in PASSES}
    layer = {name: LayerPass(name=name, body=(LaneJob(lane=DEVICE, seconds=one),)) for name, one in each.items()}
    return StepJobs(
        sections=(layer,),
        counts=np.ones((2 * stages, 1), dtype=np.int64),
        schedule=schedule,
        stages=stages,
        chunks=2,
        micro_batches=micro_batches,
        backward=True,
        send_s=np.zeros(1),
        sends_overlap=True,
        update_s=(np.zeros(1),),
        tied_s=np.zeros(1),
    )


def bubble(schedule: str, stages: int, micro_batches: int, seconds: Sequence[float] = ONE) -> float:
    return float(step_seconds(step(schedule, stages, micro_batches, seconds))[0]) - 2 * micro_batches * sum(seconds)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize("m", [16, 19])
def test_zb_v_is_idle_nowhere_once_a_stage_has_begun_and_holds_what_1f1b_does(p: int, m: int) -> None:
    """Qi 2023: zero bubble for F = B = W in the memory of 1F1B, p micro-batches of a stage, here 2p of half a stage. A stage begins when
    the first micro-batch is there: stage p - 1 after p - 1 forward passes."""
    spans = [one for some in schedule_of(step("zb_v", p, m, ONE)) for one in some.each() if one.kind == "pass"]
    for stage in range(p):
        own = [one for one in spans if one.stage == stage]
        begin, end = min(one.start for one in own), max(one.end for one in own)
        assert begin == stage
        assert end - begin == pytest.approx(6 * m)
    assert bubble("zb_v", p, m) == pytest.approx(p - 1)
    assert held("zb_v", p, m, 2, np.arange(p)).tolist() == [2 * p] * p


@pytest.mark.parametrize("ranks", [4, 8, 16])
@pytest.mark.parametrize("more", [0, 6])
def test_dualpipe_has_the_bubble_and_activations_of_its_papers_table(ranks: int, more: int) -> None:
    """DeepSeek-V3, table 2: (PP/2 - 1)(F&B + B - 3W), and PP + 1 activations of a stage, B being the whole backward pass; F&B takes as
    long as both where nothing hides. DualPipe of PP ranks is dualpipe_v of half as many, each with half of the micro-batches."""
    half, (f, b, w) = ranks // 2, (1.0, 2.0, 1.0)
    assert bubble("dualpipe_v", half, ranks + more, (f, b - w, w)) == pytest.approx((half - 1) * ((f + b) + b - 3 * w))
    assert held("dualpipe_v", half, ranks + more, 2, np.arange(half)).tolist() == [ranks + 1] * half


@pytest.mark.parametrize("seconds", [ONE, (0.7, 1.1, 0.6), (1.3, 0.8, 1.5)])
@pytest.mark.parametrize(("ranks", "m"), [(2, 4), (4, 8), (6, 14), (8, 20)])
def test_dualpipe_of_two_directions_is_dualpipe_v_of_half_the_ranks(ranks: int, m: int, seconds: Sequence[float]) -> None:
    ends, peaks = two_directions(ranks, m, seconds)
    assert step_seconds(step("dualpipe_v", ranks // 2, m // 2, seconds))[0] == pytest.approx(max(ends))
    assert peaks == [*held("dualpipe_v", ranks // 2, m // 2, 2, np.arange(ranks // 2)).tolist()] * 2


Part = tuple[str, int]  # F, B (input gradient alone), D (whole) or W · direction: 0 from rank 0, 1 from the last


def of_rank(ranks: int, rank: int, m: int) -> Iterator[tuple[Part, ...]]:
    """What a rank of DualPipe runs, step by step (dualpipe.py of its authors): several parts where they run as one."""
    half, number = ranks // 2, min(rank, ranks - 1 - rank)
    near, far = (0, 1) if rank < half else (1, 0)  # the direction that enters at this end, and the other one
    late: deque[int] = deque()

    def zero(way: int) -> tuple[Part, ...]:
        late.append(way)
        return (("B", way),)

    def weight() -> tuple[Part, ...]:
        return (("W", late.popleft()),)

    for _ in range(2 * (half - number - 1)):
        yield (("F", near),)
    for _ in range(number + 1):
        yield (("F", near),)
        yield (("F", far),)
    for _ in range(half - number - 1):
        yield zero(far)
        yield weight()
        yield (("F", far),)
    for turn in range(m // 2 - ranks + number + 1):
        both = (("F", near),), (("D", far),)
        yield from both if turn == 0 and number == half - 1 else (both[0] + both[1],)
        yield (("F", far), ("D", near))
    for _ in range(half - number - 1):
        yield (("D", far),)
        yield (("F", far), ("D", near))
    splits = False
    for turn in range(number + 1):
        for way, parity in ((far, 1), (near, 0)):
            splits = splits or (turn == (number + 1) // 2 and number % 2 == parity)
            yield zero(way) if splits else (("D", way),)
    for _ in range(half - number - 1):
        yield weight()
        yield zero(near)
    while late:
        yield weight()


def two_directions(ranks: int, m: int, seconds: Sequence[float]) -> tuple[list[float], list[int]]:
    """(when each rank ends, activations that it holds at most): a part starts when what all parts beside it take has arrived."""
    forward, backward, weight = seconds
    takes = {"F": forward, "B": backward, "D": backward + weight, "W": weight}
    todo = [list(of_rank(ranks, rank, m)) for rank in range(ranks)]
    clock, done, counts = [0.0] * ranks, dict[tuple[str, int, int, int], float](), [dict[tuple[str, int], int]() for _ in range(ranks)]
    now, peaks = [0] * ranks, [0] * ranks
    while any(todo):
        moved = False
        for rank in range(ranks):
            while todo[rank]:
                begin, named = clock[rank], list[tuple[str, int, int]]()
                for kind, way in todo[rank][0]:
                    word = "B" if kind == "D" else kind
                    number = counts[rank].get((word, way), 0)
                    ahead = -1 if (kind == "F") == (way == 0) else 1  # the neighbour from which it takes
                    if kind != "W" and 0 <= rank + ahead < ranks:
                        begin = max(begin, done.get((word, way, number, rank + ahead), np.inf))
                    named.append((word, way, number))
                if begin == np.inf:
                    break
                clock[rank] = begin + sum(takes[kind] for kind, _ in todo[rank][0])
                for (word, way, number), (kind, _) in zip(named, todo[rank].pop(0), strict=True):
                    counts[rank][word, way] = number + 1
                    done[word, way, number, rank] = clock[rank]
                    now[rank] += kind == "F"
                    peaks[rank] = max(peaks[rank], now[rank])
                    now[rank] -= kind in "DW"
                moved = True
        assert moved, "deadlock"
    return clock, peaks


@pytest.mark.parametrize("schedule", sorted(FOLDED))
def test_every_stage_runs_every_pass_once_and_never_a_backward_before_its_forward(schedule: str) -> None:
    for p, m in ((1, 2), (2, 4), (3, 7), (5, 10)):
        plan = order(schedule, p, m, 2)
        for rows in zip(plan.kind, plan.micro_batch, plan.chunk, strict=True):
            place = {event: at for at, event in enumerate(zip(*(x.tolist() for x in rows), strict=True)) if event[0] < 4}
            back = {(k, b, c): place.get((1, b, c), place.get((3, b, c))) for k, b, c in place if k == 0}
            assert sorted(back) == [(0, b, c) for b in range(m) for c in range(2)]
            assert all(at is not None and place[one] < at for one, at in back.items())
            assert all(((2, b, c) in place) == ((1, b, c) in place) for _, b, c in back)
            assert all(place[1, b, c] < at for (k, b, c), at in place.items() if k == 2)
            assert sum(k < 4 for k in rows[0].tolist()) == len(place)


@pytest.mark.parametrize("schedule", sorted(FOLDED))
def test_the_clock_and_its_path_are_the_simulators_on_random_steps(schedule: str) -> None:
    for seed in range(cases(6, 100)):
        jobs = Maker(seed, 1).step(schedule)
        seconds = simulate(jobs)[0]
        assert step_seconds(jobs)[0] == pytest.approx(seconds, rel=1e-12), seed
        assert critical_path(jobs)[0] == pytest.approx(seconds, rel=1e-12), seed
        assert max(float(one.end.max()) for one in schedule_of(jobs)) == pytest.approx(seconds, rel=1e-12), seed


def test_chunks_lie_down_the_stages_and_back_up() -> None:
    made = cut((1, 21, 1), (False, True, False), 3, 2, (1, 2, 3, 4, 5, 6), True)
    assert made.of_chunks(0).tolist() == [[1, 1, 0], [0, 6, 1]]  # both ends of the model
    assert [made.of_chunks(stage)[:, 1].tolist() for stage in (1, 2)] == [[2, 5], [3, 4]]
    assert (made.hops, made.busy.tolist()) == (4, [[1, 7, 1], [0, 7, 0], [0, 7, 0]])


AXES = "{pp: {degree: 4, stages: layers}, dp: {degree: rest}}"


@pytest.mark.parametrize(
    ("schedule", "model", "batch", "more", "what"),
    [
        ("dualpipe_v", "llama3_8b", 8, [], "micro-batches are fewer than the schedule takes"),
        ("zb_v", "gpt3_175b", 64, [], "one weight that both read, WE"),
        ("zb_v", "llama3_8b", 64, ["interleave=3"], "chunks are of schedules that `schedule` does not list"),
        ("dualpipe", "llama3_8b", 64, [], "did you mean 'dualpipe_v'"),
    ],
)
def test_what_they_are_not_for_is_refused(schedule: str, model: str, batch: int, more: list[str], what: str) -> None:
    sets = ["accelerators=8", f"b={batch}", f"schedule=[{schedule}]", f"axes={AXES}", "split={dp: [b]}", "micro_batch=1", *more]
    sets += ["s=2048"] if model == "llama3_8b" else []
    with pytest.raises((InputError, InfeasibleError), match=what):
        api.search("dgx_h100", model, "data", sets=sets)


def test_the_search_finds_the_best_of_all_points_whose_bounds_are_below_their_seconds() -> None:
    sets = ["accelerators=8", "b=32", "s=128", "d=512", "f=1024", "g=4", "e=64", "v=4096", "layers=8"]
    sets += [
        "layouts={}",
        "axes.tp.degree=1",
        "axes.pp.degree=4",
        "micro_batch=1",
        "recompute=[none]",
        "schedule=[1f1b, interleaved, zb_h1, zb_v, dualpipe_v]",
        "interleave=[2]",
    ]
    given = read_inputs("dgx_h100", "llama", mapper="megatron", sets=sets)
    assert given.mapper is not None
    profile = read_profile("megatron_core")
    job = Job(setting=Setting(architecture=given.architecture), workload=given.workload, profile=profile)
    space = build_mapspace(given.mapper, given.workload, given.architecture.used)
    every = search_space(job, space, Question(goal=Objective("latency"), top=10**6)).points
    assert {point.schedule for point in every} >= {"1f1b", "zb_v", "dualpipe_v"}
    assert all(point.bound <= point.seconds * (1 + 1e-12) for point in every)
    found = search_space(job, space, Question(goal=Objective("latency"))).points[0]
    assert found.seconds == pytest.approx(min(point.seconds for point in every), rel=1e-11)
