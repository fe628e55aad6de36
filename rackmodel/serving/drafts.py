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

from rackmodel.arrays import Array, Bools
from rackmodel.cost.ledger import Charge
from rackmodel.model.profile import ProfileSpec
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.step_parts import StepPart, figures_of, whole_of
from rackmodel.serving.steps import StepFigures, Steps


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

    def under(self, profile: ProfileSpec) -> DraftedModel:
        """Both under a profile that differs in the host's times alone."""
        return replace(self, target=self.target.under(profile), draft=self.draft.under(profile))

    def price(self, steps: Steps, captured: Bools | None = None) -> StepFigures:
        """Seconds, joules and ledger of n steps. captured: [n] those that run as graphs, None = none that the profile does not say."""
        parts = self.parts(steps, captured)
        return whole_of(parts, figures_of(parts))

    def parts(self, steps: Steps, captured: Bools | None) -> list[StepPart]:
        """What n steps run of each model."""
        none, one = np.zeros(len(steps)), np.ones(len(steps))
        again = float(self.count - self.own)
        found = [StepPart(model=self.target, steps=steps, captured=captured)]
        if self.own:
            found.append(StepPart(model=self.draft, steps=steps, captured=captured))
        if again:
            drafting = replace(steps, decodes=steps.sequences, new=one, prefill=none, prompts=none, before=none)
            times = np.where(steps.decodes > 0, again, 0.0)
            found.append(StepPart(model=self.draft, steps=drafting, captured=captured, times=times))
        if np.any(steps.prefill > 0) and not self.own:
            prompts = replace(steps, decodes=none, new=one, context=none)
            times = np.where(steps.prefill > 0, 1.0, 0.0)
            found.append(StepPart(model=self.draft, steps=prompts, captured=captured, times=times))
        return found

    def waiting(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model that it drafts for says: both are on the same accelerators."""
        return self.target.waiting(seconds, mesh)

    def idling(self, seconds: Array, mesh: Array) -> list[Charge]:
        """As the model that it drafts for says."""
        return self.target.idling(seconds, mesh)


def models_of(model: ServedModel | DraftedModel) -> tuple[ServedModel, ...]:
    """All that steps of a model run: itself, and what drafts for it."""
    return (model.target, model.draft) if isinstance(model, DraftedModel) else (model,)


def parts_of(model: ServedModel | DraftedModel, steps: Steps, captured: Bools) -> list[StepPart]:
    """What n steps run of each of them. captured: [n] those that run as graphs."""
    if isinstance(model, DraftedModel):
        return model.parts(steps, captured)
    return [StepPart(model=model, steps=steps, captured=captured)]
