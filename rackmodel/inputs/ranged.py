"""Facts with a range: what a file says at a place, from where to where it may lie, and how well it is known.

read_energy: {low: 5.5 pJ/bit, mid: 20 pJ/bit, high: 41 pJ/bit, source: "ASSUMED: ..."}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rackmodel.errors import Where
from rackmodel.inputs.marked import Marked, Step
from rackmodel.inputs.overrides import written_at
from rackmodel.inputs.problems import names_of_levels
from rackmodel.inputs.published import load

STATUS = re.compile(r"\b(ASSUMED|DERIVED|FITTED|RECALLED|SOURCED)\b")


@dataclass(frozen=True)
class Fact:
    """path: as --set names it · text, low, high: as written, '' where it says none · status: ASSUMED, SOURCED ... or ''."""

    path: str
    text: str
    low: str = ""
    high: str = ""
    status: str = ""

    @property
    def ranged(self) -> bool:
        """Whether it has a range of some width."""
        return bool(self.low and self.high) and self.low != self.high


def fact_at(path: str, architecture: str, workload: str | None = None, mapper: str | None = None) -> Fact:
    """What files say at a place that --set names. Raises InputError where there is no such place."""
    raws = [
        load(kind, name) if name else None for kind, name in (("architecture", architecture), ("workload", workload), ("mapper", mapper))
    ]
    node, around = written_at(path, *raws)
    return _fact(path, node, around)


def ranged_facts(architecture: str) -> list[Fact]:
    """Every fact of a machine's levels that has a range, in the order of the file."""
    return [fact for fact, _ in ranged_in_levels(load("architecture", architecture))]


def ranged_in_machine(raw: Marked) -> list[tuple[Fact, Where]]:
    """Every fact of a machine's site and levels that has a range, and where it is written."""
    site = raw.mapping.get("site")
    own = [] if site is None else list(_ranges(site, ()))
    return [*((_fact(f"site.{'.'.join(steps)}", node, around), node.where) for steps, node, around in own), *ranged_in_levels(raw)]


def ranged_in_levels(raw: Marked) -> list[tuple[Fact, Where]]:
    """Every fact of a machine's levels that has a range, in the order of the file, and where it is written."""
    found = []
    for path, name in names_of_levels(raw):
        ranges = _ranges(_node(raw, path), ())
        found += [(_fact(f"{name}.{'.'.join(steps)}", node, around), node.where) for steps, node, around in ranges]
    return found


def ranged_in_profile(raw: Marked) -> list[tuple[Fact, Where]]:
    """The same of a profile's tree, each called as --set calls it: `profile.overlap.contention`."""
    return [(_fact(f"profile.{'.'.join(steps)}", node, around), node.where) for steps, node, around in _ranges(raw, ())]


def _ranges(node: Marked, steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Marked, Marked]]:
    for key, child in node.mapping.items():
        if key == "children":
            continue
        if {"low", "mid", "high"} <= set(child.mapping):
            if child.mapping["low"].plain() != child.mapping["high"].plain():
                yield (*steps, key), child, node
        else:
            yield from _ranges(child, (*steps, key))


def _fact(path: str, node: Marked | None, around: Marked) -> Fact:
    if node is None:
        return Fact(path, "")
    inside = node.mapping
    source = next((word.text for word in (inside.get("source"), around.mapping.get("source")) if word is not None and word.text), "")
    status = STATUS.search(source)
    low, high = (_text(inside[key]) if key in inside else "" for key in ("low", "high"))
    mid = inside.get("mid") or inside.get("value") or node
    return Fact(path, _text(mid), low, high, status[0] if status else "")


def _text(node: Marked) -> str:
    value = node.plain()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _node(raw: Marked, path: tuple[Step, ...]) -> Marked:
    node = raw
    for step in path:
        below = node.child(step)
        assert below is not None
        node = below
    return node
