"""Rows of training runs beside the engine's steps: times against what was measured, and memory where a row tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rackmodel.errors import InputError
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.steps import PricedStep, price_cases
from rackmodel.validation.training import TrainingCase, training_case
from rackmodel.validation.words import Refused, words

GIB = float(1 << 30)
TERA = 1e12


def training_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    said, cases, refused = words(), {}, {}
    for number, row in enumerate(rows):
        try:
            cases[number] = training_case(row, said)
        except Refused as problem:
            refused[number] = str(problem)
    steps = dict(zip(cases, price_cases(list(cases.values())), strict=True))
    found: list[ScoredRow] = []
    for number, row in enumerate(rows):
        if number in refused:
            found.append(ScoredRow(row.id, row.dataset, refused=refused[number]))
        else:
            found += _scored(cases[number], steps[number])
    return found


def _scored(case: TrainingCase, step: PricedStep) -> Iterator[ScoredRow]:
    row = case.row
    if step.refused:
        yield ScoredRow(row.id, row.dataset, refused=step.refused)
        return
    system = case.row.text("gpu")
    assumptions = (*case.assumptions, *step.notes)
    over = bool(step.capacity) and step.bytes > step.capacity
    yield ScoredRow(
        id=row.id,
        dataset=row.dataset,
        system=system,
        precision=case.precision,
        measured=measured_seconds(case, step),
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
            dataset=f"{row.dataset}_memory",
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
