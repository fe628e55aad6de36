"""Sweeps: planned as the file says, resumed however they ended, the same whoever solves them; nothing lost, nothing twice."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rackmodel
import rackmodel as rm
from rackmodel import api, processes
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError, OutputError
from rackmodel.inputs import library_path, read_study
from rackmodel.inputs.shared import SharedInputs
from rackmodel.store.study_file import StudyFile
from rackmodel.studies import batch, workers
from rackmodel.studies.answer import answer_of, result_from, to_text
from rackmodel.studies.ask import FILE
from rackmodel.studies.batch import key_of, read_point
from rackmodel.studies.plan import Ask, plan_points, read_sets
from rackmodel.studies.run import Points, Sweep
from rackmodel.studies.study import StudySpec
from tests.commands import invoke
from tests.sweeps import command, dump, killed, points_done, run, run_study, study_text


def study(**run: Any) -> StudySpec:
    """A study of one run."""
    return StudySpec.model_validate({"study": "s", "architecture": "rack_paper", "workload": "ffn", "mapper": "data", "runs": [run]})


# -- the plan -----------------------------------------------------------------------------------------------------------------


def values(name: str, **run: Any) -> list[Any]:
    return [ask.settings[name] for ask in plan_points(study(**run))]


def test_ranges_are_spaced_and_keep_their_unit() -> None:
    assert values("b", set={"b": {"linspace": [4, 16, 4]}}) == [4, 8, 12, 16]
    assert values("b", set={"b": {"logspace": [1, 1024, 11]}}) == [2**n for n in range(11)]
    assert values("b", set={"b": {"linspace": ["1 TB/s", "2 TB/s", 3]}}) == ["1 TB/s", "1.5 TB/s", "2 TB/s"]
    assert values("b", set={"b": {"linspace": [1, 4, 7], "whole": True}}) == [1, 2, 3, 4]


def test_zipped_lists_go_together_and_cross_with_the_rest() -> None:
    run = {"set": {"accelerators": [4, 8], "b": [16, 16], "s": [1, 2]}, "zip": [["accelerators", "b"]]}
    asked = [tuple(ask.settings.values()) for ask in plan_points(study(**run))]
    assert asked == [(4, 16, 1), (4, 16, 2), (8, 16, 1), (8, 16, 2)]
    inputs = {"workload": ["ffn", "attention"], "mapper": ["data", "tensor"], "zip": [["workload", "mapper"]]}
    assert [(ask.workload, ask.mapper) for ask in plan_points(study(**inputs))] == [("ffn", "data"), ("attention", "tensor")]


def test_a_latin_hypercube_uses_every_slice_once_and_is_the_same_for_the_same_seed() -> None:
    run = {"set": {"x": {"uniform": [0, 10]}, "y": {"loguniform": ["1 GB/s", "1000 GB/s"]}, "k": 3}, "samples": 10}
    asks = plan_points(study(**run))
    assert sorted(int(ask.settings["x"]) for ask in asks) == list(range(10))
    assert all(1 <= float(str(ask.settings["y"]).split()[0]) <= 1000 and ask.settings["k"] == 3 for ask in asks)
    assert asks == plan_points(study(**run)) != plan_points(study(**run, seed=1))
    assert asks[0].settings == {"x": 9.58338203946, "y": "14.924621159 GB/s", "k": 3}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"set": {"x": {"linspace": [1, 2, 3], "logspace": [1, 2, 3]}}}, "want one of"),
        ({"set": {"x": {"uniform": [1, 2]}}}, "samples"),
        ({"samples": 4}, "no setting is uniform"),
    ],
)
def test_what_contradicts_itself_is_refused_when_it_is_read(run: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        study(**run)


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ({"set": {"x": {"linspace": ["1 GB/s", "2 TB/s", 3]}}}, "runs.0.set.x"),
        ({"set": {"x": {"logspace": [0, 2, 3]}}}, "runs.0.set.x"),
        ({"set": {"x": []}}, "runs.0.set.x"),
        ({"set": {"x": [1, 2], "y": [1]}, "zip": [["x", "y"]]}, "runs.0.zip"),
        ({"set": {"x": [1, 2]}, "zip": [["x", "z"]]}, "runs.0.zip"),
        ({"set": {"workload": "ffn"}}, "runs.0.set.workload"),
        ({"set": {"x": [4, 8, 4]}}, "runs.0.set.x"),
        ({"workload": ["ffn", "attention", "ffn"]}, "runs.0.workload"),
        ({"minimize": ["energy", "energy"]}, "runs.0.minimize"),
        ({"set": {"x": [1, 2, 1], "y": [3, 4, 3]}, "zip": [["x", "y"]]}, "runs.0.zip"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_at_its_place(run: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as problem:
        plan_points(study(**run))
    assert problem.value.path == path


def test_settings_of_the_command_line() -> None:
    found = read_sets(["accelerators=4,8, 16", "phases=[forward, backward]", "gpu.memory.bandwidth=4 TB/s", "b=linspace(8, 16, 2)"])
    assert found["accelerators"] == [4, 8, 16]
    assert (found["phases"], found["gpu.memory.bandwidth"]) == ("[forward, backward]", "4 TB/s")
    assert [ask.settings["b"] for ask in plan_points(study(), {"b": found["b"]})] == [8, 16]
    for wrong in ("accelerators", "accelerators=", "a=4,,8", "a=4,8,4.0", "a=linspace(1, 2)"):
        with pytest.raises(InputError):
            read_sets([wrong])


# -- answers --------------------------------------------------------------------------------------------------------------------


def ask_of(mapper: str = "tensor", **settings: Any) -> Ask:
    return Ask(0, "main", "rack_paper", "ffn", mapper, settings)


@pytest.mark.parametrize(
    ("architecture", "workload", "mapper", "sizes"),
    [
        ("rack_paper", "ffn", "pipeline_tensor", {"accelerators": 8}),
        ("dgx_h100", "llama3_8b", "megatron", {"accelerators": 8, "b": 8}),  # an accelerator may hold less than it has
    ],
)
def test_an_answer_read_back_is_the_search_s_own_result_to_the_last_digit(
    architecture: str, workload: str, mapper: str, sizes: dict[str, Any]
) -> None:
    import json

    shared, ask = SharedInputs(), Ask(0, "main", architecture, workload, mapper, sizes)
    answer, _ = answer_of(lambda: read_point(shared, ask), None)
    found = result_from(json.loads(to_text(answer)), read_point(shared, ask).inputs().architecture)
    alone = api.search(architecture, workload, mapper, sets=[f"{name}={value}" for name, value in sizes.items()]).result
    assert found.ledger == alone.ledger
    assert found.mapping == alone.mapping
    assert found.memory == alone.memory
    plain, own = found.to_dict(), alone.to_dict()
    assert {**plain, "certificate": 0} == {**own, "certificate": 0}
    assert {**plain["certificate"], "seconds": 0} == {**own["certificate"], "seconds": 0}


def test_a_key_is_the_content_of_the_inputs() -> None:
    shared = SharedInputs()

    def key(ask: Ask) -> str:
        return key_of(shared, ask)[0]

    plain = key(ask_of(accelerators=8))
    assert plain == key(ask_of(**{"arch.accelerators": 8})) == key_of(SharedInputs(), ask_of(accelerators=8))[0]
    assert key(ask_of(m=32768)) == key(ask_of(**{"workload.sizes.m": 32768}))
    others = [ask_of(accelerators=4), ask_of("data", accelerators=8), ask_of(accelerators=8, **{"profile.overlap.contention": 0.5})]
    others.append(Ask(0, "main", "rack_paper", "ffn", "tensor", {"accelerators": 8}, minimize="energy"))
    assert len({plain, *map(key, others)}) == 5


def test_points_that_share_their_work_say_what_each_says_alone() -> None:
    """Machines inside and above, meshes and workloads mixed, in an order that nobody chose."""
    energies, bandwidths = ["4 pJ/bit", "5 pJ/bit"], ["50 GB/s", "200 GB/s"]
    sets = {"accelerators": [4, 8], "gpu.memory.read_energy": energies, "rack.network.bandwidth": bandwidths}
    spec = study(workload=["ffn", "attention"], mapper="tensor", set=sets)
    asks, read, priced = plan_points(spec), SharedInputs(), Shared()
    random.Random(9).shuffle(asks)
    together = [to_text(answer_of(lambda ask=ask: read_point(read, ask), None, priced)[0]) for ask in asks]  # type: ignore[misc]
    assert len(set(together)) == len(asks) == 16
    for place in range(0, len(asks), 4):
        alone, _ = answer_of(lambda ask=asks[place]: read_point(SharedInputs(), ask), None)  # type: ignore[misc]
        assert to_text(alone) == together[place], asks[place].words


def test_points_of_a_machine_are_solved_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[str] = []
    real = batch.solve_batch

    def noted(one: batch.Batch) -> list[batch.SolvedPoint]:
        solved.extend(str(ask.settings["accelerators"]) for ask in one.asks.values())
        return real(one)

    monkeypatch.setattr(workers, "solve_batch", noted)
    points = run_study(study(mapper=["data", "tensor"], set={"accelerators": [4, 8]}))
    assert solved == ["4", "4", "8", "8"]
    assert [point.mapper for point in points] == ["data", "data", "tensor", "tensor"]


def test_points_that_are_alike_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[str] = []
    real = batch.answer_of
    monkeypatch.setattr(batch, "answer_of", lambda read, *more: solved.append("") or real(read, *more))
    spec = study(set={"accelerators": [4, 8]})
    twice = spec.model_copy(update={"runs": [*spec.runs, spec.runs[0].model_copy(update={"name": "again"})]})
    points = run_study(twice)
    assert len(points.points) == 4
    assert len(solved) == 2
    assert points.one(run="again", accelerators=8).latency_s == points.one(run="main", accelerators=8).latency_s


def test_a_point_that_does_not_fit_is_a_row_and_the_study_goes_on() -> None:
    spec = study(
        mapper=["data", "pipeline_tensor"], workload="attention", set={"accelerators": [4, 8, 12], "gpu.memory.capacity": ["80 GB", "1 GB"]}
    )
    points = run_study(spec)
    assert len(points.points) == 12
    small = points.where(mapper="data", accelerators=4, **{"gpu.memory.capacity": "1 GB"}).points[0]
    assert small.status == "infeasible: memory"
    assert small.row["shortfall"] == small.row["need"] - small.row["have"] > 0
    with pytest.raises(InfeasibleError, match="attention on rack_paper by data, accelerators=4"):
        _ = small.result
    refused = points.where(mapper="pipeline_tensor", accelerators=8, **{"gpu.memory.capacity": "80 GB"}).points[0]
    assert refused.status == "refused"
    assert "6 pipeline stages" in refused.row["message"]
    assert points.one(mapper="data", accelerators=4, **{"gpu.memory.capacity": "80 GB"}).latency_s > 0


def test_a_word_that_is_wrong_in_every_point_ends_the_study_and_names_the_first() -> None:
    with pytest.raises(InputError, match=r"acelerators.*ffn on rack_paper by data, acelerators=4"):
        run_study(study(set={"acelerators": [4, 8]}))


# -- the file --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "swept.yaml"
    path.write_text(study_text(6), encoding="utf-8")
    return path


def swept(spec: Path, folder: Path, who: workers.Workers | None = None) -> Points:
    folder.mkdir(exist_ok=True)
    with StudyFile(folder / FILE) as file:
        return Sweep(read_study(spec), file).run(who or workers.Alone())


class Stops:
    """Solves a number of batches, then is interrupted."""

    count = 1

    def __init__(self, after: int) -> None:
        self.after = after

    def solve(self, batches: Any) -> Any:
        for number, one in enumerate(batches):
            if number == self.after:
                raise KeyboardInterrupt
            yield batch.solve_batch(one)


def test_an_interrupted_sweep_keeps_what_is_done_and_never_solves_it_again(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(spec, tmp_path / "whole")
    solved: list[str] = []
    real = batch.answer_of
    monkeypatch.setattr(batch, "answer_of", lambda read, *more: solved.append("") or real(read, *more))
    for after in (1, 2, 1):
        with pytest.raises(KeyboardInterrupt):
            swept(spec, tmp_path / "parts", Stops(after))
        assert points_done(tmp_path / "parts") == len(solved)
    swept(spec, tmp_path / "parts")
    assert len(solved) == 24
    assert dump(tmp_path / "parts") == dump(tmp_path / "whole")


def test_a_study_that_grew_solves_only_what_is_new(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(spec, tmp_path / "out")
    solved: list[str] = []
    real = batch.answer_of
    monkeypatch.setattr(batch, "answer_of", lambda read, *more: solved.append("") or real(read, *more))
    spec.write_text(spec.read_text(encoding="utf-8").replace("[4, 8]", "[2, 4, 8]") + "columns: [mfu.x]\n", encoding="utf-8")
    with pytest.raises(InputError):
        swept(spec, tmp_path / "out")
    spec.write_text(spec.read_text(encoding="utf-8").replace("mfu.x", "'joules:component=network'"), encoding="utf-8")
    points = swept(spec, tmp_path / "out")
    assert len(solved) == 12
    rows = points.rows
    assert len(rows) == 36
    assert all(row["joules:component=network"] > 0 for row in rows)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signal 9 here")
def test_a_killed_sweep_goes_on_and_its_file_is_that_of_one_that_was_not(spec: Path, tmp_path: Path) -> None:
    swept(spec, tmp_path / "whole")
    for number, wait in enumerate((0.0, 0.3)):
        killed(spec, tmp_path / "killed", 1 + 6 * number, wait, "--workers", "1")
    done = run(spec, tmp_path / "killed", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert dump(tmp_path / "killed") == dump(tmp_path / "whole")


def test_the_file_is_plain_for_any_tool(spec: Path, tmp_path: Path) -> None:
    points = rm.sweep(spec, output=tmp_path / "out")
    with sqlite3.connect(tmp_path / "out" / FILE) as connection:
        rows = connection.execute('SELECT accelerators, "system.network.bandwidth", latency_s, certificate FROM points WHERE number = 1')
        assert rows.fetchone() == (4, "43.5275281648 GB/s", points.points[1].result.latency_s, "proven")
        total = connection.execute("SELECT SUM(joules), SUM(exposed_seconds) FROM ledger WHERE number = 1").fetchone()
        assert total == pytest.approx((points.points[1].result.energy_j, points.points[1].result.latency_s))
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="something else"):
        StudyFile(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_said_to_be_and_left_alone(spec: Path, tmp_path: Path) -> None:
    swept(spec, tmp_path / "out")
    path = tmp_path / "out" / FILE
    whole = path.read_bytes()
    for broken in (b"no database at all " * 100, whole[:4096] + b"\xff" * 8192 + whole[12288:]):
        path.write_bytes(broken)
        with pytest.raises(OutputError, match="damaged"):
            swept(spec, tmp_path / "out")
        assert path.read_bytes() == broken


DAMAGE = (
    "UPDATE answers SET answer = replace(answer, '\"latency_s\": ', '\"latency_s\": 9')",
    "UPDATE answers SET answer = substr(answer, 1, 200)",
    "UPDATE answers SET answer = '[1]'; DELETE FROM points",
    "UPDATE points SET latency_s = 2 * latency_s WHERE number = 3",
    "UPDATE points SET latency_s = 'x'; UPDATE points SET status = 'weird' WHERE number = 1",
    "DELETE FROM answers WHERE key IN (SELECT key FROM points WHERE number < 4)",
    "DELETE FROM written",
    "DROP TABLE answers",
)


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_as_it_was_written_is_solved_again(spec: Path, tmp_path: Path, damage: str) -> None:
    whole = swept(spec, tmp_path / "whole")
    swept(spec, tmp_path / "out")
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / FILE)) as connection:
        connection.executescript(damage)
    again = swept(spec, tmp_path / "out")
    assert dump(tmp_path / "out") == dump(tmp_path / "whole")
    assert again.rows == whole.rows


def test_a_point_that_is_called_otherwise_now_has_its_new_name(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine in a file of one's own is the same question, by another name: nothing is solved, every row says it."""
    swept(spec, tmp_path / "out")
    mine = tmp_path / "mine.yaml"
    mine.write_text(library_path("architecture", "rack_paper").read_text(encoding="utf-8"), encoding="utf-8")
    spec.write_text(spec.read_text(encoding="utf-8").replace("architecture: rack_paper", f"architecture: {mine}"), encoding="utf-8")
    monkeypatch.setattr(batch, "answer_of", None)
    assert {row["architecture"] for row in swept(spec, tmp_path / "out").rows} == {str(mine)}


def test_what_decides_an_answer_is_part_of_the_version() -> None:
    """Every module that an answer's or a row's is made with, but those that only hold, tell or watch."""
    package = Path(rackmodel.__file__).parent
    files = {".".join(path.relative_to(package).with_suffix("").parts): path for path in package.rglob("*.py")}
    files |= {name.removesuffix(".__init__"): path for name, path in files.items()}
    counted = {path for pattern in batch.SOURCES for path in package.glob(pattern)}
    todo, seen = ["api", "studies.answer", "studies.metrics"], set[str]()
    while todo:
        name = todo.pop()
        seen.add(name)
        for node in ast.walk(ast.parse(files[name].read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rackmodel."):
                of = (node.module or "").removeprefix("rackmodel.")
                todo += [one for one in (of, *(f"{of}.{alias.name}" for alias in node.names)) if one in files and one not in seen]
    left = {"cycles", "watch", "store.remembered", "report.files", "report.finite", "version"}  # (the number of the version is counted)
    assert {name for name in seen if files[name] not in counted and files[name].stat().st_size} == left


def test_two_sweeps_do_not_write_one_file(spec: Path, tmp_path: Path) -> None:
    with StudyFile(tmp_path / FILE), pytest.raises(OutputError, match=f"another sweep is writing to it .process {os.getpid()}"):
        StudyFile(tmp_path / FILE)
    StudyFile(tmp_path / FILE).close()


def test_a_full_disk_keeps_what_is_done(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with StudyFile(tmp_path / "out" / FILE) as file:
        file.connection.execute("PRAGMA max_page_count = 40")
        with pytest.raises(OutputError, match="the disk is full; points that were written are kept"):
            Sweep(read_study(spec), file).run(workers.Alone())
    swept(spec, tmp_path / "whole")
    swept(spec, tmp_path / "out")
    assert dump(tmp_path / "out") == dump(tmp_path / "whole")


def test_ctrl_c_is_130_and_says_that_the_same_command_goes_on(spec: Path, tmp_path: Path) -> None:
    spec.write_text(study_text(400), encoding="utf-8")
    process = subprocess.Popen(command(spec, tmp_path / "out", "--workers", "2"), stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + 120
    while points_done(tmp_path / "out") < 1 and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    assert 0 < points_done(tmp_path / "out") < 1600


# -- who solves --------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked here")
def test_no_more_processes_are_begun_than_there_are_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, pool = [], processes._pool

    def noted(count: int) -> Any:
        begun.append(count)
        return pool(count)

    monkeypatch.setattr(processes, "_pool", noted)
    found = sorted(processes.each(1_000, abs, [-1, -2, -3], lambda task: OutputError(f"died over {task}")))
    assert (found, begun) == ([1, 2, 3], [3])
    asked = invoke(["sweep", "rack_paper", "ffn", "data", "--workers", "1000000"])
    assert str(asked.exception) == "--workers: want a whole number from 1 to 1024"


def deadly(one: batch.Batch) -> Any:
    """Solves a batch; the first process that is asked to dies."""
    marker = Path(os.environ["DIED"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return batch.solve_batch(one)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked here")
def test_local_processes_give_the_same_file_and_a_killed_one_loses_nothing(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(spec, tmp_path / "serial")
    pool = workers.Processes(2)
    swept(spec, tmp_path / "two", pool)
    assert dump(tmp_path / "two") == dump(tmp_path / "serial")
    marker = tmp_path / "died"

    monkeypatch.setattr(workers, "solve_batch", deadly)  # (a forked process has it too)
    monkeypatch.setenv("DIED", str(marker))
    swept(spec, tmp_path / "killed", workers.Processes(2))
    assert marker.exists()
    assert dump(tmp_path / "killed") == dump(tmp_path / "serial")


def half_written(one: batch.Batch) -> Any:
    """Solves a batch; the first process that is asked to dies with half an answer in the pipe, which it has for itself then."""
    marker = Path(os.environ["DIED"])
    if not marker.exists():
        marker.touch()
        queue = sys._getframe(1).f_locals["result_queue"]
        queue._wlock.acquire()
        os.write(queue._writer.fileno(), struct.pack("!i", 1_000_000) + b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    return batch.solve_batch(one)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked here")
def test_a_worker_that_is_killed_while_it_answers_holds_nobody_up(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool's reader waited for the other half for good: a sweep stood still, and one that was interrupted then did not end."""
    swept(spec, tmp_path / "serial")
    monkeypatch.setattr(workers, "solve_batch", half_written)
    monkeypatch.setattr(processes, "LOOK_S", 0.5)
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    before = threading.active_count()
    swept(spec, tmp_path / "killed", workers.Processes(2))
    assert dump(tmp_path / "killed") == dump(tmp_path / "serial")
    assert threading.active_count() <= before  # a thread of the pool that is left holds up the interpreter's end


def test_a_worker_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch.Batch({}, (), {}, version="another")
    with pytest.raises(OutputError, match="another version"):
        batch.solve_batch(one)


# -- python ------------------------------------------------------------------------------------------------------------------------


def test_rm_sweep_gives_frames() -> None:
    swept = rm.sweep(
        "rack_paper", "ffn", ["data", "tensor"], set={"accelerators": [4, 8], "gpu.memory.capacity": ["80 GB", "1 kB"]}, columns=["mfu"]
    )
    frame = swept.to_frame()
    assert list(frame.status) == ["ok", "infeasible: memory"] * 4
    assert frame.latency_s.notna().sum() == 4
    assert swept.ledger().groupby("number").exposed_seconds.sum()[0] == pytest.approx(frame.latency_s[0])
    assert swept.points[0].result.ledger.total() == frame.energy_j[0]


def test_what_is_wrong_is_told_before_a_point_is_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "run", lambda *_: pytest.fail("a point was solved"))
    said = invoke(["sweep", "rack_paper,rack_papr", "ffn", "data,tenser", "--set", "accelerators=4,8"])
    assert isinstance(said.exception, InputError)
    assert "did you mean 'tensor'?" in str(said.exception)
    assert "did you mean 'rack_paper'?" in str(said.exception)
    study = tmp_path / "s.yaml"
    runs = "study: s\narchitecture: rack_paper\nworkload: ffn\nruns: [{mapper: [data, tensor], set: {accelerators: [4, 8]}}]\n"
    for chart, words in (("x: accelerators, y: jouls", "'joules'"), ("x: acelerators, y: joules", "'accelerators'")):
        study.write_text(f"{runs}charts: {{a: {{{chart}, series: [mapper]}}}}\n")
        said = invoke(["sweep", str(study)])
        assert isinstance(said.exception, InputError)
        assert str(said.exception).startswith(f"{study}:5:")
        assert f"did you mean {words}" in str(said.exception)
