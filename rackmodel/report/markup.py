"""Pieces of a page as HTML: words that stay words, tables that sort and copy."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


def escaped(words: str) -> str:
    """Words as a page's text, or in an attribute."""
    return html.escape(words)


def copy_button(of: str) -> str:
    """A button that copies the element of that id."""
    return f'<button type="button" class="copy" data-of="{of}">copy</button>'


def sortable_table(name: str, heads: Sequence[str], rows: Iterable[Sequence[tuple[str, Any]]]) -> str:
    """A table that sorts and copies. name: its id · rows: of (text, number that it stands for, or None)."""
    rows, lines = list(rows), []
    figures = [any(isinstance(row[place][1], int | float) for row in rows) for place in range(len(heads))]
    kinds = [' class="number"' if one else "" for one in figures]
    head = "".join(f"<th{kind}>{escaped(word)}</th>" for kind, word in zip(kinds, heads, strict=True))
    for row in rows:
        numbers = [f' class="number" data-value="{value!r}"' if isinstance(value, int | float) else "" for _, value in row]
        lines.append("<tr>" + "".join(f"<td{more}>{escaped(words)}</td>" for more, (words, _) in zip(numbers, row, strict=True)) + "</tr>")
    table = f'<table class="sortable" id="{name}"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    above = f'<div class="copyable"><span></span>{copy_button(name)}</div>'
    return f'{above}<div class="wide" tabindex="0" role="region" aria-label="{name}">{table}</div>'
