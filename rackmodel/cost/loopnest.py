"""The cost of a loop-nest mapping: reads and writes of every level and tensor, energy, time, utilisation.

U(l, T), words of T that enter level l, summed over instances = sum of T's tiles over every iteration of every loop
above its node. The parent p serves a fanout at once (multicast, reduction): it reads U with that fanout counted once
for ranks T lacks. Inputs: p reads, l writes. Output: l is drained (l reads U, p writes) and refilled (p reads,
l writes) except for fresh words: |C| per instance that accumulates its own copy. Energy = sum of bits x J/bit + MACs x
J/MAC + hops. Time of a level = bits / bandwidth of its fullest instance; time of the compute counts ceil cycles;
latency = the slowest. Source: reference loop_nests, sec. 1 and 6; conformance notes of AccelForge.
"""

from dataclasses import dataclass
from math import inf, prod

from rackmodel.cost.tile_counts import Split, count_and_cover, histogram
from rackmodel.errors import InfeasibleError, RackmodelError
from rackmodel.model.nest import NestMachine, NestProblem, NestTensor, index_term
from rackmodel.model.nest_mapping import NestMapping, entry_tiles


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

    used_bits: level → occupied bits per instance. utilisation: share of peak MACs/s over the latency.
    """

    energy_j: float
    latency_s: float
    times_s: dict[str, float]
    accesses: tuple[Access, ...]
    compute_j: float
    hop_j: dict[str, float]
    used_bits: dict[str, float]
    instances: dict[str, int]
    utilisation: float

    @property
    def edp(self) -> float:
        return self.energy_j * self.latency_s


class Chains:
    """The splits of every rank, and where in them each storage node and fanout sits."""

    def __init__(self, problem: NestProblem, machine: NestMachine, mapping: NestMapping):
        self.problem, self.machine, self.mapping = problem, machine, mapping
        self.leaf = {r: machine.compute.atom.get(r, 1) for r in problem.sizes}
        entries = entry_tiles(mapping, self.leaf)
        self.chain: dict[str, list[Split]] = {r: [] for r in problem.sizes}
        self.position: dict[tuple[int, str], int] = {}
        depth = 0
        for lv, level in enumerate(mapping.levels):
            for node in level.nodes:
                if lv:
                    for r in problem.sizes:
                        self.chain[r].append(Split(node.tile[r]))
                    depth += 1
                self.position[lv, node.tensor] = depth
            for r in problem.sizes:
                self.chain[r] += [Split(entries[lv][r] * level.spatial(r)), Split(entries[lv][r], fan=lv)]
            depth += 2
        self.end = depth
        anyone = self.chain[next(iter(problem.sizes))]
        self.after_fan = [i + 1 for i, s in enumerate(anyone) if s.fan is not None]
        self._memo: dict[tuple, tuple[int, int]] = {}

    def stats(self, rank: str, depth: int, first: frozenset[int], first_time: bool = False) -> tuple[int, int]:
        """(pieces, covered size) of `rank` after `depth` splits; see tile_counts."""
        key = (rank, depth, first, first_time)
        if key not in self._memo:
            pieces = histogram(self.problem.sizes[rank], self.chain[rank][:depth], first, first_time)
            self._memo[key] = count_and_cover(pieces)
        return self._memo[key]

    def words(self, tensor: NestTensor, depth: int, first_all: frozenset[int], first_irrelevant: frozenset[int]) -> int:
        """Words of `tensor` moved by a node at `depth`.

        Fans in `first_all` count one instance for every rank, those in `first_irrelevant` for ranks it lacks.
        A sum of indices has extent 1 + sum c (e - 1): prod(counts) (1 - sum c) + sum_i c_i cover_i prod_others(counts).
        """
        total = 1
        for r in self.problem.sizes:
            if r not in tensor.ranks:
                total *= self.stats(r, depth, first_all | first_irrelevant)[0]
        for index in tensor.indices:
            terms = [(c, *self.stats(r, depth, first_all)) for c, r in map(index_term, index)]
            pieces = prod(n for _, n, _ in terms)
            total *= pieces * (1 - sum(c for c, _, _ in terms)) + sum(c * s * pieces // n for c, n, s in terms)
        return total

    def fresh(self, tensor: NestTensor, level: int, first: frozenset[int]) -> int:
        """Output words whose first read is free at `level`: one per element and per instance that accumulates it."""
        depth = 0 if level == 0 else self.after_fan[level - 1]
        total = 1
        for r in self.problem.sizes:
            relevant = r in tensor.ranks
            total *= self.stats(r, depth, first, first_time=not relevant)[1 if relevant else 0]
        return total

    def instances(self, level: int) -> int:
        """Instances of `level` in use (fullest path): product of the parts each fanout above it is cut into."""
        if level == 0:
            return 1
        return prod(self.stats(r, self.after_fan[level - 1], frozenset(), True)[0] for r in self.problem.sizes)

    def waves(self, level: int) -> int:
        """Rounds the linear fans above `level` need: prod ceil(parts / units)."""
        total = 1
        for f in range(level):
            fan = self.machine.levels[f].fan
            if fan.linear:
                others = frozenset(range(len(self.mapping.levels))) - {f}
                parts = prod(self.stats(r, self.after_fan[f], others, True)[0] for r in self.problem.sizes)
                total *= -(-parts // fan.size)
        return total


def evaluate(problem: NestProblem, machine: NestMachine, mapping: NestMapping, resident: frozenset[str] = frozenset()) -> NestCost:
    """Cost of `mapping`, perfect or ragged. Errors: RackmodelError if it is malformed, InfeasibleError if it overflows.

    resident: tensors that live in level 1 and cause no traffic to level 0 (a fused intermediate, a tensor kept between
    einsums). Every result of a search is recounted with this function.
    """
    check_mapping(problem, machine, mapping)
    chains = Chains(problem, machine, mapping)
    used = footprints(problem, machine, mapping)
    levels = len(machine.levels)
    bits = {(lv, t.name): [0.0, 0.0] for lv in range(levels) for t in problem.tensors}  # all instances
    port = {lv: [0.0, 0.0] for lv in range(levels)}  # fullest instance
    hop_j = {v.name: 0.0 for v in machine.levels}
    for tensor in problem.tensors:
        kept = [lv for lv in range(levels) if (lv, tensor.name) in chains.position and not (lv == 0 and tensor.name in resident)]
        for parent, child in zip(kept, [*kept[1:], levels], strict=True):
            for lv, k, everywhere, fullest in _transfers(chains, tensor, parent, child):
                width = machine.levels[lv].bits(tensor)
                bits[lv, tensor.name][k] += everywhere * width
                port[lv][k] += fullest * width
            for f, words in _hops(chains, tensor, parent, child):
                v = machine.levels[f]
                hop_j[v.name] += words * machine.levels[parent].bits(tensor) * v.fan.hop_j_per_bit
    accesses = tuple(
        Access(machine.levels[lv].name, name, r, w, r * machine.levels[lv].read_j_per_bit + w * machine.levels[lv].write_j_per_bit)
        for (lv, name), (r, w) in bits.items()
        if (lv, name) in chains.position and not (lv == 0 and name in resident)
    )
    times = _times(problem, machine, chains, port)
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
        used,
        {v.name: chains.instances(lv) for lv, v in enumerate(machine.levels)},
        problem.macs * problem.density / peak if 0 < peak < inf else 0.0,
    )


def _transfers(chains: Chains, tensor: NestTensor, parent: int, child: int):
    """(level, 0 read | 1 write, words of all instances, words of the fullest instance) between parent and child."""
    levels = len(chains.machine.levels)
    depth = chains.end if child == levels else chains.position[child, tensor.name]
    above_child, above_parent = frozenset(range(child)), frozenset(range(parent))
    for fullest in (False, True):
        at_parent = above_parent if fullest else frozenset()
        up = _served(chains, tensor, parent, child, depth, at_parent)
        down = chains.words(tensor, depth, above_child if fullest else frozenset(), frozenset())
        waves = (chains.waves(parent), chains.waves(child)) if fullest else (1, 1)
        pick = (lambda n, w=waves: (0, n * w)) if fullest else (lambda n, w=1: (n * w, 0))
        if not tensor.is_output:
            yield parent, 0, *pick(up, waves[0])
            if child < levels:
                yield child, 1, *pick(down, waves[1])
            continue
        yield parent, 1, *pick(up, waves[0])
        yield parent, 0, *pick(up - chains.fresh(tensor, parent, at_parent), waves[0])
        if child < levels:
            yield child, 0, *pick(down, waves[1])
            fresh = chains.fresh(tensor, child, above_child if fullest else frozenset())
            yield child, 1, *pick(down - fresh, waves[1])


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


def _hops(chains: Chains, tensor: NestTensor, parent: int, child: int):
    """(fan, words that cross it): every instance reached by fan f is one hop; fans below f are served at once."""
    depth = chains.end if child == len(chains.machine.levels) else chains.position[child, tensor.name]
    for f in range(parent, child):
        words = _served(chains, tensor, f + 1, child, depth, frozenset())
        if tensor.is_output:
            words += words - chains.fresh(tensor, f + 1, frozenset())
        yield f, words


def _times(problem: NestProblem, machine: NestMachine, chains: Chains, port) -> dict[str, float]:
    times = {}
    for lv, v in enumerate(machine.levels):
        reads, writes = port[lv]
        if v.write_bandwidth_bits_per_s is None:
            times[v.name] = (reads + writes) / v.bandwidth_bits_per_s
        else:
            times[f"{v.name} read"] = reads / v.bandwidth_bits_per_s
            times[f"{v.name} write"] = writes / v.write_bandwidth_bits_per_s
    every = frozenset(range(len(machine.levels)))
    cycles = prod(chains.stats(r, chains.end, every)[0] * chains.leaf[r] for r in problem.sizes)
    waves = chains.waves(len(machine.levels))
    times[machine.compute.name] = cycles * waves * problem.density / machine.compute.macs_per_s
    return times


def footprints(problem: NestProblem, machine: NestMachine, mapping: NestMapping) -> dict[str, float]:
    """Bits occupied per instance, by level; InfeasibleError where a capacity is exceeded."""
    used: dict[str, float] = {}
    for level, v in zip(mapping.levels, machine.levels, strict=True):
        tensors = [(problem.tensor(n.tensor), n.tile) for n in level.nodes]
        used[v.name] = sum(v.buffers * v.bits(t) * t.tile_words(tile) for t, tile in tensors)
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
