"""A key that could change nothing where it stands in a tree is refused at its place; ports count wherever a memory moves bytes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import rackmodel as rm
from rackmodel.errors import InputError

_LINK = {"topology": "switch", "bandwidth": "50 GB/s"}
TREE: dict[str, Any] = {
    "name": "root",
    "network": _LINK,
    "children": [
        {
            "name": "node",
            "count": 2,
            "network": _LINK,
            "children": [
                {
                    "name": "gpu",
                    "count": 2,
                    "accelerator": True,
                    "memory": {"capacity": "1 GB", "bandwidth": "1 TB/s"},
                    "children": [
                        {
                            "name": "core",
                            "count": 4,
                            "memory": {"capacity": "64 kB", "bandwidth": "1 TB/s"},
                            "compute": {"precisions": {"16 bit": {"rate": "1 TFLOP/s"}}, "vector": {"rate": "1 TFLOP/s"}},
                        }
                    ],
                }
            ],
        },
        {"name": "store", "memory": {"capacity": "100 GB", "bandwidth": "1 TB/s"}},
    ],
}
WORK = {
    "workload": "w",
    "phases": ["forward", "backward", "optimizer"],
    "sizes": {"m": 256, "d": 256, "f": 512},
    "precision": {"state": "96 bit"},
    "einsums": {"one": "H[m,f] = X[m,d] * W1[d,f]", "two": "Y[m,d] = H[m,f] * W2[f,d]"},
}
SPLIT = {"mapper": "split", "axes": {"dp": {"degree": 4}}, "split": {"dp": ["m"]}, "profile": "ideal"}


def level(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """A level of a tree, by name."""
    return next(one for one in [tree, *(below for child in tree.get("children", ()) for below in _walk(child))] if one["name"] == name)


def _walk(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(below for child in tree.get("children", ()) for below in _walk(child))]


def machine(edits: dict[str, Any]) -> Any:
    """The tree with keys of levels changed, {'gpu.memory.keep': value}, read."""
    tree = deepcopy(TREE)
    for path, value in edits.items():
        name, *inner, last = path.split(".")
        at = level(tree, name)
        for key in inner:
            at = at.setdefault(key, {})
        at[last] = value
    return rm.read({"architecture": "own", "tree": tree})


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("gpu.network", _LINK, "tree.gpu.network: 'gpu' cannot have one: it joins accelerators; inside one a loop nest counts `fan:"),
        ("core.network", _LINK, "tree.core.network: 'core' cannot have one"),
        ("store.network", _LINK, "tree.store.network: 'store' cannot have one: no accelerator is below it"),
        ("node.fan", {"x": 2}, "tree.node.fan: it stands for the loop nest inside an accelerator"),
        ("root.fan", {"x": 2}, "tree.root.fan: it stands for the loop nest inside an accelerator"),
        ("node.compute", {"rate": "1 TFLOP/s"}, "tree.node.compute: outside the accelerators it updates weights at home"),
        ("store.compute", {"rate": "1 TFLOP/s"}, "want `compute.vector` of 'store', too"),
        (
            "store.compute",
            {"rate": "1 TFLOP/s", "vector": {"rate": "1 TFLOP/s"}, "energy": "1 pJ/FLOP"},
            "tree.store.compute.energy: outside the accelerators vector operations alone are done",
        ),
        ("store.memory.keep", ["weight"], "tree.store.memory.keep: says what a loop nest stores in memories inside an accelerator"),
        ("store.memory.bits", {"weight": "8 bit"}, "tree.store.memory.bits: says what a loop nest stores"),
        ("gpu.memory.bypass", ["weight"], "tree.gpu.memory.bypass: says what a loop nest stores"),
        ("gpu.memory.buffers", 2, "tree.gpu.memory.buffers: says what a loop nest stores"),
        ("store.launching", 2.0, "tree.store.launching: a host launches kernels of the accelerators below it"),
        ("core.launching", 2.0, "tree.core.launching: a host launches kernels of the accelerators below it"),
    ],
)
def test_a_key_that_counts_nowhere_is_refused_at_its_place(path: str, value: object, said: str) -> None:
    with pytest.raises(InputError) as told:
        machine({path: value})
    assert said in str(told.value)
    assert told.value.where is not None
    assert told.value.where.line > 1


def test_all_of_them_are_told_at_once() -> None:
    with pytest.raises(InputError) as told:
        machine({"gpu.network": _LINK, "store.memory.keep": ["weight"]})
    assert [one.path for one in told.value.problems] == ["tree.gpu.network", "tree.store.memory.keep"]


@pytest.mark.parametrize("path", ["core.memory.keep", "core.memory.bypass"])
def test_what_counts_there_is_read(path: str) -> None:
    assert machine({path: ["weight"]}).tree.children[0].children[0].children[0].memory is not None


def test_a_backing_memory_writes_by_its_own_port() -> None:
    """By hand: Y and the gradient of X, 256 x 256 of two bytes each, at 1 MB/s; what computes meanwhile takes 0.02 ms at most."""
    said = {"root.memory": {"bandwidth": "1 TB/s", "backing": True}}
    split = {"root.memory": {"bandwidth": "1 TB/s", "backing": True, "ports": "split", "write_bandwidth": "1 MB/s"}}
    shared, own = (rm.search(machine(one), rm.read(WORK), rm.read(SPLIT)).result for one in (said, split))
    written = 2 * 256 * 256 * 2
    rows = own.ledger.to_frame().query("level == 'root' and action == 'write'")
    assert (rows.amount.sum(), rows.seconds.sum()) == (written, pytest.approx(written / 1e6, rel=1e-12))
    assert own.latency_s - shared.latency_s == pytest.approx(written / 1e6, abs=2e-5)


def test_copies_to_a_host_take_the_port_that_writes() -> None:
    """By hand: Adam's state, 96 bit of each of 2 x 256 x 512 weights, which each GPU has whole, at the half of 1 MB/s that is a GPU's."""
    asked = rm.read({**SPLIT, "offload": [["optimizer"]], "host": "node"})
    memory = {"bandwidth": "1 TB/s", "ports": "split"}
    free, slow = (
        rm.search(machine({"node.memory": {**memory, **more}}), rm.read(WORK), asked).result for more in ({}, {"write_bandwidth": "1 MB/s"})
    )
    state = 2 * 256 * 512 * 12
    assert slow.latency_s - free.latency_s == pytest.approx(2 * state / 1e6, rel=1e-3)


@pytest.mark.parametrize(("accelerators", "fullest"), [(1, 1.0), (2, 1.0), (3, 2 / 3), (4, 1 / 2)])
def test_each_node_that_a_run_starts_in_serves_its_own_accelerators(accelerators: int, fullest: float) -> None:
    """Two nodes of two GPUs, 10 GB/s of memory each: of three GPUs two read their thirds of X, and all of W each, in one node. (Until
    30 November 2026 all were served by one node.)"""
    tree = deepcopy(TREE)
    level(tree, "node")["memory"] = {"backing": True, "bandwidth": "10 GB/s"}
    work = {"workload": "w", "phases": ["forward"], "sizes": {"m": 768, "d": 256, "f": 512}, "einsums": {"one": "H[m,f] = X[m,d] * W[d,f]"}}
    split = SPLIT | {"axes": {"dp": {"degree": "all"}}}
    ledger = rm.search({"architecture": "a", "accelerators": accelerators, "tree": tree}, work, split).result.ledger
    seconds = {row.tensor: row.seconds for row in ledger.where(level="node", component="memory")}
    inside = min(accelerators, 2)
    assert seconds["X"] == pytest.approx(768 * 256 * 2 * fullest / 10e9)
    assert seconds["W"] == pytest.approx(inside * 256 * 512 * 2 / 10e9)
    assert seconds["H"] == pytest.approx(768 * 512 * 2 * fullest / 10e9)
