"""Kernels of a GPU's library: published times of single operations, hand-worked waves, and what never may happen."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import gemm_seconds, isolated_kernel_rows, kernel_rows, roles_of
from rackmodel.cost.inside.roofline import roofline_rows
from rackmodel.cost.program.tasks import AttentionRoles, Flow, LocalOp, Operand, Volume
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.model.einsum import parse_statement
from rackmodel.model.resources import Kernels, Tile
from tests.machines import machine

ONE = np.ones((1, 1), dtype=np.int64)
DATA = Path(__file__).parent / "data" / "published" / "gemm_ops.csv"
GEMM = "Y[m,n] = X[m,k] * W[k,n]"
BATCHED = "Y[b,m,n] = X[b,m,k] * Z[b,k,n]"


@cache
def gpu(name: str) -> Architecture:
    return read_architecture(name)


def product(text: str, sizes: dict[str, int], axes: Mapping[str, tuple[int, ...]] | None = None, **more: Any) -> LocalOp:
    """A contraction of 16-bit tensors; the second operand is a weight where it is called W. axes: those that split an index."""
    axes, statement = axes or {}, parse_statement(text)
    operands = [Operand(a.tensor, a, 16, a.tensor == "W") for a in (*statement.ins, statement.out)]

    def flow(operand: Operand) -> Flow:
        names = operand.access.names
        total = 2.0 * np.prod([sizes[name] for name in names])
        return Flow(operand.tensor, Volume(float(total), tuple(axis for name in names for axis in axes.get(name, ()))))

    moved = [flow(operand) for operand in operands]
    space = tuple((index, size, axes.get(index, ())) for index, size in sizes.items())
    local_op = LocalOp(tuple(moved[:-1]), (moved[-1],), space, True, 0.0, 1.0, 16, tuple(operands[:-1]), operands[-1])
    return replace(local_op, **more)


def vector(points: int, **more: Any) -> LocalOp:
    """Reads and writes a 16-bit tensor once."""
    volume = Volume(2.0 * points)
    return replace(LocalOp((Flow("X", volume),), (Flow("Y", volume),), (("i", points, ()),), False, 5.0, 1.0, 16), **more)


def seconds(pricer: Any, architecture: str, local_op: LocalOp) -> float:
    return float(pricer(gpu(architecture), local_op, ONE)[1][0])


def published(name: str, *kinds: str) -> list[tuple[str, list[int], float]]:
    """(id, [batch, m, n, k], seconds); k is 0 where there is none."""
    with DATA.open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["gpu"] == name and row["op"] in kinds]
    return [(row["id"], [int(row[c] or 0) for c in ("batch", "m", "n", "k")], float(row["time_ms"]) * 1e-3) for row in found]


def of_row(sizes: list[int]) -> LocalOp:
    batch, m, n, k = sizes
    return product(GEMM, {"m": m, "n": n, "k": k}) if batch == 1 else product(BATCHED, {"b": batch, "m": m, "n": n, "k": k})


def errors(pricer: Any, name: str, rows: list[tuple[str, list[int], float]]) -> np.ndarray[Any, Any]:
    return np.array([seconds(pricer, name, of_row(sizes)) / measured - 1 for _, sizes, measured in rows])


# -- published times ------------------------------------------------------------------------------------------------------


def test_isolated_matrix_products_of_an_a100_are_met_to_two_percent() -> None:
    found = errors(isolated_kernel_rows, "a100", published("a100", "gemm"))
    assert len(found) == 14
    assert np.abs(found).mean() < 0.02
    assert np.abs(found).max() < 0.045


@pytest.mark.parametrize(("name", "count", "mean", "most"), [("h100", 28, 0.03, 0.16), ("b200", 25, 0.035, 0.13)])
def test_queued_matrix_products_of_newer_gpus_are_met(name: str, count: int, mean: float, most: float) -> None:
    facts = gpu_of(gpu(name))
    assert facts is not None
    peak = facts.compute.matrix(16).rate_flop_per_s * facts.units
    found = []
    for _, sizes, measured in published(name, "gemm"):
        body = gemm_seconds(facts.facts, facts.blocks, peak * facts.facts.efficiency, *sizes)
        found.append((float(body) + facts.facts.start_in_stream_s) / measured - 1)  # all of it fits L2: no memory time
    assert len(found) == count
    assert np.abs(found).mean() < mean
    assert np.abs(found).max() < most


def test_the_best_shape_of_a_sweep_agrees_on_h100_though_no_fit_saw_it() -> None:
    (_, sizes, measured), facts = published("h100", "best_shape")[0], gpu_of(gpu("h100"))
    assert facts is not None
    body = gemm_seconds(facts.facts, facts.blocks, 989.4e12 * facts.facts.efficiency, *sizes)
    assert float(body) + facts.facts.start_in_stream_s == pytest.approx(measured, rel=0.01)


MEASURED = ("products", "grouped", "attention", "vector", "busy", "busy_power_w", "waiting_power_w")
"""On each of the two."""


def test_h200_has_the_facts_of_h100_and_a_faster_memory() -> None:
    short = product(GEMM, {"m": 16, "n": 16384, "k": 16384})
    new, old = (gpu_of(gpu(name)) for name in ("h200", "h100"))
    assert new is not None
    assert old is not None
    measured = {name: getattr(old.facts, name) for name in MEASURED}
    assert new.facts.model_copy(update=measured) == old.facts
    assert seconds(kernel_rows, "h200", short) < seconds(kernel_rows, "h100", short)


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_matrix_products_amid_a_layer_run_at_the_sustained_rate(name: str) -> None:
    rows = published(name, "layer_gemm")
    assert np.abs(errors(kernel_rows, name, rows)).max() < 0.03


def test_softmax_is_met_to_ten_percent_and_layer_norm_only_to_twenty() -> None:
    """By the law of vector kernels that do not stream, which those go by that have no facts of their own."""

    def law(kind: str, more: float = 0.0) -> float:
        rows = published("a100", kind)
        found = [(seconds(isolated_kernel_rows, "a100", vector(s[1] * s[2], kind="gelu")) + more) / t - 1 for _, s, t in rows]
        return float(np.abs(found).mean())

    assert law("softmax") < 0.10
    assert law("layernorm", 46.1e-6 - 14.4e-6) < 0.20  # its start as fitted, over that of softmax


def test_attention_scores_and_their_product_together_take_what_they_took() -> None:
    rows = published("a100", "layer_batched")
    predicted = sum(seconds(isolated_kernel_rows, "a100", of_row(sizes)) for _, sizes, _ in rows)
    assert predicted == pytest.approx(sum(measured for _, _, measured in rows), rel=0.01)


# -- worked by hand -------------------------------------------------------------------------------------------------------


def test_a_product_of_one_wave_by_hand() -> None:
    facts = Kernels(efficiency=0.5, k_fill=28.0)
    # 10 blocks at 1 TFLOP/s: a wave of 128 x 128 x (100 + 28) takes 2 · 16384 · 128 · 10 / 0.5e12 s
    assert gemm_seconds(facts, 10, 0.5e12, 1, 128 * 5, 128 * 2, 100) == pytest.approx(2 * 16384 * 128 * 10 / 0.5e12)


def test_one_tile_more_than_a_full_wave_costs_a_wave() -> None:
    facts = Kernels(efficiency=1.0)
    wave = gemm_seconds(facts, 108, 1e12, 1, 128 * 108, 128, 1024)
    assert gemm_seconds(facts, 108, 1e12, 1, 128 * 108 + 1, 128, 1024) == pytest.approx(2 * wave)
    assert gemm_seconds(facts, 108, 1e12, 108, 1, 1, 1024) == pytest.approx(wave)
    assert gemm_seconds(facts, 108, 1e12, 109, 1, 1, 1024) == pytest.approx(2 * wave)


def test_a_smaller_tile_is_taken_where_it_wins_in_spite_of_its_share() -> None:
    both = Kernels(efficiency=1.0, tiles=(Tile(m=128, n=128), Tile(m=64, n=64, share=0.75)))
    one = Kernels(efficiency=1.0)
    full = gemm_seconds(one, 100, 1e12, 1, 1280, 1280, 512)
    assert gemm_seconds(both, 100, 1e12, 1, 1280, 1280, 512) == full  # four waves of a quarter at 3/4 are slower
    assert gemm_seconds(both, 100, 1e12, 1, 640, 640, 512) == pytest.approx(full / 4 / 0.75)


def test_a_flash_kernel_runs_at_its_share_of_the_peak_and_its_softmax_is_free() -> None:
    facts = gpu_of(gpu("a100")).facts  # type: ignore[union-attr]
    sizes = {"b": 96, "m": 4096, "n": 4096, "k": 128}
    scores = product(BATCHED, sizes, kernel="attention forward", joined=True)
    flops = 2 * 96 * 4096 * 4096 * 128
    scores = replace(scores, writes=(Flow("Y", Volume(0.0)),))
    assert seconds(kernel_rows, "a100", scores) == pytest.approx(flops / (312e12 * facts.named["attention forward"]), rel=1e-5)
    none = {"reads": (Flow("Y", Volume(0.0)),), "writes": (Flow("P", Volume(0.0)),)}
    inside = vector(96 * 4096 * 4096, **none, kernel="attention forward", joined=True)
    assert seconds(kernel_rows, "a100", inside) == 0.0
    last = replace(scores, joined=False)
    assert seconds(kernel_rows, "a100", last) - seconds(kernel_rows, "a100", scores) == pytest.approx(facts.start_in_stream_s)


def test_roles_follow_the_indices() -> None:
    assert roles_of(product(BATCHED, {"b": 2, "m": 3, "n": 4, "k": 5})) == (("b",), ("m",), ("n",), ("k",))
    assert roles_of(product("Y[b,s,h] = X[b,s,d] * W[d,h]", {"b": 2, "s": 3, "h": 4, "d": 5})) == ((), ("b", "s"), ("h",), ("d",))
    assert roles_of(product("Y[m,n] = X[m,n] * Z[n]", {"m": 3, "n": 4})) is None  # element by element
    assert roles_of(product("Y[m] = X[m,k] * Z[m,k]", {"m": 3, "k": 4})) is None  # no free side


def test_a_vector_leg_that_is_joined_has_no_start() -> None:
    start = gpu_of(gpu("h100")).facts.start_in_stream_s  # type: ignore[union-attr]
    alone, joined = (seconds(kernel_rows, "h100", vector(1 << 20, joined=j)) for j in (False, True))
    assert alone - joined == pytest.approx(start)


# -- what holds for every local operation ---------------------------------------------------------------------------------------------

SIZE = st.integers(1, 5000)


@settings(max_examples=60)
@given(batch=st.integers(1, 64), m=SIZE, n=SIZE, k=SIZE, name=st.sampled_from(["a100", "h100", "b200"]), grown=st.sampled_from("bmnk"))
def test_time_never_falls_below_the_roofline_nor_when_a_size_grows(batch: int, m: int, n: int, k: int, name: str, grown: str) -> None:
    sizes = {"b": batch, "m": m, "n": n, "k": k}
    local_op, larger = product(BATCHED, sizes), product(BATCHED, {**sizes, grown: sizes[grown] + 1})
    for pricer in (kernel_rows, isolated_kernel_rows):
        least, found = roofline_rows(gpu(name), local_op, ONE)[1][0], seconds(pricer, name, local_op)
        assert least < found <= seconds(pricer, name, larger) * (1 + 1e-12)


@pytest.mark.parametrize(
    "local_op",
    [
        product(GEMM, {"m": 4096, "n": 4096, "k": 4096}),
        product(GEMM, {"m": 8, "n": 4096, "k": 4096}),
        product(BATCHED, {"b": 96, "m": 2048, "n": 2048, "k": 128}),
        product(BATCHED, {"b": 96, "m": 2048, "n": 2048, "k": 128}, kernel="attention backward"),
        product("Y[m,n] = X[m,n] * Z[n]", {"m": 512, "n": 4096}),
        vector(1 << 24),
        vector(1 << 24, kernel="attention forward", joined=True),
        vector(1, reads=(Flow("X", Volume(0.0)),), writes=(Flow("Y", Volume(0.0)),), per_element=0.0),
    ],
    ids=["large", "short", "batched", "named", "elementwise", "vector", "inside", "empty"],
)
@pytest.mark.parametrize("name", ["a100", "h100", "h200", "b200"])
def test_amounts_and_joules_are_the_rooflines_and_exposed_seconds_sum_to_the_duration(name: str, local_op: LocalOp) -> None:
    plain, _ = roofline_rows(gpu(name), local_op, ONE)
    whole, duration = kernel_rows(gpu(name), local_op, ONE)
    rows = [row for row in whole if row.action not in ("feed", "busy")]
    assert all((row.joules >= 0).all() and not row.seconds.any() for row in whole[len(rows) :])
    assert [(r.tensor, r.level, r.component, r.action, r.unit) for r in rows] == [
        (r.tensor, r.level, r.component, r.action, r.unit) for r in plain
    ]
    for row, before in zip(rows, plain, strict=True):
        assert np.array_equal(row.amount, before.amount)
        assert np.array_equal(row.joules, before.joules)
        assert (row.exposed >= 0).all()
    assert sum(row.exposed for row in rows) == pytest.approx(duration)


def test_a_grid_of_degrees_gives_what_each_mesh_gives_alone() -> None:
    degrees = np.array([(d, t) for d in (1, 3, 8) for t in (1, 2, 7, 64)], dtype=np.int64)
    axes = {"m": (0,), "n": (1,), "b": (1,)}
    local_ops = (product(GEMM, {"m": 4096, "n": 1000, "k": 512}, axes), product(BATCHED, {"b": 96, "m": 2048, "n": 2048, "k": 128}, axes))
    for local_op in local_ops:
        rows, duration = kernel_rows(gpu("a100"), local_op, degrees)
        for i in range(len(degrees)):
            alone, time = kernel_rows(gpu("a100"), local_op, degrees[i : i + 1])
            assert time[0] == pytest.approx(duration[i], rel=1e-12)
            for row, one in zip(rows, alone, strict=True):
                assert row.seconds[i] == pytest.approx(one.seconds[0], rel=1e-12)
                assert row.exposed[i] == pytest.approx(one.exposed[0], rel=1e-12)


def test_an_accelerator_without_facts_is_priced_by_the_roofline() -> None:
    local_op = product(GEMM, {"m": 512, "n": 512, "k": 512})
    rows, duration = kernel_rows(machine(), local_op, ONE)
    plain, floor = roofline_rows(machine(), local_op, ONE)
    assert duration == floor
    assert [row.seconds for row in rows] == [row.seconds for row in plain]


def test_a_kernel_without_a_share_is_refused_with_the_names_that_have_one() -> None:
    with pytest.raises(InputError, match="attention forwards"):
        kernel_rows(gpu("a100"), product(BATCHED, {"b": 2, "m": 64, "n": 64, "k": 64}, kernel="attention forwards"), ONE)


@pytest.mark.parametrize(
    "wrong", [{"efficiency": 1.2}, {"efficiency": 0.0}, {"efficiency": 0.9, "named": {"x": 1.5}}, {"efficiency": 0.9, "sustained": 2}]
)
def test_a_share_above_one_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is a share"):
        Kernels.model_validate(wrong)


def test_what_feeds_a_large_product_on_the_chip_is_worked_by_hand() -> None:
    """H100, 4096 cubed in 16 bit, blocks of 128 x 128: L2 hands out 2 (1/128 + 1/128) bytes a product beyond one pass over both
    operands, shared memory 2 (1/64 + 1/64), registers 2 (1/16 + 1/8) of operands and 4/16 of sums, in and out."""
    rows, _ = kernel_rows(gpu("h100"), product(GEMM, {"m": 4096, "n": 4096, "k": 4096}), ONE)
    feed = {
        level: float(sum(r.amount for r in rows if r.level == level and r.action == "feed")[0]) for level in ("l2", "sm", "tensor_core")
    }
    macs = 4096.0**3
    already = float(sum(r.amount for r in rows if r.level == "l2" and r.action == "read")[0])
    assert feed["l2"] == pytest.approx(macs * 2 * 2 / 128 - already)
    assert feed["sm"] == pytest.approx(macs * (2 * 2 / 64 + 2 * 2 / 128))
    assert feed["tensor_core"] == pytest.approx(macs * (2 * (1 / 16 + 1 / 8) + 2 * 4 / 16))


def test_a_named_attention_kernel_is_slower_for_small_heads_as_the_measured_kernel_of_prompts_is() -> None:
    """On GB200 heads of 64 reach 0.3664 of the peak and heads of 128 0.5893 (its fitted `prefill`): as much slower is a named share."""

    def rate(head: int) -> float:
        sizes = {"b": 1, "g": 8, "q": 8, "s": 8192, "t": 8192, "e": head}
        roles = AttentionRoles(("b",), ("g",), ("q",), ("s",), ("t",), head, head, 0.5, 16)
        scored = product("A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]", sizes, kernel="attention forward", attention=roles)
        still = replace(scored, reads=(Flow("Q", Volume(0.0)),), writes=(Flow("A", Volume(0.0)),))
        return 2.0 * np.prod(list(sizes.values())) / seconds(kernel_rows, "gb200_nvl72", still)

    assert rate(64) / rate(128) == pytest.approx(0.3664 / 0.5893, rel=0.02)
