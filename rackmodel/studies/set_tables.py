"""The carbon tables that a study's findings read, under the settings of a command.

Settings go to the points of a study. One without points (`runs: []`) has findings of the carbon tables alone, so that there they are
facts of these: a place of the tables (`figures.act.active`, `processes.7nm.energy`), or what a machine may say of its fab and its own
file (`fab.grid=solar`, `carbon=mine.yaml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rackmodel.carbon.changed import SECTIONS, names_table, with_facts
from rackmodel.carbon.tables import CarbonTables
from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture
from rackmodel.inputs.carbon_tables import carbon_tables, tables_of
from rackmodel.inputs.library import from_folder
from rackmodel.inputs.load import at_override
from rackmodel.studies.plan import Sets
from rackmodel.studies.study import StudySpec

OF_TABLES = tuple(section for section in SECTIONS if section != "fab")
KNOWN = ("carbon", "fab.grid", "fab.abated", "fab.materials", "fab.package", "fab.yield", *(f"{section}.NAME" for section in OF_TABLES))


def tables_under(study: StudySpec, sets: Sets) -> CarbonTables:
    """The tables of a study's findings. Raises InputError for a setting of a study without points that is none of theirs."""
    if study.runs or not sets:
        return carbon_tables()
    facts: dict[str, Any] = {}
    machine: list[str] = []
    for name, value in sets.items():
        if not isinstance(value, str | int | float):
            raise InputError(f"'{name}': one value, as this study has no points to sweep", where=at_override(f"{name}={value}"))
        if name == "carbon" or (name.startswith("fab.") and name != "fab.intensity"):
            machine.append(f"{name}={value}")
        elif names_table(name):
            facts[name] = value
        else:
            raise _unknown(study, name, value)
    return _with(_of_machine(study, machine), facts)


def _of_machine(study: StudySpec, said: list[str]) -> CarbonTables:
    """The tables of the study's machine with an own fab or an own file."""
    if not said:
        return carbon_tables()
    if not isinstance(study.architecture, str):
        raise InputError("want one machine, whose fab it is", path="architecture")
    return tables_of(read_architecture(from_folder("architecture", study.architecture, study.folder), said))


def _with(tables: CarbonTables, facts: Mapping[str, Any]) -> CarbonTables:
    for name, value in facts.items():
        try:
            tables = with_facts(tables, {name: value})
        except InputError as problem:
            raise problem.at(at_override(f"{name}={value}"))
    return tables


def _unknown(study: StudySpec, name: str, value: Any) -> InputError:
    fact = f"nothing is called '{name}': {study.name} has no points, its findings read the carbon tables"
    return InputError(fact, where=at_override(f"{name}={value}"), known=KNOWN, given=name)
