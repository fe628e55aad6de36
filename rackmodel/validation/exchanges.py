"""Rows of tokens sent to their experts and back, beside what the network knows of the library: a row is two, dispatch and combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.cost.network.exchanges import TokenExchange, exchange_seconds
from rackmodel.errors import InputError
from rackmodel.inputs import machine_exchange
from rackmodel.model.architecture import Architecture
from rackmodel.model.exchanges import ExchangeMode, ExchangeTimes, ExpertExchange
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, kernel_row
from rackmodel.validation.words import MachineWords, Refused, words

LIBRARY = "deepep"
"""Whose kernels rows of this kind were measured with."""

WAYS = ("dispatch", "combine")
MODES: dict[str, ExchangeMode] = {"normal": "normal", "low_latency": "low_latency"}
COLUMNS = {"tokens": "num_token", "hidden": "hidden_size", "top": "num_topk", "experts": "num_experts"}


@dataclass(frozen=True)
class MeasuredExchange:
    """What a row says. figures: tokens, hidden, top, experts, nodes, SMs · seconds: dispatch and combine."""

    machine: MachineWords
    mode: ExchangeMode
    release: str
    figures: tuple[float, ...]
    seconds: tuple[float, float]

    @property
    def nodes(self) -> int:
        """That hold the ranks."""
        return int(self.figures[4])


def exchange_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored both ways, or refused with why."""
    return alike_rows(rows, measured_exchange, lambda one: (one.machine.machine, one.mode, one.release, one.nodes), _priced)


def _priced(rows: Sequence[PublishedRow], group: Sequence[tuple[int, MeasuredExchange]]) -> dict[int, list[ScoredRow]]:
    """Rows of one machine, mode, release and number of nodes. Raises InputError."""
    first = group[0][1]
    machine = machine_of(*first.machine.named)
    level, ranks = exchange_level(machine, first.nodes)
    known = machine_exchange(machine, level, LIBRARY, first.release, first.mode)
    if known is None:
        raise InputError(f"no exchange of tokens over '{level}' of {machine.name} is known")
    exchange = tokens_of([one for _, one in group], ranks)
    predicted = {way: exchange_seconds(_times(known, way), first.mode, exchange) for way in WAYS}
    note = f"{ranks} ranks of {first.nodes} nodes, every expert as likely"
    found: dict[int, list[ScoredRow]] = {}
    for place, (number, one) in enumerate(group):
        for way, measured in zip(WAYS, one.seconds, strict=True):
            seconds = measured, float(predicted[way][place])
            own = kernel_row(rows[number], f"{first.mode} {way}", seconds, (note,), {f"network {way}": seconds[1]})
            found.setdefault(number, []).append(replace(own, id=f"{own.id} {way}"))
    return found


def _times(known: ExpertExchange, way: str) -> ExchangeTimes:
    return known.dispatch if way == "dispatch" else known.combine


def exchange_level(machine: Architecture, nodes: int) -> tuple[str, int]:
    """(level whose network joins the ranks of so many nodes, ranks). A node is what the innermost network joins. Raises InputError."""
    if not machine.tiers:
        raise InputError("no network joins its accelerators")
    inside = machine.tiers[0].below * machine.tiers[0].children
    ranks = nodes * inside
    level = next((tier.level for tier in machine.tiers if tier.below * tier.children >= ranks), None)
    if level is None:
        raise InputError(f"{ranks} ranks: the machine has {machine.available}")
    return level, ranks


def tokens_of(exchanges: Sequence[MeasuredExchange], ranks: int) -> TokenExchange:
    """Rows in arrays."""
    tokens, hidden, top, experts, nodes, sms = np.array([one.figures for one in exchanges]).T
    return TokenExchange(tokens=tokens, hidden=hidden, top=top, experts=experts, ranks=float(ranks), nodes=nodes, sms=sms)


def measured_exchange(row: PublishedRow) -> MeasuredExchange:
    """What a row says. Raises Refused."""
    word = row.text("mode")
    if word not in MODES:
        raise Refused(f"no mode of exchange called '{word}'")
    figures = [row.number(column) or 0.0 for column in COLUMNS.values()]
    seconds = tuple((row.number(f"{way}_us") or 0.0) * 1e-6 for way in WAYS)
    if not all((*figures, *seconds)):
        raise Refused("no tokens, sizes or times")
    if figures[2] > figures[3]:
        raise Refused("more experts for a token than there are")
    sms = row.number("sms") or 0.0
    if word == "normal" and not sms:
        raise Refused("no number of SMs")
    return MeasuredExchange(
        machine=words().machine(row.text("system", "gpu"), row.dataset),
        mode=MODES[word],
        release=row.text("version", "release"),
        figures=(*figures, row.number("node_num") or 1.0, sms),
        seconds=(seconds[0], seconds[1]),
    )
