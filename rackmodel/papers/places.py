"""Places in papers: 'Figures 10, 11', 'Tables 2 to 5', 'section 6.2' as what they name."""

from __future__ import annotations

import re

_NAMED = re.compile(r"\b(Figure|Table)s? ((?:\d+(?:, | and | to )?)+)")
_NUMBERS = re.compile(r"(\d+)(?: to (\d+))?")


def places(text: str) -> set[str]:
    """Tables and figures that a text names: 'Tables 2 to 4, Figure 7' → {'Table 2', 'Table 3', 'Table 4', 'Figure 7'}."""
    found = set()
    for kind, numbers in _NAMED.findall(text):
        for first, last in _NUMBERS.findall(numbers):
            found |= {f"{kind} {number}" for number in range(int(first), int(last or first) + 1)}
    return found
