"""What a mapper's rules demand of the loop nest of a contraction, in the nest's words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from rackmodel.errors import InfeasibleError, InputError, RackmodelError
from rackmodel.model.mapping import NestRules
from rackmodel.nests.constraints import FixedTile, NestConstraints
from rackmodel.nests.problem import NestMachine, NestProblem


def demands_on(problem: NestProblem, every: Mapping[str, NestRules], ranks: Collection[str]) -> NestConstraints | None:
    """The demands on a contraction's nest; None where there are none. every: result tensor, or '*' of all others → rules · ranks: of any
    operation, which rules of all may name."""
    rules = every.get(problem.output.name, every.get("*"))
    if rules is None:
        return None
    shared = problem.output.name not in every
    return NestConstraints(
        order={level: tuple(tensors) for level, tensors in rules.order.items()},
        stationary=dict(rules.stationary),
        tiles=tuple(FixedTile(level, rank, size) for level, tiles in rules.tiles.items() for rank, size in tiles.items()),
        spatial={
            (level, side.upper()): tuple(rank for rank in names if rank in problem.sizes or not (shared and rank in ranks))
            for level, sides in rules.spatial.items()
            for side, names in sides.items()
        },
        keep={level: tuple(tensors) for level, tensors in rules.keep.items()},
        bypass={level: tuple(tensors) for level, tensors in rules.bypass.items()},
    )


def check_demands(rules: NestConstraints, problem: NestProblem, machine: NestMachine, name: str) -> None:
    """Raise InputError at the key of the rules of `name` that no nest of this contraction can obey; InfeasibleError where its share on this
    mesh is less than a tile."""
    for tile in rules.tiles:
        if tile.size > (share := problem.sizes.get(tile.rank, tile.size)):
            said = f"{problem.name}: rules.{name} fixes a tile of {tile.size} {tile.rank} at {tile.level}; an accelerator has {share}"
            raise InfeasibleError(said, resource=f"tile of {tile.rank}", need=tile.size, have=share, unit="elements")
    for field in fields(rules):
        try:
            replace(NestConstraints(), **{field.name: getattr(rules, field.name)}).check(problem, machine)
        except RackmodelError as wrong:
            raise InputError(str(wrong), path=f"inside.rules.{name}.{field.name}")
