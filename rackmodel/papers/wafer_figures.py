"""Seed 000's figures beyond its table: three boxes, the yield sweep, all systems, crossings, and the headline ratios of tCDP.

Inputs are those of `wafer_carbon`, whose checks come first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from rackmodel.carbon.bill import bill_of, up_to
from rackmodel.carbon.job import YEAR_S
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import read_architecture
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers import wafer_carbon
from rackmodel.papers.reads import of_tables
from rackmodel.papers.wafer_carbon import GPUS, ISO_FLOPS, TB, Systems, _tcdp, fitted, systems
from rackmodel.studies.findings import Finding, Need, by_reading, certain, judged, near

HEADLINE = {8: 1.54, 10: 1.31}
"""Boxes → tCDP of a CS-3 over them, 'at least', once it is active more than 40 % of the time (abstract, section 5)."""
DECADES = tuple(10 ** (n / 2) for n in range(16, 23))
"""Tokens at which the curves of Figure 8 are drawn, half a decade apart."""
MACHINES = {"cs2": 1, "cs3": 1, "dgx_a100": 8, "dgx_h100": 8, "dgx_b200": 8}


def tcdp_ratio(tables: CarbonTables, made: Systems, boxes: int, share: float, speed: float) -> float:
    """tCDP of so many boxes over that of a CS-3 active a share of three years, for the same work. speed: of a CS-3 over one box."""
    wafer, gpus = _tcdp(tables, made, boxes, share, share * speed / boxes)
    return gpus / wafer


def _headline(tables: CarbonTables) -> Finding:
    """1.54 and 1.31: at 40 % as printed, and at the figure's next step with the speed that 9.3 may be cut from."""
    speed, made, figures = tables.number("wafer.speed_over_dgx"), systems(tables), {}
    read: dict[str, list[Need]] = {}
    later = "active 50 % (the figure's next step), 9.39 times a box"
    settings = {
        "active 40 %, 9.3 times a box, Table 1": (made, 0.4, speed),
        f"{later}, Table 1": (made, 0.5, speed + 0.09),
        f"{later}, the fitted masses": (fitted(tables), 0.5, speed + 0.09),
    }
    for words, (masses, share, fast) in settings.items():
        for boxes, printed in HEADLINE.items():
            found = tcdp_ratio(tables, masses, boxes, share, fast)
            figures[f"tCDP, {boxes} DGX over a CS-3, {words}"] = found
            read.setdefault(words, []).append(near(f"{boxes} DGX", found, printed, 0.025))
    for boxes, printed in HEADLINE.items():
        figures[f"active share that gives {printed}, {boxes} DGX, Table 1"] = _share_of(tables, made, boxes, printed)
    why = "'more than 40 %' is 50 % on a grid of tenths; at 40 % the ratios are 1.27 and 1.07. The fitted reading checks nothing"
    claim = "active more than 40 % of the time a CS-3 has at least 1.54 and 1.31 times better tCDP than 8 and 10 DGX"
    drawn = {
        f"times, {boxes} DGX, active {share} %": tcdp_ratio(tables, made, boxes, share / 100, speed)
        for boxes in HEADLINE
        for share in range(10, 101, 10)
    }
    return replace(by_reading("W-tcdp", "section 5, Figure 9", claim, read, figures, why=why), drawn=drawn)


def _share_of(tables: CarbonTables, made: Systems, boxes: int, wanted: float) -> float:
    """Active share at which the ratio of tCDP is as wanted, by bisection; it grows with the share."""
    low, high, speed = 0.01, 1.0, tables.number("wafer.speed_over_dgx")
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if tcdp_ratio(tables, made, boxes, middle, speed) < wanted else (low, middle)
    return high


def _three_boxes(tables: CarbonTables) -> Finding:
    """Figure 1's stars at equal power: three boxes beside one CS-3 of 12 TB."""
    made, memory = systems(tables), tables.row("wafer.memoryx", "byte")[1]
    flops = 3 * GPUS * tables.number("wafer.h100_peak", "flop/second") / tables.number("wafer.cs3_peak", "flop/second")
    held = 3 * GPUS * (tables.number("wafer.hbm_per_h100", "byte") + tables.number("wafer.h100_l2", "byte"))
    share = held / (memory + tables.number("wafer.wse3_sram", "byte"))
    embodied = (made.boxes_g(3) / made.wafer_g(memory)).mid
    read = {words: (one.boxes_g(3) / one.wafer_g(memory)).mid for words, one in (("Table 1", made), ("the fitted masses", fitted(tables)))}
    figures = {
        "FLOP/s, 3 DGX over a CS-3": flops,
        "memory": share,
        "embodied carbon, Table 1": embodied,
        "from wsi-10's 2.69": 3 / 8 / 2.69,
    }
    figures |= {f"embodied carbon, {words}": value for words, value in read.items()} | {"from wsi-13's 1.24": 1.24 * 3 / 8}
    fixed = [Need("FLOP/s", flops, 0.365, 0.381), Need("memory", share, 0.125, 0.14)]
    needs = {words: [*fixed, Need("embodied", value, 0.455, 0.47)] for words, value in read.items()}
    why = "0.380 is cut to 0.37; 12 TB give 0.160 of the memory, the paper's own 2.69 and 1.24 give 0.139 and 0.465"
    claim = "3 DGX have 0.37 times the FLOP/s, 0.13 times the memory and 0.46 times the embodied carbon of a CS-3"
    return by_reading("W-three", "Figure 1", claim, needs, figures, why=why)


def _crossings(tables: CarbonTables) -> Finding:
    """Figure 8: tokens after which a CS-3 of 1.5 TB has emitted less than one or two boxes."""
    figures: dict[str, float] = {}
    read: dict[str, list[Need]] = {}
    for words, made in (("Table 1", systems(tables)), ("the fitted masses", fitted(tables))):
        tokens = {boxes: crossing_tokens(tables, made, boxes) for boxes in (1, 2)}
        figures |= {f"tokens, against {boxes} DGX, {words}": value for boxes, value in tokens.items()}
        read[words] = [Need(f"{boxes} DGX, tokens", value, 10**8.5, 10**9.5) for boxes, value in tokens.items()]
    why = "the paper reads 'more than 1e9' off a logarithmic axis: half a decade either way"
    claim = "a CS-3 of 1.5 TB emits less than 1 or 2 DGX after some 1e9 tokens of an 8B model"
    return replace(by_reading("W-crossing", "Figure 8", claim, read, figures, why=why), drawn=_emitted(tables))


def _emitted(tables: CarbonTables) -> dict[str, float]:
    """Figure 8's curves by Table 1: kilograms of a CS-3 of 1.5 TB, of one box and of two after so many tokens."""
    made, tokens_per_s = systems(tables), tables.number("wafer.cs3_tokens")
    box_w, speed = tables.row("wafer.dgx_power", "watt")[0], tables.number("wafer.speed_over_dgx")
    wafer = made.wafer_g(tables.row("wafer.memoryx", "byte")[0]).mid, tables.number("wafer.peak_power", "watt") / tokens_per_s
    curves = {"CS-3, 1.5 TB": wafer} | {f"{n} DGX H100": (made.boxes_g(n).mid, box_w * speed / tokens_per_s) for n in (1, 2)}
    rate = tables.number("wafer.intensity", "gram/joule")
    return {
        f"kg after {tokens / 1e9:g} G tokens, {name}": (embodied_g + rate * joules * tokens) / 1e3
        for name, (embodied_g, joules) in curves.items()
        for tokens in DECADES
    }


def crossing_tokens(tables: CarbonTables, made: Systems, boxes: int) -> float:
    """Tokens at which total carbon is equal: difference of what they embody over that of what a token uses."""
    rate, box_w = tables.number("wafer.intensity", "gram/joule"), tables.row("wafer.dgx_power", "watt")[0]
    tokens, speed = tables.number("wafer.cs3_tokens"), tables.number("wafer.speed_over_dgx")
    saved = box_w * speed / tokens - tables.number("wafer.peak_power", "watt") / tokens
    more = made.wafer_g(tables.row("wafer.memoryx", "byte")[0]).mid - made.boxes_g(boxes).mid
    return more / (rate * saved)


def _years(tables: CarbonTables) -> Finding:
    """How long 1e11 tokens take."""
    years = 1e11 / tables.number("wafer.cs3_tokens") / YEAR_S
    why = "2,430 tokens/s are 1.30 years; 1.5 would be 2,114 tokens/s"
    needs = [near("years", years, 1.5, 0.1)]
    return judged("W-years", "section 5.2", "1e11 tokens take about 1.5 years", needs, {"years": years}, why=why)


def _large_model(tables: CarbonTables) -> Finding:
    """70B: tokens/s of neither system are printed, but the two ratios bound each other: tCDP of one box over ten is below ten."""
    figures = {"9.58 over 0.98": 9.58 / 0.98, "1 DGX over 10 DGX at most": 10.0}
    need = Need("ratio of the two", 9.58 / 0.98, least=1, most=10)
    why = "both are printed; tCDP of n boxes for the same work is (E + X/n)/n, which falls by less than ten from one to ten"
    return certain("W-70b", "Figure 8", "9.58 times better than 1 DGX and 0.98 times 10 DGX agree with each other", need, figures, why)


def _sweep(tables: CarbonTables) -> Finding:
    """Figure 4: embodied carbon of the wafer over the share of wafers that work."""
    shares = range(40, 101, 10)
    figures = {f"{share} % of wafers work, kg": systems(tables, working=share / 100).logic_g.mid / 1e3 for share in shares}
    least, most = figures["100 % of wafers work, kg"], figures["40 % of wafers work, kg"]
    need = near("40 over 100 %", most / least, 2.5, 0.01)
    reason = "carbon of a good wafer is that of a wafer over the share that works; 29.15 g/mm2 over 65.39 % of it are 2,060 kg at 100 %"
    return certain("W-sweep", "Figure 4", "embodied carbon falls with the share of wafers that work, 40 to 100 %", need, figures, reason)


def _all_systems(tables: CarbonTables) -> Finding:
    """Figure 5: logic and memory of two wafer systems, least and most DRAM, and of three generations of GPUs, by one fab model."""
    figures: dict[str, float] = {}
    small, _, large = tables.row("wafer.memoryx", "byte")
    dram = tables.number("wafer.dram", "gram/byte") / 1e3
    for name, (logic, each) in _made().items():
        if name.startswith("cs"):
            figures |= {f"{name}, {size / TB:g} TB, kg": logic + size * dram for size in (small, large)}
        else:
            figures |= {f"one GPU of {name}, kg": each, f"64 GPUs of {name}, kg": ISO_FLOPS * GPUS * each}
    wafer = figures["cs3, 1.5 TB, kg"]
    figures["CS-3 of 1.5 TB over one H100"] = wafer / figures["one GPU of dgx_h100, kg"]
    figures["8 DGX H100 over it"] = figures["64 GPUs of dgx_h100, kg"] / wafer
    why = "ACT's equation 5 at each node, HBM at 0.36 kg/GB; Table 1 gives 43 and 1.5: the order holds, the ratios do not"
    open_ = "which GPUs and which carbon per area at 7 nm and above are drawn is not printed"
    claim = "the least CS-3 embodies 22 times an H100 and 2.9 times less than 8 DGX"
    return Finding("W-systems", "Figure 5", claim, "should", "not decidable", figures, why, condition=open_)


@cache
def _made() -> dict[str, tuple[float, float]]:
    """Machine → kg of one accelerator's silicon, and of it with its memory."""
    found = {}
    for name, used in MACHINES.items():
        bill = bill_of(read_architecture(name, [f"accelerators={used}"]), carbon_tables(), "act", up_to("memory"))
        found[name] = bill.each_g(("silicon",)).mid / 1e3, bill.each_g(up_to("memory")).mid / 1e3
    return found


def _arithmetic(tables: CarbonTables) -> Finding:
    """Ratios of the paper's own ratios, and its two readings that fit them all: arithmetic, so that it must agree."""
    made = fitted(tables)
    small, middle, large = tables.row("wafer.memoryx", "byte")
    figures = {
        "wsi-11: 3/8 over 2.69": 3 / 8 / 2.69,
        "wsi-12: 3/8 of 1.24": 1.24 * 3 / 8,
        "wsi-18: 64 over 22": 64 / 22,
        "wsi-19: 22 over 64": 22 / 64,
        "wsi-28: g/kWh": tables.number("wafer.intensity", "gram/joule") * 3.6e6,
        "wsi-22a: (L + 1.5 TB) over H, fitted": (made.wafer_g(small) / made.h100_g).mid,
        "wsi-23a: 64 H over (L + 12 TB), fitted": (made.boxes_g(8) / made.wafer_g(middle)).mid,
        "wsi-24a: (L + 36 TB) over 64 H, fitted": (made.wafer_g(large) / made.boxes_g(8)).mid,
        "wsi-14: wafer at 100 %, kg": systems(tables).logic_g.mid / 1e3,
        "wsi-15: H100 with HBM, kg": systems(tables).h100_g.mid / 1e3,
    }
    logic, gpu, dram = 2060.4921, 115.8, 326.2 / 1e3
    figures |= {
        "wsi-22b": (logic + 1500 * dram) / gpu,
        "wsi-23b": 64 * gpu / (logic + 12e3 * dram),
        "wsi-24b": (logic + 36e3 * dram) / (64 * gpu),
    }
    needs = [near("22x", figures["wsi-22a: (L + 1.5 TB) over H, fitted"], 22, 0.01), near("2.9x", 64 / 22, 2.9, 0.01)]
    why = "two readings fit the five ratios, an H100 of 103 or of 115.8 kg; fitted, so that they explain and prove nothing"
    return judged("W-ratios", "Figures 1 and 5", "the paper's ratios agree with each other", needs, figures, why=why)


CHECKS = (
    *wafer_carbon.CHECKS,
    *of_tables(_headline, _three_boxes, _crossings, _years, _large_model, _sweep, _all_systems, _arithmetic),
)
"""Those of the table, then of the figures."""
