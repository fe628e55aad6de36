"""What tests and benchmarks of sweeps share: a study of any number of points, its file as plain data, and a sweep that is killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rackmodel.store.study_file import StudyFile
from rackmodel.studies.ask import FILE
from rackmodel.studies.run import Points, Sweep
from rackmodel.studies.study import StudySpec
from rackmodel.studies.workers import Alone

Dump = dict[str, list[tuple[Any, ...]]]


def study_text(bandwidths: int, accelerators: str = "[4, 8]", mappers: str = "[data, tensor]", workloads: str = "[ffn]") -> str:
    """A study of workloads x mappers x accelerators x bandwidths points."""
    return f"""study: swept
architecture: rack_paper
workload: {workloads}
mapper: {mappers}
runs:
- set:
    accelerators: {accelerators}
    system.network.bandwidth: {{logspace: [25 GB/s, 400 GB/s, {bandwidths}]}}
"""


def dump(folder: Path) -> Dump:
    """Every row of every table of a study's file."""
    with sqlite3.connect(folder / FILE) as connection:
        orders = {"points": "number", "answers": "key", "study": "name"}
        found = {table: connection.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall() for table, order in orders.items()}
    connection.close()
    return found


def command(study: Path, folder: Path, *more: str) -> list[str]:
    """A sweep as a process."""
    return [sys.executable, "-m", "rackmodel", "sweep", str(study), "-o", str(folder), "--export", "json", *more]


def run(study: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A sweep to its end."""
    return subprocess.run(command(study, folder, *more), capture_output=True, text=True, timeout=900)


def points_done(folder: Path) -> int:
    """Points in a study's file; 0 where there is none yet."""
    try:
        connection = sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True, timeout=5)
        try:
            return int(connection.execute("SELECT COUNT(*) FROM points").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0


def killed(study: Path, folder: Path, at_least: int, wait_s: float, *more: str) -> bool:
    """Begin a sweep and kill it (signal 9) so long after it wrote so many points; whether it was still running."""
    process = subprocess.Popen(command(study, folder, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 300
    while process.poll() is None and points_done(folder) < at_least and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(wait_s)
    alive = process.poll() is None
    process.kill()
    process.wait()
    return alive


def run_study(study: StudySpec) -> Points:
    """Every point of a study, priced in this process and kept in memory."""
    return Sweep(study, StudyFile(None), {}).run(Alone(), lambda done, total: None)
