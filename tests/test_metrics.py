"""Metrics: a name each, the figures those of the result; ledger sums, ranges, parts, and filters on them."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.carbon.assess import footprint
from rackmodel.carbon.bill import bill_of
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.model.result import Result
from rackmodel.studies.metrics import COLUMNS, METRICS, accepts, figures_of, metric


@pytest.fixture(scope="module")
def plain() -> Result:
    return api.search("rack_paper", "ffn", "tensor", sets=["accelerators=8"]).result


@pytest.fixture(scope="module")
def model() -> Result:
    return api.search("dgx_h100", "llama3_8b", "megatron", sets=["accelerators=64", "b=64"]).result


def test_every_metric_has_a_figure_of_a_model_on_a_machine_with_site_and_bill(model: Result) -> None:
    found = figures_of(model, METRICS.values())
    assert {name for name, value in found.items() if value is None} <= {"warnings", "full_tokens_per_s", "full_joules_per_token"}
    assert found["tokens_per_s"] == pytest.approx(model.tokens / model.latency_s)  # type: ignore[operator]
    assert found["power_w"] == pytest.approx(model.energy_j / model.latency_s)
    assert found["certificate"] == model.certificate.status


def test_carbon_is_that_of_the_footprint_with_both_ends(model: Result) -> None:
    assert model.machine is not None
    whole = footprint(model, model.machine, bill_of(model.machine, carbon_tables()), grid_table(), work=model.tokens or 1.0)
    names = ["total_carbon_g", "total_carbon_g.low", "total_carbon_g.high", "embodied_share_g", "tcdp", "carbon_g_per_token"]
    found = figures_of(model, map(metric, names))
    expected = [whole.total_g.mid, whole.total_g.low, whole.total_g.high, whole.embodied_share_g.mid, whole.figure("tcdp").mid]
    assert list(found.values()) == [*expected, whole.figure("carbon_per_work").mid]


def test_a_figure_that_is_not_there_is_none(plain: Result) -> None:
    assert figures_of(plain, map(metric, ["embodied_g", "tcdp.high"])) == {"embodied_g": None, "tcdp.high": None}


def test_sums_over_the_ledger_add_up(plain: Result) -> None:
    names = [f"joules:component={name}" for name in ("compute", "memory", "network", "static")]
    found = figures_of(plain, map(metric, [*names, "joules", "exposed_seconds", "joules:component=compute|network:phase=forward"]))
    assert sum(found[name] for name in names) == pytest.approx(plain.energy_j)  # type: ignore[misc]
    assert (found["joules"], found["exposed_seconds"]) == (plain.energy_j, plain.latency_s)
    two = plain.ledger.where(component=["compute", "network"], phase="forward").total("joules")
    assert found["joules:component=compute|network:phase=forward"] == two


def test_parts_by_name(model: Result) -> None:
    found = figures_of(model, map(metric, ["memory:weights", "degree:tp", "degree:dp", "degree:pp", "degree:none"]))
    assert found["memory:weights"] == model.memory["weights"]
    assert found["degree:tp"] * found["degree:dp"] * found["degree:pp"] == 64  # type: ignore[operator]
    assert found["degree:none"] == 1


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("latencys", "latency_s"),
        ("mfu.low", "embodied_g"),
        ("joules:lvl=rack", "level=..."),
        ("joules:level", "level=..."),
        ("degree", "degree"),
    ],
)
def test_an_unknown_metric_is_refused_with_the_known_ones(name: str, known: str) -> None:
    with pytest.raises(InputError) as problem:
        metric(name)
    assert known in problem.value.known


def test_default_columns_are_metrics() -> None:
    assert [metric(name).name for name in COLUMNS] == list(COLUMNS)


@pytest.mark.parametrize(
    ("value", "wanted", "kept"),
    [
        (8, 8, True), (8, [4, 8], True), (8, "8", True), (8, ">= 8", True), (8, "< 8", False), (None, "< 8", False), (None, None, True),
        ("proven", "proven", True), ("best found", "!= proven", True), (0.5, "<0.9", True),
    ],
)  # fmt: skip
def test_filters(value: float | str | None, wanted: object, kept: bool) -> None:
    assert accepts(value, wanted) is kept


def test_a_comparison_wants_a_number() -> None:
    with pytest.raises(InputError):
        accepts(1.0, "< many")
