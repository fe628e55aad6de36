"""The memory cap, exact: a price on memory bounds the optimum, fixing throws out what cannot be in it, CP-SAT proves the rest.

    L(λ) = min_x [ cost(x) + λ (bytes(x) − room) ]  ≤  cost of the best x that fits            for every λ ≥ 0

room is the capacity less what the widest operation works on at least. Elimination gives L(λ); the best λ lies where the cheapest
x that is too large and the cheapest that fits cost the same, found by secants. The best x met that fits is an upper bound U. With
min-marginals m(v, i) = min over x with x_v = i, a value with m > U is in no optimum and is deleted; deleting tightens λ, so this
is repeated. Source: Lagrangian relaxation with reduced-cost fixing (Fisher 1981); min-marginals by one pass down the buckets
(Dechter 1999).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.mapper.layouts.cpsat import SECONDS, CpSatSolution, solve_cpsat
from rackmodel.mapper.layouts.eliminate import Bucket, FactorTable, aligned, buckets, coarser, eliminate
from rackmodel.mapper.layouts.factors import Factors
from rackmodel.mapper.layouts.interfaces import Index
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import GRID, Weights
from rackmodel.watch import UNWATCHED, Watch

SLACK = 1e-9  # relative: a value is deleted only if it loses by more than rounding
ROUNDS, STEPS = 6, 40


@dataclass(frozen=True)
class Assignment:
    """One assignment. value: its first objective · bytes: what it holds · fits: with what its widest operation needs as well."""

    chosen: dict[str, int]
    value: float
    bytes: float
    fits: bool


def solve_capped(factors: Factors, weights: Weights, *, seconds: float = SECONDS, watch: Watch = UNWATCHED) -> CpSatSolution:
    """Least weighted sum under the memory capacity, ties by the second one, proven. Raises TooLarge."""
    best = _point(factors, weights, eliminate(factors, weights))
    if best.fits:
        return CpSatSolution(best.chosen, best.value, True)
    try:
        fixed = fix(factors, weights)
    except TooLarge:
        return solve_cpsat(factors, weights, seconds=seconds, watch=watch)
    if fixed is None:
        return CpSatSolution(None, float("inf"), True)
    keep, bound, upper = fixed
    solved = solve_cpsat(factors.only(keep), weights, seconds=seconds, watch=watch)
    if solved.chosen is not None:
        now = _point(factors, weights, {name: int(keep[name][position]) for name, position in solved.chosen.items()})
        if solved.optimal or upper is None or now.value <= upper.value:
            return CpSatSolution(now.chosen, max(bound, solved.bound), solved.optimal)
    return solved if upper is None else CpSatSolution(upper.chosen, bound, False)


def fix(factors: Factors, weights: Weights) -> tuple[dict[str, Index], float, Assignment | None] | None:
    """(values left of each variable, lower bound, best assignment met that fits); None if nothing fits. Raises TooLarge."""
    capacity = factors.capacity
    assert capacity is not None, "a problem without a capacity needs no price on memory"
    keep: dict[str, Index] = {name: np.arange(count) for name, count in factors.counts.items()}
    for name, sizes in factors.working.items():
        keep[name] = np.flatnonzero(sizes <= capacity)
    if any(len(left) == 0 for left in keep.values()):
        return None
    bound, upper = -np.inf, None
    for _ in range(ROUNDS):
        left = factors.only(keep)
        room = capacity - least_working(left)
        found = _price(left, weights, room)
        if found is None:
            return None
        price, lower, met = found
        bound = max(bound, lower)
        if met is not None and (upper is None or met.value < upper.value):
            upper = Assignment({name: int(keep[name][i]) for name, i in met.chosen.items()}, met.value, met.bytes, True)
        if upper is None:
            break
        marginals = min_marginals(buckets(left, weights, price), left)
        limit = (upper.value + price * room) * (1 + SLACK) + _rounding(left, weights)
        slimmer = {name: keep[name][marginals[name] <= limit] for name in keep}
        before, keep = keep, slimmer
        if sum(map(len, before.values())) == sum(map(len, keep.values())):
            break
    return keep, min(bound, upper.value) if upper is not None else bound, upper


def _rounding(factors: Factors, weights: Weights) -> float:
    """What rounding every table to the grid of prices can change a sum by."""
    tables = [weights.latency * f.seconds + weights.energy * f.joules for f in factors.factors]
    return GRID * len(tables) * sum(float(np.abs(table).max()) for table in tables)


def least_working(factors: Factors) -> float:
    """Bytes that some operation's pass needs beside what is held, whatever is chosen."""
    return max((float(sizes.min()) for sizes in factors.working.values()), default=0.0)


def _price(factors: Factors, weights: Weights, capacity: float) -> tuple[float, float, Assignment | None] | None:
    """(λ, L(λ), cheapest assignment met that fits) at the best λ; None if nothing fits. capacity: for what is held."""
    large = _point(factors, weights, eliminate(factors, weights))
    if large.fits or large.bytes <= capacity:
        return 0.0, large.value, large if large.fits else None
    small = _point(factors, weights, eliminate(factors, Weights(0.0, 0.0, weights.latency, weights.energy), penalty=1.0))
    if small.bytes > capacity:
        return None
    best, price, lower = small if small.fits else None, 0.0, large.value
    for _ in range(STEPS):
        price = max(0.0, (small.value - large.value) / (large.bytes - small.bytes))
        now = _point(factors, weights, eliminate(factors, weights, penalty=price))
        here = now.value + price * (now.bytes - capacity)
        lower = max(lower, here)
        if now.fits and (best is None or now.value < best.value):
            best = now
        if here >= min(p.value + price * (p.bytes - capacity) for p in (small, large)) - 1e-12 * abs(here):
            break
        if now.bytes > capacity:
            large = now
        else:
            small = now
    return price, lower, best


def _point(factors: Factors, weights: Weights, chosen: dict[str, int]) -> Assignment:
    cells = [factor.at(chosen) for factor in factors.factors]
    value = sum(weights.latency * seconds + weights.energy * joules for seconds, joules, _ in cells)
    held = sum(size for *_, size in cells)
    return Assignment(chosen, value, held, factors.capacity is None or held + factors.widest(chosen) <= factors.capacity)


def min_marginals(solved: list[Bucket], factors: Factors) -> dict[str, Array]:
    """Variable → for each value, the least first price of an assignment that has it."""
    down: dict[int, Array] = {id(bucket.message): np.zeros(bucket.message.first.shape) for bucket in solved}
    messages = {id(bucket.message): bucket for bucket in solved}
    found: dict[str, Array] = {}
    counts = factors.counts
    for bucket in reversed(solved):
        values = counts[bucket.variable]
        own = np.sum([t.first[t.classes[0]] for t in bucket.unary], axis=0) if bucket.unary else np.zeros(values)
        children = [t for t in bucket.parts if id(t) in messages]
        rest, below = _walk(bucket, own, children, down[id(bucket.message)])
        found[bucket.variable] = rest[bucket.classes] + own
        for table, least in zip(children, below, strict=True):
            down[id(table)] = least - table.first
        for table in bucket.unary:
            if id(table) in messages:
                down[id(table)] = _group(found[bucket.variable], table.classes[0], 0) - table.first
    return found


def _walk(bucket: Bucket, own: Array, children: list[FactorTable], above: Array) -> tuple[Array, list[Array]]:
    """(class of the variable → least price of everything but its unary tables; for each child, its cells → least price of
    everything). above: what the rest of the graph adds to each cell of the bucket's message."""
    variable, scope = bucket.variable, dict(zip(bucket.message.variables, bucket.message.classes, strict=True))
    slices = [(aligned(t, t.first, variable, scope), t.classes[t.variables.index(variable)]) for t in bucket.parts]
    best = own[bucket.value]
    rest = np.empty(len(bucket.value))
    below = [np.full(np.moveaxis(t.first, t.variables.index(variable), 0).shape, np.inf) for t in children]
    for number, value in enumerate(bucket.value):
        price = above.copy()
        for figures, which in slices:
            price += figures[which[value]]
        rest[number] = price.min()
        for table, least in zip(children, below, strict=True):
            row = table.classes[table.variables.index(variable)][value]
            np.minimum(least[row], _project(price, scope, table, variable) + best[number], out=least[row])
    return rest, [np.moveaxis(least, 0, t.variables.index(variable)) for t, least in zip(children, below, strict=True)]


def _project(price: Array, scope: Mapping[str, Index], table: FactorTable, variable: str) -> Array:
    """Least price for each cell of a table (without `variable`), of prices over the classes of `scope`."""
    outside = tuple(axis for axis, other in enumerate(scope) if other not in table.variables)
    price = price.min(axis=outside) if outside else price
    inside = [other for other in scope if other in table.variables]
    for axis, other in enumerate(inside):
        price = _group(price, coarser(scope[other], table.classes[table.variables.index(other)]), axis)
    return np.transpose(price, [inside.index(other) for other in table.variables if other != variable])


def _group(price: Array, which: Index, axis: int) -> Array:
    """Minimum over the entries of each class along an axis."""
    if len(which) == int(which.max()) + 1 and (which == np.arange(len(which))).all():
        return price
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(int(which.max()) + 1))
    return np.asarray(np.minimum.reduceat(np.take(price, order, axis=axis), starts, axis=axis))
