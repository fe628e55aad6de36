"""`rackmodel evaluate ARCH WORKLOAD MAPPING`: price one mapping file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackmodel.cli.answer_first import answer_first
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
    beside,
    folder,
    framework,
    make_launch,
    make_run,
    print_json,
    print_launch,
    print_run,
    run_words,
    said,
    write_launch,
    write_results,
    write_trace,
)


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

    long: dict[str, Any] = {"tokens": tokens, "steps": steps, "checkpoint": checkpoint, "storage": storage}
    long |= {"failures": failures, "restart": restart}
    words, name = run_words(**long), framework(flags)
    where = folder(output)
    result = api.evaluate(architecture, workload, mapping, sets=sets or (), profile=profile)
    inputs = read_inputs(architecture, workload, mapping=mapping, sets=sets or ()) if words or name or trace else None
    run = make_run(words, result, inputs) if words and inputs else None
    launch = make_launch(name, result, inputs) if name and inputs else None
    check_finite([result])
    notes = carbon_lines([result])
    with answer_first(as_json=as_json) as write:
        if where is not None:
            asked = {"architecture": architecture, "workload": workload, "mapping": mapping, "sets": list(sets or ()), "profile": profile}
            own = [asked | {"options": said(flags=flags, **long)}]
            write(lambda: write_results([result], where, asked=own, beside=beside(run, launch)))
            if launch:
                write(lambda: write_launch(launch, where))
        if trace is not None and inputs is not None:
            write(lambda: write_trace(result, inputs, profile, trace))
        if as_json:
            data: dict[str, Any] = {"result": result_data(result)}
            data |= {"run": run.to_dict()} if run else {}
            print_json(data | ({"flags": launch.to_dict()} if launch else {}))
            return
        from rackmodel.report.printing import print_result

        print_result(result, notes=notes, whole=verbose)
        if run:
            print_run(run)
        if launch:
            print_launch(launch)
