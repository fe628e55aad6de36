"""The workload: operations over named ranks, the tensors between them, and the graph they form.

A rank belongs to a tensor; an index belongs to an operation. K[b,s,g,e] has a rank s that QK reads by the index t:
context parallelism follows from that alone. Training is derived (see cost/derive): no backward operation is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as AbcMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, prod
from typing import Any, Literal

from pydantic import Field

from rackmodel.errors import InputError
from rackmodel.model.architecture import width
from rackmodel.model.einsum import Access, Statement, parse_statement
from rackmodel.model.opkinds import KINDS, OpKind
from rackmodel.model.schema import Spec

Phase = Literal["forward", "backward", "recompute", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute", "optimizer")
Kind = Literal["weight", "input", "activation", "output"]
Format = Literal["packed", "dense", "csr", "mask"]
CSR_INDEX_BITS = 16  # a delta-encoded column index beside each value (seed 001, 7.4)


class Precision(Spec):
    """Bits of each kind of value."""

    activation: str = Field(default="16 bit", description="activations and their gradients")
    weight: str = Field(default="16 bit", description="parameters")
    gradient: str = Field(default="32 bit", description="weight gradients, as they are reduced")
    state: str = Field(default="96 bit", description="optimizer state per parameter (Adam: fp32 master, two moments)")


class TensorSpec(Spec):
    """What a workload file may say of one tensor."""

    kind: Kind | None = Field(default=None, description="weight, input, activation or output; default by name (W...) and place")
    density: str | float | int = Field(default=1, description="share of elements that are not zero, such as 'k/x' or 0.25")
    precision: str | None = Field(default=None, description="bits of one element, such as '8 bit'; '0 bit' = costs nothing")
    format: Format = Field(
        default="packed", description="how a density below 1 is stored: packed (no index), csr (16 bit each), mask (1 bit a place), dense"
    )


class SectionSpec(Spec):
    """A part of a model that repeats as a whole: the embedding, the blocks, the head."""

    einsums: dict[str, str] = Field(description="operations; the residual stream enters by the name the section before wrote")
    repeat: int | str = Field(default=1, description="layers: times the section runs in sequence, each with weights of its own")


class WorkloadSpec(Spec):
    """The file: what is read."""

    name: str = Field(alias="workload", description="the workload's name")
    phases: tuple[Phase, ...] = Field(default=("forward",), description="forward, backward, optimizer")
    sizes: dict[str, str | int] = Field(default_factory=dict, description="size of each index: a number, another index or a product")
    precision: Precision = Field(default=Precision(), description="bits by kind")
    einsums: dict[str, str] = Field(default_factory=dict, description="operations in order: name → 'Y[m,n] = X[m,k] * W[k,n]'")
    sections: dict[str, SectionSpec] = Field(
        default_factory=dict, description="a whole model instead of einsums: sections in order, each with einsums and a repeat"
    )
    batch_rank: str = Field(default="b", description="the index of the batch, which micro-batches split in time")
    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="what the optimizer computes for a parameter")
    tensors: dict[str, TensorSpec] = Field(
        default_factory=dict, description="kind, density and precision of a tensor where the default is wrong"
    )
    repeat: int | str = Field(default=1, description="times the whole graph runs in sequence (layers)")


@dataclass(frozen=True)
class Tensor:
    """A tensor: its own ranks and sizes, bits of an element, kind, density and the format in which it is stored and moved."""

    name: str
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    bits: int
    kind: Kind
    density: float = 1.0
    format: Format = "packed"

    @property
    def elements(self) -> float:
        """Elements that are not zero."""
        return prod(self.sizes) * self.density

    @property
    def bytes(self) -> float:
        """Bytes of the whole tensor, indices included."""
        if self.bits == 0:
            return 0.0
        if self.format == "dense":
            return prod(self.sizes) * self.bits / 8
        return self.elements * self.bits / 8 + self.index_bytes

    @property
    def index_bytes(self) -> float:
        """Bytes that say where the elements are: 0 where the format has no index."""
        if self.bits == 0:
            return 0.0
        return (self.elements * CSR_INDEX_BITS if self.format == "csr" else prod(self.sizes) if self.format == "mask" else 0.0) / 8


@dataclass(frozen=True)
class Op:
    """One operation of the graph."""

    name: str
    statement: Statement
    sizes: AbcMapping[str, int] = field(hash=False, compare=False)

    @property
    def kind(self) -> OpKind:
        """Its row of the op-kind table."""
        return KINDS[self.statement.kind]

    @property
    def out(self) -> Access:
        """What it writes."""
        return self.statement.out

    @property
    def ins(self) -> tuple[Access, ...]:
        """What it reads."""
        return self.statement.ins

    @property
    def over(self) -> tuple[str, ...]:
        """Indices it normalises over."""
        return self.statement.over

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """Its iteration space: output indices first, then the rest."""
        return tuple(dict.fromkeys((*self.out.names, *(i for access in self.ins for i in access.names))))

    @property
    def contracted(self) -> tuple[str, ...]:
        """Indices that are summed or normalised away."""
        return tuple(i for i in self.indices if i not in self.out.names)


@dataclass(frozen=True)
class Workload:
    """Operations in dependency order, their tensors, and what is computed of them.

    aliases: index → the index whose size it takes (t walks rank s of K) · repeat: layers in sequence · batch: index that
    micro-batches split · sections: of a whole model, whose ops are then one layer of each section.
    """

    name: str
    ops: dict[str, Op]
    tensors: dict[str, Tensor]
    phases: tuple[Phase, ...]
    sizes: dict[str, int]
    gradient_bits: int = 32
    state_bits: int = 96
    repeat: int = 1
    aliases: dict[str, str] = field(default_factory=dict)
    batch: str = "b"
    optimizer: str = "adam"
    sections: tuple[Section, ...] = ()

    @cached_property
    def producer(self) -> dict[str, str]:
        """Tensor → the op that writes it."""
        return {op.out.tensor: op.name for op in self.ops.values()}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Tensor → the ops that read it, in order."""
        found: dict[str, list[str]] = {name: [] for name in self.tensors}
        for op in self.ops.values():
            for access in op.ins:
                if op.name not in found[access.tensor]:
                    found[access.tensor].append(op.name)
        return {name: tuple(ops) for name, ops in found.items()}

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "weight")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are not weights."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "input")

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that nothing reads."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "output")

    @property
    def backward(self) -> bool:
        """Whether gradients are computed."""
        return "backward" in self.phases

    @cached_property
    def graph(self) -> Any:
        """The networkx DiGraph of ops; an edge carries the tensor."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(self.ops)
        for op in self.ops.values():
            for access in op.ins:
                if access.tensor in self.producer:
                    graph.add_edge(self.producer[access.tensor], op.name, tensor=access.tensor)
        return graph


@dataclass(frozen=True)
class Section:
    """`repeat` equal layers in sequence. workload: one of them, whose input is what the layer before wrote."""

    name: str
    workload: Workload
    repeat: int

    @property
    def stream_in(self) -> str:
        """The residual stream as it enters; '' in the first section, whose inputs are the model's."""
        return next((name for name in self.workload.inputs if self.workload.tensors[name].bits > 0), "")

    @property
    def layer(self) -> bool:
        """Whether it hands on what it takes (a layer of the model), unlike the embedding and the head."""
        return bool(self.stream_in) and self.workload.tensors[self.stream_in].sizes == self.workload.tensors[self.stream_out].sizes

    @property
    def stream_out(self) -> str:
        """What the section hands on."""
        return self.workload.outputs[-1]


def build_workload(spec: WorkloadSpec) -> Workload:
    """Check and connect a workload. Raises InputError with the dotted path of what is wrong."""
    sizes = resolve_sizes(spec.sizes)
    if spec.sections and spec.einsums:
        raise InputError("einsums or sections, not both", path="einsums")
    if not spec.sections:
        return _build(spec, _parse(spec.einsums, sizes, "einsums"), sizes)
    parsed = {name: _parse(said.einsums, sizes, f"sections.{name}.einsums") for name, said in spec.sections.items()}
    union: dict[str, Op] = {}
    for name, ops in parsed.items():
        for op in ops:
            if op in union:
                raise InputError(f"two sections have an operation '{op}'", path=f"sections.{name}.einsums.{op}")
        union.update(ops)
    whole = _build(spec, union, sizes)
    return replace(whole, sections=_sections(spec, parsed, sizes, whole))


def _parse(texts: AbcMapping[str, str], sizes: dict[str, int], path: str) -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for name, text in texts.items():
        try:
            ops[name] = Op(name, parse_statement(text), sizes)
            _check_sizes(ops[name], sizes)
        except InputError as problem:
            raise problem.at(None, f"{path}.{name}")
    if not ops:
        raise InputError("a workload needs at least one operation", path=path)
    return ops


def _sections(spec: WorkloadSpec, parsed: AbcMapping[str, dict[str, Op]], sizes: dict[str, int], whole: Workload) -> tuple[Section, ...]:
    """Each section as a workload of its own; neighbours joined by the name of what one writes and the next reads."""
    if spec.batch_rank not in sizes:
        raise InputError(f"no size called '{spec.batch_rank}' for the batch", path="batch_rank", known=sorted(sizes), given=spec.batch_rank)
    sections: list[Section] = []
    for name, said in spec.sections.items():
        used = {access.tensor for op in parsed[name].values() for access in (op.out, *op.ins)}
        mine = spec.model_copy(update={"tensors": {t: v.model_copy(update={"kind": None}) for t, v in spec.tensors.items() if t in used}})
        path = f"sections.{name}"
        repeat = said.repeat if isinstance(said.repeat, int) else _size(said.repeat, sizes, f"{path}.repeat")
        if repeat < 1:
            raise InputError("repeat must be at least 1", path=f"{path}.repeat")
        section = Section(name, replace(_build(mine, parsed[name], sizes), name=name), repeat)
        if sections:
            before = sections[-1].stream_out
            streams = [t for t in section.workload.inputs if section.workload.tensors[t].bits > 0]
            if streams != [before] and before not in streams:
                raise InputError(f"section {name} reads {streams}, the one before writes '{before}'", path=path)
        if repeat > 1:
            ends = (whole.tensors[section.stream_in], whole.tensors[section.stream_out]) if section.stream_in else ()
            if not ends or ends[0].sizes != ends[1].sizes:
                raise InputError("what a repeated section writes must have the shape of what it reads", path=f"{path}.repeat")
        sections.append(section)
    return tuple(sections)


def _build(spec: WorkloadSpec, ops: dict[str, Op], sizes: dict[str, int]) -> Workload:
    ordered = _in_order(ops)
    tensors = _tensors(spec, ordered, sizes)
    if "backward" in spec.phases and "forward" not in spec.phases:
        raise InputError("backward without forward", path="phases")
    repeat = spec.repeat if isinstance(spec.repeat, int) else _size(spec.repeat, sizes, "repeat")
    if repeat < 1:
        raise InputError("repeat must be at least 1", path="repeat")
    return Workload(
        spec.name,
        ordered,
        tensors,
        spec.phases,
        sizes,
        width(spec.precision.gradient),
        width(spec.precision.state),
        repeat,
        {name: value for name, value in spec.sizes.items() if isinstance(value, str) and value in spec.sizes},
        spec.batch_rank,
        spec.optimizer,
    )


def resolve_sizes(raw: AbcMapping[str, str | int]) -> dict[str, int]:
    """Sizes as integers; a size may name another size or a product ('batch * seq'). Raises InputError."""
    sizes: dict[str, int] = {}
    pending = dict(raw)
    while pending:
        before = len(pending)
        for name, value in list(pending.items()):
            if isinstance(value, int) or re.fullmatch(r"\s*\d[\d_]{0,30}\s*", value):
                sizes[name] = int(value)
            elif all(word in sizes or word not in raw for word in re.findall(r"[A-Za-z_]\w*", value)):
                sizes[name] = _size(value, sizes, f"sizes.{name}")
            else:
                continue
            if sizes[name] < 1:
                raise InputError(f"size {sizes[name]} of '{name}' must be at least 1", path=f"sizes.{name}")
            del pending[name]
        if len(pending) == before:
            raise InputError(f"sizes refer to each other in a circle: {', '.join(pending)}", path=f"sizes.{next(iter(pending))}")
    return sizes


def _size(text: str, sizes: AbcMapping[str, int], path: str) -> int:
    value = evaluate(text, sizes, path)
    if not isfinite(value):
        raise InputError(f"'{text}' is too large", path=path)
    if value != int(value):
        raise InputError(f"'{text}' is {value:g}, not a whole number", path=path)
    return int(value)


def evaluate(text: str | float | int, sizes: AbcMapping[str, int], path: str) -> float:
    """Value of a product or quotient of sizes and numbers, such as 'k/x' or 'batch * seq'. Raises InputError."""
    if isinstance(text, int | float):
        return float(text)
    result, operator = 1.0, "*"
    for token in re.findall(r"[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\S", text):
        if token in "*/":
            operator = token
            continue
        if token[0].isdigit():
            value = float(token)
        elif token in sizes:
            value = float(sizes[token])
        else:
            raise InputError(f"'{text}': no size called '{token}'", path=path, known=sorted(sizes), given=token)
        if operator == "/" and value == 0:
            raise InputError(f"'{text}' divides by zero", path=path)
        result = result * value if operator == "*" else result / value
    return result


def _check_sizes(op: Op, sizes: AbcMapping[str, int]) -> None:
    for index in op.indices:
        if index not in sizes:
            raise InputError(f"index '{index}' has no size in `sizes`", known=sorted(sizes), given=index)


def _in_order(ops: dict[str, Op]) -> dict[str, Op]:
    producer: dict[str, str] = {}
    for op in ops.values():
        if op.out.tensor in producer:
            raise InputError(f"'{op.out.tensor}' is written by both {producer[op.out.tensor]} and {op.name}", path=f"einsums.{op.name}")
        producer[op.out.tensor] = op.name
    done: dict[str, Op] = {}
    pending = dict(ops)
    while pending:
        ready = next((op for op in pending.values() if all(a.tensor not in producer or producer[a.tensor] in done for a in op.ins)), None)
        if ready is None:
            raise InputError(f"the operations form a cycle: {' → '.join(_cycle(pending, producer))}", path=f"einsums.{next(iter(pending))}")
        done[ready.name] = pending.pop(ready.name)
    return done


def _cycle(pending: dict[str, Op], producer: dict[str, str]) -> list[str]:
    seen: list[str] = []
    name = next(iter(pending))
    while name not in seen:
        seen.append(name)
        name = next(producer[a.tensor] for a in pending[name].ins if producer.get(a.tensor) in pending)
    return [*seen[seen.index(name) :], name][::-1]


def _tensors(spec: WorkloadSpec, ops: dict[str, Op], sizes: dict[str, int]) -> dict[str, Tensor]:
    accesses: dict[str, list[tuple[str, Access]]] = {}
    written = {op.out.tensor for op in ops.values()}
    read = {access.tensor for op in ops.values() for access in op.ins}
    for op in ops.values():
        accesses.setdefault(op.out.tensor, []).insert(0, (op.name, op.out))
        for access in op.ins:
            accesses.setdefault(access.tensor, []).append((op.name, access))
    for name in spec.tensors:
        if name not in accesses:
            raise InputError(f"no operation uses a tensor '{name}'", path=f"tensors.{name}", known=sorted(accesses), given=name)
    tensors = {}
    for name, uses in accesses.items():
        said = spec.tensors.get(name, TensorSpec())
        first = uses[0][1]
        ranks = tuple("+".join(index for _, index in affine) for affine in first.indices)
        extents = tuple(extent(affine, sizes) for affine in first.indices)
        for op_name, access in uses[1:]:
            if len(access.indices) != len(ranks):
                raise InputError(f"{access} has {len(access.indices)} ranks, but {first} has {len(ranks)}", path=f"einsums.{op_name}")
            for position, affine in enumerate(access.indices):
                if extent(affine, sizes) != extents[position]:
                    raise InputError(
                        f"{access} walks rank {position + 1} of {name} over {extent(affine, sizes)}, {first} makes it {extents[position]}",
                        path=f"einsums.{op_name}",
                    )
        kind = said.kind or _kind(name, name in written, name in read)
        if (kind in ("weight", "input")) == (name in written):
            raise InputError(
                f"'{name}' cannot be a {kind}: it is {'written' if name in written else 'never written'}", path=f"tensors.{name}"
            )
        density = evaluate(said.density, sizes, f"tensors.{name}.density")
        if not 0 < density <= 1:
            raise InputError(f"density {density:g} of '{name}' must be above 0 and at most 1", path=f"tensors.{name}.density")
        bits = _bits(said.precision, spec.precision, kind, f"tensors.{name}.precision")
        tensors[name] = Tensor(name, ranks, extents, bits, kind, density, said.format)
    return tensors


def _kind(name: str, written: bool, read: bool) -> Kind:
    if not written:
        return "weight" if name.startswith("W") else "input"
    return "activation" if read else "output"


def _bits(said: str | None, precision: Precision, kind: Kind, path: str) -> int:
    if said is not None and said.replace(" ", "") == "0bit":
        return 0
    try:
        return width(said or (precision.weight if kind == "weight" else precision.activation))
    except ValueError as problem:
        raise InputError(str(problem), path=path)


def extent(affine: tuple[tuple[int, str], ...], sizes: AbcMapping[str, int]) -> int:
    """Elements a sum of indices walks over: 1 + Σ stride (size − 1)."""
    return 1 + sum(stride * (sizes[index] - 1) for stride, index in affine)
