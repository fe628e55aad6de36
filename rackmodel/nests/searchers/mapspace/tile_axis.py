"""The tiles one rank may have, as one axis of a cost table: what the tables need of any such list.

Two kinds: the divisors of the size (perfect factors, divisor_axis) and a list of tiles of any size (ceil factors,
list_axes). `aligned` says which: with divisors, tile counts of nested splits multiply.
"""

from abc import ABC, abstractmethod
from functools import cached_property

from rackmodel.arrays import Array, Bools, Ints
from rackmodel.nests.problem import NestFan


class TileAxis(ABC):
    """tile: [n] sizes · low: [n] the sizes that a footprint counts · index: size → number · top: number of the whole rank."""

    aligned: bool
    size: int
    tile: Ints
    low: Ints
    index: dict[int, int]
    top: int

    def __len__(self) -> int:
        return len(self.tile)

    @cached_property
    @abstractmethod
    def count(self) -> Array:
        """[n] tiles of the whole rank."""

    @cached_property
    @abstractmethod
    def below(self) -> Bools:
        """[inner, outer] True where the inner tile nests in the outer one."""

    @abstractmethod
    def below_of(self, inner: "TileAxis") -> Bools:
        """As `below`, with the inner tiles taken from a coarser (boxed) axis."""

    @abstractmethod
    def zeta(self, array: Array, axis: int) -> Array:
        """[...] least value over the tiles that nest in each one, along one numpy axis; a new array."""

    @abstractmethod
    def parts(self, fan: NestFan) -> list[int]:
        """Numbers of parts the rank may be cut into under a fan, ascending."""

    @abstractmethod
    def allows(self, i: int, s: int, leaf: int) -> bool:
        """Can tile number i be cut into s parts of whole leaves?"""

    @abstractmethod
    def clamp(self, box: "TileAxis") -> Ints:
        """[n] for every tile, the cell of the coarser axis `box` that stands for it."""
