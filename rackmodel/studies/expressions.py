"""What a study's own finding needs, as text: comparisons of arithmetic over its figures, joined by `and`.

    dp < tp and max(dp) <= 1.1 * min(row)

Names are figures; a figure over several points is one number for each, and a comparison must hold for all of them. Numbers, + - * /,
min and max, nothing else: the text is parsed, never run.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Iterable, Mapping

import numpy as np

from rackmodel.arrays import Array
from rackmodel.errors import InputError
from rackmodel.inputs.marked import short
from rackmodel.studies.findings import Need

_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_REDUCTIONS = {"min": np.minimum.reduce, "max": np.maximum.reduce}
_WORDS = {ast.Lt: "less", ast.LtE: "less", ast.Gt: "more", ast.GtE: "more"}
LONGEST, SHOWN = 1_000, 60  # characters
LARGEST = 1e300
ALLOWED = ("names of figures", "numbers", "+ - * /", "min, max", "< <= > >=", "and")


def needs_of(text: str, figures: Mapping[str, Array], path: str) -> list[Need]:
    """A need for each comparison of `text`, at the value nearest to failing. Raises InputError that points at `path`."""
    if len(text) > LONGEST:
        raise InputError(f"'{short(text, SHOWN)}' has {len(text)} characters: at most {LONGEST} are read", path=path, known=ALLOWED)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
        return [need for part in parts for need in _comparison(part, figures, path)]
    except SyntaxError:
        raise InputError(f"'{text}' is no comparison", path=path, known=ALLOWED) from None
    except RecursionError:
        raise InputError(f"'{short(text, SHOWN)}' is nested too deep to be read", path=path, known=ALLOWED) from None


def check_text(text: str, names: Iterable[str]) -> None:
    """Raise ValueError unless `text` can be read, and every name in it is one of `names`."""
    try:
        with np.errstate(all="ignore"):
            needs_of(text, {name: np.array([_PLAIN]) for name in names}, "")
    except InputError as problem:
        if problem.known or "different" in problem.message:
            known = f" (known: {', '.join(problem.known)})" if problem.known else ""
            raise ValueError(f"{problem.message}{known}") from None


_PLAIN = 1.4142135623730951
"""What a name is worth while a text is checked: no arithmetic of it and plain numbers is 0."""


def _comparison(node: ast.expr, figures: Mapping[str, Array], path: str) -> list[Need]:
    if not isinstance(node, ast.Compare) or not all(type(op) in _WORDS for op in node.ops):
        raise InputError(f"'{ast.unparse(node)}' is no comparison", path=path, known=ALLOWED)
    sides = [node.left, *node.comparators]
    found = []
    for op, left, right in zip(node.ops, sides[:-1], sides[1:], strict=True):
        try:
            values, bounds = np.broadcast_arrays(_value(left, figures, path), _value(right, figures, path))
        except ValueError:
            raise InputError(f"'{ast.unparse(node)}' compares figures over different values", path=path) from None
        less = _WORDS[type(op)] == "less"
        words = ast.unparse(left)
        each = [
            Need(words, float(value), most=float(bound)) if less else Need(words, float(value), least=float(bound))
            for value, bound in zip(values.ravel(), bounds.ravel(), strict=True)
        ]
        found.append(min(each, key=lambda need: need.margin))
    return found


def _value(node: ast.expr, figures: Mapping[str, Array], path: str) -> Array:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        if not abs(node.value) < LARGEST:
            raise InputError(f"'{short(ast.unparse(node), SHOWN)}' is too large a number", path=path, known=("numbers below 1e300",))
        return np.asarray(float(node.value))
    if isinstance(node, ast.Name):
        if node.id not in figures:
            raise InputError(f"no figure called '{node.id}'", path=path, known=list(figures), given=node.id)
        return figures[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return np.asarray(-_value(node.operand, figures, path))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _arithmetic(node, figures, path)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REDUCTIONS and node.args and not node.keywords:
        parts = np.concatenate([_value(part, figures, path).ravel() for part in node.args])
        return np.asarray(_REDUCTIONS[node.func.id](parts))
    raise InputError(f"'{ast.unparse(node)}' is not understood here", path=path, known=ALLOWED)


def _arithmetic(node: ast.BinOp, figures: Mapping[str, Array], path: str) -> Array:
    left, right = _value(node.left, figures, path), _value(node.right, figures, path)
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(_ARITHMETIC[type(node.op)](left, right), dtype=float)
    except ValueError:
        raise InputError(f"'{ast.unparse(node)}' joins figures over different values", path=path) from None
    if not all(math.isfinite(one) for one in value.ravel()):
        raise InputError(f"'{ast.unparse(node)}' is no number: a figure is 0 or too large", path=path)
    return value
