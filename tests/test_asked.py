"""Searches ask a machine's networks, and machines that say the same have one answer: what each says alone, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import pytest

import rackmodel.studies.answer as answers
from rackmodel.cost.network import asked, fabric
from rackmodel.cost.network.asked import Conversations, Hearing, besides_numbers, content
from rackmodel.cost.network.collectives import collective_table
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.inputs import read_architecture
from rackmodel.inputs.shared import SharedInputs, SharedPoint
from rackmodel.model.architecture import Architecture, Network
from rackmodel.studies.answer import answer_of, to_text

FREE = {
    "system.network.bandwidth": ["25 GB/s", "50 GB/s"],
    "system.network.latency": ["0 s", "3 us"],
    "system.network.energy": ["20 pJ/bit", "10 pJ/bit"],
    "rack.network.bandwidth": ["900 GB/s", "450 GB/s"],
    "rack.network.start": ["0 s", "2 us"],
    "gpu.memory.read_energy": ["4 pJ/bit", "5 pJ/bit"],
    "gpu.memory.capacity": ["80 GB", "1 GB"],
    "accelerators": ["6", "12"],
    "site.grid": ["world", "{intensity: {low: 100 g/kWh, mid: 300 g/kWh, high: 400 g/kWh}}"],
}
SPACES = [("ffn", "data"), ("attention", "tensor"), ("attention", "pipeline_tensor"), ("ffn", "tensor_column"), ("gemm", "data")]


def point(inputs: SharedInputs, workload: str, mapper: str, sets: list[str], machine: str = "rack_paper") -> SharedPoint:
    return inputs.read(machine, workload, mapper, sets=sets)


def said(inputs: SharedInputs, shared: Shared | None, question: tuple[str, str, list[str], str | None]) -> str:
    workload, mapper, sets, minimize = question
    return to_text(answer_of(lambda: point(inputs, workload, mapper, sets), minimize, shared)[0])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Searches that were run, as they are."""
    ran: list[str] = []
    real = answers.api.search_mapper

    def noted(machine: Architecture, *inputs: Any, **more: Any) -> Any:
        ran.append(machine.name)
        return real(machine, *inputs, **more)

    monkeypatch.setattr(answers.api, "search_mapper", noted)
    return ran


def test_points_say_together_what_each_says_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(16)
    questions = []
    for number in range(25):
        likely = {name: 0.7 if name.startswith("system") else 0.1 for name in FREE} | {"accelerators": 1.0}
        sets = [f"{name}={draw.choice(values)}" for name, values in FREE.items() if draw.random() < likely[name]]
        questions.append((*SPACES[number % len(SPACES)], sets, draw.choice([None, None, "energy"])))
    ran = counted(monkeypatch)
    together, inputs = Shared(), SharedInputs()
    found = [said(inputs, together, question) for question in questions]
    assert len(ran) < len(questions) - 4
    for place in draw.sample(range(len(questions)), 6):
        assert said(SharedInputs(), None, questions[place]) == found[place], questions[place]


def test_machines_that_say_the_same_are_searched_once_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, shared, inputs = counted(monkeypatch), Shared(), SharedInputs()

    def of(*sets: str) -> str:
        return said(inputs, shared, ("ffn", "tensor", list(sets), None))

    within = of("accelerators=8")
    assert of("accelerators=8", "system.network.bandwidth=30 GB/s") == within  # one rack holds all eight
    assert len(ran) == 1
    assert of("accelerators=8", "rack.network.bandwidth=450 GB/s") != within
    assert of("accelerators=8", "gpu.memory.bandwidth=1 TB/s") != within
    assert of("accelerators=16", "system.network.bandwidth=30 GB/s") != of("accelerators=16")
    assert len(ran) == 5
    result = answers.search_point(point(inputs, "ffn", "tensor", ["accelerators=8", "system.network.bandwidth=31 GB/s"]), None, shared)
    assert len(ran) == 5
    assert result.machine is not None
    assert result.machine.tree.network is not None
    assert result.machine.tree.network.bandwidth_bytes_per_s == 31e9  # the result is of its own machine


RELAYED = ["system.network.topology=switch", "rack.network.topology=switch", "accelerators=16", "x=64", "k=4", "b=64", "s=1"]
RELAYED += ["phases=[forward]", "profile=serial", "profile.collectives={library: nccl, exchange: relayed}"]


@pytest.mark.parametrize(
    ("machine", "workload", "mapper", "sets"),
    [
        ("rack_paper", "attention", "pipeline_tensor", ["accelerators=12"]),
        ("cs2", "ffn", "stream", ["accelerators=2"]),
        ("rack_paper", "ffn", "auto", ["accelerators=8"]),
        ("dgx_h100", "llama3_8b", "megatron", ["accelerators=8", "b=8"]),
        ("rack_paper", "moe", "expert", RELAYED),
    ],
)
def test_numbers_of_networks_are_read_by_questions_alone(
    machine: str, workload: str, mapper: str, sets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, asking, strays = point(SharedInputs(), workload, mapper, sets, machine), [0], set[str]()
    inputs, profile = one.inputs(), one.profile()

    def read(self: Network, name: str) -> Any:
        if name in asked.NUMBERS and not asking[0]:
            strays.add(name)
        return object.__getattribute__(self, name)

    class Watched(Hearing):
        def __call__(self, architecture: Architecture, question: Any, *given: Any) -> Any:
            asking[0] += 1
            try:
                return super().__call__(architecture, question, *given)
            finally:
                asking[0] -= 1

    hearing = Watched(inputs.architecture)
    monkeypatch.setattr(Network, "__getattribute__", read, raising=False)
    assert inputs.mapper is not None
    answers.api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, profile=profile, shared=Shared(ask=hearing))
    monkeypatch.undo()
    assert hearing.heard
    assert hearing.alone
    assert not strays


def test_an_answer_that_another_machine_was_asked_for_is_not_kept() -> None:
    machine, other = (read_architecture("rack_paper", [f"system.network.bandwidth={rate} GB/s"]) for rate in (50, 25))
    of, ran = Conversations(), list[str]()

    def search(hearing: Hearing) -> str:
        ran.append(hearing(other, lambda asked_of: asked_of.tree.network.bandwidth_bytes_per_s))
        return "found"

    for _ in range(2):
        assert of.answer((), "", machine, search) == "found"
    assert len(ran) == 2


def test_what_a_machine_is_besides_its_networks_numbers() -> None:
    plain = besides_numbers(read_architecture("rack_paper"))
    for text in ("system.network.bandwidth=1 GB/s", "rack.network.latency=1 us", "rack.network.energy=9 pJ/bit", "rack.network.start=1 us"):
        assert besides_numbers(read_architecture("rack_paper", [text])) == plain
    for text in ("rack.network.topology=switch", "gpu.memory.capacity=1 GB", "accelerators=4", "rack.network.sustained=0.5"):
        assert besides_numbers(read_architecture("rack_paper", [text])) != plain


def test_what_is_measured_once_for_many_machines_is_what_each_would_measure() -> None:
    adds = [f"{level}.network.{key}=true" for level in ("system", "rack") for key in ("multicast", "reduce")]
    shapes = {shape: [f"{level}.network.topology={shape}" for level in ("system", "rack")] for shape in ("ring", "switch")}
    asked_of = [
        ([f"rack.network.bandwidth={rate} GB/s", f"rack.network.energy={energy} pJ/bit", *of, *(adds if shape == "switch" else [])], name)
        for rate, energy in ((900, 1.3), (50, 1.3), (50, 20), (900, 20))
        for shape, of in shapes.items()
        for name in ("ring", "in_network")
    ]

    def table(sets: list[str], algorithm: str) -> Any:
        machine = read_architecture("rack_paper", sets)
        return content(collective_table(machine, [[4, 4], [8, 2]], [[1, 4], [1, 8]], ("a", "b"), ("a", "b"), "all_reduce", algorithm))

    tables = [table(*one) for one in asked_of]
    for one, found in zip(asked_of, tables, strict=True):
        for known in (fabric._FABRICS, fabric._MEASURED, fabric._OF):
            known.clear()  # type: ignore[attr-defined]
        assert table(*one) == found, one
