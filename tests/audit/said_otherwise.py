"""One model said in other words: its layers as two sections, all of it as one graph, tokens shared out as samples."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from tests.audit import machines
from tests.audit.case import Case

Data = dict[str, Any]
TOKENS = {"I": {"density": "1/v", "precision": "0 bit"}}
ATTENTION = {
    "norm1": "N1[b,s,d] = rmsnorm(X[b,s,d], WN1[d]) over d",
    "Q": "Q[b,s,g,q,e] = N1[b,s,d] * WQ[d,g,q,e]",
    "K": "K[b,s,g,e] = N1[b,s,d] * WK[d,g,e]",
    "V": "V[b,s,g,e] = N1[b,s,d] * WV[d,g,e]",
    "QK": "A[b,g,q,s,t] = Q[b,s,g,q,e] * K[b,t,g,e]",
    "softmax": "P[b,g,q,s,t] = softmax(A[b,g,q,s,t]) over t",
    "AV": "Z[b,s,g,q,e] = P[b,g,q,s,t] * V[b,t,g,e]",
    "O": "O[b,s,d] = Z[b,s,g,q,e] * WO[g,q,e,d]",
    "res1": "R[b,s,d] = add(X[b,s,d], O[b,s,d])",
}
FEED = {
    "norm2": "N2[b,s,d] = rmsnorm({}[b,s,d], WN2[d]) over d",
    "up": "U[b,s,f] = N2[b,s,d] * WU[d,f]",
    "gelu": "S[b,s,f] = gelu(U[b,s,f])",
    "down": "D[b,s,d] = S[b,s,f] * WD[f,d]",
    "res2": "Y[b,s,d] = add({}[b,s,d], D[b,s,d])",
}
HOMES: Sequence[Data] = ({}, {"state": "shard"}, {"state": "shard", "grad": "shard"}, {"state": "shard", "grad": "shard", "param": "shard"})


def two_sections(_kind: str, seed: int) -> tuple[Case, Case]:
    """A section of layers, and two of some of them each."""
    case, layers = _drawn("two sections", seed), 4
    first = random.Random(seed).randint(1, layers - 1)
    sections = [("a", "X", "H", first), ("b", "H", "Y", layers - first)]
    blocks = {f"block{end}": {"repeat": repeat, "einsums": _layer(True, end, taken, made)} for end, taken, made, repeat in sections}
    return case, _with(case, {**_ends(case, 0), **blocks, **_ends(case, 1)})


def one_graph(_kind: str, seed: int) -> tuple[Case, Case]:
    """A model of sections, a layer each, and the graph of all its operations; nothing runs beside anything, and no weight is gathered for
    one of its uses."""
    case = _drawn("one graph", seed, repeat=1, schedule=(), recompute=(), homes=HOMES[:3])
    sections = case.model["sections"]
    einsums = {name: op for section in sections.values() for name, op in section["einsums"].items()}
    return case, _with(case, None, einsums=einsums)


def tokens_as_samples(_kind: str, seed: int) -> tuple[Case, Case]:
    """Without attention half as many samples of twice the tokens, that two more ranks share out, are the samples of the first."""
    case = _drawn("tokens", seed, attention=False)
    axes, homes = case.mapper["axes"], json.loads(json.dumps(case.mapper["homes"]))
    if homes["weights"]:
        homes["weights"]["axes"] = ["dp", "cp"]
    sizes = case.model["sizes"] | {"b": case.model["sizes"]["b"] // 2, "s": case.model["sizes"]["s"] * 2}
    shared = {**axes, "dp": {"degree": axes["dp"]["degree"] // 2}, "cp": {"degree": 2}}
    order = {name: shared[name] for name in ("pp", "dp", "cp", "tp")}
    after = _with(case, case.model["sections"], sizes=sizes)
    mapper = {**case.mapper, "axes": order, "split": case.mapper["split"] | {"cp": ["s"]}, "homes": homes}
    return case, Case(case.kind, case.seed, case.machine, after.model, mapper, profile=case.profile)


def _drawn(
    what: str,
    seed: int,
    *,
    attention: bool = True,
    repeat: int = 4,
    schedule: Sequence[str] = ("gpipe", "1f1b"),
    recompute: Sequence[str] = ("none", "selective", "full"),
    homes: Sequence[Data] = HOMES,
) -> Case:
    """Eight accelerators on one switch, one mapping of a model whose ends may share their table. schedule: of a pipeline, none = no axis of
    stages · recompute: policies, none = no word of them."""
    pick = random.Random(f"{what} {seed}")
    machine = machines.rack(pick, 1, 8)
    machine["tree"]["children"][0]["network"] = {"topology": "switch", "bandwidth": "100 GB/s", "latency": "1 us", "energy": "1 pJ/bit"}
    sizes = {"b": 16, "s": 64, "d": 128, "f": 256, "v": 512} | ({"t": "s", "g": 2, "q": 2, "e": 32} if attention else {})
    table = pick.choice(["WE", "WH"])
    head = {"norm": "N[b,s,d] = rmsnorm(Y[b,s,d], WN[d]) over d", "logits": f"L[b,s,v] = N[b,s,d] * {table}[v,d]"}
    head["loss"] = "C[b,s] = cross_entropy(L[b,s,v]) over v"
    sections = {
        "embed": {"einsums": {"embed": "X[b,s,d] = I[b,s,v] * WE[v,d]"}},
        "block": {"repeat": repeat, "einsums": _layer(attention, "", "X", "Y")},
        "head": {"einsums": head},
    }
    model = {"workload": "random", "phases": ["forward", "backward", "optimizer"], "sizes": sizes, "sections": sections, "tensors": TOKENS}
    tp, pp = pick.choice([1, 2]), pick.choice([1, 2]) if schedule else 1
    axes: Data = ({"pp": {"degree": pp, "stages": "layers"}} if schedule else {}) | {"dp": {"degree": 8 // tp // pp}, "tp": {"degree": tp}}
    split = {"dp": ["b"], "tp": [*([["g", "q"]] if attention else []), "f", "v", *(["s"] if pick.random() < 0.5 else [])]}
    home = pick.choice(homes)
    mapper: Data = {"mapper": "one", "axes": axes, "split": split, "homes": {"weights": home | ({"axes": ["dp"]} if home else {})}}
    mapper |= {"micro_batch": pick.choice([1, 2]), "overlap": "profile", "algorithms": "ring"}
    mapper |= {"schedule": pick.choice(schedule)} if schedule and pp > 1 else {"schedule": "1f1b"} if schedule else {}
    mapper |= {"recompute": pick.choice(recompute)} if recompute else {}
    profile = pick.choice(["serial", "ideal"]) if schedule else "serial"
    return Case("steps", seed, machine, model, mapper, profile=profile)


def _layer(attention: bool, end: str, taken: str, made: str) -> Data:
    """A layer whose names end so, between two streams."""
    ops = {**(ATTENTION if attention else {}), **{name: op.format("R" if attention else "X") for name, op in FEED.items()}}
    streams = {"X": taken, "Y": made}
    return {
        f"{name}{end}": re.sub(r"\b([A-Z]+\d?)\[", lambda word: f"{streams.get(word[1], word[1] + end)}[", op) for name, op in ops.items()
    }


def _ends(case: Case, which: int) -> Data:
    name = ("embed", "head")[which]
    return {name: case.model["sections"][name]}


def _with(case: Case, sections: Data | None, **more: Any) -> Case:
    """The same question of a model of other sections, or of none."""
    model = {key: value for key, value in case.model.items() if key != "sections"} | ({"sections": sections} if sections else {}) | more
    return Case(case.kind, case.seed, case.machine, model, case.mapper, profile=case.profile)
