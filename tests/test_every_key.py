"""What is asked for counts, or is refused: every key of every kind of input is flipped once on a small case.

The keys come from the schemas; a key without a flip fails, so that a new one must be added to tests/keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from rackmodel import api
from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_inputs, schema
from rackmodel.inputs.nest_shape import NestsSpec
from rackmodel.inputs.plain_yaml import dumped
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec, MappingSpec
from rackmodel.model.profile import Engine, ProfileSpec
from rackmodel.model.schema import Spec
from rackmodel.model.workload_spec import WorkloadSpec
from tests.keys.cases import CASES, answer, edited, steps_of
from tests.keys.elsewhere import MACHINE_REFUSALS, MAPPER_REFUSALS, MAPPING_REFUSALS, Refusal
from tests.keys.fab import FAB
from tests.keys.machines import EMBODIED, TREES
from tests.keys.mappers import MAPPERS, PROFILES
from tests.keys.mappings import MAPPINGS
from tests.keys.money import MONEY
from tests.keys.workloads import WORKLOADS

FILES = {"mapper": MapperSpec, "profile": ProfileSpec, "mapping": MappingSpec, "work": WorkloadSpec, "arch": Architecture}
FLIPS = {**MAPPERS, **PROFILES, **MAPPINGS, **WORKLOADS, **TREES, **EMBODIED, **MONEY, **FAB}
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
ALONE = {
    *("Kernels.start", "Kernels.vector_start"),
    *("Products.reuse", "Products.reuse_bandwidth", "Products.held_out", "Products.layers"),
    *("Products.eager", "EagerLaunch.time", "EagerLaunch.few", "EagerLaunch.few_time"),
    *("Grouped.rows", "Grouped.spread", "Grouped.quantised", "Grouped.reuse", "Grouped.reuse_bandwidth"),
    *(f"DecodeAttention.{key}" for key in ("split", "parts", "rows", "rate", "tokens", "window", "groups", "group", "copy")),
    *("DecodeAttention.reuse", "DecodeAttention.reuse_bandwidth"),
    *("PrefillAttention.groups", "PrefillAttention.held_out", "AttentionKernel.mixes"),
}
"""Of kernels that run one by one, as benchmarks of single operations do, or of calls that the small step has none of: query heads that
share keys, a cache longer than what is new (tests/test_attention.py moves each); rows of a call of experts, the ranks that share
them, kernels that quantise between its products, and weights that a loop finds in a cache (tests/test_experts.py); products that it finds
there (tests/test_calibration.py); how far a fit of products or of a pass of attention is off, which widens intervals
(tests/test_training_products.py)."""
SERVED = {
    *("ProfileSpec.engine", "ProfileSpec.drafted_states", "Merged.reductions", "Merged.statistics"),
    *("Kernels.waiting_power", "ServingSpec.positions"),
    *(f"LibraryCall.{name}" for name in ("exchange", "exchange_mode", "exchange_sms", "narrowed")),
    *("WorkloadSpec.routing", "RoutingSpec.groups", "RoutingSpec.kept"),
    *(f"Engine.{info.alias or name}" for name, info in Engine.model_fields.items() if name not in Spec.model_fields),
    *(f"SharedExperts.{name}" for name in ("tokens", "steps", "without")),
}
"""Of engines that serve: tests/test_serving_engine.py flips them,
tests/test_beside_experts.py in which steps shared experts run beside the routed ones,
tests/test_serving_steps.py the kernel of an all-reduce and the sums of normalisations,
tests/test_decoder_blocks.py what checked drafts leave of states,
tests/test_token_exchange.py and tests/test_relayed_exchange.py what sends tokens to their experts,
tests/test_power.py what a GPU draws that waits,
tests/test_serve_commands.py how long a request may be."""


pytestmark = pytest.mark.usefixtures("nothing_remembered")


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
    assert keys() - DOCUMENTATION - ALONE - SERVED == set(FLIPS)
    assert not (DOCUMENTATION | ALONE) & set(FLIPS)
    assert keys() >= DOCUMENTATION | ALONE


def test_every_flip_is_of_its_key() -> None:
    known = schemas()
    for key, flip in FLIPS.items():
        file, *path = steps_of(flip.at)
        owner, _, last = key.partition(".")
        top = NestsSpec if owner in ("NestsSpec", "NestSpec", "LevelSpec", "NodeSpec") else FILES[str(file)]
        assert path[-1] == last, key
        assert known[owner] in schema.at(top, path[:-1]), key


@pytest.mark.parametrize("key", FLIPS)
def test_every_key_counts_or_is_refused(key: str, tmp_path: Path) -> None:
    flip = FLIPS[key]
    before = edited(CASES[flip.case], flip.given)
    after = edited(before, {flip.at: flip.new})
    assert after != before
    old, new = _kept_outcome(before, tmp_path), outcome(after, tmp_path)
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
    assert not isinstance(_kept_outcome(CASES[name], tmp_path), InputError)
    found = outcome(edited(CASES[name], edits), tmp_path)
    assert isinstance(found, InputError), f"{path} is not refused"
    assert path in found.path


@pytest.mark.parametrize("name", ["graph", "layers", "piped"])
def test_what_is_asked_of_a_search_counts_on_every_kind_of_workload(name: str, tmp_path: Path) -> None:
    case = edited(CASES[name], {"mapper.axes.tp.degree": "free", "mapper.axes.dp.degree": "free", "mapper.recompute": ["none", "full"]})
    plain = answer(case, tmp_path)
    assert answer(case, tmp_path, top=3)["top"] == 3 != plain["top"]
    assert answer(case, tmp_path, front=["latency", "memory"])["front"] > 1
    for limit in ("power", "memory", "latency", "energy", "carbon"):
        with pytest.raises(InfeasibleError):
            answer(case, tmp_path, limits={limit: 1e-12})
    held = sum(plain["held"].values())
    assert sum(answer(case, tmp_path, limits={"memory": held * 0.9})["held"].values()) < held
    for asked, path in (({"limits": {"nope": 1.0}}, "--limit"), ({"front": ["nope"]}, "--pareto")):
        with pytest.raises(InputError) as caught:
            answer(case, tmp_path, **asked)
        assert caught.value.path == path


GRAPH_KEYS = {
    "algorithms": "best",
    "micro_batch": 1,
    "offload": [["optimizer"]],
    "layouts": {"one": {}, "two": {"split": {"tp": ["d"]}}},
    "profile": "megatron_core",
}
"""F3, F4 of the review of the old engines: what a graph ignored and counts now; the rest of F4 is among the refusals."""


@pytest.mark.parametrize("key", GRAPH_KEYS)
def test_keys_that_a_graph_ignored_once_count(key: str, tmp_path: Path) -> None:
    case = edited(
        CASES["graph"], {"arch.tree.children.0.network.latency": "50 us", "mapper.axes": {"dp": {"degree": 2}, "tp": {"degree": 4}}}
    )
    assert answer(edited(case, {f"mapper.{key}": GRAPH_KEYS[key]}), tmp_path) != answer(case, tmp_path)


def test_overlap_of_a_graph_is_a_choice(tmp_path: Path) -> None:
    case = edited(CASES["graph"], {"mapper.profile": "ideal"})
    assert answer(edited(case, {"mapper.overlap": "free"}), tmp_path) != answer(case, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"), [("attention", "flash"), ("pointwise", "fused"), ("host", {"layer": "1 s"}), ("kernels", "peak")]
)
def test_facts_of_a_profile_count_on_a_graph(key: str, value: Any, tmp_path: Path) -> None:
    case = CASES["measured"]
    assert "sections" not in case["work"]
    assert answer(edited(case, {f"profile.{key}": value}), tmp_path) != answer(case, tmp_path)


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        ({"mapper.inside": {"model": "loopnest", "rules": {"FC1": {"keep": {"nowhere": ["X"]}}}}}, "inside.rules.FC1.keep.nowhere"),
        ({"mapper.inside": {"model": "loopnest", "rules": {"NOPE": {}}}}, "inside.rules.NOPE"),
        ({"mapper.solver": "cpsat"}, "solver"),
        ({"mapper.choose": {"NOPE": {"tp": "none"}}}, "choose.NOPE"),
    ],
)
def test_keys_that_a_model_in_sections_ignored_once_are_refused(edits: dict[str, Any], path: str, tmp_path: Path) -> None:
    """F5 of the same review."""
    found = outcome(edited(CASES["layers"], edits), tmp_path)
    assert isinstance(found, InputError)
    assert found.path == path


def test_loop_nests_count_on_a_model_in_sections(tmp_path: Path) -> None:
    """F5: `inside: {model: loopnest}` was dropped."""
    small = {"work.sizes": {"b": 8, "s": 4, "d": 16, "f": 32}}
    case = edited(CASES["layers"], small)
    assert answer(edited(case, {"mapper.inside": {"model": "loopnest"}}), tmp_path)["nests"] != answer(case, tmp_path)["nests"] == {}


def test_mappings_priced_at_once_keep_their_own_nests() -> None:
    case = CASES["given"]
    texts = {name: dumped(data) for name, data in case.items()}
    inputs = read_inputs(texts["arch"], texts["work"], mapping=texts["mapping"])
    first = inputs.mapping
    assert first is not None
    other = edited(case, {"mapping.nests.C = A * B.levels.0.x": {"m": 2}})["mapping"]
    second = first.model_copy(update={"nests": other["nests"]})
    prices = api.price(inputs.architecture, inputs.workload, [first, second])
    alone = [api.evaluate_mapping(inputs.architecture, inputs.workload, one) for one in (first, second)]
    assert prices.latency_s.tolist() == pytest.approx([one.latency_s for one in alone])
    assert prices.latency_s[0] != prices.latency_s[1]


KEPT: dict[str, Any] = {}
"""Outcomes of the cases as they are before a flip, which many flips share."""


def _kept_outcome(case: dict[str, Any], folder: Path) -> Any:
    text = repr(case)
    if text not in KEPT:
        KEPT[text] = outcome(case, folder)
    return KEPT[text]


def outcome(case: dict[str, Any], folder: Path) -> Any:
    """The answer of a case, or its error."""
    try:
        return answer(case, folder)
    except InfeasibleError as problem:
        return ("infeasible", str(problem))
    except InputError as problem:
        assert problem.path or problem.where
        return problem
