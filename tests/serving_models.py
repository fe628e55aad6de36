"""Served models of the library, and a stand-in whose prices can be worked by hand: a floor, bytes of weights and caches, prompt tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.workload import Workload
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, StepFigures, Steps


def served_on(machine: str, *machine_sets: str, profile: str = "ideal") -> Callable[..., ServedModel]:
    """A function of a workload, or of its name and changes, of a profile and degrees: that served on a machine."""

    def served(workload: Workload | str, profile: str = profile, sets: Sequence[str] = (), **degrees: int) -> ServedModel:
        return ServedModel(
            workload=workload if isinstance(workload, Workload) else read_workload(workload, sets),
            architecture=read_architecture(machine, machine_sets),
            profile=read_profile(profile),
            deployment=Deployment(**degrees),
        )

    return served


@dataclass
class LinearModel:
    """seconds of a batch = floor + decodes x (reading + context x cache) + prefill tokens x token, over all stages; 10 joules a second."""

    floor_s: float = 5e-3
    cache_s: float = 1e-8
    decode_s: float = 2e-5
    token_s: float = 2e-5
    prompt_floor_s: float = 2e-3
    weights_bytes: float = 16e9
    kv_bytes_per_token: float = 131072.0
    capacity_bytes: float = 70e9
    stages: int = 1
    asked: int = 0

    @property
    def weights_each(self) -> np.ndarray:
        """Of its one deployment."""
        return np.array([self.weights_bytes])

    @property
    def kv_each(self) -> np.ndarray:
        """Of its one deployment."""
        return np.array([self.kv_bytes_per_token])

    def held_each(self, tokens: np.ndarray) -> np.ndarray:
        """As many bytes for each token."""
        return np.multiply.outer(self.kv_each, tokens)

    @property
    def stages_each(self) -> np.ndarray:
        """Of its one deployment."""
        return np.array([float(self.stages)])

    def price(self, steps: Steps) -> StepFigures:
        """Prices of n steps, which are counted."""
        self.asked += len(steps)
        decodes, prefill = steps.decodes / self.stages, steps.prefill / self.stages  # of one batch, which all stages share the work of
        seconds = self.floor_s + self.decode_s * decodes + self.cache_s * decodes / steps.new * steps.context
        seconds = seconds + self.token_s * prefill + np.where(prefill > 0, self.prompt_floor_s, 0.0)
        return StepFigures(seconds=seconds, joules=10.0 * seconds, ledger=Ledger([]))

    def waiting(self, seconds: np.ndarray, mesh: np.ndarray) -> list[Charge]:
        """Of waiting for the host: 10 joules a second, too."""
        return [Charge("forward", "", "", "accelerator", "static", "static", 0.0, "joule", 10.0 * seconds, seconds, seconds)]

    def idling(self, seconds: np.ndarray, mesh: np.ndarray) -> list[Charge]:
        """It draws no more than that."""
        return []
