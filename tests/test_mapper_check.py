"""Slips of the pen in `split` lists are refused; indices of other workloads are not."""

from __future__ import annotations

import pytest

from rackmodel.errors import InputError
from rackmodel.inputs import library_names, read_mapper, read_workload
from rackmodel.mapper.rules import wrong_names
from rackmodel.model.mapper_check import check_split, distance, nearly
from rackmodel.model.mapping import MapperSpec
from rackmodel.report.describe import mapper_lines

GATED = """workload: gated
sizes: {rows: 64, din: 32, hid: 128, out: 32}
einsums:
  UP: H[rows,hid] = X[rows,din] * W1[din,hid]
  DOWN: Y[rows,out] = H[rows,hid] * W2[hid,out]
"""


@pytest.fixture
def gated(tmp_path):
    (tmp_path / "gated.yaml").write_text(GATED, encoding="utf-8")
    return read_workload(tmp_path / "gated.yaml")


def mapper(split, **more):
    return MapperSpec.model_validate({"mapper": "mine", "axes": {"tp": {}, "dp": {}}, "split": split, **more})


def test_a_slip_in_a_split_list_names_the_nearest_index(gated):
    with pytest.raises(InputError) as caught:
        check_split(mapper({"tp": ["hod", "out"]}), gated)
    assert (caught.value.path, caught.value.given) == ("split.tp.0", "hod")
    assert caught.value.known == ("rows", "hid", "din", "out")
    assert str(caught.value).endswith("did you mean 'hid'?")


def test_every_slip_is_told_also_in_layouts_and_flattenings(gated):
    layouts = {"one": {"split": {"tp": [["hid", "ruws"]]}}, "two": {"split": {"tp": "output"}}}
    with pytest.raises(InputError) as caught:
        check_split(mapper({"tp": ["hdi"], "dp": ["row"]}, layouts=layouts), gated)
    assert [one.path for one in caught.value.problems] == ["split.tp.0", "split.dp.0", "layouts.one.split.tp.0.1"]


@pytest.mark.parametrize("said", [[""], [["h", ""]]])
def test_an_empty_word_is_none(said):
    with pytest.raises(ValueError, match="at least 1 character"):
        mapper({"tp": said})


def test_indices_of_other_workloads_and_what_the_list_has_anyway_are_no_slips(gated):
    for said in (["m", "b"], ["h", "f", "v"], [["g", "q"]], ["hod", "hid"], ["batch"], ["experts"]):
        check_split(mapper({"tp": said}), gated)


def test_no_mapper_of_the_library_is_refused_for_any_workload():
    names = library_names()
    workloads = [read_workload(name) for name in names["workload"]]
    for name in names["mapper"]:
        for workload in workloads:
            check_split(read_mapper(name), workload)


def test_near_is_one_letter_of_short_words_and_two_of_long_ones():
    assert (distance("hod", "hid"), distance("hdi", "hid"), distance("", "abc"), distance("kitten", "sitting")) == (1, 1, 3, 3)
    assert nearly("hod", ["hid"], []) == "hid"
    assert nearly("hod", ["hid"], ["hid"]) is None
    assert nearly("xod", ["hid"], []) is None
    assert nearly("heeds", ["heads"], []) == "heads"
    assert nearly("h", ["b"], []) is None


def test_an_empty_word_in_a_file_is_told_as_one(tmp_path):
    (tmp_path / "m.yaml").write_text("mapper: m\naxes: {t: {degree: all}}\nsplit: {t: [hid, '']}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"m\.yaml:3:18: split\.t\.1: is empty: want the name of an index$"):
        read_mapper(tmp_path / "m.yaml")


def test_a_mapper_of_other_names_says_what_to_write_instead(gated):
    (problem,) = wrong_names(read_mapper("auto"), gated)
    assert "none of the indices b, m" in problem.message
    assert "--set 'split.dp=[rows]'" in problem.message
    assert not list(wrong_names(read_mapper("auto", ["split.dp=[rows]"]), gated))


def test_a_mapper_is_shown_in_the_words_of_its_file():
    text = "\n".join(mapper_lines(read_mapper("megatron")))
    assert "splits [h, a, a2, c1, [g, q], [g2, q2], f, fx, fs, y, v]" in text
    assert "state shard over [dp]" in text
    assert "'" not in text
