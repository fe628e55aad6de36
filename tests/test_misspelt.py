"""An operand that nothing makes is an input; one that is nearly called as a tensor that is made is told as a slip of the pen."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import rackmodel as rm
from rackmodel.cli.app import app
from rackmodel.inputs import library_names, read_workload
from rackmodel.model.misspelt import misspelt_operands

TEXT = """workload: own
sizes: {m: 64, c: 32, u: 48}
einsums:
  up: Hidden[m,u] = X[m,c] * W1[c,u]
  act: Gated[m,u] = gelu(Hidden[m,u])
  down: Y[m,c] = Gated[m,u] * W2[u,c]
  join: Z[m,c] = add(Y[m,c], X[m,c])
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("= Gated", "= Gatd", "down reads 'Gatd', which nothing makes: taken as an input; did you mean 'Gated'?"),
        ("= Gated", "= gated", "did you mean 'Gated'?"),
        ("gelu(Hidden", "gelu(Hiden", "did you mean 'Hidden'?"),
        ("add(Y", "add(YY", "did you mean 'Y'?"),
        ("add(Y", "add(V", ""),  # another letter: as X is another input
        ("X[m,c] * W1", "Y0[m,c] * W1", ""),  # Y is made of it
        ("= Gated", "= Gated2", ""),  # numbered: another one
        ("= Gated", "= Extra", ""),
        ("einsums:", "tensors: {Gatd: {kind: input}}\neinsums:\n  more: Y2[m,c] = Gatd[m,u] * W3[u,c]", ""),  # it says so
    ],
)
def test_an_operand_nearly_called_as_what_is_made_is_told(old: str, new: str, said: str) -> None:
    assert old in TEXT
    told = misspelt_operands(rm.read(TEXT.replace(old, new, 1)))
    assert len(told) == bool(said)
    assert not told or said in told[0]


def test_no_workload_of_the_library_is_told_of() -> None:
    assert not [name for name in library_names()["workload"] if misspelt_operands(read_workload(name))]


def test_check_search_and_evaluate_tell_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(TEXT.replace("= Gated", "= Gatd"))
    said = "warning: down reads 'Gatd'"
    asked = ["rack_paper", "own.yaml"]
    sets = ["--set", "accelerators=2", "--set", "split.dp=[m]"]
    assert said in CliRunner().invoke(app, ["check", "own.yaml"]).output
    assert said in CliRunner().invoke(app, ["search", *asked, "data", *sets, "-o", "out"]).output
    assert said in CliRunner().invoke(app, ["evaluate", *asked, "out/mapping.yaml"]).output
