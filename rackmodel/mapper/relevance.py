"""What a mapper asks for counts, or is refused: keys that could change nothing for this workload, each with its place.

Only what a file (or what it extends, or --set) says is looked at; defaults ask for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rackmodel.errors import InputError, together
from rackmodel.mapper.folded import fold_problems
from rackmodel.mapper.rules import wrong_names
from rackmodel.model.mapper_check import check_split
from rackmodel.model.mapping import REGIONS, LayoutSpec, MapperSpec, homes_of, is_called
from rackmodel.model.schedules import CHUNKED, FOLDED, FOLDS
from rackmodel.model.workload import Workload

Check = Callable[[MapperSpec, Workload], Iterable[InputError]]


def check_mapper(mapper: MapperSpec, workload: Workload) -> None:
    """Raise one InputError for all that the mapper says of what this workload does not have or cannot use."""
    problems = list(wrong_names(mapper, workload))
    try:
        check_split(mapper, workload)
    except InputError as problem:
        problems.append(problem)
    problems += [problem for key, check in CHECKS.items() if key in mapper.model_fields_set for problem in check(mapper, workload)]
    if problems:
        raise together(problems)


def _listed(said: object) -> list[object]:
    return list(said) if isinstance(said, list) else [said]


def _cut(mapper: MapperSpec) -> bool:
    return any(axis.stages is not None for axis in mapper.axes.values())


def _schedule(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    if not _cut(mapper):
        yield InputError("a schedule orders the stages of a pipeline: no axis says `stages`", path="schedule")
    below = any(axis.stages not in (None, "layers") for axis in mapper.axes.values())
    yield from fold_problems(workload, _listed(mapper.schedule), below=below, path="schedule")


def _interleave(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    listed = _listed(mapper.schedule)
    always = 1 if not FOLDED.isdisjoint(listed) and mapper.interleave == FOLDS else mapper.interleave  # (what those hold is no choice)
    if always != 1 and CHUNKED.isdisjoint(listed):
        yield InputError(f"chunks are of schedules that `schedule` does not list: {', '.join(sorted(CHUNKED))}", path="interleave")


def _free_cut(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    if mapper.cut != "even" and not mapper.pipelined:
        yield InputError("a cut divides layers among stages: no axis says `stages: layers`", path="cut")


def _recompute(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    if not workload.backward and mapper.recompute != "none":
        yield _no_backward(workload, "recompute")
    elif mapper.recompute == "per layer" and mapper.cut == "even" and mapper.pipelined:
        yield InputError("layers of unlike policies make stages of unlike layers: say cut: free", path="recompute")


def _no_backward(workload: Workload, key: str) -> InputError:
    return InputError(f"{workload.name} has no backward pass: nothing is kept for it", path=key)


def _rerun(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    if mapper.rerun != "region" and mapper.recompute != "per layer" and not REGIONS & {*_listed(mapper.recompute)}:
        yield InputError("it says how attention, experts or whole layers run again: `recompute` lists none of these", path="rerun")


def _host(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    parked = any(home.at is not None for said in mapper.homes.values() for home in homes_of(said))
    if mapper.host is not None and not any(mapper.offload) and not parked:
        yield InputError("nothing is offloaded to it: `offload` is empty", path="host")


def _offload(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    for number, what in enumerate(mapper.offload):
        for name in what:
            if (name == "activations" and not workload.backward) or (name == "optimizer" and "optimizer" not in workload.phases):
                yield InputError(f"{workload.name} holds no {name} to offload", path=f"offload.{number}")


def _homes(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    for name, said in mapper.homes.items():
        if not workload.weights:
            yield InputError(f"{workload.name} has no weights", path=f"homes.{name}")
        elif not workload.backward and any(home.axes and home.param == "replicate" for home in homes_of(said)):
            fact = f"{workload.name} has no backward pass: a gradient or a state that is sharded changes nothing"
            yield InputError(fact, path=f"homes.{name}")


def _solver(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    if mapper.solver in ("auto", "enumerate"):
        return
    layouts: tuple[MapperSpec | LayoutSpec, ...] = (mapper, *mapper.layouts.values())
    said: list[object] = [split for table in layouts for split in table.split.values()]
    said += [choice for table in layouts for choices in table.choose.values() for choice in choices.values()]
    if "free" not in said and mapper.save != "free" and "free" not in mapper.homes.values():
        yield InputError(f"'{mapper.solver}' finds free layouts, and this mapper leaves none free", path="solver")


def _boundary(mapper: MapperSpec | LayoutSpec, workload: Workload, prefix: str = "") -> Iterator[InputError]:
    ends = list(workload.ends)
    for tensor in mapper.boundary:
        if tensor not in ends:
            instead = f"name one of those here or leave it out (--set {prefix}boundary={{}} drops them all)"
            fact = f"'{tensor}' is no input or output of {workload.name}: {instead}"
            yield InputError(fact, path=f"{prefix}boundary.{tensor}", known=ends, given=tensor)


def _save(mapper: MapperSpec | LayoutSpec, workload: Workload, prefix: str = "") -> Iterator[InputError]:
    if mapper.save not in (None, "shard") and not workload.backward:
        yield _no_backward(workload, f"{prefix}save")
        return
    for tensor in mapper.save if isinstance(mapper.save, dict) else ():
        if tensor != "*" and tensor not in workload.tensors:
            yield InputError(f"no tensor '{tensor}'", path=f"{prefix}save.{tensor}", known=["*", *workload.tensors], given=tensor)


def _layouts(mapper: MapperSpec, workload: Workload) -> Iterator[InputError]:
    for name, layout in mapper.layouts.items():
        prefix = f"layouts.{name}."
        for operation in layout.choose:
            if not is_called(operation, workload.ops):
                fact = f"workload {workload.name} has no operation '{operation}'"
                yield InputError(fact, path=f"{prefix}choose.{operation}", known=list(workload.ops), given=operation)
        yield from _boundary(layout, workload, prefix)
        yield from _save(layout, workload, prefix)


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
"""Key of a mapper → what is wrong with it."""
