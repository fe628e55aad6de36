"""`python -m tests.audit [PART...] [--count N] [--seed N] [--resume FILE]`: attack everything for minutes; exit 1 where something
gave way (`make audit`).

Parts: members (random members of spaces against what searches claim), wild (the same under random profiles), asked (objectives in order,
limits of every figure and fronts, against all points of such spaces), bounds (of seconds, against the clock), limits, fronts, free
(layouts) and cuts (against every member of small spaces), mutations (of files), options (of command lines), metamorphic (changes of known
effect), verdicts (what turns each finding of a study), served (deployments that serve, against every point of their space). A question is
a function of its part and its number alone: the same number fails again. A failing case is written to out/audit with the commands that
show it. With --resume, how far each part came is kept in a file and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rackmodel.errors import InfeasibleError, InputError
from tests import certificate_cases, fused_layouts, merged_layouts, open_cut_cases
from tests.audit import options, served, verdicts, wild
from tests.audit.answers import held_to_it
from tests.audit.asked import questioned
from tests.audit.attack import Attacked, attack
from tests.audit.bases import turns
from tests.audit.bounds import above_the_clock
from tests.audit.drawing import KINDS
from tests.audit.metamorphic import relations
from tests.audit.mutate import mutated

COUNTS = {"limits": 1_000, "fronts": 500, "free": 500, "cuts": 1_000, "metamorphic": 2_000, "members": 20_000}
COUNTS |= {"wild": 5_000, "asked": 6_000, "bounds": 20_000, "served": 20_000}
COUNTS |= {"verdicts": sum(map(len, verdicts.kept().values())), "options": 10_000, "mutations": 190_000}
DRAWS = 60  # members of one space
EVERY_S = 20.0  # between two lines of progress
Fault = tuple[str, str]  # where, what
Asked = tuple[str, int, list[Fault]]  # the kind and outcome, how many were compared, what gave way


def members(number: int, out: Path) -> Asked:
    """A space of the next kind, attacked by its members."""
    kind, seed = list(KINDS)[number % len(KINDS)], number // len(KINDS)
    try:
        attacked = attack(kind, seed, DRAWS)
    except Exception:
        return f"{kind} failed", 0, [(f"{kind} {seed}", traceback.format_exc(limit=-5))]
    return _judged(f"{kind} {seed}", kind, attacked, out / f"{kind}_{seed}")


def _judged(where: str, kind: str, attacked: Attacked, folder: Path) -> Asked:
    """What gave way, written."""
    faults = [(where, f"{broken.claim}\n{broken.case.write(folder, broken.member)}") for broken in attacked.broken]
    return f"{kind} {attacked.outcome}", attacked.members, faults


def wild_members(number: int, out: Path) -> Asked:
    """A space of the next kind under a random profile, attacked by its members."""
    try:
        kind, attacked = wild.attacked(number, DRAWS, out / "profiles")
    except Exception:
        return "wild failed", 0, [(f"wild {number}", traceback.format_exc(limit=-5))]
    return _judged(f"wild {number}", kind, attacked, out / f"wild_{number}")


def asked(number: int, out: Path) -> Asked:
    """Questions of the next such space, made small, against all its points."""
    try:
        kind, many, case, faults = questioned(number, out / "profiles")
    except Exception:
        return "asked failed", 0, [(f"asked {number}", traceback.format_exc(limit=-5))]
    written = case.write(out / f"asked_{number}") if case is not None and faults else ""
    return kind, many, [(f"asked {number}", f"{fault}\n{written}") for fault in faults]


def serving(number: int, _out: Path) -> Asked:
    """A search of deployments, against every point of its space."""
    try:
        kind, many, faults = served.question(number)
    except Exception:
        return "served failed", 0, [(f"served {number}", traceback.format_exc(limit=-5))]
    return kind, many, [(f"served {number}", fault) for fault in faults]


def bounds(number: int, out: Path) -> Asked:
    """Random points of the next such space, their bounds against the clock."""
    kind, seed = wild.KINDS[number % len(wild.KINDS)], number // len(wild.KINDS)
    case = wild.wild(kind, seed, out / "profiles")
    try:
        compared, faults = above_the_clock(case.read(), case.profile, DRAWS, seed)
    except (InputError, InfeasibleError):
        return f"{kind} refused", 0, []
    except Exception:
        return f"{kind} failed", 0, [(f"bounds {number}", traceback.format_exc(limit=-5))]
    return kind, compared, [(f"bounds {number}", f"{fault}\n{case.write(out / f'bounds_{number}')}") for fault in faults[:1]]


def mutations(number: int, out: Path) -> Asked:
    """A mutated file of the next base, of what is soon answered more often. One that fails is written."""
    every = turns()
    base = every[number % len(every)]
    name = f"{base.name} {number}"
    text = mutated(base.text, random.Random(name))
    outcome, fault = held_to_it(lambda: base.answer(text))
    if fault:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name.replace(' ', '_')}.yaml").write_text(text, encoding="utf-8")
    return f"{base.name.split()[0]} {outcome}", 1, [(name, fault)] if fault else []


def command_lines(number: int, _out: Path) -> Asked:
    """A mutated command line."""
    words = options.mutated(random.Random(f"options {number}"))
    outcome, fault = options.fault(words)
    return f"options {outcome}", 1, [(f"options {number} {words}", fault)] if fault else []


def metamorphic(number: int, _out: Path) -> Asked:
    """The next change of known effect."""
    every = _relations()
    name, kind, relation = every[number % len(every)]
    seed = number // len(every)
    try:
        fault = relation(kind, seed)
    except Exception:
        fault = traceback.format_exc(limit=-5)
    return f"{name} {kind}", 1, [(f"{name} {kind} {seed}", fault)] if fault else []


@cache
def _relations() -> list[tuple[str, str, Callable[[str, int], str | None]]]:
    return list(relations())


def exhaustive(part: str, question: Callable[[int], int]) -> Callable[[int, Path], Asked]:
    """A question whose answer is held against every member of a small space."""

    def asked(number: int, _out: Path) -> Asked:
        try:
            return part, int(question(number)), []
        except Exception:
            return f"{part} failed", 1, [(f"{part} {number}", traceback.format_exc(limit=-3))]

    return asked


def kept_verdicts(number: int, _out: Path) -> Asked:
    """What is kept to turn the next finding of a study."""
    every = [(study, name, witness) for study, names in verdicts.kept().items() for name, witness in names.items()]
    study, name, witness = every[number % len(every)]
    what = verdicts.fault(study, name, witness)
    return study, 1, [(f"{study} {name}", what)] if what else []


def _free(number: int) -> int:
    """Of graphs priced operation by operation, of some whose operations may be fused (beside free layouts, and on several meshes), and of
    some whose kernels a profile merges."""
    if number % 10 == 3:
        return fused_layouts.check_meshes(number // 10)
    if number % 10 in (0, 5):
        return (fused_layouts if number % 10 == 0 else merged_layouts).check(number // 10)
    return certificate_cases.check_free([number])


def _cut(number: int) -> bool:
    return open_cut_cases.check_machine(number // 20) if number % 20 == 0 else open_cut_cases.check_lanes(number)


PARTS: dict[str, Callable[[int, Path], Asked]] = {
    "limits": exhaustive("limits", lambda number: certificate_cases.check_limits([number])),
    "fronts": exhaustive("fronts", lambda number: certificate_cases.check_fronts([number])),
    "free": exhaustive("free", _free),
    "cuts": exhaustive("cuts", _cut),
    "metamorphic": metamorphic,
    "verdicts": kept_verdicts,
    "members": members,
    "wild": wild_members,
    "asked": asked,
    "bounds": bounds,
    "served": serving,
    "options": command_lines,
    "mutations": mutations,
}


@dataclass
class Reached:
    """How far a part came. number: the next question · compared, failed: how many · seconds: of the processor · kinds: how many of each
    outcome · revisions: of the code that was asked."""

    number: int = 0
    compared: int = 0
    failed: int = 0
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    revisions: list[str] = field(default_factory=list)


class Table:
    """How far each part came, kept in a file where one is named."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}
        self.parts = {part: Reached(**reached) for part, reached in kept.items()}

    def part(self, name: str, seed: int) -> Reached:
        """How far a part came; it begins at a seed."""
        return self.parts.setdefault(name, Reached(number=seed))

    def keep(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is not None:
            made = self.path.with_name(f"{self.path.name}.part")
            made.write_text(json.dumps({part: asdict(reached) for part, reached in self.parts.items()}, indent=1), encoding="utf-8")
            made.replace(self.path)


def answers(part: str, reached: Reached, count: int, out: Path) -> Iterator[list[Fault]]:
    """Ask on until so many were compared; yields what gave way after each question."""
    while reached.compared < count:
        began = time.process_time()
        kind, many, faults = PARTS[part](reached.number, out)
        reached.number += 1
        reached.compared += many
        reached.failed += len(faults)
        reached.seconds += time.process_time() - began
        reached.kinds[kind] = reached.kinds.get(kind, 0) + many
        yield faults


def run(part: str, count: int, seed: int, out: Path, table: Table) -> int:
    """Run a part; returns how much gave way."""
    reached, said = table.part(part, seed), time.monotonic()
    reached.revisions = sorted({*reached.revisions, revision()})
    for faults in answers(part, reached, count, out):
        for where, what in faults:
            print(f"FAILED {where}\n  {what}", flush=True)
        if time.monotonic() - said > EVERY_S or faults:
            said = time.monotonic()
            table.keep()
            print(f"{part}: {reached.compared} of {count} in {reached.seconds:.0f} CPU s, {reached.failed} failed", flush=True)
    table.keep()
    listed = ", ".join(f"{kind} {many}" for kind, many in sorted(Counter(reached.kinds).items()))
    print(f"{part}: {reached.compared} in {reached.seconds:.0f} CPU s, {reached.failed} failed ({listed})", flush=True)
    return reached.failed


@cache
def revision() -> str:
    """The revision of the code, as git calls it; empty where there is none."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--count", type=int, help="how many of each part")
    parser.add_argument("--seed", type=int, default=0, help="number of the first question")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on from what FILE says was reached, and keep it there")
    said = parser.parse_args()
    os.environ["RACKMODEL_CACHE"] = "off"
    out, table = Path("out/audit").resolve(), Table(said.resume.resolve() if said.resume else None)
    os.chdir(tempfile.mkdtemp(prefix="audit"))
    return 1 if sum(run(part, said.count or COUNTS[part], said.seed, out, table) for part in said.parts or PARTS) else 0


if __name__ == "__main__":
    sys.exit(main())
