"""Machines as rows name them: architectures of the library, or a user's own, with what words change of them."""

from __future__ import annotations

from functools import cache

from rackmodel.inputs import read_architecture
from rackmodel.model.architecture import Architecture


@cache
def machine_of(name: str, changes: tuple[tuple[str, str], ...]) -> Architecture:
    """A machine of the library with changes as --set says them."""
    return read_architecture(name, [f"{path}={value}" for path, value in changes])
