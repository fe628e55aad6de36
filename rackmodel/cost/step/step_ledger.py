"""The ledger of one training step: the rows of every section's layer, multiplied by how often they occur.

amount, joules   a micro-batch's rows x layers x micro-batches; a step's rows x layers
seconds          the same on the device that sets the pace, as if nothing overlapped
exposed_seconds  their share of that device's time: rows that windows, gathers or tails hide carry what is left of them;
                 waiting for other stages is a row of its own (`bubble`), so that the column sums to the step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.price import LinkArrays, static_powers
from rackmodel.cost.step.sections import ONCE, Item, LayerCost
from rackmodel.cost.step.step import Figures, Passes, device_passes, home_parts, passes, tail_parts
from rackmodel.cost.step.step_price import GroupPrice, step_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StepPoint:
    """One point of a group: everything that is not in its columns and plans."""

    variant: int
    column: int
    cut: Cut
    schedule: str
    overlap: tuple[int, int]
    seconds: float


def step_ledger(architecture: Architecture, price: GroupPrice, point: StepPoint, profile: ProfileSpec) -> Ledger:
    """The rows of one point, whose exact step time is known."""
    return _StepLedger(architecture, price, point, profile).build()


class _StepLedger:
    def __init__(self, architecture: Architecture, price: GroupPrice, point: StepPoint, profile: ProfileSpec) -> None:
        self.architecture, self.price, self.point, self.profile = architecture, price, point, profile
        self.on = (np.array([float(point.overlap[0])]), np.array([float(point.overlap[1])]))
        self.own, self.step = step_of(price, point.cut, point.schedule, profile, point.overlap, point.variant, point.column)
        self.runs = [passes(one, profile, *self.on) for one in self.own]
        self.kept_waiting = [_one(part) for part in home_parts(self.own, self.runs, profile)]
        self.m = int(price.columns.micro_batches[point.column])
        self.hop = float(price.sends.seconds[point.variant, point.column])

    def build(self) -> Ledger:
        pace, after = self._slowest()
        rows: list[Charge] = []
        for x, cost in enumerate(costs[self.point.variant] for costs in self.price.costs):
            rows += self._section(x, cost, int(self.point.cut.busy[pace, x]), int(self.point.cut.busy[after, x]), after)
        if self.point.cut.stages > 1:
            rows += self._sends()
        rows = [row for row in rows if row.amount or row.joules or row.seconds]
        rows += self._waits(rows, pace)
        return Ledger(tuple(rows + self._static(rows)))

    def _slowest(self) -> tuple[int, int]:
        """(device that sets the pace of the pipeline, device with the longest tail)."""
        both = [float((run.forward + run.backward).reshape(-1)[0]) for run in self.runs]
        busy = self.point.cut.busy @ np.array(both)
        tails = [float(sum(part.reshape(-1)[0] for part in self._tail(device))) for device in range(self.point.cut.stages)]
        return int(np.argmax(busy)), int(np.argmax(tails))

    def _tail(self, device: int) -> Sequence[Array]:
        return tail_parts(self.own, self.runs, self.point.cut, device, self.point.schedule, self.profile, self.on[1])

    # -- a section's rows ------------------------------------------------------------------------------------------------

    def _section(self, x: int, cost: LayerCost, layers: int, after_layers: int, after: int) -> list[Charge]:
        one, run = self.own[x], self.runs[x]
        shares = self._shares(one, run, after)
        charges = []
        for item in cost.items:
            once = item.bin in ONCE
            count = 1 if once else self.m
            here = one.repeat if item.bin == "home" else after_layers if once else layers
            share = self._window_share(item) if item.bin == "window" else shares.get((item.bin, item.part), 1.0)
            charges += [self._charge(item, row, one.repeat * count, here * count, share) for row in item.rows]
        return charges

    def _charge(self, item: Item, row: Row, everywhere: int, here: int, share: float) -> Charge:
        at = self.point.column
        return Charge(
            item.task.phase,
            item.task.einsum,
            row.tensor,
            row.level,
            row.component,
            row.action,
            _pick(row.amount, at) * everywhere,
            row.unit,
            _pick(row.joules, at) * everywhere,
            _pick(row.seconds, at) * here,
            _pick(row.exposed, at) * here * share,
        )

    def _window_share(self, item: Item) -> float:
        """Share of a collective that its window leaves exposed."""
        seconds = _pick(item.seconds, self.point.column)
        hidden = _pick(item.hidden, self.point.column) if item.hidden is not None else 0.0
        saved = float(self.on[0][0]) * (1.0 - self.profile.overlap.contention) * hidden
        return 1.0 - saved / seconds if seconds > 0 else 1.0

    def _shares(self, one: Figures, run: Passes, after: int) -> dict[tuple[str, str], float]:
        """Exposed share of the bins that run beside compute, by what the composed pass and tail leave of them."""

        def left(total: float, part: float) -> float:
            return min(1.0, max(0.0, part / total)) if total > 0 else 1.0

        forward, back = (_one(side) for side in device_passes(one, self.profile, self.on[0]))
        host = self.profile.host.layer_s if one.layer else 0.0
        moved, up = _one(one.backward_gather) + _one(one.reduce), _one(one.up)
        exposed = _one(run.backward) - max(back, host)
        both = self.profile.overlap.weights and self.profile.overlap.hides_gradients and self.on[1][0] > 0  # the longer direction
        behind = left(moved, exposed if moved >= up else 0.0) if both else left(moved + up, exposed)
        above = left(up, exposed if up > moved else 0.0) if both else behind
        if both and _one(one.port) > max(moved, up):  # one port of the home for both directions
            behind = above = left(moved + up, exposed)
        reduced, _, spread = (float(part.reshape(-1)[0]) for part in self._tail(after))
        counts = self.point.cut.busy[after]
        tails = sum(float(n) * _one(s.tail) for n, s in zip(counts, self.own, strict=True))
        spreads = sum(float(n) * _one(s.spread) for n, s in zip(counts, self.own, strict=True))
        return {
            ("gather", "forward"): left(_one(one.forward_gather), _one(run.forward) - max(forward, host)),
            ("gather", "backward"): behind,
            ("gather", "recompute"): behind,
            ("reduce", "backward"): behind,
            ("up", "backward"): above,
            ("tail", "backward"): left(tails, reduced),
            ("home", "optimizer"): left(sum(s.repeat * _one(s.home) for s in self.own), self.kept_waiting[0]),
            ("spread", "optimizer"): left(spreads, spread),
        }

    # -- between the stages --------------------------------------------------------------------------------------------------

    def _sends(self) -> list[Charge]:
        """Hand-overs, forward and back, and the gradients of weights that the first and the last stage share."""
        cut = self.point.cut
        near, far = self.price.hand_over
        volume = self.price.volumes[self.point.variant][self.point.column]
        shared = self.price.shared[self.point.variant][self.point.column]
        crossings = (cut.stages * cut.chunks - 1) * self.m
        waits = 0.0 if self.profile.overlap.sends else 1.0
        rows = []
        for phase in ("forward", "backward"):
            rows += self._linked(near, volume, phase, "send", crossings, cut.chunks * self.m, waits)
        if shared > 0:
            rows += self._linked(far, shared, "backward", "all_reduce", 2, 1, 1.0)
        return rows

    def _linked(
        self, links: LinkArrays, volume: float, phase: str, action: str, everywhere: float, here: float, exposed: float
    ) -> list[Charge]:
        at, rows = self.point.column, []
        for tier, level in enumerate(links.levels):
            wire = float(links.wire_bytes_per_byte[tier, at]) * volume
            seconds = float(links.seconds_per_byte[tier, at]) * volume + float(links.latency_s[tier, at])
            if wire or seconds:
                joules = float(links.joules_per_byte[tier, at]) * volume * everywhere
                rows.append(
                    Charge(
                        phase,
                        "",
                        "stream",
                        level,
                        "network",
                        action,
                        wire * everywhere,
                        "byte",
                        joules,
                        seconds * here,
                        seconds * here * exposed,
                    )
                )
        return rows

    # -- what is left of the step ----------------------------------------------------------------------------------------------

    def _waits(self, rows: Sequence[Charge], pace: int) -> list[Charge]:
        """Host time beyond the device's, and waiting for other stages: the rest of the step, charged to nobody's joules."""
        name = self.architecture.accelerator.name
        charges = []
        rest = self.point.seconds - float(np.sum([row.exposed_seconds for row in rows]))
        pause = self.kept_waiting[1]
        if pause > 0:
            last = self.architecture.tiers[-1].level
            charges.append(Charge("backward", "", "", last, "network", "round trip", 0.0, "byte", 0.0, pause, pause))
            rest -= pause
        for phase, index in (("forward", 0), ("backward", 1)):
            host = self._host_wait(pace, index)
            if host > 1e-15:
                charges.append(Charge(phase, "", "", name, "compute", "host", 0.0, "flop", 0.0, host, host))
                rest -= host
        if self.point.cut.stages > 1 or abs(rest) > 1e-9 * self.point.seconds:
            both = [
                sum(float(n) * _one(getattr(run, side)) for n, run in zip(self.point.cut.busy[pace], self.runs, strict=True))
                for side in ("forward", "backward")
            ]
            for phase, part in zip(("forward", "backward"), both, strict=True):
                share = rest * part / (sum(both) or 1.0)
                charges.append(Charge(phase, "", "", name, "compute", "bubble", 0.0, "flop", 0.0, share, share))
        return charges

    def _host_wait(self, pace: int, side: int) -> float:
        host, total = self.profile.host.layer_s, 0.0
        for one, count in zip(self.own, self.point.cut.busy[pace], strict=True):
            if one.layer and count:
                device = _one(device_passes(one, self.profile, self.on[0])[side])
                total += float(count) * self.m * max(0.0, host - device)
        return total

    def _static(self, rows: Sequence[Charge]) -> list[Charge]:
        """Static power of everything in use over each phase's share of the step."""
        charges = []
        for level, power in static_powers(self.architecture):
            for phase in dict.fromkeys(row.phase for row in rows):
                seconds = float(np.sum([row.exposed_seconds for row in rows if row.phase == phase]))
                charges.append(Charge(phase, "", "", level, "static", "static", power * seconds, "joule", power * seconds, seconds, 0.0))
        return charges


def _pick(figure: object, at: int) -> float:
    values = np.asarray(figure, dtype=np.float64).reshape(-1)
    return float(values[at if values.size > 1 else 0])


def _one(values: Array) -> float:
    return float(values.reshape(-1)[0])
