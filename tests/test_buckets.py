"""How many calls gather parameters and reduce gradients, worked by hand: what a call costs whatever it moves is paid once a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackmodel import api
from rackmodel.inputs.said import instead
from rackmodel.model.result import Result

D, V, F, LAYERS, RANKS = 512, 4096, 2048, 2, 8
HEADS, GROUPS, WIDTH = 8, 4, 64
NORM, TABLE = D, V * D
LAYER = [NORM, D * HEADS * WIDTH, D * GROUPS * WIDTH, D * GROUPS * WIDTH, HEADS * WIDTH * D, NORM, D * F, D * F, F * D]
EMBED, HEAD = [TABLE], [NORM, TABLE]
TENSORS = [*EMBED, *LAYER * LAYERS, *HEAD]
START = 1e-3
SIZES = [f"d={D}", f"v={V}", f"f={F}", f"e={WIDTH}", f"g={GROUPS}", "q=2", "s=256", f"layers={LAYERS}"]
MAPPER = """
mapper: one
axes: {{pp: {{degree: {stages}, stages: layers}}, dp: {{degree: rest}}, tp: {{degree: 1}}}}
split: {{dp: [b], tp: [[g, q], f, v]}}
schedule: 1f1b
overlap: profile
algorithms: ring
homes: {{weights: {home}}}
"""
HOMES = {
    0: "{}",
    1: "{axes: [dp], state: shard}",
    2: "{axes: [dp], state: shard, grad: shard}",
    3: "{axes: [dp], state: shard, grad: shard, param: shard}",
}


def step(folder: Path, buckets: str, zero: int = 0, stages: int = 1, *sets: str) -> Result:
    """A small Llama on 8 accelerators of a rack whose calls take 1 ms to start, nothing beside compute."""
    mapper, profile = folder / "one.yaml", folder / "mine.yaml"
    mapper.write_text(MAPPER.format(stages=stages, home=HOMES[zero]))
    profile.write_text(f"profile: mine\nbuckets: {buckets}\n")
    asked = instead(["accelerators=8", "b=8", f"rack.network.start={START} s", *SIZES], sets)
    return api.search("rack_paper_h100", "llama", str(mapper), sets=asked, profile=str(profile)).result


def calls(folder: Path, buckets: str, zero: int = 0, action: str = "all_reduce", stages: int = 1) -> float:
    """Starts that the ledger charges an action on the rack's links, at the stage that sets the pace."""
    rows = [step(folder, buckets, zero, stages, f"rack.network.start={start} s") for start in (START, 0.0)]
    with_start, without = (float(r.ledger.where(component="network", action=action).total("seconds")) for r in rows)
    return (with_start - without) / START


def filled(capacity: float) -> float:
    """Calls by hand: each tensor its gradient's bytes over the capacity, at most one."""
    return sum(min(1.0, 4 * elements / capacity) for elements in TENSORS)


def test_one_call_a_tensor_where_a_profile_says_nothing(tmp_path: Path) -> None:
    assert calls(tmp_path, "{}") == pytest.approx(len(TENSORS))


@pytest.mark.parametrize("capacity", [1e3, 1e6, 4e6, 25e6])
def test_calls_of_so_many_bytes(tmp_path: Path, capacity: float) -> None:
    assert calls(tmp_path, f"{{fill: {capacity / 1e6} MB}}") == pytest.approx(filled(capacity))


def test_each_rank_of_the_group_makes_calls_larger(tmp_path: Path) -> None:
    assert calls(tmp_path, "{fill: 3 MB, fill_per_rank: 0.5 MB}") == pytest.approx(filled(RANKS * 0.5e6))
    assert calls(tmp_path, "{fill: 5 MB, fill_per_rank: 0.5 MB}") == pytest.approx(filled(5e6))


def test_updated_parameters_are_gathered_in_the_calls_in_which_their_gradients_were_reduced(tmp_path: Path) -> None:
    """Parameters have half the bytes of their gradients: calls are as many."""
    for action in ("reduce_scatter", "all_gather"):
        assert calls(tmp_path, "{fill: 4 MB}", zero=1, action=action) == pytest.approx(filled(4e6))


def test_one_call_a_layer_each_way(tmp_path: Path) -> None:
    """ZeRO 3 gathers a layer for its forward pass, and for its backward pass once more; the embedding's reads no table."""
    ends = LAYERS + 2
    assert calls(tmp_path, "{holds: layer}", zero=3, action="reduce_scatter") == pytest.approx(ends)
    assert calls(tmp_path, "{holds: layer}", zero=3, action="all_gather") == pytest.approx(2 * ends - 1)


def test_one_call_a_section_on_each_stage(tmp_path: Path) -> None:
    assert calls(tmp_path, "{holds: stage}") == pytest.approx(3)
    assert calls(tmp_path, "{}", stages=2) == pytest.approx(len(LAYER) + len(HEAD))
    assert calls(tmp_path, "{holds: stage}", stages=2) == pytest.approx(2)  # an end and a layer


def test_the_step_is_shorter_by_the_calls_that_are_saved(tmp_path: Path) -> None:
    each, together = step(tmp_path, "{}"), step(tmp_path, "{fill: 4 MB}")
    assert each.latency_s - together.latency_s == pytest.approx((len(TENSORS) - filled(4e6)) * START)
    assert each.energy_j > together.energy_j  # static power alone: the same bytes move
    wires = [result.ledger.where(component="network").total("joules") for result in (each, together)]
    assert wires[0] == pytest.approx(wires[1])


def test_activations_pay_a_call_each(tmp_path: Path) -> None:
    """Tensor parallelism reduces activations, which no bucket holds."""
    seconds = [
        float(step(tmp_path, buckets, 0, 1, "axes.tp.degree=8").ledger.where(component="network").total("seconds"))
        for buckets in ("{}", "{fill: 1 GB}")
    ]
    assert seconds[0] > 0
    assert seconds[0] == seconds[1]
