"""Changes whose effect is known before: random questions asked twice, once changed, and the two answers compared."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rackmodel import api, face
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.model.result import Result
from tests.audit import machines, models, said_otherwise
from tests.audit.case import Case, mapping_text
from tests.audit.drawing import draw
from tests.audit.wild import wild

Data = dict[str, Any]
ROUNDING = 1e-9
TIMED = ("bandwidth", "write_bandwidth", "link_bandwidth", "rate")
AT_ONCE = ("latency", "start")
GRAPHS = ("layouts", "stages", "wafers")
EVERY = (*GRAPHS, "steps", "offload", "moe", "streaming", "cuts", "nests", "fused", "wafer_nests")
HOSTLESS = ("serial", "ideal")


def asked(case: Case) -> Result | None:
    """The answer; None where there is none."""
    try:
        return api.search_mapper(*case.read(), minimize=case.minimize, profile=case.profile).result
    except (InputError, InfeasibleError):
        return None


def said(machine: Data) -> Iterator[tuple[Data, str]]:
    """(the mapping, the key) of every value of a machine."""
    pending: list[Any] = [machine]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield from ((one, key) for key in one)
        pending += list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []


def scaled(text: str, by: float) -> str:
    """A quantity times a number."""
    head, _, unit = text.partition(" ")
    return f"{float(head) * by!r} {unit}"


# -- better is never worse --------------------------------------------------------------------------------------------------


def better(kind: str, seed: int) -> str | None:
    """Twice one bandwidth, rate, capacity or number of links: no more time, energy or both."""
    pick = random.Random(f"better {kind} {seed}")
    case = replace(draw(kind, seed), minimize=pick.choice(["latency", "latency", "energy", "edp"]))
    machine = copy.deepcopy(case.machine)
    places = [(own, key) for own, key in said(machine) if key in (*TIMED, "capacity", "links")]
    own, key = pick.choice(places)
    own[key] = own[key] * 2 if key == "links" else scaled(own[key], 2.0)
    before, after = asked(case), asked(replace(case, machine=machine))
    if before is None:
        return None
    if after is None:
        return f"{key} {own[key]}: an answer before, none after"
    had, least = before.certificate.objective, after.certificate.objective * (1 - after.certificate.gap)
    return f"{key} {own[key]}: {case.minimize} {had!r} before, {least!r} after" if least > had * (1 + ROUNDING) else None


def faster(kind: str, seed: int) -> str | None:
    """All rates times k, all latencies by k: latency is a k-th."""
    k = random.Random(f"faster {kind} {seed}").choice([2.0, 3.0, 4.0, 10.0])
    case = replace(draw(kind, seed), minimize="latency", profile=HOSTLESS[seed % 2])
    machine = copy.deepcopy(case.machine)
    for own, key in list(said(machine)):
        if key in TIMED:
            own[key] = scaled(own[key], k)
        elif key in AT_ONCE:
            own[key] = scaled(own[key], 1 / k)
    before, after = asked(case), asked(replace(case, machine=machine))
    if before is None or after is None:
        return None if before is after else "an answer of one speed, none of the other"
    return unlike(before.latency_s / k, after.latency_s, f"latency at {k:g} times every rate", before, after)


def unlike(one: float, other: float, what: str, *results: Result) -> str | None:
    """What to say where two figures differ by more than the gaps of their searches."""
    room = ROUNDING + sum(result.certificate.gap for result in results)
    return f"{what}: {one!r} and {other!r}" if abs(one - other) > room * max(abs(one), abs(other)) else None


# -- what must not matter ---------------------------------------------------------------------------------------------------


def both_figures(before: Result | None, after: Result | None, what: str) -> str | None:
    """Whether two answers have the same latency, energy and memory, as far as they were minimised and break ties."""
    if before is None or after is None:
        return None if before is after else f"{what}: an answer of one, none of the other"
    goal = before.certificate.minimize
    names = {"latency": "latency_s", "energy": "energy_j", "memory": "memory_bytes_per_accelerator"}
    if goal in names:
        return unlike(getattr(before, names[goal]), getattr(after, names[goal]), f"{goal} with {what}", before, after)
    return unlike(before.certificate.objective, after.certificate.objective, f"{goal} with {what}", before, after)


def order(kind: str, seed: int) -> str | None:
    """Operations listed in another order that their data allows: nothing changes."""
    case, pick = draw(kind, seed), random.Random(f"order {kind} {seed}")
    left, made, listed = dict(case.model["einsums"]), {"X"}, {}
    while left:
        ready = [name for name, op in left.items() if set(re.findall(r"\b(?:T\d+|H)\b", op.partition("=")[2])) <= made]
        name = pick.choice(ready)
        listed[name] = left.pop(name)
        made.add(listed[name].partition("[")[0])
    after = replace(case, model={**case.model, "einsums": listed})
    return both_figures(asked(case), asked(after), f"the order {', '.join(listed)}")


def names(kind: str, seed: int) -> str | None:
    """Tensors, operations and indices called otherwise: nothing changes. (The batch is b, and a weight begins with W, by name.)"""
    case = draw(kind, seed)
    called = {"d": "width", "f": "inner", "m": "rows", "X": "source", "H": "hidden", "Y": "dX"}
    called |= {f"T{k}": f"Z{k}" for k in range(9)} | {f"W{k}": f"Weight{k}" for k in range(9)}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {called.get(key, key): renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one) for one in value]
        return re.sub(r"\b[A-Za-z]\d?\b", lambda word: called.get(word[0], word[0]), value) if isinstance(value, str) else value

    model = {**case.model, "sizes": renamed(case.model["sizes"]), "einsums": renamed(case.model["einsums"])}
    mapper = {key: renamed(value) if key in ("split", "boundary") else value for key, value in case.mapper.items()}
    return both_figures(asked(case), asked(replace(case, model=model, mapper=mapper)), "other names")


def axis(_kind: str, seed: int) -> str | None:
    """An axis of 4 said as two of 2 that split the same, on one switch: nothing changes."""
    pick = random.Random(f"axis {seed}")
    machine = machines.rack(pick, 1, 4)
    machine["tree"]["children"][0]["network"] = {"topology": "switch", "bandwidth": "100 GB/s", "latency": "1 us", "energy": "1 pJ/bit"}
    model = models.feed_forward(pick)
    index = pick.choice(["m", "d", "f"])
    one: Data = {"mapper": "one", "axes": {"tp": {"degree": 4}}, "split": {"tp": [index]}, "uneven": "ceil"}
    two = one | {"axes": {"a": {"degree": 2}, "b": {"degree": 2}}, "split": {"a": [index], "b": [index]}}
    case = Case("axis", seed, machine, model, one, profile=pick.choice(HOSTLESS))
    before, after = asked(case), asked(replace(case, mapper=two))
    if before is None or after is None:
        return None if before is after else "an answer of one axis, none of two"
    figures = ("latency_s", "energy_j", "memory_bytes_per_accelerator")
    return next((found for name in figures if (found := unlike(getattr(before, name), getattr(after, name), name))), None)


def axis_of_steps(_kind: str, seed: int) -> str | None:
    """A tensor axis of 4 in training steps of a model said as two of 2, all accelerators on one switch: nothing changes."""
    pick = random.Random(f"axis of steps {seed}")
    machine = machines.rack(pick, 1, 4)
    machine["tree"]["children"][0]["network"] = {"topology": "switch", "bandwidth": "100 GB/s", "latency": "1 us", "energy": "1 pJ/bit"}
    model = {"workload": "random", "extends": "gpt", "sizes": {"b": 4, "s": 64, "d": 128, "e": 32, "h": 4, "f": 256, "v": 512, "layers": 2}}
    tensor = pick.choice([["h", "f", "v"], ["h", "f", "v", "s"]])
    one: Data = {"mapper": "one", "axes": {"tp": {"degree": 4}}, "split": {"tp": tensor}, "micro_batch": pick.choice([1, 2, 4])}
    one["recompute"] = pick.choice(["none", "selective", "full"])
    two = one | {"axes": {"a": {"degree": 2}, "c": {"degree": 2}}, "split": {"a": tensor, "c": tensor}}
    case = Case("axis", seed, machine, model, one, profile=pick.choice(HOSTLESS))
    before, after = asked(case), asked(replace(case, mapper=two))
    if before is None or after is None:
        return None if before is after else "an answer of one axis, none of two"
    figures = ("latency_s", "energy_j", "memory_bytes_per_accelerator")
    return next((found for name in figures if (found := unlike(getattr(before, name), getattr(after, name), name, before, after))), None)


def axis_of_one(kind: str, seed: int) -> str | None:
    """An axis of one rank, that splits tokens, the batch or a width, beside the others, under a random profile: nothing changes."""
    pick = random.Random(f"axis of one {kind} {seed}")
    with TemporaryDirectory() as folder:
        case = wild(kind, seed, Path(folder))
        one = {"axes": {**case.mapper["axes"], "one": {"degree": 1}}, "split": {**case.mapper["split"], "one": [pick.choice("sbf")]}}
        return both_figures(asked(case), asked(replace(case, mapper=case.mapper | one)), "an axis of one")


def level_of_one(kind: str, seed: int) -> str | None:
    """Each accelerator, or all of a rack, within a level of their own that one network joins to nobody else: nothing changes."""
    pick, case = random.Random(f"level of one {kind} {seed}"), draw(kind, seed)
    machine = copy.deepcopy(case.machine)
    rack = machine["tree"]["children"][0]
    accelerator, own = rack["children"][0], {"name": "node", "network": machines.network(pick, 1, ["1 GB/s", "900 GB/s"])}
    if pick.random() < 0.5:
        rack["children"] = [own | {"count": accelerator["count"], "children": [accelerator | {"count": 1}]}]
    else:
        rack["children"] = [own | {"network": rack["network"], "children": [accelerator]}]
        rack["network"] = own["network"]
    return both_figures(asked(case), asked(replace(case, machine=machine)), "a level of one")


def otherwise(kind: str, seed: int) -> str | None:
    """A model's step said in other words: nothing changes."""
    before, after = map(asked, SAID_OTHERWISE[kind](kind, seed))
    if before is None or after is None:
        return None if before is after else f"{kind}: an answer of one, none of the other"
    figures = ("latency_s", "energy_j", *(("memory_bytes_per_accelerator",) if kind != "one graph" else ()))
    return next((found for name in figures if (found := unlike(getattr(before, name), getattr(after, name), f"{name}, {kind}"))), None)


def written(kind: str, seed: int) -> str | None:
    """`evaluate` of the mapping that a search writes: bit for bit its figures."""
    case = draw(kind, seed)
    found = asked(case)
    if found is None:
        return None
    again = face.evaluate(case.machine, case.model, mapping_text(found.mapping), profile=case.profile)
    for name in ("latency_s", "energy_j", "memory_bytes_per_accelerator", "memory"):
        one, other = getattr(found, name), getattr(again, name)
        if one != other:
            return f"{name}: {one!r}, again {other!r}"
    return None


SAID_OTHERWISE = {
    "two sections": said_otherwise.two_sections,
    "one graph": said_otherwise.one_graph,
    "tokens as samples": said_otherwise.tokens_as_samples,
}
RELATIONS: dict[str, tuple[Callable[[str, int], str | None], tuple[str, ...]]] = {
    "better": (better, EVERY),
    "faster": (faster, EVERY),
    "order": (order, ("layouts", "stages")),
    "names": (names, ("layouts", "stages", "wafers")),
    "axis": (axis, ("axis",)),
    "axis of steps": (axis_of_steps, ("axis",)),
    "axis of one": (axis_of_one, ("steps", "offload", "moe", "streaming")),
    "level of one": (level_of_one, ("layouts", "stages", "steps", "offload", "moe", "cuts")),
    "otherwise": (otherwise, tuple(SAID_OTHERWISE)),
    "written": (written, EVERY),
}


def relations() -> Iterator[tuple[str, str, Callable[[str, int], str | None]]]:
    """(relation, kind, what checks it) of all."""
    for name, (relation, kinds) in RELATIONS.items():
        for kind in kinds:
            yield name, kind, relation
