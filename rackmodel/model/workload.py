"""The workload: operations over named ranks, the tensors between them, and the graph they form.

A rank belongs to a tensor; an index belongs to an operation. K[b,s,g,e] has a rank s that QK reads by the index t:
context parallelism follows from that alone. Training is derived (see cost/program/derive): no backward operation is written.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from collections.abc import Mapping as AbcMapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

from rackmodel.model.einsum import Access, Statement
from rackmodel.model.opkinds import KINDS, OpKind
from rackmodel.model.sizes import size_names

Phase = Literal["forward", "backward", "recompute", "optimizer"]
Kind = Literal["weight", "input", "activation", "output", "kv_cache"]
Format = Literal["packed", "dense", "csr", "mask"]
CSR_INDEX_BITS = 16  # a delta-encoded column index beside each value (seed 001, 7.4)


@dataclass(frozen=True)
class Tensor:
    """A tensor: its own ranks and sizes, bits of an element, kind, density and the format in which it is stored and moved.

    scale_bits: shared scales of a quantised format, bits an element · page: of a cache, positions that are kept together, by rank ·
    routed: whether only what some token is sent to is read of it · held: of a cache, whether its layer keeps it, of a weight, whether the
    model does, not one that it is a module of ·
    trained: of a weight, whether it has a gradient and an optimizer's state, of others, whether it has a gradient (model/gradients) ·
    gradient_bits: of an element of an activation's gradient, 0 = as the activation's own ·
    detached: of an activation, whether its gradient goes to the weights that it is made with alone ·
    crowded: of what tokens are sent to, rank of experts that are chosen unevenly → tokens of those of the accelerator that has most, over
    the mean ·
    access: as its writer, else its first reader, walks it · said: its density as the file says it · numbers: the precision of its elements
    as the file says it."""

    name: str
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    bits: int
    kind: Kind
    density: float = 1.0
    format: Format = "packed"
    scale_bits: float = 0.0
    page: tuple[tuple[str, int], ...] = ()
    routed: bool = False
    held: bool = True
    trained: bool = True
    access: Access | None = None
    said: str | float = 1
    gradient_bits: int = 0
    crowded: tuple[tuple[str, float], ...] = ()
    detached: bool = False
    numbers: str = field(default="", compare=False)

    @property
    def held_bytes(self) -> float:
        """Bytes that are kept of it: whole pages."""
        if not self.held:
            return 0.0
        pages = dict(self.page)
        whole = [-(-size // pages.get(rank, 1)) * pages.get(rank, 1) for rank, size in zip(self.ranks, self.sizes, strict=True)]
        return replace(self, sizes=tuple(whole)).bytes

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of the whole gradient of an activation."""
        if not self.gradient_bits or self.bits == 0:
            return self.bytes
        return replace(self, bits=self.gradient_bits, scale_bits=0.0).bytes

    @cached_property
    def elements(self) -> float:
        """Elements that are not zero."""
        return prod(self.sizes) * self.density

    @cached_property
    def bytes(self) -> float:
        """Bytes of the whole tensor, indices included."""
        if self.bits == 0:
            return 0.0
        if self.format == "dense":
            return prod(self.sizes) * (self.bits + self.scale_bits) / 8
        return self.elements * (self.bits + self.scale_bits) / 8 + self.index_bytes

    @property
    def index_bytes(self) -> float:
        """Bytes that say where the elements are: 0 where the format has no index."""
        if self.bits == 0:
            return 0.0
        return (self.elements * CSR_INDEX_BITS if self.format == "csr" else prod(self.sizes) if self.format == "mask" else 0.0) / 8


@dataclass(frozen=True)
class Serving:
    """Names of the sizes of a decoder's step: sequences, new tokens of each, and tokens that each attends to, the new ones among them.
    skew: exponent of the power law by which tokens choose experts, 0 = evenly · positions: most tokens of a prompt and its answer;
    None: not known."""

    sequences: str
    new: str
    cached: str
    skew: float = 0.0
    positions: int | None = None


@dataclass(frozen=True)
class Op:
    """One operation of the graph."""

    name: str
    statement: Statement
    sizes: AbcMapping[str, int] = field(hash=False, compare=False)

    @cached_property
    def kind(self) -> OpKind:
        """Its row of the op-kind table."""
        return KINDS[self.statement.kind]

    @cached_property
    def out(self) -> Access:
        """What it writes."""
        return self.statement.out

    @cached_property
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

    def batch_index(self, workload: Workload) -> str:
        """The index by which it walks the batch: that one, or one that takes its size; '' where it has none."""
        batch = workload.batch
        return next((i for i in self.indices if batch and batch in (i, workload.aliases.get(i))), "")

    def whole(self, workload: Workload) -> tuple[str, ...]:
        """Indices that nothing splits: the tokens that `append` puts behind those of a cache, of which `last` takes one, what `topk`
        picks from, and along which `scan` goes."""
        return self.contracted if self.kind.whole else self._tokens(workload) if self.kind.ordered else ()

    def _tokens(self, workload: Workload) -> tuple[str, ...]:
        """The index that walks a sequence: but for the batch's, the first of the result that all activations have, weights and what is kept
        of a sequence lack, and the workload's inputs have where one of these does."""
        kept = [access for access in self.ins if workload.tensors[access.tensor].kind in ("weight", "kv_cache")]
        lack = {self.batch_index(workload), *(index for access in kept for index in access.names)}
        each = [index for index in self.out.names if index not in lack and all(index in one.names for one in self.ins if one not in kept)]
        there = {rank for name in workload.inputs for rank in workload.tensors[name].ranks}
        return tuple([index for index in each if index in there] or each)[:1]

    @property
    def contracted(self) -> tuple[str, ...]:
        """Indices that are summed or normalised away."""
        return tuple(i for i in self.indices if i not in self.out.names)


OF_SIZES = frozenset({"name", "ops", "tensors", "sizes", "repeat", "sections", "said", "prompts", "module", "declared"})
"""Fields of a workload that its sizes decide, or that are told of it in another way."""


@dataclass(frozen=True)
class Workload:
    """Operations in dependency order, their tensors, and what is computed of them.

    prompts: a decoder's step as prompts run it, where they run it otherwise · serving: what a decoder's sizes count, None = no decoder ·
    module: of a decoder, what predicts one token further, None = nothing does ·
    product_bits: width in which quantised weights are multiplied, 0 = the wider operand's · product_family: kind of their operands where
    the width does not say it · product_format: that width as the file calls it · said: sizes as the file says them ·
    routing: index of experts → (groups of them, of how many a token's are) ·
    aliases: index → the index whose size it takes (t walks rank s of K) · batch: index that micro-batches split, '' = none can ·
    sections: in sequence; a workload of `einsums` has one, a layer of which is all of ops. The workload of a section has none ·
    repeat: layers of that one section · declared: tensors of which the file says the kind · idle: sentences on what the file says and is
    in no phase.
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
    prompts: Workload | None = None
    serving: Serving | None = None
    product_bits: int = 0
    product_family: str = ""
    product_format: str = ""
    said: dict[str, str | int] = field(default_factory=dict)
    module: Workload | None = None
    routing: dict[str, tuple[int, int]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    idle: tuple[str, ...] = ()

    @cached_property
    def unsized(self) -> Hashable:
        """All that is said of it but its name and what its sizes decide: operations, tensors, and what else there is of each section."""
        own = [getattr(self, one.name) for one in fields(self) if one.name not in OF_SIZES]
        tensors = [(replace(tensor, sizes=(), density=1.0), tensor.numbers) for tensor in self.tensors.values()]
        sections = [(one.name, one.stream_in, one.alone, one.workload.unsized) for one in self.sections]
        beside = [None if one is None else one.unsized for one in (self.prompts, self.module)]
        return tuple(self.ops.items()), tuple(tensors), tuple(sections), tuple(beside), repr(own), tuple(sorted(self.declared))

    @cached_property
    def producer(self) -> dict[str, str]:
        """Tensor → the op that writes it."""
        return {op.out.tensor: op.name for op in self.ops.values()}

    def maker(self, tensor: str) -> Op | None:
        """The operation that writes a tensor; None where none does."""
        return self.ops.get(self.producer.get(tensor, ""))

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """Those of all operations, in order."""
        return tuple(dict.fromkeys(index for op in self.ops.values() for index in op.indices))

    @cached_property
    def products(self) -> list[Op]:
        """The contractions, in order."""
        return [op for op in self.ops.values() if op.kind.name == "einsum"]

    @cached_property
    def ends(self) -> dict[str, Workload]:
        """Input or output of a section → the section's workload, in order."""
        return {name: one.workload for one in self.sections for name in (*one.workload.inputs, *one.workload.outputs)}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Tensor → the ops that read it, in order."""
        found: dict[str, list[str]] = {name: [] for name in self.tensors}
        for op in self.ops.values():
            for access in op.ins:
                if op.name not in found[access.tensor]:
                    found[access.tensor].append(op.name)
        return {name: tuple(ops) for name, ops in found.items()}

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "weight")

    @cached_property
    def joint_weights(self) -> list[list[str]]:
        """Weights that multiply one operand, such as queries', keys' and values', which frameworks keep as one, as they are used."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in self.weights:
            op = self.ops[self.readers[name][0]]
            alone = op.kind.name != "einsum" or len(self.tensors[name].ranks) < 2
            others = (name,) if alone else tuple(access.tensor for access in op.ins if access.tensor != name)
            groups.setdefault(others, []).append(name)
        return list(groups.values())

    @property
    def caches(self) -> tuple[str, ...]:
        """Names of what is kept of a sequence from step to step."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "kv_cache")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are neither weights nor caches."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "input")

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the tensors that nothing reads."""
        return tuple(t.name for t in self.tensors.values() if t.kind == "output")

    @cached_property
    def attended(self) -> frozenset[str]:
        """Indices that walk a cache: those whose size follows from the tokens that a sequence attends to."""
        if self.serving is None:
            return frozenset()
        found = {self.serving.cached}
        while True:
            more = {name for name, said in self.said.items() if size_names(said) & found} - found
            if not more:
                return frozenset(found)
            found |= more

    @cached_property
    def new_tokens(self) -> frozenset[str]:
        """Indices that walk the new tokens of a decoder's step."""
        if self.serving is None:
            return frozenset()
        return frozenset({self.serving.new, *(name for name, of in self.aliases.items() if of == self.serving.new)})

    def sharing(self, weights: Collection[str]) -> Workload:
        """The same where the model that it is a part of holds some weights."""
        mine = {name for name in weights if name in self.tensors and self.tensors[name].kind == "weight"}
        return replace(
            self,
            tensors={name: replace(tensor, held=False) if name in mine else tensor for name, tensor in self.tensors.items()},
            sections=tuple(replace(section, workload=section.workload.sharing(mine)) for section in self.sections),
            prompts=self.prompts.sharing(weights) if self.prompts is not None else None,
        )

    @property
    def layers(self) -> int:
        """Layers that a pipeline can be cut between."""
        return sum(section.repeat for section in self.sections if section.layer)

    @property
    def first_layer(self) -> Section | None:
        """The first section of layers; None where none hands on what it takes."""
        return next((section for section in self.sections if section.layer), None)

    @property
    def backward(self) -> bool:
        """Whether gradients are computed."""
        return "backward" in self.phases

    @property
    def resident(self) -> bool:
        """Whether a step finds its weights where the step before left them: an optimizer updates them there. A run without one starts
        from the machine's memory."""
        return "optimizer" in self.phases

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


def one_section(workload: Workload, repeat: int = 1) -> Workload:
    """A graph as a model of one section of `repeat` layers."""
    layer = replace(workload, repeat=1, sections=())
    section = Section(workload.name, layer, repeat, first_stream(layer, repeat), alone=True)
    return replace(layer, repeat=repeat, sections=(section,))


def streams(section: Workload) -> Iterator[str]:
    """The inputs of a section that move bytes."""
    return (name for name in section.inputs if section.tensors[name].bits > 0)


def streams_like_result(section: Workload) -> Iterator[str]:
    """Those of them that have the shape of what it hands on."""
    handed = section.tensors[section.outputs[-1]]
    return (name for name in streams(section) if _same_sizes(section.tensors[name], handed))


def first_stream(layer: Workload, repeat: int) -> str:
    """The input of an only section that the layer before wrote: of repeated layers the first in the shape of what they hand on (others are
    read by every layer from outside: what a model is conditioned on). '' where there is no input."""
    alike = next(streams_like_result(layer), "") if repeat > 1 else ""
    return alike or next(streams(layer), "")


@dataclass(frozen=True)
class Section:
    """`repeat` equal layers in sequence. workload: one of them, whose input is what the layer before wrote · stream_in: that input, the
    residual stream; '' in a first section that takes none · alone: the only section."""

    name: str
    workload: Workload
    repeat: int
    stream_in: str
    alone: bool = False

    @property
    def layer(self) -> bool:
        """Whether it is a layer of the model: it hands on what it takes, unlike the embedding and the head, or there is no other."""
        if self.alone:
            return True
        if not self.stream_in:
            return False
        return _same_sizes(self.workload.tensors[self.stream_in], self.workload.tensors[self.stream_out])

    @property
    def stream_out(self) -> str:
        """What the section hands on."""
        return self.workload.outputs[-1]


def _same_sizes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape, whatever their indices are called."""
    return len(one.sizes) == len(other.sizes) and all(map(_equal, one.sizes, other.sizes))


def _equal(size: Any, other: Any) -> bool:
    """Whether a size is another: a number, or an array over models of unlike sizes."""
    same = size is other or size == other
    return same if isinstance(same, bool) else bool(same.all())
