"""Layouts on a wafer of cores: links of trees and lines against a walk of every link, and traffic nobody wrote by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel import api
from rackmodel.cost.network.collectives import collective, mesh_collective, offered, send
from rackmodel.cost.network.mesh_links import Grid, exchange_busiest, transfers_busiest, trees
from rackmodel.cost.network.streams import stream
from rackmodel.errors import InfeasibleError
from rackmodel.inputs import read_architecture
from rackmodel.mapper.search import Found
from rackmodel.model.architecture import Architecture
from rackmodel.model.placement import Mesh, members
from rackmodel.model.result import Result
from tests import samples
from tests.machines import FFN, mapper, workload
from tests.steps import searched

Cell = tuple[int, int]


def wafer(rows: int, columns: int, *, wafers: int = 1, capacity: str = "48 kB", link: str = "4 GB/s", **changes: Any) -> Architecture:
    """A few cores on a mesh under a tree with a memory beside the wafers."""
    mesh = {"topology": "mesh", "shape": [rows, columns], "bandwidth": link, "latency": "1 ns", "energy": "0.1 pJ/bit"}
    tree = {"topology": "tree", "fanout": 4, "bandwidth": "150 GB/s", "latency": "0 s", "links": 1, "multicast": True, "reduce": True}
    memory = {"capacity": capacity, "bandwidth": "16 GB/s"}
    core = {"name": "core", "count": rows * columns, "accelerator": True, "memory": memory, "compute": {"rate": "9 GFLOP/s"}}
    level = {"name": "wafer", "count": wafers, "network": mesh | {"multicast": True, "reduce": True} | changes, "children": [core]}
    root = {"name": "swarmx", "network": tree, "children": [level, {"name": "memoryx", "memory": {}}]}
    return Architecture.model_validate({"architecture": "small", "tree": root})


# -- links, walked one by one ----------------------------------------------------------------------------------------------


def walk(start: Cell, end: Cell) -> list[tuple[Cell, Cell]]:
    """Links from start to end, along the row first."""
    (r, c), found = start, []
    while c != end[1]:
        found.append(((r, c), (r, c + (1 if end[1] > c else -1))))
        c = found[-1][1][1]
    while r != end[0]:
        found.append(((r, c), (r + (1 if end[0] > r else -1), c)))
        r = found[-1][1][0]
    return found


def least_links(grid: Grid, cells: set[Cell]) -> int:
    """Links of the best tree that enters at row 0 and has one straight spine, by trying every spine."""
    best = 10**9
    for enter in {c for _, c in cells}:
        for spine in [None, *{r for r, _ in cells}]:
            links = set()
            for r, c in cells:
                turn = r if spine is None else spine
                corners = [(-1, enter), (turn, enter), (turn, c), (r, c)]
                links |= {frozenset(link) for a, b in itertools.pairwise(corners) for link in walk(a, b)}
            best = min(best, len(links))
    return best


GRIDS = st.tuples(st.integers(1, 5), st.integers(1, 5)).map(lambda shape: Grid(*shape))


@st.composite
def needed(draw: Any) -> tuple[Grid, list[set[Cell]]]:
    grid = draw(GRIDS)
    cell = st.tuples(st.integers(0, grid.rows - 1), st.integers(0, grid.columns - 1))
    return grid, draw(st.lists(st.sets(cell, min_size=1, max_size=8), min_size=1, max_size=4))


def tree_of(grid: Grid, units: list[set[Cell]]) -> Any:
    found = sorted((number, r * grid.columns + c) for number, cells in enumerate(units) for r, c in cells)
    unit, place = (np.array(side, dtype=np.int64) for side in zip(*found, strict=True))
    return trees(grid, unit, np.zeros_like(unit), place)


def walked(grid: Grid, units: list[set[Cell]]) -> tuple[int, int, int]:
    """(links, most units on one, farthest) of trees built link by link, each with its spine in a row or in its own column."""

    def pick(number: int, coordinate: int) -> int:
        mine = [tuple(sorted({cell[coordinate] for cell in cells})) for cells in units]
        shape = [(lines[0], lines[-1], len(lines)) for lines in mine]
        like = [k for k, other in enumerate(shape) if other == shape[number]]
        return mine[number][(2 * like.index(number) + 1) * len(mine[number]) // (2 * len(like))]

    used, farthest = Counter[Any](), 0
    for number, cells in enumerate(units):
        turn, enter = pick(number, 0), pick(number, 1)
        paths = []
        for spine in (turn, None):
            bends = [r if spine is None or c == enter else spine for r, c in cells]
            corners = [[(-1, enter), (bend, enter), (bend, c), (r, c)] for bend, (r, c) in zip(bends, cells, strict=True)]
            paths.append([[link for a, b in itertools.pairwise(corner) for link in walk(a, b)] for corner in corners])
        trees_of = [{link for path in way for link in path} for way in paths]
        best = min((0, 1), key=lambda way: len(trees_of[way]))
        used.update(trees_of[best])
        farthest = max(farthest, *(len(path) for path in paths[best]))
    return sum(used.values()), max(used.values()), farthest


@settings(max_examples=samples.cases(60, 200))
@given(needed())
def test_trees_are_what_a_walk_of_their_links_counts(case: Any) -> None:
    found = tree_of(*case)
    assert (found.links, found.busiest, found.farthest) == walked(*case)


@settings(max_examples=samples.cases(50, 150))
@given(needed())
def test_a_tree_is_no_shorter_than_the_best_and_reaches_everyone_over_no_fewer_links_than_children(case: Any) -> None:
    grid, units = case
    found = tree_of(grid, units)
    assert found.links >= sum(least_links(grid, cells) for cells in units)
    assert found.links >= sum(len(cells) for cells in units)
    assert 1 <= found.busiest <= len(units)
    assert found.farthest >= max(1 + r for cells in units for r, _ in cells)


@settings(max_examples=samples.cases(40, 100))
@given(GRIDS, st.data())
def test_a_tree_to_a_box_is_the_shortest_there_is(grid: Grid, data: Any) -> None:
    def picked(extent: int) -> list[int]:
        step = data.draw(st.integers(1, extent))
        return list(range(data.draw(st.integers(0, step - 1)), extent, step))

    rows, columns = picked(grid.rows), picked(grid.columns)
    box = set(itertools.product(rows, columns))
    assert tree_of(grid, [box]).links == least_links(grid, box)


@pytest.mark.parametrize(
    ("cells", "links"),
    [
        ([(r, 2) for r in range(4)], 4),  # a column of Y cores costs Y
        ([(r, c) for r in range(4) for c in range(5)], 20),  # everyone: one link into each
        ([(3, c) for c in range(5)], 4 + 4),  # down to the row and along it
        ([(r, c) for r in range(4) for c in (0, 2, 4)], 1 + 3 + 4 + 3 + 3),  # three columns and what lies between, on one row
        ([(1, 1)], 2),
    ],
)
def test_trees_worked_by_hand(cells: list[Cell], links: int) -> None:
    assert tree_of(Grid(4, 5), [set(cells)]).links == links


def test_units_for_the_same_columns_enter_and_turn_apart() -> None:
    grid = Grid(4, 4)
    rows = [{(r, c) for c in range(4)} for r in range(4)]  # a unit a row: each enters in a column of its own
    assert tree_of(grid, rows).busiest == 1
    pairs = [{(r, c) for r in range(4) for c in (k, k + 2)} for k in range(2)]  # every other column: each turns in a row of its own
    assert tree_of(grid, pairs).busiest == 1


@settings(max_examples=samples.cases(40, 100))
@given(GRIDS, st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), min_size=1, max_size=12))
def test_transfers_load_the_links_of_their_walks(grid: Grid, pairs: list[tuple[int, int]]) -> None:
    size = grid.rows * grid.columns
    ends = np.array([(a % size, b % size) for a, b in pairs])
    used = Counter(link for a, b in ends.tolist() for link in walk(divmod(a, grid.columns), divmod(b, grid.columns)))
    found = transfers_busiest(grid, np.zeros(len(ends), dtype=np.int64), ends[:, 0], ends[:, 1], np.ones(len(ends)))
    assert found == max(used.values(), default=0)


@settings(max_examples=samples.cases(40, 100))
@given(GRIDS, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 24)), min_size=1, max_size=20, unique=True))
def test_an_exchange_loads_the_links_of_every_pair(grid: Grid, held: list[tuple[int, int]]) -> None:
    size = grid.rows * grid.columns
    held = sorted({(owner, place % size) for owner, place in held})
    owner, place = (np.array(side, dtype=np.int64) for side in zip(*held, strict=True))
    used: Counter[Any] = Counter()
    for (one, a), (two, b) in itertools.permutations(held, 2):
        if one == two:
            used.update(walk(divmod(a, grid.columns), divmod(b, grid.columns)))
    assert exchange_busiest(grid, owner, np.zeros_like(owner), place, np.ones_like(place)) == max(used.values(), default=0)


# -- lines -----------------------------------------------------------------------------------------------------------------


def line_loads(rows: np.ndarray, columns: int) -> tuple[float, float]:
    """(traversals, busiest link) of a reduce-scatter of V = 1: each block walks in from both ends."""
    used: Counter[Any] = Counter()
    p = rows.shape[1]
    for row in rows.tolist():
        for at in range(p):
            gaps = [(row[i], row[i + 1]) for i in range(at)] + [(row[i + 1], row[i]) for i in range(at, p - 1)]
            for a, b in gaps:
                used.update(walk(divmod(a, columns), divmod(b, columns)))
    return sum(used.values()) / p, max(used.values()) / p


LINES = {  # group axis → (mesh on 6 x 6 cores, hops between neighbours)
    "x": (Mesh(("y", "x"), (12, 3), (3, 1)), 1),  # half rows
    "g": (Mesh(("y", "g", "x"), (6, 3, 2), (6, 2, 1)), 2),  # two groups in turn on every row
    "y": (Mesh(("h", "y", "x"), (2, 3, 6), (18, 6, 1)), 1),  # half columns
    "z": (Mesh(("z", "y", "x"), (3, 2, 6), (12, 6, 1)), 2),
}


@pytest.mark.parametrize("axis", LINES)
@pytest.mark.parametrize(("kind", "times"), [("reduce_scatter", 1), ("all_gather", 1), ("all_reduce", 2)])
def test_a_line_is_the_walk_of_its_blocks_also_with_others_in_between(axis: str, kind: str, times: int) -> None:
    mesh, apart = LINES[axis]
    hops, busiest = line_loads(members(mesh, [axis]), 6)
    use = mesh_collective(wafer(6, 6), mesh, [axis], kind, "line")
    assert use.wire_bytes_per_byte == pytest.approx((times * hops, 0))
    assert use.total(4e9) == pytest.approx(times * (busiest + 2 * apart * 1e-9))
    assert busiest == pytest.approx(2 / 3 * apart)


def test_a_rectangle_goes_along_its_rows_and_then_its_columns() -> None:
    use = collective(wafer(4, 6), np.array([[0, 1, 2, 6, 7, 8]]), "reduce_scatter", "line")
    assert use.wire_bytes_per_byte == pytest.approx((2 * 2 + 3 * 1 / 3, 0))  # V over 2 gaps of 2 rows, V/3 over 3 gaps down
    assert use.total(4e9) == pytest.approx(2 / 3 + 1 / 2 / 3 + 3e-9)
    assert collective(wafer(4, 6), np.array([[0, 1, 2, 6, 7, 8]]), "broadcast").wire_bytes_per_byte == (5.0, 0)


def test_on_a_mesh_a_ring_is_a_line_and_elsewhere_no_line_is_offered() -> None:
    arch, mesh = wafer(4, 6), Mesh(("y", "x"), (4, 6), (6, 1))
    assert mesh_collective(arch, mesh, ["x"], "all_reduce") == mesh_collective(arch, mesh, ["x"], "all_reduce", "line")
    assert offered(arch, mesh, ["x"], "all_gather")[:2] == ("line", "ring")
    torus = wafer(4, 6, topology="torus")
    assert "line" not in offered(torus, mesh, ["x"], "all_gather")
    assert mesh_collective(torus, mesh, ["x"], "all_gather").wire_bytes_per_byte == pytest.approx((4 * 5.0, 0))
    bent = np.array([[0, 1, 6]])  # no box: a ring, with every link counted
    assert collective(arch, bent, "all_gather").wire_bytes_per_byte == pytest.approx((2 / 3 * (1 + 2 + 1), 0))


def test_wafers_are_joined_by_rings_of_what_their_lines_leave() -> None:
    arch = wafer(2, 2, wafers=3)
    use = collective(arch, np.arange(12)[None, :], "reduce_scatter")
    assert use.wire_bytes_per_byte == pytest.approx((3 * (2 + 2 / 2), 12 * 2 / 3 / 4 * 2 * 2 / 2))
    assert mesh_collective(arch, Mesh(("a", "c"), (3, 4), (4, 1)), ["a"], "all_gather").wire_bytes_per_byte[0] == 0


@given(st.floats(1, 50), st.sampled_from(["all_reduce", "all_to_all", "halo", "broadcast"]), st.sampled_from([("x",), ("y",), ("y", "x")]))
@settings(max_examples=30)
def test_a_faster_link_is_never_slower_and_costs_no_other_energy(faster: float, kind: str, axes: tuple[str, ...]) -> None:
    mesh = Mesh(("y", "x"), (4, 6), (6, 1))
    slow, fast = (mesh_collective(wafer(4, 6, link=f"{4 * scale} GB/s"), mesh, axes, kind) for scale in (1, faster))
    assert fast.total(1e6) <= slow.total(1e6) * (1 + 1e-12)
    assert fast.joules_per_byte == slow.joules_per_byte


def test_an_exchange_along_a_line_is_bound_by_its_middle_link() -> None:
    use = mesh_collective(wafer(4, 6), Mesh(("y", "x"), (4, 6), (6, 1)), ["x"], "all_to_all")
    assert use.total(4e9) - sum(use.latency_s) == pytest.approx(3 * 3 / 6)
    assert sum(use.latency_s) == pytest.approx(5e-9)
    assert use.wire_bytes_per_byte == pytest.approx((4 * 2 * (5 * 1 + 4 * 2 + 3 * 3 + 2 * 4 + 5) / 6, 0))


def test_sends_that_cross_a_mesh_share_its_links() -> None:
    use = send(wafer(1, 6), np.array([0, 1, 2]), np.array([3, 4, 5]))
    assert use.total(4e9) == pytest.approx(3 + 3e-9)  # all three cross the link from 2 to 3


# -- streams ---------------------------------------------------------------------------------------------------------------


def test_a_stream_pays_the_edge_the_tree_and_the_way_to_the_farthest_core() -> None:
    arch, mesh = wafer(4, 6), Mesh(("y", "x"), (4, 6), (6, 1))
    for kind in ("broadcast", "reduce"):
        columns = stream(arch, "memoryx", members(mesh, ["y"]), kind)  # a shard for each column
        assert columns.wire_bytes_per_byte == (24, 6)
        assert columns.total(1e9) == pytest.approx(1 / 4 + 4e-9)  # a column's link is slower than six shards on the edge
        assert columns.total(1e9) > 6 / 150
    wide = stream(wafer(4, 6, link="400 GB/s"), "memoryx", members(mesh, ["y"]))
    assert wide.total(1e9) == pytest.approx(6 / 150 + 4e-9)
    everyone = stream(arch, "memoryx", np.arange(24))
    assert everyone.wire_bytes_per_byte == (24, 1)
    assert everyone.latency_s[0] + everyone.latency_s[1] == pytest.approx((1 + 2 + 3 + 2) * 1e-9)


# -- what a mapper with two axes derives -----------------------------------------------------------------------------------


def small(capacity: str = "48 kB", f: int = 24, einsums: dict[str, str] = FFN, **more: Any) -> Found:
    """The best layout of a feed-forward network of 48 tokens on 4 x 6 cores, weights streamed."""
    said = {"axes": {"y": {"degree": 4}, "x": {"degree": 6, "place": "inner"}}, "split": {"y": "free", "x": "free"}}
    boundary = {"X": {"y": "s", "x": "d"}}
    told = mapper(**(said | {"boundary": boundary, "homes": {"weights": {"at": "memoryx"}}} | more))
    work = workload(einsums, {"b": 1, "s": 48, "d": 24, "f": f})
    return searched(wafer(4, 6, capacity=capacity), work, told, "latency")


def ways(found: Found) -> list[tuple[Any, ...]]:
    """Choices of each operation on (y, x)."""
    return [choice[:-1] for choice in found.groups[found.points[0].group].variants[found.points[0].variant].plan.choices.values()]


@pytest.mark.parametrize(("f", "features"), [(24, "d"), (36, "d"), (42, "f"), (96, "f")])
def test_one_layer_contracts_its_features_where_they_are_up_to_one_and_a_half_times_its_width(f: int, features: str) -> None:
    """x = d moves 2 f a token (sums forward, dY gathered back), x = f moves 3 d (X gathered twice, dX summed): seed 001's if 2 f ≤ 3 d."""
    found = small(f=f, einsums={"FC": "Y[b,s,f] = X[b,s,d] * W[d,f]"}, boundary={"X": {"y": "s", "x": "d"}, "Y": {"y": "s", "x": "f"}})
    assert ways(found) == [("s", features)]


def test_a_layer_four_times_as_wide_gathers_its_input_instead_of_reducing_its_output() -> None:
    found = small(f=96)
    assert ways(found) == [("s", "f"), ("s", "f")]
    paper = small(f=96, choose={"FC1": {"x": "d"}, "FC2": {"x": "f"}})
    assert found.points[0].seconds < paper.points[0].seconds


def test_the_sram_of_a_core_is_enforced() -> None:
    held = 48 * (24 + 24) * 2 / 24  # bytes of X and H a core keeps for the backward pass
    assert small(capacity=f"{held} B").points[0].memory == pytest.approx(held)
    with pytest.raises(InfeasibleError) as caught:
        small(capacity=f"{held - 1} B")
    assert caught.value.resource == "core.memory"
    assert (caught.value.need, caught.value.have) == pytest.approx((held, held - 1))
    assert "short by" in str(caught.value)


# -- a wafer of 850,000 cores ----------------------------------------------------------------------------------------------

B_S, H, F, X, Y = 128 * 2048, 12288, 49152, 850, 1000  # GPT-3 on one wafer (docs/wafer_layouts.md)


@cache
def paper() -> Result:
    """Seed 001's layout of a feed-forward network: features on x, contracted where they are; tokens on y."""
    sets = ["batch=128", f"d={H}", f"f={F}", "choose.FC1.x=d", "choose.FC2.x=f"]
    return api.search("wse2_cores", "ffn", "wafer", sets=sets).result


def moved(phase: str, einsum: str, tensor: str, action: str, level: str = "wafer") -> float:
    """Bytes · traversals."""
    rows = paper().ledger.where(phase=phase, einsum=einsum, tensor=tensor, level=level, component="network", action=action)
    return float(rows.total("amount"))


def test_weights_take_f_h_y_hops_and_row_reductions_f_b_s_x_minus_1() -> None:
    """X − 1 links for a reduction, not X: the core where the sum lands sends nothing."""
    assert moved("forward", "FC1", "W1", "broadcast") == pytest.approx(2 * F * H * Y)
    assert moved("forward", "FC1", "H", "reduce_scatter") == pytest.approx(2 * F * B_S * (X - 1))
    assert moved("forward", "FC2", "Y", "reduce_scatter") == pytest.approx(2 * H * B_S * (X - 1))
    assert moved("forward", "FC1", "W1", "broadcast", "swarmx") == pytest.approx(2 * F * H)


def test_gradients_of_weights_are_a_chain_up_the_columns_and_leave_once() -> None:
    assert moved("backward", "FC1", "W1", "reduce") == pytest.approx(4 * F * H * Y)
    assert moved("backward", "FC1", "W1", "reduce", "swarmx") == pytest.approx(4 * F * H)


def test_activations_never_cross_the_edge() -> None:
    assert {row.tensor for row in paper().ledger.where(level="swarmx", component="network")} == {"W1", "W2"}


def test_the_fullest_column_takes_15_features_of_14_46() -> None:
    row = next(iter(paper().ledger.where(phase="forward", einsum="FC1", component="compute", action="mac")))
    ideal = 2 * B_S * H * F / 7.5e15
    assert ideal / row.seconds == pytest.approx(12288 / 850 / 15 * 262144 / 1000 / 263, rel=1e-4)  # 0.964 · 0.997


def test_the_fullest_core_holds_its_share_of_the_activations_and_no_weights() -> None:
    """Sums are added on their way (multicast and reduce of the mesh): a pass works on what is kept. 263 rows of 15 and 58 features."""
    assert paper().memory == pytest.approx({"activations": 2 * -(-B_S // Y) * (-(-H // X) + -(-F // X))})


def test_the_energy_of_a_hop_keeps_its_bounds_and_every_machine_its_links() -> None:
    network = read_architecture("wse2_cores").tiers[0].network
    energy = network.energy_j_per_byte
    pj_a_bit = [joules * 1e12 / 8 for joules in (energy.low, energy, energy.high)]  # type: ignore[attr-defined]
    most = [(23e3 - idle) / 220e15 * 1e12 for idle in (18.8e3, 12e3)]  # what the data sheet leaves 220 Pb/s beside idle power
    assert pj_a_bit == pytest.approx([0.01, *most], rel=0.01)
    rows = paper().ledger.where(level="wafer", component="network")
    assert rows.total("joules") == pytest.approx(rows.total("amount") * 0.152e-12)
    assert network.bandwidth_bytes_per_s == pytest.approx(4 * 1.1e9)
    assert 8 * 8 * network.bandwidth_bytes_per_s == pytest.approx(220e15 / 850000, rel=0.1)  # 282 against 259 Gb/s
