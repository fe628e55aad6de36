"""docs/json.md says what --json prints: its tables, held to the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rackmodel.cost.ledger import COLUMNS
from rackmodel.errors import InputError
from tests.commands import invoke

PAGE = (Path(__file__).parents[1] / "docs/json.md").read_text(encoding="utf-8")
ASK = ("rack_paper", "ffn", "auto", "--set", "accelerators=8")


def said(row: str) -> set[str]:
    """The keys that a row of a table names."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row}"))
    return set(re.findall(r"`([a-z_]+)`", line.partition(" | ")[2]))


def test_every_command_prints_the_keys_that_the_page_names(run, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    search = set(json.loads(run("search", *ASK, "--pareto", "latency", "--steps", "5", "--json", "-o", out)[1]))
    assert search == said("`search`") - {"flags"}
    assert set(json.loads(run("evaluate", "rack_paper", "ffn", f"{out}/mapping.yaml", "--json")[1])) <= said("`evaluate`")
    assert set(json.loads(run("compare", "rack_paper", "ffn", "data", "--json")[1])) <= said("`compare`")
    asked = ((out, "--not", "axes.tp.degree=8"), ("rack_paper", "ffn", "tensor", "--set", "accelerators=8", "--sensitivity"))
    why = [set(json.loads(run("why", *words, "--json")[1])) for words in asked]
    assert why[0] | why[1] == said("`why`")
    assert set(json.loads(run("diff", out, out, "--json")[1])) == said("`diff`")
    assert set(json.loads(run("sweep", "rack_paper", "ffn", "data", "--json")[1])) == said("`sweep`")
    assert set(json.loads(run("carbon", "dgx_h100", "--json")[1])) == said("`carbon`")
    assert set(json.loads(run("check", "rack_paper", "--json")[1])) == said("`check`")
    assert set(json.loads(run("show", "rack_paper", "--json")[1])) == said("`show`")
    assert set(json.loads(run("time", "dgx_h100", "gemm", "4096x4096x4096", "--json")[1])) == said("`time`")
    assert set(json.loads(run("cost", "hnlpu_rack", "--json")[1])["machines"][0]) < said("`cost`")
    assert set(json.loads(run("show", "attention", "--json")[1])) == said("`show WORKLOAD`")
    assert set(json.loads(run("show", "data", "--json")[1])) == said("`show MAPPER`")
    config = next((Path(__file__).parents[1] / "workloads/configs").glob("*llama*.json"))
    imported = set(json.loads(run("import", str(config), "--json")[1]))
    assert imported < said("`import`")
    assert "parameters" in imported
    assert json.loads(run("schema", "mapper")[1])["$schema"].endswith("2020-12/schema")


def test_what_is_served_and_validated_has_the_keys_that_the_page_names(run, tmp_path: Path) -> None:
    served = json.loads(run("serve", "dgx_h100", "llama3_8b_decoder", "--set", "accelerators=8", "--json")[1])
    assert set(served) == said("`serve`")
    rows = [line for line in PAGE.partition("## A deployment")[2].partition("## ")[0].splitlines() if line.startswith("| `")]
    assert set(served["best"]) == {key for line in rows for key in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt,output\n0,100,20\n0.1,200,30\n", encoding="utf-8")
    asked = ("serve-trace", "dgx_h100", "llama3_8b_decoder", str(trace), "--set", "accelerators=1", "--json")
    assert set(json.loads(run(*asked)[1])) == said("`serve-trace`")
    validated = json.loads(run("validate", "--json")[1])
    assert set(validated) == said("`validate`")
    named = re.findall(r"`([a-z0-9_]+)`", PAGE.partition("## A row of `validate`")[2])
    of_row, of_set = named[: named.index("n")], named[named.index("n") :]
    assert set(validated["rows"][0]) == set(of_row)
    assert set(of_set) <= set(next(iter(validated["datasets"].values())))


def test_a_result_has_the_keys_that_the_page_names(run) -> None:
    result = json.loads(run("search", *ASK, "--json")[1])["result"]
    rows = [line for line in PAGE.partition("## A result")[2].partition("## ")[0].splitlines() if line.startswith("| `")]
    assert set(result) == {key for line in rows for key in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    assert said("`ledger`") == set(COLUMNS) == set(result["ledger"][0])
    assert said("`certificate`") <= set(result["certificate"])


def test_a_sweep_prints_one_document() -> None:
    answer = invoke(["sweep", "rack_paper", "ffn", "data", "--set", "accelerators=4", "--export", "csv", "--json"])
    assert isinstance(answer.exception, InputError)
    assert "--export: prints to standard output, as --json does" in str(answer.exception)
