"""The trace of a step: as long as the clock says, every task in it, memory as the memory model has it at its peak."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs import read_inputs
from rackmodel.report import trace as traces
from tests.commands import invoke

TRAINING = ("dgx_h100", "llama3_8b", "megatron")
SETS = ["accelerators=8", "b=8", "axes.pp.degree=4", "axes.tp.degree=2"]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the result, the trace) of a training step in a pipeline."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    sets = [word for text in SETS for word in ("--set", text)]
    said = invoke(["search", *TRAINING, *sets, "--profile", "megatron_core", "--trace", str(path), "--json"])
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)["result"], json.loads(path.read_text())


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_the_last_event_ends_when_the_clock_says(traced: tuple[dict[str, Any], dict[str, Any]]) -> None:
    result, trace = traced
    assert trace["otherData"]["latency_s"] == pytest.approx(result["latency_s"], rel=1e-11)
    assert max(event["ts"] + event["dur"] for event in spans(trace)) == pytest.approx(1e6 * result["latency_s"], rel=1e-11)


def test_devices_are_as_busy_as_the_ledger_says(traced: tuple[dict[str, Any], dict[str, Any]]) -> None:
    result, trace = traced
    stages = {event["pid"] for event in spans(trace)}
    assert stages == set(range(4))
    passes = [event for event in spans(trace) if event["cat"] == "pass"]
    assert len(passes) == len({(event["pid"], event["name"], event["args"]["virtual stage"]) for event in passes})
    # operations on the critical path of a stage are at most what its device ran
    compute = math.fsum(row["exposed_seconds"] for row in result["ledger"] if row["component"] == "compute" and row["action"] == "mac")
    busiest = max(math.fsum(e["dur"] for e in spans(trace) if e["pid"] == stage and e["cat"] == "compute") for stage in stages)
    assert compute <= busiest / 1e6 * (1 + 1e-9)


def test_memory_peaks_at_what_the_memory_model_says(traced: tuple[dict[str, Any], dict[str, Any]]) -> None:
    result, trace = traced
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    peak = max(math.fsum(event["args"].values()) for event in counters)
    assert peak == pytest.approx(result["memory_bytes_per_accelerator"], rel=1e-12)
    assert {event["pid"] for event in counters} == set(range(4))


def test_a_cut_below_the_layer_has_a_trace_too() -> None:
    inputs = read_inputs("rack_paper", "attention", mapper="pipeline_tensor", sets=["accelerators=12"])
    result = api.search("rack_paper", "attention", "pipeline_tensor", sets=["accelerators=12"]).result
    trace = json.loads(traces.trace_json(api.step_of(inputs, result.mapping)))
    assert trace["otherData"]["latency_s"] == pytest.approx(result.latency_s, rel=1e-11)
    assert {event["pid"] for event in spans(trace)} == set(range(6))


def test_a_trace_of_too_many_tasks_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(traces, "MOST", 0)
    inputs = read_inputs("rack_paper", "ffn", mapper="data", sets=["accelerators=8"])
    result = api.search("rack_paper", "ffn", "data", sets=["accelerators=8"]).result
    with pytest.raises(InputError, match="a trace holds 0"):
        traces.trace_json(api.step_of(inputs, result.mapping))
