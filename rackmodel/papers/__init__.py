"""What papers claim, checked: a file a paper, found by the name that a study's `findings` says."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from rackmodel.errors import InputError
from rackmodel.studies.findings import Finding
from rackmodel.studies.run import Points

SETS = {
    name: (name, "findings")
    for name in (
        "rack_paper",
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
} | {"rack_paper_nests": ("rack_paper", "nest_findings")}
"""Set of findings → the file here and the function in it."""


def findings(name: str) -> Callable[[Points], list[Finding]]:
    """The set of findings called `name`: points of a study → findings. Raises InputError."""
    if name not in SETS:
        raise InputError(f"no findings called '{name}'", path="findings", known=list(SETS), given=name)
    module, function = SETS[name]
    return getattr(importlib.import_module(f"rackmodel.papers.{module}"), function)  # type: ignore[no-any-return]
