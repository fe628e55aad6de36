"""What other tools' architectures are read into: stages (memories and a compute, outer to inner) and notes of what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from rackmodel.errors import InputError, Where
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.tagged import TAG

ROLE_OF = {"Inputs": "left", "Weights": "right", "Outputs": "result"}
"""Timeloop's usual names of a layer's tensors → roles in an einsum."""


@dataclass
class Notes:
    """What was not carried over, in the order in which it was met."""

    found: dict[tuple[Where, str], None] = field(default_factory=dict)

    def add(self, where: Where, text: str) -> None:
        """Remember one thing that was not carried over, once."""
        self.found[where, text] = None

    def unknown_keys(self, node: Marked, known: Sequence[str], path: str) -> None:
        """Name every key of a mapping that is not known."""
        for key in node.mapping:
            if key not in known and key != TAG:
                self.add(node.keys[key], f"{path}.{key}: not imported")

    @property
    def lines(self) -> list[str]:
        """One line each, for a person: place and fact."""
        return [f"{where}: {text}" for where, text in self.found]


@dataclass
class Stage:
    """A memory or the compute of the machine that is read, SI and bits.

    x, y: instances under one instance of the stage above · action_bits: bits that one action of an energy table moves ·
    energy: joules per bit by action (`read`, `write`), or per MAC (`compute`).
    """

    name: str
    where: Where
    compute: bool = False
    x: int = 1
    y: int = 1
    capacity_bits: float | None = None
    read_bits_per_s: float | None = None
    write_bits_per_s: float | None = None
    split: bool = False
    buffers: int = 1
    keep: list[str] | None = None
    bypass: list[str] = field(default_factory=list)
    action_bits: float | None = None
    macs_per_s: float | None = None
    energy: dict[str, float] = field(default_factory=dict)
    static_w: float = 0.0


@dataclass
class Walk:
    """Where a walk of the nodes stands: the fan since the last stage and the attributes of the containers around."""

    notes: Notes
    cycle: float | None
    x: int = 1
    y: int = 1
    inherited: dict[str, Marked] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    def put(self, stage: Stage) -> None:
        """Add a stage below the fan that was met."""
        stage.x, stage.y = self.x, self.y
        if not self.stages and self.x * self.y > 1:
            raise InputError("the outermost memory has several instances: import one of them", where=stage.where, path=stage.name)
        if self.stages and self.stages[-1].compute:
            raise InputError("a node below the compute", where=stage.where, path=stage.name)
        self.x = self.y = 1
        self.stages.append(stage)

    def spread(self, x: int, y: int, node: Marked, name: str) -> None:
        """Multiply the fan that the next stage stands in."""
        if (self.x > 1 and x > 1) or (self.y > 1 and y > 1):
            self.notes.add(node.where, f"{name}.spatial: two fans with no memory between are read as one of {self.x * x} x {self.y * y}")
        self.x, self.y = self.x * x, self.y * y


def complete(found: list[Stage], where: Marked) -> list[Stage]:
    """The stages, if they are memories and below them one compute. Raises InputError."""
    if len(found) < 2 or found[0].compute or not found[-1].compute:
        raise InputError("want memories and below them one compute", where=where.where, path="nodes")
    return found


def children(node: Marked) -> Sequence[Marked]:
    """The nodes of a node. Raises InputError."""
    nodes = rows(node, "nodes", "nodes")
    if not nodes:
        raise InputError("missing key 'nodes', a list", where=node.where)
    return nodes


def table(node: Marked, key: str, path: str) -> Marked | None:
    """The mapping at a key, if there is one. Raises InputError where it is something else."""
    child = node.child(key)
    if child is not None and not isinstance(child.value, dict):
        raise InputError(f"'{short(child.value)}': want a mapping {{key: value}}", where=child.where, path=path)
    return child


def rows(node: Marked, key: str, path: str) -> list[Marked]:
    """The list at a key; empty where the key is missing. Raises InputError where it is something else."""
    child = node.child(key)
    if child is not None and not isinstance(child.value, list):
        raise InputError(f"'{short(child.value)}': want a list [a, b]", where=child.where, path=path)
    return child.items if child is not None else []


def tag_of(node: Marked) -> str:
    """The `!Tag` of a node. Raises InputError."""
    tag = node.child(TAG)
    if tag is None or tag.text is None:
        raise InputError("want a tagged node, such as !Component {...}", where=node.where, path="nodes")
    return tag.text


def name_of(node: Marked) -> str:
    """The name of a node or action. Raises InputError."""
    name = node.child("name")
    if name is None or not name.text:
        raise InputError("missing key 'name'", where=node.where, path="nodes")
    return name.text


def number(node: Marked, path: str) -> float:
    """A positive number (inf allowed as text). Raises InputError."""
    if node.text in ("inf", "Inf", "infinity"):
        return inf
    if isinstance(node.value, bool) or not isinstance(node.value, int | float) or node.value < 0:
        raise InputError(f"'{short(node.value)}': want a number, at least 0 (expressions are not evaluated)", where=node.where, path=path)
    return float(node.value)


def whole(node: Marked, path: str) -> int:
    """A whole number of at least 1. Raises InputError."""
    value = number(node, path)
    if not 1 <= value < inf or value != int(value):
        raise InputError(f"'{short(node.value)}': want a whole number, at least 1", where=node.where, path=path)
    return int(value)
