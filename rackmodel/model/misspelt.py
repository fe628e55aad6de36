"""Operands that nothing makes and whose names are nearly those of tensors that something does.

A tensor that no operation writes is an input (or a weight, `W...`). An operand that is misspelt (`Gatd` for `Gated`) is one, too, without
a word: the tensor that was meant goes nowhere, and its gradient is gone. So such a name is told where

    something of the same ranks is made, without what reads it, and nearly called so: distance <= 1 for names of 3 to 6 letters, <= 2 from
    7 on, or the same but for capitals and doubled letters (`Xx`, `x`: X); names that differ by their numbers alone (N1, N2) are meant

and `tensors:` does not say its kind: `{Gatd: {kind: input}}` says that it is meant.

So is an input in the shape of what a repeated section hands on beside the one that it takes: which of the two is handed on, no file says.
"""

from __future__ import annotations

import re
from itertools import groupby

from rackmodel.model.mapper_check import distance
from rackmodel.model.workload import Workload, streams_like_result

_SHORT, _LONG = 3, 7


def doubts_of(workload: Workload) -> tuple[str, ...]:
    """A sentence for all that a file says and that changes nothing, and for each operand that nothing makes and may not be meant so."""
    return *workload.idle, *misspelt_operands(workload), *second_streams(workload)


def second_streams(workload: Workload) -> tuple[str, ...]:
    """A sentence for each input of repeated layers that has the shape of what they hand on, and is not what they take from one another."""
    found = []
    for section in (one for one in workload.sections if one.repeat > 1 and one.stream_in):
        handed = f"the {section.repeat:,} layers of {section.name} hand on '{section.stream_out}' as the next one's '{section.stream_in}'"
        for name in streams_like_result(section.workload):
            if name != section.stream_in and name not in workload.producer and name not in workload.declared:
                kept = f"if it is meant say tensors: {{{name}: {{kind: input}}}}"
                found.append(f"{handed}; '{name}', of the same shape, is read by each of them from outside ({kept})")
    return tuple(found)


def misspelt_operands(workload: Workload) -> tuple[str, ...]:
    """A sentence for each operand that is taken as an input or a weight and may be misspelt."""
    found = []
    for name, tensor in workload.tensors.items():
        if name in workload.producer or name in workload.declared or tensor.kind not in ("input", "weight"):
            continue
        near = [other for other in workload.producer if workload.tensors[other].ranks == tensor.ranks and _nearly(name, other)]
        made = [other for other in near if not _follows(workload, other, name)]
        if made:
            reader, article = workload.readers[name][0], "an" if tensor.kind == "input" else "a"
            meant = min(made, key=lambda other: distance(name, other))
            kept = f"if it is meant say tensors: {{{name}: {{kind: {tensor.kind}}}}}"
            found.append(
                f"{reader} reads '{name}', which nothing makes: taken as {article} {tensor.kind}; did you mean '{meant}'? ({kept})"
            )
    return tuple(found)


def _follows(workload: Workload, made: str, operand: str) -> bool:
    """Whether a tensor is made of an operand, which then cannot be it."""
    behind, waiting = set[str](), [made]
    while waiting:
        op = workload.producer.get(waiting.pop())
        if op is not None and op not in behind:
            behind.add(op)
            waiting += [access.tensor for access in workload.ops[op].ins]
    return not behind.isdisjoint(workload.readers[operand])


def _nearly(name: str, made: str) -> bool:
    """Whether one name was meant by the other."""
    if re.sub(r"\d", "", name) == re.sub(r"\d", "", made):
        return False
    if _plain(name) == _plain(made):
        return True
    shorter = min(len(name), len(made))
    return shorter >= _SHORT and distance(name, made) <= (1 if shorter < _LONG else 2)


def _plain(name: str) -> str:
    """A name without capitals and doubled letters."""
    return "".join(letter for letter, _ in groupby(name.lower()))
