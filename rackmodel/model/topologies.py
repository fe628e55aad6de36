"""The topologies a network may have, and the keys that each must be given.

What a topology does (hops, links, broadcast edges) is a file of `cost/network/topologies`; a test holds the two tables together.
"""

from __future__ import annotations

TOPOLOGIES: dict[str, tuple[str, ...]] = {
    "switch": (),
    "ring": (),
    "mesh": ("shape",),
    "torus": ("shape",),
    "row_column": ("shape",),
    "tree": ("fanout",),
    "point_to_point": (),
}
UNIFORM = frozenset({"switch", "point_to_point"})
"""Any two children are one hop apart, whoever else there is: what may join accelerators of several kinds."""
MEETING = UNIFORM - {"point_to_point"}
"""A child's links lead to any other, so that those of the network below may lead into it (`same_links`)."""
LINKS_BY = {"point_to_point": "pair_links"}
"""The key that says how many links, where it is not `links`."""
LINKS_ARE = {"links": "those of one child into the network", "pair_links": "those between two children"}
SUCH_AS = {"shape": "[4, 4]", "fanout": "4"}  # a value of each key that a topology can demand
