"""The layout rule, proven: outputs and gradients of random layouts equal the unsharded einsum."""

from __future__ import annotations

import random

import pytest

from rackmodel.model.layout import PARTIAL, Layout, legal_choices
from rackmodel.model.plan import Plan, default_boundary
from rackmodel.model.workload import Workload
from tests.machines import workload
from tests.virtual_devices import Devices

FFN = ({"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]", "FC2": "Y[b,s,d] = H[b,s,f] * W2[f,d]"}, "bsdf")
ATTENTION = (
    {
        "Q": "Q[b,s,g,q,e] = X[b,s,d] * WQ[d,g,q,e]",
        "K": "K[b,s,g,e] = X[b,s,d] * WK[d,g,e]",
        "V": "V[b,s,g,e] = X[b,s,d] * WV[d,g,e]",
        "QK": "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]",
        "AV": "Z[b,s,g,q,e] = A[b,g,q,s,t] * V[b,t,g,e]",
        "O": "Y[b,s,d] = Z[b,s,g,q,e] * WO[g,q,e,d]",
    },
    "bsdgqe",
)
MOE = (
    {
        "dispatch": "D[b,s,x,d] = X[b,s,d] * G[b,s,x]",
        "fc1": "H[b,s,x,f] = D[b,s,x,d] * W1[x,d,f]",
        "fc2": "E[b,s,x,d] = H[b,s,x,f] * W2[x,f,d]",
        "combine": "C[b,s,d] = E[b,s,x,d] * G[b,s,x]",
        "res": "Y[b,s,d] = add(X[b,s,d], C[b,s,d])",
    },
    "bsdxf",
)


def _plan(load: Workload, axes: int, pick: random.Random) -> Plan:
    """Any legal choice of every operation on every axis; inputs and outputs cross the edge in any layout."""
    choices = {op.name: tuple(pick.choice(legal_choices(op, load)) for _ in range(axes)) for op in load.ops.values()}
    boundary: dict[str, Layout] = {}
    for name in (*load.inputs, *load.outputs):
        ranks = load.tensors[name].ranks
        layout = tuple(pick.choice(["R", *(f"S:{rank}" for rank in ranks)]) for _ in range(axes))
        boundary[name] = layout if pick.random() < 0.7 else default_boundary(name, load, choices)
        assert PARTIAL not in boundary[name]
    names = tuple(f"a{i}" for i in range(axes))
    return Plan(names, choices, boundary, dict.fromkeys(load.ops, 0), {}, {})


@pytest.mark.parametrize("graph", ["ffn", "attention", "moe"])
@pytest.mark.parametrize(("axes", "count"), [(1, 160), (2, 160), (3, 24)])
def test_random_layouts_equal_the_unsharded_computation(graph: str, axes: int, count: int) -> None:
    einsums, indices = {"ffn": FFN, "attention": ATTENTION, "moe": MOE}[graph]
    pick = random.Random(f"{graph}{axes}")
    load = workload(einsums, dict.fromkeys(indices, 2**axes) | {"t": "s"})
    moved = 0
    for number in range(count):
        devices = Devices(load, _plan(load, axes, pick), (2,) * axes, number)
        devices.run()
        moved += devices.moved
    assert moved > count  # the layouts did have to be converted
