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


app.command("compare", cls=EveryWord)(compare.compare)
app.command("search", cls=EveryWord)(search.search)
app.command("evaluate", cls=EveryWord)(evaluate.evaluate)
app.command("why", cls=EveryWord)(why.why)
app.command("diff", cls=EveryWord)(diff.diff)
app.command("report", cls=EveryWord)(report.report)
app.command("explore", cls=EveryWord)(explore.explore)
app.command("sweep", cls=EveryWord)(sweep.sweep)
app.command("serve", cls=EveryWord)(serve.serve)
app.command("serve-trace", cls=EveryWord)(serve_trace.serve_trace)
app.command("carbon", cls=EveryWord)(carbon.carbon)
app.command("cost", cls=EveryWord)(cost.cost)
app.command("check", cls=EveryWord)(check.check)
app.command("show", cls=EveryWord)(show.show)
app.command("new", cls=EveryWord)(new.new)
app.command("schema", cls=EveryWord)(schema.schema)
app.command("import", cls=EveryWord)(import_.import_)
app.command("calibrate", cls=EveryWord)(calibrate.calibrate)
app.command("validate", cls=EveryWord)(validate.validate)
app.command("time", cls=EveryWord)(time.time)


@cache
def command() -> Any:
    """All commands, as a program runs them."""
    return get_command(app)
