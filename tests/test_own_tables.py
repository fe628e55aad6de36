"""A user's own fab and carbon tables: grid, process, technology and yield, by --set and by a file that every command reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs import check, read_architecture, read_study
from rackmodel.papers import checks_of
from rackmodel.results import carbon_of, known_bill
from rackmodel.studies.plan import read_sets
from rackmodel.studies.run import Points
from rackmodel.studies.set_tables import tables_under
from tests.commands import invoke

TABLES = """
carbon: mine
entries:
  here: {intensity: 55 g/kWh, source: me}
processes:
  2nm: {energy: 4 kWh/cm^2, gas_95: 400 g/cm^2, gas_99: 300 g/cm^2, source: me}
technologies:
  hbm: {carbon: 1 kg/GB, source: me}
"""
MACHINE = """
architecture: mine
carbon: tables.yaml
fab: {grid: here, abated: 0.95, yield: {value: 0.5}}
site: {grid: here, pue: 1.2}
tree:
  name: chip
  accelerator: true
  memory: {capacity: 10 GB, bandwidth: 1 TB/s}
  compute: {rate: 100 TFLOP/s}
  embodied: {dies: {die: {area: 100 mm^2, process: 2nm}}, memory: {hbm: {technology: hbm}}}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "tables.yaml").write_text(TABLES, encoding="utf-8")
    (tmp_path / "machine.yaml").write_text(MACHINE, encoding="utf-8")
    return tmp_path / "machine.yaml"


def test_an_own_file_is_read_beside_the_machine_that_names_it(machine: Path) -> None:
    assert check(machine.parent / "tables.yaml") == "carbon"
    bill = known_bill(read_architecture(machine))
    assert bill is not None
    lines = {line.name: line.each_g.mid for line in bill.lines}
    assert lines["die"] == pytest.approx((55 * 4 + 400 + 500) / 0.5)  # 1 cm2 by equation 5
    assert lines["hbm"] == pytest.approx(10e3)


def test_every_command_counts_with_it(machine: Path) -> None:
    result = api.search(str(machine), "gemm", "data").result
    job = carbon_of(result)
    assert job is not None
    assert job.use_g.mid == result.carbon_g == pytest.approx(result.energy_j * 1.2 * 55 / 3.6e6)
    done = invoke(["carbon", str(machine), "gemm", "data", "--json"])
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["bill"]["boundaries"]["silicon"]["mid"] == pytest.approx((55 * 4 + 400 + 500) / 0.5)
    assert told["work"]["carbon"]["use"]["mid"] == pytest.approx(job.use_g.mid)


@pytest.mark.parametrize(
    ("said", "g_per_cm2"),
    [
        ("fab.grid=coal", 820 * 2.75 + 327.5 + 500),
        ("fab.grid=300 g/kWh", 300 * 2.75 + 327.5 + 500),
        ("fab.abated=0.99", 583 * 2.75 + 225 + 500),
        ("fab.materials=300 g/cm^2", 583 * 2.75 + 327.5 + 300),
    ],
)
def test_a_fab_is_set_like_any_number(said: str, g_per_cm2: float) -> None:
    sets = ["gpu.embodied.dies.gpu.yield={model: fixed, value: 1}", said]
    bill = known_bill(read_architecture("h100", sets))
    assert bill is not None
    die = next(line for line in bill.lines if line.name == "gpu")
    assert die.each_g.mid == pytest.approx(g_per_cm2 * 706.8583 / 72, rel=1e-5)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("fab.grid=colar", "did you mean 'solar'"),
        ("fab.girid=coal", "unknown key 'girid'"),
        ("fab.abated=0.5", "0.95 to 0.99"),
        ("carbon=nowhere.yaml", "no such file"),
        ("carbon=dgx_h100.yaml", "no such file"),
    ],
)
def test_what_no_table_has_is_refused(said: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_architecture("h100", [said])


def test_a_yield_that_no_one_would_build_with_warns() -> None:
    """46,225 mm2 under Poisson without spare cores: 8.5e-21 of the wafers would work."""
    sane, absurd = (known_bill(read_architecture("cs3", sets)) for sets in ([], ["wafer.embodied.dies.wafer.yield={model: poisson}"]))
    assert sane is not None
    assert absurd is not None
    assert sane.warnings == ()
    assert "model 'poisson'" in absurd.warnings[0]
    done = invoke(["carbon", "cs3", "--set", "wafer.embodied.dies.wafer.yield={model: poisson}"])
    assert "warning: cs3.wafer.wafer" in done.stdout


# -- studies of the tables alone -----------------------------------------------------------------------------------------


def best_of_own_fab(*sets: str) -> str:
    """What Figure 10 says of the fab that a command names."""
    spec = read_study("act")
    tables = tables_under(spec, read_sets(sets))
    (found,) = [one for check in checks_of(spec) for one in check(Points(()), tables) if one.name == "A-fab"]
    return found.why.rpartition(" the ")[2]


def test_the_grid_of_ones_own_fab_turns_the_answer_of_figure_10() -> None:
    assert best_of_own_fab() == "CPU is best"
    assert best_of_own_fab("fab.grid=480 g/kWh") == "CPU is best"
    assert best_of_own_fab("fab.grid=460 g/kWh") == "DSP is best"  # it flips at 471


def test_a_printed_figure_is_a_setting_of_its_study() -> None:
    tables = tables_under(read_study("act"), read_sets(["figures.act.active=0.3"]))
    assert float(tables.figure("act.active")) == 0.3


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("banana=1", "nothing is called 'banana': act has no points"),
        ("fab.grod=coal", "did you mean 'grid'"),
        ("figures.act.actve=1", "did you mean 'act.active'"),
        ("figures.act.active=0.1,0.2", "one value, as this study has no points"),
    ],
)
def test_a_setting_that_the_tables_do_not_have_is_refused(said: str, fact: str) -> None:
    with pytest.raises(InputError) as caught:
        tables_under(read_study("act"), read_sets([said]))
    assert fact in str(caught.value)
    assert f"--set {said.partition('=')[0]}=" in str(caught.value)
