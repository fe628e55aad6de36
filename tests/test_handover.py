"""Hand-overs between stages through a memory above them, in the place of links (seed 004, section IV.A)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.cli.written import write_mapping
from rackmodel.errors import InputError
from rackmodel.model.result import Result

HIDDEN = 16 * 2048 * 14336 * 2.0  # bytes of H


def priced(*sets: str) -> Result:
    return api.search("rack_paper", "ffn", "pipeline_tensor", sets=["accelerators=16", *sets]).result


def moved(result: Result, **where: str) -> float:
    return float(result.ledger.where(**where).total("amount"))


def test_what_is_handed_over_is_written_once_and_read_once_and_no_link_sends_it() -> None:
    links, memory = priced(), priced("handover={H: {at: system}}")
    assert moved(links, action="send") == 2 * HIDDEN  # H, and its gradient back
    assert moved(memory, action="send") == 0
    for tensor, phase in (("H", "forward"), ("dH", "backward")):
        for action in ("write", "read"):
            assert moved(memory, level="system", tensor=tensor, phase=phase, action=action) == HIDDEN
    assert moved(memory, action="all_gather") == moved(links, action="all_gather")


def test_read_whole_by_each_it_needs_no_gather() -> None:
    whole = priced("handover={'*': {at: system, read: whole}}")
    assert moved(whole, level="system", tensor="H", action="write") == HIDDEN
    assert moved(whole, level="system", tensor="H", action="read", phase="forward") == 8 * HIDDEN
    assert moved(whole, tensor="H", action="all_gather") == 0
    shard = priced("handover={'*': {at: system}}")
    assert whole.energy_j > shard.energy_j > priced().energy_j


def test_the_paper_s_main_memory_reads_agree_only_where_each_gpu_reads_all() -> None:
    def reads(result: Result) -> float:
        return float(result.ledger.where(component="memory", level="system", action="read").total("joules"))

    data = reads(api.search("rack_paper", "ffn", "data", sets=["accelerators=16"]).result)
    assert reads(priced("handover={H: {at: system}}")) < data < reads(priced("handover={H: {at: system, read: whole}}"))


def test_a_mapping_file_keeps_it(tmp_path: Path) -> None:
    found = priced("handover={H: {at: system}}")
    again = api.evaluate("rack_paper", "ffn", str(write_mapping(found, tmp_path / "point.yaml")))
    assert (again.latency_s, again.energy_j) == (found.latency_s, found.energy_j)


@pytest.mark.parametrize(
    ("mapper", "said", "fact"),
    [
        ("pipeline_tensor", "{Q: {at: system}}", "no stage hands 'Q' on"),
        ("pipeline_tensor", "{H: {at: rack}}", "'rack' is no level above all accelerators in use with a memory"),
        ("data", "{H: {at: system}}", "a hand-over is between stages of operations, and there is one stage"),
    ],
)
def test_what_no_stage_could_do_is_refused(mapper: str, said: str, fact: str) -> None:
    with pytest.raises(InputError) as caught:
        api.search("rack_paper", "ffn", mapper, sets=["accelerators=16", f"handover={said}"])
    assert fact in str(caught.value)
