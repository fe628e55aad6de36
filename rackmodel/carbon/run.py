"""A whole training run: steps, checkpoints, failures; its time, energy and carbon, in parts that add up.

    steps = tokens // (batch · sequence)                      (as Megatron-LM counts iterations: whole steps)
    T     = n M e^(R/M) (e^((τ+δ)/M) - 1)                     expected time of n segments of τ computing and δ writing

Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006), eq. 20: failures are
Poisson of mean time M between them, each costs the work since the last checkpoint and a restart R, and may strike while
writing or restarting. His optimum (eq. 37): τ = sqrt(2δM) [1 + sqrt(δ/2M)/3 + (δ/2M)/9] - δ for δ < 2M, else M; its first
factor alone is Young's (CACM 17, 1974). Parts of T, with L = τ + δ: computing nτ, checkpoints nδ, restarts T (1 - e^(-R/M)),
lost work n (M (e^(L/M) - 1) - L), of which n (M (e^(δ/M) - 1) - δ) was writing. Failures expected: T / M (Wald).

Energy: joules of a step for computing and lost computing; static power while writing or restarting (the joules of moving a
checkpoint's bytes are left out), and while writing what accelerators draw that wait for their host amid work, where the step has
kernels that were measured. Writing blocks training. One checkpoint holds weights and optimizer state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackmodel.carbon.job import JobCarbon
from rackmodel.carbon.operational import operational_carbon_g
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.architecture import Architecture, Site
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.units import Quantity

LONGEST = 20.0  # mean times between failures in one segment: e^20, 500 million, tries each


@dataclass(frozen=True)
class RunRequest:
    """What is asked of a run. interval_s: computing between checkpoints, None = no checkpoints, 0 = the optimum ·
    mtbf_s: between failures of the whole machine · restart_s: from a failure until training goes on, None = reading the
    checkpoint alone."""

    steps: int
    interval_s: float | None = None
    storage_bytes_per_s: float = math.inf
    mtbf_s: float = math.inf
    restart_s: float | None = None


@dataclass(frozen=True)
class RunShare:
    """A share of a run. carbon_g: None where the architecture has no site."""

    seconds: float
    joules: float
    carbon_g: float | None


@dataclass(frozen=True)
class Run:
    """A whole run. parts: computing, checkpoints, lost work, restarts; they add up to its time, energy and carbon.

    state_bytes: one checkpoint · write_s: writing it · interval_s: computing between two, None without any ·
    failures: expected number of them · carbon: of the whole run, with idle and embodied shares, where the machine has a site.
    """

    steps: int
    step_s: float
    state_bytes: float
    write_s: float
    interval_s: float | None
    checkpoints: int
    mtbf_s: float
    failures: float
    parts: dict[str, RunShare]
    carbon: JobCarbon | None = None

    @property
    def total(self) -> RunShare:
        """The whole of it: expected time from start to end, energy of the machine, operational carbon."""
        parts = self.parts.values()
        carbon = [part.carbon_g for part in parts if part.carbon_g is not None]
        return RunShare(math.fsum(p.seconds for p in parts), math.fsum(p.joules for p in parts), math.fsum(carbon) if carbon else None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; no failures = no mtbf_s."""
        figures = {**self.__dict__, "mtbf_s": self.mtbf_s if math.isfinite(self.mtbf_s) else None}
        figures["carbon"] = None if self.carbon is None else self.carbon.to_dict()
        return {**self.total.__dict__, **figures, "parts": {name: dict(part.__dict__) for name, part in self.parts.items()}}


def whole_run(
    result: Result, workload: Workload, asked: RunRequest, *, site: Site | None = None, table: Mapping[str, Quantity] | None = None
) -> Run:
    """The run of `asked.steps` of a result's steps. site, table: as operational_carbon_g takes them.

    Raises InputError where failures, checkpoints and storage do not fit together, InfeasibleError where failures leave no progress.
    """
    _check(asked)
    step_s, step_j = result.latency_s, result.energy_j
    idle_w = result.ledger.where(component="static", action="static").total("joules") / step_s
    state = state_bytes(workload)
    if asked.interval_s is not None and not state:
        raise InputError("the workload has no weights: nothing to save", path="--checkpoint")
    computing = asked.steps * step_s
    write = state / asked.storage_bytes_per_s if asked.interval_s is not None else 0.0
    restart = write if asked.restart_s is None else asked.restart_s
    mean = asked.mtbf_s
    segments = 1
    if asked.interval_s is not None:
        wanted = asked.interval_s or optimal_interval_s(write, mean)
        segments = max(1, math.ceil(computing / wanted * (1 - 1e-12)))
    length = computing / segments
    if (length + write) / mean > LONGEST or restart / mean > LONGEST:
        raise InfeasibleError(
            f"run: {length + write:.4g} s between checkpoints, or {restart:.4g} s of restart, never end with a failure every {mean:.4g} s",
            resource="time between failures",
            need=max(length + write, restart) / LONGEST,
            have=mean,
            unit="s",
        )
    tries = _repeated(length + write, mean)
    lost_writing = _repeated(write, mean) - write
    lost = tries - (length + write)
    total = segments * tries * math.exp(restart / mean) if math.isfinite(mean) else segments * tries
    waiting = total * -math.expm1(-restart / mean)
    checkpoints = segments if asked.interval_s is not None else 0

    def part(seconds: float, joules: float) -> RunShare:
        carbon = operational_carbon_g(joules, site, table) if site is not None and table is not None else None
        return RunShare(seconds, joules, None if carbon is None else float(carbon))

    watts, writing_w = step_j / step_s, idle_w + result.waiting_w
    return Run(
        asked.steps,
        step_s,
        state,
        write,
        length if checkpoints else None,
        checkpoints,
        mean,
        total / mean,
        {
            "computing": part(computing, asked.steps * step_j),
            "checkpoints": part(segments * write, segments * write * writing_w),
            "lost work": part(segments * lost, segments * ((lost - lost_writing) * watts + lost_writing * writing_w)),
            "restarts": part(waiting, waiting * idle_w),
        },
    )


def _check(asked: RunRequest) -> None:
    failing = math.isfinite(asked.mtbf_s)
    if asked.steps < 1:
        raise InputError("a run has at least one step", path="--steps")
    if asked.interval_s is None and math.isfinite(asked.storage_bytes_per_s):
        raise InputError("storage is for checkpoints: say --checkpoint too", path="--storage")
    if asked.interval_s is not None and not math.isfinite(asked.storage_bytes_per_s):
        raise InputError("a checkpoint needs the bandwidth it is written with, such as --storage '1 TB/s'", path="--checkpoint")
    if asked.interval_s == 0 and not failing:
        raise InputError("without failures no checkpoint is best: say --failures, or an interval", path="--checkpoint")
    if failing and asked.interval_s is None:
        raise InputError("a run with failures needs checkpoints, such as --checkpoint optimal --storage '1 TB/s'", path="--failures")
    if asked.restart_s is not None and not failing:
        raise InputError("a restart follows a failure: say --failures too", path="--restart")


def _repeated(length: float, mean: float) -> float:
    """Expected time until `length` seconds pass without a failure, restarts left out: M (e^(L/M) - 1)."""
    return mean * math.expm1(length / mean) if math.isfinite(mean) else length


def young_interval_s(write_s: float, mtbf_s: float) -> float:
    """sqrt(2 δ M). Source: Young 1974."""
    return math.sqrt(2 * write_s * mtbf_s)


def optimal_interval_s(write_s: float, mtbf_s: float) -> float:
    """Computing between checkpoints for the least expected time. Source: Daly 2006, eq. 37."""
    if write_s >= 2 * mtbf_s:
        return mtbf_s
    share = write_s / (2 * mtbf_s)
    return young_interval_s(write_s, mtbf_s) * (1 + math.sqrt(share) / 3 + share / 9) - write_s


# -- what a run is read off --------------------------------------------------------------------------------------------


def steps_of(tokens: float, workload: Workload) -> int:
    """Whole steps that `tokens` allow. Raises InputError where they are less than one step, or a step has no tokens."""
    each = tokens_of(workload)
    if tokens < each:
        raise InputError(f"{tokens:g} tokens are less than one step of {each}", path="--tokens")
    return int(tokens // each)


def tokens_of(workload: Workload) -> int:
    """Tokens of one step: of a decoder, the new ones of all sequences; else points of the ranks of what the model ends in (its loss, the
    residual stream, or scores of words) that no weight of its layers or of its last section has. Raises InputError where the workload has
    no weights."""
    if not workload.weights:
        raise InputError("tokens are of a workload with weights; say --steps", path="--tokens")
    if workload.serving is not None:
        return workload.sizes[workload.serving.sequences] * workload.sizes[workload.serving.new]
    last = workload.sections[-1].workload
    end = last.tensors[last.outputs[-1]]
    weighing = [section.workload for section in workload.sections if section.layer or section.workload is last]
    inside = {rank for graph in weighing for name in graph.weights for rank in graph.tensors[name].ranks}
    return math.prod(size for rank, size in zip(end.ranks, end.sizes, strict=True) if rank not in inside)


def state_bytes(workload: Workload) -> float:
    """Bytes of one checkpoint: every parameter once, its weight and its optimizer state (fp32 master and moments of Adam).

    A weight that two sections share (a tied embedding) counts once. GPT-3 175B: 14 bytes a parameter, 2.45 TB.
    """
    state = workload.state_bits if "optimizer" in workload.phases else 0
    parts = [(section.workload, section.repeat) for section in workload.sections]
    found: dict[str, float] = {}
    for graph, repeat in parts:
        for name in graph.weights:
            tensor = graph.tensors[name]
            found.setdefault(name, math.prod(tensor.sizes) * repeat * (tensor.bits + (state if tensor.trained else 0)) / 8)
    return math.fsum(found.values())


def machine_mtbf_s(mtbf_s: float, member: str, architecture: Architecture, accelerators: int) -> float:
    """Mean time between failures of the accelerators in use, from that of one `member` (a level's name, or 'accelerator').

    Members fail independently: M = m / members. Raises InputError for a level that is not above the accelerators.
    """
    pools = architecture.using(accelerators).pools if len(architecture.pools) > 1 else (architecture,)
    inside = [_holding(pool, pool.used if len(pools) > 1 else accelerators) for pool in pools]
    counts = {name: sum(one.get(name, 0) for one in inside) for one in inside for name in one}
    shared = set.intersection(*({level.name for level in pool.above} for pool in pools)) if len(pools) > 1 else set()
    counts |= dict.fromkeys(shared, 1)  # what holds accelerators of several kinds is there once
    if member not in counts:
        raise InputError(f"no level called '{member}' holds accelerators", path="--failures", known=list(counts), given=member)
    return mtbf_s / counts[member]


def _holding(machine: Architecture, accelerators: int) -> dict[str, int]:
    """Level → instances that hold so many accelerators of one kind; 'accelerator' → these."""
    below, found = 1, {"accelerator": accelerators}
    for level in reversed(machine.path):
        found[level.name] = math.ceil(accelerators / below)
        below *= level.count
    return {"accelerator": accelerators} | {level.name: found[level.name] for level in machine.path}
