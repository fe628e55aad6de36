"""The measuring script writes what `calibrate` reads: with a backend that tells times instead of taking them."""

from __future__ import annotations

import csv
import math
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rackmodel.calibration import measure as script
from rackmodel.calibration.attention_calls import read_calls
from rackmodel.calibration.measured import CannotError, KernelTime, Model
from rackmodel.calibration.part import calibrate, part_alone
from rackmodel.calibration.product_rows import read_products
from rackmodel.cost.inside.products import Device, compute_seconds, together
from rackmodel.model.resources import Products
from rackmodel.validation.run import validate


class TellingBackend:
    """Times by a formula, as if a GPU took them."""

    device, precisions, kernels = "a GPU", ("bfloat16",), ("torch_flash_attention_2", "cudnn")
    facts_of_products = Products(start="4 us", rate=0.7, load="100 GB/s", step="0.8 ns", memory=0.8, split="3 us")  # type: ignore[call-arg, arg-type]

    def __init__(self, most: float = math.inf) -> None:
        self.taken, self.most = 0, most

    def _one(self, seconds: float, watts: float | None = None) -> KernelTime:
        self.taken += 1
        if self.taken > self.most:
            raise KeyboardInterrupt
        return KernelTime(seconds, watts, None if watts is None else 1.5e9)

    def product(self, precision: str, m: int, n: int, k: int) -> KernelTime:
        device = Device(peak=989.4e12, blocks=132, element=2)
        compute = compute_seconds(self.facts_of_products, device, np.ones(1), np.array([m]), np.array([n]), np.array([k]))
        moved = 2.0 * (m * k + n * k + m * n) / (3.35e12 * self.facts_of_products.memory)
        return self._one(float(together(compute, np.array([moved]))[0]) + self.facts_of_products.start_s, 500.0)

    def attention(self, kernel: str, way: str, sequences: int, tokens: int, heads: tuple[int, int, int]) -> KernelTime:
        if kernel == "cudnn" and heads[2] == 128:
            raise CannotError("No available kernel")
        seconds = 1e-5 + 2.0 * sequences * tokens**2 * heads[0] * heads[2] / 4e14
        return self._one(seconds if way == "forward" else 2.5 * seconds)

    def moving(self, op: str, tokens: int, model: tuple[int, int, int, int]) -> KernelTime:
        return self._one(3e-6 + 6.0 * tokens * model[0] / 2e12)

    def training_product(self, way: str, m: int, n: int, k: int) -> KernelTime:
        return self.product("bfloat16", m, n, k)

    def training_op(self, op: str, way: str, mode: str, tokens: int, width: int) -> KernelTime:
        return self._one(3e-6 + (6.0 if mode == "compiled" else 20.0) * tokens * width / 3e12)

    def layer(self, kernel: str, mode: str, model: Model, sequences: int, tokens: int) -> list[KernelTime]:
        if mode == "compiled" and kernel == "cudnn":
            raise CannotError("the compiler takes another")
        parts = [KernelTime(seconds, kernels=count) for seconds, count in ((0.03, 21), (0.01, 4), (0.01, 90))]
        return [self._one(0.051, 690.0), *parts, KernelTime(0.004)]

    def contended(self, blocks: int, m: int, n: int, k: int) -> KernelTime:
        return self._one(2.0 * m * n * k / 7e14 * (1 + blocks / 100))

    def copied(self, way: str, size: int) -> KernelTime:
        return self._one(1e-6 + size / (3e12 if way == "device" else 5e10))

    def fact(self, name: str) -> float | None:
        return {"idle_w": 75.0, "busy_w": 690.0, "launch_s": 5e-6}.get(name)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("measured")
    return {path.stem: path for path in script.measure(TellingBackend(), "h100_sxm", folder)[0]}


def test_every_file_has_the_columns_that_calibrate_reads(files: dict[str, Path]) -> None:
    (products,) = read_products(files["products"])
    assert len(products) == len(script.ROWS) * len(script.SHAPES)
    assert 250 <= len(products) <= 260
    assert products.gpu == "h100_sxm"
    assert products.precision == "bf16"
    flash, other = read_calls(files["attention"], part_alone("h100_sxm"), "h100_sxm")
    assert (flash.kernel, other.kernel) == ("fa2", "cudnn")
    assert len(flash) == 2 * len(other) == len(script.CALLS) * len(script.LENGTHS)
    trained = read_calls(files["attention_training"], part_alone("h100_sxm"), "h100_sxm")
    assert [(one.kernel, one.use) for one in trained] == [(kernel, way) for kernel in ("fa2", "cudnn") for way in script.PASSES]
    assert "h100_sxm,a GPU,idle_w,75\n" in files["machine"].read_text()
    assert files["products"].read_text().splitlines()[1].endswith(",500.0,1500")


def test_a_layer_is_told_whole_and_in_parts(files: dict[str, Path]) -> None:
    rows = list(csv.DictReader(files["layers"].open(encoding="utf-8")))
    assert len(rows) == len(script.LAYERS) * 3 * len(script.PARTS)
    whole, products, attention, others, host = rows[:5]
    assert [row["part"] for row in rows[:5]] == list(script.PARTS)
    assert (whole["latency_us"], whole["power_w"], whole["kernels"]) == ("51000", "690.0", "")
    assert (products["kernels"], attention["kernels"], others["kernels"], host["kernels"]) == ("21", "4", "90", "")


def test_what_was_interrupted_goes_on_where_it_was(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        script.measure(TellingBackend(most=450), "h100_sxm", tmp_path)
    cut = tmp_path / "attention.csv"
    cut.write_bytes(cut.read_bytes()[:-7])  # as if it stopped amid a row
    rest = TellingBackend()
    paths, _ = script.measure(rest, "h100_sxm", tmp_path)
    whole = TellingBackend()
    script.measure(whole, "h100_sxm", tmp_path / "whole")
    assert rest.taken == whole.taken - 450 + 1
    assert {path.stem: sorted(path.read_text().splitlines()) for path in paths} == {
        name: sorted(path.read_text().splitlines()) for name, path in files.items()
    }


def test_what_the_gpu_cannot_do_is_left_out_and_said(tmp_path: Path) -> None:
    _, left_out = script.measure(TellingBackend(), "h100_sxm", tmp_path)
    assert left_out == [
        "layers: cudnn compiled 2 8192 32 8 whole and 1 more: the compiler takes another",
        "attention_training: cudnn bfloat16 16 128 0 32 32 128 0 forward and 55 more: No available kernel",
    ]


def test_a_file_of_something_else_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "products.csv").write_text("m,n,k\n1,2,3\n")
    with pytest.raises(ValueError, match=r"products\.csv has other columns"):
        script.measure(TellingBackend(), "h100_sxm", tmp_path)
    assert (tmp_path / "products.csv").read_text() == "m,n,k\n1,2,3\n"


def test_the_rows_are_rows_of_validate_too(files: dict[str, Path]) -> None:
    report = validate([files["products"], files["layer_ops"]])
    assert [row.refused for row in report.rows if row.refused] == []


def test_calibrate_finds_the_numbers_behind_them(files: dict[str, Path]) -> None:
    found = calibrate("h100_sxm", [files["products"]])
    facts = found[0].to_dict()["facts"]
    assert facts["rate"] == pytest.approx(0.7, rel=0.05)
    assert found[0].to_dict()["held_out_mean_abs_error_pct"] < 3.0


def test_fewer_rows_tell_nearly_as_much(files: dict[str, Path]) -> None:
    from tests.fits.subsample_products import errors

    (rows,) = read_products(files["products"])
    few, more = errors(rows, "h100_sxm", (60, 120), draws=1)
    assert few < 0.06
    assert more < 0.03


def test_nothing_loads_pytorch_before_a_gpu_is_asked_for() -> None:
    code = "import sys, rackmodel.calibration.measure; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_gpu_cannot_do_is_heard_where_the_script_is_run() -> None:
    """A script that is run is another module than the one that others import: what both raise and catch is of a third."""
    assert runpy.run_path(script.__file__)["CannotError"] is CannotError


def test_a_wrong_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["h100_sxm"]) == 2
    assert "usage" in capsys.readouterr().err
