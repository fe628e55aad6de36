"""What papers claim, checked: a file a paper, found by the name that a study's `findings` says.

A file's CHECKS are functions of a study's points and of the carbon tables, so that each can be asked again under other inputs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from rackmodel.errors import InputError
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.studies.findings import Finding
from rackmodel.studies.own_findings import Check, own_checks
from rackmodel.studies.run import Points
from rackmodel.studies.study import StudySpec

SETS = (
    "rack_paper",
    "rack_paper_nests",
    "iso_compute",
    "gemm_published",
    "row_pipeline",
    "calculon",
    "training_energy",
    "weight_streaming",
    "hardwired",
    "wafer_vs_gpu",
    "act",
    "embodied",
    "hnlpu_tco",
    "wafer_carbon",
    "train_carbon",
)
"""Sets of findings; each is a file here, but for those of OTHERS."""
OTHERS = {
    "rack_paper_nests": ("rack_paper", "NEST_CHECKS"),
    "wafer_carbon": ("wafer_figures", "CHECKS"),
    "hnlpu_tco": ("hnlpu_rack", "CHECKS"),
}
"""Set of findings → the file that has it and its name there."""


def checks(name: str) -> Sequence[Check]:
    """The checks of the set of findings called `name`. Raises InputError."""
    if name not in SETS:
        raise InputError(f"no findings called '{name}'", path="findings", known=SETS, given=name)
    module, said = OTHERS.get(name, (name, "CHECKS"))
    return getattr(importlib.import_module(f"rackmodel.papers.{module}"), said)  # type: ignore[no-any-return]


def checks_of(study: StudySpec) -> Sequence[Check]:
    """The checks that a study's file asks for: a set by name, or its own. Raises InputError."""
    if study.findings is None:
        return ()
    return checks(study.findings) if isinstance(study.findings, str) else own_checks(study.findings)


def findings(name: str) -> Callable[[Points], list[Finding]]:
    """The set of findings called `name`: points of a study → findings, by the library's carbon tables. Raises InputError."""
    every = checks(name)
    return lambda points: [finding for check in every for finding in check(points, carbon_tables())]
