"""A Marked tree and a schema → the typed object, or everything that is wrong with it, placed and explained.

pydantic finds what is wrong; this says where (file:line:column and a path by level names), what is allowed there and
which known word is nearest. Nothing is converted silently: true is not 1, and `yes` is not true.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rackmodel.errors import InputError, Where, together
from rackmodel.inputs import schema
from rackmodel.inputs.marked import Marked, Step, dotted, place_of, short

Model = TypeVar("Model", bound=BaseModel)

_MEANT = {
    "size": ("capacity", "count"),
    "peak": ("rate",),
    "flops": ("rate",),
    "throughput": ("rate", "bandwidth"),
    "bw": ("bandwidth",),
    "speed": ("bandwidth", "rate"),
    "read": ("read_energy",),
    "write": ("write_energy",),
    "power": ("static_power",),
    "instances": ("count",),
    "number": ("count",),
    "delay": ("latency",),
}
"""What newcomers write → the keys that say it, where the letters alone are too far apart."""


def build(model: type[Model], raw: Marked) -> Model:
    """The typed object of a tree. Raises one InputError that tells all problems, in the order of the file."""
    problems = list(_unconvertible(raw, raw, [model], ()))
    built: Model | None = None
    try:
        built = model.model_validate(raw.plain())
    except ValidationError as found:
        problems += _translate(model, raw, found)
    except InputError as found:
        problems.append(placed(found, raw))
    if problems:
        raise in_order(problems, raw)
    assert built is not None
    return built


def in_order(problems: Sequence[InputError], raw: Marked) -> InputError:
    """One error that tells all problems of a file, in its order and each place once. problems: at least one."""
    every = sorted((one for problem in problems for one in problem.problems), key=lambda one: _position(one, raw.where.file))
    seen: dict[tuple[str, str], InputError] = {}
    for one in every:
        seen.setdefault((str(one.where), one.path), one)
    return together(list(seen.values()))


def placed(problem: InputError, raw: Marked) -> InputError:
    """An error that knows its dotted path only, put at the place of that path (or of its nearest ancestor); so are those it tells too."""
    if problem.more:
        return in_order([placed(one, raw) for one in problem.problems], raw)
    path = _steps(raw, problem.path)
    names_key = bool(path) and path[-1] == problem.given
    where = _key_place(raw, path) if names_key else place_of(raw, path)
    return problem.at(where)


def _position(problem: InputError, main: str) -> tuple[bool, str, int, int]:
    where = problem.where or Where("")
    return (where.file != main, where.file, where.line, where.column)


def _unconvertible(root: Marked, node: Marked, allowed: Sequence[Any], path: tuple[Step, ...]) -> Iterator[InputError]:
    """What pydantic would let through: keys by field name, true as 1, 'yes' as true."""
    if isinstance(node.value, dict):
        model = schema.model_of(allowed)
        known = schema.keys_of(allowed)
        for key, child in node.value.items():
            if model is not None and known is not None and key not in known:
                yield _unknown(root, (*path, key), node.keys.get(key, child.where), known)
            else:
                yield from _unconvertible(root, child, schema.below(allowed, key), (*path, key))
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from _unconvertible(root, child, schema.below(allowed, index), (*path, index))
    elif node.value is not None and allowed:
        flag = isinstance(node.value, bool)
        if (flag and not any(one in (bool, Any) or one is schema.QUANTITY for one in allowed)) or (
            not flag and all(one in (bool, type(None)) for one in allowed)
        ):
            yield InputError(f"'{_written(node)}': want {schema.wanted(allowed)}", where=node.where, path=dotted(root, path))


def _unknown(root: Marked, path: Sequence[Step], where: Where, known: Sequence[str]) -> InputError:
    key = short(path[-1])
    known = (
        (*known, "part") if tuple(path[:-1]) in levels_of(root) else known
    )  # (which is read before: what it says stands under the level)
    meant = next((word for word in _MEANT.get(key, ()) if word in known), key)
    return InputError(f"unknown key '{key}'", where=where, path=dotted(root, path), known=known, given=meant)


def _translate(model: type[BaseModel], raw: Marked, found: ValidationError) -> Iterator[InputError]:
    errors = [(*_split(raw, error["loc"]), error) for error in found.errors(include_url=False)]
    above = {path[:length] for path, _, _ in errors for length in range(len(path))}
    for path, rest, error in errors:
        short_list = error["type"] == "missing" and bool(rest) and isinstance(rest[-1], int)
        missing = error["type"] == "missing" and not short_list
        other_member_of_a_union_got_further = path in above and rest and not missing
        if not other_member_of_a_union_got_further and not (missing and _misspelt(model, raw, path)):
            yield _one(model, raw, path, rest, error)


def _misspelt(model: type[BaseModel], raw: Marked, path: tuple[Step, ...]) -> bool:
    """Whether a mapping that lacks a key has an unknown one, which says more."""
    known = schema.keys_of(schema.at(model, path))
    return known is not None and any(key not in known for key in _node(raw, path).mapping)


def _split(raw: Marked, loc: Sequence[Step]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The part of a pydantic location that is a path of the tree, and what is left (a missing key, labels of a union)."""
    path: list[Step] = []
    rest: list[Step] = []
    node = raw
    for step in loc:
        below = node.child(step)
        if below is None:
            rest.append(step)
        else:
            path.append(step)
            node = below
    return tuple(path), tuple(rest)


def _one(model: type[BaseModel], raw: Marked, path: tuple[Step, ...], rest: tuple[Step, ...], error: Any) -> InputError:
    kind, context = error["type"], error.get("ctx", {})
    allowed = schema.at(model, path)
    node = _node(raw, path)
    name = dotted(raw, path)
    if kind == "missing" and not (rest and isinstance(rest[-1], int)):
        key = str(rest[-1]) if rest else ""
        owner = schema.model_of(allowed)
        about = schema.meaning(owner, key) if owner else ""
        return InputError(f"missing key '{key}'" + (f" ({about})" if about else ""), where=node.where, path=name)
    if kind == "extra_forbidden":
        return _unknown(raw, path, _key_place(raw, path), schema.keys_of(schema.at(model, path[:-1])) or ())
    if kind == "value_error":
        fact = str(context.get("error", error["msg"]))
        where, name = _blamed(raw, path, fact)
        prefix, colon, tail = fact.partition(": ")
        said = f"{name}.".startswith(f"{prefix}.") or f".{name}".endswith(f".{prefix}")
        return InputError(tail if colon and said else fact, where=where, path=name)
    if kind == "literal_error" and rest == ("[key]",):
        return _unknown(raw, path, _key_place(raw, path), re.findall(r"'([^']*)'", str(context.get("expected", ""))))
    words = schema.literals(allowed)
    if kind == "literal_error" or (words and len(schema.wanted(allowed).split(", or ")) == 1):
        return InputError(f"'{_written(node)}' is not allowed", where=node.where, path=name, known=words, given=_written(node))
    limits = {"greater_than": "must be above {gt}", "greater_than_equal": "must be at least {ge}"}
    if kind in limits:
        return InputError(f"{_written(node)} {limits[kind].format(**context)}", where=node.where, path=name)
    if kind == "string_pattern_mismatch":
        return InputError(f"'{_written(node)}' is not a name (letters, digits and _)", where=node.where, path=name)
    if _written(node) == "" and "text" in schema.wanted(allowed):
        meant = "the name of an index" if path[0] in ("split", "boundary", "layouts") else "a word"
        return InputError(f"is empty: want {meant}", where=node.where, path=name)
    want = schema.wanted(allowed) or short(error["msg"], 120)
    if isinstance(node.value, float) and "a whole number" in want:
        want = "a whole number"  # what else may stand here is no number: who wrote one meant one
    return InputError(f"'{_written(node)}': want {want}", where=node.where, path=name, known=words, given=_written(node))


def _blamed(raw: Marked, path: tuple[Step, ...], fact: str) -> tuple[Where, str]:
    """Where a check of a whole mapping points: the key its sentence begins with, or the key or level it quotes."""
    first = re.match(r"[A-Za-z_][\w.]*", fact)
    for word in first[0].split(".") if first else ():
        path = (*path, word) if _node(raw, path).child(word) is not None else path
    node = _node(raw, path)
    for word in re.findall(r"'([^']+)'", fact):
        if word in node.keys:
            return node.keys[word], dotted(raw, (*path, word))
        levels = [level for level in levels_of(raw) if _name(_node(raw, level)) == word] if not path else []
        if levels:
            return place_of(raw, (*levels[-1], "name")), dotted(raw, levels[-1])
    if not path and "level" in fact and "tree" in raw.keys:
        return raw.keys["tree"], "tree"
    overridden = [child.where for child in node.mapping.values() if child.where.file.startswith("--set")]
    return overridden[-1] if overridden else node.where, dotted(raw, path)


def levels_of(raw: Marked) -> list[tuple[Step, ...]]:
    """Paths of the levels of an architecture's tree, in the order of the file."""
    found: list[tuple[Step, ...]] = []
    todo: list[tuple[Step, ...]] = [("tree",)] if raw.child("tree") is not None and "architecture" in raw.mapping else []
    while todo:
        path = todo.pop()
        found.append(path)
        children = _node(raw, path).child("children")
        todo += [(*path, "children", index) for index in reversed(range(len(children.items) if children else 0))]
    return found


def names_of_levels(raw: Marked) -> list[tuple[tuple[Step, ...], str]]:
    """(path, name) of the levels, as --set calls them: where accelerators of several kinds have one of a name, 'KIND.NAME'."""
    named = [(path, name) for path in levels_of(raw) if (name := _name(_node(raw, path)))]
    times = Counter(name for _, name in named)
    return [(path, f"{inside_of(raw, path)}.{name}" if times[name] > 1 else name) for path, name in named]


def inside_of(raw: Marked, path: tuple[Step, ...]) -> str:
    """The name of the accelerator that a level lies in; '' where it lies in none."""
    for end in range(1, len(path)):
        said, name = (_node(raw, path[:end]).child(key) for key in ("accelerator", "name"))
        if said is not None and said.value is True and name is not None:
            return str(name.text)
    return ""


def _node(raw: Marked, path: Sequence[Step]) -> Marked:
    node = raw
    for step in path:
        below = node.child(step)
        if below is None:
            break
        node = below
    return node


def _name(level: Marked) -> str | None:
    name = level.child("name")
    return name.text if name else None


def _key_place(raw: Marked, path: Sequence[Step]) -> Where:
    """Where the last key of a path is written."""
    if not path:
        return raw.where
    owner = _node(raw, path[:-1])
    return owner.keys.get(str(path[-1])) or place_of(raw, path)


def _steps(raw: Marked, path: str) -> list[Step]:
    """A dotted path of words as steps that exist; a name of a tensor or operation may itself hold dots, and a level of an architecture's
    tree is called by its name (`tree.gpu.memory`)."""
    steps: list[Step] = []
    node, words = raw, path.split(".") if path else []
    while words:
        if steps == ["tree"] and node.child(words[0]) is None:
            way = next((way for way, level in _levels(node) if _name(level) == words[0]), None)
            if way is None:
                return steps
            node, words = _node(node, way), words[1:]
            steps += way
            continue
        for count in range(len(words), 0, -1):
            word = ".".join(words[:count])
            step: Step = int(word) if word.isdigit() and isinstance(node.value, list) else word
            below = node.child(step)
            if below is not None:
                break
        else:
            return steps
        node, words = below, words[count:]
        steps.append(step)
    return steps


def _levels(node: Marked, way: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Marked]]:
    """(steps from the root of a tree, level) of each of its levels."""
    yield way, node
    children = node.child("children")
    for number, child in enumerate(children.items if children is not None else ()):
        yield from _levels(child, (*way, "children", number))


def _written(node: Marked) -> str:
    """A value as its author would recognise it."""
    if isinstance(node.value, dict):
        return "{...}"
    if isinstance(node.value, list):
        return short(f"[{', '.join(_written(item) for item in node.items)}]")
    if node.value is None:
        return "null"
    return {True: "true", False: "false"}[node.value] if isinstance(node.value, bool) else short(node.value)
