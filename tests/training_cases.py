"""Small helpers of the training tests: a model and a machine by name, one point priced, a group priced whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.setting import Setting
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import Mapspace, build_mapspace
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Workload


@cache
def inputs(architecture: str, workload: str, mapper: str, sets: tuple[str, ...] = ()) -> Any:
    """The inputs of a command."""
    return read_inputs(architecture, workload, mapper=mapper, sets=sets)


def space_of(mapper: MapperSpec, workload: Workload, accelerators: int, **changes: Any) -> Mapspace:
    """The space of a mapper with some of its fields replaced."""
    return build_mapspace(MapperSpec.model_validate({**mapper.model_dump(by_alias=True), **changes}), workload, accelerators)


def job_of(architecture: Architecture, space: Mapspace, profile: str = "ideal") -> Job:
    """What a space is priced in."""
    return Job(setting=Setting(architecture=architecture), workload=space.workload, profile=read_profile(profile), host=space.mapper.host)


def group_price(architecture: Architecture, space: Mapspace, profile: str = "ideal", group: int = 0) -> GroupPrice:
    """One group of a space, priced."""
    own = space.groups[group]
    plans, offload = [variant.plan for variant in own.variants], [variant.offload for variant in own.variants]
    return price_group(job_of(architecture, space, profile), own.columns, plans, offload)


def plan_price(architecture: Architecture, space: Mapspace, number: int, columns: Columns) -> GroupPrice:
    """One plan of a space's first group on some of its columns, priced."""
    own = space.groups[0].variants[number]
    return price_group(job_of(architecture, space), columns, [own.plan], [own.offload])


def variant(space: Mapspace, layout: str, recompute: str, home: int = 0, group: int = 0) -> int:
    """Number of a plan."""
    return next(
        i
        for i, v in enumerate(space.groups[group].variants)
        if (v.layout, v.recompute, v.home) == (layout, recompute, home) and not v.offload
    )


def column(space: Mapspace, degrees: Sequence[int], stages: int, micro_batch: int, group: int = 0) -> int:
    """Number of a column: degrees of the spatial axes, pipeline stages, samples of a micro-batch."""
    columns = space.groups[group].columns
    same = (columns.degrees[:, :-1] == np.array(degrees)).all(axis=1) & (columns.stages == stages) & (columns.micro_batch == micro_batch)
    return int(np.flatnonzero(same)[0])
