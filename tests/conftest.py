"""Fixtures that several files share: a command run in this process, and one on the fixed mapper of the training tests."""

from __future__ import annotations

import gc
import sys
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from rackmodel.cli import main
from rackmodel.cycles import RARELY

settings.register_profile("rackmodel", deadline=None)  # a busy machine is no failure
settings.load_profile("rackmodel")

typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]  # as a process has them: built once


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays, and cycles are looked for as rarely as in a command."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(RARELY, *gc.get_threshold()[1:])


FIXED = """mapper: fixed
axes: {pp: {degree: 8, stages: layers}, dp: {degree: 2}, tp: {degree: 4, place: inner}}
split: {dp: [b], tp: [h, f, v, s]}
micro_batch: 1
recompute: full
homes: {weights: {axes: [dp], state: shard}}
"""


@pytest.fixture
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loop nest is searched, whatever was searched before."""
    monkeypatch.setenv("RACKMODEL_CACHE", "off")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run a command; returns (exit code, stdout, stderr)."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rackmodel", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out = capsys.readouterr()
        return int(left.value.code or 0), out.out, out.err

    return call


@pytest.fixture
def shell(run, tmp_path: Path):
    """Run a command on the fixed mapper; returns (exit code, stdout, stderr)."""
    (tmp_path / "fixed.yaml").write_text(FIXED, encoding="utf-8")

    def call(command: str, *words: str) -> tuple[int, str, str]:
        third = str(tmp_path / ("fixed.yaml" if command == "search" else "mapping.yaml"))
        width = ("--set", "accelerators=64") if command == "search" else ()
        return run(command, "dgx_a100", "gpt", third, "--set", "b=64", *width, *words)

    return call
