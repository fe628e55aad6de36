"""Reading YAML: what is accepted, what each scalar means, and what is refused with its place."""

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackmodel import units
from rackmodel.errors import InputError, Where
from rackmodel.inputs import library_names
from rackmodel.inputs.read import check, read_architecture, read_collectives, read_profile
from rackmodel.inputs.scalars import resolve_scalar
from rackmodel.inputs.yaml_marks import MAX_DEPTH, MAX_SCALAR, compose, compose_value, read_yaml
from tests import samples

BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "\n".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(9))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e9", 1e9),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1E-3", -1e-3),
        ("1e", "1e"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("3.35 TB/s", "3.35 TB/s"),
        ("=", "="),
        ("١٢", "١٢"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_plain_scalar_means_what_yaml_1_2_says(text, value):
    found = resolve_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.inf", "+.INF", "1e999", "99999999999999999999", "1" * 300])
def test_a_number_that_is_not_finite_or_too_large_is_refused(text):
    with pytest.raises(InputError, match=r"f\.yaml:1:4: "):
        compose(f"a: {text}", "f.yaml")


def test_a_quoted_scalar_is_text():
    assert compose("a: '1'\nb: \"true\"\nc: '.nan'", "f").plain() == {"a": "1", "b": "true", "c": ".nan"}


def test_every_key_and_value_has_a_line_and_a_column():
    root = compose("a: 1\nb:\n  - x\n  - {c: y}\n", "f.yaml")
    assert root.keys["b"] == Where("f.yaml", 2, 1)
    last = root.mapping["b"].items[1]
    assert last.keys["c"] == Where("f.yaml", 4, 6)
    assert last.mapping["c"].where == Where("f.yaml", 4, 9)


def test_columns_count_characters_not_bytes():
    assert compose("{é: ü, b: 1}", "f").keys["b"] == Where("f", 1, 8)


def test_an_alias_stands_for_its_anchor():
    assert compose("a: &x {b: 1}\nc: *x\nd: [*x, *x]", "f").plain()["d"] == [{"b": 1}, {"b": 1}]


def test_a_byte_order_mark_and_crlf_are_read(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_yaml(path).plain() == {"a": 1, "b": 2}


REFUSED = {
    "duplicate key": ("a: 1\nb: 2\na: 3", "3:1: duplicate key 'a' (first at line 1)"),
    "duplicate key in flow": ("x: {a: 1, a: 2}", "1:11: duplicate key"),
    "empty": ("", "1:1: is empty"),
    "comments only": ("# nothing\n", "is empty"),
    "empty document": ("---\n...\n", "is empty"),
    "null": ("~", "is empty"),
    "list root": ("- a\n- b", "1:1: holds a list"),
    "scalar root": ("hello", "1:1: holds a single value"),
    "two documents": ("a: 1\n---\nb: 2", "2:1: a second document"),
    "tag": ("a: !x 1", "1:4: tag '!x'"),
    "python tag": ("a: !!python/object/apply:os.system ['true']", "1:4: tag 'tag:yaml.org,2002:python"),
    "standard tag": ("a: !!int 1", "1:4: tag"),
    "bare tag": ("a: ! 1", "1:4: tag '!'"),
    "tag on a mapping": ("!x {a: 1}", "1:1: tag"),
    "tag on a key": ("!x a: 1", "1:1: tag"),
    "directive": ("%YAML 1.1\n---\na: 1", "directives"),
    "tag directive": ("%TAG ! tag:x,2000:\n---\na: 1", "directives"),
    "merge": ("b: &b {x: 1}\na:\n  <<: *b", "3:3: merge keys"),
    "number as key": ("1: x", "1:1: key '1' is not text"),
    "null as key": ("~: x", "1:1: key '~' is not text"),
    "bool as key": ("true: x", "1:1: key 'true' is not text"),
    "list as key": ("? [a]\n: x", "1:3: a key must be text"),
    "anchor on a key": ("&k a: 1", "a key may not have an anchor"),
    "alias as key": ("a: &x b\n*x : 1", "2:1: a key may not be an alias"),
    "recursive alias": ("a: &x [*x]", "1:8: alias '*x' refers to itself"),
    "recursive mapping": ("a: &x {b: {c: *x}}", "refers to itself"),
    "unknown alias": ("a: *x", "1:4: alias '*x' has no anchor"),
    "anchor twice": ("a: &x 1\nb: &x 2", "2:4: anchor '&x' is defined twice"),
    "alias bomb": (BOMB, "has more than"),
    "deep flow": ("a: " + "[" * 5000 + "]" * 5000, "nested deeper than"),
    "deep mappings": ("{a: " * 5000 + "1" + "}" * 5000, "nested deeper than"),
    "deep block": ("".join(" " * i + "a:\n" for i in range(200)), "nested deeper than"),
    "deep by aliases": ("\n".join([f"a0: &a0 {'[' * 40}{']' * 40}", f"a1: &a1 {'[' * 40}*a0{']' * 40}"]), "nests deeper than"),
    "long scalar": (f"a: {'x' * (MAX_SCALAR + 1)}", "1:4: a value of"),
    "many nodes": (f"a: [{'1,' * 60_000}]", "has more than"),
    "tab": ("a:\n\tb: 1", "2:1: a tab is not allowed in an input file: use spaces"),
    "tab inside a line": ("a: 1\t# x", "1:5: a tab"),
    "NUL": ("a: 1\nb: \0", "2:4: a NUL byte"),
    "escaped NUL": ('a: "\\0"', "1:4: a NUL byte"),
    "control": ("a: \x07", "1:4: control character U+0007"),
    "escaped control": ('a: "\\e[0m"', "control character U+001B"),
    "line separator": ("a: x\u2028b: 1", "1:5: control character U+2028"),
    "not YAML": ("a: [1, 2", "is not YAML"),
    "bad indentation": ("a:\n  - b\n c: 1", "3:2: is not YAML"),
    "two colons": ("a: b: c", "1:5: is not YAML"),
    "escaped surrogate": ('a: "\\ud800"', "is not YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_file_and_place(name):
    text, message = REFUSED[name]
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        compose(text, "dir/f.yaml")
    assert time.process_time() - start < 2
    shown = str(caught.value)
    assert shown.startswith("dir/f.yaml:")
    assert message in shown
    assert "\n" not in shown.split("\n  known")[0]


def test_depth_up_to_the_limit_is_read():
    assert compose("{a: " * MAX_DEPTH + "1" + "}" * MAX_DEPTH, "f").plain()


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a: \xff\xfe", ":1:4: byte 0xff is not UTF-8"), (b"a: 1\nb: \xe9t\xe9", ":2:4: byte 0xe9"), (b"\xff\xfea\0:\0", ":1:1: byte 0xff")],
)
def test_text_that_is_not_utf_8_is_refused_with_its_place(tmp_path, data, message):
    path = tmp_path / "a.yaml"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert f"{path}{message}" in str(caught.value)


def test_a_file_of_5_mb_is_refused_at_once(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_text(f"a: {'x' * 5_000_000}")
    with pytest.raises(InputError, match=r"big\.yaml: is larger than 2 MB"):
        read_yaml(path)


def test_a_directory_a_missing_file_and_a_pipe_are_refused(tmp_path):
    with pytest.raises(InputError, match="is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        read_yaml(tmp_path / "none.yaml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read_yaml(tmp_path / "pipe")


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "secret.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything: deny it by hand

        def deny(self, *args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(type(path), "open", deny)
    with pytest.raises(InputError, match=r"secret\.yaml: permission denied"):
        read_yaml(path)


def test_a_value_alone_may_be_a_scalar_or_a_flow_collection():
    assert compose_value("4 TB/s", "x").plain() == "4 TB/s"
    assert compose_value("{a: [1, true]}", "x").plain() == {"a": [1, True]}
    for text in ("a: 1", "- a"):
        with pytest.raises(InputError, match=r"want a value, a list"):
            compose_value(text, "x")


@settings(max_examples=samples.cases(100, 300))
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(data)
    try:
        read_yaml(path).plain()
    except InputError as problem:
        str(problem).encode()


TOKENS = [
    "a",
    "b",
    ":",
    ": ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "\n  ",
    "&x ",
    "*x",
    "!t ",
    "<<",
    "'",
    '"',
    "|\n",
    ">",
    "#",
    "? ",
    "1",
    "1e9",
]


@settings(max_examples=samples.cases(150, 500))
@given(st.lists(st.one_of(st.sampled_from(TOKENS), st.text(max_size=3)), max_size=40).map("".join))
def test_any_text_is_read_or_refused(text):
    for read in (compose, compose_value):
        try:
            read(text, "f").plain()
        except InputError as problem:
            str(problem).encode()


# -- units that are known without the library of units ------------------------------------------------------------------------


def test_units_that_are_known_are_what_the_library_of_units_says():
    pick = random.Random(1)
    for unit, known in units._FACTORS.items():
        for written, factor in known.items():
            for number in (1.0, *(float(f"{pick.random() * 10 ** pick.randint(-4, 6):.{pick.randint(1, 8)}g}") for _ in range(40))):
                assert number * factor == units._converted(f"{number} {written}", number, written, unit), (written, unit)


def test_ends_of_a_range_may_be_one_number_in_two_units():
    found = units.read_quantity({"low": "8 nJ/kB", "mid": "1 pJ/bit", "high": "8 pJ/byte", "source": "one number"}, "joule/byte")
    assert found.low == found == found.high
    with pytest.raises(ValueError, match="low <= mid <= high"):
        units.read_quantity({"low": "1.000001 pJ/bit", "mid": "1 pJ/bit", "high": "1.2 pJ/bit"}, "joule/byte")


def test_files_of_the_library_are_read_without_it(monkeypatch):
    monkeypatch.setattr(units, "_registry", lambda: pytest.fail("the library of units is loaded"))
    units.parse_quantity.cache_clear()
    read_collectives.cache_clear()
    for name in library_names()["architecture"]:
        assert read_architecture(name).used
    for name in library_names()["collectives"]:
        assert read_collectives(name).calls or read_collectives(name).exchanges
    for name in library_names()["profile"]:
        assert read_profile(name).kernels


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "mapper: m\nsplit:\n  dp: [b]\n   tp: [f]\n",
            ":4:4: is not YAML: while parsing a block mapping, did not find expected key; is the line indented",
        ),
        ("mapper: m\nsplit: {dp: [b}\nsolver: auto\n", ":2:13: is not YAML: while parsing a flow sequence"),
        ('mapper: m\nprofile: "ideal\nsolver: auto\n', ":2:10: is not YAML: while scanning a quoted scalar"),
        ("phases: [forward]\n", "its first key is its kind, with its name, such as 'workload: mine'\n  known: architecture"),
        ("maper: m\n", "did you mean 'mapper'?"),
    ],
)
def test_what_is_no_yaml_is_told_where_it_began_and_what_to_look_at(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(InputError) as problem:
        check(tmp_path / "m.yaml")
    assert said in str(problem.value)
    assert "papers'?" not in str(problem.value)
