"""One point's answer as plain data, and back: what a study's file remembers of a search.

A result, or why there is none: 'infeasible: memory' with need, have and shortfall, or 'refused' with the message of the input that
contradicts itself there. Time that a search took is no part of it: the same question has the same answer, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from rackmodel import api
from rackmodel.cost.ledger import COLUMNS, Charge, Ledger
from rackmodel.cost.network.asked import Hearing
from rackmodel.cost.step.occupancy import wired_of
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.shared import SharedPoint
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import Certificate
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.occupancy import FullPipeline
from rackmodel.model.result import Repetition, Result
from rackmodel.report.finite import check_finite
from rackmodel.units import Quantity

OK, INFEASIBLE, REFUSED = "ok", "infeasible", "refused"
Plain = dict[str, Any]
_CELLS = attrgetter(*COLUMNS)

_PLAIN = (
    "architecture", "workload", "mapper", "latency_s", "energy_j", "memory_bytes_per_accelerator", "peak_flop_per_s", "tokens",
    "useful_flop", "room_bytes", "waiting_w",
)  # fmt: skip


def answer_of(read: Callable[[], SharedPoint], minimize: str | None, shared: Shared | None = None) -> tuple[Plain, Result | None]:
    """What a search says of a point, as plain data, and the result where there is one. read: the point's inputs · shared: what
    searches of one study go on from."""
    try:
        point = read()
        solved = _solved(point, minimize, shared or Shared())
        return solved.plain, solved.on(point.inputs().architecture)
    except InfeasibleError as problem:
        return _infeasible(problem), None
    except InputError as problem:
        return refused(problem), None
    except (OverflowError, ZeroDivisionError, FloatingPointError) as problem:
        return {"status": REFUSED, "message": f"a number of the input is too large or too small to be meant ({problem})"}, None


def refused(problem: InputError) -> Plain:
    """The answer for inputs that contradict themselves."""
    return {"status": REFUSED, "message": str(problem)}


def search_point(point: SharedPoint, minimize: str | None, shared: Shared | None = None) -> Result:
    """The best mapping of a point. Raises InputError at its place, InfeasibleError."""
    return _solved(point, minimize, shared or Shared()).on(point.inputs().architecture)


@dataclass(frozen=True)
class _Solved:
    """A search's result, and what is said of it: for every machine whose networks say the same."""

    result: Result

    @cached_property
    def plain(self) -> Plain:
        check_finite([self.result])
        return {"status": OK, **_plain(self.result)}

    def on(self, machine: Architecture) -> Result:
        """The result on one of these machines."""
        return self.result if self.result.machine is machine else replace(self.result, machine=machine)


def _solved(point: SharedPoint, minimize: str | None, shared: Shared) -> _Solved:
    """The best mapping, as another machine's search found it where this one's networks say the same. Raises InputError at its place,
    InfeasibleError."""
    inputs, profile = point.inputs(), point.profile()
    machine, workload, mapper = inputs.architecture, inputs.workload, inputs.mapper
    assert mapper is not None

    def search(hearing: Hearing) -> _Solved:
        own = replace(shared, ask=hearing)
        return _Solved(api.search_mapper(machine, workload, mapper, minimize=minimize, profile=profile, shared=own).result)

    try:
        if len(machine.pools) > 1 or wired_of(machine) is not None:  # what fills a pipeline there reads the links themselves
            return search(Hearing(machine))
        return shared.conversations.answer((workload, mapper, profile), minimize, machine, search)
    except InputError as problem:
        raise inputs.place(problem)


def _infeasible(problem: InfeasibleError) -> Plain:
    """'infeasible: memory': the word is the resource's last, or the message's first."""
    word = problem.resource.rpartition(".")[2] or problem.message.partition(":")[0]
    said: Plain = {"status": f"{INFEASIBLE}: {word}", "message": problem.message}
    if problem.resource:
        said |= {"resource": problem.resource, "need": problem.need, "have": problem.have, "shortfall": problem.shortfall}
        said |= {"unit": problem.unit}
    return said | ({"change": problem.change} if problem.change else {})


def _plain(result: Result) -> Plain:
    """A result as plain data. Its machine is that of the inputs, its loop nests are in the mapping."""
    certificate = {**result.certificate.__dict__, "seconds": 0.0}
    return {
        **{name: getattr(result, name) for name in _PLAIN},
        "carbon_g": None if result.carbon_g is None else _ends(result.carbon_g),
        "memory": dict(result.memory),
        "mapping": result.mapping.model_dump(by_alias=True, exclude={"source", "note"}),
        "mapping_note": result.mapping.note,
        "certificate": {name: value if name != "nests" else _untimed(value) for name, value in certificate.items()},
        "warnings": list(result.warnings),
        "repeated": [one.to_dict() for one in result.repeated],
        "pipelined": None if result.pipelined is None else asdict(result.pipelined),
        "ledger": [list(_CELLS(row)) for row in result.ledger],
    }


def _untimed(sheets: Plain) -> Plain:
    """Certificates of loop nests without the time they took."""
    return {name: {key: value for key, value in sheet.items() if key != "seconds"} for name, sheet in sheets.items()}


def _ends(figure: float) -> list[float]:
    return [float(figure), float(getattr(figure, "low", figure)), float(getattr(figure, "high", figure))]


def to_text(answer: Plain) -> str:
    """As JSON, without spaces. (A bound that is not known is no number of JSON: it is text.)"""
    return json.dumps(_sayable(answer), separators=(",", ":"), allow_nan=False, default=float)


def _sayable(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: value if key == "ledger" else _sayable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_sayable(value) for value in data]
    return repr(data) if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))) else data


def result_from(answer: Plain, machine: Architecture) -> Result:
    """The result that an answer says. machine: as the point's inputs give it."""
    rows = (Charge(**dict(zip(COLUMNS, row, strict=True))) for row in answer["ledger"])
    carbon = answer["carbon_g"]
    return Result(
        **{name: answer[name] for name in _PLAIN},
        carbon_g=None if carbon is None else Quantity.make(carbon[0], carbon[1], carbon[2], None, f"{carbon[0]:g} g"),
        mapping=MappingSpec.model_validate({**answer["mapping"], "note": answer["mapping_note"]}),
        certificate=_certificate(answer["certificate"]),
        ledger=Ledger(tuple(rows)),
        memory=answer["memory"],
        machine=machine,
        repeated=tuple(
            Repetition(**{**one, "axes": tuple(one["axes"]), "operations": tuple(one["operations"])}) for one in answer["repeated"]
        ),
        warnings=tuple(answer["warnings"]),
        pipelined=FullPipeline(**answer["pipelined"]) if answer.get("pipelined") else None,
    )


def _certificate(said: Plain) -> Certificate:
    figures: dict[str, Any] = {one.name: _number(said[one.name]) for one in fields(Certificate)}
    return Certificate(**figures)


def _number(value: Any) -> Any:
    """A number that JSON has not, from its text."""
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value
