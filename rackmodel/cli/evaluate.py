"""`rackmodel evaluate ARCH WORKLOAD MAPPING`: price one mapping file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackmodel.cli.answer_first import answer_first
from rackmodel.cli.beside import beside_words
from rackmodel.cli.emitted import carbon_lines, result_data
from rackmodel.cli.options import (
    ArchitectureArg,
    CheckpointOption,
    FailuresOption,
    FlagsOption,
    JsonOption,
    OutOption,
    ProfileOption,
    RestartOption,
    SetOption,
    StepsOption,
    StorageOption,
    TokensOption,
    TraceOption,
    VerboseOption,
    WorkloadArg,
    folder,
)
from rackmodel.cli.printing import print_json
from rackmodel.cli.written import write_results


def evaluate(
    architecture: ArchitectureArg,
    workload: WorkloadArg,
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="A mapping file, as `search -o` writes it.")],
    sets: SetOption = None,
    profile: ProfileOption = None,
    flags: FlagsOption = None,
    tokens: TokensOption = None,
    steps: StepsOption = None,
    checkpoint: CheckpointOption = None,
    storage: StorageOption = None,
    failures: FailuresOption = None,
    restart: RestartOption = None,
    trace: TraceOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
    output: OutOption = None,
) -> None:
    """Price one mapping: latency, energy, carbon, memory and every charge."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.finite import check_finite

    run: dict[str, Any] = {"tokens": tokens, "steps": steps, "checkpoint": checkpoint, "storage": storage}
    words = beside_words(flags, trace, **run, failures=failures, restart=restart)
    where = folder(output)
    result = api.evaluate(architecture, workload, mapping, sets=sets or (), profile=profile)
    beside = words.of(result, profile, lambda: read_inputs(architecture, workload, mapping=mapping, sets=sets or ()))
    check_finite([result])
    notes = carbon_lines([result])
    with answer_first(as_json=as_json) as write:
        if where is not None:
            asked = {"architecture": architecture, "workload": workload, "mapping": mapping, "sets": list(sets or ()), "profile": profile}
            write(lambda: write_results([result], where, asked=[asked | {"options": words.said}], beside=beside.saved()))
            if beside.launch:
                write(lambda: beside.write_launch(where))
        if beside.trace:
            write(beside.trace)
        if as_json:
            print_json({"result": result_data(result)} | beside.to_dict())
            return
        from rackmodel.report.printing import print_result

        print_result(result, notes=notes, whole=verbose)
        beside.show()
