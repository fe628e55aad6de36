"""Random points of real spaces: a small model on a small machine, priced in arrays as the search does it and ready for the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackmodel.cost.step.bounds.bound import StepBound, compose
from rackmodel.cost.step.bounds.device_times import Layers, StepChoices
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut, cut_by_counts, even_cut
from rackmodel.cost.step.exact import ExactStep, Structure
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.setting import Setting
from rackmodel.inputs.read import read_inputs
from rackmodel.mapper.mapspace import Mapspace, build_mapspace
from rackmodel.model.profile import Buckets, Host, Overlap, ProfileSpec, Window
from rackmodel.model.schedules import CHUNKED, FOLDED, SCHEDULES, TABLE
from rackmodel.model.workload import Section

GPT = ("d=512", "h=8", "e=64", "f=2048", "s=256", "v=4096", "layers=4")
KIMI = ("d=256", "h=4", "l=64", "c=64", "e=32", "o=16", "n=32", "f=2048", "x=32", "k=2", "fx=512", "fs=64", "v=512")
LLAMA = ("d=512", "g=4", "q=2", "e=64", "f=1024", "s=256", "v=4096", "layers=4")
SLOW = ("rack.network.bandwidth=40 GB/s", "system.network.bandwidth=8 GB/s", "system.network.latency=2 us")
PORT = ("memoryx.memory.bandwidth=1 TB/s", "swarmx.network.bandwidth=2 TB/s")
FEW = ("layouts={}", "recompute=full", "schedule=[1f1b, zb_h1]", "overlap=profile")
SPACES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {  # architecture, workload, mapper, sets
    "gpt": ("rack_paper_h100", "gpt", "megatron", ("accelerators=8", "b=8", *GPT)),
    "slow": ("rack_paper_h100", "gpt", "megatron", ("accelerators=16", "b=16", *GPT, *SLOW)),
    "uneven": ("rack_paper_h100", "gpt", "megatron", ("accelerators=4", "b=8", *GPT[:-1], "layers=3", *SLOW)),
    "offload": ("dgx_h100", "llama", "megatron_offload", ("accelerators=8", "b=8", *LLAMA)),
    "experts": ("rack_paper_h100", "moe", "parallel_moe", ("accelerators=8", "b=8", *SLOW)),
    "streaming": ("cs2", "llama", "streaming_wide", ("accelerators=4", "b=8", *LLAMA)),
    "slow streaming": ("cs2", "gpt", "streaming_wide", ("accelerators=4", "b=8", *GPT, "swarmx.network.bandwidth=2 TB/s")),
    "port": (
        "cs2",
        "gpt",
        "streaming_wide",
        ("accelerators=4", "b=8", *GPT, *PORT),
    ),
    "few": ("rack_paper_h100", "gpt", "megatron", ("accelerators=4", "b=4", *GPT, *SLOW, *FEW)),
    "few streaming": ("cs2", "gpt", "streaming_wide", ("accelerators=4", "b=4", *GPT, *PORT, *FEW)),
    "graph": ("rack_paper", "ffn", "data_tensor", ()),
    "stages": ("rack_paper", "ffn", "pipeline_tensor", ("accelerators=16",)),
    "unlike layers": (
        "rack_paper_h100",
        "kimi_k2_training",
        "parallel_moe",
        ("accelerators=8", "b=8", "s=8", "sections.block.repeat=3", *KIMI, *SLOW),
    ),
}


@dataclass(frozen=True)
class Drawn:
    """A point: its place in the group's arrays, and the step of it alone."""

    space: str
    group: int
    profile: int
    cut: Cut
    structure: Structure
    plan: int
    column: int

    @property
    def job(self) -> Job:
        """What it is priced in."""
        return job_under(self.space, self.profile)

    @property
    def columns(self) -> Columns:
        """Those of its group."""
        return space_called(self.space)[1].groups[self.group].columns

    @property
    def price(self) -> GroupPrice:
        """Its group's."""
        return priced(self.space, self.group, self.profile)[1]

    @property
    def exact(self) -> ExactStep:
        """The step of this point alone."""
        return self.exact_of(np.array([self.column]))

    def exact_of(self, columns: NDArray[np.int64]) -> ExactStep:
        """The steps of some columns in its place."""
        return ExactStep(self.job, self.structure, self.columns.pick(columns))

    def alike(self, most: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Its column and others of as many stages and micro-batches, at most so many."""
        same = (self.columns.stages == self.columns.stages[self.column]) & (self.columns.micro_batches == self.structure.micro_batches)
        others = np.flatnonzero(same & (np.arange(len(same)) != self.column))
        return np.array([self.column, *random.permutation(others)[: most - 1]])

    def composed(self) -> StepBound:
        """The whole group under the point's schedule, cut and overlaps."""
        windows, beside = (np.array([float(on)]) for on in self.structure.overlap)
        choices = StepChoices(profile=self.job.profile, windows=windows, beside=beside)
        counts = self.price.columns.micro_batches
        return compose(Layers.of(self.price.sections, choices), self.price.sends, self.cut, self.structure.schedule, counts)


@cache
def space_called(name: str) -> tuple[Any, Mapspace]:
    """(machine, mapspace) of one of SPACES."""
    architecture, workload, mapper, sets = SPACES[name]
    given = read_inputs(architecture, workload, mapper=mapper, sets=list(sets))
    assert given.mapper is not None
    return given.architecture, build_mapspace(given.mapper, given.workload, given.architecture.used)


@cache
def job_under(name: str, seed: int) -> Job:
    """What a space is priced in under a random profile."""
    machine, space = space_called(name)
    profile = random_profile(np.random.default_rng(seed))
    return Job(setting=Setting(architecture=machine), workload=space.workload, profile=profile, host=space.mapper.host)


@cache
def priced(name: str, group: int, seed: int) -> tuple[Job, GroupPrice]:
    """A group of a space under a random profile."""
    own, job = space_called(name)[1].groups[group], job_under(name, seed)
    return job, price_group(job, own.columns, [v.plan for v in own.variants], [v.offload for v in own.variants])


BUCKETS = [
    Buckets(),
    Buckets(holds="layer"),
    Buckets(holds="stage", fill="30 kB"),
    Buckets(fill="1 MB", fill_per_rank="200 kB"),
]
"""Of a profile: one call a tensor, a layer, a stage, or so many bytes."""


def random_profile(random: np.random.Generator) -> ProfileSpec:
    """A profile that may overlap, slow or wait for anything."""

    def chance(share: float) -> bool:
        return bool(random.random() < share)

    window = {"beside": str(random.choice(["reader", "maker", "none"])), "share": float(random.choice([0.3, 1.0]))}
    kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
    overlap = Overlap(
        weights=chance(0.75),
        gradients=[None, True, False][int(random.integers(3))],
        channels="shared" if chance(0.6) else "separate",
        sends=chance(0.5),
        contention=float(random.choice([0.0, 0.0, 0.2, 1.0])),
        windows={kind: Window.model_validate(window) for kind in kinds} if chance(0.5) else {},  # type: ignore[misc]
    )
    return ProfileSpec(
        profile="random",
        attention="flash" if chance(0.4) else "unfused",
        pointwise="fused" if chance(0.4) else "unfused",
        overlap=overlap,
        buckets=BUCKETS[int(random.integers(len(BUCKETS)))],
        host=Host(layer=f"{random.choice([0, 0, 5, 100])} us"),
    )


def draw(name: str, seed: int, profiles: Sequence[int] = range(4)) -> Drawn:
    """A random point of one of SPACES under one of some random profiles. (Nothing is priced before it is asked for.)"""
    random = np.random.default_rng(seed)
    _, space = space_called(name)
    group = int(random.integers(len(space.groups)))
    profile, variants, columns = profiles[int(random.integers(len(profiles)))], space.groups[group].variants, space.groups[group].columns
    below = variants[0].plan.stage_count  # stages of a cut below the layer
    sections = space.workload.sections
    while True:
        column, plan = int(random.integers(len(columns))), int(random.integers(len(variants)))
        m, stages = int(columns.micro_batches[column]), int(columns.stages[column])
        schedule = str(random.choice(SCHEDULES)) if stages > 1 or below > 1 else "1f1b"
        if below > 1 and schedule in CHUNKED | FOLDED:
            continue
        chunks = int(random.choice([2, 4])) if schedule == "interleaved" else 2 if schedule in FOLDED else 1
        made = cut_by_counts(np.eye(below, dtype=np.int64)) if below > 1 else even(sections, stages, chunks, schedule)
        if chunks > 1 and (made is None or not TABLE[schedule].takes(stages, m)):
            continue
        if made is None or (chunks == 1 and stages > 1 and below == 1 and random.random() < 0.3):
            made = _uneven(random, sections, stages)
        break
    chosen = variants[plan]
    parts = ((0, chosen.plan),) if below > 1 else tuple((x, chosen.plan) for x in range(len(sections)))
    structure = Structure(
        parts=parts,
        cut=made,
        schedule=schedule,
        micro_batches=m,
        overlap=(int(random.integers(2)), int(random.integers(2))),
        offload=chosen.offload,
    )
    return Drawn(name, group, profile, made, structure, plan, column)


def even(sections: Sequence[Section], stages: int, chunks: int, schedule: str = "1f1b") -> Cut | None:
    """An even cut; None where the layers do not divide."""
    return even_cut(tuple(one.repeat for one in sections), tuple(one.layer for one in sections), stages, chunks, schedule in FOLDED)


def _uneven(random: np.random.Generator, sections: Sequence[Section], stages: int) -> Cut:
    """A cut with any number of layers, at least one in every stage; the ends where they belong."""
    counts = np.zeros((stages, len(sections)), dtype=np.int64)
    for x, section in enumerate(sections):
        repeat = section.repeat
        if section.layer:
            edges = np.sort(random.choice(np.arange(1, repeat), stages - 1, replace=False)) if repeat > stages else np.arange(1, stages)
            counts[:, x] = np.diff([0, *edges, repeat])[:stages] if repeat >= stages else [1] * repeat + [0] * (stages - repeat)
        else:
            counts[0 if x == 0 else -1, x] = repeat
    return cut_by_counts(counts)
