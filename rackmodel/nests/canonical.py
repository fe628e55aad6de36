"""One problem for all einsums that differ in names alone: what one nest's search found holds for the others.

Operands are put in the order of what is known of them without names, ranks in that of the tensors they index; then both get
numbers for names. Ranks of one, which nothing can cut, are left out. The same einsum under other names, or with its operands exchanged,
becomes the same problem. With perfect factors ranks that no tensor tells apart are one rank (lemma L1, docs/nest_theory.md): a projection
to heads, and one from heads, are products of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.problem import NestLevel, NestMachine, NestProblem, NestTensor
from rackmodel.nests.rank_names import renamed_mapping
from rackmodel.nests.searchers.mapspace.mapping_steps import unmerged
from rackmodel.nests.searchers.mapspace.rank_merging import merge_problem, merged_ranks


@dataclass(frozen=True)
class Canonical:
    """The problem and machine under numbers; ranks, tensors: number → name in the original (empty: nothing was renamed) · ones: ranks of
    one that were left out · groups: merged rank, which `ranks` names → its parts (empty: none was merged) · sizes: of the parts."""

    problem: NestProblem
    machine: NestMachine
    ranks: Mapping[str, str]
    tensors: Mapping[str, str]
    ones: tuple[str, ...] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def question(self) -> tuple[NestProblem, NestMachine]:
        """What decides the answer: names of the problem and of the machine do not."""
        return (replace(self.problem, name=""), replace(self.machine, name="")) if self.ranks else (self.problem, self.machine)

    def original(self, mapping: NestMapping) -> NestMapping:
        """A mapping of the canonical problem in the names of the original."""
        named = renamed_mapping(mapping, self.ranks)
        if self.groups:
            atom = {self.ranks[r]: n for r, n in self.machine.compute.atom.items()}
            named = unmerged(named, self.groups, self.sizes, atom)
        ones = dict.fromkeys(self.ones, 1)
        levels = tuple(
            replace(level, nodes=tuple(replace(n, tensor=self.tensors.get(n.tensor, n.tensor), tile=n.tile | ones) for n in level.nodes))
            for level in named.levels
        )
        return NestMapping(self.problem.name, self.machine.name, levels)


def as_it_is(problem: NestProblem, machine: NestMachine) -> Canonical:
    """The problem in its own names: what names ranks or tensors stays valid."""
    return Canonical(problem, machine, {}, {})


def canonical(problem: NestProblem, machine: NestMachine, *, merged: bool = False) -> Canonical:
    """The problem without names; as it is where a tensor is indexed by a sum. merged: ranks that no tensor tells apart as one, which holds
    for perfect factors."""
    if any(t.affine_ranks for t in problem.tensors):
        return as_it_is(problem, machine)
    ones = _ones(problem, machine)
    problem = _without(problem, ones)
    groups, sizes = (_groups(problem, machine), problem.sizes) if merged else ({}, {})
    if groups:
        atom = {name: n for name, parts in groups.items() if (n := machine.compute.atom.get(parts[-1], 1)) > 1}
        problem, machine = merge_problem(problem, groups), replace(machine, compute=replace(machine.compute, atom=atom))
    tensors = sorted(problem.tensors, key=lambda t: _likeness(problem, machine, t))
    ranks = sorted(problem.sizes, key=lambda r: ([r not in t.ranks for t in tensors], -problem.sizes[r], machine.compute.atom.get(r, 1)))
    rank_of = {r: f"r{i}" for i, r in enumerate(ranks)}
    tensor_of = {t.name: f"t{i}" for i, t in enumerate(tensors)}
    named = tuple(replace(t, name=tensor_of[t.name], indices=tuple((rank_of[r],) for r in ranks if r in t.ranks)) for t in tensors)
    same = NestProblem(problem.name, {rank_of[r]: problem.sizes[r] for r in ranks}, named, problem.density)
    atom = {rank_of[r]: machine.compute.atom[r] for r in ranks if r in machine.compute.atom}
    levels = tuple(_renamed_level(level, tensor_of) for level in machine.levels)
    there = replace(machine, levels=levels, compute=replace(machine.compute, atom=atom))
    return Canonical(
        same, there, {new: old for old, new in rank_of.items()}, {new: old for old, new in tensor_of.items()}, ones, groups, sizes
    )


def _ones(problem: NestProblem, machine: NestMachine) -> tuple[str, ...]:
    """Ranks of one that no instruction has more of; none where a tensor would be left without ranks."""
    ones = tuple(r for r, n in problem.sizes.items() if n == 1 and machine.compute.atom.get(r, 1) == 1)
    return () if any(set(t.ranks) <= set(ones) for t in problem.tensors) else ones


def _groups(problem: NestProblem, machine: NestMachine) -> dict[str, list[str]]:
    """Merged rank → its parts, the one with an atom last; a rank that its atom does not divide, for which there are no perfect factors,
    stays alone; nothing where no ranks merge."""
    atoms = machine.compute.atom
    groups = merged_ranks(problem, [r for r, n in problem.sizes.items() if n % atoms.get(r, 1)], [r for r, n in atoms.items() if n > 1])
    return groups if len(groups) < len(problem.sizes) else {}


def _without(problem: NestProblem, ones: tuple[str, ...]) -> NestProblem:
    """The einsum without ranks of one."""
    sizes = {r: n for r, n in problem.sizes.items() if r not in ones}
    tensors = tuple(replace(t, indices=tuple(i for i in t.indices if i[0] not in ones)) for t in problem.tensors)
    return replace(problem, sizes=sizes, tensors=tensors)


def _likeness(problem: NestProblem, machine: NestMachine, tensor: NestTensor) -> Any:
    """All that is known of a tensor without names, to sort by; the output is last."""
    ranks = [(sum(r in t.ranks for t in problem.tensors), r not in problem.output.ranks, -problem.sizes[r]) for r in tensor.ranks]
    stored = [(v.bits(tensor), v.must_keep(tensor.name), tensor.name in v.bypass) for v in machine.levels]
    return tensor.is_output, sorted(ranks), tensor.bits, stored


def _renamed_level(level: NestLevel, names: Mapping[str, str]) -> NestLevel:
    """A level that names its tensors by number; what it says of others is left out."""

    def known(said: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(names[t] for t in said if t in names))

    bits = {names[t]: width for t, width in level.bits_per_tensor.items() if t in names}
    keep = None if level.keep is None else known(level.keep)
    return replace(level, bits_per_tensor=dict(sorted(bits.items())), keep=keep, bypass=known(level.bypass))
