"""What is asked for counts, or is refused: every key of every kind of input is flipped once on a small case.

The keys come from the schemas; a key without a flip fails, so that a new one must be added to tests/keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import schema
from rackmodel.inputs.nest_shape import NestsSpec
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec, MappingSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.schema import Spec
from rackmodel.model.workload_spec import WorkloadSpec
from tests.keys.cases import CASES, answer, edited, steps_of
from tests.keys.elsewhere import MACHINE_REFUSALS, MAPPER_REFUSALS, MAPPING_REFUSALS, Refusal
from tests.keys.machines import EMBODIED, TREES
from tests.keys.mappers import MAPPERS, PROFILES
from tests.keys.mappings import MAPPINGS
from tests.keys.workloads import WORKLOADS

FILES = {"mapper": MapperSpec, "profile": ProfileSpec, "mapping": MappingSpec, "work": WorkloadSpec, "arch": Architecture}
FLIPS = {**MAPPERS, **PROFILES, **MAPPINGS, **WORKLOADS, **TREES, **EMBODIED}
DOCUMENTATION = {
    "MapperSpec.mapper",
    "ProfileSpec.profile",
    "ProfileSpec.sources",
    "MappingSpec.mapping",
    "WorkloadSpec.workload",
    "Architecture.architecture",
    "Level.name",
}
"""Names and what documents a file; beside `source` and `note`, which every mapping may have."""
ALONE = {"Kernels.start", "Kernels.vector_start"}
"""Of kernels that run one by one, as benchmarks of single operations do: no step has any."""


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKMODEL_CACHE", "off")


def schemas() -> dict[str, type[Spec]]:
    """Every schema below the files', by name."""
    found: dict[str, type[Spec]] = {}

    def walk(model: type[Spec]) -> None:
        if model.__name__ not in found:
            found[model.__name__] = model
            for info in model.model_fields.values():
                for inner in _models(info.annotation):
                    walk(inner)

    for model in (*FILES.values(), NestsSpec):
        walk(model)
    return found


def _models(annotation: Any) -> list[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def keys() -> set[str]:
    """Every key of every schema: 'AxisSpec.degree'."""
    return {
        f"{name}.{info.alias or field}"
        for name, model in schemas().items()
        for field, info in model.model_fields.items()
        if field not in Spec.model_fields
    }


def test_every_key_of_every_schema_has_a_flip() -> None:
    assert keys() - DOCUMENTATION - ALONE == set(FLIPS)
    assert not (DOCUMENTATION | ALONE) & set(FLIPS)
    assert keys() >= DOCUMENTATION | ALONE


@pytest.mark.parametrize("key", FLIPS)
def test_a_flip_is_of_its_key(key: str) -> None:
    file, *path = steps_of(FLIPS[key].at)
    owner, _, last = key.partition(".")
    top = NestsSpec if owner in ("NestsSpec", "NestSpec", "LevelSpec", "NodeSpec") else FILES[str(file)]
    assert path[-1] == last
    assert schemas()[owner] in schema.at(top, path[:-1])


@pytest.mark.parametrize("key", FLIPS)
def test_every_key_counts_or_is_refused(key: str, tmp_path: Path) -> None:
    flip = FLIPS[key]
    before = edited(CASES[flip.case], flip.given)
    after = edited(before, {flip.at: flip.new})
    assert after != before
    old, new = outcome(before, tmp_path), outcome(after, tmp_path)
    assert not isinstance(old, InputError), old
    if flip.refused:
        assert isinstance(new, InputError), f"{flip.at} is not refused"
        assert flip.refused in new.path
    else:
        assert not isinstance(new, InputError), f"{flip.at}: {new}"
        assert old != new, f"{flip.at} changes nothing"


@pytest.mark.parametrize("refusal", [*MAPPER_REFUSALS, *MAPPING_REFUSALS, *MACHINE_REFUSALS], ids=lambda one: f"{one[0]}-{one[2]}")
def test_what_matters_only_elsewhere_is_refused(refusal: Refusal, tmp_path: Path) -> None:
    name, edits, path = refusal
    assert not isinstance(outcome(CASES[name], tmp_path), InputError)
    found = outcome(edited(CASES[name], edits), tmp_path)
    assert isinstance(found, InputError), f"{path} is not refused"
    assert path in found.path


def outcome(case: dict[str, Any], folder: Path) -> Any:
    """The answer of a case, or its error."""
    try:
        return answer(case, folder)
    except InfeasibleError as problem:
        return ("infeasible", str(problem))
    except InputError as problem:
        assert problem.path or problem.where
        return problem
