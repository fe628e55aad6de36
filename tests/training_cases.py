"""Small helpers of the training tests: a model and a machine by name, one point priced, a group priced whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from rackmodel.cost.step.step_price import GroupPrice, price_group
from rackmodel.search.step_space import StepSpace, build_step_space

from rackmodel.cost.inside.roofline import leg_rows
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Workload


@cache
def inputs(architecture: str, workload: str, mapper: str, sets: tuple[str, ...] = ()) -> Any:
    """The inputs of a command."""
    return read_inputs(architecture, workload, mapper=mapper, sets=sets)


def space_of(mapper: MapperSpec, workload: Workload, accelerators: int, **changes: Any) -> StepSpace:
    """The space of a mapper with some of its fields replaced."""
    return build_step_space(MapperSpec.model_validate({**mapper.model_dump(by_alias=True), **changes}), workload, accelerators)


def group_price(architecture: Architecture, space: StepSpace, profile: str = "ideal", group: int = 0) -> GroupPrice:
    """One group of a space, priced."""
    own = space.groups[group]
    return price_group(
        architecture,
        space.workload,
        own.columns,
        [variant.plan for variant in own.variants],
        read_profile(profile),
        leg_rows,
        ["ring"],
        [variant.offload for variant in own.variants],
        space.mapper.host,
    )


def variant(space: StepSpace, layout: str, recompute: str, home: int = 0, group: int = 0) -> int:
    """Number of a plan."""
    return next(
        i
        for i, v in enumerate(space.groups[group].variants)
        if (v.layout, v.recompute, v.home) == (layout, recompute, home) and not v.offload
    )


def column(space: StepSpace, degrees: Sequence[int], stages: int, micro_batch: int, group: int = 0) -> int:
    """Number of a column: degrees of the spatial axes, pipeline stages, samples of a micro-batch."""
    columns = space.groups[group].columns
    same = (columns.degrees[:, :-1] == np.array(degrees)).all(axis=1) & (columns.stages == stages) & (columns.micro_batch == micro_batch)
    return int(np.flatnonzero(same)[0])
