"""Single accelerators and the reference machines: they read, their numbers are the published ones, their nest fields hold."""

from __future__ import annotations

from math import inf

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import check, library_names, library_path, load, read_architecture
from rackmodel.model.architecture import Architecture, Atom, Compute, Fan, Level, Memory

GPUS = ("a100", "h100", "h200", "b200")
MACHINES = ("tiny", "tiny_cb", "glb_pe", "edge3")
OTHERS = ("tpu_v4i", "wse2_mesh")

# The conformance folder's arch/*.yaml (inputs of AccelForge 1.0.467): bits, bit/s and J/bit of one instance, MAC/s, J/MAC.
# Level: (capacity bits, bit/s, J/bit); the last entry is the fan (x, y) above the elements and the compute.
CONFORMANCE = {
    "tiny": {"chip": (None, 6.4e10, 10e-12), "glb": (65536, 1.28e11, 1e-12), "mac": (4, 4, 1e9, 0.5e-12)},
    "tiny_cb": {"chip": (None, 6.4e10, 10e-12), "glb": (65536, 1.28e11, 1e-12), "mac": (4, 4, 5e7, 0.5e-12)},
    "glb_pe": {"chip": (None, 8e12, 8e-12), "glb": (67108864, 3.2e13, 1e-12), "mac": (32, 32, 1e9, 0.5e-12)},
    "edge3": {
        "chip": (None, 8e12, 8e-12),
        "glb": (67108864, 3.2e13, 1e-12),
        "pe": (8192, None, 0.05e-12),
        "mac": (32, 32, 1e9, 0.5e-12),
    },
}

# Dense matrix peaks and fp32 vector peak in TFLOP/s from the makers' data sheets and white papers.
PEAKS = {
    "a100": ({"tf32": 156.0, "bf16": 312.0, "int8": 624.0}, 19.5),
    "h100": ({"tf32": 494.7, "bf16": 989.4, "fp8": 1978.9}, 66.9),
    "h200": ({"tf32": 494.7, "bf16": 989.4, "fp8": 1978.9}, 66.9),
    "b200": ({"tf32": 1100.0, "bf16": 2250.0, "fp8": 4500.0, "fp4": 9000.0}, 80.0),
}


def _compute(architecture: Architecture) -> tuple[Compute, int]:
    level, count = architecture.inside[-1]
    assert level.compute is not None
    return level.compute, count


def _memories(architecture: Architecture) -> dict[str, Memory]:
    return {level.name: level.memory for level, _ in architecture.inside if level.memory is not None}


@pytest.mark.parametrize("name", [*GPUS, *MACHINES, *OTHERS])
def test_a_machine_is_one_accelerator_whose_fans_hold_its_children(name: str) -> None:
    machine = read_architecture(name)
    assert (machine.available, machine.above) == (1, ())
    for level in machine.tree.walk():
        assert level.fanout.size == max(1, sum(child.count for child in level.children))
    assert machine.accelerator.memory is not None, "the outermost memory holds every tensor"


@pytest.mark.parametrize("name", MACHINES)
def test_a_reference_machine_has_exactly_the_numbers_of_its_arch_file(name: str) -> None:
    machine, want = read_architecture(name), CONFORMANCE[name]
    memories = _memories(machine)
    assert list(memories) == [level for level in want if level != "mac"]
    for level, memory in memories.items():
        capacity, speed, energy = want[level]
        assert memory.capacity_bytes == (None if capacity is None else capacity / 8)
        assert memory.bandwidth_bytes_per_s == (None if speed is None else speed / 8)
        assert (memory.read_j_per_byte, memory.write_j_per_byte) == pytest.approx((energy * 8, energy * 8), rel=1e-15)
        assert (memory.ports, memory.buffers, memory.keep, memory.bypass, memory.bits) == ("shared", 1, None, (), {})
    x, y, rate, energy = want["mac"]
    compute, count = _compute(machine)
    fan = machine.level("glb").fanout
    assert (count, fan.x, fan.y, fan.linear, fan.multicast_width, fan.hop_j_per_byte) == (x * y, x, y, None, None, 0)
    assert compute.matrix(16).rate_flop_per_s / 2 == pytest.approx(rate, rel=1e-15)
    assert compute.matrix(16).energy_j_per_flop * 2 == pytest.approx(energy, rel=1e-15)
    assert compute.matrix(16).atom is None
    assert machine.accelerator.static_power_w == 0


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_reaches_the_peaks_of_its_data_sheet(name: str) -> None:
    compute, count = _compute(read_architecture(name))
    matrix, vector = PEAKS[name]
    assert {key: rate.rate_flop_per_s * count / 1e12 for key, rate in compute.precisions.items()} == pytest.approx(matrix, rel=1e-3)
    assert compute.vector is not None
    assert compute.vector.rate_flop_per_s * count / 1e12 == pytest.approx(vector, rel=1e-3)


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_s_instruction_has_256_bits_of_depth_and_its_sums_32_bits(name: str) -> None:
    """One matrix instruction sums over 32 bytes of each operand's row, whatever the width of a value."""
    machine = read_architecture(name)
    for key in ("tf32", "bf16", "fp8", "int8", "fp4"):
        rate = _compute(machine)[0].precisions.get(key)
        if rate is not None:
            assert rate.atom is not None
            assert rate.atom.k * {"tf32": 32, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}[key] == 256
    registers = machine.level("tensor_core").memory
    assert registers is not None
    assert registers.bits_by_tensor == {"result": 32}
    assert machine.level("l2").fanout.linear == machine.level("sm").count


def test_memories_of_the_gpus_are_those_of_the_data_sheets() -> None:
    shown = {name: (m.capacity_bytes, m.bandwidth_bytes_per_s) for name in GPUS if (m := read_architecture(name).accelerator.memory)}
    want = {"a100": (80e9, 2.039e12), "h100": (80e9, 3.35e12), "h200": (141e9, 4.8e12), "b200": (180e9, 8e12)}
    assert {name: pytest.approx(pair) for name, pair in want.items()} == shown


def test_a_wafer_of_cores_adds_up_to_what_the_cluster_file_says_of_a_wafer() -> None:
    """wse2_mesh describes a core, cs2 a wafer: capacity, bandwidth and peak must be one machine's."""
    wafer, mesh = read_architecture("cs2").accelerator, read_architecture("wse2_mesh")
    core = mesh.level("core")
    assert core.memory is not None
    assert wafer.memory is not None
    assert core.count * core.memory.capacity_bytes == pytest.approx(wafer.memory.capacity_bytes, rel=0.03)
    both = core.memory.bandwidth_bytes_per_s + core.memory.write_port_bytes_per_s
    assert core.count * both == pytest.approx(wafer.memory.bandwidth_bytes_per_s, rel=1e-3)
    assert core.compute.matrix(16).rate_flop_per_s * core.count == pytest.approx(7.5e15, rel=1e-3)
    hop = mesh.accelerator.fanout.hop_j_per_byte
    assert (hop.low / 8, hop.high / 8) == pytest.approx((0.02e-12, 0.1e-12))


def test_a_wafer_s_links_carry_32_bits_a_clock_and_eight_of_them_a_core_s_share_of_the_fabric() -> None:
    fan = read_architecture("wse2_mesh").accelerator.fanout
    clock = 7.5e15 / 850_000 / 8  # four multiply-accumulates a clock and core
    assert fan.link_bytes_per_s == pytest.approx(4 * clock, rel=0.01)
    assert 8 * 8 * fan.link_bytes_per_s == pytest.approx(220e15 / 850_000, rel=0.1)
    with pytest.raises(ValueError, match="link_bandwidth"):
        Fan.model_validate({"x": 2, "link_bandwidth": "0 B/s"})


def test_a_tpu_s_arrays_make_138_teraflops_and_hold_their_weights_twice() -> None:
    machine = read_architecture("tpu_v4i")
    compute, count = _compute(machine)
    assert compute.matrix(16).rate_flop_per_s * count == pytest.approx(4 * 128 * 128 * 2 * 1.05e9, rel=1e-6)
    assert compute.matrix(16).atom == compute.matrix(8).atom == compute.atom
    array = machine.level("mxu").memory
    assert array.capacity_bytes == 128 * 128 * 2 * array.buffers
    assert (array.bandwidth_bytes_per_s, array.write_port_bytes_per_s) == (None, pytest.approx(128 * 2 * 1.05e9))


@pytest.mark.parametrize("name", library_names()["part"])
def test_a_part_reads_and_says_what_it_is(name: str) -> None:
    path = library_path("part", name)
    assert check(path) == "part"
    assert path.read_text(encoding="utf-8").startswith("#")


@pytest.mark.parametrize("name", [*GPUS, *MACHINES, *OTHERS])
def test_every_source_says_how_far_it_can_be_trusted(name: str) -> None:
    """SOURCED, RECALLED, DERIVED or ASSUMED, or the conformance case."""
    found = []
    todo = [load("architecture", name).mapping["tree"]]
    while todo:
        node = todo.pop()
        source = node.child("source")
        if source is not None:
            found.append(source.text or "")
        todo += [*node.mapping.values(), *node.items]
    words = ("SOURCED", "RECALLED", "DERIVED", "ASSUMED", "conformance case, AccelForge 1.0.467 input")
    assert found
    assert [text for text in found if not any(word in text for word in words)] == []


def test_ports_say_what_limits_a_write() -> None:
    shared = Memory.model_validate({"bandwidth": "8 GB/s"})
    split = Memory.model_validate({"bandwidth": "8 GB/s", "ports": "split", "write_bandwidth": "2 GB/s"})
    free = Memory.model_validate({"bandwidth": "8 GB/s", "ports": "split"})
    assert [memory.write_port_bytes_per_s for memory in (shared, split, free)] == [None, 2e9, inf]


def test_an_atom_of_a_precision_comes_before_that_of_the_compute() -> None:
    rates = {"bf16": {"rate": "2 TFLOP/s"}, "fp16": {"rate": "1 TFLOP/s"}, "fp8": {"rate": "4 TFLOP/s", "atom": {"k": 32}}}
    compute = Compute.model_validate({"atom": {"m": 16, "n": 8, "k": 16}, "precisions": rates})
    assert compute.matrix(16).atom == Atom(m=16, n=8, k=16)
    assert compute.matrix(8).atom == Atom(k=32)
    assert compute.matrix(16).rate_flop_per_s == 2e12, "of two of one width the first counts"
    assert compute.matrix(4) == compute.matrix(8)
    assert (compute.atom.m, compute.atom.n, compute.atom.k) == (16, 8, 16)


def test_children_without_a_fan_stand_in_a_row() -> None:
    level = Level.model_validate({"name": "a", "children": [{"name": "b", "count": 6}]})
    assert level.fanout == Fan(x=6)
    assert Level.model_validate({"name": "a"}).fanout.size == 1


GPU = """\
architecture: small
tree:
  name: gpu
  accelerator: true
  memory: {bandwidth: 1 TB/s}
  fan: {linear: 4}
  children:
  - name: sm
    count: 4
    memory: {keep: [left]}
    compute: {rate: 1 TFLOP/s}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "fact"),
    [
        ("{linear: 4}", "{linear: 5}", 6, "holds 5 children, 'gpu' has 4"),
        ("{linear: 4}", "{linear: 4, x: 4}", 6, "a fan is either a line or x by y"),
        ("{linear: 4}", "{x: 0, y: 4}", 6, "0 must be above 0"),
        ("1 TB/s}", "1 TB/s, write_bandwidth: 1 TB/s}", 5, "write_bandwidth needs ports: split"),
        ("1 TB/s}", "1 TB/s, ports: both}", 5, "'both' is not allowed"),
        ("[left]", "[left], bypass: [left]", 10, "'left' is in keep too"),
        ("[left]", "[left], bits: {result: 32}", 10, "want text"),
        ("[left]", "[left], bits: {result: wide}", 10, "'wide' is not a precision"),
        ("[left]", "[left], buffers: 3", 10, "'3' is not allowed"),
        ("1 TFLOP/s}", "1 TFLOP/s, atom: {m: 16, j: 8}}", 11, "unknown key 'j'"),
    ],
)
def test_a_mistake_in_a_nest_field_is_placed(tmp_path, old: str, new: str, line: int, fact: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(GPU.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_architecture(path)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert fact in str(caught.value)
