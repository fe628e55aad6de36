"""What the host takes at least to launch a layer's passes, choice by choice.

    host of a pass = its own time + launch · kernels and collectives of the choices made          as cost/step/bounds/device_times has it
    pass >= (1 − share) · device + share · host                                                   for any share

Copies of tensors and kernels that take several operations are launches of their tables, as their seconds are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.program.local_ops import has_backward
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.items import launched
from rackmodel.cost.step.tasks.jobs import launches
from rackmodel.cost.step.tasks.layers import part_of
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.mapper.layouts.interfaces import Strategy
from rackmodel.mapper.layouts.layer_prices import Openness, Part
from rackmodel.mapper.layouts.merged_kernels import Change
from rackmodel.mapper.layouts.tensor_tables import Spend
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

COPIES = 4  # of a tensor for each that makes, reads or keeps it, to see whether a host may matter at all


class Layer(Protocol):
    """A layer on n columns: see layer_tables."""

    workload: Workload
    profile: ProfileSpec
    pricer: Pricer
    strategies: dict[str, tuple[Strategy, ...]]
    open: Openness
    n: int

    @property
    def changes(self) -> list[Change]: ...
    @property
    def least_phases(self) -> tuple[Array, Array]: ...
    def copied(self, spend: Spend) -> Iterator[tuple[str, tuple[str, ...], list[Array]]]: ...
    def tasks(self, name: str, number: int) -> list[Task]: ...
    def whole(self, task: Task) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class LayerHost:
    """parts: seconds of the host by choices · seconds: of the passes of a micro-batch, whatever is chosen · matters: [n] whether that may
    be more than the device takes."""

    parts: tuple[Part, ...]
    seconds: float
    matters: Bools

    @classmethod
    def of(cls, layer: Layer) -> LayerHost:
        """Of a layer; nothing where it cannot matter, or of what is before and after the layers."""
        host = layer.profile.host
        launch, own, back = (float(np.min(each)) for each in (host.launch_s, host.layer_s, host.backward_s))
        none = cls((), 0.0, np.zeros(layer.n, dtype=bool))
        if not layer.open.edges or launch + own + back <= 0.0:
            return none
        workload = layer.workload
        runs_back = workload.backward and any(has_backward(op, workload) for op in workload.ops.values())
        seconds = own + (own + back) * runs_back
        operations = _operations(layer) if launch else {}
        copies = sum(COPIES * (2 + len(workload.readers[name])) for name in workload.tensors)
        most = sum((each.sum(axis=0).max(axis=0) for each in operations.values()), np.zeros(layer.n)) + copies
        matters = seconds + launch * most > sum(layer.least_phases)
        if not matters.any():
            return none
        parts = [Part((name,), _figures(launch, *each)) for name, each in operations.items()]
        if launch:
            parts += [
                Part(one.operations, _figures(launch, *map(one.of_values, (one.launches, one.launches_weight)))) for one in layer.changes
            ]
            for _, variables, (moves, *_) in layer.copied(lambda task: (starts(layer, task), np.zeros(layer.n))):
                parts.append(Part(variables, {"host": launch * moves}))
        return cls(tuple(parts), seconds, matters)


def starts(layer: Layer, task: Task) -> Array:
    """[n] what the host launches for a task."""
    count = launched(launches(task, layer.pricer, layer.profile), layer.whole(task)[0])
    return np.broadcast_to(np.asarray(count, dtype=np.float64), (layer.n,))


def _figures(launch: float, others: Array, weights: Array) -> dict[str, Array]:
    return {"host": launch * others, "host_weight": launch * weights}


def _operations(layer: Layer) -> dict[str, Array]:
    """Operation → [2, choices, n] launches of a micro-batch, those of products that make weights' gradients apart."""
    found = {}
    for name, strategies in layer.strategies.items():
        each = np.zeros((2, len(strategies), layer.n))
        for number in range(len(strategies)):
            for task in layer.tasks(name, number):
                each[int(part_of(task, "device", layer.workload) == "weight"), number] += starts(layer, task)
        found[name] = each
    return found
