"""Prices tasks: what one takes on the machine, in joules and seconds, on n columns (a mesh, a pipeline and micro-batches each).

`Pricer.task` is the one place where a task gets its figures. The same lines price one mapping, a list or a grid: degrees and
strides are arrays, and each figure is as wide as what it depends on. What was priced is remembered, so that plans which differ
in one decision share the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.network.algorithms import doing
from rackmodel.cost.program.buckets import call_part
from rackmodel.cost.program.contents import content
from rackmodel.cost.program.fusion import NORMS
from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.program.unnamed import names_beside, numbered_content, numbers_of, unnamed
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.homes import add_rows, adds_by_tier, home_traffic, update_rows
from rackmodel.cost.step.tasks.layer_inside import layer_inside, looks_at_layers
from rackmodel.cost.step.tasks.link_arrays import LinkArrays
from rackmodel.cost.step.tasks.link_pricer import LinkPricer
from rackmodel.cost.step.tasks.shaped_rows import CountedRows, RowsOnShapes, ShapedRows
from rackmodel.cost.step.tasks.token_exchange import crowded, exchanged, goes_back, sent_as
from rackmodel.model.architecture import Architecture
from rackmodel.model.layout import is_shard
from rackmodel.model.plan import Plan
from rackmodel.model.profile import Buckets
from rackmodel.model.workload import Workload
from rackmodel.once import once

MANY = 64  # columns of which some are likely to leave an operation the same shape
SUMMING = ("all_reduce", "reduce_scatter")
HANDED_ON = ("links", "shaped")  # what is known that a pricer of some of the columns goes on from


class Pricer(LinkPricer):
    """Prices tasks of plans that share their axes and stages. workload: for the width of gradients · buckets: a profile's · wider: a
    pricer of these columns among others, and which of them they are."""

    def __init__(
        self,
        setting: Setting,
        workload: Workload,
        plan: Plan,
        columns: Columns,
        buckets: Buckets,
        wider: tuple[Pricer, Ints] | None = None,
    ) -> None:
        super().__init__(setting, workload, plan, columns, wider)
        self.buckets, self.layer_inside = buckets, layer_inside(setting.inside)
        self.sized = any(isinstance(size, np.ndarray) for size in workload.sizes.values())  # each column has sizes of its own
        self.unlike = self.sized or isinstance(setting.links, np.ndarray)  # or facts of a profile, which are columns all at once
        apart = np.any(setting.variation) or np.any(np.asarray(setting.library) != 1.0)
        self.slower: Array | None = self._slower() if apart else None

    def handed_on(self) -> Pricer:
        """This one, without what pricers of some of its columns do not go on from."""
        self.known = {key: value for key, value in self.known.items() if isinstance(key, tuple) and key[0] in HANDED_ON}
        return self

    # -- one task ------------------------------------------------------------------------------------------------------

    def spent(self, task: Task) -> tuple[Array, Array]:
        """Seconds and joules [n] of a task, the sums of its rows."""
        if task.local_op is not None and not task.level and not self._apart(task.local_op):
            shaped, seconds = self._shaped(task.local_op)
            return seconds, shaped.joules
        rows, seconds = self.task(task)
        return seconds, np.asarray(sum((row.joules for row in rows), np.zeros(self.n)))

    def key(self, task: Task) -> tuple[object, ...]:
        """What makes two tasks the same to who prices them."""
        stage = task.stage if self.plan.stage_count > 1 else 0
        where = (task.level, task.layout, stage, task.to_stage, task.summed)
        sizes = (task.volume, task.bucketed, task.local_op)
        around = self.layer_inside.plan  # what an operation takes may be with the others of its plan
        named = (task.kind, task.tensor, task.action, task.axes, goes_back(task))
        return (*named, *(map(content, sizes) if self.unlike else sizes), *where, around)

    def task(self, task: Task) -> tuple[Sequence[Row], Array]:
        """Rows (joules and amounts over all accelerators of the stage) and duration [n] of a task in one micro-batch."""
        if task.kind == "op":
            return self._op(task)
        if task.kind in ("load", "store"):
            return self._backing(task)
        if task.kind == "collective" and self._alone(task.axes):
            return [], np.zeros(self.n)
        task, times = sent_as(self, task)
        volume, fullest = task.volume.both(self.degrees)
        if times is not None:
            volume, fullest = volume * times, fullest * times
        links = self.links(task, fullest)
        rows = link_rows(links, volume, task.tensor, task.action, crowded(self, task, links, fullest))
        if task.kind == "stream":
            rows = self._paced(rows, self._at_home(task, volume))
        return rows, self._duration(rows)

    def _alone(self, axes: tuple[int, ...]) -> bool:
        """Whether no column has more than one rank on some axes. Remembered."""
        return once(self.known, ("alone", axes), lambda: bool((self.degrees[:, axes] == 1).all()))

    def _duration(self, rows: Sequence[Row]) -> Array:
        return np.asarray(sum((row.exposed for row in rows), np.zeros(self.n)))

    def _op(self, task: Task) -> tuple[Sequence[Row], Array]:
        if task.local_op is None:
            return [], np.zeros(self.n)
        if task.level:
            return update_rows(self.architecture, task.level, task.local_op, self.n)
        apart = self._apart(task.local_op)  # (such an operation may have sizes of its own on each column, and is no key)
        if self.wider is not None and not apart and self._wider_has(("shaped", unnamed(task.local_op)[0])):
            return self._shaped(task.local_op)
        on_all = getattr(self.setting.inside, "on_all", None)
        if on_all is not None and self.slower is None and self.n < MANY:
            shared: tuple[list[Row], Array] = on_all(self.architecture, task.local_op, self.degrees, self.per_stage)
            return shared
        if self.n >= MANY and not apart:
            return self._shaped(task.local_op)
        rows, names, duration = self.inside(task.local_op)
        slower = self.slower if task.local_op.macs else None
        if slower is not None:
            duration = duration + sum((row.exposed * slower for row in rows if row.component == "compute"), np.zeros(self.n))
        return CountedRows(rows, names, self.per_stage, slower), duration

    def inside(self, local_op: LocalOp) -> tuple[list[Row], dict[str, str], Array]:
        """Rows of an operation in one accelerator, other names of their tensors, and its duration [n]. Remembered: operations that differ
        in names alone are priced once."""
        inside = self.setting.inside
        if looks_at_layers(inside):  # loop nests know a layer's operations by their names
            rows, duration = inside(self.architecture, local_op, self.degrees)
            return rows, {}, duration
        if self.unlike or local_op.sized:  # such an operation is no key itself
            first, rows, duration = self._once(numbered_content(local_op, numbers_of(local_op)), local_op)
            return rows, names_beside(first, local_op), duration
        alike, names = unnamed(local_op)
        _, rows, duration = self._once(alike, alike)
        return rows, names, duration

    def _once(self, alike: object, local_op: LocalOp) -> tuple[LocalOp, list[Row], Array]:
        """(the first operation of those alike that was asked for, its rows in one accelerator, its duration [n]). Remembered."""
        inside = self.setting.inside
        return once(self.known, ("inside", alike), lambda: (local_op, *inside(self.architecture, local_op, self.degrees)))

    def quantises(self, local_op: LocalOp) -> bool:
        """Whether a kernel of its own quantises the operand of a product, which is priced with it."""
        found = getattr(self.setting.inside, "quantises", None)
        return found is not None and bool(found(self.architecture, local_op, self.degrees))

    def _shaped(self, local_op: LocalOp) -> tuple[ShapedRows, Array]:
        """Rows and duration [n] of an operation, priced once for each shape that the columns leave it."""
        alike, names = unnamed(local_op)
        key = "shaped", alike
        if self.wider is not None and self._wider_has(key):
            rows, which, duration = self.wider[0].known[key]
            which = which[self.wider[1]]
        elif key in self.known:
            rows, which, duration = self.known[key]
        else:
            firsts, which = self._shapes(local_op.splits)
            each, seconds = self.setting.inside(self.architecture, alike, np.asfortranarray(self.degrees[firsts]))
            rows, duration = RowsOnShapes(each, len(firsts)), np.broadcast_to(seconds, len(firsts))
            self.known[key] = rows, which, duration
        found = ShapedRows(rows, names, which, self.per_stage, self.slower if local_op.macs else None)
        return found, duration[which] + found.longer

    def _apart(self, local_op: LocalOp) -> bool:
        """Whether more than an operation's shape tells columns apart: facts or sizes of each, or the operations beside it."""
        inside = self.setting.inside
        return self.sized or local_op.sized or looks_at_layers(inside) or getattr(inside, "of_columns", False)

    def _shapes(self, splits: frozenset[tuple[int, ...]]) -> tuple[Ints, Ints]:
        """(a column of each shape that some splits leave, which shape each column has). Remembered."""
        key = ("shapes", splits)
        if key not in self.known:
            shapes = np.zeros(self.n, dtype=np.int64)
            for number, axes in enumerate(sorted(splits)):
                count, own = self._products(axes)
                shapes = np.unique(shapes * count + own, return_inverse=True)[1] if number else own
            self.known[key] = np.unique(shapes, return_index=True)[1], shapes
        return self.known[key]  # type: ignore[no-any-return]

    def _products(self, axes: tuple[int, ...]) -> tuple[int, Ints]:
        """(how many products of the degrees of some axes there are, [n] which of them each column has, ascending). Remembered."""
        key = ("products", axes)
        if key not in self.known:
            values, own = np.unique(self.degrees[:, axes].prod(axis=1), return_inverse=True)
            self.known[key] = len(values), own
        return self.known[key]  # type: ignore[no-any-return]

    def _slower(self) -> Array:
        """[n] by how much matrix operations take longer, over their seconds: on the slowest in use, by the libraries of their time."""
        setting = self.setting
        return np.asarray((1.0 + setting.variation * slowest_of(self.per_stage * self.stages)) / setting.library - 1.0)

    def _backing(self, task: Task) -> tuple[list[Row], Array]:
        """Every accelerator reads its own copy; an output is written once. Stages of a pipeline share the memory's bandwidth; where runs
        start in several, each serves the accelerators below it."""
        memory = self.architecture.level(task.level).memory
        assert memory is not None
        size = task.volume.at(self.degrees) * (self.per_stage if task.kind == "load" else self._distinct(task))
        energy = memory.read_j_per_byte if task.kind == "load" else memory.write_j_per_byte
        bandwidth = memory.port_bytes_per_s(task.action)
        used = self.architecture.used
        fullest = min(self.architecture.below(task.level), used) / used if memory.backing else 1.0
        seconds = size * self.here * fullest / bandwidth if bandwidth else np.zeros(self.n)
        row = Row(task.tensor, task.level, "memory", task.action, size, "byte", size * energy, seconds, seconds)
        return [row], seconds

    def _distinct(self, task: Task) -> Ints:
        """[n] different shards under a task's layout."""
        spread = [axis for axis, p in enumerate(task.layout[: self.spatial]) if is_shard(p)]
        return np.asarray(self.degrees[:, spread].prod(axis=1))

    # -- a home above ----------------------------------------------------------------------------------------------------

    def _at_home(self, task: Task, volume: Array) -> list[Row]:
        """What the home does for a stream: reads or writes, and the adds that gradients take on their way. Its memory's traffic for
        one stage waits for that of the others."""
        shards = self._distinct(task)
        rows = [home_traffic(self.architecture, task.level, task.tensor, task.action, volume * shards)]
        if task.action == "reduce":
            first = 0.0 if task.summed else 1.0 / self.degrees[:, -1]
            again = np.asarray(1.0 - first)  # the sum so far, from the second micro-batch on
            if again.any():
                rows.append(home_traffic(self.architecture, task.level, task.tensor, "broadcast", volume * shards * again))
            meeting = (self.streaming(task, self.mesh(i, task.stage)) for i in self.firsts)
            each = np.array([adds_by_tier(self.architecture, groups) for groups in meeting]).T[:, self._which]
            rows += add_rows(self.architecture, task.level, task.tensor, each * volume / (self.workload.gradient_bits / 8))
        return [replace(row, seconds=row.seconds * self.here) if row.component == "memory" else row for row in rows]

    def _paced(self, links: list[Row], home: list[Row]) -> list[Row]:
        """Links and the home's memory work at once: the slower of the two sets the pace."""
        port = home_port(home, self.n)
        slow = port > self._duration(links)
        if not slow.any():
            return [*links, *home]
        waits = [replace(row, exposed=np.where(slow, row.seconds, 0.0)) if row.component == "memory" else row for row in home]
        return [*(replace(row, exposed=np.where(slow, 0.0, row.exposed)) for row in links), *waits]

    def port_seconds(self, task: Task, rows: Sequence[Row]) -> Array | None:
        """[n] seconds a stream, or an update there, keeps a home's memory busy whose reads and writes share a port; else None."""
        if task.kind != "stream" and task.channel != "home":
            return None
        if not task.level:
            return None
        memory = self.architecture.level(task.level).memory
        return home_port(rows, self.n) if memory is not None and memory.ports == "shared" else None

    # -- links ---------------------------------------------------------------------------------------------------------

    def links(self, task: Task, volume: Array) -> LinkArrays:
        """What a task costs on the networks: of a collective the fastest of the allowed algorithms for each column (ties: the one
        named first); a ring stands in where none of them can do it. volume: [n] bytes."""
        if task.kind == "send":
            return self.for_all([self.sent(task, i) for i in self.firsts])
        if task.kind == "stream":
            return self.streams(task)
        borne = self._bucketed(task, volume) if task.bucketed is not None else None
        if self.setting.calls is None or not self.architecture.tiers:
            return self._fastest(task, volume, borne)
        return self._called(task, volume, borne)

    def _fastest(self, task: Task, volume: Array, borne: tuple[Array, Array] | None) -> LinkArrays:
        """A collective by the fastest of the allowed algorithms."""
        offers = [self._offer(task, name, borne) for name in doing(task.action, self.setting.algorithms)]
        best, some = offers[0], np.maximum(volume, np.finfo(float).tiny)  # of nothing, one that cannot is not fast
        least = best.seconds(some) if len(offers) > 1 else some
        for other in offers[1:]:
            seconds = other.seconds(some)
            faster = np.asarray(seconds < least * (1 - 1e-12))
            if faster.any():
                best, least = best.replaced(faster, other), np.where(faster, seconds, least)
        cannot = np.asarray(np.isinf(best.seconds_per_byte).any(axis=0))
        best = best.replaced(cannot, self._offer(task, "ring", borne)) if cannot.any() else best
        return replace(best, seconds_per_byte=best.seconds_per_byte / self.setting.links)

    def _called(self, task: Task, volume: Array, borne: tuple[Array, Array] | None) -> LinkArrays:
        """A collective as the profile's library does it, on the columns whose outermost network knows; bytes are those of a ring. Elsewhere
        by the fastest algorithm, which is not looked for where there is none. Steps of one mesh are columns of their volume alone."""
        assert self.setting.calls is not None
        ring, n = self.algorithm(task, "ring"), len(volume)
        ranks, known = np.broadcast_to(self.degrees[:, list(task.axes)].prod(axis=1), (n,)), np.zeros(n, dtype=bool)
        slope, start = np.zeros((2, len(ring.levels), n))
        part, copied = (1.0, 0.0) if borne is None else borne
        whole = volume if borne is None else np.divide(volume, part, out=np.array(volume, dtype=float), where=part > 0)  # of its call
        late = self.setting.calls.asked.waits_s * slowest_of(ranks) if self.setting.calls.asked.waits_s else 0.0
        for tier, level in enumerate(ring.levels):
            here = self.calling(ring.outermost == tier, volume)
            if not here.any():
                continue
            lines = self.setting.calls.lines(level, task.action, self._bits(task), ranks, whole, going_on=self._sums(task))
            here &= lines.known
            slope[tier] = np.where(here, lines.slope / self.setting.links, 0.0)
            start[tier] = np.where(here, (lines.start + late) * part + copied, 0.0)
            known |= here
        found = replace(ring, seconds_per_byte=slope, latency_s=start)
        if not np.all(known | (ranks == 1)):
            found = self._fastest(task, volume, borne).replaced(known, found)
        return exchanged(self, task, volume, ring, found) if self.setting.calls.exchanging is not None else found

    def _sums(self, task: Task) -> bool:
        """Whether a collective sums what a normalisation may go on with: no statistics of one."""
        op = self.workload.maker(task.tensor)
        return task.action == "all_reduce" and (op is None or op.kind.name not in NORMS)

    def _bits(self, task: Task) -> int:
        """Of an element that a collective moves: of the tensor, or of gradients that are summed, whatever their weights have."""
        tensor = self.workload.tensors.get(task.tensor)
        if tensor is None or (tensor.kind == "weight" and task.action in SUMMING):
            return self.workload.gradient_bits
        return tensor.gradient_bits if tensor.gradient_bits and task.phase == "backward" else tensor.bits

    def _bucketed(self, task: Task, volume: Array) -> tuple[Array, Array]:
        """([n] part of a call that a tensor in a bucket bears, its seconds of copies of each rank's part)."""
        assert task.bucketed is not None
        ranks = np.asarray(self.degrees[:, list(task.axes)].prod(axis=1))
        part = call_part(self.buckets, task.bucketed, volume, ranks, self.stages)
        return part, self.buckets.rank_s * ranks * part * (ranks > 1)

    def _offer(self, task: Task, name: str, borne: tuple[Array, Array] | None) -> LinkArrays:
        """A collective by one algorithm; of many tensors in a bucket each bears borne, as `_bucketed` says, of the fixed time."""
        offer = self.algorithm(task, name)
        if borne is None:
            return offer
        part, copied = borne
        outermost = np.arange(len(offer.levels))[:, None] == len(offer.levels) - 1  # latencies of the levels add up
        return replace(offer, latency_s=offer.latency_s * part + np.where(outermost, copied, 0.0))


def slowest_of(accelerators: Ints) -> Array:
    """[n] standard deviations by which the slowest of so many lies from the middle: the expected largest of normal values (Blom 1958)."""
    counts, which = np.unique(accelerators, return_inverse=True)
    return np.array([NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0 for count in counts])[which]


def link_rows(links: LinkArrays, volume: Array, tensor: str, action: str, fullest: Array | None = None) -> list[Row]:
    """A row for each level whose links a message of `volume` [n] bytes uses. fullest: bytes of the accelerator that sets the pace, None =
    all have as many."""
    rows, pace = [], volume if fullest is None else fullest
    for tier, level in enumerate(links.levels):
        wire, seconds = links.wire_bytes_per_byte[tier] * volume, links.seconds_per_byte[tier] * pace + links.latency_s[tier]
        if wire.any() or seconds.any():
            joules = links.joules_per_byte[tier] * volume
            rows.append(Row(tensor, level, "network", action, wire, "byte", joules, seconds, seconds))
    return rows


def home_port(rows: Sequence[Row], n: int) -> Array:
    """[n] seconds that a home's memory is busy with a stream."""
    return np.asarray(sum((row.seconds for row in rows if row.component == "memory"), np.zeros(n)))


def backing_level(architecture: Architecture) -> str:
    """The level above the accelerators whose memory the workload starts and ends in; '' where there is none."""
    return next((level.name for level in architecture.above if level.memory is not None and level.memory.backing), "")
