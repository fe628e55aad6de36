"""Published training steps, nothing fitted to them: every visible row of Calculon's own validation within 15 %, under the profile that
`validate` prices these rows with."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rackmodel import api

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "specs/validation/korthikanti_table5.csv").open(encoding="utf-8")))
MODELS = {"megatron-22B": "gpt_22b", "gpt3-175B": "gpt3_175b", "turing-530B": "gpt_530b"}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_a_step_of_megatron_takes_what_was_measured_within_15_percent(row: dict[str, str]) -> None:
    sets = [
        f"accelerators={row['n_gpus']}",
        f"b={row['gbs']}",
        f"axes.tp.degree={row['tp']}",
        f"axes.pp.degree={row['pp']}",
        f"interleave={row['vpp']}",
        f"micro_batch={row['mbs']}",
        f"recompute={row['recompute']}",
    ]
    mapper = "megatron_sp" if row["sp"] == "true" else "megatron_tp"
    result = api.search("dgx_a100", MODELS[row["model"]], mapper, sets=sets, profile="megatron_2022").result
    measured = float(row["iteration_time_s"])
    assert result.latency_s == pytest.approx(measured, rel=0.15)
    assert result.memory_bytes_per_accelerator < 80e9
