"""Replicas on their meshes: deployments' degrees as axes of a mapper, their plan, and the layers of each pipeline stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from typing import TypeVar

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut, cut
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_mapper
from rackmodel.mapper.given import GivenColumns, GivenMesh, GivenShape, given_columns
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload
from rackmodel.serving.step_layers import graphs_of, serving_of
from rackmodel.serving.steps import Deployment

EXPERTS = "x"
"""The index of routed experts in workloads of decoders."""
CONTEXT, PROMPT_CONTEXT = ("ce", "ci"), ("ne", "ni")
"""Axes of the mapper over ranks of context, and over those that share out new tokens."""
Value = TypeVar("Value")


@cache
def serving_mapper() -> MapperSpec:
    """How axes lay out a replica (mappers/serving.yaml)."""
    return read_mapper("serving")


@dataclass(frozen=True)
class Replica:
    """columns: one of each deployment's mesh · cuts: layers of the pipeline stages of each."""

    plan: Plan
    columns: Columns
    cuts: tuple[Cut, ...]


def replica_of(mapper: MapperSpec, workload: Workload, deployments: Sequence[Deployment], shared: Shared) -> Replica:
    """The replicas of deployments of one plan. shared: knows plans of this mapper and workload. Raises InputError for degrees that
    contradict the workload or plans that differ, InfeasibleError for too few layers."""
    ranks = dict.fromkeys(one.attention_data for one in deployments)
    alike = [[number for number, one in enumerate(deployments) if one.attention_data == each] for each in ranks]
    parts = [_laid_out(mapper, workload, [deployments[number] for number in numbers], shared) for numbers in alike]
    plan = parts[0][0].plan
    if any(len(part) > 1 or part[0].plan != plan for part in parts):
        raise InputError("deployments of unlike plans are no one model", path="deployment")
    columns = Columns.join([part[0].columns for part in parts]).pick(np.argsort([number for numbers in alike for number in numbers]))
    return Replica(plan, columns, tuple(stages_of(workload, one.pipeline) for one in deployments))


def of_one_plan(
    mapper: MapperSpec, workload: Workload, deployments: Sequence[Deployment], shared: Shared | None = None
) -> list[tuple[int, ...]]:
    """Numbers of the deployments that one model can price together: those of a plan, with a pipeline or without. Raises InputError."""
    shared = shared or Shared()
    apart: dict[object, list[int]] = {}
    for number, one in enumerate(deployments):
        apart.setdefault((one.attention_data, one.pipeline > 1, one.context > 1, one.prompt_context > 1), []).append(number)
    found = list(apart.values())
    for graph in graphs_of(workload):
        found = [
            [numbers[own] for own in alike.numbers]
            for numbers in found
            for alike in _laid_out(mapper, graph.workload, [deployments[number] for number in numbers], shared)
        ]
    return [tuple(numbers) for numbers in found]


def _laid_out(mapper: MapperSpec, workload: Workload, deployments: Sequence[Deployment], shared: Shared) -> list[GivenColumns]:
    """The meshes of deployments of as many ranks of sequences, all with ranks of a kind of context or all without, by plan.
    Raises InputError."""
    routed = any(EXPERTS in op.indices for op in workload.ops.values())
    if not routed and any(one.expert > 1 for one in deployments):
        raise InputError(f"{workload.name} has no experts to deal out", path="deployment.expert")
    degrees = [{"pp": one.pipeline, **_parts(one)} for one in deployments]
    kinds = ((CONTEXT, [one.context for one in deployments]), (PROMPT_CONTEXT, [one.prompt_context for one in deployments]))
    unused = frozenset(axis for axes, ranks in kinds for axis in axes if max(ranks) == 1)  # nothing splits tokens: no whole number of them
    ranks = deployments[0].attention_data
    known = shared.once((mapper, workload), "plans", dict[object, dict[object, GivenShape]]).setdefault((unused, ranks), {})
    mapper = mapper.model_copy(update={"axes": _without(unused, mapper.axes), "split": _without(unused, mapper.split)})
    degrees = [_without(unused, one) for one in degrees]
    meshes = [GivenMesh(one, 1, 1) for one in degrees]
    whole = replace(workload, sizes={**workload.sizes, serving_of(workload).sequences: ranks})
    found, refused = given_columns(mapper, whole, meshes, known)
    if refused:
        raise next(iter(refused.values()))
    return found


def repeating(mapper: MapperSpec, workload: Workload) -> MapperSpec:
    """The mapper of steps of decodes: ranks that share out new tokens of prompts have all tokens of decodes, each its part of the experts,
    as tensor ranks have, whose results are summed."""
    tokens, (experts, inside) = workload.new_tokens, PROMPT_CONTEXT
    dealt = [one for one in mapper.split["te"] if isinstance(one, str) and workload.aliases.get(one, one) == EXPERTS]
    rest = [one for one in mapper.split[inside] if not (isinstance(one, str) and one in tokens)]
    return mapper.model_copy(update={"split": {**mapper.split, experts: dealt, inside: rest}})


def _without(axes: Collection[str], of_axes: Mapping[str, Value]) -> dict[str, Value]:
    return {axis: value for axis, value in of_axes.items() if axis not in axes}


def _parts(deployment: Deployment) -> dict[str, int]:
    """Degrees of the axes: of both kinds of context, of the rest of tensor and of attention data parallelism, the part that deals out
    experts and the part inside them. Experts are dealt out over the ranks of attention data first, then over those that share out prompts,
    then over those of context."""
    batch, shared, tensor = deployment.attention_data, deployment.prompt_context, deployment.tensor
    over_batch = gcd(deployment.expert, batch) if deployment.expert <= batch else batch
    over_shared = gcd(deployment.expert // over_batch, shared)
    over_tensor = deployment.expert // (over_batch * over_shared)
    if over_batch * over_shared * over_tensor != deployment.expert or batch % over_batch or tensor % over_tensor:
        between = f" x {shared} of prompts' context" if shared > 1 else ""
        ranks = f"{batch} ranks of attention data{between} x {tensor} of tensor parallelism"
        raise InputError(f"{deployment.expert} parts of experts do not lie on {ranks}", path="deployment.expert")
    context = deployment.context
    over_context = gcd(over_tensor, context)
    beside, rest = over_tensor // over_context, tensor // context
    if rest % beside:
        fact = f"{over_tensor} parts of experts do not lie on {rest} x {context} ranks of tensor and context parallelism"
        raise InputError(fact, path="deployment.expert")
    inside = {"di": batch // over_batch, "ni": shared // over_shared, "ti": rest // beside, "ci": context // over_context}
    return {"de": over_batch, "ne": over_shared, "te": beside, "ce": over_context, **inside}


def stages_of(workload: Workload, stages: int) -> Cut:
    """Layers of each stage, as even as they go: the first stages have one more. Raises InfeasibleError where they are too few."""
    repeats, layers = tuple(s.repeat for s in workload.sections), tuple(s.layer for s in workload.sections)
    if workload.layers < stages:
        fact = f"{workload.layers} layers are too few for {stages} stages"
        raise InfeasibleError(fact, resource="layers", need=float(stages), have=float(workload.layers), unit="layer")
    each, more = divmod(workload.layers, stages)
    return cut(repeats, layers, stages, 1, tuple(each + (stage < more) for stage in range(stages)))
