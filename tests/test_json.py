"""docs/json.md says what --json prints: its tables, held to the commands."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from rackmodel.carbon.flips import Flip
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
    assert set(json.loads(run("check", "rack_paper", "ffn", "data", "--json")[1])) == said("`check`")
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
    named = {key for line in rows for key in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])}
    assert set(result) == named - {"pipelined"}  # of wired layers alone
    assert said("`ledger`") == set(COLUMNS) == set(result["ledger"][0])
    assert said("`certificate`") <= set(result["certificate"])


def test_a_sweep_prints_one_document() -> None:
    answer = invoke(["sweep", "rack_paper", "ffn", "data", "--set", "accelerators=4", "--export", "csv", "--json"])
    assert isinstance(answer.exception, InputError)
    assert "--export: prints to standard output, as --json does" in str(answer.exception)


# -- inside ------------------------------------------------------------------------------------------------------------------

ELSEWHERE = {"mapping", "row", "set"}
"""Under which keys are those of other pages: a mapping file's, columns and settings of a study."""
ALWAYS = {"error": {"message", "exit_code", "file", "line", "column", "path", "known", "nearest", "resource", "need", "have", "shortfall"}}
ALWAYS |= {"problems": ALWAYS["error"], "range": {"low", "mid", "high", "unit"}, "infeasible": ALWAYS["error"] | {"unit", "change"}}


Known = tuple[dict[str, set[str]], set[str]]


def inside() -> Known:
    """(Key → keys that the page says stand under it, keys under which names are not ours)."""
    under: dict[str, set[str]] = {}
    by_name: set[str] = set()
    for line in PAGE.partition("## Inside")[2].partition("## ")[0].splitlines():
        if line.startswith("| `"):
            first, said = line.strip("| ").split(" | ", 1)
            for key in re.findall(r"`([a-z_]+)`", re.sub(r" of [^,]*", "", first)):
                by_name |= {key} if said.startswith("by ") else set()
                under.setdefault(key, set()).update(re.findall(r"`([a-z_ ]+)`", said))
    deployment, result, charge = (PAGE.partition(f"## {name}")[2].partition("## ")[0] for name in ("A deployment", "A result", "A result"))
    for text, keys in ((deployment, ("best", "front")), (result, ("result", "results", "top", "front", "points"))):
        heads = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
        for key in keys:
            under.setdefault(key, set()).update(word for head in heads for word in re.findall(r"`([a-z_]+)`", head))
    charge_row = next(line for line in charge.splitlines() if line.startswith("| `ledger`"))
    under["ledger"] = set(re.findall(r"`([a-z_]+)`", charge_row)) - {"ledger"}
    under["rows"] |= {"component", "level", "action"}  # as --by has them
    under["total"] = {"seconds", "joules", "bytes"}
    under["results"] |= {"infeasible"}
    under["points"] -= {"ledger", "carbon"}
    return under, by_name


def strangers(data: object, key: str, known: Known, seen: dict[str, set[str]], entry: bool = False) -> set[str]:
    """Keys under `key` that the page does not say, as 'key.other'. entry: of a table by name."""
    if isinstance(data, list):
        return {one for part in data for one in strangers(part, key, known, seen, entry)}
    if not isinstance(data, dict) or key in ELSEWHERE:
        return set()
    under, by_name = known
    if key in by_name and not entry and not (key == "infeasible" and "message" in data):
        return {one for part in data.values() for one in strangers(part, key, known, seen, True)}
    said = under.get(key, set()) | ALWAYS.get(key, set())
    plain = set(data) <= ALWAYS["range"]
    seen.setdefault(key, set()).update(() if plain else data)
    lacking = set() if plain else {f"{key}.{one}" for one in data if one not in said}
    return lacking | {one for name, part in data.items() for one in strangers(part, name, known, seen)}


def test_every_key_inside_is_one_that_the_page_names(run, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    small, few = ("--set", "accelerators=8"), ("--set", "gpu.memory.capacity=1 kB")
    asked = (
        ("search", *ASK, "--pareto", "latency,energy", "--steps", "5", "--top", "2", "-o", out),
        ("search", "dgx_h100", "llama3_8b", "megatron_tp", *small, "--set", "b=8", "--tokens", "1e9", "--flags", "megatron"),
        ("search", "hnlpu", "gpt_oss_120b_hardwired", "hardwired"),
        ("search", "tiny", "gemm", "loopnest_perfect", "--set", "m=64", "--set", "n=64", "--set", "k=64"),
        ("evaluate", "rack_paper", "ffn", f"{out}/mapping.yaml"),
        ("compare", "rack_paper,rack_paper_h100", "ffn", "data", "tensor", *small, "--samples", "5"),
        ("compare", "rack_paper", "ffn", "data", "tensor", *small, *few),
        ("why", out, "--not", "axes.tp.degree=1", "--not", "gpu.memory.capacity=1 kB"),
        ("why", "rack_paper", "ffn", "tensor", *small, "--sensitivity"),
        ("diff", "rack_paper", "ffn", "data", "tensor", *small),
        ("sweep", "npu_carbon"),
        ("sweep", "act"),
        ("sweep", "rack_paper", "ffn", "data", *small, "--set", "gpu.memory.capacity=80 GB,1 kB"),
        ("carbon", "dgx_h100", "llama3_8b", "megatron_tp", *small, "--set", "b=8", "--tokens", "1e10", "--grid", "sweden,us"),
        ("cost", "hnlpu_rack"),
        ("check", "rack_paper", "ffn", "data"),
        ("check", "rack_paper", "nothing_of_ours"),
        ("show", "attention"),
        ("show", "data", "--workload", "ffn"),
        ("serve", "dgx_h100", "llama3_8b_decoder", "--set", "accelerators=1"),
    )
    known, seen, lacking = inside(), dict[str, set[str]](), set[str]()
    for words in asked:
        for name, part in json.loads(run(*words, "--json")[1]).items():
            lacking |= {f"{words[0]}: {one}" for one in strangers(part, name, known, seen)}
    assert lacking == set()
    seen["flips"] = {one.name for one in fields(Flip)}  # of rankings that turn, which are rare
    unseen = {f"{key}.{one}" for key, keys in known[0].items() for one in keys - seen.get(key, set()) if key not in known[1]}
    assert {one for one in unseen if one.partition(".")[0] not in ("results", "top", "front", "points")} == set()
