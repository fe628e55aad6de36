"""Is a mapping one of this einsum on this machine: levels, tensors that each must store, nested tiles, spatial vectors within the fans."""

from collections.abc import Collection
from math import prod

from rackmodel.errors import RackmodelError
from rackmodel.nests.mapping import NestMapping, entry_tiles
from rackmodel.nests.problem import NestLevel, NestMachine, NestProblem


def check_mapping(problem: NestProblem, machine: NestMachine, mapping: NestMapping) -> None:
    """RackmodelError unless levels, tensors (what a level must store, and must not), tiles (nested, at least the compute's atom) and
    spatial vectors (within the fanout) agree."""
    if [v.level for v in mapping.levels] != [v.name for v in machine.levels]:
        raise RackmodelError(
            f"mapping has levels {[v.level for v in mapping.levels]}, {machine.name} has {[v.name for v in machine.levels]}"
        )
    now, leaf = dict(problem.sizes), machine.compute.leaf(problem.sizes)
    entries = entry_tiles(mapping, leaf)
    for i, (level, v) in enumerate(zip(mapping.levels, machine.levels, strict=True)):
        names = [n.tensor for n in level.nodes if n.tensor]
        if len(set(names)) != len(names):
            raise RackmodelError(f"{level.level}: a tensor is stored twice")
        if i:
            _check_stored(problem, v, names)
        for node in level.nodes:
            if node.tensor:
                problem.tensor(node.tensor)
            if set(node.tile) != set(problem.sizes) or any(not 1 <= node.tile[r] <= now[r] for r in now):
                raise RackmodelError(f"{level.level}, {node.tensor}: tile {node.tile} does not fit into {now}")
            _check_atom(f"{level.level}, {node.tensor}", node.tile, {r: min(e, problem.sizes[r]) for r, e in leaf.items()})
            now = dict(node.tile)
        if i == 0 and (set(names) != {t.name for t in problem.tensors} or now != problem.sizes):
            raise RackmodelError(f"{level.level}: the outermost level must hold every tensor whole")
        if not set(level.x) | set(level.y) <= set(problem.sizes):
            raise RackmodelError(f"{level.level}: unknown spatial rank in {level.x}, {level.y}")
        if any(n < 1 for n in (*level.x.values(), *level.y.values())):
            raise RackmodelError(f"{level.level}: fewer than one part in {level.x}, {level.y}")
        sizes = prod(level.x.values()), prod(level.y.values())
        if not v.fan.linear and (sizes[0] > v.fan.x or sizes[1] > v.fan.y):
            raise RackmodelError(f"{level.level}: spatial {sizes[0]} x {sizes[1]} exceeds the fanout {v.fan.x} x {v.fan.y}")
        passed = i + 1 < len(mapping.levels) and not mapping.levels[i + 1].nodes  # room for what is dealt out further in, ragged at its end
        for r, e in entries[i].items():
            if e > now[r] and not passed and not (machine.compute.atom and e == leaf[r]):
                raise RackmodelError(f"{level.level}: rank {r} hands {e} to an instance, has {now[r]}")
        now = {r: min(e, now[r]) for r, e in entries[i].items()}


def _check_stored(problem: NestProblem, v: NestLevel, names: Collection[str]) -> None:
    """What the machine lists to be kept at a level is stored there, what it lets pass is not: no search has other mappings. Where it has no
    list a mapper may let a tensor pass."""
    for tensor in (t.name for t in problem.tensors):
        if tensor in (v.keep or ()) and tensor not in names:
            raise RackmodelError(f"{v.name} must store {tensor}: the machine keeps it there")
        if tensor in v.bypass and tensor in names:
            raise RackmodelError(f"{v.name} cannot store {tensor}: the machine bypasses it")


def _check_atom(where: str, tile: dict[str, int], least: dict[str, int]) -> None:
    """An instruction takes its whole tile, or all there is of a rank: no search lists less, and no bound covers it."""
    small = [f"{rank} is {tile[rank]}, at least {least[rank]} is allowed" for rank in least if tile[rank] < least[rank]]
    if small:
        raise RackmodelError(f"{where}: tile smaller than one instruction's: {'; '.join(small)}")
