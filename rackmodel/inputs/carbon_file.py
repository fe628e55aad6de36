"""A file of specs/carbon → typed tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rackmodel.carbon.operational import GridFile
from rackmodel.errors import InputError, Where
from rackmodel.units import Quantity


def read_grid(path: Path) -> dict[str, Quantity]:
    """Place or energy source → intensity in g/J, each with its source. Raises InputError that names the file."""
    try:
        return build_grid(_load(path))
    except InputError as problem:
        raise problem.at(Where(str(path)))


def build_grid(data: Any) -> dict[str, Quantity]:
    """Plain data of a grid file (`carbon: grid`, `entries: ...`) → its table. Raises InputError with the dotted path."""
    if not isinstance(data, dict) or next(iter(data), None) != "carbon":
        raise InputError("want a mapping that begins with `carbon: grid`")
    if data["carbon"] != "grid":
        raise InputError(f"'{data['carbon']}' is not a table of grids", path="carbon", known=("grid",), given=str(data["carbon"]))
    try:
        return GridFile.model_validate(data).table()
    except ValidationError as problem:
        first = problem.errors()[0]
        raise InputError(first["msg"].removeprefix("Value error, "), path=".".join(str(part) for part in first["loc"]))


def _load(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InputError(f"cannot be read: {problem}")
