"""Steps of many cuts bounded in one array are, to the last digit, each bounded alone; counts of passes are those of the orders."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.cost.step.bounds.bound import least_seconds
from rackmodel.cost.step.bounds.cut_rows import CutRows, branch, last_passes, least_of, warm_up_passes
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.clock.pipeline_orders import BACKWARD, FORWARD, order
from rackmodel.model.schedules import FOLDED, SPLIT, TABLE, chunk_counts, runs_as
from tests.step_points import priced

CASES = 300


def test_passes_before_the_first_backward_and_at_the_end_are_those_of_the_order() -> None:
    random = np.random.default_rng(7)
    for _ in range(CASES):
        schedule, p, v = str(random.choice([name for name in TABLE if name not in FOLDED])), int(random.integers(1, 7)), 1
        if TABLE[schedule].chunked:
            v = int(random.integers(2, 5))
        m, device = int(random.integers(1, 6)) * (p if v > 1 else 1), int(random.integers(p))
        ran = order(runs_as(schedule, v), p, m, v)
        kind, chunk = ran.kind[device], ran.chunk[device]
        first, closing = np.flatnonzero(kind == BACKWARD)[0], np.flatnonzero(kind == FORWARD)[-1]
        assert warm_up_passes(schedule, p, v, m, device) == _each(chunk[:first][kind[:first] == FORWARD], v)
        if schedule not in SPLIT:
            behind = chunk[closing:][kind[closing:] == BACKWARD]
            assert last_passes(schedule, p, v, m, device)[-1] == (_each(behind, v), all(_each(behind, v)))


def _each(chunks: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> tuple[int, ...]:
    return tuple(np.bincount(chunks, minlength=count).tolist())


@pytest.mark.parametrize("name", ["gpt", "slow"])
@pytest.mark.parametrize("profile", range(2))
def test_cells_of_many_cuts_are_bounded_as_each_cut_alone(name: str, profile: int) -> None:
    job, price = priced(name, 0, profile)
    choices = StepChoices(profile=job.profile, windows=np.array([1.0, 0.0]), beside=np.array([1.0, 0.0]))
    layers, counts, random = Layers.of(price.sections, choices), price.columns.micro_batches, np.random.default_rng(profile)
    alike: dict[object, list[tuple[object, ...]]] = {}
    for stages in np.unique(price.columns.stages).tolist():
        columns = np.flatnonzero(price.columns.stages == stages)
        for schedule, row in TABLE.items():
            for chunks in chunk_counts(schedule, (2, 3)):
                made = price.cut(stages, chunks, schedule=schedule)
                if made is None or (stages == 1 and schedule != "1f1b"):
                    continue
                drawn = random.choice(columns, 20)
                drawn = drawn[row.takes(stages, counts[drawn]) & (drawn >= 0)]
                if len(drawn):
                    plans = random.integers(price.sections[0].plan_count, size=len(drawn))
                    alike.setdefault(branch(made, schedule), []).append((made, schedule, plans, drawn))
    assert len(alike) > 2
    for parts in alike.values():
        plans, columns = (np.concatenate([part[at] for part in parts]) for at in (2, 3))  # type: ignore[misc]
        which = np.repeat(np.arange(len(parts)), [len(part[3]) for part in parts])  # type: ignore[arg-type]
        said = [(made, schedule, least_of(made, counts[own])) for made, schedule, _, own in parts]  # type: ignore[arg-type, index]
        together = least_seconds(layers.cells(plans, columns), price.sends.cells(plans, columns), CutRows.of(said, which), counts[columns])  # type: ignore[arg-type]
        for number, one in enumerate(said):
            own = which == number
            cells = layers.cells(plans[own], columns[own]), price.sends.cells(plans[own], columns[own])
            assert (least_seconds(*cells, CutRows.of([one]), counts[columns[own]]) == together[own]).all()  # type: ignore[list-item]
