"""The Python door: compare, search and evaluate, by name or path, with the same overrides as the command line.

from rackmodel import api
results = api.compare("rack_paper", "ffn", ["data", "tensor"], sets=["accelerators=32"])
print(results[0].latency_s, results[0].ledger.group(["component"]))
results = api.compare("cs2:16,dgx_a100:512", "gpt3_175b", ["streaming@cs2", "megatron@dgx_a100"])
print([(result.architecture, result.latency_s, result.limited_by) for result in results])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackmodel.carbon.assess import carbon_weights
from rackmodel.carbon.bill import bill_of
from rackmodel.carbon.operational import operational_carbon_g
from rackmodel.carbon.run import tokens_of
from rackmodel.cost.inside.nest_view import nest_name
from rackmodel.cost.inside.roofline import LegPricer, leg_rows
from rackmodel.cost.step.mixed import mixed
from rackmodel.cost.step.price import Priced, price, static_watts
from rackmodel.cost.step.step_ledger import step_ledger
from rackmodel.cost.step.step_price import price_group
from rackmodel.errors import InfeasibleError, InputError, Where
from rackmodel.inputs import Inputs, grid_table, read_inputs, read_profile
from rackmodel.inputs.carbon_tables import carbon_tables
from rackmodel.inputs.comparison import Cell, cells, saying
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import BLENDS, SAME_ORDER, Blend, Certificate, InsideSpec, MapperSpec, MappingSpec, Objective, homes_of
from rackmodel.model.plan import Plan, from_mapping, to_mapping
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.search.layouts.shortlist import with_found_layouts
from rackmodel.search.loop_nests import Fused, Nested, NestInside
from rackmodel.search.mapping_check import check_mapping
from rackmodel.search.mapspace import Mapspace, build_mapspace
from rackmodel.search.search import Candidate, search_space
from rackmodel.search.step_mapping import exact_point, from_step_mapping, fullest_device, made_cut, mixes_of, policy_plans, step_mapping
from rackmodel.search.step_space import build_step_space
from rackmodel.search.training import Point, search_steps
from rackmodel.units import capacity_text

__all__ = ["Answer", "Cell", "cells", "compare", "evaluate", "evaluate_mapping", "mapspace", "search", "search_cell", "search_mapper"]


@dataclass(frozen=True)
class Answer:
    """A search's answer: the best mapping, the next best (of a single graph, one a mesh), and the Pareto front if asked for."""

    result: Result
    top: tuple[Result, ...]
    front: tuple[Result, ...] = ()


def compare(
    architecture: str | Sequence[str],
    workload: str,
    mappers: Sequence[str],
    *,
    sets: Sequence[str] = (),
    minimize: Objective | None = None,
    profile: str | None = None,
) -> list[Result]:
    """The best mapping of each mapper on each machine, in the order of `cells`. Raises InputError, InfeasibleError."""
    return [search_cell(cell, minimize=minimize, profile=profile) for cell in cells(architecture, workload, mappers, sets=sets)]


def search_cell(cell: Cell, *, minimize: Objective | None = None, profile: str | None = None) -> Result:
    """The best mapping of one cell of a comparison. Raises InputError, InfeasibleError."""
    assert cell.inputs.mapper is not None
    try:
        return search_mapper(cell.inputs.architecture, cell.inputs.workload, cell.inputs.mapper, minimize=minimize, profile=profile).result
    except InputError as problem:
        hint = "" if cell.alone else f" (on {cell.machine}; MAPPER@ARCH runs a mapper on one machine)"
        raise saying(cell.inputs.place(problem), hint)


def search(
    architecture: str,
    workload: str,
    mapper: str = "auto",
    *,
    sets: Sequence[str] = (),
    minimize: Objective | None = None,
    profile: str | None = None,
    top: int = 1,
    limits: Mapping[str, float] | None = None,
    front: Sequence[str] = (),
) -> Answer:
    """Search one mapper's space. top: how many mappings to return · limits: 'power' in W and 'memory' in bytes that a model's step
    may not exceed · front: figures (latency, energy, memory) of the Pareto front to return as well."""
    inputs = read_inputs(architecture, workload, mapper=mapper, sets=sets)
    assert inputs.mapper is not None
    try:
        return search_mapper(
            inputs.architecture, inputs.workload, inputs.mapper, minimize=minimize, profile=profile, top=top, limits=limits, front=front
        )
    except InputError as problem:
        raise inputs.place(problem)


def search_mapper(
    architecture: Architecture,
    workload: Workload,
    mapper: MapperSpec,
    *,
    minimize: Objective | None = None,
    profile: str | None = None,
    top: int = 1,
    limits: Mapping[str, float] | None = None,
    front: Sequence[str] = (),
) -> Answer:
    """Search with objects instead of names."""
    chosen = _profile(profile, mapper.profile)
    goal = minimize or mapper.minimize
    if ({goal, *front} & {"carbon", *BLENDS}) and architecture.site is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="site")
    if goal in SAME_ORDER:
        answer = search_mapper(
            architecture, workload, mapper, minimize=SAME_ORDER[goal], profile=profile, top=top, limits=limits, front=front
        )
        return _renamed(answer, goal)
    if goal in BLENDS or any(name in BLENDS for name in front):
        weights = carbon_weights(architecture, bill_of(architecture, carbon_tables()), grid_table(), static_watts(architecture))
        goal = Blend.of(goal, *weights) if goal in BLENDS else goal  # type: ignore[assignment]
        front = [Blend.of(name, *weights) if name in BLENDS else name for name in front]
    if workload.sections:
        return _search_model(architecture, workload, mapper, goal, chosen, top, limits or {}, front)
    if goal == "memory":
        raise InputError("memory is an objective for a model in sections", path="--minimize")
    if limits or front:
        raise InputError("limits and fronts are for a model in sections", path="--limit" if limits else "--pareto")
    space = mapspace(architecture, workload, mapper)
    inside = _inside(mapper, workload, goal)
    try:
        found = search_space(architecture, space, goal, chosen, mapper.solver, inside or leg_rows)
    except InfeasibleError as problem:
        raise _with_way_out(problem, architecture, workload, mapper, goal, chosen)
    results = tuple(
        _result(architecture, workload, mapper.name, candidate, found.certificate, chosen, inside)
        for candidate in found.candidates[: max(top, 1)]
    )
    return Answer(results[0], results)


def _renamed(answer: Answer, goal: str) -> Answer:
    """The answer to the objective that orders mappings alike, under the name that was asked for."""

    def renamed(result: Result) -> Result:
        base = result.certificate.minimize
        note = f"{goal} orders mappings of one machine as {base} does, whose figures these are"
        note = f"{note}; {result.certificate.note}" if result.certificate.note else note
        return replace(result, certificate=replace(result.certificate, minimize=goal, note=note))

    return Answer(renamed(answer.result), tuple(map(renamed, answer.top)), tuple(map(renamed, answer.front)))


def _search_model(
    architecture: Architecture,
    workload: Workload,
    mapper: MapperSpec,
    goal: Objective,
    profile: ProfileSpec,
    top: int,
    limits: Mapping[str, float],
    front: Sequence[str],
) -> Answer:
    """A whole model: the search over training steps."""
    _check_homes(architecture, mapper)
    inside = leg_pricer(profile)
    laid_out = with_found_layouts(architecture, workload, mapper, profile, inside)
    space = build_step_space(laid_out, workload, architecture.used)
    try:
        found = search_steps(architecture, space, goal, profile, inside, top=top, limits=limits, front=front)
    except InfeasibleError as problem:
        raise _with_way_out_of_step(problem, architecture, workload, laid_out, profile, inside)

    def result(point: Point) -> Result:
        mapping = step_mapping(space, point, mapper.name, profile.name)
        return _step_result(architecture, workload, mapping, found.certificate, profile)

    results = tuple(result(point) for point in found.points)
    return Answer(results[0], results, tuple(result(point) for point in found.front))


def _with_way_out_of_step(
    problem: InfeasibleError, architecture: Architecture, workload: Workload, mapper: MapperSpec, profile: ProfileSpec, inside: LegPricer
) -> InfeasibleError:
    """The same answer with the smallest change that fits: more accelerators (at most 64 times as many), else more memory."""
    if problem.change or problem.unit != "byte":
        return problem
    change = f"{problem.resource}.capacity='{capacity_text(problem.need)}'"
    count = architecture.used * 2
    while count <= min(architecture.available, 64 * architecture.used):
        larger = architecture.model_copy(update={"accelerators": count})
        try:
            search_steps(larger, build_step_space(mapper, workload, count), "memory", profile, inside)
            change = f"accelerators={count} (now {architecture.used})"
            break
        except (InfeasibleError, InputError):
            count *= 2
    return InfeasibleError(
        problem.message, resource=problem.resource, need=problem.need, have=problem.have, unit=problem.unit, change=change
    )


def leg_pricer(profile: ProfileSpec) -> LegPricer:
    """What prices an operation inside an accelerator under a profile."""
    if profile.kernels == "measured":
        from rackmodel.cost.inside.kernels import kernel_rows

        return kernel_rows
    return leg_rows


def _step_result(
    architecture: Architecture, workload: Workload, mapping: MappingSpec, certificate: Certificate | None, profile: ProfileSpec
) -> Result:
    """Price one mapping of a model, with its ledger."""
    columns, plan, step = from_step_mapping(mapping, workload)
    plans = policy_plans(plan, step)
    offload = [step.offload] * len(plans)
    priced = price_group(architecture, workload, columns, plans, profile, leg_pricer(profile), step.algorithms, offload, step.host)
    if step.mixes:
        priced, made = mixed(priced, mixes_of(step, workload))
    else:
        made = made_cut(priced, step)
    point = exact_point(priced, step, profile, made)
    ledger = step_ledger(architecture, priced, point, profile)
    energy, latency = ledger.total("joules"), ledger.total("exposed_seconds")
    memory = fullest_device(priced, step, made)
    if certificate is None:
        note = "one mapping priced, nothing searched"
        certificate = Certificate("none", "latency", 1.0, 1, latency, latency, 0.0, profile=profile.name, note=note)
    return Result(
        architecture=architecture.name,
        workload=workload.name,
        mapper=mapping.name,
        latency_s=latency,
        energy_j=energy,
        carbon_g=operational_carbon_g(energy, architecture.site, grid_table()) if architecture.site is not None else None,
        memory_bytes_per_accelerator=math.fsum(memory.values()),
        mapping=mapping,
        certificate=certificate,
        ledger=ledger,
        memory=memory,
        extra={"step": priced, "point": point, **_known(architecture, workload)},
    )


def _known(architecture: Architecture, workload: Workload) -> dict[str, Any]:
    """What per-unit figures of a result take: the machine, its peak at the fastest of the widths that are multiplied, tokens of a step."""
    widths = {max(workload.tensors[a.tensor].bits for a in op.ins) for op in workload.ops.values() if op.kind.name == "einsum"}
    peak = max((architecture.peak_flop_per_s(bits) for bits in widths), default=0.0)
    tokens = {"tokens": tokens_of(workload)} if workload.sections else {}
    return {"machine": architecture, "accelerators": architecture.used, "peak_flop_per_s": peak, **tokens}


def _profile(asked: str | None, said: str | None) -> ProfileSpec:
    """The profile asked for, else the one the file says, else ideal."""
    if asked is None:
        return read_profile(said or "ideal")
    try:
        return read_profile(asked)
    except InputError as problem:
        raise problem.at(Where(f"--profile {asked}"))


def _with_way_out(
    problem: InfeasibleError, architecture: Architecture, workload: Workload, mapper: MapperSpec, goal: Objective, profile: ProfileSpec
) -> InfeasibleError:
    """The same answer with the smallest change that fits: more accelerators if that helps, else more memory."""
    if problem.change:
        return problem
    count = architecture.used * 2
    while count <= architecture.available:
        larger = architecture.model_copy(update={"accelerators": count})
        try:
            search_space(larger, mapspace(larger, workload, mapper), goal, profile, mapper.solver)
            change = f"accelerators={count} (now {architecture.used})"
            break
        except (InfeasibleError, InputError):
            count *= 2
    else:
        change = f"{problem.resource}.capacity='{capacity_text(problem.need)}'"
    return InfeasibleError(
        problem.message, resource=problem.resource, need=problem.need, have=problem.have, unit=problem.unit, change=change
    )


def mapspace(architecture: Architecture, workload: Workload, mapper: MapperSpec) -> Mapspace:
    """The mapspace of a mapper on the accelerators in use."""
    _check_homes(architecture, mapper)
    return build_mapspace(mapper, workload, architecture.used)


def _check_homes(architecture: Architecture, mapper: MapperSpec) -> None:
    """Raise InputError for a home at no level, or at one of which several instances are in use: nothing would sum their gradients."""
    for name, said in mapper.homes.items():
        for home in homes_of(said):
            if home.at is None:
                continue
            stores = [level.name for level in architecture.tree.walk() if level.memory is not None]
            if home.at not in stores:
                there = home.at in [level.name for level in architecture.tree.walk()]
                fact = f"'{home.at}' has no memory and cannot be a home" if there else f"no level called '{home.at}'"
                raise InputError(fact, path=f"homes.{name}.at", known=stores, given=home.at)
            below = architecture.available
            for level in architecture.above:
                below //= level.count
                if level.name == home.at and architecture.used > below:
                    count = -(-architecture.used // below)
                    fact = f"{count} of '{home.at}' are in use, and a weight has one home: name a level above, or `offload` a model's state"
                    raise InputError(fact, path=f"homes.{name}.at")


def evaluate(architecture: str, workload: str, mapping: str, *, sets: Sequence[str] = (), profile: str | None = None) -> Result:
    """Price a mapping file. Raises InputError where it contradicts the workload or the machine."""
    inputs: Inputs = read_inputs(architecture, workload, mapping=mapping, sets=sets)
    assert inputs.mapping is not None
    try:
        return evaluate_mapping(inputs.architecture, inputs.workload, inputs.mapping, profile=profile)
    except InputError as problem:
        raise inputs.place(problem)


def evaluate_mapping(architecture: Architecture, workload: Workload, mapping: MappingSpec, *, profile: str | None = None) -> Result:
    """Price one mapping."""
    check_mapping(architecture, workload, mapping)
    architecture = architecture.model_copy(update={"accelerators": mapping.accelerators})
    chosen = _profile(profile, mapping.profile)
    if workload.sections:
        return _step_result(architecture, workload, mapping, None, chosen)
    plan, degrees, strides = from_mapping(mapping, workload)
    inside = NestInside(InsideSpec(model="loopnest"), "latency", given=mapping.nests) if mapping.nests else None
    priced = price(architecture, workload, plan, [degrees], [strides], chosen, inside or leg_rows)
    latency = float(priced.latency[0])
    certificate = Certificate(
        "none", "latency", 1.0, 1, latency, latency, 0.0, profile=chosen.name, note="one mapping priced, nothing searched"
    )
    return _build(architecture, workload, mapping.name, plan, degrees, strides, priced, 0, certificate, chosen, inside)


def _result(
    architecture: Architecture,
    workload: Workload,
    name: str,
    candidate: Candidate,
    certificate: Certificate,
    profile: ProfileSpec,
    inside: NestInside | None,
) -> Result:
    mesh = candidate.mesh
    return _build(
        architecture,
        workload,
        name,
        candidate.plan,
        mesh.degrees,
        mesh.strides,
        candidate.priced,
        candidate.index,
        certificate,
        profile,
        inside,
    )


def _inside(mapper: MapperSpec, workload: Workload, goal: Objective) -> NestInside | None:
    """The loop-nest search of a mapper, None where it stays at the roofline. Raises InputError for rules of no operation."""
    for name in mapper.inside.rules:
        if name != "*" and name not in workload.ops:
            raise InputError(f"no operation '{name}'", path=f"inside.rules.{name}", known=["*", *workload.ops], given=name)
    if mapper.inside.model == "roofline":
        return None
    rules = {(workload.ops[name].out.tensor if name != "*" else "*"): said for name, said in mapper.inside.rules.items()}
    fused = []
    for number, pair in enumerate(mapper.inside.fuse):
        for name in pair.einsums:
            if name not in workload.ops:
                raise InputError(f"no operation '{name}'", path=f"inside.fuse.{number}.einsums", known=list(workload.ops), given=name)
        first, second = (workload.ops[name].out.tensor for name in pair.einsums)
        if workload.producer.get(first) not in pair.einsums or pair.einsums[1] not in workload.readers[first]:
            raise InputError(f"{pair.einsums[1]} does not read what {pair.einsums[0]} writes", path=f"inside.fuse.{number}.einsums")
        fused.append(Fused(first, second, tuple(pair.resident)))
    return NestInside(mapper.inside, goal, rules=rules, fused=fused)


def _build(
    architecture: Architecture,
    workload: Workload,
    name: str,
    plan: Plan,
    degrees: tuple[int, ...],
    strides: tuple[int, ...],
    priced: Priced,
    index: int,
    certificate: Certificate,
    profile: ProfileSpec,
    inside: NestInside | None,
) -> Result:
    ledger = priced.ledger.at(index)
    energy = ledger.total("joules")
    nests = _nests(architecture, priced, degrees, inside)
    mapping = to_mapping(plan, workload, degrees, strides, architecture.used, name, profile.name)
    if nests:
        mapping = mapping.model_copy(update={"nests": {key: nest.to_dict() for key, nest in nests.items()}})
        certificate = _with_nests(certificate, nests)
    return Result(
        architecture=architecture.name,
        workload=workload.name,
        mapper=name,
        latency_s=ledger.total("exposed_seconds"),
        energy_j=energy,
        carbon_g=operational_carbon_g(energy, architecture.site, grid_table()) if architecture.site is not None else None,
        memory_bytes_per_accelerator=float(priced.memory[index]),
        mapping=mapping,
        certificate=certificate,
        ledger=ledger,
        memory={what: float(size[index]) for what, size in priced.held.items()},
        extra={"priced": priced, "index": index, "nests": nests, **_known(architecture, workload)},
    )


def _nests(architecture: Architecture, priced: Priced, degrees: tuple[int, ...], inside: NestInside | None) -> dict[str, Nested]:
    """Contraction → its loop nest, in program order."""
    if inside is None:
        return {}
    legs = {nest_name(t.leg): t.leg for t in priced.program.tasks if t.leg is not None and t.leg.macs and t.leg.result is not None}
    return {name: inside.nest(architecture, leg, degrees) for name, leg in legs.items()}


def _with_nests(certificate: Certificate, nests: dict[str, Nested]) -> Certificate:
    """The certificate with those of the nests: the space multiplies, a gap inside is a gap of the whole."""
    sheets = {name: nest.certificate for name, nest in nests.items() if nest.certificate}
    if not sheets:
        return certificate
    space = certificate.space * math.prod(sheet["space"] for sheet in sheets.values())
    gap = max([certificate.gap, *(sheet["gap"] / (1 + sheet["gap"]) for sheet in sheets.values())])
    note = certificate.note
    if certificate.minimize == "edp" and len(sheets) > 1:
        bound = _edp_bound(nests)
        gap = max(gap, 1 - bound / certificate.objective) if certificate.objective > 0 else gap
        note = "each nest has its own least EDP; (ΣE)(ΣT) is at least (Σ sqrt(EDP))²"
    return replace(
        certificate,
        space=min(space, 1e300),
        evaluated=certificate.evaluated + sum(sheet["evaluated"] for sheet in sheets.values()),
        gap=gap if gap > 1e-9 else 0.0,
        bound=certificate.objective * (1 - gap) if gap > 1e-9 else certificate.bound,
        nests=sheets,
        note=note,
    )


def _edp_bound(nests: dict[str, Nested]) -> float:
    """Σ sqrt(EDP_i) squared: by Cauchy-Schwarz (ΣE)(ΣT) is at least that, whatever each nest chooses."""
    return float(sum(math.sqrt(nest.certificate["objective"]) for nest in nests.values()) ** 2)
