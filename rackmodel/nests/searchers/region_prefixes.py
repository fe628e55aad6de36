"""Prefixes of a region: for each span of members, outermost first, an ordered subset of the outer tensors, whose nodes lie above what lives
in that span. Residents are in none; some member of the span uses each.
"""

from __future__ import annotations

from itertools import pairwise, permutations, product

from rackmodel.nests.searchers.region_space import RegionSpace

Prefix = tuple[tuple[str, ...], ...]  # per span, outermost first: tensors with nodes above its core, outer → inner


def prefixes(space: RegionSpace) -> list[Prefix]:
    """Every prefix, shortest first; an order of neighbours between which nothing is cut stands for the others."""
    spans, free = space.loops.spans, [n for n in space.tensors if n not in space.region.resident]
    found: list[Prefix] = []
    for places in product(range(-1, len(spans)), repeat=len(free)):
        sets = [[n for n, k in zip(free, places, strict=True) if k == span] for span in range(len(spans))]
        if all(_inside(space, n, k) for k, names in enumerate(sets) for n in names):
            found += [orders for orders in product(*(permutations(names) for names in sets)) if _first_of_equal(space, orders)]
    return sorted(found, key=lambda prefix: (sum(map(len, prefix)), [[free.index(n) for n in names] for names in prefix]))


def equals(space: RegionSpace, prefix: Prefix) -> list[Prefix]:
    """The orders that a prefix stands for, itself among them."""
    of, has = space.of, space.has
    return [
        orders
        for orders in product(*map(permutations, prefix))
        if all([has(of[n]) for n in one] == [has(of[n]) for n in other] for one, other in zip(orders, prefix, strict=True))
    ]


def _inside(space: RegionSpace, name: str, span: int) -> bool:
    first, last = space.loops.spans[span]
    return any(first <= i <= last for i in space.users[name])


def _first_of_equal(space: RegionSpace, prefix: Prefix) -> bool:
    """Whether neighbours with the same shared ranks are in the order of their names: nothing is cut between them, so that the other
    order is the same."""
    of, has = space.of, space.has
    return all(a < b or has(of[a]) != has(of[b]) for names in prefix for a, b in pairwise(names))
