"""`rackmodel import --training`: a published config as the step that trains the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.cost.ledger import Ledger
from rackmodel.errors import InputError
from rackmodel.inputs import read_mapper, read_workload
from rackmodel.inputs.hf_config import import_config
from rackmodel.inputs.read import read_inputs
from rackmodel.mapper.listed_choices import laid_out
from rackmodel.mapper.rules import domain
from rackmodel.model.mapping import LayoutSpec
from rackmodel.model.workload import Workload
from tests import samples

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"
TOKENS = 8 * 4096


def trained(name: str, tmp_path: Path) -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(import_config(CONFIGS / f"{name}.json", training=True).text, encoding="utf-8")
    return path


def ledger(workload: Path) -> Ledger:
    """Of a step of 8 sequences of 4,096 tokens, each on a GPU of its own."""
    sets = ["accelerators=8", "b=8", "s=4096", "gpu.memory.capacity='100 TB'"]
    return api.search("dgx_h100", str(workload), "data", sets=sets).result.ledger


@pytest.mark.parametrize("name", samples.some(sorted({path.stem for path in CONFIGS.glob("*.json")}), 24))
def test_a_model_has_the_weights_of_the_one_that_is_served(name: str) -> None:
    served, made = import_config(CONFIGS / f"{name}.json"), import_config(CONFIGS / f"{name}.json", training=True)
    assert (made.parameters, made.active) == (served.parameters, served.active)


ATTENDED = 4096 * 4097 / 2
"""Pairs of a token and one before it, or itself."""
MODELS = {
    # a layer's products of a token, the head's, and of each pair of tokens queries by keys and weights by values
    "llama3_8b": (32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336) + 4096 * 128256, 32 * 4096 * 2 * ATTENDED),
    "qwen3_30b_a3b": (
        48 * (2048 * (4096 + 2 * 512 + 4096) + 2048 * 128 + 8 * 3 * 2048 * 768) + 2048 * 151936,
        48 * 4096 * 2 * ATTENDED,
    ),
    # latents of 512, 16 heads of 128 and 64 turned: 27 layers, the first of them dense
    "deepseek_v2_lite": (
        27 * (2048 * 16 * 192 + 2048 * (512 + 64) + 512 * 16 * (128 + 128) + 16 * 128 * 2048)
        + 3 * 2048 * 10944
        + 26 * (2048 * 64 + 8 * 3 * 2048 * 1408)
        + 2048 * 102400,
        27 * 16 * (192 + 128) * ATTENDED,
    ),
    # windows of 1,024 in five of six layers: a token sees at most as many, itself among them
    "gemma3_1b": (
        26 * (1152 * (1024 + 2 * 256) + 1024 * 1152 + 3 * 1152 * 6912) + 1152 * 262144,
        1024 * 2 * (4 * ATTENDED + 22 * sum(min(token, 512) for token in range(1, 4097))),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_of_a_step_by_hand(name: str, tmp_path: Path) -> None:
    """Two operations each, forward; experts' results are added up beside them."""
    token, pairs = MODELS[name]
    rows = ledger(trained(name, tmp_path)).where(component="compute", action="mac", phase="forward")
    rows = rows.where(einsum=[op for op in {row.einsum for row in rows.rows} if "combine" not in op])
    assert rows.total("amount") == pytest.approx(2 * (TOKENS * token + 8 * pairs), rel=1e-12)


def test_a_llama_is_the_shipped_one(tmp_path: Path) -> None:
    """But for its table, which tokens look up, every operation takes the seconds and joules of the file written by hand."""
    same = tmp_path / "same.yaml"
    half = "{density: '(t + 1) / (2 * t)'}"
    same.write_text(f"workload: same\nextends: llama3_8b\ntensors:\n  A: {half}\n  P: {half}\n", encoding="utf-8")
    ours, shipped = ledger(trained("llama3_8b", tmp_path)), ledger(same)
    ops = sorted({row.einsum for row in shipped.rows if row.einsum and row.component == "compute"} - {"embed"})
    assert {"QK", "gate", "loss"} <= set(ops)
    for figure in ("amount", "joules"):
        mine, theirs = (rows.where(component="compute", einsum=ops).group(("phase", "einsum"), figure) for rows in (ours, shipped))
        assert mine == pytest.approx(theirs, rel=1e-9)


def test_experts_of_every_kind_of_layer_are_split_over_experts(tmp_path: Path) -> None:
    """Two kinds of layers have experts (of a window, and of all tokens): of eight each accelerator holds an eighth of those of both."""
    sets = ["accelerators=8", "b=8", "axes.ep.degree=8", "axes.dp.degree=1", "axes.tp.degree=1", "axes.cp.degree=1", "axes.pp.degree=1"]
    found = api.search("dgx_h100", str(trained("gpt_oss_20b", tmp_path)), "parallel_moe", sets=sets)
    ops = found.result.mapping.ops
    assert {ops[op]["ep"] for op in ("router", "router_2", "dispatch", "dispatch_2")} == {"b"}
    assert {ops[op]["ep"] for op in ("gate", "gate_2", "down", "down_2")} == {"x"}


def test_a_name_of_no_operation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no operation 'rooter\*'"):
        api.search("dgx_h100", "moe", "expert", sets=["choose={'rooter*': {ep: b}}"])


def test_an_indexer_is_trained_by_a_loss_of_its_own_whose_gradient_ends_at_its_weights(tmp_path: Path) -> None:
    """DeepSeek-V3.2 (arXiv 2512.02556), section 2.1.1: 61 layers, 64 heads of 128 whose queries come by 1,536 numbers, keys by 7,168; of
    4,096 tokens each picks 2,048, for which 128 heads multiply 576 elements and weigh 512."""
    rows = ledger(trained("deepseek_v32", tmp_path))
    products = {phase: rows.where(component="compute", action="mac", phase=phase) for phase in ("forward", "backward")}

    def operations(op: str, phase: str) -> float:
        return products[phase].where(einsum=[op, f"{op}_2"]).total("amount") / (2 * TOKENS * 61)

    own = {"QI": 1536 * 64 * 128, "KI": 7168 * 128, "weigh": 7168 * 64}
    for op, weights in own.items():
        assert operations(op, "forward") == operations(op, "backward") == pytest.approx(weights, rel=1e-12)  # weights' gradients alone
    scored = 64 * 128 * ATTENDED / 4096
    assert operations("index", "forward") == pytest.approx(scored, rel=1e-12)
    assert operations("index", "backward") == pytest.approx(2 * scored, rel=1e-12)
    assert operations("QKc", "forward") == operations("targetC", "forward") == 128 * 2048 * 512
    assert operations("QKc", "backward") == 2 * 128 * 2048 * 512  # what is attended to has gradients of attention, and none of the loss
    assert operations("targetC", "backward") == operations("target", "backward") == 0
    assert {"pick", "pick_2"}.isdisjoint(row.einsum for row in rows.where(phase="backward").rows)


@pytest.mark.parametrize("name", ["gemma3_1b", "deepseek_v32"])
def test_scores_of_a_window_or_of_picked_tokens_never_leave_the_chip(name: str, tmp_path: Path) -> None:
    """Where a kernel of attention is fused: they were written and read, as of no attention."""
    sets = ["accelerators=8", "b=8", "s=4096", "gpu.memory.capacity='100 TB'"]
    found = api.search("dgx_h100", str(trained(name, tmp_path)), "data", sets=sets, profile="torchtitan").result.ledger
    moved = {row.tensor for row in found.where(component="memory", level="gpu").rows if row.amount > 0}
    scores = {name for name in moved if name.removeprefix("d").partition("_")[0] in ("A", "P")}
    assert not scores


def test_states_begin_with_the_sequence(tmp_path: Path) -> None:
    graph: Workload = read_workload(trained("nemotron3_nano", tmp_path))
    tensors = {name for section in graph.sections for name in section.workload.tensors}
    kinds = {tensor.kind for section in graph.sections for tensor in section.workload.tensors.values()}
    assert "SM" not in tensors
    assert "kv_cache" not in kinds


def test_a_state_is_as_wide_as_keys_and_values(tmp_path: Path) -> None:
    """MiniMax-01's are 128 x 128 a head, by indices of one size: its scan walks both."""
    graph = read_workload(trained("minimax_text_01", tmp_path))
    scan = next(op for section in graph.sections for op in section.workload.ops.values() if op.kind.name == "scan")
    assert set(scan.indices) == {"b", "s", "h", "e", "e2"}


HEADS = {"qwen3_next_80b": "a", "nemotron_h_8b": "a2", "falcon_mamba_7b": "c1", "minimax_text_01": "h"}
OVER = [("megatron", "tp"), ("megatron_tp", "tp"), ("megatron_sp", "tp"), ("streaming_wide", "tp"), ("parallel", "tp"), ("parallel", "cp")]


@pytest.mark.parametrize("name", HEADS)
def test_mappers_of_heads_or_tokens_split_a_scan_by_its_heads(name: str, tmp_path: Path) -> None:
    """No rank scans what another does: state-space layers and linear attention have heads of their own."""
    workload = read_workload(trained(name, tmp_path))
    scans = [op for op in workload.ops.values() if op.kind.name == "scan"]
    assert scans
    for mapper, axis in (*OVER, ("context", "cp"), ("ulysses", "sp")):
        said = read_mapper(mapper)
        for layout in (LayoutSpec(), *said.layouts.values()):
            found = {domain(laid_out(said, layout), workload, op, axis, (), 2) for op in scans}
            assert found == {(HEADS[name],)}, mapper


@pytest.mark.parametrize(("name", "tokens"), [("gpt2", 1024), ("llama3_8b", 4096)])
def test_a_sequence_is_no_longer_than_a_model_has_positions(name: str, tokens: int, tmp_path: Path) -> None:
    """GPT-2's table has 1,024 rows; Llama 3 turns up to 8,192."""
    assert read_workload(trained(name, tmp_path)).sizes["s"] == tokens


def test_a_module_that_predicts_one_token_further_ends_the_model_beside_its_head(tmp_path: Path) -> None:
    """DeepSeek-V3's: 671 billion weights and 11.6 of its own; a layer of experts, a join of 2 d and a second head by hand."""
    config, plain = CONFIGS / "deepseek_v3.json", trained("deepseek_v3", tmp_path)
    whole = tmp_path / "whole.yaml"
    whole.write_text(import_config(config, training=True, mtp=True).text, encoding="utf-8")
    assert import_config(config, training=True, mtp=True).parameters == pytest.approx(671.03e9 + 11.6e9, rel=1e-3)
    d, h, inner, v = 7168, 128, 2048, 129280
    latents = d * 1536 + 1536 * h * 192 + d * (512 + 64) + 512 * h * (128 + 128) + h * 128 * d
    experts = d * 256 + 8 * 3 * d * inner + 8 * d + 3 * d * inner  # router, eight a token, their sum, the shared one
    both = [ledger(path).where(component="compute", action="mac", phase="forward").total("amount") for path in (whole, plain)]
    more = TOKENS * (latents + experts + 2 * d * d + d * v) + 8 * h * (192 + 128) * ATTENDED
    assert both[0] - both[1] == pytest.approx(2 * more, rel=1e-9)


def test_a_module_that_is_not_there_is_refused(run) -> None:
    with pytest.raises(InputError, match="without a layer that predicts one token further"):
        import_config(CONFIGS / "llama3_8b.json", training=True, mtp=True)
    code, _, err = run("import", str(CONFIGS / "deepseek_v3.json"), "--mtp")
    assert (code, "it goes with --training" in err) == (2, True)


def test_an_architecture_is_not_trained(run) -> None:
    code, _, err = run("import", "arch.yaml", "--training")
    assert (code, "--training: an architecture is not trained" in err) == (2, True)


FIXED = {"accelerators": 8, "b": 8, "layers": 2, "axes.ep.degree": 4, "axes.tp.degree": 2, "gpu.memory.capacity": "'10 TB'"}
FIXED |= {f"axes.{axis}.degree": 1 for axis in ("dp", "cp", "pp")}


def test_a_layout_leaves_what_the_mapper_chose_over_other_axes() -> None:
    given = read_inputs("dgx_h100", "moe_llama", mapper="expert").mapper
    assert given is not None
    said = LayoutSpec.model_validate({"choose": {"router": {"tp": "s"}}, "boundary": {}})
    assert laid_out(given, said).choose["router"] == {"ep": "b", "tp": "s"}


@samples.audited
@pytest.mark.parametrize("name", ["router*", "router"])
def test_a_free_axis_leaves_what_another_was_told(name: str) -> None:
    """Over the free tensor axis a layout is found; over experts' the operations keep the index that the mapper chose for them."""
    told = f"{{'{name}': {{ep: b}}, gates: {{ep: b}}, dispatch: {{ep: b}}, combine: {{ep: b}}}}"
    sets = [f"{key}={value}" for key, value in FIXED.items()] + [f"choose={told}", "layouts={found: {split: {tp: free}}}"]
    ops = api.search("dgx_h100", "moe_llama", "parallel_moe", sets=sets).result.mapping.ops
    assert {ops[op]["ep"] for op in ("router", "gates", "dispatch", "combine")} == {"b"}
