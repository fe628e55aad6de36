"""Racks whose size no power of two divides: the search against every member of its space, priced one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rackmodel import api
from rackmodel.inputs import read_architecture, read_mapper, read_workload
from rackmodel.mapper.mapping import to_mapping
from rackmodel.mapper.mapping_check import hosts_of
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.points import Point
from rackmodel.model.mapping import MappingSpec
from tests import samples

MAPPER = """
mapper: ragged
axes:
  pp: {degree: free, stages: layers}
  dp: {degree: free}
  tp: {degree: free, place: inner}
  ep: {degree: free}
split: {dp: [b], tp: [f, h, [g, q], v], ep: [x, b]}
layouts:
  tensor: {}
  sequence: {split: {tp: [f, h, [g, q], v, s]}}
choose: {router: {ep: b}, gates: {ep: b}, dispatch: {ep: b}, combine: {ep: b}}
micro_batch: [1]
schedule: 1f1b
homes:
  weights:
  - {}
  - {axes: [dp, ep], state: shard, grad: shard, param: shard}
overlap: profile
algorithms: ring
"""
CASES = {5: 40, 9: 72}  # nodes of 4 in a rack: accelerators in use, two racks of them


def members(space: object, machine: object, mapper: object) -> list[MappingSpec]:
    """Every point: column x variant, without the search's arrays, bounds or order."""
    found = []
    for group in space.groups:  # type: ignore[attr-defined]
        columns = group.columns
        for column in range(len(columns)):
            stages = int(columns.stages[column])
            if LAYERS % stages:
                continue
            for variant in range(len(group.variants)):
                at = {"group": 0, "variant": variant, "column": column, "overlap": (0, 0), "schedule": "1f1b", "stages": stages}
                point = Point(**at, chunks=1, bound=0.0, seconds=0.0, joules=0.0, memory=0.0)
                found.append(to_mapping(space, group, point, "member", "serial", None))  # type: ignore[arg-type]
    return found


LAYERS = 6


@pytest.mark.parametrize(("nodes", "minimize"), [(5, "latency"), (9, "energy")][: samples.cases(1, 2)])
def test_racks_of_any_size_are_searched_exactly(nodes: int, minimize: str, tmp_path: Path) -> None:
    (tmp_path / "ragged.yaml").write_text(MAPPER, encoding="utf-8")
    machine = read_architecture("gb200_nvl72", [f"rack.node.count={nodes}", f"accelerators={CASES[nodes]}"])
    workload = read_workload("moe_1t", [f"layers={LAYERS}", f"b={2 * CASES[nodes]}", "x=40", "s=512"])
    mapper = read_mapper(tmp_path / "ragged.yaml")
    result = api.search_mapper(machine, workload, mapper, minimize=minimize, profile="serial").result
    every = members(build_mapspace(mapper, workload, machine.used, hosts_of(machine)), machine, mapper)
    prices = api.price(machine, workload, every)
    fits = prices.memory_bytes <= machine.accelerator.memory.visible_bytes  # type: ignore[union-attr,operator]
    figures = prices.latency_s if minimize == "latency" else prices.energy_j
    own = result.latency_s if minimize == "latency" else result.energy_j
    assert len(every) > 100
    assert result.certificate.status == "proven"
    assert own == pytest.approx(float(np.min(figures[fits])), rel=1e-12)
