"""Layouts of one mapper that do not divide on the same meshes: each keeps its own, and one more never makes an answer worse."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rackmodel import api

SIZES = ("accelerators=8", "layers=2", "b=8", "d=64", "g=2", "q=2", "e=16", "f=64", "s=32", "v=64")
HEADS = {"split": {"tp": ["g", "f", "v"]}}
LENGTH = {"split": {"tp": ["s", "f", "v"]}}
BATCH = {"split": {"tp": ["b"]}}


def mapper(**layouts: Any) -> str:
    axes = {"dp": {"degree": "rest"}, "tp": {"degree": [1, 2, 4]}}
    said = {"mapper": "side_by_side", "axes": axes, "split": {"dp": ["b"]}, "layouts": layouts, "micro_batch": "free"}
    return yaml.safe_dump(said, sort_keys=False)


@pytest.mark.parametrize("minimize", ["latency", "energy"])
def test_a_space_of_layouts_is_the_sum_of_theirs(minimize: str, tmp_path: Any) -> None:
    def found(**layouts: Any) -> tuple[float, float]:
        path = tmp_path / f"{'_'.join(layouts)}.yaml"
        path.write_text(mapper(**layouts), encoding="utf-8")
        result = api.search("rack_paper_h100", "llama", str(path), sets=SIZES, minimize=minimize).result
        return result.certificate.space, {"latency": result.latency_s, "energy": result.energy_j}[minimize]

    alone = [found(heads=HEADS), found(length=LENGTH), found(batch=BATCH)]
    space, best = found(heads=HEADS, length=LENGTH, batch=BATCH)
    assert alone[0][0] < alone[1][0], "two groups of heads do not divide over four"
    assert space == sum(points for points, _ in alone)
    assert best == min(least for _, least in alone)
