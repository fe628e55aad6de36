"""What devices hold of passes under way where their chunks hold unlike layers, by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rackmodel.cost.step.bounds.figures import BETWEEN, HELD, Holding
from rackmodel.cost.step.bounds.memory import device_memory, least_in_flight, memory_of
from rackmodel.cost.step.clock.pipeline_orders import order
from rackmodel.cost.step.cut import cut
from rackmodel.model.schedules import FOLDED, SPLIT
from tests.samples import some

EMBED, LAYER, HEAD = 100.0, 10.0, 1.0
"""Bytes that a pass saves, of each section."""
FLYING = ("activations", "host in flight")


def saved(schedule: str, stages: int, chunks: int, layers: tuple[int, ...], micro_batches: int) -> list[float]:
    """Bytes of activations on each device."""
    nothing = dict.fromkeys(HELD, np.zeros((1, 1)))
    sections = [
        Holding(layer, nothing | {"activations": np.full((1, 1), size)}) for layer, size in ((False, EMBED), (True, LAYER), (False, HEAD))
    ]
    made = cut((1, sum(layers), 1), (False, True, False), stages, chunks, layers)
    parts = [device_memory(sections, made, schedule, np.array([micro_batches]), device) for device in range(stages)]
    return [float(one["activations"].item()) for one in parts]


@pytest.mark.parametrize(
    ("layers", "first", "last"),
    [
        # the first device runs F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 …: it holds 3 passes of its first chunk beside 2 of
        # its second, and 4 beside 1. The last runs F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 …: 2 beside 1, and 3 beside none.
        ((1, 1, 1, 1), 4 * (EMBED + LAYER) + LAYER, 3 * LAYER + HEAD),
        ((2, 1, 0, 1), 4 * (EMBED + 2 * LAYER), 3 * LAYER + HEAD),
        ((0, 1, 1, 1), 4 * EMBED + LAYER, 3 * LAYER + HEAD),
        ((0, 2, 2, 0), 4 * EMBED + 2 * LAYER, 3 * 2 * LAYER),
        ((0, 0, 2, 2), 4 * EMBED + 2 * LAYER, 2 * LAYER + HEAD),
    ],
)
def test_chunks_that_hold_other_layers_have_passes_of_their_own_under_way(layers: tuple[int, ...], first: float, last: float) -> None:
    assert saved("interleaved", 2, 2, layers, 8) == [first, last]


@pytest.mark.parametrize(("schedule", "passes"), [("zb_h1", 4), ("zb_h2", 7)])
def test_what_a_head_saves_waits_for_its_weight_gradients(schedule: str, passes: int) -> None:
    """Of 4 stages the last runs its first weight gradients 3 (ZB-H1) or 6 (ZB-H2) backward passes later: p or 2p - 1 passes are held."""
    assert saved(schedule, 4, 1, (1, 1, 1, 1), 8) == [passes * (EMBED + LAYER), passes * LAYER, passes * LAYER, passes * (LAYER + HEAD)]
    assert saved("1f1b", 4, 1, (1, 1, 1, 1), 8) == [4 * (EMBED + LAYER), 3 * LAYER, 2 * LAYER, LAYER + HEAD]


def test_least_in_flight_is_below_every_deal_of_layers_to_chunks() -> None:
    stages, chunks, m = 4, 3, np.array([8])
    for device in range(stages):
        least = least_in_flight("interleaved", stages, chunks, m, device).item()
        for deal in ((3, 0, 0), (0, 3, 0), (0, 0, 3), (1, 1, 1), (1, 2, 0), (0, 1, 2)):
            layers = np.ones((chunks, stages), dtype=int)
            layers[:, device] = deal
            assert least * 3 * LAYER <= saved("interleaved", stages, chunks, tuple(layers.reshape(-1).tolist()), 8)[device]


@pytest.mark.parametrize("draw", some(range(56), 8))
def test_the_fullest_device_is_that_of_all_devices_walked_pass_by_pass(draw: int) -> None:
    """Drawn holdings, cuts and schedules, against a walk of every device through its order that adds and frees what each chunk holds."""
    rng = np.random.default_rng(draw)
    kinds = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3), ("zb_h1", 1), ("zb_h2", 1), ("zb_v", 2), ("dualpipe_v", 2)]
    schedule, chunks = kinds[draw % len(kinds)]
    stages, micro_batches, shape = int(rng.integers(2, 5)), 12, (3, 1)
    layers = tuple(rng.integers(0, 4, stages * chunks).tolist()) if draw % 2 else (int(rng.integers(1, 4)),) * stages * chunks
    names = [what for what in HELD if what not in BETWEEN]
    held = [{what: rng.integers(0, 50, shape) * float(rng.random() < 0.7) for what in names} for _ in range(3)]
    nothing = dict.fromkeys(BETWEEN, np.zeros(shape))
    sections = [Holding(layer, own | nothing) for layer, own in zip((False, True, False), held, strict=True)]
    made = cut((1, sum(layers), 1), (False, True, False), stages, chunks, layers, schedule in FOLDED)
    plan, frees = order(schedule, stages, micro_batches, chunks), (2, 3) if schedule in SPLIT else (1,)
    most, away = np.zeros(shape), np.zeros(shape)
    for device in range(stages):
        counts = made.of_chunks(device)
        here = [own for own, count in zip(held, counts.sum(axis=0), strict=True) if count]
        stays = sum(own[what] * n for own, n in zip(held, counts.sum(axis=0), strict=True) for what in HELD[:4])
        stays = stays + np.max([own["working"] + own["remade"] for own in here] or [np.zeros(shape)], axis=0)
        embed, layer, head = (own["gathered"] * (n > 0) for own, n in zip(held, counts.sum(axis=0), strict=True))
        rows = [(layer, layer), (embed, layer), (layer, head)]  # units in a row
        passes = zip(plan.kind[device], plan.chunk[device], strict=True)
        walked = [(kind, [x for x in range(3) if counts[chunk][x]]) for kind, chunk in passes]
        units = [x for kind, own in walked if kind in (0, 1, 3) for x in (own if kind == 0 else own[::-1])]
        rows += [(embed, head)] * any({one, other} == {0, 2} for one, other in itertools.pairwise(units))
        stays = stays + np.max([one + other for one, other in rows], axis=0)
        sizes = {what: [sum(own[what] * n for own, n in zip(held, chunk, strict=True)) for chunk in counts] for what in FLYING}
        now = {what: np.zeros(shape) for what in sizes}
        for kind, chunk in zip(plan.kind[device], plan.chunk[device], strict=True):
            for what, each in sizes.items():
                now[what] = now[what] + each[chunk] * (1 if kind == 0 else -1 if kind in frees else 0)
            most = np.maximum(most, stays + now["activations"])
            away = np.maximum(away, sum(own["host"] * n for own, n in zip(held, counts.sum(axis=0), strict=True)) + now["host in flight"])
    memory, host = memory_of(sections, made, schedule, np.array([micro_batches]))
    assert memory.tolist() == most.tolist()
    assert host.tolist() == away.tolist()


@pytest.mark.parametrize(("stages", "micro_batches", "whole"), [(1, 1, [11]), (1, 3, [18]), (2, 3, [11, 9])])
def test_passes_that_only_go_forward_gather_the_embedding_after_the_head(stages: int, micro_batches: int, whole: list[int]) -> None:
    """An embedding of 10, four layers of 1, a head of 8: the next micro-batch's embedding comes right after the head where one device has
    both; on devices of their own each lies beside a layer."""
    held = [{**dict.fromkeys(HELD, np.zeros((1, 1))), "gathered": np.full((1, 1), size)} for size in (10.0, 1.0, 8.0)]
    sections = [Holding(layer, own) for layer, own in zip((False, True, False), held, strict=True)]
    made = cut((1, 4, 1), (False, True, False), stages, 1, (4 // stages,) * stages)
    found = [device_memory(sections, made, "1f1b", np.array([micro_batches]), device)["gathered"].item() for device in range(stages)]
    assert found == whole
