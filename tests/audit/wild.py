"""Spaces under random profiles, with keys of a mapper that the plain draws leave alone: policies, homes of one weight, algorithms."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.audit.attack import Attacked, attack_space
from tests.audit.case import Case
from tests.audit.drawing import ZERO, draw, some

Data = dict[str, Any]
KINDS = ("steps", "offload", "moe", "streaming", "shards")
POLICIES = ["none", "selective", "pointwise", "alternate", "full"]
WEIGHTS = ["W1", "WQ", "WE", "WO"]
KERNELS = {"efficiency": 0.8, "busy_power": "250 W", "waiting_power": "58 W", "power_limit": "10 kW"}
ALGORITHMS: list[Any] = [["ring", "tree"], "best", ["halving_doubling"], ["hierarchical", "ring"]]


def wild(kind: str, seed: int, folder: Path) -> Case:
    """The case of a kind with a seed, widened; its profile is a file in a folder."""
    case, pick = draw(kind, seed), random.Random(f"wild {kind} {seed}")
    mapper = dict(case.mapper)
    backward = "backward" in case.model.get("phases", ["backward"])
    if backward and mapper.get("recompute") != "per layer" and pick.random() < 0.6:
        mapper["recompute"] = some(pick, POLICIES)
        if "full" in mapper["recompute"] and pick.random() < 0.5:
            mapper["rerun"] = "slice"
    if isinstance(mapper.get("homes", {}).get("weights"), list) and pick.random() < 0.4:
        mapper["homes"] = mapper["homes"] | {pick.choice(WEIGHTS): some(pick, ZERO)}
    if pick.random() < 0.4:
        mapper["algorithms"] = pick.choice(ALGORITHMS)
    profile = case.profile
    if backward and pick.random() < 0.7:
        folder.mkdir(parents=True, exist_ok=True)
        path, said, machine = folder / f"{kind}_{seed}_profile.yaml", _profile(pick), case.machine
        if random.Random(f"power {kind} {seed}").random() < 0.5:
            said, machine = said | {"kernels": "measured"}, machine | {"tree": _powered(machine["tree"])}
        path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        profile = str(path.resolve())
        return replace(case, machine=machine, mapper=mapper, profile=profile)
    return replace(case, mapper=mapper, profile=profile)


def _powered(level: Data) -> Data:
    """A level and those below it, whose accelerators draw power while kernels run, and some while they wait."""
    if not level.get("accelerator"):
        return level | {"children": [_powered(child) for child in level["children"]]} if "children" in level else level
    own = {key: value for key, value in level.items() if key != "compute"}
    cores = {"name": "sm", "count": 8, "compute": {**level["compute"], "kernels": dict(KERNELS)}}
    return own | {"fan": {"linear": 8}, "children": [cores]}


def _profile(pick: random.Random) -> Data:
    """What a framework does, drawn."""
    said: Data = {"profile": "wild", "attention": pick.choice(["unfused", "flash"]), "pointwise": pick.choice(["unfused", "fused"])}
    said |= {"hand_over": pick.choice(["whole", "scattered"]), "accumulation": pick.choice(["fused", "separate"])}
    said["overlap"] = _overlap(pick)
    if pick.random() < 0.5:
        buckets: Data = {"holds": pick.choice(["tensor", "layer", "stage"])}
        said["buckets"] = buckets | ({"fill": pick.choice(["10 kB", "1 MB", "25 MB"])} if pick.random() < 0.5 else {})
    if pick.random() < 0.5:
        host = {"layer": ["0 us", "10 us", "100 us"], "launch": ["0 us", "1 us", "20 us"], "backward": ["0 us", "30 us"]}
        said["host"] = {name: pick.choice(times) for name, times in host.items()}
    if pick.random() < 0.4:
        said["updates"] = {"whole": pick.choice([0, 2, 5]), "shard": pick.choice([0, 12])}
    if pick.random() < 0.3:
        said["merged"] = dict.fromkeys(some(pick, ["residuals", "gates", "rotations", "statistics"]), True)
    if pick.random() < 0.3:
        said["collectives"] = {"library": "nccl", "exchange": pick.choice(["relayed", "gathered", "all_to_all"])}
    return said


def _overlap(pick: random.Random) -> Data:
    """What runs beside what."""
    overlap: Data = {"channels": pick.choice(["shared", "separate"]), "sends": pick.random() < 0.5}
    overlap |= {name: pick.random() < 0.5 for name in ("weights", "gradients") if pick.random() < 0.7}
    if pick.random() < 0.3:
        overlap["regather"] = True
    if pick.random() < 0.3:
        overlap["ahead"] = pick.choice([1000, 100_000])
    if pick.random() < 0.5:
        overlap["contention"] = pick.choice([0.0, 0.1, 0.3])
    if pick.random() < 0.5:
        calls = some(pick, ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
        beside = ["reader", "maker", "pass", "none"]
        overlap["windows"] = {name: {"beside": pick.choice(beside), "share": pick.choice([0.3, 1.0])} for name in calls}
    return overlap


def attacked(number: int, draws: int, folder: Path) -> tuple[str, Attacked]:
    """(kind, what came of it) of the next space, attacked by its members under random demands."""
    kind, seed = KINDS[number % len(KINDS)], number // len(KINDS)
    pick = random.Random(f"wild members {kind} {seed}")
    return kind, attack_space(wild(kind, seed, folder), draws, pick, demands=True)
