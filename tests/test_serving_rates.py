"""Requests that come at a rate, whenever they like, in place of clients: `serve --rate`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rackmodel.cost.step.ledger import static_powers
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import serving_launch
from rackmodel.serving.offers import Offer, Service, Widths, engine_of
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.steps import Deployment
from rackmodel.serving.trace import drawn_trace, simulate
from tests.commands import invoke

MODEL = "llama3_8b_decoder"


def service(accelerators: int = 2) -> Service:
    return service_of("dgx_h100", MODEL, (f"accelerators={accelerators}",), read_profile("vllm"), (512.0, 128.0, 0.0))


def test_the_law_of_a_deployment_is_its_trace() -> None:
    """Of 600 requests that come at 8 a second, less the first 60."""
    space = ServingSpace(tensor=(1,), pipeline=(1,), rates=(8.0,))
    found = search_service(service(1), space).best
    assert isinstance(found, Offer)
    engine = engine_of(service(1), found.deployment, found.widths)
    figures = simulate(engine, drawn_trace(600, (512, 128, 1.0), 8.0, 0), engine.scheduled(1, {}), engine.cache_tokens, None)
    assert found.figures["tpot"] == pytest.approx(figures.tpot_s[60:].mean(), rel=0.05)
    assert found.figures["ttft"] == pytest.approx(figures.ttft_s[60:].mean(), rel=0.15)
    assert found.clients == pytest.approx(8.0 * (figures.ttft_s[60:] + 127 * figures.tpot_s[60:]).mean(), rel=0.05)
    assert found.figures["tokens_per_s"] == pytest.approx(8 * 128)


def test_a_machine_that_hardly_anybody_asks_draws_what_it_draws_idle() -> None:
    """One request in a thousand seconds: its joules are those of the time between."""
    asked = service()
    found = search_service(asked, ServingSpace(tensor=(2,), pipeline=(1,), rates=(1e-3,))).best
    static = sum(watts for _, watts in static_powers(asked.machine))
    assert 1000 * static < found.figures["joules_per_request"] < 1.2 * 1000 * static


def test_more_that_come_never_see_less() -> None:
    space = ServingSpace(tensor=(2,), pipeline=(1,), rates=(0.5, 2.0, 8.0, 16.0))
    offers = sorted(search_service(service(), space).offers, key=lambda one: one.figures["tokens_per_s"])
    for name, sign in (("tpot", 1), ("ttft", 1), ("joules_per_token", -1)):
        assert (np.diff([sign * one.figures[name] for one in offers]) >= -1e-3 * offers[0].figures[name]).all()


def test_too_many_are_an_answer_with_how_many_there_may_be() -> None:
    space = {"tensor": (2,), "pipeline": (1,)}
    with pytest.raises(InfeasibleError, match=r"1 replicas of 2 accelerators serve .* requests a second, and 1e\+06 come") as caught:
        search_service(service(), ServingSpace(**space, rates=(1e6,)))
    assert caught.value.change is not None
    fits = float(caught.value.change.removeprefix("--rate "))
    assert search_service(service(), ServingSpace(**space, rates=(fits,))).best.figures["tokens_per_s"] == pytest.approx(128 * fits)
    both = search_service(service(), ServingSpace(**space, rates=(1.0, 1e6)))
    assert both.infeasible == {"overload": 1}


def test_rates_stand_for_clients_and_replicas() -> None:
    with pytest.raises(InputError, match="as a number of clients does"):
        search_service(service(), ServingSpace(rates=(1.0,), clients=(4.0,)))
    with pytest.raises(InputError, match="pools have clients"):
        search_service(service(), ServingSpace(rates=(1.0,)), prompts_on=service())


def test_an_engine_is_told_of_more_than_are_there_in_the_mean() -> None:
    figures: dict[str, float] = {}
    told = [Offer(Deployment(), Widths(), 1, 25.0, 8192, 24.0, False, figures, rate) for rate in (None, 2.0)]
    said = [serving_launch("vllm", "some/model", one, 2048).arguments for one in told]
    assert "--max-num-seqs 25" in said[0]
    assert "--max-num-seqs 45" in said[1]


def test_of_deployments_that_keep_up_with_a_rate_the_best_takes_the_least_energy() -> None:
    """They make as many tokens, so that joules settle it, as between all equal figures."""
    space = ServingSpace(tensor=(1, 2), pipeline=(1,), rates=(4.0,))
    found = search_service(service(), space)
    assert len({f"{one.figures['tokens_per_s']:.12g}" for one in found.offers}) == 1
    assert found.best.figures["joules_per_token"] == min(one.figures["joules_per_token"] for one in found.offers)
    assert search_service(service(), space, "energy").best.deployment == found.best.deployment
    assert search_service(service(), space, "tpot").best.figures["tpot"] == min(one.figures["tpot"] for one in found.offers)


def test_it_is_asked_in_words() -> None:
    words = ["serve", "dgx_h100", MODEL, "--set", "accelerators=2", "--tensor", "2", "--pipeline", "1", "--isl", "512", "--osl", "128"]
    done = invoke([*words, "--rate", "1,4", "--percentiles", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["best"]["requests_per_s"] == 4
    assert said["percentiles"]["ttft"]["p50"] == pytest.approx(said["best"]["ttft"], rel=0.2)
    printed = invoke([*words, "--rate", "4"]).stdout
    assert "req/s" in printed
    assert "a rate is the throughput of all that keep up with it: the best takes the least energy of them" in printed
    for wrong in ("x", "0", "-1", "1,,2", "2,2"):
        done = invoke([*words, f"--rate={wrong}"])
        assert isinstance(done.exception, InputError), wrong
