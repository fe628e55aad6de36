"""A priced step as a result: its figures, its mapping, its certificate and its ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rackmodel.carbon.bill import Bill, bill_of
from rackmodel.carbon.costing import cost_of, limit_w, updates
from rackmodel.carbon.job import CarbonRates, JobCarbon, Usage, carbon_rates
from rackmodel.carbon.life import life_carbon
from rackmodel.carbon.metrics import c2ep, cdp, ce2p, cep
from rackmodel.carbon.operational import carbon_g_per_j, operational_carbon_g
from rackmodel.carbon.ownership import Ownership
from rackmodel.carbon.ranges import factor
from rackmodel.carbon.run import tokens_of
from rackmodel.cost.inside.gpu import gpu_of, unmeasured
from rackmodel.cost.inside.nest_view import nest_name
from rackmodel.cost.inside.power import BUSY
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.ledger import Ledger
from rackmodel.cost.step.exact import ExactStep
from rackmodel.cost.step.ledger import static_watts, step_ledger, waiting_powers
from rackmodel.cost.step.occupancy import full_pipeline
from rackmodel.cost.step.repeated import repetitions, useful_flop
from rackmodel.inputs.carbon_tables import grids_of, tables_of
from rackmodel.mapper.nests.loop_nests import NestInside
from rackmodel.mapper.nests.nested import Nested
from rackmodel.model.architecture import Architecture
from rackmodel.model.certificate import Certificate
from rackmodel.model.embodied import BOUNDARIES, Boundary
from rackmodel.model.mapping import SAME_ORDER, MappingSpec
from rackmodel.model.misspelt import doubts_of
from rackmodel.model.result import Result
from rackmodel.model.room import room_of
from rackmodel.model.workload import Workload
from rackmodel.units import ends_of

HOT = 1.01
"""Times what an accelerator may draw, beyond which a result says so."""


def result_of(
    step: ExactStep,
    held: dict[str, float],
    mapping: MappingSpec,
    certificate: Certificate | None,
    mapper: str,
    warnings: tuple[str, ...] = (),
) -> Result:
    """The result of one mapping. held: bytes by what holds them on the fullest accelerator · certificate: of the search that found it ·
    warnings: what a reader must know of it."""
    architecture, workload = step.job.setting.architecture, step.job.workload
    warnings = (*doubts_of(workload), *unmeasured(step.job.profile, architecture), *warnings)
    ledger = step_ledger(step)
    energy, latency = ledger.total("joules"), ledger.total("exposed_seconds")
    warnings = (*warnings, *_too_hot(ledger, latency, step.job.profile.kernels == "peak", architecture))
    certificate = certificate or _priced_alone(latency, step.job.profile.name)
    inside = step.job.setting.inside
    nests = nests_of(step, inside)
    if nests and isinstance(inside, NestInside):
        warnings = (*warnings, *inside.apart(step.columns.degrees[0]))
        mapping = mapping.model_copy(update={"nests": {key: nest.to_dict() for key, nest in nests.items()}})
        certificate = _with_nests(certificate, nests, inside.widest_gap)
    certificate = _by_the_ledger(certificate, {"latency": latency, "energy": energy, "edp": latency * energy})
    tokens = float(tokens_of(workload)) if workload.weights else None
    return Result(
        architecture=architecture.name,
        workload=workload.name,
        mapper=mapper,
        latency_s=latency,
        energy_j=energy,
        carbon_g=operational_carbon_g(energy, architecture.site, grids_of(architecture)) if architecture.site is not None else None,
        memory_bytes_per_accelerator=math.fsum(held.values()),
        mapping=mapping,
        certificate=certificate,
        ledger=ledger,
        memory=held,
        machine=architecture,
        peak_flop_per_s=peak_flop_per_s(architecture, workload),
        tokens=tokens,
        nests=nests,
        useful_flop=useful_flop(step),
        repeated=repetitions(step),
        warnings=warnings,
        room_bytes=room_of(step.machines[step.fullest_pool], step.job.profile).limit,
        pipelined=full_pipeline(architecture, workload, ledger, tokens or 0.0) if len(step.machines) == 1 else None,
        waiting_w=sum(watts for _, watts in waiting_powers(step.job.setting, step.job.pools)),
    )


def _too_hot(ledger: Ledger, latency_s: float, at_peak: bool, machine: Architecture) -> Iterator[str]:
    """A sentence where accelerators of one kind draw more in the mean of a step than their file says they may, and nothing slows them.
    at_peak: whether operations run at peak rates, though they may have measured kernels."""
    if len(machine.pools) > 1 or not latency_s > 0:
        return
    accelerator, measured = machine.accelerator, gpu_of(machine) is not None
    own = accelerator.cost.power_w if accelerator.cost is not None else None
    most = limit_w(machine) if measured else None if own is None else ends_of(own)[1]
    if most is None or (measured and not at_peak):
        return
    watts = ledger.where(level=[level.name for level in accelerator.walk()]).total("joules") / latency_s / machine.used
    if watts > HOT * most:
        drawn = f"{accelerator.name} draws {watts:,.0f} W in the mean of the step, of {most:,.0f} W that it may"
        yield f"{drawn}: at peak rates nothing slows it"


def told_as(result: Result, goal: str, usage: Usage | None = None, fab: str = "act") -> Result:
    """The result under the objective that was asked for, where the search knows another that orders mappings alike: its certificate in
    grams, or in the metric's own unit where the machine says what it is made of. Raises InputError."""
    assert result.machine is not None
    sheet = sheet_told_as(result.certificate, result.machine, goal, usage, fab)
    return result if sheet is result.certificate else replace(result, certificate=sheet)


def sheet_told_as(sheet: Certificate, machine: Architecture, goal: str, usage: Usage | None = None, fab: str = "act") -> Certificate:
    """The same of a certificate."""
    if goal not in ("carbon", *SAME_ORDER):
        return sheet
    own = own_figure(goal, machine, usage or Usage(), fab)
    if goal in SAME_ORDER:
        note = f"{goal} orders mappings of one machine as {SAME_ORDER[goal]} does{'' if own else ', whose figures these are'}"
        sheet = replace(sheet, minimize=goal if own else sheet.minimize, note=f"{note}; {sheet.note}" if sheet.note else note)
    return sheet if own is None else sheet.under(own)


def own_figure(goal: str, machine: Architecture, usage: Usage, fab: str) -> Callable[[float], float] | None:
    """A figure of what orders mappings as it does; None where the machine does not say what it takes. Raises InputError."""
    if goal == "carbon":
        assert machine.site is not None
        grams = float(carbon_g_per_j(machine.site, grids_of(machine)))
        return lambda joules: grams * joules
    bill = known_bill(machine, fab, usage.boundaries)
    if bill is None or (goal == "edap" and not bill.area_m2.mid):
        return None
    made, area = bill.total_g(usage.boundaries).mid, bill.area_m2.mid
    known: dict[str, Callable[[float], float]] = {
        "cdp": lambda seconds: cdp(made, seconds),
        "cep": lambda joules: cep(made, joules),
        "c2ep": lambda joules: c2ep(made, joules),
        "ce2p": lambda joules: ce2p(made, joules),
        "edap": lambda product: product * area,
    }
    return known[goal]


def known_bill(machine: Architecture, fab: str = "act", boundaries: tuple[Boundary, ...] = BOUNDARIES) -> Bill | None:
    """The bill of materials of a machine; None where no level says what it is made of. Raises InputError."""
    if all(level.embodied is None for level in machine.tree.walk()):
        return None
    return bill_of(machine, tables_of(machine), fab, boundaries)


def rates_of(machine: Architecture, usage: Usage | None = None, fab: str = "act") -> CarbonRates | None:
    """Grams for each joule and second of a machine's jobs; None where it has no site. Raises InputError."""
    if machine.site is None:
        return None
    bill = known_bill(machine, fab, (usage or Usage()).boundaries)
    return carbon_rates(machine, bill, grids_of(machine), static_watts(machine), usage)


def carbon_of(result: Result, usage: Usage | None = None, fab: str = "act") -> JobCarbon | None:
    """What a step emits, in the shares of carbon/job; None where its machine has no site. Raises InputError."""
    rates = None if result.machine is None else rates_of(result.machine, usage, fab)
    if rates is None:
        return None
    job, without = rates.of(result.energy_j, result.latency_s), _left_out(result)
    return replace(job, basis={**job.basis, "without": without}) if without else job


def _left_out(result: Result) -> str:
    """What of a GPU's power at work a result's joules leave out, for no kernel is a measured one; '' where all that is known counts."""
    machine = result.machine
    gpu = gpu_of(machine) if machine is not None and len(machine.pools) == 1 else None
    if machine is None or gpu is None or not gpu.facts.busy_power_w or result.ledger.where(action=BUSY).total("joules"):
        return ""
    watts, name = float(gpu.facts.busy_power_w), machine.accelerator.name
    more = 100 * watts * machine.used * result.latency_s / result.energy_j
    return f"{watts:.0f} W of clocks of each {name} at work, at most {more:.0f} % of the energy more (profile {result.certificate.profile})"


def ownership_of(
    machine: Architecture, usage: Usage, *, fab: str = "act", respins: float | None = None, work: Result | None = None, copies: int = 1
) -> Ownership:
    """What owning a machine comes to in its life. respins: None = each year but the first, of chips that are engineered · work: a step
    of one copy of a workload, of which the machine runs `copies`: then its power and tokens are those; what all levels draw whatever they
    do is there once, of a node that copies share and of accelerators that none uses. Raises InputError."""
    times = float(updates(machine, usage)) if respins is None else float(respins)
    rate = None if work is None else throughput(work)
    watts = None
    if work is not None and rate is not None:
        doing = rate[0] * rate[1] - static_watts(work.machine or machine)
        watts = copies * doing + static_watts(machine)
    money = cost_of(machine, usage, respins=times, it_w=watts)
    bill = known_bill(machine, fab, usage.boundaries)
    carbon = None if bill is None or machine.site is None else life_carbon(machine, bill, money, grids_of(machine), usage.boundaries)
    tokens = None if rate is None else factor("lifetime", usage.lifetime_s) * factor("active share", usage.active) * (copies * rate[0])
    return Ownership(machine.name, money, carbon, tokens)


def throughput(work: Result) -> tuple[float, float] | None:
    """(tokens a second, joules a token) of a machine that does nothing else: with the pipeline full where its layers are wired, else step
    after step; None where a step has no tokens."""
    if work.pipelined is not None:
        return work.pipelined.tokens_per_s, work.pipelined.joules_per_token
    return None if not work.tokens else (work.tokens / work.latency_s, work.energy_j / work.tokens)


def _priced_alone(latency: float, profile: str) -> Certificate:
    return Certificate(
        solver="",
        minimize="latency",
        space=1.0,
        evaluated=1,
        objective=latency,
        bound=latency,
        gap=0.0,
        profile=profile,
        searched=False,
    )


def peak_flop_per_s(architecture: Architecture, workload: Workload) -> float:
    """Operations a second of all accelerators in use at the fastest of the widths that are multiplied."""
    widths = {max(workload.tensors[a.tensor].bits for a in op.ins) for op in workload.ops.values() if op.kind.name == "einsum"}
    return max((architecture.peak_flop_per_s(bits) for bits in widths), default=0.0)


def nests_of(step: ExactStep, inside: LocalPricer | None = None) -> dict[str, Nested]:
    """Contraction → its loop nest, in program order; empty at the roofline. inside: whose nests, if not the step's own."""
    inside = inside or step.job.setting.inside
    if not isinstance(inside, NestInside):
        return {}
    found = {}
    for cost in step.priced_layers:
        inside.prepare(item.task for item in cost.items)
        first = inside.firsts(step.job.setting.architecture, step.columns.degrees[0])
        for item in cost.items:
            local_op = item.task.local_op
            if local_op is not None and local_op.macs and local_op.result is not None:
                nest = inside.nest(step.job.setting.architecture, local_op, step.columns.degrees[0])
                kernel = [name for name, of in first.items() if of == first.get(local_op.result.name)]
                found[nest_name(local_op)] = replace(nest, kernel=tuple(kernel))
    return found


def _by_the_ledger(certificate: Certificate, figures: dict[str, float]) -> Certificate:
    """The certificate with a bound that is not above the ledger's sum by the rounding between that and the search's."""
    figure = figures.get(certificate.minimize, certificate.bound)
    return replace(certificate, bound=figure) if figure < certificate.bound <= figure * (1 + 1e-12) else certificate


def _with_nests(certificate: Certificate, nests: dict[str, Nested], widest: float) -> Certificate:
    """The certificate with those of the nests: the space multiplies, a gap inside is a gap of the whole. widest: gap of any nest of any
    mesh, for one that lost might be better than it was found."""
    sheets: dict[str, dict[str, Any]] = {name: nest.certificate for name, nest in nests.items() if nest.certificate}
    if not sheets:
        return certificate
    space = certificate.space * math.prod(sheet["space"] for sheet in sheets.values())
    gap = max(certificate.gap, widest)
    return replace(
        certificate,
        space=min(space, 1e300),
        evaluated=certificate.evaluated + sum(sheet["evaluated"] for sheet in sheets.values()),
        gap=gap if gap > 1e-9 else 0.0,
        bound=certificate.objective * (1 - gap) if gap > 1e-9 else certificate.bound,
        nests=sheets,
    )
