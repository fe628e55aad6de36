"""`make pictures`: the pages of results and of `explore` for docs/, at 1200 and 390 pixels, light and dark, by a headless Chromium."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackmodel.explore.question import shelf_of
from rackmodel.explore.server import PageServer
from tests.browser import browser
from tests.commands import invoke

DOCS = Path(__file__).parents[1] / "docs"
ASK = ("compare", "rack_paper_h100", "attention", "data", "tensor", "--set", "accelerators=32")
HEIGHTS = {1200: 1500, 390: 2100}
STATE = (
    "workload=attention&a.architecture=rack_paper_h100&a.mapper=tensor&a.set=accelerators%3D32"
    "&b.architecture=rack_paper_h100&b.mapper=tensor&b.set=accelerators%3D32&b.set=rack.network.bandwidth%3D450+GB%2Fs"
)
ANSWERED = "document.querySelector('#card-a dd') && document.querySelector('#card-b dd') && !document.getElementById('difference').hidden"


def main() -> None:
    """Draw them."""
    with tempfile.TemporaryDirectory() as folder, exploring() as server, browser() as page:
        said = invoke([*ASK, "-o", folder])
        assert said.exit_code == 0, said.output
        for width, height in HEIGHTS.items():
            for shade in ("light", "dark"):
                page.open((Path(folder) / "index.html").as_uri(), width=width, dark=shade == "dark")
                page.picture(DOCS / f"page_{width}_{shade}.png", height)
                page.open(f"{server.address}#{STATE}", width=width, dark=shade == "dark")
                page.wait(ANSWERED, 120)
                page.picture(DOCS / f"explore_{width}_{shade}.png", height - 100)


@contextmanager
def exploring() -> Iterator[PageServer]:
    """`rackmodel explore` of the library."""
    server = PageServer(shelf_of([]))
    server.begin()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
