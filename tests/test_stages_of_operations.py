"""Stages that hold operations (rule 11 of docs/clock.md) wait for their host and slow beside what moves (rules 7, 8), by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api, face
from rackmodel.errors import InputError
from rackmodel.inputs import read_inputs
from rackmodel.model.result import Result
from rackmodel.report.trace import trace_json
from tests.audit.bounds import above_the_clock
from tests.audit.drawing import ZERO
from tests.samples import some

MACHINE = """
architecture: mine
tree:
  name: system
  network: {topology: switch, bandwidth: 100 GB/s, latency: 0 s}
  children:
  - name: gpu
    count: 8
    accelerator: true
    memory: {capacity: 80 GB, bandwidth: 1 TB/s}
    compute: {rate: 1 TFLOP/s, energy: 1 pJ/FLOP}
"""
MODEL = """
workload: chain
phases: [forward, backward, optimizer]
sizes: {b: 16, d: 8, f: 64}
einsums:
  up: 'H[b,f] = X[b,d] * W1[d,f]'
  act: 'G[b,f] = gelu(H[b,f])'
  down: 'Y[b,d] = G[b,f] * W2[f,d]'
"""
ACTED = """
workload: acted
phases: [forward, backward, optimizer]
sizes: {b: 128, d: 4096, f: 4096}
einsums:
  act: 'G[b,f] = gelu(X[b,f])'
  down: 'Y[b,d] = G[b,f] * W[f,d]'
"""
MAPPER = """
mapper: m
axes: {{pp: {{stages: {stages}}}, dp: {{degree: {dp}}}}}
split: {{dp: [b]}}
micro_batch: {size}
schedule: {schedule}
algorithms: ring
"""


def step(folder: Path, profile: str, dp: int = 1, size: int = 2, schedule: str = "1f1b", more: str = "", **sizes: Any) -> Result:
    """The chain in two stages, its first two operations and its last, of 16 samples on 2 x dp accelerators."""
    (folder / "mine.yaml").write_text(f"profile: mine\n{profile}\n")
    mapper = MAPPER.format(stages="[[up, act], [down]]", dp=dp, size=size, schedule=schedule) + more
    model = face.read(MODEL, set=sizes)
    machine = face.read(MACHINE, set={"accelerators": 2 * dp})
    return api.search_mapper(machine, model, face.read(mapper), profile=str(folder / "mine.yaml")).result


@pytest.mark.parametrize(("host", "milliseconds"), [("{launch: 1 ms}", 41), ("{layer: 1 ms, backward: 2 ms}", 36), ("{}", 0)])
def test_stages_of_operations_wait_for_their_host(tmp_path: Path, host: str, milliseconds: int) -> None:
    """Eight micro-batches. Launched one by one: 2 and 3 kernels of the first stage's passes, 1 and 2 of the second's, so that the first one
    runs F F, waits 1 ms for what comes back (2 + 1 + 2 = 5), then B and F in turns: 5 + 3 + 6 (2 + 3) + 3. A time for each layer:
    (8 + 1) (1 + 3) on two stages alike."""
    result = step(tmp_path, f"host: {host}")
    assert result.latency_s == pytest.approx(milliseconds * 1e-3, abs=1e-4)
    assert result.ledger.where(action="host").total("exposed_seconds") == pytest.approx(milliseconds * 1e-3, rel=1e-9)
    assert result.ledger.total("exposed_seconds") == pytest.approx(result.latency_s, rel=1e-12)
    assert result.certificate.bound <= result.latency_s * (1 + 1e-12)


def test_a_host_costs_a_stage_of_operations_no_less_than_a_layer(tmp_path: Path) -> None:
    """One stage that holds all and two that share it: the host launches as many kernels in either."""
    machine = face.read(MACHINE, set={"accelerators": 1})
    (tmp_path / "mine.yaml").write_text("profile: mine\nhost: {launch: 1 ms}\n")
    alone = "mapper: m\naxes: {dp: {degree: all}}\nsplit: {dp: [b]}\nmicro_batch: 16\nalgorithms: ring\n"
    whole = api.search_mapper(machine, face.read(MODEL), face.read(alone), profile=str(tmp_path / "mine.yaml")).result
    cut = step(tmp_path, "host: {launch: 1 ms}", size=16)  # one micro-batch goes through the stages and back: nothing overlaps
    assert whole.latency_s == pytest.approx(8e-3, abs=1e-4)
    assert cut.latency_s == pytest.approx(whole.latency_s, abs=1e-4)


def test_stages_of_operations_slow_beside_what_is_gathered(tmp_path: Path) -> None:
    """One micro-batch through a stage that only acts and one whose product's weight, in halves on two ranks, is gathered beside it: 16.8 MB
    cross the links in 0.168 ms in either pass, and 33.6 MB of its gradient in 0.336 ms on the same lane. Each of three products takes 2.147
    ms, so that contention 1 adds as much to a pass as the lane moves in it."""
    times = []
    for contention in (0, 1):
        (tmp_path / "mine.yaml").write_text(f"profile: mine\noverlap: {{weights: true, gradients: true, contention: {contention}}}\n")
        mapper = MAPPER.format(stages="[[act], [down]]", dp=2, size="whole", schedule="1f1b")
        mapper += "homes: {weights: {axes: [dp], param: shard, grad: shard, state: shard}}\n"
        machine = face.read(MACHINE, set={"accelerators": 4})
        times.append(api.search_mapper(machine, face.read(ACTED), face.read(mapper), profile=str(tmp_path / "mine.yaml")).result.latency_s)
    gather, reduced = 4096 * 4096 * 2 / 2 / 100e9, 4096 * 4096 * 4 / 2 / 100e9
    assert times[1] - times[0] == pytest.approx(gather + gather + reduced, rel=1e-6)


def test_an_optimizer_does_not_wait_for_sends_under_way() -> None:
    """Rule 10. One micro-batch over links so slow that a gradient of 128 rows goes back in 10.5 ms, beside which the second stage makes
    its weight's gradient (4.3 ms) and updates that (4,096 x 4,096 weights of 30 bytes, 0.5 ms); last is the first stage's pass."""
    mapper = MAPPER.format(stages="[[act], [down]]", dp=1, size="whole", schedule="1f1b")
    machine = face.read(MACHINE, set={"accelerators": 2, "system.network.bandwidth": "0.1 GB/s"})
    result = api.search_mapper(machine, face.read(ACTED), face.read(mapper), profile="ideal").result
    rows, product = 128 * 4096 * 2, 2 * 128 * 4096 * 4096 / 1e12
    assert result.latency_s == pytest.approx(2 * rows / 1e12 + rows / 1e8 + 2 * product + rows / 1e8 + 3 * rows / 1e12, rel=1e-9)


@pytest.mark.parametrize("contention", [0, 0.5])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb_h1", "zb_h2"])
def test_no_bound_of_stages_of_operations_is_above_the_clock(tmp_path: Path, schedule: str, contention: float) -> None:
    """What is handed over beside the device is no time of the device. Three stages, sends of 20 us that queue on links of their own both
    ways, eight micro-batches: those of zb_h2 never wait for each other, 8 + 3 sends, where 2 x 8 were a bound."""
    (tmp_path / "mine.yaml").write_text(
        f"profile: mine\noverlap: {{sends: true, weights: true, gradients: true, contention: {contention}}}\n"
    )
    machine = face.read(MACHINE, set={"accelerators": 6, "system.network.latency": "20 us"})
    mapper = MAPPER.format(stages="per_einsum", dp="free", size="[1, 2, 4]", schedule=schedule)
    mapper = mapper.replace("}}", "}, tp: {degree: free}}").replace("dp: [b]}", "dp: [b], tp: [f]}")
    mapper += "homes: {weights: [{}, {axes: [dp], param: shard, grad: shard, state: shard}]}\n"
    count, faults = above_the_clock((machine, face.read(MODEL), face.read(mapper)), str(tmp_path / "mine.yaml"), 40, 0)
    assert count > 4
    assert not faults


def test_sends_of_a_pipeline_of_operations_follow_each_other() -> None:
    """Eight micro-batches of next to no work through three stages and back, sends of 20 us: (8 + 1 + 2) of them under zb_h2, whose stages
    never wait for what comes back; (2 x 8 + 2) under gpipe, which begins back when all are there."""
    for schedule, sends in (("zb_h2", 11), ("gpipe", 18)):
        machine = face.read(MACHINE, set={"accelerators": 3, "system.network.latency": "20 us"})
        mapper = MAPPER.format(stages="per_einsum", dp="rest", size=2, schedule=schedule)
        result = api.search_mapper(machine, face.read(MODEL), face.read(mapper), profile="ideal").result
        assert result.latency_s == pytest.approx(sends * 20e-6, rel=0.02)


def test_stages_of_operations_are_refused_schedules_of_several_chunks() -> None:
    """(Until then they ran as 1f1b.)"""
    mapper = face.read(MAPPER.format(stages="per_einsum", dp="rest", size=2, schedule="interleaved"))
    with pytest.raises(InputError, match="interleaved has several chunks of layers a stage: a cut below the layer has none") as caught:
        api.search_mapper(face.read(MACHINE, set={"accelerators": 3}), face.read(MODEL), mapper, profile="ideal")
    assert caught.value.path == "schedule"


@pytest.mark.parametrize("profile", ["ideal", "hosted", "sends"])
def test_traces_of_stages_of_operations_end_with_the_clock(tmp_path: Path, profile: str) -> None:
    """With a host that outlasts the operations, and where a send outlasts the stage that sends."""
    texts = {"hosted": "profile: hosted\nhost: {launch: 1 ms}\n", "sends": "profile: sends\noverlap: {sends: true}\n"}
    said = profile
    if profile in texts:
        said = str(tmp_path / f"{profile}.yaml")
        Path(said).write_text(texts[profile])
    paths = [tmp_path / name for name in ("machine.yaml", "model.yaml", "mapper.yaml")]
    mapper = MAPPER.format(stages="[[up, act], [down]]", dp="rest", size=2, schedule="1f1b")
    for path, text in zip(paths, (MACHINE.replace("100 GB/s", "0.1 GB/s"), MODEL, mapper), strict=True):
        path.write_text(text)
    machine, model, asked = (str(path) for path in paths)
    sets = ["accelerators=2", "d=512", "f=512"]
    result = api.search(machine, model, asked, sets=sets, profile=said).result
    inputs = read_inputs(machine, model, mapper=asked, sets=sets)
    trace = json.loads(trace_json(api.step_of(inputs, result.mapping, profile=said)))
    assert trace["otherData"]["latency_s"] == pytest.approx(result.latency_s, rel=1e-11)
    assert any(event["ph"] == "X" and event["name"] == "host" for event in trace["traceEvents"]) == (profile == "hosted")


@pytest.mark.parametrize("policy", ["none", "pointwise", "full"])
def test_a_stage_keeps_what_another_hands_to_it(policy: str) -> None:
    """The second stage, which has the weights, multiplies 128 x 4,096 numbers of two bytes that the first one made: its backward pass reads
    them, and nothing sends them again. The first stage makes nothing again that only the second one reads."""
    mapper = face.read(MAPPER.format(stages="[[act], [down]]", dp=1, size="whole", schedule="1f1b") + f"recompute: {policy}\n")
    result = api.search_mapper(face.read(MACHINE, set={"accelerators": 2}), face.read(ACTED), mapper, profile="ideal").result
    assert result.memory["activations"] == 128 * 4096 * 2
    assert result.ledger.where(action="send").total("amount") == 2 * 128 * 4096 * 2  # there, and the gradient back
    again = result.ledger.where(phase="recompute", einsum="act", component="memory").total("amount")
    assert again == (2 * 128 * 4096 * 2 if policy == "full" else 0)


def test_no_kernel_of_attention_runs_on_two_stages() -> None:
    """Scores that one stage makes and another reads go over links, and lie in the memories of both, whatever kernels a profile has."""
    cut, whole = "per_einsum", "[[Q, K, V], [QK, AV], [O]]"
    found = {}
    for stages, accelerators in ((cut, 6), (whole, 3)):
        for profile in ("ideal", "ideal_flash"):
            mapper = face.read(MAPPER.format(stages=stages, dp=1, size=1, schedule="1f1b"))
            machine = face.read(MACHINE, set={"accelerators": accelerators, "gpu.count": 8})
            model = face.read({"workload": "small", "extends": "attention", "sizes": {"b": 2, "s": 64, "d": 32, "e": 16}})
            found[stages, profile] = api.search_mapper(machine, model, mapper, profile=profile).result
    assert found[cut, "ideal"].memory == found[cut, "ideal_flash"].memory
    assert found[cut, "ideal"].energy_j == found[cut, "ideal_flash"].energy_j
    scores = [found[whole, profile].ledger.where(component="memory", tensor="A").total("amount") for profile in ("ideal", "ideal_flash")]
    assert scores[0] > scores[1] == 0


@pytest.mark.parametrize("draw", some(range(80), 24))
def test_layers_said_as_stages_of_operations_take_as_long(tmp_path: Path, draw: int) -> None:
    """L layers of one product, one on each stage, and as many operations with weights of their own, each a stage: the same tasks on the
    same lanes, under random profiles that send beside the device. Where weights' gradients have passes of their own, or nothing comes back,
    a pass ends with the operation whose result is handed over, and the two clocks agree to rounding (else an operation hands over sooner
    than a layer); memory is the same under any schedule."""
    pick = random.Random(f"two ways {draw}")
    layers, dp, d = pick.choice([2, 3, 4]), pick.choice([1, 2, 4]), pick.choice([64, 512, 2048])
    back = pick.random() < 0.75
    phases = ["forward", "backward", "optimizer"] if back else ["forward"]
    sizes = {"b": pick.choice([8, 16, 32]), "s": pick.choice([1, 16, 64])}
    product = {"sections": {"block": {"repeat": "layers", "einsums": {"mm": "Y[b,s,f] = X[b,s,d] * W[d,f]"}}}}
    repeated = {"workload": "layers", "phases": phases, "sizes": {**sizes, "d": d, "f": d, "layers": layers}, **product}
    ops = {f"m{i}": f"T{i + 1}[b,s,r{i + 1}] = T{i}[b,s,r{i}] * W{i}[r{i},r{i + 1}]" for i in range(layers)}
    ranks = {f"r{i}": d for i in range(layers + 1)}
    chain = {"workload": "chain", "phases": phases, "sizes": {**sizes, **ranks}, "einsums": ops, "tensors": {"T0": {"kind": "input"}}}
    profile = {"profile": "drawn", **drawn_profile(pick, back)}
    (tmp_path / "drawn.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
    schedule = pick.choice(["zb_h1", "zb_h2"] if back else ["gpipe", "1f1b", "zb_h1"])
    asked = {"mapper": "m", "split": {"dp": ["b"]}, "micro_batch": pick.choice([1, 2, "whole"]), "schedule": schedule, "algorithms": "ring"}
    if back:
        asked["homes"] = {"weights": pick.choice(ZERO)}
    links = {"system.network.bandwidth": pick.choice(["5 GB/s", "100 GB/s"]), "system.network.latency": pick.choice(["0 s", "5 us"])}
    machine = face.read(MACHINE.replace("count: 8", f"count: {layers * dp}"), set=links)
    results = []
    for model, axis in ((repeated, {"degree": layers, "stages": "layers"}), (chain, {"stages": "per_einsum"})):
        mapper = face.read({**asked, "axes": {"pp": {**axis, "place": "outer"}, "dp": {"degree": dp}}})
        results.append(api.search_mapper(machine, face.read(model), mapper, profile=str(tmp_path / "drawn.yaml")).result)
    whole, cut = results
    assert cut.latency_s == pytest.approx(whole.latency_s, rel=1e-9)
    assert cut.energy_j == pytest.approx(whole.energy_j, rel=1e-9)
    assert cut.memory_bytes_per_accelerator == pytest.approx(whole.memory_bytes_per_accelerator, rel=1e-12)


def drawn_profile(pick: random.Random, back: bool) -> dict[str, Any]:
    """What runs beside what, and what the host takes."""
    overlap: dict[str, Any] = {"sends": True, "channels": pick.choice(["shared", "separate"]), "weights": pick.random() < 0.6}
    overlap |= {"contention": pick.choice([0.0, 0.0, 0.3])}
    if back:
        overlap |= {"gradients": pick.random() < 0.6}
    host = {"launch": pick.choice(["0 us", "1 us", "20 us"]), "layer": pick.choice(["0 us", "30 us"])}
    return {"accumulation": pick.choice(["fused", "separate"]), "overlap": overlap} | ({"host": host} if pick.random() < 0.5 else {})


def test_a_zero_bubble_pass_adds_a_gradient_after_the_product_that_makes_it(tmp_path: Path) -> None:
    """zb_h2, two stages of one product, two micro-batches, F = B = f, W = f and a kernel of its own that adds 2 + 4 + 4 bytes a weight, a.
    The second stage runs F B F B W W from f on: 7 f + 2 a. The first one runs F F, its B from 3 f on, W, B, W: 7 f + 2 a. (Added in the
    passes B, which other stages wait for, it were 7 f + 3 a.)"""
    (tmp_path / "mine.yaml").write_text("profile: mine\naccumulation: separate\noverlap: {sends: true}\n")
    sizes = {"b": 2, "s": 512, "d": 512, "f": 512, "layers": 2}
    block = {"block": {"repeat": "layers", "einsums": {"mm": "Y[b,s,f] = X[b,s,d] * W[d,f]"}}}
    model = {"workload": "two", "phases": ["forward", "backward", "optimizer"], "sizes": sizes, "sections": block}
    mapper = {"mapper": "m", "axes": {"pp": {"degree": 2, "stages": "layers"}, "dp": {"degree": 1}}, "split": {"dp": ["b"]}}
    mapper |= {"micro_batch": 1, "schedule": "zb_h2"}
    machine = face.read(MACHINE, set={"accelerators": 2, "system.network.bandwidth": "1000 TB/s"})
    result = api.search_mapper(machine, face.read(model), face.read(mapper), profile=str(tmp_path / "mine.yaml")).result
    product, add, update = 2 * 512**3 / 1e12, 10 * 512**2 / 1e12, 30 * 512**2 / 1e12
    assert result.latency_s == pytest.approx(7 * product + 2 * add + update, rel=1e-5)
