"""What `rackmodel new` writes: the start of an own input, small, whole, and with a word on each line that one would change."""

from __future__ import annotations

from rackmodel.inputs.library import modeline

KINDS = {"machine": "architecture", "workload": "workload", "mapper": "mapper", "study": "study"}
STARTS = {
    "machine": """\
# {name}: two nodes of four accelerators. Change the numbers to yours; say where each is from, for a reader will ask.
# `rackmodel check {name}.yaml` tells what is wrong, `rackmodel show {name}.yaml` what was understood.
architecture: {name}
site: {{grid: world, pue: 1.2}}                  # for carbon: a grid of specs/carbon/grid.yaml, or a quantity such as '300 g/kWh'
tree:
  name: cluster
  network: {{topology: switch, bandwidth: 50 GB/s, latency: 5 us, energy: 30 pJ/bit}}        # of one node's accelerator, each direction
  children:
    - name: node
      count: 2                                    # nodes in the cluster
      static_power: 1 kW                          # host, fans: what it draws whatever it does
      network: {{topology: switch, bandwidth: 450 GB/s, latency: 2 us, energy: 8 pJ/bit}}
      children:
        - name: gpu
          count: 4                                # accelerators in a node
          accelerator: true                       # parallelism ends here; below it is the inside of one
          memory: {{capacity: 80 GB, bandwidth: 3.35 TB/s, read_energy: 4 pJ/bit, write_energy: 4 pJ/bit}}
          compute:
            precisions: {{16 bit: {{rate: 989 TFLOP/s, energy: 0.5 pJ/FLOP}}}}
            vector: {{rate: 67 TFLOP/s, energy: 1 pJ/FLOP}}
""",
    "workload": """\
# {name}: a gated feed-forward layer as einsums. An index that the result lacks is summed; tensors called W... are weights.
workload: {name}
phases: [forward, backward, optimizer]            # [forward] alone for inference
sizes: {{b: 64, s: 2048, d: 4096, f: 14336}}        # batch, sequence, features, hidden features
einsums:
  gate: G[b,s,f] = X[b,s,d] * WG[d,f]
  up: U[b,s,f] = X[b,s,d] * WU[d,f]
  act: A[b,s,f] = silu(G[b,s,f])
  product: H[b,s,f] = A[b,s,f] * U[b,s,f]
  down: Y[b,s,d] = H[b,s,f] * WD[f,d]
precision: {{activation: 16 bit, weight: 16 bit, gradient: 32 bit, state: 96 bit}}
""",
    "mapper": """\
# {name}: what may be searched. Axes divide the accelerators; `split` says which index an operation splits over an axis, the first
# that it has. Whatever follows from that (collectives, backward pass, memory) is derived.
mapper: {name}
axes:
  dp: {{degree: free}}                             # data parallelism: every degree
  tp: {{degree: free, place: inner}}               # tensor parallelism: every degree, on neighbouring accelerators
split:
  dp: [b]
  tp: [f]                                         # the hidden features
homes:
  weights: {{axes: [dp], state: shard}}            # ZeRO-1: optimizer state over the replicas
profile: ideal                                    # what overlaps; `serial`: nothing does
minimize: latency                                 # or energy, edp, carbon, memory
""",
    "study": """\
# {name}: points to run and charts to draw of them. Every combination of the lists of a run is a point.
study: {name}
architecture: rack_paper
runs:
  - workload: ffn
    mapper: [data, tensor, pipeline_tensor]
    set: {{accelerators: [4, 8, 16, 32]}}
charts:
  latency: {{title: Latency by parallelism, x: accelerators, y: exposed_seconds, series: [mapper]}}
  energy: {{title: Energy by component, kind: stacked, x: mapper, y: joules, series: [component], where: {{accelerators: 32}}}}
""",
}
"""Word → text with a place for the name."""


def start_of(what: str, name: str) -> str:
    """The text of a start, whose first line names the schema by which editors complete and check. Raises InputError."""
    return modeline(KINDS[what]) + STARTS[what].format(name=name)
