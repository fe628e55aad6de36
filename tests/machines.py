"""Small machines and workloads built in memory, for tests that need many of them."""

from __future__ import annotations

from typing import Any

from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import WorkloadSpec

SERIAL = ProfileSpec.model_validate({"profile": "serial"})
IDEAL = ProfileSpec.model_validate({"profile": "ideal", "overlap": {"weights": True}})


def machine(
    *,
    racks: int = 2,
    gpus: int = 4,
    inside: str = "100 GB/s",
    outside: str = "10 GB/s",
    latency: str = "1 us",
    capacity: str | None = None,
    visible: float = 1.0,
    hops: str = "slowest_link",
    used: int | None = None,
    static: str = "0 W",
) -> Architecture:
    """Racks of GPUs on two networks; every GPU one memory and one compute."""
    memory: dict[str, Any] = {"bandwidth": "1 TB/s", "read_energy": "5 pJ/bit", "write_energy": "5 pJ/bit"}
    if capacity is not None:
        memory |= {"capacity": capacity, "visible": visible}
    gpu = {
        "name": "gpu",
        "count": gpus,
        "accelerator": True,
        "static_power": static,
        "memory": memory,
        "compute": {"rate": "10 TFLOP/s", "energy": "0.5 pJ/FLOP"},
    }
    rack = {"name": "rack", "count": racks, "network": _ring(inside, latency, "1.3 pJ/bit", hops), "children": [gpu]}
    tree = {"name": "system", "network": _ring(outside, latency, "20 pJ/bit", hops), "children": [rack]}
    return Architecture.model_validate({"architecture": "small", "accelerators": used or racks * gpus, "tree": tree})


def _ring(bandwidth: str, latency: str, energy: str, hops: str) -> dict[str, Any]:
    return {"topology": "ring", "bandwidth": bandwidth, "latency": latency, "energy": energy, "hops": hops}


def workload(einsums: dict[str, str], sizes: dict[str, Any], **more: Any) -> Workload:
    """A workload with forward and backward phases unless told otherwise."""
    data = {"workload": "small", "phases": ["forward", "backward"], "sizes": sizes, "einsums": einsums, **more}
    return build_workload(WorkloadSpec.model_validate(data))


def mapper(**more: Any) -> MapperSpec:
    """A mapper without overlap that allows uneven splits."""
    return MapperSpec.model_validate({"mapper": "small", "uneven": "ceil", "profile": "serial", **more})


FFN = {"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]", "FC2": "Y[b,s,d] = H[b,s,f] * W2[f,d]"}
MLP = {
    "norm": "N[b,s,d] = rmsnorm(X[b,s,d], WN[d]) over d",
    "gate": "G[b,s,f] = N[b,s,d] * WG[d,f]",
    "act": "A[b,s,f] = gelu(G[b,s,f])",
    "down": "D[b,s,d] = A[b,s,f] * WD[f,d]",
    "res": "Y[b,s,d] = add(X[b,s,d], D[b,s,d])",
}
CORE = {
    "Q": "Q[b,s,h,e] = X[b,s,d] * WQ[d,h,e]",
    "K": "K[b,s,h,e] = X[b,s,d] * WK[d,h,e]",
    "QK": "A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]",
    "softmax": "P[b,h,s,t] = softmax(A[b,h,s,t]) over t",
}
