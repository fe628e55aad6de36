"""What the words of published rows mean: GPUs, models, precisions, sharding and data sets, as the files of specs/validation say it.

Nothing of a row's meaning is in code: a word is looked up here, or the row is refused with the nearest word that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from rackmodel.errors import InputError, nearest
from rackmodel.inputs.library import SUFFIXES, names
from rackmodel.inputs.load import load
from rackmodel.inputs.problems import build
from rackmodel.model.calls import LibraryCall
from rackmodel.model.mapping import Policy
from rackmodel.model.schema import Spec
from rackmodel.units import Plain, Seconds
from rackmodel.validation.model_names import name_and_format
from rackmodel.validation.pooled_words import AcceptanceWords, PooledWords
from rackmodel.validation.serving_words import (
    BenchmarkedWords,
    BenchmarkWords,
    EngineWords,
    FormatWords,
    RankWords,
    ServedWords,
    SettingWords,
)

MEMORY = "_memory"
"""Behind the name of a data set: the memory that its rows tell."""
Flops = Literal["model", "hardware"]
Spread = Literal["replicate", "shard"]


class AssumedCell(Spec):
    """What an empty cell of a row is taken to be."""

    value: str = Field(description="as the column would say it")
    also: list[str] = Field(default_factory=list, description="what it may be as well: predictions with each widen the row's interval")
    tuned: bool = Field(default=False, description="true: whoever ran the row tuned it: the fastest of all that fits is meant")


class MachineWords(Spec):
    """A machine of the library."""

    words: list[str] = Field(description="what rows call its GPU")
    machine: str = Field(description="architecture of the library")
    set: dict[str, str] = Field(default_factory=dict, description="what is changed of it, as --set says it")

    @property
    def named(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """(architecture, (path, value) of what is changed)."""
        return self.machine, tuple(self.set.items())


class ModelWords(Spec):
    """A model: a workload of the library with other sizes."""

    words: list[str] = Field(description="what rows call the model, or its kind in the column `arch`")
    workload: str = Field(default="", description="workload of the library")
    sizes: dict[str, int | str] = Field(default_factory=dict, description="its sizes where rows do not give them")
    further: int = Field(default=0, description="layers of the workload that rows do not count: those that predict further tokens")
    refused: str | None = Field(default=None, description="why it cannot be priced")


Timed = Literal["alone", "queued", "looped", "looped eager"]


class PrecisionWords(Spec):
    """Widths of a run, or of a product."""

    words: list[str] = Field(description="what rows call it")
    width: str = Field(default="16 bit", description="of the operands of weights' products in the layers")
    unit: str = Field(
        default="", description="what a machine must multiply for a run, as parts name it ('fp8'); '' = any that is wide enough"
    )
    family: str = Field(default="", description="of the `products` of a part that states them by that name")
    timed: Timed | None = Field(default=None, description="of single operations in a loop, where not as others are")
    compiled: dict[Literal["hopper", "blackwell"], list[str]] = Field(
        default_factory=dict, description="generation → GPUs, where a kernel is compiled when a layout of blocks is first called"
    )
    resumed: dict[str, tuple[int, int]] = Field(
        default_factory=dict,
        description="GPU → rows and columns of the last product before its run was taken up anew and compiled its kernels anew",
    )
    in_turn: dict[str, int] = Field(
        default_factory=dict,
        description="framework → products in a call, where a benchmark runs a shape's loops one after the other, in this order",
    )


class ExpertKernelWords(Spec):
    """A kernel of experts' products."""

    words: list[str] = Field(description="what rows call it")
    kernel: str = Field(description="how parts begin its name in `kernels.grouped`")
    stand_in: bool = Field(
        default=False, description="whether a rank's first expert made what its tokens chose of other ranks when the rows were measured"
    )


class ExpertPrecisionWords(Spec):
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


class LayerModelWords(Spec):
    """Sizes of a model whose layers' operations were measured."""

    words: list[str] = Field(description="what rows call it")
    sizes: dict[str, int] = Field(description="size → number")
    kernels: dict[str, str] = Field(default_factory=dict, description="vector kernel of the data set → the one that this model has")


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


class ShardingWords(Spec):
    """Where weights, gradients and optimizer state rest over the data-parallel ranks."""

    words: list[str] = Field(description="what rows call it")
    param: Spread = Field(default="replicate", description="parameters")
    grad: Spread = Field(default="replicate", description="gradients")
    state: Spread = Field(default="replicate", description="optimizer state")


class RecomputeWords(Spec):
    """A policy of recomputation."""

    words: list[str] = Field(description="what rows call it")
    policy: Policy = Field(description="as a mapper calls it")


class AttentionWords(Spec):
    """An attention kernel: of entries with a row's word, the first counts whose machine and head sizes fit."""

    words: list[str] = Field(description="what rows call it")
    kernel: str = Field(description="as parts call it in `kernels.attention`")
    machines: list[str] = Field(default_factory=list, description="machines that it runs on under this word; [] = all")
    most_head: int | None = Field(default=None, description="largest head size that it takes")


class HeadWords(Spec):
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


class SaidOfSome(Spec):
    """What holds for rows of a data set whose column holds a text, in place of what is said of all."""

    column: str = Field(description="column that is looked at")
    has: str = Field(description="text that it holds")
    where: dict[str, str] = Field(default_factory=dict, description="other columns → a text that each holds as well")
    profile: str | None = Field(default=None, description="as of all rows")
    also: list[str] = Field(default_factory=list, description="as of all rows, beside a profile that is said here")
    variant: str = Field(default="", description="of the model, behind its name: 'LoRA' looks up 'NAME LoRA'")
    attention: str = Field(default="", description="width at which queries, keys and values are multiplied ('8 bit'); '' = at 16 bit")
    sharding: dict[str, str] = Field(default_factory=dict, description="as of all rows")
    assume: dict[str, AssumedCell] = Field(default_factory=dict, description="as of all rows")
    refused: str | None = Field(default=None, description="why these rows cannot be priced")


class RivalWords(Spec):
    """What another tool says of its errors, or what was measured with it."""

    tool: str = Field(description="its name")
    on: str = Field(description="what was predicted")
    error: str = Field(description="how far it was off")


class ShortWords(Spec):
    """Where predictions are known to be off."""

    what: str = Field(description="rows, and their data set")
    off: str = Field(description="how far")
    why: str = Field(description="what is known of the cause")


class DatasetWords(Spec):
    """What the rows of a data set leave unsaid."""

    profile: str = Field(description="profile of the framework")
    like: str | None = Field(default=None, description="data set whose assumptions hold where this one says none")
    flops: Flops = Field(default="model", description="operations that its TFLOP/s count: of the model, or with what is recomputed")
    algorithms: list[str] = Field(default_factory=lambda: ["ring"], description="of collectives; the fastest for each")
    sharding: dict[str, str] = Field(default_factory=dict, description="word of the column `sharding` → the word that it means here")
    recompute: dict[str, str] = Field(default_factory=dict, description="the same of the column `recompute`")
    assume: dict[str, AssumedCell] = Field(default_factory=dict, description="column → what an empty cell is taken to be")
    some: list[SaidOfSome] = Field(default_factory=list, description="what differs for some of its rows")
    also: list[str] = Field(default_factory=list, description="profiles that it may be as well: predictions under each widen the intervals")
    layer: bool = Field(default=False, description="whether a row is one layer alone, without embedding, head and optimizer")
    gpus: dict[str, str] = Field(default_factory=dict, description="word for a GPU → the word that it means here")
    set: dict[str, str] = Field(default_factory=dict, description="what is changed of the machines that its rows name, as --set says it")
    gradient: str = Field(default="", description="width at which weights' gradients are summed and reduced; '' = as the workload says")
    timed: Timed = Field(
        default="queued",
        description="of single operations: each started by the host and waited for, one behind the other in a layer, one over and over, "
        "or that with no CUDA graph, so that the host may bound it",
    )
    collectives: LibraryCall | None = Field(default=None, description="whose collectives were called, where a row names no library")
    loop_gap_s: Seconds | None = Field(
        default=None, alias="loop_gap", description="time that a GPU whose watts are taken waits between kernels of a loop; absent = as '*'"
    )
    bar: float | None = Field(default=None, description="mean absolute error in percent that a release may not exceed")
    memory_bar: float | None = Field(default=None, description="the same of its rows' memory")


class WordsSpec(Spec):
    """A file of specs/validation."""

    name: str = Field(alias="validation", description="the file's name")
    machines: list[MachineWords] = Field(default_factory=list, description="GPUs")
    models: list[ModelWords] = Field(default_factory=list, description="models")
    precisions: list[PrecisionWords] = Field(default_factory=list, description="widths")
    recomputes: list[RecomputeWords] = Field(default_factory=list, description="recomputation")
    expert_kernels: list[ExpertKernelWords] = Field(default_factory=list, description="kernels of experts' products")
    expert_precisions: list[ExpertPrecisionWords] = Field(default_factory=list, description="operands of experts' products")
    layers: dict[str, LayerWords] = Field(default_factory=dict, description="data set → single operations of layers")
    layer_models: list[LayerModelWords] = Field(default_factory=list, description="models whose layers' operations were measured")
    ungated: list[UngatedExperts] = Field(default_factory=list, description="experts without a gate")
    limited: list[LimitedExperts] = Field(default_factory=list, description="experts that are chosen from some groups")
    shardings: list[ShardingWords] = Field(default_factory=list, description="homes")
    attention_kernels: list[AttentionWords] = Field(default_factory=list, description="kernels of fused attention")
    attention_heads: list[HeadWords] = Field(default_factory=list, description="heads of models")
    latent: LatentWords | None = Field(default=None, description="latent attention")
    datasets: dict[str, DatasetWords] = Field(default_factory=dict, description="data set ('*': any other) → what its rows leave unsaid")
    rivals: list[RivalWords] = Field(default_factory=list, description="what other tools say of their errors")
    falls_short: list[ShortWords] = Field(default_factory=list, description="where predictions are known to be off, and why: for the page")
    engines: list[EngineWords] = Field(default_factory=list, description="serving engines")
    served: list[ServedWords] = Field(default_factory=list, description="models as they are served")
    formats: list[FormatWords] = Field(default_factory=list, description="quantised formats of served models")
    benchmarks: list[BenchmarkWords] = Field(default_factory=list, description="how serving was measured; the first whose origin fits")
    benchmarked: list[BenchmarkedWords] = Field(default_factory=list, description="models of benchmarks whose plan is the submitter's")
    settings: list[SettingWords] = Field(default_factory=list, description="with which servers ran")
    ranks: list[RankWords] = Field(default_factory=list, description="how servers of single requests dealt them out")
    pooled: list[PooledWords] = Field(default_factory=list, description="pools that rows ran on, where they do not say them")
    draft_acceptance: list[AcceptanceWords] = Field(default_factory=list, description="of drafts that a plan names")
    shipped: list[str] = Field(default_factory=list, description="files that are run when none is named, beside the library")
    operators: Annotated[Plain, Field(ge=0.0, le=1.0)] = Field(
        default=0.0, description="standard deviation of a step's seconds among operators of one kind of machine, over their mean"
    )


Said = TypeVar(
    "Said",
    BenchmarkedWords,
    HeadWords,
    MachineWords,
    ModelWords,
    PrecisionWords,
    ShardingWords,
    RecomputeWords,
    ExpertKernelWords,
    ExpertPrecisionWords,
    EngineWords,
    ServedWords,
    FormatWords,
    LayerModelWords,
)


class Refused(Exception):
    """A row that cannot be priced, and why, in words that many rows share."""


class Words:
    """All files of specs/validation as one."""

    def __init__(self, files: Iterable[WordsSpec]) -> None:
        every = list(files)
        self.machines = _table(one for file in every for one in file.machines)
        self.models = _table(one for file in every for one in file.models)
        self.precisions = _table(one for file in every for one in file.precisions)
        self.recomputes = _table(one for file in every for one in file.recomputes)
        self.expert_kernels = _table(one for file in every for one in file.expert_kernels)
        self.expert_precisions = _table(one for file in every for one in file.expert_precisions)
        self.layers = {name: said for file in every for name, said in file.layers.items()}
        self.layer_models = _table(one for file in every for one in file.layer_models)
        self.ungated = tuple(one for file in every for one in file.ungated)
        self.limited = tuple(one for file in every for one in file.limited)
        self.shardings = _table(one for file in every for one in file.shardings)
        self.engines = _table(one for file in every for one in file.engines)
        self.served = _table(one for file in every for one in file.served)
        self.checkpoints: dict[str, ServedWords] = {}
        for word, served in self.served.items():
            self.checkpoints.setdefault(name_and_format(word)[0], served)
        self.formats = _table(one for file in every for one in file.formats)
        self.benchmarks = [one for file in every for one in file.benchmarks]
        self.benchmarked = _table(one for file in every for one in file.benchmarked)
        self.settings = [self._by_every_name(one) for file in every for one in file.settings]
        self.set_models = {name_and_format(str(word))[0] for one in self.settings for word in one.when.get("model", [])}
        self.ranks = [one for file in every for one in file.ranks]
        self.pooled = [one for file in every for one in file.pooled]
        self.draft_acceptance = {one.drafts: one for file in every for one in file.draft_acceptance}
        self.attention_kernels = tuple(one for file in every for one in file.attention_kernels)
        self.attention_heads = _table(one for file in every for one in file.attention_heads)
        self.latent = next((file.latent for file in every if file.latent is not None), None)
        self.datasets = {name: said for file in every for name, said in file.datasets.items()}
        self.shipped = tuple(name for file in every for name in file.shipped)
        self.operators = max((float(file.operators) for file in every), default=0.0)
        self.rivals = tuple(one for file in every for one in file.rivals)
        self.falls_short = tuple(one for file in every for one in file.falls_short)

    def _by_every_name(self, setting: SettingWords) -> SettingWords:
        """A setting that asks for an engine or a machine by any of its words."""
        when = dict(setting.when)
        for fact, table in (("engine", self.engines), ("system", self.machines)):
            said = [str(word) for word in when.get(fact, [])]
            others = [word for one in said if one.lower() in table for word in table[one.lower()].words]
            if said:
                when[fact] = list(dict.fromkeys([*said, *others]))
        return setting.model_copy(update={"when": when})

    def attention_kernel(self, word: str, machine: str, head: float) -> str:
        """The kernel that a row's word means on a machine for a head size. Raises Refused."""
        named = [one for one in self.attention_kernels if word in one.words]
        if not named:
            known = [text for one in self.attention_kernels for text in one.words]
            close = nearest(word, known)
            raise Refused(f"no attention kernel called '{word}'" + (f" (nearest: {close})" if close else ""))
        fitting = (one for one in named if machine in (one.machines or [machine]) and head <= (one.most_head or head))
        found = next(fitting, None)
        if found is None:
            raise Refused(f"'{word}' has no kernel for heads of {head:g} on {machine}")
        return found.kernel

    def bar(self, name: str) -> float | None:
        """What the mean error of a data set, or of its memory, may not exceed; None = anything."""
        own, of_memory = self.datasets.get(name), self.datasets.get(name.removesuffix(MEMORY))
        if own is not None:
            return own.bar
        return of_memory.memory_bar if of_memory is not None else None

    def dataset(self, name: str) -> DatasetWords:
        """What is said of a data set, or of any other."""
        found = self.datasets.get(name, self.datasets["*"])
        if found.like is None:
            return found
        return found.model_copy(update={"assume": {**self.dataset(found.like).assume, **found.assume}})

    def machine(self, word: str, dataset: str) -> MachineWords:
        """What a data set's rows call a GPU, or an architecture by its name or path. Raises Refused with the nearest word that is known."""
        said = self.dataset(dataset)
        called = said.gpus.get(word.strip(), word.strip())
        if called.lower() not in self.machines and _is_file("architecture", called):
            machine = MachineWords(words=[called], machine=called)
        else:
            machine = look_up(self.machines, "GPU", called, "gpu")
        return machine.model_copy(update={"set": machine.set | said.set}) if said.set else machine

    def model(self, word: str, *columns: str) -> ModelWords:
        """What rows call a model that is trained, or a workload by its name or path. columns: where they say it. Raises Refused with the
        nearest word that is known."""
        called = word.strip()
        if called.lower() not in self.models and called and _is_file("workload", called):
            return ModelWords(words=[called], workload=called)
        return look_up(self.models, "model", word, *columns)

    def served_model(self, word: str, *columns: str) -> ServedWords:
        """What rows call a model that is served, by any name of its checkpoints, or a workload by its name or path. columns: where they
        say it. Raises Refused with the nearest word that is known."""
        called = word.strip()
        if called.lower() not in self.served and _is_file("workload", called):
            return ServedWords(words=[called], workload=called)
        other = self.checkpoints.get(name_and_format(called)[0])
        if called.lower() not in self.served and other is not None:
            return other.told(f"'{called}' is priced as a checkpoint of {other.words[0]}")
        return look_up(self.served, "served model", word, *columns)


def _is_file(kind: str, word: str) -> bool:
    """Whether a word names a file of the library, or is the path of one."""
    return word in names(kind) or word.endswith(SUFFIXES)


def _table(said: Iterable[Said]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for one in said:
        for word in one.words:
            if word.lower() in found:
                raise InputError(f"'{word}' is said twice", path="words")
            found[word.lower()] = one
    return found


def spelt(word: str) -> str:
    """A word without what spellings differ in: case, spaces, hyphens and other signs. A point or plus counts: Llama 3.1 is not Llama 31."""
    return "".join(sign for sign in word.casefold() if sign.isalnum() or sign in ".+")


def _spelt_alike(table: Mapping[str, Said], word: str) -> Said | None:
    """What a word means in other spellings, where that is one thing alone; None."""
    called = spelt(word)
    found = [said for known, said in table.items() if called and spelt(known) == called]
    return found[0] if found and all(said is found[0] for said in found) else None


def look_up(table: Mapping[str, Said], what: str, word: str, *columns: str) -> Said:
    """What a word means, as it is known or, where it is not, in another spelling (ZeRO-1, zero1). columns: where a row says it. Raises
    Refused with the nearest word that is known."""
    found = table.get(word.strip().lower()) or _spelt_alike(table, word)
    if found is None and not word.strip():
        raise Refused(f"no {what} is said" + (f" (column {' or '.join(columns)})" if columns else ""))
    if found is None:
        close = nearest(word.strip().lower(), list(table))
        raise Refused(f"no {what} called '{word}'" + (f" (nearest: {close})" if close else ""))
    return found


@cache
def words() -> Words:
    """What the library says."""
    return Words(build(WordsSpec, load("validation", name)) for name in names("validation"))
