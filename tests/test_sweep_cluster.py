"""A sweep on a real dask.distributed scheduler with two workers: one killed in the middle, nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import rackmodel as rm
from rackmodel.errors import InputError, OutputError
from rackmodel.studies import batch, workers
from rackmodel.studies.workers import Cluster
from tests.sweeps import command, dump, points_done, study_text


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of dask's, killed at the end."""
    started = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def address_in(path: Path) -> str:
    """What the scheduler wrote of itself."""
    import json

    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError):
            time.sleep(0.1)
    raise AssertionError("the scheduler did not start")


def test_a_killed_worker_loses_nothing_and_the_file_is_the_serial_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    spec = tmp_path / "swept.yaml"
    spec.write_text(study_text(24), encoding="utf-8")
    said = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        stack.enter_context(process("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(said)))
        address = address_in(said)
        alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path))
        two = [stack.enter_context(process("distributed.cli.dask_worker", address, *alone)) for _ in range(2)]
        _wait_for_workers(address, 2)
        _refused_where_a_worker_has_another_version(address, monkeypatch)
        words = command(spec, tmp_path / "cluster", "--scheduler", address)
        swept = stack.enter_context(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
        until = time.monotonic() + 120
        while points_done(tmp_path / "cluster") < 8 and swept.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert swept.poll() is None, "the sweep ended before a worker could be killed"
        two[0].kill()
        _, err = swept.communicate(timeout=240)
        assert swept.returncode == 0, err
    rm.sweep(spec, output=tmp_path / "serial")
    assert dump(tmp_path / "cluster") == dump(tmp_path / "serial")


def _refused_where_a_worker_has_another_version(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that could not read what it was sent died over it, and the sweep waited for another for good."""
    for has, said in (("'another'", "has another version of rackmodel"), ("__import__('lacking')", "has no rackmodel that can be asked")):
        with monkeypatch.context() as changed:
            changed.setattr(workers, "VERSION", has)
            with pytest.raises(OutputError, match=said):
                Cluster(address)


def test_no_worker_and_a_scheduler_that_ends_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was waited for without a word, the second ended in a traceback."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "LOOK_S", 0.2)
    said = tmp_path / "scheduler.json"
    with process("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(said)) as scheduler:
        cluster = Cluster(address_in(said))

        def gone(message: object, *_: object, **__: object) -> None:
            assert "has no worker" in str(message)
            scheduler.kill()

        monkeypatch.setattr(warnings, "warn", gone)
        with pytest.raises(OutputError, match="the scheduler is gone"):
            list(cluster.solve([batch.Batch({}, (), {})]))
        cluster.close()


def _wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, timeout=30, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


def test_an_address_where_nobody_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("rackmodel.studies.workers.CONNECT_S", 1.0)
    with pytest.raises(OutputError, match="no scheduler answers"):
        Cluster("tcp://127.0.0.1:9")


def test_without_dask_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"rackmodel\[cluster\]"):
        Cluster("tcp://127.0.0.1:9")
