"""Flips of the keys of mapping files."""

from __future__ import annotations

from tests.keys.flip import Flip

_BESIDE = {
    "mapping.boundary": {"X": {"tp": "d"}},
    "profile.overlap.windows": {"all_gather": {"beside": "reader"}, "all_reduce": {"beside": "maker"}},
}
_NETWORK = "arch.tree.children.0.network"
_ADDING = {
    f"{_NETWORK}.topology": "switch",
    f"{_NETWORK}.reduce": True,
    f"{_NETWORK}.multicast": True,
    "mapping.axes": {"tp": {"degree": 4}},
}
_ADDING = {**_ADDING, "mapping.ops": {"FC1": {"tp": "f"}, "FC2": {"tp": "f"}}}
_STAGED = {
    "arch.tree.memory": {"capacity": "9 TB", "bandwidth": "5 GB/s"},
    "work.repeat": 1,
    "mapping.axes": {"tp": {"degree": 4}},
    "mapping.ops": {"FC1": {"tp": "f"}, "ACT": {"tp": "f"}, "FC2": {"tp": "f"}},
    "mapping.stages": [["FC1", "ACT"], ["FC2"]],
}
_LEVELS = "mapping.nests.C = A * B.levels"

_RACK = {"network": {"topology": "ring", "bandwidth": "100 GB/s"}}
_MEMORY = {"capacity": "8 GB", "bandwidth": "1 TB/s"}
_CHIP = {"count": 4, "accelerator": True, "memory": _MEMORY}
_KINDS = {
    "arch.tree.network.topology": "switch",
    "arch.tree.children": [
        {**_RACK, "name": f"rack_{name}", "children": [{**_CHIP, "name": name, "compute": compute}]}
        for name, compute in (
            ("gpu", {"rate": "10 TFLOP/s", "vector": {"rate": "1 TFLOP/s"}}),
            ("npu", {"rate": "3 TFLOP/s", "vector": {"rate": "1 TFLOP/s"}}),
        )
    ],
    "mapping.step.layers": [1, 3],
}

MAPPINGS = {
    "MappingSpec.accelerators": Flip("step", "mapping.accelerators", 4, refused="axes"),
    "MappingSpec.axes": Flip("step", "mapping.axes", {"dp": {"degree": 1}, "tp": {"degree": 4}}),
    "MappingSpec.ops": Flip("point", "mapping.ops", {}),
    "MappingSpec.boundary": Flip("point", "mapping.boundary", {"X": {"tp": "d"}}),
    "MappingSpec.stages": Flip("point", "mapping.stages", [["FC1"], ["ACT", "FC2"]], {"work.repeat": 1}, refused="axes"),
    "MappingSpec.homes": Flip("step", "mapping.homes", {"weights": {"axes": ["dp"], "state": "shard"}}),
    "MappingSpec.handover": Flip("point", "mapping.handover", {"A": {"at": "system"}}, _STAGED),
    "MappingSpec.save": Flip("point", "mapping.save", {"*": "gathered"}, {"mapping.boundary": {"X": {"dp": "b", "tp": "d"}}}),
    "MappingSpec.flat": Flip("step", "mapping.flat", {"tp": ["f", "d"]}, {"work.sizes.f": 513, "mapping.uneven": "ceil"}),
    "MappingSpec.recompute": Flip("step", "mapping.recompute", "full"),
    "MappingSpec.rerun": Flip("step", "mapping.rerun", "slice", {"mapping.recompute": "full"}),
    "MappingSpec.uneven": Flip("step", "mapping.uneven", "error", {"mapping.uneven": "ceil", "work.sizes.f": 1023}, refused="ops.FC1.tp"),
    "MappingSpec.nests": Flip("given", "mapping.nests", {}),
    "MappingSpec.step": Flip("step", "mapping.step", {"micro_batch": 2, "pipeline": {"degree": 2, "stride": 4}}),
    "MappingSpec.profile": Flip("step", "mapping.profile", "ideal"),
    "PlacedAxis.degree": Flip("step", "mapping.axes.dp.degree", 4, refused="axes"),
    "PlacedAxis.stride": Flip("step", "mapping.axes.dp.stride", 1, refused="axes.tp.stride"),
    "StepSpec.micro_batch": Flip("step", "mapping.step.micro_batch", 2),
    "StepSpec.micro_batches": Flip("step", "mapping.step.micro_batches", 3, refused="step.micro_batches"),
    "StepSpec.pipeline": Flip("step", "mapping.step.pipeline", {"degree": 1}, refused="axes"),
    "StepSpec.schedule": Flip("step", "mapping.step.schedule", "gpipe"),
    "StepSpec.interleave": Flip("step", "mapping.step.interleave", 2, {"mapping.step.schedule": "interleaved"}),
    "StepSpec.layers": Flip("step", "mapping.step.layers", [1, 3]),
    "StepSpec.mixes": Flip("step", "mapping.step.mixes", [{"block": {"full": 2}}, {"block": {"none": 2}}]),
    "StepSpec.pools": Flip("step", "mapping.step.pools", ["npu", "gpu"], _KINDS),
    "StepSpec.hide_activations": Flip("stepped", "mapping.step.hide_activations", False, _BESIDE),
    "StepSpec.hide_gradients": Flip("step", "mapping.step.hide_gradients", False, {"mapping.profile": "ideal"}),
    "StepSpec.algorithms": Flip("step", "mapping.step.algorithms", ["in_network"], _ADDING),
    "StepSpec.offload": Flip(
        "step", "mapping.step.offload", ["optimizer"], {"mapping.step.offload": ["activations"], "mapping.step.host": "rack"}
    ),
    "StepSpec.host": Flip(
        "step",
        "mapping.step.host",
        "system",
        {
            "mapping.step.offload": ["optimizer"],
            "mapping.step.host": "rack",
            "arch.tree.memory": {"capacity": "9 TB", "bandwidth": "5 GB/s"},
        },
    ),
    "NestsSpec.nests": Flip("given", "mapping.nests", {}),
    "NestSpec.problem": Flip("given", "mapping.nests.C = A * B.problem", "other", refused="nests.C = A * B"),
    "NestSpec.machine": Flip("given", "mapping.nests.C = A * B.machine", "other", refused="nests.C = A * B"),
    "NestSpec.levels": Flip("given", _LEVELS, [], refused="nests.C = A * B"),
    "NestSpec.resident": Flip("given", "mapping.nests.C = A * B.resident", ["A"], refused="nests.C = A * B.resident"),
    "NestSpec.home": Flip("given", "mapping.nests.C = A * B.home", ["A"]),
    "NestSpec.again": Flip("given", "mapping.nests.C = A * B.again", {"again_p": 2}, refused="nests.C = A * B"),
    "LevelSpec.level": Flip("given", f"{_LEVELS}.1.level", "other", refused="nests.C = A * B"),
    "LevelSpec.nodes": Flip("given", f"{_LEVELS}.1.nodes", []),
    "LevelSpec.x": Flip("given", f"{_LEVELS}.0.x", {"m": 2}),
    "LevelSpec.y": Flip("given", f"{_LEVELS}.0.y", {"n": 2}),
    "NodeSpec.tensor": Flip("given", f"{_LEVELS}.1.nodes.0.tensor", "B", refused="nests.C = A * B"),
    "NodeSpec.tile": Flip("given", f"{_LEVELS}.1.nodes.0.tile", {"m": 12, "k": 64, "n": 16}),
}
