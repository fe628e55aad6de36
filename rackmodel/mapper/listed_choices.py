"""What a mapper lists for each choice: degrees and strides of its axes, policies, algorithms, homes, hosts, and what a layout says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rackmodel.cost.network.algorithms import ALGORITHMS
from rackmodel.errors import InputError
from rackmodel.mapper.rules import PARKED, divisors
from rackmodel.model.mapping import HomeSpec, MapperSpec, homes_of

PER_LAYER = ("none", "selective", "full")


def listed(said: int | list[int] | str) -> list[int]:
    """One number or several."""
    return [said] if isinstance(said, int) else [int(value) for value in said]


def words(said: str | Sequence[str]) -> list[str]:
    """One word or several."""
    return [said] if isinstance(said, str) else list(said)


def degrees_of(mapper: MapperSpec, names: Sequence[str], total: int, pipeline: str, layers: int) -> Iterator[dict[str, int]]:
    """Degrees of every axis whose product is `total`; a pipeline has at most as many stages as there are layers."""
    rests = [name for name in names if mapper.axes[name].degree == "rest"]
    if len(rests) > 1:
        raise InputError("only one axis can take the rest", path=f"axes.{rests[1]}.degree")
    open_axes = [name for name in names if name not in rests]
    most, found = max(1, layers), False

    def each(position: int, left: int, chosen: dict[str, int]) -> Iterator[dict[str, int]]:
        if position == len(open_axes):
            if rests:
                yield {name: chosen.get(name, left) for name in names}
            elif left == 1:
                yield {name: chosen[name] for name in names}
            return
        name = open_axes[position]
        said = mapper.axes[name].degree
        options = divisors(left) if said == "free" else [total] if said == "all" else listed(said)
        last = position == len(open_axes) - 1 and not rests
        for degree in [one for one in options if one == left] if last else options:
            if left % degree == 0 and not (name == pipeline and degree > most):
                yield from each(position + 1, left // degree, {**chosen, name: degree})

    for degrees in each(0, total, {}):
        if not pipeline or degrees[pipeline] <= most:
            found = True
            yield degrees
    if not found:
        said = ", ".join(f"{name}: {mapper.axes[name].degree}" for name in names) or "no axes"
        stages = f", with a layer a stage at least: the model has {layers}" if pipeline else ""
        raise InputError(f"no mesh of {total} accelerators: the product of the degrees ({said}) must be {total}{stages}", path="axes")


def strides_of(mapper: MapperSpec, names: Sequence[str], degrees: dict[str, int]) -> Iterator[dict[str, int]]:
    """Strides for every order the mapper allows, each distinct placement once: `outer` axes, then listed and free ones, then `inner`."""
    rank = {"outer": 0, None: 1, "inner": 2}
    fixed = sorted((n for n in names if mapper.axes[n].place != "free"), key=lambda n: rank.get(mapper.axes[n].place, 1))
    free = [n for n in names if mapper.axes[n].place == "free" and degrees[n] > 1]
    held = [n for n in fixed if degrees[n] > 1]
    for order in itertools.permutations([*held, *free]) if free else [tuple(held)]:
        ends = [rank.get(mapper.axes[n].place, 1) for n in order]
        if [n for n in order if n not in free] != held or ends != sorted(ends):
            continue
        stride, strides = 1, {}
        for name in reversed(order):
            strides[name] = stride
            stride *= degrees[name]
        yield {**dict.fromkeys(names, 1), **strides}


def policies_of(mapper: MapperSpec) -> list[str]:
    """The recompute policies a mapper allows."""
    return list(PER_LAYER) if mapper.recompute == "per layer" else words(mapper.recompute)


def algorithms_of(mapper: MapperSpec) -> list[str]:
    """The collectives' algorithms a mapper allows; `best` is all there are. Raises InputError for an unknown one."""
    said = words(mapper.algorithms)
    for name in said:
        if name != "best" and name not in ALGORITHMS:
            raise InputError(f"no algorithm called '{name}'", path="algorithms", known=["best", *ALGORITHMS], given=name)
    return list(ALGORITHMS) if "best" in said else said


def home_sets(mapper: MapperSpec) -> list[dict[str, HomeSpec]]:
    """Every combination of the homes a mapper lists."""
    lists = [
        [(name, home) for home in ([said] if isinstance(said, HomeSpec) else said)]
        for name, said in mapper.homes.items()
        if not isinstance(said, str)
    ]
    return [dict(combination) for combination in itertools.product(*lists)]


def parted(homes: dict[str, HomeSpec], hosts: frozenset[str]) -> tuple[dict[str, HomeSpec], tuple[str, ...]]:
    """(homes of weights, what is kept at a host instead). Raises InputError for a single weight at a host."""
    here: dict[str, HomeSpec] = {}
    parked: list[str] = []
    for name, home in homes.items():
        if name in PARKED and home.at is not None and (home.at in hosts or name != "weights"):
            parked.append(name)
        elif home.at in hosts:
            raise InputError("a host keeps all weights of its accelerators, or none", path=f"homes.{name}.at")
        elif name not in PARKED[1:]:
            here[name] = home
    return here, tuple(parked)


def host_named(mapper: MapperSpec, hosts: frozenset[str]) -> str | None:
    """The level at which a mapper keeps what is not streamed from one home. Raises InputError where it names two."""
    levels = dict.fromkeys([mapper.host] if mapper.host is not None else [])
    for name, said in mapper.homes.items():
        for home in homes_of(said):
            if home.at is not None and (home.at in hosts or name in PARKED[1:]):
                levels[home.at] = None
    if len(levels) > 1:
        raise InputError(f"two hosts, {' and '.join(map(str, levels))}: one level takes all that is kept there", path="homes")
    return next(iter(levels), None)


def laid_out(mapper: MapperSpec, said: object) -> MapperSpec:
    """The mapper with what one of its layouts says in place of its own words, of an operation or a tensor axis by axis."""
    update = {}
    for key in ("split", "choose", "boundary", "save"):
        value = getattr(said, key)
        if value:
            own = getattr(mapper, key)
            update[key] = {**own, **value} if isinstance(value, dict) and isinstance(own, dict) else value
        if value and key in ("choose", "boundary"):
            update[key] |= {name: {**own[name], **axes} for name, axes in value.items() if name in own}
    return mapper.model_copy(update=update)
