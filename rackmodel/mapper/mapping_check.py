"""Whether a mapping file fits its workload and machine, before it is priced: names, indices, the mesh."""

from __future__ import annotations

from math import prod

from rackmodel.cost.network.algorithms import ALGORITHMS
from rackmodel.cost.step.offload import host_of
from rackmodel.cost.step.pipeline_orders import check
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import choice_of, legal_choices, passes_partial
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.schedules import runs_as
from rackmodel.model.workload import Workload


def check_mapping(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> None:
    """Raises InputError with the dotted path of the first contradiction."""
    _check_mesh(architecture, mapping)
    _check_ops(workload, mapping)
    _check_tensors(workload, mapping)
    _check_homes(architecture, workload, mapping)
    _check_backward(workload, mapping)
    _check_step(architecture, mapping)


def check_home_level(architecture: Architecture, at: str, path: str) -> None:
    """Raise InputError for a home at no level that has a memory. path: of the key `at`."""
    stores = [level.name for level in architecture.tree.walk() if level.memory is not None]
    if at not in stores:
        there = at in [level.name for level in architecture.tree.walk()]
        fact = f"'{at}' has no memory and cannot be a home" if there else f"no level called '{at}'"
        raise InputError(fact, path=path, known=stores, given=at)


def _check_one_home(architecture: Architecture, used: int, at: str, path: str) -> None:
    """Raise InputError for a mapping's home at a level of which several instances are in use: nothing would sum their gradients."""
    check_home_level(architecture, at, path)
    below = architecture.available
    for level in architecture.above:
        below //= level.count
        if level.name == at and used > below:
            fact = f"{-(-used // below)} of '{at}' are in use, and a weight has one home: name a level above, or `offload` a model's state"
            raise InputError(fact, path=path)


def _check_backward(workload: Workload, mapping: MappingSpec) -> None:
    """What is kept, made again or offloaded needs a pass that uses it."""
    mixes = mapping.step.mixes if mapping.step is not None else []
    policies = {mapping.recompute, *(policy for stage in mixes for kinds in stage.values() for policy in kinds)}
    if mapping.rerun == "slice" and "full" not in policies:
        raise InputError("it says how full recomputation runs, and `recompute` is not full", path="rerun")
    offloaded = mapping.step.offload if mapping.step is not None else []
    if "optimizer" in offloaded and "optimizer" not in workload.phases:
        raise InputError(f"{workload.name} holds no optimizer to offload", path="step.offload")
    if workload.backward:
        return
    kept = {
        "recompute": policies != {"none"},
        "save": any(copy != "shard" for copy in mapping.save.values()),
        "step.offload": "activations" in offloaded,
    }
    for path, asked in kept.items():
        if asked:
            raise InputError(f"{workload.name} has no backward pass: nothing is kept for it", path=path)
    for name, home in mapping.homes.items():
        if home.axes and home.param == "replicate":
            fact = f"{workload.name} has no backward pass: a gradient or a state that is sharded changes nothing"
            raise InputError(fact, path=f"homes.{name}")


def _check_homes(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> None:
    for name, home in mapping.homes.items():
        if name != "weights" and name not in workload.weights:
            raise InputError(f"no weight '{name}'", path=f"homes.{name}", known=["weights", *workload.weights], given=name)
        if home.at is not None:
            _check_one_home(architecture, mapping.accelerators, home.at, f"homes.{name}.at")
        for axis in home.axes:
            if axis not in mapping.axes:
                raise InputError(f"no axis '{axis}'", path=f"homes.{name}.axes", known=list(mapping.axes), given=axis)
    indices = list(dict.fromkeys(index for op in workload.ops.values() for index in op.indices))
    for axis, flat in mapping.flat.items():
        if axis not in mapping.axes:
            raise InputError(f"no axis '{axis}'", path=f"flat.{axis}", known=list(mapping.axes), given=axis)
        for index in flat:
            if index not in indices:
                raise InputError(f"no operation has an index '{index}'", path=f"flat.{axis}", known=indices, given=index)


def _check_step(architecture: Architecture, mapping: MappingSpec) -> None:
    step = mapping.step
    if step is None:
        return
    if not step.algorithms:
        raise InputError("name at least one algorithm of the collectives", path="step.algorithms", known=list(ALGORITHMS))
    for name in step.algorithms:
        if name not in ALGORITHMS:
            raise InputError(f"no algorithm called '{name}'", path="step.algorithms", known=list(ALGORITHMS), given=name)
    if step.host is not None and not step.offload:
        raise InputError("nothing is offloaded to it: `offload` is empty", path="step.host")
    if step.offload:
        host_of(architecture, step.host)
    stages = step.pipeline.degree
    try:
        check(runs_as(step.schedule, step.interleave), stages, stages, step.interleave)
    except InputError as problem:
        raise InputError(problem.message, path="step.interleave")
    per_stage = [sum(sum(kinds.values()) for kinds in stage.values()) for stage in step.mixes]
    if step.layers and step.mixes and step.layers != per_stage:
        raise InputError(f"layers {step.layers}, and `mixes` lists {per_stage}", path="step.layers")
    if mapping.stages and step.pipeline.degree > 1:
        raise InputError("a cut below the layer and a pipeline over layers are two pipelines", path="step.pipeline")


def _check_mesh(architecture: Architecture, mapping: MappingSpec) -> None:
    placed = dict(mapping.axes)
    if mapping.step is not None:
        placed["the pipeline"] = mapping.step.pipeline
    stages = max(len(mapping.stages), 1)
    size = prod(axis.degree for axis in placed.values()) * stages
    if size != mapping.accelerators:
        raise InputError(f"the degrees and stages multiply to {size}, accelerators says {mapping.accelerators}", path="axes")
    if mapping.accelerators > architecture.available:
        raise InputError(
            f"the mesh needs {mapping.accelerators} accelerators, {architecture.name} has {architecture.available}", path="axes"
        )
    stride = 1
    for name, axis in sorted(placed.items(), key=lambda item: (item[1].stride, item[1].degree > 1)):
        if axis.degree > 1 and axis.stride != stride:
            where = f"axes.{name}.stride" if name in mapping.axes else "step.pipeline.stride"
            raise InputError(f"stride {axis.stride} leaves gaps or overlaps: the next free stride is {stride}", path=where)
        stride *= axis.degree


def _check_ops(workload: Workload, mapping: MappingSpec) -> None:
    for name, choices in mapping.ops.items():
        if name not in workload.ops:
            raise InputError(f"no operation '{name}'", path=f"ops.{name}", known=list(workload.ops), given=name)
        op = workload.ops[name]
        legal = legal_choices(op, workload)
        for axis, choice in choices.items():
            if axis not in mapping.axes:
                raise InputError(f"no axis '{axis}'", path=f"ops.{name}.{axis}", known=list(mapping.axes), given=axis)
            if choice is None:
                continue
            if choice not in legal and not (choice in op.indices and workload.sizes[choice] == 1):
                raise InputError(
                    f"{name} cannot choose '{choice}'", path=f"ops.{name}.{axis}", known=[str(c) for c in legal if c], given=choice
                )
            degree = mapping.axes[axis].degree
            if not passes_partial(choice_of(choice)) and mapping.uneven == "error" and workload.sizes[choice] % degree:
                raise InputError(f"degree {degree} does not divide {choice} = {workload.sizes[choice]}", path=f"ops.{name}.{axis}")
    staged = [op for stage in mapping.stages for op in stage]
    for name in staged:
        if name not in workload.ops:
            raise InputError(f"no operation '{name}'", path="stages", known=list(workload.ops), given=name)
    if staged and sorted(staged) != sorted(workload.ops):
        raise InputError("every operation must be in one stage", path="stages", known=list(workload.ops))
    stage_of = {op: number for number, stage in enumerate(mapping.stages) for op in stage}
    for name in staged:
        for access in workload.ops[name].ins:
            producer = workload.producer.get(access.tensor)
            if producer is not None and stage_of[producer] > stage_of[name]:
                raise InputError(f"{name} is in an earlier stage than {producer}, which it reads", path="stages")


def _check_tensors(workload: Workload, mapping: MappingSpec) -> None:
    between = [name for s in workload.sections for name in (*s.workload.inputs, *s.workload.outputs)]
    edges = tuple(dict.fromkeys((*workload.inputs, *workload.outputs, *between)))
    for tensor, ranks in mapping.boundary.items():
        if tensor not in edges:
            raise InputError(f"'{tensor}' is no input or output", path=f"boundary.{tensor}", known=edges, given=tensor)
        for axis, rank in ranks.items():
            if axis not in mapping.axes:
                raise InputError(f"no axis '{axis}'", path=f"boundary.{tensor}.{axis}", known=list(mapping.axes), given=axis)
            if rank is not None and rank not in workload.tensors[tensor].ranks:
                raise InputError(
                    f"{tensor} has no rank '{rank}'", path=f"boundary.{tensor}.{axis}", known=workload.tensors[tensor].ranks, given=rank
                )
    for tensor in mapping.save:
        if tensor != "*" and tensor not in workload.tensors:
            raise InputError(f"no tensor '{tensor}'", path=f"save.{tensor}", known=list(workload.tensors), given=tensor)
