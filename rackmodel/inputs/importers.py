"""Files of other tools → an architecture file: `import_files` reads Timeloop v4, AccelForge and Accelergy inputs.

Each reader gives stages (memories and a compute, outer to inner, with the fan above each); one writer turns them into
YAML. What has no meaning here is named in a list that is printed and kept in the file's note: nothing is dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rackmodel.errors import InputError, Where
from rackmodel.inputs import accelergy, accelforge, timeloop
from rackmodel.inputs.marked import short
from rackmodel.inputs.read import build_architecture
from rackmodel.inputs.stages import Notes, Stage, number, table
from rackmodel.inputs.tagged import Foreign, read_foreign
from rackmodel.inputs.yaml_marks import compose
from rackmodel.units import parse_quantity

MOST_NOTED = 60
"""Things that were not carried over, in the note of the file; all of them are printed."""


@dataclass(frozen=True)
class Imported:
    """An architecture file: its name, text, and a line for everything that was not carried over."""

    name: str
    text: str
    warnings: tuple[str, ...]


def import_files(paths: Sequence[str | Path], *, name: str | None = None, clock: str | None = None) -> Imported:
    """Read files of other tools as one architecture.

    paths: one architecture (Timeloop v4 or AccelForge), and any Accelergy energy tables and Timeloop variables ·
    clock: '1 GHz', where the files give no cycle time. Raises InputError.
    """
    files = [read_foreign(Path(path)) for path in paths]
    notes = Notes()
    for file in files:
        for where, text in file.filled:
            notes.add(where, text)
    machine = _only(files)
    cycle = _cycle(clock, files)
    root = machine.root
    if "architecture" in root.mapping:
        stages = timeloop.stages(root.mapping["architecture"], notes, cycle)
    else:
        stages = accelforge.stages(root.mapping["arch"], notes)
    tables = [file.root.mapping["ERT"] for file in files if "ERT" in file.root.mapping]
    accelergy.apply(tables, stages, notes, cycle)
    _name_the_rest(files, notes)
    label = _label(name or Path(machine.shown).name.split(".")[0])
    text = _render(label, stages, [Path(file.shown).name for file in files], notes)
    _check(text, machine.shown)
    return Imported(label, text, tuple(notes.lines))


def _check(text: str, shown: str) -> None:
    """What is written must be an architecture; if it is not, the file that was read says something impossible."""
    try:
        build_architecture(compose(text, shown))
    except InputError as problem:
        raise InputError(f"makes no architecture: {problem.message}", where=Where(shown), path=problem.path)


def _only(files: Sequence[Foreign]) -> Foreign:
    machines = [file for file in files if {"architecture", "arch"} & set(file.root.mapping)]
    for own in files:
        if (named := own.root.child("architecture")) is not None and isinstance(named.value, str):
            raise InputError("is a file of rackmodel already: rackmodel check reads it", where=Where(own.shown))
    if len(machines) != 1:
        fact = f"{len(machines)} of the files hold an architecture, want one (key 'architecture' of Timeloop v4, 'arch' of AccelForge)"
        raise InputError(fact, where=Where(files[0].shown if files else "import"))
    return machines[0]


def _cycle(clock: str | None, files: Sequence[Foreign]) -> float | None:
    """Seconds of a cycle: the option, else the variables of Timeloop, else what the architecture's own nodes say (None)."""
    if clock is not None:
        try:
            frequency = parse_quantity(clock, "1/second")
        except ValueError as problem:
            raise InputError(str(problem).replace("want 1/second", "want a frequency, such as '1 GHz'"), path="--clock")
        if not frequency > 0:
            raise InputError("must be above 0", path="--clock")
        return 1 / frequency
    for file in files:
        variables = table(file.root, "variables", "variables")
        given = variables.child("global_cycle_seconds") if variables is not None else None
        if given is not None:
            return number(given, "variables.global_cycle_seconds")
    return None


def _name_the_rest(files: Sequence[Foreign], notes: Notes) -> None:
    for file in files:
        notes.unknown_keys(file.root, ("architecture", "arch", "ERT", "variables"), Path(file.shown).name)
        variables = table(file.root, "variables", "variables")
        if variables is not None:
            notes.unknown_keys(variables, ("version", "global_cycle_seconds"), "variables")


def _label(text: str) -> str:
    clean = re.sub(r"\W+", "_", text, flags=re.A).strip("_") or "imported"
    return clean if not clean[0].isdigit() else f"_{clean}"


def _render(name: str, stages: Sequence[Stage], files: Sequence[str], notes: Notes) -> str:
    source = f"imported from {', '.join(files)}"
    used: set[str] = set()
    tree: dict[str, Any] | None = None
    for position, stage in reversed(list(enumerate(stages))):
        level = _level(stage, source, used)
        if position == 0:
            level = {"name": level.pop("name"), "accelerator": True, **level}
        if tree is not None:
            below = stages[position + 1]
            level |= {"fan": {"x": below.x, "y": below.y, "source": source}} if below.x * below.y > 1 else {}
            level["children"] = [tree]
        tree = level
    texts = [text for _, text in notes.found]
    note = "; ".join(texts[:MOST_NOTED]) + (f"; and {len(texts) - MOST_NOTED} more" if len(texts) > MOST_NOTED else "")
    data = {"architecture": name, "source": source} | ({"note": f"what the import says: {note}"} if note else {}) | {"tree": tree}
    head = f"# {name}: {source} by `rackmodel import`. Units are converted; the note lists what was not.\n"
    return head + yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)


def _level(stage: Stage, source: str, used: set[str]) -> dict[str, Any]:
    label = _label(stage.name)
    if label in used:
        raise InputError(f"two nodes are called '{short(label)}'", where=stage.where)
    used.add(label)
    level: dict[str, Any] = {"name": label}
    if stage.x * stage.y > 1:
        level["count"] = stage.x * stage.y
    if stage.static_w > 0:
        level["static_power"] = {"value": f"{stage.static_w:.12g} W", "source": source}
    if stage.compute:
        assert stage.macs_per_s is not None
        energy = stage.energy.get("compute", 0.0)
        level["compute"] = {"rate": f"{stage.macs_per_s / 1e9:.12g} GMAC/s", "energy": f"{energy * 1e12:.12g} pJ/MAC", "source": source}
    else:
        level["memory"] = _memory(stage, source)
    return level


def _memory(stage: Stage, source: str) -> dict[str, Any]:
    memory: dict[str, Any] = {}
    if stage.capacity_bits is not None:
        memory["capacity"] = f"{stage.capacity_bits / 8:.15g} B"
    if stage.split:
        memory["ports"] = "split"
    speeds = {"bandwidth": stage.read_bits_per_s, "write_bandwidth": stage.write_bits_per_s}
    memory |= {key: f"{speed / 8e9:.12g} GB/s" for key, speed in speeds.items() if speed is not None}
    memory |= {f"{act}_energy": f"{stage.energy.get(act, 0.0) * 1e12:.12g} pJ/bit" for act in ("read", "write")}
    if stage.buffers != 1:
        memory["buffers"] = stage.buffers
    if stage.keep is not None:
        memory["keep"] = stage.keep
    if stage.bypass:
        memory["bypass"] = stage.bypass
    return {**memory, "source": source}
