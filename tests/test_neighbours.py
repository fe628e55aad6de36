"""Layouts that differ in a few operations share what the change leaves alone: each is what it is by itself, to the last digit."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.step.bounds.figures import Figures
from rackmodel.cost.step.group import Job, plan_of, price_group
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.layout import legal_choices
from rackmodel.model.plan import Plan
from tests import samples
from tests.training_cases import inputs, job_of, space_of

SMALL = {
    "llama": ("layers=2", "b=16", "d=1024", "s=512", "t=512", "v=8192"),
    "moe_qwen3": ("layers=2", "b=16", "d=1024", "s=512", "t=512", "v=8192"),
    "gpt": ("layers=2", "b=16"),
}
MESH: dict[str, Any] = {
    "axes": {"pp": {"degree": [1, 2], "stages": "layers"}, "dp": {"degree": "rest"}, "tp": {"degree": [2, 4], "place": "inner"}},
    "split": {"dp": ["b"], "tp": ["v"]},
    "micro_batch": [1, 2],
    "overlap": "free",
    "uneven": "fullest",
}
SHARDED = {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}
CASES = {  # model, profile, what the mapper says beside
    "nothing made again": ("llama", "megatron_core", {"recompute": "none", "homes": {"weights": [SHARDED]}}),
    "made again, gathered": ("llama", "deepspeed_zero3", {"recompute": "full", "homes": {"weights": [SHARDED]}, "save": "gathered"}),
    "homes and policies": ("llama", "nemo_2025", {"recompute": ["none", "selective"], "homes": {"weights": [{}, SHARDED]}}),
    "tied ends": ("gpt", "megatron_core", {"recompute": ["none", "full"]}),
    "experts": ("moe_qwen3", "serial", {"recompute": "selective"}),
}


def drawn(case: str, layouts: int) -> tuple[Any, Job, Any]:
    """(machine, job, space) of one model under a layout and others: half of them change one operation of it, half any of them."""
    rng = random.Random(f"neighbours {case}")
    model, profile, said = CASES[case]
    given = inputs("dgx_h100", model, "megatron", (*SMALL[model], "accelerators=8"))
    ops = given.workload.ops
    other = {name: [str(c) if c is not None else "none" for c in legal_choices(op, given.workload)] for name, op in ops.items()}
    choose = {name: {"tp": rng.choice(own)} for name, own in other.items()}
    named: dict[str, Any] = {"first": {"choose": choose}}
    for number in range(layouts):
        changed = [rng.choice(list(ops))] if number % 2 else [name for name in ops if rng.random() < 0.3]
        named[f"other {number}"] = {"choose": {**choose, **{name: {"tp": rng.choice(other[name])} for name in changed}}}
    mapper = type(given.mapper).model_validate({"mapper": case, **MESH, **said, "layouts": named})
    space = space_of(mapper, given.workload, 8)
    return given.architecture, job_of(given.architecture, space, profile), space


def alone(job: Job, plan: Plan) -> tuple[Job, Plan]:
    """The same where nothing is known of other plans."""
    return replace(job, programs={}), replace(plan, known={})


def of_plan(figures: Figures, number: int) -> dict[str, Any]:
    """The figures of one plan."""
    found: dict[str, Any] = {}
    for one in fields(figures):
        value = getattr(figures, one.name)
        each = value if isinstance(value, dict) else {"": value}
        found |= {f"{one.name} {key}": own[number] if isinstance(own, np.ndarray) else own for key, own in each.items()}
    return found


@pytest.mark.parametrize("case", samples.some(CASES, 2))
def test_a_program_is_the_one_that_is_derived_alone(case: str) -> None:
    _, job, space = drawn(case, 12)
    compared = 0
    for group in space.groups:
        columns, plans = group.columns, list(dict.fromkeys(map(id, (v.plan for v in group.variants))))
        of = {id(v.plan): v.plan for v in group.variants}
        shared = LayerPricer(Pricer(job.setting, job.workload, of[plans[0]], columns, job.profile.buckets), job.workload, job.profile, {})
        for plan in (of[one] for one in plans):
            own, fresh = alone(job, plan)
            pricer = Pricer(own.setting, own.workload, fresh, columns, own.profile.buckets)
            for section in job.workload.sections:
                there = shared.program(section, plan_of(section, plan, job.profile))
                here = LayerPricer(pricer, own.workload, own.profile, {}).program(section, plan_of(section, fresh, own.profile))
                assert there == here
                compared += 1
    assert compared > 30


@pytest.mark.parametrize("case", ["nothing made again", "made again, gathered", "experts"])
def test_figures_are_those_of_a_layout_priced_alone(case: str) -> None:
    """Of several homes and policies bounds may be put together of two programs; of one of them they are the program's own."""
    _, job, space = drawn(case, 6)
    for group in space.groups:
        plans = [variant.plan for variant in group.variants]
        together = price_group(job, group.columns, plans)
        for number, plan in enumerate(plans):
            own, fresh = alone(job, plan)
            one = price_group(own, group.columns, [fresh])
            for some, whole in zip(together.sections, one.sections, strict=True):
                here, there = of_plan(some.whole, number), of_plan(whole.whole, 0)
                assert here.keys() >= there.keys()
                for name, figure in there.items():
                    assert np.array_equal(here[name], figure), name
            for name, sent in one.sends.__dict__.items():
                assert np.array_equal(getattr(together.sends, name)[number], sent[0]), name


def test_spaces_of_one_job_go_on_from_each_other_to_the_last_digit() -> None:
    _, job, space = drawn("nothing made again", 6)
    group = space.groups[0]
    plans = [variant.plan for variant in group.variants]
    kept = replace(job, layers={})
    price_group(kept, group.columns, plans[:3])
    after, alone_ = price_group(kept, group.columns, plans), price_group(job, group.columns, plans)
    assert len(kept.layers or {}) == 1
    for some, whole in zip(after.sections, alone_.sections, strict=True):
        for number in range(len(plans)):
            here, there = of_plan(some.whole, number), of_plan(whole.whole, number)
            assert all(np.array_equal(here[name], there[name]) for name in there)
    faster = replace(job.setting, library=2.0)  # another setting: priced anew
    other = price_group(replace(kept, setting=faster), group.columns, plans[:1])
    assert not np.array_equal(other.sections[1].whole.forward[0], after.sections[1].whole.forward[0])
