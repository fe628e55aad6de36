"""What an action costs, per bit: joules, or bits of one port or link alone.

A price is linear in the actions. The time of a port is bits / bandwidth / instances, a constant factor once the spatial
vectors are chosen, so that the same tables minimise energy and bound every time.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from math import inf

from rackmodel.nests.problem import NestMachine


@dataclass(frozen=True)
class BitPrices:
    """Price of a read bit and of a written bit at every level, of a bit's hop below every level."""

    read: tuple[float, ...]
    write: tuple[float, ...]
    hop: tuple[float, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.read, self.write, self.hop))

    def __hash__(self) -> int:  # tables are looked up by prices
        return self._hash


def energy_prices(machine: NestMachine) -> BitPrices:
    """Joules a bit; the MACs are a constant that searches add."""
    read, write = tuple(v.read_j_per_bit for v in machine.levels), tuple(v.write_j_per_bit for v in machine.levels)
    return BitPrices(read, write, tuple(v.fan.hop_j_per_bit for v in machine.levels))


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

    def prices(self, levels: int) -> BitPrices:
        """Bits through the port."""
        return _alone(levels, self.level, self.reads, self.writes, self.fan)


@cache
def _alone(levels: int, level: int, reads: bool, writes: bool, fan: int | None) -> BitPrices:
    def one(on: bool, at: int | None) -> tuple[float, ...]:
        return tuple(float(on and i == at) for i in range(levels))

    return BitPrices(one(reads, level), one(writes, level), one(fan is not None, fan))


def components(machine: NestMachine) -> list[Component]:
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
