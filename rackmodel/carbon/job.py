"""What a job of E joules and T seconds emits, in the three shares that every command states alike.

    use       E · α                             its own energy;  α = PUE · intensity
    idle      P_static · T (1 - a)/a · α        the machine waiting for work, of which each job has its part;  a: share of its life at work
    embodied  made · T / (a · LT)               its part of what the machine is made of, out to a boundary;  LT: life

All three are linear in E and T, so that a step, a token and a whole run differ in nothing else. Sources: ACT (Gupta et al., ISCA
2022), eqs. 1 and 2; idle time as in Golden 2025, Figure 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.bill import Bill
from rackmodel.carbon.operational import Placed, grid_intensity_g_per_j, grid_name, site_words
from rackmodel.carbon.ranges import Number, Ranged, factor, fixed
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.embodied import BOUNDARIES, Boundary
from rackmodel.units import Quantity

YEAR_S = 365 * 86400.0
LIFETIME = Quantity.make(4 * YEAR_S, 3 * YEAR_S, 5 * YEAR_S, "ACT, section 3.1: three to five years for servers", "4 years (3 to 5)")
ACTIVE = Quantity.make(0.6, 0.4, 0.9, "ASSUMED: share of its life at work, queues and repairs taken off", "60 % (40 to 90)")


@dataclass(frozen=True)
class Usage:
    """How long a machine lives and which share of that it works. boundaries: what of its bill counts."""

    lifetime_s: Quantity = LIFETIME
    active: Quantity = ACTIVE
    boundaries: tuple[Boundary, ...] = BOUNDARIES

    def __post_init__(self) -> None:
        if not self.lifetime_s.low > 0:
            raise InputError("a lifetime must be positive", path="lifetime")
        if not (self.active.low > 0 and self.active.high <= 1):
            raise InputError(f"the active share must be above 0 and at most 1 (got {self.active.text})", path="active")


@dataclass(frozen=True)
class JobCarbon:
    """What a job emits, in grams. embodied_g: None where the machine does not say what it is made of · basis: what the shares rest on,
    in words (grid, PUE, boundary, active share, life)."""

    use_g: Ranged
    idle_g: Ranged
    embodied_g: Ranged | None
    basis: Mapping[str, str]

    @property
    def operational_g(self) -> Ranged:
        """Use and idle."""
        return self.use_g + self.idle_g

    @property
    def total_g(self) -> Ranged:
        """All that is known."""
        return self.operational_g if self.embodied_g is None else self.operational_g + self.embodied_g

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: each share and the total as low, mid and high, and what they rest on."""
        shares = {"use": self.use_g, "idle": self.idle_g, "embodied": self.embodied_g, "total": self.total_g}
        return {**{name: None if share is None else share.to_dict() for name, share in shares.items()}, "basis": dict(self.basis)}


@dataclass(frozen=True)
class CarbonRates:
    """Grams of a machine's jobs: for each joule that they use, for each second that they take."""

    use_g_per_j: Ranged
    idle_g_per_s: Ranged
    embodied_g_per_s: Ranged | None
    basis: Mapping[str, str]

    def of(self, energy_j: Number, seconds: Number) -> JobCarbon:
        """A job's."""
        made = None if self.embodied_g_per_s is None else self.embodied_g_per_s * seconds
        return JobCarbon(self.use_g_per_j * energy_j, self.idle_g_per_s * seconds, made, self.basis)


def carbon_rates(
    architecture: Architecture, bill: Bill | None, grid: Mapping[str, Quantity], static_w: float, usage: Usage | None = None
) -> CarbonRates:
    """The rates of a machine. bill: None where it states nothing · grid: place → g/J · static_w: its power whatever it does.

    Raises InputError where it has no site.
    """
    said = usage or Usage()
    per_joule, active = g_per_joule(architecture, grid), factor("active share", said.active)
    idle = fixed(static_w) * (1.0 - active) / active * g_per_joule(architecture, grid, waiting=True)
    assert architecture.site is not None
    place, pue = site_words(architecture.site, grid)
    basis = {"grid": place, "PUE": pue, "at work": said.active.text}
    if bill is None:
        return CarbonRates(per_joule, idle, None, basis)
    made = bill.total_g(said.boundaries) / (factor("lifetime", said.lifetime_s) * active)
    out_to = next(name for name in reversed(BOUNDARIES) if any(line.boundary == name for line in bill.lines) and name in said.boundaries)
    basis = {"boundary": out_to, **basis, "life": said.lifetime_s.text}
    return CarbonRates(per_joule, idle, made, basis)


def g_per_joule(architecture: Architecture, grid: Mapping[str, Quantity], *, waiting: bool = False) -> Ranged:
    """Grams for each joule at the machine: PUE and intensity, each a factor. waiting: of what it draws between jobs. Raises InputError
    where there is no site."""
    if architecture.site is None:
        raise InputError("carbon of use needs a site: {grid, pue} in the architecture", path="site")
    place = grid_name(architecture.site.grid, grid) if isinstance(architecture.site.grid, str) else "own"
    intensity = grid_intensity_g_per_j(architecture.site, grid)
    there = factor(f"grid {place}", intensity)
    if waiting and isinstance(intensity, Placed):
        there = intensity.waiting(there)
    return factor(f"pue of {architecture.name}", architecture.site.pue) * there
