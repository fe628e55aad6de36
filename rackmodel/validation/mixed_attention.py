"""Rows of attention in whole steps of a server: chunks of prompts, sequences that decode, or both in one call of a kernel, the part's own
where a row says none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.attention_calls import kernel_of
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.attention import MICRO, HeadSizes, attention_ops, seen_keys, sizes_by_name
from rackmodel.validation.layer_sizes import heads_of
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, bins_of, kernel_row
from rackmodel.validation.words import MachineWords, Refused, words

Sizes = tuple[float, ...]
NONE: Sizes = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # of the part that a step does not have
BITS = 16


@dataclass(frozen=True)
class MixedCase:
    """A step's attention. kernel: as the part calls it, '' = its own · chunks, decodes: b, g, q, s, t, keys of each part; None = there is
    none."""

    machine: MachineWords
    kernel: str
    head: float
    chunks: Sizes | None
    decodes: Sizes | None
    measured: float


def mixed_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    return alike_rows(rows, _known_case, lambda case: (*case.machine.named, case.kernel, case.head), _priced)


def _known_case(row: PublishedRow) -> MixedCase:
    """The step of a row, of whose kernels the part has facts. Raises Refused."""
    case = mixed_case(row)
    gpu = gpu_of(machine_of(*case.machine.named))
    try:
        known = gpu is not None and kernel_of(gpu.facts, case.kernel or None) is not None
    except InputError as problem:
        raise Refused(f"{case.machine.machine}: {problem.message}") from None
    if not known:
        raise Refused(f"{case.machine.machine} has no facts of attention kernels")
    return case


def mixed_case(row: PublishedRow) -> MixedCase:
    """The step of a row. Raises Refused."""
    said = words()
    machine = said.machine(row.text("gpu"), row.dataset)
    model = heads_of(row.text("model"))
    ranks = row.whole("tp") or 1.0
    heads, kv_heads = (row.whole("n_q_head") or model.heads) / ranks, max(1.0, (row.whole("n_kv_head") or model.kv_heads) / ranks)
    measured = row.number("time_us", "median_us")
    if not measured:
        raise Refused("no measured time")
    chunk, decoding, before, cached = _parts(row)
    grouped = (kv_heads, heads / kv_heads)
    prompts = decoding if row.text("phase") == "prefill" else 1.0
    chunks = (prompts, *grouped, chunk, before + chunk, seen_keys(chunk, before + chunk, 0.0)) if chunk else None
    decodes = (decoding, *grouped, 1.0, cached, cached) if decoding and row.text("phase") != "prefill" else None
    if chunks is None and decodes is None:
        raise Refused("neither a chunk nor a sequence that decodes")
    word = row.text("backend")
    kernel = said.attention_kernel(word, machine.machine, float(model.head)) if word else ""
    return MixedCase(machine, kernel, float(model.head), chunks, decodes, measured * MICRO)


def _parts(row: PublishedRow) -> tuple[float, float, float, float]:
    """(new tokens of a prompt, sequences, keys before those tokens, keys of a sequence that decodes)."""
    chunk = row.whole("prefill_chunk", least=0) or 0.0
    if row.text("phase"):
        return chunk, *_of_all(row, chunk)
    return chunk, row.whole("n_decode", least=0) or 0.0, row.number("kv_prefill") or 0.0, max(1.0, row.number("kv_decode") or 0.0)


def _of_all(row: PublishedRow, chunk: float) -> tuple[float, float, float]:
    """(sequences, keys before the new tokens of each, all of them) of a row that says the keys of all sequences, new ones among them: calls
    of one batch are flat until each has a block of keys, and return at once (2.2 to 3.1 us for 14.4 to 207) where there are fewer keys
    than sequences. Raises Refused."""
    batch = row.whole("batch") or 1.0
    keys = (row.number("kv_cache_len") or 0.0) // batch
    if not keys:
        raise Refused("fewer keys than sequences: a call that returns at once")
    return batch, max(0.0, keys - chunk), keys


def price_mixed(machine: Architecture, cases: Sequence[MixedCase]) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of steps' attention, of one kernel and head size."""
    head = cases[0].head
    pricer, own = KernelPricer(fitted=True, attention=cases[0].kernel or None), HeadSizes(head, head, BITS)
    there = [np.array([part is not None for part in parts]) for parts in _sides(cases)]
    chunks, decodes = (attention_ops(sizes_by_name([part or NONE for part in parts]), own) for parts in _sides(cases))
    ones = np.ones((len(cases), 1), dtype=np.int64)
    rows: list[Row] = []
    seconds = np.zeros(len(cases))
    for chunk, decode in zip(chunks, decodes, strict=True):
        for (more, lasts), where in (
            (pricer(machine, chunk, ones), there[0] & ~there[1]),
            (pricer(machine, decode, ones), there[1] & ~there[0]),
            (pricer.mixed(machine, chunk, decode, ones), there[0] & there[1]),
        ):
            rows += [row.exposing(np.where(where, row.exposed, 0.0)) for row in more]
            seconds = seconds + np.where(where, lasts, 0.0)
    return rows, seconds


def _sides(cases: Sequence[MixedCase]) -> tuple[list[Sizes | None], list[Sizes | None]]:
    return [case.chunks for case in cases], [case.decodes for case in cases]


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, MixedCase]]) -> dict[int, list[ScoredRow]]:
    first = own[0][1]
    machine = machine_of(*first.machine.named)
    charges, seconds = price_mixed(machine, [case for _, case in own])
    bins = bins_of(charges, len(own))
    found = {}
    for place, (number, case) in enumerate(own):
        row, takes = rows[number], {name: float(value[place]) for name, value in bins.items()}
        whose = case.kernel or "the part's own"
        notes = (f"attention kernel: {whose}", "timed: queued")
        found[number] = [kernel_row(row, row.text("dtype") or "bf16", (case.measured, float(seconds[place])), notes, takes)]
    return found
