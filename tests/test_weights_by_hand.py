"""What a step does with its weights, worked by hand: tied ones once on one device, gradients added up, no gather that nobody reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.inputs.said import instead
from rackmodel.model.result import Result

D, V, F, S, LAYERS = 512, 4096, 2048, 256, 2
TABLE = V * D
LAYER = 4 * D * D + 2 * D * F + 4 * D  # Q, K, V, O, W1, W2 and two norms with their offsets
SIZES = [f"d={D}", f"v={V}", f"f={F}", f"s={S}", "e=64", f"layers={LAYERS}", "l2.memory.bandwidth=100 TB/s"]
HEADS = {"gpt": ["h=8"], "llama": ["g=4", "q=2"]}
MAPPER = """
mapper: one
axes: {pp: {degree: 1, stages: layers}, dp: {degree: rest}, tp: {degree: 1}}
split: {dp: [b], tp: [h, [g, q], f, v]}
micro_batch: 1
schedule: 1f1b
overlap: profile
algorithms: ring
profile: serial
"""
ZERO = {
    0: "homes: {weights: {}}",
    1: "homes: {weights: {axes: [dp], state: shard}}",
    2: "homes: {weights: {axes: [dp], state: shard, grad: shard}}",
    3: "homes: {weights: {axes: [dp], state: shard, grad: shard, param: shard}}",
}


def step(folder: Path, *sets: str, workload: str = "gpt", zero: int = 0) -> Result:
    """One mapping on 8 accelerators."""
    file = folder / "one.yaml"
    file.write_text(MAPPER + ZERO[zero] + "\n")
    return api.search("rack_paper_h100", workload, str(file), sets=instead(["accelerators=8", *SIZES, *HEADS[workload]], sets)).result


def moved(result: Result, einsum: str, tensor: str, action: str, phase: str = "backward") -> float:
    """Bytes at the accelerators' memory, or on the networks."""
    where = {"component": "memory", "level": "gpu"} if action in ("read", "write") else {"component": "network"}
    return float(result.ledger.where(einsum=einsum, tensor=tensor, action=action, phase=phase, **where).total("amount"))


# -- gradients of activations ---------------------------------------------------------------------------------------------------


def test_a_gradient_may_be_wider_than_its_activation(tmp_path: Path) -> None:
    """Two of a group: each sum of N2's gradient, of s d elements a sample and layer, sends its bytes 2 (p - 1) times."""
    group = ["b=8", "axes.tp.degree=2"]
    same, wide = (step(tmp_path, *group, f"tensors.N2={{precision: 8 bit{more}}}") for more in ("", ", gradient: 16 bit"))
    elements = 8 * S * D * LAYERS
    for result, each in ((same, 1), (wide, 2)):
        assert result.ledger.where(tensor="N2", action="all_reduce", phase="backward").total("amount") == 2 * each * elements
        assert moved(result, "fc1", "dN2", "write") == moved(result, "norm2", "dN2", "read") == 2 * each * elements
        assert moved(result, "fc1", "N2", "read", "forward") == 2 * elements  # each of the group reads all of it
    assert wide.latency_s > same.latency_s
    with pytest.raises(InputError, match="may be wider than it is, not that of a weight"):
        step(tmp_path, "tensors.W1={gradient: 16 bit}")


# -- tied weights ----------------------------------------------------------------------------------------------------------


def test_a_tied_table_on_one_device_is_held_reduced_and_updated_once(tmp_path: Path) -> None:
    result = step(tmp_path, "b=8")
    parameters = TABLE + S * D + LAYERS * LAYER + 2 * D
    assert (result.memory["weights"], result.memory["gradients"], result.memory["optimizer"]) == (
        2 * parameters,
        4 * parameters,
        12 * parameters,
    )
    reduced = result.ledger.where(tensor="WE", action="all_reduce")
    assert reduced.total("amount") == pytest.approx(2 * 7 * 4 * TABLE)  # 2 (p - 1) V on the wires of one ring
    assert moved(result, "logits", "WE", "all_reduce") == 0
    assert result.ledger.where(tensor="WE.state", level="gpu", action="write").total("amount") == 8 * 12 * TABLE
    assert moved(result, "logits", "dWE", "write") == moved(result, "embed", "dWE", "read") == 8 * 4 * TABLE  # one adds to the other


def test_a_pipeline_holds_a_tied_table_twice_and_sums_its_gradient(tmp_path: Path) -> None:
    result = step(tmp_path, "b=8", "axes.pp.degree=2")
    ends = result.ledger.where(tensor="stream", action="all_reduce")
    assert ends.total("amount") == pytest.approx(2 * 4 * 4 * TABLE)  # both ways between 4 pairs of accelerators
    assert result.memory["weights"] == 2 * (TABLE + S * D + LAYER)
    assert result.ledger.where(tensor="WE.state", level="gpu", action="write").total("amount") == 2 * 4 * 12 * TABLE


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_ends_of_a_pipeline_sum_what_each_of_their_accelerators_holds_of_a_tied_table(tmp_path: Path, zero: int) -> None:
    """Its whole gradient under ZeRO-1, the shards of four ranks under 2 and 3."""
    ends = step(tmp_path, "b=8", "axes.pp.degree=2", zero=zero).ledger.where(tensor="stream", action="all_reduce")
    held = 4 * TABLE / (1 if zero == 1 else 4)
    assert ends.total("amount") == pytest.approx(2 * 4 * held)
    assert ends.total("exposed_seconds") == pytest.approx(held / 900e9)  # both ways at once, four neighbours apart in one rack


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_zero_shards_a_tied_table_once(tmp_path: Path, zero: int) -> None:
    result = step(tmp_path, "b=16", zero=zero)
    times = {1: 1, 2: 2, 3: 2}[zero]  # once a step, or every micro-batch
    assert result.ledger.where(tensor="WE", action="reduce_scatter").total("amount") == pytest.approx(times * 7 * 4 * TABLE)
    parameters = TABLE + S * D + LAYERS * LAYER + 2 * D
    assert result.memory["optimizer"] == 12 * parameters / 8
    if zero > 1:  # the head's contribution stays whole until the embedding adds to it
        assert result.memory["gradients"] == 4 * (parameters / 8 + TABLE)
    if zero == 3:  # forward both, backward the head alone: 2 micro-batches of 3 gathers
        assert result.ledger.where(tensor="WE", action="all_gather").total("amount") == pytest.approx(2 * 3 * 7 * 2 * TABLE)


@pytest.mark.parametrize("zero", [2, 3])
def test_a_tied_table_s_gradient_is_put_in_order_once_for_its_one_reduction(tmp_path: Path, zero: int) -> None:
    """8 bytes a word on each of 8 ranks, in both micro-batches: not again for the head, which reduces nothing."""
    ledger = step(tmp_path, "b=16", "profile.buckets.packed=8", zero=zero).ledger
    copied = ledger.where(tensor="dWE.copy", level="gpu", phase="backward")
    assert copied.total("amount") == 2 * 8 * 8 * TABLE


def test_ends_that_split_a_tied_table_differently_keep_a_copy_each(tmp_path: Path) -> None:
    alike, apart = (step(tmp_path, "b=4", "axes.tp.degree=2", *more).memory["weights"] for more in ((), ("choose={embed: {tp: d}}",)))
    assert apart - alike == 2 * TABLE / 2


# -- sums of gradients -----------------------------------------------------------------------------------------------------


def test_every_micro_batch_but_the_first_reads_the_sum_it_adds_to(tmp_path: Path) -> None:
    one, four = step(tmp_path, "b=8"), step(tmp_path, "b=32")
    size = 8 * LAYERS * 4 * D * F
    assert (moved(one, "fc1", "dW1", "read"), moved(one, "fc1", "dW1", "write")) == (0, size)
    assert (moved(four, "fc1", "dW1", "read"), moved(four, "fc1", "dW1", "write")) == (3 * size, 4 * size)


def test_the_sum_takes_time_where_memory_limits(tmp_path: Path) -> None:
    """An embedding's gradient: X is read, the sum so far is read (3 of 4 micro-batches), and the new one is written."""
    result = step(tmp_path, "b=32", workload="llama")
    ledger = result.ledger.where(einsum="embed", phase="backward")
    seconds = (4 * (2 * S * D + 4 * TABLE) + 3 * 4 * TABLE) / 3.35e12
    assert ledger.where(component="memory", level="gpu").total("exposed_seconds") == pytest.approx(seconds, rel=1e-12)


def test_gradients_that_are_reduced_at_once_are_summed_in_their_shards(tmp_path: Path) -> None:
    four, tied = step(tmp_path, "b=32", zero=2), step(tmp_path, "b=16", zero=2)
    assert moved(four, "fc1", "dW1", "read") == 3 * LAYERS * 4 * D * F  # each of 8 ranks its eighth, but before the first
    whole = 2 * 8 * 4 * TABLE  # the embedding's backward pass adds to the head's contribution, in both micro-batches
    assert (moved(tied, "embed", "dWE", "read"), moved(tied, "logits", "dWE", "read")) == (whole + 4 * TABLE, 0)


@pytest.mark.parametrize("zero", [0, 2])
def test_of_two_uses_in_one_graph_the_second_adds_to_what_the_first_left(tmp_path: Path, zero: int) -> None:
    """Y = (X W) W, in 4 micro-batches: the first product's gradient comes last and reads the sum each time; the second's, but for the first
    micro-batch, or where each micro-batch's sum is reduced at once never."""
    ops = "{first: 'H[b,s,d] = X[b,s,c] * W[c,d]', turn: 'T[b,s,c] = relu(H[b,s,c])', second: 'Y[b,s,d] = T[b,s,c] * W[c,d]'}"
    file = tmp_path / "twice.yaml"
    file.write_text(f"workload: twice\nphases: [forward, backward, optimizer]\nsizes: {{b: 32, s: 16, c: 64, d: c}}\neinsums: {ops}\n")
    (tmp_path / "dp.yaml").write_text(
        f"mapper: dp\naxes: {{dp: {{degree: 8}}}}\nsplit: {{dp: [b]}}\nmicro_batch: 1\nprofile: serial\n{ZERO[zero]}\n"
    )
    result = api.search("rack_paper_h100", str(file), str(tmp_path / "dp.yaml"), sets=["accelerators=8"]).result
    size = 8 * 4 * 64 * 64
    added = 0 if zero == 0 else 3 * size / 8  # the shard's sum, by whichever operation reduces it
    assert moved(result, "first", "dW", "read") == 4 * size + added
    assert moved(result, "second", "dW", "read") == (3 * size if zero == 0 else 0)


def test_a_weight_that_two_stages_of_operations_train_is_refused_at_its_place(tmp_path: Path) -> None:
    """Nothing would sum what the two make of its gradient; forward alone each has a copy."""
    ops = "{first: 'H[b,s,d] = X[b,s,c] * W[c,d]', turn: 'T[b,s,c] = relu(H[b,s,c])', second: 'Y[b,s,d] = T[b,s,c] * W[c,d]'}"
    file, mapper = tmp_path / "twice.yaml", tmp_path / "pp.yaml"
    file.write_text(f"workload: twice\nphases: [forward, backward]\nsizes: {{b: 32, s: 16, c: 64, d: c}}\neinsums: {ops}\n")
    mapper.write_text("mapper: pp\naxes: {pp: {stages: [[first, turn], [second]]}, dp: {degree: 4}}\nsplit: {dp: [b]}\nprofile: serial\n")
    with pytest.raises(InputError, match=r"pp\.yaml:2:.*first and second are in two stages: one weight that both read, W, is not priced"):
        api.search("rack_paper_h100", str(file), str(mapper), sets=["accelerators=8"])
    with pytest.raises(InputError, match="first and second are in two stages"):
        api.search("rack_paper_h100", str(file), "pipeline_tensor", sets=["accelerators=6"])
    found = api.search("rack_paper_h100", str(file), str(mapper), sets=["accelerators=8", "phases=[forward]"]).result
    assert found.memory["weights"] == 2 * 64 * 64
    written = tmp_path / "written.yaml"
    written.write_text(
        yaml.safe_dump(found.mapping.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False), encoding="utf-8"
    )
    assert api.evaluate("rack_paper_h100", str(file), str(written), sets=["phases=[forward]"]).latency_s == found.latency_s
    with pytest.raises(InputError, match="first and second are in two stages") as caught:
        api.evaluate("rack_paper_h100", str(file), str(written))
    assert caught.value.path == "stages"


# -- gathers ---------------------------------------------------------------------------------------------------------------


def test_nobody_gathers_the_table_for_a_backward_pass_that_does_not_read_it(tmp_path: Path) -> None:
    result = step(tmp_path, "b=16", workload="llama", zero=3)
    assert moved(result, "embed", "WE", "all_gather") == 0
    assert moved(result, "embed", "WE", "all_gather", "forward") == pytest.approx(2 * 7 * 2 * TABLE)
    assert moved(result, "logits", "WH", "all_gather") == pytest.approx(2 * 7 * 2 * TABLE)
