"""Rows of attention kernels, priced as the two contractions of a fused attention on one accelerator; their sizes are columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.inside.attention_calls import kernel_of
from rackmodel.cost.inside.kernels import KernelPricer, gpu_of
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import AttentionRoles, Flow, LocalOp, Operand, Volume
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.einsum import parse_statement
from rackmodel.model.resources import width
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.steps import machine_of
from rackmodel.validation.words import MachineWords, Refused, look_up, words

Array = NDArray[np.float64]
SCORES = "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]"
WEIGHED = "Z[b,s,g,q,e] = A[b,g,q,s,t] * V[b,t,g,e]"
FORMS = ((SCORES, True), (WEIGHED, False))
MICRO = 1e-6


@dataclass(frozen=True)
class AttentionCase:
    """A call to be priced. kernel: as the part calls it · bits: of keys and values · head: elements · sizes: b, g, q, s, t, keys."""

    machine: MachineWords
    kernel: str
    bits: int
    head: float
    sizes: tuple[float, ...]


def attention_ops(sizes: Mapping[str, Array], head: float, bits: int) -> list[LocalOp]:
    """The contractions of calls, [n] of each size: b sequences, g key heads, q query heads of each, s queries, t keys, `keys` seen."""
    roles = AttentionRoles(("b",), ("g",), ("q",), ("s",), ("t",), head, head, 0.5, bits)
    every = {**{name: sizes[name] for name in "bgqst"}, "e": np.full(len(sizes["b"]), head)}
    walked = np.minimum(sizes["t"], sizes["keys"] + sizes["s"])  # keys that some query sees: a window hides the others
    made = []
    for form, joined in FORMS:
        statement = parse_statement(form)
        operands = [Operand(one.tensor, one, bits if one.tensor in "KV" else 16) for one in (*statement.ins, statement.out)]
        flows = [Flow(one.tensor, _volume(one, {**every, "t": walked})) for one in operands]
        space = tuple((index, every[index], ()) for index in dict.fromkeys((*statement.out.names, *statement.ins[1].names)))
        made.append(
            LocalOp(
                reads=tuple(flows[:-1]),
                writes=(flows[-1],),
                space=space,  # type: ignore[arg-type]
                macs=True,
                per_element=0.0,
                density=sizes["keys"] / sizes["t"],  # type: ignore[arg-type]
                bits=16,
                operands=tuple(operands[:-1]),
                result=operands[-1],
                kernel="attention forward",
                joined=joined,
                attention=roles,
            )
        )
    return made


def _volume(operand: Operand, sizes: Mapping[str, Array]) -> Volume:
    """What moves of an operand: scores never leave the chip."""
    if operand.tensor == "A":
        return Volume(0.0)
    return Volume(np.prod([sizes[index] for index in operand.access.names], axis=0) * operand.bits / 8)


def price_attention(machine: Architecture, kernel: str, sizes: Mapping[str, Array], head: float, bits: int) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of calls in a loop."""
    return price_calls(machine, KernelPricer(fitted=True, attention=kernel, looped=True), sizes, head, bits)


def price_calls(machine: Architecture, pricer: KernelPricer, sizes: Mapping[str, Array], head: float, bits: int) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of calls: those of both contractions."""
    count = len(sizes["b"])
    rows: list[Row] = []
    seconds = np.zeros(count)
    for local_op in attention_ops(sizes, head, bits):
        more, lasts = pricer(machine, local_op, np.ones((count, 1), dtype=np.int64))
        rows += more
        seconds = seconds + lasts
    return rows, seconds


def attention_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    found: dict[int, ScoredRow] = {}
    alike: dict[object, list[tuple[int, AttentionCase]]] = {}
    for number, row in enumerate(rows):
        try:
            case = attention_case(row)
            _check_part(case)
        except Refused as problem:
            found[number] = ScoredRow(row.id, row.dataset, refused=str(problem))
            continue
        key = (case.machine.machine, tuple(case.machine.set), case.kernel, case.bits, case.head)
        alike.setdefault(key, []).append((number, case))
    for own in alike.values():
        found |= _priced(rows, own)
    return [found[number] for number in range(len(rows))]


def _check_part(case: AttentionCase) -> None:
    """Raises Refused where the part has no facts of the kernel."""
    gpu = gpu_of(machine_of(case.machine.machine, tuple(case.machine.set.items())))
    try:
        there = gpu is not None and kernel_of(gpu.facts, case.kernel) is not None
    except InputError as problem:
        raise Refused(f"{case.machine.machine}: {problem.message}")
    if not there:
        raise Refused(f"{case.machine.machine} has no facts of attention kernels")


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, AttentionCase]]) -> dict[int, ScoredRow]:
    first = own[0][1]
    machine = machine_of(first.machine.machine, tuple(first.machine.set.items()))
    sizes = sizes_by_name([case.sizes for _, case in own])
    charges, seconds = price_attention(machine, first.kernel, sizes, first.head, first.bits)
    bins: dict[str, Array] = {}
    for charge in charges:
        bins[charge.component] = bins.get(charge.component, np.zeros(len(own))) + charge.exposed
    found = {}
    for place, (number, case) in enumerate(own):
        row = rows[number]
        found[number] = ScoredRow(
            id=row.id,
            dataset=row.dataset,
            system=row.text("system", "gpu"),
            precision=row.text("kv_cache_dtype") or "bf16",
            measured=(row.number("latency_us") or 0.0) * MICRO,
            predicted=float(seconds[place]),
            assumptions=tuple(text for text in (case.machine.note, f"attention kernel: {case.kernel}", "timed: looped") if text),
            bins={name: float(value[place]) for name, value in bins.items()},
        )
    return found


def sizes_by_name(sizes: Sequence[tuple[float, ...]]) -> dict[str, Array]:
    """[n] of each size of some calls."""
    return dict(zip(("b", "g", "q", "s", "t", "keys"), np.array(sizes, dtype=np.float64).reshape(-1, 6).T, strict=True))


def attention_case(row: PublishedRow) -> AttentionCase:
    """The call of a row. Raises Refused."""
    said = words()
    machine = look_up(said.machines, "GPU", row.text("system", "gpu"))
    names = ("batch_size", "num_heads", "num_key_value_heads", "q_len", "head_dim", "latency_us")
    values = {name: row.number(name) for name in names}
    missing = next((name for name in names if not values[name]), None)
    if missing:
        raise Refused(f"no {missing}")
    batch, heads, kv_heads, queries, head, _ = (float(values[name] or 0.0) for name in names)
    if heads % kv_heads:
        raise Refused("key heads do not divide the heads")
    context = (row.number("past_kv_len") or 0.0) + queries
    keys = seen_keys(queries, context, row.number("sliding_window") or 0.0)
    precision = look_up(said.precisions, "precision", row.text("kv_cache_dtype") or "bf16")
    kernel = said.attention_kernel(row.text("kernel_source"), machine.machine, head)
    return AttentionCase(machine, kernel, width(precision.width), head, (batch, kv_heads, heads / kv_heads, queries, context, keys))


def seen_keys(queries: float, context: float, window: float) -> float:
    """Keys that a query sees in the mean: those up to its own, of them the last `window` (0: all)."""
    before = context - queries
    if not window or window >= context:
        return before + (queries + 1) / 2
    growing = min(queries, max(0.0, window - before))  # queries that see fewer than the window
    ramp = growing * before + growing * (growing + 1) / 2
    return (ramp + (queries - growing) * window) / queries
