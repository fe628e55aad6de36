"""Numbers of a mapper's lists (`axes.NAME.degree`, `micro_batch`, `interleave`) that no mapping of its space has.

What becomes of them: model/listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rackmodel.arrays import Bools, Ints
from rackmodel.cost.step.columns import Columns
from rackmodel.mapper.listed_choices import listed
from rackmodel.mapper.mapspace import Mapspace
from rackmodel.model.listed import Asked, passed_over_in
from rackmodel.model.schedules import TABLE, chunk_counts


def numbers_passed_over(space: Mapspace) -> tuple[str, ...]:
    """A sentence for each list with numbers that no mapping of a space has, whatever it holds and takes. Raises InputError for a list that
    has no others."""
    return passed_over_in(_asked(space), f"mapping of {space.accelerators} accelerators")


def _asked(space: Mapspace) -> Iterator[Asked]:
    """Every list of numbers that a mapper states."""
    mapper = space.mapper
    degrees_of = {name: axis.degree for name, axis in mapper.axes.items() if isinstance(axis.degree, list)}
    chunked = mapper.interleave not in (1, "free")
    if not degrees_of and not isinstance(mapper.micro_batch, list) and not chunked:
        return
    pipes = _Pipes(space)
    meshes = [(columns.pick(np.flatnonzero(pipes.runs(columns))), parents) for columns, parents in _meshes(space)]
    for name, degrees in degrees_of.items():
        cut = mapper.axes[name].stages == "layers"
        own = [columns.stages if cut else _degrees(columns, parents, name) for columns, parents in meshes]
        yield f"axes.{name}.degree", degrees, _distinct(own)
    if isinstance(mapper.micro_batch, list):
        yield "micro_batch", mapper.micro_batch, _distinct(columns.micro_batch for columns, _ in meshes)
    if chunked:
        there = {1} | {number for number in listed(mapper.interleave) if any(pipes.holds(number, columns) for columns, _ in meshes)}
        yield "interleave", listed(mapper.interleave), frozenset(there)


def _meshes(space: Mapspace) -> Iterator[tuple[Columns, tuple[str, ...]]]:
    """Columns, and the axis of the mapper that each of their axes is a part of."""
    yield from ((group.columns, group.parents) for group in space.groups)
    yield from ((problem.columns, problem.mesh.parents) for problem in space.problems)


def _degrees(columns: Columns, parents: tuple[str, ...], name: str) -> Ints:
    """[n] the degree of an axis of the mapper."""
    return np.asarray(columns.degrees[:, [number for number, parent in enumerate(parents) if parent == name]].prod(axis=1))


def _distinct(numbers: Iterable[Ints]) -> frozenset[int]:
    return frozenset(number for some in numbers for number in np.unique(some).tolist())


class _Pipes:
    """Which pipelines the layers and the micro-batches of a space let run."""

    def __init__(self, space: Mapspace) -> None:
        self.space, self.layers = space, space.workload.layers
        self.open = space.mapper.cut == "free"

    def runs(self, columns: Columns) -> Bools:
        """[n] whether some schedule of the mapper runs there."""
        found = np.asarray(columns.stages == 1)
        for schedule, chunks in self.space.pipelines(int(columns.stages.max(initial=1))):
            found = found | self._run(schedule, chunks, columns)
        return found

    def holds(self, chunks: int, columns: Columns) -> bool:
        """Whether stages of so many chunks run somewhere, where there are several stages."""
        which = [schedule for schedule in self.space.schedules if chunks in chunk_counts(schedule, [chunks])]
        return any(bool((self._run(schedule, chunks, columns) & (columns.stages > 1)).any()) for schedule in which)

    def _run(self, schedule: str, chunks: int, columns: Columns) -> Bools:
        found = np.zeros(len(columns), dtype=bool)
        for stages in np.unique(columns.stages).tolist():
            if self.open or self.layers % (stages * chunks) == 0:
                here = columns.stages == stages
                found[here] = TABLE[schedule].takes(stages, columns.micro_batches[here])
        return found
