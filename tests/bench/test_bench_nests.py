"""Loop nests beside the rival's figures: CPU seconds around the search, one process. `make bench`.

The rival is AccelForge 1.0.467, measured on a two-core machine of this kind (CPU seconds, its own); machines differ, so
read the ratios.
"""

from __future__ import annotations

import time

import pytest

from rackmodel import api

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("nothing_remembered")]

CASES = (  # name, architecture, workload, sets, objective, the rival's CPU s (None: it did not finish in 300 s), its joules
    ("glb_pe GEMM energy", "glb_pe", "gemm", [], "energy", 1.73, 0.8035615),
    ("edge3 GEMM energy", "edge3", "gemm", [], "energy", 13.5, 0.4928408),
    ("edge3 GEMM latency", "edge3", "gemm", [], "latency", 226.0, 8.1617),
    ("edge3 GEMM EDP", "edge3", "gemm", [], "edp", None, None),
    ("glb_pe attention energy", "glb_pe", "attention", ["b=1", "phases=[forward]"], "energy", 11.1, 0.8418807),
    ("edge3 attention energy", "edge3", "attention", ["b=1", "phases=[forward]"], "energy", 87.6, 0.5302137),
)


def test_loop_nests_beside_the_rival() -> None:
    api.search("tiny", "gemm", "loopnest_perfect", sets=["m=8", "n=8", "k=8"])  # imports and first calls are not the search
    print(f"\n{'case':26} {'CPU s':>7} {'rival':>7} {'ratio':>6} {'joules':>16} {'rival':>10} {'mappings':>9} {'per CPU s':>9}")
    for name, arch, workload, sets, goal, rival, joules in CASES:
        started = time.process_time()
        result = api.search(arch, workload, "loopnest_perfect", sets=sets, minimize=goal).result
        seconds = time.process_time() - started
        ratio = f"{rival / seconds:6.0f}" if rival else "     –"
        theirs = f"{joules:10.7g}" if joules else "         –"
        space = sum(sheet["space"] for sheet in result.certificate.nests.values())
        told = f"{rival:7.1f}" if rival else "  > 300"
        print(f"{name:26} {seconds:7.2f} {told} {ratio} {result.energy_j:16.13g} {theirs} {space:9.2g} {space / seconds:9.2g}")
        assert result.certificate.gap == 0
