"""Rows held out together: whole shapes, so that an error on them is one on shapes that a fit did not see; and how errors are said, and what
no fit took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rackmodel.arrays import Bools, Ints

FOLDS = 5


def kept_out(shapes: Sequence[object]) -> Iterator[Bools]:
    """Rows of each of five parts of the shapes, dealt in a fixed order; of rows of one shape, every fifth."""
    number = {shape: at for at, shape in enumerate(dict.fromkeys(shapes))}
    return dealt(np.array([number[shape] for shape in shapes]))


def dealt(number: Ints) -> Iterator[Bools]:
    """The same of numbered shapes. number: [rows] of each row's, from 0 on."""
    own = number if number.any() else np.arange(len(number)) % FOLDS
    order = np.random.default_rng(0).permutation(int(own.max()) + 1)
    for part in np.array_split(order, min(FOLDS, len(order))):
        yield np.isin(own, part)


def mean_and_median(errors: Any) -> str:
    """Of |predicted / measured - 1|, in percent; rows without one left out."""
    return f"{100 * float(np.nanmean(errors)):.1f} and {100 * float(np.nanmedian(errors)):.1f}"


def left_out(refused: Iterable[tuple[str, int, str]]) -> list[str]:
    """What is said of rows that no fit took. refused: file, line and reason of each, in their order."""
    rows = list(refused)
    first: dict[tuple[str, str], int] = {}
    for file, line, why in rows:
        first.setdefault((file, why), line)
    count = Counter((file, why) for file, _, why in rows)
    return [
        f"{number} {'row' if number == 1 else 'rows'} of {file} (from line {first[file, why]}): {why}"
        for (file, why), number in count.items()
    ]
