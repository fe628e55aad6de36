"""The library's tables of embodied carbon: every file of specs/carbon, joined."""

from __future__ import annotations

from functools import cache

from rackmodel.carbon.operational import GridFile
from rackmodel.carbon.tables import CarbonTables, join_tables
from rackmodel.inputs.library import names
from rackmodel.inputs.load import load
from rackmodel.inputs.problems import build


@cache
def carbon_tables() -> CarbonTables:
    """Processes, technologies, parts, products and printed figures, with their sources. Raises InputError."""
    return join_tables(build(GridFile, load("carbon", name)) for name in names("carbon"))
