"""Tiles that a library's own rules pick by the sizes of a product: of the few kernels it was built with, and not always the fastest.

Rows and columns are of the result as a user sees it, also where a library multiplies the transposed operands. Numbers are of the sources
named beside them, as of 2026. FlashInfer's kernels of nvfp4 fetch a tile whole, with the rows that its left operand lacks, and from the
memory: a share of them that is fitted comes out at 0.8 to 0.94 on three GPUs, and at none of kernels of 8 bit. No source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

DispatchRule = Literal["cutlass_sm89", "cutlass_sm90", "cutlass_sm120", "flashinfer_sm100", "flashinfer_sm120"]

ANY = float("inf")


class Tile(NamedTuple):
    """rows, columns: of results up to these, the first that holds · m, n: of the block that is picked for them."""

    rows: float
    columns: float
    m: int
    n: int


@dataclass(frozen=True)
class Dispatch:
    """tiles: in the order in which they are tried, the last for all · together: SMs that take blocks below one another at once, of whose
    rows some may lack · whole: whether a tile is fetched with the rows that the left operand lacks."""

    tiles: tuple[Tile, ...]
    together: int = 1
    whole: bool = False


DISPATCH: Mapping[DispatchRule, Dispatch] = {
    # vLLM, csrc/quantization/w8a8/cutlass/scaled_mm_c2x_sm89_fp8_dispatch.cuh: by the next powers of two
    "cutlass_sm89": Dispatch(
        (
            Tile(16, 8192, 16, 64),
            Tile(16, 16384, 16, 128),
            Tile(16, ANY, 32, 64),
            Tile(32, 8192, 32, 64),
            Tile(32, 16384, 32, 128),
            Tile(32, ANY, 32, 64),
            Tile(64, 8192, 64, 64),
            Tile(64, 16384, 64, 128),
            Tile(64, ANY, 64, 64),
            Tile(128, 8192, 64, 128),
            Tile(128, 16384, 128, 128),
            Tile(128, ANY, 128, 64),
            Tile(256, 4096, 64, 128),
            Tile(256, ANY, 128, 128),
            Tile(ANY, 4096, 128, 128),
            Tile(ANY, 8192, 256, 128),
            Tile(ANY, ANY, 128, 128),
        )
    ),
    # the same, c3x/scaled_mm_sm90_fp8_dispatch.cuh
    "cutlass_sm90": Dispatch(
        (Tile(16, ANY, 16, 64), Tile(64, 1280, 16, 64), Tile(64, ANY, 64, 64), Tile(128, ANY, 64, 128), Tile(ANY, ANY, 128, 128))
    ),
    # the same, c3x/scaled_mm_sm120_fp8_dispatch.cuh
    "cutlass_sm120": Dispatch((Tile(16, ANY, 16, 64), Tile(32, ANY, 32, 64), Tile(256, ANY, 64, 64), Tile(ANY, ANY, 128, 128))),
    # FlashInfer, include/flashinfer/gemm/fp4_gemm_cutlass_template.h: the first of its kernels ("no heuristic yet"), of two SMs
    "flashinfer_sm100": Dispatch((Tile(ANY, ANY, 128, 128),), together=2, whole=True),
    # the same, fp4_gemm_cutlass_template_sm120.h: "only support 128x128x128 tile"
    "flashinfer_sm120": Dispatch((Tile(ANY, ANY, 128, 128),), whole=True),
}


def picked(rule: DispatchRule, rows: Any, columns: Any) -> tuple[Any, Any]:
    """(rows, columns) of the tile that a rule of DISPATCH picks for results of some sizes; broadcastable arrays."""
    tiles = DISPATCH[rule].tiles
    holds = [(rows <= tile.rows) & (columns <= tile.columns) for tile in tiles]
    m, n = (np.select(holds, [float(size) for size in sizes]) for sizes in ([tile.m for tile in tiles], [tile.n for tile in tiles]))
    return m, n


def blocks_of(rule: DispatchRule | None, rows: Any, columns: Any, m: Any, n: Any) -> Any:
    """Blocks of m by n that results of some sizes take, those without rows of their own too."""
    together = 1 if rule is None else DISPATCH[rule].together
    return np.ceil(rows / (m * together)) * together * np.ceil(columns / n)


def lacking(rule: DispatchRule | None, rows: Any, columns: Any) -> Any:
    """Rows of the left operand that blocks fetch and that it lacks, once for each column of blocks."""
    if rule is None or not DISPATCH[rule].whole:
        return 0.0
    m, n = picked(rule, rows, columns)
    return (np.ceil(rows / m) * m - rows) * np.ceil(columns / n)
