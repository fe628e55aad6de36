"""First mappings for tiles of any size: tiles that divide sizes a little above the real ones, ragged at the real ends.

No divisor of 2048, 4096 and 14336 fills 132 instances, and a prime has none at all. So sizes D' >= D are tried whose divisors do: every
fan filled (an ordered factorisation v of its instances over the ranks) and what is left of a rank, ceil(D / v), raised to a number with
small primes; of all D' those of the least product, that is of the fewest cycles. The optimum of their divisors is a mapping of D too, each
tile cut off at D, and is recounted there. It is a candidate only: no bound rests on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

from rackmodel.errors import InfeasibleError
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.mapping import NestMapping, StorageNode
from rackmodel.nests.problem import NestProblem
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort, Exhausted
from rackmodel.nests.searchers.mapspace.list_axes import divisors
from rackmodel.nests.searchers.mapspace.space import Space
from rackmodel.nests.searchers.tables.slices import SliceSearch
from rackmodel.nests.solution import Best, better_of

CELLS = 25e6  # that may be priced
PRIMES = (2, 3, 5, 7)  # of what the fans leave of a rank
SMALL, FILLS = 30_000, 20_000  # MACs up to which nothing is tried, ways to fill the fans that are looked at


def padded_best(q: NestQuestion, best: Best | None) -> tuple[Best | None, int]:
    """(the best of `best` and a mapping of padded sizes, cells priced). Where a port takes longer than the compute nothing is tried."""
    p, m = q.problem, q.machine
    if p.macs <= SMALL or q.constraints.tiles or len(q.masks) > 1 or q.effort.over:
        return best, 0
    if best is not None and best.cost.times_s[m.compute.name] < best.cost.latency_s:
        return best, 0
    sizes = padded_sizes(q)
    if sizes == p.sizes:
        return best, 0
    space = Space(with_sizes(p, sizes), m, q.masks[0], q.constraints)
    search = SliceSearch(space, q.objective, None, Effort(min(CELLS, q.effort.cells), q.effort.ends))
    with suppress(InfeasibleError, Exhausted):
        search.run()
    q.effort.late |= search.energy.effort.late
    if search.best is not None:
        mapping = cut_off(search.best.mapping, p.sizes)
        best = better_of(best, Best.of(q.objective, mapping, evaluate(p, m, mapping)))
    return best, search.cells


def with_sizes(problem: NestProblem, sizes: dict[str, int]) -> NestProblem:
    """The einsum with other sizes."""
    return replace(problem, sizes=dict(sizes))


def padded_sizes(q: NestQuestion) -> dict[str, int]:
    """Sizes no smaller than the real ones that fill every fan, of the least product; the real ones where there are too many ways."""
    ranks, sizes = list(q.problem.sizes), list(q.problem.sizes.values())
    leaf = [*q.machine.compute.leaf(ranks).values()]
    fills: set[tuple[int, ...]] = {(1,) * len(ranks)}
    for level in q.machine.levels:
        ways = list(_ways(level.fan.size, len(ranks)))
        if len(fills) * len(ways) > FILLS:
            return q.problem.sizes
        fills = {tuple(a * b for a, b in zip(v, w, strict=True)) for v in fills for w in ways}
    found = {tuple(v * u * raised(-(-n // (v * u))) for n, v, u in zip(sizes, fill, leaf, strict=True)) for fill in fills}
    return dict(zip(ranks, min(found, key=lambda n: (prod(n), n)), strict=True))


def _ways(n: int, ranks: int) -> Iterator[tuple[int, ...]]:
    """Every ordered factorisation of n into one factor a rank."""
    if ranks == 1:
        yield (n,)
        return
    for divisor in divisors(n):
        for rest in _ways(n // divisor, ranks - 1):
            yield (divisor, *rest)


def raised(n: int) -> int:
    """The least number from n on that has small primes alone."""
    while _left(n) > 1:
        n += 1
    return n


def _left(n: int) -> int:
    for prime in PRIMES:
        while n % prime == 0:
            n //= prime
    return n


def cut_off(mapping: NestMapping, sizes: Mapping[str, int]) -> NestMapping:
    """The mapping of smaller sizes: every tile that is larger is the whole rank."""

    def nodes(level: Sequence[StorageNode]) -> tuple[StorageNode, ...]:
        return tuple(StorageNode(n.tensor, {r: min(t, sizes[r]) for r, t in n.tile.items()}) for n in level)

    return replace(mapping, levels=tuple(replace(v, nodes=nodes(v.nodes)) for v in mapping.levels))
