"""Facts of frameworks: each moves what it should, by hand where that is short; and intervals of predictions from facts that are ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel.api import search, search_mapper
from rackmodel.cost.program.recompute import recompute_of
from rackmodel.cost.step.tasks.pricer import slowest_of
from rackmodel.errors import InputError
from rackmodel.inputs import library_names, read_architecture, read_inputs, read_profile, read_workload
from rackmodel.inputs.plain_yaml import dumped
from rackmodel.inputs.read import read_collectives
from rackmodel.model.attention import KNOWN_KERNELS
from rackmodel.model.calls import KNOWN_LIBRARIES
from rackmodel.model.layout import REPLICATE
from rackmodel.model.mapping import Copy, MapperSpec
from rackmodel.model.plan import MICRO, Plan
from rackmodel.setting import setting_of
from rackmodel.units import Quantity
from rackmodel.validation.run import validate
from rackmodel.validation.steps import price_cases
from rackmodel.validation.timed import PricedStep
from rackmodel.validation.training import alternatives, training_case
from rackmodel.validation.unknowns import NORMAL, Interval, varied
from rackmodel.validation.words import words
from tests.audit.bounds import search_of
from tests.keys.cases import CASES, edited
from tests.keys.mappers import _RING
from tests.test_validate import RUN, row, table


def priced(*sets: str, save: Copy | None = None, **cells: str) -> PricedStep:
    said = {"arch": "llama", "dataset": "torchtitan", "tp": "1", "pp": "1", "dp": "8", "sharding": "FSDP2", "recompute": "none", **cells}
    case = training_case(row(**said), words())
    return price_cases([replace(case, key=replace(case.key, sets=sets, save=save or case.key.save))])[0]


# -- facts of a profile -------------------------------------------------------------------------------------------------------


def test_an_eager_run_takes_longer_than_a_compiled_one() -> None:
    eager, compiled = priced(notes="eager"), priced()
    assert eager.bins["memory"] > 1.5 * compiled.bins["memory"]


def test_what_kernels_of_a_composite_hand_over_is_moved_and_held() -> None:
    plain, more = priced("profile.composites={}"), priced("profile.composites={swiglu: {backward: {kernels: 2, bytes: 100}}}")
    assert more.seconds > plain.seconds
    assert more.bytes == plain.bytes
    some, held = (priced(f"profile.composites={{cross_entropy: {{backward: {{held: {size}}}}}}}") for size in (6, 12))
    tokens, vocabulary = 1024.0, 51200.0
    assert held.bytes - some.bytes == pytest.approx(6.0 * tokens * vocabulary)


def test_a_loss_whose_vocabulary_ranks_share_moves_and_holds_more() -> None:
    """Each of eight ranks has an eighth of the logits; one by itself has all, and its kernels need nothing beside."""
    said = "profile.composites={{cross_entropy: {{backward: {{over_ranks: {{bytes: {0}, held: {1}}}}}}}}}"
    none, moved, held, full = (said.format(*both) for both in ((0, 0), (4000, 0), (0, 60), (0, 120)))
    over = {"tp": "8", "dp": "1", "n_gpus": "8", "sp": "true"}
    plain, more, some, twice = (priced(each, **over) for each in (none, moved, held, full))
    logits = 1024.0 * 51200.0 / 8
    assert more.bytes == plain.bytes
    assert twice.bytes - some.bytes == pytest.approx(60 * logits)
    assert more.seconds - plain.seconds > 4000 * logits / 2.4e12  # more than the memory moves in that time
    assert some.seconds == plain.seconds
    for alone in (moved, held):
        assert (priced(alone).seconds, priced(alone).bytes) == (priced(none).seconds, priced(none).bytes)


def test_casts_take_time_in_low_precision_alone() -> None:
    without, zero = (
        priced("profile.casts={}", gpu="H100", precision="fp8"),
        priced("profile.casts={8 bit: {}}", gpu="H100", precision="fp8"),
    )
    assert zero.seconds == without.seconds
    assert priced(gpu="H100", precision="fp8").seconds > without.seconds
    assert priced("profile.casts={}").seconds == priced().seconds


def test_operands_are_sent_and_kept_as_wide_as_their_framework_does() -> None:
    """What is multiplied at 8 bit and sent at 16 takes twice the bytes of its gathers; kept at 16, twice the memory of what is kept."""
    cells = {"gpu": "H100", "precision": "fp8", "tp": "8", "dp": "1", "n_gpus": "8", "sp": "true"}
    cells |= {"hidden": "8192", "heads": "64", "seq_len": "8192", "ffn": "28672"}
    casts = [f"profile.casts={{8 bit: {{{said}}}}}" for said in ("", "sent: 16 bit", "kept: 16 bit")]
    plain, sent, kept = (priced(said, save="shard", **cells) for said in casts)
    gathers = plain.bins["network all_gather"], sent.bins["network all_gather"]
    assert 1.3 * gathers[0] < gathers[1] < 2 * gathers[0]  # gradients are at 16 bit in both, as are residuals
    assert sent.bins["network reduce_scatter"] == pytest.approx(plain.bins["network reduce_scatter"], rel=1e-3)
    assert kept.seconds == plain.seconds
    assert kept.bytes > sent.bytes == plain.bytes
    as_it_is = priced("profile.casts={8 bit: {sent: 8 bit, kept: 8 bit}}", save="shard", **cells)
    assert (as_it_is.seconds, as_it_is.bytes) == (plain.seconds, plain.bytes)
    assert (
        priced("profile.casts={8 bit: {sent: 16 bit, kept: 16 bit}}").seconds == priced("profile.casts={}").seconds
    )  # nothing is at 8 bit
    with pytest.raises(InputError, match=r"casts\.8 bit|wide"):
        read_profile("fsdp", ["profile.casts={8 bit: {sent: wide}}"])
    with pytest.raises(InputError, match="operands of 8 bit are kept as they are, or wider: '4 bit' is not"):
        read_profile("fsdp", ["profile.casts={8 bit: {kept: 4 bit}}"])


def test_float8_scaled_by_row_casts_every_operand_along_both_axes() -> None:
    """Along columns: 2 B to look for the largest value, 3 B to cast and transpose at 1.4 of 2.2 TB/s, all at 0.65 of 2.1 TB/s at most;
    and 4 B of a kernel that scales what a product of the backward pass made."""
    casts = read_profile("torchtitan_rowwise").casts["8 bit"]
    scaled = 4
    assert casts.again == pytest.approx(2 + 3 * 2.2 / 1.4 + scaled, abs=0.05)
    assert casts.again.high == pytest.approx(5 * 2.1 / 0.65 + scaled, abs=0.05)
    assert casts.gradient.low == pytest.approx(casts.activation.low + casts.again.low)
    assert casts.gradient.high == pytest.approx(casts.activation.high + casts.again.high - scaled)
    row_wise, tensor_wise = priced(gpu="H100", precision="fp8-rowwise"), priced(gpu="H100", precision="fp8-tensorwise")
    assert row_wise.seconds > tensor_wise.seconds
    assert row_wise.bins["memory"] > tensor_wise.bins["memory"]


def test_rows_scaled_by_row_run_under_profiles_of_their_own() -> None:
    cells = {"arch": "llama", "dataset": "torchtitan", "pp": "1", "dp": "4", "sharding": "FSDP2", "recompute": "none"}
    for precision, notes, profile in (
        ("fp8-rowwise", "vanilla", "torchtitan_rowwise"),
        ("fp8-rowwise", "asyncTP", "torchtitan_rowwise_async"),
        ("fp8-tensorwise", "vanilla", "torchtitan_sync"),
        ("bf16", "asyncTP", "torchtitan"),
    ):
        assert training_case(row(**cells, precision=precision, notes=notes), words()).key.profile == profile


def test_a_call_that_copies_each_ranks_part_takes_longer_by_its_ranks_and_a_whole_weight_makes_none() -> None:
    """Llama's seven matrices are weights of four operands, norms stay whole: in each of two micro-batches a layer gathers four times
    forward and backward and reduces four times, over 8 ranks; the head too, the embedding's backward pass does not read its table."""
    serial = "profile.overlap={weights: false, gradients: false}"
    said = "profile.buckets={holds: operand, whole: 1e5, rank: %s}"
    none, some = priced(serial, said % "0 us"), priced(serial, said % "1 ms")
    calls = 2 * (4 * 4 * 3 + 3 + 2)
    assert some.seconds - none.seconds == pytest.approx(calls * 8 * 1e-3, rel=1e-6)


def test_recomputation_that_drops_what_it_gathered_gathers_a_third_time() -> None:
    serial = ("profile.overlap.weights=false", "profile.overlap.gradients=false")
    four, eight = (priced(*serial, recompute="full", layers=layers).bins["network all_gather"] for layers in ("4", "8"))
    again = priced(*serial, "profile.overlap.regather=true", recompute="full").bins["network all_gather"]
    assert again - four == pytest.approx((eight - four) / 2)  # four layers gather twice; of embedding and head nothing is recomputed


def test_a_search_over_policies_and_homes_gathers_a_third_time_as_one_of_a_single_plan_does(tmp_path: Path) -> None:
    """Where layouts have several of both, a plan that recomputes and shards is no sum of one that does the first and one the second."""
    state: dict[str, object] = {"axes": ["dp"], "grad": "shard", "state": "shard"}
    shards = [state, {**state, "param": "shard"}]
    profile = tmp_path / "again.yaml"
    profile.write_text(dumped({"profile": "again", "overlap": {"weights": True, "regather": True}}))

    def joules(policies: list[str], homes: list[dict[str, object]]) -> list[float]:
        """Of every point of a space, without static power."""
        said = {"mapper": "both", "axes": {"dp": {"degree": 8}}, "split": {"dp": ["b"]}, "recompute": policies, "homes": {"weights": homes}}
        mapper = tmp_path / f"{len(homes)}.yaml"
        mapper.write_text(dumped(said))
        inputs = read_inputs("dgx_h100", "llama3_8b", mapper=str(mapper), sets=["accelerators=8", "layers=4", "b=8", "s=512"])
        assert inputs.mapper is not None
        search = search_of((inputs.architecture, inputs.workload, inputs.mapper), str(profile))
        listed = [(block, flat) for block in search.blocks.walk() if block is not None for flat in range(block.seconds.size)]
        points = search.clocked.exact([search.blocks.point(*one, 0.0) for one in listed])
        return [point.joules - search.static_w * point.seconds for point in points]

    among = joules(["none", "full"], shards)
    assert len(among) == 4
    assert among[-1] == pytest.approx(joules(["full"], shards[1:])[0], rel=1e-12)


def test_a_weight_is_not_gathered_ahead_beside_a_large_one() -> None:
    ahead, none = priced(), priced("profile.overlap.ahead=1")
    some = priced("profile.overlap.ahead=2e7")
    assert ahead.seconds < some.seconds < none.seconds


def test_rates_of_collectives_are_scaled() -> None:
    serial = ("profile.overlap.weights=false", "profile.overlap.gradients=false", "profile.buckets.rank=0 us")
    whole, half = (priced(*serial, f"profile.links={share}").bins["network all_gather"] for share in (1, 0.5))
    assert whole < half < 2 * whole  # what a call takes whatever it moves stays


def test_another_micro_batchs_products_hide_an_all_to_all() -> None:
    moe = {
        "model": "Qwen3_30B_a3B",
        "dataset": "nemo_megatron_bridge",
        "ep": "8",
        "layers": "",
        "hidden": "",
        "heads": "",
        "ffn": "",
        "sharding": "",
        "notes": "",
    }
    window = "profile.overlap.windows.all_to_all={beside: %s, share: 1}"
    alone, hidden = priced(window % "none", **moe), priced(window % "pass", **moe)
    slower = float(read_profile("nemo").overlap.contention)  # all that is left of it: what the products take longer beside it
    assert hidden.bins["network all_to_all"] == pytest.approx(slower * alone.bins["network all_to_all"], rel=0.01)
    assert hidden.seconds < alone.seconds


def test_the_host_launches_every_kernel_of_a_pass() -> None:
    slow = priced("profile.host={launch: 1 ms}")
    assert slow.bins["host"] > 0
    assert priced("profile.host={launch: 2 ms}").bins["host"] > 1.5 * slow.bins["host"]
    assert "host" not in priced("profile.host={}").bins


def test_a_host_that_is_slower_takes_longer_for_every_launch(tmp_path: Path) -> None:
    """All that is launched takes 1 s, three times as long on such a machine: the step is as long as launches of 3 s make it."""

    def seconds(launch: int, launching: float) -> float:
        profile = tmp_path / "launched.yaml"
        profile.write_text(f"profile: launched\nhost: {{launch: {launch} s}}\n")
        sets = ["accelerators=8", "b=8", "layers=2", f"node.launching={launching}"]
        return search("dgx_h100", "llama3_8b", "data", sets=sets, profile=str(profile)).result.latency_s

    assert seconds(3, 1.0) == pytest.approx(3 * seconds(1, 1.0), rel=0.02)
    assert seconds(1, 3.0) == seconds(3, 1.0)
    for name in ("gb200_nvl72", "gb300_nvl72"):
        assert read_architecture(name).launching == pytest.approx(37.08 / 13.48, abs=0.001)


def test_casts_that_another_kernel_writes_take_no_time() -> None:
    every, some = (
        priced(f"profile.casts={{8 bit: {{activation: 4{more}}}}}", gpu="H100", precision="fp8") for more in ("", ", fused: [rmsnorm]")
    )
    assert priced("profile.casts={}", gpu="H100", precision="fp8").seconds < some.seconds < every.seconds
    with pytest.raises(InputError, match="no kind of operation called 'norm'"):
        read_profile("nemo", ("profile.casts={8 bit: {fused: [norm]}}",))


def test_the_host_launches_a_product_for_every_expert_where_a_profile_says_so() -> None:
    cells = {"dataset": "nemo_megatron_bridge", "model": "Qwen3_30B_a3B", "gpu": "H100", "n_gpus": "8", "ep": "8", "sharding": "none"}
    cells |= {"layers": "", "hidden": "", "heads": "", "kv_heads": "", "ffn": "", "vocab": "", "arch": ""}
    launched, more = ("profile.host={launch: 1 ms, expert: 1}", "profile.host={launch: 2 ms, expert: 1}")
    one = priced(launched, "profile.grouped=one", **cells)
    each = priced(launched, "profile.grouped=each", **cells)
    assert each.bins["host"] > 2 * one.bins["host"]
    # 16 experts an accelerator for one call of each product, gate and up being one: 2 forward, 4 backward; 48 layers, two micro-batches
    assert each.bins["host"] - one.bins["host"] == pytest.approx((16 - 1) * (2 + 4) * 48 * 2 * 1e-3, rel=1e-9)
    assert priced(more, "profile.grouped=each", **cells).seconds == pytest.approx(2 * each.seconds, rel=0.2)
    longer = priced("profile.host={launch: 1 ms, expert: 2.5}", "profile.grouped=each", **cells)
    assert longer.bins["host"] - one.bins["host"] == pytest.approx((16 * 2.5 - 1) * (2 + 4) * 48 * 2 * 1e-3, rel=1e-9)
    dense = {"dataset": "nemo_megatron_bridge"}
    assert priced("profile.grouped=each", **dense).seconds == priced("profile.grouped=one", **dense).seconds


def test_an_attention_kernel_that_nobody_knows_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    """A machine may not tell kernels apart, but a name that no machine knows is a slip of the keyboard."""
    asked = ("dgx_h100", "llama3_8b", "fsdp")
    with pytest.raises(InputError, match=r"--set profile.attention_kernel=fa9.*'fa9'(?s:.*)did you mean 'fa") as problem:
        search(*asked, sets=["profile.attention_kernel=fa9"], profile="torchtitan")
    assert {"fa2", "cudnn", "sdpa"} <= set(problem.value.known)
    (tmp_path / "mine.yaml").write_text("profile: mine\nextends: torchtitan\nattention_kernel: flash3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"mine.yaml:3:19: profile.attention_kernel"):
        search(*asked, profile=str(tmp_path / "mine.yaml"))


def test_every_library_of_collectives_that_the_shipped_networks_name_is_known() -> None:
    named = {library for name in library_names()["collectives"] for library in read_collectives(name).calls}
    assert {"nccl", "torch"} <= named <= set(KNOWN_LIBRARIES)


@pytest.mark.parametrize("profile", ["nemo", "torchtitan", "vllm"])
@pytest.mark.parametrize("machine", ["dgx_v100", "dgx_h800", "dgx_h100", "dgx_a100"])
def test_a_library_that_the_machine_does_not_state_leaves_the_networks_lines(machine: str, profile: str) -> None:
    setting_of(read_architecture(machine), read_profile(profile), ("ring",))


def test_a_library_of_collectives_that_nobody_knows_is_refused_where_it_is_asked_for() -> None:
    for machine in ("dgx_h100", "dgx_v100", "rack_paper"):
        with pytest.raises(InputError, match=r"--set profile.collectives.library=ncll.*'ncll' are known(?s:.*)did you mean 'nccl'"):
            search(machine, "ffn", "data", sets=["accelerators=8", "profile.collectives.library=ncll"], profile="nemo")


def test_every_kernel_of_attention_that_the_library_names_is_known() -> None:
    parts = [read_architecture(name).inside for name in ("a100", "h100", "h200", "b200", "dgx_b300", "gb200_nvl72", "l40s_node", "dgx_h20")]
    facts = [level.compute.kernels for inside in parts for level, _ in inside if level.compute is not None and level.compute.kernels]
    named = {rate.split()[2] for one in facts for rate in one.named if rate.startswith("attention ") and len(rate.split()) == 3}
    named |= {name for one in facts for name in one.attention}
    assert named | {one.kernel for one in words().attention_kernels} == set(KNOWN_KERNELS)


def test_an_attention_kernel_has_a_rate_of_its_own_where_a_part_tells_it() -> None:
    cells = {"gpu": "H100", "seq_len": "16384"}
    own, named = (priced(f"profile.attention_kernel={name}", **cells) for name in ("fa3", "fa2"))  # of `fa3` it tells none apart
    assert named.seconds > own.seconds
    assert priced("profile.attention_kernel=fa2", gpu="A100").seconds == priced(gpu="A100").seconds  # A100's rates are FlashAttention-2's


def test_a_data_set_may_change_the_machines_that_its_rows_name() -> None:
    case = training_case(row(dataset="vtrain_multi"), words())
    assert ("su.network.bandwidth", "12.5 GB/s") in case.key.set


def test_the_slowest_of_many_lies_further_from_the_middle() -> None:
    one, eight, many = slowest_of(np.array([1, 8, 4096]))
    assert one == 0.0
    assert eight == pytest.approx(1.4236, rel=0.01)  # the expected largest of eight normal values; Blom's form is near it
    assert 3.3 < many < 3.7
    still, spread = (priced(f"profile.variation={share}", hidden="8192", heads="64", seq_len="4096") for share in (0, 0.1))
    more = spread.bins["compute"] - still.bins["compute"]
    assert more > 0
    assert spread.seconds - still.seconds == pytest.approx(more, rel=0.1)  # compute alone


def test_scattered_sends_move_a_part_each_and_gather_inside_the_node() -> None:
    cells = {"arch": "gpt", "dataset": "korthikanti22_t5", "n_gpus": "64", "tp": "8", "pp": "8", "dp": "1"}
    cells |= {"layers": "8", "hidden": "8192", "heads": "64"}
    cells |= {"sp": "false", "sharding": "none", "vpp": "1", "gbs": "16", "recompute": "full"}
    whole, scattered = (priced(f"profile.hand_over={how}", **cells) for how in ("whole", "scattered"))
    assert scattered.bins["network send"] < 0.5 * whole.bins["network send"]
    same = {**cells, "sp": "true"}  # ranks hold different parts: nothing to scatter
    assert priced("profile.hand_over=whole", **same).seconds == priced("profile.hand_over=scattered", **same).seconds


def test_kernels_around_a_router_and_a_dispatcher_take_a_start_each() -> None:
    """Of a layer's forward pass 3 that make maps of rows, 2 of sorts, 6 of counts and 5 of the loss beside the three that move tokens, of
    its backward pass 3 of the loss and 4 casts: 23 starts of 5.7 us in each of 48 layers and 8 micro-batches of Qwen3 30B."""
    cells = {"model": "Qwen3 30B A3B", "arch": "", "dataset": "mine", "gpu": "H100", "n_gpus": "8", "dp": "8", "ep": "8"}
    cells |= {
        "sharding": "ZeRO-1",
        "gbs": "64",
        "mbs": "1",
        "seq_len": "4096",
        "precision": "bf16",
        "layers": "",
        "hidden": "",
        "heads": "",
    }
    cells |= {"kv_heads": "", "ffn": "", "vocab": ""}
    still = ("profile.host={}", "profile.grouped=one")
    few = "profile.composites.dispatch={forward: {kernels: 3, bytes: 8}, backward: {kernels: 3, bytes: 8}}"
    some, all_of_them = (priced(*still, *more, **cells) for more in ((few,), ()))
    assert all_of_them.seconds - some.seconds == pytest.approx(48 * 8 * 23 * 5.7e-6, rel=0.02)


def test_every_other_product_is_made_again_between_none_and_all() -> None:
    none, alternate, full = (priced(recompute=how) for how in ("none", "per-op SAC", "full"))
    assert none.seconds < alternate.seconds < full.seconds
    assert full.bytes < alternate.bytes < none.bytes


@pytest.mark.parametrize("name", ["llama3_8b", "llama_repeated", "llama_ring"])
def test_every_other_product_of_a_llama_is_its_keys_output_and_up_projection(name: str) -> None:
    from rackmodel.inputs import read_mapper
    from rackmodel.mapper.given import GivenMesh, given_columns
    from rackmodel.mapper.listed_choices import laid_out

    workload, mapper = read_workload(name), read_mapper("parallel")
    closed = laid_out(mapper, mapper.layouts["tensor"]).model_copy(update={"layouts": {}, "recompute": "none", "homes": {}})
    mesh = GivenMesh({"pp": 1, "dp": 8, "cp": 1, "tp": 1}, 1, workload.sizes["b"] // 8)
    plan = given_columns(closed, workload, [mesh])[0][0].plan
    block = workload.sections[1].workload
    found = recompute_of(block, replace(plan, recompute="alternate"))
    again = [name for name in found.rerun if any(block.tensors[a.tensor].kind == "weight" for a in block.ops[name].ins)]
    assert [name for name in again if block.ops[name].kind.name == "einsum"] == ["K", "O", "up"]
    assert found.idle == {"D"}
    compiled = recompute_of(block, replace(plan, recompute="alternate", drops_unread=True))
    assert compiled == replace(found, idle=frozenset())


def rerun(name: str, section: int, policy: str, how: str = "region") -> tuple[str, ...]:
    """Operations that a policy runs again in one section of a model on one accelerator."""
    block = read_workload(name).sections[section].workload
    edges = dict.fromkeys((*block.inputs, *block.outputs), (REPLICATE,))
    choices, stages = dict.fromkeys(block.ops, (None,)), dict.fromkeys(block.ops, 0)
    plan = Plan(axes=(MICRO,), choices=choices, boundary=edges, stages=stages, homes={}, save={})
    plan = replace(plan, recompute=policy, rerun=how)
    return recompute_of(block, plan).rerun


def test_norms_and_activations_or_layers_of_experts_are_made_again() -> None:
    """Megatron-Core's modules: layernorm and moe_act; moe beside them. The router, what is sent and shared experts are part of moe."""
    assert rerun("moe_llama", 1, "pointwise") == ("norm1", "norm2", "swiglu")
    experts = ("router", "gates", "dispatch", "gate", "up", "swiglu", "down", "combine")
    assert rerun("moe_llama", 1, "experts") == ("norm1", "norm2", *experts)
    assert rerun("moe_llama", 1, "experts", "slice") == ("norm1", "norm2", *experts[:-1])  # nothing reads what combine makes
    hybrid = set(rerun("mamba_latent_moe", 2, "experts"))
    assert hybrid == {*read_workload("mamba_latent_moe").sections[2].workload.ops} - {"res2"}
    assert rerun("llama3_8b", 1, "experts") == rerun("llama3_8b", 1, "pointwise") == ("norm1", "norm2", "swiglu")


def test_more_is_made_again_for_less_memory() -> None:
    steps = [priced(recompute=how) for how in ("none", "norms and activations", "full")]
    assert steps[0].seconds < steps[1].seconds < steps[2].seconds
    assert steps[0].bytes > steps[1].bytes > steps[2].bytes


def test_a_profile_names_what_it_does_not_know() -> None:
    with pytest.raises(InputError, match="no kind of operation called 'rmsnrm'") as found:
        read_profile("fsdp", ["profile.composites={rmsnrm: {}}"])
    assert "rmsnorm" in (found.value.known or ())
    with pytest.raises(InputError, match="unknown key 'contentio'"):
        read_profile("fsdp", ["profile.overlap.contentio=0.1"])
    with pytest.raises(InputError, match="only profiles can be set"):
        validate([], sets=["gpu.count=4"])


# -- intervals ----------------------------------------------------------------------------------------------------------------


def test_an_interval_adds_independent_facts_as_squares() -> None:
    found = varied(read_architecture("dgx_h100"), read_profile("serial"), 1)
    assert found.unknowns == ()
    assert found.interval([2.0]) == Interval(2.0, 2.0, {})
    two = varied(read_architecture("dgx_h100"), read_profile("megatron_core"), 1)
    ends = [10.0] * (2 * len(two.unknowns))
    ends[0], ends[1], ends[3] = 7.0, 14.0, 13.0
    interval = two.interval([10.0, *ends])
    assert (interval.low, interval.high) == (7.0, 15.0)
    assert interval.widest == two.unknowns[0].name
    assert interval.owed[two.unknowns[0].name] == pytest.approx((9 + 16) / (9 + 16 + 9))


def test_no_interval_reaches_below_nothing() -> None:
    facts = varied(read_architecture("dgx_h100"), read_profile("megatron_core"), 1)
    assert facts.interval([10.0, *([2.0, 11.0] * len(facts.unknowns))]).low == 0.0
    assert Interval(2.0, 11.0, {"a": 1.0}).beside("profile", 10.0, [3.0]).low == 0.0


def test_facts_that_are_counted_in_launches_move_with_what_a_launch_takes() -> None:
    """One host: what it takes for a launch is a cause of three facts, not three that may go either way each."""
    machine, profile = read_architecture("dgx_a100"), read_profile("megatron_2021")
    found = varied(machine, profile, 1)
    names = [one.name for one in found.unknowns]
    host, own = found.profile.host, profile.host
    assert {"host.backward", "host.hand_over"}.isdisjoint(names)
    place = 1 + 2 * names.index("host.launch")
    for said, each in ((own.launch_s, host.launch_s), (own.backward_s, host.backward_s), (own.hand_over_s, host.hand_over_s)):
        assert isinstance(said, Quantity)
        assert (each[place], each[place + 1]) == (said.low, said.high)
        assert set(np.delete(each, [place, place + 1])) == {float(said)}
    certain = varied(machine, read_profile("megatron_2021", ["profile.host.launch=30 us"]), 1)
    assert "host.backward" in {one.name for one in certain.unknowns}


def test_casts_by_kernels_that_are_alike_are_unsure_together() -> None:
    """Along rows (operands of the forward pass) and along columns (what is cast again, gradients); without a cast again, all alike."""
    machine = read_architecture("dgx_h100")
    for name, apart in (("torchtitan_rowwise", {"activation", "again"}), ("nemo", {"activation"})):
        found = varied(machine, read_profile(name), 1)
        causes = {one.name: one for one in found.unknowns if one.name.startswith("casts.8 bit.")}
        assert {one.removeprefix("casts.8 bit.") for one in causes} == apart
        assert "casts.8 bit.gradient" in causes["casts.8 bit.again" if "again" in apart else "casts.8 bit.activation"].along


def test_an_interval_holds_how_far_one_operators_runs_are_from_anothers() -> None:
    """The same step takes operators of one kind of machine times that differ by 3.1 %; nine of ten lie within 1.64 times it."""
    from rackmodel.validation.runs import OPERATOR, training_rows

    alone = price_cases([training_case(row(), words())])[0]
    (found,) = training_rows([row()])
    assert alone.interval is not None
    assert found.interval is not None
    away = NORMAL * 0.031 * alone.seconds
    assert found.predicted == alone.seconds
    assert found.interval.low == pytest.approx(alone.seconds - np.hypot(alone.seconds - alone.interval.low, away))
    assert found.interval.high == pytest.approx(alone.seconds + np.hypot(alone.interval.high - alone.seconds, away))
    assert 0 < found.interval.owed[OPERATOR] < 1


def test_an_interval_holds_its_prediction_and_every_end_of_a_fact() -> None:
    step = priced()
    assert step.interval is not None
    assert step.interval.low < step.seconds < step.interval.high
    low, high = (priced(f"profile.overlap.contention={share}").seconds for share in (0.05, 0.4))
    assert step.interval.low <= low <= high <= step.interval.high
    assert sum(step.interval.owed.values()) == pytest.approx(1.0)


def test_a_prediction_is_the_same_whatever_its_facts_may_be() -> None:
    profile = read_profile("torchtitan_sync")
    bare = read_profile("torchtitan_sync", [f"profile.variation={float(profile.variation)}"])
    assert (
        len(varied(read_architecture("dgx_h100"), bare, 1).unknowns) == len(varied(read_architecture("dgx_h100"), profile, 1).unknowns) - 1
    )
    assert priced(f"profile.variation={float(profile.variation)}").seconds == priced().seconds


def test_what_a_row_leaves_open_widens_its_interval_and_what_was_tuned_is_the_fastest() -> None:
    open_row = row(dataset="megatron_sc21_t1", mbs="", vpp="1", gbs="16", tp="1", pp="1", dp="8")
    assert {one.value for one in alternatives(open_row, words()) if one.tuned} == {"2", "4", "8"}
    tuned = validate_one(open_row.cells)
    each = [validate_one({**open_row.cells, "mbs": size}) for size in ("1", "2")]
    assert tuned == pytest.approx(min(each))
    wide = Interval(9.0, 11.0, {"a": 1.0}).beside("mbs", 10.0, [10.0, 14.0])
    assert (wide.low, wide.high) == (9.0, pytest.approx(10.0 + 17.0**0.5))
    assert wide.widest == "mbs"


def test_readings_of_other_batches_widen_an_interval_by_what_a_sample_takes() -> None:
    """A step of half the batch, or twice, takes about half and twice as long: that alone makes nothing unsure."""
    from rackmodel.validation.runs import training_rows

    (found,) = training_rows([row(dataset="megascale_f9", gbs="", tp="1", pp="1", dp="8", vpp="1", iteration_time_s="", mfu_pct="40")])
    assert found.interval is not None
    assert "grad_accum = 280" in " ".join(found.assumptions)
    assert 0.6 * found.predicted < found.interval.low < found.predicted < found.interval.high < 1.4 * found.predicted


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_parts_of_a_context_are_joined_once_for_each_other_rank(ranks: int, tmp_path: Path) -> None:
    """Queries of 2 x 128 x 4 x 16 elements: each rank moves 64 B forward and 32 B backward of its share, for each rank but itself."""
    case = edited(CASES["overlapped"], _RING | {"mapper.axes": {"cp": {"degree": ranks}, "dp": {"degree": 8 // ranks}}})
    case = edited(case, {"mapper.split": {"cp": ["s"]}, "profile.heads.ring": {"forward": 64, "backward": 32}})
    (tmp_path / "mine.yaml").write_text(dumped(case["profile"]), encoding="utf-8")
    inputs = read_inputs(dumped(case["arch"]), dumped(case["work"]), mapper=dumped(case["mapper"]))
    assert inputs.mapper is not None
    ledger = search_mapper(inputs.architecture, inputs.workload, inputs.mapper, profile=str(tmp_path / "mine.yaml")).result.ledger
    moved = {(row.phase, row.level): row.amount for row in ledger.rows if row.tensor in ("Q.ring", "dQ.ring") and row.component == "memory"}
    several = 8 // ranks  # whose copies of a context do the same
    expected = {phase: each * 2 * 128 * 4 * 16 * (ranks - 1) * several for phase, each in (("forward", 64), ("backward", 32))}
    assert {phase for phase, _ in moved} == ({"forward", "backward"} if ranks > 1 else set())
    assert all(amount == expected[phase] for (phase, _), amount in moved.items())


def test_a_context_of_one_rank_has_no_parts_to_join() -> None:
    """Under torchtitan, whose kernels have starts, the kernel that joins parts ran on one rank, too: 1.4 % of a small step."""
    workload, found = read_workload("llama", ["layers=2", "b=8", "s=512", "d=1024", "f=2048", "g=2", "q=4", "v=4096"]), []
    for axes, split in (({"dp": 8}, {"dp": ["b"]}), ({"dp": 8, "cp": 1}, {"dp": ["b"], "cp": ["s"]})):
        mapper = MapperSpec.model_validate({"mapper": "one", "axes": {name: {"degree": of} for name, of in axes.items()}, "split": split})
        found.append(search_mapper(read_architecture("dgx_h100", ["accelerators=8"]), workload, mapper, profile="torchtitan").result)
    without, one = found
    assert one.latency_s == pytest.approx(without.latency_s, rel=1e-12)
    assert one.energy_j == pytest.approx(without.energy_j, rel=1e-12)


def validate_one(cells: dict[str, str]) -> float:
    from rackmodel.validation.runs import training_rows

    return training_rows([row(**cells)])[0].predicted


def test_coverage_and_width_are_scored_and_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rackmodel.validation import page

    file = table(tmp_path / "rows.csv", [RUN, {**RUN, "id": "two", "iteration_time_s": "0.05"}])
    report = validate([file])
    score = report.datasets[0].score
    assert score is not None
    assert score.coverage is not None
    assert score.width is not None
    monkeypatch.setattr(page, "EFFECTS", page.EFFECTS[:1])
    written = page.write_page(report, [file], tmp_path / "out")
    assert [path.name for path in written] == [f"{page.STEM}.md", "parity.png"]
    assert "| mine | 2 |" in written[0].read_text(encoding="utf-8")


def test_a_kernel_of_its_own_adds_gradients_up_and_moves_ten_bytes_a_parameter() -> None:
    cells = {"arch": "gpt", "dataset": "korthikanti22_t5", "n_gpus": "1", "tp": "1", "pp": "1", "dp": "1", "sharding": "none", "gbs": "4"}
    fused, separate = (priced(f"profile.accumulation={how}", "profile.host={}", **cells) for how in ("fused", "separate"))
    layers, hidden = 4, 1024
    moved = 10.0 * 12 * hidden**2 * layers * 4  # 2 read, 4 read, 4 written, of 12 h^2 a layer, in four micro-batches
    start = 4 * layers * 6 * 5.7e-6  # of each kernel: a micro-batch, a layer, a product's weight
    embedding = 10.0 * 51200 * hidden * 4  # and the same of the tied embedding, of which the head makes a gradient too
    at_peak = (moved + embedding) / 2.039e12
    assert at_peak < separate.seconds - fused.seconds < 4 * at_peak + start  # vector kernels reach about half of the bandwidth


# -- many rows at once, and the page ------------------------------------------------------------------------------------------


def test_rows_priced_together_have_the_figures_of_each_alone() -> None:
    """Bit by bit: seconds, bytes, bins and intervals, whatever is priced beside them, and whether more than the seconds is asked for."""
    from dataclasses import replace

    gpt = {"arch": "gpt", "dataset": "korthikanti22_t5", "hidden": "1024", "heads": "16", "sp": "true", "sharding": "none"}
    shapes = [("4", "1", "8"), ("8", "1", "16"), ("4", "2", "8"), ("8", "4", "16")]
    rows = [
        {**gpt, "id": f"r{n}", "layers": layers, "n_gpus": str(8 * int(pp)), "tp": "8", "pp": pp, "dp": "1", "vpp": "1", "gbs": gbs}
        for n, (layers, pp, gbs) in enumerate(shapes)
    ]
    cases = [training_case(row(**cells), words()) for cells in rows]
    together = price_cases(cases)
    assert [price_cases([case])[0] for case in cases] == together
    brief = price_cases([replace(case, brief=True) for case in cases])
    assert [step.seconds for step in brief] == [step.seconds for step in together]
    assert [step.bytes for step in brief] == [step.bytes for step in together]
    assert all(step.interval is None and not step.bins for step in brief)


def test_the_page_has_every_table_and_says_where_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rackmodel.validation import page

    monkeypatch.setattr(page, "EFFECTS", page.EFFECTS[:1])
    rows = [{**RUN, "id": name, "dataset": "ours", "iteration_time_s": str(seconds)} for name, seconds in (("a", 0.5), ("b", 0.6))]
    file = table(tmp_path / "rows.csv", rows)
    written = page.write_page(validate([file]), [file], tmp_path / "page")
    assert [path.name for path in written] == [f"{page.STEM}.md", "parity.png"]
    text = written[0].read_text()
    for part in (
        "| ours | 2 |",
        "What each effect is worth",
        "Beside other tools",
        "Calculon",
        "What falls short",
        "fitted to a whole run",
    ):
        assert part in text


def test_some_rows_of_a_data_set_are_evenly_spaced(tmp_path: Path) -> None:
    file = table(tmp_path / "rows.csv", [{**RUN, "id": f"r{n}", "dataset": "ours"} for n in range(10)])
    assert [one.id for one in validate([file], intervals=False, most=3).rows] == ["r0", "r3", "r6"]
    assert len(validate([file], intervals=False, most=20).rows) == 10
