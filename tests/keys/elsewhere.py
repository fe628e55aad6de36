"""Keys that matter only elsewhere: (case, edits, path of the error that must be raised)."""

from __future__ import annotations

from typing import Any

_FORWARD = {"work.phases": ["forward"]}
_RULE = "mapper.inside.rules.C"

Refusal = tuple[str, dict[str, Any], str]

MAPPER_REFUSALS: list[Refusal] = [
    ("layers", {"mapper.schedule": "gpipe"}, "schedule"),
    ("graph", {"mapper.schedule": "gpipe"}, "schedule"),
    ("layers", {"mapper.interleave": 2}, "interleave"),
    ("piped", {"mapper.interleave": 2}, "interleave"),
    ("piped", {"mapper.schedule": "1f1b", "mapper.interleave": [1, 2]}, "interleave"),
    ("graph", {"mapper.cut": "free"}, "cut"),
    ("layers", {"mapper.host": "rack"}, "host"),
    ("graph", {"mapper.host": "rack"}, "host"),
    ("layers", {"mapper.rerun": "slice"}, "rerun"),
    ("layers", {"mapper.recompute": "full", **_FORWARD}, "recompute"),
    ("graph", {"mapper.recompute": ["none", "full"], **_FORWARD}, "recompute"),
    ("layers", {"mapper.save": "gathered", **_FORWARD}, "save"),
    ("layers", {"mapper.save": {"NOPE": "gathered"}}, "save.NOPE"),
    ("layers", {"mapper.layouts": {"one": {"save": "gathered"}}, **_FORWARD}, "layouts.one.save"),
    ("layers", {"mapper.layouts": {"one": {"save": {"NOPE": "gathered"}}}}, "layouts.one.save.NOPE"),
    ("layers", {"mapper.offload": [["activations"]], **_FORWARD}, "offload.0"),
    ("layers", {"mapper.offload": [[], ["optimizer"]], "work.phases": ["forward", "backward"]}, "offload.1"),
    ("nest", {"mapper.homes": {"weights": {"axes": ["dp"], "state": "shard"}}}, "homes.weights"),
    ("layers", {"mapper.homes": {"weights": {"axes": ["dp"], "state": "shard"}}, **_FORWARD}, "homes.weights"),
    ("layers", {"mapper.homes": {"NOPE": {}}}, "homes.NOPE"),
    ("layers", {"mapper.homes": {"weights": {"at": "nowhere"}}}, "homes.weights.at"),
    ("layers", {"mapper.solver": "cpsat"}, "solver"),
    ("graph", {"mapper.solver": "eliminate"}, "solver"),
    ("layers", {"mapper.choose": {"NOPE": {"tp": "none"}}}, "choose.NOPE"),
    ("layers", {"mapper.layouts": {"one": {"choose": {"NOPE": {"tp": "none"}}}}}, "layouts.one.choose.NOPE"),
    ("layers", {"mapper.boundary": {"NOPE": {"tp": "d"}}}, "boundary.NOPE"),
    ("graph", {"mapper.boundary": {"H": {"tp": "f"}}}, "boundary.H"),
    ("layers", {"mapper.layouts": {"one": {"boundary": {"NOPE": {"tp": "d"}}}}}, "layouts.one.boundary.NOPE"),
    ("layers", {"mapper.layouts": {"one": {"split": {"nope": ["d"]}}}}, "layouts.one.split"),
    ("layers", {"mapper.layouts": {"one": {"choose": {"FC1": {"nope": "none"}}}}}, "layouts.one.choose.FC1"),
    ("layers", {"mapper.layouts": {"one": {"boundary": {"X": {"nope": "d"}}}}}, "layouts.one.boundary.X"),
    ("nest", {"mapper.micro_batch": 1}, "micro_batch"),
    ("layers", {"mapper.algorithms": "nonsense"}, "algorithms"),
    ("graph", {"mapper.algorithms": ["ring", "nonsense"]}, "algorithms"),
    ("layers", {"mapper.inside": {"factors": "perfect"}}, "inside.factors"),
    ("graph", {"mapper.inside": {"solver": "cpsat"}}, "inside.solver"),
    ("layers", {"mapper.inside": {"model": "loopnest", "rules": {"NOPE": {}}}}, "inside.rules.NOPE"),
    ("graph", {"mapper.inside": {"model": "loopnest", "rules": {"ACT": {}}}}, "inside.rules.ACT"),
    ("nest", {_RULE: {"order": {"nowhere": ["A"]}}}, "inside.rules.C.order"),
    ("nest", {_RULE: {"order": {"core": ["NOPE"]}}}, "inside.rules.C.order"),
    ("nest", {_RULE: {"stationary": {"nowhere": "A"}}}, "inside.rules.C.stationary"),
    ("nest", {_RULE: {"tiles": {"core": {"nope": 2}}}}, "inside.rules.C.tiles"),
    ("nest", {_RULE: {"spatial": {"nowhere": {"x": ["m"]}}}}, "inside.rules.C.spatial"),
    ("nest", {_RULE: {"keep": {"nowhere": ["A"]}}}, "inside.rules.C.keep"),
    ("nest", {_RULE: {"bypass": {"core": ["NOPE"]}}}, "inside.rules.C.bypass"),
    ("chain", {"mapper.inside.fuse": [{"einsums": ["ONE", "NOPE"]}]}, "inside.fuse.0.einsums"),
    ("chain", {"mapper.inside.fuse": [{"einsums": ["ONE", "TWO"], "resident": ["NOPE"]}]}, "inside.fuse.0.resident"),
    ("wafer", {"mapper.inside.home": ["NOPE"]}, "inside.home"),
    ("measured", {"mapper.inside": {"model": "loopnest"}}, "inside.model"),
]

MAPPING_REFUSALS: list[Refusal] = [
    ("step", {"mapping.flat": {"nope": ["f"]}}, "flat.nope"),
    ("step", {"mapping.flat": {"tp": ["nope", "f"]}}, "flat.tp"),
    ("given", {"mapping.nests.NOPE": {"problem": "NOPE", "machine": "wafer", "levels": []}}, "nests.NOPE"),
    ("step", {"mapping.step.host": "rack"}, "step.host"),
    ("step", {"mapping.step.interleave": 2}, "step.interleave"),
    ("step", {"mapping.step.algorithms": ["nonsense"]}, "step.algorithms"),
    ("step", {"mapping.step.layers": [1, 3], "mapping.step.mixes": [{"block": {"none": 2}}, {"block": {"full": 2}}]}, "step.layers"),
    ("step", {"mapping.step.mixes": [{"NOPE": {"none": 2}}, {"block": {"full": 4}}]}, "step.mixes.0"),
    ("step", {"mapping.step.offload": ["activations"], "mapping.step.host": "rack", **_FORWARD}, "step.offload"),
    ("step", {"mapping.step.offload": ["optimizer"]}, "step.offload"),
    ("step", {"mapping.rerun": "slice"}, "rerun"),
    ("step", {"mapping.recompute": "full", **_FORWARD}, "recompute"),
    ("step", {"mapping.save": {"X": "gathered"}, **_FORWARD}, "save"),
    ("step", {"mapping.save": {"NOPE": "gathered"}}, "save.NOPE"),
    ("step", {"mapping.homes": {"NOPE": {}}}, "homes.NOPE"),
    ("step", {"mapping.homes": {"weights": {"axes": ["dp"], "state": "shard"}}, **_FORWARD}, "homes.weights"),
    ("step", {"mapping.homes": {"weights": {"at": "system"}}}, "homes.weights"),
    ("step", {"mapping.ops.NOPE": {"tp": "f"}}, "ops.NOPE"),
    ("step", {"mapping.ops.FC1.nope": "f"}, "ops.FC1.nope"),
    ("step", {"mapping.boundary": {"H": {"tp": "f"}}}, "boundary.H"),
]

MACHINE_REFUSALS: list[Refusal] = [
    ("layers", {"arch.tree.network.fanout": 2}, "fanout"),
    ("layers", {"arch.tree.children.0.network.shape": [2, 2]}, "shape"),
    ("layers", {"arch.tree.children.0.children.0.memory.backing": True}, "tree"),
    ("layers", {"arch.tree.children.1.memory.backing": True}, "tree"),
    ("layers", {"arch.tree.memory": {"backing": True}, "arch.tree.children.0.memory.backing": True}, "tree"),
    ("layers", {"arch.tree.children.0.children.0.memory.write_bandwidth": "1 TB/s"}, "write_bandwidth"),
    ("layers", {"arch.tree.memory": {"capacity": "1 TB", "visible": 1.06}}, "tree"),
    ("layers", {"work.repeat": 2}, "repeat"),
    ("layers", {"work.batch_rank": "nope"}, "batch_rank"),
    ("graph", {"work.batch_rank": "b", "work.tensors": {"X": {"kind": "weight"}}}, "batch_rank"),
    ("layers", {"work.tensors": {"NOPE": {"precision": "8 bit"}}}, "tensors.NOPE"),
]
