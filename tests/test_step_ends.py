"""What a step does once on the device itself: no stage of a pipeline holds back what another one waits for."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.inputs.said import instead
from rackmodel.model.result import Result

# 4 stages of 2 layers; nothing beside compute: gradients are reduced, and parameters gathered, on the device
SETS = ["layers=8", "axes.tp.degree=1", "axes.pp.degree=4", "micro_batch=1", "schedule=1f1b", "recompute=none", "overlap=profile"]


def step(ranks: int, *more: str) -> Result:
    """One sample a data-parallel rank and micro-batch: more ranks, the same work for each."""
    sets = instead([f"accelerators={4 * ranks}", f"b={8 * ranks}", *SETS], more)
    return api.search("dgx_h100", "gpt_22b", "megatron", sets=sets, profile="serial").result


def reduced(result: Result) -> float:
    """Exposed seconds of what the data-parallel ranks reduce and gather once a step."""
    once = ("all_reduce", "reduce_scatter", "all_gather")
    return sum(row.exposed_seconds for row in result.ledger if row.component == "network" and row.action in once)


def test_a_stage_reduces_its_gradients_after_it_has_handed_the_last_one_on() -> None:
    """A step with ranks is longer than one without by what one stage reduces and gathers, once: not by the sum over four stages."""
    alone, many = step(1), step(2)
    apart = many.latency_s - alone.latency_s
    assert 0 < apart <= reduced(many) - reduced(alone)


def test_nothing_of_it_is_lost_where_there_is_one_stage() -> None:
    many = step(2, "axes.pp.degree=1", "layers=2", "accelerators=2", "b=16")
    assert sum(row.exposed_seconds for row in many.ledger) == pytest.approx(many.latency_s, rel=1e-9)
    once = [row for row in many.ledger if row.component == "network"]
    assert once
    assert all(row.exposed_seconds == pytest.approx(row.seconds, rel=1e-9) for row in once)


def test_what_a_stage_that_does_not_set_the_pace_waits_for_at_the_end_is_in_the_ledger() -> None:
    """The first stage gathers its embeddings with its optimizer, and ends the step; a call's copies are charged to a level that nothing
    is sent over (rows of no bytes were left out, so that the ledger's seconds were not the clock's)."""
    sets = ["accelerators=16", "b=16", "s=256", "layers=4", "axes.pp.degree=2", "axes.tp.degree=2", "micro_batch=2", "schedule=gpipe"]
    sets += ["layouts={}", "recompute=none", "interleave=1", "homes={weights: [{axes: [dp], state: shard, grad: shard}]}"]
    answer = api.search("dgx_h100", "gpt", "megatron", sets=[*sets, "gpu.memory.enforce=false"], profile="deepspeed_zero3", top=2)
    exposed = answer.top[1]  # nothing beside compute
    assert any(row.exposed_seconds and not row.amount and not row.seconds for row in exposed.ledger)
    for one in answer.top:
        assert one.ledger.total("exposed_seconds") == pytest.approx(one.certificate.objective, rel=1e-12)
