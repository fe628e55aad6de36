"""What the axes of a mapping are to a framework, by the index each splits in every operation of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod

from rackmodel.model.exchanges import ALL_TO_ALL
from rackmodel.model.mapping import HomeSpec, MappingSpec, StepSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.report.launch.shape import Shape

FLASH = "flash attention keeps no scores: selective recompute has nothing to make again, and as an argument would run attention twice"


@dataclass(frozen=True)
class Meaning:
    """What a mapping's axes are. degrees: by role, data with the expert degree in it · order: roles, innermost first ·
    zero: ZeRO stage, over all of the data and context axes but `copies` of them · layers: of each virtual stage where they
    differ · windows, reductions: whether collectives on activations and on gradients hide beside compute · exchange: what sends tokens to
    their experts · notes, cannot: as of a launch, of every framework."""

    degrees: dict[str, int]
    sequence_parallel: bool
    ulysses: bool
    order: tuple[str, ...]
    zero: int
    copies: int
    accumulation: int
    batch: int
    step: StepSpec
    recompute: str
    layers: tuple[int, ...]
    windows: bool
    reductions: bool
    flash: bool
    exchange: str
    gradient_bits: int
    weight_bits: int
    optimizer: str
    notes: tuple[str, ...]
    cannot: tuple[str, ...]


def axis_meanings(workload: Workload, mapping: MappingSpec, shape: Shape, profile: ProfileSpec | None = None) -> Meaning:
    """The role of every axis, by what it splits in each operation of a layer."""
    step = mapping.step
    assert step is not None
    roles = {axis: _role(_choices(mapping, axis, shape), workload, shape) for axis, placed in mapping.axes.items() if placed.degree > 1}

    def degree(role: str) -> int:
        return prod(mapping.axes[axis].degree for axis, found in roles.items() if found.split("+")[0] == role)

    batch, data = workload.sizes[workload.batch], degree("data") * degree("expert")
    stage, copies, doubts = _zero(mapping, roles)
    windows = profile is None or any(window.beside not in ("none", "sibling") for window in profile.overlap.windows.values())
    reductions = profile is None or profile.overlap.weights or profile.overlap.hides_gradients
    flash = profile is not None and profile.attention == "flash"
    told = mapping.recompute == "selective" and flash  # the kernel makes scores again; a framework's argument runs all of it once more
    return Meaning(
        degrees={
            "tensor": degree("tensor"),
            "context": degree("context") * degree("ulysses"),
            "expert": degree("expert"),
            "data": data,
            "pipeline": step.pipeline.degree,
        },
        sequence_parallel="tensor+sequence" in roles.values(),
        ulysses="ulysses" in roles.values(),
        order=_order(mapping, roles),
        zero=stage,
        copies=copies,
        accumulation=batch // (data * step.micro_batch),
        batch=batch,
        step=step,
        recompute="none" if told else mapping.recompute,
        layers=tuple(step.layers) if len(set(step.layers)) > 1 else (),
        windows=step.hide_activations and windows,
        reductions=step.hide_gradients and reductions,
        flash=flash,
        exchange=(profile.collectives.exchange if profile is not None and profile.collectives is not None else None) or ALL_TO_ALL,
        gradient_bits=workload.gradient_bits,
        weight_bits=max(shape.body.tensors[weight].bits for weight in shape.body.weights),
        optimizer=workload.optimizer,
        notes=(*_notes(mapping, shape, workload), *([FLASH] if told else [])),
        cannot=(*_kinds_unsaid(shape), *_unsaid(workload, mapping, shape, roles), *doubts),
    )


def _choices(mapping: MappingSpec, axis: str, shape: Shape) -> dict[str, str | None]:
    return {op: mapping.ops.get(op, {}).get(axis) for op in shape.body.ops}


def _kinds_unsaid(shape: Shape) -> list[str]:
    """Kinds of layers whose sizes no argument says beside those of the most frequent kind, and what they compute that none says."""
    unlike = [f"layers of {', '.join(shape.unlike)} have other sizes than most: arguments are of one kind"] if shape.unlike else []
    return [*unlike, *(f"{odd}: no argument says it" for odd in shape.features.odd)]


def _notes(mapping: MappingSpec, shape: Shape, workload: Workload) -> list[str]:
    """What the arguments leave to the framework."""
    assert mapping.step is not None
    notes = [f"{mapping.accelerators} processes, one an accelerator"]
    kinds = [section.name for section in workload.sections if section.layer]
    if len(kinds) > 1 and not shape.dense:
        main = next(section.name for section in workload.sections if section.layer and section.workload is shape.body)
        notes.append(f"layers of {len(kinds)} kinds ({', '.join(kinds)}): sizes and axes are those of {main}")
    if shape.dense:
        notes.append(f"the first {shape.dense} of {shape.layers} layers have no experts, and a feed-forward of {shape.dense_ffn}")
    if mapping.step.algorithms != ["ring"]:
        notes.append(f"collectives are the fastest of {', '.join(mapping.step.algorithms)} each; NCCL chooses by itself")
    if mapping.uneven != "error":
        notes.append(f"degrees need not divide sizes in this mapping (uneven: {mapping.uneven}); frameworks want divisors")
    return notes


def _unsaid(workload: Workload, mapping: MappingSpec, shape: Shape, roles: dict[str, str]) -> list[str]:
    """What no framework can say of a mapping's axes."""
    found = []
    for axis, role in roles.items():
        if not role:
            by_choice: dict[str, list[str]] = {}
            for op, choice in _choices(mapping, axis, shape).items():
                by_choice.setdefault(choice or "whole", []).append(op)
            layout = "; ".join(f"{choice}: {', '.join(ops)}" for choice, ops in by_choice.items())
            found.append(f"axis '{axis}' of {mapping.axes[axis].degree} has a layout that no argument can say ({layout})")
        ends = [op for op in workload.ops.values() if op.name not in shape.body.ops and shape.vocab_rank in op.indices]
        whole = [op.name for op in ends if mapping.ops.get(op.name, {}).get(axis) != shape.vocab_rank]
        if role.startswith("tensor") and whole:
            found.append(f"axis '{axis}' does not split the vocabulary in {', '.join(whole)}; tensor parallelism does")
    for either, other, what in (
        ("tensor+sequence", "tensor", "splits the norms over the sequence"),
        ("ulysses", "context", "splits attention by heads (Ulysses)"),
    ):
        if {either, other} <= set(roles.values()):
            both = [[axis for axis, role in roles.items() if role == one] for one in (either, other)]
            found.append(f"axis {', '.join(both[0])} {what} and axis {', '.join(both[1])} does not: no argument can say it")
    if "gathered" in mapping.save.values() and "tensor+sequence" in roles.values():
        axes = ", ".join(axis for axis, role in roles.items() if role == "tensor+sequence")
        found.append(f"the mapping keeps activations gathered over axis {axes} for the backward pass; frameworks gather them again")
    return found


def _zero(mapping: MappingSpec, roles: dict[str, str]) -> tuple[int, int, list[str]]:
    """(ZeRO stage, copies of what is sharded, what cannot be said)."""
    notes = []
    stages = {_stage(home): home for home in mapping.homes.values() if home.at is None}
    if any(home.at is not None for home in mapping.homes.values()):
        notes.append("weights that stream from a level of their own have no argument")
    if len(stages) > 1:
        notes.append(f"weights have different homes (ZeRO {', '.join(map(str, sorted(stages)))}); the arguments give all of them the least")
    stage = min(stages, default=0)
    home = stages.get(stage)
    over = {axis for axis in home.axes if axis in roles} if home is not None and stage else set()
    if any(roles[axis].startswith("tensor") for axis in over):
        notes.append("parameters that are sharded over a tensor axis once more have no argument")
    if not over:
        return 0, 1, notes
    left = {axis for axis, role in roles.items() if role in ("data", "expert", "context", "ulysses")} - over
    if any(roles[axis] != "data" for axis in left):
        notes.append(f"ZeRO leaves out {', '.join(sorted(a for a in left if roles[a] != 'data'))}; frameworks shard over it too")
    return stage, prod(mapping.axes[axis].degree for axis in left if roles[axis] == "data"), notes


def _stage(home: HomeSpec) -> int:
    return 3 if home.param == "shard" else 2 if home.grad == "shard" else 1 if home.state == "shard" else 0


def _order(mapping: MappingSpec, roles: dict[str, str]) -> tuple[str, ...]:
    """Roles of more than one member, innermost first, neighbours of one role joined."""
    assert mapping.step is not None
    placed = [(mapping.axes[axis].stride, role.split("+")[0] or axis) for axis, role in roles.items()]
    if mapping.step.pipeline.degree > 1:
        placed.append((mapping.step.pipeline.stride, "pipeline"))
    words = {"ulysses": "context"}
    return tuple(role for role, _ in groupby(words.get(role, role) for _, role in sorted(placed)))


def _role(choices: dict[str, str | None], workload: Workload, shape: Shape) -> str:
    """'data', 'context', 'ulysses', 'expert', 'tensor', 'tensor+sequence', or '' for what has no name."""
    ops, batch, position = shape.body.ops, workload.batch, shape.position
    said = set(choices.values())
    if said <= {batch}:
        return "data"
    if said <= {position}:
        return "context"
    inside = {name for name in choices if shape.expert_rank in ops[name].indices and shape.ffn_rank in ops[name].indices}
    if inside and all(choices[name] == (shape.expert_rank if name in inside else batch) for name in choices):
        return "expert"
    core = {name for name in choices if shape.key_rank in ops[name].indices}
    if core and all(c in shape.head_ranks if name in core else c == position for name, c in choices.items()):
        return "ulysses"
    split = choices.get(shape.scores)
    heads = {name for name in choices if set(shape.head_ranks) & set(ops[name].indices)}
    feed = {name: rank for rank in (shape.ffn_rank, shape.shared_rank) for name in choices if rank in ops[name].indices}
    stream = {choices[name] for name in choices if name not in heads | feed.keys()}
    if split not in shape.head_ranks or any(choices[name] != rank for name, rank in feed.items()):
        return ""
    if any(choices[name] != (split if split in ops[name].indices else None) for name in heads):
        return ""
    return "tensor" if stream <= {None} else "tensor+sequence" if stream == {position} else ""
