"""Layers of a decoder in mixed steps: some sequences decode, some prompts are prefilled, in one pass over the weights.

    operations that        run on                                             sizes of one pass
    walk a cache           the decodes, and the chunks of prompts             (decodes, 1, context + 1) and (prompts, chunk, before + chunk)
    give one row a         every sequence, of which each gives one token      (decodes + prompts, 1)
    sequence
    do neither             all tokens together                                (decodes + prefill, 1)

Each is the workload's own program with its sizes as arrays over the steps; the layouts, and so the collectives, are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Held, Program, Task
from rackmodel.cost.step.layers import LayerPricer
from rackmodel.cost.step.pricer import Pricer
from rackmodel.errors import InputError
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.sizes import array_value, sized_arrays
from rackmodel.model.workload import Section, Serving, Workload
from rackmodel.serving.steps import Array, Steps

Bools = NDArray[np.bool_]
PARTS = {"tokens": ("tokens",), "sequences": ("sequences",), "cached": ("decodes", "chunks")}
"""What an operation runs on → the passes that price it."""


@dataclass(frozen=True)
class Sizing:
    """Sizes of one pass, arrays over the steps. there: [n] whether it has anything to do."""

    sizes: dict[str, Array]
    there: Bools


def serving_of(workload: Workload) -> Serving:
    """What a workload's sizes count in a decoder's step. Raises InputError where it says nothing of it."""
    if workload.serving is None:
        raise InputError(f"{workload.name} is no decoder's step: it has no `serving`", path="serving")
    return workload.serving


def sized(workload: Workload, sizes: dict[str, Array]) -> Workload:
    """The workload with some sizes given as arrays, and what follows from them."""
    found = sized_arrays(workload.said, sizes)
    tensors = {}
    for name, tensor in workload.tensors.items():
        assert tensor.access is not None
        extents = tuple(1 + sum(stride * (found[index] - 1) for stride, index in affine) for affine in tensor.access.indices)
        density = array_value(tensor.said, found, f"tensors.{name}.density")
        tensors[name] = replace(tensor, sizes=extents, density=density)
    return replace(workload, sizes=found, tensors=tensors)


def sizings(steps: Steps, serving: Serving, workload: Workload, ranks: int) -> dict[str, Sizing]:
    """The passes of some steps. ranks: over which sequences are dealt; the fullest of them has what counts outside the experts."""
    shared = [name for name, of in workload.aliases.items() if of == serving.sequences]
    prompts = np.where(steps.prefill > 0, steps.prompts, 0.0)
    chunk = np.divide(steps.prefill, prompts, out=np.ones_like(steps.prefill), where=prompts > 0)
    fullest = np.ceil(steps.decodes / ranks) + np.ceil(prompts / ranks) * chunk * (prompts > 0) if ranks > 1 else steps.tokens

    def sizing(sequences: Array, new: Array, cached: Array, everywhere: Array) -> Sizing:
        there = sequences > 0
        sizes = {serving.sequences: np.where(there, sequences, 1.0), serving.new: new, serving.cached: cached}
        return Sizing(sizes | {name: np.where(there, everywhere, 1.0) for name in shared}, there)

    one = np.ones(len(steps))
    emitting = steps.decodes + prompts
    return {
        "tokens": sizing(fullest * ranks, one, one, steps.tokens),
        "sequences": sizing(emitting, one, one, emitting),
        "decodes": sizing(steps.decodes, one, steps.context + 1.0, steps.decodes),
        "chunks": sizing(prompts, chunk, steps.before + chunk, prompts),
    }


def runs_on(task: Task, workload: Workload) -> str:
    """What a task of a section runs on: 'tokens', 'sequences' or 'cached'."""
    serving = serving_of(workload)
    new = {serving.new, *(name for name, of in workload.aliases.items() if of == serving.new)}
    if task.kind == "op":
        op = workload.ops[task.einsum]
        indices, out = set(op.indices), set(op.out.names)
        if indices & workload.attended or any(workload.tensors[access.tensor].kind == "kv_cache" for access in op.ins):
            return "cached"
        return "tokens" if out & new else "sequences"
    ranks = set(workload.tensors[task.tensor].ranks)
    if ranks & workload.attended:
        return "cached"
    return "tokens" if ranks & new or workload.tensors[task.tensor].kind == "weight" else "sequences"


class StepLayers(LayerPricer):
    """Prices the layers of a decoder in n steps at once: a column is a step."""

    def __init__(self, pricer: Pricer, workload: Workload, profile: ProfileSpec, steps: Steps, ranks: int) -> None:
        super().__init__(pricer, workload, profile)
        self.sizings = sizings(steps, serving_of(workload), workload, ranks)

    def priced(self, section: Section, plan: Plan, program: Program) -> list[tuple[tuple[Row, ...], Array]]:
        """Rows and seconds [n] of each task, of the passes that it is in."""
        programs = {name: self._sized(section, plan, name) for name in self.sizings}
        found = []
        for number, task in enumerate(program.tasks):
            rows: list[Row] = []
            seconds = np.zeros(self.pricer.n)
            for name in PARTS[runs_on(task, section.workload)]:
                there = self.sizings[name].there
                if not there.any():
                    continue
                more, lasts = self.pricer.task(programs[name].tasks[number])
                rows += [_where(row, there) for row in more]
                seconds = seconds + np.where(there, lasts, 0.0)
            found.append((tuple(rows), seconds))
        return found

    def held(self, section: Section, plan: Plan) -> tuple[Held, ...]:
        """What a layer holds, weights and the caches of the sequences that decode."""
        return self._sized(section, plan, "decodes").held

    def _sized(self, section: Section, plan: Plan, name: str) -> Program:
        own = replace(plan, known={})  # what it remembers of operations is of other sizes
        return derive(sized(section.workload, self.sizings[name].sizes), own, self.backing, self._ends(section), section.repeat)


def _where(row: Row, there: Bools) -> Row:
    if there.all():
        return row
    amount, joules, seconds, exposed = (np.where(there, figure, 0.0) for figure in (row.amount, row.joules, row.seconds, row.exposed))
    return Row(row.tensor, row.level, row.component, row.action, amount, row.unit, joules, seconds, exposed)


def stream_bytes(section: Section, plan: Plan, sizing: Sizing, degrees: NDArray[np.int64]) -> Array:
    """[n] bytes of the residual stream on one accelerator that a layer hands on."""
    tensor = sized(section.workload, sizing.sizes).tensors[section.stream_out]
    axes = [axis for axis, placement in enumerate(plan.boundary[section.stream_in]) if placement.startswith("S")]
    return np.asarray(np.where(sizing.there, tensor.bytes, 0.0) / prod(int(degrees[0, axis]) for axis in axes))
