"""Loops around members of a region: which ranks they may cut, what lives within which of them, and what runs again in their iterations.

A span is a run of neighbouring members with loops around them. Spans lie within one another or beside one another, the first holds all
members. An intermediate lives in the innermost span that holds all its users: above its tile lie loops of that span and of those around it.
A member that lacks a rank which loops around it cut runs again in each of their iterations: what it writes is made again instead of kept.
It counts as the einsum with one more rank, which its output alone has, of so many parts, one of which is in a tile at a time. Derivation:
docs/nest_theory.md, section 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from rackmodel.nests.problem import NestProblem
from rackmodel.nests.region import Region

Span = tuple[int, int]  # first and last member


def every_nesting(members: int) -> list[tuple[Span, ...]]:
    """Every list of spans of two or more members, any two of them one within the other or apart: the first of all members, each before
    those within it and those to its right. Few spans first."""
    return sorted(_nestings((0, members - 1)), key=len)


def _nestings(span: Span) -> list[tuple[Span, ...]]:
    """Those of a run of members, which all of them are around."""
    first, last = span
    return [(span, *inner) for inner in _beside(first, last, span)]


def _beside(first: int, last: int, around: Span) -> list[tuple[Span, ...]]:
    """Spans of a run of members that are apart from one another and within another one, each with those within it."""
    found: list[tuple[Span, ...]] = [()]
    for span in combinations(range(first, last + 1), 2):
        if span != around:
            found += [(*one, *others) for one in _nestings(span) for others in _beside(span[1] + 1, last, around)]
    return found


def paths_of(spans: Sequence[Span]) -> list[tuple[int, ...]]:
    """Per span: the numbers of those around it, outer → inner, itself the last."""
    return [tuple(j for j, (a, b) in enumerate(spans[: k + 1]) if a <= first and last <= b) for k, (first, last) in enumerate(spans)]


def again_in(problem: NestProblem, times: Mapping[str, int]) -> NestProblem:
    """The einsum that runs again: one more rank a name, of so many parts, which only what it writes has."""
    more = tuple((rank,) for rank in times)
    tensors = tuple(replace(t, indices=(*t.indices, *more)) if t.is_output else t for t in problem.tensors)
    return replace(problem, sizes={**problem.sizes, **times}, tensors=tensors)


class RegionLoops:
    """spans: as every_nesting lists them · again: whether loops may cut ranks that members around which they lie lack · paths: see
    paths_of · cuts: per span, ranks that its loops may cut · span_of: per member, its innermost span · lives: intermediate → its span."""

    def __init__(self, region: Region, spans: tuple[Span, ...], *, again: bool) -> None:
        self.region, self.spans, self.again = region, spans, again
        self.paths = paths_of(spans)
        self.span_of = [max(k for k, (first, last) in enumerate(spans) if first <= i <= last) for i in range(len(region.members))]
        self.lives = {name: max(k for k, (a, b) in enumerate(spans) if a <= at[0] and at[1] <= b) for name, at in region.held.items()}
        self.cuts = [self._cuts(k) for k in range(len(spans))] if again else [region.shared]

    def _cuts(self, k: int) -> frozenset[str]:
        first, last = self.spans[k]
        ranks = {r for p in self.region.members[first : last + 1] for r in p.sizes}
        return frozenset(r for r in ranks - self.region.whole if self._may_cut(k, r))

    def _may_cut(self, k: int, rank: str) -> bool:
        """Whether loops around a span may cut a rank: what lives within is complete in each iteration, and what leaves is made once."""
        region, (first, last) = self.region, self.spans[k]
        within = {name for name, span in self.lives.items() if k in self.paths[span]}
        for i in range(first, last + 1):
            p, name = region.members[i], region.members[i].output.name
            if name in within and rank in p.sizes and rank not in p.output.ranks:
                return False
            if name not in within and rank not in p.sizes:
                return False
        at_once = [name for name in within if region.held[name][0] == region.held[name][1]]
        return all(self._in_place(name, rank, within, first) for name in at_once) and not any(
            self._mixed(rows.of, rank) for rows in region.running if rows.of in within
        )

    def _mixed(self, name: str, rank: str) -> bool:
        """Whether loops over a rank that rows lack, made again in each iteration, would add to one sum what other statistics scaled."""
        reader = self.region.members[self.region.held[name][1]]
        return rank in reader.sizes and rank not in (*reader.output.ranks, *self.region.intermediate(name).ranks)

    def _in_place(self, name: str, rank: str, within: set[str], first: int) -> bool:
        """Whether an operation that uses up `name` as soon as it is made, with intermediates made before, may lie in loops over a rank: it
        overwrites what lives around them, which must be complete by then and come to it once."""
        at = self.region.held[name][0]
        for other, (made, used) in self.region.held.items():
            if other != name and other not in within and made <= at <= used:
                if rank not in self.region.intermediate(name).ranks:
                    return False
                if made >= first and rank not in self.region.intermediate(other).ranks:
                    return False
        return True

    def live(self, i: int) -> list[str]:
        """Intermediates whose tile takes room while member i runs: from maker to last reader; as long as loops within its span run that
        write or read it."""
        return [name for name, (made, used) in self.region.held.items() if self._run(made, name)[0] <= i <= self._run(used, name)[1]]

    def _run(self, i: int, name: str) -> Span:
        """The members that run, loops and all, before the next one within the span of an intermediate: those around member i."""
        path = self.paths[self.span_of[i]]
        within = path[path.index(self.lives[name]) + 1 :]
        return self.spans[within[0]] if within else (i, i)

    def around(self, i: int) -> tuple[int, ...]:
        """The spans around a member, outer → inner."""
        return self.paths[self.span_of[i]]
