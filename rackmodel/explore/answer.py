"""What the page is answered: the best mapping of a question with all that charts.js draws, or why there is none; and the files that
reproduce it. Runs in the worker's process."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rackmodel import api
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError, OutputError, RackmodelError
from rackmodel.explore.knobs import knobs_of
from rackmodel.explore.question import PageQuestion
from rackmodel.inputs import library_names, library_path, read_inputs
from rackmodel.inputs.shared import SharedInputs, SharedPoint
from rackmodel.report.finite import check_finite, finite
from rackmodel.report.mapping_file import mapping_yaml
from rackmodel.report.result_page import answer_card, chart_data, command_of, sketch_figures
from rackmodel.report.saved import saved
from rackmodel.report.sketch_data import graph_of
from rackmodel.report.timeline import timeline_of
from rackmodel.watch import Watch

LONGEST_S = 30.0
"""A search that takes longer says the best that it has found, and how far that may be from the least."""
Answered = tuple[int, dict[str, Any]]
"""(status of HTTP, plain data)."""


def answer(question: PageQuestion) -> Answered:
    """The answer as the page has it: knobs, command, seconds, and card and data, or a problem."""
    begin = time.perf_counter()
    data: dict[str, Any] = {"knobs": knobs_of(question), "command": command_of(question.asked)}
    status, found = _refusing(lambda: _found(question))
    return status, data | found | {"seconds": time.perf_counter() - begin}


def export(question: PageQuestion) -> Answered:
    """{files: name → text, commands}: the inputs as they were searched, the mapping, and what reproduces the figures."""
    return _refusing(lambda: _files(question))


def _refusing(make: Any) -> Answered:
    try:
        return 200, make()
    except InfeasibleError as problem:
        return 200, {"problem": {"kind": "infeasible", "text": str(problem), "problems": []}}
    except InputError as problem:
        return 422, {"problem": {"kind": "input", "text": str(problem), "problems": [one.to_dict() for one in problem.problems]}}
    except OutputError as problem:
        return 500, {"problem": {"kind": "computer", "text": str(problem), "problems": []}}
    except (RackmodelError, OverflowError, ZeroDivisionError, FloatingPointError) as problem:
        text = f"no answer: a number of the input is too large or too small to be meant ({problem})"
        return 422, {"problem": {"kind": "input", "text": text, "problems": []}}


_INPUTS, _PRICED = SharedInputs(), Shared()
"""What the questions of this process share: inputs that say the same, and what was derived and priced of them. Files are read each time."""


def _point(question: PageQuestion) -> SharedPoint:
    _INPUTS.forget_files()
    of = (question.architecture, question.workload, question.mapper)
    return _INPUTS.read(*of, profile=question.profile or None, sets=question.sets)


def _search(question: PageQuestion, point: SharedPoint) -> api.Answer:
    inputs = point.inputs()
    assert inputs.mapper is not None
    how: dict[str, Any] = {"minimize": question.minimize or None, "profile": point.profile(), "shared": _PRICED, "watch": Watch(LONGEST_S)}
    try:
        found = api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, **how)
    except InputError as problem:
        raise inputs.place(problem)
    check_finite([found.result])
    return found


def _found(question: PageQuestion) -> dict[str, Any]:
    point = _point(question)
    answer = _search(question, point)
    one = saved(answer.result, question.asked, _sketched(answer, point))
    name = f"{one.data['mapper']} on {one.data['architecture']} × {one.data.get('accelerators', '?')}"
    found: dict[str, Any] = finite({"card": answer_card(one, name), "data": chart_data([one], [name])[0]})
    return found | {"sketches": sketch_figures(one, name)}


def _sketched(answer: api.Answer, point: SharedPoint) -> dict[str, Any]:
    """What sketches are drawn from beside the ledger: when the stages run, and the operations."""
    assert answer.step is not None
    return {"timeline": timeline_of(answer.step), "graph": graph_of(point.inputs().workload, answer.result.mapping)}


def _files(question: PageQuestion) -> dict[str, Any]:
    result = _search(question, _point(question)).result
    inputs = read_inputs(question.architecture, question.workload, mapper=question.mapper, sets=question.sets)
    assert inputs.third is not None
    trees = {"machine": inputs.raws[0], "workload": inputs.raws[1], "mapper": inputs.third}
    files = {f"{name}.yaml": _dumped(_named(raw.plain())) for name, raw in trees.items()}
    files["mapping.yaml"] = mapping_yaml(result)
    more = [part for text in inputs.of_profile for part in ("--set", text)]
    more += [part for key in ("minimize", "profile") if getattr(question, key) for part in (f"--{key}", getattr(question, key))]
    own = ["rackmodel", "search", "machine.yaml", "workload.yaml", "mapper.yaml", *more]
    return {"files": files, "commands": [command_of(question.asked), shlex.join(own)]}


def _dumped(data: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=120, default_flow_style=None))


def _named(data: Any) -> Any:
    """Plain data whose paths into the library are names again, so that the file is good on any computer."""
    if isinstance(data, dict):
        return {key: _named(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_named(value) for value in data]
    return _name_of(data) if isinstance(data, str) and data.endswith(".yaml") else data


def _name_of(path: str) -> str:
    stem = Path(path).stem
    for kind in ("collectives", "carbon"):
        if stem in library_names()[kind] and library_path(kind, stem) == Path(path):
            return stem
    return path
