"""A few groups that stand for all, against every group: on trees whose levels divide no mesh, and edge by edge in plain loops."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rackmodel.cost.network.collectives import ALGORITHMS, KINDS, collective, mesh_collective, send, send_table
from rackmodel.cost.network.fabric import fabric_of
from rackmodel.cost.network.likeness import merged, sample
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, accelerators, members
from tests import samples
from tests.tiers import FIGURES, priced
from tests.tiers import machine as tiers_of


def machine(*tiers: tuple[int, dict[str, Any]]) -> Architecture:
    """tiers: (children, what differs from a plain switch, slower the farther out), innermost first."""
    plain = ({"bandwidth": f"{900 / 7**number} GB/s", "latency": f"{1 + 3 * number} us"} for number in range(len(tiers)))
    return tiers_of(*((count, own | changes) for (count, changes), own in zip(tiers, plain, strict=True)))


@st.composite
def unaligned(draw: Any) -> tuple[Architecture, Mesh, tuple[str, ...]]:
    """Two to four tiers with factors of 3, 5 and 7 under a mesh of up to four axes, mostly of powers of two, that the tree holds."""
    counts = draw(st.lists(st.sampled_from([2, 3, 4, 5, 6, 7, 9]), min_size=1, max_size=3).filter(lambda found: np.prod(found) <= 90))
    total = draw(st.sampled_from([48, 64, 128, 256, 512]))
    counts.append(-(-total // int(np.prod(counts))))
    tiers = []
    for count in counts:
        adds = draw(st.booleans())
        own = draw(st.integers(0, 2)) == 0
        joined = {
            "topology": "point_to_point" if own else "switch",
            "pair_links" if own else "links": draw(st.sampled_from([None, 1, 2, 8])),
        }
        changes = joined | {"striped": draw(st.booleans()), "multicast": adds, "reduce": adds}
        reading = {"oversubscription": draw(st.sampled_from([1, 2])), "hops": draw(st.sampled_from(["slowest_link", "path_sum"]))}
        tiers.append((count, changes | reading))
    degrees, rest = [], total
    for _ in range(draw(st.integers(1, 3))):
        degrees.append(draw(st.sampled_from([d for d in range(2, 17) if rest % d == 0] or [1])))
        rest //= degrees[-1]
    degrees.append(rest if draw(st.integers(0, 3)) else draw(st.integers(1, rest)))
    strides, reach = [1] * len(degrees), 1
    for axis in draw(st.permutations(range(len(degrees)))):
        strides[axis], reach = reach, reach * degrees[axis]
    axes = tuple("abcd"[: len(degrees)])
    return machine(*tiers), Mesh(axes, tuple(degrees), tuple(strides)), tuple(draw(st.sets(st.sampled_from(axes), min_size=1)))


@settings(max_examples=samples.cases(60, 500))
@given(unaligned(), st.sampled_from(KINDS))
def test_a_few_groups_price_a_mesh_that_divides_into_no_level_as_all_groups_do(case: Any, kind: str) -> None:
    arch, mesh, axes = case
    for name in ALGORITHMS:
        few, every = priced(mesh_collective, arch, mesh, axes, kind, name), priced(collective, arch, members(mesh, axes), kind, name)
        assert (few is None) == (every is None)
        for figure in FIGURES if few else ():
            np.testing.assert_allclose(getattr(few, figure), getattr(every, figure), rtol=1e-14)


@settings(max_examples=samples.cases(50, 150))
@given(unaligned(), st.booleans())
def test_hand_overs_of_such_a_mesh_are_the_sends_of_its_pairs(case: Any, far: bool) -> None:
    arch, mesh, _ = case
    stages, stride = mesh.degrees[-1], mesh.strides[-1]
    table = send_table(arch, [mesh.degrees[:-1]], [mesh.strides[:-1]], [stages], [stride], far=far)
    here = accelerators(Mesh(mesh.axes, (*mesh.degrees[:-1], 1 if far else max(1, stages - 1)), mesh.strides))
    one = send(arch, here, here + (0 if stages == 1 else stride * (stages - 1 if far else 1)))
    for figure in FIGURES:
        np.testing.assert_allclose(getattr(table, figure)[:, 0], getattr(one, figure), rtol=1e-14)


# -- edge by edge ----------------------------------------------------------------------------------------------------------


def walked(arch: Architecture, rows: list[list[int]], kind: str) -> tuple[list[float], float]:
    """(bytes a byte of V in each tier, seconds a byte) of switches and links of pairs, without stripes: every edge put on the child that it
    leaves and enters, or on the pair that it joins. Of rings over pairs there are as many of every order, each with its part of V."""
    p, tiers = len(rows[0]), arch.tiers
    bytes_of = [0.0] * len(tiers)
    flows: list[Any] = [defaultdict(float) for _ in tiers]
    senders: list[Any] = [defaultdict(set) for _ in tiers]
    least = [defaultdict[Any, float](lambda: 1.0) for _ in tiers]  # of a link that one flow takes
    turned = kind != "all_to_all" and alike(arch, rows)
    for row in rows:
        pairs = itertools.permutations(row, 2) if kind == "all_to_all" else zip(row, row[1:] + row[:1], strict=True)
        crossed = Counter[tuple[int, int]]()
        for a, b in pairs:
            index = next(k for k, tier in enumerate(tiers) if a // (tier.below * tier.children) == b // (tier.below * tier.children))
            bytes_of[index] += 1 / p if kind == "all_to_all" else (p - 1) / p
            here, there, own = a // tiers[index].below, b // tiers[index].below, tiers[index].network.topology == "point_to_point"
            if own and turned:
                crossed[index, here // tiers[index].children] += 1
                continue
            for end, place, way in ((a, (here, there) if own else here, "out"), (b, (here, there) if own else there, "in")):
                flows[index][place, way] += 1
                senders[index][place, way].add(end)
        for (index, instance), times in crossed.items():
            used = sorted({end // tiers[index].below for end in row if end // (tiers[index].below * tiers[index].children) == instance})
            for pair in itertools.permutations(used, 2):
                flows[index][pair, "out"] += times / (len(used) * (len(used) - 1))
                least[index][pair, "out"] = times / (len(used) * (len(used) - 1))
    slowest = 0.0
    for index, tier in enumerate(tiers):
        links = tier.network.links or tier.network.pair_links or tier.below
        for child, count in flows[index].items():
            if kind == "all_to_all":
                seconds = count / min(links, len(senders[index][child])) * tier.network.oversubscription / p
            else:
                seconds = (p - 1) / p * max(least[index][child], count * tier.network.oversubscription / links)
            slowest = max(slowest, seconds / tier.network.bandwidth_bytes_per_s)
    return bytes_of, slowest


def alike(arch: Architecture, rows: list[list[int]]) -> bool:
    """Whether all children that a row uses at a tier hold as many of its members, and all instances as many of its children."""
    found: Any = defaultdict(set)
    for row in rows:
        for index, tier in enumerate(arch.tiers):
            held = Counter(member // tier.below for member in row)
            found[index, "members"] |= set(held.values())
            found[index, "children"] |= set(Counter(child // tier.children for child in held).values())
    return all(row == sorted(row) for row in rows) and all(len(sizes) == 1 for sizes in found.values())


@settings(max_examples=samples.cases(40, 120))
@given(unaligned(), st.sampled_from(["all_gather", "all_to_all"]))
def test_a_few_groups_are_what_every_edge_says(case: Any, kind: str) -> None:
    arch, mesh, axes = case
    plain = {"striped": False, "hops": "slowest_link"}
    kept = ("topology", "links", "pair_links", "oversubscription")
    arch = machine(*((tier.children, {name: getattr(tier.network, name) for name in kept} | plain) for tier in arch.tiers))
    rows = members(mesh, axes)
    assume(1 < rows.shape[1] < 40)
    use = mesh_collective(arch, mesh, axes, kind)
    wire, seconds = walked(arch, rows.tolist(), kind)
    assert use.wire_bytes_per_byte == pytest.approx(wire, rel=1e-12)
    assert sum(use.seconds_per_byte) == pytest.approx(seconds, rel=1e-12)


# -- which groups are looked at --------------------------------------------------------------------------------------------


def few(arch: Architecture, degrees: list[int], strides: list[int], own: list[bool]) -> Any:
    made = merged(np.array([degrees]), np.array([strides]), np.array(own))
    return sample(fabric_of(arch), *(part[0].tolist() for part in made))


def test_meshes_of_the_same_groups_come_to_one_form() -> None:
    degrees, strides = np.array([[4, 8, 1, 2], [8, 4, 2, 1], [2, 32, 1, 1]]), np.array([[2, 8, 7, 1], [8, 2, 1, 9], [1, 2, 3, 3]])
    found = merged(degrees, strides, np.array([True, True, False, False]))
    assert [part[0].tolist() for part in found] == [[2, 32, 1, 1], [1, 2, 1, 1], [False, True, False, False]]
    assert [part[1].tolist() for part in found] == [part[0].tolist() for part in found]
    assert found[0][2].tolist() == [64, 1, 1, 1]  # both its axes are the group's


def test_racks_of_72_repeat_every_nine_blocks() -> None:
    arch = machine((4, {}), (18, {}), (8, {}), (256, {}))
    groups = few(arch, [16, 8192], [1, 16], [True, False])
    assert groups.rows.shape == (36 + 8192 % 36, 16)  # 576 = 36 · 16
    assert Counter(groups.weight.tolist()) == {8192 // 36: 36, 1: 8192 % 36}
    assert (groups.weight.sum() * groups.count, groups.copies.tolist()) == (8192, [1, 1, 1, 1])


def test_what_carries_over_no_level_is_copied() -> None:
    arch = machine((4, {}), (18, {}), (8, {}), (256, {}))
    groups = few(arch, [64, 2048], [1, 64], [False, True])
    assert (groups.rows.shape, groups.count, groups.copies.tolist()) == ((8, 2048), 8, [1, 4, 8, 8])


def test_places_in_a_ring_matter_so_every_group_is_looked_at() -> None:
    arch = machine((4, {}), (18, {"topology": "ring"}), (8, {}))
    assert few(arch, [16, 32], [1, 16], [True, False]).rows.shape == (32, 16)
