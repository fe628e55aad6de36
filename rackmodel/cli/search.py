"""`rackmodel search ARCH WORKLOAD [MAPPER]`: the best mapping, proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli import options
from rackmodel.cli.answer_first import answer_first
from rackmodel.cli.beside import Beside, beside_words
from rackmodel.cli.emitted import carbon_lines, front_of, result_data
from rackmodel.cli.fronts import print_front, write_front
from rackmodel.cli.printing import print_json
from rackmodel.cli.progress import watching
from rackmodel.cli.written import write_mapping, write_results
from rackmodel.report.files import write_whole

if TYPE_CHECKING:
    from rackmodel.api import Answer
    from rackmodel.model.result import Result


def search(
    architecture: options.ArchitectureArg,
    workload: options.WorkloadArg,
    mapper: Annotated[str, typer.Argument(metavar="MAPPER", help="Mapper: a name of the library or a YAML file.")] = "auto",
    sets: options.SetOption = None,
    minimize: options.MinimizeOption = None,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Return the best K mappings that differ, best first.")] = 1,
    profile: options.ProfileOption = None,
    limit: options.LimitOption = None,
    pareto: options.ParetoOption = None,
    time: options.TimeOption = None,
    flags: options.FlagsOption = None,
    tokens: options.TokensOption = None,
    steps: options.StepsOption = None,
    checkpoint: options.CheckpointOption = None,
    storage: options.StorageOption = None,
    failures: options.FailuresOption = None,
    restart: options.RestartOption = None,
    trace: options.TraceOption = None,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
    output: options.OutOption = None,
) -> None:
    """Search the mapspace of one mapper; -o writes a mapping file that `evaluate` prices to the same figures."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.finite import check_finite

    asked: dict[str, Any] = {
        "minimize": options.objective(minimize),
        "profile": profile,
        "top": top,
        "limits": options.limits(limit),
        "front": options.figures(pareto),
    }
    run: dict[str, Any] = {"tokens": tokens, "steps": steps, "checkpoint": checkpoint, "storage": storage}
    words = beside_words(flags, trace, **run, failures=failures, restart=restart)
    where = options.folder(output)

    def ranked(count: int) -> Sequence[Result]:
        """So many of the best mappings."""
        with watching(options.time_limit(time)) as watch:
            return api.search(architecture, workload, mapper, sets=sets or (), watch=watch, **asked | {"top": count, "front": ()}).top

    with watching(options.time_limit(time)) as watch:
        answer = api.search(architecture, workload, mapper, sets=sets or (), watch=watch, **asked)
    beside = words.of(answer.result, profile, lambda: read_inputs(architecture, workload, mapper=mapper, sets=sets or ()), ranked)
    check_finite([answer.result, *answer.top, *answer.front])
    front = front_of(answer) if answer.front else None
    notes = carbon_lines([answer.result])
    with answer_first(as_json=as_json) as write:
        if where is not None:
            own = _inputs(architecture, workload, mapper, sets, asked) | {"options": [*options.said(pareto=pareto), *words.said]}
            write(lambda: _written(answer, front, beside, where, own))
        if beside.trace:
            write(beside.trace)
        if as_json:
            if beside.refused is not None:
                raise beside.refused
            print_json(_data(answer, front, fronted=pareto is not None) | beside.to_dict())
            return
        _print(answer, notes, front, beside, whole=verbose)
    if beside.refused is not None:
        raise beside.refused


def _print(answer: Answer, notes: Sequence[str], front: Mapping[str, Any] | None, beside: Beside, *, whole: bool) -> None:
    from rackmodel.report.printing import print_result

    print_result(answer.result, answer.top, notes, whole=whole)
    if front:
        print_front(front, whole=whole)
    beside.show()


def _written(answer: Answer, front: Mapping[str, Any] | None, beside: Beside, where: Path, own: Mapping[str, Any]) -> list[Path]:
    """Every file of an answer. front: as report.beside has it · own: what was asked."""
    asked = {key: value for key, value in own.items() if key != "front"}
    return [
        *write_results([answer.result], where, asked=[asked], beside=beside.saved(front)),
        *(write_front(answer.front, front, where) if front else []),
        *beside.write_launch(where),
        *(write_top(answer, where) if len(answer.top) > 1 else []),
    ]


def write_top(answer: Answer, where: Path) -> list[Path]:
    """top.csv, and of each of its rows but the first, which is mapping.yaml, the mapping."""
    from rackmodel.report.runners_up import top_csv, top_rows

    rows = top_rows(answer.top)
    others = [write_mapping(one, where / f"top{number}.mapping.yaml") for number, (_, one) in enumerate(rows[1:], start=2)]
    return [write_whole(where / "top.csv", top_csv(rows)), *others]


def _data(answer: Answer, front: Mapping[str, Any] | None, *, fronted: bool) -> dict[str, Any]:
    """The answer as JSON has it. fronted: whether a front was asked for, whose mappings have all figures that it is of."""
    from rackmodel.report.beside import asked_columns

    data: dict[str, Any] = {"result": result_data(answer.result), "top": [result_data(result) for result in answer.top]}
    if fronted:
        told = [{key: point[key] for key in asked_columns(front)} for point in front["points"]] if front else []
        points = [result_data(result) | own for result, own in zip(answer.front, told, strict=True)]
        data |= {"front": points, "front_status": answer.front_status}
    return data


def _inputs(architecture: str, workload: str, mapper: str, sets: list[str] | None, asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked, as `why` and `report` ask it again."""
    own = {key: asked[key] for key in ("minimize", "profile", "limits", "front")}
    return {"architecture": architecture, "workload": workload, "mapper": mapper, "sets": list(sets or ()), **own}
