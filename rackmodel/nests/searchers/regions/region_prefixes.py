"""Prefixes of a region: for each span of members, outermost first, an ordered subset of the outer tensors, whose nodes lie above what lives
in that span. Residents are in none; some member of the span uses each. A tensor may lie in several spans beside one another, once in each.
"""

from __future__ import annotations

from itertools import pairwise, permutations, product

from rackmodel.nests.searchers.regions.region_space import RegionSpace

Prefix = tuple[tuple[str, ...], ...]  # per span, as loops list them: tensors with nodes above its core, outer → inner


def prefixes(space: RegionSpace) -> list[Prefix]:
    """Every prefix, shortest first; an order of neighbours between which nothing is cut stands for the others."""
    spans, free = space.loops.spans, [n for n in space.tensors if n not in space.region.resident]
    found: list[Prefix] = []
    for places in product(*(_places(space, n) for n in free)):
        sets = [[n for n, mine in zip(free, places, strict=True) if span in mine] for span in range(len(spans))]
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


def _places(space: RegionSpace, name: str) -> list[tuple[int, ...]]:
    """The spans in which a tensor may lie together: none, or some beside one another, each with a member that uses it."""
    loops = space.loops
    found: list[tuple[int, ...]] = [()]
    for span in sorted({k for i in space.users[name] for k in loops.around(i)}):
        found += [(*some, span) for some in found if not set(some) & set(loops.paths[span])]
    return found


def _first_of_equal(space: RegionSpace, prefix: Prefix) -> bool:
    """Whether neighbours with the same shared ranks are in the order of their names: nothing is cut between them, so that the other
    order is the same."""
    of, has = space.of, space.has
    return all(a < b or has(of[a]) != has(of[b]) for names in prefix for a, b in pairwise(names))
