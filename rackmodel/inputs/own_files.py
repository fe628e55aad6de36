"""Files of tables that a machine names by their path, as their text in the place of the path: what it says of carbon, and what was measured
on its networks.

So the machine has their content: one that was written anew is another machine, and who prices it elsewhere needs no file. Names of the
library stay names. What is wrong with a file is told with its own place when the machine is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from rackmodel.inputs.carbon_tables import read_grids
from rackmodel.inputs.library import in_library
from rackmodel.inputs.load import level_name, load_source, refer
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.problems import build
from rackmodel.model.calls import CollectivesSpec


def with_own_files(raw: Marked) -> Marked:
    """A tree of an architecture with its own files as text; the very same where it has none. Raises InputError."""
    name, tree = raw.child("carbon"), raw.child("tree")
    if name is not None and name.text:
        said = _text_of("carbon", read_grids, name, "carbon")
        raw = raw if said is name else raw.having("carbon", said)
    measured = None if tree is None else _measured(tree)
    return raw if measured is None or measured is tree else raw.having("tree", measured)


def _measured(level: Marked) -> Marked:
    """A level, and those below, with what was measured on their networks."""
    network, children = level.child("network"), level.child("children")
    name = network.child("calls") if network is not None else None
    if network is not None and name is not None and name.text:
        said = _text_of("collectives", _read_collectives, name, f"tree.{level_name(level) or 'level'}.network.calls")
        level = level if said is name else level.having("network", network.having("calls", said))
    if children is None or not children.items:
        return level
    below = [_measured(child) if isinstance(child.value, dict) else child for child in children.items]
    same = all(new is old for new, old in zip(below, children.items, strict=True))
    return level if same else level.having("children", Marked(below, children.where))


def _read_collectives(raw: Marked) -> CollectivesSpec:
    return build(CollectivesSpec, raw)


def _text_of(kind: str, read: Callable[[Marked], object], name: Marked, path: str) -> Marked:
    """A name of the library as it is; of another file its text, with what it extends. Raises InputError where it is none of its kind."""
    text = str(name.text)
    if "\n" in text or in_library(kind, text):
        return name
    tables = load_source(kind, refer(kind, name, path))
    read(tables)
    return Marked(json.dumps(tables.plain(), indent=0, ensure_ascii=False), name.where)
