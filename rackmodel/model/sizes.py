"""Sizes of indices: numbers, names of each other, products and quotients."""

from __future__ import annotations

import re
from collections.abc import Mapping as AbcMapping
from math import isfinite

from rackmodel.errors import InputError


def resolve_sizes(raw: AbcMapping[str, str | int]) -> dict[str, int]:
    """Sizes as integers; a size may name another size or a product ('batch * seq'). Raises InputError."""
    sizes: dict[str, int] = {}
    pending = dict(raw)
    while pending:
        before = len(pending)
        for name, value in list(pending.items()):
            if isinstance(value, int) or re.fullmatch(r"\s*\d[\d_]{0,30}\s*", value):
                sizes[name] = int(value)
            elif all(word in sizes or word not in raw for word in re.findall(r"[A-Za-z_]\w*", value)):
                sizes[name] = whole_size(value, sizes, f"sizes.{name}")
            else:
                continue
            if sizes[name] < 1:
                raise InputError(f"size {sizes[name]} of '{name}' must be at least 1", path=f"sizes.{name}")
            del pending[name]
        if len(pending) == before:
            raise InputError(f"sizes refer to each other in a circle: {', '.join(pending)}", path=f"sizes.{next(iter(pending))}")
    return sizes


def whole_size(text: str, sizes: AbcMapping[str, int], path: str) -> int:
    value = evaluate(text, sizes, path)
    if not isfinite(value):
        raise InputError(f"'{text}' is too large", path=path)
    if value != int(value):
        raise InputError(f"'{text}' is {value:g}, not a whole number", path=path)
    return int(value)


def evaluate(text: str | float | int, sizes: AbcMapping[str, int], path: str) -> float:
    """Value of a product or quotient of sizes and numbers, such as 'k/x' or 'batch * seq'. Raises InputError."""
    if isinstance(text, int | float):
        return float(text)
    result, operator = 1.0, "*"
    for token in re.findall(r"[A-Za-z_]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\S", text):
        if token in "*/":
            operator = token
            continue
        if token[0].isdigit():
            value = float(token)
        elif token in sizes:
            value = float(sizes[token])
        else:
            raise InputError(f"'{text}': no size called '{token}'", path=path, known=sorted(sizes), given=token)
        if operator == "/" and value == 0:
            raise InputError(f"'{text}' divides by zero", path=path)
        result = result * value if operator == "*" else result / value
    return result


def extent(affine: tuple[tuple[int, str], ...], sizes: AbcMapping[str, int]) -> int:
    """Elements a sum of indices walks over: 1 + Σ stride (size − 1)."""
    return 1 + sum(stride * (sizes[index] - 1) for stride, index in affine)
