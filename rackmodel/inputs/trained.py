"""A decoder's step as a server takes it → the step that trains the model: whole sequences, forward, backward and update.

cache of keys and values    what wrote it is read in its place, every token by every other of its sequence (t = s), or of a window (u = s)
state of a mixer            a sequence begins with none: its scan and convolutions read the sequence alone
prompts' operations         in the place of those of single tokens: latents are expanded
a block's own of training   in the place of both: an indexer has a loss of its own
experts                     tokens are counted by b and s there, too, and experts by x alone, as mappers of training split them
module                      what predicts one token further ends the model beside its head, from what the last layer made (MTP)
widths                      of weights and activations those of mixed precision, whatever a checkpoint was quantised to afterwards
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rackmodel.errors import InputError
from rackmodel.inputs.decoders import accesses, texts_of, used_sizes
from rackmodel.model.einsum import Access, Statement, parse_statement
from rackmodel.model.opkinds import APPEND

SIZES: dict[str, str | int] = {"b": 512, "s": 4096, "t": "s"}
PRECISION = {"activation": "bf16", "weight": "bf16", "gradient": "32 bit", "state": "96 bit"}
PHASES = ["forward", "backward", "optimizer"]
CARRYING = ("scan", "convolve")
"""Operations that carry a state along a sequence."""
KEPT = ("density", "read", "detached")
WIDTHS = {"y": "fx", "p": "fs"}
"""Columns of experts and of those that every token takes, as mappers of training call them."""


def trained_step(step: Mapping[str, Any], *, most_tokens: int | None = None) -> dict[str, Any]:
    """The workload file of a training step as plain data, from that of a decoder's step (`compose_decoder`). most_tokens: of a sequence,
    where a model has no more positions. Raises InputError for layers that share another's cache, and for caches of compressed tokens."""
    step = _module_at_the_end(step)
    step = {**step, "sizes": step["sizes"] | _kept_tokens(step)}
    aliases = _aliases(step)
    renames = aliases | {index: name for index, name in WIDTHS.items() if index in step["sizes"]}
    caches = {name for name, said in step["tensors"].items() if said.get("kind") == "kv_cache"}
    sections = {name: _section(name, said, caches, renames) for name, said in step["sections"].items()}
    used = {access.tensor for text in texts_of(sections.values()) for access in accesses(text)}
    tensors = {name: _tensor(said) for name, said in step["tensors"].items() if name in used}
    sizes = {renames.get(index, index): value for index, value in step["sizes"].items() if index not in aliases} | SIZES
    if most_tokens is not None:
        sizes["s"] = min(sizes["s"], most_tokens)
    return {
        "phases": PHASES,
        "sizes": used_sizes(sizes, list(sections.values()), tensors),
        "sections": sections,
        "tensors": tensors,
    }


def _kept_tokens(step: Mapping[str, Any]) -> dict[str, str]:
    """Indices that walk what a cache keeps of a sequence, all or what a window sees: in training they walk the sequence."""
    written = [parse_statement(text) for text in texts_of(step["sections"].values()) if f" {APPEND}(" in text]
    pairs = [(one.out.names, one.ins[0].names) for one in written]
    found = {kept: "s" for out, tokens in pairs for kept, index in zip(out, tokens, strict=True) if kept != index == "s"}
    if few := next((index for index in found if "/" in str(step["sizes"][index])), None):
        fact = f"a cache of fewer entries than tokens ({step['sizes'][few]}): the training of such layers is not put together here"
        raise InputError(fact, path=f"sizes.{few}")
    return found


def _module_at_the_end(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """The step with the operations of a module in its last section, where pipelines run both."""
    if "mtp" not in step:
        return step
    (*_, end), parts = step["sections"], [*step["mtp"].values()]
    together = {
        table: {op: text for said in (step["sections"][end], *parts) for op, text in said.get(table, {}).items()}
        for table in ("einsums", "prompts")
    }
    return {**step, "sections": {**step["sections"], end: together}}


def _aliases(step: Mapping[str, Any]) -> dict[str, str]:
    """Indices that walk what another walks, by a name of their own → that other's: of routing, whose ranks servers split apart. Not those
    that an operation walks beside the other."""
    sizes = step["sizes"]
    walked = [{index for access in accesses(text) for index in access.names} for text in texts_of(step["sections"].values())]
    named = {index: size for index, size in sizes.items() if isinstance(size, str) and size in sizes}
    return {index: size for index, size in named.items() if not any({index, size} <= indices for indices in walked)}


def _section(name: str, said: Mapping[str, Any], caches: Collection[str], renames: Mapping[str, str]) -> dict[str, Any]:
    texts = {op: text for op, text in {**said["einsums"], **said.get("prompts", {})}.items() if text is not None}
    statements = {op: parse_statement(text) for op, text in texts.items()}
    written = {one.out.tensor: one.ins[0].tensor for one in statements.values() if one.kind == APPEND}
    read = {op: _walked(_reading(name, op, one, caches, written), renames) for op, one in statements.items() if one.kind != APPEND}
    repeat = {key: value for key, value in said.items() if key == "repeat"}
    return repeat | {"einsums": {op: str(read[op]) for op in _in_order(read)}}


def _in_order(statements: Mapping[str, Statement]) -> list[str]:
    """Names of operations, each behind those whose results it reads, else as they come."""
    makers, found = {one.out.tensor: op for op, one in statements.items()}, dict[str, None]()

    def place(op: str) -> None:
        for access in statements[op].ins if op not in found else ():
            if access.tensor in makers:
                place(makers[access.tensor])
        found.setdefault(op)

    for op in statements:
        place(op)
    return list(found)


def _reading(section: str, op: str, one: Statement, caches: Collection[str], written: Mapping[str, str]) -> Statement:
    """The operation, of caches what wrote them. Raises InputError where another layer did."""
    left = [access for access in one.ins if access.tensor in caches and access.tensor not in written]
    if left and one.kind not in CARRYING:
        fact = f"layers of '{section}' read {left[0].tensor}, another layer's cache: their training is not put together here"
        raise InputError(fact, path=f"sections.{section}.einsums.{op}")
    return replace(
        one, ins=tuple(replace(access, tensor=written.get(access.tensor, access.tensor)) for access in one.ins if access not in left)
    )


def _walked(one: Statement, renames: Mapping[str, str]) -> Statement:
    """The operation by the indices of training: tokens are s where they are not attended to by others."""
    every = {index for access in (one.out, *one.ins) for index in access.names}
    walked = ("t",) if one.kind == "lookup" else ("t", "u")  # (what is picked of a sequence is not all of it)
    own = dict(renames) | ({index: "s" for index in walked if index in every} if "s" not in every else {})

    def walk(access: Access) -> Access:
        return Access(access.tensor, tuple(tuple((stride, own.get(index, index)) for stride, index in affine) for affine in access.indices))

    return replace(one, out=walk(one.out), ins=tuple(map(walk, one.ins)), over=tuple(own.get(index, index) for index in one.over))


def _tensor(said: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a tensor in training: how much of it is there and read, and of the head's and the tokens the widths."""
    return {key: value for key, value in said.items() if key in KEPT or (key == "precision" and value in ("0 bit", "32 bit"))}
