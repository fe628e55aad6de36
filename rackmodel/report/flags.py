"""Launch flags: the arguments that start a found mapping under Megatron-LM, torchtitan or DeepSpeed.

What an axis is follows from the index it splits in every operation of a layer, never from its name: the batch = data;
the sequence everywhere = context; the sequence, but heads inside attention = Ulysses; heads and feed-forward = tensor,
with the norms split over the sequence = sequence parallel; experts inside the experts and the batch outside = expert.
Model sizes are read off the ranks in the same way. Arguments that would start another mapping are refused.

Names checked against: Megatron-LM megatron/training/arguments.py (commit 000c4ac, Core 0.14 or later) and
core/transformer/transformer_config.py (limits of query groups and offloading); torchtitan torchtitan/config/job_config.py
(commit 000204a, 2025; what ends count where stages are dealt: 6404b93); Megatron-DeepSpeed megatron/arguments.py (commit 207b2d5),
DeepSpeed docs "DeepSpeed Configuration JSON" and runtime/pipe/engine.py (no ZeRO-2 or 3 with a pipeline).
"""

from __future__ import annotations

from collections.abc import Callable

from rackmodel.errors import InputError
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.report.launch.arguments import Launch
from rackmodel.report.launch.deepspeed import deepspeed
from rackmodel.report.launch.meaning import Meaning, axis_meanings
from rackmodel.report.launch.megatron import megatron
from rackmodel.report.launch.shape import Shape, model_shape
from rackmodel.report.launch.torchtitan import torchtitan

FRAMEWORKS: dict[str, Callable[[Shape, Meaning], Launch]] = {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed}


def translation(framework: str, workload: Workload, mapping: MappingSpec, profile: ProfileSpec | None = None) -> Launch:
    """The arguments that come nearest to a mapping, and what they cannot say of it.

    Raises InputError for an unknown framework, and where the workload is no transformer in sections.
    """
    if framework not in FRAMEWORKS:
        raise InputError(f"no framework called '{framework}'", path="--flags", known=tuple(FRAMEWORKS), given=framework)
    if len(workload.sections) < 2 or mapping.step is None:
        raise InputError("launch flags are for a whole model (embedding, layers, head), such as gpt", path="--flags")
    shape = model_shape(workload)
    return FRAMEWORKS[framework](shape, axis_meanings(workload, mapping, shape, profile))
