"""Searches with objects: a machine, a workload and a mapper → the best mappings, each with its ledger, and a certificate.

The question is read, what prices it is put together (`_job_of`), free layouts are found (`_space_of`), the space is searched
(mapper/in_order), and what was found is timed together and told (`_told`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from rackmodel.carbon.operational import carbon_g_per_j
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.step.exact import ExactStep, walk_together
from rackmodel.cost.step.group import Job
from rackmodel.cost.step.ledger import static_watts
from rackmodel.cost.step.tasks.offload import host_of
from rackmodel.cost.step.tasks.pricer import backing_level
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.cycles import rarely_looked_for
from rackmodel.errors import InfeasibleError, InputError, together
from rackmodel.evaluations import profile_of, running_on
from rackmodel.inputs.carbon_tables import grids_of, tables_of
from rackmodel.mapper.fronts import front_figures
from rackmodel.mapper.grid_axes import on_grid
from rackmodel.mapper.in_order import read_goals, search_in_order
from rackmodel.mapper.layouts.least_ops import LeastOperations
from rackmodel.mapper.layouts.settled import settled
from rackmodel.mapper.layouts.shortlist import FOUND_LATER, NOTE, with_all_columns, with_found_layouts
from rackmodel.mapper.layouts.worth import Worth
from rackmodel.mapper.limits import BLENDED, Limits, check_open_cut, read_limits
from rackmodel.mapper.listed_choices import algorithms_of, host_named
from rackmodel.mapper.listed_numbers import numbers_passed_over
from rackmodel.mapper.mapping import to_mapping
from rackmodel.mapper.mapping_check import check_home_level, handover_problems, hosts_of
from rackmodel.mapper.mapspace import Mapspace, build_mapspace
from rackmodel.mapper.nest_aims import aim_of
from rackmodel.mapper.nests.loop_nests import NestInside, nest_inside
from rackmodel.mapper.nests.words import check_nest_words
from rackmodel.mapper.objective import Objective
from rackmodel.mapper.points import Point, held_by
from rackmodel.mapper.pooled import check_pooled, fitting
from rackmodel.mapper.rules import stages_of
from rackmodel.mapper.search import Found, Question
from rackmodel.mapper.way_out import with_way_out
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import BEST_FOUND, PROVEN
from rackmodel.model.mapper_check import passed_over
from rackmodel.model.mapping import BLENDS, SAME_ORDER, MapperSpec, homes_of
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.results import result_of, sheet_told_as, told_as
from rackmodel.setting import amid_steps, at_pace, local_pricer, setting_of, settings_of
from rackmodel.watch import UNWATCHED, Watch

if TYPE_CHECKING:
    from rackmodel.carbon.job import Usage

MOST = 10_000
"""Mappings that a search returns at most: each comes with its ledger."""


@dataclass(frozen=True)
class Answer:
    """A search's answer: the best mapping, the best K, and the Pareto front if asked for. front_status: 'proven' where no point of it is
    missing, else 'best found' · step: of the best mapping, as the clock takes it · figures: what the front is of · bills: those of
    them that no result has, for they take the machine's bill, of each mapping of the front."""

    result: Result
    top: tuple[Result, ...]
    front: tuple[Result, ...] = ()
    front_status: str = PROVEN
    step: ExactStep | None = field(default=None, repr=False, compare=False)
    figures: tuple[str, ...] = ()
    bills: Mapping[str, Sequence[float]] = field(default_factory=dict, repr=False, compare=False)


@rarely_looked_for()
def search_mapper(
    architecture: Architecture,
    workload: Workload,
    mapper: MapperSpec,
    *,
    minimize: str | None = None,
    profile: str | ProfileSpec | None = None,
    top: int = 1,
    limits: Mapping[str, float | str] | None = None,
    front: Sequence[str] = (),
    usage: Usage | None = None,
    fab: str | None = None,
    watch: Watch = UNWATCHED,
    shared: Shared | None = None,
) -> Answer:
    """Search with objects. minimize: an objective, or several in order ('latency,energy') · top: how many mappings to return · limits:
    what no step may exceed: 'power' (W), 'memory' (bytes), 'latency' (s), 'energy' (J), 'carbon', 'total_carbon' (g), 'money' (usd),
    'edp', 'tcdp', numbers or text with a unit · front: figures of the Pareto front to return as well · usage, fab: lifetime, active share
    and fab data that carbon objectives assume · watch: time limit and progress · shared: what searches alike go on from.
    Raises InputError, InfeasibleError."""
    asked = _asked((architecture, workload, mapper), (minimize, profile, usage, fab), top, limits or {}, front, watch)
    tell = partial(told_as, usage=usage, fab=fab or "act")
    if len(architecture.pools) > 1:
        pooled, first = _search_pools(asked.architecture, asked.workload, asked.mapper, asked.profile, asked.question, asked.names)
        told = tuple(tell(one, asked.names[-1]) for one in pooled)
        return Answer(told[0], told, (), PROVEN, first)
    job, space, found, fronted, meshes = asked.found(shared or Shared())
    points = [(found, len(asked.goals) - 1, point) for point in found.points] + [(fronted, 0, point) for point in fronted.front]
    steps = _timed([(source, point) for source, _, point in points])
    warnings = (*passed_over(asked.mapper, asked.workload), *numbers_passed_over(meshes))
    common = _Common(job, asked.mapper.name, space, _offloads_to(architecture, asked.mapper), warnings)
    results = [
        tell(common.result(source, point, step, asked.goals[last]), asked.names[last])
        for (source, last, point), step in zip(points, steps, strict=True)
    ]
    best, members = tuple(results[: len(found.points)]), tuple(results[len(found.points) :])
    status = PROVEN if fronted.complete else BEST_FOUND
    return Answer(best[0], best, members, status, steps[0], tuple(front), _bills(asked.question.front, members))


@rarely_looked_for()
def best_objective(
    architecture: Architecture,
    workload: Workload,
    mapper: MapperSpec,
    *,
    minimize: str | None = None,
    profile: str | ProfileSpec | None = None,
    usage: Usage | None = None,
    watch: Watch = UNWATCHED,
    shared: Shared | None = None,
) -> float:
    """What `search_mapper`'s best comes to, as its certificate says; what its ledger needs is not computed. Raises InputError,
    InfeasibleError."""
    if len(architecture.pools) > 1:
        answer = search_mapper(architecture, workload, mapper, minimize=minimize, profile=profile, usage=usage, watch=watch, shared=shared)
        return answer.result.certificate.objective
    asked = _asked((architecture, workload, mapper), (minimize, profile, usage, None), 1, {}, (), watch)
    _, _, found, _, _ = asked.found(shared or Shared())
    return sheet_told_as(found.certificate, architecture, asked.names[-1], usage).objective


@dataclass(frozen=True)
class _Asked:
    """What is searched. names, goals: the objectives in order."""

    architecture: Architecture
    workload: Workload
    mapper: MapperSpec
    profile: ProfileSpec
    names: Sequence[str]
    goals: Sequence[Objective]
    question: Question

    def found(self, known: Shared) -> tuple[Job, Mapspace, Found, Found, Mapspace]:
        """What prices points, and then as `_found`. known: what searches alike go on from. Raises InputError, InfeasibleError."""
        check_open_cut(self.mapper, self.question.goal, self.question.limits)
        job = _job_of(self.architecture, self.workload, self.mapper, self.profile, self.question, known)
        on = self.architecture.used, hosts_of(self.architecture)
        _offloads_to(self.architecture, self.mapper)

        def space_of(spec: MapperSpec) -> Mapspace:
            return known.once((spec, self.workload), on, lambda: build_mapspace(spec, self.workload, *on))

        return job, *_found(job, self.mapper, self.question, self.goals, space_of)


def _asked(
    inputs: tuple[Architecture, Workload, MapperSpec],
    by: tuple[str | None, str | ProfileSpec | None, Usage | None, str | None],
    top: int,
    limits: Mapping[str, float | str],
    front: Sequence[str],
    watch: Watch,
) -> _Asked:
    """What `search_mapper` is asked, checked. by: its objectives, profile, usage and fab. Raises InputError."""
    architecture, minimize, profile, usage, fab = inputs[0], *by
    workload, mapper = running_on(architecture, inputs[1]), on_grid(inputs[2], architecture)
    chosen = profile_of(profile, mapper.profile)
    names = read_goals(minimize or mapper.minimize)
    objective = partial(objective_of, architecture=architecture, usage=usage, fab=fab)
    goals = [objective(name) for name in names]
    question = Question(
        goal=goals[0],
        top=_top(top),
        limits=_limits(limits, architecture, names, objective),
        front=[objective(name) for name in front_figures(front)],
        watch=watch,
    )
    _check_levels(architecture, workload, mapper)
    return _Asked(architecture, workload, mapper, chosen, names, goals, question)


def _job_of(
    architecture: Architecture, workload: Workload, mapper: MapperSpec, profile: ProfileSpec, question: Question, known: Shared
) -> Job:
    """What prices the points of a mapper on accelerators of one kind. known: what searches alike go on from."""
    inside = known.inside(_inside(architecture, mapper, workload, question, profile), architecture)
    setting = replace(setting_of(architecture, profile, algorithms_of(mapper), inside), ask=known.ask)
    host = host_named(mapper, hosts_of(architecture))
    programs = known.programs(workload, profile, mapper, backing_level(architecture))
    job = Job(setting=setting, workload=workload, profile=profile, host=host, programs=programs)
    if any("free" in split.values() for split in (mapper.split, *(said.split for said in mapper.layouts.values()))):
        return replace(job, layers={})  # spaces before and after layouts are found have most plans in common
    return job


def _offloads_to(architecture: Architecture, mapper: MapperSpec) -> str | None:
    """The level that takes what is offloaded, None where nothing is. Raises InputError for one that cannot."""
    name = host_named(mapper, hosts_of(architecture))
    return host_of(architecture, name).level if any(mapper.offload) or name is not None else None


def _found(
    job: Job, mapper: MapperSpec, question: Question, goals: Sequence[Objective], space_of: Callable[[MapperSpec], Mapspace]
) -> tuple[Mapspace, Found, Found, Mapspace]:
    """(the space, with the layouts that were found where they are free, the best points for the goals in order, what found the front, the
    space before layouts were settled, which has every mesh). space_of: the space of a mapper. Raises InputError, InfeasibleError."""
    worth = Worth(job, question, space_of)
    given = job.setting, job.workload, mapper, job.profile, question.goal, question.watch
    laid_out, free, every = with_found_layouts(*given, worth if len(goals) == 1 else None)
    meshes = space_of(laid_out)
    space = replace(meshes, note=NOTE if free else "")
    if free and len(goals) > 1:
        raise InputError("free choices are searched for one objective: fix them in `split` or `choose`", path="--minimize")
    try:
        if free:
            least = LeastOperations(job, space_of(every), free, question.watch, worth.seen)
            laid_out, question = settled(job, (laid_out, every), space_of, question, free, least)
            space = replace(space_of(laid_out), note=NOTE)
        found, fronted = search_in_order(job, space, question, goals)
        if isinstance(job.setting.inside, NestInside):
            job.setting.inside.check_room()
    except InfeasibleError as problem:
        raise with_way_out(problem, job, laid_out)
    return space, found, fronted, meshes


def _timed(asked: Sequence[tuple[Found, Point]]) -> list[ExactStep]:
    """The step of each point, side by side."""
    for source in dict.fromkeys(source.clocked for source, _ in asked):
        source.expect([point for of, point in asked if of.clocked is source])
    steps = [source.clocked.step(point) for source, point in asked]
    walk_together(steps)
    return steps


@dataclass(frozen=True)
class _Common:
    """What the results of a search have in common. host: the level that takes what is offloaded."""

    job: Job
    mapper: str
    space: Mapspace
    host: str | None
    warnings: tuple[str, ...]

    def result(self, source: Found, point: Point, step: ExactStep, goal: Objective) -> Result:
        """The result of a point. source: what found it · goal: for which."""
        group, priced = source.groups[point.group], source.prices[point.group]
        mapping = to_mapping(self.space, group, point, self.mapper, self.job.profile.name, self.host)
        sheet = source.certificate
        if point is not source.points[0]:
            sheet = sheet.of(point.value(goal))
        return result_of(step, held_by(point, priced, group), mapping, sheet, self.mapper, self.warnings)


def _bills(front: Sequence[Objective], members: Sequence[Result]) -> dict[str, list[float]]:
    """Figures of a front that no result has, for they take the machine's bill."""
    return {
        goal.name: [float(goal.value(one.latency_s, one.energy_j, one.memory_bytes_per_accelerator)) for one in members]
        for goal in front
        if goal.name in (*BLENDS, "money")
    }


def _search_pools(
    architecture: Architecture, workload: Workload, mapper: MapperSpec, profile: ProfileSpec, question: Question, names: Sequence[str]
) -> tuple[list[Result], ExactStep]:
    """The best mappings on accelerators of several kinds, and the step of the first. names: of the objectives."""
    from rackmodel.mapper.stages.pooled_search import search_pools  # of such machines alone, and slow to load

    if len(names) > 1:
        raise InputError("over accelerators of several kinds one objective is searched, latency", path="--minimize")
    check_pooled(architecture, mapper)
    setting, pools = settings_of(architecture, workload, profile, algorithms_of(mapper))
    job = Job(setting=setting, workload=workload, profile=profile, pools=pools)
    space = build_mapspace(mapper, workload, architecture.used, hosts_of(architecture))
    if space.problems:
        raise InputError("over accelerators of several kinds layouts are fixed in `split` or `choose`, not free", path="split")
    found = search_pools(job, space, question)
    kinds = [pool.accelerator.name for pool in architecture.pools]
    warnings = (*passed_over(mapper, workload), *numbers_passed_over(fitting(architecture, space)))
    walk_together(found.steps)
    results = []
    for point, step in zip(found.points, found.steps, strict=True):
        mapping = to_mapping(space, found.groups[point.group], point, mapper.name, profile.name, kinds=kinds)
        sheet = found.certificate if point is found.points[0] else found.certificate.of(point.seconds)
        results.append(result_of(step, step.fullest[1], mapping, sheet, mapper.name, warnings))
    return results, found.steps[0]


def _top(count: int) -> int:
    """How many mappings to return. Raises InputError."""
    if not 1 <= count <= MOST:
        raise InputError(f"{count} mappings: want 1 to {MOST}, each comes with its ledger", path="--top")
    return count


def _limits(
    said: Mapping[str, float | str], architecture: Architecture, goals: Sequence[str], objective: Callable[[str], Objective]
) -> Limits:
    """What no step may exceed. goals: carbon may become a limit · objective: by name. Raises InputError for an unknown one, for carbon
    without a site and money without a price."""
    most = read_limits(said)
    blends = {name: objective(name) for name in most if name in BLENDED}
    if "carbon" not in (*most, *goals[:-1]):
        return Limits(most, blends=blends)
    if architecture.site is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="--limit")
    return Limits(most, float(carbon_g_per_j(architecture.site, grids_of(architecture))), blends)


def objective_of(name: str, architecture: Architecture, usage: Usage | None = None, fab: str | None = None) -> Objective:
    """The objective called `name` on a machine. Raises InputError where it needs a site."""
    if name in ("carbon", *BLENDS) and architecture.site is None:
        raise InputError("carbon needs a site: {grid, pue} in the architecture", path="site")
    if name in BLENDS:
        from rackmodel.carbon.assess import carbon_weights  # of bills alone, and slow to load
        from rackmodel.carbon.bill import bill_of
        from rackmodel.carbon.job import Usage

        bill = bill_of(architecture, tables_of(architecture), fab or "act", (usage or Usage()).boundaries)
        return Objective(name, *carbon_weights(architecture, bill, grids_of(architecture), static_watts(architecture), usage))
    if name == "money":
        from rackmodel.carbon.costing import money_weights

        return Objective(name, *money_weights(architecture, usage))
    return Objective(SAME_ORDER.get(name, name))


def _inside(architecture: Architecture, mapper: MapperSpec, workload: Workload, question: Question, profile: ProfileSpec) -> LocalPricer:
    """What prices an operation inside an accelerator: a mapper's loop nests, else as the profile says."""
    if mapper.inside.model == "roofline":
        asked = mapper.inside.model_fields_set - {"model"}
        if asked:
            raise InputError(f"'{min(asked)}' is of loop nests: say model: loopnest", path=f"inside.{min(asked)}")
        return at_pace(amid_steps(local_pricer(profile)), architecture, workload, profile)
    if profile.kernels != "peak":
        said = f"profile '{profile.name}' has {profile.kernels} kernels, which are no loop nests: say one of the two"
        raise InputError(said, path="inside.model")
    if profile.merged.projections:
        said = f"profile '{profile.name}' has products of one operand merged, which are no loop nest of an operation: say one of the two"
        raise InputError(said, path="inside.model")
    if any(tensor.crowded for tensor in workload.tensors.values()):
        raise InputError("a loop nest knows no accelerator whose experts are chosen most: say no `imbalance`", path="inside.model")
    inside = nest_inside(mapper, workload, aim_of(question.goal, static_watts(architecture), architecture.used), question.watch)
    check_nest_words(architecture, workload, mapper.inside.rules)
    return inside


def mapspace(architecture: Architecture, workload: Workload, mapper: MapperSpec) -> Mapspace:
    """The mapspace of a mapper on the accelerators in use. Of a model's free layouts, which a search finds before it builds the
    space, it has every column, and says so in its note. Raises InputError for what a search refuses before it searches."""
    workload, mapper = running_on(architecture, workload), on_grid(mapper, architecture)
    _check_levels(architecture, workload, mapper)
    algorithms_of(mapper)
    if len(architecture.pools) > 1:
        check_pooled(architecture, mapper)
    else:
        profile = profile_of(None, mapper.profile)
        _inside(architecture, mapper, workload, Question(goal=Objective("latency")), profile)
        _offloads_to(architecture, mapper)
    counted = with_all_columns(mapper, workload, named=True)
    space = build_mapspace(counted, workload, architecture.used, hosts_of(architecture))
    return space if counted is mapper else replace(space, note=FOUND_LATER)


def _check_levels(architecture: Architecture, workload: Workload, mapper: MapperSpec) -> None:
    """Raise InputError for a home at no level that has a memory, or a hand-over through none that all stages share."""
    problems = list(handover_problems(architecture, workload, mapper.handover, stages_of(mapper, workload))) if mapper.handover else []
    if problems:
        raise together(problems)
    for name, said in mapper.homes.items():
        for number, home in enumerate(homes_of(said)):
            if home.at is not None:
                which = f".{number}" if isinstance(said, list) else ""
                check_home_level(architecture, home.at, f"homes.{name}{which}.at")
