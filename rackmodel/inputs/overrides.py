"""`--set name=value`: one number or word of any input, replaced before the input is checked.

A bare name is a top-level key of the architecture, workload or mapper, else the size of a rank; otherwise it is a path:
a level's name or a top-level key first (`gpu.memory.bandwidth=4 TB/s`, `axes.tp.degree=4`). `arch.`, `workload.`,
`mapper.` before either says which file is meant. What is unknown or could mean two things is an error.
`name*=0.5` scales the number that the file states; where the name begins with a key of levels (`network.bandwidth*=0.5`), that of every
level which states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from rackmodel.errors import ALSO_CALLED, InputError, Where
from rackmodel.inputs import schema
from rackmodel.inputs.load import at_override
from rackmodel.inputs.marked import Marked, Step, dotted, short, value_at
from rackmodel.inputs.problems import inside_of, levels_of
from rackmodel.inputs.said import Said
from rackmodel.inputs.scaled import SIGN, factor_of, scaled
from rackmodel.inputs.yaml_marks import compose_value
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec, MappingSpec
from rackmodel.model.schedules import CHUNKED
from rackmodel.model.workload_spec import WorkloadSpec

Raw = Marked | None
PREFIXES = {"arch": 0, "architecture": 0, "workload": 1, "mapper": 2, "mapping": 2}
_SHOWN = ("arch", "workload", "mapper")
BATCH_WORDS = ("batch", "batch_size", "global_batch", "global_batch_size", "gbs")
"""What frameworks call the size of a workload's batch."""
_CLOSED = ("sizes", "axes", "einsums", "split")
"""Tables of the user's own names in which an override must name an entry that is there."""


@dataclass(frozen=True)
class _Role:
    """One of the three files: its position, schema and tree."""

    index: int
    model: type[BaseModel]
    raw: Marked

    @property
    def keys(self) -> list[str]:
        """Its top-level keys that may be set (its name is not one of them)."""
        first = next(iter(self.raw.mapping), None)
        return [key for key in schema.keys_of([self.model]) or [] if key != first]

    @property
    def levels(self) -> dict[str, tuple[Step, ...]]:
        """Level name → path in the tree, for an architecture: of names that one level has."""
        return {name: paths[0] for name, paths in self.named(()).items() if len(paths) == 1}

    def named(self, above: tuple[Step, ...]) -> dict[str, list[tuple[Step, ...]]]:
        """Level name → paths of the levels called so, at and below one."""
        found: dict[str, list[tuple[Step, ...]]] = {}
        for path in levels_of(self.raw) if self.index == 0 else []:
            name = value_at(self.raw, (*path, "name"))
            if name is not None and name.text and path[: len(above)] == above:
                found.setdefault(name.text, []).append(path)
        return found

    @property
    def sizes(self) -> list[str]:
        """Rank sizes, for a workload."""
        sizes = self.raw.child("sizes") if self.index == 1 else None
        return list(sizes.mapping) if sizes else []


@dataclass(frozen=True)
class _Target:
    """One thing that a name can mean. shown: the form that cannot be mistaken."""

    role: _Role
    path: tuple[Step, ...]
    shown: str


Places = dict[tuple[str, ...], tuple[int, tuple[Step, ...]]]
"""Names of overrides in order → where the last of them leads: number of the tree, and the path in it."""


def apply_overrides(
    sets: Iterable[str], architecture: Raw, workload: Raw, mapper: Raw, places: Places | None = None, before: Said | None = None
) -> tuple[Raw, Raw, Raw]:
    """The three trees with every override applied in order (the last one is a mapper's or a mapping's).

    Raises InputError that points at `--set name=value`. A tree may be None where a command has none. places: of these very trees, kept by
    who overrides them many times · before: what was said of them already, to which these are added.
    """
    said: tuple[str, ...] = ()
    all_said = Said() if before is None else before
    plain = places is not None  # whether what was put in so far are single values, which change no place
    raws: list[Raw] = [architecture, workload, mapper]
    asked: set[Step] = set()
    for text in sets:
        where = at_override(text)
        name, equals, value = text.partition("=")
        name = name.strip()
        said = (*said, name)
        if not equals or not name:
            raise InputError("want name=value, such as gpu.count=4", where=where)
        if not value.strip():
            raise InputError("no value: want name=value", where=where, path=name)
        roles = [_Role(i, _model(i, raw), raw) for i, raw in enumerate(raws) if raw is not None]
        if name.endswith(SIGN):
            factor = factor_of(value, where, name)
            for target in _to_scale(name.removesuffix(SIGN).rstrip(), roles, where):
                raws[target.role.index] = _times(raws[target.role.index], target.path, factor, where)
                all_said.add(target.role.index, target.path, text, factor=True)
                asked.add(target.path[0])
            continue
        place = places.get(said) if plain and places is not None else None
        if place is None:
            target = _target(name, roles, where)
            place = target.role.index, target.path
            if plain and places is not None:
                places[said] = place
        number, path = place
        all_said.add(number, path, text)
        raw, node = raws[number], compose_value(value.strip(), where.file)
        assert raw is not None
        raws[number] = _put(raw, path, node, where)
        plain = plain and not isinstance(node.value, dict | list)
        asked.add(path[0])
    if raws[2] is not None:
        raws[2] = _served(raws[1], raws[2], asked)
    return raws[0], raws[1], raws[2]


def written_at(name: str, architecture: Raw, workload: Raw, mapper: Raw) -> tuple[Marked | None, Marked]:
    """(what stands at the place that an override names, or None; the mapping around it). Raises InputError as an override does."""
    raws = (architecture, workload, mapper)
    target = _target(name, [_Role(i, _model(i, raw), raw) for i, raw in enumerate(raws) if raw is not None], at_override(name))
    around = value_at(target.role.raw, target.path[:-1])
    return value_at(target.role.raw, target.path), around if around is not None else target.role.raw


OF_PROFILE = "profile."


def override_profile(raw: Marked, sets: Iterable[str]) -> Marked:
    """A profile's tree with overrides applied in order ('profile.overlap.contention=0'); what is unknown is found when it is checked.

    Raises InputError that points at `--set name=value`.
    """
    said = Said()
    for text in sets:
        where = at_override(text)
        name, _, value = text.partition("=")
        path = [step.strip() for step in name.strip().removeprefix(OF_PROFILE).split(".")]
        if not value.strip() or not all(path):
            raise InputError("want profile.name=value, such as profile.overlap.contention=0.1", where=where)
        node = compose_value(value.strip(), where.file)
        factor = path[-1].endswith(SIGN)
        path[-1] = path[-1].removesuffix(SIGN).rstrip()
        said.add(OF_PROFILE, path, text, factor=factor)
        if factor:
            node = scaled(value_at(raw, path), factor_of(value, where, name.strip()), where, ".".join(path))
        raw = _put(raw, path, node, where)
    return raw


def sorted_sets(sets: Iterable[str]) -> tuple[list[str], list[str]]:
    """Overrides of the profile, and those of the other files."""
    every = list(sets)
    return [text for text in every if text.strip().startswith(OF_PROFILE)], [
        text for text in every if not text.strip().startswith(OF_PROFILE)
    ]


def _to_scale(name: str, roles: Sequence[_Role], where: Where) -> list[_Target]:
    """What a factor is meant for: one number, or that of every level which states it where the name begins with a key of levels.

    Raises InputError.
    """
    try:
        return [_target(name, roles, where)]
    except InputError as problem:
        machine = next((role for role in roles if role.index == 0), None)
        first, dot, _ = name.partition(".")
        if machine is None or not dot or first in {word for role in roles for word in (*role.keys, *role.levels, *PREFIXES)}:
            raise
        at = [f"{level}.{name}" for level, path in machine.levels.items() if first in _node_of(machine, path).mapping]
        found = [target for target in (_target(one, [machine], where) for one in at) if value_at(machine.raw, target.path) is not None]
        if not found:
            raise problem
        return found


def _times(raw: Raw, path: tuple[Step, ...], factor: float, where: Where) -> Marked:
    """A tree in which one number is times a factor. Raises InputError."""
    assert raw is not None
    return _put(raw, path, scaled(value_at(raw, path), factor, where, dotted(raw, path)), where)


def _served(workload: Raw, mapper: Marked, asked: set[Step]) -> Marked:
    """Keys of a mapper's file serve what the files say: where an override takes that away they go with it.

    Chunks serve a schedule that has chunks; what is kept or made again serves a backward pass.
    """
    schedules, phases = mapper.child("schedule"), workload and workload.child("phases")
    idle: list[str] = []
    if schedules is not None and "schedule" in asked and not CHUNKED & {item.text for item in schedules.items or [schedules]}:
        idle += ["interleave"]
    if phases and "phases" in asked and "backward" not in {item.text for item in phases.items}:
        idle += ["save", "recompute"]
    for key in idle:
        if key not in asked:
            mapper = mapper.without(key)
    return mapper


def _model(index: int, raw: Marked) -> type[BaseModel]:
    if index == 2:
        return MappingSpec if "mapping" in raw.mapping else MapperSpec
    return (Architecture, WorkloadSpec)[index]


def _target(name: str, roles: Sequence[_Role], where: Where) -> _Target:
    words = name.split(".")
    if "" in words:
        raise InputError(f"'{short(name)}' is not a name: words joined by single dots", where=where)
    chosen = list(roles)
    if len(words) > 1 and words[0] in PREFIXES:
        chosen = [role for role in roles if role.index == PREFIXES[words[0]]]
        if not chosen:
            raise InputError(f"there is no {words[0]} here to set", where=where, path=name)
        words = words[1:]
    found = list(_meanings(words[0], len(words) == 1, chosen))
    if not found:
        raise _unknown(words[0], chosen, where, name)
    if len(found) > 1:
        forms = [".".join((target.shown, *words[1:])) for target in found]
        raise InputError(f"'{words[0]}' could mean {len(forms)} things: say which", where=where, path=name, known=forms)
    target = found[0]
    return _Target(target.role, _descend(target, words, where), target.shown)


def _meanings(word: str, bare: bool, roles: Sequence[_Role]) -> Iterator[_Target]:
    """Everything that the first word of a name can stand for."""
    if word == "accelerators":
        roles = [role for role in roles if role.index == 0] or roles
    for role in roles:
        prefix = _SHOWN[role.index]
        if word in role.keys:
            yield _Target(role, (word,), f"{prefix}.{word}")
        if word in role.levels:
            yield _Target(role, role.levels[word], f"{prefix}.tree.{word}")
        else:  # accelerators of several kinds have levels of one name
            yield from (_Target(role, path, f"{inside_of(role.raw, path)}.{word}") for path in role.named(()).get(word, ()))
        if bare and word in role.sizes:
            yield _Target(role, ("sizes", word), f"{prefix}.sizes.{word}")


def _unknown(word: str, roles: Sequence[_Role], where: Where, name: str) -> InputError:
    levels = [f"{level}.{name}" for role in roles for level, path in role.levels.items() if word in _node_of(role, path).mapping]
    if levels and "." in name:
        raise InputError(f"'{short(word)}' is a key of a level: say of which", where=where, path=name, known=levels)
    if any(word in _axes(role) for role in roles) and name == word:
        raise InputError(f"'{short(word)}' is an axis of the mapper: say axes.{word}.degree", where=where, path=name)
    batch = _batch_rank(roles) if word in BATCH_WORDS else ""
    known = [key for role in roles for key in (*role.keys, *role.levels, *role.sizes) if key not in ("source", "note")]
    meant = batch or next((one for one in ALSO_CALLED.get(word.lower(), ()) if one in known), word)  # (gpus, which are no level's gpu)
    return InputError(f"nothing is called '{short(word)}'", where=where, path=name, known=list(dict.fromkeys(known)), given=meant)


def _axes(role: _Role) -> list[str]:
    """Names of a mapper's axes."""
    axes = role.raw.child("axes") if role.index == 2 else None
    return list(axes.mapping) if axes else []


def _node_of(role: _Role, path: Sequence[Step]) -> Marked:
    return value_at(role.raw, path) or role.raw


def _batch_rank(roles: Sequence[_Role]) -> str:
    """The size that is the workload's batch; '' where it has none."""
    for role in roles:
        if role.index == 1:
            said = role.raw.child("batch_rank")
            rank = (said.text if said is not None else None) or str(WorkloadSpec.model_fields["batch_rank"].default)
            return rank if rank in role.sizes else ""
    return ""


def _descend(target: _Target, words: list[str], where: Where) -> tuple[Step, ...]:
    """The path of the tree that the words after the first lead to; each must be allowed by the schema."""
    role, path, said = target.role, target.path, words[0]
    rest = words[1:]
    if not rest and path in role.levels.values():
        raise InputError(f"'{said}' is a level: say which key of it", where=where, path=said, known=_keys(role, path))
    while rest:
        node = value_at(role.raw, path)
        if node is not None and isinstance(node.value, list):
            raise InputError(f"'{said}' is a list: set all of it", where=where, path=said)
        levels = {name: paths[0] for name, paths in role.named(path).items() if len(paths) == 1}
        step, used = _key(node, rest)
        inside = path == ("tree",) or (len(path) > 1 and path[-2] == "children")
        if inside and step in levels and step not in _keys(role, path):
            path = levels[step]
        else:
            _allowed(role, path, node, step, where, said)
            path = (*path, step)
        said, rest = f"{said}.{step}", rest[used:]
    return path


def _key(node: Marked | None, words: list[str]) -> tuple[str, int]:
    """The key that the next words spell (a key may itself hold dots) and how many words that takes."""
    for used in range(len(words), 1, -1):
        if node is not None and ".".join(words[:used]) in node.mapping:
            return ".".join(words[:used]), used
    return words[0], 1


def _allowed(role: _Role, path: tuple[Step, ...], node: Marked | None, step: str, where: Where, said: str) -> None:
    known = schema.keys_of(schema.at(role.model, path))
    if known == [] or (node is not None and node.value is not None and not isinstance(node.value, dict)):
        raise InputError(f"'{said}' is one value: it has no key '{short(step)}'", where=where, path=f"{said}.{step}")
    if known is None and path[-1:] and path[-1] in _CLOSED and len(path) == 1:
        known = list(node.mapping) if node is not None else []
    if known is not None and step not in known:
        inside = path == ("tree",) or (len(path) > 1 and path[-2] == "children")
        known = [*known, *(name for name, p in role.levels.items() if inside and p[: len(path)] == path and p != path)]
        raise InputError(f"unknown key '{short(step)}'", where=where, path=f"{said}.{step}", known=known, given=step)


def _keys(role: _Role, path: tuple[Step, ...]) -> list[str]:
    return schema.keys_of(schema.at(role.model, path)) or []


def _put(raw: Marked, path: Sequence[Step], value: Marked, where: Where) -> Marked:
    """A copy of the tree in which the value at `path` is `value`; mappings on the way are made where they are missing."""
    nodes = [raw]
    for step in path[:-1]:
        below = nodes[-1].child(step)
        nodes.append(below if below is not None and below.value is not None else Marked({}, where))
    for node, step in zip(reversed(nodes), reversed(path), strict=True):
        if isinstance(step, int):
            items = list(node.items)
            items[step] = value
            value = Marked(items, node.where)
        else:
            value = node.having(step, value, node.keys.get(step, where) if step in node.keys and value.where != where else where)
    return value
