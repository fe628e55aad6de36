"""Carbon of making chips, by ACT's equations 3 to 8 (Gupta et al., ISCA 2022).

    CPA   = (CI_fab · EPA + GPA + MPA) / Y        carbon per area: fab energy, gases, materials, yield           (eq. 5)
    E_SoC = Area · CPA                                                                                          (eq. 4)
    E_mem = CPS · Capacity                        DRAM, SSD, HDD                                          (eqs. 6 to 8)
    E     = N_r K_r + Σ E_r                       a package each                                                (eq. 3)

Other models of a fab (imec.netzero) give the bracket of eq. 5 as one number. Floats or Ranged go in and come out.
"""

from __future__ import annotations

from typing import TypeVar

from rackmodel.carbon.ranges import Ranged

Value = TypeVar("Value", float, Ranged)


def act_area_carbon(energy_j_per_m2: Value, intensity_g_per_j: Value, gas_g_per_m2: Value, material_g_per_m2: Value) -> Value:
    """Grams of CO2e per m2 of processed silicon, before yield: CI · EPA + GPA + MPA. Source: ACT, eq. 5."""
    return intensity_g_per_j * energy_j_per_m2 + gas_g_per_m2 + material_g_per_m2


def die_carbon(area_m2: Value, area_carbon_g_per_m2: Value, good: Value) -> Value:
    """Grams of one good die: area × carbon per area / yield. Source: ACT, eq. 4."""
    return area_m2 * area_carbon_g_per_m2 / good


def chip_carbon(capacity_bytes: Value, carbon_g_per_byte: Value) -> Value:
    """Grams of memory or storage: capacity × carbon per capacity. Source: ACT, eqs. 6 to 8."""
    return capacity_bytes * carbon_g_per_byte
