"""What a loop nest is to have least: joules and seconds of its own, at the prices that the figure of a step has for them."""

from __future__ import annotations

from rackmodel.mapper.objective import Objective
from rackmodel.nests.objective import NestObjective


def aim_of(goal: Objective, static_w: float, used: int) -> tuple[NestObjective, float | None]:
    """(what each nest has least; joules that a second of one accelerator counts for, None = its static power). static_w: of all that are
    in use.

    latency, memory: seconds · energy: joules · EDP: its own · sums a E + b T, and their products with T: joules, a second at
    static power + b / a; seconds where joules cost nothing."""
    if goal.name == "edp":
        return NestObjective("edp"), None
    joule, second = goal.weights(static_w)
    if not joule:
        return NestObjective("latency"), None
    return NestObjective("energy"), None if second == joule * static_w else second / joule / used
