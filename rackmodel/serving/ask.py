"""Names of the library → what is to be served."""

from __future__ import annotations

from collections.abc import Sequence

from rackmodel.carbon.assess import carbon_weights
from rackmodel.carbon.bill import bill_of
from rackmodel.cost.step.ledger import static_watts
from rackmodel.errors import InputError
from rackmodel.inputs import grid_table, read_architecture, read_workload
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.serving.offers import Service

ACCELERATORS = 8
"""Where no --set says their number: those of a server."""


def service_of(machine: str, model: str, sets: Sequence[str], profile: ProfileSpec, lengths: tuple[float, float, float]) -> Service:
    """What is to be served. sets: as --set says them · lengths: prompt, output, share of a prompt in the cache.

    Raises InputError where the workload is no decoder's step, or the profile no serving engine's.
    """
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
    return Service(architecture, model, tuple(of_model), profile, prompt, output, reused, carbon=_carbon(architecture))


def _carbon(machine: Architecture) -> tuple[float, float] | None:
    """(g/J, g/s) of a machine with a site and a bill of materials; None where it has no site."""
    if machine.site is None:
        return None
    return carbon_weights(machine, bill_of(machine, carbon_tables()), grid_table(), static_watts(machine))
