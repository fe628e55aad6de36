"""The ledger of one step: the rows of every section's layer, multiplied by how often they occur.

amount, joules   a micro-batch's rows x layers x micro-batches; a step's rows x layers
seconds          the same on the stage that sets the pace, as if nothing overlapped
exposed_seconds  the row's share of its task x times the task is on the critical path. What the path runs at other stages beyond
                 what the stage that sets the pace runs itself is `bubble`: time for which that stage waits
busy             as the other joules, and for as long again as collectives slow the kernel (tasks/drawn_longer)
waiting          what accelerators draw beside static power while no kernel runs on them: of each phase by what of its seconds that is
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rackmodel.cost.inside.power import WAITING
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.exposure import Exposure, TaskSeconds
from rackmodel.cost.step.hand_overs import Message, tied_volumes
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.drawn_longer import times_drawn
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.pricer import link_rows
from rackmodel.model.architecture import Architecture


def step_ledger(step: ExactStep) -> Ledger:
    """The rows of one mapping. Their exposed seconds add up to the step's."""
    return _StepLedger(step).build()


class _StepLedger:
    def __init__(self, step: ExactStep) -> None:
        self.step, self.cut = step, step.structure.cut
        self.architecture, self.profile = step.job.setting.architecture, step.job.profile
        self.m = step.structure.micro_batches
        self.seconds, path, self.other = step.path
        self.exposure = Exposure(TaskSeconds(step), step.structure, 0, path, self.other)

    def build(self) -> Ledger:
        """Every row."""
        rows: list[Charge] = []
        for x, cost in enumerate(self.step.priced_layers):
            repeat = 1 if self.step.staged else int(self.cut.counts[:, x].sum())
            for number, item in enumerate(cost.items):
                if item.rows:
                    rows += self._item(x, number, item, repeat)
            rows += self._hosts(x)
        if self.cut.stages > 1 and not self.step.staged:
            rows += self._sends()
        rows += self._bubbles()
        rows = [row for row in rows if row.amount or row.joules or row.seconds or row.exposed_seconds]
        kept = [row for row in rows if row.action != WAITING]
        return Ledger(tuple(kept + self._waiting(rows) + self._static(rows)))

    @property
    def accelerator(self) -> str:
        """The accelerator of the stage that sets the pace."""
        stages = self.step.structure.stages
        return self.step.of_pools[stages[self.exposure.pace] if stages else 0].pricer.architecture.accelerator.name

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def _item(self, x: int, number: int, item: Item, repeat: int) -> list[Charge]:
        count = 1 if item.once else self.m
        layers = 1 if self.step.staged else int(self.exposure.busy[x])
        longer = self._longer(x, number, item)
        share = self.exposure.of(x, number)
        whole = float(item.seconds[0])
        part = share / whole if whole > 0 else 0.0
        return [
            Charge(
                item.task.phase,
                item.task.einsum,
                row.tensor,
                row.level,
                row.component,
                row.action,
                amount * repeat * count * longer.get(row.action, 1.0),
                row.unit,
                joules * repeat * count * longer.get(row.action, 1.0),
                seconds * layers * count,
                exposed * part,
            )
            for row, (amount, joules, seconds, exposed) in item.priced.first
        ]

    def _longer(self, x: int, number: int, item: Item) -> dict[str, float]:
        """Action → times as many joules as it has alone, of what a kernel draws for as long as it takes (tasks/drawn_longer)."""
        longer = self.step.longer[x]
        if number not in longer:
            return {}
        more = _one(longer[number]) / (1 if item.once else self.m)
        waiting = sum(joules for row, (_, joules, _, _) in item.priced.first if row.action == WAITING)
        return {action: _one(times) for action, times in times_drawn(more, _one(item.priced.lasting[1]), waiting).items()}

    def _hosts(self, x: int) -> list[Charge]:
        """Waiting for the host to launch a layer."""
        name = self.accelerator
        return [
            Charge(phase, "", "", name, "compute", "host", 0.0, "flop", 0.0, seconds, seconds)
            for part, phase, seconds in self.exposure.hosts
            if part == x
        ]

    # -- between the stages ----------------------------------------------------------------------------------------------

    def _sends(self) -> list[Charge]:
        """Hand-overs, forward and back, and the gradients of weights that the first and the last stage share."""
        step, cut = self.step, self.cut
        workload, plan, pricer = step.job.workload, step.structure.parts[0][1], step.pricer
        rows = []
        for way, phase in enumerate(("forward", "backward") if workload.backward else ("forward",)):
            own, many = self.exposure.own(way), cut.hand_overs(way)
            for place, handed in step.handed.items():
                everywhere = int(many[place]) if self.exposure.apart else cut.hops
                for message in handed.messages:
                    rows += self._linked(message, phase, everywhere * self.m, own.get(place, 0), self.exposure.sends[way][place])
        if shared := tied_volumes(workload, plan):
            mean = np.asarray(sum(one.at(pricer.degrees) for one in shared))
            fullest = np.asarray(sum(one.fullest(pricer.degrees) for one in shared))
            summed = Message(step.ends, mean, fullest, "all_reduce")
            rows += self._linked(summed, "backward", 2, 1, self.other["tied"])
        return rows

    def _linked(self, message: Message, phase: str, everywhere: int, here: int, exposed: int) -> list[Charge]:
        return [
            Charge(
                phase,
                "",
                "stream",
                row.level,
                "network",
                message.action,
                _one(row.amount) * everywhere,
                "byte",
                _one(row.joules) * everywhere,
                _one(row.seconds) * here,
                _one(row.exposed) * exposed,
            )
            for row in link_rows(message.links, message.mean, "stream", message.action, message.fullest)
        ]

    # -- what is left ------------------------------------------------------------------------------------------------------

    def _bubbles(self) -> list[Charge]:
        name = self.accelerator
        return [
            Charge(phase, "", "", name, "compute", "bubble", 0.0, "flop", 0.0, seconds, seconds)
            for phase, seconds in self.exposure.bubbles.items()
            if seconds > 1e-12 * self.seconds
        ]

    def _waiting(self, rows: Sequence[Charge]) -> list[Charge]:
        """What accelerators draw that wait: all of them in every second, less what rows of kernels take off."""
        found = []
        for level, watts in waiting_powers(self.step.job.setting, self.step.job.pools):
            each = {phase: watts * seconds for phase, seconds in _spent(rows).items()}
            for row in rows:
                if row.action == WAITING and row.level == level:
                    each[row.phase] += float(row.joules)
            waits = {phase: joules for phase, joules in each.items() if joules > 0}
            share = max(sum(each.values()), 0.0) / sum(waits.values()) if waits else 0.0
            for phase, most in waits.items():
                joules = most * share
                found.append(Charge(phase, "", "", level, "static", WAITING, joules, "joule", joules, joules / watts, 0.0))
        return [row for row in found if float(np.max(row.seconds)) > 1e-12 * self.seconds]

    def _static(self, rows: Sequence[Charge]) -> list[Charge]:
        """Static power of everything in use over each phase's share of the step."""
        spent = _spent(rows)
        return [
            Charge(phase, "", "", level, "static", "static", power * seconds, "joule", power * seconds, seconds, 0.0)
            for level, power in static_powers(self.architecture)
            for phase, seconds in spent.items()
        ]


def _spent(rows: Sequence[Charge]) -> dict[str, float]:
    """Seconds of the step that are each phase's."""
    exposed: dict[str, list[Any]] = {}
    for row in rows:
        exposed.setdefault(row.phase, []).append(row.exposed_seconds)
    return {phase: float(np.sum(seconds)) for phase, seconds in exposed.items()}


def _one(figure: object) -> float:
    if isinstance(figure, np.ndarray) and figure.dtype == np.float64:
        return float(figure.item(0))  # (as below, quickly: a ledger asks hundreds of times)
    return float(np.asarray(figure, dtype=np.float64).reshape(-1)[0])


def static_powers(architecture: Architecture) -> list[tuple[str, float]]:
    """(level, watts of all its instances in use), for levels that draw any; of one with hosts, of the hosts in use."""
    if len(architecture.pools) > 1:
        return _of_pools(architecture.pools)
    counts = architecture.drawing()
    powers = ((level.name, level.static_power_w * counts[level.name]) for level in architecture.tree.walk())
    return [(name, power) for name, power in powers if power > 0]


def _of_pools(pools: Sequence[Architecture]) -> list[tuple[str, float]]:
    """The same of several kinds of accelerators. What lies outside all of them is there once, whatever kinds it serves."""
    found: dict[str, float] = {}
    for pool in pools:
        inside = {level.name for level in pool.accelerator.walk()}
        for name, power in static_powers(pool):
            found[name] = found.get(name, 0.0) + power if name in inside else power
    return list(found.items())


def replica_static(architecture: Architecture, accelerators: int) -> list[tuple[str, float]]:
    """(level, watts) of one of the replicas, of so many accelerators, that fill those in use: its share of what all levels draw. A node
    that several share is charged once."""
    return [(level, power * accelerators / architecture.used) for level, power in static_powers(architecture)]


def static_watts(architecture: Architecture) -> float:
    """Static power of everything in use."""
    return sum(power for _, power in static_powers(architecture))


def waiting_powers(setting: Setting, pools: Sequence[Setting] = ()) -> list[tuple[str, float]]:
    """(level, watts of all accelerators in use that wait beside their static power), of each kind that draws any. pools: of each kind,
    where there are several."""
    each = [(one.architecture.accelerator.name, float(one.waiting_watts) * one.architecture.used) for one in pools or (setting,)]
    return [(name, watts) for name, watts in each if watts > 0]


def second_watts(setting: Setting, pools: Sequence[Setting] = ()) -> float:
    """Watts that every second of a step counts for beside the joules of its tasks: static power, and that of accelerators that wait, of
    which tasks take off what their kernels run."""
    return static_watts(setting.architecture) + sum(watts for _, watts in waiting_powers(setting, pools))


__all__ = ["replica_static", "second_watts", "static_powers", "static_watts", "step_ledger", "waiting_powers"]
