"""Matrix products fitted to measured kernels: the form by hand, what a fit finds again, the part it writes, how near parts are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackmodel.calibration import fit_products
from rackmodel.calibration.fit_products import (
    BEGIN,
    LATENCY_S,
    REUSE,
    Machine,
    _least_from,
    fit,
    forms_of,
    layers_of,
    predict,
    spread_of_layers,
    spread_of_sums,
)
from rackmodel.calibration.part import calibrate, calibrated_products, machine_of, part_alone, part_text
from rackmodel.calibration.product_rows import ProductRows, read_products
from rackmodel.cli.options import output_file
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.kernels import KernelPricer, looped_kernel_rows
from rackmodel.cost.inside.products import Device, compute_seconds, launched, looped_rate
from rackmodel.errors import InputError, OutputError
from rackmodel.inputs import read_architecture
from rackmodel.model.resources import EagerLaunch, Kernels, Products
from rackmodel.validation.products import PRODUCT, local_operation, price_local
from rackmodel.validation.rows import kind_of_columns

PUBLISHED = Path(__file__).parent / "data" / "published" / "products.csv"
PARTS = {"a100_sxm": "a100_sxm", "h100_sxm": "h100_sxm", "h200_sxm": "h200_sxm", "b200_sxm": "b200_sxm", "gb200": "gb200_gpu"} | {
    "b300_sxm": "b300_sxm",
    "rtx_pro_6000_server": "rtx_pro_6000",
}


def facts(**changes: float | str) -> Products:
    said = {"start": "2 us", "rate": 0.5, "load": "100 GB/s", "step": "1 ns", "memory": 0.8}
    return Products.model_validate({**said, **changes})


DEVICE = Device(peak=100e12, blocks=100, element=2.0)
ONE = np.ones((1, 1), dtype=np.int64)


def test_one_wave_by_hand() -> None:
    # 100 blocks of 128 x 128 at half of 1 TFLOP/s each: 2 · 128 · 128 · 1024 / 0.5e12 s; other tiles need more
    seconds = compute_seconds(facts(), DEVICE, 1, 128 * 10, 128 * 10, 1024)
    assert seconds == pytest.approx(2 * 128 * 128 * 1024 / 0.5e12)


def test_a_block_begins_in_every_wave_and_the_memory_once() -> None:
    """125 blocks of 128 x 256 on 100 SMs, 1.25 waves of 3 and 134.2 us, are faster than 250 of 128 x 128, 2.5 of 3 and 67.1. What 74 MB
    take at 0.8 of 2 TB/s comes after 4 us; the start before both."""
    m, n, k = 128.0, 128.0 * 250, 1024.0
    slow = facts(block="3 us", latency="4 us", load="10 TB/s", step="0 ns")
    compute, memory = 1.25 * (3e-6 + 2 * 128 * 256 * k / 0.5e12), 4e-6 + 2 * (m * k + n * k + m * n) / (0.8 * 2e12)
    rows = ProductRows(gpu="toy", precision="bf16", m=np.array([m]), n=np.array([n]), k=np.array([k]), seconds=np.ones(1), source="toy.csv")
    found = predict(slow, Machine(device=DEVICE, bandwidth=2e12), rows)
    assert found == pytest.approx([2e-6 + (compute**2.5 + memory**2.5) ** 0.4])


def test_a_row_of_tokens_is_bound_by_what_a_block_loads() -> None:
    # m = 1: a tile of 64 x 64 loads (1 + 64) · 2 B for each of 4,096 steps at 100 GB/s, more than its 1 ns a step
    fast = Device(peak=10e15, blocks=100, element=2.0)
    assert compute_seconds(facts(), fast, 1, 1, 64, 4096) == pytest.approx(4096 * 65 * 2 / 100e9)


def test_a_split_sum_fills_idle_blocks_and_pays_for_joining() -> None:
    alone = compute_seconds(facts(), DEVICE, 1, 64, 64, 8192)
    split = compute_seconds(facts(split="1 us"), DEVICE, 1, 64, 64, 8192)
    assert split == pytest.approx(alone / 32 + 1e-6 + 32 * 64 * 64 * 8 / (100e9 * 100))
    assert compute_seconds(facts(split="1 s"), DEVICE, 1, 64, 64, 8192) == pytest.approx(alone)


def test_a_host_that_launches_bounds_what_is_shorter_and_hides_behind_what_is_longer() -> None:
    eager = EagerLaunch.model_validate({"time": "80 us", "few": 16, "few_time": "50 us"})
    assert launched(np.array([1e-6, 1e-6]), eager, np.array([16, 17])) == pytest.approx([50e-6, 80e-6])
    assert launched(1e-3, eager, 64) == pytest.approx(1e-3, rel=1e-6)
    assert launched(80e-6, eager, 64) == pytest.approx(80e-6 * 2 ** (1 / 8))


def test_a_step_in_a_graph_does_not_pay_the_host() -> None:
    h100, one = read_architecture("h100"), {"m": np.array([16.0]), "n": np.array([4096.0]), "k": np.array([4096.0])}
    priced = {
        timed: float(price_local(h100, PRODUCT, one, 8, timed=timed, family="fp8_block")[1][0]) for timed in ("looped", "looped eager")
    }
    assert priced["looped eager"] == pytest.approx(60.87e-6, rel=0.01)
    assert priced["looped"] < 20e-6


@pytest.mark.parametrize("part", ["h100_sxm", "gb200_gpu", "gb300_gpu", "rtx_pro_6000", "a100_sxm"])
def test_the_engine_prices_a_product_in_a_loop_as_the_fit_does(part: str) -> None:
    """Of every width, whose results have 16 bit: as 8 bit, rows of sums of 768 came out up to a third too fast."""
    machine = part_alone(part)
    m, n, k = (np.array(sizes) for sizes in ([1.0, 300, 4096, 32768], [512.0, 6144, 65536, 65536], [65536.0, 4096, 768, 768]))
    gpu = gpu_of(machine)
    assert gpu is not None
    for precision, own in gpu.facts.products.items():
        device = machine_of(machine, precision)
        rows = ProductRows(gpu="", precision=precision, m=m, n=n, k=k, seconds=np.ones(4), source="")
        bits, family = int(8 * device.device.element), precision if own.operands else ""
        timed = "looped eager" if own.eager else "looped"
        engine = price_local(machine, PRODUCT, {"m": m, "n": n, "k": k}, bits, timed=timed, family=family)[1]
        assert engine == pytest.approx(predict(own, device, rows), rel=0.005), precision


def test_products_of_a_kind_that_is_no_width_say_their_operands() -> None:
    kernels = {"efficiency": 0.8, "products": {"fp8_rows": {"start": "2 us", "rate": 0.5, "load": "100 GB/s", "memory": 0.8}}}
    with pytest.raises(ValueError, match="'fp8_rows' is no width"):
        Kernels.model_validate(kernels)
    kernels["products"]["fp8_rows"]["operands"] = "8 bit"
    assert Kernels.model_validate(kernels).products["fp8_rows"].operands == "8 bit"


def test_more_rows_columns_or_sum_never_take_less() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        m, n, k = (int(2 ** rng.uniform(0, 14)) for _ in range(3))
        least = compute_seconds(facts(split="3 us"), DEVICE, 1, m, n, k)
        for grown in ((2 * m, n, k), (m, 2 * n, k), (m, n, 2 * k)):
            assert least <= compute_seconds(facts(split="3 us"), DEVICE, 1, *grown) * (1 + 1e-12)


def _synthetic(noise: float) -> tuple[ProductRows, Machine, Products]:
    rng = np.random.default_rng(1)
    m, n, k = (np.round(2 ** rng.uniform(low, high, 240)) for low, high in ((0, 15), (9, 15), (9, 15)))
    machine, true = Machine(device=DEVICE, bandwidth=2e12), facts(split="4 us", block="1 us", latency=f"{LATENCY_S} s")
    rows = ProductRows(gpu="toy", precision="bf16", m=m, n=n, k=k, seconds=np.ones(240), source="toy.csv")
    seconds = predict(true, machine, rows) * np.exp(noise * rng.standard_normal(240))
    return ProductRows(gpu="toy", precision="bf16", m=m, n=n, k=k, seconds=seconds, source="toy.csv"), machine, true


def test_what_a_loop_finds_in_a_cache_comes_at_its_rate() -> None:
    # 10 MB of 10 that the cache holds: a half at 8 TB/s, a half at 0.8 of 1 TB/s; a tenth of that all but 1 of 10^8
    kept = facts(reuse="10 MB", reuse_bandwidth="8 TB/s")
    assert looped_rate(kept, 1e12, 10e6) == pytest.approx(1 / (0.5 / 8e12 + 0.5 / 0.8e12))
    assert looped_rate(kept, 1e12, 1e6) == pytest.approx(8e12, rel=1e-6)
    assert looped_rate(facts(), 1e12, 1e6) == 0.8e12


def test_a_product_in_a_step_reads_from_the_memory_what_a_loop_finds_in_the_cache() -> None:
    """One row by 6,144 x 6,144 on an RTX PRO 6000: a loop over six such products leaves nothing in 128 MB; of 2,048 x 2,048 all."""
    machine = read_architecture("rtx_pro_6000_node")
    for size, least, most in ((6144.0, 1.0, 1.01), (2048.0, 1.2, 2.0)):
        local_op = local_operation(PRODUCT, {"m": np.array([1.0]), "n": np.array([size]), "k": np.array([size])}, 16)
        loop, step = (float(pricer(machine, local_op, ONE)[1][0]) for pricer in (looped_kernel_rows, KernelPricer(fitted=True)))
        assert least <= step / loop <= most


@pytest.mark.parametrize("said", [{"reuse": "1 MB"}, {"reuse_bandwidth": "1 TB/s"}])
def test_a_cache_of_loops_has_bytes_and_a_rate(said: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="reuse: want bytes"):
        facts(**said)


def test_a_fit_finds_the_cache_that_loops_used() -> None:
    rows, machine, _ = _synthetic(noise=0.0)
    kept = replace(machine, cache=50e6)
    true = facts(split="4 us", block="1 us", latency=f"{LATENCY_S} s", reuse="20 MB", reuse_bandwidth="8 TB/s")
    form = forms_of(rows, machine, None)[0]
    form = replace(form, free=(*form.free, *REUSE))
    found = _least_from(replace(rows, seconds=predict(true, kept, rows)), kept, form, BEGIN[0])[1]
    assert found.reuse_bytes == pytest.approx(20e6, rel=0.1)
    assert found.start_s == pytest.approx(true.start_s, rel=0.1)


def test_a_fit_finds_the_numbers_that_made_its_rows() -> None:
    rows, machine, true = _synthetic(noise=0.02)
    found = fit(rows, machine)
    assert found.inside.mean() < 0.025
    assert found.outside.mean() < 0.03
    assert found.facts.rate == pytest.approx(true.rate, rel=0.05)
    assert found.facts.memory == pytest.approx(true.memory, rel=0.05)
    assert found.facts.start_s == pytest.approx(true.start_s, rel=0.15)


@pytest.mark.parametrize(("host_s", "hidden"), [(1.3e-3, True), (1.0e-3, False)])
def test_a_host_that_takes_longer_than_any_weights_hides_what_the_memory_keeps(host_s: float, hidden: bool) -> None:
    """32,768 x 32,768 of two bytes at 0.9 of 2 TB/s: 1.19 ms."""
    rows, machine, _ = _synthetic(noise=0.0)
    largest = replace(rows, n=np.full(240, 32768.0), k=np.full(240, 32768.0), seconds=np.full(240, host_s))
    for form in forms_of(replace(largest, precision="fp8_block"), machine, facts(memory=0.9)):
        assert ("memory" in form.free) is not hidden
        assert form.fixed.get("memory") == (0.9 if hidden else None)


def test_a_written_part_is_the_part_with_the_fitted_products(tmp_path: Path) -> None:
    rows, machine, _ = _synthetic(noise=0.0)
    found = fit(rows, machine)
    (tmp_path / "mine.yaml").write_text(part_text("h100_sxm", "mine", [calibrated_products(rows, found)]), encoding="utf-8")
    read = read_architecture(f"architecture: x\ntree:\n  name: gpu\n  part: {tmp_path / 'mine.yaml'}\n")
    new, old = gpu_of(read), gpu_of(part_alone("h100_sxm"))
    assert new is not None
    assert old is not None
    assert new.facts.products["bf16"].rate == pytest.approx(found.facts.rate, rel=1e-3)
    assert new.facts.products["fp8"] == old.facts.products["fp8"]
    assert new.facts.tiles == old.facts.tiles


@pytest.mark.parametrize("gpu", list(PARTS))
def test_shipped_products_are_near_what_was_measured(gpu: str) -> None:
    """Every twelfth visible row; the bars are of the fits' own class of error (8 to 10 % on shapes held out)."""
    part = part_alone(PARTS[gpu])
    for rows in read_products(PUBLISHED):
        if rows.gpu != gpu:
            continue
        known = gpu_of(part)
        assert known is not None
        predicted = predict(known.facts.products[rows.precision], machine_of(part, rows.precision), rows)
        error = np.abs(predicted / rows.seconds - 1)
        assert error.mean() < 0.12, (gpu, rows.precision)
        assert np.median(error) < 0.09, (gpu, rows.precision)


def _products(unit: float) -> str:
    """Forty products at 0.8 of an H100's 989.4 TFLOP/s, their microseconds off by `unit`."""
    times = {64 * one: unit * 2 * 64 * one * 8192**2 / (0.8 * 989.4e12) * 1e6 for one in range(128, 168)}
    return "gemm_dtype,m,n,k,latency_us\n" + "\n".join(f"bf16,{m},8192,8192,{us}" for m, us in times.items()) + "\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,latency_us\n1,2,3\n", "rows.csv:1:1: no column .k.; the file has m, n, latency_us"),
        ("m,n,k,latency\n1,2,3,4\n", "(?s)no column .latency_us.; the file has .*known: latency_us, .*did you mean"),
        ("m,n,k,latency_us\n1,2,x,4\n", "rows.csv:2:1: k: .x. is no number"),
        ("m;n;k;latency_us\n1;2;3;4\n", "rows.csv:1:1: columns are apart by semicolons: want commas"),
        ("m,n,k,latency_us\n", "rows.csv:1:1: no rows below the names of columns"),
        ("m,n,k,latency_us\n1,2,3,-4\n", "must be positive"),
        ("system,gemm_dtype,m,n,k,latency_us\na,bf16,1,2,3,4\nb,bf16,1,2,3,4\n", "--gpu"),
        ("system,gemm_dtype,m,n,k,latency_us\na,bf16,1,2,3,4\n", "want 30 or more"),
        ("gemm_dtype,m,n,k,latency_us\nbf16,1.5,2,3,4\n", "rows.csv:2:1: m: .1.5.: want a whole number"),
        ("m,n,k,latency_us\n1,2,3,4\n", r"rows.csv:2:1: gemm_dtype: no column says a precision \(gemm_dtype"),
        ("gemm_dtype,m,n,k,latency_us\nbfloat,1,2,3,4\n", "rows.csv:2:1: gemm_dtype: rows are at 'bfloat': want one that h100_sxm mult"),
        ("gemm_dtype,m,n,k,latency_us\n" + "bf16,4096,4096,4096,180\n" * 40, "1 different products .* want 30 or more"),
        (_products(unit=1e-3), "would run at 800 times the part's peak of bf16: another part, precision or unit of time"),
        (_products(unit=1e3), "every product of bf16 takes 1250 times as long as the part's peak"),
    ],
)
def test_files_that_cannot_be_fitted_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        calibrate("h100_sxm", [file])


def test_what_is_wrong_with_the_question_is_told_before_rows_are_fitted(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(_products(unit=1.0), encoding="utf-8")
    with pytest.raises(InputError, match=r"(?s)^--part: no part called 'h100_sxx'.*did you mean 'h100_sxm'"):
        calibrate("h100_sxx", [file])
    with pytest.raises(InputError, match=r"^--part: the part states no kernels to fit$"):
        calibrate("hnlpu_module", [file])
    with pytest.raises(InputError, match=r"^--gpu: no rows of 'other': no row names a GPU$"):
        calibrate("h100_sxm", [file], "other")
    with pytest.raises(OutputError, match="is a folder, want a file"):
        output_file(tmp_path)
    with pytest.raises(OutputError, match="no such folder"):
        output_file(tmp_path / "none" / "part.yaml")


def test_columns_nearly_called_as_those_of_a_kind_of_rows_are_told() -> None:
    said = "no kind of rows has the columns M, N, K, latency_us: product rows have 'k' where the file has 'K'"
    with pytest.raises(InputError, match=said):
        kind_of_columns(["M", "N", "K", "latency_us"], Path("rows.csv"))


def test_what_no_fit_takes_is_said(tmp_path: Path) -> None:
    """Few rows of one kernel say so beside what is fitted, and are an error alone; a part without a fact was written of them."""
    head = "system,kernel_source,kv_cache_dtype,batch_size,q_len,past_kv_len,num_heads,num_key_value_heads,head_dim,latency_us"
    rows = [
        f"h100_sxm,{kernel},bfloat16,4,1,1024,32,8,128,{us}"
        for kernel, us in (("vllm_flash_attn", 12), ("none", 12), ("vllm_flash_attn", 0))
    ]
    file = tmp_path / "calls.csv"
    file.write_text("\n".join([head, *rows]) + "\n")
    left: list[str] = []
    with pytest.raises(
        InputError, match=r"no kernel to fit: .*from line 3.*; 1 row of calls\.csv .from line 4.: no latency_us; 1 calls of fa3"
    ):
        calibrate("h100_sxm", [file], left=left)
    assert len(left) == 3
    moe = tmp_path / "moe.csv"
    lines = (PUBLISHED.parent / "experts.csv").read_text(encoding="utf-8").splitlines()
    moe.write_text("\n".join([lines[0], *[line for line in lines if line.startswith("h100_sxm") and "bfloat16" in line][:5]]) + "\n")
    with pytest.raises(InputError, match="no kernel to fit: 5 calls of triton bf16: want 30 or more"):
        calibrate("h100_sxm", [moe])


def test_of_one_shape_every_fifth_row_is_held_out_and_no_fold_is_fitted_to_nothing() -> None:
    rows, _, _ = _synthetic(noise=0.0)
    one = replace(rows, n=np.full(len(rows), 4096.0), k=np.full(len(rows), 4096.0))
    folds = fit_products._folds(one)
    assert np.sum(folds, axis=0).tolist() == [1] * len(rows)
    assert all(fold.sum() <= -(-len(rows) // 5) for fold in folds)


def test_rows_that_are_held_out_are_foretold_by_the_best_fit_from_every_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One begin ends in a valley for some rows alone: of the toy's, one that is told to do so where rows are left out."""
    rows, machine, _ = _synthetic(noise=0.02)
    honest = fit(rows, machine)
    least_from = fit_products._least_from

    def trapped(some: ProductRows, on: Machine, form: fit_products.Form, begin: Mapping[str, float]) -> tuple[float, Products]:
        cost, found = least_from(some, on, form, begin)
        valley = begin is fit_products.BEGIN[0] and len(some) < len(rows)
        return (2 * cost, found.model_copy(update={"rate": found.rate / 2})) if valley else (cost, found)

    monkeypatch.setattr(fit_products, "_least_from", trapped)
    assert fit(rows, machine).outside.mean() == pytest.approx(honest.outside.mean(), rel=1e-3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"m,n,k,latency_us\n64,64,64,1\n" + b'"64,64,64,1\n' + b"64,64,64,1\n" * 20_000, "p.csv:3:1: no CSV"),
        ("m,n,k,latency_us,gpu\n64,64,64,1,é\n".encode("latin-1"), "p.csv: no text in UTF-8"),
        (b"m,n,k,latency_us,latency_us\n64,64,64,1,2\n", "p.csv:1:1: column 'latency_us' is there twice: keep one"),
        (b"m,n,k,latency_us\n64,64,64,1,2\n", "p.csv:2:1: more values than columns"),
    ],
)
def test_measured_products_that_are_no_table_are_refused_at_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.csv").write_bytes(data)
    with pytest.raises(InputError) as refused:
        read_products(Path("p.csv"))
    assert said in str(refused.value)


def test_measured_products_as_spreadsheets_write_them(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b"\xef\xbb\xbfm,n,k,latency_us\r\n64,128,256,3\r\n\r\n")
    (rows,) = read_products(path)
    assert (rows.m[0], rows.n[0], rows.k[0], rows.seconds[0]) == (64, 128, 256, pytest.approx(3e-6))


def test_a_precision_is_known_in_capitals_too(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("gpu,m,n,k,dtype,time_ms\nH200,64,64,64,BF16,0.01\nH200,64,64,64,bfloat16,0.01\nH200,64,64,64,FP8,0.01\n")
    assert [(rows.precision, len(rows)) for rows in read_products(file)] == [("bf16", 2), ("fp8", 1)]


def test_sums_of_a_layers_products_say_how_far_its_fit_is_off() -> None:
    """Five products with a side of 4,096 and five with one of 6,144, for each of four numbers of rows, make 40 sums of four; few rows,
    short sums and long ones are of no layer. Errors of one side: its sums are 1.1 of what the other's say, and those 0.909 of its."""
    shapes = [(width, side) for width in (4096.0, 6144.0) for side in (1024.0, 2048.0, 8192.0, 12288.0, 16384.0)]
    odd = [(1024.0, 4096.0, 4096.0), (8192.0, 4096.0, 512.0), (8192.0, 4096.0, 51200.0)]
    m, n, k = np.array([*((m, n, k) for m in (2048.0, 4096.0, 8192.0, 16384.0) for n, k in shapes), *odd]).T
    rows = ProductRows(gpu="g", precision="bf16", m=m, n=n, k=k, seconds=m * n * k, source="s")
    layer = np.arange(len(m)) < 40
    ratio = np.where(n == 6144.0, 1.1, 1.0) * np.where(layer, 1.0, 9.0)
    assert [len(list(own)) for own in (layers_of(rows), layers_of(rows.only(n == 6144.0)))] == [40, 20]
    assert spread_of_layers(rows, ratio) == pytest.approx(0.1)
    assert spread_of_layers(rows.only(m < 16384.0), ratio[m < 16384.0]) == 0.0  # 30 sums are too few to tell
    assert spread_of_sums(np.full(50, 4096.0), np.linspace(0.5, 2.0, 50)) == 0.0  # of one side alone, nothing tells of another
    wild = np.random.default_rng(0).uniform(0.5, 2.0, 50)
    one, other = np.median(wild[:25]), np.median(wild[25:])
    away = np.abs(np.concatenate([wild[:25] / other, wild[25:] / one]) - 1)
    assert spread_of_sums(np.repeat([4096.0, 6144.0], 25), wild) == pytest.approx(np.percentile(np.tile(away, 10), 90))
