"""The ledger of one step: the rows of every section's layer, multiplied by how often they occur.

amount, joules   a micro-batch's rows x layers x micro-batches; a step's rows x layers
seconds          the same on the stage that sets the pace, as if nothing overlapped
exposed_seconds  the row's share of its task x times the task is on the critical path. What the path runs at other stages beyond
                 what the stage that sets the pace runs itself is `bubble`: time for which that stage waits
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.group import stream_bytes, tied_bytes
from rackmodel.cost.step.layers import Item
from rackmodel.cost.step.pricer import LinkArrays, link_rows
from rackmodel.model.architecture import Architecture


def step_ledger(step: ExactStep) -> Ledger:
    """The rows of one mapping. Their exposed seconds add up to the step's."""
    return _StepLedger(step).build()


class _StepLedger:
    def __init__(self, step: ExactStep) -> None:
        self.step, self.cut = step, step.structure.cut
        self.architecture, self.profile = step.job.setting.architecture, step.job.profile
        self.m = step.structure.micro_batches
        self.seconds, self.path, self.other = step.path()
        self.on_path: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for ((x, name), number), times in self.path.items():
            self.on_path.setdefault((x, number), []).append((name, times))
        self.bubbles = {"forward": 0.0, "backward": 0.0}
        self.busy = self.cut.busy[self._pace()]

    def _pace(self) -> int:
        """The stage with most work on its device."""
        if self.step.staged:
            work = [0.0] * self.cut.stages
            for item in self.step.costs[0].items:
                work[item.task.stage] += float(item.seconds[0])
            return int(np.argmax(work))
        each = [math.fsum(float(item.seconds[0]) for item in cost.items if item.role == "device") for cost in self.step.costs]
        return int(np.argmax(self.cut.busy @ np.array(each)))

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
        layers = 1 if self.step.staged else int(self.busy[x])
        exposed, share = self._exposed(x, number, item, layers * count)
        if exposed > share:
            self.bubbles[item.phase_of_bubble] += exposed - share
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
                _one(row.amount) * repeat * count,
                row.unit,
                _one(row.joules) * repeat * count,
                _one(row.seconds) * layers * count,
                _one(row.exposed) * part,
            )
            for row in item.rows
        ]

    def _exposed(self, x: int, number: int, item: Item, own: int) -> tuple[float, float]:
        """(seconds on the critical path, of them what the pace-setting stage runs itself)."""
        if item.role == "update":
            seconds = float(item.seconds[0]) * self.other[f"update {item.task.stage if self.step.staged else x}"]
            return seconds, seconds
        found = self.on_path.get((x, number), [])
        times = sum([count for _, count in found], 0.0)
        if not times:
            return 0.0, 0.0
        alone = float(item.timed(self.step.hide).seconds[0])
        seconds = sum(alone * self._stretch(x, name, item) * count for name, count in found)
        return seconds, seconds * min(1.0, own / times) if not self.step.staged else seconds

    def _stretch(self, x: int, name: str, item: Item) -> float:
        """Seconds of an item in the clock over its seconds alone."""
        if name == "staged":
            return 1.0
        return _one(self.step.passes[x][name].slowed(self.step.lanes.of(item.role), port=item.waits_for_port))

    def _hosts(self, x: int) -> list[Charge]:
        """Waiting for the host to launch a layer."""
        charges = []
        name = self.architecture.accelerator.name
        for pass_name, times in self.on_path.get((x, -1), []):
            phase = "forward" if pass_name in ("first", "forward") else "backward"
            seconds = self.step.passes[x][pass_name].host_s * times
            own = int(self.busy[x]) * self.m
            share = seconds * min(1.0, own / times)
            self.bubbles[phase] += seconds - share
            charges.append(Charge(phase, "", "", name, "compute", "host", 0.0, "flop", 0.0, share, share))
        return charges

    # -- between the stages ----------------------------------------------------------------------------------------------

    def _sends(self) -> list[Charge]:
        """Hand-overs, forward and back, and the gradients of weights that the first and the last stage share."""
        step, cut = self.step, self.cut
        workload, plan, pricer = step.job.workload, step.structure.parts[0][1], step.pricer
        near, far = pricer.between_stages(far=False), pricer.between_stages(far=True)
        volume, shared = stream_bytes(workload, plan, step.columns), tied_bytes(workload, plan, step.columns)
        crossings, own = (cut.stages * cut.chunks - 1) * self.m, cut.chunks * self.m
        rows = []
        for kind, phase in enumerate(("forward", "backward") if workload.backward else ("forward",)):
            times = self.other[f"send {kind}"]
            seconds = float(step.sends.seconds[0, 0])
            self.bubbles[phase] += seconds * max(0, times - own)
            rows += self._linked(near, volume, phase, "send", crossings, own, min(times, own))
        if shared[0] > 0:
            rows += self._linked(far, shared, "backward", "all_reduce", 2, 1, self.other["tied"])
        return rows

    def _linked(self, links: LinkArrays, volume: object, phase: str, action: str, everywhere: int, here: int, exposed: int) -> list[Charge]:
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
            for row in link_rows(links, np.asarray(volume, dtype=np.float64), "stream", action)
        ]

    # -- what is left ------------------------------------------------------------------------------------------------------

    def _bubbles(self) -> list[Charge]:
        name = self.architecture.accelerator.name
        return [
            Charge(phase, "", "", name, "compute", "bubble", 0.0, "flop", 0.0, seconds, seconds)
            for phase, seconds in self.bubbles.items()
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


def static_watts(architecture: Architecture) -> float:
    """Static power of everything in use."""
    return sum(power for _, power in static_powers(architecture))


__all__ = ["static_powers", "static_watts", "step_ledger"]
