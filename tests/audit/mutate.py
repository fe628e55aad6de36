"""Structure-aware mutations of a file: what a person, an editor or an attacker may do to it, one to three times over."""

from __future__ import annotations

import copy
import random
import string
from collections.abc import Callable
from functools import cache
from typing import Any

import yaml

SCALARS: list[Any] = [
    *(0, 1, -1, 2, 3, 7, 0.5, -0.0, 1e300, -1e300, 1e-300, 10**30, 2**63, 4294967296, True, False, None, [], {}, "", " ", "~"),
    *("nan", ".inf", "-.inf", ".nan", "1e999", "0 GB", "-1 GB", "80 B %", "3 GB//s", "1 GB/s", "0 s", "-1 us", "1e300 J", "1 pJ/bit"),
    *("free", "all", "rest", "none", "auto", "best", "+", "=cmd", "../../x", "/etc/passwd", "\u0663", "é", "x" * 3000, "a: b", "{", "]"),
    *("m", "b", "s", "d", "f", "X", "W1", "gpu", "rack", "dp", "tp", "2 ** 3", "4 4", "m * m", "m / 0", "1 / 3", "__class__", "\x00", "on"),
]
UNITS = ("", " B", " GB", " GB/s", " s", " W", " pJ/bit", " TFLOP/s", " %", " bit", " mm^2")
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Path = tuple[Any, ...]


def paths(tree: Any, here: Path = ()) -> list[Path]:
    """The place of every value."""
    found = [here] if here else []
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        found += paths(value, (*here, key))
    return found


def at(tree: Any, path: Path) -> Any:
    """The value at a place."""
    for key in path:
        tree = tree[key]
    return tree


def scalar(pick: random.Random, old: Any) -> Any:
    """Another value in place of one: scaled, of another unit, misspelt, or anything."""
    how = pick.randrange(6)
    if how == 0 and isinstance(old, int | float) and not isinstance(old, bool):
        return old * pick.choice([0, -1, 2, 3, 0.5, 1000, 1e9, 1e30])
    if how == 1 and isinstance(old, str) and " " in old:
        head, _, rest = old.partition(" ")
        return pick.choice([head, f"{head}{pick.choice(UNITS)}", f"0 {rest}", f"-{old}", f"1e30 {rest}", f"{head}e9 {rest}", old[:-1]])
    if how == 2 and isinstance(old, str) and old:
        return misspelt(pick, old)
    if how == 3:
        return f"{pick.choice([0, 1, 5, 1e12, -3])}{pick.choice(UNITS)}"
    return copy.deepcopy(pick.choice(SCALARS))


def misspelt(pick: random.Random, word: str) -> str:
    """A word with a letter dropped, doubled, changed or swapped."""
    k = pick.randrange(len(word))
    return pick.choice(
        [word[:k] + word[k + 1 :], word[:k] + word[k] + word[k:], word[:k] + pick.choice(string.printable) + word[k + 1 :], word[::-1]]
    )


def _set(pick: random.Random, tree: Any, path: Path) -> None:
    at(tree, path[:-1])[path[-1]] = scalar(pick, at(tree, path))


def _delete(pick: random.Random, tree: Any, path: Path) -> None:
    del at(tree, path[:-1])[path[-1]]


def _move(pick: random.Random, tree: Any, path: Path) -> None:
    at(tree, path[:-1])[path[-1]] = copy.deepcopy(at(tree, pick.choice(paths(tree))))


def _wrap(pick: random.Random, tree: Any, path: Path) -> None:
    value = at(tree, path)
    at(tree, path[:-1])[path[-1]] = pick.choice([[value], [value, value], {"x": value}, str(value)])


def _rename(pick: random.Random, tree: Any, path: Path) -> None:
    parent = at(tree, path[:-1])
    if isinstance(parent, dict):
        name = misspelt(pick, str(path[-1])) if pick.random() < 0.5 else str(pick.choice(paths(tree))[-1])
        items = [(name if key == path[-1] else key, value) for key, value in parent.items()]
        parent.clear()
        parent.update(items)


def _repeat(pick: random.Random, tree: Any, path: Path) -> None:
    value = at(tree, path)
    if isinstance(value, list) and value:
        value.insert(pick.randrange(len(value) + 1), copy.deepcopy(pick.choice(value)))
    elif isinstance(value, dict):
        value[pick.choice(["zz", "name", "note", "extends", "part", *map(str, value)])] = scalar(pick, "x")


def _reorder(pick: random.Random, tree: Any, path: Path) -> None:
    value = at(tree, path)
    if isinstance(value, list):
        pick.shuffle(value)
    elif isinstance(value, dict):
        items = list(value.items())
        pick.shuffle(items)
        value.clear()
        value.update(items)


def _nudge(pick: random.Random, tree: Any, path: Path) -> None:
    """A value that may well be meant: a number nearby, a word from elsewhere in the file, a list with one more or less."""
    old = at(tree, path)
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int):
        new = pick.choice([old + 1, old - 1, old * 2, old // 2, 1, 3, old * 1000])
    elif isinstance(old, float):
        new = old * pick.choice([0.5, 2.0, 1000.0])
    elif isinstance(old, str) and old[:1].isdigit() and " " in old:
        head, _, unit = old.partition(" ")
        new = f"{float(head) * pick.choice([1e-3, 0.5, 2, 1e3])!r} {unit}" if head.replace(".", "").isdigit() else old
    elif isinstance(old, list) and old:
        new = [*old, pick.choice(old)] if pick.random() < 0.5 else old[:-1]
    else:
        words = [w for w in (at(tree, other) for other in paths(tree)) if isinstance(w, str) and " " not in w]
        new = pick.choice(words) if words else old
    at(tree, path[:-1])[path[-1]] = new


OPERATIONS: tuple[Callable[[random.Random, Any, Path], None], ...] = (
    *(_nudge,) * 10,
    *(_set,) * 4,
    _delete,
    _move,
    _wrap,
    _rename,
    _repeat,
    _reorder,
)


def mutated(text: str, pick: random.Random) -> str:
    """A file with one to three mutations, of its tree or of its letters."""
    if pick.random() < 0.12:
        return letters(text, pick)
    tree = copy.deepcopy(_tree(text))
    for _ in range(pick.choice([1, 1, 1, 2, 3])):
        places = paths(tree)
        if places:
            pick.choice(OPERATIONS)(pick, tree, pick.choice(places))
    return str(yaml.dump(tree, Dumper=DUMPER, sort_keys=False, allow_unicode=True, width=200))


@cache
def _tree(text: str) -> Any:
    return yaml.safe_load(text)


def letters(text: str, pick: random.Random) -> str:
    """A file with letters cut, put in, or cut off."""
    for _ in range(pick.choice([1, 1, 2, 4])):
        k = pick.randrange(len(text))
        text = pick.choice(
            [text[:k] + text[k + 1 :], text[:k] + pick.choice(string.printable) + text[k:], text[:k] + text[k : k + 9] * 2, text[: k + 20]]
        )
    return text + "\n"
