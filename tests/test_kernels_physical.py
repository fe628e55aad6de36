"""Fitted products, and those of experts, grow with their sizes and stay below what a GPU can do, far beyond the shapes of their rows."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.cost.inside.attention import AttentionDevice, decode_seconds, sizes_of
from rackmodel.cost.inside.experts import ExpertLayer, call_seconds, expert_device
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.products import Device, compute_seconds, together
from rackmodel.cost.inside.routing import Routing, load_of
from rackmodel.cost.inside.vectors import VectorDevice, vector_seconds
from rackmodel.inputs import read_architecture
from rackmodel.model.dispatch import picked
from rackmodel.model.resources import Products, width

SIZES = ([1, 8, 33, 64, 65, 128, 200, 300, 512, 4096, 16384, 65536], [64, 256, 3072, 28672, 200000], [64, 512, 768, 4096, 65536])
BITS = {"bf16": 16, "fp8": 8, "fp8_block": 8, "fp4": 4}
GPUS = ["dgx_a100", "dgx_h100", "dgx_h200", "dgx_b200", "dgx_b300", "gb200_nvl72", "gb300_nvl72"]
SLACK = 0.02
"""A sum over more elements may be split into more parts."""


@pytest.mark.parametrize("machine", [*GPUS, "l40s_node", "rtx_pro_6000_node"])
def test_products_grow_with_their_sizes_and_stay_below_the_peaks(machine: str) -> None:
    gpu = gpu_of(read_architecture(machine))
    assert gpu is not None
    for name, facts in gpu.facts.products.items():
        peak = gpu.compute.matrix(BITS[name]).rate_flop_per_s * gpu.units
        m, n, k = np.meshgrid(*(np.array(sizes, dtype=np.float64) for sizes in SIZES), indexing="ij")
        seconds, moved = _seconds(facts, Device(peak=peak, blocks=gpu.blocks, element=BITS[name] / 8), gpu.bandwidth, m, n, k)
        kernel = np.zeros_like(m) if facts.dispatch is None else np.dot((1, 1000), np.stack(picked(facts.dispatch, m, n)).reshape(2, -1))
        for axis in range(3):
            grown = np.diff(seconds, axis=axis) >= -SLACK * np.take(seconds, range(seconds.shape[axis] - 1), axis=axis)
            switched = np.diff(kernel.reshape(m.shape), axis=axis) != 0  # as measured: at 64 to 65 rows or 128 to 129 some take less
            assert (grown | switched).all(), (name, axis)
        assert (2.0 * m * n * k / seconds <= peak).all(), name
        assert (moved / seconds <= gpu.bandwidth).all(), name


@pytest.mark.parametrize("machine", GPUS)
def test_products_of_experts_grow_with_tokens_as_trained_routers_deal_them(machine: str) -> None:
    gpu = gpu_of(read_architecture(machine))
    assert gpu is not None
    tokens = 2.0 ** np.arange(15)
    ones, hidden, inter, chosen = np.ones_like(tokens), 4096.0, 1536.0, 8
    for ranks in (1, 8):
        load = load_of(tokens, Routing(experts=128, chosen=chosen, ranks=ranks, skew=1.2, trained=True))
        spread = ones * (ranks > 1)
        layer = ExpertLayer(tokens=tokens, hidden=hidden * ones, inter=inter * ones, gated=ones, every=tokens * chosen, spread=spread)
        for name, facts in gpu.facts.grouped.items():
            device = expert_device(facts, gpu)
            seconds = call_seconds(facts, device, layer, load)
            assert (np.diff(seconds) >= 0).all(), name
            assert (6.0 * hidden * inter * load.pairs / seconds <= device.peak).all(), name
            assert (3.0 * hidden * inter * device.weight * load.hit / seconds <= gpu.bandwidth).all(), name


@pytest.mark.parametrize("machine", [*GPUS, "dgx_h20", "dgx_h800", "gh200", "l40s_node", "rtx_4090", "rtx_pro_6000_node"])
def test_attention_of_one_token_stays_below_the_peaks(machine: str) -> None:
    """Of 128 heads that share their keys an H20, a seventh of an H100 that moves as many bytes, was priced six times too fast."""
    gpu = gpu_of(read_architecture(machine))
    assert gpu is not None
    axes = ([1.0, 16, 128, 2048], [1.0, 8], [1.0, 8, 64, 128], [100.0, 4096, 131072])
    sequences, kv_heads, group, keys = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    for name, kernel in gpu.facts.attention.items():
        for precision, facts in kernel.decode.items():
            element = width(precision) / 8
            peak = gpu.compute.matrix(width(precision)).rate_flop_per_s * gpu.units
            device = AttentionDevice(peak=peak, blocks=gpu.blocks, bandwidth=gpu.bandwidth, element=element)
            for head, value, latent in ((576.0, 512.0, 1.0),) if kernel.latent else ((128.0, 128.0, 0.0), (256.0, 256.0, 0.0)):
                calls = {"sequences": sequences, "kv_heads": kv_heads, "group": group, "context": keys, "keys": keys}
                sizes = sizes_of(**calls, queries=1.0, head=head, value=value, latent=latent)
                seconds, _ = decode_seconds(facts, device, sizes)
                pairs = sequences * kv_heads * keys
                assert (2.0 * pairs * group * (head + value) / seconds <= peak).all(), (name, precision)
                assert (pairs * sizes.read * element / seconds <= gpu.bandwidth).all(), (name, precision)


@pytest.mark.parametrize(
    "machine", [*GPUS, "a40", "a6000", "dgx_h20", "dgx_h800", "gh200", "l40s_node", "rtx_3090", "rtx_4090", "rtx_pro_6000_node"]
)
def test_kernels_that_move_rows_grow_with_them_and_the_memory_gives_no_more_than_it_has(machine: str) -> None:
    """Some were fitted to rows that the cache held alone, and 1.5 times the memory's bandwidth was then as good as any."""
    gpu = gpu_of(read_architecture(machine))
    assert gpu is not None
    assert gpu.facts.vector
    rows, columns = np.meshgrid(2.0 ** np.arange(19), [64.0, 100.0, 4096.0, 8192.0, 32768.0], indexing="ij")
    moved = rows * columns * 4.0
    for name, facts in gpu.facts.vector.items():
        seconds = vector_seconds(facts, VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache), moved, rows)
        for axis in range(2):
            assert (np.diff(seconds, axis=axis) >= 0).all(), (name, axis)
        assert ((moved / seconds)[moved > 8 * gpu.cache] <= gpu.bandwidth).all(), name


def _seconds(
    facts: Products, device: Device, bandwidth: float, m: np.ndarray, n: np.ndarray, k: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of products and the bytes that they cannot do without."""
    moved = (m * k + k * n) * device.element + m * n * 2.0
    return facts.start_s + together(compute_seconds(facts, device, 1.0, m, n, k), moved / (facts.memory * bandwidth)), moved
