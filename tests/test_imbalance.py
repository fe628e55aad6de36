"""Experts that are chosen unevenly: the accelerator whose are chosen most sets the pace and needs the room; amounts stay as they are."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.model.result import Result

TOKENS = {"D", "dD", "H", "dH", "A", "dA", "E", "dE"}  # at experts


def found(most: float | None, accelerators: int = 8, *sets: str) -> Result:
    more = [] if most is None else [f"workload.imbalance={{x: {most}}}"]
    return api.search("rack_paper", "moe", "expert", sets=[f"accelerators={accelerators}", *more, *sets], profile="serial").result


def on_a_ring(p: int, most: float) -> float:
    """Messages over the busiest link of a ring, over those of an even exchange: rank 0 is sent `most` times what the mean is, each other
    the rest. Each goes the shorter way, or half of it either way."""

    def busiest(most: float) -> float:
        links: Counter[tuple[int, int]] = Counter()
        for here, there in permutations(range(p), 2):
            size, ahead = (most if there == 0 else (p - most) / (p - 1)), (there - here) % p
            for way, steps in ((1, ahead), (-1, p - ahead)):
                for step in range(steps if 2 * steps <= p else 0):
                    links[(here + way * step) % p, way] += size / (2 if 2 * steps == p else 1)
        return max(links.values())

    return busiest(most) / busiest(1.0)


@pytest.mark.parametrize(("accelerators", "most"), [(8, 3.0), (8, 8.0), (4, 1.5), (2, 1.25), (16, 2.0)])
def test_a_ring_relays_less_of_what_goes_to_one_rank_than_of_an_even_exchange(accelerators: int, most: float) -> None:
    ring = accelerators, f"gpu.count={accelerators}", "k=1"  # (of one expert a token all may go to one of eight)
    even, crowded = (found(one, *ring).ledger.where(action="all_to_all").total("seconds") for one in (None, most))
    assert crowded / even == pytest.approx(on_a_ring(accelerators, most), rel=1e-9)


def test_experts_and_their_tokens_take_as_much_longer_and_nothing_else_does() -> None:
    even, crowded = found(None), found(1.5)
    count = Counter[str]()
    for was, row in zip(even.ledger, crowded.ledger, strict=True):
        at_experts = row.einsum in ("fc1", "act", "fc2") and (row.component == "compute" or row.tensor in TOKENS)
        times = on_a_ring(8, 1.5) if row.action == "all_to_all" else 1.5 if at_experts else 1.0  # those have no start on this machine
        if row.component != "static":
            assert (row.amount, row.tensor) == (was.amount, was.tensor)  # over all accelerators
            assert row.seconds == pytest.approx(times * was.seconds, rel=1e-12), row
            count[row.action] += times > 1 and was.seconds > 0
    assert set(count) > {"mac", "read", "write", "all_to_all"}
    assert min(count[action] for action in ("mac", "read", "write", "all_to_all")) > 1


def test_no_accelerator_has_more_tokens_than_there_are() -> None:
    """Of 2 of 8 experts a token those of one expert alone are all tokens at most, 4 times the mean; of 4 each has half of all, 2 times.
    (Until 30 November 2026 the one expert of one of 8 was sent all of them twice.)"""
    assert found(20).latency_s == found(4).latency_s > found(3.9).latency_s
    assert found(20, 8, "k=1").latency_s == found(8, 8, "k=1").latency_s > found(7.9, 8, "k=1").latency_s
    assert found(20, 8, "k=4").latency_s == found(2, 8, "k=4").latency_s > found(1.9, 8, "k=4").latency_s
    assert found(20, 2).latency_s == found(2, 2).latency_s > found(1.9, 2).latency_s
    assert found(1).latency_s == found(None).latency_s
    assert found(4, 1).latency_s == found(None, 1).latency_s


def step(most: float | None, tokens: int = 2048, profile: str = "serial") -> Result:
    """Of two layers of Mixtral, an expert an accelerator, sequence by sequence."""
    degrees = [f"axes.{axis}.degree={8 if axis == 'ep' else 1}" for axis in ("ep", "dp", "tp", "cp", "pp")]
    sets = ["accelerators=8", "b=16", f"s={tokens}", "layers=2", "micro_batch=1", "recompute=[none]", *degrees]
    sets += [] if most is None else [f"workload.imbalance={{x: {most}}}"]
    return api.search("dgx_h100", "moe_llama", "parallel_moe", sets=sets, profile=profile).result


def products(result: Result) -> float:
    """Seconds of products over experts on the device."""
    rows = [row for row in result.ledger if row.einsum in ("gate", "up", "down") and row.component in ("compute", "memory")]
    return float(sum(row.exposed_seconds for row in rows if row.phase != "optimizer"))


@pytest.mark.parametrize("profile", ["megatron_core", "ideal"])
def test_kernels_take_what_half_as_many_tokens_more_take(profile: str) -> None:
    assert products(step(1.5, profile=profile)) == pytest.approx(products(step(None, 3072, profile)), rel=0.01)  # the pace is of each step


def test_what_is_kept_of_tokens_at_experts_needs_room_for_the_most() -> None:
    even, crowded = (step(most).memory_bytes_per_accelerator for most in (None, 1.5))
    # of a sequence an accelerator, two experts a token: what they read, gate, up and their product; what they made is back with its token
    kept = 2 * 2048 * (4096 + 3 * 14336) * 2 * 2
    assert crowded - even == 0.5 * kept


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{y: 1.5}", "no index 'y'"),
        ("{x: 0.5}", "it must be 1 or more"),
        ("{d: 1.5}", "counts no experts"),
    ],
)
def test_what_is_no_imbalance_is_refused_with_its_place(said: str, told: str, tmp_path: Path) -> None:
    text = Path("workloads/moe.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{text}imbalance: {said}\n", encoding="utf-8")
    with pytest.raises(InputError, match=told) as caught:
        api.search("rack_paper", str(path), "expert", sets=["accelerators=8"])
    assert f"mine.yaml:{len(text.splitlines()) + 1}:" in str(caught.value)


def test_a_decoder_and_a_loop_nest_say_it_otherwise() -> None:
    with pytest.raises(InputError, match=r"serving\.skew"):
        api.search("dgx_h100", "mixtral_8x7b_decoder", "serving", sets=["workload.imbalance={x: 1.5}"])
    with pytest.raises(InputError, match="a loop nest knows no accelerator"):
        api.search("edge3", "moe", "loopnest", sets=["workload.imbalance={x: 1.5}"])
