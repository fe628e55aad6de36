"""What the bounds of a model's free layouts weigh in a layer: prices of a sum over its tables, and what weights do beside the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.model.mapping import HomeSpec, MapperSpec

PARTS = ("forward", "backward", "reduced", "spread", "tail")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Least seconds [n] that a layer's weights keep lanes beside the device busy. forward, backward: gathers of a micro-batch's passes ·
    reduced: reductions of one · spread, tail: gathers and reductions of a step · shared: whether both take turns on one lane."""

    forward: Array
    backward: Array
    reduced: Array
    spread: Array
    tail: Array
    shared: bool

    def busiest(self, gathered: Array, reduced: Array) -> Array:
        """Seconds of the busiest lane."""
        return gathered + reduced if self.shared else np.maximum(gathered, reduced)

    def of_step(self, micro_batches: Array) -> Array:
        """Seconds of the busiest lane in a step, for each layer."""
        return self.busiest(micro_batches * (self.forward + self.backward) + self.spread, micro_batches * self.reduced + self.tail)

    def slowing(self, micro_batches: Array, layers: Any, times: Any, ahead: Array, behind: Array) -> Array:
        """Seconds of a step's passes beside which a lane is busy: those of a stage's layers, and those in which one micro-batch comes
        through the stages beside it, each a first and a last one. times: passes that a step waits for · ahead, behind: seconds of a pass
        forward and behind it; behind is 0 where weights' gradients have passes of their own, of which no more is known than what they take
        together."""
        steady = layers * self._slowing(micro_batches, ahead, behind)
        return np.asarray(steady + (times - micro_batches * layers) * self._slowing(np.ones_like(micro_batches), ahead, behind))

    def _slowing(self, micro_batches: Array, ahead: Array, behind: Array) -> Array:
        """Of one layer's passes in a step."""
        one = np.minimum(ahead, self.forward) + np.minimum(behind, self.busiest(self.backward, self.reduced))
        first = np.minimum(ahead, np.maximum(self.forward, self.spread))
        last = np.minimum(behind, np.maximum(self.busiest(self.backward, self.reduced), self.tail))
        return np.asarray((micro_batches - 1) * one + first + last)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices [columns] of a sum over a layer. seconds, bytes: of a micro-batch · update, lane: seconds of a step, of the optimizer and of
    the lanes beside the device · rest: bytes of weights, gradients and state · moving: of what is gathered or about to be reduced · ahead,
    behind: seconds of a forward pass, and of what follows · host, host_weight: of the host for a micro-batch, those of products that make
    weights' gradients apart; these default 0."""

    seconds: Array
    bytes: Array
    update: Array
    rest: Array
    moving: Array
    lane: Array
    ahead: Array = field(default_factory=lambda: np.zeros(1))
    behind: Array = field(default_factory=lambda: np.zeros(1))
    host: Array = field(default_factory=lambda: np.zeros(1))
    host_weight: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def each(self) -> dict[str, Array]:
        """Kind of figure → its price."""
        return dict(self.__dict__)


@dataclass(frozen=True, eq=False)
class Part:
    """What a layer costs by some variables' values. figures: kind → one dimension a variable, the columns last.

    seconds, bytes   of a micro-batch · ahead, behind: seconds of its forward pass, and of what follows
    remade           bytes made again for a backward pass, beside its workspace
    update           seconds of the optimizer · rest: bytes of weights, gradients and state · moving: of what is gathered or reduced
    lane             seconds of a step that weights keep the lanes beside the device busy, no more than the busiest of them
    host             seconds of the host for a micro-batch · host_weight: those of products that make weights' gradients, which are apart
    """

    variables: tuple[str, ...]
    figures: dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What a bound weighs beside the device's seconds, of columns. memory: seconds for all of it · lane: share of the lanes' time · host:
    share of the host's time, of what lanes leave of passes."""

    memory: Array
    lane: Array
    host: Array

    def times(self, count: int) -> Weights:
        """[count, columns] the same so often."""
        return Weights(**{name: np.tile(own, (count, 1)) for name, own in self.__dict__.items()})

    @property
    def flat(self) -> Weights:
        """All in a row."""
        return Weights(**{name: own.ravel() for name, own in self.__dict__.items()})

    @property
    def none(self) -> Weights:
        """Nothing for as many."""
        return Weights(**{name: 0.0 * own for name, own in self.__dict__.items()})

    def of(self, which: Any) -> Weights:
        """Some of them, apart."""
        return Weights(**{name: own[which].copy() for name, own in self.__dict__.items()})

    def where(self, better: Bools, other: Weights) -> Weights:
        """Others in the place of some."""
        return Weights(**{name: np.where(better, getattr(other, name), own) for name, own in self.__dict__.items()})

    def put(self, which: Any, other: Weights) -> None:
        """Others in the place of some, here."""
        for name, own in self.__dict__.items():
            own[which] = getattr(other, name)


@dataclass(frozen=True, kw_only=True)
class Openness:
    """What is open. data, axis: the axis over the batch, whose degree may be 1, and the free one · home, recompute: of a variant; a home
    None is one of which nothing is known · edges: whether the layer hands on what it is handed in one layout · mapper: which says what
    degrees need not divide."""

    data: str
    axis: str
    home: HomeSpec | None
    recompute: str
    edges: bool
    mapper: MapperSpec
