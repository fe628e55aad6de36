"""Rows of single operations of a layer, and of quantisation: products and vector kernels, sized by a row's model and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.vectors import VectorDevice, vector_seconds
from rackmodel.errors import InputError, nearest
from rackmodel.model.sizes import evaluate
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.kernel_energy import moving_energy
from rackmodel.validation.kernel_words import LayerModelWords, LayerOpWords, LayerWords
from rackmodel.validation.layer_sizes import layer_model
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.products import PRODUCT, price_local
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, kernel_row
from rackmodel.validation.watts import watts_row
from rackmodel.validation.words import MachineWords, Refused, words

ELEMENT_BYTES = 2.0
BITS = 16
TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, kw_only=True)
class LayerCase:
    """One operation. kernel: of a part's `vector`, '' = a product · sizes: (m, n, k) of a product, (rows, bytes) of a kernel · shape: by
    which it is held out of fits · seconds: measured."""

    machine: MachineWords
    kernel: str
    sizes: tuple[float, ...]
    shape: tuple[object, ...]
    seconds: float


def layer_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    return alike_rows(rows, layer_case, lambda case: (*case.machine.named, case.kernel), _priced)


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, LayerCase]]) -> dict[int, list[ScoredRow]]:
    """Operations of one machine and kernel. Raises InputError."""
    seconds = price_layer_cases([case for _, case in own])
    found = {number: [_scored(rows[number], case, float(s))] for (number, case), s in zip(own, seconds, strict=True)}
    _add_watts(rows, own, seconds, found)
    return found


def _add_watts(
    rows: Sequence[PublishedRow], own: Sequence[tuple[int, LayerCase]], seconds: Array, found: dict[int, list[ScoredRow]]
) -> None:
    """Watts beside the seconds of one kernel whose rows tell them: its graph holds many, so that none waits for the host."""
    case = own[0][1]
    told = [place for place, (number, _) in enumerate(own) if rows[number].number("power_w") and case.kernel]
    if not told:
        return
    machine = machine_of(*case.machine.named)
    joules = moving_energy(machine, np.array([own[place][1].sizes[1] for place in told]), seconds[told])
    for place, drawn in zip(told, joules, strict=True):
        number = own[place][0]
        found[number] += watts_row(rows[number], found[number][0], machine, float(drawn), graph=False)


def price_layer_cases(cases: Sequence[LayerCase]) -> Array:
    """[n] seconds of operations of one machine and kernel. Raises InputError where the part does not state the kernel."""
    first, columns = cases[0], np.array([case.sizes for case in cases], dtype=np.float64).T
    machine = machine_of(*first.machine.named)
    if not first.kernel:
        return price_local(machine, PRODUCT, dict(zip("mnk", columns, strict=True)), BITS, timed="looped")[1]
    gpu = gpu_of(machine)
    known = {} if gpu is None else gpu.facts.vector
    if gpu is None or first.kernel not in known:
        raise InputError(f"{first.machine.machine} states no vector kernel '{first.kernel}'", known=list(known), given=first.kernel)
    count, moved = columns
    return vector_seconds(known[first.kernel], VectorDevice(bandwidth=gpu.bandwidth, cache=gpu.cache), moved, count)


def layer_case(row: PublishedRow) -> LayerCase:
    """The operation that a row measured. Raises Refused."""
    said = words()
    layer = said.layers.get(row.dataset) or next((one for one in said.layers.values() if one.tells(row.cells)), None)
    if layer is None:
        raise Refused(f"operations of the data set '{row.dataset}' are not explained in specs/validation/layers.yaml")
    word = row.text("op")
    if word not in layer.ops:
        close = nearest(word, list(layer.ops))
        raise Refused(f"no shape of '{word}'" + (f" (nearest: {close})" if close else "") + f"; known: {', '.join(layer.ops)}")
    op = layer.ops[word]
    machine = said.machine(row.text("system", "gpu"), row.dataset)
    tokens = row.whole(layer.tokens)
    seconds = next((value * 1e-6 for name in ("latency_us", "median_us", "time_us") if (value := row.number(name))), 0.0)
    if not tokens or not seconds:
        raise Refused("no tokens, or no measured time")
    sizes, model = _sizes(row, layer)
    shape = (row.text("model"), row.text("tp"), sizes.get("d"))
    kernel = op.kernel
    if model is not None:
        kernel = model.kernels.get(kernel, kernel)
        sizes |= {"tp": 1} if word in model.whole else {}
    return LayerCase(machine=machine, kernel=kernel, sizes=_of(op, sizes, tokens), shape=shape, seconds=seconds)


def _of(op: LayerOpWords, sizes: Mapping[str, int], tokens: float) -> tuple[float, ...]:
    """Sizes of an operation. Raises Refused where an expression asks for one that the row does not tell."""
    try:
        if op.kernel:
            return tokens, tokens * ELEMENT_BYTES * evaluate(op.moved, sizes, "moved")
        return tokens, evaluate(op.n, sizes, "n"), evaluate(op.k, sizes, "k")
    except InputError as problem:
        raise Refused(problem.message)


def _sizes(row: PublishedRow, layer: LayerWords) -> tuple[dict[str, int], LayerModelWords | None]:
    """(sizes of the row's model and columns, what is known of the model). Raises Refused."""
    own = {name: _cell(row, column) for name, column in layer.columns.items()}
    model = layer_model(row.text("model")) if "d" not in own else None
    sizes = own | (model.sizes if model is not None else {})
    if "e" not in sizes and sizes.get("h"):
        sizes["e"] = sizes["d"] // sizes["h"]
    return sizes, model


def _cell(row: PublishedRow, column: str) -> int:
    """A whole number of a column, of which true is one and false none. Raises Refused."""
    text = row.text(column).lower()
    value = TRUTH[text] if text in TRUTH else row.number(column)
    if value is None or value != int(value):
        raise Refused(f"no whole number of {column}")
    return int(value)


def _scored(row: PublishedRow, case: LayerCase, predicted: float) -> ScoredRow:
    name = case.kernel or "product"
    bins = {"memory" if case.kernel else "compute": predicted}
    return kernel_row(row, name, (case.seconds, predicted), (case.machine.note, f"kernel: {name}"), bins)
