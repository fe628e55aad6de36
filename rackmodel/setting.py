"""What a step is priced in on a machine under a profile: its kernels, its links, its collective calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackmodel.cost.going_on import MostSummed
from rackmodel.cost.inside.roofline import LocalPricer, roofline_rows
from rackmodel.cost.network.algorithms import linked
from rackmodel.cost.network.calls import MachineCalls
from rackmodel.cost.step.setting import Setting
from rackmodel.errors import InputError
from rackmodel.inputs import machine_calls
from rackmodel.model.architecture import Architecture
from rackmodel.model.attention import KNOWN_KERNELS
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload


def settings_of(
    architecture: Architecture,
    workload: Workload,
    profile: ProfileSpec,
    algorithms: Sequence[str] = ("ring",),
    inside: LocalPricer | None = None,
) -> tuple[Setting, tuple[Setting, ...]]:
    """(what a workload's steps are priced in under a profile, where accelerators are of several kinds what those of each are). inside: in
    the place of the profile's own kernels. Raises InputError."""
    pools = architecture.pools
    if len(pools) == 1:
        return _in_step(architecture, workload, profile, algorithms, inside), ()
    whole = Setting(architecture=architecture, algorithms=tuple(algorithms))
    return whole, tuple(replace(_in_step(pool, workload, profile, algorithms, inside), pooled=True) for pool in pools)


def _in_step(
    architecture: Architecture, workload: Workload, profile: ProfileSpec, algorithms: Sequence[str], inside: LocalPricer | None
) -> Setting:
    """The same of accelerators of one kind."""
    found = setting_of(architecture, profile, algorithms, inside)
    return replace(found, inside=at_pace(found.inside, architecture, workload, profile))


def setting_of(
    architecture: Architecture, profile: ProfileSpec, algorithms: Sequence[str] = ("ring",), inside: LocalPricer | None = None
) -> Setting:
    """What a step is priced in under a profile. inside: in the place of the profile's own kernels. Raises InputError."""
    _check_attention(architecture, profile.attention_kernel)
    listed = profile.merged.reductions == "listed"
    calls = machine_calls(architecture, profile.collectives, going_on=listed)
    most = _most_summed(architecture, calls) if listed else None
    pricer = local_pricer(profile, most) if inside is None else inside
    return Setting(
        architecture=architecture,
        inside=amid_steps(pricer),
        algorithms=linked(architecture.tiers, algorithms),
        calls=calls,
        most_summed=most,
        variation=profile.variation,
        library=profile.library,
        links=profile.links,
    )


def amid_steps(inside: LocalPricer) -> LocalPricer:
    """What prices operations, as kernels of a step between which accelerators wait."""
    from rackmodel.cost.inside.kernels import KernelPricer

    return replace(inside, amid_steps=True) if isinstance(inside, KernelPricer) else inside


def at_pace(inside: LocalPricer, architecture: Architecture, workload: Workload, profile: ProfileSpec) -> LocalPricer:
    """What prices operations, at the pace of steps of training of a workload."""
    if profile.products != "fitted" or not workload.backward:
        return inside
    from rackmodel.cost.inside.kernels import KernelPricer
    from rackmodel.cost.step.tasks.pace import TrainedSteps, pace_of

    steps = TrainedSteps(inside=inside, architecture=architecture, workload=workload, profile=profile)
    return replace(inside, pace=pace_of(steps)) if isinstance(inside, KernelPricer) else inside


def _check_attention(architecture: Architecture, name: str | None) -> None:
    """Raise InputError for a kernel of attention that neither the machine nor the library knows."""
    if name is None or name in KNOWN_KERNELS:
        return
    every = [level.compute.kernels for level, _ in architecture.inside if level.compute is not None and level.compute.kernels is not None]
    rates = [rate.split() for facts in every for rate in facts.named]
    own = [*(one for facts in every for one in facts.attention), *(rate[2] for rate in rates if rate[0] == "attention" and len(rate) == 3)]
    if name not in own:
        fact = f"neither the machine nor the library knows the attention kernel '{name}'"
        raise InputError(fact, path="profile.attention_kernel", known=list(dict.fromkeys((*own, *KNOWN_KERNELS))), given=name)


def _most_summed(architecture: Architecture, calls: MachineCalls | None) -> MostSummed:
    """The largest all-reduces over the innermost network that go on with a normalisation, by members."""
    inner = calls.going_on.get(architecture.tiers[0].level) if calls is not None and architecture.tiers else None
    return () if inner is None else inner.most


def local_pricer(profile: ProfileSpec, most_summed: MostSummed | None = None) -> LocalPricer:
    """What prices an operation inside an accelerator under a profile. most_summed: of LocalOp.starts."""
    if profile.kernels != "peak":
        from rackmodel.cost.inside.kernels import KernelPricer, kernel_rows

        if profile.kernels == "fitted":
            merged = profile.merged
            return KernelPricer(
                fitted=True,
                attention=profile.attention_kernel,
                experts=profile.experts,
                quantised=frozenset(merged.quantisation),
                attending=merged.attended,
                writing=merged.written,
                shared=frozenset(merged.rows),
                most_summed=most_summed,
            )
        if profile.attention_kernel or profile.products == "fitted":
            return KernelPricer(attention=profile.attention_kernel, lasting=profile.products == "fitted")
        return kernel_rows
    return roofline_rows
