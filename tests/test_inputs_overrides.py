"""`--set name=value`: what a name means, what is ambiguous, what is refused, and where messages point."""

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel.errors import InputError
from rackmodel.inputs import apply_overrides, read_architecture, read_inputs, read_mapper, read_workload
from rackmodel.inputs.said import instead
from tests import samples
from tests.test_inputs_read import ARCHITECTURE, MAPPER, MAPPING, WORKLOAD


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for name, text in (("a", ARCHITECTURE), ("w", WORKLOAD), ("m", MAPPER), ("g", MAPPING)):
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def read(files):
    def with_sets(*sets):
        return read_inputs(files / "a.yaml", files / "w.yaml", mapper=files / "m.yaml", sets=sets)

    return with_sets


@pytest.fixture
def refused(read):
    def message(*sets):
        with pytest.raises(InputError) as caught:
            read(*sets)
        return str(caught.value)

    return message


def test_a_bare_name_is_a_top_level_key_else_a_rank_size(read):
    found = read("accelerators=8", "solver=cpsat", "phases=[forward]", "m=128")
    assert found.architecture.used == 8
    assert found.mapper.solver == "cpsat"
    assert found.workload.phases == ("forward",)
    assert found.workload.sizes["m"] == 128


def test_accelerators_is_the_architectures_key_even_where_no_file_states_it(files):
    (files / "b.yaml").write_text(ARCHITECTURE.replace("accelerators: 4\n", ""), encoding="utf-8")
    assert read_inputs(files / "b.yaml", files / "w.yaml", mapper=files / "m.yaml", sets=["accelerators=2"]).architecture.used == 2
    found = read_inputs(files / "b.yaml", files / "w.yaml", mapping=files / "g.yaml", sets=["accelerators=2"])
    assert (found.architecture.used, found.mapping.accelerators) == (2, 4)
    assert (
        read_inputs(files / "b.yaml", files / "w.yaml", mapping=files / "g.yaml", sets=["mapping.accelerators=2"]).mapping.accelerators == 2
    )


@pytest.mark.parametrize(
    "name",
    [
        "gpu.memory.bandwidth",
        "tree.gpu.memory.bandwidth",
        "arch.gpu.memory.bandwidth",
        "arch.tree.rack.gpu.memory.bandwidth",
        "rack.gpu.memory.bandwidth",
    ],
)
def test_a_level_is_named_first_then_its_keys(read, name):
    assert read(f"{name}=4 TB/s").architecture.accelerator.memory.bandwidth_bytes_per_s == 4e12


def test_paths_of_every_file_are_set(read):
    found = read(
        "system.network.hops=path_sum", "rack.count=3", "sizes.m=8", "axes.tp.degree=4", "site.pue=1.2", "mapper.split={tp: [d, [m, f]]}"
    )
    assert found.architecture.tree.network.hops == "path_sum"
    assert found.architecture.available == 12
    assert found.workload.sizes["m"] == 8
    assert found.mapper.axes["tp"].degree == 4
    assert found.mapper.axes["tp"].place == "inner"
    assert found.architecture.site.pue == 1.2
    assert found.mapper.split == {"tp": ["d", ["m", "f"]]}


def test_a_key_that_the_file_lacks_but_the_schema_has_is_set(read):
    found = read("gpu.static_power=75 W", "rack.memory.capacity=1 TB", "tensors.H.density=0.5", "precision.weight=8 bit")
    assert found.architecture.accelerator.static_power_w == 75
    assert found.architecture.level("rack").memory.capacity_bytes == 1e12
    assert found.workload.tensors["H"].density == 0.5
    assert found.workload.tensors["W1"].bits == 8


def test_a_size_given_as_an_expression_is_overridden_and_others_follow(read):
    assert read("f=100").workload.sizes == {"m": 64, "d": 32, "f": 100}
    assert read("d=10").workload.sizes == {"m": 64, "d": 10, "f": 40}
    assert read("f=2 * d").workload.sizes["f"] == 64


def test_one_bound_of_a_range_or_the_whole_range_is_set(read):
    assert read("gpu.memory.bandwidth.low=1 TB/s").architecture.accelerator.memory.bandwidth_bytes_per_s.low == 1e12
    whole = read("gpu.memory.bandwidth={value: 2 TB/s, source: mine}").architecture.accelerator.memory.bandwidth_bytes_per_s
    assert (whole, whole.low, whole.source) == (2e12, 2e12, "mine")


def test_overrides_go_on_from_earlier_ones(read):
    found = read("gpu.count=2", "gpu.memory={capacity: 1 GB}", "gpu.memory.bandwidth=1 TB/s", "gpu.count*=1.5")
    assert found.architecture.accelerator.count == 3
    assert found.architecture.accelerator.memory.capacity_bytes == 1e9


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (["gpu.count=2", "arch.tree.gpu.count=3"], "'gpu.count=2' and 'arch.tree.gpu.count=3' say one number"),
        (["seq=8", "workload.sizes.seq=16"], "say one number"),
        (["gpu.count*=2", "gpu.count=3"], "say one number"),
        (["gpu.memory.bandwidth=1 TB/s", "gpu.memory={capacity: 1 GB}"], "would undo 'gpu.memory.bandwidth=1 TB/s', which is inside it"),
        (["profile.overlap.contention=0", "profile.overlap={contention: 0.1}"], "would undo"),
    ],
)
def test_no_override_is_lost_to_another(sets, why):
    with pytest.raises(InputError, match=re.escape(why)):
        read_inputs("rack_paper", "ffn", mapper="data", sets=sets)._profile_tree("serial")


def test_what_is_said_instead_takes_the_place_of_what_was_said():
    def gpus(sets):
        return read_inputs("rack_paper", "ffn", mapper="data", sets=sets).architecture.accelerator.count

    asked = instead(["gpu.count=4"], ["arch.tree.gpu.count=2"])
    assert gpus(asked) == gpus(["gpu.count=2", "arch.tree.gpu.count=2"]) == 2
    assert gpus(pickle.loads(pickle.dumps(instead(asked, ["gpu.count=1"])))) == 1  # as a process of a sweep gets them
    with pytest.raises(InputError, match="say one number"):
        gpus(instead(["gpu.count=4"], ["arch.tree.gpu.count=2", "gpu.count=1"]))


def test_trees_are_not_changed_by_overrides(files):
    from rackmodel.inputs import load

    raw = load("architecture", files / "a.yaml")
    before = raw.plain()
    changed = apply_overrides(["gpu.count=1"], raw, None, None)[0]
    assert raw.plain() == before
    assert changed.plain() != before


def test_readers_of_one_file_take_overrides_too(files):
    assert read_architecture(files / "a.yaml", ["gpu.count=2"]).available == 4
    assert read_workload(files / "w.yaml", ["m=3"]).sizes["m"] == 3
    assert read_mapper(files / "m.yaml", ["uneven=ceil"]).uneven == "ceil"


def test_a_name_found_twice_lists_the_forms_that_say_which(read, refused):
    message = refused("note=hello")
    assert message == "--set note=hello: note: 'note' could mean 3 things: say which\n  known: arch.note, workload.note, mapper.note"
    found = read("arch.note=a", "workload.note=w", "mapper.note=m")
    assert (found.architecture.note, found.mapper.note) == ("a", "m")


def test_a_level_and_a_rank_or_a_key_of_one_name_are_told_apart(files):
    (files / "c.yaml").write_text(ARCHITECTURE.replace("name: rack", "name: sizes"), encoding="utf-8")
    with pytest.raises(InputError, match=r"known: arch\.tree\.sizes\.count, workload\.sizes\.count"):
        read_inputs(files / "c.yaml", files / "w.yaml", sets=["sizes.count=1"])
    assert (
        read_inputs(files / "c.yaml", files / "w.yaml", sets=["arch.tree.sizes.count=1", "workload.sizes.m=1"]).architecture.available == 4
    )


REFUSED = {
    "gpuu.count=1": ("nothing is called 'gpuu'", "did you mean 'gpu'?"),
    "accelerator=1": ("nothing is called 'accelerator'", "did you mean 'accelerators'?"),
    "gpu.memory.capcity=1 GB": ("gpu.memory.capcity: unknown key 'capcity'", "did you mean 'capacity'?"),
    "tree.gpuu.count=1": ("tree.gpuu: unknown key 'gpuu'", "did you mean 'gpu'?"),
    "gpu=4": ("'gpu' is a level: say which key of it",),
    "tree=4": ("'tree' is a level",),
    "axes.dp.degree=4": ("axes.dp: unknown key 'dp'", "known: tp"),
    "sizes.z=4": ("sizes.z: unknown key 'z'", "known: m, d, f"),
    "einsums.FC3=Y[m] = X[m]": ("unknown key 'FC3'", "did you mean 'FC"),
    "gpu.count.x=1": ("'gpu.count' is one value: it has no key 'x'",),
    "site.grid.name=x": ("'site.grid' is one value",),
    "phases.0=x": ("'phases' is a list: set all of it",),
    "gpu.children.0=x": ("one value",),
    "mapping.axes.tp.degree=4": (),
    "workload=x": ("nothing is called 'workload'",),
    "gpu.memory.capacity=80": ("tree.gpu.memory.capacity: '80' has no unit",),
    "gpu.memory.capacity=3 pJ": ("has the wrong dimension",),
    "gpu.count=-1": ("tree.gpu.count: -1 must be above 0",),
    "gpu.count=yes": ("'yes': want a whole number",),
    "gpu.count=": ("no value: want name=value",),
    "gpu.count": ("want name=value",),
    "=4": ("want name=value",),
    "": ("want name=value",),
    "gpu..count=4": ("words joined by single dots",),
    ".=4": ("words joined by single dots",),
    "gpu.count=!!int 4": ("YAML tags are not allowed",),
    "gpu.count=.nan": ("not a finite number",),
    "gpu.count=*x": ("has no anchor",),
    "gpu.count=[1": ("is not YAML",),
    "gpu.memory=a: b": ("want a value, a list",),
    "accelerators=1000": ("accelerators: 1000 asked for, the tree has 8",),
    "split={dp: [f]}": ("no axis called 'dp'",),
    "site.grid=wrld": ("did you mean 'world'?",),
    "rack.network.topology=rng": ("did you mean 'ring'?",),
    "m=0": ("size 0 of 'm' must be at least 1",),
    "m=q": ("no size called 'q'",),
    "gpu.memory.bandwidth.low=9 TB/s": ("low <= mid <= high",),
    "einsums.FC1=H[m,f] = X[m,q]": ("einsums.FC1: index 'f' of the output",),
    "gpu.name=rack": ("two levels are called 'rack'",),
}


@pytest.mark.parametrize("text", [text for text in REFUSED if REFUSED[text]])
def test_a_refused_override_points_at_itself(refused, text):
    message = refused(text)
    assert message.startswith(f"--set {text}"), message
    for words in REFUSED[text]:
        assert words in message, message


def test_there_must_be_a_file_to_set(files):
    with pytest.raises(InputError, match="there is no mapper here to set"):
        read_architecture(files / "a.yaml", ["mapper.solver=cpsat"])
    with pytest.raises(InputError, match="nothing is called 'solver'"):
        read_architecture(files / "a.yaml", ["solver=cpsat"])


WORDS = [
    "gpu",
    "tree",
    "arch",
    "sizes",
    "m",
    "memory",
    "capacity",
    "count",
    "axes",
    "tp",
    "degree",
    ".",
    "=",
    "4",
    "4 TB/s",
    "[",
    "{",
    "&",
    "*",
    "!",
    "x",
]


@settings(max_examples=samples.cases(100, 300))
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=3)), max_size=8).map("".join))
def test_any_override_is_applied_or_refused(files, text):
    try:
        read_inputs(files / "a.yaml", files / "w.yaml", mapper=files / "m.yaml", sets=[text])
    except InputError as problem:
        str(problem).encode()


def test_a_factor_scales_what_the_file_states_by_hand(read):
    plain = read()
    gpu = plain.architecture.accelerator
    found = read("gpu.memory.bandwidth*=0.5", "m*=2", "gpu.memory.capacity *= 25 %")
    memory = found.architecture.accelerator.memory
    assert memory.bandwidth_bytes_per_s == gpu.memory.bandwidth_bytes_per_s / 2
    assert memory.capacity_bytes == gpu.memory.capacity_bytes / 4
    assert found.workload.sizes["m"] == 2 * plain.workload.sizes["m"]
    assert read("m*=2", "m*=3").workload.sizes["m"] == 6 * plain.workload.sizes["m"]


def test_a_factor_of_a_key_of_levels_scales_every_level_that_states_it():
    plain, found = (read_architecture("dgx_h100", sets) for sets in ((), ["network.bandwidth*=0.5"]))
    pairs = [(a.network, b.network) for a, b in zip(plain.tree.walk(), found.tree.walk(), strict=True) if a.network is not None]
    assert len(pairs) > 1
    assert all(b.bandwidth_bytes_per_s == pytest.approx(a.bandwidth_bytes_per_s / 2) for a, b in pairs)
    assert all(b.latency_s == a.latency_s for a, b in pairs)


def test_a_range_is_scaled_with_its_ends_and_keeps_its_source(files):
    found = read_architecture(files / "a.yaml", ["gpu.memory.bandwidth*=0.5"]).accelerator.memory.bandwidth_bytes_per_s
    assert (found.low, float(found), found.high, found.source) == (1.5e12, 1.675e12, 2e12, "data sheet")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("axes.tp.degree*=2", "m.yaml:"),
        ("axes.tp.degree*=2", "is no number that --set axes.tp.degree*=2 could scale"),
        ("gpu.memory*=2", "a mapping is no number"),
        ("phases*=2", "a list is no number"),
        ("gpu.memory.bandwidth*=half", "'half' is no factor"),
        ("gpu.memory.bandwith*=2", "did you mean 'bandwidth'?"),
        ("gpu.memory.ports*=2", "nothing is stated there"),
        ("m*=0.3", "--set m*=0.3"),
        ("network*=2", "nothing is called 'network'"),
    ],
)
def test_a_factor_of_what_is_no_number_is_refused_at_its_place(refused, said, words):
    assert words in refused(said)
