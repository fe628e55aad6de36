"""Options that are numbers, in this program's words: what typer refuses is told as every other bad input is."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from rackmodel.errors import InputError

_KINDS = {int: "a whole number", float: "a number"}


class NumberWords(TyperGroup):
    """The commands; an option that is no number, or outside its range, is an InputError."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Raises InputError."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as problem:
            wanted = _wanted(problem.param)
            if not wanted or not problem.message:
                raise
            raise InputError(f"want {wanted}", path=problem.param.opts[0]) from None  # type: ignore[union-attr]


def _wanted(option: Any) -> str:
    """'a whole number of at least 1'; '' of what is no number. Typer has said kind and range in two ways: by itself, and by a type."""
    kind = getattr(option, "type", None)
    number = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    if number is None and kind is not None:
        number = {"integer": int, "float": float}.get(str(getattr(kind, "name", "")).partition(" ")[0])
    if number not in _KINDS:
        return ""
    least, most = (getattr(option, end, getattr(kind, end, None)) for end in ("min", "max"))
    if least is None:
        return _KINDS[number]
    return f"{_KINDS[number]} of at least {least}" if most is None else f"{_KINDS[number]} from {least} to {most}"
