"""A mesh on which an operation has no loop nest is left out of the space; others are searched as if it were alone among them."""

from __future__ import annotations

import pytest

import rackmodel as rm

MACHINE = """architecture: pair
tree:
  name: box
  network: {topology: ring, bandwidth: 10 GB/s}
  children:
  - name: chip
    count: 2
    accelerator: true
    static_power: 1 W
    memory: {capacity: 1 GB, bandwidth: 8 GB/s, read_energy: 10 pJ/bit, write_energy: 10 pJ/bit}
    children:
    - name: pad
      memory: {capacity: 8 KiB, bandwidth: 16 GB/s, read_energy: 1 pJ/bit, write_energy: 1 pJ/bit}
      children: [{name: mac, count: 4, compute: {rate: 1 GMAC/s, energy: 0.5 pJ/MAC}}]
"""
WORKLOAD = """workload: product
sizes: {m: 16, k: 12, n: 8}
einsums: {C: "C[m,n] = A[m,k] * B[k,n]"}
batch_rank: m
"""
MAPPER = """mapper: either
axes: {dp: {degree: free}, tp: {degree: free}}
split: {dp: [m], tp: [n]}
inside: {model: loopnest, factors: FACTORS, rules: {C: RULES}}
minimize: energy
"""


@pytest.mark.parametrize("factors", ["perfect", "ceil"])
@pytest.mark.parametrize("rules", ["{tiles: {pad: {m: 16}}}", "{tiles: {pad: {n: 8}}}"])
def test_the_other_meshes_are_searched(factors: str, rules: str) -> None:
    machine, workload = MACHINE, WORKLOAD
    mapper = MAPPER.replace("FACTORS", factors).replace("RULES", rules)
    both = rm.search(machine, workload, mapper, minimize="latency").result
    name = "dp" if "m:" in rules else "tp"  # what it splits leaves too little of the rank
    alone = rm.search(machine, workload, mapper, set={f"axes.{name}.degree": 1}, minimize="latency").result
    assert (both.latency_s, both.energy_j) == (alone.latency_s, alone.energy_j)
    assert both.certificate.infeasible == {"no loop nest": 1.0}
    with pytest.raises(rm.InfeasibleError, match=r"fixes a tile of .* an accelerator has"):
        rm.search(machine, workload, mapper, set={f"axes.{name}.degree": 2})


def test_a_tile_larger_than_its_rank_is_refused() -> None:
    mapper = MAPPER.replace("FACTORS", "perfect").replace("RULES", "{tiles: {pad: {m: 17}}}")
    with pytest.raises(rm.InputError, match=r"inside\.rules\.C\.tiles\.pad\.m: m has 16"):
        rm.search(MACHINE, WORKLOAD, mapper)
