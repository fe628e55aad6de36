"""What a mapper's words mean for an operation: which index each axis splits, how a flattening factors, how tensors arrive and leave.

A flattening such as [g, q] is factored into sub-axes where the degree allows it, so that the rest of the model only ever splits
one index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import gcd

from rackmodel.errors import InputError
from rackmodel.mapper.shared_out import begins_inside
from rackmodel.model.layout import (
    REPLICATE,
    Choice,
    Layout,
    Placement,
    choice_of,
    index_split,
    legal_choices,
    pass_partial,
    passes_partial,
    shard,
    split,
)
from rackmodel.model.mapping import HomeSpec, MapperSpec, RankChoice, chosen, homes_of, is_called, unnumbered
from rackmodel.model.plan import default_boundary, twin_input
from rackmodel.model.workload import Op, Workload

Flat = tuple[str, ...] | frozenset[str]
"""What a sub-axis splits of a flattening: the indices that it stands for, in their order, or, of several flattenings, an index of each."""
Factors = list[tuple[str, int, Flat]]
PARKED = ("weights", "activations", "optimizer")
"""What may live at a level of which each instance serves the accelerators below it."""


def left_free(mapper: MapperSpec) -> Iterator[str]:
    """Where a mapper leaves a layout, a saved copy or a home free: paths of its keys."""
    for where, layout in mapper.tables:
        yield from (f"{where}split.{axis}" for axis, rank in layout.split.items() if rank == "free")
        yield from (f"{where}choose.{op}.{axis}" for op, each in layout.choose.items() for axis, rank in each.items() if rank == "free")
    if mapper.save == "free":
        yield "save"
    yield from (f"homes.{name}" for name, said in mapper.homes.items() if said == "free")


def boundary_edge(workload: Workload, tensor: str, axis: str, said: RankChoice) -> Placement:
    """Placement of a boundary tensor over one axis: the first of the ranks said that it has. Raises InputError."""
    ranks = workload.tensors[tensor].ranks
    for rank in [said] if isinstance(said, str) else said:
        if rank == "none":
            return REPLICATE
        if rank in ranks:
            return shard(rank)
    raise InputError(f"{tensor} has none of {said}", path=f"boundary.{tensor}.{axis}", known=[*ranks, "none"])


def saveable(workload: Workload) -> tuple[str, ...]:
    """Tensors whose saved copy is a choice."""
    return tuple(t.name for t in workload.tensors.values() if t.kind in ("input", "activation") and t.bits > 0) if workload.backward else ()


def wrong_names(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    """What the mapper calls by a name that the workload does not have."""
    known_ranks = {rank for op in workload.ops.values() for rank in op.indices}
    for name in mapper.choose:
        if not is_called(name, workload.ops):
            fact = f"workload {workload.name} has no operation '{name}'"
            yield InputError(fact, path=f"choose.{name}", known=list(workload.ops), given=name)
    for axis, prefs in mapper.split.items():
        ways = [{pref} if isinstance(pref, str) else set(pref) for pref in prefs] if isinstance(prefs, list) else []
        if ways and not any(way <= known_ranks for way in ways):  # (a flattening is of all of its indices)
            partly = [f"[{', '.join(pref)}]" for pref, way in zip(prefs, ways, strict=True) if way & known_ranks]
            words = set[str]().union(*(way for way in ways if not way & known_ranks))
            yield InputError(_other_names(workload, axis, [*sorted(words), *partly]), path=f"split.{axis}", known=sorted(known_ranks))
    if isinstance(mapper.uneven, list) and not known_ranks & {*mapper.uneven}:
        fact = f"workload {workload.name} has none of the indices {', '.join(mapper.uneven)}"
        yield InputError(fact, path="uneven", known=sorted(known_ranks), given=mapper.uneven[0])
    for name, said in mapper.homes.items():
        if name in PARKED[1:]:
            yield from _wrongly_parked(name, said)
        elif name != "weights" and name not in workload.weights:
            known = [*PARKED, *workload.weights]
            yield InputError(f"workload {workload.name} has no weight '{name}'", path=f"homes.{name}", known=known, given=name)


def _other_names(workload: Workload, axis: str, words: list[str]) -> str:
    """That a list holds no index of the workload, and what to write instead: the mapper may be the library's, the workload one's own."""
    first = next(iter(workload.ops.values())).indices[:1] or ("none",)
    ways = f"name one that it has by --set 'split.{axis}=[{first[0]}]', or in a mapper of your own (rackmodel new mapper mine)"
    return f"workload {workload.name} has none of the indices {', '.join(words)}: {ways}"


def _wrongly_parked(name: str, said: HomeSpec | list[HomeSpec] | str) -> Iterator[InputError]:
    """A home of activations or of the optimizer's state is a level, or here."""
    if isinstance(said, str) or any(home.axes for home in homes_of(said)):
        yield InputError(f"a home of {name} is a level: {{at: …}}, or {{}} for here", path=f"homes.{name}")


def axis_factors(mapper: MapperSpec, workload: Workload, axis: str, degree: int) -> Factors:
    """Sub-axes of an axis: (name, degree, indices of the flattening it stands for; () = it splits whatever is asked).

    [g, q] with g = 8 and degree 16 becomes 8 along g and 2 along q. Where the degree neither fits g nor fills it, one axis stays and stands
    for the whole flattening. Heads of several numbers ([g, q], [a2, a3]) are cut alike: where degree 4 is 2 along g and 2 along q, and 4
    along a3, it becomes 2 along g or a3 and 2 along q or a3. Raises InputError where that cannot be.
    """
    found = _flattenings(mapper, workload, axis)
    flats = [flat for flat in found if not any(flat == other[: len(flat)] != other for other in found)]
    if not flats:
        return [(axis, degree, ())]
    cuts = [_cut(flat, workload, degree) for flat in flats]
    parts = cuts[0] if len(cuts) == 1 else _alike(cuts)
    if parts is None:
        raise InputError(f"axis {axis} is flattened two ways, {list(flats[0])} and {list(flats[1])}", path=f"split.{axis}")
    if len(parts) == 1:
        return [(axis, degree, parts[0][1])]
    return [(f"{axis}_{'_'.join(index if isinstance(index, tuple) else sorted(index))}", part, index) for part, index in parts]


def _cut(flat: tuple[str, ...], workload: Workload, degree: int) -> list[tuple[int, Flat]]:
    """(degree, indices that it stands for) of the parts of a flattening."""
    parts: list[tuple[int, Flat]] = []
    left = degree
    for position, index in enumerate(flat):
        size = workload.sizes[index]
        if left <= size and size % left == 0:
            return [*parts, (left, (index,))]
        if left > size and left % size == 0 and position < len(flat) - 1:
            parts.append((size, (index,)))
            left //= size
            continue
        return [*parts, (left, flat[position:])]
    return parts


def _alike(cuts: Sequence[list[tuple[int, Flat]]]) -> list[tuple[int, Flat]] | None:
    """Parts that are parts of each of several flattenings; None where one of them is not cut along its indices, or they do not meet."""
    if any(len(index) > 1 for cut in cuts for _, index in cut):
        return None
    rests = [[(part, next(iter(index))) for part, index in cut if part > 1] or [(1, next(iter(cut[0][1])))] for cut in cuts]
    parts: list[tuple[int, Flat]] = []
    while all(rests):
        step = gcd(*(rest[0][0] for rest in rests))
        if step == 1 and any(rest[0][0] > 1 for rest in rests):
            return None
        parts.append((step, frozenset(rest[0][1] for rest in rests)))
        rests = [([(part // step, index)] if part > step else []) + rest for (part, index), *rest in rests]
    return parts


def _flattenings(mapper: MapperSpec, workload: Workload, axis: str) -> list[tuple[str, ...]]:
    prefs = mapper.split.get(axis, [])
    if prefs == "output":
        found = [columns(op, workload) for op in workload.ops.values()]
        longest = max((c for c in found if len(c) > 1), key=len, default=())
        return [longest] if longest else []
    lists: list[RankChoice] = [
        *(prefs if isinstance(prefs, list) else []),
        *(said[axis] for said in mapper.choose.values() if axis in said),
    ]
    known = set(workload.sizes)
    flat = [tuple(said) for said in lists if isinstance(said, list) and len(said) > 1]
    return list(dict.fromkeys(one for said in flat for one in (said, *_numbered(said, workload)) if set(one) <= known))


def _numbered(flat: Sequence[str], workload: Workload) -> Iterator[tuple[str, ...]]:
    """A flattening in sections of a model where its indices have other sizes, and names with a number: [g_2, q] of [g, q]."""
    if len(workload.sections) > 1:
        for op in workload.ops.values():
            yield _flat_in(flat, op, workload)


def _flat_in(flat: Sequence[str], op: Op, workload: Workload) -> tuple[str, ...]:
    """A flattening as an operation's section has it. Its number is that of the indices that the operation has: keys of g_2 lie in
    [g_2, q_2] of [g, q] where that section has a q_2, too."""
    mine = next((index for index in op.indices if index not in flat and unnumbered(index) in flat), "")
    number = mine.removeprefix(unnumbered(mine))
    own = {index: f"{index}{number}" for index in flat if index not in op.indices}
    return tuple(own[index] if own.get(index) in workload.sizes else index for index in flat)


def _of_section(pref: RankChoice, op: Op, workload: Workload) -> RankChoice:
    """What a list's word is in an operation of a later section, whose own sizes and tensors have a number: f_2 of f, +E_3 of +E."""
    if isinstance(pref, list):
        return list(_flat_in(pref, op, workload))
    return f"+{_called(pref[1:], [access.tensor for access in op.ins])}" if pref[:1] == "+" else _called(pref, op.indices)


def _called(name: str, there: Sequence[str]) -> str:
    """The name itself, or what has it with a number."""
    return name if name in there else next((other for other in there if unnumbered(other) == name), name)


def columns(op: Op, workload: Workload) -> tuple[str, ...]:
    """What 'output' splits: the indices that an operation's weight gives to its output, else those its operand has them from."""
    for access in op.ins:
        if workload.tensors[access.tensor].kind == "weight":
            return tuple(i for i in op.out.names if i in access.names)
    for access in op.ins:
        if access.tensor in workload.producer:
            inherited = columns(workload.ops[workload.producer[access.tensor]], workload)
            kept = tuple(i for i in op.out.names if i in inherited)
            if kept:
                return kept
    return op.out.names[-1:]


def domain(mapper: MapperSpec, workload: Workload, op: Op, axis: str, index: Flat, degree: int) -> tuple[Choice, ...]:
    """Choices of one operation over one sub-axis."""
    if degree == 1:
        return (None,)  # nothing to split; a choice would only disturb which copies look cheap
    said = chosen(mapper.choose, op.name).get(axis)
    prefs = mapper.split.get(axis, [])
    if isinstance(prefs, list):
        prefs = [_of_section(pref, op, workload) for pref in prefs] if len(workload.sections) > 1 else prefs
    if said == "free" or (said is None and prefs == "free"):
        return tuple(c for c in legal_choices(op, workload) if _fits(mapper, workload, c, degree)) or (None,)
    if said is not None:
        choice = _pick(op, workload, [said], index)
        if choice is None and said not in ("none", ["none"]):
            raise InputError(f"{op.name} cannot split {said}", path=f"choose.{op.name}.{axis}", known=[*op.indices, "none", "+", "free"])
    elif prefs == "output":
        choice = _pick(op, workload, [list(columns(op, workload))], index)
    else:
        choice = _pick(op, workload, [pref for pref in prefs if not _of_another(pref, op)], index)
    if choice is not None and choice not in legal_choices(op, workload) and choice in op.indices and workload.sizes[choice] > 1:
        raise InputError(
            f"{op.name} ({op.kind.name}) cannot split '{choice}' over axis {axis}: it neither keeps nor sums it", path=f"split.{axis}"
        )
    run = run_of(index)
    if choice in run[:1] and mapper.uneven != "ceil" and workload.sizes[choice] % degree:
        others = [i for i in run if i not in op.indices and workload.sizes[i] > 1]
        if others:
            fact = f"axis {axis}: degree {degree} does not divide {choice} = {workload.sizes[choice]} of {op.name} ({begins_inside(run)})"
            raise InputError(fact, path=f"axes.{axis}.degree")
    if choice is not None and not _fits(mapper, workload, choice, degree) and len(run) < 2:
        raise InputError(
            f"axis {axis}: degree {degree} does not divide {choice} = {workload.sizes[choice]} of {op.name} (uneven: fullest allows it)",
            path=f"axes.{axis}.degree",
        )
    return (choice,)


def run_of(index: Flat) -> tuple[str, ...]:
    """Indices of one flattening that a sub-axis stands for; of several flattenings none."""
    return index if isinstance(index, tuple) else ()


def of_any_degree(mapper: MapperSpec) -> MapperSpec:
    """The mapper for asking choices of a sub-axis whatever its degree (which the caller checks against the sizes)."""
    return mapper.model_copy(update={"uneven": "ceil"})


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return (*small, *(number // d for d in reversed(small) if d * d != number))


def _of_another(pref: RankChoice, op: Op) -> bool:
    """Whether it is to carry the Partial of an operand that an operation does not have."""
    if not isinstance(pref, str) or not _passes_partial(pref) or len(pref) == 1:
        return False
    return all(access.tensor != pref[1:] for access in op.ins)


@cache
def _passes_partial(pref: str) -> bool:
    return passes_partial(split(pref))


def _pick(op: Op, workload: Workload, prefs: list[RankChoice], index: Flat) -> Choice:
    whole = op.whole(workload)
    for pref in prefs:
        if pref == "none":
            return None
        if isinstance(pref, str) and _passes_partial(pref):
            return choice_of(pref) if op.kind.name in ("einsum", "dispatch") else pass_partial()  # a sum carries all or none
        words = [word for word in ([pref] if isinstance(pref, str) else pref) if word not in whole]
        if not any(word in op.indices for word in words):
            continue
        if isinstance(pref, str) or len(pref) == 1:
            return split(words[0])
        wanted = index[0] if isinstance(index, tuple) and index else next((word for word in words if word in index), "")
        wanted = wanted or next(word for word in words if word in op.indices)
        return split(wanted) if wanted in op.indices else None
    return None


def _fits(mapper: MapperSpec, workload: Workload, choice: Choice, degree: int) -> bool:
    index = index_split(choice)
    return index is None or mapper.may_be_uneven(index) or workload.sizes[index] % degree == 0


def stages_of(mapper: MapperSpec, workload: Workload) -> dict[str, int]:
    """Operation → stage of a cut below the layer; all 0 where the mapper has none."""
    for name, axis in mapper.axes.items():
        if axis.stages == "per_einsum" or isinstance(axis.stages, list):
            each = axis.stages if isinstance(axis.stages, list) else [[op] for op in workload.ops]
            found = _listed_stages(name, each, workload)
            if fact := of_two_stages(workload, found):
                raise InputError(fact, path=f"axes.{name}.stages")
            return found
    return dict.fromkeys(workload.ops, 0)


def of_two_stages(workload: Workload, stages: Mapping[str, int]) -> str:
    """What to say of a trained weight that operations of several stages read, whose gradients nothing sums; '' where there is none. stages:
    of each operation."""
    for name in workload.weights if workload.backward else ():
        readers = workload.readers[name]
        other = next((op for op in readers if stages[op] != stages[readers[0]]), "")
        if other and workload.tensors[name].trained:
            return f"{readers[0]} and {other} are in two stages: one weight that both read, {name}, is not priced there"
    return ""


def read_too_early(workload: Workload, stages: Mapping[str, int]) -> Iterator[str]:
    """What to say of operations that read what a later stage makes. stages: of each operation."""
    for name, stage in stages.items():
        for access in workload.ops[name].ins:
            producer = workload.producer.get(access.tensor)
            if producer is not None and stages[producer] > stage:
                yield f"{name} is in an earlier stage than {producer}, which it reads"


def _listed_stages(axis: str, stages: list[list[str]], workload: Workload) -> dict[str, int]:
    found = {op: number for number, ops in enumerate(stages) for op in ops}
    for listed in (*found, *workload.ops):
        if listed not in workload.ops or listed not in found:
            what = "is not an operation" if listed not in workload.ops else "is in no stage"
            raise InputError(f"'{listed}' {what}", path=f"axes.{axis}.stages", known=list(workload.ops), given=listed)
    ordered = {op: found[op] for op in workload.ops}
    for fact in read_too_early(workload, ordered):
        raise InputError(fact, path=f"axes.{axis}.stages")
    return ordered


def boundary_of(
    mapper: MapperSpec,
    workload: Workload,
    choices: Mapping[str, tuple[Choice, ...]],
    parents: Sequence[str],
    tensor: str,
    alone: Sequence[bool],
) -> Layout:
    """Layout in which an input of a graph arrives or an output leaves. parents: sub-axis → axis of the file · alone: axes of degree 1."""
    said = mapper.boundary.get(tensor, {})
    twin = twin_input(tensor, workload)
    default = boundary_of(mapper, workload, choices, parents, twin, alone) if twin else default_boundary(tensor, workload, choices)
    return tuple(
        REPLICATE if one else boundary_edge(workload, tensor, axis, said[axis]) if axis in said else default[i]
        for i, (axis, one) in enumerate(zip(parents, alone, strict=True))
    )


def stream_layout(
    mapper: MapperSpec, workload: Workload, choices: Mapping[str, tuple[Choice, ...]], parents: Sequence[str]
) -> dict[str, Layout]:
    """Layouts in which tensors cross the sections' edges: the residual stream as the first layer reads it, or as the mapper says; of one
    section alone by `boundary_of`."""
    if len(workload.sections) == 1:
        ends, whole = (*workload.inputs, *workload.outputs), [False] * len(parents)
        return {tensor: boundary_of(mapper, workload, choices, parents, tensor, whole) for tensor in ends}
    first = workload.first_layer
    stream = default_boundary(first.stream_in, first.workload, choices) if first is not None else None
    found: dict[str, Layout] = {}
    for section in workload.sections:
        for tensor in (*section.workload.inputs, *section.workload.outputs):
            crosses = tensor == section.stream_in or (tensor == section.stream_out and section is not workload.sections[-1])
            layout = stream if crosses and stream is not None else default_boundary(tensor, section.workload, choices)
            said = mapper.boundary.get(tensor, {})
            found[tensor] = tuple(
                boundary_edge(workload, tensor, parent, said[parent]) if parent in said else p
                for parent, p in zip(parents, layout, strict=True)
            )
    return found


def saves_of(mapper: MapperSpec) -> dict[str, str]:
    """The mapper's saved copies; where they are free, those of the plainest plan."""
    said = mapper.save
    if isinstance(said, str):
        return {} if said in ("free", "shard") else {"*": said}
    return {str(name): str(copy) for name, copy in said.items()}
