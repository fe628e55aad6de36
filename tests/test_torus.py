"""Collectives on tori: rings along every dimension at once, both ways round, run on data and walked over every link."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.cost.network.collectives import collective, mesh_collective, offered
from rackmodel.cost.network.relays import Ways
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, members
from tests import samples
from tests.test_relays import machine, routes

GATHERS = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}


def torus(*shape: int, links: int = 2, **said: Any) -> Architecture:
    return machine((int(np.prod(shape)), {"topology": "torus", "shape": list(shape), "links": links} | said))


class ReduceScatter:
    """One on data: `parts` of every member's vector, half of each either way round, go round one dimension after another, each part from
    another one. A member owns a block of each part and way. held: [part, way, *member, *owner] sums so far · phases: blocks that go from
    each member to another in each."""

    def __init__(self, extents: tuple[int, ...]) -> None:
        self.extents, self.used = extents, [axis for axis, extent in enumerate(extents) if extent > 1]
        self.values = np.random.default_rng(0).integers(0, 100, (len(self.used), 2, *extents, *extents))
        self.held, self.phases = self.values.copy(), []
        for phase in range(len(self.used)):
            self.phases.append(defaultdict(int))
            for part in range(len(self.used)):
                turned = self.used[part:] + self.used[:part]
                for way in (0, 1):
                    self.go_round(part, way, turned[phase], turned[:phase])

    def go_round(self, part: int, way: int, axis: int, before: list[int]) -> None:
        """In step t every member hands on the blocks of who is t further against the way, q − 1 times."""
        q, step, held = self.extents[axis], (1, -1)[way], self.held[part, way]
        for turn in range(1, q):
            arriving = held.copy()
            for member in np.ndindex(self.extents):
                to = tuple((at + step) % q if number == axis else at for number, at in enumerate(member))
                for owner in np.ndindex(self.extents):
                    if owner[axis] == (member[axis] - step * turn) % q and all(owner[other] == member[other] for other in before):
                        arriving[to + owner] += held[member + owner]
                        self.phases[-1][member, to] += 1
            held = arriving
        self.held[part, way] = held

    def has_all_sums(self) -> bool:
        """Whether every member's own blocks hold everyone's."""
        members = tuple(range(2, 2 + len(self.extents)))
        whole, every = self.values.sum(axis=members), (slice(None), slice(None))
        return all(np.array_equal(self.held[(*every, *at, *at)], whole[(*every, *at)]) for at in np.ndindex(self.extents))

    def seconds(self, ways: Ways, links: int, boxes: list[np.ndarray]) -> float:
        """Of V = 1 byte a member on links of 1 byte a second, in these boxes of places at once: the busiest link of every phase."""
        total = 0.0
        for sent in self.phases:
            directed: Any = defaultdict(float)
            child: Any = defaultdict(float)
            for box in boxes:
                for (a, b), blocks in sent.items():
                    for share, path in routes(ways, int(box[a]), int(box[b])):
                        for dimension, step, here, then in path:
                            directed[dimension, step, here] += share * blocks
                            child["out", dimension, here] += share * blocks
                            child["into", dimension, then] += share * blocks
            total += max(directed.values()) if links > 1 else max(child.values())
        return total / (2 * len(self.used) * int(np.prod(self.extents)))


def box_of(shape: tuple[int, ...], row: np.ndarray) -> np.ndarray | None:
    """The places of a row as a box of the torus, None where they are none."""
    along = np.unravel_index(row, shape)
    extents = tuple(len(set(one.tolist())) for one in along)
    grid = np.array(np.meshgrid(*(sorted(set(one.tolist())) for one in along), indexing="ij")).reshape(len(shape), -1)
    return row.reshape(extents) if len(row) == np.prod(extents) and np.array_equal(np.ravel_multi_index(tuple(grid), shape), row) else None


SHAPES = st.sampled_from([(4, 1), (2, 2), (3, 4), (2, 6), (4, 4), (2, 2, 3), (4, 2, 2), (3, 1, 4)])


@settings(max_examples=samples.cases(25, 250), deadline=None)
@given(SHAPES, st.sampled_from([1, 2]), st.sampled_from(sorted(GATHERS)), st.data())
def test_a_torus_takes_what_its_links_carry_of_a_run_on_data(shape: Any, links: int, kind: str, data: Any) -> None:
    count = int(np.prod(shape))
    near = data.draw(st.sampled_from([d for d in range(1, count) if count % d == 0]))
    p = data.draw(st.sampled_from([d for d in range(2, count // near + 1) if count // near % d == 0]))
    mesh = Mesh(("far", "group", "near"), (count // near // p, p, near), (p * near, near, 1))
    rows, arch = members(mesh, ("group",)), torus(*shape, links=links)
    boxes = [box_of(shape, row) for row in rows]
    whole = [box for box in boxes if box is not None and box.shape == boxes[0].shape]  # type: ignore[union-attr]
    if len(whole) < len(boxes):
        assert "torus" not in offered(arch, mesh, ("group",), kind)
        return
    run = ReduceScatter(whole[0].shape)
    assert run.has_all_sums()
    use = mesh_collective(arch, mesh, ("group",), kind, "torus")
    assert use == collective(arch, rows, kind, "torus") == mesh_collective(arch, mesh, ("group",), kind)
    assert use.total(100e9) == pytest.approx(GATHERS[kind] * run.seconds(Ways(shape, True), links, whole))


def test_a_ring_of_eight_chips_takes_what_googles_book_says() -> None:
    """bf16[2048, 8192] gathered on 8 TPU v5e of 9e10 B/s both ways together: bytes / W = 373 us for very many chips, 7/8 of it for these
    (jax-ml.github.io/scaling-book, sharded matrices)."""
    arch = torus(8, 1, bandwidth="45 GB/s")
    assert collective(arch, np.arange(8)[None, :], "all_gather").total(2 * 2048 * 8192) == pytest.approx(7 / 8 * 373e-6, rel=1e-3)


@pytest.mark.parametrize(("shape", "links"), [((8, 1), 2), ((4, 4), 4), ((4, 4, 4), 6)])
def test_a_full_torus_works_with_all_its_links(shape: Any, links: int) -> None:
    """All-reduce: 2 V (N − 1)/N leave each child, over both links of every dimension at once; the same bytes go as in one ring."""
    n = int(np.prod(shape))
    use = collective(torus(*shape), np.arange(n)[None, :], "all_reduce")
    assert use.total(100e9) == pytest.approx(2 * (n - 1) / n / links)
    assert use.wire_bytes_per_byte == pytest.approx((2 * (n - 1),))


def test_start_ups_are_those_of_the_longest_ring_of_every_phase() -> None:
    """4 x 2 x 2: of three parts one is in the ring of four in every phase."""
    use = collective(torus(4, 2, 2, latency="1 us"), np.arange(16)[None, :], "reduce_scatter")
    assert use.latency_s == pytest.approx((3 * 3e-6,))


def test_cubes_of_a_torus_of_cubes_exchange_what_each_chip_has_left() -> None:
    """8 chips in a cube of 2 x 2 x 2 and 8 cubes: 7/8 V inside over three dimensions, 7/8 V/8 outside over as many, there and back."""
    cube = {"topology": "torus", "shape": [2, 2, 2], "links": 2}
    pod = {"topology": "torus", "shape": [2, 2, 2], "links": 8, "bandwidth": "50 GB/s"}  # 4 chips of a face, to either side
    use = collective(machine((8, cube), (8, pod)), np.arange(64)[None, :], "all_reduce", "torus")
    inside, outside = 2 * 7 / 8 / 6 / 100e9, 2 * 7 / 8 / 8 / 6 / 50e9 * (8 / 4)  # 8 chips share the 4 links of a face
    assert use.seconds_per_byte == pytest.approx((inside, outside))


def test_members_that_are_no_box_go_round_in_one_ring() -> None:
    """3 of a row of 2 x 4 are a box, 3 that turn the corner are none."""
    arch = torus(2, 4)
    box, corner = np.array([[0, 1, 2]]), np.array([[2, 3, 4]])
    assert collective(arch, box, "all_gather") == collective(arch, box, "all_gather", "torus")
    with pytest.raises(Exception, match="'torus' does not apply to all_gather"):
        collective(arch, corner, "all_gather", "torus")
    assert collective(arch, corner, "all_gather").total(100e9) > 0
