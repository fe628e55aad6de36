"""What a word costs: the scalar price of every action, and the coefficients that follow for one storage node.

A price is linear: joules per bit, or bits of one component alone (its time is bits / bandwidth / instances, a constant
factor once the spatial vectors are chosen). With p the parent of tensor T stored at l, s the fans between and
q = copies of T one transfer of p serves (prod of s over ranks T lacks, up to the width of each fan):
  input:  U (bits_l w_l + bits_p (r_p / q + hops))
  output: U (bits_l (w_l + r_l) + bits_p ((w_p + r_p) / q + 2 hops))
          - |C| (bits_l w_l Sig_l + bits_p (r_p Sig_p + hops Sig))
hops = sum over the fans between of price a hop x hops a word. Sig_l = copies of an output element over the instances of
l: the fresh-output credit.
"""

from dataclasses import dataclass
from math import inf

import numpy as np


@dataclass(frozen=True)
class Prices:
    """Price of a read bit, of a written bit at every level, of a bit's hop below every level, of a MAC."""

    read: tuple[float, ...]
    write: tuple[float, ...]
    hop: tuple[float, ...]
    mac: float


def energy_prices(machine) -> Prices:
    read, write = tuple(v.read_j_per_bit for v in machine.levels), tuple(v.write_j_per_bit for v in machine.levels)
    return Prices(read, write, tuple(v.fan.hop_j_per_bit for v in machine.levels), machine.compute.j_per_mac)


@dataclass(frozen=True)
class Component:
    """A port that takes time: bits read (and written) at `level` over `bandwidth` of each instance; or the links of `fan`,
    the one above `level`."""

    name: str
    level: int
    reads: bool
    writes: bool
    bandwidth: float
    fan: int | None = None

    def prices(self, levels: int) -> Prices:
        """Bits through the port."""

        def one(on, at=self.level):
            return tuple(float(on and i == at) for i in range(levels))

        return Prices(one(self.reads), one(self.writes), one(self.fan is not None, self.fan), 0.0)


def components(machine) -> list[Component]:
    """Every port and link of finite bandwidth, outer → inner."""
    found = []
    for i, v in enumerate(machine.levels):
        if v.write_bandwidth_bits_per_s is None:
            found.append(Component(v.name, i, True, True, v.bandwidth_bits_per_s))
        else:
            found.append(Component(f"{v.name} read", i, True, False, v.bandwidth_bits_per_s))
            found.append(Component(f"{v.name} write", i, False, True, v.write_bandwidth_bits_per_s))
        found.append(Component(f"{v.name} link", i + 1, False, False, v.fan.link_bits_per_s, i))
    return [c for c in found if c.bandwidth != inf]


@dataclass(frozen=True)
class State:
    """What the levels above leave for those below.

    sig: output copies over the instances reached so far · sig_parent: the same at the output's last storing level ·
    served, hops: per tensor, since it was last stored: copies one transfer serves, hops a word below each level ·
    hop_sig: per level, hops times copies, for the fresh words. Hops that cost neither energy nor time count 0.
    """

    sig: int
    sig_parent: int
    served: tuple[float, ...]
    hops: tuple[tuple[float, ...], ...]
    hop_sig: tuple[float, ...]


def start(tensors: int, levels: int) -> State:
    return State(1, 1, (1.0,) * tensors, ((0.0,) * levels,) * tensors, (0.0,) * levels)


def cross_fan(space, fan: int, state: State, vectors: np.ndarray):
    """State under fanout `fan` for each spatial vector: arrays (sig [S], served [S, T], hops [S, T, L], hop_sig [S, L])."""
    f = space.machine.levels[fan].fan
    lacks = ~space.has
    copies = np.array([[float(np.prod(v[lacks[t]])) for t in range(len(space.tensors))] for v in vectors])
    copies = copies.reshape(len(vectors), len(space.tensors))
    width = np.array([(f.reduction_width if t.is_output else f.multicast_width) or np.inf for t in space.tensors])
    now = np.minimum(copies, width)
    out = next(i for i, t in enumerate(space.tensors) if t.is_output)
    sig = state.sig * copies[:, out]
    counts = float(f.hop_j_per_bit > 0 or f.link_bits_per_s < inf) * (np.arange(space.depth) == fan)
    hops = np.array(state.hops) / now[:, :, None] + counts
    return sig, np.array(state.served) * now, hops, np.array(state.hop_sig) + counts * sig[:, None]


def below(space, level: int, state: State, sig, served, hops, hop_sig, i: int) -> State:
    """State handed on by `level` for spatial vector i: tensors stored here start afresh."""
    stored = set(space.present(level)) if level < space.depth else set()
    served_now = tuple(1.0 if t in stored else float(served[i, t]) for t in range(len(space.tensors)))
    none = (0.0,) * space.depth
    hops_now = tuple(none if t in stored else tuple(map(float, hops[i, t])) for t in range(len(space.tensors)))
    out = next(t for t, x in enumerate(space.tensors) if x.is_output)
    kept = out in stored
    hop_sig_now = none if kept else tuple(map(float, hop_sig[i]))
    return State(int(sig[i]), int(sig[i]) if kept else state.sig_parent, served_now, hops_now, hop_sig_now)


def coefficients(space, level: int, prices: Prices, state: State, crossed):
    """(fill [S, T], serve [S, T], credit [S]): price of a word that enters `level`, of a word the parent serves before
    dividing by the copies (`served`), and what fresh outputs save. level = depth is the compute."""
    sig, _, hops, hop_sig = crossed
    count = len(space.tensors)
    fill, serve, credit = np.zeros((len(sig), count)), np.zeros((len(sig), count)), np.zeros(len(sig))
    here = space.machine.levels[level] if level < space.depth else None
    for t in space.stored(level) if here else range(count):
        tensor, p = space.tensors[t], space.parent(level, t)
        bits_p = space.machine.levels[p].bits(tensor)
        bits_l = here.bits(tensor) if here else 0
        read, write = (prices.read[level], prices.write[level]) if here else (0.0, 0.0)
        hop = hops[:, t] @ np.array(prices.hop)
        if tensor.is_output:
            fill[:, t] = bits_l * (write + read) + 2 * bits_p * hop
            serve[:, t] = bits_p * (prices.write[p] + prices.read[p])
            returned = prices.read[p] * state.sig_parent + hop_sig @ np.array(prices.hop)
            credit += space.sizes_words[t] * (bits_l * write * sig + bits_p * returned)
        else:
            fill[:, t] = bits_l * write + bits_p * hop
            serve[:, t] = bits_p * prices.read[p]
    return fill, serve, credit
