"""An einsum with tensors that stay on chip, tiles of any size: what makes or reads a resident of a fused region.

Its mapping is the optimum of divisors, of its sizes or of larger ones that fill the fans, cut off at the real ends. The bound is what it
costs at least below level 1 (region_bound) and every word of its other tensors once between levels 0 and 1.
"""

from __future__ import annotations

from math import inf

from rackmodel.errors import InfeasibleError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.evaluate import evaluate
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem
from rackmodel.nests.searchers.contract import NestQuestion
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.mapspace.stored_tensors import keep_masks
from rackmodel.nests.searchers.perfect import solve_perfect
from rackmodel.nests.searchers.ragged.padded import cut_off, padded_sizes, with_sizes
from rackmodel.nests.searchers.regions.region_bound import inner_least
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from rackmodel.nests.solution import Best, NestSolution, better_of, solved

NOTE = "tiles of divisors of the sizes and of larger ones; bound over tiles of any size"


def ragged_resident(
    problem: NestProblem, machine: NestMachine, aim: NestObjective, resident: tuple[str, ...], effort: Effort, tables: SharedTables
) -> NestSolution:
    """The best mapping found with these tensors whole in level 1, without traffic to level 0, and a bound. Raises InfeasibleError."""
    inside, masks = frozenset(resident), keep_masks(problem, machine, NestConstraints())
    leaf = machine.compute.atom
    least = with_sizes(problem, {r: -(-n // leaf.get(r, 1)) * leaf.get(r, 1) for r, n in problem.sizes.items()})
    question = NestQuestion(least, machine, aim, "perfect", NestConstraints(), masks, inside, effort=effort)
    larger = with_sizes(problem, padded_sizes(question))
    best: Best | None = None
    missing: InfeasibleError | None = None
    for sized in [least] if larger == least else [least, larger]:
        asked = NestQuestion(sized, machine, aim, "perfect", NestConstraints(), masks, inside, effort=effort)
        try:
            mapping = cut_off(solve_perfect(asked).mapping, problem.sizes)
        except InfeasibleError as wrong:
            missing = missing or wrong
            continue
        best = better_of(best, Best.of(aim, mapping, evaluate(problem, machine, mapping, inside)))
    if best is None:
        assert missing is not None
        raise missing
    joules, seconds = least_beside(problem, machine, inside, tables), fastest_beside(problem, machine, inside, tables)
    return solved(best, float(aim.key(joules, seconds)[0]), (inf, 2, {}), "ceil resident", (NOTE,))


def least_beside(problem: NestProblem, machine: NestMachine, inside: frozenset[str], tables: SharedTables) -> float:
    """Joules of an einsum at least, tiles of any size, where the tensors `inside` live in level 1 and take no room there: below level 1 its
    least, above every word of the others once."""
    return _crossed_once(problem, machine, inside, inner_least(problem, machine, NestObjective("energy"), tables).joules)[0]


def fastest_beside(problem: NestProblem, machine: NestMachine, inside: frozenset[str], tables: SharedTables) -> float:
    """Seconds of the same at least: below level 1, and of every other word once at the outermost memory."""
    inner = inner_least(problem, machine, NestObjective("latency"), tables).seconds
    return max(inner, _crossed_once(problem, machine, inside)[1])


def words_once(problem: NestProblem, machine: NestMachine, inside: frozenset[str]) -> tuple[float, float]:
    """Joules and seconds of the same at least, without a search: of the compute, all units at work, and of every other word once at the
    outermost memory."""
    compute, macs = machine.compute, problem.macs * problem.density
    joules, seconds = _crossed_once(problem, machine, inside, macs * compute.j_per_mac)
    return joules, max(seconds, macs / (compute.macs_per_s * machine.units))


def _crossed_once(problem: NestProblem, machine: NestMachine, inside: frozenset[str], below: float = 0.0) -> tuple[float, float]:
    """Joules, with those below level 1, and seconds of every word once between levels 0 and 1, but for the tensors `inside`."""
    (outer, level), joules, moved = machine.levels[:2], below, [0.0, 0.0]
    for t in problem.tensors:
        if t.name not in inside:
            out, back = (outer.write_j_per_bit, level.read_j_per_bit) if t.is_output else (outer.read_j_per_bit, level.write_j_per_bit)
            joules += t.tile_words(problem.sizes) * (outer.bits(t) * out + level.bits(t) * back)
            moved[t.is_output] += outer.bits(t) * t.tile_words(problem.sizes)
    reads, writes = moved
    write_port = outer.write_bandwidth_bits_per_s
    ports = (
        [(reads + writes) / outer.bandwidth_bits_per_s] if write_port is None else [reads / outer.bandwidth_bits_per_s, writes / write_port]
    )
    return joules, max(ports)
