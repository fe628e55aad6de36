"""The networks of an architecture as collectives see them, and what was priced and measured on them before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.network.mesh_links import Grid
from rackmodel.cost.network.relays import Ways
from rackmodel.cost.network.topologies import topology_of
from rackmodel.cost.network.topology import tier_offsets
from rackmodel.model.architecture import Architecture, Tier
from rackmodel.once import once

Costs = tuple[Array, Array, Array]  # [tiers, n] wire bytes a byte, seconds a byte, start-up seconds
Found = TypeVar("Found")


@dataclass(frozen=True)
class Fabric:
    """The networks of an architecture as collectives see them. known: what was priced on them before · measured: what was measured on
    them, or on others that carry as many bytes over as many hops (`_carrying`)."""

    tiers: tuple[Tier, ...]
    offsets: tuple[int, ...]
    known: dict[Any, Any] = field(default_factory=dict)
    measured: dict[Any, Any] = field(default_factory=dict)

    def positions(self, index: int, accelerator: Ints) -> Ints:
        """Child position in tier `index` of the child that holds each accelerator."""
        tier = self.tiers[index]
        return np.asarray(accelerator // tier.below % tier.children + self.offsets[index])

    def grid(self, index: int) -> Grid | None:
        """The grid whose links are counted, where tier `index` is one."""
        return topology_of(self.tiers[index].network).grid(self.tiers[index].network)

    def ways(self, index: int) -> Ways | None:
        """The lines along which children of tier `index` relay what others exchange."""
        network, children = self.tiers[index].network, self.tiers[index].children + self.offsets[index]
        return topology_of(network).ways(network, children)

    @cached_property
    def ports(self) -> tuple[tuple[int, int], ...]:
        """Of each tier the innermost and the outermost that the same links join: of switches, as networks say (`same_links`), else as long
        as an accelerator has as many links as fast in the next (a NIC for all tiers of a fat tree, NVLink for a node and its rack)."""
        runs: list[list[int]] = []
        for index, tier in enumerate(self.tiers):
            if index and _same_links(self.tiers[index - 1], tier):
                runs[-1].append(index)
            else:
                runs.append([index])
        return tuple((run[0], run[-1]) for run in runs for _ in run)

    @property
    def uniform(self) -> bool:
        """Whether any two children of any network are one hop apart, so that only who shares a child matters, not where it is."""
        return all(topology_of(tier.network).uniform for tier in self.tiers)

    @cached_property
    def switched(self) -> bool:
        """Whether every network is a switch, whose children's links lead to any other child."""
        return all(topology_of(tier.network).meets for tier in self.tiers)

    def remember(self, key: Any, make: Callable[[], Found]) -> Found:
        """What is under `key`, made once."""
        return once(self.known, key, make, MOST_FOUND)

    def measure_once(self, key: Any, make: Callable[[], Found]) -> Found:
        """The same of what depends on neither bandwidth, energy nor the start of a call."""
        return once(self.measured, key, make, MOST_FOUND)


def _same_links(inner: Tier, outer: Tier) -> bool:
    """Whether the links into a network lead into the one above it, too: as that says, else where both are switches that an accelerator has
    as many links as fast into."""
    if outer.network.same_links is not None:
        return outer.network.same_links
    (rate, links), (other, others) = ((tier.network.bandwidth_bytes_per_s, tier.links / tier.below) for tier in (inner, outer))
    return topology_of(inner.network).meets and topology_of(outer.network).meets and (rate, links) == (other, others)


MOST_FABRICS = 64
MOST_FOUND = 1 << 17  # of what one fabric was asked
_FABRICS: dict[str, Fabric] = {}  # by what the networks say
_MEASURED: dict[str, dict[Any, Any]] = {}  # by what decides what flows where, and how far
_OF: dict[int, tuple[Architecture, Fabric]] = {}  # by id of the architecture, which is kept alive


def _carrying(tiers: tuple[Tier, ...], offsets: tuple[int, ...]) -> str:
    """All that networks say but bandwidths, energies and starts of calls; of the first two which are equal, for algorithms look at that."""
    said: list[object] = [offsets]
    for name in ("bandwidth_bytes_per_s", "energy_j_per_byte"):
        figures = [getattr(tier.network, name) for tier in tiers]
        said.append([figures.index(figure) for figure in figures])
    nothing = {"bandwidth_bytes_per_s": 1.0, "energy_j_per_byte": 0.0, "start_s": 0.0}
    for tier in tiers:
        said.append((tier.level, tier.below, tier.children, tier.network.model_copy(update=nothing)))
    return repr(said)


def fabric_of(architecture: Architecture) -> Fabric:
    """The architecture's fabric: architectures whose networks say the same have one."""
    known = _OF.get(id(architecture))
    if known is None:
        if len(_OF) >= MOST_FABRICS:
            _OF.clear()
            _FABRICS.clear()
            _MEASURED.clear()
        tiers, offsets = architecture.tiers, tier_offsets(architecture)
        said = repr((tiers, offsets))
        fabric = once(_FABRICS, said, lambda: Fabric(tiers, offsets, measured=_MEASURED.setdefault(_carrying(tiers, offsets), {})))
        known = _OF[id(architecture)] = architecture, fabric
    return known[1]


def ports_of(architecture: Architecture) -> Array:
    """[tiers, 3] of each tier the innermost and the outermost that the same links join, and its rate over the innermost one's."""
    rates = [tier.network.bandwidth_bytes_per_s * tier.network.sustained for tier in architecture.tiers]
    ports = fabric_of(architecture).ports
    return np.array([(first, last, rate / rates[first]) for (first, last), rate in zip(ports, rates, strict=True)])


def digest(array: Ints) -> tuple[tuple[int, ...], bytes]:
    """A key for an array's contents."""
    return array.shape, blake2b(array.tobytes(), digest_size=16).digest()


def reading(fabric: Fabric, hops: Array) -> str:
    """The hop reading of the outermost tier in use (where tiers disagree the outermost wins)."""
    return fabric.tiers[int(np.flatnonzero(hops)[-1])].network.hops if hops.any() else "slowest_link"


def on_slowest(slope: Array, start_s: Array) -> tuple[Array, Array]:
    """Everything on the slowest tier of each column (the outer of two equal ones). slope: [slots, tiers, n] · start_s: [slots, n],
    or one for all."""
    tiers = slope.shape[1]
    if not tiers:
        return slope, slope
    slowest = tiers - 1 - np.argmax(slope[:, ::-1], axis=1)
    here = np.arange(tiers)[:, None] == slowest[:, None]
    return np.where(here, slope, 0.0), np.where(here, start_s[:, None], 0.0)


def most_of(keys: Ints) -> int:
    """How often the key comes that comes most often."""
    return int(np.bincount(keys).max() if _close(keys) else runs_of(keys)[1].max())


def _close(keys: Ints) -> bool:
    """Whether keys lie so close that it is quicker to count all up to the last than to sort them."""
    return bool(keys.max() < 4 * len(keys))


def runs_of(keys: Ints, weight: Ints | None = None) -> tuple[Ints, Ints]:
    """(distinct keys, ascending; how often each comes, or its weight). A stable sort costs next to nothing on keys that ascend."""
    if weight is None and _close(keys):
        counts = np.bincount(keys)
        return np.flatnonzero(counts), counts[counts > 0]
    order = np.argsort(keys, kind="stable") if np.any(keys[1:] < keys[:-1]) else slice(None)
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(first, append=len(keys)) if weight is None else np.add.reduceat(weight[order], first)
    return keys[first], counts
