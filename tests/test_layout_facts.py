"""Acceptance facts of the layout rule: every byte a plan sends and keeps, counted by hand and equal to the last one.

Bytes sent by each device in a step under ring algorithms: an all-reduce of V over p sends 2 (p - 1) / p V, the others
(p - 1) / p V. Facts A are a Llama block (W = 7,744 B, X = 512 B, K = 256 B), B a feed-forward pair, C a mixture of
experts, D a tied head, E the activation memory of a GPT-3 layer (Korthikanti et al. 2022), G stage cuts.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.layout_cases import LLAMA, ffn, gpt3, head, llama, make, moe, traffic

F, B, R, OPT = "forward", "backward", "recompute", "optimizer"
AR, AG, RS, A2A = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
ACT, GRAD, AGAIN, WEIGHT, WGRAD, STAT = "activation", "gradient", "regather", "weight", "weight gradient", "statistics"
DP2 = {"axes": {"dp": {"degree": 2}}, "split": {"dp": ["b"]}}
COLUMNS: list[Any] = ["f", ["g", "q"]]
TP2 = {"axes": {"tp": {"degree": 2}}, "split": {"tp": COLUMNS}}
SP2 = {"axes": {"tp": {"degree": 2}}, "split": {"tp": [*COLUMNS, "s"]}}
DP2SP2 = {"axes": {"dp": {"degree": 2}, "tp": {"degree": 2}}, "split": {"dp": ["b"], "tp": [*COLUMNS, "s"]}}
ULYSSES = {op: {"sp": "g"} for op in ("QK", "softmax", "AV")}
ZERO3 = {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}
MEGATRON_SP = {(F, ACT, AG): 512, (F, ACT, RS): 512, (B, GRAD, AG): 512, (B, GRAD, RS): 512, (B, WGRAD, AR): 64}


def on(axes: str | tuple[str, ...], sent: dict[tuple[str, str, str], float]) -> dict[Any, float]:
    """The same bytes, over a group of axes."""
    return {(*key, (axes,) if isinstance(axes, str) else axes): volume for key, volume in sent.items()}


A = {  # plan: (mapper, accelerators, sent, saved, weight home); None where the facts say nothing
    "dp2": (DP2, 2, on("dp", {(B, WGRAD, AR): 7744}), 5376, 7744),
    "zero1": (
        {**DP2, "homes": {"weights": {"axes": ["dp"], "state": "shard"}}},
        2,
        on("dp", {(B, WGRAD, RS): 3872, (OPT, WEIGHT, AG): 3872}),
        5376,
        7744,
    ),
    "zero2": (
        {**DP2, "homes": {"weights": {"axes": ["dp"], "grad": "shard", "state": "shard"}}},
        2,
        on("dp", {(B, WGRAD, RS): 3872, (OPT, WEIGHT, AG): 3872}),
        5376,
        7744,
    ),
    "zero3": (
        {**DP2, "homes": {"weights": ZERO3}},
        2,
        on("dp", {(F, WEIGHT, AG): 3872, (B, WEIGHT, AG): 3872, (B, WGRAD, RS): 3872}),
        5376,
        3872,
    ),
    "tp2": (TP2, 2, on("tp", {(F, ACT, AR): 1024, (B, GRAD, AR): 1024}), 6400, 3904),
    "tp2-sp-shards-saved": (SP2, 2, on("tp", {**MEGATRON_SP, (B, AGAIN, AG): 512}), 5376, 3904),
    "tp2-sp-gathered-saved": ({**SP2, "save": "gathered"}, 2, on("tp", MEGATRON_SP), 5888, 3904),
    "tp2-sp-full-slice": (
        {**SP2, "recompute": "full", "rerun": "slice"},
        2,
        on("tp", {**MEGATRON_SP, (R, ACT, AG): 512, (R, ACT, RS): 256}),
        256,
        3904,
    ),
    "tp2-sp-full-region": (
        {**SP2, "recompute": "full", "rerun": "region"},
        2,
        on("tp", {**MEGATRON_SP, (R, ACT, AG): 512, (R, ACT, RS): 512}),
        256,
        3904,
    ),
    "cp2": (
        {"axes": {"cp": {"degree": 2}}, "split": {"cp": ["s"]}},
        2,
        on("cp", {(F, ACT, AG): 256, (B, GRAD, RS): 256, (B, AGAIN, AG): 256, (B, WGRAD, AR): 7744}),
        5376,
        7744,
    ),
    "cp4": (
        {"axes": {"cp": {"degree": 4}}, "split": {"cp": ["s"]}},
        4,
        on("cp", {(F, ACT, AG): 384, (B, GRAD, RS): 384, (B, AGAIN, AG): 384, (B, WGRAD, AR): 11616}),
        2688,
        7744,
    ),
    "ulysses2": (
        {"axes": {"sp": {"degree": 2}}, "split": {"sp": ["s"]}, "choose": ULYSSES},
        2,
        on("sp", {(F, ACT, A2A): 384, (B, GRAD, A2A): 384, (B, WGRAD, AR): 7744}),
        5376,
        7744,
    ),
    "dp2-tp2-sp": (
        DP2SP2,
        4,
        on("tp", {(F, ACT, AG): 256, (F, ACT, RS): 256, (B, GRAD, AG): 256, (B, GRAD, RS): 256, (B, AGAIN, AG): 256})
        | on("dp", {(B, WGRAD, AR): 3840})
        | on(("dp", "tp"), {(B, WGRAD, AR): 96}),
        2688,
        3904,
    ),
    "fsdp2-tp2-sp": (
        {**DP2SP2, "homes": {"weights": ZERO3}},
        4,
        on("tp", {(F, ACT, AG): 256, (F, ACT, RS): 256, (B, GRAD, AG): 256, (B, GRAD, RS): 256, (B, AGAIN, AG): 256, (B, WGRAD, AR): 64})
        | on("dp", {(F, WEIGHT, AG): 1952, (B, WEIGHT, AG): 1952, (B, WGRAD, RS): 1952}),
        2688,
        1952,
    ),
    "hybrid-shards": (  # reduced to shards of one half, which the replicas sum
        {
            "axes": {"rep": {"degree": 2}, "dp": {"degree": 2}},
            "split": {"rep": ["b"], "dp": ["b"]},
            "homes": {"weights": ZERO3},
            "uneven": "ceil",
        },
        4,
        on("dp", {(F, WEIGHT, AG): 3872, (B, WEIGHT, AG): 3872, (B, WGRAD, RS): 3872}) | on("rep", {(B, WGRAD, AR): 3872}),
        5376,  # two samples on four ranks: one on the busiest
        3872,
    ),
    "hybrid-shards-context": (  # likewise where the replicas are ranks of context
        {
            "axes": {"cp": {"degree": 2}, "dp": {"degree": 2}},
            "split": {"cp": ["s"], "dp": ["b"]},
            "homes": {"weights": ZERO3},
            "uneven": "ceil",
        },
        4,
        on("dp", {(F, WEIGHT, AG): 3872, (B, WEIGHT, AG): 3872, (B, WGRAD, RS): 3872})
        | on("cp", {(B, WGRAD, AR): 3872, (F, ACT, AG): 128, (B, GRAD, RS): 128, (B, AGAIN, AG): 128}),
        2688,
        3872,
    ),
    "tg2-tq2": (
        {"axes": {"tp": {"degree": 4}}, "split": {"tp": COLUMNS}},
        4,
        on(("tp_g", "tp_q"), {(F, ACT, AR): 2 * 768, (B, GRAD, AR): 2 * 768}) | on("tp_q", {(B, GRAD, AR): 128 + 128}),
        None,
        None,
    ),
}


@pytest.mark.parametrize("plan", A)
def test_a_llama_block_sends_and_keeps_every_byte(plan: str) -> None:
    mapper, accelerators, sent, saved, weight_home = A[plan]
    found = traffic(llama(more=["optimizer"]), mapper, accelerators)
    assert found.sent == sent
    assert saved is None or (found.saved, found.weight_home) == (saved, weight_home)


@pytest.mark.parametrize("plan", A)
def test_nothing_is_gathered_after_an_optimizer_that_is_not_asked_for(plan: str) -> None:
    """The same but for what follows an update: parameters stay as they are."""
    mapper, accelerators, sent, *_ = A[plan]
    assert traffic(llama(), mapper, accelerators).sent == {key: size for key, size in sent.items() if key[0] != OPT}


def test_a_streamed_weights_come_down_twice_and_their_gradients_go_up_once() -> None:
    found = traffic(llama(gradient=32), {**DP2, "homes": {"weights": {"at": "memoryx"}}}, 2)
    assert found.sent == {
        (F, WEIGHT, "broadcast", ()): 7744,
        (B, WEIGHT, "broadcast", ()): 7744,
        (B, WGRAD, "reduce", ()): 15488,
    }
    assert (found.saved, found.weight_home, found.at["weights", "memoryx"]) == (5376, 0, 7744)


def test_a_grouped_queries_reduce_the_gradients_of_keys_and_values_over_the_queries_alone() -> None:
    found = traffic(llama(), {"axes": {"tp": {"degree": 4}}, "split": {"tp": COLUMNS}}, 4).by_tensor
    assert {key[1]: volume for key, volume in found.items() if key[3] == ("tp_q",)} == {"V": 128, "KR": 128}
    both = ("tp_g", "tp_q")
    assert {key[:2]: volume for key, volume in found.items() if key[3] == both} == {
        (F, "O"): 768,
        (F, "D"): 768,
        (B, "N1"): 768,
        (B, "N2"): 768,
    }


def test_a_data_and_context_axes_form_one_group_for_weight_gradients() -> None:
    mapper = {"axes": {"dp": {"degree": 2}, "cp": {"degree": 2}}, "split": {"dp": ["b"], "cp": ["s"]}}
    sent = traffic(llama(), mapper, 4).sent
    assert {key: volume for key, volume in sent.items() if key[1] == WGRAD} == {(B, WGRAD, AR, ("dp", "cp")): 11616}


FFN_SP = {"axes": {"tp": {"degree": 2}}, "split": {"tp": ["f"]}, "boundary": {"X": {"tp": "s"}, "Y": {"tp": "s"}}}
FFN_COLUMNS = {
    "axes": {"tp": {"degree": 2}},
    "split": {"tp": "output"},
    "boundary": {"X": {"tp": "d"}, "Y": {"tp": "d"}},
    "save": "gathered",
}
FACTS_B = {
    "dp2-fp32-gradients": (32, DP2, on("dp", {(B, WGRAD, AR): 8192}), None),
    "column-row": (16, {"axes": {"tp": {"degree": 2}}, "split": {"tp": ["f"]}}, on("tp", {(F, ACT, AR): 512, (B, GRAD, AR): 512}), 1536),
    "column-row-sp": (
        16,
        FFN_SP,
        on("tp", {(F, ACT, AG): 256, (F, ACT, RS): 256, (B, GRAD, AG): 256, (B, GRAD, RS): 256, (B, AGAIN, AG): 256}),
        1280,
    ),
    "column-column": (16, FFN_COLUMNS, on("tp", {(F, ACT, AG): 1280, (B, GRAD, RS): 1280}), 2560),
}


@pytest.mark.parametrize("plan", FACTS_B)
def test_b_feed_forward_sends_and_keeps_every_byte(plan: str) -> None:
    gradient, mapper, sent, saved = FACTS_B[plan]
    found = traffic(ffn(gradient), mapper, 2)
    assert found.sent == sent
    assert saved is None or found.saved == saved


EXPERTS = {op: {"ep": "b"} for op in ("router", "gate", "dispatch", "combine")}


@pytest.mark.parametrize(("degree", "moved", "router", "saved"), [(2, 1024, 256, 6720), (4, 768, 384, 3360)], ids=["ep2", "ep4"])
def test_c_experts_exchange_tokens_and_never_reduce_their_weights(degree: int, moved: int, router: int, saved: int) -> None:
    found = traffic(moe(), {"axes": {"ep": {"degree": degree}}, "split": {"ep": ["x"]}, "choose": EXPERTS}, degree)
    assert found.sent == on("ep", {(F, ACT, A2A): moved, (B, GRAD, A2A): moved, (B, WGRAD, AR): router})
    assert {key[1] for key in found.by_tensor if key[2] == AR} == {"WR"}
    assert found.saved == saved


def test_c_data_parallel_experts_reduce_over_data_and_the_router_over_both() -> None:
    mapper = {"axes": {"dp": {"degree": 2}, "ep": {"degree": 2}}, "split": {"dp": ["b"], "ep": ["x"]}, "choose": EXPERTS}
    found = traffic(moe(), mapper, 4)
    weights = {key[1:]: volume for key, volume in found.by_tensor.items() if key[1].startswith("W")}
    assert weights == {("W1", AR, ("dp",)): 4096, ("W2", AR, ("dp",)): 4096, ("WR", AR, ("dp", "ep")): 384}


FACTS_D = {
    "tp2": (["v"], {(F, ACT, AR): 512, (F, STAT, AR): 192, (B, GRAD, AR): 512}),
    "tp2-sp": (
        ["v", "s"],
        {
            (F, ACT, RS): 256,
            (F, ACT, AG): 256,
            (F, STAT, AR): 192,
            (B, GRAD, AG): 256,
            (B, GRAD, RS): 256,
            (B, AGAIN, AG): 256,
            (B, WGRAD, AR): 32,
        },
    ),
}


@pytest.mark.parametrize("plan", FACTS_D)
def test_d_vocabulary_parallel_head_sends_every_byte(plan: str) -> None:
    ranks, sent = FACTS_D[plan]
    assert traffic(head(), {"axes": {"tp": {"degree": 2}}, "split": {"tp": ranks}}, 2).sent == on("tp", sent)


SBH = 2048 * 12288  # sequence x samples x hidden
ASS = 96 * 2048 * 2048  # heads x sequence squared
GPT_TP = {"axes": {"tp": {"degree": 8}}, "split": {"tp": ["f", "h"]}}
GPT_SP = {"axes": {"tp": {"degree": 8}}, "split": {"tp": ["f", "h", "s"]}}
ONE = {"axes": {"tp": {"degree": 1}}, "split": {"tp": ["f"]}}
FACTS_E = {  # Korthikanti et al. 2022, table 2: bytes, and the megabytes printed
    "none": (ONE, 34 * SBH + 5 * ASS, 2868.9),
    "tp8": (GPT_TP, 10 * SBH + 24 * SBH / 8 + 5 * ASS / 8, 578.8),
    "tp8-sp": (GPT_SP, (34 * SBH + 5 * ASS) / 8, 358.6),
    "tp8-sp-selective": ({**GPT_SP, "recompute": "selective"}, 34 * SBH / 8, 107.0),
    "full": ({**GPT_TP, "recompute": "full"}, 2 * SBH, 50.3),
    "sp-full": ({**GPT_SP, "recompute": "full"}, 2 * SBH / 8, 6.29),
}


@pytest.mark.parametrize("plan", FACTS_E)
def test_e_gpt3_layer_keeps_what_korthikanti_counts(plan: str) -> None:
    mapper, expected, megabytes = FACTS_E[plan]
    saved = traffic(gpt3(), mapper, mapper["axes"]["tp"]["degree"]).saved
    assert saved == expected
    assert saved / 1e6 == pytest.approx(megabytes, abs=0.05)


@pytest.mark.parametrize(("recompute", "sbh"), [("selective", 34), ("none", 162)])
def test_e_llama3_8b_layer_keeps_34_sbh_without_its_scores_and_162_with_them(recompute: str, sbh: int) -> None:
    block = make(LLAMA, {"b": 1, "s": 8192, "t": "s", "d": 4096, "g": 8, "q": 4, "e": 128, "f": 14336})
    saved = traffic(block, {**ONE, "recompute": recompute}, 1).saved
    assert saved / (8192 * 4096) == pytest.approx(sbh, abs=0.05)


@pytest.mark.parametrize(("last", "shipped"), [("res1", {"R1": 512}), ("swiglu", {"R1": 512, "S": 2048})])
def test_g_a_stage_cut_ships_each_tensor_that_later_operations_read(last: str, shipped: dict[str, int]) -> None:
    ops = list(LLAMA)
    cut = ops.index(last) + 1
    found = traffic(llama(), {"axes": {"pp": {"stages": [ops[:cut], ops[cut:]]}}}, 2).by_tensor
    assert {key[1]: volume for key, volume in found.items() if key[0] == F} == shipped
    assert {key[1].removeprefix("d"): volume for key, volume in found.items() if key[0] == B} == shipped
