"""`rackmodel explore`: a page of this computer whose numbers one moves; the search answers as they move."""

from __future__ import annotations

from typing import Annotated

import typer

from rackmodel.cli.printing import echo


def explore(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Your machines, workloads, mappers and profiles, beside those of the library."),
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port of 127.0.0.1; 0 takes a free one.")] = 0,
    state: Annotated[
        str, typer.Option("--state", metavar="TEXT", help="Start from a saved question: the text behind # in a page's address.")
    ] = "",
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Serve a page to this computer alone: choose machine, workload, mapper, move any number, see the best mapping at once."""
    from urllib.parse import quote

    from rackmodel.explore.question import shelf_of
    from rackmodel.explore.server import PageServer

    server = PageServer(shelf_of(files or []), port)
    address = server.address + (f"#{quote(state, safe='=&%+.')}" if state else "")
    echo(f"explore: {address}")
    echo("Ctrl-C ends it; nothing is written, and no other computer can reach it", err=True)
    try:
        server.begin()
        if browser:
            import webbrowser

            webbrowser.open(address)
        server.serve_forever()
    except KeyboardInterrupt:
        echo("", err=True)
    finally:
        server.server_close()
