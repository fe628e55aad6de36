"""One flip of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Flip:
    """case: of CASES · at: dotted path from the file · new: its value, DROP = none · given: edits that hold before and after ·
    refused: path of the error it must raise; '' = its answer must change."""

    case: str
    at: str
    new: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
