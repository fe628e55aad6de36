"""The rack paper through the public API: every figure that a command can print, against the golden tables.

Golden columns: seconds under slowest_link, seconds under path_sum, joules, bytes on the wire; six printed digits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.inputs.plain_yaml import loaded
from rackmodel.studies.study import StudySpec  # noqa: F401  (the study's schema must import without the rest)
from tests import samples

GOLDEN = loaded((Path(__file__).parent / "data/golden/rack_paper.yaml").read_text(encoding="utf-8"))
READINGS = {"slowest_link": 0, "path_sum": 1}
MAPPERS = {"dp_bwd": ("data", "backward"), "tp_fwd": ("tensor", "forward")}


def _racks(name: str) -> list[str]:
    size = int(name.removeprefix("rack"))
    return [f"gpu.count={size}", f"rack.count={max(2, -(-64 // size))}"]


@cache
def _found(workload: str, mapper: str, sets: tuple[str, ...]):
    return api.search("rack_paper", workload, mapper, sets=sets).result


def _network(workload: str, mapper: str, sets: list[str], **where: str):
    return _found(workload, mapper, tuple(sets)).ledger.where(component="network", **where)


def _check(rows, golden: list[float], reading: str, rtol: float = 2e-5) -> None:
    assert rows.total("seconds") == pytest.approx(golden[READINGS[reading]], rel=rtol)
    assert rows.total("joules") == pytest.approx(golden[2], rel=rtol)
    assert rows.total("amount") == pytest.approx(golden[3], rel=rtol)


RACKS = ["rack8", "rack72", "rack4", "rack16"][: samples.cases(2, 4)]  # all 1,152 figures in the audit


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("rack", RACKS)
@pytest.mark.parametrize("width", ["dff_14336", "dff_16384", "dff_4096"])
def test_ffn_communication(width: str, rack: str, reading: str) -> None:
    for n, kind, *golden in GOLDEN["ffn"][width][rack]:
        sets = [
            *_racks(rack),
            f"accelerators={n}",
            f"f={width.removeprefix('dff_')}",
            f"system.network.hops={reading}",
            f"rack.network.hops={reading}",
        ]
        if kind in MAPPERS:
            mapper, phase = MAPPERS[kind]
            _check(_network("ffn", mapper, sets, phase=phase), golden, reading)
        elif kind == "pptp_fwd_p2p":
            _check(_network("ffn", "pipeline_tensor", sets, phase="forward", action="send"), golden, reading)
        else:
            _check(_network("ffn", "pipeline_tensor", sets, phase="forward"), golden, reading)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("rack", RACKS)
@pytest.mark.parametrize("heads", ["gqa", "mha"])
def test_attention_communication(heads: str, rack: str, reading: str) -> None:
    workload = "attention" if heads == "gqa" else "attention_mha"
    for n, kind, *golden in GOLDEN["attention"][heads][rack]:
        sets = [*_racks(rack), f"accelerators={n}", f"system.network.hops={reading}", f"rack.network.hops={reading}"]
        if kind in MAPPERS or kind == "tp_fwd_same_gpus":
            mapper, phase = MAPPERS.get(kind, ("tensor", "forward"))
            _check(_network(workload, mapper, sets, phase=phase), golden, reading)
            continue
        sends = _network(workload, "pipeline_tensor", sets, phase="forward", action="send")
        if kind == "p2p_with_scores":
            _check(sends, golden, reading)
        elif kind == "p2p_scores_colocated":
            kept = sends.where(tensor=["Q", "K", "V", "Z"])
            assert kept.total("joules") == pytest.approx(golden[2], rel=2e-5)
            assert kept.total("seconds") == pytest.approx(golden[READINGS[reading]], rel=2e-5)


def test_the_issue_s_table() -> None:
    """Batch 16, d_ff 14336, rack of 8; 0.1 %."""

    def forward(mapper: str, n: int, reading: str = "slowest_link", **where: str):
        return _network("ffn", mapper, [f"accelerators={n}", f"system.network.hops={reading}"], **{"phase": "forward", **where})

    close = lambda value, want: value == pytest.approx(want, rel=1e-3)  # noqa: E731
    assert close(forward("tensor", 8).total("seconds"), 0.522e-3)
    assert close(forward("tensor", 8).total("joules"), 39.08e-3)
    assert close(forward("tensor_column", 8).total("seconds"), 1.174e-3)
    assert close(forward("tensor", 10).total("seconds"), 9.664e-3)
    assert close(forward("tensor", 10, "path_sum").total("seconds"), 2.362e-3)
    assert close(forward("tensor", 10).total("joules"), 194.82e-3)
    assert close(forward("data", 32, phase="backward").total("seconds"), 18.203e-3)
    assert close(forward("data", 32, "path_sum", phase="backward").total("seconds"), 3.160e-3)
    assert close(forward("data", 32, phase="backward").total("joules"), 847.54e-3)
    assert close(forward("pipeline_tensor", 32, action="send").total("seconds"), 1.174e-3)
    assert close(forward("pipeline_tensor", 32, action="send").total("joules"), 150.32e-3)
    assert close(forward("pipeline_tensor", 32).total("seconds"), 23.824e-3)
    assert close(forward("pipeline_tensor", 32, "path_sum").total("seconds"), 5.107e-3)
    assert close(forward("pipeline_tensor", 32).total("joules"), 677.60e-3)


def test_tensor_parallelism_holds_fewer_weights_than_data_parallelism() -> None:
    for n in (4, 8, 32):
        data, tensor = (api.search("rack_paper", "ffn", m, sets=[f"accelerators={n}"]).result for m in ("data", "tensor"))
        assert tensor.memory["weights"] == pytest.approx(data.memory["weights"] / n)
        assert data.ledger.where(component="network", phase="forward").total("joules") == 0


def test_gpu_memory_reads_are_the_specification_s(golden_reads: dict[str, dict[str, int]]) -> None:
    for n, reads in golden_reads.items():
        for name, mapper in (("dp", "data"), ("tp", "tensor_column"), ("pptp", "pipeline_tensor")):
            result = api.search("rack_paper", "ffn", mapper, sets=[f"accelerators={n}"]).result
            rows = result.ledger.where(level="gpu", action="read", phase="forward", component="memory")
            assert rows.total("amount") / 2 == pytest.approx(reads[name], rel=1e-12)


@pytest.fixture
def golden_reads() -> dict[str, dict[str, int]]:
    """Elements read from GPU memory, FFN, d_ff 14336 (DP: N W + X + H; TP: W + N (X + H); PP+TP: W + N/2 (X + H))."""
    return {
        "4": {"dp": 1073741824, "tp": 2533359616, "pptp": 1325400064},
        "6": {"dp": 1308622848, "tp": 3741319168, "pptp": 1929379840},
        "8": {"dp": 1543503872, "tp": 4949278720, "pptp": 2533359616},
        "10": {"dp": 1778384896, "tp": 6157238272, "pptp": 3137339392},
        "16": {"dp": 2483027968, "tp": 9781116928, "pptp": 4949278720},
        "32": {"dp": 4362076160, "tp": 19444793344, "pptp": 9781116928},
    }


def test_compute_scales_with_the_fullest_accelerator() -> None:
    """Rows or columns of the fullest GPU: ceil(size / N)."""
    relative = {"4": 4, "6": 3, "8": 2, "10": 2, "16": 1, "32": 1}
    times = {}
    for n in relative:
        result = api.search("rack_paper", "attention", "data", sets=[f"accelerators={n}"]).result
        times[n] = result.ledger.where(component="compute", phase="forward").total("seconds")
    for n, sequences in relative.items():
        assert times[n] == pytest.approx(times["32"] * sequences, rel=1e-12)


def test_the_critical_path_of_the_attention_pipeline_is_the_longest_chain_of_sends() -> None:
    for n, want in (("12", 43.248e-3), ("24", 22.892e-3), ("48", 12.080e-3)):
        sends = _network("attention", "pipeline_tensor", [f"accelerators={n}"], phase="forward", action="send")
        assert sends.total("exposed_seconds") == pytest.approx(want, rel=1e-3)
