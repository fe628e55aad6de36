"""Throughput that following the predictions loses, under limits of TPOT: worked by hand, and against a search that knows no code of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rackmodel.validation.choices import choice_scores
from rackmodel.validation.run import ValidationReport
from rackmodel.validation.score import ScoredRow, score
from rackmodel.validation.table import report_lines


def _run(name: str, plan: str, clients: float, tpot: tuple[float, float], rate: tuple[float, float], asked: str = "q") -> list[ScoredRow]:
    """A row's TPOT (ms) and tokens a second, each measured and predicted."""
    row = ScoredRow(name, "set", measured=1e-3 * tpot[0], predicted=1e-3 * tpot[1], asked=asked, plan=plan, clients=clients)
    return [row, replace(row, dataset="set_tokens_per_s", unit="token/s", measured=rate[0], predicted=rate[1])]


A4 = _run("a4", "a", 4, (8, 8), (100, 110))
A8 = _run("a8", "a", 8, (12, 9), (160, 170))
B4 = _run("b4", "b", 4, (9, 9), (125, 105))


def test_a_choice_within_the_limit_keeps_what_was_measured() -> None:
    """A limit of 10 ms: of a4 and b4 the model takes a4 (110 > 105), which makes 100 where b4 makes 125."""
    ten, whole = choice_scores([*A4, *B4], (0.01,))
    assert ten.lost == pytest.approx((0.2,))
    assert (ten.beyond, ten.unanswered) == (0, 0)
    assert whole.limit_s is None
    assert whole.lost == ten.lost


def test_a_choice_beyond_the_limit_turns_its_load_down() -> None:
    """a8 is predicted at 9 ms and measured at 12: its plan is left with a4's 100 of b4's 125; without a4 with nothing."""
    assert choice_scores([*A4, *A8, *B4], (0.01,))[0].lost == pytest.approx((0.2,))
    alone = choice_scores([*A8, *B4], (0.01,))[0]
    assert alone.lost == (1.0,)
    assert alone.beyond == 1


def test_choices_that_hold_the_limit_are_scored_by_themselves() -> None:
    """Three questions: a4 is chosen and makes 100 of 125 within the limit, a8 breaks it, of the third nothing is predicted within it."""
    other = [replace(row, asked="r") for row in [*A8, *B4]]
    slow = [*_run("c", "c", 4, (9, 30), (100, 50), "s"), *_run("d", "d", 4, (9, 30), (100, 50), "s")]
    ten = choice_scores([*A4, *B4, *other, *slow], (0.01,))[0]
    assert ten.lost == pytest.approx((0.2, 1.0, 1.0))
    assert ten.held == pytest.approx((0.2,))
    assert (ten.beyond, ten.unanswered) == (1, 1)
    assert ten.to_dict()["p90_lost_where_held_pct"] == pytest.approx(20)


def test_a_plan_is_not_turned_up() -> None:
    """The other row of its plan has more clients: it is no load turned down."""
    busier = _run("a16", "a", 16, (9, 20), (300, 200))
    assert choice_scores([*A8, *B4, *busier], (0.01,))[0].lost == (1.0,)


def test_a_question_that_the_model_says_has_no_answer_loses_all() -> None:
    slow = [*_run("a", "a", 4, (9, 30), (100, 50)), *_run("b", "b", 4, (9, 30), (100, 50))]
    lost = choice_scores(slow, (0.01,))[0]
    assert lost.lost == (1.0,)
    assert lost.unanswered == 1
    assert choice_scores([*_run("a", "a", 4, (19, 9), (1, 1)), *_run("b", "b", 4, (19, 9), (1, 1))], (0.01,)) == []  # nothing was within it


def test_rows_alone_and_rows_without_a_prediction_are_no_question() -> None:
    refused = [replace(row, refused="no") for row in B4]
    assert choice_scores([*A4, *refused], (0.01,)) == []
    assert choice_scores([*A4, B4[0]], (0.01,)) == []
    assert choice_scores([*A4, *[replace(row, asked="other") for row in B4]], (0.01,)) == []


def test_of_equal_predictions_the_worst_counts() -> None:
    same = _run("c", "c", 4, (9, 8), (60, 110))
    for rows in ([*A4, *same, *B4], [*same, *B4, *A4]):
        assert choice_scores(rows, (0.01,))[0].lost == pytest.approx((1 - 60 / 125,))


def test_a_perfect_model_loses_nothing() -> None:
    draw = random.Random(5)
    rows = []
    for number in range(60):
        tpot, rate = draw.uniform(5, 60), draw.uniform(10, 1000)
        rows += _run(str(number), f"p{number % 7}", float(number % 5), (tpot, tpot), (rate, rate), f"q{number % 9}")
    for one in choice_scores(rows):
        assert set(one.lost) == {0.0}
        assert (one.beyond, one.unanswered) == (0, 0)


def test_it_is_what_a_search_by_hand_finds() -> None:
    """Every question of random rows, by a plain sort."""
    draw = random.Random(8)
    rows, plain = [], []
    for number in range(200):
        tpot, rate = (draw.uniform(5, 60), draw.uniform(5, 60)), (draw.uniform(10, 1000), draw.uniform(10, 1000))
        plan, clients, asked = draw.choice("abc"), float(draw.choice([1, 4, 16])), f"q{draw.randrange(15)}"
        rows += _run(str(number), plan, clients, tpot, rate, asked)
        plain.append((asked, plan, clients, tpot, rate))
    for limit in (10, 20, 30, 50):
        expected = []
        for question in dict.fromkeys(one[0] for one in plain):
            own = [one for one in plain if one[0] == question]
            fits = sorted((one[4][0] for one in own if one[3][0] <= limit), reverse=True)
            if len(own) < 2 or not fits:
                continue
            ordered = sorted((one for one in own if one[3][1] <= limit), key=lambda one: -one[4][1])
            kept = 0.0
            if ordered:
                best = ordered[0]
                lower = [one for one in own if one[1] == best[1] and one[2] <= best[2] and one[3][0] <= limit]
                kept = best[4][0] if best[3][0] <= limit else max((one[4][0] for one in lower), default=0.0)
            expected.append(1 - kept / fits[0])
        assert choice_scores(rows, (1e-3 * limit,))[0].lost == pytest.approx(expected)


def test_validate_prints_what_is_lost() -> None:
    rows = [*A4, *A8, *B4]
    lines = list(report_lines(ValidationReport((), tuple(rows), choices=tuple(choice_scores(rows)))))
    lost = "TPOT <= 10 ms: median 20.0 %, p90 20.0 %, mean 20.0 % of 1 questions (1 choices measured beyond the limit, 0 questions"
    assert any(lost in line for line in lines)


def test_ranks_inside_curves_are_told_by_their_mean_and_median() -> None:
    """Three curves of three rows: two in order, one backwards (1, 1, -1); one of two rows, which is none."""
    pairs = {"a": [(1, 1), (2, 2), (3, 3)], "b": [(1, 2), (2, 4), (3, 6)], "c": [(1, 3), (2, 2), (3, 1)], "d": [(1, 2), (2, 1)]}
    rows = [ScoredRow(curve, "set", measured=one, predicted=other, curve=curve) for curve, own in pairs.items() for one, other in own]
    told = score(rows).to_dict()
    assert told["curves"] == 3
    assert told["curve_rank_correlation"] == pytest.approx(1 / 3)
    assert told["median_curve_rank_correlation"] == pytest.approx(1)
    assert score(rows[:2]).to_dict()["median_curve_rank_correlation"] is None
