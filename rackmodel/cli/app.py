"""The typer application: every command, registered from its own file."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli import (
    calibrate,
    carbon,
    check,
    compare,
    cost,
    diff,
    evaluate,
    explore,
    import_,
    new,
    report,
    schema,
    search,
    serve,
    serve_trace,
    show,
    sweep,
    time,
    validate,
    why,
)
from rackmodel.cli.ranges import NumberWords

app = typer.Typer(
    name="rackmodel",
    cls=NumberWords,
    help="A mapping, cost and carbon model for rack-scale AI systems: architecture tree + einsum workload → best mapping, with proof.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show_it: bool) -> None:
    if show_it:
        from rackmodel import __version__

        typer.echo(f"rackmodel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


app.command("compare")(compare.compare)
app.command("search")(search.search)
app.command("evaluate")(evaluate.evaluate)
app.command("why")(why.why)
app.command("diff")(diff.diff)
app.command("report")(report.report)
app.command("explore")(explore.explore)
app.command("sweep")(sweep.sweep)
app.command("serve")(serve.serve)
app.command("serve-trace")(serve_trace.serve_trace)
app.command("carbon")(carbon.carbon)
app.command("cost")(cost.cost)
app.command("check")(check.check)
app.command("show")(show.show)
app.command("new")(new.new)
app.command("schema")(schema.schema)
app.command("import")(import_.import_)
app.command("calibrate")(calibrate.calibrate)
app.command("validate")(validate.validate)
app.command("time")(time.time)
