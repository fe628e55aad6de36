"""One HTML page of a chart that needs nothing else: charts as Vega-Lite with the libraries inlined, tables as HTML.

The page's own policy forbids every request, so that it shows the same offline, in a mail or in ten years.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
_VIEW = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
_STYLE = """
body { font: 15px/1.45 Arial, Helvetica, sans-serif; color: #1a1a1a; background: #fff;
  margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.35rem } table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), th:last-child, td:last-child,
.named th:nth-child(3), .named td:nth-child(3) { text-align: left }
.wide { overflow-x: auto } pre { font: 13px/1.4 monospace; white-space: pre-wrap } figure { margin: 1.5rem 0; overflow-x: auto }
"""
_EMBED = {"mode": "vega-lite", "renderer": "svg", "actions": {"export": True, "source": False, "compiled": False, "editor": False}}


def html_page(title: str, parts: Sequence[str | dict[str, Any]]) -> str:
    """A self-contained page. parts: HTML text, or a Vega-Lite definition with its data, in order."""
    body: list[str] = []
    scripts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            body.append(part)
            continue
        body.append(f'<figure id="chart{len(scripts)}"></figure>')
        definition = {key: value for key, value in part.items() if key != "$schema"}
        scripts.append(f'vegaEmbed("#chart{len(scripts)}", {script_json(definition)}, {script_json(_EMBED)});')
    if scripts:
        body += [f"<script>{_libraries()}</script>", "<script>", *scripts, "</script>"]
    head = f'{_VIEW}\n<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<title>{html.escape(title)}</title>'
    top = ["<!DOCTYPE html>", '<html lang="en">', f"<head>\n{head}\n<style>{_STYLE}</style>\n</head>", "<body>"]
    return "\n".join([*top, *body, "</body>", "</html>", ""])


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False) -> str:
    """A table of text cells. named: three columns of words come first, not two."""
    lines = ["<tr>" + "".join(f"<th>{html.escape(head)}</th>" for head in heads) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    opening = '<table class="named">' if named else "<table>"
    return f'<div class="wide">{opening}\n' + "\n".join(lines) + "\n</table></div>"


def script_json(value: Any) -> str:
    """JSON without '<', so that it can neither end the script it stands in nor open a comment; raises ValueError on nan and inf."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.translate({ord("<"): "\\u003c", 0x2028: "\\u2028", 0x2029: "\\u2029"})


@cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script (1.7 s the first time)."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle
    return str(bundle(vl_version=vegalite_version())).replace("</script", "<\\/script")


def vegalite_version() -> str:
    """The Vega-Lite that Altair writes, if the renderer has it, else the renderer's newest."""
    import altair as alt
    import vl_convert

    version = ".".join(str(alt.SCHEMA_VERSION).removeprefix("v").split(".")[:2])
    known = [str(name) for name in vl_convert.get_vegalite_versions()]
    return version if version in known else known[-1]
