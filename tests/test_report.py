"""Tables and summaries: units a person reads, rows that add up to the ledger, 80 columns, no nan."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rackmodel.cost.ledger import COLUMNS, KEYS, Charge, Ledger
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.result import Result
from rackmodel.report.points import points_table, unshown
from rackmodel.report.tables import (
    breakdown_table,
    comparison_table,
    console,
    format_percent,
    format_si,
    ledger_csv,
    limits_table,
    mapping_words,
    render,
    result_lines,
    shares,
    si_scale,
)
from tests.report_samples import LEDGER, result


def compared(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of both tables of a comparison on a wide terminal, the certificate last."""
    tables = comparison_table(results, width=200), limits_table(results)
    costs, limits = ([(str(column.header), [str(cell) for cell in column.cells]) for column in table.columns] for table in tables)
    columns = [*costs[:-1], *limits[1:], costs[-1]]
    return [head for head, _ in columns], [[cell.replace("\n", ", ") for cell in row] for row in zip(*(c for _, c in columns), strict=True)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.000522, "s", "0.522 ms"),
        (0.018203, "s", "18.2 ms"),
        (0.03908, "J", "39.08 mJ"),
        (0.84754, "J", "847.5 mJ"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (1.2, "gCO2e", "1.2 gCO2e"),
        (2.5e6, "gCO2e", "2.5 tCO2e"),
        (999.96, "J", "1 kJ"),
        (0.0, "J", "0 J"),
        (-0.02, "J", "-20 mJ"),
        (1.3e-12, "J", "1.3 pJ"),
        (4320.0, "s", "72 min"),
        (3 * 86400.0, "s", "3 d"),
        (math.nan, "J", "–"),
        (math.inf, "s", "–"),
        (None, "gCO2e", "–"),
    ],
)
def test_a_number_is_written_in_the_unit_a_person_expects(value: float | None, unit: str, text: str) -> None:
    assert format_si(value, unit) == text


def test_the_scale_of_a_value_times_its_mantissa_is_the_value() -> None:
    for exponent in range(-14, 18):
        for unit in ("s", "J", "B", "gCO2e"):
            divisor, name = si_scale(2.5 * 10.0**exponent, unit)
            assert divisor > 0
            assert name


def test_small_shares_do_not_vanish() -> None:
    given = (0, 0.0001, 0.031, 0.12, 1, None, math.nan)
    assert [format_percent(share) for share in given] == ["0 %", "<0.1 %", "3.1 %", "12 %", "100 %", "–", "–"]


def test_a_mapping_is_said_in_words() -> None:
    assert mapping_words(result("tensor", {"tp": 8}).mapping) == "tp 8"
    assert mapping_words(result("data_tensor", {"dp": 2, "tp": 4, "ep": 1}).mapping) == "dp 2 × tp 4"
    assert mapping_words(result("p", {"tp": 4}, stages=(("FC1",), ("FC2",))).mapping) == "pp 2 × tp 4"
    assert mapping_words(result("one", {"tp": 1}).mapping) == "one accelerator"
    fsdp = result("fsdp", {"dp": 8}).mapping
    homes = {"W1": HomeSpec(axes=["dp"], param="shard", grad="shard", state="shard"), "W2": HomeSpec(at="memoryx")}
    assert mapping_words(fsdp.model_copy(update={"homes": homes})) == "dp 8, ZeRO-3 over dp, weights at memoryx"


def test_a_certificate_is_proven_or_has_a_gap() -> None:
    certificate = result().certificate
    assert certificate.status == "proven"
    assert replace(certificate, gap=0.031).status == "within 3.1 %"
    assert replace(certificate, gap=math.nan).status == "best found"


def test_the_shares_of_a_ledger_are_its_groups_over_its_total() -> None:
    # joules: compute 6, memory 3, network 0.5 + 0.25, static 0.25: total 10
    assert shares(LEDGER) == {"compute": 0.6, "memory": 0.3, "network": 0.075, "static": 0.025}
    assert shares(Ledger(())) == dict.fromkeys(("compute", "memory", "network", "static"))


def test_a_comparison_has_one_row_a_mapper_with_every_figure() -> None:
    heads, rows = compared([result("data", {"dp": 8}), result("tensor", {"tp": 8}, gap=0.031)])
    assert dict(zip(heads, rows[1], strict=True)) == {
        "mapper": "tensor",
        "mapping": "tp 8",
        "latency": "5 ms",
        "energy": "10 J",
        "carbon": "1.2 mgCO2e",
        "memory/accel.": "1.234 GB",
        "compute": "60 %",
        "memory": "30 %",
        "network": "7.5 %",
        "static": "2.5 %",
        "limited by": "matrix products 80 %, network rack 20 %",  # 4 and 0.5 + 0.5 of 5 ms
        "certificate": "within 3.1 %",
    }
    assert len(rows) == 2


def test_machines_are_named_where_there_are_several() -> None:
    there = {"tokens": 4, "peak_flop_per_s": 1.9e15}  # 3.8e12 of 5 ms · 1.9e15 = 9.5e12 operations; 10 J for 4 tokens
    many = [result("tensor", machine="dgx_h100", accelerators=64, **there), result("stream", machine="cs2", accelerators=16)]
    heads, rows = compared(many)
    assert [row[:2] for row in rows] == [["dgx_h100 × 64", "tensor"], ["cs2 × 16", "stream"]]
    assert heads[-5:] == ["limited by", "MFU", "HFU", "energy/token", "certificate"]
    assert rows[0][-4:] == ["40 %", "40 %", "2.5 J", "proven"]
    assert rows[1][-4:] == ["–", "–", "–", "proven"]
    for width in (80, 160):
        text = render(comparison_table(many, width=width), width) + render(limits_table(many), width)
        assert max(len(line) for line in text.splitlines()) <= width
        assert text.count("dgx_h100 × 64") == text.count("cs2 × 16") == 2
        assert "network rack 20 %" in text
    assert "rack_paper ×" in render(comparison_table([result()], width=80, several=True))
    assert "rack_paper" not in render(comparison_table([result(), result("data")], width=80))


def test_without_a_site_there_is_no_carbon_column() -> None:
    heads, _ = compared([result(carbon=None)])
    assert "carbon" not in heads
    assert "CO2e" not in "\n".join(result_lines(result(carbon=None)))


def test_tables_fit_80_columns_and_cut_nothing() -> None:
    pipeline = result("pipeline_tensor", {"tp": 16}, stages=(("FC1",), ("FC2",)), gap=0.031)
    many = [result("data", {"dp": 8}), pipeline, result(energy_scale=1e-3)]
    for text in (render(comparison_table(many, width=80)), render(breakdown_table(LEDGER)), render(breakdown_table(LEDGER, KEYS))):
        assert max(len(line) for line in text.splitlines()) <= 80
        assert "…" not in text
        assert "\x1b" not in text
    narrow = render(comparison_table(many, width=80))
    assert "pipeline_tensor" in narrow
    assert "pp 2 × tp 16" in narrow
    assert "within 3.1 %" in narrow
    assert all(len(line) <= 80 for line in result_lines(many[1]))


@pytest.mark.parametrize("width", [80, 120])
def test_a_table_of_points_breaks_no_word(width: int) -> None:
    paths = {"accelerators": 256, "gpu.memory.capacity": "80 GB", "rack.network.bandwidth": "100 GB/s"}
    fits = {"profile": "serial", **paths, "status": "ok", "latency_s": 2.822, "energy_j": 33.5, "memory_bytes_per_accelerator": 1.183e9}
    fits |= {"mapping": "pp 4 × dp 16 × tp 4, micro-batch 1", "certificate": "proven"}
    small = dict.fromkeys(fits) | {name: value + "0" if isinstance(value, str) else 8 for name, value in paths.items()}
    text = render(points_table([fits, small | {"status": "infeasible: memory"}], width=width), width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.replace(",", " ").split())
    assert words >= {"accelerators", "capacity", "bandwidth", "certificate", "micro-batch", "infeasible:", "memory", "proven"}
    assert "profile" not in words, "a point without an answer has no profile: that is no difference"


def test_of_a_long_table_of_points_the_ends_are_shown() -> None:
    rows = [{"accelerators": number, "status": "ok", "latency_s": 1.0} for number in range(1000, 3016)]
    lines = [line.split()[0] for line in render(points_table(rows, ["latency_s"])).splitlines()[1:] if line]
    assert lines == [*map(str, range(1000, 1040)), "…", *map(str, range(2996, 3016))]
    assert unshown(2016) == 2016 - 60
    assert "…" not in render(points_table(rows[:60], ["latency_s"]))
    assert unshown(60) == 0


def test_nothing_prints_nan_or_inf() -> None:
    broken = replace(result(), latency_s=math.inf, energy_j=math.nan)
    text = "\n".join([render(comparison_table([broken], width=width), width) for width in (80, 120)] + result_lines(broken))
    assert "nan" not in text
    assert "inf" not in text


def test_a_breakdown_adds_up_to_the_total_and_starts_with_the_most_energy() -> None:
    lines = render(breakdown_table(LEDGER, ("component",))).splitlines()
    assert [line.split()[0] for line in lines[2:] if line] == ["compute", "memory", "network", "static", "total"]
    assert lines[-1].split() == ["total", "10", "J", "100", "%", "6", "ms", "5", "ms"]
    assert "6 J" in lines[2]
    assert "60 %" in lines[2]


def test_joules_of_the_amount_are_written_as_those_of_the_energy() -> None:
    row = Charge("forward", "", "", "node", "static", "static", 152600.0, "joule", 152600.0, 1.0, 0.0)
    text = render(breakdown_table(Ledger((row,))))
    assert text.count("152.6 kJ") >= 2
    assert "joule" not in text


def test_brackets_in_names_are_not_markup() -> None:
    row = Charge("forward", "A[b]", "X", "gpu", "memory", "read", 1.0, "byte", 1.0, 1.0, 1.0)
    assert "A[b]" in render(breakdown_table(Ledger((row,)), ("einsum",)))


def test_piped_output_is_plain_and_80_wide() -> None:
    out = console(io.StringIO())
    assert out.width == 80
    assert out.color_system is None


def test_ledger_csv_keeps_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(ledger_csv(LEDGER))))
    assert tuple(rows[0]) == COLUMNS
    assert [float(row["joules"]) for row in rows] == [row.joules for row in LEDGER]
    assert math.fsum(float(row["exposed_seconds"]) for row in rows) == LEDGER.total("exposed_seconds")


def test_a_summary_says_what_how_much_and_how_sure() -> None:
    lines = result_lines(result("tensor", {"tp": 8}, gap=0.031))
    text = "\n".join(lines)
    assert lines[0] == "ffn on rack_paper, 8 accelerators"
    assert lines[1] == "tensor: tp 8"
    assert "latency 5 ms, energy 10 J, carbon of use 1.2 mgCO2e" in text
    assert "energy: compute 60 %, memory 30 %, network 7.5 %, static 2.5 %" in text
    assert "within 3.1 %" in text
    assert "profile serial" in text
