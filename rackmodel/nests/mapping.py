"""A mapping of one einsum onto the levels of a machine: storage nodes with tiles, and spatial vectors per fanout.

Level 0 holds everything whole. At every other level the kept tensors have storage nodes in an order, each with the
tile (of every rank) below the loops above it. The loops are implied: from one node to the next, rank r runs
ceil(outer tile / inner tile) times. A fanout hands `x[r] * y[r]` neighbouring tiles of the next level to its instances.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rackmodel.errors import RackmodelError
from rackmodel.nests.problem import NestProblem


@dataclass(frozen=True)
class StorageNode:
    """Tensor stored with the tile `tile` (rank → size, every rank of the einsum). tensor "": nothing is stored, loops alone lie there: a
    node of another einsum of a fused region, whose cut decides how many ragged tiles there are further in."""

    tensor: str
    tile: dict[str, int]


def whole_nodes(problem: NestProblem) -> tuple[StorageNode, ...]:
    """Every tensor whole, as the outermost level has it."""
    return tuple(StorageNode(t.name, dict(problem.sizes)) for t in problem.tensors)


@dataclass(frozen=True)
class LevelMapping:
    """Nodes of one level, outer → inner, and the spatial vectors of the fanout below it (absent ranks are 1)."""

    level: str
    nodes: tuple[StorageNode, ...]
    x: dict[str, int] = field(default_factory=dict)
    y: dict[str, int] = field(default_factory=dict)

    def spatial(self, rank: str) -> int:
        """Parts of a rank under the fan: X times Y."""
        return self.x.get(rank, 1) * self.y.get(rank, 1)


@dataclass(frozen=True)
class NestMapping:
    """Mapping of the einsum `problem` on the machine `machine`; `to_dict` and `from_dict` are inverse."""

    problem: str
    machine: str
    levels: tuple[LevelMapping, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and ints, ready for YAML or JSON."""
        return {
            "problem": self.problem,
            "machine": self.machine,
            "levels": [
                {"level": v.level, "nodes": [{"tensor": n.tensor, "tile": dict(n.tile)} for n in v.nodes], "x": dict(v.x), "y": dict(v.y)}
                for v in self.levels
            ],
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "NestMapping":
        """Inverse of `to_dict`; RackmodelError names an unknown or missing key."""
        _keys(data, {"problem", "machine", "levels"}, "mapping")
        levels = []
        for v in data["levels"]:
            _keys(v, {"level", "nodes", "x", "y"}, f"level {v.get('level')}")
            for n in v["nodes"]:
                _keys(n, {"tensor", "tile"}, f"node of level {v['level']}")
            nodes = tuple(StorageNode(n["tensor"], dict(n["tile"])) for n in v["nodes"])
            levels.append(LevelMapping(v["level"], nodes, dict(v["x"]), dict(v["y"])))
        return NestMapping(data["problem"], data["machine"], tuple(levels))


def _keys(data: dict[str, Any], known: set[str], where: str) -> None:
    wrong = set(data) ^ known
    if wrong:
        raise RackmodelError(f"{where}: missing or unknown key {', '.join(sorted(wrong))}; known: {', '.join(sorted(known))}")


def entry_tiles(mapping: NestMapping, leaf: dict[str, int]) -> list[dict[str, int]]:
    """Tile each instance of level l = 1.. receives, the last entry being the compute's leaf.

    It is the tile of the level's first node (L4: loops between a fanout and that node belong above the fanout); a
    level that keeps nothing receives what its own fanout hands on, which may be more than there is (9 dealt as 5 x 2).
    """
    tiles = [leaf]
    for level in reversed(mapping.levels[1:]):
        inner = tiles[0]
        tiles.insert(0, level.nodes[0].tile if level.nodes else {r: t * level.spatial(r) for r, t in inner.items()})
    return tiles


def print_nest(mapping: NestMapping, sizes: dict[str, int], leaf: dict[str, int] | None = None, home: Collection[str] = ()) -> str:
    """The mapping as an indented loop nest: storage in brackets, `for` is time, `parallel-for` is space.

    home: tensors at home in the innermost level; they are not shown at the outermost.
    """
    leaf = {r: (leaf or {}).get(r, 1) for r in sizes}
    entries = entry_tiles(mapping, leaf)
    lines: list[str] = []
    depth, now = 0, dict(sizes)

    def loops(target: dict[str, int]) -> None:
        nonlocal depth
        for r in sizes:
            if now[r] > target[r]:
                lines.append("  " * depth + f"for {r} in 0..{-(-now[r] // target[r])}  (tile {target[r]})")
                depth += 1
                now[r] = target[r]

    def store(level: str, node: StorageNode) -> None:
        tile = " ".join(f"{r}{t}" for r, t in node.tile.items())
        lines.append("  " * depth + f"[{level}] {'is home of' if node.tensor in home else 'holds'} {node.tensor}  ({tile})")

    for i, level in enumerate(mapping.levels):
        for node in level.nodes:
            loops(node.tile)
            if node.tensor and (i or node.tensor not in home):
                store(level.level, node)
        entry = entries[i]
        group = {r: min(now[r], entry[r] * level.spatial(r)) for r in sizes}
        loops(group)
        for axis, vector in (("X", level.x), ("Y", level.y)):
            for r, n in vector.items():
                if n > 1:
                    lines.append("  " * depth + f"parallel-for {r} in 0..{n}  ({axis} below {level.level})")
                    depth += 1
        now = {r: min(now[r], e) for r, e in entry.items()}
    lines.append("  " * depth + "compute " + " ".join(f"{r}{t}" for r, t in leaf.items() if t > 1))
    return "\n".join(line.rstrip() for line in lines)
