"""Names that loop nests are told: levels, tensors and ranks of a mapper's rules, words of what a memory keeps.

A rule is obeyed or refused, so that each of its names must be there. A memory may name tensors of several workloads: a word of `keep`,
`bypass` or `bits` that nothing here is called is passed over, unless it is nearly one that something is (`rigth`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rackmodel.errors import InputError, together
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapper_check import nearly
from rackmodel.model.mapping import NestRules
from rackmodel.model.resources import KINDS, ROLES
from rackmodel.model.workload import Op, Workload


def check_nest_words(architecture: Architecture, workload: Workload, rules: Mapping[str, NestRules]) -> None:
    """Raise one InputError for all names of rules that nothing has, and words of memories that are slips of the pen.

    rules: operation ('*' = every one) → demands on its nest.
    """
    products = workload.products
    problems = [*_kept(architecture, workload)]
    for name, said in rules.items():
        problems += _ruled(architecture, said, products if name == "*" else [workload.ops[name]], f"inside.rules.{name}")
    if problems:
        raise together(problems)


def _ruled(architecture: Architecture, said: NestRules, ops: Collection[Op], path: str) -> Iterator[InputError]:
    """Names of one operation's rules (of several: of any of them) that are none."""
    memories = [level.name for level, _ in architecture.inside if level.memory is not None]
    tensors = list(dict.fromkeys(access.tensor for op in ops for access in (*op.ins, op.out)))
    ranks = list(dict.fromkeys(index for op in ops for index in op.indices))
    inner = "no memory inside the accelerator called"
    for key in ("order", "stationary", "tiles", "keep", "bypass"):
        for level, named in getattr(said, key).items():
            yield from _unknown(level, memories[1:], inner, f"{path}.{key}.{level}")
            if key == "tiles":
                for rank, size in named.items():
                    yield from _unknown(rank, ranks, "no rank", f"{path}.{key}.{level}.{rank}")
                    if size > (most := max((op.sizes[rank] for op in ops if rank in op.indices), default=size)):
                        yield InputError(f"{rank} has {most}", path=f"{path}.{key}.{level}.{rank}")
            for number, tensor in enumerate([named] if key == "stationary" else [] if key == "tiles" else named):
                yield from _unknown(tensor, tensors, "no tensor", f"{path}.{key}.{level}" + f".{number}" * (key != "stationary"))
    for level in said.keep.keys() & said.bypass.keys():
        for tensor in sorted({*said.keep[level]} & {*said.bypass[level]}):
            yield InputError(f"'{tensor}' is kept there too", path=f"{path}.bypass.{level}")
    for level, sides in said.spatial.items():
        yield from _unknown(level, _above_fans(architecture), "no memory above a fan called", f"{path}.spatial.{level}")
        for side, named in sides.items():
            for number, rank in enumerate(named):
                yield from _unknown(rank, ranks, "no rank", f"{path}.spatial.{level}.{side}.{number}")


def _above_fans(architecture: Architecture) -> list[str]:
    """Memories with several instances below them before the next memory, or the compute."""
    found, memory = [], ""
    for level, _ in architecture.inside:
        memory = level.name if level.memory is not None else memory
        if level.fanout.size > 1 and memory:
            found.append(memory)
    return list(dict.fromkeys(found))


def _unknown(name: str, known: Collection[str], what: str, path: str) -> Iterator[InputError]:
    if name not in known:
        yield InputError(f"{what} '{name}'", path=path, known=list(known), given=name)


def _kept(architecture: Architecture, workload: Workload) -> Iterator[InputError]:
    """Words of the accelerator's memories that nothing of the workload is called, and something nearly is."""
    known = [*KINDS, *ROLES, *workload.tensors]
    for level, _ in architecture.inside:
        if level.memory is None:
            continue
        path = f"tree.{level.name}.memory"
        lists = {f"{path}.{key}.{n}": word for key in ("keep", "bypass") for n, word in enumerate(getattr(level.memory, key) or ())}
        for place, word in (lists | {f"{path}.bits.{word}": word for word in level.memory.bits}).items():
            if word.removeprefix("d") not in workload.tensors and nearly(word, known, ()) is not None:  # dW: the gradient of W
                yield InputError(f"no tensor '{word}'", path=place, known=known, given=word)
