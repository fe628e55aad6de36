"""The cost of a loop-nest mapping: reads and writes of every level and tensor, energy, time, utilisation.

U(l, T), words of T that enter level l, summed over instances = sum of T's tiles over every iteration of every loop
above its node. The parent p serves a fanout at once (multicast, reduction): it reads U with that fanout counted once
for ranks T lacks. Inputs: p reads, l writes. Output: l is drained (l reads U, p writes) and refilled (p reads,
l writes) except for fresh words: |C| per instance that accumulates its own copy. Energy = sum of bits x J/bit + MACs x
J/MAC + hops. Time of a level = bits / bandwidth of its fullest instance; time of the compute counts ceil cycles;
latency = the slowest. Link of a fan: what the fullest instance receives and drains, at one way of one link; a multicast
and a chain that adds put a word once on each link along the way.
A tensor at home in the cores (home_rules) has q cores for every word, one of which owns it: of U words that enter
working tiles U (q-1)/q arrive by a hop and a write (a count of cores visited, landing included, says q), owners read each
once a round. An output's partial sums are read in all q cores, added on the way, and written by the owner.
This is the definition: searchers count by word_terms, CP-SAT by tables, both are tested against it. Derivation:
docs/nest_theory.md, sections 1, 2, 6 and 9.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf, prod

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.home_rules import check_homes
from rackmodel.nests.mapping import NestMapping
from rackmodel.nests.mapping_check import check_mapping
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor
from rackmodel.nests.split_chains import Chains

READ, WRITE = 0, 1
Both = tuple[float, float]  # of all instances, of the fullest one


@dataclass(frozen=True)
class LevelTraffic:
    """Traffic of one tensor at one level: bits over all instances, and their energy."""

    level: str
    tensor: str
    read_bits: float
    write_bits: float
    energy_j: float


@dataclass(frozen=True)
class NestCost:
    """What a mapping costs. times_s: component → seconds (a level with two ports has one entry a port).

    used_bits: level → occupied bits per instance. hop_bits: level above a fan → tensor → bits times hops.
    utilisation: share of peak MACs/s over the latency.
    """

    energy_j: float
    latency_s: float
    times_s: dict[str, float]
    accesses: tuple[LevelTraffic, ...]
    compute_j: float
    hop_j: dict[str, float]
    hop_bits: dict[str, dict[str, float]]
    used_bits: dict[str, float]
    instances: dict[str, int]
    utilisation: float

    @property
    def edp(self) -> float:
        """Energy times latency, J s."""
        return self.energy_j * self.latency_s


def evaluate(
    problem: NestProblem,
    machine: NestMachine,
    mapping: NestMapping,
    resident: frozenset[str] = frozenset(),
    home: frozenset[str] = frozenset(),
) -> NestCost:
    """Cost of `mapping`, perfect or ragged. Errors: RackmodelError if it is malformed, InfeasibleError if it overflows.

    resident: tensors that live in level 1 and cause no traffic to level 0 (a fused intermediate, a tensor kept between
    einsums) · home: tensors at home in the cores, spread over them. Every result of a search is recounted with this
    function.
    """
    check_mapping(problem, machine, mapping)
    check_homes(problem, machine, home)
    chains = Chains(problem, machine, mapping)
    if any((1, name) not in chains.position for name in home):
        raise RackmodelError(f"{machine.levels[1].name} must store what is at home there: {', '.join(sorted(home))}")
    used = footprints(chains, home)
    counts = _counted(chains, resident | home, home)
    hop_j = {v.name: sum(counts.hop_bits[v.name].values()) * v.fan.hop_j_per_bit for v in machine.levels}
    times = _times(problem, machine, chains, counts)
    compute_j = machine.compute.joules(problem)
    accesses = counts.accesses()
    latency = max(times.values())
    peak = machine.units * machine.compute.macs_per_s * latency
    return NestCost(
        compute_j + sum(a.energy_j for a in accesses) + sum(hop_j.values()),
        latency,
        times,
        accesses,
        compute_j,
        hop_j,
        counts.hop_bits,
        used,
        {v.name: chains.instances(lv) for lv, v in enumerate(machine.levels)},
        problem.macs * problem.density / peak if 0 < peak < inf else 0.0,
    )


class _Counts:
    """Sums of bits: of all instances by (level, tensor), hops by (level above the fan, tensor); of the fullest instance by port
    and by link."""

    def __init__(self, machine: NestMachine) -> None:
        self.machine = machine
        self.bits: dict[tuple[int, str], list[float]] = {}
        self.port = [[0.0, 0.0] for _ in machine.levels]
        self.hop_bits: dict[str, dict[str, float]] = {v.name: {} for v in machine.levels}
        self.link = [0.0] * len(machine.levels)

    def move(self, tensor: NestTensor, level: int, kind: int, words: Both) -> None:
        """Reads or writes at a level."""
        width = self.machine.levels[level].bits(tensor)
        self.bits.setdefault((level, tensor.name), [0.0, 0.0])[kind] += words[0] * width
        self.port[level][kind] += words[1] * width

    def hop(self, tensor: NestTensor, fan: int, width: int, words: Both) -> None:
        """Words of `width` bits over the fan below a level."""
        carried = self.hop_bits[self.machine.levels[fan].name]
        carried[tensor.name] = carried.get(tensor.name, 0.0) + words[0] * width
        self.link[fan] += words[1] * width

    def accesses(self) -> tuple[LevelTraffic, ...]:
        """By level, then tensor, with the joules."""
        found = []
        for (level, name), (reads, writes) in sorted(self.bits.items(), key=lambda item: item[0][0]):
            v = self.machine.levels[level]
            found.append(LevelTraffic(v.name, name, reads, writes, reads * v.read_j_per_bit + writes * v.write_j_per_bit))
        return tuple(found)


def _counted(chains: Chains, inside: frozenset[str], home: frozenset[str]) -> _Counts:
    """Every transfer of every tensor; those `inside` never meet level 0."""
    counts, levels = _Counts(chains.machine), len(chains.machine.levels)
    for tensor in chains.problem.tensors:
        kept = [lv for lv in range(levels) if (lv, tensor.name) in chains.position and not (lv == 0 and tensor.name in inside)]
        for parent, child in zip(kept, [*kept[1:], levels], strict=True):
            for level, kind, words in _transfers(chains, tensor, parent, child):
                counts.move(tensor, level, kind, words)
            for fan, words in _hops(chains, tensor, parent, child):
                counts.hop(tensor, fan, chains.machine.levels[parent].bits(tensor), words)
        if tensor.name in home:
            reads, writes, hops = _at_home(chains, tensor)
            counts.move(tensor, 1, READ, reads)
            counts.move(tensor, 1, WRITE, writes)
            counts.hop(tensor, 0, chains.machine.levels[1].bits(tensor), hops)
    return counts


def _transfers(chains: Chains, tensor: NestTensor, parent: int, child: int) -> Iterator[tuple[int, int, Both]]:
    """(level, READ | WRITE, words) between parent and child."""
    for everywhere, fullest in zip(_moves(chains, tensor, parent, child, False), _moves(chains, tensor, parent, child, True), strict=True):
        yield everywhere[0], everywhere[1], (everywhere[2], fullest[2])


def _moves(chains: Chains, tensor: NestTensor, parent: int, child: int, fullest: bool) -> list[tuple[int, int, float]]:
    """(level, READ | WRITE, words) of one transfer: of all instances, or of the fullest one over all its waves."""
    stored = child < len(chains.machine.levels)
    depth = chains.position[child, tensor.name] if stored else chains.end
    at_parent, at_child = (frozenset(range(level)) if fullest else frozenset() for level in (parent, child))
    up, down = (chains.waves(parent), chains.waves(child)) if fullest else (1, 1)
    served = _served(chains, tensor, parent, child, depth, at_parent)
    entered = chains.words(tensor, depth, at_child, frozenset())
    if not tensor.is_output:
        return [(parent, READ, served * up), *([(child, WRITE, entered * down)] if stored else [])]
    found = [(parent, WRITE, served * up), (parent, READ, (served - chains.fresh(tensor, parent, at_parent)) * up)]
    if stored:
        found += [(child, READ, entered * down), (child, WRITE, (entered - chains.fresh(tensor, child, at_child)) * down)]
    return found


def _served(chains: Chains, tensor: NestTensor, parent: int, child: int, depth: int, first: frozenset[int]) -> float:
    """Words the parent moves: each fan between counts once for ranks the tensor lacks, up to its width.

    Beyond the width a fan takes words / width, but no fewer than one a group: parts that idle (of a ragged tile, or of one too
    small for all) are served nothing.
    """
    once: list[int] = []
    wide: list[tuple[int, int]] = []
    for f in range(parent, child):
        fan = chains.machine.levels[f].fan
        width = fan.reduction_width if tensor.is_output else fan.multicast_width
        level = chains.mapping.levels[f]
        copies = prod(level.spatial(r) for r in chains.problem.sizes if r not in tensor.ranks)
        if width is None or copies <= width:
            once.append(f)
        else:
            wide.append((f, width))
    found = 0.0
    for divided in product((True, False), repeat=len(wide)):
        whole = [f for (f, _), d in zip(wide, divided, strict=True) if not d]
        words = chains.words(tensor, depth, first, frozenset([*once, *whole]))
        found = max(found, words / prod(width for (_, width), d in zip(wide, divided, strict=True) if d))
    return found


def _hops(chains: Chains, tensor: NestTensor, parent: int, child: int) -> Iterator[tuple[int, Both]]:
    """(fan, words that cross it): every instance reached by fan f is one hop; fans below f
    are served at once."""
    depth = chains.end if child == len(chains.machine.levels) else chains.position[child, tensor.name]
    for f in range(parent, child):
        found = []
        for first in (frozenset(), frozenset(range(f + 1))):
            words = _served(chains, tensor, f + 1, child, depth, first)
            found.append(2 * words - chains.fresh(tensor, f + 1, first) if tensor.is_output else words)
        yield f, (found[0], found[1] * chains.waves(f + 1))


def _at_home(chains: Chains, tensor: NestTensor) -> tuple[Both, Both, Both]:
    """Reads, writes and hops in words of a tensor at home, each (of all cores, of the fullest core)."""
    shared, depth, fan = chains.sharers(tensor), chains.position[1, tensor.name], frozenset({0})
    if shared == 1:
        return (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)
    entered = chains.words(tensor, depth, frozenset(), frozenset()), chains.words(tensor, depth, fan, frozenset())
    owned = chains.words(tensor, depth, frozenset(), fan), entered[1] / shared
    hops = entered[0] - entered[0] / shared, entered[1] - entered[1] / shared
    if not tensor.is_output:
        return owned, hops, hops
    known = chains.fresh(tensor, 0, frozenset()), chains.ever(tensor) / shared
    return (entered[0] + owned[0] - known[0], entered[1] + owned[1] - known[1]), owned, hops


def _times(problem: NestProblem, machine: NestMachine, chains: Chains, counts: _Counts) -> dict[str, float]:
    times = {}
    for lv, v in enumerate(machine.levels):
        reads, writes = counts.port[lv]
        if v.write_bandwidth_bits_per_s is None:
            times[v.name] = (reads + writes) / v.bandwidth_bits_per_s
        else:
            times[f"{v.name} read"] = reads / v.bandwidth_bits_per_s
            times[f"{v.name} write"] = writes / v.write_bandwidth_bits_per_s
        if v.fan.link_bits_per_s < inf:
            times[f"{v.name} link"] = counts.link[lv] / v.fan.link_bits_per_s
    every = frozenset(range(len(machine.levels)))
    cycles = prod(chains.stats(r, chains.end, every)[0] * chains.leaf[r] for r in problem.sizes)
    waves = chains.waves(len(machine.levels))
    times[machine.compute.name] = cycles * waves * problem.density / machine.compute.macs_per_s
    return times


def footprints(chains: Chains, home: frozenset[str] = frozenset()) -> dict[str, float]:
    """Bits occupied per instance, by level; InfeasibleError where a capacity is exceeded."""
    used: dict[str, float] = {}
    for lv, (level, v) in enumerate(zip(chains.mapping.levels, chains.machine.levels, strict=True)):
        used[v.name] = 0.0
        for node in (n for n in level.nodes if n.tensor):
            tensor = chains.problem.tensor(node.tensor)
            words = v.buffers * tensor.tile_words(node.tile)
            if lv and node.tensor in home:
                ever = chains.ever(tensor)
                words = min(ever, -(-ever // chains.sharers(tensor)) + words)
            used[v.name] += v.bits(tensor) * words
        if v.capacity_bits is not None and used[v.name] > v.capacity_bits:
            raise InfeasibleError(
                resource=v.name,
                need=used[v.name],
                have=v.capacity_bits,
                unit="bits",
                change=f"a capacity of {used[v.name]:g} bits, or smaller tiles",
            )
    return used
