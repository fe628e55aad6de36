"""A plain YAML scalar → a value, by the core rules of YAML 1.2: null, true, false, integers, floats, else text.

So `no`, `on`, `1:30`, `2024-01-01` and `1_000` are text, `010` is ten and `1e9` is a number.
"""

from __future__ import annotations

import math
import re

from rackmodel.inputs.marked import Scalar

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+", re.A)
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.A)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.A)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER = 400
_LARGEST_INT = 2**63 - 1


def resolve_scalar(text: str) -> Scalar:
    """The value of a plain scalar. Raises ValueError for what is not finite or does not fit 64 bits."""
    if text in _NULL:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"'{text}' is not a finite number")
    if len(text) > _LONGEST_NUMBER:
        return text
    if _BASED.fullmatch(text):
        return _fits(int(text, 0), text)
    if _INT.fullmatch(text):
        return _fits(int(text), text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"'{text}' is too large for a number")
        return number
    return text


def _fits(number: int, text: str) -> int:
    if abs(number) > _LARGEST_INT:
        raise ValueError(f"'{text if len(text) < 40 else text[:37] + '...'}' is too large for an integer (64 bits)")
    return number
