"""The architecture: a tree of levels, each with memory, compute, network and static power where it has them.

One level is the accelerator: above it a mapping is parallelism, inside it a loop nest. The same class serves a rack
joined by NVLink and a grid of cores joined by a crossbar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from rackmodel.errors import InputError
from rackmodel.model.inside import CHOOSING, Atom, Fan
from rackmodel.model.schema import Spec
from rackmodel.units import (
    Bytes,
    BytesPerSecond,
    FlopPerSecond,
    GramPerJoule,
    JoulePerByte,
    JoulePerFlop,
    Plain,
    Seconds,
    Watts,
)

Topology = Literal["switch", "ring", "mesh", "torus", "row_column", "tree", "point_to_point"]


class Memory(Spec):
    """A memory at a level: one instance's capacity, bandwidth and energy."""

    capacity_bytes: Bytes | None = Field(default=None, alias="capacity", description="bytes one instance holds; absent = unlimited")
    bandwidth_bytes_per_s: BytesPerSecond | None = Field(
        default=None,
        alias="bandwidth",
        description="bytes per second of one instance: reads and writes together, or reads alone where ports: split; absent = never limits",
    )
    ports: Literal["shared", "split"] = Field(
        default="shared", description="shared: reads and writes take turns; split: writes have a port of their own"
    )
    write_bandwidth_bytes_per_s: BytesPerSecond | None = Field(
        default=None, alias="write_bandwidth", description="bytes per second of one instance's write port; absent = as its read port"
    )
    read_j_per_byte: JoulePerByte = Field(default=0.0, alias="read_energy", description="energy to read, per bit or byte")
    write_j_per_byte: JoulePerByte = Field(default=0.0, alias="write_energy", description="energy to write, per bit or byte")
    buffers: Literal[1, 2] = Field(default=1, description="2: every tile is held twice, so that the next arrives during use")
    keep: tuple[str, ...] | None = Field(
        default=None, description=f"what the loop nest must store here: {CHOOSING}; absent = everything but `bypass`, [] = its choice"
    )
    bypass: tuple[str, ...] = Field(default=(), description="what the loop nest must not store here, in the words of `keep`")
    bits: dict[str, str] = Field(
        default_factory=dict, description="width of a tensor while it is here, in the words of `keep`: {result: 32 bit} for accumulators"
    )
    enforce: bool = Field(default=True, description="false: capacity is reported but does not make a mapping infeasible")
    backing: bool = Field(
        default=False, description="true: the workload's inputs and weights start here and its outputs end here, once a phase"
    )

    @model_validator(mode="after")
    def _positive(self) -> Memory:
        speeds = ((self.bandwidth_bytes_per_s, "bandwidth"), (self.write_bandwidth_bytes_per_s, "write_bandwidth"))
        for value, key in ((self.capacity_bytes, "capacity"), *speeds):
            if value is not None and not value > 0:
                raise ValueError(f"{key} must be positive")
        if self.write_bandwidth_bytes_per_s is not None and self.ports == "shared":
            raise ValueError("write_bandwidth needs ports: split (a shared port has one bandwidth)")
        return self

    @model_validator(mode="after")
    def _meant(self) -> Memory:
        for word in self.bypass:
            if word in (self.keep or ()):
                raise ValueError(f"bypass: '{word}' is in keep too")
        for name, text in self.bits.items():
            try:
                width(text)
            except ValueError as problem:
                raise ValueError(f"bits.{name}: {problem}")
        return self

    @property
    def write_port_bytes_per_s(self) -> float | None:
        """Bandwidth of the write port of one instance; None where reads and writes share a port or nothing limits."""
        if self.ports == "shared":
            return None
        return self.bandwidth_bytes_per_s if self.write_bandwidth_bytes_per_s is None else self.write_bandwidth_bytes_per_s

    @property
    def bits_by_tensor(self) -> dict[str, int]:
        """Word of `keep` → bits of a value while it is here."""
        return {name: width(text) for name, text in self.bits.items()}


class Rate(Spec):
    """Operations per second of one instance at one precision, and the energy of one operation."""

    rate_flop_per_s: FlopPerSecond = Field(alias="rate", description="operations per second of one instance; a MAC is 2 FLOP")
    energy_j_per_flop: JoulePerFlop = Field(default=0.0, alias="energy", description="energy per operation")


class MatrixRate(Rate):
    """The rate of matrix operations at one precision, and the tile that one instruction works on."""

    atom: Atom | None = Field(default=None, description="fixed tile of one instruction {m, n, k}; sizes are rounded up to it")


class Compute(Spec):
    """Compute at a level: matrix operations, by precision where they differ, and vector operations."""

    rate_flop_per_s: FlopPerSecond | None = Field(
        default=None, alias="rate", description="matrix operations per second of one instance, any precision"
    )
    energy_j_per_flop: JoulePerFlop = Field(default=0.0, alias="energy", description="energy per matrix operation, any precision")
    atom: Atom | None = Field(default=None, description="fixed tile of one matrix instruction {m, n, k}, where a precision states none")
    precisions: dict[str, MatrixRate] = Field(
        default_factory=dict, description="rate, energy and atom by operand width ('16 bit', 'fp8'); the first counts of two of one width"
    )
    vector: Rate | None = Field(default=None, description="vector operations; absent = they cost no time here")

    @model_validator(mode="after")
    def _some_rate(self) -> Compute:
        if self.rate_flop_per_s is None and not self.precisions:
            raise ValueError("compute needs a rate, or precisions with rates")
        for key in self.precisions:
            width(key)
        return self

    def matrix(self, bits: int) -> MatrixRate:
        """Rate, energy and atom for operands of `bits`: the stated precision, else the next wider one, else `rate`."""
        wide_enough = [(width(key), rate) for key, rate in self.precisions.items() if width(key) >= bits]
        if wide_enough:
            found = min(wide_enough, key=lambda pair: pair[0])[1]
            return found if found.atom is not None or self.atom is None else found.model_copy(update={"atom": self.atom})
        if self.rate_flop_per_s is None:
            raise InputError(f"no compute rate for {bits}-bit operands", known=list(self.precisions))
        return MatrixRate.model_construct(rate_flop_per_s=self.rate_flop_per_s, energy_j_per_flop=self.energy_j_per_flop, atom=self.atom)


_WIDTHS = {"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "int8": 8, "fp8": 8, "fp6": 6, "fp4": 4, "int4": 4}


def width(text: str) -> int:
    """Bits of a precision written '16 bit' or 'bf16'. Raises ValueError."""
    if text in _WIDTHS:
        return _WIDTHS[text]
    number, _, unit = text.partition(" ")
    if unit.strip() in ("bit", "bits") and number.isdigit() and int(number) > 0:
        return int(number)
    raise ValueError(f"'{text}' is not a precision: want '16 bit' or one of {', '.join(_WIDTHS)}")


class Network(Spec):
    """How the children of a level are joined."""

    topology: Topology = Field(description="switch, ring, mesh, torus, row_column, tree or point_to_point")
    bandwidth_bytes_per_s: BytesPerSecond = Field(alias="bandwidth", description="bytes per second of one link, each direction")
    latency_s: Seconds = Field(default=0.0, alias="latency", description="start-up time of one hop")
    energy_j_per_byte: JoulePerByte = Field(default=0.0, alias="energy", description="energy per bit per traversal (hop)")
    hops: Literal["slowest_link", "path_sum"] = Field(
        default="slowest_link", description="time of a collective over several networks: its slowest link, or the sum along a chunk's path"
    )
    links: PositiveInt | None = Field(
        default=None, description="links from one child into this network; absent = one for each accelerator below the child"
    )
    striped: bool = Field(default=False, description="true: one flow may use all free links of a child at once")
    shape: tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt] | None = Field(
        default=None, description="children along each dimension of a mesh, torus or row_column network"
    )
    fanout: Annotated[int, Field(ge=2)] | None = Field(default=None, description="children of each node of a tree network")
    oversubscription: Plain = Field(default=1.0, description="switch: injected over bisection bandwidth, at least 1")
    multicast: bool = Field(default=False, description="one copy sent reaches every child (a broadcast tree, an in-network multicast)")
    reduce: bool = Field(default=False, description="the network adds what its children send (in-network reduction)")

    @model_validator(mode="after")
    def _complete(self) -> Network:
        if not self.bandwidth_bytes_per_s > 0:
            raise ValueError("bandwidth must be positive")
        if self.oversubscription < 1:
            raise ValueError("oversubscription must be at least 1")
        if self.topology in ("mesh", "torus", "row_column") and self.shape is None:
            raise ValueError(f"a {self.topology} network needs a shape, such as [4, 4]")
        if self.topology == "tree" and self.fanout is None:
            raise ValueError("a tree network needs a fanout, such as 4")
        return self


class Level(Spec):
    """One level of the tree: `count` instances under each instance of its parent."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="the level's name, unique in the tree")]
    count: PositiveInt = Field(default=1, description="instances under each instance of the parent")
    accelerator: bool = Field(default=False, description="true: parallelism ends here, the loop nest begins")
    memory: Memory | None = Field(default=None, description="the level's memory")
    compute: Compute | None = Field(default=None, description="the level's compute")
    network: Network | None = Field(default=None, description="what joins the level's children")
    fan: Fan | None = Field(default=None, description="how the children stand for the loop nest; absent = a row of them")
    static_power_w: Watts = Field(default=0.0, alias="static_power", description="power of one instance whatever it does")
    embodied: dict[str, Any] | None = Field(default=None, description="die area, process, memory and parts, for embodied carbon")
    children: tuple[Level, ...] = Field(default=(), description="the levels below, which may differ")

    @model_validator(mode="after")
    def _fan_holds_children(self) -> Level:
        below = sum(child.count for child in self.children)
        if self.fan is not None and self.fan.size != below:
            raise ValueError(f"fan: holds {self.fan.size} children, '{self.name}' has {below}")
        return self

    @property
    def fanout(self) -> Fan:
        """How the children stand: as stated, else in a row."""
        return self.fan or Fan(x=max(1, sum(child.count for child in self.children)))

    def walk(self) -> Iterator[Level]:
        """This level and all below, top down."""
        yield self
        for child in self.children:
            yield from child.walk()


class Site(Spec):
    """Where it runs: the grid's carbon intensity and the facility's overhead."""

    grid: str | dict[str, Any] = Field(description="a place or source of the shipped grid table, or {intensity: 380 g/kWh}")
    pue: Plain = Field(default=1.0, description="power usage effectiveness: facility energy over IT energy, at least 1")
    intensity_g_per_j: GramPerJoule | None = Field(default=None, alias="intensity", description="grid intensity, if not by name")

    @model_validator(mode="after")
    def _physical(self) -> Site:
        if self.pue < 1:
            raise ValueError(f"pue is facility energy over IT energy and cannot be below 1 (got {self.pue:g})")
        return self


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


class Architecture(Spec):
    """A machine: the tree, how many of its accelerators are used, and where it stands."""

    name: str = Field(alias="architecture", description="the architecture's name")
    accelerators: PositiveInt | None = Field(default=None, description="accelerators in use, the first N in tree order; absent = all")
    site: Site | None = Field(default=None, description="grid and PUE; absent = no carbon")
    tree: Level = Field(description="the root level")

    @model_validator(mode="after")
    def _consistent(self) -> Architecture:
        names = [level.name for level in self.tree.walk()]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two levels are called '{name}'")
        found = [level.name for level in self.tree.walk() if level.accelerator]
        if len(found) != 1:
            raise ValueError(f"one level must say accelerator: true (found {len(found)}: {', '.join(found) or 'none'})")
        if not any(level.compute for level in self.accelerator.walk()):
            raise ValueError(f"no compute inside the accelerator '{self.accelerator.name}'")
        for level in self.above:
            if level.network is None and sum(child.count for child in level.children) > 1:
                raise ValueError(f"level '{level.name}' has several children and no network that joins them")
            shape = level.network.shape if level.network else None
            if shape is not None and prod(shape) != sum(child.count for child in level.children):
                raise ValueError(
                    f"the shape of '{level.name}' holds {prod(shape)} children, the level has {sum(c.count for c in level.children)}"
                )
        if self.accelerators is not None and self.accelerators > self.available:
            raise ValueError(f"accelerators: {self.accelerators} asked for, the tree has {self.available}")
        return self

    @cached_property
    def path(self) -> tuple[Level, ...]:
        """Levels from the root to the accelerator."""

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
    def available(self) -> int:
        """Accelerators in the whole tree."""
        return prod(level.count for level in self.path)

    @property
    def used(self) -> int:
        """Accelerators in use."""
        return self.accelerators or self.available

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
        while level.children:
            level = level.children[0]
            instances *= level.count
            chain.append((level, instances))
        return tuple(chain)

    def level(self, name: str) -> Level:
        """The level called `name`. Raises InputError that lists the names."""
        for level in self.tree.walk():
            if level.name == name:
                return level
        raise InputError(f"no level called '{name}'", known=[lv.name for lv in self.tree.walk()], given=name)
