"""Tasks: what derivation produces and pricing consumes. Sizes are symbolic in the degrees of the mesh."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rackmodel.model.einsum import Access
from rackmodel.model.layout import Layout, is_shard

Degrees = NDArray[np.int64]  # [n, axes]


@dataclass(frozen=True)
class Touched:
    """Of the experts' weights, those that some token is sent to: 1 − (1 − chance)^tokens of them, where every token picks evenly.

    chance: that a token is sent to an expert · tokens: (size, axes that split it) of the indices that count them."""

    chance: float
    tokens: tuple[tuple[int, tuple[int, ...]], ...]

    def at(self, degrees: Degrees) -> NDArray[np.float64]:
        """[n] expected share of the experts."""
        tokens = np.ones(degrees.shape[:-1])
        for size, axes in self.tokens:
            tokens = tokens * (np.ceil(size / _product(degrees, axes)) if axes else size)
        return np.asarray(-np.expm1(tokens * np.log1p(-np.minimum(self.chance, 1.0 - 1e-12))))


@dataclass(frozen=True)
class Volume:
    """Bytes on one accelerator: `total` divided by the degrees of `axes` (the exact share).

    again: every micro-batch but the first moves them; the figure is the mean of all, 1 − 1/micro-batches of the share ·
    touched: experts' weights, of which only those are read that a token is sent to · among: axes of which some must have more than one
    rank, else nothing is moved; () = it always is."""

    total: float
    axes: tuple[int, ...] = ()
    again: bool = False
    touched: Touched | None = None
    among: tuple[int, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to move (in any of them, where `total` is one for each mesh)."""
        return not (self.total.any() if isinstance(self.total, np.ndarray) else self.total)

    def at(self, degrees: Degrees) -> NDArray[np.float64]:
        """[n] bytes for each mesh, the micro-batches last of its degrees."""
        share = self.total / _product(degrees, self.axes)
        if self.touched is not None:
            share = share * self.touched.at(degrees)
        if self.among:
            share = share * (_product(degrees, self.among) > 1)
        return np.asarray(share * (1.0 - 1.0 / degrees[..., -1]) if self.again else share, dtype=np.float64)


def _product(degrees: Degrees, axes: tuple[int, ...]) -> NDArray[np.int64]:
    """[n] product of the degrees of some axes."""
    if not axes:
        return np.ones(degrees.shape[:-1], dtype=np.int64)
    found = degrees[..., axes[0]]
    for axis in axes[1:]:  # (a product over an axis of the array takes several times as long)
        found = found * degrees[..., axis]
    return np.asarray(found)


def local(total: float, layout: Layout) -> Volume:
    """Bytes of a tensor on one accelerator under a layout."""
    return Volume(total, tuple(axis for axis, placement in enumerate(layout) if is_shard(placement)))


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
        return f"{self.tensor}.state" if self.state else f"d{self.tensor}" if self.gradient else self.tensor


@dataclass(frozen=True)
class Operand:
    """A tensor as one pass of an operation walks it. gradient: its gradient · weight: whether it is a weight."""

    tensor: str
    access: Access
    bits: int
    weight: bool = False
    gradient: bool = False

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
class LocalOp:
    """One pass of one operation over its iteration space.

    reads, writes: what flows in and out · space: (index, size, axes that split it) for each index or flattening · macs: whether
    it multiplies matrices · per_element: vector operations per point of the space · bits: widest operand (of a contraction: of
    its forward pass) · operands, result: accesses of a contraction, for the loop nest · kernel: a named kernel it is a part of
    ('attention forward'), '' = its own · joined: whether its reader goes on in the same kernel (it has no start of its own) ·
    summed: axes of an all-reduce whose kernel goes on with it, so that it has none where they are more than one ·
    family: of a part's `products`, '' = those of its width · kernels: that it runs as · skew: of a product over experts, exponent of the
    power law by which tokens choose them, 0 = evenly · attention: of a contraction of a fused kernel, what its indices count ·
    attended: of a product, whether a fused attention writes its left operand ·
    kind: of a vector operation ('rmsnorm'), '' = it is not told · each: (size, axes that split it) of the indices that count experts,
    where weights differ from one to the next.
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
    kind: str = ""
    each: tuple[tuple[int, tuple[int, ...]], ...] = ()
    summed: tuple[int, ...] = ()
    attended: bool = False

    def starts(self, degrees: Degrees) -> Any:
        """Kernels of its own, which the host launches: one of those of what goes on in another's kernel is that one's."""
        if self.summed and not self.joined:
            return self.kernels - (_product(degrees, self.summed) > 1).astype(np.int64)
        return self.kernels - 1 if self.joined else self.kernels

    def experts(self, degrees: Degrees) -> NDArray[np.float64]:
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
        found |= {axes for volume in volumes if volume.touched is not None for _, axes in volume.touched.tokens}
        return frozenset(axes for axes in found if axes)

    @property
    def sized(self) -> bool:
        """Whether some size is one for each mesh."""
        sizes = [*(size for _, size, _ in self.space), *(flow.volume.total for flow in (*self.reads, *self.writes))]
        return any(isinstance(size, np.ndarray) for size in (*sizes, self.density))

    @property
    def written(self) -> str:
        """What it writes first, as the ledger calls it."""
        return self.writes[0].name

    def exact(self, degrees: Degrees) -> NDArray[np.float64]:
        """[n] points of one accelerator's exact share."""
        points = np.full(degrees.shape[:-1], self.density)
        for _, size, axes in self.space:
            points = points * size / _product(degrees, axes) if axes else points * size
        return np.asarray(points)

    def fullest(self, degrees: Degrees) -> NDArray[np.float64]:
        """[n] points of the fullest accelerator: ceil(size / degree) for each index."""
        points = np.full(degrees.shape[:-1], self.density)
        for _, size, axes in self.space:
            points = points * -(-size // _product(degrees, axes)) if axes else points * size
        return np.asarray(points)


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


def content(value: Any) -> Hashable:
    """A part of a task by which equal ones are known, where sizes are arrays."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if type(value) is tuple:
        return tuple([content(one) if type(one) in HOLDING else one for one in value])
    if type(value) in HOLDING:
        return tuple([content(one) if type(one) in HOLDING else one for one in vars(value).values()])
    return value  # type: ignore[no-any-return]


HOLDING = frozenset({np.ndarray, tuple, Touched, Volume, Flow, LocalOp, Bucketed})
"""Kinds of values that may hold sizes."""


Kind = Literal["op", "collective", "send", "stream", "load", "store"]


@dataclass(frozen=True)
class Task:
    """One thing that takes time. after: tasks it waits for · channel: 'device', 'weights' and 'gradients' (may overlap), 'home' (what a
    home above does while gradients arrive), or 'link' ·
    axes: the group of a collective · action: the collective's name · level: of a home or backing memory, also where an
    operation runs at it ·
    once: a step, not a micro-batch · bucketed: of parameters gathered and gradients reduced, None = a call of its own."""

    kind: Kind
    phase: str
    einsum: str
    tensor: str
    stage: int
    action: str
    after: tuple[int, ...]
    channel: str = "device"
    axes: tuple[int, ...] = ()
    volume: Volume = field(default_factory=lambda: Volume(0.0))
    local_op: LocalOp | None = None
    to_stage: int = 0
    level: str = ""
    layout: Layout = ()
    once: bool = False
    bucketed: Bucketed | None = None

    @property
    def joins(self) -> bool:
        """Whether it only waits for others: a join takes no time and no lane."""
        return self.kind == "op" and self.local_op is None


@dataclass(frozen=True)
class Held:
    """Bytes that one accelerator of a stage holds: what they are, of which tensor, how many.

    working: of one pass of an operation (the largest counts) · remade: recomputed for a layer's backward pass · gathered: a
    layer's parameters while it computes · over: axes without which it is not there, where all of them have one rank; none = it is.
    """

    what: Literal["weights", "gradients", "optimizer", "activations", "kv_cache", "working", "remade", "gathered"]
    tensor: str
    stage: int
    volume: Volume
    level: str = ""
    over: tuple[int, ...] = ()

    def at(self, degrees: Degrees) -> NDArray[np.float64]:
        """[n] bytes for each mesh."""
        size = self.volume.at(degrees)
        return np.asarray(np.where(_product(degrees, self.over) > 1, size, 0.0)) if self.over else size


@dataclass(frozen=True)
class Program:
    """What a plan does: tasks in program order and what is held."""

    tasks: tuple[Task, ...]
    held: tuple[Held, ...]
