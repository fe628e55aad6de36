"""What searches of a nest for several aims say together: against every mapping, where each alone is poor."""

import random
import sqlite3
from dataclasses import replace
from math import sqrt
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
from rackmodel.nests.searchers.ragged import joint_best
from rackmodel.nests.solution import gap_of
from rackmodel.store import remembered
from tests import samples
from tests.test_nest_trades import front, pareto, workload


def told(fronts: NestFront, aim: NestObjective, joules: float, seconds: float, bound: float) -> tuple[str, float, float]:
    """(mapping, its figure, bound) that a front says of a search's answer."""
    cost = NestCost(joules, seconds, {}, (), 0.0, {}, {}, {}, {}, 0.0)
    key = aim.key(joules, seconds)[0]
    said = {"objective": key, "bound": bound, "gap": gap_of(key, bound), "status": "", "ties": True}
    mapping, said = fronts.record(aim, NestMapping(aim.name, "", ()), cost, said)
    assert said["gap"] == pytest.approx(1 - said["bound"] / said["objective"])
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


@pytest.mark.parametrize("seed", range(samples.cases(2, 60)))
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


def test_a_search_goes_on_with_those_before_it_that_left_a_gap_and_they_are_run_again_where_they_are_only_remembered() -> None:
    product, near, far = NestObjective("edp"), NestObjective("energy", static_w=2.0), NestObjective("energy")
    fronts, ran = NestFront(), list[tuple[NestObjective, Any]]()

    def solve(aim: NestObjective, begun: Any) -> Any:
        ran.append((aim, begun))
        return f"{begun or ''}{aim.name}{aim.static_w} "

    assert fronts.before(product) == ()
    fronts.opened(product, (), 0.0)
    assert fronts.open == ()  # proven: nothing is left of it
    fronts.opened(product, (), 0.03)
    fronts.opened(far, (product,), 0.03)
    assert fronts.open == (product,)  # joules alone say little of what is near
    fronts.opened(near, (product,), 0.03)
    assert (fronts.before(far), fronts.before(near)) == ((product, near), (product,))
    assert fronts.begun((), solve) is None
    assert fronts.begun((product, near), solve) == "edp0.0 energy2.0 "
    assert ran == [(product, None), (near, "edp0.0 ")]
    assert fronts.begun((product, near), solve) == "edp0.0 energy2.0 "
    assert len(ran) == 2


@samples.audited
def test_the_product_of_several_nests_is_the_same_where_their_own_answers_alone_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, less in (("WORK", 16), ("STARTS", 1), ("KICKS", (0, 0)), ("FIRST", 4), ("MORE", 8)):
        monkeypatch.setattr(joint_best, name, less)
    monkeypatch.setenv("RACKMODEL_CACHE", str(tmp_path))
    said = {"workload": "two", "phases": ["forward"], "sizes": {"a": 1000, "b": 700, "c": 900, "d": 600}}
    said |= {"precision": {"activation": "16 bit", "weight": "16 bit"}}
    said |= {"einsums": {"E0": "Y0[a,c] = X0[a,b] * W0[b,c]", "E1": "Y1[a,d] = Y0[a,c] * W1[c,d]"}}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    found = []
    for _ in range(2):
        monkeypatch.setattr(remembered, "_STORES", {})
        found.append(api.search("h100", str(file), "loopnest", sets=["accelerators=1"], minimize="edp").result)
        with sqlite3.connect(tmp_path / "results.sqlite") as answers:
            answers.execute("DELETE FROM answers WHERE rowid > 2")  # the first are of products
    sheets = [one.certificate for one in found]
    assert (sheets[0].objective, sheets[0].bound, found[0].nests) == (sheets[1].objective, sheets[1].bound, found[1].nests)
    own = sum(sqrt(nest.certificate["bound"]) for nest in found[0].nests.values()) ** 2
    assert own < sheets[0].bound <= sheets[0].objective
