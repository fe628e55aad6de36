"""Money of a machine from its spec: seed 002's Table 3, GPU clusters and wafers, masks and re-spins, by the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.carbon.costing import at_work_w, cost_of, updates
from rackmodel.carbon.job import Usage
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.papers.claims import within_digits
from rackmodel.studies.metrics import figures_of, metric
from rackmodel.units import read_quantity
from tests.commands import invoke

THREE_YEARS = ["--lifetime", "3 year", "--active", "100 %"]
AS_PRINTED = [*THREE_YEARS, "--fab", "imec", "--boundary", "memory"]


def told(*words: str) -> list[dict[str, Any]]:
    done = invoke(["cost", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["machines"]


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, Any]]:
    return {one["machine"]: one["figures"] for one in told("hnlpu_rack,h100_cluster", *AS_PRINTED)}


@pytest.mark.parametrize(
    ("machine", "figure", "unit", "printed"),
    [
        ("hnlpu_rack", "IT power at work", 1e6, "0.0552"),
        ("hnlpu_rack", "of it photomasks", 1e6, "64.6"),
        ("hnlpu_rack", "engineering (NRE)", 1e6, "184"),
        ("hnlpu_rack", "servers and network", 1e6, "2"),
        ("hnlpu_rack", "building", 1e6, "0.04"),
        ("hnlpu_rack", "capital", 1e6, "186"),
        ("hnlpu_rack", "electricity", 1e6, "0.19"),
        ("hnlpu_rack", "a re-spin", 1e6, "44.3"),
        ("hnlpu_rack", "TCO, no re-spin", 1e6, "186.2"),
        ("hnlpu_rack", "TCO, 2 re-spins", 1e6, "274.8"),
        ("h100_cluster", "IT power at work", 1e6, "13"),
        ("h100_cluster", "chips", 1e6, "300"),
        ("h100_cluster", "servers and network", 1e6, "150"),
        ("h100_cluster", "building", 1e6, "35"),
        ("h100_cluster", "capital", 1e6, "485"),
        ("h100_cluster", "electricity", 1e6, "45.44"),
        ("h100_cluster", "TCO, no re-spin", 1e6, "530.4"),
    ],
)
def test_table_3_follows_from_two_specs(table: dict[str, Any], machine: str, figure: str, unit: float, printed: str) -> None:
    assert within_digits(printed, table[machine][figure]["mid"] / unit)


@pytest.mark.parametrize(
    ("machine", "figure", "printed_t"),
    [("hnlpu_rack", "carbon, no re-spin", 780), ("hnlpu_rack", "carbon, 2 re-spins", 794), ("h100_cluster", "carbon, no re-spin", 182321)],
)
def test_the_carbon_of_table_3_is_computed_and_lies_within_two_percent(
    table: dict[str, Any], machine: str, figure: str, printed_t: float
) -> None:
    assert table[machine][figure]["mid"] / 1e6 == pytest.approx(printed_t, rel=0.02)


def test_masks_are_shared_and_own_by_hand() -> None:
    money = cost_of(read_architecture("hnlpu_rack", ["chip.cost.engineering.masks.designs=4"]), Usage(), respins=1)
    own = 64.6 / 15 - 30 / 15
    assert money.masks_usd.mid / 1e6 == pytest.approx(30 + 3 * own, rel=1e-6)
    assert money.cost.respin_usd.mid / 1e6 == pytest.approx(7.4 + 4 * own, rel=1e-6)


def test_a_re_spin_makes_chips_anew_and_no_boards() -> None:
    """Sixteen chips: die, HBM and package; their boards and heat sinks, 2 x 12 kg each, go on."""
    (found,) = told("hnlpu", "--respins", "3")
    figures = {name: value["mid"] for name, value in found["figures"].items()}
    made, with_them = figures["carbon of making it"], figures["carbon, 3 re-spins"] - figures["carbon, no re-spin"]
    assert with_them == pytest.approx(3 * (made - 16 * 24e3))


def test_what_stands_beside_the_accelerators_is_no_chip(tmp_path: Path) -> None:
    file = tmp_path / "beside.yaml"
    shelf = "  - {name: shelf, count: 2, cost: {price: 70 usd}}\n"
    chip = "  - {name: chip, count: 4, accelerator: true, cost: {price: 10 usd}, compute: {rate: 1 GFLOP/s}}\n"
    file.write_text("architecture: x\ntree:\n  name: top\n  network: {topology: switch, bandwidth: 1 GB/s}\n  children:\n" + chip + shelf)
    money = cost_of(read_architecture(file), Usage()).cost
    assert (money.chips_usd.mid, money.servers_usd.mid) == (40, 140)


def test_power_is_stated_or_the_limit_or_static() -> None:
    sets = ["accelerators=8"]
    assert at_work_w(read_architecture("dgx_h100", sets)).mid == pytest.approx(8 * 700 + 2500)
    assert at_work_w(read_architecture("cs3")).mid == pytest.approx(24e3)
    assert at_work_w(read_architecture("hnlpu")).mid == pytest.approx(6.9e3, rel=1e-4)


def test_an_idle_share_costs_static_power() -> None:
    machine = read_architecture("dgx_h100", ["accelerators=8"])
    half = Usage(read_quantity("3 year", "second"), read_quantity("50 %", ""))
    static = 8 * 75 + 2500
    assert cost_of(machine, half).cost.energy_j.mid == pytest.approx(3 * 31536000 * 1.1 * (8100 + static) / 2)


def test_engineered_chips_are_updated_each_year_but_the_first() -> None:
    three = Usage(read_quantity("3 year", "second"))
    assert updates(read_architecture("hnlpu"), three) == 2
    assert updates(read_architecture("dgx_h100"), three) == 0


def test_a_workload_brings_its_power_and_the_tokens_of_a_life() -> None:
    figures = told("hnlpu_rack", "gpt_oss_120b", "hardwired", "--each", "16", *THREE_YEARS)[0]["figures"]
    assert figures["tokens of its life"]["mid"] == pytest.approx(8 * 301_670.4 * 3 * 31536000, rel=1e-6)
    assert figures["IT power at work"]["mid"] == pytest.approx(55.2e3, rel=1e-4)
    assert figures["a million tokens"]["mid"] == pytest.approx(274.85e6 / (8 * 301_670.4 * 3 * 31536000) * 1e6, rel=1e-4)


def test_a_node_that_copies_share_draws_its_power_once() -> None:
    """Two copies of three of a node's eight GPUs: what they do is there twice, the node (2,500 W) and its eight GPUs (75 W each) once."""
    sets, job = ["b=6", "recompute=full"], ("dgx_h100", "llama3_8b", "fsdp")
    alone = api.search(*job, sets=["accelerators=3", *sets]).result
    doing = alone.energy_j / alone.latency_s - (2500 + 3 * 75)
    words = [word for one in ("accelerators=8", *sets) for word in ("--set", one)]
    figures = told(*job, "--each", "3", *words)[0]["figures"]
    assert figures["IT power at work"]["mid"] == pytest.approx(2 * doing + 2500 + 8 * 75)
    assert figures["tokens of its life"]["mid"] == pytest.approx(2 * alone.tokens / alone.latency_s * 0.6 * 4 * 31536000)


def test_a_million_tokens_cost_the_same_whoever_is_asked() -> None:
    """`cost`, a sweep's column and the objective: capital is the machine's, electricity the job's."""
    job, sets = ("dgx_h100", "llama3_8b", "fsdp"), ["accelerators=8", "b=8", "recompute=full"]
    words = [word for one in sets for word in ("--set", one)]
    figures, found = told(*job, *words)[0]["figures"], api.search(*job, sets=sets, minimize="money").result
    columns = figures_of(found, [metric("usd_per_million_tokens"), metric("capital_usd")])
    assert figures["a million tokens"]["mid"] == pytest.approx(columns["usd_per_million_tokens"], rel=1e-12)
    assert figures["capital"]["mid"] == pytest.approx(columns["capital_usd"], rel=1e-12) == pytest.approx(8 * 30e3 + 120e3 + 8 * 8100)
    assert found.certificate.objective / found.tokens * 1e6 == pytest.approx(columns["usd_per_million_tokens"], rel=1e-9)


def test_ranges_and_what_is_not_stated_are_said() -> None:
    found = told("dgx_h100", "--set", "accelerators=64")[0]
    chips = found["figures"]["chips"]
    assert (chips["low"], chips["mid"], chips["high"]) == (64 * 25e3, 64 * 30e3, 64 * 40e3)
    assert found["not_stated"] == ["cluster", "pod", "su"]
    assert "memoryx" in told("cs3")[0]["not_stated"]


def test_the_table_is_a_file_too(tmp_path: Path) -> None:
    done = invoke(["cost", "cs3", "-o", str(tmp_path)])
    assert done.exit_code == 0
    assert (tmp_path / "cost.csv").read_text().splitlines()[0] == "machine,figure,unit,low,mid,high"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dgx_h800"], "gpu.cost"),
        (["cs3", "--each", "1"], "--each"),
        (["cs3,hnlpu", "gpt_oss_120b", "hardwired"], "one machine"),
        (["hnlpu", "--set", "chip.cost.engineering.masks.own='40 Musd'"], "own"),
    ],
)
def test_what_cannot_be_priced_is_refused(words: list[str], said: str) -> None:
    done = invoke(["cost", *words])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


def test_what_a_workload_says_is_told_in_its_file() -> None:
    done = invoke(["cost", "hnlpu", "ffn", "data"])
    assert re.match(r".*workloads/ffn.yaml:4:\d+: phases: the weights of 'chip' are wires", str(done.exception))
