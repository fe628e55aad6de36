"""Engines whose models differ in degrees alone are priced at once: each gets what it prices by itself, and fewer layers are priced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.serving.ask import service_of
from rackmodel.serving.drafts import DraftedModel
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.offers import Service, Widths, engine_of
from rackmodel.serving.requests import Requests
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steady import closed_loop, loop_steps
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.serving.together import priced_together

MACHINE = read_architecture("dgx_h100", ["accelerators=8"])
TWO, FOUR = Deployment(tensor=2, expert=2), Deployment(tensor=4, expert=4)
PIPED, RANKS = Deployment(tensor=2, pipeline=2, expert=2), Deployment(tensor=2, attention_data=2, expert=4)


def _service(profile: str = "vllm", settings: tuple[tuple[str, float], ...] = ()) -> Service:
    machine, chosen = MACHINE, read_profile(profile)
    return Service(machine, "qwen3_30b_a3b_decoder", (), chosen, prompt=1024, output=256, settings=settings)


def _steps(count: int, seed: int) -> Steps:
    rng = np.random.default_rng(seed)
    prompts = np.where(np.arange(count) % 3 > 0, rng.integers(1, 5, count), 0.0)
    return Steps.of(
        decodes=np.where(np.arange(count) % 4 > 0, rng.integers(1, 300, count), 0.0),
        context=rng.uniform(10, 4000, count),
        prefill=prompts * rng.integers(1, 2000, count),
        prompts=prompts,
    )


def test_each_engine_gets_the_figures_that_it_prices_by_itself() -> None:
    service, few = _service(), _service(settings=(("graph_sequences", 16), ("step_s", 2e-3)))
    few = replace(few, shared=service.shared)
    pairs = ((service, TWO), (few, FOUR), (service, RANKS), (few, Deployment(attention_data=4, expert=4)))  # (ranks of two and of four)
    asked = [(engine_of(own, one, Widths()), _steps(3 + 2 * n, n)) for n, (own, one) in enumerate(pairs)]
    found = dict(priced_together(asked))
    assert sorted(found) == [0, 1, 2, 3]
    for number, figures in found.items():
        engine, steps = asked[number]
        alone = engine.price(steps)
        np.testing.assert_allclose(figures.seconds, alone.seconds, rtol=1e-12)
        np.testing.assert_allclose(figures.joules, alone.joules, rtol=1e-12)
        rows = [sum(np.sum(row.joules + np.zeros(len(steps))) for row in one.ledger.rows) for one in (figures, alone)]
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-12)
        np.testing.assert_allclose(rows[0], figures.joules.sum(), rtol=1e-9)  # the ledger adds up


def test_unlike_models_and_what_cannot_be_are_left_to_who_asks() -> None:
    """Another profile is another model, stages are another plan, and no step has fewer prompts than none."""
    service, steps = _service(), _steps(4, 1)
    own, piped, other = engine_of(service, TWO, Widths()), engine_of(service, PIPED, Widths()), engine_of(_service("sglang"), TWO, Widths())
    assert dict(priced_together([(own, steps), (piped, steps), (other, steps)])) == {}
    four, wrong = engine_of(service, FOUR, Widths()), replace(steps, prompts=-steps.prompts)
    assert dict(priced_together([(own, steps), (four, wrong)])) == {}
    with pytest.raises(InputError, match="prompts must be"):
        four.price(wrong)


def test_layers_are_priced_once_for_all_engines_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    service, calls, price = _service(), [], ServedModel.price

    def counted(self: ServedModel, steps: Steps, *more: object) -> object:
        calls.append(len(steps))
        return price(self, steps, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(ServedModel, "price", counted)
    asked = [(engine_of(service, one, Widths()), _steps(5, n)) for n, one in enumerate((TWO, FOUR, TWO))]
    assert len(dict(priced_together(asked))) == 3
    assert calls == [15]


def test_engines_with_drafts_are_priced_at_once_with_what_drafts_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    service = service_of("dgx_h200", "deepseek_v3_decoder", ["accelerators=8"], read_profile("sglang"), (1024.0, 256.0, 0.0))
    pairs = ((3, Deployment(tensor=8)), (2, Deployment(tensor=4)), (3, Deployment(tensor=2)))
    engines = [engine_of(replace(service, drafted=count, accepted=0.8), one, Widths()) for count, one in pairs]
    asked = [(engine, _steps(4 + n, n)) for n, engine in enumerate(engines)]
    alone, calls, price = [engine.price(steps) for engine, steps in asked], [], ServedModel.price

    def counted(self: ServedModel, steps: Steps, *more: object) -> object:
        calls.append(len(steps))
        return price(self, steps, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(ServedModel, "price", counted)
    found = dict(priced_together(asked))
    assert calls == [15, 30]  # of the model; of its module, on the same tokens and on one a sequence
    for number, figures in enumerate(alone):
        np.testing.assert_allclose(found[number].seconds, figures.seconds, rtol=1e-12)
        np.testing.assert_allclose(found[number].joules, figures.joules, rtol=1e-12)


def test_a_step_with_drafts_is_the_sum_of_what_it_runs_of_each_model() -> None:
    service = service_of("dgx_h200", "deepseek_v3_decoder", ["accelerators=8"], read_profile("sglang"), (1024.0, 256.0, 0.0))
    model = engine_of(replace(service, drafted=3, accepted=0.8), Deployment(tensor=8), Widths()).launched
    assert isinstance(model, DraftedModel)
    steps = replace(_steps(6, 5), new=np.full(6, 4.0))
    captured = np.arange(6) % 2 > 0
    none = np.zeros(6)
    drafting = replace(steps, decodes=steps.sequences, new=np.ones(6), prefill=none, prompts=none, before=none)
    every, verified, again = (
        own.price(one, captured) for own, one in ((model.target, steps), (model.draft, steps), (model.draft, drafting))
    )
    times = np.where(steps.decodes > 0, 2.0, 0.0)
    for name in ("seconds", "joules"):
        whole = getattr(every, name) + getattr(verified, name) + times * getattr(again, name)
        np.testing.assert_allclose(getattr(model.price(steps, captured), name), whole, rtol=1e-12)


def test_a_loop_asks_for_the_steps_that_it_is_said_to_ask_for() -> None:
    """Else what was priced ahead is of no use: an engine that knows `loop_steps` prices nothing."""
    engine = engine_of(_service(), FOUR, Widths())
    requests = Requests.of(3, prompt=np.array([100.0, 1000.0, 9000.0]), output=np.array([10.0, 100.0, 900.0]), variation=0.2, waves=4.0)
    clients, schedule = np.array([1.0, 20.0, 300.0]), engine.scheduled(3)
    room = engine.room(requests, schedule)
    steps = loop_steps(requests, schedule, clients, room)
    ahead: ServingEngine = replace(engine, ahead=((steps, engine.price(steps)),), launched=None)  # type: ignore[arg-type]
    one, other = (closed_loop(own, requests, schedule, clients, room, at_once=True) for own in (engine, ahead))
    np.testing.assert_array_equal(one.tpot_s, other.tpot_s)
    np.testing.assert_array_equal(one.joules_per_token, other.joules_per_token)


def test_models_of_other_machines_and_profiles_share_programs_and_cost_what_they_cost_alone() -> None:
    workload, steps = read_workload("qwen3_30b_a3b_decoder"), _steps(5, 3)
    first = ServedModel(workload=workload, architecture=MACHINE, deployment=FOUR, profile=read_profile("vllm"))
    first.price(steps)
    for machine, profile in (("dgx_b200", "vllm"), ("dgx_h100", "sglang")):
        said = {"workload": workload, "architecture": read_architecture(machine), "deployment": FOUR, "profile": read_profile(profile)}
        beside, alone = ServedModel(**said, shared=first.shared), ServedModel(**said)  # type: ignore[arg-type]
        same = beside.laid_out[0].programs is first.laid_out[0].programs
        assert same == (beside.laid_out[0].plans == first.laid_out[0].plans)
        if machine != "dgx_h100":
            assert same  # a machine changes no plan
        np.testing.assert_array_equal(beside.price(steps).seconds, alone.price(steps).seconds)
        np.testing.assert_array_equal(beside.price(steps).joules, alone.price(steps).joules)
