"""Metrics, lifetimes and flips: by hand, as a search would weigh them, and where a ranking turns round."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel import api
from rackmodel.carbon import lifetime, metrics
from rackmodel.carbon.assess import carbon_weights, footprint
from rackmodel.carbon.bill import bill_of, up_to
from rackmodel.carbon.flips import flips
from rackmodel.carbon.job import ACTIVE, LIFETIME, Usage
from rackmodel.carbon.metrics import Footprint
from rackmodel.carbon.ranges import Ranged, factor, fixed
from rackmodel.carbon.trace import placed, read_trace
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table, read_architecture
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.units import Quantity
from tests.commands import invoke

GRID, TABLES = grid_table(), carbon_tables()
POSITIVE = st.floats(1e-3, 1e3)


def span(name: str, low: float, mid: float, high: float) -> Ranged:
    return factor(name, Quantity.make(mid, low, high, None, name))


def exactly(value: float) -> Quantity:
    return Quantity.make(value, value, value, None, f"{value:g}")


def test_the_products_by_hand() -> None:
    c, e, d, a = 2.0, 3.0, 5.0, 7.0
    assert (metrics.edp(e, d), metrics.edap(e, d, a)) == (15, 105)
    assert (metrics.cdp(c, d), metrics.cep(c, e), metrics.c2ep(c, e), metrics.ce2p(c, e)) == (10, 6, 12, 18)
    # 100 g in use, 10 s of a life of 1,000 s of what embodies 400 g: 104 g, times 10 s
    assert metrics.total_carbon(100.0, 400.0, 10.0, 1000.0) == 104
    assert metrics.tcdp(104.0, 10.0) == 1040


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_embodied_metrics_use_embodied_carbon_and_tcdp_the_total(c: float, op: float, e: float, d: float) -> None:
    made = Footprint(fixed(c), fixed(op), fixed(e), fixed(d), fixed(100.0), fixed(1.0))
    found = {name: value.mid for name, value in made.metrics().items()}
    assert found["cdp"] == pytest.approx(c * d)
    assert found["c2ep"] * found["ce2p"] == pytest.approx(found["cep"] ** 3)
    assert found["tcdp"] == pytest.approx((op + c * d / 100) * d)
    assert set(found) == set(metrics.UNITS)


def test_longer_lives_and_less_use_move_carbon_as_equation_1_says() -> None:
    def carbon(years: float, share: float) -> float:
        life = fixed(years * 3.1536e7 * share)
        return Footprint(fixed(1e6), fixed(1.0), fixed(1.0), fixed(3.1536e4), life).total_g.mid

    assert carbon(1, 1) == pytest.approx(1 + 1000)
    assert carbon(4, 1) == pytest.approx(1 + 250)
    assert carbon(4, 0.5) == pytest.approx(1 + 500)


def test_systems_of_unequal_work_are_compared_for_each_unit_of_it() -> None:
    plain, each = metrics.per_work_ratio(fixed(234.0), fixed(1.0), 1.0, 4.44)
    assert (plain.mid, each.mid) == pytest.approx((234, 234 * 4.44))
    with pytest.raises(InputError, match="positive"):
        metrics.per_work_ratio(fixed(1.0), fixed(1.0), 0.0, 1.0)


def test_the_best_is_the_least_and_the_first_of_two() -> None:
    assert metrics.best({"a": 2.0, "b": 1.0, "c": 1.0}) == "b"
    assert metrics.best({"a": span("x", 0, 2, 9), "b": span("y", 1, 1, 1)}) == "b"


# -- lifetimes ---------------------------------------------------------------------------------------------------------


def test_energy_of_a_life_idles_between_work() -> None:
    assert lifetime.life_energy_j(100.0, 20.0, 100.0, 0.25) == 100 * (20 + 80 * 0.25)


def test_break_even_share_of_equal_systems_with_one_idle_watt() -> None:
    # 1: 100 g, idles at 10 W; 2: 20 g, none; active 20 and 60 W above idle, equal speed, 1 g/J, 1 s: 110 + 20a = 20 + 60a
    assert lifetime.break_even_share((100, 20), (10, 0), (30, 60), 1.0, 1.0, 1.0) == pytest.approx(90 / 40)
    with pytest.raises(InputError, match="no share"):
        lifetime.break_even_share((100, 20), (0, 0), (60, 30), 1.0, 1.0, 1.0)


def test_an_addition_pays_when_its_savings_reach_what_it_embodies() -> None:
    # 205 g over (39.6 - 35.09) mJ / 12.1 ms x 3 years x 300 g/kWh = 6.98 %
    share = lifetime.reuse_share(205.0, (39.6e-3 - 35.09e-3) / 12.1e-3, 3 * 3.1536e7, 300 / 3.6e6)
    assert share == pytest.approx(0.0698, abs=5e-5)


def test_drives_live_longer_with_spare_capacity() -> None:
    assert lifetime.ssd_lifetime_years(3650.0, 0.0, 1.0, 2.0, 1.0) == 5.0
    assert lifetime.write_amplification(0.16) == pytest.approx(1.16 / 0.32)
    assert lifetime.over_provisioning_for(2.0, 0.16) == pytest.approx(0.32)  # (1 + PF) / WA is 2 PF
    assert lifetime.second_life_gain(0.16, 0.34) == pytest.approx(2 * 1.16 / 1.34)
    with pytest.raises(InputError):
        lifetime.write_amplification(0.0)


def test_renewal_weighs_purchases_against_what_newer_ones_save() -> None:
    # ten years of 1 g, bought each year and 1.21 times better each time
    assert lifetime.renewal_carbon_g(1, 10, 2.0, 1.0, 1.21) == pytest.approx(20 + sum(1.21**-k for k in range(10)))
    assert lifetime.renewal_carbon_g(10, 10, 2.0, 1.0, 1.21) == pytest.approx(2 + 10)
    with pytest.raises(InputError):
        lifetime.renewal_carbon_g(0, 10, 2.0, 1.0, 1.21)


# -- flips -------------------------------------------------------------------------------------------------------------


def test_a_flip_names_the_factor_and_the_value_at_which_both_are_equal() -> None:
    x = span("x", 1, 2, 4)
    (flip,) = flips({"a": x * 3 + 4.0, "b": x * 6 - 1.0})  # 10 and 11: equal at x = 5/3
    assert (flip.first, flip.second) == ("a", "b")
    assert flip.alone == pytest.approx({"x": 5 / 6})
    assert flip.least == pytest.approx(5 / 7)
    assert "flips with x at 0.833 of its middle" in flip.words()
    assert flip.to_dict()["together"] == []


def test_what_two_systems_share_does_not_flip_them() -> None:
    shared = span("grid", 1, 10, 100)
    assert flips({"a": shared * 2, "b": shared * 3}) == ()
    assert flips({"a": shared, "b": shared}) == ()
    assert flips({"a": fixed(1.0), "b": fixed(2.0)}) == ()


def test_factors_that_flip_only_together_are_named_together() -> None:
    x, y, z = span("x", 1, 2, 3), span("y", 1, 2, 3), span("z", 1.9, 2, 2.1)
    (flip,) = flips({"a": x + z, "b": (1.0 + y) + 2.5})  # 4 and 5.5; x and y move 1 each
    assert flip.alone == {}
    assert set(flip.together) == {"x", "y"}
    assert "together" in flip.words()


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=4), st.floats(0.2, 0.9), st.floats(1.1, 5))
def test_a_pair_is_reported_if_and_only_if_some_corner_turns_it_round(weights: list[tuple[float, float]], low: float, high: float) -> None:
    x, y = span("x", low, 1, high), span("y", low, 1, high)
    figures = {f"s{i}": x * a + y * b for i, (a, b) in enumerate(weights)}
    reported = {(flip.first, flip.second) for flip in flips(figures)}
    corners = [{"x": p, "y": q} for p in (low, high) for q in (low, high)]
    order = sorted(figures, key=lambda name: figures[name].mid)
    for i, first in enumerate(order):
        for second in order[i + 1 :]:
            gaps = [float(figures[second].at(c) - figures[first].at(c)) for c in corners]
            size = max(figures[first].mid, figures[second].mid)
            if min(gaps) < -1e-9 * size and figures[second].mid - figures[first].mid > 1e-9 * size:
                assert (first, second) in reported
            elif min(gaps) > 1e-9 * size:
                assert (first, second) not in reported


# -- of a result -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def work() -> dict[str, Any]:
    machine = read_architecture("dgx_h100", ["accelerators=8"])
    results = {name: api.search("dgx_h100", "ffn", name, sets=["accelerators=8"]).result for name in ("data", "tensor")}
    return {"machine": machine, "bill": bill_of(machine, TABLES), "results": results}


def test_the_footprint_of_a_result_by_hand(work: dict[str, Any]) -> None:
    result, machine, bill = work["results"]["tensor"], work["machine"], work["bill"]
    usage = Usage(exactly(1e8), exactly(0.5), up_to("package"))
    made = footprint(result, machine, bill, GRID, usage, work=100.0)
    static = result.ledger.group(("component",))[("static",)]
    operational = (result.energy_j + static) * 1.1 * 301 / 3.6e6  # idle as long as it works
    assert made.operational_g.mid == pytest.approx(operational, rel=1e-9)
    embodied = bill.total_g(up_to("package")).mid
    assert made.embodied_share_g.mid == pytest.approx(embodied * result.latency_s / 0.5e8, rel=1e-9)
    assert made.figure("carbon_per_work").mid == pytest.approx(made.total_g.mid / 100)
    with pytest.raises(InputError, match="no carbon figure"):
        made.figure("tcpd")


@pytest.mark.parametrize("name", ["edp", "edap", "cdp", "cep", "c2ep", "ce2p", "tcdp", "carbon"])
def test_a_figure_of_a_footprint_is_that_of_its_joules_and_seconds(name: str, work: dict[str, Any]) -> None:
    result, machine, bill = work["results"]["data"], work["machine"], work["bill"]
    static_w = result.ledger.group(("component",))[("static",)] / result.latency_s
    alpha, beta = carbon_weights(machine, bill, GRID, static_w)
    e, t, embodied, area = result.energy_j, result.latency_s, bill.total_g(Usage().boundaries).mid, bill.area_m2.mid
    expected = {
        "edp": e * t,
        "edap": e * t * area,
        "cdp": embodied * t,
        "cep": embodied * e,
        "c2ep": embodied**2 * e,
        "ce2p": embodied * e**2,
        "carbon": alpha * e + beta * t,
        "tcdp": (alpha * e + beta * t) * t,
    }
    assert footprint(result, machine, bill, GRID).figure(name).mid == pytest.approx(expected[name], rel=1e-9)


def test_results_on_one_machine_flip_only_where_energy_and_time_disagree(work: dict[str, Any]) -> None:
    figures = {key: footprint(one, work["machine"], work["bill"], GRID).figure("carbon") for key, one in work["results"].items()}
    found = flips(figures)
    first, second = sorted(work["results"].values(), key=lambda r: r.energy_j)
    if first.latency_s <= second.latency_s:
        assert found == ()
    alike = footprint(first, work["machine"], work["bill"], GRID).figure("carbon")
    assert flips({"one": alike, "same": alike}) == ()


def test_usage_and_site_are_checked(work: dict[str, Any]) -> None:
    assert LIFETIME.low < LIFETIME < LIFETIME.high
    assert ACTIVE.source
    with pytest.raises(InputError, match="active share"):
        Usage(active=exactly(1.5))
    with pytest.raises(InputError, match="lifetime"):
        Usage(lifetime_s=exactly(0.0))
    nowhere = work["machine"].model_copy(update={"site": None})
    with pytest.raises(InputError, match="needs a site"):
        footprint(work["results"]["data"], nowhere, work["bill"], GRID)


# -- an hourly grid ----------------------------------------------------------------------------------------------------


def test_a_trace_gives_its_mean_and_what_placing_work_is_worth() -> None:
    hours = read_trace("hour,g_per_kwh\n0,100\n1,200\n2,300\n3,400\n", "here.csv")
    assert hours * 3.6e6 == pytest.approx([100, 200, 300, 400])
    half = placed(hours, 0.5, "here.csv")
    assert [x * 3.6e6 for x in (half.low, float(half), half.high)] == pytest.approx([150, 250, 350])
    whole = placed(hours, 1.0, "here.csv")
    assert whole.low == whole.high == float(whole)
    assert half.source == "here.csv, 4 hours"


@given(st.lists(st.floats(0, 2000), min_size=1, max_size=50), st.floats(0.01, 1))
def test_waiting_for_green_hours_is_never_worse_and_the_more_work_the_less_it_gains(grams: list[float], share: float) -> None:
    hours = np.array(grams) / 3.6e6
    found, more = placed(hours, share, "x"), placed(hours, min(1.0, share * 2), "x")
    assert hours.min() * (1 - 1e-12) <= found.low <= found <= found.high <= hours.max() * (1 + 1e-12)
    assert found.low <= more.low * (1 + 1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hour,co2\n0,1\n", "needs a column"),
        ("hour,g_per_kwh\n", "at least one hour"),
        ("hour,g_per_kwh\n0,many\n", "here.csv:2:1"),
        ("hour,g_per_kwh\n0,1\n1,-5\n", "here.csv:3:1"),
        ("hour,g_per_kwh\n0,380000\n", "no grid exceeds"),
        ("", "needs a column"),
    ],
)
def test_a_trace_that_cannot_be_is_placed_and_explained(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(text, "here.csv")
    assert words in str(caught.value)


def test_the_command_takes_a_trace_for_the_grid(tmp_path: Path) -> None:
    file = tmp_path / "grid.csv"
    file.write_text("hour,g_per_kwh\n0,100\n1,300\n", encoding="utf-8")
    words = ["carbon", "h100", "gemm", "--json", "--active", "50 %"]
    plain, traced = (json.loads(invoke([*words, *more]).stdout)["work"] for more in ([], ["--trace", str(file)]))
    assert traced["carbon"]["operational"]["mid"] == pytest.approx(plain["carbon"]["operational"]["mid"] * 200 / 301, rel=1e-9)
    use, idle, both = (traced["carbon"][name] for name in ("use", "idle", "operational"))
    assert use["high"] == pytest.approx(3 * use["low"], rel=1e-9)
    assert both["low"] == pytest.approx(use["low"] + idle["high"], rel=1e-9)  # at work in one hour of two, waiting in the other
    assert both["high"] == pytest.approx(use["high"] + idle["low"], rel=1e-9)
    missing = invoke([*words, "--trace", str(tmp_path / "none.csv")])
    assert isinstance(missing.exception, InputError) or missing.exit_code == 2


def test_ranges_reach_the_total_and_every_driver_is_named(work: dict[str, Any]) -> None:
    made = footprint(work["results"]["data"], work["machine"], work["bill"], GRID)
    assert made.total_g.low < made.total_g.mid < made.total_g.high
    names = [name for name, _, _ in made.total_g.swings()]
    assert {"active share", "lifetime", "technology hbm", "fab intensity"} <= set(names)
    assert math.isfinite(made.figure("tcdp").high)


def test_of_many_factors_that_flip_together_the_first_are_said() -> None:
    parts = [span(f"f{k}", 1, 2, 3) for k in range(9)]
    (flip,) = flips({"a": sum(parts[1:], parts[0]), "b": fixed(26.0)})  # 18 and 26: each moves 1, so that all nine are needed
    assert len(flip.together) == 9
    assert "with f0 and f1 and f2 and f3 and f4 and 4 more, all in --json, together" in flip.words()
