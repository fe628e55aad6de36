"""The order in which the operations of a graph run: of its structure, not of how a file lists or names them.

One stream runs an operation after another, so independent ones have an order and it can be worth a little: a gradient that is ready
earlier is reduced behind more compute. First come those that were ready first (their last operand was made first), then those with
the longest way to the end, then by the operands' places along it (a query before its key); what `append` puts into a cache or `repeat`
copies for several heads is on its way to who reads that. Only operations that agree in all this
and in everything around them are told apart by the places of their indices in `sizes`, and at last by their names.
"""

from __future__ import annotations

from collections.abc import Mapping as AbcMapping
from functools import cached_property
from typing import Any

from rackmodel.errors import InputError
from rackmodel.model.opkinds import APPEND
from rackmodel.model.workload import Op

Ops = dict[str, Op]
PASSING_ON = (APPEND, "repeat")


def in_order(ops: Ops, facts: AbcMapping[str, Any], section: AbcMapping[str, int] | None = None) -> Ops:
    """The operations in the order in which they run; `facts`: what a file says of a tensor, by name; `section`: the number of an
    operation's section, where there are some, which run one after another. Raises InputError for a tensor written twice and for a cycle.
    """
    graph = _Graph(ops, facts, section or {})
    waits = {name: len(before) for name, before in graph.before.items()}
    ready = {name: -1 for name, count in waits.items() if not count}
    done: list[str] = []
    while ready:
        name = graph.first(ready)
        del ready[name]
        for reader in dict.fromkeys(reader for reader, _ in graph.readers[name]):
            waits[reader] -= 1
            if not waits[reader]:
                ready[reader] = len(done)
        done.append(name)
    if len(done) < len(ops):
        cycle = _cycle({name: op for name, op in ops.items() if waits[name]}, graph.producer)
        raise InputError(f"the operations form a cycle: {' → '.join(cycle)}", path=f"einsums.{next(name for name in ops if waits[name])}")
    return {name: ops[name] for name in done}


class _Graph:
    """What reads what, and what tells two operations apart."""

    def __init__(self, ops: Ops, facts: AbcMapping[str, Any], section: AbcMapping[str, int]) -> None:
        self.ops = ops
        self.facts = facts
        self.section = section
        self.producer = _producers(ops)
        self.before = {name: {self.producer[a.tensor] for a in op.ins if a.tensor in self.producer} for name, op in ops.items()}
        self.users: dict[str, list[tuple[str, int]]] = {op.out.tensor: [] for op in ops.values()}
        for name, op in ops.items():
            for place, access in enumerate(op.ins):
                self.users.setdefault(access.tensor, []).append((name, place))
        self.readers = {name: self.users[op.out.tensor] for name, op in ops.items()}

    def first(self, ready: AbcMapping[str, int]) -> str:
        """The one of some ready operations that runs next; `ready`: the place in the order of what made its last operand."""
        if len(ready) == 1:
            return next(iter(ready))
        rank = {name: (self.section.get(name, 0), since, *self.rank[name]) for name, since in ready.items()}
        best = min(rank.values())
        equal = [name for name in ready if rank[name] == best]
        return equal[0] if len(equal) == 1 else min(equal, key=lambda name: (self.by_size[name], self.by_place[name], name))

    @cached_property
    def rank(self) -> dict[str, tuple[int, list[int]]]:
        """The longest way first, then by the operands' places along it."""
        return {name: (-self.height[name], self.way[name]) for name in self.ops}

    @cached_property
    def way(self) -> dict[str, list[int]]:
        """Places of the operands along the longest way to the end; of several the first."""
        found: dict[str, list[int]] = {}
        for name in sorted(self.ops, key=lambda name: (self.height[name], self._passes_on(name))):
            below = self.height[name] - (not self._passes_on(name))
            longest = [(place, reader) for reader, place in self.readers[name] if self.height[reader] == below and reader in found]
            found[name] = min(([*([] if self._passes_on(reader) else [place]), *found[reader]] for place, reader in longest), default=[])
        return found

    def _passes_on(self, name: str) -> bool:
        """Whether an operation hands on what it reads, and makes nothing of it."""
        return self.ops[name].kind.name in PASSING_ON

    @cached_property
    def height(self) -> dict[str, int]:
        """Operations on the longest way from each to the end of the graph; 0 before a cycle."""
        left = {name: len(read) for name, read in self.readers.items()}
        found = dict.fromkeys(self.ops, 0)
        ends = [name for name, count in left.items() if not count]
        while ends:
            name = ends.pop()
            found[name] = (not self._passes_on(name)) + max((found[reader] for reader, _ in self.readers[name]), default=0)
            for access in self.ops[name].ins:
                if access.tensor in self.producer:
                    maker = self.producer[access.tensor]
                    left[maker] -= 1
                    ends += [maker] if not left[maker] else []
        return found

    @cached_property
    def by_size(self) -> dict[str, int]:
        """Classes of operations that nothing tells apart but the names of their indices."""
        return self._classes({name: [op.sizes[index] for index in op.indices] for name, op in self.ops.items()})

    @cached_property
    def by_place(self) -> dict[str, int]:
        """The same where indices differ by their places among the sizes."""
        place = {index: k for op in self.ops.values() for k, index in enumerate(op.sizes)}
        return self._classes({name: [place[index] for index in op.indices] for name, op in self.ops.items()})

    def _classes(self, indices: AbcMapping[str, list[int]]) -> dict[str, int]:
        """Classes by an operation's own form, refined by the classes of what it reads and of what reads it until they stay."""
        classes = _numbered({name: self._form(op, indices[name]) for name, op in self.ops.items()})
        while len(set(classes.values())) < len(classes):
            finer = _numbered({name: self._around(name, classes) for name in self.ops})
            if len(set(finer.values())) == len(set(classes.values())):
                break
            classes = finer
        return classes

    def _form(self, op: Op, indices: list[int]) -> str:
        mine = {index: (number, k) for k, (index, number) in enumerate(zip(op.indices, indices, strict=True))}
        walks = [[[(stride, mine[index]) for stride, index in affine] for affine in access.indices] for access in (op.out, *op.ins)]
        said = [self.facts.get(access.tensor) for access in (op.out, *op.ins)]
        return repr((op.statement.kind, walks, [mine[index] for index in op.over], said))

    def _around(self, name: str, classes: AbcMapping[str, int]) -> str:
        reads = [self._source(access.tensor, classes) for access in self.ops[name].ins]
        return repr((f"{classes[name]:09d}", reads, sorted((classes[reader], place) for reader, place in self.readers[name])))

    def _source(self, tensor: str, classes: AbcMapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
        """The class of what writes a tensor (-1: nothing here), and of all that read it where nothing does."""
        if tensor in self.producer:
            return classes[self.producer[tensor]], []
        return -1, sorted((classes[name], place) for name, place in self.users[tensor])


def _numbered(forms: AbcMapping[str, str]) -> dict[str, int]:
    number = {form: k for k, form in enumerate(sorted(set(forms.values())))}
    return {name: number[form] for name, form in forms.items()}


def _producers(ops: Ops) -> dict[str, str]:
    found: dict[str, str] = {}
    for op in ops.values():
        if op.out.tensor in found:
            raise InputError(f"'{op.out.tensor}' is written by both {found[op.out.tensor]} and {op.name}", path=f"einsums.{op.name}")
        found[op.out.tensor] = op.name
    return found


def _cycle(pending: Ops, producer: AbcMapping[str, str]) -> list[str]:
    seen: list[str] = []
    name = next(iter(pending))
    while name not in seen:
        seen.append(name)
        name = next(producer[access.tensor] for access in pending[name].ins if producer.get(access.tensor) in pending)
    return [*seen[seen.index(name) :], name][::-1]
