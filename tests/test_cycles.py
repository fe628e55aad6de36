"""Cycles of objects are looked for rarely in a search, and as before it after."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rackmodel.cycles import RARELY, SELDOM, rarely_looked_for


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
