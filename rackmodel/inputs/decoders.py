"""A family and a model's numbers → the workload of a decoder's step, put together from blocks (specs/blocks).

Each kind of layer is a section: its attention block reads the residual stream, its feed-forward block hands it on. Names of the second
and later sections end in their number (WQ_2); shared are the tokens, and a table of embeddings that is the head's too.
"""

from __future__ import annotations

import re
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
from rackmodel.model.workload_spec import TensorSpec

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


def indices_of(blocks: Iterable[str]) -> set[str]:
    """Indices that blocks walk, and sizes that these follow from."""
    found = set[str]()
    for spec in map(block, blocks):
        found |= {index for text in _texts(spec) for access in accesses(text) for index in access.names}
        found |= {name for said in (*spec.sizes.values(), *(one.density for one in spec.tensors.values())) for name in size_names(said)}
    return found


def _texts(spec: BlockSpec) -> list[str]:
    """Every statement of a block."""
    return [text for table in (spec.einsums, spec.prompts, spec.training) for text in table.values() if text is not None]


@dataclass(frozen=True)
class LayerCount:
    """Layers of one kind, in order of the file. sizes: index → size, of those that are not the model's."""

    name: str
    blocks: Sequence[str]
    count: int
    sizes: Mapping[str, int] = field(default_factory=dict)


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
        self,
        name: str,
        blocks: Sequence[str],
        suffix: str,
        repeat: int | None = None,
        shared: Mapping[str, str] | None = None,
        own: Mapping[str, int] | None = None,
    ) -> None:
        """A section of some blocks, one after another. shared: of tensors that are another section's, what they are called there · own: its
        sizes where they may not be the model's."""
        specs = self._resized([block(one) for one in blocks], own or {}, suffix)
        einsums: dict[str, str] = {}
        prompts: dict[str, str | None] = {}
        renames = {"X": self.stream, "Y": f"Y{suffix}"} if repeat is not None else {"Y": self.stream}
        renames |= shared or {}
        for spec in specs:
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

    def _resized(self, specs: Sequence[BlockSpec], own: Mapping[str, int], suffix: str) -> list[BlockSpec]:
        """Blocks at a section's own sizes: an index whose size is another than before is called as one that has it, else by the section's
        number (f_2), and so is what follows from it."""
        names, suffix = dict[str, str](), suffix or "_1"
        for index, size in own.items():
            alike = (name for name in self.sizes if name == index or name.startswith(f"{index}_"))
            names[index] = next((name for name in alike if self.sizes[name] == size), f"{index}{suffix}" if index in self.sizes else index)
            self.sizes[names[index]] = size
        for index, said in ((index, said) for spec in specs for index, said in spec.sizes.items()):
            if any(names.get(name, name) != name for name in size_names(said)):
                names[index] = f"{index}{suffix}"
        changed = {index: name for index, name in names.items() if index != name}
        return [_walking(spec, changed) for spec in specs] if changed else list(specs)

    def add_module(self, join: str, layer: LayerCount, head: str, *, beside: bool) -> None:
        """What predicts one token further: it joins what the last layer made with that token, runs a layer, and ends in the head. join: its
        first block · beside: it runs in the step of the model, where what the last layer made is a tensor."""
        made = {"H": self.stream} if beside else None
        sections, self.sections, self.stream = self.sections, {}, f"X{NEXT}"
        self.add("join", [join], NEXT, shared=made)
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
    names = [kind.name for kind in layers]
    for number, kind in enumerate(layers, 1):
        name = kind.name if kind.name not in names[: number - 1] else f"{kind.name}_{number}"
        made.add(name, kind.blocks, "" if number == 1 else f"_{number}", kind.count, own=kind.sizes)
    head = f"{ends}{'tied_' if tied else ''}{family.head}"
    made.add("head", [head], "")
    if module is not None:
        made.add_module(family.join, module, head, beside=bool(ends))
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


def _walking(spec: BlockSpec, names: Mapping[str, str]) -> BlockSpec:
    """A block whose indices have other names. names: old → new."""

    def said(text: str | float | int) -> str | float | int:
        return re.sub(r"[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text) if isinstance(text, str) else text

    def table(texts: Mapping[str, str | None]) -> dict[str, str | None]:
        return {op: None if text is None else _by_indices(text, names) for op, text in texts.items()}

    def tensor(one: TensorSpec) -> TensorSpec:
        update = {"density": said(one.density), "page": {names.get(rank, rank): size for rank, size in one.page.items()}}
        return one.model_copy(update={key: value for key, value in update.items() if key in one.model_fields_set})

    return spec.model_copy(
        update={
            "sizes": {names.get(index, index): said(size) for index, size in spec.sizes.items()},
            "einsums": table(spec.einsums),
            "prompts": table(spec.prompts),
            "training": table(spec.training),
            "tensors": {name: tensor(one) for name, one in spec.tensors.items()},
        }
    )


def _by_indices(text: str, names: Mapping[str, str]) -> str:
    """A statement whose indices have other names."""
    statement = parse_statement(text)

    def own(access: Access) -> Access:
        return Access(access.tensor, tuple(tuple((stride, names.get(i, i)) for stride, i in affine) for affine in access.indices))

    over = tuple(names.get(index, index) for index in statement.over)
    return str(Statement(statement.kind, own(statement.out), tuple(map(own, statement.ins)), over))


def _renamed(text: str, renames: Mapping[str, str], suffix: str) -> str:
    statement = parse_statement(text)

    def own(access: Access) -> Access:
        return Access(_name(access.tensor, renames, suffix), access.indices)

    return str(Statement(statement.kind, own(statement.out), tuple(map(own, statement.ins)), statement.over))


def _name(tensor: str, renames: Mapping[str, str], suffix: str) -> str:
    if tensor in renames:
        return renames[tensor]
    return tensor if tensor in SHARED else f"{tensor}{suffix}"
