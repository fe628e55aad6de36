"""Rows of attention kernels, priced as the two contractions of a fused attention on one accelerator; their sizes are columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.attention_calls import kernel_of, training_kernel
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.power import BUSY
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import AttentionRoles, Flow, LocalOp, Operand, Volume
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.einsum import parse_statement
from rackmodel.model.resources import width
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.kernel_words import LatentWords
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.products import PRODUCT, price_local
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, bins_of, kernel_row
from rackmodel.validation.watts import watts_row
from rackmodel.validation.words import MachineWords, PrecisionWords, Refused, look_up, words

SCORES = "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]"
WEIGHED = "Z[b,s,g,q,e] = A[b,g,q,s,t] * V[b,t,g,e]"
FORMS = ((SCORES, True), (WEIGHED, False))
BY_HEAD = "Y[b,m,n] = X[b,m,k] * W[b,k,n]"
LATENT_PHASES = {
    "context": (False, False),
    "generation": (True, False),
    "context_module": (False, True),
    "generation_module": (True, True),
}
"""Phase of a row → whether keys and values stay latent, and whether the products of the module are in it."""
LOOPED = "looped"
Way = Literal["", "forward", "backward"]
WAYS: dict[str, Way] = {**{way: way for way in get_args(Way)}, "fwd": "forward", "bwd": "backward"}
MASKS = {"": True, "causal": True, "true": True, "none": False, "full": False, "bidirectional": False, "false": False}
"""What a row says of its mask → whether keys behind a query are hidden from it."""
SLIDING = ("sliding", "sliding window", "window", "local")
"""Words for a causal mask over a window, whose keys stand in a column of their own."""
MICRO = 1e-6


@dataclass(frozen=True)
class HeadSizes:
    """Elements of a key and of a value. latent: whether values are a part of the keys · sliding: whether the kernel is told of a window ·
    bits: of keys and values."""

    head: float
    value: float
    bits: int
    latent: bool = False
    sliding: bool = False


@dataclass(frozen=True)
class AttentionCase:
    """A call to be priced. kernel: as the part calls it · sizes: b, g, q, s, t, keys · products: (form, width, sizes by index) of matrix
    products that were measured with it · way: the pass of training that it is, '' = none · note: what was assumed of its kernel."""

    machine: MachineWords
    kernel: str
    heads: HeadSizes
    sizes: tuple[float, ...]
    products: tuple[tuple[str, PrecisionWords, tuple[tuple[str, float], ...]], ...] = ()
    way: Way = ""
    note: str = ""

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """What is multiplied beside it, whatever the sizes: (form, precision) of each product."""
        return tuple((form, precision.words[0]) for form, precision, _ in self.products)


def attention_ops(sizes: Mapping[str, Array], heads: HeadSizes) -> list[LocalOp]:
    """The contractions of calls, [n] of each size: b sequences, g key heads, q query heads of each, s queries, t keys, `keys` seen."""
    both, bits = heads.head + heads.value, heads.bits
    every = {name: sizes[name] for name in "bgqst"}
    walked = np.minimum(sizes["t"], sizes["keys"] + sizes["s"])  # keys that some query sees: a window hides the others
    made = []
    for form, joined in FORMS:
        own = heads.head if joined else heads.value
        every["e"] = np.full(len(sizes["b"]), own)
        roles = AttentionRoles(
            *(("b",), ("g",), ("q",), ("s",), ("t",)), heads.head, heads.value, own / both, bits, heads.latent, heads.sliding
        )
        statement = parse_statement(form)
        operands = [Operand(one.tensor, one, bits if one.tensor in "KV" else 16) for one in (*statement.ins, statement.out)]
        flows = [Flow(one.tensor, _volume(one, {**every, "t": walked}, heads.latent)) for one in operands]
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


def _volume(operand: Operand, sizes: Mapping[str, Array], latent: bool) -> Volume:
    """What moves of an operand: scores never leave the chip, values that are a part of the keys arrive with those."""
    if operand.tensor == "A" or (latent and operand.tensor == "V"):
        return Volume(0.0)
    return Volume(np.prod([sizes[index] for index in operand.access.names], axis=0) * operand.bits / 8)


def operations_over_forward(heads: HeadSizes, way: Way) -> float:
    """Behind the forward pass: three of a key's and two of a value's elements for one of both."""
    return (3 * heads.head + 2 * heads.value) / (heads.head + heads.value) if way == "backward" else 1.0


def price_looped(machine: Architecture, cases: Sequence[AttentionCase]) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of calls in a loop that differ in sizes alone, without the products beside them."""
    first, sizes = cases[0], sizes_by_name([case.sizes for case in cases])
    pricer = KernelPricer(fitted=not first.way, lasting=bool(first.way), attention=first.kernel, looped=True)
    return price_calls(machine, pricer, sizes, first.heads, first.way)


def price_calls(
    machine: Architecture, pricer: KernelPricer, sizes: Mapping[str, Array], heads: HeadSizes, way: Way = ""
) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of calls: those of both contractions; behind the forward pass once more, and again. way: of training."""
    count, rows = len(sizes["b"]), list[Row]()
    seconds = np.zeros(count)
    for local_op, times in zip(attention_ops(sizes, heads), (3, 2), strict=True):
        for _ in range(times if way == "backward" else 1):
            more, lasts = pricer(machine, replace(local_op, kernel=f"attention {way or 'forward'}"), np.ones((count, 1), dtype=np.int64))
            rows += more
            seconds = seconds + lasts
    return rows, seconds


def attention_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    return alike_rows(rows, _priced_case, lambda case: (*case.machine.named, case.kernel, case.heads, case.asked, case.way), _priced)


def _priced_case(row: PublishedRow) -> AttentionCase:
    """The call of a row, of which the part has facts. Raises Refused."""
    return _of_part(case_of(row))


def _of_part(case: AttentionCase) -> AttentionCase:
    """The case by a kernel of which the part has facts: a server's other one by the part's own, which is told. Raises Refused."""
    gpu = gpu_of(machine_of(*case.machine.named))
    try:
        asked = training_kernel if case.way else kernel_of
        there = gpu is not None and asked(gpu.facts, case.kernel or None) is not None
    except InputError as problem:
        unlike = case.heads.latent or case.heads.head != case.heads.value
        own = None if gpu is None else gpu.facts.latent_kernel if unlike else gpu.facts.attention_kernel
        if own is None or case.way or case.products:
            raise Refused(f"{case.machine.machine}: {problem.message}")
        return replace(case, kernel=own, note=f"{problem.message}: priced by the machine's own")
    if gpu is None or not there:
        kernels = f"the attention kernel '{case.kernel}' in training" if case.way and case.kernel else "attention kernels"
        raise Refused(f"{case.machine.machine} has no facts of {kernels}")
    if case.kernel:
        return case
    own = gpu.facts.training_kernel if case.way else gpu.facts.attention_kernel
    return replace(case, kernel=own or next(iter(gpu.facts.attention)), note="no attention kernel is said: priced by the machine's own")


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, AttentionCase]]) -> dict[int, list[ScoredRow]]:
    """Seconds, and watts where a row tells them."""
    first = own[0][1]
    machine = machine_of(*first.machine.named)
    charges, seconds = price_looped(machine, [case for _, case in own])
    beside, more = price_products(machine, [case for _, case in own])
    charges, seconds = [*charges, *beside], seconds + more
    bins = bins_of(charges, len(own))
    share = said.constant if first.products and (said := words().latent) is not None else 1.0
    drawn = (charge.joules * (1.0 if charge.action == BUSY else share) for charge in charges)
    joules, note = np.asarray(sum(drawn, np.zeros(len(own)))), f"constant operands: {share:g} of their joules" if share < 1 else ""
    found = {}
    for place, (number, case) in enumerate(own):
        row = rows[number]
        name = row.text("gemm_dtype", "gemm_type", "kv_cache_dtype") or "bf16"
        takes = {part: float(value[place]) for part, value in bins.items()}
        notes = (case.machine.note, f"attention kernel: {case.kernel}", case.note, "timed: looped")
        time = kernel_row(row, name, ((row.number("latency_us") or 0.0) * MICRO, float(seconds[place])), notes, takes)
        found[number] = [time, *watts_row(row, time, machine, float(joules[place]), note=note)]
    return found


def sizes_by_name(sizes: Sequence[tuple[float, ...]]) -> dict[str, Array]:
    """[n] of each size of some calls."""
    return dict(zip(("b", "g", "q", "s", "t", "keys"), np.array(sizes, dtype=np.float64).reshape(-1, 6).T, strict=True))


def price_products(machine: Architecture, cases: Sequence[AttentionCase]) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of the products beside calls; all cases have the same, of other sizes."""
    rows: list[Row] = []
    seconds = np.zeros(len(cases))
    for place, (form, precision, sizes) in enumerate(cases[0].products):
        columns = {name: np.array([dict(case.products[place][2])[name] for case in cases]) for name, _ in sizes}
        more, lasts = price_local(machine, form, columns, width(precision.width), timed=LOOPED, family=precision.family)
        rows += more
        seconds = seconds + lasts
    return rows, seconds


def case_of(row: PublishedRow) -> AttentionCase:
    """The call of a row. Raises Refused."""
    return latent_case(row) if row.kind == "latent attention" else attention_case(row)


def latent_case(row: PublishedRow) -> AttentionCase:
    """The call of a row of latent attention: a kernel, or a module with its products. Raises Refused."""
    said = words()
    machine = said.machine(row.text("system", "gpu"), row.dataset)
    batch, heads, queries = (row.whole(name) or 0.0 for name in ("batch_size", "num_heads", "q_len"))
    measured = row.number("latency_us") or 0.0
    phase = row.text("phase")
    if not all((batch, heads, queries, measured)) or phase not in LATENT_PHASES:
        raise Refused(f"no phase '{phase}' of latent attention" if phase not in LATENT_PHASES else "no sizes of latent attention")
    absorbed, module = LATENT_PHASES[phase]
    if said.latent is None:
        raise Refused("no sizes of latent attention are known")
    context = (row.whole("past_kv_len", least=0) or 0.0) + queries
    cache = look_up(said.precisions, "precision", row.text("kv_cache_dtype") or "bf16")
    multiplied = look_up(said.precisions, "precision", row.text("mla_dtype") or "bf16")
    bits = width((multiplied if module and not absorbed else cache).width)
    word = f"{row.text('framework')} {row.text('version')} MLA{' module' if module else ''}"
    kernel = said.attention_kernel(word, machine.machine, 0.0)
    sizes = said.latent
    plain = HeadSizes(sizes.head + sizes.rope, sizes.head, bits)
    own = HeadSizes(sizes.key + sizes.rope, sizes.key, bits, latent=True) if absorbed else plain
    grouped = (1.0, heads) if absorbed else (heads, 1.0)
    products = _module_products(sizes, batch * queries, batch * context, heads, absorbed, row.text("gemm_type")) if module else ()
    seen = seen_keys(queries, context, 0.0)
    return AttentionCase(machine, kernel, own, (batch, *grouped, queries, context, seen), products, note=said.of_other_release(word))


def _module_products(
    sizes: LatentWords, tokens: float, cached: float, heads: float, absorbed: bool, precision: str
) -> tuple[tuple[str, PrecisionWords, tuple[tuple[str, float], ...]], ...]:
    """Products of a module: down, queries up, keys and values up (absorbed: into queries and out of results, a head at a time), out."""
    said = words()
    weights, plain = look_up(said.precisions, "precision", precision or "bf16"), look_up(said.precisions, "precision", "bf16")
    made: list[tuple[float, float, float]] = [
        (tokens, sizes.query + sizes.key + sizes.rope, sizes.hidden),
        (tokens, (sizes.head + sizes.rope) * heads, sizes.query),
        (tokens, sizes.hidden, sizes.head * heads),
    ]
    if not absorbed:
        made.append((cached, 2 * sizes.head * heads, sizes.key))
    found = [(PRODUCT, weights, tuple(zip("mnk", one, strict=True))) for one in made]
    if absorbed:
        for n, k in ((sizes.key, sizes.head), (sizes.head, sizes.key)):
            found.append((BY_HEAD, plain, (("b", heads), ("m", tokens), ("n", n), ("k", k))))
    return tuple(found)


def attention_case(row: PublishedRow) -> AttentionCase:
    """The call of a row. Raises Refused."""
    said = words()
    machine = said.machine(row.text("system", "gpu"), row.dataset)
    names = ("batch_size", "num_heads", "num_key_value_heads", "q_len", "head_dim")
    values = {name: row.whole(name) for name in names} | {"latency_us": row.number("latency_us")}
    missing = next((name for name, value in values.items() if not value), None)
    if missing:
        raise Refused(f"no {missing}")
    batch, heads, kv_heads, queries, head = (float(values[name] or 0.0) for name in names)
    if heads % kv_heads:
        raise Refused("key heads do not divide the heads")
    context = (row.whole("past_kv_len", least=0) or 0.0) + queries
    hidden, way = _masked(row), WAYS.get(row.text("pass").lower())
    if way is None or hidden is None:
        word, known = ("pass", get_args(Way)) if way is None else ("mask", (*MASKS, SLIDING[0]))
        raise Refused(f"no {word} '{row.text(word)[:40]}' of attention; known: {', '.join(filter(None, known))}")
    window = row.whole("sliding_window", least=0) or 0.0
    keys = seen_keys(queries, context, window) if hidden else context
    precision = _precision(row)
    word = row.text("kernel_source")
    kernel = said.attention_kernel(word, machine.machine, head) if word else ""
    own = HeadSizes(head, row.whole("value_dim") or head, width(precision.width), sliding=bool(window))
    sizes = (batch, kv_heads, heads / kv_heads, queries, context, keys)
    return AttentionCase(machine, kernel, own, sizes, way=way)


def _masked(row: PublishedRow) -> bool | None:
    """Whether keys behind a query are hidden from it; None for a word that says neither. Raises Refused for a window of no keys."""
    word = " ".join(re.split(r"[\s_-]+", row.text("mask").lower())).removesuffix(" mask")
    if word not in SLIDING:
        return MASKS.get({"no": "none"}.get(word, word))
    if not row.whole("sliding_window", least=0):
        raise Refused(f"a mask '{row.text('mask')[:40]}', but no keys of it (column sliding_window)")
    return True


def _precision(row: PublishedRow) -> PrecisionWords:
    """At which a call's keys and values are: as its cache, else as its operands. Raises Refused, also for operands that are neither 16 bit
    wide nor as the cache."""
    table, cached, operands = words().precisions, row.text("kv_cache_dtype"), row.text("attn_dtype")
    own = look_up(table, "precision", operands or "bf16")
    if not cached or cached.lower() == "auto":
        return own
    found = look_up(table, "precision", cached)
    if width(own.width) not in (16, width(found.width)):
        raise Refused(f"attention of {operands} over a cache of {cached}: want operands of 16 bit, or as the cache")
    return found


def seen_keys(queries: float, context: float, window: float) -> float:
    """Keys that a query sees in the mean: those up to its own, of them the last `window` (0: all)."""
    before = context - queries
    if not window or window >= context:
        return before + (queries + 1) / 2
    growing = min(queries, max(0.0, window - before))  # queries that see fewer than the window
    ramp = growing * before + growing * (growing + 1) / 2
    return (ramp + (queries - growing) * window) / queries
