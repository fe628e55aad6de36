"""A training step: memory that published formulas give to the last digit, figures that add up, arrays that equal single points."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.step.bounds.bound import compose
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.bounds.figures import HELD
from rackmodel.cost.step.bounds.memory import device_memory, in_flight, memory_of
from rackmodel.cost.step.clock.pipeline_orders import in_flight as exact_in_flight
from rackmodel.cost.step.cut import even_cut
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import as_the_device_sees, plan_of
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.inputs import read_workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import WorkloadSpec
from tests import samples
from tests.training_cases import column, group_price, inputs, job_of, plan_price, space_of, variant

GIB = 2**30


@cache
def _on_64(*changes: str) -> api.Result:
    """The fastest step of a model on 64 accelerators."""
    return api.search("rack_paper_h100", "gpt_22b", "megatron", sets=["accelerators=64", "b=64", *changes]).result


@cache
def _space_on_32() -> tuple[Any, Any, Any]:
    """(inputs, space, price of the first group) of a model on 32 accelerators, which several tests ask."""
    given = inputs("rack_paper_h100", "gpt_22b", "megatron", ("accelerators=32", "b=32"))
    space = space_of(given.mapper, given.workload, 32)
    return given, space, group_price(given.architecture, space)


def _layer_activations(model: str, tensor: int, layout: str, recompute: str, micro_batch: int = 1) -> float:
    """Bytes that one block saves on one accelerator, with `tensor` of them in a group."""
    given = inputs("rack_paper_h100", model, "megatron", (f"accelerators={tensor}", f"b={micro_batch}"))
    space = space_of(given.mapper, given.workload, tensor, micro_batch=micro_batch)
    at = space.groups[0].columns.pick(np.array([column(space, (1, tensor), 1, micro_batch)]))
    price = plan_price(given.architecture, space, variant(space, layout, recompute), at)
    return float(price.sections[1].held["activations"][0, 0])


@pytest.mark.parametrize(
    ("tensor", "layout", "recompute", "published_mb"),
    [
        (1, "tensor", "none", 2868.9),
        (8, "tensor", "none", 578.8),
        (8, "sequence", "none", 358.6),
        (8, "sequence", "selective", 107.0),
        (8, "tensor", "full", 50.3),
        (8, "sequence", "full", 6.29),
    ],
)
def test_a_gpt3_block_saves_what_korthikanti_publishes(tensor: int, layout: str, recompute: str, published_mb: float) -> None:
    s, b, h, a, t = 2048, 1, 12288, 96, tensor
    formula = {
        ("tensor", "none"): s * b * h * (10 + 24 / t + 5 * a * s / (h * t)),
        ("sequence", "none"): s * b * h / t * (34 + 5 * a * s / h),
        ("sequence", "selective"): 34 * s * b * h / t,
        ("tensor", "full"): 2 * s * b * h,
        ("sequence", "full"): 2 * s * b * h / t,
    }[layout, recompute]
    saved = _layer_activations("gpt3_175b", tensor, layout, recompute)
    assert saved == formula
    assert saved / 1e6 == pytest.approx(published_mb, abs=0.06)


@pytest.mark.parametrize(
    ("model", "stages", "chunks", "layout", "recompute", "gib"),
    [
        ("gpt3_175b", 8, 3, "tensor", "none", 66.84375),
        ("gpt_530b", 35, 3, "tensor", "none", 114.0234375),
        ("gpt_1t", 64, 1, "tensor", "none", 131.25),
        ("gpt3_175b", 8, 3, "sequence", "selective", 12.3515625),
        ("gpt_530b", 35, 3, "sequence", "selective", 23.076171875),
        ("gpt_1t", 64, 1, "sequence", "selective", 26.5625),
    ],
)
def test_activations_in_flight_are_the_published_figures_to_the_last_digit(
    model: str, stages: int, chunks: int, layout: str, recompute: str, gib: float
) -> None:
    """Korthikanti 2022, figure 7: 1 + (p−1)/(pv) times L layers where stages hold v > 1 chunks."""
    given = inputs("rack_paper_h100", model, "megatron", ("rack.count=4096", f"accelerators={8 * stages}", f"b={4 * stages}"))
    space = space_of(
        given.mapper,
        given.workload,
        8 * stages,
        micro_batch=1,
        axes={"pp": {"degree": stages, "stages": "layers"}, "dp": {"degree": 1}, "tp": {"degree": 8}},
    )
    price = plan_price(given.architecture, space, variant(space, layout, recompute), space.groups[0].columns.pick(np.array([0])))
    made = even_cut(price.repeats, price.layers, stages, chunks)
    assert made is not None
    flying = in_flight("interleaved" if chunks > 1 else "1f1b", stages, chunks, np.array([4 * stages]), 0)
    saved = float((price.sections[1].held["activations"] * (flying * made.busy[0, 1] / chunks)).item())
    assert saved / GIB == gib


@pytest.mark.parametrize(("home", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_holds_what_the_paper_prints_for_seven_and_a_half_billion_on_64(home: int, gigabytes: float) -> None:
    """ZeRO (Rajbhandari 2020), figure 1: 16 Ψ, 4 Ψ + 12 Ψ/N, 2 Ψ + 14 Ψ/N, 16 Ψ/N; fp16 gradients, 12 bytes of state."""
    workload = build_workload(
        WorkloadSpec.model_validate(
            {
                "workload": "linear",
                "phases": ["forward", "backward", "optimizer"],
                "sizes": {"b": 64, "k": 25000, "n": 1500, "layers": 100},
                "precision": {"gradient": "16 bit"},
                "sections": {
                    "block": {"repeat": "layers", "einsums": {"up": "H[b,n] = X[b,k] * W1[k,n]", "down": "Y[b,k] = H[b,n] * W2[n,k]"}}
                },
            }
        )
    )
    given = inputs("rack_paper_h100", "gpt", "megatron", ("accelerators=64",))
    axes = {"pp": {"degree": 1, "stages": "layers"}, "dp": {"degree": 64}, "tp": {"degree": 1}}
    space = space_of(given.mapper, workload, 64, axes=axes, layouts={}, split={"dp": ["b"]}, recompute="none")
    price = group_price(given.architecture, space)
    held, plan = price.sections[0].held, variant(space, "", "none", home)
    total = 100 * sum(float(held[what][plan, 0]) for what in ("weights", "gradients", "optimizer"))
    psi = 7.5e9
    assert total == pytest.approx([16 * psi, 4 * psi + 12 * psi / 64, 2 * psi + 14 * psi / 64, 16 * psi / 64][home], rel=1e-12)
    assert total / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_the_step_multiplies_what_six_times_parameters_times_tokens_says() -> None:
    """Matrix FLOPs of a GPT step: 6 · tokens · (weights that multiply) + attention 12 L b s² d; Narayanan 2021, equation 2."""
    result = _on_64()
    d, f, layers, s, b, v = 6144, 24576, 48, 2048, 64, 51200
    blocks = layers * (4 * d * d + 2 * d * f)
    logits = 6 * b * s * d * v + 2 * b * s * d  # the head's three products; the lookup is a product of density 1/v
    done = math.fsum(row.amount for row in result.ledger if row.action == "mac" and row.phase != "recompute")
    assert done == pytest.approx(6 * b * s * blocks + 12 * layers * b * s * s * d + logits, rel=2e-4)


def test_the_ledger_adds_up_and_the_mapping_file_prices_to_the_same(tmp_path: object) -> None:
    sets = ["accelerators=32", "b=32"]
    result = api.search("rack_paper_h100", "gpt_22b", "megatron", sets=sets, profile="megatron_core").result
    assert result.latency_s == pytest.approx(math.fsum(row.exposed_seconds for row in result.ledger), rel=1e-12)
    assert result.energy_j == pytest.approx(math.fsum(row.joules for row in result.ledger), rel=1e-12)
    assert result.certificate.objective == pytest.approx(result.latency_s, rel=1e-12)
    assert all(row.exposed_seconds >= -1e-12 and row.joules >= 0 for row in result.ledger)
    given = inputs("rack_paper_h100", "gpt_22b", "megatron", tuple(sets))
    again = api.evaluate_mapping(given.architecture, given.workload, result.mapping)
    assert (again.latency_s, again.energy_j) == pytest.approx((result.latency_s, result.energy_j), rel=1e-12)
    assert again.memory_bytes_per_accelerator == pytest.approx(result.memory_bytes_per_accelerator, rel=1e-12)


@pytest.mark.parametrize("profile", ["ideal", "serial", "megatron_2021", "megatron_core", "fsdp"])
def test_every_array_equals_the_point_priced_alone_and_bounds_the_simulation(profile: str) -> None:
    given = inputs("rack_paper_h100", "gpt_22b", "megatron", ("accelerators=32", "b=32"))
    space = space_of(given.mapper, given.workload, 32, schedule=["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"])
    price, job = group_price(given.architecture, space, profile), job_of(given.architecture, space, profile)
    columns = space.groups[0].columns
    rng = np.random.default_rng(3)
    on = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
    choices = StepChoices(profile=job.profile, windows=on[0], beside=on[1])
    for _ in range(samples.cases(5, 12)):
        plan, at = int(rng.integers(len(space.groups[0].variants))), int(rng.integers(len(columns)))
        stages = int(columns.stages[at])
        schedule = str(rng.choice(["gpipe", "1f1b", "zb_h1", "zb_h2", "interleaved"])) if stages > 1 else "1f1b"
        chunks = 48 // stages if schedule == "interleaved" and 48 % stages == 0 else 1
        made = price.cut(stages, chunks)
        count = int(columns.micro_batches[at])
        if made is None or (schedule == "interleaved" and (count % stages or chunks == 1)):
            continue
        whole = compose(Layers.of(price.sections, choices), price.sends, made, schedule, columns.micro_batches)
        layers = None  # what runs beside what is no matter of a layer's price: priced alone once, composed four times
        for k in range(4):
            structure = Structure(
                parts=tuple((x, space.groups[0].variants[plan].plan) for x in range(len(price.sections))),
                cut=made,
                schedule=schedule,
                micro_batches=count,
                overlap=(int(on[0][k]), int(on[1][k])),
            )
            step = ExactStep(job, structure, columns.pick(np.array([at])), layers)
            layers = step.layers
            alone, exact = step.bound(), float(step.seconds()[0])
            assert alone.seconds.item() == pytest.approx(whole.seconds[plan, at, k], rel=1e-12)
            assert alone.seconds.item() <= exact * (1 + 1e-12)
            if schedule in ("gpipe", "1f1b") and not job.profile.overlap.sends:
                assert exact <= alone.seconds.item() * 1.2


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"])
def test_in_flight_is_what_the_order_of_passes_holds(schedule: str) -> None:
    for stages in (2, 3, 4, 8):
        for chunks in (2, 3) if schedule == "interleaved" else (1,):
            for times in (1, 2, 5):
                exact = exact_in_flight(schedule, stages, stages * times, chunks)
                ours = [int(in_flight(schedule, stages, chunks, np.array([stages * times]), d)[0]) for d in range(stages)]
                assert ours == list(exact)


def test_memory_names_all_that_is_held() -> None:
    _, space, price = _space_on_32()
    made = price.cut(1, 1)
    assert made is not None
    found = device_memory(price.sections, made, "1f1b", space.groups[0].columns.micro_batches, 0)
    assert set(found) <= {*HELD}
    whole, _ = memory_of(price.sections, made, "1f1b", space.groups[0].columns.micro_batches)
    assert whole == pytest.approx(sum(size for what, size in found.items() if what != "host"), rel=1e-12)


@pytest.mark.parametrize(
    "change", ["gpu.memory.bandwidth=6.7 TB/s", "rack.network.bandwidth=1800 GB/s", "system.network.bandwidth=100 GB/s"]
)
def test_a_faster_machine_never_takes_longer(change: str) -> None:
    assert _on_64(change).latency_s <= _on_64().latency_s * (1 + 1e-12)


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("home", [1, 2, 3])
def test_a_plan_put_together_of_two_is_the_plan_derived_whole(recompute: str, home: int) -> None:
    given, space, price = _space_on_32()
    columns = space.groups[0].columns
    number = variant(space, "sequence", recompute, home)
    plan = space.groups[0].variants[number].plan
    job, section = job_of(given.architecture, space), given.workload.sections[1]
    layers = LayerPricer(Pricer(job.setting, job.workload, plan, columns, job.profile.buckets), job.workload, job.profile)
    whole = layers.layer(section, plan)
    parts: tuple[dict[str, Any], ...] = ({"homes": as_the_device_sees(plan.homes)}, {"recompute": "none"})
    without, kept = (layers.layer(section, plan_of(section, replace(plan, **change), job.profile)) for change in parts)
    made = without.with_weights(kept)
    assert {what: size.tolist() for what, size in made.held.items()} == {
        what: price.sections[1].held[what][number].tolist() for what in made.held
    }
    assert {key for key, value in whole.seconds.items() if value.any()} == {key for key, value in made.seconds.items() if value.any()}
    moved = ("gather", "recompute"), ("gather", "backward")  # a gather for a layer run again is the one for its backward pass
    for key in whole.seconds:
        if key not in moved:
            assert made.seconds[key] == pytest.approx(whole.seconds[key], rel=1e-12), key
    assert made.time(*moved) == pytest.approx(whole.time(*moved), rel=1e-12)
    assert made.joules_device + made.joules_lanes == pytest.approx(whole.joules_device + whole.joules_lanes, rel=1e-12)
    assert made.joules_once == pytest.approx(whole.joules_once, rel=1e-12)
    assert {what: size.tolist() for what, size in made.held.items()} == {what: size.tolist() for what, size in whole.held.items()}


def _read_above(workload: str, mapper: str, phases: str) -> float:
    """Bytes of weights that one run reads in the memory above the accelerators."""
    rows = api.search("rack_paper", workload, mapper, sets=["accelerators=4", f"phases={phases}"]).result.ledger
    return rows.where(level="system", tensor=["W1", "W2"], component="memory").total("amount")


@pytest.mark.parametrize("mapper", ["data", "tensor", "auto"])
def test_weights_are_read_where_a_run_starts_and_stay_where_an_optimizer_left_them(mapper: str) -> None:
    """Two matrices of 4096 x 14336 in 16 bit, of which data parallelism reads 4 copies and tensor parallelism one."""
    weights = 2 * 4096 * 14336 * 2
    cold = _read_above("ffn", mapper, "[forward, backward]")
    least, most = {"data": (4, 4), "tensor": (1, 1), "auto": (1, 4)}[mapper]
    assert least * weights <= cold <= most * weights
    assert _read_above("ffn", mapper, "[forward, backward, optimizer]") == 0


def test_a_training_step_of_a_model_reads_inputs_above_and_no_weights() -> None:
    rows = api.search("rack_paper_h100", "gpt_22b", "megatron", sets=["layers=2", "b=8"]).result.ledger.where(level="system")
    above = {tensor for (tensor,) in rows.where(component="memory").group(["tensor"], "amount")}
    weights = {name for section in read_workload("gpt_22b").sections for name in section.workload.weights}
    assert above
    assert not above & weights
