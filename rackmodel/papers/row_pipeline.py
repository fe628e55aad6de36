"""The row-tiled second stage: its stall, its traffic and its writes beside the column-tiled one."""

from __future__ import annotations

from rackmodel.carbon.tables import CarbonTables
from rackmodel.model.result import Result
from rackmodel.studies.findings import Finding, Need, judged
from rackmodel.studies.run import Points

COUNTS = (4, 8, 16, 32)


def stall_s(result: Result) -> float:
    """Seconds from the end of the first stage's forward work to the start of the second stage's: H is sent, and gathered."""
    return float(result.ledger.where(component="network", phase="forward", tensor="H").total("seconds"))


def findings(points: Points, tables: CarbonTables) -> list[Finding]:
    """One finding a GPU count."""
    return [_finding(points, n) for n in COUNTS]


CHECKS = (findings,)


def _finding(points: Points, n: int) -> Finding:
    column, row = (points.one(run="row", workload="ffn", mapper=m, accelerators=n) for m in ("pipeline_tensor", "pipeline_tensor_row"))
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
    needs = [
        Need("stall, row over column", figures["stall row, s"] / figures["stall column, s"], most=1),
        Need("GPU writes, row over column", figures["GPU writes row, J"] / figures["GPU writes column, J"], least=1),
    ]
    why = (
        "rows need no all-gather before the second stage but leave partial sums of the whole output on every GPU, written and then "
        "reduced; starting on a part of the first stage's output is not modelled, so this is the least the remedy saves"
    )
    claim = f"{n} GPUs: row tiling stalls less and writes more"
    return judged(f"R-{n}", "section IV.A", claim, needs, figures, why=why)
