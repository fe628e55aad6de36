"""One job, one carbon figure: a step, a run and a token have the same shares in every command, and they add up."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel import api
from rackmodel.carbon.flips import flips
from rackmodel.carbon.job import LIFETIME, Usage
from rackmodel.carbon.ranges import Ranged, factor
from rackmodel.carbon.trace import hour_names, read_trace, starts
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table, read_architecture
from rackmodel.results import carbon_of, known_bill, rates_of
from rackmodel.units import Quantity
from tests.commands import invoke

WORDS = [
    "dgx_h100",
    "llama3_8b",
    "megatron",
    "--set",
    "accelerators=32",
    "--set",
    "b=32",
    "--set",
    "layers=4",
    "--profile",
    "megatron_core",
]


def told(*words: str) -> dict[str, Any]:
    done = invoke([*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def step() -> dict[str, Any]:
    return told("search", *WORDS, "--tokens", "1e9")


def test_shares_by_hand() -> None:
    machine = read_architecture("dgx_h100", ["accelerators=8"])
    half = Quantity.make(0.5, 0.5, 0.5, None, "50 %")
    rates = rates_of(machine, Usage(active=half))
    bill = known_bill(machine)
    assert rates is not None
    assert bill is not None
    job = rates.of(1000.0, 2.0)
    per_joule = 1.1 * 301 / 3.6e6
    assert job.use_g.mid == pytest.approx(1000 * per_joule)
    assert job.idle_g.mid == pytest.approx(2 * static_watts(machine) * per_joule)  # waits for as long as it works
    assert job.embodied_g is not None
    assert job.embodied_g.mid == pytest.approx(bill.total_g().mid * 2 / (0.5 * LIFETIME))
    assert job.total_g.mid == pytest.approx(job.use_g.mid + job.idle_g.mid + job.embodied_g.mid)
    there = {"grid": "world, 301 g/kWh", "PUE": "1.1"}
    assert dict(job.basis) == {**there, "boundary": "network", "at work": "50 %", "life": "4 years (3 to 5)"}


def test_a_step_has_one_figure_in_search_compare_and_carbon(step: dict[str, Any]) -> None:
    searched = step["result"]["carbon"]
    compared = told("compare", *WORDS)["results"][0]["carbon"]
    assert compared == searched
    told_by_carbon = told("carbon", *WORDS)["work"]["carbon"]
    for name in ("use", "idle", "total"):
        assert told_by_carbon[name]["mid"] == pytest.approx(searched[name]["mid"], rel=1e-9)
    assert told_by_carbon["share of embodied"]["high"] == pytest.approx(searched["embodied"]["high"], rel=1e-9)
    assert searched["use"]["mid"] == pytest.approx(step["result"]["carbon_g"], rel=1e-9)


def test_compare_takes_the_life_the_share_at_work_and_the_boundary_that_carbon_takes(step: dict[str, Any]) -> None:
    """By hand: half of its life at work it waits as long as it works; three years instead of four; modules of 32 GPUs alone."""
    used = ("--active", "50 %", "--lifetime", "3 year", "--boundary", "module")
    result = told("compare", *WORDS, *used)["results"][0]
    job, carbon = result["carbon"], told("carbon", *WORDS, *used)
    assert job["basis"]["boundary"] == "module"
    machine = read_architecture("dgx_h100", ["accelerators=32"])
    assert job["idle"]["mid"] == pytest.approx(static_watts(machine) * result["latency_s"] * 1.1 * 301 / 3.6e6, rel=1e-9)
    made = carbon["bill"]["boundaries"]["module"]["mid"]
    assert job["embodied"]["mid"] == pytest.approx(made * result["latency_s"] / (0.5 * 0.75 * LIFETIME), rel=1e-9)
    assert job["embodied"] == pytest.approx(carbon["work"]["carbon"]["share of embodied"], rel=1e-9)
    assert job["use"] == step["result"]["carbon"]["use"]


def test_a_run_is_its_steps(step: dict[str, Any]) -> None:
    run, one = step["run"], step["result"]["carbon"]
    for name in ("use", "idle", "embodied", "total"):
        assert run["carbon"][name]["mid"] == pytest.approx(run["steps"] * one[name]["mid"], rel=1e-9)
    assert run["carbon"]["use"]["mid"] == pytest.approx(run["carbon_g"], rel=1e-9)


def test_what_a_gpu_draws_while_busy_is_no_idle_power() -> None:
    """Under a profile with fitted kernels a GPU draws more at work than its static power: idle time knows the latter alone."""
    sets = ["accelerators=32", "b=32", "layers=4"]
    result = api.search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile="megatron_core").result
    assert result.ledger.where(component="static", action="busy").total("joules") > 0
    job, machine = carbon_of(result), result.machine
    assert job is not None
    assert machine is not None
    expected = static_watts(machine) * result.latency_s * (1 - 0.6) / 0.6 * 1.1 * 301 / 3.6e6
    assert job.idle_g.mid == pytest.approx(expected, rel=1e-9)


def test_carbon_at_peak_rates_says_what_power_at_work_it_leaves_out() -> None:
    """Of 32 H100 243 W each over the step: no kernel of `ideal` is a measured one, of which it is known."""
    sets = ["accelerators=32", "b=32", "layers=4"]
    ideal, measured = (
        api.search("dgx_h100", "llama3_8b", "megatron", sets=sets, profile=name).result for name in ("ideal", "megatron_core")
    )
    job, counted = carbon_of(ideal), carbon_of(measured)
    assert job is not None
    assert counted is not None
    more = 100 * 32 * 243 * ideal.latency_s / ideal.energy_j
    assert job.basis["without"] == f"243 W of clocks of each gpu at work, at most {more:.0f} % of the energy more (profile ideal)"
    assert "without" not in counted.basis
    words = ["carbon", *WORDS[:-1], "ideal"]
    assert f"use is without {job.basis['without']}" in " ".join(invoke(words).stdout.split())
    assert "use is without" not in invoke(["carbon", *WORDS]).stdout


def test_a_machine_that_states_nothing_of_itself_has_no_embodied_share() -> None:
    job = carbon_of(api.search("rack_paper", "ffn", "data").result)
    assert job is not None
    assert job.embodied_g is None
    assert job.total_g.mid == pytest.approx(job.use_g.mid + job.idle_g.mid)
    assert carbon_of(api.search("tiny", "gemm", "data").result) is None


@pytest.mark.parametrize(
    ("said", "g_per_kwh", "named"),
    [
        ("sweden", 27, "grid sweden_2025"),
        ("300 g/kWh", 300, "grid 300 g/kWh"),
        ("United States", 380, "grid united_states"),
        ("us", 380, "grid us"),
    ],
)
def test_a_grid_is_a_place_or_its_carbon_itself(said: str, g_per_kwh: float, named: str) -> None:
    machine = read_architecture("h100", [f"site.grid={said}"])
    rates = rates_of(machine)
    assert rates is not None
    assert rates.use_g_per_j.mid * 3.6e6 == pytest.approx(g_per_kwh)
    assert named in rates.use_g_per_j.factors


def test_two_years_of_a_place_mean_the_newest_and_the_table_knows_what_was_taken() -> None:
    assert {"france_2023", "us"} <= set(grid_table())
    assert "grid france_2023" in rates_of(read_architecture("h100", ["site.grid=France"])).use_g_per_j.factors  # type: ignore[union-attr]
    assert "grid taiwan" in rates_of(read_architecture("h100", ["site.grid=Taiwan"])).use_g_per_j.factors  # type: ignore[union-attr]


@pytest.mark.parametrize("said", ["300 W", "380 kg/kWh", "atlantis"])
def test_what_is_no_grid_is_refused(said: str) -> None:
    with pytest.raises(InputError, match=r"site\.grid"):
        read_architecture("h100", [f"site.grid={said}"])


# -- a run by the command ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places() -> dict[str, Any]:
    found = told("carbon", *WORDS, "--tokens", "1e9", "--grid", "sweden,us,300 g/kWh")
    return found["job"] | {"title": found["work"]["title"]}


def test_a_run_on_three_grids_is_the_run_of_search_on_each(places: dict[str, Any], step: dict[str, Any]) -> None:
    assert [one["grid"] for one in places["places"]] == ["sweden_2025", "us", "300 g/kWh"]
    assert places["title"].endswith(", sweden_2025")  # a pass is told on the first of them
    run = step["run"]["carbon"]  # on the site's grid, the world's 301 g/kWh
    for one, g_per_kwh in zip(places["places"], (27, 380, 300), strict=True):
        assert one["use"]["mid"] == pytest.approx(run["use"]["mid"] * g_per_kwh / 301, rel=1e-9)
        assert one["embodied"]["mid"] == pytest.approx(run["embodied"]["mid"], rel=1e-9)
        assert one["per_token"]["mid"] * places["tokens"] == pytest.approx(one["total"]["mid"], rel=1e-9)
        assert one["total"]["low"] < one["total"]["mid"] < one["total"]["high"]
        assert one["intensity_g_per_kwh"]["mid"] == pytest.approx(g_per_kwh, rel=1e-12)
        assert one["use"]["mid"] == pytest.approx(places["energy_j"] / 3.6e6 * 1.1 * one["intensity_g_per_kwh"]["mid"], rel=1e-9)
    sweden = places["places"][0]
    assert [sweden["intensity_g_per_kwh"][end] for end in ("low", "high")] == pytest.approx([24.7, 47])
    assert [one["basis"]["grid"] for one in places["places"]] == ["sweden_2025, 27 g/kWh (24.7 to 47)", "us, 380 g/kWh", "300 g/kWh"]


def test_a_figure_of_carbon_says_its_grid_and_its_pue() -> None:
    done = invoke(["search", *WORDS, "--set", "site.grid=sweden", "--set", "site.pue={low: 1.05, mid: 1.1, high: 1.2}"])
    (words,) = re.findall(r"^carbon: (?:.|\n)*?years \(3\s+to\s+5\)", done.stdout, re.MULTILINE)
    assert "; sweden_2025, 27 g/kWh (24.7 to 47), PUE 1.1 (1.05 to 1.2); out to network, at work" in " ".join(words.split())
    told_of_a_run = invoke(["carbon", *WORDS, "--tokens", "1e9", "--grid", "sweden,us"]).stdout
    assert "\ngrids: sweden_2025, 27 g/kWh (24.7 to 47); us, 380 g/kWh\n" in told_of_a_run
    assert re.search(r"[\d.]+ [kM]?Wh at\s+the\s+machine, PUE 1.1", told_of_a_run)


def test_no_facility_has_a_pue_of_110() -> None:
    with pytest.raises(InputError, match=r"site\.pue.*no facility takes 110 times its IT's \(110 % is 1.1\)"):
        read_architecture("h100", ["site.pue=110"])


def test_its_money_is_electricity_and_a_part_of_the_machine(places: dict[str, Any]) -> None:
    machine = read_architecture("dgx_h100", ["accelerators=32"])
    idle = static_watts(machine) * places["seconds"] * (1 - 0.6) / 0.6
    money = places["money"]
    assert money["electricity"]["mid"] == pytest.approx((places["energy_j"] + idle) * 1.1 / 3.6e6 * 0.095, rel=1e-9)
    capital = 32 * 30e3 + 4 * 120e3 + (32 * 700 + 4 * 2500) * 8
    assert money["owning"]["mid"] == pytest.approx(capital * places["seconds"] / (0.6 * LIFETIME), rel=1e-9)


def test_a_run_is_a_table_a_file_and_a_chart(tmp_path: Path) -> None:
    done = invoke(["carbon", *WORDS, "--steps", "10", "--grid", "sweden,taiwan", "-o", str(tmp_path)])
    assert done.exit_code == 0
    assert "10 steps of llama3_8b" in done.stdout
    rows = list(csv.DictReader((tmp_path / "carbon.csv").read_text().splitlines()))
    assert [row["grid"] for row in rows] == ["sweden_2025", "taiwan"]
    assert float(rows[1]["total_mid_g"]) > float(rows[0]["total_mid_g"])
    assert {"carbon.csv", "carbon.png", "carbon.svg", "carbon.html"} == {path.name for path in tmp_path.iterdir()}


def test_the_best_hours_of_a_trace_by_hand(tmp_path: Path) -> None:
    hours, names = np.array([4.0, 1.0, 2.0, 3.0]), ["mon", "tue", "wed", "thu"]
    best, worst = starts(hours, names, 2 * 3600)
    assert (best.label, best.g_per_j) == ("tue", 1.5)
    assert (worst.label, worst.g_per_j) == ("thu", 3.5)
    assert starts(hours, names, 1.5 * 3600)[0].g_per_j == pytest.approx((1 + 2 / 2) / 1.5)
    assert starts(hours, names, 400 * 3600)[0].g_per_j == starts(hours, names, 400 * 3600)[1].g_per_j == 2.5
    file = tmp_path / "grid.csv"
    file.write_text("time,g_per_kwh\nnight,50\nday,400\n", encoding="utf-8")
    found = told("carbon", *WORDS, "--steps", "1", "--trace", str(file))["job"]["hours"]
    assert (found["best"]["label"], found["worst"]["label"]) == ("night", "day")
    assert found["worst"]["use_g"] == pytest.approx(8 * found["best"]["use_g"])


@given(st.lists(st.floats(1, 2000), min_size=1, max_size=30), st.floats(0.1, 100))
def test_no_start_is_greener_than_the_best(grams: list[float], hours: float) -> None:
    best, worst = starts(np.array(grams), [str(n) for n in range(len(grams))], hours * 3600)
    assert min(grams) * (1 - 1e-9) <= best.g_per_j <= np.mean(grams) * (1 + 1e-9)
    assert best.g_per_j <= worst.g_per_j * (1 + 1e-9)
    assert worst.g_per_j <= max(grams) * (1 + 1e-9)


def test_a_node_that_copies_of_a_workload_share_draws_its_power_once() -> None:
    """Eight copies of one GPU each on one DGX H100: eight times what a GPU draws beside static power, and the node's 2.5 kW once."""
    words = ["dgx_h100", "llama3_8b_block", "auto", "--set", "b=8"]
    (found,) = told("cost", *words, "--set", "accelerators=8", "--each", "1")["machines"]
    alone = told("search", *words, "--set", "accelerators=1")["result"]
    own = alone["energy_j"] / alone["latency_s"] - (2500 + 75)
    assert found["figures"]["IT power at work"]["mid"] == pytest.approx(8 * (own + 75) + 2500)
    (two,) = told("cost", *words, "--set", "accelerators=8", "--each", "3")["machines"]  # two of three GPUs, and two GPUs that wait
    three = told("search", *words, "--set", "accelerators=3")["result"]
    own = three["energy_j"] / three["latency_s"] - (2500 + 3 * 75)
    assert two["figures"]["IT power at work"]["mid"] == pytest.approx(2 * own + 8 * 75 + 2500)


def test_where_work_runs_in_green_hours_the_machine_waits_in_dirty_ones(tmp_path: Path) -> None:
    """Half of the hours at work: at night, 50 g/kWh, it waits by day, 400 g/kWh, and the other way round. Use is of the work alone."""
    file = tmp_path / "grid.csv"
    file.write_text("time,g_per_kwh\nnight,50\nday,400\n", encoding="utf-8")
    job = told("carbon", *WORDS, "--steps", "1", "--trace", str(file), "--active", "50 %", "--lifetime", "4 year")["job"]
    (place,) = job["places"]
    use, wait = (1.1 / 3.6e6 * joules for joules in (job["energy_j"], job["seconds"] * (4 * 2500 + 32 * 75)))
    assert [place["use"][end] for end in ("low", "mid", "high")] == pytest.approx([50 * use, 225 * use, 400 * use])
    assert [place["idle"][end] for end in ("low", "mid", "high")] == pytest.approx([50 * wait, 225 * wait, 400 * wait])
    made = place["embodied"]
    assert place["total"]["low"] == pytest.approx(50 * use + 400 * wait + made["low"])
    assert place["total"]["high"] == pytest.approx(400 * use + 50 * wait + made["high"])


def test_of_equally_green_hours_the_first_is_said() -> None:
    hours = np.array([250.5, 100.0, 100.0, 0.0, 820.0] * 5) / 3.6e6  # jobs of whole days see all hours, whenever they start
    assert [one.hour for one in starts(hours, [""] * 25, 25 * 3600.0)] == [0, 0]
    assert [one.hour for one in starts(hours, [""] * 25, 7 * 25 * 3600.0)] == [0, 0]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("\ufefftime, g_per_kwh \nnight,50\n\nday,400\n", ["night", "day"]),  # as spreadsheets write
        ("g_per_kwh,time\n50,2026-03-29T01:00\n400,2026-03-29T03:00\n", ["2026-03-29T01:00", "2026-03-29T03:00"]),  # summer time begins
        ("time,g_per_kwh\n2026-10-25T02:00,50\n2026-10-25T02:00,400\n", ["2026-10-25T02:00"] * 2),  # and ends
        ("time,g_per_kwh\n2026-03-29T01:00+01:00,50\n2026-03-29T03:00+02:00,400\n", ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00"]),
        ("g_per_kwh\n50\n400\n", ["0", "1"]),
    ],
)
def test_a_trace_is_read_as_people_write_them(text: str, hours: list[str]) -> None:
    assert list(read_trace(text, "x.csv") * 3.6e6) == pytest.approx([50, 400])
    assert hour_names(text) == hours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,g_per_kwh\n2026-01-01T00:00,50\n2026-01-01T00:30,400\n", "x.csv:3:1: a row is an hour: '2026-01-01T00:30' is none after"),
        ("time,g_per_kwh\n2026-01-01,50\n2026-01-02,400\n", "x.csv:3:1: a row is an hour"),
        ("time,g_per_kwh\n2026-03-29T01:00Z,50\n2026-03-29T03:00Z,400\n", "x.csv:3:1: a row is an hour"),
        ("time,g_per_kwh\na,50\n\nb,x\n", "x.csv:4:1: g_per_kwh: 'x' is not a number"),
        ("time,g_per_kwh\na,50\nb,1,234\n", "x.csv:3:1: more values than columns: is there a comma inside a number?"),
        ("time,g_per_kwh,g_per_kwh\na,50,60\n", "x.csv:1:1: column 'g_per_kwh' is there twice: keep one"),
        ('time,g_per_kwh\na,50\n"b,60\n' + "c,70\n" * 30_000, "x.csv:3:1: no CSV (field larger than field limit (131072))"),
        ("time;g_per_kwh\na;50\n", "x.csv:1:1: columns are apart by semicolons: want commas"),
        ("time,kwh\na,50\n", "x.csv:1:1: a trace needs a column 'g_per_kwh'"),
        ("", "x.csv:1:1: a trace needs a column 'g_per_kwh'"),
    ],
)
def test_rows_of_a_trace_that_are_no_hours_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_trace(text, "x.csv")
    assert said in str(refused.value)


def test_machines_on_grids_and_of_fabs_of_their_own_are_compared() -> None:
    """Factors of one name and unlike ranges are two: what is one for both is so still."""

    def figure(grid: Quantity) -> Ranged:
        return factor("grid own", grid) * 2.0 + factor("hbm", Quantity.make(3.0, 1.0, 5.0, None, "3"))

    clean = figure(Quantity.make(1.0, 1.0, 1.0, None, "1 g/kWh"))
    dirty, wide = (figure(Quantity.make(2.0, low, 4.0, None, "2 g/kWh")) for low in (1.5, 0.5))
    assert flips({"clean": clean, "dirty": dirty}) == ()  # whatever HBM is, it is that of both
    (flip,) = flips({"clean": clean, "wide": wide})
    assert flip.alone == pytest.approx({"grid own (2 g/kWh)": 0.5})
    (flip,) = flips({"clean": clean, "dirty": dirty, "wide": wide})  # one text, two ranges
    assert flip.alone == pytest.approx({"grid own (0.5 to 4)": 0.5})


def test_tokens_of_a_hardwired_chip_are_those_of_a_full_pipeline() -> None:
    job = told("carbon", "hnlpu", "gpt_oss_120b", "hardwired", "--tokens", "1e9")["job"]
    assert job["seconds"] == pytest.approx(1e9 / 301_670.4, rel=1e-6)
    assert job["places"][0]["use"]["mid"] == pytest.approx(1e9 * 0.0228728 * 1.4 * 380 / 3.6e6, rel=1e-4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["h100", "--tokens", "5"], "--tokens"),
        (["h100", "--grid", "us"], "--grid"),
        ([*WORDS, "--grid", "us,us"], "'us' is there twice"),
        ([*WORDS, "--grid", "atlantis"], "no grid called"),
        ([*WORDS, "--grid", "us", "--trace", "x.csv"], "one of the two"),
        ([*WORDS, "--fab", "imec"], "--fab: node.embodied.dies.cpu.process: model 'imec' says nothing of 10nm"),
        (["rack_paper"], "rack_paper.yaml:10:3: tree: no level of 'rack_paper' says what it is made of (embodied): write `embodied:"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(words: list[str], said: str) -> None:
    done = invoke(["carbon", *words])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
