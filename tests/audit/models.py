"""Random workloads as plain data: graphs of contractions and element-wise operations, small models, single contractions."""

from __future__ import annotations

import random
import re
from typing import Any

Data = dict[str, Any]
PHASES = [["forward"], ["forward", "backward"], ["forward", "backward", "optimizer"]]


def graph(pick: random.Random) -> Data:
    """A chain or DAG of two to five operations over [b,s,d] and [b,s,f]."""
    known, ops = {"X": "d"}, {}
    for number in range(pick.choice([2, 3, 3, 4, 5])):
        source = pick.choice(list(known)[-2:])
        rank, out = known[source], f"T{number}"
        twins = [name for name, other in known.items() if other == rank and name != source]
        kind = pick.choice(["einsum", "einsum", "norm", "gelu", *(["add", "mix"] if twins else [])])
        if kind == "einsum":
            to = "f" if rank == "d" else "d"
            ops[f"op{number}"] = f"{out}[b,s,{to}] = {source}[b,s,{rank}] * W{number}[{rank},{to}]"
            known[out] = to
        elif kind == "mix":
            ops[f"op{number}"] = f"{out}[b,s,t] = {source}[b,s,{rank}] * {pick.choice(twins)}[b,t,{rank}]"
        else:
            operands = {
                "norm": f"rmsnorm({source}[b,s,{rank}], W{number}[{rank}]) over {rank}",
                "gelu": f"gelu({source}[b,s,{rank}])",
                "add": f"add({source}[b,s,{rank}], {pick.choice(twins or ['X'])}[b,s,{rank}])",
            }
            ops[f"op{number}"] = f"{out}[b,s,{rank}] = {operands[kind]}"
            known[out] = rank
    sizes = {i: pick.choice([1, 2, 4, 8, 64, 256]) for i in "bsdf"} | {"t": "s"}
    walked = {index for text in ops.values() for index in re.findall(r"\b[bsdft]\b", text)}
    sizes = {index: size for index, size in sizes.items() if index in walked}
    phases = pick.choice(PHASES)
    return {"workload": "random", "phases": phases, "sizes": sizes, "einsums": ops, "precision": precision(pick, phases)}


def precision(pick: random.Random, phases: list[str]) -> Data:
    """Widths of tensors, of those that the phases have."""
    gradient = pick.choice(["16 bit", "32 bit"])
    found = {"activation": "16 bit", "weight": "16 bit"} | ({"gradient": gradient} if "backward" in phases else {})
    return found | ({"state": "96 bit"} if "optimizer" in phases else {})


def feed_forward(pick: random.Random, *, phases: list[str] | None = None) -> Data:
    """Two contractions of rows m."""
    sizes = {"m": pick.choice([16, 64, 512]), "d": pick.choice([8, 64]), "f": pick.choice([16, 128])}
    ops = {"FC1": "H[m,f] = X[m,d] * W1[d,f]", "FC2": "Y[m,d] = H[m,f] * W2[f,d]"}
    said = phases or pick.choice(PHASES)
    return {"workload": "random", "phases": said, "sizes": sizes, "einsums": ops, "precision": precision(pick, said)}


def dense(pick: random.Random) -> Data:
    """A GPT or a Llama of a few layers, with ends or without."""
    layers = pick.choice([2, 3, 4, 6, 8])
    sizes: Data = {"b": pick.choice([4, 8, 16]), "s": pick.choice([64, 256]), "d": pick.choice([128, 512]), "layers": layers}
    sizes |= {"e": 64, "f": pick.choice([256, 2048]), "v": pick.choice([512, 4096, 32768])}
    name = pick.choice(["gpt", "llama"])
    sizes |= {"h": pick.choice([4, 8])} if name == "gpt" else {"g": pick.choice([2, 4]), "q": pick.choice([1, 2])}
    return {"workload": "random", "extends": name, "sizes": sizes, "precision": precision(pick, PHASES[-1])}


def experts(pick: random.Random) -> Data:
    """One layer of experts."""
    sizes = {"b": pick.choice([4, 8]), "s": 64, "d": pick.choice([64, 256]), "x": pick.choice([4, 8]), "k": 2, "f": pick.choice([128, 512])}
    return {"workload": "random", "extends": "moe", "sizes": sizes}


def expert_model(pick: random.Random) -> Data:
    """A Llama of a few layers whose feed-forward network is a mixture of experts."""
    sizes: Data = {"b": 8, "s": 64, "d": 128, "g": 2, "q": 2, "e": 32, "f": pick.choice([64, 512]), "v": 512, "layers": pick.choice([2, 4])}
    return {"workload": "random", "extends": "moe_llama", "sizes": sizes | {"x": pick.choice([4, 8]), "k": 2}}


CONTRACTIONS = {
    "C[m,n] = A[m,k] * B[k,n]": "mkn",
    "C[b,m,n] = A[b,m,k] * B[b,k,n]": "bmkn",
    "C[b,m,n] = A[b,m,k] * B[k,n]": "bmkn",
    "C[m] = A[m,k] * B[k]": "mk",
}


def contraction(pick: random.Random, biggest: int = 12) -> Data:
    """One contraction, forward only, of small sizes."""
    statement = pick.choice(list(CONTRACTIONS))
    sizes = {rank: pick.choice([n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24) if n <= biggest]) for rank in CONTRACTIONS[statement]}
    widths = {"activation": "16 bit", "weight": pick.choice(["16 bit", "8 bit"])}
    made: Data = {"workload": "random", "phases": ["forward"], "sizes": sizes, "einsums": {"op": statement}, "precision": widths}
    return made | {"tensors": {"B": {"kind": "weight"}}}


def pair(pick: random.Random) -> Data:
    """Two contractions, the second reading what the first writes."""
    ops = {"FC1": "H[m,f] = X[m,d] * W1[d,f]", "FC2": "Y[m,e] = H[m,f] * W2[f,e]"}
    sizes = {rank: pick.choice([1, 2, 3, 4, 6]) for rank in "mdfe"}
    widths = {"activation": "16 bit", "weight": "16 bit"}
    return {"workload": "random", "phases": ["forward"], "sizes": sizes, "einsums": ops, "precision": widths}
