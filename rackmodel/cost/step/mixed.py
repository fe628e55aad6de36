"""A step whose layers run under different recompute policies: each section once for every policy, each stage its own counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.step import figures
from rackmodel.cost.step.step_price import GroupPrice

Mixes = Sequence[Sequence[Sequence[int]]]  # stage → section of layers → policy → layers


def deal(layers: Sequence[bool], repeats: Sequence[int], mixes: Mixes | NDArray[np.int64]) -> list[tuple[int, int, NDArray[np.int64]]]:
    """(section, policy, [stages] layers of them) for every policy of every section; the ends whole, in the first and the last stage."""
    counts = np.asarray(mixes, dtype=np.int64)  # [stages, layer sections, policies]
    found, number = [], 0
    for x, is_layer in enumerate(layers):
        if is_layer:
            found += [(x, policy, counts[:, number, policy]) for policy in range(counts.shape[2])]
            number += 1
        else:
            where = np.zeros(len(counts), dtype=np.int64)
            where[0 if number == 0 else -1] = repeats[x]
            found.append((x, 0, where))
    return found


def mixed(price: GroupPrice, mixes: Mixes) -> tuple[GroupPrice, Cut]:
    """The price of one column whose plans differ in policy alone, with every policy of a section as a section of its own, and
    the cut that gives each stage its layers of each."""
    dealt = deal(price.layers, price.repeats, mixes)
    costs = [price.costs[x][policy] for x, policy, _ in dealt]
    repeats = [int(where.sum()) for *_, where in dealt]
    own = [replace(figures([cost]), repeat=total) for cost, total in zip(costs, repeats, strict=True)]
    first = np.zeros(1, dtype=np.int64)
    whole = replace(
        price,
        costs=tuple((cost,) for cost in costs),
        sections=tuple(own),
        sends=price.sends.plans(first),
        volumes=price.volumes[:1],
        shared=price.shared[:1],
        repeats=tuple(repeats),
        layers=tuple(price.layers[x] for x, *_ in dealt),
    )
    return whole, cut_by_counts(np.stack([where for *_, where in dealt], axis=1))


def cut_by_counts(counts: NDArray[np.int64]) -> Cut:
    """The cut of stages of one chunk each that hold `counts` [stages, sections] layers."""
    before = np.vstack([np.zeros((1, counts.shape[1]), dtype=np.int64), np.cumsum(counts, axis=0)])[: len(counts)]
    return Cut(len(counts), 1, counts, counts, before, tuple((stage, stage) for stage in range(len(counts))))
