"""What the words of rows of single kernels mean: experts, operations of layers, attention: the schema of files of specs/validation."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from rackmodel.model.schema import Spec
from rackmodel.units import Plain


class Called(Spec):
    """Something that rows call by words of their own."""

    words: list[str] = Field(description="what rows call it")


class ExpertKernelWords(Called):
    """A kernel of experts' products."""

    kernel: str = Field(description="how parts begin its name in `kernels.grouped`")
    stand_in: bool = Field(
        default=False, description="whether a rank's first expert made what its tokens chose of other ranks when the rows were measured"
    )


class ExpertPrecisionWords(Called):
    """Operands of experts' products."""

    words: list[str] = Field(description="what rows call them")
    name: str = Field(description="how parts end the kernel's name in `kernels.grouped`")
    weights: str = Field(description="width of a weight's element")
    activations: str = Field(description="width of an activation's element as it is multiplied")
    family: str = Field(default="", description="kind of operands where a width does not say it")


class LayerOpWords(Spec):
    """An operation of a layer: a product of T rows, or a vector kernel. Sizes are expressions over those of the model."""

    n: str = Field(default="", description="columns of a product's result")
    k: str = Field(default="", description="elements that it sums")
    kernel: str = Field(default="", description="vector kernel, of a part's `kernels.vector`")
    moved: str = Field(default="", description="elements of 16 bit that it reads and writes for a token")

    @model_validator(mode="after")
    def _one(self) -> LayerOpWords:
        if not (self.n and self.k and not self.kernel) and not (self.kernel and self.moved and not self.n):
            raise ValueError("want n and k of a product, or a kernel and what it moves")
        return self


class LayerWords(Spec):
    """Rows of single operations of a data set."""

    tokens: str = Field(description="column of the tokens")
    columns: dict[str, str] = Field(default_factory=dict, description="size → column that tells it; the others are the model's")
    ops: dict[str, LayerOpWords] = Field(description="word of the column `op` → what it is")

    def tells(self, cells: Mapping[str, str]) -> bool:
        """Whether a row of another data set has the same columns."""
        return {self.tokens, *self.columns.values()} <= set(cells)


class LayerModelWords(Called):
    """Sizes of a model whose layers' operations were measured."""

    sizes: dict[str, int] = Field(description="size → number")
    kernels: dict[str, str] = Field(default_factory=dict, description="vector kernel of the data set → the one that this model has")
    whole: list[str] = Field(
        default_factory=list, description="operations that were measured whole, whatever the degree of tensor parallelism that a row says"
    )


class UngatedExperts(Spec):
    """Experts whose up has no gate beside it, which rows do not say."""

    hidden: int = Field(description="size of a token")
    inter: int = Field(description="size inside an expert")
    versions: list[str] = Field(description="versions of the framework whose rows were measured so; others had a gate")

    def fits(self, hidden: int, inter: int, version: str) -> bool:
        """Whether experts of these sizes are."""
        return (hidden, inter) == (self.hidden, self.inter) and version in self.versions


class LimitedExperts(Spec):
    """Experts whose router keeps a token to some groups of them, which rows do not say."""

    hidden: int = Field(description="size of a token")
    inter: int = Field(description="size inside an expert")
    experts: int = Field(description="of a layer")
    versions: list[str] = Field(description="versions of the framework whose rows were measured with that router; others chose from all")
    groups: int = Field(description="equal parts of the experts")
    kept: int = Field(description="of which a token's are chosen")

    def fits(self, hidden: int, inter: int, experts: int, version: str) -> bool:
        """Whether experts of these sizes are."""
        return (hidden, inter, experts) == (self.hidden, self.inter, self.experts) and version in self.versions


class AttentionWords(Spec):
    """An attention kernel: of entries with a row's word, the first counts whose machine and head sizes fit."""

    words: list[str] = Field(description="what rows call it")
    kernel: str = Field(description="as parts call it in `kernels.attention`")
    machines: list[str] = Field(default_factory=list, description="machines that it runs on under this word; [] = all")
    most_head: int | None = Field(default=None, description="largest head size that it takes")


class HeadWords(Called):
    """Heads of a model whose rows say its name alone."""

    words: list[str] = Field(description="what rows call the model")
    heads: int = Field(description="query heads")
    kv_heads: int = Field(description="heads of keys and values")
    head: int = Field(description="elements of a head")


class LatentWords(Spec):
    """Sizes of latent attention (MLA), whose rows say the heads alone."""

    hidden: int = Field(description="elements of a token")
    query: int = Field(description="of its latent query")
    key: int = Field(description="of the latent key and value that a cache holds")
    rope: int = Field(description="of the key's part that turns with its place")
    head: int = Field(description="of a head's key without that part, and of its value")
    constant: Plain = Field(
        default=1.0, description="share of its joules that an operation or a byte of a module takes, whose benchmark runs on constants"
    )
