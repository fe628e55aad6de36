"""YAML of plain data by libyaml where PyYAML has it: the same text and the same data, many times sooner. (Inputs: yaml_marks.)"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def loaded(text: str) -> Any:
    """The data of a text that is ours."""
    return yaml.load(text, Loader=LOADER)


def plain_data(value: Any) -> Any:
    """Data with numbers and arrays of numpy as Python's, tuples and ranges as lists, paths as text."""
    if isinstance(value, Mapping):
        return {plain_data(name): plain_data(one) for name, one in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain_data(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else str(value) if isinstance(value, Path) else value


def dumped(data: Any) -> str:
    """Data as the text of a file that a reader takes."""
    return str(yaml.dump(data, Dumper=DUMPER, sort_keys=False, allow_unicode=True)) + "\n"
