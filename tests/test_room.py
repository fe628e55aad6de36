"""What an accelerator may hold: what drivers show of its memory, less what a profile's runtime keeps. One rule for search and evaluate."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import pytest

from rackmodel import api
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_architecture, read_profile
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.room import Room, room_of
from tests import samples
from tests.machines import FFN, SERIAL, machine, mapper, workload
from tests.steps import searched

SIZES = ["overlap=profile", "layers=4", "b=16", "d=4096", "g=8", "q=4", "e=128", "f=14336", "s=2048", "t=2048", "v=32768", "accelerators=8"]
FEW = ["overlap=profile", "layers=2", "b=8", "d=1024", "g=8", "q=4", "e=128", "f=4096", "s=2048", "t=2048", "v=4096", "accelerators=4"]
FREE = [*FEW, "micro_batch=1", "axes.pp.degree=1", "axes.dp.degree=1", "homes={}", "recompute=none"]
BOTH = ("megatron_core", "ideal")
LISTED = [(name, profile) for name in ("megatron", "megatron_offload", "fsdp") for profile in BOTH]
ROOMY = [16e9][: samples.cases(0, 1)]
NONE_FITS = {("megatron", "megatron_core"), ("megatron_offload", "ideal"), *LISTED[:: samples.cases(len(LISTED), 1)]}


def test_the_room_of_an_h100_under_megatron_core_by_hand() -> None:
    """80 GB as drivers show them: 80 x 1.0618 = 84.944 GB; less 1.45 GB."""
    room = room_of(read_architecture("dgx_h100"), read_profile("megatron_core"))
    assert room.visible == pytest.approx(84.944e9)
    assert room.bytes == pytest.approx(83.494e9)
    assert room.text == "83.49 GB: 84.94 GB less 1.45 GB of the runtime"


def test_a_machine_that_tells_no_visible_memory_keeps_its_capacity_where_no_runtime_is_named() -> None:
    assert room_of(read_architecture("rack_paper"), read_profile("serial")) == Room(80e9, 0.0)
    assert room_of(read_architecture("rack_paper"), read_profile("megatron_core")).bytes == pytest.approx(78.55e9)


def test_what_is_not_enforced_or_has_no_capacity_has_room_for_everything() -> None:
    loose = read_architecture("dgx_h100", ["gpu.memory.enforce=false"])
    assert room_of(loose, read_profile("megatron_core")).limit is None
    assert room_of(machine(), SERIAL).bytes == inf


def test_a_runtime_that_keeps_more_than_there_is_leaves_nothing() -> None:
    assert Room(1e9, 2e9).bytes == 0.0


def test_a_serving_engine_says_what_it_keeps_in_its_own_words() -> None:
    with pytest.raises(InputError, match=r"reserved.*engine\.reserved"):
        read_profile("vllm", ["profile.reserved=2 GB"])
    with pytest.raises(InputError, match="reserved"):
        read_profile("fsdp", ["profile.reserved=-2 GB"])


def _asked(name: str, profile: str, sizes: list[str], *sets: str) -> Any:
    """(figures, mapping) of a search, or what is needed."""
    try:
        found = api.search("dgx_h100", "llama", name, sets=[*sizes, *sets], profile=profile).result
    except InfeasibleError as problem:
        return problem.resource, problem.need
    return found.latency_s, found.energy_j, found.memory, found.mapping.model_dump(exclude={"note"})


ASKED: list[tuple[str, str, list[str], tuple[float, ...]]] = [
    *((name, profile, SIZES, (*ROOMY, 8e9, *([0.5e9] if (name, profile) in NONE_FITS else []))) for name, profile in LISTED),
    *(("megatron_cut", profile, FEW, (1e9,)) for profile in BOTH),
    ("megatron_free", "ideal", FREE, (1e9,)),
]


@pytest.mark.parametrize(("name", "profile", "sizes", "capacities"), samples.some(ASKED, 4))
def test_a_search_keeps_the_room_wherever_it_reads_it(name: str, profile: str, sizes: list[str], capacities: tuple[float, ...]) -> None:
    """Lists, outlines, bounds, tables of layouts, cuts and offloading: 16 parts of a capacity with one more visible and one kept are 16
    parts of a plain memory, to the last digit."""
    for capacity in capacities:
        have, kept = f"gpu.memory.capacity={capacity:.0f} B", f"profile.reserved={capacity / 16:.0f} B"
        plain = _asked(name, profile, sizes, have, "gpu.memory.visible=1", "profile.reserved=0 B")
        assert _asked(name, profile, sizes, have, "gpu.memory.visible=1.0625", kept) == plain, capacity


def test_the_best_that_fits_is_the_fastest_of_all_points_that_do() -> None:
    """Every degree of data and tensor parallelism, layout and home, listed on a machine without a limit."""
    home = {"weights": [{}, {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}]}
    maps = mapper(axes={"dp": {"degree": "free"}, "tp": {"degree": "rest"}}, split={"dp": ["b"], "tp": ["f"]}, homes=home)
    load = workload(FFN, {"b": 64, "s": 256, "d": 256, "f": 1024})
    job = Job(setting=Setting(architecture=machine()), workload=load, profile=SERIAL)
    points = search_space(job, build_mapspace(maps, load, 8), Question(goal=Objective("latency"), top=1000)).points
    held = sorted({point.memory for point in points})
    assert len(held) > 3
    seen = set()
    for have in (*held, held[0] - 1):
        tight = machine(capacity=f"{have:.0f} B", visible=1.25)
        profile = SERIAL.model_copy(update={"reserved_bytes": 0.25 * round(have)})
        fits = [point.seconds for point in points if point.memory <= room_of(tight, profile).bytes]
        assert len(fits) == sum(point.memory <= round(have) for point in points)
        if not fits:
            with pytest.raises(InfeasibleError):
                searched(tight, load, maps, "latency", profile)
            continue
        seen.add(min(fits))
        assert searched(tight, load, maps, "latency", profile).points[0].seconds == min(fits)
    assert len(seen) > 1


def test_what_does_not_fit_says_what_the_runtime_keeps_and_the_change_fits() -> None:
    sizes, small, kept = [*SIZES[:-1], "accelerators=1"], "gpu.memory.capacity=0.5 GB", "profile.reserved=100 MB"
    with pytest.raises(InfeasibleError) as problem:
        api.search("h100", "llama", "megatron", sets=[*sizes, small, kept], profile="megatron_core")
    said = str(problem.value)
    assert re.search(r"it has 0\.4309 GB: 0\.5309 GB less 0\.1 GB of the runtime", said), said
    change = problem.value.change.split(" (")[0]
    assert change.startswith("gpu.memory.capacity=")
    value = change.replace("'", "")
    found = api.search("h100", "llama", "megatron", sets=[*sizes, value, kept], profile="megatron_core").result
    assert found.memory_share == pytest.approx(1.0, abs=2e-3)
    assert found.memory_share <= 1.0
