"""Seed 002's Hardwired-Neurons LPU: its Tables 1 to 3 from their own inputs, its masks, and what its baseline does to them.

A rack of eight systems stands against 10,000 H100 at 45 tokens/s each. Measured H100 serve the same model 18 to 57 times as fast,
and the printed carbon ratio is between systems of unequal throughput: both are shown next to the printed figures.
"""

from __future__ import annotations

from math import fsum

from rackmodel.carbon.bill import bill_of, up_to
from rackmodel.carbon.metrics import per_work_ratio
from rackmodel.carbon.money import Cost, building_usd, check_power, facility_energy_j, split_masks
from rackmodel.carbon.operational import operational_carbon_g
from rackmodel.carbon.ranges import Ranged, factor, fixed
from rackmodel.carbon.tables import CarbonTables
from rackmodel.carbon.yields import wafer_area_m2
from rackmodel.inputs import grid_table, read_architecture
from rackmodel.model.architecture import Site
from rackmodel.papers.claims import Computed, claims_of
from rackmodel.papers.reads import of_tables
from rackmodel.studies.findings import Finding, Need, judged, near

MILLION = 1e6
QUOTIENTS, QUOTIENT = ("hn-01", "hn-02", "hn-37", "hn-55"), "a quotient of two numbers that the paper prints"


def hnlpu_cost(tables: CarbonTables, *, respins: float) -> Cost:
    """Eight systems: masks and other engineering (wafers are in it), servers, building, electricity, re-spins."""
    energy = facility_energy_j(_f(tables, "hnlpu.it_power", "watt"), _f(tables, "hnlpu.pue"), _f(tables, "hnlpu.lifetime", "second"))
    masks, other = _f(tables, "hnlpu.masks", "usd"), _f(tables, "hnlpu.other_nre", "usd")
    respin = _f(tables, "hnlpu.respin_masks", "usd") + _f(tables, "hnlpu.respin_other", "usd")
    servers, building = _f(tables, "hnlpu.servers", "usd"), _f(tables, "hnlpu.building", "usd")
    return Cost(fixed(0.0), masks + other, servers, building, energy, _f(tables, "hnlpu.price", "usd/joule"), respin, respins)


def gpu_cost(tables: CarbonTables) -> Cost:
    """The cluster of H100."""
    gpus = tables.number("hnlpu.gpus")
    check_power(gpus * tables.number("hnlpu.h100_power", "watt"), gpus, "hnlpu.h100_power")
    power = _f(tables, "hnlpu.gpus") * _f(tables, "hnlpu.h100_power", "watt")
    energy = facility_energy_j(power, _f(tables, "hnlpu.pue"), _f(tables, "hnlpu.lifetime", "second"))
    chips, servers = _f(tables, "hnlpu.gpu_chips", "usd"), _f(tables, "hnlpu.gpu_servers", "usd")
    building, price = _f(tables, "hnlpu.gpu_building", "usd"), _f(tables, "hnlpu.price", "usd/joule")
    return Cost(chips, fixed(0.0), servers, building, energy, price, fixed(0.0))


def rack_tokens(tables: CarbonTables) -> Ranged:
    """Tokens of eight systems in their life."""
    return _f(tables, "hnlpu.systems") * _f(tables, "hnlpu.tokens") * _f(tables, "hnlpu.lifetime", "second")


def gpu_tokens(tables: CarbonTables, each: str = "hnlpu.h100_tokens") -> Ranged:
    """Tokens of the cluster in its life. each: which figure of tokens/s an H100 reaches."""
    return _f(tables, "hnlpu.gpus") * _f(tables, each) * _f(tables, "hnlpu.lifetime", "second")


def computed(tables: CarbonTables) -> dict[str, Computed]:
    """What the paper's inputs give for its conclusions, by the names of specs/carbon/claims; None where it lacks an input."""
    f = tables.number
    static, dynamic, gpus = hnlpu_cost(tables, respins=0), hnlpu_cost(tables, respins=f("hnlpu.respins")), gpu_cost(tables)
    ratio = (rack_tokens(tables) / gpu_tokens(tables)).mid
    chip = fsum(tables.row("hnlpu.die_areas", "metre**2"))
    silicon = f("hnlpu.chips") * chip
    h100_rate, wse3_rate = f("hnlpu.h100_tokens") / f("hnlpu.h100_power", "watt"), f("hnlpu.wse3_tokens") / f("hnlpu.wse3_power", "watt")
    rate = f("hnlpu.tokens") / f("hnlpu.system_power", "watt")
    masks = split_masks(_f(tables, "hnlpu.mask_set", "usd"), _f(tables, "hnlpu.masks", "usd"), int(f("hnlpu.chips")))
    chips = int(f("hnlpu.chips"))
    embedding = tables.row("hnlpu.embedding_areas")
    carbon = tables.row("hnlpu.tco2e", "gram")
    facility = f("hnlpu.it_power", "watt") * f("hnlpu.pue")
    watts = _f(tables, "hnlpu.gpus") * _f(tables, "hnlpu.h100_power", "watt")
    infra = building_usd(_f(tables, "hnlpu.it_power", "watt"), gpus.building_usd / watts).mid / MILLION
    return {
        "hn-01": f("hnlpu.tokens") / f("hnlpu.h100_tokens"),
        "hn-02": f("hnlpu.tokens") / f("hnlpu.wse3_tokens"),
        "hn-03": rate * 1e3,
        "hn-04": h100_rate * 1e3,
        "hn-05": wse3_rate * 1e3,
        "hn-06": rate / h100_rate,
        "hn-07": rate / wse3_rate,
        "hn-09": f("hnlpu.h100_tokens") / _mm2(tables, "wafer.h100_area"),
        "hn-10": f("hnlpu.wse3_tokens") / _mm2(tables, "wafer.wse3_area"),
        "hn-11": chip * 1e6,
        "hn-13": silicon * 1e6,
        "hn-14": 100 * silicon / f("wafer.wse3_area", "metre**2"),
        "hn-18": facility / MILLION,
        "hn-19": _facility_w(tables) / MILLION,
        "hn-20": ratio,
        "hn-21": static.electricity_usd.mid / MILLION,
        "hn-22": gpus.electricity_usd.mid / MILLION,
        "hn-23": static.capital_usd.mid / MILLION,
        "hn-24": gpus.capital_usd.mid / MILLION,
        "hn-25": static.tco_usd.mid / MILLION,
        "hn-26": gpus.tco_usd.mid / MILLION,
        "hn-27": dynamic.tco_usd.mid / MILLION,
        "hn-28": ratio * gpus.capital_usd.mid / static.capital_usd.mid,
        "hn-29": ratio * gpus.tco_usd.mid / static.tco_usd.mid,
        "hn-30": ratio * gpus.tco_usd.mid / dynamic.tco_usd.mid,
        "hn-32": static.nre_usd.mid / MILLION,
        "hn-33": masks.separate_usd(chips).mid / MILLION,
        "hn-34": 100 * (1 - masks.first_usd(chips).mid / masks.separate_usd(chips).mid),
        "hn-35": masks.respin_usd(chips).mid / MILLION,
        "hn-37": embedding[0] / embedding[1],
        "hn-41": infra,
        "hn-55": carbon[2] / carbon[0],
        "hn-60": None,
        "hn-61": None,
        "hn-62": None,
        "hn-63": None,
    }


def carbon_g(tables: CarbonTables) -> dict[str, float]:
    """Grams of the rack of eight systems and of the cluster in their life: electricity at the meter, and dies with their memory."""
    grid, life = tables.number("wafer.intensity", "gram/joule"), tables.number("hnlpu.lifetime", "second")
    pue, systems, chips = (tables.number(f"hnlpu.{name}") for name in ("pue", "systems", "chips"))
    chip = bill_of(read_architecture("hnlpu"), tables, "imec").each_g(up_to("memory")).mid
    gpu = float(tables.products["h100_golden"])
    return {
        "rack": grid * life * pue * tables.number("hnlpu.it_power", "watt") + systems * chips * chip,
        "cluster": grid * life * _facility_w(tables) + tables.number("hnlpu.gpus") * gpu,
    }


def _claims(tables: CarbonTables) -> list[Finding]:
    """The printed figures."""
    return [claim.finding(QUOTIENT if claim.name in QUOTIENTS else "") for claim in claims_of(tables, computed(tables))]


def _basis(tables: CarbonTables) -> list[Finding]:
    """TCO rankings on the paper's tokens/s and on measured ones."""
    gpus, found = gpu_cost(tables), []
    for name, respins in (("static", 0.0), ("dynamic", tables.number("hnlpu.respins"))):
        rack = hnlpu_cost(tables, respins=respins)
        ratios = {
            basis: (rack.per_dollar(rack_tokens(tables)) / gpus.per_dollar(gpu_tokens(tables, key))).mid
            for basis, key in (
                ("paper", "hnlpu.h100_tokens"),
                ("measured, batch 8", "hnlpu.h100_light"),
                ("measured, batch 64", "hnlpu.h100_saturated"),
            )
        }
        needs = [Need(f"rack over cluster, {basis}", ratio, least=1) for basis, ratio in ratios.items()]
        flipped = [basis for basis, ratio in ratios.items() if (ratio > 1) != (ratios["paper"] > 1)]
        why = (
            f"flips with {' and '.join(flipped)}: an H100 serves 804 to 2,572 tokens/s of this model, not 45 "
            f"({tables.source('hnlpu.h100_saturated')}). "
            "The other side is the printed one in all: a rack of 2.0 million tokens/s that one customer must fill"
        )
        claim = f"the rack serves more tokens a dollar, {name}, whatever the H100's throughput"
        ratios["tokens a dollar, rack"] = rack.per_dollar(rack_tokens(tables)).mid
        found.append(judged(f"H-tco-{name}", "Table 3", claim, needs, ratios, weight="ours", why=why))
    return found


def _carbon(tables: CarbonTables) -> Finding:
    """The printed carbon ratio next to the same for each token, on the paper's and on measured throughput."""
    made = carbon_g(tables)
    rack, cluster = made["rack"], made["cluster"]
    printed = tables.row("hnlpu.tco2e", "gram")
    figures: dict[str, float] = {"rack, t": rack / 1e6, "cluster, t": cluster / 1e6, "as printed": printed[2] / printed[0]}
    for basis, key in (("paper", "hnlpu.h100_tokens"), ("measured, batch 64", "hnlpu.h100_saturated")):
        plain, each = per_work_ratio(fixed(cluster), fixed(rack), 1.0, (rack_tokens(tables) / gpu_tokens(tables, key)).mid)
        figures |= {"as a whole": plain.mid, f"for each token, {basis}": each.mid}
    grid = grid_table()
    operational = operational_carbon_g(_facility_w(tables) * tables.number("hnlpu.lifetime", "second"), Site(grid="united_states"), grid)
    figures["operational share of the cluster"] = float(operational) / cluster
    why = (
        "the printed 234 compares systems of which one does 4.44 times the work: for each token it is larger, on the paper's 45 tokens/s; "
        "on measured throughput of an H100 it shrinks, and stays above 1. "
        "The grid is not printed; ACT's United States leaves the rest for making chips"
    )
    needs = [near("cluster over rack for each token, H100 measured", figures["for each token, measured, batch 64"], 234, 0.1)]
    claim = "234 times less carbon for the same work, on an H100's measured throughput"
    return judged("H-carbon", "Table 3", claim, needs, figures, weight="ours", why=why)


def _masks(tables: CarbonTables) -> Finding:
    """How the printed prices of masks divide."""
    chips = int(tables.number("hnlpu.chips"))
    masks = split_masks(_f(tables, "hnlpu.mask_set", "usd"), _f(tables, "hnlpu.masks", "usd"), chips)
    figures = {
        "a chip's own masks, M$": masks.own_usd.mid / MILLION,
        "shared masks, M$": masks.shared_usd.mid / MILLION,
        "re-spin, M$": masks.respin_usd(chips).mid / MILLION,
        "dies of the rack, wafers' worth": chips * fsum(tables.row("hnlpu.die_areas", "metre**2")) / wafer_area_m2(),
    }
    why = "a set of 30 M$ and 64.6 M$ for 16 chips leave no other division; the re-spin that follows is the printed one"
    printed = tables.number("hnlpu.respin_masks", "usd") / MILLION
    needs = [Need("re-spin, M$", figures["re-spin, M$"], printed - 0.05, printed + 0.05)]
    return judged("H-masks", "section 3", "the prices of masks are consistent", needs, figures, weight="ours", why=why)


def _facility_w(tables: CarbonTables) -> float:
    """Watts of the cluster at the meter."""
    return float(tables.figure("hnlpu.gpus") * tables.figure("hnlpu.h100_power", "watt") * tables.figure("hnlpu.pue"))


def _mm2(tables: CarbonTables, name: str) -> float:
    return tables.number(name, "metre**2") * 1e6


def _f(tables: CarbonTables, name: str, unit: str = "") -> Ranged:
    return factor(name, tables.figure(name, unit))


CHECKS = of_tables(_claims, _basis, _carbon, _masks)
"""The printed figures, then what the throughput basis does to them."""
