"""Other forms of serving rows, in the cells of a served row: throughput at the largest load, and rows that name a plan in a word.

model gpu tp pp ep_dp unit value            output tokens a second at the largest load: a run of requests that are all there
model engine parallel concurrency           tp8: tensor parallel; tep8: experts dealt out; dep8: attention data parallel as well
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rackmodel.validation.offline_runs import offline_rows
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.serving import FULL, serving_rows
from rackmodel.validation.words import Refused

PLAN = re.compile(r"(tp|tep|dep)(\d+)$")
RANKS = re.compile(r"attention DP(\d+) \+ EP(\d+)$")
UNITS = ("out_tok_s_per_gpu", "out_tok_s_total")
OVERVIEW = re.compile(r"perf-overview\.md \(v0\.(\d+)[.,)]")
"""A page of TensorRT-LLM's that says its release, before 1.0."""
FIRST_WITHOUT_ENGINES = 19
"""Source: "Starting with v0.19, testing was performed using the PyTorch backend" (perf-overview of NVIDIA/TensorRT-LLM 00f37686aa85)."""


def largest_load_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Rows of a server's largest throughput."""
    return _as_served(rows, _largest_load, offline_rows)


def planned_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Rows that name their plan in a word."""
    return _as_served(rows, _planned, serving_rows)


def _as_served(
    rows: Sequence[PublishedRow],
    form: Callable[[PublishedRow], Mapping[str, str]],
    scored: Callable[[Sequence[PublishedRow]], list[ScoredRow]],
) -> list[ScoredRow]:
    found: list[ScoredRow] = []
    served: list[PublishedRow] = []
    for row in rows:
        try:
            served.append(replace(row, cells={**row.cells, **form(row)}))
        except Refused as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
    return found + scored(served)


def _largest_load(row: PublishedRow) -> dict[str, str]:
    tensor, stages = (int(row.number(name) or 1) for name in ("tp", "pp"))
    unit = row.text("unit")
    if unit not in UNITS:
        raise Refused(f"no throughput in '{unit}'")
    count = tensor * stages
    value = (row.number("value") or 0.0) / (count if unit == UNITS[1] else 1)
    ranks = RANKS.match(row.text("ep_dp"))
    if row.text("ep_dp") and ranks is None:
        raise Refused(f"no plan called '{row.text('ep_dp')}'")
    data = int(ranks[1]) if ranks else 1
    return {
        "backend": _backend(row),
        "model_path": row.text("model"),
        "system": row.text("gpu"),
        "mode": "agg",
        "n_gpus": str(count),
        "tp_size": str(_within(tensor, data, row.text("ep_dp"))),
        "pp_size": str(stages),
        "attention_dp_size": str(data),
        "moe_ep_size": ranks[2] if ranks else "1",
        "concurrency": FULL,
        "out_tok_s_per_gpu": str(value),
        "origin": "perf-overview",
    }


def _backend(row: PublishedRow) -> str:
    """The engine: TensorRT-LLM with engines built ahead, or as it runs without."""
    page = OVERVIEW.search(row.text("source"))
    return "trtllm_engine" if page and int(page[1]) < FIRST_WITHOUT_ENGINES else "trtllm"


def _planned(row: PublishedRow) -> dict[str, str]:
    plan = PLAN.match(row.text("parallel"))
    if plan is None:
        raise Refused(f"no plan called '{row.text('parallel')}'")
    kind, count = plan[1], int(plan[2])
    data = count if kind == "dep" else 1
    return {
        "backend": row.text("engine"),
        "model_path": row.text("model"),
        "system": "H200",
        "precision": "fp8",
        "mode": "agg",
        "n_gpus": str(count),
        "tp_size": str(_within(count, data, row.text("parallel"))),
        "attention_dp_size": str(data),
        "moe_ep_size": "1" if kind == "tp" else str(count),
        "ttft_ms": row.text("ttft_median_ms"),
        "tpot_ms": row.text("tpot_median_ms"),
        "origin": "token_position",
        "curve_key": f"{row.text('model')}|{row.text('parallel')}|{row.text('concurrency')}",
    }


def _within(accelerators: int, ranks: int, plan: str) -> int:
    """Tensor degree of attention inside each of its ranks of data, which share a stage's accelerators. Raises Refused."""
    if not ranks or accelerators % ranks:
        raise Refused(f"'{plan}' does not divide {accelerators} accelerators")
    return accelerators // ranks
