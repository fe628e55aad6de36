"""Meshes on accelerators: who is in which group, and how many nodes a group touches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel.errors import InputError
from rackmodel.model.placement import Mesh, accelerators, members


def test_groups_are_all_coordinates_of_the_other_axes_and_rows_ascend() -> None:
    mesh = Mesh(("data", "tensor"), (2, 4), (4, 1))
    assert members(mesh, ["tensor"]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert members(mesh, ["data"]).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert members(mesh, ["tensor", "data"]).tolist() == [list(range(8))]
    assert members(mesh, []).tolist() == [[n] for n in range(8)]


def test_merged_axes_are_one_ascending_group_whatever_their_strides() -> None:
    mesh = Mesh(("a", "b", "c"), (2, 3, 2), (1, 4, 2), offset=12)
    assert members(mesh, ("a", "b")).tolist() == [[12, 13, 16, 17, 20, 21], [14, 15, 18, 19, 22, 23]]
    assert accelerators(mesh).min() == mesh.offset
    assert (mesh.size, accelerators(mesh).max()) == (12, 23)


@given(st.permutations(range(3)), st.lists(st.integers(1, 4), min_size=3, max_size=3), st.integers(0, 5), st.sets(st.sampled_from("abc")))
def test_mixed_radix_meshes_partition_a_contiguous_range(order: list[int], degrees: list[int], offset: int, chosen: set[str]) -> None:
    strides, stride = [0, 0, 0], 1
    for axis in order:
        strides[axis] = stride
        stride *= degrees[axis]
    mesh = Mesh(("a", "b", "c"), tuple(degrees), tuple(strides), offset)
    assert (mesh.size, accelerators(mesh).max()) == (stride, offset + stride - 1)
    groups = members(mesh, tuple(chosen))
    assert sorted(groups.reshape(-1)) == list(range(offset, offset + stride))
    assert np.all(np.diff(groups, axis=1) > 0)


def test_a_mesh_that_addresses_an_accelerator_twice_is_refused() -> None:
    with pytest.raises(InputError, match="twice"):
        Mesh(("a", "b"), (4, 2), (1, 2))
    assert sorted(accelerators(Mesh(("a", "b"), (2, 2), (2, 3)))) == [0, 2, 3, 5], "once each, though not nested"


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 12)), min_size=1, max_size=4))
def test_a_mesh_is_accepted_exactly_when_it_is_injective(axes: list[tuple[int, int]]) -> None:
    degrees, strides = zip(*axes, strict=True)
    numbers = [sum(c * s for c, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, degrees))]
    names = tuple("abcd"[: len(axes)])
    if len(set(numbers)) == len(numbers):
        assert accelerators(Mesh(names, degrees, strides)).tolist() == numbers
    else:
        with pytest.raises(InputError, match="twice"):
            Mesh(names, degrees, strides)


def test_meshes_that_do_not_fit_say_why() -> None:
    for arguments, fact in (
        ((("a",), (2, 2), (1,)), "2 degrees"),
        ((("a", "a"), (2, 2), (1, 2)), "axis twice"),
        ((("a",), (0,), (1,)), "at least 1"),
        ((("a",), (2,), (0,)), "strides must be"),
    ):
        with pytest.raises(InputError, match=fact):
            Mesh(*arguments)
    with pytest.raises(InputError, match="did you mean 'tensor'"):
        members(Mesh(("tensor",), (4,), (1,)), ["tensr"])


def test_axes_of_degree_one_may_share_a_stride() -> None:
    assert members(Mesh(("a", "b"), (1, 3), (1, 1)), ["b"]).tolist() == [[0, 1, 2]]


def test_the_members_of_a_mesh_are_remembered_and_cannot_be_changed() -> None:
    mesh = Mesh(("a",), (4,), (1,))
    assert members(mesh, ["a"]) is members(mesh, ("a",))
    with pytest.raises(ValueError):
        members(mesh, ["a"])[0, 0] = 7
