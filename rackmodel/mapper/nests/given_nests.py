"""What nests of a mapping file keep on chip, held against each other: what one finds there another has to have left there."""

from __future__ import annotations

from typing import Any

from rackmodel.cost.inside.nest_view import nest_name
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.errors import InputError
from rackmodel.mapper.nests.layer_nests import LayerNests


def check_given(inside: LayerNests) -> None:
    """Raise InputError at the nest of a layer that says of a tensor what those of the others contradict."""
    for op in inside.contractions:
        for name in _kept(inside, op):
            if why := _not_on_chip(inside, name, made=name == op.written):
                raise InputError(f"resident {name}: {why}", path=f"nests.{nest_name(op)}.resident")


def _not_on_chip(inside: LayerNests, name: str, *, made: bool) -> str | None:
    """Why a tensor that a nest says to be resident is not; None where it is. made: whether the nest writes it, else it reads it."""
    readers = _readers(inside, name)
    if not made:
        brought = any(name not in _kept(inside, op) for op in readers)  # by another one, which fetches it
        return None if brought or _stays(inside, name) else "nothing leaves it on chip"
    vectors = [op for op in inside.vectors.values() if any(flow.name == name for flow in op.reads)]
    if not readers and not vectors:
        return "no operation reads it there"
    outside = [op.written for op in readers if name not in _kept(inside, op)]
    outside += [op.written for op in vectors if not _in_place(inside, op)]
    return f"what makes {outside[0]} reads it from memory" if outside else None


def _stays(inside: LayerNests, name: str) -> bool:
    """Whether the operation that writes a tensor leaves it on chip."""
    if name in inside.vectors:
        return all(_stays(inside, flow.name) for flow in inside.vectors[name].reads)
    return any(op.written == name and name in _kept(inside, op) for op in inside.contractions)


def _in_place(inside: LayerNests, vector: LocalOp) -> bool:
    """Whether a contraction finds what an operation between writes on chip."""
    readers = _readers(inside, vector.written)
    return bool(readers) and all(vector.written in _kept(inside, op) for op in readers)


def _readers(inside: LayerNests, name: str) -> list[LocalOp]:
    """Contractions that read a tensor."""
    return [op for op in inside.contractions if any(operand.name == name for operand in op.operands)]


def _kept(inside: LayerNests, op: LocalOp) -> tuple[Any, ...]:
    """Tensors that the nest of a contraction says to be resident."""
    return tuple((inside.given or {}).get(nest_name(op), {}).get("resident", ()))
