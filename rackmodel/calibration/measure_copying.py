"""A kernel that copies beside products, for `measure_torch`; loads Triton."""

from importlib import import_module
from typing import Any

triton: Any = import_module("triton")
words: Any = import_module("triton.language")


def _copied(source, to, size, rounds, BLOCK: words.constexpr):  # type: ignore[no-untyped-def]
    """Blocks copy `size` words together, `rounds` times, BLOCK words at once each."""
    for _ in range(rounds):
        for first in range(words.program_id(0) * BLOCK, size, words.num_programs(0) * BLOCK):
            places = first + words.arange(0, BLOCK)
            words.store(to + places, words.load(source + places))


copied: Any = triton.jit(_copied)
