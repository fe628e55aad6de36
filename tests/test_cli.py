"""The command line as a person or a script meets it: JSON shapes, exit codes, files, messages."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.cost.ledger import COLUMNS
from tests import samples

SPEC = Path(__file__).parents[1] / "specs/rack_paper.yaml"
RESULT = {"latency_s", "energy_j", "carbon_g", "memory_bytes_per_accelerator", "mapping", "certificate", "ledger"}


def test_compare_gives_one_result_a_mapper_in_order(run) -> None:
    code, out, _ = run("compare", "rack_paper", "ffn", "tensor", "data", "--json", "--set", "accelerators=16")
    results = json.loads(out)["results"]
    assert code == 0
    assert [r["mapper"] for r in results] == ["tensor", "data"]
    assert all(set(r) >= RESULT for r in results)
    assert tuple(results[0]["ledger"][0]) == COLUMNS
    assert {row["component"] for r in results for row in r["ledger"]} <= {"compute", "memory", "network", "static"}
    assert {row["phase"] for r in results for row in r["ledger"]} <= {"forward", "backward", "recompute", "optimizer"}


def test_the_ledger_of_a_command_adds_up_to_its_totals(run) -> None:
    import math

    for workload, mapper in (("ffn", "pipeline_tensor"), ("attention", "tensor"), ("llama3_8b_block", "sequence"), ("moe", "expert")):
        result = json.loads(
            run(
                "search",
                "rack_paper",
                workload,
                mapper,
                "--json",
                "--set",
                "accelerators=12" if mapper == "pipeline_tensor" else "accelerators=8",
            )[1]
        )["result"]
        assert math.fsum(row["joules"] for row in result["ledger"]) == pytest.approx(result["energy_j"], rel=1e-12)
        assert math.fsum(row["exposed_seconds"] for row in result["ledger"]) == pytest.approx(result["latency_s"], rel=1e-12)
        assert all(row["exposed_seconds"] <= row["seconds"] * (1 + 1e-12) for row in result["ledger"])
        assert result["carbon_g"] == pytest.approx(result["energy_j"] / 3.6e6 * 301, rel=1e-12)  # world 301 g/kWh, PUE 1


WRITTEN = [
    ("ffn", "auto", "accelerators=8"),
    ("attention", "pipeline_tensor", "accelerators=12"),
    ("attention", "tensor", "accelerators=10"),
    ("attention", "tensor", "accelerators=16"),
    ("moe", "expert", "accelerators=4"),
    ("ffn", "fsdp", "accelerators=8"),
]


@pytest.mark.parametrize(("workload", "mapper", "sets"), samples.some(WRITTEN, 3))
def test_search_writes_a_mapping_that_evaluates_to_the_last_digit(run, workload: str, mapper: str, sets: str, tmp_path: Path) -> None:
    """(Of every kind of mapping: test_answers_mappings.)"""
    _, out, _ = run("search", "rack_paper", workload, mapper, "--json", "--set", sets, "-o", str(tmp_path))
    found = json.loads(out)["result"]
    code, out, _ = run("evaluate", "rack_paper", workload, str(tmp_path / "mapping.yaml"), "--json")
    priced = json.loads(out)["result"]
    assert code == 0
    for key in ("latency_s", "energy_j", "carbon_g", "memory_bytes_per_accelerator", "ledger", "mapping"):
        assert priced[key] == found[key], key
    for name in ("energy.png", "energy.svg", "energy.html", "ledger.csv"):
        assert (tmp_path / name).stat().st_size > 100


def test_the_same_input_gives_the_same_output() -> None:
    words = [sys.executable, "-m", "rackmodel", "search", "rack_paper", "attention", "auto", "--set", "accelerators=8", "--json"]
    outs = []
    for seed in ("0", "1"):
        out = subprocess.run(words, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}).stdout
        data = json.loads(out)
        for result in (data["result"], *data["top"]):
            result["certificate"].pop("seconds")
        outs.append(data)
    assert outs[0] == outs[1]


def test_top_is_best_first_and_starts_with_the_result(run) -> None:
    data = json.loads(run("search", "rack_paper", "ffn", "auto", "--top", "4", "--json", "--minimize", "edp")[1])
    products = [r["latency_s"] * r["energy_j"] for r in data["top"]]
    assert products == sorted(products)
    assert len(products) == 4
    assert data["result"] == data["top"][0]
    assert data["result"]["certificate"]["gap"] == 0


def test_weight_streaming_is_broadcast_down_and_reduced_up(run) -> None:
    """16 wafers under 1:4 nodes: 21 edges (5 nodes); weights bf16 down twice, gradients fp32 up once."""
    results = json.loads(run("compare", "cs2", "ffn", "stream", "data", "--json")[1])["results"]
    rows = [r for r in results[0]["ledger"] if r["component"] == "network"]
    weights = 4096 * 14336 * 2 * 2
    assert sum(r["amount"] for r in rows if r["action"] == "broadcast") == pytest.approx(2 * 21 * weights)
    assert sum(r["amount"] for r in rows if r["action"] == "reduce") == pytest.approx(21 * weights * 2)
    assert all(r["joules"] == pytest.approx(r["amount"] * 8 * 55e-12) for r in rows)
    assert results[0]["memory"].get("weights", 0) == 0 < results[1]["memory"]["weights"]


def test_infeasible_is_an_answer_with_exit_code_1(run) -> None:
    code, out, err = run("compare", "rack_paper", "ffn", "data", "tensor", "--json", "--set", "gpu.memory.capacity=900 MB")
    results = json.loads(out)["results"]
    assert code == 1
    assert results[0]["infeasible"]["shortfall"] == pytest.approx(results[0]["infeasible"]["need"] - 900e6)
    assert "latency_s" in results[1]
    assert "smallest change that fits" in err
    code, _, err = run("search", "rack_paper", "ffn", "tensor", "--set", "gpu.memory.capacity=300 MB")
    assert code == 1
    assert "accelerators=64" in err or "capacity" in err


def test_a_wafer_that_is_too_small_says_what_is_missing(run) -> None:
    code, _, err = run("search", "cs2", "ffn", "stream", "--set", "batch=40000")
    assert code == 1
    assert "wafer needs" in err
    assert "40 GB" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "rack_papr", "ffn", "data"), "did you mean 'rack_paper'"),
        (("compare", "rack_paper", "ffn", "data", "--set", "bogus=1"), "bogus"),
        (("compare", "rack_paper", "ffn", "data", "--set", "accelerators=65"), "64"),
        (("compare", "rack_paper", "ffn", "data", "--minimize", "edpp"), "did you mean 'edp'"),
        (("compare", "rack_paper", "ffn", "data", "--profile", "idea"), "did you mean 'ideal'"),
        (("compare", "rack_paper", "ffn", "stream"), "memoryx"),
        (("compare", "rack_paper", "gemm", "tensor"), "mappers/tensor.yaml"),
        (("search", "rack_paper", "attention", "pipeline_tensor", "--set", "accelerators=8"), "6 pipeline stages"),
        (("search", "rack_paper", "ffn", "data", "--set", "uneven=error", "--set", "accelerators=6"), "does not divide"),
        (("evaluate", "rack_paper", "ffn", "nowhere.yaml"), "nowhere.yaml"),
        (("sweep", "rack_pape"), "rack_paper"),
        (("show", "rack_pape"), "rack_paper"),
        (("search", "rack_paper", "ffn", "tensor", "--top", "0"), "--top: want a whole number of at least 1\n"),
        (("search", "rack_paper", "ffn", "tensor", "--top", "two"), "--top: want a whole number of at least 1\n"),
        (("search", "rack_paper", "ffn", "tensor", "--steps", "-3"), "--steps: want a whole number of at least 1\n"),
        (("explore", "--port", "99999"), "--port: want a whole number from 0 to 65535\n"),
        (("search", "rack_paper", "ffn", "tensor", "--minimize", "speed"), "did you mean 'latency'?"),
        (("search", "rack_paper", "ffn", "tensor", "--pareto", "time,energy"), "did you mean 'latency'?"),
        (("search", "rack_paper", "ffn", "tensor", "--set", "gpu.memory.size=80 GB"), "did you mean 'capacity'?"),
        (("search", "rack_paper", "ffn", "tensor", "--set", "gpu.memory.bw=3 TB/s"), "did you mean 'bandwidth'?"),
        (("search", "rack_paper", "ffn", "tensor", "--set", "thread.compute.peak=3"), "did you mean 'rate'?"),
        (("search", "rack_paper", "ffn", "data", "--set", "seq=8", "--set", "seq=16"), "'seq=8' and 'seq=16' say one number"),
        (("search", "rack_paper", "ffn", "data", "--set", "seq=8", "--set", "workload.seq=16"), "'workload.seq=16' say one number"),
        (("search", "rack_paper", "ffn", "data", "-o=out"), "--output: '-o=out': want -o out, or --output=VALUE"),
        (("serve-trace", "dgx_h100", "llama3_8b_decoder", "--rate", "1", "--set", "arch.accelerators=4"), "its degrees make 1"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--set", "b=64"), "--set b=64: is of one step"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--set", "d=64"), "--set d=64: is a size of the model: say workload.d"),
        (("search", "rack_paper", "ffn", "tensor", "--set", "tp=8"), "'tp' is an axis of the mapper: say axes.tp.degree"),
        (("search", "rack_paper", "ffn", "tensor", "--set", "axes.tp=8"), "want a mapping {key: value} of degree, place, stages"),
        (("search", "dgx_h100", "llama3_8b", "fsdp", "--set", "seq=8"), "did you mean 's'?"),
        (("search", "rack_paper", "ffn", "data", "--minimize", "energy", "--minimize", "latency"), "--minimize: given twice"),
        (("search", "rack_paper", "ffn", "data", "-o", ""), "--output: is empty"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--kv", ""), "--kv: is empty"),
        (("search", "rack_paper", "", "data"), "WORKLOAD: is empty"),
        (("carbon", "dgx_h100", "--lifetime", "4 year"), "--lifetime: this is of a job"),
        (("carbon", "dgx_h100", "--active", "50 %"), "--active: this is of a job"),
        (("carbon", "dgx_h100", "--profile", "ideal"), "--profile: this is of a job"),
        (("carbon", "dgx_h100", "--minimize", "energy"), "--minimize: this is of a job"),
        (("carbon", "dgx_h100", "--verbose"), "--verbose: this is of a job"),
        (("carbon", "dgx_h100", "gemm", "auto", "--grid", "sweden,"), "--grid: 'sweden,': a word is missing"),
        (("cost", "dgx_h100", "--lifetime", "5"), "--lifetime: '5' has no unit: want a time, such as '4 years'"),
        (("cost", "dgx_h100", "--lifetime", "5 yaers"), "unknown unit 'yaers': want a time, such as '4 years'"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--limit", "tpot=5"), "--limit: '5' has no unit: want a time, such as '30 ms'"),
        (("search", "rack_paper", "ffn", "data", "--limit", "latency=5"), "--limit: '5' has no unit: want a time, such as '5 s'"),
        (("search", "rack_paper", "ffn", "data", "--limit", "power=0.7"), "'0.7' has no unit: want power, such as '0.7 kW'"),
        (("search", "rack_paper", "ffn", "data", "--limit", "memory=80"), "'80' has no unit: want bytes, such as '80 GB'"),
        (("search", "rack_paper", "ffn", "data", "--limit", "edp=many"), "want joule*second, such as '5 J*s'"),
        (("search", "rack_paper", "ffn", "data", "--time-limit", "5 sc"), "want a time, such as '30 s'"),
        (("cost", ","), "ARCH: ',': a word is missing"),
        (("cost", "dgx_h100", "--profile", "ideal"), "--profile: this is of a workload"),
        (("cost", "dgx_h100", "--respins", "3"), "--respins: dgx_h100 has no chip that is engineered anew"),
        (("sweep", "rack_paper", "ffn", "data", "--ranges"), "--ranges: sweep has no findings whose verdicts could turn"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--osl", "1", "--minimize", "tpot"), "--minimize: an answer of one token has none"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--osl", "1", "--limit", "tpot=1 s"), "--limit: an answer of one token has none"),
        (("cost", "h100", "gemm", "auto", "--each", "4"), "--each: a copy of 4 accelerators does not fit on 1"),
    ],
)
def test_bad_words_get_one_clear_message_and_exit_code_2(run, words: tuple[str, ...], said: str) -> None:
    code, out, err = run(*words)
    assert code == 2
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_a_mesh_larger_than_the_machine_names_its_file(run, tmp_path: Path) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text("mapper: wide\naxes: {dp: {degree: 128}}\nsplit: {dp: [m]}\n", encoding="utf-8")
    code, _, err = run("compare", "rack_paper", "ffn", str(path))
    assert code == 2
    assert f"{path}:2:" in err


def test_a_broken_file_is_named_with_line_and_column(run, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(SPEC.read_text(encoding="utf-8").replace("capacity: 80 GB", "capcity: 80 GB"), encoding="utf-8")
    for words in (("check", str(path)), ("compare", str(path), "ffn", "data")):
        code, _, err = run(*words)
        assert code == 2
        assert f"{path}:41:9: tree.gpu.memory.capcity" in err
        assert "did you mean 'capacity'" in err


def test_every_shipped_input_is_sound(run) -> None:
    root = SPEC.parents[1]
    files = [str(p) for folder in ("specs", "workloads", "mappers") for p in sorted((root / folder).rglob("*.yaml"))]
    code, out, err = run("check", *files)
    assert (code, err) == (0, "")
    assert out.count(" ok") == len(files)


def test_show_prints_the_tree_the_graph_and_the_space(run) -> None:
    assert "gpu x8 (accelerator)" in run("show", "rack_paper")[1]
    assert "QK: A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]   after Q, K" in run("show", "attention")[1]
    assert "space:" in run("show", "auto", "--workload", "ffn")[1]
    data = json.loads(run("show", "auto", "--workload", "ffn", "--json")[1])
    assert data["size"] > 100


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (["search", "rack_papr", "ffn", "tensor"], 2, {"nearest": "rack_paper", "file": None}),
        (["search", "rack_paper", "ffn", "{file}"], 2, {"file": "{file}", "line": 2, "column": 1, "nearest": "split"}),
        (["search", "rack_paper", "ffn", "tensor", "--set", "gpu.memory.capacity=1 MB"], 1, {"resource": "gpu.memory", "have": 1e6}),
    ],
)
def test_what_is_raised_is_a_document_where_json_is_asked_for(words, code, fields, tmp_path, run):
    file = tmp_path / "m.yaml"
    file.write_text("mapper: m\nsplitt: {tp: [m]}\naxes: {tp: {degree: all}}\n", encoding="utf-8")
    got, out, err = run(*(word.format(file=file) for word in words), "--json")
    assert got == code
    told = json.loads(out)["error"]
    assert told["exit_code"] == code
    assert err.strip()
    for key, value in fields.items():
        assert told[key] == (value.format(file=file) if isinstance(value, str) else value), key


def test_the_first_answer_is_short_and_the_ledger_is_asked_for(run) -> None:
    words = ("search", "rack_paper", "ffn", "data", "--set", "accelerators=8")
    _, short, _ = run(*words)
    _, whole, _ = run(*words, "-v")
    assert len(short.splitlines()) <= 14
    assert "total  " not in short
    assert "-v prints every charge" in short
    assert whole.splitlines()[-1].startswith("total")


def test_of_a_long_front_some_mappings_are_printed_and_all_with_v(run, monkeypatch: pytest.MonkeyPatch) -> None:
    search, answers = api.search, []

    def once(*asked: Any, **more: Any) -> api.Answer:
        answers[:] = answers or [search(*asked, **more)]
        return answers[0]

    monkeypatch.setattr(api, "search", once)
    words = ("search", "dgx_h100", "gpt_22b", "megatron", "--set", "accelerators=8", "--set", "b=16", "--pareto", "latency,memory")
    _, short, _ = run(*words)
    _, whole, _ = run(*words, "-v")
    count = int(whole.partition("Pareto front, proven: ")[2].split()[0])
    tables = [text.partition("Pareto front")[2].partition(" more: ")[0].splitlines()[2:] for text in (short, whole)]
    numbers = [[int(line[:3]) for line in lines if line[:3].strip().isdigit() and line[3:].strip()] for lines in tables]
    assert numbers[1] == list(range(1, count + 1))
    assert count > 12 >= len(numbers[0])
    assert {1, count} <= set(numbers[0])  # the fastest and the slowest
    assert f"{count - len(numbers[0])} more: -v prints them" in short


def test_each_point_of_a_front_has_words_and_a_mapping_of_its_own(run, tmp_path: Path) -> None:
    """Two of three points were 'dp 4 × tp 2, micro-batch 1', and no file said which."""
    words = ("search", "rack_paper", "ffn", "auto", "--set", "accelerators=8", "--limit", "memory=3 GB", "--pareto", "latency,energy")
    code, out, err = run(*words, "-o", str(tmp_path))
    assert code == 0
    assert "ops.FC1.tp d" in out
    rows = list(csv.DictReader((tmp_path / "pareto.csv").read_text().splitlines()))
    assert len({row["mapping"] for row in rows}) == len(rows) == 3
    for row in rows:
        name = f"pareto{row['number']}.mapping.yaml"
        assert name in err
        again = json.loads(run("evaluate", "rack_paper", "ffn", str(tmp_path / name), "--json")[1])["result"]
        assert again["latency_s"] == pytest.approx(float(row["latency_s"]), rel=1e-9)
        assert again["energy_j"] == pytest.approx(float(row["energy_j"]), rel=1e-9)


def test_a_front_of_carbon_and_money_shows_them(run, tmp_path: Path) -> None:
    """Beside what `evaluate` says of each mapping: its use, idle and embodied carbon. They were not in the table, pareto.csv and --json."""
    words = ("search", "dgx_h100", "attention", "data_tensor", "--set", "accelerators=16", "--pareto", "total_carbon,memory,money,tcdp")
    code, out, _ = run(*words, "-o", str(tmp_path))
    assert code == 0
    head = next(line for line in out.splitlines() if line.startswith("#"))
    assert head.split() == ["#", "mapping", "memory", "total_carbon", "tcdp", "money"]
    rows = list(csv.DictReader((tmp_path / "pareto.csv").read_text().splitlines()))
    assert len(rows) > 1
    said = json.loads(run(*words, "--json")[1])["front"]
    for key in ("total_carbon_g", "tcdp_g_s", "money_usd", "latency_s"):
        assert [point[key] for point in said] == [float(row[key]) for row in rows]
    for row in rows:
        words = ("evaluate", "dgx_h100", "attention", str(tmp_path / f"pareto{row['number']}.mapping.yaml"))
        again = json.loads(run(*words, "--set", "accelerators=16", "--json")[1])["result"]
        grams = again["carbon"]["total"]["mid"]
        assert float(row["total_carbon_g"]) == pytest.approx(grams, rel=1e-9)
        assert float(row["tcdp_g_s"]) == pytest.approx(grams * again["latency_s"], rel=1e-9)
        assert 0 < float(row["money_usd"]) < 1
    front = json.loads((tmp_path / "result.json").read_text())["shown"]["front"]
    assert [point["total_carbon_g"] for point in front["points"]] == [float(row["total_carbon_g"]) for row in rows]
    assert run("report", str(tmp_path / "result.json"), "-o", str(tmp_path / "again"))[0] == 0


def test_show_a_machine_has_rates_energies_latencies_and_sums(run) -> None:
    lines = run("show", "rack_paper", "--set", "accelerators=8")[1].splitlines()
    assert lines[1] == f"  together {8 * 256 * 4 * 2e9 / 1e12:.4g} TFLOP/s · memory {8 * 80} GB {8 * 3.35:g} TB/s"
    assert lines[-2:] == [f"{'':10}thread x4 · memory 1.024 kB 0.033 pJ/bit", f"{'':14}compute 2 GFLOP/s 0.36 pJ/FLOP"]
    text = run("show", "dgx_h100")[1]
    assert max(map(len, text.splitlines())) <= 80
    assert "network switch 450 GB/s 14 pJ/bit 2.08 µs a hop" in text
    torus = run("show", "tpu_v5p")[1]
    assert "network torus 4x4x4 100 GB/s 5.5 pJ/bit 0.7 µs a hop · both neighbours by 2 links" in torus.replace("\n" + " " * 8, " · ")
    assert "compute fp8 3.748 TFLOP/s 0.102 pJ/FLOP" in text
    assert "static 198.4 kW" in text  # 64 nodes of 2.5 kW, 512 GPUs of 75 W


@pytest.mark.parametrize("words", [("search", "rack_paper", "ffn", "data"), ("compare", "rack_paper", "ffn", "data", "tensor")])
def test_an_answer_is_told_though_its_files_cannot_be_written(run, words: tuple[str, ...], tmp_path: Path) -> None:
    """A full disk took the answer of hours with it; here a folder stands where a page is to go."""
    (tmp_path / "index.html").mkdir()
    asked = [*words, "--set", "accelerators=8", "-o", str(tmp_path)]
    code, out, err = run(*asked)
    assert code == 3
    assert "1.417 s" in out
    assert "index.html: cannot be written" in err
    code, out, _ = run(*asked, "--json")
    assert code == 3
    assert json.loads(out)["error"]["exit_code"] == 3  # one document: that of the error
