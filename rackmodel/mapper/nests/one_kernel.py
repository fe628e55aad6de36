"""Operations that one kernel does: those of a fused region, with what makes the tensors that stay on chip for it.

What never leaves a chip is handed on within a kernel, so which operations are one is read off their nests, searched or of a mapping file:
contractions of which one writes and another reads a tensor that stays on chip, and what runs in place between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.cost.step.tasks.fused_kernels import might_be_less
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.layer_inside import PricedLayer
from rackmodel.mapper.nests.found_fusion import Fused, best_set, operations
from rackmodel.mapper.nests.layer_nests import LayerNests
from rackmodel.mapper.nests.nested import Nested
from rackmodel.mapper.nests.waits_between import might_wait_less
from rackmodel.model.architecture import Architecture


def in_place(inside: LayerNests, architecture: Architecture, local_op: LocalOp, degrees: Any) -> tuple[list[LocalOp], list[Nested]]:
    """The contraction that reads what an operation writes and those that make what it reads, with their nests, where it runs on tiles in
    place between them; nothing where it does not."""
    contractions = {op.written: op for op in inside.contractions}
    reader = next((op for op in contractions.values() for x in op.operands if x.name == local_op.written), None)
    makers = [contractions[flow.name] for flow in local_op.reads if flow.name in contractions]
    if reader is None or not makers or len(makers) < len(local_op.reads):
        return [], []
    nests = [inside.nest(architecture, op, degrees) for op in (reader, *makers)]
    on_chip = {name for nest in nests for name in nest.resident}
    return ([reader, *makers], nests) if {local_op.written, *(flow.name for flow in local_op.reads)} <= on_chip else ([], [])


def firsts_of(inside: LayerNests, architecture: Architecture, degrees: Any) -> dict[str, str]:
    """What each fused operation writes → what the first of its kernel writes, at one mesh's degrees."""
    order = [op.written for op in inside.around.local_ops if op.writes]
    first = {name: name for name in order}
    for one, other in _handed_on(inside, architecture, degrees):
        a, b = sorted((first[one], first[other]), key=order.index)
        first = {name: a if of == b else of for name, of in first.items()}
    several = {of for name, of in first.items() if name != of}
    return {name: of for name, of in first.items() if of in several}


def _handed_on(inside: LayerNests, architecture: Architecture, degrees: Any) -> Iterator[tuple[str, str]]:
    """What two operations write of which one hands on to the other what stays on chip."""
    kept = {op.written: set(inside.nest(architecture, op, degrees).resident) for op in inside.contractions}
    for reader in inside.contractions:
        for operand in reader.operands:
            if operand.name in kept and operand.name in kept[operand.name] & kept[reader.written]:
                yield operand.name, reader.written
    for vector in inside.vectors.values():
        for contraction in in_place(inside, architecture, vector, degrees)[0]:
            yield vector.written, contraction.written


def most_launches_saved(options: Sequence[Fused], launches: Mapping[str, float], longer: float) -> float:
    """What disjoint regions save at most of the host's launches. launches: by what an operation writes · longer: of a kernel."""
    each = {one: [launches.get(name, 0.0) for name in operations(one)] for one in options}
    saves = {one: sum(some) - min(max(some), longer) for one, some in each.items()}
    return sum(saves[one] for one in best_set([one for one in options if saves[one] > 0], saves))


def might_be_shorter(inside: LayerNests, layer: PricedLayer) -> float:
    """By how much of itself a layer might be shorter, were others fused; nests were chosen that hold the device least."""
    options = [inside.may_fuse(layer.architecture, row) for row in layer.degrees]
    if not any(options):
        return 0.0
    launched = might_be_less(layer.items, layer.host, layer.overlap, _saved(options, layer))
    return 1.0 - (1.0 - launched) * (1.0 - might_wait_less(inside, options, layer))


def _saved(options: Sequence[Sequence[Fused]], layer: PricedLayer) -> Array:
    """[n] launches that regions save at most beyond those that were chosen. options: of each mesh."""
    forward = [(item, alone) for item, alone in zip(layer.items, layer.alone, strict=True) if _forward(item)]
    names = [item.task.local_op.written for item, _ in forward if item.task.local_op is not None]
    own, now = (_of_columns(one, len(options)) for one in ([alone for _, alone in forward], [item.launches for item, _ in forward]))
    saved = np.zeros(len(options))
    for column, regions in enumerate(options):
        each = dict(zip(names, own[:, column].tolist(), strict=True))
        most = most_launches_saved(regions, each, layer.architecture.launching)
        saved[column] = max(0.0, most - float((own - now)[:, column].sum()))
    return saved


def _forward(item: Item) -> bool:
    """Whether it is an operation of the forward pass that writes something."""
    return item.part == "forward" and item.task.local_op is not None and bool(item.task.local_op.writes)


def _of_columns(figures: Sequence[Any], n: int) -> Array:
    """[figures, n], of figures for each column or for all."""
    return np.array([np.broadcast_to(np.asarray(one, dtype=float), n) for one in figures]).reshape(-1, n)
