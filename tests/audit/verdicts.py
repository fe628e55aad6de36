"""What turns each verdict: for every finding that is not so by construction an input of its study and a value that changes its verdict.

tests/data/witnesses.yaml keeps one a finding, so that asking again costs the points of one finding twice: `make audit AUDIT=verdicts` asks
all of them, the suite the cheap ones. `python -m tests.audit.verdicts STUDY...` looks for them anew, by every value of every input, and
prints them; a finding that none turns is hollow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rackmodel.inputs import read_study
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.papers import checks_of
from rackmodel.studies.findings import Finding
from rackmodel.studies.late import Change, LatePoints
from rackmodel.studies.ranges import Ranges, turns
from rackmodel.studies.varied import StudyInput, varied_inputs

FILE = Path(__file__).parents[1] / "data/witnesses.yaml"
Witness = dict[str, Any]  # check: its number · input, value: what turns the finding


def kept() -> dict[str, dict[str, Witness]]:
    """Study → finding → what turns it."""
    found: dict[str, dict[str, Witness]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def firm(one: Finding) -> bool:
    """Whether it must be able to come out otherwise: not by construction, nor for want of an input that the paper does not print."""
    return not one.by_construction and (bool(one.needs) or one.verdict != "not decidable")


@cache
def asked(study: str) -> tuple[Ranges, dict[str, StudyInput]]:
    """A study that can be asked under other inputs, and these by name."""
    spec, tables = read_study(study), carbon_tables()
    checks = checks_of(spec)
    return Ranges(checks, LatePoints(spec), tables), {one.name: one for one in varied_inputs(spec, checks, tables)}


def fault(study: str, name: str, witness: Witness) -> str:
    """Why what is kept does not turn a finding; '' where it does."""
    ranges, inputs = asked(study)
    varied = inputs.get(witness["input"])
    if varied is None:
        return f"{study} has no input '{witness['input']}'"
    value = next((value for value in (*varied.trials(), *varied.outside) if str(value) == str(witness["value"])), None)
    if value is None:
        return f"'{witness['input']}' of {study} is not tried at {witness['value']}"
    plain, again = (ranges.under(witness["check"], change) for change in (Change(), varied.change(value)))
    if name not in plain or name not in again:
        return f"check {witness['check']} of {study} does not find {name}"
    if not turns(plain[name], again[name]):
        return f"{name} of {study} stays '{plain[name].said}' with {witness['input']} at {witness['value']}"
    return ""


def sought(ranges: Ranges, inputs: Iterable[StudyInput]) -> tuple[dict[str, Witness], list[str]]:
    """The first value that turns each finding of a study, and those that none turns."""
    found: dict[str, Witness] = {}
    hollow: list[str] = []
    for number in range(len(ranges.checks)):
        plain = ranges.under(number, Change())
        missing = {name for name, one in plain.items() if firm(one)}
        for varied in inputs:
            for value in (*varied.outside, *varied.trials()):
                again = ranges.tried(number, varied, value) if missing else {}
                turned = {name for name in missing & set(again) if turns(plain[name], again[name])}
                found |= {name: {"check": number, "input": varied.name, "value": str(value)} for name in sorted(turned)}
                missing -= turned
        hollow += sorted(missing)
    return found, hollow


def main(studies: list[str]) -> int:
    """Print what turns the findings of studies, as the file keeps it."""
    nothing = 0
    for study in studies:
        ranges, inputs = asked(study)
        found, hollow = sought(ranges, inputs.values())
        sys.stdout.write(yaml.safe_dump({study: found}, sort_keys=False, default_flow_style=None, width=200, allow_unicode=True))
        sys.stdout.flush()
        for name in hollow:
            nothing = 1
            sys.stderr.write(f"{study}: nothing turns {name}\n")
    return nothing


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
