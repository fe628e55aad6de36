"""Small workloads whose traffic is known by hand, and a helper that says what a plan of them moves and keeps.

The Llama block, the feed-forward pair, the mixture of experts and the tied head are those of the acceptance facts:
every tensor is small enough to be counted on paper (X of the block is 2 x 8 x 16 elements of 2 bytes = 512 B).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from rackmodel.cost.program.derive import derive
from rackmodel.cost.program.tasks import Program, Task
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.workload import Workload
from rackmodel.model.workload_build import build_workload
from rackmodel.model.workload_spec import WorkloadSpec
from tests.steps import fixed_plans

SENT = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}  # x (p - 1) / p of the message

LLAMA = {
    "norm1": "N1[b,s,d] = rmsnorm(X[b,s,d], WN1[d]) over d",
    "Q": "Q[b,s,g,q,e] = N1[b,s,d] * WQ[d,g,q,e]",
    "K": "K[b,s,g,e] = N1[b,s,d] * WK[d,g,e]",
    "V": "V[b,s,g,e] = N1[b,s,d] * WV[d,g,e]",
    "ropeQ": "QR[b,s,g,q,e] = rope(Q[b,s,g,q,e])",
    "ropeK": "KR[b,s,g,e] = rope(K[b,s,g,e])",
    "QK": "A[b,g,q,s,t] = QR[b,s,g,q,e] * KR[b,t,g,e]",
    "softmax": "P[b,g,q,s,t] = softmax(A[b,g,q,s,t]) over t",
    "AV": "Z[b,s,g,q,e] = P[b,g,q,s,t] * V[b,t,g,e]",
    "O": "O[b,s,d] = Z[b,s,g,q,e] * WO[g,q,e,d]",
    "res1": "R1[b,s,d] = add(X[b,s,d], O[b,s,d])",
    "norm2": "N2[b,s,d] = rmsnorm(R1[b,s,d], WN2[d]) over d",
    "gate": "G[b,s,f] = N2[b,s,d] * WG[d,f]",
    "up": "U[b,s,f] = N2[b,s,d] * WU[d,f]",
    "swiglu": "S[b,s,f] = swiglu(G[b,s,f], U[b,s,f])",
    "down": "D[b,s,d] = S[b,s,f] * WD[f,d]",
    "res2": "Y[b,s,d] = add(R1[b,s,d], D[b,s,d])",
}
FFN = {"FC1": "H[b,s,f] = X[b,s,d] * W1[d,f]", "FC2": "Y[b,s,d] = H[b,s,f] * W2[f,d]"}
ATTENTION = {
    "Q": "Q[b,s,g,q,e] = X[b,s,d] * WQ[d,g,q,e]",
    "K": "K[b,s,g,e] = X[b,s,d] * WK[d,g,e]",
    "V": "V[b,s,g,e] = X[b,s,d] * WV[d,g,e]",
    "QK": "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]",
    "AV": "Z[b,s,g,q,e] = A[b,g,q,s,t] * V[b,t,g,e]",
    "O": "Y[b,s,d] = Z[b,s,g,q,e] * WO[g,q,e,d]",
}
MOE = {
    "router": "L[b,s,x] = X[b,s,d] * WR[d,x]",
    "gate": "G[b,s,x] = softmax(L[b,s,x]) over x",
    "dispatch": "D[b,s,x,d] = dispatch(X[b,s,d], G[b,s,x])",
    "fc1": "H[b,s,x,f] = D[b,s,x,d] * W1[x,d,f]",
    "act": "A[b,s,x,f] = gelu(H[b,s,x,f])",
    "fc2": "E[b,s,x,d] = A[b,s,x,f] * W2[x,f,d]",
    "combine": "Y[b,s,d] = E[b,s,x,d] * G[b,s,x]",
}
HEAD = {
    "embed": "E[b,s,d] = I[b,s,v] * WE[v,d]",
    "norm": "N[b,s,d] = rmsnorm(E[b,s,d], WN[d]) over d",
    "logits": "L[b,s,v] = N[b,s,d] * WE[v,d]",
    "loss": "C[b,s] = cross_entropy(L[b,s,v]) over v",
}
GPT = {
    "norm1": "N1[b,s,d] = layernorm(X[b,s,d]) over d",
    "Q": "Q[b,s,h,e] = N1[b,s,d] * WQ[d,h,e]",
    "K": "K[b,s,h,e] = N1[b,s,d] * WK[d,h,e]",
    "V": "V[b,s,h,e] = N1[b,s,d] * WV[d,h,e]",
    "QK": "A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]",
    "softmax": "P[b,h,s,t] = softmax(A[b,h,s,t]) over t",
    "drop1": "PD[b,h,s,t] = dropout(P[b,h,s,t])",
    "AV": "Z[b,s,h,e] = PD[b,h,s,t] * V[b,t,h,e]",
    "O": "O[b,s,d] = Z[b,s,h,e] * WO[h,e,d]",
    "drop2": "OD[b,s,d] = dropout(O[b,s,d])",
    "res1": "R1[b,s,d] = add(X[b,s,d], OD[b,s,d])",
    "norm2": "N2[b,s,d] = layernorm(R1[b,s,d]) over d",
    "fc1": "H[b,s,f] = N2[b,s,d] * W1[d,f]",
    "gelu": "G[b,s,f] = gelu(H[b,s,f])",
    "fc2": "F[b,s,d] = G[b,s,f] * W2[f,d]",
    "drop3": "FD[b,s,d] = dropout(F[b,s,d])",
    "res2": "Y[b,s,d] = add(R1[b,s,d], FD[b,s,d])",
}


def make(
    einsums: dict[str, str], sizes: dict[str, Any], *, gradient: int = 16, tensors: dict[str, Any] | None = None, more: Sequence[str] = ()
) -> Workload:
    """A training workload in bf16 whose weight gradients have `gradient` bits. more: phases."""
    data = {"workload": "case", "phases": ["forward", "backward", *more], "sizes": sizes, "einsums": einsums}
    data |= {"precision": {"gradient": f"{gradient} bit"}, "tensors": tensors or {}}
    return build_workload(WorkloadSpec.model_validate(data))


def llama(gradient: int = 16, more: Sequence[str] = ()) -> Workload:
    """The block of facts A: W = 7,744 B, X = 512 B, K = 256 B."""
    return make(LLAMA, {"b": 2, "s": 8, "t": "s", "d": 16, "g": 2, "q": 2, "e": 4, "f": 64}, gradient=gradient, more=more)


def ffn(gradient: int = 16) -> Workload:
    """The two einsums of facts B: X = 512 B, W = 4,096 B."""
    return make(FFN, {"b": 2, "s": 8, "d": 16, "f": 64}, gradient=gradient)


def moe() -> Workload:
    """The mixture of facts C: eight experts of which two are used."""
    sizes = {"b": 8, "s": 4, "d": 16, "x": 8, "k": 2, "f": 32}
    return make(MOE, sizes, tensors={name: {"density": "k/x"} for name in "GDHAE"})


def head() -> Workload:
    """The tied embedding, norm, logits and loss of facts D; a token is one of v, and its index costs nothing."""
    return make(HEAD, {"b": 2, "s": 8, "d": 16, "v": 32, "one": 1}, tensors={"I": {"density": "one/v", "precision": "0 bit"}})


def gpt3() -> Workload:
    """One layer of GPT-3 175B, sequence 2,048, one sample (facts E)."""
    return make(GPT, {"b": 1, "s": 2048, "t": "s", "d": 12288, "h": 96, "e": 128, "f": 49152})


@dataclass(frozen=True)
class Traffic:
    """What a plan moves and keeps, in bytes on one device.

    sent: (phase, what, collective, axes) → bytes sent; what is activation, regather, gradient (of activations), weight,
    weight gradient or statistics · by_tensor: the same with the tensor in place of what · saved: activations ·
    weight_home: parameters · at: (what, level) → bytes that live at a level instead.
    """

    sent: dict[tuple[str, str, str, tuple[str, ...]], float]
    by_tensor: dict[tuple[str, str, str, tuple[str, ...]], float]
    saved: float
    weight_home: float
    at: dict[tuple[str, str], float] = field(default_factory=dict)


def traffic(workload: Workload, mapper: dict[str, Any], accelerators: int) -> Traffic:
    """Traffic of the one plan that a mapper fixes. Ring algorithms; a broadcast or send counts its message once."""
    ((plan, columns),) = fixed_plans(MapperSpec.model_validate({"mapper": "case", **mapper}), workload, accelerators)
    assert len(columns) == 1
    program, degrees = derive(workload, plan), columns.degrees
    sent: dict[Any, float] = defaultdict(float)
    by_tensor: dict[Any, float] = defaultdict(float)
    for task in program.tasks:
        if task.kind not in ("collective", "stream", "send"):
            continue
        group = prod(int(degrees[0, axis]) for axis in task.axes)
        share = SENT[task.action] * (group - 1) / group if task.kind == "collective" else 1.0
        volume, axes = float(task.volume.at(degrees)[0]) * share, tuple(plan.axes[axis] for axis in task.axes)
        sent[task.phase, _what(task, program, workload), task.action, axes] += volume
        by_tensor[task.phase, task.tensor, task.action, axes] += volume
    held: dict[tuple[str, str], float] = defaultdict(float)
    for entry in program.held:
        held[entry.what, entry.level] += float(entry.at(degrees)[0])
    away = {key: volume for key, volume in held.items() if key[1]}
    return Traffic(dict(sent), dict(by_tensor), held["activations", ""], held["weights", ""], away)


def _what(task: Task, program: Program, workload: Workload) -> str:
    """What a transfer carries. In the backward phase, what waits for no operation was saved (or is a weight at home)."""
    tensor = workload.tensors[task.tensor.removeprefix("d")] if task.tensor not in workload.tensors else workload.tensors[task.tensor]
    producer = workload.producer.get(tensor.name)
    fresh = task.phase == "backward" and not _waits_for_an_operation(task, program)
    if tensor.kind == "weight":
        gradient = task.phase == "backward" and not fresh and task.action != "broadcast"
        return "weight gradient" if gradient or task.action == "reduce" else "weight"
    if producer and workload.ops[producer].kind.statistics[0] and task.action == "all_reduce" and task.phase == "forward":
        return "statistics"
    if task.phase != "backward":
        return "activation"
    return "regather" if fresh else "gradient"


def _waits_for_an_operation(task: Task, program: Program) -> bool:
    pending, seen = list(task.after), set()
    while pending:
        number = pending.pop()
        if program.tasks[number].kind == "op":
            return True
        if number not in seen:
            seen.add(number)
            pending += program.tasks[number].after
    return False
