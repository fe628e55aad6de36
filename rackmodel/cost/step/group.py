"""Prices a group of columns: every section's layer under every plan, and the hand-over between pipeline stages.

What comes out are the arrays that bounds of steps are composed of (bound), and memory; exact times are the clock's (exact).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from rackmodel.arrays import Array, Ints
from rackmodel.cost.program.fusion import fuse
from rackmodel.cost.program.tasks import Program
from rackmodel.cost.program.tied import tied_weights
from rackmodel.cost.step.bounds.bound import Sends
from rackmodel.cost.step.bounds.figures import SharedFigures, distinct_costs, figures, join
from rackmodel.cost.step.columns import Columns
from rackmodel.cost.step.cut import Cut, cut, cut_by_counts, even_cut
from rackmodel.cost.step.hand_overs import first_said, handed_alike, sends_of
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.layer_cost import LayerCost
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.offload import Copies, OffloadLevel, host_of, offloaded
from rackmodel.cost.step.tasks.pricer import Pricer
from rackmodel.model.mapping import HomeSpec
from rackmodel.model.plan import RESIDENT, Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.schedules import FOLDED
from rackmodel.model.workload import Section, Workload

MOST_HANDED_ON = 4_096  # columns whose tasks' prices are kept
FEW_COLUMNS, FEW_PLANS = 2048, 48  # of a group whose priced layers are kept


@dataclass(frozen=True, kw_only=True)
class Job:
    """A workload to be priced: on what, under which profile. host: the level that takes what is offloaded · programs: derived ones, which
    all that is priced shares · pools: where the machine has accelerators of several kinds, what each kind is priced in · layers: what
    priced layers on the same columns before, where searches of one job go on from each other; None = they do not."""

    setting: Setting
    workload: Workload
    profile: ProfileSpec
    host: str | None = None
    programs: dict[object, Program] = field(default_factory=dict, compare=False, repr=False)
    pools: tuple[Setting, ...] = ()
    layers: dict[object, LayerPricer] | None = field(default=None, compare=False, repr=False)

    def of_pool(self, number: int) -> Job:
        """The same on the accelerators of one kind."""
        return replace(self, setting=self.pools[number], pools=()) if self.pools else self


@dataclass(frozen=True, kw_only=True)
class GroupPrice:
    """sections: figures of each section's layer (of a cut below the layer: of each stage) · sends: of each plan · repeats, layers: of the
    sections · host_bytes: capacity of the host level for one accelerator · home: level → [plans] bytes of the model that live there ·
    staged: whether the plans cut below the layer · first: [plans] the first plan whose step is the same on every column · priced: what
    priced the layers, where they are few: exact steps go on from it · tasks: what priced the tasks of all columns, in `priced`'s place, and
    where these are among its own: prices of some of them go on from it."""

    columns: Columns
    sections: tuple[SharedFigures, ...]
    sends: Sends
    repeats: tuple[int, ...]
    layers: tuple[bool, ...]
    host_bytes: float
    home: dict[str, Array]
    first: Ints
    staged: bool = False
    priced: LayerPricer | None = field(default=None, compare=False, repr=False)
    tasks: tuple[Pricer, Ints] | None = field(default=None, compare=False, repr=False)

    def wider(self, columns: Ints) -> tuple[Pricer, Ints] | None:
        """What priced the tasks of some columns among others, and where they are among its own."""
        return None if self.tasks is None else (self.tasks[0], self.tasks[1][columns])

    def part(self, plans: Ints, columns: Ints) -> GroupPrice:
        """Of some plans on some columns."""
        return replace(
            self,
            columns=self.columns.pick(columns),
            sections=tuple(one.like(plans).columns(columns) for one in self.sections),
            sends=self.sends.plans(plans).columns(columns),
            home={level: size[plans] for level, size in self.home.items()},
            first=first_said(self.first[plans].tolist()),
            priced=None,
            tasks=self.wider(columns),
        )

    def cut(self, stages: int, chunks: int, layers: Sequence[int] = (), schedule: str = "1f1b") -> Cut | None:
        """The cut of a model: even (None where the layers do not divide), or as `layers` says. schedule: places the chunks."""
        folded = schedule in FOLDED
        if self.staged:
            return cut_by_counts(np.eye(len(self.sections), dtype=np.int64))
        if layers:
            return cut(self.repeats, self.layers, stages, chunks, tuple(layers), folded)
        return even_cut(self.repeats, self.layers, stages, chunks, folded)


def price_group(
    job: Job,
    columns: Columns,
    plans: Sequence[Plan],
    offload: Sequence[Sequence[str]] = (),
    pricing: type[LayerPricer] = LayerPricer,
    wider: tuple[Pricer, Ints] | None = None,
) -> GroupPrice:
    """Price every plan (all of the same axes and stages) on every column. offload: what each plan keeps at the host level · pricing:
    what prices a layer, or outlines it (outline) · wider: a pricer of these columns among others, and which of them they are."""
    offload = offload or [()] * len(plans)
    host = host_of(job.setting.architecture, job.host) if any(offload) else None
    parts = []
    for which in columns.pieces(pricing.at_once):
        among = None if wider is None else (wider[0], wider[1][which])
        parts.append(_piece(job, _layers(job, columns.pick(which), plans[0], pricing, among), plans, offload, host))
    if len(parts) == 1:
        return parts[0]
    sections = tuple(join([part.sections[x] for part in parts]) for x in range(len(parts[0].sections)))
    sends = {name: np.concatenate([getattr(part.sends, name) for part in parts], axis=1) for name in parts[0].sends.__dict__}
    first = first_said(list(zip(*(part.first.tolist() for part in parts), strict=True)))
    return replace(parts[0], columns=columns, sections=sections, sends=Sends(**sends), first=first, tasks=None, priced=None)


def _layers(job: Job, columns: Columns, plan: Plan, pricing: type[LayerPricer], among: tuple[Pricer, Ints] | None) -> LayerPricer:
    """What prices layers under plans of these axes and stages on some columns: the same as before, where the job keeps it."""
    known = job.layers if among is None and pricing is LayerPricer else None
    key = *map(id, (job.setting, job.workload, job.profile)), tuple(plan.stages.items()), columns.said  # which what is kept holds
    if known is not None and key in known:
        return known[key]
    pricer = Pricer(job.setting, job.workload, plan, columns, job.profile.buckets, among)
    found = pricing(pricer, job.workload, job.profile, job.programs)
    if known is not None:
        known[key] = found
    return found


def _piece(
    job: Job,
    layers: LayerPricer,
    plans: Sequence[Plan],
    offload: Sequence[Sequence[str]],
    host: OffloadLevel | None,
) -> GroupPrice:
    """At most PIECE columns."""
    pricer, columns = layers.pricer, layers.pricer.columns
    costs = [_costs(layers, section, plans) for section in job.workload.sections]
    by_section = [*costs]
    if host is not None:
        costs = [_offloaded(job, columns, own, offload, host) if own[0].section.layer else own for own in costs]
    staged = plans[0].stage_count > 1
    kept = layers.kept and len(columns) <= FEW_COLUMNS and len(plans) <= FEW_PLANS
    found = staged_figures(layers, costs[0], plans) if staged else _with_ties(layers, columns, plans, costs, by_section)
    return GroupPrice(
        columns=columns,
        sections=found,
        sends=sends_of(pricer, job.workload, plans, job.profile),
        repeats=tuple(one.repeat for one in found),
        layers=tuple(one.layer for one in found),
        host_bytes=host.capacity_bytes if host is not None else float("inf"),
        home=_at_home(job.workload, costs),
        first=_alike(job.workload, plans, offload, by_section) if layers.alike and not staged else np.arange(len(plans)),
        staged=staged,
        tasks=(pricer.handed_on(), np.arange(len(columns))) if not kept and len(columns) <= MOST_HANDED_ON else None,
        priced=layers if kept else None,
    )


def _offloaded(
    job: Job, columns: Columns, costs: Sequence[LayerCost], offload: Sequence[Sequence[str]], host: OffloadLevel
) -> tuple[LayerCost, ...]:
    """Costs of a layer with what each plan keeps at the host; plans that cost and keep the same share one."""
    known: dict[tuple[int, tuple[str, ...]], LayerCost] = {(id(cost), ()): cost for cost in costs}
    copies: Copies = {}
    for cost, what in zip(costs, map(tuple, offload), strict=True):
        if (id(cost), what) not in known:
            updated = "optimizer" in job.workload.phases
            known[id(cost), what] = offloaded(cost, what, host, columns, job.profile.host, updated=updated, copies=copies)
    return tuple(known[id(cost), tuple(what)] for cost, what in zip(costs, offload, strict=True))


def _alike(workload: Workload, plans: Sequence[Plan], offload: Sequence[Sequence[str]], by_section: Sequence[Sequence[LayerCost]]) -> Ints:
    """[plans] the first whose layers run one program, hand over and offload the same. by_section: what each section costs a plan."""
    sent = handed_alike(workload, plans)
    return first_said([(*map(id, own), *what) for *own, what in zip(*by_section, zip(sent, map(tuple, offload), strict=True), strict=True)])


def _with_ties(
    layers: LayerPricer,
    columns: Columns,
    plans: Sequence[Plan],
    costs: Sequence[Sequence[LayerCost]],
    by_section: list[tuple[LayerCost, ...]],
) -> tuple[SharedFigures, ...]:
    """Figures of every section. Where a model's ends share weights: on columns without a pipeline one device runs both, and their programs
    are others (cost/program/tied); what those cost joins `by_section`."""
    alone, rest = (np.flatnonzero(which) for which in (columns.stages == 1, columns.stages != 1))
    workload = layers.workload
    if not tied_weights(workload) or not len(alone) or not len(rest):
        return tuple(figures(own) for own in costs)
    own, back = layers.of_steps(together=True), np.argsort(np.concatenate([rest, alone]))

    def both(section: Section, apart: Sequence[LayerCost]) -> SharedFigures:
        together = _costs(own, section, plans)
        by_section.append(together)
        of, distinct = distinct_costs(apart, together)
        parts = figures([apart[n] for n in distinct]).columns(rest), figures([together[n] for n in distinct]).columns(alone)
        return join(parts).columns(back).like(of)

    return tuple(figures(one) if s.layer else both(s, one) for one, s in zip(costs, workload.sections, strict=True))


def staged_figures(layers: LayerPricer, costs: Sequence[LayerCost], plans: Sequence[Plan]) -> tuple[SharedFigures, ...]:
    """Each stage of a cut below the layer as a section of one layer."""
    section = costs[0].section
    found = []
    for stage in range(plans[0].stage_count):
        own = []
        for cost, plan in zip(costs, plans, strict=True):
            items = tuple(item for item in cost.items if item.task.stage == stage)
            held = [one for one in layers.program(section, plan_of(section, plan, layers.profile)).held if one.stage == stage]
            own.append(layers.gathered(section, items, held))
        found.append(figures(own, name=f"{section.name} {stage}", layer=True, repeat=1))
    return tuple(found)


def plan_of(section: Section, plan: Plan, profile: ProfileSpec) -> Plan:
    """The plan of a section: only layers are recomputed, and what a profile's kernels keep on the chip stays there."""
    return fuse(section.workload, plan if section.layer else replace(plan, recompute="none"), profile)


def _costs(layers: LayerPricer, section: Section, plans: Sequence[Plan]) -> tuple[LayerCost, ...]:
    """One cost a plan; plans that are the same to a section share it.

    A plan that both recomputes and shards its parameters is put together of one that does the first and one the second, where layouts have
    several of both: homes + policies are fewer than homes x policies.
    """
    known: dict[object, LayerCost] = {}
    each = {id(plan): plan for plan in plans}  # what is offloaded is no part of a plan: many variants have one
    several = _several_of_both(each.values())
    found = {
        one: _cost(layers, section, plan_of(section, plan, layers.profile), known, alone=plan.laid_out not in several)
        for one, plan in each.items()
    }
    return tuple(found[id(plan)] for plan in plans)


def _several_of_both(plans: Iterable[Plan]) -> frozenset[object]:
    """Layouts of which plans have several homes and several policies."""
    found: dict[object, tuple[set[object], set[str]]] = {}
    for plan in plans:
        homes, policies = found.setdefault(plan.laid_out, (set(), set()))
        homes.add(plan.at_home)
        policies.add(plan.recompute)
    return frozenset(key for key, (homes, policies) in found.items() if len(homes) > 1 and len(policies) > 1)


def _cost(layers: LayerPricer, section: Section, plan: Plan, known: dict[object, LayerCost], *, alone: bool) -> LayerCost:
    """One plan's, with what is known of others. (No closure that calls itself: its cycle would keep every row until one is looked for.)
    alone: whether it is priced by itself, not put together."""
    if plan.key not in known:
        homes = plan.homes.values()
        # what is run again needs weights once more that are streamed, or dropped meanwhile: no two plans to put together
        again = any(home.at or (plan.regather and home.param == "shard") for home in homes)
        plain = alone or plan.recompute == "none" or plan.stage_count > 1 or again
        plain = plain or plan.ahead < inf  # a weight that is gathered when it is needed holds the device
        device = plan if plain else replace(plan, homes=as_the_device_sees(plan.homes))
        if plain or device.key == plan.key:
            known[plan.key] = layers.layer(section, plan)
        else:
            state = _cost(layers, section, replace(plan, recompute="none"), known, alone=False)
            runs = _cost(layers, section, device, known, alone=False)
            both = "both", id(runs), id(state)  # which are in `known`, and stay
            if both not in known:
                same = _cost(layers, section, replace(device, recompute="none"), known, alone=False) is runs  # nothing is made again
                known[both] = state if same else runs.with_weights(state)
            known[plan.key] = known[both]
    return known[plan.key]


def as_the_device_sees(homes: Mapping[str, HomeSpec]) -> dict[str, HomeSpec]:
    """Homes under which operations cost the same: what matters to them is whether micro-batches add gradients up in place."""
    if all(home.grad == "replicate" for home in homes.values()):
        return {}
    each = {"grad": "shard", "state": "shard"}
    return {name: RESIDENT if h.grad == "replicate" else HomeSpec.model_validate({"axes": h.axes, **each}) for name, h in homes.items()}


def _at_home(workload: Workload, costs: Sequence[Sequence[LayerCost]]) -> dict[str, Array]:
    """Level → [plans] bytes of the whole model that live there, which no mesh changes."""
    levels = dict.fromkeys(level for own in costs for cost in own for level in cost.home)
    return {
        level: np.array(
            [
                sum(s.repeat * float(np.max(own[plan].home.get(level, 0.0))) for s, own in zip(workload.sections, costs, strict=True))
                for plan in range(len(costs[0]))
            ]
        )
        for level in levels
    }
