"""A part's attention kernels fitted to measured calls, and what a part file says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rackmodel.calibration.attention_calls import AttentionCalls, joined, read_calls
from rackmodel.calibration.fit_attention import Facts, fit_attention, least_of
from rackmodel.calibration.log_fit import Fit
from rackmodel.calibration.product_rows import one_gpu
from rackmodel.calibration.shares import mean_and_median
from rackmodel.cost.inside.attention_calls import AttentionPart
from rackmodel.cost.inside.gpu import Gpu
from rackmodel.model.architecture import Architecture
from rackmodel.model.attention import DecodeAttention, PrefillAttention
from rackmodel.validation.rows import read_rows

WIDTHS = {16: "bf16", 8: "fp8", 4: "fp4"}
DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class CalibratedAttention:
    """One kernel of a part. calls: what it was fitted to · fit: with its errors."""

    calls: AttentionCalls
    fit: Fit[Facts]

    @property
    def precision(self) -> str:
        """Width of keys and values."""
        return WIDTHS[self.calls.bits]

    def words(self) -> str:
        """How far the fit is from its calls, and from calls of heads that it did not see."""
        calls = self.calls
        return (
            f"fitted to {len(calls)} calls of {calls.source} ({calls.gpu}, {calls.kernel}, {calls.use}, {self.precision}): "
            f"mean and median error {mean_and_median(self.fit.inside)} %, "
            f"of {'lengths' if calls.trained else 'heads'} held out {mean_and_median(self.fit.outside)} %"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "gpu": self.calls.gpu,
            "kernel": self.calls.kernel,
            "use": self.calls.use,
            "precision": self.precision,
            "n": len(self.calls),
            "facts": self.fit.facts.model_dump(exclude={"source", "note"}),
            "mean_abs_error_pct": 100 * float(self.fit.inside.mean()),
            "held_out_mean_abs_error_pct": 100 * float(self.fit.outside.mean()),
        }

    def said(self) -> dict[str, Any]:
        """What a part file says of it, in four digits."""
        held_out = {"held_out": round(float(self.fit.outside.mean()), 3)} if self.calls.trained else {}
        return {**attention_facts(self.fit.facts), **held_out, "source": f"SOURCED: {self.words()}"}


def calibrate_attention(
    machine: Architecture, gpu: Gpu, paths: Sequence[Path], name: str | None, left: list[str]
) -> list[CalibratedAttention]:
    """Fit every attention kernel and width that the files hold of one GPU. name: the files' word for it, where they hold several · left:
    gets what is said of what no fit took.

    Raises InputError."""
    one_gpu((row.text("system", "gpu") for path in paths for row in read_rows(path)), name, "attention calls")
    found = joined([calls for path in paths for calls in read_calls(path, machine, name, left)])
    part = AttentionPart(compute=gpu.compute, units=gpu.units, blocks=gpu.blocks, bandwidth=gpu.bandwidth, looped=True)
    chosen: list[AttentionCalls] = []
    for calls in found:
        if calls.bits in WIDTHS and len(calls) >= least_of(calls):
            chosen.append(calls)
        else:
            left.append(f"{len(calls)} calls of {calls.kernel} ({calls.use}, {calls.bits} bit): want {least_of(calls)} or more")
    return [CalibratedAttention(calls=calls, fit=_kept(gpu, calls, fit_attention(calls, part.device(calls.bits)))) for calls in chosen]


def _kept(gpu: Gpu, calls: AttentionCalls, fit: Fit[Facts]) -> Fit[Facts]:
    """The fit with what the part says of several new tokens of a sequence, of which calls of one tell nothing."""
    kernel = gpu.facts.attention.get(calls.kernel)
    known = None if kernel is None else kernel.decode.get(WIDTHS[calls.bits])
    if calls.use != "decode" or known is None:
        return fit
    return replace(fit, facts=fit.facts.model_copy(update={"tokens": known.tokens}))


def attention_tree(found: Sequence[CalibratedAttention]) -> dict[str, Any]:
    """What a part's `kernels` say of fitted attention."""
    said: dict[str, Any] = {}
    for one in found:
        kernel = said.setdefault(one.calls.kernel, {})
        if one.calls.trained:
            kernel.setdefault("training", {}).setdefault(one.precision, {})[one.calls.use] = one.said()
        else:
            kernel.setdefault(one.calls.use, {})[one.precision] = one.said()
    return said


def attention_facts(facts: DecodeAttention | PrefillAttention) -> dict[str, Any]:
    """Key → value as a part file writes it; what counts as nothing is left out."""
    said: dict[str, Any] = {}
    for name, field in type(facts).model_fields.items():
        value = getattr(facts, name)
        if name in ("source", "note") or value is None or (not field.is_required() and value == field.default and name != "groups"):
            continue
        said[field.alias or name] = (
            {head: _written(name, one) for head, one in value.items()} if isinstance(value, dict) else _written(name, value)
        )
    return said


def _written(name: str, value: Any) -> Any:
    """A number with its unit."""
    if isinstance(value, str) or name in ("rows", "parts"):
        return value
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e9:.{DIGITS}g} GB/s"
    if name.endswith("_bytes"):
        return f"{value / 1e6:.{DIGITS}g} MB"
    if name == "element_s":
        return f"{value * 1e12:.{DIGITS}g} ps"
    if name.endswith("_s"):
        return f"{value * 1e6:.{DIGITS}g} us" if value >= 1e-7 else f"{value * 1e9:.{DIGITS}g} ns"
    return float(f"{value:.{DIGITS}g}")
