"""Ranks that no tensor tells apart are one rank to a search with perfect factors (lemma L1, docs/nest_theory.md).

Ranks that index the same tensors multiply. Exact: the exponent chain of each prime of the product splits into chains of
the parts. One of them may have an instruction's atom: it is cut last (split_factor takes primes in the order of the parts), and
every tile has the atom left. Not for a second rank with an atom, one that a constraint names, or one in a sum of indices.
"""

from collections.abc import Collection, Mapping, Sequence
from math import prod

from rackmodel.nests.problem import NestProblem, NestTensor
from rackmodel.nests.searchers.mapspace.divisor_axis import factorize


def merged_ranks(
    problem: NestProblem, apart: Collection[str], atoms: Collection[str] = (), among: Mapping[str, Sequence[str]] | None = None
) -> dict[str, list[str]]:
    """Merged rank → its parts, the one with an atom last; ranks in `apart` and ranks inside a sum stay alone. atoms: ranks that have one
    (of a merged rank one part) · among: ranks that are merged already, which are merged further. A tile of these that leaves less of the
    rank with an atom than it needs is for the caller to rule out: the product may still hold one."""
    alone = {r for t in problem.tensors for r in t.affine_ranks} | set(apart)
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    with_atom: dict[tuple[tuple[str, ...], str], str] = {}
    for own in among.values() if among else ([r] for r in problem.sizes):
        first = own[0]
        signature = tuple(t.name for t in problem.tensors if first in t.ranks)
        key = (signature, first if first in alone else "")
        if not set(atoms).isdisjoint(own) and with_atom.setdefault(key, first) != first:
            key = (signature, first)
        groups.setdefault(key, []).extend(own)
    every = (sorted(parts, key=lambda r: r in atoms) for parts in groups.values())
    return {"__".join(parts): parts for parts in every}


def merge_problem(problem: NestProblem, groups: dict[str, list[str]]) -> NestProblem:
    """The same einsum in merged ranks."""
    name_of = {r: name for name, parts in groups.items() for r in parts}
    tensors = []
    for t in problem.tensors:
        plain = dict.fromkeys(name_of[r] for r in t.ranks if r not in t.affine_ranks)
        sums = tuple(i for i in t.indices if len(i) > 1 or i[0] not in name_of)
        tensors.append(NestTensor(t.name, tuple((r,) for r in plain) + sums, t.bits, t.is_output))
    sizes = {name: prod(problem.sizes[r] for r in parts) for name, parts in groups.items()}
    return NestProblem(problem.name, sizes, tuple(tensors), problem.density)


def split_factor(factor: int, left: dict[str, int]) -> dict[str, int]:
    """Share out the primes of `factor` over the parts, the first that has one; `left` holds what each part has and is reduced."""
    taken = dict.fromkeys(left, 1)
    for p, e in factorize(factor):
        for _ in range(e):
            r = next(r for r in left if left[r] % p == 0)
            left[r] //= p
            taken[r] *= p
    return taken
