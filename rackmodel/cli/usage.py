"""Options that say how a machine is used: its life, the share of it at work, and how far out its making is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rackmodel.errors import InputError

if TYPE_CHECKING:
    from rackmodel.carbon.job import Usage

LifetimeOption = Annotated[
    str | None, typer.Option("--lifetime", metavar="TIME", help="Lifetime of the machine, such as '4 years'; default: 3 to 5 years.")
]
ActiveOption = Annotated[
    str | None,
    typer.Option("--active", metavar="SHARE", help="Utilization: share of its lifetime at work, such as '60 %'; default: 40 to 90 %."),
]
BoundaryOption = Annotated[
    str,
    typer.Option(
        "--boundary", metavar="NAME", help="Count embodied carbon out to: silicon, memory, package, module, tray, host, network, facility."
    ),
]
FabOption = Annotated[
    str, typer.Option("--fab", metavar="MODEL", help="Fab model, carbon per die area: act (ACT, equation 5), imec or imec_v4.")
]


@contextmanager
def asked_of_fab(model: str) -> Iterator[None]:
    """What a model that is asked for says nothing of is a fault of --fab: no line of a machine's file is wrong."""
    try:
        yield
    except InputError as problem:
        if model == "act" or problem.given != model or problem.path.startswith("--"):
            raise
        raise InputError(f"{problem.path}: {problem.message}", path="--fab", known=problem.known, given=model)


def usage_of(lifetime: str | None, active: str | None, boundary: str) -> Usage:
    """The options as Usage. Raises InputError."""
    from rackmodel.carbon.bill import up_to
    from rackmodel.carbon.job import ACTIVE, LIFETIME, Usage
    from rackmodel.model.embodied import BOUNDARIES
    from rackmodel.units import Quantity, read_quantity

    if boundary not in BOUNDARIES:
        raise InputError(f"no boundary called '{boundary}'", path="--boundary", known=BOUNDARIES, given=boundary)

    def read(text: str | None, unit: str, default: Quantity, option: str, like: str = "") -> Quantity:
        try:
            return default if text is None else read_quantity(text, unit, like)
        except ValueError as problem:
            raise InputError(str(problem), path=option)

    life, share = read(lifetime, "second", LIFETIME, "--lifetime", "4 years"), read(active, "", ACTIVE, "--active")
    try:
        return Usage(life, share, up_to(next(one for one in BOUNDARIES if one == boundary)))
    except InputError as problem:
        raise InputError(problem.message, path=f"--{problem.path}")
