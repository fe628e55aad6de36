"""Pools that published serving rows ran on, where the rows do not say their workers: the schema of specs/validation/pools.yaml.

A row fits a plan where its clients are the plan's and its accelerators, if it names them, are those of all workers; else where its degrees
are those of a worker, the accelerators of all pools, or 1 (what sources wrote into these columns). Of several that fit, those whose experts
are dealt out as the row says. A row whose clients no plan lists is that of the plans with its accelerators, where it names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, field_validator

from rackmodel.model.schema import Spec
from rackmodel.serving.steps import Deployment
from rackmodel.validation.rows import PublishedRow

WORKERS = re.compile(r"(\d+) x (tp|tep|dep|dp)(\d+)$")
KEY = {"model": "model_path", "system": "system", "engine": "backend", "precision": "precision"}


class AcceptanceWords(Spec):
    """How probably a drafted token is kept where all before it were."""

    drafts: int = Field(description="tokens drafted a step")
    low: float = Field(description="the least it may be")
    mid: float = Field(description="what predictions are made with")
    high: float = Field(description="the most it may be")


@dataclass(frozen=True)
class PublishedWorkers:
    """Workers of one pool that are alike."""

    count: int
    deployment: Deployment

    @property
    def accelerators(self) -> int:
        """Of all of them."""
        return self.count * self.deployment.accelerators

    @classmethod
    def read(cls, text: str) -> PublishedWorkers:
        """'2 x dep8' and the like. Raises ValueError."""
        found = WORKERS.match(text)
        if found is None:
            raise ValueError(f"'{text}' are no workers: want such as '2 x dep8', of tp, tep, dep or dp")
        kind, n = found[2], int(found[3])
        dealt = kind in ("tep", "dep")
        split = {"attention_data": n} if kind in ("dep", "dp") else {"tensor": n}
        return cls(int(found[1]), Deployment(**split, expert=n if dealt else 1, expert_tensor=1 if dealt else n))


class PlanWords(Spec):
    """Workers of both pools."""

    clients: list[int] = Field(description="concurrencies that ran on it")
    prompts: str = Field(description="workers of the pool of prompts: '1 x dep4'")
    decodes: str = Field(description="workers of the pool of decodes")
    drafts: int = Field(default=0, description="tokens drafted a step and sequence")
    batch: int | None = Field(default=None, description="most sequences of a decode worker's rank")
    experts: int | None = Field(default=None, description="copies of experts on the ranks of decodes, where some are kept twice")

    @field_validator("prompts", "decodes")
    @classmethod
    def _workers(cls, text: str) -> str:
        PublishedWorkers.read(text)
        return text

    @property
    def pools(self) -> tuple[PublishedWorkers, PublishedWorkers]:
        """Of prompts, and of decodes."""
        return PublishedWorkers.read(self.prompts), PublishedWorkers.read(self.decodes)

    @property
    def accelerators(self) -> int:
        """Of all workers."""
        return sum(pool.accelerators for pool in self.pools)

    def agrees(self, row: PublishedRow) -> bool:
        """Whether what a row says of its accelerators, or of a worker's degrees, is so here."""
        if row.number("n_gpus"):
            return self.is_named(row)
        own = tuple(pool.deployment.accelerators for pool in self.pools)
        return _degrees(row) in (own, (1, 1)) or self.is_named(row)

    def is_named(self, row: PublishedRow) -> bool:
        """Whether a row names the accelerators of all its workers."""
        return self.accelerators == row.number("n_gpus") or _degrees(row) == (self.accelerators, self.accelerators)

    def deals_as(self, row: PublishedRow) -> bool:
        """Whether the experts of prompts are dealt out as a row says."""
        return row.number("prefill_moe_ep_size") == self.pools[0].deployment.expert


class PooledWords(Spec):
    """Plans of one model on one machine, for one pair of lengths."""

    model: list[str] = Field(description="what rows call the model")
    system: str = Field(description="what rows call the GPU")
    engine: str = Field(description="of its workers")
    precision: str = Field(description="of its weights")
    prompt: int = Field(description="tokens")
    output: int = Field(description="tokens")
    prompt_tokens: float | None = Field(default=None, description="most tokens of a step of a worker of prompts")
    plans: list[PlanWords] = Field(description="what ran")

    def fits(self, row: PublishedRow) -> bool:
        """Whether a row is of this model, machine and lengths."""
        said = {name: row.text(column) for name, column in KEY.items()}
        lengths = (row.number("isl"), row.number("osl")) == (self.prompt, self.output)
        return lengths and said.pop("model") in self.model and all(getattr(self, name) == word for name, word in said.items())


@dataclass(frozen=True)
class PlannedPools:
    """A plan that a row may have run on. prompt_tokens: most tokens of a step of a worker of prompts."""

    plan: PlanWords
    prompt_tokens: float | None


def planned_pools(runs: Sequence[PooledWords], row: PublishedRow) -> list[PlannedPools]:
    """The plans that fit a row; several where what it says does not tell them apart."""
    known = [PlannedPools(plan, run.prompt_tokens) for run in runs if run.fits(row) for plan in run.plans]
    agreeing = [one for one in known if one.plan.agrees(row)]
    listed = [one for one in agreeing if row.number("concurrency") in one.plan.clients]
    found = listed or [one for one in agreeing if one.plan.is_named(row)]
    return [one for one in found if one.plan.deals_as(row)] or found


def _degrees(row: PublishedRow) -> tuple[int, ...]:
    """What a row calls the degrees of a worker of prompts and of one of decodes."""
    return tuple(int(row.number(f"{pool}_tp_size") or 1) for pool in ("prefill", "decode"))
