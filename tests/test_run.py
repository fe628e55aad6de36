"""A whole run: steps, Daly's expected time in parts that add up, energy while waiting, carbon once, and its shell."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackmodel import api
from rackmodel.carbon.operational import operational_carbon_g
from rackmodel.carbon.run import (
    RunRequest,
    machine_mtbf_s,
    optimal_interval_s,
    state_bytes,
    steps_of,
    tokens_of,
    whole_run,
    young_interval_s,
)
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import grid_table
from rackmodel.inputs.read import read_architecture, read_workload
from rackmodel.model.architecture import Site
from rackmodel.model.certificate import Certificate
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import WorkloadSpec

HOUR, DAY = 3600.0, 86400.0
GPT = read_workload("gpt")
STATE = state_bytes(GPT)


def result(step_s: float = 10.0, step_j: float = 1000.0, idle_w: float = 40.0) -> Result:
    """A step of 10 s and 1000 J, of which 40 W are static."""
    rows = (
        Charge("forward", "", "", "gpu", "compute", "mac", 1.0, "flop", step_j - idle_w * step_s, step_s, step_s),
        Charge("forward", "", "", "node", "static", "static", 1.0, "joule", idle_w * step_s, step_s, 0.0),
    )
    certificate = Certificate("none", "latency", 1.0, 1, step_s, step_s, 0.0)
    return Result("m", "w", "hand", step_s, step_j, None, 1.0, MappingSpec(name="hand", accelerators=8), certificate, Ledger(rows))


# -- steps, tokens, bytes --------------------------------------------------------------------------------------------------


def test_gpt3_takes_95367_steps() -> None:
    """300e9 / (1536 x 2048) = 95,367.4: whole steps, as Megatron-LM divides train_samples by the batch."""
    workload = read_workload("gpt", ["b=1536"])
    assert tokens_of(workload) == 1536 * 2048
    assert tokens_of(read_workload("gpt3_matrices", sets=["b=3", "s=5"])) == 15  # no loss: ends in the residual stream
    assert steps_of(300e9, workload) == 95_367


def test_a_decoder_s_step_has_the_new_tokens_of_its_sequences() -> None:
    """Not the scores of all words that it ends in: 16 sequences that decode, 2 chunks of 512."""
    assert tokens_of(read_workload("llama3_8b_decoder", ["b=16"])) == 16
    assert tokens_of(read_workload("deepseek_v3_decoder", ["b=2", "s=512", "t=512"])) == 1024
    said = {"workload": "scored", "phases": ["forward"], "sizes": {"b": 4, "d": 8, "v": 100}}
    scored = WorkloadSpec.model_validate(said | {"einsums": {"head": "L[b,v] = X[b,d] * W[v,d]"}})
    assert tokens_of(build_workload(scored)) == 4


def test_a_checkpoint_of_gpt3_is_14_bytes_a_parameter() -> None:
    """A layer has 12 d^2 + 4 d (two norms of weight and bias), the ends v d + s d + 2 d; the tied embedding counts once."""
    d, v, s = 12288, 51200, 2048
    parameters = 96 * (12 * d * d + 4 * d) + v * d + s * d + 2 * d
    assert state_bytes(GPT) == pytest.approx(14 * parameters, rel=1e-12)
    assert parameters == pytest.approx(174.6e9, rel=1e-3)


def test_every_expert_is_in_the_checkpoint_and_weights_alone_where_nothing_is_trained() -> None:
    moe, ffn = read_workload("moe_llama"), read_workload("ffn")
    experts = 32 * 8 * 3 * 4096 * 14336
    assert 14 * experts < state_bytes(moe) < 14 * experts * 1.1
    assert state_bytes(ffn) == sum(ffn.tensors[name].bytes for name in ffn.weights)


SCORES = {"workload": "scores", "sizes": {"s": 8, "t": 8, "e": 4}, "einsums": {"QK": "A[s,t] = Q[s,e] * K[t,e]"}}


def test_tokens_below_a_step_and_of_a_workload_without_weights_are_refused() -> None:
    with pytest.raises(InputError, match="less than one step"):
        steps_of(1000, GPT)
    with pytest.raises(InputError, match="say --steps"):
        tokens_of(build_workload(WorkloadSpec.model_validate(SCORES)))
    assert tokens_of(read_workload("ffn")) == 16 * 2048  # a graph's rows


# -- intervals -------------------------------------------------------------------------------------------------------------


def test_young_is_the_root_of_twice_write_times_mtbf() -> None:
    """sqrt(2 x 300 s x 86,400 s) = 7,200 s."""
    assert young_interval_s(300, DAY) == 7200


@pytest.mark.parametrize(("mtbf_min", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_optimum_is_that_of_his_figures(mtbf_min: float, minutes: float) -> None:
    """Daly 2006, captions of Figs. 3 to 5: a write of 5 min."""
    assert optimal_interval_s(300, mtbf_min * 60) / 60 == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


@given(write=st.floats(1, 600), mtbf=st.floats(3600, 1e6))
def test_the_optimum_is_within_a_thousandth_of_the_least_time(write: float, mtbf: float) -> None:
    """Against every interval of a fine grid, by eq. 20 per second of computing."""

    def cost(interval: float) -> float:
        return mtbf / interval * math.expm1((interval + write) / mtbf)

    best = min(cost(optimal_interval_s(write, mtbf) * 1.02**step) for step in range(-60, 61))
    assert cost(optimal_interval_s(write, mtbf)) <= best * 1.001


# -- the run -----------------------------------------------------------------------------------------------------------------


def test_without_checkpoints_a_run_is_steps_times_the_step() -> None:
    run = whole_run(result(), GPT, RunRequest(1000))
    assert (run.total.seconds, run.total.joules, run.total.carbon_g) == (10_000, 1e6, None)
    assert (run.failures, run.checkpoints, run.interval_s) == (0, 0, None)
    assert [part.seconds for part in run.parts.values()] == [10_000, 0, 0, 0]


def test_checkpoints_block_and_cost_static_power_alone() -> None:
    """10,000 s in intervals of at most 3,000 s: 4 of 2,500 s; each writes 100 s at 40 W."""
    run = whole_run(result(), GPT, RunRequest(1000, interval_s=3000, storage_bytes_per_s=STATE / 100))
    assert (run.checkpoints, run.interval_s) == (4, 2500)
    assert run.write_s == pytest.approx(100)
    assert run.parts["checkpoints"].seconds == pytest.approx(400)
    assert run.parts["checkpoints"].joules == pytest.approx(400 * 40)
    assert run.total.seconds == pytest.approx(10_400)
    assert run.total.joules == pytest.approx(1e6 + 16_000)


def test_accelerators_wait_for_their_host_while_it_writes_a_checkpoint() -> None:
    """4 writes of 100 s at 40 W static and 24 W of clocks that stay up; restarts, when nothing runs, at 40 W alone."""
    run = whole_run(replace(result(), waiting_w=24.0), GPT, RunRequest(1000, interval_s=3000, storage_bytes_per_s=STATE / 100))
    assert run.parts["checkpoints"].joules == pytest.approx(400 * (40 + 24))
    failing = RunRequest(1000, 2000, STATE / 100, 20_000, 600)
    told, without = (whole_run(one, GPT, failing) for one in (replace(result(), waiting_w=24.0), result()))
    assert told.parts["restarts"] == without.parts["restarts"]
    writing = told.parts["checkpoints"].seconds + 5 * (20_000 * math.expm1(100 / 20_000) - 100)  # those that a failure ends, too
    assert told.total.joules - without.total.joules == pytest.approx(24 * writing)


@pytest.mark.parametrize(("profile", "watts"), [("megatron_core", 4 * 58.0), ("ideal", 0.0)])
def test_a_step_says_what_its_accelerators_draw_that_wait(profile: str, watts: float) -> None:
    """58 W of each H100 under a profile with measured kernels; none under one whose joules leave out what clocks draw."""
    found = api.search("dgx_h100", "llama3_8b", "megatron", sets=("accelerators=4", "b=8", "layers=2", "s=2048"), profile=profile)
    assert found.result.waiting_w == pytest.approx(watts)


def test_the_expected_time_is_dalys() -> None:
    """n = 5 segments of 2,000 + 100 s, M = 20,000 s, R = 600 s: 5 x 20000 x e^0.03 x (e^0.105 - 1) = 11,408.2 s."""
    run = whole_run(result(), GPT, RunRequest(1000, 2000, STATE / 100, 20_000, 600))
    assert run.total.seconds == pytest.approx(5 * 20_000 * math.exp(0.03) * math.expm1(0.105), rel=1e-12)
    assert run.total.seconds == pytest.approx(11_408.2, abs=0.1)
    assert run.failures == pytest.approx(11_408.2 / 20_000, abs=1e-4)


def test_rare_failures_lose_half_a_segment_each() -> None:
    """L = 2,100 s, M = 1e8 s: each of F failures loses L / 2 and waits R."""
    run = whole_run(result(), GPT, RunRequest(1000, 2000, STATE / 100, 1e8, 600))
    assert run.parts["lost work"].seconds == pytest.approx(run.failures * 1050, rel=1e-3)
    assert run.parts["restarts"].seconds == pytest.approx(run.failures * 600, rel=1e-3)


def test_a_restart_reads_the_checkpoint_where_nothing_else_is_said() -> None:
    told, silent = (whole_run(result(), GPT, RunRequest(1000, 2000, STATE / 100, 20_000, restart)) for restart in (100.0, None))
    assert told.total.seconds == pytest.approx(silent.total.seconds, rel=1e-12)


def test_a_simulation_of_failures_agrees_part_by_part() -> None:
    """Segments of 3,000 s computing and 500 s writing, a failure every 4,000 s, restarts of 400 s: 40,000 segments drawn."""
    random.seed(7)
    tau, write, mean, restart, segments = 3000.0, 500.0, 4000.0, 400.0, 40_000
    computed = written = waited = 0.0
    for _ in range(segments):
        while True:
            alive = random.expovariate(1 / mean)
            computed, written = computed + min(alive, tau), written + min(max(alive - tau, 0.0), write)
            if alive >= tau + write:
                break
            while (alive := random.expovariate(1 / mean)) < restart:
                waited += alive
            waited += restart
    run = whole_run(result(step_s=tau, step_j=100 * tau), GPT, RunRequest(segments, tau, STATE / write, mean, restart))
    parts = run.parts
    assert parts["computing"].seconds + parts["checkpoints"].seconds + parts["lost work"].seconds == pytest.approx(
        computed + written, rel=0.01
    )
    assert parts["restarts"].seconds == pytest.approx(waited, rel=0.02)
    assert run.total.joules == pytest.approx(100 * computed + 40 * (written + waited), rel=0.01)


@given(
    steps=st.integers(1, 10**6),
    interval=st.floats(60, 1e5),
    write=st.floats(0.1, 1000),
    mtbf=st.floats(1e4, 1e8),
    restart=st.floats(0, 5000) | st.none(),
)
def test_parts_add_up_and_none_is_negative(steps: int, interval: float, write: float, mtbf: float, restart: float | None) -> None:
    run = whole_run(result(), GPT, RunRequest(steps, interval, STATE / write, mtbf, restart))
    parts = run.parts.values()
    assert all(part.seconds >= -1e-9 * run.total.seconds and part.joules >= -1e-9 * run.total.joules for part in parts)
    length = steps * 10 / run.checkpoints + run.write_s
    wait = run.write_s if restart is None else restart
    daly = run.checkpoints * mtbf * math.exp(wait / mtbf) * math.expm1(length / mtbf)
    assert run.total.seconds == pytest.approx(daly, rel=1e-9)
    assert run.interval_s is not None
    assert run.interval_s <= interval * (1 + 1e-9)
    assert run.parts["computing"].joules == 1000 * steps


def test_more_failures_never_make_a_run_shorter() -> None:
    times = [whole_run(result(), GPT, RunRequest(10_000, 0.0, STATE / 100, mtbf)).total.seconds for mtbf in (1e7, 1e6, 1e5, 1e4, 1e3)]
    assert times == sorted(times)


def test_carbon_is_that_of_the_runs_joules_with_pue_once() -> None:
    site = Site(grid={"intensity": "360 g/kWh"}, pue=1.5)
    run = whole_run(result(), GPT, RunRequest(1000, 2000, STATE / 100, 20_000, 600), site=site, table=grid_table())
    assert run.total.carbon_g == pytest.approx(run.total.joules * 1.5 * 360 / 3.6e6, rel=1e-12)
    assert run.total.carbon_g == pytest.approx(float(operational_carbon_g(run.total.joules, site, {})), rel=1e-12)


def test_failures_that_leave_no_progress_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="never end") as caught:
        whole_run(result(), GPT, RunRequest(1000, 5000, STATE / 100, 10))
    assert caught.value.shortfall > 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (RunRequest(0), "at least one step"),
        (RunRequest(9, interval_s=60), "bandwidth it is written with"),
        (RunRequest(9, storage_bytes_per_s=1e9), "storage is for checkpoints"),
        (RunRequest(9, interval_s=0, storage_bytes_per_s=1e9), "without failures"),
        (RunRequest(9, mtbf_s=1e5), "needs checkpoints"),
        (RunRequest(9, restart_s=60), "follows a failure"),
    ],
)
def test_what_does_not_fit_together_is_refused(asked: RunRequest, said: str) -> None:
    with pytest.raises(InputError, match=said):
        whole_run(result(), GPT, asked)


def test_a_machine_fails_as_often_as_its_members_together() -> None:
    """64 accelerators of nodes of 8: 8 nodes; 60 take as many nodes."""
    machine = read_architecture("dgx_a100")
    assert machine_mtbf_s(50_000 * HOUR, "node", machine, 64) == 6250 * HOUR
    assert machine_mtbf_s(50_000 * HOUR, "node", machine, 60) == 6250 * HOUR
    assert machine_mtbf_s(64.0, "accelerator", machine, 64) == machine_mtbf_s(64.0, "gpu", machine, 64) == 1.0
    with pytest.raises(InputError) as caught:
        machine_mtbf_s(1.0, "noed", machine, 64)
    assert "node" in caught.value.known


def test_llama_3_failed_every_three_hours() -> None:
    """Grattafiori 2024, section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs = 1.97e-5 per GPU-hour."""
    machine = read_architecture("dgx_h100", ["accelerators=8"])
    mtbf = machine_mtbf_s(HOUR / 1.97e-5, "accelerator", machine, 16_384)
    assert 54 * DAY / mtbf == pytest.approx(419, rel=0.01)


# -- the shell -----------------------------------------------------------------------------------------------------------------


RUN = ("--checkpoint", "optimal", "--storage", "200 GB/s", "--failures", "2e-5 per accelerator-hour", "--restart", "10 min")


def test_a_run_is_off_unless_asked_for(shell) -> None:
    assert "run:" not in shell("search")[1]
    assert "run" not in json.loads(shell("search", "--json")[1])


def test_search_and_evaluate_give_the_same_run(shell, tmp_path: Path) -> None:
    code, out, _ = shell("search", "--tokens", "300e9", *RUN, "-o", str(tmp_path))
    assert code == 0
    assert "run: 2,288,818 steps" in out
    for word in ("computing", "checkpoints", "lost work", "restarts", "total", "CO2e"):
        assert word in out.split("run:")[1]
    found, priced = (json.loads(shell(command, "--tokens", "300e9", *RUN, "--json")[1]) for command in ("search", "evaluate"))
    assert found["run"]["seconds"] == pytest.approx(priced["run"]["seconds"], rel=1e-9)
    run, step = found["run"], found["result"]
    assert run["steps"] == 2_288_818
    assert run["mtbf_s"] == pytest.approx(HOUR / 2e-5 / 64)
    assert run["parts"]["computing"]["seconds"] == pytest.approx(run["steps"] * step["latency_s"])
    assert run["parts"]["computing"]["carbon_g"] == pytest.approx(run["steps"] * step["carbon_g"])
    for figure in ("seconds", "joules", "carbon_g"):
        assert math.fsum(part[figure] for part in run["parts"].values()) == pytest.approx(run[figure], rel=1e-12)
    power = sum(row["joules"] for row in step["ledger"] if row["component"] == "static") / step["latency_s"]
    assert run["parts"]["restarts"]["joules"] == pytest.approx(power * run["parts"]["restarts"]["seconds"])


def test_a_rate_and_a_time_between_failures_say_the_same(shell) -> None:
    """2e-5 per accelerator-hour x 8 accelerators a node = one failure of a node in 6,250 h."""
    rate, between = (
        json.loads(shell("search", "--steps", "1000", "--checkpoint", "30 min", "--storage", "1 TB/s", "--failures", text, "--json")[1])
        for text in ("2e-5 per accelerator-hour", "6250 h per node")
    )
    assert rate["run"] == between["run"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--checkpoint", "optimal"), "say --tokens or --steps too"),
        (("--tokens", "3e9", "--steps", "5"), "not both"),
        (("--tokens", "many"), "--tokens: 'many' is not a quantity"),
        (("--tokens", "10"), "less than one step"),
        (("--steps", "5", "--checkpoint", "60"), "--checkpoint: '60' has no unit"),
        (("--steps", "5", "--checkpoint", "60 s", "--storage", "1 GB"), "--storage"),
        (("--steps", "5", "--checkpoint", "60 s", "--storage", "1 GB/s", "--failures", "often"), "50000 h per node"),
        (("--steps", "5", "--checkpoint", "60 s", "--storage", "1 GB/s", "--failures", "3 h per noed"), "did you mean 'node'"),
        (("--steps", "5", "--checkpoint", "60 s", "--storage", "1 GB/s", "--failures", "0 per gpu-hour"), "must be positive"),
    ],
)
def test_bad_words_of_a_run_get_one_message_and_exit_code_2(shell, words: tuple[str, ...], said: str) -> None:
    code, out, err = shell("search", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
