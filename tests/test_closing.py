"""Branch and bound over a layer's choices: what it says of one layout no step of that layout is below, nor of several any of them."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts.branches import FAR, HERE, Branches, Column, Left
from rackmodel.mapper.layouts.closing import Closing
from rackmodel.mapper.layouts.layer_tables import SAVED
from rackmodel.mapper.layouts.least_ops import LeastOperations
from rackmodel.watch import UNWATCHED
from tests import samples
from tests.test_least_steps import CHOICES, COLUMNS, STYLES, mapper, search


class Seen(Exception):
    """What was looked for is known."""


def columns_of(tmp_path: Path, column: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *, whole: bool = False) -> tuple[Any, list[Column]]:
    """(the answer of a search with free layouts on one column, where the `whole` of it is run; its columns: one a schedule)."""
    found: list[LeastOperations] = []
    closed = LeastOperations.closed

    def seen(self: LeastOperations, goal: Any, enough: float) -> Any:
        found.append(self)
        if not whole:
            raise Seen
        return closed(self, goal, enough)

    monkeypatch.setattr(LeastOperations, "closed", seen)
    answer = None
    with suppress(Seen):
        answer = search(tmp_path, mapper(column, layouts={"found": {"split": {"tp": "free"}}}), column)
    monkeypatch.undo()
    steps, _, known = found[0]._known()
    each = sorted({(steps._row(*one), shape) for one in known for shape in steps._shapes(*one)}, key=repr)
    cases, places = steps._cases.of(each)
    made = [steps._column_of(case, int(n), shape) for case in cases for n, (_, shape) in zip(places, each, strict=True)]
    return answer, made


def drawn(rng: random.Random, style: tuple[str, ...]) -> dict[str, str]:
    """Operation → what it splits over the free axis."""
    found = {}
    for op, legal in CHOICES.items():
        wanted = [index for index in style if index in legal]
        found[op] = wanted[0] if wanted and rng.random() < 0.9 else rng.choice([*legal, "none"])
    return found


def node_of(branches: Branches, choices: dict[str, str | None], saved: str) -> Left | None:
    """The node of one layout; None where the tables do not have it."""
    left = {}
    strategies = {op: own for tables in branches.column.sections for op, own in tables.strategies.items()}
    for name, values in branches.values.items():
        if name.startswith(SAVED):
            here = values == int(saved == "gathered")
        else:
            here = np.array([strategies[name][value][1] == choices[name] for value in values])
        if not here.any():
            return None
        left[name] = here[:, None]
    return left


@pytest.mark.parametrize("name", COLUMNS)
def test_no_layout_is_below_what_is_said_of_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    column, rng = COLUMNS[name], random.Random(f"closing {name}")
    _, columns = columns_of(tmp_path, column, monkeypatch)
    assert columns
    compared, nearest = 0, 0.0
    for style in [*STYLES.values()] * samples.cases(1, 2):
        saved = rng.choice(["shard", "gathered"])
        said = mapper(column, choose={op: {"tp": split} for op, split in drawn(rng, style).items()}, save=saved)
        said["split"]["tp"] = ["v"]
        try:
            result = search(tmp_path, said, column)
        except (InfeasibleError, InputError):
            continue  # over memory, or a degree that does not divide
        choices = {op: each["tp"] for op, each in result.mapping.ops.items()}
        bounds = []
        for one in columns:
            branches = Branches.of(one)
            left = node_of(branches, choices, saved) if branches is not None else None
            if branches is not None and left is not None:
                bounds.append(float(branches.bound(left, np.zeros(1), np.zeros(1), FAR).seconds[0]))
        if bounds:
            compared += 1
            nearest = max(nearest, min(bounds) / result.latency_s)
            assert min(bounds) <= result.latency_s * (1 + 1e-12), (choices, saved)
    assert compared
    assert nearest > 0.7  # of one layout nearly all is known


@pytest.mark.parametrize("name", ["little memory", "data beside it, all sharded", "one group of eight"][: samples.cases(2, 3)])
def test_the_least_node_is_the_least_of_all_layouts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against every assignment of what is left when all but a few variables are fixed as in the best."""
    rng = random.Random(f"least {name}")
    monkeypatch.setattr("rackmodel.mapper.layouts.descent.ROUNDS", 0)  # what is found near the best moves no bound
    answer, columns = columns_of(tmp_path, COLUMNS[name], monkeypatch, whole=True)
    closed = Closing(columns, answer.latency_s * 1.05, UNWATCHED).run()
    assert closed.leaves
    assert closed.seconds <= closed.leaves[0].seconds
    assert closed.seconds <= answer.certificate.objective
    branches = Branches.of(columns[closed.leaves[0].number])
    assert branches is not None
    for _ in range(100):  # random layouts and random nodes
        left = branches.all()
        for variable, count in branches.counts.items():
            keep = rng.sample(range(count), rng.choice([1, 1, 1, count]))
            left[variable][:, 0] = np.isin(np.arange(count), keep)
        seconds = float(branches.bound(left, np.zeros(1), np.zeros(1), FAR).seconds[0])
        if all(own.sum() == 1 for own in left.values()):
            assert seconds >= closed.seconds * (1 - 1e-9)
        else:
            inner = {v: own & (np.arange(len(own)) == rng.choice(np.flatnonzero(own[:, 0])))[:, None] for v, own in left.items()}
            assert float(branches.bound(inner, np.zeros(1), np.zeros(1), FAR).seconds[0]) >= seconds * (1 - 1e-9)


def test_values_that_are_dominated_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, columns = columns_of(tmp_path, COLUMNS["data beside it, all sharded"], monkeypatch)
    branches = Branches.of(columns[0])
    assert branches is not None
    kept = branches.undominated()
    fewer = branches.only(kept)
    assert sum(fewer.counts.values()) < sum(branches.counts.values())
    zero = np.zeros(1)
    for prices in ((0.0, 0.0), (0.3, 0.1), (2.0, 0.5)):
        memory, lane = zero + prices[0], zero + prices[1]
        whole, some = (one.bound(one.all(), memory, lane, HERE).seconds[0] for one in (branches, fewer))
        assert some == pytest.approx(whole, rel=1e-12)


def test_a_layout_that_a_bound_is_of_is_found(tmp_path: Path) -> None:
    """Better than every named one, and near the bound, which one layer alone would leave several per cent below."""
    found = []
    for name in ("megatron", "megatron_free"):
        said = {"mapper": "one", "extends": name, "axes": {"pp": {"degree": 1, "stages": "layers"}, "tp": {"degree": 8}}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        sets = ["accelerators=64", "layers=16", "b=64"]
        found.append(api.search("dgx_h100", "llama3_405b", str(path), sets=sets, profile="megatron_core").result)
    named, free = found
    assert free.latency_s < named.latency_s
    assert free.certificate.gap < 0.02
