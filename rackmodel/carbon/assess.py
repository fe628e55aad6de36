"""A priced mapping and a bill of materials → the footprint of the work: operational, embodied share, metrics, with ranges.

    operational = (E + P_static · T (1 - a)/a) · PUE · intensity        a: share of its life that the machine is at work
    life        = a · LT                                                seconds of work in a life of LT
    CF          = α E + β T,  α = PUE · intensity,  β = α P_static (1 - a)/a + E_embodied / (a LT)

E and T are a step's; between steps a machine that is on draws its static power. CF is linear in both, so that a search can
weigh them (`objective`). Sources: ACT, eqs. 1 and 2; idle time as in Golden 2025, Figure 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.bill import Bill
from rackmodel.carbon.metrics import Footprint
from rackmodel.carbon.operational import grid_intensity_g_per_j
from rackmodel.carbon.ranges import Ranged, factor, fixed
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.embodied import BOUNDARIES, Boundary
from rackmodel.model.result import Result
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


def footprint(
    result: Result, architecture: Architecture, bill: Bill, grid: Mapping[str, Quantity], usage: Usage | None = None, *, work: float = 1.0
) -> Footprint:
    """The footprint of one step of a result. work: pieces it makes (tokens). Raises InputError where there is no site."""
    said = usage or Usage()
    static = float(result.ledger.group(("component",)).get(("static",), 0.0))
    per_joule, active = _per_joule(architecture, grid), factor("active share", said.active)
    idle = fixed(static) * (1.0 - active) / active
    return Footprint(
        embodied_g=bill.total_g(said.boundaries),
        operational_g=(idle + result.energy_j) * per_joule,
        energy_j=fixed(result.energy_j),
        delay_s=fixed(result.latency_s),
        lifetime_s=factor("lifetime", said.lifetime_s) * active,
        area_m2=bill.area_m2,
        work=work,
    )


def objective(
    name: str, architecture: Architecture, bill: Bill, grid: Mapping[str, Quantity], static_w: float, usage: Usage | None = None
) -> Callable[[Any, Any], Any]:
    """A figure as a function of [n] joules and [n] seconds of a step, every factor at mid: what a search minimizes.

    name: as Footprint.figure takes it. Raises InputError for an unknown one.
    """
    said = usage or Usage()
    alpha, beta = carbon_weights(architecture, bill, grid, static_w, said)
    embodied = bill.total_g(said.boundaries).mid
    area = bill.area_m2.mid
    known: dict[str, Callable[[Any, Any], Any]] = {
        "edp": lambda e, t: e * t,
        "edap": lambda e, t: e * t * area,
        "cdp": lambda e, t: embodied * t,
        "cep": lambda e, t: embodied * e,
        "c2ep": lambda e, t: embodied**2 * e,
        "ce2p": lambda e, t: embodied * e**2,
        "carbon": lambda e, t: alpha * e + beta * t,
        "tcdp": lambda e, t: (alpha * e + beta * t) * t,
    }
    if name not in known:
        raise InputError(f"no carbon objective called '{name}'", known=sorted(known), given=name)
    return known[name]


def carbon_weights(
    architecture: Architecture, bill: Bill, grid: Mapping[str, Quantity], static_w: float, usage: Usage | None = None
) -> tuple[float, float]:
    """(grams for each joule of a step, grams for each second of it): α and β, every factor at mid."""
    said = usage or Usage()
    alpha, active = _per_joule(architecture, grid).mid, float(said.active)
    embodied = bill.total_g(said.boundaries).mid
    return alpha, alpha * static_w * (1 - active) / active + embodied / (active * float(said.lifetime_s))


def _per_joule(architecture: Architecture, grid: Mapping[str, Quantity]) -> Ranged:
    """Grams for each joule at the machine: PUE and intensity, each a factor."""
    if architecture.site is None:
        raise InputError("carbon of use needs a site: {grid, pue} in the architecture", path="site")
    place = architecture.site.grid if isinstance(architecture.site.grid, str) else "own"
    intensity = grid_intensity_g_per_j(architecture.site, grid)
    return factor(f"pue of {architecture.name}", architecture.site.pue) * factor(f"grid {place}", intensity)
