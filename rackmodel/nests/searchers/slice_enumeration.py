"""Enumerate one slice, top down, with every table of the slice as an admissible bound.

A label is a partial mapping: the tile it leaves, energy and port times so far. At each level every choice is priced
under energy and under every port; F(E + bound, max(T + bounds)) must beat the best mapping known. Labels that leave
the same tile keep only the Pareto front. What reaches the compute is offered and recounted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rackmodel.nests.arrays import Bools
from rackmodel.nests.searchers.backtrack import exit_tile, leaf_vectors, tiles_at
from rackmodel.nests.searchers.cost_table import CostTable
from rackmodel.nests.searchers.fan_state import FanState, start
from rackmodel.nests.searchers.mapping_steps import LevelChoice
from rackmodel.nests.searchers.price_blends import BlendLine
from rackmodel.nests.searchers.tile_options import LevelOptions, Tile, options

if TYPE_CHECKING:
    from rackmodel.nests.searchers.slices import SliceSearch

Scaled = tuple[CostTable, float, float]  # a port's table, its seconds per bit, bits already spent


@dataclass(frozen=True)
class Label:
    """Partial mapping: cost vector (energy, then seconds of every port), and its steps."""

    cost: tuple[float, ...]
    steps: tuple[LevelChoice, ...]


Labels = dict[tuple[FanState, Tile], list[Label]]


@dataclass(frozen=True)
class Bounded:
    """What bounds the labels of a slice: the tables of energy and of every port with seconds a bit (1 for energy), lines of both together,
    and the seconds of the compute."""

    tables: Sequence[CostTable]
    scales: Sequence[float]
    lines: Sequence[BlendLine]
    compute_s: float


def enumerate_slice(
    search: "SliceSearch", energy: CostTable, ports: Sequence[Scaled], lines: Sequence[BlendLine], compute_s: float
) -> None:
    """Offer the slice's optimum to `search`. energy: the slice's table · lines: below which no mapping of the slice is."""
    tables, scales = [energy, *(t for t, *_ in ports)], [1.0, *(s for _, s, _ in ports)]
    bounded = Bounded(tables, scales, lines, compute_s)
    space = energy.space
    labels: Labels = {(start(space), search.entry.tile): [Label((0.0, *(s * bits for _, s, bits in ports)), ())]}
    for level in range(1, space.depth):
        found: Labels = {}
        for (state, x), members in labels.items():
            every = [options(t, level, state, x) for t in (*tables, *(line.table for line in lines))]
            for choices in zip(*every, strict=True):
                for label in members:
                    _extend(search, choices, bounded, label, found)
        labels = {key: pareto(members) for key, members in found.items()}
    for (state, x), members in labels.items():
        leaves = [leaf_vectors(t, state, x) for t in tables]
        for i, (_, vector) in enumerate(leaves[0]):
            price = [leaf[i][0] * s for leaf, s in zip(leaves, scales, strict=True)]
            for label in sorted(members, key=lambda m: m.cost):
                total = [a + b for a, b in zip(label.cost, price, strict=True)]
                if search.beats(total[0] + search.constant, max([compute_s, *total[1:]])):
                    search.offer([*label.steps, LevelChoice(vector, (), ())])


def _extend(search: "SliceSearch", choices: Sequence[LevelOptions], bounded: Bounded, label: Label, found: Labels) -> None:
    """Add to `found` every extension of the label whose bounds beat the best mapping: the lines first, as they leave least."""
    count, scales = len(bounded.tables), bounded.scales
    energy, time = label.cost[0] + search.constant, max([bounded.compute_s, *label.cost[1:]])
    fine: Bools | None = None
    if search.best is not None:
        for line, choice in zip(bounded.lines, choices[count:], strict=True):
            passed = line.blend.of(label.cost, scales[1:]) + line.blend.energy * search.constant
            least = np.where(np.isfinite(choice.total), passed + choice.total, 0.0)
            ends = [search.beats(*end) for end in line.corners(energy, time, scales[1:], least)]
            left = np.logical_or.reduce(ends) & np.isfinite(choice.total)
            fine = left if fine is None else fine & left
            if not fine.any():
                return
    _extend_those(search, choices[:count], bounded, label, (found, fine))


def _extend_those(
    search: "SliceSearch", choices: Sequence[LevelOptions], bounded: Bounded, label: Label, into: tuple[Labels, Bools | None]
) -> None:
    """The same by energy and by every port, of the cells that are left (None: all)."""
    found, left = into
    first, total = choices[0], choices[0].total
    scales = bounded.scales
    energy = label.cost[0] + search.constant + total
    time = np.full(total.shape, bounded.compute_s)
    for i in range(1, len(choices)):
        time = np.maximum(time, label.cost[i] + scales[i] * choices[i].total)
    fine = np.isfinite(energy) & np.isfinite(time)
    if left is not None:
        fine &= left
    if search.best is not None:
        fine &= search.beats(np.where(fine, energy, 0), np.where(fine, time, 0))
    own = [np.broadcast_to(c.own, total.shape) for c in choices]
    for s, *cell in zip(*np.nonzero(fine), strict=True):
        at, tile = (s, *cell), tuple(cell)
        cost = tuple(a + k * float(o[at]) for a, k, o in zip(label.cost, scales, own, strict=True))
        step = LevelChoice(int(first.picks[s]), first.plan.order, tiles_at(first.plan, tile, first.entry[s]))
        found.setdefault((first.below, exit_tile(first.plan, tile, first.entry[s])), []).append(Label(cost, (*label.steps, step)))


def pareto(labels: list[Label]) -> list[Label]:
    """Labels no other one dominates; of equal ones the first in order."""
    front: list[Label] = []
    for label in sorted(labels, key=lambda m: m.cost):
        if not any(all(a <= b for a, b in zip(f.cost, label.cost, strict=True)) for f in front):
            front.append(label)
    return front
