"""The clock against hand-worked steps, against the simulator of events on random steps, and its critical path against its seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.step.clock.clock import StepJobs, step_seconds
from rackmodel.cost.step.clock.critical_path import HOST, critical_path
from rackmodel.cost.step.clock.pipeline_orders import FORWARD, order
from rackmodel.cost.step.tasks import jobs as jobs_module
from rackmodel.cost.step.tasks.jobs import DEVICE, PASSES, SPREAD, UP, WEIGHTS, LaneJob, LayerPass, lanes_of, layer_passes
from rackmodel.cost.step.tasks.timed_task import TimedTask
from rackmodel.model.profile import Host, Overlap, ProfileSpec
from rackmodel.model.schedules import FOLDED, SCHEDULES, TABLE
from tests import samples
from tests.events import simulate
from tests.step_cases import Maker

SEEDS = 510


def job(lane: str, seconds: float, member: int, **more: Any) -> LaneJob:
    """A job of one mapping."""
    return LaneJob(lane=lane, seconds=np.array([seconds]), members=(member,), **more)


def layer(ahead: Sequence[LaneJob] = (), body: Sequence[LaneJob] = (), host_s: float = 0.0) -> LayerPass:
    """A layer's pass; it is named where it is put."""
    return LayerPass(name="", ahead=tuple(ahead), body=tuple(body), host_s=host_s)


def device(seconds: float, member: int, **more: Any) -> LayerPass:
    """A layer's pass with one job on the device."""
    return layer([], [job(DEVICE, seconds, member, **more)])


def step(forward: LayerPass, backward: LayerPass | None = None, *, layers: int = 1, **more: Any) -> StepJobs:
    """A step of one section, one mapping, the same passes in every micro-batch unless `passes` says otherwise."""
    plain = {name: layer() for name in PASSES} | {"first": forward, "forward": forward}
    plain |= {"backward": backward, "last": backward} if backward else {}
    given: dict[str, Any] = {"schedule": "1f1b", "stages": 1, "chunks": 1, "micro_batches": 1, "sends_overlap": False}
    given |= {key: more[key] for key in given if key in more}
    return StepJobs(
        sections=(plain | more.get("passes", {}),),
        counts=np.full((given["stages"] * given["chunks"], 1), layers),
        backward=backward is not None,
        send_s=np.array([more.get("send_s", 0.0)]),
        update_s=(np.array([more.get("update_s", 0.0)]),),
        tied_s=np.array([more.get("tied_s", 0.0)]),
        **given,
    )


def seconds_of(jobs: StepJobs) -> float:
    """The clock's seconds; the simulator agrees."""
    found = float(step_seconds(jobs)[0])
    assert simulate(jobs)[0] == pytest.approx(found, rel=1e-12)
    return found


def starts(jobs: StepJobs, member: int, stage: int = 0) -> list[float]:
    """When a task runs in the simulator, each time it does."""
    return sorted(task.start for task in simulate(jobs)[1] if task.name.endswith(f"({member},)") and task.stage == stage)


def explained(jobs: StepJobs) -> float:
    """The seconds that the critical path of a step adds up to."""
    _, tasks, other = critical_path(jobs)
    found = 0.0
    for ((section, name), number), times in tasks.items():
        one = jobs.sections[section][name]
        own = {member: float(job.seconds[0]) for job in (*one.ahead, *one.body) for member in job.members}
        found += times * (one.host_s if number == HOST else own[number])
    return found + _beside(jobs, other)


def _beside(jobs: StepJobs, other: Counter[str]) -> float:
    """Seconds of a path that are no task's: hand-overs, sums of shared weights, optimizers."""
    found = other["tied"] * float(jobs.tied_s[0])
    for key, times in other.items():
        word, *numbers = key.split()
        if word == "update":
            found += times * float(jobs.update_s[int(numbers[0])][0])
        elif word == "send" and jobs.hops_s is None:
            found += times * float(jobs.send_s[0])
        elif word == "send" and len(numbers) == 3:
            _, lane, stage = map(int, numbers)
            found += times * float(jobs.hops_s[lane, stage, 0])
    return found


# -- worked by hand ------------------------------------------------------------------------------------------------------------


def test_one_layer_of_one_micro_batch_is_forward_backward_and_update() -> None:
    assert seconds_of(step(device(2, 0), device(3, 1), update_s=1)) == 6


def test_gathers_run_one_layer_ahead_and_no_further() -> None:
    # gathers of 3 s, operations of 5 s: gather 0 at 0, gather 1 at 3 (issued with layer 0), gather 2 when layer 1 starts (8, though the
    # lane is free at 6), gather 3 when layer 2 starts (13): 3 + 4 x 5 = 23
    forward = layer([job(WEIGHTS, 3, 0)], [job(DEVICE, 5, 1, needs=(0,))])
    jobs = step(forward, layers=4)
    assert seconds_of(jobs) == 23
    assert starts(jobs, 0) == [0, 3, 8, 13]
    # gathers of 3 s, operations of 2 s: the lane is never idle, the last operation follows the last gather: 4 x 3 + 2 = 14
    assert seconds_of(step(layer([job(WEIGHTS, 3, 0)], [job(DEVICE, 2, 1, needs=(0,))]), layers=4)) == 14


def test_gathers_of_a_pass_run_under_the_last_layer_of_the_pass_before() -> None:
    # forward: gather 1, operation 4; backward: gather 3, operation 5; one layer: 1 + 4, the backward's gather from 1 to 4: 5 + 5 = 10
    forward = layer([job(WEIGHTS, 1, 0)], [job(DEVICE, 4, 1, needs=(0,))])
    jobs = step(forward, layer([job(WEIGHTS, 3, 2)], [job(DEVICE, 5, 3, needs=(0,))]))
    assert seconds_of(jobs) == 10
    assert starts(jobs, 2) == [1]


def test_reductions_after_the_last_backward_pass_are_a_tail() -> None:
    # forward 3 x 1; backward 2 a layer, its reduction 3: they run 5-8, 8-11, 11-14; the optimizer 1
    backward = layer([], [job(DEVICE, 2, 1), job(WEIGHTS, 3, 2, after=(0,))])
    jobs = step(device(1, 0), backward, layers=3, update_s=1 / 3)
    assert seconds_of(jobs) == pytest.approx(15)
    assert starts(jobs, 2) == [5, 8, 11]


def test_gradients_wait_for_the_reductions_of_the_layer_executed_two_before() -> None:
    # as above with 4 layers (forward until 4): backward at 4, 6, then 9 and 12, when the reductions of layers 0 and 1 end
    backward = layer([], [job(DEVICE, 2, 1, feeds=True), job(WEIGHTS, 3, 2, after=(0,), reduces=True)])
    jobs = step(device(1, 0), backward, layers=4)
    assert seconds_of(jobs) == 4 + 2 + 4 * 3
    assert starts(jobs, 1) == [4, 6, 9, 12]


def test_the_bubble_of_1f1b_is_a_forward_and_a_backward_pass_for_each_other_stage() -> None:
    # m (F + B) + (p - 1) (F + B) = 8 x 3 + 3 x 3
    assert seconds_of(step(device(1, 0), device(2, 1), stages=4, micro_batches=8)) == 33


def test_a_layer_takes_no_less_than_its_host() -> None:
    assert seconds_of(step(layer([], [job(DEVICE, 1, 0)], host_s=3), layers=4)) == 12
    assert critical_path(step(layer([], [job(DEVICE, 1, 0)], host_s=3), layers=4))[1] == {((0, "first"), HOST): 4}


def test_sends_beside_the_device_queue_and_hand_overs_hold_it() -> None:
    # two stages, three forward passes of 1 s, 3 s a send. Overlapped: sends 1-4, 4-7, 7-10, the last pass 10-11
    assert seconds_of(step(device(1, 0), stages=2, micro_batches=3, send_s=3, sends_overlap=True)) == 11
    # not: passes of 1 + 3 on both stages, the second one pass later: (3 + 1) x 4
    assert seconds_of(step(device(1, 0), stages=2, micro_batches=3, send_s=3)) == 16


def spreading(seconds: float, forward: float) -> LayerPass:
    """A first forward pass whose operation waits for parameters that the optimizer left sharded."""
    return layer([], [job(SPREAD, seconds, 9), job(DEVICE, forward, 0, after=(0,))])


def test_what_the_optimizer_left_sharded_is_gathered_once_a_step() -> None:
    # three micro-batches of forward 2, backward 2; the gather of 1 s delays the first alone
    assert seconds_of(step(device(2, 0), device(2, 1), micro_batches=3, passes={"first": spreading(1, 2)})) == 13


def test_what_the_optimizer_left_sharded_is_gathered_without_a_pause() -> None:
    # two layers, gathers of 3 s: 0-3, 3-6; forward passes of 2 s: 3-5, 6-8
    jobs = step(device(2, 0), layers=2, passes={"first": spreading(3, 2)})
    assert seconds_of(jobs) == 8
    assert starts(jobs, 9) == [0, 3]
    assert starts(jobs, 0) == [3, 6]
    assert critical_path(jobs)[1] == {((0, "first"), 9): 2, ((0, "first"), 0): 1}
    # four layers, gathers of 1 s, passes of 2 s at 1, 3, 5, 7: no buffer holds the gathers of the last layers up, they are over at 4
    jobs = step(device(2, 0), layers=4, passes={"first": spreading(1, 2)})
    assert seconds_of(jobs) == 9
    assert starts(jobs, 9) == [0, 1, 2, 3]


def test_gathers_of_every_micro_batch_come_after_all_that_the_optimizer_left_sharded() -> None:
    # three layers, spread 2 s each (0-6), gathered 1 s each: 6-7 and 7-8 (both issued at 0, behind the spreads), 9-10 (issued when layer 1
    # starts); layers of 2 s at 7, 9, 11
    first = layer([job(WEIGHTS, 1, 8)], [job(SPREAD, 2, 9), job(DEVICE, 2, 0, after=(0,), needs=(0,))])
    jobs = step(device(2, 0), layers=3, passes={"first": first})
    assert seconds_of(jobs) == 13
    assert starts(jobs, 9) == [0, 2, 4]
    assert starts(jobs, 8) == [6, 7, 9]
    assert critical_path(jobs)[1] == {((0, "first"), 9): 3, ((0, "first"), 8): 1, ((0, "first"), 0): 3}


def test_later_chunks_find_what_the_optimizer_left_sharded_long_gathered() -> None:
    # two stages of two chunks, passes of 4 s, gathers of 3 s: on both stages 0-3, 3-6. Stage 0: chunk 0 at 3-7, 7-11, chunk 1 as soon as
    # stage 1 has made its first (7-11): 11-15, 15-19; stage 1 4 s behind: 23. One more second of gathering is one more second once,
    # as the second chunk's is over before 11
    more: dict[str, Any] = {"schedule": "interleaved", "stages": 2, "chunks": 2, "micro_batches": 2}
    jobs = step(device(4, 0), passes={"first": spreading(3, 4)}, **more)
    assert seconds_of(jobs) == 23
    for stage in range(2):
        assert starts(jobs, 9, stage) == [0, 3]
    assert seconds_of(step(device(4, 0), passes={"first": spreading(4, 4)}, **more)) == 24


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_first_passes_run_chunk_by_chunk(schedule: str) -> None:
    for stages in (1, 2, 3, 4):
        for m in (1, 2, 3, 5, 8):
            chunks, m = (3, m * stages) if schedule == "interleaved" else (2 if schedule in FOLDED else 1, m)
            m = max(m, TABLE[schedule].fewest(stages))
            plan = order(schedule, stages, m, chunks)
            for kind, micro_batch, chunk in zip(plan.kind, plan.micro_batch, plan.chunk, strict=True):
                assert chunk[(kind == FORWARD) & (micro_batch == 0)].tolist() == list(range(chunks))


def test_the_first_and_the_last_stage_wait_for_each_other_only_where_they_share_a_weight() -> None:
    # GPipe with no backward: stage 1 ends at 2 + 2, stage 0 at 2 and then updates 5; sharing: both update after 4 + 1
    assert seconds_of(step(device(1, 0), stages=2, micro_batches=2, update_s=5)) == 3 + 5
    assert seconds_of(step(device(1, 0), stages=2, micro_batches=2, update_s=5, tied_s=1)) == 3 + 1 + 5


def test_a_task_starts_no_sooner_than_its_layer() -> None:
    # two layers: 4 s on the device; beside it 1 s on the lane up that waits for nothing: at 0 and at 4
    jobs = step(layer([], [job(DEVICE, 4, 0), job(UP, 1, 1)]), layers=2)
    assert seconds_of(jobs) == 8
    assert starts(jobs, 1) == [0, 4]


# -- random steps ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(samples.cases(3, 6)))
def test_random_steps_take_as_long_as_the_simulator_says(batch: int) -> None:
    for seed in range(batch, samples.cases(180, SEEDS), 6):
        n = 5 if seed // 6 % 9 == 0 else 1
        jobs = Maker(seed, n).step()
        want = [simulate(jobs, column)[0] for column in range(n)]
        np.testing.assert_allclose(step_seconds(jobs), want, rtol=1e-11, atol=1e-12, err_msg=f"seed {seed}")


def test_long_runs_of_layers_and_micro_batches_are_powers_without_error() -> None:
    for seed in range(1000, 1008):
        maker = Maker(seed, 1)
        jobs = maker.step("1f1b" if seed % 2 else "gpipe")
        deep = StepJobs(**{**vars(jobs), "counts": jobs.counts[:1] + 15, "stages": 1, "micro_batches": 9})
        assert step_seconds(deep)[0] == pytest.approx(simulate(deep)[0], rel=1e-11)


@pytest.mark.parametrize("batch", range(3))
def test_the_critical_path_adds_up_to_the_step(batch: int) -> None:
    for seed in range(SEEDS + batch, SEEDS + samples.cases(180, SEEDS), 6):
        jobs = Maker(seed, 1).step()
        total = critical_path(jobs)[0]
        assert total == step_seconds(jobs)[0]
        assert explained(jobs) == pytest.approx(total, rel=1e-9, abs=1e-12), f"seed {seed}"


# -- from tasks to jobs ------------------------------------------------------------------------------------------------------------

EMPTY = LocalOp(reads=(), writes=(), space=(), macs=False, per_element=0.0, density=1.0, bits=8)
CHANNELS = {
    "device": ("all_reduce",),
    "weights": ("all_gather", "broadcast", "reduce_scatter"),
    "gradients": ("reduce",),
    "home": ("add",),
}


def random_tasks(random: np.random.Generator, n: int, begin: int = 0) -> list[TimedTask]:
    """A layer's tasks in program order: operations, joins, collectives of all channels, the optimizer's. begin: the first one's number."""
    found: list[TimedTask] = []
    for phase in ["forward"] * 6 + ["recompute"] * 2 + ["backward"] * 8 + ["optimizer"] * 2:
        channel = "device" if phase == "forward" else str(random.choice(list(CHANNELS), p=(0.6, 0.2, 0.1, 0.1)))
        if phase == "forward" and random.random() < 0.3:
            channel = "weights"
        kind = "op" if channel == "device" and random.random() < 0.8 else "collective"
        waits = ("backward",) if phase == "optimizer" else ("forward", "recompute", "backward")
        after = tuple(begin + k for k in range(len(found)) if random.random() < 0.2 and found[k].task.phase in waits)
        join, once = kind == "op" and random.random() < 0.15, channel == "weights" and random.random() < 0.3
        action = "" if kind == "op" else str(random.choice(CHANNELS[channel]))
        local_op = EMPTY if kind == "op" and not join else None
        einsum = str(random.choice(["query", "key", "value"]))
        task = Task(kind, phase, einsum, "", 0, action, after, channel=channel, local_op=local_op, once=bool(once))  # type: ignore[arg-type]
        seconds = random.exponential(1.0, n)
        port = seconds * random.choice([0.5, 1.0]) if channel in ("weights", "gradients") and random.random() < 0.3 else None
        found.append(TimedTask(task=task, seconds=seconds, port_s=port, weight=phase == "backward" and random.random() < 0.3))
    return found


def test_an_operation_waits_in_the_first_micro_batch_for_its_weight_that_the_update_left_sharded() -> None:
    # two operations of 2 s; the weight of the second is gathered for 3 s under the first: 3 + 2, then 2 + 2. Two layers: gathered by 6,
    # the second value at 7: 5 + 4, then 4 + 4; on the device they are done with the update: 8, then 8
    key, value = (Task("op", "forward", name, "", 0, "", (), local_op=EMPTY) for name in ("key", "value"))
    spread = Task("collective", "optimizer", "value", "w", 0, "all_gather", (), channel="weights", once=True)
    timed = [TimedTask(task=task, seconds=np.array([s])) for task, s in ((key, 2.0), (value, 2.0), (spread, 3.0))]
    profile = ProfileSpec(profile="hides weights", overlap=Overlap(weights=True))
    passes = layer_passes(timed, profile, lanes_of(profile.overlap, hide=True), layer=True, split=False)
    assert seconds_of(step(passes["forward"], micro_batches=2, passes=passes)) == 5 + 4
    assert seconds_of(step(passes["forward"], layers=2, micro_batches=2, passes=passes)) == 9 + 8
    lanes = lanes_of(profile.overlap, hide=False)
    passes = layer_passes(timed, profile, lanes, layer=True, split=False)
    assert seconds_of(step(passes["forward"], layers=2, micro_batches=2, passes=passes)) == 8 + 8
    assert [lanes.timed(role) for role in ("spread", "tail", "reduce", "gather")] == ["update", "update", "reduce", "gather"]


def streams(down_port: float, up_port: float) -> list[TimedTask]:
    """A gradient of 1 s of a weight that streams from a home, 4 s down, and up again in 3 s."""
    down = Task("stream", "backward", "key", "w", 0, "broadcast", (), channel="weights")
    makes = Task("op", "backward", "key", "w", 0, "", (0,), local_op=EMPTY)
    up = Task("stream", "backward", "key", "w", 0, "reduce", (1,), channel="gradients")
    return [
        TimedTask(task=down, seconds=np.array([4.0]), port_s=np.array([down_port])),
        TimedTask(task=makes, seconds=np.array([1.0]), weight=True),
        TimedTask(task=up, seconds=np.array([3.0]), port_s=np.array([up_port])),
    ]


HIDES = ProfileSpec(profile="hides all", overlap=Overlap(weights=True, gradients=True))


def test_streams_that_share_a_port_take_as_long_as_it_is_busy() -> None:
    # 4 s down and 3 s up; the port is busy for 3 + 3 of the 4 s that the longer takes: 1.5 times as long. Two layers: down 0-6 and 6-12,
    # gradients at 6-7 and 12-13, up 7-11.5 and 13-17.5. A port that is busy for 1 + 3 of them slows nothing: 4 + 4 + 1 + 3
    lanes = lanes_of(HIDES.overlap, hide=True)
    for down_port, up_port, stretch, seconds in ((3.0, 3.0, 1.5, 17.5), (1.0, 3.0, 1.0, 12.0), (0.0, 0.0, 1.0, 12.0)):
        passes = layer_passes(streams(down_port, up_port), HIDES, lanes, layer=True, split=False)
        one = passes["backward"]
        assert one.stream_stretch == stretch
        assert [float(task.seconds[0]) for task in (*one.ahead, *one.body)] == [4 * stretch, 1, 3 * stretch]
        assert seconds_of(step(layer(), one, layers=2, passes=passes)) == seconds
    # nothing is slowed on the device
    one = layer_passes(streams(3, 3), HIDES, lanes_of(HIDES.overlap, hide=False), layer=True, split=False)["backward"]
    assert sum(float(task.seconds[0]) for task in one.body) == 8


def test_random_streams_that_share_a_port_take_its_seconds_over_those_of_the_busier_lane() -> None:
    slowed = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        timed = [replace(one, task=replace(one.task, after=())) for one in streams(*random.uniform(1, 3, 2))] + random_tasks(random, 1, 3)
        lanes = lanes_of(HIDES.overlap, hide=True)
        alone = [TimedTask(task=one.task, seconds=one.seconds, weight=one.weight) for one in timed]
        slow, fast = (layer_passes(tasks, HIDES, lanes, layer=True, split=False) for tasks in (timed, alone))
        for name in PASSES:
            lanes_s = [sum(float(j.seconds[0]) for j in jobs if j.lane != DEVICE) for jobs in (fast[name].ahead, ups(fast[name]))]
            ports = [timed[j.members[0]].port_s for j in (*fast[name].ahead, *ups(fast[name]))]
            stretch = max(1.0, sum(float(p[0]) for p in ports if p is not None) / (max(lanes_s) or 1.0))
            slowed += stretch > 1
            for one, other in zip((*slow[name].ahead, *slow[name].body), (*fast[name].ahead, *fast[name].body), strict=True):
                shares = one.lane != DEVICE and timed[one.members[0]].port_s is not None
                assert one.seconds == pytest.approx(other.seconds * (stretch if shares else 1.0), rel=1e-12)
    assert slowed > 20


def ups(one: LayerPass) -> list[LaneJob]:
    """The jobs of a pass that stream gradients up."""
    return [job for job in one.body if job.lane == UP]


def random_step(seed: int, n: int) -> tuple[StepJobs, list[list[TimedTask]]]:
    """A step of random tasks, and each section's tasks."""
    random = np.random.default_rng(seed)
    jobs = Maker(seed, n).step()
    overlap = Overlap(
        weights=bool(random.random() < 0.8),
        gradients=bool(random.random() < 0.7),
        channels=str(random.choice(["shared", "separate"])),  # type: ignore[arg-type]
        contention=float(random.choice([0.0, 0.2])),
    )
    profile = ProfileSpec(profile="random", overlap=overlap, host=Host(layer=str(random.choice(["0 s", "2 s"]))))
    lanes = lanes_of(overlap, hide=bool(random.random() < 0.9))
    tasks = [random_tasks(random, n) for _ in jobs.sections]
    passes = [layer_passes(timed, profile, lanes, layer=True, split=jobs.schedule.startswith("zb")) for timed in tasks]
    return StepJobs(**{**vars(jobs), "sections": tuple(passes)}), tasks


def test_merging_tasks_in_a_row_on_the_device_changes_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    count = np.zeros(2)
    for seed in range(60):
        merged = random_step(seed, 3)[0]
        with monkeypatch.context() as patched:
            patched.setattr(jobs_module, "merged", tuple)
            apart = random_step(seed, 3)[0]
        count += [sum(len(p.body) for section in one.sections for p in section.values()) for one in (merged, apart)]
        np.testing.assert_allclose(step_seconds(merged), step_seconds(apart), rtol=1e-12, err_msg=f"seed {seed}")
        assert step_seconds(merged)[0] == pytest.approx(simulate(apart)[0], rel=1e-11), f"seed {seed}"
    assert count[0] < 0.9 * count[1]


def test_tasks_on_the_critical_path_take_their_own_seconds_as_often_as_they_are_slowed() -> None:
    for seed in range(60):
        jobs, tasks = random_step(seed, 1)
        total, path, other = critical_path(jobs)
        found = _beside(jobs, other)
        for ((section, name), number), times in path.items():
            one = jobs.sections[section][name]
            if number == HOST:
                found += times * one.host_s
                continue
            lane = next(job.lane for job in (*one.ahead, *one.body) if number in job.members)
            task = tasks[section][number]
            found += times * float(task.seconds[0]) * float(np.ravel(one.slowed(lane, port=task.waits_for_port))[0])
        assert found == pytest.approx(total, rel=1e-9), f"seed {seed}"
