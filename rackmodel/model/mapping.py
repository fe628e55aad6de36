"""What a mapper file declares (a space) and what a mapping file fixes (one point of it).

axes: the mesh, placed on the tree · split/choose: the index each operation splits over each axis · boundary: how the
workload's inputs arrive and its outputs leave · homes: where weights live · save, recompute: what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PositiveInt, field_validator, model_validator

from rackmodel.model.resources import CHOOSING
from rackmodel.model.schedules import SCHEDULES, Schedule
from rackmodel.model.schema import Spec

Objective = Literal["energy", "latency", "edp", "carbon", "memory", "edap", "cdp", "cep", "c2ep", "ce2p", "total_carbon", "tcdp", "money"]
OBJECTIVES: tuple[Objective, ...] = (
    "energy",
    "latency",
    "edp",
    "carbon",
    "memory",
    "edap",
    "cdp",
    "cep",
    "c2ep",
    "ce2p",
    "total_carbon",
    "tcdp",
    "money",
)
BLENDS: tuple[Objective, ...] = ("total_carbon", "tcdp")
SAME_ORDER: dict[str, Objective] = {"cdp": "latency", "cep": "energy", "c2ep": "energy", "ce2p": "energy", "edap": "edp"}
"""On one machine, whose embodied carbon and area no mapping changes: metric → the objective that orders mappings as it does."""
OBJECTIVE_UNITS: dict[str, str] = {
    **{"latency": "s", "energy": "J", "memory": "B", "edp": "J s", "carbon": "gCO2e", "total_carbon": "gCO2e", "money": "$"},
    **{"tcdp": "g s", "cdp": "g s", "cep": "g J", "c2ep": "g2 J", "ce2p": "g J2", "edap": "J s m2"},
}
"""Objective → the unit of a certificate's figures."""
Word = Annotated[str, Field(min_length=1)]
RankChoice = Word | list[Word]
Policy = Literal["none", "selective", "pointwise", "experts", "alternate", "full"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
REGIONS = frozenset({"selective", "experts", "full"})
"""Policies that run a region of the graph again, of which `rerun: slice` leaves out what the backward pass does not read."""
Copy = Literal["shard", "gathered"]


def _check_choices(said: Any) -> None:
    """Raise ValueError for a list of choices that is empty, or has one twice."""
    if not isinstance(said, list):
        return
    if not said:
        raise ValueError("an empty list leaves nothing to choose from")
    again = next((one for place, one in enumerate(said) if one in said[:place]), None)
    if again is not None:
        raise ValueError("a choice is there twice: keep one" if isinstance(again, Spec) else f"{again} is there twice: keep one")


class AxisSpec(Spec):
    """One mesh axis of a mapper."""

    degree: PositiveInt | list[PositiveInt] | Literal["all", "rest", "free", "rows", "columns"] = Field(
        default="rest",
        description="all, rest, free (any divisor), a number or a list of numbers; rows, columns: of the grid that joins the accelerators",
    )
    place: Literal["inner", "outer", "free"] | None = Field(
        default=None, description="inner: neighbours in the tree; outer: far apart; free: searched; default: as listed, last axis innermost"
    )
    stages: Literal["per_einsum", "layers"] | list[list[str]] | None = Field(
        default=None, description="pipeline: layers (of a model), per_einsum, or the operations of each stage in order"
    )

    @field_validator("degree")
    @classmethod
    def _something_to_choose(cls, said: Any) -> Any:
        _check_choices(said)
        return said


class HomeSpec(Spec):
    """Where a weight's parameter, gradient and optimizer state live: ZeRO 1 to 3 and weight streaming are rows of this."""

    axes: list[str] = Field(default_factory=list, description="axes they are sharded over")
    param: Literal["replicate", "shard"] = Field(default="replicate", description="the parameter, over those axes")
    grad: Literal["replicate", "shard"] = Field(default="replicate", description="the gradient, over those axes")
    state: Literal["replicate", "shard"] = Field(default="replicate", description="the optimizer state, over those axes")
    at: str | None = Field(default=None, description="the level they live at (weight streaming); absent = in the accelerators")
    replicas: list[str] | None = Field(
        default=None,
        description="axes whose ranks hold the same shards and sum their gradients after these are reduced to shards (hybrid sharding); "
        "absent = in a mapper those that split what no product's weight has (batch, tokens), in a mapping none",
    )

    @model_validator(mode="after")
    def _nested(self) -> HomeSpec:
        order = [self.state, self.grad, self.param]
        if "shard" in order[order.index("replicate") :] if "replicate" in order else False:
            raise ValueError("what is sharded must include the smaller parts: state, then grad, then param (ZeRO 1, 2, 3)")
        if self.at is not None and (self.axes or "shard" in order):
            raise ValueError("'at' puts the weight at a level; it cannot also be sharded over axes")
        if not self.axes and "shard" in order:
            raise ValueError("'shard' needs axes to shard over")
        if self.replicas and ("shard" not in order or {*self.replicas} & {*self.axes}):
            raise ValueError("'replicas' are other axes than those that shards lie over, where something is sharded")
        return self

    @property
    def apart(self) -> list[str]:
        """Axes over which a gradient is not summed before it is reduced to its shards."""
        return [*self.axes, *(self.replicas or ())] if self.state == "shard" else []

    def gathered_after(self, phases: Sequence[str]) -> bool:
        """Whether parameters that rest whole are gathered after a step's optimizer, which updates each in parts (ZeRO-1 and 2)."""
        return self.state == "shard" and self.param == "replicate" and "optimizer" in phases

    def on(self, subaxes: Callable[[Sequence[str]], list[str]]) -> HomeSpec:
        """The same on the sub-axes of a mesh."""
        over = None if self.replicas is None else subaxes(self.replicas)
        return self.model_copy(update={"axes": subaxes(self.axes), "replicas": over})


class HandoverSpec(Spec):
    """How what one stage makes gets to a stage that reads it: over a memory above both, in the place of the links between them."""

    at: str = Field(description="the level above the accelerators whose memory it is written to and read from")
    read: Literal["shard", "whole"] = Field(
        default="shard", description="what an accelerator reads there: its shard, gathered over links; or all that it needs"
    )


class LayoutSpec(Spec):
    """One of several ways to lay a model out: what it says replaces what the mapper says."""

    split: dict[str, list[RankChoice] | Literal["output", "free"]] = Field(default_factory=dict, description="as in the mapper")
    choose: dict[str, dict[str, RankChoice]] = Field(default_factory=dict, description="as in the mapper")
    boundary: dict[str, dict[str, RankChoice]] = Field(default_factory=dict, description="as in the mapper")
    save: dict[str, Copy] | Copy | None = Field(default=None, description="as in the mapper")


Uneven = Literal["error", "ceil", "fullest"]
UNEVEN = (
    "ceil, fullest: a degree may exceed or not divide a size; time of operations and memory are the fullest accelerator's, and with "
    "`fullest` also the time of bytes and messages"
)


class NestRules(Spec):
    """Demands on the loop nests of a mapper: obeyed or refused, never dropped. Levels and tensors by name."""

    order: dict[str, list[str]] = Field(default_factory=dict, description="level → tensors, outer to inner")
    stationary: dict[str, str] = Field(default_factory=dict, description="level → the tensor whose loops are outermost there")
    tiles: dict[str, dict[str, PositiveInt]] = Field(default_factory=dict, description="level → rank → fixed tile size")
    spatial: dict[str, dict[Literal["x", "y"], list[str]]] = Field(
        default_factory=dict, description="level above a fan → x or y → ranks allowed there"
    )
    keep: dict[str, list[str]] = Field(default_factory=dict, description="level → tensors that must be stored there")
    bypass: dict[str, list[str]] = Field(default_factory=dict, description="level → tensors that must not be stored there")


class FuseSpec(Spec):
    """Contractions that feed one another run as one: what lies between them never leaves the first on-chip memory."""

    einsums: list[str] = Field(min_length=2, description="the operations, each of which but the last feeds a later one")
    resident: list[str] = Field(default_factory=list, description="tensors kept whole on chip from the operation that makes them to these")
    loops: Literal["all", "some"] | list[list[str]] = Field(
        default="all",
        description="loops around all of the operations alone; some: within those also around any runs of them, within or beside one "
        "another (of three or more; a longer search); or the runs around which they may lie",
        examples=[[["Q", "QK"], ["AV", "O"]]],
    )


class InsideSpec(Spec):
    """How operations run inside an accelerator: compulsory traffic, or the best loop nest."""

    model: Literal["roofline", "loopnest"] = Field(default="roofline", description="compulsory traffic, or the best loop nest")
    factors: Literal["ceil", "perfect"] = Field(default="ceil", description="loop bounds: any tile (ragged edges), or divisors only")
    solver: Literal["auto", "dp", "cpsat"] = Field(default="auto", description="how a nest is searched")
    rules: dict[str, NestRules] = Field(default_factory=dict, description="operation ('*' = every one) → demands on its forward nest")
    fuse: list[FuseSpec] | Literal["free"] = Field(
        default_factory=list, description="operations to fuse, where that is better; free: those that save most"
    )
    home: list[str] = Field(
        default_factory=list,
        description=f"tensors that rest in the innermost memory, spread over it; the others stream in and out at the edge: {CHOOSING}",
    )


class MapperSpec(Spec):
    """The file of a mapper: a mapspace."""

    name: str = Field(alias="mapper", description="the mapper's name")
    axes: dict[str, AxisSpec] = Field(default_factory=dict, description="the mesh: axis → degree and placement, outermost first")
    split: dict[str, list[RankChoice] | Literal["output", "free"]] = Field(
        default_factory=dict, description="axis → ranks in order of preference (a list inside is a flattening), 'output' or 'free'"
    )
    choose: dict[str, dict[str, RankChoice]] = Field(
        default_factory=dict,
        description="operation, or how several begin ('router*') → axis → index, 'none', '+' (carries a Partial) or 'free'",
    )
    boundary: dict[str, dict[str, RankChoice]] = Field(
        default_factory=dict, description="input or output tensor → axis → the rank it arrives or leaves split by (first that it has)"
    )
    uneven: Uneven | list[str] = Field(default="error", description=f"{UNEVEN}; a list of indices: fullest, of these alone")
    homes: dict[str, HomeSpec | list[HomeSpec] | Literal["free"]] = Field(
        default_factory=dict, description="'weights' or a weight's name → its home, a list to choose from, or free"
    )
    handover: dict[str, HandoverSpec] = Field(
        default_factory=dict, description="tensor that stages hand over ('*' = every one) → the memory that it goes through; absent = links"
    )
    save: dict[str, Literal["shard", "gathered"]] | Literal["shard", "gathered", "free"] = Field(
        default="shard", description="which copy the backward pass keeps: the most sharded, or as gathered for its reader"
    )
    recompute: Policy | list[Policy] | Literal["per layer"] = Field(
        default="none", description="what is recomputed instead of saved; a list to choose from; per layer: each layer has its own"
    )
    layouts: dict[str, LayoutSpec] = Field(default_factory=dict, description="name → one way to split, choose and save; searched")
    micro_batch: PositiveInt | list[PositiveInt] | Literal["free", "whole"] = Field(
        default="whole", description="samples of one data-parallel rank that run together: whole (all), free (searched), or numbers"
    )
    schedule: Schedule | list[Schedule] = Field(default="1f1b", description=f"pipeline schedules to choose from: {', '.join(SCHEDULES)}")
    interleave: PositiveInt | list[PositiveInt] | Literal["free"] = Field(
        default=1, description="chunks of layers a pipeline stage holds, for the interleaved schedule (zb_v, dualpipe_v: always two)"
    )
    cut: Literal["even", "free"] = Field(default="even", description="layers of each stage: the same, or as balances the stages best")
    overlap: Literal["profile", "free"] = Field(
        default="profile", description="profile: all that the profile can overlap is; free: each kind of overlap is on or off"
    )
    algorithms: str | list[str] = Field(
        default="ring", description="of collectives; several: the fastest for each; best: all; a ring stands in for one that cannot"
    )
    offload: list[list[Literal["weights", "activations", "optimizer"]]] = Field(
        default_factory=list, description="what lives at the host level instead; several: alternatives"
    )
    host: str | None = Field(default=None, description="the level that offloading goes to")
    rerun: Literal["region", "slice"] = Field(default="region", description="recompute everything, or only what the backward pass needs")
    inside: InsideSpec = Field(default=InsideSpec(), description="how operations run inside an accelerator")
    profile: str | None = Field(default=None, description="what overlaps; a file of specs/profiles")
    solver: Literal["auto", "enumerate", "eliminate", "cpsat"] = Field(default="auto", description="how the space is searched")
    minimize: Objective = Field(default="latency", description="the objective when none is given")

    @field_validator("recompute", "micro_batch", "schedule", "interleave", "algorithms", "homes", "uneven")
    @classmethod
    def _something_to_choose(cls, said: Any) -> Any:
        for one in said.values() if isinstance(said, dict) else [said]:
            _check_choices(one)
        return said

    @model_validator(mode="after")
    def _known_axes(self) -> MapperSpec:
        for path, axis in self._named_axes():
            if axis not in self.axes:
                raise ValueError(f"{path}: no axis called '{axis}' (axes: {', '.join(self.axes) or 'none'})")
        for key, homes in self.homes.items():
            for axis in (axis for home in homes_of(homes) for axis in (*home.axes, *(home.replicas or ()))):
                if axis not in self.axes:
                    raise ValueError(f"homes.{key}: no axis called '{axis}' (axes: {', '.join(self.axes) or 'none'})")
        return self

    def may_be_uneven(self, *indices: str) -> bool:
        """Whether a degree may exceed or not divide the size of an index, or of a flattening of several."""
        if isinstance(self.uneven, list):
            return not {*indices, *map(unnumbered, indices)}.isdisjoint(self.uneven)
        return self.uneven != "error"

    @property
    def unevenly(self) -> Uneven:
        """How what does not divide is priced."""
        return "fullest" if isinstance(self.uneven, list) else self.uneven

    @property
    def pipelined(self) -> bool:
        """Whether an axis deals layers to stages."""
        return any(axis.stages == "layers" for axis in self.axes.values())

    @property
    def tables(self) -> list[tuple[str, MapperSpec | LayoutSpec]]:
        """What lays out, the mapper itself first, and the path before its keys."""
        return [("", self), *((f"layouts.{name}.", layout) for name, layout in self.layouts.items())]

    def _named_axes(self) -> Iterator[tuple[str, str]]:
        """Every axis that a split, a choice or a boundary names, here or in a layout, and the path of what names it."""
        for prefix, table in self.tables:
            yield from ((f"{prefix}split", axis) for axis in table.split)
            for key, said in (("choose", table.choose), ("boundary", table.boundary)):
                yield from ((f"{prefix}{key}.{name}", axis) for name, axes in said.items() for axis in axes)


def chosen(table: Mapping[str, dict[str, RankChoice]], operation: str) -> dict[str, RankChoice]:
    """What `choose` says of an operation, axis by axis; its own name before one that ends in '*' and begins as it does."""
    found = dict[str, RankChoice]()
    for name in (*(name for name in table if name[-1:] == "*" and operation.startswith(name[:-1])), operation):
        found |= table.get(name, {})
    return found


def is_called(name: str, operations: Collection[str]) -> bool:
    """Whether a name of `choose` is one of some operations', or that of several."""
    return name in operations or (name[-1:] == "*" and any(one.startswith(name[:-1]) for one in operations))


@cache
def unnumbered(name: str) -> str:
    """A name of a model's later section without its number (inputs/decoders): f of f_2."""
    word, _, number = name.rpartition("_")
    return word if number.isdecimal() else name


def homes_of(said: HomeSpec | list[HomeSpec] | str) -> list[HomeSpec]:
    """The homes that a mapper names; none where they are free."""
    return [] if isinstance(said, str) else [said] if isinstance(said, HomeSpec) else list(said)


class PlacedAxis(Spec):
    """One axis of a fixed mapping: neighbours along it are `stride` accelerators apart."""

    degree: PositiveInt = Field(description="members of a group")
    stride: PositiveInt = Field(default=1, description="accelerators from one member to the next, in tree order")


class StepSpec(Spec):
    """How a model's layers and micro-batches run: the part of a mapping above one layer."""

    micro_batch: PositiveInt = Field(description="samples of one data-parallel rank in one micro-batch")
    micro_batches: PositiveInt | None = Field(
        default=None, description="how many there are, where axes of other ranks split the batch, too; null = as the batch makes them"
    )
    pipeline: PlacedAxis = Field(default=PlacedAxis(degree=1), description="pipeline stages, and accelerators from one to the next")
    schedule: Schedule = Field(default="1f1b", description="order of forward and backward passes")
    interleave: PositiveInt = Field(default=1, description="chunks of layers a stage holds")
    layers: list[int] = Field(
        default_factory=list,
        description="layers of each stage where they differ, or of each chunk in the order of the model; empty = the same",
    )
    mixes: list[dict[str, dict[Policy, int]]] = Field(
        default_factory=list, description="stage → section → recompute policy → layers, where layers differ in it"
    )
    pools: list[str] = Field(
        default_factory=list, description="accelerators of several kinds: their order along the pipeline; empty = as in the tree"
    )
    hide_activations: bool = Field(default=True, description="whether the profile's windows are used")
    hide_gradients: bool = Field(default=True, description="whether the profile's overlap of gradients and weights is used")
    algorithms: list[str] = Field(default_factory=lambda: ["ring"], description="algorithms of the collectives; the fastest for each")
    offload: list[Literal["weights", "activations", "optimizer"]] = Field(default_factory=list, description="what lives at the host level")
    host: str | None = Field(default=None, description="the level that offloading goes to")


class MappingSpec(Spec):
    """The file of a mapping: one point, as `search -o` writes it and `evaluate` reads it."""

    name: str = Field(alias="mapping", description="a name for the mapping")
    accelerators: PositiveInt = Field(description="accelerators in use: the product of the degrees and the stages")
    axes: dict[str, PlacedAxis] = Field(default_factory=dict, description="axis → degree and stride")
    ops: dict[str, dict[str, str | None]] = Field(default_factory=dict, description="operation → axis → index, null, or '+operand'")
    boundary: dict[str, dict[str, str | None]] = Field(default_factory=dict, description="tensor → axis → rank or null")
    stages: list[list[str]] = Field(default_factory=list, description="operations of each pipeline stage; empty = one stage")
    homes: dict[str, HomeSpec] = Field(default_factory=dict, description="weight → home")
    handover: dict[str, HandoverSpec] = Field(default_factory=dict, description="tensor of two stages → the memory it goes through")
    save: dict[str, Literal["shard", "gathered"]] = Field(default_factory=dict, description="tensor or '*' → the copy that is kept")
    flat: dict[str, list[str]] = Field(default_factory=dict, description="axis → flattened indices that its degree does not factor")
    recompute: Policy = Field(default="none", description="what is recomputed instead of saved")
    rerun: Literal["region", "slice"] = Field(default="region", description="recompute everything, or only what the backward pass needs")
    uneven: Uneven = Field(default="error", description=UNEVEN)
    nests: dict[str, dict[str, Any]] = Field(default_factory=dict, description="contraction → its loop nest; absent = roofline")
    step: StepSpec | None = Field(default=None, description="micro-batches, pipeline, overlap, algorithms, offload")
    profile: str = Field(default="ideal", description="the profile it was priced under")
