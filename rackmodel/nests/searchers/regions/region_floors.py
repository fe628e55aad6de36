"""What nothing below each tile of a core is below, energy and times together, before any tile of a prefix is looked at.

Per member and tile the lines of its blends (region_lines) say a key, the ports busy with every word of the prefix that it fetches once; the
keys of members add up. Prefixes of the same tensors have one such floor, whatever their order.
"""

from __future__ import annotations

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.nests.objective import TIE, Key, NestObjective
from rackmodel.nests.searchers.mapspace.prices import BitPrices
from rackmodel.nests.searchers.regions.region_below import WHOLE
from rackmodel.nests.searchers.regions.region_branch import Branch
from rackmodel.nests.searchers.regions.region_prefixes import Prefix
from rackmodel.nests.searchers.regions.region_space import RegionSpace


def words_once(space: RegionSpace, names: list[str], prices: BitPrices) -> float:
    """Price of prefix tensors at least: every word once."""
    each = ((space.terms[name].whole, *space.price(name, prices)) for name in names)
    return sum((whole * price + saved for whole, price, saved in each), 0.0)


def lined_keys(branches: list[Branch], prefix: Prefix, aim: NestObjective, best: Key, apart: list[Array], hope: list[Bools]) -> list[Array]:
    """Per span, by its core's tile: the sum of the keys of its members, joules of the prefix left out. apart: keys of all spans together,
    as joules and seconds say apart · hope: tiles that are looked at, which may be better than `best`."""
    apart = [np.array(whole) for whole in apart]  # of a core that no loop cuts, too: a number by itself is no array to write into
    found = [np.zeros_like(whole) for whole in apart]
    for branch in branches:
        k = branch.span
        names = [name for _, name in branch.charged(prefix)]
        bits = tuple(words_once(branch.space, names, port.prices(len(branch.machine.levels))) for port in branch.ports)
        own = np.broadcast_to(aim.key(branch.least(prefix, WHOLE), branch.seconds)[0], apart[k].shape)
        left = np.where(hope[k], best[0] * (1 + TIE) - np.subtract(apart[k], own, where=hope[k], out=apart[k].copy()), -np.inf)
        closer = np.maximum(own, branch.floor(prefix, aim, WHOLE, bits, left))
        np.add(apart[k], np.subtract(closer, own, where=hope[k], out=np.zeros_like(closer)), out=apart[k])
        found[k] = found[k] + closer
    return found
