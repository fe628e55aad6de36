"""Which operations to fuse, found: every set of regions that do not overlap, each with at most one tensor made beforehand that stays whole
on chip (its maker runs just before the region).

A region is contractions that feed one another, directly or through one element-wise or row-wise operation, down to one whose result leaves.
What regions and operations by themselves cost is solved only where that may decide: first a bound, then the least set under the bounds,
whose regions and other operations are solved, until the least set is solved whole. Nothing else can cost less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from typing import Protocol

from rackmodel.errors import InputError
from rackmodel.model.mapping import FuseSpec, NestRules
from rackmodel.model.workload import Op, Workload
from rackmodel.nests.region_loops import Span

MEMBERS = 3  # contractions of a region that is found
ELEMENTWISE = ("scale", "relu", "gelu", "silu", "xielu", "swiglu", "multiply", "add", "dropout")
SURE = 1e-9  # of what a region would have to undercut: it is taken not to where it was not solved
CARRIED = ("softmax",)  # whose rows may be cut: a running maximum and sum go on from tile to tile


@dataclass(frozen=True)
class Joint:
    """How contractions feed a later one. makers: tensors they write, in order · reader: tensor that the later one writes · read: tensor
    that it reads · vector: the operation between writes it (none: the maker itself does) · over: the index its rows run along, if it
    carries them · whole: indices that no shared loop may cut."""

    makers: tuple[str, ...]
    reader: str
    read: str
    vector: bool = False
    over: str = ""
    whole: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fused:
    """Operations to fuse. members: tensors that its contractions write, in program order · joints: what lies between · resident: tensors
    made before it that stay · around_some: whether loops may lie around some of its contractions, or around which (first, last)."""

    members: tuple[str, ...]
    joints: tuple[Joint, ...]
    resident: tuple[str, ...] = ()
    around_some: bool | tuple[Span, ...] = False

    @property
    def taken(self) -> frozenset[str]:
        """What its operations write: no other region may hold one of them."""
        return frozenset((*self.members, *self.resident))

    @property
    def vectors(self) -> tuple[str, ...]:
        """What the operations between its contractions write."""
        return tuple(joint.read for joint in self.joints if joint.vector)

    @property
    def between(self) -> frozenset[str]:
        """Tensors that never leave the chip."""
        return frozenset(name for joint in self.joints for name in (*joint.makers, joint.read))


def joints(workload: Workload) -> list[Joint]:
    """Every way in which contractions alone feed another one."""
    found = []
    for op in workload.ops.values():
        reader = _only_reader(workload, op.out.tensor)
        if op.kind.name == "einsum" and reader is not None and reader.kind.name == "einsum":
            found.append(Joint((op.out.tensor,), reader.out.tensor, op.out.tensor))
        elif op.kind.name != "einsum" and reader is not None and reader.kind.name == "einsum":
            found += _through(workload, op, reader)
    return [joint for joint in found if _alike(workload, joint)]


def _through(workload: Workload, op: Op, reader: Op) -> list[Joint]:
    """The joint through an operation that is no contraction, if it is one."""
    makers = [workload.maker(access.tensor) for access in op.ins]
    plain = all(
        maker is not None and maker.kind.name == "einsum" and _only_reader(workload, access.tensor) is op and access.names == op.out.names
        for maker, access in zip(makers, op.ins, strict=True)
    )
    if not plain or op.kind.name not in (*ELEMENTWISE, *CARRIED) or len({access.tensor for access in op.ins}) < len(op.ins):
        return []
    summed = [index for index in op.out.names if index not in reader.out.names]  # statistics scale sums of one row each
    carried = op.kind.name in CARRIED and len(op.over) == 1 and summed == list(op.over)
    order = list(workload.ops)
    names = sorted((access.tensor for access in op.ins), key=lambda tensor: order.index(workload.producer[tensor]))
    over, whole = (op.over[0], ()) if carried else ("", tuple(op.over))
    return [Joint(tuple(names), reader.out.tensor, op.out.tensor, True, over, whole)]


def _only_reader(workload: Workload, tensor: str) -> Op | None:
    readers = workload.readers.get(tensor, ())
    return workload.ops[readers[0]] if len(readers) == 1 else None


def _alike(workload: Workload, joint: Joint) -> bool:
    """Whether all index what lies between by the same names, and the reader reads it once."""
    made = [workload.ops[workload.producer[name]].out.names for name in joint.makers]
    reader = workload.ops[workload.producer[joint.reader]]
    read = [access for access in reader.ins if access.tensor == joint.read]
    return len(read) == 1 and all(names == read[0].names for names in made) and all(len(a) == 1 for a in read[0].indices)


def regions(workload: Workload) -> list[Fused]:
    """Every region of at most MEMBERS contractions; alone, and with one tensor that it alone reads."""
    every, order = joints(workload), [op.out.tensor for op in workload.ops.values()]
    found: dict[Fused, None] = {}

    def grow(members: frozenset[str], used: tuple[Joint, ...]) -> None:
        if used:
            found[Fused(tuple(sorted(members, key=order.index)), tuple(sorted(used, key=every.index)))] = None
        for joint in every:
            wider = members | set(joint.makers)
            if joint.reader in members and joint not in used and len(wider) <= MEMBERS and not members & set(joint.makers):
                grow(wider, (*used, joint))

    for sink in dict.fromkeys(joint.reader for joint in every):
        grow(frozenset({sink}), ())
    return [region for one in found for region in (one, *(replace(one, resident=(name,)) for name in _stays(workload, one)))]


def _stays(workload: Workload, region: Fused) -> list[str]:
    """Tensors that a contraction outside writes and the region alone reads."""
    ops = [workload.ops[workload.producer[name]] for name in region.members]
    read = dict.fromkeys(access.tensor for op in ops for access in op.ins if access.tensor not in region.between)
    makers = {name: workload.maker(name) for name in read}
    return [
        name
        for name, maker in makers.items()
        if maker is not None and maker.kind.name == "einsum" and name not in region.members and _only_reader(workload, name) in ops
    ]


def declared(
    workload: Workload, members: Sequence[str], resident: Sequence[str], *, around_some: bool | tuple[Span, ...] = False
) -> Fused | None:
    """The region of some contractions (by the tensors they write, as they run), None where they are none."""
    for used in (u for k in range(1, len(members)) for u in combinations(joints(workload), k)):
        names = {name for joint in used for name in (*joint.makers, joint.reader)}
        made = [name for joint in used for name in joint.makers]
        if names != set(members) or not len(made) == len(set(made)) == len(members) - 1:
            continue
        if all(members.index(name) < members.index(joint.reader) for joint in used for name in joint.makers):
            return Fused(tuple(members), used, tuple(resident), around_some)
    return None


def as_declared(workload: Workload, said: FuseSpec, number: int) -> Fused:
    """A region of a mapper's file. Raises InputError."""
    path = f"inside.fuse.{number}"
    for name in said.einsums:
        if name not in workload.ops:
            raise InputError(f"no operation '{name}'", path=f"{path}.einsums", known=list(workload.ops), given=name)
        if workload.ops[name].kind.name != "einsum":
            raise InputError(f"{name} is no contraction: what lies between contractions is fused with them", path=f"{path}.einsums")
    for name in said.resident:
        if name not in workload.tensors:
            raise InputError(f"no tensor '{name}'", path=f"{path}.resident", known=list(workload.tensors), given=name)
        if why := _does_not_stay(workload, name, said.einsums):
            raise InputError(f"{name} is not kept from the operation that makes it: {why}", path=f"{path}.resident")
    around = _around(said, f"{path}.loops")
    members = [workload.ops[name].out.tensor for name in said.einsums]
    found = declared(workload, members, said.resident, around_some=around)
    if found is None:
        *makers, last = said.einsums
        raise InputError(f"{last} does not read what {', '.join(makers)} writes, or another operation does as well", path=f"{path}.einsums")
    return found


def _around(said: FuseSpec, path: str) -> bool | tuple[Span, ...]:
    """Whether loops may lie around some operations, or around which. Raises InputError."""
    if said.loops != "all" and len(said.einsums) == 2:
        raise InputError("of two operations loops lie around both: expected three or more, or loops: all", path=path)
    if isinstance(said.loops, str):
        return said.loops == "some"
    if not said.loops:
        raise InputError("around none of the operations: expected runs of them, some or all", path=path)
    found: list[Span] = []
    for number, run in enumerate(said.loops):
        here = f"{path}.{number}"
        for name in run:
            if name not in said.einsums:
                raise InputError(f"{name} is none of the operations that run together", path=here, known=said.einsums, given=name)
        first = said.einsums.index(run[0]) if run else 0
        if len(run) < 2 or said.einsums[first : first + len(run)] != run:
            raise InputError(f"expected neighbours of {', '.join(said.einsums)}, two or more as they run", path=here)
        if run == said.einsums:
            raise InputError("loops lie around all of the operations anyway: expected some of them", path=here)
        if (first, first + len(run) - 1) in found:
            raise InputError(f"loops around {', '.join(run)} are said twice", path=here)
        found.append((first, first + len(run) - 1))
    return tuple(found)


def _does_not_stay(workload: Workload, name: str, einsums: Sequence[str]) -> str:
    """Why a tensor is none that its maker leaves whole on chip for some operations; nothing where it is."""
    maker, readers = workload.maker(name), workload.readers.get(name, ())
    if maker is None or maker.kind.name != "einsum":
        return "no contraction makes it"
    if maker.name in einsums:
        return f"{maker.name} is one of them"
    outside = [reader for reader in readers if reader not in einsums]
    return f"{outside[0]} reads it, too" if outside else "" if readers else "none of them reads it"


def check_apart(declared: Sequence[Fused]) -> None:
    """Raise InputError where two regions of a mapper's file have an operation in common."""
    for number, one in enumerate(declared):
        for other in declared[:number]:
            if both := [name for name in operations(one) if name in operations(other)]:
                raise InputError(f"what makes {both[0]} is in another region as well", path=f"inside.fuse.{number}")


def unruled(workload: Workload, fused: Sequence[Fused], rules: Mapping[str, NestRules], *, found: bool) -> list[Fused]:
    """The regions without an operation that is under rules, which no search of a region obeys. rules: of a mapper · found: whether the
    regions are those that may be found, of which the others are left out. Raises InputError at rules of an operation of a declared region,
    or that leave nothing to be found."""
    left = []
    for one in fused:
        ops = [workload.producer[name] for name in (*one.members, *one.resident)]
        key = next((op if op in rules else "*" for op in ops if rules.get(op, rules.get("*", NestRules())) != NestRules()), None)
        if key is None:
            left.append(one)
        elif not found:
            raise InputError(
                f"{', '.join(ops)} are fused, and regions are searched without rules; drop one of the two", path=f"inside.rules.{key}"
            )
    if fused and not left:
        raise InputError(
            "every operation that might be fused is under rules, and regions are searched without; drop one of the two", path="inside.rules"
        )
    return left


def operations(one: Fused) -> tuple[str, ...]:
    """What the operations of a region's kernel write."""
    return *one.members, *one.vectors, *one.resident


class Costs(Protocol):
    """What operations cost, each by itself or in a region, in what is minimised: at least, which is soon said, or solved. What a region
    costs is less the launches that it saves and what its operations between contractions cost apart."""

    def least_apart(self, name: str) -> float:
        """What the operation that writes a tensor costs by itself, at least."""

    def alone(self, name: str) -> float:
        """The same, solved."""

    def least_together(self, one: Fused) -> float:
        """What a region costs at least."""

    def together(self, one: Fused, below: float) -> float:
        """What it costs, solved; `below` or more where it costs no less than that, inf where it does not fit."""


def cheapest_set(options: Sequence[Fused], costs: Costs) -> list[Fused]:
    """The disjoint regions that, with all other operations by themselves, cost least."""
    return [one for rivals in rivals(options) for one in CheapestSet(rivals, costs).found()]


def rivals(options: Sequence[Fused]) -> list[list[Fused]]:
    """Options in groups: those of two groups hold no operation in common, so that each group is decided by itself."""
    groups: list[tuple[set[str], list[Fused]]] = []
    for option in options:
        joined = [group for group in groups if group[0] & option.taken]
        groups = [group for group in groups if not group[0] & option.taken]
        names = set(option.taken).union(*(group[0] for group in joined))
        groups.append((names, [*(one for group in joined for one in group[1]), option]))
    return [members for _, members in groups]


def rivals_of(options: Sequence[Fused], name: str) -> list[Fused]:
    """The group of the options one of whose operations writes a tensor; none: it is in none."""
    return next((group for group in rivals(options) if any(name in operations(one) for one in group)), [])


class CheapestSet:
    """Regions that compete for operations: what each and every operation by itself costs at least is raised to what it costs where the
    least set of all has one that is not solved, until it has none. No set is below it then."""

    def __init__(self, options: Sequence[Fused], costs: Costs) -> None:
        self.options, self.costs = options, costs
        self.apart = {name: costs.least_apart(name) for name in dict.fromkeys(name for one in options for name in sorted(one.taken))}
        self.together = {one: costs.least_together(one) for one in options}
        self.alone: set[str] = set()  # operations that are solved by themselves
        self.solved: set[Fused] = set()

    def found(self) -> list[Fused]:
        """The regions of the least set."""
        while True:
            best = self._least(self.options)
            open_ = [one for one in best if one not in self.solved]
            if open_:
                self._solve(self._first() if not self.solved else max(open_, key=self._saves), best)
            elif names := [name for name in self._apart(best) if name not in self.alone]:
                self._solve_apart(names[:1])
            else:
                return best

    def _saves(self, one: Fused) -> float:
        """What a region saves, by what is known of it and of its operations apart."""
        return sum(self.apart[name] for name in sorted(one.taken)) - self.together[one]

    def _least(self, options: Iterable[Fused]) -> list[Fused]:
        """The regions of the least set of some of them."""
        saves = {one: self._saves(one) for one in options}
        return best_set([one for one in saves if saves[one] > 0], saves)

    def _apart(self, regions: Sequence[Fused]) -> list[str]:
        """The operations that are in none of some regions."""
        return [name for name in self.apart if not any(name in one.taken for one in regions)]

    def _first(self) -> Fused:
        """The region to be solved first, which others have to beat: the one that may save most."""
        return max((one for one in self.options if self._saves(one) > 0), key=self._saves)

    def _solve(self, one: Fused, best: Sequence[Fused]) -> None:
        """Solve a region as far as it may cost less than what the solved ones leave. best: the least set."""
        known = self._least(self.solved)
        if self.solved:  # operations that are apart in both sets cost the same in both
            self._solve_apart([name for name in self._apart(known) if name not in self._apart(best)])
        most = self.together[one] + sum(map(self._saves, best)) - sum(map(self._saves, known)) if self.solved else inf
        cost = self.costs.together(one, most)
        if cost < most or cost == inf:
            self.solved.add(one)
            self.together[one] = cost
        else:
            self.together[one] = max(self.together[one], most + SURE * (abs(most) + sum(self.apart[name] for name in one.taken)))

    def _solve_apart(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.alone:
                self.alone.add(name)
                self.apart[name] = self.costs.alone(name)


def best_set(options: Sequence[Fused], saves: Mapping[Fused, float]) -> list[Fused]:
    """Disjoint options of the largest sum; the first met of equal ones."""
    best: tuple[float, list[Fused]] = (0.0, [])

    def grow(start: int, taken: list[Fused], used: frozenset[str], total: float) -> None:
        nonlocal best
        if total > best[0]:
            best = total, taken
        for i in range(start, len(options)):
            if not options[i].taken & used and total + sum(saves[o] for o in options[i:]) > best[0]:
                grow(i + 1, [*taken, options[i]], used | options[i].taken, total + saves[options[i]])

    grow(0, [], frozenset(), 0.0)
    return best[1]
