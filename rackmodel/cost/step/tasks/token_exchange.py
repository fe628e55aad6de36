"""Tokens sent to their experts and back as a profile says: by a library's kernels, where the network was measured
(cost/network/exchanges), relayed, or gathered.

    gathered    V = n · R · v  all-gathered before experts, and reduce-scattered behind them, whatever experts a token chose
    relayed     V = n · c(N) · v over a level's network, N: its children that hold the group, c(N): those of them that hold one of a token's
                experts (ranks_reached). A token goes to one rank of each, and on from there over the network below; levels work at once.
                Levels that the same links join (tiers of a fat tree, NVLink of a node and its rack) are one

n: tokens of a rank · R: ranks · v: bytes of a token's vector. An all-to-all sends n · k · v (R - 1) / R instead, k experts of a token: as
much as gathering where R is k, more on fewer ranks. Source (relayed): deepseek-ai/DeepEP, README, normal kernels with NVLink and RDMA
forwarding; RECALLED: they fill the network between nodes (43 to 58 of some 50 GB/s, copies that stay counted) while NVLink hands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.network.exchanges import TokenExchange, copies_sent, exchange_seconds, ranks_reached
from rackmodel.cost.network.fabric import ports_of
from rackmodel.cost.program.sent_tokens import SentTokens, sent_tokens
from rackmodel.cost.program.tasks import Crowd, Task
from rackmodel.cost.step.tasks.link_arrays import LinkArrays
from rackmodel.cost.step.tasks.link_pricer import LinkPricer
from rackmodel.model.architecture import Tier
from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED, RELAYED, ExchangeMode


def exchanged(pricer: LinkPricer, task: Task, volume: Array, ring: LinkArrays, otherwise: LinkArrays) -> LinkArrays:
    """An all-to-all of tokens and experts by the library's kernels: its own copies of the tokens, in its own elements, are what links
    carry. Where the outermost network in use does not know them: relayed, as by normal kernels, or `otherwise`, each to its experts, as by
    those of low latency. ring: the same by a ring · volume: [n] bytes of a rank."""
    calls = pricer.setting.calls
    sent = _sent(pricer, task)
    if sent is None or calls is None or calls.exchanging == ALL_TO_ALL:
        return otherwise
    joined = pricer.architecture.tiers[int(pricer.ask(ports_of)[0, 1])]
    inside = joined.below * joined.children  # accelerators that the innermost links join: NVLink of a node, or of a rack
    exchange = TokenExchange(
        tokens=volume / (sent.top * sent.bytes),
        hidden=sent.hidden,
        top=sent.top,
        experts=sent.experts,
        ranks=np.broadcast_to(pricer.degrees[:, list(task.axes)].prod(axis=1), (pricer.n,)),
        nodes=pricer.on_columns([len(np.unique(groups[0] // inside)) for groups in pricer.groups(task)]),
        sms=calls.asked.exchange_sms,
        groups=sent.groups,
        kept=sent.kept,
    )
    asked = calls.asked.exchange_mode
    normal = pricer.prompting if asked == "auto" else np.full(pricer.n, asked == "normal")
    relays = pricer.calling((ring.outermost >= 0) & (normal | (calls.exchanging == RELAYED)), volume)
    found = otherwise.replaced(relays, relayed(pricer, task, sent, otherwise)) if relays.any() else otherwise
    for tier, mode in product(range(len(ring.levels)), get_args(ExchangeMode)):
        known = calls.exchange(ring.levels[tier], mode)
        here = pricer.calling((ring.outermost == tier) & (normal == (mode == "normal")), volume)
        if known is None or not here.any():
            continue
        times = (known.dispatch if sent.way == "dispatch" else known.combine).sending(sent.bytes / sent.hidden)
        start = np.zeros((len(ring.levels), pricer.n))  # (a ring's may be one for all)
        start[tier] = exchange_seconds(times, known.copying, exchange) / pricer.setting.links
        carried = copies_sent(known.copying, exchange) * sent.hidden * times.element_bytes / (sent.top * sent.bytes)
        own = replace(
            ring,
            wire_bytes_per_byte=ring.wire_bytes_per_byte * carried,
            joules_per_byte=ring.joules_per_byte * carried,
            seconds_per_byte=np.zeros_like(start),
            latency_s=start,
        )
        found = found.replaced(here, own)
    return found


def relayed(pricer: LinkPricer, task: Task, sent: SentTokens, otherwise: LinkArrays) -> LinkArrays:
    """The same where each token goes once to every child of a level that holds one of its experts; of levels that the same links join
    (`Fabric.ports`) straight to every child of the innermost. otherwise: each to its experts, which stands where ranks are in one child
    alone, or not as many in each."""
    boxes = pricer.algorithm(task, "hierarchical")
    boxes = replace(boxes, seconds_per_byte=boxes.seconds_per_byte / pricer.setting.links)
    cannot = np.asarray(np.isinf(boxes.seconds_per_byte).any(axis=0))
    tiers, (first, last, pace) = pricer.architecture.tiers, pricer.ask(ports_of).T
    first, last = first.astype(int), last.astype(int)
    groups = [every[0] for every in pricer.groups(task)]
    inside = [_parts(pricer, groups, tier.below) for tier in tiers]
    around = [_parts(pricer, groups, tier.below * tier.children) for tier in tiers]
    reached = [ranks_reached(sent.top, sent.experts, count, sent.groups, sent.kept) / sent.top for count in inside]
    copies = np.array([reached[inner] * around[outer] / around[tier] for tier, (inner, outer) in enumerate(zip(first, last, strict=True))])
    copies = np.where(cannot, reached[0], copies)  # to ranks, wherever they are
    base = boxes.replaced(cannot, otherwise)
    seconds = base.seconds_per_byte * copies
    busy = np.array([_of_links(seconds, tiers, pace, inner, tier) for tier, inner in enumerate(first)])
    slowest = np.arange(len(seconds))[:, None] == busy.argmax(axis=0)
    return replace(
        base,
        wire_bytes_per_byte=base.wire_bytes_per_byte * copies,
        joules_per_byte=base.joules_per_byte * copies,
        seconds_per_byte=np.where(cannot, seconds, np.where(slowest, busy, 0.0)),
    )


def _parts(pricer: LinkPricer, groups: Sequence[Ints], size: int) -> Array:
    """[n] runs of `size` accelerators that hold a group."""
    return pricer.on_columns([len(np.unique(group // size)) for group in groups])


def _of_links(seconds: Array, tiers: Sequence[Tier], pace: Array, first: int, last: int) -> Array:
    """[n] seconds of links that join the tiers from `first` to `last`, at the rate of those into the first; or of the last network, where
    its switches are fewer or slower. pace: of each tier its rate over the first one's."""
    through = sum(seconds[tier] / tiers[tier].network.oversubscription * pace[tier] for tier in range(first, last + 1))
    return np.asarray(np.maximum(seconds[last], through))


def sent_as(pricer: LinkPricer, task: Task) -> tuple[Task, Array | float | None]:
    """(the collective in the place of an all-to-all of tokens where a profile gathers them, [n] its bytes over those of the all-to-all as
    the workload has them); of another all-to-all of tokens the same, for they may go narrowed; any other task as it is, and None."""
    calls, sent = pricer.setting.calls, _sent(pricer, task)
    if calls is None or sent is None:
        return task, None
    if calls.exchanging != GATHERED:
        return task, sent.share if sent.share < 1 else None
    ranks = np.broadcast_to(pricer.degrees[:, list(task.axes)].prod(axis=1), (pricer.n,))
    every = replace(task.volume, cuts=tuple(cut for cut in task.volume.cuts if not isinstance(cut[1], Crowd)))  # whoever wants them
    return replace(task, action="all_gather" if sent.way == "dispatch" else "reduce_scatter", volume=every), ranks / sent.top * sent.share


def crowded(pricer: LinkPricer, task: Task, links: LinkArrays, fullest: Array) -> Array:
    """[n] bytes of an all-to-all whose seconds are those of one with a crowd at one rank, fullest [n] bytes: of R ranks of which one has m
    times the mean, each other has (R - m) / (R - 1) of it, and links that only relay carry m less that more of what goes to the one. Of
    switches, and of what is not sent straight from rank to rank, the fullest."""
    axes, crowd = next(((axes, one) for _, one, axes in task.volume.cuts if isinstance(one, Crowd)), ((), None))
    if crowd is None or task.action != "all_to_all" or set(axes) != set(task.axes):
        return fullest
    straight, to_one = (pricer.algorithm(one, "ring").seconds_per_byte.sum(axis=0) for one in (task, replace(task, action="to_one")))
    slope = links.seconds_per_byte.sum(axis=0) * pricer.setting.links
    relayed = np.isclose(slope, straight, rtol=1e-9) & (to_one < straight * (1.0 - 1e-9))
    ranks = pricer.degrees[:, list(axes)].prod(axis=1)
    most = crowd.over(ranks)
    rest = (ranks - most) / np.maximum(ranks - 1, 1)
    share = np.divide(to_one, straight, out=np.ones_like(straight), where=straight > 0)
    return np.where(relayed, fullest * (rest + (most - rest) * share) / most, fullest)


def _sent(pricer: LinkPricer, task: Task) -> SentTokens | None:
    """The tokens, or in a backward pass their gradients, that an all-to-all sends to their experts or back; None of any other task."""
    if task.action != "all_to_all":
        return None
    calls, gradient = pricer.setting.calls, goes_back(task)
    narrowed = calls.asked.narrowed if calls is not None and not gradient else ()
    return sent_tokens(pricer.workload, task.tensor, narrowed, gradient=gradient)


def goes_back(task: Task) -> bool:
    """Whether an all-to-all of tokens has their gradients, which go the other way: those of what experts made go to the experts."""
    return task.action == "all_to_all" and task.phase == "backward"
