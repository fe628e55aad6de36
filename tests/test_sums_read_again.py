"""The sum of gradients so far is read once a micro-batch, not once an operation."""

from __future__ import annotations

import pytest

from rackmodel import api


def test_a_graph_of_one_micro_batch_reads_no_sum() -> None:
    """rack_paper's innermost memory feeds every operation: reading the accumulator there is counted with the result, once."""
    rows = api.search("rack_paper", "ffn", "data", sets=["accelerators=32"]).result.ledger
    moved = {
        (row.level, row.action, row.tensor): [
            one.amount for one in rows if (one.level, one.action, one.tensor) == (row.level, row.action, row.tensor)
        ]
        for row in rows
        if row.component == "memory" and row.tensor in ("dW1", "dW2")
    }
    bytes_each, accelerators, products = 4096 * 14336 * 4, 32, 16 * 2048 * 4096 * 14336
    for tensor in ("dW1", "dW2"):
        assert moved[("gpu", "write", tensor)] == [bytes_each * accelerators]
        assert ("gpu", "read", tensor) not in moved
        assert len(moved[("thread", "read", tensor)]) == 1
        assert moved[("thread", "read", tensor)][0] == pytest.approx(products * 2, rel=1e-9)
