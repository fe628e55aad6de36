"""Layers as exact steps take them: without the sums that bounds read, and on some of the columns that were priced."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.cost.step.exact import ExactStep
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from tests.steps import priced


def _step() -> ExactStep:
    """A model on all its meshes of one stage on 16 accelerators: some of their groups have one rank, and use no link."""
    given = read_inputs("rack_paper_h100", "llama3_8b", mapper="megatron", sets=("accelerators=16", "b=16", "layers=4"))
    group = max(build_mapspace(given.mapper, given.workload, 16).groups, key=lambda one: len(one.columns))
    alone = np.flatnonzero(group.columns.stages == 1)
    return priced(given.architecture, given.workload, group.variants[0].plan, group.columns.pick(alone), read_profile("megatron_core")).step


def test_an_exact_step_makes_no_sums_and_has_the_tasks_of_those_that_have_them() -> None:
    step = _step()
    layers = step.priced_layers
    assert layers
    assert not step.layers.costs
    for layer, cost in zip(layers, step.costs, strict=True):
        assert all(one is other for one, other in zip(layer.items, cost.items, strict=True))
        assert (layer.held, layer.home, layer.held_mean) == (cost.held, cost.home, cost.held_mean)


@pytest.mark.parametrize("which", [[0], [2, 0, 2], [1, 3]])
def test_a_task_on_some_columns_has_the_rows_that_these_use_and_exposes_what_they_do(which: list[int]) -> None:
    def on(figure: object) -> list[float]:
        return np.broadcast_to(np.asarray(figure, dtype=float), n)[which].tolist()

    step = _step()
    n, unused = len(step.columns), 0
    for layer in step.priced_layers:
        for whole, some in zip(layer.items, layer.pick(np.array(which)).items, strict=True):
            used = [row for row in whole.rows if row.component != "network" or any(on(row.amount)) or any(on(row.seconds))]
            unused += len(whole.rows) - len(used)
            assert len(some.rows) == len(used)
            for count in (1, len(which)):
                exposed = [(component, action, list(np.broadcast_to(own, count))) for component, action, own in some.priced.exposed(count)]
                assert exposed == [(row.component, row.action, on(row.exposed)[:count]) for row in used]
    assert unused or len(set(which)) > 1
