"""`rackmodel import`: other tools' architectures and energy tables become ours, and nothing is dropped without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import check, read_architecture
from rackmodel.inputs.importers import MOST_NOTED, import_files
from rackmodel.model.architecture import Architecture
from tests.commands import invoke

DATA = Path(__file__).parent / "data" / "import"
ARCH, ERT, VARIABLES, FORGE = (DATA / f"{name}.yaml" for name in ("spads.arch", "spads.ert", "variables", "forge"))


def machine(tmp_path: Path, *files: Path, **options: str) -> tuple[Architecture, list[str]]:
    """The architecture that an import makes, read back, and its warnings without places."""
    made = import_files(files, **options)
    path = tmp_path / f"{made.name}.yaml"
    path.write_text(made.text, encoding="utf-8")
    return read_architecture(path), [line.partition(": ")[2] for line in made.warnings]


def refused(tmp_path: Path, text: str, **options: str) -> str:
    """The message of the InputError that importing a text raises."""
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        import_files([path], **options)
    return str(caught.value).removeprefix(f"{path}:")


def test_timeloop_sizes_speeds_and_energies_arrive_in_si(tmp_path: Path) -> None:
    """By hand: 1,024 x 64 bits = 8 KiB; 16 words of 8 bits in 2 ns = 8 GB/s; 19.2 pJ a read of 64 bits = 0.3 pJ/bit."""
    made, _ = machine(tmp_path, ARCH, ERT, VARIABLES)
    assert [(level.name, count) for level, count in made.inside] == [
        ("main", 1), ("buffer", 1), ("in_spad", 12), ("weight_spad", 12), ("sum_spad", 12), ("mac", 12),
    ]  # fmt: skip
    main, buffer, spad = (made.level(name).memory for name in ("main", "buffer", "in_spad"))
    assert (main.capacity_bytes, main.bandwidth_bytes_per_s, main.ports) == (None, 4e9, "shared")
    assert main.read_j_per_byte == pytest.approx(512e-12 / 8)
    assert (buffer.capacity_bytes, buffer.bandwidth_bytes_per_s, buffer.write_port_bytes_per_s) == (8192, 8e9, 2e9)
    assert (buffer.read_j_per_byte / 8, buffer.write_j_per_byte / 8) == pytest.approx((0.3e-12, 0.2e-12))
    assert buffer.buffers == 2
    assert made.level("buffer").static_power_w == pytest.approx(2e-12 / 2e-9), "leak is pJ a cycle"
    assert spad.capacity_bytes == 24
    assert spad.read_j_per_byte / 8 == pytest.approx(0.01e-12), "the dearest of two reads, over 16 bits"
    compute = made.level("mac").compute
    assert (compute.rate_flop_per_s, compute.energy_j_per_flop) == pytest.approx((2 * 0.5e9, 0.1e-12))


def test_timeloop_fans_and_kept_tensors_arrive(tmp_path: Path) -> None:
    """Columns of 4 and elements of 3 are one fan; parallel scratchpads keep one tensor each and let the others pass."""
    made, _ = machine(tmp_path, ARCH, ERT, VARIABLES)
    fan = made.level("buffer").fanout
    assert (fan.x, fan.y) == (4, 3)
    stored = {level.name: (level.memory.keep, level.memory.bypass) for level, _ in made.inside if level.memory is not None}
    assert stored == {
        "main": (None, ()),
        "buffer": (("left", "result"), ("right",)),
        "in_spad": (("left",), ("right", "result")),
        "weight_spad": (("right",), ("left", "result")),
        "sum_spad": (("result",), ("left", "right")),
    }


def test_everything_that_is_not_carried_over_is_named_with_its_place(tmp_path: Path) -> None:
    made, warnings = machine(tmp_path, ARCH, ERT, VARIABLES)
    assert warnings == [
        "main.attributes.type: not imported",
        "chip.attributes.technology: not imported",
        "buffer.attributes.n_banks: not imported",
        "buffer.constraints.temporal: not imported (a mapper file says what is searched)",
        "column.constraints.spatial: not imported (a mapper file says what is searched)",
        "parallel memories are read as one below the other: in_spad, weight_spad, sum_spad",
        "noc: not imported (class 'xy_noc' is neither a memory nor a compute)",
        "mac.attributes.multiplier_width: not imported",
        "ERT.buffer.update: not imported, updates cost a write",
        "ERT.in_spad.read.arguments.address_delta: not imported",
        "ERT.in_spad.read.arguments.address_delta: not imported",
        "ERT.in_spad.read: several rows, the highest energy is taken",
        "ERT.ghost: no such component in the architecture",
        "weight_spad: no energy given, 0 is charged",
        "sum_spad: no energy given, 0 is charged",
        "variables.technology: not imported",
    ]
    assert all(text in made.note for text in warnings)
    assert import_files([ARCH, ERT, VARIABLES]).warnings[2].startswith(f"{ARCH}:17:")


def test_a_note_of_many_warnings_says_how_many_more_there_are(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    extra = ", ".join(f"k{i}: 1" for i in range(100))
    path.write_text(ARCH.read_text().replace("multiplier_width: 8", extra), encoding="utf-8")
    made, warnings = machine(tmp_path, path, clock="1 GHz")
    assert len(warnings) > 100
    assert made.note.endswith(f"and {len(warnings) - MOST_NOTED} more")


def test_a_cycle_comes_from_the_option_the_variables_or_the_nodes(tmp_path: Path) -> None:
    def rate(*files: Path, **options: str) -> float:
        return machine(tmp_path, *files, **options)[0].level("mac").compute.rate_flop_per_s / 2

    assert rate(ARCH, clock="3 GHz") == pytest.approx(3e9)
    assert rate(ARCH, VARIABLES, clock="3 GHz") == pytest.approx(3e9)
    assert rate(ARCH, VARIABLES) == pytest.approx(0.5e9)
    own = tmp_path / "own.yaml"
    own.write_text(ARCH.read_text().replace("name: system", "name: system\n    attributes: {global_cycle_seconds: 4e-9}"), encoding="utf-8")
    assert rate(own) == pytest.approx(0.25e9)
    assert "no cycle time: give --clock '1 GHz'" in refused(tmp_path, ARCH.read_text())


def test_accelforge_files_read_with_the_defaults_of_their_templates(tmp_path: Path) -> None:
    made, warnings = machine(tmp_path, FORGE)
    store, buffer = made.level("Store").memory, made.level("Buffer").memory
    assert (store.capacity_bytes, store.bandwidth_bytes_per_s, store.keep) == (None, 1e12, None)
    assert (store.read_j_per_byte / 8, store.write_j_per_byte / 8) == pytest.approx((8e-12, 9e-12))
    assert (buffer.capacity_bytes, buffer.bandwidth_bytes_per_s, buffer.keep) == (8192, 20e9, ())
    assert made.level("Buffer").static_power_w == 0.5
    assert (made.level("Buffer").fanout.x, made.level("Buffer").fanout.y, made.level("MAC").count) == (8, 2, 16)
    compute = made.level("MAC").compute
    assert (compute.rate_flop_per_s / 2, compute.energy_j_per_flop * 2) == pytest.approx((2e9, 0.5e-12))
    assert warnings == [
        "template variable 'store_keep': its default \"All\"",
        "template variable 'bits': its default 65536",
        "Ring: not imported (!Network)",
        "Buffer.area: not imported",
        "Buffer: read and write throughput differ, the lower is taken for the shared port",
        "Buffer.tensors.keep: '~All' not imported, the mapper chooses what is stored here",
        "Element.spatial.may_reuse: not imported, all tensors are multicast",
    ]


TINY = """\
arch:
  nodes:
  - !Memory
    name: chip
    size: inf
    actions: [{name: read, energy: 10.0e-12, throughput: 6.4e10}, {name: write, energy: 10.0e-12, throughput: 6.4e10}]
  - !Memory
    name: glb
    size: 65536
    actions: [{name: read, energy: 1.0e-12, throughput: 1.28e11}, {name: write, energy: 1.0e-12, throughput: 1.28e11}]
  - !Compute
    name: mac
    spatial: [{name: X, fanout: 4}, {name: Y, fanout: 4}]
    actions: [{name: compute, energy: 0.5e-12, throughput: 1.0e9}]
"""


def test_a_reference_machine_in_accelforge_s_words_is_the_shipped_one(tmp_path: Path) -> None:
    """The numbers of AccelForge's input for `tiny` give the same machine as specs/tiny.yaml, to the last digit."""

    def plain(node: object) -> object:
        if isinstance(node, dict):
            return {key: plain(value) for key, value in node.items() if key != "source"}
        return [plain(value) for value in node] if isinstance(node, list | tuple) else node

    path = tmp_path / "tiny_forge.yaml"
    path.write_text(TINY, encoding="utf-8")
    made, warnings = machine(tmp_path, path)
    assert warnings == []
    assert plain(made.tree.model_dump()) == plain(read_architecture("tiny").tree.model_dump())


NODES = "architecture:\n  version: 0.4\n  nodes:\n"
DRAM = "  - !Component {name: main, class: DRAM, attributes: {width: 64, datawidth: 8}}\n"
MAC = "  - !Component {name: mac, class: intmac}\n"
REFUSED = {
    "unknown tag": (NODES + "  - !Python {name: x}\n", "tag '!Python' is not known"),
    "python object": (NODES + "  - !!python/object:os.system {name: x}\n", "is not known"),
    "tag on a value": (NODES + "  - !Component x\n", "stands before a value"),
    "tag on a list": (NODES + "  - !Parallel [1]\n", "stands before a list"),
    "untagged node": (NODES + "  - {name: x}\n", "want a tagged node"),
    "merge key": ("a: &x {b: 1}\narchitecture: {<<: *x}\n", "merge keys '<<' are not read"),
    "template": (NODES.replace("0.4", "{{ v }}"), "a template without a default value"),
    "loop template": ("{% for i in x %}\n", "a template without a default value"),
    "older version": ("architecture: {version: 0.3, subtree: []}\n", "want Timeloop version 0.4"),
    "no compute": (NODES + DRAM, "want memories and below them one compute"),
    "two of a name": (NODES + DRAM + DRAM + MAC, "two nodes are called 'main'"),
    "expression": (NODES + DRAM.replace("64", "a * 2") + MAC, "expressions are not evaluated"),
    "spatial of nothing": (NODES + DRAM + MAC.replace("intmac", "intmac, spatial: {meshX: 0}"), "want a whole number, at least 1"),
    "many outermost": (NODES + DRAM.replace("class", "spatial: {meshX: 2}, class") + MAC, "outermost memory has several instances"),
    "below the compute": (NODES + DRAM + MAC + MAC.replace("mac,", "mac2,"), "a node below the compute"),
    "two that keep one": (
        NODES + DRAM + "  - !Parallel\n    nodes:\n" + "".join(
            f"    - !Component {{name: {n}, class: regfile, constraints: {{dataspace: {{keep: [Inputs]}}}}}}\n" for n in "ab"
        ) + MAC, "each with the tensors that it alone keeps"),
    "no machine": ("ERT: {version: 0.4, tables: []}\n", "0 of the files hold an architecture"),
    "no bandwidth": (NODES + DRAM.replace("datawidth: 8", "datawidth: 8, shared_bandwidth: 0") + MAC, "makes no architecture"),
    "compute without a rate": ("arch: {nodes: [!Memory {name: a}, !Compute {name: b}]}\n", "want an action 'compute' with a throughput"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    text, fact = REFUSED[name]
    assert fact in refused(tmp_path, text, clock="1 GHz")


def test_two_machines_or_a_bad_clock_are_refused() -> None:
    with pytest.raises(InputError, match="2 of the files hold an architecture"):
        import_files([ARCH, FORGE])
    for clock in ("1 s", "0 Hz", "fast"):
        with pytest.raises(InputError) as caught:
            import_files([ARCH], clock=clock)
        assert caught.value.path == "--clock"


def test_a_leak_without_a_cycle_time_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.yaml"
    table.write_text("ERT:\n  tables:\n  - {name: MAC, actions: [{name: leak, energy: 1.0}]}\n", encoding="utf-8")
    with pytest.raises(InputError, match="leak is energy per cycle"):
        import_files([FORGE, table])


def test_the_command_writes_a_file_that_check_accepts_and_warns_on_stderr(tmp_path: Path) -> None:
    run = invoke(["import", str(ARCH), str(ERT), str(VARIABLES), "-o", str(tmp_path), "--name", "my machine"])
    assert run.exit_code == 0
    path = tmp_path / "my_machine.yaml"
    assert check(path) == "architecture"
    assert run.stdout == ""
    assert run.stderr.count("warning: ") == 16
    assert str(tmp_path) not in path.read_text(encoding="utf-8"), "no path of this machine in the file"


def test_the_command_prints_the_file_or_json(tmp_path: Path) -> None:
    run = invoke(["import", str(FORGE)])
    assert run.stdout == import_files([FORGE]).text
    run = invoke(["import", str(FORGE), "--json"])
    data = json.loads(run.stdout)
    assert (data["architecture"], data["file"], len(data["warnings"])) == ("forge", None, 7)


def test_the_same_files_give_the_same_text() -> None:
    assert import_files([ARCH, ERT, VARIABLES]) == import_files([ARCH, ERT, VARIABLES])
