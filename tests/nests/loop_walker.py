"""An independent counter: runs the loop nest tile by tile on every instance and watches the buffers.

No closed form: tiles are ranges, instances are coordinates, a transfer is an event. Instances of one fanout run in
lockstep: events with equal time, equal data and equal parent instance are one transfer of the parent.
"""

from collections import defaultdict
from math import ceil, prod

from rackmodel.nests.problem import index_term


def split(ranges, tile):
    """All tiles of size `tile` in the ranges, with their position: [(index per rank, ranges)]."""
    found = [((), {})]
    for r, (lo, hi) in ranges.items():
        n = ceil((hi - lo) / tile[r])
        found = [((*i, k), {**d, r: (lo + k * tile[r], min(hi, lo + (k + 1) * tile[r]))}) for i, d in found for k in range(n)]
    return found


def words(tensor, ranges):
    extent = {r: hi - lo for r, (lo, hi) in ranges.items()}
    return prod(1 + sum(c * (extent[r] - 1) for c, r in map(index_term, i)) for i in tensor.indices)


class Walker:
    def __init__(self, problem, machine, mapping):
        self.problem, self.machine, self.mapping = problem, machine, mapping
        self.leaf = {r: machine.compute.atom.get(r, 1) for r in problem.sizes}
        self.moves = defaultdict(list)  # (child level, tensor) -> [(instance path, time, ranges)]
        self.depth = len(machine.levels)
        self.run()

    def entry(self, level):
        if level == self.depth:
            return self.leaf
        v = self.mapping.levels[level]
        if v.nodes:
            return v.nodes[0].tile
        inner = self.entry(level + 1)
        return {r: inner[r] * v.spatial(r) for r in inner}

    def run(self):
        def below_fan(level, path, time, ranges):
            """Work of one instance of `level` that received `ranges`."""
            if level == self.depth:
                for t in self.problem.tensors:
                    self.moves[level, t.name].append((path, time, ranges))
                return
            nodes(level, 0, path, time, ranges)

        def nodes(level, j, path, time, ranges):
            items = self.mapping.levels[level].nodes
            if j == len(items):
                fan(level, path, time, ranges)
                return
            for index, tile in split(ranges, items[j].tile):
                if level:
                    self.moves[level, items[j].tensor].append((path, (*time, index), tile))
                nodes(level, j + 1, path, (*time, index), tile)

        def fan(level, path, time, ranges):
            entry, v = self.entry(level + 1), self.mapping.levels[level]
            group = {r: entry[r] * v.spatial(r) for r in entry}
            for index, part in split(ranges, group):
                for where, mine in split(part, entry):
                    below_fan(level + 1, (*path, where), (*time, index), mine)

        nodes(0, 0, (), (), {r: (0, n) for r, n in self.problem.sizes.items()})

    def kept(self, tensor):
        return [i for i, v in enumerate(self.mapping.levels) if tensor in [n.tensor for n in v.nodes]]

    def traffic(self):
        """(level, tensor) -> [reads, writes] over all instances, and the same per instance, in words."""
        total = defaultdict(lambda: [0.0, 0.0])
        instance = defaultdict(lambda: [0.0, 0.0])

        def count(level, tensor, path, kind, n):
            total[level, tensor.name][kind] += n
            instance[level, tensor.name, path[:level]][kind] += n

        for t in self.problem.tensors:
            levels = self.kept(t.name)
            for parent, child in zip(levels, [*levels[1:], self.depth], strict=False):
                self._pair(t, parent, child, count)
        return total, instance

    def _pair(self, t, parent, child, count):
        seen, seen_parent, served = set(), set(), {}
        for path, time, ranges in self.moves[child, t.name]:
            data = tuple(ranges[r] for r in t.ranks)
            n = words(t, ranges)
            if child < self.depth:
                fresh = (path, data) not in seen
                seen.add((path, data))
                if t.is_output:
                    count(child, t, path, 0, n)
                    count(child, t, path, 1, 0 if fresh else n)
                else:
                    count(child, t, path, 1, n)
            served.setdefault((path[:parent], time, data), []).append((path, n))
        for (path, _, data), copies in served.items():
            n = copies[0][1]
            if t.is_output:
                fresh = (path, data) not in seen_parent
                seen_parent.add((path, data))
                count(parent, t, path, 1, n)
                count(parent, t, path, 0, 0 if fresh else n)
            else:
                count(parent, t, path, 0, n)

    def cycles(self):
        """Leaves of the busiest compute unit, times the leaf's volume."""
        units = defaultdict(int)
        for path, _, _ in self.moves[self.depth, self.problem.tensors[0].name]:
            units[path] += 1
        return max(units.values()) * prod(self.leaf.values())
