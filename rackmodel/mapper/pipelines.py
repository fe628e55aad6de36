"""Steps bounded together: of one cut or several [rows, plans, columns] of them, or [cells], each a plan, a column and a cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.bound import Sends, device_seconds, least_seconds, step_joules
from rackmodel.cost.step.bounds.cut_rows import CutRows
from rackmodel.cost.step.bounds.device_times import Layers


@dataclass(frozen=True, kw_only=True)
class Pipelines:
    """layers, sends: what they take · rows: their cuts · micro_batches: [columns] or [cells] · apart: whether cuts are below the
    layer."""

    layers: Layers
    sends: Sends
    rows: CutRows
    micro_batches: Ints
    apart: bool

    def quick(self) -> Array:
        """Seconds at least, by the devices' own work alone; with an axis of overlaps."""
        return self._apart(device_seconds(self.layers, self.sends, self.rows, self.micro_batches))

    def seconds(self) -> Array:
        """Seconds at least, by all paths; with an axis of overlaps."""
        return self._apart(least_seconds(self.layers, self.sends, self.rows, self.micro_batches))

    def joules(self) -> Array:
        """Joules without static power."""
        stages, hops = (count[..., 0] for count in (self.rows.stages, self.rows.sent))
        return step_joules(self.layers.sections, self.sends, stages, hops, self.micro_batches)

    def _apart(self, seconds: Array) -> Array:
        """Stages of a cut below the layer may run side by side: a step lasts at least as long as the busiest of them."""
        if not self.apart:
            return seconds
        m = self.micro_batches[:, None].astype(np.float64)
        busiest = np.maximum.reduce([m * (one.forward + one.backward) for one in self.layers.times(split=self.rows.split)])
        return np.asarray(np.minimum(seconds, busiest * (1 - 1e-12)))
