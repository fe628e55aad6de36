"""Shared experts that run beside the routed ones: which operations they are, in which steps, and what a step is shorter by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.ledger import Charge
from rackmodel.cost.network.calls import MachineCalls
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.tasks.items import Item, Priced
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.model.calls import LibraryCall
from rackmodel.model.exchanges import ExpertExchange
from rackmodel.model.profile import ProfileSpec, SharedExperts, Window
from rackmodel.serving.beside_experts import beside, branches_of, runs_beside
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, StepFigures, Steps

SHARED = {"gateP_2", "upP_2", "swigluP_2", "downP_2"}
ROUTED = {"router_2", "gates_2", "dispatch_2", "gate_2", "up_2", "swiglu_2", "down_2", "combine_2"}
LAYERS = 58.0


def under(facts: SharedExperts | None, name: str = "vllm") -> ProfileSpec:
    profile = read_profile(name)
    assert profile.engine is not None
    return profile.model_copy(update={"engine": profile.engine.model_copy(update={"shared_experts": facts})})


def priced(profile: ProfileSpec, steps: Steps, *, captured: bool = True, model: str = "deepseek_v3_decoder", **degrees: int) -> StepFigures:
    served = ServedModel(
        workload=read_workload(model),
        architecture=read_architecture("dgx_b200"),
        profile=profile,
        deployment=Deployment(**degrees or {"tensor": 8}),
    )
    return served.price(steps, np.full(len(steps), captured))


def spent(rows: Sequence[Charge], names: set[str], component: str = "") -> np.ndarray:
    """Seconds of a layer's operations one after the other, or those of the accelerator's memory or of its units alone."""
    if component:
        rows = [row for row in rows if row.component == component and (row.level == "gpu" or component != "memory")]
        return np.asarray(sum(row.seconds for row in rows if row.einsum in names)) / LAYERS
    return np.asarray(sum(row.exposed_seconds for row in rows if row.einsum in names)) / LAYERS


def test_shared_experts_are_what_else_is_made_of_the_same_tokens() -> None:
    workload = read_workload("deepseek_v3_decoder")
    found = {section.name: branches_of(section.workload) for section in workload.sections}
    assert found.pop("block") == (SHARED, ROUTED)
    assert set(found.values()) == {None}
    assert all(branches_of(section.workload) is None for section in read_workload("qwen3_30b_a3b_decoder").sections)


def test_a_step_is_shorter_by_what_runs_beside() -> None:
    """Of one sequence and of 64 the routed ones take longer than the shared ones, and longer than memory or units have for both."""
    steps = Steps.of(decodes=[1.0, 64.0], context=2000.0)
    apart, beside = (priced(under(facts), steps) for facts in (None, SharedExperts()))
    rows = apart.ledger.rows
    shared, routed = spent(rows, SHARED), spent(rows, ROUTED)
    least = [shared, routed, *(spent(rows, SHARED | ROUTED, one) for one in ("memory", "compute"))]
    assert apart.seconds - beside.seconds == pytest.approx(LAYERS * (shared + routed - np.maximum.reduce(least)), rel=1e-9)
    assert apart.seconds - beside.seconds == pytest.approx(LAYERS * shared, rel=1e-9)
    for figures in (apart, beside):
        assert sum(row.exposed_seconds for row in figures.ledger.rows) == pytest.approx(figures.seconds, rel=1e-12)
        assert sum(row.joules for row in figures.ledger.rows) == pytest.approx(figures.joules, rel=1e-12)


def test_kernels_beside_each_other_draw_what_they_did_and_the_machine_less_for_less_long() -> None:
    steps = Steps.of(decodes=64.0, context=2000.0)
    apart, beside = (priced(under(facts), steps) for facts in (None, SharedExperts()))
    static = [sum(row.joules for row in one.ledger.rows if row.action == "static") for one in (apart, beside)]
    assert apart.joules - beside.joules == pytest.approx(static[0] - static[1], rel=1e-9)
    assert static[1] / static[0] == pytest.approx(beside.seconds / apart.seconds, rel=1e-9)


def test_memory_that_both_take_is_not_had_twice() -> None:
    """Where both do nothing but read, one beside the other takes as long as one after the other: a machine of next to no bandwidth."""
    slow = read_architecture("dgx_b200", ["gpu.memory.bandwidth=80 GB/s"])
    steps, taken = Steps.of(decodes=64.0, context=100.0), []
    for facts in (None, SharedExperts()):
        profile = under(facts).model_copy(update={"kernels": "peak"})
        served = ServedModel(
            workload=read_workload("deepseek_v3_decoder"), architecture=slow, profile=profile, deployment=Deployment(tensor=8)
        )
        taken.append(float(served.price(steps, np.ones(1, dtype=bool)).seconds[0]))
    assert taken[1] == pytest.approx(taken[0], rel=2e-3)


def collective(einsum: str, action: str, seconds: float) -> Item:
    """One that keeps the network of a node."""
    took = np.array([seconds])
    row = Row("X", "node", "network", action, took, "byte", took, took, took)
    task = Task(kind="collective", phase="forward", einsum=einsum, tensor="X", stage=0, action=action, after=())
    return Item(task=task, role="device", part="forward", priced=Priced([row], took))


def test_a_network_that_both_use_is_not_had_twice() -> None:
    """A sum of 10 us and exchanges of 15 and 15 us of one network are 40 us, whatever they are called: nothing runs beside anything."""
    calls = {"downP": ("all_reduce", 10e-6), "dispatch": ("all_gather", 15e-6), "down": ("reduce_scatter", 15e-6)}
    items = [collective(einsum, *call) for einsum, call in calls.items()]
    found = beside(items, (frozenset({"downP"}), frozenset({"dispatch", "down"})), np.array([True]), "gpu")
    assert sum(float(item.on_lane(1.0)[0]) for item in found) == pytest.approx(40e-6, rel=1e-12)


def test_what_windows_hide_stays_hidden() -> None:
    """Exchanges that a profile's windows hide beside their readers are hidden no less where shared experts run beside all of it."""
    steps, many = Steps.of(decodes=512.0, context=2000.0), {"attention_data": 8, "expert": 8}
    windows = {"all_to_all": Window(beside="pass")}
    seconds = {}
    for facts in (None, SharedExperts()):
        for hides in (False, True):
            profile = under(facts)
            profile = profile.model_copy(update={"overlap": profile.overlap.model_copy(update={"windows": windows})}) if hides else profile
            seconds[facts is not None, hides] = float(priced(profile, steps, **many).seconds[0])
    assert seconds[False, True] < seconds[False, False]
    assert seconds[True, True] < min(seconds[True, False], seconds[False, True])


@pytest.mark.parametrize("model", ["gemma4_26b_a4b_decoder", "longcat_flash_decoder", "step3_decoder"])
def test_experts_and_a_layer_that_are_added_apart_run_apart(model: str) -> None:
    """Gemma 4's and LongCat-Flash's dense layer and Step 3's shared expert run on the experts' stream; a layer has three all-reduces:
    of attention, of them and of experts."""
    steps = Steps.of(decodes=64.0, context=2000.0)
    apart, beside = (priced(under(facts), steps, model=model, tensor=2) for facts in (None, SharedExperts()))
    assert beside.seconds == apart.seconds
    rows = beside.ledger.where(action="all_reduce").rows
    sections = [section.workload.ops for section in read_workload(model).sections]
    experts = next(ops for ops in sections if any(op.kind.name == "dispatch" for op in ops.values()))
    assert len([row for row in rows if row.einsum in experts and float(np.max(row.amount)) > 0]) == 3


def calls_of(exchange: str, *known: str) -> MachineCalls:
    """Of a machine whose networks know exchanges of tokens by names."""
    exchanges: dict[str, list[ExpertExchange]] = {name: [] for name in known}
    return MachineCalls({}, LibraryCall(library="vllm", exchange=exchange), {"node": exchanges})


def test_steps_that_have_it_so_are_an_engines() -> None:
    tokens, graphs = np.array([1.0, 256.0, 257.0]), np.array([True, False, True])
    calls = calls_of("gathered")
    assert runs_beside(under(SharedExperts(tokens=256)), calls, tokens, graphs).tolist() == [True, True, False]
    assert runs_beside(under(SharedExperts(steps="captured")), calls, tokens, graphs).tolist() == [True, False, True]
    assert runs_beside(under(SharedExperts(steps="captured")), calls, tokens, None).tolist() == [False] * 3
    assert runs_beside(under(SharedExperts(without=["gathered"])), calls, tokens, graphs).tolist() == [False] * 3
    assert runs_beside(read_profile("ideal"), None, tokens, graphs).tolist() == [False] * 3


def test_the_exchange_with_which_none_runs_so_is_the_one_in_use() -> None:
    """Of the words of `exchange` the first that the machine knows; a word that nobody knows is refused."""
    tokens, graphs = np.ones(1), np.ones(1, dtype=bool)
    profile = under(SharedExperts(without=["deepep"]))
    assert not runs_beside(profile, calls_of("deepep gathered", "deepep"), tokens, graphs)
    assert runs_beside(profile, calls_of("deepep gathered"), tokens, graphs)
    with pytest.raises(InputError, match="no exchange of tokens by 'deepeep' is known") as caught:
        runs_beside(under(SharedExperts(without=["deepeep"])), None, tokens, graphs)
    assert "deepep" in caught.value.known


def test_tokens_are_of_a_rank() -> None:
    """512 sequences of eight ranks are 64 of each: a limit of 64 holds them, one of 63 does not."""
    steps, many = Steps.of(decodes=512.0, context=2000.0), {"attention_data": 8, "expert": 8}
    apart, within, beyond = (
        float(priced(under(facts), steps, captured=True, **many).seconds[0])
        for facts in (None, SharedExperts(tokens=64), SharedExperts(tokens=63))
    )
    assert within < apart == beyond


def test_a_published_step_gains_no_less_than_is_said() -> None:
    """DeepSeek-R1 in fp8 on eight B200 for 32 clients: 23.35 -> 22.09 ms once its shared experts had a stream of their own
    (vllm-project/vllm, pull request 26440)."""
    steps = Steps.of(decodes=32.0, context=1500.0)
    apart, beside = (float(priced(profile, steps).seconds[0]) for profile in (under(None), read_profile("vllm")))
    assert 0.5 * (23.35e-3 - 22.09e-3) < apart - beside <= 23.35e-3 - 22.09e-3
