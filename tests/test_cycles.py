"""Cycles of objects are looked for rarely in a search, and as before it after."""

from __future__ import annotations

import gc

import pytest

from rackmodel.cycles import RARELY, rarely_looked_for


def test_searches_within_searches_leave_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with rarely_looked_for():
        with rarely_looked_for():
            assert gc.get_threshold() == (max(RARELY, before[0]), *before[1:])
        assert gc.get_threshold()[0] >= RARELY
    assert gc.get_threshold() == before


def test_a_search_that_fails_leaves_it_as_it_was_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="no step"), rarely_looked_for():
        raise ValueError("no step")
    assert gc.get_threshold() == before


def test_a_collector_that_was_switched_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0, *before[1:])
    try:
        with rarely_looked_for():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
