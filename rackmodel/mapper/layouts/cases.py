"""Homes and recompute policies on many columns: what no step takes less than whose layouts over one axis are free, under prices.

    seconds >= min over choices (tables + µ · bytes + share of the lanes) − µ · capacity + what no choice changes        (least_steps)

Tables of a column do not depend on the columns beside it, so that columns that were looked at together are not made again to look at
some of them closer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.step.bounds.memory import BUFFERS
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import Job
from rackmodel.mapper.layouts.layer_prices import Openness, Prices, Weights
from rackmodel.mapper.layouts.layer_tables import Fits, Known, LayerTables
from rackmodel.model.mapping import HomeSpec, MapperSpec
from rackmodel.model.plan import MICRO
from rackmodel.model.workload import Section
from rackmodel.watch import Watch

ROUNDING = 1e-9
LANES = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)  # share of the lanes' time in a bound, which is less than the longer of both
IN_TIME = (0.02, 0.04, 0.06, 0.1, 0.2)  # by how much longer than the first bound a step is, or its lanes are done by then
PRICES = tuple(2.0**k for k in range(-5, 4))  # of the whole memory, over the step's seconds
HOSTS = (0.25, 0.5, 0.75, 1.0)  # share of the host's time in a bound of passes, which are no less than either


@dataclass(frozen=True)
class Shape:
    """How one column runs: K (see least_steps), layers of a stage, micro-batches, samples in flight times layers of the first stage, and
    whether backward passes are split in two."""

    times: float
    layers: float
    micro_batches: float
    flying: float
    split: bool


Row = tuple[int, ...]  # what tells columns apart: degrees and strides of both axes, micro-batches and the pipeline
Run = tuple[Row, Shape]


@dataclass(frozen=True)
class Case:
    """One home and policy on all columns: seconds and joules at least, and the tables that a price of memory is looked for in · ends:
    those of what is before and after the layers, with [n] how often their seconds and bytes of a micro-batch count, and their weights'
    bytes · more: seconds beside the tables' · slowed: by which lanes slow the device · fixed: bytes beside the tables' · known: whether the
    home is one that the tables know · capacity: bytes of an accelerator."""

    seconds: Array
    joules: Array
    tables: LayerTables
    ends: tuple[tuple[LayerTables, Array, Array, Array], ...]
    more: Array
    slowed: Array
    fixed: Array
    known: bool
    capacity: float

    @property
    def hosted(self) -> bool:
        """Whether the host may be what passes wait for."""
        return bool(self.tables.host.matters.any())

    def priced(self, which: Ints, shapes: Sequence[Shape], at: Weights, fits: Fits | None = None) -> Array:
        """[prices, columns] seconds of some columns, at least, at each of some prices [prices, columns]."""
        copies, every = len(at.memory), np.tile(which, len(at.memory))
        fitting = fits and {name: np.tile(own, (1, copies)) for name, own in fits.items()}
        price = self.price(list(shapes) * copies, at.flat)
        paid = at.memory * (1.0 - self.fixed[which] / self.capacity) if self.capacity < math.inf else 0.0
        launching = np.array([shape.times for shape in shapes]) * self.tables.host.seconds
        more = self.more[which] + (1.0 - at.host) * self.slowed[which] + at.host * launching
        found = self.tables.least(every, price, fitting, copies).reshape(at.memory.shape) - paid + (1.0 - at.lane) * more
        return np.asarray(found) * (1 - ROUNDING)

    def price(self, shapes: Sequence[Shape], at: Weights) -> Prices:
        """What the tables of a layer weigh in the seconds of a step."""
        times, layers, flying = (np.array([getattr(shape, name) for shape in shapes]) for name in ("times", "layers", "flying"))
        memory, lane, whole = at.memory, at.lane, np.array([not shape.split for shape in shapes])
        each = np.zeros(len(shapes)) + (memory / self.capacity if self.capacity < math.inf else 0.0)
        known = layers * float(self.known)
        return Prices(
            seconds=(1.0 - lane) * (1.0 - at.host) * times,
            host=(1.0 - lane) * at.host * times,
            host_weight=(1.0 - lane) * at.host * times * whole,
            bytes=each * flying,
            update=(1.0 - lane) * known,
            rest=each * known,
            moving=each * BUFFERS * float(self.known),
            lane=lane * known,
        )

    def at_its_best(self, which: Ints, shapes: Sequence[Shape], fits: Fits | None = None) -> tuple[Array, Weights]:
        """Seconds at least under the best of many prices on memory and shares of the lanes' time, and of the host's, and those."""
        none = np.zeros(len(which))
        at = Weights(memory=none, lane=none, host=none)
        (found,) = self.priced(which, shapes, at.times(1), fits)
        scales = {"host": none + 1.0, "lane": none + 1.0, "memory": np.where(np.isinf(found), 1.0, found)}
        tried = {"host": HOSTS if self.hosted else (), "lane": LANES if self.known else (), "memory": PRICES}
        for name, shares in tried.items():
            if shares and (name != "memory" or self.capacity < math.inf):
                prices = np.multiply.outer(shares, scales[name])
                others = self.priced(which, shapes, replace(at.times(len(shares)), **{name: prices}), fits)
                best, found = _better(getattr(at, name), found, prices, others)
                at = replace(at, **{name: best})
        return found, at

    def fitting(self, which: Ints, shapes: Sequence[Shape], found: Array) -> Array:
        """Seconds of some columns, at least, of choices that fit the memory; `found`: those known."""
        none = np.zeros(len(which))
        flying, layers = (np.array([getattr(shape, name) for shape in shapes]) for name in ("flying", "layers"))
        known = float(self.known)
        price = Prices(seconds=none, bytes=flying, update=none, rest=layers * known, moving=none + BUFFERS * known, lane=none)
        held = self.tables.least(which, price) + self.fixed[which]
        found = np.maximum(found, self.at_its_best(which, shapes)[0])
        return np.where(held > self.capacity * (1 + ROUNDING), np.inf, found)

    def in_time(self, which: Ints, shapes: Sequence[Shape], found: Array) -> Array:
        """The same of choices whose lanes are done in time: a step is longer than some time, or its lanes are done by then."""
        least, layers = found, np.array([shape.layers for shape in shapes])
        for more in IN_TIME if self.known else ():
            most = least * (1.0 + more)
            best, _ = self.at_its_best(which, shapes, self.tables.in_time(which, most / layers))
            found = np.maximum(found, np.minimum(most, best))
            if (best < most).all():
                break
        return found


def _better(price: Array, found: Array, prices: Array, others: Array) -> tuple[Array, Array]:
    """(price, seconds) of each column where the first of the `prices` [prices, columns] of the longest `others` are longer than found."""
    first = others.argmax(axis=0)[None]
    longest = np.take_along_axis(others, first, axis=0)[0]
    return np.where(longest > found, np.take_along_axis(prices, first, axis=0)[0], price), np.maximum(found, longest)


@dataclass
class KnownColumns:
    """What is known of columns. bounds: of each · cases: where each of some columns is among those of cases, and these."""

    bounds: dict[Run, float] = field(default_factory=dict)
    cases: list[tuple[dict[Run, int], list[Case]]] = field(default_factory=list)


@dataclass(frozen=True)
class Cases:
    """Makes the cases of columns. layer: the section of equal layers · data, axis: over the batch, and the free one · variants: distinct
    homes (None: one that the tables do not know) and policies · known: those made before."""

    job: Job
    mapper: MapperSpec
    layer: Section
    data: str
    axis: str
    capacity: float
    variants: Sequence[tuple[HomeSpec | None, str]]
    known: KnownColumns
    watch: Watch

    def of(self, each: Sequence[Run]) -> tuple[list[Case], Ints]:
        """(cases, which of their columns are these)."""
        for places, cases in self.known.cases:
            if all(one in places for one in each):
                return cases, np.array([places[one] for one in each], dtype=np.int64)
        cases = self._made(self._columns([row for row, _ in each]), [shape for _, shape in each])
        self.known.cases.append(({one: number for number, one in enumerate(each)}, cases))
        return cases, np.arange(len(each))

    def _made(self, columns: Columns, shapes: Sequence[Shape]) -> list[Case]:
        """Each home and policy on some columns; policies that come to the same once."""
        found: dict[tuple[str, str], Case] = {}
        known: list[Known] = [{} for _ in self.job.workload.sections]  # what tasks cost on these columns
        for home, policy in self.variants:
            tables = [self._tables(x, home, policy, columns, known[x]) for x in range(len(known))]
            key = repr(home), repr([one.recompute for one in tables])
            if key not in found:
                found[key] = self._case(home, tables, columns, shapes)
        return list(found.values())

    def _columns(self, rows: Sequence[Row]) -> Columns:
        said = np.array(rows, dtype=np.int64)
        data, degree, count, data_stride, stride, stages, stage_strides, micro_batch = said.T
        return Columns(
            axes=(self.data, self.axis, MICRO),
            degrees=np.stack([data, degree, count], axis=1),
            strides=np.stack([data_stride, stride, np.ones_like(stride)], axis=1),
            stages=stages,
            stage_strides=stage_strides,
            micro_batch=micro_batch,
            micro_batches=count,
        )

    def _tables(self, number: int, home: HomeSpec | None, policy: str, columns: Columns, known: Known) -> LayerTables:
        section = self.job.workload.sections[number]
        open_ = Openness(
            data=self.data,
            axis=self.axis,
            home=home,
            recompute=policy if section.layer else "none",
            edges=section.layer,
            mapper=self.mapper,
        )
        return LayerTables(self.job, section, columns, open_, known)

    def _case(self, home: HomeSpec | None, every: Sequence[LayerTables], columns: Columns, shapes: Sequence[Shape]) -> Case:
        """One home and policy without a limit on memory. every: the tables of each section."""
        self.watch.say("bounds of free layouts")
        n, profile = len(columns), self.job.profile
        x = self.job.workload.sections.index(self.layer)
        layer = every[x]
        m, layers = (np.array([getattr(shape, name) for shape in shapes]) for name in ("micro_batches", "layers"))
        joules, more, slowed, fixed, moved = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
        ends = []
        for y, tables in enumerate(every):
            seconds, own = tables.alone
            repeat = float(self.job.workload.sections[y].repeat)
            joules = joules + m * repeat * np.where(np.isinf(own), 0.0, own)
            if y != x:  # the last stage has what follows the layers, the first what is before them
                times, held = (repeat * np.where(on | (columns.stages == 1), 1.0, 0.0) for on in (y > x, y < x))
                kept = 0.0 * held if home is None or self._shared(y) else held
                ends.append((tables, m * times, held, kept))
                more, fixed = more + m * times * seconds, fixed + held * tables.least_bytes
        working = [np.where(layer.fits[name], own, np.inf).min(axis=0) for name, own in layer.working.items()]
        fixed = fixed + np.where(np.isinf(most := np.maximum.reduce(working)), 0.0, most)
        if home is not None:
            (ahead, behind), times = layer.least_phases, np.array([shape.times for shape in shapes])
            behind = np.where([shape.split for shape in shapes], 0.0, behind)
            slowed = float(np.min(profile.overlap.contention)) * layer.lanes.slowing(m, layers, times, ahead, behind)
            moved = layers * layer.lanes.of_step(m)
        rest = fixed + (layers * layer.least_rest if home is not None else 0.0)
        least = np.where(rest > self.capacity, np.inf, 0.0)
        case = Case(least, joules, layer, tuple(ends), more, slowed, fixed, home is not None, self.capacity)
        shares = np.multiply.outer((0.0, 1.0) if case.hosted else (0.0,), np.ones(n))
        seconds = case.priced(np.arange(n), shapes, Weights(memory=0.0 * shares, lane=0.0 * shares, host=shares)).max(axis=0)
        return replace(case, seconds=np.maximum.reduce([case.seconds, seconds, moved * (1 - ROUNDING)]))

    def _shared(self, number: int) -> bool:
        """Whether a section shares a weight with another, which a stage that has both holds once."""
        every = [set(section.workload.weights) for section in self.job.workload.sections]
        return any(every[number] & other for y, other in enumerate(every) if y != number)
