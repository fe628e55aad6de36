"""EDP over several loop nests against every combination of every nest's mappings."""

import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.mapper.nests.nest_hull import Hull, SupportLine
from tests import samples
from tests.nests.brute_nest import Brute

SIZES = (1, 2, 3, 4, 6, 8)


def workload(rng, count):
    """A chain of products of random sizes."""
    letters = "abcdefgh"
    einsums, sizes = {}, {}
    for i in range(count):
        m, k, n = (f"{letters[i]}{x}" if i else x for x in "mkn")
        sizes.update({r: rng.choice(SIZES) for r in (m, k, n)})
        einsums[f"E{i}"] = f"Y{i}[{m},{n}] = X{i}[{m},{k}] * W{i}[{k},{n}]"
    precision = {"activation": "16 bit", "weight": "16 bit"}
    return {"workload": "several", "phases": ["forward"], "sizes": sizes, "precision": precision, "einsums": einsums}


def front(nest):
    """Pareto points (E, T) of every mapping of a nest."""
    points = np.concatenate([np.stack([np.ravel(e), np.ravel(t)], axis=1) for e, t in Brute(nest.problem, nest.machine).all()])
    return pareto(points[np.isfinite(points).all(axis=1)])


def pareto(points):
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    best = np.minimum.accumulate(points[:, 1])
    return points[np.r_[True, points[1:, 1] < best[:-1]]]


@pytest.mark.parametrize("seed", samples.some(range(8), 2))
def test_the_product_of_several_nests_is_proven_and_the_least_of_all_combinations(seed, tmp_path: Path):
    rng = random.Random(seed)
    file = tmp_path / "several.yaml"
    file.write_text(yaml.safe_dump(workload(rng, rng.choice([2, 2, 3])), sort_keys=False))
    speeds = [f"glb.memory.bandwidth={rng.choice([1, 20, 300])} GB/s", f"chip.memory.bandwidth={rng.choice([1, 10, 100])} GB/s"]
    room = [f"glb.memory.capacity={rng.choice([16, 32, 64])} B"]
    result = api.search("glb_pe", str(file), "loopnest_perfect", sets=["accelerators=1", *speeds, *room], minimize="edp").result
    sums = np.zeros((1, 2))
    for nest in result.nests.values():
        sums = pareto((sums[:, None, :] + front(nest)[None]).reshape(-1, 2))
    assert result.certificate.proven
    assert result.energy_j * result.latency_s == pytest.approx((sums[:, 0] * sums[:, 1]).min(), rel=1e-9)
    assert result.certificate.objective == pytest.approx(result.energy_j * result.latency_s, rel=1e-9)


def test_one_nest_is_its_own_product_and_one_with_others_beside_it_is_not(tmp_path: Path):
    """Of (E + e) (T + t) the least E T says nothing, as it was said to."""
    said = workload(random.Random(3), 1) | {"sizes": {"m": 8, "k": 6, "n": 8}}
    notes = {}
    for name, more in (("alone", {}), ("beside", {"R": "Z[m,n] = relu(Y0[m,n])"})):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(said | {"einsums": {**said["einsums"], **more}}, sort_keys=False), encoding="utf-8")
        certificate = api.search("glb_pe", str(path), "loopnest_perfect", minimize="edp").result.certificate
        notes[name] = certificate.note
        assert certificate.gap == 0.0
    assert "weighted sums" in notes["beside"]
    assert "weighted sums" not in notes["alone"]


def test_lines_bound_a_product_where_they_meet():
    lines = Hull([SupportLine(1.0, 0.0, 2.0, (2.0, 9.0)), SupportLine(1.0, 1.0, 7.0, (3.0, 4.0)), SupportLine(0.0, 1.0, 1.0, (8.0, 1.0))])
    assert lines.lowest(lambda joules, seconds: joules * seconds) == (pytest.approx(6.0), (1,))
    assert lines.chord(1) == (3.0, 5.0)
    assert lines.chord(0) == (5.0, 1.0)


def test_a_limit_of_power_ends_the_least_joules_where_they_last_long_enough():
    """549 pJ at least, 32 ns at least, 11 mW at most: no step is faster than 549 pJ / 11 mW, 49.9 ns; of some one searched, 72 ns (rounding
    of the limit, whose right side is 0, once left nothing but steps that last for ever, so that 72 ns counted as proven)."""
    for watts in (0.011, 0.01096524402115812, 0.0123, 0.0171):
        lines = Hull([SupportLine(1.0, 0.0, 549e-12, (549e-12, 72e-9)), SupportLine(0.0, 1.0, 32e-9, (559e-12, 32e-9))])
        power = (lambda joules, seconds, most=watts: joules - most * seconds, 0.0)
        least, _ = lines.lowest(lambda joules, seconds: seconds, [power], rises=False)
        assert least == pytest.approx(549e-12 / watts, rel=1e-9)
