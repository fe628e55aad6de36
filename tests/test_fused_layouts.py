"""Layouts that are free beside operations that may be fused: a region is one kernel, priced by the layouts of all its operations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from rackmodel import api, face
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.mapper.layouts import kernel_groups
from rackmodel.mapper.layouts.factors import build_factors
from rackmodel.mapper.layouts.kernel_groups import KernelGroup
from rackmodel.mapper.layouts.weights import total
from rackmodel.mapper.mapspace import build_mapspace
from rackmodel.mapper.nests.loop_nests import nest_inside
from rackmodel.model.result import Result
from rackmodel.nests.objective import NestObjective
from rackmodel.setting import settings_of
from tests import samples
from tests.fused_layouts import GRAPHS, LONG, SMALL, Case, check, check_meshes
from tests.test_fused_between import MACHINE, WIDTHS

CLOSE = 1e-9
NAMES = SMALL[:1] if samples.cases(1, 0) else tuple(GRAPHS)


@pytest.mark.parametrize("seed", samples.some(range(12, 52), 40))
def test_no_layout_with_any_set_of_regions_is_better_than_what_is_claimed(seed: int) -> None:
    assert check(seed, NAMES) > 0


@samples.audited
@pytest.mark.parametrize("seed", range(300, 312))
def test_no_layout_of_any_tile_with_any_set_of_regions_is_better_than_what_is_claimed(seed: int) -> None:
    """Sizes that few numbers divide; nests of divisors are held against the answer, too."""
    assert check(seed, SMALL, "ceil") > 0


@pytest.mark.parametrize("seed", [8, 3, 5, 2, *range(9, 40)][: samples.cases(2, 35)])
def test_meshes_of_which_some_fuse_are_priced_together_as_each_alone(seed: int) -> None:
    """An operation has fewer charges where it is fused: those of several meshes, as arrays, ended in an IndexError."""
    assert check_meshes(seed) > 0


@pytest.mark.parametrize("seed", samples.some(range(6, 30), 24))
def test_tables_say_of_every_layout_what_its_step_takes(seed: int) -> None:
    """Whatever is fused of it, and whichever shares and links its operations have."""
    case = Case(seed, NAMES)
    case.launch = 0.0  # sums of tables are of tasks one after another
    space = build_mapspace(case.mapper, case.workload, case.architecture.used)
    aim = NestObjective("energy" if seed % 2 else "latency")
    inside = nest_inside(case.mapper, case.workload, (aim, None))
    setting = replace(settings_of(case.architecture, case.workload, case.serial)[0], inside=inside)
    problem = space.problems[0]
    factors = build_factors(setting, problem, case.serial).whole()
    ops = list(problem.mesh.domains)
    every = itertools.product(*(range(len(factors.strategies[op])) for op in ops))
    sums = [total(factors, dict(zip(ops, chosen, strict=True))) for chosen in every]
    steps = [(point.seconds, point.joules, point.memory) for point in case.priced(replace(space, problems=(problem,)), inside)]
    assert len(sums) == len(steps)
    for one, other in zip(sums, steps, strict=True):
        assert one == pytest.approx(other, rel=CLOSE)


@pytest.mark.parametrize("factors", samples.some(["perfect", "ceil"], 2))
@pytest.mark.parametrize("seed", samples.some(range(41, 61), 20))
def test_cells_are_bounded_until_they_are_solved(seed: int, factors: str) -> None:
    """Seconds and joules are no more than those of the nests that are searched then; settling one cell leaves bounds of the others."""
    case = Case(seed, (*GRAPHS, *LONG) if samples.cases(0, 1) else ("pair",), found=True, factors=factors)
    aim = NestObjective("energy" if seed % 4 else "latency")
    inside = nest_inside(case.mapper, case.workload, (aim, None))
    setting = replace(settings_of(case.architecture, case.workload, case.serial)[0], inside=inside)
    (problem,) = build_mapspace(case.mapper, case.workload, case.architecture.used).problems
    bounds = build_factors(setting, problem, case.serial)
    chosen = dict.fromkeys(bounds.counts, 0)
    one = bounds.settled(chosen)
    whole = one.whole()
    assert whole.open
    assert total(one, chosen) == total(whole, chosen)
    for table in whole.open:
        for loose in (bounds, one):
            for figure in ("seconds", "joules"):
                least, solved = (getattr(tables.factors[table.place], figure) for tables in (loose, whole))
                assert (least <= solved * (1 + 1e-12)).all()


@pytest.mark.parametrize("seed", samples.some(range(63, 103), 40))
def test_an_answer_is_that_of_cells_that_are_all_solved(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*GRAPHS, *LONG) if samples.cases(0, 1) else ("pair",)
    first, later = (_answer(Case(seed, names, found=True)) for _ in range(2))
    opened = KernelGroup.open

    def settled(self: KernelGroup, *given: Any) -> None:
        opened(self, *given)
        self.settle_all()

    monkeypatch.setattr(KernelGroup, "open", settled)
    assert first == later
    assert first == pytest.approx(_answer(Case(seed, names, found=True)), rel=CLOSE)


def _answer(case: Case) -> tuple[float, float, float]:
    """Seconds, joules and bound of what is found; zeros where nothing keeps the limits."""
    limits: dict[str, float] = {}
    try:
        if case.limited:
            plain = case.search().result
            figures = {"latency": plain.latency_s, "energy": plain.energy_j, "power": plain.energy_j / plain.latency_s}
            name = case.pick.choice(list(figures))
            limits = {name: figures[name] * case.pick.choice([0.9, 1.0, 1.2])}
        found = case.search(limits).result
    except InfeasibleError:
        return 0.0, 0.0, 0.0
    assert found.certificate.bound is not None
    return found.latency_s, found.energy_j, found.certificate.bound


def searched(name: str, fuse: Any, **sets: Any) -> api.Answer:
    """A search of least energy for a graph over free layouts."""
    einsums, sizes = GRAPHS[name][0], {"m": 4, "t": 4, "a": 2, "b": 2, "c": 4}
    used = {index: size for index, size in sizes.items() if any(index in text.partition("=")[2] for text in einsums.values())}
    load = {"workload": "drawn", "phases": ["forward"], "sizes": used, "precision": WIDTHS, "einsums": einsums}
    inside = {"model": "loopnest", "factors": "perfect", "fuse": fuse}
    mapper = {"mapper": "free", "axes": {"tp": {"degree": "all"}}, "split": {"tp": "free"}, "profile": "serial", "inside": inside}
    return face.search(MACHINE, load, mapper, set={"accelerators": 2, **sets}, minimize="energy")


def test_a_region_that_has_room_under_some_layouts_is_fused_under_those() -> None:
    """U, 4 x 4 of 2 bytes, stays whole: 32 bytes, or 16 where an index of it is split."""
    declared = GRAPHS["a resident"][1]
    with pytest.raises(InfeasibleError, match="U = W"):
        searched("a resident", declared, **{"glb.memory.capacity": "14 B"})
    found = searched("a resident", declared, **{"glb.memory.capacity": "28 B"}).result
    assert {nest.problem.output.name: nest.resident for nest in found.nests.values()} == {"U": ("U",), "A": ("A",), "Z": ("A", "U")}
    assert found.certificate.proven


@samples.audited
@pytest.mark.parametrize("minimize", ["latency", "energy"])
def test_no_layout_of_a_model_s_layers_is_better_than_its_bound(minimize: str) -> None:
    """Two products a layer, fused: what each splits, and whether it is fused, by name."""
    sections = {
        "embed": {"einsums": {"embed": "X[b,s,d] = I[b,s,v] * WE[v,d]"}},
        "block": {"repeat": "layers", "einsums": {"fc1": "H[b,s,f] = X[b,s,d] * W1[d,f]", "fc2": "Y[b,s,d] = H[b,s,f] * W2[f,d]"}},
        "head": {"einsums": {"logits": "L[b,s,v] = Y[b,s,d] * WE[v,d]"}},
    }
    load = {"workload": "model", "phases": ["forward"], "sizes": {"b": 2, "s": 2, "d": 4, "f": 8, "v": 8, "layers": 2}}
    load |= {"precision": WIDTHS, "sections": sections, "tensors": {"I": {"density": "1/v", "precision": "0 bit"}}}

    def searched_model(layout: dict[str, Any], fuse: Any) -> Result:
        inside = {"model": "loopnest", "factors": "perfect", "fuse": fuse}
        axes = {"dp": {"degree": 1}, "tp": {"degree": 2, "place": "inner"}}
        mapper = {"mapper": "m", "axes": axes, "split": {"dp": ["b"]}, "layouts": {"one": layout}, "profile": "serial", "inside": inside}
        return face.search(MACHINE, load, mapper, set={"accelerators": 2, "glb.memory.capacity": "64 B"}, minimize=minimize).result

    declared = [{"einsums": ["fc1", "fc2"]}]
    found, figure = searched_model({"split": {"tp": "free"}}, declared), (lambda one: (one.latency_s, one.energy_j)[minimize == "energy"])
    each = []
    for first, second in itertools.product(["s", "d", "f", "none"], repeat=2):
        choose = {"fc1": {"tp": first}, "fc2": {"tp": second}}
        each += [figure(searched_model({"split": {"tp": ["v"]}, "choose": choose}, fuse)) for fuse in (declared, [])]
    assert found.certificate.bound <= min(each) * (1 + CLOSE)
    assert figure(found) <= min(each) * (1 + CLOSE)
    assert found.certificate.gap < 0.5


def test_operations_that_couple_too_many_layouts_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_groups, "CELLS", 10.0)
    with pytest.raises(InputError, match="E0, E1 may be one kernel and couple") as told:
        searched("pair", "free")
    assert told.value.path == "split"
