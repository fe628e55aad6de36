"""What plans of a group share while they are derived changes no program: each is what it is when it is derived alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rackmodel.cost.step.tasks.layers as layers
from rackmodel import api
from rackmodel.cost.program.derive import derive
from tests import samples

PROGRAMS = [("gpt3_175b", "megatron"), ("llama3_405b", "parallel"), ("moe_1t", "parallel_moe")]


@pytest.mark.parametrize(("workload", "mapper"), PROGRAMS[: samples.cases(2, 3)])
def test_a_program_is_the_same_alone(workload: str, mapper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[tuple[Any, ...], object]] = []

    def kept(*given: Any) -> object:
        program = derive(*given)
        made.append((given, program))
        return program

    monkeypatch.setattr(layers, "derive", kept)
    api.search("dgx_h100", workload, mapper, sets=["accelerators=1024"], profile="megatron_core")
    assert len(made) > 10
    for (of, plan, *rest), program in made:
        assert derive(of, replace(plan, known={}), *rest) == program
