"""Training rows a CPU second: models of one graph as columns, beside the same rows one by one."""

from __future__ import annotations

import time

import pytest

from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.steps import price_cases
from rackmodel.validation.training import TrainingCase, training_case
from rackmodel.validation.words import words

pytestmark = pytest.mark.bench
RUN = {
    "id": "r", "dataset": "vtrain_single", "model": "own", "arch": "gpt", "vocab": "51200", "seq_len": "2048", "gpu": "A100-SXM-80GB",
    "n_gpus": "8", "tp": "2", "cp": "1", "ep": "1", "mbs": "1", "precision": "fp16", "recompute": "full", "iteration_time_s": "1",
}  # fmt: skip
ALONE = 8


def _cases() -> list[TrainingCase]:
    """Runs of models of 8 widths, 4 depths, with and without a pipeline."""
    found = []
    for heads in range(8, 40, 4):
        for layers in (16, 24, 32, 48):
            for stages in (1, 2):
                sizes = {"hidden": str(128 * heads), "heads": str(heads), "layers": str(layers)}
                run = {**RUN, **sizes, "pp": str(stages), "dp": str(4 // stages), "gbs": "32"}
                found.append(training_case(PublishedRow("r", run["dataset"], "training", run, "rows.csv", 2), words()))
    return found


def test_models_as_columns_take_less_than_one_by_one() -> None:
    cases = _cases()
    price_cases(cases[:1])  # files are read
    started = time.process_time()
    together = price_cases(cases)
    seconds = time.process_time() - started
    started = time.process_time()
    alone = [price_cases([case])[0] for case in cases[::ALONE]]
    each = (time.process_time() - started) / len(alone)
    assert alone == together[::ALONE]
    print(f"\n{len(cases)} training rows: {len(cases) / seconds:.0f} a CPU second together, {1 / each:.1f} one by one")
    assert seconds < len(cases) * each / 2
