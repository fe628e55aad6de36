"""Whole steps of real workloads take as long as the simulator of events says (docs/clock.md), under random profiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.events import simulate
from tests.step_points import SPACES, Drawn, draw

STEPS = 500
NAMES = [name for name in SPACES if name not in ("graph", "stages", "experts")]


def steps(batch: int, batches: int) -> Iterator[tuple[int, Drawn]]:
    """A part of the random steps that a simulator of one event at a time can run: at most 4 stages, 8 micro-batches."""
    for number in range(batch, STEPS, batches):
        seed = 10_000 + 100 * number
        while (point := draw(NAMES[number % len(NAMES)], seed)).structure.micro_batches > 8 or point.cut.stages > 4:
            seed += 1
        yield seed, point


@pytest.mark.parametrize("batch", range(4))
def test_a_step_takes_as_long_as_the_simulator_says(batch: int) -> None:
    for seed, point in steps(batch, 4):
        exact = point.exact
        assert float(exact.seconds()[0]) == pytest.approx(simulate(exact.jobs)[0], rel=1e-11), f"seed {seed}"


def test_a_graph_of_one_layer_takes_as_long_as_the_simulator_says() -> None:
    for seed in range(20):
        exact = draw("graph", seed).exact
        assert float(exact.seconds()[0]) == pytest.approx(simulate(exact.jobs)[0], rel=1e-11), f"seed {seed}"
