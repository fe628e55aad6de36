"""The typer application: every command, registered from its own file."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

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
from rackmodel.cli.once import EveryWord
from rackmodel.cli.ranges import NumberWords

app = typer.Typer(
    name="rackmodel",
    cls=NumberWords,
    help="Find the best mapping of an AI model on a rack-scale machine, with proof: its latency, energy, memory, carbon and cost.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show_it: bool) -> None:
    if show_it:
        from rackmodel.version import __version__

        typer.echo(f"rackmodel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


app.command("compare", cls=EveryWord, short_help="Search several mappers and machines, side by side.")(compare.compare)
app.command("search", cls=EveryWord, short_help="Find the best mapping of a workload, with proof.")(search.search)
app.command("evaluate", cls=EveryWord, short_help="Price one given mapping file.")(evaluate.evaluate)
app.command("why", cls=EveryWord, short_help="Explain why a mapping is the best, and what would change it.")(why.why)
app.command("diff", cls=EveryWord, short_help="Compare two results charge by charge.")(diff.diff)
app.command("report", cls=EveryWord, short_help="Make a page of saved results, and figures for a paper.")(report.report)
app.command("explore", cls=EveryWord, short_help="Serve a local page with a slider for every number.")(explore.explore)
app.command("sweep", cls=EveryWord, short_help="Run a study or a sweep over lists of values; resumable.")(sweep.sweep)
app.command("serve", cls=EveryWord, short_help="Find the best deployment to serve a language model.")(serve.serve)
app.command("serve-trace", cls=EveryWord, short_help="Simulate requests one by one through one replica.")(serve_trace.serve_trace)
app.command("carbon", cls=EveryWord, short_help="Carbon: embodied of a machine, total of a step or run.")(carbon.carbon)
app.command("cost", cls=EveryWord, short_help="Total cost of ownership of a machine.")(cost.cost)
app.command("check", cls=EveryWord, short_help="Check input files: keys, units, sizes, names.")(check.check)
app.command("show", cls=EveryWord, short_help="Show what an input means; without a name list the library.")(show.show)
app.command("new", cls=EveryWord, short_help="Write a commented input file to start from.")(new.new)
app.command("schema", cls=EveryWord, short_help="Print JSON Schemas of input files, or all keys.")(schema.schema)
app.command("import", cls=EveryWord, short_help="Convert a Timeloop machine or a model's config.json.")(import_.import_)
app.command("calibrate", cls=EveryWord, short_help="Fit a part's kernel rates to measured kernels.")(calibrate.calibrate)
app.command("validate", cls=EveryWord, short_help="Compare predictions with measurements.")(validate.validate)
app.command("time", cls=EveryWord, short_help="Time of one kernel or collective.")(time.time)


@cache
def command() -> Any:
    """All commands, as a program runs them."""
    return get_command(app)
