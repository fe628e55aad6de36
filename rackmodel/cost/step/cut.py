"""Which layers each pipeline device holds: a cut of the model's sequence of layers into chunks, dealt out in turns.

Virtual stage k of p·v runs on device k mod p, or where a schedule folds the model on device k, and 2p - 1 - k on the way back
(model/schedules). The embedding belongs to the first, the head to the last. An even cut gives
every virtual stage the same number of layers, in the order of the sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cut:
    """counts: [p·v, sections] layers of each virtual stage · kinds: (first, last) device of each run of devices whose chunks are equal ·
    folded: whether the second of two chunks lies on the way back."""

    stages: int
    chunks: int
    counts: Counts
    kinds: tuple[tuple[int, int], ...]
    folded: bool = False

    @property
    def devices(self) -> Counts:
        """[p·v] the device of each virtual stage."""
        down = np.arange(self.stages)
        return np.concatenate([down, down[::-1]]) if self.folded else np.tile(down, self.chunks)

    @cached_property
    def busy(self) -> Counts:
        """[p, sections] layers of each device."""
        found = np.zeros((self.stages, self.counts.shape[1]), dtype=np.int64)
        np.add.at(found, self.devices, self.counts)
        return found

    @cached_property
    def before(self) -> Counts:
        """[p, sections] layers of the virtual stages before a device's first."""
        return np.vstack([np.zeros((1, self.counts.shape[1]), dtype=np.int64), np.cumsum(self.counts, axis=0)])[: self.stages]

    def of_chunks(self, device: int) -> Counts:
        """[chunks, sections] layers of each chunk of a device."""
        return self.counts[[device, -1 - device]] if self.folded else self.counts[device :: self.stages]

    @property
    def fullest(self) -> list[int]:
        """Devices of which one holds most: the first of each run of equal ones, which has most passes under way; where a schedule folds
        the model every one, as it has more of one chunk, less of the other."""
        return list(range(self.stages)) if self.folded else [first for first, _ in self.kinds]

    @property
    def around(self) -> bool:
        """Whether the last device hands on to the first."""
        return self.chunks > 1 and not self.folded

    def handing(self, way: int) -> tuple[int, int]:
        """Passes of a micro-batch with which a device hands on to the next one, and to the one before. way: forward, 1 back."""
        return (1, 1) if self.folded else (0, self.chunks) if way else (self.chunks, 0)

    def hand_overs(self, way: int) -> Counts:
        """[2, p] hand-overs of a micro-batch, of each device to the next one and to the one before: of all passes but those at the ends of
        the model, and where it turns."""
        found = np.repeat(np.array(self.handing(way), dtype=np.int64)[:, None], self.stages, axis=1)
        ends = (0, 1), (-1, 0)
        found[ends] = np.maximum(found[ends] - 1, 0)
        return found

    @property
    def hops(self) -> int:
        """Hand-overs of a micro-batch on its way through the stages: none where it turns."""
        return self.stages * self.chunks - 1 - self.folded


def cut_by_counts(counts: Counts) -> Cut:
    """The cut of stages of one chunk each that hold `counts` [stages, sections] layers."""
    return Cut(len(counts), 1, counts, tuple((stage, stage) for stage in range(len(counts))))


Mixes = Sequence[Sequence[Sequence[int]]]  # stage → section of layers → policy → layers


def partition(layers: Sequence[bool], repeats: Sequence[int], mixes: Mixes | Counts) -> list[tuple[int, int, Counts]]:
    """(section, policy, [stages] layers of them) for every policy of every section; the ends whole, in the first and the last stage."""
    counts = np.asarray(mixes, dtype=np.int64)  # [stages, layer sections, policies]
    found, number = [], 0
    for x, is_layer in enumerate(layers):
        if is_layer:
            found += [(x, policy, counts[:, number, policy]) for policy in range(counts.shape[2])]
            number += 1
        else:
            where = np.zeros(len(counts), dtype=np.int64)
            where[0 if number == 0 else -1] = repeats[x]
            found.append((x, 0, where))
    return found


def layers_of(repeats: Sequence[int], is_layer: Sequence[bool]) -> int:
    """Layers to cut: those of the sections that are layers."""
    return sum(repeat for repeat, layer in zip(repeats, is_layer, strict=True) if layer)


@lru_cache(maxsize=4096)
def even_cut(repeats: tuple[int, ...], is_layer: tuple[bool, ...], stages: int, chunks: int, folded: bool = False) -> Cut | None:
    """The even cut; None where the layers do not divide, or a pipeline has none to cut."""
    total, parts = layers_of(repeats, is_layer), stages * chunks
    if total % parts or (parts > 1 and not total):
        return None
    return cut(repeats, is_layer, stages, chunks, (total // parts,) * parts, folded)


@lru_cache(maxsize=4096)
def cut(
    repeats: tuple[int, ...], is_layer: tuple[bool, ...], stages: int, chunks: int, layers: tuple[int, ...], folded: bool = False
) -> Cut:
    """The cut that gives virtual stage k `layers[k]` layers."""
    sequence = [x for x, (repeat, layer) in enumerate(zip(repeats, is_layer, strict=True)) if layer for _ in range(repeat)]
    counts = np.zeros((stages * chunks, len(repeats)), dtype=np.int64)
    at = 0
    for stage, size in enumerate(layers):
        for x in sequence[at : at + size]:
            counts[stage, x] += 1
        at += size
    first = next((x for x, layer in enumerate(is_layer) if layer), len(is_layer))
    for x, (repeat, layer) in enumerate(zip(repeats, is_layer, strict=True)):
        if not layer:
            counts[0 if x < first else -1, x] += repeat
    of_chunks = counts.reshape(chunks, stages, -1).copy()
    if folded:
        of_chunks[1] = of_chunks[1, ::-1]
    kinds: list[tuple[int, int]] = []
    for device in range(stages):
        if kinds and np.array_equal(of_chunks[:, device], of_chunks[:, kinds[-1][0]]):
            kinds[-1] = (kinds[-1][0], device)
        else:
            kinds.append((device, device))
    return Cut(stages, chunks, counts, tuple(kinds), folded)
