"""What a mapping with tensors at home costs, in arrays: the closed forms of cost/loopnest for a memory, a fan and cores.

Per tensor: words that enter the working tiles of all cores (`every`), with the fan counted once (`once`), of the fullest
core (`fullest`); words a core ever works with (`ever`); q cores share a word. The same lines price a joint array of tiles
and, with the fewest counts there can be, bound every spatial vector.
"""

from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass
class Moved:
    """Words of one tensor, as arrays that broadcast over the mappings."""

    every: np.ndarray
    once: np.ndarray
    fullest: np.ndarray
    ever: np.ndarray
    shared: np.ndarray | int


def room(level, tensor, home: bool, tile, moved: Moved):
    """Bits of the fullest core that a tensor takes: its working tile; at home its share too, never more than all of it."""
    words = level.buffers * tile
    if home:
        words = np.minimum(moved.ever, np.ceil(moved.ever / moved.shared) + words)
    return level.bits(tensor) * words


def price(problem, machine, home: frozenset[str], moved: list[Moved], cycles):
    """(energy, latency) of arrays. cycles: what the fullest core works through."""
    outer, inner = machine.levels
    macs, hop = float(problem.macs), outer.fan.hop_j_per_bit
    energy = macs * problem.density * machine.compute.j_per_mac
    ports = {"outer read": 0.0, "outer write": 0.0, "inner read": 0.0, "inner write": 0.0, "link": 0.0}

    def add(port: str, joules_per_bit, bits, busiest) -> None:
        nonlocal energy
        energy = energy + joules_per_bit * bits
        ports[port] = ports[port] + busiest

    for tensor, m in zip(problem.tensors, moved, strict=True):
        b0, b1, out = outer.bits(tensor), inner.bits(tensor), tensor.is_output
        whole = float(tensor.tile_words(problem.sizes))
        add("inner read", inner.read_j_per_bit, b1 * (macs - out * whole * m.shared), b1 * (cycles - out * m.ever))
        if out:
            add("inner write", inner.write_j_per_bit, b1 * macs, b1 * cycles)
        if tensor.name in home:
            away = 1 - 1 / m.shared
            apart = np.asarray(m.shared) > 1
            hops, most = m.every * away, m.fullest * away
            if out:
                back = apart * (m.every + m.once - whole), apart * (m.fullest + (m.fullest - m.ever) / m.shared)
                add("inner read", inner.read_j_per_bit, b1 * back[0], b1 * back[1])
                add("inner write", inner.write_j_per_bit, b1 * apart * m.once, b1 * apart * m.fullest / m.shared)
            else:
                add("inner read", inner.read_j_per_bit, b1 * apart * m.once, b1 * apart * m.fullest / m.shared)
                add("inner write", inner.write_j_per_bit, b1 * hops, b1 * most)
            add("link", hop, b1 * hops, b1 * most)
        elif out:
            fresh = whole * m.shared
            add("outer write", outer.write_j_per_bit, b0 * m.once, b0 * m.once)
            add("outer read", outer.read_j_per_bit, b0 * (m.once - whole), b0 * (m.once - whole))
            add("inner read", inner.read_j_per_bit, b1 * m.every, b1 * m.fullest)
            add("inner write", inner.write_j_per_bit, b1 * (m.every - fresh), b1 * (m.fullest - m.ever))
            add("link", hop, b0 * (2 * m.every - fresh), b0 * (2 * m.fullest - m.ever))
        else:
            add("outer read", outer.read_j_per_bit, b0 * m.once, b0 * m.once)
            add("inner write", inner.write_j_per_bit, b1 * m.every, b1 * m.fullest)
            add("link", hop, b0 * m.every, b0 * m.fullest)
    time = cycles * problem.density / machine.compute.macs_per_s
    for name, level in (("outer", outer), ("inner", inner)):
        reads, writes = ports[f"{name} read"], ports[f"{name} write"]
        if level.write_bandwidth_bits_per_s is None:
            time = np.maximum(time, (reads + writes) / level.bandwidth_bits_per_s)
        else:
            time = np.maximum(time, np.maximum(reads / level.bandwidth_bits_per_s, writes / level.write_bandwidth_bits_per_s))
    if outer.fan.link_bits_per_s < inf:
        time = np.maximum(time, ports["link"] / outer.fan.link_bits_per_s)
    return energy, time
