"""Small files of every kind, each with the command that answers from it when it is mutated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rackmodel import face
from rackmodel.inputs import check
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from tests.audit.case import mapping_text
from tests.keys.cases import CORES, RACKS

ROOT = Path(__file__).resolve().parents[2]
MORE = 8  # turns of a base that is not dear, for one of one that is
POOL = """
architecture: pool
accelerators: 4
tree:
  name: swarmx
  network:
    {topology: tree, fanout: 4, multicast: true, reduce: true, links: 1, bandwidth: 150 GB/s, latency: 1 us, energy: 55 pJ/bit}
  children:
  - name: wafer
    count: 8
    accelerator: true
    memory: {capacity: 40 GB, bandwidth: 20 TB/s, read_energy: 1 pJ/bit, write_energy: 1 pJ/bit}
    compute: {rate: 900 TFLOP/s, energy: 0.5 pJ/FLOP}
  - name: memoryx
    count: 1
    memory: {capacity: 10 TB, read_energy: 20 pJ/bit, write_energy: 20 pJ/bit}
    compute: {rate: 150 TFLOP/s, vector: {rate: 150 TFLOP/s, energy: 10 pJ/FLOP}}
"""
FFN = """
workload: ffn
phases: [forward, backward, optimizer]
sizes: {b: 8, s: 64, m: b * s, d: 32, f: 64}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit, state: 96 bit}
einsums:
  norm: N[m,d] = rmsnorm(X[m,d], WN[d]) over d
  FC1: H[m,f] = N[m,d] * W1[d,f]
  act: A[m,f] = gelu(H[m,f])
  FC2: Y[m,d] = A[m,f] * W2[f,d]
tensors:
  X: {precision: 16 bit}
"""
GEMM = """
workload: gemm
phases: [forward]
sizes: {m: 8, k: 4, n: 6}
precision: {activation: 16 bit, weight: 16 bit}
einsums:
  C: C[m,n] = A[m,k] * B[k,n]
tensors:
  B: {kind: weight}
"""
MODEL = """
workload: model
phases: [forward, backward, optimizer]
sizes: {b: 8, s: 32, t: s, d: 64, h: 4, e: 16, f: 128, v: 256, layers: 4}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit, state: 96 bit}
sections:
  embed:
    einsums:
      embed: X[b,s,d] = I[b,s,v] * WE[v,d]
  block:
    repeat: layers
    einsums:
      Q: Q[b,s,h,e] = X[b,s,d] * WQ[d,h,e]
      K: K[b,s,h,e] = X[b,s,d] * WK[d,h,e]
      QK: A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]
      softmax: P[b,h,s,t] = softmax(A[b,h,s,t]) over t
      AV: Z[b,s,h,e] = P[b,h,s,t] * K[b,t,h,e]
      O: O[b,s,d] = Z[b,s,h,e] * WO[h,e,d]
      fc1: H[b,s,f] = O[b,s,d] * W1[d,f]
      gelu: G[b,s,f] = gelu(H[b,s,f])
      fc2: F[b,s,d] = G[b,s,f] * W2[f,d]
      res: Y[b,s,d] = add(X[b,s,d], F[b,s,d])
  head:
    einsums:
      logits: L[b,s,v] = Y[b,s,d] * WE[v,d]
      loss: C[b,s] = cross_entropy(L[b,s,v]) over v
tensors:
  I: {density: 1/v, precision: 0 bit}
"""
PLAIN = """
workload: plain
phases: [forward, backward, optimizer]
sizes: {b: 8, s: 32, d: 64, f: 128, v: 256, layers: 4}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit, state: 96 bit}
sections:
  embed:
    einsums:
      embed: X[b,s,d] = I[b,s,v] * WE[v,d]
  block:
    repeat: layers
    einsums:
      norm: N[b,s,d] = rmsnorm(X[b,s,d], WN[d]) over d
      fc1: H[b,s,f] = N[b,s,d] * W1[d,f]
      fc2: Y[b,s,d] = H[b,s,f] * W2[f,d]
  head:
    einsums:
      logits: L[b,s,v] = Y[b,s,d] * WE[v,d]
tensors:
  I: {density: 1/v, precision: 0 bit}
"""
LAYERED = """
mapper: layered
axes:
  pp: {degree: [1, 2], stages: layers}
  dp: {degree: free}
  tp: {degree: [1, 2], place: inner}
split: {dp: [b], tp: [h, f, v]}
layouts: {tensor: {}, sequence: {split: {tp: [h, f, v, s]}, save: gathered}}
micro_batch: 1
schedule: [1f1b, interleaved]
interleave: [2]
recompute: [none, full]
homes: {weights: [{}, {axes: [dp], state: shard}]}
overlap: free
algorithms: best
profile: ideal
minimize: latency
"""
OPEN = """
mapper: open
axes: {dp: {degree: 2}, tp: {degree: rest, place: free}}
split: {dp: [m, b], tp: free}
boundary: {X: {tp: [d]}}
choose: {FC2: {tp: free}}
homes: {weights: {axes: [dp], state: shard, grad: shard}}
uneven: ceil
save: shard
profile: serial
solver: auto
minimize: energy
"""
NESTED = """
mapper: nested
axes: {dp: {degree: all}}
split: {dp: [m]}
uneven: ceil
inside: {model: loopnest, factors: perfect, solver: auto, rules: {"*": {keep: {buffer: [C]}}}}
profile: serial
minimize: energy
"""
HELD = """
mapper: held
axes: {dp: {degree: all}}
split: {dp: [b]}
homes: {weights: {at: memoryx}}
micro_batch: free
recompute: [none, full]
offload: [[], [activations]]
host: rack
"""


@dataclass(frozen=True)
class Base:
    """A file and what answers from it. dear: it takes longer than most, and has its turn less often."""

    name: str
    text: str
    answer: Callable[[str], Result | None]
    dear: bool = False


def _search(machine: str, model: str, mapper: str, profile: str | None = None) -> Result:
    return face.search(machine, model, mapper, profile=profile).result


def _evaluate(machine: str, model: str, mapping: str) -> Result:
    made = face.read(mapping)
    assert isinstance(made, MappingSpec)
    return face.evaluate(machine, model, made)


def _checked(text: str) -> None:
    folder = Path("mutated.yaml")
    folder.write_text(text, encoding="utf-8")
    check(folder)


@cache
def bases() -> tuple[Base, ...]:
    """Every base. Those of studies and carbon tables write to the working folder."""
    data = "mapper: data\naxes: {dp: {degree: all}}\nsplit: {dp: [m, b]}\nuneven: ceil\nmicro_batch: whole\n"
    stream = HELD.replace("offload: [[], [activations]]\nhost: rack\n", "")
    hosted = HELD.replace("homes: {weights: {at: memoryx}}\n", "")
    profile = (ROOT / "specs/profiles/megatron_core.yaml").read_text(encoding="utf-8").replace("kernels: measured", "kernels: peak")
    nest = mapping_text(_search(CORES, GEMM, NESTED).mapping)
    step = mapping_text(_search(RACKS, MODEL, LAYERED).mapping)
    graph = mapping_text(_search(RACKS, FFN, OPEN).mapping)
    studies = [(ROOT / f"specs/studies/{name}.yaml").read_text(encoding="utf-8") for name in ("rack_paper", "train_carbon")]
    return (
        Base("architecture racks", RACKS, lambda text: _search(text, FFN, data)),
        Base("architecture racks of a model", RACKS, lambda text: _search(text, MODEL, LAYERED), dear=True),
        Base("architecture cores", CORES, lambda text: _search(text, GEMM, NESTED)),
        Base("architecture pool", POOL, lambda text: _search(text, PLAIN, stream)),
        Base("workload graph", FFN, lambda text: _search(RACKS, text, data)),
        Base("workload contraction", GEMM, lambda text: _search(CORES, text, NESTED)),
        Base("workload model", MODEL, lambda text: _search(RACKS, text, LAYERED), dear=True),
        Base("mapper layered", LAYERED, lambda text: _search(RACKS, MODEL, text), dear=True),
        Base("mapper open", OPEN, lambda text: _search(RACKS, FFN, text)),
        Base("mapper nested", NESTED, lambda text: _search(CORES, GEMM, text)),
        Base("mapper hosted", hosted, lambda text: _search(RACKS, PLAIN, text)),
        Base("mapper streamed", stream, lambda text: _search(POOL, PLAIN, text)),
        Base("mapping of a step", step, lambda text: _evaluate(RACKS, MODEL, text)),
        Base("mapping of a graph", graph, lambda text: _evaluate(RACKS, FFN, text)),
        Base("mapping of a nest", nest, lambda text: _evaluate(CORES, GEMM, text)),
        Base("profile", profile, lambda text: _search(RACKS, MODEL, LAYERED, profile=text), dear=True),
        *(Base(f"study {number}", text, _checked) for number, text in enumerate(studies)),
    )


def turns() -> tuple[Base, ...]:
    """Every base in its turn, those that are not dear more often."""
    dear, rest = ([one for one in bases() if one.dear == said] for said in (True, False))
    return (*dear, *rest * MORE)
