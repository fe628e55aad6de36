"""`make pictures`: the page of results as docs/ shows it, at 1200 and 390 pixels, light and dark, by a headless Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path

from typer.testing import CliRunner

from rackmodel.cli.app import app
from tests.browser import browser

DOCS = Path(__file__).parents[1] / "docs"
ASK = ("compare", "rack_paper_h100", "attention", "data", "tensor", "--set", "accelerators=32")
HEIGHTS = {1200: 1500, 390: 2100}


def main() -> None:
    """Draw them."""
    with tempfile.TemporaryDirectory() as folder:
        said = CliRunner().invoke(app, [*ASK, "-o", folder])
        assert said.exit_code == 0, said.output
        with browser() as page:
            for width, height in HEIGHTS.items():
                for shade in ("light", "dark"):
                    page.open((Path(folder) / "index.html").as_uri(), width=width, dark=shade == "dark")
                    page.picture(DOCS / f"page_{width}_{shade}.png", height)


if __name__ == "__main__":
    main()
