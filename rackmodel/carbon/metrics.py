"""Carbon and energy in one figure: which design, at which price in carbon, energy and time.

    CF = OP + T / LT · E          carbon of running for T on what lives LT         (ACT, Gupta et al., ISCA 2022, eq. 1)
    EDP = E D    EDAP = E D A                                                      (ACT, Table 2)
    CDP = C D    CEP = C E    C2EP = C² E    CE2P = C E²                           C: embodied carbon
    tCDP = CF · D                                                                  C: total carbon (Elgamal et al., HPCA 2025)

C means embodied carbon in ACT's four products and total carbon in tCDP. Floats or Ranged go in and come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from rackmodel.carbon.ranges import Ranged, fixed
from rackmodel.errors import InputError

Value = TypeVar("Value", float, Ranged)

UNITS = {"edp": "J s", "edap": "J s m2", "cdp": "g s", "cep": "g J", "c2ep": "g2 J", "ce2p": "g J2", "tcdp": "g s"}
"""Metric → unit; less is better in all."""


def total_carbon(operational_g: Value, embodied_g: Value, seconds: Value, lifetime_s: Value) -> Value:
    """OP + T/LT · E, grams. Source: ACT, eq. 1."""
    return operational_g + embodied_g * seconds / lifetime_s


def edp(energy_j: Value, delay_s: Value) -> Value:
    """E D."""
    return energy_j * delay_s


def edap(energy_j: Value, delay_s: Value, area_m2: Value) -> Value:
    """E D A."""
    return energy_j * delay_s * area_m2


def cdp(embodied_g: Value, delay_s: Value) -> Value:
    """C D, C embodied."""
    return embodied_g * delay_s


def cep(embodied_g: Value, energy_j: Value) -> Value:
    """C E, C embodied."""
    return embodied_g * energy_j


def c2ep(embodied_g: Value, energy_j: Value) -> Value:
    """C² E, C embodied."""
    return embodied_g * embodied_g * energy_j


def ce2p(embodied_g: Value, energy_j: Value) -> Value:
    """C E², C embodied."""
    return embodied_g * energy_j * energy_j


def tcdp(total_g: Value, delay_s: Value) -> Value:
    """C D, C total carbon of the work whose delay is D."""
    return total_g * delay_s


@dataclass(frozen=True)
class Footprint:
    """One piece of work on one machine. embodied_g: of the whole machine · operational_g, energy_j, delay_s: of the work ·
    lifetime_s: seconds of work that the machine does in its life · area_m2: its silicon, where known · work: pieces (tokens)."""

    embodied_g: Ranged
    operational_g: Ranged
    energy_j: Ranged
    delay_s: Ranged
    lifetime_s: Ranged
    area_m2: Ranged | None = None
    work: float = 1.0

    @property
    def embodied_share_g(self) -> Ranged:
        """The work's share of the embodied carbon: T/LT · E."""
        return self.embodied_g * self.delay_s / self.lifetime_s

    @property
    def total_g(self) -> Ranged:
        """Operational and its share of embodied carbon."""
        return total_carbon(self.operational_g, self.embodied_g, self.delay_s, self.lifetime_s)

    def metrics(self) -> dict[str, Ranged]:
        """Every metric by name; edap where the silicon is known."""
        found = {
            "edp": edp(self.energy_j, self.delay_s),
            "cdp": cdp(self.embodied_g, self.delay_s),
            "cep": cep(self.embodied_g, self.energy_j),
            "c2ep": c2ep(self.embodied_g, self.energy_j),
            "ce2p": ce2p(self.embodied_g, self.energy_j),
            "tcdp": tcdp(self.total_g, self.delay_s),
        }
        if self.area_m2 is not None:
            found["edap"] = edap(self.energy_j, self.delay_s, self.area_m2)
        return found

    def figure(self, name: str) -> Ranged:
        """A figure by name: a metric, carbon (total), embodied, operational or carbon_per_work. Raises InputError."""
        known = {
            **self.metrics(),
            "carbon": self.total_g,
            "embodied": self.embodied_g,
            "operational": self.operational_g,
            "carbon_per_work": self.total_g / self.work,
        }
        if name not in known:
            raise InputError(f"no carbon figure called '{name}'", known=sorted(known), given=name)
        return known[name]


def best(designs: Mapping[str, Ranged] | Mapping[str, float]) -> str:
    """The name of the least figure (of a range its middle); of two equal ones the first."""
    return min(designs, key=lambda name: _middle(designs[name]))


def _middle(figure: Ranged | float) -> float:
    return figure.mid if isinstance(figure, Ranged) else figure


def per_work_ratio(first: Ranged, second: Ranged, first_work: float, second_work: float) -> tuple[Ranged, Ranged]:
    """(first over second, the same for each unit of work): systems that do unequal work in the same time compare by the latter."""
    if not (first_work > 0 and second_work > 0):
        raise InputError("work must be positive to compare for each unit of it")
    plain = first / second
    return plain, plain * fixed(second_work / first_work)
