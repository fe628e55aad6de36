"""A Marked tree of a workload → its graph; everything that sizes, operations and widths do wrong is told at once, each at its text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rackmodel.errors import InputError, together
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.problems import build, in_order, placed
from rackmodel.model.einsum import parse_statement
from rackmodel.model.resources import width
from rackmodel.model.sizes import resolve_sizes
from rackmodel.model.sizes_counted import check_counted
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import Precision, WorkloadSpec

MOST_OPERATIONS = 2000
MOST_SIZES = 1000
MOST_LATELY = 64
_LATELY: dict[str, Workload] = {}
"""What a tree says → its workload. (Nothing changes a workload; points of a study share theirs as well.)"""
WIDTHS = set(Precision.model_fields) - {"recipe"}
"""Keys of a precision that are widths."""


def build_graph(raw: Marked) -> Workload:
    """The workload of a tree; one that was built lately is not built again. Raises one InputError that tells all problems."""
    said = json.dumps([raw.plain(), _asked_sizes(raw), _asked_of_phases(raw)])
    if said not in _LATELY:
        if len(_LATELY) >= MOST_LATELY:
            _LATELY.clear()
        _LATELY[said] = _built(raw)
    return _LATELY[said]


def _built(raw: Marked) -> Workload:
    problems: list[InputError] = []
    try:
        spec = build(WorkloadSpec, raw)
    except InputError as problem:
        problems.append(problem)
    tables = [("sizes", raw.child("sizes"), MOST_SIZES), *((path, table, MOST_OPERATIONS) for path, table in _operations(raw))]
    for path, table, most in tables:
        if table is not None and len(table.mapping) > most:
            raise InputError(f"{len(table.mapping)} entries: at most {most} are allowed", where=raw.keys.get(path, table.where), path=path)
    problems += [placed(problem, raw) for problem in _refused_texts(raw)]
    if problems:
        raise in_order(problems, raw)
    try:
        made = build_workload(spec)
        check_counted(spec, _asked_sizes(raw))
        return replace(made, idle=_idle(spec, _asked_of_phases(raw)))
    except InputError as problem:
        raise placed(problem, raw)
    except (ValueError, ArithmeticError) as problem:
        raise InputError(f"cannot be meant: {short(problem, 120)}", where=raw.where)


def _asked_sizes(raw: Marked) -> list[str]:
    """Sizes that must count: those that --set gives, else those of the file itself. (What a file extends, or what a --set stands in the
    place of, may leave others idle: rows given as a number, for batch * seq.)"""
    table = raw.child("sizes")
    sizes = {} if table is None or not isinstance(table.value, dict) else table.mapping
    given = [name for name, node in sizes.items() if node.where.file.startswith("--set")]
    return given or [name for name, node in sizes.items() if node.where.file == raw.where.file]


OF_PHASES = {"optimizer": "optimizer", "precision.state": "optimizer", "precision.gradient": "backward"}
"""Keys that count in one phase alone → the phase."""


def _asked_of_phases(raw: Marked) -> list[tuple[str, bool]]:
    """(key, whether --set gives it) of the keys of one phase that are to count: that --set gives, or that stand in the file which says the
    phases. (A file that trains keeps them where --set or a file that extends it goes forward alone.)"""
    phases, found = raw.child("phases"), []
    for path in OF_PHASES:
        node: Marked | None = raw
        for step in path.split("."):
            node = None if node is None or not isinstance(node.value, dict) else node.child(step)
        if node is None:
            continue
        file = node.where.file
        given = file.startswith("--set")
        if given or (file == raw.where.file and (phases is None or phases.where.file == file)):
            found.append((path, given))
    return found


def _idle(spec: WorkloadSpec, asked: Sequence[tuple[str, bool]]) -> tuple[str, ...]:
    """A sentence for each width of a file that counts in no phase of its workload (a table of widths may say them all). Raises one
    InputError for what --set gives so, and for an optimizer."""
    why = f"is none of the phases [{', '.join(spec.phases)}]: this changes nothing"
    idle = [(path, f"{OF_PHASES[path]} {why}", given) for path, given in asked if OF_PHASES[path] not in spec.phases]
    refused = [InputError(f"{fact}, leave it out", path=path) for path, fact, given in idle if given or path == "optimizer"]
    if refused:
        raise together(refused)
    return tuple(f"{path}: {fact}" for path, fact, _ in idle)


def _operations(raw: Marked) -> list[tuple[str, Marked]]:
    """Path and tree of each table of operations: of the workload, or of its sections."""
    sections = raw.mapping.get("sections", Marked({}, raw.where)).mapping
    found = [("einsums", raw.child("einsums"))] + [(f"sections.{name}.einsums", said.child("einsums")) for name, said in sections.items()]
    found += [(f"sections.{name}.prompts", said.child("prompts")) for name, said in sections.items()]
    return [(path, table) for path, table in found if table is not None]


def _refused_texts(raw: Marked) -> Iterator[InputError]:
    """What the parsers of widths, sizes and operations refuse, with the path of each text; what is no text is the schema's matter."""
    precision = raw.mapping.get("precision", Marked({}, raw.where))
    yield from _refused("precision", {key: node for key, node in precision.mapping.items() if key in WIDTHS}, width)
    said = {name: node.value for name, node in raw.mapping.get("sizes", Marked({}, raw.where)).mapping.items()}
    numbers = {name: value for name, value in said.items() if isinstance(value, str | int) and not isinstance(value, bool)}
    sizes: Mapping[str, int] | None = None
    if len(numbers) == len(said):
        try:
            sizes = resolve_sizes(numbers)
        except InputError as problem:
            yield problem

    def check_operation(text: str) -> None:
        statement = parse_statement(text)
        for access in (statement.out, *statement.ins):
            for index in access.names:
                if sizes is not None and index not in sizes:
                    raise InputError(f"index '{index}' has no size in `sizes`", known=sorted(sizes), given=index)

    for path, table in _operations(raw):
        yield from _refused(path, table.mapping, check_operation)


def _refused(key: str, nodes: Mapping[str, Marked], check_text: Callable[[str], object]) -> Iterator[InputError]:
    """What a parser says of each text that it refuses, with the path of the text."""
    for name, node in nodes.items():
        try:
            if node.text is not None:
                check_text(node.text)
        except InputError as problem:
            yield problem.at(None, f"{key}.{name}")
        except ValueError as problem:
            yield InputError(short(problem, 240), path=f"{key}.{name}")
