"""Rows of offline runs, whose requests are all there at first: the run is simulated step by step (serving/trace).

    tokens a second and accelerator = requests x output / (seconds of the whole run x accelerators)

A run is no steady state: a server that holds 2,048 requests takes 3,000 of them in two waves, of which the second is half empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.admission import Trace
from rackmodel.serving.trace import simulate
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.servers import engine_of, over_capacity, timed_facts
from rackmodel.validation.serving import Found, Point, point_of, scored_point
from rackmodel.validation.words import Refused


def offline_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    found: list[ScoredRow] = []
    for row in rows:
        try:
            point = point_of(row)
            found += scored_point(point, simulated(point), 0)
        except (Refused, InputError, InfeasibleError) as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
    return found


def simulated(point: Point) -> Found:
    """Figures of one row's run. Raises Refused where nothing says how many requests it has."""
    run, server = point.run, point.server
    count = run.benchmark.requests_of(run.prompt, run.output)
    if count is None:
        raise Refused(f"no number of requests of {run.prompt:g} and {run.output:g} tokens")
    engine = engine_of(server)
    trace = Trace(arrival_s=np.zeros(count), prompt=np.full(count, run.prompt), output=np.full(count, run.output))
    schedule = engine.scheduled(1, timed_facts(engine, [point.timed]))
    figures = simulate(engine, trace, schedule, engine.cache_tokens, held_by=engine.held_tokens)
    rate = count * run.output / figures.seconds / server.deployment.accelerators
    return Found({"tokens_per_s": np.array([rate])}, [{}], over_capacity(engine))
