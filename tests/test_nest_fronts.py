"""What searches of a nest for several aims say together: against every mapping, where each alone is poor."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.mapper.nests import loop_nests
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.nests.nest_fronts import NestFront
from rackmodel.nests.evaluate import NestCost, evaluate
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.solution import gap_of
from tests.samples import cases
from tests.test_nest_trades import front, pareto, workload


def told(fronts: NestFront, aim: NestObjective, joules: float, seconds: float, bound: float) -> tuple[str, float, float]:
    """(mapping, its figure, bound) that a front says of a search's answer."""
    cost = NestCost(joules, seconds, {}, (), 0.0, {}, {}, {}, {}, 0.0)
    key = aim.key(joules, seconds)[0]
    said = {"objective": key, "bound": bound, "gap": gap_of(key, bound), "status": "", "ties": True}
    mapping, said = fronts.told(aim, NestMapping(aim.name, "", ()), cost, said)
    assert said["gap"] == pytest.approx(said["objective"] / said["bound"] - 1)
    return mapping.problem, said["objective"], said["bound"]


def test_lines_of_two_aims_bound_a_third_and_the_best_mapping_of_any_is_taken() -> None:
    """J >= 2 and T >= 1: J + T is 3 at least, (J + T) T is 3. Of (2, 9), (8, 1), (5, 3), (5, 4): J + T is least at (5, 3), 8; (J + T) T at
    (8, 1), 9."""
    fronts = NestFront()
    assert told(fronts, NestObjective("energy"), 2.0, 9.0, 2.0) == ("energy", 2.0, 2.0)
    assert told(fronts, NestObjective("latency"), 8.0, 1.0, 1.0) == ("latency", 1.0, 1.0)
    assert told(fronts, NestObjective("energy", static_w=1.0), 5.0, 3.0, 2.5) == ("energy", 8.0, pytest.approx(3.0))
    assert told(fronts, NestObjective("edp", static_w=1.0), 5.0, 4.0, 2.5) == ("latency", 9.0, pytest.approx(3.0))


def poor(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Searches of nests that often find another aim's mapping, and prove less than they could."""
    solve = NestInside._solve

    def solved(self: NestInside, problem: Any, machine: Any, rules: Any, watts: float, *more: Any) -> Any:
        best = solve(self, problem, machine, rules, watts, *more)
        other = self.aimed(NestObjective(rng.choice([self.aim.name, "energy", "latency"])))
        mapping = solve(other, problem, machine, rules, watts, *more)["mapping"]
        cost = evaluate(problem, machine, NestMapping.from_dict(mapping))
        found = float(replace(self.aim, static_w=watts).key(cost.energy_j, cost.latency_s)[0])
        bound = best["certificate"]["bound"] * rng.uniform(0.8, 1)
        sheet = best["certificate"] | {"objective": found, "bound": bound, "gap": gap_of(found, bound), "ties": False}
        return {"mapping": mapping, "certificate": sheet}

    monkeypatch.setattr(NestInside, "_solve", solved)
    monkeypatch.setattr(loop_nests, "remembered", lambda question, solve, watch: solve(Effort(60e6, watch.ends)))


@pytest.mark.parametrize("seed", range(cases(2, 60)))
def test_no_combination_of_mappings_is_below_what_poor_searches_prove(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    file = tmp_path / "several.yaml"
    file.write_text(yaml.safe_dump(workload(rng, rng.choice([2, 3])), sort_keys=False), encoding="utf-8")
    speeds = [f"glb.memory.bandwidth={rng.choice([1, 20, 300])} GB/s", f"chip.memory.bandwidth={rng.choice([1, 10, 100])} GB/s"]
    sets = ["accelerators=1", *speeds, f"glb.memory.capacity={rng.choice([16, 32, 64])} B"]
    poor(monkeypatch, rng)
    result = api.search("glb_pe", str(file), "loopnest_perfect", sets=sets, minimize="edp").result
    sums = np.zeros((1, 2))
    for nest in result.nests.values():
        sums = pareto((sums[:, None, :] + front(nest)[None]).reshape(-1, 2))
    least, found = float((sums[:, 0] * sums[:, 1]).min()), result.energy_j * result.latency_s
    assert result.certificate.objective == pytest.approx(found, rel=1e-9)
    assert result.certificate.bound <= least * (1 + 1e-9)
    assert found >= least * (1 - 1e-9)
    assert result.certificate.gap == pytest.approx(max(0.0, 1 - result.certificate.bound / found), abs=2e-9)
