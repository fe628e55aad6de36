"""What plans of a group share while they are derived changes no program: each is what it is when it is derived alone."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rackmodel.cost.step.tasks.layers as layers
from rackmodel import api
from rackmodel.cost.program.contents import content
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Flow, LocalOp, Task, Volume
from rackmodel.cost.program.unnamed import names_beside, numbered_content, numbers_of
from rackmodel.cost.step.tasks.pricer import Pricer
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


def test_what_an_operation_remembers_of_itself_is_no_part_of_what_it_says() -> None:
    volume = Volume(np.array([2.0, 3.0]), (0,))
    made = LocalOp((Flow("X", volume),), (Flow("Y", volume),), (("m", 8, (0,)),), macs=False, per_element=1.0, density=1.0, bits=16)
    asked = replace(made)
    assert asked.sized
    assert not asked.paced
    said, numbered = content(asked), numbered_content(asked, numbers_of(asked))
    assert content(asked) is said  # (asked for again, it is not made again)
    assert (said, numbered) == (content(made), numbered_content(made, numbers_of(made)))
    assert vars(pickle.loads(pickle.dumps(asked))).keys() == vars(replace(made)).keys()


def test_alike_operations_are_told_apart_by_what_the_ledger_calls_their_tensors() -> None:
    volume, space = Volume(np.array([2.0, 3.0])), (("m", 8, ()),)
    first = LocalOp((Flow("X", volume), Flow("Y", volume, gradient=True)), (Flow("X", volume, gradient=True),), space, False, 1.0, 1.0, 16)
    other = LocalOp((Flow("A", volume), Flow("X", volume, gradient=True)), (Flow("A", volume, gradient=True),), space, False, 1.0, 1.0, 16)
    assert numbered_content(first, numbers_of(first)) == numbered_content(other, numbers_of(other))
    assert names_beside(first, other) == {"X": "A", "dY": "dX", "dX": "dA"}
    assert names_beside(first, first) == {}


def test_points_of_an_operation_are_those_of_each_mesh() -> None:
    volume = Volume(1.0)
    space = (("m", 10, (0,)), ("n", np.array([4.0, 6.0]), ()), ("k", 7, (1,)))
    made = LocalOp((Flow("X", volume),), (Flow("Y", volume),), space, macs=True, per_element=0.0, density=0.5, bits=16)  # type: ignore[arg-type]
    exact, fullest = made.points(np.array([[4, 1], [5, 2]]))
    assert exact.tolist() == [0.5 * 10 / 4 * 4 * 7, 0.5 * 10 / 5 * 6 * 7 / 2]
    assert fullest.tolist() == [0.5 * 3 * 4 * 7, 0.5 * 2 * 6 * 4]
    alone = replace(made, space=(("m", 10, ()),)).points(np.ones((3, 2), dtype=np.int64))
    assert [one.tolist() for one in alone] == [[5.0] * 3] * 2


def test_a_collective_of_single_ranks_is_asked_of_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    links = Pricer.links

    def told(self: Pricer, task: Task, volume: Any) -> Any:
        asked.append(task.kind != "collective" or bool((self.degrees[:, list(task.axes)] > 1).any()))
        return links(self, task, volume)

    monkeypatch.setattr(Pricer, "links", told)
    api.search("dgx_h100", "llama3_8b", "parallel", sets=["accelerators=8"], profile="megatron_core")
    assert asked
    assert all(asked)
