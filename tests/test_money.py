"""Money: capital, electricity with PUE once, masks that are shared and masks that are not, re-spins, tokens a dollar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel.carbon.money import Cost, building_usd, check_power, facility_energy_j, split_masks
from rackmodel.carbon.ranges import Ranged, factor, fixed
from rackmodel.errors import InputError
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers.hnlpu_tco import gpu_cost, hnlpu_cost
from rackmodel.units import Quantity
from tests.commands import invoke

HOUR, KWH, M = 3600.0, 3.6e6, 1e6
TABLES = carbon_tables()


def span(name: str, low: float, mid: float, high: float) -> Ranged:
    return factor(name, Quantity.make(mid, low, high, None, name))


def test_the_cost_of_a_server_by_hand() -> None:
    # 8 chips of 30,000 $, 100,000 $ of server, 10 $/W of building for 10 kW; 10 kW x 1.2 x 1,000 h at 0.1 $/kWh = 1,200 $
    energy = facility_energy_j(fixed(1e4), fixed(1.2), fixed(1000 * HOUR))
    cost = Cost(fixed(240e3), fixed(0.0), fixed(100e3), building_usd(fixed(1e4), fixed(10.0)), energy, fixed(0.1 / KWH), fixed(5e3), 2.0)
    assert cost.capital_usd.mid == pytest.approx(440e3)
    assert cost.electricity_usd.mid == pytest.approx(1200)
    assert cost.tco_usd.mid == pytest.approx(440e3 + 1200 + 10e3)
    assert cost.per_dollar(1e9).mid == pytest.approx(1e9 / 451200)


def test_a_rack_and_a_cluster_as_printed() -> None:
    rack, updated, cluster = hnlpu_cost(TABLES, respins=0), hnlpu_cost(TABLES, respins=2), gpu_cost(TABLES)
    # 184 + 2 + 0.04 + 0.0552 MW x 1.4 x 26,280 h x 95 $/MWh; 2 x 44.3 more; 485 + 13 MW x 1.4 x 26,280 h x 95 $/MWh
    assert rack.tco_usd.mid / M == pytest.approx(186.04 + 0.0552 * 1.4 * 26280 * 95 / M, rel=1e-9)
    assert (updated.tco_usd.mid - rack.tco_usd.mid) / M == pytest.approx(88.6, rel=1e-9)
    assert cluster.tco_usd.mid / M == pytest.approx(485 + 18.2 * 26280 * 95 / M, rel=1e-9)


def test_pue_counts_once_and_cannot_be_below_one() -> None:
    once = facility_energy_j(fixed(10.0), fixed(1.5), fixed(2.0))
    assert once.mid == 30
    with pytest.raises(InputError, match="cannot be below 1"):
        facility_energy_j(fixed(10.0), fixed(0.9), fixed(2.0))
    with pytest.raises(InputError, match="cannot be below 1"):
        facility_energy_j(fixed(10.0), span("pue", 0.9, 1.1, 1.2), fixed(2.0))


def test_mask_sets_divide_into_what_is_shared_and_what_is_not() -> None:
    masks = split_masks(fixed(30 * M), fixed(64.6 * M), 16)
    assert masks.own_usd.mid / M == pytest.approx(34.6 / 15)
    assert masks.shared_usd.mid / M == pytest.approx(30 - 34.6 / 15)
    assert masks.first_usd(16).mid / M == pytest.approx(64.6)
    assert masks.separate_usd(16).mid / M == pytest.approx(480)
    assert masks.respin_usd(16).mid / M == pytest.approx(36.9, abs=0.01)


@given(st.floats(0, 50), st.floats(0.1, 5), st.integers(2, 100))
def test_masks_of_any_number_of_chips_are_found_again(shared: float, own: float, chips: int) -> None:
    masks = split_masks(fixed(shared + own), fixed(shared + own * chips), chips)
    assert masks.own_usd.mid == pytest.approx(own, rel=1e-6)
    assert masks.first_usd(chips).mid <= masks.separate_usd(chips).mid * (1 + 1e-12)


@pytest.mark.parametrize(("one", "all_", "chips"), [(30.0, 64.6, 1), (30.0, 20.0, 16), (30.0, 500.0, 16)])
def test_masks_that_cannot_be_divided_are_refused(one: float, all_: float, chips: int) -> None:
    with pytest.raises(InputError):
        split_masks(fixed(one), fixed(all_), chips)


@pytest.mark.parametrize(("watts", "words"), [(1.3 * 8, "kW"), (1.3e6 * 8, "W, not kW")])
def test_kilowatts_written_as_watts_are_a_question(watts: float, words: str) -> None:
    with pytest.raises(InputError, match=f"is it {words}"):
        check_power(watts, 8, "power")
    check_power(1300.0 * 8, 8, "power")


def test_ranges_of_prices_reach_the_tokens_a_dollar() -> None:
    price = span("price of electricity", 0.05 / KWH, 0.1 / KWH, 0.2 / KWH)
    cost = Cost(span("chips", 200e3, 240e3, 300e3), fixed(0.0), fixed(0.0), fixed(0.0), fixed(1e6 * KWH), price, fixed(0.0))
    assert cost.tco_usd.bounds == pytest.approx((250e3, 500e3))
    assert cost.per_dollar(1e9).bounds == pytest.approx((2000, 4000))
    assert cost.tco_usd.swings()[0][0] == "price of electricity"


def test_what_a_machine_lacks_to_be_priced_is_said_in_its_file_and_a_fab_at_its_option() -> None:
    lacking = invoke(["cost", "rack_paper"]).exception
    assert isinstance(lacking, InputError)
    assert lacking.where is not None
    assert lacking.where.file.endswith("rack_paper.yaml")
    assert lacking.path == "tree.gpu.cost"
    for command in ("cost", "carbon"):
        unknown = invoke([command, "dgx_h100", "--fab", "imek"]).exception
        assert "--fab: no model of a fab called 'imek'" in str(unknown)
        assert "did you mean 'imec'?" in str(unknown)
