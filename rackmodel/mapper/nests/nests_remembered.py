"""Answers of nests, kept on disk by their question: what was solved once is not solved again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rackmodel.nests.searchers.effort import Effort
from rackmodel.store.remembered import store
from rackmodel.watch import Watch

CELLS = 60e6
"""Cells that a part of a nest's search may price: the same for every nest of every search, so that what one found another may take."""


class _Late(Exception):
    """An answer that the clock stopped."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


def remembered(question: dict[str, Any], solve: Callable[[Effort], dict[str, Any]], watch: Watch) -> dict[str, Any]:
    """The answer to a question; what the clock stopped is not remembered."""
    effort = Effort(CELLS, watch.ends)

    def solved() -> dict[str, Any]:
        answer = solve(effort)
        if effort.late:
            raise _Late(answer)
        return answer

    try:
        found: dict[str, Any] = store().remember(question, solved)
    except _Late as stopped:
        watch.over()
        return stopped.answer
    return found


def plain_data(data: Any) -> Any:
    """Dataclass fields as JSON data; infinity becomes a word."""
    return json.loads(json.dumps(data, default=list).replace("Infinity", '"unlimited"'))
