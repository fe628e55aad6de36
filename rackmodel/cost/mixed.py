"""A step whose layers run under different recompute policies: each section once for every policy, each stage its own counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.cut import Cut
from rackmodel.cost.step import Figures, figures
from rackmodel.cost.step_price import GroupPrice

Mixes = Sequence[Sequence[Sequence[int]]]  # stage → section of layers → policy → layers


def mixed(price: GroupPrice, mixes: Mixes) -> tuple[GroupPrice, Cut]:
    """The price of one column whose plans differ in policy alone, with every policy of a section as a section of its own, and
    the cut that gives each stage its layers of each."""
    counts = np.asarray(mixes, dtype=np.int64)  # [stages, layer sections, policies]
    own: list[Figures] = []
    costs, repeats, flags, columns = [], [], [], []
    number = 0
    for x, is_layer in enumerate(price.layers):
        if not is_layer:
            where = np.zeros(len(counts), dtype=np.int64)
            where[0 if number == 0 else -1] = price.repeats[x]
            picked = [(0, where)]
        else:
            picked = [(policy, counts[:, number, policy]) for policy in range(counts.shape[2])]
            number += 1
        for policy, where in picked:
            cost = price.costs[x][policy]
            total = int(where.sum())
            costs.append((cost,))
            repeats.append(total)
            flags.append(is_layer)
            columns.append(where)
            own.append(replace(figures([cost]), repeat=total))
    first = np.zeros(1, dtype=np.int64)
    whole = replace(
        price,
        costs=tuple(costs),
        sections=tuple(own),
        sends=price.sends.plans(first),
        volumes=price.volumes[:1],
        shared=price.shared[:1],
        repeats=tuple(repeats),
        layers=tuple(flags),
    )
    return whole, cut_by_counts(np.stack(columns, axis=1))


def cut_by_counts(counts: NDArray[np.int64]) -> Cut:
    """The cut of stages of one chunk each that hold `counts` [stages, sections] layers."""
    before = np.vstack([np.zeros((1, counts.shape[1]), dtype=np.int64), np.cumsum(counts, axis=0)])[: len(counts)]
    return Cut(len(counts), 1, counts, counts, before, tuple((stage, stage) for stage in range(len(counts))))
