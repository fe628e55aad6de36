"""Operational carbon and the shipped grid table; profiles as data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rackmodel.carbon.operational import GridFile, carbon_g_per_j, grid_intensity_g_per_j, operational_carbon_g
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table
from rackmodel.model.architecture import Site
from rackmodel.model.profile import ProfileSpec

SPECS = Path(__file__).parents[1] / "specs"
GRID = grid_table()
KWH = 3.6e6

TABLE_5 = {"coal": 820, "gas": 490, "biomass": 230, "solar": 41, "geothermal": 38, "hydropower": 24, "nuclear": 12, "wind": 11}
TABLE_6 = {
    "world": 301,
    "india": 725,
    "australia": 597,
    "taiwan": 583,
    "singapore": 495,
    "united_states": 380,
    "europe": 295,
    "brazil": 82,
    "iceland": 28,
}


@pytest.mark.parametrize(("name", "grams"), [*TABLE_5.items(), *TABLE_6.items(), ("taiwan_2023", 642), ("united_states_2023", 369)])
def test_the_shipped_table_has_acts_numbers_with_sources(name: str, grams: float) -> None:
    assert GRID[name] * KWH == pytest.approx(grams, rel=1e-12)
    assert GRID[name].source


def test_a_kilowatt_hour_of_the_world_at_pue_one_and_a_half() -> None:
    # 1 kWh × 1.5 × 301 g/kWh = 451.5 g: PUE once
    assert operational_carbon_g(KWH, Site(grid="world", pue="1.5"), GRID) == pytest.approx(451.5, rel=1e-12)
    assert operational_carbon_g(0.0, Site(grid="world"), GRID) == 0.0


@pytest.mark.parametrize("name", ["United States", "united_states", "UNITED-STATES"])
def test_a_grid_is_found_whatever_its_case(name: str) -> None:
    assert grid_intensity_g_per_j(Site(grid=name), GRID) * KWH == pytest.approx(380)


def test_an_unknown_grid_names_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        grid_intensity_g_per_j(Site(grid="Tawain"), GRID)
    assert "did you mean 'taiwan'?" in str(caught.value)
    assert "united_states" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_grid_of_ones_own_keeps_its_source() -> None:
    own = grid_intensity_g_per_j(Site(grid={"intensity": "100 g/kWh", "source": "my utility"}), GRID)
    assert own * KWH == pytest.approx(100)
    assert own.source == "my utility"
    assert grid_intensity_g_per_j(Site(grid="my_site", intensity="0.1 kg/kWh"), GRID) * KWH == pytest.approx(100)


def test_a_grid_may_emit_nothing_but_not_less() -> None:
    assert grid_intensity_g_per_j(Site(grid="0 g/kWh"), GRID) == 0.0
    assert grid_intensity_g_per_j(Site(grid=".5 g/kWh"), GRID) * KWH == pytest.approx(0.5)
    with pytest.raises(InputError, match="'-1 g/kWh' is negative"):
        grid_intensity_g_per_j(Site(grid="-1 g/kWh"), GRID)


@pytest.mark.parametrize("text", ["380 kg/kWh", "2001 g/kWh"])
def test_an_impossible_intensity_is_a_question(text: str) -> None:
    for site in (Site(grid={"intensity": text}), Site(grid="mine", intensity=text)):
        with pytest.raises(InputError, match=f"{text.split()[0]} g/kWh'\\?|no grid exceeds 2,000"):
            grid_intensity_g_per_j(site, GRID)
    with pytest.raises(InputError, match="no grid exceeds"):
        GridFile.model_validate({"carbon": "grid", "entries": {"here": {"intensity": text, "source": "x"}}}).table()


@pytest.mark.parametrize(
    ("grid", "fact"),
    [
        ({"intensity": "380"}, "no unit"),
        ({"intensity": "380 W"}, "wrong dimension"),
        ({"intensty": "380 g/kWh"}, "did you mean 'intensity'"),
        ({"source": "x"}, "needs an intensity"),
    ],
)
def test_a_wrong_grid_of_ones_own_says_what_is_wrong(grid: dict[str, str], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        grid_intensity_g_per_j(Site(grid=grid), GRID)


def test_a_name_and_an_intensity_that_disagree_are_an_error() -> None:
    with pytest.raises(InputError, match="contradicts grid 'world', which has 301 g/kWh"):
        grid_intensity_g_per_j(Site(grid="world", intensity="380 g/kWh"), GRID)


def test_ranges_of_grid_and_pue_carry_through() -> None:
    site = Site(
        grid={"intensity": {"low": "300 g/kWh", "mid": "400 g/kWh", "high": "500 g/kWh"}}, pue={"low": "1.1", "mid": "1.2", "high": "1.5"}
    )
    carbon = operational_carbon_g(KWH, site, GRID)
    assert (carbon.low, float(carbon), carbon.high) == pytest.approx((330.0, 480.0, 750.0))
    assert carbon_g_per_j(site, GRID) * KWH == pytest.approx(480.0)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        ({"carbon": "grid", "entries": {"x": {"intensity": "3 g/kWh"}}}, "entries.x.source"),
        ({"carbon": "grid", "entries": {"x": {"intensity": "3 pJ", "source": "s"}}}, "wrong dimension"),
        ({"carbon": "grid", "entries": {key: {"intensity": "3 g/kWh", "source": "s"} for key in ("A b", "a_b")}}, "twice"),
    ],
)
def test_a_bad_grid_file_says_where_and_what(data: object, fact: str) -> None:
    with pytest.raises((InputError, ValueError), match=fact):
        GridFile.model_validate(data).table()


def test_the_shipped_profiles_say_what_they_mean() -> None:
    texts = {name: (SPECS / "profiles" / f"{name}.yaml").read_text(encoding="utf-8") for name in ("ideal", "serial")}
    profiles = {name: ProfileSpec.model_validate(yaml.safe_load(text)) for name, text in texts.items()}
    assert {name: profile.overlap.weights for name, profile in profiles.items()} == {"ideal": True, "serial": False}
    assert all(profile.name == name and profile.source and profile.note for name, profile in profiles.items())
    with pytest.raises(ValueError, match=r"overlap\.activations"):
        ProfileSpec.model_validate({"profile": "x", "overlap": {"activations": True}})
