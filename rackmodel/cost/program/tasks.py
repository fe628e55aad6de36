"""Tasks: what derivation produces and pricing consumes. Sizes are symbolic in the degrees of the mesh."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array, Ints
from rackmodel.cost.going_on import MostSummed, within
from rackmodel.model.conversion import Step
from rackmodel.model.einsum import Access
from rackmodel.model.layout import Layout, is_shard, rank_split
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Tensor

Degrees = NDArray[np.int64]  # [n, axes]
HASHED, SAID = "hashed", "said"
REMEMBERED = frozenset({HASHED, SAID, "paced", "sized"})
"""What objects remember of themselves, which is no part of what they say."""


class HashedOnce:
    """What remembers its hash, of all it says: it is asked for many times. (A class that is a key has to say so itself: dataclasses make
    one of their own.)"""

    def __hash__(self) -> int:
        known = self.__dict__
        if HASHED not in known:
            known[HASHED] = hash(tuple([known[name] for name in self.__dataclass_fields__]))  # type: ignore[attr-defined]
        return known[HASHED]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in REMEMBERED}  # another process hashes text otherwise


@dataclass(frozen=True)
class Crowd:
    """Experts that are chosen unevenly: of several accelerators that hold a part of them each, the one whose are chosen most has `most`
    times the mean's tokens, and no more than there are."""

    most: float

    def over(self, ranks: Any) -> Any:
        """[n] its tokens over the mean's."""
        return np.where(ranks > 1, np.minimum(self.most, ranks), 1.0)


Cut = tuple[tuple[str, ...], Any, tuple[int, ...]]
"""Ranks of a tensor that axes split together, their size (or the Crowd of what they count), the axes."""


@dataclass(frozen=True)
class Touched:
    """Of the experts' weights, those that some token is sent to: 1 − (1 − chance)^tokens of them, where every token picks evenly.

    chance: that a token is sent to an expert · tokens: (size, axes that split it) of the indices that count them."""

    chance: float
    tokens: tuple[tuple[int, tuple[int, ...]], ...]

    def at(self, degrees: Degrees) -> Array:
        """[n] expected share of the experts."""
        tokens = np.ones(degrees.shape[:-1])
        for size, axes in self.tokens:
            tokens = tokens * (np.ceil(size / _product(degrees, axes)) if axes else size)
        return np.asarray(-np.expm1(tokens * np.log1p(-np.minimum(self.chance, 1.0 - 1e-12))))


@dataclass(frozen=True)
class Volume(HashedOnce):
    """Bytes on one accelerator: `total` divided by the degrees of `axes` (the mean over all of them: times their number, what is there).

    cuts: what axes split that need not divide it, of which the fullest accelerator has ceil(size / degree); () = degrees divide ·
    again: every micro-batch but the first moves them; the figure is the mean of all, 1 − 1/micro-batches of the share ·
    touched: experts' weights, of which only those are read that a token is sent to · among: axes of which some must have more than one
    rank, else nothing is moved; () = it always is · others: axes of whose ranks each but one has it moved once; () = it is moved once ·
    borders: (share of a rank that windows of two neighbours both read, axes that split it): of N elements in p parts, of which o are shared
    at each seam, one part reads (N − o) / p + o."""

    total: float
    axes: tuple[int, ...] = ()
    again: bool = False
    touched: Touched | None = None
    among: tuple[int, ...] = ()
    cuts: tuple[Cut, ...] = ()
    others: tuple[int, ...] = ()
    borders: tuple[tuple[float, tuple[int, ...]], ...] = ()
    __hash__ = HashedOnce.__hash__

    @property
    def empty(self) -> bool:
        """Whether there is nothing to move (in any of them, where `total` is one for each mesh)."""
        return not (self.total.any() if isinstance(self.total, np.ndarray) else self.total)

    def at(self, degrees: Degrees) -> Array:
        """[n] bytes for each mesh, the micro-batches last of its degrees."""
        return self._moved(self.total / _product(degrees, self.axes), degrees)

    def _moved(self, share: Array, degrees: Degrees) -> Array:
        """Of a share, what is moved of it."""
        if self.touched is not None:
            share = share * self.touched.at(degrees)
        for shared, axes in self.borders:
            share = share * (1.0 + (_product(degrees, axes) - 1) * shared)
        if self.among:
            share = share * (_product(degrees, self.among) > 1)
        if self.others:
            share = share * (_product(degrees, self.others) - 1)
        return np.asarray(share * (1.0 - 1.0 / degrees[..., -1]) if self.again else share, dtype=np.float64)

    def fullest(self, degrees: Degrees) -> Array:
        """[n] bytes of the accelerator that has most: it sets the pace, and the room that is needed."""
        return self.both(degrees)[1]

    def both(self, degrees: Degrees) -> tuple[Array, Array]:
        """[n] bytes of one accelerator in the mean, and of the fullest: one array where they are the same."""
        share = self.at(degrees)
        if not self.cuts:
            return share, share
        more = excess(self.cuts, degrees) > 1.0
        if not more.any():
            return share, share
        whole = self.total / _product(degrees, self.axes)
        for _, size, axes in self.cuts:
            ranks = _product(degrees, axes)
            if isinstance(size, Crowd):
                whole = whole * size.over(ranks)
            else:
                whole = np.where(ranks > 1, whole * (np.ceil(size / ranks) * ranks) / size, whole)
        return share, np.where(more, self._moved(whole, degrees), share)


def excess(cuts: tuple[Cut, ...], degrees: Degrees) -> Array:
    """[n] how many times the mean the fullest accelerator has: the product of ceil(size / degree) degree / size, and of what crowds have;
    1 where all divide."""
    more = np.ones(degrees.shape[:-1])
    for _, size, axes in cuts:
        ranks = _product(degrees, axes)
        more = more * (size.over(ranks) if isinstance(size, Crowd) else np.where(ranks > 1, np.ceil(size / ranks) * ranks / size, 1.0))
    return more


def _on_all(figure: Any, degrees: Degrees) -> Array:
    """[n] a figure of all meshes, or of each."""
    shape = degrees.shape[:-1]
    return np.asarray(figure) if np.shape(figure) == shape else np.full(shape, figure, dtype=np.float64)


def _product(degrees: Degrees, axes: tuple[int, ...]) -> Ints:
    """[n] product of the degrees of some axes."""
    if not axes:
        return np.ones(degrees.shape[:-1], dtype=np.int64)
    found = degrees[..., axes[0]]
    for axis in axes[1:]:  # (a product over an axis of the array takes several times as long)
        found = found * degrees[..., axis]
    return np.asarray(found)


def local(total: float, layout: Layout, tensor: Tensor, plan: Plan) -> Volume:
    """Bytes of a tensor on one accelerator under a layout. total: of all of it."""
    return _volume(total, _sharded(layout), cuts_of((layout,), tensor, plan))


def message(total: float, step: Step, tensor: Tensor, plan: Plan) -> Volume:
    """Bytes of a collective's message on one accelerator. Its members send parts of it to one another, as the layouts at both its ends cut
    them: the largest part sets the pace of all, as if each were as large."""
    return _volume(total, _sharded(step.shape), cuts_of((step.shape, step.other), tensor, plan))


def _volume(total: Any, axes: tuple[int, ...], cuts: tuple[Cut, ...]) -> Volume:
    """One object for equal ones, where they are numbers: programs say each many times, and look for each many times."""
    return Volume(total, axes, cuts=cuts) if cuts or isinstance(total, np.ndarray) else _whole_volume(total, axes)


@lru_cache(maxsize=1 << 14, typed=True)
def _whole_volume(total: float, axes: tuple[int, ...]) -> Volume:
    return Volume(total, axes)


@cache
def _sharded(layout: Layout) -> tuple[int, ...]:
    return tuple(axis for axis, placement in enumerate(layout) if is_shard(placement))


def cuts_of(layouts: Sequence[Layout], tensor: Tensor, plan: Plan) -> tuple[Cut, ...]:
    """What layouts together split of a tensor where degrees need not divide it; of a flattening, those of its ranks that the tensor has. An
    even split that names no rank (a sharded home) is of elements, and as good as even. And of the experts that are chosen unevenly."""
    if plan.uneven != "fullest" and not tensor.crowded:
        return ()
    found: dict[tuple[str, ...], set[int]] = {}
    for axis, placements in enumerate(zip(*layouts, strict=True)):
        for rank in dict.fromkeys(rank_split(placement) for placement in placements):
            if rank is None or rank not in tensor.ranks:
                continue
            flat = plan.flat.get(plan.axes[axis], ())
            ranks = tuple(one for one in flat if one in tensor.ranks) if flat and flat[0] == rank else (rank,)
            found.setdefault(ranks, set()).add(axis)
    sized = ((ranks, size_of(ranks, tensor), tuple(sorted(axes))) for ranks, axes in found.items()) if plan.uneven == "fullest" else ()
    crowds = dict(tensor.crowded)
    crowded = ((ranks, Crowd(crowds[ranks[0]]), tuple(sorted(axes))) for ranks, axes in found.items() if ranks[0] in crowds)
    return (*sized, *crowded)


def size_of(ranks: tuple[str, ...], tensor: Tensor) -> Any:
    """Points of some ranks of a tensor."""
    return prod(tensor.sizes[tensor.ranks.index(rank)] for rank in ranks)


@dataclass(frozen=True)
class Flow:
    """What a pass reads or writes of a tensor. gradient: its gradient · state: the optimizer's state of it."""

    tensor: str
    volume: Volume
    gradient: bool = False
    state: bool = False

    @property
    def name(self) -> str:
        """As the ledger calls it: dX is the gradient of X."""
        return flow_name(self.tensor, self.gradient, self.state)


def flow_name(tensor: str, gradient: bool, state: bool) -> str:
    """What the ledger calls a tensor, its gradient, or the optimizer's state of it."""
    return f"{tensor}.state" if state else f"d{tensor}" if gradient else tensor


@dataclass(frozen=True)
class Operand:
    """A tensor as one pass of an operation walks it. weight: whether it is a weight · gradient: its gradient · of_weight: a weight's
    gradient."""

    tensor: str
    access: Access
    bits: int
    weight: bool = False
    gradient: bool = False
    of_weight: bool = False

    @property
    def name(self) -> str:
        """As the ledger calls it: dX is the gradient of X."""
        return f"d{self.tensor}" if self.gradient else self.tensor


@dataclass(frozen=True)
class AttentionRoles:
    """What the indices of a contraction of fused attention count. head, value: elements of a key and of a value · own: which of them this
    contraction sums or makes, as a share of both · latent: whether values are a part of the keys · bits: of keys and values · sliding:
    whether the kernel is told of a window, also where that hides nothing."""

    sequences: tuple[str, ...]
    kv_heads: tuple[str, ...]
    group: tuple[str, ...]
    queries: tuple[str, ...]
    context: tuple[str, ...]
    head: float
    value: float
    own: float
    bits: int
    latent: bool = False
    sliding: bool = False


@dataclass(frozen=True)
class LocalOp(HashedOnce):
    """One pass of one operation over its iteration space.

    reads, writes: what flows in and out · space: (index, size, axes that split it) for each index or flattening · macs: whether
    it multiplies matrices · per_element: vector operations per point of the space · bits: widest operand (of a contraction: of
    its forward pass) · operands, result: accesses of a contraction, for the loop nest · kernel: a named kernel it is a part of
    ('attention forward'), '' = its own · joined: whether its reader goes on in the same kernel (it has no start of its own) ·
    summed: axes of an all-reduce whose kernel goes on with it, so that it has none where they are more than one ·
    family: of a part's `products`, '' = those of its width · kernels: that it runs as · prompted: those that the host launches where a step
    has prompts · skew: of a product over experts, exponent of the
    power law by which tokens choose them, 0 = evenly · attention: of a contraction of a fused kernel, what its indices count ·
    attended: of a product, whether a fused attention writes its left operand ·
    kind: of a vector operation ('rmsnorm'), '' = it is not told · each: (size, axes that split it) of the indices that count experts,
    where weights differ from one to the next · cuts: of a pass over a tensor's elements, how they are split unevenly, of any over
    experts the crowd at those that are chosen most ·
    mean: where the space is that of the fullest accelerator, what the mean one has of it.
    """

    reads: tuple[Flow, ...]
    writes: tuple[Flow, ...]
    space: tuple[tuple[str, int, tuple[int, ...]], ...]
    macs: bool
    per_element: float
    density: float
    bits: int
    operands: tuple[Operand, ...] = ()
    result: Operand | None = None
    kernel: str = ""
    joined: bool = False
    weight_density: float = 1.0
    family: str = ""
    attention: AttentionRoles | None = None
    skew: float = 0.0
    kernels: int = 1
    prompted: int = 1
    kind: str = ""
    each: tuple[tuple[int, tuple[int, ...]], ...] = ()
    summed: tuple[int, ...] = ()
    attended: bool = False
    cuts: tuple[Cut, ...] = ()
    mean: Any = 1.0

    __hash__ = HashedOnce.__hash__

    def starts(self, degrees: Degrees, most: MostSummed | None = None) -> Any:
        """Kernels of its own, which the host launches: one of those of what goes on in another's kernel is that one's. most: (members,
        bytes) of the largest all-reduce that goes on with it, None = any does."""
        if self.summed and not self.joined:
            members = _product(degrees, self.summed)
            goes_on = members > 1 if most is None else within(most, members, self.fullest(degrees) * self.bits / 8)
            return self.kernels - goes_on.astype(np.int64)
        if self.others:
            return self.kernels * (_product(degrees, self.others) > 1)
        return self.kernels - 1 if self.joined else self.kernels

    def experts(self, degrees: Degrees) -> Array:
        """[n] experts of the fullest accelerator that it works on one by one; 1 where it knows none."""
        found = np.ones(degrees.shape[:-1])
        for size, axes in self.each:
            found = found * np.ceil(size / _product(degrees, axes))
        return found

    @property
    def splits(self) -> frozenset[tuple[int, ...]]:
        """Groups of axes the products of whose degrees say all that it knows of a mesh."""
        volumes = [flow.volume for flow in (*self.reads, *self.writes)]
        found = {axes for _, _, axes in self.space} | {axes for _, axes in self.each} | {volume.axes for volume in volumes} | {self.summed}
        found |= {(-1,) for volume in volumes if volume.again} | {volume.among for volume in volumes}
        found |= {volume.others for volume in volumes}
        found |= {axes for volume in volumes if volume.touched is not None for _, axes in volume.touched.tokens}
        found |= {axes for cuts in (self.cuts, *(volume.cuts for volume in volumes)) for _, _, axes in cuts}
        return frozenset(axes for axes in found if axes)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """Axes whose other ranks' parts all that it moves is of: bytes and operations are of each of them, its start is one for all, and
        there is none where there is no other rank; () = of none."""
        found = {flow.volume.others for flow in (*self.reads, *self.writes)}
        return found.pop() if len(found) == 1 else ()

    @cached_property
    def paced(self) -> bool:
        """Whether the fullest accelerator sets the pace of its bytes, too."""
        return bool(self.cuts) or any(flow.volume.cuts for flow in (*self.reads, *self.writes))

    @cached_property
    def sized(self) -> bool:
        """Whether some size is one for each mesh."""
        sizes = [*(size for _, size, _ in self.space), *(flow.volume.total for flow in (*self.reads, *self.writes))]
        return any(isinstance(size, np.ndarray) for size in (*sizes, self.density))

    @property
    def written(self) -> str:
        """What it writes first, as the ledger calls it."""
        return self.writes[0].name

    def points(self, degrees: Degrees) -> tuple[Array, Array]:
        """[n] points of one accelerator's exact share, and of the fullest: ceil(size / degree) for each index."""
        exact: Any = self.density
        fullest: Any = self.density
        for _, size, axes in self.space:
            if axes:
                ranks = _product(degrees, axes)
                exact, fullest = exact * size / ranks, fullest * -(-size // ranks)
            else:
                exact, fullest = exact * size, fullest * size
        if not isinstance(self.mean, float):
            exact = exact * self.mean
        if self.cuts:
            fullest = fullest * excess(self.cuts, degrees)
        if self.others:
            parts = _product(degrees, self.others) - 1
            exact, fullest = exact * parts, fullest * parts
        return _on_all(exact, degrees), _on_all(fullest, degrees)

    def along(self, indices: Collection[str], degrees: Degrees, *, whole: bool = True) -> Any:
        """Points along some indices on the fullest accelerator, ceil(size / degrees of the axes that split it) for each; not `whole`: of an
        even share."""
        points: Any = 1
        for index, size, axes in self.space:
            if index in indices:
                share = size / _product(degrees, axes) if axes else size
                points = points * (np.ceil(share) if axes and whole else share)
        return points

    def exact(self, degrees: Degrees) -> Array:
        """[n] points of one accelerator's exact share."""
        return self.points(degrees)[0]

    def fullest(self, degrees: Degrees) -> Array:
        """[n] points of the fullest accelerator."""
        return self.points(degrees)[1]

    def densest(self, degrees: Degrees) -> Any:
        """Share of the points that are there, on the accelerator whose experts are chosen most."""
        return self.density * excess(self.cuts, degrees) if self.cuts else self.density


@dataclass(frozen=True)
class Bucketed:
    """What calls may put together with a weight or its gradient. share: of the parameters of its layer · layers: of its section ·
    gradient_bytes: of its gradient for each byte that is moved of it · joined: its share of the weights that multiply its operand ·
    elements: of it."""

    share: float
    layers: int
    gradient_bytes: float
    joined: float = 1.0
    elements: float = 1.0


Kind = Literal["op", "collective", "send", "stream", "load", "store"]
NOTHING = Volume(0.0)


@dataclass(unsafe_hash=True)
class Task:
    """One thing that takes time. (Never changed; but frozen ones take long to make, and there are many.)

    after: tasks it waits for · channel: 'device', 'weights' and 'gradients' (may overlap), 'home' (what a
    home above does while gradients arrive), or 'link' ·
    axes: the group of a collective · action: the collective's name · level: of a home or backing memory, also where an
    operation runs at it ·
    once: a step, not a micro-batch · bucketed: of parameters gathered and gradients reduced, None = a call of its own · summed: of a
    gradient streamed to a home above, whether what an earlier pass sent there is added to from the first micro-batch on."""

    kind: Kind
    phase: str
    einsum: str
    tensor: str
    stage: int
    action: str
    after: tuple[int, ...]
    channel: str = "device"
    axes: tuple[int, ...] = ()
    volume: Volume = NOTHING
    local_op: LocalOp | None = None
    to_stage: int = 0
    level: str = ""
    layout: Layout = ()
    once: bool = False
    bucketed: Bucketed | None = None
    summed: bool = False

    @property
    def joins(self) -> bool:
        """Whether it only waits for others: a join takes no time and no lane."""
        return self.kind == "op" and self.local_op is None


Between = Literal["taken", "given", "given in flight", "results"]


@dataclass(unsafe_hash=True)
class Held:
    """Bytes that one accelerator of a stage holds: what they are, of which tensor, how many. (Never changed, as tasks.)

    working: of one pass of an operation (the largest counts) · remade: recomputed for a layer's backward pass · gathered: a
    layer's parameters while it computes · Between: cost/program/kept_between · over: axes without which it is not there, where all of
    them have one rank; none = it is.
    """

    what: Literal["weights", "frozen", "gradients", "optimizer", "activations", "kv_cache", "working", "remade", "gathered"] | Between
    tensor: str
    stage: int
    volume: Volume
    level: str = ""
    over: tuple[int, ...] = ()

    def at(self, degrees: Degrees) -> Array:
        """[n] bytes of the fullest accelerator for each mesh."""
        return self._there(self.volume.fullest(degrees), degrees)

    def mean(self, degrees: Degrees) -> Array:
        """[n] bytes of an accelerator in the mean."""
        return self._there(self.volume.at(degrees), degrees)

    def _there(self, size: Array, degrees: Degrees) -> Array:
        return np.asarray(np.where(_product(degrees, self.over) > 1, size, 0.0)) if self.over else size


@dataclass(frozen=True)
class Program(HashedOnce):
    """What a plan does: tasks in program order and what is held."""

    tasks: tuple[Task, ...]
    held: tuple[Held, ...]
    __hash__ = HashedOnce.__hash__
