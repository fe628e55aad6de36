"""Machines as rows name them: architectures of the library, or a user's own, with what words change of them."""

from __future__ import annotations

from functools import cache

from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.model.formats import multiplied
from rackmodel.model.resources import WIDEST, width


@cache
def machine_of(name: str, changes: tuple[tuple[str, str], ...]) -> Architecture:
    """A machine of the library with changes as --set says them."""
    return read_architecture(name, [f"{path}={value}" for path, value in changes])


def not_multiplied(machine: Architecture, name: str, word: str, unit: str, operands: str) -> str:
    """Why a machine cannot multiply operands as they are; '' where it can. name: of the machine · word: for the precision · unit: format
    that it must multiply, '' = any that is wide enough · operands: their width."""
    compute = machine.computing[0].compute
    rates = compute.precisions if compute is not None else {}
    widest = max(map(width, rates), default=0) if compute is not None and compute.rate_flop_per_s is None else WIDEST
    if (not unit or multiplied(machine, unit)) and width(operands) <= widest:
        return ""
    return f"{name} multiplies no {unit or word} (it has {', '.join(rates)})"
