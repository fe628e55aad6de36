"""Power of kernels: busy power and the limit by hand, watts as measured, a node that trains."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel import api
from rackmodel.calibration.part import part_alone, part_text
from rackmodel.calibration.power import busy_powers
from rackmodel.cost.inside.experts import ExpertLayer
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.cost.inside.power import amid_step, busy_watts, powered, waiting_watts
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.inside.routing import Routing
from rackmodel.cost.program.tasks import Flow, Volume
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_inputs, read_profile, read_workload
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.resources import Kernels
from rackmodel.model.result import Result
from rackmodel.serving.engine import serving_engine
from rackmodel.serving.served_model import ServedModel
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.validation.attention import HeadSizes, price_calls, sizes_by_name
from rackmodel.validation.kernel_energy import bytes_moved, call_energy, call_moved, moving_energy
from rackmodel.validation.products import PRODUCT, local_operation, price_local
from rackmodel.validation.run import validate
from rackmodel.validation.words import words

ONE_SECOND = np.array([1.0])


def drawn(joules: float, duration: float = 1.0, **facts: str) -> tuple[float, float, float]:
    """(joules of busy power, seconds, exposed seconds) of a kernel on a GPU of 75 W idle."""
    machine = part_alone("h100_sxm")
    row = Row("Y", "gpu", "memory", "read", 1.0, "byte", np.array([joules]), np.array([duration]), np.array([duration]))
    rows, seconds = powered(machine, Kernels.model_validate({"efficiency": 1, **facts}), [row], np.array([duration]))
    busy = sum(float(one.joules[0]) for one in rows if one.action == "busy")
    return busy, float(seconds[0]), float(np.sum([one.exposed for one in rows]))


def test_a_kernel_that_runs_draws_busy_power_beside_its_joules() -> None:
    assert drawn(200.0, busy_power="250 W") == (250.0, 1.0, 1.0)
    assert drawn(200.0, 2.0, busy_power="250 W", power_limit="700 W") == (500.0, 2.0, 2.0)


def test_at_the_limit_busy_power_gives_way() -> None:
    # 700 W less 75 W idle less 500 W of operations
    assert drawn(500.0, busy_power="250 W", power_limit="700 W") == (125.0, 1.0, 1.0)


def test_a_kernel_over_the_limit_by_its_operations_alone_is_slower() -> None:
    busy, seconds, exposed = drawn(1250.0, busy_power="250 W", power_limit="700 W")
    assert (busy, seconds, exposed) == pytest.approx((0.0, 2.0, 2.0))


def test_a_cap_below_what_a_kernel_draws_lowers_the_clock() -> None:
    # 625 W above idle without it (500 of operations, 125 busy); 225 W are left under 300 W: (625 / 225)^(1 / 1.5) = 1.9763 times as long
    busy, seconds, exposed = drawn(500.0, busy_power="250 W", power_limit="700 W", power_cap="300 W")
    assert (seconds, exposed) == pytest.approx(((625 / 225) ** (2 / 3),) * 2)
    assert busy == 0  # the operations' 500 J alone would draw 253 of the 225 W
    busy, seconds, _ = drawn(250.0, busy_power="250 W", power_cap="450 W", cap_exponent="1")
    assert (busy, seconds) == pytest.approx((250.0, 500 / 375))  # 500 W of 375: all of it drawn for longer
    assert drawn(200.0, busy_power="250 W", power_limit="700 W", power_cap="600 W") == (250.0, 1.0, 1.0)


@pytest.mark.parametrize("cap", [80.0, 150.0, 300.0, 450.0, 699.0])
def test_a_capped_gpu_draws_no_more_than_the_cap(cap: float) -> None:
    """Joules above idle are those of P ~ clock^1.5, 625 W at full clock: at 300 W 225 W for 1.976 s (500 J would be 328 W in all)."""
    row = Row("Y", "gpu", "memory", "read", 1.0, "byte", np.array([500.0]), ONE_SECOND, ONE_SECOND)
    facts = Kernels.model_validate({"efficiency": 1, "busy_power": "250 W", "power_limit": "700 W", "power_cap": f"{cap} W"})
    rows, seconds = powered(part_alone("h100_sxm"), facts, [row], ONE_SECOND)
    joules = sum(float(one.joules[0]) for one in rows)
    assert joules / seconds[0] + 75 == pytest.approx(cap)
    assert joules == pytest.approx(625 * ((cap - 75) / 625) ** (1 - 1 / 1.5))
    assert [one.amount for one in rows if one.action == "read"] == [1.0]


def test_a_part_without_such_facts_is_as_it_was() -> None:
    assert drawn(200.0) == (0.0, 1.0, 1.0)


def test_a_gpu_that_waits_for_its_host_draws_waiting_power() -> None:
    """0.25 of a second runs at 250 W, in 0.75 s it waits at 40 W; operations and bytes have their joules beside that."""
    row = Row("Y", "gpu", "memory", "read", 1.0, "byte", np.array([10.0]), ONE_SECOND, ONE_SECOND)
    facts = Kernels.model_validate({"efficiency": 1, "busy_power": "250 W", "waiting_power": "40 W"})
    rows, seconds = powered(part_alone("h100_sxm"), facts, [row], ONE_SECOND, waiting=np.array([0.75]))
    assert float(rows[-1].joules[0]) == 0.25 * 250 + 0.75 * 40
    assert seconds == 1.0


@pytest.mark.parametrize(("engine", "ranks"), [("vllm", 4), ("trtllm", 2)])
def test_gpus_that_a_network_or_a_host_holds_up_draw_waiting_power(engine: str, ranks: int) -> None:
    """A decode step of Llama 3 8B on some H100: all that its ledger says they wait, and no more, at 58 W each."""
    machine, decoder = read_architecture("dgx_h100"), read_workload("llama3_8b_decoder")

    def model(profile: ProfileSpec) -> ServedModel:
        return ServedModel(workload=decoder, architecture=machine, deployment=Deployment(tensor=ranks), profile=profile)

    served = serving_engine(model, read_profile(engine))
    found = served.price(Steps.of(decodes=[8.0, 64.0], context=1000.0))
    rows = found.ledger.rows
    waiting = [row for row in rows if row.action == "waiting"]  # within steps, between them
    network = sum(row.exposed_seconds for row in rows if row.component == "network")
    host = sum(row.exposed_seconds for row in rows if row.action == "host")
    assert np.all(network > 0)
    assert sum(row.joules for row in waiting) == pytest.approx(58.0 * ranks * (network + host))
    assert sum(row.exposed_seconds for row in waiting) == pytest.approx(0.0)
    assert found.joules == pytest.approx(sum(row.joules for row in rows))
    assert np.all(sum(row.seconds for row in waiting) < found.seconds)


def test_a_kernel_amid_a_step_takes_off_what_its_gpu_would_draw_waiting() -> None:
    """0.5 s of it: 0.5 x 40 J that the step's every second counts for; where the mean GPU has half of the fullest's work, half of it."""
    row = Row("Y", "gpu", "memory", "read", 1.0, "byte", np.array([10.0]), ONE_SECOND / 2, ONE_SECOND / 2)
    facts = Kernels.model_validate({"efficiency": 1, "busy_power": "250 W", "waiting_power": "40 W", "power_limit": "700 W"})
    machine = part_alone("h100_sxm")
    assert float(amid_step(machine, facts, [row], ONE_SECOND / 2)[-1].joules[0]) == -20.0
    assert float(amid_step(machine, facts, [replace(row, more=np.array([2.0]))], ONE_SECOND / 2)[-1].joules[0]) == -10.0
    none = Kernels.model_validate({"efficiency": 1, "busy_power": "250 W"})
    assert amid_step(machine, none, [row], ONE_SECOND) == [row]


def test_no_gpu_that_waits_draws_more_than_its_limit_nor_one_at_work_less_than_it() -> None:
    assert drawn(0.0, busy_power="250 W", waiting_power="300 W") == (300.0, 1.0, 1.0)
    capped = Kernels.model_validate({"efficiency": 1, "waiting_power": "300 W", "power_cap": "175 W"})
    assert waiting_watts(part_alone("h100_sxm"), capped) == 100.0


FACTS = "tensor_core.compute.kernels"
STEP = ("accelerators=4", "b=8", "layers=4", "s=2048", "profile.overlap.contention=0", "profile.variation=0")


def spent(sets: tuple[str, ...], mapper: str = "megatron", **asked: str) -> Result:
    """The best step of Llama 3 8B on H100 under a profile with measured kernels."""
    return api.search("dgx_h100", "llama3_8b", mapper, sets=sets, profile="megatron_core", **asked).result


@pytest.mark.parametrize("goal", ["latency", "energy"])
def test_gpus_that_wait_in_a_step_of_training_draw_waiting_power(goal: str) -> None:
    """All that its ledger says they wait, at 58 W each: 4 of one stage as long as their collectives and their host are exposed."""
    found = spent((*STEP, "axes.pp.degree=1"), minimize=goal)
    rows = found.ledger.rows
    waits = sum(row.exposed_seconds for row in rows if row.component == "network" or row.action == "host")
    waiting = found.ledger.where(action="waiting")
    assert waits > 0
    assert waiting.total("joules") == pytest.approx(4 * 58.0 * waits)
    assert waiting.total("exposed_seconds") == 0.0
    assert found.energy_j == pytest.approx(found.ledger.total("joules"))


def test_one_gpu_without_a_host_waits_for_nobody() -> None:
    alone = ("accelerators=1", "b=1", "layers=2", "s=2048", "profile.host.layer=0 s", "profile.host.launch=0 s")
    found = spent(alone)
    assert not found.ledger.where(action="waiting").rows
    assert found.energy_j == pytest.approx(spent((*alone, f"{FACTS}.waiting_power=0 W")).energy_j, rel=1e-12)


def test_bubbles_of_a_pipeline_draw_waiting_power() -> None:
    """Two stages and four micro-batches: either waits a fifth of the step and more, and what the ends differ in besides."""
    two = (*STEP[1:], "accelerators=2", "axes.pp.degree=2", "axes.tp.degree=1", "micro_batch=2")
    found, without = spent(two), spent((*two, f"{FACTS}.waiting_power=0 W"))
    waiting = found.ledger.where(action="waiting").total("joules")
    assert waiting > 58.0 * 2 * 0.2 * found.latency_s
    assert waiting < 58.0 * 2 * found.latency_s
    assert found.energy_j - without.energy_j == pytest.approx(waiting)
    assert found.latency_s == without.latency_s


@pytest.mark.parametrize("mapper", ["megatron", "fsdp", "auto"])
def test_the_least_energy_with_waiting_power_is_that_of_every_mapping(mapper: str) -> None:
    """A search for the least joules, and every mapping priced by its ledger."""
    sets = ("accelerators=4", "b=8", "layers=4", "s=2048", f"{FACTS}.waiting_power=120 W")
    best = spent(sets, mapper, minimize="energy")
    every = api.search("dgx_h100", "llama3_8b", mapper, sets=sets, profile="megatron_core", top=5000)
    joules = [one.ledger.total("joules") for one in every.top]
    assert best.energy_j <= min(joules) * (1 + 1e-9)
    assert mapper == "auto" or best.energy_j == pytest.approx(min(joules), rel=1e-9)  # (who asks for seconds lists some layouts alone)
    assert best.certificate.bound <= best.energy_j * (1 + 1e-9)
    assert mapper == "auto" or best.certificate.status == "proven"  # (of free layouts a bound is left, with and without)


@pytest.mark.parametrize(("bits", "held", "moved"), [(16, 16, 2.0), (8, 8, 4.0), (4, 4, 3.0), (8, 16, 4.0), (4, 16, 3.0)])
def test_a_product_that_quantises_its_operand_is_charged_what_that_moves(bits: int, held: int, moved: float) -> None:
    """An element is read in 2 bytes, written in 1 or 1/2 and read again, whatever width its own row tells; at 16 bit it is read once."""
    machine = part_alone("gb200_gpu")
    sizes = {"m": np.array([8192.0]), "n": np.array([512.0]), "k": np.array([4096.0])}
    local_op = local_operation(PRODUCT, sizes, bits)
    left, flow = replace(local_op.operands[0], bits=held), Flow("X", Volume(8192.0 * 4096.0 * held / 8))
    local_op = replace(local_op, operands=(left, *local_op.operands[1:]), reads=(flow, *local_op.reads[1:]))
    ones = np.ones((1, 1), dtype=np.int64)
    rows, seconds = KernelPricer(fitted=True)(machine, local_op, ones)
    own = [row for row in rows if row.tensor == "X" and row.level == "gpu" and row.component == "memory"]
    assert sum(row.amount for row in own) == pytest.approx(moved * 8192 * 4096)
    assert sum(row.joules for row in own) == pytest.approx(moved * 8192 * 4096 * 40e-12)
    assert sum(row.exposed for row in rows) == pytest.approx(seconds)
    # a kernel before it has quantised the operand: that one's rows tell it
    alone, _ = KernelPricer(fitted=True, quantised=frozenset({"fp8", "fp4"}))(machine, local_op, ones)
    read = sum(row.amount for row in alone if row.tensor == "X" and row.level == "gpu" and row.component == "memory")
    assert read == pytest.approx(held / 8 * 8192 * 4096)


def test_a_limit_below_static_power_is_refused() -> None:
    with pytest.raises(InputError, match="static power"):
        drawn(1.0, power_limit="75 W")


def test_no_shipped_gpu_draws_more_than_its_limit_nor_is_slowed_by_it() -> None:
    sizes = {name: np.array([2.0**n for n in range(5, 15)]) for name in "mnk"}
    for name, part in (("dgx_a100", "a100"), ("dgx_h100", "h100"), ("dgx_h200", "h200"), ("dgx_b200", "b200"), ("gb200_nvl72", "gb200")):
        machine = read_architecture(name)
        rows, seconds = price_local(machine, PRODUCT, sizes, 16, timed="looped")
        watts = sum(row.joules for row in rows) / seconds + machine.accelerator.static_power_w
        limit = {"a100": 400, "h100": 700, "h200": 700, "b200": 1000, "gb200": 1200}[part]
        assert np.all(watts <= limit * (1 + 1e-9))
        assert np.max(watts) > 0.85 * limit
        assert sum(row.exposed for row in rows) == pytest.approx(seconds)


def test_no_kind_of_kernel_draws_more_than_the_limit() -> None:
    """What quantises 2 GB and a call of experts, quick and slow; attention of both kinds as the part has it."""
    sizes = {name: np.array([size]) for name, size in {"tokens": 512.0, "hidden": 4096.0, "inter": 1536.0, "gated": 1.0}.items()}
    calls = ExpertLayer(**sizes, every=np.array([4096.0]), spread=np.array([False]))
    for part, limit, kernel in (("h200_sxm", 700, "fa3"), ("b200_sxm", 1000, "flashinfer"), ("gb200_gpu", 1200, "flashinfer")):
        machine = part_alone(part)
        static = machine.accelerator.static_power_w
        gpu = gpu_of(machine)
        assert gpu is not None
        experts = next(name for name in gpu.facts.grouped if name.endswith("bf16"))
        for seconds in (np.array([1e-3]), np.array([1e-2])):
            drawn = [
                moving_energy(machine, np.array([2e9]), seconds),
                call_energy(machine, experts, calls, [Routing(experts=128, chosen=8.0)], seconds),
            ]
            assert all(static + float(joules[0] / seconds[0]) <= limit * (1 + 1e-9) for joules in drawn)
        for queries, context in ((1.0, 8192.0), (4096.0, 4096.0)):
            call = sizes_by_name([(64.0 if queries == 1 else 1.0, 8.0, 8.0, queries, context, context)])
            looped = KernelPricer(fitted=True, attention=kernel, looped=True)
            rows, lasts = price_calls(machine, looped, call, HeadSizes(128.0, 128.0, 16))
            assert static < static + float(sum(row.joules for row in rows)[0] / lasts[0]) <= limit * (1 + 1e-9)


MEASURED = """system,framework,version,gemm_dtype,m,n,k,latency_us,power_w,power_limit_w
h200_sxm,VLLM,0.22.0,bfloat16,8192,8192,8192,1600,690,700
h200_sxm,VLLM,0.22.0,bfloat16,16384,4096,4096,800,691,700
h200_sxm,VLLM,0.22.0,bfloat16,16384,4096,4096,800,,
"""


def test_watts_of_a_row_are_an_answer_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(MEASURED)
    report = validate([path])
    assert [one.name for one in report.datasets] == ["rows", "rows_power"]
    watts = [row for row in report.rows if row.unit == "W"]
    assert [row.id for row in watts] == ["rows:1 power", "rows:2 power"]
    assert all(abs(row.error) < 0.05 for row in watts)


def test_busy_power_is_found_again_in_watts_below_the_limit(tmp_path: Path) -> None:
    machine = part_alone("h200_sxm")
    sizes = np.array([(2.0**a, 2.0**b, 2.0**c) for a in (11, 12, 13) for b in (12, 13) for c in (11, 12, 13, 14)])
    m, n, k = sizes.T
    rows, _ = price_local(machine, PRODUCT, {"m": m, "n": n, "k": k}, 16, timed="looped")
    joules = sum(row.joules for row in rows if row.action != "busy")
    seconds = np.maximum(2.5e-4, joules / 300.0)
    watts = 80.3 + 200.0 + joules / seconds
    lines = ["system,gemm_dtype,m,n,k,latency_us,power_w"]
    lines += [f"mine,bfloat16,{a:.0f},{b:.0f},{c:.0f},{1e6 * t},{w}" for (a, b, c), t, w in zip(sizes, seconds, watts, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    (found,) = busy_powers("h200_sxm", [path], "mine")
    assert found.busy_w == pytest.approx(200.0, abs=1.0)
    assert "200 W" in part_text("h200_sxm", "mine", [], {found.kind: found.fact()})
    assert busy_powers("h200_sxm", [path], "other") == []


def test_a_kind_of_kernel_draws_its_own_watts_and_joules_for_each_byte() -> None:
    facts = Kernels.model_validate({"efficiency": 1, "busy_power": "250 W", "busy": {"vector": {"power": "60 W", "moved": "50 pJ/byte"}}})
    row = Row("Y", "gpu", "memory", "read", np.array([4e12]), "byte", np.array([200.0]), ONE_SECOND, ONE_SECOND)
    # 60 W and 4 TB a second at 50 pJ a byte; below the level `gpu` a byte is none of the memory's
    assert busy_watts(facts.busy_of("vector"), [row], "gpu", ONE_SECOND) == pytest.approx([260.0])
    assert busy_watts(facts.busy_of("vector"), [row], "l2", ONE_SECOND) == pytest.approx([60.0])
    assert busy_watts(facts.busy_of("experts"), [row], "gpu", ONE_SECOND) == pytest.approx([250.0])  # a kind that is absent


def test_a_call_of_experts_draws_the_power_of_its_kind() -> None:
    machine = part_alone("b200_sxm")
    sizes = {"tokens": 64.0, "hidden": 4096.0, "inter": 1536.0, "gated": True, "every": 512.0, "spread": False}
    calls = ExpertLayer(**{name: np.array([size]) for name, size in sizes.items()})
    routing = Routing(experts=128, chosen=8.0)
    drawn = call_energy(machine, "triton bf16", calls, [routing], np.array([1e-3]))
    moved = call_moved(machine, "triton bf16", calls, [routing])
    assert drawn == pytest.approx(moved.joules + 532.0 * 1e-3)
    # 64 tokens choose 8 of 128: all are hit, 3 matrices of 4,096 x 1,536 each in 16 bit, read at 5 and moved through the L2 at 1 pJ a bit
    weights = 128 * 3 * 4096 * 1536 * 2
    assert float(moved.amount[0]) == pytest.approx(weights, rel=0.02)
    assert float(moved.joules[0]) == pytest.approx(weights * 8 * (5e-12 + 2e-12), rel=0.05)


@pytest.mark.parametrize("waiting", [60.0, 140.0])
def test_watts_of_products_that_the_host_keeps_waiting_tell_what_a_gpu_draws_meanwhile(waiting: float, tmp_path: Path) -> None:
    """One reading of eight holds what ran before: it is higher, and does not move the lower quartile."""
    machine = part_alone("b200_sxm")
    n = k = np.repeat([512.0, 1024.0, 2048.0], 8)
    m = np.tile([4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0], 3)
    charges, running = price_local(machine, PRODUCT, {"m": m, "n": n, "k": k}, 8, timed="looped", family="fp8_block")
    seconds = np.full(24, 1e-3)
    own = sum(row.joules for row in charges if row.component != "static")
    static, busy = machine.accelerator.static_power_w, 243.0
    watts = static + (own + busy * running + waiting * (seconds - running)) / seconds + np.where(m == 64, 300.0, 0.0)
    lines = ["system,gemm_dtype,m,n,k,latency_us,power_w"]
    lines += [f"mine,fp8_block,{a:.0f},{b:.0f},{c:.0f},1000,{w}" for a, b, c, w in zip(m, n, k, watts, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    (found,) = busy_powers("b200_sxm", [path], "mine")
    assert found.kind == "waiting"
    assert found.busy_w == pytest.approx(waiting, abs=0.5)
    assert "waiting_power:\n" in part_text("b200_sxm", "mine", [], {found.kind: found.fact()})


def test_an_unknown_kind_of_kernel_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="expert"):
        Kernels.model_validate({"efficiency": 1, "busy": {"expert": {"power": "1 W"}}})


@pytest.mark.parametrize(("power", "moved"), [(60.0, 40.0), (140.0, 0.0)])
def test_watts_of_kernels_that_quantise_tell_power_and_joules_a_byte(power: float, moved: float, tmp_path: Path) -> None:
    machine = part_alone("b200_sxm")
    lines = ["system,framework,version,op,quant_dtype,m,k,latency_us,power_w"]
    for m in range(64, 8192, 256):
        at = bytes_moved(machine, np.array([m * 4096 * 3.0]))
        seconds = 2e-6 + m * 4096 * 3.0 / 7e12
        watts = machine.accelerator.static_power_w + power + float(at.joules[0] + moved * 1e-12 * at.amount[0]) / seconds
        lines.append(f"b200_sxm,VLLM,0.22.0,scale_matrix,fp8,{m},4096,{seconds * 1e6},{watts}")
    path = tmp_path / "aic_quantize.csv"
    path.write_text("\n".join(lines) + "\n")
    (found,) = busy_powers("b200_sxm", [path])
    assert found.kind == "vector"
    assert found.busy_w == pytest.approx(power, abs=1.0)
    assert found.moved_j_per_byte == pytest.approx(moved * 1e-12, abs=1e-12)


def test_eight_h100_that_train_draw_what_a_node_was_measured_to() -> None:
    """7.75 kW (arXiv 2506.14551: 76 % of the rated 10.2 kW) and 8.4 kW (Latif 2025, IEEE Access 13:61740)."""
    inputs = read_inputs("dgx_h100", "llama3_70b", mapper="parallel", sets=["accelerators=64", "b=128"])
    assert inputs.mapper is not None
    found = api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, profile="megatron_core").result
    inside = {"gpu", "l2", "sm", "tensor_core", "node"}
    watts = sum(row.joules for row in found.ledger if row.level in inside) / found.latency_s / 8
    assert watts == pytest.approx((7750 + 8400) / 2, rel=0.15)


def test_watts_of_a_module_that_ran_on_constants_have_less_of_its_operations_and_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the GPU draws at work stays, whatever the operands; a kernel alone was measured with drawn ones."""
    path = tmp_path / "mla.csv"
    columns = "system,framework,version,phase,mla_dtype,kv_cache_dtype,gemm_type,num_heads,batch_size,q_len,past_kv_len,latency_us,power_w"
    rows = ("h200_sxm,VLLM,0.22.0,context_module,bfloat16,bfloat16,bfloat16", "b200_sxm,SGLang,0.5.14,context,bfloat16,bfloat16,")
    path.write_text("\n".join([columns, *(f"{row},128,1,8192,0,9000,500" for row in rows)]) + "\n", encoding="utf-8")
    said, found = words(), []
    assert said.latent is not None
    for share in (0.0, said.latent.constant, 1.0):
        changed = copy(said)
        changed.latent = said.latent.model_copy(update={"constant": share})
        monkeypatch.setattr("rackmodel.validation.attention.words", lambda changed=changed: changed)
        found.append([row.predicted for row in validate([path]).rows if row.unit == "W"])
    (none, alone), (some, also), (whole, still) = found
    assert some == pytest.approx(none + 0.3 * (whole - none))
    assert 250 < none < some < whole < 700
    assert alone == also == still
