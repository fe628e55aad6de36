"""Random questions of every kind of space: what a mapper file can leave open, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.audit import machines, models
from tests.audit.case import Case

Data = dict[str, Any]
HERE = Path(__file__).parent / "profiles"
PROFILES = ["serial", "ideal", "ideal_flash", str(HERE / "beside.yaml"), str(HERE / "hosted.yaml")]
GOALS = ["latency", "latency", "energy", "edp", "memory"]
ZERO: list[Data] = [
    {},
    {"axes": ["dp"], "state": "shard"},
    {"axes": ["dp"], "state": "shard", "grad": "shard"},
    {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"},
]


def some(pick: random.Random, whole: list[Any]) -> list[Any]:
    """A random part of a list, in its order, never empty."""
    return [one for one in whole if pick.random() < 0.6] or [pick.choice(whole)]


def layouts(pick: random.Random) -> Data:
    """One graph whose splits, saved copies and homes may all be free."""
    model = models.graph(pick)
    backward = "backward" in model["phases"]
    weights = any(" W" in op or "* W" in op for op in model["einsums"].values())
    axes: Data = pick.choice([{"tp": {"degree": "all"}}, {"dp": {"degree": pick.choice([2, "free"])}, "tp": {"degree": "rest"}}])
    split = {name: "free" if name == "tp" or pick.random() < 0.5 else ["b"] for name in axes}
    mapper: Data = {"mapper": "random", "axes": axes, "split": split, "uneven": "ceil"}
    mapper["micro_batch"] = pick.choice(["whole", "whole", "free"])
    if backward:
        mapper["save"] = pick.choice(["shard", "gathered", "free"])
        mapper["recompute"] = pick.choice(["none", "none", "full", ["none", "full"]])
        if weights and pick.random() < 0.6:
            mapper["homes"] = {"weights": "free"}
    if pick.random() < 0.3:
        axes["tp"]["place"] = "free"
    capacity = pick.choice([None, None, "1 MB", "200 kB", "20 MB"])
    return {"machine": machines.rack(pick, pick.choice([1, 2]), pick.choice([2, 4]), capacity=capacity), "model": model, "mapper": mapper}


def step_mapper(pick: random.Random, model: Data) -> Data:
    """A mapper of steps of a dense model: a random part of everything that one can declare."""
    heads = ["h"] if "h" in model["sizes"] else [["g", "q"]]
    tensor = [*heads, "f", "v"]
    axes: Data = {"pp": {"degree": pick.choice(["free", "free", 1, 2]), "stages": "layers"}, "dp": {"degree": "free"}}
    split: Data = {"dp": ["b"]}
    if pick.random() < 0.4:
        axes["cp"], split["cp"] = {"degree": pick.choice(["free", 2])}, ["s"]
    axes["tp"], split["tp"] = {"degree": "free", "place": pick.choice(["inner", "free"])}, tensor
    mapper: Data = {"mapper": "random", "axes": axes, "split": split, "micro_batch": "free"}
    sequence: Data = {"split": {"tp": [*tensor, "s"]}}
    every: Data = {"tensor": {}, "sequence": sequence, "saved": sequence | {"save": "gathered"}}
    mapper["layouts"] = {name: every[name] for name in some(pick, list(every))}
    mapper["schedule"] = some(pick, ["gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"])
    if "interleaved" in mapper["schedule"]:
        mapper["interleave"] = pick.choice(["free", [2, 4]])
    mapper["recompute"] = some(pick, ["none", "selective", "full"])
    mapper["homes"] = {"weights": some(pick, ZERO)}
    mapper["overlap"] = pick.choice(["free", "profile"])
    mapper["algorithms"] = pick.choice(["ring", "ring", "best"])
    return mapper


def steps(pick: random.Random) -> Data:
    """Training steps of a dense model."""
    model = models.dense(pick)
    capacity = pick.choice([None, None, "200 MB", "50 MB", "1 GB"])
    machine = machines.rack(pick, pick.choice([1, 2, 4]), pick.choice([2, 4]), capacity=capacity)
    return {"machine": machine, "model": model, "mapper": step_mapper(pick, model)}


def offload(pick: random.Random) -> Data:
    """Training steps with a host that takes weights, activations or optimizer state."""
    model = models.dense(pick)
    mapper = step_mapper(pick, model)
    every = [[], ["weights"], ["activations"], ["optimizer"], ["weights", "activations"], ["activations", "optimizer"]]
    mapper |= {"offload": some(pick, every), "host": "rack"}
    capacity = pick.choice([None, "100 MB", "30 MB"])
    return {"machine": machines.rack(pick, 2, pick.choice([2, 4]), capacity=capacity, host=True), "model": model, "mapper": mapper}


def moe(pick: random.Random) -> Data:
    """Experts over an axis of their own beside the others."""
    if pick.random() < 0.5:
        model, mapper = models.experts(pick), {"mapper": "random", "axes": {}, "split": {"tp": ["f"]}, "micro_batch": "free"}
        mapper["homes"] = {"weights": some(pick, [{}, {"axes": ["dp", "ep"], "state": "shard"}])} if pick.random() < 0.5 else {}
        mapper["axes"] = {"dp": {"degree": "free"}, "ep": {"degree": "free"}, "tp": {"degree": "free", "place": "free"}}
        mapper["split"] = {"dp": ["b"], "ep": ["x", "b"], "tp": ["f"]}
    else:
        model = models.expert_model(pick)
        mapper = step_mapper(pick, model)
        mapper["axes"] = {**mapper["axes"], "ep": {"degree": "free"}}
        mapper["split"] = {**mapper["split"], "ep": ["x", "b"]}
    mapper["choose"] = {op: {"ep": "b"} for op in ("router", "gates", "dispatch", "combine")}
    return {"machine": machines.rack(pick, 2, pick.choice([2, 4])), "model": model, "mapper": mapper}


def streaming(pick: random.Random) -> Data:
    """Weights that live in a pool above, or here, as the mapper may choose."""
    model = models.dense(pick)
    mapper = step_mapper(pick, model) | {"homes": {"weights": [{"at": "memoryx"}, *some(pick, ZERO)]}}
    if pick.random() < 0.3:
        mapper["homes"] = {"weights": {"at": "memoryx"}}
    capacity = pick.choice([None, "100 MB", "30 MB"])
    return {"machine": machines.pool(pick, pick.choice([1, 2, 4, 8]), capacity), "model": model, "mapper": mapper}


def cuts(pick: random.Random) -> Data:
    """Pipelines whose stages need not be equal, whose layers may each have a policy of their own."""
    model = models.dense(pick)
    model["sizes"]["layers"] = pick.choice([4, 5, 6, 7])
    mapper = step_mapper(pick, model) | {"schedule": pick.choice(["1f1b", "gpipe", ["gpipe", "1f1b"]]), "cut": "free"}
    mapper.pop("interleave", None)
    deep = pick.choice([2, 3, 4])
    mapper["axes"]["pp"] = {"degree": deep, "stages": "layers"}
    mapper["homes"], mapper["overlap"], mapper["layouts"] = {"weights": pick.choice(ZERO)}, "profile", {}
    mapper["micro_batch"] = pick.choice([1, [1, 2]])
    mapper["recompute"] = pick.choice(["per layer", "per layer", "none", ["none", "full"]])
    machine = machines.rack(pick, pick.choice([1, 2]), deep, capacity=pick.choice([None, None, "1 GB", "200 MB"]))
    return {"machine": machine, "model": model, "mapper": mapper, "minimize": "latency"}


def kinds(pick: random.Random) -> Data:
    """Accelerators of two kinds, each with whole stages of a pipeline whose cut is open."""
    drawn = cuts(pick)
    deep = pick.choice([2, 3, 4, "free"])
    pipeline = {"degree": deep, "stages": "layers", "place": "outer"}
    drawn["mapper"]["axes"] = {"pp": pipeline, "dp": {"degree": "free"}, "tp": {"degree": "free"}}
    drawn["mapper"]["split"] = {name: ranks for name, ranks in drawn["mapper"]["split"].items() if name in ("dp", "tp")}
    return drawn | {"machine": machines.kinds(pick, pick.choice([None, None, "1 GB", "200 MB"]))}


def free_layers(pick: random.Random) -> Data:
    """A model whose tensor axis is free: any choice of any operation of a layer."""
    model = models.dense(pick)
    mapper = step_mapper(pick, model) | {"layouts": {"found": {"split": {"tp": "free"}}}, "recompute": pick.choice(["none", "full"])}
    mapper["axes"] |= {"tp": {"degree": 2, "place": "inner"}}
    machine = machines.rack(pick, 1, pick.choice([2, 4]))
    return {"machine": machine, "model": model, "mapper": mapper | {"micro_batch": pick.choice(["free", "free", 1, 2])}}


def stages(pick: random.Random) -> Data:
    """A pipeline below the layer, whose operations split over what is left."""
    model = models.feed_forward(pick)
    axes = {"pp": {"stages": "per_einsum"}, "dp": {"degree": "free"}, "tp": {"degree": "free"}}
    mapper: Data = {"mapper": "random", "axes": axes, "split": {"dp": ["m"], "tp": "output"}, "uneven": "ceil"}
    return {"machine": machines.rack(pick, 2, pick.choice([2, 4])), "model": model, "mapper": mapper}


def wafers(pick: random.Random) -> Data:
    """Cores on a mesh as accelerators, weights from above, whatever is best along the columns."""
    axes: Data = {"y": {"degree": pick.choice([2, "free"])}, "x": {"degree": "rest", "place": pick.choice(["inner", "free"])}}
    mapper: Data = {"mapper": "random", "axes": axes, "split": {"y": ["m"], "x": "free"}, "uneven": "ceil"}
    if pick.random() < 0.7:
        mapper["homes"] = {"weights": {"at": "memoryx"}}
    if pick.random() < 0.4:
        mapper["boundary"] = {"X": {"x": ["d"]}}
    return {"machine": machines.wafer(pick), "model": models.feed_forward(pick), "mapper": mapper}


def shards(pick: random.Random) -> Data:
    """Any of these spaces where degrees do not divide heads, widths, words and experts."""
    drawn = pick.choice([layouts, steps, offload, moe, streaming, cuts, free_layers, stages])(pick)
    sizes = drawn["model"]["sizes"]
    odd = [name for name in "hgqfvx" if name in sizes and pick.random() < 0.7] or [next(name for name in "fdm" if name in sizes)]
    sizes |= {name: sizes[name] + pick.choice([1, 3, 5]) for name in odd}
    drawn["mapper"]["uneven"] = pick.choice(["fullest", odd])
    return drawn


def nest_mapper(pick: random.Random, **inside: Any) -> Data:
    return {"mapper": "random", "axes": {"dp": {"degree": "all"}}, "uneven": "ceil", "inside": {"model": "loopnest", **inside}}


def nests(pick: random.Random) -> Data:
    """A loop nest of one contraction on two or three memories."""
    levels = pick.choice([2, 2, 3])
    factors = pick.choice(["perfect", "ceil"])
    return {
        "machine": machines.chip(pick, levels),
        "model": models.contraction(pick, 24 if levels == 2 else 8),
        "mapper": nest_mapper(pick, factors=factors),
        "minimize": pick.choice(["latency", "energy", "edp"]),
        "profile": "serial",
    }


def fused(pick: random.Random) -> Data:
    """Two contractions that may share their outer loops."""
    mapper = nest_mapper(pick, factors="perfect", fuse=[{"einsums": ["FC1", "FC2"]}])
    return {"machine": machines.chip(pick, 2), "model": models.pair(pick), "mapper": mapper, "minimize": "energy", "profile": "serial"}


def wafer_nests(pick: random.Random) -> Data:
    """A loop nest whose activations rest in the cores."""
    model = models.contraction(pick, 12)
    mapper = nest_mapper(pick, factors=pick.choice(["perfect", "ceil"]), home=["activation"])
    goal = pick.choice(["latency", "energy", "edp"])
    return {"machine": machines.cores(pick), "model": model, "mapper": mapper, "minimize": goal, "profile": "serial"}


KINDS: dict[str, Callable[[random.Random], Data]] = {
    one.__name__: one
    for one in (layouts, steps, offload, moe, streaming, cuts, free_layers, stages, wafers, nests, fused, wafer_nests, shards, kinds)
}
NESTED = ("nests", "fused", "wafer_nests")


def draw(kind: str, seed: int) -> Case:
    """The question of a kind with a seed."""
    pick = random.Random(f"{kind} {seed}")
    data = KINDS[kind](pick)
    backward = "backward" in data["model"].get("phases", ["backward"])
    profile = pick.choice(PROFILES if backward else ["serial", "ideal"])
    return Case(**{"kind": kind, "seed": seed, "minimize": pick.choice(GOALS), "profile": profile, **data})
