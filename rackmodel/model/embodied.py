"""What a level is made of: its silicon, its memory chips and its other parts, for embodied carbon.

One instance of the level, without what stands below it. Silicon may be stated as the area of a die, or piece by piece (an
area, so much a multiply-accumulator, so much a byte of SRAM) on this level and below: the nearest die above that states no
area of its own is as large as all of it, so that hardware that is swept changes what it embodies. Grams come from tables
(specs/carbon) by the names of processes, technologies and parts.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, GramPerSquareMetre, Grams, Plain, SquareMetres, SquareMetresPerByte, ends_of, is_share, span_text

Boundary = Literal["silicon", "memory", "package", "module", "tray", "host", "network", "facility"]
BOUNDARIES: tuple[Boundary, ...] = ("silicon", "memory", "package", "module", "tray", "host", "network", "facility")
"""From the die outwards. module: board, power delivery and heat sink of one accelerator; tray: the board that joins several
and its switches; host: CPUs, their memory, disks, network cards, chassis; network: switches, cables, optics; facility: what
the building adds."""

WAFER_DIAMETER_M = 0.3
YieldModel = Literal["fixed", "poisson", "murphy", "seeds", "negative_binomial", "square_root", "spare"]


class Yield(Spec):
    """Which share of dies works: a share, or a model of defects that fall at random."""

    model: YieldModel = Field(default="fixed", description="fixed, poisson, murphy, seeds, negative_binomial, square_root or spare")
    value: Plain | None = Field(default=None, description="model: fixed: the share of dies that work, above 0 and at most 1")
    defects_per_cm2: Plain | None = Field(default=None, description="killing defects per cm2; absent = the process's")
    clustering: Plain = Field(default=10.0, description="model: negative_binomial: how evenly defects spread (alpha)")
    cores: PositiveInt | None = Field(default=None, description="model: spare: cores on the die; one with a defect is routed around")
    needed: PositiveInt | None = Field(default=None, description="model: spare: cores that must work")
    core_share: Plain = Field(default=1.0, description="model: spare: share of the die's area in cores; a defect elsewhere kills it")

    @model_validator(mode="after")
    def _complete(self) -> Yield:
        if (self.model == "fixed") != (self.value is not None):
            raise ValueError("value: a fixed yield needs its value, and no other model has one")
        for name in ("value", "core_share"):
            share = getattr(self, name)
            if share is not None and not is_share(share):
                raise ValueError(f"{name} is a share: above 0 and at most 1 (got {span_text(share)})")
        if (self.model == "spare") != (self.cores is not None and self.needed is not None):
            raise ValueError("cores: a yield with spare cores needs cores and needed, and no other model has them")
        if self.cores is not None and self.needed is not None and self.needed > self.cores:
            raise ValueError(f"needed: {self.needed} of {self.cores} cores cannot be")
        return self


class OwnFab(Spec):
    """What is known of the fab that makes a machine's chips; what is absent is the tables' default."""

    grid: str | None = Field(default=None, description="its electricity: a place or source of the grid table, or '820 g/kWh'")
    abated: Plain | None = Field(default=None, description="share of its gases that is abated, 0.95 to 0.99; absent = in between")
    materials_g_per_m2: GramPerSquareMetre | None = Field(default=None, alias="materials", description="raw materials per area (MPA)")
    package_g: Grams | None = Field(default=None, alias="package", description="packaging of one chip (K_r)")
    yield_: Yield | None = Field(default=None, alias="yield", description="of dies that state none")

    @model_validator(mode="after")
    def _between(self) -> OwnFab:
        if self.abated is not None and not 0.95 <= self.abated <= 0.99:
            raise ValueError(f"abated: gases are known for 0.95 to 0.99 abated (got {self.abated:g})")
        return self


class Die(Spec):
    """A kind of die on a level."""

    area: SquareMetres | None = Field(default=None, description="area of one; absent = all silicon of this level and below, shared equally")
    process: str = Field(description="process of the carbon tables ('5nm')")
    count: PositiveInt = Field(default=1, description="dies of this kind on one instance")
    share: Plain = Field(default=1.0, description="share of the process's steps that it goes through (an interposer has metal alone)")
    yield_: Yield | None = Field(default=None, alias="yield", description="absent = the tables' default")
    dies_per_wafer: PositiveInt | Literal["estimated"] | None = Field(
        default=None, description="dies on a wafer, whose edge they then answer for; estimated = from area and diameter; absent = no edge"
    )
    boundary: Literal["silicon", "package", "tray", "host", "network"] = Field(default="silicon", description="what it counts as")

    @model_validator(mode="after")
    def _fits(self) -> Die:
        wafer = 3.141592653589793 * WAFER_DIAMETER_M**2 / 4
        if self.area is not None:
            if not ends_of(self.area)[0] > 0:
                raise ValueError("area must be positive")
            dies = self.dies_per_wafer if isinstance(self.dies_per_wafer, int) else 1
            if ends_of(self.area)[1] * dies > wafer:
                raise ValueError(f"area: {dies} x {self.area * 1e6:,.0f} mm^2 is more than a wafer of {wafer * 1e6:,.0f} mm^2: mm^2 meant?")
        if not is_share(self.share):
            raise ValueError(f"share is of the process's steps: above 0 and at most 1 (got {span_text(self.share)})")
        return self


class Chips(Spec):
    """Memory or storage chips of a level."""

    technology: str = Field(description="technology of the carbon tables ('hbm3')")
    capacity_bytes: Bytes | None = Field(default=None, alias="capacity", description="bytes on one instance; absent = the level's memory")
    boundary: Literal["memory", "host"] = Field(default="memory", description="what it counts as")


class Part(Spec):
    """Anything else: a board, a heat sink, a chassis, a switch; grams by a name of the tables, or stated."""

    kind: str | None = Field(default=None, description="part of the carbon tables ('server_chassis')")
    carbon_g: Grams | None = Field(default=None, alias="carbon", description="of one, instead of a kind")
    count: Plain = Field(default=1.0, description="how many on one instance; a fraction is a share of something shared")
    boundary: Boundary = Field(description="what it counts as: " + ", ".join(BOUNDARIES))

    @model_validator(mode="after")
    def _one_form(self) -> Part:
        if (self.kind is None) == (self.carbon_g is None):
            raise ValueError("kind: a part has either a kind of the tables or its carbon")
        return self


class Embodied(Spec):
    """What one instance of a level is made of, without the levels below."""

    area: SquareMetres | None = Field(default=None, description="silicon of one instance on a die above, beside that of MACs and bytes")
    area_per_mac: SquareMetres | None = Field(default=None, description="silicon of one multiply-accumulator")
    macs: PositiveInt = Field(default=1, description="multiply-accumulators of one instance, where area_per_mac is stated")
    area_per_byte: SquareMetresPerByte | None = Field(default=None, description="silicon of one byte of the level's own memory (SRAM)")
    dies: dict[str, Die] = Field(default_factory=dict, description="dies by name; at most one without an area")
    memory: dict[str, Chips] = Field(default_factory=dict, description="memory and storage chips by name")
    parts: dict[str, Part] = Field(default_factory=dict, description="other parts by name")
    packages: Annotated[int, Field(ge=0)] | None = Field(default=None, description="packaged chips (ACT's N_r); absent = one a silicon die")

    @model_validator(mode="after")
    def _one_open_die(self) -> Embodied:
        if sum(die.area is None for die in self.dies.values()) > 1:
            raise ValueError("dies: one die alone may take the silicon of the levels below: state the area of the others")
        return self

    @property
    def has_silicon(self) -> bool:
        """Whether it states silicon for a die above."""
        return not (self.area is None and self.area_per_mac is None and self.area_per_byte is None)
