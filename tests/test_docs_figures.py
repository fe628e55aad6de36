"""Tables of the documents that a command prints, beside what it prints today."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import rackmodel as rm
from tests.commands import invoke

ROOT = Path(__file__).parents[1]


def cells(page: str, first: str) -> list[str]:
    """The cells behind the first one of a table's row that begins with a text."""
    found = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith(f"| {first} |")]
    assert len(found) == 1, (first, found)
    return [cell.strip() for cell in found[0].strip("|").split("|")][1:]


def printed(command: str) -> dict[str, Any]:
    """What a command prints with --json."""
    return dict(json.loads(invoke([*command.split(), "--json"], catch_exceptions=False).stdout))


@pytest.mark.parametrize(
    ("machine", "accelerators", "first"),
    [("dgx_h100", 64, "64 H100"), ("dgx_h100_a100", 128, "64 H100 and 64 A100")],
)
def test_training_on_two_kinds_of_gpus(machine: str, accelerators: int, first: str) -> None:
    said = {"b": 256, "accelerators": accelerators}
    result = rm.search(machine, "llama3_70b", "megatron_cut", set=said, profile="megatron_core").result
    step, energy, layers = cells("docs/training.md", first)
    assert (step, energy) == (f"{result.latency_s:.2f} s", f"{result.energy_j / 1e6:.2f} MJ")
    assert result.mapping.step is not None
    assert {min(result.mapping.step.layers), max(result.mapping.step.layers)} <= {int(number) for number in re.findall(r"\d+", layers)}


def test_the_same_job_on_wafers_and_gpus() -> None:
    command = "compare cs2:16,dgx_a100:512,dgx_h100:64 gpt3_175b streaming@cs2 megatron@dgx_a100 megatron@dgx_h100 --set b=1536"
    assert f"    rackmodel {command}\n" in (ROOT / "docs/wafers.md").read_text(encoding="utf-8")
    tokens = 1536 * 2048
    for first, one in zip(("16 CS-2", "64 DGX A100", "8 DGX H100"), printed(command)["results"], strict=True):
        step, energy, carbon, _, mfu, joules, _ = cells("docs/wafers.md", first)
        assert float(step.removesuffix(" s")) == pytest.approx(one["latency_s"], rel=5e-4)
        assert float(energy.removesuffix(" MJ")) == pytest.approx(one["energy_j"] / 1e6, rel=2e-3)
        assert float(carbon.split()[0]) * (1e3 if carbon.endswith("kg") else 1.0) == pytest.approx(one["carbon_g"], rel=2e-3)
        assert float(joules) == pytest.approx(one["energy_j"] / tokens, rel=5e-3)
        assert float(mfu.removesuffix(" %")) == pytest.approx(100 * one["mfu"], abs=0.5)


SERVED = {
    "Llama-3.1 8B, one DGX H100": "dgx_h100 llama3_8b_decoder --engine vllm --pipeline 1 --set accelerators=8",
    "8B, two DGX H100": "dgx_h100 llama3_8b_decoder --engine vllm --pipeline 1 --set accelerators=16",
    "8B, one CS-3": "cs3 llama3_8b_decoder --engine wafer --tensor 1 --set accelerators=1",
    "Llama-3.1 70B, one DGX H100": "dgx_h100 llama3_70b_decoder --engine vllm --pipeline 1 --set accelerators=8",
    "70B, two DGX H100": "dgx_h100 llama3_70b_decoder --engine vllm --pipeline 1 --set accelerators=16",
    "70B, four CS-3": "cs3 llama3_70b_decoder --engine wafer --tensor 1 --set accelerators=4",
    "gpt-oss-120B, one H100": "dgx_h100 gpt_oss_120b_decoder --engine trtllm --set accelerators=1",
    "gpt-oss-120B, two CS-3": "cs3 gpt_oss_120b_decoder --engine wafer --tensor 1 --set accelerators=2",
    "Llama-2 70B in 8 bit, 640 chips of SRAM alone (`groq_rack`)": (
        "groq_rack llama2_70b_decoder --engine lpu --precision fp8 --kv fp8 --tensor 8 --pipeline 80 --set accelerators=640"
    ),
}


@pytest.mark.parametrize("first", SERVED)
def test_served_models_of_two_papers(first: str) -> None:
    found = printed(f"serve {SERVED[first]}")
    alone = min(found["front"], key=lambda one: (one["clients_per_replica"], -one["interactivity"]))
    one, most, joules, _ = cells("docs/serving.md", first)
    assert one.split()[0].replace(",", "") == f"{1 / alone['tpot']:.0f}"
    assert most.split()[0].replace(",", "") == f"{found['best']['tokens_per_s']:.0f}"
    assert float(joules) == pytest.approx(found["best"]["joules_per_token"], rel=0.02)
