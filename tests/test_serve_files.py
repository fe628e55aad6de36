"""What `serve -o` writes is what it says: the same figures in the document, the tables and the picture."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest

from rackmodel.errors import OutputError
from tests.commands import invoke

ASKED = (
    "serve",
    "dgx_h100",
    "llama3_8b_decoder",
    "--tensor",
    "1,4",
    "--pipeline",
    "1",
    "--concurrency",
    "8,64",
    "--pools",
    "--flags",
    "vllm",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "out"
    assert invoke([*ASKED, "--limit", "tpot=40 ms", "-o", str(folder)]).exit_code == 0
    return folder


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_document_is_what_json_prints_with_its_question(written: Path) -> None:
    found = json.loads((written / "served.json").read_text(encoding="utf-8"))
    question, command = found.pop("asked")
    assert question == "llama3_8b_decoder on dgx_h100, 8 accelerators, by vllm: 1,024 tokens in and 1,024 out"
    again = json.loads(invoke([*shlex.split(command)[1:], "--json"]).stdout)
    for one in (found, again):
        one["certificate"].pop("seconds")
    assert found == again


def test_every_point_and_the_front_are_tables(written: Path) -> None:
    found = json.loads((written / "served.json").read_text(encoding="utf-8"))
    front, points = _rows(written / "pareto.csv"), _rows(written / "points.csv")
    assert len(points) == found["certificate"]["priced"]
    assert [float(row["tpot"]) for row in front] == [one["tpot"] for one in found["front"]]
    assert {row["status"] for row in front} == {"proven"}
    best = found["best"]["tokens_per_s_per_accelerator"]
    assert max(float(row["tokens_per_s_per_accelerator"]) for row in points if float(row["tpot"]) <= 40e-3) == best
    assert any(row["decodes.tensor"] for row in points)  # of pools each pool's


def test_the_front_is_drawn_and_the_page_needs_nothing_else(written: Path) -> None:
    assert {"pareto.svg", "pareto.png", "index.html", "vllm.txt"} <= {one.name for one in written.iterdir()}
    page = (written / "index.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "8 accelerators, by vllm" in page
    assert "--limit" in page


def test_a_folder_that_cannot_be_is_refused_before_anything_is_priced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert isinstance(invoke([*ASKED, "-o", str(file)]).exception, OutputError)
