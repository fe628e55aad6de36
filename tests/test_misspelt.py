"""An operand that nothing makes is an input; one that is nearly called as a tensor that is made is told as a slip of the pen."""

from __future__ import annotations

from pathlib import Path

import pytest

import rackmodel as rm
from rackmodel.inputs import library_names, read_workload
from rackmodel.model.misspelt import doubts_of, misspelt_operands
from tests.commands import invoke

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
    assert not [name for name in library_names()["workload"] if doubts_of(read_workload(name))]


def test_check_search_and_evaluate_tell_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(TEXT.replace("= Gated", "= Gatd"))
    said = "warning: down reads 'Gatd'"
    asked = ["rack_paper", "own.yaml"]
    sets = ["--set", "accelerators=2", "--set", "split.dp=[m]"]
    assert said in invoke(["check", "own.yaml"]).output
    assert said in invoke(["search", *asked, "data", *sets, "-o", "out"]).output
    assert said in invoke(["evaluate", *asked, "out/mapping.yaml"]).output


REPEATED = """repeat: 3
einsums:
  a: R[b,c,d] = TXT[b,c,e] * W1[e,d]
  b: T[b,c,d] = R[b,c,e] * W3[e,d]
  up: U[b,s,d] = X[b,s,e] * W2[e,d]
  scores: A[b,s,c] = U[b,s,d] * T[b,c,d]
  out: Y[b,s,d] = A[b,s,c] * T[b,c,d]
"""


def test_layers_take_the_input_in_the_shape_of_what_they_hand_on_whichever_comes_first() -> None:
    head = "workload: own\nsizes: {b: 4, s: 64, c: 16, d: 32, e: d}\n"
    for text in (REPEATED, "sections:\n  layer:\n" + "".join(f"    {line}\n" for line in REPEATED.splitlines())):
        made = rm.read(head + text)
        assert list(made.inputs) == ["TXT", "X"]
        assert [one.stream_in for one in made.sections] == ["X"]
        assert not doubts_of(made)


TWO_STREAMS = """workload: own
sizes: {b: 4, s: 8, t: 8, d: 32}
sections:
  encoder:
    repeat: 3
    einsums:
      up: U[b,s,d] = silu(X[b,s,d])
      res: E[b,s,d] = add(U[b,s,d], X[b,s,d])
  decoder:
    repeat: 2
    einsums:
      scores: A[b,s,t] = E[b,s,d] * S[b,t,d]
      mixed: M[b,t,d] = A[b,s,t] * E[b,s,d]
      sum: Z[b,t,d] = add(M[b,t,d], S[b,t,d])
"""


def test_a_second_input_in_the_shape_of_what_layers_hand_on_is_told() -> None:
    made = rm.read(TWO_STREAMS)
    assert [one.stream_in for one in made.sections] == ["X", "E"]
    (told,) = doubts_of(made)
    assert "the 2 layers of decoder hand on 'Z' as the next one's 'E'; 'S', of the same shape, is read by each of them from outside" in told
    assert not doubts_of(rm.read(TWO_STREAMS + "tensors: {S: {kind: input}}\n"))


def test_layers_that_cannot_be_a_chain_are_refused_with_the_names_of_both_streams() -> None:
    with pytest.raises(rm.InputError, match=r"hands on Z\[b,t,d\], and takes E\[b,s,d\] from the section before; S has that shape"):
        rm.read(TWO_STREAMS.replace("t: 8", "t: 16"))
