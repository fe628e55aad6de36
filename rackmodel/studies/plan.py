"""A study → its points in order: every combination of a run's lists, zipped lists together, drawn settings as a Latin hypercube.

    linspace  v_i = a + (b - a) i / (n - 1)           logspace  v_i = a (b / a)^(i / (n - 1))
    Latin hypercube of n points: of n equal slices of each setting every one is used once; where in a slice, and which with which, is drawn

The draw is Python's Mersenne twister (`random()` alone, which is the same in every version), so that a seed means the same points anywhere.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackmodel.errors import InputError, check_once
from rackmodel.inputs.library import a, from_folder
from rackmodel.inputs.load import at_override
from rackmodel.inputs.scalars import resolve_scalar
from rackmodel.studies.study import RangeSpec, RunSpec, StudySpec, Value, many
from rackmodel.units import QUANTITY_FORM

INPUTS = ("architecture", "workload", "mapper")
MOST = 10_000_000
"""Points of a study."""

Sets = Mapping[str, Value | list[Value] | RangeSpec]
"""Settings of all runs, in the place of their own."""


@dataclass(frozen=True)
class Ask:
    """One point: what is to be searched. number: its place in the study · settings: as --set, in order · folder: where paths start."""

    number: int
    run: str
    architecture: str
    workload: str
    mapper: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    minimize: str | None = None
    profile: str | None = None
    folder: str = ""

    def file(self, kind: str) -> str:
        """What to read for an input: the path from here of a file beside the study."""
        return from_folder(kind, getattr(self, kind), self.folder)

    @property
    def files(self) -> tuple[str, str, str]:
        """What to read for architecture, workload and mapper."""
        return self.file("architecture"), self.file("workload"), self.file("mapper")

    @property
    def profile_file(self) -> str | None:
        """What to read for the profile."""
        return None if self.profile is None else self.file("profile")

    @property
    def sets(self) -> list[str]:
        """The settings as --set takes them."""
        return [f"{name}={value}" for name, value in self.settings.items()]

    @property
    def words(self) -> str:
        """'run main: ffn on rack_paper by tensor, accelerators=8'."""
        inputs = f"{shown(self.workload)} on {shown(self.architecture)} by {shown(self.mapper)}"
        more = [f"{name} {value}" for name, value in (("minimize", self.minimize), ("profile", self.profile)) if value]
        return ", ".join([f"run {self.run}: {inputs}", *self.sets, *more])


def shown(name: str) -> str:
    """What an input is called: a name or path as it is, of text its own name."""
    if "\n" not in name:
        return name
    first = next((line for line in name.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return first.partition(":")[2].split(" #")[0].strip().strip("'\"") or "<text>"


def plan_points(study: StudySpec, sets: Sets | None = None) -> list[Ask]:
    """Every point, in the file's order. sets: settings of all runs, instead of their own of the same name. Raises InputError."""
    asks: list[Ask] = []
    for number, run in enumerate(study.runs):
        try:
            for point in _points_of(study, run, sets or {}):
                inputs = {name: point.pop(name) for name in (*INPUTS, "minimize", "profile")}
                asks.append(Ask(len(asks), run.name, settings=point, folder=study.folder, **inputs))
                if len(asks) > MOST:
                    raise _too_many()
        except InputError as problem:
            path = f"runs.{number}" + (f".{problem.path}" if problem.path else "")
            raise InputError(problem.message, path=path, known=problem.known, given=problem.given)
    return asks


def _points_of(study: StudySpec, run: RunSpec, sets: Sets) -> Iterator[dict[str, Any]]:
    """The points of one run: name → value."""
    axes: dict[str, list[Any]] = {name: _named(name, run, study) for name in INPUTS}
    axes |= {"minimize": many(run.minimize), "profile": many(run.profile)}
    if empty := next((name for name, values in axes.items() if not values), ""):
        raise InputError("an empty list: no points", path=empty)
    settings: dict[str, Value | list[Value] | RangeSpec] = {**run.set, **sets}
    drawn = {name: value for name, value in settings.items() if isinstance(value, RangeSpec) and value.drawn}
    for name, value in settings.items():
        if name in axes:
            raise InputError(f"'{name}' is an input: say it beside `set`", path=f"set.{name}")
        if name not in drawn:
            axes[name] = _values(name, value)
    joint = _zipped(axes, run.zip)
    if math.prod(map(len, joint)) * (run.samples or 1) > MOST:
        raise _too_many()
    hypercube = latin_hypercube(drawn, run.samples or 0, run.seed) if drawn else [{}]
    for values in itertools.product(*joint, hypercube):
        point = {name: value for part in values for name, value in part.items()}
        yield {name: point[name] for name in (*INPUTS, "minimize", "profile", *settings)}


def _named(name: str, run: RunSpec, study: StudySpec) -> list[str]:
    """Names of an input: the run's, else the study's. Raises InputError."""
    said = many(getattr(study, name) if getattr(run, name) is None else getattr(run, name))
    if not all(one.strip() for one in said):
        raise InputError(f"is empty: want the name of {a(name)}", path=name)
    return said


def _too_many(path: str = "") -> InputError:
    return InputError(f"more than {MOST:,} points", path=path)


def _zipped(axes: Mapping[str, list[Any]], groups: Sequence[Sequence[str]]) -> list[list[dict[str, Any]]]:
    """Axes as lists of joint values: of a group's names first with first, of the others alone. Raises InputError."""
    group_of: dict[str, Sequence[str]] = {}
    for group in groups:
        for name in group:
            if name not in axes:
                raise InputError(f"no list called '{name}'", path="zip", known=list(axes), given=name)
            if name in group_of:
                raise InputError(f"'{name}' is there twice", path="zip")
            group_of[name] = group
        lengths = {name: len(axes[name]) for name in group}
        if len(set(lengths.values())) > 1:
            raise InputError(f"lists of unlike lengths: {', '.join(f'{name} {n}' for name, n in lengths.items())}", path="zip")
    found, done = [], set[str]()
    for name, values in axes.items():
        if name in done:
            continue
        group = group_of.get(name, [name])
        done |= set(group)
        joint = [tuple(axes[member][place] for member in group) for place in range(len(values))]
        check_once(joint if len(group) > 1 else values, _place(group))
        found.append([dict(zip(group, one, strict=True)) for one in joint])
    return found


def _place(group: Sequence[str]) -> str:
    """Where the list of a name is said, or those that are zipped."""
    if len(group) > 1:
        return "zip"
    return group[0] if group[0] in (*INPUTS, "minimize", "profile") else f"set.{group[0]}"


def _values(name: str, said: Value | list[Value] | RangeSpec) -> list[Value]:
    """The values of one setting. Raises InputError."""
    if not isinstance(said, RangeSpec):
        if isinstance(said, list) and not said:
            raise InputError("an empty list: no points", path=f"set.{name}")
        return many(said)
    log = said.logspace is not None
    first, last, count = said.logspace or said.linspace or (0, 0, 1)
    low, high, unit = _ends(name, first, last, log=log)
    if count > MOST:
        raise _too_many(f"set.{name}")
    shares = [place / (count - 1) for place in range(count)] if count > 1 else [0.0]
    return list(dict.fromkeys(_said(_between(low, high, share, log=log), unit, whole=said.whole) for share in shares))


def latin_hypercube(drawn: Mapping[str, RangeSpec], samples: int, seed: int) -> list[dict[str, Value]]:
    """So many points of drawn settings. Raises InputError."""
    draw = random.Random(seed)
    columns: dict[str, list[Value]] = {}
    for name, said in drawn.items():
        log = said.loguniform is not None
        low, high, unit = _ends(name, *(said.loguniform or said.uniform or (0, 0)), log=log)
        slices = list(range(samples))
        for place in range(samples - 1, 0, -1):  # Fisher and Yates
            other = int(draw.random() * (place + 1))
            slices[place], slices[other] = slices[other], slices[place]
        shares = [(number + draw.random()) / samples for number in slices]
        columns[name] = [_said(_between(low, high, share, log=log), unit, whole=said.whole) for share in shares]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _between(low: float, high: float, share: float, *, log: bool) -> float:
    if share in (0.0, 1.0):
        return high if share else low
    return low * (high / low) ** share if log else low + (high - low) * share


def _ends(name: str, first: Value, last: Value, *, log: bool) -> tuple[float, float, str]:
    """(first, last, their unit). Raises InputError where they are no numbers of one unit."""
    ends = [QUANTITY_FORM.match(str(end)) for end in (first, last)]
    if ends[0] is None or ends[1] is None:
        raise InputError(f"want numbers, such as [4, 64] or ['1 TB/s', '8 TB/s'], got [{first}, {last}]", path=f"set.{name}")
    low, high = (float(end[1].replace("_", "")) for end in ends if end is not None)
    if ends[0][2] != ends[1][2]:
        raise InputError(f"ends of unlike units: '{first}' and '{last}'", path=f"set.{name}")
    if log and not (low > 0 and high > 0):
        raise InputError("equal factors want ends above 0", path=f"set.{name}")
    return low, high, ends[0][2]


def _said(value: float, unit: str, *, whole: bool) -> Value:
    """A number as a setting: whole ones without a point, at most twelve digits, with its unit."""
    if whole or math.isclose(value, round(value), rel_tol=1e-12, abs_tol=1e-12):
        plain: Value = round(value)
    else:
        plain = float(f"{value:.12g}")
    return f"{plain} {unit}" if unit else plain


# -- as the command line says it ------------------------------------------------------------------------------------------------

_CALL = re.compile(r"^\s*(linspace|logspace)\s*\((.*)\)\s*$", re.S)


def read_sets(texts: Iterable[str]) -> dict[str, Value | list[Value] | RangeSpec]:
    """'accelerators=4,8,16', 'b=linspace(8, 64, 8)' → settings; the last of one name counts. Raises InputError."""
    found: dict[str, Value | list[Value] | RangeSpec] = {}
    for text in texts:
        name, equals, said = text.partition("=")
        if not equals or not name.strip() or not said.strip():
            raise InputError("want name=value, or name=value,value,...", where=at_override(text))
        try:
            found[name.strip()] = _of_text(said)
        except InputError as problem:
            raise problem.at(at_override(text))
    return found


def _of_text(said: str) -> Value | list[Value] | RangeSpec:
    call = _CALL.match(said)
    if call is None:
        values = [_scalar(part) for part in split_list(said)]
        check_once(values)
        return values[0] if len(values) == 1 else values
    parts = [part.strip() for part in split_list(call[2])]
    if len(parts) != 3 or not parts[2].isdecimal() or int(parts[2]) < 1:
        raise InputError(f"'{said.strip()}': want {call[1]}(first, last, how many)")
    return RangeSpec.model_validate({call[1]: (_scalar(parts[0]), _scalar(parts[1]), int(parts[2]))})


def split_list(text: str) -> list[str]:
    """'4, [8, 16]' → ['4', '[8, 16]']: at commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        quote = "" if char == quote else quote or (char if char in "'\"" else "")
        depth += 0 if quote else (char in "[{(") - (char in "]})")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _scalar(text: str) -> Value:
    """A number where it is one, else the text as it is. Raises InputError."""
    if not text:
        raise InputError("a value is missing between two commas")
    try:
        found = resolve_scalar(text)
    except ValueError as problem:
        raise InputError(str(problem))
    return found if isinstance(found, int | float) and not isinstance(found, bool) else text
