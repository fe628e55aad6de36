"""Kernels that a training step runs beside products: masks, clamps, biases of experts, scaled rotations; bytes by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.program.local_ops import backward_ops, forward_op
from rackmodel.cost.program.tasks import LocalOp
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.layout import REPLICATE
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.validation.steps import price_cases
from rackmodel.validation.timed import PricedStep
from rackmodel.validation.training import ModelKey, training_case
from rackmodel.validation.training_models import model_of
from rackmodel.validation.unknowns import unknowns_of
from rackmodel.validation.words import words
from tests.machines import machine, mapper, workload
from tests.test_profile_facts import priced
from tests.test_validate import row

SEQUENCE, HIDDEN, HEADS, LAYERS, SAMPLES, BYTES_PER_S = 1024, 1024, 16, 4, 4, 2.039e12  # of an A100
BLOCK = read_workload("gpt_oss_120b_training").sections[1].workload


def brief(*sets: str, **cells: str) -> PricedStep:
    """As `priced`, without its interval."""
    said = {"arch": "llama", "dataset": "torchtitan", "tp": "1", "pp": "1", "dp": "8", "sharding": "FSDP2", "recompute": "none", **cells}
    case = training_case(row(**said), words())
    return price_cases([replace(case, key=replace(case.key, sets=sets), brief=True)])[0]


def alone(*sets: str, **cells: str) -> float:
    """Seconds of a step of four sequences of a GPT on one A100 under megatron_2022, without its host."""
    one = {"arch": "gpt", "dataset": "korthikanti22_t5", "n_gpus": "1", "tp": "1", "pp": "1", "dp": "1", "sharding": "none", "gbs": "4"}
    return brief("profile.host={}", *sets, **{**one, **cells}).seconds


def of(kind: str, profile: str) -> str:
    """What a profile says of one kind of operation, as its file does."""
    found = read_profile(profile).composites[kind]
    passes = ((way, getattr(found, way)) for way in ("forward", "backward"))
    said = (f"{way}: {{bytes: {float(one.bytes)}, skipped: {one.skipped}, streams: {str(one.streams).lower()}}}" for way, one in passes)
    return f"{kind}: {{{', '.join(said)}}}"


TOKENS, STREAMED, ROWS = SAMPLES * SEQUENCE, 0.88, 0.564  # shares of the bandwidth that sums reach, and norms
LOGITS = 6 + 4 + 8 + 8 + 4 + 8 - 2 + 8 + 6  # cast, looked through, subtracted, raised, summed, divided, of 16 bit; multiplied, cast back


@pytest.mark.parametrize(
    ("profile", "kind", "moved"),
    [  # bytes of a step, over the share of the bandwidth that they reach
        ("megatron_2022", "cross_entropy", TOKENS * 51200 * (LOGITS / STREAMED - 12 / ROWS)),  # in the place of three passes at 4 B
        ("megatron_2021", "layernorm", TOKENS * HIDDEN * (2 * LAYERS + 1) * 4 / ROWS),  # gradient and operand once more
        ("megatron_2021", "gelu", TOKENS * 4 * HIDDEN * LAYERS * 2 / ROWS),  # a bias' gradient
        ("megatron_2021", "add", TOKENS * HIDDEN * (2 * LAYERS + 1) * (2 + 2) / STREAMED),  # and gradients of both branches
    ],
)
def test_kernels_beside_products_move_what_their_framework_reads_and_writes(profile: str, kind: str, moved: float) -> None:
    plain, more = alone("profile.composites={}"), alone(f"profile.composites={{{of(kind, profile)}}}")
    assert more - plain == pytest.approx(moved / BYTES_PER_S, rel=1e-3)


def test_a_masked_softmax_reads_half_of_the_scores() -> None:
    """Forward half of what it reads, backward half of both: of four passes over the scores of 16 bit, one and two halves less."""
    whole, half = alone("profile.composites={}"), alone(f"profile.composites={{{of('softmax', 'megatron_2021')}}}")
    scores = 2.0 * SAMPLES * LAYERS * HEADS * SEQUENCE**2
    assert whole - half == pytest.approx(1.5 * scores / (0.564 * BYTES_PER_S), rel=1e-3)


@pytest.mark.parametrize("sequence", [256, 512, 1024, 4096, 8192])
def test_every_other_layer_of_gpt_oss_reads_two_tiles_of_keys_whatever_the_sequence(sequence: int) -> None:
    """Tiles of 128 queries, each of which reads its own 128 keys and those before it; the other layers half of all that a mask leaves."""
    key = ModelKey("gpt_oss_120b_training", (("s", sequence),), "16 bit", alone=False)
    block = model_of(key, 8, masked=True).sections[1].workload
    read = min(sequence**2 / 2, sequence / 128 * 2 * 128**2)
    assert [block.tensors[name].density for name in ("A", "P")] == pytest.approx([(sequence**2 / 2 + read) / 2 / sequence**2] * 2)


def test_parts_of_queries_keys_and_values_are_put_together_around_attention() -> None:
    """16 bytes an element of the queries forward and 26 backward, at the rate of copies; forward twice where a layer is made again."""
    start = 5.7e-6  # of each of two kernels forward and four backward, in each of four micro-batches
    for recompute, runs in (("none", 1), ("full", 2)):
        bare, moved = (alone(*sets, recompute=recompute) for sets in (("profile.heads={}",), ()))
        copied = TOKENS * HIDDEN * LAYERS * (16 * runs + 26) / (STREAMED * BYTES_PER_S)
        assert moved - bare == pytest.approx(copied + SAMPLES * LAYERS * (2 * runs + 4) * start, rel=1e-3)


@pytest.mark.parametrize(("parallel", "each"), [("false", {"all_reduce": 4}), ("true", {"all_gather": 6, "reduce_scatter": 4})])
def test_collectives_of_the_backward_pass_run_beside_the_other_product_of_their_operation(parallel: str, each: dict[str, int]) -> None:
    """Of column-parallel products, two of a layer and the head: what their operand is gathered by once more, and what reduces its gradient.
    What the forward pass waits for stays, and what row-parallel products begin their backward pass with. each: collectives of a layer."""
    cells = {"arch": "gpt", "dataset": "korthikanti22_t5", "tp": "8", "dp": "1", "sharding": "none", "gbs": "4", "mbs": "4", "sp": parallel}
    cells |= {"hidden": "8192", "heads": "64"}
    free, serial = ("profile.host={}", "profile.overlap.contention=0"), "profile.overlap.windows={}"
    asked = ((), "4"), ((serial,), "4"), ((serial,), "3")
    beside, waited, less = (priced(*free, *sets, **cells, layers=layers) for sets, layers in asked)
    for action, count in each.items():
        of_all, of_three, exposed = (step.bins[f"network {action}"] for step in (waited, less, beside))
        one = (of_all - of_three) / count
        assert of_all - exposed == pytest.approx((2 * LAYERS + 1) * one, rel=1e-6)


def passes(name: str) -> list[LocalOp]:
    """Forward and backward pass of an operation of gpt-oss on one accelerator, as Megatron-Core runs them, facts in their middle."""
    edges = dict.fromkeys((*BLOCK.inputs, *BLOCK.outputs), (REPLICATE,))
    choices = dict.fromkeys(BLOCK.ops, (None,))
    plan = Plan(axes=(MICRO,), choices=choices, boundary=edges, stages=dict.fromkeys(BLOCK.ops, 0), homes={}, save={})
    plan = replace(plan, composites=read_profile("megatron_core").composites)
    op = BLOCK.ops[name]
    return [forward_op(op, plan, BLOCK), *backward_ops(op, plan, BLOCK)]


@pytest.mark.parametrize(
    ("name", "of", "forward", "backward", "kernels"),
    [
        ("clampG", "G", 2 + 2 + 4, 2 + 2 + 2 + 4, (2, 2)),  # one pass, and gates and what they multiply put together; saved gates too
        ("biasE", "E", 2 + 2 + 16, 2 + 2 + 24, (4, 8)),
        ("ropeQ", "Q", 2 + 2 + 20, 2 + 2 + 23, (6, 10)),
    ],
)
def test_operations_of_several_kernels_move_what_their_framework_writes_between(
    name: str, of: str, forward: float, backward: float, kernels: tuple[int, int]
) -> None:
    elements = BLOCK.tensors[of].elements
    weights = sum(BLOCK.tensors[access.tensor].elements for access in BLOCK.ops[name].ins if BLOCK.tensors[access.tensor].kind == "weight")
    for local_op, each, weighed in zip(passes(name), (forward, backward), (2.0, 8.0), strict=True):  # a sum of gradients is read, too
        moved = sum(flow.volume.total for flow in (*local_op.reads, *local_op.writes))
        assert moved == pytest.approx(each * elements + weighed * weights, rel=1e-9)
    assert tuple(local_op.kernels for local_op in passes(name)) == kernels


def test_bytes_between_kernels_may_be_a_range_that_widens_an_interval() -> None:
    names = [unknown.name for unknown in unknowns_of(read_architecture("dgx_h100"), read_profile("megatron_core"))]
    assert {"composites.bias.forward.bytes", "composites.bias.backward.bytes", "composites.yarn.backward.bytes"} <= set(names)
    said = "profile.composites={swiglu: {backward: {bytes: {low: 0, mid: 50, high: 100}}}}"
    # with this range alone, the fact that rates of collectives are known or not changes nothing
    certain, wide = (priced(one, "profile.links=1").interval for one in ("profile.composites={}", said))
    assert certain is not None
    assert wide is not None
    assert "composites.swiglu.backward.bytes" in wide.owed
    assert "composites.swiglu.backward.bytes" not in certain.owed


def test_gathered_weights_are_copied_out_and_gradients_in_where_there_is_more_than_one_rank() -> None:
    """In each of two micro-batches 4 bytes an element behind two gathers (the embedding has one), 6 before a reduction."""
    serial, bare = "profile.overlap={weights: false, gradients: false}", "profile.buckets={holds: layer}"
    copies = "profile.buckets={holds: layer, unpacked: 4, packed: 6}"
    without, with_copies = (brief(serial, "profile.host={}", one) for one in (bare, copies))
    layers, head, embedding = LAYERS * (4 + 3 * 4) * HIDDEN**2, 51200 * HIDDEN, 51200 * HIDDEN
    moved = 2.0 * ((layers + head) * (4 + 4 + 6) + embedding * (4 + 6))
    extra = with_copies.seconds - without.seconds
    assert moved / BYTES_PER_S < extra < 1.3 * moved / BYTES_PER_S
    alone = {"n_gpus": "1", "dp": "1", "gbs": "2"}
    assert brief(bare, **alone).seconds == brief(copies, **alone).seconds
    assert with_copies.bytes == without.bytes


def test_attention_at_8_bit_is_that_of_its_kernel_and_casts_no_scores() -> None:
    """Four sequences of 8,192 tokens on GB300, heads of 128: cuDNN's kernels take 0.6 to 0.8 of the time at 8 bit (rows of its benchmark);
    queries and keys are cast, scores never leave the chip. What the host of so small a model takes is left out."""
    cells = {
        "dataset": "nemo_megatron_bridge",
        "gpu": "GB300",
        "precision": "mxfp8",
        "n_gpus": "8",
        "sharding": "ZeRO-1",
        "seq_len": "8192",
    }
    case = training_case(row(**{"arch": "llama", "tp": "1", "pp": "1", "dp": "8", "recompute": "none", **cells}), words())
    wide = replace(case, key=replace(case.key, sets=("profile.host={}",)), brief=True)
    narrow = replace(wide, key=replace(wide.key, model=replace(case.key.model, attention="8 bit")))
    uncast = [replace(one, key=replace(one.key, sets=("profile.host={}", "profile.casts={}"))) for one in (wide, narrow)]
    seconds = [step.seconds for step in price_cases([wide, narrow, *uncast])]
    assert seconds[1] < seconds[0]
    assert seconds[3] < seconds[2]
    casts = (seconds[0] - seconds[2], seconds[1] - seconds[3])
    assert casts[0] < casts[1] < 1.5 * casts[0]


@pytest.mark.parametrize(
    ("name", "keys", "values", "heads", "gradient"),
    [("llama", "KR", "V", 2, 2), ("llama_repeated", "KX", "VX", 8, 2), ("llama_ring", "KX", "VX", 8, 4)],
)
def test_ranks_of_a_context_send_each_other_the_heads_that_are_there(
    name: str, keys: str, values: str, heads: int, gradient: int, tmp_path: Path
) -> None:
    """Each of two ranks has 512 tokens of 64 elements a head, in 2 bytes, and gets the other's: of 2 heads, or of all 8 that copies of
    them make. Gradients come back in 2 bytes, or in 4."""
    mapper = tmp_path / "context.yaml"
    mapper.write_text("mapper: context\naxes: {cp: {degree: 2}}\nsplit: {cp: [s]}\n")
    sizes = [f"{key}={value}" for key, value in {"b": 1, "s": 1024, "d": 512, "g": 2, "q": 4, "e": 64, "layers": 1}.items()]
    ledger = api.search("rack_paper_h100", name, str(mapper), sets=["accelerators=2", *sizes], profile="torchtitan_sync").result.ledger
    once = 2 * 512 * heads * 64 * 2  # of both ranks
    for tensor in (keys, values):
        sent = {
            action: float(ledger.where(component="network", action=action, tensor=tensor).total("amount"))
            for action in ("all_gather", "reduce_scatter")
        }
        assert sent == {"all_gather": 2 * once, "reduce_scatter": once * gradient / 2}  # for each pass over attention; and summed


def test_a_hand_over_between_stages_takes_its_host_behind_every_pass() -> None:
    """Forward and backward passes of one micro-batch on two stages, as sends that hold a device do (docs/clock.md, rule 9); without a
    pipeline nothing is handed over."""
    cells = {"arch": "gpt", "dataset": "vtrain_single", "n_gpus": "2", "tp": "1", "sharding": "none"}
    said = [f"profile.host={{hand_over: {time}}}" for time in ("0 us", "1 ms")]
    none, some = (brief(one, **cells, pp="2", dp="1", gbs="1").seconds for one in said)
    assert some - none == pytest.approx(4e-3, rel=1e-6)
    assert len({brief(one, **cells, pp="1", dp="2", gbs="2").seconds for one in said}) == 1


MERGED = """
profile: merging
kernels: measured
attention: flash
pointwise: fused
merged: {projections: true}
source: a test
"""


def test_products_of_one_operand_are_one_in_every_pass(tmp_path: Path) -> None:
    """Llama-3-8B, eight sequences of 8,192, tensor 2, in bf16, gradients of weights in fp32: what they share is read once, and its gradient
    written once; gate and up alike."""
    path = tmp_path / "merging.yaml"
    path.write_text(MERGED, encoding="utf-8")
    sets = ["accelerators=8", "b=8", "axes.tp.degree=2", "axes.pp.degree=1"]
    ledger = api.search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile=str(path)).result.ledger
    tokens, tp, data, d, layers = 8 * 8192, 2, 4, 4096, 32
    columns = {"Q": 4096, "K": 1024, "V": 1024}
    found: Counter[tuple[str, str, str]] = Counter()
    for one in ledger.where(level="gpu", component="memory"):
        if one.einsum in columns and one.phase in ("forward", "backward"):
            found[one.phase, one.tensor, one.action] += int(np.sum(one.amount)) // layers
    assert found == {
        ("forward", "N1", "read"): tokens * tp * d * 2,
        **{("forward", f"W{name}", "read"): data * d * n * 2 for name, n in columns.items()},
        **{("forward", name, "write"): tokens * n * 2 for name, n in columns.items()},
        **{("backward", f"d{name}", "read"): 2 * tokens * n * 2 for name, n in columns.items()},  # by each of two products
        **{("backward", f"W{name}", "read"): data * d * n * 2 for name, n in columns.items()},
        ("backward", "dN1", "write"): tokens * tp * d * 2,
        ("backward", "N1", "read"): tokens * tp * d * 2,
        **{("backward", f"dW{name}", "write"): data * d * n * 4 for name, n in columns.items()},
    }
    macs = {(one.phase, one.einsum, one.tensor): float(np.sum(one.amount)) for one in ledger.where(action="mac")}
    both = 2 * tokens * d * (2 * 14336) * layers
    assert {key: macs[key] for key in macs if key[1] in ("gate", "up")} == {
        ("forward", "gate", "G"): both,
        ("backward", "up", "dN2"): both,
        ("backward", "up", "dWU"): both,
    }


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_windows_of_products_that_run_as_one_are_the_whole_of_it(share: float) -> None:
    """Q and K split what they sum over four: 2^32 operations a GPU at 10 TFLOP/s for both, and 2 x 2 MiB x 3/4 in six steps to sum each.
    What Q's sum leaves of the window is K's. (K's own was nothing until 28 November 2026: Q was charged with the product of both.)"""
    sizes = {"m": 1024, "k": 4096, "n": 1024, "j": 1024}
    graph = workload({"Q": "Q[m,n] = X[m,k] * WQ[k,n]", "K": "K[m,j] = X[m,k] * WK[k,j]"}, sizes, phases=["forward"])
    window = {"all_reduce": {"beside": "maker", "share": share}}
    said = {"profile": "one", "overlap": {"weights": False, "windows": window}, "merged": {"projections": True}}
    profile = ProfileSpec.model_validate(said)
    split = mapper(axes={"tp": {"degree": 4}}, split={"tp": ["k"]}, boundary={"X": {"tp": ["k"]}})
    found = api.search_mapper(machine(racks=1), graph, split, profile=profile).result
    product, each = 2.0**32 / 10e12, 1.5 * 2**21 / 100e9 + 6e-6
    first = min(each, share * product)
    second = min(each, share * (product - first))
    assert found.latency_s == pytest.approx(product + 2 * each - first - second, rel=1e-9)
