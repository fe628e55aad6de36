"""What the meter of a benchmark shows: its share of a loop by hand, layouts of blocks, and readings of kernels that were compiled first."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel.validation.compiled import LAYOUTS, Layout, blackwell_layout, compiled_first, hopper_layout
from rackmodel.validation.meter import Loop, readings, share_of
from rackmodel.validation.run import validate


def test_the_meter_shows_half_of_a_loop_of_a_second() -> None:
    """1,001 calls of 1 ms after six: samples at 0, 0.1 ... 1.0 s hold 6 ms and what has run since; the last one a whole second."""
    assert share_of(1e-3) == pytest.approx((11 * 0.006 + 5.5 - 0.006) / 11)
    assert readings([Loop(700.0, 1e-3, waiting_w=100.0)]) == pytest.approx([100 + 600 * share_of(1e-3)])
    assert readings([Loop(700.0, 1e-3)]) == pytest.approx([700])


def test_a_short_loop_reads_as_what_ran_before_it() -> None:
    """3,000 calls of 0.1 ms at 700 W after a loop at 400, then 3,000 of 10 us, read once: 0.06 ms of them, 300.6 of the one before."""
    loops = [Loop(400.0, 1e-3), Loop(700.0, 1e-4), Loop(900.0, 1e-5)]
    shown = readings(loops)
    assert shown[0] == pytest.approx(400)
    assert shown[1] == pytest.approx(400 + 300 * share_of(1e-4))
    assert shown[2] == pytest.approx(900 * 6e-5 + 700 * 0.3006 + 400 * (1 - 0.30066))
    waited = readings([loops[0], loops[1]._replace(waiting_w=100.0), loops[2]])
    assert waited[2] == pytest.approx(900 * 6e-5 + 700 * 0.3006 + 100 * (1 - 0.30066))


def test_the_meter_shows_all_of_a_loop_that_lasts() -> None:
    """Six calls of 20 s after six to warm up: no sample holds anything else."""
    assert share_of(20.0) == 1.0


def test_a_meter_shows_little_of_a_loop_of_3_000_short_calls() -> None:
    # 3,000 calls of 10 us last 30 ms: one sample, which holds the six calls before it
    assert share_of(1e-5) == pytest.approx(6e-5)


def test_a_hopper_shares_operands_but_in_a_single_wave() -> None:
    """8,192 x 512 are 128 blocks of 256 x 128, one wave of 132 SMs; 16,384 x 512 are two, where two blocks fetch weights together."""
    assert hopper_layout(8192, 512, 4096, 132) == Layout(256, 128, False, 1, 1, 3)
    assert hopper_layout(16384, 512, 4096, 132) == Layout(256, 128, False, 1, 2, 3)


def test_a_blackwell_takes_the_fewest_waves_of_pairs_of_blocks() -> None:
    """32,768 x 2,048 in pairs: 240 x 128 swapped are 137 · 16 blocks, 15 waves of 148; 16,384 x 2,048 8, and no fewer with other sides."""
    layout = blackwell_layout(32768, 2048, 10240, 148)
    assert (layout.m, layout.n, layout.swapped, layout.shared_m * layout.shared_n) == (240, 128, True, 2)
    assert blackwell_layout(16384, 2048, 10240, 148) != layout


def test_layouts_fit_into_shared_memory_and_cover_the_result() -> None:
    for layout_of, cores in ((hopper_layout, 132), (blackwell_layout, 148)):
        for m, n, k in ((4, 512, 4096), (64, 65536, 768), (100, 7168, 2048), (32768, 10240, 65536)):
            layout = layout_of(m, n, k, cores)
            assert (layout.m + layout.n) * 128 * layout.stages // (layout.shared_m * layout.shared_n) <= 232_448
            assert layout.stages >= 3


def test_a_kernel_is_compiled_where_no_more_rows_had_its_layout() -> None:
    sizes = [(m, 512, 4096) for m in (32768, 16384, 8192, 4096)]
    assert compiled_first(LAYOUTS["hopper"], 132, sizes) == [True, False, True, True]
    assert compiled_first(LAYOUTS["hopper"], 132, sizes[1:]) == [True, True, True]
    assert compiled_first(LAYOUTS["hopper"], 132, []) == []


def test_a_run_that_is_taken_up_anew_compiles_its_kernels_anew() -> None:
    """Rows from the most to the fewest, columns as well: of 8,192 rows those of 4,096 columns ran before it stopped, 512 after."""
    sizes = [(m, n, 4096) for m in (8192, 4096) for n in (4096, 512)]

    def one(m: int, n: int, k: int, cores: int) -> Layout:
        return Layout(128, 128, False, 1, 1, 4)

    assert compiled_first(one, 132, sizes) == [True, True, False, False]
    assert compiled_first(one, 132, sizes, last=(8192, 1024)) == [True, True, True, False]
    assert compiled_first(one, 132, sizes, last=(4096, 4096)) == [True, True, False, True]


READINGS = [
    *[("h200_sxm", 700, m, 1536, 16384, us, watts) for m, us, watts in ((32768, 2218, 428), (16384, 1132.4, 692), (8192, 564, 692))],
    *[("h200_sxm", 700, m, 512, 65536, us, watts) for m, us, watts in ((32768, 5285, 410), (16384, 2668, 682), (8192, 1333, 400))],
    *[("b200_sxm", 1000, m, 2048, 10240, us, watts) for m, us, watts in ((32768, 879, 604), (16384, 428, 579), (8192, 225, 972))],
    *[("b200_sxm", 1000, m, 4096, 65536, us, watts) for m, us, watts in ((32768, 11025, 702), (16384, 5299, 973), (8192, 2500, 693))],
]
"""System, limit, m, n, k, microseconds and watts of products in fp8 by blocks (NVIDIA aiconfigurator 095f58a51c4c, gemm_perf)."""


def test_readings_fall_where_a_kernel_was_compiled_and_nowhere_else(tmp_path: Path) -> None:
    """The same product per row draws 400 or 690 W on an H200 by that alone: each reading is met to 17 %."""
    lines = ["system,framework,version,gemm_dtype,power_limit_w,m,n,k,latency_us,power_w"]
    lines += [f"{system},VLLM,0.22.0,fp8_block,{limit},{m},{n},{k},{us},{watts}" for system, limit, m, n, k, us, watts in READINGS]
    path = tmp_path / "aic_gemm.csv"
    path.write_text("\n".join(lines), "utf-8")
    rows = [row for row in validate([path], intervals=False).rows if row.unit == "W"]
    assert len(rows) == len(READINGS)
    assert max(abs(row.error) for row in rows) < 0.17
    waited = [any("waited" in text for text in row.assumptions) for row in rows]
    assert waited == [True, False, False, True, False, True, True, True, False, True, False, True]


def test_watts_of_a_short_loop_are_those_of_the_loop_before(tmp_path: Path) -> None:
    """1,536 columns had their kernel of fp8 compiled and 2,048 not: what the same products at 4 bit read is 578 and 930 W by that."""
    loops = [("bfloat16", 119.7, 959), ("fp8_block", 155.3, 392), ("nvfp4", 68.7, 578)]
    lines = [f"1536,12288,{form},{us},{watts}" for form, us, watts in loops]
    loops = [("bfloat16", 136.9, 992), ("fp8_block", 156.6, 954), ("nvfp4", 65.6, 930)]
    lines += [f"2048,10240,{form},{us},{watts}" for form, us, watts in loops]
    lines = [f"b200_sxm,VLLM,0.22.0,1000,4096,{line}" for line in lines]
    lines += ["b200_sxm,VLLM,0.22.0,1000,32768,2048,10240,fp8_block,879.2,604"]  # whose kernel 4,096 rows have, too
    found = []
    for framework in ("VLLM", "other"):  # of which nothing is known
        path = tmp_path / framework / "aic_gemm.csv"
        path.parent.mkdir()
        text = "\n".join(["system,framework,version,power_limit_w,m,n,k,gemm_dtype,latency_us,power_w", *lines])
        path.write_text(text.replace("VLLM", framework), "utf-8")
        watts = [row for row in validate([path], intervals=False).rows if row.unit == "W"]
        found.append([abs(row.error) for row in watts if row.precision == "nvfp4"])
    assert max(found[0]) < 0.12
    assert min(found[1]) > 0.15
