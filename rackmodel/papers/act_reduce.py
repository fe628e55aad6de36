"""ACT's leaner accelerators: NVDLA of 64 to 2,048 MACs, by its own table of area, speed and power (Figures 12 and 13).

ACT plots these designs and prints what is best; NVDLA's primer prints the designs. Delay is 1 / (frames a second), energy the
average power over that, carbon area × equation 5 of the process (16 nm as ACT's 14 nm), Taiwan's grid, gases 95 % abated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rackmodel.carbon.metrics import best, c2ep, cdp, ce2p, cep, edp
from rackmodel.carbon.operational import grid_intensity_g_per_j
from rackmodel.carbon.silicon import act_area_carbon, die_carbon
from rackmodel.carbon.tables import CarbonTables
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table
from rackmodel.model.architecture import Site
from rackmodel.studies.findings import Finding, Need, judged

PROCESS = {"16": "14nm", "28": "28nm"}
BUDGETS_MM2 = (1.0, 2.0)


@dataclass(frozen=True)
class Design:
    """One configuration at one process."""

    macs: int
    area_m2: float
    frames_per_s: float
    power_w: float
    carbon_g: float

    @property
    def energy_j(self) -> float:
        """Of one frame."""
        return self.power_w / self.frames_per_s

    @property
    def delay_s(self) -> float:
        """Of one frame."""
        return 1 / self.frames_per_s


def area_carbon(tables: CarbonTables, process: str, fab_g_per_j: float, *, abated: float = 0.95) -> float:
    """Equation 5 with the yield of ACT's released code, g/m2. abated: 0.95, or 0.97 as the mean of Table 7's columns."""
    row = tables.process(process)
    gas = row.gas_95_g_per_m2 if abated == 0.95 else row.gas_g_per_m2()
    assert row.energy_j_per_m2 is not None
    assert gas is not None
    whole = act_area_carbon(float(row.energy_j_per_m2), fab_g_per_j, float(gas), float(tables.fab.materials_g_per_m2))
    return die_carbon(1.0, whole, tables.number("act.yield"))


def designs(tables: CarbonTables, node: str = "16") -> list[Design]:
    """NVDLA's configurations at 16 or 28 nm (speed and power are of 16 nm), the largest first."""
    fab = float(grid_intensity_g_per_j(Site(grid="taiwan"), grid_table()))
    per_m2 = area_carbon(tables, PROCESS[node], fab)
    rows = (
        tables.row("nvdla.macs"),
        tables.row(f"nvdla.area_{node}", "metre**2"),
        tables.row("nvdla.frames"),
        tables.row("nvdla.power", "watt"),
    )
    return [Design(int(macs), area, frames, power, area * per_m2) for macs, area, frames, power in zip(*rows, strict=True)]


def figure_12(tables: CarbonTables) -> dict[str, str]:
    """Metric → MACs of the design with the least of it."""
    made = {f"{design.macs} MAC": design for design in designs(tables)}
    return {
        "edp": best({name: edp(d.energy_j, d.delay_s) for name, d in made.items()}),
        "cdp": best({name: cdp(d.carbon_g, d.delay_s) for name, d in made.items()}),
        "ce2p": best({name: ce2p(d.carbon_g, d.energy_j) for name, d in made.items()}),
        "cep": best({name: cep(d.carbon_g, d.energy_j) for name, d in made.items()}),
        "c2ep": best({name: c2ep(d.carbon_g, d.energy_j) for name, d in made.items()}),
    }


def leanest(tables: CarbonTables) -> Design:
    """The design of least embodied carbon that reaches the frames a second that are asked for."""
    enough = [design for design in designs(tables) if design.frames_per_s >= tables.number("nvdla.target")]
    if not enough:
        raise InputError("no configuration is fast enough", path="nvdla.target")
    return min(enough, key=lambda design: design.carbon_g)


def figure_13(tables: CarbonTables) -> dict[str, float | str]:
    """Conclusions of Figure 13 by the names of specs/carbon/claims."""
    lean, target = leanest(tables), tables.number("nvdla.target")
    fastest = max(designs(tables), key=lambda design: design.frames_per_s)
    thriftiest = min(designs(tables), key=lambda design: design.energy_j)
    growth = {budget: 100 * (_within(tables, "16", budget).carbon_g / _within(tables, "28", budget).carbon_g - 1) for budget in BUDGETS_MM2}
    return {
        "act-f13-lean": f"{lean.macs} MAC",
        "act-f13-carbon": lean.carbon_g,
        "act-f13-fast": fastest.carbon_g / lean.carbon_g,
        "act-f13-thrifty": thriftiest.carbon_g / lean.carbon_g,
        "act-f13-fast-speed": fastest.frames_per_s / target,
        "act-f13-thrifty-speed": thriftiest.frames_per_s / target,
        "act-f13-one": growth[1.0],
        "act-f13-two": growth[2.0],
    }


def jevons(tables: CarbonTables) -> Finding:
    """Figure 13, right: a budget of area at two processes. The newer fits more and embodies more."""
    figures: dict[str, float] = {}
    for budget in BUDGETS_MM2:
        old, new = _within(tables, "28", budget), _within(tables, "16", budget)
        figures |= {f"MACs in {budget:g} mm2 of 28 nm": float(old.macs), f"MACs in {budget:g} mm2 of 16 nm": float(new.macs)}
        figures[f"carbon, 16 over 28 nm, {budget:g} mm2"] = new.carbon_g / old.carbon_g
    needs = [Need(name, value, least=1) for name, value in figures.items() if name.startswith("carbon")]
    figures["the fastest, g"] = max(designs(tables), key=lambda design: design.frames_per_s).carbon_g
    figures["the one of least energy, g"] = min(designs(tables), key=lambda design: design.energy_j).carbon_g
    why = "the largest design that fits; the paper's two figures share one ratio of carbon per area, 1.21, where its tables give 1.17"
    finding = judged("A-budget", "Figure 13", "a newer process embodies more in the same area", needs, figures, why=why)
    return replace(finding, drawn=_plotted(designs(tables)))


def _plotted(made: list[Design]) -> dict[str, float]:
    """Figure 12: each metric of each design over the least of it; Figure 13, left: what each embodies and its speed."""
    metrics = {
        "EDP": [edp(d.energy_j, d.delay_s) for d in made],
        "CDP": [cdp(d.carbon_g, d.delay_s) for d in made],
        "CE2P": [ce2p(d.carbon_g, d.energy_j) for d in made],
        "CEP": [cep(d.carbon_g, d.energy_j) for d in made],
        "C2EP": [c2ep(d.carbon_g, d.energy_j) for d in made],
    }
    found = {f"{name} of {d.macs} MAC": value / min(row) for name, row in metrics.items() for d, value in zip(made, row, strict=True)}
    return found | {f"g embodied, {d.macs} MAC": d.carbon_g for d in made} | {f"frames/s, {d.macs} MAC": d.frames_per_s for d in made}


def area_range(tables: CarbonTables) -> Finding:
    """Table 1's carbon per area beside equation 5 with Tables 7 and 8: Taiwan's grid, gases 97 % abated, every die good."""
    fab = float(grid_intensity_g_per_j(Site(grid="taiwan"), grid_table()))
    figures: dict[str, float] = {}
    for name, row in tables.processes.items():
        if row.energy_j_per_m2 is not None and row.gas_95_g_per_m2 is not None:
            gas = row.gas_g_per_m2()
            assert gas is not None
            whole = act_area_carbon(float(row.energy_j_per_m2), fab, float(gas), float(tables.fab.materials_g_per_m2))
            figures[f"{name}, kg/cm2"] = float(whole) / 1e7
    figures["materials alone, kg/cm2"] = float(tables.fab.materials_g_per_m2) / 1e7
    low, high = (end / 1e7 for end in tables.row("act.area_range", "gram/metre**2"))
    least, most = min(figures[name] for name in figures if not name.startswith("mat")), max(figures.values())
    needs = [Need("least of the processes, kg/cm2", least, low, high), Need("most of the processes, kg/cm2", most, low, high)]
    why = "materials alone (0.5 kg/cm2, Table 8) are above the range that Table 1 states; equation 5 gives three times its ends"
    return judged("A-area", "Table 1", "chips embody 0.1 to 0.4 kg/cm2", needs, figures, weight="printed", why=why)


def _within(tables: CarbonTables, node: str, budget_mm2: float) -> Design:
    """The fastest design within an area."""
    fit = [design for design in designs(tables, node) if design.area_m2 * 1e6 <= budget_mm2 * (1 + 1e-9)]
    if not fit:
        raise InputError(f"no configuration fits {budget_mm2:g} mm2 of {node} nm", path="nvdla")
    return max(fit, key=lambda design: design.frames_per_s)
