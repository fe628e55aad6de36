"""The row-tiled second stage: its stall, its traffic and its writes beside the column-tiled one."""

from __future__ import annotations

from rackmodel.carbon.tables import CarbonTables
from rackmodel.model.result import Result
from rackmodel.studies.findings import Finding, Need, certain, judged
from rackmodel.studies.run import Points

COUNTS = (4, 8, 16, 32)


def stall_s(result: Result) -> float:
    """Seconds from the end of the first stage's forward work to the start of the second stage's: H is sent, and gathered."""
    return float(result.ledger.where(component="network", phase="forward", tensor="H").total("seconds"))


def findings(points: Points, tables: CarbonTables) -> list[Finding]:
    """One finding a GPU count, then whether the remedy pays."""
    return [*(_finding(points, n) for n in COUNTS), _pays(points)]


CHECKS = (findings,)


def _pair(points: Points, n: int) -> tuple[Result, Result]:
    """Both pipelines on so many GPUs: columns, rows."""
    column, row = (points.one(run="row", workload="ffn", mapper=m, accelerators=n) for m in ("pipeline_tensor", "pipeline_tensor_row"))
    return column, row


def _finding(points: Points, n: int) -> Finding:
    column, row = _pair(points, n)
    writes = {"component": "memory", "level": "gpu", "action": "write", "phase": "forward"}
    network = {"component": "network", "phase": "forward"}
    figures = {
        "stall column, s": stall_s(column),
        "stall row, s": stall_s(row),
        "network column, J": column.ledger.where(**network).total("joules"),
        "network row, J": row.ledger.where(**network).total("joules"),
        "GPU writes column, J": column.ledger.where(**writes).total("joules"),
        "GPU writes row, J": row.ledger.where(**writes).total("joules"),
    }
    stalls_less = figures["stall row, s"] <= figures["stall column, s"]
    writes_more = figures["GPU writes row, J"] >= figures["GPU writes column, J"]
    need = Need("of two: stalls less, writes more", float(stalls_less + writes_more), least=2)
    reason = (
        "columns send and gather, rows send alone; rows leave partial sums of the whole output on every GPU, written and then reduced, "
        "where columns leave a share. Starting on a part of the first stage's output is not modelled: this is the least the remedy saves"
    )
    return certain(f"R-{n}", "section IV.A", f"{n} GPUs: row tiling stalls less and writes more", need, figures, reason)


def _pays(points: Points) -> Finding:
    """Whether what rows save on links and copies is more than what they write and reduce, both passes."""
    pairs = {n: _pair(points, n) for n in COUNTS}
    joules = {n: row.energy_j / column.energy_j for n, (column, row) in pairs.items()}
    needs = [Need(f"energy at {n} GPUs, row over column", value, most=1) for n, value in joules.items()]
    figures = {f"latency at {n} GPUs, row over column": row.latency_s / column.latency_s for n, (column, row) in pairs.items()}
    figures |= {f"energy at {n} GPUs, row over column": value for n, value in joules.items()}
    why = "joules of both passes; latency falls by what is not gathered, little beside 1,024 lanes at 1 GHz"
    return judged("R-pays", "section IV.A", "row tiling takes less energy in all", needs, figures, weight="ours", why=why)
