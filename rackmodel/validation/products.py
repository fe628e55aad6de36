"""Rows of matrix products, and of softmax and layer norm, priced as local operations of one accelerator; their sizes are columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import eager_kernel_rows, isolated_kernel_rows, kernel_rows, looped_kernel_rows, product_kind
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import Flow, LocalOp, Operand, Volume
from rackmodel.model.architecture import Architecture
from rackmodel.model.einsum import parse_statement
from rackmodel.model.opkinds import KINDS
from rackmodel.model.resources import width
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.compiled import LAYOUTS, compiled_first
from rackmodel.validation.machine_files import machine_of, not_multiplied
from rackmodel.validation.meter import Loop, readings
from rackmodel.validation.rows import PRECISIONS, TIMES, PublishedRow
from rackmodel.validation.score import ScoredRow, bins_of, kernel_row
from rackmodel.validation.unknowns import of_fit
from rackmodel.validation.watts import gap_of, watts_row
from rackmodel.validation.words import MachineWords, PrecisionWords, Refused, look_up, spelt, words

PRODUCT, BATCHED = "Y[m,n] = X[m,k] * W[k,n]", "Y[b,m,n] = X[b,m,k] * Z[b,k,n]"
PRODUCTS = ("gemm", "gemm_best_shape", "layer_gemm", "best_shape", "matmul", "linear", "")
VECTORS = {"softmax": "softmax", "layernorm": "layernorm"}
BATCHES = ("batched", "layer_batched", "bmm", "batched_gemm")
MOST_AT_ONCE = 4096
RESULT_BITS = 16
"""Of an element of a product's result, however narrow its operands are (as `calibrate` has it)."""
PRICERS = {"alone": isolated_kernel_rows, "queued": kernel_rows, "looped": looped_kernel_rows, "looped eager": eager_kernel_rows}
"""How an operation was timed → what prices it: started by the host and waited for; behind others in a layer; over and over in a loop;
the same with no CUDA graph."""


@dataclass(frozen=True)
class LocalCase:
    """A local operation to be priced. form: einsum or kind of vector operation · family: of a part's products, '' = those of its width ·
    sizes: of its indices · timed: a word of PRICERS."""

    machine: MachineWords
    form: str
    bits: int
    family: str
    timed: str
    sizes: tuple[tuple[str, float], ...]


_Asked = tuple[LocalCase, float, PrecisionWords]
"""A row's case, the seconds measured and its width."""


def local_operation(form: str, sizes: Mapping[str, Any], bits: int) -> LocalOp:
    """The operation of a form; each size is a number, or [n] of them for n columns."""
    if form in VECTORS.values():
        size = Volume(bits / 8 * prod(sizes.values()))
        space = tuple((index, extent, ()) for index, extent in sizes.items())
        return LocalOp((Flow("X", size),), (Flow("Y", size),), space, False, KINDS[form].flops[0], 1.0, bits, kind=form)
    statement = parse_statement(form)
    operands = [Operand(access.tensor, access, bits, access.tensor == "W") for access in statement.ins]
    operands.append(Operand(statement.out.tensor, statement.out, max(bits, RESULT_BITS), False))
    flows = [Flow(one.tensor, Volume(one.bits / 8 * prod(sizes[index] for index in one.access.names))) for one in operands]
    space = tuple((index, extent, ()) for index, extent in sizes.items())
    return LocalOp(tuple(flows[:-1]), (flows[-1],), space, True, 0.0, 1.0, bits, tuple(operands[:-1]), operands[-1])


def price_local(
    machine: Architecture, form: str, sizes: Mapping[str, Array], bits: int, *, timed: str, family: str = ""
) -> tuple[list[Row], Array]:
    """Rows and seconds [n] of n operations of one form, width and family. sizes: index → [n]."""
    count = len(next(iter(sizes.values())))
    local_op = replace(local_operation(form, sizes, bits), family=family)
    return PRICERS[timed](machine, local_op, np.ones((count, 1), dtype=np.int64))


def product_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why; watts as the meter shows them after the loop before."""
    scored, loops = looped_rows(rows)
    shown = {rows[number].id: watts for number, watts in _shown(rows, loops).items()}
    watts = {one.id: shown.get(one.id.removesuffix(" power")) for one in scored if one.unit == "W"}
    return [replace(one, predicted=found) if (found := watts.get(one.id)) is not None else one for one in scored]


def looped_rows(rows: Sequence[PublishedRow]) -> tuple[list[ScoredRow], dict[int, Loop]]:
    """The same with the watts of the kernels themselves; and the loop of each row that tells watts."""
    loops: dict[int, Loop] = {}
    return alike_rows(rows, _case, _alike, partial(_priced, loops=loops)), loops


def _shown(rows: Sequence[PublishedRow], loops: Mapping[int, Loop]) -> dict[int, float]:
    """Row → watts that its meter shows. loops: those of rows that tell watts."""
    turns: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for number, loop in loops.items():
        row, place = rows[number], _place(rows[number])
        run = [row.text(name) for name in ("system", "framework", "version", "m", "n", "k")]
        if place or loop.waiting_w is not None:
            turns.setdefault((row.dataset, *run) if place else (number,), []).append((place, number))
    found: dict[int, float] = {}
    for turn in turns.values():
        numbers = [number for _, number in sorted(turn)]
        found |= dict(zip(numbers, readings([loops[number] for number in numbers]), strict=True))
    return found


def _place(row: PublishedRow) -> int:
    """Which one of a shape's loops a row is of a benchmark that runs them one after the other; 0: of none such."""
    own = _precision(row)
    turns = list(words().precisions.values())
    return 1 + turns.index(own) if row.text("framework") in own.in_turn else 0


def _alike(asked: _Asked) -> tuple[object, ...]:
    """What products share that are priced together."""
    case = asked[0]
    return *case.machine.named, case.form, case.bits, case.family, case.timed


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, _Asked]], loops: dict[int, Loop]) -> dict[int, list[ScoredRow]]:
    """Products of one machine and width, not too many of them in one call. loops: put in those of rows that tell watts."""
    waited = _waited(rows, own)
    found: dict[int, list[ScoredRow]] = {}
    for first in range(0, len(own), MOST_AT_ONCE):
        found |= _priced_at_once(rows, own[first : first + MOST_AT_ONCE], waited, loops)
    return found


def _waited(rows: Sequence[PublishedRow], own: Sequence[tuple[int, _Asked]]) -> frozenset[int]:
    """Which of some rows of one machine and width had their kernel compiled right before they were measured, as their watts show."""
    asked: dict[tuple[str, ...], list[tuple[int, tuple[int, int, int]]]] = {}
    first, _, precision = own[0][1]
    generation = {gpu: name for name, gpus in precision.compiled.items() for gpu in gpus}
    for number, (case, _, _) in own:
        row, sizes = rows[number], dict(case.sizes)
        if row.text("system", "gpu") in generation:
            run = (row.text("system", "gpu"), row.dataset, row.text("framework"), row.text("version"))
            asked.setdefault(run, []).append((number, (int(sizes["m"]), int(sizes["n"]), int(sizes["k"]))))
    gpu = gpu_of(machine_of(*first.machine.named)) if asked else None
    if gpu is None:
        return frozenset()
    found = []
    for (system, *_), there in asked.items():
        last = precision.resumed.get(system)
        compiled = compiled_first(LAYOUTS[generation[system]], gpu.blocks, [sizes for _, sizes in there], last)
        found += [number for (number, _), first_call in zip(there, compiled, strict=True) if first_call]
    return frozenset(found)


def _priced_at_once(
    rows: Sequence[PublishedRow], own: Sequence[tuple[int, _Asked]], waited: frozenset[int], loops: dict[int, Loop]
) -> dict[int, list[ScoredRow]]:
    """Seconds, and watts where a row tells them. waited: rows before which the GPU waited for their kernel."""
    first = own[0][1][0]
    machine = machine_of(*first.machine.named)
    names = [name for name, _ in first.sizes]
    sizes = {name: np.array([dict(case.sizes)[name] for _, (case, _, _) in own], dtype=np.float64) for name in names}
    charges, seconds = price_local(machine, first.form, sizes, first.bits, timed=first.timed, family=first.family)
    joules = np.asarray(sum((charge.joules for charge in charges), np.zeros(len(own))))
    bins = bins_of(charges, len(own))
    gpu, fitted = gpu_of(machine), _fitted(machine, first)
    idle = machine.accelerator.static_power_w + gpu.facts.waiting_power_w if gpu else None
    found = {}
    for place, (number, (case, measured, precision)) in enumerate(own):
        row = rows[number]
        at_peak = "" if gpu is not None else f"{machine.name} states no measured kernels: peak rates"
        notes = (case.machine.note, precision.note, at_peak, f"timed: {case.timed}")
        takes, predicted = {name: float(value[place]) for name, value in bins.items()}, float(seconds[place])
        name = row.text(*PRECISIONS) or f"{case.bits} bit"
        time = kernel_row(row, name, (measured, predicted), notes, takes, of_fit(*fitted, predicted))
        graph = case.timed != "looped eager"
        power = watts_row(row, time, machine, float(joules[place]), graph=graph)
        if power:
            waiting = idle if number in waited else None
            if waiting is not None:
                power = [replace(one, assumptions=(*one.assumptions, "read after the GPU waited for its kernel")) for one in power]
            products = precision.in_turn.get(row.text("framework"), 1)
            loops[number] = Loop(power[0].predicted, time.predicted + gap_of(row, graph), products, waiting)
        found[number] = [time, *power]
    return found


def _fitted(machine: Architecture, case: LocalCase) -> tuple[str, float]:
    """(fact that prices products in a loop, mean error of its fit on shapes that it did not see); ('', 0) where none was fitted."""
    gpu = gpu_of(machine)
    if gpu is None or case.form != PRODUCT or case.timed not in ("looped", "looped eager"):
        return "", 0.0
    kind = product_kind(gpu.facts, replace(local_operation(case.form, dict(case.sizes), case.bits), family=case.family))
    return ("", 0.0) if kind is None else (f"kernels.products.{kind}", gpu.facts.products[kind].held_out)


def _case(row: PublishedRow) -> _Asked:
    """What a row asks. Raises Refused."""
    said = words()
    machine = said.machine(row.text("system", "gpu"), row.dataset)
    op = spelt(row.text("op"))
    op = next((one for one in (*PRODUCTS, *VECTORS, *BATCHES) if spelt(one) == op), row.text("op"))
    if op not in (*PRODUCTS, *VECTORS, *BATCHES):
        raise Refused(f"no shapes of '{op}'; known: {', '.join((*filter(None, PRODUCTS), *VECTORS, *BATCHES))}")
    bits = row.text("bits")
    precision = PrecisionWords(words=[f"{bits} bit"], width=f"{bits} bit") if bits else _precision(row)
    batch = row.whole("batch") or 1.0
    names = ("m", "n") if op in VECTORS else ("m", "n", "k")
    sizes = {name: row.number(name) or 0.0 for name in names}
    if not all(sizes.values()):
        raise Refused(f"no sizes of {op or 'the product'}")
    if any(size % 1 for size in (batch, *sizes.values())):
        raise Refused(f"sizes of {op or 'the product'} that are no whole numbers")
    form = VECTORS.get(op) or (BATCHED if batch > 1 else PRODUCT)
    if batch > 1:
        sizes = {"b": batch, **sizes}
    looped = row.text("gemm_dtype") and row.number("latency_us")
    timed = (precision.timed or "looped") if looped else said.dataset(row.dataset).timed
    try:
        width_bits = width(precision.width)
    except ValueError:
        raise Refused(f"no width of '{precision.width}'")
    units = machine_of(*machine.named), machine.machine, precision.words[0], precision.unit, precision.width
    if op not in VECTORS and (why := not_multiplied(*units)):
        raise Refused(why)
    case = LocalCase(machine, form, width_bits, precision.family, timed, tuple(sizes.items()))
    return case, _seconds(row, sizes), precision


def _precision(row: PublishedRow) -> PrecisionWords:
    return look_up(words().precisions, "precision", row.text(*PRECISIONS), *PRECISIONS)


def _seconds(row: PublishedRow, sizes: Mapping[str, float]) -> float:
    for column, scale in TIMES.items():
        value = row.number(column)
        if value:
            return value * scale
    rate = row.number("tflops")
    if rate and "k" in sizes:
        return 2.0 * prod(sizes.values()) / (rate * 1e12)
    raise Refused("no measured time")
