"""What is lost where the model chooses: of the servers that were measured for one question, the one whose prediction is best.

    question   a model, a machine, an engine and lengths, with a limit on the seconds a token (TPOT)
    choice     of its rows that are predicted within the limit, the largest predicted tokens a second and accelerator
    kept       what was measured of the choice; where its TPOT was measured beyond the limit, its load is turned down: the most
               that was measured within the limit for the same plan and no more clients, else nothing
    lost       1 - kept / the most that was measured within the limit

Where nothing is predicted within the limit and something was measured there, all is lost. Of choices with equal predictions the worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from rackmodel.validation.score import ScoredRow

LIMITS_S = (0.01, 0.02, 0.03, 0.05)
"""Limits of TPOT that are asked for."""
RATE = "_tokens_per_s"
"""What the data set of throughputs adds to the name of that of TPOT."""


@dataclass(frozen=True)
class ChoiceScore:
    """Of the questions with at least two rows and one that was measured within the limit. limit_s: of TPOT, None: all limits ·
    lost: share of throughput of each question · held: those of `lost` whose choice was measured within the limit · unanswered: questions
    of which no row is predicted within the limit."""

    dataset: str
    limit_s: float | None
    lost: tuple[float, ...]
    held: tuple[float, ...]
    unanswered: int

    @property
    def beyond(self) -> int:
        """Choices that were measured beyond the limit."""
        return len(self.lost) - len(self.held) - self.unanswered

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        lost, held = 100.0 * np.array(self.lost), 100.0 * np.array(self.held)
        return {
            "dataset": self.dataset,
            "tpot_limit_s": self.limit_s,
            "questions": len(self.lost),
            "mean_lost_pct": float(lost.mean()),
            "median_lost_pct": float(np.median(lost)),
            "p90_lost_pct": float(np.percentile(lost, 90)),
            "p90_lost_where_held_pct": float(np.percentile(held, 90)) if self.held else None,
            "measured_beyond_limit": self.beyond,
            "unanswered": self.unanswered,
        }


@dataclass(frozen=True)
class _Run:
    """A row that tells both TPOT and tokens a second and accelerator."""

    tpot: ScoredRow
    rate: ScoredRow


def choice_scores(rows: Sequence[ScoredRow], limits_s: Sequence[float] = LIMITS_S) -> list[ChoiceScore]:
    """What is lost under each limit, and under all of them, by data set; nothing where no question has two rows."""
    found = []
    for dataset, questions in _questions(rows).items():
        scores = [_score(dataset, limit, questions) for limit in limits_s]
        scores = [one for one in scores if one.lost]
        if scores:
            lost, held = (tuple(share for one in scores for share in own(one)) for own in (attrgetter("lost"), attrgetter("held")))
            whole = ChoiceScore(dataset, None, lost, held, sum(one.unanswered for one in scores))
            found += [*scores, whole]
    return found


def _questions(rows: Sequence[ScoredRow]) -> dict[str, list[list[_Run]]]:
    """Data set of TPOT → the runs of each question that has at least two."""
    told = [row for row in rows if row.asked and not row.refused and not row.anchor]
    rates = {(row.dataset, row.id): row for row in told if row.dataset.endswith(RATE)}
    found: dict[str, dict[str, list[_Run]]] = {}
    for row in told:
        rate = rates.get((row.dataset + RATE, row.id))
        if rate is not None:
            found.setdefault(row.dataset, {}).setdefault(row.asked, []).append(_Run(row, rate))
    return {name: [runs for runs in own.values() if len(runs) > 1] for name, own in found.items()}


def _score(dataset: str, limit_s: float, questions: Sequence[Sequence[_Run]]) -> ChoiceScore:
    """What is lost under one limit."""
    lost, held, unanswered = [], [], 0
    for runs in questions:
        within = [run for run in runs if run.tpot.measured <= limit_s]
        if not within:
            continue
        most = max(run.rate.measured for run in within)
        choices = list(_choices(runs, limit_s))
        lost.append(1.0 - min((_kept(choice, within) for choice in choices), default=0.0) / most)
        if choices and all(choice in within for choice in choices):
            held.append(lost[-1])
        unanswered += not choices
    return ChoiceScore(dataset, limit_s, tuple(lost), tuple(held), unanswered)


def _choices(runs: Sequence[_Run], limit_s: float) -> Iterator[_Run]:
    """The run of the best prediction, or all that share it."""
    within = [run for run in runs if run.tpot.predicted <= limit_s]
    best = max((run.rate.predicted for run in within), default=0.0)
    yield from (run for run in within if run.rate.predicted == best)


def _kept(choice: _Run, within: Sequence[_Run]) -> float:
    """Measured tokens a second and accelerator of a choice, its load turned down where it must be."""
    if choice in within:
        return choice.rate.measured
    own = (run for run in within if run.tpot.plan == choice.tpot.plan and run.tpot.clients <= choice.tpot.clients)
    return max((run.rate.measured for run in own), default=0.0)
