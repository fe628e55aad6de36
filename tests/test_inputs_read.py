"""Names and files → typed objects: good inputs, extends, parts, kinds, and every bad input with its place."""

import re
import time
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rackmodel as rm
import rackmodel.inputs as inputs
from rackmodel.errors import InputError
from rackmodel.inputs import check, kind_of, library_names, load, read_architecture, read_inputs, read_mapper, read_mapping, read_workload
from rackmodel.inputs.library import resolve
from tests import samples

ARCHITECTURE = """\
architecture: small
accelerators: 4
site: {grid: world, pue: 1.1}
tree:
  name: system
  network: {topology: ring, bandwidth: 50 GB/s, energy: 20 pJ/bit, source: "seed"}
  children:
  - name: rack
    count: 2
    network: {topology: ring, bandwidth: 900 GB/s}
    children:
    - name: gpu
      count: 4
      accelerator: true
      memory:
        capacity: 80 GB
        bandwidth: {low: 3 TB/s, mid: 3.35 TB/s, high: 4 TB/s, source: "data sheet"}
      compute: {rate: 1 PFLOP/s}
"""
WORKLOAD = """\
workload: two
sizes: {m: 64, d: 32, f: 4 * d}
phases: [forward, backward]
einsums:
  FC1: H[m,f] = X[m,d] * W1[d,f]
  FC2: Y[m,d] = H[m,f] * W2[f,d]
"""
MAPPER = """\
mapper: tensor
axes: {tp: {degree: all, place: inner}}
split: {tp: [f]}
"""
MAPPING = """\
mapping: best
accelerators: 4
axes: {tp: {degree: 4, stride: 1}}
ops: {FC1: {tp: f}, FC2: {tp: f}}
"""
GOOD = {"architecture": ARCHITECTURE, "workload": WORKLOAD, "mapper": MAPPER, "mapping": MAPPING}
READ = {"architecture": read_architecture, "workload": read_workload, "mapper": read_mapper, "mapping": read_mapping}


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path as text."""

    def at(name, text):
        path = tmp_path / name
        path.write_text(dedent(text), encoding="utf-8")
        return str(path)

    return at


def refusal(read, *args, **kwargs):
    """The message of the InputError that reading raises, which comes within seconds of work (not of waiting for a busy machine)."""
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        read(*args, **kwargs)
    assert time.process_time() - start < 5
    return str(caught.value)


def test_good_files_of_every_kind_are_read(write):
    for kind, text in GOOD.items():
        path = write(f"{kind}.yaml", text)
        assert kind_of(path) == kind
        assert check(path) == kind
        READ[kind](path)


def test_inputs_are_si_and_typed(write):
    read = read_inputs(write("a.yaml", ARCHITECTURE), write("w.yaml", WORKLOAD), mapper=write("m.yaml", MAPPER))
    gpu = read.architecture.accelerator
    assert gpu.memory.capacity_bytes == 80e9
    assert (gpu.memory.bandwidth_bytes_per_s, gpu.memory.bandwidth_bytes_per_s.low) == (3.35e12, 3e12)
    assert read.workload.sizes == {"m": 64, "d": 32, "f": 128}
    assert read.mapper.axes["tp"].degree == "all"
    assert read.mapping is None


def test_everything_in_the_library_is_read():
    for kind, names in library_names().items():
        for name in names:
            read = resolve(kind, name).path
            assert check(read) == kind


def test_a_path_works_wherever_a_name_does():
    name = library_names()["workload"][0]
    assert read_workload(resolve("workload", name).path) == read_workload(name)


def test_the_public_names_are_those_of_the_package():
    assert sorted(inputs.__all__) == inputs.__all__
    assert all(hasattr(inputs, name) for name in inputs.__all__)


A, W, M, G = "architecture", "workload", "mapper", "mapping"
BAD = {
    # kind, what is replaced, by what, place, words of the message
    "unknown key": (A, "capacity: 80", "capcity: 80", "16:9", "tree.gpu.memory.capcity: unknown key 'capcity'", "did you mean 'capacity'?"),
    "unknown top key": (A, "site:", "sites:", "3:1", "sites: unknown key 'sites'", "did you mean 'site'?"),
    "key by field name": (A, "capacity: 80", "capacity_bytes: 80", "16:9", "unknown key 'capacity_bytes'"),
    "duplicate key": (A, "    count: 2", "    count: 2\n    count: 3", "10:5", "duplicate key 'count' (first at line 9)"),
    "missing unit": (A, "80 GB", "80", "16:19", "tree.gpu.memory.capacity: '80' has no unit", "such as '80 GB'"),
    "wrong dimension": (A, "50 GB/s", "3 pJ", "6:40", "tree.system.network.bandwidth: '3 pJ' has the wrong dimension"),
    "unknown unit": (A, "50 GB/s", "50 GX/s", "6:40", "unknown unit 'GX/s'"),
    "huge exponent in a unit": (A, "50 GB/s", "50 GB^9^9^9^9", "6:40", "unknown unit"),
    "negative quantity": (A, "80 GB", "-80 GB", "16:19", "'-80 GB' is negative"),
    "zero bandwidth": (A, "900 GB/s", "0 GB/s", "10:42", "tree.rack.network.bandwidth: bandwidth must be positive"),
    "more instances than numbers": (
        A,
        "count: 2",
        "count: 9007199254740991",
        "5:3",
        "tree.system: 3.6e+16 instances of one level: at most 2^53",
    ),
    "negative count": (A, "count: 2", "count: -2", "9:12", "tree.rack.count: -2 must be above 0"),
    "count is text": (A, "count: 2", "count: two", "9:12", "tree.rack.count: 'two': want a whole number"),
    "count is a fraction": (A, "count: 2", "count: 2.5", "9:12", "'2.5': want a whole number"),
    "count is true": (A, "count: 2", "count: true", "9:12", "'true': want a whole number"),
    "yes is not true": (A, "accelerator: true", "accelerator: yes", "14:20", "'yes': want true or false"),
    "one is not true": (A, "accelerator: true", "accelerator: 1", "14:20", "'1': want true or false"),
    "unknown word": (
        A,
        "topology: ring, bandwidth: 50",
        "topology: rng, bandwidth: 50",
        "6:23",
        "'rng' is not allowed",
        "did you mean 'ring'?",
    ),
    "missing key": (A, "topology: ring, bandwidth: 50", "bandwidth: 50", "6:12", "tree.system.network: missing key 'topology'"),
    "missing tree": (A, "tree:", "note: x\nsite2:", "5:1", "unknown key 'site2'"),
    "range upside down": (A, "low: 3 TB/s", "low: 9 TB/s", "17:20", "low <= mid <= high"),
    "range with a foreign key": (A, "low: 3 TB/s", "lo: 3 TB/s", "17:21", "tree.gpu.memory.bandwidth.lo: unknown key 'lo'"),
    "scalar for a mapping": (A, "compute: {rate: 1 PFLOP/s}", "compute: 5", "18:16", "'5': want a mapping"),
    "mapping for a scalar": (A, "count: 2", "count: {a: 1}", "9:12", "'{...}': want a whole number"),
    "children not a list": (A, "children:\n  - name: rack", "children:\n    name: rack", None, ""),
    "level without name": (A, "- name: rack\n    count", "- count", "8:5", "missing key 'name'"),
    "two levels of a name": (A, "name: rack", "name: gpu", "12:13", "two levels are called 'gpu'"),
    "name with a dot": (A, "name: rack", "name: ra.ck", "8:11", "is not a name"),
    "no accelerator": (A, "accelerator: true", "accelerator: false", "4:1", "tree: one level must say accelerator: true"),
    "too many accelerators": (A, "accelerators: 4", "accelerators: 40", "2:15", "accelerators: 40 asked for, the tree has 8"),
    "unknown grid": (A, "grid: world", "grid: wrld", "3:14", "site.grid: no grid called 'wrld'", "did you mean 'world'?"),
    "pue below one": (A, "pue: 1.1", "pue: 0.9", "3:26", "site.pue: pue is facility energy"),
    "not a number": (A, "pue: 1.1", "pue: .nan", "3:26", "not a finite number"),
    "tag": (A, "site: ", "site: !site ", "3:7", "YAML tags are not allowed"),
    "merge": (A, "site: {", "site: {<<: x, ", "3:8", "merge keys '<<' are not allowed"),
    "rank without size": (W, "m: 64, ", "", "5:8", "einsums.FC1: index 'm' has no size"),
    "size of zero": (W, "m: 64", "m: 0", "2:12", "sizes.m: size 0 of 'm'"),
    "negative size": (W, "m: 64", "m: -4", "2:12", "size -4 of 'm'"),
    "size is a fraction": (W, "m: 64", "m: 6.5", "2:12", "sizes.m: '6.5': want a whole number"),
    "size is true": (W, "m: 64", "m: true", "2:12", "'true': want"),
    "size too large": (W, "4 * d", "1e308 * 1e308", "2:26", "sizes.f: '1e308 * 1e308' is too large"),
    "sizes in a circle": (W, "d: 32", "d: f", None, "sizes refer to each other in a circle"),
    "size of an unknown name": (W, "4 * d", "4 * e", "2:26", "sizes.f: '4 * e': no size called 'e'"),
    "ranks that do not match": (W, "= H[m,f] * W2", "= H[f,m] * W2", "6:8", "einsums.FC2: H[f,m] walks rank 1 of H over 128"),
    "too few ranks": (W, "= H[m,f] * W2", "= H[m] * W2", "6:8", "einsums.FC2"),
    "not an einsum": (W, "H[m,f] = X[m,d] * W1[d,f]", "hello", "5:8", "einsums.FC1: 'hello' is not an operation"),
    "einsum not text": (W, "H[m,f] = X[m,d] * W1[d,f]", "5", "5:8", "einsums.FC1: '5': want text"),
    "cyclic graph": (W, "X[m,d] * W1", "Y[m,d] * W1", "5:8", "einsums.FC1: the operations form a cycle"),
    "written twice": (W, "Y[m,d] =", "H[m,d] =", "6:8", "'H' is written by both"),
    "unknown tensor": (W, "phases:", "tensors: {Q: {density: 1}}\nphases:", "3:11", "tensors.Q: no operation uses"),
    "unknown phase": (W, "backward]", "backwards]", "3:19", "'backwards' is not allowed", "did you mean 'backward'?"),
    "phase not a list": (W, "[forward, backward]", "forward", "3:9", "'forward': want a list"),
    "precision of nonsense": (W, "phases:", "precision: {state: 3 foo}\nphases:", "3:20", "precision.state: '3 foo' is not a precision"),
    "precision of another name": (W, "phases:", "precision: {state: fp17}\nphases:", "3:20", "did you mean 'fp16'?"),
    "endless stride": (W, "H[m,f] = X[m,d]", f"H[m,f] = X[{'9' * 5000}*m,d]", "5:8", "einsums.FC1: "),
    "unknown axis": (M, "split: {tp", "split: {dp", "3:9", "split.dp: no axis called 'dp'"),
    "degree of nonsense": (M, "degree: all", "degree: al", "2:21", "axes.tp.degree: 'al': want", "did you mean 'all'?"),
    "degree of zero": (M, "degree: all", "degree: [2, 0]", "2:25", "axes.tp.degree.1: 0 must be above 0"),
    "unknown solver": (M, "mapper: tensor", "mapper: tensor\nsolver: cp-sat", "2:9", "'cp-sat' is not allowed", "did you mean 'cpsat'?"),
    "stride of nothing": (G, "stride: 1", "stride: 0", "3:32", "axes.tp.stride: 0 must be above 0"),
    "no accelerators in a mapping": (G, "accelerators: 4\n", "", "1:1", "missing key 'accelerators'"),
    "another kind": (G, "mapping: best", "mapper: best", "1:1", "is a mapper file, where a mapping is wanted"),
    "no kind": (W, "workload: two\n", "", "1:1", "must begin with the key 'workload' (it begins with 'sizes')"),
    "kind not first": (
        W,
        "workload: two\nsizes: {m: 64, d: 32, f: 4 * d}",
        "sizes: {m: 64, d: 32, f: 4 * d}\nworkload: two",
        "2:1",
        "must begin with",
    ),
    "name not text": (W, "workload: two", "workload: [two]", "1:11", "want the name, as text"),
    "name missing": (W, "workload: two", "workload:", "1:10", "want the name, as text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_message_with_file_line_and_column(name, write):
    kind, old, new, place, *words = BAD[name]
    assert GOOD[kind].count(old) >= 1
    path = write("bad.yaml", GOOD[kind].replace(old, new, 1))
    message = refusal(READ[kind], path)
    assert message.startswith(f"{path}:{place}: " if place else f"{path}:"), message
    assert re.match(re.escape(path) + r":\d+:\d+: ", message), message
    for word in words:
        assert word in message, message
    assert len(message.split("\n  known")[0].splitlines()) == 1


def test_the_first_mistake_of_a_file_is_reported(write):
    text = ARCHITECTURE.replace("capacity", "capcity").replace("count: 2", "cuont: 2").replace("rate: 1 PFLOP/s", "rate: 1")
    assert ":9:5: tree.rack.cuont: unknown key" in refusal(read_architecture, write("a.yaml", text))


def test_missing_files_and_unknown_names_suggest_the_nearest(tmp_path):
    assert "no workload called 'atention'" in refusal(read_workload, "atention")
    assert "did you mean 'attention'?" in refusal(read_workload, "atention")
    message = refusal(read_workload, str(tmp_path / "atention.yaml"))
    assert message == f"{tmp_path}/atention.yaml: no such file; the library has a workload 'attention'"
    assert "no mapping called 'best': give the path of its file" in refusal(read_mapping, "best")
    assert "no input called 'zzz'" in refusal(check, "zzz")
    assert "no such file" in refusal(check, str(tmp_path / "ffn.yaml"))
    for name in ("", " ", "\0", "x" * 5000, "a/" + "x" * 5000, "/", ".", "..", "\n"):
        for read in (read_workload, read_mapping, check):
            refusal(read, name)


def test_a_size_that_nothing_counts_by_is_a_slip(write):
    typed = write("mine.yaml", "workload: mine\nextends: llama3_8b\nsizes: {layer: 16}\n")
    message = refusal(read_workload, typed)
    assert message.startswith(f"{typed}:3:9: sizes.layer: nothing counts by 'layer': no operation walks it")
    assert message.endswith("did you mean 'layers'?")
    idle = "workload: w\nsizes: {seq: 4, batch: 2, m: batch * seq, n: 8, p: q, q: 3}\neinsums: {A: 'Y[m,n] = X[m,n]'}\n"
    told = refusal(read_workload, write("w.yaml", idle))
    found = [name for name in ("seq", "batch", "m", "n", "p", "q") if f"sizes.{name}: nothing counts by" in told]
    assert found == ["p", "q"]  # m counts, and so do batch and seq, which it is made of


def test_rows_given_as_a_number_leave_what_they_were_made_of_idle(write):
    assert read_workload("ffn", ["m=64"]).sizes["m"] == 64  # (m: batch * seq)
    assert read_workload(write("mine.yaml", "workload: mine\nextends: ffn\nsizes: {m: 64}\n")).sizes["m"] == 64
    assert "--set seq=32: sizes.seq: nothing counts by 'seq'" in refusal(read_workload, "ffn", ["m=64", "seq=32"])
    both = write("both.yaml", "workload: both\nextends: ffn\nsizes: {m: 64, seq: 32}\n")
    assert f"{both}:3:16: sizes.seq: nothing counts by 'seq'" in refusal(read_workload, both)


def test_a_shape_of_another_length_is_said_as_a_list(write):
    machine = "architecture: a\ntree:\n  name: n\n  network: {topology: torus, shape: SHAPE, bandwidth: 1 GB/s}\n"
    machine += "  children: [{name: g, count: 4, accelerator: true, compute: {rate: 1 TFLOP/s}}]\n"
    for shape, said in (
        ("[4]", "4:37: tree.n.network.shape: '[4]': want a list of 2, [a, b], or a list of 3, [a, b, c]"),
        ("[0, 4]", "4:38: tree.n.network.shape.0: 0 must be"),
    ):
        path = write("a.yaml", machine.replace("SHAPE", shape))
        assert refusal(read_architecture, path).startswith(f"{path}:{said}")
        assert "\n" not in refusal(read_architecture, path)


def test_a_choice_of_a_mapper_stands_once_in_its_list(write):
    mapper = "mapper: p\naxes: {tp: {degree: DEGREE}}\nrecompute: RECOMPUTE\n"
    for degree, recompute, said in (
        ("[1, 2, 2]", "none", "2:21: axes.tp.degree: 2 is there twice: keep one"),
        ("[]", "none", "2:21: axes.tp.degree: an empty list leaves nothing to choose from"),
        ("2", "[full, none, full]", "3:12: recompute: full is there twice: keep one"),
    ):
        path = write("p.yaml", mapper.replace("DEGREE", degree).replace("RECOMPUTE", recompute))
        assert refusal(read_mapper, path) == f"{path}:{said}"


def test_check_tells_a_profile_that_is_none(write):
    path = write("p.yaml", "mapper: p\naxes: {tp: {degree: all}}\nprofile: serail\n")
    assert read_mapper(path).profile == "serail"  # an option may name another
    assert refusal(check, path).startswith(f"{path}:3:10: profile: no profile called 'serail'")


def test_the_folder_of_a_file_is_no_base_of_it(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("w.yaml", "workload: w\nextends: .\n")
    assert str(refusal(read_workload, "w.yaml")) == "w.yaml:2:10: extends: .: is a directory, not a file"


def test_a_folder_is_not_a_file(tmp_path):
    for read in (*READ.values(), check):
        assert f"{tmp_path}: is a directory" in refusal(read, str(tmp_path))


def test_every_file_of_a_wrong_kind_is_refused(write):
    paths = {kind: write(f"{kind}.yaml", text) for kind, text in GOOD.items()}
    for kind, read in READ.items():
        for other, path in paths.items():
            if other != kind:
                assert f"{path}:1:1: is a" in refusal(read, path)
    other = write("x.yaml", "hello: 1")
    assert "begins with 'hello', which is no kind of file" in refusal(check, other)


def test_extends_merges_mappings_and_replaces_the_rest(write):
    write("base.yaml", WORKLOAD)
    path = write("child.yaml", "workload: child\nextends: ./base.yaml\nsizes: {d: 16}\nphases: [forward]\n")
    child = read_workload(path)
    assert child.name == "child"
    assert child.sizes == {"m": 64, "d": 16, "f": 64}
    assert child.phases == ("forward",)


def test_sections_that_are_new_stand_before_the_next_that_is_extended(write):
    """A layer of one's own goes before the head; what is named after all others follows them."""
    path = write(
        "child.yaml",
        """\
        workload: child
        extends: llama3_8b
        sections:
          adapter:
            einsums:
              low: LO[b,s,r] = Y[b,s,d] * WLO[d,r]
              high: LY[b,s,d] = LO[b,s,r] * WLY[r,d]
          head:
            einsums:
              norm: N[b,s,d] = rmsnorm(LY[b,s,d], WN[d]) over d
          after:
            einsums:
              more: LX[b,s] = relu(C[b,s])
        sizes: {r: 64}
        """,
    )
    assert [section.name for section in read_workload(path).sections] == ["embed", "block", "adapter", "head", "after"]


def test_extends_merges_the_levels_of_a_tree_by_name(write):
    write("base.yaml", ARCHITECTURE)
    path = write(
        "child.yaml",
        """\
        architecture: child
        extends: base
        tree:
          children:
          - name: rack
            children:
            - {name: gpu, memory: {capacity: 141 GB, bandwidth: {value: 4.8 TB/s, source: "H200"}}}
          - {name: store, memory: {capacity: 1 TB}}
        """,
    )
    machine = read_architecture(path)
    assert [level.name for level in machine.tree.walk()] == ["system", "rack", "gpu", "store"]
    assert machine.accelerator.memory.capacity_bytes == 141e9
    assert machine.accelerator.memory.bandwidth_bytes_per_s == 4.8e12
    assert machine.accelerator.count == 4


def test_a_mistake_in_the_base_points_at_the_base(write):
    base = write("base.yaml", ARCHITECTURE.replace("80 GB", "80"))
    path = write("child.yaml", "architecture: child\nextends: base\naccelerators: 2\n")
    assert refusal(read_architecture, path).startswith(f"{base}:16:19: tree.gpu.memory.capacity")


def test_extends_in_a_circle_is_refused(write):
    path = write("a.yaml", "workload: a\nextends: ./b.yaml\n")
    write("b.yaml", "workload: b\nextends: a.yaml\n")
    assert "b.yaml:2:10: extends: extends itself: a → b → a" in refusal(read_workload, path)


def test_extends_that_names_nothing_points_at_the_name(write):
    path = write("a.yaml", "workload: a\nextends: atention\n")
    message = refusal(read_workload, path)
    assert message.startswith(f"{path}:2:10: extends: no workload called 'atention'")
    assert "did you mean 'attention'?" in message
    assert f"{path}:2:10: extends: " in refusal(read_workload, write("a.yaml", "workload: a\nextends: ./none.yaml\n"))
    assert "want the name or path" in refusal(read_workload, write("a.yaml", "workload: a\nextends: [a]\n"))
    assert "is a mapper file" in refusal(read_workload, write("a.yaml", f"workload: a\nextends: {write('m.yaml', MAPPER)}\n"))


def test_a_part_stands_under_the_keys_of_its_level(write):
    part = write("h200.yaml", "part: h200\nmemory: {capacity: 141 GB, bandwidth: 4.8 TB/s}\nstatic_power: 80 W\nsource: data sheet\n")
    assert check(part) == "part"
    text = (
        ARCHITECTURE.split("      memory:")[0]
        + "      part: ./h200.yaml\n      memory: {bandwidth: 4 TB/s}\n      compute: {rate: 1 PFLOP/s}\n"
    )
    gpu = read_architecture(write("a.yaml", text)).accelerator
    assert (gpu.memory.capacity_bytes, gpu.memory.bandwidth_bytes_per_s, gpu.static_power_w) == (141e9, 4e12, 80)


def test_parts_hold_levels_and_other_parts_but_not_themselves(write):
    write("core.yaml", "part: core\ncompute: {rate: 1 TFLOP/s}\n")
    write("die.yaml", "part: die\nchildren: [{name: core, count: 100, part: core}]\n")
    text = ARCHITECTURE.split("      memory:")[0] + "      part: die\n"
    machine = read_architecture(write("a.yaml", text))
    assert [level.name for level in machine.tree.walk()] == ["system", "rack", "gpu", "core"]
    core = write("core.yaml", "part: core\nchildren: [{name: more, part: die}]\n")
    assert f"{core}:2:31: tree.more.part: a part inside itself: die → core → die" in refusal(read_architecture, write("a.yaml", text))
    message = refusal(read_architecture, write("a.yaml", text.replace("part: die", "part: dye")))
    assert "tree.gpu.part: no part called 'dye'" in message


def test_a_mistake_in_a_part_points_at_the_part(write):
    part = write("h200.yaml", "part: h200\nmemory: {capacty: 141 GB}\n")
    text = ARCHITECTURE.split("      memory:")[0] + "      part: h200\n      compute: {rate: 1 PFLOP/s}\n"
    assert refusal(read_architecture, write("a.yaml", text)).startswith(f"{part}:2:10: tree.gpu.memory.capacty: unknown key")
    assert f"{part}:2:10: " in refusal(check, part)


def test_load_gives_marks_of_the_files_that_said_it(write):
    base = write("base.yaml", WORKLOAD)
    raw = load("workload", write("child.yaml", "workload: child\nextends: base.yaml\nsizes: {d: 16}\n"))
    assert "extends" not in raw.mapping
    assert raw.mapping["einsums"].where.file == base
    assert raw.mapping["sizes"].mapping["d"].where.file.endswith("child.yaml")


MANGLED = st.tuples(st.sampled_from(sorted(GOOD)), st.integers(0, 900), st.integers(0, 30), st.text(max_size=8))


@settings(max_examples=samples.cases(100, 300))
@given(MANGLED)
def test_any_mangled_file_is_read_or_refused(tmp_path_factory, mangled):
    kind, start, length, insert = mangled
    text = GOOD[kind]
    start %= len(text)
    path = tmp_path_factory.getbasetemp() / "mangled.yaml"
    path.write_text(text[:start] + insert + text[start + length :], encoding="utf-8")
    try:
        READ[kind](str(path))
        message = str(path)
    except InputError as problem:
        message = str(problem)
    assert str(path) in message


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 10**18),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            ["80 GB", "3 pJ/bit", "m", "2*m", "a/0", "1e400/1e400", "Y[m] = X[m]", "ring", "all", "free", "rest", "forward", "", "ffn"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "tp", "name", "value", "mid", "low", "high"]), inner)
    ),
    max_leaves=6,
)
KEYS = {
    A: ["accelerators", "site", "tree", "source", "note", "extends"],
    W: ["phases", "sizes", "precision", "einsums", "tensors", "repeat", "extends"],
    M: ["axes", "split", "choose", "boundary", "uneven", "homes", "save", "recompute", "profile", "minimize"],
    G: ["accelerators", "axes", "ops", "boundary", "stages", "homes", "save", "flat", "profile"],
}


@settings(max_examples=samples.cases(100, 300))
@given(st.data())
def test_any_values_under_known_keys_are_read_or_refused(tmp_path_factory, data):
    import yaml

    kind = data.draw(st.sampled_from(sorted(KEYS)))
    body = data.draw(st.dictionaries(st.sampled_from(KEYS[kind]), VALUES, max_size=4))
    whole = {**yaml.safe_load(GOOD[kind]), **body}
    path = tmp_path_factory.getbasetemp() / "values.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    try:
        READ[kind](str(path))
    except InputError as problem:
        str(problem).encode()


def test_every_folder_of_the_library_is_put_into_the_wheel():
    root = Path(__file__).parents[1]
    shipped = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    for folder in ("specs", "workloads", "mappers"):
        files = [path for path in (root / folder).rglob("*") if path.is_file()]
        for place in {path.parent for path in files}:
            inside, kinds = place.relative_to(root).as_posix(), {path.suffix for path in files if path.parent == place}
            assert sorted(shipped[f"share/rackmodel/{inside}"]) == sorted(f"{inside}/*{kind}" for kind in kinds)


def test_an_index_of_a_size_said_twice_walks_the_rank_that_another_made():
    """`--set s=1024 --set t=1024` is `t: s`: attention is the same kernel, whichever way its keys' length is said."""
    short = read_workload("llama3_8b", ["workload.sizes.s=1024"])
    twice = read_workload("llama3_8b", ["workload.sizes.s=1024", "workload.sizes.t=1024"])
    assert twice.aliases == short.aliases == {"t": "s"}
    chain = read_workload("ffn")  # whose indices each make what others read
    assert chain.aliases == {}


IDLE = (("gradient", "backward"), ("state", "optimizer"))
TRAINED = "workload: w\nphases: {phases}\nsizes: {{n: 8, c: 8, u: 8}}\neinsums: {{up: 'U[n,u] = X[n,c] * W[c,u]'}}\n{more}\n"


@pytest.mark.parametrize(
    ("phases", "more", "said"),
    [
        ("[forward]", "optimizer: sgd", ":5:12: optimizer: optimizer is none of the phases [forward]: this changes nothing"),
        ("[forward, optimizer]", "", ":2:9: phases: optimizer without backward"),
        ("[backward]", "", ":2:9: phases: backward without forward"),
        ("[forward, forward]", "", ":2:9: phases: 'forward' is there twice"),
        ("[forward, recompute]", "", ":2:9: phases: recompute is a mapper's choice"),
    ],
)
def test_what_counts_in_no_phase_is_refused_at_its_place(phases: str, more: str, said: str) -> None:
    with pytest.raises(InputError) as problem:
        read_workload(TRAINED.format(phases=phases, more=more))
    assert said in str(problem.value)


def test_widths_of_a_phase_that_a_file_lacks_are_told() -> None:
    """A table of widths may say them all; --set says what is to change something."""
    text = TRAINED.format(phases="[forward]", more="precision: {gradient: 16 bit, state: 64 bit}")
    said = [f"precision.{key}: {phase} is none of the phases [forward]: this changes nothing" for key, phase in IDLE]
    assert sorted(read_workload(text).idle) == sorted(said)
    assert read_workload(TRAINED.format(phases="[forward, backward, optimizer]", more="precision: {state: 64 bit}")).idle == ()
    assert rm.search("rack_paper", text, "data", set={"accelerators": 2, "split.dp": "[n]"}).result.warnings[:2] == tuple(
        read_workload(text).idle
    )
    for key, phase in IDLE:
        with pytest.raises(InputError, match=f"{phase} is none of the phases"):
            read_workload(text, [f"workload.precision.{key}=32 bit"])


def test_a_file_that_trains_may_go_forward_alone_by_set_or_by_one_that_extends_it(tmp_path: Path) -> None:
    text = TRAINED.format(phases="[forward, backward, optimizer]", more="optimizer: sgd\nprecision: {state: 64 bit, gradient: 16 bit}")
    assert read_workload(text, ["phases=[forward]"]).phases == ("forward",)
    (tmp_path / "w.yaml").write_text(text)
    (tmp_path / "v.yaml").write_text("workload: v\nextends: w.yaml\nphases: [forward]\n")
    assert read_workload(tmp_path / "v.yaml").phases == ("forward",)
    with pytest.raises(InputError, match="optimizer is none of the phases"):
        read_workload(tmp_path / "v.yaml", ["workload.optimizer=adam"])
