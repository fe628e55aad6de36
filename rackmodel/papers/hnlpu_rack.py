"""Seed 002's Table 3 from specs: money and carbon of the rack and of the cluster as `rackmodel cost` counts them, and the paper's ratios.

The checks of `hnlpu_tco`, on the printed inputs, come first.
"""

from __future__ import annotations

from functools import cache

from rackmodel.carbon.bill import up_to
from rackmodel.carbon.job import Usage
from rackmodel.carbon.ownership import Ownership
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import read_architecture
from rackmodel.papers import hnlpu_tco
from rackmodel.papers.reads import of_tables
from rackmodel.results import ownership_of
from rackmodel.studies.findings import Finding, Need, judged, near
from rackmodel.units import Quantity, read_quantity

CLUSTER_T, RACK_T, UPDATED_T = 182_321.0, 780.0, 794.0  # Table 3


def owned(name: str, tables: CarbonTables) -> Ownership:
    """A machine over the paper's three years of work without pause, made as seed 000's Table 1 counts (which the paper follows)."""
    return _owned(name, tables.number("hnlpu.lifetime", "second"), tables.number("hnlpu.respins"))


@cache
def _owned(name: str, seconds: float, respins: float) -> Ownership:
    usage = Usage(Quantity.make(seconds, seconds, seconds, None, f"{seconds:g} s"), read_quantity("100 %", ""), up_to("memory"))
    return ownership_of(read_architecture(name), usage, fab="imec", respins=respins)


def _money(tables: CarbonTables) -> Finding:
    """186.2, 274.8 and 530.4 M$."""
    rack, cluster = owned("hnlpu_rack", tables), owned("h100_cluster", tables)
    values = {
        "rack, M$": rack.figures["TCO, no re-spin"][1].mid / 1e6,
        "rack with two re-spins, M$": rack.money.cost.tco_usd.mid / 1e6,
        "cluster, M$": cluster.figures["TCO, no re-spin"][1].mid / 1e6,
        "a re-spin, M$": rack.figures["a re-spin"][1].mid / 1e6,
    }
    values["less than the cluster, %"] = 100 * (1 - values["rack, M$"] / values["cluster, M$"])
    printed = (186.2, 274.8, 530.4, 44.3)
    needs = [near(name, value, wanted, 0.005) for (name, value), wanted in zip(values.items(), printed, strict=False)]
    needs.append(Need("less than the cluster, %", values["less than the cluster, %"], least=64.5, most=65.5))
    why = "specs/hnlpu_rack and specs/h100_cluster by `rackmodel cost`; masks are one set and 15 times the layers that differ"
    return judged("H-money", "Table 3", "186.2 M$, 274.8 M$ with updates, 530.4 M$; nearly 65 % less", needs, values, why=why)


def _carbon(tables: CarbonTables) -> Finding:
    """780, 794 and 182,321 t: computed, not divided."""
    rack, cluster = owned("hnlpu_rack", tables).carbon, owned("h100_cluster", tables).carbon
    assert rack is not None
    assert cluster is not None
    static = (rack.operational_g + rack.embodied_g).mid / 1e6
    figures = {
        "hn-53: rack, t": static,
        "hn-54: rack with two re-spins, t": rack.total_g.mid / 1e6,
        "hn-51: cluster, t": cluster.total_g.mid / 1e6,
        "hn-52: an H100 embodies, kg": cluster.embodied_g.mid / 1e4 / 1e3,
        "a chip of the rack embodies, kg": rack.embodied_g.mid / 128 / 1e3,
        "hn-50: grid that the cluster's total allows at most, g/kWh": CLUSTER_T * 1e6 / (18.2e3 * 26280),
        "cluster over rack": cluster.total_g.mid / 1e6 / static,
        "cluster over rack with re-spins": cluster.total_g.mid / rack.total_g.mid,
    }
    needs = [near("rack", static, RACK_T, 0.02), near("with re-spins", rack.total_g.mid / 1e6, UPDATED_T, 0.02)]
    needs += [near("cluster", cluster.total_g.mid / 1e6, CLUSTER_T, 0.02), near("ratio", figures["cluster over rack"], 234, 0.02)]
    why = "grid and HBM are not printed: ACT's United States and 48 GB a chip (ASSUMED); 80 GB and dies without loss would give 779 and 794"
    return judged("H-rack", "Table 3", "780 t, 794 t with updates, 182,321 t: 234 and 230 times less", needs, figures, why=why)


def _arithmetic(tables: CarbonTables) -> Finding:
    """Products of printed numbers that the paper prints too."""
    chip, pue = tables.number("hnlpu.chip_power", "watt"), tables.number("hnlpu.pue")
    figures = {
        "hn-15: 16 chips x 308.39 W x 1.4, kW": 16 * chip * pue / 1e3,
        "hn-17: 10,000 x 1.3 kW, MW": float(tables.figure("hnlpu.gpus") * tables.figure("hnlpu.h100_power", "watt")) / 1e6,
        "hn-36: masks, 15 x 480 over 64.6": 15 * 480 / 64.6,
        "hn-40: 200 sets of 30 M$, B$": 6.0,
        "tokens/s/mm2": 249_960 / 13_232,
        "masks of a re-spin saved, %": 100 * (1 - 36.9 / 480),
        "WSE-3 dies' worth of cell-embedded weights, mm2 over 46,225": 176_000 / 46_225,
    }
    needs = [near("6.9 kW", figures["hn-15: 16 chips x 308.39 W x 1.4, kW"], 6.9, 0.01), near("112x", 15 * 480 / 64.6, 112, 0.01)]
    needs += [near("18.89", figures["tokens/s/mm2"], 18.89, 0.005), near("92.3 %", figures["masks of a re-spin saved, %"], 92.3, 0.005)]
    why = "6.9 kW is 16 chips times the PUE of 1.4, which Table 3 then multiplies by 1.4 again: counted twice"
    return judged(
        "H-products", "Tables 1 to 3", "6.9 kW, 112 times, 18.89 tokens/s/mm2, 92.3 % follow from the rest", needs, figures, why=why
    )


CHECKS = (*hnlpu_tco.CHECKS, *of_tables(_money, _carbon, _arithmetic))
"""Those on the printed inputs, then from specs."""
