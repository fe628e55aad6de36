"""How a prompt's cache gets from the pool of prompts to that of decodes: over their machine's network, or out of one into the other.

A prompt's cache lies on the accelerators of one rank of attention data parallelism: each sends its part to one of the decode worker's at
once, and the one with most bytes sets the time. Workers lie side by side, a decode worker at the next multiple of its size.
"""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.network.collectives import send
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.serving.pools import Transfer
from rackmodel.serving.served_model import ServedModel


def cache_transfer(prompts: ServedModel, decodes: ServedModel, own: int = 0) -> Transfer:
    """The transfer between workers of two pools. own: accelerators that prompts have for themselves, behind which decodes begin where both
    are of one machine's kind; 0 = workers of both lie side by side. Raises InputError where no network joins them."""
    ways = [_far(prompts.architecture), _far(decodes.architecture)]
    if prompts.architecture.name == decodes.architecture.name and own + decodes.deployment.accelerators <= decodes.architecture.available:
        ways = [_between(prompts, decodes, own or prompts.deployment.accelerators)]
    per_byte, latency, _ = (max(figures) for figures in zip(*ways, strict=True))
    joules = sum(joules for _, _, joules in ways) / len(ways)  # of unlike machines: half a way in each
    beside = min(one.deployment.tensor * one.deployment.pipeline for one in (prompts, decodes))

    def held(tokens: Array) -> Array:
        return np.asarray(np.maximum(*(model.held_each(tokens)[0] * model.deployment.attention_data for model in (prompts, decodes))))

    return Transfer(held, 1.0 / per_byte, latency, joules * beside)


def _between(prompts: ServedModel, decodes: ServedModel, before: int) -> tuple[float, float, float]:
    """Seconds a byte of each of a rank's accelerators, all at once, and of a message, between neighbouring workers of one machine; joules
    a byte. before: accelerators that lie before the worker of decodes."""
    size, machine = decodes.deployment.accelerators, prompts.architecture
    there = -(-before // size) * size
    pairs = min(prompts.deployment.tensor, decodes.deployment.tensor)
    return _sent(machine, np.arange(pairs), there + np.arange(pairs))


def _far(machine: Architecture) -> tuple[float, float, float]:
    """The same of one accelerator, to the farthest other one."""
    return _sent(machine, np.arange(1), np.array([machine.available - 1]))


def _sent(machine: Architecture, here: np.ndarray, there: np.ndarray) -> tuple[float, float, float]:
    if there.max() >= machine.available:
        fact = f"pools of {int(there.max()) + 1} accelerators and more, where {machine.name} has {machine.available}"
        raise InputError(fact, path="accelerators")
    use = send(machine.model_copy(update={"accelerators": int(there.max()) + 1}), here, there)
    per_byte = float(np.sum(use.seconds_per_byte))
    if not per_byte > 0:
        raise InputError(f"no network of {machine.name} joins pools of prompts and of decodes", path=machine.name)
    return per_byte, float(np.sum(use.latency_s)), float(np.sum(use.joules_per_byte)) / len(here)
