"""Where the prompts of a train lie in steps: of clients that come one after the other, what each has before its first token.

    A            steps of the first one: whole ones where it goes alone, for it is ready before the others; else d
    [S, E]       the j-th one's own: from floor(A + (j - 1) d) to ceil(A + j d), and no fewer than it fills alone; where prompts are cut
                 anywhere and lengths are unlike, a half less and a half more
    N            min(1 + (E - A) / d, n) prompts are done or in work by then
    K            steps from its end to its own, as many as the first one's with those of its own (all cycles are as long), less the
                 gaps before it; of these min(K, S) have prompts, and the rest none

d: steps that a prompt takes of a full queue · n: clients of the train. A mean over PLACED places at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array

PLACED = 16
"""Places of a train that are taken, evenly apart; of a shorter one each."""


@dataclass(frozen=True)
class Places:
    """How prompts come and are cut, [n] each. alone: how surely the first goes alone · whole: how surely they lie in steps as in the
    first ones, for all have as many tokens or none is cut · parts: steps that one fills alone · early: of a step, by which prompts end
    sooner for each of the first one's own, beside which nobody decodes."""

    alone: Array
    whole: Array
    parts: Array
    early: Array


@dataclass(frozen=True)
class Way:
    """From a client's end to its first token, [n] means over a train. short, long: steps without prompts, and with · met: others' prompts
    in these."""

    short: Array
    long: Array
    met: Array


@dataclass(frozen=True)
class Lateness:
    """waiting: [n] steps from an end to the first one's prompt · gaps: [n] steps that the last one is less late · kept: [n] share of the
    train that is late at all · chance: [n] steps that prompts wait beside · under_way: [n] steps of the train before, when its first
    one ends."""

    waiting: Array
    gaps: Array
    kept: Array
    chance: Array
    under_way: Array


def way_in_train(clients: Array, each: Array, places: Places, late: Lateness) -> Way:
    """The way of clients [n] whose prompts follow one another, each [n] steps."""
    number = np.arange(float(PLACED))[:, None]
    few = clients <= PLACED
    place = np.where(few, number, np.floor((number + 0.5) / PLACED * clients))
    weight = np.clip(late.kept * np.where(few, clients, PLACED) - number, 0.0, 1.0)
    weight = weight / weight.sum(axis=0)
    waiting = late.waiting - late.gaps * np.minimum(place / clients, 1.0)
    found = np.zeros((3, *clients.shape))
    for first_alone, share in ((False, 1.0 - places.alone), (True, places.alone)):
        start, end, first = _own_steps(place, clients, each, places, first_alone)
        own = end - start
        kept = waiting + own[:1] - own
        full = np.minimum(kept + late.chance, np.maximum(start, late.under_way))
        met = np.clip((end - first) / each + 1.0, 1.0, clients) - 1.0 - (start - full) / each
        steps = np.maximum(kept - full, 0.0), full + own, met
        found = found + share * np.array([(weight * one).sum(axis=0) for one in steps])
    return Way(*found)


def way_in_group(clients: Array, each: Array, places: Places) -> Way:
    """The same of clients that are there together: each waits for those before it alone."""
    none, ever = np.zeros_like(clients), np.full_like(clients, 1e9)
    return way_in_train(clients, each, places, Lateness(none, none, none + 1.0, ever, none))


def _own_steps(place: Array, clients: Array, each: Array, places: Places, alone: bool) -> tuple[Array, Array, Array]:
    """Steps at which prompts of places [m, n] begin and end, and those of the first one. alone: whether that goes alone."""
    own = np.ceil(places.parts - 1e-9)
    first = own if alone else each
    ends = first + place * each - places.early * own
    rough = 1.0 - places.whole
    least, most = (own if alone else 0.0), np.ceil(first + (clients - 1.0) * each)
    start = places.whole * np.floor(ends - each + 1e-9) + rough * np.maximum(ends - each - 0.5, least)
    end = places.whole * np.ceil(ends - 1e-9) + rough * np.clip(ends + 0.5, 1.0, most)
    start = np.where(place > 0, start, 0.0)
    end = np.where(place > 0, end, own) if alone else end
    return start, np.maximum(end, start + np.maximum(places.parts, 1.0)), first
