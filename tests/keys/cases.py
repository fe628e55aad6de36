"""Small cases in which every key of every kind of input can be flipped, and what counts as their answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rackmodel import api
from rackmodel.carbon.bill import bill_of
from rackmodel.carbon.costing import cost_of
from rackmodel.carbon.job import Usage
from rackmodel.inputs import read_inputs
from rackmodel.inputs.carbon_tables import tables_of
from rackmodel.inputs.plain_yaml import dumped
from rackmodel.model.architecture import Architecture
from rackmodel.model.embodied import BOUNDARIES

RACKS = """
architecture: small
accelerators: 8
site: {grid: united_states, pue: 1.2}
tree:
  name: system
  network: {topology: ring, bandwidth: 10 GB/s, latency: 1 us, energy: 20 pJ/bit}
  children:
  - name: rack
    count: 2
    memory: {capacity: 1 TB, bandwidth: 50 GB/s, read_energy: 10 pJ/bit, write_energy: 10 pJ/bit}
    network: {topology: ring, bandwidth: 100 GB/s, latency: 1 us, energy: 1.3 pJ/bit}
    children:
    - name: gpu
      count: 4
      accelerator: true
      static_power: 50 W
      memory: {capacity: 8 GB, bandwidth: 1 TB/s, read_energy: 5 pJ/bit, write_energy: 5 pJ/bit}
      compute: {rate: 10 TFLOP/s, energy: 0.5 pJ/FLOP, vector: {rate: 1 TFLOP/s, energy: 1 pJ/FLOP}}
      embodied:
        dies:
          chip: {area: 800 mm^2, process: 7nm, yield: {model: fixed, value: 0.5}}
          open: {process: 7nm}
        memory: {hbm: {technology: hbm}}
        parts: {board: {kind: accelerator_board, boundary: module}}
      children:
      - {name: core, count: 10, embodied: {area: 10 mm^2, area_per_mac: 1 mm^2, macs: 4}}
  - name: store
    memory: {capacity: 1 TB, bandwidth: 20 GB/s, read_energy: 20 pJ/bit, write_energy: 20 pJ/bit}
    compute: {rate: 1 TFLOP/s, vector: {rate: 0.001 TFLOP/s, energy: 10 pJ/FLOP}}
"""
CORES = """
architecture: cores
tree:
  name: chip
  accelerator: true
  memory: {bandwidth: 100 GB/s, read_energy: 8 pJ/bit, write_energy: 8 pJ/bit}
  children:
  - name: buffer
    memory: {capacity: 4 KiB, bandwidth: 200 GB/s, read_energy: 1 pJ/bit, write_energy: 1 pJ/bit}
    fan: {x: 4, y: 4}
    children:
    - name: core
      count: 16
      memory: {capacity: 256 B, read_energy: 0.05 pJ/bit, write_energy: 0.05 pJ/bit}
      compute: {rate: 20 GFLOP/s, energy: 0.5 pJ/FLOP}
"""
WAFER = """
architecture: wafer
tree:
  name: wafer
  accelerator: true
  memory: {bandwidth: 100 GB/s, read_energy: 8 pJ/bit, write_energy: 8 pJ/bit}
  fan: {x: 4, y: 4}
  children:
  - name: core
    count: 16
    memory: {capacity: 48 KiB, read_energy: 0.05 pJ/bit, write_energy: 0.05 pJ/bit}
    compute: {rate: 2 GFLOP/s, energy: 0.5 pJ/FLOP}
"""
GPU = """
architecture: measured
tree:
  name: gpu
  accelerator: true
  memory: {bandwidth: 1 TB/s, read_energy: 5 pJ/bit, write_energy: 5 pJ/bit}
  children:
  - name: l2
    memory: {bandwidth: 4 TB/s, read_energy: 1 pJ/bit, write_energy: 1 pJ/bit}
    fan: {linear: 8}
    children:
    - name: sm
      count: 8
      compute:
        rate: 2 TFLOP/s
        vector: {rate: 1 TFLOP/s}
        kernels: {efficiency: 0.9, start_in_stream: 2 us, named: {attention forward: 0.5, attention backward: 0.4}}
"""
LAYERS = """
workload: layers
phases: [forward, backward, optimizer]
sizes: {b: 8, s: 64, d: 256, f: 1024}
sections:
  block:
    repeat: 4
    einsums:
      FC1: H[b,s,f] = X[b,s,d] * W1[d,f]
      FC2: Y[b,s,d] = H[b,s,f] * W2[f,d]
"""
GRAPH = """
workload: graph
phases: [forward, backward, optimizer]
sizes: {b: 8, s: 64, d: 256, f: 1024}
repeat: 2
einsums:
  FC1: H[b,s,f] = X[b,s,d] * W1[d,f]
  ACT: A[b,s,f] = gelu(H[b,s,f])
  FC2: Y[b,s,d] = A[b,s,f] * W2[f,d]
"""
ATTENTION = """
workload: attention
phases: [forward, backward]
sizes: {b: 2, s: 128, t: s, h: 4, d: 64, e: 16}
einsums:
  Q: Q[b,s,h,e] = X[b,s,d] * WQ[d,h,e]
  K: K[b,s,h,e] = X[b,s,d] * WK[d,h,e]
  QK: A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]
  softmax: P[b,h,s,t] = softmax(A[b,h,s,t]) over t
  AV: Z[b,s,h,e] = P[b,h,s,t] * K[b,t,h,e]
  gate: G[b,s,h,e] = gelu(Z[b,s,h,e])
  skip: R[b,s,h,e] = add(G[b,s,h,e], Q[b,s,h,e])
"""
GEMM = """
workload: gemm
sizes: {m: 48, k: 64, n: 64}
einsums: {C: "C[m,n] = A[m,k] * B[k,n]"}
"""
CHAIN = """
workload: chain
sizes: {m: 64, k: 16, n: 64, p: 16}
einsums:
  ONE: C[m,n] = A[m,k] * B[k,n]
  TWO: E[m,p] = C[m,n] * D[n,p]
"""
FIXED = """
mapper: fixed
axes: {dp: {degree: 4}, tp: {degree: 2}}
split: {dp: [b], tp: [f]}
profile: serial
"""
PIPED = """
mapper: piped
axes: {pp: {degree: 2, stages: layers}, dp: {degree: 2}, tp: {degree: 2}}
split: {dp: [b], tp: [f]}
micro_batch: 1
profile: serial
"""
NESTED = """
mapper: nested
axes: {dp: {degree: all}}
uneven: ceil
inside: {model: loopnest, factors: perfect}
profile: serial
minimize: energy
"""
PLAIN = """
mapper: plain
axes: {dp: {degree: all}}
uneven: ceil
"""
STEP = """
mapping: piped
accelerators: 8
axes: {dp: {degree: 2, stride: 2}, tp: {degree: 2, stride: 1}}
ops: {FC1: {dp: b, tp: f}, FC2: {dp: b, tp: f}}
step: {micro_batch: 1, pipeline: {degree: 2, stride: 4}}
profile: serial
"""
POINT = """
mapping: point
accelerators: 8
axes: {dp: {degree: 4, stride: 2}, tp: {degree: 2, stride: 1}}
ops: {FC1: {dp: b, tp: f}, ACT: {dp: b, tp: f}, FC2: {dp: b, tp: f}}
profile: serial
"""
NEST = """
mapping: nest
accelerators: 1
profile: serial
nests:
  C = A * B:
    problem: C = A * B
    machine: wafer
    levels:
    - level: wafer
      nodes: [{tensor: A, tile: {m: 48, k: 64, n: 64}}, {tensor: B, tile: {m: 48, k: 64, n: 64}}, {tensor: C, tile: {m: 48, k: 64, n: 64}}]
      x: {m: 4}
      y: {n: 4}
    - level: core
      nodes: [{tensor: A, tile: {m: 6, k: 4, n: 8}}, {tensor: B, tile: {m: 6, k: 4, n: 8}}, {tensor: C, tile: {m: 6, k: 4, n: 8}}]
      x: {}
      y: {}
"""
OVERLAPPED = """
profile: mine
overlap: {weights: true}
"""
MEASURED = """
profile: mine
kernels: measured
"""

CASES = {
    name: dict(zip(("arch", "work", third, "profile"), map(yaml.safe_load, files), strict=False))
    for name, third, *files in (
        ("layers", "mapper", RACKS, LAYERS, FIXED),
        ("piped", "mapper", RACKS, LAYERS, PIPED),
        ("overlapped", "mapper", RACKS, LAYERS, PIPED, OVERLAPPED),
        ("graph", "mapper", RACKS, GRAPH, FIXED),
        ("nest", "mapper", CORES, GEMM, NESTED),
        ("wafer", "mapper", WAFER, GEMM, NESTED),
        ("chain", "mapper", CORES, CHAIN, NESTED),
        ("measured", "mapper", GPU, ATTENTION, PLAIN, MEASURED),
        ("roofline", "mapper", CORES, GEMM, PLAIN),
        ("step", "mapping", RACKS, LAYERS, STEP),
        ("stepped", "mapping", RACKS, LAYERS, STEP, OVERLAPPED),
        ("point", "mapping", RACKS, GRAPH, POINT),
        ("given", "mapping", WAFER, GEMM, NEST),
    )
}
"""Name → file → its data. arch, work: a machine and a workload · mapper or mapping · profile: where one of its own is priced under."""

DROP = object()


def edited(case: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with values put at dotted paths ('mapper.axes.dp.degree'; a number is a place in a list); DROP removes a key."""
    made = copy.deepcopy(dict(case))
    for path, value in edits.items():
        *above, last = steps_of(path)
        node: Any = made
        for step in above:
            node = node[step] if isinstance(step, int) else node.setdefault(step, {})
        if value is DROP:
            node.pop(last)
        else:
            node[last] = copy.deepcopy(value)
    return made


def steps_of(path: str) -> list[str | int]:
    """'tree.children.0.name' as steps; '~' stands for a dot in a key."""
    return [int(word) if word.isdigit() else word.replace("~", ".") for word in path.split(".")]


def answer(case: Mapping[str, Any], folder: Path, **asked: Any) -> dict[str, Any]:
    """What a case comes to, and nothing that merely says again what was asked for. Raises InputError, InfeasibleError."""
    texts = {name: dumped(data) for name, data in case.items()}
    profile = None
    if "profile" in texts:
        (folder / "mine.yaml").write_text(texts["profile"], encoding="utf-8")
        profile = str(folder / "mine.yaml")
    third = "mapper" if "mapper" in case else "mapping"
    inputs = read_inputs(texts["arch"], texts["work"], **{third: texts[third]})
    if inputs.mapper is not None:
        found = api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, profile=profile, **asked)
    else:
        assert inputs.mapping is not None
        found = api.Answer(api.evaluate_mapping(inputs.architecture, inputs.workload, inputs.mapping, profile=profile), ())
    result, certificate = found.result, found.result.certificate
    return {
        "seconds": result.latency_s,
        "joules": result.energy_j,
        "grams": result.carbon_g,
        "held": {name: held for name, held in result.memory.items() if held},
        "embodied": _embodied(inputs.architecture),
        "money": _money(inputs.architecture),
        "full": None if result.pipelined is None else result.pipelined.to_dict(),
        "space": (certificate.space, certificate.solver, certificate.infeasible),
        "bound": (certificate.objective, certificate.bound),
        "nests": {name: (sheet["space"], sheet["solver"]) for name, sheet in certificate.nests.items()},
        "front": len(found.front),
        "top": len(found.top),
        "warning": any("does not fit" in said for said in result.warnings),
    }


def _money(architecture: Architecture) -> dict[str, Any]:
    """Dollars of a life with one re-spin."""
    if len(architecture.pools) > 1 or architecture.accelerator.cost is None:
        return {}
    money = cost_of(architecture, Usage(), respins=1.0)
    return {"capital": money.cost.capital_usd.to_dict(), "tco": money.cost.tco_usd.to_dict(), "masks": money.masks_usd.to_dict()}


def _embodied(architecture: Architecture) -> dict[str, Any]:
    """Grams of making it, low and high, by boundary."""
    if not any(level.embodied is not None for level in architecture.tree.walk()):
        return {}
    bill = bill_of(architecture, tables_of(architecture))
    return {boundary: bill.total_g((boundary,)).to_dict() for boundary in BOUNDARIES}
