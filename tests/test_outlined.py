"""Spaces that are outlined first and priced where it is worth it: the same answer and the same claims as where all is priced.

Small spaces are priced whole, so the tests lower the number of columns from which they are not. (Audits run with it lowered as well:
`limits` and `members` of tests/audit.)
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.program.tasks import Flow, LocalOp, Touched, Volume
from rackmodel.cost.step.bounds.device_times import StepChoices
from rackmodel.cost.step.bounds.figures import ARRAYS
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.tasks import pricer as pricers
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.outline import MovedPricer, OutlinePricer
from rackmodel.errors import InfeasibleError
from rackmodel.inputs.read import read_inputs, read_profile
from rackmodel.mapper import outlined, search
from rackmodel.mapper.blocks import Blocks
from rackmodel.mapper.limits import NO_LIMITS
from rackmodel.mapper.mapspace import Group, build_mapspace
from rackmodel.mapper.nests import without_nests
from rackmodel.mapper.search import Question
from rackmodel.setting import setting_of
from tests import certificate_cases

IDEAL = read_profile("ideal")
MODEL = ["accelerators=4", "layers=4", "b=4", "s=512", "recompute=[none,full]", "schedule=[1f1b]", "layouts={tensor: {}}"]
OFFLOAD = {"limits": {"memory": "55 GB"}, "minimize": "edp", "top": 2}
PATTERN = ["accelerators=8", "layers=6", "b=2", "s=4", "recompute=[none]", "schedule=[1f1b]", "algorithms=ring", "overlap=profile"]
CASES = {
    "windows": ("dgx_h100", "llama3_8b", "megatron", MODEL, {"profile": "nemo_2026", "minimize": "energy"}),
    "offload": ("dgx_a100", "gpt_22b", "megatron", [*MODEL, "offload=[[],[optimizer]]"], OFFLOAD),
    "pattern": ("dgx_h100", "llama3_8b", "parallel", PATTERN, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_priced_could_not_win(case: str) -> None:
    whole = _answer(case)
    with mock.patch.object(outlined, "MANY", 0), mock.patch.object(search, "FIRST_CELLS", 3), mock.patch.object(pricers, "MANY", 2):
        assert _answer(case) == whole


def test_pipelines_that_no_schedule_cuts_are_counted_and_not_priced() -> None:
    """Six layers on eight accelerators: four stages are none of an even cut's. The same answer and counts as where they are priced."""
    priced: list[set[int]] = []

    def spy(job: Job, columns: Columns, *rest: Any) -> GroupPrice:
        priced[-1].update(columns.stages.tolist())
        return price_group(job, columns, *rest)

    found = []
    for patched in (mock.patch.object(Blocks, "cuttable", lambda _, group: group), nullcontext()):
        priced.append(set())
        with patched, mock.patch.object(without_nests, "price_group", spy):
            found.append(_answer("pattern"))
    assert found[0] == found[1]
    assert priced == [{1, 2, 4}, {1, 2}]


def test_groups_of_one_pattern_are_outlined_as_each_alone() -> None:
    """Where the sequence does not divide, a layout less is there: two groups of one pattern, of one outline."""
    architecture, workload, mapper, sets, _ = CASES["pattern"]
    given = read_inputs(architecture, workload, mapper=mapper, sets=sets)
    assert given.mapper is not None
    job = Job(setting=setting_of(given.architecture, IDEAL), workload=given.workload, profile=IDEAL)
    groups = build_mapspace(given.mapper, given.workload, 8).groups
    assert [group.pattern for group in groups] == [0, 0]
    assert len(groups[0].variants) != len(groups[1].variants)
    prices: list[GroupPrice] = []
    outlined.Outlined(job, groups, prices).add(groups)
    for group, price in zip(groups, prices, strict=True):
        plans = [one.plan for one in group.variants]
        alone = price_group(job, group.columns, plans, (), OutlinePricer)
        assert price.first.tolist() == alone.first.tolist()
        assert price.columns.said == alone.columns.said
        for one, own in zip(price.sections, alone.sections, strict=True):
            for name in ARRAYS:
                assert np.allclose(getattr(one, name), getattr(own, name), rtol=1e-12, atol=0), name
            assert all(np.array_equal(size, own.held[what]) for what, size in one.held.items())
        for name, values in vars(price.sends).items():
            assert np.allclose(values, getattr(alone.sends, name), rtol=1e-12, atol=0), name


@pytest.mark.parametrize("pricing", [LayerPricer, OutlinePricer])
def test_families_are_bounded_under_the_choices_of_overlap_that_are_fastest(pricing: type[LayerPricer]) -> None:
    """As under all of them, to the last digit."""
    fewer = False
    for seed in (1, 2, 4, 7):
        with mock.patch.object(certificate_cases, "every_point"):
            one = certificate_cases.step_space(seed)
        prices = [price_group(one.job, g.columns, [v.plan for v in g.variants], (), pricing) for g in one.space.groups]
        found = []
        for patched in (mock.patch.object(StepChoices, "fastest", lambda choices, **_: choices), nullcontext()):
            with patched:
                blocks = Blocks(one.job, one.space, one.space.groups, prices, NO_LIMITS, static_watts(one.job.setting.architecture))
                found.append([dict(vars(shape.least)) for shape in blocks._known()])
        fewer = fewer or len(blocks.overlaps) > 1
        for every, few in zip(*found, strict=True):
            assert all(np.array_equal(values, few[name]) for name, values in every.items())
    assert fewer


def test_an_outline_is_never_above_and_holds_the_same() -> None:
    for outline, priced, _ in _both("llama3_8b", "nemo_2026"):
        for least, own in zip(outline.sections, priced.sections, strict=True):
            for name in vars(least):
                values, most = getattr(least, name), getattr(own, name)
                if name == "held":
                    assert all(np.array_equal(size, most[what]) for what, size in values.items())
                elif name.endswith("_hidden"):
                    assert np.allclose(values, most, rtol=1e-12, atol=0)
                elif isinstance(values, np.ndarray):
                    assert (values <= most * (1 + 1e-12)).all(), name
            assert np.allclose(least.forward, own.forward, rtol=1e-12, atol=0)


def test_what_lanes_are_outlined_to_move_is_what_they_move() -> None:
    """To rounding, where no other lane has a part in it; never more."""
    moved = False
    for _, priced, outline in _both("llama3_8b", "nemo_2026"):
        for least, own in zip(outline.sections, priced.sections, strict=True):
            for name in outlined.LATER:
                values, most = getattr(least, name), getattr(own, name)
                assert (values <= most * (1 + 1e-12)).all(), name
                if name in ("forward_gather", "backward_gather", "reduce", "tail", "spread", "update"):
                    assert np.allclose(values, most, rtol=1e-12, atol=0), name
                    moved = moved or bool(values.any())
            assert not least.forward.any()
            assert not any(size.any() for size in least.held.values())
    assert moved


@pytest.mark.parametrize("seed", [1, 2, 4, 7])
def test_devices_and_lanes_alone_are_never_above_the_longest_path(seed: int) -> None:
    """By which points are left out before the others are looked at."""
    with mock.patch.object(certificate_cases, "every_point"):
        one = certificate_cases.step_space(seed)
    prices = [price_group(one.job, g.columns, [v.plan for v in g.variants]) for g in one.space.groups]
    blocks = Blocks(one.job, one.space, one.space.groups, prices, NO_LIMITS, static_watts(one.job.setting.architecture))
    looked = 0
    for shape in blocks._known():
        cells = np.nonzero(shape.fits)
        if len(cells[0]):
            steps, _ = blocks._steps([(shape, cells)])
            assert (steps.quick() <= steps.seconds()).all()
            looked += len(cells[0])
    assert looked


def _answer(case: str) -> object:
    """All that a search tells, but for how much of the space it looked at."""
    architecture, workload, mapper, sets, asked = CASES[case]
    try:
        found = api.search(architecture, workload, mapper, sets=sets, **asked)
    except InfeasibleError as problem:
        return str(problem)
    sheet = found.result.certificate
    claims = (sheet.space, sheet.evaluated, sheet.infeasible, sheet.gap, sheet.solver)
    points = [(one.latency_s, one.energy_j, one.memory_bytes_per_accelerator, one.mapping) for one in found.top]
    return claims, points


def _both(workload: str, profile: str) -> list[tuple[GroupPrice, GroupPrice, GroupPrice]]:
    """Every group of a space, outlined and priced; and what its lanes are outlined to move."""
    found: list[tuple[GroupPrice, GroupPrice, GroupPrice]] = []

    def look(job: Job, groups: list[Group]) -> None:
        for group in groups:
            asked = job, group.columns, [one.plan for one in group.variants], [one.offload for one in group.variants]
            found.append((price_group(*asked, OutlinePricer), price_group(*asked), price_group(*asked, MovedPricer)))

    whole = search.search_space

    def spy(job: Job, space: search.Mapspace, question: Question) -> search.Found:
        look(job, list(space.groups))
        return whole(job, space, question)

    with mock.patch("rackmodel.mapper.in_order.search_space", spy):
        api.search("dgx_h100", workload, "megatron", sets=MODEL, profile=profile)
    assert found
    return found


def test_the_shape_of_an_operation_is_all_that_its_axes_say() -> None:
    """Two meshes that leave it the same shape have one price: an axis that a price depends on and its splits leave out would be lost."""
    volume = Volume(8.0, (2,), again=True, touched=Touched(0.5, ((16, (3,)),)))
    op = LocalOp(
        reads=(Flow("X", volume),),
        writes=(Flow("Y", Volume(4.0, (0, 1))),),
        space=(("m", 16, (1,)), ("k", 8, ())),
        macs=True,
        per_element=1.0,
        density=1.0,
        bits=16,
        each=((8, (4,)),),
        summed=(5, 6),
    )
    assert op.splits == {(2,), (-1,), (3,), (0, 1), (1,), (4,), (5, 6)}
