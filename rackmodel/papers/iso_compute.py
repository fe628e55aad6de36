"""Few large GPUs or many small ones, at equal compute: which costs less time and energy."""

from __future__ import annotations

from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points

COUNTS = (4, 8, 16, 32, 64)


def findings(points: Points) -> list[Finding]:
    """One finding a workload and mapper: few large GPUs are never worse."""
    return [_finding(points, workload, mapper) for workload in ("ffn", "attention") for mapper in ("data", "tensor")]


def _finding(points: Points, workload: str, mapper: str) -> Finding:
    results = {n: points.one(run="iso", workload=workload, mapper=mapper, accelerators=n) for n in COUNTS}
    latency = {n: r.latency_s for n, r in results.items()}
    energy = {n: r.energy_j for n, r in results.items()}
    best = latency[4] <= min(latency.values()) * (1 + 1e-9) and energy[4] <= min(energy.values()) * (1 + 1e-9)
    figures = {"latency 64/4": latency[64] / latency[4], "energy 64/4": energy[64] / energy[4], "latency 8/4": latency[8] / latency[4]}
    why = "compute is the same in all; what differs is copies of weights, traffic between GPUs and, for attention over 16 GPUs, idle ones"
    claim = f"{workload}, {mapper}: 4 large GPUs need no more time or energy than 64 small ones"
    return Finding(f"I-{workload}-{mapper}", "iso-compute", claim, "ours", "agrees" if best else "disagrees", figures, why)
