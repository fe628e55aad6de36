"""Collectives of libraries: a call by hand, what stands between measured groups, what a fit finds again, how near the shipped facts are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rackmodel as rm
from rackmodel.calibration.call_rows import read_calls
from rackmodel.calibration.collectives import CalibratedCalls, calibrate_calls, calls_text
from rackmodel.calibration.fit_calls import CallCurve, fit_curves
from rackmodel.cost.network.calls import CallKernels, MachineCalls, calls_for, ring_share
from rackmodel.errors import InputError
from rackmodel.inputs import library_names, machine_calls, read_architecture
from rackmodel.inputs.read import machine_exchange, read_collectives
from rackmodel.model.calls import Calls, CallTimes, LibraryCall
from rackmodel.units import series_reader

KIB = 1024.0
SIZES = 2.0 ** np.arange(9, 30)


def calls(**changes: object) -> Calls:
    times = {
        "2": {"up_to": "64 KiB", "start": "4 10 us", "rate": "50 100 GB/s"},
        "4": {"start": "6 us", "rate": "25 GB/s"},
    }
    return Calls.model_validate({"kind": "all_reduce", "releases": ["2", "1"], "members": times, **changes})


def seconds(of: Calls, p: int, volume: float) -> float:
    sizes = np.array([volume])
    lines = CallKernels(of).lines(np.array([p]), sizes)
    return float(lines.seconds(sizes)[0]) if lines.known[0] else np.inf


def test_a_call_is_its_start_and_its_message_by_the_kernel_for_it() -> None:
    assert seconds(calls(), 2, 64 * KIB) == pytest.approx(4e-6 + 64 * KIB / 50e9)
    assert seconds(calls(), 2, 65 * KIB) == pytest.approx(10e-6 + 65 * KIB / 100e9)


def test_three_members_take_the_mean_of_two_and_four() -> None:
    assert seconds(calls(), 3, KIB) == pytest.approx((seconds(calls(), 2, KIB) + seconds(calls(), 4, KIB)) / 2)


def test_beyond_the_largest_group_the_start_goes_on_and_the_message_as_in_a_ring() -> None:
    # starts 4 and 6 us of 2 and 4: 1 us a member; a ring of 8 sends 7/4 of the message, of 4 6/4
    assert seconds(calls(), 8, KIB) == pytest.approx(10e-6 + KIB / 25e9 * (7 / 4) / (6 / 4))
    assert ring_share("all_gather", 4) == pytest.approx(3 / 4)
    assert seconds(calls(), 9, KIB) == np.inf


def test_a_library_leaves_to_nccl_what_it_lacks() -> None:
    libraries = {"vllm": [calls()], "nccl": [calls(kind="all_gather"), calls()]}
    asked = LibraryCall(library="vllm", mode="eager")
    found = calls_for(libraries, asked, "all_gather", 16)
    assert found is libraries["nccl"][0]
    assert calls_for(libraries, asked, "all_reduce", 16) is libraries["vllm"][0]  # eager was not measured: as in a graph
    assert calls_for(libraries, asked, "reduce_scatter", 16) is None
    assert calls_for({"torch": [calls()]}, asked, "all_reduce", 16) is None
    for wrong in (LibraryCall(library="vlm"), LibraryCall(library="vllm", release="9")):
        with pytest.raises(InputError, match=r"vlm|vllm 9"):
            MachineCalls({"node": libraries, "su": {}}, wrong)
    with pytest.raises(InputError, match="vlm"):  # a slip of the keyboard, whatever the machine states
        MachineCalls({}, LibraryCall(library="vlm"))
    assert MachineCalls({"node": {"torch": []}}, LibraryCall(library="vllm")).asked.library == "vllm"


def test_rates_follow_the_bandwidth_of_the_network_and_starts_stay() -> None:
    """An all-reduce of 4 MiB of 16 bits among eight on NVLink of 450 GB/s: its kernel starts in 26.6 us and does 175 GB a second."""
    size = np.array([4096.0 * KIB])
    for changed, rate in (("1", 175e9), ("2", 350e9), ("0.1", 17.5e9)):
        machine = read_architecture("dgx_h100", [f"network.bandwidth*={changed}"])
        found = machine_calls(machine, LibraryCall(library="nccl"))
        assert found is not None
        lines = found.lines("node", "all_reduce", 16, np.array([8]), size)
        assert lines.seconds(size)[0] == pytest.approx(26.6e-6 + size[0] / rate, rel=1e-9)


def test_exchanges_of_tokens_follow_the_bandwidth_too() -> None:
    whole, half = (
        machine_exchange(read_architecture("dgx_h100", [f"network.bandwidth*={times}"]), "node", "deepep", None, "normal")
        for times in ("1", "0.5")
    )
    assert whole is not None
    assert half is not None
    assert half.dispatch.link_bytes_per_s == whole.dispatch.link_bytes_per_s / 2
    assert half.combine.start_s == whole.combine.start_s


def test_gradients_of_narrow_weights_are_summed_as_the_gradients_that_they_are() -> None:
    """4,096 x 14,336 gradients of 32 bit among 8 H100: 234.9 MB at 264 GB/s, the widest that was measured, whatever the weight has. (Until
    30 November 2026 those of 8 bit went by the lines of 8 bit, 203.5 GB/s.)"""
    mapper = {"mapper": "m", "axes": {"dp": {"degree": 8}}, "split": {"dp": ["b"]}, "micro_batch": 1}
    sizes = {"accelerators": 8, "b": 8, "s": 128, "layers": 1, "profile.buckets": "{holds: tensor}"}
    for narrow in ({}, {"precision.recipe": "fp8"}):
        ledger = rm.search("dgx_h100", "llama3_8b", mapper, set=sizes | narrow, profile="megatron_core").result.ledger
        (row,) = ledger.where(component="network", tensor="WG")
        assert (row.action, row.seconds) == ("all_reduce", pytest.approx(71.73e-6 + 4096 * 14336 * 4 / 264e9, rel=1e-3))


def test_an_element_is_of_its_width_or_the_next_wider() -> None:
    narrow, wide = calls(widths=["8 bit"]), calls(widths=["16 bit"])
    for bits, found in ((8, narrow), (4, narrow), (16, wide), (32, wide)):
        assert calls_for({"nccl": [narrow, wide]}, LibraryCall(library="nccl"), "all_reduce", bits) is found


@pytest.mark.parametrize(
    "times",
    [
        {"start": "4 10 us", "rate": "50 GB/s"},
        {"up_to": "64 64 KiB", "start": "4 10 12 us", "rate": "50 50 50 GB/s"},
        {"start": "4 us", "rate": "0 GB/s"},
        {"start": "us", "rate": "1 GB/s"},
        {"start": "4", "rate": "1 GB/s"},
    ],
)
def test_kernels_that_do_not_fit_together_are_refused(times: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"want|larger"):
        CallTimes.model_validate(times)


def test_a_series_has_one_unit() -> None:
    assert series_reader("second")("4.5 10 us") == pytest.approx((4.5e-6, 10e-6))
    with pytest.raises(ValueError, match="dimension"):
        series_reader("second")("4.5 GB")


def fitted(volume: np.ndarray, seconds: np.ndarray) -> CallTimes:
    """Kernels of calls of n bytes and seconds, of whose library nothing is known."""
    return fit_curves([CallCurve(volume=volume, seconds=seconds)])[0].facts


def test_a_fit_finds_kernels_again_and_is_not_led_away_by_one_bad_call() -> None:
    truth = CallTimes.model_validate({"up_to": "256 KiB", "start": "5 30 us", "rate": "40 300 GB/s"})
    exact = np.where(SIZES <= 256 * KIB, 5e-6 + SIZES / 40e9, 30e-6 + SIZES / 300e9)
    noisy = exact * np.where(SIZES == 4096, 9.0, 1.0)
    found = fitted(SIZES, noisy)
    assert found.start_s == pytest.approx(truth.start_s, rel=1e-2)
    assert found.rate_bytes_per_s == pytest.approx(truth.rate_bytes_per_s, rel=1e-2)


def test_a_library_switches_where_its_kernels_cross_or_where_it_was_seen_to() -> None:
    sizes = np.array([1, 2, 4, 8, 64, 128, 256, 512]) * KIB
    crossing = np.where(sizes <= 8 * KIB, 1e-6 + sizes / 8e9, 3e-6 + sizes / 80e9)  # at 2 us · 1 / (1/8e9 - 1/80e9)
    assert fitted(sizes, crossing).up_to_bytes == pytest.approx((2e-6 / (1 / 8e9 - 1 / 80e9),), rel=1e-3)
    late = np.where(sizes <= 8 * KIB, 1e-6 + sizes / 80e9, 9e-6 + sizes / 80e9)  # never faster: as late as it can be
    assert fitted(sizes, late).up_to_bytes == pytest.approx((64 * KIB,), rel=2e-3)


def _file(folder: Path) -> Path:
    rows = ["system,framework,version,impl,allreduce_dtype,num_gpus,message_bytes,latency_us"]
    for version, slower in (("1.9.0", 1.01), ("1.10.0", 1.0), ("1.8.0", 2.0)):
        for p in (2, 4):
            rows += [f"h100_sxm,vLLM,{version},vllm_graph,bfloat16,{p},{int(size)},{slower * (5 + size / 4e4)}" for size in SIZES]
    path = folder / "rows.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_releases_that_are_alike_share_their_facts_the_newest_first(tmp_path: Path) -> None:
    gpu, curves = read_calls([_file(tmp_path)], None)
    assert gpu == "h100_sxm"
    assert [one.releases for one in curves] == [("1.10.0", "1.9.0"), ("1.8.0",)]
    assert set(curves[0].curves) == {2, 4}


def test_widths_are_one_where_bytes_are_only_moved(tmp_path: Path) -> None:
    """NCCL gathers elements of 16 bit as twice as many of 8: one kernel, whose sizes of both widths make one curve."""
    rows = ["system,nccl_version,op_name,nccl_dtype,num_gpus,message_bytes,latency_us"]
    for kind in ("all_gather", "all_reduce"):
        for width, slower in (("half", 1.0), ("int8", 1.1)):
            rows += [f"h100_sxm,2.29.2,{kind},{width},4,{int(size)},{slower * (5 + size / 4e4)}" for size in SIZES]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows) + "\n")
    _, curves = read_calls([path], None)
    assert [(one.kind, one.widths) for one in curves] == [("all_gather", (16, 8)), ("all_reduce", (16,)), ("all_reduce", (8,))]
    assert curves[0].curves[4].shape == (2, 2 * len(SIZES))


def test_groups_of_too_few_sizes_are_left_out_and_said(tmp_path: Path) -> None:
    path = _file(tmp_path)
    path.write_text(path.read_text() + "h100_sxm,vLLM,1.10.0,vllm_graph,bfloat16,8,1024,9\n")
    left: list[str] = []
    assert set(calibrate_calls([path], left=left)[0].fits) == {2, 4}
    assert left == ["1 sizes of vllm 1.10.0, all_reduce, graph among 8: want 5 or more"]
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[-1]]) + "\n")
    with pytest.raises(InputError, match="no collective to fit: 1 sizes of vllm"):
        calibrate_calls([path])


def test_a_calibrated_file_is_read_and_priced(tmp_path: Path) -> None:
    found = calibrate_calls([_file(tmp_path)])
    assert all(isinstance(one, CalibratedCalls) and float(one.outside.mean()) < 0.02 for one in found)
    path = tmp_path / "mine.yaml"
    path.write_text(calls_text("mine", found, "made up"))
    machine = read_architecture("dgx_h100", [f"node.network.calls={path}"])
    known = machine_calls(machine, LibraryCall(library="vllm", release="1.8.0"))
    assert known is not None
    lines = known.lines("node", "all_reduce", 16, np.array([4]), np.array([4e6]))
    assert lines.seconds(np.array([4e6]))[0] == pytest.approx(2 * (5 + 4e6 / 4e4) * 1e-6, rel=1e-2)


def test_a_file_that_is_not_there_is_refused_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nvlink_h10"):
        read_architecture("architecture: a\ntree: {name: n, network: {topology: switch, bandwidth: 1 GB/s, calls: nvlink_h10}}\n")


@pytest.mark.parametrize("name", library_names()["collectives"])
def test_every_shipped_collective_takes_longer_for_more(name: str) -> None:
    """Within a kernel, and from the smallest message to the largest; where kernels change a library may lose or win."""
    for library in read_collectives(name).calls.values():
        for one in library:
            assert one.source
            for p in (2, 4):
                sizes = 2.0 ** np.arange(9, 34)  # over EFA half a GiB takes six times as long as half a KiB
                times = CallKernels(one).lines(np.full(len(sizes), p), sizes).seconds(sizes)
                assert np.all(times > 1e-6)
                assert times[-1] > 10 * times[0]
                assert np.all(times[1:] > 0.4 * times[:-1])
