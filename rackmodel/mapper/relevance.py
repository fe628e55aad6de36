"""What a mapper asks for counts, or is refused: keys that could change nothing for this workload, each with its place.

Only what a file (or what it extends, or --set) says is looked at; defaults ask for nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from rackmodel.errors import InputError
from rackmodel.model.mapping import LayoutSpec, MapperSpec, homes_of
from rackmodel.model.schedules import CHUNKED
from rackmodel.model.workload import Workload

Check = Callable[[MapperSpec, Workload], InputError | None]


def check_relevance(mapper: MapperSpec, workload: Workload) -> None:
    """Raise InputError for the first key of the mapper that this workload cannot use."""
    for key, check in CHECKS.items():
        if key in mapper.model_fields_set:
            problem = check(mapper, workload)
            if problem is not None:
                raise problem


def _listed(said: object) -> list[object]:
    return list(said) if isinstance(said, list) else [said]


def _cut(mapper: MapperSpec) -> bool:
    return any(axis.stages is not None for axis in mapper.axes.values())


def _schedule(mapper: MapperSpec, workload: Workload) -> InputError | None:
    if _cut(mapper):
        return None
    return InputError("a schedule orders the stages of a pipeline: no axis says `stages`", path="schedule")


def _interleave(mapper: MapperSpec, workload: Workload) -> InputError | None:
    if mapper.interleave == 1 or any(name in CHUNKED for name in _listed(mapper.schedule)):
        return None
    return InputError(f"chunks are of schedules that `schedule` does not list: {', '.join(sorted(CHUNKED))}", path="interleave")


def _free_cut(mapper: MapperSpec, workload: Workload) -> InputError | None:
    if mapper.cut == "even" or any(axis.stages == "layers" for axis in mapper.axes.values()):
        return None
    return InputError("a cut divides layers among stages: no axis says `stages: layers`", path="cut")


def _recompute(mapper: MapperSpec, workload: Workload) -> InputError | None:
    return None if workload.backward or mapper.recompute == "none" else _no_backward(workload, "recompute")


def _no_backward(workload: Workload, key: str) -> InputError:
    return InputError(f"{workload.name} has no backward pass: nothing is kept for it", path=key)


def _rerun(mapper: MapperSpec, workload: Workload) -> InputError | None:
    if mapper.rerun == "region" or mapper.recompute == "per layer" or "full" in _listed(mapper.recompute):
        return None
    return InputError("it says how full recomputation runs, which `recompute` does not list", path="rerun")


def _host(mapper: MapperSpec, workload: Workload) -> InputError | None:
    parked = any(home.at is not None for said in mapper.homes.values() for home in homes_of(said))
    if mapper.host is None or any(mapper.offload) or parked:
        return None
    return InputError("nothing is offloaded to it: `offload` is empty", path="host")


def _offload(mapper: MapperSpec, workload: Workload) -> InputError | None:
    for number, what in enumerate(mapper.offload):
        for name in what:
            missing = (name == "activations" and not workload.backward) or (name == "optimizer" and "optimizer" not in workload.phases)
            if missing:
                return InputError(f"{workload.name} holds no {name} to offload", path=f"offload.{number}")
    return None


def _homes(mapper: MapperSpec, workload: Workload) -> InputError | None:
    for name, said in mapper.homes.items():
        if not workload.weights:
            return InputError(f"{workload.name} has no weights", path=f"homes.{name}")
        for home in homes_of(said):
            if home.axes and home.param == "replicate" and not workload.backward:
                fact = f"{workload.name} has no backward pass: a gradient or a state that is sharded changes nothing"
                return InputError(fact, path=f"homes.{name}")
    return None


def _solver(mapper: MapperSpec, workload: Workload) -> InputError | None:
    if mapper.solver in ("auto", "enumerate"):
        return None
    layouts = (mapper, *mapper.layouts.values())
    said = [split for table in layouts for split in table.split.values()]  # type: ignore[attr-defined]
    said += [choice for table in layouts for choices in table.choose.values() for choice in choices.values()]  # type: ignore[attr-defined]
    if "free" in said or mapper.save == "free" or "free" in mapper.homes.values():
        return None
    return InputError(f"'{mapper.solver}' finds free layouts, and this mapper leaves none free", path="solver")


def _boundary(mapper: MapperSpec | LayoutSpec, workload: Workload) -> InputError | None:
    ends = dict.fromkeys(name for s in workload.sections for name in (*s.workload.inputs, *s.workload.outputs))
    for tensor in mapper.boundary:
        if tensor not in ends:
            fact = f"'{tensor}' is no input or output of {workload.name}"
            return InputError(fact, path=f"boundary.{tensor}", known=list(ends), given=tensor)
    return None


def _save(mapper: MapperSpec | LayoutSpec, workload: Workload) -> InputError | None:
    if mapper.save not in (None, "shard") and not workload.backward:
        return _no_backward(workload, "save")
    for tensor in mapper.save if isinstance(mapper.save, dict) else ():
        if tensor != "*" and tensor not in workload.tensors:
            return InputError(f"no tensor '{tensor}'", path=f"save.{tensor}", known=["*", *workload.tensors], given=tensor)
    return None


def _layouts(mapper: MapperSpec, workload: Workload) -> InputError | None:
    for name, layout in mapper.layouts.items():
        for operation in layout.choose:
            if operation not in workload.ops:
                fact = f"workload {workload.name} has no operation '{operation}'"
                return InputError(fact, path=f"layouts.{name}.choose.{operation}", known=list(workload.ops), given=operation)
        problem = _boundary(layout, workload) or _save(layout, workload)
        if problem is not None:
            path = f"layouts.{name}.{problem.path}"
            return InputError(problem.message, path=path, known=problem.known, given=problem.given)
    return None


CHECKS: dict[str, Check] = {
    "schedule": _schedule,
    "interleave": _interleave,
    "cut": _free_cut,
    "recompute": _recompute,
    "save": _save,
    "rerun": _rerun,
    "host": _host,
    "offload": _offload,
    "homes": _homes,
    "solver": _solver,
    "boundary": _boundary,
    "layouts": _layouts,
}
"""Key of a mapper → what refuses it."""
