"""Shared experts that run beside the routed ones, on a stream of their own.

    both       max(t of the shared ones, t of the routed ones, seconds for which both together keep the accelerator's memory, units of a
               kind, or a network)
    hidden     what they take one after the other, less that: taken off those that are shorter

Which steps do so is a fact of an engine (`engine.shared_experts` of a profile). Routed is all from the router to the sum of what its
experts made; shared is what else is made of the same tokens and added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.network.calls import MachineCalls
from rackmodel.cost.step.tasks.items import Item
from rackmodel.errors import InputError
from rackmodel.model.calls import KNOWN_EXCHANGES
from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED, RELAYED
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

Branches = tuple[frozenset[str], frozenset[str]]
"""Operations of shared experts, and of the routed ones that they are added to."""


def branches_of(workload: Workload) -> Branches | None:
    """Those of a section; None where it has not both."""
    dispatch = next((op for op in workload.ops.values() if op.kind.name == "dispatch"), None)
    if dispatch is None:
        return None
    tokens = dispatch.ins[0].tensor
    for op in workload.ops.values():
        if op.kind.name != "add" or len(op.ins) != 2:
            continue
        parts = [_made_of(workload, access.tensor, tokens) for access in op.ins]
        if parts[0] and parts[1] and (dispatch.name in parts[0]) != (dispatch.name in parts[1]):
            routed, shared = parts if dispatch.name in parts[0] else parts[::-1]
            assert routed is not None
            assert shared is not None
            return shared - routed, routed
    return None


def _made_of(workload: Workload, tensor: str, tokens: str) -> frozenset[str] | None:
    """The operations between `tokens` and a tensor; None where it is made of anything else than these and weights."""
    found: set[str] = set()
    pending = [tensor]
    while pending:
        name = pending.pop()
        maker = workload.producer.get(name)
        if name == tokens or workload.tensors[name].kind == "weight" or maker in found:
            continue
        if maker is None:
            return None
        found.add(maker)
        pending += [access.tensor for access in workload.ops[maker].ins]
    return frozenset(found)


def runs_beside(profile: ProfileSpec, calls: MachineCalls | None, tokens: Array, captured: Bools | None) -> Bools:
    """[n] whether shared experts of steps run beside the routed ones. calls: collectives of the machine's networks, None = of no library ·
    tokens: [n] of a rank's step · captured: [n] those that run as graphs, None = none. Raises InputError for an exchange of tokens that
    nobody knows."""
    facts = profile.engine.shared_experts if profile.engine is not None else None
    graphs = np.zeros(len(tokens), dtype=bool) if captured is None else captured
    if facts is None:
        return np.zeros(len(tokens), dtype=bool)
    known = list(dict.fromkeys((GATHERED, RELAYED, ALL_TO_ALL, *KNOWN_EXCHANGES, *(calls.ways if calls is not None else ()))))
    unknown = next((way for way in facts.without if way not in known), None)
    if unknown is not None:
        fact = f"no exchange of tokens by '{unknown}' is known"
        raise InputError(fact, path="profile.engine.shared_experts.without", known=known, given=unknown)
    if calls is not None and calls.exchanging in facts.without:
        return np.zeros(len(tokens), dtype=bool)
    few = tokens <= (np.inf if facts.tokens is None else facts.tokens)
    return np.asarray(few if facts.steps == "all" else few & graphs)


def beside(items: Sequence[Item], branches: Branches, there: Bools, memory: str) -> tuple[Item, ...]:
    """The tasks of a layer, with what runs beside others of them taken off, what windows hide with it. there: [n] steps that have it so ·
    memory: the level of the accelerator's memory, which alone kernels cannot have each for itself."""
    mine = [[number for number, item in enumerate(items) if item.task.einsum in names and item.role == "device"] for names in branches]
    none = np.zeros(len(there))
    shared, routed = (sum((items[number].on_lane(1.0) for number in numbers), none) for numbers in mine)
    least = np.maximum.reduce([shared, routed, *_kept_busy([items[number] for numbers in mine for number in numbers], memory, none)])
    hidden = np.where(there, np.maximum(shared + routed - least, 0.0), 0.0)
    found = list(items)
    for numbers, seconds, shorter in ((mine[0], shared, shared <= routed), (mine[1], routed, shared > routed)):
        left = 1.0 - np.divide(hidden, seconds, out=np.zeros_like(hidden), where=shorter & (seconds > 0))
        for number in numbers:
            found[number] = replace(items[number], hidden=items[number].seconds - left * items[number].on_lane(1.0))
    return tuple(found)


def _kept_busy(items: Sequence[Item], memory: str, none: Array) -> list[Array]:
    """[n] seconds for which tasks keep the memory, each kind of units and each network, whatever they do there, all together."""
    found: dict[tuple[str, str], Array] = {}
    for item in items:
        for row in item.rows:
            if row.component != "memory" or row.level == memory:
                key = row.level, row.component if row.component in ("memory", "network") else row.action
                found[key] = found.get(key, none) + row.seconds
    return list(found.values())
