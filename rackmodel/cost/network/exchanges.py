"""Seconds of sending tokens to their experts and back, by the facts of a network (`model/exchanges`).

    T = start + ((work / workers)^q + (wire / link)^q)^(1 / q)
    normal        wire = n · c · v,        work = n (c + local) (v + copy),   workers = SMs,
                  c = R (1 - C(E - E/R, k) / C(E, k)): ranks of R that hold one of a token's k experts of E, each as likely
    low latency   wire = work = n · k · v, workers = experts; over several nodes the wire is what leaves the node, 1 - 1 / nodes of it

n: tokens of a rank, v: bytes of a token's vector on the way. Source of the form: least squares on 6,500 calls of DeepEP on six GPUs
(NVIDIA aiconfigurator's measurements), the numbers by `rackmodel calibrate`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.model.exchanges import ExchangeMode, ExchangeTimes


@dataclass(frozen=True, kw_only=True)
class TokenExchange:
    """n exchanges, each figure [n] or one. tokens: of a rank · hidden: elements of a token's vector · top: experts of a token · experts: in
    all · ranks, nodes: that hold them · sms: that a normal exchange may use · groups, kept: of experts, as of `ranks_reached`."""

    tokens: Any
    hidden: Any
    top: Any
    experts: Any
    ranks: Any
    nodes: Any = 1
    sms: Any = 24
    groups: int = 1
    kept: int = 1

    def only(self, which: Any) -> TokenExchange:
        """Some of them."""
        names = ("tokens", "hidden", "top", "experts", "ranks", "nodes", "sms")
        values: dict[str, Any] = {name: np.asarray(getattr(self, name)) for name in names}
        return replace(self, **{name: value[which] if value.ndim else value for name, value in values.items()})


def exchange_seconds(times: ExchangeTimes, mode: ExchangeMode, exchange: TokenExchange) -> Array:
    """[n] seconds of one way."""
    one = exchange
    vector = np.asarray(one.hidden * times.element_bytes, dtype=np.float64)
    if mode == "normal":
        copies, workers = copies_sent(mode, one), one.sms
        work = one.tokens * (copies + times.local) * (vector + times.copy_bytes)
    else:
        copies, workers = copies_sent(mode, one), one.experts
        work = one.tokens * copies * (vector + times.copy_bytes)
    outside = np.where(np.asarray(one.nodes) > 1, 1.0 - 1.0 / np.asarray(one.nodes), 1.0)
    wire = one.tokens * copies * vector * outside / times.link_bytes_per_s
    busy = work / (workers * times.worker_bytes_per_s) if times.worker_bytes_per_s is not None else 0.0
    start = times.start_s + times.start_of_vector_s * vector / 1024 + times.start_of_expert_s * one.experts
    q = times.together
    longest = np.maximum(busy, wire)
    shares = np.where(longest > 0, (busy / np.maximum(longest, 1e-30)) ** q + (wire / np.maximum(longest, 1e-30)) ** q, 0.0)
    return np.asarray(start + times.start_of_node_s * one.nodes + longest * shares ** (1 / q))


def copies_sent(mode: ExchangeMode, exchange: TokenExchange) -> Array:
    """Copies of a token that are sent: to every rank that holds one of its experts, or to every expert."""
    if mode == "normal":
        return ranks_reached(exchange.top, exchange.experts, exchange.ranks, exchange.groups, exchange.kept)
    return np.asarray(exchange.top, dtype=np.float64)


def ranks_reached(top: Any, experts: Any, ranks: Any, groups: int = 1, kept: int = 1) -> Array:
    """Ranks that hold one of a token's experts, where every set of `top` experts is as likely: R (1 - C(E - E/R, k) / C(E, k)).

    Of experts in `groups`, of which a token keeps to `kept`, each set of them as likely (M of G): a rank inside a group is one of R M / G
    that hold E M / G experts; one that holds g = G / R groups has j of the kept with P = C(g, j) C(G - g, M - j) / C(G, M), and none of a
    token's experts with C((M - j) E / G, k) / C(M E / G, k). (Ranks that part groups are taken for ranks of experts without any.)
    """
    found, r = _reached(top, experts, ranks), np.asarray(ranks, dtype=np.float64)
    of_group = np.asarray(experts, dtype=np.float64) / groups
    for count in np.unique(r).astype(int).tolist() if kept < groups else ():
        if count % groups == 0:
            some = _reached(top, of_group * kept, count * kept / groups)
        elif groups % count == 0:
            own = groups // count
            ways = {j: comb(own, j) * comb(groups - own, kept - j) / comb(groups, kept) for j in range(1, min(own, kept) + 1)}
            some = np.asarray(count * sum(way * _reached(top, of_group * kept, kept / j) * j / kept for j, way in ways.items()))
        else:
            continue
        found = np.where(r == count, some, found)
    return found


def _reached(top: Any, experts: Any, ranks: Any) -> Array:
    """The same of experts without groups."""
    e, k, r = (np.asarray(x, dtype=np.float64) for x in (experts, top, ranks))
    e, k, r = np.broadcast_arrays(e, k, r)
    none = np.ones(e.shape)
    for taken in range(int(k.max(initial=0))):  # the next of a token's experts is none of this rank's either
        left = np.maximum(e - e / r - taken, 0.0) / np.maximum(e - taken, 1.0)
        none = np.where(taken < k, none * left, none)
    return np.asarray(r * (1.0 - none))
