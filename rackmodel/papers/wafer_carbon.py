"""Seed 000's wafer against GPUs: Table 1 through to Figures 1, 4, 5, 8 and 9, on its tokens/s and on saturated ones.

Table 1 and the ratios of the text contradict each other by two; both are shown. The break-even share needs H100 at 700 W and
nothing else; how it moves with the power of a box is part of the finding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from rackmodel.carbon import yields
from rackmodel.carbon.dies import die_carbon_g
from rackmodel.carbon.flips import flips
from rackmodel.carbon.lifetime import break_even_share, life_energy_j
from rackmodel.carbon.metrics import per_work_ratio, tcdp
from rackmodel.carbon.ranges import Ranged, factor, fixed
from rackmodel.carbon.silicon import chip_carbon
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import read_architecture
from rackmodel.model.embodied import Die, Yield
from rackmodel.papers.claims import Computed, claims_of
from rackmodel.papers.reads import of_tables
from rackmodel.studies.findings import Finding, Need, by_reading, judged

GPUS = 8  # in a DGX box
ISO_FLOPS = 8  # boxes that have the FLOP/s of one CS-3
TB = 1e12
WORK_TOKENS = 1e11


@dataclass(frozen=True)
class Systems:
    """What the claims are made of. logic_g, h100_g: of one wafer and of one H100 with its HBM · dram_g: for each byte."""

    logic_g: Ranged
    h100_logic_g: Ranged
    h100_g: Ranged
    dram_g_per_byte: Ranged

    def wafer_g(self, memory_bytes: float) -> Ranged:
        """A CS-3 with so much DRAM."""
        return self.logic_g + chip_carbon(fixed(memory_bytes), self.dram_g_per_byte)

    def boxes_g(self, boxes: float) -> Ranged:
        """So many DGX boxes, GPUs alone."""
        return self.h100_g * (boxes * GPUS)


def systems(tables: CarbonTables, *, working: float = 1.0) -> Systems:
    """Embodied carbon by the paper's Table 1. working: share of wafers that work (Figure 4)."""
    wafer = Die.model_construct(process="5nm", count=1, share=1.0, dies_per_wafer=1, boundary="silicon", yield_=Yield(value=working))
    per_wafer = round(float(tables.figure("wafer.h100_used", "metre**2") / tables.figure("wafer.h100_area", "metre**2")))
    gpu = Die.model_construct(process="5nm", count=1, share=1.0, dies_per_wafer=per_wafer, boundary="silicon", yield_=Yield(value=1.0))
    logic = die_carbon_g(wafer, _f(tables, "wafer.wse3_area", "metre**2"), tables, "imec", "wafer")
    die = die_carbon_g(gpu, _f(tables, "wafer.h100_area", "metre**2"), tables, "imec", "h100")
    memory = chip_carbon(_f(tables, "wafer.hbm_per_h100", "byte"), _f(tables, "wafer.gddr6", "gram/byte"))
    return Systems(logic, die, die + memory, _f(tables, "wafer.dram", "gram/byte"))


def fitted(tables: CarbonTables) -> Systems:
    """The reading that the paper's ratios imply: fitted, so that it explains and proves nothing."""
    h100 = _f(tables, "wafer.fitted_h100", "gram")
    return Systems(_f(tables, "wafer.fitted_logic", "gram"), h100, h100, _f(tables, "wafer.dram", "gram/byte"))


def break_even(tables: CarbonTables, made: Systems, boxes: int, box_w: float) -> float:
    """Share of three years that a CS-3 of 1.5 TB must be active to emit less than so many boxes for the same work (Figure 9)."""
    f = tables.number
    memory = tables.row("wafer.memoryx", "byte")[0]
    idle, active = (
        (f("wafer.idle_power", "watt"), boxes * box_w / f("wafer.h100_over_idle")),
        (f("wafer.peak_power", "watt"), boxes * box_w),
    )
    embodied, speed = (made.wafer_g(memory).mid, made.boxes_g(boxes).mid), f("wafer.speed_over_dgx") / boxes
    return break_even_share(embodied, idle, active, speed, f("wafer.lifetime", "second"), f("wafer.intensity", "gram/joule"))


def computed(tables: CarbonTables) -> dict[str, Computed]:
    """What the paper's inputs give for its conclusions, by the names of specs/carbon/claims; None where it lacks an input."""
    f = tables.number
    made, wafer = systems(tables), yields.wafer_area_m2(f("wafer.diameter", "metre"))
    small, middle, large = tables.row("wafer.memoryx", "byte")
    used = f("wafer.wse3_area", "metre**2")
    iso = ISO_FLOPS * GPUS
    gpu_memory = iso * (f("wafer.hbm_per_h100", "byte") + f("wafer.h100_l2", "byte"))
    wafer_memory = middle + f("wafer.wse3_sram", "byte")
    box = tables.row("wafer.dgx_power", "watt")[0]
    shares = {boxes: break_even(tables, made, boxes, box) for boxes in (8, 10)}
    return {
        "wsi-01": wafer * 1e6,
        "wsi-02": 100 * f("wafer.h100_used", "metre**2") / wafer,
        "wsi-03": 100 * yields.silicon_yield(used, f("wafer.diameter", "metre")),
        "wsi-04": f("wafer.h100_used", "metre**2") / f("wafer.h100_area", "metre**2"),
        "wsi-05": used / f("wafer.h100_area", "metre**2"),
        "wsi-06": 100 * f("wafer.cores_active") / f("wafer.cores"),
        "wsi-07": f("wafer.cs3_peak", "flop/second") / f("wafer.h100_peak", "flop/second"),
        "wsi-09": ISO_FLOPS * box / f("wafer.peak_power", "watt"),
        "wsi-10": wafer_memory / gpu_memory,
        "wsi-13": (made.boxes_g(8) / made.wafer_g(middle)).mid,
        "wsi-16": (made.wafer_g(small) / made.h100_g).mid,
        "wsi-17": (made.boxes_g(8) / made.wafer_g(small)).mid,
        "wsi-20": (made.wafer_g(large) / made.boxes_g(8)).mid,
        "wsi-25": None,
        "wsi-26": 100 * (f("wafer.train_power", "watt") / f("wafer.idle_power", "watt") - 1),
        "wsi-27": f("wafer.train_power", "watt") - f("wafer.idle_power", "watt"),
        "wsi-31": f("wafer.speed_over_dgx") / 2,
        "wsi-32-8": _between(shares[8]),
        "wsi-32-10": _between(shares[10]),
        "wsi-34": 100 * tcdp_share(tables, made, 8),
        "wsi-35": None,
    }


def tcdp_share(tables: CarbonTables, made: Systems, boxes: int) -> float:
    """Share of time active (of the boxes) at which total carbon times seconds of work is equal, by bisection; 1 where it never is."""
    speed = tables.number("wafer.speed_over_dgx") / boxes
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        first, second = _tcdp(tables, made, boxes, share / speed, share)
        low, high = (low, share) if first < second else (share, high)
    return high


def _tcdp(tables: CarbonTables, made: Systems, boxes: int, share: float, other: float) -> tuple[float, float]:
    """Total carbon × seconds active of the CS-3 at `share` and of the boxes at `other`."""
    f = tables.number
    life, rate, box = f("wafer.lifetime", "second"), f("wafer.intensity", "gram/joule"), tables.row("wafer.dgx_power", "watt")[0]
    wafer = life_energy_j(life, f("wafer.idle_power", "watt"), f("wafer.peak_power", "watt"), share)
    gpus = life_energy_j(life, boxes * box / f("wafer.h100_over_idle"), boxes * box, other)
    memory = tables.row("wafer.memoryx", "byte")[0]
    totals = made.wafer_g(memory).mid + rate * wafer, made.boxes_g(boxes).mid + rate * gpus
    return tcdp(totals[0], share * life), tcdp(totals[1], other * life)


@cache
def dense_flop_per_s(machine: str) -> float:
    """Peak of one accelerator of a machine of the library, 16 bit, without zeros left out."""
    read = read_architecture(machine)
    return read.peak_flop_per_s(16) / read.used


def readings(tables: CarbonTables) -> dict[str, dict[str, float | str]]:
    """Claims whose words allow several figures: name → ours by each reading (wafer_vs_gpu reads them alike)."""
    sparse = float(tables.figure("wafer.cs3_peak", "flop/second") / tables.figure("wafer.h100_peak", "flop/second"))
    dense = [dense_flop_per_s(machine) for machine in ("cs3", "dgx_h100")]
    boxes = tables.row("wafer.dgx_power", "watt")
    peak, rated = tables.number("wafer.peak_power", "watt"), tables.number("hnlpu.wse3_power", "watt")
    made = systems(tables)
    shares: dict[str, dict[str, float | str]] = {
        f"wsi-32-{n}": {f"a box of {box / 1e3:g} kW": _between(break_even(tables, made, n, box)) for box in boxes} for n in (8, 10)
    }
    return shares | {
        "wsi-07": {"marketed sparse peaks": sparse, "dense peaks": dense[0] / dense[1]},
        "wsi-09": {
            "700 W a GPU and the measured 24.1 kW": ISO_FLOPS * boxes[0] / peak,
            "7.5 kW a box and the 23 kW of seed 002": ISO_FLOPS * boxes[1] / rated,
            "rated 10.2 kW a box and 23 kW": ISO_FLOPS * boxes[2] / rated,
        },
    }


def _claims(tables: CarbonTables) -> list[Finding]:
    """The printed figures."""
    return [claim.finding() for claim in claims_of(tables, computed(tables), readings(tables))]


def _power(tables: CarbonTables) -> Finding:
    """How the break-even share moves with the power of a box."""
    figures = {}
    for name, made in (("Table 1", systems(tables)), ("fitted", fitted(tables))):
        for box in tables.row("wafer.dgx_power", "watt"):
            for boxes in (8, 10):
                figures[f"{name}, {boxes} DGX at {box / 1e3:g} kW, %"] = 100 * break_even(tables, made, boxes, box)
    read = {
        f"a box draws {box / 1e3:g} kW": [
            Need(f"share, {boxes} DGX, %", figures[f"Table 1, {boxes} DGX at {box / 1e3:g} kW, %"], 30, 40) for boxes in (8, 10)
        ]
        for box in tables.row("wafer.dgx_power", "watt")
    }
    why = "only 8 x 700 W a box lands in 30 to 40 %; 7.5 kW gives 19 to 23 and 10.2 kW 10 to 14. The fitted reading gives 34 and 31"
    claim = "a CS-3 emits less than 8 or 10 DGX once it is active 30 to 40 % of the time"
    return by_reading("W-power", "Figure 9", claim, read, figures, why=why)


def _yield(tables: CarbonTables) -> Finding:
    """Figure 4: carbon of the wafer over the share of wafers that work, and what routing around defects makes of that share."""
    figures = {f"{share} % work, kg": systems(tables, working=share / 100).logic_g.mid / 1e3 for share in (40, 60, 80, 100)}
    area, cores = tables.number("wafer.wse3_area", "metre**2"), int(tables.number("wafer.cores"))
    density = tables.process("5nm").defects_per_cm2
    assert density is not None
    defects, active = area * 1e4 * density, int(tables.number("wafer.cores_active"))
    in_cores = tables.number("wafer.core_share")
    working = float(yields.spare(defects, cores, active, in_cores))
    figures |= {"wafers that work, defects routed around": working, "the same without spare cores": float(yields.poisson(defects))}
    why = (
        f"{defects:.0f} defects cost one core each of 970,000, of which 70,000 are spare: density does not matter, but a defect outside "
        "the cores kills, and what share of the wafer is outside is not printed"
    )
    needs = [Need("wafers that work", working, least=0.99)]
    return judged("W-yield", "section 3", "functional yield is close to 100 %", needs, figures, why=why)


def _embodied(tables: CarbonTables) -> Finding:
    """Which embodied rankings of Figures 1 and 5 hold inside the ranges of wafer yield and HBM."""
    made = systems(tables)
    working = factor("wafers that work", tables.figure("wafer.working"))
    hbm = factor("technology hbm", tables.technology("hbm"))
    h100 = made.h100_logic_g + chip_carbon(_f(tables, "wafer.hbm_per_h100", "byte"), hbm)
    boxes = h100 * float(GPUS * ISO_FLOPS)
    figures: dict[str, float] = {}
    turned = []
    read = {}
    for memory in tables.row("wafer.memoryx", "byte"):
        name = f"CS-3, {memory / TB:g} TB"
        wafer = made.logic_g / working + chip_carbon(fixed(memory), made.dram_g_per_byte)
        ratio = boxes / wafer
        figures |= {f"8 DGX over {name}": ratio.mid, f"the same, least, {name}": ratio.low, f"the same, most, {name}": ratio.high}
        read[f"it has {memory / TB:g} TB"] = [Need("8 DGX over CS-3", ratio.mid, least=1)]
        turned += [flip.words() for flip in flips({"8 DGX": boxes, name: wafer})]
    why = "; ".join(turned) or "no ranking flips inside the ranges"
    return by_reading("W-ranges", "Figure 5", "8 DGX embody more than a CS-3", read, figures, why=why)


def _throughput(tables: CarbonTables) -> Finding:
    """Figure 8 on the paper's tokens/s and on those of saturated GPUs: total carbon and tCDP of the same tokens."""
    f = tables.number
    made, memory = systems(tables), tables.row("wafer.memoryx", "byte")[0]
    box_rates = {"paper": f("wafer.cs3_tokens") / f("wafer.speed_over_dgx"), "saturated": GPUS * f("wafer.h100_saturated")}
    box, rate = tables.row("wafer.dgx_power", "watt")[0], f("wafer.intensity", "gram/joule")
    figures, order, tokens = (
        {"tokens/s of a box, paper": box_rates["paper"], "tokens/s of a box, saturated": box_rates["saturated"]},
        {},
        WORK_TOKENS,
    )
    for boxes in (1, 8):
        for basis, each in box_rates.items():
            seconds = tokens / f("wafer.cs3_tokens"), tokens / (each * boxes)
            carbon = (
                made.wafer_g(memory).mid + rate * f("wafer.peak_power", "watt") * seconds[0],
                made.boxes_g(boxes).mid + rate * boxes * box * seconds[1],
            )
            figures[f"carbon, {boxes} DGX over CS-3, {basis}"] = carbon[1] / carbon[0]
            figures[f"tCDP, {boxes} DGX over CS-3, {basis}"] = tcdp(carbon[1], seconds[1]) / tcdp(carbon[0], seconds[0])
            order[basis, boxes] = (carbon[1] > carbon[0], tcdp(carbon[1], seconds[1]) > tcdp(carbon[0], seconds[0]))
            plain, of_work = per_work_ratio(made.boxes_g(boxes), made.wafer_g(memory), each * boxes, f("wafer.cs3_tokens"))
            figures |= {
                f"embodied, {boxes} DGX over CS-3": plain.mid,
                f"embodied for each token/s, {boxes} DGX over CS-3, {basis}": of_work.mid,
            }
    flipped = [
        f"{what} against {boxes} DGX"
        for boxes in (1, 8)
        for i, what in enumerate(("carbon", "tCDP"))
        if order["paper", boxes][i] != order["saturated", boxes][i]
    ]
    why = (
        f"flips on saturated GPUs: {', '.join(flipped) or 'nothing'}. The paper's ratio implies {box_rates['paper']:.0f} tokens/s for "
        "eight H100 in one stream; one H100 reaches 17,660 in FP8 with many. A saturated figure of a CS-3 is not published, so its "
        "side is the paper's in both"
    )
    words = {"paper": "an H100 gets the paper's 33 tokens/s", "saturated": "H100 are saturated"}
    read = {
        words[basis]: [Need(f"tCDP, {boxes} DGX over CS-3", figures[f"tCDP, {boxes} DGX over CS-3, {basis}"], least=1) for boxes in (1, 8)]
        for basis in box_rates
    }
    claim = "a CS-3 has the better tCDP for 1e11 tokens of an 8B model than 1 and 8 DGX"
    return by_reading("W-throughput", "Figure 8", claim, read, figures, why=why)


def _between(share: float) -> str:
    return "30 to 40 %" if 0.30 <= share <= 0.40 else f"{100 * share:.1f} %"


def _f(tables: CarbonTables, name: str, unit: str = "") -> Ranged:
    return factor(name, tables.figure(name, unit))


CHECKS = of_tables(_claims, _power, _yield, _embodied, _throughput)
"""The printed figures, then power basis, yield, ranges and throughput."""
