"""Flips of the keys of workloads."""

from __future__ import annotations

from tests.keys.flip import Flip
from tests.keys.machines import _GPU, EXPERTS

_SPARSE = {"work.tensors": {"W1": {"density": 0.25}}}

_SERVED = {"work.phases": ["forward"], "work.serving": {"sequences": "b", "new": "s", "cached": "d"}}

_DEALT = {name: EXPERTS[name] for name in ("work.phases", "work.sizes", "work.einsums", "work.tensors")}
_DEALT |= {"mapper.axes": {"tp": {"degree": 8}}, "mapper.split": {"tp": ["x"]}}

_RATES = {"16 bit": {"rate": "0.1 TFLOP/s"}, "8 bit": {"rate": "0.2 TFLOP/s"}}
_NARROW = {"work.precision.weight": "8 bit", f"{_GPU}.compute.precisions": _RATES}

WORKLOADS = {
    "WorkloadSpec.phases": Flip("layers", "work.phases", ["forward"]),
    "WorkloadSpec.sizes": Flip("layers", "work.sizes", {"b": 8, "s": 32, "d": 256, "f": 1024}),
    "WorkloadSpec.precision": Flip("layers", "work.precision", {"weight": "8 bit"}),
    "WorkloadSpec.einsums": Flip("graph", "work.einsums", {"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]"}),
    "WorkloadSpec.sections": Flip("layers", "work.sections", {"block": {"einsums": {"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]"}}}),
    "WorkloadSpec.mtp": Flip("layers", "work.mtp", {"more": {"einsums": {"M": "Z[b,s,d] = scale(H[b,s,d])"}}}, refused="mtp"),
    "WorkloadSpec.serving": Flip("layers", "work.serving", {"cached": "t"}, {"work.phases": ["forward"]}, refused="serving.cached"),
    "ServingSpec.sequences": Flip("layers", "work.serving.sequences", "requests", _SERVED, refused="serving.sequences"),
    "ServingSpec.new": Flip("layers", "work.serving.new", "tokens", _SERVED, refused="serving.new"),
    "ServingSpec.cached": Flip("layers", "work.serving.cached", "context", _SERVED, refused="serving.cached"),
    "ServingSpec.skew": Flip("measured", "work.serving.skew", 1.2, {**EXPERTS, **_SERVED}),
    "WorkloadSpec.imbalance": Flip("graph", "work.imbalance", {"x": 1.5}, _DEALT),
    "WorkloadSpec.batch_rank": Flip("layers", "work.batch_rank", "s", {"mapper.micro_batch": 2}),
    "WorkloadSpec.optimizer": Flip("layers", "work.optimizer", "sgd"),
    "WorkloadSpec.tensors": Flip("layers", "work.tensors", {"H": {"precision": "8 bit"}}),
    "WorkloadSpec.repeat": Flip("graph", "work.repeat", 3),
    "Precision.recipe": Flip("layers", "work.precision.recipe", "fp8"),
    "Precision.activation": Flip("layers", "work.precision.activation", "8 bit"),
    "Precision.weight": Flip("layers", "work.precision.weight", "8 bit"),
    "Precision.experts": Flip("layers", "work.precision.experts", "4 bit", refused="precision.experts"),
    "Precision.kv_cache": Flip("layers", "work.precision.kv_cache", "8 bit", refused="precision.kv_cache"),
    "Precision.product": Flip("layers", "work.precision.product", "8 bit", _NARROW),
    "Precision.gradient": Flip("layers", "work.precision.gradient", "16 bit"),
    "Precision.state": Flip("layers", "work.precision.state", "64 bit"),
    "SectionSpec.einsums": Flip(
        "layers",
        "work.sections.block.einsums",
        {"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]", "ACT": "A[b,s,f] = gelu(H[b,s,f])", "FC2": "Y[b,s,d] = A[b,s,f] * W2[f,d]"},
    ),
    "SectionSpec.prompts": Flip("layers", "work.sections.block.prompts", {"FC1": "H[b,s,f] = X[b,s,d] * W3[d,f]"}, refused="serving"),
    "SectionSpec.repeat": Flip("layers", "work.sections.block.repeat", 5),
    "TensorSpec.kind": Flip("graph", "work.tensors.X.kind", "weight", {"work.einsums.FC1": "H[b,s,f] = X[b,s,d] * V1[d,f]"}),
    "TensorSpec.density": Flip("layers", "work.tensors.W1.density", 0.25),
    "TensorSpec.precision": Flip("layers", "work.tensors.W1.precision", "8 bit"),
    "TensorSpec.gradient": Flip("layers", "work.tensors.H.gradient", "32 bit"),
    "TensorSpec.read": Flip("layers", "work.tensors.W1.read", "routed", refused="tensors.W1.read"),
    "TensorSpec.held": Flip("layers", "work.tensors.W1.held", False, refused="tensors.W1.held"),
    "TensorSpec.trained": Flip("layers", "work.tensors.W1.trained", False),
    "TensorSpec.detached": Flip("layers", "work.tensors.H.detached", True),
    "TensorSpec.page": Flip("layers", "work.tensors.W1.page", {"d": 16}, refused="tensors.W1.page"),
    "TensorSpec.format": Flip("layers", "work.tensors.W1.format", "mask", _SPARSE),
}
