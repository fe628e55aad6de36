"""What a schema allows at a place: the step from an annotation to the annotation below a key.

The pydantic models of model/ are the only schema; this walks them so that a message can list what is allowed and an
override can be checked before the file is.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, PlainValidator

from rackmodel.inputs.marked import Step
from rackmodel.model.schema import aliases

QUANTITY = object()
"""Stands for a number with a unit: text, a number, or {value | low, mid, high; source}."""

QUANTITY_KEYS = ("value", "low", "mid", "high", "source")
_ANYWHERE = ("source", "note")
_UNIONS = (typing.Union, types.UnionType)


def options(annotation: Any, metadata: Sequence[Any] = ()) -> list[Any]:
    """The alternatives of an annotation: unions and Annotated opened, quantities as QUANTITY."""
    if any(isinstance(note, PlainValidator) for note in metadata):
        return [QUANTITY]
    if get_origin(annotation) is typing.Annotated:
        return options(get_args(annotation)[0], get_args(annotation)[1:])
    if get_origin(annotation) in _UNIONS:
        return [one for part in get_args(annotation) for one in options(part)]
    return [annotation]


def model_of(allowed: Sequence[Any]) -> type[BaseModel] | None:
    """The model among the alternatives, if any."""
    return next((one for one in allowed if isinstance(one, type) and issubclass(one, BaseModel)), None)


FEW_KEYS = 6
"""Keys that are listed where a mapping of them is wanted."""


def keys_of(allowed: Sequence[Any]) -> list[str] | None:
    """Keys a mapping may have here; None = any, [] = no mapping is allowed."""
    model = model_of(allowed)
    if model is not None:
        return list(_keys_of_model(model))
    if any(one is Any or one is dict or get_origin(one) is dict for one in allowed):
        return None
    return list(QUANTITY_KEYS) if QUANTITY in allowed else []


@cache
def _keys_of_model(model: type[BaseModel]) -> tuple[str, ...]:
    """Its keys, those that may stand anywhere last."""
    return tuple(sorted(aliases(model), key=lambda key: key in _ANYWHERE))


@cache
def _below_model(model: type[BaseModel], step: str) -> tuple[Any, ...]:
    """The alternatives of one of its keys."""
    fields = (info for name, info in model.model_fields.items() if (info.alias or name) == step)
    return tuple(one for info in fields for one in options(info.annotation, info.metadata))


def below(allowed: Sequence[Any], step: Step) -> list[Any]:
    """The alternatives one step down; [] where the schema has nothing there."""
    return [found for one in allowed for found in _below_one(one, step)]


@lru_cache(maxsize=4096)
def _below_one(one: Any, step: Step) -> tuple[Any, ...]:
    """The alternatives one step below one alternative."""
    if one is Any or one is dict or one is list:
        return (Any,)
    if isinstance(step, int):
        if get_origin(one) not in (list, tuple):
            return ()
        inner = [part for part in get_args(one) if part is not Ellipsis]
        return tuple(options(inner[min(step, len(inner) - 1)])) if inner else (Any,)
    if isinstance(one, type) and issubclass(one, BaseModel):
        return _below_model(one, step)
    if get_origin(one) is dict:
        return tuple(options(get_args(one)[1]))
    if one is QUANTITY and step in QUANTITY_KEYS:
        return (QUANTITY,) if step != "source" else (str,)
    return ()


def at(model: type[BaseModel], path: Sequence[Step]) -> list[Any]:
    """The alternatives at a path below a model."""
    allowed: list[Any] = [model]
    for step in path:
        allowed = below(allowed, step)
    return allowed


def meaning(model: type[BaseModel], key: str) -> str:
    """The description of a key."""
    return aliases(model).get(key, "")


def literals(allowed: Sequence[Any]) -> list[str]:
    """The words that are allowed here."""
    return [str(word) for one in allowed if get_origin(one) is Literal for word in get_args(one)]


def wanted(allowed: Sequence[Any]) -> str:
    """The kinds of value that are allowed here, for a person: 'a whole number, or a list'."""
    kinds: list[str] = []
    for one in allowed:
        kind = _kind(one)
        if kind and kind not in kinds:
            kinds.append(kind)
    return ", or ".join(kinds)


def _kind(one: Any) -> str:
    simple = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list [a, b]", QUANTITY: "a quantity"}
    origin = get_origin(one)
    if one in simple:
        return simple[one]
    if origin is tuple and Ellipsis not in get_args(one):
        letters = [chr(ord("a") + number) for number in range(len(get_args(one)))]
        return f"a list of {len(letters)}, [{', '.join(letters)}]"
    if origin in (list, tuple):
        return "a list [a, b]"
    if isinstance(one, type) and issubclass(one, BaseModel):
        keys = [key for key in keys_of([one]) or [] if key not in ("source", "note")]
        return "a mapping {key: value}" + (f" of {', '.join(keys)}" if len(keys) <= FEW_KEYS else "")
    if origin is dict or one is dict:
        return "a mapping {key: value}"
    return "one of the known words" if origin is Literal else ""
