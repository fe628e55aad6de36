"""The mapspace: every mesh a mapper declares, and for each the choices open to each operation.

A mapper file names axes, degrees, placement and the ranks each axis splits. Here that becomes a list of Meshes: degrees,
strides, and one domain of choices per operation and axis (one element where the file fixes it). A flattening such as
[g, q] is factored into sub-axes where the degree allows it, so that the rest of the model only ever splits one index.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rackmodel.errors import InputError
from rackmodel.model.layout import PARTIAL, REPLICATE, Choice, Layout, legal_choices, shard
from rackmodel.model.mapping import HomeSpec, MapperSpec, RankChoice
from rackmodel.model.plan import Plan, default_boundary, twin_input
from rackmodel.model.workload import Op, Workload

Domains = dict[str, tuple[tuple[Choice, ...], ...]]  # op → per axis → choices


@dataclass(frozen=True)
class Mesh:
    """One placed mesh. axes are sub-axes (tp, or tp_g and tp_q); parent: sub-axis → axis of the mapper file."""

    axes: tuple[str, ...]
    degrees: tuple[int, ...]
    strides: tuple[int, ...]
    parent: tuple[str, ...]
    stages: dict[str, int]
    domains: Domains
    flat: dict[str, tuple[str, ...]]

    @property
    def fixed(self) -> bool:
        """Whether every choice is fixed."""
        return all(len(choices) == 1 for per_axis in self.domains.values() for choices in per_axis)

    @property
    def size(self) -> float:
        """Layouts in the space of this mesh."""
        return float(prod(len(choices) for per_axis in self.domains.values() for choices in per_axis))


@dataclass(frozen=True)
class Mapspace:
    """Everything a mapper declares for a workload on N accelerators. skipped: meshes left out, by reason."""

    mapper: MapperSpec
    workload: Workload
    accelerators: int
    meshes: tuple[Mesh, ...]
    skipped: dict[str, float]

    @property
    def size(self) -> float:
        """Mappings in the space."""
        saves = 2.0 ** len(saveable(self.workload)) if self.mapper.save == "free" else 1.0
        homes = 4.0 ** sum(self.mapper.homes.get(w, self.mapper.homes.get("weights")) == "free" for w in self.workload.weights)
        return sum(mesh.size for mesh in self.meshes) * saves * homes

    @property
    def free_homes(self) -> bool:
        """Whether the home of some weight is to be found."""
        return "free" in self.mapper.homes.values()

    @property
    def fixed(self) -> bool:
        """Whether nothing beside the operations' choices is to be found."""
        return self.mapper.save != "free" and not self.free_homes

    def plan(self, mesh: Mesh, choices: Mapping[str, tuple[Choice, ...]], save: Mapping[str, str] | None = None) -> Plan:
        """The plan of one assignment of choices."""
        return Plan(
            mesh.axes,
            dict(choices),
            {t: self.boundary(mesh, choices, t) for t in (*self.workload.inputs, *self.workload.outputs)},
            mesh.stages,
            {name: home.model_copy(update={"axes": _subaxes(mesh, home.axes)}) for name, home in self._homes()},
            dict(save) if save is not None else self.saves(),
            self._policy(),
            self.mapper.rerun,
            self.mapper.uneven,
            mesh.flat,
        )

    def _homes(self) -> list[tuple[str, HomeSpec]]:
        """The mapper's homes, one a weight. Raises InputError where it leaves a choice."""
        found = []
        for name, said in self.mapper.homes.items():
            if isinstance(said, list):
                raise InputError("a list of homes is for a model in sections; say free", path=f"homes.{name}")
            if isinstance(said, HomeSpec):
                found.append((name, said))
        return found

    def _policy(self) -> str:
        said = self.mapper.recompute
        if not isinstance(said, str) or said == "per layer":
            raise InputError("a choice of policies is for a model in sections", path="recompute")
        return said

    def saves(self) -> dict[str, str]:
        """The mapper's saved copies, where they are fixed."""
        said = self.mapper.save
        if isinstance(said, str):
            return {} if said in ("free", "shard") else {"*": said}
        return {str(name): str(copy) for name, copy in said.items()}

    def boundary(self, mesh: Mesh, choices: Mapping[str, tuple[Choice, ...]], tensor: str) -> Layout:
        """Layout in which an input arrives or an output leaves."""
        said = self.mapper.boundary.get(tensor, {})
        twin = twin_input(tensor, self.workload)
        default = self.boundary(mesh, choices, twin) if twin else default_boundary(tensor, self.workload, choices)
        whole = (degree == 1 for degree in mesh.degrees)
        return tuple(
            REPLICATE if alone else boundary_edge(self.workload, tensor, axis, said[axis]) if axis in said else default[i]
            for i, (axis, alone) in enumerate(zip(mesh.parent, whole, strict=True))
        )


def boundary_edge(workload: Workload, tensor: str, axis: str, said: RankChoice) -> str:
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


def build_mapspace(mapper: MapperSpec, workload: Workload, accelerators: int) -> Mapspace:
    """The space. Raises InputError where the file contradicts the workload or the machine."""
    _check_names(mapper, workload)
    stages = _stages(mapper, workload)
    count = max(stages.values(), default=0) + 1
    if accelerators % count:
        raise InputError(
            f"{count} pipeline stages do not divide {accelerators} accelerators",
            path="axes",
            known=[f"accelerators={count * max(1, accelerators // count)}"],
        )
    each = accelerators // count
    inner = [name for name, axis in mapper.axes.items() if axis.stages is None]
    meshes: list[Mesh] = []
    skipped: dict[str, float] = {}
    first: InputError | None = None
    for degrees in _degree_tuples(mapper, inner, each):
        for order in _orders(mapper, inner):
            try:
                meshes.append(_mesh(mapper, workload, inner, degrees, order, stages))
            except InputError as problem:
                first = first or problem
                skipped["uneven split"] = skipped.get("uneven split", 0.0) + 1
    if not meshes and first is not None:
        raise first
    return Mapspace(mapper, workload, accelerators, tuple(meshes), skipped)


def _check_names(mapper: MapperSpec, workload: Workload) -> None:
    known_ranks = {rank for op in workload.ops.values() for rank in op.indices}
    for name in mapper.choose:
        if name not in workload.ops:
            raise InputError(
                f"workload {workload.name} has no operation '{name}'", path=f"choose.{name}", known=list(workload.ops), given=name
            )
    for axis, prefs in mapper.split.items():
        words = {word for pref in prefs for word in ([pref] if isinstance(pref, str) else pref)} if isinstance(prefs, list) else set()
        if words and not words & known_ranks:
            raise InputError(
                f"workload {workload.name} has none of the ranks {sorted(words)}", path=f"split.{axis}", known=sorted(known_ranks)
            )
    for name in mapper.homes:
        if name != "weights" and name not in workload.weights:
            raise InputError(
                f"workload {workload.name} has no weight '{name}'", path=f"homes.{name}", known=["weights", *workload.weights], given=name
            )


def _stages(mapper: MapperSpec, workload: Workload) -> dict[str, int]:
    for name, axis in mapper.axes.items():
        if axis.stages == "per_einsum":
            return {op: number for number, op in enumerate(workload.ops)}
        if isinstance(axis.stages, list):
            found = {op: number for number, ops in enumerate(axis.stages) for op in ops}
            for listed in (*found, *workload.ops):
                if listed not in workload.ops or listed not in found:
                    what = "is not an operation" if listed not in workload.ops else "is in no stage"
                    raise InputError(f"'{listed}' {what}", path=f"axes.{name}.stages", known=list(workload.ops), given=listed)
            for op in workload.ops.values():
                for access in op.ins:
                    producer = workload.producer.get(access.tensor)
                    if producer is not None and found[producer] > found[op.name]:
                        raise InputError(f"{op.name} is in an earlier stage than {producer}, which it reads", path=f"axes.{name}.stages")
            return {op: found[op] for op in workload.ops}
        if axis.stages == "layers":
            raise InputError("stages: layers is for a model in sections", path=f"axes.{name}.stages")
    return dict.fromkeys(workload.ops, 0)


def _degree_tuples(mapper: MapperSpec, axes: Sequence[str], total: int) -> Iterator[tuple[int, ...]]:
    """Degrees whose product is the accelerators of a stage. Raises InputError if there are none."""
    wanted: list[list[int] | None] = []
    for name in axes:
        degree = mapper.axes[name].degree
        if degree == "rest":
            wanted.append(None)
        elif degree == "free":
            wanted.append([d for d in range(1, total + 1) if total % d == 0])
        else:
            wanted.append([total] if degree == "all" else list(degree) if isinstance(degree, list) else [int(degree)])
    rests = [i for i, degrees in enumerate(wanted) if degrees is None]
    if len(rests) > 1:
        raise InputError("only one axis can take the rest", path=f"axes.{axes[rests[1]]}.degree")
    found = False
    for chosen in itertools.product(*(degrees if degrees is not None else [1] for degrees in wanted)):
        product = prod(chosen)
        if rests and total % product == 0:
            chosen = tuple(total // product if i in rests else d for i, d in enumerate(chosen))
            product = total
        if product == total:
            found = True
            yield chosen
    if not found:
        said = ", ".join(f"{name}: {mapper.axes[name].degree}" for name in axes) or "no axes"
        raise InputError(f"no mesh of {total} accelerators: the product of the degrees ({said}) must be {total}", path="axes")


def _orders(mapper: MapperSpec, axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Axes outermost first: 'outer' ones, then as listed, then 'inner' ones; 'free' ones anywhere."""
    rank = {"outer": 0, None: 1, "inner": 2}
    free = [name for name in axes if mapper.axes[name].place == "free"]
    fixed = sorted((name for name in axes if name not in free), key=lambda name: rank.get(mapper.axes[name].place, 1))
    if not free:
        yield tuple(fixed)
        return
    for order in itertools.permutations(axes):
        if [name for name in order if name not in free] == fixed:
            yield order


def _mesh(
    mapper: MapperSpec, workload: Workload, axes: Sequence[str], degrees: tuple[int, ...], order: tuple[str, ...], stages: dict[str, int]
) -> Mesh:
    factors = {name: axis_factors(mapper, workload, name, degree) for name, degree in zip(axes, degrees, strict=True)}
    stride, strides = 1, {}
    for name in reversed(order):
        for sub, degree, _ in reversed(factors[name]):
            strides[sub] = stride
            stride *= degree
    subs = [(sub, degree, index, name) for name in axes for sub, degree, index in factors[name]]
    flat = {sub: index for sub, degree, index, _ in subs if len(index) > 1}
    domains = {
        op.name: tuple(_domain(mapper, workload, op, name, index, degree) for _, degree, index, name in subs)
        for op in workload.ops.values()
    }
    return Mesh(
        tuple(sub for sub, *_ in subs),
        tuple(degree for _, degree, *_ in subs),
        tuple(strides[sub] for sub, *_ in subs),
        tuple(name for *_, name in subs),
        stages,
        domains,
        flat,
    )


def axis_factors(mapper: MapperSpec, workload: Workload, axis: str, degree: int) -> list[tuple[str, int, tuple[str, ...]]]:
    """Sub-axes of an axis: (name, degree, indices of the flattening it stands for; () = it splits whatever is asked).

    [g, q] with g = 8 and degree 16 becomes 8 along g and 2 along q. Where the degree neither fits g nor fills it, one
    axis stays and stands for the whole flattening.
    """
    flats = _flattenings(mapper, workload, axis)
    if not flats:
        return [(axis, degree, ())]
    flat = max(flats, key=len)
    for other in flats:
        if other != flat[: len(other)]:
            raise InputError(f"axis {axis} is flattened two ways, {list(flat)} and {list(other)}", path=f"split.{axis}")
    parts: list[tuple[str, int, tuple[str, ...]]] = []
    left = degree
    for position, index in enumerate(flat):
        size = workload.sizes[index]
        if left <= size and size % left == 0:
            parts.append((f"{axis}_{index}", left, (index,)))
            left = 1
            break
        if left > size and left % size == 0 and position < len(flat) - 1:
            parts.append((f"{axis}_{index}", size, (index,)))
            left //= size
            continue
        parts.append((f"{axis}_{index}", left, flat[position:]))
        break
    if len(parts) == 1:
        return [(axis, degree, parts[0][2])]
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
    return list(dict.fromkeys(tuple(p) for p in lists if isinstance(p, list) and len(p) > 1 and set(p) <= known))


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


def _domain(mapper: MapperSpec, workload: Workload, op: Op, axis: str, index: tuple[str, ...], degree: int) -> tuple[Choice, ...]:
    """Choices of one operation over one sub-axis."""
    if degree == 1:
        return (None,)  # nothing to split; a choice would only disturb which copies look cheap
    said = mapper.choose.get(op.name, {}).get(axis)
    prefs = mapper.split.get(axis, [])
    if said == "free" or (said is None and prefs == "free"):
        return tuple(c for c in legal_choices(op, workload) if _fits(mapper, workload, c, degree)) or (None,)
    if said is not None:
        choice = _pick(op, [said], index, workload)
        if choice is None and said not in ("none", ["none"]):
            raise InputError(f"{op.name} cannot split {said}", path=f"choose.{op.name}.{axis}", known=[*op.indices, "none", "+", "free"])
    elif prefs == "output":
        choice = _pick(op, [list(columns(op, workload))], index, workload)
    else:
        choice = _pick(op, list(prefs), index, workload)
    if choice is not None and choice not in legal_choices(op, workload) and choice in op.indices and workload.sizes[choice] > 1:
        raise InputError(
            f"{op.name} ({op.kind.name}) cannot split '{choice}' over axis {axis}: it neither keeps nor sums it", path=f"split.{axis}"
        )
    if choice is not None and not _fits(mapper, workload, choice, degree) and len(index) < 2:
        raise InputError(
            f"axis {axis}: degree {degree} does not divide {choice} = {workload.sizes[choice]} of {op.name} (say uneven: ceil to allow it)",
            path=f"axes.{axis}.degree",
        )
    return (choice,)


def choice_domain(mapper: MapperSpec, workload: Workload, op: Op, axis: str, index: tuple[str, ...]) -> tuple[Choice, ...]:
    """Choices of one operation over one sub-axis whatever its degree (which the caller checks against the sizes)."""
    return _domain(mapper.model_copy(update={"uneven": "ceil"}), workload, op, axis, index, 2)


def divisors(number: int) -> list[int]:
    """Divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return [*small, *(number // d for d in reversed(small) if d * d != number)]


def _pick(op: Op, prefs: list[RankChoice], index: tuple[str, ...], workload: Workload) -> Choice:
    for pref in prefs:
        if pref == "none":
            return None
        if isinstance(pref, str) and pref[0] == "+":
            return pref
        words = [pref] if isinstance(pref, str) else pref
        if not any(word in op.indices for word in words):
            continue
        if isinstance(pref, str) or len(words) == 1:
            return words[0]
        wanted = index[0] if index else next(word for word in words if word in op.indices)
        return wanted if wanted in op.indices else None
    return None


def _fits(mapper: MapperSpec, workload: Workload, choice: Choice, degree: int) -> bool:
    return choice is None or choice[0] == "+" or mapper.uneven == "ceil" or workload.sizes[choice] % degree == 0


def _subaxes(mesh: Mesh, axes: Sequence[str]) -> list[str]:
    return [sub for sub, parent in zip(mesh.axes, mesh.parent, strict=True) if parent in axes]


__all__ = ["PARTIAL", "Mapspace", "Mesh", "build_mapspace", "columns", "saveable"]
