"""Sketches of a result: the timeline counts what the schedule has, the tree and the graph say the mapping, labels lie apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from rackmodel import api
from rackmodel.inputs import read_inputs
from rackmodel.report.roofline import roofline_points
from rackmodel.report.saved import Saved, read_saved
from rackmodel.report.sketch_data import axes_of, graph_of, tree_of
from rackmodel.report.sketches import sketches_of
from rackmodel.report.svg import WIDE, paper
from rackmodel.report.timeline import BINS, _covered, timeline_of
from rackmodel.report.trace import spans_of
from tests.commands import invoke

ASKED = ("rack_paper", "attention", "pipeline_tensor", ["accelerators=24"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("sketched")
    words = ["search", *ASKED[:3], "--set", ASKED[3][0], "-o", str(where)]
    assert invoke(words).exit_code == 0
    return where


def test_coverage_counts_overlaps_once() -> None:
    edges = np.array([0.0, 1.0, 2.0, 4.0])
    times = [(0.5, 1.5), (1.0, 1.25), (3.0, 3.5), (3.0, 3.0)]
    assert _covered(times, edges) == pytest.approx([0.5, 0.5, 0.25])
    assert _covered([], edges) == pytest.approx([0.0, 0.0, 0.0])


def test_the_timeline_has_the_seconds_of_the_schedule(folder: Path) -> None:
    one = read_saved(str(folder))
    inputs = read_inputs(ASKED[0], ASKED[1], mapping=folder / "mapping.yaml")
    assert inputs.mapping is not None
    step = api.step_of(inputs, inputs.mapping)
    data = timeline_of(step)
    assert data["seconds"] == pytest.approx(one.data["latency_s"], rel=1e-9)
    assert data["of"] == len(data["stages"]) == 6
    ops = [
        (span.stage, item.task.phase, float(item.timed(step.hide).seconds[0]))
        for span in spans_of(step)
        if span.kind == "job"
        for item in (step.costs[span.section].items[number] for number in span.members)
        if item.task.kind == "op"
    ]
    each = data["seconds"] / BINS
    for stage, shares in zip(data["stages"], data["shares"], strict=True):
        for phase, row in (("forward", shares[0]), ("backward", shares[1])):
            want = sum(seconds for where, of, seconds in ops if (where, of) == (stage, phase))
            assert sum(row) / 1000 * each == pytest.approx(want, abs=2e-3 * data["seconds"])
    assert np.array(data["shares"]).sum(axis=1).max() <= 1002
    assert sum(data["whole"]) < 1  # bubbles


def test_the_machine_has_the_axes_of_the_mapping_and_the_use_of_its_links() -> None:
    result = api.search("rack_paper", "ffn", "tensor", sets=["accelerators=16"]).result
    assert result.machine is not None
    assert axes_of(result.machine, result.mapping) == {"rack": "tp 16", "system": "tp 16"}
    levels = {level["name"]: level for level in tree_of(result.machine, result.mapping, result.ledger, result.latency_s)}
    busy = result.ledger.group(("component", "level"), "seconds")
    for name, level in levels.items():
        for use in level["uses"]:
            assert use["share"] == pytest.approx(busy[use["what"], name] / result.latency_s)


def test_ports_of_reads_and_writes_that_work_at_once_are_not_added() -> None:
    """4096^3 in 16 bit: 100.7 MB come and go through an L2 of 100 GB/s each way, 1.007 ms; both in turn would be 200 % of the step."""
    sets = ["m=4096", "k=4096", "n=4096", "l2.memory.bandwidth=100 GB/s", "l2.memory.write_bandwidth=100 GB/s"]
    result = api.search("h100", "gemm", "data", sets=sets).result
    assert result.latency_s == pytest.approx(3 * 4096**2 * 2 / 100e9)
    levels = {level["name"]: level for level in tree_of(result.machine, result.mapping, result.ledger, result.latency_s)}
    assert [use["share"] for use in levels["l2"]["uses"]] == pytest.approx([1.0])
    (point,) = roofline_points(result)
    assert point.seconds == pytest.approx(result.latency_s)


def test_weights_that_stream_down_while_gradients_go_up_do_not_use_links_twice() -> None:
    """GPT-3 on two wafers waits for weights, which come all step long; gradients go up in 2/3 of it."""
    result = api.search("cs2", "gpt3_175b", "streaming", sets=["accelerators=2"]).result
    links = result.ledger.where(component="network", level="swarmx")
    down, up = (links.where(action=way).total("seconds") / result.latency_s for way in ("broadcast", "reduce"))
    assert down + up > 1.5
    levels = {level["name"]: level for level in tree_of(result.machine, result.mapping, result.ledger, result.latency_s)}
    (share,) = (use["share"] for use in levels["swarmx"]["uses"] if use["what"] == "network")
    assert share == pytest.approx(down)
    assert 0.99 < share <= 1.0


def test_the_graph_has_every_operation_and_what_it_waits_for() -> None:
    inputs = read_inputs(ASKED[0], ASKED[1], mapper=ASKED[2], sets=ASKED[3])
    result = api.search(*ASKED[:3], sets=ASKED[3]).result
    rows = {row["name"]: row for row in graph_of(inputs.workload, result.mapping)}
    assert list(rows) == list(inputs.workload.ops)
    assert {(before, name) for name, row in rows.items() for before in row["after"]} == {
        (a, b) for a, b in inputs.workload.graph.edges() if a in rows and b in rows and a != b
    }
    assert [row["stage"] for row in rows.values()] == list(range(6))


def boxes(text: str) -> list[tuple[float, float, float, float]]:
    found = []
    for one in ElementTree.fromstring(text).iter():
        if one.tag.endswith("text"):
            words = "".join(part for part in [one.text or "", *(child.tail or "" for child in one)])
            size, x, y = float(one.get("font-size", "0")), float(one.get("x", "0")), float(one.get("y", "0"))
            wide = WIDE * size * len(words)
            left = x - wide if one.get("text-anchor") == "end" else x
            found.append((left, y - 0.8 * size, left + wide, y + 0.2 * size))
    return found


@pytest.mark.parametrize("width", [238.0, 420.0, 504.0])
def test_labels_lie_apart_and_inside(folder: Path, width: float) -> None:
    one = read_saved(str(folder))
    long = {"name": "operation_" * 9, "after": [], "split": "axis: index, " * 20, "stage": 0}
    use = {"what": "network", "share": 1.5, "amount": "1.234 PB", "words": "fully_connected 1.234 TB/s"}
    level = {"name": "level_" * 12, "depth": 7, "count": 131072, "axes": "a 2, " * 30, "uses": [use] * 3}
    data = one.shown["timeline"]
    deep = data | {"stages": [*range(8), *range(56, 64)], "of": 64, "shares": [data["shares"][0]] * 16}
    hard = Saved("x", {}, one.data, one.ledger, {"timeline": deep, "tree": [level] * 3, "graph": [long, {**long, "after": [long["name"]]}]})
    for some in (one, hard):
        for name, (inside, height, _) in sketches_of(some, width).items():
            found = boxes(paper(inside, width, height))
            assert all(a[0] >= 0 and a[2] <= width + 1 and a[3] <= height + 1 for a in found), name
            apart = [a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for k, a in enumerate(found) for b in found[:k]]
            assert all(apart), name


def test_report_draws_them_on_the_page_and_for_a_paper(folder: Path, tmp_path: Path) -> None:
    said = invoke(["report", str(folder), "-o", str(tmp_path / "p.html"), "--figures", str(tmp_path)])
    assert said.exit_code == 0, said.output
    page = (tmp_path / "p.html").read_text()
    assert page.count('class="picture"') == 3
    assert not re.findall(r'style="', page.split('<script type="application/json"')[0])
    for name in ("timeline", "tree", "graph"):
        for size in ("column", "page"):
            ElementTree.parse(tmp_path / f"{name}-{size}.svg")
            assert (tmp_path / f"{name}-{size}.png").stat().st_size > 1000
    assert json.loads((folder / "result.json").read_text())["shown"]["timeline"]["kinds"][3] == "exposed communication"
