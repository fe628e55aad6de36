"""Free layouts of steps that their host keeps waiting: every layout of a small decoder against what is claimed, and launches by hand."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackmodel import api
from rackmodel.errors import InputError
from rackmodel.model.profile import ProfileSpec
from tests import samples

LAYERS = 4
DECODER = {
    "workload": "decoder",
    "phases": ["forward"],
    "sizes": {"b": 8, "d": 1024, "f": 4096, "v": 4096},
    "sections": {
        "block": {
            "repeat": LAYERS,
            "einsums": {
                "norm": "N[b,d] = rmsnorm(X[b,d]) over d",
                "up": "U[b,f] = N[b,d] * WU[d,f]",
                "down": "D[b,d] = U[b,f] * WD[f,d]",
                "res": "Y[b,d] = add(X[b,d], D[b,d])",
            },
        },
        "head": {"einsums": {"logits": "L[b,v] = Y[b,d] * WH[d,v]"}},
    },
}
EVERY = {"norm": ("none", "d"), "up": ("none", "d", "f"), "down": ("none", "d", "f"), "res": ("none", "d")}
COUNT = 36


def answer(tmp_path: Path, profile: ProfileSpec, **said: Any) -> Any:
    """Of the decoder on four H100, one group of four, with the head's columns dealt out."""
    workload, mapper = tmp_path / "decoder.yaml", tmp_path / "mapper.yaml"
    axes = {"pp": {"degree": 1, "stages": "layers"}, "tp": {"degree": 4, "place": "inner"}}
    asked = {"mapper": "decoding", "axes": axes, "split": {"tp": ["v"]}, "algorithms": "best", **said}
    for path, text in ((workload, DECODER), (mapper, asked)):
        path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return api.search("dgx_h100", str(workload), str(mapper), sets=["accelerators=4"], profile=profile, minimize="latency").result


def profiled(launch: str, layer: str = "0 s", **merged: bool) -> ProfileSpec:
    host = {"launch": launch, "layer": layer}
    return ProfileSpec.model_validate({"profile": "hosted", "kernels": "measured", "host": host, "merged": merged, "overlap": {}})


FREE: dict[str, Any] = {"layouts": {"found": {"split": {"tp": "free"}}}}


@pytest.mark.parametrize(
    ("launch", "merged"),
    samples.some([("200 us", {}), ("8 us", {"residuals": True}), ("3 us", {}), ("1 us", {"residuals": True}), ("0 s", {})], 3),
)
def test_no_layout_of_a_decoder_is_below_what_is_claimed(launch: str, merged: dict[str, bool], tmp_path: Path) -> None:
    """And the best of all is found, where all are looked at."""
    profile = profiled(launch, "5 us", **merged)
    found = answer(tmp_path, profile, **FREE)
    each = random.Random(launch).sample(list(itertools.product(*EVERY.values())), samples.cases(6, COUNT))
    priced = []
    for choices in each:
        try:
            choose = {op: {"tp": split} for op, split in zip(EVERY, choices, strict=True)}
            priced.append(answer(tmp_path, profile, choose=choose).latency_s)
        except InputError:  # an operation cannot split that
            continue
    assert priced
    assert found.certificate.bound <= min(priced) * (1 + 1e-9)
    assert found.latency_s <= min(priced) * (1 + 1e-9)
    assert found.certificate.gap <= 0.02  # of the head, which the answer deals out and a bound does not have to


def test_a_bound_knows_what_the_host_launches(tmp_path: Path) -> None:
    """200 us a kernel, 100 a layer: of four operations and no all-reduce four kernels; three where the norm makes the sum before it."""
    head = answer(tmp_path, profiled("0 s"), choose={op: {"tp": "none"} for op in EVERY}).ledger
    seconds = sum(float(row.exposed_seconds) for row in head if row.einsum == "logits")
    for merged, kernels in (({}, 4), ({"residuals": True}, 3)):
        found = answer(tmp_path, profiled("200 us", "100 us", **merged), **FREE)
        worked = LAYERS * (100e-6 + kernels * 200e-6) + seconds
        assert found.latency_s == pytest.approx(worked, rel=1e-6)
        assert found.certificate.bound == pytest.approx(worked, rel=1e-3)
