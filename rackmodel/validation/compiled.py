"""Which products a loop had to compile a kernel for: DeepGEMM compiles one for each (n, k) and layout of blocks, when it is first called.

    hopper       least cycles: the longer of what the blocks fetch from L2 and move in shared memory, over the share of their waves at work
    blackwell    one wave first; then two blocks that share an operand; fewer waves; a fuller last one; smaller sides; a smaller area

Rows m are multiplied from the most to the fewest, with each the columns n from the most to the fewest, so that a kernel is compiled where
no larger m of the same (n, k) had its layout; a run that is taken up anew compiles its kernels anew.
Source: deepseek-ai/DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp and sm100.hpp (layouts and their order; compiled dimensions are n and
k); of the order of rows NVIDIA aiconfigurator, collector/case_generator.py (get_gemm_case_specs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

SHARED_BYTES = 232_448
"""Of a block, on both."""
DEEP = 128  # elements of a step along the sum
COPIES_BYTES_PER_CYCLE = 8e6 / 1.3e3  # of all SMs from L2; 64 bytes of one SM at most
LEAST_ROWS = 64  # of an instruction of Hopper
HOPPER_STAGES, BLACKWELL_STAGES = 16, 32


class Layout(NamedTuple):
    """Blocks of m x n elements. swapped: whether the operands are · shared_m, shared_n: blocks along m and n that fetch an operand
    together · stages: of operands in shared memory."""

    m: int
    n: int
    swapped: bool
    shared_m: int
    shared_n: int
    stages: int


@lru_cache(maxsize=4096)
def hopper_layout(m: int, n: int, k: int, cores: int) -> Layout:
    """The layout of a product with operands of 8 bit, scaled by blocks, on a Hopper of so many SMs."""
    rows = [64, 128, *([16] if m <= 16 else []), *([32] if m <= 32 else []), 256]
    return min(
        (
            layout
            for shared_m, shared_n in ((1, 1), (1, 2), (2, 1))
            for of_m in rows
            for of_n in range(16, 193, 16)
            if (layout := _hopper(of_m, of_n, k, shared_m, shared_n)) is not None
        ),
        key=lambda layout: _hopper_cycles(layout, m, n, k, cores),
    )


def _hopper(m: int, n: int, k: int, shared_m: int, shared_n: int) -> Layout | None:
    """None where such blocks cannot be, or leave too few stages."""
    beyond = n - DEEP
    if (beyond > 0 and n % beyond and DEEP % beyond) or (m > DEEP and n > DEEP):
        return None
    scales = _aligned(_parts(k, DEEP) * 4 * (1 if DEEP % n == 0 else 2), 8)
    left = SHARED_BYTES - _aligned(2 * m * n, 1024) - HOPPER_STAGES * 16 - scales
    stages = min(left // ((m + n) * DEEP + _aligned(4 * m, 128)), HOPPER_STAGES)
    if stages < (4 if m * n < 128 * 192 else 3):
        return None
    return Layout(m, n, False, shared_m, shared_n, stages)


def _hopper_cycles(layout: Layout, m: int, n: int, k: int, cores: int) -> float:
    blocks = _parts(m, layout.m) * _parts(n, layout.n)
    waves = _parts(blocks, cores)
    if waves == 1 and layout.shared_m * layout.shared_n > 1:
        return float("inf")
    result = 2 * layout.m * layout.n
    fetched = k * (layout.m // layout.shared_n + layout.n // layout.shared_m) + result
    moved = k * (layout.m + layout.n) + k * (max(LEAST_ROWS, layout.m) + layout.n) + 2 * result
    at_l2, at_l1 = fetched * blocks // int(min(64 * cores, COPIES_BYTES_PER_CYCLE)), moved * blocks // (128 * cores)
    return float(int(max(at_l2, at_l1) * (waves * cores) / blocks))


@lru_cache(maxsize=4096)
def blackwell_layout(m: int, n: int, k: int, cores: int) -> Layout:
    """The same on a Blackwell."""
    rows = 32 if m <= 32 else 64 if m <= 64 else 128
    columns = (16, *range(32, (128 if k <= 256 else 256) + 1, 32))
    tried = [(rows, one, False, shared, 1) for shared in (1, 2) for one in columns]
    tried += [(one, 128, True, 1, shared) for shared in (1, 2) for one in range(16, 257, 16)]
    found = [
        _blackwell(*one)
        for one in tried
        if cores % (one[3] * one[4]) == 0
        and (one[0] // one[4]) % 8 == 0
        and (one[1] // one[3]) % 8 == 0
        and _parts(m, one[0]) % one[3] == 0
        and _parts(n, one[1]) % one[4] == 0
        and 2 * (one[0] if one[2] else one[1]) + (_aligned(one[0], 128) + _aligned(one[1], 128)) // 32 <= 512
    ]
    return min(found, key=lambda layout: _blackwell_order(layout, m, n, cores))


def _blackwell(m: int, n: int, swapped: bool, shared_m: int, shared_n: int) -> Layout:
    swizzle = next(one for one in (128, 64, 32, 16) if 2 * n % one == 0)
    result = 2 * (16 * n * 2 if swapped else min(128, m) * swizzle)
    left = SHARED_BYTES - result - BLACKWELL_STAGES * 24 - 44
    operands = (m // shared_n + n // shared_m) * DEEP
    stages = min(left // (operands + 4 * (_aligned(m, 128) + _aligned(n, 128))), BLACKWELL_STAGES)
    return Layout(m, n, swapped, shared_m, shared_n, stages)


def _blackwell_order(layout: Layout, m: int, n: int, cores: int) -> tuple[int, ...]:
    blocks = _parts(m, layout.m) * _parts(n, layout.n)
    waves = _parts(blocks, cores)
    last = blocks % cores or cores
    return (min(waves, 2), -layout.shared_m * layout.shared_n, waves, -last, layout.m + layout.n, layout.m * layout.n)


LAYOUTS: dict[str, Callable[[int, int, int, int], Layout]] = {"hopper": hopper_layout, "blackwell": blackwell_layout}


def compiled_first(
    layout_of: Callable[[int, int, int, int], Layout],
    cores: int,
    sizes: Iterable[tuple[int, int, int]],
    last: tuple[int, int] | None = None,
) -> list[bool]:
    """Whether a kernel had to be compiled for each (m, n, k), of all that one machine multiplied. layout_of: one of LAYOUTS · last: rows
    and columns of the last product before the run was taken up anew, with no kernel compiled; None = it ran through."""
    asked = list(sizes)
    first: dict[tuple[bool, int, int, Layout], int] = {}
    kernels = [(last is not None and (m, n) < last, n, k, layout_of(m, n, k, cores)) for m, n, k in asked]
    for (m, _, _), kernel in zip(asked, kernels, strict=True):
        first[kernel] = max(first.get(kernel, 0), m)
    return [first[kernel] == m for (m, _, _), kernel in zip(asked, kernels, strict=True)]


def _parts(whole: int, of: int) -> int:
    return -(-whole // of)


def _aligned(value: int, to: int) -> int:
    return _parts(value, to) * to
