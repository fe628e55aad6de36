"""Inputs that once gave silent wrong answers, tracebacks or torn files, each as it was found (review of answers, sections A to F)."""

from __future__ import annotations

import csv
import json
import math
import os
import resource
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import rackmodel.report.files as files
from rackmodel import api
from rackmodel.errors import InputError, NotFiniteError, OutputError
from rackmodel.inputs import check, read_architecture, read_mapper, read_mapping, read_workload
from rackmodel.model.einsum import parse_statement
from rackmodel.model.sizes import LARGEST, evaluate, resolve_sizes
from rackmodel.report.finite import check_finite, finite
from rackmodel.report.page import html_page
from rackmodel.store.remembered import CacheWarning, Store
from rackmodel.units import parse_quantity
from tests import samples

WORKLOAD = """workload: two
sizes: {m: SIZE, k: 8}
einsums: {Y: "Y[m] = X[m,k] * W[k]"}
"""
MAPPING = """mapping: best
accelerators: 1
nests: {"C = A * B": {problem: C, machine: gpu, levels: LEVELS}}
"""
SMALL = ("search", "rack_paper", "ffn", "data", "--set", "accelerators=4")


def refused(read, *args) -> str:
    with pytest.raises(InputError) as caught:
        read(*args)
    return str(caught.value)


# -- sizes -------------------------------------------------------------------------------------------------------------

NO_SIZE = {
    "2 ** 3": "'**' at character 3",
    "4 4": "'4' at character 3",
    "4 *": "ends where a number or a name is due",
    "* 4": "'*' at character 1",
    "4 / * 2": "'*' at character 5",
    "8 / 2 2": "'2' at character 7",
    "": "is empty",
    " ": "is empty",
    "(4": "the bracket at character 1 is never closed",
    "4)": "')' at character 2",
    "-4": "'-' at character 1",
    "k // 2": "'//' at character 3",
    "k / 0": "divides by zero at character 3",
    "k / 3": "is 2.66667, not a whole number",
    "k - 9": "size -1 of 'm' must be at least 1",
    "1e300": "is too large",
    "9007199254740993 * 1": "is too large",
    "٣": "character 1",
    "1e999999999": "too large or too small",
    "(" * 40 + "4" + ")" * 40: "more than 16 brackets",
}


@pytest.mark.parametrize("text", NO_SIZE)
def test_a_size_that_is_no_expression_is_refused_with_its_place(text, tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD.replace("SIZE", json.dumps(text, ensure_ascii=False)), encoding="utf-8")
    message = refused(read_workload, path)
    assert message.startswith(f"{path}:2:12: sizes.m: ")
    assert NO_SIZE[text] in message
    assert NO_SIZE[text] in refused(read_workload, "gemm", [f"sizes.m='{text}'", "k=8"]) if text.strip() else True


def test_sizes_are_exact_and_follow_the_rules_of_arithmetic():
    made = resolve_sizes({"a": "2 + 3 * 4", "b": "(2 + 3) * 4", "c": "a - b / 4 - 1", "d": "7 / 2 * 2", "e": "9_007_199_254_740_991 * 1"})
    assert made == {"a": 14, "b": 20, "c": 8, "d": 7, "e": LARGEST - 1}
    assert evaluate("k / x", {"k": 2, "x": 8}, "") == 0.25
    assert evaluate("1 / 3 * 3", {}, "") == 1.0


def test_every_size_that_is_wrong_is_told_and_an_unknown_one_lists_all_names():
    with pytest.raises(InputError) as caught:
        resolve_sizes({"a": "4 4", "b": "tok * 2", "c": "a * 2", "d": 3})
    assert [one.path for one in caught.value.problems] == ["sizes.a", "sizes.b"]
    assert caught.value.problems[1].known == ("a", "c", "d")


@pytest.mark.parametrize("access", ["A[0*m,k]", "A[99999999999999999999999*m,k]", "A[٣*m,k]"])
def test_a_stride_is_a_whole_number_of_sense(access):
    assert "stride" in refused(parse_statement, f"C[m] = {access}") or "is not an index" in refused(parse_statement, f"C[m] = {access}")


# -- quantities --------------------------------------------------------------------------------------------------------

NO_QUANTITY = {
    "thread.compute.rate=0 flop/s": "tree.thread.compute.rate: rate must be positive",
    "thread.compute.rate=1e-306 flop/s": "1 to 1e24 FLOP/s is read",
    "thread.compute.energy=1e300 J/flop": "1e-24 to 1e-3 J/FLOP is read",
    "thread.compute.energy=1e-300 J/flop": "1e-24 to 1e-3 J/FLOP is read",
    "rack.network.energy=1.3 PJ/bit": "1e-24 to 1e-3 J/bit is read",
    "rack.network.bandwidth=0 GB/s": "bandwidth must be positive",
    "rack.network.bandwidth=1e300 GB/s": "0.001 to 1e24 B/s is read",
    "rack.network.bandwidth=3 GB//s": "unknown unit 'GB//s'",
    "rack.network.bandwidth=3 gb/s": "did you mean 'GB/s'?",
    "gpu.memory.capacity=80 B %": "unknown unit 'B %'",
    "gpu.memory.capacity=80 B/%": "unknown unit 'B/%'",
    "gpu.memory.capacity=80 mB": "'mB' is a part of one byte, did you mean 'MB'?",
    "gpu.memory.capacity=80 mb": "'mb' is a part of one bit, did you mean 'Mb'?",
    "gpu.memory.capacity=1e308 TB": "0.125 to 1e24 B is read",
}


@pytest.mark.parametrize("said", NO_QUANTITY)
def test_a_quantity_that_cannot_be_meant_is_refused_where_it_is_read(said, run):
    code, out, err = run("search", "rack_paper", "gemm", "data", "--set", said)
    assert (code, out) == (2, "")
    assert err.startswith(f"--set {said}: tree.{said.partition('=')[0]}: ")
    assert NO_QUANTITY[said] in err
    assert "Warning" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "compute", ["{rate: 0 GMAC/s}", "{precisions: {fp8: {rate: 0 FLOP/s}}}", "{rate: 1 TFLOP/s, vector: {rate: 0 FLOP/s}}"]
)
def test_no_rate_is_nothing(compute, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(f"architecture: one\ntree: {{name: gpu, accelerator: true, compute: {compute}}}\n", encoding="utf-8")
    assert "rate must be positive" in refused(read_architecture, path)


def test_quantities_of_sense_are_read_as_ever():
    assert parse_quantity("0 pJ/bit", "joule/byte") == 0
    assert parse_quantity("2 \u00b5s", "second") == parse_quantity("2 \u03bcs", "second") == parse_quantity("2 us", "second")
    assert parse_quantity("1.3 pJ/bit", "joule/byte") == pytest.approx(1.04e-11, rel=1e-12)
    assert (parse_quantity("50 %", ""), parse_quantity("3 Mb", "byte"), parse_quantity("2 GB/s", "byte/second")) == (0.5, 375e3, 2e9)


def test_a_width_is_at_most_a_few_thousand_bits(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD.replace("SIZE", "4") + "precision: {activation: 16000000000000000 bit}\n", encoding="utf-8")
    assert f"{path}:4:25: precision.activation: " in refused(read_workload, path)
    path.write_text(WORKLOAD.replace("SIZE", "4") + "precision: {activation: 70000 bit}\n", encoding="utf-8")
    assert "at most 65536 bit" in refused(read_workload, path)


# -- figures that are not finite ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["latency_s", "energy_j", "carbon_g", "memory_bytes_per_accelerator"])
@pytest.mark.parametrize("words", [(), ("--json",), ("-o", "out")])
def test_a_figure_that_is_not_finite_is_an_error_and_nothing_is_written(figure, words, run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    answer = api.search("rack_paper", "ffn", "data", sets=["accelerators=4"])
    broken = replace(answer, result=replace(answer.result, **{figure: math.inf}))
    monkeypatch.setattr(api, "search", lambda *a, **k: broken)
    code, out, err = run(*SMALL, *words)
    assert code == 2
    assert set(json.loads(out)) == {"error"} if "--json" in words else out == ""
    assert "comes out as inf" in err
    assert list(tmp_path.rglob("*.*")) == []


def test_a_row_that_is_not_finite_and_a_number_in_json_are_named():
    result = api.search("rack_paper", "ffn", "data", sets=["accelerators=4"]).result
    rows = (replace(result.ledger.rows[0], joules=math.nan), *result.ledger.rows[1:])
    with pytest.raises(NotFiniteError, match="joules of forward"):
        check_finite([replace(result, ledger=replace(result.ledger, rows=rows))])
    with pytest.raises(NotFiniteError, match=r"points\.0\.energy_j"):
        finite({"points": [{"energy_j": math.nan}]})
    assert finite({"certificate": {"gap": math.inf}, "a": (1, None)}) == {"certificate": {"gap": None}, "a": [1, None]}


def test_arithmetic_out_of_range_is_no_traceback(run, monkeypatch):
    def fail(*_a, **_k):
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr(api, "search", fail)
    code, _, err = run(*SMALL)
    assert code == 2
    assert err.startswith("no answer: a number of the input is too large or too small to be meant")


def test_a_question_that_takes_too_much_memory_is_no_traceback(run, monkeypatch):
    def fail(*_a, **_k):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(api, "search", fail)
    code, _, err = run(*SMALL)
    assert code == 3
    assert err.startswith("no answer: it takes more memory than this computer has (Unable to allocate 7.28 TiB)")


def test_more_accelerators_than_any_machine_has_are_refused(run):
    """They are laid out member by member."""
    code, _, err = run(*SMALL[:3], "data", "--set", "rack.count=1000000000", "--set", "accelerators=8000000000")
    assert code == 2
    assert "8000000000 accelerators in use: at most 16777216" in err


# -- mapping files -----------------------------------------------------------------------------------------------------

NO_NEST = {
    "{tensor: C}": ("3:57", "nests.C = A * B.levels: '{...}': want a list"),
    '[{level: a, nodes: [{tensor: A, tile: "3 dB"}], x: {}, y: {}}]': ("3:95", "levels.0.nodes.0.tile: '3 dB': want a mapping"),
    "[{level: a, nodes: [], x: {m: 0}, y: {}}]": ("3:87", "levels.0.x.m: 0 must be above 0"),
    "[5]": ("3:58", "levels.0: '5': want a mapping"),
    "[{level: a, nodes: [], x: {}}]": ("3:58", "levels.0: missing key 'y'"),
}


@pytest.mark.parametrize("levels", NO_NEST)
def test_a_loop_nest_of_another_shape_is_refused_with_its_place(levels, tmp_path, run):
    path = tmp_path / "m.yaml"
    path.write_text(MAPPING.replace("LEVELS", levels), encoding="utf-8")
    place, words = NO_NEST[levels]
    for read in (read_mapping, check):
        message = refused(read, path)
        assert message.startswith(f"{path}:{place}: nests.C = A * B.levels"), message
        assert words in message
    assert run("evaluate", "glb_pe", "gemm", str(path))[0] == 2


# -- files and folders -------------------------------------------------------------------------------------------------


def test_a_disk_that_fills_leaves_the_old_file_or_none(tmp_path, monkeypatch):
    def full(_number):
        raise OSError(28, "No space left on device")

    old = files.write_whole(tmp_path / "old.csv", "whole\n")
    monkeypatch.setattr(files.os, "fsync", full)
    for name in ("old.csv", "new.csv"):
        with pytest.raises(OutputError, match="No space left on device") as caught:
            files.write_whole(tmp_path / name, "x" * 100_000)
        assert caught.value.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert old.read_text(encoding="utf-8") == "whole\n"


def test_what_is_no_plain_file_is_written_into_and_a_link_stays_one(tmp_path):
    """`-o /dev/null` put a file where the device was."""
    null, pipe, link, far = (tmp_path / name for name in ("null", "pipe", "link.csv", "far"))
    far.mkdir()
    null.symlink_to(os.devnull)
    link.symlink_to(far / "file.csv")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (null, pipe, link):
        files.write_whole(path, "whole\n")
    assert null.is_symlink()
    assert null.is_char_device()
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"whole\n"
    os.close(reader)
    assert link.is_symlink()
    assert (far / "file.csv").read_text(encoding="utf-8") == "whole\n"
    assert [path.name for path in far.iterdir()] == ["file.csv"]


def _spawn(*words: str, env: dict[str, str] | None = None, **more) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "rackmodel", *words], env={**os.environ, **(env or {})}, timeout=120, **more)


def test_a_command_that_cannot_write_on_says_so_once_with_exit_3(tmp_path):
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = _spawn(*SMALL, "-o", str(tmp_path), capture_output=True, preexec_fn=small_files)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert b"cannot be written: File too large" in done.stderr
    assert all(path.stat().st_size > 0 and not path.name.startswith(".") for path in tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_exit_3(tmp_path, run, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "taken" / "mapping.yaml").mkdir(parents=True)
    for where, words in (("file", "it is a file"), ("file/below", "cannot write there"), ("taken", "mapping.yaml: cannot be written")):
        code, out, err = run(*SMALL, "-o", str(tmp_path / where))
        assert (code, len(err.splitlines())) == (3, 1)
        assert words in err
        told = out.startswith("ffn on rack_paper, 4 accelerators\n")  # what was found by then is not lost
        assert told if where == "taken" else out == ""
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # a test may run as root, who may write anywhere
    code, _, err = run(*SMALL, "-o", str(tmp_path / "denied"))
    assert (code, err.strip()) == (3, f"{tmp_path / 'denied'}: cannot write there: permission denied")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_output_that_is_full_or_closed_is_exit_3():
    with Path("/dev/full").open("wb") as full:
        done = _spawn("show", "rack_paper", stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (3, b"standard output: cannot be written: No space left on device\n")
    done = _spawn("show", "rack_paper", stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (3, b"standard output is closed: nothing can be printed\n")


def test_a_pipe_that_nobody_reads_is_exit_3_without_a_word():
    reading, writing = os.pipe()
    os.close(reading)
    done = _spawn("show", "rack_paper", "--json", stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, b"")


ASCII = [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}]


@pytest.mark.parametrize("env", samples.some(ASCII, 2))
def test_a_terminal_of_ascii_gets_plain_words(env):
    done = _spawn("show", "rack_paper", env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    done = _spawn(*SMALL, env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    done = _spawn("show", "zä–", env=env, capture_output=True)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_an_interrupted_command_says_so(run, monkeypatch):
    def stop(*_a, **_k):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "search", stop)
    code, _, err = run(*SMALL)
    assert (code, err) == (130, "interrupted\n")


def test_a_loop_of_symbolic_links_is_refused(tmp_path):
    (tmp_path / "loop1").symlink_to("loop2")
    (tmp_path / "loop2").symlink_to("loop1")
    path = tmp_path / "m.yaml"
    path.write_text("mapper: m\nextends: ./loop1\n", encoding="utf-8")
    message = refused(read_mapper, path)
    assert message.startswith(f"{path}:2:10: extends: ")
    assert "symbolic links" in message
    assert "symbolic links" in refused(read_mapper, tmp_path / "loop1")


# -- what is remembered ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", ["{}", "[]", "5", "NaN", '{"mapping": 1}', "", b"\xff\xfe"])
def test_an_answer_of_another_shape_is_removed_and_solved_again(torn, tmp_path):
    Store(tmp_path).remember("question", lambda: {"mapping": 1, "certificate": 2})
    with sqlite3.connect(tmp_path / "results.sqlite") as base:
        base.execute("UPDATE answers SET answer = CAST(? AS TEXT)", (torn,))
    calls = []
    solve = lambda: calls.append(1) or {"mapping": 3}  # noqa: E731
    assert Store(tmp_path).remember("question", solve) == {"mapping": 3}
    assert Store(tmp_path).remember("question", solve) == {"mapping": 3}
    assert len(calls) == 1


def test_an_answer_of_another_question_is_not_taken(tmp_path):
    store = Store(tmp_path)
    store.remember("first", lambda: 1)
    store.remember("second", lambda: 2)
    with sqlite3.connect(tmp_path / "results.sqlite") as base:
        base.execute("UPDATE answers SET answer = (SELECT answer FROM answers ORDER BY key LIMIT 1)")
    again = Store(tmp_path)
    assert (again.remember("first", lambda: 1), again.remember("second", lambda: 2)) == (1, 2)


@pytest.mark.parametrize("damage", ["random", "truncated", "flipped", "another table"])
def test_a_damaged_cache_file_is_replaced(damage, tmp_path):
    path = tmp_path / "results.sqlite"
    first = Store(tmp_path)
    for number in range(200):
        first.remember(number, lambda number=number: "x" * number)
    first.connection.close()
    data = path.read_bytes()
    if damage == "another table":
        path.unlink()
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE answers (other TEXT)")
    else:
        broken = {"random": os.urandom(5000), "truncated": data[: len(data) // 2], "flipped": data[:5000] + b"\xa5" * 3000 + data[8000:]}
        path.write_bytes(broken[damage])
    calls: list[int] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            store = Store(tmp_path)
            for number in range(200):
                assert store.remember(number, lambda number=number: calls.append(number) or "x" * number) == "x" * number
    assert len(said) == 1 or (damage == "flipped" and not said)  # flipped answers are solved again one by one
    assert all(issubclass(one.category, CacheWarning) for one in said)
    assert len(calls) <= 400
    last = len(calls)
    assert Store(tmp_path).remember(7, lambda: calls.append(7)) == "x" * 7
    assert len(calls) == last


def test_another_solver_is_another_question(tmp_path, monkeypatch):
    import rackmodel.store.remembered as remembered

    before = remembered.key_of("question")
    assert remembered.version() == remembered.version()
    copy = tmp_path / "package"
    (copy / "store").mkdir(parents=True)
    (copy / "nests").mkdir()
    (copy / "nests" / "dp.py").write_text("answer = 1\n")
    monkeypatch.setattr(remembered, "__file__", str(copy / "store" / "remembered.py"))
    keys = [before]
    for text in ("answer = 1\n", "answer = 2\n"):
        (copy / "nests" / "dp.py").write_text(text)
        remembered.version.cache_clear()
        keys.append(remembered.key_of("question"))
    remembered.version.cache_clear()
    assert len(set(keys)) == 3


# -- names that become files, pages and tables -------------------------------------------------------------------------


def test_names_in_yaml_never_leave_the_folder(tmp_path, run):
    first, same, second = (tmp_path / f"m{number}.yaml" for number in range(3))
    text = Path(__file__).parents[1].joinpath("mappers/data.yaml").read_text(encoding="utf-8")
    for path in (first, same):
        path.write_text(text.replace("mapper: data", 'mapper: "../../escaped"'), encoding="utf-8")
    second.write_text(text.replace("mapper: data", f'mapper: "{tmp_path}/absolute"'), encoding="utf-8")
    before = set(tmp_path.rglob("*"))
    out = tmp_path / "p" / "q" / "out"
    code, _, _ = run("compare", "rack_paper", "ffn", str(first), str(same), str(second), "--set", "accelerators=4", "-o", str(out))
    assert code == 0
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert new == set(out.iterdir())
    assert {"_.._escaped.mapping.yaml", "_.._escaped-2.mapping.yaml"} <= {path.name for path in new}


def test_charts_of_a_study_stay_in_the_folder_and_apart(tmp_path, run):
    path = tmp_path / "s.yaml"
    chart = "{title: t, x: accelerators, y: joules, series: [mapper]}"
    path.write_text(
        "study: s\narchitecture: rack_paper\nruns: [{workload: ffn, mapper: data, set: {accelerators: [2, 4]}}]\n"
        f'charts: {{"../../../escape2": {chart}, points: {chart}, Points: {chart}}}\n',
        encoding="utf-8",
    )
    out = tmp_path / "p" / "q" / "r" / "o"
    code, _, err = run("sweep", str(path), "-o", str(out))
    assert code == 0, err
    assert {p for p in tmp_path.rglob("*") if p.is_file()} - {path} == set(out.iterdir())
    assert {"_.._.._escape2.csv", "points.csv", "points-2.csv", "Points-3.csv"} <= {p.name for p in out.iterdir()}


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a b", "a_b"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("/", "unnamed"),
        ("con.x", "_con.x"),
        ("x\\y\0z", "x_y_z"),
        (".hidden", "hidden"),
    ],
)
def test_any_name_makes_a_plain_stem(name, stem):
    assert files.stem_of(name) == stem
    assert len(files.stem_of("ä" * 500).encode()) <= 120


def test_a_name_can_neither_end_nor_keep_open_the_script_of_a_page():
    name = "</script><img src=x onerror=alert(2)><!--<script>\u2028"
    page = html_page("t", [{"data": {"values": [{"x": name}]}, "mark": "bar", "encoding": {}}])
    tail = page[page.rindex("<script>") :]
    assert tail.count("<") == 4  # <script>, </script>, </body>, </html>: none of the name
    assert "\\u003c/script>\\u003cimg" in tail
    assert "\u2028" not in tail


def test_no_cell_is_a_formula_and_numbers_stay_numbers(tmp_path):
    heads, rows = ["name", "x"], [["=cmd|' /C calc'!A0", -1.5e-3], ["+a", "-3.2"], ["@x", "–"], ["\tq", 7], ["-b", None], ["ok", 0.1]]
    found = list(csv.reader(files.csv_text(heads, rows).splitlines()))
    assert [row[0] for row in found] == ["name", "'=cmd|' /C calc'!A0", "'+a", "'@x", "'\tq", "'-b", "ok"]
    assert [row[1] for row in found] == ["x", "-0.0015", "-3.2", "–", "7", "", "0.1"]


def test_an_operation_called_as_a_formula_is_a_word_in_the_ledger(tmp_path, run):
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD.replace("SIZE", "64").replace("{Y:", "{\"=cmd|' /C calc'!A0\":"), encoding="utf-8")
    code, _, err = run("search", "rack_paper", str(path), "data", "--set", "accelerators=4", "-o", str(tmp_path / "o"))
    assert code == 0, err
    text = (tmp_path / "o" / "ledger.csv").read_text(encoding="utf-8")
    assert ",'=cmd|" in text
    assert ",=cmd|" not in text


@pytest.mark.parametrize("secret", ["root:*:20228:0:::\n", "%TAG secret\n", "token: secret\n", "secret", "[secret]\n"])
def test_a_file_of_others_is_not_quoted(secret, tmp_path):
    (tmp_path / "shadow").write_text(secret, encoding="utf-8")
    for kind, text in (
        ("mapper", "mapper: m\nextends: ./shadow\n"),
        ("architecture", "architecture: a\ntree: {name: x, part: ./shadow}\n"),
    ):
        path = tmp_path / f"{kind}.yaml"
        path.write_text(text, encoding="utf-8")
        message = refused(check, path)
        assert "no file of rackmodel" in message
        assert "root:" not in message
        assert "secret" not in message


# -- all problems of a file --------------------------------------------------------------------------------------------


def test_all_problems_of_a_file_are_told_in_its_order(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("mapper: mk\naxes: {tp: {degree: al, plce: inner}}\nsplit: {tp: [f]}\nsolvr: auto\nuneven: true\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_mapper(path)
    assert [(one.where.line, one.where.column, one.path) for one in caught.value.problems] == [
        (2, 21, "axes.tp.degree"), (2, 25, "axes.tp.plce"), (4, 1, "solvr"), (5, 9, "uneven"),
    ]  # fmt: skip
    lines = str(caught.value).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        f"{path}:{one.where.line}:{one.where.column}: {one.path}: {one.message}" for one in caught.value.problems
    ]


@pytest.mark.parametrize("profile", ["serail", "./nowhere.yaml"])
def test_a_wrong_key_hides_no_wrong_profile(tmp_path, profile):
    path = tmp_path / "m.yaml"
    path.write_text(f"mapper: mk\nprofile: {profile}\naxes: {{tp: {{degree: all}}}}\nsplit: {{tp: [f]}}\nsolvr: auto\n", encoding="utf-8")
    for read in (read_mapper, check, lambda one: api.compare("rack_paper", "ffn", [str(one)])):
        with pytest.raises(InputError) as caught:
            read(path)
        assert [(one.where.line, one.where.column, one.path) for one in caught.value.problems] == [(2, 10, "profile"), (5, 1, "solvr")]
    assert ("did you mean 'serial'" in str(caught.value)) == (profile == "serail")


def test_a_wrong_profile_is_told_beside_a_wrong_key_of_a_mapping(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("mapping: mk\naxes: {tp: {degree: 2, stride: 1}}\nops: {}\nprofile: serail\nsolvr: auto\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_mapping(path)
    assert [one.path for one in caught.value.problems][-2:] == ["profile", "solvr"]


def test_sizes_operations_and_the_schema_are_told_together(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        "workload: two\nsizes: {m: 64, d: 32 ** 2}\nphases: [forwards]\n"
        "einsums:\n  A: H[m,d = X[m,d]\n  B: Y[m] = H[m]\nprecision: {state: 3 foo}\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError) as caught:
        read_workload(path)
    assert [one.path for one in caught.value.problems] == ["sizes.d", "phases.0", "einsums.A", "precision.state"]


def test_of_many_problems_twenty_are_told_and_the_rest_counted(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("mapper: m\n" + "".join(f"key{number}: 1\n" for number in range(50)), encoding="utf-8")
    lines = refused(read_mapper, path).splitlines()
    assert sum("unknown key" in line for line in lines) == 20
    assert lines[-1] == "and 30 more"


def test_check_gives_problems_as_fields(tmp_path, run):
    path = tmp_path / "m.yaml"
    path.write_text("mapper: m\nsolvr: auto\nuneven: cail\n", encoding="utf-8")
    code, out, _ = run("check", str(path), "--json")
    problems = json.loads(out)["files"][0]["problems"]
    assert code == 2
    assert [(one["line"], one["column"], one["path"], one["nearest"]) for one in problems] == [
        (2, 1, "solvr", "solver"),
        (3, 9, "uneven", "ceil"),
    ]


# -- messages for newcomers --------------------------------------------------------------------------------------------


def test_what_newcomers_write_is_led_to_the_key(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "architecture: one\ntree: {name: gpu, accelerator: true, memory: {size: 1 GB}, compute: {peak: 1 TFLOP/s}}\n", encoding="utf-8"
    )
    message = refused(read_architecture, path)
    assert "did you mean 'capacity'?" in message
    assert "did you mean 'rate'?" in message


def test_the_kind_that_is_not_first_is_said(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("sizes: {m: 4}\nworkload: w\n", encoding="utf-8")
    assert refused(check, path) == f"{path}:1:1: begins with 'sizes', which is no kind of file: put 'workload' first (it is at line 2)"


def test_a_fault_of_the_machine_points_at_its_file_and_an_option_at_none(tmp_path, run):
    machine = tmp_path / "a.yaml"
    machine.write_text("architecture: one\ntree: {name: gpu, accelerator: true, compute: {rate: 1 TFLOP/s}}\n", encoding="utf-8")
    code, _, err = run("search", str(machine), "gemm", "data", "--minimize", "carbon")
    assert code == 2
    assert err.startswith(f"{machine}:1:1: site: ")
    code, _, err = run("search", "rack_paper", "gemm", "data", "--pareto", "colour")
    assert code == 2
    assert err.startswith("--pareto: ")


def test_a_long_list_of_known_words_is_wrapped_with_the_hint_on_a_line_of_its_own(run):
    code, _, err = run("show", "rack_papr")
    assert code == 2
    assert err.splitlines()[-1] == "  did you mean 'rack_paper'?"
    assert max(map(len, err.splitlines())) <= 110


def test_words_of_other_tools_lead_to_ours(run, tmp_path):
    asked = {
        ("dgx_h100", "gpt", "megatron", "--set", "batch=1024"): "did you mean 'b'?",
        ("rack_paper", "gemm", "data", "--set", "network.bandwidth=1 GB/s"): "  known: system.network.bandwidth, rack.network.bandwidth",
        ("dgx_h100:256", "gpt", "megatron"): "here the number of dgx_h100's accelerators is --set accelerators=256",
    }
    for words, hint in asked.items():
        code, _, err = run("search", *words)
        assert (code, hint in err) == (2, True), err
    code, _, err = run("carbon", "tiny", "gemm", "data")
    assert (code, "tiny.yaml:" in err) == (2, True), err


def test_a_damaged_cache_is_said_on_a_line_of_its_own(tmp_path):
    (tmp_path / "results.sqlite").write_bytes(b"no database" * 1000)
    words = ("search", "glb_pe", "gemm", "loopnest", "--set", "m=16", "--set", "k=16", "--set", "n=16")
    env = {"RACKMODEL_CACHE": str(tmp_path)}
    first, second = (_spawn(*words, env=env, capture_output=True) for _ in range(2))
    assert (first.returncode, len(first.stderr.splitlines())) == (0, 1)
    assert b"results.sqlite: what was remembered there was damaged" in first.stderr
    assert (second.returncode, second.stderr) == (0, b"")


def test_all_tensors_that_are_wrong_are_told(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        WORKLOAD.replace("SIZE", "4") + "tensors:\n  X: {precision: 0 bits}\n  W: {density: 2}\n  Y: {kind: input}\n  Z: {}\n",
        encoding="utf-8",
    )
    with pytest.raises(InputError) as caught:
        read_workload(path)
    assert [(one.where.line, one.path) for one in caught.value.problems] == [
        (5, "tensors.X.precision"), (6, "tensors.W.density"), (7, "tensors.Y"), (8, "tensors.Z"),
    ]  # fmt: skip


def test_check_says_whether_the_files_of_one_question_fit_together(run) -> None:
    code, out, err = run("check", "dgx_h100", "gpt3_175b", "megatron")
    assert (code, out.splitlines()[-1], err) == (0, "together: ok, 8,604 mappings on 39 meshes", "")
    code, out, err = run("check", "dgx_h100", "unet3d", "megatron")
    assert (code, out.splitlines()) == (2, ["dgx_h100: architecture ok", "unet3d: workload ok", "megatron: mapper ok"])
    assert "megatron.yaml:10:13: split.dp: workload unet3d has none of the indices b" in err
    code, out, _ = run("check", "dgx_h100", "unet3d", "megatron", "--json")
    told = json.loads(out)["together"]
    assert (code, told["ok"], [one["path"] for one in told["problems"]]) == (2, False, ["split.dp", "split.tp"])


def test_files_of_several_questions_are_checked_one_by_one(run) -> None:
    code, out, _ = run("check", "dgx_h100", "unet3d", "megatron", "data")
    assert (code, len(out.splitlines())) == (0, 4)
