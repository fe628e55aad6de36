"""What lies between fused operations stays on chip: not where a link carries it, nor where the backward pass reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs import read_inputs

MACHINE = {
    "architecture": "four",
    "accelerators": 4,
    "tree": {
        "name": "rack",
        "network": {"topology": "ring", "bandwidth": "1 GB/s", "latency": "0 s", "energy": "1 pJ/bit"},
        "children": [{**yaml.safe_load(Path("specs/tiny.yaml").read_text(encoding="utf-8"))["tree"], "count": 4}],
    },
}
"""Four of the machine that is small enough for brute force."""
SMALL = ["m=32", "f=16", "d=16"]
DECLARED = [{"einsums": ["FC1", "FC2"]}]
COLUMN_ROW, OVER_SUM = {"split": {"tp": ["f"]}}, {"split": {"tp": ["d"]}}


def search(tmp_path: Path, said: dict[str, Any], fuse: Any, accelerators: int, phases: tuple[str, ...] = ("forward",)) -> api.Answer:
    """A search of least energy. said: splits or layouts of tensor ranks."""
    inside = {"model": "loopnest", "factors": "perfect", "fuse": fuse}
    mapper = {"mapper": "fused", "axes": {"tp": {"degree": "all", "place": "inner"}}, **said, "profile": "serial", "inside": inside}
    path = tmp_path / "mapper.yaml"
    path.write_text(yaml.safe_dump(mapper, sort_keys=False), encoding="utf-8")
    (tmp_path / "four.yaml").write_text(yaml.safe_dump(MACHINE, sort_keys=False), encoding="utf-8")
    sets = [f"accelerators={accelerators}", *SMALL, f"phases=[{', '.join(phases)}]"]
    return api.search(str(tmp_path / "four.yaml"), "ffn", str(path), sets=sets, minimize="energy")


def moved(answer: api.Answer, tensor: str) -> float:
    """Bytes of a tensor to and from the memory outside the chip."""
    rows = answer.result.ledger.rows
    return sum(row.amount for row in rows if (row.tensor, row.level, row.component) == (tensor, "chip", "memory"))


@pytest.mark.parametrize("fuse", [DECLARED, "free"])
def test_a_tensor_that_is_summed_over_ranks_is_not_kept_on_chip(fuse: Any, tmp_path: Path) -> None:
    fused, alone = (search(tmp_path, OVER_SUM, one, 4) for one in (fuse, []))
    assert fused.result.energy_j == alone.result.energy_j
    assert moved(fused, "H") == 4 * 2 * 32 * 16 * 2  # each of four ranks writes it and reads it once, 2 bytes an element
    assert fused.result.warnings == (("fuse: H does not stay on chip: a link carries it",) if fuse == DECLARED else ())
    lone = search(tmp_path, OVER_SUM, fuse, 1)  # one rank sums with nobody
    assert moved(lone, "H") == 0
    assert not lone.result.warnings


def test_a_tensor_that_is_gathered_in_between_is_no_error(tmp_path: Path) -> None:
    gathered = {"split": {"tp": "output"}, "boundary": {"X": {"tp": ["d"]}, "Y": {"tp": ["d"]}}}
    fused, alone = (search(tmp_path, gathered, one, 4) for one in ("free", []))
    assert fused.result.energy_j == alone.result.energy_j


@pytest.mark.parametrize("order", [("over_sum", "column_row"), ("column_row", "over_sum")])
def test_each_layout_is_fused_as_if_it_were_the_only_one(order: tuple[str, str], tmp_path: Path) -> None:
    """Both have the same mesh, and the second product the same share in neither: what is found for one is not the other's."""
    each = {"over_sum": OVER_SUM, "column_row": COLUMN_ROW}
    least = min(search(tmp_path, each[name], "free", 4).result.energy_j for name in order)
    both = search(tmp_path, {"layouts": {name: each[name] for name in order}}, "free", 4)
    assert both.result.energy_j == least
    assert both.result.certificate.proven


def test_what_the_backward_pass_reads_is_written(tmp_path: Path) -> None:
    fused, alone = (search(tmp_path, COLUMN_ROW, one, 1, ("forward", "backward")) for one in (DECLARED, []))
    assert fused.result.energy_j == alone.result.energy_j
    assert fused.result.warnings == ("fuse: H does not stay on chip: the backward pass reads it",)


def test_a_mapping_that_keeps_it_on_chip_is_refused_at_its_place(tmp_path: Path) -> None:
    found = search(tmp_path, COLUMN_ROW, DECLARED, 4).result
    assert all(nest["resident"] == ["H"] for nest in found.mapping.nests.values())
    sets = ["accelerators=4", *SMALL, "phases=[forward, backward]"]
    given = read_inputs(str(tmp_path / "four.yaml"), "ffn", mapper=str(tmp_path / "mapper.yaml"), sets=sets)
    with pytest.raises(InputError, match="resident H: the backward pass reads it") as told:
        api.evaluate_mapping(given.architecture, given.workload, found.mapping, profile="serial")
    assert told.value.path.startswith("nests.")
