"""`python -m tests.audit [PART...] [--count N] [--seed N]`: attack everything for minutes; exit 1 where something gave way (`make audit`).

Parts: members (random members of spaces against what searches claim), limits, fronts, free (layouts) and cuts (against every member of
small spaces), mutations (of files), options (of command lines), metamorphic (changes of known effect). A failing case is written to
out/audit with the commands that show it; the same seed fails again.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import certificate_cases, open_cut_cases
from tests.audit import options
from tests.audit.answers import held_to_it
from tests.audit.attack import Broken, attack
from tests.audit.bases import Base, turns
from tests.audit.drawing import KINDS
from tests.audit.metamorphic import relations
from tests.audit.mutate import mutated

COUNTS = {"members": 20_000, "limits": 1_000, "fronts": 500, "free": 500, "cuts": 1_000}
COUNTS |= {"mutations": 190_000, "options": 10_000, "metamorphic": 2_000}
DRAWS = 60  # members of one space
EVERY_S = 20.0  # between two lines of progress
Fault = tuple[str, str]  # where, what


def members(count: int, seed: int, out: Path) -> Iterator[tuple[str, int, list[Fault]]]:
    """Spaces of every kind by turns until so many members were compared."""
    compared, number = 0, seed
    while compared < count:
        for kind in KINDS:
            found, faults, outcome = 0, [], "failed"
            try:
                attacked = attack(kind, number, DRAWS)
                found, faults, outcome = attacked.members, [_shown(broken, out) for broken in attacked.broken], attacked.outcome
            except Exception:
                faults = [(f"{kind} {number}", traceback.format_exc(limit=-5))]
            compared += found
            yield f"{kind} {outcome}", found, faults
        number += 1


def _shown(broken: Broken, out: Path) -> Fault:
    name = f"{broken.case.kind} {broken.case.seed}"
    return name, f"{broken.claim}\n{broken.case.write(out / name.replace(' ', '_'), broken.member)}"


def mutations(count: int, seed: int, out: Path) -> Iterator[tuple[str, int, list[Fault]]]:
    """Mutated files of every kind by turns, of what is soon answered more. One that fails is written."""
    every, had = turns(), Counter[str]()
    for number in range(count):
        base: Base = every[number % len(every)]
        name = f"{base.name} {seed + had[base.name]}"
        had[base.name] += 1
        text = mutated(base.text, random.Random(name))
        outcome, fault = held_to_it(lambda base=base, text=text: base.answer(text))  # type: ignore[misc]
        if fault:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{name.replace(' ', '_')}.yaml").write_text(text, encoding="utf-8")
        yield f"{base.name.split()[0]} {outcome}", 1, [(name, fault)] if fault else []


def command_lines(count: int, seed: int, _out: Path) -> Iterator[tuple[str, int, list[Fault]]]:
    """Mutated command lines."""
    for number in range(seed, seed + count):
        words = options.mutated(random.Random(f"options {number}"))
        outcome, fault = options.fault(words)
        yield f"options {outcome}", 1, [(f"options {number} {words}", fault)] if fault else []


def metamorphic(count: int, seed: int, _out: Path) -> Iterator[tuple[str, int, list[Fault]]]:
    """Changes of known effect by turns."""
    done, number = 0, seed
    while done < count:
        for name, kind, relation in relations():
            try:
                fault = relation(kind, number)
            except Exception:
                fault = traceback.format_exc(limit=-5)
            done += 1
            yield f"{name} {kind}", 1, [(f"{name} {kind} {number}", fault)] if fault else []
        number += 1


def exhaustive(part: str) -> Callable[[int, int, Path], Iterator[tuple[str, int, list[Fault]]]]:
    """Questions whose answers are held against every member of a small space."""

    def asked(count: int, seed: int, _out: Path) -> Iterator[tuple[str, int, list[Fault]]]:
        done, number = 0, seed
        while done < count:
            many, faults = 0, []
            try:
                many = int(QUESTIONS[part](number))
            except Exception:
                faults = [(f"{part} {number}", traceback.format_exc(limit=-3))]
            done += many or bool(faults)
            yield part, many, faults
            number += 1

    return asked


QUESTIONS: dict[str, Callable[[int], int]] = {
    "limits": lambda seed: certificate_cases.check_limits([seed]),
    "fronts": lambda seed: certificate_cases.check_fronts([seed]),
    "free": lambda seed: certificate_cases.check_free([seed]),
    "cuts": lambda seed: open_cut_cases.check_machine(seed // 20) if seed % 20 == 0 else open_cut_cases.check_lanes(seed),
}
PARTS: dict[str, Callable[[int, int, Path], Iterator[tuple[str, int, list[Fault]]]]] = {
    "members": members,
    **{part: exhaustive(part) for part in QUESTIONS},
    "mutations": mutations,
    "options": command_lines,
    "metamorphic": metamorphic,
}


def run(part: str, count: int, seed: int, out: Path) -> int:
    """Run a part; returns how much gave way."""
    counts: Counter[str] = Counter()
    began = said = time.monotonic()
    failed = 0
    for kind, many, faults in PARTS[part](count, seed, out):
        counts[kind] += many
        for where, what in faults:
            failed += 1
            print(f"FAILED {where}\n  {what}", flush=True)
        if time.monotonic() - said > EVERY_S:
            said = time.monotonic()
            print(f"{part}: {counts.total()} of {count} in {said - began:.0f} s, {failed} failed", flush=True)
    listed = ", ".join(f"{kind} {many}" for kind, many in sorted(counts.items()))
    print(f"{part}: {counts.total()} in {time.monotonic() - began:.0f} s, {failed} failed ({listed})", flush=True)
    return failed


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--count", type=int, help="how many of each part")
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args()
    os.environ["RACKMODEL_CACHE"] = "off"
    out = Path("out/audit").resolve()
    os.chdir(tempfile.mkdtemp(prefix="audit"))
    return 1 if sum(run(part, said.count or COUNTS[part], said.seed, out) for part in said.parts or PARTS) else 0


if __name__ == "__main__":
    sys.exit(main())
