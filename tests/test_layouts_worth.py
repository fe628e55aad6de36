"""Layouts of a layer are looked for where a column may still beat the named layouts, and the answer is that of looking everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.mapper.layouts.worth import Worth, _nearest

SIZES = ["layers=8", "b=64", "d=4096", "g=8", "q=4", "e=128", "f=14336", "s=2048", "t=2048", "v=32768"]
CASES: dict[str, tuple[int, dict[str, Any], list[str]]] = {
    "one node": (8, {"micro_batch": 1}, []),
    "little memory": (4, {"micro_batch": 2}, ["node.gpu.memory.capacity=16 GB"]),
}


def ask(tmp_path: Path, name: str, minimize: str) -> Any:
    accelerators, more, sets = CASES[name]
    path = tmp_path / "mapper.yaml"
    path.write_text(yaml.safe_dump({"mapper": "free", "extends": "megatron_free", **more}, sort_keys=False), encoding="utf-8")
    said = [*SIZES, f"accelerators={accelerators}", *sets]
    return api.search("dgx_h100", "llama", str(path), sets=said, profile="megatron_core", minimize=minimize).result


@pytest.mark.parametrize(("name", "minimize"), [("one node", "latency"), ("little memory", "energy")])
def test_what_is_left_out_changes_neither_answer_nor_bound(
    name: str, minimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    solving = Worth.solving

    def counted(self: Worth, points: Any, *said: Any) -> Any:
        found = solving(self, points, *said)
        asked.append((len(found), len(points)))
        return found

    monkeypatch.setattr(Worth, "solving", counted)
    some = ask(tmp_path, name, minimize)
    monkeypatch.setattr(Worth, "solving", lambda self, points, *said: points)
    every = ask(tmp_path, name, minimize)
    assert [few < all_ for few, all_ in asked] == [name == "little memory"]  # on one node every point may win in some column
    assert some.certificate.bound == every.certificate.bound
    assert (some.latency_s, some.energy_j) == (every.latency_s, every.energy_j)


def test_a_column_takes_its_layouts_from_the_nearest_smaller_point() -> None:
    points = [(degree, batch) for degree in (2, 4, 64) for batch in (1, 2, 4)]
    assert _nearest(points, 4, 2) == (4, 2)
    assert _nearest(points, 256, 16) == (64, 4)
    assert _nearest(points, 8, 3) == (4, 2)
