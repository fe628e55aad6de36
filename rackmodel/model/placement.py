"""A mesh of named axes on the accelerators of a machine: who is in which group.

    accelerator(c) = offset + Σ c_k · stride_k,   0 ≤ c_k < degree_k

Accelerators are numbered in tree order, so a group sorted by number visits the levels of the tree contiguously: a ring over
it leaves each level as seldom as it can. A group of p members from `base` at one stride touches

    R = min(p, (base + (p−1)·stride) // size − base // size + 1)

instances of a level that holds `size` accelerators (DERIVED, exact against enumeration).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from rackmodel.arrays import Ints
from rackmodel.errors import InputError

LARGE = 100_000  # accelerators; of larger meshes fewer arrays are remembered


@dataclass(frozen=True)
class Mesh:
    """Axes with a degree and a stride each; `offset` is the accelerator of coordinates 0, 0, ….

    Every accelerator is addressed at most once, or an InputError says which axes collide. Axes of degree 1 may have any stride.
    """

    axes: tuple[str, ...]
    degrees: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        if not len(self.axes) == len(self.degrees) == len(self.strides):
            raise InputError(f"a mesh of axes {list(self.axes)} has {len(self.degrees)} degrees and {len(self.strides)} strides")
        if len(set(self.axes)) < len(self.axes):
            raise InputError(f"a mesh names an axis twice: {list(self.axes)}")
        if any(degree < 1 for degree in self.degrees):
            raise InputError(f"degrees must be at least 1: {self._text()}")
        wide = sorted((stride, degree) for stride, degree in zip(self.strides, self.degrees, strict=True) if degree > 1)
        if self.offset < 0 or any(stride < 1 for stride, _ in wide):
            raise InputError(f"strides must be at least 1 and the offset at least 0: {self._text()}")
        reach = 0
        for stride, degree in wide:
            if stride <= reach:  # not nested: injective only by luck, so look
                numbers = np.sort(accelerators(self))
                if not np.all(np.diff(numbers) > 0):
                    raise InputError(f"the mesh addresses an accelerator twice: {self._text()}")
                break
            reach += stride * (degree - 1)

    def _text(self) -> str:
        return ", ".join(f"{a} {d} at stride {s}" for a, d, s in zip(self.axes, self.degrees, self.strides, strict=True))

    @property
    def size(self) -> int:
        """Accelerators addressed: the product of the degrees."""
        return prod(self.degrees)


def accelerators(mesh: Mesh) -> Ints:
    """[size] accelerator of every coordinate, the last axis running fastest."""
    return _offsets(mesh.degrees, mesh.strides) + mesh.offset


def members(mesh: Mesh, group_axes: Sequence[str]) -> Ints:
    """[groups, p] accelerators of every group over `group_axes`, rows in order of the other axes' coordinates, each row ascending.

    Several axes make one merged group; no axis makes groups of one. The array is read-only and remembered.
    """
    return (_members if mesh.size < LARGE else _large_members)(mesh, tuple(group_axes))


def _groups(mesh: Mesh, group_axes: tuple[str, ...]) -> Ints:
    for name in group_axes:
        if name not in mesh.axes:
            raise InputError(f"the mesh has no axis '{name}'", known=mesh.axes, given=name)
    inside = [k for k, name in enumerate(mesh.axes) if name in group_axes]
    outside = [k for k, name in enumerate(mesh.axes) if name not in group_axes]
    first = _offsets([mesh.degrees[k] for k in outside], [mesh.strides[k] for k in outside]) + mesh.offset
    within = np.sort(_offsets([mesh.degrees[k] for k in inside], [mesh.strides[k] for k in inside]))
    groups: Ints = first[:, None] + within[None, :]
    groups.flags.writeable = False
    return groups


_members, _large_members = lru_cache(maxsize=4096)(_groups), lru_cache(maxsize=16)(_groups)


def _offsets(degrees: Sequence[int], strides: Sequence[int]) -> Ints:
    """[Π degrees] Σ c·stride over all coordinates, the last axis fastest."""
    total = np.zeros(1, dtype=np.int64)
    for degree, stride in zip(degrees, strides, strict=True):
        total = (total[:, None] + np.arange(degree, dtype=np.int64) * stride).reshape(-1)
    return total
