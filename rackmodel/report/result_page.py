"""One page of results that needs nothing else: question, answer and certificate, linked charts and tables, inputs with their sources, and
the command that makes them again.

Its script and style are assets of its own, without a library; its policy names them by their hashes and forbids every other script and
every request. What names say ends up as text: in the page escaped, in the data as JSON without '<'.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rackmodel.cost.ledger import KEYS, Ledger
from rackmodel.report.beside import beside_sections, front_chart_data
from rackmodel.report.difference import unlike_steps
from rackmodel.report.markup import copy_button, escaped, sortable_table
from rackmodel.report.page import script_json
from rackmodel.report.saved import Saved
from rackmodel.report.sketches import sketches_of
from rackmodel.report.svg import picture
from rackmodel.report.tables import format_percent, format_si
from rackmodel.version import __version__

ASSETS = Path(__file__).parent / "assets"
SKETCH = 420.0  # points of a sketch, which is as wide as its column
MOST_ROWS = 12_000  # rows of all ledgers in a page, which keep it below 2 MB; beyond, tensors are folded together, then einsums
FILTERS = ("phase", "component", "einsum", "level")
GROUPS = ("component", "level", "phase", "einsum", "action", "tensor", "component,level")
TABLES = ("component,level,action", "einsum", "phase,einsum", "phase", "tensor", "phase,einsum,tensor,level,component,action")
FIGURES = (("latency", "latency_s", "s"), ("energy", "energy_j", "J"), ("carbon of use", "carbon_g", "gCO2e"),
           ("memory an accelerator", "memory_bytes_per_accelerator", "B"))  # fmt: skip


def result_page(results: Sequence[Saved]) -> str:
    """The page of some results. It tells the version of the model, for the reader who makes them again."""
    names = names_of(results)
    title = " · ".join(_unique(f"{one.data['workload']} on {one.data['architecture']}" for one in results))
    fronts = [front_chart_data(one.shown["front"], number) for number, one in enumerate(results) if one.shown.get("front")]
    data = script_json({"results": chart_data(results, names), "fronts": fronts})
    script, style = asset("charts.js") + asset("front.js") + asset("page.js"), asset("page.css")
    body = [
        f"<header><h1>{escaped(title)}</h1>{_question(results)}</header>",
        f'<main><section class="answers" aria-label="answer">{"".join(map(_answer, results, names))}</section>',
        _comparison(results, names) if len(results) > 1 else "",
        *(beside_sections(one.shown, number, names[number] if len(names) > 1 else "") for number, one in enumerate(results)),
        charts_section(any(one.shown.get("roofline") for one in results), any(one.data.get("memory") for one in results)),
        _sketches(results, names),
        _inputs(results),
        _again(results, names),
        "</main>",
        f'<script type="application/json" id="data">{data}</script>',
        f"<script>{script}</script>",
    ]
    return "\n".join([page_head(title, script, style), "<body>", *body, "</body>", "</html>", ""])


def command_of(asked: Mapping[str, Any]) -> str:
    """The command that asks the same again; '' where what was asked is not known."""
    third = asked.get("mapping") or asked.get("mapper")
    words = [asked.get("architecture"), asked.get("workload"), third]
    if not all(isinstance(word, str) for word in words):
        return ""
    said = ["rackmodel", "evaluate" if asked.get("mapping") else "search", *map(str, words)]
    said += [part for text in asked.get("sets") or () for part in ("--set", str(text))]
    said += [part for key in ("minimize", "profile") if asked.get(key) for part in (f"--{key}", str(asked[key]))]
    limits = asked.get("limits")
    said += [part for name, value in (limits.items() if isinstance(limits, dict) else ()) for part in ("--limit", f"{name}={value}")]
    return shlex.join([*said, *map(str, asked.get("options") or ())])


# -- the parts of the page ---------------------------------------------------------------------------------------------


def policy_of(script: str, style: str) -> str:
    """What a page with this one script and style may do: run them, and nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    return f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; base-uri 'none'; form-action 'none'"


def page_head(title: str, script: str, style: str, more: str = "") -> str:
    """The top of a page, to its body. script: which will stand in it · more: of its policy."""
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy_of(script, style)}{more}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escaped(title)}</title>",
        f"<style>{style}</style></head>",
    ]
    return "\n".join(lines)


@cache
def asset(name: str) -> str:
    """The text of a file of assets/."""
    return (ASSETS / name).read_text(encoding="utf-8")


def _question(results: Sequence[Saved]) -> str:
    """What was asked, in a sentence."""
    kinds = _unique("given" if one.asked.get("mapping") else f"least {_certificate(one).get('minimize', 'latency')}" for one in results)
    counts = _unique(f"{one.data.get('accelerators', '?')} accelerators" for one in results)
    asked = "What does the mapping that was given take" if kinds == ["given"] else f"Which mapping takes {' or '.join(kinds)}"
    return f'<p class="soft">{escaped(asked)}, on {escaped(" or ".join(counts))}?</p>'


def answer_card(one: Saved, name: str) -> dict[str, Any]:
    """An answer in words: its name and mapping, [word, figure] pairs, how sure it is, what limits it, warnings."""
    data, shown, certificate = one.data, one.shown, _certificate(one)
    figures = [(word, format_si(data.get(key), unit)) for word, key, unit in FIGURES if isinstance(data.get(key), int | float)]
    figures += [("MFU", format_percent(data["mfu"]))] if isinstance(data.get("mfu"), float) else []
    figures += [("tokens", f"{format_si(data['tokens'] / data['latency_s'], '')}/s")] if data.get("tokens") and data["latency_s"] else []
    return {
        "name": name,
        "mapping": str(shown.get("mapping", "")),
        "figures": figures,
        "proof": _proof(certificate),
        "status": str(certificate.get("status", "best found")),
        "limits": ", ".join(map(str, shown.get("limits") or [])) or _limit(data.get("limited_by")),
        "warnings": [str(text) for text in data.get("warnings") or ()],
    }


def _answer(one: Saved, name: str) -> str:
    card = answer_card(one, name)
    badge = f'<span class="status{" proven" if card["status"] == "proven" else ""}">{escaped(card["status"])}</span>'
    listed = "".join(f"<div><dt>{escaped(word)}</dt><dd>{escaped(value)}</dd></div>" for word, value in card["figures"])
    limits = f"<p>limited by {escaped(card['limits'])}</p>" if card["limits"] else ""
    warnings = "".join(f'<p class="warning">{escaped(text)}</p>' for text in card["warnings"])
    return (
        f"<article><h3>{escaped(name)}</h3><p>{escaped(card['mapping'])}</p><dl>{listed}</dl>"
        f"<p>{escaped(card['proof'])} {badge}</p>{limits}{warnings}</article>"
    )


def _proof(certificate: Mapping[str, Any]) -> str:
    if not certificate.get("searched", True):
        return "the figures are exact, nothing says that they are the best:"
    evaluated, space = certificate.get("evaluated", 0), certificate.get("space", 0)
    seconds = certificate.get("seconds")
    took = f" in {format_si(seconds, 's', 2)}" if seconds else ""
    line = f"least {certificate.get('minimize', '')}: {evaluated:,} of {format_si(space, '')} mappings priced{took}"
    reasons = (certificate.get("infeasible") or {}).items()
    misfits = ", ".join(f"{format_si(count, '')} infeasible by {why}" for why, count in reasons if count)
    return f"{line}; {misfits}:" if misfits else f"{line}:"


def _limit(limit: Any) -> str:
    return f"{limit.get('what')} {format_percent(limit.get('share'))}" if isinstance(limit, dict) else ""


def _comparison(results: Sequence[Saved], names: Sequence[str]) -> str:
    heads = ["result", "mapping", *(word for word, _, _ in FIGURES), "status"]
    rows = []
    for one, name in zip(results, names, strict=True):
        figures = [(format_si(one.data.get(key), unit), one.data.get(key)) for _, key, unit in FIGURES]
        words = [(name, None), (str(one.shown.get("mapping", "")), None)]
        rows.append([*words, *figures, (str(_certificate(one).get("status", "")), None)])
    unlike = unlike_steps(results, names)
    note = f'<p class="warning">{escaped(unlike)}</p>' if unlike else ""
    return f"<section><h2>Side by side</h2>{note}{sortable_table('side', heads, rows)}</section>"


def charts_section(with_roofline: bool, with_memory: bool) -> str:
    """Where energy, time and bytes go: what charts.js draws into."""
    filters = "".join(
        f'<label for="filter-{key}">{key}<select id="filter-{key}"><option value="">all</option></select></label>' for key in FILTERS
    )
    places = ["joules", "exposed_seconds", "bytes"] + ["memory"] * with_memory
    figures = "".join(f'<figure id="chart-{name}"></figure>' for name in places)
    return (
        f'<section aria-label="charts"><h2>Where it goes</h2><div class="controls">'
        f'<label for="by">colours<select id="by">{_options(GROUPS)}</select></label>{filters}'
        f'<button type="button" id="reset">show all</button></div><p id="shown" class="soft" role="status"></p>'
        f'<div class="legend" id="legend" role="group" aria-label="segments shown"></div><div class="charts">{figures}</div>'
        f'<figure id="chart-roofline"{"" if with_roofline else " hidden"}></figure>'
        f'<div class="copyable"><label for="columns">rows by <select id="columns">{_options(TABLES)}</select></label>'
        f'{copy_button("ledger")}</div><div id="ledger"></div><div id="difference" hidden></div>'
        "<noscript>Charts and this table need the script of this page.</noscript></section>"
    )


def sketch_figures(one: Saved, name: str) -> str:
    """Timeline, tree and graph of a result, as for a paper; '' where it has nothing for them."""
    figures = "".join(
        f"<figure><figcaption>{escaped(words)}</figcaption>{picture(inside, SKETCH, height, f'{stem} of {name}')}</figure>"
        for stem, (inside, height, words) in sketches_of(one, SKETCH).items()
    )
    return f'<h3>{escaped(name)}</h3><div class="sketches">{figures}</div>' if figures else ""


def _sketches(results: Sequence[Saved], names: Sequence[str]) -> str:
    parts = "".join(map(sketch_figures, results, names))
    return f"<section><h2>How it runs</h2>{parts}</section>" if parts else ""


def _inputs(results: Sequence[Saved]) -> str:
    parts = []
    known: dict[str, None] = {}
    for number, one in enumerate(results):
        facts = [fact for fact in one.shown.get("facts") or () if isinstance(fact, dict)]
        key = repr(facts)
        if not facts or key in known:
            continue
        known[key] = None
        rows = [[(str(fact.get(column, "")), None) for column in ("path", "value", "range", "source")] for fact in facts]
        heads = ["number, as --set names it", "value", "range", "source"]
        table = sortable_table(f"facts{number}", heads, rows)
        count = f"{len(facts)} numbers of {one.data['architecture']}"
        parts.append(f"<details><summary>{escaped(count)}</summary>{table}</details>")
    return f"<section><h2>Inputs and their sources</h2>{''.join(parts)}</section>" if parts else ""


def _again(results: Sequence[Saved], names: Sequence[str]) -> str:
    commands = [command_of(one.asked) for one in results]
    found = "\n".join(command for command in _unique(commands) if command) or "what was asked is not known: the file does not say"
    parts = [f'<div class="copyable"><p class="soft">{escaped(f"rackmodel {__version__}")}</p>{copy_button("command")}</div>']
    parts.append(f'<pre id="command">{escaped(found)}</pre>')
    for number, (one, name) in enumerate(zip(results, names, strict=True)):
        lines = [str(line) for line in one.shown.get("lines") or ()]
        if lines:
            words = f'<pre id="words{number}">{escaped(chr(10).join(lines))}</pre>'
            parts.append(f"<details><summary>{escaped(name)} in words</summary>{words}</details>")
    return f"<section><h2>The same again</h2>{''.join(parts)}</section>"


def _options(values: Sequence[str]) -> str:
    words = {values[-1]: "every row"} if "," in values[-1] and values[-1].count(",") == len(KEYS) - 1 else {}
    return "".join(f'<option value="{value}">{words.get(value, value.replace(",", ", "))}</option>' for value in values)


# -- its data ----------------------------------------------------------------------------------------------------------


def chart_data(results: Sequence[Saved], names: Sequence[str]) -> list[dict[str, Any]]:
    """What charts.js draws of each result."""
    columns = _columns([one.ledger for one in results])
    found = []
    for one, name in zip(results, names, strict=True):
        memory = one.shown.get("memory") or {}
        peak, count = one.shown.get("peak_flop_per_s"), one.data.get("accelerators")
        found.append(
            {
                "name": name,
                "memory": one.data.get("memory") or {},
                "capacity": memory.get("capacity_bytes"),
                "bandwidth": memory.get("bandwidth_bytes_per_s"),
                "peak": peak / count if peak and count else None,
                "roofline": one.shown.get("roofline") or [],
                "ledger": _packed(one.ledger, columns),
            }
        )
    return found


def _columns(ledgers: Sequence[Ledger]) -> tuple[str, ...]:
    """Columns that rows are told apart by: all, unless they would be too many for a page."""
    columns: tuple[str, ...] = (*KEYS, "unit")
    for left_out in ("tensor", "einsum"):
        if sum(len(ledger.group(columns)) for ledger in ledgers) > MOST_ROWS:
            columns = tuple(column for column in columns if column != left_out)
    return columns


def _packed(ledger: Ledger, columns: tuple[str, ...]) -> dict[str, Any]:
    """Rows as places in a list of words, and four figures."""
    places: dict[str, int] = {}
    figures = [ledger.group(columns, figure) for figure in ("joules", "exposed_seconds", "seconds", "amount")]
    rows = []
    for key in figures[0]:
        named = dict(zip(columns, key, strict=True))
        words = [places.setdefault(named.get(column, ""), len(places)) for column in (*KEYS, "unit")]
        rows.append([*words, *(figure[key] for figure in figures)])
    return {"words": list(places), "rows": rows}


def names_of(results: Sequence[Saved]) -> list[str]:
    """What tells results apart: the mapper, the machine and the workload where there are several, a number where that does not."""
    several = [len({str(one.data[key]) for one in results}) > 1 for key in ("architecture", "workload")]
    found: list[str] = []
    for one in results:
        machine = f" on {one.data['architecture']} × {one.data.get('accelerators', '?')}" if several[0] else ""
        workload = f", {one.data['workload']}" if several[1] else ""
        name = f"{one.data['mapper']}{machine}{workload}"
        number = sum(known == name or known.startswith(f"{name} (") for known in found)
        found.append(name if not number else f"{name} ({number + 1})")
    return found


def _certificate(one: Saved) -> Mapping[str, Any]:
    found = one.data.get("certificate")
    return found if isinstance(found, dict) else {}


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
