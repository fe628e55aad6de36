"""The ledger of one step: the rows of every section's layer, multiplied by how often they occur.

amount, joules   a micro-batch's rows x layers x micro-batches; a step's rows x layers
seconds          the same on the stage that sets the pace, as if nothing overlapped
exposed_seconds  the row's share of its task x times the task is on the critical path. What the path runs at other stages beyond
                 what the stage that sets the pace runs itself is `bubble`: time for which that stage waits
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.program.tasks import Volume
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.exposure import Exposure, TaskSeconds
from rackmodel.cost.step.group import stream_volume, tied_volumes
from rackmodel.cost.step.layers import Item
from rackmodel.cost.step.link_arrays import LinkArrays
from rackmodel.cost.step.pricer import link_rows
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
        for x, cost in enumerate(self.step.costs):
            repeat = 1 if self.step.staged else int(self.cut.counts[:, x].sum())
            for number, item in enumerate(cost.items):
                if item.rows:
                    rows += self._item(x, number, item, repeat)
            rows += self._hosts(x)
        if self.cut.stages > 1 and not self.step.staged:
            rows += self._sends()
        rows += self._bubbles()
        rows = [row for row in rows if row.amount or row.joules or row.seconds]
        return Ledger(tuple(rows + self._static(rows)))

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def _item(self, x: int, number: int, item: Item, repeat: int) -> list[Charge]:
        count = 1 if item.once else self.m
        layers = 1 if self.step.staged else int(self.exposure.busy[x])
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
                amount * repeat * count,
                row.unit,
                joules * repeat * count,
                seconds * layers * count,
                exposed * part,
            )
            for row, (amount, joules, seconds, exposed) in item.first
        ]

    def _hosts(self, x: int) -> list[Charge]:
        """Waiting for the host to launch a layer."""
        name = self.architecture.accelerator.name
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
        near, far = pricer.between_stages(far=False), pricer.between_stages(far=True)
        sent, shared = stream_volume(workload, plan), tied_volumes(workload, plan)
        crossings, own = (cut.stages * cut.chunks - 1) * self.m, cut.chunks * self.m
        rows = []
        for kind, phase in enumerate(("forward", "backward") if workload.backward else ("forward",)):
            rows += self._linked(near, [sent], phase, "send", crossings, own, self.exposure.sends[kind])
        if shared:
            rows += self._linked(far, shared, "backward", "all_reduce", 2, 1, self.other["tied"])
        return rows

    def _linked(
        self, links: LinkArrays, sent: Sequence[Volume], phase: str, action: str, everywhere: int, here: int, exposed: int
    ) -> list[Charge]:
        degrees = self.step.columns.degrees
        mean, fullest = sum(one.at(degrees) for one in sent), sum(one.fullest(degrees) for one in sent)
        return [
            Charge(
                phase,
                "",
                "stream",
                row.level,
                "network",
                action,
                _one(row.amount) * everywhere,
                "byte",
                _one(row.joules) * everywhere,
                _one(row.seconds) * here,
                _one(row.exposed) * exposed,
            )
            for row in link_rows(links, np.asarray(mean, dtype=np.float64), "stream", action, np.asarray(fullest, dtype=np.float64))
        ]

    # -- what is left ------------------------------------------------------------------------------------------------------

    def _bubbles(self) -> list[Charge]:
        name = self.architecture.accelerator.name
        return [
            Charge(phase, "", "", name, "compute", "bubble", 0.0, "flop", 0.0, seconds, seconds)
            for phase, seconds in self.exposure.bubbles.items()
            if seconds > 1e-12 * self.seconds
        ]

    def _static(self, rows: Sequence[Charge]) -> list[Charge]:
        """Static power of everything in use over each phase's share of the step."""
        charges = []
        for level, power in static_powers(self.architecture):
            for phase in dict.fromkeys(row.phase for row in rows):
                seconds = float(np.sum([row.exposed_seconds for row in rows if row.phase == phase]))
                charges.append(Charge(phase, "", "", level, "static", "static", power * seconds, "joule", power * seconds, seconds, 0.0))
        return charges


def _one(figure: object) -> float:
    if isinstance(figure, np.ndarray) and figure.dtype == np.float64:
        return float(figure.item(0))  # (as below, quickly: a ledger asks hundreds of times)
    return float(np.asarray(figure, dtype=np.float64).reshape(-1)[0])


def static_powers(architecture: Architecture) -> list[tuple[str, float]]:
    """(level, watts of all its instances in use), for levels that draw any."""
    powers = []
    used, below = architecture.used, architecture.available
    path = {level.name for level in architecture.path}
    for level in architecture.path:
        below //= level.count
        instances = -(-used // below)
        powers.append((level.name, level.static_power_w * instances))
        for side in level.children if not level.accelerator else ():
            if side.name not in path:
                powers.append((side.name, side.static_power_w * side.count * instances))
    for level, count in architecture.inside[1:]:
        powers.append((level.name, level.static_power_w * count * used))
    return [(name, power) for name, power in powers if power > 0]


def replica_static(architecture: Architecture, accelerators: int) -> list[tuple[str, float]]:
    """(level, watts) of one of the replicas, of so many accelerators, that fill those in use: its share of what all levels draw. A node
    that several share is charged once."""
    return [(level, power * accelerators / architecture.used) for level, power in static_powers(architecture)]


def static_watts(architecture: Architecture) -> float:
    """Static power of everything in use."""
    return sum(power for _, power in static_powers(architecture))


__all__ = ["replica_static", "static_powers", "static_watts", "step_ledger"]
