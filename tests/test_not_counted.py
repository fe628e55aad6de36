"""What a machine is made of that its file does not state: `carbon` says so, and how a figure of one's own would count."""

from __future__ import annotations

import pytest

from rackmodel.carbon.bill import bill_of
from rackmodel.inputs import read_architecture
from rackmodel.inputs.carbon_tables import carbon_tables
from tests.commands import invoke

TABLES = carbon_tables()


@pytest.mark.parametrize(
    ("machine", "said", "way"),
    [
        ("tpu_v5p", "nothing is stated of: tray, host, network, facility", "cube.embodied="),
        ("groq_rack", "nothing is stated of: tray, host, network, facility", "node.embodied="),
        ("dgx_h100", "nothing is stated of: facility", ""),
    ],
)
def test_the_command_says_what_is_not_counted_and_how_it_would_be(machine: str, said: str, way: str) -> None:
    words = " ".join(invoke(["carbon", machine]).stdout.split())
    assert said in words
    assert (f"--set {way}" in words) == bool(way)
    assert "nothing is stated" not in invoke(["carbon", machine, "--boundary", "module"]).stdout


def test_a_host_of_one_s_own_counts_for_each_level_in_use() -> None:
    """512 chips of a TPU v5p are in 8 cubes of 64: 500 kg each, as the command proposes."""
    machine = read_architecture("tpu_v5p", ["cube.embodied={parts: {host: {carbon: 500 kg, boundary: host}}}"])
    without, counted = bill_of(read_architecture("tpu_v5p"), TABLES), bill_of(machine, TABLES)
    assert counted.total_g().mid - without.total_g().mid == pytest.approx(8 * 500e3)
    assert (counted.silent, counted.nothing_of) == (("pod",), ("tray", "network", "facility"))
