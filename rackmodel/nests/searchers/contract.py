"""What every searcher takes and gives, which features a question has, and who is asked.

A Question is one einsum on one machine with everything said about it. Its features follow from it (FEATURES); a Searcher
lists the features it supports, as data. `searcher_for` takes the first that supports them all; where none does, the error
names what cannot go together and what would work. Every searcher passes tests/nests/test_searcher_contract.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.stored_tensors import Stored
from rackmodel.nests.solution import NestSolution


@dataclass(frozen=True)
class NestQuestion:
    """One search. factors: perfect | ceil · masks: every legal choice of stored tensors, per level · resident: tensors whole
    in level 1 without traffic to level 0 · home: tensors at home in the cores (home_rules) · effort: of each part of the search ·
    begun: an answer to the same question under another objective, whose search may be gone on with."""

    problem: NestProblem
    machine: NestMachine
    objective: NestObjective
    factors: str
    constraints: NestConstraints
    masks: tuple[Stored, ...]
    resident: frozenset[str] = frozenset()
    home: frozenset[str] = frozenset()
    effort: Effort = field(default_factory=Effort, compare=False)
    begun: NestSolution | None = field(default=None, compare=False)


class Feature(Enum):
    """Something a question may have: (what it is, what to use where it is not supported)."""

    PERFECT = "perfect factors", "factors ceil"
    CEIL = "ceil factors", "factors perfect"
    TIME = "an objective with latency or static power in it", "objective energy"
    RESIDENT = "resident tensors (fuse)", "no resident tensors"
    HOME = "tensors at home", "no tensors at home"
    FIXED_TILES = "fixed tiles", "no fixed tiles"
    FREE_STORE = "a level that may or may not store a tensor", "keep and bypass lists that leave no choice"
    BYPASS = "a level that does not store every tensor", "no bypass, and keep lists of every tensor"
    SUM = "a tensor indexed by a sum", "an einsum of plain indices"
    ATOM = "an atom of the compute", "compute without a fan or an atom"
    PADDED_ATOM = "a size that is no multiple of the atom", "factors ceil"
    LINEAR = "a linear fan", "an x by y fan"
    WIDTH = "a multicast width or reduction width below the fan's size", "fans without widths"
    HOPS = "hops or links with a price", "fans without hop energy and link bandwidth"
    ENTRY_FAN = "a fan (or its hops) above the second memory", "one instance of the second memory"
    COMPUTE_FAN = "a fan between the innermost memory and the compute", "compute without a fan or an atom"
    ONE_MEMORY = "a machine of one memory", "a machine of two memories"
    DEEP = "more than two memories", "a machine of two memories"
    MANY = "more than three tensors", "einsums of two operands"

    @property
    def what(self) -> str:
        """In a sentence: X is not supported."""
        return self.value[0]

    @property
    def instead(self) -> str:
        """In a sentence: use X."""
        return self.value[1]


F = Feature
FEATURES: dict[Feature, Callable[[NestQuestion], bool]] = {
    F.PERFECT: lambda q: q.factors == "perfect",
    F.CEIL: lambda q: q.factors == "ceil",
    F.TIME: lambda q: not q.objective.energy_only,
    F.RESIDENT: lambda q: bool(q.resident),
    F.HOME: lambda q: bool(q.home),
    F.FIXED_TILES: lambda q: bool(q.constraints.tiles),
    F.FREE_STORE: lambda q: len(q.masks) > 1,
    F.BYPASS: lambda q: any(len(kept) < len(q.problem.tensors) for mask in q.masks for kept in mask),
    F.SUM: lambda q: any(t.affine_ranks for t in q.problem.tensors),
    F.ATOM: lambda q: bool(q.machine.compute.atom),
    F.PADDED_ATOM: lambda q: any(n % q.machine.compute.atom.get(r, 1) for r, n in q.problem.sizes.items()),
    F.LINEAR: lambda q: any(v.fan.linear for v in q.machine.levels),
    F.WIDTH: lambda q: any(
        width is not None and (v.fan.linear or width < v.fan.size)
        for v in q.machine.levels
        for width in (v.fan.multicast_width, v.fan.reduction_width)
    ),
    F.HOPS: lambda q: any(v.fan.hop_j_per_bit or v.fan.link_bits_per_s < float("inf") for v in q.machine.levels),
    F.ENTRY_FAN: lambda q: (fan := q.machine.levels[0].fan).size > 1 or fan.linear or fan.hop_j_per_bit > 0,
    F.COMPUTE_FAN: lambda q: q.machine.levels[-1].fan.size > 1,
    F.ONE_MEMORY: lambda q: len(q.machine.levels) == 1,
    F.DEEP: lambda q: len(q.machine.levels) > 2,
    F.MANY: lambda q: len(q.problem.tensors) > 3,
}


def features(question: NestQuestion) -> frozenset[Feature]:
    """What a searcher must support to answer the question."""
    return frozenset(f for f, there in FEATURES.items() if there(question))


@dataclass(frozen=True)
class Searcher:
    """name: as certificates say it · solver: the word of a mapper that asks for it · supports: features it may meet ·
    solve: NestSolution of a question whose features it supports, with the recounted cost (evaluate) and a certificate whose
    bound holds; InfeasibleError with need and have where nothing fits. The same question gives the same answer."""

    name: str
    solver: str
    supports: frozenset[Feature]
    solve: Callable[[NestQuestion], NestSolution]


def all_but(*features: Feature) -> frozenset[Feature]:
    """Every feature except these."""
    return frozenset(Feature) - frozenset(features)


def searcher_for(question: NestQuestion, searchers: Sequence[Searcher], solver: str = "auto") -> Searcher:
    """The first searcher that supports the question. solver: auto, or the word of some.

    Errors: RackmodelError naming the features that no searcher supports together, and every least change that would do.
    """
    wanted = features(question)
    asked = [s for s in searchers if solver in ("auto", s.solver)]
    for searcher in asked:
        if wanted <= searcher.supports:
            return searcher
    others = sorted({s.solver for s in searchers if wanted <= s.supports})
    words = f"solver auto or {' or '.join(others)}" if others else ""
    raise refusal(question, [s.supports for s in asked], "" if solver == "auto" else f"solver {solver}: ", words)


def refusal(question: NestQuestion, supports: Iterable[frozenset[Feature]], who: str = "", words: str = "") -> RackmodelError:
    """The error of a question that none supports: what stands in the way, and the least changes that would do."""
    wanted = features(question)
    gaps = [sorted(wanted - s, key=list(Feature).index) for s in supports]
    least = min(map(len, gaps))
    near = [gap for gap in gaps if len(gap) == least]
    what = dict.fromkeys(f.what for gap in near for f in gap)
    ways = dict.fromkeys(" with ".join(dict.fromkeys(f.instead for f in gap)) for gap in near)
    together = " together" if len(near) > 1 and len(what) > 1 else ""
    return RackmodelError(
        f"{question.problem.name} on {question.machine.name}: {who}{' and '.join(what)} cannot be searched{together}; "
        f"use {', or '.join([*ways, *([words] if words else [])])}"
    )
