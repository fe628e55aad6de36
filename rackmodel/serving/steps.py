"""What a serving engine runs: steps, each of some decodes and some prompt tokens, and what their prices are made of.

Everything is in arrays over n steps, so that all the steps a schedule may take are priced at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InputError

DEGREES = ("tensor", "pipeline", "attention_data", "expert", "expert_tensor", "context", "prompt_context")
STEP_FIELDS = ("decodes", "new", "context", "prefill", "prompts", "before", "mesh")
AMOUNTS = ("amount", "joules", "seconds", "exposed_seconds")
"""Of a charge, that are arrays over the steps."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """n steps of one replica, all its attention-data-parallel ranks together. Each field is [n].

    decodes: tokens of sequences that decode · new: of each of these, one, and those drafted · context: mean tokens in their caches ·
    prefill: new prompt tokens ·
    prompts: prompts that these belong to (chunks of them) · before: mean tokens of those prompts already in the cache · mesh: which of a
    model's deployments runs it.
    """

    decodes: Array
    new: Array
    context: Array
    prefill: Array
    prompts: Array
    before: Array
    mesh: Array

    @classmethod
    def of(
        cls,
        *,
        decodes: Any = 0.0,
        new: Any = 1.0,
        context: Any = 0.0,
        prefill: Any = 0.0,
        prompts: Any = 0.0,
        before: Any = 0.0,
        mesh: Any = 0.0,
    ) -> Steps:
        """Steps of numbers or arrays that broadcast."""
        fields = (decodes, new, context, prefill, prompts, before, mesh)
        said = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in fields))
        return cls(**dict(zip(STEP_FIELDS, said, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Several sets of steps, one after another."""
        return cls(**{name: np.concatenate([getattr(one, name) for one in parts]) for name in STEP_FIELDS})

    def at(self, chosen: Any) -> Steps:
        """Some of them."""
        return Steps(**{name: getattr(self, name)[chosen] for name in STEP_FIELDS})

    def same(self, other: Steps) -> bool:
        """Whether they are these very steps."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in STEP_FIELDS)

    def __len__(self) -> int:
        return len(self.decodes)

    @property
    def sequences(self) -> Array:
        """[n] that decode."""
        return self.decodes / self.new

    @property
    def tokens(self) -> Array:
        """[n] tokens that the linear layers take."""
        return self.decodes + self.prefill


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """Prices of n steps: seconds [n], joules [n] of all accelerators, and the ledger, arrays over the steps, that they are sums of."""

    seconds: Array
    joules: Array
    ledger: Ledger

    def at(self, own: slice) -> StepFigures:
        """Those of some of the steps."""

        def charge(row: Charge) -> Charge:
            figures = {name: getattr(row, name) for name in AMOUNTS}
            some = {name: figure[own] if isinstance(figure, np.ndarray) and figure.size > 1 else figure for name, figure in figures.items()}
            return Charge(row.phase, row.einsum, row.tensor, row.level, row.component, row.action, unit=row.unit, **some)

        return StepFigures(seconds=self.seconds[own], joules=self.joules[own], ledger=Ledger(tuple(map(charge, self.ledger.rows))))


def joined_figures(parts: Sequence[tuple[Bools, StepFigures]]) -> StepFigures:
    """Figures of n steps from those of parts of them, each with which [n] it has."""
    seconds, joules = (np.zeros(len(parts[0][0])) for _ in range(2))
    charges: list[Charge] = []
    for chosen, figures in parts:
        seconds[chosen], joules[chosen] = figures.seconds, figures.joules
        charges += [_spread(row, chosen) for row in figures.ledger.rows]
    return StepFigures(seconds=seconds, joules=joules, ledger=Ledger(tuple(charges)))


def _spread(row: Charge, chosen: Bools) -> Charge:
    """A charge of some of the steps as one of all."""
    found = {}
    for name in AMOUNTS:
        figure = np.zeros(len(chosen))
        figure[chosen] = getattr(row, name)
        found[name] = figure
    return Charge(row.phase, row.einsum, row.tensor, row.level, row.component, row.action, unit=row.unit, **found)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Degrees of one replica: tensor x pipeline x attention_data x prompt_context accelerators.

    context: so many neighbours of each tensor group keep different tokens of the caches that they would all keep else.
    prompt_context: so many tensor groups share out the new tokens of each prompt; decodes run on all of them alike.
    expert, expert_tensor: how the experts of a mixture are split over one stage's accelerators: by expert, and inside an expert. Both 1
    with several accelerators is short for expert_tensor = all of them.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert: int = 1
    expert_tensor: int = 1
    context: int = 1
    prompt_context: int = 1

    def __post_init__(self) -> None:
        for name in DEGREES:
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)} must be at least 1", path=f"deployment.{name}")
        if self.tensor % self.context:
            fact = f"{self.context} ranks of context do not divide {self.tensor} of tensor parallelism, whose part they are"
            raise InputError(fact, path="deployment.context")
        if self.context > 1 and self.prompt_context > 1:
            fact = "ranks that keep different tokens of the caches (context) do not share out prompts' new tokens, too"
            raise InputError(fact, path="deployment.prompt_context")
        if self.expert * self.expert_tensor not in (1, self.stage):
            fact = f"experts are split {self.expert} x {self.expert_tensor} ways over {self.stage} accelerators"
            raise InputError(f"{fact}: expert x expert_tensor must be all of a stage", path="deployment.expert")

    @property
    def stage(self) -> int:
        """Accelerators of one pipeline stage."""
        return self.tensor * self.attention_data * self.prompt_context

    @property
    def accelerators(self) -> int:
        """Accelerators of the replica."""
        return self.stage * self.pipeline


class Served(Protocol):
    """What the laws of serving ask of a model on a machine (ServedModel is one). Bytes are of one accelerator, the fullest."""

    @property
    def weights_each(self) -> Array:
        """Its share of the weights, of every deployment."""
        ...

    @property
    def kv_each(self) -> Array:
        """Its share of a token in the caches, in the mean over the sequences it keeps, of every deployment."""
        ...

    def held_each(self, tokens: Array) -> Array:
        """[deployments, n] its share of the caches of a sequence of so many tokens [n]: windows and states among them."""
        ...

    @property
    def capacity_bytes(self) -> float:
        """Its memory, less what the engine reserves."""
        ...

    @property
    def stages_each(self) -> Array:
        """Pipeline stages of every deployment."""
        ...

    def price(self, steps: Steps) -> StepFigures:
        """Seconds, joules and ledger of n steps at once."""
        ...

    def waiting(self, seconds: Array, mesh: Array) -> list[Charge]:
        """Charges of accelerators that wait so many seconds [n] for the host between two steps. mesh: [n] deployments."""
        ...

    def idling(self, seconds: Array, mesh: Array) -> list[Charge]:
        """Charges of what they draw above static power while they wait so many seconds [n], between steps or within one."""
        ...
