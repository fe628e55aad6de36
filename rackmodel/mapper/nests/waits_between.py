"""Operations of regions that wait for gathers, or for other stages: seconds that are least in all need not be least behind each gather.

    pass = max(D, g + R), of D seconds on the device, R of them from the first operation on that waits for what arrives at g
    with other regions >= max(D, g + R - X) >= pass · D / (D + X), whatever g is (D being least)

X is what the operations of regions behind that place take beyond the cycles of their units, where regions across it could trade that for
seconds before it. So for what leaves on another lane once an operation is done and what runs up to there, and between the two
(docs/nest_theory.md, section 7).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.jobs import DEVICE, lanes_of
from rackmodel.cost.step.tasks.layer_inside import PricedLayer
from rackmodel.mapper.nests.found_fusion import Fused, operations, rivals
from rackmodel.mapper.nests.layer_nests import LayerNests


def might_wait_less(inside: LayerNests, options: Sequence[Sequence[Fused]], layer: PricedLayer) -> float:
    """By how much of itself a layer's forward pass might be shorter that waits for other lanes, or they for it. options: the regions that
    may be, of each mesh."""
    places = _places(layer)
    widest = max((_traded(inside, layer, column, regions, places) for column, regions in enumerate(options)), default=0.0)
    widest += layer.overlap.contention if widest else 0.0  # (other seconds on the device, other contention)
    return widest / (1.0 + widest)


def _places(layer: PricedLayer) -> set[tuple[int, bool]]:
    """(number of an operation, whether what is of it and behind it waits for another lane, or what is up to it is waited for there)."""
    lanes = lanes_of(layer.overlap, hide=True)
    real: list[set[int]] = []  # of each task, or what a join stands for
    waits: list[set[int]] = []
    for number, item in enumerate(layer.items):
        waits.append({of for before in item.task.after for of in real[before]})
        real.append(waits[-1] if item.task.joins else {number})
    forward = [n for n, item in enumerate(layer.items) if item.part == "forward" or item.role == "spread"]
    device = [n for n in forward if lanes.of(layer.items[n].role) == DEVICE and layer.items[n].task.kind != "send"]
    found = set()
    for number in sorted({*forward} - {*device}):
        item = layer.items[number]
        behind = [n for n in device if number in waits[n] or (item.role == "spread" and layer.items[n].task.einsum == item.task.einsum)]
        ahead = [n for n in device if n in waits[number]]
        found |= {(min(behind), True)} if behind else set()
        found |= {(max(ahead), False)} if ahead else set()
    return found


def _traded(inside: LayerNests, layer: PricedLayer, column: int, regions: Sequence[Fused], places: set[tuple[int, bool]]) -> float:
    """X of the place where it is most, of all seconds of its stage's device, at one mesh. places: as _places has them."""
    beyond, there, device = dict[int, float](), dict[str, int](), defaultdict[int, float](float)
    for number, item in enumerate(layer.items):
        if item.part == "forward" and item.role == "device" and not item.once:
            device[item.task.stage] += float(item.seconds[column]) - (0.0 if item.hidden is None else float(item.hidden[column]))
            if item.task.local_op is not None and item.task.local_op.writes:
                there[item.task.local_op.written] = number
                beyond[number] = _beyond_cycles(inside, layer, item, column)
    groups = [{there[name] for one in some for name in operations(one) if name in there} for some in rivals(regions)]
    starts, ends = ({place for place, later in places if later == way} for way in (True, False))
    widest = 0.0
    for start, end in [*product(starts, ends), *((start, len(layer.items)) for start in starts), *((0, end) for end in ends)]:
        stage, more = layer.items[start if start in starts else end].task.stage, 0.0
        for some in groups:
            mine = {n for n in some if start <= n <= end}
            more += sum(beyond[n] for n in mine if layer.items[n].task.stage == stage) if mine < some else 0.0
        widest = max(widest, more / device[stage]) if device[stage] > 0 else widest
    return widest


def _beyond_cycles(inside: LayerNests, layer: PricedLayer, item: Item, column: int) -> float:
    """Seconds of an operation beyond the cycles of all units."""
    local_op, seconds = item.task.local_op, float(item.seconds[column])
    if local_op is None or not local_op.macs:
        return seconds
    nest = inside.nest(layer.architecture, local_op, layer.degrees[column])
    cycles = nest.problem.macs * nest.problem.density / (nest.machine.compute.macs_per_s * nest.machine.units)
    return max(0.0, seconds - cycles / nest.runs)
