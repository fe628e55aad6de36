"""What `serve -o` writes: the answer as JSON has it, every point and the front as tables, and drawn, a page, what starts it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.report.files import csv_text, write_whole

if TYPE_CHECKING:
    from rackmodel.report.launch.arguments import Launch
    from rackmodel.serving.offers import Offered
    from rackmodel.serving.search import ServingAnswer


def write_served(
    where: Path, answer: ServingAnswer, data: Mapping[str, Any], asked: Sequence[str], launches: Sequence[Launch] = ()
) -> list[Path]:
    """Files of an answer. data: what --json prints · asked: what is served, in words, and the command · launches: what starts the best."""
    from rackmodel.report.drawing import save_chart

    document = {"asked": list(asked), **data}
    chart = _front_chart(answer, asked[0])
    return [
        write_whole(where / "served.json", json.dumps(document, indent=1) + "\n"),
        write_whole(where / "points.csv", _table(answer.offers)),
        write_whole(where / "pareto.csv", _table(answer.front, status=answer.certificate.status)),
        *save_chart(chart, where, "pareto"),
        *_write_launches(where, launches),
        write_whole(where / "index.html", _page(answer, chart, asked, [line for one in launches for line in one.lines()])),
    ]


def flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """One level of keys: {'prompts': {'tensor': 2}} → {'prompts.tensor': 2}."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def _table(offers: Sequence[Offered], status: str = "") -> str:
    """A row a point, as JSON has it. status: of the front, its last column."""
    rows = [flat(one.to_dict()) for one in offers]
    heads = list(dict.fromkeys(key for row in rows for key in row))
    last = [status] if status else []
    cells = [[number, *(row.get(head) for head in heads), *last] for number, row in enumerate(rows, start=1)]
    return csv_text(["number", *heads, *(["status"] if status else [])], cells)


def _seen(answer: ServingAnswer) -> tuple[str, str]:
    """The figure that one client sees, and what to call it."""
    return ("tpot", "time a token after the first") if "tpot" in answer.best.figures else ("ttft", "time to the first token")


def _front_chart(answer: ServingAnswer, asked: str) -> Any:
    """The front over two figures of which less is better: what one client waits, and accelerators' seconds of a token."""
    from rackmodel.cli.deployed import deployed
    from rackmodel.report.front import front_chart

    seen, name = _seen(answer)
    rows = [
        {
            "number": number,
            "mapping": deployed(one).replace("\n", " "),
            "x": one.figures[seen],
            "y": 1.0 / one.figures["tokens_per_s_per_accelerator"],
        }
        for number, one in enumerate(answer.front, start=1)
    ]
    title = f"Front ({answer.certificate.status}), {asked}"
    return front_chart(rows, (name, "s"), ("accelerator time of a token", "s"), title, f"{len(rows)} points, numbers as in pareto.csv")


def _page(answer: ServingAnswer, chart: Any, asked: Sequence[str], launch: Sequence[str]) -> str:
    from rackmodel.report.page import html_page, html_table

    best = html_table(["best", ""], [[key, "" if value is None else str(value)] for key, value in flat(answer.best.to_dict()).items()])
    certificate = answer.certificate
    sure = f"Best of {certificate.space:g} operating points, {certificate.status}: {certificate.evaluated} priced"
    sure += "".join(f", {count} infeasible by {why}" for why, count in answer.infeasible.items())
    notes = [sure, *(f"warning: {one}" for one in answer.warnings)]
    parts: list[str | dict[str, Any]] = [f"<h1>{html.escape(asked[0])}</h1>", *(f"<p>{html.escape(one)}</p>" for one in notes)]
    parts += [chart.to_dict(), best, f"<pre>{html.escape(asked[1])}</pre>"]
    return html_page(asked[0], [*parts, *([f"<pre>{html.escape(chr(10).join(launch))}</pre>"] if launch else [])])


def _write_launches(where: Path, launches: Sequence[Launch]) -> list[Path]:
    """The arguments of each launch, of pools one of prompts and one of decodes, and the file that belongs to them."""
    names = ["prompts.", "decodes."] if len(launches) > 1 else [""]
    texts: dict[str, str] = {}
    for name, one in zip(names, launches, strict=False):
        texts[f"{name}{one.framework}.txt"] = "\n".join(one.lines()) + "\n"
        if one.config_name:
            texts[f"{name}{one.config_name}"] = one.config
    return [write_whole(where / name, text) for name, text in texts.items()]
