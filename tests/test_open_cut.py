"""Uneven cuts and per-layer recompute inside the search: never worse than what they contain, and priced the same again."""

from __future__ import annotations

from functools import cache

import pytest

from rackmodel import api
from tests import samples
from tests.open_cut_cases import check_lanes, check_machine
from tests.training_cases import inputs

LLAMA = [
    "accelerators=16384",
    "axes={pp: {degree: 16, stages: layers}, dp: {degree: rest}, tp: {degree: 8, place: inner}}",
    "micro_batch=1",
    "split={dp: [b], tp: [f, h, [g, q], v]}",
    "layouts={sequence: {split: {tp: [f, [g, q], v, s]}}}",
]


@cache
def _llama(*more: str) -> api.Result:
    return api.search("dgx_h100", "llama3_405b", "megatron_cut", sets=[*LLAMA, *more], profile="megatron_core").result


def test_llama_405b_is_cut_where_126_layers_do_not_divide_by_16() -> None:
    """The ends hold fewer layers than the middle (Grattafiori 2024, section 3.3.2), and the first stages, which keep most
    micro-batches in flight, recompute where memory binds."""
    result = _llama("overlap=profile")
    step = result.mapping.step
    assert step is not None
    assert sum(step.layers) == 126
    assert result.certificate.gap < 0.02
    assert step.layers[-1] < max(step.layers)
    assert 80e9 < result.memory_bytes_per_accelerator <= 80e9 * 1.0618 - 1.45e9  # what drivers show, less the runtime's
    recomputed = [sum(n for policy, n in stage["block"].items() if policy != "none") for stage in step.mixes]
    assert recomputed[0] > 0
    assert all(later == 0 for later in recomputed[4:])
    again = api.evaluate_mapping(*_machine(LLAMA), result.mapping)
    assert (again.latency_s, again.energy_j) == pytest.approx((result.latency_s, result.energy_j), rel=1e-12)
    assert result.latency_s == pytest.approx(result.certificate.objective, rel=1e-9)


def test_llama_405b_with_nothing_beside_compute_is_faster_and_says_how_far_from_proven() -> None:
    """Without overlap nothing slows compute, and the last stage to end reduces its gradients then: a light first stage is best. What
    the bound leaves open (a path that ends at a later stage is not in it) is the certificate's gap."""
    kept, free = _llama("overlap=profile"), _llama()
    assert free.latency_s < kept.latency_s
    assert 0 < free.certificate.gap < 0.05
    assert free.certificate.bound == pytest.approx(free.latency_s * (1 - free.certificate.gap), rel=1e-6)


def _machine(sets: list[str]) -> tuple[object, object]:
    given = inputs("dgx_h100", "llama3_405b", "megatron_cut", tuple(sets))
    return given.architecture, given.workload


EVEN = [
    *(("30 GB", "rack_paper_h100"), ("60 GB", "dgx_h100")),  # the cut that is found is faster
    *(("30 GB", "dgx_h100"), ("60 GB", "rack_paper_h100"), ("80 GB", "rack_paper_h100"), ("80 GB", "dgx_h100")),
]


@pytest.mark.parametrize(("capacity", "machine"), EVEN[: samples.cases(1, 6)])
def test_an_open_cut_is_never_slower_than_an_even_one(capacity: str, machine: str) -> None:
    sets = ["accelerators=32", "b=32", "layers=24", f"gpu.memory.capacity={capacity}", "micro_batch=[1, 2]"]
    even = api.search(machine, "gpt_22b", "megatron", sets=[*sets, "schedule=1f1b"]).result
    open_cut = api.search(machine, "gpt_22b", "megatron_cut", sets=sets).result
    assert open_cut.latency_s <= even.latency_s * (1 + 1e-9)
    assert open_cut.certificate.gap < 0.02
    assert open_cut.memory_bytes_per_accelerator <= float(capacity.split()[0]) * 1e9


# -- against every cut


@pytest.mark.parametrize("batch", samples.some(range(4), 2))
def test_no_cut_and_no_mix_beats_the_bound_whatever_runs_beside_the_device(batch: int) -> None:
    found = [check_lanes(seed) for seed in range(batch, 60, 4)]
    assert sum(found) > len(found) / 2


@pytest.mark.parametrize("seed", samples.some([3, 4], 2))
def test_no_cut_of_a_model_on_a_machine_beats_the_bound(seed: int) -> None:
    assert check_machine(seed)
