"""What children relay takes time: every message walked over every link of rings, tori and meshes, and what is left as it was."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.cost.network.collectives import collective, mesh_collective, send, send_table
from rackmodel.cost.network.relays import Ways, exchange_sharing, transfers_sharing
from rackmodel.model.placement import Mesh, accelerators, members
from tests import samples
from tests.tiers import machine

# -- a walk of every message -----------------------------------------------------------------------------------------------


def routes(ways: Ways, source: int, target: int) -> list[tuple[float, list[tuple[int, int]]]]:
    """(share, links as (from, to) places) of the shortest routes, one dimension after another, the last first."""
    here, there = (list(np.unravel_index(place, ways.shape)) for place in (source, target))
    found: list[tuple[float, list[tuple[int, int]], list[Any]]] = [(1.0, [], here)]
    for k in reversed(range(len(ways.shape))):
        extent, further = ways.shape[k], []
        for share, links, at in found:
            options = {}
            for step in (1, -1):
                path, now = [], list(at)
                while now[k] != there[k]:
                    then = list(now)
                    then[k] += step
                    if ways.wraps:
                        then[k] %= extent
                    elif not 0 <= then[k] < extent:
                        break
                    path.append((k, step, int(np.ravel_multi_index(now, ways.shape)), int(np.ravel_multi_index(then, ways.shape))))
                    now = then
                if now[k] == there[k]:
                    options[step] = (path, now)
            least = min(len(path) for path, _ in options.values())
            best = [option for option in options.values() if len(option[0]) == least]
            for path, now in best if least else best[:1]:
                further.append((share / (len(best) if least else 1), links + path, now))
        found = further
    return [(share, links) for share, links, _ in found]


def walked(ways: Ways, links: int, messages: list[tuple[int, int, int]]) -> float:
    """Most that share a child's links, of messages (instance, from, to): halves of them, or a lone one (cost/network/relays)."""
    directed: Any = defaultdict(float)
    out: Any = defaultdict(float)
    into: Any = defaultdict(float)
    for instance, a, b in messages:
        for share, path in routes(ways, a, b):
            for dimension, step, here, then in path:
                directed[instance, dimension, step, here] += share
                out[instance, dimension, here] += share
                into[instance, dimension, then] += share
    one = max(directed.values(), default=0.0)
    if not ways.wraps:
        return one
    return 2 * one if links > 1 else max([*out.values(), *into.values()], default=0.0)


SHAPES = st.one_of(
    st.tuples(st.integers(1, 9)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4)),
)


@settings(max_examples=samples.cases(100, 300))
@given(SHAPES, st.booleans(), st.sampled_from([1, 2, 6]), st.data())
def test_transfers_are_what_a_walk_over_every_link_counts(shape: Any, wraps: bool, links: int, data: Any) -> None:
    ways, places = Ways(shape, wraps), st.integers(0, int(np.prod(shape)) - 1)
    messages = data.draw(st.lists(st.tuples(st.integers(0, 2), places, places), min_size=1, max_size=30))
    instance, source, target = np.array(messages).T
    assert transfers_sharing(ways, links, instance, source, target, np.ones(len(messages))) == pytest.approx(walked(ways, links, messages))


@settings(max_examples=samples.cases(80, 200))
@given(SHAPES, st.booleans(), st.sampled_from([1, 2, 6]), st.data())
def test_exchanges_are_what_a_walk_over_every_link_counts(shape: Any, wraps: bool, links: int, data: Any) -> None:
    ways, places = Ways(shape, wraps), st.integers(0, int(np.prod(shape)) - 1)
    groups = data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.dictionaries(places, st.integers(1, 3), min_size=1, max_size=6)), min_size=1, max_size=4)
    )
    runs = [(owner, instance, place, count) for owner, (instance, held) in enumerate(groups) for place, count in sorted(held.items())]
    messages = [
        (instance, a, b)
        for instance, held in groups
        for (a, x), (b, y) in itertools.product(held.items(), repeat=2)
        if a != b
        for _ in range(x * y)
    ]
    assert exchange_sharing(ways, links, *np.array(runs).T) == pytest.approx(walked(ways, links, messages))


# -- of a machine ----------------------------------------------------------------------------------------------------------

NETS = st.sampled_from(
    [
        (8, {"topology": "ring"}, Ways((8,), True)),
        (5, {"topology": "ring", "links": 2}, Ways((5,), True)),
        (6, {"topology": "torus", "shape": [6, 1]}, Ways((6, 1), True)),
        (12, {"topology": "torus", "shape": [3, 4], "links": 2}, Ways((3, 4), True)),
        (16, {"topology": "torus", "shape": [2, 2, 4], "links": 4}, Ways((2, 2, 4), True)),
        (12, {"topology": "mesh", "shape": [2, 3, 2]}, Ways((2, 3, 2), False)),
    ]
)


@settings(max_examples=samples.cases(60, 150))
@given(NETS, st.data(), st.booleans(), st.booleans())
def test_an_exchange_and_hand_overs_of_a_mesh_take_their_busiest_link(net: Any, data: Any, inner: bool, striped: bool) -> None:
    count, said, ways = net
    arch = machine((count, said | {"striped": striped}), (2, {"bandwidth": "1000 TB/s"}))
    near = data.draw(st.sampled_from([1, 2, 3, 4]))
    p = data.draw(st.sampled_from([d for d in range(1, 9) if near * d <= 2 * count]))
    far = 2 * count // (near * p)
    mesh = Mesh(("far", "group", "near"), (far, p, near), (p * near, near, 1))
    axes = ("group", "near") if inner else ("group",)
    rows, links = members(mesh, axes), said.get("links", 1)
    together = [(a // count, a % count, b % count) for row in rows for a in row for b in row if a != b and a // count == b // count]
    use = mesh_collective(arch, mesh, axes, "all_to_all")
    assert use == collective(arch, rows, "all_to_all")
    if together:
        seconds = walked(ways, links, together) / links / rows.shape[1] / 100e9
        assert use.total(1.0) == pytest.approx(max(seconds, use.total(1.0) if not use.seconds_per_byte[0] else 0.0))
    here = accelerators(Mesh(("far", "group", "near"), (far, max(1, p - 1), near), mesh.strides))
    pairs = [(a // count, a % count, (a + near) % count) for a in here.tolist() if a // count == (a + near) // count]
    if p > 1 and said["topology"] != "ring" and len(pairs) == len(here):
        one = send(arch, here, here + near)
        assert one.total(1.0) == pytest.approx(max(1.0 / links if striped else 1.0, walked(ways, links, pairs) / links) / 100e9)
        table = send_table(arch, [[far, near]], [[p * near, 1]], [p], [near])
        assert table.total(1.0)[0] == pytest.approx(one.total(1.0))


def test_an_all_to_all_on_a_ring_of_eight_is_no_faster_than_its_links() -> None:
    """32 MiB: 16 V of traversals on 8 links of 900 GB/s take 74.6 us, however they are spread."""
    use = collective(machine((8, {"topology": "ring", "bandwidth": "900 GB/s"})), np.arange(8)[None, :], "all_to_all")
    assert use.wire_bytes_per_byte == (16.0,)
    assert use.total(2**25) == pytest.approx(16 * 2**25 / (8 * 900e9)) == pytest.approx(74.565e-6, rel=1e-4)


def test_two_links_on_a_ring_are_one_to_either_neighbour() -> None:
    arch = machine((8, {"topology": "torus", "shape": [8, 1], "links": 2, "striped": True}))
    assert send(arch, np.array([0]), np.array([1])).total(100e9) == pytest.approx(1)
    assert send(arch, np.array([0]), np.array([4])).total(100e9) == pytest.approx(0.5)  # half each way round
    assert send(arch, np.array([0, 1]), np.array([2, 3])).total(100e9) == pytest.approx(2)  # both from 1 to 2
    lone = machine((8, {"topology": "torus", "shape": [8, 1]}))
    assert send(lone, np.array([0]), np.array([1])).total(100e9) == pytest.approx(1)  # the one link serves both sides


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "broadcast", "halo"])
@pytest.mark.parametrize("said", [{"topology": "ring"}, {"topology": "torus", "shape": [8, 1]}])
def test_neighbours_in_a_ring_take_what_they_took(kind: str, said: dict[str, Any]) -> None:
    steps = {"all_gather": 7 / 8, "all_reduce": 14 / 8, "broadcast": 1, "halo": 2}[kind]
    assert collective(machine((8, said)), np.arange(8)[None, :], kind).total(100e9) == pytest.approx(steps)


def test_pairs_on_a_ring_have_a_link_each_as_the_rack_paper_counts() -> None:
    arch = machine((8, {"topology": "ring"}))
    assert send(arch, np.arange(4), np.arange(4) + 4).total(100e9) == pytest.approx(1)


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "broadcast"])
def test_rings_at_a_stride_take_their_busiest_link(kind: str, stride: int) -> None:
    """On a torus of 8 with a link to either neighbour, `stride` groups of 8 / stride relay over one another's links; what is gathered or
    summed goes half either way."""
    arch = machine((8, {"topology": "torus", "shape": [8, 1], "links": 2}))
    p = 8 // stride
    rows = members(Mesh(("group", "near"), (p, stride), (stride, 1)), ("group",))
    each = {"all_gather": (p - 1) / p, "reduce_scatter": (p - 1) / p, "all_reduce": 2 * (p - 1) / p, "broadcast": 1.0}[kind]
    flows = [(0, int(a), int(b)) for row in rows for a, b in zip(row, np.roll(row, -1), strict=True)]
    chain = [flow for flow in flows if flow[1] < flow[2]]
    back = [(at, there, here) for at, here, there in flows]
    busiest = walked(Ways((8, 1), True), 2, chain if kind == "broadcast" else flows + back) / 2
    assert collective(arch, rows, kind).total(100e9) == pytest.approx(each * busiest / (1 if kind == "broadcast" else 2))
