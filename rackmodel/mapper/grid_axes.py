"""Degrees that a machine's grid gives: `rows` and `columns` of the network that joins the accelerators."""

from __future__ import annotations

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec

SIDES = ("rows", "columns")


def on_grid(mapper: MapperSpec, architecture: Architecture) -> MapperSpec:
    """The mapper with numbers for `rows` and `columns`. Raises InputError where no grid of two sides joins the accelerators."""
    asked = {name: axis for name, axis in mapper.axes.items() if axis.degree in SIDES}
    if not asked:
        return mapper
    shape = next((tier.network.shape for tier in architecture.tiers if tier.network.shape), None)
    if shape is None or len(shape) != 2:
        name = next(iter(asked))
        raise InputError(
            f"'{asked[name].degree}' is of a grid of two sides, which '{architecture.name}' has not: say a number",
            path=f"axes.{name}.degree",
        )
    sides = dict(zip(SIDES, shape, strict=True))
    axes = {
        name: axis.model_copy(update={"degree": sides[str(axis.degree)]}) if name in asked else axis for name, axis in mapper.axes.items()
    }
    return mapper.model_copy(update={"axes": axes})
