"""YAML of plain data by libyaml where PyYAML has it: the same text and the same data, many times sooner. (Inputs: yaml_marks.)"""

from __future__ import annotations

from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def loaded(text: str) -> Any:
    """The data of a text that is ours."""
    return yaml.load(text, Loader=LOADER)


def dumped(data: Any) -> str:
    """Data as the text of a file that a reader takes."""
    return str(yaml.dump(data, Dumper=DUMPER, sort_keys=False, allow_unicode=True)) + "\n"
