"""Layers of a decoder in mixed steps: some sequences decode, some prompts are prefilled, in one pass over the weights.

    operations that        run on                                             sizes of one pass
    walk a cache           the decodes, and the chunks of prompts             (decodes / new, new, context + new) and (prompts, chunk,
                                                                              before + chunk)
    give one row a         every sequence, of which each gives one token      (decodes + prompts, 1)
    sequence
    do neither             all tokens together                                (decodes + prefill, 1)

The program of a layer is derived once: its tasks and layouts do not depend on sizes. Each task is priced with sizes that are arrays
over the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.power import BUSY, WAITING, lengthened
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.local_ops import resized_op, statistics_axes, statistics_rows, with_states
from rackmodel.cost.program.tasks import LocalOp, Program, Task, local, size_of
from rackmodel.cost.step.tasks.items import Item, Priced
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.merged import run_as_one
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.errors import InputError
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.sizes import array_value, sized_arrays
from rackmodel.model.workload import Section, Serving, Tensor, Workload
from rackmodel.serving.beside_experts import beside, branches_of
from rackmodel.serving.steps import Steps

Programs = dict[object, Program]
WALKS = ("decodes", "chunks")
"""Passes that walk a cache."""


@dataclass(frozen=True)
class Sizing:
    """Sizes of one pass, arrays over the steps. there: [n] whether it has anything to do · share: [n] of so many sequences, those that
    there are: where ranks deal them out, all are counted as having the fullest's."""

    sizes: dict[str, Array]
    there: Bools
    share: Array | float = 1.0


def serving_of(workload: Workload) -> Serving:
    """What a workload's sizes count in a decoder's step. Raises InputError where it says nothing of it."""
    if workload.serving is None:
        raise InputError(f"{workload.name} is no decoder's step: it has no `serving`", path="serving")
    return workload.serving


class _SizedTensors(dict[str, Tensor]):
    """Tensors of a workload at other sizes, each made when it is asked for."""

    def __init__(self, tensors: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> None:
        super().__init__()
        self.tensors, self.sizes = tensors, sizes

    def __missing__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        assert tensor.access is not None
        extents = tuple(_extent(affine, self.sizes) for affine in tensor.access.indices)
        density = array_value(tensor.said, self.sizes, f"tensors.{name}.density")
        found = self[name] = replace(tensor, sizes=extents, density=density)
        return found


def _extent(affine: tuple[tuple[int, str], ...], sizes: Mapping[str, Any]) -> Any:
    if len(affine) == 1 and affine[0][0] == 1:
        return sizes[affine[0][1]]
    return 1 + sum(stride * (sizes[index] - 1) for stride, index in affine)


def sized(workload: Workload, sizes: dict[str, Array]) -> Workload:
    """The workload with some sizes given as arrays, and what follows from them."""
    found = sized_arrays(workload.said, sizes)
    return replace(workload, sizes=found, tensors=_SizedTensors(workload.tensors, found))


def sizings(steps: Steps, workload: Workload, ranks: Array, shared_out: Array | None = None) -> dict[str, Sizing]:
    """The passes of some steps. ranks: [n] over which sequences are dealt; the fullest of them has what counts outside the experts ·
    shared_out: [n] further ranks that share out new tokens of prompts, so that a pass over all tokens counts them as these; each of them
    has all tokens of decodes, so that there are as many copies of each."""
    serving = serving_of(workload)
    shared = [name for name, of in workload.aliases.items() if of == serving.sequences]
    prompts = np.where(steps.prefill > 0, steps.prompts, 0.0)
    chunk = np.divide(steps.prefill, prompts, out=np.ones_like(steps.prefill), where=prompts > 0)
    copies = 1.0 if shared_out is None else shared_out
    tokens = copies * steps.decodes + steps.prefill
    dealt = copies * np.ceil(steps.sequences / ranks) * steps.new + np.ceil(prompts / ranks) * chunk * (prompts > 0)
    fullest = np.where(ranks > 1, dealt, tokens)

    def sizing(sequences: Array, new: Array, cached: Array, everywhere: Array) -> Sizing:
        there = sequences > 0
        sizes = {serving.sequences: np.where(there, sequences, 1.0), serving.new: new, serving.cached: cached}
        return Sizing(sizes | {name: np.where(there, everywhere, 1.0) for name in shared}, there)

    one = np.ones(len(steps))
    emitting = steps.decodes + prompts
    together = sizing(fullest * ranks, one, one, tokens)
    if shared_out is not None:
        each = np.maximum(fullest, 1.0)
        together = sizing(np.where(fullest > 0, ranks, 0.0), each, each, tokens / each)
    counted = fullest * np.where(ranks > 1, ranks, 1.0)
    share = np.divide(tokens, counted, out=np.ones_like(tokens), where=counted > tokens)
    return {
        "tokens": replace(together, share=share),
        "sequences": sizing(emitting, one, one, emitting),
        "decodes": sizing(steps.sequences, steps.new, steps.context + steps.new, steps.sequences),
        "chunks": sizing(prompts, chunk, steps.before + chunk, prompts),
    }


def tokens_of_a_rank(passes: Mapping[str, Sizing], workload: Workload, ranks: Array) -> Array:
    """[n] tokens of the fullest rank's step. ranks: [n] over which sequences are dealt."""
    serving, together = serving_of(workload), passes["tokens"]
    return np.where(together.there, together.sizes[serving.sequences] * together.sizes[serving.new] / ranks, 0.0)


def runs_on(task: Task, workload: Workload) -> str:
    """What a task of a section runs on: 'tokens', 'sequences' or 'cached'."""
    new = workload.new_tokens
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


@dataclass(frozen=True, kw_only=True)
class StepGraph:
    """Operations that decodes, prompts or both run. walks: the passes that price what walks a cache · apart: names of operations that
    another graph has not, of these passes, too · rest: whether all else is priced here · repeats: whether ranks that share out new tokens
    of prompts run all of it alike."""

    workload: Workload
    walks: tuple[str, ...] = WALKS
    apart: frozenset[str] = frozenset()
    rest: bool = True
    repeats: bool = False

    def passes(self, task: Task, section: Workload) -> tuple[str, ...]:
        """The passes that price a task of a section."""
        kind = runs_on(task, section)
        if kind == "cached" or task.einsum in self.apart:
            return self.walks
        return (kind,) if self.rest else ()


def graphs_of(workload: Workload) -> tuple[StepGraph, ...]:
    """What a step of a decoder runs: one graph, or one of decodes, with all that both have alike, and one of prompts."""
    other = workload.prompts
    if other is None:
        return (StepGraph(workload=workload),)
    pairs = (("decodes", workload, other), ("chunks", other, workload))
    return tuple(
        StepGraph(workload=mine, walks=(only,), apart=_apart(mine, theirs), rest=only == "decodes") for only, mine, theirs in pairs
    )


def graphs_of_shared(workload: Workload) -> tuple[StepGraph, ...]:
    """The same where ranks share out new tokens of prompts: decodes beside these walk their caches on all of them alike."""
    first, *prompts = graphs_of(workload)
    shared = replace(first, walks=() if prompts else ("chunks",))
    return (shared, *prompts, replace(first, walks=("decodes",), rest=False, repeats=True))


def graphs_repeated(workload: Workload) -> tuple[StepGraph, ...]:
    """What steps of decodes alone run there: all of it on all of these ranks alike, but for experts, of which each has its part."""
    return tuple(replace(one, repeats=True) for one in graphs_of(workload)[:1])


def _apart(mine: Workload, theirs: Workload) -> frozenset[str]:
    return frozenset(name for name, op in mine.ops.items() if name not in theirs.ops or theirs.ops[name].statement != op.statement)


class StepLayers(LayerPricer):
    """Prices the layers of a decoder in n steps at once, as far as one of its graphs goes: a column is a step. plans: of its sections ·
    walking: a pass that walks a cache → what prices the same operations in it, where another graph does."""

    alike = False  # a pass's sizes follow from the plan

    def __init__(
        self,
        pricer: Pricer,
        graph: StepGraph,
        profile: ProfileSpec,
        passes: dict[str, Sizing],
        programs: Programs,
        plans: Mapping[str, Plan],
        beside: Bools,
    ) -> None:
        super().__init__(pricer, graph.workload, profile, programs)
        self.graph, self.passes, self.plans, self.beside_steps = graph, passes, plans, beside
        self.walking: dict[str, StepLayers] = {}
        self._made: dict[tuple[int, str], tuple[Task, Task]] = {}
        self.sized = {name: sized(graph.workload, one.sizes) for name, one in passes.items() if one.there.any()}

    def items(self, section: Section, plan: Plan) -> tuple[Item, ...]:
        """The tasks of one layer, priced, with what shared experts take beside the routed ones."""
        items = super().items(section, plan)
        branches = branches_of(section.workload) if self.beside_steps.any() else None
        return items if branches is None else beside(items, branches, self.beside_steps, self.pricer.architecture.accelerator.name)

    def priced(self, section: Section, plan: Plan, program: Program) -> list[Priced]:
        """What each task takes, of the passes that it is in."""
        merged = run_as_one(program.tasks, section.workload, self.profile.merged)[0]
        together = (merged.get(number, (number,)) for number in range(len(program.tasks)))
        return [self._priced(section, plan, [program.tasks[at] for at in numbers]) for numbers in together]

    def _priced(self, section: Section, plan: Plan, tasks: Sequence[Task]) -> Priced:
        """The same of one task, of products that run as one, or of none."""
        rows: list[Row] = []
        seconds = np.zeros(self.pricer.n)
        for name in self.graph.passes(tasks[0], section.workload) if tasks else ():
            if name not in self.sized:
                continue
            there = self.passes[name].there
            own = [self._resized(task, plan, section.workload, name) for task in tasks]
            more, lasts = self.as_one(own) if len(own) > 1 else self.pricer.task(own[0])
            rows += [_where(row, there) for row in self._shared(more, tasks[0], section.workload, self.passes[name].share)]
            seconds = seconds + np.where(there, lasts, 0.0)
        longer = self._mixed(tasks[0], section, plan) if len(tasks) == 1 else None
        if longer is not None:
            rows, seconds = lengthened(rows, longer), seconds * longer
        return self.of(tasks[0], tuple(rows), seconds) if tasks else Priced((), seconds)

    def _shared(self, rows: Sequence[Row], task: Task, workload: Workload, share: Array | float) -> Sequence[Row]:
        """Rows with the amounts and joules of what there is, a share of what ranks have that are all as full as the fullest, where a task
        counts sequences; each reads all its weights, and draws power while it works, in proportion to its joules."""
        op = workload.ops.get(task.einsum)
        ranks = op.indices if task.kind == "op" and op is not None else workload.tensors[task.tensor].ranks
        if serving_of(self.graph.workload).sequences not in ranks or not np.any(np.asarray(share) < 1.0):
            return rows
        whole = [row for row in rows if row.action not in (BUSY, WAITING)]
        less = [row if _of_weight(row, workload) else row.scaled(share) for row in whole]
        before, after = (sum((row.joules for row in some), np.zeros(self.pricer.n)) for some in (whole, less))
        works = np.divide(after, before, out=np.ones(self.pricer.n), where=before > 0)
        return [*less, *(row.scaled(works) for row in rows if row.action in (BUSY, WAITING))]

    def _resized(self, task: Task, plan: Plan, workload: Workload, name: str) -> Task:
        """A task of a section at the sizes of a pass, made once."""
        key = (id(task), name)  # of a program that is kept
        if key not in self._made:
            found = resized(task, plan, workload, self.sized[name])
            self._made[key] = task, self._checking(found, workload) if name == "decodes" else found
        return self._made[key][1]

    def _checking(self, task: Task, workload: Workload) -> Task:
        """A task of decodes with the states that drafted tokens have it write: one for each, of which one is kept."""
        new = self.passes["decodes"].sizes[serving_of(self.graph.workload).new]
        if task.local_op is None or not np.any(new > 1):
            return task
        copied = float(self.profile.drafted_states == "copied")
        often = {"read": np.where(new > 1, 1.0 + copied, 1.0), "written": np.where(new > 1, new + copied, 1.0)}
        return replace(task, local_op=with_states(task.local_op, workload.ops[task.einsum], workload, **often))

    def _mixed(self, task: Task, section: Section, plan: Plan) -> Array | None:
        """[n] times as long as its parts that fused attention takes where chunks and decodes are one call; None where no call is."""
        inside = self.pricer.setting.inside
        if task.local_op is None or task.local_op.attention is None or not isinstance(inside, KernelPricer):
            return None
        if not {"chunks", "decodes"} <= set(self.sized):
            return None
        decodes, chunks = (self._walks(name, task, section, plan) for name in WALKS)
        assert chunks is not None
        assert decodes is not None
        both = self.passes["chunks"].there & self.passes["decodes"].there
        parts = self.pricer.inside(chunks)[2], self.pricer.inside(decodes)[2]
        return np.where(both, inside.longer(self.pricer.architecture, (chunks, decodes), parts, self.pricer.degrees), 1.0)

    def _walks(self, name: str, task: Task, section: Section, plan: Plan) -> LocalOp | None:
        """What an operation does in a pass that walks a cache."""
        by = self.walking.get(name, self)
        if by is not self:
            plan = by.plans[section.name]
            task = next(one for one in by.program(section, plan).tasks if one.kind == "op" and one.einsum == task.einsum)
        return by._resized(task, plan, section.workload, name).local_op


def resized(task: Task, plan: Plan, workload: Workload, other: Workload) -> Task:
    """A task of a forward pass at the sizes of another workload of the same operations. plan: remembers no operation of other sizes."""
    if task.kind == "op":
        return task if task.local_op is None else replace(task, local_op=resized_op(task.local_op, workload.ops[task.einsum], plan, other))
    op = workload.ops.get(task.einsum)
    if op is not None and task.tensor == op.out.tensor and task.axes == statistics_axes(op, plan) and task.axes:
        now, then = (statistics_rows(op, plan, one).total for one in (other, workload))
    else:
        now, then = other.tensors[task.tensor].bytes, workload.tensors[task.tensor].bytes
    cuts = tuple((ranks, size_of(ranks, other.tensors[task.tensor]), axes) for ranks, _, axes in task.volume.cuts)
    return replace(task, volume=replace(task.volume, total=task.volume.total * (now / then), cuts=cuts))


def _of_weight(row: Row, workload: Workload) -> bool:
    tensor = workload.tensors.get(row.tensor)
    return tensor is not None and tensor.kind == "weight"


def _where(row: Row, there: Bools) -> Row:
    if there.all():
        return row
    amount, joules, seconds, exposed = (np.where(there, figure, 0.0) for figure in (row.amount, row.joules, row.seconds, row.exposed))
    return Row(row.tensor, row.level, row.component, row.action, amount, row.unit, joules, seconds, exposed)


def stream_bytes(section: Section, plan: Plan, workload: Workload, degrees: Ints) -> tuple[Array, Array]:
    """[n] bytes of the residual stream on one accelerator, in the mean and on the fullest, that a layer hands on. workload: sized."""
    stream = workload.tensors[section.stream_out]
    return local(stream.bytes, plan.boundary[section.stream_in], stream, plan).both(degrees)
