"""Which contraction hides which collective: random programs, against a reading column by column."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from rackmodel.cost.program.tasks import Flow, LocalOp, Operand, Task, Volume
from rackmodel.cost.step.tasks.windows import hidable
from rackmodel.model.einsum import Access
from rackmodel.model.profile import Overlap, Window

COLUMNS = 3
BESIDE = ("none", "reader", "maker", "sibling", "pass")


def test_random_windows_hide_what_a_reading_of_each_column_says() -> None:
    hid = fused = 0
    for seed in range(120):
        pick = random.Random(seed)
        tasks = _program(pick)
        durations = [np.array([float(pick.randint(0, 9)) for _ in range(COLUMNS)]) for _ in tasks]
        windows = {
            action: Window(beside=pick.choice(BESIDE), share=pick.choice([0.5, 1.0]))  # type: ignore[arg-type]
            for action in ("all_gather", "reduce_scatter")
        }
        overlap = Overlap(windows=windows)  # type: ignore[arg-type]
        ops = [number for number, task in enumerate(tasks) if task.local_op is not None]
        within = pick.sample(ops, min(len(ops), pick.randint(0, 4)))
        kernels = {number: np.array([pick.choice(within) for _ in range(COLUMNS)]) for number in sorted(within)}
        found = hidable(tasks, durations, overlap, kernels)
        for column in range(COLUMNS):
            said = _read(tasks, [float(seconds[column]) for seconds in durations], windows, {n: int(k[column]) for n, k in kernels.items()})
            assert said == {number: float(seconds[column]) for number, seconds in found.items()}, seed
            hid, fused = hid + (sum(said.values()) > 0), fused + bool(kernels)
    assert hid
    assert fused


def _program(pick: random.Random) -> list[Task]:
    """Operations, collectives and joins, each after some of those before."""
    tasks: list[Task] = []
    for number in range(pick.randint(4, 14)):
        after = tuple(sorted(pick.sample(range(number), pick.randint(0, min(2, number)))))
        kind = pick.choice(("op", "op", "collective", "collective", "join"))
        task = Task(
            "collective" if kind == "collective" else "op",
            pick.choice(("forward", "backward")),
            pick.choice("AB"),
            pick.choice("XY"),
            0,
            pick.choice(("all_gather", "reduce_scatter")) if kind == "collective" else kind,
            after,
            channel=pick.choice(("device", "device", "weights")) if kind == "collective" else "device",
        )
        tasks.append(replace(task, local_op=_local_op(pick)) if kind == "op" else task)
    return tasks


def _local_op(pick: random.Random) -> LocalOp:
    operands = tuple(Operand(name, Access(name, ()), 16) for name in pick.sample("XYZ", 2))
    wrote = (Flow("W", Volume(1.0)),)
    return LocalOp((), wrote, (), macs=pick.random() < 0.7, per_element=1.0, density=1.0, bits=16, operands=operands)


def _read(tasks: list[Task], seconds: list[float], windows: dict[str, Window], kernels: dict[int, int]) -> dict[int, float]:
    """Task → seconds of it that are hidden on one column. kernels: operation → the first one of its kernel."""
    room, hidden = dict(enumerate(seconds)), {}
    contracts = [number for number, task in enumerate(tasks) if task.local_op is not None and task.local_op.macs]
    for number, task in enumerate(tasks):
        window = windows.get(task.action) if task.kind == "collective" and task.channel == "device" else None
        if window is None or window.beside == "none":
            continue
        partners = _partners(number, tasks, contracts, window.beside)
        firsts = {kernels[partner] for partner in partners if partner in kernels}
        left = seconds[number]
        for other in (*partners, *(op for op, first in kernels.items() if first in firsts and op not in partners)):
            taken = min(left, window.share * room[other])
            room[other], left = room[other] - taken, left - taken
        if partners:
            hidden[number] = seconds[number] - left
    return hidden


def _partners(number: int, tasks: list[Task], contracts: list[int], beside: str) -> list[int]:
    task = tasks[number]
    if beside == "pass":
        return contracts
    brings = beside == "reader" or (beside == "sibling" and task.action == "all_gather")

    def near(one: int) -> list[int]:
        return [other for other, said in enumerate(tasks) if one in said.after] if brings else list(tasks[one].after)

    found: list[int] = []
    rounds = near(number)
    while rounds:
        found += [one for one in rounds if one in contracts and one not in found]
        rounds = [further for one in rounds if tasks[one].kind == "op" and tasks[one].local_op is None for further in near(one)]
    found = [one for one in dict.fromkeys(found) if (tasks[one].phase == "forward") == (task.phase == "forward")]
    if beside != "sibling":
        return found
    names = {tasks[one].einsum for one in found if tasks[one].phase == "backward"}
    others = [one for one in contracts if tasks[one].phase == "backward" and tasks[one].einsum in names]
    if not brings:
        return [one for one in others if one not in found]
    return [one for one in others if all(operand.tensor != task.tensor for operand in tasks[one].local_op.operands)]  # type: ignore[union-attr]
