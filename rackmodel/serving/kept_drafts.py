"""Steps of answers whose drafted tokens are kept by chance: each with probability p where all before it in its step were.

    P(X = j) = p^(j - 1) (1 - p), P(X = k + 1) = p^k      tokens X that a sequence gets in a step of k drafts; s in the mean
    N(L)                                                  steps to L tokens: E[N(L)] = 1 + sum of P(X = j) E[N(L - j)], and E[N^2] likewise
    E[N(L)] = (L + E[over]) / s                           the last step makes more than was asked for (Wald)

So answers of equal lengths take unlike steps: 256 tokens of three drafts that are kept with 0.7 take 101.5, give or take 4.9.

Source: Leviathan 2023 (arXiv 2211.17192), section 3.1: tokens of a step are a capped geometric variable, drafts are kept independently.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rackmodel.arrays import Array, Bools

LONGEST = 4096
"""Tokens of an answer, up to which its steps are counted; from there on both moments grow evenly, by 1 / s and Var(X) / s^3 a token."""


def tokens_of_a_step(drafted: int, accepted: float) -> Array:
    """[k + 1] probabilities that a sequence gets 1, 2 ... k + 1 tokens in a step of k drafts."""
    kept = accepted ** np.arange(drafted + 1.0)
    return np.append(kept[:-1] * (1.0 - accepted), kept[-1])


def by_chance(drafted: Array, accepted: Array) -> Bools:
    """[n] whether steps have unlike numbers of tokens: of drafts that are all kept, or none, they have as many."""
    return np.asarray((drafted > 0) & (accepted > 0) & (accepted < 1))


def steps_of_answers(drafted: Array, accepted: Array, tokens: Array) -> tuple[Array, Array]:
    """[..., n] mean and variance of the steps of whole numbers of tokens [..., n]. drafted, accepted: [n]."""
    mean, variance = np.zeros(tokens.shape), np.zeros(tokens.shape)
    drafted, accepted = (np.broadcast_to(one, tokens.shape[-1:]) for one in (drafted, accepted))
    for count, share in dict.fromkeys(zip(drafted.tolist(), accepted.tolist(), strict=True)):
        some = (drafted == count) & (accepted == share)
        asked = np.maximum(tokens[..., some], 0.0)
        if not 0.0 < share < 1.0:
            mean[..., some] = _whole_steps(int(count), share, asked)
            continue
        table = _counted(int(count), share, 1 << int(np.ceil(np.log2(min(max(asked.max(), 1.0), LONGEST)))))
        within = np.minimum(asked, len(table[0]) - 1.0).astype(np.int64)
        for figure, values, more in zip((mean, variance), table, _a_token(int(count), share), strict=True):
            figure[..., some] = values[within] + more * (asked - within)
    return mean, variance


def run_steps(draw: np.random.Generator, drafted: int, accepted: float, tokens: Array) -> Array:
    """[n] steps in which sequences get so many tokens [n] each, whole numbers; drawn where drafts are kept by chance."""
    if not by_chance(np.array(drafted), np.array(accepted)):
        return _whole_steps(drafted, accepted, tokens)
    mean = _a_token(drafted, accepted)[0]
    found = np.zeros(len(tokens))
    for at, most in enumerate(tokens.tolist()):
        left = most
        while left > 0:
            made = np.cumsum(np.minimum(draw.geometric(1.0 - accepted, int(1.2 * left * mean) + 4), drafted + 1))
            steps = min(int(np.searchsorted(made, left)) + 1, len(made))
            found[at] += steps
            left -= int(made[steps - 1])
    return found


def _whole_steps(drafted: int, accepted: float, tokens: Array) -> Array:
    """Steps that all have as many tokens: drafts are all kept, or none is."""
    return np.asarray(np.ceil(tokens / (drafted + 1.0 if accepted > 0 else 1.0)))


def _a_token(drafted: int, accepted: float) -> tuple[float, float]:
    """What one more token of a long answer adds to the mean and to the variance of its steps."""
    chances, sizes = tokens_of_a_step(drafted, accepted), np.arange(1.0, drafted + 2.0)
    mean = float(chances @ sizes)
    return 1.0 / mean, float(chances @ sizes**2 - mean**2) / mean**3


@lru_cache(maxsize=512)
def _counted(drafted: int, accepted: float, most: int) -> tuple[Array, Array]:
    """[most + 1] mean and variance of the steps of 0, 1, 2 ... tokens."""
    chances = tokens_of_a_step(drafted, accepted).tolist()
    before = len(chances)
    mean, square = [0.0] * (before + most), [0.0] * (before + most)  # of fewer than none: no steps
    for at in range(before, before + most):
        once = sum(chance * mean[at - j] for j, chance in enumerate(chances, start=1))
        mean[at] = 1.0 + once
        square[at] = 1.0 + 2.0 * once + sum(chance * square[at - j] for j, chance in enumerate(chances, start=1))
    first, second = np.array(mean[before - 1 :]), np.array(square[before - 1 :])
    return first, np.maximum(second - first**2, 0.0)
