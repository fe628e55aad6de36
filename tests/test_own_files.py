"""Mistakes in a machine, a workload and a mapper of one's own: refused at their place before anything is searched or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackmodel.errors import InputError
from tests.commands import invoke

MACHINE = """architecture: own
site: {grid: sweden, pue: 1.1}
tree:
  name: pod
  network: {topology: torus, shape: [2, 2], bandwidth: 25 GB/s, latency: 8 us, energy: 40 pJ/bit}
  children:
  - name: xpu
    count: 4
    accelerator: true
    memory: {capacity: 96 GiB, bandwidth: 4 TB/s}
    compute: {precisions: {16 bit: {rate: 1 PFLOP/s, energy: 0.4 pJ/FLOP}}}
    embodied:
      dies: {soc: {area: 700 mm^2, process: 5nm}}
      memory: {hbm: {technology: hbm}}
      parts: {sink: {kind: heat_sink, boundary: module}}
"""
WORKLOAD = """workload: ownw
phases: [forward, backward, optimizer]
sizes: {n: 32, c: 64, u: 128}
einsums: {up: "U[n,u] = X[n,c] * W1[c,u]", act: "G[n,u] = gelu(U[n,u])", down: "Y[n,c] = G[n,u] * W2[u,c]"}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit}
"""
MAPPER = """mapper: ownm
axes: {dp: {degree: free}}
split: {dp: [n]}
homes: {weights: [{axes: [dp], state: shard}]}
minimize: latency
"""
FILES = {"own": MACHINE, "ownw": WORKLOAD, "ownm": MAPPER}


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("own", "process: 5nm", "process: 4nm", "own.yaml:13:45: tree.xpu.embodied.dies.soc.process: no process called '4nm'"),
        ("own", "technology: hbm", "technology: hbm9", "tree.xpu.embodied.memory.hbm.technology: no memory or storage technology called"),
        ("own", "kind: heat_sink", "kind: heatsink", "tree.xpu.embodied.parts.sink.kind: no part called 'heatsink'"),
        ("own", "grid: sweden", "grid: 300", "own.yaml:2:14: site.grid: '300' has no unit: want a place of the grid table"),
        ("own", "700 mm^2", "700 mm2", "unknown unit 'mm2', did you mean 'mm^2'?"),
        ("own", "96 GiB", "96 G", "unknown unit 'G', did you mean 'GB'?"),
        ("own", "1 PFLOP/s", "1 PFLOPS", "unknown unit 'PFLOPS', did you mean 'PFLOP/s'?"),
        ("own", "25 GB/s", "25 GBps", "unknown unit 'GBps', did you mean 'GB/s'?"),
        ("ownw", "activation: 16 bit", "activation: 24 bit", "ownw.yaml:5:12: precision: no compute rate for 24-bit operands, which up"),
        ("ownw", "workload: ownw", "workload: ownw\ntensors: {X: {kind: output}}", "'X' cannot be an output: it is never written"),
        ("ownm", "axes: [dp], state: shard", "at: xpu", "ownm.yaml:4:24: homes.weights.0.at: 'xpu' is not above the accelerators"),
        (
            "ownm",
            "homes: {weights: [{axes: [dp], state: shard}]}",
            "choose: {up: {dp: free}}\nhomes: {weights: [{}, {axes: [dp], state: shard}]}",
            "ownm.yaml:5:18: homes.weights: where layouts are free a home is given or free, not a list",
        ),
        ("ownm", "minimize: latency", "minimize: money", "own.yaml:4:3: tree: money needs a price: no 'cost' of 'xpu'"),
        ("ownm", "minimize: latency", "algorithms: [ring, bset]", "no algorithm called 'bset'"),
        ("ownm", "minimize: latency", "offload: [[optimizer]]", "ownm.yaml:5:10: offload: own has no memory above its accelerators"),
        ("ownm", "minimize: latency", "inside: {factors: ceil}", "ownm.yaml:5:19: inside.factors: 'factors' is of loop nests"),
        ("ownm", "minimize: latency", "inside: {model: loopnest, fuse: [{einsums: [up, dwn]}]}", "no operation 'dwn'"),
        ("ownm", "minimize: latency", "inside: {model: loopnest}\nprofile: megatron_core", "has measured kernels, which are no loop nests"),
        (
            "ownm",
            "minimize: latency",
            "inside: {model: loopnest, rules: {up: {stationary: {xpuu: W1}}}}",
            "ownm.yaml:5:53: inside.rules.up.stationary.xpuu: no memory inside the accelerator called 'xpuu'",
        ),
    ],
)
def test_check_and_search_refuse_alike_and_nothing_is_written(
    file: str, old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        assert name != file or old in text
        Path(f"{name}.yaml").write_text(text.replace(old, new, 1) if name == file else text)
    names = [f"{name}.yaml" for name in FILES]
    checked = invoke(["check", *names])
    assert checked.exit_code == 2
    assert said in checked.output
    found = invoke(["search", *names, "-o", "out"])
    assert isinstance(found.exception, InputError)
    assert said in str(found.exception)
    assert not list(Path("out").iterdir())


def test_own_files_are_fine_and_several_names_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(f"{name}.yaml").write_text(text)
    assert "together: ok" in invoke(["check", *(f"{name}.yaml" for name in FILES)]).output
    Path("own.yaml").write_text(MACHINE.replace("5nm", "6nm").replace("heat_sink", "heatsink"))
    told = json.loads(invoke(["check", "own.yaml", "--json"]).output)["files"][0]["problems"]
    assert [one["path"] for one in told] == ["tree.xpu.embodied.dies.soc.process", "tree.xpu.embodied.parts.sink.kind"]
    assert told[1]["nearest"] == "heat_sink"
    Path("mine.yaml").write_text("carbon: mine\nprocesses: {6nm: {energy: 2.5 kWh/cm^2, gas_95: 300 g/cm^2, gas_99: 200 g/cm^2}}\n")
    Path("own.yaml").write_text(MACHINE.replace("5nm", "6nm").replace("site:", "carbon: mine.yaml\nsite:"))
    assert invoke(["check", "own.yaml"]).exit_code == 0  # a process of one's own tables


CHIP = """architecture: chip
tree:
  name: chip
  accelerator: true
  memory: {capacity: 1 GB, bandwidth: 50 GB/s}
  children:
  - name: pad
    memory: {capacity: 64 KiB, bandwidth: 400 GB/s, keep: [right], bits: {result: 32 bit}}
    children:
    - {name: mac, count: 32, compute: {rate: 1 GMAC/s}}
"""


@pytest.mark.parametrize(
    ("words", "rules", "said"),
    [
        (("keep: [right]", "keep: [rigth]"), "{}", "chip.yaml:8:60: tree.pad.memory.keep.0: no tensor 'rigth'"),
        (("result: 32", "reslt: 32"), "{}", "chip.yaml:8:75: tree.pad.memory.bits.reslt: no tensor 'reslt'"),
        (("right", "Zebra"), "{}", ""),  # of another workload
        (("", ""), "{up: {order: {pad: [W1, Uu, X]}}}", "inside.rules.up.order.pad.1: no tensor 'Uu'"),
        (("", ""), "{'*': {tiles: {pad: {nn: 4}}}}", "inside.rules.*.tiles.pad.nn: no rank 'nn'"),
        (("", ""), "{up: {spatial: {pad: {x: [w]}}}}", "inside.rules.up.spatial.pad.x.0: no rank 'w'"),
        (("", ""), "{up: {spatial: {chip: {x: [u]}}}}", "inside.rules.up.spatial.chip: no memory above a fan called 'chip'"),
        (("", ""), "{up: {keep: {pad: [X]}, bypass: {pad: [X]}}}", "inside.rules.up.bypass.pad: 'X' is kept there too"),
        (("", ""), "{up: {spatial: {pad: {x: [u]}}, order: {pad: [W1, U]}}}", ""),
    ],
)
def test_names_that_loop_nests_are_told_are_there(words: tuple[str, str], rules: str, said: str, tmp_path: Path) -> None:
    files = {"chip": CHIP.replace(*words), "ownw": WORKLOAD, "nests": f"mapper: nests\ninside: {{model: loopnest, rules: {rules}}}\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    checked = invoke(["check", *(str(tmp_path / f"{name}.yaml") for name in files)])
    assert checked.exit_code == (2 if said else 0)
    assert said in checked.output.replace(f"{tmp_path}/", "")


def test_layouts_of_a_model_that_a_search_finds_are_fine_to_check() -> None:
    told = json.loads(invoke(["check", "dgx_h100", "gpt", "megatron_free", "--json"]).output)["together"]
    assert (told["ok"], told["meshes"] > 50) == (True, True)
    assert any("free layouts are found by the search" in line for line in told["warnings"])


def test_another_objective_is_no_condition_of_an_answer() -> None:
    """Joules were compared with seconds: 806677 % more."""
    asked = ["why", "rack_paper", "ffn", "tensor", "--set", "accelerators=4", "--not", "minimize=energy"]
    found = invoke(asked)
    assert isinstance(found.exception, InputError)
    assert str(found.exception) == "--not: an objective is no condition of the answer: ask for it by --minimize energy"


def test_what_serving_emits_and_costs_fits_a_terminal() -> None:
    told = invoke(["serve-trace", "dgx_h100", "llama3_8b_decoder", "--rate", "5", "--requests", "5", "--osl", "8"]).output
    assert "carbon of an output token" in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("runs: [{set: {accelerators: []}}]", "st.yaml:5:29: runs.0.set.accelerators: an empty list: no points"),
        ("runs: [{zip: [[accelerators, b]], set: {accelerators: [1, 2]}}]", "st.yaml:5:14: runs.0.zip: no list called 'b'"),
        (
            "runs: [{set: {xpu.memory.bandwidth: {logspace: [1 GB/s, 1 TB/s, 3]}}}]",
            "st.yaml:5:37: runs.0.set.xpu.memory.bandwidth: ends of",
        ),
        ("runs: [{set: {accelerators: 4}}]\ncolumns: [mfu, embodied]", "st.yaml:6:16: columns.1: no metric called 'embodied'"),
        ("runs: [{mapper: [data, dta]}]", "st.yaml:5:24: runs.0.mapper.1: no mapper called 'dta'"),
        (
            "runs: [{set: {accelerators: 4}}]\nfindings: {f: {claim: c, figures: {a: {y: latncy}}, holds: a < 1}}",
            "st.yaml:6:43: findings.f.figures.a.y: 'latncy'",
        ),
    ],
)
def test_a_study_that_cannot_be_meant_is_refused_at_its_place_and_begins_no_file(
    said: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("st.yaml").write_text(f"study: own\narchitecture: rack_paper\nworkload: ffn\nmapper: data\n{said}\n")
    found = invoke(["sweep", "st.yaml", "-o", "out"])
    assert isinstance(found.exception, InputError)
    assert str(found.exception).startswith(place)
    assert not list(Path("out").glob("*"))


def test_what_a_study_sets_and_finds_is_refused_at_its_place_though_points_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finding = "findings: {f: {claim: c, figures: {a: {y: latency, where: {mapper: tensor}}}, holds: a < 1}}"
    for said, place in (
        ("runs: [{set: {acelerators: 4}}]", "st.yaml:5:15: runs.0.set.acelerators: nothing is called 'acelerators'"),
        (f"runs: [{{set: {{accelerators: 4}}}}]\n{finding}", "st.yaml:6:39: findings.f.figures.a: no point has run 'main'"),
    ):
        Path("st.yaml").write_text(f"study: own\narchitecture: rack_paper\nworkload: ffn\nmapper: data\n{said}\n")
        found = invoke(["sweep", "st.yaml", "--workers", "1"])
        assert str(found.exception).startswith(place)


def test_paths_of_a_study_start_from_its_folder(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows from anywhere, called as the study calls its files; a name that is there and here means the study's."""
    (tmp_path / "deep").mkdir()
    for name, text in FILES.items():
        (tmp_path / "deep" / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "ownm.yaml").write_text("nonsense: here\n", encoding="utf-8")
    study = "study: st\narchitecture: own.yaml\nworkload: ../deep/ownw.yaml\nmapper: ownm\nruns: [{set: {accelerators: [2, 4]}}]\n"
    charts = "charts: {c: {kind: scatter, x: latency_s, y: energy_j, series: [mapper], where: {mapper: ownm}}}\ncolumns: [mfu]\n"
    (tmp_path / "deep" / "st.yaml").write_text(study + charts, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "deep")
    inside = run("sweep", "st.yaml")
    monkeypatch.chdir(tmp_path)
    outside = run("sweep", "deep/st.yaml")
    assert inside[0] == 0
    assert inside[1] == outside[1]
    assert "ownm" in outside[1]
    (tmp_path / "own.yaml").write_text(MACHINE, encoding="utf-8")
    (tmp_path / "deep" / "own.yaml").unlink()
    code, _, err = run("sweep", "deep/st.yaml")
    assert code == 2
    assert (
        "deep/st.yaml:2:15: architecture: 'deep/own.yaml': no such file, and this path starts from the study's folder, not from here" in err
    )


def test_columns_that_are_asked_for_are_shown_beside_charts_whose_numbers_are_short(run) -> None:
    study = "study: st\narchitecture: rack_paper\nworkload: ffn\nmapper: data\nruns: [{set: {accelerators: [4, 8]}, profile: ideal}]\n"
    chart = "charts: {c: {kind: scatter, x: latency_s, y: energy_j, where: {workload: ffn}}}\n"
    plain = run("sweep", study + chart)[1]
    assert "mfu" not in plain
    assert max(len(word) for line in plain.splitlines()[1:] for word in line.split()[:1]) <= 10
    assert "mfu" in run("sweep", study + chart, "--columns", "mfu")[1]


def test_a_mesh_that_nothing_divides_is_told_by_what_was_tried(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(Of all meshes of 5 accelerators the first one's axis was blamed, whose degree is free; a micro-batch was blamed on the axes.)"""
    monkeypatch.chdir(tmp_path)
    free = MAPPER.replace("{dp: {degree: free}}", "{dp: {degree: free}, tp: {degree: free}}").replace("[n]", "[n], tp: [u]")
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text.replace("[2, 2]", "[5, 2]").replace("count: 4", "count: 10"), encoding="utf-8")
    (tmp_path / "free.yaml").write_text(free, encoding="utf-8")
    err = run("search", "own.yaml", "ownw.yaml", "free.yaml", "--set", "accelerators=5")[2]
    assert (
        "free.yaml:2:7: axes: no mesh of 5 accelerators divides this model's sizes and batch (2 by uneven split; axis tp: degree 5" in err
    )
    (tmp_path / "small.yaml").write_text(MAPPER + "micro_batch: 3\n", encoding="utf-8")
    err = run("search", "own.yaml", "ownw.yaml", "small.yaml", "--set", "accelerators=2", "--set", "workload.batch_rank=n")[2]
    assert "small.yaml:6:14: micro_batch: no mesh of 2 accelerators" in err


def test_a_latency_by_one_of_several_memories_says_which(run) -> None:
    """By hand: the first product reads and writes each element of its operands at 1 GB/s a processing element, most of the time."""
    slow = ("--set", "pe.memory.bandwidth=1 GB/s", "--set", "chip.memory.bandwidth=100 GB/s")
    line = next(
        line for line in run("search", "edge3", "ffn", "data", "--set", "m=64", *slow)[1].splitlines() if line.startswith("latency:")
    )
    assert "; memory pe alone " in line
    assert "alone" not in run("search", "rack_paper", "ffn", "data", "--set", "accelerators=4")[1]
