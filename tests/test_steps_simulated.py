"""Whole steps of real workloads take as long as the simulator of events says (docs/clock.md), under random profiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import samples
from tests.events import simulate
from tests.step_points import SPACES, Drawn, draw

STEPS = samples.cases(180, 500)
TOGETHER = 4  # places of a step that one price is for, as the search runs them
NAMES = [name for name in SPACES if name not in ("graph", "stages", "experts")]


def steps(batch: int, batches: int) -> Iterator[tuple[int, Drawn, NDArray[np.int64]]]:
    """A part of the random steps that a simulator of one event at a time can run, at most 4 stages and 8 micro-batches: points, and
    columns of each."""
    drawn, number = 0, batch
    while drawn < STEPS // batches:
        seed = 10_000 + 100 * number
        while (point := draw(NAMES[number % len(NAMES)], seed)).structure.micro_batches > 8 or point.cut.stages > 4:
            seed += 1
        columns = point.alike(TOGETHER, np.random.default_rng(seed))
        yield seed, point, columns
        drawn, number = drawn + len(columns), number + batches


@pytest.mark.parametrize("batch", samples.some(range(4), 2))
def test_a_step_takes_as_long_as_the_simulator_says(batch: int) -> None:
    for seed, point, columns in steps(batch, 4):
        exact = point.exact_of(columns)
        simulated = [simulate(exact.jobs, place)[0] for place in range(len(columns))]
        assert exact.seconds() == pytest.approx(simulated, rel=1e-11), f"seed {seed}"


def test_a_graph_of_one_layer_takes_as_long_as_the_simulator_says() -> None:
    for seed in range(20):
        exact = draw("graph", seed).exact
        assert float(exact.seconds()[0]) == pytest.approx(simulate(exact.jobs)[0], rel=1e-11), f"seed {seed}"
