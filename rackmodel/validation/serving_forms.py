"""Other forms of serving rows, in the cells of a served row: throughput at the largest load, and rows that name a plan in a word.

model gpu tp pp ep_dp unit value            output tokens a second at the largest load: a run of requests that are all there
model engine parallel concurrency           tp8: tensor parallel; tep8: experts dealt out; dep8: attention data parallel as well
framework model gpu tp input_len output_len a deployment with its batch, or without one at the largest load
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

DEGREE = re.compile(r"(attention[ _-]?dp|adp|dep|tep|tp|dp|ep)[ =:]?(\d+)[\s+/,;&_-]*", re.IGNORECASE)
"""A degree of a plan: of tensors, attention data, experts; dep: of the latter two, tep: of experts."""
BATCHES = ("avg_batch", "max_batch")
"""Columns of the requests that a deployment has at once, what was counted before what was allowed."""
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


def deployed_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Rows that say their deployment in columns of its own, at a batch or at the largest load."""
    full = [row for row in rows if not row.text(*BATCHES)]
    return _as_served(full, _deployed, offline_rows) + _as_served([row for row in rows if row.text(*BATCHES)], _deployed, serving_rows)


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
    tensor, stages = (int(row.whole(name) or 1) for name in ("tp", "pp"))
    unit = row.text("unit")
    if unit not in UNITS:
        raise Refused(f"no throughput in '{unit}'")
    count = tensor * stages
    value = (row.number("value") or 0.0) / (count if unit == UNITS[1] else 1)
    said = _degrees(row.text("ep_dp")) if row.text("ep_dp") else {}
    if said.get("tp", count) not in (tensor, count):
        raise Refused(f"'{row.text('ep_dp')}' beside tensor degree {tensor}")
    data = said.get("dp", 1)
    return {
        "backend": _backend(row),
        "model_path": row.text("model"),
        "system": row.text("gpu"),
        "mode": "agg",
        "n_gpus": str(count),
        "tp_size": str(_within(tensor, data, row.text("ep_dp"))),
        "pp_size": str(stages),
        "attention_dp_size": str(data),
        "moe_ep_size": str(said.get("ep", 1)),
        "concurrency": FULL,
        "out_tok_s_per_gpu": str(value),
        "origin": "perf-overview",
    }


def _degrees(text: str) -> dict[str, int]:
    """The degrees that a plan names: of tensors (tp), attention data (dp) and experts (ep). Raises Refused."""
    found: dict[str, int] = {}
    place = 0
    while place < len(text) and (one := DEGREE.match(text, place)):
        word, place = one[1].lower(), one.end()
        for kind in {"dep": ("dp", "ep"), "tep": ("ep",)}.get(word, (word[-2:],)):
            if found.setdefault(kind, int(one[2])) != int(one[2]):
                raise Refused(f"'{text}' says {kind} twice")
    if place < len(text) or not found or not all(found.values()):
        raise Refused(f"no plan called '{text}' (known: tp8, tep8, dep8, attention DP8 + EP8, TP8/EP8/DP8)")
    return found


def _accelerators(plan: Mapping[str, int], text: str) -> int:
    """On how many accelerators a plan is. Raises Refused where its words could mean several numbers, or none.

    Degrees of tensors count a rank of attention data (vLLM) or all of them (SGLang, TensorRT-LLM), which those of experts tell apart;
    without these, ranks of data may as well be servers beside each other.
    """
    data, experts = plan.get("dp", 1), plan.get("ep", 1)
    tensor = plan.get("tp", max(data, experts))
    count = experts if experts == tensor * data else tensor
    if (data > 1 and experts != count) or count % data or count % experts:
        raise Refused(f"'{text}' does not say on how many accelerators")
    return count


def _backend(row: PublishedRow) -> str:
    """The engine: TensorRT-LLM with engines built ahead, or as it runs without."""
    page = OVERVIEW.search(row.text("source"))
    return "trtllm_engine" if page and int(page[1]) < FIRST_WITHOUT_ENGINES else "trtllm"


def _planned(row: PublishedRow) -> dict[str, str]:
    plan = _degrees(row.text("parallel"))
    data, count = plan.get("dp", 1), _accelerators(plan, row.text("parallel"))
    return {
        "backend": row.text("engine"),
        "model_path": row.text("model"),
        "system": "H200",
        "mode": "agg",
        "n_gpus": str(count),
        "tp_size": str(_within(count, data, row.text("parallel"))),
        "attention_dp_size": str(data),
        "moe_ep_size": str(plan.get("ep", 1)),
        "ttft_ms": row.text("ttft_median_ms"),
        "tpot_ms": row.text("tpot_median_ms"),
        "origin": "token_position",
        "curve_key": f"{row.text('model')}|{row.text('parallel')}|{row.text('concurrency')}",
    }


def _deployed(row: PublishedRow) -> dict[str, str]:
    tensor, stages, ranks, expert = (int(row.whole(name) or 1) for name in ("tp", "pp", "dp", "ep"))
    count = int(row.whole("n_gpus") or tensor * stages)
    if not (row.text("input_len") and row.text("output_len")):
        raise Refused("no lengths of prompts and answers (columns input_len, output_len)")
    if ranks > 1:
        raise Refused("dp: ranks of attention data and servers beside each other are not told apart")
    if count != tensor * stages:
        raise Refused("the degrees are not those of all GPUs")
    rate = row.number("out_tok_s_per_gpu") or (row.number("out_tok_s") or 0.0) / count
    return {
        "backend": row.text("framework"),
        "model_path": row.text("model"),
        "system": row.text("gpu"),
        "mode": "agg",
        "isl": row.text("input_len"),
        "osl": row.text("output_len"),
        "n_gpus": str(count),
        "tp_size": str(tensor),
        "pp_size": str(stages),
        "moe_ep_size": str(expert),
        "concurrency": row.text(*BATCHES) or FULL,
        "tpot_ms": row.text("itl_median_ms"),
        "ix_joules_per_output_token": row.text("energy_j_per_out_tok"),
        "out_tok_s_per_gpu": str(rate),
        "origin": "perf-overview" if "perf-overview" in row.text("source") else row.dataset,
        "curve_key": f"{row.text('model')}|{row.text('gpu')}|{row.text('input_len')}|{row.text('output_len')}",
    }


def _within(accelerators: int, ranks: int, plan: str) -> int:
    """Tensor degree of attention inside each of its ranks of data, which share a stage's accelerators. Raises Refused."""
    if not ranks or accelerators % ranks:
        raise Refused(f"'{plan}' does not divide {accelerators} accelerators")
    return accelerators // ranks
