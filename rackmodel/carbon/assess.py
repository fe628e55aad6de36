"""A priced mapping and a bill of materials → the footprint of the work: its shares (carbon/job), metrics, with ranges.

    CF = α E + β T,  α = PUE · intensity,  β = α P_static (1 - a)/a + E_embodied / (a LT)

E and T are a step's; CF is linear in both, so that a search can weigh them (`objective`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rackmodel.carbon.bill import Bill
from rackmodel.carbon.job import ACTIVE, LIFETIME, YEAR_S, Usage, carbon_rates
from rackmodel.carbon.metrics import Footprint
from rackmodel.carbon.ranges import factor, fixed
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.result import Result
from rackmodel.units import Quantity

__all__ = ["ACTIVE", "LIFETIME", "YEAR_S", "Usage", "carbon_weights", "footprint", "objective"]


def footprint(
    result: Result, architecture: Architecture, bill: Bill, grid: Mapping[str, Quantity], usage: Usage | None = None, *, work: float = 1.0
) -> Footprint:
    """The footprint of one step of a result. work: pieces it makes (tokens). Raises InputError where there is no site."""
    said = usage or Usage()
    job = carbon_rates(architecture, bill, grid, static_watts(architecture), said).of(result.energy_j, result.latency_s)
    return Footprint(
        embodied_g=bill.total_g(said.boundaries),
        operational_g=job.operational_g,
        energy_j=fixed(result.energy_j),
        delay_s=fixed(result.latency_s),
        lifetime_s=factor("lifetime", said.lifetime_s) * factor("active share", said.active),
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
    rates = carbon_rates(architecture, bill, grid, static_w, usage)
    assert rates.embodied_g_per_s is not None
    return rates.use_g_per_j.mid, rates.idle_g_per_s.mid + rates.embodied_g_per_s.mid
