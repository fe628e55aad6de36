"""Steps of a served model are priced by the one engine: what `search` says of the workload file, for many steps at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from rackmodel.api import search
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.vectors import VectorDevice, vector_seconds
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import machine_calls, read_architecture, read_mapper, read_profile, read_workload
from rackmodel.model.calls import LibraryCall
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.serving.replica import of_one_plan
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, StepFigures, Steps

MACHINE = "dgx_h100"


def served(workload: str = "dense_decoder", profile: str = "ideal", sets: tuple[str, ...] = (), **degrees: int) -> ServedModel:
    return ServedModel(
        workload=read_workload(workload, sets),
        architecture=read_architecture(MACHINE),
        profile=read_profile(profile),
        deployment=Deployment(**degrees),
    )


def searched(sets: list[str], profile: str, workload: str = "dense_decoder", **degrees: int) -> Result:
    axes = [f"axes.{axis}.degree={degree}" for axis, degree in degrees.items()]
    count = int(np.prod(list(degrees.values())))
    return search(MACHINE, workload, "serving", sets=[*sets, *axes, f"accelerators={count}"], profile=profile).result


@pytest.mark.parametrize("profile", ["ideal", "torchtitan", "megatron_core"])
@pytest.mark.parametrize("tensor", [1, 4])
def test_a_decode_step_is_what_a_search_says_of_the_workload(profile: str, tensor: int) -> None:
    found = searched(["workload.sizes.b=24", "workload.sizes.t=3001"], profile, ti=tensor)
    mine = served(profile=profile, tensor=tensor).price(Steps.of(decodes=24, context=3000))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)
    assert mine.joules[0] == pytest.approx(found.energy_j, rel=1e-12)


def test_a_prefill_step_is_what_a_search_says_of_the_workload() -> None:
    found = searched(["workload.sizes.b=3", "workload.sizes.s=512", "workload.sizes.t=1536"], "torchtitan", ti=2)
    mine = served(profile="torchtitan", tensor=2).price(Steps.of(prefill=3 * 512, prompts=3, before=1024))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)


def test_ranks_of_sequences_cost_what_a_search_says() -> None:
    found = searched(["workload.sizes.b=24", "workload.sizes.t=3001"], "torchtitan", di=2, ti=2)
    mine = served(profile="torchtitan", tensor=2, attention_data=2).price(Steps.of(decodes=24, context=3000))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)


def _rows(figures: StepFigures, column: int) -> dict[tuple[str, ...], float]:
    return figures.ledger.at(column).group(["component", "action"], "exposed_seconds")


def test_steps_priced_together_are_those_priced_alone() -> None:
    model = served(profile="torchtitan", tensor=2)
    steps = {"decodes": [1, 64, 0, 32], "context": [100, 2000, 0, 512], "prefill": [0, 0, 2048, 1500], "prompts": [0, 0, 1, 3]}
    together = model.price(Steps.of(**steps, before=[0, 0, 0, 700]))
    for column in range(4):
        alone = model.price(Steps.of(**{name: values[column] for name, values in steps.items()}, before=[0, 0, 0, 700][column]))
        assert alone.seconds[0] == pytest.approx(together.seconds[column], rel=1e-12)
        assert _rows(alone, 0) == pytest.approx(_rows(together, column))


def test_exposed_seconds_of_the_ledger_add_up_to_the_step() -> None:
    for degrees in ({"tensor": 4}, {"tensor": 2, "pipeline": 2}, {"tensor": 1, "pipeline": 4, "attention_data": 2}):
        figures = served(profile="torchtitan", **degrees).price(Steps.of(decodes=[8, 0], context=1000, prefill=[0, 4096], prompts=[0, 2]))
        for column in range(2):
            ledger = figures.ledger.at(column)
            assert ledger.total("exposed_seconds") == pytest.approx(figures.seconds[column], rel=1e-9)
            assert ledger.total("joules") == pytest.approx(figures.joules[column], rel=1e-9)


def test_what_attention_writes_is_quantised_by_a_kernel_of_its_own_where_a_profile_says_so() -> None:
    """Of the four products of a Llama layer one follows attention: 32 layers start 32 kernels more, and move 4,096 elements a token."""
    model = served("llama3_8b_decoder", "vllm", ("workload.precision.weight=fp8", "workload.precision.activation=fp8"))
    merged = model.profile.merged
    both = [
        replace(model, profile=model.profile.model_copy(update={"merged": merged.model_copy(update={"attended": attended})}))
        for attended in (True, False)
    ]
    seconds = [one.price(Steps.of(decodes=[1, 256], context=1000), np.array([True, True])).seconds for one in both]
    gpu = gpu_of(model.architecture)
    assert gpu is not None
    kernel = gpu.facts.vector["quantise"].start_s
    traffic = gpu.facts.products["fp8"].quantise * 4096 / gpu.bandwidth
    assert seconds[1] - seconds[0] == pytest.approx([32 * (kernel + traffic), 32 * (kernel + 256 * traffic)], rel=1e-6)


def test_what_norms_and_activations_write_is_quantised_by_kernels_of_their_own_where_a_profile_says_so() -> None:
    """Of the products of a Llama layer two, of merged projections, follow norms and one an activation: 32 layers start 96 kernels more."""
    model = served("llama3_8b_decoder", "vllm", ("workload.precision.weight=fp8", "workload.precision.activation=fp8"))
    merged = model.profile.merged.model_copy(update={"attended": True})
    both = [
        replace(model, profile=model.profile.model_copy(update={"merged": merged.model_copy(update={"written": written})}))
        for written in (True, False)
    ]
    seconds = [one.price(Steps.of(decodes=[1, 256], context=1000), np.array([True, True])).seconds for one in both]
    gpu = gpu_of(model.architecture)
    assert gpu is not None
    kernel = gpu.facts.vector["quantise"].start_s
    traffic = gpu.facts.products["fp8"].quantise * (4096 + 4096 + 14336) / gpu.bandwidth
    assert seconds[1] - seconds[0] == pytest.approx([32 * (3 * kernel + traffic), 32 * (3 * kernel + 256 * traffic)], rel=1e-6)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_an_all_reduce_waits_for_the_last_of_its_members(tensor: int) -> None:
    """Of p normal values the largest lies Phi^-1((p - 3/8) / (p + 1/4)) deviations beyond the mean (Blom 1958). A step has 2 x 32 + 1
    all-reduces."""
    model = served("llama3_8b_decoder", "vllm", tensor=tensor)
    calls = model.profile.collectives
    assert calls is not None
    assert calls.waits_s == 1.95e-6
    loops = replace(model, profile=model.profile.model_copy(update={"collectives": calls.model_copy(update={"waits_s": 0.0})}))
    late = NormalDist().inv_cdf((tensor - 0.375) / (tensor + 0.25)) * 1.95e-6
    seconds = [one.price(Steps.of(decodes=8, context=1000), np.array([True])).seconds[0] for one in (loops, model)]
    assert seconds[1] - seconds[0] == pytest.approx((2 * 32 + 1) * late, rel=1e-6)


def test_sums_that_norms_of_all_heads_take_over_accelerators_are_one_all_reduce() -> None:
    """Queries and keys of MiniMax M2: 62 all-reduces of two sums of 4 bytes for each of 16 tokens, where they were 124 of one."""
    model = served("minimax_m2_decoder", "vllm", tensor=4, expert_tensor=4)
    merged = model.profile.merged
    apart = replace(model, profile=model.profile.model_copy(update={"merged": merged.model_copy(update={"statistics": False})}))
    found = [one.price(Steps.of(decodes=16, context=1000), np.array([True])) for one in (model, apart)]
    sums = [[row for row in one.ledger.rows if row.action == "all_reduce" and row.einsum in ("normQ", "normK")] for one in found]
    assert [{row.einsum for row in rows} for rows in sums] == [{"normQ"}, {"normQ", "normK"}]
    amounts = [sum(float(row.amount[0]) for row in rows) for rows in sums]
    assert amounts[0] == pytest.approx(amounts[1])
    saved = sum(float(row.exposed_seconds[0]) for row in sums[1]) - sum(float(row.exposed_seconds[0]) for row in sums[0])
    assert found[1].seconds[0] - found[0].seconds[0] == pytest.approx(saved, rel=1e-6)
    assert saved > 62 * 4e-6


def test_a_norm_of_all_heads_is_no_part_of_the_kernel_that_rotates() -> None:
    """It starts kernels of its own, those of heads do not: Qwen 3's are of heads, MiniMax M2's of all of them."""
    starts = {}
    for name in ("minimax_m2_decoder", "qwen3_30b_a3b_decoder"):
        figures = served(name, "vllm", tensor=4, expert_tensor=4).price(Steps.of(decodes=1, context=1000), np.array([True]))
        starts[name] = figures.ledger.at(0).where(einsum="normQ", component="memory").total("exposed_seconds")
    gpu = gpu_of(read_architecture(MACHINE))
    assert gpu is not None
    kernel = gpu.facts.vector["rmsnorm"].start_s
    assert starts["minimax_m2_decoder"] > 62 * kernel
    assert starts["qwen3_30b_a3b_decoder"] < 48 * kernel


def test_a_mixed_step_reads_the_weights_once() -> None:
    model = served()
    mixed = model.price(Steps.of(decodes=32, context=1000, prefill=256, prompts=1))
    read = sum(float(row.amount[0]) for row in mixed.ledger.where(tensor="WG", level="gpu", action="read"))
    assert read == 32 * 4096 * 14336 * 2


def test_a_layer_of_tensor_parallelism_has_two_all_reduces() -> None:
    rows = served(tensor=8).price(Steps.of(decodes=16, context=1)).ledger.where(action="all_reduce")
    assert {(row.einsum, row.tensor) for row in rows} == {("embed", "X"), ("O", "O"), ("down", "D")}


def test_caches_are_as_large_as_published() -> None:
    assert served().kv_bytes_per_token == 131072  # Llama 3 8B: 2 x 32 layers x 8 heads x 128 x 2 bytes
    assert served(tensor=4, attention_data=2).kv_bytes_per_token == 131072 / 8
    assert served(tensor=16 // 2, pipeline=1).kv_bytes_per_token == 131072 / 8
    assert served().cache_bytes(17) == 131072 * 32  # two pages of 16


def test_stages_of_a_pipeline_are_all_busy() -> None:
    """A step of p batches through p stages lasts p times the slowest stage's pass, hand-over included."""
    one = served().price(Steps.of(decodes=16, context=1000))
    two = served(pipeline=2).price(Steps.of(decodes=32, context=1000))
    assert one.seconds[0] < two.seconds[0] < 1.2 * one.seconds[0]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no experts"):
        served(tensor=4, expert=4).price(Steps.of(decodes=1))
    with pytest.raises(InputError, match="expert x expert_tensor"):
        served(tensor=4, expert=2)
    with pytest.raises(InputError, match="from 0 up"):
        served().price(Steps.of(decodes=-1))
    with pytest.raises(InfeasibleError, match="too few"):
        served(pipeline=64).price(Steps.of(decodes=1))
    with pytest.raises(InputError, match="no decoder"):
        served("llama").price(Steps.of(decodes=1))


MERGED = """
profile: merged
kernels: measured
attention: flash
pointwise: fused
merged: {projections: true, rotations: true, residuals: true}
sources: {kernels: "a test"}
source: a test
"""


def _starts(model: ServedModel) -> float:
    """Kernels of a layer that pay a start: a layer with next to nothing to do, over the start of one kernel."""
    gpu = gpu_of(model.architecture)
    assert gpu is not None
    start = gpu.facts.start_in_stream_s
    figures = model.price(Steps.of(decodes=1, context=1))
    layer = sum(float(row.exposed_seconds[0]) for row in figures.ledger if row.einsum not in ("embed", "last", "norm", "logits"))
    return layer / 2 / start


def test_an_all_reduce_goes_on_with_the_norm_after_it_where_there_is_one(tmp_path: Path) -> None:
    counts = {}
    for name, text in (("apart", MERGED), ("together", MERGED.replace("residuals: true", "residuals: true, reductions: true"))):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        tiny = ("sizes.d=64", "sizes.f=64", "sizes.e=16", "sizes.g=2", "sizes.q=1", "sizes.layers=2")
        counts[name] = [_starts(served(profile=str(path), sets=tiny, tensor=tensor)) for tensor in (1, 2)]
    assert counts["together"][0] == counts["apart"][0]  # one accelerator sums nothing
    assert counts["apart"][1] - counts["together"][1] == pytest.approx(2, abs=0.2)


def test_kernels_that_take_operations_together_pay_one_start(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(MERGED, encoding="utf-8")
    apart = tmp_path / "apart.yaml"
    apart.write_text(MERGED.replace("true", "false"), encoding="utf-8")
    tiny = ("sizes.d=64", "sizes.f=64", "sizes.e=16", "sizes.g=1", "sizes.q=1", "sizes.layers=2")
    caching = tmp_path / "caching.yaml"
    caching.write_text(MERGED.replace("rotations: true", "rotations: true, caches: false"), encoding="utf-8")
    counts = [_starts(served(profile=str(one), sets=tiny)) for one in (apart, path, caching)]
    # apart: two norms, three products, two rotations, attention, a product, a sum, two products, an activation, a product, a sum
    assert counts[0] == pytest.approx(15, abs=0.5)
    # together: a norm with its sum (2), one product of three, one rotation, attention, a product, one of two, an activation, a product
    assert counts[1] == pytest.approx(9, abs=0.5)
    assert counts[2] - counts[1] == pytest.approx(1, abs=0.1)  # and one that writes keys and values into the cache


@pytest.mark.parametrize("adapters", [2, 8])
def test_adapters_lie_beside_the_model_and_each_token_multiplies_by_its_own(adapters: int) -> None:
    """LoRA of width 16 on queries, keys and values of 32 layers: n x 16 x (4,096 + 4,096 + 2 x 1,024) weights each, of which a token takes
    an n-th. The model's own products stay as they are: once the merged kernel of Q, K, V and A took an n-th of all four, and prompts were
    faster with adapters than without."""
    sets = (f"workload.n={adapters}",)
    plain, own = (served(name, "vllm", said) for name, said in (("llama3_8b_decoder", ()), ("llama3_8b_lora_decoder", sets)))
    assert own.weights_each[0] - plain.weights_each[0] == pytest.approx(2 * 32 * adapters * 16 * (4096 + 4096 + 2 * 1024))
    steps = Steps.of(prefill=4000.0, prompts=2.0)
    base, more = plain.price(steps), own.price(steps)
    counted = [sum(float(row.amount[0]) for row in one.ledger.rows if row.action == "mac" and row.einsum != "QK") for one in (base, more)]
    narrow = 2 * 32 * 4000 * 16 * (4096 + 4096 + 2 * 1024)
    assert counted[1] - counted[0] == pytest.approx(narrow, rel=1e-9)
    assert more.seconds[0] > 1.005 * base.seconds[0]


def test_merged_products_read_their_operand_once_and_all_their_weights(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(MERGED, encoding="utf-8")
    ledger = served(profile=str(path)).price(Steps.of(decodes=16, context=1)).ledger.where(level="gpu", action="read", einsum="Q")
    read = {row.tensor: float(row.amount[0]) / 32 for row in ledger}
    assert read == {"N1": 16 * 4096 * 2, "WQ": 4096 * 4096 * 2, "WK": 4096 * 1024 * 2, "WV": 4096 * 1024 * 2}


@pytest.mark.parametrize("tensor", [1, 8])
def test_merged_kernels_are_priced_alike_by_a_search(tensor: int, tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(MERGED, encoding="utf-8")
    found = searched(["workload.sizes.b=24", "workload.sizes.t=3001"], str(path), ti=tensor)
    mine = served(profile=str(path), tensor=tensor).price(Steps.of(decodes=24, context=3000))
    assert mine.seconds[0] == pytest.approx(found.latency_s, rel=1e-12)


def test_the_host_launches_the_kernel_that_quantises_before_a_product() -> None:
    """Queries, keys and values are one product, gate and up another, then those of attention's output and of down: four a layer."""
    profile = read_profile("sglang")
    slow = profile.model_copy(update={"host": profile.host.model_copy(update={"layer_s": 0.0, "launch_s": 1e-3})})
    formats = ("workload.precision.weight=fp8_block", "workload.precision.product=fp8_block")
    plain, blocks = (replace(served("llama3_8b_decoder", "sglang", sets), profile=slow) for sets in ((), formats))
    one = Steps.of(decodes=1.0, context=100.0)
    assert blocks.price(one).seconds[0] - plain.price(one).seconds[0] == pytest.approx(32 * 4 * 1e-3, rel=0.05)


@pytest.mark.parametrize("degrees", [[(2, 1), (4, 1), (8, 1)], [(2, 2), (4, 4)]])
def test_deployments_of_one_plan_priced_together_are_those_priced_alone(degrees: list[tuple[int, int]]) -> None:
    every = [Deployment(tensor=tensor, pipeline=pipeline, expert_tensor=tensor) for tensor, pipeline in degrees]
    first = served("llama3_8b_decoder", "vllm", tensor=2, pipeline=every[0].pipeline)
    together = replace(first, deployment=every[0], others=tuple(every[1:]))
    sizes = {"decodes": [32.0, 0.0], "context": [900.0, 0.0], "prefill": [0.0, 2000.0], "prompts": [0.0, 2.0]}
    parts = [Steps.of(**sizes, mesh=float(mesh)) for mesh in range(len(every))]
    figures = together.price(Steps.joined(parts))
    for mesh, one in enumerate(every):
        alone = replace(first, deployment=one)
        own, at = alone.price(Steps.of(**sizes)), slice(2 * mesh, 2 * mesh + 2)
        assert own.seconds == pytest.approx(figures.seconds[at], rel=1e-12)
        assert own.joules == pytest.approx(figures.joules[at], rel=1e-12)
        assert (alone.weights_each[0], alone.kv_bytes_per_token) == (together.weights_each[mesh], together.kv_each[mesh])


def test_deployments_of_unlike_plans_are_apart() -> None:
    """16 parts of 8 heads of keys and values are laid out in another way than 2 to 8; so is a pipeline."""
    every = [Deployment(tensor=t, pipeline=p, expert_tensor=t) for t, p in ((2, 1), (16, 1), (4, 1), (2, 2))]
    groups = of_one_plan(read_mapper("serving"), read_workload("llama3_8b_decoder"), every)
    assert sorted(groups) == [(0, 2), (1,), (3,)]
    with pytest.raises(InputError, match="unlike plans"):
        _ = replace(served("llama3_8b_decoder"), deployment=every[0], others=(every[1],)).replica


def test_a_model_under_a_profile_of_other_kernels_is_laid_out_anew() -> None:
    """`under` shares what profiles of other host's times have alike; `replace` shares nothing."""
    model = served("llama3_8b_decoder", "vllm", tensor=2)
    one = Steps.of(decodes=8.0, context=100.0)
    model.price(one)
    other = model.profile.model_copy(update={"merged": model.profile.merged.model_copy(update={"residuals": False})})
    fresh = served("llama3_8b_decoder", "vllm", tensor=2)
    assert replace(model, profile=other).price(one).seconds == pytest.approx(replace(fresh, profile=other).price(one).seconds, rel=1e-15)
    assert replace(model, profile=other).price(one).seconds[0] > model.price(one).seconds[0]
    assert model.under(model.profile).laid_out is model.laid_out


@pytest.mark.parametrize(
    ("tensor", "tokens", "goes_on"), [(2, 4096, True), (2, 4097, False), (4, 128, True), (4, 129, False), (8, 33, False)]
)
def test_all_reduces_go_on_with_the_norm_after_them_up_to_a_size_by_degree(tensor: int, tokens: int, goes_on: bool) -> None:
    """64, 2 and 0.5 MiB of two, four and eight H100, of 8,192 elements of 2 bytes a token: then TensorRT-LLM's kernel sums, and no kernel
    of a norm starts; beyond, vLLM's own kernel sums and each norm starts."""
    machine, profile = read_architecture("dgx_h100", [f"accelerators={tensor}"]), read_profile("vllm")
    apart = profile.model_copy(update={"merged": profile.merged.model_copy(update={"reductions": False})})
    always = profile.model_copy(update={"merged": profile.merged.model_copy(update={"reductions": True})})
    step = Steps.of(decodes=float(tokens), context=1.0)

    def row(of: ProfileSpec, einsum: str, component: str) -> float:
        model = ServedModel(
            workload=read_workload("llama3_70b_decoder"), architecture=machine,
            deployment=Deployment(tensor=tensor, expert_tensor=tensor), profile=of,
        )  # fmt: skip
        rows = model.price(step).ledger.where(einsum=einsum, component=component)
        return sum(float(one.exposed_seconds[0]) for one in rows)

    calls = machine_calls(machine, profile.collectives)
    assert calls is not None
    volume, members = np.array([tokens * 8192 * 2.0]), np.array([tensor])
    own = calls.lines("node", "all_reduce", 16, members, volume).seconds(volume)
    theirs = machine_calls(machine, LibraryCall(library="trtllm"))
    assert theirs is not None
    fused = theirs.lines("node", "all_reduce", 16, members, volume).seconds(volume)
    assert profile.collectives is not None
    late = profile.collectives.waits_s * NormalDist().inv_cdf((tensor - 0.375) / (tensor + 0.25))
    assert row(profile, "O", "network") == pytest.approx(80 * (late + float((fused if goes_on else own)[0])), rel=1e-9)
    assert row(profile, "norm2", "memory") == pytest.approx(row(always if goes_on else apart, "norm2", "memory"), rel=1e-12)
    assert row(always, "norm2", "memory") < row(apart, "norm2", "memory")


def test_all_reduces_that_are_listed_go_on_with_no_norm_where_ranks_have_requests_of_their_own() -> None:
    deployment = Deployment(tensor=2, attention_data=2, expert_tensor=4)
    model = ServedModel(
        workload=read_workload("llama3_70b_decoder"), architecture=read_architecture("dgx_h100", ["accelerators=4"]),
        deployment=deployment, profile=read_profile("vllm"),
    )  # fmt: skip
    apart = model.profile.model_copy(update={"merged": model.profile.merged.model_copy(update={"reductions": False})})
    one = Steps.of(decodes=8.0, context=100.0)
    assert model.price(one).seconds == pytest.approx(replace(model, profile=apart).price(one).seconds, rel=1e-15)


def test_around_an_indexer_kernels_norm_rotate_narrow_score_and_pick() -> None:
    """One layer of GLM-5 on eight B200, 16 sequences of 9,000 tokens: keys of the indexer are normed, rotated with its queries and put into
    their cache, queries are narrowed, scores are weighed where they are made and written in 4 bytes, and 2,048 of them are picked. All of
    it is done by every rank of tensor parallelism (deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py)."""
    sequences, tokens, layers = 16, 9001, 78
    model = ServedModel(
        workload=read_workload("glm5_decoder"), architecture=read_architecture("dgx_b200", ["accelerators=8"]),
        deployment=Deployment(tensor=8, expert_tensor=8), profile=read_profile("vllm"),
    )  # fmt: skip
    ledger = model.price(Steps.of(decodes=float(sequences), context=tokens - 1.0), np.array([True])).ledger

    def seconds(name: str) -> float:
        rows = [row for einsum in (name, f"{name}_2") for row in ledger.where(einsum=einsum)]
        return sum(float(row.exposed_seconds[0]) for row in rows) / layers

    def moved(name: str, tensor: str, action: str) -> float:
        rows = [row for end in ("", "_2") for row in ledger.where(einsum=name + end, tensor=tensor + end, action=action, level="gpu")]
        return sum(float(row.amount[0]) for row in rows) / layers / 8

    gpu = gpu_of(model.architecture)
    assert gpu is not None
    facts, device = gpu.facts.vector["topk"], VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache)
    scores, picked = sequences * tokens * 4.0, sequences * 2048 * 4.0
    assert moved("weighI", "AL", "write") == pytest.approx(scores)
    assert (moved("pick", "AL", "read"), moved("pick", "IK", "write")) == pytest.approx((scores, picked))
    assert seconds("pick") == pytest.approx(float(vector_seconds(facts, device, scores + picked, float(sequences))), rel=1e-9)
    starts = {name: gpu.facts.vector[kind].start_s for name, kind in (("ropeQI", "rope"), ("ropeKI", "rope"), ("narrow", "quantise"))}
    assert all(start < seconds(name) < 2 * start for name, start in starts.items())  # vLLM writes the cache by a kernel of its own
    assert seconds("weighI") > gpu.facts.start_in_stream_s  # the kernel that scores
    assert moved("index", "KIC", "read") == pytest.approx(sequences * tokens * 128.0, rel=0.01)  # pages of 64 tokens
    assert moved("narrow", "QIN", "write") == pytest.approx(sequences * 32 * 128.0)


@pytest.mark.parametrize(
    ("profile", "apart"), [("sglang", {"ropeQ_2", "ropeQI_2"}), ("vllm", {"ropeQ_2", "ropeK_2", "ropeQI_2", "ropeKI_2"})]
)
def test_rotations_of_an_indexer_are_kernels_beside_those_of_attention(profile: str, apart: set[str]) -> None:
    """One rotates queries and keys each; vLLM puts keys into each cache by a kernel of its own."""
    model = replace(served("glm5_decoder", profile), architecture=read_architecture("dgx_b200"))
    plan = model.laid_out[0].plans[[one.name for one in model.workload.sections].index("block")]
    rotating = {name for name, op in model.workload.sections[2].workload.ops.items() if op.kind.name == "rope"}
    assert rotating - plan.joined == apart
