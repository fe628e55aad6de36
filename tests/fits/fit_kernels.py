"""Reproduces the kernel facts of specs/parts from published measurements of single operations (tests/data/published).

    python tests/fits/fit_kernels.py

A matrix product's parameters minimise the mean of |predicted / measured - 1| over a GPU's rows, by pattern search; 'left
out' is the error on each row of a fit without it. No row of a training step is used.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.kernels import gemm_seconds
from rackmodel.model.resources import Kernels, Tile

Array = NDArray[np.float64]
ROWS = Path(__file__).parents[1] / "data" / "published" / "gemm_ops.csv"
GPUS = {"a100": (108, 312e12, 2.039e12), "h100": (132, 989.4e12, 3.35e12), "b200": (148, 2250e12, 8e12)}  # blocks, FLOP/s, bytes/s
SMALL = 0.75  # share of a 64 x 64 tile: the best of .70, .75 .. .90 on the H100 rows (2.75, 2.6, 2.7, 2.8, 3.1 %), taken for all
STREAM = 0.91  # H100, H200, B200: RECALLED, stream benchmarks; the rows are too small to show it


def rows(gpu: str, *kinds: str) -> Array:
    """[r, 5] batch, m, n, k (0 where absent) and seconds of the rows of some operations."""
    with ROWS.open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["gpu"] == gpu and row["op"] in kinds]
    return np.array([[float(row[c] or 0) for c in ("batch", "m", "n", "k")] + [float(row["time_ms"]) * 1e-3] for row in found])


def predict(gpu: str, sizes: Array, efficiency: float, start_us: float, k_fill: float, memory: float) -> Array:
    """[r] seconds of matrix products."""
    blocks, peak, bandwidth = GPUS[gpu]
    batch, m, n, k = sizes[:, :4].T
    facts = Kernels(efficiency=1.0, k_fill=k_fill, tiles=(Tile(m=128, n=128), Tile(m=64, n=64, share=SMALL)))
    compute = gemm_seconds(facts, blocks, peak * efficiency, batch, m, n, k)
    return np.asarray(np.maximum(compute, 2 * batch * (m * k + k * n + m * n) / (bandwidth * memory)) + start_us * 1e-6)


def error(predicted: Array, measured: Array) -> float:
    """Mean of |predicted / measured - 1|."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def search(cost: Callable[[Array], float], start: list[float], step: list[float]) -> tuple[Array, float]:
    """Pattern search: steps along each coordinate, halved where none helps."""
    x, size = np.array(start), np.array(step)
    best = cost(x)
    while (size > 1e-5 * np.array(step)).any():
        moves = [x + sign * size * unit for unit in np.eye(len(x)) for sign in (1, -1)]
        costs = [cost(move) for move in moves]
        number = int(np.argmin(costs))
        if costs[number] < best - 1e-12:
            x, best = moves[number], costs[number]
        else:
            size = size / 2
    return x, best


def fit(gpu: str, sizes: Array, *, memory: bool) -> tuple[Array, float]:
    """(efficiency, start in us, k_fill, share of the bandwidth) and the mean error; memory: fit the share too."""

    def cost(x: Array) -> float:
        if not (0 < x[0] <= 1 and x[1] >= 0 and x[2] >= 0 and (not memory or 0 < x[3] <= 1)):
            return 9.0
        return error(predict(gpu, sizes, x[0], x[1], x[2], x[3] if memory else STREAM), sizes[:, 4])

    tail = [0.85] if memory else []
    starts = [[e, t, k, *tail] for e in (0.8, 0.9) for t in ((28.0,) if gpu == "a100" else (5.0,)) for k in (0.0, 150.0)]
    found = [search(cost, s, [0.02, 1.0, 20.0, 0.02][: len(s)]) for s in starts]
    x, best = min(found, key=lambda pair: pair[1])
    return (x if memory else np.append(x, STREAM)), best


def left_out(gpu: str, sizes: Array, *, memory: bool) -> float:
    """Mean error on each row of a fit to the others."""
    errors = []
    for i in range(len(sizes)):
        x, _ = fit(gpu, np.delete(sizes, i, axis=0), memory=memory)
        errors.append(error(predict(gpu, sizes[i : i + 1], *x), sizes[i : i + 1, 4]))
    return float(np.mean(errors))


def vector() -> tuple[Array, Array]:
    """A100: (start of softmax, of layer norm in us, share of the bandwidth), and the mean error of each."""
    softmax, norm = rows("a100", "softmax"), rows("a100", "layernorm")

    def errors(x: Array) -> Array:
        return np.array(
            [error(4 * r[:, 1] * r[:, 2] / (GPUS["a100"][2] * x[2]) + s * 1e-6, r[:, 4]) for r, s in ((softmax, x[0]), (norm, x[1]))]
        )

    x, _ = search(lambda x: float(errors(x).sum()) if 0 < x[2] <= 1 else 9.0, [13.0, 50.0, 0.6], [1.0, 1.0, 0.02])
    return x, errors(x)


def main() -> None:
    """Print every fitted or derived fact."""
    facts = {}
    for gpu in GPUS:
        sizes = rows(gpu, "gemm")
        facts[gpu], best = fit(gpu, sizes, memory=gpu == "a100")
        e, start, fill, share = facts[gpu]
        out = left_out(gpu, sizes, memory=gpu == "a100")
        print(f"{gpu}: efficiency {e:.3f}, start {start:.1f} us, k_fill {fill:.0f}, memory {share:.3f}")
        print(f"    error {best:.1%} of {len(sizes)} rows, {out:.1%} on rows left out; signed, %:")
        print("   ", np.round(100 * (predict(gpu, sizes, *facts[gpu]) / sizes[:, 4] - 1), 1))
    for gpu in ("h100", "b200"):
        row = rows(gpu, "best_shape")
        print(f"{gpu}: best shape of a sweep, predicted / measured {(predict(gpu, row, *facts[gpu]) / row[:, 4])[0]:.3f}")
    for gpu, start in (("a100", facts["a100"][1]), ("h100", facts["h100"][1])):
        layer = rows(gpu, "layer_gemm", "layer_qkv")
        calls = np.where(layer[:, 0] == 3, 3.0, 1.0)  # three projections, timed one after another
        layer[:, 0] = 1
        ratio = (predict(gpu, layer, *facts[gpu]) - start * 1e-6) / (layer[:, 4] / calls - start * 1e-6)
        print(f"{gpu}: sustained {np.round(ratio, 3)}, mean {ratio.mean():.3f}")
    batched = rows("a100", "layer_batched")
    moved = 2 * batched[:, 0] * (batched[:, 1] * batched[:, 3] + batched[:, 3] * batched[:, 2] + batched[:, 1] * batched[:, 2])
    seconds = batched[:, 4] - facts["a100"][1] * 1e-6
    print(
        f"a100: batched memory {np.round(moved / seconds / GPUS['a100'][2], 3)}, both {moved.sum() / seconds.sum() / GPUS['a100'][2]:.3f}"
    )
    x, errors = vector()
    print(f"a100: vector starts {x[0]:.1f} and {x[1]:.1f} us, memory {x[2]:.3f}: softmax {errors[0]:.1%}, layer norm {errors[1]:.1%}")
    layer = rows("a100", "layer_vector")
    print("    in a layer", np.round(4 * layer[:, 1] * layer[:, 2] / (GPUS["a100"][2] * x[2]) / layer[:, 4], 2))


if __name__ == "__main__":
    main()
