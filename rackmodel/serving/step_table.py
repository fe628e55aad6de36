"""Prices of steps as a table, for simulations that ask for one step at a time: the engine's prices at grid points, straight lines between.

    t(b, c, p, q) = t(b, c, 0) + [t(b, c', p, q) - t(b, c', 0)]      b decodes of c tokens, p prompt tokens after q of the same prompts

The first part has every b of a short list and straight lines in b and c, which is exact where a price is a sum of parts that are linear
in the bytes read; the second has them in p, b and q at the middle context c', apart for steps that are captured as graphs
and for those that the host launches, for a step of one token more may take twice as long. Joules j(b, c, p, q) are read alike.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from rackmodel.arrays import Array
from rackmodel.serving.engine import ServingEngine
from rackmodel.serving.requests import prompt_parts
from rackmodel.serving.steps import Served, Steps

CONTEXTS, AFTER = 3, 3
DENSE = 32


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What a simulation may ask for. sequences, context, tokens, before: the most of each · prompt: mean tokens of a prompt · ranks: of
    attention data, to which prompts are dealt · part: tokens of a rank's step, which one prompt may have."""

    sequences: int
    context: float
    tokens: float
    before: float
    prompt: float
    ranks: float = 1.0
    part: float = inf

    def prompts(self, tokens: Array) -> Array:
        """[n] prompts, or parts of them, of steps of so many prompt tokens."""
        return np.maximum(np.round(prompt_parts(tokens, self.prompt, self.part, self.ranks)), 1.0)


class StepTable:
    """Seconds and joules of single steps. wide: tokens of a sequence in a step of decodes, drafted ones included, which share its cache ·
    stages: of a pipeline, whose batches are asked for: seconds of one at its slowest stage, joules of all stages · mesh: which of the
    model's deployments."""

    def __init__(self, model: Served, extent: Extent, wide: float = 1.0, stages: int = 1, mesh: int = 0) -> None:
        self.wide, self.stages, self.mesh = wide, stages, mesh
        captured, launched, self.graph_tokens, most = _ways(model, wide)
        self.batches = _batches(extent.sequences, most)
        self.contexts = np.linspace(1.0, max(extent.context, 2.0), CONTEXTS)
        self.tokens = np.unique(np.round([*np.geomspace(1.0, max(extent.tokens, 2.0), 24), min(extent.prompt, extent.tokens)]))
        self.after = np.linspace(0.0, max(extent.before, 1.0), AFTER)
        few = self.batches[np.unique([1, *np.linspace(0, len(self.batches) - 1, 9).round().astype(int)])]  # beside one a step has its floor
        self._batches, self._few, self._tokens, self._after = (x.tolist() for x in (self.batches, few, self.tokens, self.after))
        self._plain: list[list[list[float]]] = self._priced_plain(model).tolist()
        self._captured: list[list[list[list[float]]]] = self._priced_extra(captured, few, extent).tolist()
        self._launched = self._captured if captured is launched else self._priced_extra(launched, few, extent).tolist()

    def _priced_plain(self, model: Served) -> Array:
        """[2, batches, contexts] seconds and joules of steps of decodes."""
        b, c = np.meshgrid(self.batches, self.contexts, indexing="ij")
        steps = Steps.of(decodes=b.ravel() * self.wide * self.stages, new=self.wide, context=c.ravel(), mesh=self.mesh)
        return np.asarray(np.where(b > 0, _both(model, steps, b.shape) / self.stages, 0.0))

    def _priced_extra(self, model: Served, few: Array, extent: Extent) -> Array:
        """[2, batches, tokens, after] seconds and joules that prompts add to a step of decodes."""
        b, p, q = (x.ravel() for x in np.meshgrid(few, self.tokens, self.after, indexing="ij"))
        middle = np.where(b > 0, self.contexts[CONTEXTS // 2], 0.0)
        many = [one * self.stages for one in (b * self.wide, p, extent.prompts(p))]  # a batch at every stage
        steps = Steps.of(decodes=many[0], new=self.wide, context=middle, prefill=many[1], prompts=many[2], before=q, mesh=self.mesh)
        joined = _both(model, steps, (len(few), len(self.tokens), len(self.after))) / self.stages
        alone = np.array([self.decode(size, float(self.contexts[CONTEXTS // 2])) for size in few]).T
        return np.asarray(joined - alone[:, :, None, None])

    def decode(self, size: float, context: float) -> tuple[float, float]:
        """Seconds and joules of a step of decodes alone; 0 where there are none."""
        i, x = _place(self._batches, size)
        step = float(self.contexts[1] - self.contexts[0])
        j = min(max(int((context - float(self.contexts[0])) / step), 0), CONTEXTS - 2)
        y = (context - float(self.contexts[0])) / step - j
        seconds, joules = (
            (table[i][j] * (1 - x) + table[i + 1][j] * x) * (1 - y) + (table[i][j + 1] * (1 - x) + table[i + 1][j + 1] * x) * y
            for table in self._plain
        )
        return seconds, joules

    def step(self, size: float, context: float, tokens: float, before: float) -> tuple[float, float]:
        """Seconds and joules of a step of `size` decodes and `tokens` prompt tokens."""
        i, x = _place(self._few, size)
        j, y = _place(self._tokens, tokens)
        k, z = _place(self._after, before)
        seconds, joules = self.decode(size, context) if size > 0 else (0.0, 0.0)
        of_seconds, of_joules = self._captured if size * self.wide + tokens <= self.graph_tokens else self._launched
        for di, wx in ((0, 1 - x), (1, x)):
            for dj, wy in ((0, 1 - y), (1, y)):
                for dk, wz in ((0, 1 - z), (1, z)):
                    part = wx * wy * wz
                    seconds += part * of_seconds[i + di][j + dj][k + dk]
                    joules += part * of_joules[i + di][j + dj][k + dk]
        return seconds, joules


def _both(model: Served, steps: Steps, shape: tuple[int, ...]) -> Array:
    """[2, *shape] seconds and joules of steps."""
    figures = model.price(steps)
    return np.stack([figures.seconds.reshape(shape), figures.joules.reshape(shape)])


def _ways(model: Served, wide: float) -> tuple[Served, Served, float, float]:
    """The model with all its steps of prompts as graphs, and with none; most tokens of such a graph, and most sequences of decodes, each of
    `wide` tokens."""
    if not isinstance(model, ServingEngine):
        return model, model, inf, inf
    facts = model.facts
    launched = replace(model, facts=facts.model_copy(update={"graph_tokens": 0}))
    captured = replace(model, facts=facts.model_copy(update={"graph_tokens": inf})) if facts.graph_tokens else launched
    most = model.graph_sequences / (wide if facts.graphs_of == "token" else 1.0)
    return captured, launched, float(facts.graph_tokens), float(np.floor(most))


def _batches(most: int, captured: float) -> Array:
    """Every batch up to DENSE, then about eight to a doubling, and the last that is captured as a graph with the next; 0 first."""
    far = np.round(np.geomspace(DENSE, max(most, DENSE + 1), max(2, int(8 * np.log2(max(most, DENSE + 1) / DENSE)) + 2)))
    edge = [captured, captured + 1.0] if captured < most else []
    return np.unique(np.concatenate([np.arange(0.0, DENSE + 1), far, edge]))


def _place(grid: list[float], value: float) -> tuple[int, float]:
    """The interval of an ascending grid and how far into it a value is; values outside go to its ends."""
    i = min(max(bisect_right(grid, value) - 1, 0), len(grid) - 2)
    return i, min(max((value - grid[i]) / (grid[i + 1] - grid[i]), 0.0), 1.0)
