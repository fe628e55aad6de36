"""Tokens sent to their experts and back as a profile says: by a library's kernels, where the network was measured
(cost/network/exchanges), relayed, or gathered.

    gathered    V = n · R · v  all-gathered before experts, and reduce-scattered behind them, whatever experts a token chose
    relayed     V = n · c(N) · v over a level's network, N: its children that hold the group, c(N): those of them that hold one of a token's
                experts (ranks_reached). A token goes to one rank of each, and on from there over the network below; levels work at once

n: tokens of a rank · R: ranks · v: bytes of a token's vector. An all-to-all sends n · k · v (R - 1) / R instead, k experts of a token: as
much as gathering where R is k, more on fewer ranks. Source (relayed): deepseek-ai/DeepEP, README, normal kernels with NVLink and RDMA
forwarding; RECALLED: they fill the network between nodes (43 to 58 of some 50 GB/s, copies that stay counted) while NVLink hands on.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.network.exchanges import TokenExchange, copies_sent, exchange_seconds, ranks_reached
from rackmodel.cost.program.sent_tokens import SentTokens, sent_tokens
from rackmodel.cost.program.tasks import Crowd, Task
from rackmodel.cost.step.link_arrays import LinkArrays
from rackmodel.model.exchanges import ALL_TO_ALL, GATHERED, ExchangeMode

if TYPE_CHECKING:
    from rackmodel.cost.step.pricer import Pricer

Array = NDArray[np.float64]


def exchanged(pricer: Pricer, task: Task, volume: Array, ring: LinkArrays, otherwise: LinkArrays) -> LinkArrays:
    """An all-to-all of tokens and experts by the library's kernels; `otherwise` where the outermost network in use does not know them.
    Its own copies of the tokens, in its own elements, are what links carry. ring: the same by a ring · volume: [n] bytes of a rank."""
    calls = pricer.setting.calls
    sent = sent_tokens(pricer.workload, task.tensor) if task.action == "all_to_all" else None
    if sent is None or calls is None or calls.asked.exchange == ALL_TO_ALL:
        return otherwise
    inside = pricer.architecture.tiers[0].below * pricer.architecture.tiers[0].children  # accelerators that the innermost network joins
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
    asked, found = (
        calls.asked.exchange_mode,
        otherwise.replaced(pricer.calling(ring.outermost >= 0, volume), relayed(pricer, task, sent, otherwise)),
    )
    normal = pricer.prompting if asked == "auto" else np.full(pricer.n, asked == "normal")
    for tier, mode in product(range(len(ring.levels)), get_args(ExchangeMode)):
        known = calls.exchange(ring.levels[tier], mode)
        here = pricer.calling((ring.outermost == tier) & (normal == (mode == "normal")), volume)
        if known is None or not here.any():
            continue
        times = known.dispatch if sent.way == "dispatch" else known.combine
        start = np.zeros((len(ring.levels), pricer.n))  # (a ring's may be one for all)
        start[tier] = exchange_seconds(times, mode, exchange) / pricer.setting.links
        carried = copies_sent(mode, exchange) * sent.hidden * times.element_bytes / (sent.top * sent.bytes)
        own = replace(
            ring,
            wire_bytes_per_byte=ring.wire_bytes_per_byte * carried,
            joules_per_byte=ring.joules_per_byte * carried,
            seconds_per_byte=np.zeros_like(start),
            latency_s=start,
        )
        found = found.replaced(here, own)
    return found


def relayed(pricer: Pricer, task: Task, sent: SentTokens, otherwise: LinkArrays) -> LinkArrays:
    """The same where each token goes once to every child of a level that holds one of its experts. otherwise: each to its experts, which
    stands where ranks are in one child alone, or not as many in each."""
    boxes = pricer.algorithm(task, "hierarchical")
    boxes = replace(boxes, seconds_per_byte=boxes.seconds_per_byte / pricer.setting.links)
    cannot = np.asarray(np.isinf(boxes.seconds_per_byte).any(axis=0))
    groups = [every[0] for every in pricer.groups(task)]
    holders = [pricer.on_columns([len(np.unique(group // tier.below)) for group in groups]) for tier in pricer.architecture.tiers]
    copies = np.array([ranks_reached(sent.top, sent.experts, count, sent.groups, sent.kept) for count in holders]) / sent.top
    copies = np.where(cannot, copies[0], copies)  # to ranks, wherever they are
    base = boxes.replaced(cannot, otherwise)
    seconds = base.seconds_per_byte * copies
    slowest = np.arange(len(seconds))[:, None] == seconds.argmax(axis=0)
    return replace(
        base,
        wire_bytes_per_byte=base.wire_bytes_per_byte * copies,
        joules_per_byte=base.joules_per_byte * copies,
        seconds_per_byte=np.where(slowest | cannot, seconds, 0.0),
    )


def gathered(pricer: Pricer, task: Task) -> tuple[Task, Array | None]:
    """(the collective in the place of an all-to-all of tokens where a profile gathers them, [n] its bytes over those of the all-to-all);
    any other task as it is, and None."""
    calls = pricer.setting.calls
    if calls is None or calls.asked.exchange != GATHERED or task.action != "all_to_all":
        return task, None
    sent = sent_tokens(pricer.workload, task.tensor)
    if sent is None:
        return task, None
    ranks = np.broadcast_to(pricer.degrees[:, list(task.axes)].prod(axis=1), (pricer.n,))
    every = replace(task.volume, cuts=tuple(cut for cut in task.volume.cuts if not isinstance(cut[1], Crowd)))  # whoever wants them
    return replace(task, action="all_gather" if sent.way == "dispatch" else "reduce_scatter", volume=every), ranks / sent.top
