"""Exact latency, EDP, weighted sums and ties, by slices of equal parallelism.

In a slice (the instances that each fanout keeps busy; the parts they come from are free: 128 and 256 of 132 units, in two waves,
are one) compute time and the instances in use are constants, so energy and the time of every port are additive and the tables of
cost_table.py bound them. A slice is dropped when its bound F(E, T) is not better than the best mapping known: E from the whole space,
then from each of its fanouts (where no line bounds it), then its own optimum; T from its compute time, then from the least time of
every port. What survives is enumerated (slice_enumeration.py). Derivation: docs/nest_theory.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from rackmodel.errors import InfeasibleError
from rackmodel.nests.evaluate import NestCost
from rackmodel.nests.objective import TIE, Key, NestObjective, better
from rackmodel.nests.problem import NestMachine
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.mapping_steps import LevelChoice, NodesAbove, build_mapping
from rackmodel.nests.searchers.mapspace.prices import BitPrices, Component, components, energy_prices
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.tables.backtrack import best_path, optimum, tied_vectors, top
from rackmodel.nests.searchers.tables.cost_table import CostTable
from rackmodel.nests.searchers.tables.node_prices import Allowed
from rackmodel.nests.searchers.tables.price_blends import Blend, BlendLine, shares_of
from rackmodel.nests.searchers.tables.remade import Remade
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.searchers.tables.slice_enumeration import enumerate_slice
from rackmodel.nests.searchers.tables.tile_options import Tile
from rackmodel.nests.solution import Best

TURNS, STEP, POOL = 8, 3.0, 2  # blends tried on a slice, how far the weights of the first move, blends that are kept
WORTH = 0.005  # of the key: what a blend must raise the bound by for the next to be tried
REFINING = 5  # times the cells that the tables may take, once they are made and slices are left
TOGETHER = "energy and times of the slice"
BOUNDS = ("energy of the space", "energy of a fanout", "energy of the slice", TOGETHER, "times of the slice")
Slice = Sequence[int | None]  # per fanout, number of its class of vectors; None leaves the fanout free
Class = tuple[float, tuple[int, ...]]  # instances kept busy, vectors


@dataclass(frozen=True)
class Entry:
    """Where a nest's own loops begin, if not at the whole einsum. tile: that enters · above: nodes of level 1 before it · inside: tensors
    without traffic to level 0 · joules, bits: spent on those nodes, of every port, by one running · remade: loops that run it again ·
    machine: that mappings are recounted on, if not the search's own: what lies above may take more room there than the search knows."""

    tile: Tile
    above: NodesAbove
    inside: frozenset[str]
    joules: float = 0.0
    bits: Mapping[str, float] = field(default_factory=dict)
    remade: Remade = field(default_factory=Remade)
    machine: NestMachine | None = None


class SliceSearch:
    """Search of one Space. best: (key, mapping, cost) or None. pruned: slices by the bound that met them. entry: where it begins (the whole
    einsum, tensors on chip whole) · like: another search of the space, whose tables this one shares · most: key that the best
    must be better than, if it is to be found."""

    def __init__(
        self,
        space: Space,
        objective: NestObjective,
        best: Best | None = None,
        effort: Effort | None = None,
        entry: Entry | None = None,
        like: SliceSearch | None = None,
        tables: SharedTables | None = None,
        most: Key = (np.inf, np.inf),
    ) -> None:
        self.space, self.objective, self.best, self.most = space, objective, best, most
        inside = space.on_chip.tensors
        self.whole = entry is None
        here = tuple((i, space.sizes) for i, t in enumerate(space.tensors) if t.name in inside)
        self.entry = entry or Entry(top(space), NodesAbove(space.groups, here), inside)
        self.energy: CostTable = (
            like.energy if like is not None else CostTable(space, energy_prices(space.machine), effort=effort, tables=tables)
        )
        self.ports: list[tuple[Component, CostTable]] = self._ports() if like is None else like.ports
        self.constant = space.machine.compute.joules(space.problem) + self.entry.joules
        self.pruned = dict.fromkeys(BOUNDS, 0)
        self.blends: list[tuple[Blend, CostTable]] = like.blends if like is not None else []  # energy and times together, as far as needed
        self.lines: dict[tuple[int, ...], BlendLine] = {}  # of slices, as one blend bounds them
        self.shares = [1.0 / max(1, len(self.ports))] * len(self.ports)  # of the latency, as the last blend weighed the ports
        self.floors = (0.0, 0.0)  # (energy, seconds) that no mapping of the space is below, as far as known
        self.open: list[float] = []  # seconds at least of slices that are still to be looked at
        self.closed = self.slices = 0
        self.refined = False
        self.offered: dict[tuple[int, ...], float] = {}  # slice whose least-energy mapping was recounted → its seconds
        self.classes: list[list[Class]] = like.classes if like is not None else [self._classes(f) for f in range(space.depth)]
        self.within: dict[tuple[BitPrices, tuple[int | None, ...]], CostTable] = like.within if like is not None else {}  # slices' tables

    def _ports(self) -> list[tuple[Component, CostTable]]:
        """Every port that takes time, with its table of bits."""
        space = self.space
        return [(c, CostTable(space, c.prices(space.depth), like=self.energy)) for c in components(space.machine)]

    # -- quantities of slices: one class number a fanout
    def _classes(self, fan: int) -> list[Class]:
        """[(instances kept busy, vectors)] of a fanout by instances kept busy, most first: time depends on nothing else of the parts."""
        f = self.space.machine.levels[fan].fan
        parts = np.prod(self.space.vectors[fan], axis=1)
        busy = parts / np.ceil(parts / f.size) if f.linear else parts.astype(float)
        return [(float(n), tuple(np.flatnonzero(busy == n).tolist())) for n in sorted(set(busy.tolist()), reverse=True)]

    def busy(self, slice_: Sequence[int], fans: int) -> float:
        """Instances in use under the first `fans` fanouts."""
        return prod(self.classes[f][slice_[f]][0] for f in range(fans))

    def compute_time(self, busy: Any) -> Any:
        """Seconds of the compute with so many instances busy; a number or an array."""
        p, c = self.space.problem, self.space.machine.compute
        return p.macs * p.density / (c.macs_per_s * busy)

    @property
    def cells(self) -> int:
        """Table cells and mappings priced so far."""
        return self.energy.effort.spent

    def restricted(self, table: CostTable, slice_: Slice) -> CostTable:
        """The table with only the slice's vectors in play; None leaves a fanout free."""
        key = (table.price, tuple(slice_))
        if key not in self.within:
            allowed: Allowed = [None if c is None else self.classes[f][c][1] for f, c in enumerate(slice_)]
            self.within[key] = CostTable(self.space, table.price, allowed, like=table)
        return self.within[key]

    def scale(self, port: Component, slice_: Sequence[int]) -> float:
        """Seconds per bit of a port, over the instances the slice uses."""
        return 1.0 / (port.bandwidth * self.busy(slice_, port.level))

    # -- the search
    def _least(self, table: CostTable) -> float:
        """Least price of all below the tile that enters."""
        return optimum(table, self.entry.tile)

    def _spent(self, port: Component) -> float:
        """Bits through a port on nodes above."""
        return self.entry.bits.get(port.name, 0.0)

    def offer(self, steps: list[LevelChoice]) -> float:
        """Recount the mapping of `steps`, keep it if it is better; its latency."""
        return self.recount(steps).latency_s

    def recount(self, steps: list[LevelChoice]) -> NestCost:
        """The cost of the mapping of `steps`, which is kept if it is better."""
        space = self.space
        mapping = build_mapping(space, steps, self.entry.above)
        cost = self.entry.remade.each(space.original, self.entry.machine or space.machine, mapping, self.entry.inside)
        found = Best.of(self.objective, mapping, cost)
        if better(found.key, self.known):
            self.best = found
        return cost

    def beats(self, energy: Any, latency: Any) -> Any:
        """Could a mapping of this energy and latency (numbers or arrays) be better than the best known?"""
        return better(self.objective.key(energy, latency), self.known) if self.known[0] < np.inf else True

    @property
    def known(self) -> Key:
        """What is to be undercut: the key of the best mapping, or what was asked for."""
        return self.most if self.best is None else self.best.key

    def run(self) -> None:
        """Leave the optimum in `best`; InfeasibleError if the space is empty."""
        least = self._least(self.energy) + self.constant
        if not np.isfinite(least):
            raise InfeasibleError(f"{self.space.original.name} on {self.space.machine.name}: no mapping fits")
        widest = (0,) * self.space.depth
        floor = self.compute_time(self.busy(widest, self.space.depth))
        self.floors = (least, float(floor))
        if not self.beats(least, floor):
            return
        latency = self.offer(best_path(self.energy, self.entry.tile))
        if not self.beats(least, floor) or latency <= floor * (1 + TIE):
            return
        if not self.objective.energy_only and self._widest(widest) > floor * (1 + TIE):
            floor = max([floor, *((self._spent(c) + self._least(t)) * self.scale(c, widest) for c, t in self.ports)])
            self.floors = (least, float(floor))
            if not self.beats(least, floor):
                return
        slices = list(self._tied() if self.objective.energy_only else self._ordered(self._candidates(least, floor), least, floor))
        self.open = [max(float(floor), float(self.compute_time(self.busy(s, self.space.depth)))) for s in slices]
        for slice_ in slices:
            self._slice(slice_, least, floor)
            self.open = self.open[1:]

    def least(self) -> None:
        """Leave a mapping of least energy in `best`, if there is one, however late it is."""
        with self.energy.effort.lifted():
            if np.isfinite(self._least(self.energy)):
                self.offer(best_path(self.energy, self.entry.tile))

    def look_at(self, slice_: tuple[int, ...]) -> None:
        """Leave the best of one slice in `best`, if it is better than what is known."""
        self._slice(slice_, self._least(self.energy) + self.constant, 0.0)

    def _widest(self, widest: tuple[int, ...]) -> float:
        """Seconds of the least-energy mapping of the slice of most instances; inf where it has none."""
        table = self.restricted(self.energy, widest)
        if not np.isfinite(self._least(table)):
            return np.inf
        self.offered[widest] = self.offer(best_path(table, self.entry.tile))
        return self.offered[widest]

    @property
    def bound(self) -> float:
        """Of the primary key, where the search was stopped: what is not looked at, and what was found."""
        energy, seconds = self.floors
        least = float(self.objective.key(energy, min(self.open, default=seconds))[0])
        return least if self.best is None else min(least, self.best.primary)

    def _tied(self) -> Iterable[tuple[int, ...]]:
        """Slices that hold an energy optimum, most busy first."""
        of = [{v: c for c, (_, vectors) in enumerate(classes) for v in vectors} for classes in self.classes]
        tied = {tuple(of[f][i] for f, i in enumerate(v)) for v in tied_vectors(self.energy)}
        self.slices = len(tied)
        return sorted(tied, key=lambda s: (-self.busy(s, self.space.depth), s))

    def _candidates(self, least: float, floor: float) -> Sequence[tuple[int, ...]]:
        """Slices the energy of the whole space does not rule out, fastest compute first."""
        busy = np.ones(())
        for classes in self.classes:
            busy = np.multiply.outer(busy, np.array([c[0] for c in classes]))
        times = np.maximum(self.compute_time(busy), floor)
        keep = self.beats(least, times) & np.ones(busy.shape, dtype=bool)
        self.slices = busy.size
        self.pruned["energy of the space"] += int(busy.size - keep.sum())
        found = np.argwhere(keep)
        order = np.argsort(times[keep], kind="stable")
        return [tuple(int(i) for i in v) for v in found[order]]

    def _ordered(self, slices: Sequence[tuple[int, ...]], least: float, floor: float) -> Sequence[tuple[int, ...]]:
        """Slices by what one blend, of the first that has a mapping, leaves them: a good mapping found early drops most of the others."""
        if len(slices) < 3 or not self.ports:
            return slices
        own = {s: max(floor, float(self.compute_time(self.busy(s, self.space.depth)))) for s in slices}
        first = next((s for s in slices if np.isfinite(self._least(self.restricted(self.energy, s)))), None)
        if first is None:
            return slices
        self._refine()
        if self.whole or not self.blends:
            self._lines(first, least, own[first], self._scales(first))
        key = {}
        for s in slices:
            self.lines[s] = line = self._line(s, *self.blends[-1])
            ends = line.corners(least, own[s], self._scales(s))
            key[s] = min(float(self.objective.key(*end)[0]) for end in ends) if np.isfinite(line.least) else np.inf
        return sorted(slices, key=lambda s: (key[s], own[s], s))

    def _slice(self, slice_: tuple[int, ...], least: float, floor: float) -> None:
        own = float(self.compute_time(self.busy(slice_, self.space.depth)))
        if not self.beats(least, max(own, floor)):
            self.pruned["energy of the space"] += 1
            return
        if not self.objective.energy_only and self._below(slice_, least, max(own, floor)):
            self.pruned[TOGETHER] += 1
            return
        fans = [(f, i) for f, i in enumerate(slice_) if len(self.classes[f]) > 1]
        if self.whole and not self.blends and self.objective.name != "latency" and len(fans) > 1 and slice_ not in self.offered:
            bound = max(self._fan_energy(f, i) for f, i in fans)
            if bound == np.inf or not self.beats(bound, max(own, floor)):
                self.pruned["energy of a fanout"] += 1
                return
        table = self.restricted(self.energy, slice_)
        energy = self._least(table) + self.constant
        if energy == np.inf or not self.beats(energy, max(own, floor)):
            self.pruned["energy of the slice"] += 1
            return
        if slice_ not in self.offered:
            self.offered[slice_] = self.offer(best_path(table, self.entry.tile))
        if self.offered[slice_] <= own * (1 + TIE):
            self.closed += 1
            return
        self._close(table, slice_, energy, own)

    def _close(self, table: CostTable, slice_: tuple[int, ...], energy: float, own: float) -> None:
        """A slice whose least-energy mapping is slower than its compute: bound energy and time together, every port, then enumerate."""
        self._refine()
        scales = self._scales(slice_)
        lines = self._lines(slice_, energy, own, scales)
        if lines is None:
            self.pruned[TOGETHER] += 1
            return
        ports = [(self.restricted(t, slice_), k, self._spent(c)) for (c, t), k in zip(self.ports, scales, strict=True)]
        if not self.beats(energy, max([own, *((bits + self._least(t)) * k for t, k, bits in ports)])):
            self.pruned["times of the slice"] += 1
            return
        enumerate_slice(self, self.entry.tile, table, ports, lines, own)

    def _refine(self) -> None:
        """What the tables may take is more, once they are made and slices are left; branches share what their region may take."""
        if self.whole and not self.refined:
            self.energy.effort.cells *= REFINING
        self.refined = True

    def _line(self, slice_: tuple[int, ...], blend: Blend, table: CostTable) -> BlendLine:
        """The line of a blend for a slice."""
        within = self.restricted(table, slice_)
        above = sum(weight * self._spent(port) for weight, (port, _) in zip(blend.bits, self.ports, strict=True))
        return BlendLine(blend, within, self._least(within) + blend.energy * self.constant + above)

    def _below(self, slice_: tuple[int, ...], energy: float, seconds: float) -> bool:
        """Do the blends that met other slices leave nothing here that is better than what is known?"""
        scales = self._scales(slice_)
        if slice_ in self.lines and not self._leaves(self.lines[slice_], energy, seconds, scales):
            return True
        return any(not self._leaves(self._line(slice_, *one), energy, seconds, scales) for one in reversed(self.blends))

    def _scales(self, slice_: tuple[int, ...]) -> list[float]:
        """Seconds per bit of every port in a slice."""
        return [self.scale(c, slice_) for c, _ in self.ports]

    def _leaves(self, line: BlendLine, energy: float, seconds: float, scales: list[float]) -> bool:
        return any(bool(self.beats(*end)) for end in line.corners(energy, seconds, scales))

    def _lines(self, slice_: tuple[int, ...], energy: float, own: float, scales: list[float]) -> list[BlendLine] | None:
        """The best lines that no mapping of the slice is below; None where one leaves nothing better than what is known. The weights of
        each follow the times of the mapping that is least under the one before."""
        if not self.whole and self.blends:  # those of branches below other tiles, whose tables are there
            there = [self._line(slice_, *one) for one in reversed(self.blends)]
            keys = [min(float(self.objective.key(*end)[0]) for end in line.corners(energy, own, scales)) for line in there]
            best = [there[n] for n in sorted(range(len(there)), key=lambda n: -keys[n])[:POOL]]
            return best if all(self._leaves(line, energy, own, scales) for line in there) else None
        found: list[tuple[float, BlendLine]] = []
        ports, shares = [c for c, _ in self.ports], self.shares
        for turn in range(TURNS if ports else 0):
            blend = self._blend(shares, scales)
            table = CostTable(self.space, blend.prices(energy_prices(self.space.machine), ports), like=self.energy)
            self.blends[:], self.shares = [*self.blends[1 - POOL :], (blend, table)], shares
            line = self._line(slice_, blend, table)
            if not self._leaves(line, energy, own, scales):
                return None
            key = min(float(self.objective.key(*end)[0]) for end in line.corners(energy, own, scales))
            most = max((k for k, _ in found), default=0.5 * key)
            found.append((key, line))
            if key <= most * (1 + WORTH):  # also where every line is 0: no level and no unit says what it draws
                break
            seconds = self.recount(best_path(line.table, self.entry.tile)).times_s
            shares = shares_of([seconds[c.name] for c in ports], shares, STEP / (1 + 0.3 * turn))
        return [line for _, line in sorted(found, key=lambda f: -f[0])[:POOL]]

    def _blend(self, shares: list[float], scales: list[float]) -> Blend:
        """The blend that weighs energy and latency as the objective does at the best mapping; shares: of the latency, by port."""
        at = (1.0, 1.0) if self.best is None else (self.best.cost.energy_j, self.best.cost.latency_s)  # a sum weighs them alike everywhere
        joule, second = self.objective.weights(*at)
        return Blend(joule, tuple(second * share * k for share, k in zip(shares, scales, strict=True)))

    def _fan_energy(self, fan: int, number: int) -> float:
        """Least energy with the parts of one fanout fixed, the others free."""
        chosen: list[int | None] = [None] * self.space.depth
        chosen[fan] = number
        return self._least(self.restricted(self.energy, chosen)) + self.constant
