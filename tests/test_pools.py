"""Accelerators of several kinds in one job: a pipeline over both, against one kind told as two, other cuts, and by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rackmodel import api
from rackmodel.carbon.bill import bill_of, up_to
from rackmodel.carbon.costing import cost_of, job_money
from rackmodel.carbon.job import Usage
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.ledger import static_powers
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs.carbon_tables import tables_of
from rackmodel.inputs.ranged import ranged_facts
from rackmodel.inputs.read import read_architecture, read_inputs
from rackmodel.inputs.shared import SharedInputs
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from rackmodel.model.schedules import FOLDED, TABLE
from rackmodel.report.facts import machine_numbers
from rackmodel.studies.answer import search_point
from tests import samples
from tests.cut_integer_program import cut_by_cpsat
from tests.events import simulate
from tests.open_cut_cases import best, brute_force, pooled_problem
from tests.test_asked import point

NODE = """
  - name: {name}_node
    count: {nodes}
    static_power: {watts} W
    network: {{topology: switch, bandwidth: {link} GB/s, latency: 2 us, energy: 14 pJ/bit}}
    children: [{{name: {name}, count: 4, part: {part}}}]"""
TOP = """architecture: machine
site: {{grid: world, pue: 1.1}}
tree:
  name: fabric
  static_power: 100 W
  network: {{topology: {topology}, bandwidth: 25 GB/s, latency: 5 us, energy: 300 pJ/bit, striped: true}}
  children:{nodes}
"""
H100 = {"name": "h100", "part": "h100_sxm", "link": 450, "watts": 1000}
SAME = {**H100, "name": "other"}
A100 = {"name": "a100", "part": "a100_sxm", "link": 300, "watts": 800}
SMALL = ["b=16", "s=2048", "d=2048", "f=5632", "g=4", "q=4", "layers=9"]
FOUR = [*SMALL, "axes.pp.degree=4", "micro_batch=2", "overlap=profile"]
PLAIN = ["layouts={}", "micro_batch=2", "overlap=profile"]  # few mappings, where any will do
BOTH = (["h100", "a100"], ["a100", "h100"])


def machine(tmp_path: Path, *kinds: tuple[dict[str, object], int], topology: str = "switch") -> str:
    """A file of a machine with so many nodes of each kind."""
    nodes = "".join(NODE.format(**kind, nodes=count) for kind, count in kinds)
    path = tmp_path / "_".join([*(f"{kind['name']}{count}" for kind, count in kinds), "machine.yaml"])
    path.write_text(TOP.format(topology=topology, nodes=nodes), encoding="utf-8")
    return str(path)


def found(where: str, sets: list[str], profile: str = "megatron_core", mapper: str = "megatron_cut", **more: object) -> Result:
    return api.search(where, "llama", mapper, sets=sets, profile=profile, **more).result  # type: ignore[arg-type]


Searched = tuple[str, Result]


@pytest.fixture(scope="module")
def two_of_each(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """A machine of two nodes of either kind, and the best of four stages on it."""
    where = machine(tmp_path_factory.mktemp("two_of_each"), (H100, 2), (A100, 2))
    return where, found(where, FOUR)


@pytest.fixture(scope="module")
def over_both(two_of_each: Searched) -> tuple[str, MappingSpec]:
    """The same machine, and a mapping over both kinds."""
    return two_of_each[0], found(two_of_each[0], [*FOUR, *PLAIN]).mapping


def again(where: str, mapping: MappingSpec, sets: list[str], profile: str = "megatron_core") -> Result:
    inputs = read_inputs(where, "llama", mapper="megatron_cut", sets=[one for one in sets if not one.startswith("axes")])
    return api.evaluate_mapping(inputs.architecture, inputs.workload, mapping, profile=profile)


def figures(result: Result) -> tuple[float, ...]:
    return result.latency_s, result.energy_j, result.memory_bytes_per_accelerator


# -- one kind told as two --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["megatron_core", "ideal", "megatron_2021", "serial"][: samples.cases(1, 4)])
def test_two_kinds_that_are_the_same_are_one_kind(profile: str, tmp_path: Path) -> None:
    one, two = machine(tmp_path, (H100, 4)), machine(tmp_path, (H100, 2), (SAME, 2))
    single = found(one, FOUR, profile)
    both = again(two, single.mapping, FOUR, profile)
    assert figures(both) == pytest.approx(figures(single), rel=1e-12)
    assert both.ledger.total("exposed_seconds") == pytest.approx(single.latency_s, rel=1e-12)
    searched = found(two, FOUR, profile)
    assert searched.certificate.gap == 0
    assert searched.latency_s == pytest.approx(single.latency_s, rel=1e-9)
    step = searched.mapping.step
    assert step is not None
    assert step.pools == ["h100", "other"]


Machines = tuple[str, str, MappingSpec]
EIGHT = ["axes.pp.degree=4", "axes.dp.degree=1", "micro_batch=2", "layouts={}", "recompute=none", "schedule=1f1b", "homes={}"]


def meshed(where: str) -> MappingSpec:
    """A mapping of four stages and eight micro-batches that fills a machine of one kind."""
    return found(where, [*SMALL[:-1], "layers=8", *EIGHT, "interleave=1", "overlap=profile"], mapper="megatron").mapping


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Machines of one kind and of that told as two, a stage of a pipeline in each of four nodes, and a mapping."""
    where = tmp_path_factory.mktemp("nodes")
    one, two = (machine(where, *kinds) for kinds in ([(H100, 4)], [(H100, 2), (SAME, 2)]))
    return one, two, meshed(one)


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """Machines of one kind and of two, two stages of a pipeline in each of two nodes, and a mapping."""
    where = tmp_path_factory.mktemp("halves")
    one, unlike = (machine(where, *kinds) for kinds in ([(H100, 2)], [(H100, 1), (A100, 1)]))
    return one, unlike, meshed(one)


CUTS = {1: [1, 2, 3, 3], 2: [1, 1, 0, 1, 2, 1, 1, 2]}
ANY = [(name, 2 if row.chunked or row.folded else 1) for name, row in TABLE.items()]


def scheduled(mapping: MappingSpec, schedule: str, chunks: int, pools: Sequence[str] = ()) -> MappingSpec:
    """The same mesh with an uneven cut under another schedule."""
    assert mapping.step is not None
    more = {"schedule": schedule, "interleave": chunks, "layers": CUTS[chunks], "mixes": [], "pools": list(pools)}
    return mapping.model_copy(update={"step": mapping.step.model_copy(update=more)})


def stepped(where: str, mapping: MappingSpec, profile: str = "megatron_core") -> ExactStep:
    return api.step_of(read_inputs(where, "llama", sets=SMALL), mapping, profile=profile)


def sent(result: Result) -> dict[str, tuple[float, float]]:
    """Level → bytes and joules of hand-overs."""
    rows = [row for row in result.ledger.rows if row.action == "send"]
    return {
        level: (math.fsum(r.amount for r in rows if r.level == level), math.fsum(r.joules for r in rows if r.level == level))
        for level in dict.fromkeys(row.level for row in rows)
    }


UNDER = [(*kind, profile) for kind, profile in product(ANY, ["megatron_core", "megatron_2021", "torchtitan"])]


@pytest.mark.parametrize(("schedule", "chunks", "profile"), samples.some(UNDER, 2))
def test_one_kind_told_as_two_is_one_kind_under_any_schedule(schedule: str, chunks: int, profile: str, nodes: Machines) -> None:
    """(All hand-overs are between whole nodes: where those of one kind differ its one time is that of the slowest.)"""
    one, two, mapping = nodes
    single = again(one, scheduled(mapping, schedule, chunks), SMALL, profile)
    both = again(two, scheduled(mapping, schedule, chunks, ("other", "h100")), SMALL, profile)
    assert figures(both) == pytest.approx(figures(single), rel=1e-9)
    assert both.ledger.total("exposed_seconds") == pytest.approx(single.latency_s, rel=1e-9)
    for one_kind, two_kinds in zip(single.repeated, both.repeated, strict=True):
        assert (one_kind.axes, one_kind.operations) == (two_kinds.axes, two_kinds.operations)
        shares = [(part.seconds, part.joules, part.bytes) for part in (one_kind, two_kinds)]
        assert shares[0] == pytest.approx(shares[1], rel=1e-9)
    told = {level.replace("other", "h100"): np.zeros(2) for level in sent(both)}
    for level, pair in sent(both).items():
        told[level.replace("other", "h100")] += pair
    assert told.keys() == sent(single).keys()
    for level, pair in sent(single).items():
        assert told[level] == pytest.approx(pair, rel=1e-9)


@pytest.mark.parametrize("schedule", sorted(FOLDED))
def test_a_model_that_comes_back_through_two_kinds_runs_sends_and_holds_what_its_stages_do(schedule: str, halves: Machines) -> None:
    one, unlike, mapping = halves
    order = ["a100", "h100"]
    folded = scheduled(mapping, schedule, 2, order)
    step = stepped(unlike, folded)
    layers = [sum(int(n) for n, (x, _) in zip(row, step.structure.parts, strict=True) if x == 1) for row in step.structure.cut.counts]
    assert layers == CUTS[2]
    for virtual, row in enumerate(step.structure.cut.counts):  # down the stages and back up: 0 1 2 3 3 2 1 0, two of each kind
        assert {step.pool_of(part) for part in np.flatnonzero(row)} <= {1 if min(virtual, 7 - virtual) < 2 else 0}
    result = again(unlike, folded, SMALL)
    seconds = simulate(step.jobs)[0]
    assert result.latency_s == pytest.approx(seconds, rel=1e-12)
    assert result.ledger.total("exposed_seconds") == pytest.approx(seconds, rel=1e-12)
    assert step.held == pytest.approx(stepped(one, scheduled(mapping, schedule, 2)).held)  # bytes are of no kind
    plain = again(unlike, scheduled(mapping, "1f1b", 1, order), SMALL)
    for level, pair in sent(plain).items():  # every link twice as often, and none where the model turns
        assert np.array(sent(result)[level]) == pytest.approx(2 * np.array(pair), rel=1e-12)
    assert sent(result).keys() == sent(plain).keys() == {"h100_node", "fabric", "a100_node"}
    priced = api.price(read_architecture(unlike, []), read_inputs(unlike, "llama", sets=SMALL).workload, [folded], profile="megatron_core")
    assert priced.latency_s[0] == pytest.approx(seconds, rel=1e-12)
    assert priced.energy_j[0] == pytest.approx(result.energy_j, rel=1e-9)


def test_each_way_of_a_link_takes_its_own_time_and_an_end_as_long_as_what_comes_to_it(halves: Machines) -> None:
    """Under megatron_2021 what is handed on is put together where it arrives: slower on A100s."""
    _, unlike, mapping = halves
    order = ("h100", "a100")
    for schedule, chunks in (("1f1b", 1), ("zb_v", 2), ("interleaved", 2)):
        hops = stepped(unlike, scheduled(mapping, schedule, chunks, order), "megatron_2021").jobs.hops_s
        assert hops is not None
        down, up = hops[..., 0]
        assert down[1] > up[2]  # to the A100s, and to the H100s
        if schedule == "interleaved":  # the last stage hands to the first, over what joins the kinds
            assert [down[3], up[0]] == pytest.approx([up[2], down[1]], rel=1e-12)
        else:
            assert [down[3], up[0]] == [down[2], up[1]]


def test_the_answer_is_what_its_mapping_evaluates_to(two_of_each: Searched) -> None:
    where, answer = two_of_each
    assert figures(again(where, answer.mapping, SMALL)) == pytest.approx(figures(answer), rel=1e-12)
    assert answer.certificate.gap == 0
    assert answer.ledger.total("exposed_seconds") == pytest.approx(answer.certificate.objective, rel=1e-12)


@pytest.mark.parametrize(("schedule", "interleave"), samples.some([("interleaved", 2), ("zb_h1", 1), ("gpipe", 1)], 1))
def test_prices_of_many_are_those_of_each_under_any_schedule(schedule: str, interleave: int, over_both: tuple[str, MappingSpec]) -> None:
    where, mapping = over_both
    assert mapping.step is not None
    cut = [1, 1, 1, 1, 2, 1, 1, 1] if interleave == 2 else [1, 2, 3, 3]
    more = {"schedule": schedule, "interleave": interleave, "layers": cut, "mixes": []}
    others = [mapping.model_copy(update={"step": mapping.step.model_copy(update={**more, "pools": list(order)})}) for order in BOTH]
    each = [again(where, other, FOUR) for other in others]
    inputs = read_inputs(where, "llama", mapper="megatron_cut", sets=SMALL)
    together = api.price(inputs.architecture, inputs.workload, others, profile="megatron_core")
    assert together.latency_s.tolist() == pytest.approx([one.latency_s for one in each], rel=1e-12)
    assert together.energy_j.tolist() == pytest.approx([one.energy_j for one in each], rel=1e-9)
    assert together.memory_bytes.max() == pytest.approx(max(one.memory_bytes_per_accelerator for one in each), rel=1e-12)
    assert each[0].latency_s != each[1].latency_s


# -- other mappings ----------------------------------------------------------------------------------------------------------------


def other_mappings(mapping: MappingSpec, layers: int, draw: random.Random) -> list[MappingSpec]:
    """The same mesh with other cuts, in both orders of the kinds."""
    step = mapping.step
    assert step is not None
    p = step.pipeline.degree
    made = []
    for order in BOTH:
        edges = sorted(draw.sample(range(1, layers), p - 1))
        cut = np.diff([0, *edges, layers]).tolist()
        made.append(mapping.model_copy(update={"step": step.model_copy(update={"layers": cut, "mixes": [], "pools": order})}))
    return made


@pytest.mark.parametrize("profile", samples.some(["megatron_core", "serial"], 2))
def test_no_other_cut_in_any_order_is_faster(profile: str, two_of_each: Searched) -> None:
    where, answer = two_of_each
    if profile != "megatron_core":
        answer = found(where, FOUR, profile)
    draw = random.Random(7)
    others = [other for _ in range(samples.cases(4, 60)) for other in other_mappings(answer.mapping, 9, draw)]
    inputs = read_inputs(where, "llama", mapper="megatron_cut", sets=SMALL)
    slower = api.price(inputs.architecture, inputs.workload, others, profile=profile).latency_s
    assert min(slower) >= answer.latency_s * (1 - 1e-12)
    assert max(slower) > 1.2 * answer.latency_s


def test_the_faster_kind_takes_more_layers_and_more_of_them_help(tmp_path: Path, two_of_each: Searched) -> None:
    alone, both = found(machine(tmp_path, (H100, 2)), [*SMALL, "axes.pp.degree=2", "overlap=profile"]), two_of_each[1]
    step = both.mapping.step
    assert step is not None
    layers = dict.fromkeys(step.pools, 0)
    for stage, count in enumerate(step.layers):
        layers[step.pools[stage // 2]] += count
    assert layers["h100"] > layers["a100"] > 0
    assert both.latency_s < alone.latency_s


def test_wafers_beside_gpus(tmp_path: Path) -> None:
    wafer = "\n  - {name: wafer, count: 1, part: wse3}"
    path = tmp_path / "wafer.yaml"
    path.write_text(TOP.format(topology="switch", nodes=NODE.format(**H100, nodes=1) + wafer), encoding="utf-8")
    answer = found(str(path), [*SMALL, "axes.tp.degree=1"], "ideal")
    step = answer.mapping.step
    assert step is not None
    assert answer.certificate.gap == 0  # (of pipelines of every degree that five accelerators have)
    assert figures(again(str(path), answer.mapping, SMALL, "ideal")) == pytest.approx(figures(answer), rel=1e-12)
    assert answer.ledger.total("exposed_seconds") == pytest.approx(answer.certificate.objective, rel=1e-12)
    share = dict(zip(range(5), step.layers, strict=True))
    place = 0 if step.pools[0] == "wafer" else 4
    assert share[place] == max(step.layers)  # the wafer holds more layers than any GPU
    levels = {row.level for row in answer.ledger.rows if row.component == "compute" and row.amount}
    assert {"tensor_core"} < levels


# -- the machine ---------------------------------------------------------------------------------------------------------------------


def test_accelerators_in_use_are_the_first_in_tree_order(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 2), (A100, 2))
    whole, some, few = (read_architecture(where, sets) for sets in ([], ["accelerators=12"], ["accelerators=8"]))
    assert [(pool.accelerator.name, pool.used) for pool in whole.pools] == [("h100", 8), ("a100", 8)]
    assert [(pool.accelerator.name, pool.used) for pool in some.pools] == [("h100", 8), ("a100", 4)]
    assert [(pool.accelerator.name, pool.used) for pool in few.pools] == [("h100", 8)]
    assert whole.available == 16


def test_static_power_and_parts_are_those_of_both_and_what_they_share_once(tmp_path: Path) -> None:
    both = read_architecture(machine(tmp_path, (H100, 2), (A100, 1)), [])
    each = [read_architecture(machine(tmp_path, kind), []) for kind in ((H100, 2), (A100, 1))]
    watts, apart = dict(static_powers(both)), [dict(static_powers(one)) for one in each]
    assert watts["fabric"] == 100
    assert watts["h100_node"] == 2000
    assert sum(watts.values()) == pytest.approx(sum(sum(one.values()) for one in apart) - 100)
    tables = tables_of(both)
    grams = [sum(line.total_g.mid for line in bill_of(one, tables).lines) for one in (both, *each)]
    assert grams[0] == pytest.approx(grams[1] + grams[2])


def test_money_and_power_at_work_are_those_of_both_and_what_they_share_once(tmp_path: Path) -> None:
    own = ["fabric.cost={price: 1000 usd, power: 500 W}", "site={grid: world, pue: 1.1, electricity: 0.1 usd/kWh, building: 10 usd/W}"]
    one, two = (
        cost_of(read_architecture(machine(tmp_path, *kinds), own), Usage(), respins=0.0) for kinds in ([(H100, 4)], [(H100, 2), (SAME, 2)])
    )
    assert two.it_w.mid == pytest.approx(one.it_w.mid)
    for part in ("chips_usd", "servers_usd", "building_usd", "energy_j", "capital_usd"):
        assert getattr(two.cost, part).mid == pytest.approx(getattr(one.cost, part).mid), part
    assert one.cost.servers_usd.mid == 1000
    mixed = read_architecture(machine(tmp_path, (H100, 2), (A100, 2)), [])
    assert job_money(mixed, Usage(), 1.0, 1.0) is None  # an A100 states no price
    with pytest.raises(InputError, match="'a100' does not say what it costs"):
        cost_of(mixed, Usage())


def test_every_number_of_both_kinds_is_called_as_set_takes_it() -> None:
    """(Levels of one name, an L2 in each kind, were called alike: samples of ranges were refused, a tornado as well.)"""
    said = read_architecture("dgx_h100_a100", [])
    names = [path for path, _ in machine_numbers(said)]
    assert len(names) == len(set(names))
    told = {fact.path: fact.text for fact in ranged_facts("dgx_h100_a100")} | {path: value.text for path, value in machine_numbers(said)}
    shared = {path: value for path, value in told.items() if path.split(".")[1] in ("l2", "sm", "tensor_core")}
    assert {path.split(".")[0] for path in shared} == {"h100", "a100"}
    for path, value in list(shared.items())[:: samples.cases(6, 1)]:
        assert read_architecture("dgx_h100_a100", [f"{path}={value}"]).used == 128


@samples.audited
def test_points_of_a_sweep_are_each_machines_own_answers(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 1), (A100, 1))
    sets = [*SMALL, "axes.pp.degree=2", "axes.tp.degree=4", *PLAIN]
    fast, slow = (["fabric.network.bandwidth=25 GB/s"], ["fabric.network.bandwidth=0.5 GB/s"])
    shared, inputs = Shared(), SharedInputs()
    both = [search_point(point(inputs, "llama", "megatron_cut", [*sets, *one], where), None, shared) for one in (fast, slow)]
    alone = [found(where, [*sets, *one], "ideal") for one in (fast, slow)]
    assert [one.latency_s for one in both] == [one.latency_s for one in alone]
    assert both[0].latency_s < both[1].latency_s


def test_what_joins_two_kinds_is_one_switch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'h100' and 'a100', are joined by a switch or point to point, not by a ring"):
        read_architecture(machine(tmp_path, (H100, 1), (A100, 1), topology="ring"), [])
    with pytest.raises(InputError, match=r"'fabric' holds accelerators of several kinds.*there can be one of it, not 3"):
        read_architecture(machine(tmp_path, (H100, 1), (A100, 1)), ["fabric.count=3"])
    with pytest.raises(InputError, match="two levels are called 'h100_node'"):
        read_architecture(machine(tmp_path, (H100, 1), ({**A100, "name": "h100"}, 1)), [])


def test_a_level_of_both_kinds_is_set_by_the_name_of_its_accelerator(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 1), (A100, 1))
    with pytest.raises(InputError, match="could mean 2 things") as caught:
        read_architecture(where, ["l2.memory.bandwidth=1 TB/s"])
    assert list(caught.value.known) == ["h100.l2.memory.bandwidth", "a100.l2.memory.bandwidth"]
    pools = read_architecture(where, ["a100.l2.memory.bandwidth=1 TB/s"]).pools
    rates = [pool.level("l2").memory.bandwidth_bytes_per_s for pool in pools]  # type: ignore[union-attr]
    assert rates[1] == 1e12
    assert rates[0] != 1e12


# -- what is refused -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapper", "sets", "says"),
    [
        ("fsdp", [], "a pipeline of layers joins them, and no axis says stages: layers"),
        ("megatron", ["schedule=1f1b", "interleave=1"], "stages of as many layers leave the faster ones waiting; say cut: free"),
        ("megatron", [], "cuts are searched under whole backward passes and one chunk a stage, not interleaved"),
        ("megatron_offload", ["cut=free", "schedule=1f1b", "interleave=1"], "nothing is offloaded"),
    ],
)
def test_what_is_not_for_several_kinds_is_refused(mapper: str, sets: list[str], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        found(machine(tmp_path, (H100, 1), (A100, 1)), [*SMALL, *sets], mapper=mapper)


def test_products_with_what_a_machine_is_made_of_count_as_far_as_is_asked(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 1), (A100, 1))
    inputs = read_inputs(where, "llama", mapper="megatron_cut", sets=[*FOUR, *PLAIN])
    bill = bill_of(inputs.architecture, tables_of(inputs.architecture))
    least = api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, profile="megatron_core", minimize="latency")
    for usage in (Usage(), Usage(boundaries=up_to("silicon"))):
        sheet = api.search_mapper(
            inputs.architecture, inputs.workload, inputs.mapper, profile="megatron_core", minimize="cdp", usage=usage
        ).result.certificate
        assert sheet.minimize == "cdp"
        assert sheet.objective == pytest.approx(bill.total_g(usage.boundaries).mid * least.result.latency_s, rel=1e-12)
    assert bill.total_g(up_to("silicon")).mid < 0.9 * bill.total_g().mid


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"minimize": "energy"}, "searched for latency"),
        ({"front": ["latency", "energy"]}, "no front yet"),
        ({"limits": {"power": "1 kW"}}, "limits are of memory and latency, not of power"),
    ],
)
def test_questions_that_are_not_answered_for_several_kinds_are_refused(more: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        found(machine(tmp_path, (H100, 1), (A100, 1)), SMALL, **more)


def test_a_mapping_that_no_pools_take_is_refused_at_its_place(tmp_path: Path, over_both: tuple[str, MappingSpec]) -> None:
    where, mapping = over_both
    step = mapping.step
    assert step is not None
    for change, path in (
        ({"pools": ["h100"]}, "step.pools"),
        ({"pools": ["h100", "b200"]}, "step.pools"),
        ({"pipeline": step.pipeline.model_copy(update={"stride": 1})}, "step.pipeline.stride"),
    ):
        with pytest.raises(InputError) as caught:
            again(where, mapping.model_copy(update={"step": step.model_copy(update=change)}), FOUR)
        assert path in str(caught.value)
    with pytest.raises(InputError, match="no order of kinds"):
        again(machine(tmp_path, (H100, 4)), mapping, FOUR)


def test_a_model_that_fits_no_cut_says_the_memory_that_would_do(tmp_path: Path) -> None:
    where = machine(tmp_path, (H100, 1), (A100, 1))
    with pytest.raises(InfeasibleError) as caught:
        api.search(where, "llama3_70b", "megatron_cut", sets=["b=8", "axes.pp.degree=2", "layouts={}"], profile="megatron_core")
    assert caught.value.need > caught.value.have
    assert "h100.memory.capacity" in caught.value.change
    assert "a100.memory.capacity" in caught.value.change


# -- cuts against every cut -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(samples.cases(1, 12)))
def test_cuts_over_two_kinds_are_the_best_of_all_cuts_and_mixes(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        one = pooled_problem(seed)
        least = brute_force(one)
        if least is None:
            with pytest.raises(InfeasibleError):
                best(one)
            continue
        answer = best(one)
        assert answer.proven, seed
        assert answer.seconds == pytest.approx(least[0], rel=1e-12), seed
        if seed % 10 == 0:
            assert cut_by_cpsat(one).bound <= answer.bound * (1 + 1e-12), seed
