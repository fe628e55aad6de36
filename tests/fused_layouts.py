"""An adversary of layouts that are free beside operations that may be fused: every layout of small graphs with every set of regions.

`check` takes a seed and returns how many steps it held an answer against; the suite asks a few seeds, an audit as many as it has time for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from rackmodel import api, face
from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_profile
from rackmodel.mapper.mapspace import Mapspace, build_mapspace
from rackmodel.mapper.nests.found_fusion import Fused
from rackmodel.mapper.nests.loop_nests import NestInside, nest_inside
from rackmodel.mapper.points import Point
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.nests.objective import NestObjective
from rackmodel.setting import settings_of
from tests.certificate_cases import members
from tests.test_fused_between import MACHINE

CLOSE = 1e-9
FORCED = 1e3  # seconds that a launch saved counts for: whatever fits is fused
FIGURES = {"latency": lambda p: p[0], "energy": lambda p: p[1], "edp": lambda p: p[0] * p[1]}
PAIR = {"E0": "Y[m,b] = X[m,a] * W0[a,b]", "E1": "Z[m,c] = Y[m,b] * W1[b,c]"}
GRAPHS: dict[str, tuple[dict[str, str], list[dict[str, Any]]]] = {
    "pair": (PAIR, [{"einsums": ["E0", "E1"]}]),
    "through an activation": (
        {"E0": PAIR["E0"], "act": "G[m,b] = gelu(Y[m,b])", "E1": "Z[m,c] = G[m,b] * W1[b,c]"},
        [{"einsums": ["E0", "E1"]}],
    ),
    "chain": ({**PAIR, "E2": "V[m,d] = Z[m,c] * W2[c,d]"}, [{"einsums": ["E0", "E1"]}]),
    "scores": (
        {"QK": "A[m,t] = X[m,a] * K[t,a]", "soft": "P[m,t] = softmax(A[m,t]) over t", "AV": "Z[m,c] = P[m,t] * U[t,c]"},
        [{"einsums": ["QK", "AV"]}],
    ),
    "a resident": (
        {"V": "U[t,c] = W[t,b] * R[b,c]", "QK": "A[m,t] = X[m,a] * K[t,a]", "AV": "Z[m,c] = A[m,t] * U[t,c]"},
        [{"einsums": ["QK", "AV"], "resident": ["U"]}],
    ),
    "gated": (
        {"G": "A[m,b] = X[m,a] * WA[a,b]", "U": "B[m,b] = X[m,a] * WB[a,b]", "act": "H[m,b] = swiglu(A[m,b], B[m,b])"}
        | {"D": "Z[m,c] = H[m,b] * W1[b,c]"},
        [{"einsums": ["G", "U", "D"]}],
    ),
}
SMALL = ("pair", "through an activation")
LONG = {
    "attended": (
        {"Q": "Q[m,b] = X[m,a] * WQ[a,b]", "QK": "A[m,t] = Q[m,b] * K[t,b]", "soft": "P[m,t] = softmax(A[m,t]) over t"}
        | {"AV": "Z[m,c] = P[m,t] * U[t,c]", "O": "Y[m,d] = Z[m,c] * WO[c,d]"},
        [{"einsums": ["QK", "AV"]}],
    ),
    "four": ({**GRAPHS["chain"][0], "E3": "T[m,a] = V[m,d] * W3[d,a]"}, [{"einsums": ["E0", "E1"]}]),
}
"""Whose regions have operations in common: too many layouts to hold each against an answer."""


class Case:
    """A random graph on a random machine of two or four accelerators. names: of graphs to draw from · found: whether what to fuse is found
    · factors: of its nests."""

    def __init__(self, seed: int, names: tuple[str, ...] = tuple(GRAPHS), *, found: bool | None = None, factors: str = "perfect") -> None:
        pick = random.Random(seed)
        self.minimize = pick.choice(["latency", "energy", "latency", "energy", "edp"])
        name = pick.choice(names if self.minimize != "edp" else SMALL)
        graph, declared = {**GRAPHS, **LONG}[name]
        fuse = pick.choice([declared, "free"])
        fuse = fuse if found is None else "free" if found else declared
        both = fuse is declared and pick.random() < 0.2
        wide = (2, 3, 4, 6, 7) if factors == "ceil" else (2, 4, 8) if len(names) > 1 else (2, 4)
        sizes = {index: pick.choice(wide) for index in "mtabcd" if any(index in text for text in graph.values())}
        phases = ["forward", "backward"] if both else ["forward"]
        load = {"workload": "drawn", "phases": phases, "sizes": sizes, "einsums": graph}
        widths = {"activation": "16 bit", "weight": "16 bit", **({"gradient": "32 bit"} if both else {})}
        self.sets = {
            "accelerators": pick.choice([2, 2, 4]),
            "glb.memory.capacity": f"{pick.choice([32, 64, 256, 8192])} B",
            "glb.memory.bandwidth": f"{pick.choice([4, 16])} GB/s",
            "chip.static_power": f"{pick.choice([0, 0, 0.01, 1])} W",
            "rack.network.bandwidth": f"{pick.choice([0.1, 1, 10])} GB/s",
        }
        mapper = {
            "mapper": "free",
            "axes": {"tp": {"degree": "all"}},
            "split": {"tp": "free"},
            "inside": {"model": "loopnest", "factors": factors, "fuse": fuse},
        }
        also = random.Random(f"uneven {seed}")
        self.uneven = also.random() < 0.2
        if self.uneven:
            mapper["uneven"], sizes[also.choice(list(sizes))] = "ceil", 3
        self.architecture: Architecture = face.read(MACHINE, set=self.sets)  # type: ignore[assignment]
        self.workload: Workload = face.read({**load, "precision": widths})  # type: ignore[assignment]
        self.mapper: MapperSpec = face.read(mapper)  # type: ignore[assignment]
        self.launch = pick.choice([0.0, 0.0, 0.0, 2e-7, 1e-6])
        self.limited = pick.random() < 0.4
        self.pick = pick

    @property
    def serial(self) -> ProfileSpec:
        """One task after another."""
        return read_profile("serial")

    @property
    def profile(self) -> ProfileSpec:
        """The same, launched by a host that takes so long for each."""
        serial = self.serial
        return serial.model_copy(update={"host": serial.host.model_copy(update={"launch_s": self.launch})}) if self.launch else serial

    def search(self, limits: dict[str, float] | None = None) -> api.Answer:
        """The answer that is under attack."""
        given = (self.architecture, self.workload, self.mapper)
        return api.search_mapper(*given, minimize=self.minimize, profile=self.profile, limits=limits or {})

    def members(self) -> Iterator[Point]:
        """Every layout, with every set of regions that do not overlap, of nests of several aims; of divisors, too."""
        space = build_mapspace(self.mapper, self.workload, self.architecture.used)
        aims = [("latency", None), ("energy", 0.0)] if self.minimize == "edp" else [(self.minimize, None)]
        aims = [*aims, ("energy", self.pick.choice([0.02, 0.5]))]
        for factors in dict.fromkeys((self.mapper.inside.factors, "perfect")):
            inside = self.mapper.inside.model_copy(update={"factors": factors})
            made = nest_inside(self.mapper.model_copy(update={"inside": inside}), self.workload, (NestObjective("energy"), 0.0))
            for (aim, second_j), some in itertools.product(aims, _apart(made.fused)):
                nests = made.aimed(NestObjective(aim), FORCED, second_j=second_j)
                nests.fused = some
                yield from self.priced(space, nests)

    def priced(self, space: Mapspace, inside: NestInside) -> Iterator[Point]:
        """Every layout of a space, with these nests."""
        setting, *_ = settings_of(self.architecture, self.workload, self.profile, ("ring",))
        job = Job(setting=replace(setting, inside=inside), workload=self.workload, profile=self.profile)
        yield from members(job, space)


def _apart(options: tuple[Fused, ...]) -> list[tuple[Fused, ...]]:
    sets = [some for k in range(len(options) + 1) for some in combinations(options, k)]
    return [some for some in sets if sum(len(one.taken) for one in some) == len(frozenset().union(*(one.taken for one in some)))]


def check(seed: int, names: tuple[str, ...] = tuple(GRAPHS), factors: str = "perfect") -> int:
    """Nothing of the space is better than its bound, nor than what is proven; what is found is what its mapping takes. factors: ceil: no
    divisors' nests are better either."""
    case = Case(seed, names, factors=factors)
    points = [(point.seconds, point.joules, point.memory) for point in case.members()]
    limits, figure = {}, FIGURES[case.minimize]
    if case.limited and points:
        name, place = case.pick.choice([("memory", 2), ("energy", 1), ("latency", 0)])
        each = sorted(point[place] for point in points)
        limits = {name: each[case.pick.randrange(len(each))] * case.pick.choice([1.0, 1.0, 0.999])}
        points = [point for point in points if point[place] <= limits[name] * (1 + CLOSE)]
    try:
        found = case.search(limits).result
    except InfeasibleError as problem:
        assert not points, f"seed {seed}: {problem}, and {len(points)} steps keep {limits}"
        return 1
    value, sheet = figure((found.latency_s, found.energy_j)), found.certificate
    least = min(map(figure, points))
    assert sheet.bound <= least * (1 + CLOSE), f"seed {seed}: a step has {least}, the bound is {sheet.bound}"
    assert sheet.bound <= value * (1 + CLOSE)
    assert not sheet.proven or value <= least * (1 + CLOSE), f"seed {seed}: a step has {least}, {value} is said to be proven"
    told = api.evaluate_mapping(case.architecture, case.workload, found.mapping, profile=case.profile)
    assert (told.latency_s, told.energy_j) == (found.latency_s, found.energy_j), f"seed {seed}: the mapping takes other figures"
    if case.minimize in ("latency", "energy") and factors == "perfect" and not (case.launch or limits or case.uneven):
        assert sheet.proven, f"seed {seed}: {sheet.gap}"
    return len(points)


def check_meshes(seed: int) -> int:
    """Named layouts on several meshes, priced as arrays: on some of them a region is fused, on others a link or too little room keeps it
    apart. The answer is the best of those of each mesh alone, and so is its bound."""
    case = Case(seed, factors=random.Random(f"factors {seed}").choice(["perfect", "perfect", "ceil"]))
    also = random.Random(f"meshes {seed}")
    ranks = [name for name in case.workload.sizes if any(name in op.indices for op in case.workload.ops.values())]
    axes = {"dp": {"degree": "free"}, "tp": {"degree": "rest"}}
    split = {"dp": also.sample(ranks, 1), "tp": also.sample(ranks, 2)}
    said: dict[str, Any] = {"mapper": "named", "axes": axes, "split": split, "uneven": also.choice(["ceil", "fullest"])}
    said |= {"inside": case.mapper.inside.model_dump(include={"model", "factors", "fuse"})}
    answers: list[api.Answer | InfeasibleError] = []
    for degree in ("free", *(n for n in (1, 2, 4) if case.architecture.used % n == 0)):
        case.mapper = face.read({**said, "axes": {**axes, "dp": {"degree": degree}}})  # type: ignore[assignment]
        try:
            answers.append(case.search())
        except InfeasibleError as problem:
            answers.append(problem)
    alone = [one.result for one in answers[1:] if isinstance(one, api.Answer)]
    if isinstance(answers[0], InfeasibleError):
        assert not alone, f"seed {seed}: {answers[0]}, and a mesh of it has an answer"
        return 1
    found, figure = answers[0].result, FIGURES[case.minimize]
    least = min(figure((one.latency_s, one.energy_j)) for one in alone)
    value, sheet = figure((found.latency_s, found.energy_j)), found.certificate
    assert sheet.bound <= least * (1 + CLOSE), f"seed {seed}: a mesh alone has {least}, the bound of all is {sheet.bound}"
    assert value >= min(one.certificate.bound for one in alone) * (1 - CLOSE), f"seed {seed}: {value} is below the bound of every mesh"
    assert not sheet.proven or value <= least * (1 + CLOSE), f"seed {seed}: a mesh alone has {least}, {value} is said to be proven"
    told = api.evaluate_mapping(case.architecture, case.workload, found.mapping, profile=case.profile)
    assert (told.latency_s, told.energy_j) == (found.latency_s, found.energy_j), f"seed {seed}: the mapping takes other figures"
    return len(answers)
