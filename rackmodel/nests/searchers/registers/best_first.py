"""Many cells in the order of their bounds, sorted a part at a time: a search that ends early has looked at few of them."""

from collections.abc import Callable, Iterator

import numpy as np

from rackmodel.arrays import Array

FIRST, MORE = 4096, 8  # cells sorted at first, how many times as many then


def best_first(first: Array, second: Array, most: Callable[[], float]) -> Iterator[int]:
    """Numbers of the cells by (first, second, number), up to those whose first is above `most()`, which may fall meanwhile."""
    left, size = np.arange(len(first)), FIRST
    while len(left):
        left = left[first[left] <= most()]
        now, left = left, left[:0]
        if len(now) > size:
            every = now
            cut = np.partition(first[every], size)[size]
            now, left = every[first[every] <= cut], every[first[every] > cut]
        for i in now[np.lexsort((second[now], first[now]))]:
            if first[i] > most():
                return
            yield int(i)
        size *= MORE
