"""Fused regions on machines of which anything may be said, together: ports, links, waves, widths, atoms, what passes by, residents, rows.

`brute_region` runs a memory, a buffer and a row of units; here mappings are drawn, of divisors and of any tiles, and priced one by one.
"""

import contextlib
import random
from dataclasses import replace
from math import inf

import pytest

from rackmodel.errors import InfeasibleError
from rackmodel.nests import Region, solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine
from rackmodel.nests.region import RunningRows
from rackmodel.nests.region_mapping import price_region
from tests import samples
from tests.nests import four_members
from tests.nests.random_regions import region_mapping
from tests.nests.test_nest_regions import chain, crossed, gated, scores, summed

AIMS = (
    *(NestObjective(name, static_w=watts) for name in ("energy", "latency") for watts in (0.0, 0.7)),
    *(NestObjective("weights", *weights) for weights in ((2.0, 0.5), (0.0, 1.0), (1.0, 0.0))),
)
DRAWS = 120  # a third of them of any tiles


def fan(rng):
    if rng.random() < 0.45:
        return NestFan()
    linear = rng.random() < 0.25
    width, other = (rng.choice([None, None, 1, 2]) for _ in range(2))
    link = rng.choice([inf, inf, 0.5, 4.0])
    return NestFan(rng.choice([2, 2, 3, 4]), 1 if linear else rng.choice([1, 1, 2]), linear, width, other, rng.choice([0, 0.7]), link)


def levels(rng, words, names, silent):
    """Two or three memories. silent: of no joules."""
    joules = lambda *each: 0.0 if silent else rng.choice(each)  # noqa: E731
    found = [NestLevel("L0", None, joules(0, 3.0, 8.0), joules(1.0, 8.0), rng.choice([0.5, 2.0, inf]), rng.choice([None, None, 1.0]))]
    for number, shares in enumerate(((0.15, 0.9), (0.05, 0.4))[: rng.choice([1, 1, 2])], 1):
        keep = rng.choice([None, None, ()]) if number > 1 else None  # (a region's own memory keeps every tensor)
        bypass = tuple(rng.sample(names, len(names) // 3)) if number > 1 and keep is None and rng.random() < 0.4 else ()
        found.append(
            NestLevel(
                f"L{number}",
                rng.choice([None, *(16 * max(3, int(words * rng.uniform(*shares))) for _ in range(2))]),
                joules(0, 1.0, 2.0) / number,
                joules(0, 1.0, 2.0) / number,
                rng.choice([0.5, 2.0, 8.0, inf]),
                rng.choice([None, None, 1.0]),
                {n: rng.choice([8, 32]) for n in names if rng.random() < 0.2},
                rng.choice([1, 1, 2]),
                keep,
                bypass,
                fan(rng),
            )
        )
    return tuple(found)


def region(rng):
    """Two to four small members, with what may be said of them and of their machine."""
    make = rng.choice([scores, scores, chain, gated, crossed, summed, four_members.region])
    if make is four_members.region:
        one = make(rng)
        parts, held, running, between = one.members, one.held, one.running, one.between
    else:
        parts, held = make({r: rng.choice([1, 2, 2, 3] if make is scores else [1, 1, 2]) for r in "mpfjkn"})
        rows = RunningRows("A", "p", rng.choice([4, 64]), rng.choice([0.0, 5.0]), 1.0, (rng.choice([0.0, 3.0]), 0.5))
        running = (rows,) if make is scores and rng.random() < 0.6 else ()
        between = {name: (rng.choice([0.0, 4.0]), 2.0) for name in held if rng.random() < 0.4}
    names = sorted({t.name for p in parts for t in p.tensors})
    bits, density = {name: rng.choice([16, 16, 8, 32]) for name in names}, rng.choice([1.0, 1.0, 0.4])
    parts = tuple(replace(p, density=density, tensors=tuple(replace(t, bits=bits[t.name]) for t in p.tensors)) for p in parts)
    sizes = {r: n for p in parts for r, n in p.sizes.items()}
    silent = rng.random() < 0.1
    memories = levels(rng, sum(t.tile_words(p.sizes) for p in parts for t in p.tensors), names, silent)
    atom = {r: rng.choice([d for d in range(1, n + 1) if n % d == 0]) for r, n in sizes.items() if rng.random() < 0.15}
    compute = NestCompute(rng.choice([0.02, 0.2, 5.0]), 0.0 if silent else 0.5)
    own = ({r: n for r, n in atom.items() if r in p.sizes} for p in parts)
    one = Region(
        parts, tuple(NestMachine("m", memories, replace(compute, atom=leaf)) for leaf in own), held, running=running, between=between
    )
    stays = frozenset(rng.sample(sorted(one.outer), 1)) if rng.random() < 0.35 else frozenset()
    whole = frozenset(sorted(sizes) if rng.random() < 0.15 else rng.sample(sorted(sizes), rng.choice([0, 0, 1])))
    return replace(one, resident=stays, whole=whole)


def drawn(rng, one, aim, some, perfect):
    """The least key of mappings that are drawn, inf where none of them fits."""
    keys = []
    for _ in range(DRAWS // (1 if perfect else 3)):
        with contextlib.suppress(InfeasibleError):
            made = price_region(one, region_mapping(rng, one, some=some, perfect=perfect))
            keys.append(aim.key(made.energy_j, made.latency_s)[0])
    return min(keys, default=inf)


@pytest.mark.parametrize("seed", range(3, samples.cases(14, 240)))
def test_no_drawn_mapping_is_better_whatever_the_machine_says(seed):
    rng = random.Random(f"options {seed}")
    one, aim = region(rng), rng.choice(AIMS)
    some = len(one.members) > 2 and rng.random() < 0.5
    divisors = drawn(rng, one, aim, some, True)
    try:
        found = solve_region(one, objective=aim, around_some=some)
    except InfeasibleError:
        assert divisors == inf
        return
    sheet = found.certificate
    assert aim.key(found.energy_j, found.latency_s)[0] == pytest.approx(sheet.objective[0], rel=1e-9)
    assert sheet.proven
    assert sheet.objective[0] <= divisors * (1 + 1e-9)
    if len(one.members) == 2 and len(one.machines[0].levels) == 2:
        ragged = solve_region(one, objective=aim, factors="ceil", around_some=some).certificate
        assert ragged.objective[0] <= sheet.objective[0] * (1 + 1e-9)
        assert ragged.bound <= min(drawn(rng, one, aim, some, False), divisors) * (1 + 1e-9)
