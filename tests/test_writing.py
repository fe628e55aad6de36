"""Writing YAML: schemas for editors, the key reference, starts, and the library as a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rackmodel import api
from rackmodel.cli.show import NAMED
from rackmodel.inputs import about, check, library_names, library_path
from rackmodel.inputs.json_schema import MODELS, json_schema
from rackmodel.inputs.key_reference import key_reference
from rackmodel.inputs.library import MODELINE
from rackmodel.inputs.plain_yaml import loaded
from rackmodel.inputs.starts import KINDS, STARTS
from tests.commands import invoke

ROOT = Path(__file__).parents[1]


def run(*words: str) -> Any:
    return invoke(list(words), catch_exceptions=True)


@pytest.mark.parametrize("kind", MODELS)
def test_every_shipped_file_follows_its_schema(kind: str) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in library_names().get(kind, []):
        path = library_path(kind, name)
        text = path.read_text(encoding="utf-8")
        assert [error.message for error in validator.iter_errors(loaded(text))] == [], name
        assert named_schema(path) == schema, f"{name}: its first line names no schema, or another"


def named_schema(path: Path) -> Any:
    """The schema that an editor takes, by the first line of a file."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith(MODELINE), f"{path.name}: want {MODELINE}PATH as the first line"
    return json.loads((path.parent / first.removeprefix(MODELINE)).read_text(encoding="utf-8"))


def test_a_schema_refuses_what_no_reader_takes() -> None:
    mapper = jsonschema.Draft202012Validator(json_schema("mapper"))
    data = loaded(library_path("mapper", "megatron").read_text(encoding="utf-8"))
    assert mapper.is_valid(data)
    for wrong in ({"minimise": "latency"}, {"minimize": "latencie"}, {"uneven": "floor"}, {"split": 3}):
        assert not mapper.is_valid({**data, **wrong}), wrong
    machine = jsonschema.Draft202012Validator(json_schema("architecture"))
    assert not machine.is_valid({"architecture": "x", "tree": {"name": "x", "memory": {"bandwith": "1 GB/s"}}})
    assert not machine.is_valid({"tree": {"name": "x"}})


def test_schemas_and_keys_in_the_docs_are_those_of_the_code() -> None:
    """After a change of a key: `make keys`."""
    for kind in MODELS:
        assert json.loads((ROOT / "docs" / "schemas" / f"{kind}.json").read_text(encoding="utf-8")) == json_schema(kind), kind
    assert (ROOT / "docs/keys.md").read_text(encoding="utf-8") == key_reference()


def test_every_key_has_a_meaning() -> None:
    for kind in MODELS:
        schema = json_schema(kind)
        for name, model in {kind: schema, **schema.get("$defs", {})}.items():
            for key, value in model.get("properties", {}).items():
                assert value.get("description") or "$ref" in value or (name == "Level" and key == "children"), f"{kind} {name}.{key}"


@pytest.mark.parametrize("what", STARTS)
def test_a_start_is_right_as_it_is(what: str, tmp_path: Path) -> None:
    done = run("new", what, "mine", "-o", str(tmp_path))
    assert done.exit_code == 0, done.output
    check(tmp_path / "mine.yaml")
    assert named_schema(tmp_path / "mine.yaml") == json_schema(KINDS[what])
    again = run("new", what, "mine", "-o", str(tmp_path))
    assert again.exit_code != 0
    assert "already" in str(again.exception or again.output)


def test_starts_work_together(tmp_path: Path) -> None:
    for what in ("machine", "workload", "mapper"):
        assert run("new", what, f"my_{what}", "-o", str(tmp_path)).exit_code == 0
    files = [str(tmp_path / f"my_{what}.yaml") for what in ("machine", "workload", "mapper")]
    answer = api.search(*files)
    assert answer.result.certificate.status == "proven"
    assert answer.result.latency_s > 0


@pytest.mark.parametrize("words", ["new machin x", "new machine ../x", "schema mappers", "schema mapper --keys"])
def test_what_cannot_be_meant_is_refused(words: str) -> None:
    done = run(*words.split())
    assert done.exit_code != 0
    assert "known" in str(done.exception) or "want" in str(done.exception) or "no kind" in str(done.exception)


def test_every_named_file_says_what_it_is() -> None:
    for kind in NAMED:
        for name in library_names()[kind]:
            line = about(kind, name)
            assert 5 < len(line) < 500, f"{kind} {name}: {line}"


def test_the_library_is_listed_with_a_line_each() -> None:
    done = run("show")
    assert done.exit_code == 0
    assert all(name in done.output for kind in library_names() for name in library_names()[kind])
    assert max(map(len, done.output.splitlines())) <= 80
