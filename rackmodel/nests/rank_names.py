"""Ranks and tensors under other names: einsums of a region may call different ranks alike, and one place by two names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.problem import NestProblem


def apart(problem: NestProblem, taken: set[str]) -> dict[str, str]:
    """New names for ranks that the other einsum of a pair uses for something of its own."""
    return {rank: f"{rank}_" for rank in problem.sizes if rank in taken}


def renamed_problem(problem: NestProblem, names: Mapping[str, str]) -> NestProblem:
    """The same einsum, its ranks renamed."""

    def term(text: str) -> str:
        stride, star, rank = text.rpartition("*")
        return f"{stride}{star}{names.get(rank, rank)}"

    tensors = tuple(replace(t, indices=tuple(tuple(term(x) for x in index) for index in t.indices)) for t in problem.tensors)
    return replace(problem, sizes={names.get(r, r): size for r, size in problem.sizes.items()}, tensors=tensors)


def renamed_mapping(mapping: NestMapping, names: Mapping[str, str]) -> NestMapping:
    """The same mapping, its ranks renamed."""

    def ranks(table: Mapping[str, int]) -> dict[str, int]:
        return {names.get(rank, rank): size for rank, size in table.items()}

    levels = tuple(
        replace(level, nodes=tuple(replace(n, tile=ranks(n.tile)) for n in level.nodes), x=ranks(level.x), y=ranks(level.y))
        for level in mapping.levels
    )
    return replace(mapping, levels=levels)


def renamed_tensors(mapping: NestMapping, names: Mapping[str, str]) -> NestMapping:
    """The same mapping, its tensors renamed."""
    levels = tuple(
        replace(level, nodes=tuple(replace(node, tensor=names.get(node.tensor, node.tensor)) for node in level.nodes))
        for level in mapping.levels
    )
    return replace(mapping, levels=levels)
