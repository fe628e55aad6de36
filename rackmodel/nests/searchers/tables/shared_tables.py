"""What spaces that are alike from a level inwards have in common: tables of costs there, and geometry that no price touches.

Members of fused regions are priced with other tensors on chip, at other capacities of level 1 and in other regions: nothing of that is seen
from level 2 on, where most spatial vectors are. What decides a table is Space.alike, numbers without names.
"""

from collections.abc import Hashable
from typing import Any


class SharedTables:
    """One store for searches of perfect factors that ask for the same einsums on the same machine again and again."""

    def __init__(self) -> None:
        self.found: dict[tuple[Hashable, ...], dict[Any, Any]] = {}

    def of(self, *key: Hashable) -> dict[Any, Any]:
        """What is remembered under a key; empty at first."""
        return self.found.setdefault(key, {})
