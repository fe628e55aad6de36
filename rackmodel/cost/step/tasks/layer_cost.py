"""One layer of a section, priced: its tasks and what it holds, and their sums, from which bounds of a step follow.

Everything is in arrays over n columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import picked
from rackmodel.cost.step.tasks.items import Item
from rackmodel.model.workload import Section

STATE = ("weights", "frozen", "gradients", "optimizer", "gathered")


@dataclass(frozen=True, kw_only=True)
class LayerItems:
    """One layer of a section as an exact step takes it. items: all tasks in program order · held: what → [n] bytes on the fullest
    accelerator · held_mean: the same in the mean, where it is less · home: level → [n] bytes that live there."""

    section: Section
    items: tuple[Item, ...]
    held: dict[str, Array]
    home: dict[str, Array] = field(default_factory=dict)
    held_mean: dict[str, Array] = field(default_factory=dict)

    def pick(self, which: Ints) -> Self:
        """The same on some columns."""
        held, home, mean = ({key: picked(size, which) for key, size in table.items()} for table in (self.held, self.home, self.held_mean))
        return replace(self, items=tuple(item.pick(which) for item in self.items), held=held, home=home, held_mean=mean)


@dataclass(frozen=True, kw_only=True)
class LayerCost(LayerItems):
    """The same with sums, from which bounds follow. seconds: (role, part) → [n] · hidden: part → [n] that windows can
    hide · lead, lag: [n] seconds, at least, by which a first forward pass waits for its gathers and a last backward pass's reductions
    outlast it, where they run beside it · lag_apart: the same of a last pass of weight gradients, where those have passes of their own ·
    ..._wait: the same of gathers in any such pass, were they issued with it · port: [n] of a
    home's memory · joules_...: [n] of all accelerators of a stage, a micro-batch (device, lanes) and a step (once) ·
    launches: part → kernels and collectives on the device ·
    remade, remade_late: [n] seconds, at most, that what is made again takes in a backward pass, and behind its first weight's gradient
    (or, where that is more, all of it on the host)."""

    seconds: dict[tuple[str, str], Array]
    hidden: dict[str, Array]
    lead: Array
    lag: Array
    lag_apart: Array
    forward_wait: Array
    backward_wait: Array
    port: Array
    joules_device: Array
    joules_lanes: Array
    joules_once: Array
    launches: dict[str, Array | float] = field(default_factory=dict)
    remade: Array | float = 0.0
    remade_late: Array | float = 0.0

    def with_weights(self, other: LayerCost) -> LayerCost:
        """This layer's operations and activations with another's parameters, gradients and optimizer: what a home changes does not
        depend on the recompute policy, nor the rest on the home, where both add gradients up alike. (For sums: no one program.)"""
        seconds = {key: value for key, value in self.seconds.items() if key[0] == "device"}
        seconds |= {key: value for key, value in other.seconds.items() if key[0] != "device"}
        held = {what: size for what, size in self.held.items() if what not in STATE}
        held |= {what: size for what, size in other.held.items() if what in STATE}
        mean = {what: size for what, size in self.held_mean.items() if what not in STATE}
        mean |= {what: size for what, size in other.held_mean.items() if what in STATE}
        back = [("device", "backward"), ("device", "weight")]
        longer = 2.0 * np.maximum(self.time(*back) - other.time(*back), 0.0)  # (beside other lanes it takes twice as long at most)
        return replace(
            other,
            items=(),
            seconds=seconds,
            hidden=self.hidden,
            lag=np.maximum(other.lag - self.remade_late - longer, 0.0),  # reductions go on while it is made again
            backward_wait=np.maximum(other.backward_wait - self.remade - longer, 0.0),
            joules_device=self.joules_device,
            held=held,
            held_mean=mean,
            launches=self.launches,
        )

    def pick(self, which: Ints) -> Self:
        """See `LayerItems.pick`."""
        found: dict[str, Any] = {name: picked(value, which) for name, value in self.__dict__.items() if isinstance(value, np.ndarray)}
        for name in ("seconds", "hidden"):
            found[name] = {key: picked(value, which) for key, value in getattr(self, name).items()}
        found["launches"] = {part: picked(count, which) for part, count in self.launches.items()}
        return replace(super().pick(which), **found)

    def time(self, *keys: tuple[str, str]) -> Array:
        """[n] sum of some of the seconds."""
        return np.asarray(sum((self.seconds[key] for key in keys if key in self.seconds), np.zeros_like(self.joules_device)))
