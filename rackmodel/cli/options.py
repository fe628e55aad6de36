"""Options that several commands share, each said once, and how what they say is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rackmodel.errors import InputError, OutputError, check_once
from rackmodel.report.files import make_folder

LONGEST_NAME = 200
ArchitectureArg = Annotated[str, typer.Argument(metavar="ARCH", help="Architecture: a name of the library or a YAML file.")]
WorkloadArg = Annotated[str, typer.Argument(metavar="WORKLOAD", help="Workload: a name of the library or a YAML file.")]
OptionalWorkloadArg = Annotated[str | None, typer.Argument(metavar="[WORKLOAD]", help="Workload: a name of the library or a YAML file.")]
OptionalMapperArg = Annotated[str, typer.Argument(metavar="[MAPPER]", help="Mapper: a name of the library or a YAML file.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Override any number of any input: accelerators=32, gpu.memory.bandwidth='4 TB/s'; 'network.bandwidth*=0.5' scales.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print every charge, and every mapping of a front.")]
OutOption = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write mapping, ledger, charts and index.html to this folder.")
]
SourcesOption = Annotated[bool, typer.Option("--sources", help="Print the source of every factor.")]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="What a framework overlaps, fuses and launches: ideal, serial, megatron_core, ... (specs/profiles).",
    ),
]
_LIMITS = "memory=, latency=, energy=, carbon=, total_carbon=, money=, edp= or tcdp="
_OBJECTIVES = "energy, latency, edp, carbon, memory, edap, cdp, cep, c2ep, ce2p, total_carbon, tcdp or money"
MinimizeOption = Annotated[
    str | None,
    typer.Option("--minimize", metavar="OBJ", help=f"Objective: {_OBJECTIVES}; several in order of priority: latency,energy."),
]
FlagsOption = Annotated[
    str | None,
    typer.Option("--flags", metavar="FRAMEWORK", help="Print the launch arguments of the mapping: megatron, torchtitan or deepspeed."),
]
TokensOption = Annotated[str | None, typer.Option("--tokens", metavar="N", help="Cost a whole run over N tokens, such as 300e9.")]
StepsOption = Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Cost a whole run of N steps.")]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="INTERVAL", help="Time between checkpoints of a run: '30 min', or optimal (Daly)."),
]
StorageOption = Annotated[
    str | None, typer.Option("--storage", metavar="BANDWIDTH", help="Bandwidth of the whole machine to checkpoint storage: '1 TB/s'.")
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        "--failures", metavar="RATE", help="Failure rate '2e-5 per accelerator-hour', or mean time between failures '50000 h per node'."
    ),
]
RestartOption = Annotated[
    str | None,
    typer.Option("--restart", metavar="TIME", help="Time from a failure until training resumes; default: the time to read the checkpoint."),
]
LimitOption = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help=f"Upper limit of a step: power='5 MW', {_LIMITS}."),
]
ParetoOption = Annotated[
    str | None,
    typer.Option(
        "--pareto", metavar="FIGURES", help="Print the Pareto front of these: latency,energy,memory,carbon,total_carbon,tcdp,money."
    ),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time-limit", metavar="TIME", help="Stop each search after this time, such as '30 s', with the best found and its gap."),
]

TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a timeline of tasks and memory for ui.perfetto.dev."),
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, max=1024, help="Local processes (default: as many as cores).")
]


def objective(text: str | None) -> Any:
    """Check an objective's name, or several in order. Raises InputError."""
    from rackmodel.mapper.in_order import read_goals

    if text is not None:
        read_goals(text)
    return text


def framework(text: str | None) -> str | None:
    """Check a framework's name. Raises InputError."""
    from rackmodel.report.flags import FRAMEWORKS

    if text is not None and text not in FRAMEWORKS:
        raise InputError(f"no framework called '{text}'", path="--flags", known=FRAMEWORKS, given=text)
    return text


def limits(said: Sequence[str] | None) -> dict[str, str]:
    """'power=5 MW' → {'power': '5 MW'}. Raises InputError for one without a value, and for one that is there twice."""
    found: dict[str, str] = {}
    for text in said or ():
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"'{text}': want name=value", path="--limit")
        if name in found:
            raise InputError(f"two limits of {name}: keep one", path="--limit")
        found[name] = value
    return found


def figures(text: str | None) -> tuple[str, ...]:
    """'latency,energy' → ('latency', 'energy')."""
    return () if text is None else tuple(name.strip() for name in text.split(","))


def words_of(text: str, option: str) -> tuple[str, ...]:
    """'fp8, bf16' → (fp8, bf16). Raises InputError where one is missing beside a comma, or there twice."""
    found = [word.strip() for word in text.split(",")] if text else []
    if not all(found):
        raise InputError(f"'{text}': a word is missing beside a comma", path=option)
    check_once(found, option)
    return tuple(found)


def time_limit(text: str | None) -> float | None:
    """'30 s', or '30', in seconds. Raises InputError."""
    if text is None:
        return None
    plain = re.fullmatch(r"[-+]?[\d.]+", text.strip())
    return quantity(f"{text} s" if plain else text, "second", "--time-limit", "30 s")


def quantity(text: str, unit: str, option: str, like: str = "") -> float:
    """A positive quantity of an option in SI. like: an example of the size that is meant. Raises InputError."""
    from rackmodel.units import parse_quantity

    try:
        value = parse_quantity(text.strip(), unit, like)
    except ValueError as problem:
        raise InputError(str(problem), path=option)
    if not value > 0:
        raise InputError(f"'{text}' must be positive", path=option)
    return value


def plain_name(word: str, option: str, *, between: str = "") -> str:
    """The same word, where it can name a file and stand in YAML as it is. between: what may stand between its parts, such as '. '.
    Raises InputError."""
    parts = re.split(f"[{re.escape(between)}]", word) if between else [word]
    usual = re.match(r"[A-Za-z_]", word) and len(word) <= LONGEST_NAME and word.lower() not in ("null", "true", "false")
    if not (usual and all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in parts)):
        more = f", and one of '{between}' between them" if between else ""
        raise InputError(f"'{word[:80]}': want a plain word of letters, digits, _ and -{more}", path=option)
    return word


def folder(path: Path | None) -> Path | None:
    """The output folder, made if need be. Raises OutputError where it cannot be written."""
    return None if path is None else make_folder(path)


def output_file(path: Path | None) -> Path | None:
    """The output file, which is looked at before what it is to hold is computed. Raises OutputError where it cannot be written."""
    if path is not None and path.is_dir():
        raise OutputError("cannot write there: it is a folder, want a file", str(path))
    if path is not None and not path.parent.is_dir():
        raise OutputError(f"cannot write there: no such folder as {path.parent}", str(path))
    return path


def keep_other_kinds(path: Path | None, kind: str) -> None:
    """Raise InputError where a file of another kind of input is there: what a command makes may be made again, but not in the place of what
    somebody wrote."""
    from rackmodel.inputs.read import kind_of

    if path is not None and path.suffix in (".yaml", ".yml") and path.is_file() and path.stat().st_size:
        there = kind_of(path)
        if there != kind:
            raise InputError(f"{path} is there already, a file of another kind ({there}): another name", path="--output")


def said(**options: Any) -> list[str]:
    """Options that were given, as the command line says them: flags=None, tokens='300e9' → ['--tokens', '300e9']."""
    return [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]
