"""What a byte of a collective, a stream or a send costs on the networks above the accelerators, on n columns.

Each distinct mesh is asked once (`Setting.ask`), and its answer stands for every column that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.network.asked import Question
from rackmodel.cost.network.collectives import (
    LinkTable,
    LinkUse,
    collective_table,
    far_send_table,
    mesh_collective,
    offered,
    send,
    send_table,
)
from rackmodel.cost.network.streams import stream
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.columns import Columns, distinct_rows
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.link_arrays import LINK_FIGURES, LinkArrays
from rackmodel.model.layout import is_shard
from rackmodel.model.placement import Mesh, members
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload
from rackmodel.once import once


class LinkPricer:
    """Prices links for plans that share their axes and stages. wider: a pricer of these columns among others, and which of them they
    are."""

    def __init__(
        self, setting: Setting, workload: Workload, plan: Plan, columns: Columns, wider: tuple[LinkPricer, Ints] | None = None
    ) -> None:
        self.wider = wider
        self.setting, self.architecture, self.workload, self.plan, self.columns = setting, setting.architecture, workload, plan, columns
        self.degrees = np.asfortranarray(columns.degrees)  # each axis in a row: sizes are products of a few
        self.strides, self.stages = columns.strides, columns.stages
        self.n, self.per_stage, self.spatial = len(columns), columns.per_stage, plan.spatial
        self.here = setting.architecture.used // self.per_stage if setting.pooled else columns.stages  # stages that run on this machine
        placed = np.column_stack([self.degrees[:, : self.spatial], self.strides[:, : self.spatial], self.here, columns.stage_strides])
        self.firsts, self._which = distinct_rows(placed)
        self.known: dict[object, Any] = {}

    def _wider_has(self, key: object) -> bool:
        return self.wider is not None and key in self.wider[0].known

    def ask(self, question: Question, *given: Any) -> Any:
        """What the networks above say to a question."""
        return self.setting.ask(self.architecture, question, *given)

    def calling(self, where: Bools, volume: Array) -> Bools:
        """[n] of some columns those whose profile calls a library for what they send."""
        here = where & (volume > 0)
        return here if self.setting.called is None else here & self.setting.called

    @property
    def prompting(self) -> Bools:
        """[n] whether a step has prompts: it does but where a decoder's sequences have one new token each."""
        serving = self.workload.serving
        return np.full(self.n, serving is None or bool(np.any(self.workload.sizes[serving.new] > 1)))

    def algorithm(self, task: Task, name: str) -> LinkArrays:
        """A collective's cost on every column, which its message does not change: made once for each group of axes."""
        key = ("links", task.axes, task.action, name, task.stage)
        if key not in self.known and self.wider is not None and self._wider_has(key):
            self.known[key] = self.wider[0].known[key].pick(self.wider[1])
        elif key not in self.known:
            self.known[key] = self._of_one_stage(task, name) if self.plan.stage_count > 1 else self._of_stages(task, name)
        return self.known[key]  # type: ignore[no-any-return]

    def _of_stages(self, task: Task, name: str) -> LinkArrays:
        """The groups of every stage run at once; a stage's share of their bytes and joules. Each distinct mesh is asked once."""
        spatial, one = self.spatial, self.firsts
        axes = self.plan.axes[:spatial]
        table = self.ask(
            collective_table,
            np.column_stack([self.degrees[one, :spatial], self.here[one]]),
            np.column_stack([self.strides[one, :spatial], self.columns.stage_strides[one]]),
            (*axes, "pipeline stages"),
            [axes[axis] for axis in task.axes],
            task.action,
            name,
        )
        return self._spread(table, self.here[one])

    def _of_one_stage(self, task: Task, name: str) -> LinkArrays:
        """The groups of the stage that the task is in, which begins where the one before ends; a ring where `name` does not apply."""
        names = tuple(self.plan.axes[axis] for axis in task.axes)
        uses = []
        for i in self.firsts:
            mesh = self.mesh(i, task.stage)
            applies = name == "ring" or name in self.ask(offered, mesh, names, task.action)
            uses.append(self.ask(mesh_collective, mesh, names, task.action, name if applies else "ring"))
        return self.for_all(uses)

    def sent(self, task: Task, i: int) -> LinkUse:
        """What each accelerator of a stage sends to its peer in another, on one of the distinct meshes."""
        here, there = (members(mesh, mesh.axes).reshape(-1) for mesh in (self.mesh(i, task.stage), self.mesh(i, task.to_stage)))
        use: LinkUse = self.ask(send, here, there)
        return use

    def groups(self, task: Task) -> list[Ints]:
        """[groups, p] members of a collective on each distinct mesh."""
        names = tuple(self.plan.axes[axis] for axis in task.axes)
        return [members(self.mesh(i, task.stage), names) for i in self.firsts]

    def on_columns(self, values: Sequence[float]) -> Array:
        """[n] what each distinct mesh has."""
        return np.asarray(values)[self._which]

    def mesh(self, i: int, stage: int = 0) -> Mesh:
        """A stage of the mesh of a column."""
        spatial, offset = self.spatial, int(stage * self.per_stage[i])
        degrees, strides = (tuple(int(x) for x in side[i, :spatial]) for side in (self.degrees, self.strides))
        return Mesh(self.plan.axes[:spatial], degrees, strides, offset)

    def streams(self, task: Task) -> LinkArrays:
        """All stages stream at once, each its own layers: what they share of the way to the home is shared among them."""
        key = ("streams", task.action, task.level, task.layout, task.stage)
        return once(self.known, key, lambda: self.for_all([self._of_all_stages(task, i) for i in self.firsts]))

    def _of_all_stages(self, task: Task, i: int) -> LinkUse:
        """A stage's share of the bytes and joules, the time of all of them."""
        groups, stages = self.streaming(task, self.mesh(i, task.stage)), int(self.here[i])
        every = np.concatenate([groups + stage * int(self.columns.stage_strides[i]) for stage in range(stages)])
        use: LinkUse = self.ask(stream, task.level, every, task.action)
        wire, joules = (tuple(figure / stages for figure in side) for side in (use.wire_bytes_per_byte, use.joules_per_byte))
        return replace(use, wire_bytes_per_byte=wire, joules_per_byte=joules)

    def streaming(self, task: Task, mesh: Mesh) -> Ints:
        """[shards, p] accelerators that a stream feeds, or that feed it."""
        placed = list(zip(self.plan.axes[: self.spatial], task.layout, strict=False))
        shards = tuple(name for name, p in placed if is_shard(p))
        if task.action == "broadcast":
            return members(mesh, tuple(name for name, p in placed if name not in shards))
        rest = tuple(name for name, p in placed if name not in shards and p == "P")  # others hold the same sum: it is sent once
        kept = set(rest) | set(shards)
        degrees = tuple(d if name in kept else 1 for name, d in zip(mesh.axes, mesh.degrees, strict=True))
        return members(Mesh(mesh.axes, degrees, mesh.strides, mesh.offset), rest)

    def between_stages(self, *, far: bool) -> LinkArrays:
        """A byte from every accelerator of a stage to its peer in the next, all stages at once, a hand-over's share of the joules;
        far: from the first stage to the last. Zeros where there is no pipeline."""
        spatial, one = self.spatial, self.firsts
        stages = self.here[one]
        sends = far_send_table if far else send_table
        table = self.ask(sends, self.degrees[one, :spatial], self.strides[one, :spatial], stages, self.columns.stage_strides[one])
        return self._spread(table, np.ones(len(one)) if far else np.maximum(stages - 1, 1))

    def _spread(self, table: LinkTable, parts: Any) -> LinkArrays:
        """A table of the distinct meshes for every column, its bytes and joules divided into `parts`."""
        figures = (table.wire_bytes_per_byte / parts, table.joules_per_byte / parts, table.seconds_per_byte, table.latency_s)
        return LinkArrays(table.levels, *(figure[:, self._which] for figure in figures))

    def for_all(self, uses: Sequence[LinkUse]) -> LinkArrays:
        """What the distinct meshes cost, for each of the n."""
        return LinkArrays(
            uses[0].levels,
            *(np.array([getattr(use, figure) for use in uses]).reshape(len(uses), -1).T[:, self._which] for figure in LINK_FIGURES),
        )
