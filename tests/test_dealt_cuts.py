"""Uneven cuts under interleaved and split schedules: dealt, found by the search, never swapped for another schedule."""

from __future__ import annotations

import itertools

import pytest

import rackmodel as rm
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.stages.dealt_cuts import apart, dealt

MODEL = {"b": 8, "s": 128, "d": 256, "g": 4, "q": 1, "e": 64, "f": 1024, "v": 1024, "layers": 3}


def mapper(schedule: str, interleave: int, **more: object) -> dict[str, object]:
    return {
        "mapper": "dealt",
        "axes": {"pp": {"degree": 2, "stages": "layers"}, "dp": {"degree": "rest"}},
        "split": {"dp": ["b"]},
        "schedule": schedule,
        "interleave": interleave,
        "cut": "free",
        "micro_batch": 1,
        **more,
    }


def test_layers_go_to_the_stage_that_has_least_to_do_and_its_chunks_beside_the_ends_are_filled_last() -> None:
    assert dealt(126, 16, 8, 1.0, 1.0) == [(0, *[1] * 126, 0)]  # Llama 3 405B: embedding and head alone in the first and the last chunk
    assert dealt(10, 4, 1, 0.0, 2.0) == [(3, 3, 3, 1)]  # (3, 3, 3, 1 + 2) of a head as long as two layers
    assert dealt(10, 2, 2, 0.0, 0.0) == [(2, 3, 3, 2)]  # five each: the embedding's chunk has the fewer, the head's too
    assert dealt(2, 4, 1, 0.0, 0.0) == []  # a stage would hold nothing


def test_chunks_and_split_schedules_are_apart() -> None:
    assert apart(["1f1b", "interleaved", "zb_h1"], [1, 2]) == [("interleaved", 2), ("zb_h1", 1)]


def asked(schedule: str, interleave: int, **more: object) -> rm.Answer:
    return rm.search("dgx_h100", "llama", mapper(schedule, interleave, **more), set={**MODEL, "accelerators": 4})


@pytest.mark.parametrize(("schedule", "chunks"), [("interleaved", 2), ("zb_h1", 1), ("zb_v", 2)])
def test_the_schedule_is_kept_and_no_cut_is_below_the_bound(schedule: str, chunks: int) -> None:
    found = asked(schedule, chunks).result
    assert found.mapping.step is not None
    assert (found.mapping.step.schedule, found.mapping.step.interleave) == (schedule, chunks)
    here = [[0, 3], [1, 2]] if schedule == "zb_v" else [range(stage, 2 * chunks, 2) for stage in (0, 1)]  # virtual stages of each
    every = [
        one
        for one in itertools.product(range(4), repeat=2 * chunks)
        if sum(one) == MODEL["layers"] and all(sum(one[virtual] for virtual in own) for own in here)
    ]
    steps = [found.mapping.step.model_copy(update={"layers": list(one)}) for one in every]
    mappings = [found.mapping.model_copy(update={"step": step}) for step in steps]
    seconds = rm.price("dgx_h100", "llama", mappings, set={**MODEL, "accelerators": 4}).latency_s
    assert found.certificate.bound * (1 - 1e-9) <= min(seconds) <= found.latency_s * (1 + 1e-9)
    assert found.latency_s <= 1.02 * min(seconds)  # of these the search tries six


def test_what_no_dealt_cut_holds_says_how_much_it_is_short() -> None:
    with pytest.raises(InfeasibleError, match=r"memory: one gpu needs .* at least") as problem:
        rm.search("dgx_h100", "llama", mapper("interleaved", 2), set={**MODEL, "accelerators": 4}, limits={"memory": "1 MB"})
    assert problem.value.need > problem.value.have == 1e6


def test_policies_of_layers_under_an_even_cut_are_refused() -> None:
    with pytest.raises(InputError, match="say cut: free"):
        asked("1f1b", 1, cut="even", recompute="per layer")


def test_a_mapping_may_leave_a_chunk_without_layers_but_no_stage() -> None:
    found = asked("interleaved", 2).result.mapping
    assert found.step is not None
    machine, model = rm.read("dgx_h100", set={"accelerators": 4}), rm.read("llama", set=MODEL)

    def cut(layers: list[int], degree: int, interleave: int) -> rm.Result:
        pipeline = found.step.pipeline.model_copy(update={"degree": degree, "stride": 4 // degree})  # type: ignore[union-attr]
        step = found.step.model_copy(update={"layers": layers, "pipeline": pipeline, "interleave": interleave})  # type: ignore[union-attr]
        axes = {"dp": found.axes["dp"].model_copy(update={"degree": 4 // degree})}
        return rm.evaluate(machine, model, found.model_copy(update={"step": step, "axes": axes}))

    assert cut([0, 1, 2, 0], 2, 2).latency_s > 0
    with pytest.raises(InputError, match="stage 1 of 4 holds no layer"):
        cut([1, 0, 1, 0, 0, 0, 1, 0], 4, 2)
