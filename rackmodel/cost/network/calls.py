"""Collectives as a library's kernels do them, by the facts of a network (`model/calls`), where it has any for the group.

    T(V) = start + V / rate     of the kernel for V; between two measured numbers of members T is on the line between theirs,
                                beyond the largest (to twice it) the start goes on as a line and V / rate as a ring's share of V

The share of a ring: 2 (p - 1) / p of an all-reduce, (p - 1) / p of the others. A library that lacks a collective leaves it to NCCL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rackmodel.arrays import Array, Bools
from rackmodel.cost.going_on import within
from rackmodel.errors import InputError
from rackmodel.model.calls import KNOWN_EXCHANGES, KNOWN_LIBRARIES, Calls, CallTimes, GoingOn, LibraryCall
from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED, RELAYED, ExchangeMode, ExpertExchange

Whole = NDArray[np.int64]

FALLBACK = "nccl"
"""Who does what a library lacks."""

BEYOND = 2
"""Members that facts stand for: as many times the most that were measured."""


@dataclass(frozen=True)
class CallLines:
    """Of n calls: slope [n] s/byte and start [n] s at their messages · known: [n] whether facts say so."""

    slope: Array
    start: Array
    known: Bools

    def seconds(self, volume: Array) -> Array:
        """[n] seconds."""
        return np.asarray(self.slope * volume + self.start)


@dataclass(frozen=True)
class MachineCalls:
    """A machine's facts and the library that is asked for. levels: name of a network's level → library → its collectives · exchanges: the
    same of how tokens are sent to experts · going_on: level → whose all-reduces go on with a normalisation, where the library leaves them.
    Raises InputError for a library that neither the machine's networks nor ours know, for a release of it that they do not know where
    they know the library, and for an exchange that none of them knows."""

    levels: Mapping[str, Mapping[str, Sequence[Calls]]]
    asked: LibraryCall
    exchanges: Mapping[str, Mapping[str, Sequence[ExpertExchange]]] = field(default_factory=dict)
    going_on: Mapping[str, GoingOn] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = list(dict.fromkeys((*(library for libraries in self.levels.values() for library in libraries), *KNOWN_LIBRARIES)))
        library, release = self.asked.library, self.asked.release
        if library not in known:
            raise InputError(f"no collectives of '{library}' are known", path="profile.collectives.library", known=known, given=library)
        own = [one for libraries in self.levels.values() for one in libraries.get(library, ())]
        releases = list(dict.fromkeys(name for one in own for name in one.releases))
        if own and release is not None and release not in releases:
            fact = f"no collectives of {library} {release} are known here"
            raise InputError(fact, path="profile.collectives.release", known=releases, given=release)
        here, words = self.ways, (self.asked.exchange or "").split()
        unknown = next((word for word in words if word not in here and (len(words) == 1 or word not in KNOWN_EXCHANGES)), None)
        if unknown is not None or (words and not set(words) & set(here)):
            fact = f"no exchange of tokens by '{unknown or self.asked.exchange}' is known here"
            raise InputError(fact, path="profile.collectives.exchange", known=here, given=unknown or words[0])

    @cached_property
    def ways(self) -> list[str]:
        """Exchanges of tokens that are known here: those of these networks, and those that need none."""
        return [GATHERED, RELAYED, ALL_TO_ALL, *dict.fromkeys(name for libraries in self.exchanges.values() for name in libraries)]

    @cached_property
    def exchanging(self) -> str | None:
        """The exchange of tokens that is asked for: the first that these networks know; None where none is."""
        return next((word for word in (self.asked.exchange or "").split() if word in self.ways), None)

    @cached_property
    def chosen(self) -> dict[tuple[str, str, int, str], CallKernels | None]:
        """What was looked up before: (level, kind, bits, library) → its kernels."""
        return {}

    def exchange(self, level: str, mode: ExchangeMode) -> ExpertExchange | None:
        """How the library that is asked for exchanges tokens over a level's network; None where none was measured or is asked for."""
        own = self.exchanges.get(level, {}).get(self.exchanging or "", ())
        return next((one for one in own if one.mode in (mode, "any")), None)

    def lines(self, level: str, kind: str, bits: int, members: Whole, volume: Array, *, going_on: bool = False) -> CallLines:
        """What calls of `kind` among `members` [n] take for messages of `volume` [n] bytes of elements of some bits. going_on: whether a
        normalisation may go on with their sum, by the kernels that the library leaves such to."""
        found = self._lines(self.asked, level, kind, bits, members, volume)
        other = self.going_on.get(level)
        if not going_on or other is None:
            return found
        theirs = self._lines(LibraryCall(library=other.calls, mode="graph"), level, kind, bits, members, volume)
        chosen = within(other.most, members, volume) & theirs.known
        both = ((found.slope, theirs.slope), (found.start, theirs.start), (found.known, theirs.known))
        return CallLines(*(np.where(chosen, new, own) for own, new in both))

    def _lines(self, asked: LibraryCall, level: str, kind: str, bits: int, members: Whole, volume: Array) -> CallLines:
        """The same of a library."""
        key = (level, kind, bits, asked.library)
        if key not in self.chosen:
            known = calls_for(self.levels.get(level, {}), asked, kind, bits)
            self.chosen[key] = None if known is None else CallKernels(known)
        found = self.chosen[key]
        return found.lines(members, volume) if found is not None else _unknown(len(volume))


def calls_for(libraries: Mapping[str, Sequence[Calls]], asked: LibraryCall, kind: str, bits: int) -> Calls | None:
    """The facts of a collective, the first of: as asked; in a graph, where none was measured eager; of NCCL. None where there is none.

    Of several releases that are not the one asked for, the newest."""
    own = libraries.get(asked.library, ())
    choices = [
        [one for one in own if one.mode == asked.mode],
        [one for one in own if one.mode == "graph"],
        [one for one in libraries.get(FALLBACK, ()) if one.mode == "graph"],
    ]
    for choice in choices:
        same = [one for one in choice if one.kind == kind]
        if same:
            return _of_width([one for one in same if asked.release in one.releases] or same, bits)
    return None


def _of_width(calls: Sequence[Calls], bits: int) -> Calls:
    """The first for elements of `bits`, else for the next wider, else for the widest."""

    def far(one: Calls) -> tuple[int, int]:
        if not one.bits or bits in one.bits:
            return 0, 0
        wider = [other for other in one.bits if other > bits]
        return (1, min(wider)) if wider else (2, -max(one.bits))

    return min(calls, key=far)


class CallKernels:
    """The kernels of one collective, for every measured number of members."""

    def __init__(self, calls: Calls) -> None:
        self._kind = calls.kind
        self._counts = sorted(((int(word), _KernelTimes(times)) for word, times in calls.members.items()), key=lambda pair: pair[0])

    def lines(self, members: Whole, volume: Array) -> CallLines:
        """As `MachineCalls.lines`."""
        slope, start, known = np.zeros(len(volume)), np.zeros(len(volume)), np.zeros(len(volume), dtype=bool)
        for p in sorted(set(members.tolist())):
            if not 2 <= p <= BEYOND * self._counts[-1][0]:
                continue
            which = members == p
            slope[which], start[which] = self._between(p, volume[which])
            known |= which
        return CallLines(slope, start, known)

    def _between(self, p: int, volume: Array) -> tuple[Array, Array]:
        """(slope, start) of p members from the measured numbers beside it."""
        counts = self._counts
        below = max((number for number, (count, _) in enumerate(counts) if count <= p), default=0)
        last, (slope, start) = counts[below][0], counts[below][1].line(volume)
        if last == p:
            return slope, start
        if below + 1 < len(counts):
            after, other = counts[below + 1][0], counts[below + 1][1].line(volume)
            part = (p - last) / (after - last)
            return slope + part * (other[0] - slope), start + part * (other[1] - start)
        if below:
            before = counts[below - 1]
            start = start + np.maximum(start - before[1].line(volume)[1], 0.0) * (p - last) / (last - before[0])
        return slope * ring_share(self._kind, p) / ring_share(self._kind, last), start


class _KernelTimes:
    """Of one number of members. up_to_bytes: largest message of each kernel but the last · slope: s/byte · start: s."""

    def __init__(self, times: CallTimes) -> None:
        self.up_to_bytes = np.array(times.up_to_bytes)
        self.slope, self.start = 1.0 / np.array(times.rate_bytes_per_s), np.array(times.start_s)

    def line(self, volume: Array) -> tuple[Array, Array]:
        """[n] slope and start for messages of `volume` [n] bytes."""
        kernel = np.searchsorted(self.up_to_bytes, volume, side="left")
        return self.slope[kernel], self.start[kernel]


def ring_share(kind: str, p: int) -> float:
    """Messages that a ring of p sends from each member."""
    return (2.0 if kind == "all_reduce" else 1.0) * (p - 1) / p


def _unknown(n: int) -> CallLines:
    return CallLines(np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
