"""Random machines as plain data: racks of accelerators on two networks, one with a pool above, chips of memories and fans, wafers."""

from __future__ import annotations

import random
from typing import Any

Data = dict[str, Any]


def network(pick: random.Random, members: int, speeds: list[str]) -> Data:
    """A network between so many members."""
    shapes = [[a, members // a] for a in range(1, members + 1) if members % a == 0]
    topology = pick.choice(["ring", "ring", "switch", "switch", "mesh", "torus", "row_column", "point_to_point"])
    made: Data = {
        "topology": topology,
        "bandwidth": pick.choice(speeds),
        "latency": pick.choice(["0 s", "1 us", "20 us"]),
        "energy": pick.choice(["0 pJ/bit", "1.3 pJ/bit", "20 pJ/bit"]),
        "hops": pick.choice(["slowest_link", "path_sum"]),
    }
    if topology in ("mesh", "torus", "row_column"):
        made["shape"] = pick.choice(shapes)
    if topology == "point_to_point":
        made |= {"pair_links": pick.choice([1, 2]), "striped": pick.choice([True, False])}
    return made


def accelerator(pick: random.Random, count: int, capacity: str | None) -> Data:
    """An accelerator of one memory and one compute."""
    memory = {
        "bandwidth": pick.choice(["200 GB/s", "1 TB/s", "4 TB/s"]),
        "read_energy": pick.choice(["1 pJ/bit", "5 pJ/bit"]),
        "write_energy": pick.choice(["1 pJ/bit", "7 pJ/bit"]),
    }
    return {
        "name": "gpu",
        "count": count,
        "accelerator": True,
        "static_power": pick.choice(["0 W", "0 W", "70 W", "500 W"]),
        "memory": memory | ({"capacity": capacity, "visible": 1.0625} if capacity else {}),
        "compute": {"rate": pick.choice(["1 TFLOP/s", "20 TFLOP/s", "300 TFLOP/s"]), "energy": "0.5 pJ/FLOP"},
    }


def rack(pick: random.Random, racks: int, gpus: int, *, capacity: str | None = None, host: bool = False) -> Data:
    """Racks of accelerators on two networks. host: every rack has a memory of its own."""
    inside = network(pick, gpus, ["20 GB/s", "100 GB/s", "900 GB/s"])
    outside = network(pick, racks, ["5 GB/s", "50 GB/s", "200 GB/s"])
    own: Data = {"name": "rack", "count": racks, "network": inside, "children": [accelerator(pick, gpus, capacity)]}
    if host:
        speed = pick.choice(["20 GB/s", "500 GB/s"])
        own["memory"] = {"capacity": "2 TB", "bandwidth": speed, "read_energy": "20 pJ/bit", "write_energy": "20 pJ/bit"}
    tree = {"name": "system", "network": outside, "children": [own]}
    return {"architecture": "random", "accelerators": racks * gpus, "tree": tree}


def kinds(pick: random.Random, capacity: str | None = None) -> Data:
    """Racks of accelerators of two kinds, each on networks of its own, joined by a switch."""
    made, members = [], 0
    for name in ("fast", "slow"):
        racks, gpus = pick.choice([1, 1, 2]), pick.choice([2, 4])
        inside = rack(pick, racks, gpus, capacity=capacity)["tree"]
        inside["children"][0] |= {"name": f"{name}_rack"}
        inside["children"][0]["children"][0] |= {"name": name}
        made.append(inside | {"name": f"{name}_part"})
        members += racks * gpus
    joint = {"topology": "switch", "bandwidth": pick.choice(["5 GB/s", "50 GB/s"]), "latency": pick.choice(["0 s", "20 us"])}
    return {"architecture": "random", "accelerators": members, "tree": {"name": "both", "network": joint, "children": made}}


def pool(pick: random.Random, wafers: int, capacity: str | None = None) -> Data:
    """Wafers and one pool of memory under a tree that multicasts and adds."""
    net = {
        "topology": "tree",
        "fanout": pick.choice([2, 4]),
        "multicast": True,
        "reduce": True,
        "links": pick.choice([1, 2]),
        "bandwidth": pick.choice(["10 GB/s", "150 GB/s", "2 TB/s"]),
        "latency": pick.choice(["0 s", "1 us"]),
        "energy": "55 pJ/bit",
        "add_energy": "1 pJ/FLOP",
    }
    memory = {"capacity": "1 PB", "read_energy": "20 pJ/bit", "write_energy": "20 pJ/bit"}
    if pick.random() < 0.5:
        memory["bandwidth"] = pick.choice(["50 GB/s", "1 TB/s"])
    above = {"name": "memoryx", "count": 1, "memory": memory}
    above["compute"] = {"rate": "150 TFLOP/s", "vector": {"rate": pick.choice(["1 TFLOP/s", "150 TFLOP/s"]), "energy": "10 pJ/FLOP"}}
    wafer = accelerator(pick, wafers, capacity)
    return {"architecture": "random", "accelerators": wafers, "tree": {"name": "swarmx", "network": net, "children": [wafer, above]}}


def wafer(pick: random.Random) -> Data:
    """A small mesh of cores that are the accelerators, weights from a pool above."""
    rows, columns = pick.choice([(2, 2), (2, 4), (4, 2), (4, 4)])
    mesh = {
        "topology": "mesh",
        "shape": [rows, columns],
        "multicast": pick.random() < 0.7,
        "reduce": pick.random() < 0.7,
        "bandwidth": pick.choice(["4 GB/s", "100 GB/s"]),
        "latency": pick.choice(["0 s", "1 ns"]),
        "add_energy": "0.4 pJ/FLOP",
        "energy": "0.06 pJ/bit",
    }
    data = pool(pick, 1)
    cores = {"name": "wafer", "count": 2, "network": mesh, "children": [accelerator(pick, rows * columns, None) | {"name": "core"}]}
    data["tree"]["children"][0] = cores
    return data | {"accelerators": rows * columns}


def chip(pick: random.Random, levels: int) -> Data:
    """One accelerator of so many memories and a fan above its units, small enough that capacities bind."""
    x, y = pick.choice([(2, 2), (4, 1), (4, 4), (3, 2)])
    unit: Data = {"name": "mac", "count": x * y, "compute": {"rate": pick.choice(["1 GMAC/s", "50 MMAC/s"]), "energy": "0.5 pJ/MAC"}}
    if levels == 3:
        unit["memory"] = {"capacity": pick.choice(["64 B", "256 B"]), "read_energy": "0.05 pJ/bit", "write_energy": "0.1 pJ/bit"}
    buffer = {
        "capacity": pick.choice(["128 B", "400 B", "2 KiB"]),
        "bandwidth": pick.choice(["16 GB/s", "1 GB/s"]),
        "read_energy": "1 pJ/bit",
        "write_energy": pick.choice(["1 pJ/bit", "3 pJ/bit"]),
    }
    fan: Data = {"x": x, "y": y} | ({"hop_energy": "0.3 pJ/bit"} if pick.random() < 0.3 else {})
    dram = {"bandwidth": pick.choice(["8 GB/s", "500 MB/s"]), "read_energy": "10 pJ/bit", "write_energy": "10 pJ/bit"}
    glb = {"name": "glb", "memory": buffer, "fan": fan, "children": [unit]}
    return {"architecture": "random", "tree": {"name": "chip", "accelerator": True, "memory": dram, "children": [glb]}}


def cores(pick: random.Random) -> Data:
    """One accelerator whose cores are the home of what rests: a memory at the edge, a fan, cores."""
    x, y = pick.choice([(2, 2), (3, 2), (4, 4)])
    edge = {"bandwidth": pick.choice(["1 GB/s", "20 GB/s"]), "ports": "split", "read_energy": "55 pJ/bit", "write_energy": "55 pJ/bit"}
    fan = {"x": x, "y": y, "hop_energy": "0.06 pJ/bit", "link_bandwidth": pick.choice(["1 GB/s", "4 GB/s"])}
    memory = {
        "capacity": pick.choice(["256 B", "2 kB"]),
        "bandwidth": "16 GB/s",
        "ports": "split",
        "write_bandwidth": "8 GB/s",
        "read_energy": "0.1 pJ/bit",
        "write_energy": "0.1 pJ/bit",
    }
    core = {"name": "core", "count": x * y, "memory": memory, "compute": {"rate": "1 GMAC/s", "energy": "0.6 pJ/MAC"}}
    return {"architecture": "random", "tree": {"name": "wafer", "accelerator": True, "memory": edge, "fan": fan, "children": [core]}}
