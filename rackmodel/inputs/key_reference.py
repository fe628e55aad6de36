"""Every key of every input file, for a person: what it means, what it takes, its default, and how a shipped file says it.

All of it comes from the schemas that read the files and from the files of the library; docs/keys.md is this text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from rackmodel.inputs.json_schema import MODELS, json_schema
from rackmodel.inputs.library import names, resolve
from rackmodel.inputs.plain_yaml import loaded
from rackmodel.model.opkinds import KINDS

LONGEST_EXAMPLE = 60
HEAD = """# Every key of every input file

Made by `rackmodel schema --keys` from the schemas that read the files; the example is of the first shipped file that says the key.
`rackmodel new` writes a start of each kind. JSON Schemas for editors: [schemas/](schemas), or `rackmodel schema KIND`.
"""

OPERATIONS = """### workload: operations

What `einsums` may say: `Y[m,n] = X[m,k] * W[k,n]`, or an operation and its operands, `P[s,t] = softmax(A[s,t]) over t`.

| operation | what it computes | operands | example |
|---|---|---|---|"""


def key_reference() -> str:
    """The keys of all kinds of files as Markdown."""
    return "\n".join([HEAD, *(line for kind in MODELS for line in _kind_lines(kind))])


def _kind_lines(kind: str) -> Iterator[str]:
    schema = json_schema(kind)
    examples = _examples(kind, schema)
    yield f"## {kind}\n"
    yield from _table("", schema, examples)
    shared = {} if kind == "architecture" else json_schema("architecture").get("$defs", {})
    for name, one in schema.get("$defs", {}).items():
        if name not in shared and "properties" in one:
            yield f"### {kind}: {name}\n"
            yield f"{_words(one.get('description', ''))}\n"
            yield from _table(name, one, examples)
    if kind == "workload":
        yield from _operations()


def _operations() -> Iterator[str]:
    """A row a kind of operation, with its first use in the library."""
    texts = "\n".join(resolve(kind, name).path.read_text(encoding="utf-8") for kind in ("block", "workload") for name in names(kind))
    yield OPERATIONS
    for kind in KINDS.values():
        used = re.search(rf"\w+\[[^]\n]*\] = {kind.name}\([^)\n]*\)(?: over \w+)?", texts)
        yield f"| `{kind.name}` | {kind.meaning} | {kind.takes} | {f'`{used[0]}`' if used else ''} |"
    yield ""


def _table(model: str, schema: dict[str, Any], examples: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "| key | what it says | takes | default | example |"
    yield "|---|---|---|---|---|"
    for key, one in schema["properties"].items():
        if model and key in ("source", "note"):
            continue
        cells = (f"`{key}`", _words(one.get("description", "")), _takes(one), _default(one), examples.get((model, key), ""))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _words(text: str) -> str:
    return " ".join(text.split())


def _takes(schema: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema.get("enum", [schema.get("const")]))
    if "wanted" in schema:
        return str(schema["wanted"])
    parts = [_takes(one) for one in schema.get("anyOf", schema.get("oneOf", [])) if one.get("type") != "null"]
    if parts:
        return " or ".join(dict.fromkeys(parts))
    kind = schema.get("type", "anything")
    if kind == "array":
        inner: Any = schema.get("items") or next(iter(schema.get("prefixItems", [])), {})
        return f"list of {_takes(inner)}" if inner else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"name → {_takes(schema['additionalProperties'])}"
    return _KINDS.get(kind, str(kind))


_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true, false", "object": "mapping"}


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema or schema["default"] in (None, {}, [], ""):
        return ""
    return f"`{_short(schema['default'])}`"


def _short(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True).strip()
    return text.removesuffix("...").strip()


def _examples(kind: str, schema: dict[str, Any]) -> dict[tuple[str, str], str]:
    """(model, key) → how the first shipped file that says it in few words does; an architecture's levels may stand in files of parts."""
    found: dict[tuple[str, str], str] = {}
    for name in names(kind):
        _walk(_data(kind, name), "", schema, schema, found)
    if kind == "architecture":
        for name in names("part"):
            _walk(_data("part", name), "Level", schema["$defs"]["Level"], schema, found)
    return found


def _data(kind: str, name: str) -> Any:
    return loaded(resolve(kind, name).path.read_text(encoding="utf-8"))


def _walk(value: Any, model: str, schema: dict[str, Any], root: dict[str, Any], found: dict[tuple[str, str], str]) -> None:
    """Note the keys of a value of a model, and go on below."""
    for alternative in _alternatives(schema, root):
        name, one = alternative
        if isinstance(value, list):
            for item in value:
                _walk(item, "", one.get("items", {}), root, found)
        elif isinstance(value, dict):
            properties, others = one.get("properties", {}), one.get("additionalProperties")
            for key, inner in value.items():
                if key in properties:
                    where = name or model, key
                    few = len(repr(inner)) <= 4 * LONGEST_EXAMPLE  # what is long in Python is long in YAML, which takes far longer to write
                    if few and where not in found and len(text := _short({key: inner})[1:-1]) <= LONGEST_EXAMPLE:
                        found[where] = f"`{text}`"
                    _walk(inner, "", properties[key], root, found)
                elif isinstance(others, dict):
                    _walk(inner, "", others, root, found)


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas that a value may follow, with the name of each that has one."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield name, root["$defs"][name]
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from _alternatives(one, root)
    else:
        yield "", schema
