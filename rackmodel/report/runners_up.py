"""The best K mappings, or those of a front, as rows: no two rows of the same words.

A recompute policy that changes no figure is the same row as the mapping without it. Rows whose words are the same say what differs:
where the axes are placed, what overlaps, or else the first field of the mapping file that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from rackmodel.report.files import csv_of_records
from rackmodel.report.tables import mapping_words

FIGURES = ("latency_s", "energy_j", "memory_bytes_per_accelerator")


def top_rows(results: Sequence[Result]) -> list[tuple[str, Result]]:
    """(words, result), best first."""
    kept: dict[tuple[Any, ...], Result] = {}
    for result in results:
        kept.setdefault(_same(result), result)
    return list(zip(words_apart(list(kept.values())), kept.values(), strict=True))


def words_apart(results: Sequence[Result]) -> list[str]:
    """Mappings in words; those of the same words with what tells each from the others."""
    found = [mapping_words(result.mapping) for result in results]
    alike: dict[str, list[int]] = {}
    for number, words in enumerate(found):
        alike.setdefault(words, []).append(number)
    for words, numbers in alike.items():
        if len(numbers) > 1:
            facts = [dict(_facts(results[number].mapping)) for number in numbers]
            differing = {name for name in set().union(*facts) if len({own.get(name) for own in facts}) > 1}
            for number, own in zip(numbers, facts, strict=True):
                found[number] = ", ".join([words, *_telling({name: own[name] for name in own if name in differing}, facts)])
    return found


def _telling(own: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The first facts of one of them that no other has together."""
    left = every
    for name, value in own.items():
        alike = [other for other in left if other.get(name) == value]
        if len(alike) < len(left):
            left = alike
            yield f"{name} {value}"
        if len(left) == 1:
            return


def top_csv(rows: Sequence[tuple[str, Result]]) -> str:
    """Rows as CSV: number, mapping, figures, and how much more of what is minimised than the best."""
    least = rows[0][1].certificate.objective
    return csv_of_records(
        [
            {"number": number, "mapping": words, **{name: getattr(one, name) for name in FIGURES}}
            | {"objective": one.certificate.objective, "more": one.certificate.objective / least - 1 if least else 0.0}
            for number, (words, one) in enumerate(rows, start=1)
        ]
    )


def _same(result: Result) -> tuple[Any, ...]:
    """What two rows have in common that only an idle recompute policy tells apart."""
    mapping = result.mapping.model_copy(update={"recompute": "none"})
    return result.latency_s, result.energy_j, result.memory_bytes_per_accelerator, mapping.model_dump_json()


def _facts(mapping: MappingSpec) -> Iterator[tuple[str, str]]:
    """(name, value) of every field of the mapping, those that are read most first."""
    for name, axis in mapping.axes.items():
        if axis.degree > 1:
            yield f"{name} stride", str(axis.stride)
    yield from _fields("", mapping.model_dump(mode="json", exclude={"axes", "nests", "note"}))


def _fields(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
