"""Benchmarks, reported and not asserted: `make bench`."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rackmodel import api
from rackmodel.inputs import read_study
from tests.sweeps import run_study

pytestmark = pytest.mark.bench


def _seconds(words: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "rackmodel", *words], check=True, capture_output=True)
    return time.perf_counter() - started


def test_commands_from_the_shell() -> None:
    for words in (
        ["--help"],
        ["compare", "rack_paper", "ffn", "data", "tensor", "pipeline_tensor"],
        ["search", "rack_paper", "attention", "auto"],
    ):
        print(f"\n{' '.join(words)}: {min(_seconds(words) for _ in range(3)):.2f} s cold")


def test_the_study() -> None:
    started = time.process_time()
    run_study(read_study("rack_paper"))
    print(f"\nstudy rack_paper, 113 points: {time.process_time() - started:.2f} CPU s")


def test_layout_search_against_the_grid() -> None:
    """Elimination against exhausting the same tables, attention on 8 GPUs: a ratio in one run."""
    times = {}
    for solver in ("eliminate", "cpsat", "enumerate"):
        started = time.process_time()
        result = api.search("rack_paper", "attention", "auto", sets=[f"solver={solver}"]).result
        times[solver] = time.process_time() - started
        print(f"\n{solver}: {times[solver]:.2f} CPU s, {result.certificate.space:.6g} mappings, {result.latency_s:.12g} s")
    print(f"enumerate / eliminate: {times['enumerate'] / times['eliminate']:.2f}")
