"""The numbers of a kernel of experts' products, by least squares on the logarithm of predicted over measured.

Whole shapes (hidden, inter, chosen, experts) are held out to see the error on shapes that a fit did not see. A kernel of few shapes
starts as another of its library does, of which there are more: what is launched before and after the products is the same, and few
shapes do not tell it apart from the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.fit_products import CLEARLY, OF_MEMORY, REUSE
from rackmodel.calibration.log_fit import Fit, fit_logs, held_out
from rackmodel.calibration.shares import kept_out
from rackmodel.cost.inside.experts import ExpertDevice, ExpertLayer, call_seconds, is_aligned
from rackmodel.cost.inside.routing import ExpertLoad
from rackmodel.errors import InputError
from rackmodel.model.grouped import Grouped
from rackmodel.validation.experts import ExpertCase, layer_of, loads_of
from rackmodel.validation.kernel_words import ExpertPrecisionWords

LOSS = 0.12  # errors beyond it count less and less
LEAST_ROWS = 30
FEWEST_SHAPES = 5  # that tell what a call starts in, and whether rows stay in a cache
STARTS = ("start_s", "spread_s")
SURELY = 0.999  # of the cost where all rows are moved: rows of one rank alone do not tell
RANGES = {  # least and most that a fit may find
    "start_s": (0.5e-6, 300e-6),
    "spread_s": (1e-8, 100e-6),
    "rate": (0.1, 1.0),
    "load_bytes_per_s": (5e9, 3000e9),
    "step_s": (0.01e-9, 5e-9),
    "memory": (0.2, 1.0),
    "moving": (0.02, 3.0),
    "unaligned": (0.005, 1.0),  # rows of 44 bytes in Triton's kernels at 8 bit: twenty to a hundred times as slow
}
OF_CACHE = (0.1, 1.5)  # of the cache that a loop finds its weights in, least and most
HANDED = 0.95  # of the cost without, for rows that a kernel's loops find there, of kernels whose shapes are enough
TIMES = (1.0, 20.0)  # as fast as from the memory
COMMON = {"start_s": 20e-6, "spread_s": 5e-6, "unaligned": 0.3}
BEGIN: tuple[Mapping[str, float], ...] = (  # where fits begin: one alone may end in a valley
    {**COMMON, "rate": 0.6, "load_bytes_per_s": 150e9, "step_s": 0.8e-9, "memory": 0.8, "moving": 0.5},
    {**COMMON, "rate": 0.4, "load_bytes_per_s": 60e9, "step_s": 0.2e-9, "memory": 0.9, "moving": 0.4},
    {**COMMON, "unaligned": 0.02, "rate": 0.6, "load_bytes_per_s": 150e9, "step_s": 0.8e-9, "memory": 0.8, "moving": 0.5},
)


@dataclass(frozen=True, kw_only=True)
class ExpertCalls:
    """Rows of one kernel. device: what they ran on · like: the facts that are not fitted · layer, load: their sizes and what falls on
    the busiest rank · measured: seconds · shapes: of each row, what it is held out by · cache: bytes in which a loop finds weights again,
    0 = none · handed: whether rows may move faster from kernel to kernel than from the memory · given: numbers that are not fitted, as
    `like` has them."""

    device: ExpertDevice
    like: Grouped
    layer: ExpertLayer
    load: ExpertLoad
    measured: Array
    shapes: tuple[tuple[float, ...], ...]
    cache: float = 0.0
    handed: bool = False
    given: tuple[str, ...] = ()

    @classmethod
    def of(cls, device: ExpertDevice, like: Grouped, cases: Sequence[ExpertCase]) -> ExpertCalls:
        """Of the calls that rows measured."""
        return cls(
            device=device,
            like=like,
            layer=layer_of(cases),
            load=loads_of(cases),
            measured=np.array([case.seconds for case in cases]),
            shapes=tuple(case.shape for case in cases),
        )

    def starting_as(self, other: Grouped | None) -> ExpertCalls:
        """The same, its starts given by another kernel where its own shapes are too few to tell them."""
        if other is None or len(set(self.shapes)) >= FEWEST_SHAPES:
            return self
        return replace(self, like=self.like.model_copy(update={name: getattr(other, name) for name in STARTS}), given=STARTS)

    def predict(self, facts: Grouped) -> Array:
        """[rows] seconds."""
        return call_seconds(facts, self.device, self.layer, self.load)

    def only(self, which: Bools) -> ExpertCalls:
        """Some of the rows."""
        shapes = tuple(shape for shape, keep in zip(self.shapes, which, strict=True) if keep)
        return replace(self, layer=self.layer.at(which), load=self.load.at(which), measured=self.measured[which], shapes=shapes)


def fit_grouped(calls: ExpertCalls, source: str, cache: float = 0.0) -> Fit[Grouped]:
    """Fit a kernel to its rows, and every part of them without it. cache: bytes of the GPU's, 0 = there is none. Raises InputError."""
    if len(calls.measured) < LEAST_ROWS:
        raise InputError(f"{len(calls.measured)} calls of one kernel: want {LEAST_ROWS} or more", path=source)
    ways: tuple[Literal["all", "local"], ...] = ("all", "local")
    tried = [replace_rows(calls, way) for way in ways]
    found = [_least(one) for one in tried]
    best = 1 if found[1][0] < SURELY * found[0][0] else 0
    chosen = tried[best]
    cost, facts = found[best]
    if cache:
        kept = replace(chosen, cache=cache)
        cost_kept, facts_kept = _least(kept)
        if cost_kept < CLEARLY * cost:
            chosen, cost, facts = kept, cost_kept, facts_kept
    if len(set(calls.shapes)) >= FEWEST_SHAPES:
        handed = replace(chosen, handed=True)
        cost_handed, facts_handed = _least(handed)
        if cost_handed < HANDED * cost:
            chosen, facts = handed, facts_handed
    folds = kept_out(calls.shapes)
    outside = held_out(len(calls.measured), folds, lambda some, other: _error(_least(chosen.only(some))[1], chosen.only(other)))
    return Fit(facts=facts, inside=_error(facts, chosen), outside=outside)


def replace_rows(calls: ExpertCalls, way: Literal["all", "local"]) -> ExpertCalls:
    """The same where a kernel moves these rows."""
    return replace(calls, like=calls.like.model_copy(update={"rows": way}))


def _error(facts: Grouped, calls: ExpertCalls) -> Array:
    return np.abs(calls.predict(facts) / calls.measured - 1)


def _free(calls: ExpertCalls) -> tuple[str, ...]:
    """Numbers that rows tell: of ranks and of unaligned rows only where there are some; none that is given."""
    inner = np.concatenate([calls.layer.hidden, calls.layer.inter])
    unaligned = not is_aligned(calls.like, calls.device, inner).all()
    ranks = set(calls.layer.spread)
    left_out = {*calls.given, *(() if unaligned else ("unaligned",))}
    return tuple(name for name in RANGES if name not in left_out | ({"spread_s"} if len(ranks) == 1 else set()))


def _least(calls: ExpertCalls, begins: Sequence[Mapping[str, float]] = BEGIN) -> tuple[float, Grouped]:
    """(cost, facts) of the best fit from every begin: some rows end in a valley from one where all rows do not."""
    names, ranges, cached = _free(calls), dict(RANGES), dict[str, float]()
    if calls.cache:
        names, bandwidth = (*names, *REUSE), calls.device.bandwidth
        ranges |= {
            name: (unit * least, unit * most)
            for name, unit, (least, most) in zip(REUSE, (calls.cache, bandwidth), (OF_CACHE, OF_MEMORY), strict=True)
        }
        cached = {"reuse_bytes": 0.7 * calls.cache, "reuse_bytes_per_s": 4.0 * bandwidth}
    if calls.handed:
        names, ranges, cached = (*names, "cached"), {**ranges, "cached": TIMES}, {**cached, "cached": 2.0}
    low, high = np.log(np.array([ranges[name] for name in names])).T

    def facts(logs: Array) -> Grouped:
        return calls.like.model_copy(update=dict(zip(names, map(float, np.exp(logs)), strict=True)))

    starts = [np.log([{**begin, **cached}[name] for name in names]) for begin in begins]
    cost, found = fit_logs(lambda logs: calls.predict(facts(logs)), calls.measured, starts, (low, high), loss=LOSS, steps=60)
    return cost, facts(found)


def like_of(said: ExpertPrecisionWords) -> Grouped:
    """A kernel of operands: what is not fitted of it, and any numbers of what is."""
    shares = {"rate": 0.5, "memory": 0.8, "moving": 0.5, "start": "20 us", "load": "100 GB/s"}
    return Grouped.model_validate({"weights": said.weights, "activations": said.activations, "family": said.family, **shares})


def said_of(facts: Grouped) -> dict[str, Any]:
    """What a part file says of a kernel, in four digits."""
    said: dict[str, Any] = {"weights": facts.weights, "activations": facts.activations}
    if facts.family:
        said["family"] = facts.family
    said |= {"start": _time(facts.start_s), "spread": _time(facts.spread_s)}
    said |= {"rate": _digits(facts.rate), "load": f"{facts.load_bytes_per_s / 1e9:.4g} GB/s", "step": f"{facts.step_s * 1e9:.4g} ns"}
    said |= {"memory": _digits(facts.memory), "moving": _digits(facts.moving)}
    if facts.unaligned < 1:
        said["unaligned"] = _digits(facts.unaligned)
    if facts.cached > 1:
        said["cached"] = _digits(facts.cached)
    if facts.reuse_bytes_per_s is not None:
        said |= {"reuse": f"{facts.reuse_bytes / 1e6:.4g} MB", "reuse_bandwidth": f"{facts.reuse_bytes_per_s / 1e9:.4g} GB/s"}
    said |= {"rows": facts.rows} | ({} if facts.tuned else {"tuned": False})
    said |= {"aligned": facts.aligned} if facts.aligned != "bytes" else {}
    return said | ({"quantised": facts.quantised} if facts.quantised != "within" else {})


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
