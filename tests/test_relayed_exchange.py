"""Tokens that go once to every node that holds some of their experts, and on from there: every choice of experts walked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, combinations
from math import comb, prod
from typing import Any

import pytest

from rackmodel.api import search_mapper
from rackmodel.errors import InputError
from rackmodel.inputs.read import read_architecture, read_mapper, read_profile, read_workload
from rackmodel.model.architecture import Architecture
from rackmodel.results import Result
from tests.test_relays import machine

TOKENS, BYTES = 64, 2 * 256  # of all ranks; of a token's vector
RATES = {"tier0": 400e9, "tier1": 50e9, "tier2": 10e9}


def joined(*counts: int) -> Architecture:
    """Accelerators under switches, innermost first, without starts."""
    return machine(*((count, {"bandwidth": f"{RATES[f'tier{at}'] / 1e9} GB/s"}) for at, count in enumerate(counts)))


def layer(given: Architecture, experts: int, top: int, exchange: str, sets: Sequence[str] = (), mode: str = "auto") -> Result:
    sizes = [f"x={experts}", f"k={top}", f"b={TOKENS}", "s=1", "d=256", "f=128", "phases=[forward]", *sets]
    profile = read_profile("serial", [f"profile.collectives={{library: nccl, exchange: {exchange}, exchange_mode: {mode}}}"])
    return search_mapper(given, read_workload("moe", sizes), read_mapper("expert"), profile=profile).result


def walked(counts: tuple[int, ...], experts: int, top: int) -> Counter[int]:
    """Level → copies of a token that its network carries, in the mean over all owners and all choices of experts."""
    ranks, found, below = prod(counts), Counter[int](), [1, *accumulate(counts, lambda held, count: held * count)]
    choices = list(combinations(range(experts), top))
    for owner in range(ranks):
        for chosen in choices:
            wanted, at = {expert * ranks // experts for expert in chosen}, {owner}
            for level in reversed(range(len(counts))):  # from where it is to its like in every child that wants it, outermost first
                reached = set()
                for here in at:
                    group = here // (below[level] * counts[level]) * below[level] * counts[level]
                    for child in range(counts[level]):
                        first = group + child * below[level]
                        there = first + here % below[level]
                        if any(first <= rank < first + below[level] for rank in wanted):
                            reached.add(there)
                            found[level] += there != here
                at = reached
            assert at == wanted
    return Counter({level: count / ranks / len(choices) for level, count in found.items()})


@pytest.mark.parametrize(
    ("counts", "experts", "top"), [((2, 2), 4, 2), ((2, 2), 8, 3), ((4, 2), 8, 2), ((2, 4), 16, 2), ((2, 2, 2), 8, 3), ((4,), 8, 3)]
)
def test_networks_carry_a_copy_for_every_child_that_holds_one_of_a_tokens_experts(counts: tuple[int, ...], experts: int, top: int) -> None:
    found = layer(joined(*counts), experts, top, "relayed")
    copies, times = walked(counts, experts, top), []
    for level in range(len(counts)):
        rows = [row for row in found.ledger.rows if row.tensor == "D" and row.action == "all_to_all" and row.level == f"tier{level}"]
        assert sum(row.amount for row in rows) == pytest.approx(TOKENS * copies[level] * BYTES)
        times.append(TOKENS / prod(counts) * copies[level] * BYTES / RATES[f"tier{level}"])
    sent = [row for row in found.ledger.rows if row.tensor == "D" and row.action == "all_to_all"]
    assert sum(row.exposed_seconds for row in sent) == pytest.approx(max(times))  # levels work at once


def test_levels_that_the_same_links_join_relay_nothing_between_them() -> None:
    """Eight nodes under one switch, or by fours under two of a fat tree, each GPU with one NIC: a node is sent a token once in both, by the
    same NICs. c(8) = 8 (1 - C(14, 3) / C(16, 3)) = 2.8 nodes, of which 7/8 are others, 4/8 under the other switch."""
    nic = {"bandwidth": "50 GB/s"}
    flat, tree = (machine((2, {"bandwidth": "400 GB/s"}), *((count, nic) for count in counts)) for counts in ((8,), (4, 2)))
    rows = {
        name: [row for row in layer(given, 16, 3, "relayed").ledger.rows if row.tensor == "D" and row.action == "all_to_all"]
        for name, given in (("flat", flat), ("tree", tree))
    }
    sent = {(name, row.level): row.amount / TOKENS / BYTES for name, own in rows.items() for row in own}
    assert sent["flat", "tier1"] == pytest.approx(2.8 * 7 / 8)
    assert (sent["tree", "tier1"], sent["tree", "tier2"]) == pytest.approx((2.8 * 3 / 8, 2.8 * 4 / 8))
    assert sent["flat", "tier0"] == pytest.approx(sent["tree", "tier0"])
    seconds = [sum(row.exposed_seconds for row in own) for own in rows.values()]
    assert seconds == pytest.approx([TOKENS / 16 * 2.8 * 7 / 8 * BYTES / 50e9] * 2)


@pytest.mark.parametrize(("speed", "seconds"), [(50, 2.8 * 7 / 8 / 50e9), (40, 2.8 * 7 / 8 / 50e9), (25, 2.8 * 4 / 8 / 25e9)])
def test_a_nic_is_no_slower_where_the_switches_above_are(speed: float, seconds: float) -> None:
    """By hand: 2.8 nodes a token as above; a NIC of 50 GB/s sends all of it, a slower network above the half that goes across."""
    above = {"bandwidth": f"{speed} GB/s", "same_links": True}
    given = machine((2, {"bandwidth": "400 GB/s"}), (4, {"bandwidth": "50 GB/s"}), (2, above))
    rows = [row for row in layer(given, 16, 3, "relayed").ledger.rows if row.tensor == "D" and row.action == "all_to_all"]
    assert sum(row.exposed_seconds for row in rows) == pytest.approx(TOKENS / 16 * BYTES * seconds)


def test_kernels_of_low_latency_send_every_expert_its_own_where_they_were_not_measured() -> None:
    """DeepEP was measured on nodes of B300, not between them: 8 experts of 32 ranks, three quarters of them on other nodes."""
    given = read_architecture("dgx_b300", ["accelerators=32"])
    outside = {
        mode: sum(row.amount for row in layer(given, 64, 8, "deepep", mode=mode).ledger.rows if row.tensor == "D" and row.level == "su")
        for mode in ("low_latency", "normal")
    }
    assert outside["low_latency"] == pytest.approx(TOKENS * 8 * 0.75 * BYTES)
    assert outside["normal"] == pytest.approx(TOKENS * 4 * (1 - comb(48, 8) / comb(64, 8)) * 0.75 * BYTES)


def test_fewer_bytes_leave_a_node_than_when_every_expert_is_sent_its_own() -> None:
    """8 experts of 64 on 4 nodes of 8: 4 (1 - C(48, 8) / C(64, 8)) = 3.66 nodes, where 8 copies go out otherwise."""
    outside = {
        name: sum(row.amount for row in layer(joined(8, 4), 64, 8, name).ledger.rows if row.tensor == "D" and row.level == "tier1")
        for name in ("relayed", "all_to_all")
    }
    assert outside["relayed"] / outside["all_to_all"] == pytest.approx(0.4575, abs=5e-4)


def test_a_router_that_keeps_to_some_groups_sends_less_between_nodes() -> None:
    """8 experts of 64, of 2 of 4 groups, a node each: 2 (1 - C(16, 8) / C(32, 8)) = 1.9976 nodes, three quarters of the time another."""
    given, routing = joined(8, 4), ["routing={x: {groups: 4, kept: 2}}"]
    kept, free = (layer(given, 64, 8, "relayed", sets) for sets in (routing, []))
    outside = [sum(row.amount for row in one.ledger.rows if row.tensor == "D" and row.level == "tier1") for one in (kept, free)]
    assert outside[0] == pytest.approx(TOKENS * 0.75 * 1.99755 * BYTES, rel=1e-5)
    assert outside[0] / outside[1] == pytest.approx(1.99755 / 3.65887, rel=1e-4)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{y: {groups: 4, kept: 2}}", "no index 'y'"),
        ("{f: {groups: 4, kept: 2}}", "'f' counts no experts"),
        ("{x: {groups: 3, kept: 2}}", "8 experts in 3 groups"),
        ("{x: {groups: 4, kept: 5}}", "5 of 4 groups"),
        ("{x: {groups: 8, kept: 1}}", "1 of 8 groups hold 1 of 8 experts, a token takes 2"),
    ],
)
def test_groups_that_cannot_be_are_refused(said: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_workload("moe", [f"routing={said}"])


@pytest.mark.parametrize(("exchange", "published"), [("all_to_all", 346), ("relayed", 579)])
def test_deepseek_v3_on_512_h100_in_torchtitan(exchange: str, published: float) -> None:
    """Tokens a second and GPU without and with DeepEP (pytorch/torchtitan pull request 2107: H100, 8 stages, 32 expert ranks, 64 of FSDP,
    everything made again), foretold from components alone; 64 layers, which 8 x 2 chunks divide, for 61: by as much faster."""
    degrees = {"pp": 8, "ep": 32, "dp": 2, "cp": 1, "tp": 1}
    sharded = "homes={weights: {axes: [dp, ep], state: shard, grad: shard, param: shard}}"
    said = ["recompute=full", "schedule=interleaved", "interleave=2", "micro_batch=1", sharded]
    mapper = read_mapper("parallel_moe", [*(f"axes.{axis}.degree={degree}" for axis, degree in degrees.items()), *said])
    profile = read_profile("torchtitan_eager", ["profile.collectives.library=nccl", f"profile.collectives.exchange={exchange}"])
    given, model = read_architecture("dgx_h100", ["accelerators=512"]), read_workload("moe_mla", ["b=1024", "layers=64"])
    found = 1024 * 4096 / search_mapper(given, model, mapper, profile=profile).result.latency_s / 512 * 64 / 61
    print(f"{exchange}: {found:.0f} tokens a second and GPU, {published} published")
    assert found == pytest.approx(published, rel=0.25)


def test_what_is_not_known_is_refused_with_what_is() -> None:
    with pytest.raises(InputError, match="no exchange of tokens by 'relaid'") as problem:
        layer(joined(2, 2), 4, 2, "relaid")
    known: Any = problem.value.known
    assert "relayed" in known
