"""The smallest change that fits of an infeasible answer: what is tried, how far, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.said import instead
from rackmodel.mapper import in_order
from rackmodel.mapper import way_out as ways
from rackmodel.mapper.way_out import MOST_TRIED

SMALL = "gpu.memory.capacity=800 MB"


def way_out(*sets: str) -> str:
    """The change that the answer names for `ffn` under tensor parallelism on too small GPUs."""
    with pytest.raises(InfeasibleError) as problem:
        api.search("rack_paper", "ffn", "tensor", sets=instead([SMALL], sets))
    return problem.value.change


def test_the_fewest_accelerators_that_fit_are_named_and_they_do_fit() -> None:
    change = way_out()
    count = int(change.removeprefix("accelerators=").removesuffix(" (now 8)"))
    api.search("rack_paper", "ffn", "tensor", sets=[SMALL, f"accelerators={count}"])
    for fewer in range(9, count):
        with pytest.raises((InfeasibleError, InputError)):
            api.search("rack_paper", "ffn", "tensor", sets=[SMALL, f"accelerators={fewer}"])


def test_of_large_numbers_doublings_alone_are_tried_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "MOST_BETWEEN", 0)
    assert way_out() == "accelerators=16 (now 8; doublings were tried)"


def test_where_there_are_no_more_accelerators_memory_is_named() -> None:
    change = way_out("accelerators=64", "gpu.memory.capacity=1 MB")
    assert change.startswith("gpu.memory.capacity=")
    assert "not tried" not in change


def test_tries_that_would_take_too_long_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    plain = ways.search_space

    def counted(job, space, question):
        searched.append(job.setting.architecture.used)
        return plain(job, space, question)

    monkeypatch.setattr(in_order, "search_space", counted)  # what was asked
    monkeypatch.setattr(ways, "search_space", counted)  # what is tried
    monkeypatch.setattr(ways, "MOST_TRIED", 50)
    change = way_out("gpu.memory.capacity=1 MB")
    assert searched == [8, 16, 32]  # 16 + 32 are no more than 50, 64 more are
    assert change.startswith("gpu.memory.capacity=")
    assert change.endswith("(more accelerators than 32 were not tried)")
    assert MOST_TRIED >= 2 * 850_000  # two wafers of cores


def test_where_sizes_do_not_divide_the_nearest_number_of_accelerators_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine of 72 accelerators divide neither 32 layers, 512 sequences nor 8 heads of keys."""

    def asked(count: int) -> str:
        with pytest.raises((InfeasibleError, InputError)) as problem:
            api.search("dgx_h100", "llama3_8b", "megatron", sets=[f"accelerators={count}"])
        return str(problem.value)

    assert asked(72).splitlines() == [
        "infeasible: no point of the space can run: layers do not divide (26,352 points)",
        "  smallest change that fits: accelerators=64 (now 72)",
    ]
    monkeypatch.setattr(ways, "MOST_APART", 0)
    for count in (*range(66, 72, 2), *range(74, 80, 2)):
        assert "accelerators=" not in asked(count)


def fits_with_the_change(sets: list[str], workload: str, mapper: str, level: str) -> bool:
    """Whether the capacity named for a level is what the search lacks: with it, or 2 % more than it, not with 2 % less."""
    with pytest.raises(InfeasibleError) as problem:
        api.search("dgx_h100", workload, mapper, sets=sets, profile="serial")
    option = f"{level}.memory.capacity"
    named, _, said = problem.value.change.partition("=")
    assert named == option
    amount, unit = said.strip("'").split()
    api.search("dgx_h100", workload, mapper, sets=instead(sets, [f"{option}={amount} {unit}"]), profile="serial")
    with pytest.raises(InfeasibleError):
        api.search("dgx_h100", workload, mapper, sets=instead(sets, [f"{option}={float(amount) * 0.98} {unit}"]), profile="serial")
    return True


MODEL = ["b=8", "layers=8", "d=256", "g=2", "q=2", "e=64", "f=4096", "v=32000", "s=512", "phases=[forward, backward]"]
ONE_NODE = ["node.count=1", "su.count=1", "pod.count=1"]


def test_where_the_host_lacks_memory_its_level_is_named_with_what_all_its_accelerators_keep(tmp_path: Path) -> None:
    mapper = tmp_path / "m.yaml"
    mapper.write_text("mapper: m\naxes: {dp: {degree: all}}\nsplit: {dp: [b]}\noffload: [[activations]]\nhost: node\n", encoding="utf-8")
    sets = [*MODEL, *ONE_NODE, "accelerators=8", "node.memory.capacity=1 MB"]
    assert fits_with_the_change(sets, "llama", str(mapper), "node")


def test_the_memory_named_is_of_a_mapping_that_can_run(tmp_path: Path) -> None:
    """(Of all mappings one needs least that has fewer micro-batches than its schedule takes.)"""
    mapper = tmp_path / "m.yaml"
    mapper.write_text(
        "mapper: m\naxes: {pp: {degree: 4, stages: layers}, dp: {degree: free}, ep: {degree: free}}\nsplit: {dp: [b], ep: [x, b]}\n"
        "choose: {'router*': {ep: b}, 'gates*': {ep: b}, 'dispatch*': {ep: b}, 'combine*': {ep: b}}\n"
        "schedule: [interleaved, zb_h1]\ninterleave: [1, 2]\nrecompute: full\nmicro_batch: 1\nuneven: ceil\n",
        encoding="utf-8",
    )
    sets = [*MODEL, "x=4", "k=1", "accelerators=16", "node.count=2", *ONE_NODE[1:], "gpu.memory.capacity=100 MB"]
    assert fits_with_the_change(sets, "moe_llama", str(mapper), "gpu")
