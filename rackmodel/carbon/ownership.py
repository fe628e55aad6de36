"""What owning a machine comes to, money and carbon in one table of figures: Table 3 of seed 002 for any machine.

figure → (unit, low, mid, high), in the order of the table; a token's share where the tokens of a life are known
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.costing import MachineCost
from rackmodel.carbon.life import LifeCarbon
from rackmodel.carbon.ranges import Ranged

MILLION_TOKENS = 1e6


@dataclass(frozen=True)
class Ownership:
    """money, carbon: of the machine's life; carbon None without a site or a bill · tokens: of its life, None where no work is known."""

    machine: str
    money: MachineCost
    carbon: LifeCarbon | None = None
    tokens: Ranged | None = None

    @property
    def figures(self) -> dict[str, tuple[str, Ranged]]:
        """Figure → (unit, value), in the order of the table."""
        cost = self.money.cost
        found: dict[str, tuple[str, Ranged]] = {
            "IT power at work": ("W", self.money.it_w),
            "energy of its life, at the meter": ("J", cost.energy_j),
            "chips": ("$", cost.chips_usd),
            "engineering (NRE)": ("$", cost.nre_usd),
            "of it photomasks": ("$", self.money.masks_usd),
            "servers and network": ("$", cost.servers_usd),
            "building": ("$", cost.building_usd),
            "capital": ("$", cost.capital_usd),
            "electricity": ("$", cost.electricity_usd),
            "a re-spin": ("$", cost.respin_usd),
            "TCO, no re-spin": ("$", cost.capital_usd + cost.electricity_usd),
        }
        if cost.respins:
            found[self._with("TCO")] = ("$", cost.tco_usd)
        return found | self._emitted() | self._per_token()

    def _with(self, what: str) -> str:
        return f"{what}, {self.money.cost.respins:g} re-spin{'s' if self.money.cost.respins != 1 else ''}"

    def _emitted(self) -> dict[str, tuple[str, Ranged]]:
        made = self.carbon
        if made is None:
            return {}
        found = {"carbon of electricity": ("gCO2e", made.operational_g), "carbon of making it": ("gCO2e", made.embodied_g)}
        found["carbon, no re-spin"] = ("gCO2e", made.operational_g + made.embodied_g)
        return found | ({self._with("carbon"): ("gCO2e", made.total_g)} if made.respins else {})

    def _per_token(self) -> dict[str, tuple[str, Ranged]]:
        if self.tokens is None:
            return {}
        million = self.tokens / MILLION_TOKENS
        found = {"tokens of its life": ("token", self.tokens), "a million tokens": ("$", self.money.cost.tco_usd / million)}
        return found | ({} if self.carbon is None else {"carbon of a million tokens": ("gCO2e", self.carbon.total_g / million)})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rows = {name: {"unit": unit, **value.to_dict()} for name, (unit, value) in self.figures.items()}
        sources: Mapping[str, Any] = {n: q.source for _, one in self.figures.values() for n, q in sorted(one.factors.items()) if q.source}
        return {"machine": self.machine, "figures": rows, "not_stated": list(self.money.silent), "sources": dict(sources)}
