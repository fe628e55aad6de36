"""What three new users did wrong, and what they are told: each as it was met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackmodel.errors import InputError
from tests.commands import invoke

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*words: str) -> str:
    """What a command says of what cannot be meant."""
    found = invoke(words).exception
    assert isinstance(found, InputError), found
    return str(found)


def test_an_import_writes_over_no_file_of_another_kind(here: Path) -> None:
    Path("config.json").write_text(json.dumps(CONFIG))
    assert invoke(["new", "machine", "mine"]).exit_code == 0
    before = Path("mine.yaml").read_text()
    said = told("import", "config.json", "-o", "mine.yaml")
    assert said == "--output: mine.yaml is there already, a file of another kind (architecture): another name"
    assert Path("mine.yaml").read_text() == before
    for _ in range(2):  # an import may be done again
        assert invoke(["import", "config.json", "-o", "model.yaml"]).exit_code == 0


def test_a_folder_in_a_mappings_place_is_told_with_its_mapping(here: Path) -> None:
    assert invoke(["search", "rack_paper", "ffn", "data", "--set", "accelerators=4", "-o", "best"]).exit_code == 0
    assert told("evaluate", "rack_paper", "ffn", "best") == "best: is a directory, not a file: its mapping is best/mapping.yaml"
    Path("empty").mkdir()
    assert told("evaluate", "rack_paper", "ffn", "empty") == "empty: is a directory, not a file"


def test_why_not_mine_names_the_command_that_compares_two_mappings(here: Path) -> None:
    said = told("why", "rack_paper", "ffn", "data", "--not", "mine.yaml")
    assert said == (
        "--not: 'mine.yaml' is a file: rackmodel diff ARCH WORKLOAD mapping.yaml mine.yaml says what your mapping costs, and why"
    )
