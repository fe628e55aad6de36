"""What is trained beside dense models: frozen weights under adapters, hybrids of several kinds of layers, experts over tensor ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.model.result import Result
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.steps import price_cases
from rackmodel.validation.training import TrainingCase, training_case
from rackmodel.validation.training_models import model_of
from rackmodel.validation.words import Refused, words

TWO = """
workload: two
phases: [forward, backward, optimizer]
sizes: {b: 16, s: 32, d: 256, f: 1024}
sections:
  block:
    repeat: 2
    einsums:
      FC1: H[b,s,f] = X[b,s,d] * W1[d,f]
      FC2: Y[b,s,d] = H[b,s,f] * W2[f,d]
tensors: {%s}
"""
ROW = {"gpu": "H100", "n_gpus": "64", "tp": "2", "pp": "1", "cp": "1", "dp": "32", "mbs": "1", "gbs": "64", "seq_len": "4096"}


def _solved(path: Path, tensors: str) -> Result:
    (path / "two.yaml").write_text(TWO % tensors)
    return api.search("dgx_a100", str(path / "two.yaml"), "data", sets=["accelerators=8"]).result


def _case(**cells: str) -> TrainingCase:
    cells = {**ROW, "iteration_time_s": "1", "precision": "bf16", **cells}
    return training_case(PublishedRow("a", "nemo_megatron_bridge", "training", cells, "a.csv", 2), words())


def test_only_trained_weights_of_a_host_go_back_new(tmp_path: Path) -> None:
    """Two layers' W1 and W2 of 256 x 1,024 in 16 bit on each of eight GPUs come from their hosts; where W1 is frozen, half goes back."""
    for tensors, part in (("", 1.0), ("W1: {trained: false}", 0.5), ("W1: {trained: false}, W2: {trained: false}", 0.0)):
        (tmp_path / "two.yaml").write_text(TWO % tensors)
        sets = ["accelerators=8", "offload=[[weights]]"]
        found = api.search("dgx_a100", str(tmp_path / "two.yaml"), "data", sets=sets).result.ledger
        back = found.where(phase="optimizer", tensor="weights", action="write")
        assert back.total("amount") == part * 8 * 2 * 2 * 256 * 1024 * 2


def test_what_goes_back_new_to_a_host_is_what_ranks_hold_of_trained_weights(tmp_path: Path) -> None:
    """A frozen W of 256 x 1,024 that tensor parallelism splits, beside a trained norm of 256 that all eight ranks hold whole: of two layers
    each rank writes 2 x 256 new words of 16 bit, not an eighth."""
    normed = TWO.replace("H[b,s,f] = X", "H[b,s,f] = N").replace(
        "      FC1", "      N: N[b,s,d] = rmsnorm(X[b,s,d], WN[d]) over d\n      FC1"
    )
    (tmp_path / "two.yaml").write_text(normed % "W1: {trained: false}, W2: {trained: false}")
    (tmp_path / "tp.yaml").write_text("mapper: tp\naxes: {tp: {degree: all}}\nsplit: {tp: [f]}\noffload: [[weights]]\n")
    found = api.search("dgx_a100", str(tmp_path / "two.yaml"), str(tmp_path / "tp.yaml"), sets=["accelerators=8"]).result.ledger
    back = found.where(phase="optimizer", tensor="weights", action="write")
    assert back.total("amount") == 8 * 2 * 256 * 2
    assert found.where(phase="forward", tensor="weights", action="read").total("amount") == 2 * 2 * (2 * 256 * 1024 + 8 * 256)


def test_a_frozen_weight_has_no_gradient_no_state_and_no_update(tmp_path: Path) -> None:
    trained, frozen = _solved(tmp_path, ""), _solved(tmp_path, "W1: {trained: false}")
    elements = 2 * 256 * 1024  # of two layers
    assert trained.memory["gradients"] - frozen.memory["gradients"] == elements * 4
    assert trained.memory["optimizer"] - frozen.memory["optimizer"] == elements * 12
    assert trained.memory["weights"] == frozen.memory["weights"]
    spent = [row for row in frozen.ledger if row.tensor == "W1" and (row.phase == "optimizer" or row.component == "network")]
    assert not spent
    products = {name: math.fsum(row.amount for row in one.ledger.where(action="mac")) for name, one in (("t", trained), ("f", frozen))}
    assert products["f"] == pytest.approx(products["t"] * 5 / 6)  # of six products of a layer, one is W1's gradient


def test_an_activation_is_neither_trained_nor_frozen(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trained or frozen, not an activation"):
        _solved(tmp_path, "H: {trained: false}")


@pytest.mark.parametrize(
    ("model", "tokens", "stated"), [("Nemotron_3_Nano", 8192, 22.3e9), ("Nemotron_3_Super", 8192, 84.7e9), ("DeepSeekV3", 4096, 260e9)]
)
def test_a_model_has_the_operations_a_token_that_its_rows_state(model: str, tokens: int, stated: float) -> None:
    """TFLOP/s over tokens a second of the tables of NVIDIA-NeMo/Megatron-Bridge: between attention counted by half, which is that of half
    a sequence, and whole; a scan's operations, 3 %, are not counted here."""
    found = []
    for sequence in (tokens // 2, tokens):
        one = _case(model=model, seq_len=str(sequence), ep="64", tp="1", dp="64")
        (step,) = price_cases([replace(one, brief=True)])
        found.append(step.flops / one.batch / sequence)
    assert found[0] * 0.98 <= stated <= found[1] * 1.03


def test_experts_over_tensor_ranks_are_whole_and_each_token_crosses_once() -> None:
    """tp 2, ep 32 on 64 accelerators: an expert axis of 16 beside the tensor axis; with experts split over the tensor ranks 32."""
    whole, split = _case(model="Qwen3_30B_a3B", ep="32"), _case(model="Qwen3_30B_a3B", ep="32", etp="2")
    assert (whole.mesh.degrees["ep"], whole.mesh.degrees["dp"], whole.key.experts) == (16, 2, "whole")
    assert (split.mesh.degrees["ep"], split.mesh.degrees["dp"], split.key.experts) == (32, 1, "split")
    steps = price_cases([replace(one, brief=True) for one in (whole, split)])
    held = [step.bytes for step in steps]
    assert held[0] == pytest.approx(held[1], rel=0.2)  # as many weights of experts on each
    assert all(step.seconds > 0 and not step.refused for step in steps)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"ep": "128"}, "experts over more ranks than are data-parallel or tensor-parallel"),
        ({"ep": "3"}, "experts over part of the tensor-parallel ranks"),
        ({"ep": "32", "tp": "4", "dp": "16", "etp": "2"}, "experts split over part of the tensor-parallel ranks"),
    ],
)
def test_experts_that_do_not_fit_their_ranks_are_refused_by_name(cells: dict[str, str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        _case(model="Qwen3_30B_a3B", **cells)


def test_adapters_leave_two_of_three_products() -> None:
    full, lora = _case(model="LLAMA3_70B", seq_len="128"), _case(model="LLAMA3_70B", seq_len="128", notes="LoRA Performance")
    works = [step.flops for step in price_cases([replace(one, brief=True) for one in (full, lora)])]
    assert works[1] == pytest.approx(works[0] * 2 / 3, rel=0.01)  # so short that attention, without weights, is little


LOOKUP = """
workload: chosen
phases: [forward, backward, optimizer]
sizes: {b: 16, s: 32, d: 256, v: 65536}
sections:
  block:
    einsums:
      embed: X[b,s,d] = lookup(I[b,s], WE[v,d])
      FC: Y[b,s,d1] = X[b,s,d] * W[d,d1]
tensors: {I: {precision: 0 bit}}
"""


LOWER, UPPER, PRODUCT = 3, 2, 2 * 16 * 32 * 256 * 1024
FROZEN = f"""
workload: frozen
phases: [forward, backward, optimizer]
sizes: {{b: 16, s: 32, d: 256, f: 1024}}
sections:
  lower:
    repeat: {LOWER}
    einsums:
      L1: HL[b,s,f] = X[b,s,d] * W1[d,f]
      drop: HD[b,s,f] = dropout(HL[b,s,f])
      L2: YL[b,s,d] = HD[b,s,f] * W2[f,d]
  upper:
    repeat: {UPPER}
    einsums:
      FC1: H[b,s,f] = YL[b,s,d] * W3[d,f]
      FC2: Y[b,s,d] = H[b,s,f] * W4[f,d]
tensors: {{W1: {{trained: false}}, W2: {{trained: false}}%s}}
"""


def frozen(folder: Path, inputs: str, *sets: str) -> Result:
    """A step on 8 accelerators, two samples each, or on as many stages as layers."""
    (folder / "frozen.yaml").write_text(FROZEN % inputs)
    return api.search("rack_paper_h100", str(folder / "frozen.yaml"), "data", sets=sets or ["accelerators=8"]).result


def products(result: Result, phase: str) -> float:
    return float(result.ledger.where(action="mac", phase=phase).total("amount")) / PRODUCT


@pytest.mark.parametrize(("recompute", "again", "kept"), [("none", 0, 256 + 1024), ("full", 2 * UPPER, 256)])
def test_what_follows_frozen_weights_alone_runs_forward_and_keeps_nothing(tmp_path: Path, recompute: str, again: int, kept: int) -> None:
    one = frozen(tmp_path, ", X: {trained: false}", "accelerators=8", f"recompute={recompute}")
    assert [products(one, phase) for phase in ("forward", "backward", "recompute")] == [2 * (LOWER + UPPER), 4 * UPPER, again]
    assert one.useful_flop == (2 * (LOWER + UPPER) + 4 * UPPER) * PRODUCT
    assert one.memory["activations"] == UPPER * 2 * 32 * kept * 2


def test_stages_below_the_first_trained_layer_run_forward_alone(tmp_path: Path) -> None:
    """Five stages of a layer: three run forward; an input whose gradient is wanted is handed one through all."""
    pipeline = ["accelerators=5", "axes={pp: {degree: 5, stages: layers}, dp: {degree: 1}}"]
    without, wanted = (frozen(tmp_path, inputs, *pipeline) for inputs in (", X: {trained: false}", ""))
    assert (products(without, "backward"), products(wanted, "backward")) == (4 * UPPER, 4 * UPPER + 2 * LOWER)
    assert without.latency_s < wanted.latency_s


def test_a_table_is_read_by_the_row_and_not_in_the_backward_pass(tmp_path: Path) -> None:
    """(Its backward pass read and, with sharded weights, gathered the whole table, of which it needs nothing; and a graph that takes
    nothing but tokens ended in a traceback.)"""
    (tmp_path / "chosen.yaml").write_text(LOOKUP.replace("v: 65536", "v: 65536, d1: 256"))
    found = api.search("dgx_a100", str(tmp_path / "chosen.yaml"), "fsdp", sets=["accelerators=8", "micro_batch=2"]).result
    table = [row for row in found.ledger if row.einsum == "embed" and row.tensor == "WE"]
    read = {row.phase: row.amount for row in table if row.level == "gpu" and row.action == "read"}
    assert read == {"forward": 16 * 32 * 256 * 2}  # a row of d numbers a token
    gathers = [row.phase for row in table if row.action == "all_gather"]
    assert gathers == ["forward"]
    assert [row.action for row in table if row.component == "network"] == ["all_gather", "reduce_scatter"]


@pytest.mark.parametrize(("split", "action", "share"), [("[s]", "all_gather", 1), ("[s, h]", "all_to_all", 1 / 4)])
def test_no_rank_scans_a_part_of_a_sequence(tmp_path: Path, split: str, action: str, share: float) -> None:
    """Four ranks share out tokens: a scan has all of them, of all heads, or of its own (a quarter of what is there goes to each other)."""
    mapper = tmp_path / "shared_out.yaml"
    mapper.write_text(f"mapper: shared_out\naxes: {{cp: {{degree: 4}}}}\nsplit: {{cp: {split}}}\nprofile: serial\n")
    sizes = ["accelerators=4", "b=2", "s=64", "d=64", "v=256", "ns=1", "ne=1", "na=1", "x=8", "phases=[forward]"]
    result = api.search("dgx_a100", "mamba_moe", str(mapper), sets=sizes).result
    each = {"XC": 8 * 8 * 64, "BC": 8 * 128, "CC": 8 * 128, "TS": 8 * 8} | ({"YS": 8 * 8 * 64} if share < 1 else {})
    sent = result.ledger.where(component="network", action=action)
    for tensor, elements in each.items():
        assert sent.where(tensor=tensor).total("amount") == pytest.approx(3 * share * 2 * 2 * 64 * elements), tensor
    scanned = result.ledger.where(einsum="space", component="compute").total("amount")
    assert scanned == 8 * 2 * 64 * 8 * 8 * 64 * 128 * (1 if share < 1 else 4)
    with pytest.raises(InputError, match="space cannot split s"):
        api.search("dgx_a100", "mamba_moe", str(mapper), sets=[*sizes, "choose={space: {cp: s}}"])


NO_LAYERS = """
workload: mlp
phases: [forward, backward, optimizer]
sizes: {b: 64, p: 784, f: 512, c: 10}
sections:
  hidden:
    einsums:
      W: H[b,f] = X[b,p] * W1[p,f]
      act: A[b,f] = relu(H[b,f])
  out:
    einsums:
      L: L[b,c] = A[b,f] * W2[f,c]
      loss: C[b] = cross_entropy(L[b,c]) over c
"""


@pytest.mark.parametrize("mapper", ["data", "megatron", "auto"])
def test_sections_none_of_which_is_a_layer_are_a_model_that_is_not_cut(tmp_path: Path, mapper: str) -> None:
    """(It ended in a traceback, or its layers did not divide.) What its one stage costs is what its operations cost in one graph."""
    rows = [line for line in NO_LAYERS.splitlines() if line.strip() not in ("hidden:", "out:", "einsums:")]
    texts = {"sections": NO_LAYERS, "graph": "\n".join(rows).replace("sections:", "einsums:")}
    found = []
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        found.append(api.search("dgx_a100", str(tmp_path / f"{name}.yaml"), mapper, sets=["accelerators=8"]).result)
    assert found[0].latency_s == pytest.approx(found[1].latency_s, rel=1e-12)
    assert found[0].energy_j == pytest.approx(found[1].energy_j, rel=1e-12)
    with pytest.raises(InputError, match="with a layer a stage at least: the model has 0"):
        api.search("dgx_a100", str(tmp_path / "sections.yaml"), "megatron", sets=["accelerators=8", "axes.pp.degree=2"])


def test_a_weight_that_layers_would_share_is_refused(tmp_path: Path) -> None:
    """(Each section's layers were priced with one of their own, without a word.)"""
    (tmp_path / "shared.yaml").write_text((FROZEN % "").replace("W3[d,f]", "W1[d,f]"))
    with pytest.raises(InputError, match=r"sections\.upper: 'W1' is a weight of lower, too: a layer has weights of its own"):
        api.search("dgx_a100", str(tmp_path / "shared.yaml"), "data", sets=["accelerators=8"])


@pytest.mark.parametrize("profile", ["megatron_2021", "megatron_core"])
def test_a_lone_accelerator_runs_under_every_framework(tmp_path: Path, profile: str) -> None:
    """(Hand-overs of frameworks that cost a host's time ended in a traceback where there is no network.)"""
    (tmp_path / "two.yaml").write_text(TWO % "")
    assert api.search("h100", str(tmp_path / "two.yaml"), "data", profile=profile).result.latency_s > 0


def test_sizes_of_hybrids_are_those_that_are_published() -> None:
    """550 and 121 billion parameters: state-space layers d (2 hmp + 2 hn + hm) + hmp d, experts d x + 2 d l + 2 x l f + 2 d y, attention
    2 d e (gq + g), two tables of v d; two layers of attention and two of experts predict further tokens."""

    def whole(model: str, **cells: str) -> float:
        built = model_of(_case(model=model, seq_len="8192", **cells).key.model, 8)
        return sum(
            math.prod(tensor.sizes) * part.repeat
            for part in built.sections
            for tensor in part.workload.tensors.values()
            if tensor.kind == "weight"
        )

    def by_hand(d: int, m: int, q: int, f: int, y: int, latent: int, space: int, experts: int, attention: int) -> int:
        heads = 8 * m * 64
        mixer = d * (2 * heads + 2 * 8 * 128 + 8 * m) + heads * d
        mixture = d * 512 + 2 * d * latent + 2 * 512 * latent * f + 2 * d * y
        return space * mixer + experts * mixture + attention * 2 * d * 128 * (2 * q + 2) + 2 * 131072 * d

    ultra, trained = by_hand(8192, 32, 32, 5120, 10240, 2048, 48, 48, 12), by_hand(8192, 32, 32, 5120, 10240, 2048, 48, 50, 14)
    assert ultra == pytest.approx(550e9, rel=0.005)
    assert whole("Nemotron_3_Ultra") == pytest.approx(trained, rel=1e-3)  # (norms and convolutions are no products)
    assert whole("Nemotron_3_Super") == pytest.approx(by_hand(4096, 16, 16, 2688, 5376, 1024, 40, 42, 10), rel=1e-3)
    assert whole("Nemotron_3_Super") == pytest.approx(whole("Nemotron_3_Super", precision="nvfp4"), rel=1e-9)


def test_what_a_recipe_keeps_wider_stays_so() -> None:
    """Of 88 layers the last fourteen are of 16 bits, and so are attention and the projections around experts of the others; what leaves a
    state-space layer is of 8."""
    built = model_of(_case(model="Nemotron_3_Super", precision="nvfp4").key.model, 8)
    bits = {name: tensor.bits for part in built.sections for name, tensor in part.workload.tensors.items()}
    assert {bits[name] for name in ("WXS", "NS", "WU", "DX", "WSD", "SS")} == {4}
    assert {bits[name] for name in ("WOS", "NG")} == {8}
    assert {bits[name] for name in ("WQ", "WO", "WLD", "WLU", "WXS_2", "WOS_2", "WU_2", "WSD_2", "WQ_2", "WR")} == {16}
    assert {part.name: part.repeat for part in built.sections if part.name.endswith("_2")} == {
        "space_2": 6,
        "attention_2": 2,
        "experts_2": 9,
    }
    narrow = model_of(_case(model="Nemotron_3_Super", precision="mxfp8").key.model, 8)
    bits = {name: tensor.bits for part in narrow.sections for name, tensor in part.workload.tensors.items()}
    assert (bits["WU"], bits["WQ"], bits["WU_2"], bits["WQ_2"]) == (8, 8, 16, 16)
