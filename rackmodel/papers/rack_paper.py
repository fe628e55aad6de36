"""The findings of the rack-scale paper (seed 004), each with what it needs of the study's points.

Readings where the paper is silent or contradicts itself are those of specs/rack_paper.yaml: communication of the forward
pass for tensor parallelism (its model), of the backward pass for data parallelism, point-to-point rows for pipelines. Where the paper
has words and no number, SIGNIFICANT, MODEST, PLATEAU and JUMP say what is taken of them, alike in every finding.
"""

from __future__ import annotations

import itertools
from typing import Any

from rackmodel.papers.reads import of_points
from rackmodel.studies.findings import Finding, Need, by_reading, certain, judged, near
from rackmodel.studies.run import Points

SWEEP = (4, 6, 8, 10, 16, 32)
NETWORK = {"component": "network"}
FORWARD = {"component": "network", "phase": "forward"}
BACKWARD = {"component": "network", "phase": "backward"}
SENDS = {"component": "network", "phase": "forward", "action": "send"}
LOCAL = {"component": ["compute", "memory"]}
SIGNIFICANT, MODEST, PLATEAU, JUMP, ALIKE = 1.5, 1.25, 0.8, 2.0, 0.25
"""ASSUMED, of the paper's words: a significant increase is at least 1.5 times, a modest one at most 1.25, a plateau falls by no more than
a fifth where four times the GPUs would quarter it, a jump doubles, and what is alike differs by a quarter at most."""


def _fidelity(points: Points) -> str:
    """How the inside of a GPU was priced in most points."""
    nested = sum(point.key("inside.model") == "loopnest" for point in points)  # as asked: no point is priced for it
    if nested > len(points.points) / 2:
        return "loop nests searched exactly, perfect factors"
    return "compute at roofline fidelity: traffic is compulsory, tiling is ideal"


def _counts(points: Points, mapper: str) -> tuple[int, ...]:
    """GPU counts of the main sweep of the FFN."""
    return tuple(sorted({int(p.settings["accelerators"]) for p in points.where(run="main", workload="ffn", mapper=mapper)}))


def _local(points: Points, mapper: str, n: int, workload: str = "ffn", run: str = "main", **more: int) -> float:
    """Latency without communication: what the paper calls compute latency."""
    keys: dict[str, object] = {"run": run, "workload": workload, "mapper": mapper, "accelerators": n, **more}
    return points.total("exposed_seconds", LOCAL, **keys)


def _joules(points: Points, mapper: str, n: int, ledger: dict[str, Any], workload: str = "ffn") -> float:
    return points.total("joules", ledger, run="main", workload=workload, mapper=mapper, accelerators=n)


def _comm(points: Points, mapper: str, n: int, ledger: dict[str, Any]) -> float:
    return points.total("seconds", ledger, run="main", workload="ffn", mapper=mapper, accelerators=n)


# -- latency against GPUs (Figures 2 to 5) ---------------------------------------------------------------------------------


def a01(points: Points) -> Finding:
    """Data parallelism sends nothing forward."""
    figures = {f"{w} joules at {n}": _joules(points, "data", n, dict(FORWARD), w) for w in ("ffn", "attention") for n in SWEEP}
    most = max(figures.values())
    claim = "DP forward has zero inter-GPU communication"
    why = "no operation of the forward pass joins two samples, so a split of samples leaves nothing to send"
    return certain("A01", "Figures 10, 11", claim, Need("joules", most, most=0), {"largest, J": most}, why)


def a02(points: Points) -> Finding:
    """Attention stops scaling at the batch."""
    compute = {"component": "compute"}
    t = {n: points.total("exposed_seconds", compute, run="main", workload="attention", mapper="data", accelerators=n) for n in (16, 32)}
    why = "batch 16 over 32 GPUs leaves 16 idle; the fullest GPU has one sequence at both counts"
    needs, figures = [near("latency 32/16", t[32] / t[16], 1.0, 0.05)], {"16, s": t[16], "32, s": t[32]}
    return judged("A02", "Figure 4", "attention, DP: compute latency flat beyond 16 GPUs", needs, figures, weight="must", why=why)


def a03(points: Points) -> Finding:
    """Tensor parallelism goes on scaling."""
    t = {n: _local(points, "tensor", n, "attention") for n in (16, 32)}
    needs, figures = [Need("latency 32/16", t[32] / t[16], most=1)], {"16, s": t[16], "32, s": t[32]}
    return judged("A03", "Figure 4", "attention, TP: latency keeps falling beyond 16 GPUs", needs, figures, weight="must")


def a04(points: Points) -> Finding:
    """Data and tensor parallelism compute alike."""
    dp, tp = ([_local(points, m, n) for n in SWEEP] for m in ("data", "tensor"))
    ratios = [a / b for a, b in zip(dp, tp, strict=True)]
    rise = max(after / before for series in (dp, tp) for before, after in itertools.pairwise(series))
    h100 = [_local(points, "data", n, run="h100") / _local(points, "tensor", n, run="h100") for n in SWEEP]
    figures = {"DP/TP least": min(ratios), "DP/TP most": max(ratios), "on an H100, most": max(h100)}
    why = "needs DP to split the 32,768 rows; on an H100 the N copies of the weights read from the shared DRAM weigh more"
    needs = [Need("DP/TP least", min(ratios), least=1 - ALIKE), Need("DP/TP most", max(ratios), most=1 + ALIKE)]
    needs.append(Need("latency over that of fewer GPUs", rise, most=1))
    return judged("A04", "Figure 2", "FFN: DP and TP latency similar, both fall with N", needs, figures, weight="must", why=why)


def a05(points: Points) -> Finding:
    """Tensor parallelism reads more from GPU memory."""
    reads: dict[str, object] = {"component": "memory", "level": "gpu", "action": "read", "phase": "forward"}
    tp, dp, row = (_joules(points, m, 16, reads) for m in ("tensor_column", "data", "tensor"))
    why = "the paper's drawing (column, column) reads every activation whole; Megatron's column-row, its communication model, reads less"
    figures = {"TP column, J": tp, "DP, J": dp, "ratio": tp / dp, "ratio column-row": row / dp}
    claim, needs = "FFN, 16 GPUs: TP reads noticeably more GPU-memory energy than DP", [Need("TP/DP", tp / dp, least=1)]
    return judged("A05", "Figure 6", claim, needs, figures, weight="must", why=why)


def a06(points: Points) -> Finding:
    """Pipelined stages wait for one another."""
    counts = _counts(points, "pipeline_tensor")
    least = min(_local(points, "pipeline_tensor", n) / _local(points, "tensor", n) for n in counts)
    why = f"one pass, no micro-batches: half of the GPUs wait; significant is read as {SIGNIFICANT:g} times; {_fidelity(points)}"
    needs, figures = [Need("PP+TP/TP", least, least=SIGNIFICANT)], {"PP+TP/TP least": least}
    return judged("A06", "Figure 3", "FFN: PP+TP latency significantly above DP and TP", needs, figures, why=why)


def a07(points: Points) -> Finding:
    """Does PP+TP plateau?"""
    ratio = _local(points, "pipeline_tensor", 32) / _local(points, "pipeline_tensor", 8)
    why = f"both stages stay compute-bound here, so four times the GPUs are nearly four times faster; {_fidelity(points)}"
    needs, figures = [Need("latency 32/8", ratio, least=PLATEAU)], {"latency 32/8": ratio}
    return judged("A07", "Figure 3", "FFN: PP+TP latency plateaus after 8 GPUs", needs, figures, why=why)


MODES = ("pipeline_tensor", "data", "tensor")


def a08_reads(points: Points) -> Finding:
    """Main-memory reads of pipelines."""
    read = {m: _joules(points, m, 16, {"component": "memory", "level": "system", "action": "read"}) for m in MODES}
    figures = {f"main read {m}, J": value for m, value in read.items()}
    ratio = read["pipeline_tensor"] / max(read["data"], read["tensor"])
    why = f"DP fetches N copies of the weights from main memory, PP+TP one; stages hand over by links, not by memory; {_fidelity(points)}"
    claim = "FFN, 16 GPUs: PP+TP has markedly higher main-memory read energy"
    return judged("A08-reads", "Figure 6", claim, [Need("PP+TP over the larger of DP and TP", ratio, least=1)], figures, why=why)


def a08_writes(points: Points) -> Finding:
    """GPU-memory writes of pipelines."""
    write = {m: _joules(points, m, 16, {"component": "memory", "level": "gpu", "action": "write"}) for m in MODES}
    figures = {f"GPU write {m}, J": value for m, value in write.items()}
    ratio = write["pipeline_tensor"] / max(write["data"], write["tensor"])
    claim = "FFN, 16 GPUs: PP+TP has higher GPU-memory write energy"
    needs = [Need("PP+TP over the larger of DP and TP", ratio, least=1)]
    return judged("A08-writes", "Figure 6", claim, needs, figures, why=f"what is gathered is written too; {_fidelity(points)}")


def a09_falls(points: Points) -> Finding:
    """Attention pipelines still scale."""
    t = {n: _local(points, "pipeline_tensor", n, "attention") for n in (12, 24, 48)}
    needs = [Need("latency 24/12", t[24] / t[12], most=1), Need("latency 48/24", t[48] / t[24], most=1)]
    claim = "attention PP+TP: latency still decreasing over 12, 24, 48 GPUs"
    return judged("A09-falls", "Figure 5", claim, needs, {f"{n}, s": value for n, value in t.items()}, why=_fidelity(points))


def a09_modest(points: Points) -> Finding:
    """What pipelining costs attention, beside what it costs the FFN."""
    ratios = {n: _local(points, "pipeline_tensor", n, "attention") / _local(points, "tensor", n, "attention") for n in (12, 24, 48)}
    counts = _counts(points, "pipeline_tensor")
    ffn = max(_local(points, "pipeline_tensor", n) / _local(points, "tensor", n) for n in counts)
    figures = {f"PP+TP/TP at {n}": value for n, value in ratios.items()} | {"FFN, PP+TP/TP most": ffn}
    why = (
        f"modest is read as at most {MODEST:g} times. Six stages, of which two carry most of the work and one follows another, idle more "
        f"than two do: attention loses more than the FFN, the opposite of the paper's order; {_fidelity(points)}"
    )
    needs = [
        Need("attention, PP+TP/TP most", max(ratios.values()), most=MODEST),
        Need("attention over FFN", max(ratios.values()) / ffn, most=1),
    ]
    claim = "attention: only a modest latency increase from TP to PP+TP, where the FFN's is significant"
    return judged("A09-modest", "Figure 5", claim, needs, figures, why=why)


# -- blocks (Figures 7 to 9) -----------------------------------------------------------------------------------------------


def a10(points: Points) -> Finding:
    """Blocks, attention."""
    t = {
        m: {b: points.one(run="blocks", workload="attention", mapper=m, **{"block.count": b}).latency_s for b in (64, 512, 1024)}
        for m in ("data", "tensor")
    }
    flat = {m: v[1024] / v[512] for m, v in t.items()}
    figures = {"DP at 64, s": t["data"][64], "TP at 64, s": t["tensor"][64], "DP 1024/512": flat["data"], "TP 1024/512": flat["tensor"]}
    why = f"PP+TP on 4 GPUs contradicts the paper's own rule of multiples of six, so only DP and TP are compared; {_fidelity(points)}"
    needs = [Need("DP/TP at 64", t["data"][64] / t["tensor"][64], most=1)]
    needs.append(Need("flatness, DP/TP", flat["data"] / flat["tensor"], least=1))
    return judged("A10", "Figure 7", "attention, 4 GPUs: DP best at few blocks, DP plateaus first", needs, figures, why=why)


def a11(points: Points) -> Finding:
    """Blocks, FFN."""
    t = {
        m: points.one(run="blocks", workload="ffn", mapper=m, **{"block.count": 256}).latency_s
        for m in ("data", "tensor", "pipeline_tensor")
    }
    ratio, slow = t["data"] / t["tensor"], t["pipeline_tensor"] / t["tensor"]
    why = f"two stages cost a factor of two; nothing in the paper's model makes a hundred; {_fidelity(points)}"
    needs, figures = [near("DP/TP", ratio, 1.0, ALIKE), Need("PP+TP/TP", slow, least=30)], {"DP/TP": ratio, "PP+TP/TP": slow}
    claim = "FFN, 4 GPUs: DP and TP nearly alike, PP+TP two orders of magnitude slower"
    return judged("A11", "Figure 8", claim, needs, figures, why=why)


def a12(points: Points) -> Finding:
    """Energy against blocks."""
    energies = [p.result.energy_j for p in points.where(run="nests", workload="ffn", mapper="tensor")]
    ratio = max(energies) / min(energies)
    why = "every loop nest searched exactly at each block count: the reads and writes hardly change, the work is spread differently"
    needs, figures = [Need("most/least", ratio, most=1.1)], {"most/least": ratio}
    return judged("A12", "Figure 9", "FFN, TP: energy roughly flat over blocks", needs, figures, weight="must", why=why)


# -- communication (Figures 10, 11) and the summary ------------------------------------------------------------------------


def a13(points: Points) -> Finding:
    """Least communication energy at 32 GPUs."""
    sends, every = (_joules(points, "pipeline_tensor", 32, dict(ledger)) for ledger in (SENDS, FORWARD))
    tp, dp = _joules(points, "tensor", 32, dict(FORWARD)), _joules(points, "data", 32, dict(BACKWARD))
    figures = {"PP+TP sends, J": sends, "PP+TP with gathers, J": every, "TP forward, J": tp, "DP backward, J": dp}
    why = (
        "the paper's model of a pipeline is a point-to-point transfer; its stages are split by columns, which takes all-gathers that its "
        "text does not mention and our chart of Figure 10 draws. Energy is the same under both hop readings"
    )
    readings = {
        "stage hand-overs alone are counted": [Need("sends over the lesser of TP and DP", sends / min(tp, dp), most=1)],
        "the all-gathers of its stages are counted too": [Need("PP+TP over the lesser of TP and DP", every / min(tp, dp), most=1)],
    }
    return by_reading("A13", "Figure 10", "PP+TP has the least communication energy at 32 GPUs", readings, figures, weight="must", why=why)


def a14(points: Points) -> Finding:
    """The jump at the rack's edge, wherever the machine has it."""
    machine = points.one(run="main", workload="ffn", mapper="tensor", accelerators=SWEEP[0]).machine
    assert machine is not None
    rack = next(level.count for level in machine.tree.walk() if level.accelerator)
    inside, outside = [n for n in SWEEP if n <= rack], [n for n in SWEEP if n > rack]
    claim, why = "communication jumps when it leaves a rack", "the count of GPUs in a rack is ASSUMED; the jump is looked for at its edge"
    if not inside or not outside:
        return Finding(
            "A14", "Figure 11", claim, "must", "not decidable", {"GPUs a rack": float(rack)}, "the sweep does not cross a rack's edge"
        )
    before, after = inside[-1], outside[0]
    slow = _comm(points, "tensor", after, dict(FORWARD)) / _comm(points, "tensor", before, dict(FORWARD))
    energy = _joules(points, "tensor", after, dict(FORWARD)) / _joules(points, "tensor", before, dict(FORWARD))
    figures = {"GPUs a rack": float(rack), f"latency {after}/{before}": slow, f"energy {after}/{before}": energy}
    needs = [Need("latency over that inside", slow, least=JUMP), Need("energy over that inside", energy, least=1)]
    return judged("A14", "Figure 11", claim, needs, figures, weight="must", why=why)


def a15(points: Points) -> Finding:
    """Both passes communicate."""
    forward, backward = (_joules(points, "tensor", 8, dict(ledger)) for ledger in (FORWARD, BACKWARD))
    why = "columns then rows leave partial sums forward, and the transposed products leave them backward"
    need, figures = Need("lesser of both, J", min(forward, backward), least=0), {"forward, J": forward, "backward, J": backward}
    return certain("A15", "section IV.C", "TP communicates in forward and backward", need, figures, why)


def a16(points: Points) -> Finding:
    """Least total energy."""
    modes = ("data", "tensor", "tensor_column", "pipeline_tensor")
    counts = _counts(points, "data")
    total = {(m, n): _joules(points, m, n, {}) for m in modes for n in counts}
    over = {n: total[("data", n)] / min(total[(m, n)] for m in modes[1:]) for n in counts}
    column = max(total[("data", n)] / total[("tensor_column", n)] for n in counts)
    figures = {f"DP over the best other at {n}": value for n, value in over.items()} | {"DP over TP column, most": column}
    why = f"counts every joule of both passes, N copies of the weights and the gradient all-reduce included; {_fidelity(points)}"
    needs = [Need("DP over the best other, most", max(over.values()), most=1)]
    return judged("A16", "section IV.C", "DP has the least total energy of the three modes", needs, figures, why=why)


def a17(points: Points) -> Finding:
    """Does communication dominate?"""

    def share(n: int, run: str) -> float:
        result = points.one(run=run, workload="ffn", mapper="tensor", accelerators=n)
        return float(result.ledger.where(**NETWORK).total("exposed_seconds") / result.latency_s)

    here, h100 = (max(share(n, run) for n in SWEEP) for run in ("main", "h100"))
    why = "rests on the paper's GPU, which it does not state; on an H100 (run h100) communication dominates"
    figures = {"largest share": here, "largest share, H100": h100}
    claim = "communication never dominates TP latency"
    return judged("A17", "section IV.C", claim, [Need("largest share of latency", here, most=0.5)], figures, why=why)


def a18(points: Points) -> Finding:
    """Attention: PP+TP against TP."""
    sends = points.one(run="main", workload="attention", mapper="pipeline_tensor", accelerators=48).ledger.where(**SENDS)
    moved, scores = sends.total("joules"), sends.where(tensor="A").total("joules")
    tp = _joules(points, "tensor", 48, dict(FORWARD), "attention")
    why = (
        "a stage an einsum cuts between QK and AV and ships the score tensor (4.29 GB); were both on the same GPUs it would hold. Sends "
        "alone are counted, as the paper's model of a pipeline does"
    )
    figures = {"PP+TP, J": moved, "PP+TP, scores kept, J": moved - scores, "TP, J": tp}
    claim = "attention: PP+TP communication energy below TP"
    return judged("A18", "Figure 10", claim, [Need("PP+TP/TP", moved / tp, most=1)], figures, why=why)


CHECKS = of_points(
    a01, a02, a03, a04, a05, a06, a07, a08_reads, a08_writes, a09_falls, a09_modest, a10, a11, a12, a13, a14, a15, a16, a17, a18
)  # fmt: skip
NEST_CHECKS = of_points(a06, a07, a08_reads, a08_writes, a09_falls, a09_modest, a10, a11, a12, a16)
"""Those that need a mapper inside the GPU, over points whose loop nests were searched."""
