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
    help="A mapping, cost and carbon model for rack-scale AI systems: architecture tree + einsum workload → best mapping, with proof.",
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


app.command("compare", cls=EveryWord, short_help="One search a mapper and machine, side by side.")(compare.compare)
app.command("search", cls=EveryWord, short_help="The best mapping of one mapper, proven.")(search.search)
app.command("evaluate", cls=EveryWord, short_help="Price one mapping file.")(evaluate.evaluate)
app.command("why", cls=EveryWord, short_help="Why the best mapping is not another, and what moves it.")(why.why)
app.command("diff", cls=EveryWord, short_help="Which charges make the difference between two results.")(diff.diff)
app.command("report", cls=EveryWord, short_help="Saved results on one page, and figures for a paper.")(report.report)
app.command("explore", cls=EveryWord, short_help="A page of this computer: move any number.")(explore.explore)
app.command("sweep", cls=EveryWord, short_help="Many points in one file: a study, or lists of values.")(sweep.sweep)
app.command("serve", cls=EveryWord, short_help="The best deployment that serves a model, and the front.")(serve.serve)
app.command("serve-trace", cls=EveryWord, short_help="Requests one by one through one replica.")(serve_trace.serve_trace)
app.command("carbon", cls=EveryWord, short_help="Embodied carbon of a machine, carbon of a step or a run.")(carbon.carbon)
app.command("cost", cls=EveryWord, short_help="What a machine costs to have, run and update.")(cost.cost)
app.command("check", cls=EveryWord, short_help="Check input files: keys, units, sizes, names.")(check.check)
app.command("show", cls=EveryWord, short_help="What an input means; alone: list the library.")(show.show)
app.command("new", cls=EveryWord, short_help="A commented start of an own file.")(new.new)
app.command("schema", cls=EveryWord, short_help="JSON Schemas of input files, for editors; every key.")(schema.schema)
app.command("import", cls=EveryWord, short_help="Read another tool's machine, or a model's config.json.")(import_.import_)
app.command("calibrate", cls=EveryWord, short_help="Fit a part's kernels to measured ones.")(calibrate.calibrate)
app.command("validate", cls=EveryWord, short_help="Predictions against published measurements.")(validate.validate)
app.command("time", cls=EveryWord, short_help="Seconds of one product, kernel or collective.")(time.time)


@cache
def command() -> Any:
    """All commands, as a program runs them."""
    return get_command(app)
