"""The best cut of a model into pipeline stages when layers need not divide, and when each may recompute in its own way.

A stage holds a run of layers, each under one policy (none, selective, full, ...). Its micro-batch takes t_i = f_i + b_i seconds,
a hand-over s each way, c_i forwards run before the first backward (p - i in 1f1b); stages are counted from 0:

    step      >= max_i [ P_i + m t_i + max(0, S_i - (c_i - 1) f_i) + max(0, S_i - (c_i - 1) b_i) + R_i ]
                 P_i = Σ_{j<i} (t_j + 2 s)  before i      S_i = Σ_{j>i} (t_j + 2 s)  the way to the last stage and back
                 R_i = ⌊(m - c_i - 1) / (p - i)⌋ max(0, S_i - (p - 1 - i) t_i)    round trips in the steady state (1f1b)
    memory_i   = state of its layers + in_flight_i Σ saved + largest workspace it uses  <=  capacity

(DERIVED, paths of the graph in cost/step/pipeline; both waits at once need m > c_i.) Every term grows with t_i at equal f_i, so a stage
runs the fastest mix that fits: a knapsack, solved by fronts of (bytes, seconds). U_i(n), the bound of stages i.. with the layers
from n on, is a recursion from the last stage, over the c layers that stage i takes:

    U_i(n) = max(i's terms without P_i, t_i + 2 s + U_{i+1}(n + c))        S_i(n) = t_{i+1} + 2 s + S_{i+1}(n + c)

Exact with fronts of (S, U) at every (i, n); first in arrays with the least S alone, which bounds what can still be best. The cut of
least bound is then simulated; where it takes longer, cuts are simulated in the order of their bounds until none left
can be better. Seconds and bytes become integers in `whole` alone, so ties are exact and the CP-SAT oracle solves the same numbers.

Ties: least step, least joules, least Σ layers² (most even), then a fixed order. Sources: Narayanan 2021 (1F1B), Korthikanti 2022
(recompute). Not interleaved: the chunks of a device share its memory and time, which no recursion along the layers sees.
"""

from __future__ import annotations

import numpy as np

from rackmodel.mapper.stages.bounds import bounds_of, misses, seed
from rackmodel.mapper.stages.cpsat import cut_by_cpsat
from rackmodel.mapper.stages.cut_problem import CutAnswer, CutProblem, Ends
from rackmodel.mapper.stages.least_bound import least_bound
from rackmodel.mapper.stages.mixes import tables_of
from rackmodel.mapper.stages.timed import TIGHT, TimedCut, answer_of, search_cuts, simulated_seconds
from rackmodel.mapper.stages.whole import NEVER, whole_of

__all__ = ["CutAnswer", "CutProblem", "Ends", "best_cut", "cut_by_cpsat"]


def best_cut(problem: CutProblem) -> CutAnswer:
    """The fastest cut and mixes of policies. InputError where the problem is ill-formed, InfeasibleError where no cut fits.

    The latter's need is the least capacity for which a cut exists, met by the stage named.
    """
    whole = whole_of(problem)
    length = len(problem.kinds)
    fastest = np.where(whole.allowed, whole.seconds, NEVER).min(axis=1)
    before = np.concatenate([[0], np.cumsum(fastest[np.asarray(problem.kinds)])])
    width = min(length, max(-(-length // problem.stages) + 2, problem.fewest))
    while True:
        tables = tables_of(problem, whole, width)
        bounds = bounds_of(problem, whole, tables)
        if bounds.least >= NEVER:
            if width == length:
                raise misses(problem, tables)
            width = min(length, 2 * width)
            continue
        layers = seed(problem, whole, bounds)
        seconds = simulated_seconds(problem, [tables.mixes(layers)])[0]
        most = int(seconds * (1 + TIGHT) / whole.unit) // problem.micro_batches  # longer runs of layers take longer than this cut
        needed = int((np.searchsorted(before, before + most, side="right") - 1 - np.arange(length + 1)).max())
        if needed <= width:
            break
        width = needed
    least, _ = least_bound(problem, whole, tables, bounds, int(seconds * (1 + TIGHT) / whole.unit), ties=False)
    _, layers = least_bound(problem, whole, tables, bounds, least, ties=True)
    found = TimedCut(layers, simulated_seconds(problem, [tables.mixes(layers)])[0], least * whole.unit, 2)
    if not found.proven:
        found = search_cuts(problem, whole, tables, bounds, found)
    return answer_of(problem, whole, tables.mixes(found.layers), found)
