"""Copies: one conversion per distinct layout that is wanted, from the nearest copy there is; and which copy is saved.

This is the one place where the rule stands: what is derived and what the solvers optimise both ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rackmodel.model.conversion import effort, kind_of
from rackmodel.model.layout import PARTIAL, REPLICATE, Layout, is_shard


def plan_copies(present: Sequence[Layout], wanted: Iterable[Layout]) -> dict[Layout, Layout]:
    """Wanted layout → the layout it is made from, in the order in which to make them.

    The most replicated copies first, since they make the others free; each from the present copy that moves least
    (ties: the one there first).
    """
    have = list(dict.fromkeys(present))
    plan: dict[Layout, Layout] = {}
    for layout in sorted(dict.fromkeys(wanted), key=lambda lay: (-lay.count(REPLICATE), lay)):
        if layout in have:
            continue
        plan[layout] = min(have, key=lambda source: (effort(source, layout), have.index(source)))
        have.append(layout)
    return plan


def resolved(produced: Layout, wanted: Sequence[Layout]) -> Layout:
    """`produced` without Partials: each becomes what the first reader wants there, if that is a shard, else Replicate.

    The layout in which a tensor is kept, crosses a stage cut or leaves the workload.
    """
    first = next((lay for lay in wanted if PARTIAL not in lay), None)
    return tuple(
        placement if placement != PARTIAL else (first[axis] if first is not None else REPLICATE) for axis, placement in enumerate(produced)
    )


def saved_copy(policy: str, produced: Layout, forward: Sequence[Layout], backward: Sequence[Layout]) -> Layout:
    """Layout of the copy that is kept for the backward pass.

    policy: 'home' keeps it as it is (a weight is always at home); 'gathered' keeps the most replicated copy that the
    backward pass reads; 'shard' the most sharded one there is (as produced with Partials resolved, or any copy), and among
    equals, with what copies are gathered from (tokens that were sent to their experts are not sent again), the one from which
    the backward pass reads with least moved.
    backward: layouts it reads, at least one.
    """
    if policy == "home":
        return produced
    if policy == "gathered":
        return min(backward, key=lambda lay: (-lay.count(REPLICATE), backward.index(lay)))
    here = resolved(produced, [*forward, *backward])
    read = [lay for lay in forward if PARTIAL not in lay]
    there = [*backward, here, *read]
    least = min(map(_unsharded, there))
    candidates = [lay for lay in (*there, *(before_gather(here, lay) for lay in read)) if _unsharded(lay) == least]
    return min(candidates, key=lambda lay: min(effort(lay, to) for to in backward))


def _unsharded(layout: Layout) -> int:
    return sum(not is_shard(placement) for placement in layout)


def before_gather(source: Layout, target: Layout) -> Layout:
    """What `target` is gathered from on its way from `source`: its last all-gather undone (model/conversion)."""
    return tuple(now if kind_of(now, then) == "all_gather" else then for now, then in zip(source, target, strict=True))
