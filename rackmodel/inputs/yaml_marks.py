"""Safe YAML → a Marked tree. Text is bounded, plain and unambiguous, or it is refused with file:line:column.

Built on PyYAML's event stream with a stack of its own: no recursion, no tags, no objects, no merge keys. Aliases are
allowed as long as the tree they expand to stays small.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rackmodel.errors import InputError, Where
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.scalars import resolve_scalar

MAX_BYTES = 2_000_000
MAX_SCALAR = 10_000
MAX_DEPTH = 64
MAX_NODES = 50_000
MAX_KEPT = 100_000  # characters of a text whose tree is kept
_DEEPER = f"nested deeper than {MAX_DEPTH} levels"
UNCLOSED = ("quoted scalar", "flow sequence", "flow mapping")
"""What a parser was in where a bracket or quote is missing: the place to look at is where it began."""
INDENTED = ("did not find expected key", "mapping values are not allowed in this context", "did not find expected '-' indicator")
"""What a parser says of a line that is indented otherwise than those beside it."""
_TOO_DEEP = "maximum nesting depth"  # what libyaml says, from 0.2.6 on, where it looks ahead through so many brackets

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FORBIDDEN = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_IN_SCALAR = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_BREAK = re.compile(r"\r\n|\r|\n")


def read_yaml(path: Path, shown: str | None = None) -> Marked:
    """The mapping in a file. shown: the name of the file in messages. Raises InputError."""
    file = shown or str(path)
    return compose(read_text(path, file), file)


def read_text(path: Path, file: str) -> str:
    """The text of a small UTF-8 file without control characters. Raises InputError that names the file."""
    whole = Where(file)
    try:
        if path.is_dir():
            raise InputError(f"is a directory, not a file{_mapping_in(path, file)}", where=whole)
        if path.exists() and not path.is_file():
            raise InputError("is not a regular file", where=whole)
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError("no such file", where=whole)
    except PermissionError:
        raise InputError("permission denied", where=whole)
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", where=whole)
    if len(data) > MAX_BYTES:
        raise InputError(f"is larger than {MAX_BYTES // 1_000_000} MB, the most an input may have", where=whole)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        before = data[: problem.start].decode("utf-8", "replace")
        raise InputError(f"byte 0x{data[problem.start]:02x} is not UTF-8 text", where=_after(file, before))


def _mapping_in(path: Path, file: str) -> str:
    """What to name instead where a folder is one that `search -o` wrote."""
    return f": its mapping is {Path(file, 'mapping.yaml')}" if (path / "mapping.yaml").is_file() else ""


def compose(text: str, file: str) -> Marked:
    """The one mapping that `text` holds, marked with `file`; what was read lately is not read again. Raises InputError."""
    return _composed_lately(text, file) if len(text) <= MAX_KEPT else _composed(text, file)


def _composed(text: str, file: str) -> Marked:
    root = _Composer(file).run(text)
    if root is None or root.value is None:
        raise InputError("is empty: want a mapping", where=Where(file, 1, 1))
    if not isinstance(root.value, dict):
        what = "a list" if isinstance(root.value, list) else "a single value"
        raise InputError(f"holds {what} where a mapping (key: value) is wanted", where=root.where)
    return root


_composed_lately = lru_cache(maxsize=128)(_composed)  # Marked trees are never changed in place


def compose_value(text: str, file: str) -> Marked:
    """One scalar or flow collection ('[1, 2]', '{a: 1}'), every mark being `file` itself. Raises InputError."""
    root = _Composer(file, marks=False, block=False).run(text)
    return Marked(None, Where(file)) if root is None else root


def _after(file: str, before: str) -> Where:
    lines = _BREAK.split(before)
    return Where(file, len(lines), len(lines[-1]) + 1)


@dataclass
class _Frame:
    """A collection that is still open."""

    node: Marked
    anchor: str | None
    key: str | None = None
    size: int = 1
    height: int = 1


@dataclass
class _Composer:
    """Events → one tree. marks: whether places have lines · block: whether block collections are allowed."""

    file: str
    marks: bool = True
    block: bool = True
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Marked, int, int]] = field(default_factory=dict)
    nodes: int = 0
    root: Marked | None = None

    def run(self, text: str) -> Marked | None:
        """The root node; None when there is no document."""
        bad = _FORBIDDEN.search(text)
        if bad:
            where = _after(self.file, text[: bad.start()]) if self.marks else Where(self.file)
            hint = ": use spaces" if bad[0] == "\t" else ""
            raise InputError(f"{_character(bad[0])} is not allowed in an input file{hint}", where=where)
        documents = 0
        for event in self._events(text):
            where = self._where(event)
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InputError("a second document starts here: one file holds one", where=where)
                if event.version or event.tags:
                    raise InputError("YAML directives are not allowed", where=where)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, where)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event, where)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event, where)
            elif isinstance(event, yaml.CollectionEndEvent):
                frame = self.stack.pop()
                self._add(frame.node, frame.size, frame.height, frame.anchor)
        return self.root

    def _events(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as problem:
            unclosed = problem.context_mark is not None and any(word in str(problem.context) for word in UNCLOSED)
            mark = problem.context_mark if unclosed else problem.problem_mark or problem.context_mark
            where = Where(self.file, mark.line + 1, mark.column + 1) if mark and self.marks else Where(self.file)
            fact = ", ".join(part for part in (problem.context, problem.problem) if part)
            if _TOO_DEEP in fact:
                raise InputError(_DEEPER, where=where)
            hint = "; is it closed?" if unclosed else "; is the line indented as those beside it?" if problem.problem in INDENTED else ""
            raise InputError(f"is not YAML: {short(fact, 160)}{hint}", where=where)
        except (yaml.YAMLError, ValueError, OverflowError) as problem:
            raise InputError(f"is not YAML: {short(problem, 160)}", where=Where(self.file))

    def _where(self, event: Any) -> Where:
        mark = event.start_mark
        return Where(self.file, mark.line + 1, mark.column + 1) if self.marks else Where(self.file)

    def _plain_node(self, event: Any, where: Where) -> None:
        if event.tag is not None:
            raise InputError(f"tag '{short(event.tag)}': YAML tags are not allowed", where=where)
        if event.anchor is not None:
            if event.anchor in self.anchors or any(frame.anchor == event.anchor for frame in self.stack):
                raise InputError(f"anchor '&{short(event.anchor)}' is defined twice", where=where)
            if self.stack and self._wants_key():
                raise InputError("a key may not have an anchor", where=where)

    def _wants_key(self) -> bool:
        frame = self.stack[-1]
        return isinstance(frame.node.value, dict) and frame.key is None

    def _scalar(self, event: Any, where: Where) -> None:
        self._plain_node(event, where)
        text: str = event.value
        if len(text) > MAX_SCALAR:
            raise InputError(f"a value of {len(text)} characters: at most {MAX_SCALAR} are allowed", where=where)
        bad = _IN_SCALAR.search(text)
        if bad:
            raise InputError(f"{_character(bad[0])} is not allowed in a value", where=where)
        try:
            value = text if event.style else resolve_scalar(text)
        except ValueError as problem:
            raise InputError(str(problem), where=where)
        if self.stack and self._wants_key():
            self._key(value, text, where)
        else:
            self._add(Marked(value, where), 1, 0, event.anchor)

    def _key(self, value: object, text: str, where: Where) -> None:
        frame = self.stack[-1]
        if not isinstance(value, str):
            raise InputError(f"key '{short(text)}' is not text: put it in quotes", where=where)
        if value == "<<":
            raise InputError("merge keys '<<' are not allowed: use extends", where=where)
        if value in frame.node.keys:
            first = frame.node.keys[value]
            raise InputError(f"duplicate key '{short(value)}'" + (f" (first at line {first.line})" if first.line else ""), where=where)
        frame.key = value
        frame.node.keys[value] = where

    def _alias(self, event: Any, where: Where) -> None:
        if any(frame.anchor == event.anchor for frame in self.stack):
            raise InputError(f"alias '*{short(event.anchor)}' refers to itself", where=where)
        if event.anchor not in self.anchors:
            raise InputError(f"alias '*{short(event.anchor)}' has no anchor before it", where=where, known=sorted(self.anchors)[:20])
        if self.stack and self._wants_key():
            raise InputError("a key may not be an alias", where=where)
        node, size, height = self.anchors[event.anchor]
        if len(self.stack) + height > MAX_DEPTH:
            raise InputError(f"alias '*{short(event.anchor)}' nests deeper than {MAX_DEPTH} levels", where=where)
        self._add(node, size, height, None, where)

    def _open(self, event: Any, where: Where) -> None:
        self._plain_node(event, where)
        if self.stack and self._wants_key():
            raise InputError("a key must be text, not a collection", where=where)
        if len(self.stack) >= MAX_DEPTH:
            raise InputError(_DEEPER, where=where)
        if not self.block and not event.flow_style:
            raise InputError("want a value, a list as [a, b] or a mapping as {a: b}", where=where)
        empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Frame(Marked(empty, where), event.anchor))

    def _add(self, node: Marked, size: int, height: int, anchor: str | None, where: Where | None = None) -> None:
        if anchor is not None:
            self.anchors[anchor] = (node, size, height)
        self.nodes += 1
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if frame.size > MAX_NODES or self.nodes > MAX_NODES:
            raise InputError(f"has more than {MAX_NODES} values (aliases counted as often as used)", where=where or node.where)
        if isinstance(frame.node.value, dict):
            assert frame.key is not None
            frame.node.value[frame.key] = node
            frame.key = None
        elif isinstance(frame.node.value, list):
            frame.node.value.append(node)


def _character(char: str) -> str:
    if char == "\t":
        return "a tab"
    return "a NUL byte" if char == "\0" else f"control character U+{ord(char):04X}"
