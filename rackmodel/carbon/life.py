"""The carbon of a machine's life: what it draws, what it is made of, and what each re-spin of its chips makes anew.

life = E · intensity + made + re-spins · dies and memory of the accelerators           E: at the meter, as its money counts it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rackmodel.carbon.bill import Bill
from rackmodel.carbon.costing import MachineCost
from rackmodel.carbon.operational import grid_intensity_g_per_j, grid_name
from rackmodel.carbon.ranges import Ranged, factor, total
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.embodied import BOUNDARIES, Boundary
from rackmodel.units import Quantity


@dataclass(frozen=True)
class LifeCarbon:
    """Grams of a life. respin_g: of one, the accelerators' chips once more."""

    operational_g: Ranged
    embodied_g: Ranged
    respin_g: Ranged
    respins: float

    @property
    def total_g(self) -> Ranged:
        """All of it."""
        return self.operational_g + self.embodied_g + self.respin_g * self.respins


def life_carbon(
    machine: Architecture, bill: Bill, money: MachineCost, grid: Mapping[str, Quantity], boundaries: tuple[Boundary, ...] = BOUNDARIES
) -> LifeCarbon:
    """The carbon of a machine whose money is known. Raises InputError where it has no site."""
    if machine.site is None:
        raise InputError("carbon of use needs a site: {grid, pue} in the architecture", path="site")
    place = grid_name(machine.site.grid, grid) if isinstance(machine.site.grid, str) else "own"
    intensity = factor(f"grid {place}", grid_intensity_g_per_j(machine.site, grid))
    chips = {pool.accelerator.name for pool in machine.pools}
    anew = total(line.total_g for line in bill.lines if line.level in chips and line.boundary in boundaries)
    return LifeCarbon(money.cost.energy_j * intensity, bill.total_g(boundaries), anew, money.cost.respins)
