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
