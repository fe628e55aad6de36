"""What several commands say of results: the carbon of a job (use, idle and embodied, out to which boundary, on which assumptions), and a
front with the figures that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackmodel.api import Answer
    from rackmodel.carbon.job import Usage
    from rackmodel.model.result import Result


def result_data(result: Result, usage: Usage | None = None) -> dict[str, Any]:
    """A result's plain data, with `carbon` where its machine has a site."""
    from rackmodel.results import carbon_of

    job = carbon_of(result, usage)
    return result.to_dict() | ({} if job is None else {"carbon": job.to_dict()})


def front_of(answer: Answer) -> dict[str, Any]:
    """An answer's front as `report.beside` has it."""
    from rackmodel.report.beside import front_data

    return front_data(answer.front, answer.front_status, answer.figures, answer.bills)


def carbon_lines(results: Sequence[Result], names: Sequence[str] = ("",), usage: Usage | None = None) -> list[str]:
    """A line for each result whose machine has a site. names: what tells them apart."""
    from rackmodel.report.carbon import carbon_words
    from rackmodel.results import carbon_of

    jobs = [(name, carbon_of(result, usage)) for name, result in zip(names, results, strict=True)]
    return [carbon_words(job.to_dict(), f" of {name}" if name else "") for name, job in jobs if job is not None]


def unlike_bases(results: Sequence[Result], usage: Usage | None = None) -> list[str]:
    """A line where the carbon of several machines rests on unlike sites or boundaries, so that it does not compare the machines alone."""
    from rackmodel.model.embodied import BOUNDARIES
    from rackmodel.results import carbon_of

    grids, pues, ends = dict[str, str](), dict[str, str](), dict[str, str]()
    for result in results:
        job, machine = carbon_of(result, usage), result.machine
        if job is None or machine is None or machine.site is None:
            continue
        site, to = machine.site, job.basis.get("boundary")
        grids[machine.name] = site.grid if isinstance(site.grid, str) else str(site.grid.get("intensity"))
        pues[machine.name] = f"{float(site.pue):g}"
        ends |= {machine.name: to} if to else {}
    inmost = next((one for one in BOUNDARIES if one in ends.values()), "")
    told = {
        "grids": (grids, "--set site.grid=world makes them one"),
        "PUE": (pues, "--set site.pue=1.1"),
        "boundaries of what is embodied": (ends, f"--boundary {inmost}"),
    }
    parts = [
        f"{what} ({', '.join(f'{name} {value}' for name, value in values.items())}{'; ' + way if way else ''})"
        for what, (values, way) in told.items()
        if len(set(values.values())) > 1
    ]
    return [f"carbon does not compare these machines alone: unlike {', '.join(parts)}"] if parts else []
