"""The numbers of a GPU's matrix products of one kind of operands, by least squares on the logarithm of predicted over measured.

Products that the host bounded (eager) hide what a launch and a step along the sum take on the device: those two are taken from the kind
that they are most like, and the host's two times are fitted in their place. So is the share of the memory's bandwidth, where the host takes
longer than the largest weights at that kind's. Which form rows have is found from them as its numbers are, in every fold anew.

A step of training multiplies a layer's shapes, whose errors are alike: they have their rows and a side in common. How far sums of four
such products lie from the middle of layers of other sides is told by shapes held out, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.log_fit import Fit, fit_logs, held_out
from rackmodel.calibration.product_rows import ProductRows
from rackmodel.calibration.shares import dealt
from rackmodel.cost.inside.products import Device, compute_seconds, lacking_seconds, launched, looped_rate, together
from rackmodel.errors import InputError
from rackmodel.model.dispatch import DispatchRule
from rackmodel.model.resources import EagerLaunch, Products

OUTPUT_BYTES = 2.0  # products of every precision leave 16-bit results
LEAST_ROWS = 30
MOST_OF_PEAK = 1.25  # clocks above a data sheet's give less
LEAST_OF_PEAK = 0.002  # of the best of some products
MOST_LONGER, HOST_S = 100.0, 1e-4  # than operations, bytes and a host's call of 0.1 ms: of 30,000 on nine GPUs (aic_gemm) 8.7 at most
REUSE = ("reuse_bytes", "reuse_bytes_per_s")
OF_CACHE = (0.05, 1.5)  # of the cache that a loop finds operands in, least and most: loops go over up to six products
OF_MEMORY = (1.2, 20.0)  # times its bandwidth, the same
CLEARLY = 0.9  # of the cost without, for products that a loop finds in the cache
LIMITED = 0.85  # of the cost of one rate for all, for a limit of power that is told apart
ROWS, SIDES = 2048, (1024, 32768)  # of products as a layer has them in a step of training: least; least and most
OF_A_LAYER, MOST_SUMS, LEAST_SUMS = 4, 70, 40  # products of a layer; sums of one number of rows and side, and of all, most and least
DEALS = 10  # ways in which sides are dealt to halves (chosen: 80 say up to 11 % more, on five sets of products)
RANGES = {  # least and most that a fit may find
    "start_s": (0.1e-6, 30e-6),
    "rate": (0.2, 1.0),
    "load_bytes_per_s": (5e9, 1500e9),
    "memory": (0.3, 1.0),
    "step_s": (0.05e-9, 3e-9),
    "block_s": (0.01e-6, 10e-6),
    "split_s": (0.01e-6, 30e-6),
    "quantise": (0.01, 30.0),
    "sustained": (0.2, 1.0),
    "host_s": (5e-6, 2e-3),
    "host_few_s": (5e-6, 2e-3),
}
LATENCY_S = 1.5e-6  # of 16-bit kernels: the mean of six GPUs' where it is fitted, 0.9 to 2.5 us; of all alike as near
FEW = (1, 3, 16, 32)  # rows up to which the host's other time may hold
BEGIN_ALIKE = {"start_s": 3e-6, "block_s": 0.5e-6, "split_s": 4e-6, "sustained": 0.6}
BEGIN = (  # where fits begin: one alone may end in a valley
    {"rate": 0.75, "load_bytes_per_s": 140e9, "memory": 0.85, "step_s": 0.7e-9, "quantise": 3.0},
    {"rate": 0.65, "load_bytes_per_s": 250e9, "memory": 0.8, "step_s": 0.9e-9, "quantise": 8.0},
    {"rate": 0.85, "load_bytes_per_s": 40e9, "memory": 0.8, "step_s": 0.7e-9, "quantise": 2.0},
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What rows ran on. bandwidth: of the accelerator's memory, bytes/s · cache: bytes below it, 0 = there is none · dispatch: rule by
    which the library picks tiles, as the part says; None = it says none."""

    device: Device
    bandwidth: float
    cache: float = 0.0
    dispatch: DispatchRule | None = None


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is fitted. free: numbers of RANGES · fixed: those that are not · few: rows of `host_few_s`, 0 = no host · dispatch: rule by
    which the library picks its tiles, None = the fastest of six."""

    free: tuple[str, ...]
    fixed: Mapping[str, float] = field(default_factory=dict)
    few: int = 0
    dispatch: DispatchRule | None = None

    def facts(self, logs: Array) -> Products:
        """Products of the logarithms of the free numbers."""
        values = {name: float(value) for name, value in zip(self.free, np.exp(logs), strict=True)} | dict(self.fixed)
        host = {name: values.pop(name) for name in ("host_s", "host_few_s") if name in values}
        eager = EagerLaunch.model_construct(time_s=host["host_s"], few=self.few, few_time_s=host["host_few_s"]) if host else None
        found = {"split_s": None, "sustained": None, "eager": eager, "operands": None, "dispatch": self.dispatch, **values}
        return Products.model_construct(_fields_set=None, **found)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class ProductFit(Fit[Products]):
    """layers: what nine of ten layers' products are within where they are held out (`spread_of_sums`); 0 = too few rows."""

    layers: float = 0.0


def predict(facts: Products, machine: Machine, rows: ProductRows) -> Array:
    """[rows] seconds."""
    element = machine.device.element
    moved = element * (rows.m + rows.n) * rows.k + OUTPUT_BYTES * rows.m * rows.n
    rate = looped_rate(facts, machine.bandwidth, moved)
    compute = compute_seconds(facts, machine.device, 1.0, rows.m, rows.n, rows.k)
    quantising = facts.quantise * rows.m * rows.k * facts.memory / rate
    lacking = lacking_seconds(facts, machine.device, machine.bandwidth, 1.0, rows.m, rows.n, rows.k)
    device = facts.start_s + quantising + together(compute, facts.latency_s + moved / rate + lacking)
    return device if facts.eager is None else launched(device, facts.eager, rows.m)


def fit(rows: ProductRows, machine: Machine, like: Products | None = None) -> ProductFit:
    """Fit one GPU's products at one precision, and every fold without the shapes it is tried on. like: that the host bounded them, and the
    kind whose start and step they have on the device. Raises InputError."""
    if few := too_few(rows):
        raise InputError(few, path=rows.source)
    _believe(rows, machine)
    forms = forms_of(rows, machine, like)
    facts = nearest(rows, machine, forms)

    def told(some: Bools, other: Bools) -> Array:
        return _ratio(nearest(rows.only(some), machine, forms), machine, rows.only(other))

    inside, outside = _error(facts, machine, rows), held_out(len(rows), _folds(rows), told)
    return ProductFit(facts=facts, inside=inside, outside=np.abs(outside - 1), layers=spread_of_layers(rows, outside))


def too_few(rows: ProductRows) -> str:
    """What is said of rows that are too few for a fit, '' where they are not: the same product again tells nothing new."""
    different = np.unique(np.stack([rows.m, rows.n, rows.k]), axis=1).shape[1]
    if different >= LEAST_ROWS:
        return ""
    return f"{different} different products ({rows.whose}): want {LEAST_ROWS} or more"


def _believe(rows: ProductRows, machine: Machine) -> None:
    """Raises InputError where rows cannot be of the machine: one multiplies far beyond its peak, none comes near what it can do, or one
    takes far longer than anything in it does."""
    whole = "" if rows.where else rows.source
    multiplying = 2 * rows.m * rows.n * rows.k / machine.device.peak
    moving = machine.device.element * (rows.m * rows.k + rows.n * rows.k) / machine.bandwidth
    most = int(np.argmax(multiplying / rows.seconds))
    share, best = multiplying[most] / rows.seconds[most], float((np.maximum(multiplying, moving) / rows.seconds).max())
    if share > MOST_OF_PEAK:
        size = f"{rows.m[most]:.0f}x{rows.n[most]:.0f}x{rows.k[most]:.0f}"
        fact = f"{size} would run at {share:.3g} times the part's peak of {rows.precision}"
        raise InputError(f"{fact}: another part, precision or unit of time?", where=rows.place(most), path=whole)
    if best < LEAST_OF_PEAK:
        fact = f"every product of {rows.precision} takes {1 / best:.0f} times as long as the part's peak and memory let it, or longer"
        raise InputError(f"{fact}: another unit of time?", path=rows.source)
    longer = rows.seconds / (np.maximum(multiplying, moving) + HOST_S)
    if longer.max() > MOST_LONGER:
        slowest = int(np.argmax(longer))
        size = f"{rows.m[slowest]:.0f}x{rows.n[slowest]:.0f}x{rows.k[slowest]:.0f}"
        fact = f"{size} takes {longer[slowest]:.0f} times as long as its operations or bytes and a host's call"
        raise InputError(f"{fact}: another unit of time?", where=rows.place(slowest), path=whole)


def nearest(rows: ProductRows, machine: Machine, forms: Sequence[Form]) -> Products:
    """The form with its numbers that is nearest to rows, one that tells the limit of power apart, or what their loop finds in a cache, only
    where that is clearly nearer."""
    fitted = [(_least(rows, machine, form), form) for form in forms]
    (cost, facts), form = min(fitted, key=lambda found: found[0][0] * (1.0 if "sustained" in found[1].free else LIMITED))
    if machine.cache and not form.few:
        cost_kept, facts_kept = _least(rows, machine, replace(form, free=(*form.free, *REUSE)))
        facts = facts_kept if cost_kept < CLEARLY * cost else facts
    return facts


def _ratio(facts: Products, machine: Machine, rows: ProductRows) -> Array:
    return predict(facts, machine, rows) / rows.seconds


def _error(facts: Products, machine: Machine, rows: ProductRows) -> Array:
    return np.abs(_ratio(facts, machine, rows) - 1)


def spread_of_layers(rows: ProductRows, ratio: Array) -> float:
    """What nine of ten sums of a layer's products lie within (`spread_of_sums`); 0 where rows make few such sums. ratio: [rows] predicted
    over measured."""
    sums = [(side, float((rows.seconds[own] * ratio[own]).sum() / rows.seconds[own].sum())) for side, own in layers_of(rows)]
    side, value = np.array(sums).reshape(-1, 2).T
    return spread_of_sums(side, value) if len(sums) >= LEAST_SUMS else 0.0


def spread_of_sums(side: Array, value: Array) -> float:
    """What nine of ten sums lie within, about the middle of those that have other sides in common and over it: sides are dealt to two
    halves, several times; 0 where all have one. side: [sums] that products have in common · value: [sums] predicted over measured."""
    sides, away = np.unique(side), [np.zeros(1)]
    for deal in range(DEALS if len(sides) > 1 else 0):
        first = np.isin(side, np.random.default_rng(deal).permutation(sides)[::2])
        away += [np.abs(value[tried] / np.median(value[~tried]) - 1) for tried in (first, ~first)]
    return float(np.percentile(np.concatenate(away[-2 * DEALS :]), 90))


def layers_of(rows: ProductRows) -> Iterator[tuple[float, list[int]]]:
    """(side in common, numbers of products) that a layer may have: of equal rows, and of that side."""
    least, most = SIDES
    large = (rows.m >= ROWS) & (np.minimum(rows.n, rows.k) >= least) & (np.maximum(rows.n, rows.k) <= most)
    for m in np.unique(rows.m[large]):
        for width in np.unique(np.concatenate([rows.n[large], rows.k[large]])):
            alike = np.flatnonzero(large & (rows.m == m) & ((rows.n == width) | (rows.k == width)))
            every = itertools.combinations(alike.tolist(), OF_A_LAYER)
            yield from ((float(width), list(some)) for some in itertools.islice(every, MOST_SUMS))


def _folds(rows: ProductRows) -> list[Bools]:
    """Rows held out together: whole shapes (n, k), dealt in a fixed order; of rows of one shape every fifth."""
    shapes = np.unique(np.stack([rows.n, rows.k]), axis=1, return_inverse=True)[1].ravel()
    return list(dealt(shapes))


def forms_of(rows: ProductRows, machine: Machine, like: Products | None) -> list[Form]:
    """Forms to fit, of which the best counts: 16-bit kernels split sums; those of less quantise their left operand, and do not. Of these
    libraries have few kernels, so that the limit of power, whole waves and the rules by which they choose show."""
    common: tuple[str, ...] = ("rate", "load_bytes_per_s", "memory")
    if like is None and rows.precision == "bf16":
        return [Form(free=("start_s", *common, "step_s", "block_s", "split_s"), fixed={"latency_s": LATENCY_S})]
    if like is None:
        plain = Form(free=("start_s", *common, "step_s", "quantise"))
        limited = replace(plain, free=(*plain.free, "block_s", "sustained"))
        return [plain, limited, *([replace(limited, dispatch=machine.dispatch)] if machine.dispatch else [])]
    fixed = {"start_s": like.start_s, "step_s": like.step_s, "block_s": like.block_s, "latency_s": like.latency_s}
    seen = [few for few in FEW if np.any(rows.m <= few) and np.any(rows.m > few)]
    if not seen:
        raise InputError(f"{rows.precision} of {rows.gpu}: want products of few rows ({FEW[-1]} at most) and of more", path=rows.source)
    if _hidden(rows, machine, like):
        common, fixed = common[:-1], {**fixed, "memory": like.memory}
    return [Form(free=(*common, "quantise", "host_s", "host_few_s"), fixed=fixed, few=few) for few in seen]


def _hidden(rows: ProductRows, machine: Machine, like: Products) -> bool:
    """Whether the host takes longer than the weights of any product of few rows would be read, at the share of the bandwidth that `like`
    keeps: then no row tells their own."""
    few = rows.m <= FEW[-1]
    most_s = machine.device.element * np.max(rows.n[few] * rows.k[few]) / (like.memory * machine.bandwidth)
    return bool(most_s < np.median(rows.seconds[few]))


def _least(rows: ProductRows, machine: Machine, form: Form) -> tuple[float, Products]:
    """(cost, facts) of the best fit of a form from every begin: some rows end in a valley from one where all rows do not."""
    return min((_least_from(rows, machine, form, begin) for begin in BEGIN), key=lambda found: found[0])


def _range(name: str, machine: Machine) -> tuple[float, float]:
    """Least and most that a fit may find of a number."""
    unit, (least, most) = {"reuse_bytes": (machine.cache, OF_CACHE), "reuse_bytes_per_s": (machine.bandwidth, OF_MEMORY)}.get(
        name, (1.0, RANGES.get(name, (0.0, 0.0)))
    )
    return unit * least, unit * most


def _least_from(rows: ProductRows, machine: Machine, form: Form, begin: Mapping[str, float]) -> tuple[float, Products]:
    """(cost, facts) of one fit. The host's times begin at what products of few and of more rows take at least."""
    low, high = np.log(np.array([_range(name, machine) for name in form.free])).T
    few = rows.m <= form.few
    sides = {"host_s": ~few, "host_few_s": few} if form.few else {}
    floors = {name: float(np.median(rows.seconds[side])) for name, side in sides.items()}
    cached = {"reuse_bytes": 0.2 * machine.cache, "reuse_bytes_per_s": 4.0 * machine.bandwidth}
    start = np.log([{**BEGIN_ALIKE, **floors, **cached, **begin}[name] for name in form.free])
    cost, found = fit_logs(lambda logs: predict(form.facts(logs), machine, rows), rows.seconds, [start], (low, high))
    return cost, form.facts(found)
