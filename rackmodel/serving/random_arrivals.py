"""Batches of an engine to which requests come at random: a Markov chain of the prompts that wait for each batch.

    n' = n - min(n, m) + Poisson(r t(n))        prompts that wait for the next batch; m fit into one; r of them come a second
    t(n)                                        of a batch: n = 0 decodes alone, else on the line through those of one prompt and of m;
                                                nobody there: 1 / r, and n' = 1
    wait = L / r                                L prompts that are in no batch yet, a mean over time (Little)
    Z decode steps take Z g + v(start) - v(end) g: seconds a step in the mean; (I - P) v = t - g d of a chain P whose batches decode d steps

A sequence begins to decode when others wait behind its own long batch, and has these before it: v says how much longer that takes than
from anywhere. Where prompts go first a batch of them decodes no step, and those that come meanwhile are next. With steps scheduled
ahead what comes while a batch runs waits for one more (or for `ahead` more), so that ahead + 1 chains alternate, of which one is that
of a sequence's own prompt. Batches of stages of a pipeline are no such chain (steady.py).

States are prompts up to DENSE, then points of a line that is even in logarithms, between which a number is dealt so that its mean stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rackmodel.arrays import Array, Bools

DENSE, MOST = 24, 4096.0
STATES = np.unique(np.concatenate([np.arange(DENSE + 1.0), np.round(np.geomspace(DENSE, MOST, DENSE + 1))]))
COUNTED, FEW = np.arange(65.0), 24.0
"""Prompts that come during a batch, and up to how many in the mean each number of them has its probability; of more the mean and the
deviation are kept."""
FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(COUNTED[1:]))])
"""Logarithms of those of COUNTED."""
BATCHES = 24
"""After a sequence's own, that are followed one by one; then relative values say what is left."""
TINY = 1e-300
LEAK = 1e-12
"""Of each state to that of nobody who waits, so that no chain falls apart."""


@dataclass(frozen=True)
class RandomBatches:
    """n engines; [n, states] but where said. seconds: of a batch · taken: prompts in it · decoded: steps that it decodes · moves:
    [n, states, states] of the chain while somebody decodes · often: how often a batch finds each state · met: the same while a sequence
    decodes · empty: [n] how often nobody is there at all where no prompt waits · there: [n] how often somebody decodes · rate: [n]
    requests a second."""

    seconds: Array
    taken: Array
    decoded: Array
    moves: Array
    often: Array
    met: Array
    empty: Array
    there: Array
    rate: Array

    @property
    def _spent(self) -> Array:
        """Seconds in each state, for each batch."""
        spent = self.often * self.seconds
        return np.concatenate([spent[:, :1] * (1.0 - self.empty)[:, None], spent[:, 1:]], axis=1)

    @property
    def _shares(self) -> Array:
        """Of all time, in each state."""
        idle = self.often[:, 0] * self.empty / self.rate
        return np.asarray(self._spent / (self._spent.sum(axis=1) + idle)[:, None])

    @property
    def batch_s(self) -> Array:
        """[n] seconds of a batch that runs."""
        return np.asarray(self._spent.sum(axis=1) / np.maximum(1.0 - self.often[:, 0] * self.empty, TINY))

    @property
    def queue_s(self) -> Array:
        """[n] seconds that a prompt waits while batches have no room for it."""
        return np.asarray((self._shares * (STATES - self.taken)).sum(axis=1) / self.rate)

    def wait_s(self, ahead: Array) -> Array:
        """[n] seconds from a request's arrival to the first batch that is not scheduled yet. ahead: that are, where somebody decodes."""
        return np.asarray((self._shares * self.seconds).sum(axis=1) / 2.0 + ahead * self.there * self.batch_s)

    @property
    def own_s(self) -> Array:
        """[n] seconds of a prompt's own batch."""
        prompts = self.often * self.taken
        return np.asarray((prompts * self.seconds).sum(axis=1) / np.maximum(prompts.sum(axis=1), TINY))

    def decoding_s(self, steps: Array, ahead: Array) -> Array:
        """[n] seconds of so many decode steps [n] after a sequence's own batch."""
        each = (self.met * self.seconds).sum(axis=1) / np.maximum((self.met * self.decoded).sum(axis=1), TINY)
        values = _values(self.moves, self.seconds - each[:, None] * self.decoded)
        state, end = (self._next(weights) for weights in (self.often * self.taken, self.met * self.decoded))
        took, left = np.zeros_like(steps), steps * 1.0
        shared = self.decoded[:, 1:2] > 0
        followed = shared[:, 0] | (ahead > 0)  # else a sequence's chain is its own, and begins anew with each of its steps
        for number in range(1, BATCHES + 1):
            own = (followed & (number % (ahead + 1.0) == 0))[:, None]
            now = np.where(own, state, self.met)
            decoded = np.where(shared, self.decoded, (now * self.decoded).sum(axis=1)[:, None])
            part = np.where(followed[:, None], np.minimum(left[:, None] / np.maximum(decoded, TINY), 1.0), 0.0)
            took = took + (now * part * self.seconds).sum(axis=1)
            left = np.maximum(left - (now * part * self.decoded).sum(axis=1), 0.0)
            state = np.where(own, _moved(state, self.moves), state)
        rest = left * each + ((state - end) * values).sum(axis=1)
        return np.asarray(took + np.where(left > 1e-9 * steps, np.maximum(rest, 0.0), 0.0))

    def _next(self, weights: Array) -> Array:
        """States after batches of some weights."""
        return _moved(weights / np.maximum(weights.sum(axis=1), TINY)[:, None], self.moves)


def random_batches(rate: Array, plain_s: Array, prompt_s: tuple[Array, Array], most: Array, mixed: Bools, there: Array) -> RandomBatches:
    """Batches of n engines, [n] each. rate: prompts a second · plain_s: seconds of decodes alone · prompt_s: of a batch of one prompt, all
    its chunks together, and of a full batch · most: prompts of that, less than one where it is cut · there: probability that somebody
    decodes. Work: two systems of as many equations as states for each."""
    one_s, full_s = prompt_s
    whole = np.maximum(most, 1.0)
    slope = np.where(most > 1.0, (full_s - one_s) / np.maximum(most - 1.0, 1e-12), 0.0)
    alone_s = np.where(most > 1.0, one_s, np.maximum(one_s, full_s / most))
    taken = np.minimum(STATES, whole[:, None])
    seconds = np.where(STATES > 0, alone_s[:, None] + slope[:, None] * (taken - 1.0), plain_s[:, None])
    decoded = np.where(STATES > 0, np.where(mixed, np.maximum(1.0 / most, 1.0), 0.0)[:, None], 1.0)
    moves = _moves(STATES - taken, rate[:, None] * seconds)
    first = np.where(STATES == 1.0, 1.0, 0.0)
    idle = (1.0 - there) * rate * plain_s
    empty = idle / np.maximum(there + idle, TINY)  # of the time in which no prompt is there, as much as nobody decodes
    any_first = (1.0 - empty)[:, None] * moves[:, 0] + empty[:, None] * first
    often = _stationary(np.concatenate([any_first[:, None], moves[:, 1:]], axis=1))
    return RandomBatches(
        seconds=seconds,
        taken=taken,
        decoded=decoded,
        moves=moves,
        often=often,
        met=_stationary(moves),
        empty=empty,
        there=there,
        rate=rate,
    )


def _moved(state: Array, moves: Array) -> Array:
    return np.asarray((state[:, None, :] @ moves)[:, 0])


def _moves(left: Array, come: Array) -> Array:
    """[n, states, states] probabilities of the next state. left: prompts that a batch leaves · come: in the mean while it runs."""
    left, come = left.reshape(-1, 1), come.reshape(-1, 1)
    found = np.zeros((len(left), len(STATES)))
    few = come[:, 0] < FEW
    chance = np.exp(COUNTED * np.log(np.maximum(come[few], TINY)) - come[few] - FACTORIALS)
    found[few] = _dealt(left[few] + COUNTED, chance / np.maximum(chance.sum(axis=1), TINY)[:, None])
    many = come[~few]
    found[~few] = _dealt(left[~few] + many + np.sqrt(many) * np.array([-1.0, 1.0]), np.full((len(many), 2), 0.5))
    found *= 1.0 - LEAK
    found[:, 0] += LEAK
    return found.reshape(-1, len(STATES), len(STATES))


def _dealt(values: Array, weights: Array) -> Array:
    """[rows, states] weights [rows, values] of numbers, each dealt to the states next to it."""
    values = np.minimum(values, MOST)
    below = np.minimum(np.searchsorted(STATES, values, side="right") - 1, len(STATES) - 2)
    above = (values - STATES[below]) / (STATES[below + 1] - STATES[below])
    place = below + len(STATES) * np.arange(len(values))[:, None]
    size = len(values) * len(STATES)
    parts = (np.bincount((place + more).ravel(), (weights * share).ravel(), size) for more, share in ((0, 1.0 - above), (1, above)))
    return np.asarray(sum(parts)).reshape(-1, len(STATES))


def _stationary(moves: Array) -> Array:
    """[n, states] how often a chain is in each of its states."""
    system = np.eye(len(STATES)) - moves.transpose(0, 2, 1)
    system[:, -1] = 1.0
    right = np.zeros((len(moves), len(STATES), 1))
    right[:, -1] = 1.0
    return np.asarray(np.maximum(np.linalg.solve(system, right)[:, :, 0], 0.0))


def _values(moves: Array, rewards: Array) -> Array:
    """[n, states] relative values of a chain: how much more of a reward comes from each state on than from the first."""
    system = np.eye(len(STATES)) - moves
    system[:, 0] = np.eye(len(STATES))[0]
    return np.asarray(np.linalg.solve(system, np.concatenate([np.zeros((len(moves), 1)), rewards[:, 1:]], axis=1)[:, :, None])[:, :, 0])
