"""`make growth`: how long searches take as what they search grows (docs/growth.md and its chart), CPU seconds of one process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rackmodel import api
from rackmodel.report.charts import series_chart
from rackmodel.report.drawing import chart_png

PAGE = Path(__file__).parents[1] / "docs/growth.md"
MODEL = ("dgx_h100", "llama3_8b", "megatron")
BATCH = "b=131072"  # a sample for each of the most accelerators
HEAD = """# How search time grows

`make growth` measures it, in CPU seconds of one process after start-up on the machine that runs it: on each line only what it names
grows. Accelerators and layers: training steps of `llama3_8b` on `dgx_h100` with the mapper `megatron` and 131,072 samples, on 64
accelerators where layers grow; operations: `data` on 8 accelerators of `rack_paper_h100`; factors of a size: perfect nests of
`gemm` on `edge3`, three sizes of so many divisors each; levels of memory: those of `workloads/gemm.yaml` on `glb_pe`, `edge3` and a GPU of
`rack_paper_h100`. No answer is remembered from an earlier run.
Processes that wanted to run for each core meanwhile: {load:.1f}; more than one of them adds to every row.

![Search time against size](growth.png)

| what grows | size | CPU s |
|---|---|---|
"""
Case = tuple[str, float, tuple[str, str, str], Sequence[str]]
"""What grows, its size, what is searched, its settings."""


def cases() -> Iterator[Case]:
    """One of every line and size; on each line only what it names grows."""
    for power in (6, 8, 10, 12, 14, 16, 17):
        yield "accelerators", 2**power, MODEL, [f"accelerators={2**power}", BATCH]
    for layers in (8, 16, 32, 64, 128):
        yield "layers", layers, MODEL, ["accelerators=64", BATCH, f"layers={layers}"]
    for name in ("ffn", "attention", "llama3_8b_block"):
        workload = api.read_inputs("rack_paper_h100", name).workload
        yield "operations", len(workload.ops), ("rack_paper_h100", name, "data"), ["accelerators=8"]
    for size in (64, 720, 5040, 55440):
        factors = sum(size % one == 0 for one in range(1, size + 1))
        yield "factors of a size", factors, ("edge3", "gemm", "loopnest_perfect"), [f"{rank}={size}" for rank in "mkn"]
    for name in ("glb_pe", "edge3", "rack_paper_h100"):
        machine = api.read_inputs(name, "gemm", sets=["accelerators=1"]).architecture
        yield "levels of memory", len(machine.memories), (name, "gemm", "loopnest_perfect"), ["accelerators=1"]


def measured(line: str) -> list[dict[str, object]]:
    """A row of every case of a line."""
    rows: list[dict[str, object]] = []
    for name, size, asked, sets in cases():
        if name == line:
            started = time.process_time()
            api.search(*asked, sets=sets)
            rows.append({"line": line, "size": size, "seconds": round(time.process_time() - started, 2)})
            print(f"{line} {size:g}: {rows[-1]['seconds']} CPU s", flush=True)
    return rows


def written(rows: Sequence[dict[str, object]], load: float) -> None:
    """The table and the chart. load: processes a core while they were measured."""
    lines = [f"| {row['line']} | {row['size']:,} | {row['seconds']} |" for row in rows]
    PAGE.write_text(HEAD.format(load=load) + "\n".join(lines) + "\n")
    chart = series_chart(rows, "size", "seconds", "line", title="Search time against what grows", y_title="CPU time", unit="s", log=True)
    PAGE.with_suffix(".png").write_bytes(chart_png(chart.to_dict()))


if __name__ == "__main__":
    os.environ["RACKMODEL_CACHE"] = "off"
    api.search("dgx_h100", "ffn", "data", sets=["accelerators=8"])  # what is loaded once
    found = [row for line in dict.fromkeys(name for name, *_ in cases()) for row in measured(line)]
    written(found, os.getloadavg()[0] / (os.cpu_count() or 1))
