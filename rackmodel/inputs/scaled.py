"""A number of a file times a factor: what `--set 'network.bandwidth*=0.5'` puts in the place of '25 GB/s', of 4, or of a range."""

from __future__ import annotations

import re

from rackmodel.errors import InputError, Where
from rackmodel.inputs.marked import Marked, Scalar, short
from rackmodel.units import parse_quantity

SIGN = "*"
"""What ends a name whose value is a factor."""
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*((?:[A-Za-zµμ%(][A-Za-zµμ_() /*-]*(?:\^-?[1-4])?)*)\s*", re.A)
_RANGE = ("value", "low", "mid", "high")


def factor_of(text: str, where: Where, name: str) -> float:
    """The factor that stands behind `*=`: '0.5', '50 %'. name: as it was written, with its sign. Raises InputError."""
    try:
        return parse_quantity(text, "")
    except ValueError:
        raise InputError(f"'{short(text.strip())}' is no factor: want a plain number, such as {name}=0.5", where=where, path=name) from None


def scaled(node: Marked | None, factor: float, where: Where, name: str) -> Marked:
    """What stands at a name, times a factor; a range keeps its source. where: of the override. Raises InputError, at the file's place, for
    what is no number."""
    if node is None or node.value is None:
        raise InputError("nothing is stated there that could be scaled", where=where, path=name)
    inside = node.mapping
    ends = [key for key in _RANGE if key in inside]
    if ends and set(inside) <= {*_RANGE, "source", "note"}:
        for key in ends:
            node = node.having(key, scaled(inside[key], factor, where, name))
        return node
    product = _times(node.value, factor) if isinstance(node.value, str | int | float) else None
    if product is None:
        raise InputError(f"{_said(node)} is no number that {where.file} could scale", where=node.where, path=name)
    return Marked(product, where)


def _times(value: Scalar, factor: float) -> Scalar:
    """A number, or text of a number and a unit, times a factor; None of anything else. What is whole stays so."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        product = float(f"{value * factor:.12g}")
        return int(product) if isinstance(value, int) and product.is_integer() else product
    match = _NUMBER.fullmatch(str(value))
    if match is None:
        return None
    return f"{float(match[1].replace('_', '')) * factor:.12g} {match[2]}".strip()


def _said(node: Marked) -> str:
    if isinstance(node.value, dict | list):
        return "a mapping" if isinstance(node.value, dict) else "a list"
    return f"'{short(node.value)}'"
