"""A level of the tree: its network, what it adds to its own memory and compute, and the site where the tree stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidatorFunctionWrapHandler, field_validator, model_validator

from rackmodel.model.embodied import Embodied
from rackmodel.model.price import LevelCost
from rackmodel.model.resources import Compute, Fan, Memory
from rackmodel.model.schema import Spec
from rackmodel.model.topologies import LINKS_ARE, LINKS_BY, SUCH_AS, TOPOLOGIES
from rackmodel.units import (
    BytesPerSecond,
    DollarsPerJoule,
    DollarsPerWatt,
    GramPerJoule,
    JoulePerByte,
    JoulePerFlop,
    Plain,
    Seconds,
    Watts,
    ends_of,
    is_share,
    span_text,
)

if TYPE_CHECKING:
    Topology = str
else:
    Topology = Literal[tuple(TOPOLOGIES)]


class Network(Spec):
    """How the children of a level are joined."""

    topology: Topology = Field(description=f"{', '.join(list(TOPOLOGIES)[:-1])} or {list(TOPOLOGIES)[-1]}")
    bandwidth_bytes_per_s: BytesPerSecond = Field(alias="bandwidth", description="bytes per second of one link, each direction")
    latency_s: Seconds = Field(default=0.0, alias="latency", description="start-up time of one hop")
    energy_j_per_byte: JoulePerByte = Field(default=0.0, alias="energy", description="energy per bit per traversal (hop)")
    hops: Literal["slowest_link", "path_sum"] = Field(
        default="slowest_link", description="time of a collective over several networks: its slowest link, or the sum along a chunk's path"
    )
    links: PositiveInt | None = Field(
        default=None,
        description="links from one child into this network (on a ring or torus, along each dimension, to both neighbours together; on a "
        "mesh, to each neighbour); absent = one for each accelerator below the child",
    )
    pair_links: PositiveInt | None = Field(
        default=None,
        description="point_to_point: links between two children, which no others use; absent = one for each accelerator below a child",
    )
    same_links: bool | None = Field(
        default=None,
        description="of a switch above another: whether the links into that lead into this one, too (one NIC for all tiers of a fat tree, "
        "NVLink for a node and its rack), so that what goes either way shares them; absent = where there are as many, as fast",
    )
    striped: bool = Field(default=False, description="true: one flow may use all free links of a child at once")
    shape: tuple[PositiveInt, PositiveInt] | tuple[PositiveInt, PositiveInt, PositiveInt] | None = Field(
        default=None, description="children along each dimension of a mesh, torus or row_column network"
    )
    fanout: Annotated[int, Field(ge=2)] | None = Field(default=None, description="children of each node of a tree network")
    oversubscription: Plain = Field(default=1.0, description="switch: injected over bisection bandwidth, at least 1")
    multicast: bool = Field(default=False, description="one copy sent reaches every child (a broadcast tree, an in-network multicast)")
    reduce: bool = Field(default=False, description="the network adds what its children send (in-network reduction)")
    add_j_per_flop: JoulePerFlop = Field(
        default=0.0, alias="add_energy", description="energy of one add where the network reduces what streams to a home"
    )
    start_s: Seconds = Field(default=0.0, alias="start", description="start-up time of one collective call, whatever its algorithm")
    sustained: Plain = Field(default=1.0, description="share of the bandwidth that long messages reach, above 0 and at most 1")
    in_network_efficiency: Plain = Field(
        default=1.0, description="share of the sustained bandwidth that in-network collectives reach, above 0 and at most 1"
    )
    in_network_latency_s: Seconds | None = Field(
        default=None, alias="in_network_latency", description="start-up time of one pass through a network that adds; absent = latency"
    )

    calls: str | None = Field(
        default=None,
        description="file of specs/collectives: what libraries' collectives take here, for a profile that says whose; absent = algorithms",
    )

    @field_validator("topology", mode="wrap")
    @classmethod
    def _in_the_table(cls, word: Any, refuse: ValidatorFunctionWrapHandler) -> Any:
        """A name that was put into the table after this class was made is as good as the others."""
        return word if isinstance(word, str) and word in TOPOLOGIES else refuse(word)

    @model_validator(mode="after")
    def _complete(self) -> Network:
        if not self.bandwidth_bytes_per_s > 0:
            raise ValueError("bandwidth must be positive")
        if ends_of(self.oversubscription)[0] < 1:
            raise ValueError("oversubscription must be at least 1")
        for name in ("sustained", "in_network_efficiency"):
            if not is_share(getattr(self, name)):
                raise ValueError(f"{name} is a share of the bandwidth: above 0 and at most 1 (got {span_text(getattr(self, name))})")
        needed = TOPOLOGIES[self.topology]
        for key in SUCH_AS:
            if key in needed and getattr(self, key) is None:
                raise ValueError(f"a {self.topology} network needs a {key}, such as {SUCH_AS[key]}")
            if key not in needed and getattr(self, key) is not None:
                raise ValueError(f"{key}: a {self.topology} network has none")
        counted = LINKS_BY.get(self.topology, "links")
        for key in LINKS_ARE:
            if key != counted and getattr(self, key) is not None:
                raise ValueError(f"{key}: a {self.topology} network has none, say {counted}: {LINKS_ARE[counted]}")
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
    hosts: PositiveInt = Field(
        default=1,
        description="equal parts that an instance's `static_power` is of, each drawn where one of its accelerators is in use: hosts of a "
        "pod whose network joins accelerators straight",
    )
    launching: Annotated[Plain, Field(gt=0.0)] = Field(
        default=1.0,
        description="how many times as long its host takes to launch a kernel as those on which profiles' times were measured",
    )
    embodied: Embodied | None = Field(default=None, description="dies, memory chips and other parts, for embodied carbon")
    cost: LevelCost | None = Field(default=None, description="price, engineering and power at work, for money")
    children: tuple[Level, ...] = Field(default=(), description="the levels below, which may differ")

    @model_validator(mode="after")
    def _drivers_show_an_accelerator(self) -> Level:
        if self.memory is not None and self.memory.visible != 1 and not self.accelerator:
            raise ValueError(f"memory.visible counts for the memory of an accelerator, which '{self.name}' is not")
        return self

    @model_validator(mode="after")
    def _hosts_draw_and_have_accelerators(self) -> Level:
        if self.hosts == 1:
            return self
        if not self.static_power_w:
            raise ValueError(f"hosts: parts of a static_power, which '{self.name}' has none of")
        inside = accelerators_of(self) // self.count
        if self.accelerator or inside == 0 or inside % self.hosts:
            raise ValueError(f"hosts: {self.hosts} equal parts of the {0 if self.accelerator else inside} accelerators in a '{self.name}'")
        return self

    @model_validator(mode="after")
    def _fan_holds_children(self) -> Level:
        below = self.way_in.count if self.way_in is not None else 0
        if self.fan is not None and self.fan.size != below:
            raise ValueError(f"fan: holds {self.fan.size} children, '{self.name}' has {below}")
        return self

    @property
    def way_in(self) -> Level | None:
        """The child that leads to the compute: beside it may lie parts that hold and compute nothing."""
        return next((child for child in self.children if child.works), next(iter(self.children), None))

    @property
    def works(self) -> bool:
        """Whether it, or a level below, has a memory or compute."""
        return any(level.memory is not None or level.compute is not None for level in self.walk())

    @property
    def fanout(self) -> Fan:
        """How the children that lead to the compute stand: as stated, else in a row."""
        return self.fan or Fan(x=self.way_in.count if self.way_in is not None else 1)

    def walk(self) -> Iterator[Level]:
        """This level and all below, top down."""
        yield self
        for child in self.children:
            yield from child.walk()


MOST_PUE = 5.0
"""Beyond any facility: surveys of data centres end below 3 (RECALLED: Uptime Institute)."""


class Site(Spec):
    """Where it runs: the grid's carbon intensity and the facility's overhead."""

    grid: str | dict[str, Any] = Field(description="a place or source of the shipped grid table, '380 g/kWh', or {intensity: 380 g/kWh}")
    pue: Plain = Field(default=1.0, description="power usage effectiveness: facility energy over IT energy, at least 1")
    intensity_g_per_j: GramPerJoule | None = Field(default=None, alias="intensity", description="grid intensity, if not by name")
    electricity_usd_per_j: DollarsPerJoule | None = Field(
        default=None, alias="electricity", description="price at the meter, such as 0.1 usd/kWh"
    )
    building_usd_per_w: DollarsPerWatt | None = Field(
        default=None, alias="building", description="price of the building for each watt of IT"
    )

    @field_validator("grid", mode="before")
    @classmethod
    def _with_a_unit(cls, grid: Any) -> Any:
        if isinstance(grid, int | float) and not isinstance(grid, bool):
            raise ValueError(f"'{grid:g}' has no unit: want a place of the grid table, or carbon per energy, such as '380 g/kWh'")
        return grid

    @model_validator(mode="after")
    def _physical(self) -> Site:
        if ends_of(self.pue)[0] < 1:
            raise ValueError(f"pue is facility energy over IT energy and cannot be below 1 (got {span_text(self.pue)})")
        if ends_of(self.pue)[1] > MOST_PUE:
            raise ValueError(
                f"pue is facility energy over IT energy: no facility takes {span_text(self.pue)} times its IT's (110 % is 1.1)"
            )
        return self


def accelerators_of(level: Level) -> int:
    """Accelerators of every kind in all instances of a level."""
    return level.count * (1 if level.accelerator else sum(accelerators_of(child) for child in level.children))
