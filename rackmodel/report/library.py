"""The library as a list: what each shipped machine, workload, mapper, profile and study is, in a line."""

from __future__ import annotations

import re

from rich.table import Table

from rackmodel.inputs import library_names, library_path

NAMED = {"architecture": "machines", "workload": "workloads", "mapper": "mappers", "profile": "profiles", "study": "studies"}
"""Kinds that a command is given by name → how they are headed; the others are what those are made of."""


def about(kind: str, name: str) -> str:
    """What a shipped file says of itself: the first sentence of the comment above its keys."""
    lines = []
    for line in library_path(kind, name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    text = " ".join(line for line in lines if not line.startswith("yaml-language-server"))
    first = re.split(r"(?<=[a-z0-9)`])\.\s+(?=[A-Z])", text, maxsplit=1)[0]
    return first.removesuffix(".")


def library_table() -> Table:
    """A row a file of the kinds that commands name."""
    table = Table(box=None, pad_edge=False, show_header=False)
    names = library_names()
    table.add_column(no_wrap=True, min_width=2 + max(len(name) for kind in NAMED for name in names[kind]))
    table.add_column()
    for kind, head in NAMED.items():
        table.add_row(head, "", style="bold")
        for name in names[kind]:
            table.add_row(f"  {name}", about(kind, name))
    return table


def made_of() -> list[str]:
    """The kinds of files that machines, models and validation are made of, and their names."""
    return [f"{kind}: {', '.join(names)}" for kind, names in library_names().items() if kind not in NAMED]
