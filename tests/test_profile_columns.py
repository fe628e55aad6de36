"""Rows under profiles that are columns of one: each is what it is by itself, to the last digit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rackmodel.cost.inside.kernels import KernelPricer
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.profile_columns import as_columns, facts_of, joined, one_library, task_facts
from rackmodel.validation.profile_columns import alike, like, profile_of, together
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.steps import price_cases
from rackmodel.validation.training import TrainingCase, training_case
from rackmodel.validation.training_models import layer_kinds
from rackmodel.validation.words import words

CELLS = {
    "Qwen3_30B_a3B": {"gpu": "H100", "n_gpus": "16", "tp": "1", "pp": "1", "ep": "8", "mbs": "1", "gbs": "512"},
    "LLAMA3_8B": {"gpu": "H100", "n_gpus": "8", "tp": "1", "pp": "1", "mbs": "1", "gbs": "128"},
}
PROFILES = ("nemo", "nemo_2025")


def case(model: str, profile: str, batch: int, **other: bool) -> TrainingCase:
    cells = CELLS[model] | {"model": model, "seq_len": "512", "precision": "fp8", "tflops_per_gpu": "400", "gbs": str(batch)}
    made = training_case(PublishedRow("one", "nemo_megatron_bridge", "training", cells, "rows.csv", 2), words())
    return replace(made, key=replace(made.key, profile=profile), **other)


@pytest.mark.parametrize("model", CELLS)
def test_a_row_beside_rows_of_another_profile_is_what_it_is_alone(model: str) -> None:
    rows = [case(model, profile, batch, brief=batch == 512) for batch in (128, 256, 512) for profile in PROFILES]
    beside, alone = price_cases(rows), [price_cases([row])[0] for row in rows]
    assert not any(step.refused for step in beside)
    assert beside == alone


def test_experts_launched_one_by_one_tell_such_columns_apart() -> None:
    moe, dense = ([step.seconds for step in price_cases([case(model, one, 128) for one in PROFILES])] for model in CELLS)
    assert moe[0] < moe[1]
    assert dense[0] == dense[1]


def test_profiles_stand_beside_each_other_where_launches_over_experts_alone_differ() -> None:
    assert like("nemo", ()) == like("nemo_2025", ())
    assert len({like(name, ()) for name in ("nemo", "megatron_lm", "megatron_core", "nemo_2026")}) == 4
    assert like("nemo", ("profile.host.launch=1 us",)) != like("nemo_2026", ("profile.host.launch=1 us",))


def test_ranges_tell_profiles_apart_where_their_middles_do_not() -> None:
    wide, narrow = (profile_of("nemo", (f"profile.links={{low: {low}, mid: 1, high: 1.1}}",)) for low in (0.8, 0.9))
    assert wide.links == narrow.links
    assert facts_of(wide) != facts_of(narrow)


def test_each_column_keeps_how_its_own_profile_launches_experts() -> None:
    joined = together(profile_of("nemo", ()), [profile_of(name, ()) for name in PROFILES])
    assert list(joined.grouped) == ["one", "each"]
    assert together(joined, [profile_of("nemo_2025", ())] * 3).grouped == "each"


OVERLAPS = ("nemo", "megatron_lm", "megatron_core")
SPLIT = {"tp": "2", "n_gpus": "32", "pp": "2"}


def run_case(model: str, profile: str, batch: int, **other: bool) -> TrainingCase:
    """A run with collectives on activations and hand-overs, that profiles hide or do not."""
    cells = CELLS[model] | SPLIT | {"model": model, "seq_len": "512", "precision": "fp8", "tflops_per_gpu": "400", "gbs": str(batch)}
    made = training_case(PublishedRow("one", "nemo_megatron_bridge", "training", cells, "rows.csv", 2), words())
    return replace(made, key=replace(made.key, profile=profile), **other)


@pytest.mark.parametrize("model", CELLS)
def test_a_row_beside_rows_of_other_overlaps_is_what_it_is_alone(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()
    priced = KernelPricer.__call__
    monkeypatch.setattr(KernelPricer, "__call__", lambda *given: calls.append(len(given[3])) or priced(*given))
    rows = [run_case(model, profile, 256, brief=profile == "megatron_core") for profile in OVERLAPS]
    beside, together = price_cases(rows), len(calls)
    alone = [price_cases([row])[0] for row in rows]
    assert not any(step.refused for step in beside)
    assert beside == alone
    assert len({step.seconds for step in beside}) == len(rows)  # each profile is a step of its own
    assert all(step.interval is not None for step, row in zip(beside, rows, strict=True) if not row.brief)
    assert 2 * together < len(calls) - together  # layers' kernels of three profiles are priced once, heads' apart


def test_what_tasks_take_tells_profiles_apart_but_not_what_hides_them() -> None:
    layers = layer_kinds("moe_qwen3")
    names = ("nemo", "megatron_lm", "megatron_core", "meta_llama3", "nemo_2026", "megatron_2021")
    assert {name: alike(name, (), layers) for name in names} == {
        **dict.fromkeys(names[:3], alike("nemo", (), layers)),
        "meta_llama3": "meta_llama3",  # queries, keys and values are products of their own
        "nemo_2026": "nemo_2026",  # a kernel casts what it writes
        "megatron_2021": "megatron_2021",
    }
    heads = frozenset({*layers, "cross_entropy"})
    assert task_facts(profile_of("nemo", ()), heads) != task_facts(profile_of("megatron_lm", ()), heads)
    gathers = profile_of("nemo", ("profile.overlap.regather=true",))
    assert task_facts(gathers, layers) != task_facts(profile_of("nemo", ()), layers)


def test_columns_that_call_one_library_stand_beside_those_that_call_none() -> None:
    nemo, plain = profile_of("nemo", ()), profile_of("calculon", ())
    other = profile_of("nemo", ("profile.collectives.mode=eager",))
    assert all(map(one_library, ([nemo, plain], [plain, plain], [other, plain])))
    assert not one_library([nemo, other])
    gathered = profile_of("nemo", ("profile.collectives.exchange=gathered",))
    assert one_library([gathered, gathered])
    assert not one_library([gathered, plain])


def test_numbers_of_profiles_are_columns_and_words_are_the_first_ones() -> None:
    nemo, plain = profile_of("nemo", ()), profile_of("megatron_lm", ())
    found: ProfileSpec = as_columns([plain, nemo], [2, 1])
    assert np.array_equal(found.updates.whole, [5.0, 5.0, 3.0])
    assert np.array_equal(found.links, [1.0, 1.0, 1.0])
    assert found.variation == nemo.variation
    assert found.overlap.windows["all_gather"].beside == "sibling"
    assert found.collectives == nemo.collectives
    assert joined([np.array([1.0, 2.0]), 3.0], [2, 2]).tolist() == [1.0, 2.0, 3.0, 3.0]
    assert joined([{"a": np.array([1.0, 2.0])}, {}], [2, 1])["a"].tolist() == [1.0, 2.0, 1.0]  # what a profile lacks is as the first says
