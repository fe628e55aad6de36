"""The numbers of an attention kernel on a GPU, by least squares on the logarithm of predicted over measured.

What a kernel is (whether query heads are packed, queries of a block) is tried each way and the nearest kept; a fact that not every
kernel has is kept where it brings the fit nearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.calibration.attention_calls import AttentionCalls
from rackmodel.calibration.log_fit import Fit, fit_logs, held_out
from rackmodel.calibration.shares import dealt
from rackmodel.cost.inside.attention import AttentionDevice, decode_seconds, mixed_seconds, prefill_seconds
from rackmodel.errors import InputError
from rackmodel.model.attention import DecodeAttention, PrefillAttention

Facts = DecodeAttention | PrefillAttention
Numbers = tuple[str, ...]

LEAST_ROWS = 12
START_OF_TRAINING_S = (8e-6, 1e-6, 20e-6)  # kernels queue up: a few starts, and no launches by the host
LEAST_OF_TRAINING = 8  # fewer numbers are fitted: nothing is put into a cache, and no query heads are packed
MOST_ROWS = 500  # a fit takes no more of them: 250 suffice
MOST_STEPS = 60
WORTH = 0.97  # a further fact must bring the cost below this share
RANGES: dict[str, tuple[float, float, float]] = {  # where a fit begins; least and most that it may find
    "start_s": (8e-6, 1e-6, 600e-6),
    "split_s": (2e-6, 0.01e-6, 30e-6),
    "load_bytes_per_s": (60e9, 3e9, 3000e9),
    "memory": (0.85, 0.05, 1.0),
    "query": (1.0, 0.05, 50.0),
    "window_s": (1e-6, 1e-9, 20e-6),
    "group_s": (2e-6, 1e-8, 10e-6),
    "copy_s": (3e-6, 1e-8, 10e-6),
    "sequence_s": (4e-9, 1e-11, 1e-6),
    "unscheduled": (0.85, 0.3, 1.5),
    "reuse_bytes": (60e6, 5e6, 300e6),
    "block_s": (2e-6, 1e-8, 60e-6),
    "step_s": (5e-9, 1e-11, 1e-6),
    "rate": (0.5, 0.003, 1.0),
    "tail": (0.5, 0.001, 1.5),
    "token_s": (1e-9, 1e-12, 1e-7),
    "element_s": (1.5e-12, 1e-14, 2e-11),
}
BOUND_BY_STEPS = {"load_bytes_per_s": 5.0, "step_s": 2.0}
"""Number → times it for a second beginning: blocks may be bound by what they fetch or by their steps, and a fit does not cross over."""
OF_PROMPTS = ("rate", "block_s")
TABLES = {"decode": ("block_s", "step_s"), "prefill": OF_PROMPTS, "forward": OF_PROMPTS, "backward": OF_PROMPTS}
TRAINED = ("start_s", "memory", "tail")
BASE = {
    "decode": ("start_s", "split_s", "load_bytes_per_s", "memory", "query"),
    "prefill": (*TRAINED, "token_s", "element_s"),
    "forward": TRAINED,
    "backward": TRAINED,
}
TILED: Numbers = ("rate",)
FURTHER: dict[str, tuple[Numbers, ...]] = {
    "decode": (("window_s",), ("sequence_s", "unscheduled"), ("reuse_bytes", "reuse_bytes_per_s"), TILED),
    "prefill": (("window_s",),),
    "forward": (("window_s",),),
    "backward": (("window_s",),),
}
APART: tuple[dict[str, Any], ...] = tuple({"groups": "apart", "rows": rows} for rows in (128, 64))
FORMS: dict[str, tuple[dict[str, Any], ...]] = {
    "decode": ({"groups": "packed"}, {"groups": "unwindowed"}),
    "prefill": tuple({"groups": groups, "rows": rows} for groups in ("packed", "apart") for rows in (128, 64)),
    "forward": APART,
    "backward": APART,
}
OF_LATENT = ({"groups": "packed", "rows": 16}, {"groups": "packed", "rows": 16, "parts": 4})
"""Triton's, which many GPUs run for latent attention; vLLM's cut a cache in four for long (num_kv_splits of its triton_mla.py)."""
OF_TRITON = ({"groups": "packed", "parts": 16},)  # of other attention: NUM_PAR_SOFTMAX_SEGMENTS of vLLM's triton_attn.py
OF_FORM: dict[str, Numbers] = {"unwindowed": ("group_s", "copy_s")}


@dataclass(frozen=True)
class _Form:
    """What is fitted: a kernel's form, its numbers, and the head sizes of its tables."""

    use: str
    form: tuple[tuple[str, Any], ...]
    numbers: Numbers
    heads: tuple[str, ...]

    @property
    def names(self) -> list[tuple[str, str]]:
        """(number, head size or '')."""
        return [(name, "") for name in self.numbers] + [(name, head) for name in TABLES[self.use] for head in self.heads]

    def facts(self, logs: Array) -> Facts:
        values: dict[str, Any] = dict(self.form)
        for (name, head), value in zip(self.names, np.exp(logs), strict=True):
            if head:
                values.setdefault(name, {})[head] = float(value)
            else:
                values[name] = float(value)
        made = DecodeAttention if self.use == "decode" else PrefillAttention
        defaults = {name: field.default for name, field in made.model_fields.items() if not field.is_required()}
        return made.model_construct(**{**defaults, **values})


def predict(facts: Facts, device: AttentionDevice, calls: AttentionCalls) -> Array:
    """[rows] seconds."""
    if isinstance(facts, DecodeAttention):
        return decode_seconds(facts, device, calls.sizes)[0] + calls.beside
    if calls.walked is not None:
        return mixed_seconds(facts, device, calls.sizes, calls.walked) + calls.beside
    return prefill_seconds(facts, device, calls.sizes)[0] + calls.beside


def least_of(calls: AttentionCalls) -> int:
    """Calls that a fit of such wants."""
    return LEAST_OF_TRAINING if calls.trained else LEAST_ROWS


def fit_attention(calls: AttentionCalls, device: AttentionDevice) -> Fit[Facts]:
    """Fit one kernel at one width, and every fold without the heads that it is tried on. Raises InputError."""
    if len(calls) < (least := least_of(calls)):
        raise InputError(f"{len(calls)} calls of {calls.kernel} on {calls.gpu}: want {least} or more", path=calls.source)
    form, facts = _best(calls, device)

    def told(some: Bools, other: Bools) -> Array:
        return _error(_fitted(form, calls.only(some), device)[1], device, calls.only(other))

    return Fit(facts=facts, inside=_error(facts, device, calls), outside=held_out(len(calls), _folds(calls), told))


def _best(calls: AttentionCalls, device: AttentionDevice) -> tuple[_Form, Facts]:
    """The nearest form, one that counts no SMs only where it is clearly nearer, then the further facts that bring it nearer."""
    heads = tuple(f"{head:g}" for head in np.unique(calls.sizes.head))
    forms = []
    own = OF_LATENT if calls.sizes.latent.any() else OF_TRITON if calls.kernel == "triton" else ()
    for words in (*FORMS[calls.use], *(own if calls.use == "decode" else ())):
        numbers = (*BASE[calls.use], *OF_FORM.get(words["groups"], ()))
        forms.append(_Form(calls.use, tuple(words.items()), numbers, heads))
    fitted = ((form, *_fitted(form, calls, device)) for form in forms)
    best = min(fitted, key=lambda one: one[1] / (WORTH if "parts" in dict(one[0].form) else 1.0))
    for further in FURTHER[calls.use]:
        if further == ("window_s",) and not calls.sizes.windowed.any():
            continue
        if further == TILED and calls.sizes.latent.any():  # blocks of other kernels
            continue
        form = _Form(calls.use, best[0].form, (*best[0].numbers, *further), heads)
        found = (form, *_fitted(form, calls, device))
        best = found if found[1] < WORTH * best[1] else best
    return best[0], best[2]


def _fitted(form: _Form, calls: AttentionCalls, device: AttentionDevice) -> tuple[float, Facts]:
    """(cost, facts) of a form's best numbers."""
    begin, low, high = np.log(np.array([_range(name, device, form.use) for name, _ in form.names])).T
    bound = np.array([BOUND_BY_STEPS.get(name, 1.0) * (float(head) / 128 if name == "step_s" else 1.0) for name, head in form.names])
    some = calls.only(np.random.default_rng(1).permutation(len(calls)) < MOST_ROWS)
    begins = (begin, begin + np.log(bound)) if form.use == "decode" else (begin,)
    cost, found = fit_logs(lambda logs: predict(form.facts(logs), device, some), some.seconds, begins, (low, high), steps=MOST_STEPS)
    return cost, form.facts(found)


def _range(name: str, device: AttentionDevice, use: str) -> tuple[float, float, float]:
    """Where a fit of a number begins, least and most: a cache on the chip is no slower than the memory behind it."""
    if name == "start_s" and use in ("forward", "backward"):
        return START_OF_TRAINING_S
    if name == "reuse_bytes_per_s":
        return 1.5 * device.bandwidth, device.bandwidth, 8.0 * device.bandwidth
    return RANGES[name]


def _error(facts: Facts, device: AttentionDevice, calls: AttentionCalls) -> Array:
    return np.abs(predict(facts, device, calls) / calls.seconds - 1)


def _folds(calls: AttentionCalls) -> Sequence[Bools]:
    """Rows held out together: whole (key heads, query heads, head size, sequences), of training whole lengths, dealt in a fixed order; of
    calls that are alike in these every fifth."""
    sizes = calls.sizes
    told = [sizes.head, sizes.queries] if calls.trained else [sizes.kv_heads, sizes.group, sizes.head, sizes.sequences]
    alike = np.unique(np.stack(told), axis=1, return_inverse=True)[1].ravel()
    return list(dealt(alike))
