"""Layouts that are free beside a profile that merges kernels: tables of operations and of what their merging changes."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rackmodel.cost.step.group import Job
from rackmodel.cost.step.tasks.merged import products_alike, side_by_side
from rackmodel.inputs.read import read_profile
from rackmodel.mapper.layouts import merged_kernels
from rackmodel.mapper.layouts.factors import FactorBuilder, build_factors
from rackmodel.mapper.layouts.tensor_tables import TooLarge
from rackmodel.mapper.layouts.weights import total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.model.profile import Merged
from rackmodel.setting import settings_of
from tests import samples
from tests.certificate_cases import members
from tests.free_columns import COLUMNS, STYLES, drawn_step, free, least_seconds
from tests.machines import SERIAL
from tests.merged_layouts import GRAPHS, Case, check

CLOSE = 1e-9
EVERY = Merged(projections=True, rotations=True, residuals=True, reductions=True, statistics=True)


NAMES = ("three of one", "a sum") if samples.cases(1, 0) else tuple(GRAPHS)


@pytest.mark.parametrize("seed", samples.some(range(200), 200))
def test_no_layout_is_better_than_what_is_claimed(seed: int) -> None:
    assert check(seed, NAMES) > 0


@pytest.mark.parametrize("kernels", samples.some(["measured", "peak"], 2))
@pytest.mark.parametrize("name", samples.some(GRAPHS, 5))
def test_tables_say_of_every_layout_what_its_step_takes(name: str, kernels: Any) -> None:
    """Of tasks one after another: each alone, and what kernels that take several change; what a bound says is no more."""
    case = next(case for case in (Case(seed, (name,)) for seed in itertools.count()) if case.kernels == kernels)
    profile = SERIAL.model_copy(update={"merged": EVERY, "kernels": kernels})
    setting = settings_of(case.architecture, case.workload, profile)[0]
    space = build_mapspace(case.mapper, case.workload, case.architecture.used)
    problem, job = space.problems[-1], Job(setting=setting, workload=case.workload, profile=profile)
    steps = list(members(job, replace(space, problems=(problem,)), 10**6))
    ops = list(problem.mesh.domains)
    factors, least = (build_factors(setting, problem, profile, bound=bound) for bound in (False, True))
    assert any(factor.name.startswith("merged") and factor.seconds.any() for factor in factors.factors)
    every = [dict(zip(ops, each, strict=True)) for each in itertools.product(*(range(len(factors.strategies[op])) for op in ops))]
    assert len(every) == len(steps)
    for chosen, step in zip(every, steps, strict=True):
        assert total(factors, chosen)[:2] == pytest.approx((step.seconds, step.joules), rel=CLOSE)
        assert total(least, chosen)[2] <= step.memory * (1 + CLOSE)
        assert total(least, chosen)[0] <= step.seconds * (1 + CLOSE)


def test_too_many_combinations_are_refused_by_name_or_bounded_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem wants its tables whole, a model's bounds take what any cell changes at least in their place."""
    for name in ("three of one", "a sum"):
        case = next(case for case in (Case(seed, (name,)) for seed in itertools.count()) if case.kernels == "measured")
        profile = SERIAL.model_copy(update={"merged": EVERY, "kernels": "measured"})
        setting = settings_of(case.architecture, case.workload, profile)[0]
        (problem,) = build_mapspace(case.mapper, case.workload, case.architecture.used).problems
        merged = FactorBuilder(setting, problem, profile, True).merged
        whole = merged.changes(wide=True)
        with monkeypatch.context() as patch:
            patch.setattr(merged_kernels, "CELLS", 1)
            with pytest.raises(TooLarge, match="combinations"):
                merged.changes(wide=False)
            least = merged.changes(wide=True)
        for figure in ("seconds", "joules"):
            assert sum(getattr(one, figure) for one in least) <= sum(getattr(one, figure).min() for one in whole) < 0


def test_what_hides_beside_products_that_are_one_has_their_kernel_once() -> None:
    """Queries, keys and values under every three choices: the kernels that some of them are of, each once; and where a choice is not told,
    the longest that any makes."""
    case = next(case for case in (Case(seed, ("three of one",)) for seed in itertools.count()) if case.kernels == "measured")
    profile = SERIAL.model_copy(update={"merged": EVERY, "kernels": "measured"})
    setting = settings_of(case.architecture, case.workload, profile)[0]
    (problem,) = build_mapspace(case.mapper, case.workload, case.architecture.used).problems
    layer = FactorBuilder(setting, problem, profile, True).merged
    each = list(itertools.product(*(range(len(layer.strategies[op])) for op in "QKV")))
    together = 0
    for partners, told in itertools.product((("Q", "K", "V"), ("Q", "V"), ("K",)), (("Q", "K", "V"), ("Q", "K"))):
        change = layer.rooms(lambda kernel: 1.0 - 0.5 ** len(kernel), partners, told)[0]  # of the forward pass
        assert change.operations == told
        worked: dict[tuple[int, ...], float] = {}
        for chosen in each:
            tasks = [(op, layer.alone(op, n)[0]) for op, n in zip("QKV", chosen, strict=True)]
            alike = [products_alike(task) for _, task in tasks]
            kernels = [[one for one, own in zip(tasks, alike, strict=True) if own == same] for same in dict.fromkeys(alike) if same]
            more = 0.0
            for kernel in (one for one in kernels if len(one) > 1):
                members = [one for one in kernel if one[0] in partners]
                whole = layer.unknown(replace(kernel[0][1], local_op=side_by_side([t.local_op for _, t in kernel], layer.degrees)))[0]
                more += (1.0 - 0.5 ** len(members)) * whole - sum(0.5 * layer.spend(task)[0] for _, task in members) if members else 0.0
                together += 1
            key = chosen[: len(told)]
            worked[key] = max(worked.get(key, -np.inf), more)
        found = change.of_values(change.ahead)
        assert {key: found[key] for key in worked} == pytest.approx(worked)
    assert together > 0


@samples.audited
@pytest.mark.parametrize("minimize", ["latency", "energy"])
@pytest.mark.parametrize("name", COLUMNS)
def test_no_layout_of_a_model_whose_kernels_are_merged_is_below_its_bound(
    name: str, minimize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor below what branch and bound says of that layout alone."""
    profile, rng = read_profile(COLUMNS[name]["profile"]).model_copy(update={"merged": EVERY}), random.Random(f"merged {name} {minimize}")
    column = {**COLUMNS[name], "profile": profile}
    monkeypatch.setitem(COLUMNS, f"{name}, merged", column)
    answer, columns = free(tmp_path, f"{name}, merged", minimize)
    for style in STYLES:
        if (found := drawn_step(tmp_path, column, rng, style, minimize)) is None:
            continue
        result, saved = found
        assert {"latency": result.latency_s, "energy": result.energy_j}[minimize] >= answer.certificate.bound * (1 - 1e-12)
        bounds = least_seconds(columns, {op: each["tp"] for op, each in result.mapping.ops.items()}, saved)
        assert min(bounds, default=0.0) <= result.latency_s * (1 + 1e-12)
