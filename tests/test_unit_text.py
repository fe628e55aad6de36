"""Units as they are written, beside what pint makes of the same definitions."""

from __future__ import annotations

import logging
import random
from functools import cache
from typing import Any

import pytest

from rackmodel.unit_text import _ALSO, _PREFIXES, _UNITS, factor_between
from rackmodel.units import _WORDS, parse_quantity

logging.getLogger("pint").setLevel(logging.ERROR)
PREFIXES = [prefix for prefix in _PREFIXES if prefix != "\u03bc"]  # the Greek letter, beside the micro sign
BASES = {"second": "time", "metre": "length", "byte": "information", "flop": "operation", "joule": "energy", "gram": "mass", "usd": "money"}


@cache
def _registry() -> Any:
    import pint

    registry = pint.UnitRegistry(None, case_sensitive=True)
    lines = [f"{prefix}- = {_PREFIXES[prefix]!r}" for prefix in PREFIXES]
    for name, (scale, of) in _UNITS.items():
        meaning = f"{scale!r} * " + " * ".join(f"{other}**{power}" for other, power in of) if of else f"[{BASES[name]}]"
        also = [written for written, unit in _ALSO.items() if unit == name]
        lines.append(" = ".join([name, meaning, *(also or ["_"])]))
    registry.load_definitions(lines)
    return registry


def _pint(written: str, unit: str) -> float | None:
    try:
        return float(_registry().Quantity(1.0, _registry().parse_units(written.replace("^", "**"))).to(unit).magnitude)
    except Exception:
        return None


def _ours(written: str, unit: str) -> float | None:
    try:
        return factor_between(written, unit)
    except (LookupError, ValueError):
        return None


def _alike(word: str) -> list[str]:
    """Other words of the same dimension."""
    return [f"{prefix}{other}{s}" for prefix in ["", *PREFIXES] for other in [*_UNITS, *_ALSO] for s in ("", "s") if _ours(other, word)]


def test_every_prefixed_word_is_pints_to_the_last_digit() -> None:
    pytest.importorskip("pint")
    for word in (f"{prefix}{unit}{s}" for prefix in ["", *PREFIXES] for unit in [*_UNITS, *_ALSO] for s in ("", "s")):
        for unit in BASES:
            assert _ours(word, unit) == _pint(word, unit), (word, unit)


def test_products_ratios_and_powers_are_pints() -> None:
    pytest.importorskip("pint")
    rng, read = random.Random(7), 0
    alike = {word: _alike(word) for word in ("byte", "second", "joule", "flop", "watt", "metre", "gram", "bit", "usd")}
    for _ in range(3000):
        unit = rng.choice(list(_WORDS))
        words = unit.replace("**2", "").split("/")
        written = rng.choice(["/", " / ", " per "]).join(rng.choice(alike[word]) + "^2" * (f"{word}**2" in unit) for word in words)
        assert _ours(written, unit) == _pint(written, unit), (written, unit)
        if rng.random() < 0.2:
            one, other = rng.choice(alike["second"]), rng.choice(alike["second"])
            written = rng.choice([f"({written})*{one}/{other}", f"{one} {written} {other}^-1", f"{written}/({other}/{one})"])
        ours, theirs = _ours(written, unit), _pint(written, unit)
        assert (ours is None) == (theirs is None), (written, unit)
        assert ours == theirs or ours == pytest.approx(theirs, rel=1e-14), (written, unit)  # brackets: products in another order
        read += ours is not None
    assert read > 2000


@pytest.mark.parametrize("written", ["", "/s", "s/", "J//s", "(s", "s)", "()", "s**", "GX/s", "gb/s", "mgigaflops", "Bs", "s 2"])
def test_what_is_no_unit_is_none(written: str) -> None:
    with pytest.raises(LookupError):
        factor_between(written, "second")


def test_a_frequency_is_one_over_a_time() -> None:
    assert factor_between("GHz", "1/second") == 1e9
    assert factor_between("1/ns", "1/second") == pytest.approx(1e9)


def test_a_bit_is_no_plain_number_and_no_float_overflows() -> None:
    for text, unit in (("3 pJ", "joule/byte"), ("0 s*(Zm^4)^4/(ym^4)^4", "second"), ("0 (((Zm)^4)^4)^4", "metre**2")):
        with pytest.raises(ValueError, match="want"):
            parse_quantity(text, unit)
