"""The smallest change with which a search that found no mapping would find one."""

from __future__ import annotations

from dataclasses import replace

from rackmodel.cost.step.group import Job
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.mapping_check import hosts_of
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.search import Question, search_space
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.room import capacity_for
from rackmodel.units import capacity_text

MOST_TRIED = 2_000_000
"""Accelerators of all searches for a way out together; a mesh of so many takes about ten seconds."""
MOST_APART = 32
"""Accelerators more or fewer that are tried where degrees do not fit sizes."""
MOST_BETWEEN = 15
"""Numbers between one doubling and the next of which each is tried."""


def with_way_out(problem: InfeasibleError, job: Job, mapper: MapperSpec) -> InfeasibleError:
    """The same answer with the smallest change that fits: more accelerators, as far as they are tried (doublings, and the numbers between
    two small ones), else more memory. Where it is the sizes that degrees do not divide, the nearest number of accelerators, else stages
    that need not be equal."""
    used = job.setting.architecture.used
    if problem.unit == "point" and not problem.change:
        nearest = next((count for count in _nearest(job.setting.architecture) if _fits_on(count, job, mapper)), None)
        if nearest:
            return _changed(problem, f"accelerators={nearest} (now {used})")
        uneven = mapper.cut != "free" and _fits_on(used, job, mapper.model_copy(update={"cut": "free"}), "latency")
        return _changed(problem, "cut=free") if uneven else problem
    if problem.change or problem.unit != "byte":
        return problem
    counts, left_out = _more_accelerators(job.setting.architecture)
    if mapper.cut == "free":  # of which the fastest is known, not the smallest
        counts, left_out = [], bool(counts) or left_out
    enough = next((count for count in counts if _fits_on(count, job, mapper)), None)
    if enough is not None and enough // 2 - 1 <= MOST_BETWEEN:
        between = (count for count in range(enough // 2 + 1, enough) if _fits_on(count, job, mapper))
        change = f"accelerators={next(between, enough)} (now {used})"
    elif enough is not None:
        change = f"accelerators={enough} (now {used}; doublings were tried)"
    else:
        change = f"{problem.resource}.capacity='{capacity_text(_capacity_for(problem, job))}'"
        if left_out:
            change += f" (more accelerators than {max(counts, default=used)} were not tried)"
    return _changed(problem, change)


def _changed(problem: InfeasibleError, change: str) -> InfeasibleError:
    return InfeasibleError(
        problem.message, resource=problem.resource, need=problem.need, have=problem.have, unit=problem.unit, change=change
    )


def _nearest(architecture: Architecture) -> list[int]:
    """Numbers of accelerators about those in use, the nearest first, of two the smaller."""
    used = architecture.used
    counts = [used + apart for step in range(1, MOST_APART + 1) for apart in (-step, step)]
    return [count for count in counts if 0 < count <= architecture.available and 2 * MOST_APART * count <= MOST_TRIED]


def _capacity_for(problem: InfeasibleError, job: Job) -> float:
    """Bytes of the data sheet's capacity with which what is needed fits."""
    machine = job.setting.architecture
    level = problem.resource.removesuffix(".memory")
    if level == machine.accelerator.name:
        return capacity_for(machine, job.profile, problem.need)
    memory = machine.level(level).memory
    assert memory is not None
    assert memory.capacity_bytes is not None
    return problem.need * memory.capacity_bytes / problem.have  # of a level's memory, of which an accelerator has its part


def _more_accelerators(architecture: Architecture) -> tuple[list[int], bool]:
    """(twice, four times, ... 64 times the accelerators in use, as far as there are so many, whether any of those is left out). A search
    walks the links of all accelerators, so its work grows with them: the tries together take no more than MOST_TRIED."""
    counts: list[int] = []
    count = architecture.used * 2
    while count <= min(architecture.available, 64 * architecture.used):
        if sum(counts) + count > MOST_TRIED:
            return counts, True
        counts.append(count)
        count *= 2
    return counts, False


def _fits_on(count: int, job: Job, mapper: MapperSpec, goal: str = "memory") -> bool:
    """Whether the mapper has a point that fits on so many accelerators of the machine."""
    larger = job.setting.architecture.model_copy(update={"accelerators": count})
    wider = replace(job, setting=replace(job.setting, architecture=larger))
    try:
        search_space(wider, build_mapspace(mapper, job.workload, count, hosts_of(larger)), Question(goal=Objective(goal)))
    except (InfeasibleError, InputError):
        return False
    return True
