"""What can be told of a study before any point is solved: names that mean nothing, columns of charts that no table has."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from rackmodel.cost.ledger import FIGURES, KEYS
from rackmodel.errors import InputError, together
from rackmodel.inputs import library_path
from rackmodel.inputs.comparison import saying
from rackmodel.inputs.library import exists
from rackmodel.studies.metrics import METRICS, check_components, metric
from rackmodel.studies.plan import Ask, shown
from rackmodel.studies.study import ChartSpec, StudySpec

POINT_COLUMNS = ("run", "architecture", "workload", "mapper", "profile")


def check_names(asks: Sequence[Ask], study: StudySpec | None = None) -> None:
    """Raise InputError, with all of them, for inputs that are no name of the library and no file. study: whose file says them."""
    problems = []
    for kind in POINT_COLUMNS[1:]:
        for name, file in {getattr(ask, kind): ask.file(kind) for ask in asks if getattr(ask, kind) is not None}.items():
            if "\n" not in name:
                try:
                    library_path(kind, file)
                except InputError as problem:
                    elsewhere = (
                        ", and this path starts from the study's folder, not from here" if file != name and exists(Path(name)) else ""
                    )
                    said = saying(problem, elsewhere)
                    if study is not None and problem.where is not None:  # a path of the study's file, which has the place
                        said = InputError(f"'{problem.where}': {said.message}", known=said.known, given=said.given)
                    problems.append(said.at(said.where, _path(kind, name, study)))
    if problems:
        raise together(problems)


def _path(kind: str, name: str, study: StudySpec | None) -> str:
    """Where a study's file says an input; without one the input's kind."""
    for number, run in enumerate(study.runs if study is not None else ()):
        said = getattr(run, kind)
        if name == said:
            return f"runs.{number}.{kind}"
        if isinstance(said, list) and name in said:
            return f"runs.{number}.{kind}.{said.index(name)}"
    return kind


def check_columns(names: Sequence[str]) -> None:
    """Raise InputError for a column of the points that is no metric."""
    for number, name in enumerate(names):
        try:
            metric(name)
        except InputError as problem:
            raise InputError(problem.message, path=f"columns.{number}", known=problem.known, given=problem.given) from None


def check_chart(chart: ChartSpec, settings: Iterable[str]) -> set[str]:
    """The columns of a point; settings: that some point has. Raises InputError for a column of the chart that is none."""
    if chart.finding:
        return set()  # what its figures are called is known once they are there
    plain = {*POINT_COLUMNS, *settings}
    known = list(dict.fromkeys([*FIGURES, *sorted(plain), *KEYS, *METRICS]))
    for name in (*chart.where, chart.x, *(() if chart.y in FIGURES else (chart.y,))):
        if name not in plain and name not in KEYS:
            _check_metric(name, known)
    said = chart.where.get("component", [])
    check_components(map(str, said if isinstance(said, list) else [said]), "charts")
    for name in chart.series:
        if name not in plain and name not in KEYS:
            raise InputError(f"no column '{name}'", path="charts", known=[*sorted(plain), *KEYS], given=name)
    if chart.y not in FIGURES:
        for name in (*chart.where, *chart.series):
            if name in KEYS:
                raise InputError(f"'{chart.y}' is of a whole point: '{name}' chooses rows of the ledger", path="charts")
    return plain


def check_chosen(chart: ChartSpec, asks: Sequence[Ask], changed: Container[str]) -> None:
    """Raise InputError for a run, an input or a setting's value that no point has: the chart would lack what it is of. changed: settings
    that a command gives other values."""
    if chart.finding:
        return
    here = [ask for ask in asks if ask.run == chart.run]
    if not here:
        raise InputError(f"no run called '{chart.run}'", path="charts", known=sorted({ask.run for ask in asks}), given=chart.run)
    settings = {name for ask in here for name in ask.settings}
    for name, said in chart.where.items():
        if name in changed or name not in {*POINT_COLUMNS[1:-1], *settings}:
            continue
        there = list(dict.fromkeys(ask.settings.get(name) if name in settings else shown(getattr(ask, name)) for ask in here))
        for value in said if isinstance(said, list) else [said]:
            if value not in there:
                raise InputError(f"where: no point has {name} {value}", path="charts", known=map(str, there), given=str(value))


def _check_metric(name: str, known: list[str]) -> None:
    try:
        metric(name)
    except InputError as problem:
        raise InputError(f"no column '{name}'" if problem.given else problem.message, path="charts", known=known, given=name)
