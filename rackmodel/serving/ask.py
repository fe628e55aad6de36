"""Names of the library → what is to be served."""

from __future__ import annotations

from collections.abc import Sequence

from rackmodel.carbon.costing import prices_of
from rackmodel.cost.step.occupancy import wired_of
from rackmodel.errors import InputError
from rackmodel.inputs import apply_overrides, load, read_profile, read_workload
from rackmodel.inputs.library import called
from rackmodel.inputs.overrides import sorted_sets
from rackmodel.inputs.read import build_architecture
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Serving
from rackmodel.results import rates_of
from rackmodel.serving.engine import ENGINES, engine_facts
from rackmodel.serving.offers import Service

ACCELERATORS = 8
"""Where no --set says their number: those of a server, or of the file where it states fewer."""


def service_of(
    machine: str,
    model: str,
    sets: Sequence[str],
    engine: ProfileSpec | str,
    lengths: tuple[float, float, float],
    *,
    accelerators: int | None = None,
) -> Service:
    """What is to be served. sets: as --set says them, of the profile too where `engine` names it · lengths: prompt, output, share of a
    prompt in the cache · accelerators: of a replica whose degrees say them.

    Raises InputError where the workload is no decoder's step, the profile no serving engine's, or weights are wired into the machine.
    """
    of_profile, sets = sorted_sets(sets) if isinstance(engine, str) else ([], sets)
    profile = _engine(engine, of_profile) if isinstance(engine, str) else engine
    of_model = [one for one in sets if one.startswith("workload.")]
    of_machine = [one for one in sets if not one.startswith("workload.")]
    try:
        architecture = _machine(machine, of_machine, accelerators)
    except InputError:
        _check_model_names(model, of_machine)
        raise
    if any(wired_of(pool) is not None for pool in architecture.pools):
        way = f"rackmodel search {machine} WORKLOAD hardwired"
        words = f"its weights are wires, which no engine deals to workers; the rate of its pipeline: {way}"
        raise InputError(words, path=architecture.name)
    workload = read_workload(model, of_model)
    if workload.serving is None:
        fact = f"{workload.name} is no decoder's step: it has no `serving` (rackmodel import makes one of a config.json)"
        raise InputError(fact, path="MODEL", known=[one for one in called("workload") if "decoder" in one], given=model)
    _check_sizes(workload.serving, of_model)
    engine_facts(profile)
    prompt, output, reused = lengths
    carbon, money = rates_of(architecture), prices_of(architecture)
    return Service(architecture, model, tuple(of_model), profile, prompt, output, reused, carbon=carbon, money=money)


def _engine(name: str, sets: Sequence[str]) -> ProfileSpec:
    """The profile of an engine. Raises InputError, with the engines where none is called so."""
    try:
        return read_profile(name, sets)
    except InputError as problem:
        if problem.given != name:
            raise
        raise InputError(f"no engine called '{name}'", path="engine", known=ENGINES, given=name) from None


def _check_sizes(serving: Serving, sets: Sequence[str]) -> None:
    """Raise InputError for a size that a server's steps have of their own, by how many are served and how long their requests are."""
    asked_by = {serving.sequences: "--concurrency or --rate", serving.new: "--isl and --chunk", serving.cached: "--isl and --osl"}
    for one in sets:
        name = one.partition("=")[0].strip().removesuffix("*").removeprefix("workload.").removeprefix("sizes.")
        if name in asked_by:
            raise InputError(f"is of one step, and a server's steps have what is asked by {asked_by[name]}", path=f"--set {one}")


def _check_model_names(model: str, sets: Sequence[str]) -> None:
    """Raise InputError for a size of the model among what is said of the machine."""
    workload = read_workload(model)
    for one in sets:
        name = one.partition("=")[0].strip().removesuffix("*")
        if name in workload.sizes:
            if workload.serving is not None:
                _check_sizes(workload.serving, [one])
            raise InputError(f"is a size of the model: say workload.{name}", path=f"--set {one}")


def _machine(name: str, sets: Sequence[str], replica: int | None) -> Architecture:
    """A machine, of which as many accelerators are used as an override says, whatever it calls them. replica: how many are wanted.

    Raises InputError.
    """
    raw = load("architecture", name)
    tree = apply_overrides(sets, raw, None, None)[0]
    assert tree is not None
    if tree.child("accelerators") is raw.child("accelerators"):
        if replica is not None:
            return build_architecture(apply_overrides([f"accelerators={replica}"], tree, None, None)[0] or tree)
        machine = build_architecture(tree)
        return machine.model_copy(update={"accelerators": min(machine.used, ACCELERATORS)})
    machine = build_architecture(tree)
    if replica is not None and machine.used != replica:
        fact = f"one replica runs, and its degrees make {replica} accelerators, not {machine.used}: leave it out, or say other degrees"
        raise InputError(fact, path="--set accelerators")
    return machine
