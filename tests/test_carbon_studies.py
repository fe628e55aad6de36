"""The papers' printed figures, from their own inputs (specs/carbon/claims.yaml), and what the studies say of the rest."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from rackmodel import api
from rackmodel.inputs import read_study
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers import act, findings, hnlpu_tco, training_energy, wafer_carbon
from rackmodel.papers.claims import Claim, claims_of, within_digits
from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points
from tests import golden_rows
from tests.golden_rows import ROWS
from tests.sweeps import run_study

TABLES = carbon_tables()
READINGS = wafer_carbon.readings(TABLES)
YES = [name for name, row in ROWS.items() if row["reproduced"] == "yes"]
FOUND_SINCE = ("act-65", "act-66", "act-67")
"""Rows that the notes give up for want of inputs: NVDLA's primer has the designs that ACT plots."""
NO = [name for name, row in ROWS.items() if row["reproduced"] == "no" and row["basis"] != "fitted" and name not in FOUND_SINCE]
PROVES_NOTHING = [name for name, row in ROWS.items() if row["basis"] in ("fitted", "identity")]


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    return {claim.name: claim for study in (wafer_carbon, hnlpu_tco, act) for claim in claims_of(TABLES, study.computed(TABLES), READINGS)}


@pytest.fixture(scope="module")
def made() -> dict[str, list[Finding]]:
    """Study → its findings."""
    return {name: findings(name)(Points(())) for name in golden_rows.STUDIES}


@pytest.fixture(scope="module")
def found(made: dict[str, list[Finding]]) -> dict[str, Finding]:
    return {finding.name: finding for every in made.values() for finding in every}


@pytest.mark.parametrize("name", YES)
def test_a_row_that_reproduces_is_met_to_its_last_digit(name: str, claims: dict[str, Claim]) -> None:
    claim, row = claims[name], ROWS[name]
    assert claim.agrees, (claim.printed, claim.computed)
    if "|" in row["value"]:
        assert claim.printed == "{} to {} %".format(*row["value"].split("|"))
    elif isinstance(claim.computed, str):
        assert claim.printed == row["value"]
    else:
        assert float(claim.printed) == float(row["value"])
        assert claim.computed == pytest.approx(float(row["computed"]), rel=3e-4)  # the notes use rounded intermediates


@pytest.mark.parametrize("name", NO)
def test_a_row_that_does_not_reproduce_is_a_finding_that_says_why(name: str, claims: dict[str, Claim], found: dict[str, Finding]) -> None:
    claim, row, finding = claims[name], ROWS[name], found[name]
    assert not claim.agrees
    assert claim.why
    assert "does not reproduce" in finding.why or finding.condition
    if claim.computed is not None:
        assert finding.verdict == ("not decidable" if claim.readings else "disagrees")
        assert claim.readings or f"printed {claim.printed}, computed " in finding.why
        if row["computed"]:
            assert claim.computed == pytest.approx(float(row["computed"]), rel=0.03)
    else:
        assert finding.verdict == "not decidable"


GOLDEN = Path(__file__).parents[1] / "docs/golden_rows.md"


@pytest.fixture(scope="module")
def printed(made: dict[str, list[Finding]]) -> dict[str, list[dict[str, object]]]:
    """Study → its findings as `sweep --json` prints them."""
    return {name: [one.to_dict() for one in every] for name, every in made.items()}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_printed_by_a_study(name: str, printed: dict[str, list[dict[str, object]]]) -> None:
    at = golden_rows.shown(name, printed)
    if name in golden_rows.ELSEWHERE:
        assert at.value == pytest.approx(float(ROWS[name]["computed"]), rel=1e-3)
    assert name not in golden_rows.VERDICTS or at.verdict == "agrees"


def test_the_page_of_rows_is_what_the_studies_print(printed: dict[str, list[dict[str, object]]]) -> None:
    assert GOLDEN.read_text(encoding="utf-8") == golden_rows.page(printed)


def test_the_fab_grid_below_which_the_dsp_is_best_is_where_both_emit_alike(found: dict[str, Finding]) -> None:
    """By hand at 471 g/kWh: silicon of 10 nm over Taiwan's, then use on solar and embodied of CPU and DSP are alike."""
    at = found["A-fab"].figures["DSP the best below, g/kWh of the fab"]
    scale = (at * 1.475 + 740) / (583 * 1.475 + 740)  # kWh/cm2 of 10 nm; gases 95 % abated and materials, g/cm2
    use, life = 41 / 3.6e6, 0.1 * 26280 * 3600
    cpu = use * 6.0e-3 * 6.6 + scale * 253 * 6.0e-3 / life
    dsp = use * 9.2e-3 * 2.0 + scale * (253 + 189) * 9.2e-3 / life
    assert cpu == pytest.approx(dsp, rel=1e-3)


def test_there_are_enough_rows_and_none_that_proves_nothing(claims: dict[str, Claim]) -> None:
    assert len(YES) == 35
    assert len(NO) + len(FOUND_SINCE) == 27
    assert not [name for name in YES if name in PROVES_NOTHING]
    counted = [name for name in PROVES_NOTHING if name in claims]
    assert counted == ["wsi-09", "wsi-35", "act-37", "act-44"]
    assert not any(claims[name].agrees for name in counted)


def test_every_conclusion_in_the_tables_is_computed_by_a_study(claims: dict[str, Claim]) -> None:
    assert set(claims) == set(TABLES.claims)
    assert all(claim.why for claim in claims.values() if not claim.agrees)


@pytest.mark.parametrize(
    ("printed", "computed", "same"),
    [("65.39", 65.395, True), ("21", 21.83, True), ("4.6", 4.65, True), ("21", 22.3, False), ("11.58", 11.5847, True), ("22", 43.5, False)],
)
def test_a_printed_number_is_met_by_rounding_or_by_cutting(printed: str, computed: float, same: bool) -> None:
    assert within_digits(printed, computed) is same


@pytest.mark.parametrize("name", golden_rows.STUDIES)
def test_a_study_is_read_and_its_findings_have_names_of_their_own(name: str) -> None:
    spec = read_study(name)
    assert spec.findings == name
    made = [finding.name for finding in findings(name)(Points(()))]
    assert len(set(made)) == len(made)


# -- seed 000 ----------------------------------------------------------------------------------------------------------


def test_the_break_even_share_by_hand() -> None:
    # Table 1: CS-3 = 29.15 g x 70,685.83 mm2 + 1.5 TB x 0.29 = 2,495.5 kg, 64 H100 = 64 (28.618 + 28.8) = 3,674.7 kg.
    # 0.38 kg x 26,280 h = 9,986.4 kg a kW. Idle 19.7 and 44.8/9.29 = 4.822 kW; above idle 4.4 and 39.978 kW x 9.3/8.
    cs3, gpus, rate = 2495.49, 3674.75, 9986.4
    by_hand = (cs3 + rate * 19.7 - gpus - rate * 4.8224) / (rate * (39.9776 * 9.3 / 8 - 4.4))
    assert wafer_carbon.break_even(TABLES, wafer_carbon.systems(TABLES), 8, 5600.0) == pytest.approx(by_hand, rel=1e-4)
    assert by_hand == pytest.approx(0.351, abs=0.001)


def test_the_break_even_shares_of_34_and_31_percent_need_700_watts_a_gpu(found: dict[str, Finding]) -> None:
    figures = found["W-power"].figures
    assert figures["fitted, 8 DGX at 5.6 kW, %"] == pytest.approx(34.3, abs=0.05)
    assert figures["fitted, 10 DGX at 5.6 kW, %"] == pytest.approx(31.1, abs=0.05)
    assert figures["Table 1, 8 DGX at 5.6 kW, %"] == pytest.approx(35.1, abs=0.05)
    assert figures["fitted, 8 DGX at 10.2 kW, %"] == pytest.approx(13.1, abs=0.05)
    assert found["W-power"].said.startswith("not decidable: agrees if a box draws 5.6 kW; disagrees if a box draws 7.5 kW")


def test_wafer_yield_sweeps_from_2060_to_5151_kilograms_and_routing_around_defects_keeps_the_first(found: dict[str, Finding]) -> None:
    figures = found["W-yield"].figures
    assert figures["100 % work, kg"] == pytest.approx(2060.49, rel=1e-5)
    assert figures["40 % work, kg"] == pytest.approx(5151.2, rel=1e-5)
    assert figures["wafers that work, defects routed around"] == 1.0


def test_rankings_flip_on_saturated_gpus_and_inside_the_ranges(found: dict[str, Finding]) -> None:
    assert found["W-throughput"].said == "not decidable: agrees if an H100 gets the paper's 33 tokens/s; disagrees if H100 are saturated"
    assert "tCDP against 8 DGX" in found["W-throughput"].why
    assert found["W-throughput"].figures["tokens/s of a box, paper"] == pytest.approx(261.29, abs=0.01)
    assert "flips with technology hbm" in found["W-ranges"].why
    assert found["H-tco-static"].verdict == "disagrees"


# -- seed 002 ----------------------------------------------------------------------------------------------------------


def test_costs_masks_and_throughput_of_the_rack(found: dict[str, Finding], claims: dict[str, Claim]) -> None:
    assert [claims[f"hn-{row}"].computed for row in (25, 27, 26)] == pytest.approx([186.23, 274.83, 530.44], abs=0.01)
    assert claims["hn-29"].agrees
    assert claims["hn-30"].agrees
    masks = found["H-masks"].figures
    assert (masks["a chip's own masks, M$"], masks["shared masks, M$"]) == pytest.approx((2.3067, 27.6933), abs=1e-4)
    assert masks["re-spin, M$"] == pytest.approx(36.907, abs=1e-3)


def test_the_carbon_ratio_stands_next_to_its_value_for_each_token(found: dict[str, Finding]) -> None:
    figures = found["H-carbon"].figures
    assert figures["as printed"] == pytest.approx(233.745, abs=1e-3)
    # 0.38 kg x 26,280 h x (55.2 kW x 1.4 or 18.2 MW), and 16 x 8 chips or 10,000 GPUs
    assert figures["rack, t"] == pytest.approx(0.38 * 26.28 * 55.2 * 1.4 + 128 * 0.0933, abs=0.1)
    assert figures["cluster, t"] == pytest.approx(0.38 * 26.28 * 18200 + 10_000 * 0.0574, rel=1e-4)
    assert figures["as a whole"] == pytest.approx(figures["cluster, t"] / figures["rack, t"])
    assert figures["for each token, paper"] == pytest.approx(figures["as a whole"] * 8 * 249960 / 450000, rel=1e-6)
    assert figures["for each token, measured, batch 64"] < figures["as printed"]


# -- seed 003 ----------------------------------------------------------------------------------------------------------


def test_table_12_of_act(claims: dict[str, Claim]) -> None:
    # 12 x (36 GB x 600 g / 0.875 + 18 x 150 g) = 328.6 kg; 2 x 6.98 cm2 x (820 x 0.9 + 175 + 500) g / 0.875 = 22.5 kg
    assert claims["act-20"].computed == pytest.approx(328.63, abs=0.01)
    assert claims["act-26"].computed == pytest.approx(13.96 * (820 * 0.9 + 175 + 500) / 0.875 / 1e3, rel=1e-9)
    assert all(claims[row].agrees for row in ("act-20", "act-21", "act-26", "act-27"))


def test_the_cpu_wins_embodied_metrics_and_the_dsp_operational_ones(claims: dict[str, Claim]) -> None:
    assert [claims[row].computed for row in ("act-11", "act-12", "act-13", "act-14")] == ["CPU", "CPU", "DSP", "DSP"]


def test_greener_use_favours_the_cpu_and_greener_fabs_the_dsp(found: dict[str, Finding]) -> None:
    assert found["A-use"].verdict == "agrees"
    assert found["A-fab"].verdict == "agrees"
    # 39.6 - 18.4 mJ saved, (442 x 9.2 - 253 x 6.0) g ms / 3 years more embodied: 4.57 g/kWh
    by_hand = (442 * 9.2e-3 - 253 * 6e-3) / (3 * 365 * 86400) / (21.2e-3 / 3.6e6)
    assert found["A-use"].figures["crossing, always active, g/kWh"] == pytest.approx(by_hand, rel=1e-9)


def test_the_leanest_nvdla_at_30_frames_is_act_s(claims: dict[str, Claim]) -> None:
    # 1.0 mm2 x (583 x 1.2 + 200 + 500) g/cm2 / 0.875 = 15.995 g; 3.3 and 1.4 mm2 beside it; 269 and 93 frames over 30
    assert claims["act-f13-lean"].computed == "256 MAC"
    assert claims["act-f13-carbon"].computed == pytest.approx(0.01 * (583 * 1.2 + 700) / 0.875, rel=1e-9)
    agree = ("act-65", "act-66", "act-67", "act-f12-edp", "act-f13-carbon", "act-f13-fast", "act-f13-thrifty")
    assert all(claims[name].agrees for name in (*agree, "act-f13-thrifty-speed"))
    assert claims["act-f13-fast-speed"].computed == pytest.approx(269 / 30)
    assert claims["act-68"].computed == "64 MAC"


def test_an_fpga_over_three_applications_and_an_asic_over_one_by_hand(found: dict[str, Finding]) -> None:
    assert {found[name].verdict for name in ("A-metrics", "A-fpga", "A-asic", "A-dies", "A-r740", "A-fairphone")} == {"agrees"}
    # an ASIC is 26 times as fast in one of three: 26^(1/3) = 2.962; an FPGA 45.79 times, at 44/5 of the CPU's energy
    three = found["A-fpga"].drawn
    both = "an FPGA saves as much in FIR and AES as in AI"
    assert three[f"CDP of ASIC, {both}"] == pytest.approx(1.3 / 26 ** (1 / 3))
    assert three[f"CEP of FPGA, {both}"] == pytest.approx(1.8 * 5 / 44)
    assert three[f"CE2P of ASIC, {both}"] == pytest.approx(1.3 / 44 ** (2 / 3))
    # 1.3 / 26 of CDP, 442 x 9.2 over 253 x 6.0
    assert found["A-asic"].figures["CDP of ASIC"] == pytest.approx(0.05)
    assert found["A-metrics"].figures["CDP of DSP"] == pytest.approx(442 * 9.2 / (253 * 6.0))


def test_dies_of_phones_and_what_a_report_leaves_beside_its_chips_by_hand(found: dict[str, Finding]) -> None:
    # 72.3 mm2 of 10 nm: (583 x 1.475 + 240 + 500) g/cm2 / 0.875
    assert found["A-dies"].figures["g, Snapdragon 835"] == pytest.approx(0.723 * (583 * 1.475 + 740) / 0.875)
    server, phone = found["A-r740"].figures, found["A-fairphone"].figures
    assert server["kg, all else, life-cycle report"] == pytest.approx((533 + 3373 + 67 + 47) * 0.25)
    assert phone["kg, all else, life-cycle report"] == pytest.approx((11 + 1.07 + 5.3) * 3 / 7)


def test_a_newer_process_embodies_more_in_the_same_area(found: dict[str, Finding]) -> None:
    figures = found["A-budget"].figures
    assert [figures[f"MACs in {budget} mm2 of {node} nm"] for budget in (1, 2) for node in (28, 16)] == [64, 256, 256, 1024]
    # 1.0 / 0.91 x (583 x 1.2 + 700) / (583 x 0.9 + 675)
    assert figures["carbon, 16 over 28 nm, 1 mm2"] == pytest.approx(1.0 / 0.91 * 1399.6 / 1199.7, rel=1e-9)


# -- our bill beside published footprints ------------------------------------------------------------------------------


def test_published_footprints_lie_in_our_ranges(found: dict[str, Finding]) -> None:
    for name in ("hgx_h100", "hgx_b200", "a100", "h100_ecoserve", "h100_golden", "h100_act_die"):
        assert found[f"E-{name}"].verdict == "agrees", name
    assert found["E-hgx_h100"].figures["published, kg"] == 164.0
    assert found["E-boundary"].figures["network over silicon"] > 5


# -- our own question --------------------------------------------------------------------------------------------------


def test_the_least_carbon_machine_is_named_in_each_place_with_its_range() -> None:
    points = run_study(read_study("train_carbon"))
    made = {finding.name: finding for finding in findings("train_carbon")(points)}
    assert set(made) == {"T-taiwan", "T-virginia", "T-sweden_2025", "T-choice"}
    for place in ("taiwan", "virginia", "sweden_2025"):
        figures = made[f"T-{place}"].figures
        for machine in ("dgx_h100", "gb200_nvl72", "cs3"):
            assert 0 < figures[f"{machine}, least"] < figures[f"{machine}, g/Mtoken"] < figures[f"{machine}, most"]
    # the greener the grid, the larger the embodied share, and no machine gains more than the grids' ratio, 583 / 27
    shares = [made[f"T-{place}"].figures["dgx_h100, embodied share"] for place in ("taiwan", "virginia", "sweden_2025")]
    assert shares == sorted(shares)
    assert 1 < made["T-choice"].figures["taiwan over sweden_2025, dgx_h100"] < 583 / 27


@pytest.mark.parametrize(
    ("profile", "said"), [("megatron_core", "with what clocks draw at work"), ("ideal", "without what clocks draw at work")]
)
def test_the_energy_of_a_published_run_says_what_of_its_clocks_it_counts(profile: str, said: str) -> None:
    """By the ledger of the step; and what its H100s draw that wait is one of the study's ranges."""
    asked = ("accelerators=4", "b=8", "layers=2", "s=2048")
    step = api.search("dgx_h100", "llama3_8b", "megatron", sets=asked, profile=profile).result
    points = Mock(one=lambda **_: step)
    assert all(said in one.why for one in training_energy.findings(points, TABLES))
    assert "waiting power of an H100" in read_study("training_energy").inputs
