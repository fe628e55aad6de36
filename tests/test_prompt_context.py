"""Prompts whose new tokens are shared out over tensor groups (prefill context parallelism): what `append` derives, and pools with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import log2
from pathlib import Path

import numpy as np
import pytest

from rackmodel.api import search
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.layout import legal_choices, split
from rackmodel.model.result import Result
from rackmodel.serving.ask import service_of
from rackmodel.serving.engine import model_of
from rackmodel.serving.handing import cache_transfer
from rackmodel.serving.launch import launches_of
from rackmodel.serving.offers import Widths, engine_of
from rackmodel.serving.pool_search import PoolsOffer, PoolWorkers
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.serving.shared_prompts import attention_of, check_shared_out
from rackmodel.serving.steps import Deployment, StepFigures, Steps
from tests.commands import invoke
from tests.serving_models import served_on

GQA, MLA, MOE = "llama3_70b_decoder", "deepseek_v3_decoder", "qwen3_30b_a3b_decoder"
ATTENTION = ("QK", "QKc", "QKo", "sumA", "softmax", "AV")


served = served_on("dgx_h200", "accelerators=16")


def dealt(tokens: int, ranks: int) -> list[list[int]]:
    """Tokens of each rank: of 2 x ranks pieces an early one and a late one (DualChunkSwap)."""
    pieces = np.array_split(np.arange(tokens), 2 * ranks)
    return [[*pieces[rank], *pieces[2 * ranks - 1 - rank]] for rank in range(ranks)]


def moved(figures: StepFigures, action: str, tensors: tuple[str, ...]) -> float:
    rows = figures.ledger.where(component="network", action=action)
    return float(sum(row.amount[0] for row in rows if row.tensor.split("_")[0] in tensors))


@pytest.mark.parametrize(("tensor", "ranks", "before"), [(2, 4, 0), (1, 8, 0), (4, 2, 3000)])
def test_each_rank_gathers_the_keys_and_values_that_it_did_not_make(tensor: int, ranks: int, before: int) -> None:
    """Counted token by token: 8 heads of 128 numbers in 2 bytes, keys and values, in 80 layers; what is in the caches already moves no
    more. And what the last layer made of the others' tokens, 8,192 numbers, once in every tensor rank."""
    tokens = 2048
    own = [set(one) for one in dealt(tokens, ranks)]
    lacking = sum(len(set(range(tokens)) - mine) for mine in own)
    step = served(GQA, tensor=tensor, prompt_context=ranks).price(Steps.of(prefill=tokens, prompts=1, before=before))
    assert moved(step, "all_gather", ("KN", "VN")) == pytest.approx(80 * 2 * lacking * 8 * 128 * 2)
    assert moved(step, "all_gather", ("Y",)) == pytest.approx(tensor * lacking * 8192 * 2)
    assert {row.action for row in step.ledger.where(component="network")} == {"all_gather"} | ({"all_reduce"} if tensor > 1 else set())


def test_the_gather_takes_its_bytes_over_the_link() -> None:
    """Of 16,384 tokens a tensor rank of two has 4 heads of keys: 16.8 MB, of which three quarters come, at 450 GB/s x 0.822, after the
    start of a call, 37.7 us, and two steps of 2.08 us of four ranks that double what they have."""
    figures = served(GQA, tensor=2, prompt_context=4).price(Steps.of(prefill=16384, prompts=2))
    rows = [row for row in figures.ledger.where(component="network", action="all_gather") if row.tensor == "KN"]
    by_hand = 37.7e-6 + log2(4) * 2.08e-6 + 0.75 * 16384 * 4 * 128 * 2 / (450e9 * 0.822)
    assert sum(row.seconds[0] for row in rows) == pytest.approx(80 * by_hand, rel=1e-9)


def test_every_rank_has_as_much_of_the_causal_work() -> None:
    """Scores of 2,048 tokens behind 1,000 cached ones, query by query: 64 heads of 128, a multiplication and an addition, 80 layers."""
    ranks, tokens, before = 4, 2048, 1000
    seen = [sum(before + token + 1 for token in own) for own in dealt(tokens, ranks)]
    assert len(set(seen)) == 1
    model = served(GQA, prompt_context=ranks)
    rows = model.price(Steps.of(prefill=tokens, prompts=1, before=before)).ledger.where(einsum="QK", action="mac")
    assert sum(row.amount[0] for row in rows) / ranks == pytest.approx(2 * 80 * seen[0] * 64 * 128)


@pytest.mark.parametrize(("workload", "profile", "axes", "degrees"), [
    (GQA, "ideal", {"ti": 2, "ne": 1, "ni": 4}, {"tensor": 2, "prompt_context": 4}),
    (MOE, "torchtitan", {"ti": 1, "ne": 8}, {"prompt_context": 8, "expert": 8}),
    (MOE, "torchtitan", {"ti": 2, "ne": 2, "ni": 2}, {"tensor": 2, "prompt_context": 4, "expert": 2, "expert_tensor": 4}),
    (MLA, "torchtitan", {"te": 2, "ti": 1, "ne": 4}, {"tensor": 2, "prompt_context": 4, "expert": 8}),
])  # fmt: skip
def test_a_step_of_prompts_is_what_a_search_says(workload: str, profile: str, axes: dict[str, int], degrees: dict[str, int]) -> None:
    sets = ["workload.sizes.b=1", "workload.sizes.s=2048", "workload.sizes.t=3072", "accelerators=8"]
    sets += [f"axes.{axis}.degree={degree}" for axis, degree in axes.items()]
    found = search("dgx_h200", workload, "serving", sets=sets, profile=profile).result
    mine = replace(served(workload, profile, **degrees), architecture=read_architecture("dgx_h200"))
    step = mine.price(Steps.of(prefill=2048, prompts=1, before=1024))
    assert step.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)
    assert step.joules[0] == pytest.approx(found.energy_j, rel=1e-12)


@pytest.mark.parametrize("profile", ["sglang", "vllm"])
def test_what_looks_at_one_token_takes_what_a_rank_of_so_many_takes(profile: str) -> None:
    """Four ranks of 4,096 tokens beside one that has 1,024 of its own: products, norms and sums are the same kernels."""
    alone = served(GQA, profile, tensor=2).price(Steps.of(prefill=1024, prompts=1))
    shared = served(GQA, profile, tensor=2, prompt_context=4).price(Steps.of(prefill=4096, prompts=1))

    def seconds(figures: StepFigures) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for row in figures.ledger.rows:
            if row.component != "network" and row.einsum not in ("", *ATTENTION):
                key = row.einsum, row.action
                found[key] = found.get(key, 0.0) + float(row.exposed_seconds[0])
        return found

    one, other = seconds(alone), seconds(shared)
    assert set(one) == set(other)
    assert other == pytest.approx(one, rel=1e-9, abs=1e-15)


def test_experts_of_prompts_dealt_out_are_those_of_ranks_of_sequences() -> None:
    """One prompt over eight ranks, or a prompt on each: the same tokens go to the same experts, and as much of the weights is held."""
    pooled = served(MOE, prompt_context=8, expert=8)
    apart = served(MOE, attention_data=8, expert=8)
    one, other = pooled.price(Steps.of(prefill=8192, prompts=1)), apart.price(Steps.of(prefill=8192, prompts=8))
    for tensors in (("D",), ("E",)):
        assert moved(one, "all_to_all", tensors) == pytest.approx(moved(other, "all_to_all", tensors))
    assert pooled.weights_each[0] == pytest.approx(apart.weights_each[0])


@pytest.mark.parametrize(("workload", "each"), [(GQA, 327_680 / 2), (MLA, 70_272)])
def test_every_rank_keeps_the_whole_cache(workload: str, each: float) -> None:
    for ranks in (1, 4):
        assert served(workload, tensor=2, prompt_context=ranks).kv_bytes_per_token == pytest.approx(each)


def test_the_tokens_that_append_and_last_want_are_split_by_nothing() -> None:
    workload = read_workload(GQA, ["sizes.s=64", "sizes.t=64"])
    appended, last = workload.ops["keepK"], workload.ops["last"]
    assert split("s") not in legal_choices(appended, workload)
    assert split("s") not in legal_choices(last, workload)
    assert {split("b"), split("t"), split("g")} <= {*legal_choices(appended, replace(workload, sizes={**workload.sizes, "b": 2}))}


def test_what_is_kept_is_on_the_way_to_who_reads_it() -> None:
    """Queries come before keys, keys before values, and a cache before its scores: an append takes no time and makes no way longer."""
    order = [*read_workload(GQA).sections[1].workload.ops]
    assert order[1:9] == ["Q", "K", "V", "ropeQ", "ropeK", "keepV", "keepK", "QK"]


def test_a_cache_is_what_append_writes(tmp_path: Path) -> None:
    text = "workload: one\nphases: [forward]\nsizes: {b: 2, s: 1, t: 8, e: 4}\nserving: {sequences: b, new: s, cached: t}\neinsums:\n"
    text += "  keep: KC[b,t,e] = append(K[b,s,e])\n  QK: A[b,s,t] = Q[b,s,e] * KC[b,t,e]\n"
    path = tmp_path / "one.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="append adds to a cache: say kind: kv_cache of 'KC'"):
        read_workload(path)
    path.write_text(
        f"{text.replace('append', 'rope').replace('K[b,s,e])', 'K[b,t,e])')}tensors: {{KC: {{kind: kv_cache}}}}\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match="'KC' cannot be a kv_cache: it is written"):
        read_workload(path)


def test_free_layouts_know_what_append_wants(tmp_path: Path) -> None:
    """Three solvers find that heads move nothing. Splitting new tokens gathers keys, and no time of an append is beside that."""
    sizes = "{b: 1, s: 64, t: 256, g: 4, e: 64, d: 256}"
    text = f"workload: one\nphases: [forward]\nsizes: {sizes}\nserving: {{sequences: b, new: s, cached: t}}\neinsums:\n"
    text += "  Q: Q[b,s,g,e] = X[b,s,d] * WQ[d,g,e]\n  K: KN[b,s,g,e] = X[b,s,d] * WK[d,g,e]\n  keep: KC[b,t,g,e] = append(KN[b,s,g,e])\n"
    text += "  QK: A[b,g,s,t] = Q[b,s,g,e] * KC[b,t,g,e]\n  AV: Z[b,s,g,e] = A[b,g,s,t] * KC[b,t,g,e]\ntensors: {KC: {kind: kv_cache}}\n"
    workload, mapper = tmp_path / "one.yaml", tmp_path / "mine.yaml"
    workload.write_text(text, encoding="utf-8")

    def least(rest: str) -> Result:
        mapper.write_text(f"mapper: mine\naxes: {{tp: {{degree: 4}}}}\nalgorithms: best\n{rest}", encoding="utf-8")
        return search("dgx_h200", str(workload), str(mapper), sets=["accelerators=4"], profile="ideal", minimize="latency").result

    heads = least("split: {tp: [g]}")
    assert not list(heads.ledger.where(component="network"))
    for solver in ("enumerate", "eliminate", "cpsat"):
        assert least(f"split: {{tp: free}}\nsolver: {solver}").latency_s == pytest.approx(heads.latency_s)
    rows = list(least("split: {tp: [s]}").ledger.where(component="network"))
    assert {(row.tensor, row.action) for row in rows} == {("KN", "all_gather")}
    assert sum(row.amount for row in rows) == pytest.approx(4 * 3 / 4 * 64 * 4 * 64 * 2)


LENGTHS = (8192.0, 64.0, 0.0)


def test_the_best_is_that_of_every_pair_of_pools() -> None:
    service = service_of("dgx_h200", "qwen3_8b_decoder", ("accelerators=4",), "sglang", LENGTHS)
    space = ServingSpace(prompt_context=(1, 2), clients=(2.0,), pipeline=(1,))
    answer = search_service(service, space, "ttft", prompts_on=service)
    pools = [one for one in answer.offers if isinstance(one, PoolsOffer)]
    pairs = [(one.prompts, one.decodes) for one in pools]
    found = {(p.deployment.tensor, p.deployment.prompt_context, p.count, d.deployment.tensor, d.count) for p, d in pairs}
    powers = (1, 2, 4)
    meant = {
        (tensor, shared, count, decoding, workers)
        for tensor, shared, decoding, count, workers in product(powers, (1, 2), powers, range(1, 4), range(1, 4))
        if count * tensor * shared + workers * decoding == 4
    }
    assert found == meant
    assert answer.certificate.status == "proven"
    assert answer.best.figures["ttft"] == min(one.figures["ttft"] for one in answer.offers)
    apart = {one.prompts.deployment.prompt_context: one for one in sorted(pools, key=lambda one: -one.figures["ttft"])}
    assert apart[2].figures["ttft"] < apart[1].figures["ttft"]


def test_one_rank_of_each_group_sends_the_cache() -> None:
    """As SGLang's do: all have it, and the first ones' links carry it."""
    service = service_of("dgx_h200", "qwen3_8b_decoder", ("accelerators=8",), "sglang", LENGTHS)

    def bandwidth_and_bytes(deployment: Deployment) -> tuple[float, float, float]:
        pools = [model_of(engine_of(service, one, Widths())) for one in (deployment, Deployment(tensor=4))]
        way = cache_transfer(*pools)
        return way.bandwidth_bytes_per_s, float(way.held_bytes(np.array([8192.0]))[0]), way.joules_per_byte

    assert bandwidth_and_bytes(Deployment(tensor=2, prompt_context=2)) == pytest.approx(bandwidth_and_bytes(Deployment(tensor=2)))


def refused(*words: str) -> str:
    done = invoke(["serve", "dgx_h200", *words])
    assert isinstance(done.exception, InputError)
    return str(done.exception)


def test_who_cannot_is_refused_with_its_place() -> None:
    shared = ("--pools", "--prompt-context", "2", "--engine")
    assert "has gqa attention, and of prompts over accelerators vllm shares out that of mla, dsa alone" in refused(GQA, *shared, "vllm")
    assert "trtllm shares out none" in refused(MLA, *shared, "trtllm")
    assert "shared out over 8 tensor groups fits the 4 accelerators, one of decodes beside it" in refused(
        "llama3_8b_decoder", "--engine", "sglang", "--pools", "--prompt-context", "1,8", "--set", "accelerators=4"
    )
    check_shared_out(read_workload(GQA), read_profile("vllm", ["engine.prompt_context=[gqa]"]))
    assert "keeps 'CQ', a state that each new token changes" in refused("qwen35_397b_decoder", *shared, "sglang")
    with pytest.raises(InputError, match="do not share out prompts' new tokens"):
        Deployment(tensor=4, context=2, prompt_context=2)


@pytest.mark.parametrize(("name", "kind"), [(GQA, "gqa"), (MLA, "mla"), ("glm5_decoder", "dsa"), ("gpt_oss_120b_decoder", "gqa")])
def test_attention_is_known_by_its_caches(name: str, kind: str) -> None:
    assert attention_of(read_workload(name)) == kind


def test_each_engine_is_told() -> None:
    service = service_of("dgx_h200", MLA, ("accelerators=32",), "sglang", LENGTHS)
    pools = (PoolWorkers(Deployment(tensor=2, prompt_context=8), 1), PoolWorkers(Deployment(tensor=16), 1))
    best = PoolsOffer(*pools, Widths(), 2.0, 8192, 2.0, False, {})
    prefill, decode = launches_of("sglang", "some/model", best, 8256, service)
    assert {"--tensor-parallel-size=16", "--attn-cp-size=8", "--enable-prefill-cp", "--cp-strategy=zigzag"} <= {*prefill.arguments}
    assert not any("cp" in word for word in decode.arguments)
    prefill, decode = launches_of("vllm", "some/model", best, 8256, service)
    assert {"--tensor-parallel-size 2", "--prefill-context-parallel-size 8"} <= {*prefill.arguments}
    assert "8 ranks that share out prompts have no argument here" in launches_of("trtllm", "some/model", best, 8256, service)[0].notes
