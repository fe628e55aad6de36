"""The base of everything that is read from YAML: frozen, unknown keys refused, a source beside the numbers.

A field's alias is its YAML key and its description is its meaning: the schema check, `rackmodel show` and the
reference page all come from these definitions.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """A mapping in an input file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True, defer_build=True)

    source: str | None = Field(default=None, description="where the numbers of this mapping come from")
    note: str | None = Field(default=None, description="what a reader should know about it")


def aliases(model: type[BaseModel]) -> dict[str, str]:
    """YAML key → meaning, in order, for help and error messages."""
    return {(field.alias or name): (field.description or "") for name, field in model.model_fields.items()}
