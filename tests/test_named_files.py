"""Files that a machine or a setting names by a path: they count as they are when the question is asked, wherever it is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import rackmodel as rm
from rackmodel.errors import InputError, OutputError
from rackmodel.inputs import check, read_architecture
from rackmodel.inputs.shared import SharedInputs
from rackmodel.results import carbon_of
from rackmodel.studies.batch import Batch, batches, key_of, solve_batch
from rackmodel.studies.plan import Ask
from tests.commands import invoke

MACHINE = """
architecture: own
carbon: tables
site: {grid: here, pue: 1}
tree:
  name: node
  network: {topology: switch, bandwidth: 100 GB/s, latency: 1 us, energy: 1 pJ/bit, calls: measured}
  children:
  - name: chip
    count: 4
    accelerator: true
    memory: {capacity: 80 GB, bandwidth: 1 TB/s}
    compute: {rate: 100 TFLOP/s, energy: 1 pJ/FLOP}
"""
CALLS = """
collectives: measured
extends: base
"""
BASE = """
collectives: base
calls:
  nccl:
  - {kind: all_gather, mode: graph, releases: ['1'], members: {'4': {start: %s, rate: 50 GB/s}}, source: made up}
"""
TABLES = "carbon: tables\nentries: {here: {intensity: %s g/kWh, source: made up}}\n"
PROFILE = "profile: own\nextends: ideal\ncollectives: {library: nccl, mode: graph}\nhost: {launch: %s}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with own calls, in a file that another extends, and an own carbon table; a profile that asks for the calls."""
    (tmp_path / "machine.yaml").write_text(MACHINE, encoding="utf-8")
    (tmp_path / "measured.yaml").write_text(CALLS, encoding="utf-8")
    write(tmp_path, start="1 s", intensity="100", launch="0 s")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, **said: str) -> None:
    """Say how long a call takes to start, what a kWh emits, how long a launch takes."""
    for name, text, file in (("start", BASE, "base"), ("intensity", TABLES, "tables"), ("launch", PROFILE, "profile")):
        if name in said:
            (folder / f"{file}.yaml").write_text(text % said[name], encoding="utf-8")


def swept(**more: str) -> float:
    """Seconds of the one point of a sweep."""
    return float(rm.sweep("machine.yaml", "ffn", "tensor", set=more, profile=None if more else "./profile.yaml").rows[0]["latency_s"])


def searched(machine: str | Path = "machine.yaml") -> float:
    """Seconds of the search alone."""
    return rm.search(str(machine), "ffn", "tensor", profile="./profile.yaml").result.latency_s


def test_calls_that_were_measured_anew_count_in_the_same_session(folder: Path) -> None:
    """The file was remembered by its path: the second search, and its point of a study under a new key, had the old seconds."""
    first, point = searched(), swept()
    write(folder, start="3 s")
    assert point == first
    assert searched() > first + 1.9
    assert swept() == searched()


def test_a_carbon_table_that_was_written_anew_counts_in_the_same_session(folder: Path) -> None:
    first = carbon_of(rm.search("machine.yaml", "ffn", "tensor").result)
    write(folder, intensity="300")
    second = carbon_of(rm.search("machine.yaml", "ffn", "tensor").result)
    assert first is not None
    assert second is not None
    assert second.use_g.mid == pytest.approx(3 * first.use_g.mid)


def test_a_profile_that_a_setting_names_counts_as_it_is(folder: Path) -> None:
    """A point's key knew that the file had changed, and who solved it did not."""
    setting = {"mapper.profile": "./profile.yaml"}
    first = swept(**setting)
    write(folder, launch="7 s")
    assert swept(**setting) == searched() > first + 6


def test_own_files_are_found_beside_the_machine_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`calls: measured` was found by `check`, and by no search."""
    here = searched()
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "profile.yaml").write_text((folder / "profile.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(folder / "elsewhere")
    assert searched("../machine.yaml") == here


def test_what_is_wrong_with_an_own_file_is_told_of_the_machine_with_its_place(folder: Path) -> None:
    """`check` of the machine said ok, and the search refused it."""
    write(folder, start="1 furlong")
    with pytest.raises(InputError, match=r"base\.yaml:5:\d+: calls\.nccl\.0\.members\.4\.start"):
        check("machine.yaml")
    with pytest.raises(
        InputError, match=r"--set node\.network\.calls=nowhere: tree\.node\.network\.calls: no collectives called 'nowhere'"
    ):
        read_architecture("machine.yaml", ["node.network.calls=nowhere"])


# -- elsewhere ---------------------------------------------------------------------------------------------------------------


def sent(ask: Ask) -> list[Batch]:
    """What another computer is given to solve a point."""
    shared = SharedInputs()
    known = key_of(shared, ask)
    return batches({known.key: ask}, {known.key: known.started}, shared, ["latency_s"], 1)


def ask_of(settings: Mapping[str, str | int | float]) -> Ask:
    return Ask(0, "main", "machine.yaml", "ffn", "tensor", settings)


def test_a_batch_has_the_content_of_all_files(folder: Path) -> None:
    """A worker without them wrote into the study that the point is refused."""
    asks = [ask_of({"mapper.profile": "./profile.yaml"}), ask_of({"accelerators": 4})]
    (batch, *_), (plain, *_) = map(sent, asks)
    expected = searched()
    for name in ("machine", "measured", "base", "tables", "profile"):
        (folder / f"{name}.yaml").unlink()
    (point,) = solve_batch(batch)
    assert point.figures["latency_s"] == expected
    assert json.loads(solve_batch(plain)[0].text)["status"] == "ok"


def test_a_file_of_a_setting_that_is_another_elsewhere_ends_the_study(folder: Path) -> None:
    (batch,) = sent(ask_of({"carbon": "./tables.yaml"}))
    write(folder, intensity="300")
    with pytest.raises(OutputError, match=r"carbon=\./tables\.yaml: a setting names a file that changed"):
        solve_batch(batch)


def test_a_folder_or_a_loop_in_the_place_of_a_study_s_file_is_said(tmp_path: Path) -> None:
    """Both ended in a traceback."""
    for name in ("folder", "loop"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "study.sqlite").mkdir()
    (tmp_path / "loop" / "study.sqlite").symlink_to("study.sqlite")
    for name in ("folder", "loop"):
        done = invoke(["sweep", "rack_paper", "ffn", "data", "-o", str(tmp_path / name)])
        assert isinstance(done.exception, OutputError)
        assert "cannot be opened there" in str(done.exception)
