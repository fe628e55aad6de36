"""Convolutions: windows as sums of indices, on a wafer's mesh with their halos, and 3D U-Net as a workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.cost.ledger import Ledger
from rackmodel.inputs import read_workload


def _on_cores(rows: int, columns: int, *sizes: str) -> Ledger:
    """One volume's forward pass on a mesh of cores, places along y and x on its rows and columns."""
    mesh = [f"core.count={rows * columns}", f"accelerators={rows * columns}", f"wafer.network.shape=[{rows}, {columns}]"]
    sets = [*mesh, f"axes.rows.degree={rows}", "n=1", "phases=[forward]", *sizes]
    return api.search("wse2_cores", "convolution", "wafer_volume", sets=sets).result.ledger


def test_neighbours_on_the_mesh_exchange_what_a_window_reaches_beyond_its_tile() -> None:
    """8 x 8 x 8 places of 32 features over 8 x 8 cores: each core reads 3 x 3 columns of 10 places, and all hold 10 x 10 between them."""
    ledger = _on_cores(8, 8, "x=8", "y=8", "z=8")
    assert ledger.where(action="halo", phase="forward").total("amount") == pytest.approx((64 * 3 * 3 - 10 * 10) * 10 * 32 * 2)
    macs = ledger.where(component="compute", action="mac").total("amount")
    assert macs == pytest.approx(2 * 8**3 * 32 * 32 * 27)


def test_a_seam_is_crossed_in_every_direction_that_is_split() -> None:
    """12 x 8 places, 5 x 3 taps, over 3 x 2 cores: 2 seams of 2 rows each way, of 10 inputs; then 1 seam of a column each way, of the 8
    inputs that each of 3 cores has by then: what cores read, 6 x 8 x 6, less what they hold, 16 x 10."""
    ledger = _on_cores(2, 3, "x=12", "y=8", "z=1", "i=5", "j=3", "k=1")
    assert ledger.where(action="halo").total("amount") == pytest.approx((2 * 2 * 2 * 10 + 2 * 1 * 1 * 24) * 32 * 2)


STRIDED = """\
workload: strided
phases: [forward, backward]
sizes: {n: 2, f: 4, c: 5, x: 8, i: 3}
precision: {activation: 16 bit, weight: 16 bit, gradient: 32 bit}
einsums: {C: "O[n,f,x] = I[n,c,2*x+3*i] * W[f,c,i]"}
"""


def test_borders_are_exchanged_for_the_weights_gradient_too(tmp_path: Path) -> None:
    """Windows of 7 inputs, 2 apart: two neighbours share 5 of 2 x 5 values of 2 bytes, 100 bytes a seam. They are exchanged forward, again
    for dW, as what is kept has no borders, and those of dI are added."""
    (tmp_path / "w.yaml").write_text(STRIDED, encoding="utf-8")
    (tmp_path / "m.yaml").write_text("mapper: m\naxes: {a: {degree: all}}\nsplit: {a: [x]}\nprofile: serial\n", encoding="utf-8")
    files = "rack_paper", str(tmp_path / "w.yaml"), str(tmp_path / "m.yaml")
    for accelerators, seams in ((1, 0), (2, 1), (4, 3)):
        ledger = api.search(*files, sets=[f"accelerators={accelerators}"]).result.ledger
        assert ledger.where(action="halo", phase="forward").total("amount") == 100 * seams
        assert ledger.where(action="halo", phase="backward").total("amount") == 2 * 100 * seams
    frozen = api.search(*files, sets=["accelerators=2", "tensors={W: {trained: false}}"]).result.ledger
    assert frozen.where(action="halo", phase="backward").total("amount") == 100


def test_borders_of_what_is_made_again_are_exchanged_once_for_both() -> None:
    """U-Net split along x: as many bytes forward, for the weights' gradients and for the inputs'; what is made again has its borders."""
    sets = ["accelerators=2", "split={dp: [x0, x1, x2, x3, x4]}", "gpu.memory.enforce=false"]
    for policy, again, backward in (("none", 0, 2), ("full", 1, 1)):
        halos = api.search("dgx_a100", "unet3d", "data", sets=[*sets, f"recompute={policy}"]).result.ledger.where(action="halo")
        once = halos.where(phase="forward").total("amount")
        assert halos.where(phase="recompute").total("amount") == pytest.approx(again * once)
        assert halos.where(phase="backward").total("amount") == pytest.approx(backward * once)


def test_unet_keeps_the_inputs_of_its_convolutions() -> None:
    """By hand, channels of whole planes: V, E0p, D0, C0, D0p, T0 with borders of 1; each level below has an eighth of the places."""
    result = api.search("dgx_a100", "unet3d", "data", sets=["accelerators=2", "split={dp: [n]}", "gpu.memory.enforce=false"]).result
    features, whole = (32, 64, 128, 256, 320), 0.0
    for level, f in enumerate(features):
        side = 512 // 2**level
        bordered = (1 if level == 0 else 0) + f + (2 * f + f if level < 4 else 0)
        plain = f  # what goes up or out
        whole += bordered * (side + 2) ** 3 + plain * side**3 + (f * (side + 1) ** 3 if level < 4 else 0)
    assert result.memory["activations"] == pytest.approx(2 * whole, rel=0.01)


def test_a_level_of_unet_is_half_as_wide() -> None:
    sizes = read_workload("unet3d").sections[0].workload.sizes
    assert [sizes[f"x{level}"] for level in range(5)] == [512, 256, 128, 64, 32]
