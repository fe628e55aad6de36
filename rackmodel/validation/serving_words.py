"""What the words of serving rows mean: engines, models, formats, benchmarks and settings: the schema of specs/validation/serving.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any, Self

from pydantic import Field, PositiveInt, model_validator

from rackmodel.model.schema import Spec
from rackmodel.serving.steps import Deployment
from rackmodel.validation.kernel_words import Called
from rackmodel.validation.model_names import name_and_format

EXPERTS = "x"
"""Size of decoders of the library: experts of a layer."""


class EngineWords(Called):
    """A serving engine."""

    profile: str = Field(description="profile of the library")


class BenchmarkedWords(Called):
    """A model of a benchmark of servers that submitters tune, and the lengths of its requests."""

    workload: str = Field(default="", description="workload of the library: a decoder's step")
    prompt: float = Field(default=1.0, description="mean tokens of a prompt")
    output: float = Field(default=1.0, description="mean tokens of an output, where a row does not say them")
    weights: str = Field(default="fp8", description="format of the weights, where a row does not say it")
    cache: str = Field(default="fp8", description="format of the caches")
    refused: str | None = Field(default=None, description="why its rows cannot be priced")


class ToldWords(Called):
    """What rows call a model."""

    words: list[str] = Field(description="what rows call the model")

    def told(self, said: str) -> Self:
        """The same with another sentence of what was assumed."""
        return self.model_copy(update={"note": f"{self.note}; {said}" if self.note else said})


class ServedWords(ToldWords):
    """A model as it is served."""

    workload: str = Field(default="", description="workload of the library: a decoder's step")
    sizes: dict[str, int | str] = Field(default_factory=dict, description="its sizes")
    formats: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="a row's `precision` → widths of the workload's, where the format alone does not say them; of tensors by name",
    )
    released: str = Field(default="", description="format of its weights, where no row and no name says one; '' 16 bit")
    refused: str | None = Field(default=None, description="why it cannot be priced")

    def with_experts(self, count: int | None) -> ServedWords:
        """The same with so many experts in a layer; as it is where none is said."""
        return self if count is None else self.model_copy(update={"sizes": {**self.sizes, EXPERTS: count}})


class FormatWords(Called):
    """Widths of a model in a quantised format."""

    set: dict[str, str] = Field(default_factory=dict, description="of the workload's `precision`")


class BenchmarkWords(Spec):
    """How a benchmark made its requests."""

    origin: list[str] = Field(description="what its rows' column `origin` holds; '' in any")
    longest: bool = Field(default=False, description="whether a row's lengths are the longest ones, not the mean ones")
    least: float = Field(default=1.0, description="shortest length over the longest; lengths are even between them")
    variation: float | None = Field(default=None, description="standard deviation of lengths over their mean; absent = of even ones")
    requests: dict[str, int] = Field(
        default_factory=dict, description="prompt/output, tokens → requests of a run that are all there when it begins"
    )
    waves: float = Field(default=1e9, description="prompts that each client sends, one after the other; all send their first ones at once")
    own: bool = Field(
        default=False, description="whether servers were started by scripts of its own: settings of a model that name no origin are others'"
    )

    def requests_of(self, prompt: float, output: float) -> int | None:
        """Requests of a run of such lengths; None where nothing says it."""
        return self.requests.get(f"{prompt:g}/{output:g}")

    @property
    def mean(self) -> float:
        """Mean length over a row's."""
        return (1.0 + self.least) / 2.0 if self.longest else 1.0

    @property
    def spread(self) -> float:
        """Standard deviation of lengths over their mean."""
        even = (1.0 - self.least) / (1.0 + self.least) / 3.0**0.5
        return even if self.variation is None else self.variation


class RankWords(Spec):
    """How a server of single requests dealt them and the experts to its accelerators, where rows say its tensor degree alone."""

    gpus: list[str] = Field(default_factory=list, description="what rows call the machine")
    models: list[str] = Field(default_factory=list, description="what rows call the model")
    attention_data: PositiveInt = Field(default=1, description="ranks that each have requests of their own")
    expert: bool = Field(default=False, description="whether experts are dealt to all accelerators, whole; else each has a part of all")

    def fits(self, gpu: str, model: str) -> bool:
        """Whether it is of such a server."""
        return gpu in self.gpus and model in self.models

    def deployment(self, tensor: int) -> Deployment:
        """Degrees of the server. tensor: of a rank."""
        every = tensor * self.attention_data
        experts = {"expert": every} if self.expert else {"expert_tensor": every}
        return Deployment(tensor=tensor, attention_data=self.attention_data, **experts)


class SettingWords(Spec):
    """Settings with which a server ran."""

    when: dict[str, list[str | int]] = Field(
        description="of a row: engine, version, day (it was measured on), model (any checkpoint of it), system, precision, prompt, output, "
        "accelerators, concurrency, origin ('' = any, of benchmarks with scripts of their own, too), attention (data or tensor "
        "parallel), expert (degree of expert parallelism), role (of a server: together, or a worker of a pool of prompts or of decodes; "
        "absent = together)"
    )
    set: dict[str, str | float | dict[int, int]] = Field(
        default_factory=dict,
        description="facts of the profile's `engine`, its `experts` and `attention_kernel`, `reductions` (the library whose all-reduce "
        "goes on with the norm after it; none: none does; nccl: nor do these, which are NCCL's), "
        "`exchange` (whose kernels send tokens to their experts), `attended` (1: "
        "attention quantises what it writes), `written` (0: norms and activations do not), `apart` (tensors whose "
        "products run alone), kv_cache and product of `precision`, SC (the state of a gated delta rule), `expert` (the degree of expert "
        "parallelism that ran, whatever a row says), "
        "`drafted` tokens a step: a number, a word, or made of prompt, output, concurrency, ranks (of attention data), tensor (degree)",
    )
    longer: float = Field(
        default=1.0, gt=0, description="prompt tokens that such a server counts over those that the row says, of servers that do both"
    )
    refused: str | None = Field(default=None, description="why such a row cannot be priced")

    @model_validator(mode="after")
    def _of_both(self) -> Self:
        if self.longer != 1.0 and "role" in self.when:
            raise ValueError("`longer` is of servers that take prompts and decodes together: name no role")
        return self

    def fits(self, facts: Mapping[str, str]) -> bool:
        """Whether it is of a run. A model is any checkpoint of it; of runs whose servers had scripts of their own, what names a model
        names an origin, too."""
        if facts.get("own") and "model" in self.when and "origin" not in self.when:
            return False
        return all(self._allows(name, facts[name].lower(), allowed) for name, allowed in self._asked)

    @cached_property
    def _asked(self) -> list[tuple[str, list[str]]]:
        """Facts that it asks for, and what each may be."""
        asked: dict[str, list[str | int]] = {"role": ["together"], **self.when}
        by_use = sorted(asked.items(), key=lambda pair: pair[0] != "model")  # few are of a row's model
        return [(name, [_as_asked(name, str(one)) for one in allowed]) for name, allowed in by_use]

    @staticmethod
    def _allows(name: str, said: str, allowed: list[str]) -> bool:
        """Whether a fact is one of those; an origin holds one of them, as that of a benchmark does."""
        return any(one in said for one in allowed) if name == "origin" else said in allowed


def _as_asked(name: str, said: str) -> str:
    """A fact as it is compared: of a model what all its checkpoints are called."""
    return name_and_format(said)[0] if name == "model" else said.lower()


def refusal_of(settings: list[SettingWords], facts: Mapping[str, str]) -> str | None:
    """Why a row cannot be priced, where some setting says so."""
    return next((one.refused for one in settings if one.refused and one.fits(facts)), None)


def settings_of(settings: list[SettingWords], facts: Mapping[str, str]) -> dict[str, Any]:
    """What all settings that fit say together; a later one replaces an earlier one's."""
    found: dict[str, Any] = {}
    for one in settings:
        if one.fits(facts):
            found |= one.set
    return found


def longer_by(settings: list[SettingWords], facts: Mapping[str, str]) -> float:
    """Prompt tokens that the server counts over those that a row says."""
    return prod(one.longer for one in settings if one.longer != 1.0 and one.fits(facts))
