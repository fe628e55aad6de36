"""What sources say of the kernels of all-reduces, fits that know it, and others' measurements between the sizes that were fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rackmodel.calibration.call_kernels import KIB, MIB, known_kernels, least_slope
from rackmodel.calibration.fit_calls import CallCurve, call_seconds, fit_curves
from rackmodel.calibration.fit_passes import SteppedCurve, wait_of_pass
from rackmodel.calibration.told_calls import told_calls
from rackmodel.cost.network.calls import CallKernels
from rackmodel.inputs import library_names
from rackmodel.inputs.read import read_collectives

SIZES = np.array([0.5, 1, 2, 4, 8, 16, 64, 256, 512, 4096, 8192, 16384, 32768]) * KIB
BETWEEN = np.array([600.0, 1024.0, 1500.0, 2048.0, 3000.0]) * KIB


def priced(network: str, library: str, release: str, members: int, sizes: list[float]) -> np.ndarray:
    """[n] us of all-reduces in a graph, by the shipped facts."""
    calls = read_collectives(network).calls[library]
    one = next(one for one in calls if one.kind == "all_reduce" and one.mode == "graph" and release in one.releases)
    volume = np.array(sizes)
    return CallKernels(one).lines(np.full(len(volume), members), volume).seconds(volume) * 1e6


def test_four_b200_take_the_steps_that_others_measured() -> None:
    """vLLM's pull requests 24111 and 24532, two stages forced: 17, 18, 27 (25), 27 (26), 35, 43 (42) us. Of these sizes the fit saw 0.5 and
    4 MiB; a line between them is 19 % off at 1 MiB."""
    told = priced("nvlink_b200", "sglang", "0.5.10", 4, [size * MIB for size in (0.5, 1, 1.5, 2, 3, 4)])
    assert told == pytest.approx([17.0, 18.0, 26.0, 26.5, 35.0, 42.5], rel=0.06)


def test_pytorchs_kernels_take_over_where_vllm_ends_its_own() -> None:
    """B200: 1 MiB of eight members goes to the switch (`CUSTOM_ALL_REDUCE_MAX_SIZES`), which is faster than two stages of less."""
    less, more = priced("nvlink_b200", "vllm", "0.24.0", 8, [0.9 * MIB, MIB])
    assert less > 1.3 * more
    same, beyond = priced("nvlink_b200", "sglang", "0.5.10", 8, [0.9 * MIB, MIB])  # has no such kernels
    assert same == pytest.approx(beyond, rel=0.02)


def test_kernels_are_known_by_library_release_and_gpu() -> None:
    two = known_kernels("vllm", ["0.14.0"], "a100_sxm", "all_reduce", 8)
    assert [round(one.up_to / KIB) for one in two] == [256, 8184]
    assert two[1].passes == 8 * 36 * 512 * 16
    assert known_kernels("sglang", ["0.5.10"], "h100_sxm", "all_reduce", 8)[-1].up_to == 8 * MIB
    assert [round(one.up_to / MIB) for one in known_kernels("vllm", ["0.24.0"], "b200_sxm", "all_reduce", 2)] == [2, 8]
    eight = known_kernels("vllm", ["0.24.0"], "h100_sxm", "all_reduce", 8)
    assert [round(one.up_to / KIB) for one in eight] == [256, 65470]
    for unknown in (
        ("vllm", "0.24.0", "l40s", "all_reduce", 2),
        ("vllm", "0.24.0", "h100_sxm", "all_gather", 2),
        ("sglang", "0.5.14", "h100_sxm", "all_reduce", 8),
        ("nccl", "2.29.2", "h100_sxm", "all_reduce", 8),
        ("vllm", "0.24.0", "h100_sxm", "all_reduce", 16),
    ):
        library, release, gpu, kind, members = unknown
        assert not known_kernels(library, [release], gpu, kind, members)


def truth(members: int, volume: np.ndarray) -> np.ndarray:
    """Seconds of SGLang's kernels on a made-up H100: one stage, two by passes of 1.5 us a member, NCCL."""
    passes = np.ceil(volume / (members * 36 * 512 * 16))
    two = 9e-6 + 2 * (members - 1) / members * volume / 450e9 + 1.5e-6 * members * passes
    one = 4e-6 + volume / 50e9
    first = known_kernels("sglang", ["0.5.9"], "h100_sxm", "all_reduce", members)[0].up_to
    return np.where(volume <= first, one, np.where(volume <= 8 * MIB, two, 40e-6 + volume / 300e9))


def curve(members: int, seconds: np.ndarray) -> CallCurve:
    kernels = known_kernels("sglang", ["0.5.9"], "h100_sxm", "all_reduce", members)
    return CallCurve(volume=SIZES, seconds=seconds, members=members, kernels=kernels)


@pytest.mark.parametrize("bad", [None, 256 * KIB, 8192 * KIB])
def test_steps_are_found_again_from_sizes_far_apart_though_one_call_was_disturbed(bad: float | None) -> None:
    curves = [curve(p, truth(p, SIZES)) for p in (4, 8)]
    if bad is not None:
        curves[1] = replace(curves[1], seconds=curves[1].seconds * np.where(bad == SIZES, 1.7, 1.0))
    for one, fit in zip(curves, fit_curves(curves), strict=True):
        assert call_seconds(fit.facts, BETWEEN) == pytest.approx(truth(one.members, BETWEEN), rel=0.01)


def test_calls_that_do_not_go_in_passes_keep_their_line() -> None:
    sizes = 2.0 ** np.arange(9, 25)
    straight = 5e-6 + sizes / 40e9
    kernels = known_kernels("sglang", ["0.5.9"], "h100_sxm", "all_reduce", 4)
    fit = fit_curves([CallCurve(volume=sizes, seconds=straight, members=4, kernels=kernels)])[0]
    assert call_seconds(fit.facts, BETWEEN) == pytest.approx(5e-6 + BETWEEN / 40e9, rel=0.01)


def test_no_call_takes_less_than_its_launch() -> None:
    """Called one by one, a host's 30 us hide what is shorter: the flat part goes on until the steps are above it."""
    hosted = np.maximum(truth(4, SIZES), 30e-6)
    fit = fit_curves([curve(4, hosted)])[0]
    wanted = np.maximum(truth(4, BETWEEN), 30e-6)
    assert call_seconds(fit.facts, BETWEEN) == pytest.approx(wanted, rel=0.02)


def test_curves_of_one_pass_do_not_say_what_it_waits_for() -> None:
    volume = np.array([256.0, 512.0]) * KIB
    one = SteppedCurve(members=8, passes=8 * 294912.0, link=450e9, volume=volume, seconds=np.array([14e-6, 15e-6]), floor_s=5e-6)
    assert wait_of_pass([one]) is None
    assert wait_of_pass([one, replace(one, volume=8 * volume, seconds=np.array([14e-6, 30e-6]))]) is not None


def test_one_slow_call_at_the_end_is_no_kernel_of_its_own() -> None:
    """Eight L40S had 55 and 162 ms for 64 and 128 MiB: all that is larger would have taken 162 ms."""
    sizes = 2.0 ** np.arange(20, 28)
    seconds = 20e-6 + sizes / 1e9
    fit = fit_curves([CallCurve(volume=sizes, seconds=seconds * np.where(sizes == sizes[-1], 3.0, 1.0))])[0]
    far = 8 * sizes[-1]
    assert call_seconds(fit.facts, np.array([far]))[0] > far / 1e9


@pytest.mark.parametrize(
    ("gpu", "kind", "members", "widths", "picoseconds"),
    [
        ("b300_sxm", "all_gather", 8, (16, 8), 7 / 8 / 0.792),  # 900 GB/s x 0.88
        ("b300_sxm", "all_reduce", 8, (8,), 7 / 4 / 0.792),  # no switch sums integers of 8 bit
        ("b300_sxm", "all_reduce", 8, (16,), 7 / 8 / 0.792),
        ("a100_sxm", "all_reduce", 8, (16,), 7 / 4 / 0.264),  # nor A100's
        ("h100_sxm", "all_reduce", 2, (16,), 1 / 0.396),  # nor of two
        ("l40s", "all_reduce", 8, (16,), 0.0),
    ],
)
def test_a_members_link_bounds_what_larger_messages_take(
    gpu: str, kind: str, members: int, widths: tuple[int, ...], picoseconds: float
) -> None:
    least = least_slope(gpu, kind, members, widths)
    assert least == pytest.approx(picoseconds * 1e-12)
    flat = 100e-6 + SIZES / 1e16
    found = fit_curves([CallCurve(volume=SIZES, seconds=flat, members=members, flattest=least)])[0].facts
    assert 1 / found.rate_bytes_per_s[-1] == pytest.approx(max(least, 1e-16))


@pytest.mark.parametrize("name", [name for name in library_names()["collectives"] if name.startswith("nvlink") and "v100" not in name])
def test_no_shipped_call_outruns_the_links_beyond_what_was_measured(name: str) -> None:
    gpu = name.removeprefix("nvlink_")
    for library in read_collectives(name).calls.values():
        for one in library:
            for word, times in one.members.items():
                least = least_slope(gpu, one.kind, int(word), one.bits or (16,))
                assert 1 / times.rate_bytes_per_s[-1] >= least * 0.999, (one.kind, one.mode, one.releases, word)


def ring(size: np.ndarray) -> np.ndarray:
    """us of a library that changes its kernel at 4 MiB, and whose rate grows at 128."""
    return np.where(size <= 4 * MIB, 20 + size / 1e5, np.where(size <= 128 * MIB, 45 + size / 2e5, 190 + size / 2.6e5)) * 1e-6


def test_a_curve_of_another_width_tells_where_kernels_change_and_how_larger_messages_go_on() -> None:
    own, other = np.array([0.5, 1, 16, 32, 64]) * MIB, np.array([0.25, 0.5, 2, 8, 16, 32, 64, 128, 256]) * MIB
    others = (np.stack([other, ring(other)]),)
    told, seconds = told_calls(own, 1.05 * ring(own), others)
    assert told.tolist() == [2 * MIB, 8 * MIB, 128 * MIB, 256 * MIB]  # nothing of its own is below 0.5 MiB
    assert seconds == pytest.approx(1.05 * ring(told))
    missed = np.array([2, 8, 128, 256]) * MIB
    alone, both = (fit_curves([CallCurve(volume=own, seconds=1.05 * ring(own), others=more)])[0].facts for more in ((), others))
    error = [np.abs(call_seconds(times, missed) / (1.05 * ring(missed)) - 1).max() for times in (alone, both)]
    assert error[0] > 0.1
    assert error[1] < 0.02


def test_a_curve_that_goes_otherwise_or_outruns_the_link_tells_nothing() -> None:
    own, other = np.array([0.5, 16, 32, 64]) * MIB, np.array([0.5, 16, 32, 64, 128, 256]) * MIB
    elsewhere = np.stack([other, ring(other) * np.where(other > 32 * MIB, 1.2, 1.0)])
    assert told_calls(own, ring(own), (elsewhere,)).shape == (2, 0)
    flat = np.stack([other, ring(np.minimum(other, 128 * MIB))])
    assert told_calls(own, ring(own), (flat,))[0].tolist() == [128 * MIB, 256 * MIB]
    assert told_calls(own, ring(own), (flat,), flattest=1e-12).shape == (2, 0)
