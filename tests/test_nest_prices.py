"""What a second of a loop nest is worth where a limit, a list of objectives, a host, other lanes or other stages decide it: claims against
nests of other aims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.nest_aims import aim_of
from rackmodel.mapper.objective import Objective
from rackmodel.results import carbon_of
from tests.test_fused_between import MACHINE
from tests.test_fused_kernels import chain, launching, written

SURE = 1e-9
STAGES = {"axes": {"pp": {"stages": "per_einsum"}}}
SHARDED = {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}
GATHERED = {"axes": {"dp": {"degree": "all"}}, "split": {"dp": ["m"]}, "homes": {"weights": SHARDED}}
ROWS = {"axes": {"tp": {"degree": "all"}}, "split": {"tp": ["m"]}}


class Asked:
    """A chain of products on some accelerators."""

    def __init__(self, path: Path, widths: list[int], rows: int, n: int, sets: list[str], link: str = "1 GB/s", **overlap: Any) -> None:
        self.path, self.n, self.sets, self.workload = path, n, [f"accelerators={n}", *sets], chain(path, widths, rows)
        network = {**MACHINE["tree"]["network"], "bandwidth": link}
        self.machine = written(path / "four.yaml", {**MACHINE, "tree": {**MACHINE["tree"], "network": network}})
        lanes = {"weights": False, **overlap}
        self.profile = written(path / "lanes.yaml", {"profile": "lanes", "overlap": lanes, "source": "a test"})

    def answer(self, minimize: str, mapper: dict[str, Any], watts: float = 0.0, **said: Any) -> api.Answer:
        """The best step. mapper: its layout."""
        fuse = said.pop("fuse", [])
        inside = {"model": "loopnest", "factors": "perfect", "fuse": fuse}
        made = written(self.path / "m.yaml", {"mapper": "m", "profile": "serial", **mapper, "inside": inside})
        sets = [*self.sets, f"chip.static_power={watts} W"]
        return api.search(self.machine, self.workload, made, sets=sets, profile=self.profile, minimize=minimize, **said)

    def least(self, watts: float, mapper: dict[str, Any]) -> float:
        """Joules at this static power of nests that were searched at others."""
        aims = [("latency", 0.0), *(("energy", watts * times) for times in (0.0, 0.5, 3.0))]
        each = [(self.answer(name, mapper, other).result, other) for name, other in aims]
        return min(one.energy_j + self.n * (watts - other) * one.latency_s for one, other in each)


@pytest.mark.parametrize(
    ("widths", "rows", "launch", "bandwidth", "room"),
    [([16, 2], 4, "1 us", 1, 24), ([8, 2, 8], 8, "0.3 us", 16, 24), ([8, 16, 4], 4, "1 us", 4, 16)],
)
def test_of_steps_that_the_host_makes_equally_long_the_least_energy_is_found(
    widths: list[int], rows: int, launch: str, bandwidth: int, room: int, tmp_path: Path
) -> None:
    """Nests of least latency that break ties by energy take up to 17 % more: longer ones cost no time."""
    asked = Asked(tmp_path, widths, rows, 1, [f"glb.memory.capacity={room} B", f"glb.memory.bandwidth={bandwidth} GB/s"])
    asked.profile = launching(tmp_path, launch)
    found, least = (asked.answer(goal, ROWS).result for goal in ("latency,energy", "energy"))
    assert found.latency_s == least.latency_s
    assert found.energy_j == pytest.approx(least.energy_j, rel=SURE)
    assert found.certificate.proven


def test_of_steps_that_wait_for_gathers_alike_no_less_energy_is_claimed(tmp_path: Path) -> None:
    sets = ["glb.memory.capacity=64 B", "glb.memory.bandwidth=4 GB/s"]
    asked = Asked(tmp_path, [8, 8, 2], 8, 2, sets, "0.05 GB/s", weights=True)
    found, least = (asked.answer(goal, GATHERED).result for goal in ("latency,energy", "energy"))
    assert least.latency_s == pytest.approx(found.latency_s, rel=1e-12)
    assert found.energy_j == pytest.approx(least.energy_j, rel=SURE)
    assert found.certificate.proven


@pytest.mark.parametrize(
    ("widths", "rows", "watts", "room", "bandwidth", "link", "mapper"),
    [
        ([16, 16, 2], 8, 0.01, 24, 1, "0.05 GB/s", STAGES),
        ([8, 4, 8], 4, 0.2, 16, 16, "1 GB/s", STAGES),
        ([2, 4, 8], 3, 0.2, 24, 1, "0.05 GB/s", {**ROWS, "uneven": "ceil"}),
    ],
)
def test_static_power_of_stages_and_of_uneven_shares_is_no_sum_over_nests(
    widths: list[int], rows: int, watts: float, room: int, bandwidth: int, link: str, mapper: dict[str, Any], tmp_path: Path
) -> None:
    """A stage that others wait for should be fast, the others need not; of three rows on two the fullest has more than half the work."""
    asked = Asked(tmp_path, widths, rows, 2, [f"glb.memory.capacity={room} B", f"glb.memory.bandwidth={bandwidth} GB/s"], link, sends=True)
    found, least = asked.answer("energy", mapper, watts).result, asked.least(watts, mapper)
    assert found.certificate.bound <= least * (1 + SURE)
    assert found.energy_j <= least * (1 + SURE)


def test_a_limit_that_nests_of_least_latency_break_is_kept_by_others(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [8, 8, 8], 16, 1, ["glb.memory.capacity=96 B"])
    fast, frugal = (asked.answer(goal, ROWS, fuse="free").result for goal in ("latency", "energy"))
    assert frugal.energy_j < fast.energy_j
    kept = asked.answer("latency", ROWS, fuse="free", limits={"energy": frugal.energy_j}).result
    assert (kept.energy_j, kept.latency_s) == (pytest.approx(frugal.energy_j), pytest.approx(frugal.latency_s))
    assert kept.certificate.proven
    loose = asked.answer("latency", ROWS, fuse="free", limits={"energy": fast.energy_j * 1.01}).result
    assert loose.latency_s == fast.latency_s
    assert loose.certificate.proven
    with pytest.raises(InfeasibleError, match="energy: a step needs") as told:
        asked.answer("latency", ROWS, fuse="free", limits={"energy": frugal.energy_j * 0.99})
    assert told.value.need == pytest.approx(frugal.energy_j)


def test_a_front_of_seconds_and_joules_is_not_said_to_be_whole(tmp_path: Path) -> None:
    """Other nests trade seconds for joules on the same mesh."""
    asked = Asked(tmp_path, [8, 8, 8], 16, 1, ["glb.memory.capacity=96 B"])
    both, one = (asked.answer("latency", ROWS, front=figures) for figures in (["latency", "energy"], ["latency", "memory"]))
    assert (both.front_status, one.front_status) == ("best found", "proven")


def test_what_is_fused_has_free_layouts_that_no_named_one_is_better_than(tmp_path: Path) -> None:
    """Until 28 November 2026 they were refused; before, operations were priced one by one: of three chains of two products none was the
    least, and all were said to be proven. (Every layout with every set of regions: test_fused_layouts.)"""
    asked = Asked(tmp_path, [4, 8, 4], 8, 2, ["glb.memory.capacity=64 B"])
    found = asked.answer("energy", {**ROWS, "split": {"tp": "free"}}, fuse="free").result
    named = [asked.answer("energy", {**ROWS, "split": {"tp": [index]}}, fuse="free").result for index in ("m", "k1")]
    assert found.certificate.proven
    assert found.energy_j == pytest.approx(min(one.energy_j for one in named), rel=SURE)
    assert all(nest.resident for nest in found.nests.values())


def test_one_product_by_edp_knows_that_the_host_hides_seconds(tmp_path: Path) -> None:
    asked = Asked(tmp_path, [16, 2], 4, 1, ["glb.memory.capacity=24 B", "glb.memory.bandwidth=1 GB/s"])
    asked.profile = launching(tmp_path, "1 us")
    found, frugal = (asked.answer(goal, ROWS).result for goal in ("edp", "energy"))
    assert found.latency_s * found.energy_j == pytest.approx(frugal.latency_s * frugal.energy_j)
    assert found.certificate.proven


@pytest.mark.parametrize("minimize", ["total_carbon", "tcdp"])
def test_grams_price_a_nests_seconds(minimize: str, tmp_path: Path) -> None:
    """Until 27 November 2026 they ended with an error. No nests of least energy or latency are better."""
    workload = chain(tmp_path, [64, 32, 64], 32)
    sets = ["accelerators=1", "glb.memory.capacity=2 KiB", "chip.memory.bandwidth=0.1 GB/s"]

    def grams(goal: str) -> tuple[float, bool]:
        found = api.search("npu", workload, "loopnest_perfect", sets=sets, minimize=goal).result
        carbon = carbon_of(found)
        assert carbon is not None
        return carbon.total_g.mid * (found.latency_s if minimize == "tcdp" else 1.0), found.certificate.proven

    least, proven = grams(minimize)
    assert proven
    assert least <= min(grams(other)[0] for other in ("energy", "latency", "edp")) * (1 + SURE)


def test_the_aim_of_a_nest_prices_its_seconds() -> None:
    assert aim_of(Objective("latency"), 8.0, 4)[0].name == aim_of(Objective("memory"), 8.0, 4)[0].name == "latency"
    assert aim_of(Objective("energy"), 8.0, 4)[1] is None
    aim, second_j = aim_of(Objective("total_carbon", 2.0, 6.0), 8.0, 4)  # 2 (J + 8 T) + 6 T = 2 (J + 11 T), of four accelerators
    assert (aim.name, second_j) == ("energy", 11.0 / 4)
    assert aim_of(Objective("money", 0.0, 6.0), 8.0, 4)[0].name == "latency"
