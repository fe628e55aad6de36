"""What a GPU draws while a kernel runs, from watts of kernels in a loop: the busy power of a part, and of kinds of kernels.

    W = min(limit, static + power + joules / seconds)                              joules: of operations and bytes, as the part has them
    W = min(limit, static + power + joules / seconds + moved · bytes / seconds)    of kernels that move rows, also short ones

    W = static + (joules + power · running + waiting · (seconds - running)) / seconds    of products that the host keeps waiting

power (and moved) have the least sum of |log(predicted / measured)| over kernels of LONG and more: a loop of shorter ones leaves the GPU
waiting for the host, or shows what ran before it, and watts are then of that, too. Kernels that quantise were looped within graphs, and
their watts rise smoothly with what they move: all of them count.

waiting is the lower quartile over products of FEW rows that run for less than MOST_RUNNING of their call. The meter shows the mean of the
last second (NVML, nvmlDeviceGetPowerUsage), and these loops take 0.2 to 1 s: a reading holds what ran before, too, which draws more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rackmodel.arrays import Array
from rackmodel.calibration.part import part_alone
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.roofline import Row
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import WAITING, BusyKind, WatchedKind, width
from rackmodel.validation.attention import attention_case, price_looped
from rackmodel.validation.experts import expert_case, layer_of
from rackmodel.validation.kernel_energy import Moved, bytes_moved, call_moved, moved_of
from rackmodel.validation.layer_ops import layer_case
from rackmodel.validation.products import PRODUCT, price_local
from rackmodel.validation.rows import PublishedRow, read_rows
from rackmodel.validation.words import PrecisionWords, Refused, look_up, words

LONG = 0.2e-3  # s
LEAST_ROWS = 20
REACHED = 0.985  # share of the limit that a GPU at its limit is measured to draw
LONGEST_SUM = 50_000  # elements: rows beyond were measured in another way (watts at one rate differ)
WIDTH = 16  # bits of the products that are looked at
MOST_MOVED = 200  # pJ a byte that is tried
QUANTISE = "quantise"
FEW = 64  # rows of a product
MOST_RUNNING = 0.15  # of a call's time
QUARTILE = 0.25


@dataclass(frozen=True, kw_only=True)
class BusyPower:
    """kind: of kernels, None = matrix products, and what is of no kind; WAITING = none runs · busy_w,
    moved_j_per_byte: found · away: |log(predicted / measured)| of the kernels it was fitted to, [n]."""

    gpu: str
    kind: WatchedKind | None
    busy_w: float
    moved_j_per_byte: float
    away: Array

    def fact(self) -> dict[str, str]:
        """What a part file says."""
        source = f"SOURCED: `rackmodel calibrate`, {self.words()}"
        if self.kind in (None, WAITING):
            return {"value": f"{self.busy_w:.0f} W", "source": source}
        moved = {"moved": f"{1e12 * self.moved_j_per_byte:.0f} pJ/byte"} if self.moved_j_per_byte else {}
        return {"power": f"{self.busy_w:.0f} W", **moved, "source": source}

    def words(self) -> str:
        """How near it is."""
        of = {
            None: "long products",
            "experts": "long calls of experts' products",
            "vector": "kernels that quantise",
            WAITING: "products of few rows that the host keeps waiting, their lower quartile",
        }
        kernels = of.get(self.kind, f"long calls of attention ({self.kind})")
        more = f" and {1e12 * self.moved_j_per_byte:.0f} pJ a byte" if self.moved_j_per_byte else ""
        return (
            f"fitted to watts of {len(self.away)} {kernels} ({self.gpu}): {self.busy_w:.0f} W{more}, mean and median error "
            f"{100 * self.away.mean():.1f} and {100 * np.median(self.away):.1f} %"
        )


@dataclass(frozen=True)
class _Watched:
    """Kernels whose watts were measured. Each is [n]; moved: joules without busy power, and bytes."""

    moved: Moved
    seconds: Array
    watts: Array


def busy_powers(part: str, paths: Sequence[Path], gpu: str | None = None) -> list[BusyPower]:
    """Fit the busy power of a part, and of each kind of kernels, to watts in the files, of one GPU where it is named; nothing of kinds of
    which too few rows tell any, or where the part has no limit."""
    machine = part_alone(part)
    found = gpu_of(machine)
    if found is None or found.facts.power_limit_w is None:
        return []
    rows = [row for path in paths for row in read_rows(path) if gpu in (None, row.text("system", "gpu")) and row.number("power_w")]
    fits = []
    for kind, watch in WATCHED:
        watched = watch(machine, rows)
        if watched is not None and len(watched.watts) >= LEAST_ROWS:
            most = MOST_MOVED if kind == "vector" else 0
            fits.append(replace(_fitted(machine, found.facts.power_limit_w, watched, most), gpu=gpu or part, kind=kind))
    products = next((one.busy_w for one in fits if one.kind is None), found.facts.busy_power_w)
    waiting = _waiting(machine, rows, products)
    return [*fits, *([replace(waiting, gpu=gpu or part)] if waiting is not None else [])]


def _fitted(machine: Architecture, limit_w: float, watched: _Watched, most_moved: int) -> BusyPower:
    """The numbers with the least error. most_moved: pJ a byte that are tried."""
    own = machine.accelerator.static_power_w + watched.moved.joules / watched.seconds
    tried, best = np.arange(0.0, limit_w), BusyPower(gpu="", kind=None, busy_w=0.0, moved_j_per_byte=0.0, away=np.array([np.inf]))
    for picojoules in range(most_moved + 1):
        carried = picojoules * 1e-12 * watched.moved.amount / watched.seconds
        drawn = np.minimum(REACHED * limit_w, own + carried + tried[:, None])
        away = np.abs(np.log(drawn / watched.watts))
        at = int(np.argmin(away.sum(axis=1)))
        if away[at].sum() < best.away.sum():
            best = replace(best, busy_w=float(tried[at]), moved_j_per_byte=picojoules * 1e-12, away=away[at])
    return best


def _watched(moved: Moved, rows: Sequence[PublishedRow]) -> _Watched:
    return _Watched(moved, np.array([_seconds(row) for row in rows]), np.array([row.number("power_w") for row in rows], dtype=np.float64))


def _seconds(row: PublishedRow) -> float:
    return (row.number("latency_us") or 0.0) * 1e-6


def _products(machine: Architecture, rows: Sequence[PublishedRow]) -> _Watched | None:
    """Long products of 16 bit."""
    own = [row for row in rows if _long(row)]
    if not own:
        return None
    m, n, k = np.array([[row.number(name) or 0.0 for name in ("m", "n", "k")] for row in own]).T
    charges, _ = price_local(machine, PRODUCT, {"m": m, "n": n, "k": k}, WIDTH, timed="looped")
    return _watched(_of_charges(machine, charges, len(own)), own)


def _experts(machine: Architecture, rows: Sequence[PublishedRow]) -> _Watched | None:
    """Long calls of experts' products by kernels that the part states."""
    gpu = gpu_of(machine)
    alike: dict[str, list[PublishedRow]] = {}
    for row in rows:
        if row.kind == "expert products" and _seconds(row) >= LONG:
            try:
                alike.setdefault(expert_case(row).kernel, []).append(row)
            except Refused:
                continue
    alike = {kernel: own for kernel, own in alike.items() if gpu is not None and kernel in gpu.facts.grouped}
    if not alike:
        return None
    parts = []
    for kernel, own in alike.items():
        cases = [expert_case(row) for row in own]
        parts.append(call_moved(machine, kernel, layer_of(cases), [case.routing for case in cases]))
    return _watched(_together(parts), [row for own in alike.values() for row in own])


def _attention(machine: Architecture, rows: Sequence[PublishedRow], *, few: bool) -> _Watched | None:
    """Long calls of one new token a sequence, or of many, in training too, by kernels that the part states."""
    gpu = gpu_of(machine)
    alike: dict[object, list[PublishedRow]] = {}
    for row in rows:
        if row.kind == "attention" and _seconds(row) >= LONG and (row.number("q_len") == 1) == few:
            try:
                case = attention_case(row)
            except (Refused, InputError):
                continue
            kernel = None if gpu is None else gpu.facts.attention.get(case.kernel)
            if kernel is not None and (kernel.training if case.way else kernel.serves):
                alike.setdefault((case.kernel, case.heads, case.way), []).append(row)
    if not alike:
        return None
    parts = []
    for own in alike.values():
        cases = [attention_case(row) for row in own]
        parts.append(_of_charges(machine, price_looped(machine, cases)[0], len(own)))
    return _watched(_together(parts), [row for own in alike.values() for row in own])


def _vectors(machine: Architecture, rows: Sequence[PublishedRow]) -> _Watched | None:
    """Kernels that quantise; what finds their scales was measured as the difference of two."""
    own, moved = [], []
    for row in rows:
        if row.kind == "quantise":
            try:
                case = layer_case(row)
            except Refused:
                continue
            if case.kernel == QUANTISE:
                own.append(row)
                moved.append(case.sizes[1])
    return _watched(bytes_moved(machine, np.array(moved)), own) if own else None


WATCHED: tuple[tuple[BusyKind | None, Callable[[Architecture, Sequence[PublishedRow]], _Watched | None]], ...] = (
    (None, _products),
    ("experts", _experts),
    ("decode", lambda machine, rows: _attention(machine, rows, few=True)),
    ("prefill", lambda machine, rows: _attention(machine, rows, few=False)),
    ("vector", _vectors),
)
"""Kind of kernels → those of some rows whose watts say what it draws."""


def _waiting(machine: Architecture, rows: Sequence[PublishedRow], busy_w: float) -> BusyPower | None:
    """What the GPU draws above static power between products that the host launches one by one. busy_w: while one runs."""
    own = [row for row in rows if row.kind == "product" and (row.number("m") or 0.0) <= FEW and _eager(machine, row)]
    if not own:
        return None
    families = [_precision(row).family for row in own]
    joules, running = np.zeros(len(own)), np.zeros(len(own))
    m, n, k = np.array([[row.number(name) or 0.0 for name in ("m", "n", "k")] for row in own]).T
    for family in dict.fromkeys(families):
        here = np.array([one == family for one in families])
        bits = width(_precision(own[families.index(family)]).width)
        sizes = {"m": m[here], "n": n[here], "k": k[here]}
        charges, running[here] = price_local(machine, PRODUCT, sizes, bits, timed="looped", family=family)
        joules[here] = _of_charges(machine, charges, int(here.sum())).joules
    watched = _watched(Moved(joules, joules), own)
    share = running / watched.seconds
    other = machine.accelerator.static_power_w + joules / watched.seconds + busy_w * share
    idle = share < MOST_RUNNING
    if idle.sum() < LEAST_ROWS:
        return None
    each = (watched.watts - other)[idle] / (1.0 - share[idle])
    waiting = max(float(np.quantile(each, QUARTILE)), 0.0)
    away = np.abs(np.log((other + waiting * (1.0 - share)) / watched.watts))[idle]
    return BusyPower(gpu="", kind=WAITING, busy_w=waiting, moved_j_per_byte=0.0, away=away)


def _eager(machine: Architecture, row: PublishedRow) -> bool:
    """Whether the host launched a product each time, by a kernel that the part states."""
    gpu = gpu_of(machine)
    try:
        precision = _precision(row)
    except Refused:
        return False
    return gpu is not None and precision.timed == "looped eager" and precision.family in gpu.facts.products


def _precision(row: PublishedRow) -> PrecisionWords:
    return look_up(words().precisions, "precision", row.text("gemm_dtype", "precision"))


def _of_charges(machine: Architecture, charges: Sequence[Row], count: int) -> Moved:
    return moved_of(machine, [row for row in charges if row.component != "static"], count)


def _together(parts: Sequence[Moved]) -> Moved:
    return Moved(np.concatenate([one.joules for one in parts]), np.concatenate([one.amount for one in parts]))


def _long(row: PublishedRow) -> bool:
    """Whether a row is a long product of 16 bit with its watts."""
    if row.kind != "product" or _seconds(row) < LONG or (row.number("k") or 0.0) > LONGEST_SUM:
        return False
    precision = _precision(row)
    return not precision.family and precision.width == f"{WIDTH} bit"
