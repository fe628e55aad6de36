"""Memory beside what frameworks and papers reckon of theirs: Megatron-LM's report before it trains, FSDP's units that are whole at once."""

from __future__ import annotations

import pytest

from rackmodel.api import search

LAYERS, HIDDEN, SEQUENCE, VOCABULARY, TENSOR, BATCH = 48, 6144, 2048, 51200, 8, 4
"""GPT of 22 billion parameters, with 8 ranks of tensor parallelism and micro-batches of 4."""


def reported(stages: int, chunks: int, micro_batches: int, ranks: int, sharded: bool) -> tuple[float, float]:
    """(bytes of weights, gradients and optimizer, bytes of activations) on the first stage. Source: NVIDIA/Megatron-LM,
    megatron/training/theoretical_memory_usage.py (compute_weight_and_optimizer_memory, compute_activation_memory), for sequence
    parallelism and selective recomputation, without what it counts of token ids and positions (8 s b for each micro-batch)."""
    layer = 2 * HIDDEN * (4 * HIDDEN + 2) + 4 * HIDDEN * HIDDEN
    most = ((layer * LAYERS + 2 * HIDDEN) / stages + HIDDEN * VOCABULARY) / TENSOR
    tokens = SEQUENCE * BATCH * HIDDEN
    kept = tokens * (18 + 4 * 4) * LAYERS + tokens * stages
    if chunks > 1:
        kept *= 1 + (stages - 1) / (stages * chunks)
    elif stages > 1:
        kept *= min(1, micro_batches / stages)
    else:
        kept += 4 * tokens * (1 + VOCABULARY / HIDDEN)
    return most * (6 + 12 / ranks if sharded else 18), kept / TENSOR


@pytest.mark.parametrize(
    ("stages", "chunks", "micro_batches", "sharded"),
    [(1, 1, 4, False), (1, 1, 4, True), (4, 1, 8, True), (4, 1, 2, False), (4, 3, 8, False)],
)
def test_a_gpt_holds_what_megatron_reports_before_it_trains(stages: int, chunks: int, micro_batches: int, sharded: bool) -> None:
    ranks = 8
    sets = [f"accelerators={stages * ranks * TENSOR}", f"b={BATCH * ranks * micro_batches}", f"axes.pp.degree={stages}"]
    sets += [f"axes.dp.degree={ranks}", f"axes.tp.degree={TENSOR}", f"micro_batch={BATCH}", "recompute=selective"]
    sets += [f"schedule={'interleaved' if chunks > 1 else '1f1b'}", f"interleave={chunks}"]
    sets += ["layouts={only: {split: {tp: [h, f, v, s]}}}", "homes.weights={" + ("axes: [dp], state: shard" if sharded else "") + "}"]
    held = search("dgx_a100", "gpt_22b", "megatron", sets=[*sets, "gpu.memory.capacity=1 TB"]).result.memory
    states, kept = reported(stages, chunks, micro_batches, ranks, sharded)
    norms = 4 * HIDDEN * LAYERS / stages + (2 * HIDDEN if stages == 1 else 0)  # whole on each rank, the last one where the head is
    more = SEQUENCE * HIDDEN / TENSOR + norms - (4 * LAYERS + 2) * HIDDEN / stages / TENSOR  # positions are no part of the report
    each = 6 + 12 / ranks if sharded else 18
    assert sum(held[what] for what in ("weights", "gradients", "optimizer")) == pytest.approx(states + each * more, rel=1e-12)
    assert held["activations"] == pytest.approx(kept, rel=1e-12 if chunks == 1 else 2e-3)  # the report gives the embedding more passes


def fsdp(*more: str, words: int = 256) -> dict[str, float]:
    """What an accelerator of 8 holds of 4 layers of Llama 3 8B with few words and no more, fully sharded."""
    sets = ["accelerators=8", "b=8", "s=1024", f"v={words}", "layers=4", "axes.pp.degree=1", "axes.dp.degree=8", "axes.tp.degree=1"]
    sets += ["micro_batch=1", "recompute=full", "homes.weights={axes: [dp], state: shard, grad: shard, param: shard}", *more]
    return search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="fsdp").result.memory


def test_fully_sharded_parameters_are_whole_for_two_layers_at_a_time() -> None:
    """FSDP (Zhao 2023, section 3.2.1): beside the shards the largest unit is whole, and the next one, gathered while it computes (section
    3.3.2); of both the gradients wait to be reduced. A layer has 218,112,000 weights."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    total = 4 * layer + 2 * 256 * 4096 + 4096
    held = fsdp()
    assert held["gathered"] == 2 * layer * (2 + 4)
    assert held["weights"] + held["gradients"] + held["optimizer"] == pytest.approx(total * 18 / 8)


def test_the_unit_beside_an_embedding_or_a_head_is_whole_too() -> None:
    """FSDP gathers the next unit while one computes (Zhao 2023, section 3.3.2): the last layer beside a head that is wider than a layer,
    and the gradients of both are on their way. Three layers of 4 and a head of 131,072 words, of which the norm is a part."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    head = 131072 * 4096 + 4096
    assert fsdp(words=131072)["gathered"] == (layer + head) * (2 + 4)
    assert fsdp(words=16384)["gathered"] == 2 * layer * (2 + 4)


def test_the_embedding_after_a_head_is_whole_beside_it() -> None:
    """The first of two stages holds both ends, and under DualPipeV runs a first chunk's forward pass after a last chunk's: the embedding is
    gathered while the head computes, each 131,072 x 4,096 parameters of 2 bytes and gradients of 4, the head with a norm. Under ZB-V the
    backward pass comes right after the head's: a layer and a head are the most in a row."""
    layer, words = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096, 131072 * 4096
    sets = ["accelerators=8", "b=32", "s=1024", "v=131072", "layers=8", "axes.pp.degree=2", "axes.dp.degree=4", "axes.tp.degree=1"]
    sets += ["micro_batch=1", "recompute=full", "homes.weights={axes: [dp], state: shard, grad: shard, param: shard}"]
    for schedule, whole in (("zb_v", layer + words + 4096), ("dualpipe_v", 2 * words + 4096)):
        held = search("dgx_h100", "llama3_8b", "megatron", sets=[*sets, f"schedule={schedule}"], profile="fsdp").result.memory
        assert held["gathered"] == whole * (2 + 4)
