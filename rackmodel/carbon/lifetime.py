"""How long a machine lives, how much of it is used, and when a longer life or a second use pays.

energy of a life      T (P_idle + a (P_active - P_idle)),  a: share of the time active
break-even of a       E_1 + c T (...)_1 = E_2 + c T (...)_2 solved for the share of the first       (Golden 2025, Fig. 9)
break-even of reuse   share of its life at which what an addition saves pays what it embodies       (ACT, section 6.1)
SSD lifetime (years)  PEC (1 + PF) / (365 · DWPD · WA · R)                                          (ACT, section 8)
renewal               E · H / L + Σ_years OP · g^(-age of the design at its purchase)              (ACT, Figure 14)
"""

from __future__ import annotations

import math
from typing import TypeVar

from rackmodel.carbon.ranges import Ranged
from rackmodel.errors import InputError

Value = TypeVar("Value", float, Ranged)


def life_energy_j(seconds: Value, idle_w: Value, active_w: Value, active_share: Value) -> Value:
    """Joules of so many seconds of which a share is active and the rest idle."""
    return seconds * (idle_w + (active_w - idle_w) * active_share)


def break_even_share(
    embodied_g: tuple[float, float],
    idle_w: tuple[float, float],
    active_w: tuple[float, float],
    speed: float,
    seconds: float,
    carbon_g_per_j: float,
) -> float:
    """Share of the time that the first system is active above which its total carbon is less than the second's, for equal work.

    speed: work a second of the first over the second; the second is active speed times as long for the same work (and as
    long as it takes: a share above 1 is more systems' worth of time). Raises InputError where the second never loses.
    Source: Golden 2025, section 5 and Figure 9.
    """
    rate = carbon_g_per_j * seconds
    fixed_first = embodied_g[0] + rate * idle_w[0]
    fixed_second = embodied_g[1] + rate * idle_w[1]
    slope = rate * ((active_w[1] - idle_w[1]) * speed - (active_w[0] - idle_w[0]))
    if slope <= 0:
        raise InputError("the second system draws no more for the same work: no share breaks even")
    return (fixed_first - fixed_second) / slope


def reuse_share(added_embodied_g: Value, saved_w: Value, lifetime_s: Value, carbon_g_per_j: Value) -> Value:
    """Share of its life that an addition must be in use for what it saves to pay what it embodies. Source: ACT, section 6.1."""
    return added_embodied_g / (saved_w * lifetime_s * carbon_g_per_j)


def ssd_lifetime_years(cycles: Value, over_provisioning: Value, writes_per_day: Value, amplification: Value, compression: Value) -> Value:
    """Years until a drive is worn out: PEC (1 + PF) / (365 DWPD WA R). Source: ACT, section 8 (Meza et al., SIGMETRICS 2015)."""
    return cycles * (over_provisioning + 1.0) / (writes_per_day * amplification * compression * 365.0)


def write_amplification(over_provisioning: float) -> float:
    """(1 + PF) / 2PF: writes in flash for each write of a host under greedy collection and uniform writes (Desnoyers 2012)."""
    if not over_provisioning > 0:
        raise InputError("over-provisioning must be positive", path="over_provisioning")
    return (1 + over_provisioning) / (2 * over_provisioning)


def over_provisioning_for(times: float, baseline: float) -> float:
    """Over-provisioning that makes a drive live `times` as long as at `baseline`, with greedy collection, by bisection."""

    def life(share: float) -> float:
        return ssd_lifetime_years(1.0, share, 1.0, write_amplification(share), 1.0)

    low, high = baseline, 10.0 * times * baseline
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if life(middle) < times * life(baseline) else (low, middle)
    return (low + high) / 2


def second_life_gain(baseline: float, second: float) -> float:
    """Embodied carbon of two drives over that of one that lives as long: 2 (1 + PF_1) / (1 + PF_2)."""
    return 2.0 * (1 + baseline) / (1 + second)


def renewal_carbon_g(life_years: float, horizon_years: int, embodied_g: float, yearly_g: float, gain: float) -> float:
    """Carbon of `horizon_years` with a new device every `life_years`, each newer one `gain` times as efficient a year.

    Purchases at 0, L, 2L...; the last device counts by its share. Source: ACT, Figure 14 (one discretisation of it).
    """
    if not (life_years > 0 and gain >= 1):
        raise InputError("a life must be positive and a yearly gain at least 1")
    bought = [math.floor(year / life_years) * life_years for year in range(horizon_years)]
    return embodied_g * horizon_years / life_years + math.fsum(yearly_g * gain ** -float(year) for year in bought)
