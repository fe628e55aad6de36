"""Products of experts: how tokens fall on ranks, a call's parts by hand, a product in a step, rows of files, how near parts are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel.calibration.fit_grouped import BEGIN, HANDED, RANGES, ExpertCalls, _least, fit_grouped, like_of, said_of
from rackmodel.calibration.part import _fellow, _no_longer, calibrate, part_alone, part_text
from rackmodel.cost.inside.expert_ops import grouped_of
from rackmodel.cost.inside.experts import (
    ExpertDevice,
    ExpertLayer,
    call_seconds,
    compute_part,
    laid_rows,
    memory_part,
    moving_seconds,
)
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.products import together
from rackmodel.cost.inside.routing import ROWS, Routing, _counts, load_of
from rackmodel.cost.program.tasks import LocalOp, Volume
from rackmodel.cost.step.tasks.merged import side_by_side
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.model.grouped import Grouped
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import Kernels
from rackmodel.setting import local_pricer
from rackmodel.validation.experts import expert_case, layer_of, loads_of
from rackmodel.validation.products import local_operation
from rackmodel.validation.rows import read_rows
from rackmodel.validation.run import validate
from rackmodel.validation.single import OneCall, time_of
from rackmodel.validation.words import Refused, words

PUBLISHED = Path(__file__).parent / "data" / "published" / "experts.csv"
DEVICE = ExpertDevice(peak=100e12, blocks=100, bandwidth=1e12, weight=2.0, activation=2.0)


def facts(**changes: object) -> Grouped:
    said = {"weights": "16 bit", "activations": "16 bit", "start": "20 us", "spread": "5 us", "rate": 0.5, "load": "100 GB/s"}
    return Grouped.model_validate({**said, "memory": 0.8, "moving": 0.5, "unaligned": 0.25, **changes})


def layer(tokens: list[float], *, chosen: float = 2, ranks: int = 1, hidden: float = 1024, inter: float = 512) -> ExpertLayer:
    count = np.array(tokens, dtype=np.float64)
    same = np.ones_like(count)
    return ExpertLayer(tokens=count, hidden=hidden * same, inter=inter * same, gated=same, every=chosen * count, spread=same * (ranks > 1))


# -- how tokens fall on experts -----------------------------------------------------------------------------------------------


def test_balanced_tokens_by_hand() -> None:
    # 20 tokens, 2 of 8 experts each: 5 an expert; a rank of two holds 4 experts with a block of rows each
    load = load_of(np.array([20.0, 1.0, 100.0]), Routing(experts=8, chosen=2, ranks=2))
    assert load.pairs == pytest.approx([20, 1, 100])
    assert load.hit == pytest.approx([4, 1, 4])
    assert load.blocks[:, ROWS.index(16)] == pytest.approx([4, 1, 4 * 2])  # 25 rows an expert: two blocks of 16
    assert load.blocks[:, ROWS.index(32)] == pytest.approx([4, 1, 4])


@pytest.mark.parametrize("tokens", [1, 7, 64, 4096])
def test_a_power_law_deals_every_choice_and_no_expert_a_token_twice(tokens: int) -> None:
    counts = _counts(tokens, Routing(experts=128, chosen=8, ranks=8, skew=1.2))
    assert counts.sum(axis=1) == pytest.approx(8 * tokens)
    assert counts.min() >= 0
    assert counts.max() <= tokens


def test_the_busiest_rank_has_more_than_its_share_and_skew_hits_fewer_experts() -> None:
    tokens = np.array([64.0, 1024.0, 5000.0])
    even, skewed = (load_of(tokens, Routing(experts=128, chosen=8, ranks=8, skew=skew)) for skew in (0.0, 1.2))
    assert np.all(skewed.pairs > 1.2 * even.pairs)
    assert np.all(np.diff(skewed.pairs) > 0)
    alone, uneven = (load_of(tokens, Routing(experts=128, chosen=8, skew=skew)) for skew in (0.0, 1.2))
    assert np.all(uneven.hit <= alone.hit)
    assert uneven.pairs == pytest.approx(alone.pairs, rel=1e-6)


def test_loads_are_the_same_every_time_and_in_any_company() -> None:
    routing = Routing(experts=64, chosen=4, ranks=4, skew=1.01)
    together = load_of(np.array([3.0, 64.0, 1000.0]), routing)
    assert load_of(np.array([64.0]), routing).hit[0] == together.hit[1]
    assert load_of(np.array([1000.0]), routing).pairs[0] == pytest.approx(together.pairs[2], rel=1e-12)


# -- a call by hand -----------------------------------------------------------------------------------------------------------


def test_a_call_by_hand() -> None:
    # one token, 2 of 8 experts: weights of two experts at 0.8 of 1 TB/s bind; up has 2 x 512 columns, down 1,024
    load = load_of(np.array([1.0]), Routing(experts=8, chosen=2))
    up = memory_part(facts(), DEVICE, load, 2.0, 1024.0, 1024.0)
    assert up == pytest.approx(2 * 1024 * 1024 * 2 / 0.8e12 + 2 * (1024 * 2 + 1024 * 2) / 0.5e12)
    # 64 blocks of 16 x 32 are one wave, each at half of 1 TFLOP/s
    work = 2 * 16 * 32 * 1024 / 0.5e12
    down = memory_part(facts(), DEVICE, load, 2.0, 1024.0, 512.0)
    products = (up**2.5 + work**2.5) ** 0.4 + (down**2.5 + (work / 2) ** 2.5) ** 0.4
    moved = (2 * 2 * (1024 + 512 + 1024) + 4 * 1024) / 0.5e12
    assert call_seconds(facts(), DEVICE, layer([1.0]), load) == pytest.approx(20e-6 + products + moved)


def test_blocks_that_nobody_tuned_follow_the_tokens_by_hand() -> None:
    """8 tokens on each of 8 experts have 512 blocks of 16 x 32; 9 have 256 of 64 x 64, each eight times the work."""
    device = replace(DEVICE, peak=1e12)
    for tokens, (tm, tn) in ((8.0, (16, 32)), (9.0, (64, 64))):
        load = load_of(np.array([tokens]), Routing(experts=8, chosen=8))
        block = 1024 * max(2 * tm * tn / (0.5 * 1e12 / 100), (tokens + tn) * 2 / 100e9)
        found = compute_part(facts(tuned=False), device, load, 2048.0, 1024.0)
        assert found == pytest.approx(8 * 2048 / tn / 100 * block)
        assert found >= compute_part(facts(), device, load, 2048.0, 1024.0)


def test_weights_that_a_loop_finds_in_a_cache_come_at_its_rate_and_in_a_step_from_the_memory() -> None:
    """Experts of 3.1 MB: of two a cache of 12.6 MB holds 256 parts of 257, of four a half, of eight 1 of 257, at ten times the rate."""
    kept = facts(reuse="12.582912 MB", reuse_bandwidth="8 TB/s")
    looped = replace(DEVICE, looped=True)
    for hit, found in ((2.0, 256 / 257), (4.0, 1 / 2), (8.0, 1 / 257)):
        load = load_of(np.array([hit]), Routing(experts=64, chosen=1))
        own = 1 / (found / 8e12 + (1 - found) / 0.8e12)
        calls = [float(call_seconds(kept, device, layer([hit], chosen=1), load)[0]) for device in (DEVICE, looped)]
        assert calls[0] == float(call_seconds(facts(), looped, layer([hit], chosen=1), load)[0])
        parts = [compute_part(kept, looped, load, n, k) for n, k in ((1024.0, 1024.0), (1024.0, 512.0))]
        moved = [memory_part(kept, looped, load, hit, n, k, own) for n, k in ((1024.0, 1024.0), (1024.0, 512.0))]
        between = (2 * hit * (1024 + 512 + 1024) + 4 * hit * 1024) / 0.5e12
        whole = 20e-6 + sum(together(*pair) for pair in zip(parts, moved, strict=True)) + between
        assert calls[1] == pytest.approx(float(whole[0]))
        assert calls[1] < calls[0]


@pytest.mark.parametrize("said", [{"reuse": "1 MB"}, {"reuse_bandwidth": "1 TB/s"}])
def test_a_cache_that_a_loop_uses_has_bytes_and_a_rate(said: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="reuse: want bytes"):
        facts(**said)


def test_a_fit_finds_the_cache_that_loops_used() -> None:
    own = [row for row in read_rows(PUBLISHED) if row.text("system") == "rtx_pro_6000_server" and row.text("moe_dtype") == "bfloat16"]
    cases, like, device = [expert_case(row) for row in own], like_of(words().expert_precisions["bf16"]), replace(DEVICE, looped=True)
    true = like.model_copy(update={"start_s": 15e-6, "memory": 0.9, "reuse_bytes": 60e6, "reuse_bytes_per_s": 6e12})
    seconds = call_seconds(true, device, layer_of(cases), loads_of(cases))
    calls = ExpertCalls.of(device, like, [replace(case, seconds=float(s)) for case, s in zip(cases, seconds, strict=True)])
    found = _least(replace(calls, cache=96e6), [BEGIN[0]])[1]
    assert found.start_s == pytest.approx(15e-6, rel=0.1)
    assert found.reuse_bytes == pytest.approx(60e6, rel=0.1)
    assert Grouped.model_validate(said_of(found)).reuse_bytes == pytest.approx(found.reuse_bytes, rel=1e-3)


def test_rows_of_sglang_are_of_ranks_whose_first_expert_stands_in_for_others() -> None:
    cases = {row.text("kernel_source"): expert_case(row) for row in read_rows(PUBLISHED) if (row.number("moe_ep_size") or 1) > 1}
    assert cases["sglang_fused_moe_triton"].routing.stand_in
    assert cases["sglang_marlin_moe"].routing.stand_in
    assert not any(case.routing.stand_in for source, case in cases.items() if not source.startswith("sglang"))


def test_a_call_that_is_laid_out_for_the_worst_case_by_hand() -> None:
    # 5 tokens, 2 of 8 experts each, 128 rows an expert: 10 + 8 x 127 = 1,026, in whole blocks 1,152, whatever is hit
    kernel, load = facts(laid_out=128), load_of(np.array([5.0]), Routing(experts=8, chosen=2))
    laid = laid_rows(kernel, 10.0, load.held)
    assert laid is not None
    assert laid == pytest.approx([1152])
    # 1,152 rows are 9 blocks of 128, 36 of 128 x 256: one wave of 100 SMs; all their operands come, 128 x 2 + 256 x 2 B at 1 GB/s an SM
    whole = [
        max(1.0, 1152 / tm * np.ceil(1024 / tn) / 100) * 1024 * max(2 * tm * tn / 0.5e12, (tm * 2 + tn * 2) / 100e9)
        for tm in ROWS
        for tn in (32, 64, 128, 256)
    ]
    assert compute_part(kernel, DEVICE, load, 1024.0, 1024.0, laid) == pytest.approx(min(whole))
    up = memory_part(kernel, DEVICE, load, laid, 1024.0, 1024.0)
    assert up == pytest.approx(load.hit * 1024 * 1024 * 2 / 0.8e12 + 1152 * (1024 * 2 + 1024 * 2) / 0.5e12)
    # beside the products the activation and a kernel that quantises go through all rows
    plain = call_seconds(facts(), DEVICE, layer([5.0]), load)
    assert call_seconds(kernel, DEVICE, layer([5.0]), load) - plain > 1152 * 512 * (2 + 2) / 0.5e12


def test_no_way_that_tokens_fall_on_experts_needs_more_rows_than_are_laid_out() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        experts, tokens = int(draw.integers(1, 64)), int(draw.integers(1, 500))
        counts = draw.multinomial(tokens, draw.dirichlet(np.full(experts, 0.3)))
        laid = laid_rows(facts(laid_out=128), float(tokens), float(experts))
        assert laid is not None
        assert (np.ceil(counts / 128) * 128).sum() <= laid
    assert laid_rows(facts(), 10.0, 8.0) is None


def test_what_is_laid_out_is_a_number_of_rows() -> None:
    with pytest.raises(ValueError, match="laid_out is a number of rows"):
        facts(laid_out=0.5)


def test_ranks_cost_a_start_and_a_kernel_may_move_the_rows_of_all() -> None:
    load = load_of(np.array([4096.0]), Routing(experts=64, chosen=2, ranks=8))
    here, everywhere = (float(call_seconds(facts(rows=rows), DEVICE, layer([4096.0], ranks=8), load)[0]) for rows in ("local", "all"))
    assert everywhere > 2 * here
    near = float(call_seconds(facts(spread="0 us"), DEVICE, layer([4096.0], ranks=8), load)[0])
    assert here - near == pytest.approx(5e-6)


def test_more_tokens_never_take_less() -> None:
    tokens = [float(2**d) for d in range(16)]
    load = load_of(np.array(tokens), Routing(experts=64, chosen=8))
    assert np.all(np.diff(call_seconds(facts(), DEVICE, layer(tokens, chosen=8), load)) >= 0)


def test_rows_that_the_cache_holds_from_kernel_to_kernel_move_faster_by_hand() -> None:
    """200 tokens, 2 of 8 experts: rows of 512 columns are 0.4096 MB, which a cache of as many holds half. Four times as fast there."""
    device, kernel = replace(DEVICE, cache=400 * 512 * 2.0), facts(cached=4)
    held = {columns: 1 - 1 / (1 + (512 / columns) ** 4) for columns in (512, 1024)}
    slow = {columns: 400 * columns * 2 / 0.5e12 for columns in held}
    for columns, seconds in slow.items():
        found = moving_seconds(kernel, device, np.array([400 * columns * 2.0]))
        assert found == pytest.approx(seconds * (1 - held[columns] + held[columns] / 4))
        assert moving_seconds(kernel, DEVICE, np.array([400 * columns * 2.0])) == pytest.approx(seconds)  # a GPU without a cache
    load = load_of(np.array([200.0]), Routing(experts=8, chosen=2))
    whole = [float(call_seconds(one, device, layer([200.0]), load)[0]) for one in (facts(), kernel)]
    parts = [
        sum(
            float(together(compute_part(one, device, load, n, k), memory_part(one, device, load, load.pairs, n, k))[0])
            for n, k in ((1024.0, 1024.0), (1024.0, 512.0))
        )
        for one in (facts(), kernel)
    ]
    # beside the products: 1,024 columns of gate and up, 512 activated, 1,024 of the result; 200 tokens of 1,024 in and out are as 512
    between = sum(times * slow[columns] * held[columns] * 0.75 for columns, times in ((1024, 2), (512, 3)))
    assert whole[0] - whole[1] == pytest.approx(parts[0] - parts[1] + between)
    assert parts[0] > parts[1]


def test_kernels_that_quantise_between_the_products_read_16_bit_and_write_what_is_multiplied() -> None:
    load, device = load_of(np.array([64.0]), Routing(experts=8, chosen=2)), replace(DEVICE, weight=1.0, activation=1.0)
    within, apart = (
        float(call_seconds(facts(weights="8 bit", activations="8 bit", quantised=how), device, layer([64.0]), load)[0])
        for how in ("within", "apart")
    )
    assert apart - within == pytest.approx((64 * 1024 + 128 * 512) * (2 + 1) / 0.5e12)


def test_a_step_pays_for_kernels_that_quantise_and_moves_faster_what_the_cache_holds() -> None:
    """Gate and up on an L40S: 64 tokens of 4,096, four experts of 64 each; rows of 0.5 and 2 MB stay in 96 MB."""
    one = np.ones((1, 1), dtype=np.int64)
    form, sizes = products(64, 64, 4)[0]
    gate = replace(routed(form, sizes, 4 / 64), bits=8)
    gate = replace(gate, operands=tuple(replace(operand, bits=8) for operand in gate.operands))
    both = side_by_side([gate, replace(gate, reads=(gate.reads[0], replace(gate.reads[1], tensor="V")))], one)
    machine = part_alone("l40s")
    gpu = gpu_of(machine)
    assert gpu is not None
    kernel, found = gpu.facts.grouped["triton fp8"], list[float]()
    for changes in ({}, {"quantised": "within"}, {"cached": 1.0}):
        changed = gpu.facts.model_copy(update={"grouped": {"triton fp8": kernel.model_copy(update=changes)}})
        found.append(float(KernelPricer(fitted=True, facts=changed)(machine, both, one)[1][0]))
    whole, within, slow = found
    assert within < whole < slow


def test_a_kernel_cannot_be_fast_on_what_no_cache_is_said_to_hold_nor_quantise_16_bit() -> None:
    with pytest.raises(InputError, match="no level below the memory says what it holds"):
        gpu_of(read_architecture("l40s_node", ["l2.memory.capacity=null"]))
    with pytest.raises(ValueError, match="nothing quantises rows of 16 bit"):
        Kernels.model_validate({"efficiency": 0.9, "grouped": {"mine": {**said_of(facts()), "quantised": "apart"}}})


def test_a_part_that_is_written_says_of_a_kernel_what_its_fit_no_longer_finds() -> None:
    """The part extends the one that it started from, whose words would stand beside its own."""
    before = facts(cached=2, reuse="10 MB", reuse_bandwidth="5 TB/s")
    assert _no_longer(before) == {"unaligned": 1.0, "cached": 1.0, "reuse": "0 B", "reuse_bandwidth": None}
    merged = Grouped.model_validate({**said_of(before), **_no_longer(before), **said_of(facts(unaligned=1))})
    assert (merged.cached, merged.reuse_bytes, merged.reuse_bytes_per_s, merged.unaligned) == (1, 0, None, 1)
    assert _no_longer(facts(unaligned=1)) == _no_longer(None) == {}


def test_a_fit_finds_that_the_cache_holds_rows_from_kernel_to_kernel() -> None:
    cases = [expert_case(row) for row in read_rows(PUBLISHED) if row.text("system") == "h200_sxm" and row.text("moe_dtype") == "bfloat16"]
    like, device = like_of(words().expert_precisions["bf16"]), replace(DEVICE, cache=40e6)
    true = like.model_copy(update={"start_s": 15e-6, "memory": 0.9, "moving": 0.3, "cached": 5.0})
    seconds = call_seconds(true, device, layer_of(cases), loads_of(cases))
    calls = ExpertCalls.of(device, like, [replace(case, seconds=float(s)) for case, s in zip(cases, seconds, strict=True)])
    given = tuple(name for name in RANGES if name not in ("start_s", "memory", "moving"))
    cost, found = _least(replace(calls, handed=True, given=given), BEGIN[:1])
    assert (found.cached, found.moving) == pytest.approx((5.0, 0.3), rel=0.05)
    assert cost < HANDED * _least(replace(calls, given=given), BEGIN[:1])[0]
    assert Grouped.model_validate(said_of(found)).cached == pytest.approx(5.0, rel=0.05)


def test_rows_that_are_not_aligned_are_slower() -> None:
    load = load_of(np.array([64.0]), Routing(experts=8, chosen=2))
    odd, even = (float(call_seconds(facts(), DEVICE, layer([64.0], inter=inter), load)[0]) for inter in (508, 512))
    assert odd > 1.2 * even


def test_weights_of_tritons_kernels_are_aligned_by_elements() -> None:
    """Rows of 232 elements of 16 bit are 29 times 16 bytes, and no multiple of 16 elements, which is all that Triton knows of a stride."""
    load = load_of(np.array([64.0]), Routing(experts=8, chosen=2))
    by_bytes, by_elements = (
        [float(call_seconds(facts(aligned=aligned), DEVICE, layer([64.0], inter=inter), load)[0]) for inter in (232, 240)]
        for aligned in ("bytes", "elements")
    )
    assert by_bytes[0] < by_bytes[1] == by_elements[1]
    assert by_elements[0] > 1.1 * by_elements[1]


# -- in a step ----------------------------------------------------------------------------------------------------------------


def products(tokens: int, experts: int, chosen: int) -> list[tuple[str, dict[str, int]]]:
    hidden, inter = 4096, 2048
    sizes = {"s": tokens, "x": experts}
    up = ("Y[s,x,f] = X[s,x,d] * W[x,d,f]", {**sizes, "f": inter, "d": hidden})
    return [up, up, ("Y[s,x,d] = X[s,x,f] * W[x,f,d]", {**sizes, "f": inter, "d": hidden})]


def routed(form: str, sizes: dict[str, int], density: float) -> LocalOp:
    """The product of a form whose activations hold a share of their elements."""
    local_op = local_operation(form, sizes, 16)
    reads, writes = (
        tuple(flow if flow.tensor == "W" else replace(flow, volume=Volume(flow.volume.total * density)) for flow in flows)
        for flows in (local_op.reads, local_op.writes)
    )
    return replace(local_op, reads=reads, writes=writes, density=density)


def test_in_a_step_of_training_products_over_experts_multiply_at_their_share_of_the_rate_of_those_alone() -> None:
    one, kept = np.ones((1, 1), dtype=np.int64), "tensor_core.compute.kernels.over_experts"
    ones, halves = (read_architecture("h100", [f"{kept}={share}"]) for share in (1, 0.5))
    form, sizes = products(65536, 8, 2)[0]

    def seconds(machine: Architecture, density: float) -> float:
        return float(KernelPricer(lasting=True)(machine, routed(form, sizes, density), one)[1][0])

    assert seconds(halves, 1.0) == seconds(ones, 1.0)  # every expert takes every row: a batch of products, which stand alone
    assert seconds(halves, 2 / 8) == pytest.approx(2 * seconds(ones, 2 / 8), rel=0.02)  # bound by what they multiply


@pytest.mark.parametrize("tokens", [1, 64, 4096])
def test_three_products_over_experts_are_a_call_but_for_what_is_between_them(tokens: int) -> None:
    h100, one = read_architecture("h100"), np.ones((1, 1), dtype=np.int64)
    gpu = gpu_of(h100)
    assert gpu is not None
    seconds = 0.0
    for form, sizes in products(tokens, 64, 4):
        rows, duration = KernelPricer(fitted=True)(h100, routed(form, sizes, 4 / 64), one)
        assert sum(float(np.sum(row.exposed)) for row in rows) == pytest.approx(float(duration[0]))
        read = next(row for row in rows if row.tensor == "W" and row.level == gpu.memory)
        assert read.amount == pytest.approx(min(64, 4 * tokens) * 4096 * 2048 * 2)
        seconds += float(duration[0])
    load = load_of(np.array([float(tokens)]), Routing(experts=64, chosen=4))
    device = ExpertDevice(peak=989.4e12, blocks=132, bandwidth=3.35e12, weight=2, activation=2)
    call = call_seconds(gpu.facts.grouped["triton bf16"], device, layer([tokens], chosen=4, hidden=4096, inter=2048), load)
    assert seconds == pytest.approx(float(call[0]), rel=0.25)


@pytest.mark.parametrize("tokens", [1, 64])
def test_gate_and_up_side_by_side_are_the_first_product_of_a_call(tokens: int) -> None:
    h100, one = read_architecture("h100"), np.ones((1, 1), dtype=np.int64)
    gpu = gpu_of(h100)
    assert gpu is not None
    form, sizes = products(tokens, 64, 4)[0]
    gate = routed(form, sizes, 4 / 64)
    up = replace(gate, reads=(gate.reads[0], replace(gate.reads[1], tensor="V")))
    rows, duration = KernelPricer(fitted=True)(h100, side_by_side([gate, up], one), one)
    read = {
        row.tensor: float(np.sum(row.amount)) for row in rows if row.level == gpu.memory and row.action == "read" and row.tensor in "WV"
    }
    assert read == pytest.approx(dict.fromkeys("WV", min(64, 4 * tokens) * 4096 * 2048 * 2))
    facts = gpu.facts.grouped["triton bf16"]
    load = load_of(np.array([float(tokens)]), Routing(experts=64, chosen=4))
    device = ExpertDevice(peak=989.4e12, blocks=132, bandwidth=3.35e12, weight=2, activation=2)
    parts = compute_part(facts, device, load, 4096.0, 4096.0), memory_part(facts, device, load, load.pairs, 4096.0, 4096.0)
    assert float(duration[0]) == pytest.approx(float(together(*parts)[0]) + facts.start_s * 2 / 3, rel=0.02)


def test_a_kernel_is_the_first_preferred_one_that_a_part_has() -> None:
    b300, one = read_architecture("dgx_b300"), np.ones((1, 1), dtype=np.int64)
    form, sizes = products(64, 64, 4)[0]
    local_op = routed(form, sizes, 4 / 64)
    alone, preferred = (
        float(KernelPricer(fitted=True, experts=words)(b300, local_op, one)[1][0]) for words in ("cutlass", "none cutlass trtllm")
    )
    assert alone == preferred


def test_a_kernel_is_chosen_by_its_operands_and_by_name() -> None:
    b300, one = read_architecture("dgx_b300"), np.ones((1, 1), dtype=np.int64)
    form, sizes = products(64, 64, 4)[0]
    local_op = routed(form, sizes, 4 / 64)
    first, second = (float(KernelPricer(fitted=True, experts=name)(b300, local_op, one)[1][0]) for name in ("", "cutlass"))
    assert first != second


def test_a_word_may_count_only_where_an_accelerator_holds_experts_of_its_own() -> None:
    known = {"triton bf16": facts(), "cutlass bf16": facts(start="30 us"), "trtllm modular bf16": facts(start="40 us")}
    form, sizes = products(64, 64, 4)[0]
    local_op = routed(form, sizes, 4 / 64)
    starts = {
        words: tuple(round(one.start_s * 1e6) for one in found)
        for words in ("triton", "dealt:cutlass triton", "cutlass dealt:triton", "trtllm_modular", "dealt:none")
        if (found := grouped_of(known, local_op, words)) is not None
    }
    assert starts == {
        "triton": (20, 20),
        "dealt:cutlass triton": (20, 30),
        "cutlass dealt:triton": (30, 30),
        "trtllm_modular": (40, 40),
        "dealt:none": (20, 20),
    }


def test_a_profile_says_whose_kernels_multiply_over_experts() -> None:
    fitted = ProfileSpec.model_validate({"profile": "mine", "kernels": "fitted", "experts": "cutlass"})
    assert local_pricer(fitted) == KernelPricer(fitted=True, experts="cutlass")


def test_one_call_is_priced_alone() -> None:
    asked = OneCall("64x4096x2048x4x64")
    found = time_of(read_architecture("h100"), "experts", asked)
    load = load_of(np.array([64.0]), Routing(experts=64, chosen=4))
    device = ExpertDevice(peak=989.4e12, blocks=132, bandwidth=3.35e12, weight=2, activation=2)
    gpu = gpu_of(read_architecture("h100"))
    assert gpu is not None
    want = call_seconds(gpu.facts.grouped["triton bf16"], device, layer([64], chosen=4, hidden=4096, inter=2048), load)
    assert found.seconds == pytest.approx(float(want[0]), rel=1e-4)
    for shape, precision, said in (
        ("64x4096x2048x4", "", "5 or 6"),
        ("1x8x8x9x8", "", "more chosen"),
        ("1x8x8x2x8", "tritn", "no kernel"),
    ):
        with pytest.raises(InputError, match=said):
            time_of(read_architecture("h100"), "experts", OneCall(shape, precision))


# -- files --------------------------------------------------------------------------------------------------------------------


def test_shipped_kernels_are_near_what_was_measured() -> None:
    report = validate([PUBLISHED]).datasets[0]
    assert report.refused == {}
    assert report.score is not None
    assert report.score.median < 9
    assert report.score.mean < 15


HEAD = (
    "system,version,kernel_source,moe_dtype,distribution,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "latency_us"
)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("h100_sxm,1,tritn,bfloat16,balanced,8,1024,512,2,8,1,1,50", "no kernel of experts called"),
        ("h100_sxm,1,vllm_fused_moe,bf17,balanced,8,1024,512,2,8,1,1,50", "no precision of experts called"),
        ("h100_sxm,1,vllm_fused_moe,bfloat16,zipf,8,1024,512,2,8,1,1,50", "no routing called 'zipf'"),
        ("h100_sxm,1,vllm_fused_moe,bfloat16,balanced,8,1024,512,2,8,1,3,50", "do not divide"),
        ("h100_sxm,1,vllm_fused_moe,nvfp4,balanced,8,1024,512,2,8,1,1,50", "states no kernel 'triton nvfp4'"),
        ("h100_sxm,1,vllm_fused_moe,bfloat16,balanced,8,1024,512,2,8,1,1,", "no latency_us"),
    ],
)
def test_rows_that_cannot_be_priced_are_refused_by_name(row: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "moe.csv"
    file.write_text(f"{HEAD}\n{row}\n", encoding="utf-8")
    (refused,) = validate([file]).rows
    assert said in refused.refused


def test_a_kernel_that_a_part_lacks_is_priced_as_another_of_the_same_operands_and_told(tmp_path: Path) -> None:
    file = tmp_path / "moe.csv"
    modular = "vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmodular"
    kernels = ("h100_sxm,1,vllm_fused_moe", f"gb300,1,{modular}")
    rows = [f"{kernel},fp8,balanced,8,1024,512,2,8,1,1,50" for kernel in kernels]
    file.write_text("\n".join([HEAD, *rows]), encoding="utf-8")
    told = [row.assumptions for row in validate([file]).rows]
    assert "dgx_h100 states no kernel 'triton fp8': priced as its 'cutlass fp8'" in told[0]
    assert "gb300_nvl72 states no kernel 'trtllm modular fp8': priced as its 'trtllm fp8'" in told[1]


def test_experts_without_a_gate_are_those_that_a_file_names() -> None:
    values = "h100_sxm,0.24.0,vllm_fused_moe,bfloat16,balanced,8,2688,1856,6,128,1,1,50"
    cells = dict(zip(HEAD.split(","), values.split(","), strict=True))
    row = replace(read_rows(PUBLISHED)[0], cells=cells)
    assert not expert_case(row).gated
    assert expert_case(replace(row, cells={**cells, "version": "0.22.0"})).gated
    with pytest.raises(Refused):
        expert_case(replace(row, cells={**cells, "topk": "200"}))


def test_products_that_are_called_one_by_one_are_the_whole_call_less_what_lies_between() -> None:
    """Up and down each start once; what a whole call moves besides: 40 pairs of a token and an expert of 1024, 3 x 512 between them, 2 B
    each, and 20 tokens in and out once, at half of 1 TB/s."""
    whole, load = layer([20.0]), load_of(np.array([20.0]), Routing(experts=8, chosen=2))
    one, none = np.ones(1), np.zeros(1)
    up = call_seconds(facts(), DEVICE, replace(whole, up=one, down=none), load)
    down = call_seconds(facts(), DEVICE, replace(whole, up=none, down=one), load)
    between = (2 * 40 * (2 * 512 + 512 + 1024) + 4 * 20 * 1024) / 0.5e12
    assert up + down - 20e-6 + between == pytest.approx(call_seconds(facts(), DEVICE, whole, load))
    assert float(up[0]) > float(down[0])  # a gate beside it


def test_a_part_of_a_call_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "moe.csv"
    file.write_text(f"{HEAD},moe_part\nh100_sxm,0.24.0,vllm_fused_moe,bfloat16,balanced,8,2688,1856,6,128,1,1,50,gate\n", encoding="utf-8")
    assert "no part 'gate'" in validate([file]).rows[0].refused
    with pytest.raises(InputError, match=r"moe.csv:2"):
        calibrate("h100_sxm", [file])


def test_a_fit_finds_the_numbers_that_made_its_rows() -> None:
    cases = [expert_case(row) for row in read_rows(PUBLISHED) if row.text("system") == "h200_sxm" and row.text("moe_dtype") == "bfloat16"]
    like = like_of(words().expert_precisions["bf16"])
    true = like.model_copy(update={"start_s": 15e-6, "spread_s": 4e-6, "rate": 0.5, "memory": 0.9, "step_s": 0.5e-9})
    seconds = call_seconds(true, DEVICE, layer_of(cases), loads_of(cases))
    calls = ExpertCalls.of(DEVICE, like, [replace(case, seconds=float(s)) for case, s in zip(cases, seconds, strict=True)])
    found = fit_grouped(calls, "toy")
    assert found.inside.mean() < 0.03
    assert found.facts.memory == pytest.approx(0.9, rel=0.1)
    assert said_of(found.facts)["rows"] == "local"


def test_a_fit_finds_a_kernel_a_hundred_times_as_slow_on_rows_that_are_not_aligned() -> None:
    """1,856 columns over 16 ranks are rows of 116 bytes at 8 bit: a kernel may be far slower there than 20 times."""
    cases = [expert_case(row) for row in read_rows(PUBLISHED) if row.text("system") == "h200_sxm" and row.text("moe_dtype") == "bfloat16"]
    like, device = like_of(words().expert_precisions["fp8"]), replace(DEVICE, weight=1.0, activation=1.0)
    true = like.model_copy(update={"unaligned": 0.01, "rate": 0.5, "memory": 0.9, "step_s": 0.5e-9})
    seconds = call_seconds(true, device, layer_of(cases), loads_of(cases))
    calls = ExpertCalls.of(device, like, [replace(case, seconds=float(s)) for case, s in zip(cases, seconds, strict=True)])
    alone = replace(calls, like=true, given=tuple(name for name in RANGES if name != "unaligned"))
    assert _least(alone, [BEGIN[2]])[1].unaligned == pytest.approx(0.01, rel=0.05)


def test_a_kernel_of_few_shapes_starts_as_its_library_does() -> None:
    own = [expert_case(row) for row in read_rows(PUBLISHED) if row.text("system") == "h200_sxm" and row.text("moe_dtype") == "bfloat16"]
    other, like = facts(start="17 us", spread="3 us"), like_of(words().expert_precisions["bf16"])
    shapes = list(dict.fromkeys(case.shape for case in own))
    few = ExpertCalls.of(DEVICE, like, [case for case in own if case.shape in shapes[:4]])
    more = ExpertCalls.of(DEVICE, like, [case for case in own if case.shape in shapes[:5]])
    assert more.starting_as(other) is more
    assert few.starting_as(None) is few
    found = _least(few.starting_as(other), [BEGIN[0]])[1]
    assert (found.start_s, found.spread_s) == (17e-6, 3e-6)
    assert found.memory != like.memory
    plain, blocks = facts(), facts(family="fp8_block")
    fitted, counts = {"a bf16": plain, "a fp8": blocks, "b bf16": plain}, {"a bf16": 8, "a fp8": 9, "b bf16": 4}
    assert _fellow("a nvfp4", plain, fitted, counts) is plain
    assert _fellow("a nvfp4", blocks, fitted, counts) is None  # one that quantises by a kernel before it starts otherwise
    assert _fellow("b nvfp4", plain, fitted, counts) is None  # too few shapes itself


def test_calibrate_reads_calls_of_experts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--gpu"):
        calibrate("h100_sxm", [PUBLISHED])
    lines = PUBLISHED.read_text(encoding="utf-8").splitlines()
    file = tmp_path / "moe.csv"
    file.write_text("\n".join([lines[0], *(line for line in lines if "rtx_pro_6000_server" in line and "bfloat16" in line)]) + "\n")
    (one,) = calibrate("rtx_pro_6000", [file])
    assert (one.of, one.name) == ("grouped", "cutlass bf16")
    assert "cutlass bf16" in part_text("rtx_pro_6000", "mine", [one])


def test_trained_routers_hit_as_many_experts_as_was_counted() -> None:
    """Qwen3-30B-A3B: all that even choices hit with one token, 0.87 of it through the middle, 0.94 where 128 sequences decode."""
    tokens = np.array([1.0, 4.0, 16.0, 64.0, 128.0, 4096.0])
    even = 128 * (1 - (1 - 8 / 128) ** tokens)
    alone = load_of(tokens, Routing(experts=128, chosen=8, skew=1.2, trained=True))
    assert alone.hit / even == pytest.approx([1.0, 0.87, 0.87, 0.87, 0.94, 1.0])
    drawn = load_of(tokens, Routing(experts=128, chosen=8, skew=1.2))
    assert alone.pairs == pytest.approx(drawn.pairs)
    assert np.all(alone.blocks >= alone.hit[:, None] * (1 - 1e-12))
    assert np.all(np.diff(load_of(np.arange(1.0, 600.0), Routing(experts=128, chosen=8, skew=1.2, trained=True)).hit) > -1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_no_rank_hits_more_experts_than_it_has_or_than_tokens_choose(ranks: int) -> None:
    tokens = np.array([1.0, 2.0, 3.0, 7.0, 31.0, 100.0, 1000.0, 20000.0])
    load = load_of(tokens, Routing(experts=64, chosen=4, ranks=ranks, skew=1.01, trained=True))
    assert np.all(load.hit <= np.minimum(load.pairs, 64 / ranks) * (1 + 1e-12))
    even = load_of(tokens, Routing(experts=64, chosen=4, ranks=ranks, trained=True))
    assert even.hit == pytest.approx(load_of(tokens, Routing(experts=64, chosen=4, ranks=ranks)).hit)
