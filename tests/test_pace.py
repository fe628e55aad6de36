"""Kernels that compute run at the clock that the products of a step leave (cost/step/tasks/pace)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.step.tasks.pace import TrainedSteps, pace_of
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.resources import Pace
from rackmodel.setting import at_pace, local_pricer
from rackmodel.validation.attention import HeadSizes, price_calls, sizes_by_name
from rackmodel.validation.machine_files import machine_of
from tests.test_training_layers import KERNELS, PRODUCTS, alone, looped, rows, seconds, shapes_of

GPU = gpu_of(read_architecture("dgx_h100"))
assert GPU is not None
PACE = GPU.facts.pace
assert PACE is not None


def layers() -> dict[tuple[str, str, str], dict[str, float]]:
    """Kernel of attention, mode and width of a measured layer → seconds of its parts."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows("layers"):
        found.setdefault((row["kernel_source"], row["mode"], row["hidden"]), {})[row["part"]] = seconds(row)
    return found


def kept() -> list[tuple[float, float]]:
    """(share of a measured layer's kernels that products take, what they keep of the fit) of each layer."""
    shares = {key: parts["products"] / (parts["products"] + parts["attention"] + parts["others"]) for key, parts in layers().items()}
    found = []
    for row in rows("layers"):
        if row["part"] == "products":
            shapes = shapes_of(row)
            own = looped(shapes) / (seconds(row) - len(shapes) * PRODUCTS.start_s)
            found.append((shares[row["kernel_source"], row["mode"], row["hidden"]], own))
    return found


def test_the_line_goes_through_the_layers_and_the_loops() -> None:
    shares, keeping = np.array(kept()).T
    assert PACE.products == pytest.approx(shares.mean(), abs=0.005)
    assert PACE.alone == pytest.approx(float(np.median(alone())) / keeping.mean(), abs=0.003)
    assert float(PACE.at(PACE.products)) == 1.0
    assert float(PACE.at(1.0)) == pytest.approx(PACE.alone)


def test_every_layer_lies_near_the_line() -> None:
    for share, own in kept():
        assert float(PRODUCTS.lasting) * PACE.at(share) == pytest.approx(own, abs=0.026)


def test_attention_by_itself_is_what_the_line_says_where_nothing_is_a_product() -> None:
    """No number was taken from these rows: FlashAttention 2 and cuDNN of long sequences, looped for 0.6 s."""
    found: dict[str, list[float]] = {kernel: [] for kernel in KERNELS.values()}
    machine = machine_of("dgx_h100", ())
    for row in rows("attention_training"):
        heads, shared, many, length = (int(row[name]) for name in ("num_heads", "num_key_value_heads", "batch_size", "q_len"))
        if row["kernel_source"] in KERNELS and heads == 32 and length >= 8192:
            kernel = KERNELS[row["kernel_source"]]
            sizes = sizes_by_name([(many, shared, heads / shared, length, length, (length + 1) / 2)])
            own = HeadSizes(float(row["head_dim"]), float(row["head_dim"]), 16)
            pricer = KernelPricer(lasting=True, attention=kernel, looped=True)
            found[kernel].append(price_calls(machine, pricer, sizes, own, row["pass"])[1][0] / seconds(row))
    gains = [np.mean(each) / float(GPU.facts.attention[kernel].training["bf16"].lasting) for kernel, each in found.items()]
    assert float(np.mean(gains)) == pytest.approx(float(PACE.at(0.0)), rel=0.03)


def test_the_more_of_a_step_is_products_the_slower_they_are() -> None:
    machine, profile = read_architecture("dgx_h100"), read_profile("megatron_core")

    def pace(sets: list[str]) -> float:
        priced = at_pace(local_pricer(profile), machine, read_workload("llama3_8b", sets), profile)
        assert isinstance(priced, KernelPricer)
        return float(priced.pace)

    lengths = [pace([f"s={length}"]) for length in (1024, 4096, 16384, 65536)]
    assert lengths == sorted(lengths)
    assert pace(["b=8"]) == pace(["b=4096"])  # however many sequences
    assert pace(["d=8192", "f=28672"]) < pace(["d=2048", "f=7168"])


def test_machines_that_say_nothing_and_steps_without_training_keep_theirs() -> None:
    profile = read_profile("megatron_core")
    steps = {"inside": local_pricer(profile), "workload": read_workload("llama3_8b"), "profile": profile}
    assert pace_of(TrainedSteps(architecture=read_architecture("dgx_a100"), **steps)) == 1.0  # type: ignore[arg-type]
    assert pace_of(TrainedSteps(architecture=read_architecture("dgx_h20"), **steps)) == 1.0  # type: ignore[arg-type]
    forward = read_workload("llama3_8b", ["phases=[forward]"])
    priced = at_pace(local_pricer(profile), read_architecture("dgx_h100"), forward, profile)
    assert isinstance(priced, KernelPricer)
    assert priced.pace == 1.0


def test_a_kernel_takes_its_seconds_over_the_pace() -> None:
    machine, profile = read_architecture("dgx_h100"), read_profile("megatron_core")
    whole = at_pace(local_pricer(profile), machine, read_workload("llama3_70b"), profile)
    assert isinstance(whole, KernelPricer)
    sizes, own = sizes_by_name([(1.0, 8.0, 8.0, 8192.0, 8192.0, 4096.5)]), HeadSizes(128.0, 128.0, 16)
    slow, plain = (price_calls(machine, replace(whole, pace=pace), sizes, own, "forward")[1][0] for pace in (0.9, 1.0))
    assert slow == pytest.approx(plain / 0.9)


@pytest.mark.parametrize(
    ("said", "words"), [({"products": 1.0, "alone": 0.9}, "share below 1"), ({"products": 0.6, "alone": 1.1}, "at most 1")]
)
def test_a_pace_that_cannot_be_is_refused(said: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Pace.model_validate(said)
