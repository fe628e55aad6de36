"""The bill of materials of a machine, read off its tree: every die, memory chip and part in use, in grams with ranges.

    die       area (or its share of the wafer) · (CI_fab · EPA + GPA + MPA) · share of steps / yield       (ACT, eqs. 4, 5)
    chips     capacity · carbon per capacity                                                               (eqs. 6 to 8)
    packages  chips · K_r                                                                                  (eq. 3)

What is in use: the accelerators in use, and above them as many levels as hold them. Every line carries a boundary, so that
totals can be compared with those of others who count less or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.dies import area_of, check_claimed, check_density, die_carbon_g, doubtful_yield
from rackmodel.carbon.ranges import Ranged, factor, total
from rackmodel.carbon.silicon import chip_carbon
from rackmodel.carbon.tables import CarbonTables
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.embodied import BOUNDARIES, Boundary, Chips, Part
from rackmodel.units import Quantity

AROUND: tuple[Boundary, ...] = BOUNDARIES[BOUNDARIES.index("module") :]
"""What every machine has around its packages: where nothing is stated of it, it is not counted, and not nothing."""


@dataclass(frozen=True)
class Line:
    """One item. count: in the machine as used · each_g: grams of one, with range · source: its own, else those of its factors ·
    area_m2: of one, of a die that counts as silicon."""

    level: str
    name: str
    what: str
    boundary: Boundary
    count: float
    each_g: Ranged
    source: str
    area_m2: Ranged | None = None

    @property
    def total_g(self) -> Ranged:
        """Grams of all of them."""
        return self.each_g * self.count


@dataclass(frozen=True)
class Bill:
    """A machine's bill of materials. accelerators: in use · silent: accelerators, and levels above, that say nothing of themselves ·
    nothing_of: of AROUND, what is asked for and no line is of · warnings: of yields that are in doubt."""

    lines: tuple[Line, ...]
    accelerators: int
    silent: tuple[str, ...] = ()
    nothing_of: tuple[Boundary, ...] = ()
    warnings: tuple[str, ...] = ()

    def total_g(self, boundaries: Iterable[Boundary] = BOUNDARIES) -> Ranged:
        """Grams within some boundaries, of the whole machine."""
        kept = set(boundaries)
        return total(line.total_g for line in self.lines if line.boundary in kept)

    def each_g(self, boundaries: Iterable[Boundary] = BOUNDARIES) -> Ranged:
        """Grams for each accelerator."""
        return self.total_g(boundaries) / self.accelerators

    @property
    def area_m2(self) -> Ranged:
        """Silicon of the whole machine (the A of EDAP)."""
        return total(line.area_m2 * line.count for line in self.lines if line.area_m2 is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: lines, totals out to each boundary, the factors that move the total most, and sources."""
        rows = []
        for line in self.lines:
            about = {"level": line.level, "name": line.name, "what": line.what, "boundary": line.boundary, "count": line.count}
            rows.append({**about, "each_g": line.each_g.to_dict(), "total_g": line.total_g.to_dict(), "source": line.source})
        present = [boundary for boundary in BOUNDARIES if any(line.boundary == boundary for line in self.lines)]
        whole = self.total_g()
        return {
            "accelerators": self.accelerators,
            "lines": rows,
            "boundaries": {boundary: self.total_g(up_to(boundary)).to_dict() for boundary in present},
            "each_accelerator_g": {boundary: self.each_g(up_to(boundary)).to_dict() for boundary in present},
            "swings": [{"factor": name, "low_g": low, "high_g": high} for name, low, high in whole.swings()],
            "silent": list(self.silent),
            "nothing_of": list(self.nothing_of),
            "warnings": list(self.warnings),
            "sources": {name: value.source for name, value in sorted(whole.factors.items()) if value.source},
        }


def up_to(boundary: Boundary) -> tuple[Boundary, ...]:
    """A boundary with all that lie inside of it: up_to('package') is silicon, memory and package."""
    return BOUNDARIES[: BOUNDARIES.index(boundary) + 1]


def bill_of(architecture: Architecture, tables: CarbonTables, model: str = "act", boundaries: tuple[Boundary, ...] = BOUNDARIES) -> Bill:
    """The bill of the accelerators in use and all above them. model: act, or another model of a fab that the tables know · boundaries:
    what counts; lines beyond are left out.

    Raises InputError for an unknown process, technology, part or model, for silicon that no die takes, and where no level says
    what it is made of.
    """
    models = ["act", *dict.fromkeys(name for process in tables.processes.values() for name in process.area_carbon)]
    if model not in models:
        raise InputError(f"no model of a fab called '{model}'", path="--fab", known=models, given=model)
    lines: list[Line] = []
    check_claimed(architecture.tree)
    shared: set[str] = set()  # levels outside all accelerators, which are there once whatever kinds they serve
    for pool in architecture.pools:
        counts, own = pool.instances(), {level.name for level in pool.accelerator.walk()}
        for level in pool.tree.walk():
            if level.embodied is None or level.name in shared - own:
                continue
            try:
                lines += _lines(_counted(level, boundaries), counts[level.name], tables, model, architecture.name)
            except InputError as problem:
                raise _inside(problem, f"{level.name}.embodied")
        shared |= {level.name for level in pool.tree.walk()} - own
    if not lines:
        raise InputError(f"no level of '{architecture.name}' says what it is made of (embodied)", path="tree")
    silent = dict.fromkeys(level.name for pool in architecture.pools for level in pool.path if _silent(level))
    nothing = tuple(name for name in boundaries if name in AROUND and all(line.boundary != name for line in lines))
    return Bill(tuple(lines), architecture.used, tuple(silent), nothing, tuple(_doubts(architecture, tables, boundaries)))


def _silent(level: Level) -> bool:
    """Whether a level says nothing of what it is made of: an accelerator neither by itself nor by what lies inside it."""
    return all(one.embodied is None for one in (level.walk() if level.accelerator else (level,)))


def _doubts(architecture: Architecture, tables: CarbonTables, boundaries: tuple[Boundary, ...]) -> Iterator[str]:
    """Yields that are in doubt, in words."""
    for level in architecture.tree.walk():
        for name, die in (level.embodied.dies if level.embodied is not None else {}).items():
            if die.boundary in boundaries:
                label = f"{architecture.name}.{level.name}.{name}"
                said = doubtful_yield(die, area_of(level, name, die, architecture.name), tables, label)
                yield from [said] if said else []


def _counted(level: Level, boundaries: tuple[Boundary, ...]) -> Level:
    """A level with what lies within the boundaries alone."""
    made = level.embodied
    assert made is not None
    if boundaries == BOUNDARIES:
        return level
    kept: dict[str, Any] = {
        key: {name: one for name, one in getattr(made, key).items() if one.boundary in boundaries} for key in ("dies", "memory", "parts")
    }
    packages = {} if "package" in boundaries else {"packages": 0}
    return level.model_copy(update={"embodied": made.model_copy(update=kept | packages)})


def _lines(level: Level, count: int, tables: CarbonTables, model: str, machine: str) -> list[Line]:
    made = level.embodied
    assert made is not None
    lines = []
    for name, die in made.dies.items():
        try:
            area = area_of(level, name, die, machine)
            each = die_carbon_g(die, area, tables, model, f"{machine}.{level.name}.{name}")
        except InputError as problem:
            raise _inside(problem, f"dies.{name}")
        if level.accelerator and die.boundary == "silicon":
            check_density(level.static_power_w, area.mid * die.count)
        what = f"{area.mid * 1e6:,.4g} mm2 of {die.process}"
        silicon = area if die.boundary == "silicon" else None
        lines.append(Line(level.name, name, what, die.boundary, count * die.count, each, die.source or _source(each), silicon))
    packages = made.packages if made.packages is not None else sum(die.count for die in made.dies.values() if die.boundary == "silicon")
    if packages:
        each = factor("package", tables.fab.package_g)
        lines.append(Line(level.name, "packages", "packaging of a chip", "package", count * packages, each, _source(each)))
    lines += [_chips(level, count, name, chips, tables, machine) for name, chips in made.memory.items()]
    lines += [_part(level, count, name, part, tables, machine) for name, part in made.parts.items()]
    return lines


def _chips(level: Level, count: int, name: str, chips: Chips, tables: CarbonTables, machine: str) -> Line:
    size = chips.capacity_bytes
    if size is None:
        size = level.memory.capacity_bytes if level.memory is not None else None
    if size is None:
        raise InputError("no capacity, here or in the level's memory", path=f"memory.{name}.capacity")
    try:
        per_byte = factor(f"technology {chips.technology}", tables.technology(chips.technology))
    except InputError as problem:
        raise _inside(problem, f"memory.{name}.technology")
    each = chip_carbon(factor(f"{machine}.{level.name}.{name} capacity", size), per_byte)
    return Line(level.name, name, f"{size / 1e9:,.6g} GB of {chips.technology}", chips.boundary, count, each, _source(per_byte))


def _part(level: Level, count: int, name: str, part: Part, tables: CarbonTables, machine: str) -> Line:
    if part.kind is not None:
        try:
            one = factor(f"part {part.kind}", tables.part(part.kind))
        except InputError as problem:
            raise _inside(problem, f"parts.{name}.kind")
    else:
        assert part.carbon_g is not None
        one = factor(f"{machine}.{level.name}.{name} carbon", part.carbon_g)
    each = one * factor(f"{machine}.{level.name}.{name} count", part.count) if _ranged(part.count) else one
    many = count if _ranged(part.count) else count * float(part.count)
    return Line(level.name, name, part.kind or "stated", part.boundary, many, each, part.source or _source(one))


def _inside(problem: InputError, place: str) -> InputError:
    """The same error, its path seen from further out."""
    path = f"{place}.{problem.path}" if problem.path else place
    return InputError(problem.message, where=problem.where, path=path, known=problem.known, given=problem.given)


def _ranged(value: float) -> bool:
    return isinstance(value, Quantity) and value.low < value.high


def _source(figure: Ranged) -> str:
    """Sources of a figure's factors, each once."""
    found: Mapping[str, None] = dict.fromkeys(value.source for value in figure.factors.values() if value.source)
    return "; ".join(found)
