"""Models whose layers a config says one by one: what each is, what a rank has of it, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackmodel as rm
from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.inputs.hf_config import import_config
from rackmodel.inputs.library import DECODER
from rackmodel.mapper.rules import axis_factors
from rackmodel.model.workload import Workload
from rackmodel.serving.offers import check_tensor
from rackmodel.serving.replica import serving_mapper
from rackmodel.serving.steps import Steps
from tests.commands import invoke
from tests.serving_models import served_on

CONFIGS = Path(__file__).parents[1] / "workloads" / "configs"
SUPER, ULTRA = "nemotron_super_49b", "nemotron_ultra_253b"
served = served_on("dgx_h200")


def changed(tmp_path: Path, number: int, part: str, **changes: Any) -> Path:
    """Super's config with another layer of a number."""
    config = json.loads((CONFIGS / f"{SUPER}.json").read_text(encoding="utf-8"))
    config["block_configs"][number][part] |= changes
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return path


def layers(path: Path, tmp_path: Path) -> list[tuple[str, int, int]]:
    """Kind, how many, and width of each section of layers."""
    made = tmp_path / "made.yaml"
    made.write_text(import_config(path).text, encoding="utf-8")
    found = []
    for section in read_workload(made).sections:
        ops = section.workload.ops
        gate = next((op for name, op in ops.items() if name.startswith("gate")), None)
        if section.name not in ("embed", "head"):
            kind = "both" if gate is not None and any(name.startswith("QK") for name in ops) else "feed_forward" if gate else "attention"
            found.append((kind, section.repeat, section.workload.sizes[gate.out.names[-1]] if gate is not None else 0))
    return found


def test_layers_of_one_kind_and_width_are_a_section(tmp_path: Path) -> None:
    """Super 49B: 49 layers with attention, 31 without it; a width is two thirds of ffn_mult x 8192, up to a multiple of 256."""
    assert layers(CONFIGS / f"{SUPER}.json", tmp_path) == [
        ("both", 1, 14336),
        ("both", 48, 28672),
        ("feed_forward", 5, 14336),
        ("feed_forward", 1, 17920),
        ("feed_forward", 10, 7168),
        ("feed_forward", 1, 28672),
        ("feed_forward", 8, 5632),
        ("feed_forward", 6, 2816),  # 0.5 x 8192 x 2 / 3 = 2730 < 11 x 256
    ]


def test_layers_that_a_search_left_out_are_none(tmp_path: Path) -> None:
    """Ultra 253B: 162 layers, of which 81 are left; four wide ones stand for those that were fused."""
    found = layers(CONFIGS / f"{ULTRA}.json", tmp_path)
    assert sum(count for _, count, _ in found) == 81
    assert sum(count for kind, count, _ in found if kind == "both") == 64
    assert {width for _, _, width in found if width > 60_000} == {399_360, 425_984, 343_040, 301_056}


def test_operations_of_a_token_by_hand() -> None:
    """Super 49B, 1,000 tokens: two operations a weight but the table's, four an element of keys for each head of queries."""
    model = served(f"{SUPER}_{DECODER}")
    rows = model.price(Steps.of(decodes=1, context=999)).ledger.where(action="mac").rows
    products = 2 * 8192 * (49 * (2 * 8192 + 2 * 1024) + 3 * (6 * 14336 + 49 * 28672 + 17920 + 10 * 7168 + 8 * 5632 + 6 * 2816) + 128256)
    assert sum(float(np.sum(row.amount)) for row in rows) == pytest.approx(products + 4 * 49 * 64 * 128 * 1000, rel=1e-9)


@pytest.mark.parametrize("name", [SUPER, ULTRA])
def test_ranks_share_out_layers_of_every_width(name: str) -> None:
    """Tables, heads and widths in eight; norms whole."""
    one, eight = (served(f"{name}_{DECODER}", tensor=tensor) for tensor in (1, 8))
    norms = 2 * (one.kv_bytes_per_token / 4096 + (80 if name == SUPER else 81) + 1) * (8192 if name == SUPER else 16384)
    assert eight.weights_each[0] == pytest.approx((one.weights_each[0] - norms) / 8 + norms, rel=1e-12)


def first_of_other_groups(folder: Path, queries: int) -> Workload:
    """The model with so many queries a head of keys in its first layer."""
    made = folder / "made.yaml"
    made.write_text(import_config(changed(folder, 0, "attention", n_heads_in_group=queries)).text, encoding="utf-8")
    return read_workload(made)


def test_heads_that_differ_from_layer_to_layer_are_shared_out_alike(tmp_path: Path) -> None:
    """One layer has 4 heads of keys for 16 queries each, the others 8 for 8: eight ranks are four and two."""
    workload = first_of_other_groups(tmp_path, 16)
    assert (workload.sizes["g"], workload.sizes["q"], workload.sizes["g_2"], workload.sizes["q_2"]) == (4, 16, 8, 8)
    cut = [("te_g_g_2", 4, frozenset({"g", "g_2"})), ("te_g_2_q", 2, frozenset({"g_2", "q"}))]
    assert axis_factors(serving_mapper(), workload, "te", 8) == cut
    check_tensor(workload, 8)
    keys = 2 * 128 * 2  # bytes of a head's keys and values of a token
    assert served(workload, tensor=4).cache_bytes(1600) == 1600 * keys * (48 * 2 + 1)


def test_keys_lie_in_the_flattening_of_their_sections_queries(tmp_path: Path) -> None:
    """One layer has 16 heads of keys for 4 queries each, the others 8 for 8: of sixteen ranks each has a head of the one, and of the
    others half a head's queries. (Until 30 November 2026 keys of the others were looked for in [g_2, q], which no layer has: the first
    layer was cut along g or q, as the process had it, with its keys once or twice.)"""
    workload = first_of_other_groups(tmp_path, 4)
    assert (workload.sizes["g"], workload.sizes["q"], workload.sizes["g_2"], workload.sizes["q_2"]) == (16, 4, 8, 8)
    cut = [("te_g_g_2", 8, frozenset({"g", "g_2"})), ("te_g_q_2", 2, frozenset({"g", "q_2"}))]
    assert axis_factors(serving_mapper(), workload, "te", 16) == cut
    check_tensor(workload, 16)
    keys = 2 * 128 * 2  # bytes of a head's keys and values of a token
    assert served(workload, tensor=16).cache_bytes(1600) == 1600 * keys * (48 + 1)


def attention(queries: str, end: str, hidden: tuple[str, str]) -> dict[str, Any]:
    """A layer of grouped heads, `queries` of them ('g,q'), whose names end so."""
    heads, (before, after) = queries.split(",")[0], hidden
    names = {
        "Q": f"Q[b,s,{queries},e] = {before}[b,s,d] * WQ[d,{queries},e]",
        "K": f"K[b,s,{heads},e] = {before}[b,s,d] * WK[d,{heads},e]",
        "V": f"V[b,s,{heads},e] = {before}[b,s,d] * WV[d,{heads},e]",
        "QK": f"A[b,{queries},s,t] = Q[b,s,{queries},e] * K[b,t,{heads},e]",
        "softmax": f"P[b,{queries},s,t] = softmax(A[b,{queries},s,t]) over t",
        "AV": f"Z[b,s,{queries},e] = P[b,{queries},s,t] * V[b,t,{heads},e]",
        "O": f"{after}[b,s,d] = Z[b,s,{queries},e] * WO[{queries},e,d]",
    }
    own = re.compile(r"\b(W?[QKVOAPZ])\[")
    return {"repeat": 2, "einsums": {f"{name}{end}": own.sub(rf"\1{end}[", said) for name, said in names.items()}}


def test_as_many_ranks_as_either_section_has_heads_for_are_searched() -> None:
    """8 heads of keys for 4 queries each and 4 for 16: of 32 ranks each has a query of the one and two of the other. (Until 30 November
    2026 they were refused: degree 8 does not divide q = 4 of Q.)"""
    sizes = {"b": 8, "s": 64, "t": "s", "d": 512, "e": 16, "g": 8, "q": 4, "g_2": 4, "q_2": 16}
    sections = {"one": attention("g,q", "", ("X", "Y")), "two": attention("g_2,q_2", "_2", ("Y", "U"))}
    workload = {"workload": "w", "phases": ["forward", "backward"], "sizes": sizes, "sections": sections}
    mapper = {"mapper": "m", "axes": {"tp": {"degree": "all"}}, "split": {"tp": [["g", "q"]]}, "profile": "ideal"}
    ops = rm.search("rack_paper", workload, mapper, set={"accelerators": 32}).result.mapping.ops
    assert list(ops["Q"].values()) == ["g", "g", "q"]  # 4, 2 and 4 ways
    assert list(ops["K"].values()) == ["g", "g", None]
    assert list(ops["Q_2"].values()) == ["g_2", "q_2", "q_2"]
    assert list(ops["K_2"].values()) == ["g_2", None, None]


@pytest.mark.parametrize(
    ("number", "part", "changes", "fact"),
    [
        (3, "attention", {"replace_with_linear": True}, "block_configs__attention__replace_with_linear: family nemotron_nas has no layers"),
        (3, "ffn", {"replace_with_linear": True}, "block_configs__ffn__replace_with_linear: family nemotron_nas has no layers"),
        (3, "attention", {"window_length": 4096}, "block_configs__attention__window_length: family nemotron_nas has no layers"),
        (3, "ffn", {"ffn_mult": "5.25"}, "block_configs__ffn__ffn_mult: '5.25' is no number"),
        (3, "ffn", {"experts": 8}, "block_configs__ffn__experts: unknown key"),
        (3, "ffn", {"ffn_mult": None}, "no block_configs__ffn__intermediate_size, nor block_configs__ffn__ffn_mult"),
    ],
)
def test_what_a_layer_says_and_no_block_does_is_refused_with_its_place(
    number: int, part: str, changes: dict[str, Any], fact: str, tmp_path: Path
) -> None:
    path = changed(tmp_path, number, part, **changes)
    with pytest.raises(InputError) as caught:
        import_config(path)
    assert fact in str(caught.value)
    line = int(str(caught.value).partition("config.json:")[2].partition(":")[0])
    starts = [number for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if '"attention": {' in text]
    assert starts[number] - 1 <= line < starts[number + 1]


def test_a_list_of_fewer_layers_than_there_are_is_refused(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / f"{SUPER}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    for told, fact in ((config["block_configs"][:-1], "lists 79 layers, of 80"), (None, "no list of layers")):
        path.write_text(json.dumps(config | {"block_configs": told}), encoding="utf-8")
        with pytest.raises(InputError, match=fact):
            import_config(path)


def test_such_a_model_is_trained_and_its_launch_flags_are_refused_by_name() -> None:
    asked = ["search", "dgx_h200", f"{SUPER}_training", "megatron_tp", "--set", "accelerators=8", "--set", "b=8", "--set", "s=512"]
    found = invoke([*asked, "--set", "axes.tp.degree=8", "--flags", "megatron"])
    assert "other sizes than most: arguments are of one kind" in str(found.exception)
