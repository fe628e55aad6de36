"""Figures 8, 9, 10 (top), 11, 16 and 17 of seed 003 (ACT), as far as its printed numbers go.

Figure 9 follows from Table 4. Figure 11 is printed as ratios: speed, energy of an AI inference and embodied carbon of CPU, ASIC and FPGA;
energy of the two other applications is not printed, so that it is read in two ways. Of Figure 8 the dies are public (panel c); benchmarks
and powers of its chips are plotted alone. Of Figures 16 and 17 the ICs are in Table 12, their share in words; modules are plotted alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from rackmodel.carbon.metrics import c2ep, cdp, ce2p, cep
from rackmodel.carbon.operational import grid_intensity_g_per_j
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import grid_table
from rackmodel.model.architecture import Site
from rackmodel.papers.act_chips import table_12
from rackmodel.papers.act_reduce import area_carbon
from rackmodel.studies.findings import Finding, Need, by_reading, judged, near

NON_NEGLIGIBLE = 1.25
"""A gap that is 'non-negligible', in either direction."""


@dataclass(frozen=True)
class Substrate:
    """What one piece of work runs on (CPU, ASIC, FPGA). carbon: embodied · energy, delay: of the work."""

    carbon: float
    energy: float
    delay: float


METRICS: dict[str, Callable[[Substrate], float]] = {
    "CDP": lambda one: cdp(one.carbon, one.delay),
    "C2EP": lambda one: c2ep(one.carbon, one.energy),
    "CEP": lambda one: cep(one.carbon, one.energy),
    "CE2P": lambda one: ce2p(one.carbon, one.energy),
}
"""ACT's Table 2 in the order of Figure 9: embodied-centric, then operational-centric."""
EMBODIED_CENTRIC = ("CDP", "C2EP")


def _over(designs: Mapping[str, Substrate], base: str) -> dict[str, float]:
    """'CDP of DSP' → its metric over that of `base`."""
    return {f"{metric} of {name}": of(one) / of(designs[base]) for metric, of in METRICS.items() for name, one in designs.items()}


def _best(figures: Mapping[str, float], metric: str, winner: str) -> Need:
    """That a design has the least of a metric."""
    others = [value for name, value in figures.items() if name.startswith(f"{metric} of ") and name != f"{metric} of {winner}"]
    return Need(f"{metric}, {winner} over the best other", figures[f"{metric} of {winner}"] / min(others), most=1)


def figure_9(tables: CarbonTables) -> Finding:
    """Four metrics of CPU, GPU and DSP over the CPU's."""
    delay, power, added = tables.row("act.latency", "second"), tables.row("act.power", "watt"), tables.row("act.embodied", "gram")
    embodied = (added[0], added[0] + added[1], added[0] + added[2])
    rows = zip(("CPU", "GPU", "DSP"), embodied, delay, power, strict=True)
    figures = _over({name: Substrate(carbon, t * p, t) for name, carbon, t, p in rows}, "CPU")
    needs = [_best(figures, metric, "CPU" if metric in EMBODIED_CENTRIC else "DSP") for metric in METRICS]
    claim = "the CPU is best by CDP and C2EP, the DSP by CEP and CE2P"
    return judged("A-metrics", "Figure 9", claim, needs, figures, why="Table 4's delay, power and embodied carbon, over the CPU's")


def greener_gain(tables: CarbonTables) -> Finding:
    """The 1.8 times less of Figure 10, top: carbon-free use leaves what is embodied, shared out over seconds or over inferences."""
    delay, added = tables.row("act.latency", "second"), tables.row("act.embodied", "gram")
    mass = (added[0] + added[2]) / added[0]
    figures = {"DSP over CPU, by seconds of use": mass * delay[2] / delay[0], "DSP over CPU, by inferences": mass}
    readings = {
        "embodied carbon is shared out over seconds (equation 1)": [
            near("DSP over CPU", figures["DSP over CPU, by seconds of use"], 1.8, 0.05)
        ],
        "over as many inferences in a life": [near("DSP over CPU", figures["DSP over CPU, by inferences"], 1.8, 0.05)],
    }
    claim = "with carbon-free use a CPU emits 1.8 times less than a DSP"
    return by_reading("A-gain", "Figure 10", claim, readings, figures, why="the DSP takes 1.5 times as long for an inference")


def reconfigurable(tables: CarbonTables) -> Finding:
    """Figure 11: CPU, ASIC and FPGA over three applications (geometric means) by each metric, the CPU's as one."""
    speeds, asic = tables.row("act.fpga_speedups"), tables.number("act.asic_speedup")
    of_cpu, of_fpga = tables.row("act.energy_over_asic")
    carbon_asic, carbon_fpga = tables.row("act.embodied_over_cpu")
    saved = of_cpu / of_fpga  # by an FPGA, an AI inference
    host = (1.0, 1.0)  # the ASIC runs FIR and AES on its CPU

    def design(carbon: float, faster: tuple[float, ...], thriftier: tuple[float, ...]) -> Substrate:
        return Substrate(carbon, 1 / _mean(thriftier), 1 / _mean(faster))

    power = speeds[2] / saved  # of the FPGA over the CPU's
    readings = {
        "an FPGA saves as much in FIR and AES as in AI": (saved, saved, saved),
        "an FPGA draws the same power in all three": tuple(speed / power for speed in speeds),
    }
    figures: dict[str, float] = {
        f"times a CPU's speed, {app}, FPGA": speed for app, speed in zip(("FIR", "AES", "AI"), speeds, strict=True)
    }
    figures |= {"times a CPU's speed, AI, ASIC": asic, "times a CPU's speed, FIR, ASIC": 1.0, "times a CPU's speed, AES, ASIC": 1.0}
    figures |= {
        "energy of an AI inference, CPU": 1.0,
        "energy of an AI inference, ASIC": 1 / of_cpu,
        "energy of an AI inference, FPGA": 1 / saved,
    }
    figures |= {"embodied carbon, CPU": 1.0, "embodied carbon, ASIC": carbon_asic, "embodied carbon, FPGA": carbon_fpga}
    needs: dict[str, list[Need]] = {}
    drawn: dict[str, float] = {}
    for words, gains in readings.items():
        three = {
            "CPU": Substrate(1.0, 1.0, 1.0),
            "ASIC": design(carbon_asic, (*host, asic), (*host, of_cpu)),
            "FPGA": design(carbon_fpga, speeds, gains),
        }
        over = _over(three, "CPU")
        needs[words] = [_best(over, metric, "FPGA") for metric in METRICS]
        drawn |= {f"{name}, {words}": value for name, value in over.items()}
    why = "geometric means of FIR, AES and AI inference; an ASIC runs the first two on its CPU; an FPGA's energy for them is not printed"
    claim = "over three applications an FPGA beats CPU and ASIC by CDP, CEP, CE2P and C2EP"
    return replace(by_reading("A-fpga", "Figure 11", claim, needs, figures, why=why), drawn=drawn)


def specialized(tables: CarbonTables) -> Finding:
    """Figure 11: for AI alone the ASIC is the faster and thriftier of the two, at less carbon, so by each metric."""
    speed, asic = tables.row("act.fpga_speedups")[2], tables.number("act.asic_speedup")
    of_cpu, of_fpga = tables.row("act.energy_over_asic")
    carbon_asic, carbon_fpga = tables.row("act.embodied_over_cpu")
    designs = {
        "CPU": Substrate(1.0, 1.0, 1.0),
        "ASIC": Substrate(carbon_asic, 1 / of_cpu, 1 / asic),
        "FPGA": Substrate(carbon_fpga, of_fpga / of_cpu, 1 / speed),
    }
    figures = _over(designs, "CPU")
    needs = [_best(figures, metric, "ASIC") for metric in METRICS]
    return judged("A-asic", "Figure 11", "for AI alone an ASIC is best by each metric", needs, figures, why="from the printed ratios")


def _mean(values: tuple[float, ...]) -> float:
    """Geometric."""
    return float(prod(values) ** (1 / len(values)))


FAMILIES = {
    "Snapdragon": (("835", "10nm"), ("845", "10nm"), ("855", "7nm")),
    "Kirin": (("960", "14nm"), ("970", "10nm"), ("980", "7nm"), ("990 5G", "7nm_euv")),
    "Exynos": (("9810", "10nm"), ("9820", "7nm")),
}
"""Family → its chips, the oldest first, and the process of Table 7 that is nearest (16 nm as 14, 8 nm as 7)."""


def phone_chips(tables: CarbonTables) -> Finding:
    """Figure 8 (c), of the chips whose area is public: Taiwan's grid, gases 95 % abated, the die without memory."""
    fab = float(grid_intensity_g_per_j(Site(grid="taiwan"), grid_table()))
    figures: dict[str, float] = {}
    for family, chips in FAMILIES.items():
        areas = tables.row(f"act.{family.lower()}_areas", "metre**2")
        figures |= {f"g, {family} {name}": area * area_carbon(tables, node, fab) for (name, node), area in zip(chips, areas, strict=True)}
    turns = (
        ("Snapdragon 845", "Snapdragon 835"),
        ("Snapdragon 845", "Snapdragon 855"),
        ("Kirin 960", "Kirin 980"),
        ("Kirin 990 5G", "Kirin 980"),
    )
    needs = [Need(f"{high} over {low}", figures[f"g, {high}"] / figures[f"g, {low}"], least=1) for high, low in turns]
    why = (
        "dies whose area is published; those of Snapdragon 820 and 865 and Exynos 7420 and 8895 are not, nor DRAM, scores and powers of any"
    )
    return judged(
        "A-dies", "Figure 8", "embodied carbon of Snapdragons and Kirins rises and falls over generations", needs, figures, why=why
    )


REPORTED = "life-cycle report"
NODES = {"ACT, the report's nodes": 0, "ACT, the actual nodes": 1}
"""What stands beside a report, and which of Table 12's two columns it is."""
SERVER = {
    "RAM": ("act-20", "act-21"),
    "flash, 31 TB": ("act-22", "act-23"),
    "flash, 400 GB": ("act-24", "act-25"),
    "CPU": ("act-26", "act-27"),
}
PHONE = {"flash and RAM": ("act-35", "act-36"), "CPU": ("act-28", "act-29"), "other ICs": ("act-30", "act-31")}
"""Part → its cells of Table 12: as the report's node, as the actual one."""


def server_parts(tables: CarbonTables) -> Finding:
    """Figure 17 as far as it is printed: a Dell R740's ICs, what its report leaves beside them, and ACT's estimate of the same ICs."""
    return _parts(tables, "A-r740", "Figure 17", "Dell R740", (SERVER, "act.lca_server", 0))


def phone_parts(tables: CarbonTables) -> Finding:
    """Figure 16 as far as it is printed: a Fairphone 3's ICs likewise."""
    return _parts(tables, "A-fairphone", "Figure 16", "Fairphone 3", (PHONE, "act.lca_phone", 1))


def _parts(tables: CarbonTables, name: str, place: str, device: str, rows: tuple[Mapping[str, tuple[str, str]], str, int]) -> Finding:
    """rows: parts with their cells of Table 12 · the report's masses · which share of ICs is the device's."""
    cells, report, number = rows
    ours = table_12(tables)
    reported = dict(zip(cells, (mass / 1e3 for mass in tables.row(report, "gram")), strict=True))
    figures = {f"kg, {part}, {REPORTED}": mass for part, mass in reported.items()}
    chips = sum(reported.values())
    figures[f"kg, all else, {REPORTED}"] = chips / tables.row("act.lca_share")[number] - chips
    needs = []
    for words, column in NODES.items():
        found = {part: float(ours[both[column]] or 0.0) for part, both in cells.items()}
        figures |= {f"kg, {part}, {words}": mass for part, mass in found.items()}
        needs.append(Need(f"its ICs, report over {words}", chips / sum(found.values()), least=NON_NEGLIGIBLE))
    share = f"{tables.row('act.lca_share')[number]:.0%}"
    why = f"masses of its report from Table 12; all else by the share of ICs that appendix A.3 has in words, roughly {share}"
    return judged(name, place, f"the report of a {device} and ACT differ by no negligible amount", needs, figures, why=why)


CHECKS = (figure_9, greener_gain, phone_chips, reconfigurable, specialized, server_parts, phone_parts)
"""Functions of the tables, for the study `act`."""
