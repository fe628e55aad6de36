"""A slice of the adversaries in tests/audit: searches attacked by members of their spaces, mutated inputs, changes of known effect."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from rackmodel import api, face
from rackmodel.errors import InputError
from tests import samples
from tests.audit import options, served
from tests.audit.answers import faults_of, held_to_it
from tests.audit.asked import questioned
from tests.audit.attack import attack, judged, priced, with_demands
from tests.audit.bases import LAYERED, MODEL, bases
from tests.audit.drawing import draw
from tests.audit.members import Members
from tests.audit.metamorphic import relations, written
from tests.audit.mutate import mutated
from tests.keys.cases import RACKS

DEMANDING = ("stages", "moe", "steps", "layouts", "wafers")  # attacked with limits and fronts as well
SLICE = {"layouts": 3, "stages": 2, "wafers": 2, "nests": 4, "fused": 2, "wafer_nests": 3, "moe": 1, "cuts": 1}
MUTATIONS = 8  # of each file
RELATIONS = 1  # of each kind


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RACKMODEL_CACHE", "off")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", samples.some(SLICE, 2))
def test_no_member_of_a_space_beats_what_its_search_claims(kind: str) -> None:
    compared = 0
    for seed in range(SLICE[kind]):
        attacked = attack(kind, seed, 20, demands=kind in DEMANDING)
        compared += attacked.members
        assert not attacked.broken, [(broken.claim, broken.case.write(Path(f"{kind}_{seed}"), broken.member)) for broken in attacked.broken]
    assert compared > 0


@pytest.mark.parametrize("number", [3, 5])
def test_what_is_asked_in_order_under_limits_and_for_fronts_is_what_all_points_say(number: int) -> None:
    kind, many, _, faults = questioned(number, Path("profiles"), 3)
    assert not faults, (kind, faults)
    assert many > 0


@pytest.mark.parametrize("number", [2, 14])  # of replicas, and of pools too
def test_what_serves_best_is_what_every_point_of_its_space_says(number: int) -> None:
    _, many, faults = served.question(number)
    assert not faults
    assert many > 0


def test_a_cut_is_opened_under_launches_of_the_host() -> None:
    attacked = attack("cuts", 45, 4, demands=False)
    assert (attacked.outcome, attacked.broken) == ("proven", ())


def test_a_mapping_says_its_micro_batches_where_they_do_not_follow() -> None:
    assert written("layouts", 6) is None


def test_a_table_that_no_head_shares_is_no_residual_stream() -> None:
    own = MODEL.replace("I[b,s,v] * WE[v,d]", "I[b,s,v] * E[v,d]")
    found = face.search(RACKS, own, LAYERED).result
    assert found.certificate.proven
    assert "b" not in found.mapping.boundary["E"].values()


@pytest.mark.parametrize(("kind", "seed"), [("wafers", 2), ("wafers", 14)])
def test_a_front_of_few_free_layouts_has_every_point(kind: str, seed: int) -> None:
    """Layouts that what runs beside something else makes faster than their tables' sums are of the front as well."""
    case, pick = draw(kind, seed), random.Random(f"members {kind} {seed}")
    drawn = priced(case, Members(case, pick).some(40))
    case = with_demands(case, drawn, pick)
    assert case.front
    found = api.search_mapper(*case.read(), minimize=case.minimize, profile=case.profile, limits=dict(case.limits), front=case.front)
    assert found.front_status == "proven"
    assert not judged(case, drawn.under(dict(case.limits)), found).broken


def test_what_a_model_cannot_leave_free_is_refused_where_it_stands() -> None:
    case = draw("steps", 0)
    with pytest.raises(InputError, match=r"homes\.weights: of a model of several sections"):
        face.search(case.machine, case.model, {**case.mapper, "homes": {"weights": "free"}})
    with pytest.raises(InputError, match="recompute: an empty list"):
        face.search(case.machine, case.model, {**case.mapper, "recompute": []})
    with pytest.raises(InputError, match="no kind of input") as caught:
        face.read("mappig: x\naxes: {}\n")
    assert caught.value.path == "<text>"


def test_a_search_that_claims_too_much_is_caught() -> None:
    """The adversary is one: a bound raised by a thousandth is beaten by the answer itself."""
    from dataclasses import replace

    case = draw("stages", 0)
    found = api.search_mapper(*case.read(), minimize=case.minimize, profile=case.profile)
    sheet = found.result.certificate
    drawn = priced(case, [found.result.mapping])
    assert not judged(case, drawn, found).broken
    wrong = replace(found.result, certificate=replace(sheet, objective=sheet.objective * 1.001, bound=sheet.bound * 1.001))
    assert len(judged(case, drawn, replace(found, result=wrong)).broken) == 2


@pytest.mark.parametrize("number", samples.some(range(18), 2))
def test_a_mutated_file_is_answered_or_refused_with_its_place(number: int) -> None:
    base = bases()[number]
    outcomes: Counter[str] = Counter()
    for seed in range(MUTATIONS):
        text = mutated(base.text, random.Random(f"{base.name} {seed}"))
        outcome, fault = held_to_it(lambda text=text: base.answer(text))
        assert not fault, (base.name, seed, fault, text)
        outcomes[outcome] += 1
    assert outcomes["refused"] > 0
    assert len(bases()) == 18
    assert held_to_it(lambda: base.answer(base.text)) == ("answered", "")


def test_a_mutated_command_line_is_answered_or_refused_in_words() -> None:
    for seed in range(samples.cases(15, 30)):
        words = options.mutated(random.Random(f"options {seed}"))
        assert options.fault(words)[1] == "", words


FLAT = [(name, kind) for name, kind, _ in relations() if kind not in ("steps", "offload", "streaming")]


@pytest.mark.parametrize(("name", "kind"), samples.some(FLAT, 4))
def test_a_change_of_known_effect_has_it(name: str, kind: str) -> None:
    relation = next(one for other, same, one in relations() if (other, same) == (name, kind))
    for seed in range(RELATIONS):
        assert relation(kind, seed) is None, (name, kind, seed)


def test_an_answer_that_contradicts_itself_is_caught() -> None:
    from dataclasses import replace

    from rackmodel import api

    case = draw("stages", 1)
    result = api.search_mapper(*case.read(), minimize="latency", profile="serial").result
    assert list(faults_of(result)) == []
    for wrong in ({"latency_s": result.latency_s * 1.01}, {"energy_j": -1.0}, {"memory": {}}, {"peak_flop_per_s": 1.0}):
        assert list(faults_of(replace(result, **wrong)))


def test_a_profile_that_a_file_names_and_is_none_is_refused_where_it_stands(tmp_path: Path) -> None:
    from rackmodel import api
    from rackmodel.errors import InputError

    path = tmp_path / "one.yaml"
    path.write_text("mapper: one\naxes: {dp: {degree: all}}\nsplit: {dp: [m]}\nprofile: serail\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"one\.yaml:4:10: profile: no profile called 'serail'[\s\S]*did you mean 'serial'"):
        api.search("rack_paper", "ffn", str(path), sets=["accelerators=4"])
