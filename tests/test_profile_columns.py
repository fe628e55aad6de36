"""Rows under profiles that are columns of one: each is what it is by itself, to the last digit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackmodel.model.profile_columns import facts_of
from rackmodel.validation.profile_columns import like, profile_of, together
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.steps import price_cases
from rackmodel.validation.training import TrainingCase, training_case
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
