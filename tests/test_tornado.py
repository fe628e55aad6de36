"""Sensitivity: ends of ranges, what moves the answer and what does not, and the picture of it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.report.svg import paper
from rackmodel.report.tornado import FACTOR, ends_of, sketch, tornado
from rackmodel.units import read_quantity
from tests.commands import invoke


def test_a_stated_range_has_its_own_ends() -> None:
    low, high, stated = ends_of(read_quantity("3.35 TB/s", "byte/second"))
    assert (low, high, stated) == (f"{3.35 / FACTOR:g} TB/s", f"{3.35 * FACTOR:.6g} TB/s", False)
    ranged = read_quantity({"low": "10 pJ/bit", "mid": "20 pJ/bit", "high": "41 pJ/bit"}, "joule/byte")
    assert ends_of(ranged) == ("10 pJ/bit", "41 pJ/bit", True)


def test_rows_go_by_their_swing_and_say_where_another_mapping_is_best() -> None:
    def alone(setting: str) -> tuple[float, str]:
        name, _, value = setting.partition("=")
        if name == "c.x" and value.startswith("8"):
            raise InfeasibleError("too small")
        if name == "d.x":
            raise InputError("above 1")
        return {"a.x": (10.0, "tp 8"), "b.x": (12.0 if value.startswith("12") else 9.0, "tp 4"), "c.x": (10.0, "tp 8")}[name]

    def search(*settings: str) -> tuple[float, str]:
        return max((alone(one) for one in settings), key=lambda found: abs(found[0] - 10.0))

    ten = read_quantity("10 s", "second")
    numbers = [(f"{name}.x", ten) for name in "abcd"] + [("e.x", read_quantity("0 s", "second"))]
    found = tornado(numbers, (10.0, "tp 8"), search)
    assert [(one.path, one.at_low, one.at_high) for one in found] == [("c.x", None, 10.0), ("b.x", 9.0, 12.0)]
    assert (found[1].mapping_low, found[0].mapping_high) == ("tp 4", "")
    inside, height = sketch(found, 10.0, "latency", 238.0)
    ElementTree.fromstring(paper(inside, 238.0, height))
    sketch([], 10.0, "latency", 238.0)


def test_an_end_that_no_file_could_say_is_not_told_as_no_change() -> None:
    """A share of 0.9 goes to 1 and no further; a PUE of 1.1 down to 1; a number that can only fall stays where it is at its high end."""

    def search(*settings: str) -> tuple[float, str]:
        seconds = 10.0
        for setting in settings:
            name, _, value = setting.partition("=")
            number = float(value.split()[0])
            if (name == "share" and number > 1) or (name == "pue" and number < 1) or (name == "least" and number > 10):
                raise InputError("cannot be")
            seconds += {"share": 0.9 - number, "pue": number - 1.1, "least": number - 10.0}[name]
        return round(seconds, 6), "tp 8"

    numbers = [("share", read_quantity("0.9", "")), ("pue", read_quantity("1.1", "")), ("least", read_quantity("10 s", "second"))]
    found = {one.path: (one.low, one.at_low, one.high, one.at_high) for one in tornado(numbers, (10.0, "tp 8"), search)}
    assert found == {
        "least": ("8 s", 8.0, "10 s", 10.0),
        "pue": ("1", 9.9, "1.375", 10.275),
        "share": ("0.72", 10.18, "1", 9.9),
    }


def test_numbers_that_change_nothing_together_are_not_asked_one_by_one() -> None:
    asked = []

    def search(*settings: str) -> tuple[float, str]:
        asked.append(settings)
        return (12.0 if any(one.startswith("x37=") for one in settings) else 10.0), "tp 8"

    numbers = [(f"x{number}", read_quantity("4 s", "second")) for number in range(128)]
    assert [one.path for one in tornado(numbers, (10.0, "tp 8"), search)] == ["x37"]
    assert len(asked) <= 24  # 7 halvings with one to three questions each, and two ends; one by one there are 256


def test_numbers_that_move_the_mapping_found_are_not_asked_in_groups() -> None:
    """Every second of 32 numbers moves the answer, one of them (x8) another mapping alone: 16 x 2 ends, and the halvings down to x8."""
    asked = []

    def moved(settings: tuple[str, ...], names: set[str]) -> float:
        return 10.0 + sum(one.partition("=")[0] in names for one in settings)

    odd = {f"x{number}" for number in range(1, 32, 2)}

    def search(*settings: str) -> tuple[float, str]:
        asked.append(settings)
        return moved(settings, odd | {"x8"}), "tp 8"

    numbers = [(f"x{number}", read_quantity("4 s", "second")) for number in range(32)]
    found = tornado(numbers, (10.0, "tp 8"), search, lambda *settings: moved(settings, odd))
    assert {one.path for one in found} == odd | {"x8"}
    alone = len(asked)
    assert alone <= 34 + 13  # two ends of 17; of the other 16 one to two questions at each of the nine groups down to x8
    assert found == tornado(numbers, (10.0, "tp 8"), search)
    assert len(asked) - alone > 1.5 * alone


def test_least_carbon_is_told_in_grams_and_moves_with_the_site(tmp_path: Path) -> None:
    """By hand: grams go as PUE, 1 to 1.25 is a quarter more."""
    said = invoke(["why", "rack_paper", "ffn", "data", "--set", "accelerators=8", "--minimize", "carbon", "--sensitivity", "--json"])
    assert said.exit_code == 0, said.output
    data = json.loads(said.stdout)
    best = api.search("rack_paper", "ffn", "data", sets=["accelerators=8"], minimize="carbon").result
    assert data["objective"] == pytest.approx(best.energy_j * 301 / 3.6e6, rel=1e-12)  # the world's grid: 301 g/kWh
    pue = next(one for one in data["swings"] if one["path"] == "site.pue")
    assert (pue["high"], pue["at_high"]) == ("1.25", pytest.approx(1.25 * data["objective"], rel=1e-9))


def test_the_command_searches_again_under_each_end(tmp_path: Path) -> None:
    words = ["why", "rack_paper", "ffn", "tensor", "--set", "accelerators=8", "--sensitivity"]
    said = invoke([*words, "--json", "-o", str(tmp_path)])
    assert said.exit_code == 0, said.output
    data = json.loads(said.stdout)
    assert data["minimize"] == "latency"
    for one in data["swings"]:
        for end, at in ((one["low"], one["at_low"]), (one["high"], one["at_high"])):
            if at is not None:
                again = api.search("rack_paper", "ffn", "tensor", sets=["accelerators=8", f"{one['path']}={end}"]).result
                assert at == pytest.approx(again.latency_s)
    assert not any("energy" in one["path"] for one in data["swings"])  # joules move no second
    assert {path.name for path in tmp_path.iterdir()} == {"sensitivity.csv", "sensitivity.svg", "sensitivity.png"}


def test_why_wants_one_question() -> None:
    for more in ([], ["--not", "axes.tp.degree=4", "--sensitivity"], ["--not", "axes.tp.degree=4", "-o", "x"]):
        said = invoke(["why", "rack_paper", "ffn", "tensor", *more])
        assert isinstance(said.exception, InputError)
