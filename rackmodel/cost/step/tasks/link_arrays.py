"""What a collective, a send or a stream costs on the networks, on many columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rackmodel.arrays import Array, Bools, Ints

LINK_FIGURES = ("wire_bytes_per_byte", "joules_per_byte", "seconds_per_byte", "latency_s")


@dataclass(frozen=True)
class LinkArrays:
    """A LinkUse for each of n columns: the figures are [tiers, n]."""

    levels: tuple[str, ...]
    wire_bytes_per_byte: Array
    joules_per_byte: Array
    seconds_per_byte: Array
    latency_s: Array

    def seconds(self, volume: Array) -> Array:
        """[n] seconds of a message of `volume` [n] bytes."""
        return np.asarray((self.seconds_per_byte * volume + self.latency_s).sum(axis=0))

    def joules(self, volume: Array) -> Array:
        """[n] joules of it."""
        return np.asarray((self.joules_per_byte * volume).sum(axis=0))

    def later(self, seconds: Array | float) -> LinkArrays:
        """With so many seconds more ([n], or one for all) of each message, on the outermost tier that carries it."""
        if not np.any(seconds) or not self.levels:
            return self
        tiers = np.arange(len(self.levels))[:, None]
        return replace(self, latency_s=self.latency_s + np.where(tiers == self.outermost, seconds, 0.0))

    def pick(self, which: Ints) -> LinkArrays:
        """Some of the columns, which may come again."""
        return LinkArrays(self.levels, *(getattr(self, f)[:, which] for f in LINK_FIGURES))

    def replaced(self, where: Bools, other: LinkArrays) -> LinkArrays:
        """With another's figures in some columns."""
        if where.all():
            return other
        both = [(getattr(other, figure), getattr(self, figure)) for figure in LINK_FIGURES]
        return LinkArrays(self.levels, *(own if own is theirs else np.where(where, theirs, own) for theirs, own in both))

    @cached_property
    def outermost(self) -> Ints:
        """[n] the outermost tier that carries bytes; -1 for none."""
        used = self.wire_bytes_per_byte > 0
        return np.where(used.any(axis=0), len(used) - 1 - np.argmax(used[::-1], axis=0), -1)
