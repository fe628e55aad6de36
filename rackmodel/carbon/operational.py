"""Operational carbon: facility energy times what the grid emits for it.

    gCO2e = joules x PUE x intensity        (ACT, Gupta et al., ISCA 2022, eq. 2; PUE is applied here and nowhere else)

The table of intensities is an argument (name → Quantity in g/J): this module reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from rackmodel.carbon.ranges import Ranged
from rackmodel.carbon.tables import TableFile
from rackmodel.errors import InputError
from rackmodel.model.architecture import Site
from rackmodel.model.schema import Spec
from rackmodel.units import GramPerJoule, Quantity, read_quantity

JOULES_PER_KWH = 3.6e6
HIGHEST_G_PER_KWH = 2000.0
_NUMBER = re.compile(r"[-+]?\.?\d")


class Placed(Quantity):
    """Intensity of work that runs a share of the hours, wherever they lie: g/J, its range from the greenest to the dirtiest of them, its
    middle the mean of all hours."""

    share: float

    def waiting(self, work: Ranged) -> Ranged:
        """That of the other hours, in which the machine waits, where work has an intensity in the range."""
        return work if self.share >= 1 else (float(self) - work * self.share) / (1.0 - self.share)


class GridEntry(Spec):
    """One place or energy source."""

    intensity_g_per_j: GramPerJoule = Field(alias="intensity", description="carbon per energy, such as '380 g/kWh'")
    aliases: tuple[str, ...] = Field(default=(), description="other names of it")
    source: str = Field(description="where the number comes from")


class GridFile(TableFile):
    """A file of specs/carbon: grids, and the tables of embodied carbon."""

    entries: dict[str, GridEntry] = Field(default_factory=dict, description="place or energy source → intensity and source")

    def table(self) -> dict[str, Quantity]:
        """Name → intensity in g/J, each with its source and range. Raises InputError on an impossible one."""
        found: dict[str, Quantity] = {}
        for name, entry in self.entries.items():
            value = check_intensity(_sourced(entry.intensity_g_per_j, entry.source), f"entries.{name}.intensity")
            for key in map(_key, (name, *entry.aliases)):
                if key in found:
                    raise InputError(f"'{name}' is there twice: names differ in more than case, spaces and hyphens", path=f"entries.{name}")
                found[key] = value
        return found


def grid_intensity_g_per_j(site: Site, table: Mapping[str, Quantity]) -> Quantity:
    """Intensity of a site's grid in g/J, with range and source. `table`: name → intensity, as GridFile.table gives it.

    A name is looked up as `grid_name` says; '300 g/kWh', {intensity, source} or the site's own `intensity` is taken as it is. Raises
    InputError for an unknown name (lists the known ones), for a name and an intensity that contradict each other, and for
    an intensity no grid has ('380 kg/kWh').
    """
    said = None if site.intensity_g_per_j is None else check_intensity(_sourced(site.intensity_g_per_j, site.source), "site.intensity")
    if isinstance(site.grid, dict):
        own = _read_own(site.grid)
        if said is not None and float(said) != float(own):
            raise InputError("two intensities, in site.grid and in site.intensity: keep one", path="site.intensity")
        return own
    plain = _plain(site.grid)
    named = table.get(grid_name(site.grid, table)) if plain is None else plain
    if said is not None:
        if named is not None and float(named) != float(said):
            raise InputError(
                f"contradicts grid '{site.grid}', which has {_per_kwh(named)}: drop the intensity, or name the grid otherwise",
                path="site.intensity",
            )
        return said
    if named is None:
        fact = f"no grid called '{site.grid}'; say its carbon itself, such as '300 g/kWh'"
        raise InputError(fact, path="site.grid", known=sorted(table), given=_key(site.grid))
    return check_intensity(named, "site.grid")


def grid_name(said: str, table: Mapping[str, Quantity]) -> str:
    """The table's name of a place, whatever its case: 'United States' → united_states; of a place that stands there with years alone the
    newest: sweden → sweden_2025. What is not there stays as it is."""
    key = _key(said)
    years = sorted(name for name in table if name[: -len("_2025")] == key and name[-4:].isdecimal())
    return key if key in table else years[-1] if years else said.strip()


def _plain(said: str) -> Quantity | None:
    """'300 g/kWh' as an intensity; None for a name. Raises InputError for another unit."""
    if not _NUMBER.match(said.strip()):
        return None
    try:
        return _sourced(read_quantity(said, "gram/joule"), "stated")
    except ValueError as problem:
        raise InputError(str(problem), path="site.grid")


def site_words(site: Site, table: Mapping[str, Quantity]) -> tuple[str, str]:
    """(grid and its intensity, PUE) in words: ('sweden_2025, 27 g/kWh (24.7 to 47)', '1.1'), ('300 g/kWh', '1.1 (1.05 to 1.2)')."""
    intensity, pue = grid_intensity_g_per_j(site, table), _quantity(site.pue)
    place = site.grid if isinstance(site.grid, str) else "own grid"
    named = f"{grid_name(place, table)}, " if not isinstance(site.grid, str) or _plain(place) is None else ""
    return f"{named}{_per_kwh(intensity)}{_ends(intensity, JOULES_PER_KWH)}", f"{float(pue):g}{_ends(pue, 1.0)}"


def _ends(value: Quantity, times: float) -> str:
    """' (24.7 to 47)'; nothing where there is no range."""
    return f" ({value.low * times:.4g} to {value.high * times:.4g})" if value.low < value.high else ""


def carbon_g_per_j(site: Site, table: Mapping[str, Quantity]) -> Quantity:
    """Grams of CO2e for one joule at the machine: PUE (once) × intensity; low and high from both ranges."""
    intensity, pue = grid_intensity_g_per_j(site, table), _quantity(site.pue)
    source = f"PUE {float(pue):g} × {_per_kwh(intensity)} ({intensity.source or 'no source given'})"
    return Quantity.make(float(pue) * float(intensity), pue.low * intensity.low, pue.high * intensity.high, source, source)


def operational_carbon_g(energy_j: float, site: Site, table: Mapping[str, Quantity]) -> Quantity:
    """Grams of CO2e of `energy_j` joules of the ledger (static energy included), with low and high."""
    energy, factor = _quantity(energy_j), carbon_g_per_j(site, table)
    text = f"{float(energy):g} J × {factor.text}"
    return Quantity.make(float(energy) * float(factor), energy.low * factor.low, energy.high * factor.high, factor.source, text)


def check_intensity(intensity: Quantity, path: str) -> Quantity:
    """The same intensity, if a grid can have it. Raises InputError that asks for the unit ('380 kg/kWh' → g/kWh?)."""
    if intensity.low < 0:
        raise InputError(f"'{intensity.text}' is negative", path=path)
    highest = intensity.high * JOULES_PER_KWH
    if highest > HIGHEST_G_PER_KWH:
        number = intensity.text.split()[0] if intensity.text.split() else f"{float(intensity) * JOULES_PER_KWH:g}"
        limit = f"no grid exceeds {HIGHEST_G_PER_KWH:,.0f} (coal has 820)"
        raise InputError(f"'{intensity.text}' is {highest:,.0f} g/kWh; {limit}: '{number} g/kWh'?", path=path)
    return intensity


def _read_own(grid: dict[str, Any]) -> Quantity:
    """{intensity, source} of a site → g/J."""
    allowed = ("intensity", "source", "note")
    for key in grid:
        if key not in allowed:
            raise InputError(f"unknown key '{key}'", path="site.grid", known=allowed, given=str(key))
    if "intensity" not in grid:
        raise InputError("a grid of one's own needs an intensity, such as {intensity: 380 g/kWh, source: ...}", path="site.grid")
    try:
        value = read_quantity(grid["intensity"], "gram/joule")
    except ValueError as problem:
        raise InputError(str(problem), path="site.grid.intensity")
    return check_intensity(_sourced(value, grid.get("source")), "site.grid.intensity")


def _quantity(value: float) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity.make(value, value, value, None, f"{value:g}")


def _sourced(value: float, source: str | None) -> Quantity:
    quantity = _quantity(value)
    if quantity.source:
        return quantity
    return Quantity.make(float(quantity), quantity.low, quantity.high, quantity.source or source, quantity.text)


def _per_kwh(intensity: Quantity) -> str:
    return f"{float(intensity) * JOULES_PER_KWH:.6g} g/kWh"


def _key(name: str) -> str:
    """'United States' → 'united_states'."""
    return "_".join(name.replace("-", " ").replace("_", " ").lower().split())
