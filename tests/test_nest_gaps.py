"""What a step of several loop nests takes at least: the sum of what each takes at least, where nests are not proven."""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.solution import gap_of
from tests.samples import cases
from tests.test_fused_kernels import FIGURES, chain, every_set
from tests.test_nest_trades import workload

SURE = 1e-9


def worsened(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> dict[Any, tuple[float, float]]:
    """Nests of another aim, as if no better ones had been found, and bounds below the optimum: (optimum, bound) of each."""
    search, aims = NestInside._search, {"energy": "latency", "latency": "energy"}
    nests: dict[Any, Any] = {}
    told: dict[Any, tuple[float, float]] = {}

    def poor(self: NestInside, problem: Any, machine: Any, watts: float, home: tuple[str, ...] = ()) -> Any:
        key = problem.name, self.aim.name, watts
        if key not in nests:
            best = search(self, problem, machine, watts, home).certificate["bound"]
            other = search(self.aimed(NestObjective(aims[self.aim.name])), problem, machine, watts, home)
            found = other.cost.latency_s if self.aim.name == "latency" else other.cost.energy_j + watts * other.cost.latency_s
            bound = best * rng.uniform(0.8, 1)
            told[key] = best, bound
            nests[key] = replace(other, certificate=other.certificate | {"bound": bound, "gap": gap_of(found, bound)})
        return nests[key]

    monkeypatch.setattr(NestInside, "_search", poor)
    return told


@pytest.mark.parametrize("minimize", ["energy", "latency"])
@pytest.mark.parametrize("seed", range(cases(3, 40)))
def test_a_step_takes_at_least_what_its_nests_take_at_least_together(
    seed: int, minimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    file = tmp_path / "several.yaml"
    file.write_text(yaml.safe_dump(workload(rng, 3), sort_keys=False), encoding="utf-8")
    speeds = [f"glb.memory.bandwidth={rng.choice([1, 20])} GB/s", f"chip.memory.bandwidth={rng.choice([1, 100])} GB/s"]
    sets = ["accelerators=1", *speeds, f"glb.memory.capacity={rng.choice([16, 32, 64])} B"]
    best = api.search("glb_pe", str(file), "loopnest_perfect", sets=sets, minimize=minimize).result
    told = worsened(monkeypatch, rng)
    found = api.search("glb_pe", str(file), "loopnest_perfect", sets=sets, minimize=minimize).result.certificate
    assert len(told) == len(best.nests)
    assert found.bound == pytest.approx(best.certificate.objective - sum(one - bound for one, bound in told.values()), rel=1e-9)


@pytest.mark.parametrize("seed", range(cases(1, 40)))
def test_no_set_of_regions_is_below_the_bound_of_nests_and_regions_that_are_not_proven(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    minimize = ("energy", "latency")[seed % 2]
    said = chain(tmp_path, [rng.choice([2, 4]) for _ in range(cases(3, 4))], rng.choice([2, 4]))
    sets = ["accelerators=1", f"glb.memory.capacity={rng.choice([32, 64, 256])} B", f"chip.static_power={rng.choice([0, 0.01])} W"]

    def search(fuse: Any) -> Any:
        inside = yaml.safe_dump({"model": "loopnest", "factors": "perfect", "fuse": fuse}, default_flow_style=True).strip()
        return api.search("tiny", said, "loopnest_fused", sets=[*sets, f"inside={inside}"], minimize=minimize).result

    forced = []
    for some in every_set(said):
        with suppress(InfeasibleError):  # a region that does not fit
            forced.append(FIGURES[minimize](search(some)))
    worsened(monkeypatch, rng)
    assert search("free").certificate.bound <= min(forced) * (1 + SURE)
