"""The rack paper's demo, `compare rack_paper ffn data tensor pipeline_tensor --set accelerators=32`: joules from traffic times pJ/bit.

32 accelerators in 4 racks of 8; X [m, d], H [m, f] and their gradients of 2 bytes, weights of 2, their gradients of 4. By hand, of all
accelerators together, in bytes that the accelerators' memories read and write and that cross the links:

    p rows of everything that is replicated or gathered by p: p W (data), p X (tensor), and p X and p H where both ends are gathered
    rings of p: (p − 1) of what an all-gather or reduce-scatter makes, 2 (p − 1) of an all-reduce; one link in 8 leaves a rack
"""

from __future__ import annotations

import pytest

from rackmodel import api

M, D, F = 16 * 2048, 4096, 14336
X, H, W, GRADIENTS = 2 * M * D, 2 * M * F, 2 * 2 * D * F, 2 * 4 * D * F
FORWARD, MACS = 2 * M * D * F, 3 * 2 * M * D * F
PJ = 1e-12
BLOCK, REGISTER, HBM, HOME, LINK, BETWEEN_RACKS = (8 * pj * PJ for pj in (0.2, 0.033, 5, 20, 1.3, 20))


def joules(reads: int, writes: int, home: int, ring: int, sent: int = 0) -> float:
    """Of bytes. Every word that the memory reads or writes passes the block's memory once in and once out; what it reads is written to the
    registers, of which each MAC reads three words and writes one."""
    on_chip = (reads + writes) * (HBM + 2 * BLOCK) + (MACS * (3 + 1) * 2 + reads) * REGISTER
    return MACS * 0.72 * PJ + on_chip + home * HOME + ring * (7 / 8 * LINK + 1 / 8 * BETWEEN_RACKS) + sent * BETWEEN_RACKS


DATA = joules(
    reads=(X + H + 32 * W) + (3 * X + 3 * H + 32 * W),
    writes=(H + X) + (H + X + 32 * GRADIENTS),
    home=(X + 32 * W + X) + 2 * X,
    ring=2 * 31 * GRADIENTS,
)
TENSOR = joules(
    reads=(32 * X + H + W) + (3 * 32 * X + 3 * H + W),
    writes=(H + 32 * X) + (H + 32 * X + GRADIENTS),
    home=(X + W + X) + 2 * X,
    ring=4 * 31 * X,
)
PIPELINE = joules(
    reads=(16 * X + 16 * H + W) + (18 * X + 18 * H + W),
    writes=(H + X) + (16 * H + 16 * X + GRADIENTS),
    home=(X + W + X) + 2 * X,
    ring=2 * 15 * (X + H),
    sent=2 * H,
)


@pytest.mark.parametrize(("mapper", "by_hand"), [("data", DATA), ("tensor", TENSOR), ("pipeline_tensor", PIPELINE)])
def test_the_joules_of_the_demo_are_its_traffic_times_its_prices(mapper: str, by_hand: float) -> None:
    assert api.search("rack_paper", "ffn", mapper, sets=["accelerators=32"]).result.energy_j == pytest.approx(by_hand, rel=1e-12)


def test_the_demo_prints_what_the_hand_says() -> None:
    assert [round(joule, 2) for joule in (DATA, TENSOR, PIPELINE)] == [36.53, 36.39, 36.97]
