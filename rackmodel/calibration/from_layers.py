"""Rows of single operations of a layer as what fits take: products, and runs of each vector kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rackmodel.calibration.fit_vectors import VectorRows
from rackmodel.calibration.product_rows import ProductRows
from rackmodel.calibration.shares import left_out
from rackmodel.cost.inside.gpu import Gpu
from rackmodel.cost.inside.vectors import VectorDevice
from rackmodel.validation.layer_ops import LayerCase, layer_case
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.words import Refused


def cases_of(rows: Sequence[PublishedRow], left: list[str]) -> list[LayerCase]:
    """The operations whose shapes are known; others are left out. left: gets what is said of these."""
    found, refused = [], []
    for row in rows:
        try:
            found.append(layer_case(row))
        except Refused as problem:
            refused.append((Path(row.file).name, row.line, str(problem)))
    left += left_out(refused)
    return found


def products_of_layers(rows: Sequence[PublishedRow], cases: Sequence[LayerCase]) -> list[ProductRows]:
    """Products among operations of one GPU, at 16 bit."""
    own = [case for case in cases if not case.kernel]
    if not own:
        return []
    m, n, k = np.array([case.sizes for case in own], dtype=np.float64).T
    seconds = np.array([case.seconds for case in own])
    gpu, source = rows[0].text("system", "gpu"), Path(rows[0].file).name
    return [ProductRows(gpu=gpu, precision="bf16", m=m, n=n, k=k, seconds=seconds, source=source)]


def vectors_of_layers(gpu: Gpu, cases: Sequence[LayerCase]) -> dict[str, VectorRows]:
    """Vector kernel → its runs on one GPU. How many rows are begun at once is the kernel's source's to say, and the part's."""
    device = VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache)
    found: dict[str, list[LayerCase]] = {}
    for case in cases:
        if case.kernel:
            found.setdefault(case.kernel, []).append(case)
    made = {}
    for kernel, own in found.items():
        rows, moved = np.array([case.sizes for case in own], dtype=np.float64).T
        seconds = np.array([case.seconds for case in own])
        at_once = gpu.facts.vector[kernel].at_once if kernel in gpu.facts.vector else 0.0
        shapes = [case.shape for case in own]
        made[kernel] = VectorRows(device=device, rows=rows, moved=moved, seconds=seconds, shapes=shapes, at_once=at_once)
    return made
