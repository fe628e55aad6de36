"""Rows of experts' products (a call of a fused kernel each) beside the kernels of a part; calls alike are priced in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.experts import ExpertLayer, call_seconds, expert_device
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.routing import ROWS, ExpertLoad, Routing, load_of
from rackmodel.errors import InputError
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.kernel_energy import call_energy
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, kernel_row
from rackmodel.validation.watts import watts_row
from rackmodel.validation.words import MachineWords, Refused, look_up, words

SKEWED = "power_law_"
EVEN = ("balanced", "uniform", "even")
PARTS = ("up", "down")


@dataclass(frozen=True, kw_only=True)
class ExpertCase:
    """One call. kernel: of a part's `grouped` · inter: of the part of an expert that is held here, of
    `whole` · part: the product that it makes, '' = both · seconds: measured · note: whose kernel stands for it."""

    machine: MachineWords
    kernel: str
    routing: Routing
    tokens: float
    hidden: float
    inter: float
    whole: float
    gated: bool
    part: str
    seconds: float
    note: str = ""

    @property
    def shape(self) -> tuple[float, ...]:
        """What does not change with tokens and ranks: hidden, experts, chosen, columns of a whole expert."""
        return self.hidden, self.routing.experts, self.routing.chosen, self.whole


def expert_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    return alike_rows(rows, _priced_case, lambda case: (*case.machine.named, case.kernel), _priced)


def _priced_case(row: PublishedRow) -> ExpertCase:
    """The call of a row, by a kernel of which the part has facts: where it has none of the row's, by one of the same operands, of the same
    library if there is one, which is told. Raises Refused."""
    case = expert_case(row)
    gpu = gpu_of(machine_of(*case.machine.named))
    known = {} if gpu is None else gpu.facts.grouped
    library, operands = case.kernel.split(" ", 1)[0], case.kernel.rsplit(" ", 1)[1]
    alike = [name for name, one in known.items() if name.rsplit(" ", 1)[1] == operands and not one.laid_out]
    if case.kernel in known or not alike or case.part:
        return case
    own = next((name for name in alike if name.split(" ", 1)[0] == library), alike[0])
    return replace(case, kernel=own, note=f"{case.machine.machine} states no kernel '{case.kernel}': priced as its '{own}'")


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, ExpertCase]]) -> dict[int, list[ScoredRow]]:
    """Calls of one machine and kernel. Raises InputError."""
    seconds = price_calls([case for _, case in own])
    found = {number: [_scored(rows[number], case, float(s))] for (number, case), s in zip(own, seconds, strict=True)}
    _add_watts(rows, own, seconds, found)
    return found


def _add_watts(
    rows: Sequence[PublishedRow], own: Sequence[tuple[int, ExpertCase]], seconds: Array, found: dict[int, list[ScoredRow]]
) -> None:
    """Watts beside the seconds of calls of one machine and kernel whose rows tell them."""
    told = [place for place, (number, case) in enumerate(own) if rows[number].number("power_w") and not case.part]
    if not told:
        return
    cases = [own[place][1] for place in told]
    machine = machine_of(*cases[0].machine.named)
    joules = call_energy(machine, cases[0].kernel, layer_of(cases), [case.routing for case in cases], seconds[told])
    for place, drawn in zip(told, joules, strict=True):
        number = own[place][0]
        found[number] += watts_row(rows[number], found[number][0], machine, float(drawn))


def price_calls(cases: Sequence[ExpertCase]) -> Array:
    """[n] seconds of calls of one machine and kernel. Raises InputError where the part does not state the kernel."""
    first = cases[0]
    gpu = gpu_of(machine_of(*first.machine.named))
    known = {} if gpu is None else gpu.facts.grouped
    if gpu is None or first.kernel not in known:
        raise InputError(f"{first.machine.machine} states no kernel '{first.kernel}' of experts", known=list(known), given=first.kernel)
    facts = known[first.kernel]
    device = expert_device(facts, gpu, looped=True)
    return call_seconds(facts, device, layer_of(cases), loads_of(cases))


def layer_of(cases: Sequence[ExpertCase]) -> ExpertLayer:
    """The sizes of calls as columns."""
    sizes = [
        (case.tokens, case.hidden, case.inter, case.gated, case.tokens * case.routing.chosen, case.routing.ranks > 1) for case in cases
    ]
    tokens, hidden, inter, gated, every, spread = np.array(sizes, dtype=np.float64).T
    layer = ExpertLayer(tokens=tokens, hidden=hidden, inter=inter, gated=gated, every=every, spread=spread)
    if not any(case.part for case in cases):
        return layer
    return replace(layer, **{part: np.array([case.part in ("", part) for case in cases], dtype=np.float64) for part in PARTS})


def loads_of(cases: Sequence[ExpertCase]) -> ExpertLoad:
    """What falls on the busiest rank of each."""
    count = len(cases)
    hit, pairs, held, tokens = np.empty((4, count))
    found = ExpertLoad(hit=hit, pairs=pairs, blocks=np.empty((count, len(ROWS))), held=held, tokens=tokens)
    alike: dict[Routing, list[int]] = {}
    for number, case in enumerate(cases):
        alike.setdefault(case.routing, []).append(number)
    for routing, own in alike.items():
        load = load_of(np.array([cases[number].tokens for number in own]), routing)
        for field in fields(load):
            getattr(found, field.name)[own] = getattr(load, field.name)
    return found


def expert_case(row: PublishedRow) -> ExpertCase:
    """The call that a row measured. Raises Refused."""
    said = words()
    machine = said.machine(row.text("system", "gpu"), row.dataset)
    kernel = look_up(said.expert_kernels, "kernel of experts", row.text("kernel_source"), "kernel_source")
    precision = look_up(said.expert_precisions, "precision of experts", row.text("moe_dtype"), "moe_dtype")
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    sizes = {name: row.whole(name) or 0.0 for name in names} | {"latency_us": row.number("latency_us") or 0.0}
    if missing := [name for name, value in sizes.items() if not value]:
        raise Refused(f"no {missing[0]}")
    experts, ranks = sizes["num_experts"], sizes["moe_ep_size"]
    if experts % ranks or sizes["topk"] > experts:
        raise Refused("ranks that do not divide the experts, or more chosen than there are")
    shape = (int(sizes["hidden_size"]), int(sizes["inter_size"]), row.text("version"))
    return ExpertCase(
        machine=machine,
        kernel=f"{kernel.kernel} {precision.name}",
        routing=replace(_routing(row, int(experts), sizes["topk"], int(ranks), shape), stand_in=kernel.stand_in and ranks > 1),
        tokens=sizes["num_tokens"],
        hidden=sizes["hidden_size"],
        inter=max(1.0, sizes["inter_size"] / sizes["moe_tp_size"]),
        whole=sizes["inter_size"],
        gated=not any(one.fits(*shape) for one in said.ungated),
        part=_part(row),
        seconds=sizes["latency_us"] * 1e-6,
    )


def _routing(row: PublishedRow, experts: int, chosen: float, ranks: int, shape: tuple[int, int, str]) -> Routing:
    """How tokens fall on experts. shape: hidden, inter and the version of the framework. Raises Refused."""
    skew = _skew(row.text("distribution") or "balanced")
    hidden, inter, version = shape
    limits = next((one for one in words().limited if one.fits(hidden, inter, experts, version)), None)
    groups, kept = (limits.groups, limits.kept) if limits is not None else (0, 0)
    return Routing(experts=experts, chosen=chosen, ranks=ranks, skew=skew, groups=groups, kept=kept)


def _part(row: PublishedRow) -> str:
    """The product that a row timed alone; '' = the whole call. Raises Refused."""
    word = row.text("moe_part")
    if word not in ("", *PARTS):
        raise Refused(f"no part '{word}' of experts' products")
    return word


def _skew(word: str) -> float:
    """Exponent of a distribution. Raises Refused."""
    if word.lower() in EVEN:
        return 0.0
    try:
        found = float(word.removeprefix(SKEWED)) if word.startswith(SKEWED) else -1.0
    except ValueError:
        found = -1.0
    if not 0 < found < 10:
        raise Refused(f"no routing called '{word}'; known: {', '.join(EVEN)}, {SKEWED}1.2 and the like")
    return found


def _scored(row: PublishedRow, case: ExpertCase, predicted: float) -> ScoredRow:
    notes = (case.machine.note, f"kernel: {case.kernel}", case.note, "" if case.gated else "experts without a gate")
    return kernel_row(row, case.kernel, (case.seconds, predicted), notes, {"experts": predicted})
