"""A priced mapping and a bill of materials → the footprint of the work: its shares (carbon/job), metrics, with ranges.

    CF = α E + β T,  α = PUE · intensity,  β = α P_static (1 - a)/a + E_embodied / (a LT)

E and T are a step's; CF is linear in both, so that a search can weigh them (`objective`).
"""

from __future__ import annotations

from collections.abc import Mapping

from rackmodel.carbon.bill import Bill
from rackmodel.carbon.job import Usage, carbon_rates
from rackmodel.carbon.metrics import Footprint
from rackmodel.carbon.ranges import factor, fixed
from rackmodel.cost.step.ledger import static_watts
from rackmodel.model.architecture import Architecture
from rackmodel.model.result import Result
from rackmodel.units import Quantity


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


def carbon_weights(
    architecture: Architecture, bill: Bill, grid: Mapping[str, Quantity], static_w: float, usage: Usage | None = None
) -> tuple[float, float]:
    """(grams for each joule of a step, grams for each second of it): α and β, every factor at mid."""
    rates = carbon_rates(architecture, bill, grid, static_w, usage)
    assert rates.embodied_g_per_s is not None
    return rates.use_g_per_j.mid, rates.idle_g_per_s.mid + rates.embodied_g_per_s.mid
