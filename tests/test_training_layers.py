"""Layers of training measured on an H100 (tests/data/measured/h100_sxm) and the facts that are derived from them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.products import Device, compute_seconds
from rackmodel.inputs import read_architecture, read_profile
from rackmodel.validation.attention import HeadSizes, price_calls, sizes_by_name
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.words import words

FOLDER = Path(__file__).parent / "data" / "measured" / "h100_sxm"
KERNELS = {"torch_flash_attention_2": "fa2", "cudnn": "cudnn"}
GPU = gpu_of(read_architecture("dgx_h100"))
assert GPU is not None
PRODUCTS, TRAINED = GPU.facts.products["bf16"], {kernel: GPU.facts.attention[kernel].training["bf16"] for kernel in KERNELS.values()}
DEVICE = Device(peak=GPU.compute.matrix(16).rate_flop_per_s * GPU.units, blocks=GPU.blocks, element=2)


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((FOLDER / f"{name}.csv").open(encoding="utf-8")))


def seconds(row: dict[str, str]) -> float:
    return 1e-6 * float(row["latency_us"])


def looped(shapes: list[tuple[int, int, int]]) -> float:
    """What the fit says of products in a loop, without their starts."""
    return sum(float(compute_seconds(PRODUCTS, DEVICE, 1.0, *shape)) for shape in shapes)


def shapes_of(row: dict[str, str]) -> list[tuple[int, int, int]]:
    """(m, n, k) of a layer's products, in all passes."""
    hidden, inside, tokens = int(row["hidden"]), int(row["ffn_hidden"]), int(row["batch_size"]) * int(row["q_len"])
    shared = hidden // int(row["num_heads"]) * int(row["num_key_value_heads"])
    widths = [(hidden, hidden), (shared, hidden), (shared, hidden), (hidden, hidden), (inside, hidden), (inside, hidden), (hidden, inside)]
    forward = [(tokens, n, k) for n, k in widths]
    return [*forward, *((m, k, n) for m, n, k in forward), *((n, k, m) for m, n, k in forward)]


def test_products_keep_what_they_keep_amid_a_layer() -> None:
    layers = [row for row in rows("layers") if row["part"] == "products"]
    kept = [looped(shapes_of(row)) / (seconds(row) - len(shapes_of(row)) * PRODUCTS.start_s) for row in layers]
    said = PRODUCTS.lasting
    assert float(said) == pytest.approx(sum(kept) / len(kept), abs=0.002)
    assert said.high == pytest.approx(max(kept), abs=0.002)
    assert said.low == pytest.approx(float(np.median(alone())), abs=0.002)


def alone() -> list[float]:
    """What products of LARGE operations keep that are looped by themselves, in all passes."""
    kept = []
    for row in rows("training_products"):
        m, n, k = (int(row[name]) for name in "mnk")
        turned = {"forward": (m, n, k), "input gradients": (m, k, n), "weight gradients": (n, k, m)}[row["pass"]]
        if 2.0 * m * n * k > 1e11:
            kept.append(looped([turned]) / (seconds(row) - PRODUCTS.start_s))
    return kept


def test_products_of_8_bit_gain_as_much_amid_a_layer() -> None:
    device = Device(peak=GPU.compute.matrix(8).rate_flop_per_s * GPU.units, blocks=GPU.blocks, element=1)
    product, kept = GPU.facts.products["fp8"], []
    start = product.start_s - GPU.facts.vector["quantise"].start_s  # as in a step: a cast, which is not in these rows, is in the part's
    for row in rows("products"):
        m, n, k = (int(row[name]) for name in "mnk")
        if row["gemm_dtype"] == "fp8" and 2.0 * m * n * k > 1e11:
            kept.append(float(compute_seconds(product, device, 1.0, m, n, k)) / (seconds(row) - start))
    wide, said = PRODUCTS.lasting, product.lasting
    assert said.low == pytest.approx(float(np.median(kept)), abs=0.002)
    assert float(said) == pytest.approx(said.low * float(wide) / wide.low, abs=0.002)
    assert said.high == pytest.approx(said.low * wide.high / wide.low, abs=0.002)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_attention_keeps_what_it_keeps_amid_a_layer(kernel: str) -> None:
    machine, pricer = machine_of("dgx_h100", ()), KernelPricer(lasting=True, attention=KERNELS[kernel], looped=True)
    kept = []
    for row in rows("layers"):
        if row["part"] == "attention" and row["kernel_source"] == kernel:
            heads, shared, many, length = (int(row[name]) for name in ("num_heads", "num_key_value_heads", "batch_size", "q_len"))
            sizes = sizes_by_name([(many, shared, heads / shared, length, length, (length + 1) / 2)])
            own = HeadSizes(int(row["hidden"]) / heads, int(row["hidden"]) / heads, 16)
            both = sum(price_calls(machine, pricer, sizes, own, way)[1][0] for way in ("forward", "backward"))
            kept.append(both / seconds(row))
    said = TRAINED[KERNELS[kernel]].lasting
    assert float(said) == pytest.approx(sum(kept) / len(kept), abs=0.002)
    assert said.low <= min(kept) + 0.005


def test_what_moves_rows_streams_at_the_rate_of_the_part() -> None:
    """Sums, GELU and SwiGLU: operands and results, 2 B an element."""
    passes = {("add", "forward"): 3, ("gelu", "forward"): 2, ("gelu", "backward"): 3, ("swiglu", "forward"): 3, ("swiglu", "backward"): 5}
    shares = [
        passes[row["op"], row["pass"]] * 2.0 * int(row["num_tokens"]) * int(row["hidden"]) / seconds(row) / 3.35e12
        for row in rows("training_ops")
        if (row["op"], row["pass"]) in passes and row["num_tokens"] == "16384" and row["mode"] == "compiled"
    ]
    assert len(shares) == len(passes)
    assert float(GPU.facts.stream_memory_efficiency) == pytest.approx(sum(shares) / len(shares), abs=0.01)
    assert float(GPU.facts.memory_efficiency) == pytest.approx(max(shares), abs=0.01)
    assert GPU.facts.pointwise_efficiency == pytest.approx(sum(shares[:-1]) / (len(shares) - 1), abs=0.01)


def test_a_gpu_that_waits_draws_what_was_read() -> None:
    facts = {row["fact"]: float(row["value"]) for row in rows("machine")}
    machine = read_architecture("dgx_h100")
    waiting = float(GPU.facts.waiting_power_w) + machine.accelerator.static_power_w
    assert waiting == pytest.approx(facts["waiting_w"], abs=1.0)
    assert facts["limit_w"] == GPU.facts.power_limit_w


def test_compute_beside_collectives_slows_as_products_did_beside_as_many_blocks() -> None:
    """NCCL has 16 or 24 channels, Transformer Engine 16 SMs: a block each."""
    alone = {(row["m"], row["n"], row["k"]): seconds(row) for row in rows("contended") if row["blocks"] == "0"}
    slower = [seconds(row) / alone[row["m"], row["n"], row["k"]] - 1 for row in rows("contended") if row["blocks"] in ("16", "24")]
    for profile in ("megatron_core", "fsdp", "torchtitan"):
        said = read_profile(profile).overlap.contention
        assert float(said) == pytest.approx(sum(slower) / len(slower), abs=0.003)
        assert said.low < min(slower)
        assert said.high == pytest.approx(max(slower), abs=0.006)


def kept_at_500_w(kind: str, bits: int) -> list[float]:
    """Of the fit, of large products on H100s whose power is capped at 500 W."""
    device = Device(peak=GPU.compute.matrix(bits).rate_flop_per_s * GPU.units, blocks=GPU.blocks, element=bits / 8)
    found = []
    for row in csv.DictReader((FOLDER.parent / "h100_capped.csv").open(encoding="utf-8")):
        if row["gemm_dtype"] == kind:
            m, n, k = (int(row[name]) for name in "mnk")
            looped_s = float(compute_seconds(GPU.facts.products[kind], device, 1.0, m, n, k))
            found.append(1e12 * float(row["tflops"]) * looped_s / (2.0 * m * n * k))
    return found


def test_a_cap_of_500_w_slows_products_as_much_as_was_measured() -> None:
    """Power over static power to the 1 / exponent; over short loops, and over loops of 0.6 s, at 700 W."""
    left, kept, said = np.log((500 - 75) / (700 - 75)), kept_at_500_w("bf16", 16), GPU.facts.cap_exponent
    over_short, over_long = (float(np.mean([left / np.log(one / looped) for one in kept])) for looped in (1.0, PRODUCTS.lasting.low))
    assert (said.low, said.high) == pytest.approx((over_short, over_long), abs=0.02)
    assert said.low < float(said) < said.high
    assert all(said.low < left / np.log(one) < said.high for one in kept_at_500_w("fp8", 8))


@pytest.mark.parametrize(("kind", "bits"), [("bf16", 16), ("fp8", 8)])
def test_products_of_h100s_at_500_w_last_between_their_cap_and_what_was_measured(kind: str, bits: int) -> None:
    machine = words().machine("H100-96GB-HBM2e-2.4TB/s-500W", "")
    capped = gpu_of(machine_of(machine.machine, tuple(machine.set.items())))
    assert capped is not None
    said, at_700 = capped.facts.products[kind].lasting, GPU.facts.products[kind].lasting
    slower, gained = (425 / 625) ** (1 / 2.4), float(PRODUCTS.lasting) / PRODUCTS.lasting.low
    kept = kept_at_500_w(kind, bits)
    assert float(said) == pytest.approx((float(at_700) * slower + float(np.mean(kept)) * gained) / 2, abs=0.006)
    assert said.low == pytest.approx(min(kept) if kind == "bf16" else at_700.low * slower, abs=0.002)
    assert said.high == pytest.approx(at_700.high * (425 / 625) ** (1 / 3) if kind == "bf16" else max(kept) * gained, abs=0.005)
