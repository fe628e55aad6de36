"""`rackmodel evaluate ARCH WORKLOAD MAPPING`: price one mapping file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rackmodel.cli import options
from rackmodel.cli.answer_first import answer_first
from rackmodel.cli.beside import beside_words
from rackmodel.cli.emitted import carbon_lines, result_data
from rackmodel.cli.printing import print_json
from rackmodel.cli.written import write_results


def evaluate(
    architecture: options.ArchitectureArg,
    workload: options.WorkloadArg,
    mapping: Annotated[str, typer.Argument(metavar="MAPPING", help="A mapping file, as `search -o` writes it.")],
    sets: options.SetOption = None,
    profile: options.ProfileOption = None,
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
    """Price one mapping: latency, energy, carbon, memory and every charge."""
    from rackmodel import api
    from rackmodel.inputs import read_inputs
    from rackmodel.report.finite import check_finite

    run: dict[str, Any] = {"tokens": tokens, "steps": steps, "checkpoint": checkpoint, "storage": storage}
    words = beside_words(flags, trace, **run, failures=failures, restart=restart)
    where = options.folder(output)
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
