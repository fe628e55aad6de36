"""One job, one carbon figure: a step, a run and a token have the same shares in every command, and they add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rackmodel import api
from rackmodel.carbon.job import LIFETIME, Usage
from rackmodel.cli.app import app
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table, read_architecture
from rackmodel.results import carbon_of, known_bill, rates_of
from rackmodel.units import Quantity

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
    done = CliRunner().invoke(app, [*words, "--json"])
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
    assert dict(job.basis) == {"boundary": "network", "at work": "50 %", "life": "4 years (3 to 5)"}


def test_a_step_has_one_figure_in_search_compare_and_carbon(step: dict[str, Any]) -> None:
    searched = step["result"]["carbon"]
    compared = told("compare", *WORDS)["results"][0]["carbon"]
    assert compared == searched
    told_by_carbon = told("carbon", *WORDS)["work"]["carbon"]
    for name in ("use", "idle", "total"):
        assert told_by_carbon[name]["mid"] == pytest.approx(searched[name]["mid"], rel=1e-9)
    assert told_by_carbon["share of embodied"]["high"] == pytest.approx(searched["embodied"]["high"], rel=1e-9)
    assert searched["use"]["mid"] == pytest.approx(step["result"]["carbon_g"], rel=1e-9)


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
        ("300 g/kWh", 300, "grid 300_g/kwh"),
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
