"""Enumerate one slice, top down, with every table of the slice as an admissible bound.

A label is a partial mapping: the tile it leaves, energy and port times so far. At each level every choice is priced
under energy and under every port; F(E + bound, max(T + bounds)) must beat the best mapping known. Labels that leave
the same tile keep only the Pareto front. What reaches the compute is offered and recounted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.nests.objective import Key
from rackmodel.nests.searchers.mapspace.fan_state import FanState, start
from rackmodel.nests.searchers.mapspace.mapping_steps import LevelChoice
from rackmodel.nests.searchers.tables.backtrack import exit_tile, leaf_vectors, tiles_at
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.price_blends import BlendLine
from rackmodel.nests.searchers.tables.tile_options import Cells, LevelOptions, Tile, entries, options

Scaled = tuple[CostTable, float, float]  # a port's table, its seconds per bit, bits already spent


class Asking(Protocol):
    """The search whose slice this is: what must be beaten, and who takes what is found. constant: joules of every mapping."""

    constant: float

    @property
    def known(self) -> Key: ...

    def beats(self, energy: Any, latency: Any) -> Any: ...

    def offer(self, steps: list[LevelChoice]) -> float: ...


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
    search: Asking, tile: Tile, energy: CostTable, ports: Sequence[Scaled], lines: Sequence[BlendLine], compute_s: float
) -> None:
    """Offer the slice's optimum to `search`. tile: that enters · energy: the slice's table · lines: what no mapping of it is below."""
    tables, scales = [energy, *(t for t, *_ in ports)], [1.0, *(s for _, s, _ in ports)]
    bounded = Bounded(tables, scales, lines, compute_s)
    space = energy.space
    labels: Labels = {(start(space), tile): [Label((0.0, *(s * bits for _, s, bits in ports)), ())]}
    for level in range(1, space.depth):
        found: Labels = {}
        for (state, x), members in labels.items():
            left = _vectors_left(search, bounded, (level, state, x), members)
            every = [options(t, level, state, x, left) for t in (*tables, *(line.table for line in lines))]
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


def _vectors_left(search: Asking, bounded: Bounded, at: tuple[int, FanState, Tile], members: Sequence[Label]) -> Bools | None:
    """[vectors] those of which the lines leave something that is better than the best mapping, below some label; None: all."""
    if search.known[0] == np.inf or not bounded.lines:
        return None
    count = len(bounded.lines[0].table.space.vectors[at[0] - 1])
    least = np.full((len(bounded.lines), count), np.inf)
    for price, line in zip(least, bounded.lines, strict=True):
        for found in entries(line.table, *at):
            price[found.picks] = found.price
    left = np.zeros(count, dtype=bool)
    for label in members:
        left |= np.logical_and.reduce([_line_leaves(search, bounded, label, *one) for one in zip(bounded.lines, least, strict=True)])
    return left


def _line_leaves(search: Asking, bounded: Bounded, label: Label, line: BlendLine, least: Array) -> Bools:
    """Of what a line's table says below a label: which of it the line leaves."""
    energy, time = label.cost[0] + search.constant, max([bounded.compute_s, *label.cost[1:]])
    passed = line.blend.of(label.cost, bounded.scales[1:]) + line.blend.energy * search.constant
    some = np.isfinite(least)
    ends = line.corners(energy, time, bounded.scales[1:], np.where(some, passed + least, 0.0))
    return np.asarray(np.logical_or.reduce([search.beats(*end) for end in ends]) & some)


def _extend(search: Asking, choices: Sequence[LevelOptions], bounded: Bounded, label: Label, found: Labels) -> None:
    """Add to `found` every extension of the label whose bounds beat the best mapping: the lines first, as they leave least."""
    count, scales = len(bounded.tables), bounded.scales
    cells = _cells_left(search, choices, bounded, label)
    if not len(cells[0]):
        return
    own, total = (np.array(of) for of in zip(*(choice.at(cells) for choice in choices[:count]), strict=True))
    energy = label.cost[0] + search.constant + total[0]
    time = np.full(len(energy), bounded.compute_s)
    for i in range(1, count):
        time = np.maximum(time, label.cost[i] + scales[i] * total[i])
    fine = np.isfinite(energy) & np.isfinite(time)
    fine &= search.beats(np.where(fine, energy, 0), np.where(fine, time, 0))
    first = choices[0]
    for n in np.flatnonzero(fine):
        s, *cell = (int(of[n]) for of in cells)
        cost = tuple(a + k * float(o[n]) for a, k, o in zip(label.cost, scales, own, strict=True))
        step = LevelChoice(int(first.picks[s]), first.plan.order, tiles_at(first.plan, tuple(cell), first.entry[s]))
        found.setdefault((first.below, exit_tile(first.plan, tuple(cell), first.entry[s])), []).append(Label(cost, (*label.steps, step)))


def _cells_left(search: Asking, choices: Sequence[LevelOptions], bounded: Bounded, label: Label) -> Cells:
    """The legal cells that the lines leave below a label, in their order."""
    lines = list(zip(bounded.lines, choices[len(bounded.tables) :], strict=True))
    if search.known[0] == np.inf or not lines:
        return np.nonzero(np.isfinite(choices[0].total))
    line, choice = lines[0]
    cells = np.nonzero(_line_leaves(search, bounded, label, line, choice.total))
    for line, choice in lines[1:]:
        left = _line_leaves(search, bounded, label, line, choice.at(cells)[1])
        cells = tuple(of[left] for of in cells)
    return cells


def pareto(labels: list[Label]) -> list[Label]:
    """Labels no other one dominates; of equal ones the first in order."""
    front: list[Label] = []
    for label in sorted(labels, key=lambda m: m.cost):
        if not any(all(a <= b for a, b in zip(f.cost, label.cost, strict=True)) for f in front):
            front.append(label)
    return front
