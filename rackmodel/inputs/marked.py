"""A tree of plain values in which every key and value remembers where it was written.

Marked trees are never changed in place (an alias shares its node): merging and overriding build new nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rackmodel.errors import Where

Scalar = str | int | float | bool | None
Step = str | int


@dataclass(frozen=True)
class Marked:
    """A value and its place; for a mapping also the place of each key."""

    value: Scalar | dict[str, Marked] | list[Marked]
    where: Where
    keys: dict[str, Where] = field(default_factory=dict)

    @property
    def mapping(self) -> dict[str, Marked]:
        """Its entries; empty when it is not a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Marked]:
        """Its elements; empty when it is not a list."""
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str | None:
        """Its value if that is text."""
        return self.value if isinstance(self.value, str) else None

    def plain(self) -> Any:
        """The same tree as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def child(self, step: Step) -> Marked | None:
        """The entry or element at one step, or None."""
        if isinstance(step, int):
            return self.items[step] if 0 <= step < len(self.items) else None
        return self.mapping.get(step)

    def having(self, key: str, value: Marked, where: Where | None = None) -> Marked:
        """A copy of this mapping in which `key` is `value`."""
        place = where or self.keys.get(key, value.where)
        return Marked({**self.mapping, key: value}, self.where, {**self.keys, key: place})

    def without(self, *names: str) -> Marked:
        """A copy of this mapping that lacks some keys."""
        return Marked(
            {key: child for key, child in self.mapping.items() if key not in names},
            self.where,
            {key: place for key, place in self.keys.items() if key not in names},
        )


def place_of(root: Marked, path: Sequence[Step]) -> Where:
    """Where the value at `path` is, or its nearest ancestor that exists."""
    node = root
    for step in path:
        below = node.child(step)
        if below is None:
            break
        node = below
    return node.where


def dotted(root: Marked, path: Sequence[Step]) -> str:
    """A path for a person: a level of an architecture's tree is called by its name, `tree.gpu.memory`."""
    words: list[str] = []
    node: Marked | None = root
    for position, step in enumerate(path):
        node = node.child(step) if node is not None else None
        words.append(short(step))
        is_level = list(path[: position + 1]) == ["tree"] or (isinstance(step, int) and position > 0 and path[position - 1] == "children")
        if is_level and "architecture" in root.mapping and node is not None and "name" in node.mapping:
            name = node.mapping["name"].text
            words = ["tree", short(name)] if name else words
    return ".".join(words)


def short(text: object, limit: int = 40) -> str:
    """Text that fits in a message: control characters escaped, long text cut."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def value_at(raw: Marked, path: Sequence[Step]) -> Marked | None:
    """The value at a path; None where there is none."""
    node: Marked | None = raw
    for step in path:
        node = node.child(step) if node is not None else None
    return node
