"""What is known of the loop nests of a layer: its operations, the nests that were solved, and how far they may be from the best.

How a nest is found, or taken from a mapping file, is what loop_nests adds; what goes by the nests of several operations (regions, kernels,
waiting) asks here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from rackmodel.cost.inside.nest_view import nest_name, resting
from rackmodel.cost.program.tasks import LocalOp, Task
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.tasks.layer_inside import LayerInside
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.nests.around import Around, NestKey, share_of
from rackmodel.mapper.nests.found_fusion import Fused
from rackmodel.mapper.nests.known_regions import KnownRegions
from rackmodel.mapper.nests.nest_fronts import NestFront
from rackmodel.mapper.nests.nested import Nested
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import InsideSpec, NestRules
from rackmodel.model.resources import KINDS, ROLES
from rackmodel.nests.canonical import Canonical
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestProblem
from rackmodel.watch import UNWATCHED, Watch


class LayerNests(LayerInside, ABC):
    """Loop nests of a layer's contractions under one aim, and copies for other aims that share what is remembered.

    given: contraction → nest of a mapping file, instead of a search · rules: result tensor of a forward contraction → demands ·
    written: operation → the tensor it writes, for messages · second_j: joules that a second counts for, None = the static power · open_:
    whether layouts are free.
    """

    def __init__(
        self,
        spec: InsideSpec,
        aim: NestObjective,
        *,
        second_j: float | None = None,
        given: Mapping[str, Mapping[str, Any]] | None = None,
        rules: Mapping[str, NestRules] | None = None,
        fused: Sequence[Fused] = (),
        written: Mapping[str, str] | None = None,
        open_: bool = False,
        watch: Watch = UNWATCHED,
    ) -> None:
        self.watch, self.open = watch, open_
        self.spec, self.given, self.rules, self.fused = spec, given, dict(rules or {}), tuple(fused)
        self.written = dict(written or {})
        if spec.home and spec.fuse:
            raise InputError("fused pairs and tensors at home are not searched together; drop one of the two", path="inside.home")
        if spec.solver == "cpsat" and spec.fuse:
            raise InputError("fused regions are not searched by CP-SAT; use solver auto, or fuse nothing", path="inside.solver")
        self.local_ops: dict[str, LocalOp] = {}
        self.vectors: dict[str, LocalOp] = {}  # that are no contractions, by the tensor they write
        self.ranks: set[str] = set()
        self.aim, self.second_j = aim, second_j
        self.basis = self  # whose nests have each its own least of what the step is to have least
        self.goes_on = False  # whether searches of nests go on with those for other aims that came before
        self.ragged = False  # whether an accelerator's share is less than the fullest one's
        self.hidden = False  # whether other lanes, other stages, windows or the host may hide seconds of a nest
        self.unlike = 0.0  # by how much shares of operations that may be fused differ, of the largest
        self.around = Around()  # what else the operations of a plan are, and what links carry between them
        self.fused_at: set[tuple[object, ...]] = set()  # of them (and the region, where it is declared), where what to fuse was found
        self.unfused = False  # whether time or effort ended before a pair was tried
        self.not_fused = 0.0  # gap of what was found, of any region that was looked at, to what that region could take
        self.left_open: dict[tuple[int, Fused], float] = {}  # the same of one region, by the number of what is around its nests
        self.at_least = False  # whether nests are priced as what they cost at least
        self.shorter = 0.0  # by how much of itself a layer might be, whose host or windows hide seconds of its nests (of least latency)
        self.charge = 0.0  # joules that are added for each second of an accelerator's device
        self.launch_s = 0.0  # what a launch saved counts for where regions are compared
        self.settled: float | None = None  # the gap, where another search found it
        self.solved: dict[NestKey, Nested] = {}
        self.known_regions = KnownRegions()
        self.known_alone: dict[tuple[object, ...], Nested] = {}  # nests of operations on their own, by sizes and aim
        self.fronts: dict[str, NestFront] = {}  # of nests by all that is asked of them but the aim
        self.no_room: dict[Fused, InfeasibleError | None] = {}  # declared regions under layouts that are free; None: under some it has room

    @abstractmethod
    def nest(self, architecture: Architecture, local_op: LocalOp, degrees: Any) -> Nested:
        """The nest of a local operation at one mesh's degrees."""

    @abstractmethod
    def plain(self, architecture: Architecture, local_op: LocalOp, degrees: Any, watts: float) -> Nested:
        """The nest of a local operation on its own."""

    @abstractmethod
    def beside(self, asked: Canonical, watts: float, resident: tuple[str, ...]) -> dict[str, Any]:
        """The mapping and certificate of the best nest of a contraction some of whose tensors stay on chip. watts: static power. Raises
        InfeasibleError."""

    @abstractmethod
    def may_fuse(self, architecture: Architecture, degrees: Any) -> list[Fused]:
        """The regions that may be fused at one mesh's degrees."""

    @property
    def widest_gap(self) -> float:
        """The largest gap of all nests solved, of their figures; 1 where a pair was not fused for want of time."""
        if self.settled is not None:
            return self.settled
        return 1.0 - (1.0 - self.nests_gap) * (1.0 - self.shorter) if self.shorter else self.nests_gap

    @property
    def nests_gap(self) -> float:
        """The same of the sum of nests, whatever hides their seconds."""
        if self.unfused:
            return 1.0
        gaps = (float(nest.certificate.get("gap", 0.0)) for nest in self.solved.values() if nest.certificate)
        widest = max((*gaps, self.not_fused))
        return 1.0 - (1.0 - widest) * (1.0 - self.unlike) if self.unlike and self.aim.name != "latency" else widest

    @property
    def plan(self) -> int:
        """Number of the plan whose operations it knows."""
        return self.around.plan

    @property
    def contractions(self) -> list[LocalOp]:
        """Those of the operations it knows."""
        return [op for op in self.local_ops.values() if op.macs]

    def aimed(self, aim: NestObjective, launch_s: float = 0.0, *, second_j: float | None = None, goes_on: bool = False) -> Self:
        """The same search of nests, for another aim. launch_s: what a launch saved counts for where regions are compared · second_j: joules
        that a second counts for · goes_on: with the searches before it, where these left a gap."""
        other = copy(self)
        other.goes_on = goes_on
        other.second_j, other.hidden, other.unlike, other.charge = second_j, False, 0.0, 0.0
        other.shorter, other.launch_s, other.settled = 0.0, launch_s, None
        other.aim, other.solved, other.fused_at, other.basis, other.not_fused = aim, {}, set(), self.basis, 0.0
        other.around, other.left_open = copy(self.around), {}
        return other

    def apart_from_others(self) -> Self:
        """The same search of nests, of operations of which none is fused."""
        other = copy(self)
        other.fused, other.local_ops, other.vectors = (), {}, {}
        return other

    def of_region(self, one: Fused) -> Self:
        """The same search of nests, of a region's operations."""
        other = self.aimed(self.aim, self.launch_s, second_j=self.second_j)
        other.fused, other.around, other.fused_at = (one,), Around(), set()
        return other

    def learn_gaps(self, other: LayerNests) -> None:
        """Know what gaps the nests of another search of the same aim have."""
        self.unfused = self.unfused or other.unfused
        self.unlike = max(self.unlike, other.unlike)
        gaps = (float(nest.certificate.get("gap", 0.0)) for nest in other.solved.values())
        self.not_fused = max([self.not_fused, other.not_fused, *gaps])

    def charging(self, architecture: Architecture) -> Self:
        """The same nests, each second of the device charged with the joules that it counts for: the very sum that they have least."""
        other = copy(self)
        other.charge = self.watts(architecture)
        return other

    def lessened(self) -> Self:
        """The same nests, each priced as what it costs at least: what a step of such prices takes, no step of true ones is below."""
        other = copy(self)
        other.at_least = True
        return other

    @property
    def second_charge(self) -> float:
        """Joules that are added for each second of an accelerator's device."""
        return self.charge

    def prepare(self, tasks: Iterable[Task]) -> None:
        """Know the forward tasks of a plan: the operations of a fused region and what links carry between them, which tensors are weights,
        and every name."""
        tasks = list(tasks)
        every = [task.local_op for task in tasks if task.local_op is not None and task.phase == "forward"]
        self.around.set_plan(every, tasks)
        self.local_ops = {local_op.result.name: local_op for local_op in every if local_op.result is not None}
        self.vectors = {local_op.written: local_op for local_op in every if not local_op.macs and local_op.writes}
        names = {operand.name for local_op in self.local_ops.values() for operand in local_op.operands} | set(self.local_ops)
        self.ranks = {index for local_op in self.local_ops.values() for index, _, _ in local_op.space}
        known = [*KINDS, *ROLES, *sorted(names)]
        for word in self.spec.home:
            if word not in known and word not in {f"d{name}" for name in names}:
                raise InputError(f"no tensor '{word}'", path="inside.home", known=known, given=word)

    def home(self, local_op: LocalOp, problem: NestProblem) -> tuple[str, ...]:
        """Tensors of a local operation that are at home in the innermost memory."""
        weights = [operand.name for other in self.local_ops.values() for operand in other.operands if operand.weight]
        return resting(local_op, problem, self.spec.home, weights) if self.spec.home else ()

    def left(self, number: int, one: Fused, gap: float) -> None:
        """Remember the gap of what was found, fused or not, to what a region takes at least."""
        self.not_fused = max(self.not_fused, gap)
        self.left_open[number, one] = max(self.left_open.get((number, one), 0.0), gap)

    def share(self, local_op: LocalOp, degrees: Any) -> float:
        """What an accelerator does of what the fullest one does, in the mean."""
        here = np.asarray([degrees], dtype=np.int64)
        share = float(local_op.exact(here)[0] / local_op.fullest(here)[0])
        self.basis.ragged |= share < 1
        return share

    def watts(self, architecture: Architecture) -> float:
        """Joules that a second of an accelerator counts for."""
        return static_watts(architecture) / architecture.used if self.second_j is None else self.second_j

    def key(self, local_op: LocalOp, degrees: Any) -> NestKey:
        """By what the nest of a local operation is known: its sizes, and where it may be fused those of all others and what links carry."""
        alone = local_op.result is None or all(local_op.result.name not in one.taken for one in self.fused)
        return nest_name(local_op), tuple(share_of(local_op, degrees).items()), None if alone else self.around.number(degrees)

    def check_room(self) -> None:
        """Raise InfeasibleError where a declared region has no room under any layout that was looked at."""
        for problem in self.no_room.values():
            if problem is not None:
                raise problem
