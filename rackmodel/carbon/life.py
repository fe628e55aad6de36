"""The carbon of a machine's life: what it draws, what it is made of, and what each re-spin of its chips makes anew.

life = E · intensity + made + re-spins · dies, memory and packages of the accelerators    E: at the meter, as its money counts it
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

CHIPS: tuple[Boundary, ...] = ("silicon", "memory", "package")
"""What a re-spin makes anew; boards and heat sinks go on."""


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
    made_anew = {level.name for pool in machine.pools for level in pool.accelerator.walk()}
    anew = total(line.total_g for line in bill.lines if line.level in made_anew and line.boundary in CHIPS and line.boundary in boundaries)
    return LifeCarbon(money.cost.energy_j * intensity, bill.total_g(boundaries), anew, money.cost.respins)
