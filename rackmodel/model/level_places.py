"""What a level of a tree says where it counts for nothing: a network that joins no accelerators, a fan that no loop nest fills.

A level lies above the accelerators, is one, is inside one, or lies beside them (a store of weights). Parallelism runs over networks
above; a loop nest over memories and fans from the accelerator on, the outermost of which holds every tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

from rackmodel.errors import InputError
from rackmodel.model.level import Level
from rackmodel.model.resources import Compute, Memory

_OF_HOMES = ("rate_flop_per_s", "precisions", "vector", "source", "note")
_NO_NEST = "it stands for the loop nest inside an accelerator, which this level is not; `network` joins accelerators"
_INSTEAD = "inside one a loop nest counts `fan: {x:, y:, hop_energy:, link_bandwidth:}`, and parallelism ends at `accelerator: true`"


def misplaced(tree: Level) -> list[InputError]:
    """An error for each key, with its path, that could change nothing where it stands."""
    return [*_outside(tree)] if not tree.accelerator else [*_accelerator(tree)]


def _outside(level: Level) -> Iterator[InputError]:
    """Of a level above the accelerators, or beside them, and of all below it."""
    joins = any(below.accelerator for below in level.walk())
    if not joins:
        yield from _network(level, "no accelerator is below it")
        yield from _launching(level)
    if level.fan is not None:
        yield _error(level, "fan", _NO_NEST)
    if level.memory is not None:
        yield from _memory(level, level.memory, "this level is not inside one", ("keep", "bypass", "bits", "buffers"))
    if level.compute is not None:
        yield from _home(level, level.compute)
    for child in level.children:
        yield from _accelerator(child) if child.accelerator else _outside(child)


def _home(level: Level, compute: Compute) -> Iterator[InputError]:
    """Compute outside the accelerators updates the weights that have their home in the memory beside it, and does no more."""
    if level.memory is None or compute.vector is None:
        lacking = "memory" if level.memory is None else "compute.vector"
        fact = f"outside the accelerators it updates weights at home in its level's memory: want `{lacking}` of '{level.name}', too"
        yield _error(level, "compute", fact)
    for name, info in Compute.model_fields.items():
        if name in compute.model_fields_set and name not in _OF_HOMES:
            yield _error(
                level, f"compute.{info.alias or name}", "outside the accelerators vector operations alone are done, of weights at home"
            )


def _accelerator(accelerator: Level) -> Iterator[InputError]:
    """Of an accelerator, and of all inside it."""
    outermost = True
    for level in accelerator.walk():
        yield from _network(level, "it joins accelerators")
        if level is not accelerator:
            yield from _launching(level)
        if level.memory is not None and outermost:
            yield from _memory(level, level.memory, "the outermost one holds every tensor", ("keep", "bypass", "buffers"))
            outermost = False


def _network(level: Level, why: str) -> Iterator[InputError]:
    if level.network is not None:
        yield _error(level, "network", f"'{level.name}' cannot have one: {why}; {_INSTEAD}")


def _launching(level: Level) -> Iterator[InputError]:
    if "launching" in level.model_fields_set:
        yield _error(level, "launching", f"a host launches kernels of the accelerators below it, or of its own: '{level.name}' has none")


def _memory(level: Level, memory: Memory, why: str, keys: tuple[str, ...]) -> Iterator[InputError]:
    for key in keys:
        if key in memory.model_fields_set:
            yield _error(level, f"memory.{key}", f"says what a loop nest stores in memories inside an accelerator: {why}")


def _error(level: Level, key: str, fact: str) -> InputError:
    return InputError(fact, path=f"tree.{level.name}.{key}")
