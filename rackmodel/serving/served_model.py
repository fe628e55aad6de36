"""A model as it is served: workload x machine x deployment x profile → seconds, joules and ledger of n steps at once.

    a pass of a stage    its layers on the clock (cost/step/clock/clock), every figure an array over the steps
    one stage            a step is that pass
    p stages             p batches are under way, each a p-th of the step's sequences, so that in a steady state every stage is busy as
                         long as the slowest: a step of all sequences is p passes of the slowest stage, hand-over included

Operations are priced by cost/inside, collectives by cost/network: what `rackmodel evaluate` says of the same workload file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, permutations
from typing import Any

import numpy as np

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.cost.inside.power import WAITING
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.ledger import Charge, Ledger
from rackmodel.cost.program.tasks import Task, Volume
from rackmodel.cost.step.clock.clock import StepJobs, step_seconds
from rackmodel.cost.step.group import plan_of
from rackmodel.cost.step.ledger import replica_static, static_powers
from rackmodel.cost.step.setting import Setting
from rackmodel.cost.step.tasks.drawn_longer import Slowed
from rackmodel.cost.step.tasks.items import Item
from rackmodel.cost.step.tasks.jobs import LayerPass, lanes_of, layer_passes
from rackmodel.cost.step.tasks.layers import LayerPricer
from rackmodel.cost.step.tasks.link_arrays import LinkArrays
from rackmodel.cost.step.tasks.pricer import Pricer, backing_level, link_rows
from rackmodel.cost.step.tasks.shared import Shared
from rackmodel.errors import InputError
from rackmodel.mapper.listed_choices import algorithms_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec
from rackmodel.model.plan import Plan
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Tensor, Workload
from rackmodel.once import once
from rackmodel.serving.beside_experts import runs_beside
from rackmodel.serving.replica import Replica, repeating, replica_of, serving_mapper
from rackmodel.serving.step_layers import (
    Programs,
    StepGraph,
    StepLayers,
    graphs_of,
    graphs_of_shared,
    graphs_repeated,
    serving_of,
    sized,
    sizings,
    stream_bytes,
    tokens_of_a_rank,
)
from rackmodel.serving.steps import Deployment, StepFigures, Steps, joined_figures
from rackmodel.setting import setting_of

FAR = 2.0**20
"""Tokens of a long sequence: a window is full, so that what one more costs is of the layers that see everything."""


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """workload: a decoder's step (`serving`) · architecture: the machine, of which one replica takes what its deployment says · others:
    further deployments of the same plan (of_one_plan), whose steps are priced together (Steps.mesh) · mapper: how axes lay out the model
    (mappers/serving.yaml) · reserved_bytes: of an accelerator's memory that the engine keeps for itself · fills: whether replicas like it
    fill the accelerators in use, so that it draws its share of what their nodes draw; else it is alone there · shared: plans and programs
    that models of this mapper and workload have in common."""

    workload: Workload
    architecture: Architecture
    deployment: Deployment = field(default_factory=Deployment)
    others: tuple[Deployment, ...] = ()
    profile: ProfileSpec
    mapper: MapperSpec = field(default_factory=serving_mapper)
    reserved_bytes: float = 0.0
    fills: bool = False
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)
    known: dict[str, tuple[_LaidOut, ...]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What models `under` profiles share; one that is made anew, by `replace` too, knows nothing."""

    # -- prices --------------------------------------------------------------------------------------------------------------

    def price(self, steps: Steps, captured: Bools | None = None) -> StepFigures:
        """Seconds, joules of all accelerators and ledger of n steps at once. captured: [n] those that run as graphs, which the host does
        not launch, None = none. Raises InputError for a negative count."""
        for name in ("decodes", "context", "prefill", "prompts", "before"):
            if not np.all(getattr(steps, name) >= 0):
                raise InputError(f"{name} must be numbers from 0 up", path=f"steps.{name}")
        if self.deployment.prompt_context == 1:
            return _PricedSteps(self, self.laid_out, steps, captured).figures()
        prompts = steps.prefill > 0
        found = []
        for laid_out, those in ((self.laid_out, prompts), (self.repeated, ~prompts)):
            if those.any():
                as_graph = None if captured is None else captured[those]
                found.append((those, _PricedSteps(self, laid_out, steps.at(those), as_graph).figures()))
        return joined_figures(found)

    def under(self, profile: ProfileSpec) -> ServedModel:
        """The same under a profile that differs in the host's times alone: it goes on from what is laid out here."""
        found = replace(self, profile=profile)
        object.__setattr__(found, "known", self.known)
        return found

    def waiting(self, seconds: Array, mesh: Array) -> list[Charge]:
        """Charges of accelerators that wait so many seconds [n] for the host between two steps."""
        return [self.host_charge(seconds), *self.static_charges(seconds, mesh)]

    def idling(self, seconds: Array, mesh: Array) -> list[Charge]:
        """Charges of what accelerators draw above static power while they wait so many seconds [n] for their host or for each other."""
        watts = self._waiting_watts(mesh)
        if not np.any(watts):
            return []
        joules, none = watts * seconds, np.zeros_like(seconds)
        return [Charge("forward", "", "", self.architecture.accelerator.name, "static", WAITING, joules, "joule", joules, seconds, none)]

    def held_up(self, rows: Sequence[Charge], seconds: Array, mesh: Array) -> list[Charge]:
        """Rows of steps that take so many seconds [n], with what accelerators draw while none of their kernels runs."""
        watts = self._waiting_watts(mesh)
        spared = sum((row.joules for row in rows if row.action == WAITING), np.zeros_like(seconds))
        waits = seconds + np.divide(spared, watts, out=np.zeros_like(seconds), where=watts > 0)
        return [*(row for row in rows if row.action != WAITING), *self.idling(np.maximum(waits, 0.0), mesh)]

    def _waiting_watts(self, mesh: Array) -> Array:
        """[n] W of all accelerators that wait, beside static power."""
        counts = np.array([float(one.accelerators) for one in self.deployments])
        return np.asarray(self.setting.waiting_watts * counts[mesh.astype(np.int64)])

    def host_charge(self, seconds: Array) -> Charge:
        """Of the host, for so many exposed seconds [n]."""
        name = self.setting.architecture.accelerator.name
        return Charge("forward", "", "", name, "compute", "host", 0.0, "flop", 0.0, seconds, seconds)

    def static_charges(self, seconds: Array, mesh: Array) -> list[Charge]:
        """Of what the machine draws for so many seconds [n], whatever it does. mesh: [n] deployments."""
        which, none = mesh.astype(np.int64), np.zeros_like(seconds)
        powers = [dict(self._static(one.accelerators)) for one in self.deployments]
        watts = {level: np.array([one.get(level, 0.0) for one in powers])[which] for level in dict.fromkeys(chain(*powers))}
        return [
            Charge("forward", "", "", level, "static", "static", own * seconds, "joule", own * seconds, seconds, none)
            for level, own in watts.items()
        ]

    def _static(self, accelerators: int) -> list[tuple[str, float]]:
        """(level, watts) of a replica of so many accelerators."""
        if self.fills:
            return replica_static(self.architecture, accelerators)
        return static_powers(self.architecture.model_copy(update={"accelerators": accelerators}))

    # -- memory --------------------------------------------------------------------------------------------------------------

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one more token of a long sequence takes on the fullest accelerator, in the mean over the ranks of sequences."""
        return float(self.kv_each[0])

    @cached_property
    def weights_each(self) -> Array:
        """The former of every deployment."""
        return self._held("weights", FAR)

    @cached_property
    def kv_each(self) -> Array:
        """The latter."""
        return (self._held("kv_cache", 2 * FAR, grown=FAR)) / FAR

    @property
    def stages_each(self) -> Array:
        """Pipeline stages of every deployment."""
        return np.array([float(one.pipeline) for one in self.deployments])

    @property
    def capacity_bytes(self) -> float:
        """Bytes of an accelerator's memory that the engine leaves to weights and caches."""
        memory = self.architecture.accelerator.memory
        capacity = memory.visible_bytes if memory is not None else None
        return (np.inf if capacity is None else capacity) - self.reserved_bytes

    def cache_bytes(self, context: float) -> float:
        """Bytes of a sequence of so many tokens on the fullest accelerator, windows and pages counted, in the mean over the ranks."""
        return float(self._held("kv_cache", context)[0])

    def held_each(self, tokens: Array) -> Array:
        """[deployments, n] bytes that a sequence of so many tokens [n] keeps on the fullest accelerator: whole pages of what grows, and of
        windows and states what they have by then."""
        kept = self._cached_tensors(tokens)
        each = np.zeros((len(self.workload.sections), len(self.deployments), len(tokens)))
        for x, shares in enumerate(self._kept):
            for name, share in shares.items():
                each[x] += np.multiply.outer(share, np.broadcast_to(kept[name].held_bytes, tokens.shape))
        return np.array([(cut.busy @ own).max(axis=0) for cut, own in zip(self.replica.cuts, each.transpose(1, 0, 2), strict=True)])

    @cached_property
    def _kept(self) -> list[dict[str, Array]]:
        """Of each section: what it keeps of a sequence → [deployments] share of its bytes on the fullest accelerator."""
        degrees = self.laid_out[0].pricer.degrees
        return [
            {name: volume.fullest(degrees) for name, volume in self._volumes(x, "kv_cache", lambda _: 1.0)}
            for x in range(len(self.workload.sections))
        ]

    def _cached_tensors(self, tokens: Array) -> Mapping[str, Tensor]:
        """Tensors of one sequence of so many tokens [n]."""
        serving, one = serving_of(self.workload), np.ones(len(tokens))
        return sized(self.workload, {serving.sequences: one, serving.new: one, serving.cached: tokens}).tensors

    def _held(self, what: str, context: float, grown: float = 0.0) -> Array:
        """[deployments] bytes of one sequence on the fullest accelerator. grown: tokens; what as many more take than a context without."""
        each = self._bytes(what, context) - (self._bytes(what, context - grown) if grown else 0.0)
        return np.array([float((cut.busy @ own).max()) for cut, own in zip(self.replica.cuts, each.T, strict=True)])

    def _bytes(self, what: str, context: float) -> Array:
        """[sections, deployments] bytes of a layer on an accelerator, of one sequence."""
        tensors = self._cached_tensors(np.full(1, float(context)))
        each = np.zeros((len(self.workload.sections), len(self.deployments)))
        for x in range(len(each)):
            for _, volume in self._volumes(x, what, lambda name: tensors[name].held_bytes):
                each[x] += volume.fullest(self.laid_out[0].pricer.degrees)
        return each

    def _volumes(self, section: int, what: str, bytes_of: Callable[[str], Any]) -> Iterator[tuple[str, Volume]]:
        """What a layer of a section holds, by tensor. bytes_of: of one sequence's tensor; weights are as they are."""
        serving = serving_of(self.workload)
        many = {serving.sequences, serving.new, serving.cached}
        own = self.laid_out[0]
        layers = LayerPricer(own.pricer, self.workload, self.profile, own.programs)
        for held in layers.program(self.workload.sections[section], own.plans[section]).held:
            if held.what == what:
                volume = held.volume
                if what != "weights":  # of many sequences, whose ranks have as many in the mean
                    cuts = tuple(cut for cut in volume.cuts if not many & set(cut[0]))
                    volume = replace(volume, total=bytes_of(held.tensor), cuts=cuts)
                yield held.tensor, volume

    # -- what all prices share -------------------------------------------------------------------------------------------------

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """All that it prices."""
        return (self.deployment, *self.others)

    @cached_property
    def replica(self) -> Replica:
        """Their meshes, plan and stages."""
        return self.laid_out[0].replica

    @property
    def laid_out(self) -> tuple[_LaidOut, ...]:
        """What a step runs, on the mesh: decodes and prompts in one graph, or each in its own."""
        if "laid out" not in self.known:
            graphs = graphs_of if self.deployment.prompt_context == 1 else graphs_of_shared
            self.known["laid out"] = tuple(self._laid_out(graph) for graph in graphs(self.workload))
        return self.known["laid out"]

    @property
    def repeated(self) -> tuple[_LaidOut, ...]:
        """What a step of decodes alone runs where ranks share out new tokens of prompts, which all have these."""
        return once(self.known, "repeated", lambda: tuple(self._laid_out(graph) for graph in graphs_repeated(self.workload)))

    def _laid_out(self, graph: StepGraph) -> _LaidOut:
        mapper = self.mapper
        if graph.repeats:
            mapper = self.shared.once((mapper, graph.workload), "repeating", lambda: repeating(self.mapper, graph.workload))
        replica = replica_of(mapper, graph.workload, self.deployments, self.shared)
        plans = tuple(plan_of(section, replica.plan, self.merging) for section in graph.workload.sections)
        pricer = Pricer(self.setting, graph.workload, replica.plan, replica.columns, self.profile.buckets)
        return _LaidOut(graph, replica, plans, pricer, self._programs(graph.workload, plans, pricer))

    def _programs(self, workload: Workload, plans: tuple[Plan, ...], pricer: Pricer) -> Programs:
        """Programs of the sections under plans, which models of any machine and profile that come to the same have in common."""
        known = self.shared.once((workload,), ("programs", backing_level(pricer.architecture)), list[tuple[tuple[Plan, ...], Programs]])
        found = next((programs for others, programs in known if others == plans), None)
        if found is None:
            found = {}
            known.append((plans, found))
        return found

    @cached_property
    def setting(self) -> Setting:
        """The machine in which it is priced, of the accelerators of its largest replica. Raises InputError where there are fewer."""
        count = max(one.accelerators for one in self.deployments)
        if count > self.architecture.available:
            fact = f"a replica of {count} accelerators, where {self.architecture.name} has {self.architecture.available}"
            raise InputError(fact, path="deployment")
        machine = self.architecture.model_copy(update={"accelerators": count})
        return setting_of(machine, self.merging, algorithms_of(self.mapper))

    @property
    def merging(self) -> ProfileSpec:
        """The profile, where all-reduces that are listed go on with a normalisation: not with ranks of attention data."""
        merged = self.profile.merged
        if merged.reductions != "listed" or self.deployment.attention_data == 1:
            return self.profile
        return self.profile.model_copy(update={"merged": merged.model_copy(update={"reductions": False})})


def without_launches(profile: ProfileSpec, captured: Bools | bool = True) -> ProfileSpec:
    """The profile where the host launches nothing of the steps that were captured as graphs [n]."""
    times = {name: np.where(captured, 0.0, getattr(profile.host, name)) for name in ("layer_s", "launch_s")}
    plain = {name: float(own) if own.ndim == 0 else own for name, own in times.items()}
    return profile.model_copy(update={"host": profile.host.model_copy(update=plain)})


@dataclass(frozen=True)
class _LaidOut:
    """A graph on the meshes. plans: of its sections · pricer: a column a deployment · programs: a layer of each section, derived once."""

    graph: StepGraph
    replica: Replica
    plans: tuple[Plan, ...]
    pricer: Pricer
    programs: Programs

    @property
    def plans_of(self) -> dict[str, Plan]:
        """The same by section."""
        return {section.name: plan for section, plan in zip(self.graph.workload.sections, self.plans, strict=True)}


class StepPricer(Pricer):
    """Prices tasks of n steps, whose meshes' links are asked once. meshes: of a column each · which: [n] the mesh of each step · prompts:
    [n] whether it has any."""

    def __init__(self, meshes: Pricer, which: Ints, prompts: Bools) -> None:
        super().__init__(meshes.setting, meshes.workload, meshes.plan, meshes.columns.pick(which), meshes.buckets)
        self.meshes, self.of, self._prompts = meshes, which, prompts

    @property
    def prompting(self) -> Bools:
        """As the steps say."""
        return self._prompts

    def algorithm(self, task: Task, name: str) -> LinkArrays:
        found = self.meshes.algorithm(task, name)
        return found if self.meshes.n == 1 else found.pick(self.of)


class _PricedSteps:
    """n steps of a model."""

    def __init__(self, model: ServedModel, laid_out: Sequence[_LaidOut], steps: Steps, captured: Bools | None) -> None:
        self.model, self.laid_out, self.n = model, laid_out, len(steps)
        self.profile = model.profile if captured is None else without_launches(model.profile, captured)
        which = steps.mesh.astype(np.int64)
        self.stages = model.stages_each[which]
        self.steps = replace(steps, **{name: getattr(steps, name) / self.stages for name in ("decodes", "prefill", "prompts")})
        shared = np.array([float(one.prompt_context) for one in model.deployments])[which]
        repeats = all(own.graph.repeats for own in laid_out)
        shared_out = None if repeats or model.deployment.prompt_context == 1 else shared
        ranks = np.array([float(one.attention_data) for one in model.deployments])[which]
        passes = sizings(self.steps, model.workload, ranks, shared_out)
        prompts = passes["chunks"].there
        beside = runs_beside(model.profile, laid_out[0].pricer.setting.calls, tokens_of_a_rank(passes, model.workload, ranks), captured)
        self.layers = [
            StepLayers(StepPricer(own.pricer, which, prompts), own.graph, self.profile, passes, own.programs, own.plans_of, beside)
            for own in laid_out
        ]
        for one, other in permutations(self.layers, 2):
            if one.workload is other.workload:
                one.walking |= dict.fromkeys(other.graph.walks, other)
        self.lanes = lanes_of(self.profile.overlap, hide=True)
        self.hide = 1.0 - self.profile.overlap.contention

    @cached_property
    def costs(self) -> tuple[tuple[Item, ...], ...]:
        """Priced tasks of one layer of each section: those of decodes, behind them those of prompts alone."""
        found = []
        for x in range(len(self.model.workload.sections)):
            items: list[Item] = []
            for own, layers in zip(self.laid_out, self.layers, strict=True):
                items += _behind(layers.items(own.graph.workload.sections[x], own.plans[x]), len(items))
            found.append(tuple(items))
        return tuple(found)

    def figures(self) -> StepFigures:
        """All of it."""
        seconds, busy = self._slowest()
        step = (seconds + self._send.seconds) * self.stages
        rows = [*self._task_rows(busy), *self._send_rows()]
        exposed = sum((row.exposed_seconds for row in rows), np.zeros(self.n))
        rows += self._waiting(step - exposed)
        rows = self.model.held_up(rows, step, self.steps.mesh)
        rows += self.model.static_charges(step, self.steps.mesh)
        joules = sum((row.joules for row in rows), np.zeros(self.n))
        return StepFigures(seconds=step, joules=np.asarray(joules), ledger=Ledger(tuple(rows)))

    def _slowest(self) -> tuple[Array, Array]:
        """[n] seconds of one batch's pass over the slowest stage of its pipeline, and [n, sections] that stage's layers."""
        seconds, busy = np.zeros(self.n), np.zeros((self.n, len(self._passes)))
        for cut in {cut.stages: cut for cut in self.model.replica.cuts}.values():
            own = self.stages == cut.stages
            kinds = np.array(list(dict.fromkeys(map(tuple, cut.counts.tolist()))))  # stages of equal layers take as long
            each = np.stack([self._stage_seconds(kind)[own] for kind in kinds])
            seconds[own], busy[own] = each.max(axis=0), kinds[each.argmax(axis=0)]
        return seconds, busy

    def _stage_seconds(self, counts: Ints) -> Array:
        """[n] seconds of one batch's pass over a stage of some layers of each section, by the clock."""
        none = np.zeros(self.n)
        jobs = StepJobs(
            sections=self._passes,
            counts=counts[None],
            schedule="1f1b",
            stages=1,
            chunks=1,
            micro_batches=1,
            backward=False,
            send_s=none,
            sends_overlap=False,
            update_s=tuple(none for _ in self._passes),
            tied_s=none,
        )
        return step_seconds(jobs) + none

    @cached_property
    def _passes(self) -> tuple[dict[str, LayerPass], ...]:
        return tuple(
            layer_passes([item.timed(self.hide) for item in items], self.profile, self.lanes, layer=section.layer, split=False)
            for section, items in zip(self.model.workload.sections, self.costs, strict=True)
        )

    # -- the ledger --------------------------------------------------------------------------------------------------------------

    def _task_rows(self, busy: Array) -> Iterator[Charge]:
        """Rows of every task: amounts and joules of all stages, seconds of the slowest. busy: [n, sections] its layers."""
        layers = self.model.replica.cuts[0].counts.sum(axis=0)  # however they are dealt
        slowed = Slowed(np.array([1]), self.profile.overlap.contention)
        for x, items in enumerate(self.costs):
            everywhere, here = float(layers[x]) * self.stages, busy[:, x] * self.stages
            longer = slowed.longer(self._passes[x], items) if np.any(slowed.contention) else {}
            for number, item in enumerate(items):
                times = item.priced.longer(longer[number]) if number in longer else {}
                shown = item.seconds if item.hidden is None else item.seconds - self.hide * item.hidden
                part = np.divide(shown, item.seconds, out=np.zeros(self.n), where=item.seconds > 0)
                if item.hidden is not None:  # beside another kernel it spares no waiting
                    times = {**times, WAITING: times.get(WAITING, 1.0) * part}
                part = part if item.role == "device" else np.zeros(self.n)
                for row in item.rows:
                    yield Charge(
                        "forward",
                        item.task.einsum,
                        row.tensor,
                        row.level,
                        row.component,
                        row.action,
                        row.amount * times.get(row.action, 1.0) * everywhere,
                        row.unit,
                        row.joules * times.get(row.action, 1.0) * everywhere,
                        row.seconds * here,
                        row.exposed * part * here,
                    )

    @cached_property
    def _send(self) -> _HandOver:
        """What a batch's hand-over to the next stage costs; nothing where there is one stage, or nothing to hand over."""
        none = np.zeros(self.n)
        if np.all(self.stages == 1) or not self.steps.tokens.any():
            return _HandOver(none, ())
        section = self.model.workload.first_layer
        assert section is not None
        layers = self.layers[0]
        mean, fullest = stream_bytes(section, self.model.replica.plan, layers.sized["tokens"], layers.pricer.degrees)
        rows = link_rows(layers.pricer.between_stages(far=False), mean, "stream", "send", fullest)
        return _HandOver(np.asarray(sum((row.exposed for row in rows), none)), tuple(rows))

    def _send_rows(self) -> Iterator[Charge]:
        crossings = (self.stages - 1) * self.stages
        for row in self._send.rows:
            figures = row.amount * crossings, "byte", row.joules * crossings, row.seconds * self.stages, row.exposed * self.stages
            yield Charge("forward", "", "stream", row.level, "network", "send", *figures)

    def _waiting(self, seconds: Array) -> list[Charge]:
        """Waiting for the host to launch a layer, and for what runs beside the device."""
        return [self.model.host_charge(np.maximum(seconds, 0.0))] if np.any(seconds > 1e-15) else []


def _behind(items: Sequence[Item], before: int) -> list[Item]:
    """Tasks that follow `before` others: their numbers move up."""
    if not before:
        return list(items)
    return [replace(one, task=replace(one.task, after=tuple(number + before for number in one.task.after))) for one in items]


@dataclass(frozen=True)
class _HandOver:
    """seconds: [n] of one · rows: its charges."""

    seconds: Array
    rows: Sequence[Row]
