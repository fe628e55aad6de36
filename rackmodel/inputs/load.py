"""A name → one Marked tree: the file, what it extends, and the parts its levels refer to.

Mappings merge key by key, everything else replaces; levels merge by name. Marks keep pointing at the file that said it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rackmodel.errors import InputError, Where
from rackmodel.inputs.library import FOLDERS, Source, a, in_library, real, resolve
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.schema import QUANTITY_KEYS
from rackmodel.inputs.yaml_marks import compose, read_text, read_yaml

CONFIG = "is a model's config: `rackmodel import` makes the step that serves it, and with --training the one that trains it"
LIKE_A_KIND = 0.8  # a first key is seldom a kind that is misspelt, often another key
MOST_FILES = 32
DEEPEST_PARTS = 4
MOST_PARTS = 256


def load(kind: str, name: str | Path) -> Marked:
    """The tree of an input with `extends` and `part` resolved. Raises InputError.

    kind: a key of FOLDERS, which must also be the first key of the file · name: of the library, a path, or the text itself (whatever has
    more than one line; what it refers to by path starts at the working folder).
    """
    if isinstance(name, str) and "\n" in name:
        raw = _widened(kind, compose(name, f"<{kind}>"), ())
        return with_own_tables(with_parts(raw)) if kind == "architecture" else raw
    return load_source(kind, resolve(kind, name))


def load_source(kind: str, source: Source) -> Marked:
    """As load, of a file that is already found."""
    raw = _extended(kind, source, ())
    return with_own_tables(with_parts(raw)) if kind == "architecture" else raw


def kind_in(raw: Marked) -> str:
    """The kind of a file by its first key. Raises InputError that lists the kinds."""
    first = next(iter(raw.mapping), None)
    if first in FOLDERS:
        return first
    if first is None:
        raise InputError("is empty: want a mapping", where=raw.where)
    if "model_type" in raw.mapping:
        raise InputError(CONFIG, where=raw.where)
    word = short(first)
    later = next((key for key in raw.mapping if key in FOLDERS), None)
    hint = f": put '{later}' first (it is at line {raw.keys[later].line})" if later else ""
    known = () if later else list(FOLDERS)
    hint = hint or ": its first key is its kind, with its name, such as 'workload: mine'"
    meant = word if difflib.get_close_matches(word.lower(), FOLDERS, cutoff=LIKE_A_KIND) else None
    raise InputError(f"begins with '{word}', which is no kind of file{hint}", where=raw.keys.get(first), known=known, given=meant)


def _extended(kind: str, source: Source, above: tuple[Path, ...]) -> Marked:
    return _widened(kind, read_yaml(source.path, source.shown), (*above, real(source.path)))


def _widened(kind: str, raw: Marked, here: tuple[Path, ...]) -> Marked:
    """A tree laid over what it extends. here: files that led to it."""
    _check_kind(kind, raw)
    base = raw.child("extends")
    if base is None:
        return raw
    found = refer(kind, base, "extends")
    if real(found.path) in here:
        chain = " → ".join(path.stem for path in (*here, found.path))
        raise InputError(f"extends itself: {chain}", where=base.where, path="extends")
    if len(here) >= MOST_FILES:
        raise InputError(f"extends more than {MOST_FILES} files", where=base.where, path="extends")
    return merge(_extended(kind, found, here), raw.without("extends"))


def _check_kind(kind: str, raw: Marked) -> None:
    first = next(iter(raw.mapping), "")
    if first != kind:
        if first in FOLDERS:
            message = f"is {a(first)} file, where {a(kind)} is wanted"
            raise InputError(message, where=raw.keys.get(first))
        if kind == "workload" and "model_type" in raw.mapping:
            raise InputError(CONFIG, where=raw.where)
        there = kind in raw.mapping
        raise InputError(
            f"{a(kind)} file must begin with the key '{kind}'" + ("" if there else f" (it begins with '{short(first)}')"),
            where=raw.keys.get(kind if there else first, raw.where),
            known=() if there else list(FOLDERS),
            given=None if there else short(first),
        )
    name = raw.mapping[kind]
    if not name.text or not name.text.strip():
        raise InputError("want the name, as text", where=name.where, path=kind)


def refer(kind: str, name: Marked, path: str) -> Source:
    """The file that another file refers to; relative paths start at the folder of the file that says so. path: of the key that does.
    Raises InputError."""
    if not name.text:
        raise InputError(f"want the name or path of {a(kind)}", where=name.where, path=path)
    beside = Path(name.where.file).parent if name.where.line else None
    try:
        found = resolve(kind, name.text, beside=beside)
    except InputError as problem:
        fact = problem.message if problem.where is None else f"{problem.where}: {problem.message}"
        raise InputError(fact, where=name.where, path=path, known=problem.known, given=problem.given)
    _check_ours(kind, found, name.where, path)
    return found


_OURS = re.compile(rf"(?:\s|#[^\n]*\n|---\s)*\{{?\s*['\"]?({'|'.join(FOLDERS)})['\"]?\s*:")
"""How a file of ours begins: comments, then the key of its kind."""


def _check_ours(kind: str, source: Source, where: Where, path: str) -> None:
    """Raise InputError where a file that another refers to is none of ours; nothing of what it holds is said."""
    try:
        ours = _OURS.match(read_text(source.path, source.shown)) is not None
    except InputError as problem:
        raise InputError(f"{problem.where}: {problem.message}", where=where, path=path) from None
    if not ours:
        raise InputError(f"{source.shown} is no file of rackmodel: {a(kind)} file begins with the key '{kind}'", where=where, path=path)


def merge(base: Marked, over: Marked, *, ordered: bool = False) -> Marked:
    """`over` laid over `base`: mappings merge, everything else replaces (a quantity is one value, not a mapping). ordered: whether a new
    key stands before the next of `over` that the base has, as sections of a model follow one another; else new ones stand at the end."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or _is_quantity(over):
        return over
    values, keys = dict(base.value), dict(base.keys)
    for key, value in over.value.items():
        if key in values:
            both = key == "children" and isinstance(values[key].value, list) and isinstance(value.value, list)
            values[key] = _merge_levels(values[key], value) if both else merge(values[key], value, ordered=key == "sections")
        else:
            values[key] = value
        keys[key] = over.keys[key]
    if ordered:
        values = {key: values[key] for key in _before_the_next(base.value, over.value)}
    return Marked(values, over.where, keys)


def _before_the_next(base: Iterable[str], over: Iterable[str]) -> list[str]:
    """Keys of both: a new one before the next of `over` that the base has, or else at the end."""
    ahead = {key: list[str]() for key in base}
    waiting: list[str] = []
    for key in over:
        if key in ahead:
            ahead[key], waiting = waiting, []
        else:
            waiting.append(key)
    return [*(key for old, new in ahead.items() for key in (*new, old)), *waiting]


def _is_quantity(node: Marked) -> bool:
    return bool(node.mapping) and set(node.mapping) <= set(QUANTITY_KEYS) and bool({"value", "mid"} & set(node.mapping))


def _merge_levels(base: Marked, over: Marked) -> Marked:
    levels = list(base.items)
    places = {level_name(level): index for index, level in enumerate(levels)}
    for level in over.items:
        name = level_name(level)
        if name is not None and name in places:
            levels[places[name]] = merge(levels[places[name]], level)
        else:
            levels.append(level)
    return Marked(levels, over.where)


def level_name(level: Marked) -> str | None:
    """What a level of a tree is called."""
    name = level.child("name")
    return name.text if name is not None else None


def with_parts(raw: Marked) -> Marked:
    """An architecture whose levels' `part: NAME` are replaced by what the part files say, under the level's own keys."""
    tree = raw.child("tree")
    return raw if tree is None else raw.having("tree", _Parts().inside(tree, ()))


@dataclass
class _Parts:
    """The part files of one architecture: each is read once, and they may be used so many times."""

    read: dict[Path, Marked] = field(default_factory=dict)
    used: int = 0

    def inside(self, level: Marked, above: tuple[Path, ...]) -> Marked:
        """One level and those below with their parts. above: the part files it is inside of."""
        if "part" in level.mapping:
            level, above = self._with_part(level, above)
        level = _with_calls(level)
        children = level.child("children")
        if children is None or not children.items:
            return level
        below = [self.inside(child, above) if isinstance(child.value, dict) else child for child in children.items]
        return level.having("children", Marked(below, children.where))

    def _with_part(self, level: Marked, above: tuple[Path, ...]) -> tuple[Marked, tuple[Path, ...]]:
        part = level.mapping["part"]
        path = f"tree.{level_name(level) or 'level'}.part"
        source = refer("part", part, path)
        here = real(source.path)
        self.used += 1
        if here in above:
            chain = " → ".join(file.stem for file in (*above, here))
            raise InputError(f"a part inside itself: {chain}", where=part.where, path=path)
        if len(above) >= DEEPEST_PARTS or self.used > MOST_PARTS:
            limit = f"{DEEPEST_PARTS} deep and {MOST_PARTS} in all"
            raise InputError(f"too many parts inside parts: at most {limit}", where=part.where, path=path)
        if here not in self.read:
            self.read[here] = load_source("part", source).without("part")
        merged = merge(self.read[here], level.without("part"))
        return Marked(merged.value, level.where, merged.keys), (*above, here)


def _with_calls(level: Marked) -> Marked:
    """A level whose network's `calls` are known to be there; an own file is said from the root, for who reads it later."""
    network = level.child("network")
    name = network.child("calls") if network is not None else None
    if network is None or name is None or name.value is None:
        return level
    said = _from_root("collectives", name, f"tree.{level_name(level) or 'level'}.network.calls")
    return level.having("network", network.having("calls", said))


def with_own_tables(raw: Marked) -> Marked:
    """An architecture whose `carbon` file is known to be there; an own file is said from the root, for who reads it later."""
    name = raw.child("carbon")
    if name is None or name.value is None or "\n" in str(name.value):
        return raw
    return raw.having("carbon", _from_root("carbon", name, "carbon"))


def _from_root(kind: str, name: Marked, path: str) -> Marked:
    """A name of the library as it is, of another file its path from the root. Raises InputError where there is none."""
    found = refer(kind, name, path)
    return name if in_library(kind, str(name.text)) else Marked(str(real(found.path)), name.where)


def at_override(text: str) -> Where:
    """The place of an override from the command line."""
    return Where(f"--set {short(text, 80)}")
