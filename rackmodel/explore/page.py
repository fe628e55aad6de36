"""The page of `rackmodel explore`: what is chosen and moved above, the charts and tables of the page of results below.

Charts, tables and style are those of the page of results (report/assets); its own script asks, and shows what is answered.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rackmodel.explore.question import Shelf
from rackmodel.inputs import about, library_names
from rackmodel.model.mapping import OBJECTIVES
from rackmodel.report.page import script_json
from rackmodel.report.result_page import asset, charts_section, page_head, policy_of

ASSETS = Path(__file__).parent / "assets"
ASKS = "; connect-src 'self'"
START = {"architecture": "rack_paper", "workload": "ffn", "mapper": "tensor"}


def explore_page(shelf: Shelf, token: str) -> str:
    """The page of one start."""
    named = library_names()
    told = {kind: {name: about(kind, name) if name in named[kind] else "" for name in names} for kind, names in shelf.items()}
    data = script_json({"token": token, "shelf": told, "objectives": list(OBJECTIVES), "start": START})
    body = [
        '<header><h1>explore</h1><p class="soft">Move a number: the best mapping is searched again. Nothing is written, nothing leaves '
        "this computer.</p></header><main>",
        '<section aria-label="question" class="question" id="common"></section>',
        '<div class="sides"><section id="side-a" aria-label="first machine"></section>'
        '<section id="side-b" aria-label="second machine" hidden></section></div>',
        f'<div id="found" hidden>{charts_section(True, True)}</div>',
        '<section id="sketches" aria-label="how it runs" hidden></section>',
        '<section id="again" hidden><h2>The same again</h2><div id="commands"></div><div id="files"></div></section></main>',
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{_script()}</script>",
    ]
    return "\n".join([page_head("rackmodel explore", _script(), _style(), ASKS), "<body>", *body, "</body>", "</html>", ""])


@cache
def page_policy() -> str:
    """What the page may do: run its own script, and ask its own server; no other page may hold it in a frame."""
    return f"{policy_of(_script(), _style())}{ASKS}; frame-ancestors 'none'"


@cache
def _script() -> str:
    return asset("charts.js") + _own("explore.js")


@cache
def _style() -> str:
    return asset("page.css") + _own("explore.css")


def _own(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
