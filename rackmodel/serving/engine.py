"""A served model under a serving engine: its prices with what the engine's host adds, its cache, and its schedule.

Steps that were captured as graphs need no host; in others a layer lasts at least as long as the host takes to launch it (rule 8 of the
clock), so that the model is given twice. Between steps the host schedules, prepares inputs and hands out tokens, for each sequence:

    t = max(t(step), c n / ranks) + e n / ranks + h      steps are scheduled ahead: c of n sequences runs beside the step before
    t = t(step) + (c + e) n / ranks + h                  they are not: the accelerators wait
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.profile import Engine, ProfileSpec
from rackmodel.serving.drafts import DraftedModel
from rackmodel.serving.requests import Requests, Schedule, asked_whole, estimating, lengths_held, most_sequences
from rackmodel.serving.served_model import ServedModel, without_launches
from rackmodel.serving.steps import Served, StepFigures, Steps, joined_figures
from rackmodel.units import bytes_text

ENGINES = ("vllm", "trtllm", "sglang", "wafer", "lpu")  # profiles of the library that are one


@dataclass(frozen=True, kw_only=True)
class ServingEngine:
    """captured, launched: the model with steps as graphs, and launched by the host · facts: of the engine · ranks: of attention data
    parallelism · ahead: sets of steps that were priced before who asks for them, each with its figures."""

    captured: Served
    launched: Served
    facts: Engine
    ranks: int = 1
    ahead: tuple[tuple[Steps, StepFigures], ...] = field(default=(), compare=False, repr=False)

    @property
    def kv_each(self) -> Array:
        """As the model says."""
        return self.captured.kv_each

    def held_each(self, tokens: Array) -> Array:
        """As the model says."""
        return self.captured.held_each(tokens)

    @property
    def weights_each(self) -> Array:
        """As the model says."""
        return self.captured.weights_each

    @property
    def stages_each(self) -> Array:
        """As the model says."""
        return self.captured.stages_each

    @property
    def kv_bytes_per_token(self) -> float:
        """Of its first deployment."""
        return float(self.kv_each[0])

    @property
    def capacity_bytes(self) -> float:
        """Bytes of an accelerator that the engine takes, less what is neither weights nor caches."""
        share = 1.0 if self.facts.memory_share_of == "free" else self.facts.memory_share
        return self.captured.capacity_bytes * share - self.facts.reserved_bytes

    @property
    def cache_bytes(self) -> float:
        """Bytes of an accelerator for caches, of its first deployment. Raises InfeasibleError where the weights leave none."""
        return float(self.caches(np.zeros(1))[0])

    def caches(self, mesh: Array) -> Array:
        """[n] bytes of an accelerator for caches, of some deployments. Raises InfeasibleError where the weights leave one none."""
        weights = self.weights_each[mesh.astype(np.int64)]
        free = self.capacity_bytes - weights
        if np.any(free <= 0):
            need, have = float(weights.max()), max(self.capacity_bytes, 0.0)
            taken = (
                f"they take {bytes_text(need)} of an accelerator, whose engine has {bytes_text(have)}; short by {bytes_text(need - have)}"
            )
            fact = f"the weights leave no room for a cache: {taken}"
            raise InfeasibleError(fact, resource="memory", need=need, have=have, unit="byte")
        return np.asarray(free * self.facts.memory_share if self.facts.memory_share_of == "free" else free)

    def room(self, requests: Requests, schedule: Schedule) -> Array:
        """[n] requests that are held at once."""
        lengths = lengths_held(requests, schedule)
        held = self.held(lengths.ravel(), np.broadcast_to(schedule.mesh, lengths.shape).ravel()).reshape(lengths.shape)
        kept = np.where(estimating(schedule), self.held(asked_whole(requests, schedule), schedule.mesh), 0.0)
        return most_sequences(np.maximum(self.caches(schedule.mesh) - kept, 0.0), held.mean(axis=0), schedule)

    def held(self, tokens: Array, mesh: Array) -> Array:
        """[n] bytes that a request of so many tokens [n] keeps on an accelerator, of some deployments [n]."""
        each, which = np.unique(tokens, return_inverse=True)
        return np.asarray(self.held_each(each)[mesh.astype(np.int64), which])

    def check_one_fits(self, tokens: float, mesh: int = 0) -> None:
        """Raise InfeasibleError where the caches of a deployment cannot hold one request of so many tokens, which engines refuse."""
        caches = float(self.caches(np.array([mesh]))[0])
        need = float(self.held(np.array([tokens]), np.array([mesh]))[0])
        if need > caches:
            most = self._most_tokens(caches, tokens, mesh)
            raise InfeasibleError(
                f"memory: a request of {tokens:,.0f} tokens keeps {bytes_text(need)} on an accelerator, whose caches have "
                f"{bytes_text(caches)}: room for {most:,} tokens",
                resource="memory",
                need=need,
                have=caches,
                unit="byte",
            )

    def _most_tokens(self, caches: float, tokens: float, mesh: int) -> int:
        """Tokens, fewer than some, of the longest request that caches of so many bytes hold."""
        low, high = 0, int(tokens)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.held_each(np.array([float(middle)]))[mesh, 0] <= caches
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    @property
    def schedule(self) -> Schedule:
        """Of one operating point of its first deployment."""
        return self.scheduled(1)

    def scheduled(self, count: int, settings: Mapping[str, Any] | None = None) -> Schedule:
        """The schedule of n operating points. settings: facts of a run that replace the engine's, numbers or [n] (schedule_of)."""
        own = dict(settings or {})
        stages = self.stages_each[np.asarray(own.get("mesh", 0), dtype=np.int64)]
        return schedule_of(self.facts, count, self.ranks, own | {"stages": stages})

    @property
    def cache_tokens(self) -> float:
        """Tokens that the caches of the replica hold, each as large as one more of a long sequence (held_tokens counts so too)."""
        return self.cache_bytes / self._token_bytes

    def held_tokens(self, tokens: Array) -> Array:
        """[n] of such tokens that requests of so many [n] keep: more than these where windows or states are kept besides."""
        besides = self.held(tokens, np.zeros(len(tokens))) - self.kv_bytes_per_token * tokens
        return np.asarray((tokens if self.kv_bytes_per_token else 0.0) + besides / self._token_bytes)

    @property
    def _token_bytes(self) -> float:
        """Of one more token of a long sequence; where it takes nothing, one."""
        return self.kv_bytes_per_token or 1.0

    def price(self, steps: Steps) -> StepFigures:
        """Seconds, joules and ledger of n steps."""
        for known, figures in self.ahead:
            if known.same(steps):
                return figures
        run, captured = self.as_run(steps)
        if isinstance(self.launched, ServedModel | DraftedModel):  # the host's times of their steps are columns
            figures = self.launched.price(run, captured)
        else:
            figures = self._apart(run, captured)
        return self.with_host(figures, steps)

    def as_run(self, steps: Steps) -> tuple[Steps, Bools]:
        """Steps as the model runs them, and [n] whether as graphs. What is captured, or padded, is a batch: of a pipeline one for each
        stage."""
        stages = self.stages_each[steps.mesh.astype(np.int64)]
        as_graph = np.where(
            steps.prefill > 0,
            steps.tokens <= self.facts.graph_tokens * stages,
            steps.decodes / self._each(steps.new) <= self.facts.graph_sequences * self.ranks * stages,
        )
        return self._padded(steps, as_graph), as_graph

    def with_host(self, figures: StepFigures, steps: Steps) -> StepFigures:
        """The model's figures of n steps with what the host adds."""
        return self._with_host(figures, self._waits(figures.seconds, steps.sequences + steps.prompts), steps.mesh)

    def _each(self, new: Array) -> Array:
        """[n] tokens of what captured graphs count: of a sequence, so many that are `new` in a step, or one."""
        return new if self.facts.graphs_of == "sequence" else np.ones_like(new)

    @property
    def graph_sequences(self) -> float:
        """Most decodes of a batch, all ranks together, that is launched as a graph: sequences, or tokens of them."""
        return float(self.facts.graph_sequences * self.ranks)

    def waiting(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model says."""
        return self.captured.waiting(seconds, mesh)

    def idling(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model says."""
        return self.captured.idling(seconds, mesh)

    def _waits(self, seconds: Array, sequences: Array) -> Array:
        """[n] seconds of steps that wait for the host: for all of its work, or where steps are scheduled ahead for what outlasts theirs."""
        each = sequences / self.ranks
        work = self.facts.sequence_s * each
        late = np.maximum(work - seconds, 0.0) if self.facts.ahead else work
        return np.asarray(self.facts.step_s + self.facts.exposed_s * each + late)

    def _with_host(self, figures: StepFigures, waits: Array, mesh: Array) -> StepFigures:
        """The same with what waits between steps add."""
        if not np.any(waits > 0):
            return figures
        rows = [*self.waiting(waits, mesh), *self.idling(waits, mesh)]
        joules = figures.joules + sum((row.joules for row in rows), np.zeros_like(waits))
        return StepFigures(seconds=figures.seconds + waits, joules=joules, ledger=Ledger((*figures.ledger.rows, *rows)))

    def _padded(self, steps: Steps, as_graph: Bools) -> Steps:
        """Steps of decodes alone as their graphs were captured: a rank has as many rows as the next size, and reads no further cache. Of a
        mean between two whole numbers of sequences some steps have either's."""
        if not self.facts.padding:
            return steps
        there = steps.decodes / steps.new
        few = np.floor(there + 1e-9)
        more = np.clip(there - few, 0.0, 1.0)
        captured = (1.0 - more) * self._captured(steps, few) + more * self._captured(steps, few + 1.0)
        decodes = np.where(as_graph & (steps.prefill <= 0) & (captured > steps.decodes), captured, steps.decodes)
        scale = np.divide(steps.decodes, decodes, out=np.ones_like(decodes), where=decodes > 0)
        return replace(steps, decodes=decodes, context=steps.context * scale)

    def _captured(self, steps: Steps, sequences: Array) -> Array:
        """[n] decodes of the graph that holds so many sequences [n]."""
        parts = self.ranks * self.stages_each[steps.mesh.astype(np.int64)]
        each = self._each(steps.new)
        rows = np.ceil(sequences * steps.new / each / parts - 1e-9)
        limits = sorted(self.facts.padding)
        multiples = np.array([self.facts.padding[one] for one in limits])
        multiple = multiples[np.minimum(np.searchsorted(limits, rows), len(limits) - 1)]
        size = np.minimum(np.ceil(rows / multiple) * multiple, self.facts.graph_sequences) * each
        return np.asarray(np.ceil(size / steps.new - 1e-9) * steps.new * parts)  # of whole sequences

    def _apart(self, steps: Steps, as_graph: Bools) -> StepFigures:
        """Of any two models."""
        ways = (self.captured, as_graph), (self.launched, ~as_graph)
        return joined_figures([(chosen, model.price(steps.at(chosen))) for model, chosen in ways if chosen.any()])


def engine_facts(profile: ProfileSpec) -> Engine:
    """What a profile says of its engine. Raises InputError where it is no serving engine's."""
    if profile.engine is None:
        raise InputError(f"profile '{profile.name}' is no serving engine: it has no `engine`", path="engine", known=ENGINES)
    return profile.engine


def serving_engine(make: Callable[[ProfileSpec], Served], profile: ProfileSpec, ranks: int = 1, **said: Any) -> ServingEngine:
    """The engine of a profile around a model. make: the model under a profile · said: facts that a deployment's settings change.

    Raises InputError where the profile is no serving engine's.
    """
    facts = engine_facts(profile)
    free, launched = without_launches(profile), make(profile)
    captured = launched.under(free) if isinstance(launched, ServedModel | DraftedModel) else make(free)
    facts = facts.on(launched.capacity_bytes).model_copy(update=said)
    return ServingEngine(captured=captured, launched=launched, facts=facts, ranks=ranks)


def model_of(engine: ServingEngine) -> ServedModel:
    """The served model of an engine, without what drafts for it."""
    model = engine.captured
    if isinstance(model, DraftedModel):
        return model.target
    assert isinstance(model, ServedModel)
    return model


def schedule_of(facts: Engine, count: int, ranks: int = 1, settings: Mapping[str, Any] | None = None) -> Schedule:
    """The schedule of n operating points. settings: facts of a run that replace the engine's, numbers or [n]; `sequences` and
    `token_budget` of what the engine's are of."""
    own = {
        "token_budget": facts.token_budget,
        "sequences": facts.sequences,
        "mixed": float(facts.steps == "mixed"),
        "chunked": float(facts.chunked),
        "ahead": facts.ahead,
        "held": facts.held,
        "held_until": facts.held_until,
        "polled": facts.polled,
        "reserves": float(facts.reserves),
        "evicts": float(facts.evicts),
        "estimates": float(facts.estimates),
        "asks_first": float(facts.asks_first),
        "first_again": float(facts.first_again),
        "request_s": facts.request_s,
        "tokenize_s": facts.tokenize_s,
        "ranks": ranks,
    }
    found = own | dict(settings or {})
    if facts.sequences_of == "rank":
        found["sequences"] = found["sequences"] * ranks
    if facts.budget_of == "replica":
        found["token_budget"] = np.maximum(found["token_budget"] // ranks, 1)
    return Schedule.of(count, **found)
