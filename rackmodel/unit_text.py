"""What the text of a unit means: 'TB/s' is 1e12 bytes a second.

A unit is words joined by '*', '/', 'per' or a space, with whole powers and brackets; a word is a unit with at most one prefix, and may
end in a plural's s. Bits and bytes are a dimension of their own (not plain numbers: '3 pJ' must not pass for '3 pJ/bit'), and so are
operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

_PREFIXES = {
    **{"yocto": 1e-24, "y": 1e-24, "zepto": 1e-21, "z": 1e-21, "atto": 1e-18, "a": 1e-18, "femto": 1e-15, "f": 1e-15},
    **{"pico": 1e-12, "p": 1e-12, "nano": 1e-9, "n": 1e-9, "micro": 1e-6, "µ": 1e-6, "μ": 1e-6, "u": 1e-6},
    **{"milli": 1e-3, "m": 1e-3, "centi": 1e-2, "c": 1e-2, "kilo": 1e3, "k": 1e3, "K": 1e3, "mega": 1e6, "M": 1e6},
    **{"giga": 1e9, "G": 1e9, "tera": 1e12, "T": 1e12, "peta": 1e15, "P": 1e15, "exa": 1e18, "E": 1e18, "zetta": 1e21, "Z": 1e21},
    **{"kibi": 2.0**10, "Ki": 2.0**10, "mebi": 2.0**20, "Mi": 2.0**20, "gibi": 2.0**30, "Gi": 2.0**30},
    **{"tebi": 2.0**40, "Ti": 2.0**40, "pebi": 2.0**50, "Pi": 2.0**50},
}


class _Unit(NamedTuple):
    """So many of other units; of none it is a base."""

    scale: float = 1.0
    of: tuple[tuple[str, int], ...] = ()


_UNITS = {
    "second": _Unit(),
    "metre": _Unit(),
    "byte": _Unit(),
    "flop": _Unit(),
    "joule": _Unit(),
    "gram": _Unit(),
    "usd": _Unit(),
    "minute": _Unit(60.0, (("second", 1),)),
    "hour": _Unit(3600.0, (("second", 1),)),
    "day": _Unit(86400.0, (("second", 1),)),
    "week": _Unit(604800.0, (("second", 1),)),
    "year": _Unit(31536000.0, (("second", 1),)),
    "hertz": _Unit(1.0, (("second", -1),)),
    "bit": _Unit(1 / 8, (("byte", 1),)),
    "mac": _Unit(2.0, (("flop", 1),)),
    "watt": _Unit(1.0, (("joule", 1), ("second", -1))),
    "watt_hour": _Unit(3600.0, (("joule", 1),)),
    "tonne": _Unit(1e6, (("gram", 1),)),
}

_ALSO = {
    **{"s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day", "yr": "year", "Hz": "hertz"},
    **{"m": "metre", "meter": "metre", "B": "byte", "b": "bit", "FLOP": "flop", "op": "flop", "OP": "flop", "flops": "flop"},
    **{"MAC": "mac", "J": "joule", "W": "watt", "Wh": "watt_hour", "g": "gram", "t": "tonne", "dollar": "usd", "USD": "usd"},
}
"""Other ways to write a unit → its name."""

_TOKEN = re.compile(r"\s*([A-Za-zµμ_]+|1(?=/)|\*\*-?\d|[*/()])\s*")
_SQUARE = re.compile(r"\b(?:square|sq)\s+([A-Za-zµμ_]+)")
_JOINTS = {"*": 1, "/": -1, "per": -1}


def factor_between(written: str, unit: str) -> float:
    """How many of `unit` one of `written` is. Raises LookupError where `written` is no unit, ValueError where it measures something
    else, ArithmeticError or ValueError where no float holds it."""
    powers = dict(_powers(written))
    for name, power in _powers(unit).items():
        powers[name] = powers.get(name, 0) - power
    scales: dict[float, int] = {}  # of equal scales, powers add up first: they cancel without rounding
    bases: dict[str, int] = {}
    for name, power in powers.items():
        _unfold(name, power, scales, bases)
    if any(bases.values()):
        raise ValueError(f"'{written}' and '{unit}' measure different things")
    inverted = sorted(scales.items(), key=lambda item: item[1] < 0)  # whole numbers first, then what divides them
    factor = math.prod(scale**power for scale, power in inverted)
    if not 0.0 < factor < math.inf:
        raise ValueError(f"'{written}' is out of all range")
    return factor


def _unfold(name: str, power: int, scales: dict[float, int], bases: dict[str, int]) -> None:
    """Count a unit's power down to the bases."""
    if name not in _UNITS:
        prefix, name = name.split("-")
        scales[_PREFIXES[prefix]] = scales.get(_PREFIXES[prefix], 0) + power
    scale, of = _UNITS[name]
    if not of:
        bases[name] = bases.get(name, 0) + power
        return
    scales[scale] = scales.get(scale, 0) + power
    for other, times in of:
        _unfold(other, times * power, scales, bases)


@cache
def _powers(text: str) -> Mapping[str, int]:
    """Unit ('prefix-name', or a name alone) → power. Raises LookupError."""
    tokens, at = [], 0
    text = _SQUARE.sub(r"\1**2", text.replace("^", "**"))
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise LookupError(text)
        tokens.append(match[1])
        at = match.end()
    reader = iter([*tokens, ""])
    found, end = _product(next(reader), reader)
    if end or not tokens:
        raise LookupError(text)
    return found


def _product(token: str, rest: Iterator[str]) -> tuple[dict[str, int], str]:
    """(powers of a product, the token behind it)."""
    found: dict[str, int] = {}
    sign = 1
    while True:
        if token == "(":
            one, token = _product(next(rest), rest)
            if token != ")":
                raise LookupError(token)
        elif token and token not in _JOINTS and token[0] not in "*)":
            one = {_named(token): 1} if token != "1" else {}
        else:
            raise LookupError(token)
        token = next(rest)
        if token.startswith("**"):
            one = {name: power * int(token[2:]) for name, power in one.items()}
            token = next(rest)
        for name, power in one.items():
            found[name] = found.get(name, 0) + sign * power
        if not token or token == ")":
            return found, token
        sign = _JOINTS.get(token, 1)
        token = next(rest) if token in _JOINTS else token


@cache
def _named(word: str) -> str:
    """The unit that a word names, as 'prefix-name' where it has a prefix. Raises LookupError."""
    name = _ALSO.get(word, word)
    if name in _UNITS:
        return name
    for written in (word, *([word[:-1]] if word.endswith("s") else [])):
        for prefix in ("", *_PREFIXES):
            if not written.startswith(prefix):
                continue
            bare = written[len(prefix) :]
            name = _ALSO.get(bare, bare)
            if name in _UNITS and (written == word or len(bare) > 1):  # 'Bs' is no plural
                return f"{prefix}-{name}" if prefix else name
    raise LookupError(word)
