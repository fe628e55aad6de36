"""Products whose library picks its tile by a rule, and whose blocks together are held by the limit of power."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rackmodel.calibration.fit_products import Machine, ProductFit, forms_of, nearest, predict
from rackmodel.calibration.part import NOTHING, _stated, calibrated_products, part_alone, part_text
from rackmodel.calibration.product_rows import ProductRows
from rackmodel.cost.inside.gpu import gpu_of
from rackmodel.cost.inside.products import Device, compute_seconds
from rackmodel.inputs import read_architecture
from rackmodel.inputs.library import library_root
from rackmodel.model.dispatch import DISPATCH, blocks_of, lacking, picked
from rackmodel.model.resources import Products

DEVICE = Device(peak=100e12, blocks=100, element=1.0)


def facts(**changes: float | str | None) -> Products:
    said = {"start": "2 us", "rate": 0.8, "load": "100 TB/s", "memory": 0.8, "sustained": 0.5}
    return Products.model_validate({**said, **changes})


def next_power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def tile_of_sm89(m: int, n: int) -> tuple[int, int]:
    """As vLLM's source says it: the next power of two of the rows picks a table, that of the columns its line."""
    rows, columns = max(16, next_power_of_two(m)), next_power_of_two(n)
    if rows <= 16:
        return (16, 64) if columns <= 8192 else (16, 128) if columns <= 24576 else (32, 64)
    if rows <= 32:
        return (32, 128) if 8192 < columns <= 16384 else (32, 64)
    if rows <= 64:
        return (64, 128) if 8196 < columns <= 16384 else (64, 64)
    if rows <= 128:
        return (64, 128) if columns <= 8192 else (128, 128) if columns <= 16384 else (128, 64)
    if rows <= 256:
        return (64, 128) if columns <= 4096 else (128, 128)
    return (256, 128) if 4096 < columns <= 8192 else (128, 128)


def test_a_rule_picks_the_tiles_that_its_source_does() -> None:
    sizes = [1, 15, 16, 17, 32, 33, 64, 65, 128, 129, 255, 256, 257, 4095, 4096, 4097, 8192, 8193, 16384, 16385, 24576, 24577, 65536]
    m, n = (grid.ravel() for grid in np.meshgrid(np.array(sizes), np.array(sizes)))
    rows, columns = picked("cutlass_sm89", m, n)
    assert list(zip(rows, columns, strict=True)) == [tile_of_sm89(int(a), int(b)) for a, b in zip(m, n, strict=True)]


@pytest.mark.parametrize("rule", list(DISPATCH))
def test_every_size_has_a_tile_and_blocks_hold_the_result(rule: str) -> None:
    rng = np.random.default_rng(0)
    m, n = (np.round(2 ** rng.uniform(0, 17, 400)) for _ in range(2))
    rows, columns = picked(rule, m, n)  # type: ignore[arg-type]
    blocks = blocks_of(rule, m, n, rows, columns)  # type: ignore[arg-type]
    assert (rows >= 16).all()
    assert (blocks * rows * columns >= m * n).all()
    assert (lacking(rule, m, n) <= rows * np.ceil(n / columns)).all()  # type: ignore[arg-type]


def test_a_wave_that_is_not_full_counts_whole_until_all_blocks_meet_the_limit_of_power() -> None:
    """Blocks of 128 x 128 at 0.8 of 1 TFLOP/s, on 100 SMs: 10 x 11 are two waves; of 10 x 20 all together keep 0.5 of 100 TFLOP/s."""
    k, said = 1000.0 * 64, facts(dispatch="flashinfer_sm120")
    one = 2 * 128 * 128 * k / 0.8e12
    assert compute_seconds(said, DEVICE, 1, 128, 128, k) == pytest.approx(one)
    assert compute_seconds(said, DEVICE, 1, 1280, 1408, k) == pytest.approx(2 * one)
    assert compute_seconds(said, DEVICE, 1, 1280, 2560, k) == pytest.approx(2 * 1280 * 2560 * k / 50e12)
    assert compute_seconds(facts(dispatch="flashinfer_sm100"), DEVICE, 1, 128, 128 * 51, k) == pytest.approx(2 * one)  # a pair for each


def test_rows_that_a_tile_lacks_come_from_the_memory() -> None:
    """One row by 256 columns: two tiles fetch 127 rows that are not there."""
    m, n, k = 1.0, 256.0, 4096.0
    rows = ProductRows(gpu="toy", precision="fp8", m=np.array([m]), n=np.array([n]), k=np.array([k]), seconds=np.ones(1), source="toy.csv")
    slow = facts(dispatch="flashinfer_sm120", rate=1, start="0 s")
    memory = (k * (m + n) + 2 * m * n + 2 * 127 * k) / (0.8 * 1e9)
    assert predict(slow, Machine(device=DEVICE, bandwidth=1e9), rows) == pytest.approx([memory], rel=1e-3)


def _rows(true: Products, machine: Machine) -> ProductRows:
    rng = np.random.default_rng(1)
    m, n, k = (np.round(2 ** rng.uniform(low, high, 60)) for low, high in ((0, 15), (9, 14), (9, 14)))
    rows = ProductRows(gpu="toy", precision="fp8", m=m, n=n, k=k, seconds=np.ones(60), source="toy.csv")
    return replace(rows, seconds=predict(true, machine, rows))


def test_a_fit_finds_the_limit_of_power_and_the_rule_of_the_part() -> None:
    machine = Machine(device=DEVICE, bandwidth=2e12, dispatch="cutlass_sm90")
    rows = _rows(facts(load="80 GB/s", step="1 ns", block="2 us", quantise=3, dispatch="cutlass_sm90"), machine)
    found = nearest(rows, machine, forms_of(rows, machine, None))
    assert found.dispatch == "cutlass_sm90"
    assert found.sustained == pytest.approx(0.5, rel=0.02)


def test_a_part_of_another_library_says_that_the_rule_of_what_it_extends_is_none_of_its_own(tmp_path: Path) -> None:
    """Six tiles and one rate for all, beside an H100's kernels of vLLM."""
    plain = facts(load="80 GB/s", step="1 ns", sustained=None, quantise=3)
    stated = gpu_of(part_alone("h100_sxm"))
    assert stated is not None
    none, rows = np.zeros(1), _rows(plain, Machine(device=DEVICE, bandwidth=2e12))
    made = calibrated_products(rows, ProductFit(facts=plain, inside=none, outside=none), stated.facts.products["fp8"])
    (tmp_path / "mine.yaml").write_text(part_text("h100_sxm", "mine", [made]), encoding="utf-8")
    read = gpu_of(read_architecture(f"architecture: x\ntree:\n  name: gpu\n  part: {tmp_path / 'mine.yaml'}\n"))
    assert read is not None
    new = read.facts.products["fp8"]
    assert (new.dispatch, new.sustained, new.block_s) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"dispatch": "cutlass_sm91"}, "cutlass_sm90"),
        ({"dispatch": "cutlass_sm90", "split": "1 us"}, "splits no sum"),
        ({"sustained": 1.2}, "share"),
    ],
)
def test_what_no_product_has_is_refused(said: dict[str, float | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        facts(**said)


def _products_of(tree: Any) -> dict[str, Any]:
    """Products that a part's own file states."""
    found = ((tree.get("compute") or {}).get("kernels") or {}).get("products", {})
    return found or next((inner for child in tree.get("children", []) if (inner := _products_of(child))), {})


def test_a_part_takes_no_number_of_a_fit_that_it_has_not_from_what_it_extends() -> None:
    """RTX 4090's products of 16 bit had begin, latency and cache of an L40S's, beside numbers that were fitted without."""
    for file in sorted((library_root() / "specs" / "parts").glob("*.yaml")):
        own = _products_of(yaml.safe_load(file.read_text(encoding="utf-8")))
        gpu = gpu_of(part_alone(file.stem)) if own else None
        for precision, said in own.items():
            assert gpu is not None
            taken = [key for key in NOTHING if key not in said and _stated(gpu.facts.products[precision], key)]
            assert not taken, (file.stem, precision, taken)
