"""JSON Schemas of the input files, for editors that complete and check while one types.

They are made of the models that read the files, so that a schema cannot say what no reader takes. What only reading a whole file shows
(that names are known, that sizes divide) is left to `rackmodel check`; nothing is required that a file may inherit by `extends` or `part`.
"""

from __future__ import annotations

import importlib
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from rackmodel.errors import InputError
from rackmodel.units import wanted_of

MODELS = {
    "architecture": "rackmodel.model.architecture:Architecture",
    "workload": "rackmodel.model.workload_spec:WorkloadSpec",
    "mapper": "rackmodel.model.mapping:MapperSpec",
    "mapping": "rackmodel.model.mapping:MappingSpec",
    "study": "rackmodel.studies.study:StudySpec",
    "profile": "rackmodel.model.profile:ProfileSpec",
    "part": "rackmodel.model.level:Level",
    "collectives": "rackmodel.model.calls:CollectivesSpec",
}
"""Kind of file → where its schema is written."""

_QUANTITY = {"type": ["string", "number"]}
_RANGE = {
    "type": "object",
    "properties": {**dict.fromkeys(("value", "low", "mid", "high"), _QUANTITY), "source": {"type": "string"}},
    "additionalProperties": False,
}


class _Schemas(GenerateJsonSchema):
    """Quantities are text, a number, or a range with its source."""

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> dict[str, Any]:
        return {"anyOf": [_QUANTITY, _RANGE], "wanted": wanted_of(cast("Any", schema["function"]["function"]))}

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return super().encode_default(dft)


def model_of_kind(kind: str) -> type[BaseModel]:
    """The schema of a kind of file. Raises InputError."""
    if kind not in MODELS:
        raise InputError(f"no schema of '{kind}'", known=list(MODELS), given=kind)
    module, _, name = MODELS[kind].partition(":")
    return cast("type[BaseModel]", getattr(importlib.import_module(module), name))


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of file. Raises InputError."""
    made = model_of_kind(kind).model_json_schema(by_alias=True, schema_generator=_Schemas)
    inner = made.pop("$defs", {})
    top = _opened(inner.pop(made["$ref"].rpartition("/")[2])) if "$ref" in made else _opened(made)
    if kind == "part":
        top["properties"].pop("name")
    own = {kind: top["properties"].pop(kind, {"type": "string", "description": "the part's name"}), "extends": _EXTENDS}
    top["properties"] = {**own, **top["properties"]}
    levels = [one for name, one in inner.items() if name == "Level"] + ([top] if kind == "part" else [])
    for level in levels:
        level["properties"]["part"] = {"type": "string", "description": "a file of specs/parts whose keys stand under the level's own"}
    definitions = {name: _opened(one) for name, one in sorted(inner.items())}
    if kind == "part":
        definitions["Level"] = {**top, "properties": {**top["properties"], "name": {"type": "string", "description": "the level's name"}}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rackmodel {kind}",
        **top,
        "required": [kind],
        **({"$defs": definitions} if definitions else {}),
    }


_EXTENDS = {"type": "string", "description": "a file of the same kind, by name or path, that this one changes"}


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """A model without titles made of its names, and with nothing required: another file may say it."""
    for name, one in schema.get("properties", {}).items():
        if str(one.get("title", "")).replace(" ", "_").lower() == name.lower():
            del one["title"]
    return {key: value for key, value in schema.items() if key not in ("required", "title")}
