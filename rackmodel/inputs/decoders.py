"""A family and a model's numbers → the workload of a decoder's step, put together from blocks (specs/blocks).

Each kind of layer is a section: its attention block reads the residual stream, its feed-forward block hands it on. Names of the second
and later sections end in their number (WQ_2); shared are the tokens, and a table of embeddings that is the head's too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

from rackmodel.inputs.load import load
from rackmodel.inputs.problems import build
from rackmodel.model.einsum import Access, Statement, parse_statement
from rackmodel.model.family import BlockSpec, FamilySpec
from rackmodel.model.sizes import size_names
from rackmodel.model.workload import Op, Workload

SHARED = ("I", "IP", "WE", "WP")
"""Tensors that every section calls by one name."""

NEXT, HEAD = "_next", ("WH",)
"""How names of a module end that predicts one token further, and the weights of the head that it shares."""

STEP: dict[str, str | int] = {"b": 1, "s": 1, "t": 2048}
"""Sizes of a step where nothing says otherwise: one sequence decodes."""


@cache
def block(name: str) -> BlockSpec:
    """A block of the library. Raises InputError."""
    return build(BlockSpec, load("block", name))


@dataclass(frozen=True)
class LayerCount:
    """Layers of one kind, in order of the file."""

    name: str
    blocks: Sequence[str]
    count: int


@dataclass
class _Workload:
    """What is put together. stream: the residual stream as it stands · training: whether for a step of training."""

    sizes: dict[str, Any]
    sections: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)
    stream: str = "X"
    module: dict[str, Any] = field(default_factory=dict)
    training: bool = False

    def add(
        self, name: str, blocks: Sequence[str], suffix: str, repeat: int | None = None, shared: Mapping[str, str] | None = None
    ) -> None:
        """A section of some blocks, one after another. shared: of tensors that are another section's, what they are called there."""
        einsums: dict[str, str] = {}
        prompts: dict[str, str | None] = {}
        renames = {"X": self.stream, "Y": f"Y{suffix}"} if repeat is not None else {"Y": self.stream}
        renames |= shared or {}
        for spec in map(block, blocks):
            mine = {op: text for op, text in spec.einsums.items() if text is not None}
            einsums |= {f"{op}{suffix}": _renamed(text, renames, suffix) for op, text in mine.items()}
            instead = spec.prompts | (spec.training if self.training else {})
            other = {op: text for op, text in instead.items() if text != spec.einsums.get(op)}
            prompts |= {f"{op}{suffix}": None if text is None else _renamed(text, renames, suffix) for op, text in other.items()}
            self.sizes |= spec.sizes
            used = {access.tensor: access.names for text in (*mine.values(), *filter(None, other.values())) for access in accesses(text)}
            for tensor, said in spec.tensors.items():
                if tensor in used:
                    words = said.model_dump(exclude_unset=True, exclude_none=True, exclude=set() if self.training else {"detached"})
                    if "page" in words:  # a window's cache walks another rank than that of the block it extends
                        words["page"] = {rank: size for rank, size in words["page"].items() if rank in used[tensor]}
                    self.tensors.setdefault(_name(tensor, renames, suffix), {}).update(words)
        self.sections[name] = ({"repeat": repeat} if repeat not in (None, 1) else {}) | {"einsums": einsums}
        if prompts:
            self.sections[name]["prompts"] = prompts
        if repeat is not None:
            self.stream = f"Y{suffix}"

    def add_module(self, layer: LayerCount, head: str, *, beside: bool) -> None:
        """What predicts one token further: it joins what the last layer made with that token, runs a layer, and ends in the head. beside:
        it runs in the step of the model, where what the last layer made is a tensor."""
        made = {"H": self.stream} if beside else None
        sections, self.sections, self.stream = self.sections, {}, f"X{NEXT}"
        self.add("join", ["next_token"], NEXT, shared=made)
        self.add(layer.name, layer.blocks, NEXT, 1)
        self.add("head", [head], NEXT, shared={name: name for name in HEAD})
        self.sections, self.module = sections, self.sections

    def used_sizes(self) -> dict[str, Any]:
        """Sizes of a step, and those that are used."""
        return used_sizes(self.sizes, [*self.sections.values(), *self.module.values()], self.tensors, STEP)


def used_sizes(
    sizes: Mapping[str, Any], sections: Sequence[Mapping[str, Any]], tensors: Mapping[str, Any], wanted: Iterable[str] = ()
) -> dict[str, Any]:
    """Of sizes those that operations or densities name, and those that these follow from. wanted: others that stay."""
    found = {index for text in texts_of(sections) for access in accesses(text) for index in access.names} | set(wanted)
    found |= {name for said in tensors.values() for name in size_names(said.get("density", 1))}
    while more := {name for index in found if index in sizes for name in size_names(sizes[index])} - found:
        found |= more
    return {name: value for name, value in sizes.items() if name in found}


def compose_decoder(
    family: FamilySpec,
    sizes: Mapping[str, int],
    layers: Sequence[LayerCount],
    *,
    tied: bool,
    module: LayerCount | None = None,
    ends: str = "",
) -> dict[str, Any]:
    """A workload file's `serving`, `sizes`, `sections`, `tensors` and `mtp`, as plain data. sizes: of the family's indices · tied:
    whether the table of embeddings is the head's · module: the layer of what predicts one token further · ends: what the name of the
    head's block begins with."""
    made = _Workload({**STEP, **sizes}, training=bool(ends))
    made.add("embed", [family.embedding], "")
    for number, kind in enumerate(layers, 1):
        made.add(kind.name, kind.blocks, "" if number == 1 else f"_{number}", kind.count)
    head = f"{ends}{'tied_head' if tied else 'head'}"
    made.add("head", [head], "")
    if module is not None:
        made.add_module(module, head, beside=bool(ends))
    skewed = {"skew": family.skew} if family.skew and "x" in made.used_sizes() else {}
    return {
        "phases": ["forward"],
        "serving": {"sequences": "b", "new": "s", "cached": "t", **skewed},
        "sizes": made.used_sizes(),
        "sections": made.sections,
        "tensors": made.tensors,
        **({"mtp": made.module} if made.module else {}),
    }


def parameters(workload: Workload) -> float:
    """Weights of a model: of every layer its own, a table that two sections read once."""
    found: dict[str, float] = {}
    for section in workload.sections:
        for name in section.workload.weights:
            found[name] = float(prod(section.workload.tensors[name].sizes)) * section.repeat
    return sum(found.values())


def active_parameters(workload: Workload) -> float:
    """Weights by which one token is multiplied: of experts as many as are chosen of all; a table of which it looks up a row counts none
    (as gpt-oss' model card counts: 5.13 of 116.8 billion)."""
    found: dict[str, float] = {}
    for section in workload.sections:
        for op in section.workload.ops.values():
            for access in op.ins if op.kind.inner != "selects" else ():
                tensor = section.workload.tensors[access.tensor]
                if tensor.kind == "weight":
                    own = float(prod(tensor.sizes)) * section.repeat * _chosen(access, op, section.workload)
                    found[access.tensor] = max(found.get(access.tensor, 0.0), own)
    return sum(found.values())


def _chosen(access: Access, op: Op, workload: Workload) -> float:
    """Share of a weight's experts that a token is sent to."""
    if not workload.tensors[access.tensor].routed:
        return 1.0
    others = [other for other in op.ins if workload.tensors[other.tensor].kind != "weight"]
    shared = [other for other in others if set(access.names) & set(other.names) & set(op.out.names)]
    return min((float(workload.tensors[other.tensor].density) for other in shared), default=1.0)


def texts_of(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every statement of some sections, of single tokens' steps and of prompts'."""
    return [text for said in sections for text in (*said["einsums"].values(), *said.get("prompts", {}).values()) if text]


def accesses(text: str) -> tuple[Access, ...]:
    """What a statement writes, and what it reads."""
    statement = parse_statement(text)
    return (statement.out, *statement.ins)


def _renamed(text: str, renames: Mapping[str, str], suffix: str) -> str:
    statement = parse_statement(text)

    def own(access: Access) -> Access:
        return Access(_name(access.tensor, renames, suffix), access.indices)

    return str(Statement(statement.kind, own(statement.out), tuple(map(own, statement.ins)), statement.over))


def _name(tensor: str, renames: Mapping[str, str], suffix: str) -> str:
    if tensor in renames:
        return renames[tensor]
    return tensor if tensor in SHARED else f"{tensor}{suffix}"
