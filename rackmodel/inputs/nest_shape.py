"""The shape of a loop nest in a mapping file: what must be there before the nest can be priced.

    nests:
      C: {problem: C, machine: gpu, levels: [{level: dram, nodes: [{tensor: A, tile: {m: 64, k: 32}}], x: {m: 4}, y: {}}]}

Whether its levels and tensors are those of the machine and the operation is the loop nest's own check.
"""

from __future__ import annotations

from pydantic import Field, PositiveInt

from rackmodel.model.schema import Spec


class NodeSpec(Spec):
    """One stored tensor."""

    tensor: str = Field(description="the tensor that is stored")
    tile: dict[str, PositiveInt] = Field(description="rank → size of the part that is stored")


class LevelSpec(Spec):
    """One level of a nest."""

    level: str = Field(description="name of the level")
    nodes: list[NodeSpec] = Field(description="what is stored there, outer to inner")
    x: dict[str, PositiveInt] = Field(description="rank → parts along x of the fan below")
    y: dict[str, PositiveInt] = Field(description="rank → parts along y of the fan below")


class NestSpec(Spec):
    """One contraction's nest."""

    problem: str = Field(description="the tensor that the operation writes")
    machine: str = Field(description="the accelerator it is for")
    levels: list[LevelSpec] = Field(description="its levels, outer to inner")
    resident: list[str] = Field(default_factory=list, description="tensors that stay on chip between fused operations")
    home: list[str] = Field(default_factory=list, description="tensors at home in the innermost memory")
    again: dict[str, PositiveInt] = Field(
        default_factory=dict, description="rank whose loops make the result again instead of keeping it → how often (it is resident)"
    )


class NestsSpec(Spec):
    """The key `nests` of a mapping file."""

    nests: dict[str, NestSpec] = Field(default_factory=dict, description="contraction → its loop nest")
