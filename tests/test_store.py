"""Remembered results: solved once, read back by content, never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel.store.remembered import CacheWarning, Store, key_of


def test_a_question_is_solved_once_even_by_another_process(tmp_path: Path) -> None:
    calls = []

    def solve() -> dict[str, float]:
        calls.append(1)
        return {"energy": 0.1 + 0.2}

    first, second = Store(tmp_path), Store(tmp_path)
    answer = first.remember({"m": 64}, solve)
    assert second.remember({"m": 64}, solve) == answer == {"energy": 0.30000000000000004}
    assert len(calls) == 1
    second.remember({"m": 65}, solve)
    assert len(calls) == 2


def test_the_key_is_the_content_whatever_the_order() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 1, "b": 3})


def test_a_store_that_cannot_be_written_or_read_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert Store(tmp_path / "file").remember(1, lambda: 2) == 2
    (tmp_path / "results.sqlite").write_text("not a database at all, and longer than a header would be" * 20)
    with pytest.warns(CacheWarning, match="was damaged"):
        assert Store(tmp_path).remember(1, lambda: 3) == 3
