"""What three new users did wrong, and what they are told: each as it was met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rackmodel as rm
from rackmodel.errors import InputError
from rackmodel.validation.rows import read_rows
from rackmodel.validation.run import shipped_files, validate
from rackmodel.validation.training_columns import left_alone
from tests.commands import invoke

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*words: str) -> str:
    """What a command says of what cannot be meant."""
    found = invoke(words).exception
    assert isinstance(found, InputError), found
    return str(found)


def test_an_import_writes_over_no_file_of_another_kind(here: Path) -> None:
    Path("config.json").write_text(json.dumps(CONFIG))
    assert invoke(["new", "machine", "mine"]).exit_code == 0
    before = Path("mine.yaml").read_text()
    said = told("import", "config.json", "-o", "mine.yaml")
    assert said == "--output: mine.yaml is there already, a file of another kind (architecture): another name"
    assert Path("mine.yaml").read_text() == before
    for _ in range(2):  # an import may be done again
        assert invoke(["import", "config.json", "-o", "model.yaml"]).exit_code == 0


def test_a_calibration_writes_over_no_file_of_another_kind(here: Path) -> None:
    assert invoke(["new", "machine", "mine"]).exit_code == 0
    Path("rows.csv").write_text("m,n,k,gemm_dtype,latency_us\n64,64,64,bf16,5\n")
    said = told("calibrate", "rows.csv", "--part", "h100_sxm", "-o", "mine.yaml")
    assert said == "--output: mine.yaml is there already, a file of another kind (architecture): another name"


def test_a_language_model_within_another_model_is_told_by_the_key_that_holds_it(here: Path) -> None:
    Path("config.json").write_text(json.dumps({"model_type": "internvl_chat", "vision_config": {"depth": 2}, "decoder": CONFIG}))
    said = "unknown model_type 'internvl_chat'; its decoder is a llama: import that part as a file of its own\n"
    assert said in told("import", "config.json")


def test_a_folder_in_a_mappings_place_is_told_with_its_mapping(here: Path) -> None:
    assert invoke(["search", "rack_paper", "ffn", "data", "--set", "accelerators=4", "-o", "best"]).exit_code == 0
    assert told("evaluate", "rack_paper", "ffn", "best") == "best: is a directory, not a file: its mapping is best/mapping.yaml"
    Path("empty").mkdir()
    assert told("evaluate", "rack_paper", "ffn", "empty") == "empty: is a directory, not a file"


def test_why_not_mine_names_the_command_that_compares_two_mappings(here: Path) -> None:
    said = told("why", "rack_paper", "ffn", "data", "--not", "mine.yaml")
    assert said == (
        "--not: 'mine.yaml' is a file: rackmodel diff ARCH WORKLOAD mapping.yaml mine.yaml says what your mapping costs, and why"
    )


def test_a_window_over_what_an_operation_makes_is_told_as_a_density() -> None:
    text = "workload: w\nsizes: {s: 64, w: 8, d: 4, e: 4}\neinsums:\n  k: K[s,e] = X[s,d] * WK[d,e]\n  a: A[s,w] = Q[s,e] * K[s+w,e]\n"
    with pytest.raises(InputError) as found:
        rm.read(text)
    assert "walks rank 1 of K over 71, K[s,e] makes it 64; a sum of indices reads beyond the borders" in str(found.value)
    assert "is a density of its scores, {density: w/s} under `tensors`" in str(found.value)


RUN = {
    **{"id": "a", "model": "llama3_8b", "gpu": "H100", "n_gpus": "16", "tp": "2", "pp": "1", "dp": "8", "seq_len": "8192"},
    **{"gbs": "64", "mbs": "1", "iteration_time_s": "6"},
}


def priced(here: Path, **cells: str):
    """A training run of one's own beside its prediction."""
    row = {**RUN, **cells}
    path = here / "rows.csv"
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    return validate([path], intervals=False, bins=False).rows[0]


def test_a_cell_that_says_neither_yes_nor_no_is_refused(here: Path) -> None:
    assert priced(here, sp="maybe").refused == "sp: 'maybe' is neither of true, 1, yes nor of false, 0, no"


def test_accumulation_that_another_batch_would_have_is_told_and_the_batch_counts(here: Path) -> None:
    """A published table has such a row, so that it is answered: by the batch, which its rate is of."""
    alone, both = priced(here), priced(here, grad_accum="4")
    assert both.predicted == alone.predicted
    assert any(note == "grad_accum 4 of mbs 1 on all data ranks is a batch of 32: gbs 64 counts" for note in both.assumptions)


def test_a_batch_by_accumulation_is_that_of_the_data_parallel_ranks_that_the_row_says(here: Path) -> None:
    """DualPipe of four stages and four ranks of data is two stages and eight ranks of half of the micro-batches: the batch is the same."""
    said = {"tp": "1", "pp": "4", "dp": "4", "schedule": "dualpipe", "recompute": "full"}
    by_batch, by_steps = priced(here, **said, gbs="64"), priced(here, **said, gbs="", grad_accum="16")
    assert by_batch.refused == by_steps.refused == ""
    assert by_batch.predicted == by_steps.predicted


def test_columns_that_count_for_nothing_are_told_with_what_may_be_meant(here: Path) -> None:
    said = "left alone: column 'schedul' (did you mean 'schedule'?), column 'zero_stage' (did you mean 'sharding'?), column 'mood'"
    assert said in priced(here, schedul="gpipe", zero_stage="3", mood="good", notes="of last week", confidence="").assumptions


def test_no_column_of_the_rows_that_ship_is_told_of() -> None:
    rows = [row for path in shipped_files() for row in read_rows(path) if row.kind == "training"]
    assert rows
    assert {left_alone(row.cells) for row in rows} == {""}


HOLDS_ITSELF: dict[str, object] = {"architecture": "x"}
HOLDS_ITSELF["tree"] = HOLDS_ITSELF
ASKED = {"architecture": "rack_paper", "workload": "ffn"}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: rm.search(**ASKED, top="3"), "top: '3': want a whole number"),
        (lambda: rm.search(**ASKED, top=2.5), "top: '2.5': want a whole number"),
        (lambda: rm.search(**ASKED, limits="latency=5 s"), "limits: want a mapping of names to values, such as {'latency': '2 s'}"),
        (lambda: rm.search(**ASKED, time_limit=-1), "time_limit: '-1': want seconds above 0, or text such as '2 min'"),
        (lambda: rm.search(**ASKED, time_limit="-1 s"), "time_limit: '-1 s': want seconds above 0, or text such as '2 min'"),
        (lambda: rm.search(**ASKED, time_limit=float("nan")), "time_limit: 'nan': want seconds above 0, or text such as '2 min'"),
        (lambda: rm.search(**ASKED, profile=5), "profile: want a name, a path or text, got int"),
        (lambda: rm.sweep("rack_paper", "ffn", "data", profile=5), "profile: want a name, a path or text, got int"),
        (lambda: rm.compare(**ASKED, mappers=[]), "mappers: want a mapper, or a list of at least one"),
        (lambda: rm.compare(**ASKED, mappers=None), "mappers: want a mapper, or a list of at least one"),
        (lambda: rm.read(HOLDS_ITSELF), "<text>: holds itself, or is nested too deep"),
    ],
)
def test_what_python_cannot_mean_is_told_as_an_input(ask, said: str) -> None:
    with pytest.raises(InputError) as found:
        ask()
    assert str(found.value) == said


def test_columns_of_a_sweep_may_be_text() -> None:
    swept = rm.sweep("rack_paper", "ffn", "data", set={"accelerators": [4]}, columns="mfu, hfu")
    assert {"mfu", "hfu"} <= {*swept.to_frame().columns}


FIRST = """study: first
architecture: rack_paper
workload: ffn
mapper: [data, tensor]
runs: [{set: {accelerators: [4, 8]}}]
findings:
  quick: {claim: it is quick, figures: {a: {y: latency, where: WHERE}}, holds: a < 3}
"""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("{mapper: data}", "first.yaml:7:64: findings.quick.figures.a.where: 2 points match: choose by accelerators"),
        ("{mapper: data, accelerators: 5}", "no point has run 'main' and mapper data and accelerators 5"),
    ],
)
def test_a_finding_of_no_point_or_several_is_told_before_any_is_solved(here: Path, where: str, said: str) -> None:
    Path("first.yaml").write_text(FIRST.replace("WHERE", where))
    assert said in told("sweep", "first.yaml", "-o", "out")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("workload: [], mapper: data", "st.yaml:3:19: runs.0.workload: an empty list: no points"),
        ("workload: '', mapper: data", "st.yaml:3:19: runs.0.workload: is empty: want the name of a workload"),
        ("workload: ffn, mapper: [data, ' ']", "st.yaml:3:32: runs.0.mapper: is empty: want the name of a mapper"),
        ("workload: ffn, mapper: data, minimize: []", "st.yaml:3:48: runs.0.minimize: an empty list: no points"),
    ],
)
def test_a_run_without_points_is_told_at_its_place(here: Path, run: str, said: str) -> None:
    Path("st.yaml").write_text(f"study: s\narchitecture: rack_paper\nruns: [{{{run}, set: {{accelerators: 4}}}}]\n")
    assert told("sweep", "st.yaml") == said


def test_a_sweep_without_points_is_an_empty_frame() -> None:
    assert rm.Points(()).to_frame().empty


def test_a_stage_without_operations_is_told_at_its_place(here: Path) -> None:
    assert invoke(["search", "rack_paper", "ffn", "data", "--set", "accelerators=4", "-o", "best"]).exit_code == 0
    text = Path("best/mapping.yaml").read_text().replace("stages: []", "stages: [[]]")
    Path("own.yaml").write_text(text)
    assert "stages.0: a stage without operations" in told("evaluate", "rack_paper", "ffn", "own.yaml")
