"""The measuring script writes what `calibrate` reads: with a backend that tells times instead of taking them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rackmodel.calibration import measure as script
from rackmodel.calibration.attention_calls import read_calls
from rackmodel.calibration.part import calibrate, part_alone
from rackmodel.calibration.product_rows import read_products
from rackmodel.cost.inside.products import Device, compute_seconds, together
from rackmodel.model.resources import Products
from rackmodel.validation.run import validate


class TellingBackend:
    """Times by a formula, as if a GPU took them."""

    device, precisions, kernel = "a GPU", ("bfloat16",), "torch_sdpa"
    facts_of_products = Products(start="4 us", rate=0.7, load="100 GB/s", step="0.8 ns", memory=0.8, split="3 us")  # type: ignore[call-arg, arg-type]

    def product(self, precision: str, m: int, n: int, k: int) -> script.KernelTime:
        device = Device(peak=989.4e12, blocks=132, element=2)
        compute = compute_seconds(self.facts_of_products, device, np.ones(1), np.array([m]), np.array([n]), np.array([k]))
        moved = 2.0 * (m * k + n * k + m * n) / (3.35e12 * self.facts_of_products.memory)
        seconds = float(together(compute, np.array([moved]))[0]) + self.facts_of_products.start_s
        return script.KernelTime(seconds, 500.0)

    def attention(self, sequences: int, tokens: int, heads: tuple[int, int, int]) -> tuple[script.KernelTime, script.KernelTime]:
        seconds = 1e-5 + 2.0 * sequences * tokens**2 * heads[0] * heads[2] / 4e14
        return script.KernelTime(seconds), script.KernelTime(2.5 * seconds)

    def moving(self, op: str, tokens: int, model: tuple[int, int, int, int]) -> script.KernelTime:
        return script.KernelTime(3e-6 + 6.0 * tokens * model[0] / 2e12)

    def facts(self) -> Mapping[str, float]:
        return {"idle_w": 75.0, "busy_w": 690.0, "launch_s": 5e-6}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("measured")
    return {path.stem: path for path in script.measure(TellingBackend(), "h100_sxm", folder)}


def test_every_file_has_the_columns_that_calibrate_reads(files: dict[str, Path]) -> None:
    (products,) = read_products(files["products"])
    assert len(products) == len(script.ROWS) * len(script.SHAPES)
    assert 250 <= len(products) <= 260
    assert products.gpu == "h100_sxm"
    assert products.precision == "bf16"
    (calls,) = read_calls(files["attention"], part_alone("h100_sxm"), "h100_sxm")
    assert len(calls) == len(script.CALLS) * len(script.LENGTHS)
    assert "idle_w,75.0" in files["machine"].read_text()


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


def test_a_wrong_command_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["h100_sxm"]) == 2
    assert "usage" in capsys.readouterr().err
