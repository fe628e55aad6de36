"""A model and what drafts for it: a step is K steps of the draft, one token after the other, and one of the model on all of them.

    t = K t'(b, c) + t(b (1 + K), c)                                a model drafts: b sequences of context c; prompts go through both
    t = t'(b (1 + K), c) + (K - 1) t'(b, c) + t(b (1 + K), c)       the model's own module does: it goes on from what the model made of
                                                                    every token of its step, prompts among them
    tokens a sequence gets a step: 1 + p + ... + p^K (requests.py)

Steps say drafted tokens as further ones of a sequence: b (1 + K) decodes, 1 + K of each (Steps.new).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import AMOUNTS, Array, StepFigures, Steps


@dataclass(frozen=True, kw_only=True)
class DraftedModel:
    """Both on the same accelerators. count: tokens drafted a step and sequence · own: whether the draft is the model's own module, which
    goes on from its last layer. Source: vllm-project/vllm 008603a, v1/spec_decode/eagle.py, propose; TensorRT-LLM's "MTP Eagle" (its
    tech_blog2) reads the accepted tokens alone in its first pass."""

    target: ServedModel
    draft: ServedModel
    count: int
    own: bool = False

    @property
    def weights_each(self) -> Array:
        """Of both, on the fullest accelerator of each."""
        return self.target.weights_each + self.draft.weights_each

    @property
    def kv_each(self) -> Array:
        """Of both caches."""
        return self.target.kv_each + self.draft.kv_each

    def held_each(self, tokens: Array) -> Array:
        """[deployments, n] bytes of both caches of a sequence of so many tokens."""
        return self.target.held_each(tokens) + self.draft.held_each(tokens)

    @property
    def stages_each(self) -> Array:
        """Of the model that it drafts for."""
        return self.target.stages_each

    @property
    def capacity_bytes(self) -> float:
        """Bytes of an accelerator's memory."""
        return self.target.capacity_bytes

    def price(self, steps: Steps) -> StepFigures:
        """Seconds, joules and ledger of n steps."""
        none, one = np.zeros(len(steps)), np.ones(len(steps))
        drafting = replace(steps, decodes=steps.sequences, new=one, prefill=none, prompts=none, before=none)
        again = float(self.count - self.own)
        figures = [self.target.price(steps)]
        if self.own:
            figures.append(self.draft.price(steps))
        if again:
            figures.append(_times(self.draft.price(drafting), np.where(steps.decodes > 0, again, 0.0)))
        if np.any(steps.prefill > 0) and not self.own:
            prompts = replace(steps, decodes=none, new=one, context=none)
            figures.append(_times(self.draft.price(prompts), np.where(steps.prefill > 0, 1.0, 0.0)))
        return StepFigures(
            seconds=np.asarray(sum(one.seconds for one in figures)),
            joules=np.asarray(sum(one.joules for one in figures)),
            ledger=Ledger(tuple(row for one in figures for row in one.ledger.rows)),
        )

    def waiting(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model that it drafts for says: both are on the same accelerators."""
        return self.target.waiting(seconds, mesh)

    def idling(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model that it drafts for says."""
        return self.target.idling(seconds, mesh)


def _times(figures: StepFigures, by: np.ndarray) -> StepFigures:
    """The figures of so many [n] steps."""
    rows = tuple(replace(row, **{name: getattr(row, name) * by for name in AMOUNTS}) for row in figures.ledger.rows)
    return StepFigures(seconds=figures.seconds * by, joules=figures.joules * by, ledger=Ledger(rows))


def model_of(engine: ServingEngine) -> ServedModel:
    """The served model of an engine, without what drafts for it."""
    model = engine.captured
    if isinstance(model, DraftedModel):
        return model.target
    assert isinstance(model, ServedModel)
    return model
