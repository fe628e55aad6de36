"""Engines as profiles: every fact of an engine changes what it serves, and host time is paid where no graph was captured."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.profile import Engine, ProfileSpec
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import ServingEngine, schedule_of, serving_engine
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.requests import Requests
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.served_model import Deployment, ServedModel
from rackmodel.serving.steady import closed_loop
from rackmodel.serving.steps import Steps
from tests.serving_models import LinearModel

LAYERS = 40
FACTS = Engine(token_budget=4096, sequences=256, graph_sequences=64, graph_tokens=64, memory_share=0.9, request_s="1 ms")
FLIPS = {
    "steps": "prompts_first",
    "token_budget": 1024,
    "budget_of": "replica",
    "chunked": False,
    "sequences": 16,
    "sequences_of": "rank",
    "ahead": 2,
    "held": 20,
    "held_until": 0.1,
    "polled": 10,
    "reserves": True,
    "evicts": True,
    "estimates": True,
    "graph_sequences": 8,
    "graphs_of": "token",
    "graph_tokens": 4096,
    "padding": {64: 64},
    "request_s": 20e-3,
    "tokenize_s": 2e-5,
    "step_s": 1e-3,
    "sequence_s": 1e-4,
    "exposed_s": 1e-4,
    "memory_share": 0.4,
    "memory_share_of": "free",
    "reserved_bytes": 20e9,
}
"""Fact → another value of it."""
SHOWN: tuple[tuple[str, ...], ...] = ((), ("gpu.memory.visible=1",))


def _under(profile: ProfileSpec) -> LinearModel:
    """A model whose steps last at least as long as its host takes to launch them."""
    return LinearModel(floor_s=5e-3 + LAYERS * profile.host.layer_s, kv_bytes_per_token=2.2e5)


def _engine(facts: Engine) -> ServingEngine:
    profile = read_profile("vllm").model_copy(update={"engine": facts})
    return serving_engine(_under, profile)


def _figures(facts: Engine) -> tuple[float, ...]:
    engine = _engine(facts)
    requests, schedule = Requests.of(prompt=3000, output=600, variation=0.1), schedule_of(facts, 1, 2, {"drafted": 1, "accepted": 0.5})
    found = closed_loop(engine, requests, schedule, np.array([60.0]), engine.room(requests, schedule))
    return float(found.tpot_s[0]), float(found.ttft_s[0])


OTHERS = {
    "source",
    "note",
    "prompt_context",
    "shared_experts",
    "budgets",
    "asks_first",
    "first_again",
}  # (what it may do; tests of their own)


@pytest.mark.parametrize("name", sorted(set(Engine.model_fields) - OTHERS))
def test_every_fact_of_an_engine_counts(name: str) -> None:
    beside = {"held_until": {"held": 30}, "sequences_of": {"sequences": 16}, "memory_share_of": {"memory_share": 0.4}}
    beside["evicts"] = beside["estimates"] = {"memory_share": 0.4}
    base = FACTS.model_copy(update=beside.get(name, {}))
    assert _figures(base) != _figures(base.model_copy(update={name: FLIPS[name]}))


@pytest.mark.parametrize("name", ["vllm", "trtllm", "sglang"])
def test_an_engine_of_the_library_serves(name: str) -> None:
    facts = read_profile(name).engine
    assert facts is not None
    tpot, ttft = _figures(facts)
    assert 0 < tpot < ttft


def test_captured_steps_need_no_host_and_others_wait_for_it() -> None:
    engine = _engine(FACTS)
    steps = Steps.of(decodes=[8.0, 100.0, 8.0, 0.0], context=1000.0, prefill=[0.0, 0.0, 1000.0, 40.0], prompts=[0.0, 0.0, 1.0, 1.0])
    host = LAYERS * read_profile("vllm").host.layer_s
    plain = LinearModel(kv_bytes_per_token=2.2e5).price(steps).seconds
    assert engine.price(steps).seconds - plain == pytest.approx([0.0, host, host, 0.0])


@pytest.mark.parametrize("exposed", [0.0, 1e-5])
@pytest.mark.parametrize(("ahead", "waits"), [(0, [0.3e-3 + 1e-3, 0.3e-3 + 20e-3]), (1, [0.3e-3, 0.3e-3 + 20e-3 - 9e-3])])
def test_the_host_waits_for_no_step_that_is_scheduled_ahead(ahead: int, waits: list[float], exposed: float) -> None:
    """10 and 200 sequences of two ranks take the host 1 and 20 ms, and steps of 5 + 0.02 B ms 5.2 and 9 ms; what nothing hides of
    each sequence comes on top: 5 and 100 of a rank."""
    waits = [wait + exposed * each for wait, each in zip(waits, (5.0, 100.0), strict=True)]
    facts = FACTS.model_copy(update={"ahead": ahead, "step_s": 0.3e-3, "sequence_s": 2e-4, "exposed_s": exposed, "graph_sequences": 512})
    model = LinearModel(cache_s=0.0)
    engine = ServingEngine(captured=model, launched=model, facts=facts, ranks=2)
    steps = Steps.of(decodes=[10.0, 200.0], context=1000.0)
    found, plain = engine.price(steps), model.price(steps)
    assert found.seconds - plain.seconds == pytest.approx(waits)
    assert found.joules - plain.joules == pytest.approx([10.0 * one for one in waits])
    assert sum(row.exposed_seconds for row in found.ledger.rows) == pytest.approx(waits)


def test_the_host_works_for_sequences_and_not_for_each_token_that_was_drafted() -> None:
    """10 sequences of four tokens on two ranks: 5 x 0.2 ms; so are two that come with a chunk, 2 / 2 more."""
    facts = FACTS.model_copy(update={"sequence_s": 2e-4, "graph_sequences": 512})
    model = LinearModel()
    engine = ServingEngine(captured=model, launched=model, facts=facts, ranks=2)
    steps = Steps.of(decodes=40.0, new=4.0, context=1000.0, prefill=[0.0, 100.0], prompts=[0.0, 2.0])
    assert engine.price(steps).seconds - model.price(steps).seconds == pytest.approx([1.0e-3, 1.2e-3])


@pytest.mark.parametrize(("counted", "captured", "rows"), [("sequence", [1, 1, 0], [24, 192, 195]), ("token", [1, 0, 0], [18, 192, 195])])
def test_graphs_of_drafts_count_sequences_or_their_tokens(counted: str, captured: list[int], rows: list[int]) -> None:
    """Graphs up to 64, by fours: 5, 64 and 65 sequences of three tokens are 15, 192 and 195. 5 sequences are padded to 8, 24 tokens; 15
    tokens to 16, which are 6 sequences. What no graph has, waits for its host, and is not padded."""
    facts = FACTS.model_copy(update={"graphs_of": counted, "padding": {64: 4}, "request_s": 0.0})
    host = 1e-3
    plain, slow = LinearModel(cache_s=0.0), LinearModel(cache_s=0.0, floor_s=5e-3 + host)
    engine = ServingEngine(captured=plain, launched=slow, facts=facts)
    found = engine.price(Steps.of(decodes=[15.0, 192.0, 195.0], new=3.0, context=1000.0)).seconds
    waits = host * (1 - np.array(captured))
    assert found == pytest.approx(plain.price(Steps.of(decodes=rows, new=3.0, context=1000.0)).seconds + waits)


def test_ranks_of_attention_data_share_the_chunk_where_their_engine_deals_it_out() -> None:
    """8,192 tokens over four ranks are 2,048 each of SGLang; each rank of vLLM has all of its own."""
    facts = {name: read_profile(name).engine for name in ("sglang", "vllm")}
    budgets = {name: schedule_of(one, 2, 4).token_budget.tolist() for name, one in facts.items() if one is not None}
    assert budgets == {"sglang": [2048.0, 2048.0], "vllm": [8192.0, 8192.0]}
    assert facts["sglang"] is not None
    assert schedule_of(facts["sglang"], 2, 8, {"token_budget": np.array([65536.0, 4.0])}).token_budget.tolist() == [8192.0, 1.0]


def test_a_share_of_what_the_weights_leave_free_is_for_caches_alone() -> None:
    half = FACTS.model_copy(update={"memory_share": 0.5, "reserved_bytes": 1e9})
    of_all, of_free = (_engine(half.model_copy(update={"memory_share_of": of})) for of in ("all", "free"))
    whole, weights = of_all.captured.capacity_bytes, of_all.weights_each[0]
    assert of_all.cache_bytes == pytest.approx(0.5 * whole - 1e9 - weights)
    assert of_free.cache_bytes == pytest.approx(0.5 * (whole - 1e9 - weights))


def test_engines_take_their_share_of_what_drivers_show() -> None:
    """H100: 79.11 GiB where the data sheet says 80 GB. Two hold Llama 70B in bf16 for vLLM, and 13 requests at their 2,048 tokens, of which
    each has a half of 80 layers x 2 x 8 heads x 128 x 2 bytes a token; of decimal gigabytes there would be room for none."""
    workload, machines = read_workload("llama3_70b_decoder"), [read_architecture("dgx_h100", ["accelerators=2", *more]) for more in SHOWN]
    made = [partial(ServedModel, workload=workload, architecture=one, deployment=Deployment(tensor=2)) for one in machines]
    shown, decimal = (serving_engine(lambda profile, one=one: one(profile=profile), read_profile("vllm")) for one in made)
    assert shown.capacity_bytes == pytest.approx(80e9 * 1.0618 * 0.9 - 1.5e9)
    assert decimal.capacity_bytes == pytest.approx(80e9 * 0.9 - 1.5e9)
    assert shown.cache_bytes // (2048 * 80 * 2 * 8 * 128 * 2 / 2) == 13
    with pytest.raises(InfeasibleError, match="no room for a cache"):
        _ = decimal.cache_bytes


def test_weights_that_leave_no_cache_are_infeasible() -> None:
    engine = ServingEngine(captured=LinearModel(weights_bytes=90e9), launched=LinearModel(), facts=FACTS)
    with pytest.raises(InfeasibleError, match="no room for a cache"):
        _ = engine.cache_bytes


def test_a_profile_without_an_engine_is_refused() -> None:
    with pytest.raises(InputError, match="no serving engine"):
        serving_engine(_under, read_profile("fsdp"))


@pytest.mark.parametrize(("profile", "most"), [("vllm", 4), ("trtllm", 4), ("sglang", 1)])
def test_most_requests_are_of_a_rank_or_of_all(profile: str, most: int) -> None:
    """Each rank of attention data is an engine of its own in vLLM and TensorRT-LLM; SGLang deals what it may run out to its ranks."""
    facts = read_profile(profile).engine
    assert float(np.ravel(schedule_of(facts, 1, 4).sequences)[0]) == most * facts.sequences
    assert float(np.ravel(schedule_of(facts, 1, 4, {"sequences": 8}).sequences)[0]) == most * 8


@pytest.mark.parametrize(
    ("prompt", "output", "page", "held"),
    [
        (40, 20, 1, 50.5),
        (40, 20, 16, 0.4 * 48 + 0.6 * 64),
        (40, 20, 1024, 1024),
        (1024, 1024, 16, 1536.5 + 7.5),
    ],
)
def test_a_request_takes_whole_pages_of_the_room(prompt: int, output: int, page: int, held: float) -> None:
    """Of 41 to 60 tokens up to 48 are three pages of 16; of 1,024 lengths each leaves half a page empty, in the mean. None counted."""
    sets = [f"workload.tensors.{name}.page.t={page}" for name in ("KC", "VC")]
    service = service_of("dgx_h100", "llama3_8b_decoder", sets, "vllm", (40.0, 20.0, 0.0), accelerators=1)
    engine = engine_of(service, Deployment(), Widths())
    found = engine.room(Requests.of(prompt=prompt, output=output), engine.scheduled(1, {"sequences": 1e9, "token_budget": 1e9}))
    assert found[0] == pytest.approx(engine.cache_bytes / (131072 * held), rel=5e-3)


@pytest.mark.parametrize(
    ("engine_name", "gpu", "budget"),
    [
        ("sglang", "l40s_node", 4096),
        ("sglang", "dgx_h200", 8192),
        ("sglang", "dgx_b200", 16384),
        ("vllm", "l40s_node", 2048),
        ("vllm", "dgx_b200", 8192),
    ],
)
def test_a_chunk_is_that_of_an_accelerator_s_memory(engine_name: str, gpu: str, budget: int) -> None:
    """Servers' defaults, of 45, 140 and 178 GiB; what is said wins."""
    sets = ("accelerators=1",)
    for profile, expected in ((engine_name, budget), (read_profile(engine_name, ["profile.engine.token_budget=3000"]), 3000)):
        service = service_of(gpu, "llama3_8b_decoder", sets, profile, (1000.0, 100.0, 0.0))
        engine = engine_of(service, Deployment(), Widths("fp8"))
        assert engine.scheduled(1).token_budget[0] == expected
        assert search_service(service, ServingSpace(tensor=(1,), pipeline=(1,), clients=(1.0,))).best.budget == expected  # type: ignore[union-attr]
