"""The hardwired machine: its dataflow's collectives follow from the layouts; its rate and energy from a model of the chip."""

from __future__ import annotations

import pytest

from rackmodel import api
from rackmodel.cost.program.derive import derive
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_inputs, read_study, read_workload
from rackmodel.papers import findings
from rackmodel.papers.hardwired import LINKS, Occupancy, occupancy
from rackmodel.serving.ask import service_of
from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points
from tests.sweeps import run_study

MACHINE = ("hnlpu", "gpt_oss_120b_hardwired", "hardwired")
V = 2.0  # bytes of an activation


@pytest.fixture(scope="module")
def points() -> Points:
    return run_study(read_study("hardwired"))


@pytest.fixture(scope="module")
def found(points: Points) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings("hardwired")(points)}


@pytest.fixture(scope="module")
def used(points: Points) -> Occupancy:
    return occupancy(read_architecture("hnlpu"), points.one(run="token"), points.one(run="bandwidth"))


# -- the dataflow --------------------------------------------------------------------------------------------------------------


def test_the_collectives_are_exactly_those_of_the_paper() -> None:
    """Seed 002, section 5: none is written anywhere, all are conversions between what an operation leaves and the next needs."""
    inputs = read_inputs(*MACHINE[:2], mapper=MACHINE[2])
    assert inputs.mapper is not None
    space = api.mapspace(inputs.architecture, inputs.workload, inputs.mapper)
    plan = space.groups[0].variants[0].plan
    tasks = [task for task in derive(inputs.workload, plan).tasks if task.kind == "collective"]
    got = {(t.einsum, t.action, tuple(plan.axes[a] for a in t.axes)) for t in tasks}
    assert got == {
        ("Q", "all_reduce", ("column",)),
        ("K", "reduce_scatter", ("column",)),
        ("V", "reduce_scatter", ("column",)),
        ("softmax", "all_reduce", ("column",)),
        ("AV", "all_reduce", ("column",)),
        ("O", "all_reduce", ("row",)),
        ("O", "all_gather", ("column",)),
        ("combine", "all_reduce", ("column", "row")),
    }
    assert len(tasks) == len(got)
    assert not any(t.einsum in ("router", "gates", "dispatch", "gate", "up", "down") for t in tasks)


def test_a_layer_moves_the_bytes_worked_by_hand(points: Points) -> None:
    """Rings: 2 (p - 1) V an all-reduce, (p - 1) V else, in each of four columns or rows. 1,024 query values a column, 128 of a key,
    16 heads' maximum and sum, 720 output features a row; 2,880 over all 16 chips, a quarter of whose hops cross row and column."""
    rows = points.one(run="token").ledger.where(component="network").group(["einsum", "action"], "amount")
    want = {
        ("Q", "all_reduce"): 4 * 2 * 3 * 1024 * V,
        ("K", "reduce_scatter"): 4 * 3 * 128 * V,
        ("V", "reduce_scatter"): 4 * 3 * 128 * V,
        ("softmax", "all_reduce"): 4 * 2 * 3 * 16 * 2 * 4,
        ("AV", "all_reduce"): 4 * 2 * 3 * 1024 * V,
        ("O", "all_reduce"): 4 * 2 * 3 * 720 * V,
        ("O", "all_gather"): 4 * 3 * 2880 * V,
        ("combine", "all_reduce"): 2 * 15 * 2880 * V * 1.25,
    }
    assert rows == {key: pytest.approx(36 * bytes_) for key, bytes_ in want.items()}


def test_columns_are_columns_of_the_chip_array() -> None:
    """Chips 0, 4, 8 and 12 share a column of the 4 x 4 array, 0 to 3 a row: all groups are one direct hop wide."""
    mapping = api.search(*MACHINE).result.mapping
    assert (mapping.axes["column"].stride, mapping.axes["row"].stride) == (4, 1)


def test_gpt_oss_has_its_published_size() -> None:
    """116.8 G parameters less embedding and head (2 x 201,088 x 2,880) and 1.1 M of norms, biases and sinks a layer at most."""
    model = read_workload("gpt_oss_120b")
    held = model.repeat * sum(model.tensors[name].elements for name in model.weights)
    assert held == pytest.approx(116.8e9 - 2 * 201_088 * 2880, rel=2e-3)
    assert model.tensors["WG"].bits == 4


def test_wired_weights_are_not_held_nor_fetched(points: Points) -> None:
    wired, fetched = points.one(run="token"), points.one(run="fetched")
    assert wired.memory.get("weights", 0.0) == 0.0 < fetched.memory["weights"]
    assert not any(row.tensor.startswith("W") for row in wired.ledger)
    assert {row.tensor for row in fetched.ledger.where(component="memory")} >= {"WQ", "WG", "WR"}
    links = [r.ledger.where(component="network").total("amount") for r in (wired, fetched)]
    assert links[0] == links[1]


# -- rate and energy -----------------------------------------------------------------------------------------------------------


def test_every_shared_resource_of_a_token_is_as_worked_by_hand(used: Occupancy) -> None:
    """36 layers; 2,048 positions of 8 key-value heads of 64, a quarter of the positions and two of the heads a chip."""
    a_chip = 36 * 2 * (2048 / 4) * 2 * 64 * V  # bytes: layers, keys and values, positions, heads, values
    assert used.full.spilled == pytest.approx(1 - 320e6 / (216 * a_chip))
    assert used.hbm_bytes == pytest.approx(used.full.spilled * a_chip)
    heads = 36 * 2 * (2048 / 4) * 2 / 32 / 1e9  # keys and values, 32 a cycle of 1 GHz
    assert used.parts()["vector unit"] == pytest.approx(heads, rel=0.04)  # norms, softmax and SwiGLU come on top
    assert used.parts()["vector unit"] > heads
    one_link = 36 / 128e9 * V * (2 * 3 / 4 * (1024 + 1024 + 720) + 3 / 4 * (2880 + 128 + 128) + 2 * 3 / 4 * 16 * 2 * 2 + 2 * 15 / 16 * 2880)
    assert used.links_one_by_one == pytest.approx(one_link)
    assert used.parts()[LINKS] == pytest.approx(36 * 427_200 / (16 * 6 * 128e9))  # the bytes above, spread over all links


def test_the_paper_s_rate_lies_where_its_hbm_is_left_out(used: Occupancy, found: dict[str, Finding]) -> None:
    """Ours is 21 % above 249,960 tokens/s at 2.4 TB/s of HBM a chip; the gap is stated, nothing is typed in."""
    assert used.tokens_per_s(0) < 249_960 < used.tokens_per_s(1) < used.tokens_per_s(2)
    assert max(used.parts(1), key=lambda name: used.parts(1)[name]) == "memory"
    assert found["H02"].figures["ours over the paper's, %"] == pytest.approx(20.7, abs=0.1)
    assert found["H03"].figures["ours over the paper's, %"] == pytest.approx(20.7, abs=0.1)
    assert found["H02"].figures["HBM a chip that the paper's rate takes, TB/s"] == pytest.approx(1.99, abs=0.01)
    assert found["H03"].figures["power, kW"] == pytest.approx(6.9, rel=1e-3)


def test_a_short_context_leaves_the_hbm_idle_and_the_links_in_charge() -> None:
    """At 128 positions all 216 sequences fit the buffers: nothing spills."""
    machine = read_architecture("hnlpu")
    token = api.search(*MACHINE, sets=["t=128"]).result
    free = api.search(*MACHINE, sets=["t=128", "module.network.latency=0 s"]).result
    short = occupancy(machine, token, free)
    assert short.full.spilled == short.hbm_bytes == 0.0
    assert short.tokens_per_s(1) == pytest.approx(1 / short.parts()[LINKS])


EIGHT = """
architecture: hnlpu8
extends: hnlpu
tree:
  name: module
  network: {shape: [2, 4], links: 4}
  children: [{name: chip, count: 8}]
"""


def test_the_search_gives_the_study_s_rate_and_joules_by_either_name_of_the_model(used: Occupancy) -> None:
    found = [api.search("hnlpu", name, "hardwired").result.pipelined for name in ("gpt_oss_120b_hardwired", "gpt_oss_120b")]
    assert found[0] == found[1] == used.full
    assert used.full.tokens_per_s == pytest.approx(301_670, abs=1)
    assert used.full.joules_per_token == pytest.approx(6.9e3 / 301_670, rel=1e-4)
    assert used.full.in_flight == 216
    assert used.full.limited_by == "memory"


def test_a_batch_fills_the_pipeline_no_further(used: Occupancy) -> None:
    """Occupancy is of a token: a step of 216 sequences makes 216 of them, each as long on every resource."""
    many = api.search(*MACHINE, sets=["b=216"]).result.pipelined
    assert many is not None
    assert many.tokens_per_s == pytest.approx(used.full.tokens_per_s, rel=1e-9)


def test_a_machine_of_one_s_own_with_eight_chips() -> None:
    """Two rows of four: half the buffers, half the HBM, for the same keys and values."""
    result = api.search(EIGHT, "gpt_oss_120b", "hardwired").result
    full = result.pipelined
    assert (result.mapping.axes["column"].degree, result.mapping.axes["row"].degree) == (2, 4)
    assert full is not None
    kept = 36 * 2 * 2048 * 8 * 64 * V
    assert full.spilled == pytest.approx(1 - 8 * 320e6 / (216 * kept))
    assert full.seconds["memory"] == pytest.approx(full.spilled * kept / (8 * 2.4e12))
    assert full.joules_per_token * full.tokens_per_s == pytest.approx(1965.8 + 8 * 308.39)


def test_without_wires_the_weights_are_data() -> None:
    fetched = api.search("hnlpu", "gpt_oss_120b", "hardwired", sets=["hn_array.compute.wired=null"]).result
    assert fetched.pipelined is None
    assert fetched.memory["weights"] > 1e9
    assert "weights" not in api.search("hnlpu", "gpt_oss_120b", "hardwired").result.memory


def test_wires_are_not_trained_and_no_engine_deals_them_to_workers() -> None:
    """`serve` took them for data that chips read from HBM, whatever the degrees; training held gradients of what cannot change."""
    with pytest.raises(InputError, match="the weights of 'chip' are wires, which no training changes"):
        api.search("hnlpu", "ffn", "data")
    forward = api.search("hnlpu", "ffn", "data", sets=["phases=[forward]"]).result
    assert "gradients" not in forward.memory
    with pytest.raises(InputError, match="its weights are wires, which no engine deals to workers"):
        service_of("hnlpu", "gpt_oss_120b_decoder", (), "vllm", (1024.0, 1024.0, 0.0))
    assert service_of("hnlpu", "gpt_oss_120b_decoder", ("hn_array.compute.wired=null",), "vllm", (1024.0, 1024.0, 0.0))


def test_what_the_wires_ask_for_is_there_or_refused() -> None:
    with pytest.raises(InputError, match="no level 'bufer' inside 'chip'"):
        api.search("hnlpu", "gpt_oss_120b", "hardwired", sets=["hn_array.compute.wired.cache=bufer"])
    with pytest.raises(InputError, match="grid of two sides"):
        api.search("dgx_h100", "gpt_oss_120b", "hardwired", sets=["accelerators=16"])


# -- the rest of the study -----------------------------------------------------------------------------------------------------


def test_the_findings_and_their_verdicts(found: dict[str, Finding]) -> None:
    assert {name for name, finding in found.items() if finding.verdict == "disagrees"} == {"H06", "H07"}
    assert {name for name, finding in found.items() if finding.verdict == "not decidable"} == {"H02", "H03", "H08"}
    assert sorted(found) == [f"H{n:02d}" for n in range(1, 9)]
    assert all(finding.figures and finding.why for finding in found.values())


def test_the_h100_of_the_comparison_reads_every_expert_for_every_token(found: dict[str, Finding]) -> None:
    """3.35 TB/s over 57.8 GB of 4-bit weights is 58 tokens/s; the paper measured 45."""
    figures = found["H06"].figures
    assert figures["tokens/s, H100 that reads all experts, ours"] == pytest.approx(3.35e12 / 57.8e9, rel=0.01)
    assert figures["tokens/s, H100 that reads its four experts, ours"] > 1000


def test_a_matrix_takes_the_cycles_of_its_embedding(found: dict[str, Finding]) -> None:
    """131,072 products: at once in cells, bit by bit in metal, 1,024 a cycle in the array, whose port also moves the vectors."""
    figures = found["H08"].figures
    assert figures["cell, cycles"] == pytest.approx(1)
    assert figures["metal, cycles"] == pytest.approx(16)
    assert 128 <= figures["array, cycles"] < 135
    parts = found["H08"].drawn  # Figure 10 by part: of one use, with what leaks until the next token
    for name in ("metal", "cell", "array"):
        of_parts = sum(value for part, value in parts.items() if part.startswith(f"{name}, nJ of "))
        assert of_parts == pytest.approx(figures[f"{name}, nJ, it is used once a token"])
    assert found["H07"].figures["cell over metal, ours"] == pytest.approx(19.2, abs=0.1)
