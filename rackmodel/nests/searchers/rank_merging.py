"""Ranks that no tensor tells apart are one rank to a search with perfect factors (lemma L1, docs/loop_nests.md).

Ranks that index the same tensors multiply. Exact: the exponent chain of each prime of the product splits into chains of
the parts. Not for a rank that a constraint names, that sits in a sum of indices, or that an instruction's atom cuts.
"""

from math import prod

from rackmodel.nests.problem import NestProblem, NestTensor
from rackmodel.nests.searchers.divisor_axis import factorize


def merged_ranks(problem: NestProblem, apart: set[str]) -> dict[str, list[str]]:
    """Merged rank → its parts; ranks in `apart` and ranks inside a sum stay alone."""
    apart = apart | {r for t in problem.tensors for r in t.affine_ranks}
    groups: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for r in problem.sizes:
        signature = tuple(t.name for t in problem.tensors if r in t.ranks)
        groups.setdefault((signature, r if r in apart else ""), []).append(r)
    return {"__".join(parts): parts for parts in groups.values()}


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
    """Share out the primes of `factor` over the parts; `left` holds what each part has and is reduced."""
    taken = dict.fromkeys(left, 1)
    for p, e in factorize(factor):
        for _ in range(e):
            r = next(r for r in left if left[r] % p == 0)
            left[r] //= p
            taken[r] *= p
    return taken
