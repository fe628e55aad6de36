"""Bounds of free layouts on many columns, homes and policies at once are those of each alone, to the last digit."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rackmodel.mapper.layouts.cases import KnownColumns
from rackmodel.mapper.layouts.least_steps import LeastSteps
from rackmodel.watch import UNWATCHED
from tests import samples
from tests.training_cases import inputs, job_of, space_of

SMALL = ("layers=2", "b=16", "d=1024", "s=512", "t=512", "v=8192", "accelerators=16")
HOMES = [{}, {"axes": ["dp"], "state": "shard"}, {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}]
MAPPER: dict[str, Any] = {
    "axes": {"pp": {"degree": [1, 2], "stages": "layers"}, "dp": {"degree": "rest"}, "tp": {"degree": [2, 4, 8], "place": "inner"}},
    "split": {"dp": ["b"], "tp": ["v"]},
    "micro_batch": [1, 2],
    "recompute": ["none", "selective", "full"],
    "homes": {"weights": HOMES},
    "overlap": "free",
}


@pytest.mark.parametrize("profile", samples.some(["megatron_core", "serial"], 2))
@samples.audited
def test_cases_of_some_columns_are_those_made_of_them_alone(profile: str) -> None:
    rng = random.Random(f"cases {profile}")
    given = inputs("dgx_h100", "llama", "megatron", SMALL)
    space = space_of(type(given.mapper).model_validate({"mapper": "cases", **MAPPER}), given.workload, 16)
    steps = LeastSteps(job_of(given.architecture, space, profile), space, "tp", UNWATCHED)
    asked = [(group, at) for group in space.groups for at in range(len(group.columns)) if steps.knows(group, at)]
    each = sorted({(steps._row(*one), shape) for one in asked for shape in steps._shapes(*one)}, key=repr)
    wide, places = steps._cases.of(each)
    of = dict(zip(each, places.tolist(), strict=True))
    named = {(repr(case.tables.open.home), repr(case.tables.recompute)): case for case in wide}
    for variant, count in zip(rng.sample(steps._cases.variants, 4), itertools.cycle((1, 3)), strict=False):
        some = rng.sample(each, count)
        (alone,), here = replace(steps._cases, variants=[variant], known=KnownColumns()).of(some)
        case = named[repr(alone.tables.open.home), repr(alone.tables.recompute)]
        there, shapes = np.array([of[one] for one in some]), [shape for _, shape in some]
        for name in ("seconds", "joules", "more", "fixed"):
            assert np.array_equal(getattr(case, name)[there], getattr(alone, name)[here]), name
        for mine, other in zip(case.at_its_best(there, shapes), alone.at_its_best(here, shapes), strict=True):
            assert np.array_equal(mine, other)


def test_columns_that_were_looked_at_are_not_made_again() -> None:
    given = inputs("dgx_h100", "llama", "megatron", SMALL)
    space = space_of(type(given.mapper).model_validate({"mapper": "cases", **MAPPER}), given.workload, 16)
    steps = LeastSteps(job_of(given.architecture, space, "serial"), space, "tp", UNWATCHED)
    group = space.groups[0]
    each = [(steps._row(group, at), shape) for at in range(4) for shape in steps._shapes(group, at)]
    made, _ = steps._cases.of(each)
    again, places = steps._cases.of(each[1:3])
    assert all(one is other for one, other in zip(made, again, strict=True))
    assert places.tolist() == [1, 2]
