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
docs/loop_nests.md, sections 1, 2, 6 and 9.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.nests.home_rules import check_homes
from rackmodel.nests.mapping import NestMapping, entry_tiles
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor
from rackmodel.nests.split_chains import Chains

READ, WRITE = 0, 1
Both = tuple[float, float]  # of all instances, of the fullest one


@dataclass(frozen=True)
class Access:
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
    accesses: tuple[Access, ...]
    compute_j: float
    hop_j: dict[str, float]
    hop_bits: dict[str, dict[str, float]]
    used_bits: dict[str, float]
    instances: dict[str, int]
    utilisation: float

    @property
    def edp(self) -> float:
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
    inside = resident | home
    used = footprints(chains, home)
    levels = len(machine.levels)
    bits = {(lv, t.name): [0.0, 0.0] for lv in range(levels) for t in problem.tensors}  # all instances
    port = {lv: [0.0, 0.0] for lv in range(levels)}  # fullest instance
    hop_bits: dict[str, dict[str, float]] = {v.name: {} for v in machine.levels}
    link = [0.0] * levels  # fullest instance
    for tensor in problem.tensors:
        kept = [lv for lv in range(levels) if (lv, tensor.name) in chains.position and not (lv == 0 and tensor.name in inside)]
        for parent, child in zip(kept, [*kept[1:], levels], strict=True):
            for lv, k, everywhere, fullest in _transfers(chains, tensor, parent, child):
                width = machine.levels[lv].bits(tensor)
                bits[lv, tensor.name][k] += everywhere * width
                port[lv][k] += fullest * width
            for f, words, fullest in _hops(chains, tensor, parent, child):
                width = machine.levels[parent].bits(tensor)
                carried = hop_bits[machine.levels[f].name]
                carried[tensor.name] = carried.get(tensor.name, 0.0) + words * width
                link[f] += fullest * width
        if tensor.name in home:
            width = machine.levels[1].bits(tensor)
            reads, writes, hops = _at_home(chains, tensor)
            for k, (everywhere, fullest) in ((READ, reads), (WRITE, writes)):
                bits[1, tensor.name][k] += everywhere * width
                port[1][k] += fullest * width
            hop_bits[machine.levels[0].name][tensor.name] = hops[0] * width
            link[0] += hops[1] * width
    accesses = tuple(
        Access(machine.levels[lv].name, name, r, w, r * machine.levels[lv].read_j_per_bit + w * machine.levels[lv].write_j_per_bit)
        for (lv, name), (r, w) in bits.items()
        if (lv, name) in chains.position and not (lv == 0 and name in inside)
    )
    hop_j = {v.name: sum(hop_bits[v.name].values()) * v.fan.hop_j_per_bit for v in machine.levels}
    times = _times(problem, machine, chains, port, link)
    compute_j = problem.macs * problem.density * machine.compute.j_per_mac
    energy = compute_j + sum(a.energy_j for a in accesses) + sum(hop_j.values())
    latency = max(times.values())
    peak = machine.units * machine.compute.macs_per_s * latency
    return NestCost(
        energy,
        latency,
        times,
        accesses,
        compute_j,
        hop_j,
        hop_bits,
        used,
        {v.name: chains.instances(lv) for lv, v in enumerate(machine.levels)},
        problem.macs * problem.density / peak if 0 < peak < inf else 0.0,
    )


def _transfers(chains: Chains, tensor: NestTensor, parent: int, child: int) -> Iterator[tuple[int, int, float, float]]:
    """(level, READ | WRITE, words of all instances, words of the fullest instance) between parent and child."""
    for everywhere, fullest in zip(_moves(chains, tensor, parent, child, False), _moves(chains, tensor, parent, child, True), strict=True):
        yield *everywhere, fullest[2]


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
    """Words the parent moves: each fan between counts once for ranks the tensor lacks, up to its width."""
    once, divide = set(), 1
    for f in range(parent, child):
        fan = chains.machine.levels[f].fan
        width = fan.reduction_width if tensor.is_output else fan.multicast_width
        level = chains.mapping.levels[f]
        copies = prod(level.spatial(r) for r in chains.problem.sizes if r not in tensor.ranks)
        if width is None or copies <= width:
            once.add(f)
        else:
            divide *= width
    return chains.words(tensor, depth, first, frozenset(once)) / divide


def _hops(chains: Chains, tensor: NestTensor, parent: int, child: int) -> Iterator[tuple[int, float, float]]:
    """(fan, words that cross it, those of the fullest instance): every instance reached by fan f is one hop; fans below f
    are served at once."""
    depth = chains.end if child == len(chains.machine.levels) else chains.position[child, tensor.name]
    for f in range(parent, child):
        found = []
        for first in (frozenset(), frozenset(range(f + 1))):
            words = _served(chains, tensor, f + 1, child, depth, first)
            found.append(2 * words - chains.fresh(tensor, f + 1, first) if tensor.is_output else words)
        yield f, found[0], found[1] * chains.waves(f + 1)


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


def _times(
    problem: NestProblem, machine: NestMachine, chains: Chains, port: Mapping[int, Sequence[float]], link: Sequence[float]
) -> dict[str, float]:
    times = {}
    for lv, v in enumerate(machine.levels):
        reads, writes = port[lv]
        if v.write_bandwidth_bits_per_s is None:
            times[v.name] = (reads + writes) / v.bandwidth_bits_per_s
        else:
            times[f"{v.name} read"] = reads / v.bandwidth_bits_per_s
            times[f"{v.name} write"] = writes / v.write_bandwidth_bits_per_s
        if v.fan.link_bits_per_s < inf:
            times[f"{v.name} link"] = link[lv] / v.fan.link_bits_per_s
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
        for node in level.nodes:
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


def check_mapping(problem: NestProblem, machine: NestMachine, mapping: NestMapping) -> None:
    """RackmodelError unless levels, tensors, tiles (nested, >= 1) and spatial vectors (within the fanout) agree."""
    if [v.level for v in mapping.levels] != [v.name for v in machine.levels]:
        raise RackmodelError(
            f"mapping has levels {[v.level for v in mapping.levels]}, {machine.name} has {[v.name for v in machine.levels]}"
        )
    now, leaf = dict(problem.sizes), {r: machine.compute.atom.get(r, 1) for r in problem.sizes}
    entries = entry_tiles(mapping, leaf)
    for i, (level, v) in enumerate(zip(mapping.levels, machine.levels, strict=True)):
        names = [n.tensor for n in level.nodes]
        if len(set(names)) != len(names):
            raise RackmodelError(f"{level.level}: a tensor is stored twice")
        for node in level.nodes:
            problem.tensor(node.tensor)
            if set(node.tile) != set(problem.sizes) or any(not 1 <= node.tile[r] <= now[r] for r in now):
                raise RackmodelError(f"{level.level}, {node.tensor}: tile {node.tile} does not fit into {now}")
            now = dict(node.tile)
        if i == 0 and (set(names) != {t.name for t in problem.tensors} or now != problem.sizes):
            raise RackmodelError(f"{level.level}: the outermost level must hold every tensor whole")
        if not set(level.x) | set(level.y) <= set(problem.sizes):
            raise RackmodelError(f"{level.level}: unknown spatial rank in {level.x}, {level.y}")
        sizes = prod(level.x.values()), prod(level.y.values())
        if not v.fan.linear and (sizes[0] > v.fan.x or sizes[1] > v.fan.y):
            raise RackmodelError(f"{level.level}: spatial {sizes[0]} x {sizes[1]} exceeds the fanout {v.fan.x} x {v.fan.y}")
        for r, e in entries[i].items():
            if e > now[r] and not (machine.compute.atom and e == leaf[r]):
                raise RackmodelError(f"{level.level}: rank {r} hands {e} to an instance, has {now[r]}")
        now = dict(entries[i])
