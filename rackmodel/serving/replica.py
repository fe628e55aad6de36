"""One replica on its mesh: a deployment's degrees as axes of a mapper, its plan, and the layers of each pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut, cut
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.given import GivenMesh, given_columns
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload
from rackmodel.serving.step_layers import serving_of
from rackmodel.serving.steps import Deployment

EXPERTS = "x"
"""The index of routed experts in workloads of decoders."""


@dataclass(frozen=True)
class Replica:
    """columns: one, of the replica's mesh · cut: layers of its pipeline stages."""

    plan: Plan
    columns: Columns
    cut: Cut


def replica_of(mapper: MapperSpec, workload: Workload, deployment: Deployment) -> Replica:
    """The replica of a deployment. Raises InputError for degrees that contradict the workload, InfeasibleError for too few layers."""
    routed = any(EXPERTS in op.indices for op in workload.ops.values())
    if not routed and deployment.expert > 1:
        raise InputError(f"{workload.name} has no experts to deal out", path="deployment.expert")
    degrees = {"pp": deployment.pipeline, **_parts(deployment)}
    batch = serving_of(workload).sequences
    whole = replace(workload, sizes={**workload.sizes, batch: deployment.attention_data})
    found, refused = given_columns(mapper, whole, [GivenMesh(degrees, 1, 1)])
    if refused:
        raise refused[0]
    return Replica(found[0].plan, found[0].columns, _stages(workload, deployment.pipeline))


def _parts(deployment: Deployment) -> dict[str, int]:
    """Degrees of the axes: of tensor and of attention data parallelism, the part that deals out experts and the part inside them. Experts
    are dealt out over the ranks of attention data first."""
    batch, tensor = deployment.attention_data, deployment.tensor
    over_batch = np.gcd(deployment.expert, batch) if deployment.expert <= batch else batch
    over_tensor = deployment.expert // over_batch
    if over_batch * over_tensor != deployment.expert or batch % over_batch or tensor % over_tensor:
        fact = f"{deployment.expert} parts of experts do not lie on {batch} ranks of attention data x {tensor} of tensor parallelism"
        raise InputError(fact, path="deployment.expert")
    return {"de": int(over_batch), "di": int(batch // over_batch), "te": int(over_tensor), "ti": int(tensor // over_tensor)}


def _stages(workload: Workload, stages: int) -> Cut:
    """Layers of each stage, as even as they go: the first stages have one more."""
    repeats, layers = tuple(s.repeat for s in workload.sections), tuple(s.layer for s in workload.sections)
    if workload.layers < stages:
        fact = f"{workload.layers} layers are too few for {stages} stages"
        raise InfeasibleError(fact, resource="layers", need=float(stages), have=float(workload.layers), unit="layer")
    each, more = divmod(workload.layers, stages)
    return cut(repeats, layers, stages, 1, tuple(each + (stage < more) for stage in range(stages)))
