"""Verdicts that follow their inputs: margins, readings, conditions over ranges, a study's own findings, and that none is hollow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import read_study
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers import SETS, checks_of
from rackmodel.papers.reads import of_points
from rackmodel.store.study_file import StudyFile
from rackmodel.studies import late
from rackmodel.studies.answer import search_point
from rackmodel.studies.batch import Batch, SolvedPoint
from rackmodel.studies.expressions import needs_of
from rackmodel.studies.findings import NEAR, Need, by_reading, certain, judged, margin_of, near
from rackmodel.studies.late import LatePoints, Solvers
from rackmodel.studies.ranges import Ranges, Ranging
from rackmodel.studies.varied import StudyInput, varied_inputs
from rackmodel.studies.workers import Alone, Processes, Workers
from tests import samples
from tests.audit import verdicts

PAGE = Path(__file__).parents[1] / "docs/papers.md"
NOT_FIRM = ("agrees by construction", "not decidable: an input is not printed")
OWN = """
study: own
architecture: rack_paper
runs:
- {name: main, workload: ffn, mapper: [data, tensor], set: {accelerators: [8, 16]}}
inputs:
  main memory: {set: [system.memory.read_energy, system.memory.write_energy], low: 5 pJ/bit, high: 20 pJ/bit, source: "ASSUMED"}
  GPUs a rack: {values: {"4": {gpu.count: 4, rack.count: 16}}, here: "8", source: "ASSUMED"}
findings:
  least:
    claim: "data parallelism takes the least energy"
    figures:
      dp: {y: energy, where: {mapper: data}, over: accelerators}
      tp: {y: energy, where: {mapper: tensor}, over: accelerators}
    holds: "dp < tp and max(dp) < 2 * min(tp)"
  network:
    claim: "tensor parallelism sends nothing"
    figures: {sent: {y: joules, where: {mapper: tensor, accelerators: 8, component: network}}}
    holds: "sent <= 0"
"""


GPU = "memory: {capacity: 80 GB, bandwidth: %d GB/s}, compute: {rate: 100 TFLOP/s}"
TWO = """
study: two
runs:
- {{name: main, architecture: [{one}, {two}], workload: ffn, mapper: tensor, set: {{accelerators: 4}}}}
inputs:
  link: {{set: box.network.bandwidth, low: 1 GB/s, high: 20 GB/s}}
findings:
  sooner:
    claim: "the faster memory is the sooner"
    figures:
      one: {{y: latency, where: {{architecture: {one}}}}}
      two: {{y: latency, where: {{architecture: {two}}}}}
    holds: "one < two"
"""


def ranging_of(text: str | Path) -> tuple[Ranges, Ranging]:
    spec, tables = read_study(text), carbon_tables()
    checks = checks_of(spec)
    ranges = Ranges(checks, LatePoints(spec), tables)
    return ranges, ranges.over(varied_inputs(spec, checks, tables))


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_margin_is_the_distance_to_the_other_verdict() -> None:
    assert Need("x", 0.8, most=1).margin == pytest.approx(0.2)
    assert Need("x", 2.0, most=1).margin == pytest.approx(-0.5)
    assert margin_of([Need("x", 0.8, most=1), Need("y", 0.9, most=1)]) == pytest.approx(0.1)
    assert margin_of([Need("x", 0.8, most=1), Need("y", 2.0, most=1), Need("z", 4.0, most=1)]) == pytest.approx(-0.75)
    assert near("x", 1.05, 1.0, 0.1).margin > 0 > near("x", 1.2, 1.0, 0.1).margin


def test_what_hangs_on_a_ten_thousandth_is_not_decidable() -> None:
    one = judged("X", "Figure 1", "claim", [Need("x", 1.0001, most=1)], {})
    assert (one.verdict, one.said) == ("not decidable", "not decidable: margin 1e-04")
    assert judged("X", "", "claim", [Need("x", 1.01, most=1)], {}).verdict == "disagrees"
    sure = certain("X", "", "claim", Need("x", 0.0, most=0), {}, "nothing to send")
    assert sure.said == "agrees by construction"


def test_readings_that_differ_decide_nothing_and_say_so() -> None:
    low, high = [Need("x", 0.5, most=1)], [Need("x", 2.0, most=1)]
    assert by_reading("X", "", "claim", {"a": low, "b": low}, {}).verdict == "agrees"
    assert by_reading("X", "", "claim", {"a": low, "b": high}, {}).said == "not decidable: agrees if a; disagrees if b"


# -- the grammar -------------------------------------------------------------------------------------------------------


def test_comparisons_hold_for_every_value_and_the_nearest_decides() -> None:
    figures = {"dp": np.array([1.0, 3.0]), "tp": np.array([2.0, 4.0]), "one": np.array([1.0])}
    (need,) = needs_of("dp < tp", figures, "holds")
    assert need.margin == pytest.approx(0.25)
    first, second = needs_of("0.5 * max(dp) <= one * 2 and min(tp, dp) - 1 >= -1", figures, "holds")
    assert (first.value, first.most, second.value, second.least) == (1.5, 2.0, 0.0, -1.0)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x') < 1",
        "dp.real < 1",
        "dp[0] < 1",
        "dp ** 2 < 1",
        "dp",
        "dp < tp or 1 < 2",
        "sq(dp) < 1",
        "(",
        "dp < 'a'",
    ],
)
def test_nothing_but_comparisons_of_arithmetic_is_read(text: str) -> None:
    with pytest.raises(InputError) as caught:
        needs_of(text, {"dp": np.array([1.0]), "tp": np.array([2.0])}, "findings.x.holds")
    assert caught.value.path == "findings.x.holds"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dp" + "+dp" * 4000 + " < 1", "has 12006 characters: at most 1000 are read"),
        ("dp" + "+dp" * 60 + " < 1", None),
        ("-" * 900 + "dp < 1", "nested too deep"),
        ("dp < 1e400", "too large a number"),
    ],
)
def test_a_comparison_is_as_long_and_deep_as_a_person_writes(text: str, said: str | None) -> None:
    """The first and third ended in tracebacks; the last held whatever was found."""
    figures = {"dp": np.array([1.0]), "tp": np.array([2.0])}
    if said is None:
        assert needs_of(text, figures, "findings.x.holds")[0].value == 61
    else:
        with pytest.raises(InputError, match=said):
            needs_of(text, figures, "findings.x.holds")


def test_an_unknown_figure_is_named_with_its_nearest() -> None:
    with pytest.raises(InputError, match="no figure called 'dq'") as caught:
        needs_of("dq < 1", {"dp": np.array([1.0])}, "findings.x.holds")
    assert "dp" in str(caught.value)


# -- a study's own findings over ranges --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Ranging:
    return ranging_of(OWN)[1]


def test_a_verdict_says_where_it_turns_and_on_what_it_rests(own: Ranging) -> None:
    found = {one.name: one for one in own.findings}
    assert found["least"].verdict == "disagrees"
    assert found["least"].said.startswith("disagrees; agrees where main memory <= ")
    assert " pJ/bit (ASSUMED 20 pJ/bit)" in found["least"].said
    assert found["least"].rests == ("main memory", "GPUs a rack")
    assert found["network"].said == "disagrees over all ranges"


def test_the_value_at_which_it_turns_is_that_of_the_energies(own: Ranging) -> None:
    # joules are linear in pJ/bit: dp(e) = a + b e, so that the crossing follows from two evaluations at each count
    spec = read_study(OWN)
    late = LatePoints(spec)
    (memory, _) = varied_inputs(spec, (), carbon_tables())

    def gap(value: str, n: int) -> float:
        points = late.under(memory.change(value))
        dp, tp = (points.one(mapper=m, accelerators=n).energy_j for m in ("data", "tensor"))
        return dp - (1 - NEAR) * tp  # what is nearer decides nothing

    crossing = min(5 + 15 * -gap("5 pJ/bit", n) / (gap("20 pJ/bit", n) - gap("5 pJ/bit", n)) for n in (8, 16))
    (turn,) = [turn for turn in own.turns if turn.finding == "least" and turn.input.name == "main memory"]
    assert turn.crossings[0] == pytest.approx(crossing, rel=0.01)


def test_ends_of_a_range_may_be_in_other_units_than_its_middle(own: Ranging) -> None:
    """5 pJ/bit are 40 pJ/byte. (Until 30 November 2026 numbers of both units were halved as if of one.)"""
    again = ranging_of(OWN.replace("low: 5 pJ/bit", "low: 40 pJ/byte"))[1]
    assert [one.said for one in again.findings] == [one.said for one in own.findings]
    with pytest.raises(InputError, match="ends of unlike units: '5 pJ' and '20 pJ/bit'"):
        ranging_of(OWN.replace("low: 5 pJ/bit", "low: 5 pJ"))


def test_an_input_is_of_every_machine_that_says_it_alike(tmp_path: Path) -> None:
    """Two machines with one link: the faster memory is the sooner whatever the link, if both have it. (Until 30 November 2026 an input
    that says no `where` was varied on the first machine alone.)"""
    for name, speed in (("one", 10), ("two", 5)):
        gpu = f"{{name: gpu, count: 4, accelerator: true, {GPU % speed}}}"
        tree = f"{{name: box, network: {{topology: ring, bandwidth: 10 GB/s}}, children: [{gpu}]}}"
        (tmp_path / f"{name}.yaml").write_text(f"architecture: {name}\ntree: {tree}\n", encoding="utf-8")
    text = TWO.format(one=tmp_path / "one.yaml", two=tmp_path / "two.yaml")
    (found,) = ranging_of(text)[1].findings
    assert found.said == "agrees over all ranges"
    machines = [str(tmp_path / f"{name}.yaml") for name in ("one", "two")]
    (link,) = varied_inputs(read_study(text), (), carbon_tables())
    assert link.where == {"architecture": tuple(machines)}
    alone = text.replace("set: box.network.bandwidth", f"set: box.network.bandwidth, where: {{architecture: {machines[0]}}}")
    assert ranging_of(alone)[1].findings[0].said.startswith("agrees where link >= ")
    with pytest.raises(InputError, match=r"says 10 GB/s, (?s:.)*two.yaml 5 GB/s: say which is meant, as where: {architecture: "):
        ranging_of(text.replace("set: box.network.bandwidth, low: 1 GB/s", "set: gpu.memory.bandwidth, low: 1 GB/s"))


def test_two_points_are_never_added_up() -> None:
    for old, new, said in (
        (
            "where: {mapper: tensor, accelerators: 8, component: network}",
            "where: {component: network}",
            "4 points match: choose by mapper",
        ),
        ("accelerators: 8, component", "accelerators: 7, component", "no point has run 'main'"),
    ):
        spec = read_study(OWN.replace(old, new))
        _, network = checks_of(spec)
        with pytest.raises(InputError, match=said):
            network(LatePoints(spec).under(), carbon_tables())
    with pytest.raises(InputError, match=r"18:25: findings.network.figures.sent.y: 'watts' is not allowed(?s:.)*known: latency, energy"):
        read_study(OWN.replace("y: joules", "y: watts"))


class Counted:
    """Who solves batches here, and how many points that were."""

    def __init__(self, by: Workers) -> None:
        self.by, self.count, self.solved = by, by.count, 0

    def solve(self, batches: Iterable[Batch]) -> Iterator[list[SolvedPoint]]:
        for solved in self.by.solve(batches):
            self.solved += len(solved)
            yield solved


def ranged_by(by: Counted, file: Path | None) -> tuple[Ranging, dict[str, list[dict[str, Any]]]]:
    spec, tables = read_study(OWN), carbon_tables()
    checks = checks_of(spec)
    with StudyFile(file) as kept:
        ranges = Ranges(checks, LatePoints(spec, solvers=Solvers(kept, by)), tables)
        ranging = ranges.over(varied_inputs(spec, checks, tables))
        return ranging, ranges.drawn([turn for turn in ranging.turns if turn.meant])


@pytest.mark.parametrize("count", [1, 2])
def test_points_that_processes_price_ahead_turn_the_same_verdicts_and_are_kept(
    count: int, own: Ranging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "FEW", 1)
    alone, by, again = search_point, Counted(Processes(count) if count > 1 else Alone()), Counted(Alone())
    searched = list[object]()
    monkeypatch.setattr(late, "search_point", lambda point, *more: searched.append(point) or alone(point, *more))
    found, rows = ranged_by(by, tmp_path / "study.sqlite")
    assert (found.findings, [vars(turn) for turn in found.turns]) == (own.findings, [vars(turn) for turn in own.turns])
    assert by.solved > 0
    assert searched == []  # all that is read was priced ahead
    assert ranged_by(again, tmp_path / "study.sqlite")[1] == rows
    assert again.solved == 0
    assert searched == []


def test_without_named_inputs_the_facts_with_a_range_are_varied() -> None:
    text = OWN.split("inputs:")[0] + "findings:" + OWN.split("findings:")[1]
    spec = read_study(text)
    names = [varied.name for varied in varied_inputs(spec, checks_of(spec), carbon_tables())]
    assert {"system.memory.read_energy", "gpu.memory.write_energy", "thread.compute.rate"} <= set(names)


# -- no verdict is hollow ----------------------------------------------------------------------------------------------


def unturned(name: str) -> set[str]:
    """Findings of a study that no value of any of its inputs turns."""
    spec, tables = read_study(name), carbon_tables()
    checks = checks_of(spec)
    ranges = Ranges(checks, LatePoints(spec), tables)
    inputs: list[StudyInput] = varied_inputs(spec, checks, tables)
    points = ranges.points.under()
    plain = [one for check in checks for one in check(points, tables)]
    assert all(one.by_construction == "" or len(one.by_construction) > 20 for one in plain)
    return {one.name for one in plain if verdicts.firm(one)} - ranges.turned(inputs)


TABLES_ALONE = ["act", "hnlpu_tco", "wafer_carbon"]


@pytest.mark.parametrize("name", samples.some(TABLES_ALONE, 3))
def test_every_verdict_of_a_study_of_tables_turns_with_some_input(name: str) -> None:
    assert unturned(name) == set()


QUICK = {
    "hardwired": [f"H{number:02d}" for number in range(1, 9)],
    "row_pipeline": ["R-pays"],
    "iso_compute": ["I-ffn-tensor"],
    "rack_paper": ["A02", "A07", "A08-reads", "A09-modest", "A11", "A14"],
    "weight_streaming": ["W01", "W02", "W03-stages", "W06", "W09", "W13"],
    "wafer_vs_gpu": ["G02", "G03"],
}
"""Findings whose points are soon priced; `make audit AUDIT=verdicts` asks all that tests/data/witnesses.yaml has."""


@pytest.mark.parametrize("study", QUICK)
def test_an_input_of_a_study_turns_the_verdict(study: str) -> None:
    kept = verdicts.kept()[study]
    assert [fault for name in QUICK[study] if (fault := verdicts.fault(study, name, kept[name]))] == []


def on_the_page() -> dict[str, dict[str, str]]:
    """Study → finding → verdict, of every finding of docs/papers.md, where `make papers` has them all."""
    found: dict[str, dict[str, str]] = {}
    study = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            study = line.split("`")[1] if line.startswith("### Study") else ""
        elif study and line.startswith("| ") and not line.startswith("| finding |"):
            cells = line.replace("\\|", "/").split(" | ")
            found.setdefault(study, {})[cells[0].removeprefix("| ")] = cells[4]
    return found


def test_every_finding_of_every_study_is_asked() -> None:
    page, kept = on_the_page(), verdicts.kept()
    assert set(SETS) == set(page) == {*TABLES_ALONE, *kept}
    for study, witnesses in kept.items():
        firm = {name for name, said in page[study].items() if not said.startswith(NOT_FIRM)}
        assert (study, set(witnesses)) == (study, firm)
        assert {one["check"] for one in witnesses.values()} <= set(range(len(checks_of(read_study(study)))))


def test_a_finding_that_nothing_turns_is_told() -> None:
    ranges, _ = ranging_of(OWN)
    constant = of_points(lambda points: judged("X", "", "whatever comes out, it agrees", [Need("one half", 0.5, most=1)], {}))
    ranges.checks = [*ranges.checks, *constant]
    found, hollow = verdicts.sought(ranges, varied_inputs(read_study(OWN), ranges.checks, carbon_tables()))
    assert (set(found), hollow) == ({"least"}, ["network", "X"])
