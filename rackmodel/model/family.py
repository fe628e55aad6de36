"""Families of models as data: which keys of a published config give which sizes, and of which blocks a layer is made."""

from __future__ import annotations

from pydantic import Field

from rackmodel.model.schema import Spec
from rackmodel.model.workload_spec import TensorSpec
from rackmodel.units import Plain

Expression = str | int | float


class BlockSpec(Spec):
    """The file of a block (specs/blocks): operations that a layer is put together from.

    A block of attention reads X and writes R1, one of a feed-forward layer reads R1 and writes Y.
    """

    name: str = Field(alias="block", description="the block's name")
    sizes: dict[str, str | int] = Field(default_factory=dict, description="sizes that follow from others")
    einsums: dict[str, str | None] = Field(description="operations: name → statement; none takes away what the block it extends has")
    prompts: dict[str, str | None] = Field(
        default_factory=dict, description="operations that several new tokens of a sequence run in the place of those of `einsums`, or none"
    )
    training: dict[str, str | None] = Field(
        default_factory=dict, description="operations that steps of training run in the place of both, or none (inputs/trained)"
    )
    tensors: dict[str, TensorSpec] = Field(default_factory=dict, description="what a workload says of tensors")


class LayerKind(Spec):
    """Equal layers of a model."""

    name: str = Field(description="what the section of the workload is called")
    blocks: list[str] = Field(
        description="attention and feed-forward layer, or a mixer alone; files of specs/blocks; none: a layer that is left out"
    )
    count: Expression | list[Expression] = Field(description="how many: an expression over keys; of several the first whose keys are there")
    sizes: dict[str, Expression | list[Expression]] = Field(
        default_factory=dict, description="sizes of these layers alone, in the same way: indices of their own where others have them, too"
    )


class FamilySpec(Spec):
    """The file of a family (specs/families)."""

    name: str = Field(alias="family", description="the family's name")
    models: list[str] = Field(description="values of model_type")
    inside: str | None = Field(default=None, description="key under which the decoder's own config may stand")
    embedding: str = Field(default="embedding", description="block of the embedding")
    head: str = Field(default="head", description="block of the head; tied_HEAD where the table of embeddings is the head's, too")
    join: str = Field(default="next_token", description="block with which a module begins that predicts one token further")
    skew: Plain = Field(default=0.0, ge=0.0, description="exponent of the power law by which tokens choose experts, 0 = evenly")
    sizes: dict[str, Expression | list[Expression]] = Field(
        description="index → expression over keys; of several the first whose keys are there"
    )
    counts: dict[str, Expression | list[Expression]] = Field(
        default_factory=dict, description="name → layers of a sort, in the same way: what other expressions may name, after their keys"
    )
    layers: list[LayerKind] = Field(description="kinds of layers; those that count none are left out")
    total: Expression | None = Field(
        default=None, description="how many layers those of all kinds are together; absent = num_hidden_layers, n_layer or num_layers"
    )
    mtp: LayerKind | None = Field(
        default=None, description="layer of the module that predicts one token further, where its count is there and above 0"
    )
    defaults: dict[str, bool | int] = Field(default_factory=dict, description="key → what it is where the config does not say")
    words: dict[str, list[str]] = Field(
        default_factory=dict, description="key → words that the blocks mean; another is refused; KEY__WORD is 1 where it says so, else 0"
    )
    counted: list[str] = Field(
        default_factory=list, description="keys that list a word a layer: KEY__WORD is how often; a word that no count names is refused"
    )
    letters: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="key whose text has a letter a layer → letter → WORD: KEY__WORD is how often"
    )
    listed: list[str] = Field(
        default_factory=list,
        description="keys that list layers by their numbers, from 0, or in a text (`3,4,5`): KEY__length is how many, KEY__in and KEY__out "
        "are layers that it lists or not",
    )
    from_one: list[str] = Field(default_factory=list, description="of those `listed`, keys whose first layer is 1")
    first: dict[str, Expression | list[Expression]] = Field(
        default_factory=dict,
        description="name → how many of the first layers are of a sort: NAME__first and NAME__rest, to be crossed with words of a layer "
        "(`layer_types__conv__and__dense__first` counts layers that are both)",
    )
    each: str | None = Field(
        default=None,
        description="key that lists a mapping for each layer, read as KEY__ENTRY: counts of layers (1 or 0) and sizes follow "
        "layer by layer; those of like blocks and sizes are one section, and a size of theirs alone is an index of its own (f_2)",
    )
    nested: list[str] = Field(
        default_factory=list, description="keys with a mapping of their own, whose entries are read as KEY__ENTRY: the others are refused"
    )
    empty: list[str] = Field(default_factory=list, description="keys that must be absent, empty or 0: the blocks do not say what they do")
    same: dict[str, str] = Field(
        default_factory=dict,
        description="key → another one, which is as large where a config has both: nothing turns one into the other",
    )
    ones: list[str] = Field(default_factory=list, description="keys that must be absent or 1")
    ignored: list[str] = Field(default_factory=list, description="keys that change neither operations nor sizes")
