"""What a study's findings may rest on, as values to try: its file's `inputs`, or every fact with a range that its points read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rackmodel.carbon import changed
from rackmodel.carbon.tables import CarbonTables
from rackmodel.errors import InputError, RackmodelError
from rackmodel.inputs.ranged import STATUS, Fact, fact_at, ranged_facts
from rackmodel.studies.late import Change
from rackmodel.studies.own_findings import Check
from rackmodel.studies.plan import plan_points
from rackmodel.studies.run import Points
from rackmodel.studies.study import InputSpec, StudySpec
from rackmodel.units import unit_ratio

SCALES = {"a hundredth": 0.01, "a tenth": 0.1, "half": 0.5, "double": 2.0, "ten times": 10.0, "a hundred times": 100.0}
_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")


@dataclass(frozen=True)
class Amount:
    """A number with the unit that it is written in."""

    number: float
    unit: str

    def __str__(self) -> str:
        return f"{self.number:.12g} {self.unit}".rstrip()

    def written_as(self, unit: str) -> Amount | None:
        """The same in another unit ('250 GB/s' as 0.25 TB/s); None where it is of another dimension."""
        ratio = unit_ratio(self.unit, unit)
        return None if ratio is None else self if ratio == 1 else Amount(float(f"{self.number * ratio:.12g}"), unit)

    def short(self) -> str:
        """For a person: three digits."""
        return f"{self.number:,.3g} {self.unit}".rstrip() if abs(self.number) < 1e6 else f"{self.number:.3g} {self.unit}".rstrip()


@dataclass(frozen=True)
class StudyInput:
    """One input. paths: what takes its value · here: what the files say · low, high: its range, None for choices · choices:
    name → what it sets · outside: values that are not meant, and what they set · status: ASSUMED, SOURCED ..., '' = printed ·
    where: points that it touches."""

    name: str
    paths: tuple[str, ...]
    here: str
    low: Amount | None = None
    high: Amount | None = None
    choices: Mapping[str, Mapping[str, Any]] | None = None
    outside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    status: str = ""
    where: Mapping[str, tuple[Any, ...]] | None = None

    @property
    def mid(self) -> Amount:
        """What the files say, as a number."""
        return amount(self.here, self.name)

    def change(self, value: object) -> Change:
        """The overrides that give it a value: a choice's name, an Amount or text."""
        for named in (self.choices or {}, self.outside):
            if str(value) in named:
                return Change(named[str(value)], self.where or {})
        return Change({path: str(value) for path in self.paths}, self.where or {})

    def trials(self) -> list[object]:
        """The ends of its range, or its choices, that are not what it is already."""
        if self.choices is not None:
            return [name for name in self.choices if name != self.here]
        return [end for end in (self.low, self.high) if end is not None and end.number != self.mid.number]


def amount(text: str, path: str) -> Amount:
    """'8 pJ/bit' as a number and its unit. Raises InputError."""
    match = _NUMBER.match(text)
    if match is None:
        raise InputError(f"'{text}' is no number: choices are `values`", path=f"inputs.{path}")
    return Amount(float(match[1].replace("_", "")), match[2])


def both_ends(mid: str, ends: tuple[str, str], path: str) -> tuple[Amount, Amount]:
    """Both ends of a range in the unit of its middle, in which they need not be written. Raises InputError."""
    unit = amount(mid, path).unit
    found = [amount(end, path).written_as(unit) for end in ends]
    if found[0] is None or found[1] is None:
        raise InputError(f"ends of unlike units: '{ends[0]}' and '{ends[1]}', of '{mid}'", path=f"inputs.{path}")
    return found[0], found[1]


def varied_inputs(study: StudySpec, checks: Sequence[Check], tables: CarbonTables) -> list[StudyInput]:
    """The inputs that the file names; where it names none, every fact with a range in its machines, and every one that its findings
    read of the carbon tables, with the printed figures there, to see what rests on them. Raises InputError."""
    if study.inputs:
        return [_named(study, name, said, tables) for name, said in study.inputs.items()]
    machines = {ask.architecture: ask.file("architecture") for ask in plan_points(study)}
    found = [_of_fact(fact, machine, len(machines) > 1) for machine, file in machines.items() for fact in ranged_facts(file)]
    read = _read(checks, tables)
    ranged = {path: value for path, value in changed.ranged_facts(tables).items() if _is_read(path, read)}
    return [*found, *(_of_table(path, value) for path, value in ranged.items()), *_printed(tables, ranged, read["figures"])]


def _read(checks: Sequence[Check], tables: CarbonTables) -> dict[str, set[str]]:
    """What findings read of the carbon tables, those that need no point to do so."""
    noted, read = changed.noting(tables)
    for check in checks:
        with suppress(KeyError, ValueError, RackmodelError):  # it asks for a point first
            check(Points(()), noted)
    return read


def _of_fact(fact: Fact, machine: str, several: bool) -> StudyInput:
    name = f"{machine}: {fact.path}" if several else fact.path
    low, high = both_ends(fact.text, (fact.low, fact.high), name)
    return StudyInput(name, (fact.path,), fact.text, low, high, status=fact.status, where={"architecture": (machine,)})


def _of_table(path: str, value: Any) -> StudyInput:
    """A ranged number of the carbon tables, in the unit that it is written in."""
    mid = amount(value.text, path)
    size = float(value) / mid.number if mid.number else 1.0
    status = STATUS.search(value.source or "")
    low, high = (Amount(float(f"{end / size:.12g}"), mid.unit) for end in (value.low, value.high))
    return StudyInput(path.removeprefix("figures."), (path,), value.text, low, high, status=status[0] if status else "")


def _is_read(path: str, read: Mapping[str, set[str]]) -> bool:
    section, _, name = path.partition(".")
    if section == "fab":
        return any(read.values())
    names = read.get(section, ())
    return name in names or (section == "processes" and name.partition(".")[0] in names)


def _printed(tables: CarbonTables, ranged: Mapping[str, Any], read: set[str]) -> list[StudyInput]:
    """Figures that papers print: they have no range; multiples of one tell what rests on it."""
    found = []
    for name, said in tables.figures.items():
        path = f"figures.{name}"
        if path in ranged or name not in read:
            continue
        row = said.value if isinstance(said.value, list) else [said.value]
        amounts = [amount(str(one), path) for one in row]
        if isinstance(said.value, list):  # each number of a row alone: what compares its numbers does not see all of them grow
            places = [(f", number {number + 1}", f"{path}.{number}", one) for number, one in enumerate(amounts)]
        else:
            places = [("", path, amounts[0])]
        outside = {
            f"{word}{which}": {place: str(Amount(one.number * by, one.unit))} for which, place, one in places for word, by in SCALES.items()
        }
        status = STATUS.search(said.source or "")
        found.append(StudyInput(name, (path,), str(said.value), outside=outside, status=status[0] if status else ""))
    return found


def _named(study: StudySpec, name: str, said: InputSpec, tables: CarbonTables) -> StudyInput:
    where = {key: tuple(value) if isinstance(value, list) else (value,) for key, value in said.where.items()}
    status = STATUS.search(said.source or "")
    mark = status[0] if status else ""
    paths = (said.set,) if isinstance(said.set, str) else tuple(said.set)
    outside = said.beyond if isinstance(said.beyond, dict) else {str(value): dict.fromkeys(paths, value) for value in said.beyond}
    if isinstance(said.values, dict) or (not paths and isinstance(said.beyond, dict)):
        choices = said.values if isinstance(said.values, dict) else {}
        return StudyInput(name, (), said.here or "as in the files", choices=choices, outside=outside, status=mark, where=where)
    if not paths:
        raise InputError("says neither `set` nor named `values`", path=f"inputs.{name}")
    table = [path for path in paths if changed.names_table(path)]
    if table:
        fact = _table_fact(tables, paths[0])
    else:
        fact, where = _fact(study, paths[0], where, name)
    mark = mark or fact.status
    if said.values is not None:
        choices = {str(value): dict.fromkeys(paths, value) for value in said.values}
        return StudyInput(name, paths, fact.text, choices=choices, outside=outside, status=mark, where=where)
    low, high = (str(end) if end is not None else other for end, other in ((said.low, fact.low), (said.high, fact.high)))
    if not (low and high):
        return StudyInput(name, paths, fact.text, outside=outside, status=mark, where=where)
    return StudyInput(name, paths, fact.text, *both_ends(fact.text, (low, high), name), outside=outside, status=mark, where=where)


def _fact(study: StudySpec, path: str, where: dict[str, tuple[Any, ...]], name: str) -> tuple[Fact, dict[str, tuple[Any, ...]]]:
    """What the files of the points that it touches say, or the points' own settings, and which machines these are. Raises InputError where
    they are of several machines that say it otherwise, and `where` does not tell which is meant."""
    found: dict[str, Fact] = {}
    for ask in plan_points(study):
        columns = {"run": ask.run, "architecture": ask.architecture, "workload": ask.workload, "mapper": ask.mapper}
        if ask.architecture in found or not all(columns[key] in values for key, values in where.items() if key in columns):
            continue
        try:
            of_files = fact_at(path, *ask.files)
        except InputError:
            if not found:
                raise
            continue  # another machine has no such place
        found[ask.architecture] = Fact(path, str(ask.settings[path])) if path in ask.settings else of_files
    if not found:
        raise InputError("touches no point", path=f"inputs.{name}.where")
    first = next(iter(found.values()))
    apart = next((machine for machine, fact in found.items() if fact.text != first.text), None)
    if apart is not None and "architecture" not in where:
        here = next(iter(found))
        said = f"{here} says {first.text or 'nothing'}, {apart} {found[apart].text or 'nothing'}"
        raise InputError(f"{said}: say which is meant, as where: {{architecture: {here}}}", path=f"inputs.{name}")
    return first, where if "architecture" in where else {**where, "architecture": tuple(found)}


def _table_fact(tables: CarbonTables, path: str) -> Fact:
    ranged = changed.ranged_facts(tables).get(path)
    if ranged is not None:
        one = _of_table(path, ranged)
        return Fact(path, one.here, str(one.low), str(one.high), one.status)
    section, _, name = path.partition(".")
    whole = getattr(tables, section)
    if section in ("products", "parts", "technologies") and name in whole:
        status = STATUS.search(whole[name].source or "")
        return Fact(path, whole[name].text, status=status[0] if status else "")
    if section != "figures":
        raise InputError("a fact of a carbon table without a range: say low and high", path=path)
    head, _, index = name.rpartition(".")
    key = name if name in tables.figures else head
    if key not in tables.figures:
        raise InputError(f"no printed figure called '{name}'", path="inputs", known=sorted(tables.figures), given=name)
    said = tables.figures[key]
    text = said.value[int(index)] if isinstance(said.value, list) else said.value
    status = STATUS.search(said.source or "")
    return Fact(path, str(text), status=status[0] if status else "")
