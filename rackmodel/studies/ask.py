"""A sweep as Python and the command line ask for it: a study, or lists of inputs; where it is kept; who solves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rackmodel.errors import InputError
from rackmodel.inputs import read_study
from rackmodel.inputs.plain_yaml import dumped
from rackmodel.report.files import make_folder
from rackmodel.store.study_file import StudyFile
from rackmodel.studies.run import Points, Progress, Sweep
from rackmodel.studies.study import RangeSpec, StudySpec
from rackmodel.studies.workers import Alone, Cluster, Processes, Workers

FILE = "study.sqlite"
Said = str | Path | Mapping[str, Any]
Inputs = Said | Sequence[Said]


def sweep_points(
    inputs: tuple[Inputs, Inputs | None, Inputs | None],
    asked: Mapping[str, Any],
    output: str | Path | None,
    workers: int | str,
    progress: Progress,
) -> Points:
    """The points of (study, None, None), or of (architectures, workloads, mappers). asked: set, columns, minimize, profile."""
    sets = {name: _setting(name, value) for name, value in asked["set"].items()}
    study = study_of(inputs, list(asked["columns"]), asked["minimize"], asked["profile"])
    path = None if output is None else make_folder(Path(output)) / FILE
    file = StudyFile(path)
    try:
        with solvers(workers) as who:
            return Sweep(study, file, sets).run(who, progress)
    finally:
        file.unlock()


def study_of(
    inputs: tuple[Inputs, Inputs | None, Inputs | None], columns: Sequence[str], minimize: str | None, profile: str | None
) -> StudySpec:
    """The study that inputs mean. Raises InputError."""
    first, workload, mapper = inputs
    if workload is None and mapper is None:
        for option, said in (("minimize", minimize), ("profile", profile)):
            if said is not None:
                raise InputError("a study says this of each of its runs", path=option)
        if not isinstance(first, str | Path | Mapping):
            raise InputError("want one study, or architectures, workloads and mappers", path="study")
        found: StudySpec = read_study(_text(first))
        return found.model_copy(update={"columns": [*found.columns, *columns]})
    if workload is None or mapper is None:
        raise InputError("want a study, or all of architecture, workload and mapper", path="study")
    named = {name: _texts(said) for name, said in (("architecture", first), ("workload", workload), ("mapper", mapper))}
    run = {**named, "minimize": minimize, "profile": profile}
    return StudySpec.model_validate({"study": "sweep", "runs": [run], "columns": list(columns)})


@contextmanager
def solvers(said: int | str | None) -> Iterator[Workers]:
    """So many processes, or the workers of the scheduler at an address. Raises InputError, OutputError."""
    if isinstance(said, str):
        cluster = Cluster(said)
        try:
            yield cluster
        finally:
            cluster.close()
        return
    if said is not None and said < 1:
        raise InputError(f"{said} workers: want at least 1", path="workers")
    yield Alone() if said in (None, 1) else Processes(said or 1)


def _texts(said: Inputs) -> list[str]:
    many: Iterable[Said] = [said] if isinstance(said, str | Path | Mapping) else said
    return [str(_text(one)) for one in many]


def _text(said: Said) -> str | Path:
    return dumped(dict(said)) if isinstance(said, Mapping) else said


def _setting(name: str, value: Any) -> Any:
    """A value, a list, or a range. Raises InputError."""
    plain: Callable[[Any], Any] = lambda one: one.item() if hasattr(one, "item") else one  # noqa: E731
    if isinstance(value, Mapping):
        try:
            return RangeSpec.model_validate(dict(value))
        except ValueError as problem:
            raise InputError(str(problem).splitlines()[-2].strip() if "\n" in str(problem) else str(problem), path=f"set.{name}")
    if hasattr(value, "tolist") and not hasattr(value, "item"):
        return list(value.tolist())
    if isinstance(value, str | int | float) or (hasattr(value, "item") and getattr(value, "ndim", 0) == 0):
        return plain(value)
    return [plain(one) for one in value]
