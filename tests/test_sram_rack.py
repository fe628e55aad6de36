"""A rack whose chips have SRAM and no other memory: its published figures, and how many chips a model needs."""

from __future__ import annotations

from functools import cache

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.inputs import library_path, read_architecture, read_profile
from rackmodel.model.architecture import Architecture
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import ENGINES, engine_facts
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.steps import Deployment
from rackmodel.serving.trace import drawn_trace, simulate


@cache
def machine() -> Architecture:
    return read_architecture("groq_rack")


def test_a_chip_computes_what_four_arrays_of_320_by_320_do_at_900_megahertz() -> None:
    level, units = machine().computing
    assert level.compute is not None
    for bits, width in ((8, 1), (16, 4)):  # a product of 16 bit takes four times as long
        assert units * level.compute.matrix(bits).rate_flop_per_s == pytest.approx(4 * 320 * 320 * 2 * 0.9e9 / width, rel=0.03)


def test_a_chip_that_reads_all_its_memory_and_multiplies_at_its_peak_draws_less_than_300_watts() -> None:
    level, units = machine().computing
    memory = machine().level("chip").memory
    assert level.compute is not None
    assert memory is not None
    assert memory.bandwidth_bytes_per_s is not None
    matrix = level.compute.matrix(8)
    busy = units * matrix.rate_flop_per_s * matrix.energy_j_per_flop + memory.bandwidth_bytes_per_s * memory.read_j_per_byte
    assert 100 < machine().level("chip").static_power_w + busy < 300


def test_70_billion_weights_of_a_byte_fit_in_640_chips_and_not_in_256() -> None:
    """70 GB over 230 MB a chip is 305 of them."""
    asked, lengths = ("groq_rack", "llama2_70b_decoder"), (1024.0, 1024.0, 0.0)
    widths = (Widths(weight="fp8", kv_cache="fp8"),)
    small = service_of(*asked, ("accelerators=256",), read_profile("lpu"), lengths)
    with pytest.raises(InfeasibleError):
        search_service(small, ServingSpace(tensor=(8,), pipeline=(16, 32), widths=widths, clients=(1.0,)))
    whole = service_of(*asked, ("accelerators=640",), read_profile("lpu"), lengths)
    found = search_service(whole, ServingSpace(tensor=(8,), pipeline=(80,), widths=widths, clients=(1.0,))).best
    layers, arrays = 80 * 856e6, 8 * 4 * 2.304e12  # bytes of the weights of all layers, and what a stage's arrays take in a second
    assert found.figures["tpot"] > layers / arrays


def test_every_named_engine_is_a_profile_with_one() -> None:
    for name in ENGINES:
        assert library_path("profile", name).exists()
        assert engine_facts(read_profile(name)).token_budget


def test_eighty_clients_of_eighty_stages_are_served_as_their_requests_are_run() -> None:
    """Their prompts end in batches that others decode in, so that some have four sequences and others none, and the fullest sets the pace.
    By batches that are dealt evenly a token took 1.56 ms, of 2.2."""
    service = service_of("groq_rack", "llama2_70b_decoder", ("accelerators=640",), read_profile("lpu"), (1024.0, 1024.0, 0.0))
    widths = Widths(weight="fp8", kv_cache="fp8")
    space = ServingSpace(tensor=(8,), pipeline=(80,), widths=(widths,), clients=(80.0,))
    found = search_service(service, space).best.figures
    engine = engine_of(service, Deployment(tensor=8, pipeline=80), widths)
    trace = drawn_trace(8 * 80, (1024, 1024, 1.0), None, 1)
    run = simulate(engine, trace, engine.scheduled(1), engine.cache_tokens, 80, engine.held_tokens)
    assert found["tpot"] == pytest.approx(run.tpot_s[80:-80].mean(), rel=0.1)
    assert found["ttft"] == pytest.approx(run.ttft_s[80:-80].mean(), rel=0.1)
