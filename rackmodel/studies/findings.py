"""Findings: what a paper claims, what we get, and whether they agree. One class, one registry of sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rackmodel.errors import InputError
from rackmodel.studies.run import Points

Verdict = Literal["agrees", "disagrees", "not decidable"]


@dataclass(frozen=True)
class Finding:
    """One claim. weight: 'must' or 'should' (how firmly the paper's own model implies it) · figures: what was compared ·
    why: how to read it, and where we disagree, the reason."""

    name: str
    figure: str
    claim: str
    weight: str
    verdict: Verdict
    figures: dict[str, float] = field(default_factory=dict)
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self.__dict__)


def findings(name: str) -> Callable[[Points], list[Finding]]:
    """The set of findings called `name`. Raises InputError."""
    from rackmodel.studies import (
        act,
        calculon,
        embodied,
        gemm_published,
        hardwired,
        hnlpu_tco,
        iso_compute,
        rack_paper,
        row_pipeline,
        train_carbon,
        training_energy,
        wafer_carbon,
        wafer_vs_gpu,
        weight_streaming,
    )

    sets: dict[str, Callable[[Points], list[Finding]]] = {
        "rack_paper": rack_paper.findings,
        "rack_paper_nests": rack_paper.nest_findings,
        "iso_compute": iso_compute.findings,
        "gemm_published": gemm_published.findings,
        "row_pipeline": row_pipeline.findings,
        "calculon": calculon.findings,
        "training_energy": training_energy.findings,
        "weight_streaming": weight_streaming.findings,
        "hardwired": hardwired.findings,
        "wafer_vs_gpu": wafer_vs_gpu.findings,
        "act": act.findings,
        "embodied": embodied.findings,
        "hnlpu_tco": hnlpu_tco.findings,
        "wafer_carbon": wafer_carbon.findings,
        "train_carbon": train_carbon.findings,
    }
    if name not in sets:
        raise InputError(f"no findings called '{name}'", path="findings", known=list(sets), given=name)
    return sets[name]
