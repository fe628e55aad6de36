"""A pipeline over accelerators of several kinds: each kind has whole stages to itself, and what lies between two kinds is handed across.

stage i      one of the pool whose accelerators it runs on: pools in a stated order, each as many stages as it has accelerators for
inside       a pool's machine prices its stages' operations, collectives and hand-overs, as if it were alone
across       up through one pool's levels to the level that joins both, and down through the other's: starts and joules of every
             network on the way, at the rate of the slowest
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.cost.network.collectives import send
from rackmodel.cost.step.cut import Cut
from rackmodel.cost.step.tasks.link_arrays import LINK_FIGURES, LinkArrays
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.placement import members
from rackmodel.model.plan import Plan

Parts = tuple[tuple[int, Plan], ...]


def stages_of_pools(machines: Sequence[Architecture], per_stage: int, order: Sequence[int]) -> tuple[int, ...] | None:
    """The pool of each stage; None where stages of so many accelerators do not fill each pool. order: of the pools along the pipeline."""
    if any(machine.used % per_stage for machine in machines):
        return None
    return tuple(pool for pool in order for _ in range(machines[pool].used // per_stage))


def parted(cut: Cut, parts: Parts, stages: Sequence[int]) -> tuple[Cut, Parts, tuple[int, ...]]:
    """(the cut, its parts, the pool of each) with the layers of every pool apart. stages: the pool of each stage."""
    of_virtual = np.array(stages)[cut.devices]
    columns, kept, pools = [], [], []
    for x, part in enumerate(parts):
        for pool in sorted(set(stages)):
            here = np.where(of_virtual == pool, cut.counts[:, x], 0)
            if here.any():
                columns.append(here)
                kept.append(part)
                pools.append(pool)
    each = tuple((stage, stage) for stage in range(cut.stages))
    return Cut(cut.stages, cut.chunks, np.stack(columns, axis=1), each, cut.folded), tuple(kept), tuple(pools)


def across(one: Pricer, other: Pricer) -> LinkArrays:
    """A byte from every accelerator of a stage of one pool to its peer in a stage of another, on every column."""
    both = [_out(pricer, _beside(pricer.architecture, others.architecture)) for pricer, others in ((one, other), (other, one))]
    levels = tuple(dict.fromkeys(level for links in both for level in links.levels))
    near, far = (_at(links, levels) for links in both)
    slower = near.seconds_per_byte.sum(axis=0) >= far.seconds_per_byte.sum(axis=0)
    means = {name: (getattr(near, name) + getattr(far, name)) / 2 for name in LINK_FIGURES}  # of each way out and back, the half out
    means["seconds_per_byte"] = np.where(slower, near.seconds_per_byte, far.seconds_per_byte)
    return LinkArrays(levels, **means)


def _out(pricer: Pricer, twice: Architecture) -> LinkArrays:
    """A byte from every accelerator of a stage to one in a branch like its own."""
    uses = []
    for i in pricer.firsts:
        mesh = pricer.mesh(i)
        here = members(mesh, mesh.axes).reshape(-1)
        uses.append(send(twice, here, here + twice.available // 2))
    return pricer.for_all(uses)


def _beside(machine: Architecture, other: Architecture) -> Architecture:
    """A pool's machine with a second one of its branch under the level that joins it with the other pool."""
    joint = [level.name for level in machine.above if level.name in {one.name for one in other.above}][-1]

    def doubled(level: Level) -> Level:
        if level.name == joint:
            own = {one.name for one in machine.path}
            return level.model_copy(update={"children": tuple(_twice(child) if child.name in own else child for child in level.children)})
        return level.model_copy(update={"children": tuple(doubled(child) for child in level.children)})

    said = {name: getattr(machine, name) for name in type(machine).model_fields}
    return Architecture.model_construct(**{**said, "accelerators": None, "tree": doubled(machine.tree)})


def _twice(level: Level) -> Level:
    return level.model_copy(update={"count": 2 * level.count})


def _at(links: LinkArrays, levels: tuple[str, ...]) -> LinkArrays:
    """The same figures under more levels."""
    n = links.latency_s.shape[1]
    places = [levels.index(level) for level in links.levels]
    figures = []
    for name in LINK_FIGURES:
        wide = np.zeros((len(levels), n))
        wide[places] = getattr(links, name)
        figures.append(wide)
    return LinkArrays(levels, *figures)
