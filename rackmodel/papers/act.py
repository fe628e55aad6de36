"""Seed 003's ACT: Tables 4 and 12 from its own tables, and its three cases: reuse (Figs 9, 10), reduce (Fig. 13), recycle (Figs 14, 15)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from math import prod

from rackmodel.carbon.lifetime import over_provisioning_for, renewal_carbon_g, reuse_share, second_life_gain
from rackmodel.carbon.metrics import best, c2ep, cdp, ce2p, cep, total_carbon
from rackmodel.carbon.tables import CarbonTables
from rackmodel.papers.act_chips import table_12
from rackmodel.papers.act_figures import CHECKS as FIGURES
from rackmodel.papers.act_reduce import area_carbon, area_range, figure_12, figure_13, jevons
from rackmodel.papers.claims import Computed, claims_of
from rackmodel.papers.reads import of_tables
from rackmodel.studies.findings import Finding, Need, by_reading, judged

NAMES = ("CPU", "GPU", "DSP")
KWH = 3.6e6
SOURCES_G_PER_KWH = (820.0, 490.0, 230.0, 41.0, 24.0, 11.0, 0.0)
"""ACT's Table 5 from coal to wind, and carbon-free."""


def mobile(tables: CarbonTables) -> dict[str, tuple[float, ...]]:
    """Table 4: delay (s), energy (J) and embodied carbon (g, the CPU's included) of CPU, GPU and DSP."""
    delay, power, added = tables.row("act.latency", "second"), tables.row("act.power", "watt"), tables.row("act.embodied", "gram")
    embodied = (added[0], added[0] + added[1], added[0] + added[2])
    energy = tuple(t * p for t, p in zip(delay, power, strict=True))
    return {"delay": delay, "energy": energy, "embodied": embodied}


def computed(tables: CarbonTables) -> dict[str, Computed]:
    """What the paper's inputs give for its conclusions, by the names of specs/carbon/claims; None where it lacks an input."""
    f = tables.number
    row = mobile(tables)
    delay, energy, embodied = row["delay"], row["energy"], row["embodied"]
    use, life = f("act.use_intensity", "gram/joule"), f("act.lifetime", "second")
    operational = [each * use * 1e6 for each in energy]
    metrics, reduced = _metrics(tables), figure_12(tables)
    gpu_share = 100 * reuse_share(embodied[1] - embodied[0], (energy[0] - energy[1]) / delay[1], life, use)
    dsp_share = 100 * reuse_share(embodied[2] - embodied[0], (energy[0] - energy[2]) / delay[2], life, use)
    longer = 100 * over_provisioning_for(2.0, f("ssd.baseline"))
    same_area = {node: area_carbon(tables, node, f("act.fab", "gram/joule"), abated=0.97) for node in ("28nm", "14nm")}
    solar = SOLAR_G_PER_KWH / KWH / use
    return {
        "act-01": operational[0],
        "act-02": operational[1],
        "act-03": operational[2],
        "act-04": energy[0] / energy[1],
        "act-05": energy[0] / energy[2],
        "act-06": embodied[1] / embodied[0],
        "act-07": embodied[2] / embodied[0],
        "act-08": gpu_share,
        "act-09": dsp_share,
        "act-10": gpu_share / solar,
        **{name: metrics[metric] for name, metric in FIGURE_9.items()},
        "act-15": prod(tables.row("act.fpga_speedups")) ** (1 / 3),
        **dict.fromkeys(FIGURE_11),
        **table_12(tables),
        "act-40": longer,
        "act-41": second_life_gain(f("ssd.baseline"), f("ssd.second")),
        "act-44": None,
        "act-51": 100 * (same_area["14nm"] / same_area["28nm"] - 1),
        "act-52": None,
        "act-530": None,
        "act-531": None,
        **dict.fromkeys(PLOTTED),
        **{name: reduced[metric] for name, metric in FIGURE_12.items()},
        **figure_13(tables),
    }


FIGURE_9 = {"act-11": "cdp", "act-12": "c2ep", "act-13": "cep", "act-14": "ce2p"}
FIGURE_12 = {"act-65": "cdp", "act-66": "ce2p", "act-67": "cep", "act-68": "c2ep", "act-f12-edp": "edp"}
FIGURE_11 = ("act-16", "act-17", "act-18", "act-19", "act-190")
SOLAR_G_PER_KWH = 41.0
PLOTTED = ("act-60", "act-61", "act-62", "act-63", "act-64")
"""Carbon, energy, delay and area of each design are plotted, not printed."""


def _metrics(tables: CarbonTables) -> dict[str, str]:
    """Metric → the design of Table 4 with the least of it."""
    row = mobile(tables)
    designs = dict(zip(NAMES, zip(row["embodied"], row["energy"], row["delay"], strict=True), strict=True))
    return {
        "cdp": best({name: cdp(c, d) for name, (c, _, d) in designs.items()}),
        "cep": best({name: cep(c, e) for name, (c, e, _) in designs.items()}),
        "c2ep": best({name: c2ep(c, e) for name, (c, e, _) in designs.items()}),
        "ce2p": best({name: ce2p(c, e) for name, (c, e, _) in designs.items()}),
    }


def _claims(tables: CarbonTables) -> list[Finding]:
    """The printed figures."""
    return [claim.finding() for claim in claims_of(tables, computed(tables))]


def inference_g(tables: CarbonTables, use_g_per_kwh: float, fab_scale: float = 1.0, active: float = 1.0) -> dict[str, float]:
    """Carbon of one inference of each design: operational, and T/(LT · active) of what it embodies, which `fab_scale` scales."""
    row, life = mobile(tables), tables.number("act.lifetime", "second")
    return {
        name: total_carbon(e * use_g_per_kwh / KWH, c * fab_scale, d, life * active)
        for name, e, c, d in zip(NAMES, row["energy"], row["embodied"], row["delay"], strict=True)
    }


def _greener_use(tables: CarbonTables) -> Finding:
    """Figure 10, top: the optimum as the use phase gets greener, and the intensity at which it changes."""
    active = tables.number("act.active")
    chosen = [best(inference_g(tables, each, active=active)) for each in SOURCES_G_PER_KWH]
    row, life = mobile(tables), tables.number("act.lifetime", "second")
    saved = (row["energy"][0] - row["energy"][2]) / KWH
    extra = (row["embodied"][2] * row["delay"][2] - row["embodied"][0] * row["delay"][0]) / life
    figures = {"crossing, always active, g/kWh": extra / saved, "crossing, active a tenth of the time, g/kWh": extra / saved / active}
    needs = [
        _least("DSP", inference_g(tables, SOURCES_G_PER_KWH[0], active=active), "coal"),
        _least("CPU", inference_g(tables, SOURCES_G_PER_KWH[-1], active=active), "carbon-free"),
    ]
    why = f"from coal to carbon-free, active {active:.3g} of three years: {', '.join(chosen)}; the active share of its life is not printed"
    drawn = _emitted({each: inference_g(tables, each, active=active) for each in SOURCES_G_PER_KWH})
    claim = "greener use moves the optimum from DSP to CPU"
    return replace(judged("A-use", "Figure 10", claim, needs, figures, why=why), drawn=drawn)


def _emitted(found: dict[float, dict[str, float]]) -> dict[str, float]:
    """Figure 10's bars: micrograms an inference of each design, by g/kWh."""
    return {f"ug, {name} at {each:g} g/kWh": 1e6 * grams for each, designs in found.items() for name, grams in designs.items()}


def _least(name: str, grams: dict[str, float], where: str) -> Need:
    """That one design has the least carbon of all."""
    others = min(value for other, value in grams.items() if other != name)
    return Need(f"{name} over the best other, {where}", grams[name] / others, most=1)


def _greener_fab(tables: CarbonTables) -> Finding:
    """Figure 10, bottom: the optimum as fabs get greener, on solar use."""
    row, active, use = tables.process("10nm"), tables.number("act.active"), 41.0
    assert row.energy_j_per_m2 is not None
    assert row.gas_95_g_per_m2 is not None
    of_masses = tables.number("act.masses_fab", "gram/joule") * KWH

    def scale(intensity: float) -> float:
        constant = float(row.gas_95_g_per_m2 or 0.0) + float(tables.fab.materials_g_per_m2)
        return (intensity / KWH * float(row.energy_j_per_m2 or 0.0) + constant) / (
            of_masses / KWH * float(row.energy_j_per_m2 or 0.0) + constant
        )

    chosen = [best(inference_g(tables, use, scale(each), active)) for each in SOURCES_G_PER_KWH]
    figures = {f"carbon of silicon over that of Table 4 at {each:g} g/kWh": scale(each) for each in SOURCES_G_PER_KWH}
    turned = _flips(lambda intensity: best(inference_g(tables, use, scale(intensity), active)))
    figures |= {f"{into} the best below, g/kWh of the fab": at for into, at in turned}
    own = float(tables.fab.intensity_g_per_j) * KWH
    mine = inference_g(tables, use, scale(own), active)
    figures[f"DSP over CPU with fabs at {own:,.4g} g/kWh"] = mine["DSP"] / mine["CPU"]
    needs = [
        _least("CPU", inference_g(tables, use, scale(SOURCES_G_PER_KWH[0]), active), "coal fabs"),
        _least("DSP", inference_g(tables, use, scale(SOURCES_G_PER_KWH[-1]), active), "carbon-free fabs"),
    ]
    why = [" and ".join(f"the {into} is best below {at:,.0f} g/kWh" for into, at in turned)] if turned else []
    why.append(f"from coal to carbon-free fabs of 10 nm, solar use, active {active:.3g} of three years: {', '.join(chosen)}")
    why.append(f"with fabs at {own:,.4g} g/kWh the {best(mine)} is best")
    drawn = _emitted({each: inference_g(tables, use, scale(each), active) for each in SOURCES_G_PER_KWH})
    claim = "greener fabs move the optimum back to the DSP"
    return replace(judged("A-fab", "Figure 10", claim, needs, figures, why="; ".join(why)), drawn=drawn)


def _flips(choose: Callable[[float], str]) -> list[tuple[str, float]]:
    """Where the best design changes on the way from coal to carbon-free, by bisection: (what is best below, g/kWh)."""
    found = []
    for dirtier, cleaner in itertools.pairwise(SOURCES_G_PER_KWH):
        if choose(dirtier) != choose(cleaner):
            high, low = dirtier, cleaner
            for _ in range(60):
                middle = (high + low) / 2
                high, low = (high, middle) if choose(middle) == choose(cleaner) else (middle, low)
            found.append((choose(cleaner), low))
    return found


def _renewal(tables: CarbonTables) -> Finding:
    """Figure 14: which ratio of embodied to yearly carbon would make five years the best of ten."""
    gain, lives = tables.number("phone.yearly_gain"), [float(n) for n in range(1, 11)]
    figures: dict[str, float] = {}
    readings, drawn = {}, dict[str, float]()
    for ratio in (0.5, 1.0, 1.25, 1.5, 2.0, 4.0, 8.0):
        totals = {life: renewal_carbon_g(life, 10, ratio, 1.0, gain) for life in lives}
        words = f"embodied carbon is {ratio:g} years of use"
        drawn |= {f"{life:g} years each, {words}, over the best": total / min(totals.values()) for life, total in totals.items()}
        figures[f"best life if {words}, y"] = best_life = min(totals, key=lambda life: totals[life])
        readings[words] = [Need("best life, y", best_life, 4.5, 5.5)]
    why = "one reading of the figure: purchases every L years, efficiency 1.21 a year; the ratio that ACT has is not printed"
    return replace(by_reading("A-renewal", "Figure 14", "a life of five years is best", readings, figures, why=why), drawn=drawn)


CHECKS = of_tables(_claims, _greener_use, _greener_fab, jevons, _renewal, area_range, *FIGURES)
"""The printed figures, then the trends of Figures 10, 13 and 14, then the figures that are drawn as far as they are printed."""
