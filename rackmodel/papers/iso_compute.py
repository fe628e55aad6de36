"""Few large GPUs or many small ones, at equal compute: which costs less time and energy."""

from __future__ import annotations

from rackmodel.carbon.tables import CarbonTables
from rackmodel.studies.findings import Finding, Need, judged
from rackmodel.studies.run import Points

COUNTS = (4, 8, 16, 32, 64)
TIE = 1.01
"""Within a hundredth is no more."""


def findings(points: Points, tables: CarbonTables) -> list[Finding]:
    """One finding a workload and mapper: few large GPUs are never worse."""
    return [_finding(points, workload, mapper) for workload in ("ffn", "attention") for mapper in ("data", "tensor")]


CHECKS = (findings,)


def _finding(points: Points, workload: str, mapper: str) -> Finding:
    results = {n: points.one(run="iso", workload=workload, mapper=mapper, accelerators=n) for n in COUNTS}
    latency = {n: r.latency_s for n, r in results.items()}
    energy = {n: r.energy_j for n, r in results.items()}
    needs = [
        Need(f"{word} at 4 over the least", of[4] / min(of.values()), most=TIE) for word, of in (("latency", latency), ("energy", energy))
    ]
    figures = {"latency 64/4": latency[64] / latency[4], "energy 64/4": energy[64] / energy[4], "latency 8/4": latency[8] / latency[4]}
    why = "compute is the same in all; what differs is copies of weights, traffic between GPUs and, for attention over 16 GPUs, idle ones"
    claim = f"{workload}, {mapper}: 4 large GPUs need no more time or energy than 64 small ones"
    return judged(f"I-{workload}-{mapper}", "iso-compute", claim, needs, figures, weight="ours", why=why)
