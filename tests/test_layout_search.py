"""The layout search: its solvers agree on random graphs, its tables add up to the ledger, and it finds the known plans by itself."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rackmodel import api
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.layouts.capped import fix, min_marginals, solve_capped
from rackmodel.mapper.layouts.codes import LayoutCodes, Mover
from rackmodel.mapper.layouts.cpsat import solve_cpsat
from rackmodel.mapper.layouts.eliminate import buckets, eliminate
from rackmodel.mapper.layouts.exhaustive import exhaust
from rackmodel.mapper.layouts.factors import HOMES, Factors, build_factors
from rackmodel.mapper.layouts.problem import LayoutProblem
from rackmodel.mapper.layouts.solve import least_memory
from rackmodel.mapper.layouts.weights import ENERGY, LATENCY, Weights, total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.architecture import Architecture
from rackmodel.model.conversion import effort
from rackmodel.model.copies import plan_copies, resolved, saved_copy
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from tests import samples
from tests.layout_cases import LLAMA
from tests.machines import SERIAL, machine, mapper, workload
from tests.steps import priced

LLAMA_SIZES = {"b": 1, "s": 2048, "t": "s", "d": 4096, "g": 8, "q": 4, "e": 128, "f": 14336}
BF16 = {"activation": "16 bit", "weight": "16 bit", "gradient": "16 bit"}
ATTENTION = ("Q", "K", "V", "ropeQ", "ropeK", "QK", "softmax", "AV", "O")
SMALL = 30_000  # assignments that the grid still walks in milliseconds


def llama(batch: int = 1, **more: Any) -> Workload:
    """One Llama-3-8B block."""
    return workload(LLAMA, LLAMA_SIZES | {"b": batch}, precision=BF16, **more)


def fast_switch(capacity: str | None = None) -> Architecture:
    """Eight accelerators on one fast tier with a small start-up."""
    return machine(racks=1, gpus=8, inside="450 GB/s", latency="1 us", capacity=capacity)


# -- random problems ---------------------------------------------------------------------------------------------------------


def random_graph(pick: random.Random) -> dict[str, str]:
    """A chain or DAG of two to four einsums, norms, activations and adds over [b,s,d] and [b,s,f]."""
    known = {"X": "d"}
    ops: dict[str, str] = {}
    for number in range(pick.choice([2, 2, 3, 3, 4])):
        source = pick.choice(list(known)[-2:])
        rank, out = known[source], f"T{number}"
        twins = [name for name, other in known.items() if other == rank and name != source]
        kind = pick.choice(["einsum", "einsum", "norm", "gelu", "add" if twins else "einsum", "mix" if twins else "einsum"])
        if kind == "einsum":
            to = "f" if rank == "d" else "d"
            ops[f"op{number}"] = f"{out}[b,s,{to}] = {source}[b,s,{rank}] * W{number}[{rank},{to}]"
            known[out] = to
            continue
        if kind == "mix":
            ops[f"op{number}"] = f"{out}[b,s,t] = {source}[b,s,{rank}] * {pick.choice(twins)}[b,t,{rank}]"
            continue
        ops[f"op{number}"] = {
            "norm": f"{out}[b,s,{rank}] = rmsnorm({source}[b,s,{rank}], W{number}[{rank}]) over {rank}",
            "gelu": f"{out}[b,s,{rank}] = gelu({source}[b,s,{rank}])",
            "add": f"{out}[b,s,{rank}] = add({source}[b,s,{rank}], {pick.choice(twins or ['X'])}[b,s,{rank}])",
        }[kind]
        known[out] = rank
    return ops


def random_problem(seed: int, *, narrow: bool = False) -> tuple[LayoutProblem, Factors] | None:
    """A random machine, graph and mapper; None where the grid is too large. narrow: activations at few bits, gradients at more."""
    pick = random.Random(seed)
    sizes = {i: pick.choice([1, 2, 4, 8, 64, 256]) for i in "bsdf"} | {"t": "s"}
    phases = pick.choice([["forward"], ["forward", "backward"], ["forward", "backward", "optimizer"]])
    graph = random_graph(pick)
    made = [text.partition("[")[0] for text in graph.values()] if narrow else []
    read = [name for name in made if any(f"{name}[" in text.partition("=")[2] for text in graph.values())]
    widths = {name: {"precision": f"{4 + 4 * (number % 2)} bit", "gradient": "16 bit"} for number, name in enumerate(read)}
    load = workload(graph, sizes, phases=phases, tensors=widths)
    arch = machine(
        racks=2,
        gpus=2,
        inside=f"{pick.choice([1, 10, 100])} GB/s",
        outside=f"{pick.choice([1, 10])} GB/s",
        latency=pick.choice(["0 s", "1 us", "20 us"]),
        hops=pick.choice(["slowest_link", "path_sum"]),
        static=pick.choice(["0 W", "100 W"]),
        capacity="1 TB",
    )
    axes: dict[str, Any] = pick.choice([{"tp": {"degree": "all"}}, {"dp": {"degree": 2}, "tp": {"degree": "rest"}}])
    split = {"dp": pick.choice([["b"], "free"]), "tp": "free"} if "dp" in axes else {"tp": "free"}
    kept: dict[str, Any] = {"save": pick.choice(["shard", "gathered", "free"]), "recompute": pick.choice(["none", "none", "full"])}
    homes = pick.choice([{}, {"weights": "free"}, {"weights": "free"}])
    batches = pick.choice([1, 1, 4])
    ranks = 2 if split.get("dp") == ["b"] else 1
    micro_batch = max(1, sizes["b"] // (batches * ranks)) if sizes["b"] % ranks == 0 and batches > 1 else "whole"
    kept = kept if "backward" in phases else {}
    maps = mapper(axes=axes, split=split, homes=homes if load.weights else {}, micro_batch=micro_batch, **kept)
    problem = build_mapspace(maps, load, arch.used).problems[0]
    if problem.size > SMALL:
        return None
    return problem, build_factors(Setting(architecture=arch), problem, SERIAL)


def figures(factors: Factors, chosen: dict[str, int] | None, weights: Weights) -> tuple[float, float] | None:
    """(first objective, tie) of an assignment."""
    if chosen is None:
        return None
    seconds, joules, _ = total(factors, chosen)
    return (
        weights.latency * seconds + weights.energy * joules,
        weights.tie_latency * seconds + weights.tie_energy * joules,
    )


def capped(factors: Factors, share: float) -> Factors:
    """The same problem with a capacity `share` of the way from the least it can do with to what its fastest plan needs."""
    fastest = total(factors, eliminate(factors, LATENCY))[2]
    least = total(factors, eliminate(factors, Weights(0.0, 0.0, 1.0, 0.0), penalty=1.0))[2]
    return replace(factors, capacity=least + share * (fastest - least))


@pytest.mark.parametrize("block", range(4))
def test_every_solver_finds_the_same_optimum_on_random_graphs(block: int) -> None:
    solved, seed = 0, block * 100_000
    while solved < samples.cases(20, 100):
        seed += 1
        problem = random_problem(seed)
        if problem is None:
            continue
        factors = problem[1]
        for weights in (LATENCY, ENERGY):
            grid = figures(factors, exhaust(factors, weights), weights)
            assert figures(factors, eliminate(factors, weights), weights) == pytest.approx(grid, rel=1e-9), seed
            solved += 1
        tight = capped(factors, random.Random(-seed).choice([-0.01, 0.0, 0.2, 0.5, 0.8, 0.97]))
        grid = figures(tight, exhaust(tight, LATENCY), LATENCY)
        fixed = solve_capped(tight, LATENCY)
        assert figures(tight, fixed.chosen, LATENCY) == (None if grid is None else pytest.approx(grid, rel=1e-9)), seed
        assert fixed.optimal
        assert grid is None or fixed.bound <= grid[0] * (1 + 1e-9)
        solved += 1
        if seed % 10 == 0:
            plain = solve_cpsat(tight, LATENCY)
            assert figures(tight, plain.chosen, LATENCY) == (None if grid is None else pytest.approx(grid, rel=1e-9)), seed


@pytest.mark.parametrize("narrow", [False, True], ids=["of one width", "gradients wider"])
def test_the_tables_add_up_to_the_ledger_with_saved_copies_and_homes_chosen(narrow: bool) -> None:
    checked, count = 0, samples.cases(6, 30)
    sums_in_shards = (1_000_048, 1_000_066, 1_000_075, 1_000_086)  # micro-batches whose gradients are summed where they are reduced to
    for seed in (*range(1_000_000, 1_000_000 + count), *sums_in_shards):
        problem = random_problem(seed, narrow=narrow)
        if problem is None:
            continue
        arch = machine(racks=2, gpus=2, inside="10 GB/s", outside="1 GB/s", capacity="1 TB")
        factors = build_factors(Setting(architecture=arch), problem[0], SERIAL)
        pick = random.Random(seed)
        for _ in range(6):
            chosen = {name: pick.randrange(count) for name, count in factors.counts.items()}
            step = priced(arch, problem[0].workload, factors.plan(problem[0], chosen), problem[0].columns)
            seconds, joules, size = total(factors, chosen)
            assert float(step.latency[0]) == pytest.approx(seconds, rel=1e-11), seed
            assert float(step.energy[0]) == pytest.approx(joules, rel=1e-11), seed
            assert float(step.memory[0]) == pytest.approx(size, rel=1e-11), seed
            checked += 1
    assert checked > 4 * count


@samples.audited
def test_the_least_memory_is_the_grid_s_also_where_a_pass_works_on_more_than_is_held() -> None:
    seen = 0
    for seed in range(3_000_000, 3_000_060):
        problem = random_problem(seed)
        if problem is None or problem[1].size > 3000:
            continue
        factors = problem[1]
        points = itertools.product(*(range(count) for count in factors.counts.values()))
        least = min(total(factors, dict(zip(factors.counts, point, strict=True)))[2] for point in points)
        assert total(factors, least_memory(factors))[2] == pytest.approx(least, rel=1e-12), seed
        seen += 1
    assert seen > 20


def test_min_marginals_are_what_the_grid_says() -> None:
    seen = 0
    for seed in range(2_000_000, 2_000_040):
        problem = random_problem(seed)
        if problem is None or problem[1].size > 3000:
            continue
        factors = problem[1]
        values = list(itertools.product(*(range(count) for count in factors.counts.values())))
        cost = np.array([total(factors, dict(zip(factors.counts, point, strict=True)))[0] for point in values])
        marginals = min_marginals(buckets(factors, LATENCY), factors)
        for place, (name, count) in enumerate(factors.counts.items()):
            for option in range(count):
                expected = cost[[point[place] == option for point in values]].min()
                assert marginals[name][option] == pytest.approx(expected, rel=1e-9), (seed, name)
        seen += 1
    assert seen > 10


def test_codes_follow_the_rules_of_layouts_one_by_one() -> None:
    pick = random.Random(1)
    layouts = list(itertools.product(["R", "P", "S:b", "S:s"], ["R", "P", "S:d"]))
    codes = LayoutCodes(layouts, 2)
    mover = Mover(codes, lambda a, b: (float(effort(a, b)), 0.0))
    for _ in range(300):
        produced, *others = (pick.choice(layouts) for _ in range(6))
        forward, backward = others[:3], others[3:]
        one, ahead, back = ([np.array([codes.code(lay)], dtype=np.int32) for lay in group] for group in ((produced,), forward, backward))
        plan = plan_copies([produced], forward)
        assert mover.copies(one[0], ahead)[0, 0] == sum(effort(a, b) for b, a in plan.items())
        assert codes.layouts[codes.resolved(one[0], ahead)[0]] == resolved(produced, forward)
        for policy in ("shard", "gathered"):
            kept = codes.saved(policy == "gathered", one[0], ahead, back)
            assert codes.layouts[kept[0]] == saved_copy(policy, produced, forward, backward)


# -- micro-batches and homes, by hand ------------------------------------------------------------------------------------------


def test_four_micro_batches_gather_zero_3_twice_each_and_reduce_replicas_once() -> None:
    """W is 8 x 8 x 2 B = 128 B on a ring of 2 at 1 GB/s: an all-gather or reduce-scatter takes 64 ns, an all-reduce 128 ns. Where each
    micro-batch's gradient is added to a shard of 64 B, three of four read it at 1 TB/s: 0.064 ns each. No optimizer is asked for, after
    which parameters would be gathered."""
    load = workload({"op": "Y[b,f] = X[b,d] * W[d,f]"}, {"b": 8, "d": 8, "f": 8}, precision=BF16)
    arch = machine(racks=1, gpus=2, inside="1 GB/s", latency="0 s")
    again = 3 * 0.064
    for batches, expected in ((1, (128, 64, 64, 64 * 3)), (4, (128, 64, 4 * 64 + again, 4 * 64 * 3 + again))):
        maps = mapper(axes={"dp": {"degree": "all"}}, split={"dp": ["b"]}, homes={"weights": "free"}, micro_batch=4 // batches)
        (problem,) = build_mapspace(maps, load, 2).problems
        factors = build_factors(Setting(architecture=arch), problem, SERIAL)
        weight = next(f for f in factors.factors if f.name == "tensor W")
        assert factors.decisions["home W"] == HOMES
        assert weight.latency[0] * 1e9 == pytest.approx(expected, rel=1e-9)
        resting = [256, 256, 128 + 64, 64 + 64]  # parameter and gradient, whole or half
        passing = [0, 0, 2 * 128, 2 * (128 + 128)]  # two layers' worth of what is whole for a while: gradients on their way, parameters
        assert weight.memory[0] == pytest.approx(np.add(resting, passing))
        saved = next(f for f in factors.factors if f.name == "tensor X")
        assert float(saved.memory.sum()) == 64 / batches  # half of X's 8 x 8 x 2 B, of the one micro-batch in flight


def test_operations_are_counted_once_a_micro_batch() -> None:
    arch, load = fast_switch(), llama()
    maps = mapper(axes={"tp": {"degree": "all"}}, split={"tp": "free"}, micro_batch=1)
    (eight,) = build_mapspace(maps, llama(batch=8), 8).problems
    same = {op: (choices, (None,)) for op, (choices, _) in eight.mesh.domains.items()}  # the same choices for one sample
    alone = replace(eight, workload=load, mesh=replace(eight.mesh, degrees=(8, 1), domains=same))
    one, many = (build_factors(Setting(architecture=arch), problem, SERIAL) for problem in (alone, eight))
    for first, second in zip(one.factors, many.factors, strict=True):
        kind, name = first.name.split(" ", 1)
        if kind == "tensor" and name in load.weights:
            continue
        more_s, more_j = second.seconds - first.seconds * 8, second.joules - first.joules * 8
        read = _sums_read_again(load, many, name) if kind == "op" else np.zeros(second.seconds.shape)  # bytes of sums, on all accelerators
        assert more_j == pytest.approx(read * 8 * 5e-12)
        assert (more_s >= -1e-15).all()
        assert (more_s <= read / 1e12 + 1e-15).all()
        assert second.bytes == pytest.approx(first.bytes)


def _sums_read_again(load: Workload, factors: Factors, name: str) -> np.ndarray[Any, Any]:
    """[strategies] bytes of the gradient sums that seven of eight micro-batches read before they add to them."""
    op, found = load.ops[name], np.zeros(len(factors.strategies[name]))
    for access in op.ins:
        tensor = load.tensors[access.tensor]
        if tensor.kind == "weight":
            copies = [1 if strategy[0] in access.names else 8 for strategy in factors.strategies[name]]
            found += 7 * 2 * tensor.elements * np.array(copies)  # gradients of two bytes, as BF16 says
    return found


# -- rediscovery: known plans from nothing but einsums -------------------------------------------------------------------------


def search_llama(capacity: str | None = None) -> Result:
    """The best layouts of the Llama block over one tensor axis of 8."""
    maps = mapper(axes={"tp": {"degree": "all"}}, split={"tp": "free"}, save="free")
    return api.search_mapper(fast_switch(capacity), llama(), maps, minimize="latency").result


def megatron_sp(choices: dict[str, dict[str, str | None]]) -> bool:
    """Columns then rows on attention (by kv group) and MLP, norms and residual on the sequence."""
    wanted = dict.fromkeys(ATTENTION, "g") | dict.fromkeys(("gate", "up", "swiglu", "down"), "f")
    wanted |= dict.fromkeys(("norm1", "norm2", "res1", "res2"), "s")
    return {op: choice["tp"] for op, choice in choices.items()} == wanted


def test_megatron_with_sequence_parallel_norms_is_found_from_einsums() -> None:
    best = search_llama()
    assert best.certificate.gap == 0
    assert megatron_sp(best.mapping.ops)
    assert (best.mapping.save["N1"], best.mapping.save["N2"]) == ("gathered", "gathered")


def test_less_memory_keeps_shards_and_gathers_them_again() -> None:
    free = search_llama()
    working = free.memory["working"]
    kept = sum(free.memory.values()) - working
    tight = search_llama(f"{working + kept * 0.95:.0f} B")
    assert tight.certificate.gap == 0
    assert megatron_sp(tight.mapping.ops)
    assert sorted((tight.mapping.save["N1"], tight.mapping.save["N2"])) == ["gathered", "shard"]  # one is enough
    published = search_llama(f"{working + kept * 0.86:.0f} B")
    assert published.certificate.gap == 0
    assert megatron_sp(published.mapping.ops)
    assert (published.mapping.save["N1"], published.mapping.save["N2"]) == ("shard", "shard")
    assert free.latency_s < tight.latency_s < published.latency_s


def test_zero_3_is_chosen_where_weights_dominate_and_memory_is_tight() -> None:
    ffn = {"FC1": "H[b,f] = X[b,d] * W1[d,f]", "FC2": "Y[b,d] = H[b,f] * W2[f,d]"}
    layers = 1024  # so many that the two whose parameters and gradients are whole for a while do not matter
    load = workload(ffn, {"b": 8, "d": 1024, "f": 4096}, phases=["forward", "backward", "optimizer"], repeat=layers)
    arch = machine(racks=1, gpus=8)
    (problem,) = build_mapspace(mapper(axes={"dp": {"degree": "all"}}, split={"dp": ["b"]}, homes={"weights": "free"}), load, 8).problems
    factors = build_factors(Setting(architecture=arch), problem, SERIAL)
    parameters = layers * 2 * 1024 * 4096
    chosen = {}
    for bytes_per_parameter in (19.0, 4.5, 3.2, 2.3):  # all 18, ZeRO-2 2 + 16 / 8 = 4, one of each 3.125, ZeRO-3 18 / 8 = 2.25
        tight = replace(factors, capacity=bytes_per_parameter * parameters)
        solved = solve_capped(tight, LATENCY)
        assert solved.optimal
        assert solved.chosen is not None
        assert solved.bound == pytest.approx(total(tight, solved.chosen)[0], rel=1e-9)
        chosen[bytes_per_parameter] = sorted(factors.decisions[f"home {w}"][solved.chosen[f"home {w}"]] for w in ("W1", "W2"))
        step = priced(arch, load, factors.plan(problem, solved.chosen), problem.columns)
        assert float(step.memory[0]) <= bytes_per_parameter * parameters
    assert chosen[2.3] == ["param", "param"]
    assert chosen[3.2] in (["grad", "param"], ["param", "state"])
    assert "param" not in chosen[4.5]
    assert "param" not in chosen[19.0]
    assert solve_capped(replace(factors, capacity=2.2 * parameters), LATENCY).chosen is None


def test_tensor_parallelism_stays_inside_where_outer_links_are_slow() -> None:
    arch = machine(racks=2, gpus=4, inside="450 GB/s", outside="5 GB/s", latency="1 us")
    axes = {"tp": {"degree": 4, "place": "free"}, "dp": {"degree": 2, "place": "free"}}
    maps = mapper(axes=axes, split={"dp": ["b"], "tp": "free"}, save="free")
    best, other = api.search_mapper(arch, llama(batch=4), maps, minimize="latency", top=2).top
    assert best.certificate.gap == 0
    assert other.mapping.axes["tp"].stride == 2
    assert other.latency_s > 1.1 * best.latency_s
    assert best.mapping.axes["tp"].stride == 1
    assert best.mapping.axes["dp"].stride == 4
    assert best.mapping.ops["gate"]["tp"] == "f"
    assert best.mapping.ops["norm1"]["tp"] in ("s", "d")  # 'd' shrinks the norm's gradient on the slow link


def test_eight_micro_batches_with_memory_to_spare_beat_megatron_with_sequence_parallel_attention() -> None:
    arch, load = fast_switch(), llama(batch=8, phases=["forward", "backward", "optimizer"])
    maps = mapper(axes={"tp": {"degree": "all"}}, split={"tp": "free"}, save="free", homes={"weights": "free"}, micro_batch=1)
    (problem,) = build_mapspace(maps, load, 8).problems
    factors = build_factors(Setting(architecture=arch), problem, SERIAL)
    solved = solve_capped(factors, LATENCY)
    assert solved.optimal
    assert solved.chosen is not None
    value = {name: values[solved.chosen[name]][0] for name, values in factors.strategies.items()}
    named = dict.fromkeys(factors.counts, 0)
    for op in load.ops:
        choice = "g" if op in ATTENTION else "f" if op in ("gate", "up", "swiglu", "down") else "s"
        named[op] = next(i for i, strategy in enumerate(factors.strategies[op]) if strategy[0] == choice)
    named |= {"save N1": 1, "save N2": 1}
    assert solved.bound <= total(factors, solved.chosen)[0] * (1 + 1e-12)
    assert total(factors, solved.chosen)[0] < total(factors, named)[0]
    assert {value[op] for op in ATTENTION} == {"s"}  # K and V gathered for each micro-batch, weight gradients reduced once
    assert value["gate"] == value["down"] == "f"


# -- size and speed ------------------------------------------------------------------------------------------------------------


@samples.audited
def test_two_axes_free_on_the_llama_block_are_solved_and_fixing_leaves_little_to_prove() -> None:
    axes = {"dp": {"degree": 2}, "tp": {"degree": "rest"}}
    arch = machine(racks=2, gpus=8)
    problem = build_mapspace(mapper(axes=axes, split={"dp": "free", "tp": "free"}), llama(), 16).problems[0]
    factors = build_factors(Setting(architecture=arch), problem, SERIAL)
    assert factors.size > 1e23
    assert max(f.seconds.size for f in factors.factors) < 2e5
    tight = capped(factors, 0.5)
    fixed = fix(tight, LATENCY)
    assert fixed is not None
    keep, bound, upper = fixed
    assert sum(map(len, keep.values())) < sum(factors.counts.values()) / 3
    solved = solve_capped(tight, LATENCY)
    assert solved.optimal
    assert solved.chosen is not None
    assert upper is not None
    best = total(tight, solved.chosen)[0]
    assert bound <= best * (1 + 1e-9)
    assert best <= upper.value * (1 + 1e-9)


def test_a_capacity_below_everything_is_proven_infeasible() -> None:
    with pytest.raises(InfeasibleError):
        search_llama("1 MB")
