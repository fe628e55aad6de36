"""A comparison's cells over the ranges that their files state: the best mapping of each searched again under other numbers.

Samples are dealt to processes; which of them searches what changes no figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as count_from
from math import isinf

from rackmodel.carbon.job import Usage
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError, Where
from rackmodel.inputs import apply_overrides, load
from rackmodel.inputs.comparison import Cell
from rackmodel.inputs.overrides import OF_PROFILE, Places, override_profile
from rackmodel.inputs.problems import build
from rackmodel.inputs.ranged import Fact, ranged_in_machine, ranged_in_profile
from rackmodel.inputs.read import build_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import BLENDS, SAME_ORDER
from rackmodel.model.profile import ProfileSpec
from rackmodel.once import once
from rackmodel.processes import Crew
from rackmodel.results import own_figure
from rackmodel.searches import best_objective
from rackmodel.studies.ranking import Place, RangedNumber, RankedPair, Values, ranged_number, ranking
from rackmodel.watch import UNWATCHED, Watch

OF_THE_BILL = (*BLENDS, *SAME_ORDER, "money")
"""Objectives that read what a machine is made of."""
OF_THE_SITE = ("carbon", *BLENDS, "money")
ORDER = {"carbon": "energy", **SAME_ORDER}
"""Objectives that order the mappings of one machine as another does, whatever it is made of and where it stands."""
SHARES = 8  # of each process, so that none waits long for the last
WORTH = 1.0  # seconds of searches that processes are begun for
Own = tuple[tuple[str, str], ...]
"""What one side is asked under: (path, value) of its own numbers."""
_Search = tuple[int, Own]
Tell = Callable[[str, int, int], None]


def ranked(
    cells: Sequence[Cell],
    minimize: str | None,
    profile: str | None,
    samples: int,
    seed: int = 1,
    usage: Usage | None = None,
    watch: Watch = UNWATCHED,
    count: int = 1,
    tell: Tell = lambda what, done, of: None,
) -> tuple[list[RankedPair], list[RangedNumber]]:
    """The best cell against each other, and the numbers that were varied. count: of processes · tell: (for what, searches done, of so
    many). Raises InputError where no file states a range."""
    if len(cells) < 2:
        raise InputError("one side alone is ranked by nothing: want two mappers, or two machines", path="--samples")
    bench = _Bench(tuple(cells), minimize, profile, usage or Usage(), watch.seconds)
    sides = bench.sides
    machines = {cell.inputs.architecture.name: cell.inputs.architecture for cell in cells}
    for name, machine in machines.items():
        if sides[0].goal in SAME_ORDER and len(machines) > 1 and own_figure(sides[0].goal, machine, bench.usage, "act") is None:
            fact = f"{sides[0].goal} of several machines wants what each is made of, which {name} does not say (embodied)"
            raise InputError(fact, path="--minimize")
    numbers = _numbers(sides)
    if not numbers:
        fact = "no number of these machines and profiles states a range: say one, such as {low: 2 TB/s, mid: 3 TB/s, high: 4 TB/s}"
        raise InputError(fact, path="--samples")
    names = [cell.mapper if cell.alone else f"{cell.mapper} on {cell.inputs.architecture.name}" for cell in cells]
    jury = _Jury(bench, count, tell)
    try:
        stated = [side.paths for side in sides]
        return ranking(names, numbers, lambda values: jury([values])[0], samples, seed, jury, stated), numbers
    finally:
        _SIDES.pop(bench.number, None)


_SIDES = dict[int, list["_CellSide"]]()
"""Of a bench, by its number: a process that was forked has what its parent knows of them, any other makes its own."""


@dataclass(frozen=True)
class _Bench:
    """The sides of a ranking, in any process. seconds: that a search may take."""

    cells: tuple[Cell, ...]
    minimize: str | None
    profile: str | None
    usage: Usage
    seconds: float | None
    number: int = field(default_factory=count_from(1).__next__)

    @property
    def sides(self) -> list[_CellSide]:
        if self.number not in _SIDES:
            _SIDES[self.number] = [_CellSide(cell, self.minimize, self.profile, self.usage) for cell in self.cells]
        return _SIDES[self.number]

    def __call__(self, many: list[_Search]) -> list[float]:
        return [self.sides[side].searched(own, Watch(self.seconds)) for side, own in many]


@dataclass
class _Jury:
    """What each side is ranked by under each of many values. A side is searched once under equal values of its own numbers; searches are
    dealt to processes where that is quicker. each_s: of the slowest search so far."""

    bench: _Bench
    count: int
    tell: Tell
    each_s: float = 0.0
    known: dict[_Search, float] = field(default_factory=dict)

    def __call__(self, many: Sequence[Values], what: str = "where the order turns") -> list[list[float]]:
        asked = [[(number, side.own(values)) for number, side in enumerate(self.bench.sides)] for values in many]
        new = [one for one in dict.fromkeys(one for row in asked for one in row) if one not in self.known]
        if not new:
            return [[self.known[one] for one in row] for row in asked]
        apart = self.count > 1 and len(new) > 1 and self.each_s * len(new) > WORTH
        step = max(1, len(new) // (self.count * SHARES)) if apart else 1
        shares = [new[i : i + step] for i in range(0, len(new), step)]
        crew = Crew(self.count if apart else 1, lambda done, of: self.tell(what, done, of))
        found = crew.all(self.bench if apart else self._timed, shares, "samples")
        self.known |= {
            one: figure for share, figures in zip(shares, found, strict=True) for one, figure in zip(share, figures, strict=True)
        }
        return [[self.known[one] for one in row] for row in asked]

    def _timed(self, many: list[_Search]) -> list[float]:
        began = time.perf_counter()
        figures = self.bench(many)
        self.each_s = max(self.each_s, (time.perf_counter() - began) / len(many))
        return figures


def _numbers(sides: Sequence[_CellSide]) -> list[RangedNumber]:
    """Every number once, in the order of the files; one that only one of several machines has is called by it too."""
    machines: dict[Place, dict[str, None]] = {}
    for side in sides:
        for number in side.numbers:
            machines.setdefault(number.place, {})[side.cell.inputs.architecture.name] = None
    every = {side.cell.inputs.architecture.name for side in sides}
    found = {number.place: number for side in sides for number in side.numbers}
    return [
        replace(number, name=f"{', '.join(machines[place])}: {number.name}") if set(machines[place]) != every else number
        for place, number in found.items()
    ]


def _embodied(path: str) -> bool:
    """Whether a number is of what a machine is made of."""
    return ".embodied." in path


def _of_site(path: str) -> bool:
    """Whether it is of where a machine stands."""
    return path.startswith("site.")


class _CellSide:
    """One cell. paths: place of a number → what --set calls it here · order: the objective by which mappings are searched, where the figure
    asked for is of that and of numbers that no mapping changes; '' = that of the question."""

    def __init__(self, cell: Cell, minimize: str | None, profile: str | None, usage: Usage) -> None:
        self.cell, self.minimize, self.usage = cell, minimize, usage
        mapper = cell.inputs.mapper
        assert mapper is not None
        goals = [name.strip() for name in (minimize or mapper.minimize).split(",")]
        goal = self.goal = goals[0]
        self.order = ORDER.get(goal, "") if len(goals) == 1 else ""
        self._known = dict[Own, float]()
        self.profile = override_profile(load("profile", profile or mapper.profile or "ideal"), cell.inputs.of_profile)
        self._shared, self._profiles = Shared(), dict[tuple[str, ...], ProfileSpec]()
        facts = [*ranged_in_machine(cell.inputs.raws[0]), *ranged_in_profile(self.profile)]
        self.numbers, self.paths = list[RangedNumber](), dict[Place, list[str]]()
        self._places: Places = {}
        for fact, where in facts:
            embodied, site = _embodied(fact.path), _of_site(fact.path)
            if (goal in OF_THE_BILL or not embodied) and (goal in OF_THE_SITE or not site):
                self._add(fact, where)

    def _add(self, fact: Fact, where: Where) -> None:
        place = (where.file, where.line, where.column)
        number = ranged_number(fact, place)
        if number is not None:
            self.paths.setdefault(place, []).append(fact.path)
            self.numbers.append(number)

    def own(self, values: Values) -> Own:
        """Those of some values that it reads, as --set says them: (path, value)."""
        return tuple((path, str(value)) for place, value in values.items() for path in self.paths.get(place, ()))

    def searched(self, own: Own, watch: Watch) -> float:
        """Its best under some values; inf where nothing fits. Where what a machine is made of and its site change no mapping's place, they
        are read off the best that was found under the other values."""
        sets = [f"{path}={value}" for path, value in own]
        of_profile = tuple(text for text in sets if text.startswith(OF_PROFILE))
        tree, *_ = apply_overrides([text for text in sets if text not in of_profile], self.cell.inputs.raws[0], None, None, self._places)
        assert tree is not None
        profile, machine = self._profile(of_profile), build_architecture(tree)
        if not self.order:
            return self._best(machine, profile, self.minimize, watch)
        priced = tuple((path, value) for path, value in own if not (_embodied(path) or _of_site(path)))
        best = once(self._known, priced, lambda: self._best(machine, profile, self.order, watch))
        told = own_figure(self.goal, machine, self.usage, "act")
        return best if told is None or isinf(best) else told(best)

    def _best(self, machine: Architecture, profile: ProfileSpec, minimize: str | None, watch: Watch) -> float:
        """Of a search; inf where nothing fits."""
        mapper = self.cell.inputs.mapper
        assert mapper is not None
        try:
            return best_objective(
                machine,
                self.cell.inputs.workload,
                mapper,
                minimize=minimize,
                profile=profile,
                usage=self.usage,
                watch=watch,
                shared=self._shared,
            )
        except InfeasibleError:
            return float("inf")

    def _profile(self, sets: tuple[str, ...]) -> ProfileSpec:
        """The profile under some settings: one object for the same ones, of which what is derived is remembered."""
        return once(self._profiles, sets, lambda: build(ProfileSpec, override_profile(self.profile, sets)))
