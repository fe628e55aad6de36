"""How sure a ranking is: shares of samples and values at which it turns, by hand and through `compare --samples`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.carbon.job import Usage
from rackmodel.cli.progress import counting
from rackmodel.cli.ranking import print_ranking, ranking_data
from rackmodel.cli.search import write_top
from rackmodel.inputs.ranged import Fact
from rackmodel.inputs.read import read_inputs
from rackmodel.searches import best_objective, search_mapper
from rackmodel.studies import ranked_cells
from rackmodel.studies.ranking import RangedNumber, RankedPair, moving, ranged_number, ranking
from rackmodel.studies.varied import Amount
from rackmodel.watch import UNWATCHED
from tests.commands import invoke

MACHINE = """\
architecture: {name}
tree:
  name: box
  network: {{topology: switch, bandwidth: 100 GB/s, latency: 0 us}}
  children:
  - name: chip
    accelerator: true
    memory: {{capacity: 80 GB, bandwidth: 100 TB/s, read_energy: {{low: 1 pJ/bit, mid: 2 pJ/bit, high: 4 pJ/bit, source: ASSUMED}}}}
    compute: {{rate: {rate}}}
"""
RANGE = "{low: 50 TFLOP/s, mid: 100 TFLOP/s, high: 200 TFLOP/s, source: 'ASSUMED: for this test'}"
WORKLOAD = """\
workload: product
phases: [forward]
sizes: {m: 4096}
einsums: {multiply: "Y[m,n] = X[m,k] * W[k,n]"}
""".replace("{m: 4096}", "{m: 4096, k: 4096, n: 4096}")


def number(name: str, low: float, mid: float, high: float) -> RangedNumber:
    return RangedNumber((name, 1, 1), name, Amount(low, "s"), Amount(mid, "s"), Amount(high, "s"), "ASSUMED")


def test_shares_and_flips_by_hand() -> None:
    """A takes x, B takes 3 + y - y: x over 2 to 4 is less than 3 in half of the samples; y is read by both alike and turns nothing."""
    x, y = number("x", 2, 2.5, 4), number("y", 1, 2, 9)

    def judge(values):
        def at(one):
            return values.get(one.place, one.mid).number

        return [at(x) + at(y), 3 + at(y), 3 + at(y)]

    first, second = ranking(["a", "b", "c"], [x, y], judge, 40, 1)
    assert (first.first, first.second, second.second) == ("a", "b", "c")
    assert (first.won, first.even, first.lost, first.share) == (20, 0, 20, 0.5)
    assert [flip.words() for flip in first.flips] == ["x >= 3 s (ASSUMED 2.5 s)"]


def test_a_wide_range_is_drawn_by_factors_and_what_fits_nowhere_loses() -> None:
    """x over 1 to 10,000, every factor alike: a quarter lies below 10, where alone A, of x, beats B, of 10; above 1,000 A fits nowhere."""
    x = number("x", 1, 2, 10_000)

    def judge(values):
        here = values.get(x.place, x.mid).number
        return [here if here <= 1000 else float("inf"), 10.0]

    (pair,) = ranking(["a", "b"], [x], judge, 40, 7)
    assert (pair.won, pair.lost) == (10, 30)
    assert [(flip.end, flip.value) for flip in pair.flips] == [(">=", "10 s")]


def test_a_number_that_another_hides_is_drawn_with_it() -> None:
    """A takes the longer of x, 0.5 to 4, and y, 0 to 2, which is 1 as the files have it and moves nothing while x is 2; B takes 1.5. A is
    less where both are below 1.5: in 1 / 3.5 of the samples by x, of which 3/4 by y. (y was left at 1 until 30 November 2026: 1 / 3.5.)"""
    x, y, read_by_none = number("x", 0.5, 2, 4), number("y", 0, 1, 2), number("z", 0, 1, 2)
    asked = list[dict]()

    def judge(values):
        asked.append(dict(values))
        return [max(values.get(one.place, one.mid).number for one in (x, y)), 1.5]

    (pair,) = ranking(["a", "b"], [x, y, read_by_none], judge, 2000, 1, None, [{x.place, y.place}, {read_by_none.place}])
    assert (pair.first, pair.second) == ("b", "a")
    assert pair.lost / 2000 == pytest.approx(3 / 4 / 3.5, abs=0.01)
    assert [(flip.name, flip.end, flip.value) for flip in pair.flips] == [("x", "<=", "1.5 s")]
    assert sum(read_by_none.place in values for values in asked) < 10  # to see that it moves nothing: in no sample


def test_numbers_that_count_are_found_by_their_kind_with_few_questions() -> None:
    """Of 3 x 21 energies, powers and latencies two latencies count: groups are parted between kinds, and at their low ends first."""
    numbers = [number(f"{n}.{kind}", 1, 2, 3) for n in range(21) for kind in ("energy", "power", "latency")]
    two, waves = [numbers[2].place, numbers[59].place], list[list[int]]()

    def jury(many, what):
        assert what == "which of 63 ranges count"
        waves.append([len(values) for values in many])
        return [[sum(values[place].number if place in values else 2.0 for place in two)] for values in many]

    assert [one.place for one in moving(numbers, jury)] == two
    assert waves[:8] == [[0], [63], [], [21, 42], [21], [21, 21], [21], [10, 11]]
    assert sum(map(len, waves)) == 31  # were it one by one, 2 x 63


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    for name, rate in (("a", RANGE), ("b", "80 TFLOP/s"), ("c", RANGE.replace("mid: 100", "mid: 60"))):
        (tmp_path / f"{name}.yaml").write_text(MACHINE.format(name=name, rate=rate), encoding="utf-8")
    (tmp_path / "w.yaml").write_text(WORKLOAD, encoding="utf-8")
    (tmp_path / "m.yaml").write_text("mapper: alone\naxes: {dp: {degree: all}}\nsplit: {dp: [m]}\n", encoding="utf-8")
    return tmp_path


def compared(folder: Path, machines: str, *more: str) -> dict:
    names = ",".join(str(folder / f"{name}.yaml") for name in machines)
    done = invoke(["compare", names, str(folder / "w.yaml"), str(folder / "m.yaml"), *more, "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def test_compare_says_in_what_share_of_samples_a_machine_is_the_faster(machines: Path) -> None:
    """Time goes by 1 / rate: 50 to 200 TFLOP/s beat 80 in (200 - 80) / 150 = 80 % of the samples, to 80 TFLOP/s alone."""
    found = compared(machines, "ab", "--samples", "10")["ranking"]
    (pair,) = found["pairs"]
    assert pair["share"] == 0.8
    assert [(flip["name"], flip["end"], flip["value"]) for flip in pair["flips"]] == [("a: chip.compute.rate", "<=", "80 TFLOP/s")]
    assert compared(machines, "ab", "--samples", "10")["ranking"] == found
    assert compared(machines, "ab", "--samples", "10", "--set", "chip.compute.rate*=0.5")["ranking"]["pairs"][0]["share"] == 0.8


def test_a_range_may_be_written_in_several_units(machines: Path) -> None:
    """(Until 30 November 2026 it was in no sample, and nothing said so.)"""
    plain = compared(machines, "ab", "--samples", "10")["ranking"]
    text = (machines / "a.yaml").read_text(encoding="utf-8")
    (machines / "a.yaml").write_text(text.replace("high: 200 TFLOP/s", "high: 0.2 PFLOP/s"), encoding="utf-8")
    assert compared(machines, "ab", "--samples", "10")["ranking"] == plain
    zero = ranged_number(Fact("host.layer", "0 s", "0 s", "10 ms"), ("p.yaml", 1, 1))
    assert zero is not None
    assert (str(zero.low), str(zero.mid), str(zero.high)) == ("0 ms", "0 ms", "10 ms")
    assert ranged_number(Fact("x", "1 s", "1 m", "2 m"), ("p.yaml", 1, 1)) is None


def test_samples_that_processes_search_say_what_one_says(machines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ",".join(str(machines / f"{name}.yaml") for name in "abc")
    cells = api.cells(names, str(machines / "w.yaml"), [str(machines / "m.yaml")])
    monkeypatch.setattr(ranked_cells, "WORTH", 0.0)
    alone, numbers = ranked_cells.ranked(cells, None, None, 20, seed=3)
    assert ranked_cells.ranked(cells, None, None, 20, seed=3, count=2) == (alone, numbers)
    assert [pair.won + pair.even + pair.lost for pair in alone] == [20, 20]
    assert not ranked_cells._SIDES


def test_a_side_is_searched_once_under_equal_values_of_its_own_numbers(machines: Path) -> None:
    """b has one range, which no time reads; a has that and its rate: of a's ends the low one is known by then."""
    names = ",".join(str(machines / f"{name}.yaml") for name in "ab")
    cells = api.cells(names, str(machines / "w.yaml"), [str(machines / "m.yaml")])
    done = dict[str, int]()

    def tell(what: str, so_far: int, of: int) -> None:
        assert 0 <= so_far <= of
        done[what] = done.get(what, 0) + (of if so_far == of else 0)

    ranked_cells.ranked(cells, None, None, 20, tell=tell)
    assert done["20 samples"] == 20
    assert done["the ends of ranges"] == 1


def test_a_terminal_is_told_how_many_searches_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, clock = Terminal(), iter([0.0, 0.0, 10.0, 20.0])
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("time.monotonic", lambda: next(clock, 20.0))
    with counting("searches") as tell:
        for done in (0, 10, 20):
            tell("200 samples", done, 400)
    said = [line.strip() for line in terminal.getvalue().split("\r") if line.strip()]
    assert said[-1] == "20/400 searches, 200 samples, 1 a second, 6 min left"
    assert terminal.getvalue().endswith("\r")


def test_a_number_that_both_sides_read_is_one_number(machines: Path) -> None:
    """The same machine in two files, that extend a third: whatever its rate is, both have it."""
    for name in ("d", "e"):
        (machines / f"{name}.yaml").write_text(f"architecture: {name}\nextends: ./a.yaml\n", encoding="utf-8")
    (pair,) = compared(machines, "de", "--samples", "5")["ranking"]["pairs"]
    assert (pair["won"], pair["even"], pair["lost"], pair["flips"]) == (0, 5, 0, [])


def test_what_cannot_be_ranked_is_refused(machines: Path) -> None:
    words = [str(machines / name) for name in ("b.yaml", "w.yaml", "m.yaml")]
    assert "one side alone" in str(invoke(["compare", *words, "--samples", "3"]).exception)
    assert "1 to 100000" in str(invoke(["compare", *words, "--samples", "0"]).exception)


def test_the_best_few_are_files_that_evaluate_prices_to_the_same(tmp_path: Path) -> None:
    answer = api.search("rack_paper", "ffn", "auto", sets=["accelerators=4"], top=3)
    table, second, *_ = write_top(answer, tmp_path)
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["number"] for row in rows] == [str(number + 1) for number in range(len(rows))]
    assert len(rows) > 1
    assert api.evaluate("rack_paper", "ffn", str(second)).latency_s == pytest.approx(float(rows[1]["latency_s"]), rel=1e-12)
    assert float(rows[1]["more"]) == pytest.approx(float(rows[1]["latency_s"]) / float(rows[0]["latency_s"]) - 1)


SITED = """\
architecture: {name}
site: {{grid: "{grid} g/kWh", pue: {pue}}}
tree:
  name: chip
  accelerator: true
  memory: {{capacity: 80 GB, bandwidth: 1 TB/s, read_energy: 2 pJ/bit}}
  compute: {{rate: 80 TFLOP/s}}
"""


def test_carbon_of_two_machines_is_ranked_in_grams_over_their_sites(tmp_path: Path) -> None:
    """By hand, of equal joules: 100 g/kWh at PUE 1.2 is less than 150 at 1, and more from 1.5 on."""
    pue = "{low: 1, mid: 1.2, high: 2, source: 'ASSUMED: for this test'}"
    (tmp_path / "p.yaml").write_text(SITED.format(name="p", grid=100, pue=pue), encoding="utf-8")
    (tmp_path / "q.yaml").write_text(SITED.format(name="q", grid=150, pue=1), encoding="utf-8")
    (tmp_path / "w.yaml").write_text(WORKLOAD, encoding="utf-8")
    words = ["compare", f"{tmp_path / 'p.yaml'},{tmp_path / 'q.yaml'}", str(tmp_path / "w.yaml"), "data", "--set", "split.dp=[m]"]
    said = invoke([*words, "--minimize", "carbon", "--samples", "40", "--json"])
    assert said.exit_code == 0, said.output
    (pair,) = json.loads(said.stdout)["ranking"]["pairs"]
    assert (pair["first"], pair["second"], pair["won"]) == ("data on p", "data on q", 20)
    assert [(flip["name"], flip["end"], flip["value"]) for flip in pair["flips"]] == [("p: site.pue", ">=", "1.5")]
    refused = invoke([*words, "--minimize", "cdp", "--samples", "4"])
    assert "cdp of several machines wants what each is made of, which p does not say" in str(refused.exception)


MADE = """\
  embodied: {parts: {board: {boundary: module, carbon: {low: 10 kg, mid: 30 kg, high: 100 kg, source: 'ASSUMED: for this test'}}}}
"""


def test_what_a_machine_is_made_of_and_where_it_stands_is_searched_for_no_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grams and CDP order a machine's mappings as joules and seconds do: one search of either side for all of the samples, whose figures
    are those of a search of their own; blends of both (tcdp) are searched anew under other weights."""
    pue = "{low: 1, mid: 1.2, high: 2, source: 'ASSUMED: for this test'}"
    for name, grid in (("p", 100), ("q", 150)):
        text = SITED.format(name=name, grid=grid, pue=pue).rstrip("\n") + "\n" + MADE
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "w.yaml").write_text(WORKLOAD, encoding="utf-8")
    cells = api.cells(f"{tmp_path / 'p.yaml'},{tmp_path / 'q.yaml'}", str(tmp_path / "w.yaml"), ["data"], sets=["split.dp=[m]"])
    asked = list[str]()

    def counted(*given, minimize, **more):
        asked.append(minimize)
        return best_objective(*given, minimize=minimize, **more)

    monkeypatch.setattr(ranked_cells, "best_objective", counted)
    for goal, order, searches in (("carbon", "energy", 2), ("cdp", "latency", 2)):
        asked.clear()
        ranked_cells.ranked(cells, goal, None, 6)
        assert asked == [order] * searches
    for goal in ("carbon", "cdp", "tcdp"):
        bench = ranked_cells._Bench(tuple(cells), goal, None, Usage(), None)
        for side in bench.sides:
            places = [number.place for number in side.numbers]
            for share in (0.25, 0.75):
                own = side.own({place: number.at(share) for place, number in zip(places, side.numbers, strict=True)})
                changed = [f"{path}={value}" for path, value in own]
                machine = api.read_inputs(side.cell.machine, str(tmp_path / "w.yaml"), sets=changed).architecture
                alone = search_mapper(machine, side.cell.inputs.workload, side.cell.inputs.mapper, minimize=goal).result
                assert side.searched(own, UNWATCHED) == alone.certificate.objective


@pytest.mark.parametrize(
    ("goal", "kept"),
    [
        ("latency", []),
        ("carbon", ["the carbon tables"]),
        ("money", ["the machine's life", "its share at work"]),
        ("total_carbon", ["the carbon tables", "the machine's life", "its share at work"]),
    ],
)
def test_a_ranking_says_which_ranges_no_sample_draws(goal: str, kept: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Those of HBM, fabs and grids, of a life and of the share of it at work: they move total carbon more than a machine's file does."""
    pair = RankedPair(first="a", second="b", won=3, even=0, lost=1, flips=())
    assert ranking_data([pair], [], goal, 1)["at_their_middles"] == kept
    print_ranking([pair], [], goal, 1)
    assert ("at their middles" in capsys.readouterr().out) == bool(kept)


@pytest.mark.parametrize("goal", ["latency", "energy", "edp", "carbon", "cdp", "total_carbon", "memory", "latency,energy"])
def test_what_a_side_is_ranked_by_is_what_its_search_says(goal: str) -> None:
    given = read_inputs("dgx_h100", "llama3_8b", mapper="megatron", sets=["accelerators=16", "b=16"])
    assert given.mapper is not None
    asked = given.architecture, given.workload, given.mapper
    assert best_objective(*asked, minimize=goal) == search_mapper(*asked, minimize=goal).result.certificate.objective
