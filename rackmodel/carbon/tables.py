"""The tables that embodied carbon is made of: processes, memory technologies, parts, published figures, each with its source.

Files of specs/carbon. All of them have one schema; what several say under one name is an error. This module reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import Field

from rackmodel.errors import InputError
from rackmodel.model.embodied import OwnFab, Yield
from rackmodel.model.schema import Spec
from rackmodel.units import GramPerByte, GramPerJoule, GramPerSquareMetre, Grams, JoulePerSquareMetre, Plain, Quantity, read_quantity

T = TypeVar("T")


class Process(Spec):
    """A logic process: ACT's terms of equation 5, and the same bracket as one number by other models."""

    energy_j_per_m2: JoulePerSquareMetre | None = Field(default=None, alias="energy", description="fab energy per area (EPA)")
    gas_95_g_per_m2: GramPerSquareMetre | None = Field(default=None, alias="gas_95", description="gases per area (GPA), 95 % abated")
    gas_99_g_per_m2: GramPerSquareMetre | None = Field(default=None, alias="gas_99", description="gases per area (GPA), 99 % abated")
    defects_per_cm2: Plain | None = Field(default=None, description="killing defects per cm2, for models of yield")
    area_carbon: dict[str, GramPerSquareMetre] = Field(default_factory=dict, description="another model of a fab → carbon per area")

    def gas_g_per_m2(self, abated: float | None = None) -> Quantity | None:
        """Gases at 97 % abatement (the mean of the two columns), from 99 % to 95 %; or at a share in between. Source: ACT, Figure 6 and
        Table 7."""
        if self.gas_95_g_per_m2 is None or self.gas_99_g_per_m2 is None:
            return None
        low, high = float(self.gas_99_g_per_m2), float(self.gas_95_g_per_m2)
        if abated is not None:
            value = high + (low - high) * (abated - 0.95) / 0.04
            return Quantity.make(value, value, value, None, f"gases at {abated:.0%} abatement")
        return Quantity.make((low + high) / 2, low, high, self.source, "gases at 97 % abatement (95 to 99 %)")


class Technology(Spec):
    """A memory or storage technology."""

    carbon_g_per_byte: GramPerByte = Field(alias="carbon", description="carbon per capacity, such as '65 g/GB'")


class PartKind(Spec):
    """A part that is bought whole."""

    carbon_g: Grams = Field(alias="carbon", description="carbon of one")


class Fab(Spec):
    """What all fabs share where a machine says nothing."""

    intensity_g_per_j: GramPerJoule = Field(alias="intensity", description="carbon of the fab's electricity")
    materials_g_per_m2: GramPerSquareMetre = Field(alias="materials", description="raw materials per area (MPA)")
    package_g: Grams = Field(alias="package", description="packaging of one chip (K_r)")
    yield_: Yield = Field(alias="yield", description="where a die says nothing")
    abated: Plain | None = Field(default=None, description="share of gases that is abated, 0.95 to 0.99; absent = 0.97, the range between")


class Printed(Spec):
    """A figure that a paper prints: text with a unit, a number, or several; a range where it has one."""

    value: str | float | list[float] | list[str] = Field(description="as printed")
    low: str | float | None = Field(default=None, description="of a range")
    high: str | float | None = Field(default=None, description="of a range")


class Conclusion(Spec):
    """A figure that a paper concludes with, for a study to compute."""

    figure: str = Field(description="where it stands, such as 'Table 3'")
    text: str = Field(description="what it is")
    printed: str = Field(description="its digits as printed, or a word")
    unit: str = Field(default="", description="its unit")
    why: str = Field(default="", description="what makes the difference where a study computes another")


class TableFile(Spec):
    """The sections of a file of specs/carbon, beside grids."""

    name: str = Field(alias="carbon", description="the table's name")
    fab: Fab | None = Field(default=None, description="what all fabs share")
    processes: dict[str, Process] = Field(default_factory=dict, description="process → carbon per area")
    technologies: dict[str, Technology] = Field(default_factory=dict, description="memory or storage technology → carbon per capacity")
    parts: dict[str, PartKind] = Field(default_factory=dict, description="part → carbon of one")
    products: dict[str, PartKind] = Field(default_factory=dict, description="published footprints of products, to check against")
    figures: dict[str, Printed] = Field(default_factory=dict, description="what papers print and start from, for studies")
    claims: dict[str, Conclusion] = Field(default_factory=dict, description="what papers conclude, for studies")


@dataclass(frozen=True)
class CarbonTables:
    """All tables together: processes whole, the rest as quantities in SI with range and source."""

    fab: Fab
    processes: Mapping[str, Process] = field(default_factory=dict)
    technologies: Mapping[str, Quantity] = field(default_factory=dict)
    parts: Mapping[str, Quantity] = field(default_factory=dict)
    products: Mapping[str, Quantity] = field(default_factory=dict)
    figures: Mapping[str, Printed] = field(default_factory=dict)
    claims: Mapping[str, Conclusion] = field(default_factory=dict)

    def process(self, name: str) -> Process:
        """A process. Raises InputError that lists the known ones."""
        if name not in self.processes:
            raise InputError(f"no process called '{name}'", known=sorted(self.processes), given=name)
        return self.processes[name]

    def technology(self, name: str) -> Quantity:
        """Grams per byte of a technology. Raises InputError that lists the known ones."""
        return _known(self.technologies, name, "memory or storage technology")

    def part(self, name: str) -> Quantity:
        """Grams of a part. Raises InputError that lists the known ones."""
        return _known(self.parts, name, "part")

    def figure(self, name: str, unit: str = "") -> Quantity:
        """A printed figure in SI; unit: its dimension ('watt', 'usd', '' of a plain number). Raises InputError."""
        printed = self._printed(name)
        try:
            if printed.low is not None and printed.high is not None:
                said = {"low": printed.low, "mid": printed.value, "high": printed.high, "source": printed.source}
                return read_quantity(said, unit)
            return read_quantity({"value": printed.value, "source": printed.source}, unit)
        except ValueError as problem:
            raise InputError(str(problem), path=f"figures.{name}")

    def number(self, name: str, unit: str = "") -> float:
        """The middle of a printed figure in SI. Raises InputError."""
        return float(self.figure(name, unit))

    def row(self, name: str, unit: str = "") -> tuple[float, ...]:
        """Several printed figures in SI. Raises InputError."""
        values = self._printed(name).value
        if not isinstance(values, list):
            raise InputError("want several values", path=f"figures.{name}")
        try:
            return tuple(float(read_quantity(value, unit)) for value in values)
        except ValueError as problem:
            raise InputError(str(problem), path=f"figures.{name}")

    def source(self, name: str) -> str:
        """Where a printed figure stands."""
        return self._printed(name).source or ""

    def _printed(self, name: str) -> Printed:
        if name not in self.figures:
            raise InputError(f"no printed figure called '{name}'", known=sorted(self.figures), given=name)
        return self.figures[name]


def join_tables(files: Iterable[TableFile]) -> CarbonTables:
    """One set of tables of several files. Raises InputError where two say one name, or none says `fab`."""
    many = tuple(files)
    fabs = [file.fab for file in many if file.fab is not None]
    if len(fabs) != 1:
        raise InputError(f"one table must say what all fabs share (found {len(fabs)})", path="fab")
    return CarbonTables(
        fabs[0],
        _joined("processes", [file.processes for file in many]),
        _joined("technologies", [{n: sourced(t.carbon_g_per_byte, t.source) for n, t in f.technologies.items()} for f in many]),
        _joined("parts", [{n: sourced(p.carbon_g, p.source) for n, p in f.parts.items()} for f in many]),
        _joined("products", [{n: sourced(p.carbon_g, p.source) for n, p in f.products.items()} for f in many]),
        _joined("figures", [file.figures for file in many]),
        _joined("claims", [file.claims for file in many]),
    )


def overlaid(tables: CarbonTables, own: TableFile) -> CarbonTables:
    """Tables with an own file's rows before them."""
    return replace(
        tables,
        fab=own.fab or tables.fab,
        processes={**tables.processes, **own.processes},
        technologies={**tables.technologies, **{n: sourced(t.carbon_g_per_byte, t.source) for n, t in own.technologies.items()}},
        parts={**tables.parts, **{n: sourced(p.carbon_g, p.source) for n, p in own.parts.items()}},
        products={**tables.products, **{n: sourced(p.carbon_g, p.source) for n, p in own.products.items()}},
        figures={**tables.figures, **own.figures},
        claims={**tables.claims, **own.claims},
    )


def with_fab(tables: CarbonTables, own: OwnFab, intensity_g_per_j: Quantity | None) -> CarbonTables:
    """Tables with what a machine says of its fab. intensity_g_per_j: of its grid, where it names one."""
    said: dict[str, object] = {
        "intensity_g_per_j": intensity_g_per_j,
        "materials_g_per_m2": own.materials_g_per_m2,
        "package_g": own.package_g,
        "yield_": own.yield_,
        "abated": own.abated,
    }
    return replace(tables, fab=tables.fab.model_copy(update={key: value for key, value in said.items() if value is not None}))


def _joined(section: str, many: list[dict[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for one in many:
        for name, value in one.items():
            if name in found:
                raise InputError(f"'{name}' is in two tables", path=f"{section}.{name}")
            found[name] = value
    return found


def _known(table: Mapping[str, Quantity], name: str, what: str) -> Quantity:
    if name not in table:
        raise InputError(f"no {what} called '{name}'", known=sorted(table), given=name)
    return table[name]


def sourced(value: float, source: str | None) -> Quantity:
    """A value of a table with its own source, or the table's."""
    quantity = value if isinstance(value, Quantity) else Quantity.make(value, value, value, None, f"{value:g}")
    return Quantity.make(float(quantity), quantity.low, quantity.high, quantity.source or source, quantity.text)
