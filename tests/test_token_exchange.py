"""Tokens sent to their experts and back by a library's kernels, as a profile asks: prices of a served step."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

import rackmodel as rm
from rackmodel.cost.network.exchanges import TokenExchange, exchange_seconds, ranks_reached
from rackmodel.cost.program.sent_tokens import sent_tokens
from rackmodel.errors import InputError
from rackmodel.inputs import machine_exchange, read_architecture, read_profile, read_workload
from rackmodel.inputs.read import machine_calls
from rackmodel.serving.ask import service_of
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, StepFigures, Steps

MODEL, LAYERS, RANKS = "deepseek_v3_decoder", 58, 8
MACHINE = read_architecture("dgx_h200", ["accelerators=8"])
DECODES = Steps.of(decodes=128.0, context=2000.0)
PROMPTS = Steps.of(prefill=32768.0, prompts=32.0)


def price(steps: Steps, *sets: str, machine: str = "dgx_h200", ranks: int = RANKS) -> StepFigures:
    deployment = Deployment(tensor=1, attention_data=ranks, expert=ranks)
    architecture = read_architecture(machine, [f"accelerators={ranks}"])
    profile = read_profile("sglang", [f"profile.collectives.{one}" for one in sets])
    return ServedModel(workload=read_workload(MODEL), architecture=architecture, deployment=deployment, profile=profile).price(steps)


def of(figures: StepFigures, tensor: str, figure: str, action: str = "all_to_all") -> float:
    """A figure of a collective of a tensor."""
    rows = [row for row in figures.ledger.rows if row.action == action and row.tensor == tensor]
    return float(sum(np.sum(getattr(row, figure)) for row in rows))


@pytest.mark.parametrize(("steps", "mode", "tokens"), [(DECODES, "low_latency", 16.0), (PROMPTS, "normal", 4096.0)])
def test_both_ways_take_what_the_kernels_take_for_a_ranks_tokens(steps: Steps, mode: str, tokens: float) -> None:
    found = price(steps, "exchange=deepep")
    known = machine_exchange(MACHINE, "node", "deepep", None, mode)  # type: ignore[arg-type]
    assert known is not None
    exchange = TokenExchange(tokens=tokens, hidden=7168, top=8, experts=256, ranks=8.0, sms=20, groups=8, kept=4)
    for tensor, times in (("D_2", known.dispatch), ("E_2", known.combine)):
        by_hand = LAYERS * exchange_seconds(times, mode, exchange)  # type: ignore[arg-type]
        assert of(found, tensor, "exposed_seconds") == pytest.approx(float(by_hand), rel=1e-9)


def test_links_carry_the_copies_that_are_sent_in_their_own_elements() -> None:
    """An expert's copy of 7,168 elements in 1 byte there and 2 back, where the workload's are of 2; normal: one for each rank reached."""
    plain, sent = price(DECODES, "exchange=all_to_all"), price(DECODES, "exchange=deepep")
    assert of(sent, "D_2", "amount") == pytest.approx(of(plain, "D_2", "amount") / 2)
    assert of(sent, "E_2", "amount") == pytest.approx(of(plain, "E_2", "amount"))
    plain, sent = price(PROMPTS, "exchange=all_to_all"), price(PROMPTS, "exchange=deepep")
    copies = 4 * (1 - comb(96, 8) / comb(128, 8))  # of the ranks, a group each, 4 hold the experts that a token's 8 are chosen from
    assert of(sent, "E_2", "amount") / of(plain, "E_2", "amount") == pytest.approx(copies / 8)
    assert of(sent, "E_2", "joules") / of(plain, "E_2", "joules") == pytest.approx(copies / 8)


@pytest.mark.parametrize(("ranks", "last"), [(2, 0.5642), (4, 1.0294), (8, 1.4236)])
@pytest.mark.parametrize(("steps", "tokens"), [(DECODES, 128), (PROMPTS, 32768)])
def test_gathered_tokens_are_those_of_all_ranks_whatever_experts_they_chose(steps: Steps, tokens: int, ranks: int, last: float) -> None:
    """7,168 elements of 2 bytes of every token are gathered before the experts and reduced behind them, as NCCL was measured to; each rank
    receives and sends what the R - 1 others have of it, and waits for the last of them (`last`: how many standard deviations the latest of
    R is late in the mean). An all-to-all sends 8 copies of a rank's tokens, but for those that stay."""
    found, sent = (price(steps, f"exchange={name}", ranks=ranks) for name in ("gathered", "all_to_all"))
    alone, late = price(steps, "exchange=gathered", "waits=0 us", ranks=ranks), read_profile("sglang").collectives.waits_s * last
    assert late > 0
    whole, share = tokens * 7168 * 2.0, (ranks - 1) / ranks
    for tensor, action in (("D_2", "all_gather"), ("E_2", "reduce_scatter")):
        lines = machine_calls(MACHINE, read_profile("sglang").collectives).lines("node", action, 16, np.array([ranks]), np.array([whole]))
        by_hand, took = LAYERS * float(lines.seconds(whole)[0]), of(found, tensor, "exposed_seconds", action)
        assert of(alone, tensor, "exposed_seconds", action) == pytest.approx(by_hand, rel=1e-9)
        assert took - by_hand == pytest.approx(LAYERS * late, rel=0.05)  # Blom's approximation of the latest
        assert of(found, tensor, "amount", action) == pytest.approx(LAYERS * ranks * whole * share)
        assert of(sent, tensor, "amount") == pytest.approx(LAYERS * ranks * (whole * 8 / ranks) * share)
        assert of(found, tensor, "exposed_seconds") == 0


def test_a_mode_that_is_asked_for_holds_for_every_step() -> None:
    auto, normal = price(DECODES, "exchange=deepep"), price(DECODES, "exchange=deepep", "exchange_mode=normal")
    assert of(normal, "D_2", "exposed_seconds") > of(auto, "D_2", "exposed_seconds")
    more = price(PROMPTS, "exchange=deepep", "exchange_sms=40")
    assert of(more, "D_2", "exposed_seconds") < of(price(PROMPTS, "exchange=deepep"), "D_2", "exposed_seconds")


def test_steps_of_both_kinds_that_are_priced_together_are_each_as_alone() -> None:
    both = price(Steps.joined([DECODES, PROMPTS]), "exchange=deepep").seconds
    assert both == pytest.approx([float(price(one, "exchange=deepep").seconds[0]) for one in (DECODES, PROMPTS)])


def test_several_nodes_are_those_of_the_network_between_them() -> None:
    steps = Steps.of(decodes=256.0, context=2000.0)
    found = price(steps, "exchange=deepep", ranks=16)
    known = machine_exchange(read_architecture("dgx_h200"), "su", "deepep", None, "low_latency")
    assert known is not None
    exchange = TokenExchange(tokens=16.0, hidden=7168, top=8, experts=256, ranks=16.0, nodes=2)
    by_hand = LAYERS * exchange_seconds(known.dispatch, "low_latency", exchange)
    assert of(found, "D_2", "exposed_seconds") == pytest.approx(float(by_hand), rel=1e-9)


def in_fp4(steps: Steps, *sets: str, machine: str = "gb200_nvl72", ranks: int = RANKS) -> StepFigures:
    """The same of experts in nvfp4, each of 16 elements with a scale of 8 bits."""
    architecture, deployment = (
        read_architecture(machine, [f"accelerators={ranks}"]),
        Deployment(tensor=1, attention_data=ranks, expert=ranks),
    )
    workload = read_workload(MODEL, [f"workload.precision.{part}=nvfp4" for part in ("experts", "product")])
    profile = read_profile("trtllm", [f"profile.collectives.{one}" for one in sets])
    return ServedModel(workload=workload, architecture=architecture, deployment=deployment, profile=profile).price(steps)


@pytest.mark.parametrize("ranks", [8, 32])
@pytest.mark.parametrize(("steps", "tokens"), [(DECODES, 128), (PROMPTS, 32768)])
def test_kernels_that_write_and_read_over_nvlink_send_narrow_tokens_once_to_a_rank(steps: Steps, tokens: int, ranks: int) -> None:
    """4.5 bits of each of 7,168 elements there, 16 back, to every rank that holds one of a token's experts, wherever it is in the rack."""
    found = in_fp4(steps, ranks=ranks)
    known = machine_exchange(read_architecture("gb200_nvl72"), "rack", "nvlink_one_sided", None, "normal")
    assert known is not None
    copies = float(ranks_reached(8, 256, ranks, 8, 4))
    for tensor, times, element in (("D_2", known.dispatch, 4.5 / 8), ("E_2", known.combine, 2.0)):
        by_hand = times.start_s + tokens / ranks * copies * 7168 * element / times.link_bytes_per_s
        assert of(found, tensor, "exposed_seconds") == pytest.approx(LAYERS * by_hand, rel=1e-9)
        assert of(found, tensor, "amount") == pytest.approx(LAYERS * tokens * copies * 7168 * element * (ranks - 1) / ranks)


@pytest.mark.parametrize("name", ["gathered", "all_to_all", "relayed"])
def test_tokens_that_are_narrowed_are_so_on_their_way_there_alone(name: str) -> None:
    wide, narrow = (in_fp4(PROMPTS, f"exchange={name}", f"narrowed={said}") for said in ("[fp8, fp8_block]", "[fp4]"))
    there, back = ("all_gather", "reduce_scatter") if name == "gathered" else ("all_to_all", "all_to_all")
    assert of(narrow, "D_2", "amount", there) == pytest.approx(of(wide, "D_2", "amount", there) * 4.5 / 16)
    assert of(narrow, "E_2", "amount", back) == pytest.approx(of(wide, "E_2", "amount", back))
    assert of(narrow, "D_2", "exposed_seconds", there) < of(wide, "D_2", "exposed_seconds", there)


def test_the_first_exchange_that_the_networks_know_is_taken() -> None:
    """TensorRT-LLM's kernels of NVLink on a GB200, gathered on an H200, whose file has none; a word that no machine knows is refused."""
    plain, listed = (in_fp4(DECODES, f"exchange={name}", machine="dgx_h200") for name in ("gathered", "nvlink_one_sided gathered"))
    assert listed.seconds == pytest.approx(plain.seconds, rel=1e-12)
    with pytest.raises(InputError, match="no exchange of tokens by 'nvlink_one_sidd'"):
        in_fp4(DECODES, "exchange=nvlink_one_sidd gathered")
    with pytest.raises(InputError, match="no exchange of tokens by 'nvlink_one_sided'"):
        in_fp4(DECODES, "exchange=nvlink_one_sided", machine="dgx_h200")


def test_what_a_machine_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="no exchange of tokens by 'deepep'"):
        price(DECODES, "exchange=deepep", machine="dgx_a100")
    service = service_of("dgx_h200", MODEL, ["profile.collectives.exchange=deepp"], "sglang", (1024.0, 1024.0, 0.0))
    model = ServedModel(workload=read_workload(MODEL), architecture=service.machine, profile=service.profile)
    with pytest.raises(InputError, match="no exchange of tokens by 'deepp'") as found:
        model.price(DECODES)
    assert "deepep" in (found.value.known or ())


def test_which_tensors_are_tokens_at_their_experts() -> None:
    served, trained = read_workload(MODEL), read_workload("moe_mla")
    block = next(section.workload for section in served.sections if section.name == "block")
    assert {name: found.way for name in block.tensors if (found := sent_tokens(block, name)) is not None} == {
        "D_2": "dispatch", "G_2": "combine", "U_2": "combine", "E_2": "combine",
    }  # fmt: skip
    found = sent_tokens(block, "D_2")
    assert found is not None
    assert (found.top, found.experts, found.hidden, found.bytes) == (8.0, 256, 7168, 14336.0)
    assert any(sent_tokens(section.workload, name) for section in trained.sections for name in section.workload.tensors)
    assert not any(sent_tokens(one.workload, name) for one in read_workload("llama3_8b").sections for name in one.workload.tensors)


def trained(*sets: str, recompute: str = "none") -> dict[tuple[str, str], tuple[str, float]]:
    """(phase, tensor) → (action, bytes of all ranks) of what a training step of one layer of DeepSeek-V3 exchanges of tokens, on 8 H100."""
    mapper = {
        "mapper": "m",
        "axes": {"ep": {"degree": 8}},
        "split": {"ep": ["x", "b"]},
        "choose": {name: {"ep": "b"} for name in ("router*", "gates*", "dispatch*", "combine*")},
        "recompute": recompute,
        "profile": "deepseek_v3",
    }
    sizes = ["accelerators=8", "b=8", "s=512", "layers=1", *(f"profile.collectives.{one}" for one in sets)]
    sizes += ["precision.recipe=fp8_blockwise"] if any("fp8" in one for one in sets) else []
    ledger = rm.search("dgx_h100", "moe_mla", mapper, set=dict(one.split("=", 1) for one in sizes)).result.ledger
    rows = [row for row in ledger.where(component="network") if row.tensor in ("DX", "E")]
    return {(row.phase, row.tensor): (row.action, row.amount) for row in rows}


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_gradients_of_tokens_go_the_other_way_and_are_not_narrowed(recompute: str) -> None:
    """4,096 tokens of 7,168 elements, 8 experts each, 7 of 8 elsewhere. What comes back of experts as gradients is no operand of theirs.
    (Until 30 November 2026 a backward pass had the bytes of whichever pass was priced first, and gathered what it scatters.)"""
    wide, again = 4096 * 7168 * 8 * 2 * 7 / 8, ["forward", *(["recompute"] if recompute == "full" else [])]
    found = trained("exchange=all_to_all", "narrowed=[fp8_block]", recompute=recompute)
    assert {key: amount for key, (_, amount) in found.items()} == {
        **{(phase, "DX"): pytest.approx(wide / 2, rel=3e-4) for phase in again},
        **{(phase, "E"): wide for phase in again},
        ("backward", "DX"): wide,
        ("backward", "E"): wide,
    }
    gathered = trained("exchange=gathered", recompute=recompute)
    assert {key: action for key, (action, _) in gathered.items()} == {
        **{(phase, "DX"): "all_gather" for phase in again},
        **{(phase, "E"): "reduce_scatter" for phase in again},
        ("backward", "DX"): "reduce_scatter",
        ("backward", "E"): "all_gather",
    }
