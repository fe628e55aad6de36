"""The architecture: a tree of levels, each with memory, compute, network and static power where it has them.

One level is the accelerator: above it a mapping is parallelism, inside it a loop nest. The same class serves a rack
joined by NVLink and a grid of cores joined by a crossbar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from pydantic import Field, PositiveInt, model_validator

from rackmodel.errors import InputError, together
from rackmodel.model.embodied import OwnFab
from rackmodel.model.level import Level, Network, Site, Topology, accelerators_of
from rackmodel.model.level_places import misplaced
from rackmodel.model.resources import Atom, Compute, Fan, Memory, Rate, width
from rackmodel.model.schema import Spec
from rackmodel.model.topologies import MEETING, UNIFORM

__all__ = [
    "Architecture",
    "Atom",
    "Compute",
    "Fan",
    "Level",
    "Memory",
    "Network",
    "Rate",
    "Site",
    "Tier",
    "Topology",
    "width",
]


@dataclass(frozen=True)
class Tier:
    """One network above the accelerators, seen from them.

    level: name of the level whose network this is · below: accelerators under one child of it ·
    children: accelerator-holding children of one instance.
    """

    level: str
    network: Network
    below: int
    children: int

    @property
    def links(self) -> int:
        """Of a child, or of two children where pairs have links of their own."""
        return self.network.links or self.network.pair_links or self.below


@dataclass(frozen=True)
class Ports:
    """Of a memory level in one accelerator. split: whether reads and writes have a port each · chooses: whether a tensor may pass by ·
    rates: action → bytes a second of all instances, None where it never limits · joules: action → of a byte."""

    level: str
    instances: int
    split: bool
    chooses: bool
    rates: dict[str, float | None]
    joules: dict[str, float]

    @classmethod
    def of(cls, level: Level, memory: Memory, instances: int) -> Ports:
        """Of a level's memory."""
        split = memory.ports == "split"
        write = memory.write_port_bytes_per_s if split else memory.bandwidth_bytes_per_s
        each = {"read": memory.bandwidth_bytes_per_s, "write": write}
        return cls(
            level=level.name,
            instances=instances,
            split=split,
            chooses=memory.keep is not None or bool(memory.bypass),
            rates={action: None if rate is None else rate * instances for action, rate in each.items()},
            joules={"read": memory.read_j_per_byte, "write": memory.write_j_per_byte},
        )


MOST_ACCELERATORS = 2**24
"""In use at once: groups are laid out member by member, and no machine has so many."""
MOST_INSTANCES = 1 << 53
"""Of one level, in use or not: more are no whole number of a float."""


class Architecture(Spec):
    """A machine: the tree, how many of its accelerators are used, and where it stands."""

    name: str = Field(alias="architecture", description="the architecture's name")
    accelerators: PositiveInt | None = Field(default=None, description="accelerators in use, the first N in tree order; absent = all")
    site: Site | None = Field(default=None, description="grid and PUE; absent = no carbon")
    fab: OwnFab | None = Field(default=None, description="the fab that makes its chips; absent = the tables' default")
    carbon: str | None = Field(default=None, description="an own file of carbon tables: its rows come before the library's")
    tree: Level = Field(description="the root level")

    @model_validator(mode="after")
    def _consistent(self) -> Architecture:
        found = [level for level in self.tree.walk() if level.accelerator]
        self._names_are_told_apart(found)
        if not found:
            raise ValueError("one level must say accelerator: true (found none)")
        for level in found:
            _check_inside(level)
        if len(found) > 1:
            self._several_pools(found)
        if nowhere := misplaced(self.tree):
            raise together(nowhere)
        for level in (level for pool in self.pools for level in pool.above):
            if level.network is None and sum(child.count for child in level.children) > 1:
                raise ValueError(f"level '{level.name}' has several children and no network that joins them")
            shape = level.network.shape if level.network else None
            if shape is not None and prod(shape) != sum(child.count for child in level.children):
                raise ValueError(
                    f"the shape of '{level.name}' holds {prod(shape)} children, the level has {sum(c.count for c in level.children)}"
                )
        for pool in self.pools:
            _check_same_links(pool.tiers)
        self._one_backing()
        if (most := _most_instances(self.tree)) > MOST_INSTANCES:
            raise ValueError(f"tree: {most:.3g} instances of one level: at most 2^53")
        if self.accelerators is not None and self.accelerators > self.available:
            raise ValueError(f"accelerators: {self.accelerators} asked for, the tree has {self.available}")
        if self.used > MOST_ACCELERATORS:
            raise ValueError(f"{self.used} accelerators in use: at most {MOST_ACCELERATORS} (say `accelerators` for a part of the tree)")
        return self

    def _names_are_told_apart(self, accelerators: Sequence[Level]) -> None:
        """No two levels have one name, but for what lies inside accelerators of different kinds."""
        inside = [{below.name: id(below) for below in level.walk()} for level in accelerators]
        own = {place for one in inside for place in one.values()}
        outside = [level.name for level in self.tree.walk() if id(level) not in own]
        apart = [level.name for level in accelerators] if len(accelerators) > 1 else []
        for level in accelerators:
            names = [below.name for below in level.walk()]
            for name, times in Counter([*outside, *names, *(one for one in apart if one != level.name)]).items():
                if times > 1:
                    raise ValueError(f"two levels are called '{name}'")
        for name, times in Counter(outside).items():
            if times > 1:
                raise ValueError(f"two levels are called '{name}'")

    def _several_pools(self, accelerators: Sequence[Level]) -> None:
        """Accelerators of several kinds lie side by side, under levels there is one of, and a switch joins them."""
        names = " and ".join(f"'{level.name}'" for level in accelerators)
        for level in accelerators:
            if inner := next((below.name for below in level.walk() if below.accelerator and below is not level), None):
                raise ValueError(f"one level must say accelerator: true, not '{inner}' inside '{level.name}' as well")
        for level in self.tree.walk():
            holding = [child for child in level.children if any(below.accelerator for below in child.walk())]
            shared = sum(below.accelerator for below in level.walk()) > 1
            if shared and level.count > 1:
                raise ValueError(f"'{level.name}' holds accelerators of several kinds, {names}: there can be one of it, not {level.count}")
            if len(holding) < 2:
                continue
            if level.network is None:
                raise ValueError(f"level '{level.name}' has several children and no network that joins them")
            word = level.network.topology
            if word not in UNIFORM:
                raise ValueError(f"accelerators of several kinds, {names}, are joined by a switch or point to point, not by a {word}")

    def _one_backing(self) -> None:
        """A workload starts in one memory, above the accelerators: another one that says `backing` would be ignored."""
        backing = [level.name for level in self.tree.walk() if level.memory is not None and level.memory.backing]
        if len(self._kinds) > 1:
            if backing:
                raise ValueError(f"the memory of '{backing[0]}' cannot be backing: accelerators of several kinds start a step on their own")
            return
        above = [level.name for level in self.above]
        for name in backing:
            if name not in above:
                raise ValueError(f"the memory of '{name}' cannot be backing: it is not above the accelerators")
        if len(backing) > 1:
            raise ValueError(f"two memories are backing, of '{backing[0]}' and '{backing[1]}'")

    @property
    def named(self) -> list[tuple[str, Level]]:
        """Every level with the name that --set takes: its own, after that of its accelerator where several kinds have one so called."""
        times = Counter(level.name for level in self.tree.walk())
        inside = {id(below): top.name for top in self.tree.walk() if top.accelerator for below in top.walk() if below is not top}
        return [(f"{inside[id(one)]}.{one.name}" if times[one.name] > 1 else one.name, one) for one in self.tree.walk()]

    @property
    def pools(self) -> tuple[Architecture, ...]:
        """The machine as accelerators of each kind see it, in tree order: the branches of the others left out. One: the machine itself.

        Of the accelerators in use, the first in tree order, each has its own; a pool of which none is in use is left out."""
        if len(self._kinds) == 1:
            return (self,)
        found, left = [], self.used
        for pool in self._whole_pools:
            here = min(left, pool.available)
            left -= here
            if here:
                found.append(pool.model_copy(update={"accelerators": here}))
        return tuple(found)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """Names of the levels that are accelerators."""
        return tuple(level.name for level in self.tree.walk() if level.accelerator)

    @cached_property
    def _whole_pools(self) -> tuple[Architecture, ...]:
        """Each kind's machine, all of its accelerators."""
        said = {name: getattr(self, name) for name in type(self).model_fields} | {"accelerators": None}
        trees = [_without(self.tree, {*self._kinds} - {kind}) for kind in self._kinds]
        return tuple(Architecture.model_construct(**{**said, "tree": tree}) for tree in trees)

    def using(self, accelerators: int) -> Architecture:
        """The machine with so many accelerators in use, at most all; where those are of one kind, that kind's."""
        machine = self.model_copy(update={"accelerators": min(accelerators, self.available)})
        pools = machine.pools
        return pools[0] if len(pools) == 1 else machine

    @cached_property
    def path(self) -> tuple[Level, ...]:
        """Levels from the root to the accelerator. Raises InputError where there are several kinds: each of `pools` has its own."""
        if len(self._kinds) > 1:
            fact = f"{self.name} has accelerators of several kinds, {' and '.join(self._kinds)}"
            raise InputError(f"{fact}: a pipeline of a model joins them, and `search` and `evaluate` price it", path="tree")

        def find(level: Level) -> tuple[Level, ...] | None:
            if level.accelerator:
                return (level,)
            for child in level.children:
                below = find(child)
                if below:
                    return (level, *below)
            return None

        path = find(self.tree)
        assert path is not None
        return path

    @property
    def accelerator(self) -> Level:
        """The accelerator level."""
        return self.path[-1]

    @property
    def above(self) -> tuple[Level, ...]:
        """Levels above the accelerator, root first."""
        return self.path[:-1]

    @cached_property
    def launching(self) -> float:
        """How many times as long as a profile says its hosts take to launch a kernel."""
        return prod(float(level.launching) for level in self.path)

    @cached_property
    def available(self) -> int:
        """Accelerators in the whole tree."""
        return prod(level.count for level in self.path) if len(self._kinds) == 1 else accelerators_of(self.tree)

    @property
    def used(self) -> int:
        """Accelerators in use."""
        return self.accelerators or self.available

    @property
    def adds_on_the_way(self) -> bool:
        """Whether the accelerators lie on a grid that copies words and adds them as they pass (a wafer's cores): operands are consumed as
        they arrive and sums leave as they are made, so that a pass works in place on what is kept."""
        network = self.tiers[0].network if self.tiers else None
        return network is not None and bool(network.shape) and network.multicast and network.reduce

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The networks above the accelerators, innermost first."""
        tiers, below = [], 1
        for level, child in zip(reversed(self.path[:-1]), reversed(self.path[1:]), strict=True):
            if level.network is not None:
                tiers.append(Tier(level.name, level.network, below, child.count))
            below *= child.count
        return tuple(tiers)

    @cached_property
    def inside(self) -> tuple[tuple[Level, int], ...]:
        """(level, instances per accelerator) from the accelerator down to its compute."""
        chain, level, instances = [(self.accelerator, 1)], self.accelerator, 1
        while (below := level.way_in) is not None:
            level = below
            instances *= level.count
            chain.append((level, instances))
        return tuple(chain)

    def instances(self) -> dict[str, int]:
        """Level → instances in use of a machine of one kind of accelerators: these, above them as few as hold them, beside and below them
        all."""
        counts: dict[str, int] = {}
        path = {level.name for level in self.path}

        def walk(level: Level, parents: int) -> None:
            counts[level.name] = -(-self.used // self.below(level.name)) if level.name in path else parents * level.count
            for child in sorted(level.children, key=lambda one: one.name in path):
                walk(child, counts[level.name])

        walk(self.tree, 1)
        return counts

    def below(self, name: str) -> int:
        """Accelerators, used or not, in one instance of a level of `path`."""
        names = [level.name for level in self.path]
        return prod(level.count for level in self.path[names.index(name) + 1 :])

    def drawing(self) -> dict[str, float]:
        """Level → instances whose static power is drawn: those in use; of one that has hosts, the share of them that are."""
        found: dict[str, float] = dict(self.instances())
        for level in self.path:
            if level.hosts > 1:
                found[level.name] = -(-self.used * level.hosts // self.below(level.name)) / level.hosts
        return found

    @cached_property
    def computing(self) -> tuple[Level, int]:
        """(level, instances per accelerator) of what computes: the innermost."""
        return next((level, number) for level, number in reversed(self.inside) if level.compute is not None)

    @cached_property
    def memories(self) -> tuple[tuple[Level, Memory, int], ...]:
        """(level, memory, instances per accelerator) from the accelerator's own memory down to the one above the compute."""
        return tuple((level, level.memory, number) for level, number in self.inside if level.memory is not None)

    @cached_property
    def ports(self) -> tuple[Ports, ...]:
        """Of each of `memories`."""
        return tuple(Ports.of(level, memory, instances) for level, memory, instances in self.memories)

    def peak_flop_per_s(self, bits: int) -> float:
        """Dense matrix operations per second of the accelerators in use, on operands of `bits`."""
        if len(self.pools) > 1:
            return sum(pool.peak_flop_per_s(bits) for pool in self.pools)
        level, count = self.computing
        assert level.compute is not None
        return self.used * count * level.compute.matrix(bits).rate_flop_per_s

    def level(self, name: str) -> Level:
        """The level called `name`. Raises InputError that lists the names."""
        for level in self.tree.walk():
            if level.name == name:
                return level
        raise InputError(f"no level called '{name}'", known=[lv.name for lv in self.tree.walk()], given=name)


def _check_same_links(tiers: Sequence[Tier]) -> None:
    """Raise ValueError for links that are said to lead into the network below, or not to, where there is none, and for those that do where
    one of the two is no switch. tiers: innermost first."""
    for below, tier in zip((None, *tiers), tiers, strict=False):
        if tier.network.same_links is not None and below is None:
            raise ValueError(f"same_links: '{tier.level}' joins the accelerators: there is no network below")
        if not tier.network.same_links or below is None:
            continue
        for one in (tier, below):
            if {one.network.topology}.isdisjoint(MEETING):
                raise ValueError(f"same_links of '{tier.level}': '{one.level}' is a {one.network.topology}, no {' or '.join(MEETING)}")


def _check_inside(accelerator: Level) -> None:
    """Inside an accelerator levels lie one within another, down to one compute: what else is said would count for nothing. Raises
    ValueError."""
    every = list(accelerator.walk())
    if not (computing := [level for level in every if level.compute is not None]):
        raise ValueError(f"no compute inside the accelerator '{accelerator.name}'")
    for level in every:
        if len(side := [f"'{child.name}'" for child in level.children if child.works]) > 1:
            said = f"{' and '.join(side)} lie side by side in '{level.name}'"
            raise ValueError(f"{said}: inside an accelerator one child holds or computes, another would count for nothing")
    if len(computing) > 1:
        raise ValueError(f"compute of '{computing[0].name}': '{computing[1].name}' below it computes, one of them inside an accelerator")


def _without(level: Level, accelerators: set[str]) -> Level:
    """A level without the branches that hold these accelerators and no others."""
    kept = []
    for child in level.children:
        inside = {below.name for below in child.walk() if below.accelerator}
        if not inside or inside - accelerators:
            kept.append(_without(child, accelerators) if inside & accelerators else child)
    return level.model_copy(update={"children": tuple(kept)})


def _most_instances(level: Level) -> int:
    """Instances of the level of which there are most in all instances of a level."""
    return level.count * max((_most_instances(child) for child in level.children), default=1)
