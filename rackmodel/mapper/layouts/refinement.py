"""Classes of a variable's values that several tables tell apart at once, and what of an elimination they alone decide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.mapper.layouts.interfaces import Index


class Refinement:
    """Classes told apart by several tables at once: value → joint class, and for each joint class the class in each table. order: of the
    variables of an elimination, once it is known."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], tuple[Index, list[Index]]] = {}
        self.kept: list[Sequence[Index]] = []  # keeps the arrays, whose ids are the keys, alive
        self.order: tuple[str, ...] = ()

    def __call__(self, classes: Sequence[Index]) -> tuple[Index, list[Index]]:
        key = tuple(map(id, classes))
        if key not in self.known:
            self.kept.append(list(classes))
            together = classes[0]
            for which in classes[1:]:
                together = together * (int(which.max()) + 1) + which
            _, first, joint = np.unique(together, return_index=True, return_inverse=True)
            self.known[key] = joint, [which[first] for which in classes]
        return self.known[key]
