"""Requests through one engine of one stage, one step after another and token by token: the rules of docs/serving.md again, written on
their own, so that what `serve-trace` says in strides and from tables has something to equal. Prices are a formula that is handed in.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Price = Callable[[int, float, float], float]
"""(sequences that decode, tokens in all their caches, prompt tokens) -> seconds of a step."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the engine and its requests do. share: of an output that is set aside when its request is admitted · kept: of drafts drawn one
    by one, None = as many as in the mean · arrivals: of requests, None = `clients` send the next one when they have their answer."""

    price: Price
    prompts: Sequence[float]
    outputs: Sequence[float]
    clients: int = 1
    arrivals: Sequence[float] | None = None
    budget: float = 8192
    chunked: bool = True
    mixed: bool = True
    ranks: int = 1
    reused: float = 0.0
    drafted: int = 0
    accepted: float = 0.0
    kept: random.Random | None = None
    ahead: int = 0
    request_s: float = 0.0
    tokenize_s: float = 0.0
    cache: float = 1e18
    share: float = 0.5
    sequences: float = 1e9


@dataclass
class Run:
    """A run that goes on. waiting: [number, tokens left, tokens done] · running: number -> [its tokens, those in its cache]."""

    rules: Rules
    clock: float = 0.0
    sent: int = 0
    held: float = 0.0
    starts: list[float] = field(default_factory=list)
    coming: list[tuple[float, int]] = field(default_factory=list)
    waiting: list[list[Any]] = field(default_factory=list)
    running: dict[int, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.rules.prompts)
        self.asked, self.first, self.ended = (np.zeros(count) for _ in range(3))
        for _ in range(self.rules.clients if self.rules.arrivals is None else count):
            self._send(0.0)
        while self.coming or self.waiting or self.running:
            self._see()
            batch = self._batch()
            if batch or self.running:
                self._step(batch)
            else:
                self.clock = max(self.clock, self.coming[0][0])
                self.starts += [self.clock] * max(self.rules.ahead, 1)

    def figures(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds to each request's first token, a token after it, and to its last."""
        way, gaps = self.rules.request_s / 2.0, np.maximum(np.array(self.rules.outputs) - 1.0, 1.0)
        return self.first - self.asked + way, (self.ended - self.first) / gaps, self.ended - self.asked + way

    def _send(self, now: float) -> None:
        rules, number = self.rules, self.sent
        if number < len(rules.prompts):
            self.sent += 1
            self.asked[number] = now if rules.arrivals is None else rules.arrivals[number]
            before = rules.request_s / 2.0 + rules.tokenize_s * rules.prompts[number]
            heapq.heappush(self.coming, (self.asked[number] + before, number))

    def _see(self) -> None:
        """Who was there when the steps that are scheduled were: a step sees what had come when the one `ahead` before it began."""
        ahead = self.rules.ahead
        seen = (self.starts[-ahead] if len(self.starts) >= ahead else 0.0) if ahead else self.clock
        while self.coming and self.coming[0][0] <= seen:
            number = heapq.heappop(self.coming)[1]
            self.waiting.append([number, max(self.rules.prompts[number] * (1.0 - self.rules.reused), 1.0), 0.0])

    def _batch(self) -> list[tuple[list[Any], float]]:
        rules, here = self.rules, len(self.running)
        left = rules.budget * rules.ranks - (here * (1 + rules.drafted) if rules.mixed else 0)
        batch: list[tuple[list[Any], float]] = []
        for one in self.waiting:
            number, tokens, done = one
            need, there = rules.prompts[number] + rules.share * rules.outputs[number], here + len(batch)
            if left < 1 or (done == 0 and there and (there >= rules.sequences or self.held + need > rules.cache)):
                break
            part = min(tokens, left, rules.budget) if rules.chunked else tokens
            if part > left and batch:
                break
            self.held += need if done == 0 else 0.0
            batch.append((one, part))
            left -= part
        return batch

    def _step(self, batch: list[tuple[list[Any], float]]) -> None:
        rules = self.rules
        decoding = list(self.running.values()) if rules.mixed or not batch else []
        self.starts.append(self.clock)
        self.clock += rules.price(len(decoding), math.fsum(one[1] for one in decoding), math.fsum(part for _, part in batch))
        for one in decoding:
            tokens = self._tokens()
            one[0], one[1] = one[0] + tokens, one[1] + tokens
        for one, part in batch:
            one[1], one[2] = one[1] - part, one[2] + part
            if one[1] <= 1e-9:
                self.waiting.remove(one)
                self.first[one[0]] = self.clock
                self.running[one[0]] = [1.0, rules.prompts[one[0]]]
        for number in [one for one, (tokens, _) in self.running.items() if tokens >= rules.outputs[one] - 1e-9]:
            del self.running[number]
            self.ended[number] = self.clock
            self.held -= rules.prompts[number] + rules.share * rules.outputs[number]
            if rules.arrivals is None:
                self._send(self.clock + rules.request_s / 2.0)

    def _tokens(self) -> float:
        """That a sequence gets in a step."""
        rules = self.rules
        if rules.kept is None:
            return sum(rules.accepted**one for one in range(rules.drafted + 1))
        found = 1
        while found <= rules.drafted and rules.kept.random() < rules.accepted:
            found += 1
        return float(found)
