"""`serve` and `serve-trace`: exact answers over a declared space, traces with percentiles, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rackmodel.carbon.costing import cost_of
from rackmodel.carbon.job import Usage
from rackmodel.cost.step.ledger import replica_static, static_powers
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import library_path, read_architecture, read_profile
from rackmodel.serving.ask import service_of
from rackmodel.serving.launch import SERVERS, launches_of, serving_launch
from rackmodel.serving.offers import Load, Offer, Service, Widths, offers_of, token_money
from rackmodel.serving.pool_search import PoolsOffer
from rackmodel.serving.search import ServingAnswer, ServingSpace, deployments, search_service, within
from rackmodel.serving.trace_file import read_trace
from rackmodel.units import parse_quantity
from tests.commands import invoke

MODEL = "llama3_8b_decoder"
SMALL = ServingSpace(tensor=(1, 4), pipeline=(1,), clients=(16.0, 64.0), budgets=(2048, 8192))


def _service(*sets: str, machine: str = "dgx_h100") -> Service:
    return service_of(machine, MODEL, sets, read_profile("vllm"), (1024.0, 256.0, 0.0))


@pytest.fixture(scope="module")
def answer() -> ServingAnswer:
    return search_service(_service("accelerators=4"), SMALL)


def test_the_best_is_that_of_every_point(answer: ServingAnswer) -> None:
    assert len(answer.offers) == 8
    assert answer.certificate.status == "proven"
    rates = [one.figures["tokens_per_s_per_accelerator"] for one in answer.offers]
    assert answer.best.figures["tokens_per_s_per_accelerator"] == max(rates)


def test_no_point_of_the_front_is_beaten_in_both(answer: ServingAnswer) -> None:
    for one in answer.front:
        for other in answer.offers:
            better = [other.figures[name] > one.figures[name] for name in ("tokens_per_s_per_accelerator", "interactivity")]
            assert not all(better)


@pytest.mark.parametrize("said", ["arch.accelerators=4", "architecture.accelerators=4", "accelerators*=0.0078125"])
def test_a_number_of_accelerators_counts_whatever_it_is_called(said: str) -> None:
    assert _service(said).machine.used == 4
    assert _service().machine.used == 8  # of 512 that the file states: a server


def test_a_machine_that_states_fewer_than_a_server_has_no_more(tmp_path: Path) -> None:
    text = library_path("architecture", "cs3").read_text(encoding="utf-8")
    (tmp_path / "two.yaml").write_text(text.replace("accelerators: 1", "accelerators: 2"), encoding="utf-8")
    assert _service(machine=str(tmp_path / "two.yaml")).machine.used == 2


def test_clients_that_are_fewer_than_the_replicas_are_counted_as_not_there() -> None:
    found = search_service(_service("accelerators=4"), replace(SMALL, clients=(3.0, 64.0)))
    assert (found.certificate.space, found.certificate.evaluated, found.infeasible) == (8, 6, {"clients": 2})


def test_a_degree_that_no_deployment_has_is_a_warning_at_its_option() -> None:
    space = ServingSpace(tensor=(1, 4, 16), pipeline=(1,), expert=(1, 3), prompt_context=(1, 16), clients=(16.0,))
    found = search_service(_service("accelerators=4"), space)
    none = {"tensor": 16, "expert": 3, "prompt-context": 16}
    assert found.warnings == tuple(f"--{name}: no deployment on 4 accelerators has {n}: passed over" for name, n in none.items())
    assert found.to_dict()["warnings"] == list(found.warnings)
    six = search_service(_service("accelerators=6"), replace(space, tensor=(1, 3), expert=(1,), prompt_context=(1,)))
    assert six.warnings == ("--tensor: no deployment on 6 accelerators has 3: passed over",)  # not 3 for heads


def test_a_format_that_is_said_twice_is_refused() -> None:
    space = replace(SMALL, widths=(Widths("fp8"),))
    with pytest.raises(InputError, match="say one number"):
        search_service(_service("accelerators=4", "workload.precision.weight=bf16"), space)


def test_replicas_share_the_clients(answer: ServingAnswer) -> None:
    for one in answer.offers:
        assert one.replicas * one.deployment.accelerators == 4
        assert one.replicas * one.clients in (16, 64)


def test_limits_leave_only_what_keeps_them(answer: ServingAnswer) -> None:
    most = sorted(one.figures["tpot"] for one in answer.offers)[3]
    found = search_service(_service("accelerators=4"), SMALL, limits={"tpot": most})
    assert found.best.figures["tpot"] <= most
    with pytest.raises(InfeasibleError, match="no deployment keeps the limits; the least alone: ttft"):
        search_service(_service("accelerators=4"), SMALL, limits={"ttft": 1e-6})
    limits = {"ttft": 1e-6, "tpot": most / 100}
    with pytest.raises(InfeasibleError) as problem:
        within(answer.offers, limits)
    change = dict(re.findall(r"--limit (\w+)='([^']+)'", problem.value.change))
    assert within(answer.offers, {name: parse_quantity(text, "second") for name, text in change.items()})


@pytest.mark.parametrize(
    ("word", "figure"),
    [("energy", "joules_per_token"), ("tpot", "tpot"), ("ttft", "ttft"), ("carbon", "grams_per_token"), ("money", "usd_per_token")],
)
def test_each_objective_is_least_at_its_best(answer: ServingAnswer, word: str, figure: str) -> None:
    if figure not in answer.best.figures:
        pytest.skip("the machine has no site")
    found = search_service(_service("accelerators=4"), SMALL, word)
    assert found.best.figures[figure] == min(one.figures[figure] for one in answer.offers)


def test_replicas_of_one_machine_draw_what_the_machine_draws_once() -> None:
    machine = read_architecture("dgx_h100", ["accelerators=8"])
    whole = dict(static_powers(machine))
    for size in (1, 2, 4, 8):
        assert {level: watts * 8 / size for level, watts in replica_static(machine, size)} == pytest.approx(whole)
    # eight replicas share the node's 2.5 kW: at any load they draw less than the 10.2 kW that it is rated at
    found = search_service(_service("accelerators=8"), ServingSpace(tensor=(1,), pipeline=(1,), clients=(8.0, 64.0, 2048.0)))
    watts = [one.figures["joules_per_token"] * one.figures["tokens_per_s"] for one in found.offers]
    assert 8 * 75 + 2500 < min(watts) < max(watts) < 10_200


def test_grams_are_those_of_joules_and_of_time() -> None:
    service = _service("accelerators=4")
    assert service.carbon is not None
    (one,), *_ = offers_of(service, [next(deployments(SMALL, service))], Widths(), Load((64.0,)), [8192])
    per_joule, per_second = service.carbon.of(1.0, 0.0).total_g.mid, service.carbon.of(0.0, 1.0).total_g.mid
    whole = per_joule * one.figures["joules_per_token"] + per_second / one.figures["tokens_per_s"]
    assert one.figures["grams_per_token"] == pytest.approx(whole)
    assert one.figures["grams_per_request"] == pytest.approx(256 * whole)


def test_a_token_costs_its_electricity_and_its_part_of_the_machine() -> None:
    """By hand, every factor at mid: joules and idling at 1.1 · 0.095 usd/kWh; GPUs, the node and the building over 60 % of 4 years."""
    service = _service("accelerators=4")
    (one,), *_ = offers_of(service, [next(deployments(SMALL, service))], Widths(), Load((64.0,)), [8192])
    seconds, per_j = 1 / one.figures["tokens_per_s"], 1.1 * 0.095 / 3.6e6
    machine = read_architecture("dgx_h100", ["accelerators=4"])
    idle = sum(watts for _, watts in static_powers(machine)) * 0.4 / 0.6 * seconds
    owning = cost_of(machine, Usage()).cost.capital_usd.mid * seconds / (0.6 * 4 * 365 * 86400)
    assert 4 * 30000 + 120000 < cost_of(machine, Usage()).cost.capital_usd.mid < 4 * 30000 + 120000 + 8 * 12_000
    assert one.figures["usd_per_token"] == pytest.approx((one.figures["joules_per_token"] + idle) * per_j + owning)
    assert one.figures["usd_per_request"] == pytest.approx(256 * one.figures["usd_per_token"])
    paid = token_money(service, one)
    assert paid is not None
    assert paid.total_usd.mid == pytest.approx(one.figures["usd_per_token"])


def test_money_needs_a_price_and_one_machine() -> None:
    with pytest.raises(InputError, match="money needs a price"):
        search_service(_service("accelerators=4", machine="dgx_a100"), SMALL, "money")
    far = _service("accelerators=2", machine="dgx_h200")
    with pytest.raises(InputError, match="money is of one machine"):
        search_service(_service("accelerators=2"), POOLED, "money", prompts_on=far)


@pytest.mark.parametrize(
    ("space", "need", "have", "change"),
    [
        (ServingSpace(tensor=(8,)), 8, 4, "--set accelerators=8"),
        (ServingSpace(tensor=(3,), clients=(8.0,)), 3, 4, "--set accelerators=3"),
        (ServingSpace(expert=(8,)), 8, 4, "--expert 4"),
    ],
)
def test_a_space_without_a_deployment_says_what_would_be_one(space: ServingSpace, need: int, have: int, change: str) -> None:
    with pytest.raises(InfeasibleError) as found:
        search_service(_service("accelerators=4"), space)
    assert (found.value.need, found.value.have, found.value.change) == (need, have, change)
    wider = replace(space, expert=(int(change.split()[1]),)) if "--expert" in change else space
    sets = ("accelerators=4",) if "--expert" in change else (change.split()[1],)
    assert list(deployments(wider, _service(*sets)))


def test_a_model_that_fits_no_replica_is_infeasible() -> None:
    service = service_of("dgx_h100", "llama3_405b_decoder", ("accelerators=1",), read_profile("vllm"), (1024.0, 256.0, 0.0))
    with pytest.raises(InfeasibleError, match="no room for a cache"):
        search_service(service, ServingSpace(clients=(1.0,)))


def test_a_request_that_no_cache_holds_is_infeasible_and_the_longest_that_one_does_is_told() -> None:
    """(One client was served, whatever its length: of 10^30 tokens, in 10^46 days.)"""

    def of(prompt: float) -> Service:
        sets = ("accelerators=4", "workload.serving.positions=1000000000")
        return service_of("dgx_h100", "llama3_8b_decoder", sets, read_profile("vllm"), (prompt, 24.0, 0.0))

    for pools in (False, True):
        space = ServingSpace(tensor=(1, 2), pipeline=(1,), clients=(8.0,))
        with pytest.raises(InfeasibleError) as caught:
            search_service(of(1e7), space, prompts_on=of(1e7) if pools else None)
        problem = caught.value
        assert problem.resource == "memory"
        assert problem.need > problem.have
        most = float(re.search(r"room for ([\d,]+) tokens", problem.message)[1].replace(",", ""))  # type: ignore[index]
        assert problem.have / most == pytest.approx(131_072 / 2, rel=1e-4)  # the keys and values of a token, on each of two
    longest = search_service(of(most - 24.0), space)
    assert [one.deployment.tensor for one in longest.offers] == [2]
    assert longest.infeasible == {"memory": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--isl", "3000", "--osl", "1097"), "--isl: a request of 4,097 tokens, where llama2_70b_decoder has 4,096 positions"),
        (("serve", "--isl", "2048", "--osl", "1024", "--least", "0.4"), "a request of 4,389 tokens"),  # 3,072 x 2 / 1.4
        (("serve-trace", "--isl", "3000", "--osl", "1097", "--rate", "1", "--requests", "4"), "request 1 of 4,097 tokens"),
    ],
)
def test_requests_beyond_a_models_positions_are_refused_as_engines_refuse_them(words: tuple[str, ...], said: str) -> None:
    """vLLM: max_model_len is greater than the derived one. It may be told otherwise, and so may we."""
    command = [words[0], "dgx_h100", "llama2_70b_decoder", *words[1:], "--tensor", "8", "--pipeline", "1"]
    done = invoke(command)
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    done = invoke([*command, "--set", "workload.serving.positions=4389"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_flags_start_what_was_found(answer: ServingAnswer, name: str) -> None:
    best: Offer = answer.best
    text = "\n".join(serving_launch(name, "some/model", best, 1280).lines())
    assert "some/model" in text
    assert str(best.budget) in text
    assert str(best.deployment.tensor) in text


def test_a_workload_that_is_no_decoder_is_refused() -> None:
    with pytest.raises(InputError, match="no decoder's step"):
        service_of("dgx_h100", "gemm", (), read_profile("vllm"), (1.0, 1.0, 0.0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n", r"trace.csv:1:1: no column 'arrival_s'; the file has a, b"),
        ("arrival_s,prompt,output\n0,10,x\n", r"trace.csv:2:1: output: 'x': want a number from 1 up"),
        ("arrival_s,prompt,output\n1,10,5\n0,10,5\n", r"trace.csv:3:1: arrival_s: this request arrives before"),
        ("arrival_s,prompt,output\n1,0,5\n", "prompt: '0': want a number from 1 up"),
        ("arrival_s,prompt,output\n", "no requests"),
    ],
)
def test_a_trace_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        read_trace(path)


def test_a_request_beyond_the_positions_of_a_model_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt,output\n0,10,5\n\n1,100000000,5\n")
    found = invoke(["serve-trace", "dgx_h100", MODEL, str(path)])
    assert "trace.csv:4:1: request 2 of 100,000,005 tokens" in str(found.exception)


def test_what_a_decoders_file_says_and_changes_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"workload: own\nextends: {MODEL}\nphases: [forward]\nprecision: {{gradient: 16 bit}}\n")
    asked = (str(path), "--concurrency", "2", "--tensor", "1", "--set", "accelerators=1")
    (told,) = _run("serve", "dgx_h100", *asked)["warnings"]  # type: ignore[misc]
    assert "gradient" in told
    asked = (str(path), "--concurrency", "2", "--requests", "2", "--isl", "64", "--osl", "4")
    assert _run("serve-trace", "dgx_h100", *asked)["warnings"] == [told]


def _run(*words: str) -> dict[str, object]:
    found = invoke([*words, "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    data = json.loads(found.output)
    assert isinstance(data, dict)
    return data


def test_the_command_gives_the_best_and_the_front() -> None:
    found = _run(
        "serve", "dgx_h100", MODEL, "--tensor", "2", "--pipeline", "1", "--concurrency", "32", "--flags", "vllm", "--set", "accelerators=2"
    )
    assert found["certificate"]["status"] == "proven"  # type: ignore[index]
    assert "--tensor-parallel-size 2" in found["flags"]["arguments"]  # type: ignore[index]


@pytest.mark.parametrize("words", [("--pipeline", "1"), ("--tensor", "2"), ("--pipeline", "2")])
def test_a_trace_of_one_client_is_what_serve_says_of_it(words: tuple[str, str]) -> None:
    """Its seconds, joules, grams and dollars, too; of a run that ends with its last answer."""
    lengths = ["--isl", "700", "--osl", "60", "--concurrency", "1"]
    of = str(2 if words[1] == "2" else 1)
    space = {"--tensor": "1", "--pipeline": "1"} | dict([words])
    degrees = [part for pair in space.items() for part in pair]
    trace, served = (
        json.loads(invoke([command, "dgx_h100", MODEL, *lengths, *degrees, "--json", *more]).stdout)
        for command, more in (("serve-trace", ["--requests", "12"]), ("serve", ["--set", f"accelerators={of}"]))
    )
    best = served["best"]
    assert trace["ttft_s"]["mean"] == pytest.approx(best["ttft"], rel=2e-3)
    assert trace["tpot_s"]["mean"] == pytest.approx(best["tpot"], rel=2e-3)
    for name in ("joules_per_token", "joules_per_request"):
        assert trace[name] == pytest.approx(best[name], rel=5e-3)
    for part in ("carbon_per_token", "money_per_token"):
        for name, share in trace[part].items():
            if isinstance(share, dict) and "mid" in share:
                assert share["mid"] == pytest.approx(served[part][name]["mid"], rel=1e-2)


def test_the_same_seed_gives_the_same_trace() -> None:
    words = ("serve-trace", "dgx_h100", MODEL, "--rate", "5", "--requests", "200", "--isl", "500", "--osl", "50", "--least", "0.5")
    assert _run(*words) == _run(*words)
    assert _run(*words)["ttft_s"] != _run(*words, "--seed", "1")["ttft_s"]


def test_drafts_of_a_trace_are_tokens_of_a_step_and_work_of_it() -> None:
    """Kept always they make three tokens a step of about the same time, where weights are what a step reads; never, one."""
    words = ("serve-trace", "dgx_h100", MODEL, "--concurrency", "4", "--requests", "16", "--isl", "500", "--osl", "400")
    asked = ((), ("--drafts", "2", "--accept", "1"), ("--drafts", "2", "--accept", "1e-9"))
    plain, kept, lost = (_run(*words, *said)["tpot_s"]["mean"] for said in asked)
    assert kept < 0.4 * plain
    assert lost == pytest.approx(plain, rel=0.02)


def test_formats_are_a_list_of_which_wide_ones_leave_the_products_as_they_are() -> None:
    found = _run("serve", "dgx_h100", MODEL, "--set", "accelerators=1", "--precision", "bf16,fp8", "--concurrency", "4")
    assert found["best"]["weights"] == "fp8"


def test_percentiles_of_the_best_lie_about_its_means() -> None:
    words = ("serve", "dgx_h100", MODEL, "--set", "accelerators=1", "--concurrency", "8", "--isl", "500", "--osl", "100", "--least", "0.8")
    found = _run(*words, "--percentiles")
    for name in ("ttft", "tpot"):
        shares = found["percentiles"][name]
        assert shares["p50"] <= shares["p90"] <= shares["p99"]
        assert 0.8 * shares["p50"] < found["best"][name] < 1.2 * shares["p99"]


def test_a_trace_file_gives_percentiles_and_every_requests_figures(tmp_path: Path) -> None:
    path, out = tmp_path / "trace.csv", tmp_path / "out.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 10},500,20\n" for i in range(50)))
    found = _run("serve-trace", "dgx_h100", MODEL, str(path), "-o", str(out))
    assert found["requests"] == 50
    assert found["ttft_s"]["p50"] <= found["ttft_s"]["p99"]  # type: ignore[index]
    assert len(out.read_text().splitlines()) == 51


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ("", "t.csv:1:1: no requests"),
        ("1e300,10,10", "t.csv:2:1: arrival_s: '1e300': want a number from 0 up, below 8.59e+09"),
        ("\n5,10,10\n1,10,10", "t.csv:4:1: arrival_s: this request arrives before"),
        ("1,10.5,10", "t.csv:2:1: prompt: '10.5': tokens are whole"),
        ("1,10,nan", "t.csv:2:1: output: 'nan': want a number from 1 up"),
        ("1,1,024,10", "t.csv:2:1: more values than columns: is there a comma inside a number?"),
        ('1,10,10\n2,"' + 140_000 * "1", "t.csv:3:1: no CSV (field larger than field limit (131072)): is a quote left open?"),
    ],
)
def test_a_trace_that_no_clock_follows_is_refused_at_its_line(tmp_path: Path, rows: str, where: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"arrival_s,prompt,output\n{rows}\n")
    with pytest.raises(InputError) as found:
        read_trace(path)
    assert where in str(found.value)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt,prompt,output\n1,10,20,5\n")
    with pytest.raises(InputError, match="column 'prompt' is there twice: keep one"):
        read_trace(path)
    path.write_text("arrival_s,prompt,input_tokens,output\n1,10,20,5\n")
    with pytest.raises(InputError, match="columns 'prompt' and 'input_tokens' say the same: keep one"):
        read_trace(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rate", "1e-300"), "--rate: 1,000 requests would take over 4.3e+09 s, where a clock no longer tells microseconds"),
        (("--rate", "1", "--expert", "3"), "--expert: 3 ranks of experts do not divide 1, tensor x attention data"),
        (("t.csv", "--isl", "5", "--seed", "0"), "--isl: t.csv has requests of its own: leave --isl and --seed out"),
        (("--rate", "1", "--isl", "1.5"), "--isl: 1.5 tokens: requests that are drawn have whole ones, such as 2"),
        (("--concurrency", "2", "--osl", "99.9", "--least", "0.5"), "--osl: 99.9 tokens: requests that are drawn have whole ones"),
    ],
)
def test_what_a_trace_cannot_count_is_refused(words: tuple[str, ...], said: str) -> None:
    found = invoke(["serve-trace", "dgx_h100", MODEL, *words])
    assert isinstance(found.exception, InputError)
    assert said in str(found.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--percentiles", "--isl", "1.5"), "--isl: 1.5 tokens: requests that are drawn have whole ones, such as 2"),
        (("--percentiles", "--concurrency", "12"), "--concurrency: 1.5 clients of each of 8 replicas, whose requests are run one by one: "),
        (("--concurrency", "16,8,16"), "--concurrency: '16' is there twice: keep one"),
        (("--chunk", "512,0512"), "--chunk: '512' is there twice: keep one"),
        (("--precision", "fp8, fp8"), "--precision: 'fp8' is there twice: keep one"),
        (("--set", "workload.t=5"), "--set workload.t=5: is of one step, and a server's steps have what is asked by --isl and --osl"),
        (("--set", "workload.sizes.b*=2"), "is of one step, and a server's steps have what is asked by --concurrency or --rate"),
        (("--set", "workload.phases=[forward, backward]"), "phases: a decoder's step goes forward alone"),  # its joules were those of both
        (("--set", "workload.serving.sequences=s"), "serving.sequences: sequences, new and cached are three sizes, and 's' is two of them"),
        (("--set", "workload.serving.skew=2"), "serving.skew: no operation sends tokens to experts"),
        (("--osl", "1e308"), "--osl: a request of 1e+308 tokens, where llama3_8b_decoder has 131,072 positions"),
    ],
)
def test_what_would_be_rounded_or_change_nothing_or_is_said_twice_is_refused(words: tuple[str, ...], said: str) -> None:
    found = invoke(["serve", "dgx_h100", MODEL, "--tensor", "1", "--pipeline", "1", *words])
    assert isinstance(found.exception, InputError)
    assert said in str(found.exception)


def test_answers_of_one_token_have_no_time_between_tokens(tmp_path: Path) -> None:
    """Neither as a figure nor in a table; their front is of throughput against the time to the one token."""
    words = ("serve", "dgx_h100", MODEL, "--set", "accelerators=2", "--osl", "1", "--concurrency", "8,64")
    found = _run(*words, "--percentiles")
    assert [one[name] for one in found["front"] for name in ("tpot", "interactivity")] == [None] * 2 * len(found["front"])
    assert list(found["percentiles"]) == ["ttft"]
    rates, first = ([one[name] for one in found["front"]] for name in ("tokens_per_s_per_accelerator", "ttft"))
    assert rates == sorted(rates, reverse=True)
    assert first == sorted(first, reverse=True)
    told = invoke([*words]).output
    assert "TPOT" not in told
    assert "TTFT" in told
    trace = ("serve-trace", "dgx_h100", MODEL, "--osl", "1", "--concurrency", "2", "--requests", "4", "-o", str(tmp_path / "out.csv"))
    assert _run(*trace)["tpot_s"] is None
    assert [line.split(",")[5] for line in (tmp_path / "out.csv").read_text().splitlines()] == ["tpot_s", "", "", "", ""]
    assert "token after it" not in invoke([*trace]).output


# -- pools of prompts and of decodes, drafts -----------------------------------------------------------------------------------------

POOLED = ServingSpace(tensor=(1, 2), pipeline=(1,), clients=(16.0,))


@pytest.fixture(scope="module")
def pooled() -> ServingAnswer:
    service = _service("accelerators=4")
    return search_service(service, POOLED, prompts_on=service)


def test_pools_are_every_split_of_the_accelerators(pooled: ServingAnswer) -> None:
    """P p + D d = 4 with p and d of 1 and 2, and replicas that fill the machine."""
    pools = [one for one in pooled.offers if isinstance(one, PoolsOffer)]
    found = {(one.prompts.count, one.prompts.deployment.tensor, one.decodes.count, one.decodes.deployment.tensor) for one in pools}
    sizes = [(p, first, d, then) for first in (1, 2) for then in (1, 2) for p in range(1, 5) for d in range(1, 5)]
    assert found == {one for one in sizes if one[0] * one[1] + one[2] * one[3] == 4}
    assert len(pools) == len(found)
    assert len(pooled.offers) == len(found) + 2
    assert all(one.accelerators == 4 for one in pooled.offers)


def test_one_client_of_pools_sees_the_steps_of_a_replica_and_a_later_first_token() -> None:
    alone = ServingSpace(tensor=(1,), pipeline=(1,), clients=(1.0,))
    two = _service("accelerators=2")
    apart = search_service(two, alone, prompts_on=two).best.figures
    replica = search_service(_service("accelerators=1"), alone).best.figures
    assert apart["tpot"] == pytest.approx(replica["tpot"], rel=1e-3)
    assert apart["ttft"] > replica["ttft"]


def test_prompts_on_a_machine_of_their_own() -> None:
    far = _service("accelerators=2", machine="dgx_h200")
    found = search_service(_service("accelerators=2"), POOLED, prompts_on=far)
    assert all(isinstance(one, PoolsOffer) and one.accelerators == 4 for one in found.offers)
    assert "grams_per_token" not in found.best.figures
    plain = launches_of("vllm", MODEL, found.best, 1280)
    assert [one.notes[0].split(":")[0] for one in plain] == ["pool of prefill", "pool of decode"]
    assert all("NixlConnector" in " ".join(one.arguments) for one in plain)


def test_drafts_that_are_kept_make_tokens_faster_and_one_that_never_is_slower() -> None:
    """Several clients part by the drafts that are kept, and meet each other's prompts, which pass what drafts, too: one does not."""
    plain = _service("accelerators=4")

    def tpot(clients: float, count: int, share: float, by: str) -> float:
        space = ServingSpace(tensor=(4,), pipeline=(1,), clients=(clients,))
        return search_service(replace(plain, drafted=count, accepted=share, draft_model=by), space).best.figures["tpot"]

    none, kept, never = tpot(4.0, 0, 0.0, ""), tpot(4.0, 2, 0.9, ""), tpot(4.0, 2, 1e-6, "")
    assert kept < 0.5 * none
    assert never > none
    none, kept, large = tpot(1.0, 0, 0.0, ""), tpot(1.0, 2, 0.9, ""), tpot(1.0, 2, 0.9, MODEL)
    assert large == pytest.approx(kept + 2 * none / (1 + 0.9 + 0.81), rel=0.05)  # two steps of a model as large


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["--drafts", "2"], "drafts want both"),
        (["--draft-model", MODEL], "a draft model wants --drafts"),
        (["--prompts-on", "dgx_h100:x"], "want a whole number of accelerators"),
        (["--prompts-on", "dgx_h100:8", "--pools"], "leave --pools out"),
        (["--precision", "fp8,,bf16"], "'fp8,,bf16': a word is missing"),
        (["--tensor", ","], "a word is missing"),
        (["--prompts-on", "dgx_h200:1", "--minimize", "carbon", "--concurrency", "4"], "of one machine"),
    ],
)
def test_drafts_and_machines_that_say_too_little_are_refused(said: list[str], why: str) -> None:
    found = invoke(["serve", "dgx_h100", MODEL, *said])
    assert isinstance(found.exception, InputError)
    assert why in str(found.exception)


def test_pools_on_the_command_line() -> None:
    said = ["serve", "dgx_h100", MODEL, "--prompts-on", "dgx_h100:1", "--concurrency", "16", "--set", "accelerators=1"]
    found = invoke([*said, "--json"])
    assert found.exit_code == 0
    best = json.loads(found.stdout)["best"]
    assert best["prompts"]["workers"] == best["decodes"]["workers"] == 1
    shown = invoke(said)
    assert "1 x 1 > 1 x 1" in shown.stdout


# -- a wafer ----------------------------------------------------------------------------------------------------------------------------


def test_a_model_of_70_billion_needs_four_wafers() -> None:
    """Found by trying: 141 GB of weights, 44 GB a wafer."""
    space = ServingSpace(tensor=(1,), pipeline=(1, 2, 3, 4), clients=(1.0,))
    fits = {}
    for count in (1, 2, 3, 4):
        service = service_of("cs3", "llama3_70b_decoder", (f"accelerators={count}",), read_profile("wafer"), (1024.0, 1024.0, 0.0))
        try:
            fits[count] = search_service(service, space).best
        except InfeasibleError as problem:
            assert problem.resource == "memory"
    assert list(fits) == [4]


def test_a_wafer_is_no_faster_than_a_signal_crosses_it() -> None:
    space = ServingSpace(tensor=(1,), pipeline=(1,), clients=(1.0,))
    service = service_of("cs3", MODEL, ("accelerators=1",), read_profile("wafer"), (1024.0, 1024.0, 0.0))
    found = search_service(service, space).best.figures["tpot"]
    layers, crossing = 32, 1900 * 0.909e-9
    assert 4 * layers * crossing < found < 16 * layers * crossing


def test_weights_that_leave_no_room_say_how_much_they_take_and_on_how_many_they_fit() -> None:
    """405 billion weights of 16 bits over eight: 101.5 GB each, over sixteen 50.7; of 8 bits over six, which powers of two do not fill."""
    for more, taken, change in (
        (("accelerators=8", "--tensor", "8"), "101.5 GB", "--set accelerators=16"),
        (("accelerators=6", "--precision", "fp8"), "GB", "--tensor 2 --pipeline 3"),
    ):
        result = invoke(["serve", "dgx_h100", "llama3_405b_decoder", "--set", *more])
        assert isinstance(result.exception, InfeasibleError)
        assert f"{taken} of an accelerator, whose engine has 74.95 GB" in str(result.exception)
        assert result.exception.change == change


def test_the_front_on_80_columns_cuts_nothing_and_counts_all_clients() -> None:
    """(A head was 'clie…', a first token of 0.104 s '0.1…', and replicas told the clients of each beside pools, which told all.)"""
    words = ["serve", "dgx_h100", "llama3_8b_decoder", "--concurrency", "64", "--pipeline", "1", "--tensor", "2", "--precision", "fp8"]
    alone, pools = (invoke([*words, *more]).stdout for more in (["--chunk", "512,2048"], ["--prompts-on", "dgx_h200:4"]))
    for said, chunk in ((alone, r"\d+ +"), (pools, "")):
        assert "…" not in said
        rows = [line for line in said.splitlines() if re.match(r"\*? +\d x tp 2", line) and " ms " in line]
        assert len(rows) == 1 + bool(chunk)
        figures = r"[\d.]+ +[\d.]+ +[\d.]+ ms +[\d.]+ m?s +[\d.]+ mJ"
        assert all(re.search(rf" 64 +{chunk}{figures}( +[\d.]+ µg)?$", line.rstrip()) for line in rows), said
    assert ("g a" in alone, "g a" in pools) == (True, False)  # of a second machine no grams are told: no empty column either
