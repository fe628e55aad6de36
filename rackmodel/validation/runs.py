"""Rows of training runs beside the engine's steps: times against what was measured, and memory where a row tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from rackmodel.errors import InputError
from rackmodel.processes import ALONE, Crew
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.steps import families, price_cases
from rackmodel.validation.timed import PricedStep
from rackmodel.validation.training import Alternative, TrainingCase, alternatives, training_case
from rackmodel.validation.unknowns import NORMAL
from rackmodel.validation.words import MEMORY, Refused, Words, words

GIB = float(1 << 30)
TERA = 1e12
SHARES = 4  # of each of several processes, so that none waits long for the last
OPERATOR = "operator"
"""What an interval owes to whoever ran the row."""
FAMILY, BRIEF = 50.0, 0.2  # work of any family, and of a case without an interval; one that has it is 1 (about 0.5 s, 2 and 10 ms)


def training_rows(
    rows: Sequence[PublishedRow], sets: Sequence[str] = (), *, intervals: bool = True, bins: bool = True, crew: Crew = ALONE
) -> list[ScoredRow]:
    """Each row scored, or refused with why. sets: overrides of every profile ('profile.variation=0') · intervals: whether other readings
    of what a row leaves open are priced, for its interval, and bins · bins: whether these are looked at · crew: who prices them."""
    said, refused = words(), dict[int, str]()
    readings: list[Reading] = []
    for number, row in enumerate(rows):
        try:
            readings.append(Reading(number, replace(training_case(row, said), brief=not intervals), None))
            others = (one for one in _others(number, row, said) if intervals or (one.other is not None and one.other.tuned))
            readings += others if intervals else (replace(one, case=replace(one.case, brief=True)) for one in others)
        except Refused as problem:
            refused[number] = str(problem)
    cases = [reading.case for reading in readings]
    cases = [replace(case, key=replace(case.key, sets=tuple(sets))) for case in cases] if sets else cases
    steps = _dealt(cases, crew, bins=bins)
    priced: dict[int, list[tuple[Reading, PricedStep]]] = {}
    for reading, step in zip(readings, steps, strict=True):
        priced.setdefault(reading.number, []).append((reading, step))
    found: list[ScoredRow] = []
    for number, row in enumerate(rows):
        if number in refused:
            found.append(ScoredRow(row.id, row.dataset, refused=refused[number]))
        else:
            found += _scored(*_meant(priced[number], said.operators))
    return found


def _dealt(cases: Sequence[TrainingCase], crew: Crew, *, bins: bool) -> list[PricedStep]:
    """The steps of cases, dealt to a crew."""
    shares = shares_of(cases, crew.count * SHARES if crew.count > 1 else 1)
    answers = crew.all(partial(price_cases, bins=bins), [[cases[number] for number in share] for share in shares], "rows")
    found = {number: step for share, steps in zip(shares, answers, strict=True) for number, step in zip(share, steps, strict=True)}
    return [found[number] for number in range(len(cases))]


def shares_of(cases: Sequence[TrainingCase], count: int) -> list[list[int]]:
    """Numbers of cases in at most so many shares that take about as long as each other; those that are priced together stay so."""
    shares, work = [list[int]() for _ in range(count)], [0.0] * count
    for took, own in sorted(((work_of_family([cases[number] for number in own]), own) for own in families(cases)), reverse=True):
        least = work.index(min(work))
        shares[least] += own
        work[least] += took
    return [sorted(share) for share in shares if share]


def work_of_family(cases: Sequence[TrainingCase]) -> float:
    """What cases that are priced together take, in cases that have an interval."""
    return FAMILY + sum(BRIEF if case.brief else 1.0 for case in cases)


@dataclass(frozen=True)
class Reading:
    """A case of a row. number: of the row · other: what is read in another way, None = nothing."""

    number: int
    case: TrainingCase
    other: Alternative | None


def _others(number: int, row: PublishedRow, said: Words) -> Iterator[Reading]:
    """Other readings of a row, those that cannot be left out."""
    for other in alternatives(row, said):
        with suppress(Refused):
            case = training_case(row, said, other)
            yield Reading(number, case if other.tuned else replace(case, brief=True), other)


def _meant(readings: Sequence[tuple[Reading, PricedStep]], operators: float) -> tuple[TrainingCase, PricedStep]:
    """The case and step of a row: what was tuned read as the fastest that fits, and the interval widened by what else it may be; readings
    of other batches by what a sample takes. operators: by which share the same step differs from one operator to the next, of which nine
    of ten lie within 1.64 times it."""
    case, step = readings[0][0].case, readings[0][1]
    others = [(reading, other) for reading, other in readings[1:] if reading.other is not None and not other.refused]
    if step.refused:
        return case, step
    middle = step.seconds / case.batch
    for reading, other in others:
        fits = not other.capacity or other.bytes <= other.capacity
        faster = other.seconds * (case.batch / reading.case.batch) < step.seconds
        if reading.other is not None and reading.other.tuned and fits and faster:
            said = f"{reading.other.column} = {reading.other.value}: the fastest that fits"
            case, step = replace(reading.case, assumptions=(*reading.case.assumptions, said)), other
    apart: dict[str, list[float]] = {}
    for reading, other in others:
        if reading.other is not None and not reading.other.tuned:
            more = other.seconds / reading.case.batch - middle
            apart.setdefault(reading.other.column, []).append(step.seconds + more * case.batch)
    interval = step.interval
    apart[OPERATOR] = [step.seconds * (1.0 + side * NORMAL * operators) for side in (-1, 1)]
    for column, seconds in apart.items():
        interval = interval.beside(column, step.seconds, seconds) if interval is not None else None
    return case, replace(step, interval=interval)


def _scored(case: TrainingCase, step: PricedStep) -> Iterator[ScoredRow]:
    row = case.row
    if step.refused:
        yield ScoredRow(row.id, row.dataset, refused=step.refused)
        return
    system = case.row.text("gpu")
    assumptions = (*case.assumptions, *step.notes)
    over = bool(step.capacity) and step.bytes > step.capacity
    measured = measured_seconds(case, step)
    share = step.flops / (measured * step.peak * case.accelerators)
    if share > 1.0:
        assumptions = (*assumptions, f"the row says {share:.2g} times the machine's peak at {case.precision}: another precision or unit?")
    yield ScoredRow(
        id=row.id,
        dataset=row.dataset,
        system=system,
        precision=case.precision,
        measured=measured,
        predicted=step.seconds,
        assumptions=assumptions,
        over_capacity=over,
        bins=step.bins,
        interval=step.interval,
    )
    gib = row.number("memory_gib")
    if gib:
        yield ScoredRow(
            id=f"{row.id} memory",
            dataset=row.dataset + MEMORY,
            system=system,
            precision=case.precision,
            unit="GiB",
            measured=gib,
            predicted=step.bytes / GIB,
            assumptions=assumptions,
            over_capacity=over,
        )


def measured_seconds(case: TrainingCase, step: PricedStep) -> float:
    """Seconds of the step that was measured, by what the row says of it."""
    value, accelerators = case.measured.value, case.accelerators
    tokens = case.batch * dict(case.key.model.sizes)["s"]
    rates = {
        "tokens": lambda: tokens / value,
        "tokens of a GPU": lambda: tokens / (value * accelerators),
        "model": lambda: step.flops / (value * TERA * accelerators),
        "hardware": lambda: step.hardware_flops / (value * TERA * accelerators),
        "model share": lambda: step.flops / (value / 100 * step.peak * accelerators),
        "hardware share": lambda: step.hardware_flops / (value / 100 * step.peak * accelerators),
    }
    if case.measured.quantity == "seconds":
        return value
    if case.measured.quantity not in rates:
        raise InputError(f"'{case.measured.quantity}' is no quantity", known=list(rates))
    return rates[case.measured.quantity]()
