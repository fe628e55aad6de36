"""Einsums that run together on one machine: what lies between them stays in level 1, tile by tile.

Every member but the last writes an intermediate that members after it read; loops surround them, and in each iteration the members within
run one after another. Loops over the shared ranks, which all intermediates have, make nothing twice; others are in region_loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rackmodel.errors import RackmodelError
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor


@dataclass(frozen=True)
class RunningRows:
    """What a softmax (or another reduction of whole rows) hands from one tile of an intermediate's rows to the next: a maximum and a sum.

    of: the intermediate · over: the rank that its rows run along · bits: of level 1 a row · joules, seconds: of each further tile of
    every row: the statistics read and written, as often as the rows are made · scaled: joules and seconds of each further tile as well:
    what its reader has summed before is scaled, as often as the reader runs. Nothing where rows are whole in the tile.
    """

    of: str
    over: str
    bits: float = 64.0
    joules: float = 0.0
    seconds: float = 0.0
    scaled: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Region:
    """members: einsums in the order they run · machines: of each (bits, bypass and atom follow its tensors) · held: intermediate → first
    and last member during which its tile takes room · resident: other tensors that stay whole in level 1 · running: statistics carried ·
    whole: ranks that no loop around members may cut · between: intermediate → joules and seconds of the operation that follows its maker
    in place, of each further time that all of it is made. Errors: RackmodelError where the members cannot be fused, naming why."""

    members: tuple[NestProblem, ...]
    machines: tuple[NestMachine, ...]
    held: dict[str, tuple[int, int]]
    resident: frozenset[str] = frozenset()
    running: tuple[RunningRows, ...] = ()
    whole: frozenset[str] = field(default_factory=frozenset)
    between: dict[str, tuple[float, float]] = field(default_factory=dict)

    @staticmethod
    def of(members: Sequence[NestProblem], machine: NestMachine, resident: Sequence[str] = ()) -> Region:
        """The region of einsums that read one another's outputs as they are; each is held until its last reader has run."""
        held = {}
        for i, one in enumerate(members):
            reads = [j for j in range(i + 1, len(members)) if any(t.name == one.output.name for t in members[j].tensors)]
            if reads:
                held[one.output.name] = (i, reads[-1])
            elif i + 1 < len(members):
                last = members[-1]
                raise RackmodelError(f"{one.name}, {last.name}: to fuse, the output {one.output.name} must be an input of a later einsum")
        return Region(tuple(members), (machine,) * len(members), held, frozenset(resident))

    def __post_init__(self) -> None:
        outer = {t.name for p in self.members for t in p.tensors} - set(self.held)
        if self.resident - outer:
            between = ", ".join(self.held)
            raise RackmodelError(f"resident {sorted(self.resident)}: expected tensors of the members other than {between}")
        for name in self.held:
            uses = [(p, t) for p in self.members for t in p.tensors if t.name == name]
            (maker, made), *readers = sorted(uses, key=lambda use: not use[1].is_output)
            if not made.is_output or any(t.is_output for _, t in readers):
                raise RackmodelError(f"{name}: to fuse, one member must write it")
            if any(t.indices != made.indices or p.sizes[r] != maker.sizes[r] for p, t in readers for r in made.ranks):
                raise RackmodelError(f"{name}: every member must index it alike, with equal sizes")
        self._check_private()

    def _check_private(self) -> None:
        """Ranks of one name in two members are of one tensor that both have."""
        for i, one in enumerate(self.members):
            for two in self.members[i + 1 :]:
                common = {t.name for t in one.tensors} & {t.name for t in two.tensors}
                told = {r for p in (one, two) for t in p.tensors if t.name in common for r in t.ranks}
                told |= {r for name in self.held for r in self.intermediate(name).ranks}
                if stray := sorted((set(one.sizes) & set(two.sizes)) - told):
                    raise RackmodelError(f"{one.name}, {two.name}: they share a rank that no tensor between them has: {stray[0]}")

    @property
    def sizes(self) -> dict[str, int]:
        """Of every rank of the members."""
        return {r: n for p in self.members for r, n in p.sizes.items()}

    def intermediate(self, name: str) -> NestTensor:
        """An intermediate as its maker has it."""
        return next(p.output for p in self.members if p.output.name == name)

    @cached_property
    def shared(self) -> frozenset[str]:
        """Ranks that loops around all members may cut so that nothing is made twice: those of every intermediate."""
        ranks = [set(self.intermediate(name).ranks) for name in self.held]
        return frozenset(set.intersection(*ranks) if ranks else set()) - self.whole

    @cached_property
    def outer(self) -> dict[str, tuple[NestTensor, tuple[int, ...]]]:
        """Tensor that comes from level 0 or goes there → itself, the members that use it."""
        found: dict[str, tuple[NestTensor, tuple[int, ...]]] = {}
        for i, p in enumerate(self.members):
            for t in p.tensors:
                if t.name not in self.held and not any(other.output.name == t.name for other in self.members if other is not p):
                    found[t.name] = (t, (*found.get(t.name, (t, ()))[1], i))
        return found
