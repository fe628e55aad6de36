"""One command on several machines: the grammar, what an override reaches, what limits each row, and the job of GPT-3."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel import api
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InputError
from rackmodel.inputs import library_path, read_architecture
from rackmodel.report.charts import energy_breakdown, latency_breakdown
from rackmodel.report.result_page import result_page
from rackmodel.report.saved import saved
from tests.report_samples import LEDGER, result

GPT3 = ("compare", "cs2:16,dgx_a100:512,dgx_h100:64", "gpt3_175b", "streaming@cs2", "megatron@dgx_a100", "megatron@dgx_h100")


def rows_of(out: str) -> list[dict]:
    return json.loads(out)["results"]


def places(cells: list[api.Cell]) -> list[tuple[str, int, str]]:
    return [(cell.machine, cell.inputs.architecture.used, cell.mapper) for cell in cells]


# -- grammar -----------------------------------------------------------------------------------------------------------


def test_a_mapper_runs_on_every_machine_in_order_or_on_the_one_after_its_at() -> None:
    found = places(api.cells("cs2:16,dgx_a100:64", "ffn", ["data", "stream@cs2", "tensor@dgx_a100"]))
    assert found == [("cs2", 16, "data"), ("dgx_a100", 64, "data"), ("cs2", 16, "stream"), ("dgx_a100", 64, "tensor")]
    assert places(api.cells(["cs2:16", "dgx_a100:64"], "ffn", ["data"])) == found[:2]
    assert places(api.cells("cs2:16,dgx_a100:64", "ffn", ["data, stream@cs2", "tensor@dgx_a100"])) == found
    with pytest.raises(InputError, match="MAPPER: a mapper is missing beside a comma"):
        api.cells("cs2:16", "ffn", ["data,"])
    assert places(api.cells(" cs2:16 , dgx_a100", "ffn", ["data"])) == [("cs2", 16, "data"), ("dgx_a100", 512, "data")]  # 512 by its file


def test_one_machine_is_what_it_was(run) -> None:
    _, out, _ = run("compare", "rack_paper", "ffn", "tensor", "data", "--json", "--set", "accelerators=16")
    numbered = rows_of(run("compare", "rack_paper:16", "ffn", "tensor@rack_paper", "data", "--json")[1])
    for one, other, mapper in zip(rows_of(out), numbered, ("tensor", "data"), strict=True):
        alone = api.search("rack_paper", "ffn", mapper, sets=["accelerators=16"]).result.to_dict()
        for row in (one, other):
            assert row["mapper"] == mapper
            assert {key: value for key, value in row.items() if key in alone and key != "certificate"} == {
                key: value for key, value in alone.items() if key != "certificate"
            }
    assert [r.latency_s for r in api.compare("rack_paper", "ffn", ["tensor", "data"], sets=["accelerators=16"])] == [
        row["latency_s"] for row in numbered
    ]
    assert api.compare("rack_paper", "ffn", []) == []


@pytest.mark.parametrize("name", ["m.yaml", "C:m.yaml", "a,b.yaml", "m@home.yaml", "m 1:2.yaml", "odd:7"])
def test_a_path_with_an_odd_name_is_a_machine_and_only_digits_at_its_end_are_a_number(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    Path(path).write_text(library_path("architecture", "rack_paper").read_text(encoding="utf-8"), encoding="utf-8")
    for said in (path, [path]):
        assert places(api.cells(said, "ffn", ["data"])) == [(path, 8, "data")]  # by its file
    for said in (f"{path}:4", [f"{path}:4"]):
        assert places(api.cells(said, "ffn", ["data", f"tensor@{path}"])) == [(path, 4, "data"), (path, 4, "tensor")]


def test_a_mapper_file_with_an_at_in_its_name_is_a_mapper(tmp_path: Path) -> None:
    path = tmp_path / "data@home.yaml"
    path.write_text(library_path("mapper", "data").read_text(encoding="utf-8"), encoding="utf-8")
    both = [("cs2", 16, str(path)), ("dgx_a100", 64, str(path))]
    assert places(api.cells("cs2:16,dgx_a100:64", "ffn", [str(path)])) == both
    assert places(api.cells("cs2:16,dgx_a100:64", "ffn", [f"{path}@dgx_a100", f"{path}@cs2"])) == both[::-1]


@pytest.mark.parametrize(
    ("machines", "mappers", "said"),
    [
        ("cs2:16,dgx_a10:512", "data", "did you mean 'dgx_a100'"),
        ("cs2:16,dgx_a100", "data@dgx_a10", "did you mean 'dgx_a100'"),
        ("cs2:16,dgx_a100", "data@dgx_a100:512", "did you mean 'dgx_a100'"),
        ("cs2:16,cs2:32", "data", "'cs2' is there twice"),
        ("cs2:16,dgx_a100", "data data@cs2", "MAPPER: 'data@cs2' is there twice: keep one"),
        ("cs2:193", "data", "cs2:193: accelerators: 193 asked for, the tree has 192"),
        ("cs2:0", "data", "cs2:0: accelerators: 0 must be above 0"),
        ("cs2:16.5", "data", "'16.5' is not a whole number of accelerators"),
        ("cs2:-4", "data", "'-4' is not a whole number of accelerators"),
        ("cs2:many", "data", "'many' is not a whole number of accelerators"),
        ("cs2:", "data", "'' is not a whole number of accelerators"),
        ("cs2:٣", "data", "'٣' is not a whole number of accelerators"),
        ("cs2:" + "9" * 5000, "data", "cs2:999"),
        ("cs2:16,,dgx_a100", "data", "a machine is missing beside a comma"),
        ("cs2:16,dgx_a100", "data@cs2", "no mapper runs on 'dgx_a100'"),
        ("cs2:16,dgx_a100", "@cs2 data", "'' is not the name of a mapper"),
        ("cs2:16,dgx_a100", "dat", "did you mean 'data'"),
        ("cs2:16,dgx_a100:8", "stream", "no level called 'memoryx' (on dgx_a100; MAPPER@ARCH runs a mapper on one machine)"),
    ],
)
def test_bad_words_get_one_clear_message_and_exit_code_2(run, machines: str, mappers: str, said: str) -> None:
    code, out, err = run("compare", machines, "ffn", *mappers.split(" "))
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert len(err) < 2000


def test_two_machines_of_one_name_are_refused_because_their_rows_would_be_alike(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(library_path("architecture", "cs2").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="both say architecture: cs2; rename one"):
        api.cells(["cs2", str(path)], "ffn", ["data"])


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(["tiny", "glb_pe", "rack_paper", "rack_paper_h100"]), unique=True, min_size=1),
    st.lists(st.sampled_from(["data", "auto", "tensor"]), unique=True, min_size=1),
)
def test_cells_are_every_machine_in_order_for_every_mapper(machines: list[str], mappers: list[str]) -> None:
    found = places(api.cells(",".join(f"{name}:1" for name in machines), "ffn", mappers))
    assert found == [(machine, 1, mapper) for mapper in mappers for machine in machines]


# -- overrides ---------------------------------------------------------------------------------------------------------


def test_an_override_reaches_the_machines_that_have_its_path() -> None:
    sets = ["wafer.memory.capacity=20 GB", "gpu.memory.capacity=40 GB", "batch=8"]
    cs2, a100, h100 = api.cells("cs2:16,dgx_a100:64,dgx_h100:64", "ffn", ["data"], sets=sets)
    assert [c.inputs.architecture.accelerator.memory.capacity_bytes for c in (cs2, a100, h100)] == [20e9, 40e9, 40e9]  # type: ignore[union-attr]
    assert {c.inputs.workload.sizes["batch"] for c in (cs2, a100, h100)} == {8}


def test_accelerators_by_override_reach_all_machines_after_their_numbers() -> None:
    cells = api.cells("cs2:16,dgx_a100", "ffn", ["data"], sets=["accelerators=8"])
    assert [used for _, used, _ in places(cells)] == [8, 8]
    assert [cell.number for cell in cells] == ["", ""]
    assert [cell.number for cell in api.cells("cs2:16,dgx_a100", "ffn", ["data"], sets=["batch=8"])] == ["16", ""]


def test_overrides_of_a_comparison_that_say_one_number_are_refused() -> None:
    with pytest.raises(InputError, match="say one number"):
        api.cells("cs2:16,dgx_a100", "ffn", ["data"], sets=["batch=8", "workload.batch=16"])


def test_a_machine_with_its_number_is_asked_for_again_as_it_was(tmp_path: Path, run) -> None:
    """`why` of what a comparison wrote searches the same accelerators, also where one machine alone is compared."""
    run("compare", "rack_paper:4", "ffn", "data", "-o", str(tmp_path))
    code, out, _ = run("why", str(tmp_path), "--not", "seq=16", "--json")
    assert code == 0
    assert json.loads(out)["result"]["mapping"]["accelerators"] == 4


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("wafer.memory.enforc=false", "did you mean 'enforce'"),
        ("bogus=1", "nothing is called 'bogus'"),
        ("accelerators=200", r"200 asked for, the tree has 192 \(on cs2\)"),
        ("gpu.memory.capacity=1", "has no unit"),
        ("gpu=1", "is a level"),
        ("axes.tp.degree=4", "unknown key 'tp'"),  # the mapper on dgx_a100 has it, that on cs2 has not
    ],
)
def test_an_override_that_no_machine_knows_or_that_is_wrong_is_an_error(override: str, said: str) -> None:
    with pytest.raises(InputError) as problem:
        api.cells("cs2:16,dgx_a100:64", "ffn", ["data@cs2", "tensor@dgx_a100"], sets=[override])
    assert re.search(said, str(problem.value))


# -- what limits -------------------------------------------------------------------------------------------------------


def exposed(component: str, level: str, action: str, seconds: float) -> Charge:
    return Charge("forward", "", "", level, component, action, 0.0, "", 0.0, seconds, seconds)  # type: ignore[arg-type]


def test_what_limits_is_the_resource_with_the_most_exposed_seconds() -> None:
    """4 ms of products against 0.5 + 0.5 of one network: 80 and 20 % of 5 ms."""
    found = result().limits
    assert [(limit.what, limit.share) for limit in found] == [("matrix products", pytest.approx(0.8)), ("network rack", pytest.approx(0.2))]
    assert result().to_dict()["limited_by"] == {"what": "matrix products", "share": pytest.approx(0.8)}


def test_streams_down_and_up_one_network_add_up_to_one_limit() -> None:
    """3 + 3 of 10 s of streams outdo 4 s of products."""
    rows = (
        exposed("network", "swarmx", "broadcast", 3.0),
        exposed("network", "swarmx", "reduce", 3.0),
        exposed("compute", "core", "mac", 4.0),
    )
    assert result(rows=Ledger(rows)).to_dict()["limited_by"] == {"what": "stream swarmx", "share": 0.6}


@pytest.mark.parametrize(
    ("component", "level", "action", "what"),
    [
        ("compute", "core", "vector", "vector operations"),
        ("compute", "wafer", "bubble", "pipeline bubble"),
        ("compute", "wafer", "host", "host"),
        ("compute", "memoryx", "vector", "vector operations memoryx"),  # a home that updates
        ("compute", "swarmx", "add", "add swarmx"),  # a switch that adds
        ("memory", "wafer", "read", "memory wafer"),
        ("network", "swarmx", "all_reduce", "network swarmx"),
    ],
)
def test_every_row_of_a_ledger_has_a_resource(component: str, level: str, action: str, what: str) -> None:
    one = result(rows=Ledger((exposed(component, level, action, 1.0),)), there=read_architecture("cs2"))
    assert [limit.what for limit in one.limits] == [what]


def test_a_step_of_no_time_waits_for_nothing() -> None:
    nothing = result(rows=Ledger(()))
    assert nothing.limits == ()
    assert nothing.to_dict()["limited_by"] is None
    assert "mfu" not in nothing.to_dict()


def test_utilisation_leaves_out_what_is_made_again_and_memory_is_a_share_of_the_accelerators() -> None:
    """3.8e12 operations in 5 ms at 1.52e15 a second are half the peak, whatever is recomputed; 1.234 of 40 GB."""
    again = Charge("recompute", "FC1", "", "thread", "compute", "mac", 9e12, "flop", 0.0, 0.0, 0.0)
    one = result(rows=Ledger((*LEDGER, again)), there=read_architecture("cs2"), peak_flop_per_s=1.52e15, tokens=20)
    assert one.mfu == pytest.approx(0.5)
    assert one.memory_share == pytest.approx(1.234 / 40)
    assert one.joules_per_token == pytest.approx(0.5)  # 10 J for 20 tokens
    assert result().memory_share is None


def test_the_utilisation_of_a_search_follows_from_the_sizes_of_its_matrices() -> None:
    """ffn: two matrices of 4096 x 14336 and 32,768 rows, forward and twice that backward, on 8 of the paper's GPUs: 256 blocks
    of 4 threads, one MAC each at 1 GHz."""
    one = api.compare("rack_paper:8", "ffn", ["tensor"])[0]
    peak = 8 * 256 * 4 * 2 * 1e9
    assert one.peak_flop_per_s == pytest.approx(peak)
    assert one.mfu == pytest.approx(3 * 2 * 2 * 32768 * 4096 * 14336 / (peak * one.latency_s))


# -- the command -------------------------------------------------------------------------------------------------------


def test_an_infeasible_machine_is_an_answer_and_the_others_are_still_there(run) -> None:
    words = ("compare", "cs2:16,dgx_a100:64", "ffn", "stream@cs2", "data@dgx_a100", "--set", "wafer.memory.capacity=1 MB")
    code, out, err = run(*words, "--json")
    wafer, gpu = rows_of(out)
    assert code == 1
    assert {key: wafer[key] for key in ("architecture", "accelerators", "mapper")} == {
        "architecture": "cs2",
        "accelerators": 16,
        "mapper": "stream",
    }
    assert set(wafer["infeasible"]) == {"message", "resource", "need", "have", "shortfall", "unit", "change"}
    assert wafer["infeasible"]["shortfall"] == pytest.approx(wafer["infeasible"]["need"] - 1e6)
    assert (gpu["architecture"], gpu["accelerators"]) == ("dgx_a100", 64)
    assert gpu["latency_s"] > 0
    assert err.startswith("stream on cs2: infeasible")
    code, out, _ = run(*words)
    assert code == 1
    assert "dgx_a100 × 64" in out


def test_files_and_pictures_tell_machines_apart(run, tmp_path: Path) -> None:
    code, out, _ = run("compare", "cs2:16,dgx_a100:64", "ffn", "data", "--json", "-o", str(tmp_path))
    assert code == 0
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    for row, machine, count in zip(rows_of(out), ("cs2", "dgx_a100"), (16, 64), strict=True):
        assert f"architecture: {machine}" not in (tmp_path / f"data@{machine}.mapping.yaml").read_text(encoding="utf-8")
        code, said, _ = run("evaluate", machine, "ffn", str(tmp_path / f"data@{machine}.mapping.yaml"), "--json")
        assert json.loads(said)["result"]["latency_s"] == row["latency_s"]
        assert len((tmp_path / f"data@{machine}.ledger.csv").read_text(encoding="utf-8").splitlines()) == len(row["ledger"]) + 1
        assert f"<td>data on {machine} × {count}</td>" in page
        assert f'"name":"data on {machine} × {count}"' in page  # a bar's label


def test_bars_name_the_machine_where_there_are_several() -> None:
    many = [result(machine="cs2", accelerators=16), result(machine="dgx_a100", accelerators=64)]
    for chart in (energy_breakdown(many), latency_breakdown(many)):
        text = json.dumps(chart.to_dict(), ensure_ascii=False)
        assert "tensor on cs2 × 16\\ntp 8" in text
        assert "tensor on dgx_a100 × 64\\ntp 8" in text
        assert "ffn on cs2, dgx_a100" in text
    assert " on rack_paper × " not in json.dumps(energy_breakdown([result(), result("data")]).to_dict(), ensure_ascii=False)
    pages = [result_page([saved(one) for one in some]) for some in (many, many[:1])]
    assert ["<h3>tensor on cs2 × 16</h3>" in page for page in pages] == [True, False]


# -- the job -----------------------------------------------------------------------------------------------------------


def test_one_command_answers_the_job_of_gpt3_on_wafers_and_gpus(run) -> None:
    """A step of 1,536 sequences of 2,048 tokens, each machine in its own space."""
    code, out, _ = run(*GPT3, "--set", "b=1536", "--json")
    rows = rows_of(out)
    assert code == 0
    assert [(row["architecture"], row["accelerators"], row["mapper"]) for row in rows] == [
        ("cs2", 16, "streaming"),
        ("dgx_a100", 512, "megatron"),
        ("dgx_h100", 64, "megatron"),
    ]
    for row in rows:
        assert row["tokens"] == 1536 * 2048
        assert row["joules_per_token"] == pytest.approx(row["energy_j"] / (1536 * 2048))
        assert 0 < row["mfu"] < 1
        assert 0 < row["memory_share"] <= 1
        sums: dict[str, float] = {}
        for charge in row["ledger"]:
            sums[charge["component"]] = sums.get(charge["component"], 0.0) + charge["exposed_seconds"]
        assert math.fsum(sums.values()) == pytest.approx(row["latency_s"], rel=1e-12)
        assert row["limited_by"]["share"] <= max(sums.values()) / row["latency_s"] * (1 + 1e-12)
    # 40 GB of SRAM make a wafer stream all weights for every small micro-batch; GPUs hold theirs (finding G05)
    assert rows[0]["limited_by"]["what"] == "stream swarmx"
    assert [row["limited_by"]["what"] for row in rows[1:]] == ["matrix products"] * 2
    # 6 · 174.6e9 parameters · 3.15e6 tokens, and scores: 3.35 EFLOP of useful operations on 512 · 312 TFLOP/s
    useful = rows[1]["mfu"] * rows[1]["latency_s"] * 512 * 312e12
    assert useful == pytest.approx(96 * 6 * 1536 * 2048 * (12 * 12288**2 + 2 * 2048 * 12288) + 6 * 1536 * 2048 * 51200 * 12288, rel=0.01)


def test_a_seed_without_samples_is_refused(run) -> None:
    code, out, err = run("compare", "rack_paper:16", "ffn", "data", "--seed", "3")
    assert (code, out) == (2, "")
    assert err.startswith("--seed: ")
    assert "--samples" in err


def test_of_a_long_list_the_nearest_words_are_told() -> None:
    known = [f"name_{k:03d}" for k in range(300)]
    told = str(InputError("no such name", known=known, given="name_29l"))
    assert "name_290, name_291" in told
    assert "and 240 more" in " ".join(told.split())
    assert told.endswith("did you mean 'name_029'?")


def test_kernels_that_a_profile_measures_and_an_accelerator_does_not_state_are_told(run) -> None:
    """Beside a machine whose kernels are measured, one at its peak rates looks faster than it is."""
    asked = ("ffn", "data", "--profile", "torchtitan", "--set", "m=64")
    _, out, _ = run("compare", "tpu_v3:1,a100:1", *asked)
    said = "profile 'torchtitan' runs measured kernels, of which chip states none"
    assert f"warning (data on tpu_v3): {said}" in " ".join(out.split())
    _, out, _ = run("compare", "a100:1", *asked)
    assert "warning" not in out
    _, out, _ = run("serve", "tpu_v3", "llama3_8b_decoder", "--tensor", "1", "--concurrency", "1", "--set", "accelerators=1")
    assert "warning: profile 'vllm' runs fitted kernels, of which chip states none" in " ".join(out.split())
