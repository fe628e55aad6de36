"""The workload file: what is read (model/workload_build makes the graph of it)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rackmodel.model.schema import Spec
from rackmodel.model.workload import Format, Kind, Phase


class Precision(Spec):
    """Bits of each kind of value."""

    activation: str = Field(default="16 bit", description="activations and their gradients")
    weight: str = Field(default="16 bit", description="parameters")
    gradient: str = Field(default="32 bit", description="weight gradients, as they are reduced")
    state: str = Field(default="96 bit", description="optimizer state per parameter (Adam: fp32 master, two moments)")


class TensorSpec(Spec):
    """What a workload file may say of one tensor."""

    kind: Kind | None = Field(default=None, description="weight, input, activation or output; default by name (W...) and place")
    density: str | float | int = Field(default=1, description="share of elements that are not zero, such as 'k/x' or 0.25")
    precision: str | None = Field(default=None, description="bits of one element, such as '8 bit'; '0 bit' = costs nothing")
    format: Format = Field(
        default="packed", description="how a density below 1 is stored: packed (no index), csr (16 bit each), mask (1 bit a place), dense"
    )


class SectionSpec(Spec):
    """A part of a model that repeats as a whole: the embedding, the blocks, the head."""

    einsums: dict[str, str] = Field(description="operations; the residual stream enters by the name the section before wrote")
    repeat: int | str = Field(default=1, description="layers: times the section runs in sequence, each with weights of its own")


class WorkloadSpec(Spec):
    """The file: what is read."""

    name: str = Field(alias="workload", description="the workload's name")
    phases: tuple[Phase, ...] = Field(default=("forward",), description="forward, backward, optimizer")
    sizes: dict[str, str | int] = Field(default_factory=dict, description="size of each index: a number, another index or a product")
    precision: Precision = Field(default=Precision(), description="bits by kind")
    einsums: dict[str, str] = Field(default_factory=dict, description="operations in order: name → 'Y[m,n] = X[m,k] * W[k,n]'")
    sections: dict[str, SectionSpec] = Field(
        default_factory=dict, description="a whole model instead of einsums: sections in order, each with einsums and a repeat"
    )
    batch_rank: str = Field(default="b", description="the index of the batch, which micro-batches split in time")
    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="what the optimizer computes for a parameter")
    tensors: dict[str, TensorSpec] = Field(
        default_factory=dict, description="kind, density and precision of a tensor where the default is wrong"
    )
    repeat: int | str = Field(default=1, description="times the whole graph runs in sequence (layers)")
