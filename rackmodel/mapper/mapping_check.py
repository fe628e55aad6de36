"""Whether a mapping file fits its workload and machine, before it is priced: names, indices, the mesh.

All that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

import numpy as np

from rackmodel.cost.network.algorithms import ALGORITHMS
from rackmodel.cost.program.local_ops import operand_bits
from rackmodel.cost.step.clock.pipeline_orders import check
from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.errors import InputError, together
from rackmodel.mapper.folded import fold_problems
from rackmodel.mapper.pooled import pool_problems
from rackmodel.mapper.rules import of_two_stages, read_too_early
from rackmodel.mapper.shared_out import begins_inside
from rackmodel.model.architecture import Architecture
from rackmodel.model.formats import check_formats, check_operands
from rackmodel.model.layout import choice_of, legal_choices, passes_partial
from rackmodel.model.mapping import REGIONS, HandoverSpec, MappingSpec, StepSpec
from rackmodel.model.schedules import TABLE, device_of, runs_as
from rackmodel.model.workload import Op, Workload


def check_mapping(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> None:
    """Raises one InputError that tells every contradiction, each with its dotted path."""
    machine = architecture.using(mapping.accelerators)
    problems = [
        *_mesh(architecture, mapping),
        *pool_problems(machine, mapping),
        *_ops(workload, mapping),
        *_stages(workload, mapping),
        *_tensors(workload, mapping),
        *_homes(machine, workload, mapping),
        *(() if len(machine.pools) > 1 else _handover(machine, workload, mapping)),
        *_flat(workload, mapping),
        *_backward(workload, mapping),
        *(_step(machine, workload, mapping, mapping.step) if mapping.step is not None else ()),
    ]
    if problems:
        raise together(problems)


def check_home_level(architecture: Architecture, at: str, path: str) -> None:
    """Raise InputError for a home at no level with a memory that streams to the accelerators. path: of the key `at`."""
    above = [level for pool in architecture.pools for parent in pool.above for level in (parent, *parent.children) if not level.accelerator]
    stores = list(dict.fromkeys(level.name for level in above if level.memory is not None))
    if at in stores:
        return
    there = next((level for level in architecture.tree.walk() if level.name == at), None)
    fact = f"no level called '{at}'"
    if there is not None:
        beside = "is not above the accelerators nor beside their ancestors: it cannot stream to them"
        fact = f"'{at}' has no memory and cannot be a home" if there.memory is None else f"'{at}' {beside}"
    none = "" if stores else "; no level there has a memory"
    raise InputError(fact + none, path=path, known=stores, given=at)


def check_rates(architecture: Architecture, workload: Workload) -> None:
    """Raise InputError for a product of operands wider than what an accelerator multiplies, or in a format that it does not."""
    check_formats(architecture, workload)
    check_operands(architecture, workload)
    for op in workload.ops.values():
        if op.kind.name != "einsum":
            continue
        bits = operand_bits(op, [workload.tensors[access.tensor] for access in (op.out, *op.ins)], workload)
        for pool in architecture.pools:
            level, _ = pool.computing
            assert level.compute is not None
            try:
                level.compute.matrix(bits)
            except InputError as problem:
                raise InputError(f"{problem.message}, which {op.name} multiplies, on '{level.name}'", path="precision", known=problem.known)


def hosts_of(architecture: Architecture) -> frozenset[str]:
    """Levels above the accelerators of which several instances are in use. Above accelerators of several kinds nothing is kept."""
    if len(architecture.pools) > 1:
        return frozenset()
    found, below = set(), architecture.available
    for level in architecture.above:
        below //= level.count
        if architecture.used > below:
            found.add(level.name)
    return frozenset(found)


def _handover(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    stages = {op: number for number, ops in enumerate(mapping.stages) for op in ops}
    return handover_problems(architecture, workload, mapping.handover, stages)


def handover_problems(
    architecture: Architecture, workload: Workload, handover: Mapping[str, HandoverSpec], stages: Mapping[str, int]
) -> Iterator[InputError]:
    """A hand-over of a tensor that no stage hands on, or through no memory that all stages share. stages: of each operation."""
    crossing = [
        name
        for name, op in workload.producer.items()
        if any(stages.get(reader) != stages.get(op) for reader in workload.readers.get(name, ()))
    ]
    several = hosts_of(architecture) if handover else frozenset()
    shared = [level.name for level in architecture.above if level.memory is not None and level.name not in several]
    for name, how in handover.items():
        if name not in (*crossing, "*") or not crossing:
            fact = f"no stage hands '{name}' on" if crossing else "a hand-over is between stages of operations, and there is one stage"
            yield InputError(fact, path=f"handover.{name}", known=["*", *crossing] if crossing else [], given=name)
        if how.at not in shared:
            fact = f"'{how.at}' is no level above all accelerators in use with a memory"
            yield InputError(fact, path=f"handover.{name}.at", known=shared, given=how.at)


def left_out(workload: Workload, mapping: MappingSpec) -> str:
    """What to say of operations that a mapping leaves out, which run whole everywhere; '' where it leaves none out."""
    split = [name for name, axis in mapping.axes.items() if axis.degree > 1]
    missing = [name for name in workload.ops if any(axis not in mapping.ops.get(name, {}) for axis in split)]
    if not missing:
        return ""
    along = ", ".join(split)
    return f"`ops` leaves out {', '.join(missing)} (or an axis of them): what is left out is repeated along {along}, not split"


def _unknown(what: str, word: str, path: str, known: Iterable[str]) -> InputError:
    return InputError(f"no {what} '{word}'", path=path, known=list(known), given=word)


def _mesh(architecture: Architecture, mapping: MappingSpec) -> Iterator[InputError]:
    placed = dict(mapping.axes)
    if mapping.step is not None:
        placed["the pipeline"] = mapping.step.pipeline
    size = prod(axis.degree for axis in placed.values()) * max(len(mapping.stages), 1)
    if size != mapping.accelerators:
        yield InputError(f"the degrees and stages multiply to {size}, accelerators says {mapping.accelerators}", path="axes")
    elif mapping.accelerators > architecture.available:
        fact = f"the mesh needs {mapping.accelerators} accelerators, {architecture.name} has {architecture.available}"
        yield InputError(fact, path="accelerators")
    stride = 1
    for name, axis in sorted(placed.items(), key=lambda item: (item[1].stride, item[1].degree > 1)):
        if axis.degree > 1 and axis.stride != stride:
            where = f"axes.{name}.stride" if name in mapping.axes else "step.pipeline.stride"
            yield InputError(f"stride {axis.stride} leaves gaps or overlaps: the next free stride is {stride}", path=where)
            return
        stride *= axis.degree


def _ops(workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    for name, choices in mapping.ops.items():
        if name not in workload.ops:
            yield _unknown("operation", name, f"ops.{name}", workload.ops)
            continue
        for axis, choice in choices.items():
            if axis not in mapping.axes:
                yield _unknown("axis", axis, f"ops.{name}.{axis}", mapping.axes)
            elif choice is not None:
                yield from _choice(workload, mapping, workload.ops[name], axis, choice)


def _choice(workload: Workload, mapping: MappingSpec, op: Op, axis: str, choice: str) -> Iterator[InputError]:
    path, legal = f"ops.{op.name}.{axis}", legal_choices(op, workload)
    if choice not in legal and not (choice in op.indices and workload.sizes[choice] == 1):
        yield InputError(f"{op.name} cannot choose '{choice}'", path=path, known=[str(c) for c in legal if c], given=choice)
        return
    degree = mapping.axes[axis].degree
    if passes_partial(choice_of(choice)) or mapping.uneven == "ceil":
        return
    whole = flat if choice in (flat := mapping.flat.get(axis, [])) else [choice]
    own = [index for index in whole if index in op.indices]
    beside = [index for index in whole if index not in own and index in workload.sizes]  # (one that is not there is told of `flat`)
    size, others = (prod(workload.sizes[index] for index in some) for some in (own, beside))
    if size % degree and (mapping.uneven == "error" or others > 1):
        why = f" ({begins_inside(whole)})" if others > 1 else ""
        yield InputError(f"degree {degree} does not divide {' x '.join(own)} = {size}{why}", path=path)


def _stages(workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    staged = [op for stage in mapping.stages for op in stage]
    strange = [name for name in staged if name not in workload.ops]
    if strange:
        yield _unknown("operation", strange[0], "stages", workload.ops)
        return
    empty = next((number for number, stage in enumerate(mapping.stages) if not stage), None)
    if empty is not None:
        yield InputError("a stage without operations", path=f"stages.{empty}")
        return
    if staged and sorted(staged) != sorted(workload.ops):
        yield InputError("every operation must be in one stage", path="stages", known=list(workload.ops))
        return
    stage_of = {op: number for number, stage in enumerate(mapping.stages) for op in stage}
    for fact in read_too_early(workload, stage_of):
        yield InputError(fact, path="stages")
    if mapping.stages and (fact := of_two_stages(workload, stage_of)):
        yield InputError(fact, path="stages")


def _tensors(workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    edges = tuple(dict.fromkeys((*workload.inputs, *workload.outputs, *workload.ends)))
    for tensor, ranks in mapping.boundary.items():
        if tensor not in edges:
            yield InputError(f"'{tensor}' is no input or output", path=f"boundary.{tensor}", known=edges, given=tensor)
            continue
        own = workload.tensors[tensor].ranks
        for axis, rank in ranks.items():
            path = f"boundary.{tensor}.{axis}"
            if axis not in mapping.axes:
                yield _unknown("axis", axis, path, mapping.axes)
            elif rank is not None and rank not in own:
                yield InputError(f"{tensor} has no rank '{rank}'", path=path, known=own, given=rank)
    for tensor in mapping.save:
        if tensor != "*" and tensor not in workload.tensors:
            yield _unknown("tensor", tensor, f"save.{tensor}", workload.tensors)


def _homes(architecture: Architecture, workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    for name, home in mapping.homes.items():
        if name != "weights" and name not in workload.weights:
            yield _unknown("weight", name, f"homes.{name}", ["weights", *workload.weights])
        if home.at is not None:
            try:
                check_home_level(architecture, home.at, f"homes.{name}.at")
            except InputError as problem:
                yield problem
        for key, axes in (("axes", home.axes), ("replicas", home.replicas or ())):
            for number, axis in enumerate(axes):
                if axis not in mapping.axes:
                    yield _unknown("axis", axis, f"homes.{name}.{key}.{number}", mapping.axes)


def _flat(workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    indices = list(workload.indices)
    for axis, flat in mapping.flat.items():
        if axis not in mapping.axes:
            yield _unknown("axis", axis, f"flat.{axis}", mapping.axes)
        for number, index in enumerate(flat):
            if index not in indices:
                fact = f"no operation has an index '{index}'"
                yield InputError(fact, path=f"flat.{axis}.{number}", known=indices, given=index)


def _backward(workload: Workload, mapping: MappingSpec) -> Iterator[InputError]:
    """What is kept, made again or offloaded needs a pass that uses it."""
    mixes = mapping.step.mixes if mapping.step is not None else []
    policies = {mapping.recompute, *(policy for stage in mixes for kinds in stage.values() for policy in kinds)}
    if mapping.rerun == "slice" and not policies & REGIONS:
        yield InputError("it says how attention, experts or whole layers run again, and `recompute` is none of these", path="rerun")
    offloaded = mapping.step.offload if mapping.step is not None else []
    if "optimizer" in offloaded and "optimizer" not in workload.phases:
        yield InputError(f"{workload.name} holds no optimizer to offload", path="step.offload")
    if workload.backward:
        return
    kept = {
        "recompute": policies != {"none"},
        "save": any(copy != "shard" for copy in mapping.save.values()),
        "step.offload": "activations" in offloaded,
    }
    for path, asked in kept.items():
        if asked:
            yield InputError(f"{workload.name} has no backward pass: nothing is kept for it", path=path)
    for name, home in mapping.homes.items():
        if home.axes and home.param == "replicate":
            fact = f"{workload.name} has no backward pass: a gradient or a state that is sharded changes nothing"
            yield InputError(fact, path=f"homes.{name}")


def _step(architecture: Architecture, workload: Workload, mapping: MappingSpec, step: StepSpec) -> Iterator[InputError]:
    if not step.algorithms:
        yield InputError("name at least one algorithm of the collectives", path="step.algorithms", known=list(ALGORITHMS))
    for number, name in enumerate(step.algorithms):
        if name not in ALGORITHMS:
            known = list(ALGORITHMS)
            yield InputError(f"no algorithm called '{name}'", path=f"step.algorithms.{number}", known=known, given=name)
    yield from _offload(architecture, step)
    stages = step.pipeline.degree
    try:
        check(runs_as(step.schedule, step.interleave), stages, TABLE[step.schedule].fewest(stages) * stages, step.interleave)
    except InputError as problem:
        yield InputError(problem.message, path="step.interleave")
    yield from fold_problems(workload, [step.schedule], below=bool(mapping.stages), path="step.schedule")
    if mapping.stages and stages > 1:
        yield InputError("a cut below the layer and a pipeline over layers are two pipelines", path="step.pipeline")
    if step.mixes:
        yield from _mixes(workload, step)
    elif step.layers:
        yield from _layers(workload, step)


def _offload(architecture: Architecture, step: StepSpec) -> Iterator[InputError]:
    if step.host is not None and not step.offload:
        yield InputError("nothing is offloaded to it: `offload` is empty", path="step.host")
    if not step.offload:
        return
    try:
        level = host_of(architecture, step.host)
    except InputError as problem:
        yield InputError(problem.message, path=f"step.{problem.path}", known=problem.known, given=problem.given)
        return
    if step.host is None:
        fact = f"`offload` needs the level that it goes to: say host: {level.level}"
        yield InputError(fact, path="step.offload")


def _layers(workload: Workload, step: StepSpec) -> Iterator[InputError]:
    """The layers of every stage, or of every chunk of several: a chunk may hold none, as one beside the embedding, no stage may."""
    stages, chunks = step.pipeline.degree, step.pipeline.degree * step.interleave
    if len(step.layers) != chunks or sum(step.layers) != workload.layers:
        fact = f"{len(step.layers)} numbers that add up to {sum(step.layers)}: want {chunks} that add up to {workload.layers}"
        yield InputError(fact, path="step.layers")
    devices = device_of(np.arange(chunks), step.schedule, stages)
    here = [[count for count, device in zip(step.layers, devices, strict=False) if device == stage] for stage in range(stages)]
    for number, count in enumerate(step.layers):
        if count < 0 or (count == 0 and step.interleave == 1):
            yield InputError(f"{count} must be above 0", path=f"step.layers.{number}")
        elif number < stages < chunks and not any(here[number]):
            yield InputError(f"stage {number} of {stages} holds no layer in any chunk", path=f"step.layers.{number}")


def _mixes(workload: Workload, step: StepSpec) -> Iterator[InputError]:
    """The layers of every stage by policy: as many stages as the pipeline has, as many layers as the model has."""
    layers = {section.name: section.repeat for section in workload.sections if section.layer}
    if len(step.mixes) != step.pipeline.degree:
        yield InputError(f"{len(step.mixes)} stages listed, the pipeline has {step.pipeline.degree}", path="step.mixes")
    strange = False
    for number, stage in enumerate(step.mixes):
        for name, counts in stage.items():
            if name not in layers:
                strange = True
                yield _unknown("section of layers", name, f"step.mixes.{number}.{name}", layers)
            for policy, count in counts.items():
                if count < 0:
                    strange = True
                    yield InputError("layers are counted from 0", path=f"step.mixes.{number}.{name}.{policy}")
    if strange:
        return
    for name, repeat in layers.items():
        total = sum(sum(stage.get(name, {}).values()) for stage in step.mixes)
        if total != repeat:
            yield InputError(f"{total} layers of {name} listed, the model has {repeat}", path="step.mixes")
    per_stage = [sum(sum(kinds.values()) for kinds in stage.values()) for stage in step.mixes]
    for number in (number for number, count in enumerate(per_stage) if not count):
        yield InputError(f"stage {number} of {len(per_stage)} holds no layer", path=f"step.mixes.{number}")
    if step.interleave > 1:
        fact = f"`mixes` lists layers of whole stages, not of each of their {step.interleave} chunks: say `layers`, and one `recompute`"
        yield InputError(fact, path="step.interleave")
    if step.layers and step.layers != per_stage:
        yield InputError(f"layers {step.layers}, and `mixes` lists {per_stage}", path="step.layers")
