"""Sizes of indices: whole numbers, names of each other, and what + - * / and brackets make of them.

    sum = product (("+" | "-") product)*      product = factor (("*" | "/") factor)*
    factor = number | name | "(" sum ")" | ("min" | "max") "(" sum ("," sum)* ")" | "floor" "(" sum ")"
    number = 4096, 14_336, 0.25 or 1e-3

Text → tokens → one exact fraction; nothing is rounded on the way. The same text makes arrays of sizes that
are arrays. A sign in front, a power and two values side by side are no part of it: they are refused with the character at which they
stand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as AbcMapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import floor
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InputError, together

LARGEST = 2**53
"""The largest size: whole numbers up to here are exact as floats too."""

_TOKEN = re.compile(r"(?P<number>\d+(?:_\d+)*(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|\S)", re.A)
_LONGEST_NUMBER = 40
_LARGEST_EXPONENT = 999
_LONGEST_TEXT = 1000
_DEEPEST = 16


_CALLS: dict[str, tuple[Any, Any]] = {
    "min": (min, lambda values: reduce(np.minimum, values)),
    "max": (max, lambda values: reduce(np.maximum, values)),
    "floor": (lambda values: Fraction(floor(values[0])), lambda values: np.floor(values[0])),
}
"""Word → what it makes of a list of exact values, and of one of arrays."""

_OF_ONE = ("floor",)


@dataclass(frozen=True)
class _Token:
    """A number, a name, a sign or the end, and the character it starts at (from 1)."""

    kind: str
    text: str
    at: int


def resolve_sizes(raw: AbcMapping[str, str | int]) -> dict[str, int]:
    """Sizes as integers; a size may name others ('batch * seq'). Raises InputError with everything that is wrong."""
    sizes: dict[str, int] = {}
    wrong: dict[str, InputError] = {}
    words = {name: size_names(value) for name, value in raw.items()}
    pending = dict(raw)
    while pending:
        ready = {name: value for name, value in pending.items() if all(word in sizes or word not in raw for word in words[name])}
        if not ready:
            break
        for name, value in ready.items():
            del pending[name]
            try:
                sizes[name] = _size(name, value, sizes, [other for other in raw if other != name])
            except InputError as problem:
                wrong[name] = problem
    if pending and not wrong:
        wrong[""] = InputError(f"sizes refer to each other in a circle: {', '.join(pending)}", path=f"sizes.{next(iter(pending))}")
    if wrong:
        raise together([wrong[name] for name in (*raw, "") if name in wrong])
    return sizes


def _size(name: str, value: str | int, sizes: AbcMapping[str, int], known: Collection[str]) -> int:
    size = value if isinstance(value, int) else whole_size(value, sizes, f"sizes.{name}", known)
    if size < 1:
        raise InputError(f"size {size} of '{name}' must be at least 1", path=f"sizes.{name}")
    if size > LARGEST:
        raise InputError(f"'{short(str(value))}' is too large: at most {LARGEST} (2^53)", path=f"sizes.{name}")
    return size


def whole_size(text: str, sizes: AbcMapping[str, int], path: str, known: Collection[str] | None = None) -> int:
    """The whole number that an expression over sizes makes. known: names to list where one is unknown. Raises InputError."""
    value = _exact(text, sizes, path, known)
    if abs(value) > LARGEST:
        raise InputError(f"'{short(text)}' is too large: at most {LARGEST} (2^53)", path=path)
    if value.denominator != 1:
        raise InputError(f"'{short(text)}' is {float(value):g}, not a whole number", path=path)
    return int(value)


def evaluate(text: str | float | int, sizes: AbcMapping[str, int], path: str) -> float:
    """Value of an expression over sizes, such as 'k/x' or 'batch * seq'. Raises InputError."""
    if isinstance(text, int | float):
        return float(text)
    value = _exact(text, sizes, path, None)
    if abs(value) > LARGEST:
        raise InputError(f"'{short(text)}' is too large: at most {LARGEST} (2^53)", path=path)
    return float(value)


def sized_arrays(raw: AbcMapping[str, str | int], given: AbcMapping[str, Array]) -> dict[str, Any]:
    """Sizes where some are given as arrays: those that follow from them are arrays, the others stay numbers. Raises InputError."""
    sizes: dict[str, Any] = dict(given)
    pending = {name: value for name, value in raw.items() if name not in given}
    while pending:
        ready = {name: value for name, value in pending.items() if not size_names(value) & set(pending)}
        for name, value in ready.items():
            sizes[name] = array_value(value, sizes, f"sizes.{name}")
            del pending[name]
    return sizes


def array_value(text: str | float, sizes: AbcMapping[str, Any], path: str) -> Any:
    """Value of an expression over sizes that may be arrays: in floats. Raises InputError."""
    if isinstance(text, int | float):
        return text
    found = _value(text, sizes, path, None, exact=False)
    return float(found) if np.ndim(found) == 0 else found


def size_names(text: str | float) -> set[str]:
    """Names that an expression uses."""
    return {token.text for token in _tokens(str(text)) if token.kind == "name"} - {*_CALLS}


def _exact(text: str, sizes: AbcMapping[str, int], path: str, known: Collection[str] | None) -> Fraction:
    return _value(text, sizes, path, known, exact=True)  # type: ignore[no-any-return]


def _value(text: str, sizes: AbcMapping[str, Any], path: str, known: Collection[str] | None, *, exact: bool) -> Any:
    if len(text) > _LONGEST_TEXT:
        raise InputError(f"'{short(text)}' has {len(text)} characters: at most {_LONGEST_TEXT} are read", path=path)
    try:
        return _Reader(text, list(_tokens(text)), sizes, exact).whole()
    except _Unknown as problem:
        there = sorted(sizes if known is None else known)
        raise InputError(f"'{short(text)}': no size called '{problem.name}'", path=path, known=there, given=problem.name)
    except ValueError as problem:
        raise InputError(f"'{short(text)}': {problem}", path=path)


class _Unknown(Exception):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        yield _Token(match.lastgroup or "", match[0], match.start() + 1)
    yield _Token("end", "", len(text) + 1)


@dataclass
class _Reader:
    """Tokens → one value, from left to right. Raises ValueError with the character at which the text cannot go on."""

    text: str
    tokens: list[_Token]
    sizes: AbcMapping[str, Any]
    exact: bool
    here: int = 0

    def whole(self) -> Any:
        """The value of all of the text."""
        value = self._sum(0)
        token = self.tokens[self.here]
        if token.kind == "end":
            return value
        if token.kind == "sign":
            raise ValueError(f"'{token.text}' at character {token.at} is not understood: + - * / and ( ) are")
        raise ValueError(f"'{token.text}' at character {token.at} follows a value: want + - * or / between them")

    def _sum(self, depth: int) -> Any:
        value = self._product(depth)
        while self._sign() in ("+", "-"):
            sign = self._take().text
            other = self._product(depth)
            value = value + other if sign == "+" else value - other
        return value

    def _product(self, depth: int) -> Any:
        value = self._factor(depth)
        while self._sign() in ("*", "/"):
            sign = self._take()
            other = self._factor(depth)
            if sign.text == "/" and np.any(other == 0):
                raise ValueError(f"divides by zero at character {sign.at}")
            value = value * other if sign.text == "*" else value / other
        return value

    def _factor(self, depth: int) -> Any:
        token = self._take()
        if token.kind == "number":
            return _number(token) if self.exact else float(_number(token))
        if token.text in _CALLS and self._sign() == "(":
            return self._call(token.text, depth)
        if token.kind == "name":
            if token.text not in self.sizes:
                raise _Unknown(token.text)
            return Fraction(self.sizes[token.text]) if self.exact else self.sizes[token.text]
        if token.text == "(":
            if depth >= _DEEPEST:
                raise ValueError(f"more than {_DEEPEST} brackets inside one another")
            value = self._sum(depth + 1)
            if self._sign() != ")":
                raise ValueError(f"the bracket at character {token.at} is never closed")
            self._take()
            return value
        if token.kind == "end":
            raise ValueError("ends where a number or a name is due" if self.text.strip() else "is empty: want a number or a name")
        raise ValueError(f"'{token.text}' at character {token.at}, where a number or a name is due")

    def _call(self, word: str, depth: int) -> Any:
        """min, max or floor of the values in the bracket that follows."""
        opened = self._take()
        if depth >= _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} brackets inside one another")
        values = [self._sum(depth + 1)]
        while self._sign() == ",":
            self._take()
            values.append(self._sum(depth + 1))
        if self._sign() != ")":
            raise ValueError(f"the bracket at character {opened.at} is never closed")
        self._take()
        if word in _OF_ONE and len(values) > 1:
            raise ValueError(f"{word} of {len(values)} values at character {opened.at}: want one")
        exact, arrays = _CALLS[word]
        return exact(values) if self.exact else arrays(values)

    def _sign(self) -> str:
        token = self.tokens[self.here]
        return token.text if token.kind == "sign" else ""

    def _take(self) -> _Token:
        token = self.tokens[self.here]
        self.here += token.kind != "end"
        return token


def _number(token: _Token) -> Fraction:
    mantissa, _, exponent = token.text.lower().partition("e")
    if len(mantissa) > _LONGEST_NUMBER or len(exponent) > 4 or abs(int(exponent or 0)) > _LARGEST_EXPONENT:
        raise ValueError(f"'{short(token.text)}' at character {token.at} is too large or too small")
    return Fraction(mantissa.replace("_", "")) * Fraction(10) ** int(exponent or 0)


def short(text: str) -> str:
    """A text as messages quote it."""
    return text if len(text) <= 60 else text[:57] + "..."


def extent(affine: tuple[tuple[int, str], ...], sizes: AbcMapping[str, int]) -> int:
    """Elements a sum of indices walks over: 1 + Σ stride (size − 1)."""
    return 1 + sum(stride * (sizes[index] - 1) for stride, index in affine)
