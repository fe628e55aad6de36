"""The tutorial: its commands run in their order, in an empty folder, and print what it says they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import invoke

PAGE = Path(__file__).parents[1] / "docs/tutorial.md"


def steps() -> list[tuple[list[str], list[str]]]:
    """(commands, words that one of them prints or writes) of each block."""
    found = []
    for block, after in re.findall(r"```\n(.*?)```\n(.*?)(?=\n```|\Z)", PAGE.read_text(encoding="utf-8"), re.S):
        found.append((block.strip().splitlines(), re.findall(r"^> (.*)$", after, re.M)))
    return found


def test_every_step_of_the_tutorial_runs_and_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = steps()
    assert sum(len(commands) for commands, _ in blocks) >= 8
    for commands, words in blocks:
        said = ""
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "rackmodel"
            ran = invoke(arguments)
            assert ran.exit_code == 0, f"{command}: {ran.output}"
            said += ran.output
        for word in words:
            assert word in " ".join(said.split()), word
    assert (tmp_path / "figures" / "roofline-column.png").stat().st_size > 2000
