"""Why nothing fits: the level whose smallest legal tiles overflow, what they need and what there is."""

from collections.abc import Sequence

from rackmodel.errors import InfeasibleError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.problem import NestLevel, NestMachine, NestProblem, NestTensor
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored


def infeasible(problem: NestProblem, machine: NestMachine, masks: Sequence[Stored], constraints: NestConstraints) -> InfeasibleError:
    """InfeasibleError of the tightest level: it needs the smallest tile of every tensor it must store."""
    worst: tuple[float, NestLevel, float, float] | None = None
    for level, v in enumerate(machine.levels[1:], start=1):
        if v.capacity_bits is None:
            continue
        need: float = min(
            sum(v.buffers * v.bits(t) * _least_words(t, v.name, machine, constraints) for t in problem.tensors if t.name in kept[level])
            for kept in masks
        )
        if need > v.capacity_bits and (worst is None or need / v.capacity_bits > worst[0]):
            worst = need / v.capacity_bits, v, need, v.capacity_bits
    if worst is None:
        return InfeasibleError(f"{problem.name} on {machine.name}: the constraints leave no mapping")
    _, v, need, have = worst
    return InfeasibleError(
        f"{problem.name} on {machine.name}: {v.name} needs {need:g} bits for its smallest tiles, has {have:g}",
        resource=v.name,
        need=need,
        have=have,
        unit="bits",
        change=f"capacity {need:g} bits",
    )


def _least_words(tensor: NestTensor, level: str, machine: NestMachine, constraints: NestConstraints) -> int:
    tile = {r: machine.compute.atom.get(r, 1) for r in tensor.ranks}
    for f in constraints.tiles:
        if f.level == level and f.rank in tile and f.tensor in (None, tensor.name):
            tile[f.rank] = f.size
    return tensor.tile_words(tile)
