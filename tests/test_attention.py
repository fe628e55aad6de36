"""Fused attention kernels: calls worked by hand, what each fact moves, what indices count, how near parts are, what a fit finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel import api
from rackmodel.calibration.attention_calls import AttentionCalls
from rackmodel.calibration.fit_attention import fit_attention, predict
from rackmodel.calibration.part import calibrate
from rackmodel.calibration.part_attention import CalibratedAttention
from rackmodel.cost.inside.attention import (
    AttentionDevice,
    AttentionSizes,
    decode_seconds,
    few_tokens,
    mixed_seconds,
    parts_of,
    prefill_seconds,
    sizes_of,
)
from rackmodel.cost.inside.attention_calls import AttentionPart, kernel_of, training_kernel
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.program.attention_roles import attention_roles
from rackmodel.cost.program.tasks import AttentionRoles
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.attention import DecodeAttention, PrefillAttention
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.validation.attention import (
    HeadSizes,
    Way,
    attention_ops,
    operations_over_forward,
    price_calls,
    seen_keys,
)
from rackmodel.validation.rows import read_rows
from rackmodel.validation.run import validate
from rackmodel.validation.single import OneCall, time_of

PUBLISHED = Path(__file__).parent / "data" / "published" / "attention.csv"
TRAINED = Path(__file__).parent / "data" / "measured" / "attention_training.csv"
DEVICE = AttentionDevice(peak=100e12, blocks=100, bandwidth=1e12, element=2.0)
DECODE = {"start": "5 us", "memory": 0.5, "load": "50 GB/s", "block": {"128": "1 us"}, "step": {"128": "1 ns"}}
PREFILL = {"start": "5 us", "memory": 0.5, "rate": {"128": 0.5}, "block": {"128": "0 us"}}


def decode(**changes: Any) -> DecodeAttention:
    return DecodeAttention.model_validate({**DECODE, **changes})


def prefill(**changes: Any) -> PrefillAttention:
    return PrefillAttention.model_validate({**PREFILL, **changes})


def call(**changes: Any) -> AttentionSizes:
    said = {"sequences": 4, "kv_heads": 2, "group": 1, "queries": 1, "context": 1024, "head": 128, **changes}
    causal = np.asarray(said["context"]) - (np.asarray(said["queries"]) - 1) / 2
    return sizes_of(**{"keys": causal, **said})


def of(facts: DecodeAttention | PrefillAttention, device: AttentionDevice = DEVICE, **changes: Any) -> float:
    price = decode_seconds if isinstance(facts, DecodeAttention) else prefill_seconds
    return float(price(facts, device, call(**changes))[0][0])  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "tokens", "before"), [(4, 8192, 0), (2, 4096, 2048), (8, 16384, 1024), (1, 2048, 512)])
def test_ranks_that_share_out_a_prompt_walk_as_many_keys(ranks: int, tokens: int, before: int) -> None:
    """Block by block of 128 queries: rank r has pieces r and 2 N - 1 - r of 2 N, whose blocks walk the keys up to their last query. One SM
    takes all of them; half of the longest walk runs alone, which is the first rank's, with the end of the prompt."""
    piece = tokens // (2 * ranks)
    mine = [[before + own * piece + last for own in (r, 2 * ranks - 1 - r) for last in range(128, piece + 1, 128)] for r in range(ranks)]
    walked = {sum(keys) for keys in mine}
    assert len(walked) == 1
    alone = AttentionDevice(peak=100e12, blocks=1, bandwidth=1e30, element=2.0)
    here = {"sequences": 3, "queries": tokens / ranks, "context": before + tokens, "keys": before + (tokens + 1) / 2, "ranks": ranks}
    found = of(prefill(tail=0.5), alone, **here)
    a_key = 4 * 128 * 128 / (0.5 * 100e12)
    assert found == pytest.approx(5e-6 + a_key * (3 * 2 * walked.pop() + 0.5 * (before + tokens)))


@pytest.mark.parametrize(("parts", "tokens", "before"), [(2, 4096, 0), (4, 2048, 8192)])
def test_keys_that_are_dealt_out_one_by_one_are_seen_in_parts(parts: int, tokens: int, before: int) -> None:
    """Every block of 128 queries sees a part of the keys up to its last query: a causal call's work over the parts, not all of it."""
    alone = AttentionDevice(peak=100e12, blocks=1, bandwidth=1e30, element=2.0)
    context = (before + tokens) / parts
    keys = (before + (tokens + 1) / 2) / parts
    found = of(prefill(), alone, sequences=1, kv_heads=1, queries=tokens, context=context, keys=keys, parts=parts)
    walked = sum((before + last) / parts for last in range(128, tokens + 1, 128))
    half_blocks = tokens / 128 * (1 - 1 / parts) / 2 * 128  # a block's diagonal is narrower than the 128 keys that it takes at once
    assert found == pytest.approx(5e-6 + 4 * 128 * 128 / (0.5 * 100e12) * (walked + half_blocks))


# -- worked by hand -----------------------------------------------------------------------------------------------------------------


def test_blocks_of_few_query_heads_read_the_keys_that_these_share_again() -> None:
    """128 heads of one latent key: two blocks of 64 or eight of 16, on one SM one after the other, each 8 steps of 128 keys of 1 ns."""
    alone = AttentionDevice(peak=100e12, blocks=1, bandwidth=1e30, element=2.0)
    for rows, tiles in ((64, 2), (16, 8)):
        facts = decode(rows=rows, groups="packed", load="1e9 GB/s")
        assert of(facts, alone, sequences=1, kv_heads=1, group=128) == pytest.approx(5e-6 + tiles * (1e-6 + 1024e-9), rel=1e-6)


def test_a_block_multiplies_no_faster_than_its_multiprocessor_can() -> None:
    """Two blocks of 64 of 128 heads on one SM of 1 TFLOP/s: 64 x 2 x (128 + 128) FLOP a key each, 32.768 ns."""
    alone = AttentionDevice(peak=1e12, blocks=1, bandwidth=1e30, element=2.0)
    facts = decode(groups="packed", load="1e9 GB/s")
    found = of(facts, alone, sequences=1, kv_heads=1, group=128)
    assert found == pytest.approx(5e-6 + 2 * (1e-6 + 1024 * 32.768e-9), rel=1e-6)


def test_blocks_of_a_last_wave_take_as_long_as_those_of_a_full_one() -> None:
    """101 blocks on 100 SMs walk 1,024 keys of 1 ns twice over; what each block begins and ends with is dealt out (1.01 us). Where the
    memory is no bound, 101 take as long as 200."""
    free = replace(DEVICE, bandwidth=1e30, peak=1e30)
    sizes = {"kv_heads": 1, "context": 1024}
    assert of(decode(load="1e9 GB/s"), free, sequences=101, **sizes) == pytest.approx(5e-6 + 1.01e-6 + 2 * 1024e-9, rel=1e-9)
    assert of(decode(load="1e9 GB/s"), free, sequences=200, **sizes) == pytest.approx(5e-6 + 2e-6 + 2 * 1024e-9, rel=1e-9)


def test_a_kernel_of_two_tiles_multiplies_64_rows_for_more_than_16() -> None:
    """FlashInfer's: 16 query heads of a key are a block of 16 rows, 17 one of 64 at its share of the peak. One SM of 1 TFLOP/s: 2 x 256
    FLOP a key and row, 8.192 ns of 16 rows at the peak, 65.536 of 64 at half of it."""
    alone = AttentionDevice(peak=1e12, blocks=1, bandwidth=1e30, element=2.0)
    facts = decode(load="1e9 GB/s", rate=0.5, query=1e-9)
    for group, key in ((16, 8.192e-9), (17, 65.536e-9), (64, 65.536e-9)):
        found = of(facts, alone, sequences=1, kv_heads=1, group=group)
        assert found == pytest.approx(5e-6 + 1e-6 + 1024 * key, rel=1e-6)
    with pytest.raises(ValueError, match="rate is a share"):
        decode(rate=1.5)


def test_a_kernel_that_counts_no_multiprocessors_cuts_a_cache_in_as_many_parts_as_ever() -> None:
    """Triton's latent attention takes 4 where 100 SMs idle: 64 steps in parts of 16, one of 128 keys in one; no part where all are busy."""
    assert parts_of(np.array([8.0, 8.0, 8.0, 80.0]), np.array([64.0, 3.0, 1.0, 64.0]), 100, 4).tolist() == [4, 3, 1, 1]
    free = replace(DEVICE, bandwidth=1e30, peak=1e30)
    found = of(decode(load="1e9 GB/s", parts=4, split="3 us"), free, sequences=1, kv_heads=8, context=8192)
    assert found == pytest.approx(5e-6 + 1e-6 + 3e-6 + 8192 / 4 * 1e-9, rel=1e-9)


def test_a_loop_finds_nothing_of_a_cache_that_it_outgrows() -> None:
    """Of a loop over 1.25 times what the chip holds 0.972 comes from the memory, over 0.8 of it 0.027: what it walks in turn is gone
    before it comes again. Written for the shares 1 / (1 + 1.25^16) and its opposite."""
    looped = replace(DEVICE, looped=True, peak=1e30)
    facts = decode(load="1e9 GB/s", step={"128": "0 s"}, block={"128": "0 s"}, query=1e-9, reuse="100 MB", reuse_bandwidth="4000 GB/s")
    for megabytes, kept in ((80, 1 / (1 + 0.8**16)), (125, 1 / (1 + 1.25**16))):
        keys = megabytes * 1e6 / (1000 * 128 * 2 * 2)
        found = of(facts, looped, sequences=1000, kv_heads=1, context=keys, keys=keys) - 5e-6
        assert found == pytest.approx(megabytes * 1e6 * (kept / 4000e9 + (1 - kept) / 500e9), rel=1e-6)


def test_new_tokens_with_blocks_of_their_own_fetch_the_keys_again() -> None:
    """Four new tokens cost what four sequences of one cost where memory costs nothing, and bring the keys from memory once."""
    free = replace(DEVICE, bandwidth=1e30, peak=1e30)
    sizes = {"kv_heads": 1, "group": 16, "context": 4096, "keys": 4096}
    apart = decode(tokens="apart")
    assert of(apart, free, sequences=3, queries=4, **sizes) == pytest.approx(of(apart, free, sequences=12, **sizes), rel=1e-12)
    assert of(decode(), free, sequences=3, queries=4, **sizes) == pytest.approx(of(decode(), free, sequences=3, **sizes), rel=1e-12)
    bound = decode(tokens="apart", load="1e9 GB/s", step={"128": "0 s"}, split="0 s", block={"128": "0 s"})
    many = {**sizes, "sequences": 1000, "group": 1}
    queries = 2 * 1000 * 3 * 256 / 1e12  # of three further tokens
    quick = replace(DEVICE, peak=1e30)
    assert of(bound, quick, queries=4, **many) == pytest.approx(of(bound, quick, **many) + queries, rel=1e-9)


CHECKED = {2: 61, 4: 89, 8: 181, 16: 336, 32: 655, 64: 1420, 96: 2009, 128: 2623, 192: 3925, 256: 4855}
"""Sequences → us of TensorRT-LLM's latent attention on a Blackwell: 16 heads, four new tokens, 80,000 keys of 8 bit (vllm-project/vllm,
pull request 41778). One sequence took 62 us, no less than two."""


def test_published_times_of_checked_drafts_are_met() -> None:
    """No fit saw a call of several new tokens."""
    count = np.array(list(CHECKED), dtype=np.float64)
    one = np.ones(len(count))
    sizes = {"b": count, "g": one, "q": 16 * one, "s": 4 * one, "t": 80_004 * one, "keys": 80_002.5 * one}
    _, seconds = price_calls(
        read_architecture("dgx_b200"), KernelPricer(fitted=True, attention="mla", looped=True), sizes, HeadSizes(576, 512, 8, latent=True)
    )
    errors = 1e6 * seconds / np.array(list(CHECKED.values())) - 1
    assert np.abs(errors).mean() < 0.15
    assert np.abs(errors).max() < 0.25


def test_one_new_token_by_hand() -> None:
    # 80 tiles of 100 SMs need no splitting: 8 steps of 128 keys of 512 B at 50 GB/s, beside 80 x 1024 x 512 B at half of 1 TB/s
    loads, memory = 1024 * 512 / 50e9, 80 * 1024 * 512 / 0.5e12
    queries = 2 * 80 * 256 / 1e12
    assert of(decode(), sequences=40) == pytest.approx(5e-6 + 1e-6 + (loads**2.5 + memory**2.5) ** 0.4 + queries)


def test_a_long_cache_is_cut_so_that_all_blocks_are_busy() -> None:
    # 8 tiles: 12 parts fill 96 of 100 SMs; 11 fill 0.88 of them, which is 0.85 of the best already
    assert parts_of(np.array([8.0]), np.array([64.0]), 100)[0] == 11
    assert parts_of(np.array([8.0]), np.array([4.0]), 100)[0] == 4  # no more than there are steps
    assert parts_of(np.array([80.0]), np.array([64.0]), 100)[0] == 1
    alone, cut = (of(decode(groups=groups, split="3 us"), context=8192) for groups in ("apart", "packed"))
    assert cut < alone


def test_heads_that_share_keys_are_read_once_or_each() -> None:
    # one tile of 8 rows, or 8 tiles: the loads of all SMs are the same where each fits on one
    same = {"sequences": 1, "kv_heads": 1, "group": 8, "context": 128}
    extra = 2 * 8 * 256 / 1e12
    assert of(decode(), **same) == pytest.approx(of(decode(groups="apart"), **same))
    assert of(decode(), **{**same, "sequences": 1000}) < of(decode(groups="apart"), **{**same, "sequences": 1000})
    copied = of(decode(groups="unwindowed", copy="3 us", group="1 us"), **{**same, "kv_heads": 2, "sequences": 2})
    assert copied - of(decode(groups="unwindowed"), **{**same, "kv_heads": 2, "sequences": 2}) == pytest.approx(4e-6)
    assert extra < 1e-8


def test_many_new_tokens_by_hand() -> None:
    # 8 blocks of 128 queries walk 1 to 8 steps: 36 of them, each 4 · 128 · 128 · 128 operations at half of 1 TFLOP/s, over 100 SMs
    step = 4 * 128 * 128 * 128 / (0.5 * 1e12)
    calls = 64 * 4
    memory = (2 * 1024 * 256 * calls + 1024 * 256 * 2 * calls) / 0.5e12
    work = calls * 36 * step / 100
    found = of(prefill(), sequences=64, kv_heads=4, queries=1024)
    assert found == pytest.approx(5e-6 + (work**1.5 + memory**1.5) ** (1 / 1.5), rel=1e-9)
    # all queries that see all keys walk 64 steps
    both = of(prefill(), sequences=64, kv_heads=4, queries=1024, keys=1024)
    assert both == pytest.approx(5e-6 + ((work * 64 / 36) ** 1.5 + memory**1.5) ** (1 / 1.5), rel=1e-9)


def test_a_window_caps_what_a_block_walks() -> None:
    keys = seen_keys(1024, 1024, 128)
    assert keys == pytest.approx((128 * 129 / 2 + 896 * 128) / 1024)
    # the first block walks one step, the others two
    step = 4 * 128 * 128 * 128 / (0.5 * 1e12)
    fast = AttentionDevice(peak=100e12, blocks=100, bandwidth=1e18, element=2.0)
    assert of(prefill(), fast, sequences=64, kv_heads=4, queries=1024, keys=keys) == pytest.approx(5e-6 + 256 * 15 * step / 100, rel=1e-6)


def test_a_window_counts_keys_before_a_chunk_too() -> None:
    """128 queries behind 400 keys, a window of 512: their block walks 400 keys and its own 128, 4.125 steps, which the window leaves; once
    two, as if the window were no wider than the chunk. Keys before it never make such a call shorter."""
    step = 4 * 128 * 128 * 128 / (0.5 * 1e12)
    fast = AttentionDevice(peak=100e12, blocks=100, bandwidth=1e18, element=2.0)
    keys = seen_keys(128, 528, 512)
    found = of(prefill(), fast, sequences=64, kv_heads=4, queries=128, context=528, keys=keys)
    assert found == pytest.approx(5e-6 + 256 * 4.125 * step / 100, rel=1e-6)
    before = range(0, 1200, 8)
    seconds = [of(prefill(), queries=200, context=have + 200, keys=seen_keys(200, have + 200, 512)) for have in before]
    assert (np.diff(seconds) >= -1e-12).all()


@pytest.mark.parametrize("before", [0, 100, 1000])
@pytest.mark.parametrize("window", [0, 1, 64, 700, 5000])
def test_keys_that_queries_see_are_counted_one_by_one(before: int, window: int) -> None:
    seen = [min(before + i + 1, window or 10**9) for i in range(300)]
    assert seen_keys(300, before + 300, window) == pytest.approx(np.mean(seen))


MOVES = {
    "split": ("3 us", {"context": 65536}, {}),
    "window": ("3 us", {"keys": 64}, {}),
    "groups": ("apart", {"group": 8, "sequences": 512}, {}),
    "group": ("3 us", {"group": 8}, {"groups": "unwindowed"}),
    "copy": ("3 us", {"group": 8}, {"groups": "unwindowed"}),
    "reuse": ("1 MB", {"sequences": 64}, {"reuse": "100 MB", "reuse_bandwidth": "9 TB/s"}),
    "reuse_bandwidth": ("2 TB/s", {"sequences": 64}, {"reuse": "100 MB", "reuse_bandwidth": "9 TB/s"}),
}


@pytest.mark.parametrize("key", list(MOVES))
def test_each_fact_of_a_call_in_a_loop_moves_it(key: str) -> None:
    value, sizes, also = MOVES[key]
    looped = replace(DEVICE, looped=True)
    assert of(decode(**also), looped, **sizes) != of(decode(**{**also, key: value}), looped, **sizes)
    if key.startswith("reuse"):
        assert of(decode(**also), **sizes) == of(decode(**{**also, key: value}), **sizes)  # a step finds nothing in a cache


def test_packed_queries_fill_blocks_of_few_tokens() -> None:
    sizes = {"sequences": 256, "kv_heads": 4, "group": 8, "queries": 16, "context": 16}
    assert of(prefill(), **sizes) < of(prefill(groups="apart"), **sizes)


def test_more_of_anything_never_takes_less() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        sizes = {name: float(2 ** rng.integers(0, 6)) for name in ("sequences", "kv_heads", "group")} | {
            "context": float(2 ** rng.uniform(7, 15))
        }
        for facts, queries in ((decode(), 1.0), (prefill(block={"128": "1 us"}, tail=0.5), 128.0)):
            least = of(facts, queries=queries, **sizes)
            for name in ("sequences", "group"):
                assert least <= of(facts, queries=queries, **{**sizes, name: 2 * sizes[name]}) * (1 + 1e-9), (name, sizes)


def test_few_tokens_take_the_kernel_for_one() -> None:
    assert list(few_tokens(call(queries=np.array([1.0, 4.0, 4.0, 9.0]), context=np.array([1.0, 99.0, 4.0, 99.0])))) == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({**DECODE, "memory": 1.5}, "memory is a share"),
        ({**DECODE, "block": {}}, "at least one head size"),
        ({**DECODE, "block": {"big": "1 us"}}, "no head size"),
        ({**DECODE, "start": "-1 us"}, "is negative"),
        ({**DECODE, "load": "0 GB/s"}, "load must be positive"),
        ({**DECODE, "reuse": "1 MB"}, "reuse_bandwidth with them"),
    ],
)
def test_facts_that_cannot_be_are_refused(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        DecodeAttention.model_validate(facts)


# -- in a step ----------------------------------------------------------------------------------------------------------------------


def test_indices_of_a_graph_are_read_for_what_they_count() -> None:
    workload = read_workload("llama3_8b_block")
    for name in ("QK", "AV"):
        roles = attention_roles(workload.ops[name], frozenset({"A", "P"}), workload)
        assert roles is not None
        assert (roles.sequences, roles.kv_heads, roles.group, roles.queries, roles.context) == (("b",), ("g",), ("q",), ("s",), ("t",))
        assert (roles.head, roles.value, roles.own, roles.latent) == (128, 128, 0.5, False)
    assert attention_roles(workload.ops["O"], frozenset({"A", "P"}), workload) is None


def _attention_seconds(profile: str, tmp_path: Path, **more: str) -> float:
    text = f"profile: mine\nkernels: {profile}\nattention: flash\n" + "".join(f"{key}: {value}\n" for key, value in more.items())
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    result = api.search("h100", "llama3_8b_block", "tensor", profile=str(tmp_path / "mine.yaml")).result
    return float(sum(charge.exposed_seconds for charge in result.ledger if charge.einsum in ("QK", "AV", "softmax")))


def test_a_step_prices_fused_attention_as_the_part_has_measured_it(tmp_path: Path) -> None:
    sizes = {name: np.array([float(size)]) for name, size in {"b": 1, "g": 8, "q": 4, "s": 2048, "t": 2048, "keys": 2048}.items()}
    _, forward = price_calls(read_architecture("h100"), KernelPricer(fitted=True), sizes, HeadSizes(128, 128, 16))
    found = _attention_seconds("fitted", tmp_path)
    assert found == pytest.approx(float(forward[0]) * (1 + 2.5 / 0.86), rel=1e-6)  # five contractions backward, two forward
    assert found != pytest.approx(_attention_seconds("measured", tmp_path), rel=1e-3)


def test_a_kernel_that_a_part_has_no_facts_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no facts of the attention kernel 'trtllm'"):
        _attention_seconds("fitted", tmp_path, attention_kernel="trtllm")
    with pytest.raises(InputError, match="neither the machine nor the library knows the attention kernel 'fa9'"):
        _attention_seconds("fitted", tmp_path, attention_kernel="fa9")


def test_a_mixed_call_lasts_longer_than_its_parts_where_one_kernel_takes_both() -> None:
    chunk = {"b": 1, "g": 8, "q": 4, "s": 512, "t": 512, "keys": 256.5}
    decoding = {"b": 32, "g": 8, "q": 4, "s": 1, "t": 4096, "keys": 4096}
    machine, one = read_architecture("h100"), np.ones((1, 1), dtype=np.int64)
    ops = [
        attention_ops({name: np.array([float(size)]) for name, size in sizes.items()}, HeadSizes(128, 128, 16))
        for sizes in (chunk, decoding)
    ]
    for kernel, more in (("fa3", True), ("fa4", False)):
        pricer = KernelPricer(fitted=True, attention=kernel)
        apart = sum(float(pricer(machine, local_op, one)[1][0]) for both in ops for local_op in both)
        mixed = [pricer.mixed(machine, first, second, one) for first, second in zip(*ops, strict=True)]
        together = sum(float(lasts[0]) for _, lasts in mixed)
        assert together > 1.05 * apart if more else together == pytest.approx(apart)
        exposed = sum(float(np.sum(row.exposed)) for rows, _ in mixed for row in rows)
        assert exposed == pytest.approx(together, rel=1e-9)


def test_a_mixed_call_is_the_chunk_where_nothing_decodes_beside_it() -> None:
    alone = prefill_seconds(prefill(), DEVICE, call(queries=512, context=512))[0]
    nothing = call(sequences=1e-12, queries=1, context=1)
    assert mixed_seconds(prefill(), DEVICE, call(queries=512, context=512), nothing) == pytest.approx(alone)


def test_a_step_with_chunks_and_decodes_prices_their_attention_as_one_call(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("profile: mine\nkernels: fitted\nattention: flash\n", encoding="utf-8")
    profile, machine = read_profile(str(tmp_path / "mine.yaml")), read_architecture("dgx_h100")
    model = ServedModel(workload=read_workload("dense_decoder"), architecture=machine, profile=profile, deployment=Deployment())
    steps = Steps.of(decodes=[64, 0, 64], context=[2000, 0, 2000], prefill=[0, 1024, 1024], prompts=[0, 1, 1], before=[0, 0, 0])
    ledger = model.price(steps).ledger
    decoding, chunk, both = (ledger.at(column).group(["einsum"], "exposed_seconds")[("QK",)] for column in range(3))
    assert both > 1.1 * (decoding + chunk)


def test_the_command_time_prices_a_call() -> None:
    sizes = {name: np.array([float(size)]) for name, size in {"b": 8, "g": 8, "q": 4, "s": 1, "t": 4096, "keys": 4096}.items()}
    machine, own = read_architecture("h100"), HeadSizes(128, 128, 8)
    found = time_of(machine, "attention", OneCall("8x32x8x128x1x4096", "fp8"))
    assert found.seconds == pytest.approx(float(price_calls(machine, KernelPricer(fitted=True), sizes, own)[1][0]))
    assert sum(found.bins.values()) == pytest.approx(found.seconds)
    for shape in ("8x32x5x128x1x4096", "8x32x8x128x2x1", "8x32"):
        with pytest.raises(InputError):
            time_of(machine, "attention", OneCall(shape))


def test_latent_attention_reads_its_keys_once_and_takes_its_own_kernel() -> None:
    latent = {"kv_heads": 1, "group": 64, "head": 576, "value": 512}
    both = {"block": {"576": "1 us"}, "step": {"576": "0 ns"}}
    assert of(decode(**both), latent=1.0, **latent) < of(decode(**both), **latent)
    facts = gpu_of(read_architecture("b200"))
    assert facts is not None
    roles = AttentionRoles(("b",), (), ("h",), ("s",), ("t",), 576.0, 512.0, 0.5, 16, latent=True)
    assert kernel_of(facts.facts, None, roles) is facts.facts.attention["mla"]
    assert kernel_of(facts.facts, "mla_module", roles) is facts.facts.attention["mla_module"]
    assert kernel_of(facts.facts, None, replace(roles, value=576.0, latent=False)) is facts.facts.attention["flashinfer"]


# -- fitted and measured ------------------------------------------------------------------------------------------------------------


def test_a_fit_finds_a_kernel_that_made_its_rows() -> None:
    rng = np.random.default_rng(2)
    n = 200
    sizes = sizes_of(
        sequences=np.round(2 ** rng.uniform(0, 9, n)),
        kv_heads=2.0 ** rng.integers(0, 4, n),
        group=2.0 ** rng.integers(0, 4, n),
        queries=1.0,
        context=(context := np.round(2 ** rng.uniform(0, 14, n))),
        keys=context,
        head=128.0,
    )
    true = decode(groups="unwindowed", copy="5 us", group="1 us", split="2 us")
    calls = AttentionCalls(
        gpu="toy", kernel="mine", use="decode", bits=16, sizes=sizes, seconds=np.ones(n), source="toy.csv", beside=np.zeros(n)
    )
    made = replace(calls, seconds=predict(true, DEVICE, calls) * np.exp(0.02 * rng.standard_normal(n)))
    found = fit_attention(made, DEVICE)
    assert isinstance(found.facts, DecodeAttention)
    assert found.facts.groups == "unwindowed"
    assert found.outside.mean() < 0.04
    assert found.facts.copy_s == pytest.approx(5e-6, rel=0.1)


def test_a_pass_of_training_is_fitted_to_a_few_lengths_and_told_by_those_held_out() -> None:
    """Heads of 64 and 128, 5 lengths each with a mask and without: 20 calls of a kernel that starts a block in 1 us at half the peak."""
    true = prefill(rate={"64": 0.3, "128": 0.5}, block={"64": "1 us", "128": "1 us"}, tail=0.5, memory=0.9)
    lengths = np.tile(2.0 ** np.arange(11, 16), 4)
    hidden = np.repeat([True, False, True, False], 5)
    sizes = sizes_of(
        **{"sequences": 2.0, "kv_heads": 16.0, "group": 1.0, "queries": lengths, "context": lengths},
        keys=np.where(hidden, (lengths + 1) / 2, lengths),
        head=np.repeat([64.0, 64.0, 128.0, 128.0], 5),
    )
    said = {"gpu": "toy", "kernel": "mine", "use": "backward", "bits": 16, "source": "toy.csv", "beside": np.zeros(20)}
    calls = AttentionCalls(sizes=sizes, seconds=np.ones(20), **said)  # type: ignore[arg-type]
    found = fit_attention(replace(calls, seconds=predict(true, DEVICE, calls)), DEVICE)
    assert isinstance(found.facts, PrefillAttention)
    assert found.inside.mean() < 0.01
    assert found.outside.mean() < 0.02
    assert found.facts.rate["128"] == pytest.approx(0.5, rel=0.03)
    with pytest.raises(InputError, match="7 calls of mine on toy: want 8 or more"):
        fit_attention(calls.only(np.arange(20) < 7), DEVICE)


def test_a_step_of_training_prices_attention_as_it_was_measured_both_ways() -> None:
    """FlashAttention 2 on H100, heads of 128, 4 sequences of 4,096 tokens under a mask: 319 TFLOP/s forward (Shah 2024), in a step 0.776
    of that; behind it five contractions for two."""
    machine = read_architecture("dgx_h100")
    sizes = {name: np.array([value]) for name, value in {"b": 4.0, "g": 16.0, "q": 1.0, "s": 4096.0, "t": 4096.0, "keys": 2048.5}.items()}
    flops = 4 * 4 * 16 * 4096 * 2048.5 * 128
    seconds = {}
    for looped in (True, False):
        pricer = KernelPricer(lasting=True, attention="fa2", looped=looped)
        seconds[looped] = float(price_calls(machine, pricer, sizes, HeadSizes(128, 128, 16))[1][0])
    assert flops / seconds[True] == pytest.approx(319e12, rel=0.03)
    assert seconds[False] == pytest.approx(seconds[True] / 0.776)
    heads, looped = HeadSizes(128, 128, 16), KernelPricer(lasting=True, attention="fa2", looped=True)
    ways: tuple[Way, ...] = ("forward", "backward")
    forward, backward = (float(price_calls(machine, looped, sizes, heads, way)[1][0]) for way in ways)
    assert forward == pytest.approx(seconds[True])
    assert operations_over_forward(heads, "backward") == 2.5
    assert 2.5 * flops / backward == pytest.approx(279e12, rel=0.05)  # less than the 310 of no mask
    one = OneCall("4x16x16x128x4096x4096", kernel="fa2", way="backward")
    assert time_of(machine, "attention", one).seconds == pytest.approx(backward / 0.776)
    with pytest.raises(InputError, match="has no attention kernel 'triton' of training"):
        time_of(machine, "attention", replace(one, kernel="triton"))
    with pytest.raises(InputError, match="has no attention kernel 'cudnn' of servers"):
        time_of(machine, "attention", replace(one, kernel="cudnn", way=""))


@pytest.mark.parametrize(
    ("what", "call", "option"),
    [
        ("gemm", OneCall("64x64x64", members=8), "--members"),
        ("softmax", OneCall("64x64", way="forward"), "--pass"),
        ("attention", OneCall("8x32x8x128x1x4096", alone=True), "--alone"),
        ("experts", OneCall("64x4096x2048x4x64", nodes=1), "--nodes"),
        ("rmsnorm", OneCall("64x64", alone=True), "--alone"),
        ("all_reduce", OneCall("64 MiB", "fp8"), "--precision"),
        ("all_reduce", OneCall("64 MiB", kernel="fa2"), "--kernel"),
    ],
)
def test_what_is_timed_alone_refuses_options_that_it_does_not_have(what: str, call: OneCall, option: str) -> None:
    with pytest.raises(InputError, match=f"{what} has no {option}"):
        time_of(read_architecture("h100"), what, call)


def test_kernels_of_training_are_met_on_the_gpu_that_they_were_fitted_to_and_on_another() -> None:
    """cuDNN and FlashAttention 2, forward and backward, on Blackwell at 8 bit too.

    H200 has no facts of its own: H100's, the same die, meet its 80 calls, of cuDNN up to two years newer.
    """
    found = validate([TRAINED]).datasets[0]
    assert found.score is not None
    assert found.score.n == 340
    bars = {"gb200 bfloat16": 5.0, "gb300 bfloat16": 4.0, "h100_sxm bfloat16": 3.0, "h200_sxm bfloat16": 8.0}
    bars |= {"gb200 mxfp8": 4.0, "gb300 mxfp8": 4.0}
    assert {name: cell.mean < bars[name] for name, cell in found.cells.items()} == dict.fromkeys(bars, True)


def test_a_kernel_of_training_alone_serves_nobody() -> None:
    facts = gpu_of(read_architecture("dgx_h100"))
    assert facts is not None
    assert training_kernel(facts.facts, None) is facts.facts.attention["cudnn"]
    assert training_kernel(facts.facts, "fa2") is facts.facts.attention["fa2"]
    assert training_kernel(facts.facts, "triton") is None  # its named rate counts
    with pytest.raises(InputError, match="'cudnn' has facts of training alone"):
        kernel_of(facts.facts, "cudnn")


def test_every_published_call_is_priced_within_the_class_of_its_fit() -> None:
    """Every thirtieth visible row of the parts' own kernels; the bars are those of calls that no fit saw."""
    assert len(read_rows(PUBLISHED)) > 500
    report = validate([PUBLISHED])
    for one in report.datasets:
        assert not one.refused
        assert one.score is not None
        assert one.score.mean < 12, one.name
        assert one.score.median < 8, one.name
        for name, cell in one.cells.items():
            assert cell.mean < 14 or cell.n < 30, (one.name, name)  # a score of few rows says little


# -- whole steps ----------------------------------------------------------------------------------------------------------------

STEPS = "gpu,model,tp,phase,n_q_head,n_kv_head,hidden,batch,prefill_chunk,kv_cache_len,backend,median_us"


def stepped(tmp_path: Path, *rows: str) -> list[Any]:
    file = tmp_path / "llmservingsim_v0_attention.csv"
    file.write_text("\n".join([STEPS, *rows]), encoding="utf-8")
    return list(validate([file]).rows)


def test_calls_that_walk_whole_caches_are_blocks_of_a_head_of_a_sequence_each(tmp_path: Path) -> None:
    """8 query heads of a rank: 66 sequences are 528 blocks, 132 are twice as many. One sequence of 16,384 keys is one long walk of
    8 blocks: 439 us were measured where a kernel that cuts the cache takes 20."""
    of_h100 = "H100,mistralai/Mixtral-8x7B-v0.1,4,decode,32,8,4096"
    few, twice, walk = stepped(
        tmp_path,
        f"{of_h100},66,0,4224,FLASH_ATTENTION,12.5",
        f"{of_h100},132,0,8448,FLASH_ATTENTION,23",
        f"{of_h100},1,0,16384,FLASH_ATTENTION,439.3",
    )
    assert few.assumptions[0] == "attention kernel: fa2_unsplit"
    assert twice.predicted - 1e-6 == pytest.approx(2 * (few.predicted - 1e-6), rel=0.15)
    assert walk.predicted == pytest.approx(439e-6, rel=0.4)


def test_a_chunk_is_among_the_keys_of_its_row_and_sequences_without_a_key_are_refused(tmp_path: Path) -> None:
    of_h100 = "H100,mistralai/Mixtral-8x7B-v0.1,4"
    chunk, none, plain = stepped(
        tmp_path,
        f"{of_h100},prefill,32,8,4096,1,768,768,FLASH_ATTENTION,24.944",
        f"{of_h100},decode,32,8,4096,40,0,32,FLASH_ATTENTION,2.6",
        f"RTX3090,{of_h100.split(',', 1)[1]},decode,32,8,4096,4,0,4096,,12",
    )
    assert chunk.predicted == pytest.approx(24.9e-6, rel=0.4)
    assert none.refused == "fewer keys than sequences: a call that returns at once"
    assert plain.refused == "rtx_3090 has no facts of attention kernels"


def test_a_kernel_of_prompts_alone_is_no_parts_own() -> None:
    """What a part serves by itself decodes: A6000's calls of whole caches are asked for by name."""
    gpu = gpu_of(read_architecture("a6000"))
    assert gpu is not None
    assert kernel_of(gpu.facts, None) is None
    assert kernel_of(gpu.facts, "fa2_unsplit") is not None


def test_calibrate_reads_chunks_beside_sequences_that_decode(tmp_path: Path) -> None:
    """Rows that a kernel makes by its own form, chunks alone and beside sequences that decode, give its numbers back."""
    truth = prefill(start="6 us", rate={"128": 0.6}, block={"128": "1 us"}, rows=64, groups="apart", tail=0.4, memory=0.9)
    rows = [(chunk, before, many, keys) for chunk in (64, 512, 2048) for before in (0, 4096) for many in (0, 8, 64) for keys in (256, 4096)]
    head = {"kv_heads": 8, "group": 4, "head": 128}
    gpu = gpu_of(read_architecture("rtx_4090"))
    assert gpu is not None
    device = AttentionPart(compute=gpu.compute, units=gpu.units, blocks=gpu.blocks, bandwidth=gpu.bandwidth).device(16)
    lines = ["gpu,model,dtype,tp,prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"]
    for chunk, before, many, keys in rows:
        chunks = sizes_of(sequences=1, queries=chunk, context=before + chunk, keys=seen_keys(chunk, before + chunk, 0.0), **head)
        decodes = sizes_of(sequences=many, queries=1, context=keys if many else 1, keys=keys if many else 1, **head)
        seconds = mixed_seconds(truth, device, chunks, decodes)[0]
        lines.append(f"RTX4090,meta-llama/Llama-3.1-8B,bf16,1,{chunk},{before},{many},{keys if many else 0},{1e6 * seconds:.6g}")
    file = tmp_path / "llmservingsim_mixed_attention.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    (found,) = calibrate("rtx_4090", [file])
    assert isinstance(found, CalibratedAttention)
    assert (found.calls.kernel, found.calls.use, len(found.calls)) == ("fa2", "prefill", len(rows))
    assert isinstance(found.fit.facts, PrefillAttention)
    assert found.fit.facts.rate["128"] == pytest.approx(0.6, rel=0.03)
    with pytest.raises(InputError, match="they name no kernel"):
        calibrate("a6000", [file])
    assert found.fit.inside.mean() < 0.01
