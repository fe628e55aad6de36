"""Operations that are fused in an accelerator are one kernel of its: what the host launches for them, and how much less it could be.

    launches of a kernel = one, on its first operation · of the others none
    seconds of a pass >= max(device, host - launch · (launches that other regions save beyond those that these do))

The first line is what a layer takes with the regions that were chosen; the second is below what it takes with any others, where those
chosen hold the device least and no window hides a collective (docs/nest_theory.md, section 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.items import Item, Priced
from rackmodel.cost.step.tasks.windows import Kernels
from rackmodel.model.profile import Host, Overlap


def numbered(tasks: Sequence[Task], firsts: Sequence[Mapping[str, str]]) -> dict[int, Ints]:
    """Kernels among a layer's tasks. firsts: of each column, what a fused operation writes → what the first of its kernel writes."""
    forward = [(n, task.local_op) for n, task in enumerate(tasks) if task.phase == "forward" and task.kind == "op"]
    place = {local_op.written: n for n, local_op in forward if local_op is not None and local_op.writes}
    fused = {name for one in firsts for name in one if name in place}
    return {place[name]: np.array([place[one.get(name, name)] for one in firsts]) for name in sorted(fused, key=place.__getitem__)}


def launched_once(priced: Sequence[Priced], kernels: Kernels, longer: float) -> list[Priced]:
    """The same tasks, a kernel launched once. longer: what one launch counts for on this machine's host."""
    found = list(priced)
    for number, first in kernels.items():
        mine, members = np.asarray(priced[number].launches, dtype=float), [(n, of == number) for n, of in kernels.items()]
        most = np.max([np.where(here, priced[n].launches, 0.0) for n, here in members], axis=0)
        several = np.sum([here for _, here in members], axis=0) > 1
        own = np.where(several, np.minimum(most, longer), mine)
        found[number] = replace(priced[number], launches=np.where(first == number, own, 0.0))
    return found


def might_be_less(items: Sequence[Item], host: Host, overlap: Overlap, saved: Array) -> float:
    """By how much of itself a layer's forward pass [n] might be shorter with other regions, where nests hold the device least. saved: [n]
    launches that other regions save beyond what these do."""
    stages = [[item for item in items if item.task.stage == stage] for stage in {item.task.stage: None for item in items}]
    forward = [_Pass.of(some, host) for some in stages]
    return max(one.less(one.able(overlap), host.launch_s * saved) for one in forward)


@dataclass(frozen=True)
class _Pass:
    """A layer's forward pass. device: what runs there · busy: [n] seconds of it, windows taken off · hidden: of collectives, by windows ·
    most: of those that have one · waits: of the host."""

    device: Sequence[Item]
    busy: Array
    hidden: Array
    most: Array
    waits: Array

    @classmethod
    def of(cls, items: Sequence[Item], host: Host) -> _Pass:
        """That of these items."""
        device = [item for item in items if item.role == "device" and item.part == "forward" and not item.once]
        launches: Any = sum((item.launches for item in device), 0)
        beside = [item for item in device if item.hidden is not None]
        hidden, most = _sum(item.hidden for item in beside), _sum(item.seconds for item in beside)
        waits = np.asarray(host.seconds(launches, backward=False))
        return cls(device, _sum(item.seconds for item in device) - hidden, hidden, most, waits)

    def able(self, overlap: Overlap) -> Array:
        """[n] seconds that windows can hide at most, one of all operations: each takes its share of what those before it left."""
        left = np.ones(1)
        for item in self.device:
            if item.hidden is not None:
                window = overlap.windows[item.task.action]  # type: ignore[index]
                if window.beside == "pass":
                    return self.most
                left = left * np.where(item.seconds > 0, 1.0 - window.share, 1.0)
        return np.minimum(self.most, (1.0 - left) * _sum(item.seconds for item in self.device if item.task.local_op is not None))

    def less(self, able: Array, fewer: Array) -> float:
        """By how much of itself it might be shorter. able: [n] seconds that windows hide at most · fewer: that the host takes less."""
        least = self.busy + self.hidden - np.maximum(self.hidden, able)
        shares = _ratio(least, self.busy), _ratio(np.maximum(least, self.waits - fewer), np.maximum(self.busy, self.waits))
        return float(np.max(1.0 - np.minimum(*shares)))


def _sum(seconds: Iterable[Any]) -> Array:
    return np.asarray(sum(seconds, np.zeros(1)))


def _ratio(least: Array, longest: Array) -> Array:
    return np.divide(least, longest, out=np.ones_like(longest + least), where=longest > 0)
