"""Spaces that are outlined first and priced where it is worth it: the same answer and the same claims as where all is priced.

Small spaces are priced whole, so the tests lower the number of columns from which they are not. (Audits run with it lowered as well:
`limits` and `members` of tests/audit.)
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.program.tasks import Flow, LocalOp, Touched, Volume
from rackmodel.cost.step import pricer as pricers
from rackmodel.cost.step.group import GroupPrice, Job, price_group
from rackmodel.cost.step.outline import OutlinePricer
from rackmodel.errors import InfeasibleError
from rackmodel.mapper import outlined, search
from rackmodel.mapper.mapspace import Group
from rackmodel.mapper.search import Question

MODEL = ["accelerators=4", "layers=4", "b=4", "s=512", "recompute=[none,full]", "schedule=[1f1b]", "layouts={tensor: {}}"]
OFFLOAD = {"limits": {"memory": "55 GB"}, "minimize": "edp", "top": 2}
CASES = {
    "windows": ("dgx_h100", "llama3_8b", "megatron", MODEL, {"profile": "nemo_2026", "minimize": "energy"}),
    "offload": ("dgx_a100", "gpt_22b", "megatron", [*MODEL, "offload=[[],[optimizer]]"], OFFLOAD),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_priced_could_not_win(case: str) -> None:
    whole = _answer(case)
    with mock.patch.object(outlined, "MANY", 0), mock.patch.object(search, "FIRST_CELLS", 3), mock.patch.object(pricers, "MANY", 2):
        assert _answer(case) == whole


def test_an_outline_is_never_above_and_holds_the_same() -> None:
    for outline, priced in _both("llama3_8b", "nemo_2026"):
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


def _both(workload: str, profile: str) -> list[tuple[GroupPrice, GroupPrice]]:
    """Every group of a space, outlined and priced."""
    found: list[tuple[GroupPrice, GroupPrice]] = []

    def look(job: Job, groups: list[Group]) -> None:
        for group in groups:
            asked = job, group.columns, [one.plan for one in group.variants], [one.offload for one in group.variants]
            found.append((price_group(*asked, OutlinePricer), price_group(*asked)))

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
