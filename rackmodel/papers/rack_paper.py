"""The 18 findings of the rack-scale paper (seed 004), each a predicate over the study's points.

Readings where the paper is silent or contradicts itself are those of specs/rack_paper.yaml: communication of the forward
pass for tensor parallelism (its model), of the backward pass for data parallelism, point-to-point rows for pipelines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from rackmodel.studies.findings import Finding, Verdict
from rackmodel.studies.run import Points

SWEEP = (4, 6, 8, 10, 16, 32)
NETWORK = {"component": "network"}
FORWARD = {"component": "network", "phase": "forward"}
BACKWARD = {"component": "network", "phase": "backward"}
SENDS = {"component": "network", "phase": "forward", "action": "send"}
LOCAL = {"component": ["compute", "memory"]}


def findings(points: Points) -> list[Finding]:
    """All of them, in order."""
    return [check(points) for check in _CHECKS]


def nest_findings(points: Points) -> list[Finding]:
    """Those that need a mapper inside the GPU, over points whose loop nests were searched."""
    return [check(points) for check in (a06, a07, a08, a09, a10, a11, a12, a16)]


def _fidelity(points: Points) -> str:
    """How the inside of a GPU was priced in most points."""
    nested = sum(bool(point.result.mapping.nests) for point in points)
    if nested > len(points.points) / 2:
        return "loop nests searched exactly, perfect factors"
    return "compute at roofline fidelity: traffic is compulsory, tiling is ideal"


def _counts(points: Points, workload: str, mapper: str) -> tuple[int, ...]:
    """GPU counts of the main sweep."""
    return tuple(sorted(int(p.settings["accelerators"]) for p in points.where(run="main", workload=workload, mapper=mapper)))


def _verdict(agrees: bool) -> Verdict:
    return "agrees" if agrees else "disagrees"


def _local(points: Points, mapper: str, n: int, workload: str = "ffn", run: str = "main", **more: int) -> float:
    """Latency without communication: what the paper calls compute latency."""
    keys: dict[str, object] = {"run": run, "workload": workload, "mapper": mapper, "accelerators": n, **more}
    return points.total("exposed_seconds", LOCAL, **keys)


def _joules(points: Points, mapper: str, n: int, ledger: dict[str, object], workload: str = "ffn", run: str = "main") -> float:
    return points.total("joules", ledger, run=run, workload=workload, mapper=mapper, accelerators=n)


def _comm(points: Points, mapper: str, n: int, ledger: dict[str, object], run: str = "main") -> float:
    return points.total("seconds", ledger, run=run, workload="ffn", mapper=mapper, accelerators=n)


def a01(points: Points) -> Finding:
    """Data parallelism sends nothing forward."""
    figures = {f"{w} joules at {n}": _joules(points, "data", n, dict(FORWARD), w) for w in ("ffn", "attention") for n in SWEEP}
    agrees = not any(figures.values())
    return Finding(
        "A01", "10, 11", "DP forward has zero inter-GPU communication", "must", _verdict(agrees), {"largest, J": max(figures.values())}
    )


def a02(points: Points) -> Finding:
    """Attention stops scaling at the batch."""
    compute = {"component": "compute"}
    t = {n: points.total("exposed_seconds", compute, run="main", workload="attention", mapper="data", accelerators=n) for n in (16, 32)}
    why = "batch 16 over 32 GPUs leaves 16 idle; the fullest GPU has one sequence at both counts"
    return Finding(
        "A02",
        "4",
        "attention, DP: compute latency flat beyond 16 GPUs",
        "must",
        _verdict(t[16] == t[32]),
        {"16, s": t[16], "32, s": t[32]},
        why,
    )


def a03(points: Points) -> Finding:
    """Tensor parallelism goes on scaling."""
    t = {n: _local(points, "tensor", n, "attention") for n in (16, 32)}
    return Finding(
        "A03", "4", "attention, TP: latency keeps falling beyond 16 GPUs", "must", _verdict(t[32] < t[16]), {"16, s": t[16], "32, s": t[32]}
    )


def a04(points: Points) -> Finding:
    """Data and tensor parallelism compute alike."""
    dp, tp = ([_local(points, m, n) for n in SWEEP] for m in ("data", "tensor"))
    ratios = [a / b for a, b in zip(dp, tp, strict=True)]
    monotone = all(a >= b for series in (dp, tp) for a, b in itertools.pairwise(series))
    h100 = [_local(points, "data", n, run="h100") / _local(points, "tensor", n, run="h100") for n in SWEEP]
    figures = {"DP/TP least": min(ratios), "DP/TP most": max(ratios), "on an H100, most": max(h100)}
    why = "needs DP to split the 32,768 rows; on an H100 the N copies of the weights read from the shared DRAM weigh more"
    agrees = all(abs(r - 1) < 0.25 for r in ratios) and monotone
    return Finding("A04", "2", "FFN: DP and TP latency similar, both fall with N", "must", _verdict(agrees), figures, why)


def a05(points: Points) -> Finding:
    """Tensor parallelism reads more from GPU memory."""
    reads: dict[str, object] = {"component": "memory", "level": "gpu", "action": "read", "phase": "forward"}
    tp, dp, row = (_joules(points, m, 16, reads) for m in ("tensor_column", "data", "tensor"))
    why = "the paper's drawing (column, column) reads every activation whole; Megatron's column-row, its communication model, reads less"
    figures = {"TP column, J": tp, "DP, J": dp, "ratio": tp / dp, "ratio column-row": row / dp}
    return Finding("A05", "6", "FFN, 16 GPUs: TP reads more GPU-memory energy than DP", "must", _verdict(tp > dp), figures, why)


def a06(points: Points) -> Finding:
    """Pipelined stages wait for one another."""
    ratios = [_local(points, "pipeline_tensor", n) / _local(points, "tensor", n) for n in _counts(points, "ffn", "pipeline_tensor")]
    why = f"one pass, no micro-batches: half of the GPUs wait; {_fidelity(points)}"
    return Finding(
        "A06",
        "3",
        "FFN: PP+TP latency significantly above DP and TP",
        "should",
        _verdict(min(ratios) > 1),
        {"PP+TP/TP least": min(ratios)},
        why,
    )


def a07(points: Points) -> Finding:
    """Does PP+TP plateau?"""
    ratio = _local(points, "pipeline_tensor", 32) / _local(points, "pipeline_tensor", 8)
    why = f"both stages stay compute-bound here, so four times the GPUs are nearly four times faster; {_fidelity(points)}"
    return Finding("A07", "3", "FFN: PP+TP latency plateaus after 8 GPUs", "should", _verdict(ratio >= 0.8), {"latency 32/8": ratio}, why)


def a08(points: Points) -> Finding:
    """Main-memory reads and GPU-memory writes."""
    main: dict[str, object] = {"component": "memory", "level": "system", "action": "read"}
    writes: dict[str, object] = {"component": "memory", "level": "gpu", "action": "write"}
    modes = ("pipeline_tensor", "data", "tensor")
    read, write = ({m: _joules(points, m, 16, ledger) for m in modes} for ledger in (main, writes))
    agrees = all(read["pipeline_tensor"] > read[m] and write["pipeline_tensor"] > write[m] for m in modes[1:])
    figures = {**{f"main read {m}, J": v for m, v in read.items()}, **{f"GPU write {m}, J": v for m, v in write.items()}}
    why = f"DP fetches N copies of the weights from main memory, PP+TP one; stages hand over by links, not by memory; {_fidelity(points)}"
    return Finding(
        "A08", "6", "FFN, 16: PP+TP has higher main-memory read and GPU-memory write energy", "should", _verdict(agrees), figures, why
    )


def a09(points: Points) -> Finding:
    """Attention pipelines still scale."""
    t = {n: _local(points, "pipeline_tensor", n, "attention") for n in (12, 24, 48)}
    agrees = t[12] > t[24] > t[48]
    figures = {f"{n}, s": v for n, v in t.items()} | {"PP+TP/TP at 48": t[48] / _local(points, "tensor", 48, "attention")}
    return Finding(
        "A09", "5", "attention PP+TP: still decreasing over 12, 24, 48 GPUs", "should", _verdict(agrees), figures, _fidelity(points)
    )


def a10(points: Points) -> Finding:
    """Blocks, attention."""
    t = {
        m: {b: points.one(run="blocks", workload="attention", mapper=m, **{"block.count": b}).latency_s for b in (64, 512, 1024)}
        for m in ("data", "tensor")
    }
    best = min(t, key=lambda m: t[m][64]) == "data"
    flat = {m: v[1024] / v[512] for m, v in t.items()}
    figures = {"DP at 64, s": t["data"][64], "TP at 64, s": t["tensor"][64], "DP 1024/512": flat["data"], "TP 1024/512": flat["tensor"]}
    why = f"PP+TP on 4 GPUs contradicts the paper's own rule of multiples of six, so only DP and TP are compared; {_fidelity(points)}"
    return Finding(
        "A10",
        "7",
        "attention, 4 GPUs: DP best at few blocks, DP plateaus first",
        "should",
        _verdict(best and flat["data"] > flat["tensor"]),
        figures,
        why,
    )


def a11(points: Points) -> Finding:
    """Blocks, FFN."""
    t = {
        m: points.one(run="blocks", workload="ffn", mapper=m, **{"block.count": 256}).latency_s
        for m in ("data", "tensor", "pipeline_tensor")
    }
    ratio, slow = t["data"] / t["tensor"], t["pipeline_tensor"] / t["tensor"]
    why = f"two stages cost a factor of two; nothing in the paper's model makes a hundred; {_fidelity(points)}"
    return Finding(
        "A11",
        "8",
        "FFN, 4 GPUs: DP ~ TP, PP+TP about 100 times slower",
        "should",
        _verdict(abs(ratio - 1) < 0.1 and slow >= 30),
        {"DP/TP": ratio, "PP+TP/TP": slow},
        why,
    )


def a12(points: Points) -> Finding:
    """Energy against blocks."""
    energies = [p.result.energy_j for p in points.where(run="nests", workload="ffn", mapper="tensor")]
    ratio = max(energies) / min(energies)
    why = "every loop nest searched exactly at each block count: the reads and writes hardly change, the work is spread differently"
    return Finding("A12", "9", "FFN, TP: energy roughly flat over blocks", "must", _verdict(ratio < 1.1), {"most/least": ratio}, why)


def a13(points: Points) -> Finding:
    """Least communication energy at 32 GPUs."""
    sends, every = (_joules(points, "pipeline_tensor", 32, dict(ledger)) for ledger in (SENDS, FORWARD))
    tp, dp = _joules(points, "tensor", 32, dict(FORWARD)), _joules(points, "data", 32, dict(BACKWARD))
    figures = {"PP+TP sends, J": sends, "PP+TP with gathers, J": every, "TP forward, J": tp, "DP backward, J": dp}
    why = (
        "true of the stage hand-overs alone; false once the all-gathers that column-split stages need are charged. "
        "Energy is the same under both hop readings"
    )
    return Finding("A13", "10", "PP+TP has the least communication energy at 32 GPUs", "must", _verdict(sends < min(tp, dp)), figures, why)


def a14(points: Points) -> Finding:
    """The jump at the rack's edge."""
    slow, path = (
        _comm(points, "tensor", 10, dict(FORWARD), run) / _comm(points, "tensor", 8, dict(FORWARD), run) for run in ("main", "path_sum")
    )
    energy = _joules(points, "tensor", 10, dict(FORWARD)) / _joules(points, "tensor", 8, dict(FORWARD))
    figures = {"latency 10/8, slowest link": slow, "latency 10/8, path sum": path, "energy 10/8": energy}
    why = "rack of 8 assumed; the path-sum reading of the same equations jumps less"
    return Finding("A14", "11", "communication jumps when it leaves a rack", "must", _verdict(slow > 5 and energy > 1), figures, why)


def a15(points: Points) -> Finding:
    """Both passes communicate."""
    forward, backward = (_joules(points, "tensor", 8, dict(ledger)) for ledger in (FORWARD, BACKWARD))
    agrees = forward > 0 and backward > 0
    return Finding(
        "A15", "text", "TP communicates in forward and backward", "must", _verdict(agrees), {"forward, J": forward, "backward, J": backward}
    )


def a16(points: Points) -> Finding:
    """Least total energy."""
    modes = ("data", "tensor", "tensor_column", "pipeline_tensor")
    counts = _counts(points, "ffn", "data")
    total = {(m, n): _joules(points, m, n, {}) for m in modes for n in counts}
    worst = max(total[("data", n)] / min(total[(m, n)] for m in modes[1:]) for n in counts)
    lost = [n for n in counts if any(total[(m, n)] < total[("data", n)] for m in modes[1:])]
    figures = {"DP over the best other, most": worst, "counts where DP is not least": float(len(lost))}
    why = f"counts every joule of both passes, N copies of the weights and the gradient all-reduce included; {_fidelity(points)}"
    return Finding("A16", "text C", "DP has the least total energy of the three modes", "should", _verdict(not lost), figures, why)


def a17(points: Points) -> Finding:
    """Does communication dominate?"""

    def share(n: int, run: str) -> float:
        result = points.one(run=run, workload="ffn", mapper="tensor", accelerators=n)
        return float(result.ledger.where(**NETWORK).total("exposed_seconds") / result.latency_s)

    here, h100 = (max(share(n, run) for n in SWEEP) for run in ("main", "h100"))
    why = "true only of the paper's slow assumed GPU (1,024 MAC lanes at 1 GHz); on an H100 communication dominates"
    return Finding(
        "A17",
        "text",
        "communication never dominates TP latency",
        "should",
        _verdict(here < 0.5),
        {"largest share": here, "largest share, H100": h100},
        why,
    )


def a18(points: Points) -> Finding:
    """Attention: PP+TP against TP."""
    sends = points.one(run="main", workload="attention", mapper="pipeline_tensor", accelerators=48).ledger.where(**SENDS)
    moved, scores = sends.total("joules"), sends.where(tensor="A").total("joules")
    tp = _joules(points, "tensor", 48, dict(FORWARD), "attention")
    why = "the stage cut between QK and AV ships the score tensor (4.29 GB); were both on the same GPUs it would hold"
    figures = {"PP+TP, J": moved, "PP+TP, scores kept, J": moved - scores, "TP, J": tp}
    return Finding("A18", "10", "attention: PP+TP communication energy below TP", "should", _verdict(moved < tp), figures, why)


_CHECKS: tuple[Callable[[Points], Finding], ...] = (
    a01, a02, a03, a04, a05, a06, a07, a08, a09, a10, a11, a12, a13, a14, a15, a16, a17, a18,
)  # fmt: skip
