"""Invariants of the cost model: what must hold for every mapping, machine and workload."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import FFN, IDEAL, MLP, SERIAL, machine, mapper, workload
from tests.steps import fixed_plans, priced

SIZES = {"b": 8, "s": 64, "t": "s", "d": 32, "f": 128, "h": 4, "e": 8}
PLANS = {
    "data": mapper(axes={"dp": {"degree": "all"}}, split={"dp": ["b"]}),
    "tensor": mapper(axes={"tp": {"degree": "all"}}, split={"tp": ["f"]}),
    "sequence": mapper(axes={"tp": {"degree": "all"}}, split={"tp": ["f", "s"]}),
    "fsdp": mapper(
        axes={"dp": {"degree": "all"}},
        split={"dp": ["b"]},
        homes={"weights": {"axes": ["dp"], "param": "shard", "grad": "shard", "state": "shard"}},
    ),
    "both": mapper(axes={"dp": {"degree": 2}, "tp": {"degree": "rest"}}, split={"dp": ["b"], "tp": ["f"]}),
}


def _priced(arch, load, maps, profile=SERIAL):
    plan, columns = fixed_plans(maps, load, arch.used)[0]
    return priced(arch, load, plan, columns.pick(np.array([0])), profile)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("graph", [FFN, MLP], ids=["ffn", "mlp"])
def test_every_grouping_of_the_ledger_adds_up(graph: dict[str, str], name: str) -> None:
    step = _priced(machine(static="50 W"), workload(graph, SIZES), PLANS[name])
    ledger = step.ledger()
    for by in (["phase"], ["component"], ["level", "action"], ["einsum", "tensor"], ["phase", "component", "level"]):
        assert math.fsum(ledger.group(by).values()) == pytest.approx(ledger.total(), rel=1e-12)
        assert math.fsum(ledger.group(by, "exposed_seconds").values()) == pytest.approx(float(step.latency[0]), rel=1e-12)
    assert float(step.energy[0]) == pytest.approx(ledger.total(), rel=1e-12)


@settings(max_examples=40)
@given(st.sampled_from(sorted(PLANS)), st.integers(1, 1000), st.integers(1, 1000), st.sampled_from(["slowest_link", "path_sum"]))
def test_more_bandwidth_is_never_slower_and_costs_the_same_energy(name: str, inside: int, outside: int, hops: str) -> None:
    load = workload(MLP, SIZES)
    slow, fast = (
        _priced(machine(inside=f"{inside * k} GB/s", outside=f"{outside * k} GB/s", hops=hops), load, PLANS[name]) for k in (1, 3)
    )
    assert fast.latency[0] <= slow.latency[0]
    assert fast.energy[0] == pytest.approx(slow.energy[0], rel=1e-12)


@pytest.mark.parametrize("name", PLANS)
def test_memory_traffic_is_at_least_compulsory(name: str) -> None:
    """Every operand of every forward einsum is read at least once somewhere, every output written."""
    load = workload(FFN, SIZES)
    arch = machine()
    rows = _priced(arch, load, PLANS[name]).ledger().where(phase="forward", component="memory")
    assert [level.name for level, _, _ in arch.memories] == ["gpu"]
    for op in load.ops.values():
        for access in op.ins:
            read = rows.where(einsum=op.name, tensor=access.tensor, action="read").total("amount")
            assert read >= load.tensors[access.tensor].bytes * (1 - 1e-12)
        assert rows.where(einsum=op.name, tensor=op.out.tensor, action="write").total("amount") >= load.tensors[op.out.tensor].bytes * (
            1 - 1e-12
        )


@pytest.mark.parametrize("name", PLANS)
def test_overlap_saves_at_most_the_collectives_on_weights(name: str) -> None:
    arch, load = machine(outside="1 GB/s"), workload(MLP, SIZES)
    serial, ideal = (_priced(arch, load, PLANS[name], profile) for profile in (SERIAL, IDEAL))
    weights = serial.ledger().where(component="network", tensor=[t for t in load.tensors if t.startswith("W")]).total("seconds")
    assert serial.latency[0] - weights * (1 + 1e-12) <= ideal.latency[0] <= serial.latency[0] * (1 + 1e-12)
    assert ideal.energy[0] == pytest.approx(serial.energy[0], rel=1e-12)


def test_one_mapping_and_a_list_of_mappings_price_the_same() -> None:
    load, arch = workload(MLP, SIZES), machine()
    ((plan, columns),) = fixed_plans(
        mapper(axes={"dp": {"degree": "free"}, "tp": {"degree": "free"}}, split={"dp": ["b"], "tp": ["f"]}), load, 8
    )
    together = priced(arch, load, plan, columns, SERIAL)
    assert len(columns) == 4  # dp of 1, 2, 4, 8
    for i in range(len(columns)):
        alone = priced(arch, load, plan, columns.pick(np.array([i])), SERIAL)
        assert together.latency[i] == pytest.approx(alone.latency[0], rel=1e-14)
        assert together.energy[i] == pytest.approx(alone.energy[0], rel=1e-15)
        assert together.ledger(i).total("seconds") == alone.ledger().total("seconds")


def test_two_gpus_by_hand() -> None:
    """FC1 of X[8x64,32] on 2 GPUs, rows split: 2·512·32·128 flop over 2 x 10 TFLOP/s; gradients 2(p-1)/p of 4 bytes each."""
    load = workload({"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]"}, SIZES)
    arch = machine(racks=1, gpus=2, inside="100 GB/s", latency="1 us", capacity="1 GB")
    step = _priced(arch, load, PLANS["data"])
    ledger = step.ledger()
    flops = 2 * 512 * 32 * 128
    assert ledger.where(phase="forward", component="compute").total("seconds") == pytest.approx(flops / 2 / 10e12)
    assert ledger.where(phase="backward", component="compute").total("amount") == 2 * flops
    gradient = 32 * 128 * 4
    network = ledger.where(component="network")
    assert network.total("amount") == 2 * gradient  # two GPUs send 2 (p-1)/p V = V each
    assert network.total("seconds") == pytest.approx(2 * (1e-6 + gradient / 2 / 100e9))
    assert network.total("joules") == pytest.approx(2 * gradient * 8 * 1.3e-12)
    working = 512 * (32 + 128) * 2 / 2  # X and H, or dX and dH, of the pass that runs
    assert step.held() == {"activations": 512 * 32 * 2 / 2, "weights": 32 * 128 * 2, "gradients": gradient, "working": working}


def test_repeat_multiplies_everything_but_the_working_set() -> None:
    one, four = (_priced(machine(), workload(FFN, SIZES, repeat=n), PLANS["data"]) for n in (1, 4))
    assert four.latency[0] == pytest.approx(4 * one.latency[0])
    assert four.energy[0] == pytest.approx(4 * one.energy[0])
    working = one.held()["working"]
    assert four.held()["working"] == working == 512 * (32 + 128) * 2 / 8  # X and H of one layer, on 8 GPUs
    assert four.memory[0] - working == pytest.approx(4 * (one.memory[0] - working))


def test_density_scales_compute_and_traffic() -> None:
    """A tensor of density 1/4 costs a quarter of the bytes and, in its einsum, of the operations."""
    dense = workload(FFN, SIZES)
    sparse = workload(FFN, SIZES, tensors={"H": {"density": "1/4"}})
    full, thin = (_priced(machine(), load, PLANS["data"]).ledger().where(phase="forward") for load in (dense, sparse))
    for component in ("compute",):
        assert thin.where(component=component).total("amount") == pytest.approx(full.where(component=component).total("amount") / 4)
    assert thin.where(tensor="H", action="write", component="memory").total("amount") == pytest.approx(
        full.where(tensor="H", action="write", component="memory").total("amount") / 4
    )


def test_a_window_counts_its_halo() -> None:
    """I[n,c,p+r]: 16 outputs and 3 taps walk 18 inputs; split over 2, each side has 9, reads 10, and sends the other a column."""
    load = workload({"conv": "O[n,k,p] = I[n,c,p+r] * W[k,c,r]"}, {"n": 1, "k": 4, "c": 2, "p": 16, "r": 3}, phases=["forward"])
    assert load.tensors["I"].sizes == (1, 2, 18)
    step = _priced(machine(racks=1, gpus=2), load, mapper(axes={"sp": {"degree": 2}}, split={"sp": ["p"]}))
    halo = step.ledger().where(action="halo")
    assert halo.total("amount") == pytest.approx(2 * 1 * 2 * 2)  # a column x 2 channels x 2 bytes, each way


@pytest.mark.parametrize(("window", "taps"), [("p+r", 5), ("2*p+r", 3), ("2*p+r", 7), ("3*p+r", 2), ("p+2*r", 3), ("2*p+3*r", 4)])
def test_halos_bring_what_ranks_read_and_do_not_hold(window: str, taps: int) -> None:
    """Of 24 outputs dealt to 4 ranks: what two ranks read is sent once, and read twice; nothing where the stride steps over the window."""
    load = workload({"conv": f"O[n,k,p] = I[n,c,{window}] * W[k,c,r]"}, {"n": 3, "k": 4, "c": 2, "p": 24, "r": taps}, phases=["forward"])
    stride, dilation = (int(part.partition("*")[0]) if "*" in part else 1 for part in window.split("+"))
    read = [{stride * p + dilation * r for p in range(6 * rank, 6 * rank + 6) for r in range(taps)} for rank in range(4)]
    seams = sum(max(max(here) - min(there) + 1, 0) for here, there in pairwise(read))
    step = _priced(machine(racks=1, gpus=4), load, mapper(axes={"sp": {"degree": 4}}, split={"sp": ["p"]}))
    ledger, row = step.ledger(), 3 * 2 * 2
    assert ledger.where(action="halo").total("amount") == pytest.approx(seams * row)
    there = stride * 23 + dilation * (taps - 1) + 1
    assert ledger.where(tensor="I", component="memory", level="gpu", action="read").total("amount") == pytest.approx((there + seams) * row)


def test_scores_that_ranks_share_are_gathered_before_the_largest_are_picked() -> None:
    """The largest of parts are not the sum of their largest: 2 x 64 x 256 scores of 16 bit come together on each of 4 ranks."""
    ops = {"score": "A[b,s,t] = Q[b,s,e] * K[b,t,e]", "pick": "I[b,s,w] = topk(A[b,s,t])"}
    load = workload(ops, {"b": 2, "s": 64, "t": 256, "e": 32, "w": 16}, phases=["forward"])
    ledger = _priced(machine(racks=1, gpus=4), load, mapper(axes={"cp": {"degree": 4}}, split={"cp": ["t"]})).ledger()
    assert ledger.where(component="network", action="all_gather", tensor="A").total("amount") == 3 * 2 * 64 * 256 * 2
    assert ledger.where(component="network").total("amount") == 3 * 2 * 64 * 256 * 2


def test_positions_at_which_a_table_is_read_have_no_gradient() -> None:
    """2 x 64 positions of 16 bit are read again for the table's gradient; theirs was written, and summed over the parts of the table."""
    ops = {"embed": "X[b,s,d] = lookup(I[b,s], WE[v,d])", "up": "Y[b,s,f] = X[b,s,d] * W[d,f]"}
    load = workload(ops, {"b": 2, "s": 64, "d": 32, "v": 256, "f": 48})
    ledger = _priced(machine(racks=1, gpus=4), load, mapper(axes={"tp": {"degree": 4}}, split={"tp": ["v"]})).ledger()
    assert ledger.where(phase="backward", tensor="I", level="gpu", action="read").total("amount") == 4 * 2 * 64 * 2
    assert not ledger.where(tensor="dI")
    assert not ledger.where(phase="backward", component="network")


def test_the_pipeline_waits_for_its_longest_chain() -> None:
    load = workload(FFN, SIZES)
    step = _priced(machine(), load, mapper(axes={"pp": {"stages": "per_einsum"}, "tp": {"degree": "rest"}}, split={"tp": "output"}))
    ledger = step.ledger()
    sends = ledger.where(action="send")
    assert sends.group(["phase", "tensor"], "amount") == {
        ("forward", "H"): load.tensors["H"].bytes,
        ("backward", "dH"): load.tensors["H"].bytes,
    }
    assert np.isclose(sends.total("exposed_seconds"), sends.total("seconds"))
