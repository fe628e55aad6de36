"""What has a gradient: trained weights, what is made of them and, of layers in sequence, what those before hand on where it has one.

What follows frozen weights alone (a frozen encoder, layers below the first that is trained) has none: nothing of it runs backward, and
nothing is kept for that. (Stages of a pipeline hand over both ways all the same: an upper bound of what goes back.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rackmodel.model.workload import Op, Section, Tensor, Workload


def has_gradient(op: Op, position: int, tensors: Mapping[str, Tensor]) -> bool:
    """Whether operand number `position` has a gradient: not a mask, not positions at which a table is read, not a tensor that costs
    nothing, not what is frozen, and of what is detached the weights alone."""
    if (op.kind.name == "dispatch" and position > 0) or (op.kind.name == "lookup" and position == 0):
        return False
    tensor = tensors[op.ins[position].tensor]
    detached = tensors[op.out.tensor].detached and tensor.kind != "weight"
    return tensor.bits > 0 and tensor.trained and not detached


def with_gradients(sections: Sequence[Section]) -> Iterator[Section]:
    """Sections whose activations say whether anything trained is behind them. Layers of one section are alike: where it trains anything,
    the first is handed a gradient on as the others are."""
    handed: bool | None = None
    for section in sections:
        layer = _followed(section, handed)
        made = layer.tensors[section.stream_out].trained
        if made and section.repeat > 1 and section.stream_in:
            layer = _followed(section, True)
        yield replace(section, workload=layer)
        handed = made


def _followed(section: Section, handed: bool | None) -> Workload:
    """A layer where what it takes has a gradient, or not; None: as the file says."""
    tensors = dict(section.workload.tensors)
    if section.stream_in and handed is not None:
        tensors[section.stream_in] = replace(tensors[section.stream_in], trained=handed)
    for op in section.workload.ops.values():
        wanted = any(has_gradient(op, position, tensors) for position in range(len(op.ins)))
        tensors[op.out.tensor] = replace(tensors[op.out.tensor], trained=wanted)
    return replace(section.workload, tensors=tensors)
