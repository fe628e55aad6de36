"""A layout problem: one placed mesh and one micro-batch of a workload, with every choice that a mapper leaves open to its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.mapper.rules import Flat, boundary_of, domain, run_of, saveable, saves_of
from rackmodel.model.layout import Choice, Layout, batch_choice
from rackmodel.model.mapping import HomeSpec, MapperSpec
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.workload import Workload

Domains = dict[str, tuple[tuple[Choice, ...], ...]]  # op → per axis → choices


@dataclass(frozen=True, kw_only=True)
class OpenMesh:
    """axes: sub-axes (tp, or tp_g and tp_q), the micro-batches last · parents: sub-axis → axis of the mapper file · domains: choices open
    to each operation on each axis."""

    axes: tuple[str, ...]
    degrees: tuple[int, ...]
    strides: tuple[int, ...]
    parents: tuple[str, ...]
    domains: Domains
    flat: dict[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        mapper: MapperSpec,
        workload: Workload,
        subs: Sequence[tuple[str, Flat, str]],
        degrees: Sequence[int],
        strides: Sequence[int],
        micro_batches: int,
    ) -> OpenMesh:
        """subs: (sub-axis, indices of the flattening it stands for, axis of the file). Raises InputError where a degree does not divide."""
        each = list(zip(subs, degrees, strict=True))
        domains = {
            op.name: (
                *(domain(mapper, workload, op, name, index, degree) for (_, index, name), degree in each),
                (batch_choice(op, workload) if micro_batches > 1 else None,),
            )
            for op in workload.ops.values()
        }
        return cls(
            axes=(*(sub for sub, *_ in subs), MICRO),
            degrees=(*degrees, micro_batches),
            strides=(*strides, 1),
            parents=(*(name for *_, name in subs), MICRO),
            domains=domains,
            flat={sub: run for sub, index, _ in subs if len(run := run_of(index)) > 1},
        )

    @property
    def size(self) -> float:
        """Layouts in its space."""
        return float(prod(len(choices) for per_axis in self.domains.values() for choices in per_axis))


@dataclass(frozen=True)
class LayoutProblem:
    """Choices, and where the mapper says so saved copies and homes, to be found on one mesh under one policy of recompute."""

    mapper: MapperSpec
    workload: Workload
    mesh: OpenMesh
    recompute: str = "none"

    @property
    def micro_batches(self) -> int:
        """Runs of the workload in a step."""
        return self.mesh.degrees[-1]

    @property
    def columns(self) -> Columns:
        """The one column that its plans are priced on."""
        one, m = np.ones(1, dtype=np.int64), self.micro_batches
        batch, mesh = self.workload.batch, self.mesh
        ranks = prod(d for d, on in zip(mesh.degrees, self._over_batch(), strict=True) if on)
        size = -(-self.workload.sizes[batch] // (ranks * m)) if batch else 1
        return Columns(
            axes=mesh.axes,
            degrees=np.array([mesh.degrees], dtype=np.int64),
            strides=np.array([mesh.strides], dtype=np.int64),
            stages=one,
            stage_strides=one,
            micro_batch=one * size,
            micro_batches=one * m,
        )

    def _over_batch(self) -> list[bool]:
        """Axes that every operation splits the batch over."""
        batch, each = self.workload.batch, self.mesh.domains.values()
        return [
            bool(batch) and any(axis[k] == (batch,) for axis in each) and k < len(self.mesh.axes) - 1 for k in range(len(self.mesh.axes))
        ]

    @property
    def free_homes(self) -> bool:
        """Whether the home of some weight is to be found."""
        return "free" in self.mapper.homes.values()

    @property
    def home_axes(self) -> tuple[str, ...]:
        """Axes over which a free home may be sharded: all of the mesh."""
        return self.mesh.axes[:-1] if self.free_homes else ()

    @property
    def size(self) -> float:
        """Mappings in the space."""
        saves = 2.0 ** len(saveable(self.workload)) if self.mapper.save == "free" else 1.0
        homes = 4.0 ** sum(self.mapper.homes.get(w, self.mapper.homes.get("weights")) == "free" for w in self.workload.weights)
        return self.mesh.size * saves * homes

    def plan(self, choices: Mapping[str, tuple[Choice, ...]], save: Mapping[str, str] | None = None) -> Plan:
        """The plan of one assignment of choices."""
        mesh = self.mesh
        return Plan(
            axes=mesh.axes,
            choices=dict(choices),
            boundary={t: self.boundary(choices, t) for t in (*self.workload.inputs, *self.workload.outputs)},
            stages=dict.fromkeys(self.workload.ops, 0),
            homes={name: home.on(self._subaxes) for name, home in self._homes()},
            save=dict(save) if save is not None else saves_of(self.mapper),
            recompute=self.recompute,
            rerun=self.mapper.rerun,
            uneven=self.mapper.unevenly,
            flat=mesh.flat,
        )

    def _homes(self) -> list[tuple[str, HomeSpec]]:
        """The mapper's homes, one a weight (a mapspace refuses lists of several)."""
        found = []
        for name, said in self.mapper.homes.items():
            if not isinstance(said, str):
                found.append((name, said[0] if isinstance(said, list) else said))
        return found

    def boundary(self, choices: Mapping[str, tuple[Choice, ...]], tensor: str) -> Layout:
        """Layout in which an input arrives or an output leaves."""
        alone = [degree == 1 for degree in self.mesh.degrees]
        return boundary_of(self.mapper, self.workload, choices, self.mesh.parents, tensor, alone)

    def _subaxes(self, axes: Sequence[str]) -> list[str]:
        return [sub for sub, parent in zip(self.mesh.axes, self.mesh.parents, strict=True) if parent in axes]
