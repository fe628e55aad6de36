"""What a certificate, a limit, a front and a time limit say is true: against the exact figures of every member of small spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.read import read_inputs
from rackmodel.model.certificate import status_of
from rackmodel.watch import Watch
from tests import certificate_cases as cases
from tests import samples

SMALL = ["accelerators=8", "b=8", "layers=4", "d=512", "h=8", "f=2048", "v=4096", "s=256", "layouts={}", "recompute=none"]


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (0.0, "proven"),
        (1e-12, "proven"),
        (0.0311, "within 3.2 %"),  # rounded up: what is said holds
        (0.03, "within 3.0 %"),
        (0.000123, "within 0.013 %"),
        (0.59, "within 59 %"),
        (0.9999, "best found"),
        (1.0, "best found"),
        (float("nan"), "best found"),
    ],
)
def test_a_gap_has_one_status(gap: float, words: str) -> None:
    assert status_of(gap) == words


def test_random_limits_find_the_optimum_of_what_keeps_them() -> None:
    assert cases.check_limits([1], each=4) == 4


def test_random_fronts_lose_no_point() -> None:
    assert cases.check_fronts([1], each=2) == 2


def test_random_free_layouts_do_not_beat_their_bound() -> None:
    count = samples.cases(2, 4)
    assert cases.check_free(range(count)) >= count - 1


def test_a_limit_is_a_number_or_text_with_a_unit() -> None:
    plain = api.search("rack_paper", "ffn", "data_tensor", sets=["accelerators=8"], limits={"latency": 10.0}).result
    said = api.search("rack_paper", "ffn", "data_tensor", sets=["accelerators=8"], limits={"latency": "10000 ms"}).result
    assert plain.latency_s == said.latency_s


@pytest.mark.parametrize("name", ["power", "memory", "latency", "energy", "carbon", "total_carbon", "edp", "tcdp"])
def test_the_smallest_change_of_a_limit_fits(name: str) -> None:
    def found(limits: dict[str, float | str]) -> api.Result:
        return api.search("dgx_h100", "ffn", "data_tensor", sets=["accelerators=8"], limits=limits).result

    with pytest.raises(InfeasibleError) as caught:
        found({name: 1e-6})
    option, _, value = caught.value.change.removeprefix("--limit ").partition("=")
    assert option == name
    assert caught.value.shortfall > 0
    assert found({name: value.strip("'")}).latency_s > 0


def test_two_limits_that_each_break_alone_are_loosened_together() -> None:
    with pytest.raises(InfeasibleError) as caught:
        api.search("rack_paper", "ffn", "data_tensor", sets=["accelerators=8"], limits={"latency": 1e-12, "energy": 1e-12})
    assert caught.value.change.count("--limit") == 2


def test_carbon_is_limited_where_there_is_a_site() -> None:
    given = read_inputs("rack_paper", "ffn", mapper="data", sets=["accelerators=8"])
    assert given.mapper is not None
    nowhere = given.architecture.model_copy(update={"site": None})
    with pytest.raises(InputError, match="needs a site"):
        api.search_mapper(nowhere, given.workload, given.mapper, limits={"carbon": "1 g"})


def test_a_search_out_of_time_says_what_it_knows() -> None:
    stopped = api.search("dgx_h100", "gpt", "megatron", sets=SMALL, watch=Watch(1e-9)).result.certificate
    whole = api.search("dgx_h100", "gpt", "megatron", sets=SMALL).result.certificate
    assert whole.proven
    assert not stopped.proven
    assert stopped.bound <= whole.objective <= stopped.objective
    assert "stopped by the time limit" in stopped.note


@samples.audited
def test_free_layouts_of_a_model_are_not_called_proven() -> None:
    sets = ["accelerators=8", "recompute=none", "axes.dp.degree=2", "axes.pp.degree=1", "overlap=profile"]
    certificate = api.search("dgx_h100", "attention", "megatron_free", sets=sets, profile="serial").result.certificate
    assert not certificate.proven
    assert 0 < certificate.bound < certificate.objective


def test_a_mapping_that_was_given_was_not_searched_for() -> None:
    import rackmodel as rm

    best = rm.search("rack_paper", "ffn", "data", set={"accelerators": 4}).result
    priced = rm.evaluate("rack_paper", "ffn", best.mapping.model_dump(by_alias=True, exclude={"source", "note"}))
    assert priced.certificate.to_dict()["status"] == "given, not searched"
    assert best.certificate.to_dict()["status"] == "proven"


def test_a_front_of_money_is_of_the_jobs_money() -> None:
    """What a job of so many joules and seconds costs, as `cost` and studies say it; no point that was found otherwise beats the front."""
    from rackmodel.carbon.costing import job_money
    from rackmodel.carbon.job import Usage

    def searched(**asked: object) -> api.Answer:
        return api.search("dgx_h100", "gpt", "megatron", sets=SMALL, **asked)  # type: ignore[arg-type]

    answer = searched(front=["latency", "money", "memory"])
    machine = answer.result.machine
    assert machine is not None
    goal = api.objective_of("money", machine)

    def money(result: api.Result) -> float:
        said = job_money(machine, Usage(), result.energy_j, result.latency_s)
        assert said is not None
        assert goal.value(result.latency_s, result.energy_j, 0.0) == pytest.approx(said.total_usd.mid, rel=1e-12)
        return said.total_usd.mid

    assert answer.front_status == "proven"
    front = [(r.latency_s, money(r), r.memory_bytes_per_accelerator) for r in answer.front]
    for name in ("latency", "energy", "memory"):
        other = searched(minimize=name).result
        own = (other.latency_s, money(other), other.memory_bytes_per_accelerator)
        assert any(all(a <= b * (1 + 1e-9) for a, b in zip(point, own, strict=True)) for point in front)
    assert all(not all(a < b for a, b in zip(one, two, strict=True)) for one in front for two in front)


def test_free_layouts_of_a_model_say_how_far_they_are_and_end_with_the_time() -> None:
    """Layouts of a layer alone and their bounds were silent, and outlasted any limit."""
    told: list[str] = []
    sets = ["accelerators=8", "axes.dp.degree=2", "axes.pp.degree=1"]
    whole = api.search("dgx_h100", "attention", "megatron_free", sets=sets, watch=Watch(None, lambda what, _: told.append(what)))
    assert any(what.startswith("layouts of a layer alone, 1 of ") for what in told)
    assert any(what.startswith("bounds of free layouts") for what in told)
    short = api.search("dgx_h100", "attention", "megatron_free", sets=sets, watch=Watch(1e-9)).result
    assert "stopped by the time limit" in short.certificate.note
    assert short.certificate.bound <= whole.result.certificate.bound
    assert short.latency_s >= whole.result.latency_s * (1 - 1e-12)


def test_a_runner_up_says_its_own_figure_and_how_far_it_is_above_the_least() -> None:
    answer = api.search("rack_paper", "ffn", "auto", sets=["accelerators=8"], minimize="edp", top=3)
    best, second, third = (one.certificate for one in answer.top)
    for one in answer.top:
        assert one.certificate.objective == pytest.approx(one.latency_s * one.energy_j, rel=1e-12)
    assert best.proven
    assert second.proven  # the same figures with other strides
    assert third.gap == pytest.approx(1 - best.objective / third.objective)
    assert third.status == "within 0.024 %"


def test_a_schedule_that_no_number_of_micro_batches_allows_is_an_answer(tmp_path: Path) -> None:
    mapper = tmp_path / "m.yaml"
    mapper.write_text(
        "mapper: m\naxes:\n  pp: {degree: 4, stages: layers}\n  dp: {degree: 2}\n  tp: {degree: 4, place: inner}\n"
        "split: {dp: [b], tp: [f, h, v]}\nschedule: [interleaved]\ninterleave: [2]\nmicro_batch: 4\n",
        encoding="utf-8",
    )
    with pytest.raises(InfeasibleError, match=r"micro-batches are no multiple of the stages \(1 point\)"):
        api.search("dgx_a100", "gpt_22b", str(mapper), sets=["b=16", "layers=8", "accelerators=32"])
    api.search("dgx_a100", "gpt_22b", str(mapper), sets=["b=32", "layers=8", "accelerators=32"])  # four micro-batches of four stages
