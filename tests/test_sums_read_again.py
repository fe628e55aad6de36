"""The sum of gradients so far is read once a micro-batch, not once an operation; and what else passes over gradients in a step."""

from __future__ import annotations

from pathlib import Path

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


def read_of_the_gate(tmp_path: Path, home: str, batch: int) -> float:
    """Bytes that two ranks read of the gradient of the gate's weight (4096 x 14336, 2 bytes), micro-batches of 1."""
    mapper = tmp_path / "sums.yaml"
    said = f"homes: {{weights: {{axes: [dp], {home}}}}}"
    mapper.write_text(f"mapper: sums\naxes: {{dp: {{degree: 2}}}}\nsplit: {{dp: [b]}}\n{said}\nmicro_batch: 1\n")
    ledger = api.search("rack_paper_h100", "llama3_8b_block", str(mapper), sets=["accelerators=2", f"b={batch}"]).result.ledger
    return sum(row.amount for row in ledger if (row.level, row.action, row.tensor) == ("gpu", "read", "dWG"))


ZERO = {1: "state: shard", 2: "state: shard, grad: shard", 3: "state: shard, grad: shard, param: shard"}


@pytest.mark.parametrize(("zero", "held"), [(1, 2.0), (2, 1.0), (3, 1.0)])
def test_two_ranks_read_the_sum_before_the_second_and_the_third_micro_batch(tmp_path: Path, zero: int, held: float) -> None:
    """Each keeps the whole sum (ZeRO-1), or a half of it (ZeRO-2 and 3)."""
    assert read_of_the_gate(tmp_path, ZERO[zero], 6) == pytest.approx(2 * held * 2 * 4096 * 14336, rel=1e-12)
    assert read_of_the_gate(tmp_path, ZERO[zero], 2) == 0


def passes_over_the_gate(tmp_path: Path, updates: str, home: str) -> tuple[float, float]:
    """Bytes that two ranks move of the gradient of the gate's weight beside products and optimizer, and seconds of the step."""
    mapper, profile = tmp_path / "sums.yaml", tmp_path / "swept.yaml"
    said = f"homes: {{weights: {{axes: [dp], {home}}}}}"
    mapper.write_text(f"mapper: sums\naxes: {{dp: {{degree: 2}}}}\nsplit: {{dp: [b]}}\n{said}\nmicro_batch: 1\n")
    profile.write_text(f"profile: swept\nupdates: {updates}\n")
    asked = ["accelerators=2", "b=6", "workload.phases=[forward, backward, optimizer]"]
    result = api.search("rack_paper_h100", "llama3_8b_block", str(mapper), sets=asked, profile=str(profile)).result
    moved = sum(row.amount for row in result.ledger if row.level == "gpu" and row.tensor == "dWG.passes")
    return moved, result.latency_s


@pytest.mark.parametrize(("zero", "summed"), [(1, 2.0), (2, 1.0), (3, 1.0)])
def test_passes_over_gradients_move_what_an_accelerator_sums_and_what_it_updates(tmp_path: Path, zero: int, summed: float) -> None:
    """Each rank sums the whole gradient (ZeRO-1) or half of it, in 2 bytes, and updates half of its elements."""
    elements = 4096 * 14336
    assert passes_over_the_gate(tmp_path, "{}", ZERO[zero])[0] == 0
    assert passes_over_the_gate(tmp_path, "{whole: 5}", ZERO[zero])[0] == pytest.approx(5 * 2 * summed * elements, rel=1e-12)
    assert passes_over_the_gate(tmp_path, "{shard: 12}", ZERO[zero])[0] == pytest.approx(12 * elements, rel=1e-12)
    assert passes_over_the_gate(tmp_path, "{whole: 5, shard: 12}", ZERO[zero])[0] == pytest.approx((10 * summed + 12) * elements, rel=1e-12)


def test_passes_over_gradients_come_once_a_step_and_cost_their_bytes(tmp_path: Path) -> None:
    """A block of llama3_8b has 218,112,000 parameters, at 2 x 2 bytes each, which go in and out of an L2 of 5.5 TB/s."""
    without, swept = (passes_over_the_gate(tmp_path, updates, ZERO[1])[1] for updates in ("{}", "{whole: 2}"))
    assert swept - without == pytest.approx(2 * 4 * 218_112_000 / 5.5e12, rel=1e-9)
