"""The carbon of a job as every command says it: use, idle and embodied, out to which boundary, and on which assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackmodel.model.result import Result


def result_data(result: Result) -> dict[str, Any]:
    """A result's plain data, with `carbon` where its machine has a site."""
    from rackmodel.results import carbon_of

    job = carbon_of(result)
    return result.to_dict() | ({} if job is None else {"carbon": job.to_dict()})


def carbon_lines(results: Sequence[Result], names: Sequence[str] = ("",)) -> list[str]:
    """A line for each result whose machine has a site. names: what tells them apart."""
    from rackmodel.report.carbon import carbon_words
    from rackmodel.results import carbon_of

    jobs = [(name, carbon_of(result)) for name, result in zip(names, results, strict=True)]
    return [carbon_words(job.to_dict(), f" of {name}" if name else "") for name, job in jobs if job is not None]
