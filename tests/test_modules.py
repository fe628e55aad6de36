"""Modules that predict one token further (MTP): as data of a decoder, and as what drafts for it."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest

from rackmodel.cost.ledger import Ledger
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.inputs.hf_config import import_config
from rackmodel.serving.ask import service_of
from rackmodel.serving.drafts import DraftedModel
from rackmodel.serving.offers import FREE, Widths, engine_of
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Steps

DEEPSEEK, CONFIG = "deepseek_v3_decoder", Path(__file__).parents[1] / "workloads" / "configs" / "deepseek_v3.json"
SERVICE = service_of("dgx_h200", DEEPSEEK, ["accelerators=8"], read_profile("sglang"), (1024.0, 1024.0, 0.0))
EIGHT = Deployment(tensor=8)


def drafting(count: int, by: str = "") -> DraftedModel:
    model = engine_of(replace(SERVICE, drafted=count, accepted=0.8, draft_model=by), EIGHT, Widths()).captured
    assert isinstance(model, DraftedModel)
    return model


def test_deepseeks_module_has_as_many_weights_of_its_own_as_its_readme_says() -> None:
    """deepseek-ai/DeepSeek-V3, its notes on weights: 11.5 billion unique, 0.9 of the embedding and 0.9 of the head are shared."""
    module = read_workload(DEEPSEEK).module
    assert module is not None
    weights = [one for one in module.tensors.values() if one.kind == "weight"]
    assert sum(prod(one.sizes) for one in weights if one.held) == pytest.approx(11.5e9, rel=0.015)
    shared = {one.name: prod(one.sizes) for one in weights if not one.held}
    assert shared == {"WE": 129280 * 7168, "WH": 129280 * 7168}


def test_a_module_takes_its_own_weights_and_cache_alone() -> None:
    """A layer of 61 and one: 70,272 and 1,152 bytes a token."""
    model = drafting(1)
    module = model.draft
    assert model.kv_each == pytest.approx(model.target.kv_each * 62 / 61)
    block = 7168 * 2048 * 3 * 257  # experts and the shared one, in 8 bits and scales of 128 x 128
    assert block / 8 < module.weights_each[0] < 0.1 * model.target.weights_each[0]
    model_of_both = model.target.weights_each + module.weights_each
    assert model.weights_each == pytest.approx(model_of_both)


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_is_the_models_the_modules_on_its_tokens_and_one_more_for_each_further_draft(count: int) -> None:
    model, wide = drafting(count), 1 + count
    steps = Steps.of(decodes=16.0 * wide, new=wide, context=2000.0)
    once, again = model.draft.price(steps), model.draft.price(Steps.of(decodes=16.0, context=2000.0))
    whole = model.price(steps)
    own = model.target.price(steps)
    assert whole.seconds == pytest.approx(own.seconds + once.seconds + (count - 1) * again.seconds)
    assert whole.joules == pytest.approx(own.joules + once.joules + (count - 1) * again.joules)
    assert sum(np.sum(row.joules) for row in whole.ledger.rows) == pytest.approx(whole.joules.sum())


def test_the_module_goes_over_prompts_too() -> None:
    model = drafting(2)
    steps = Steps.of(prefill=4096.0, prompts=4.0)
    assert model.price(steps).seconds == pytest.approx(model.target.price(steps).seconds + model.draft.price(steps).seconds)


def test_drafts_cost_the_modules_steps_unless_they_are_said_to_be_free() -> None:
    space = ServingSpace(tensor=(8,), pipeline=(1,), clients=(8.0,))
    plain, free, own = (
        search_service(replace(SERVICE, drafted=count, accepted=0.85 * bool(count), draft_model=by), space).best.figures["tpot"]
        for count, by in ((0, ""), (1, FREE), (1, ""))
    )
    assert free < own < plain
    assert own / free < 1.06  # a layer of 61, the head and a projection


def test_another_model_drafts_on_a_pipeline() -> None:
    """Both in two stages. A step of prompts alone is one of each; nobody decodes, so nothing is drafted."""
    service = service_of("dgx_h100", "llama3_70b_decoder", ["accelerators=4"], "vllm", (1024.0, 64.0, 0.0))
    service = replace(service, drafted=2, accepted=0.7, draft_model="llama3_8b_decoder")
    model = engine_of(service, Deployment(tensor=2, pipeline=2), Widths()).captured
    assert isinstance(model, DraftedModel)
    steps = Steps.of(prefill=2048.0, prompts=2.0)
    assert model.price(steps).seconds == pytest.approx(model.target.price(steps).seconds + model.draft.price(steps).seconds)


def test_a_pipeline_with_a_module_that_drafts_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="module that drafts runs without a pipeline"):
        engine_of(replace(SERVICE, drafted=1, accepted=0.8), Deployment(tensor=4, pipeline=2), Widths())
    with pytest.raises(InfeasibleError) as found:
        search_service(replace(SERVICE, drafted=1, accepted=0.8), ServingSpace(tensor=(4,), pipeline=(2,), clients=(8.0,)))
    assert "--pipeline 1" in found.value.change


def test_a_config_says_whether_there_is_a_module(tmp_path: Path) -> None:
    said = json.loads(CONFIG.read_text())
    assert "\nmtp:" in import_config(CONFIG).text
    for change in ({"num_nextn_predict_layers": 0}, {"num_nextn_predict_layers": None}):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**said, **change}))
        assert "\nmtp:" not in import_config(path, name="other").text
    assert read_workload("llama3_8b_decoder").module is None


def test_what_a_module_says_is_checked_like_a_section() -> None:
    with pytest.raises(InputError, match="index 'q'"):
        read_workload(DEEPSEEK, ["workload.mtp.join.einsums.joinH_next=JH_next[b,s,q] = NH_next[b,s,d] * WJH_next[d,q]"])
    with pytest.raises(InputError, match="a module is of a decoder's step"):
        read_workload("ffn", ["workload.mtp={head: {einsums: {a: 'Z[b,s,d] = scale(X[b,s,d])'}}}"])


@pytest.mark.parametrize(("workload", "product", "cache"), [("llama3_70b_decoder", "QK", "KC"), ("deepseek_v3_decoder", "QKc", "KVC")])
def test_drafted_tokens_of_a_sequence_read_its_cache_once_and_each_multiply_by_all_of_it(workload: str, product: str, cache: str) -> None:
    """64 sequences of 1,000 tokens, of which four are new: each of these sees 1,000 - 3 / 2 in the mean. Taken for decodes of a quarter of
    the cache each they were one product in place of four."""
    model = ServedModel(workload=read_workload(workload), architecture=read_architecture("dgx_h200"), profile=read_profile("ideal"))
    one, four = (model.price(step).ledger for step in (Steps.of(decodes=64, context=999), Steps.of(decodes=64 * 4, new=4, context=996)))

    def amount(ledger: Ledger, **where: str) -> float:
        return float(sum(row.amount[0] for row in ledger.where(einsum=product, **where)))

    assert amount(four, action="mac") == pytest.approx(4 * 0.9985 * amount(one, action="mac"))
    assert amount(four, tensor=cache) == pytest.approx(amount(one, tensor=cache))
