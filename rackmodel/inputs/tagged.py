"""YAML of other tools → a Marked tree: a few known `!Tags` and templates with a default are understood, all else refused.

The bounds of yaml_marks hold (size, depth, aliases, no objects): a tag becomes the text at the key "!" of its mapping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackmodel.errors import InputError, Where
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.yaml_marks import _Composer, read_text

TAG = "!"
"""Key under which a mapping remembers its tag."""

KNOWN_TAGS = ("!Component", "!Container", "!Hierarchical", "!Parallel", "!Memory", "!Compute", "!Network")
_DEFAULTED = re.compile(r"\{\{\s*(\w+)\s*\|\s*default\(([^(){}]*)\)\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%")


@dataclass(frozen=True)
class Foreign:
    """A file of another tool: its tree, and what was filled in where it is a template."""

    shown: str
    root: Marked
    filled: tuple[tuple[Where, str], ...]


def read_foreign(path: Path) -> Foreign:
    """The mapping in a file of another tool. Raises InputError with file:line:column."""
    file = str(path)
    text = read_text(path, file)
    filled = tuple(
        (_place(file, text, found.start()), f"template variable '{found[1]}': its default {found[2]}")
        for found in _DEFAULTED.finditer(text)
    )
    text = _DEFAULTED.sub(lambda found: found[2], text)
    left = _TEMPLATE.search(text)
    if left:
        raise InputError("a template without a default value: render the file first", where=_place(file, text, left.start()))
    root = _Tagged(file).run(text)
    if root is None or not isinstance(root.value, dict):
        raise InputError("holds no mapping (key: value)", where=Where(file, 1, 1))
    return Foreign(file, root, filled)


def _place(file: str, text: str, offset: int) -> Where:
    before = text[:offset]
    return Where(file, before.count("\n") + 1, offset - before.rfind("\n"))


@dataclass
class _Tagged(_Composer):
    """As the composer of inputs, but with known tags on mappings."""

    def _plain_node(self, event: Any, where: Where) -> None:
        tag, event.tag = event.tag, None
        if tag is not None and tag not in KNOWN_TAGS:
            raise InputError(f"tag '{short(tag)}' is not known", where=where, known=KNOWN_TAGS, given=tag)
        super()._plain_node(event, where)
        self.pending = tag

    def _scalar(self, event: Any, where: Where) -> None:
        tag = event.tag
        super()._scalar(event, where)
        if tag is not None:
            raise InputError(f"tag '{short(tag)}' stands before a value, want a mapping", where=where)

    def _open(self, event: Any, where: Where) -> None:
        super()._open(event, where)
        if self.pending is None:
            return
        node = self.stack[-1].node
        if not isinstance(node.value, dict):
            raise InputError(f"tag '{self.pending}' stands before a list, want a mapping", where=where)
        node.value[TAG] = Marked(self.pending, where)
        node.keys[TAG] = where

    def _key(self, value: object, text: str, where: Where) -> None:
        if value == "<<":
            raise InputError("merge keys '<<' are not read: write the keys out", where=where)
        super()._key(value, text, where)

    pending: str | None = None
