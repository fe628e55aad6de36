"""Units at the border: text such as '3.35 TB/s' becomes an SI float; a wrong dimension is an error.

Inside, everything is seconds, joules, bytes, operations (flop), metres, grams and dollars. Bits and bytes are a
dimension of their own here (in plain pint a bit is dimensionless, so '3 pJ' would pass for '3 pJ/bit').
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from pydantic import PlainValidator

from rackmodel.errors import nearest

_DEFINITIONS = """
yocto- = 1e-24 = y-
zepto- = 1e-21 = z-
atto- = 1e-18 = a-
femto- = 1e-15 = f-
pico- = 1e-12 = p-
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = u- = μ-
milli- = 1e-3 = m-
centi- = 1e-2 = c-
kilo- = 1e3 = k- = K-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
zetta- = 1e21 = Z-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
tebi- = 1099511627776 = Ti-
pebi- = 1125899906842624 = Pi-
second = [time] = s = sec
minute = 60 * second = min
hour = 3600 * second = h = hr
day = 86400 * second = d
week = 604800 * second
year = 31536000 * second = yr
hertz = 1 / second = Hz
metre = [length] = m = meter
byte = [information] = B
bit = byte / 8 = b
flop = [operation] = FLOP = op = OP = flops
mac = 2 * flop = MAC
joule = [energy] = J
watt = joule / second = W
watt_hour = 3600 * joule = Wh
gram = [mass] = g
tonne = 1e6 * gram = t
usd = [currency] = dollar = USD
"""

_WORDS = {
    "byte/second": "bytes per second, such as '900 GB/s'",
    "byte": "bytes, such as '80 GB'",
    "second": "a time, such as '2 us'",
    "joule/byte": "energy per bit or byte, such as '1.3 pJ/bit'",
    "flop/second": "operations per second, such as '989 TFLOP/s' or '1 GMAC/s'",
    "joule/flop": "energy per operation, such as '0.6 pJ/MAC'",
    "watt": "power, such as '75 W'",
    "metre**2": "an area, such as '814 mm^2'",
    "gram/joule": "carbon per energy, such as '380 g/kWh'",
    "gram": "a mass, such as '164 kg'",
    "bit": "a width, such as '16 bit'",
    "joule": "an energy, such as '3 mJ'",
    "usd": "money, such as '30000 usd'",
    "metre": "a length, such as '300 mm'",
    "gram/metre**2": "carbon per area, such as '1.6 kg/cm^2'",
    "joule/metre**2": "energy per area, such as '2.75 kWh/cm^2'",
    "gram/byte": "carbon per capacity, such as '65 g/GB'",
    "metre**2/byte": "an area per capacity, such as '1.2 um^2/B'",
    "usd/joule": "a price of energy, such as '0.095 usd/kWh'",
    "usd/watt": "a price of power, such as '2.7 usd/W'",
}

_RANGES = {
    "byte/second": (1e-3, 1e24, "0.001 to 1e24 B/s"),
    "byte": (0.125, 1e24, "0.125 to 1e24 B"),
    "second": (1e-18, 1e12, "1e-18 to 1e12 s"),
    "joule/byte": (8e-24, 8e-3, "1e-24 to 1e-3 J/bit"),
    "flop/second": (1.0, 1e24, "1 to 1e24 FLOP/s"),
    "joule/flop": (1e-24, 1e-3, "1e-24 to 1e-3 J/FLOP"),
    "watt": (1e-15, 1e12, "1e-15 to 1e12 W"),
}
"""Dimension → least and most that can be meant (0 aside), in SI and in words. Generous: a factor of a thousand or more on both sides
of anything built, yet no sum over a machine overflows."""

_ANY_RANGE = (1e-30, 1e30, "1e-30 to 1e30 in SI units")


class Quantity(float):
    """An SI float that remembers its range, its source and how it was written."""

    low: float
    high: float
    source: str | None
    text: str

    @classmethod
    def make(cls, mid: float, low: float, high: float, source: str | None, text: str) -> Quantity:
        """A quantity with low ≤ mid ≤ high in SI units."""
        value = cls(mid)
        value.low, value.high, value.source, value.text = low, high, source, text
        return value

    def __reduce__(self) -> Any:
        return (Quantity.make, (float(self), self.low, self.high, self.source, self.text))


def ends_of(value: float) -> tuple[float, float]:
    """(least, most) that a number may be: the ends of its range."""
    return (value.low, value.high) if isinstance(value, Quantity) else (value, value)


def is_share(value: float) -> bool:
    """Whether a number is above 0 and at most 1, all of its range."""
    least, most = ends_of(value)
    return least > 0 and most <= 1


def span_text(value: float) -> str:
    """'0.5', or '0.2 to 3' of a number with a range."""
    least, most = ends_of(value)
    return f"{value:g}" if least == most else f"{least:g} to {most:g}"


@cache
def _registry() -> Any:
    import pint

    registry = pint.UnitRegistry(None, case_sensitive=True)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


_FACTORS = {
    "byte/second": {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "PB/s": 1e15},
    "byte": {
        "B": 1.0,
        "byte": 1.0,
        "kB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "PB": 1e15,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
    },
    "second": {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "joule/byte": {"pJ/bit": 8e-12, "pJ/byte": 1e-12},
    "flop/second": {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "GMAC/s": 2e9},
    "joule/flop": {"pJ/FLOP": 1e-12, "pJ/MAC": 5e-13},
    "watt": {"mW": 1e-3, "W": 1.0, "kW": 1e3},
    "metre**2": {"um^2": 1e-12, "mm^2": 1e-6},
    "gram/joule": {"g/kWh": 2.7777777777777776e-07},
    "gram": {"kg": 1e3},
    "gram/metre**2": {"g/cm^2": 1e4, "kg/cm^2": 1e7, "g/mm^2": 1e6},
    "gram/byte": {"g/GB": 1e-9, "kg/GB": 1.0000000000000002e-06},
    "joule/metre**2": {"kWh/cm^2": 3.6e10},
    "usd": {"usd": 1.0, "Musd": 1e6},
    "usd/joule": {"usd/kWh": 2.7777777777777776e-07},
    "usd/watt": {"usd/W": 1.0},
}
"""Units that the library's files are written in, by dimension, to the last bit as pint has them (tests/test_inputs_yaml.py): to load pint
takes longer than most commands."""

QUANTITY_FORM = re.compile(r"^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$", re.A)
_UNIT = re.compile(r"(?:[A-Za-zµμ_()\s]|/(?!\s*/)|\*(?!\*)|(?:\^|\*\*)-?[1-4](?!\d|\^|\*\*))+")
_LONGEST_UNIT = 40
_NUMBER = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d{1,2})?", re.A)
_PART = "[yzafpnµμumc]|yocto|zepto|atto|femto|pico|nano|micro|milli|centi"
_PART_OF_A_BIT = re.compile(rf"(?<![A-Za-zµμ])({_PART})(B|b|bytes?|bits?)(?![A-Za-z])")
_WHOLE = {"B": "byte", "by": "byte", "b": "bit", "bi": "bit"}
_SMALL = [prefix + unit for prefix in ("f", "p", "n", "u", "m", "k", "") for unit in ("J", "W", "s", "g", "m")]
_LARGE = [prefix + unit for prefix in ("k", "M", "G", "T", "P", "") for unit in ("bit", "B", "FLOP", "MAC", "W", "Wh", "Hz")]
_CASES = {word.lower(): word for word in (*_SMALL, *_LARGE, "KiB", "MiB", "GiB", "TiB")}
"""Unit in small letters → as it is written."""


@cache
def parse_quantity(text: str, unit: str, like: str = "") -> float:
    """SI value of `text` in the dimension of `unit`. like: an example of the size that is meant ('4 years'), in place of the dimension's.
    Raises ValueError that says what is wanted."""
    want = _wanted(unit, like)
    match = QUANTITY_FORM.match(text)
    if not match:
        raise ValueError(f"'{_short(text)}' is not a quantity: want {want or 'a plain number'}")
    number, written = float(match[1].replace("_", "")), match[2]
    if not math.isfinite(number):
        raise ValueError(f"'{_short(text)}' is not a finite number")
    if unit == "":
        if written not in ("", "%"):
            raise ValueError(f"'{_short(text)}' has a unit where a plain number is due")
        least, most, words = _ANY_RANGE
        if number and not least <= abs(number) <= most:
            raise ValueError(f"'{_short(text)}' cannot be meant: a plain number from {least:g} to {most:g} is read")
        return number / 100 if written == "%" else number
    if written == "":
        raise ValueError(f"'{_short(text)}' has no unit: want {want}")
    if len(written) > _LONGEST_UNIT or not _UNIT.fullmatch(written):  # pint would evaluate 9**9**9
        raise ValueError(_unknown(text, written, unit, want))
    broken = _PART_OF_A_BIT.search(written)
    if broken:
        whole = _WHOLE[broken[2][:2]]
        raise ValueError(f"'{_short(text)}': '{broken[0]}' is a part of one {whole}, did you mean 'M{broken[2]}'?: want {want}")
    known = _FACTORS.get(unit, {}).get(written)
    value = _converted(text, number, written, unit, want) if known is None else number * known
    least, most, words = _RANGES.get(unit, _ANY_RANGE)
    if number and not least <= abs(value) <= most:  # a value that under- or overflows is out of range too
        raise ValueError(f"'{_short(text)}' cannot be meant: {words} is read, or 0; want {want}")
    return value


def unit_ratio(written: str, other: str) -> float | None:
    """How many of another unit one unit is, as both are written: 1000 of 'ms' in 's', 0.01 of '' in '%'; None of unlike dimensions."""
    if written == other:
        return 1.0
    for known in ({"": 1.0, "%": 0.01}, *_FACTORS.values()):
        if written in known and other in known:
            return known[written] / known[other]
    units = [unit for unit in (written, other) if len(unit) <= _LONGEST_UNIT and _UNIT.fullmatch(unit)]
    if len(units) < 2:
        return None
    registry = _registry()
    try:
        one, two = (registry.Quantity(1.0, registry.parse_units(unit.replace("^", "**"))) for unit in units)
        return float(one.to(two.units).magnitude)
    except Exception:  # as _converted
        return None


def _wanted(unit: str, like: str) -> str:
    """What is wanted of a dimension, with an example of the size that is meant."""
    words = _WORDS.get(unit, unit)
    return f"{words.partition(', such as ')[0]}, such as '{like}'" if like else words


def _converted(text: str, number: float, written: str, unit: str, want: str = "") -> float:
    """A number of the unit as it is written, in SI. Raises ValueError."""
    registry = _registry()
    try:
        measured = registry.Quantity(number, registry.parse_units(written.replace("^", "**")))
    except Exception as problem:  # pint raises many kinds; the reader needs one sentence
        raise ValueError(_unknown(text, written, unit, want)) from problem
    try:
        return float(measured.to(unit).magnitude)
    except Exception as problem:
        raise ValueError(f"'{_short(text)}' has the wrong dimension: want {want}") from problem


def _unknown(text: str, written: str, unit: str, want: str) -> str:
    """What is wrong with a unit that is none, and which of the dimension it is nearest to: by its capitals ('gb/s'), else by its letters
    ('TFLOPS', 'G', 'mm2')."""
    cased, known = _as_written(written), list(_FACTORS.get(unit, {}))
    letters = nearest(written, known) or next((one for one in known if one.startswith(written)), None)
    close = cased if cased is not None and _is_of(cased, unit) else letters
    hint = f", did you mean '{close}'?" if close else ""
    return f"'{_short(text)}': unknown unit '{_short(written)}'{hint}: want {want}"


def _is_of(written: str, unit: str) -> bool:
    """Whether a unit is known and of that dimension."""
    try:
        return bool(_registry().Quantity(1, _registry().parse_units(written.replace("^", "**"))).check(_registry().parse_units(unit)))
    except Exception:  # as _converted
        return False


def _as_written(unit: str) -> str | None:
    """'gb/s' → 'GB/s': the unit whose capitals alone are wrong, or None."""
    words = re.split(r"([^A-Za-z]+)", unit)
    meant = "".join(_CASES.get(word.lower(), word) for word in words)
    return meant if meant != unit else None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:37] + "..."


_KEYS = ("value", "low", "mid", "high", "source")


def read_quantity(value: Any, unit: str, like: str = "") -> Quantity:
    """Text, {value, source} or {low, mid, high, source} → Quantity. like: as parse_quantity. Raises ValueError with what is wanted."""
    if isinstance(value, Quantity):
        return value
    if isinstance(value, dict):
        unknown = sorted(set(value) - set(_KEYS))
        if unknown:
            close = nearest(unknown[0], _KEYS)
            hint = f", did you mean '{close}'?" if close else ""
            raise ValueError(f"unknown key '{unknown[0]}' in a quantity{hint}: known are value, or low, mid, high; source")
        source = value.get("source")
        if "value" in value:
            one = _one(value["value"], unit, like)
            return Quantity.make(one, one, one, source, str(value["value"]))
        if not {"low", "mid", "high"} <= set(value):
            raise ValueError("a range needs low, mid and high")
        low, mid, high = (_one(value[k], unit, like) for k in ("low", "mid", "high"))
        low, high = (mid if math.isclose(end, mid, rel_tol=1e-14) else end for end in (low, high))  # one number in two units
        if not low <= mid <= high:
            raise ValueError("a range must have low <= mid <= high")
        return Quantity.make(mid, low, high, source, str(value["mid"]))
    one = _one(value, unit, like)
    return Quantity.make(one, one, one, None, str(value))


def _one(value: Any, unit: str, like: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"want {_wanted(unit, like) or 'a plain number'}")
    number = parse_quantity(str(value), unit, like)
    if number < 0:
        raise ValueError(f"'{value}' is negative")
    return number


def byte_unit(size: float) -> tuple[float, str]:
    """(bytes, name) of the unit in which sizes about as large as `size` read well."""
    units = (1e13, 1e12, "TB"), (1e8, 1e9, "GB"), (1e5, 1e6, "MB"), (1e3, 1e3, "kB")
    return next(((unit, name) for least, unit, name in units if size >= least), (1.0, "B"))


def bytes_text(size: float) -> str:
    """'48 kB', '3909 GB', '11.9 TB'."""
    unit, name = byte_unit(size)
    return f"{size / unit:.4g} {name}"


def capacity_text(size: float) -> str:
    """The least capacity of at least `size` bytes, rounded up to a thousandth of its unit or less, as an input reads it."""
    unit, name = (1e9, "GB") if size >= 1e13 else (1e6, "MB") if size >= 1e8 else (1e3, "kB") if size >= 1e5 else (1.0, "byte")
    return f"{math.ceil(size / unit)} {name}"


_WANTED: dict[Callable[[Any], Any], str] = {}
"""Validator → what it reads, for a person."""


def unit_reader(unit: str) -> Callable[[Any], Quantity]:
    """A validator that reads a quantity of `unit` (used in the schema's annotations)."""

    def read(value: Any) -> Quantity:
        return read_quantity(value, unit)

    _WANTED[read] = _WORDS.get(unit, unit or "a plain number")
    return read


def wanted_of(reader: Callable[[Any], Any]) -> str:
    """What a validator of unit_reader or series_reader reads: "bytes, such as '80 GB'"."""
    return _WANTED.get(reader, "")


def series_reader(unit: str) -> Callable[[Any], tuple[float, ...]]:
    """A validator that reads numbers with one unit behind them: '4.6 9.4 15 us'; a quantity alone is a series of one."""

    def read(value: Any) -> tuple[float, ...]:
        if isinstance(value, tuple) and all(isinstance(one, float) for one in value):
            return value
        words = str(value).split()
        count = next((place for place, word in enumerate(words) if not _NUMBER.fullmatch(word)), len(words))
        if not count or count == len(words):
            raise ValueError(f"'{_short(str(value))}' is no series: want numbers and a unit behind them, such as '4.6 9.4 15 us'")
        scale = parse_quantity(f"1 {' '.join(words[count:])}", unit)
        return tuple(float(word) * scale for word in words[:count])

    _WANTED[read] = f"{_WORDS.get(unit, unit)}: numbers and a unit behind them"
    return read


Bytes = Annotated[float, PlainValidator(unit_reader("byte"))]
BytesPerSecond = Annotated[float, PlainValidator(unit_reader("byte/second"))]
Seconds = Annotated[float, PlainValidator(unit_reader("second"))]
JoulePerByte = Annotated[float, PlainValidator(unit_reader("joule/byte"))]
JoulePerFlop = Annotated[float, PlainValidator(unit_reader("joule/flop"))]
FlopPerSecond = Annotated[float, PlainValidator(unit_reader("flop/second"))]
Dollars = Annotated[float, PlainValidator(unit_reader("usd"))]
DollarsPerJoule = Annotated[float, PlainValidator(unit_reader("usd/joule"))]
DollarsPerWatt = Annotated[float, PlainValidator(unit_reader("usd/watt"))]
Watts = Annotated[float, PlainValidator(unit_reader("watt"))]
GramPerJoule = Annotated[float, PlainValidator(unit_reader("gram/joule"))]
Grams = Annotated[float, PlainValidator(unit_reader("gram"))]
GramPerSquareMetre = Annotated[float, PlainValidator(unit_reader("gram/metre**2"))]
GramPerByte = Annotated[float, PlainValidator(unit_reader("gram/byte"))]
JoulePerSquareMetre = Annotated[float, PlainValidator(unit_reader("joule/metre**2"))]
SquareMetresPerByte = Annotated[float, PlainValidator(unit_reader("metre**2/byte"))]
SquareMetres = Annotated[float, PlainValidator(unit_reader("metre**2"))]
Plain = Annotated[float, PlainValidator(unit_reader(""))]
