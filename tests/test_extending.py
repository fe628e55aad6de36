"""The recipes of docs/extending.md work as they are written: each diff is applied to a copy of the package, and what it adds is used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackmodel.errors import InputError

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))


def hunks(recipe: str) -> Iterator[tuple[str, str, str]]:
    """(file, text that is there, text that takes its place) of every hunk of a recipe's diff."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", RECIPES[recipe], re.MULTILINE | re.DOTALL)
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        file, _, body = part.partition("\n")
        for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines()
            old, new = ("\n".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
            yield file, old, new


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout of our own, with what is compiled already (its files keep their times)."""
    shutil.copytree(ROOT / "rackmodel", tmp_path / "rackmodel")
    for folder in ("specs", "workloads", "mappers"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    return tmp_path


def follow(recipe: str, checkout: Path) -> None:
    """Apply a recipe's diff."""
    for file, old, new in hunks(recipe):
        path = checkout / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        assert not old or text.count(old) == 1, f"{file}: '{old}' is there {text.count(old)} times"
        path.write_text(text.replace(old, new) if old else new + "\n", encoding="utf-8")


def run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in a checkout."""
    return subprocess.run(
        [sys.executable, *words], cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=False
    )


def refused(code: str) -> str:
    """What the package as it is says of `code`."""
    with pytest.raises(InputError) as caught:
        exec(f"import rackmodel as rm\n{code}", {})
    return str(caught.value)


def answer(checkout: Path, code: str) -> Any:
    """What `code` finds as `found`, through the public face."""
    done = run(checkout, "-c", f"import json, rackmodel as rm\n{code}\nprint(json.dumps(found))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_recipe_with_a_diff_is_followed_here() -> None:
    diffs = {name for name, text in RECIPES.items() if "```diff" in text}
    assert diffs == {
        "A collective algorithm",
        "A pipeline schedule",
        "A kind of operation",
        "A carbon metric",
        "An objective",
        "A launch framework",
    }


def test_a_collective_algorithm(copy: Path) -> None:
    """Small gradients of 4 accelerators wait for hops: two over a star, six round a ring. As many bytes."""
    code = """
rows = {}
for name in ("ring", "star"):
    result = rm.search("dgx_a100", "ffn", "data", set={"accelerators": 4, "d": 32, "f": 32, "algorithms": name}).result
    rows[name] = result.ledger.where(component="network", action="all_reduce")
found = [rows["star"].total(figure) / rows["ring"].total(figure) for figure in ("amount", "seconds")]
"""
    assert "no algorithm called 'star'" in refused(code)
    follow("A collective algorithm", copy)
    amount, seconds = answer(copy, code)
    assert amount == pytest.approx(1.0)
    assert seconds < 0.9


def test_a_pipeline_schedule(copy: Path) -> None:
    """More forward passes before the first backward pass: never less in flight than 1F1B, and the same work."""
    code = """
sets = {"accelerators": 16, "b": 32, "axes.pp.degree": 4, "axes.tp.degree": 4, "recompute": "full", "layers": 8}
each = [rm.search("dgx_a100", "gpt", "megatron", set={**sets, "interleave": 1, "schedule": name}).result for name in ("1f1b", "eager")]
found = [[r.latency_s, r.memory["activations"], r.mapping.step.schedule] for r in each]
"""
    assert "eager" in refused(code)
    follow("A pipeline schedule", copy)
    (plain_s, plain_bytes, _), (eager_s, eager_bytes, schedule) = answer(copy, code)
    assert schedule == "eager"
    assert eager_bytes > plain_bytes
    assert eager_s == pytest.approx(plain_s, rel=0.2)


def test_a_kind_of_operation(copy: Path) -> None:
    code = """
work = {"workload": "w", "phases": ["forward", "backward"], "sizes": {"m": 64, "f": 32},
        "precision": {"activation": "16 bit", "weight": "16 bit"}, "einsums": {"S": "B[m,f] = square(A[m,f])"}}
result = rm.search("dgx_a100", work, "data", set={"accelerators": 4}).result
found = {phase: result.ledger.where(phase=phase, action="vector").total("amount") for phase in ("forward", "backward")}
"""
    assert "square" in refused(code)
    follow("A kind of operation", copy)
    assert answer(copy, code) == {"forward": 64 * 32, "backward": 2 * 64 * 32}


def test_a_carbon_metric(copy: Path) -> None:
    follow("A carbon metric", copy)
    done = run(copy, "-m", "rackmodel", "carbon", "dgx_h100", "llama3_8b_block", "tensor", "--set", "accelerators=8", "--json")
    assert done.returncode == 0, done.stderr
    assert '"cd2p"' in json.dumps(json.loads(done.stdout))


def test_an_objective(copy: Path) -> None:
    """The least E T² is found among the points: no more than that of the mappings that are fastest or take least energy."""
    code = """
goals = ("energy", "latency", "ed2p")
each = {goal: rm.search("rack_paper", "ffn", "auto", set={"accelerators": 4}, minimize=goal).result for goal in goals}
found = {goal: [r.energy_j * r.latency_s ** 2, r.certificate.objective] for goal, r in each.items()}
"""
    follow("An objective", copy)
    found = answer(copy, code)
    value, said = found["ed2p"]
    assert value == pytest.approx(said)
    assert value <= min(found["energy"][0], found["latency"][0]) * (1 + 1e-9)


def test_a_launch_framework(copy: Path) -> None:
    follow("A launch framework", copy)
    words = ["search", "dgx_a100", "gpt", "megatron", "--set", "accelerators=8", "--set", "layers=8", "--set", "b=8", "--flags", "echo"]
    done = run(copy, "-m", "rackmodel", *words)
    assert done.returncode == 0, done.stderr
    assert "--layers 8" in done.stdout
