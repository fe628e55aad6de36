"""Uneven shards: an index over an axis that does not divide it. The fullest accelerator sets the pace and needs the room; what is moved
and multiplied, and its joules, are what is there."""

from __future__ import annotations

import itertools
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rackmodel import api
from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Volume, message
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.errors import InputError
from rackmodel.mapper.layouts.capped import solve_capped
from rackmodel.mapper.layouts.eliminate import eliminate
from rackmodel.mapper.layouts.exhaustive import exhaust
from rackmodel.mapper.layouts.factors import build_factors
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.weights import ENERGY, LATENCY, total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.conversion import convert
from rackmodel.model.layout import PARTIAL, REPLICATE, legal_choices, rank_split, shard
from rackmodel.model.plan import MICRO, Plan
from rackmodel.model.profile import Buckets
from rackmodel.model.result import Result
from rackmodel.model.workload import Tensor, Workload
from tests import samples
from tests.audit.attack import attack
from tests.layout_cases import ATTENTION, FFN
from tests.machines import CORE, IDEAL, MLP, SERIAL, machine, mapper, workload
from tests.steps import columns_of, fixed_plans, priced
from tests.test_layout_search import random_graph

HEADS = CORE | {
    "V": "V[b,s,h,e] = X[b,s,d] * WV[d,h,e]",
    "AV": "Z[b,s,h,e] = P[b,h,s,t] * V[b,t,h,e]",
    "O": "Y[b,s,d] = Z[b,s,h,e] * WO[h,e,d]",
}
SIZES: dict[str, Any] = {"b": 2, "s": 64, "t": "s", "e": 16, "d": 96}
STEP = ["forward", "backward", "optimizer"]
GPUS = 4


def heads(count: int, phases: list[str] = STEP) -> Workload:
    return workload(HEADS, SIZES | {"h": count}, phases=phases)


def over_four(load: Workload, index: str | list[str] = "h", uneven: Any = "fullest", **more: Any) -> Result:
    maps = mapper(axes={"tp": {"degree": GPUS}}, split={"tp": [index]}, uneven=uneven, **more)
    return api.search_mapper(machine(racks=1, gpus=GPUS, static="10 W"), load, maps, profile=IDEAL).result


def amount(result: Result, **where: str) -> float:
    rows = [row for row in result.ledger.rows if all(getattr(row, key) == value for key, value in where.items())]
    return float(sum(row.amount for row in rows))


def seconds(result: Result, **where: str) -> float:
    rows = [row for row in result.ledger.rows if all(getattr(row, key) == value for key, value in where.items())]
    return float(sum(row.seconds for row in rows))


# -- by hand -----------------------------------------------------------------------------------------------------------------


def test_twenty_five_heads_over_four_are_7_6_6_6() -> None:
    """One product, Q[b,s,h,e] = X[b,s,d] WQ[d,h,e]: the first rank multiplies and holds 7 heads of 25, all together 25."""
    load = workload({"Q": HEADS["Q"]}, {"b": 2, "s": 64, "h": 25, "e": 16, "d": 96}, phases=["forward"])
    result = over_four(load)
    head = 2 * 64 * 16 * 96  # multiply-accumulates of a head
    assert amount(result, action="mac") == 2 * head * 25
    assert seconds(result, action="mac") == pytest.approx(2 * head * 7 / 10e12, rel=1e-15)
    weight, out, operand = 96 * 16 * 2, 2 * 64 * 16 * 2, 2 * 64 * 96 * 2  # bytes of a head's weight and result, and of X
    assert amount(result, tensor="WQ", action="read") == weight * 25
    assert amount(result, tensor="Q", action="write") == out * 25
    assert amount(result, tensor="X", action="read") == operand * 4  # each reads all of it
    assert seconds(result, tensor="WQ", action="read") == pytest.approx(weight * 7 / 1e12, rel=1e-15)
    assert result.memory["weights"] == weight * 7
    joules = (weight * 25 + out * 25 + operand * 4) * 8 * 5e-12 + 2 * head * 25 * 0.5e-12
    assert result.energy_j - 40 * result.latency_s == pytest.approx(joules, rel=1e-12)


def test_a_gather_of_25_heads_lasts_as_long_as_one_of_28_and_moves_25() -> None:
    """An all-gather of Z, 25 heads over 4: three steps of a ring, each as long as its longest message, of 7 heads."""
    load = workload({"Q": HEADS["Q"]}, {"b": 2, "s": 64, "h": 25, "e": 16, "d": 96}, phases=["forward"])
    result = over_four(load, boundary={"Q": {"tp": "none"}})
    head = 2 * 64 * 16 * 2
    assert amount(result, action="all_gather") == 3 * head * 25
    assert seconds(result, action="all_gather") == pytest.approx(3 * (1e-6 + head * 7 / 100e9), rel=1e-12)


def test_less_work_than_ranks_leaves_some_without() -> None:
    """Three heads over four: one each, and one accelerator none."""
    load = workload({"Q": HEADS["Q"]}, {"b": 2, "s": 64, "h": 3, "e": 16, "d": 96}, phases=["forward"])
    result = over_four(load)
    assert amount(result, action="mac") == 2 * 2 * 64 * 16 * 96 * 3
    assert result.memory["weights"] == 96 * 16 * 2


def test_sixty_experts_over_sixteen_and_a_vocabulary_over_eight() -> None:
    """ceil(60 / 16) = 4 experts and ceil(50257 / 8) = 6283 words on the fullest."""
    load = workload({"up": "H[x,b,s,f] = X[x,b,s,d] * W[x,d,f]"}, {"b": 2, "s": 8, "d": 32, "f": 16, "x": 60}, phases=["forward"])
    maps = mapper(axes={"ep": {"degree": 16}}, split={"ep": ["x"]}, uneven=["x"])
    result = api.search_mapper(machine(racks=4, gpus=4), load, maps, profile=SERIAL).result
    assert result.memory["weights"] == 4 * 32 * 16 * 2
    assert amount(result, action="mac") == 2 * 60 * 2 * 8 * 32 * 16
    words = workload({"logits": "L[b,s,v] = X[b,s,d] * W[d,v]"}, {"b": 1, "s": 8, "d": 32, "v": 50257}, phases=["forward"])
    maps = mapper(axes={"tp": {"degree": 8}}, split={"tp": ["v"]}, uneven=["v"])
    result = api.search_mapper(machine(), words, maps, profile=SERIAL).result
    assert result.memory["weights"] == 6283 * 32 * 2
    assert amount(result, action="mac") == 2 * 50257 * 8 * 32


GROUPED = {
    "Q": "Q[b,s,g,q,e] = X[b,s,d] * WQ[d,g,q,e]",
    "K": "K[b,s,g,e] = X[b,s,d] * WK[d,g,e]",
    "QK": "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]",
}


@pytest.mark.parametrize("uneven", ["error", "fullest", ["g"]])
@pytest.mark.parametrize(
    ("g", "q", "refused"),
    [(8, 4, False), (10, 4, True), (6, 2, True), (5, 5, True), (2, 6, False), (4, 7, False)],
)
def test_heads_that_begin_inside_a_group_are_refused(g: int, q: int, refused: bool, uneven: Any) -> None:
    """Over four ranks, heads in order: where a rank's heads reach into a group of another's, both make its keys. They were told as if each
    group were made once: of 10 groups of 4, ranks of 10 heads make 3 groups each, 12 in all."""
    load = workload(GROUPED, {"b": 2, "s": 64, "t": "s", "g": g, "q": q, "e": 16, "d": 96}, phases=["forward"])
    each = -(-g * q // GPUS)
    made = [len({head // q for head in range(rank * each, min((rank + 1) * each, g * q))}) for rank in range(GPUS)]
    whole = g % GPUS == 0 or GPUS % g == 0
    assert refused == (not whole)
    if refused:
        with pytest.raises(InputError, match=f"degree 4 does not divide g = {g} of K .parts of .g, q. that begin inside a g"):
            over_four(load, ["g", "q"], uneven=uneven)
        return
    found = over_four(load, ["g", "q"], uneven=uneven)
    assert amount(found, einsum="K", action="mac") == 2 * 2 * 64 * 16 * 96 * sum(made)
    again = api.evaluate_mapping(machine(racks=1, gpus=GPUS, static="10 W"), load, found.mapping, profile=IDEAL)
    assert again.latency_s == found.latency_s


def test_an_axis_of_several_degrees_is_asked_by_its_own_flattening() -> None:
    """Of degrees that are searched together each has its flattening: 2 divides 10 groups, 4 and 8 do not; f is f, whatever heads do."""
    sizes = {"b": 8, "s": 64, "t": "s", "g": 10, "q": 4, "e": 16, "d": 96, "f": 64}
    graph = GROUPED | {"up": "H[b,s,f] = X[b,s,d] * WU[d,f]"}
    maps = mapper(axes={"dp": {"degree": "free"}, "tp": {"degree": "free"}}, split={"dp": ["b"], "tp": [["g", "q"], "f"]}, uneven="error")
    found = build_mapspace(maps, workload(graph, sizes, phases=["forward"]), 8)
    degrees = {int(row[axis]) for group in found.groups for axis in (group.parents.index("tp"),) for row in group.columns.degrees}
    assert degrees == {1, 2}
    assert found.skipped["uneven split"] == 2
    alone = workload({"Q": GROUPED["Q"], "up": graph["up"]}, sizes | {"f": 6}, phases=["forward"])
    with pytest.raises(InputError, match="degree 4 does not divide f = 6 of up"):
        build_mapspace(mapper(axes={"tp": {"degree": 4}}, split={"tp": [["g", "q"], "f"]}, uneven="error"), alone, 4)


# -- against the padded problem ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [HEADS, MLP], ids=["heads", "mlp"])
@pytest.mark.parametrize("phases", [["forward"], STEP], ids=["forward", "step"])
@pytest.mark.parametrize("count", range(21, 33))
def test_time_and_memory_are_those_of_the_padded_problem_and_work_is_the_whole(
    graph: dict[str, str], phases: list[str], count: int
) -> None:
    """Padded to a multiple of the ranks, every rank has what the fullest has: equal seconds and bytes; work is what is there."""
    index = "h" if graph is HEADS else "f"
    sizes = SIZES if graph is HEADS else {"b": 2, "s": 64, "d": 96}
    own, padded = (over_four(workload(graph, sizes | {index: n}, phases=phases), index) for n in (count, -(-count // 4) * 4))
    assert own.latency_s == pytest.approx(padded.latency_s, rel=1e-12)
    assert own.memory == pytest.approx(padded.memory, rel=1e-12)
    assert amount(own, action="mac") * (-(-count // 4) * 4) == pytest.approx(amount(padded, action="mac") * count, rel=1e-12)
    if count % 4:
        assert own.energy_j < padded.energy_j
    else:
        assert own.energy_j == padded.energy_j


PADDED = product(
    ["megatron_core", "ideal", "deepspeed_zero3", "torchtitan"],
    ["homes={}", "homes={weights: {axes: [dp], param: shard, grad: shard, state: shard}}", "offload=[[optimizer]]"],
)


@pytest.mark.parametrize(("profile", "more"), samples.some(PADDED, 4))  # each of what it has more, under a profile of its own
def test_a_model_s_step_lasts_as_long_as_the_padded_one(profile: str, more: str) -> None:
    """GPT of 50 heads and 50,257 words, tensor parallelism 8 in a pipeline of two: 56 heads and 50,264 words. Tied table, hand-overs,
    projections that run as one product, ZeRO, an optimizer at the host; operations in proportion to what is there."""
    axes = "axes={pp: {degree: 2, stages: layers}, dp: {degree: 2}, tp: {degree: 8, place: inner}}"
    sets = [
        "accelerators=32",
        "layers=4",
        "micro_batch=2",
        "b=8",
        "s=256",
        "d=512",
        "f=2048",
        "interleave=1",
        axes,
        more,
        "recompute=selective",
        "tensor_core.compute.kernels.pace.alone=1",  # the two are models of their own, each with its pace
    ]
    own, padded, before = (
        api.search("dgx_h100", "gpt_22b", "megatron", sets=[*sets, *sizes, f"uneven={how}"], profile=profile).result
        for how, sizes in (("[h, v]", ["h=50", "v=50257"]), ("error", ["h=56", "v=50264"]), ("ceil", ["h=50", "v=50257"]))
    )
    same = 1e-9 if profile != "torchtitan" else 1e-4  # its calls share their start among weights by whole weights' elements
    assert own.latency_s == pytest.approx(padded.latency_s, rel=same)
    assert own.memory == pytest.approx(padded.memory, rel=1e-9)
    assert own.energy_j < padded.energy_j
    assert before.memory == pytest.approx(own.memory, rel=1e-12)  # the room is the fullest's under `ceil`, too
    assert amount(own, einsum="QK", action="mac") * 56 == pytest.approx(amount(padded, einsum="QK", action="mac") * 50, rel=1e-9)
    for einsum in ("Q", "K", "V", "O", "logits"):
        if amount(padded, einsum=einsum, action="mac"):
            real = (50257 / 50264) if einsum == "logits" else 50 / 56
            assert amount(own, einsum=einsum, action="mac") == pytest.approx(amount(padded, einsum=einsum, action="mac") * real, rel=1e-9)


@pytest.mark.parametrize("seed", range(samples.cases(20, 200)))
def test_where_degrees_divide_nothing_changes_to_the_last_digit(seed: int) -> None:
    pick = random.Random(seed)
    load = workload(random_graph(pick), {i: pick.choice([4, 8, 64]) for i in "bsdf"} | {"t": "s"}, phases=STEP)
    maps = mapper(axes={"dp": {"degree": 2}, "tp": {"degree": 4}}, split={"dp": ["b"], "tp": [pick.choice("sd")]})
    found = [
        api.search_mapper(machine(static="10 W"), load, maps.model_copy(update={"uneven": how}), profile=IDEAL).result
        for how in ("error", "fullest", ["d", "f", "s"])
    ]
    first = found[0]
    for other in found[1:]:
        assert (other.latency_s, other.energy_j, other.memory) == (first.latency_s, first.energy_j, first.memory)
        assert other.ledger.rows == first.ledger.rows


# -- against every rank, one by one --------------------------------------------------------------------------------------------


def shares(size: int, ranks: int) -> list[int]:
    """Whole points of each rank, the larger shares first."""
    return [size // ranks + (rank < size % ranks) for rank in range(ranks)]


def on_ranks(tensor: Tensor, layout: tuple[str, ...], degrees: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Bytes of a tensor on every rank of the mesh, counted point by point."""
    each = []
    for place in itertools.product(*(range(degree) for degree in degrees)):
        elements = 1.0
        for rank, size in zip(tensor.ranks, tensor.sizes, strict=True):
            axes = [axis for axis, placement in enumerate(layout) if rank_split(placement) == rank]
            number = int(np.ravel_multi_index([place[a] for a in axes], [degrees[a] for a in axes])) if axes else 0
            elements *= shares(size, int(np.prod([degrees[a] for a in axes])))[number]
        each.append(elements * tensor.bits / 8)
    return np.array(each)


def random_case(seed: int) -> tuple[Workload, Plan, tuple[int, ...]]:
    """A graph of odd sizes and a plan of any legal choices, on a mesh."""
    pick = random.Random(seed)
    name = pick.choice(["chain", "chain", "attention", "ffn"])
    graph = random_graph(pick) if name == "chain" else {"attention": ATTENTION, "ffn": FFN}[name]
    sizes: dict[str, Any] = {i: pick.choice([3, 5, 7, 10, 12, 25]) for i in "bsdf"} | {"t": "s", "h": 7, "g": 3, "q": 2, "e": 5}
    used = {index for text in graph.values() for index in text}
    load = workload(graph, {i: n for i, n in sizes.items() if i in used or i == "s"}, phases=["forward", "backward"])
    degrees = pick.choice([(2,), (4,), (2, 2), (2, 4), (3, 2)])
    axes = tuple(f"axis{number}" for number in range(len(degrees)))
    choices = {op.name: (*(pick.choice(legal_choices(op, load)) for _ in axes), None) for op in load.ops.values()}
    edges = {
        name: (*(pick.choice([REPLICATE, *map(shard, load.tensors[name].ranks)]) for _ in axes), REPLICATE)
        for name in (*load.inputs, *load.outputs)
    }
    stages = dict.fromkeys(load.ops, 0)
    plan = Plan(axes=(*axes, MICRO), choices=choices, boundary=edges, stages=stages, homes={}, save={}, uneven="fullest")
    return load, plan, degrees


def checked(volume: Volume, layout: tuple[str, ...], tensor: Tensor, degrees: tuple[int, ...]) -> int:
    """Whether a volume that is what the ranks hold is one that they hold unevenly."""
    each = on_ranks(tensor, layout[: len(degrees)], degrees)
    mean, fullest = (float(side.reshape(-1)[0]) for side in volume.both(np.array([[*degrees, 1]])))
    assert mean * len(each) == pytest.approx(each.sum(), rel=1e-12)
    assert fullest == pytest.approx(each.max(), rel=1e-12)
    return int(each.max() > each.min())


@pytest.mark.parametrize("block", range(4))
def test_every_charge_is_the_sum_over_the_ranks_and_lasts_as_long_as_the_fullest(block: int) -> None:
    """Random graphs and plans: bytes of every flow and message and of all that is held, against a walk over the ranks of the mesh."""
    uneven = 0
    for seed in range(block * 1000, block * 1000 + samples.cases(15, 200)):
        load, plan, degrees = random_case(seed)
        strides = tuple(int(np.prod(degrees[axis + 1 :])) for axis in range(len(degrees)))
        columns = columns_of(plan, [[*degrees, 1]], [[*strides, 1]])
        arch = machine(racks=1, gpus=int(np.prod(degrees)))
        pricer = Pricer(Setting(architecture=arch), load, plan, columns, Buckets())
        program = derive(load, plan)
        for held in program.held:
            if held.what == "weights":
                layout = plan.needs(load.ops[load.readers[held.tensor][0]], _position(load, held.tensor), load)
                uneven += checked(held.volume, layout, load.tensors[held.tensor], degrees)
        for task in program.tasks:
            op = load.ops.get(task.einsum)
            if task.phase != "forward" or op is None or task.local_op is None:
                continue
            for number, flow in enumerate(task.local_op.reads):
                if op.kind.inner != "selects":
                    uneven += checked(flow.volume, plan.needs(op, number, load), load.tensors[flow.tensor], degrees)
            uneven += checked(task.local_op.writes[0].volume, plan.leaves(op), load.tensors[op.out.tensor], degrees)
            rows, _ = pricer.task(task)
            points = _points_on_ranks(load, op.name, plan, degrees)
            for row in rows:
                if row.component == "compute":
                    each = (2.0 if task.local_op.macs else task.local_op.per_element) * points
                    assert float(row.amount[0]) == pytest.approx(each.sum(), rel=1e-12), seed
                    assert float(row.seconds[0]) == pytest.approx(each.max() / 10e12, rel=1e-12), seed
    assert uneven > 20


@pytest.mark.parametrize("seed", range(samples.cases(40, 400)))
def test_the_largest_part_sets_the_pace_of_a_collective(seed: int) -> None:
    """Random conversions of a tensor [p,q] of odd sizes over one axis, against every pair of ranks: N parts as large as the largest."""
    pick = random.Random(seed)
    p, q, n = pick.randint(1, 30), pick.randint(1, 30), pick.choice([2, 3, 4, 8])
    load = workload({"op": "T[p,q] = gelu(X[p,q])"}, {"p": p, "q": q}, phases=["forward"])
    tensor = load.tensors["X"]
    plan = Plan(axes=("tp", MICRO), choices={}, boundary={}, stages={}, homes={}, save={}, uneven="fullest")
    source, target = (pick.choice([shard("p"), shard("q"), end]) for end in (PARTIAL, REPLICATE))
    for step in convert((source, REPLICATE), (target, REPLICATE)):
        cut = {source, target}
        rows, columns = (shares(size, n) if shard(rank) in cut else [size] for rank, size in (("p", p), ("q", q)))
        parts = [row * column * tensor.bits / 8 for row in rows for column in columns]
        if step.collective == "all_reduce":
            parts = [part / n for part in parts]  # cut in bytes
        volume = message(tensor.bytes, step, tensor, plan)
        assert float(volume.fullest(np.array([[n, 1]]))[0]) == pytest.approx(n * max(parts), rel=1e-12)


def _position(load: Workload, weight: str) -> int:
    op = load.ops[load.readers[weight][0]]
    return next(i for i, access in enumerate(op.ins) if access.tensor == weight)


def _points_on_ranks(load: Workload, name: str, plan: Plan, degrees: tuple[int, ...]) -> np.ndarray[Any, Any]:
    op = load.ops[name]
    each = []
    for place in itertools.product(*(range(degree) for degree in degrees)):
        points = 1.0
        for index in op.indices:
            axes = [axis for axis, choice in enumerate(plan.choices[name][:-1]) if choice == index]
            number = int(np.ravel_multi_index([place[a] for a in axes], [degrees[a] for a in axes])) if axes else 0
            points *= shares(load.sizes[index], int(np.prod([degrees[a] for a in axes])))[number]
        each.append(points)
    return np.array(each)


# -- the searches ------------------------------------------------------------------------------------------------------------


def test_solvers_of_free_layouts_agree_with_the_grid_and_the_ledger() -> None:
    """Random graphs of odd sizes over four accelerators: elimination and CP-SAT find the grid's optimum, and tables are the ledger's."""
    solved = 0
    for seed in range(samples.cases(12, 60)):
        pick = random.Random(seed)
        load = workload(random_graph(pick), {i: pick.choice([3, 5, 7, 25]) for i in "bsdf"} | {"t": "s"}, phases=STEP)
        arch = machine(racks=2, gpus=2, inside="10 GB/s", outside="1 GB/s", capacity="1 TB")
        maps = mapper(axes={"tp": {"degree": "all"}}, split={"tp": "free"}, uneven="fullest", save="free")
        problem: LayoutProblem = build_mapspace(maps, load, arch.used).problems[0]
        if problem.size > 20_000:
            continue
        factors = build_factors(Setting(architecture=arch), problem, SERIAL)
        for weights in (LATENCY, ENERGY):
            each = [total(factors, exhaust(factors, weights)), total(factors, eliminate(factors, weights))]
            side = 0 if weights is LATENCY else 1
            assert each[0][side] == pytest.approx(each[1][side], rel=1e-9), seed
        best = eliminate(factors, LATENCY)
        assert total(factors, solve_capped(factors, LATENCY).chosen or {})[0] == pytest.approx(total(factors, best)[0], rel=1e-9)
        chosen = {name: pick.randrange(count) for name, count in factors.counts.items()}
        for one in (best, chosen):
            step = priced(arch, load, factors.plan(problem, one), problem.columns)
            found = float(step.latency[0]), float(step.energy[0]), float(step.memory[0])
            assert found == pytest.approx(total(factors, one), rel=1e-11), seed
        solved += 1
    assert solved > 5


def test_columns_of_many_meshes_are_the_meshes_one_by_one() -> None:
    load = workload(HEADS, SIZES | {"h": 25, "b": 64}, phases=STEP)
    maps = mapper(axes={"dp": {"degree": "free"}, "tp": {"degree": "free"}}, split={"dp": ["b"], "tp": ["h"]}, uneven=["h"])
    arch = machine(racks=4, gpus=8)
    for plan, columns in fixed_plans(maps, load, arch.used):
        every = priced(arch, load, plan, columns)
        for i in range(len(columns)):
            one = priced(arch, load, plan, columns.pick(np.array([i])))
            found = [(float(side.latency[x]), float(side.energy[x]), float(side.memory[x])) for side, x in ((every, i), (one, 0))]
            assert found[0] == found[1]


@pytest.mark.parametrize("seed", samples.some([28, 32, 59, 1019, 1125], 2))
def test_what_a_search_claims_of_uneven_spaces_holds(seed: int) -> None:
    """Spaces of the audit in which copies to a host were once those of other columns."""
    assert not attack("shards", seed, 20).broken


def test_a_mapping_file_of_an_uneven_mapping_is_priced_as_the_search_priced_it(tmp_path: Path) -> None:
    load = heads(25)
    result = over_four(load)
    assert result.mapping.uneven == "fullest"
    again = api.evaluate_mapping(machine(racks=1, gpus=GPUS, static="10 W"), load, result.mapping, profile=IDEAL)
    assert (again.latency_s, again.energy_j, again.memory) == (result.latency_s, result.energy_j, result.memory)


# -- what is allowed -----------------------------------------------------------------------------------------------------------


def test_a_list_allows_its_indices_and_no_other() -> None:
    assert over_four(heads(25), uneven=["h"]).latency_s == over_four(heads(25)).latency_s
    with pytest.raises(InputError, match="degree 4 does not divide h = 25 of"):
        over_four(heads(25), uneven=["e"])
    with pytest.raises(InputError, match="does not divide"):
        over_four(heads(25), uneven="error")


def test_a_list_of_indices_that_the_workload_has_not_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match="none of the indices x") as caught:
        over_four(heads(25), uneven=["x"])
    assert caught.value.path == "uneven"
    with pytest.raises(ValidationError, match="an empty list leaves nothing"):
        over_four(heads(25), uneven=[])


def test_a_batch_that_ranks_do_not_divide_runs_whole() -> None:
    """Seven samples on four ranks: two on the fullest."""
    load = workload({"Q": HEADS["Q"]}, {"b": 7, "s": 64, "h": 4, "e": 16, "d": 96}, phases=["forward"])
    result = over_four(load, "b", uneven=["b"])
    assert seconds(result, action="mac") == pytest.approx(2 * 2 * 64 * 4 * 16 * 96 / 10e12, rel=1e-15)
    assert amount(result, tensor="X", action="read") == 7 * 64 * 96 * 2


@pytest.mark.parametrize("micro_batch", ["free", 2, [1, 2]])
def test_free_micro_batches_hold_the_whole_of_a_batch_that_ranks_do_not_divide(micro_batch: Any) -> None:
    """The two samples of the fullest rank run together, whether that is what was asked for or one of several choices."""
    load = workload({"Q": HEADS["Q"]}, {"b": 7, "s": 64, "h": 4, "e": 16, "d": 96}, phases=["forward"])
    found, whole = (over_four(load, "b", uneven="ceil", micro_batch=said) for said in (micro_batch, "whole"))
    assert (found.latency_s, found.energy_j, found.mapping.step) == (whole.latency_s, whole.energy_j, whole.mapping.step)
    with pytest.raises(InputError, match="batch does not divide"):
        over_four(load, "b", uneven="ceil", micro_batch=1)


def test_ceil_counts_operations_and_room_of_the_fullest_and_bytes_of_the_mean() -> None:
    load = workload({"Q": HEADS["Q"]}, {"b": 2, "s": 64, "h": 25, "e": 16, "d": 96}, phases=["forward"])
    result = over_four(load, uneven="ceil")
    assert result.memory["weights"] == 96 * 16 * 2 * 7
    assert seconds(result, action="mac") == pytest.approx(2 * 2 * 64 * 16 * 96 * 7 / 10e12, rel=1e-15)
    assert seconds(result, tensor="WQ", action="read") == pytest.approx(96 * 16 * 2 * 25 / 4 / 1e12, rel=1e-15)


@pytest.mark.parametrize("scheme", ["data", "fsdp", "zero1"])
@pytest.mark.parametrize("samples", [1, 3, 5])
def test_ranks_without_a_sample_make_no_room_on_those_with_one(scheme: str, samples: int) -> None:
    """Of four ranks the busiest holds ceil(samples / 4) whole samples: as much as if all had as many."""
    one, full = (
        api.search("dgx_h100", "llama3_8b", scheme, sets=["accelerators=4", "gpu.memory.capacity=4 TB", f"b={b}"]).result
        for b in (samples, 4 * -(-samples // 4))
    )
    shared = ("weights", "gradients", "optimizer", "activations", "working", "gathered")
    assert {what: one.memory.get(what) for what in shared} == {what: full.memory.get(what) for what in shared}
    if scheme != "data":  # which counts bytes as papers do
        assert one.latency_s == pytest.approx(full.latency_s, rel=1e-12)
