"""Every shipped profile on steps of several shapes: it prices them or refuses with a place, and the ledger adds up to the clock."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.cost.step.ledger import second_watts
from rackmodel.errors import InputError
from rackmodel.inputs.library import names
from tests import samples

SMALL = ["b=16", "s=1024", "d=1024", "f=4096", "layers=4"]
PLAIN = ["micro_batch=1", "recompute=selective", "overlap=profile"]  # the fewer mappings, the more profiles
SHARDED = "homes={weights: [{axes: [dp], state: shard, grad: shard}, {axes: [dp], state: shard, grad: shard, param: shard}]}"
STEPS = {
    "tensor ranks that hold the same stream": ("dgx_a100", "gpt", "megatron_tp", ["accelerators=16", "axes.pp.degree=2", *SMALL, "h=16"]),
    "sequence parallelism": (
        "dgx_h100",
        "gpt",
        "megatron",
        ["accelerators=8", "axes.pp.degree=2", "axes.tp.degree=2", *SMALL, "h=16", *PLAIN, SHARDED],
    ),
    "experts": (
        "dgx_h100",
        "moe_llama",
        "parallel_moe",
        ["accelerators=8", "axes.ep.degree=2", "axes.tp.degree=2", "axes.pp.degree=2", "b=16", "s=1024", "layers=4", *PLAIN],
    ),
    "offload": (
        "dgx_h100",
        "llama",
        "megatron_offload",
        ["accelerators=8", "axes.pp.degree=2", "axes.tp.degree=2", *SMALL, *PLAIN, SHARDED, "offload=[[weights, activations, optimizer]]"],
    ),
    "weights sharded": ("dgx_h100", "llama", "fsdp", ["accelerators=8", *SMALL]),
}
TURNS = samples.cases(1, len(STEPS))  # steps that a profile is asked, by turns
ASKED = [(profile, list(STEPS)[(n + k) % len(STEPS)]) for n, profile in enumerate(names("profile")) for k in range(TURNS)]


@pytest.mark.parametrize(("profile", "step"), ASKED)
def test_a_profile_prices_a_step_whose_ledger_adds_up_to_its_clock(profile: str, step: str) -> None:
    machine, workload, mapper, sets = STEPS[step]
    try:
        answer = api.search(machine, workload, mapper, sets=sets, profile=profile)
    except InputError as problem:
        assert problem.path or problem.where
        return
    assert answer.step is not None
    seconds = float(answer.step.seconds()[0])
    joules = float(answer.step.bound().joules.item()) + second_watts(answer.step.job.setting, answer.step.job.pools) * seconds
    joules += float(answer.step.drawn_longer_j[0])
    assert answer.result.ledger.total("exposed_seconds") == pytest.approx(seconds, rel=1e-9)
    assert answer.result.energy_j == pytest.approx(joules, rel=1e-9)
