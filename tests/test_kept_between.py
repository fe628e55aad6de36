"""What stages of a pipeline keep of what they hand to each other, against walks of their passes and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.api import search
from rackmodel.cost.step.bounds.figures import HELD, Holding
from rackmodel.cost.step.bounds.memory import device_memory, memory_of
from rackmodel.cost.step.clock.pipeline_orders import order
from rackmodel.cost.step.cut import cut
from rackmodel.model.schedules import FOLDED, SPLIT, device_of

LAYER, LOGITS, B = 8.0, 5.0, 3.0
"""Bytes of a pass: what a layer saves, what the loss reads, the stream on one accelerator."""


def sections(inputs: int, outputs: int, flying: int, results: int) -> list[Holding]:
    """Embedding, layers and head. inputs, outputs: tensors of the stream that stay for a step · flying: outputs that stay in flight."""
    nothing = dict.fromkeys(HELD, np.zeros((1, 1)))
    layer = {"activations": LAYER, "taken": inputs * B, "given": outputs * B, "given in flight": flying * B}
    each = [({}, False), (layer, True), ({"results": results * LOGITS}, False)]
    return [Holding(inner, nothing | {what: np.full((1, 1), size) for what, size in own.items()}) for own, inner in each]


def walked(schedule: str, stages: int, chunks: int, layers: int, micro_batches: int, kept: tuple[int, int, int, int]) -> list[float]:
    """Bytes on each device at most, of buffers that come and go as its passes run, one by one."""
    plan, frees = order(schedule, stages, micro_batches, chunks), (2, 3) if schedule in SPLIT else (1,)
    inputs, outputs, flying, results = kept
    found = []
    for device in range(stages):
        virtual = [k for k in range(stages * chunks) if device_of(k, schedule, stages) == device]
        other = [[0 <= k + way < stages * chunks and device_of(k + way, schedule, stages) != device for way in (-1, 1)] for k in virtual]
        last = [k == stages * chunks - 1 for k in virtual]
        flight, most = np.zeros(chunks), 0.0
        for kind, chunk in [*zip(plan.kind[device], plan.chunk[device], strict=True), (None, 0)]:
            flight[chunk] += 1 if kind == 0 else -1 if kind in frees else 0
            now = layers * LAYER * flight.sum()
            for c, (before, after) in enumerate(other):
                now += B * (before * inputs * (micro_batches - flight[c]) + after * (outputs * micro_batches + flying * flight[c]))
                now += last[c] * results * LOGITS * (2 * micro_batches if kind is None else micro_batches - 1)
            most = max(most, now)
        found.append(most)
    return found


@pytest.mark.parametrize("kept", [(2, 2, 0, 1), (1, 0, 1, 0), (2, 1, 1, 1), (0, 2, 0, 0)])
@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("zb_h1", 1), ("interleaved", 2), ("zb_v", 2)])
def test_what_stages_keep_is_that_of_their_passes_walked_one_by_one(schedule: str, chunks: int, kept: tuple[int, int, int, int]) -> None:
    stages, micro_batches, layers = 4, 12, 2
    made = cut((1, layers * stages * chunks, 1), (False, True, False), stages, chunks, (layers,) * stages * chunks, schedule in FOLDED)
    parts = [device_memory(sections(*kept), made, schedule, np.array([micro_batches]), device) for device in range(stages)]
    each = [sum(size.item() for what, size in one.items() if what != "host") for one in parts]
    most = walked(schedule, stages, chunks, layers, micro_batches, kept)
    assert memory_of(sections(*kept), made, schedule, np.array([micro_batches]))[0].item() == max(each)
    if chunks == 1:
        assert each == most
    else:  # chunks whose passes hold unlike buffers: of moments with as many passes the first is taken
        assert all(one <= walk <= one + chunks * 4 * B for one, walk in zip(each, most, strict=True))


def test_results_of_a_step_are_put_together_when_it_ends() -> None:
    made = cut((1, 4, 1), (False, True, False), 2, 1, (2, 2))
    last = device_memory(sections(0, 0, 0, 1), made, "1f1b", np.array([40]), 1)
    assert last["between stages"].item() + last["activations"].item() == 2 * 40 * LOGITS


def held(*more: str) -> dict[str, float]:
    """Bytes of a model of 8 layers on 4 stages, of the device that holds most, by what holds them."""
    sets = ["accelerators=4", "b=8", "s=1024", "layers=8", "v=256", "axes.pp.degree=4", "axes.dp.degree=1", "axes.tp.degree=1"]
    sets += ["micro_batch=1", "schedule=1f1b", "recompute=full", "homes.weights={}", *more]
    return search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="torchtitan_2025").result.memory


def test_a_profile_says_what_its_pipeline_keeps_by_hand() -> None:
    """8 micro-batches of 1,024 tokens of 4,096 at 16 bit. The first stage holds most, 4 of them in flight; where gradients that went back
    stay, and buffers of what comes, the second, 3 of 8 in flight."""
    stream, off = 1024 * 4096 * 2, "profile.pipeline={inputs: flight, outputs: none, results: none}"
    assert "between stages" not in held(off)
    for said, count in (("outputs=flight", 4), ("outputs=step", 8), ("gradients.received=step", 8)):
        assert held(off, f"profile.pipeline.{said}")["between stages"] == count * stream
    kept = held()  # 5 inputs and 5 gradients that went back, 8 buffers of gradients that come, 3 outputs in flight
    assert kept["between stages"] == (5 + 5 + 8 + 3) * stream
    assert kept["activations"] == 3 * 2 * stream


def forward(*more: str, s: int = 1024) -> dict[str, float]:
    """Bytes of 8 micro-batches of s tokens of 4,096 at 16 bit without a backward pass, on 4 stages of 2 accelerators."""
    sets = ["accelerators=8", "b=8", f"s={s}", "layers=8", "v=256", "phases=[forward]", "axes.pp.degree=4", "axes.dp.degree=1"]
    sets += ["axes.tp.degree=2", "layouts={only: {split: {tp: [s]}}}", "micro_batch=1", "schedule=1f1b"]
    sets += ["recompute=none", "homes.weights={}", *more]
    return search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="torchtitan_2025").result.memory


def test_without_a_backward_pass_no_gradients_are_kept() -> None:
    """By hand: the last stage has 8 buffers of what comes, and logits of all micro-batches but one. Where stages keep what they made for a
    step, those before it hold most."""
    stream, logits = 512 * 4096 * 2, 512 * 256 * 2
    assert forward()["between stages"] == forward("profile.pipeline.outputs=none")["between stages"] == 8 * stream + 7 * logits
    assert forward("profile.pipeline.outputs=step")["between stages"] == (8 + 8) * stream
    assert "between stages" not in forward("profile.pipeline={inputs: flight, results: none}")


@pytest.mark.parametrize("uneven", ["ceil", "fullest"])
def test_what_stages_keep_is_of_the_fullest_accelerator(uneven: str) -> None:
    """By hand: 513 of 1,025 tokens, whoever sets the pace of bytes."""
    assert forward(f"uneven={uneven}", s=1025)["between stages"] == 513 * (8 * 4096 + 7 * 256) * 2


def test_an_open_cut_makes_room_for_what_its_stages_keep() -> None:
    """128 micro-batches of 4,096 tokens: under 45.5 GB the stages in the middle, which keep buffers on both sides, give up a layer each."""
    sets = ["accelerators=4", "b=128", "s=4096", "v=256", "axes.pp.degree=4", "axes.dp.degree=1", "axes.tp.degree=1", "micro_batch=1"]
    sets += ["schedule=1f1b", "recompute=full", "homes.weights={}"]
    plain, kept = (
        search("dgx_h100", "llama3_8b", "megatron_cut", sets=[*sets, *more], profile="torchtitan_2025", limits={"memory": "45.5 GB"}).result
        for more in (["profile.pipeline={outputs: none}"], [])
    )
    assert not plain.mapping.step.layers
    assert kept.mapping.step.layers == [9, 7, 7, 9]
    assert sum(kept.memory.values()) <= 45.5e9
    even = search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="torchtitan_2025").result
    assert sum(even.memory.values()) > 45.5e9


def remade(save: str) -> float:
    """Bytes that are made again for a layer's backward pass, on one of eight ranks of tensor parallelism."""
    sets = ["accelerators=8", "b=1", "s=4096", "v=256", "axes.tp.degree=8", "axes.dp.degree=1", "axes.pp.degree=1", "recompute=full"]
    sets += ["layouts={only: {split: {tp: [h, [g, q], f, v, s]}, save: " + save + "}}", "micro_batch=1", "homes.weights={}"]
    return search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="torchtitan_sync").result.memory["working"]


def test_what_is_made_again_lies_in_the_copy_that_a_plan_keeps() -> None:
    """Nothing gathers the inputs of a layer's products again once it is made again: two of them, of 4,096 tokens of 4,096 at 16 bit, lie
    there whole or an eighth of each."""
    assert remade("gathered") - remade("shard") == 2 * (4096 * 4096 * 2) * 7 / 8
