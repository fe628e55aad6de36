"""The workload file: what is read (model/workload_build makes the graph of it)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from rackmodel.errors import nearest
from rackmodel.model.schema import Spec
from rackmodel.model.workload import Format, Kind, Phase
from rackmodel.units import Plain

UNQUANTISED = ("16 bit", "bf16", "fp16")
"""Precisions of weights that a recipe stands in the place of."""
RECIPES: dict[str, tuple[str, str | None]] = {
    "fp8": ("fp8", "fp8"),
    "fp8_blockwise": ("fp8_block", "fp8_block"),
    "mxfp8": ("mxfp8", "mxfp8"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "mxfp4": ("mxfp4", None),
    "int8": ("int8", "int8"),
    "int4": ("int4", None),
}
"""Low precision in a word → (precision of weights, those of experts among them; width at which they are multiplied, which may name a family
of kernels, None = the activations'). What an engine does besides, scaling and casting activations, is a fact of the kernel that multiplies
(`quantise` of a part's `products`, the whole call of `grouped`). Source of the widths: names of vLLM's and TensorRT-LLM's quantisations
(RECALLED); mxfp4 and int4 are of weights alone."""


class Precision(Spec):
    """Bits of each kind of value. The words weight, experts and kv_cache may stand for them in `tensors`."""

    recipe: str | None = Field(
        default=None, description=f"low precision of weights and their products in a word, in the place of those: {', '.join(RECIPES)}"
    )
    activation: str = Field(default="16 bit", description="activations and their gradients")
    weight: str = Field(default="16 bit", description="parameters")
    experts: str | None = Field(default=None, description="parameters of routed experts; absent = as weight")
    kv_cache: str | None = Field(default=None, description="what is kept of a sequence from step to step; absent = as activation")
    product: str | None = Field(
        default=None, description="width in which quantised weights are multiplied; absent = the wider of weight and activation"
    )
    gradient: str = Field(default="32 bit", description="weight gradients, as they are reduced")
    state: str = Field(default="96 bit", description="optimizer state per parameter (Adam: fp32 master, two moments)")

    @model_validator(mode="before")
    @classmethod
    def _in_bits(cls, said: Any) -> Any:
        for key, value in said.items() if isinstance(said, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                raise ValueError(f"{key}: '{value:g}' has no unit: want '{value:g} bit'")
        return said

    @model_validator(mode="before")
    @classmethod
    def _as_the_recipe_says(cls, said: Any) -> Any:
        if not isinstance(said, dict) or said.get("recipe") is None:
            return said
        if str(said["recipe"]) not in RECIPES:
            close = nearest(str(said["recipe"]), list(RECIPES))
            hint = f"; nearest: {close}" if close else ""
            raise ValueError(f"recipe: no recipe '{said['recipe']}' (known: {', '.join(RECIPES)}{hint})")
        weight, product = RECIPES[str(said["recipe"])]
        meant = {"weight": weight, **({"product": product} if product else {})}
        for key in ("weight", "product"):
            own = said.get(key)
            if own is not None and own not in (*UNQUANTISED, meant.get(key)):
                raise ValueError(f"{key}: '{own}' beside the recipe '{said['recipe']}', which says {meant.get(key) or 'none'}")
        return {**said, "product": None, **meant}

    @property
    def classes(self) -> dict[str, str]:
        """Word → precision of what it stands for."""
        experts, cache = self.experts or self.weight, self.kv_cache or self.activation
        return {"activation": self.activation, "weight": self.weight, "experts": experts, "kv_cache": cache}


class TensorSpec(Spec):
    """What a workload file may say of one tensor."""

    kind: Kind | None = Field(default=None, description="weight, input, activation, output or kv_cache; default by name (W...) and place")
    density: str | float | int = Field(default=1, description="share of elements that are not zero, such as 'k/x' or 0.25")
    precision: str | None = Field(
        default=None, description="bits of one element, such as '8 bit', or whose ('experts'); '0 bit' = costs nothing"
    )
    gradient: str | None = Field(
        default=None,
        description="bits of one element of an activation's gradient, where these are not the activation's: '16 bit' of one at 8 bit",
    )
    read: Literal["all", "routed"] = Field(
        default="all", description="of experts' weights: all in every step, or routed: in the mean those that some token is sent to"
    )
    held: bool = Field(default=True, description="of a kv_cache: false = another layer holds what this one reads")
    trained: bool = Field(
        default=True,
        description="of a weight: false = frozen, as beside adapters: no gradient, no optimizer state, no update; of an input: false = "
        "nobody wants its gradient. What follows frozen weights and such inputs alone has no backward pass",
    )
    detached: bool = Field(
        default=False,
        description="of what is made: true = what makes it hands no gradient on to what it is made of, but to its weights alone",
    )
    page: dict[str, PositiveInt] = Field(
        default_factory=dict, description="of a kv_cache: rank → positions kept together; it holds whole pages"
    )
    format: Format = Field(
        default="packed", description="how a density below 1 is stored: packed (no index), csr (16 bit each), mask (1 bit a place), dense"
    )


class SectionSpec(Spec):
    """A part of a model that repeats as a whole: the embedding, the blocks, the head."""

    einsums: dict[str, str] = Field(description="operations; the residual stream enters by the name the section before wrote")
    prompts: dict[str, str | None] = Field(
        default_factory=dict,
        description="of a decoder's step: operations that several new tokens of a sequence run in the place of those of `einsums`, or none",
    )
    repeat: int | str = Field(default=1, description="layers: times the section runs in sequence, each with weights of its own")


class ServingSpec(Spec):
    """What the sizes of a decoder's step are called."""

    sequences: str = Field(default="b", description="sequences that take a step")
    new: str = Field(default="s", description="new tokens of each: 1 where it decodes, a prompt's or a chunk's where it prefills")
    cached: str = Field(default="t", description="tokens that each attends to, the new ones among them")
    skew: Plain = Field(
        default=0.0,
        ge=0.0,
        description="exponent of the power law by which tokens choose experts, 0 = evenly; it counts where a part has `grouped`",
    )
    positions: PositiveInt | None = Field(
        default=None, description="most tokens of a prompt and its answer, beyond which engines refuse a model; absent: not known"
    )


class RoutingSpec(Spec):
    """A router that keeps to some groups of the experts, as DeepSeek-V3's (arXiv 2412.19437, 2.1.2)."""

    groups: PositiveInt = Field(description="equal parts of the experts, in order")
    kept: PositiveInt = Field(description="groups that the experts of one token are chosen from")


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
    mtp: dict[str, SectionSpec] = Field(
        default_factory=dict,
        description="of a decoder: sections, in order, of the module that predicts one token further from what the last layer made; "
        "weights that the model has by the same name are the model's",
    )
    serving: ServingSpec | None = Field(default=None, description="a decoder's step, such as a server takes: the names of its sizes")
    imbalance: dict[str, Plain] = Field(
        default_factory=dict,
        description="index of experts → tokens of the accelerator whose experts are chosen most, over the mean, where axes split it",
    )
    routing: dict[str, RoutingSpec] = Field(
        default_factory=dict,
        description="index of experts → groups of them that a token keeps to: fewer nodes and ranks hold its experts then, which counts "
        "where a profile's `collectives.exchange` sends it once to each",
    )
    batch_rank: str = Field(default="b", description="the index of the batch, which micro-batches split in time")
    optimizer: Literal["adam", "sgd"] = Field(default="adam", description="what the optimizer computes for a parameter")
    tensors: dict[str, TensorSpec] = Field(
        default_factory=dict, description="kind, density and precision of a tensor where the default is wrong"
    )
    repeat: int | str = Field(default=1, description="times the whole graph runs in sequence (layers)")
