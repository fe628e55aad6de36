"""No figure that is shown, printed or written is NaN or infinite: such an answer is an error that names the figure.

A certificate's bound and gap may be unknown; in JSON that is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from rackmodel.cost.ledger import FIGURES
from rackmodel.errors import NotFiniteError
from rackmodel.model.result import Result

_FIGURES = attrgetter(*FIGURES)
_NAMES = {"latency_s": "latency", "energy_j": "energy", "carbon_g": "carbon", "memory_bytes_per_accelerator": "memory"}


def check_finite(results: Iterable[Result]) -> None:
    """Raise NotFiniteError for the first figure of a result, or of a row of its ledger, that is no finite number."""
    for result in results:
        about = f"{result.workload} on {result.architecture} by {result.mapper}"
        for key, name in _NAMES.items():
            value = getattr(result, key)
            if value is not None and not math.isfinite(value):
                raise NotFiniteError(f"the {name} of {about}", value)
        for row in result.ledger:
            values = _FIGURES(row)
            if all(map(math.isfinite, values)):
                continue
            for figure, value in zip(FIGURES, values, strict=True):
                if not math.isfinite(value):
                    place = " ".join(word for word in (row.phase, row.einsum, row.tensor, row.level, row.action) if word)
                    raise NotFiniteError(f"{figure} of {place} in {about}", value)


def finite(data: Any, path: str = "") -> Any:
    """Plain data as it may stand in JSON. Raises NotFiniteError with the dotted path of a number that is not finite."""
    if isinstance(data, dict):
        return {key: finite(value, f"{path}.{key}" if path else str(key)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value, f"{path}.{position}") for position, value in enumerate(data)]
    if isinstance(data, float) and not math.isfinite(data):
        if "certificate" in path.split("."):
            return None
        raise NotFiniteError(path, data)
    return data
