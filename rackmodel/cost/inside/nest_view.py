"""An accelerator as a nest machine, and a local operation as a nest problem: the same tree and the same einsum in the nest's words.

Levels with memory become nest levels, outer → inner; the levels without memory between two of them multiply into the
fan below the outer one. Ranks keep their index names; a size is the share of the fullest accelerator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf, prod

from rackmodel.cost.program.tasks import LocalOp, Operand
from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture, Level
from rackmodel.model.resources import Atom, Fan
from rackmodel.nests.problem import NestCompute, NestFan, NestLevel, NestMachine, NestProblem, NestTensor

Vocabulary = Mapping[str, set[str]]  # a word of keep, bypass, bits or home → tensors of one contraction


def nest_problem(local_op: LocalOp, sizes: Mapping[str, int]) -> NestProblem:
    """The contraction of a local operation. sizes: index → local size (an index of size 1 stays: the nest merges it away)."""
    assert local_op.result is not None
    used = {index for operand in (*local_op.operands, local_op.result) for index in operand.access.names}
    ranks = {index: size for index, size in sizes.items() if index in used}
    tensors = (*tuple(_tensor(operand, ranks, False) for operand in local_op.operands), _tensor(local_op.result, ranks, True))
    return NestProblem(nest_name(local_op), ranks, _distinct(tensors), local_op.density)


def nest_name(local_op: LocalOp) -> str:
    """What a local operation is called among the nests of a mapping: 'H = X * W1'."""
    assert local_op.result is not None
    return f"{local_op.result.name} = {' * '.join(operand.name for operand in local_op.operands)}"


def _tensor(operand: Operand, sizes: Mapping[str, int], output: bool) -> NestTensor:
    indices = tuple(
        terms
        for affine in operand.access.indices
        if (terms := tuple(index if stride == 1 else f"{stride}*{index}" for stride, index in affine if index in sizes))
    )
    if output and any(len(terms) > 1 or "*" in terms[0] for terms in indices):
        raise InputError(f"the gradient of {operand.access} sums windows: a loop nest for it is not modelled; use model: roofline")
    return NestTensor(operand.name, indices, operand.bits, output)


def _distinct(tensors: tuple[NestTensor, ...]) -> tuple[NestTensor, ...]:
    """An operand read twice is two tensors to a nest."""
    seen: dict[str, int] = {}
    named = []
    for tensor in tensors:
        seen[tensor.name] = seen.get(tensor.name, 0) + 1
        name = tensor.name if seen[tensor.name] == 1 else f"{tensor.name}'{seen[tensor.name]}"
        named.append(NestTensor(name, tensor.indices, tensor.bits, tensor.is_output))
    return tuple(named)


def nest_machine(architecture: Architecture, local_op: LocalOp, problem: NestProblem) -> NestMachine:
    """The accelerator for one contraction (bits and bypass depend on what its tensors are)."""
    words = _vocabulary(local_op, problem)
    memories = [(position, level) for position, (level, _) in enumerate(architecture.inside) if level.memory is not None]
    if not memories:
        raise InputError(f"the accelerator '{architecture.accelerator.name}' has no memory: a loop nest needs one", path="tree")
    units = next(p for p, (level, _) in reversed(list(enumerate(architecture.inside))) if level.compute is not None)
    if (last := memories[-1])[0] > units:
        below = architecture.inside[units][0].name
        raise InputError(f"it is below the compute of '{below}', which no loop nest brings it to", path=f"tree.{last[1].name}.memory")
    ends = [position for position, _ in memories[1:]] + [units]
    levels = tuple(_level(level, _fan(architecture, position, end), words) for (position, level), end in zip(memories, ends, strict=True))
    compute = architecture.inside[units][0].compute
    assert compute is not None
    rate = compute.matrix(local_op.bits)
    unit = NestCompute(rate.rate_flop_per_s / 2, rate.energy_j_per_flop * 2, _atom(rate.atom, problem), _compute_name(architecture, units))
    return NestMachine(architecture.name, levels, unit)


def _compute_name(architecture: Architecture, position: int) -> str:
    level = architecture.inside[position][0]
    return f"{level.name} compute" if level.memory is not None else level.name


def _fan(architecture: Architecture, position: int, end: int) -> NestFan:
    """The fan from one memory to the next (or to the compute): fans of the levels between multiply. What a child receives is known of
    those next to the inner memory, what one read serves of one fan alone."""
    levels = [architecture.inside[p][0] for p in range(position, end)]
    wide = [level for level in levels if level.fanout.size > 1] or levels[-1:]
    if len(wide) == 1:
        fan = _single_fan(wide[0].fanout)
    elif wide:
        fan = NestFan(prod(level.fanout.x for level in wide), prod(level.fanout.y for level in wide))
    else:
        return NestFan()
    for level in wide if len(wide) > 1 else ():
        for word in ("linear", "multicast_width", "reduction_width"):
            if getattr(level.fanout, word) is not None:
                raise _not_joined(level, word)
    last = levels.index(wide[-1])
    for level in levels[:last]:
        for word, said in (("hop_energy", level.fanout.hop_j_per_byte), ("link_bandwidth", level.fanout.link_bytes_per_s)):
            if said:
                raise _not_joined(level, word)
    inner = [level.fanout for level in levels[last:]]
    hop, link = sum(one.hop_j_per_byte for one in inner) / 8, min(map(_link_bits_per_s, inner))
    return replace(fan, hop_j_per_bit=hop, link_bits_per_s=link)


def _not_joined(level: Level, word: str) -> InputError:
    message = f"a fan with {word} cannot be joined with another fan without a memory between them"
    return InputError(message, path=f"tree.{level.name}.fan.{word}")


def _single_fan(fan: Fan) -> NestFan:
    """A fan of the architecture in the nest's words."""
    x = fan.linear or fan.x
    y, widths = 1 if fan.linear else fan.y, (fan.multicast_width, fan.reduction_width)
    return NestFan(x, y, bool(fan.linear), *widths, fan.hop_j_per_byte / 8, _link_bits_per_s(fan))


def _link_bits_per_s(fan: Fan) -> float:
    """One direction of a link between neighbours; inf where none is given."""
    return inf if fan.link_bytes_per_s is None else fan.link_bytes_per_s * 8


def _level(level: Level, fan: NestFan, words: Vocabulary) -> NestLevel:
    memory = level.memory
    assert memory is not None
    capacity = memory.capacity_bytes * 8 if memory.capacity_bytes is not None and memory.enforce else None
    bits = {name: width for word, width in memory.bits_by_tensor.items() for name in _named([word], words)}
    return NestLevel(
        level.name,
        capacity,
        memory.read_j_per_byte / 8,
        memory.write_j_per_byte / 8,
        memory.bandwidth_bytes_per_s * 8 if memory.bandwidth_bytes_per_s is not None else inf,
        memory.write_port_bytes_per_s * 8 if memory.write_port_bytes_per_s is not None else None,
        bits,
        memory.buffers,
        None if memory.keep is None else tuple(_named(memory.keep, words)),
        tuple(_named(memory.bypass, words)),
        fan,
    )


def _vocabulary(local_op: LocalOp, problem: NestProblem) -> dict[str, set[str]]:
    """Word of `keep`, `bypass`, `bits` → tensors of this contraction: roles, kinds and names."""
    *operands, result = problem.tensors
    words: dict[str, set[str]] = {tensor.name: {tensor.name} for tensor in problem.tensors}
    words["operands"] = {tensor.name for tensor in operands}
    words["left"], words["right"], words["result"] = {operands[0].name}, {operands[-1].name}, {result.name}
    for word in ("weight", "input", "activation", "output"):
        words.setdefault(word, set())
    for tensor, operand in zip(operands, local_op.operands, strict=True):
        words["weight" if operand.weight else "activation"].add(tensor.name)
        words["input"] |= set() if operand.weight else {tensor.name}
    words["output"].add(result.name)
    words["activation"].add(result.name)
    return words


def resting(local_op: LocalOp, problem: NestProblem, said: Iterable[str], weights: Iterable[str]) -> tuple[str, ...]:
    """Tensors of a contraction that `said` (kinds, roles, names) puts at home; a gradient of one of `weights` is a weight."""
    words = _vocabulary(local_op, problem)
    result = local_op.result
    gradients = {result.name} if result is not None and result.gradient and result.tensor in set(weights) else set()
    words["weight"] |= gradients
    words["activation"] -= gradients
    words["output"] -= gradients
    return tuple(_named(said, words))


def _named(said: Iterable[str], words: Vocabulary) -> list[str]:
    return sorted({name for word in said for name in words.get(word, set())})


def _atom(atom: Atom | None, problem: NestProblem) -> dict[str, int]:
    """The fixed tile in ranks: m on the largest rank of left and result, n of right and result, k of the summed ones."""
    if atom is None or len(problem.tensors) != 3:
        return {}
    left, right, result = (set(tensor.ranks) for tensor in problem.tensors)
    tile = {}
    for size, ranks in ((atom.m, (left & result) - right), (atom.n, (right & result) - left), (atom.k, (left & right) - result)):
        if ranks and size > 1:
            tile[max(sorted(ranks), key=lambda rank: problem.sizes[rank])] = size
    return tile
