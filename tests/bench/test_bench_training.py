"""Benchmarks of the training-step search, reported and not asserted: `make bench`."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.step.group import Job
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper.listed_choices import algorithms_of
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import exact_step
from rackmodel.mapper.search import Found, Question, search_space
from rackmodel.setting import setting_of

pytestmark = pytest.mark.bench
ONE: dict[str, Any] = {"schedule": "1f1b", "overlap": (1, 1), "stages": 4, "chunks": 1, "layers": (), "mixes": ()}


def _search(architecture: str, workload: str, mapper: str, accelerators: int) -> tuple[Job, Found, float]:
    given = read_inputs(architecture, workload, mapper=mapper, sets=[f"accelerators={accelerators}"])
    assert given.mapper is not None
    profile = read_profile("megatron_core")
    started = time.process_time()
    space = build_mapspace(given.mapper, given.workload, accelerators)
    setting = setting_of(given.architecture, profile, algorithms_of(given.mapper))
    job = Job(setting=setting, workload=given.workload, profile=profile, host=given.mapper.host)
    found = search_space(job, space, Question(goal=Objective("latency")))
    seconds = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    certificate = found.certificate
    print(
        f"\n{workload} on {accelerators} of {architecture}, {mapper}: {seconds:.2f} CPU s, {certificate.space:.4g} points, "
        f"{certificate.evaluated:.4g} priced, {certificate.space / seconds / 1e6:.2f} M points a second, "
        f"{found.points[0].seconds:.4g} s a step, {memory:.2f} GB"
    )
    return job, found, seconds


def test_gpt3_in_spaces_that_contain_calculons() -> None:
    for mapper, accelerators in (("megatron", 512), ("megatron_wide", 512), ("megatron_wide_offload", 512), ("megatron_wide", 4096)):
        _search("dgx_a100", "gpt3_175b", mapper, accelerators)


def test_points_in_arrays_against_points_one_by_one() -> None:
    """The same lines price a grid and a point: a ratio in one run."""
    job, found, seconds = _search("dgx_a100", "gpt3_175b", "megatron_wide", 512)
    group, price = found.groups[0], found.prices[0]
    columns = np.flatnonzero(group.columns.stages == 4)[:50]
    started = time.process_time()
    for column in columns:
        exact_step(job, replace(found.points[0], group=0, variant=0, column=int(column), **ONE), group, price).seconds()
    alone = len(columns) / (time.process_time() - started)
    print(f"one by one {alone:.0f} points a second, in arrays {found.certificate.evaluated / seconds / alone:.0f} times as many")


def test_llama_and_a_trillion_parameters() -> None:
    _search("dgx_h100", "llama3_405b", "parallel", 16384)
    _search("dgx_h100", "moe_1t", "parallel_moe", 131072)


def test_growth_with_the_machine() -> None:
    for power in range(10, 18):
        _search("dgx_h100", "moe_1t", "parallel_moe", 2**power)


def test_collectives_of_every_mesh_of_131072_accelerators() -> None:
    from rackmodel.cost.network.collectives import collective_table
    from rackmodel.inputs.read import read_architecture

    machine = read_architecture("dgx_h100", ["accelerators=131072"])
    powers = [(2**i, 2**j, 2 ** (17 - i - j)) for i in range(18) for j in range(18 - i)]
    strides = [(b * c, c, 1) for _, b, c in powers]
    for algorithm in ("ring", "tree", "hierarchical", "halving_doubling"):
        started = time.process_time()
        collective_table(machine, powers, strides, "abc", "a", "all_reduce", algorithm)
        print(f"\n{algorithm}: {(time.process_time() - started) / len(powers) * 1e6:.0f} us a mesh, cold")
