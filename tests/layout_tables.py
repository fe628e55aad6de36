"""An adversary of a layout problem's tables: random graphs, homes, policies and facts of profiles, and random layouts of each.

Tables say of a layout what its step takes and holds, as the clock and the memory model have it, where tasks run one after another; where
some may run beside others, no more. `check` takes a seed and returns how many layouts it held tables against; the suite asks a few seeds,
an audit as many as it has time for.
"""

from __future__ import annotations

import random
import re
from typing import Any

from rackmodel.errors import InputError
from rackmodel.mapper.layouts.solve import tables_of
from rackmodel.mapper.layouts.weights import total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.setting import settings_of
from tests.layout_cases import ATTENTION, FFN, GPT, HEAD, LLAMA, MOE
from tests.machines import machine, mapper, workload
from tests.steps import priced

CLOSE = 1e-9
GRAPHS = {
    "feed-forward": FFN,
    "experts": MOE,
    "GPT": GPT,
    "Llama": LLAMA,
    "head": HEAD,
    "attention": ATTENTION,
    "windows": {"c1": "Y[b,p,o] = X[b,p+r,c] * W1[r,c,o]", "act": "G[b,p,o] = gelu(Y[b,p,o])", "c2": "Z[b,p,c] = G[b,p,o] * W2[o,c]"},
    "a weight twice": {"one": "H[b,s,f] = X[b,s,d] * W[d,f]", "two": "Y[b,s,d] = H[b,s,f] * W[d,f]"},
}
TENSORS: dict[str, dict[str, Any]] = {
    "experts": {name: {"density": "k/x"} for name in "GDHAE"},
    "head": {"I": {"density": "one/v", "precision": "0 bit"}},
}
COUNTS = {"experts": {"k": 2}, "head": {"one": 1}}
FACTS: dict[str, Any] = {
    "accumulation": "separate",
    "attention": "flash",
    "unread": "dropped",
    "updates": {"whole": 2, "shard": 6},
    "composites": {
        "softmax": {"forward": {"kernels": 3, "bytes": 4, "held": 6}, "backward": {"kernels": 2, "bytes": 8, "held": 4}},
        "cross_entropy": {"forward": {"kernels": 2, "held": 6}, "backward": {"held": 20, "over_ranks": {"bytes": 4, "held": 4}}},
        "layernorm": {"forward": {"kernels": 2, "bytes": 3, "held": 3}, "backward": {"held": 5}},
    },
    "heads": {"forward": {"kernels": 3, "bytes": 12}, "backward": {"bytes": 20}, "ring": {"forward": 3, "backward": 4}},
    "overlap": {"regather": True},
    "casts": {"16 bit": {"activation": 6, "weight": 5, "again": 3, "gradient": 4, "sent": "32 bit", "kept": "32 bit"}},
    "buckets": {"holds": "stage", "fill": "1 kB", "unpacked": 4, "packed": 6},
    "variation": 0.05,
    "library": 0.9,
    "pointwise": "fused",
    "host": {"layer": "3 us", "launch": "1 us"},
    "merged": {"residuals": True, "rotations": True, "projections": True, "gates": True, "experts": True},
}
EXACT = ("accumulation", "attention", "unread", "updates", "composites", "heads", "overlap", "casts", "buckets", "variation", "library")
"""Facts beside which tasks still run one after another."""


def check(seed: int, layouts: int = 8) -> int:
    """No table says more than the engine, nor less where tasks run one after another."""
    pick = random.Random(f"tables {seed}")
    graph = pick.choice(list(GRAPHS))
    names = EXACT if pick.random() < 0.7 else tuple(FACTS)
    facts = {name: FACTS[name] for name in names if pick.random() < 0.25}
    profile = ProfileSpec.model_validate({"profile": "tables", **facts})
    place = _place(pick)
    load = _workload(graph, pick)
    try:
        problem = pick.choice(build_mapspace(_mapper(load, pick), load, place.used).problems)
    except InputError:  # nothing divides, or it asks for what this workload does not have
        return 0
    setting, _ = settings_of(place, load, profile)
    serial, least = tables_of(setting, problem, profile)
    assert serial is least or set(facts) - set(EXACT), f"tables {seed}: {facts} keep nothing from being a sum"
    for number in range(layouts):
        chosen = {variable: pick.randrange(count) for variable, count in least.counts.items()}
        step = priced(place, load, least.plan(problem, chosen), problem.columns, profile).under(setting)
        figures = float(step.latency[0]), float(step.energy[0]), float(step.memory[0])
        for what, said, found in zip(("seconds", "joules", "bytes"), total(least, chosen), figures, strict=True):
            about = f"tables {seed}, {graph}, layout {number}: tables have {said} {what}, the step {found}"
            assert said <= found * (1 + CLOSE), about
            assert said >= found * (1 - CLOSE) or serial is not least, about
    return layouts


def _place(pick: random.Random) -> Architecture:
    """Four accelerators, and in some a memory above them, with rates of its own for a home's optimizer."""
    plain = machine(racks=2, gpus=2, inside=pick.choice(["1 GB/s", "100 GB/s"]), static=pick.choice(["0 W", "100 W"]))
    if pick.random() < 0.6:
        return plain
    memory = {"capacity": "1 TB", "bandwidth": "10 GB/s", "read_energy": "9 pJ/bit", "write_energy": "9 pJ/bit", "backing": True}
    above = {"memory": memory, "compute": {"rate": "1 TFLOP/s", "vector": {"rate": "1 TFLOP/s", "energy": "2 pJ/FLOP"}}}
    said = plain.model_dump(by_alias=True, exclude_unset=True)
    return Architecture.model_validate({**said, "tree": {**said["tree"], **above}})


def _workload(graph: str, pick: random.Random) -> Workload:
    einsums, tensors = GRAPHS[graph], dict(TENSORS.get(graph, {}))
    text = " ".join(einsums.values())
    weights = sorted(set(re.findall(r"\b(W\w*)\[", text)))
    if graph not in TENSORS and pick.random() < 0.2:
        tensors[pick.choice(weights)] = {"density": 0.5}  # whose index goes down with it
    indices = sorted(set(re.findall(r"\b[a-z]\b", " ".join(re.findall(r"\[([^\]]*)\]", text)))))
    sizes: dict[str, Any] = {index: pick.choice([2, 4, 8, 16]) for index in indices} | COUNTS.get(graph, {})
    sizes |= {"t": "s"} if "t" in sizes else {}
    sizes |= {"r": 3} if "r" in sizes else {}
    phases = pick.choice([["forward"], ["forward", "backward"], ["forward", "backward", "optimizer"]])
    precision = {"gradient": pick.choice(["16 bit", "32 bit"])}
    return workload(einsums, sizes, phases=phases, tensors=tensors, precision=precision, repeat=pick.choice([1, 3]))


def _mapper(load: Workload, pick: random.Random) -> MapperSpec:
    axes: dict[str, Any] = pick.choice([{"tp": {"degree": "all"}}, {"dp": {"degree": 2}, "tp": {"degree": "rest"}}])
    split = {"dp": pick.choice([["b"], "free"]), "tp": "free"} if "dp" in axes else {"tp": "free"}
    some = [pick.choice(list(axes))]
    every = {"param": "shard", "grad": "shard", "state": "shard"}
    homes: list[Any] = [None, "free", {"at": "system"}]
    homes += [{"axes": some, "state": "shard"}, {"axes": list(axes), "state": "shard", "grad": "shard"}, {"axes": some, **every}]
    said: dict[str, Any] = {"axes": axes, "split": split, "uneven": pick.choice(["error", "ceil"])}
    if load.weights and (home := pick.choice(homes)) is not None:
        said["homes"] = {"weights": home}
    if load.backward:
        said["save"] = pick.choice(["shard", "gathered", "free"])
        said["recompute"] = pick.choice(["none", "selective", "full", "alternate", "pointwise"])
        said["rerun"] = pick.choice(["region", "slice"])
    if pick.random() < 0.4:
        said["micro_batch"] = 1
    return mapper(**said)
