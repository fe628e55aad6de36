"""Inputs of many points: a file is read once, an object built once, and each has a digest of its content.

Points of a study name the same machine with a number changed. Trees are never changed in place (marked), so that what an override
leaves alone is the very same node, whose digest is known. A digest is of keys and values in their order: comments, places and the file's
name are none of it; what a tree refers to by path counts with its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from rackmodel.inputs.graph import build_graph
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.overrides import Places, apply_overrides, override_profile, sorted_sets
from rackmodel.inputs.own_files import with_own_files
from rackmodel.inputs.problems import build
from rackmodel.inputs.published import load
from rackmodel.inputs.read import Inputs, build_architecture, build_mapper
from rackmodel.model.profile import ProfileSpec

MOST = 512
"""Objects of a kind that are remembered."""

Built = TypeVar("Built")
Trees = dict[tuple[str, str], Marked]


class SharedInputs:
    """Reads the inputs of points. trees: (kind, name) → what is read already, as another process read it."""

    def __init__(self, trees: Mapping[tuple[str, str], Marked] | None = None) -> None:
        self.trees: Trees = dict(trees or {})
        self._digests: dict[int, tuple[Marked, bytes]] = {}
        self._places: dict[tuple[int, ...], tuple[list[Marked], Places]] = {}
        self._built: dict[str, dict[bytes, Any]] = {}

    def tree(self, kind: str, name: str) -> Marked:
        """The tree of an input, read at the first time. Raises InputError."""
        if (kind, name) not in self.trees:
            raw = load(kind, name)
            self.trees[kind, name] = raw = with_own_files(raw) if kind == "architecture" else raw
            self._digest(raw, keep=True)
        return self.trees[kind, name]

    def forget_files(self) -> None:
        """Read files anew: they may have been written since. Objects of content that is the same stay as they are."""
        self.trees.clear()
        self._digests.clear()
        self._places.clear()

    def adopt(self, trees: Mapping[tuple[str, str], Marked]) -> None:
        """Take trees that another process read, in the place of those of the same name where they say something else."""
        for key, raw in trees.items():
            known = self.trees.get(key)
            if known is None or self.digest(known) != self.digest(raw):
                self.trees[key] = raw
                self._digest(raw, keep=True)

    def read(self, architecture: str, workload: str, mapper: str, *, profile: str | None = None, sets: Sequence[str] = ()) -> SharedPoint:
        """The trees of one point with its overrides; nothing is built yet. Raises InputError."""
        of_profile, others = sorted_sets(sets)
        raws = [
            self.tree(kind, name)
            for kind, name in zip(("architecture", "workload", "mapper"), (architecture, workload, mapper), strict=True)
        ]
        key = tuple(map(id, raws))
        places = self._places.setdefault(key, (raws, {}))[1]
        machine, graph, plan = apply_overrides(others, raws[0], raws[1], raws[2], places)
        assert machine is not None
        machine = with_own_files(machine)
        assert graph is not None
        assert plan is not None
        own = plan.child("profile")
        said = profile or (str(own.value) if own is not None and own.value else "ideal")
        started = (("architecture", architecture), ("workload", workload), ("mapper", mapper), ("profile", said))
        return SharedPoint(self, (machine, graph, plan, override_profile(self.tree("profile", said), of_profile)), started)

    def built(self, kind: str, raw: Marked, build_it: Callable[[Marked], Built], digest: bytes | None = None) -> Built:
        """The object of a tree, built once. digest: of the tree, where it is known. Raises InputError."""
        known, key = self._built.setdefault(kind, {}), self.digest(raw) if digest is None else digest
        if key not in known:
            found = build_it(raw)
            while len(known) >= MOST:
                del known[next(iter(known))]
            known[key] = found
        return known[key]  # type: ignore[no-any-return]

    def digest(self, raw: Marked) -> bytes:
        """Of the content of a tree."""
        return self._digest(raw, keep=False)

    def _digest(self, node: Marked, *, keep: bool) -> bytes:
        """keep: remember it, of every node (a file's; what an override made lives for one point)."""
        known = self._digests.get(id(node))
        if known is not None:
            return known[1]
        made = hashlib.sha256()
        if isinstance(node.value, dict):
            for key, child in node.value.items():
                made.update(repr(key).encode() + b":" + self._digest(child, keep=keep))
        elif isinstance(node.value, list):
            for child in node.value:
                made.update(b"-" + self._digest(child, keep=keep))
        else:
            made.update(repr(node.value).encode())
        if keep:
            self._digests[id(node)] = node, made.digest()
        return made.digest()


class SharedPoint:
    """One point's trees: of architecture, workload, mapper and profile. started: what they were before its overrides, by kind and name."""

    def __init__(self, shared: SharedInputs, trees: tuple[Marked, Marked, Marked, Marked], started: Sequence[tuple[str, str]]) -> None:
        self.shared, self.trees, self.started = shared, trees, tuple(started)

    @cached_property
    def _digests(self) -> list[bytes]:
        return [self.shared.digest(raw) for raw in self.trees]

    @property
    def digests(self) -> list[str]:
        """Of its four trees."""
        return [digest.hex() for digest in self._digests]

    @cached_property
    def _inputs(self) -> Inputs:
        (machine, graph, plan, profile), digests, built = self.trees, self._digests, self.shared.built
        return Inputs(
            built("architecture", machine, build_architecture, digests[0]),
            built("workload", graph, build_graph, digests[1]),
            built("mapper", plan, build_mapper, digests[2]),
            None,
            plan,
            (machine, graph),
            asked=profile,
        )

    def inputs(self) -> Inputs:
        """As `read_inputs` gives them. Raises InputError."""
        return self._inputs

    def profile(self) -> ProfileSpec:
        """The profile it is priced under. Raises InputError."""
        return self.shared.built("profile", self.trees[3], lambda raw: build(ProfileSpec, raw), self._digests[3])
