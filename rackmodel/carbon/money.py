"""What a system costs over its life: chips and their engineering, servers, building, electricity, re-spins.

    capital = chips + NRE + servers and network + building        TCO = capital + electricity + respins · (masks + wafers)
    electricity = IT power · PUE · hours · price                  (PUE here and nowhere else)
    masks: a set for one chip = shared + own; a set for n chips that differ in `own` layers alone = shared + n · own

Source: seed 002 (Hardwired-Neurons LPU), section 7.4 and Table 3; its masks, section 3. Floats or Ranged go in and come out.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.carbon.ranges import Ranged, fixed
from rackmodel.errors import InputError

LEAST_W = 10.0  # an accelerator with its share of a server draws more: kW was meant


@dataclass(frozen=True)
class Masks:
    """The price of a mask set in layers that all chips share and layers that each has of its own, dollars."""

    shared_usd: Ranged
    own_usd: Ranged

    def first_usd(self, chips: int) -> Ranged:
        """Masks of the first tape-out of so many different chips."""
        return self.shared_usd + self.own_usd * float(chips)

    def respin_usd(self, chips: int) -> Ranged:
        """Masks of an update that changes each chip's own layers."""
        return self.own_usd * float(chips)

    def separate_usd(self, chips: int) -> Ranged:
        """Masks of as many chips that share no layer."""
        return (self.shared_usd + self.own_usd) * float(chips)


def split_masks(set_usd: Ranged, all_usd: Ranged, chips: int) -> Masks:
    """Shared and own price from that of one chip's set and of all chips' masks: own = (all - set) / (n - 1).

    Raises InputError where fewer than two chips, or masks below one set or above n sets, cannot tell them apart.
    """
    if chips < 2:
        raise InputError("one chip does not tell shared masks from its own", path="chips")
    if not set_usd.mid <= all_usd.mid <= chips * set_usd.mid:
        raise InputError(f"{all_usd.mid:,.0f} $ of masks for {chips} chips lie outside one to {chips} sets of {set_usd.mid:,.0f} $")
    own = (all_usd - set_usd) / float(chips - 1)
    return Masks(set_usd - own, own)


@dataclass(frozen=True)
class Cost:
    """A system's money, dollars. energy_j: of its life, at the meter (PUE included) · respin_usd: of one · work: tokens of its life."""

    chips_usd: Ranged
    nre_usd: Ranged
    servers_usd: Ranged
    building_usd: Ranged
    energy_j: Ranged
    price_usd_per_j: Ranged
    respin_usd: Ranged
    respins: float = 0.0

    @property
    def capital_usd(self) -> Ranged:
        """Chips, engineering, servers and network, building."""
        return self.chips_usd + self.nre_usd + self.servers_usd + self.building_usd

    @property
    def updated_usd(self) -> Ranged:
        """All re-spins of its life."""
        return self.respin_usd * self.respins

    @property
    def electricity_usd(self) -> Ranged:
        """Energy of the life × price."""
        return self.energy_j * self.price_usd_per_j

    @property
    def tco_usd(self) -> Ranged:
        """Total cost of ownership, re-spins included."""
        return self.capital_usd + self.electricity_usd + self.updated_usd

    def per_dollar(self, work: Ranged | float) -> Ranged:
        """Work for each dollar of the total cost of ownership (tokens per dollar)."""
        return (work if isinstance(work, Ranged) else fixed(work)) / self.tco_usd


def facility_energy_j(it_power_w: Ranged, pue: Ranged, seconds: Ranged) -> Ranged:
    """Joules at the meter. Raises InputError for a PUE below 1."""
    if pue.low < 1:
        raise InputError(f"pue is facility energy over IT energy and cannot be below 1 (got {pue.low:g})", path="pue")
    return it_power_w * pue * seconds


def building_usd(it_power_w: Ranged, price_usd_per_w: Ranged) -> Ranged:
    """A building by its IT power."""
    return it_power_w * price_usd_per_w


def check_power(power_w: float, accelerators: float, path: str) -> None:
    """Raise InputError where an accelerator with its server would draw less than LEAST_W or more than a wafer: W for kW, kW for W."""
    each = power_w / accelerators
    if not LEAST_W <= each <= 1e5:
        raise InputError(f"{each:g} W an accelerator with its server: is it {'kW' if each < LEAST_W else 'W, not kW'}?", path=path)
