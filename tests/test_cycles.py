"""Cycles of objects are looked for rarely in a search, and as before it after."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rackmodel.cost.step.clock.max_plus import Matrix
from rackmodel.cycles import RARELY, SELDOM, rarely_looked_for
from rackmodel.model.plan import Plan
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.runs import training_rows


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """As an interpreter starts, where the suite looks for cycles rarely."""
    before = gc.get_threshold()
    gc.set_threshold(700, *before[1:])
    yield
    gc.set_threshold(*before)


def test_searches_within_searches_leave_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with rarely_looked_for():
        with rarely_looked_for():
            assert gc.get_threshold() == (RARELY, *before[1:])
        assert gc.get_threshold() == (RARELY, *before[1:])
    assert gc.get_threshold() == before


def test_rows_that_search_look_as_seldom_as_rows_do() -> None:
    before = gc.get_threshold()
    with rarely_looked_for(SELDOM):
        with rarely_looked_for():
            assert gc.get_threshold()[0] == SELDOM
        assert gc.get_threshold()[0] == SELDOM
    assert gc.get_threshold() == before


def test_a_search_that_fails_leaves_it_as_it_was_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="no step"), rarely_looked_for():
        raise ValueError("no step")
    assert gc.get_threshold() == before


def test_a_collector_that_was_switched_off_stays_off() -> None:
    gc.set_threshold(0)
    with rarely_looked_for():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_what_was_priced_goes_without_being_looked_for() -> None:
    """A pipeline of 24 layers on 4 stages: 6 layers are the 2nd and 4th power of one. (Of 443 rows half a million objects waited, 2 s.)"""
    cells = {"dataset": "megatron_sc21_t1", "model": "", "arch": "GPT", "layers": "24", "hidden": "2304", "heads": "24", "seq_len": "2048"}
    more = {
        "vocab": "51200",
        "gpu": "A100-80GB",
        "n_gpus": "4",
        "tp": "1",
        "pp": "4",
        "dp": "1",
        "mbs": "1",
        "gbs": "16",
        "precision": "bf16",
    }
    row = PublishedRow("row", "megatron_sc21_t1", "training", {**cells, **more, "iteration_time_s": "1"}, "rows.csv", 2)
    training_rows([row])  # (what the library says is read once)

    def there() -> list[int]:
        return [sum(type(one) is kind for one in gc.get_objects()) for kind in (Matrix, Plan)]

    gc.collect()
    before = there()
    gc.set_threshold(0)
    (found,) = training_rows([row])
    assert not found.refused
    assert there() == before
