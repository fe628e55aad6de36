"""Names of the library → what is to be served."""

from __future__ import annotations

from collections.abc import Sequence

from rackmodel.errors import InputError
from rackmodel.inputs import read_architecture, read_profile, read_workload
from rackmodel.inputs.overrides import sorted_sets
from rackmodel.model.profile import ProfileSpec
from rackmodel.results import rates_of
from rackmodel.serving.offers import Service

ACCELERATORS = 8
"""Where no --set says their number: those of a server."""


def service_of(machine: str, model: str, sets: Sequence[str], engine: ProfileSpec | str, lengths: tuple[float, float, float]) -> Service:
    """What is to be served. sets: as --set says them, of the profile too where `engine` names it · lengths: prompt, output, share of a
    prompt in the cache.

    Raises InputError where the workload is no decoder's step, or the profile no serving engine's.
    """
    of_profile, sets = sorted_sets(sets) if isinstance(engine, str) else ([], sets)
    profile = read_profile(engine, of_profile) if isinstance(engine, str) else engine
    of_model = [one for one in sets if one.startswith("workload.")]
    of_machine = [one for one in sets if not one.startswith("workload.")]
    architecture = read_architecture(machine, of_machine)
    if not any(one.split("=")[0].strip() == "accelerators" for one in of_machine):
        architecture = architecture.model_copy(update={"accelerators": min(architecture.available, ACCELERATORS)})
    workload = read_workload(model, of_model)
    if workload.serving is None:
        raise InputError(f"{workload.name} is no decoder's step: it has no `serving`", path="MODEL")
    if profile.engine is None:
        raise InputError(
            f"profile '{profile.name}' is no serving engine: it has no `engine`", path="--engine", known=["vllm", "trtllm", "sglang"]
        )
    prompt, output, reused = lengths
    return Service(architecture, model, tuple(of_model), profile, prompt, output, reused, carbon=rates_of(architecture))
