"""What a loop nest asks of a level beyond capacity, bandwidth and energy: how instances stand, and which tile is fixed.

A fan is the arrangement of a level's children, an atom the tile of one matrix instruction. Both are plain nouns: the
search decides which ranks go where.
"""

from __future__ import annotations

from pydantic import Field, PositiveInt, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import JoulePerByte

KINDS = ("weight", "input", "activation", "output")
"""Words for tensors by their kind in the workload."""

ROLES = ("operands", "left", "right", "result")
"""Words for tensors by their place in an einsum: all that it reads, the first and the second of them, what it writes."""

CHOOSING = f"names of tensors, kinds ({', '.join(KINDS)}) or roles in the einsum ({', '.join(ROLES)})"


class Atom(Spec):
    """The fixed tile of one matrix instruction, by role: m in left and result, n in right and result, k in left and right."""

    m: PositiveInt = Field(default=1, description="size along the ranks of the left operand and the result")
    n: PositiveInt = Field(default=1, description="size along the ranks of the right operand and the result")
    k: PositiveInt = Field(default=1, description="size along the ranks that are summed")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one instruction."""
        return self.m * self.n * self.k


class Fan(Spec):
    """How the children of a level stand: a grid of x by y, or a line to which a flattened index is dealt in waves."""

    x: PositiveInt = Field(default=1, description="children along the first direction of a grid")
    y: PositiveInt = Field(default=1, description="children along the second direction of a grid")
    linear: PositiveInt | None = Field(default=None, description="children in a line, dealt a flattened index (waves); instead of x and y")
    multicast_width: PositiveInt | None = Field(
        default=None, description="children that one read of this level serves; absent = all that want the same"
    )
    reduction_width: PositiveInt | None = Field(
        default=None, description="children whose partial sums are merged into one write; absent = any number"
    )
    hop_j_per_byte: JoulePerByte = Field(
        default=0.0, alias="hop_energy", description="energy per bit and hop, one hop for every child that is reached"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Fan:
        if self.linear is not None and self.model_fields_set & {"x", "y"}:
            raise ValueError("linear: a fan is either a line or x by y, not both")
        return self

    @property
    def size(self) -> int:
        """Children in all."""
        return self.linear or self.x * self.y
