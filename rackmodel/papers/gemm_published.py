"""Published GEMM times against the ideal loop nest, by size class.

The nest knows tiles, waves and bandwidths at the nominal clock; it does not know kernel start (about 29 µs in the A100
rows, which include the host), the sustained clock or the library's tile. So it must be faster, most of all when small.
Source of the times: LLMCompass artifact, figure 5 (A100, fp16); MAMF finder, best shape (H100 SXM, bf16).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from rackmodel.papers.reads import of_points
from rackmodel.studies.findings import Finding, Need, judged
from rackmodel.studies.run import Points

MEASURED_MS = (  # architecture, m, n, k, milliseconds
    ("a100", 128, 12288, 12288, 0.2003),
    ("a100", 256, 12288, 12288, 0.3185),
    ("a100", 512, 12288, 12288, 0.6118),
    ("a100", 1024, 12288, 12288, 1.199),
    ("a100", 2048, 12288, 12288, 2.3586),
    ("a100", 8192, 12288, 12288, 8.6216),
    ("a100", 16384, 12288, 12288, 17.0307),
    ("a100", 8192, 128, 128, 0.031),
    ("a100", 8192, 256, 256, 0.0356),
    ("a100", 8192, 512, 512, 0.0471),
    ("a100", 8192, 1024, 1024, 0.0927),
    ("a100", 8192, 2048, 2048, 0.2818),
    ("a100", 8192, 8192, 8192, 3.9614),
    ("a100", 8192, 16384, 16384, 15.0087),
    ("h100", 2048, 2048, 13312, 0.1406),
)
CLASSES = (("under 0.1 ms", 0.0, 0.1), ("0.1 to 1 ms", 0.1, 1.0), ("over 1 ms", 1.0, float("inf")))


def _check(architecture: str, number: int) -> Callable[[Points], Finding] | None:
    """The finding of a GPU and size class: the ideal nest is a lower bound, with the share of it that is reached."""
    name, low, high = CLASSES[number]
    rows = [row for row in MEASURED_MS if row[0] == architecture and low <= row[4] < high]
    return (lambda points: _finding(points, f"G-{architecture}-{number}", f"{architecture}, {name}", rows)) if rows else None


def _finding(points: Points, name: str, label: str, rows: list[tuple[str, int, int, int, float]]) -> Finding:
    figures, shares = {}, []
    for architecture, m, n, k, measured in rows:
        best = points.one(run="gemm", architecture=architecture, m=m, n=n, k=k).latency_s * 1e3
        shares.append(best / measured)
        figures[f"{m}x{n}x{k}, % of ideal"] = 100 * best / measured
    figures["mean error, %"] = 100 * fmean(share - 1 for share in shares)
    why = "the ideal nest has no kernel start, sustained clock or fixed library tile; those come with the training model"
    if max(shares) > 1.0:
        why = "faster than our ideal: the nest waits for L2, whose bandwidth in the spec is ASSUMED and too low for this shape"
    needs, claim = [Need("most of ideal over measured", max(shares), most=1)], f"{label}: no published GEMM beats its ideal loop nest"
    return judged(name, "GEMM", claim, needs, figures, weight="ours", why=why)


CHECKS = of_points(*filter(None, (_check(architecture, number) for architecture in ("a100", "h100") for number in range(len(CLASSES)))))
"""A finding a GPU and size class."""
