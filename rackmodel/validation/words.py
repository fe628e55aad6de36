"""What the words of published rows mean: GPUs, models, precisions, sharding and data sets, as the files of specs/validation say it.

Nothing of a row's meaning is in code: a word is looked up here, or the row is refused with the nearest word that is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from rackmodel.errors import InputError, nearest
from rackmodel.inputs.library import DECODER, SUFFIXES, TRAINING, called, names
from rackmodel.inputs.load import load
from rackmodel.inputs.problems import build
from rackmodel.model.calls import LibraryCall, release_before
from rackmodel.model.mapping import Copy, Policy
from rackmodel.model.schema import Spec
from rackmodel.once import once
from rackmodel.units import Plain, Seconds
from rackmodel.validation.kernel_words import (
    AttentionWords,
    Called,
    ExpertKernelWords,
    ExpertPrecisionWords,
    HeadWords,
    LatentWords,
    LayerModelWords,
    LayerWords,
    LimitedExperts,
    UngatedExperts,
)
from rackmodel.validation.model_names import name_and_format, nearest_name, shorter_names, without_v
from rackmodel.validation.pooled_words import AcceptanceWords, PooledWords
from rackmodel.validation.serving_words import (
    BenchmarkedWords,
    BenchmarkWords,
    EngineWords,
    FormatWords,
    RankWords,
    ServedWords,
    SettingWords,
    ToldWords,
)

RELEASE = re.compile(r"(\S+) ([0-9][0-9A-Za-z.]*) (.+)")
"""A framework, its release, and what of it."""
MOST_ASKED = 4096  # words whose meanings are remembered
MOST_KNOWN = 12
"""Meanings that a refusal lists; of more the nearest word alone is told."""
INSTEAD = {
    "GPU": "an architecture by its name or path may stand there",
    "model": "a workload by its name or path may stand there, such as `rackmodel import config.json --training` makes",
    "served model": "a workload by its name or path may stand there, such as `rackmodel import config.json` makes",
}
"""What a row may say in the place of a word that nothing is near to."""
MEMORY = "_memory"
"""Behind the name of a data set: the memory that its rows tell."""
Flops = Literal["model", "hardware"]
Spread = Literal["replicate", "shard"]


class AssumedCell(Spec):
    """What an empty cell of a row is taken to be."""

    value: str = Field(description="as the column would say it")
    also: list[str] = Field(default_factory=list, description="what it may be as well: predictions with each widen the row's interval")
    tuned: bool = Field(default=False, description="true: whoever ran the row tuned it: the fastest of all that fits is meant")


class MachineWords(Called):
    """A machine of the library."""

    words: list[str] = Field(description="what rows call its GPU")
    machine: str = Field(description="architecture of the library")
    set: dict[str, str] = Field(default_factory=dict, description="what is changed of it, as --set says it")

    @property
    def named(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """(architecture, (path, value) of what is changed)."""
        return self.machine, tuple(self.set.items())


class ModelWords(ToldWords):
    """A model: a workload of the library with other sizes."""

    words: list[str] = Field(description="what rows call the model, or its kind in the column `arch`")
    kind: bool = Field(default=False, description="a kind of models, whose sizes rows give")
    workload: str = Field(default="", description="workload of the library")
    sizes: dict[str, int | str] = Field(default_factory=dict, description="its sizes where rows do not give them")
    further: int = Field(default=0, description="layers of the workload that rows do not count: those that predict further tokens")
    refused: str | None = Field(default=None, description="why it cannot be priced")


class ConfigWords(Called):
    """A model whose published config the library has: what trains it and what serves it are made of that."""

    words: list[str] = Field(description="what rows call the model: names of its checkpoints")
    config: str = Field(description="name of the config")
    formats: dict[str, dict[str, str]] = Field(default_factory=dict, description="as of models that are served")
    released: str = Field(default="", description="as of models that are served")

    @property
    def trained(self) -> ModelWords:
        """The model as rows of training runs mean it."""
        return ModelWords(words=self.words, workload=f"{self.config}_{TRAINING}", note=self.note)

    @property
    def served(self) -> ServedWords:
        """The model as rows of servers mean it."""
        workload = f"{self.config}_{DECODER}"
        return ServedWords(words=self.words, workload=workload, formats=self.formats, released=self.released, note=self.note)


Timed = Literal["alone", "queued", "looped", "looped eager"]


class PrecisionWords(Called):
    """Widths of a run, or of a product."""

    width: str = Field(default="16 bit", description="of the operands of weights' products in the layers")
    unit: str = Field(
        default="", description="format that a machine must multiply for a run ('fp8', 'mxfp8'); '' = any that is wide enough"
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


class ShardingWords(Called):
    """Where weights, gradients and optimizer state rest over the data-parallel ranks."""

    param: Spread = Field(default="replicate", description="parameters")
    grad: Spread = Field(default="replicate", description="gradients")
    state: Spread = Field(default="replicate", description="optimizer state")
    profile: str = Field(default="", description="of the framework whose word it is, for data sets of which nothing is said")
    within: Literal["node"] | None = Field(default=None, description="ranks that shards lie over: those of a node; absent = all")


class ScheduleWords(Called):
    """A schedule of a pipeline."""

    schedule: str = Field(default="", description="as a mapper calls it")
    refused: str | None = Field(default=None, description="why it cannot be priced")


class RecomputeWords(Called):
    """A policy of recomputation."""

    policy: Policy = Field(description="as a mapper calls it")


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
    save: Copy = Field(
        default="shard",
        description="copy that is kept of activations which ranks share out between products: 'gathered' as products read it",
    )
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
    configs: list[ConfigWords] = Field(
        default_factory=list, description="models of published configs, where no file says otherwise of a word"
    )
    precisions: list[PrecisionWords] = Field(default_factory=list, description="widths")
    recomputes: list[RecomputeWords] = Field(default_factory=list, description="recomputation")
    expert_kernels: list[ExpertKernelWords] = Field(default_factory=list, description="kernels of experts' products")
    expert_precisions: list[ExpertPrecisionWords] = Field(default_factory=list, description="operands of experts' products")
    layers: dict[str, LayerWords] = Field(default_factory=dict, description="data set → single operations of layers")
    layer_models: list[LayerModelWords] = Field(default_factory=list, description="models whose layers' operations were measured")
    ungated: list[UngatedExperts] = Field(default_factory=list, description="experts without a gate")
    limited: list[LimitedExperts] = Field(default_factory=list, description="experts that are chosen from some groups")
    shardings: list[ShardingWords] = Field(default_factory=list, description="homes")
    schedules: list[ScheduleWords] = Field(default_factory=list, description="schedules of pipelines, beside their own names")
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


Said = TypeVar("Said", bound=Called)
Model = TypeVar("Model", ModelWords, ServedWords)


class Refused(Exception):
    """A row that cannot be priced, and why, in words that many rows share."""


class Words:
    """All files of specs/validation as one."""

    def __init__(self, files: Iterable[WordsSpec]) -> None:
        every = list(files)
        self.machines = _table(one for file in every for one in file.machines)
        configs = _table(one for file in every for one in file.configs)
        self.configs = configs | _by_checkpoint(configs)
        self.kinds = _table(one for file in every for one in file.models if one.kind)
        self.models = _table(one for file in every for one in file.models if not one.kind)
        self.models |= {word: one.trained for word, one in configs.items() if word not in self.models}
        self.precisions = _table(one for file in every for one in file.precisions)
        self.recomputes = _table(one for file in every for one in file.recomputes)
        self.expert_kernels = _table(one for file in every for one in file.expert_kernels)
        self.expert_precisions = _table(one for file in every for one in file.expert_precisions)
        self.layers = {name: said for file in every for name, said in file.layers.items()}
        self.layer_models = _table(one for file in every for one in file.layer_models)
        self.ungated = tuple(one for file in every for one in file.ungated)
        self.limited = tuple(one for file in every for one in file.limited)
        self.shardings = _table(one for file in every for one in file.shardings)
        self.schedules = _table(one for file in every for one in file.schedules)
        self.engines = _table(one for file in every for one in file.engines)
        self.served = _table(one for file in every for one in file.served)
        self.served |= {word: one.served for word, one in configs.items() if word not in self.served}
        self._asked: dict[str, ModelWords | None] = {}
        self.trained_checkpoints, self.checkpoints = _by_checkpoint(self.models), _by_checkpoint(self.served)
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
        known = list(dict.fromkeys(text for one in self.attention_kernels for text in one.words))
        meant = _as_measured(word, known)
        named = [one for one in self.attention_kernels if meant in one.words]
        if not named:
            close = nearest(word, known)
            raise Refused(f"no attention kernel called '{word}'" + (f" (nearest: {close})" if close else f"; known: {', '.join(known)}"))
        fitting = (one for one in named if machine in (one.machines or [machine]) and head <= (one.most_head or head))
        found = next(fitting, None)
        if found is None:
            raise Refused(f"'{word}' has no kernel for heads of {head:g} on {machine}")
        return found.kernel

    def of_other_release(self, word: str) -> str:
        """A sentence where the attention kernel of a row's word was measured in another release; ''."""
        meant = _as_measured(word, [text for one in self.attention_kernels for text in one.words])
        return f"'{word}' is priced as '{meant}'" if meant is not None and spelt(meant) != spelt(word) else ""

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
        gpu = said.gpus.get(word.strip(), word.strip())
        if gpu.lower() not in self.machines and _is_file("architecture", gpu):
            machine = MachineWords(words=[gpu], machine=gpu)
        else:
            machine = look_up(self.machines, "GPU", gpu, "gpu")
        return machine.model_copy(update={"set": machine.set | said.set}) if said.set else machine

    def model(self, word: str, *columns: str) -> ModelWords:
        """What rows call a model that is trained, by any name of its checkpoints, or a workload by its name or path. columns: where they
        say it. Raises Refused with the nearest word that is known."""
        return self.known_model(word) or look_up(self.models, "model", word, *columns)

    def known_model(self, word: str) -> ModelWords | None:
        """The same; None for what nothing is called. (Many rows have one word.)"""
        return once(self._asked, word, lambda: self._known_model(word), MOST_ASKED)

    def _known_model(self, word: str) -> ModelWords | None:
        if word.strip().lower() not in self.models and word.strip() and _is_file("workload", word.strip()):
            return ModelWords(words=[word.strip()], workload=word.strip())
        return _of_checkpoint(self.models, self.trained_checkpoints, word) or _known(self.models, word)

    def config(self, word: str) -> ConfigWords | None:
        """The published config of a model, by any name of its checkpoints; None where the library has none."""
        return self.configs.get(word.strip().lower()) or _any_of(self.configs, word)

    def is_kind(self, word: str) -> bool:
        """Whether rows call a kind of models so."""
        return word.strip().lower() in self.kinds or _spelt_alike(self.kinds, word) is not None

    def served_model(self, word: str, *columns: str) -> ServedWords:
        """What rows call a model that is served, by any name of its checkpoints, or a workload by its name or path. columns: where they
        say it. Raises Refused with the nearest word that is known."""
        if word.strip().lower() not in self.served and word.strip() and _is_file("workload", word.strip()):
            return ServedWords(words=[word.strip()], workload=word.strip())
        return _of_checkpoint(self.served, self.checkpoints, word) or look_up(self.served, "served model", word, *columns)


def _is_file(kind: str, word: str) -> bool:
    """Whether a word names a file of the library, or is the path of one."""
    return word in called(kind) or word.endswith(SUFFIXES)


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


def _by_checkpoint(table: Mapping[str, Said]) -> dict[str, Said]:
    """What all checkpoints of a model are called, whatever endings they have, their version with a v or without → the first that is called
    so, of those that are priced before those that are refused."""
    first = sorted(table.items(), key=lambda one: bool(getattr(one[1], "refused", None)))
    return {spelt(name): said for word, said in reversed(first) for left, _ in shorter_names(word) for name in (without_v(left), left)}


def _any_of(checkpoints: Mapping[str, Said], word: str) -> Said | None:
    """The model that a name's checkpoints are of, its version as it is written, else without its v; None."""
    names = (name for left, _ in shorter_names(word) for name in (left, without_v(left)))
    return next((checkpoints[spelt(name)] for name in names if spelt(name) in checkpoints), None)


def _of_checkpoint(table: Mapping[str, Model], checkpoints: Mapping[str, Model], word: str) -> Model | None:
    """The model of a checkpoint that no word names, which is told; None."""
    other = _any_of(checkpoints, word)
    if other is None or word.strip().lower() in table or _spelt_alike(table, word) is not None:
        return None
    return other.told(f"'{word.strip()}' is priced as a checkpoint of {other.words[0]}")


def _as_measured(word: str, known: Sequence[str]) -> str | None:
    """Of words for kernels, the one that a row's word is in another spelling or another release; None."""
    return next((text for text in known if spelt(text) == spelt(word)), None) or _of_release(word, known)


def _of_release(word: str, known: Iterable[str]) -> str | None:
    """Of words with a release in them ('VLLM 0.14.0 MLA'), the one of the newest release that is no newer, else the oldest; None."""
    found = RELEASE.fullmatch(word)
    if found is None:
        return None
    parts = [(RELEASE.fullmatch(text), text) for text in known]
    same = {other[2]: text for other, text in parts if other is not None and spelt(other[1] + other[3]) == spelt(found[1] + found[3])}
    return same.get(release_before(list(same), found[2]) or "")


def _known(table: Mapping[str, Said], word: str) -> Said | None:
    return table.get(word.strip().lower()) or _spelt_alike(table, word)


def look_up(table: Mapping[str, Said], what: str, word: str, *columns: str) -> Said:
    """What a word means, as it is known or, where it is not, in another spelling (ZeRO-1, zero1). columns: where a row says it. Raises
    Refused with the nearest word that is known."""
    found = _known(table, word)
    if found is None and not word.strip():
        raise Refused(f"no {what} is said" + (f" (column {' or '.join(columns)})" if columns else ""))
    if found is None:
        close = nearest_name(word.strip().lower(), table)
        known = dict.fromkeys(said.words[0] for said in table.values() if not getattr(said, "refused", None))
        hint = f"; known: {', '.join(known)}" if len(known) <= MOST_KNOWN else f"; {INSTEAD[what]}" if what in INSTEAD and not close else ""
        raise Refused(f"no {what} called '{word}'" + (f" (nearest: {close})" if close else "") + hint)
    return found


@cache
def words() -> Words:
    """What the library says."""
    return Words(build(WordsSpec, load("validation", name)) for name in names("validation"))
