"""The money of a machine, read off its tree and its site: what it costs to have, to run and to update, in a life.

    chips     Σ accelerators · price                       servers   Σ all other levels · price
    NRE       masks of the first tape-out + the rest       re-spin   masks of each chip's own layers + the rest
    building  IT power at work · price a watt              energy    (a P_work + (1 - a) P_static) · PUE · LT        a: share at work

Sums of carbon/money. IT power is stated for a level, else its kernels' power limit, else its static power; or that of a priced step.
Source of the form: seed 002 (Hardwired-Neurons LPU), section 7.4 and Table 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.job import Usage
from rackmodel.carbon.money import Cost, Masks, building_usd, facility_energy_j
from rackmodel.carbon.ranges import Ranged, factor, fixed, total
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level, Site
from rackmodel.model.price import LevelCost


@dataclass(frozen=True)
class MachineCost:
    """A machine's money. it_w: at work · silent: what states no price, so that it is not counted."""

    cost: Cost
    it_w: Ranged
    masks_usd: Ranged
    silent: tuple[str, ...]


@dataclass(frozen=True)
class _Kind:
    """Levels of a machine that accelerators of one kind use; what several kinds share is the first one's. counts: instances in use."""

    machine: Architecture
    counts: dict[str, int]
    levels: tuple[Level, ...]

    @property
    def own(self) -> set[str]:
        """Names of the accelerator and what lies inside it."""
        return {level.name for level in self.machine.accelerator.walk()}

    @property
    def priced(self) -> list[tuple[Level, LevelCost]]:
        """Levels that state what they cost."""
        return [(level, level.cost) for level in self.levels if level.cost is not None]

    @property
    def silent(self) -> list[str]:
        """Levels that do not, but for those inside an accelerator."""
        inside = self.own - {self.machine.accelerator.name}
        return [level.name for level in self.levels if level.cost is None and level.name not in inside]


def _kinds(machine: Architecture) -> list[_Kind]:
    """Of each kind of accelerators in use."""
    found, shared = [], set[str]()
    for pool in machine.pools:
        own = {level.name for level in pool.accelerator.walk()}
        levels = tuple(level for level in pool.tree.walk() if level.name not in shared - own)
        found.append(_Kind(pool, pool.instances(), levels))
        shared |= {level.name for level in levels} - own
    return found


def cost_of(machine: Architecture, usage: Usage, *, respins: float = 0.0, it_w: float | None = None) -> MachineCost:
    """The money of the accelerators in use and all above them. it_w: what a priced step draws, instead of what the levels state; the
    building is for the latter, whatever runs.

    Raises InputError where nothing states a price.
    """
    kinds = _kinds(machine)
    for kind in kinds:
        chip = kind.machine.accelerator
        if chip.cost is None or not (chip.cost.price_usd or chip.cost.engineering):
            raise InputError(f"'{chip.name}' does not say what it costs, such as cost: {{price: 30000 usd}}", path=f"tree.{chip.name}.cost")
    built_for = at_work_w(machine)
    power = built_for if it_w is None else fixed(it_w)
    site = machine.site or Site(grid="world")
    life, active = factor("lifetime", usage.lifetime_s), factor("active share", usage.active)
    drawn = power * active + fixed(static_watts(machine)) * (1.0 - active)
    masks, nre, respin = (total(parts) for parts in zip(*(_engineering(machine, kind.priced) for kind in kinds), strict=True))
    silent = [name for kind in kinds for name in kind.silent]
    silent += [key for key, value in (("electricity", site.electricity_usd_per_j), ("building", site.building_usd_per_w)) if value is None]
    cost = Cost(
        chips_usd=total(_bought(machine, [one for one in kind.priced if one[0].name in kind.own], kind.counts) for kind in kinds),
        nre_usd=masks + nre,
        servers_usd=total(_bought(machine, [one for one in kind.priced if one[0].name not in kind.own], kind.counts) for kind in kinds),
        building_usd=building_usd(built_for, factor("building, a watt", site.building_usd_per_w or 0.0)),
        energy_j=facility_energy_j(drawn, factor(f"pue of {machine.name}", site.pue), life),
        price_usd_per_j=factor("electricity", site.electricity_usd_per_j or 0.0),
        respin_usd=respin,
        respins=respins,
    )
    return MachineCost(cost, power, masks, tuple(silent))


@dataclass(frozen=True)
class JobMoney:
    """A job's money, dollars. electricity: of its energy and of the idling that comes with it · owning: its part of the capital."""

    electricity_usd: Ranged
    owning_usd: Ranged

    @property
    def total_usd(self) -> Ranged:
        """Both."""
        return self.electricity_usd + self.owning_usd

    def __mul__(self, jobs: float) -> JobMoney:
        """Of so many."""
        return JobMoney(self.electricity_usd * jobs, self.owning_usd * jobs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: each share and the total as low, mid and high, dollars."""
        shares = {"electricity": self.electricity_usd, "owning": self.owning_usd, "total": self.total_usd}
        return {name: share.to_dict() for name, share in shares.items()}


def job_money(machine: Architecture, usage: Usage, energy_j: float, seconds: float) -> JobMoney | None:
    """The money of a job of so many joules and seconds, in the shares of carbon/job; None where an accelerator states no price."""
    chips = [pool.accelerator.cost for pool in machine.pools]
    if any(chip is None or not (chip.price_usd or chip.engineering) for chip in chips):
        return None
    money, active = cost_of(machine, usage).cost, factor("active share", usage.active)
    pue = factor(f"pue of {machine.name}", (machine.site or Site(grid="world")).pue)
    idle = fixed(static_watts(machine) * seconds) * (1.0 - active) / active
    part = fixed(seconds) / (factor("lifetime", usage.lifetime_s) * active)
    return JobMoney((idle + energy_j) * pue * money.price_usd_per_j, money.capital_usd * part)


def prices_of(machine: Architecture, usage: Usage | None = None) -> tuple[float, float] | None:
    """(dollars for each joule of a job, dollars for each second of it), every factor at mid; None where an accelerator states no price."""
    joule, second = (job_money(machine, usage or Usage(), joules, 1.0 - joules) for joules in (1.0, 0.0))
    return None if joule is None or second is None else (joule.total_usd.mid, second.total_usd.mid)


def money_weights(machine: Architecture, usage: Usage | None = None) -> tuple[float, float]:
    """`prices_of`. Raises InputError where nothing states a price."""
    found = prices_of(machine, usage)
    if found is None:
        names = ", ".join(f"'{pool.accelerator.name}'" for pool in machine.pools)
        raise InputError(f"money needs a price: no 'cost' of {names} in {machine.name}", path="tree")
    return found


def at_work_w(machine: Architecture) -> Ranged:
    """IT power of the accelerators in use and all above them at work, watts."""
    kinds = _kinds(machine)
    return total(_level_w(kind, level) for kind in kinds for level in kind.levels)


def limit_w(machine: Architecture) -> float | None:
    """What an accelerator may draw by its kernels: what it is set to, else its limit; None where they say neither."""
    kernels = [one.compute.kernels for one, _ in machine.inside if one.compute is not None and one.compute.kernels is not None]
    return (kernels[-1].power_cap_w or kernels[-1].power_limit_w) if kernels else None


def updates(machine: Architecture, usage: Usage) -> int:
    """Re-spins of a chip that is engineered anew each year of its life but the first; 0 where nothing is engineered."""
    engineered = any(level.cost is not None and level.cost.engineering is not None for level in machine.tree.walk())
    years = float(usage.lifetime_s) / (365 * 86400.0)
    return max(0, math.floor(years + 1e-9) - 1) if engineered else 0


def _level_w(kind: _Kind, level: Level) -> Ranged:
    """Power at work of its instances in use: as stated; of accelerators the cap or limit that their kernels have; else static."""
    machine, count = kind.machine, float(kind.counts[level.name])
    if level.cost is not None and level.cost.power_w is not None:
        return factor(f"{machine.name}.{level.name} power", level.cost.power_w) * count
    limit = limit_w(machine) if level.accelerator else None
    if limit is not None:
        return factor(f"{machine.name}.{level.name} power", limit) * count
    return factor(f"{machine.name}.{level.name} static power", level.static_power_w) * machine.drawing()[level.name]


def _bought(machine: Architecture, priced: list[tuple[Level, LevelCost]], counts: dict[str, int]) -> Ranged:
    prices = ((level.name, cost.price_usd) for level, cost in priced)
    return total(factor(f"{machine.name}.{name} price", price) * float(counts[name]) for name, price in prices)


def _engineering(machine: Architecture, priced: list[tuple[Level, LevelCost]]) -> tuple[Ranged, Ranged, Ranged]:
    """(masks of the first tape-out, the rest of it, a re-spin), dollars."""
    masks, rest, respin = [], [], []
    for level, cost in priced:
        made = cost.engineering
        if made is None:
            continue
        name = f"{machine.name}.{level.name}"
        rest.append(factor(f"{name} other engineering", made.other_usd))
        respin.append(factor(f"{name} re-spin", made.respin_usd))
        if made.masks is not None:
            own = factor(f"{name} own masks", made.masks.own_usd)
            layers = Masks(factor(f"{name} mask set", made.masks.set_usd) - own, own)
            masks.append(layers.first_usd(made.masks.designs))
            respin.append(layers.respin_usd(made.masks.designs))
    return total(masks), total(rest), total(respin)
