"""Our own question: the least-carbon way to train Llama 3 70B, on H100, GB200 NVL72 or CS-3, in Taiwan, Virginia or Sweden.

Equal work (one step of the same tokens), each machine's mapping of least energy under ideal overlap, embodied carbon counted out
to the module for all three, for hosts and racks of two of them are not stated. Same facility (PUE 1.1), life and active share.
"""

from __future__ import annotations

from rackmodel.carbon.assess import footprint
from rackmodel.carbon.bill import bill_of, up_to
from rackmodel.carbon.flips import flips
from rackmodel.carbon.job import Usage
from rackmodel.carbon.metrics import Footprint
from rackmodel.carbon.run import tokens_of
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import grid_table, read_workload
from rackmodel.model.architecture import Site
from rackmodel.studies.findings import Finding, Need, judged
from rackmodel.studies.run import Points

MACHINES = ("dgx_h100", "gb200_nvl72", "cs3")
PLACES = ("taiwan", "virginia", "sweden_2025")
PUE = 1.1
WORKLOAD = "llama3_70b"
CLAIMED = dict.fromkeys(PLACES, "gb200_nvl72")
"""Our guess before any point was priced: the newest process and the most work a watt."""


def footprints(points: Points, place: str, tables: CarbonTables) -> dict[str, Footprint]:
    """Machine → the footprint of a step in a place, tokens as work."""
    usage, found = Usage(boundaries=up_to("module")), {}
    tokens = float(tokens_of(read_workload(WORKLOAD)))
    for name in MACHINES:
        result = points.one(run="train", architecture=name)
        machine = result.machine
        assert machine is not None
        there = machine.model_copy(update={"site": Site.model_validate({"grid": place, "pue": PUE})})
        found[name] = footprint(result, there, bill_of(there, tables), grid_table(), usage, work=tokens)
    return found


def findings(points: Points, tables: CarbonTables) -> list[Finding]:
    """The least-carbon machine in each place, then what place and machine are worth beside each other."""
    made = {place: footprints(points, place, tables) for place in PLACES}
    return [*(_place(place, made[place]) for place in PLACES), _choice(made)]


CHECKS = (findings,)


def _place(place: str, made: dict[str, Footprint]) -> Finding:
    """Carbon of a million tokens on each machine, the share that is embodied, and whether the order holds."""
    figures: dict[str, float] = {}
    for name, one in made.items():
        each = one.figure("carbon_per_work")
        figures |= {f"{name}, g/Mtoken": each.mid * 1e6, f"{name}, least": each.low * 1e6, f"{name}, most": each.high * 1e6}
        figures[f"{name}, embodied share"] = one.embodied_share_g.mid / one.total_g.mid
    carbon = {name: one.figure("carbon_per_work") for name, one in made.items()}
    least = CLAIMED[place]
    turned = flips(carbon)
    why = "; ".join(flip.words() for flip in turned) or "no pair of machines changes places inside the ranges"
    claim = f"in {place}, {least} trains {WORKLOAD} with the least carbon"
    needs = [Need("best other machine over it", min(one.mid for name, one in carbon.items() if name != least) / carbon[least].mid, least=1)]
    if any(least in (flip.first, flip.second) for flip in turned):
        return Finding(
            f"T-{place}", "ours", claim, "ours", "not decidable", figures, why, tuple(needs), condition="the order turns inside the ranges"
        )
    return judged(f"T-{place}", "ours", claim, needs, figures, weight="ours", why=why)


def _choice(made: dict[str, dict[str, Footprint]]) -> Finding:
    """What moving is worth on one machine, and what another machine is worth in one place."""
    carbon = {place: {name: one.figure("carbon_per_work").mid for name, one in rows.items()} for place, rows in made.items()}
    first, last = PLACES[0], PLACES[-1]
    figures = {f"{first} over {last}, {name}": carbon[first][name] / carbon[last][name] for name in MACHINES}
    figures |= {f"most over least machine, {place}": max(row.values()) / min(row.values()) for place, row in carbon.items()}
    place = min(value for name, value in figures.items() if " over sweden" in name)
    machine = max(value for name, value in figures.items() if name.startswith("most"))
    why = (
        "time and energy are each machine's ideal; a CS-3 waits for its weight stream at this batch and idles at 19.7 kW meanwhile, and a "
        "machine kept on between jobs pays its static power: see `wafer_vs_gpu` for what a longer batch does"
    )
    claim = "where a model is trained matters more than on what"
    needs = [Need("place over machine", place / machine, least=1)]
    return judged("T-choice", "ours", claim, needs, figures, weight="ours", why=why)
