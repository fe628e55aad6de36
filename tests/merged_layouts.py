"""An adversary of layouts that are free beside a profile that merges kernels: every layout of small graphs, priced as a step.

`check` takes a seed and returns how many layouts it held an answer and its bound against; the suite asks a few seeds, an audit as many as
it has time for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rackmodel import api, face
from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.points import Point
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import Merged, ProfileSpec
from rackmodel.setting import settings_of
from tests.certificate_cases import OVERLAPPED, members
from tests.machines import SERIAL, machine, mapper, workload

CLOSE = 1e-9
FEW = 600  # layouts, of which an answer is proven
FIGURES: dict[str, Callable[[Point], float]] = {
    "latency": lambda p: p.seconds,
    "energy": lambda p: p.joules,
    "edp": lambda p: p.seconds * p.joules,
}
Q, K, V = "Q[m,n] = X[m,k] * WQ[k,n]", "K[m,j] = X[m,k] * WK[k,j]", "V[m,j] = X[m,k] * WV[k,j]"
SUM = {"one": "Y[m,n] = X[m,k] * W[k,n]", "res": "R[m,n] = add(Y[m,n], Z[m,n])", "norm": "N[m,n] = rmsnorm(R[m,n]) over n"}
GRAPHS = {
    "gate and up": {"G": Q, "U": "U[m,n] = X[m,k] * WU[k,n]", "act": "S[m,n] = swiglu(Q[m,n], U[m,n])"},
    "three of one": {"Q": Q, "K": K, "V": V},
    "two of one, one apart": {"Q": Q, "K": K, "P": "P[m,j] = Z[m,k] * WP[k,j]"},
    "of what is normalised": {"norm": "X[m,k] = rmsnorm(Z[m,k]) over k", "Q": Q, "K": K},
    "heads normalised": {"Q": Q, "K": K, "A": "A[m,n] = rmsnorm(Q[m,n]) over n", "B": "B[m,j] = rmsnorm(K[m,j]) over j"},
    "a sum": SUM,
    "two norms of a sum": {**SUM, "other": "O[m,n] = layernorm(R[m,n]) over n"},
    "a sum that is handed on": {
        "norm": "N[m,k] = rmsnorm(X[m,k]) over k",
        "one": "D[m,k] = gelu(N[m,k])",
        "res": "Y[m,k] = add(X[m,k], D[m,k])",
    },
    "a layer": {
        "norm": "N[m,k] = rmsnorm(X[m,k]) over k",
        "up": "U[m,n] = N[m,k] * WU[k,n]",
        "down": "D[m,k] = U[m,n] * WD[n,k]",
        "res": "Y[m,k] = add(X[m,k], D[m,k])",
    },
}


class Case:
    """A random graph on a random machine under a random profile that merges kernels."""

    def __init__(self, seed: int, names: tuple[str, ...] = tuple(GRAPHS)) -> None:
        pick = random.Random(f"merged {seed}")
        self.graph = pick.choice(names)
        einsums = GRAPHS[self.graph]
        sizes = {name: pick.choice([16, 64, 256]) for name in "mnkj" if any(name in text.partition("=")[2] for text in einsums.values())}
        phases = pick.choice([["forward"], ["forward"], ["forward", "backward"]])
        self.workload = workload(einsums, sizes, phases=phases)
        self.kernels = pick.choice(["peak", "measured", "fitted"])
        self.architecture: Architecture
        self.roomy: Architecture  # the same, of memory without end
        if self.kernels == "peak":
            static, capacity = pick.choice(["0 W", "100 W"]), pick.choice([None, None, f"{pick.choice([24, 96, 384])} kB"])
            racks, gpus = pick.choice([1, 2]), pick.choice([2, 4])
            self.architecture, self.roomy = (machine(racks=racks, gpus=gpus, static=static, capacity=room) for room in (capacity, None))
        else:
            self.architecture = self.roomy = face.read("dgx_h100", set={"accelerators": pick.choice([2, 4])})  # type: ignore[assignment]
        degree = "free" if self.kernels == "peak" else "all"
        more = {"c": {"degree": "free"}} if degree == "free" and len(einsums) == 2 and pick.random() < 0.4 else {}
        axes = {"a": {"degree": degree}, **more}
        self.mapper = mapper(axes=axes, split=dict.fromkeys(axes, "free"), uneven="error")
        self.minimize = pick.choice(list(FIGURES))
        self.profile = self._profile(pick)
        self.pick = pick

    def _profile(self, pick: random.Random) -> ProfileSpec:
        """A profile of these kernels, whose facts of merging are drawn."""
        plain = pick.choice([SERIAL, *map(read_profile, OVERLAPPED)])
        facts = {name: pick.random() < 0.7 for name in ("projections", "rotations", "gates", "residuals", "statistics")}
        merged: dict[str, Any] = {**facts, "reductions": facts["residuals"] and pick.random() < 0.5}
        if facts["projections"] and pick.random() < 0.2:
            merged["apart"] = ["K"]
        host = plain.host.model_copy(update={"launch_s": pick.choice([0.0, 0.0, 1e-6])})
        pointwise = pick.choice(["fused", plain.pointwise])
        return plain.model_copy(
            update={"merged": Merged.model_validate(merged), "host": host, "kernels": self.kernels, "pointwise": pointwise}
        )

    def search(self, limits: dict[str, float] | None = None) -> api.Answer:
        """The answer that is under attack."""
        return api.search_mapper(
            self.architecture, self.workload, self.mapper, minimize=self.minimize, profile=self.profile, limits=limits or {}
        )

    def layouts(self, machine: Architecture) -> tuple[list[Point], float]:
        """Every layout that fits a machine, priced as a step, and how many there are."""
        job = Job(setting=settings_of(machine, self.workload, self.profile)[0], workload=self.workload, profile=self.profile)
        space = build_mapspace(self.mapper, self.workload, machine.used)
        return list(members(job, space, 5_000)), max((problem.size for problem in space.problems), default=0.0)


def check(seed: int, names: tuple[str, ...] = tuple(GRAPHS)) -> int:
    """No layout is better than the answer's bound nor, where it is proven, than the answer, which is its mapping's own price. Where none
    fits, none needs less than is said."""
    case = Case(seed, names)
    figure = FIGURES[case.minimize]
    every, size = case.layouts(case.architecture)
    about = f"merged {seed}: {case.graph}, {case.minimize}"
    try:
        limits = {}
        if every and case.pick.random() < 0.3:
            limits = {"memory": case.pick.choice([max, min])(point.memory for point in every)}
        found = case.search(limits).result
    except InfeasibleError as problem:
        assert not every, f"{about}: a layout fits"
        needs = [point.memory for point in case.layouts(case.roomy)[0]]
        assert problem.need == min(needs), f"{about}: a layout needs {min(needs)}, said is {problem.need}"
        return len(needs)
    points = [point for point in every if point.memory <= limits.get("memory", float("inf"))]
    least = min(map(figure, points))
    bound, best = found.certificate.bound, found.certificate.objective
    assert bound is not None
    assert best is not None
    assert bound <= least * (1 + CLOSE), f"{about}: a layout has {least}, the bound is {bound}"
    assert best >= least * (1 - CLOSE), f"{about}: no layout has {best}, the least is {least}"
    if found.certificate.proven or size <= FEW:
        assert best <= least * (1 + CLOSE), f"{about}: a layout has {least}, the answer {best}"
    again = api.evaluate_mapping(case.architecture, case.workload, found.mapping, profile=case.profile)
    assert (again.latency_s, again.energy_j) == (found.latency_s, found.energy_j), about
    return len(points)
