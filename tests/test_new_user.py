"""What somebody who has not read the code is told: words, units, kinds and places of what cannot be meant, each as it was met."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import rackmodel as rm
from rackmodel.cli.app import app
from rackmodel.errors import InputError
from rackmodel.inputs import read_workload
from rackmodel.inputs.key_reference import OPERATIONS
from rackmodel.inputs.library import resolve
from rackmodel.mapper.infeasible import limit_text
from rackmodel.model.einsum import parse_statement
from rackmodel.model.opkinds import KINDS
from rackmodel.report.money import _cells
from rackmodel.report.points import beside_inputs, points_table
from rackmodel.report.printing import print_series
from rackmodel.report.tables import comparison_table, render
from rackmodel.serving.ask import service_of
from rackmodel.studies.before import check_chart, check_chosen
from rackmodel.studies.plan import plan_points
from rackmodel.studies.study import ChartSpec, StudySpec
from rackmodel.units import bytes_text, parse_quantity
from rackmodel.validation.run import validate
from tests.report_samples import result

ROOT = Path(__file__).parents[1]
WORKLOAD = "workload: w\nphases: {phases}\nsizes: {{m: 4, k: 2}}\nprecision: {{weight: {weight}}}\neinsums: {{a: 'Y[m] = X[m,k] * W[k]'}}\n"
UNFIT = """study: s
architecture: rack_paper
workload: ffn
mapper: data
runs: [{set: {accelerators: 4, gpu.memory.capacity: [80 GB, 1 MB]}}]
charts: {c: {x: gpu.memory.capacity, y: latency_s}}
findings: {f: {claim: it is quick, figures: {a: {y: latency, where: {gpu.memory.capacity: 1 MB}}}, holds: a < 3}}
"""
STUDY = {"study": "s", "architecture": "rack_paper", "workload": "ffn", "mapper": "data"}


def told(*words: str) -> str:
    """What a command says of what cannot be meant."""
    found = CliRunner().invoke(app, list(words)).exception
    assert isinstance(found, InputError)
    return str(found)


def test_the_readme_shows_what_the_demo_prints(run) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.partition("$ make demo\n")[2].partition("```")[0].splitlines()
    _, out, _ = run("compare", "rack_paper", "ffn", "data", "tensor", "pipeline_tensor", "--set", "accelerators=32")
    assert len(shown) > 15
    assert [line.rstrip() for line in out.splitlines()][: len(shown)] == shown


def test_the_reference_says_what_every_operation_computes() -> None:
    table = (ROOT / "docs/keys.md").read_text(encoding="utf-8").partition(OPERATIONS)[2].partition("##")[0]
    for name, kind in KINDS.items():
        assert kind.meaning
        assert f"| `{name}` | {kind.meaning} |" in table


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Y[m] = add(X[m])", "add takes 2 or more operands, not 1"),
        ("Y[m] = relu(X[m], Z[m])", "relu takes 1 operand, not 2"),
        ("Y[m] = X[m] *", "a tensor access is missing behind 'X[m] *'"),
        ("Y[m] = X[m", "'X[m' is not a tensor access"),
    ],
)
def test_an_einsum_says_what_it_lacks(text: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        parse_statement(text)
    assert found.value.message.startswith(said)


@pytest.mark.parametrize(
    ("phases", "weight", "said"),
    [
        ("[]", "16 bit", "phases: none: want [forward], or [forward, backward, optimizer]"),
        ("[forward]", "16", "precision.weight: '16' has no unit: want '16 bit'"),
    ],
)
def test_a_workload_says_what_is_wanted(phases: str, weight: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        read_workload(WORKLOAD.format(phases=phases, weight=weight))
    assert str(found.value).endswith(said)


def test_a_space_that_does_not_break_is_one() -> None:
    assert parse_quantity("80\u00a0GB", "byte") == 80e9
    assert parse_quantity("3.35\u202fTB/s", "byte/second") == 3.35e12


def test_limits_are_told_in_the_units_that_they_are_said_in() -> None:
    assert bytes_text(1) == "1 B"
    assert [limit_text("latency", 1e-9), limit_text("energy", 43.51e-6), limit_text("carbon", 2817.0)] == ["1 ns", "43.51 uJ", "2.817 kg"]
    assert [limit_text("power", 5e6, above=True), limit_text("edp", 1e-6)] == ["5 MW", "1e-06 J*s"]
    for name, unit in (("latency", "second"), ("energy", "joule"), ("carbon", "gram"), ("power", "watt")):
        for value in (3.3333e-10, 0.99996, 12_345.678, 9.9e11):
            assert value <= parse_quantity(limit_text(name, value, above=True), unit) < value * 1.002


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("architecture", "ffn", "no architecture called 'ffn': it is a workload"),
        ("workload", "auto", "no workload called 'auto': it is a mapper"),
        ("mapping", "auto", "no mapping called 'auto': it is a mapper: give the path of its file"),
    ],
)
def test_a_name_of_another_kind_is_told_to_be_one(kind: str, name: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        resolve(kind, name)
    assert found.value.message == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "dgx_h100", "llama3_8b_decoder", "--precision", "fp7"), "--precision: 'fp7' is not a precision, did you mean 'fp8'?"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--limit", "memory=1 GB"), "--limit: no limit of serving called 'memory'"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--engine", "vlm"), "--engine: no engine called 'vlm'"),
        (("serve", "dgx_h100", "llama3_8b_decoder", "--expert", "4"), "--expert: llama3_8b_decoder has no experts to deal out"),
        (("serve-trace", "dgx_h100", "llama3_8b_decoder", "--rate", "1", "--kv", "fp7"), "--kv: 'fp7' is not a precision"),
        (("show", "rack_paper", "--workload", "ffn"), "--workload: shows a mapper's space, and rack_paper is an architecture"),
        (("show", "auto", "--architecture", "edge3"), "--architecture: shows a mapper's space for a workload: say --workload too"),
        (("why", "rack_paper", "ffn", "--not", "micro_batch=1", "--sensitivity"), "why: keep --not or --sensitivity"),
        (("schema", "machine"), "no schema of 'machine'"),
        (("search", "rack_paper", "ffn", "--minimize", "latency,"), "--minimize: 'latency,': a word is missing beside a comma"),
        (("sweep", "rack_paper", "ffn", "data", "--columns", "joules:component=netwrk"), "columns.0: no component called 'netwrk'"),
        (("search", "rack_paper", "ffn", "--time-limit", "-5"), "--time-limit: '-5 s' must be positive"),
    ],
)
def test_an_option_is_refused_by_its_own_name(words: tuple[str, ...], said: str) -> None:
    assert told(*words).startswith(said)


def test_a_model_that_no_server_takes_is_told_the_decoder_that_it_meant() -> None:
    with pytest.raises(InputError) as found:
        service_of("dgx_h100", "llama3_8b", (), "vllm", (1.0, 1.0, 0.0))
    assert "did you mean 'llama3_8b_decoder'?" in str(found.value)


def test_an_own_machine_is_nothing_to_import(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("architecture: own\ntree: {name: xpu}\n", encoding="utf-8")
    assert told("import", str(tmp_path / "own.yaml")).endswith("is a file of rackmodel already: rackmodel check reads it")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"runs": []}, "an empty list, and no findings"),
        ({"runs": [{"set": {"b": {"linspace": [1, 60, 10**8]}}}]}, "more than 10,000,000 points"),
        ({"runs": [{"set": {"b": list(range(4000)), "m": list(range(4000))}}]}, "more than 10,000,000 points"),
        ({"runs": [{"set": {"b": {"uniform": [1, 9]}}, "samples": 10**8}]}, "more than 10,000,000 points"),
    ],
)
def test_a_study_of_no_point_or_of_too_many_is_refused_at_once(said: dict[str, object], why: str) -> None:
    with pytest.raises((InputError, ValueError), match=why):
        plan_points(StudySpec.model_validate(STUDY | said))


@pytest.mark.parametrize(
    ("chart", "why"),
    [
        ({"where": {"accelerators": 33}}, "where: no point has accelerators 33"),
        ({"where": {"mapper": ["data", "dta"]}}, "where: no point has mapper dta"),
        ({"run": "wide"}, "no run called 'wide'"),
    ],
)
def test_a_chart_of_what_no_point_has_is_refused(chart: dict[str, object], why: str) -> None:
    charts = {"c": {"x": "accelerators", "y": "joules", **chart}}
    study = StudySpec.model_validate(STUDY | {"runs": [{"set": {"accelerators": [4, 8]}}], "charts": charts})
    with pytest.raises(InputError) as found:
        check_chosen(study.charts["c"], plan_points(study), ())
    assert found.value.message == why
    if "accelerators" in str(chart):  # a command that sets other values leaves charts of the file's without points
        check_chosen(study.charts["c"], plan_points(study, {"accelerators": [4]}), {"accelerators"})


def test_a_narrow_comparison_leaves_shares_out_and_breaks_no_word() -> None:
    many = [result("data"), result("pipeline_tensor")]
    narrow, usual = (render(comparison_table(many, width=width), width) for width in (60, 80))
    assert "comp mem net stat" in usual
    assert "comp" not in narrow
    assert {word for word in usual.split() if word.isalpha()} - {"comp", "mem", "net", "stat", "shares", "of", "the"} <= set(narrow.split())


def test_figures_that_do_not_fit_beside_the_inputs_have_a_table_of_their_own() -> None:
    asked = ["operational_g", "embodied_share_g", "total_carbon_g", "carbon_g_per_token", "joules:component=static"]
    rows = [
        {"mapper": mapper, "site.grid": "24 g/kWh", "accelerators": 8 * number, "status": "ok", **dict.fromkeys(asked, 1.46385e-06)}
        for number, mapper in enumerate(("megatron", "fsdp"))
    ]
    groups = beside_inputs(rows, asked, width=80)
    assert len(groups) > 1
    assert [name for group in groups for name in group] == asked
    for group in groups:
        text = render(points_table(rows, group, width=80), 80)
        assert text.count("1.46385e-06") == 2 * len(group)
        assert all(len(line) <= 80 for line in text.splitlines())


def test_two_points_of_a_scatter_at_one_place_are_both_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"x": 4.0, "series": "data", "y": y, "unit": "g"} for y in (2.0, 7.0)]
    print_series("front", "latency_s", rows, "carbon_g")
    out = capsys.readouterr().out
    assert ("2 g" in out, "7 g" in out) == (True, True)
    print_series("empty", "latency_s", [], "carbon_g")
    assert "empty: no point has it" in capsys.readouterr().out


def test_a_finding_of_a_point_that_does_not_fit_is_not_decidable_and_all_else_is_shown(run, tmp_path: Path) -> None:
    (tmp_path / "st.yaml").write_text(UNFIT, encoding="utf-8")
    code, out, _ = run("sweep", str(tmp_path / "st.yaml"), "--workers", "1")
    assert code == 0
    told = " ".join(out.split())
    assert "f (ours): it is quick not decidable: infeasible: ffn on rack_paper by data, accelerators=4, gpu.memory.capacity=1 MB" in told
    assert "1 finding: 0 agrees, 0 disagrees, 1 not decidable" in told
    assert "80 GB 2.8" in told


def test_the_row_that_the_page_of_validation_shows_is_priced(tmp_path: Path) -> None:
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    (tmp_path / "own.csv").write_text(page.partition("```csv\n")[2].partition("```")[0], encoding="utf-8")
    (row,) = validate([tmp_path / "own.csv"]).rows
    assert (row.id, row.refused, row.measured) == ("mine", "", 6.0)


def test_what_is_no_input_is_told_so() -> None:
    with pytest.raises(InputError, match="want a name, a path, text or a mapping, got NoneType"):
        rm.read(None)  # type: ignore[arg-type]


def test_a_chart_of_what_is_no_component_is_refused() -> None:
    chart = ChartSpec(x="accelerators", y="joules", where={"component": ["network", "netwrk"]})
    with pytest.raises(InputError, match="no component called 'netwrk'"):
        check_chart(chart, ["accelerators"])


def test_what_each_command_does_is_told_whole() -> None:
    text = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, ["--help"]).stdout
    shown = text.partition("Commands:")[2].strip().splitlines()
    assert len(shown) == 20
    assert all(line.endswith(".") and not line.endswith("...") for line in shown)


def test_layers_that_do_not_divide_are_told_of_uneven_cuts() -> None:
    sizes = {"accelerators": 16, "b": 16, "layers": 31, "axes.pp.degree": 2}
    with pytest.raises(rm.InfeasibleError) as caught:
        rm.search("dgx_h100", "llama3_8b", "megatron", set=sizes)
    assert caught.value.change == "cut=free"
    assert rm.search("dgx_h100", "llama3_8b", "megatron_cut", set=sizes).result.latency_s > 0


def test_a_range_that_three_digits_do_not_tell_has_five_or_is_not_shown() -> None:
    def shown(low: float, high: float) -> tuple[str, str]:
        return _cells({"unit": "$", "low": low, "mid": 186e6, "high": high})

    assert shown(186.03e6, 186.04e6) == ("186 M$", "(186.03 M$ to 186.04 M$)")
    assert shown(186e6 - 1, 186e6 + 1) == ("186 M$", "")
