"""Nothing fits: which resource, how much is needed, how much there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.errors import InfeasibleError
from rackmodel.mapper.limits import SYMBOLS, UNITS, Limits
from rackmodel.mapper.points import Point
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.room import Room, capacity_for, room_of
from rackmodel.units import byte_unit, bytes_text, capacity_text
from rackmodel.watch import Watch

_SMALL = (1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p")
_LARGE = (1e9, "G"), (1e6, "M"), (1e3, "k")
PREFIXES = {"s": _SMALL, "g": ((1e3, "k"), *_SMALL), "J": (*_LARGE, *_SMALL), "W": (*_LARGE, *_SMALL)}
"""Symbol → (scale, prefix) that a message takes, largest first; products and money have none."""


@dataclass(frozen=True)
class Nearest:
    """The point that lacks least. need: bytes on its fullest accelerator · host, host_have: bytes at the host, needed and there."""

    need: float
    point: Point
    host: float
    host_have: float

    @property
    def lacks(self) -> tuple[bool, float]:
        """Whether its host lacks room, and what it needs of that or of an accelerator's memory."""
        over = self.host > self.host_have
        return over, self.host if over else self.need


def home_misses(architecture: Architecture, home: Mapping[str, Array], plans: int) -> tuple[Bools, InfeasibleError | None]:
    """([plans] whether what lives above the accelerators fits its level's instances in use, why none does). home: level → [plans] bytes."""
    fits = np.ones(plans, dtype=bool)
    problem: InfeasibleError | None = None
    for level, need in home.items():
        have = home_bytes(architecture, level)
        fits &= need <= have
        if problem is None and not (need <= have).any():
            short = float(need.min())
            problem = InfeasibleError(
                f"memory: {level} needs {bytes_text(short)}, it has {bytes_text(have)}; short by {bytes_text(short - have)}",
                resource=f"{level}.memory",
                need=short,
                have=have,
                unit="byte",
                change=f"{level}.memory.capacity='{capacity_text(short / architecture.instances()[level])}'",
            )
    return fits, problem


def home_bytes(architecture: Architecture, level: str) -> float:
    """Bytes of a home and of all in use that are like it; what states none, or none that counts, has room for all."""
    memory = architecture.level(level).memory
    if memory is None or memory.capacity_bytes is None or not memory.enforce:
        return math.inf
    return memory.capacity_bytes * architecture.instances()[level]


def over_memory(name: str, need: float, room: Room, held: Mapping[str, float], *, limit: float | None = None) -> InfeasibleError:
    """One accelerator holds too much. held: bytes by what holds them · limit: bytes that were asked for, where they and not the room are
    in the way."""
    have = room.bytes if limit is None else limit
    unit = byte_unit(need)[0]
    parts = ", ".join(f"{what} {size / unit:.4g}" for what, size in held.items() if size)
    short = bytes_text(need - have)
    said = f"it has {room.text}" if limit is None else f"the limit is {bytes_text(have)}"
    message = f"memory: one {name} needs {bytes_text(need)} at least, {said} ({parts}); short by {short}"
    change = f"--limit memory='{capacity_text(need)}'" if limit is not None else ""
    return InfeasibleError(message, resource=f"{name}.memory", need=need, have=have, unit="byte", change=change)


def over_cuts(
    problem: InfeasibleError, kinds: Sequence[tuple[Architecture, float]], profile: ProfileSpec, limit: float, *, on: int = 0
) -> InfeasibleError:
    """No cut fits: the same answer with the memory that would do, where a limit or several kinds of accelerators are in the way. kinds: the
    machine of each kind and bytes that the nearest cut needs on one of its accelerators · limit: bytes that were asked for · on: the kind
    that is short."""
    most = max(need for _, need in kinds)
    change = [f"--limit memory='{capacity_text(most)}'"] if most > limit else []
    for machine, need in kinds if change or len(kinds) > 1 else ():
        if need > room_of(machine, profile).bytes:
            change.append(f"{machine.accelerator.name}.memory.capacity='{capacity_text(capacity_for(machine, profile, need))}'")
    return InfeasibleError(
        problem.message,
        resource=f"{kinds[on][0].accelerator.name}.memory",
        need=problem.need,
        have=problem.have,
        unit=problem.unit,
        change=" and ".join(change),
    )


def over_host(nearest: Nearest, level: str) -> InfeasibleError:
    """What is kept at the host, a level, does not fit there; need and have are of one accelerator."""
    message = f"memory: the host must keep {bytes_text(nearest.host)} for one accelerator, it has {bytes_text(nearest.host_have)}"
    return InfeasibleError(message, resource=f"{level}.memory", need=nearest.host, have=nearest.host_have, unit="byte")


def over_limit(limits: Limits, needs: Mapping[str, float], *, alone: bool, listed: bool) -> InfeasibleError:
    """No step keeps the limits. needs: limit → what its figure needs at least · alone: whether loosening any one of them would do (the one
    that has to grow least is named), or all of them together · listed: whether every step is a point of its own, of which the least power
    is known."""
    name = min(needs, key=lambda one: needs[one] / limits.most[one])
    need, have = needs[name], limits.most[name]
    others = " where the other limits are kept" if alone and len(limits.most) > 1 else ""
    least = "at least" if listed or name != "power" else "in the best layout tried"
    said = f"{name}: a step needs {limit_text(name, need)} {least}{others}, the limit is {limit_text(name, have)}"
    loosened = [name] if alone else list(needs)
    change = " ".join(f"--limit {one}='{limit_text(one, needs[one], above=True)}'" for one in loosened)
    message = f"{said}; short by {limit_text(name, need - have)}"
    return InfeasibleError(message, resource=name, need=need, have=have, unit=UNITS[name], change=change)


def over_latency(limits: Limits, watch: Watch, least: Callable[[], float]) -> InfeasibleError:
    """No step keeps a limit of latency: what it would have to be, or what else is in the way. least: seconds of the quickest step that
    keeps the other limits; raises InfeasibleError."""
    try:
        need = least()
    except InfeasibleError as problem:
        return problem
    return out_of_time(watch) if watch.stopped else over_limit(limits, {"latency": need}, alone=True, listed=True)


def over_limits(limits: Limits, least: Callable[[str, Limits], float | None], *, listed: bool) -> InfeasibleError:
    """What a limit would have to be: one alone where that does, else one after another, each as the ones before it leave it. least: of a
    limited figure under other limits; None where nothing keeps those · listed: as of `over_limit`."""
    most = limits.most
    needs = {name: least(name, limits.without(name)) for name in most}
    alone = {name: need for name, need in needs.items() if need is not None}
    if alone:
        return over_limit(limits, alone, alone=True, listed=listed)
    kept = limits.of({})
    grown: dict[str, float] = {}
    for name in most:
        need = least(name, kept)
        if need is None:
            return unknown(f"no step that was tried keeps the limits, nor is one known that keeps all but {name}")
        if need > most[name]:
            grown[name] = need
        kept = kept.of({**kept.most, name: max(need, most[name])})
    return over_limit(limits, grown, alone=False, listed=listed)


def limit_text(name: str, value: float, *, above: bool = False) -> str:
    """A limited figure with its unit, as an option reads it, in four digits. above: rounded up."""
    if name == "memory":
        return capacity_text(value) if above else bytes_text(value)
    symbol = SYMBOLS[name]
    scale, prefix = next((one for one in PREFIXES.get(symbol, ()) if value >= one[0]), (1.0, ""))
    value /= scale
    digits = 3 - math.floor(math.log10(value)) if value > 0 else 0
    rounded = math.ceil(value * (1 - 1e-12) * 10.0**digits) / 10.0**digits if above else value
    return f"{rounded:.{4 if rounded < 1e4 else 12}g} {prefix}{symbol}"


def unknown(why: str) -> InfeasibleError:
    """Nothing was found, and that there is nothing is not proven."""
    return InfeasibleError(f"{why}: that there is none is not proven", resource="mapping", need=1.0, have=0.0, unit="mapping")


def out_of_time(watch: Watch) -> InfeasibleError:
    """A time limit ended the search before anything was found."""
    return unknown(f"nothing found in the {watch.seconds:g} s of the time limit")


def no_point(why: Mapping[str, float]) -> InfeasibleError:
    """No point of the space can run at all."""
    each = (f"{reason} ({count:,.0f} {'point' if count == 1 else 'points'})" for reason, count in why.items())
    said = ", ".join(each) or "the space is empty"
    return InfeasibleError(f"no point of the space can run: {said}", resource="mapping", need=1.0, have=0.0, unit="point")
