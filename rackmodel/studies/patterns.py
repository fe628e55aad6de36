"""Patterns of figures' names: `{x} % of wafers work, kg` takes every figure that is called so, and what stands for x out of its name.

`{x:cell|metal}` takes these words alone; `*` is any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"\{(x|series)(?::([^{}]*))?\}|\*")


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression: what is no placeholder means itself."""
    parts, end = [], 0
    for part in _PART.finditer(pattern):
        parts.append(re.escape(pattern[end : part.start()]))
        words = "|".join(map(re.escape, part[2].split("|"))) if part[2] else ".+?"
        parts.append(f"(?P<{part[1]}>{words})" if part[1] else ".*?")
        end = part.end()
    return re.compile("".join(parts) + re.escape(pattern[end:]))


def check_placeholders(patterns: Iterable[str]) -> None:
    """Raise ValueError for a brace that is no {x} and no {series}, and for one that is there twice."""
    for pattern in patterns:
        names = [part[1] for part in _PART.finditer(pattern) if part[1]]
        if set("{}") & set(_PART.sub("", pattern)) or len(set(names)) < len(names):
            raise ValueError(f"figures: '{pattern}' may have {{x}} and {{series}}, each once")
