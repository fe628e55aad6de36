"""Verdicts over the ranges of what they rest on: one input at a time, ends and choices first, then the value at which a verdict turns.

A finding is computed again at both ends of an input's stated range, or at each of its choices, the others as the files have them. Where
its verdict changes between the files' value and an end, the value in between at which it does is found by bisection. A verdict that
never changes holds "over all ranges" of the inputs that move its figures. Two inputs that turn it only together are not looked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackmodel.carbon.changed import names_table, with_facts
from rackmodel.carbon.tables import CarbonTables
from rackmodel.errors import RackmodelError
from rackmodel.studies.findings import Finding, margin_of
from rackmodel.studies.late import Change, LatePoints
from rackmodel.studies.own_findings import Check
from rackmodel.studies.varied import Amount, StudyInput

CLOSE = 0.005
DRAWN = 7
MOVED = 1e-9


@dataclass(frozen=True)
class Trial:
    """A finding at one value of one input. agrees: None where it is not decidable · refused: why it cannot be computed there."""

    value: object
    agrees: bool | None
    margin: float
    refused: str = ""


@dataclass
class Turn:
    """What one input does to one finding. trials: by value · crossings: values at which the verdict turns · meant: within its range."""

    finding: str
    input: StudyInput
    trials: list[Trial] = field(default_factory=list)
    crossings: list[float] = field(default_factory=list)
    meant: bool = True


@dataclass(frozen=True)
class Ranging:
    """Findings with their conditions, what turned them, and the margins that a chart of each turn draws."""

    findings: list[Finding]
    turns: list[Turn]


class Ranges:
    """Runs the checks of a study again under other inputs. progress: told what is being varied."""

    def __init__(
        self, checks: Sequence[Check], points: LatePoints, tables: CarbonTables, progress: Callable[[str], None] = lambda what: None
    ) -> None:
        self.checks, self.points, self.tables, self.progress = checks, points, tables, progress
        self.read: list[set[int]] = []  # points that each check reads as the files are
        self.found: dict[str, tuple[int, Finding]] = {}  # each finding, and the number of its check

    def over(self, inputs: Sequence[StudyInput]) -> Ranging:
        """Every finding over every input. Raises InputError where the findings cannot be computed as the files are."""
        plain = self._plain()
        self.found = {one.name: (number, one) for number, own in enumerate(plain) for one in own}
        trials = [(varied, value) for varied in inputs for value in (*varied.trials(), *varied.outside)]
        self.points.ahead((read, self._parted(varied.change(value))[0]) for read in self.read for varied, value in trials)
        moved: dict[str, list[str]] = {one.name: [] for own in plain for one in own}
        turned: dict[str, list[Turn]] = {name: [] for name in moved}
        open_turns: list[Crossing] = []
        for number, own in enumerate(plain):
            for varied in inputs:
                self.progress(f"{number + 1}/{len(self.checks)} {own[0].name if own else ''}: {varied.name}")
                for turn in self._vary(number, own, varied, moved):
                    turned[turn.finding].append(turn)
                    one = next(one for one in own if one.name == turn.finding)
                    open_turns += self._crossings(number, one, turn)
        self._locate(open_turns)
        found, turns = list[Finding](), list[Turn]()
        for one in (one for own in plain for one in own):
            said = condition(one, turned[one.name], self._ranged(moved[one.name], inputs))
            found.append(replace(one, condition=said, rests=tuple(moved[one.name])))
            turns += turned[one.name]
        return Ranging(found, turns)

    def _plain(self) -> list[list[Finding]]:
        """The findings of each check as the files are; which points each reads is known then."""
        found, self.read = list[list[Finding]](), list[set[int]]()
        self.points.ahead([(range(len(self.points.plan)), Change())])
        for check in self.checks:
            with self.points.noting() as read:
                found.append(check(self.points.under(), self.tables))
            self.read.append(read)
        return found

    def turned(self, inputs: Sequence[StudyInput]) -> set[str]:
        """Names of the findings whose verdict some value of some input changes, meant or not, or whose figure it carries from one side of
        what is claimed to the other (it agrees in between)."""
        plain = {one.name: one for one in self._findings_of_all(Change())}
        found: set[str] = set()
        for varied in inputs:
            for value in (*varied.trials(), *varied.outside):
                for check in self.checks:
                    again, _ = self._again(check, varied, value)
                    found |= {name for name, one in again.items() if name in plain and turns(plain[name], one)}
        return found

    def under(self, number: int, change: Change) -> dict[str, Finding]:
        """The findings of one check by name, under a change."""
        return {one.name: one for one in self._findings(self.checks[number], change)}

    def tried(self, number: int, varied: StudyInput, value: object) -> dict[str, Finding]:
        """The same at a value of an input; none where they cannot be computed there."""
        return self._again(self.checks[number], varied, value)[0]

    def _findings_of_all(self, change: Change) -> list[Finding]:
        return [one for check in self.checks for one in self._findings(check, change)]

    def _vary(self, number: int, plain: Sequence[Finding], varied: StudyInput, moved: dict[str, list[str]]) -> list[Turn]:
        """The findings of one check that one input turns, not yet located; those whose figures it moves are noted in `moved`."""
        trials = [(value, True) for value in varied.trials()] + [(value, False) for value in varied.outside]
        found = {one.name: Turn(one.name, varied) for one in plain}
        outside: dict[str, bool] = dict.fromkeys(found, False)
        for value, meant in trials:
            again, refused = self._again(self.checks[number], varied, value)
            for one in plain:
                other = again.get(one.name)
                if other is None:
                    found[one.name].trials.append(Trial(value, None, math.nan, refused or "says nothing of it"))
                    continue
                if _moves(one, other) and varied.name not in moved[one.name]:
                    moved[one.name].append(varied.name)
                if meant:
                    found[one.name].trials.append(_trial(value, other))
                elif other.verdict != one.verdict:
                    outside[one.name] = True
                    found[one.name].trials.append(_trial(value, other))
        turns = []
        for one in plain:
            turn = found[one.name]
            differs = [trial for trial in turn.trials if not trial.refused and trial.agrees != agrees(one)]
            if differs:
                turn.meant = any(trial.value in varied.trials() for trial in differs)
                turns.append(turn)
        return turns

    @staticmethod
    def _ranged(moved: Sequence[str], inputs: Sequence[StudyInput]) -> bool:
        """Whether an input that moves a finding has a stated range or choices."""
        return any(one.name in moved and one.trials() for one in inputs)

    def _again(self, check: Check, varied: StudyInput, value: object) -> tuple[dict[str, Finding], str]:
        """Findings by name at a value; none and why where they cannot be computed there."""
        try:
            return {one.name: one for one in self._findings(check, varied.change(value))}, ""
        except (RackmodelError, KeyError) as problem:
            return {}, str(problem).splitlines()[0]

    def _findings(self, check: Check, change: Change) -> list[Finding]:
        others, facts = self._parted(change)
        return check(self.points.under(others), with_facts(self.tables, facts))

    @staticmethod
    def _parted(change: Change) -> tuple[Change, dict[str, Any]]:
        """(what of a change points see, what carbon tables do)."""
        facts = {path: value for path, value in change.sets.items() if names_table(path)}
        others = {path: value for path, value in change.sets.items() if path not in facts}
        return Change(others, change.where), facts

    def _crossings(self, number: int, plain: Finding, turn: Turn) -> Iterator[Crossing]:
        """Where a turn is to be located: between the files' value and each end that differs from it."""
        if not turn.meant or turn.input.choices is not None:
            return
        for trial in turn.trials:
            if isinstance(trial.value, Amount) and not trial.refused and trial.agrees != agrees(plain):
                alike = "agrees" if agrees(plain) or trial.agrees else plain.verdict  # what is within NEAR counts with the side it leaves
                yield Crossing(number, plain, turn, alike, trial.value)

    def _locate(self, crossings: Sequence[Crossing]) -> None:
        """Find the values at which verdicts turn: each halves its own range, all side by side."""
        left = [one for one in crossings if not one.located]
        while left:
            self.points.ahead((self.read[one.number], self._parted(one.turn.input.change(one.middle))[0]) for one in left)
            for one in left:
                self.progress(f"{one.plain.name}: {one.turn.input.name} at {one.middle.short()}")
                one.halve(self._again(self.checks[one.number], one.turn.input, one.middle)[0].get(one.plain.name))
            left = [one for one in left if not one.located]
        for one in crossings:
            one.turn.crossings.append((one.low + one.high) / 2)

    def drawn(self, turns: Sequence[Turn]) -> dict[str, list[dict[str, Any]]]:
        """'finding, input' of turns that `over` has found → rows of a chart: margin of the finding over the input's range, DRAWN values or
        its choices."""
        asked = [(turn, *self.found[turn.finding], value) for turn in turns for value in _spread(turn.input)]
        self.points.ahead((self.read[number], self._parted(turn.input.change(value))[0]) for turn, number, _, value in asked)
        rows: dict[str, list[dict[str, Any]]] = {f"{turn.finding}, {turn.input.name}": [] for turn in turns}
        for turn, number, plain, value in asked:
            here = turn.input.choices is not None and value == turn.input.here
            one = plain if here else self._again(self.checks[number], turn.input, value)[0].get(plain.name)
            if one is not None and math.isfinite(margin_of(one.needs)):
                x = value.number if isinstance(value, Amount) else value
                rows[f"{turn.finding}, {turn.input.name}"].append({"x": x, "series": "margin", "y": margin_of(one.needs)})
        return rows


class Crossing:
    """A number between the files' and an end at which a finding begins or ceases to have a verdict: halved, of their logarithms where both
    are above 0 and far apart. number: of the check · verdict: that it has on one side · end: of the range."""

    def __init__(self, number: int, plain: Finding, turn: Turn, verdict: str, end: Amount) -> None:
        self.number, self.plain, self.turn, self.verdict, self.unit = number, plain, turn, verdict, end.unit
        self.low, self.high = turn.input.mid.number, end.number
        self.here = plain.verdict == verdict

    @property
    def located(self) -> bool:
        """Whether it is known closely."""
        return not abs(self.high - self.low) > CLOSE * max(abs(self.low), abs(self.high))

    @property
    def middle(self) -> Amount:
        """The value to try next."""
        low, high = self.low, self.high
        ratio = high / low if low > 0 and high > 0 else 0.0
        return Amount(math.sqrt(low * high) if ratio > 4 or 0 < ratio < 0.25 else (low + high) / 2, self.unit)

    def halve(self, there: Finding | None) -> None:
        """there: the finding in the middle, None where it cannot be computed."""
        middle = self.middle.number
        if there is not None and (there.verdict == self.verdict) == self.here:
            self.low = middle
        else:
            self.high = middle


def agrees(finding: Finding) -> bool | None:
    """True, False, or None where it is not decidable."""
    return {"agrees": True, "disagrees": False}.get(finding.verdict)


def _trial(value: object, finding: Finding) -> Trial:
    return Trial(value, agrees(finding), margin_of(finding.needs))


def _moves(one: Finding, other: Finding) -> bool:
    """Whether an input changes what decides a finding, or its figures where it says nothing of that."""
    ours, theirs = ([need.value for need in f.needs] + [b for need in f.needs for b in (need.least, need.most)] for f in (one, other))
    if not one.needs:
        ours, theirs = list(one.figures.values()), list(other.figures.values())
    if one.verdict != other.verdict or len(ours) != len(theirs):
        return True
    return any(a != b and not math.isclose(a, b, rel_tol=MOVED) for a, b in zip(ours, theirs, strict=True))


def turns(one: Finding, other: Finding) -> bool:
    """Whether a verdict changes, or must on the way from one to the other."""
    if one.verdict != other.verdict:
        return True
    return any(a.side * b.side < 0 for a, b in zip(one.needs, other.needs, strict=False))


def _spread(varied: StudyInput) -> list[Any]:
    """Values of a chart: choices with the files' own first, or DRAWN numbers over the range, even in logarithms where it is wide."""
    if varied.choices is not None:
        return list(dict.fromkeys([varied.here, *varied.choices]))
    assert varied.low is not None
    assert varied.high is not None
    low, high, unit = varied.low.number, varied.high.number, varied.mid.unit
    wide = low > 0 and high / low > 10
    steps = [n / (DRAWN - 1) for n in range(DRAWN)]
    return [Amount(low * (high / low) ** t if wide else low + (high - low) * t, unit) for t in steps]


# -- words -------------------------------------------------------------------------------------------------------------


def condition(plain: Finding, turns: Sequence[Turn], moved: bool) -> str:
    """What a verdict depends on, in words: 'where main memory <= 8 pJ/bit (ASSUMED 20 pJ/bit)', 'over all ranges'."""
    if plain.by_construction:
        return plain.by_construction
    said = [words for words in (_where(plain, turn) for turn in turns if turn.meant) if words]
    if plain.verdict == "not decidable":
        return "; ".join([plain.condition, *said] if plain.condition else said)
    if said:
        return "; ".join(said)
    return "over all ranges" if moved else ""


def _where(plain: Finding, turn: Turn) -> str:
    """Where one input makes the claim agree; '' where it never does."""
    mark = f"{turn.input.status or 'printed'} "
    if turn.input.choices is not None:
        good = [str(trial.value) for trial in turn.trials if trial.agrees]
        good = [turn.input.here, *good] if agrees(plain) else good
        if not good:
            bad = [str(trial.value) for trial in turn.trials if not trial.refused and trial.agrees != agrees(plain)]
            return f"not decidable where {turn.input.name} is {' or '.join(bad)} ({mark}{turn.input.here})"
        return f"{_verb(plain)}where {turn.input.name} is {' or '.join(good)} ({mark}{turn.input.here})"
    return _between(plain, turn, mark)


def _between(plain: Finding, turn: Turn, mark: str) -> str:
    mid = turn.input.mid
    below, above = ([Amount(x, mid.unit).short() for x in turn.crossings if (x < mid.number) == lower] for lower in (True, False))
    here = f"({mark}{mid.short()})"
    to = None if agrees(plain) else next((t.agrees for t in turn.trials if t.agrees), None if agrees(plain) is False else False)
    if to is None:  # where it stays as it is
        ends = " and ".join([f">= {x}" for x in below] + [f"<= {x}" for x in above])
        return f"where {turn.input.name} {ends} {here}"
    ends = " or ".join([f"<= {x}" for x in below] + [f">= {x}" for x in above])
    return f"{'agrees' if to else 'disagrees'} where {turn.input.name} {ends} {here}"


def _verb(plain: Finding) -> str:
    return "" if agrees(plain) else "agrees "
