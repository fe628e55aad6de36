"""The nouns of a loop nest: an einsum with sizes, a machine of memory levels, and what a mapper may be told.

A machine is levels outer → inner, each with a fanout below it; the compute is under the innermost level. Plain
frozen data, no arrays. Units are SI inside: bits, joules per bit, bits per second and instance, MACs per second.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import inf, prod

from rackmodel.errors import RackmodelError


@cache
def index_term(term: str) -> tuple[int, str]:
    """(coefficient, rank) of one term of an affine index: "p" is (1, "p"), "2*p" is (2, "p") (a stride)."""
    match = re.fullmatch(r"(?:(\d+)\*)?(\w+)", term)
    if match is None:
        raise RackmodelError(f"index {term!r}: expected a rank such as p or a strided rank such as 2*p")
    return int(match[1] or 1), match[2]


@dataclass(frozen=True)
class NestTensor:
    """A tensor of an einsum: one tuple per tensor rank; several terms in it are summed (`("p", "r")` is p + r)."""

    name: str
    indices: tuple[tuple[str, ...], ...]
    bits: int = 16
    is_output: bool = False

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Every rank that moves this tensor, in order of its indices."""
        return tuple(index_term(t)[1] for index in self.indices for t in index)

    @cached_property
    def affine_ranks(self) -> tuple[str, ...]:
        """Ranks inside a sum or with a stride: neighbouring tiles overlap there (the halo)."""
        return tuple(index_term(t)[1] for i in self.indices if not _plain(i) for t in i)

    def tile_words(self, tile: Mapping[str, int]) -> int:
        """Words of a tile: prod over indices of 1 + sum_i c_i (tile_i - 1)."""
        return prod(1 + sum(c * (tile[r] - 1) for c, r in map(index_term, index)) for index in self.indices)


def _plain(index: tuple[str, ...]) -> bool:
    return len(index) == 1 and index_term(index[0])[0] == 1


@dataclass(frozen=True)
class NestProblem:
    """One einsum: `sizes` of its ranks, its tensors (exactly one output), `density` = share of MACs performed."""

    name: str
    sizes: dict[str, int]
    tensors: tuple[NestTensor, ...]
    density: float = 1.0

    def __post_init__(self) -> None:
        used = {r for t in self.tensors for r in t.ranks}
        if used != set(self.sizes):
            raise RackmodelError(
                f"{self.name}: ranks of the tensors {sorted(used)}, ranks with a size {sorted(self.sizes)}: every rank needs both"
            )
        for rank, size in self.sizes.items():
            if not isinstance(size, int) or size < 1:
                raise RackmodelError(f"{self.name}: size of rank {rank} is {size!r}; expected a whole number >= 1")
        if len({t.name for t in self.tensors}) != len(self.tensors):
            raise RackmodelError(f"{self.name}: two tensors have the same name")
        if sum(t.is_output for t in self.tensors) != 1:
            raise RackmodelError(f"{self.name}: exactly one tensor must be the output")
        for t in self.tensors:
            if len(set(t.ranks)) != len(t.ranks):
                raise RackmodelError(f"{self.name}: tensor {t.name} uses a rank twice")
        if self.output.affine_ranks:
            raise RackmodelError(f"{self.name}: the output {self.output.name} is indexed by a sum")

    @property
    def output(self) -> NestTensor:
        """The tensor that is written."""
        return next(t for t in self.tensors if t.is_output)

    @property
    def macs(self) -> int:
        """Multiply-adds: the product of all sizes (density not counted)."""
        return prod(self.sizes.values())

    def tensor(self, name: str) -> NestTensor:
        """The tensor of a name; RackmodelError with the known names."""
        for t in self.tensors:
            if t.name == name:
                return t
        raise RackmodelError(f"{self.name}: no tensor {name}; known: {', '.join(t.name for t in self.tensors)}")


@dataclass(frozen=True)
class NestFan:
    """The fanout below a level: instances x by y, or `x` units in a line to which a flattened index is dealt (waves).

    multicast_width, reduction_width: instances one read or one merged write of the parent serves (None: any number).
    hop_j_per_bit: charged for every word delivered to or drained from an instance (one hop per instance reached).
    link_bits_per_s: one direction of one link between neighbours; every word an instance receives or drains crosses one.
    """

    x: int = 1
    y: int = 1
    linear: bool = False
    multicast_width: int | None = None
    reduction_width: int | None = None
    hop_j_per_bit: float = 0.0
    link_bits_per_s: float = inf

    def __post_init__(self) -> None:
        if self.x < 1 or self.y < 1 or (self.linear and self.y != 1):
            raise RackmodelError(f"fanout {self.x} x {self.y}: expected sizes >= 1, and y = 1 for a linear fan")

    @property
    def size(self) -> int:
        """Instances below one instance of the level."""
        return self.x * self.y


@dataclass(frozen=True)
class NestLevel:
    """One memory level (numbers are per instance).

    capacity_bits None: unbounded. bandwidth: shared by reads and writes, or of reads alone when
    `write_bandwidth_bits_per_s` is given (separate ports). buffers 2: every tile is held twice. A tensor must be kept
    if `keep` is None or names it, must not if `bypass` names it; otherwise the mapper decides.
    """

    name: str
    capacity_bits: float | None = None
    read_j_per_bit: float = 0.0
    write_j_per_bit: float = 0.0
    bandwidth_bits_per_s: float = inf
    write_bandwidth_bits_per_s: float | None = None
    bits_per_tensor: dict[str, int] = field(default_factory=dict)
    buffers: int = 1
    keep: tuple[str, ...] | None = None
    bypass: tuple[str, ...] = ()
    fan: NestFan = NestFan()

    def bits(self, tensor: NestTensor) -> int:
        """Bits of a word of the tensor at this level."""
        return self.bits_per_tensor.get(tensor.name, tensor.bits)

    def must_keep(self, tensor: str) -> bool:
        """Does the level store the tensor: by its list, or where it has none, unless a mapper says otherwise?"""
        return tensor not in self.bypass if self.keep is None else tensor in self.keep


@dataclass(frozen=True)
class NestCompute:
    """The unit under the innermost fanout: MACs/s and J/MAC; `atom` is the fixed tile of one instruction (an MMA)."""

    macs_per_s: float
    j_per_mac: float = 0.0
    atom: dict[str, int] = field(default_factory=dict)
    name: str = "compute"

    def leaf(self, ranks: Iterable[str]) -> dict[str, int]:
        """The tile of one instruction: 1 of a rank that the atom does not name."""
        return {r: self.atom.get(r, 1) for r in ranks}

    def joules(self, problem: NestProblem) -> float:
        """Of all multiply-adds of an einsum."""
        return problem.macs * problem.density * self.j_per_mac


@dataclass(frozen=True)
class NestMachine:
    """Levels outer → inner and the compute below the last; the outermost level holds every tensor whole."""

    name: str
    levels: tuple[NestLevel, ...]
    compute: NestCompute

    def __post_init__(self) -> None:
        if not self.levels:
            raise RackmodelError(f"{self.name}: a machine needs at least one memory level")
        names = [v.name for v in self.levels] + [self.compute.name]
        if len(set(names)) != len(names):
            raise RackmodelError(f"{self.name}: two levels have the same name")

    @property
    def units(self) -> int:
        """Compute units of the whole machine."""
        return prod(v.fan.size for v in self.levels)
